"""FoldConstant: what depends on constants only is computed while compiling."""

import numpy as np
import pytest
from pass_cases import becomes, parse, same_results, stays

from relaxvm import relax
from relaxvm.ir import PassContext, walk
from relaxvm.relax import transform
from relaxvm.relax.analysis import assert_well_formed

run = transform.FoldConstant()


def constants(mod):
    """The constants of main, as lists."""
    return [n.data.numpy().tolist() for n in walk(mod["main"]) if isinstance(n, relax.Constant)]


def test_moves_of_constants_are_made_now():
    becomes(
        run,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            w = R.permute_dims(R.const([[1.0, 2.0], [3.0, 4.0]], "float32"))
            v = R.reshape(w, (4,))
            a = R.matmul(x, w)
            return (a, v)
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = R.matmul(x, R.const([[1.0, 3.0], [2.0, 4.0]], "float32"))
            return (a, R.const([1.0, 3.0, 2.0, 4.0], "float32"))
        """,
    )


def test_floats_are_computed_by_the_kernels_the_program_would_run():
    rng = np.random.default_rng(0)
    c = relax.const(rng.standard_normal((5, 7)).astype("float32"))
    x = relax.Var("x", relax.TensorStructInfo((5, 7), "float32"))
    b = relax.BlockBuilder()
    with b.function("main", [x]):
        y = b.emit(relax.op.exp(relax.op.sin(c)))
        z = b.emit(relax.op.nn.softmax(y))
        out = b.emit(relax.op.add(x, z))
        b.emit_func_output(relax.Tuple([out, z]))
    mod = b.get()
    folded = run(mod)
    assert [v.value.op.name for v in folded["main"].body.blocks[0].bindings] == ["relax.add"]
    arg = rng.standard_normal((5, 7)).astype("float32")
    want = relax.VirtualMachine(relax.build(mod, "llvm"))["main"](arg)
    got = relax.VirtualMachine(relax.build(folded, "llvm"))["main"](arg)
    for a, e in zip(got, want):
        assert np.array_equal(a.numpy(), e.numpy())


KERNEL = """
    @T.prim_func(private=True)
    def inc(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("b"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] + T.float32(1)
"""


def test_calls_of_loop_functions_are_made_now():
    mod = parse(
        KERNEL
        + """
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        cls = Module
        a = R.call_tir(
            cls.inc,
            (R.const([1.0, 2.0], "float32"),),
            out_sinfo=R.Tensor((2,), "float32"),
        )
        b = R.call_tir(cls.inc, (a,), out_sinfo=R.Tensor((2,), "float32"))
        c = R.call_tir(cls.inc, (x,), out_sinfo=R.Tensor((2,), "float32"))
        return (b, c)
"""
    )
    folded = run(mod)
    assert constants(folded) == [[3.0, 4.0]]
    assert folded.script().count("R.call_tir") == 1
    same_results(mod, folded, np.zeros(2, "float32"))


def test_a_loop_function_that_may_not_end_or_does_more_than_compute_is_left_alone():
    stays(
        run,
        """
        @T.prim_func(private=True)
        def spin(A: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32")):
            while A[0] < T.float32(5):
                B[0] = A[0]

        @T.prim_func(private=True)
        def outside(A: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32")):
            B[0] = T.call_extern("float32", "no_such_function", A[0])

        @T.prim_func(private=True)
        def long(A: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32")):
            for i, j, k in T.grid(1000000, 1000000, 1000000):
                B[0] = B[0] + A[0]

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            cls = Module
            a = R.call_tir(
                cls.spin,
                (R.const([1.0, 2.0], "float32"),),
                out_sinfo=R.Tensor((2,), "float32"),
            )
            b = R.call_tir(
                cls.outside,
                (R.const([1.0, 2.0], "float32"),),
                out_sinfo=R.Tensor((2,), "float32"),
            )
            c = R.call_tir(
                cls.long,
                (R.const([1.0, 2.0], "float32"),),
                out_sinfo=R.Tensor((2,), "float32"),
            )
            return (a, b, c)
        """,
    )


def test_what_fails_on_the_constants_is_left_to_fail_where_it_runs():
    stays(
        run,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = R.index_tensor(R.const([1.0, 2.0], "float32"), (R.const([7], "int64"),))
            return a
        """,
    )


def test_integers_are_computed_without_a_compiler():
    mod = parse(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = R.matmul(R.const([[1, 2]], "int32"), R.const([[3], [4]], "int32"))
            b = R.add(R.const([2147483647], "int32"), R.const([1], "int32"))
            c = R.multiply(R.const(6, "int32"), R.const(7, "int32"))
            return (a, b, c)
        """
    )
    folded = run(mod)
    assert constants(folded) == [[[11]], [-2147483648], 42]
    same_results(mod, folded, np.zeros(2, "float32"))


def test_large_results_are_left_to_run_time_unless_they_come_from_large_constants():
    text = """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = R.zeros((64,), "float32")
            b = R.zeros((4,), "float32")
            return (a, b)
        """
    with PassContext(config={"relax.FoldConstant.max_bytes": 100}):
        mod = run(parse(text))
    assert mod.script().count("R.zeros") == 1
    stays(
        run,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = R.zeros((1000000000, 1000), "float32")
            b = R.broadcast_to(R.const(1.0, "float32"), (1000000, 1000000))
            return (a, b)
        """,
    )
    big = relax.const(np.arange(600_000, dtype="float32").reshape(600, 1000))
    b = relax.BlockBuilder()
    with b.function("main", []):
        b.emit_func_output(b.emit(relax.op.permute_dims(big)))
    folded = run(b.get())
    assert isinstance(folded["main"].body.body, relax.Constant)


def test_what_may_be_written_is_no_constant():
    stays(
        run,
        """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            a = R.zeros((4,), "float32")
            R.call_packed("fill", a, sinfo_args=R.Tuple())
            return a
        """,
    )


def test_shapes_of_known_tensors_and_fields_of_known_tuples():
    becomes(
        run,
        """
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            n = T.int64()
            s = R.shape_of(x)
            t = R.split(R.const([1, 2, 3, 4], "int32"), 2)
            a = t[1]
            y = R.call_pure_packed("f", s, a, sinfo_args=R.Object)
            return y
        """,
        """
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            n = T.int64()
            t = (R.const([1, 2], "int32"), R.const([3, 4], "int32"))
            y = R.call_pure_packed(
                "f",
                R.shape([n, 4]),
                R.const([3, 4], "int32"),
                sinfo_args=R.Object,
            )
            return y
        """,
    )


def test_a_result_sized_by_its_data_keeps_what_callers_were_told():
    mod = run(
        parse(
            """
            @R.function
            def main(x: R.Tensor((4,), "float32")):
                a = R.nonzero(R.const([0, 1, 1, 0], "int32"))
                return a
            """
        )
    )
    assert_well_formed(mod)
    assert constants(mod) == [[[1, 2]]]


def test_effects_and_random_places_are_not_computed():
    stays(
        run,
        """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            R.print(R.const([1.0], "float32"))
            a = R.call_packed("f", R.const([1.0], "float32"), sinfo_args=R.Tensor((1,), "float32"))
            b = R.call_pure_packed(
                "f",
                R.const([1.0], "float32"),
                sinfo_args=R.Tensor((1,), "float32"),
            )
            c = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
            return (a, b, c)
        """,
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "bool"])
def test_every_dtype_is_stored_as_the_runtime_stores_it(dtype):
    c = relax.const(np.array([[0, 1, 1], [1, 0, 1]], "float32"))
    b = relax.BlockBuilder()
    with b.function("main", []):
        y = b.emit(relax.op.astype(c, dtype))
        b.emit_func_output(b.emit(relax.op.permute_dims(y)))
    mod = b.get()
    folded = run(mod)
    assert isinstance(folded["main"].body.body, relax.Constant)
    same_results(mod, folded)


def test_constants_inside_branches_and_inner_functions():
    mod = parse(
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "int32")):
            k = R.add(R.const([1, 2], "int32"), R.const([3, 4], "int32"))
            @R.function
            def inner(y: R.Tensor((2,), "int32")):
                m = R.multiply(k, k)
                d = R.add(y, m)
                return d
            if c:
                r = inner(x)
            else:
                q = R.negative(k)
                r = R.add(x, q)
            return r
        """
    )
    folded = run(mod)
    assert_well_formed(folded)
    assert folded.script().count("R.add") == 2
    for c in (True, False):
        same_results(mod, folded, np.array(c), np.array([7, 8], "int32"))


def test_functions_that_compute_the_same_from_one_array_share_the_result():
    weight = relax.const(np.ones((200, 200), "float32"))
    b = relax.BlockBuilder()
    for name in ("prefill", "decode"):
        x = relax.Var("x", relax.TensorStructInfo((1, 200), "float32"))
        with b.function(name, [x]):
            turned = b.emit(relax.op.permute_dims(weight))
            scaled = b.emit(relax.op.multiply(turned, relax.const(2.0)))
            b.emit_func_output(b.emit(relax.op.matmul(x, scaled)))
    folded = transform.FoldConstant()(b.get())
    arrays = {
        id(n.data)
        for name in ("prefill", "decode")
        for n in walk(folded[name])
        if isinstance(n, relax.Constant)
    }
    assert len(arrays) == 1


def test_a_large_weight_in_another_order_is_a_view_until_code_is_generated():
    weight = np.random.default_rng(0).standard_normal((301, 257)).astype("float32")
    b, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((3, 257), "float32"))
    with b.function("main", [x]):
        turned = b.emit(relax.op.permute_dims(relax.const(weight)))
        b.emit_func_output(relax.Tuple([b.emit(relax.op.matmul(x, turned)), turned]))
    folded = run(b.get())
    (product,) = (v.value for v in folded["main"].body.blocks[0].bindings)
    held = product.args[1].data
    assert held.numpy().base is not None
    assert not held.numpy().flags.c_contiguous
    np.testing.assert_array_equal(held.numpy(), weight.T)
    arg = np.random.default_rng(1).standard_normal((3, 257)).astype("float32")
    for mode in ("compiled", "bytecode"):
        program = relax.build(folded, "llvm", exec_mode=mode)
        assert all(c.is_contiguous() for c in program.constants if hasattr(c, "is_contiguous"))
        y, w = relax.VirtualMachine(program)["main"](arg)
        np.testing.assert_allclose(y.numpy(), arg @ weight.T, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(w.numpy(), weight.T)
