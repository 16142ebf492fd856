"""The shape heap of compiled functions, and the checks of values against struct info."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ...runtime import ORIGIN_STEP, Builtins, MatchCode, builtin_args, builtin_called, static_values
from ...runtime import pyabi as abi
from ...runtime.bytecode import Call
from .vm_body import Body
from .vm_dims import dim_value
from .vm_values import Boolean, Heap, Integer, Real, Shape, Size, TupleOf

_IMM, _STORE, _NO_OP, _LOAD, _NOT_NEGATIVE = MatchCode


def alloc_shape_heap(body: Body) -> None:
    (size,) = body.static()
    if type(size) is not int or size > 4096:
        body.leave("the shape heap is large")
    memory = body.text.alloca("i64", 8, max(1, 2 * size))
    body.fill(memory, 16 * size, 0xFF)
    body.set(Heap(memory=memory, size=size, writes=_slot_writes(body)))


def _slot_writes(body: Body) -> Counter[int]:
    """How many instructions of the function write each slot number of whatever heap."""
    counts: Counter[int] = Counter()
    program = body.program
    for instruction in body.instructions:
        if type(instruction) is not Call:
            continue
        row = builtin_called(program, instruction)
        args = builtin_args(instruction.args)
        if row in (Builtins.MATCH_SHAPE, Builtins.MATCH_PRIM_VALUE):
            flat = static_values(program, args[3:])
            counts.update(slot for code, slot in zip(flat[::2], flat[1::2]) if code == _STORE)
        elif row is Builtins.SHAPE_EXPR:
            counts.update(static_values(program, args[1:2]))
    return counts


def _heap(body: Body, k: int) -> Heap:
    return body.known_as(k, Heap, "the shape heap is not known")


def _store(body: Body, heap: Heap, slot: int, value: Size, axis: int = -1) -> None:
    if slot >= heap.size:
        body.leave("a slot is outside of the shape heap")
    origin = body.pc * ORIGIN_STEP + axis + 1
    for i, word in enumerate((value, origin)):
        cell = body.text.at(heap.memory, 16 * slot + 8 * i)
        body.text.store(word, cell, of="i64")
    heap.known[slot] = value


def _slot(body: Body, heap: Heap, slot: int) -> Size:
    if slot >= heap.size:
        body.leave("a slot is outside of the shape heap")
    known = heap.known.get(slot)
    if known is None:
        origin = body.field(heap.memory, 16 * slot + 8, "i64")
        body.guard(body.text.op("icmp slt", origin, 0))
        known = body.field(heap.memory, 16 * slot, "i64")
        heap.known[slot] = known
    return known


def match_shape(body: Body) -> None:
    static = body.static()
    flat = static[3:]
    pairs = tuple(zip(flat[::2], flat[1::2]))
    value: Any = body.operand(0)
    if not isinstance(value, Shape):
        value = body.tensor(0, None, len(pairs))
    elif len(value.dims) != len(pairs):
        body.leave("the shape has another length")
    heap = None
    if any(code in (_STORE, _LOAD) for code, _ in pairs):
        heap = _heap(body, 1)
    # All comparisons with constants first: a heap is not changed by a match that fails.
    for (code, wanted), size in zip(pairs, value.dims):
        if code == _IMM:
            body.refuse("ne", size, wanted)
    # From here on those sizes are constants.
    known = value.copied()
    known.dims = tuple(
        wanted if code == _IMM else size for (code, wanted), size in zip(pairs, value.dims)
    )
    body.refine(0, known)
    for axis, ((code, wanted), size) in enumerate(zip(pairs, known.dims)):
        if code == _STORE:
            assert heap is not None
            _store(body, heap, wanted, size, axis)
        elif code == _LOAD:
            assert heap is not None
            body.refuse("ne", size, _slot(body, heap, wanted))
        elif code == _NOT_NEGATIVE:
            body.refuse("slt", size, 0)


def match_prim_value(body: Body) -> None:
    _, _, _, code, wanted = body.static()
    if code == _NO_OP:
        return
    if code == _NOT_NEGATIVE:
        body.leave("a scalar may be negative")
    number = body.integer(0)
    if code == _STORE:
        _store(body, _heap(body, 1), wanted, number)
    else:
        expected = wanted if code == _IMM else _slot(body, _heap(body, 1), wanted)
        body.refuse("ne", number, expected)


def make_shape(body: Body) -> None:
    flat = body.static()[1:]
    heap = _heap(body, 0)
    pairs = zip(flat[::2], flat[1::2])
    dims = tuple([_slot(body, heap, value) if code else value for code, value in pairs])
    if len(dims) > 64:
        body.leave("the shape is long")
    body.set(Shape(dims=dims))


def make_prim_value(body: Body) -> None:
    _, code, value = body.static()
    body.set(Integer(value=_slot(body, _heap(body, 0), value) if code else value))


def shape_expr(body: Body) -> None:
    _, slot, program = body.static()
    heap = _heap(body, 0)
    value = dim_value(body, program.dim, lambda name: _slot(body, heap, int(name)))
    _store(body, heap, slot, value)


def check_tensor_info(body: Body) -> None:
    _, ndim, dtype, _ = body.static()
    if dtype is not None and dtype.kind == "void":
        dtype = None
    body.tensor(0, dtype, ndim if ndim >= 0 else None)


def check_shape_info(body: Body) -> None:
    _, ndim, _ = body.static()
    value = body.operand(0)
    if isinstance(value, Shape):
        if ndim >= 0 and len(value.dims) != ndim:
            body.leave("the shape has another length")
        return
    box = body.object_of(0, "ShapeTuple", "it is no shape")
    if ndim < 0:
        return
    if ndim > 64:
        body.leave("the shape is long")
    length = body.field(box, abi.TUPLE_SIZE, "i64")
    body.guard(body.text.op("icmp ne", length, ndim))
    items = (body.field(box, abi.TUPLE_ITEMS + 8 * i) for i in range(ndim))
    dims = tuple([body.long_of(item, body.leave_label()) for item in items])
    body.refine(0, Shape(value.box, dims))


def check_prim_value_info(body: Body) -> None:
    _, dtype, _ = body.static()
    value = body.operand(0)
    if dtype.is_bool:
        body.boolean(0)
    elif dtype.is_int:
        if isinstance(value, Boolean):
            body.leave("an int is wanted")
        number = body.integer(0)
        body.check_range(number, dtype)
    elif dtype.is_float:
        if not isinstance(value, Real):
            body.object_of(0, "float", "a float is wanted")


def check_tuple_info(body: Body) -> None:
    _, count, _ = body.static()
    value = body.operand(0)
    if isinstance(value, TupleOf):
        if len(value.items) != count:
            body.leave("the tuple has another length")
        return
    box = body.object_of(0, "tuple", "it is no tuple")
    length = body.field(box, abi.TUPLE_SIZE, "i64")
    body.guard(body.text.op("icmp ne", length, count))
    body.refine(0, TupleOf(value.box, (None,) * count))


CHECKS: tuple[Callable[[Body], None], ...] = (
    alloc_shape_heap,
    match_shape,
    match_prim_value,
    make_shape,
    make_prim_value,
    shape_expr,
    check_tensor_info,
    check_shape_info,
    check_prim_value_info,
    check_tuple_info,
)
"""What is done here, under the names of the builtins."""
