"""The instruction table, its encoder and decoder, and the builder that writes with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm.base import DataType, VerifyError, VMTypeError, VMValueError
from relaxvm.runtime import ExecBuilder, NDArray, ShapeTuple, array, bytecode
from relaxvm.runtime.bytecode import Arg, ArgKind, Call, Goto, If, Ret, decode, encode

registers = st.integers(0, 100) | st.sampled_from([bytecode.VOID, bytecode.VM])
arguments = st.builds(
    Arg,
    st.sampled_from(list(ArgKind)),
    st.integers(bytecode.PAYLOAD_MIN, bytecode.PAYLOAD_MAX),
)
offsets = st.integers(-(1 << 63), (1 << 63) - 1)
instructions = st.one_of(
    st.builds(Call, registers, st.integers(0, 100), st.lists(arguments, max_size=6).map(tuple)),
    st.builds(Ret, arguments),
    st.builds(Goto, offsets),
    st.builds(If, registers, offsets),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(instructions, max_size=12))
def test_decoding_what_was_encoded_gives_it_back(program):
    words = bytecode.from_bytes(bytecode.to_bytes(encode(program)))
    assert decode(words, 0, len(words)) == program


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 5), max_size=20))
def test_any_words_decode_or_are_refused(words):
    try:
        program = decode(words, 0, len(words))
    except VerifyError:
        return
    assert encode(program) == words


def test_every_opcode_has_one_line_in_the_table():
    assert {spec.opcode for spec in bytecode.INSTRUCTIONS} == set(bytecode.Opcode)
    assert [int(code) for code in bytecode.Opcode] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([9], "instruction 0: unknown opcode 9"),
        ([2, 5 << 56], "instruction 0: unknown argument kind 5"),
        ([2, -1], "unknown argument kind -1"),
        ([3, 1, 3], "instruction 1: runs past the end"),
        ([1, 0, 0, 7, 0], "runs past the end"),
        ([1, 0, 0, -1], "runs past the end"),
        ([1, 0, 0, 1 << 62], "runs past the end"),
    ],
)
def test_words_that_are_no_instruction_are_refused(words, message):
    with pytest.raises(VerifyError, match=message):
        decode(words, 0, len(words))


def test_code_that_is_no_whole_number_of_words_is_refused():
    with pytest.raises(VerifyError, match="multiple of 8"):
        bytecode.from_bytes(b"1234567")


def test_special_registers_are_those_of_tvm():
    builder = ExecBuilder()
    assert builder.void_arg().value == 1 << 54
    assert builder.vm_state().value == (1 << 54) + 1
    assert str(builder.vm_state()) == "%vm"


def two_functions(first: int, second: int) -> ExecBuilder:
    builder = ExecBuilder()
    with builder.function("func0", num_inputs=2):
        builder.emit_call("env.add", args=[builder.r(0), builder.r(1)], dst=builder.r(first))
        builder.emit_call("env.mul", [builder.r(1), builder.r(first)], dst=builder.r(second))
        builder.emit_ret(builder.r(second))
    return builder


def test_registers_are_renumbered_in_order_of_appearance():
    sparse, dense = two_functions(100, 50).get(), two_functions(2, 3).get()
    assert sparse.as_text() == dense.as_text()
    assert sparse.functions[0].register_file_size == 4


def test_equal_constants_share_an_entry():
    b = ExecBuilder()
    assert b.convert_constant("str0") == b.convert_constant("str0")
    assert b.convert_constant(ShapeTuple([1, 2])) == b.convert_constant((1, 2))
    one = b.convert_constant(array(np.array([1, 2, 3], "int32")))
    assert one == b.convert_constant(np.array([1, 2, 3], "int32"))
    assert one != b.convert_constant(np.array([1, 2, 3], "int64"))
    assert b.convert_constant(0.0) != b.convert_constant(-0.0)
    assert b.convert_constant(float("nan")) == b.convert_constant(float("nan"))
    assert b.convert_constant("float32") != b.convert_constant(DataType("float32"))
    assert len({b.convert_constant(value) for value in (1, 1.0, True)}) == 3


def test_ints_that_do_not_fit_an_argument_become_constants():
    b = ExecBuilder()
    assert b.imm(-3) == Arg(ArgKind.IMMEDIATE, -3)
    assert b.imm(bytecode.PAYLOAD_MAX).kind == ArgKind.IMMEDIATE
    assert b.imm(bytecode.PAYLOAD_MAX + 1).kind == ArgKind.CONSTANT
    assert b.imm((1 << 63) - 1).kind == ArgKind.CONSTANT
    with pytest.raises(VMValueError, match="64 bits"):
        b.imm(1 << 63)


def test_values_that_no_program_can_hold_are_refused():
    b = ExecBuilder()
    for value in (object(), {"a": 1}, np.array([object()]), [1.5]):
        with pytest.raises(VMTypeError):
            b.convert_constant(value)


def test_plain_values_become_arguments_by_themselves():
    b = ExecBuilder()
    with b.function("main", num_inputs=0):
        b.emit_call("env.f", [1, 1.5, "text", (2, 3), None, True, DataType("int8"), np.ones(2)])
        b.emit_ret(None)
    values = b.get().constants
    assert values[:5] == (1.5, "text", ShapeTuple([2, 3]), True, DataType("int8"))
    assert type(values[5]) is NDArray


def test_labels_patch_forward_and_backward_jumps():
    b = ExecBuilder()
    top, end = b.label(), b.label()
    with b.function("main", num_inputs=1):
        b.place(top)
        b.emit_if(b.r(0), end)
        b.emit_goto(top)
        b.place(end)
        b.emit_ret(b.r(0))
    ex = b.get()
    assert ex.instructions(ex.functions[0])[:2] == [If(0, 2), Goto(-1)]


def test_a_label_without_a_place_is_refused():
    b = ExecBuilder()
    with b.function("main", num_inputs=0):
        b.emit_goto(b.label())
        b.emit_ret(None)
    with pytest.raises(VerifyError, match="instruction 0: its label has no place"):
        b.get()


def test_the_builder_refuses_misuse():
    b = ExecBuilder()
    with pytest.raises(VMValueError, match="inside a scope"):
        b.emit_ret(b.r(0))
    with b.function("f", num_inputs=0):
        with pytest.raises(VMValueError, match="still inside"):
            b.get()
        with pytest.raises(VMTypeError, match="dst"):
            b.emit_call("env.g", [], dst=b.imm(1))
        with pytest.raises(VMTypeError, match="condition"):
            b.emit_if(b.imm(1), 2)
        b.emit_ret(b.imm(1))
    with pytest.raises(VMValueError, match="defined already"), b.function("f"):
        b.emit_ret(b.imm(1))
    with pytest.raises(VMValueError, match="num_inputs=2"):
        with b.function("g", num_inputs=2, param_names=["x"]):
            b.emit_ret(b.imm(1))
    with b.function("h", num_inputs=0):
        b.emit_call("env.g", [b.r(-1)])
        b.emit_ret(b.imm(1))
    with pytest.raises(VerifyError, match="at least 0, got -1"):
        b.get()


def test_a_function_whose_body_raised_is_not_kept():
    b = ExecBuilder()
    with pytest.raises(ZeroDivisionError), b.function("f", num_inputs=0):
        raise ZeroDivisionError
    with b.function("f", num_inputs=0):
        b.emit_ret(b.imm(1))
    assert b.get().globals == ("f",)


def test_ten_thousand_instructions_build_list_and_run():
    from relaxvm.runtime import VirtualMachine

    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        for i in range(10_000):
            b.emit_call("vm.builtin.make_tuple", [b.r(i)], dst=b.r(i + 1))
            b.emit_call("vm.builtin.tuple_getitem", [b.r(i + 1), 0], dst=b.r(i + 1))
        b.emit_ret(b.r(10_000))
    ex = b.get()
    assert VirtualMachine(ex)["main"](7) == 7
    assert ex.as_text().count("\n") == 20_002
    assert len(ex.as_python().splitlines()) == 20_002
