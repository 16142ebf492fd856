"""What the verifier refuses, and that it says where."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_fixture import section

from relaxvm.base import DataType, VerifyError
from relaxvm.runtime import (
    DimProgram,
    ExecBuilder,
    Executable,
    FunctionInfo,
    ObjectInfo,
    TensorInfo,
    VirtualMachine,
)
from relaxvm.runtime.bytecode import VM, VOID, Arg, ArgKind, Call, Goto, If, Ret, encode, to_bytes

REG, IMM, CONST, FUNC = ArgKind
F32 = DataType("float32")


def program(instructions, inputs=1, registers=3, functions=(), constants=(), **changes):
    """An executable with one function `main` of the given instructions, then `functions`."""
    words = encode(instructions)
    fields = {
        "name": "main",
        "kind": "vm",
        "start": 0,
        "end": len(words),
        "register_file_size": registers,
        "param_names": tuple(f"arg{i}" for i in range(inputs)),
        "params": (ObjectInfo(),) * inputs,
    } | changes
    return Executable([FunctionInfo(**fields), *functions], constants, to_bytes(words))


RET = Ret(Arg(REG, 0))
G = FunctionInfo("env.g", "packed")


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        ([Ret(Arg(REG, 1))], r"instruction 0: register %1 is read before"),
        ([Ret(Arg(REG, 3))], r"register %3 is outside the 3"),
        ([Ret(Arg(REG, -1))], r"register %-1 is outside"),
        ([Ret(Arg(REG, VM))], r"cannot return %vm"),
        ([Ret(Arg(FUNC, 0))], r"cannot return f\[0\]"),
        ([Ret(Arg(CONST, 0))], r"constant c\[0\] is outside the pool of 0"),
        ([Ret(Arg(CONST, -1))], r"constant c\[-1\] is outside"),
        ([Call(3, 1, ()), RET], r"register %3 is outside"),
        ([Call(VM, 1, ()), RET], r"is outside the 3"),
        ([Call(-1, 1, ()), RET], r"register %-1 is outside"),
        ([Call(VOID, 2, ()), RET], r"function f\[2\] is outside the table of 2"),
        ([Call(VOID, -1, ()), RET], r"function f\[-1\] is outside"),
        ([Call(VOID, 1, (Arg(FUNC, 9),)), RET], r"function f\[9\] is outside"),
        ([Call(VOID, 1, (Arg(REG, 2),)), RET], r"register %2 is read before"),
        ([Call(VOID, 1, ())], r"instruction 0: the function runs off its end"),
        ([If(0, 0)], r"the jump is to itself"),
        ([If(0, -1), RET], r"leaves the function of 2"),
        ([If(0, 1)], r"leaves the function of 1"),
        ([If(1, 1), RET], r"register %1 is read before"),
        ([If(VOID, 1), RET], r"is outside the 3"),
        ([Goto(0)], r"the jump is to itself"),
        ([Goto(1)], r"leaves the function of 1"),
        ([RET, Goto(-2)], r"instruction 1: the jump by -2 leaves"),
        ([Goto(1 << 62)], r"leaves the function"),
        ([Call(1, 1, ()), Call(VOID, 0, ()), RET], r"main\(arg0\) takes 1 arguments, got 0"),
    ],
)
def test_broken_instructions_are_refused(instructions, message):
    with pytest.raises(VerifyError, match="function main: .*" + message):
        program(instructions, functions=[G]).verify()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "function name"),
        ({"name": "a\0b"}, "function name"),
        ({"name": "x" * 5000}, "function name"),
        ({"name": "env.g"}, "in the table twice"),
        ({"name": "vm.builtin.copy"}, "belongs to a builtin"),
        ({"kind": "other"}, "kind 'other'"),
        ({"kind": "kernel"}, "no such kernel"),
        ({"start": 1}, "wanted code from word 0 on"),
        ({"end": 0}, "wanted code from word 0 on"),
        ({"end": 1, "register_file_size": 1}, "cover 1 words of code, there are 2"),
        ({"end": 9}, "cover 9 words of code, there are 2"),
        ({"register_file_size": 0}, "wanted 1 to 3 registers, got 0"),
        ({"register_file_size": 4}, "wanted 1 to 3 registers, got 4"),
        ({"params": ()}, "1 parameters, 0 infos"),
        ({"param_names": ("x", "x"), "params": (ObjectInfo(),) * 2}, "the same name"),
    ],
)
def test_broken_function_tables_are_refused(changes, message):
    with pytest.raises(VerifyError, match=message):
        program([RET], functions=[G], **changes).verify()


def test_a_register_written_on_one_path_only_is_refused():
    one_path = [If(0, 2), Call(1, 1, ()), Ret(Arg(REG, 1))]
    with pytest.raises(VerifyError, match="instruction 2: register %1 is read before"):
        program(one_path, functions=[G]).verify()
    both = [If(0, 3), Call(1, 1, ()), Goto(2), Call(1, 1, ()), Ret(Arg(REG, 1))]
    program(both, functions=[G]).verify()


def test_a_register_written_only_in_a_later_round_of_a_loop_is_refused():
    loop = [If(0, 3), Call(1, 1, ()), Goto(-2), Call(VOID, 1, (Arg(REG, 1),)), RET]
    with pytest.raises(VerifyError, match="instruction 3: register %1"):
        program(loop, functions=[G]).verify()


def kill(register: int) -> Call:
    return Call(VOID, 2, (Arg(REG, register),))


KILL = FunctionInfo("vm.builtin.kill_object", "packed")


def test_reading_after_a_kill_is_refused_until_written_again():
    with pytest.raises(VerifyError, match="instruction 1: register %0"):
        program([kill(0), RET], functions=[G, KILL]).verify()
    program([kill(0), Call(0, 1, ()), RET], functions=[G, KILL]).verify()
    with pytest.raises(VerifyError, match="instruction 2: register %0"):
        program([If(0, 2), kill(0), RET], functions=[G, KILL]).verify()
    with pytest.raises(VerifyError, match="instruction 0: register %0"):
        program([Call(VOID, 1, (Arg(REG, 0),)), kill(0), Goto(-2)], functions=[G, KILL]).verify()


def test_unreachable_code_is_not_held_to_the_register_rule():
    program([RET, Call(VOID, 1, (Arg(REG, 2),)), Goto(-2)], functions=[G]).verify()


def test_control_flow_made_to_stall_the_analysis_is_refused_quickly():
    # Every block reads a register of its own and may jump anywhere back.
    n = 3000
    code = [If(0, 1) for _ in range(n)]
    for i in range(n):
        code += [Call(VOID, 1, (Arg(REG, i + 1),)), If(0, -n // 2)]
    code.append(RET)
    with pytest.raises(VerifyError, match=r"too tangled|is read before"):
        program(code, registers=n + 1, functions=[G]).verify()


def emit(name, args, constants=()):
    b = ExecBuilder()
    with b.function("main", num_inputs=2):
        b.emit_call(name, [b.r(a[1]) if isinstance(a, tuple) and a[0] == "r" else a for a in args])
        b.emit_ret(None)
    return b.get()


X, H = ("r", 0), ("r", 1)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("alloc_shape_heap", [], r"takes the arguments \(imm\), got 0"),
        ("alloc_shape_heap", [X], "argument 0: wanted an int, got a register"),
        ("alloc_shape_heap", [-1], "wanted 0 to"),
        ("alloc_shape_heap", [1 << 40], "wanted 0 to"),
        ("match_shape", [X, H], "takes the arguments"),
        ("match_shape", [X, H, "ctx", 0], "takes the arguments"),
        ("match_shape", [X, H, "ctx", 9, 1], "unknown code 9"),
        ("match_shape", [X, H, "ctx", 1, -1], "slot -1 is out of range"),
        ("match_shape", [X, H, 3, 0, 1], "argument 2: wanted a constant text"),
        ("match_shape", [X, H, X, 0, 1], "argument 2: wanted a constant text, got a register"),
        ("match_prim_value", [X, H, "ctx", 1], "takes the arguments"),
        ("make_shape", [H, 2, 0], "unknown code 2"),
        ("make_prim_value", [H, 1, -5], "slot -5"),
        ("shape_expr", [H, 0, 3], "argument 2: wanted a constant dimension"),
        ("shape_expr", [H, 0, DimProgram(("$n",))], "wanted a constant dimension over heap"),
        ("shape_expr", [H, -1, DimProgram(("$0",))], "slot -1"),
        ("check_tensor_info", [X, 2, "float32", "ctx"], "argument 2: wanted a constant dtype"),
        ("check_tensor_info", [X, 2, F32], "takes the arguments"),
        ("check_result", [X, "Tensor", "ctx"], "wanted a constant struct info"),
        ("alloc_storage", [-1, 0, F32, "global"], "wanted a size of 0 to"),
        ("alloc_storage", [1 << 60, 0, F32, "global"], "wanted a size of 0 to"),
        ("alloc_storage", [1, 0, F32, "global", 1], "takes the arguments"),
        ("alloc_tensor", [X, 0, (4,), "float32"], "argument 3: wanted a constant dtype"),
        ("alloc_tensor", [X, 2, (4,), F32], "multiple of 4"),
        ("alloc_tensor", [X, -4, (4,), F32], "multiple of 4"),
        ("alloc_tensor", [X, 0, (-4,), F32], "sizes of at least 0"),
        ("alloc_tensor", [X, 0, (1 << 40, 1 << 40), F32], "too large"),
        ("alloc_tensor", [X, 0, (1,) * 40, F32], "too large"),
        ("alloc_tensor", [X, 0, (4,), DataType("float32x4")], "no array has dtype"),
        ("alloc_tensor", [X, 0, (4,), DataType("handle")], "no array has dtype"),
        ("reshape", [X, (-1,)], "sizes of at least 0"),
        ("tuple_getitem", [X], "takes the arguments"),
        ("null_value", [X], "takes the arguments"),
    ],
)
def test_builtins_are_checked_for_count_kind_and_range(name, args, message):
    with pytest.raises(
        VerifyError, match=f"function main: instruction 0: vm.builtin.{name}.*{message}"
    ):
        emit(f"vm.builtin.{name}", args)


def test_kernels_are_checked_for_presence_count_and_constant_outputs():
    b = ExecBuilder()
    b.add_kernels(section())
    with b.function("main", num_inputs=2):
        b.emit_call("add", [b.r(0), b.r(1)])
        b.emit_ret(None)
    with pytest.raises(VerifyError, match=r"kernel add\(.*takes 3 arguments, got 2"):
        b.get()
    b = ExecBuilder()
    b.add_kernels(section())
    with b.function("main", num_inputs=2):
        b.emit_call("add", [b.r(0), b.r(1), np.ones(4, "float32")])
        b.emit_ret(None)
    with pytest.raises(VerifyError, match="writes out, which is a constant"):
        b.get()


def test_a_vm_verifies_what_was_put_together_by_hand():
    with pytest.raises(VerifyError, match="read before"):
        VirtualMachine(program([Ret(Arg(REG, 1))]))


def test_struct_infos_that_contradict_themselves_are_refused():
    with pytest.raises(VerifyError, match="ndim=3"):
        TensorInfo(F32, 3, (1, 2))
    with pytest.raises(VerifyError, match="no array has dtype"):
        TensorInfo(DataType("handle"))
    assert str(TensorInfo(F32, 2, (("$n",), 64))) == "Tensor((n, 64), float32)"
