"""DeadCodeElimination and remove_all_unused."""

from __future__ import annotations

import pytest

from relaxvm import relax, te
from relaxvm.ir import GlobalVar, IRModule, Var
from relaxvm.relax import transform
from relaxvm.relax.analysis import check_well_formed, remove_all_unused

n, m = Var("n", "int64"), Var("m", "int64")
Tensor, Tuple, Func = relax.TensorStructInfo, relax.TupleStructInfo, relax.FuncStructInfo
OUT = Tensor((n, 4))
BOOL = Tensor((), "bool")


def call(*args):
    return relax.call_dps_packed("env.f", args, OUT)


def var(name, info=OUT):
    return relax.Var(name, info)


def plain(*pairs):
    return relax.BindingBlock([relax.VarBinding(v, value) for v, value in pairs])


def bound_names(fn):
    return [b.var.name_hint for block in fn.body.blocks for b in block.bindings]


def test_unused_chains_go_and_used_ones_stay():
    x, a, b, c, d = (var(k) for k in "xabcd")
    block = plain((a, call(x)), (b, call(a)), (c, call(x)), (d, call(c, c)))
    fn = relax.Function([x], relax.SeqExpr([block], b))
    assert bound_names(remove_all_unused(fn)) == ["a", "b"]
    assert remove_all_unused(remove_all_unused(fn)) is not fn
    kept = remove_all_unused(fn)
    assert remove_all_unused(kept) is kept


def test_calls_with_effects_stay_with_what_they_need():
    x, a, b, u = var("x"), var("a"), var("b"), var("u", Tuple(()))
    block = plain((a, call(x)), (b, call(x)), (u, relax.op.print(a)))
    fn = relax.Function([x], relax.SeqExpr([block], x), is_pure=False)
    assert bound_names(remove_all_unused(fn)) == ["a", "u"]


def test_an_unused_call_of_an_impure_function_of_the_module_stays():
    x, y = var("x"), var("y")
    gv = GlobalVar("loud", Func([OUT], OUT, True))
    fn = relax.Function([x], relax.SeqExpr([plain((y, gv(x)))], x), is_pure=False)
    assert bound_names(remove_all_unused(fn)) == []
    loud = relax.Function([p := var("p")], p, is_pure=False)
    assert bound_names(remove_all_unused(fn, IRModule({"main": fn, "loud": loud}))) == ["y"]


def test_checks_that_may_fail_stay_and_others_go():
    x, y, z, w = (
        var("x", Tensor(None, ndim=2)),
        var("y"),
        var("z", Tensor((3, 4))),
        var("w", Tensor(None, ndim=2)),
    )
    block = relax.BindingBlock(
        [
            relax.MatchCast(y, x, Tensor((m, 4))),
            relax.MatchCast(z, x, Tensor((3, 4))),
            relax.MatchCast(w, x, Tensor(None, ndim=2)),
        ]
    )
    y = relax.Var("y", Tensor((m, 4)))
    fn = relax.Function([x], relax.SeqExpr([block], relax.Tuple(())))
    assert bound_names(remove_all_unused(fn)) == ["y", "z"]


def test_branches_are_cleaned_and_unused_ifs_go():
    x, c, t, u, z, w = var("x"), var("c", BOOL), var("t"), var("u"), var("z"), var("w")
    used = relax.If(c, relax.SeqExpr([plain((t, call(x)), (u, call(x)))], t), x)
    unused = relax.If(c, call(x), x)
    fn = relax.Function([x, c], relax.SeqExpr([plain((z, used), (w, unused))], z))
    cleaned = remove_all_unused(fn)
    assert bound_names(cleaned) == ["z"]
    branch = cleaned.body.blocks[0].bindings[0].value.true_branch
    assert [b.var.name_hint for b in branch.blocks[0].bindings] == ["t"]
    check_well_formed(cleaned)


def test_an_unused_if_with_an_effect_stays_with_its_condition():
    x, c, z = var("x"), var("c", BOOL), var("z", relax.ObjectStructInfo())
    cond = var("cond", BOOL)
    a, u = var("a"), var("u", Tuple(()))
    branch = relax.SeqExpr([plain((a, call(x)), (u, relax.op.print(a)))], x)
    block = plain((cond, relax.call_dps_packed("env.not", c, BOOL)), (z, relax.If(cond, branch, x)))
    fn = relax.Function([x, c], relax.SeqExpr([block], x), is_pure=False)
    cleaned = remove_all_unused(fn)
    assert bound_names(cleaned) == ["cond", "z"]
    inner = cleaned.body.blocks[0].bindings[1].value.true_branch
    assert [b.var.name_hint for b in inner.blocks[0].bindings] == ["a", "u"]


def test_closures_are_cleaned_and_keep_effects_only_if_used():
    x, p, dead, u, f, y = var("x"), var("p"), var("dead"), var("u", Tuple(())), None, None
    inner = relax.Function(
        [p], relax.SeqExpr([plain((dead, call(p)), (u, relax.op.print(x)))], p), is_pure=False
    )
    f, y = var("f", inner.struct_info), var("y")
    kept = relax.Function([x], relax.SeqExpr([plain((f, inner), (y, f(x)))], y), is_pure=False)
    cleaned = remove_all_unused(kept)
    assert bound_names(cleaned) == ["f", "y"]
    inside = cleaned.body.blocks[0].bindings[0].value
    assert bound_names(inside) == ["u"]
    unused = relax.Function([x], relax.SeqExpr([plain((f, inner))], x))
    assert bound_names(remove_all_unused(unused)) == []


def test_a_variable_used_only_as_a_shape_stays():
    x, s = var("x"), var("s", relax.ShapeStructInfo(ndim=2))
    y = relax.Var("y", Tensor(s))
    block = plain(
        (s, relax.op.tensor_to_shape(relax.const([1, 2], "int64"))),
        (y, relax.call_packed("env.f", x, sinfo_args=Tensor(s))),
    )
    fn = relax.Function([x], relax.SeqExpr([block], y), is_pure=False)
    assert bound_names(remove_all_unused(fn)) == ["s", "y"]


def test_an_empty_dataflow_block_goes():
    x, lv = var("x"), relax.DataflowVar("lv", OUT)
    fn = relax.Function(
        [x], relax.SeqExpr([relax.DataflowBlock([relax.VarBinding(lv, call(x))])], x)
    )
    assert remove_all_unused(fn).body.blocks == ()


def add_one(a):
    return te.compute(a.shape, lambda i, j: a[i, j] + 1.0)


@pytest.fixture
def mod():
    b, x, y, z = relax.BlockBuilder(), var("x"), var("y"), var("z")
    with b.function("helper", [y], private=True):
        gv = b.emit_func_output(b.emit_te(add_one, y))
    with b.function("unused", [z], private=True):
        b.emit_func_output(b.emit(gv(z)))
    with b.function("main", [x]):
        with b.dataflow():
            b.emit(gv(x))
            out = b.emit_output(call(x))
        b.emit_func_output(out)
    return b.get()


def names(mod):
    return [gv.name_hint for gv in mod]


def test_private_functions_nobody_reaches_go(mod):
    cleaned = transform.DeadCodeElimination()(mod)
    assert names(cleaned) == ["main"]
    check_well_formed(cleaned)
    assert transform.DeadCodeElimination()(cleaned) is cleaned
    assert names(mod) == ["add_one", "helper", "unused", "main"]


def test_entry_functions_are_kept_with_what_they_reach(mod):
    for entry in ("helper", ["helper"], (mod.get_global_var("helper"),)):
        cleaned = transform.DeadCodeElimination(entry_functions=entry)(mod)
        assert names(cleaned) == ["add_one", "helper", "main"]
    with pytest.raises(ValueError, match="no function 'nothing'"):
        transform.DeadCodeElimination(entry_functions=["nothing"])(mod)


def test_a_module_without_public_functions_keeps_all_of_them():
    mod = IRModule({"f": relax.Function([x := var("x")], x)})
    assert transform.DeadCodeElimination()(mod) is mod


def test_ten_thousand_dead_bindings_at_once():
    x, bindings, last = var("x"), [], None
    last = x
    for i in range(10_000):
        v = var(f"v{i}")
        bindings.append((v, call(last)))
        last = v
    fn = relax.Function([x], relax.SeqExpr([plain(*bindings)], x))
    assert remove_all_unused(fn).body.blocks == ()
