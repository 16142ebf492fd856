"""Passes that change the signatures of private functions, or inline them."""

import sys

import numpy as np
import pytest
from pass_cases import becomes, parse, same_results, stays

from relaxvm import relax
from relaxvm.ir import structural_equal, walk
from relaxvm.relax import transform
from relaxvm.relax.analysis import assert_well_formed

parameters = transform.RemoveUnusedParameters()
outputs = transform.RemoveUnusedOutputs()
tuples = transform.ExpandTupleArguments()
inline = transform.InlinePrivateFunctions()
X = np.arange(4, dtype="float32")


# -- parameters -----------------------------------------------------------------------------------


def test_parameters_that_nobody_reads_go():
    becomes(
        parameters,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            cls = Module
            a = cls.f(x, y)
            return a

        @R.function(private=True)
        def f(p: R.Tensor((4,), "float32"), q: R.Tensor((4,), "float32")):
            a = R.add(q, q)
            return a
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            cls = Module
            a = cls.f(y)
            return a

        @R.function(private=True)
        def f(q: R.Tensor((4,), "float32")):
            a = R.add(q, q)
            return a
        """,
    )


def test_what_is_only_handed_on_to_an_unused_parameter_is_unused():
    becomes(
        parameters,
        """
        @R.function
        def main(
            c: R.Tensor((), "bool"),
            x: R.Tensor((4,), "float32"),
            y: R.Tensor((4,), "float32"),
        ):
            cls = Module
            a = cls.f(c, x, y)
            return a

        @R.function(private=True)
        def f(
            c: R.Tensor((), "bool"),
            p: R.Tensor((4,), "float32"),
            q: R.Tensor((4,), "float32"),
        ) -> R.Tensor((4,), "float32"):
            cls = Module
            if c:
                r: R.Tensor((4,), "float32") = cls.f(c, p, q)
            else:
                r: R.Tensor((4,), "float32") = cls.g(p, q)
            return r

        @R.function(private=True)
        def g(
            p: R.Tensor((4,), "float32"),
            q: R.Tensor((4,), "float32"),
        ) -> R.Tensor((4,), "float32"):
            return p
        """,
        """
        @R.function
        def main(
            c: R.Tensor((), "bool"),
            x: R.Tensor((4,), "float32"),
            y: R.Tensor((4,), "float32"),
        ):
            cls = Module
            a = cls.f(c, x)
            return a

        @R.function(private=True)
        def f(c: R.Tensor((), "bool"), p: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            if c:
                r: R.Tensor((4,), "float32") = cls.f(c, p)
            else:
                r: R.Tensor((4,), "float32") = cls.g(p)
            return r

        @R.function(private=True)
        def g(p: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return p
        """,
    )


def test_a_parameter_that_only_tells_a_size_becomes_the_size():
    text = """
        @R.function
        def main(x: R.Tensor(("n", 2), "float32")):
            cls = Module
            n = T.int64()
            y = R.add(x, x)
            a = cls.f(y)
            return a

        @R.function(private=True)
        def f(p: R.Tensor(("m", 2), "float32")):
            m = T.int64()
            a = R.zeros((m + 1,), "float32")
            return a
        """
    mod = becomes(
        parameters,
        text,
        """
        @R.function
        def main(x: R.Tensor(("n", 2), "float32")):
            cls = Module
            n = T.int64()
            y = R.add(x, x)
            a = cls.f(R.shape([n]))
            return a

        @R.function(private=True)
        def f(sizes: R.Shape(["m"])):
            m = T.int64()
            a = R.zeros((m + 1,), "float32")
            return a
        """,
    )
    same_results(parse(text), mod, np.zeros((3, 2), "float32"))


def test_an_argument_that_may_not_fit_keeps_its_parameter():
    stays(
        parameters,
        """
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
            cls = Module
            n, m = T.int64(), T.int64()
            a: R.Tensor(ndim=1, dtype="float32") = cls.f(x, y)
            b = cls.g(x)
            return (a, b)

        @R.function(private=True)
        def f(p: R.Tensor(("k",), "float32"), q: R.Tensor(("k",), "float32")):
            k = T.int64()
            return q

        @R.function(private=True)
        def g(p: R.Tensor((4,), "float32")):
            a = R.zeros((4,), "float32")
            return a
        """,
    )


def test_public_functions_and_functions_used_as_values_keep_their_signature():
    stays(
        parameters,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            f = R.make_closure(cls.f, (x,))
            a = cls.g(x)
            return (f, a)

        @R.function(private=True)
        def f(y: R.Tensor((4,), "float32"), x: R.Tensor((4,), "float32")):
            return y

        @R.function
        def g(x: R.Tensor((4,), "float32")):
            a = R.zeros((4,), "float32")
            return a
        """,
    )


# -- outputs --------------------------------------------------------------------------------------

OUTPUTS = """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            t = cls.f(x)
            a = t[0]
            u = cls.f(a)
            b = u[2]
            return (a, b)

        @R.function(private=True)
        def f(p: R.Tensor((4,), "float32")):
            a = R.add(p, p)
            b = R.multiply(p, p)
            c = R.subtract(p, a)
            return (a, b, c)
        """


def test_outputs_that_no_caller_reads_go():
    mod = becomes(
        outputs,
        OUTPUTS,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            t = cls.f(x)
            a = t[0]
            u = cls.f(a)
            b = u[1]
            return (a, b)

        @R.function(private=True)
        def f(p: R.Tensor((4,), "float32")):
            a = R.add(p, p)
            b = R.multiply(p, p)
            c = R.subtract(p, a)
            return (a, c)
        """,
    )
    same_results(parse(OUTPUTS), mod, X)


def test_a_single_output_stands_for_itself():
    text = """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            with R.dataflow():
                t = cls.f(x)
                a = t[1]
                R.output(a)
            return a

        @R.function(private=True)
        def f(p: R.Tensor((4,), "float32")):
            q = (p, p)
            return q
        """
    mod = outputs(parse(text))
    assert_well_formed(mod)
    assert "Tuple" not in mod["f"].ret_struct_info.script()
    same_results(parse(text), mod, X)


def test_a_tuple_that_is_used_whole_keeps_its_fields():
    stays(
        outputs,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            t = cls.f(x)
            a = t[0]
            return (a, t)

        @R.function(private=True)
        def f(p: R.Tensor((4,), "float32")):
            b = R.multiply(p, p)
            return (p, b)
        """,
    )


def test_outputs_of_a_call_that_nobody_reads_all_go():
    text = """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            t = cls.f(x)
            return x

        @R.function(private=True, pure=False)
        def f(p: R.Tensor((4,), "float32")):
            R.print(p)
            return (p, p)
        """
    mod = outputs(parse(text))
    assert_well_formed(mod)
    assert mod["f"].ret_struct_info.fields == ()


# -- tuples ---------------------------------------------------------------------------------------

TUPLES = """
        @R.function
        def main(
            x: R.Tensor((4,), "float32"),
            t: R.Tuple(R.Tensor((4,), "float32"), R.Tuple(R.Tensor((4,), "float32"))),
        ):
            cls = Module
            a = cls.f((x, (x,)), x)
            b = cls.f(t, a)
            return b

        @R.function(private=True)
        def f(
            t: R.Tuple(R.Tensor((4,), "float32"), R.Tuple(R.Tensor((4,), "float32"))),
            y: R.Tensor((4,), "float32"),
        ):
            a = t[0]
            u = t[1]
            b = u[0]
            c = R.add(a, b)
            d = R.multiply(c, y)
            return d
        """


def test_fields_of_tuples_become_parameters():
    mod = becomes(
        tuples,
        TUPLES,
        """
        @R.function
        def main(
            x: R.Tensor((4,), "float32"),
            t: R.Tuple(R.Tensor((4,), "float32"), R.Tuple(R.Tensor((4,), "float32"))),
        ):
            cls = Module
            a = cls.f(x, x, x)
            t_0 = t[0]
            t_1 = t[1]
            t_1_0 = t_1[0]
            b = cls.f(t_0, t_1_0, a)
            return b

        @R.function(private=True)
        def f(
            t_0: R.Tensor((4,), "float32"),
            t_1_0: R.Tensor((4,), "float32"),
            y: R.Tensor((4,), "float32"),
        ):
            t = (t_0, (t_1_0,))
            a = t[0]
            u = t[1]
            b = u[0]
            c = R.add(a, b)
            d = R.multiply(c, y)
            return d
        """,
    )
    same_results(parse(TUPLES), mod, X, (X + 1, (X + 2,)))


def test_an_argument_of_unknown_form_keeps_the_tuple():
    stays(
        tuples,
        """
        @R.function
        def main(x: R.Object):
            cls = Module
            a = cls.f(x)
            return a

        @R.function(private=True)
        def f(t: R.Tuple(R.Tensor((4,), "float32"))):
            a = t[0]
            return a
        """,
    )


def test_a_tuple_of_very_many_fields_stays_one():
    wide = "R.Tuple(R.Tensor((1,), 'float32'))"
    for _ in range(12):
        wide = f"R.Tuple({wide}, {wide})" if len(wide) < 20000 else f"R.Tuple({wide})"
    stays(
        tuples,
        f"""
        @R.function
        def main(x: {wide}):
            cls = Module
            a = cls.f(x)
            return a

        @R.function(private=True)
        def f(t: {wide}):
            a = t[0]
            return a
        """,
    )


# -- inlining -------------------------------------------------------------------------------------


def test_calls_become_bodies_and_the_functions_go():
    becomes(
        inline,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            with R.dataflow():
                a = cls.f(x)
                b = cls.f(a)
                R.output(b)
            return b

        @R.function(private=True)
        def f(p: R.Tensor((4,), "float32")):
            cls = Module
            with R.dataflow():
                lv = cls.g(p)
                gv = R.add(lv, p)
                R.output(gv)
            return gv

        @R.function(private=True)
        def g(p: R.Tensor((4,), "float32")):
            a = R.exp(p)
            return a
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                lv = R.exp(x)
                gv = R.add(lv, x)
                lv1 = R.exp(gv)
                gv1 = R.add(lv1, gv)
                b = gv1
                R.output(b)
            return b
        """,
    )


def test_symbols_follow_the_arguments_and_doubtful_ones_are_checked():
    text = """
        @R.function
        def main(x: R.Tensor(("n", 2), "float32"), y: R.Tensor(ndim=2, dtype="float32")):
            cls = Module
            n = T.int64()
            a = cls.f(x, x)
            b = cls.f(x, y)
            return (a, b)

        @R.function(private=True)
        def f(p: R.Tensor(("m", 2), "float32"), q: R.Tensor(("m", 2), "float32")):
            m = T.int64()
            a = R.add(p, q)
            b = R.zeros((m + 1,), "float32")
            return (a, b)
        """
    mod = inline(parse(text))
    assert_well_formed(mod)
    assert [g.name_hint for g in mod] == ["main"]
    assert mod.script().count("match_cast") == 1
    same_results(parse(text), mod, np.ones((3, 2), "float32"), np.ones((3, 2), "float32"))


def test_branches_and_effects_are_inlined_outside_dataflow_blocks_only():
    text = """
        @R.function(pure=False)
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            cls = Module
            with R.dataflow():
                a = cls.f(c, x)
                R.output(a)
            b = cls.f(c, a)
            d = cls.loud(b)
            return d

        @R.function(private=True)
        def f(c: R.Tensor((), "bool"), p: R.Tensor((4,), "float32")):
            if c:
                r = R.exp(p)
            else:
                r = R.sin(p)
            return r

        @R.function(private=True, pure=False)
        def loud(p: R.Tensor((4,), "float32")):
            R.print(p)
            return p
        """
    mod = inline(parse(text))
    assert_well_formed(mod)
    assert mod.script().count("cls.f(") == 1 and "loud" not in mod
    same_results(parse(text), mod, np.array(True), X)


def test_recursive_functions_stay():
    stays(
        inline,
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            cls = Module
            r = cls.f(c, x)
            return r

        @R.function(private=True)
        def f(c: R.Tensor((), "bool"), p: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            if c:
                r: R.Tensor((4,), "float32") = cls.g(c, p)
            else:
                r: R.Tensor((4,), "float32") = p
            return r

        @R.function(private=True)
        def g(c: R.Tensor((), "bool"), p: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            r: R.Tensor((4,), "float32") = cls.f(c, p)
            return r
        """,
    )


def test_functions_that_are_values_stay_in_the_module():
    text = """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            a = cls.f(x)
            g = R.make_closure(cls.f, ())
            return (a, g)

        @R.function(private=True)
        def f(p: R.Tensor((4,), "float32")):
            b = R.exp(p)
            return b
        """
    mod = inline(parse(text))
    assert_well_formed(mod)
    assert "f" in mod and "cls.f(" not in mod.script()


def test_a_tuple_as_an_argument_is_bound_before_its_fields_are_taken():
    mod = inline(parse(TUPLES))
    assert_well_formed(mod)
    same_results(parse(TUPLES), mod, X, (X + 1, (X + 2,)))


def test_doubling_calls_do_not_grow_without_end(monkeypatch):
    file = sys.modules["relaxvm.relax.transform.inline_private_functions"]
    monkeypatch.setattr(file, "_MAX_BINDINGS", 500)
    functions = [
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            a = cls.f39(x)
            return a

        @R.function(private=True)
        def f0(x: R.Tensor((4,), "float32")):
            a = R.add(x, x)
            return a
        """
    ]
    functions += [
        f"""
        @R.function(private=True)
        def f{i}(x: R.Tensor((4,), "float32")):
            cls = Module
            a = cls.f{i - 1}(x)
            b = cls.f{i - 1}(a)
            return b
        """
        for i in range(1, 40)
    ]
    mod = inline(parse("".join(functions)))
    assert "main" in mod and len(mod) > 1
    assert sum(isinstance(n, relax.Binding) for g in mod for n in walk(mod[g])) < 700


@pytest.mark.parametrize("run", [parameters, outputs, tuples, inline], ids=lambda p: p.info.name)
def test_a_module_without_private_functions_is_the_same_object(run):
    stays(
        run,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            a = cls.f(x, x)
            return a

        @R.function
        def f(x: R.Tensor((4,), "float32"), t: R.Tensor((4,), "float32")):
            return x
        """,
    )


def test_all_of_them_together_leave_what_is_needed():
    text = """
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            cls = Module
            t = cls.f((x, y))
            a = t[1]
            return a

        @R.function(private=True)
        def f(t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))):
            a = t[0]
            b = t[1]
            c = R.exp(a)
            d = R.sin(b)
            return (c, d)
        """
    mod = parse(text)
    clean = transform.DeadCodeElimination()
    for run in (tuples, outputs, transform.CanonicalizeBindings(), clean, parameters):
        mod = run(mod)
        assert_well_formed(mod)
    assert structural_equal(
        mod,
        parse(
            """
            @R.function
            def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
                cls = Module
                t = cls.f(y)
                return t

            @R.function(private=True)
            def f(b: R.Tensor((4,), "float32")):
                d = R.sin(b)
                return d
            """
        ),
    )
    same_results(parse(text), mod, X, X + 1)
