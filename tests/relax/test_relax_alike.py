"""Functions that are equal, found without hashing all of them."""

import pytest

from relaxvm.relax import alike
from relaxvm.relax.alike import Alike
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


@I.ir_module
class Module:
    @T.prim_func
    def scaled(x: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("scaled"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * T.float32(2)

    @T.prim_func
    def same(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32")):
        for k, l in T.grid(4, 4):
            with T.block("b"):
                vk, vl = T.axis.remap("SS", [k, l])
                b[vk, vl] = a[vk, vl] * T.float32(2)

    @T.prim_func
    def thrice(x: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("scaled"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * T.float32(3)

    @R.function
    def add(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        return R.add(x, x)

    @R.function
    def add_too(y: R.Tensor(("m", 4), "float32")) -> R.Tensor(("m", 4), "float32"):
        return R.add(y, y)

    @R.function
    def multiply(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        return R.multiply(x, x)


def _named(*names):
    """Without their own names, which count."""
    return [Module[name].without_attr("global_symbol") for name in names]


def test_values_of_equal_functions_are_found_in_the_order_they_were_put():
    functions = Alike()
    scaled, same, thrice = _named("scaled", "same", "thrice")
    add, add_too, multiply = _named("add", "add_too", "multiply")
    for fn, name in ((scaled, "scaled"), (thrice, "thrice"), (same, "same"), (add, "add")):
        functions.put(fn, name)
    assert functions.of(same) == functions.of(scaled) == ["scaled", "same"]
    assert functions.of(thrice) == ["thrice"]
    assert functions.of(multiply) == []
    assert functions.of(add_too) == ["add"]
    functions.put(add_too, "add_too")
    assert functions.of(add) == ["add", "add_too"]


def test_what_looks_like_no_other_is_not_hashed(monkeypatch):
    monkeypatch.setattr(alike, "structural_digest", lambda fn: pytest.fail("hashed"))
    functions = Alike()
    scaled, same, add, multiply = _named("scaled", "same", "add", "multiply")
    functions.put(scaled, 1)
    functions.put(same, 2)
    assert functions.of(add) == []
    functions.put(add, 3)
    assert functions.of(multiply) == []
