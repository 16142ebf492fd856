"""IRModule: the container of functions."""

import pytest

from relaxvm.base import VerifyError
from relaxvm.ir import GlobalVar, IRModule, Var, const
from relaxvm.ir.analysis import collect_call_map
from relaxvm.script import from_source
from relaxvm.tir.stmt import Evaluate, PrimFunc


def fn(name=None, value=0):
    return PrimFunc(
        [], Evaluate(const(value) + Var("x")), attrs={"global_symbol": name} if name else {}
    )


def test_functions_are_found_by_name_and_by_global_var():
    f, g = fn("f"), fn("g")
    mod = IRModule({"f": f, "g": g})
    assert mod["f"] is f
    assert mod[mod.get_global_var("g")] is g
    assert [gv.name_hint for gv in mod.get_global_vars()] == ["f", "g"]
    assert "f" in mod
    assert len(mod) == 2


def test_a_missing_function_lists_those_that_exist_and_the_nearest():
    mod = IRModule({"linear0": fn()})
    with pytest.raises(KeyError, match="did you mean linear0"):
        mod["linear"]
    with pytest.raises(ValueError, match="it has: linear0"):
        mod.get_global_var("zzz")


def test_update_func_replaces_in_place_and_keeps_the_order():
    mod = IRModule({"a": fn(), "b": fn()})
    new = fn(value=3)
    mod.update_func(mod.get_global_var("a"), new)
    mod[GlobalVar("a")] = new
    assert [gv.name_hint for gv in mod] == ["a", "b"]
    assert mod["a"] is new


def test_only_functions_go_in():
    mod = IRModule()
    with pytest.raises(VerifyError, match="holds functions"):
        mod["f"] = 3
    with pytest.raises(VerifyError, match="name"):
        mod[3] = fn()


def test_from_expr_uses_the_global_symbol_or_main():
    assert "f" in IRModule.from_expr(fn("f"))
    assert "main" in IRModule.from_expr(fn())


def test_clone_shares_functions_and_not_the_container():
    mod = IRModule({"a": fn()}, attrs={"k": 1})
    other = mod.clone()
    other["b"] = fn()
    assert "b" not in mod
    assert other["a"] is mod["a"]
    assert other.attrs["k"] == 1
    assert mod.with_attr("q", 2).attrs["q"] == 2
    assert "q" not in mod.attrs
    del other["a"]
    assert "a" in mod


def test_renaming_a_function_renames_its_symbol_too():
    mod = IRModule({"a": fn("a")})
    renamed = mod.replace_global_vars({"a": "z"})
    assert "z" in renamed
    assert renamed["z"].attrs["global_symbol"] == "z"
    assert "a" in mod


def test_attributes_of_functions_are_added_to_copies():
    f = fn("f")
    g = f.with_attr("k", [1, 2])
    assert g.attrs["k"] == (1, 2)
    assert "k" not in f.attrs
    assert g.without_attr("k").get_attr("k", 7) == 7
    assert f.without_attr("k") is f


def test_a_call_map_lists_the_functions_that_each_function_mentions():
    mod = from_source("""
@I.ir_module
class M:
    @T.prim_func
    def k(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]
    @R.function
    def twice(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        a = R.call_tir(M.k, (x,), R.Tensor((4,), "float32"))
        return R.call_tir(M.k, (a,), R.Tensor((4,), "float32"))
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y: R.Tensor((4,), "float32") = M.twice(x)
        z = R.call_tir(M.k, (y,), R.Tensor((4,), "float32"))
        return z
""")
    calls = {f.name_hint: [g.name_hint for g in gs] for f, gs in collect_call_map(mod).items()}
    assert calls == {"k": [], "twice": ["k"], "main": ["twice", "k"]}
    assert set(collect_call_map(mod)) == set(mod.get_global_vars())
