"""Normalize, ToNonDataflow, RemovePurityChecking, AttachGlobalSymbol, and users' own mutators."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm import relax, te
from relaxvm.base import StructInfoError, VerifyError
from relaxvm.ir import IRModule, Op, Var, assert_structural_equal, walk
from relaxvm.relax import transform
from relaxvm.relax.analysis import check_well_formed
from relaxvm.relax.expr_functor import PyExprMutator, PyExprVisitor, mutator, visitor
from relaxvm.relax.substitute import copy_with_new_vars

n = Var("n", "int64")
Tensor, Tuple = relax.TensorStructInfo, relax.TupleStructInfo
OUT = Tensor((n, 4))
BOOL = Tensor((), "bool")


def call(*args, name="env.f"):
    return relax.call_dps_packed(name, args, OUT)


def module(fn):
    return IRModule({"main": fn})


def normalised(fn):
    mod = transform.Normalize()(module(fn))
    check_well_formed(mod)
    assert transform.Normalize()(mod) is mod
    return mod["main"]


def test_nested_calls_get_variables():
    x = relax.Var("x", OUT)
    fn = normalised(relax.Function([x], call(call(x), call(call(x)))))
    assert [b.var.name_hint for b in fn.body.blocks[0].bindings] == ["gv", "gv1", "gv2", "gv3"]
    assert fn.body.body is fn.body.blocks[0].bindings[-1].var


def test_new_names_avoid_those_in_use():
    x = relax.Var("gv", OUT)
    fn = normalised(relax.Function([x], call(x)))
    assert fn.body.body.name_hint == "gv1"


def test_nested_values_in_a_dataflow_block_stay_in_it():
    x, y = relax.Var("x", OUT), relax.Var("y", OUT)
    block = relax.DataflowBlock([relax.VarBinding(y, call(call(x)))])
    fn = normalised(relax.Function([x], relax.SeqExpr([block], y)))
    assert [type(b.var) for b in fn.body.blocks[0].bindings] == [relax.DataflowVar, relax.Var]
    assert type(fn.body.blocks[0]) is relax.DataflowBlock


def test_seq_exprs_as_values_are_opened():
    x, y, z = relax.Var("x", OUT), relax.Var("y", OUT), relax.Var("z", OUT)
    inner = relax.SeqExpr([relax.DataflowBlock([relax.VarBinding(y, call(x))])], call(y))
    block = relax.BindingBlock([relax.VarBinding(z, inner)])
    fn = normalised(relax.Function([x], relax.SeqExpr([block], z)))
    kinds = [type(k) for k in fn.body.blocks]
    assert kinds == [relax.DataflowBlock, relax.BindingBlock]
    assert [b.var for k in fn.body.blocks for b in k.bindings] == [y, z]


def test_a_seq_expr_in_the_middle_splits_the_block_in_order():
    x, a, y, z = (relax.Var(k, OUT) for k in "xayz")
    inner = relax.SeqExpr([relax.DataflowBlock([relax.VarBinding(y, call(a))])], y)
    block = relax.BindingBlock([relax.VarBinding(a, call(x)), relax.VarBinding(z, call(inner))])
    fn = normalised(relax.Function([x], relax.SeqExpr([block], z)))
    assert [[b.var.name_hint for b in k.bindings] for k in fn.body.blocks] == [["a"], ["y"], ["z"]]


def test_branches_conditions_and_closures_are_normalised():
    x, c = relax.Var("x", OUT), relax.Var("c", BOOL)
    cond = relax.call_dps_packed("env.not", c, BOOL)
    inner = relax.Function([a := relax.Var("a", OUT)], call(call(a)))
    f, r = relax.Var("f", inner.struct_info), relax.Var("r", OUT)
    branch = relax.If(cond, call(call(x)), x)
    block = relax.BindingBlock([relax.VarBinding(f, inner), relax.VarBinding(r, branch)])
    fn = normalised(relax.Function([c, x], relax.SeqExpr([block], call(r))))
    assert [b.var.name_hint for b in fn.body.blocks[0].bindings] == ["f", "gv2", "r", "gv5"]


def test_match_cast_of_a_call_and_get_item_of_a_tuple():
    x, y = relax.Var("x", OUT), relax.Var("y", OUT)
    item = relax.TupleGetItem(relax.Tuple((call(x), x)), 0)
    block = relax.BindingBlock([relax.MatchCast(y, item, OUT)])
    fn = normalised(relax.Function([x], relax.SeqExpr([block], y)))
    first, second = fn.body.blocks[0].bindings
    assert isinstance(first.value, relax.Call)
    assert isinstance(second, relax.MatchCast)
    assert second.value is first.var


def test_empty_blocks_go_and_plain_blocks_join():
    x, y, z = (relax.Var(k, OUT) for k in "xyz")
    blocks = [
        relax.BindingBlock([relax.VarBinding(y, call(x))]),
        relax.DataflowBlock([]),
        relax.BindingBlock([relax.VarBinding(z, call(y))]),
    ]
    fn = normalised(relax.Function([x], relax.SeqExpr(blocks, z)))
    assert len(fn.body.blocks) == 1


def test_a_normal_function_is_the_same_object():
    x, y = relax.Var("x", OUT), relax.Var("y", OUT)
    mod = module(
        relax.Function([x], relax.SeqExpr([relax.BindingBlock([relax.VarBinding(y, call(x))])], y))
    )
    for p in (transform.Normalize(), transform.ToNonDataflow(), transform.DeadCodeElimination()):
        assert p(mod) is mod


@pytest.mark.parametrize(
    "build",
    [
        lambda x: relax.VarBinding(relax.Var("y", OUT), Op.get("tir.exp")),
        lambda x: relax.VarBinding(n, x),
        lambda x: relax.MatchCast(relax.Var("y", OUT), x, (n, 4)),
        lambda x: relax.MatchCast("y", x, OUT),
        lambda x: relax.BindingBlock([x]),
        lambda x: relax.SeqExpr([x], x),
        lambda x: relax.SeqExpr([], object()),
        lambda x: relax.Call(relax.extern("f"), [x], None, [n]),
    ],
)
def test_pieces_that_are_no_graph_language_are_refused_when_built(build):
    with pytest.raises((VerifyError, StructInfoError), match="wanted|binds|holds"):
        build(relax.Var("x", OUT))


leaves = st.sampled_from(["x", "y", "const"])


@st.composite
def nested(draw, depth=4):
    kind = (
        draw(st.sampled_from(["leaf", "call", "call", "tuple", "if", "seq"])) if depth else "leaf"
    )
    if kind == "leaf":
        return draw(leaves)
    parts = draw(st.lists(nested(depth=depth - 1), min_size=1, max_size=3))
    return (kind, parts)


class _Recorder:
    """Builds an expression from a description."""

    def __init__(self):
        self.x, self.y = relax.Var("x", OUT), relax.Var("y", OUT)
        self.c = relax.Var("c", BOOL)
        self.const = relax.Var("k", OUT)
        self.count = 0

    def build(self, spec):
        if isinstance(spec, str):
            return {"x": self.x, "y": self.y, "const": self.const}[spec]
        kind, parts = spec
        made = [self.build(p) for p in parts]
        if kind == "call":
            return call(*made)
        if kind == "tuple":
            return relax.TupleGetItem(relax.Tuple(made), len(made) - 1)
        if kind == "if":
            return relax.If(self.c, made[0], made[-1])
        self.count += 1
        v = relax.Var(f"s{self.count}", OUT)
        return relax.SeqExpr(
            [relax.BindingBlock([relax.VarBinding(v, made[0])])], call(v, *made[1:])
        )


def meaning(expr, env):
    if isinstance(expr, relax.Var):
        return env.get(expr, expr.name_hint)
    if isinstance(expr, relax.Call):
        return f"f({', '.join(meaning(a, env) for a in expr.args[1].fields)})"
    if isinstance(expr, relax.Tuple):
        return [meaning(f, env) for f in expr.fields]
    if isinstance(expr, relax.TupleGetItem):
        return meaning(expr.tuple_value, env)[expr.index]
    if isinstance(expr, relax.If):
        branches = meaning(expr.true_branch, env), meaning(expr.false_branch, env)
        return f"({branches[0]} if {meaning(expr.cond, env)} else {branches[1]})"
    env = dict(env)
    for block in expr.blocks:
        for binding in block.bindings:
            env[binding.var] = meaning(binding.value, env)
    return meaning(expr.body, env)


@settings(max_examples=150)
@given(nested())
def test_normal_form_computes_the_same(spec):
    build = _Recorder()
    value = build.build(spec)
    params = [build.x, build.y, build.const, build.c]
    fn = normalised(relax.Function(params, value))
    wanted = meaning(value, {})
    assert meaning(fn.body, {}) == wanted
    plain = transform.ToNonDataflow()(transform.DeadCodeElimination()(module(fn)))
    assert meaning(plain["main"].body, {}) == wanted


def test_to_non_dataflow_replaces_blocks_and_variables():
    x = relax.Var("x", OUT)
    b = relax.BlockBuilder()
    with b.function("main", [x]):
        with b.dataflow():
            out = b.emit_output(call(call(x)))
        b.emit_func_output(call(out))
    mod = transform.ToNonDataflow()(b.get())
    check_well_formed(mod)
    assert not any(
        isinstance(k, (relax.DataflowBlock, relax.DataflowVar)) for k in walk(mod["main"])
    )
    assert len(mod["main"].body.blocks) == 1
    assert transform.ToNonDataflow()(mod) is mod
    assert b.get()["main"].params == mod["main"].params


def test_remove_purity_checking_unwraps_and_marks():
    x, f = relax.Var("x", OUT), relax.Var("f", relax.ObjectStructInfo())
    b = relax.BlockBuilder()
    with b.function("main", [x, f]):
        y = b.emit(relax.call_pure_packed("env.f", x, sinfo_args=OUT))
        z = b.emit(relax.invoke_pure_closure(f, (y,), sinfo_args=OUT))
        b.emit_func_output(z)
    with b.function("loud", [u := relax.Var("u", OUT)], pure=False):
        b.emit(relax.op.print(u))
        b.emit_func_output(u)
    mod = transform.RemovePurityChecking()(b.get())
    check_well_formed(mod)
    first, second = mod["main"].body.blocks[0].bindings
    assert isinstance(first.value.op, relax.ExternFunc)
    assert first.value.struct_info is OUT
    assert second.value.op is Op.get("relax.invoke_closure")
    assert mod["main"].attrs["relax.force_pure"]
    assert "relax.force_pure" not in mod["loud"].attrs
    assert transform.RemovePurityChecking()(mod) is mod


def add_one(a):
    return te.compute(a.shape, lambda i, j: a[i, j] + 1.0)


def test_attach_global_symbol_names_private_functions():
    b, x = relax.BlockBuilder(), relax.Var("x", OUT)
    with b.function("main", [x], private=True):
        b.emit_func_output(b.emit_te(add_one, x))
    mod = transform.AttachGlobalSymbol()(b.get())
    assert {gv.name_hint: fn.attrs["global_symbol"] for gv, fn in mod.items()} == {
        "main": "main",
        "add_one": "add_one",
    }
    assert transform.AttachGlobalSymbol()(mod) is mod
    check_well_formed(mod)


# -- users' own walks -----------------------------------------------------------------------------


@visitor
class Names(PyExprVisitor):
    def __init__(self):
        self.seen = []

    def visit_extern_func_(self, func):
        self.seen.append(func.global_symbol)

    def visit_var_def_(self, var):
        self.seen.append(var.name_hint)


@mutator
class Rename(PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        return relax.call_dps_packed("env.g", call.args[1], OUT)


def built():
    b, x, c = relax.BlockBuilder(), relax.Var("x", OUT), relax.Var("c", BOOL)
    with b.function("main", [c, x]):
        with b.dataflow():
            out = b.emit_output(call(call(x)))
        y = b.emit(relax.If(c, call(out), out))
        b.emit_func_output(y)
    return b.get()


def test_visitor_sees_definitions_and_uses_in_order():
    names = Names()
    names.visit_expr(built()["main"])
    assert names.seen == ["c", "x", "env.f", "env.f", "gv", "env.f", "gv1", "gv2"]


def test_mutator_rebuilds_and_remaps():
    mod = Rename(built()).transform()
    check_well_formed(mod)
    externs = [k.global_symbol for k in walk(mod["main"]) if isinstance(k, relax.ExternFunc)]
    assert set(externs) == {"env.g"}
    assert [type(k) for k in mod["main"].body.blocks] == [relax.DataflowBlock, relax.BindingBlock]


def test_mutator_without_changes_gives_the_same_function():
    mod = built()
    assert PyExprMutator(mod).transform()["main"] is mod["main"]


def test_mutator_may_emit_and_add_kernels():
    @mutator
    class ToKernel(PyExprMutator):
        def visit_call_(self, call):
            return self.builder_.call_te(add_one, *self.visit_expr_post_order(call).args[1].fields)

    mod = ToKernel(built()).transform()
    check_well_formed(mod)
    assert "add_one" in mod


def test_decorators_check_the_base_class():
    with pytest.raises(VerifyError, match="derives from PyExprMutator"):
        mutator(int)


def test_a_copy_with_new_vars_is_equal_and_shares_none():
    fn = built()["main"]
    copy = copy_with_new_vars(fn)
    assert_structural_equal(fn, copy)
    mine = {id(v) for v in walk(fn) if isinstance(v, (relax.Var, Var))}
    assert not any(id(v) in mine for v in walk(copy) if isinstance(v, (relax.Var, Var)))
