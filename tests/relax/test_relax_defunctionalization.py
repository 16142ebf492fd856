"""Defunctionalization: functions as values become data, and calls of them a choice."""

import numpy as np
import pytest
from pass_cases import parse, same_results, stays

from relaxvm import relax
from relaxvm.base import PassError
from relaxvm.ir import walk
from relaxvm.relax import transform
from relaxvm.relax.analysis import assert_well_formed

run = transform.Defunctionalization()
X = np.arange(4, dtype="float32")
UNARY = 'R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32"))'
VEC = 'R.Tensor((4,), "float32")'


def without_functions(text, *calls):
    """The module of `text` without functions as values, shown to compute the same."""
    mod = parse(text)
    made = run(mod)
    assert_well_formed(made)
    for fn in made.functions.values():
        for n in walk(fn):
            if isinstance(n, relax.Var):
                assert "Callable" not in str(n.struct_info)
            assert getattr(getattr(n, "op", None), "name", "") != "relax.make_closure"
    for args in calls:
        same_results(mod, made, *args)
    assert run(made) is made
    return made


def test_a_choice_of_functions_with_what_they_capture():
    made = without_functions(
        f"""
        @R.function
        def main(c: R.Tensor((), "bool"), x: {VEC}) -> {VEC}:
            cls = Module

            @R.function(private=True)
            def inner(y: {VEC}) -> {VEC}:
                a = R.add(y, x)
                return a

            if c:
                f: {UNARY} = inner
            else:
                f: {UNARY} = cls.double
            z = f(x)
            w = cls.twice(f, z)
            return w

        @R.function(private=True)
        def twice(f: {UNARY}, y: {VEC}) -> {VEC}:
            a = f(y)
            b = f(a)
            return b

        @R.function(private=True)
        def double(y: {VEC}) -> {VEC}:
            a = R.add(y, y)
            return a
        """,
        (np.array(True), X),
        (np.array(False), X),
    )
    assert sorted(gv.name_hint for gv in made) == ["apply", "double", "main", "main_inner", "twice"]


def test_functions_in_tuples_and_as_results():
    without_functions(
        f"""
        @R.function
        def main(x: {VEC}, y: {VEC}) -> {VEC}:
            cls = Module
            f = cls.adder(x)
            g = cls.adder(y)
            t = (f, g)
            h = t[1]
            a = f(x)
            b = h(a)
            return b

        @R.function(private=True)
        def adder(x: {VEC}) -> {UNARY}:
            @R.function(private=True)
            def add(y: {VEC}) -> {VEC}:
                a = R.add(y, x)
                return a

            return add
        """,
        (X, X + 7),
    )


def test_signatures_with_symbols_and_with_functions_have_an_apply_each():
    made = without_functions(
        """
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
            cls = Module
            n = T.int64()
            m = T.int64()

            @R.function(private=True)
            def scaled(z: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
                a = R.multiply(z, x)
                return a

            a = cls.call(scaled, x)
            b = R.sum(y)
            c = R.add(a, b)
            return c

        @R.function(private=True)
        def call(
            f: R.Callable((R.Tensor(("k",), "float32"),), R.Tensor(("k",), "float32")),
            x: R.Tensor(("k",), "float32"),
        ) -> R.Tensor(("k",), "float32"):
            a = f(x)
            return a
        """,
        (X, X + 1),
        (X[:1], X[:3]),
        (X[:0], X[:0]),
    )
    assert len(made) == 4


def test_modules_without_functions_as_values_stay():
    stays(
        run,
        f"""
        @R.function
        def main(x: {VEC}):
            cls = Module
            a = cls.f(x)
            return a

        @R.function(private=True)
        def f(x: {VEC}):
            a = R.exp(x)
            return a
        """,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"def main(f: {UNARY}, x: {VEC}) -> {VEC}:\n    a = f(x)\n    return a",
         "main takes or gives a function; whoever calls it is outside the module"),
        (f"def main(x: {VEC}):\n    cls = Module\n    @R.function(private=True)\n"
         f"    def g(y: {VEC}) -> {VEC}:\n        return y\n"
         '    a = R.call_pure_packed("apply", g, x, sinfo_args=R.Object)\n    return a',
         "main gives a function to relax.call_pure_packed"),
    ],
)  # fmt: skip
def test_functions_that_cross_the_module_are_an_error(text, message):
    with pytest.raises(PassError, match=message):
        run(parse(f"@R.function\n{text}\n"))
