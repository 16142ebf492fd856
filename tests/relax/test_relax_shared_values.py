"""Values that several branches read are computed once, before them, unless that might do what the
program does not.
"""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.ir import GlobalVar, IRModule, walk
from relaxvm.relax import op as R
from relaxvm.relax.interp import Evaluator

COND = relax.Var("c", relax.TensorStructInfo((), "bool"))
X = relax.Var("x", relax.TensorStructInfo((2,), "float32"))


def normal(body, *params):
    mod = IRModule({"main": relax.Function([COND, X, *params], body)})
    return relax.transform.Normalize()(mod)


def calls(mod):
    return [n.op.name for n in walk(mod["main"]) if isinstance(n, relax.Call)]


def bound_first(mod):
    """What is computed before the first If."""
    names = []
    for block in mod["main"].body.blocks:
        for b in block.bindings:
            if isinstance(b.value, relax.If):
                return names
            names.append(b.value.op.name)
    return names


def test_what_both_branches_read_is_computed_before_them():
    e = R.exp(X)
    mod = normal(relax.If(COND, R.negative(e), R.sqrt(e)))
    assert bound_first(mod) == ["relax.exp"] and len(calls(mod)) == 3
    assert relax.transform.Normalize()(mod) is mod
    x = np.float32([1, 2])
    for chosen, wanted in ((True, -np.exp(x)), (False, np.sqrt(np.exp(x)))):
        np.testing.assert_allclose(Evaluator(mod)("main", np.bool_(chosen), x), wanted, rtol=1e-6)


def test_what_one_branch_reads_stays_in_it():
    e = R.exp(X)
    mod = normal(relax.If(COND, R.add(e, R.negative(e)), X))
    assert bound_first(mod) == [] and len(calls(mod)) == 3


def test_what_is_read_after_the_branches_is_computed_before_them():
    e = R.exp(X)
    mod = normal(R.add(relax.If(COND, R.negative(e), X), e))
    assert bound_first(mod) == ["relax.exp"] and calls(mod).count("relax.exp") == 1


def test_it_is_computed_in_the_innermost_scope_of_its_readers():
    e, d = R.exp(X), relax.Var("d", relax.TensorStructInfo((), "bool"))
    inner = relax.If(d, R.negative(e), R.sqrt(e))
    mod = normal(relax.If(COND, inner, X), d)
    assert bound_first(mod) == [] and calls(mod).count("relax.exp") == 1
    mod = normal(relax.If(COND, inner, relax.If(d, X, R.abs(e))), d)
    assert bound_first(mod) == ["relax.exp"] and calls(mod).count("relax.exp") == 1


def test_nested_branches_that_share_values_grow_by_their_depth():
    x = X
    for _ in range(300):
        x = relax.If(COND, R.add(x, x), R.multiply(x, x))
    mod = normal(x)
    assert len(calls(mod)) == 600
    depth = 20
    x = X
    for _ in range(depth):
        x = relax.If(COND, R.multiply(x, relax.const(2.0)), R.negative(x))
    got = Evaluator(normal(x))("main", np.bool_(True), np.ones(2, "float32"))
    assert got.tolist() == [2.0**depth] * 2


def test_what_depends_on_a_variable_of_a_branch_stays_in_it():
    a = relax.Var("a", X.struct_info)
    let = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(a, R.exp(X))])], R.negative(a))
    mod = normal(relax.If(COND, R.sqrt(let), R.abs(let)))
    for chosen, f in ((True, np.sqrt), (False, np.abs)):
        x = np.float32([-1, 2])
        got = Evaluator(mod)("main", np.bool_(chosen), x)
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(got, f(-np.exp(x)), rtol=1e-6)
    # One sequence as a branch of two choices.
    both = R.add(relax.If(COND, let, X), relax.If(COND, X, let))
    got = Evaluator(normal(both))("main", np.bool_(True), np.zeros(2, "float32"))
    assert got.tolist() == [-1, -1]
    # A value of a let around the branches may be computed before them.
    e = R.sqrt(a)
    body = relax.If(COND, R.negative(e), R.abs(e))
    around = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(a, R.exp(X))])], body)
    assert bound_first(normal(around)) == ["relax.exp", "relax.sqrt"]


def test_calls_of_functions_stay_where_they_are_read():
    gv = GlobalVar("main", relax.FuncStructInfo([COND.struct_info, X.struct_info], X.struct_info))
    again = R.exp(relax.Call(gv, [COND, X]))
    mod = normal(relax.If(COND, X, relax.If(COND, R.negative(again), R.abs(again))))
    assert bound_first(mod) == []
    shared = relax.If(COND, relax.If(COND, X, again), relax.If(COND, X, again))
    assert bound_first(normal(shared)) == []


def test_effects_stay_in_their_branches():
    said = relax.Call("relax.print", [relax.StringImm("x"), X])
    mod = IRModule({"main": relax.Function([COND, X], relax.If(COND, said, said), is_pure=False)})
    assert bound_first(relax.transform.Normalize()(mod)) == []


@pytest.mark.parametrize("seed", range(40))
def test_random_choices_mean_what_they_did(seed):
    rng = np.random.default_rng(seed)
    conds = [relax.Var(f"c{i}", COND.struct_info) for i in range(3)]
    values = [X, R.abs(X)]
    for _ in range(14):
        a, b = (values[rng.integers(len(values))] for _ in range(2))
        kind = rng.integers(4)
        if kind == 0:
            values.append(R.add(a, b))
        elif kind == 1:
            values.append(R.negative(a))
        else:
            values.append(relax.If(conds[rng.integers(3)], a, b))
    mod = IRModule({"main": relax.Function([*conds, X], values[-1])})
    x = np.float32([1.5, -2])
    for bits in range(8):
        chosen = [np.bool_(bits >> i & 1) for i in range(3)]
        known = {id(X): x, **{id(c): v for c, v in zip(conds, chosen)}}
        got = Evaluator(relax.transform.Normalize()(mod))("main", *chosen, x)
        np.testing.assert_array_equal(got, meaning(values[-1], known))


def test_a_value_that_has_a_variable_in_each_branch_stays_there():
    value = R.negative(X)
    branches = []
    for f in (R.exp, R.abs):
        var = relax.Var("v", X.struct_info)
        block = relax.BindingBlock([relax.VarBinding(var, value)])
        branches.append(relax.SeqExpr([block], f(R.add(var, var))))
    fn = relax.Function([COND, X], relax.If(COND, *branches))
    once = relax.transform.Normalize()(IRModule({"main": fn}))
    assert once.script().count("R.negative") == 2
    assert relax.transform.Normalize()(once)["main"] is once["main"]


def meaning(e, known):
    if id(e) in known:
        return known[id(e)]
    if isinstance(e, relax.SeqExpr):
        return meaning(e.body, known)
    if isinstance(e, relax.If):
        return meaning(e.true_branch if known[id(e.cond)] else e.false_branch, known)
    f = {"relax.add": np.add, "relax.negative": np.negative, "relax.abs": np.abs}[e.op.name]
    return f(*(meaning(a, known) for a in e.args))
