"""VMBuiltinLower, ComputePrimValue and the walk they are built on."""

import pytest
from relax_vm_helpers import (
    Body,
    bindings_of,
    call_tir,
    count_calls,
    elementwise,
    gv,
    module,
    tensor,
)

from relaxvm import relax, tir
from relaxvm.ir import IRModule
from relaxvm.relax import (
    Call,
    ExternFunc,
    If,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    Tuple,
    Var,
)
from relaxvm.relax.flow import events
from relaxvm.relax.rewriter import BindingRewriter
from relaxvm.relax.transform import (
    CallTIRRewrite,
    ComputePrimValue,
    KillAfterLastUse,
    LowerAllocTensor,
    LowerRuntimeBuiltin,
    StaticPlanBlockMemory,
    VMBuiltinLower,
)
from relaxvm.script import from_source


def lower(fn, **functions):
    return VMBuiltinLower()(module({"main": fn, **functions}))["main"]


def test_memory_operators_become_those_of_the_machine():
    x, b = Var("x", tensor((4,))), Body()
    y = b(call_tir(gv("f"), (b(call_tir(gv("f"), (x,), tensor((4,)))),), tensor((4,))))
    mod = module({"main": b.function([x], y), gv("f"): elementwise(lambda a: a, 1)})
    for p in (
        CallTIRRewrite,
        StaticPlanBlockMemory,
        LowerAllocTensor,
        KillAfterLastUse,
        VMBuiltinLower,
    ):
        mod = p()(mod)
    counts = count_calls(mod["main"])
    assert counts["relax.vm.alloc_storage"] == counts["relax.vm.alloc_tensor"] == 2
    assert counts["relax.vm.kill_object"] == 2
    assert not any(name.startswith("relax.memory") for name in counts)


def test_allocation_is_lowered_without_the_passes_before():
    x, b = Var("x", tensor((4,))), Body()
    mod = CallTIRRewrite()(
        module(
            {
                "main": b.function([x], b(call_tir(gv("f"), (x,), tensor((4,))))),
                gv("f"): elementwise(lambda a: a, 1),
            }
        )
    )
    counts = count_calls(VMBuiltinLower()(mod)["main"])
    assert counts["relax.vm.alloc_storage"] == counts["relax.vm.alloc_tensor"] == 1


def test_operators_become_builtins():
    x, b = Var("x", tensor((4,))), Body()
    s = b(relax.op.shape_of(x))
    t = b(relax.op.shape_to_tensor(s))
    b(relax.op.tensor_to_shape(t))
    b(relax.op.null_value())
    b(relax.op.print(x, format="{}"), "_")
    b(relax.op.assert_op(True, format="no"), "_")
    made = lower(b.function([x], t, is_pure=False))
    assert set(count_calls(made)) == {
        f"vm.builtin.{n}"
        for n in (
            "shape_of",
            "shape_to_tensor",
            "tensor_to_shape",
            "null_value",
            "print",
            "assert_op",
        )
    }


def test_dynamic_call_with_known_scalars_is_a_plain_call():
    n = tir.Var("n", "int64")
    x, b = Var("x", tensor((n,))), Body()
    op = relax.op.vm.call_tir_dyn
    b(op(gv("f"), Tuple((x, ShapeExpr((n + 1, 3))))), "_")
    s = Var("s", ShapeStructInfo(ndim=1))
    b(op(gv("f"), Tuple((x, s))), "_")
    made = lower(b.function([x, s], x, is_pure=False))
    plain, dynamic = (b.value for b in made.body.blocks[0].bindings)
    assert plain.op.name_hint == "f"
    assert [type(a) for a in plain.args] == [Var, PrimValue, PrimValue]
    assert dynamic.op.global_symbol == "vm.builtin.call_tir_dyn"


def test_pure_packed_call_is_a_plain_one():
    x, b = Var("x", tensor((4,))), Body()
    y = b(relax.call_pure_packed("env.f", x, sinfo_args=tensor((4,))))
    made = lower(b.function([x], y))
    assert count_calls(made) == {"env.f": 1}


def test_view_of_the_same_dtype_is_a_reshape_and_others_are_views():
    x, b = Var("x", tensor((4,))), Body()
    same = b(relax.op.memory.view(x, (2, 2)))
    assert count_calls(lower(b.function([x], same))) == {"vm.builtin.reshape": 1}
    other = Body()
    y = other(relax.op.memory.view(x, (4,), "int32"))
    z = other(relax.op.memory.view(y, (2,), "int32", 8))
    assert count_calls(lower(other.function([x], z))) == {"vm.builtin.view": 2}


def test_nothing_to_lower_is_the_same_object():
    x = Var("x", tensor((4,)))
    mod = module({"main": Body().function([x], x)})
    assert VMBuiltinLower()(mod) is mod
    assert ComputePrimValue()(mod) is mod
    assert LowerRuntimeBuiltin is VMBuiltinLower


# -- ComputePrimValue -----------------------------------------------------------------------------


def extern(b, *args):
    return b(Call(ExternFunc("env.f"), args, sinfo_args=(tensor((4,)),)))


def test_computed_scalar_gets_a_binding_once():
    n = tir.Var("n", "int64")
    x, b = Var("x", tensor((n,))), Body()
    extern(b, x, PrimValue(n * 2))
    y = extern(b, x, PrimValue(n * 2), PrimValue(n), PrimValue(7))
    mod = module({"main": b.function([x], y, is_pure=False)})
    made = ComputePrimValue()(mod)["main"]
    first, second, third = made.body.blocks[0].bindings
    assert isinstance(first.value, PrimValue)
    assert second.value.args[1] is first.var
    assert third.value.args[1] is first.var
    assert isinstance(third.value.args[2], PrimValue)


def test_scalar_computed_in_one_branch_is_not_used_in_the_other():
    n = tir.Var("n", "int64")
    x, c, b = Var("x", tensor((n,))), Var("c", tensor((), "bool")), Body()
    t, e = Body(), Body()
    branches = [body.seq(extern(body, x, PrimValue(n + 1))) for body in (t, e)]
    y = b(If(c, *branches))
    made = ComputePrimValue()(module({"main": b.function([c, x], y, is_pure=False)}))["main"]
    value = made.body.blocks[0].bindings[0].value
    for branch in (value.true_branch, value.false_branch):
        assert isinstance(branch.blocks[0].bindings[0].value, PrimValue)


def test_condition_and_result_are_computed():
    n = tir.Var("n", "int64")
    x, b = Var("x", tensor((n,))), Body()
    y = b(If(PrimValue(n > 1), SeqExpr((), PrimValue(n + 1)), SeqExpr((), PrimValue(n))))
    made = ComputePrimValue()(module({"main": b.function([x], Tuple((y, PrimValue(n - 1))))}))[
        "main"
    ]
    cond, choice, result = made.body.blocks[0].bindings
    assert choice.value.cond is cond.var
    assert choice.value.true_branch.body is choice.value.true_branch.blocks[0].bindings[0].var
    assert made.body.body.fields[1] is result.var


# -- the walk -------------------------------------------------------------------------------------


class Nothing(BindingRewriter):
    """Changes nothing."""


class Twice(BindingRewriter):
    """Doubles every binding of a call."""

    def binding(self, b):
        return (
            (b, b.replace(var=Var("again", b.var.struct_info)))
            if isinstance(b.value, Call)
            else None
        )


def nested(depth):
    x, c = Var("x", tensor((4,))), Var("c", tensor((), "bool"))
    body = Body()
    seq = body.seq(extern(body, x))
    for _ in range(depth):
        outer = Body()
        seq = outer.seq(outer(If(c, seq, SeqExpr((), x))))
    return relax.Function([c, x], seq, is_pure=False, attrs={"global_symbol": "main"})


def test_rewriter_that_changes_nothing_gives_the_same_object():
    fn = nested(3)
    assert Nothing().rewrite(fn) is fn


def test_rewriter_reaches_the_deepest_branch():
    made = Twice().rewrite(nested(3000))
    deepest = [b for b in bindings_of(made) if isinstance(b.value, Call)]
    assert len(deepest) == 2


def test_events_end_where_they_begin():
    kinds = [e.kind.value for e in events(nested(2))]
    branches = "open enter open enter bind result enter result close result enter result close"
    assert kinds == [*branches.split(), "result"]


@pytest.mark.parametrize("call", ["R.vm.alloc_storage", "R.call_packed"])
def test_a_storage_asked_for_in_elements_is_one_of_bytes(call):
    name = '"vm.builtin.alloc_storage", ' if call == "R.call_packed" else ""
    scope = 'R.str("global")' if name else '"global"'
    info = ", sinfo_args=(R.Object,)" if name else ""
    text = f"""
@R.function(pure=False)
def main():
    s = {call}({name}R.shape([6]), R.prim_value(0), R.dtype("float32"), {scope}{info})
    t = R.vm.alloc_tensor(s, R.prim_value(0), R.shape([2, 3]), R.dtype("float32"))
    return t
"""
    mod = IRModule({"main": from_source(text)})
    vm = relax.VirtualMachine(relax.build(mod, "llvm"))
    assert vm["main"]().shape == (2, 3)
