"""EliminateCommonSubexpr: what was computed is not computed again."""

import numpy as np
from pass_cases import becomes, parse, same_results, stays

from relaxvm import relax
from relaxvm.relax import transform
from relaxvm.relax.analysis import assert_well_formed

run = transform.EliminateCommonSubexpr()


def test_the_same_calls_are_made_once():
    becomes(
        run,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.add(x, y)
                b = R.add(x, y)
                c = R.exp(a)
                d = R.exp(b)
                gv = R.multiply(c, d)
                R.output(gv)
            return gv
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.add(x, y)
                c = R.exp(a)
                gv = R.multiply(c, c)
                R.output(gv)
            return gv
        """,
    )


def test_other_arguments_attributes_and_struct_info_are_other_calls():
    stays(
        run,
        """
        @R.function
        def main(x: R.Tensor((4, 4), "float32"), y: R.Tensor((4, 4), "float32")):
            a = R.add(x, y)
            b = R.add(y, x)
            c = R.sum(a, axis=0)
            d = R.sum(a, axis=1)
            e = R.astype(a, "float16")
            f = R.astype(a, "float64")
            g = R.reshape(a, (2, 8))
            h = R.reshape(a, (8, 2))
            i = R.call_pure_packed("f", x, sinfo_args=R.Tensor((4,), "float32"))
            j = R.call_pure_packed("g", x, sinfo_args=R.Tensor((4,), "float32"))
            return (a, b, c, d, e, f, g, h, i, j)
        """,
    )


def test_a_result_that_is_given_out_keeps_the_outer_variable():
    becomes(
        run,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                lv = R.add(x, x)
                lv1 = R.exp(lv)
                gv = R.add(x, x)
                gv1 = R.add(x, x)
                R.output(lv1, gv, gv1)
            return (lv1, gv, gv1)
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                gv = R.add(x, x)
                lv1 = R.exp(gv)
                R.output(lv1, gv)
            return (lv1, gv, gv)
        """,
    )


def test_a_value_of_an_earlier_block_is_given_out():
    before = """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                lv = R.add(x, x)
                a = R.exp(lv)
                R.output(a)
            R.print(a)
            with R.dataflow():
                lv1 = R.add(x, x)
                b = R.sin(lv1)
                R.output(b)
            return (a, b)
        """
    mod = run(parse(before))
    assert_well_formed(mod)
    assert mod.script().count("R.add") == 1


def test_branches_know_what_was_computed_before_them_and_nothing_of_each_other():
    becomes(
        run,
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            a = R.add(x, x)
            if c:
                b = R.add(x, x)
                d = R.exp(x)
                r = R.multiply(b, d)
            else:
                b = R.exp(x)
                r = R.add(b, a)
            e = R.exp(x)
            f = R.add(r, e)
            return f
        """,
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            a = R.add(x, x)
            if c:
                d = R.exp(x)
                r = R.multiply(a, d)
            else:
                b = R.exp(x)
                r = R.add(b, a)
            e = R.exp(x)
            f = R.add(r, e)
            return f
        """,
    )


def test_inner_functions_capture_nothing_new():
    stays(
        run,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.add(x, x)
            @R.function
            def inner(y: R.Tensor((4,), "float32")):
                b = R.add(x, x)
                d = R.add(b, y)
                return d
            e = inner(a)
            return e
        """,
    )


def test_calls_with_effects_and_allocations_stay():
    stays(
        run,
        """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            R.print(x)
            R.print(x)
            a = R.call_packed("f", x, sinfo_args=R.Tensor((4,), "float32"))
            b = R.call_packed("f", x, sinfo_args=R.Tensor((4,), "float32"))
            c = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
            d = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
            return (a, b, c, d)
        """,
    )


def test_objects_with_a_state_are_each_their_own():
    stays(
        run,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.call_pure_packed("new_cache", x, sinfo_args=R.Object)
            b = R.call_pure_packed("new_cache", x, sinfo_args=R.Object)
            return (a, b)
        """,
    )


def test_what_may_be_written_is_neither_shared_nor_read_as_it_was():
    stays(
        run,
        """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            a = R.zeros((4,), "float32")
            b = R.zeros((4,), "float32")
            t = (b, x)
            p = R.exp(x)
            R.call_packed("fill", t, sinfo_args=R.Tuple())
            q = R.exp(x)
            return (a, b, p, q)
        """,
    )


def test_in_place_kernels_are_not_shared():
    text = """
        @T.prim_func(private=True)
        def inc(A: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("b"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = A[vi] + T.float32(1)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            a = R.add(x, x)
            b = R.add(x, x)
            c = R.call_tir_inplace(
                cls.inc,
                (b,),
                inplace_indices=[0],
                out_sinfo=R.Tensor((4,), "float32"),
            )
            return (a, c)
        """
    mod = stays(run, text)
    same_results(mod, run(mod), np.arange(4, dtype="float32"))


def test_kernel_calls_tuples_fields_and_casts():
    becomes(
        run,
        """
        @T.prim_func(private=True)
        def inc(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("b"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi] + T.float32(1)

        @R.function
        def main(x: R.Tensor(ndim=1, dtype="float32"), t: R.Tuple(R.Tensor((4,), "float32"))):
            cls = Module
            n = T.int64()
            a = t[0]
            b = t[0]
            c = R.call_tir(cls.inc, (a,), out_sinfo=R.Tensor((4,), "float32"))
            d = R.call_tir(cls.inc, (b,), out_sinfo=R.Tensor((4,), "float32"))
            e = R.match_cast(x, R.Tensor((n,), "float32"))
            f = R.match_cast(x, R.Tensor((n,), "float32"))
            g = (c, e)
            h = (d, f)
            return (g, h)
        """,
        """
        @T.prim_func(private=True)
        def inc(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("b"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi] + T.float32(1)

        @R.function
        def main(x: R.Tensor(ndim=1, dtype="float32"), t: R.Tuple(R.Tensor((4,), "float32"))):
            cls = Module
            n = T.int64()
            a = t[0]
            c = R.call_tir(cls.inc, (a,), out_sinfo=R.Tensor((4,), "float32"))
            e = R.match_cast(x, R.Tensor((n,), "float32"))
            g = (c, e)
            return (g, g)
        """,
    )


def test_call_only_looks_at_calls_only():
    becomes(
        transform.EliminateCommonSubexpr(call_only=True),
        """
        @R.function
        def main(t: R.Tuple(R.Tensor((4,), "float32"))):
            a = t[0]
            b = t[0]
            c = R.exp(a)
            d = R.exp(a)
            e = R.exp(b)
            return (c, d, e)
        """,
        """
        @R.function
        def main(t: R.Tuple(R.Tensor((4,), "float32"))):
            a = t[0]
            b = t[0]
            c = R.exp(a)
            e = R.exp(b)
            return (c, c, e)
        """,
    )


def test_constants_of_the_same_content_are_the_same():
    becomes(
        run,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = R.add(x, R.const([1.0, 2.0], "float32"))
            b = R.add(x, R.const([1.0, 2.0], "float32"))
            c = R.add(x, R.const([1.0, -2.0], "float32"))
            return (a, b, c)
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = R.add(x, R.const([1.0, 2.0], "float32"))
            c = R.add(x, R.const([1.0, -2.0], "float32"))
            return (a, a, c)
        """,
    )


def test_zeros_of_both_signs_are_different_constants():
    stays(
        run,
        """
        @R.function
        def main(x: R.Tensor((1,), "float32")):
            a = R.divide(x, R.const([0.0], "float32"))
            b = R.divide(x, R.const([-0.0], "float32"))
            return (a, b)
        """,
    )


def test_a_deep_tuple_as_an_argument_needs_no_stack():
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    deep = x
    for _ in range(90):
        deep = relax.Tuple([deep])
    calls = [
        relax.op.call_pure_packed("f", deep, sinfo_args=relax.TensorStructInfo((4,), "float32"))
        for _ in range(2)
    ]
    a, b = (relax.Var(n, calls[0].struct_info) for n in "ab")
    block = relax.BindingBlock([relax.VarBinding(a, calls[0]), relax.VarBinding(b, calls[1])])
    fn = relax.Function([x], relax.SeqExpr([block], relax.Tuple([a, b])))
    made = run(relax.BlockBuilder().get().clone({"main": fn}))["main"]
    assert len(made.body.blocks[0].bindings) == 1
