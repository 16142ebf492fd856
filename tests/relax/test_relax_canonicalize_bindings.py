"""CanonicalizeBindings: one name for one value."""

import pytest
from pass_cases import becomes, parse, stays

from relaxvm import relax
from relaxvm.base import DiagnosticError
from relaxvm.ir import structural_equal
from relaxvm.relax import transform
from relaxvm.relax.analysis import assert_well_formed

run = transform.CanonicalizeBindings()


def test_renamed_variables_are_the_variable():
    becomes(
        run,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = x
            z = y
            a = R.add(z, y)
            b = a
            return b
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.add(x, x)
            return a
        """,
    )


def test_nothing_to_do_gives_the_same_module():
    stays(
        run,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.add(x, x)
                b = R.add(a, x)
                R.output(b)
            return b
        """,
    )


def test_a_dataflow_variable_that_is_given_out_takes_the_outer_name():
    becomes(
        run,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                lv = R.add(x, x)
                lv1 = R.multiply(lv, x)
                gv = lv
                gv1 = lv
                R.output(gv, gv1, lv1)
            return (gv, gv1, lv1)
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                gv = R.add(x, x)
                lv1 = R.multiply(gv, x)
                R.output(gv, lv1)
            return (gv, gv, lv1)
        """,
    )


def test_a_variable_read_only_in_its_block_becomes_a_dataflow_variable():
    becomes(
        run,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.add(x, x)
                b = R.add(a, x)
                R.output(a, b)
            return b
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.add(x, x)
                b = R.add(a, x)
                R.output(b)
            return b
        """,
    )


def test_fields_of_a_tuple_just_built_are_the_values():
    becomes(
        run,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((2,), "float32")):
            t = (x, y)
            a = t[1]
            b = R.add(a, a)
            return b
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((2,), "float32")):
            t = (x, y)
            b = R.add(y, y)
            return b
        """,
    )


def test_a_field_from_inside_a_block_is_given_out():
    becomes(
        run,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                lv = R.add(x, x)
                t = (lv, x)
                R.output(t)
            a = t[0]
            b = R.add(a, x)
            return (b, t)
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.add(x, x)
                t = (a, x)
                R.output(a, t)
            b = R.add(a, x)
            return (b, t)
        """,
    )


def test_a_field_taken_in_another_block_is_given_out():
    mod = run(
        parse(
            """
            @R.function
            def main(x: R.Tensor((4,), "float32")):
                with R.dataflow():
                    lv = R.add(x, x)
                    t = (lv, x)
                    R.output(t)
                R.print(t)
                with R.dataflow():
                    lv1 = t[0]
                    b = R.add(lv1, lv1)
                    R.output(b)
                return b
            """.replace("@R.function", "@R.function(pure=False)")
        )
    )
    assert_well_formed(mod)
    text = mod.script()
    assert "t[0]" not in text and "R.output(lv, t)" in text


def test_a_tuple_rebuilt_from_its_fields_is_the_tuple():
    becomes(
        run,
        """
        @R.function
        def main(t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((2,), "float32"))):
            a = t[0]
            b = t[1]
            again = (a, b)
            return again
        """,
        """
        @R.function
        def main(t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((2,), "float32"))):
            a = t[0]
            b = t[1]
            return t
        """,
    )


def test_a_tuple_in_another_order_stays():
    stays(
        run,
        """
        @R.function
        def main(t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))):
            a = t[0]
            b = t[1]
            again = (b, a)
            return again
        """,
    )


def test_a_match_cast_of_what_is_known_goes_with_its_symbols():
    becomes(
        run,
        """
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            n, m = T.int64(), T.int64()
            y = R.match_cast(x, R.Tensor((m, 4), "float32"))
            z: R.Tensor((m, 4), "float32") = R.add(y, y)
            w = R.call_pure_packed("f", R.shape([m + 1]), sinfo_args=R.Tensor((m + 1,), "float32"))
            gv: R.Tensor(ndim=1, dtype="float32") = w
            return gv
        """,
        """
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            n = T.int64()
            z: R.Tensor((n, 4), "float32") = R.add(x, x)
            w = R.call_pure_packed("f", R.shape([n + 1]), sinfo_args=R.Tensor((n + 1,), "float32"))
            gv: R.Tensor(ndim=1, dtype="float32") = w
            return gv
        """,
    )


def test_a_match_cast_that_may_fail_stays():
    stays(
        run,
        """
        @R.function
        def main(x: R.Tensor(("n", "k"), "float32")):
            n, k = T.int64(), T.int64()
            y = R.match_cast(x, R.Tensor((n, n), "float32"))
            return y
        """,
    )


def test_sizes_that_cannot_agree_do_not_come_so_far():
    with pytest.raises(DiagnosticError, match=r"the value can never be that\n.*where m = 16"):
        parse(
            """
            @R.function
            def main(x: R.Tensor((16,), "float32"), y: R.Tensor((32,), "float32")):
                m = T.int64()
                a = R.match_cast(x, R.Tensor((m,), "float32"))
                b = R.match_cast(y, R.Tensor((m,), "float32"))
                return (a, b)
            """
        )


def test_a_symbol_of_two_branches_is_not_taken_for_one():
    stays(
        run,
        """
        @R.function
        def main(
            c: R.Tensor((), "bool"),
            x: R.Tensor((16,), "float32"),
            y: R.Tensor((32,), "float32"),
        ):
            m = T.int64()
            if c:
                a = R.match_cast(x, R.Tensor((m,), "float32"))
                b = R.call_pure_packed("f", a, sinfo_args=R.Tensor((m,), "float32"))
                r: R.Tensor(ndim=1, dtype="float32") = b
            else:
                a = R.match_cast(y, R.Tensor((m,), "float32"))
                b = R.call_pure_packed("f", a, sinfo_args=R.Tensor((m,), "float32"))
                r: R.Tensor(ndim=1, dtype="float32") = b
            return r
        """,
    )


def test_other_struct_info_is_no_renaming():
    stays(
        run,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y: R.Tensor(ndim=1, dtype="float32") = x
            return y
        """,
    )


def test_inside_branches_and_inner_functions():
    becomes(
        run,
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            @R.function
            def inner(a: R.Tensor((4,), "float32")):
                b = a
                d = R.add(b, x)
                return d
            y = x
            if c:
                z = y
                r = inner(z)
            else:
                w = R.exp(y)
                r = w
            return r
        """,
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            @R.function
            def inner(a: R.Tensor((4,), "float32")):
                d = R.add(a, x)
                return d
            if c:
                r = inner(x)
            else:
                r = R.exp(x)
            return r
        """,
    )


@pytest.mark.parametrize("count", [3000])
def test_deep_chains_of_names_need_no_stack(count):
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    bindings, last = [], x
    for i in range(count):
        new = relax.Var(f"v{i}", last.struct_info)
        bindings.append(relax.VarBinding(new, last))
        last = new
    fn = relax.Function([x], relax.SeqExpr([relax.BindingBlock(bindings)], last))
    mod = run(relax.BlockBuilder().get().clone({"main": fn}))
    assert mod["main"].body.blocks == () and mod["main"].body.body is x
    assert structural_equal(run(mod), mod)
