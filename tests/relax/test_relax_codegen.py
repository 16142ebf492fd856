"""From the final form to bytecode: registers, branches, constants, callees."""

import numpy as np
import pytest
from relax_vm_helpers import (
    VOID,
    Body,
    call_tir,
    elementwise,
    emit,
    gv,
    lowered,
    module,
    tensor,
)

from relaxvm import relax, tir
from relaxvm.base import CodegenError
from relaxvm.relax import (
    Call,
    ExternFunc,
    Function,
    If,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    const,
)
from relaxvm.relax.vm_codegen import emit_functions
from relaxvm.runtime import ExecBuilder, VirtualMachine
from relaxvm.runtime.bytecode import ArgKind, Goto, Ret
from relaxvm.runtime.bytecode import Call as CallInstruction
from relaxvm.runtime.bytecode import If as IfInstruction

OBJECT = ObjectStructInfo()


def extern(b, *args, name="t.f", info=OBJECT):
    return b(Call(ExternFunc(name), args, sinfo_args=(info,)))


def final(fn, **functions):
    """The executable of a function that is in its final form already."""
    return emit(module({"main": fn, **functions}))


def instructions(ex, name="main"):
    return ex.instructions(ex.function(name))


def run(ex, *args, **functions):
    return VirtualMachine(ex, functions={f"t.{k}": v for k, v in functions.items()})["main"](*args)


def test_names_share_the_register_of_what_they_name():
    x, b = Var("x", OBJECT), Body()
    y = b(b(b(x)))
    ex = final(b.function([x], y))
    assert instructions(ex) == [Ret((ArgKind.REGISTER, 0))]
    assert run(ex, 5) == 5


def test_registers_are_reused_after_the_last_use():
    x, b = Var("x", OBJECT), Body()
    y = x
    for _ in range(200):
        y = extern(b, y)
    ex = final(b.function([x], y, is_pure=False))
    assert ex.function("main").register_file_size <= 4
    assert run(ex, 0, f=lambda v: v + 1) == 200


def test_registers_of_live_values_are_not_reused():
    x, b = Var("x", OBJECT), Body()
    values = [extern(b, PrimValue(i)) for i in range(20)]
    ex = final(b.function([x], Tuple(values), is_pure=False))
    assert run(ex, 0, f=lambda v: v) == tuple(range(20))


def test_unused_results_go_nowhere():
    x, b = Var("x", OBJECT), Body()
    extern(b, x)
    b(Tuple((x, x)))
    ex = final(b.function([x], x, is_pure=False))
    (call, ret) = instructions(ex)
    assert call.dst == ExecBuilder().void_arg().value
    assert type(ret) is Ret


def test_equal_constants_share_an_entry():
    b = Body()
    values = (
        const(np.arange(4, dtype="float32")),
        const(np.arange(4, dtype="float32")),
        relax.StringImm("a"),
        relax.StringImm("a"),
        ShapeExpr((2, 3)),
        ShapeExpr((2, 3)),
        relax.DataTypeImm("float32"),
        PrimValue(tir.const(1.5, "float32")),
        PrimValue(tir.const(True, "bool")),
        PrimValue(2**60),
    )
    y = extern(b, *values)
    ex = final(b.function([], y, is_pure=False))
    assert len(ex.constants) == 7
    got = run(ex, f=lambda *a: a)
    assert got[0].numpy().tolist() == [0, 1, 2, 3]
    assert got[2:4] == ("a", "a")
    assert tuple(got[4]) == (2, 3)
    assert got[6] == "float32"
    assert got[7:] == (1.5, True, 2**60)


def test_constant_result_and_function_result():
    assert run(final(Body().function([], PrimValue(7)))) == 7
    p, inner, b = Var("p", OBJECT), Body(), Body()
    fn = inner.function([p], p, name=None)
    helper = relax.GlobalVar("helper", fn.struct_info)
    ex = emit(
        module(
            {"main": Function([], SeqExpr((), helper), attrs={"global_symbol": "main"}), helper: fn}
        )
    )
    assert run(ex)(11) == 11
    held = b(Tuple((helper, PrimValue(1))))
    ex = emit(module({"main": b.function([], held), helper: fn}))
    assert run(ex)[0](12) == 12


def test_branches_write_one_register():
    x, c, b = Var("x", OBJECT), Var("c", PrimStructInfo("bool")), Body()
    t, e = Body(), Body()
    y = b(If(c, t.seq(extern(t, x)), e.seq(extern(e, extern(e, x)))))
    ex = final(b.function([c, x], y, is_pure=False))
    code = instructions(ex)
    assert [type(i) for i in code] == [
        IfInstruction,
        CallInstruction,
        Goto,
        CallInstruction,
        CallInstruction,
        Ret,
    ]
    assert code[1].dst == code[4].dst == code[5].value.value
    assert run(ex, True, 1, f=lambda v: v + 1) == 2
    assert run(ex, False, 1, f=lambda v: v + 1) == 3


def test_branch_results_from_outside_are_moved():
    x, y, c, b = Var("x", OBJECT), Var("y", OBJECT), Var("c", PrimStructInfo("bool")), Body()
    z = b(If(c, SeqExpr((), x), SeqExpr((), y)))
    ex = final(b.function([c, x, y], Tuple((z, x, y))))
    assert "vm.builtin.move" in [f.name for f in ex.functions]
    assert run(ex, True, 1, 2) == (1, 1, 2)
    assert run(ex, False, 1, 2) == (2, 1, 2)


def test_if_for_its_effects_has_no_result_register():
    c, b, t = Var("c", PrimStructInfo("bool")), Body(), Body()
    extern(t, PrimValue(1), info=VOID)
    b(If(c, t.seq(Tuple(())), SeqExpr((), Tuple(()))))
    ex = final(b.function([c], c, is_pure=False))
    seen = []
    run(ex, True, f=seen.append)
    run(ex, False, f=seen.append)
    assert seen == [1]


def test_constant_condition_is_read_first():
    b = Body()
    y = b(
        If(PrimValue(tir.const(True, "bool")), SeqExpr((), PrimValue(1)), SeqExpr((), PrimValue(2)))
    )
    assert run(final(b.function([], y))) == 1


def test_kills_before_the_return_are_left_out():
    x, b = Var("x", OBJECT), Body()
    kill = relax.op.vm.kill_object
    first = extern(b, x)
    second = extern(b, first)
    b(kill(first), "_")
    third = extern(b, second)
    b(kill(second), "_")
    ex = final(b.function([x], third, is_pure=False))
    text = ex.as_text()
    assert text.count("kill_object") == 1
    assert run(ex, 1, f=lambda v: v * 2) == 8


def test_kill_of_a_name_waits_for_the_other_names():
    x, b = Var("x", OBJECT), Body()
    kill = relax.op.vm.kill_object
    first = extern(b, x)
    alias = b(first)
    b(kill(first), "_")
    second = extern(b, alias)
    ex = final(b.function([x], second, is_pure=False))
    assert run(ex, 1, f=lambda v: v * 2) == 4


def test_tuple_arguments_are_put_together():
    x, b = Var("x", OBJECT), Body()
    y = extern(b, Tuple((x, Tuple((x, PrimValue(1))))))
    ex = final(b.function([x], y, is_pure=False))
    assert run(ex, 5, f=lambda t: t) == (5, (5, 1))


def test_tuple_get_item():
    t = Var("t", relax.TupleStructInfo((OBJECT, OBJECT)))
    b = Body()
    y = b(TupleGetItem(t, 1))
    assert run(final(b.function([t], y)), (1, 2)) == 2


def test_parameters_of_one_name_are_told_apart():
    x, y = Var("x", OBJECT), Var("x", tensor((4,)))
    ex = final(Body().function([x, y], y))
    assert ex.function("main").signature() == (
        "main(x, x_1: Tensor((4,), float32)) -> Tensor((4,), float32)"
    )


def test_ten_thousand_bindings():
    x, b = Var("x", OBJECT), Body()
    y = x
    for _ in range(10_000):
        y = extern(b, y)
    ex = final(b.function([x], y, is_pure=False))
    assert run(ex, 0, f=lambda v: v + 1) == 10_000


def test_builtin_with_context_is_called():
    b = Body()
    y = b(relax.call_builtin_with_ctx("vm.builtin.make_tuple", (PrimValue(1), PrimValue(2))))
    assert run(final(b.function([], y, is_pure=False))) == (1, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda x: relax.call_tir(gv("f"), (x,), tensor((4,))),
            r"relax\.call_tir is not an operation",
        ),
        (lambda x: Call(gv("nowhere"), (x,)), "no function nowhere"),
        (
            lambda x: Call(ExternFunc("t.f"), (ShapeExpr((tir.Var("n", "int64"),)),)),
            "shape is not constant",
        ),
        (lambda x: Call(ExternFunc("t.f"), (PrimValue(tir.Var("n", "int64")),)), "not a constant"),
        (lambda x: Function([Var("y", OBJECT)], SeqExpr((), x)), "run LambdaLift first"),
    ],
)
def test_what_is_not_lowered_is_refused_naming_the_binding(make, message):
    x, b = Var("x", tensor((4,))), Body()
    y = b(make(x), "bad")
    with pytest.raises(CodegenError, match=message) as caught:
        emit(
            module(
                {"main": b.function([x], y, is_pure=False), gv("f"): elementwise(lambda a: a, 1)}
            )
        )
    assert "in the binding of bad" in caught.value.__notes__


def test_variable_used_before_it_is_bound_is_refused():
    x = Var("x", OBJECT)
    with pytest.raises(CodegenError, match="x is used before it is bound"):
        final(Body().function([], x))


def test_memory_registers_are_written_once():
    x, b = Var("x", tensor((4,))), Body()
    y = x
    for _ in range(10):
        y = b(call_tir(gv("f"), (y,), tensor((4,))))
    ex = emit(lowered(module({"main": b.function([x], y), gv("f"): elementwise(lambda a: a, 1)})))
    written = [
        i.dst
        for i in instructions(ex)
        if type(i) is CallInstruction
        and ex.functions[i.func].name in ("vm.builtin.alloc_tensor", "vm.builtin.alloc_storage")
    ]
    assert len(written) == len(set(written)) == 12


def test_equal_modules_give_equal_code():
    def build():
        x, b = Var("x", OBJECT), Body()
        builder = ExecBuilder()
        emit_functions(module({"main": b.function([x], extern(b, x), is_pure=False)}), builder)
        return builder.get().to_bytes(sign=False)

    assert build() == build()
