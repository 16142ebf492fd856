"""Passes that change the form of functions and modules, and not what they compute."""

import numpy as np
import pytest
from pass_cases import becomes, parse, same_results, stays

from relaxvm import relax
from relaxvm.base import PassError, StructInfoError, VerifyError
from relaxvm.ir import IRModule, assert_structural_equal, structural_equal, walk
from relaxvm.relax import transform
from relaxvm.relax.analysis import assert_well_formed

X = np.arange(4, dtype="float32")
VEC = relax.TensorStructInfo((4,), "float32")


# -- ConvertToDataflow ----------------------------------------------------------------------------

PLAIN = """
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32")):
    a = R.add(x, x)
    b = R.exp(a)
    _ = R.print(b, format="{}")
    c = R.exp(b)
    return c
"""


def test_what_has_no_effects_goes_into_dataflow_blocks():
    becomes(
        transform.ConvertToDataflow(),
        PLAIN,
        """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.add(x, x)
                b = R.exp(a)
                R.output(b)
            _ = R.print(b, format="{}")
            c = R.exp(b)
            return c
        """,
    )


def test_blocks_may_be_as_small_as_asked():
    mod = transform.ConvertToDataflow(min_size=1)(parse(PLAIN))
    assert [type(b).__name__ for b in mod["main"].body.blocks] == [
        "DataflowBlock",
        "BindingBlock",
        "DataflowBlock",
    ]
    stays(transform.ConvertToDataflow(3), PLAIN)
    with pytest.raises(PassError, match="positive int, got 0"):
        transform.ConvertToDataflow(0)(parse(PLAIN))


def test_branches_get_blocks_of_their_own_and_stay_outside():
    becomes(
        transform.ConvertToDataflow(),
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            if c:
                a = R.exp(x)
                b = R.exp(a)
                r = b
            else:
                r = x
            return r
        """,
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            if c:
                with R.dataflow():
                    a = R.exp(x)
                    b = R.exp(a)
                    R.output(b)
                r = b
            else:
                r = x
            return r
        """,
    )


# -- TopologicalSort ------------------------------------------------------------------------------

UNSORTED = """
@R.function
def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
    with R.dataflow():
        a = R.exp(x)
        b = R.sin(y)
        c = R.add(a, a)
        d = R.add(c, b)
        e = R.cos(x)
        gv = R.multiply(d, e)
        R.output(gv)
    return gv
"""


def order_of(mod):
    return [b.var.name_hint for b in mod["main"].body.blocks[0].bindings]


@pytest.mark.parametrize(
    ("order", "direction", "wanted"),
    [
        ("depth-first", "from-inputs", "a c e b d gv"),
        ("breadth-first", "from-inputs", "a e b c d gv"),
        ("depth-first", "from-outputs", "a c b d e gv"),
        ("breadth-first", "from-outputs", "a b c e d gv"),
    ],
)
def test_bindings_are_sorted_as_asked(order, direction, wanted):
    mod = parse(UNSORTED)
    made = transform.TopologicalSort(order, direction)(mod)
    assert order_of(made) == wanted.split()
    assert_well_formed(made)
    assert transform.TopologicalSort(order=order, direction=direction)(made) is made
    same_results(mod, made, X, X + 1)


def test_a_symbol_is_bound_before_it_is_used():
    text = """
    @R.function
    def main(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor((4,), "float32")):
        n = T.int64()
        with R.dataflow():
            z = R.exp(y)
            m = R.match_cast(x, R.Tensor((n,), "float32"))
            o = R.zeros(R.shape([n]), "float32")
            p = R.match_cast(o, R.Tensor((n,), "float32"))
            gv = (z, p)
            R.output(gv)
        return gv
    """
    for order in ("depth-first", "breadth-first"):
        for direction in ("from-inputs", "from-outputs"):
            made = transform.TopologicalSort(order, direction)(parse(text))
            assert_well_formed(made)
            names = order_of(made)
            assert names.index("m") < names.index("o")


def test_an_inner_function_stands_after_what_it_captures():
    text = """
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)

            @R.function(private=True)
            def inner(w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                b = R.add(w, a)
                return b

            gv = inner(x)
            R.output(gv)
        return gv
    """
    for order in ("depth-first", "breadth-first"):
        made = transform.TopologicalSort(order)(parse(text))
        assert order_of(made) == ["a", "inner", "gv"]


def test_an_unknown_order_is_an_error():
    with pytest.raises(PassError, match="order is depth-first or breadth-first, got 'random'"):
        transform.TopologicalSort("random")(parse(UNSORTED))
    with pytest.raises(PassError, match="direction is from-inputs or"):
        transform.TopologicalSort(direction="up")(parse(UNSORTED))


# -- graph normal form ----------------------------------------------------------------------------


def test_values_read_once_stand_where_they_are_read():
    text = """
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        a = R.multiply(x, x)
        b = R.add(a, x)
        t = R.exp(b), b
        d = t[0]
        e = R.exp(d)
        if c:
            r = e
        else:
            r = x
        return r
    """
    mod = parse(text)
    graph = transform.ToGraphNormalForm()(mod)
    printed = graph.script()
    assert 'b: R.Tensor((4,), dtype="float32") = R.add(R.multiply(x, x), x)' in printed
    assert 'e: R.Tensor((4,), dtype="float32") = R.exp((R.exp(b), b)[0])' in printed
    again = transform.ToANormalForm()(graph)
    assert_well_formed(again)
    for case in (True, False):
        same_results(mod, again, X, np.array(case))


def test_effects_and_blocks_keep_their_variables():
    stays(
        transform.ToGraphNormalForm(),
        """
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            a = R.call_packed("noise", x, sinfo_args=R.Tensor((n,), "float32"))
            with R.dataflow():
                b = R.exp(a)
                R.output(b)
            c = R.print(b, format="{}")
            return b
        """,
    )


def test_a_row_of_ten_thousand_values_is_nested_and_printed():
    x = relax.Var("x", VEC)
    last, bindings = x, []
    for i in range(10_000):
        value = relax.op.exp(last)
        last = relax.Var(f"v{i}", VEC)
        bindings.append(relax.VarBinding(last, value))
    fn = relax.Function([x], relax.SeqExpr([relax.BindingBlock(bindings)], last))
    mod = IRModule({"main": fn.with_attr("global_symbol", "main")})
    graph = transform.ToGraphNormalForm()(mod)
    assert not graph["main"].body.blocks
    assert graph.script().count("R.exp(") == 10_000
    assert structural_equal(transform.Normalize()(graph), mod)


# -- modules --------------------------------------------------------------------------------------

THREE = """
@R.function
def main(x: R.Tensor((4,), "float32")):
    cls = Module
    a = cls.f(x)
    return a

@R.function
def other(x: R.Tensor((4,), "float32")):
    a = R.exp(x)
    b = R.sin(x)
    return a

@R.function(private=True)
def f(x: R.Tensor((4,), "float32")):
    a = R.cos(x)
    return a
"""


def test_functions_that_no_entry_reaches_go():
    run = transform.RemoveUnusedFunctions
    stays(run(), THREE)
    kept = run(entry_functions=["main"])(parse(THREE))
    assert [gv.name_hint for gv in kept] == ["main", "f"]
    only = run(entry_functions="other")(parse(THREE))
    assert [gv.name_hint for gv in only] == ["other"]
    # Bodies are left alone.
    assert len(only["other"].body.blocks[0].bindings) == 2
    with pytest.raises(KeyError, match="no function 'mian'; did you mean main"):
        run(["mian"])(parse(THREE))


def test_functions_that_ask_for_it_are_inlined():
    becomes(
        transform.Inline(),
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            a = cls.f(x)
            b = cls.g(a)
            return b

        @R.function
        def f(x: R.Tensor((4,), "float32")):
            R.func_attr({"inline": True})
            a = R.cos(x)
            return a

        @R.function(private=True)
        def g(x: R.Tensor((4,), "float32")):
            a = R.sin(x)
            return a
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            a = R.cos(x)
            b = cls.g(a)
            return b

        @R.function
        def f(x: R.Tensor((4,), "float32")):
            R.func_attr({"inline": True})
            a = R.cos(x)
            return a

        @R.function(private=True)
        def g(x: R.Tensor((4,), "float32")):
            a = R.sin(x)
            return a
        """,
    )


def test_public_functions_stand_under_their_symbol():
    broken = IRModule(
        {
            "start": relax.Function([], relax.const(1.0)).with_attr("global_symbol", "main"),
            "main": relax.Function([], relax.const(2.0)),
        }
    )
    made = transform.NormalizeGlobalVar()(broken)
    assert_well_formed(made)
    assert [gv.name_hint for gv in made] == ["main", "main1"]
    assert made["main"].get_attr("global_symbol") == "main"
    assert made["main1"].get_attr("global_symbol") is None
    assert transform.NormalizeGlobalVar()(made) is made


def test_calls_follow_functions_that_are_renamed():
    x, y = relax.Var("x", VEC), relax.Var("y", VEC)
    gv = relax.GlobalVar("run", relax.FuncStructInfo([VEC], VEC))
    var = relax.Var("a", VEC)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(var, relax.Call(gv, (x,)))])], var)
    mod = IRModule(
        {
            "main": relax.Function([x], body).with_attr("global_symbol", "run"),
            gv: relax.Function([y], y),
        }
    )
    made = transform.NormalizeGlobalVar()(mod)
    assert_well_formed(made)
    assert [gv.name_hint for gv in made] == ["run", "run1"]
    assert made["run"].body.blocks[0].bindings[0].value.op.name_hint == "run1"
    same = IRModule({n: mod["main"] for n in ("a", "b")})
    with pytest.raises(VerifyError, match="a and b have the same global_symbol 'run'"):
        transform.NormalizeGlobalVar()(same)


# -- tuples and arguments -------------------------------------------------------------------------


def test_results_are_one_row():
    becomes(
        transform.FlattenNestedTuples(),
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            a = cls.f(x)
            b = a[0]
            c = b[1]
            return c

        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = (a, x)
            return (b, a)
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            r = cls.f(x)
            r0 = r[0]
            r1 = r[1]
            r2 = r[2]
            a = ((r0, r1), r2)
            b = a[0]
            c = b[1]
            return c

        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = (a, x)
            b0 = b[0]
            b1 = b[1]
            return (b0, b1, a)
        """,
    )


def test_functions_used_as_values_keep_their_nested_results():
    stays(
        transform.FlattenNestedTuples(),
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            a = R.call_pure_packed("apply", cls.f, x, sinfo_args=R.Object)
            return a

        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32")):
            return ((x, x), x)
        """,
    )


@pytest.mark.parametrize("join", ["concat", "stack"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("most", [2, 3, 8, 9])
def test_joins_of_many_tensors_are_made_in_steps(join, axis, most):
    mod = parse(
        f"""
        @R.function
        def main(x: R.Tensor((2, 2), "float32"), y: R.Tensor((2, 2), "float32")):
            with R.dataflow():
                a = R.{join}((x, y, y, x, x, x, y, y, x), axis={axis})
                R.output(a)
            return a
        """
    )
    made = transform.SplitArgs(most)(mod)
    assert_well_formed(made)
    assert (made is mod) == (most == 9)
    for n in walk(made["main"]):
        if isinstance(n, relax.Tuple):
            assert len(n.fields) <= most
    rows = np.arange(4, dtype="float32").reshape(2, 2)
    same_results(mod, made, rows, -rows)


def test_no_join_takes_less_than_two():
    with pytest.raises(PassError, match="an int of 2 or more, got 1"):
        transform.SplitArgs(1)(parse(THREE))


def test_functions_used_as_values_are_wrapped():
    run = transform.EtaExpand(expand_global_var=True)
    text = """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            a = R.call_pure_packed("apply", cls.f, x, sinfo_args=R.Object)
            b = cls.f(x)
            return a

        @R.function(private=True)
        def f(x: R.Tensor(("n",), "float32")):
            a = R.exp(x)
            return a
        """
    becomes(
        run,
        text,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module

            @R.function(private=True)
            def f_value(v: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
                cls = Module
                n = T.int64()
                result: R.Tensor((n,), "float32") = cls.f(v)
                return result

            a = R.call_pure_packed("apply", f_value, x, sinfo_args=R.Object)
            b = cls.f(x)
            return a

        @R.function(private=True)
        def f(x: R.Tensor(("n",), "float32")):
            a = R.exp(x)
            return a
        """,
    )
    stays(transform.EtaExpand(), text)


def test_parameters_of_other_shapes_change_what_follows_from_them():
    text = """
        @R.function
        def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n",), "float32"):
            cls = Module
            n = T.int64()
            a = cls.f(x)
            b = R.sum(a, axis=1)
            return b

        @R.function(private=True)
        def f(x: R.Tensor(("m", 8), "float32")) -> R.Tensor(("m", 8), "float32"):
            m = T.int64()
            a = R.exp(x)
            return a
        """
    info = relax.TensorStructInfo((4, 8), "float16")
    mod = parse(text)
    made = transform.UpdateParamStructInfo(lambda p: info if p.name_hint == "x" else None)(mod)
    assert_well_formed(made)
    assert_structural_equal(
        made,
        parse(
            """
            @R.function
            def main(x: R.Tensor((4, 8), "float16")) -> R.Tensor((4,), "float16"):
                cls = Module
                a = cls.f(x)
                b = R.sum(a, axis=1)
                return b

            @R.function(private=True)
            def f(x: R.Tensor((4, 8), "float16")) -> R.Tensor((4, 8), "float16"):
                a = R.exp(x)
                return a
            """
        ),
    )
    assert transform.UpdateParamStructInfo(lambda p: None)(mod) is mod
    with pytest.raises(StructInfoError, match="sum"):
        transform.UpdateParamStructInfo(lambda p: VEC)(mod)
    with pytest.raises(PassError, match="for x it gave int"):
        transform.UpdateParamStructInfo(lambda p: 3)(mod)


def test_calls_follow_an_inner_function_whose_type_changes():
    mod = parse(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            @R.function
            def inner(y: R.Tensor((3,), "float32")):
                z = R.exp(y)
                return (z, x)
            a = inner(R.const([1.0, 2.0, 3.0], "float32"))
            return a
        """
    )
    five = relax.TensorStructInfo((5,), "float32")
    made = transform.UpdateParamStructInfo(lambda p: five if p.name_hint == "x" else None)(mod)
    assert_well_formed(made)
    assert made["main"].ret_struct_info.fields[1] is five
