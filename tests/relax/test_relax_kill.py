"""KillAfterLastUse: what is let go, and after which binding."""

from relax_vm_helpers import VOID, Body, bindings_of, call_tir, elementwise, gv, module, tensor

from relaxvm.ir import Op
from relaxvm.relax import (
    Call,
    ExternFunc,
    If,
    MatchCast,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from relaxvm.relax.transform import (
    CallTIRRewrite,
    KillAfterLastUse,
    LowerAllocTensor,
    StaticPlanBlockMemory,
)

KILLS = ("relax.memory.kill_tensor", "relax.memory.kill_storage", "relax.vm.kill_object")


def kills(fn):
    """[(name of the operator, killed variable)] in order."""
    return [
        (b.value.op.name.split(".")[-1], b.value.args[0])
        for b in bindings_in_order(fn.body)
        if isinstance(b.value, Call) and isinstance(b.value.op, Op) and b.value.op.name in KILLS
    ]


def bindings_in_order(seq):
    for block in seq.blocks:
        yield from block.bindings


def extern(b, *args, info=None, name="lv"):
    info = info or tensor((4,))
    return b(Call(ExternFunc("env.f"), args, sinfo_args=(info,)), name)


def killed(fn):
    return KillAfterLastUse()(module({"main": fn}))["main"]


def test_object_goes_right_after_its_last_use():
    x, b = Var("x", tensor((4,))), Body()
    first = extern(b, x)
    second = extern(b, first)
    third = extern(b, first, second)
    made = killed(b.function([x], third, is_pure=False))
    assert kills(made) == [("kill_object", first), ("kill_object", second)]
    after = list(bindings_in_order(made.body))
    assert after.index(next(v for v in after if v.var is third)) == 2


def test_parameters_results_scalars_and_shapes_stay():
    x, b = Var("x", tensor((4,))), Body()
    number = extern(b, x, info=PrimStructInfo("int64"))
    last = extern(b, number, PrimValue(3), ShapeExpr((4,)))
    fn = b.function([x], last, is_pure=False)
    assert killed(fn) is fn


def test_other_names_count_as_uses():
    x, b = Var("x", tensor((4,))), Body()
    first = extern(b, x)
    alias = b(first)
    cast = Var("cast", tensor((4,)))
    b.bindings.append(MatchCast(cast, alias, tensor((4,))))
    extern(b, x, name="unrelated")
    last = extern(b, cast)
    made = killed(b.function([x], last, is_pure=False))
    assert kills(made) == [("kill_object", first)]
    assert list(bindings_in_order(made.body))[-1].value.args == (first,)


def test_name_of_a_result_is_not_killed():
    x, b = Var("x", tensor((4,))), Body()
    alias = b(extern(b, x))
    fn = b.function([x], alias, is_pure=False)
    assert killed(fn) is fn


def test_tuple_and_its_fields_have_lives_of_their_own():
    x, b = Var("x", tensor((4,))), Body()
    first = extern(b, x)
    t = b(Tuple((first, x)))
    g = b(TupleGetItem(t, 0))
    last = extern(b, g)
    made = killed(b.function([x], last, is_pure=False))
    assert kills(made) == [("kill_object", v) for v in (first, t, g)]


def test_outer_object_used_in_a_branch_goes_after_the_if():
    x, c, b = Var("x", tensor((4,))), Var("c", tensor((), "bool")), Body()
    first = extern(b, x)
    t = Body()
    inner = extern(t, first)
    y = b(If(c, t.seq(extern(t, inner)), SeqExpr((), x)))
    last = extern(b, y)
    made = killed(b.function([c, x], last, is_pure=False))
    assert kills(made) == [("kill_object", first), ("kill_object", y)]
    branch = next(v.value for v in bindings_of(made) if isinstance(v.value, If)).true_branch
    assert [v.value.args for v in branch.blocks[0].bindings][-1] == (inner,)


def test_tensor_goes_before_its_storage():
    x, b = Var("x", tensor((4,))), Body()
    y = b(call_tir(gv("f"), (x,), tensor((4,))))
    z = b(call_tir(gv("f"), (y,), tensor((4,))))
    mod = module({"main": b.function([x], z), gv("f"): elementwise(lambda a: a, 1)})
    for p in (CallTIRRewrite, StaticPlanBlockMemory, LowerAllocTensor, KillAfterLastUse):
        mod = p()(mod)
    names = [name for name, _ in kills(mod["main"])]
    assert names == ["kill_tensor", "kill_storage"]


def test_killing_twice_changes_nothing():
    x, b = Var("x", tensor((4,))), Body()
    last = extern(b, extern(b, x))
    made = killed(b.function([x], last, is_pure=False))
    assert killed(made) is made


def test_unused_and_void_results_are_not_killed():
    x, b = Var("x", tensor((4,))), Body()
    extern(b, x)
    extern(b, x, info=VOID, name="_")
    fn = b.function([x], x, is_pure=False)
    assert killed(fn) is fn
