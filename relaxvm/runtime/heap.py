"""The shape heap: where a running function keeps the values of its symbolic dimensions.

A slot is written by `match_shape`, `match_prim_value` or `shape_expr` and read by `make_shape` and
`make_prim_value`. It remembers who wrote it (`origins`: a text, or the program that computed it),
so that a clash can name both sides. The texts of checks show the struct info they check (``main:
parameter x: Tensor((n, 64), float32)``), so a message can name the symbols in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NoReturn

from ..base import VMTypeError, VMValueError
from .check import Demand, got
from .constants import DimProgram
from .dims import evaluate, symbols_of
from .ndarray import NDArray, ShapeTuple

_MAX_SLOTS = 1 << 16
_STARTS = (": Tensor((", ": Shape((")
_PRIM = r": Prim\(\w+, value=(.*)\)$"
_MAX_SHOWN = 8
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class MatchCode(IntEnum):
    """What `match_shape` does with a size."""

    ASSERT_EQUAL_TO_IMM = 0
    STORE_TO_HEAP = 1
    NO_OP = 2
    ASSERT_EQUAL_TO_LOAD = 3
    ASSERT_NOT_NEGATIVE = 4


class MakeCode(IntEnum):
    """Where `make_shape` takes a size from."""

    USE_IMM = 0
    LOAD_SHAPE = 1


# Without the conversion of each size that ShapeTuple's constructor does.
_new_shape = tuple.__new__
_ASSERT_IMM, _STORE, _NO_OP, _ASSERT_LOAD, _NOT_NEGATIVE = map(int, MatchCode)


class ShapeHeap:
    """The values of symbolic dimensions during one call.

    `get` looks a slot up by name, for `dims.evaluate`.
    """

    __slots__ = ("origins", "values")

    def __init__(self, size: int) -> None:
        self.values: list[int | None] = [None] * size
        self.origins: list[str | DimProgram] = [""] * size

    def get(self, name: str) -> int | None:
        """The value of slot `name`, None if it has none yet."""
        return self.values[int(name)] if name.isdecimal() and int(name) < len(self.values) else None

    def __iter__(self) -> Any:
        return (str(i) for i, value in enumerate(self.values) if value is not None)


def alloc_of(size: object) -> Callable[[], ShapeHeap]:
    """An empty heap of `size` slots."""
    if type(size) is not int or not 0 <= size <= _MAX_SLOTS:
        raise VMValueError(f"alloc_shape_heap: wanted 0 to {_MAX_SLOTS} slots, got {size}")
    return lambda: ShapeHeap(size)


def _values(heap: object, what: str) -> list[int | None]:
    if type(heap) is not ShapeHeap:
        raise VMTypeError(f"{what}: wanted a shape heap, got {got(heap)}")
    return heap.values


def _pairs(flat: tuple[Any, ...], codes: type[IntEnum], what: str) -> tuple[tuple[int, int], ...]:
    pairs, known = tuple(zip(flat[::2], flat[1::2])), set(codes)
    for code, value in pairs:
        if type(code) is not int or type(value) is not int or code not in known:
            raise VMValueError(f"{what}: unknown code {code!r}, {value!r}")
        if code in (_STORE, _ASSERT_LOAD) and not 0 <= value < _MAX_SLOTS:
            raise VMValueError(f"{what}: slot {value} is out of range")
    if len(flat) % 2:
        raise VMValueError(f"{what}: wanted pairs of code and value")
    return pairs


def match_shape_of(context: object, *flat: Any) -> Callable[[Any, ShapeHeap], None]:
    """Compare the sizes of a tensor or shape with constants or slots, or store them into slots."""
    pairs = _pairs(flat, MatchCode, "match_shape")
    where, count = str(context), len(pairs)
    steps = tuple([(*pair, origin_of(where, axis)) for axis, pair in enumerate(pairs)])
    needs_heap = any(code in (_STORE, _ASSERT_LOAD) for code, _ in pairs)
    no_heap = None if needs_heap else ShapeHeap(0)

    def match(value: Any, heap: ShapeHeap) -> None:
        if type(value) is NDArray:
            shape: Any = value.array.shape
        elif isinstance(value, tuple):
            shape = value
        else:
            raise VMTypeError(f"{where}: wanted a tensor or a shape, got {got(value)}")
        if len(shape) != count:
            raise VMTypeError(f"{where}: wanted {count} dimensions, got {got(value)}")
        if type(heap) is not ShapeHeap:
            # Constant sizes need none, and the compiler passes void then.
            if no_heap is None:
                raise VMTypeError(f"{where}: wanted a shape heap, got {got(heap)}")
            heap = no_heap
        values = heap.values
        try:
            for (code, wanted, origin), size in zip(steps, shape):
                if code == _ASSERT_IMM:
                    if size != wanted:
                        _wrong_size(where, pairs, value, shape, heap)
                elif code == _STORE:
                    if type(size) is not int:
                        _store(heap, wanted, size, origin)
                    values[wanted] = size
                    heap.origins[wanted] = origin
                elif code == _ASSERT_LOAD and values[wanted] != size:
                    _load(heap, wanted, where)
                    _wrong_size(where, pairs, value, shape, heap)
                elif code == _NOT_NEGATIVE and not (type(size) is int and size >= 0):
                    _negative_size(where, shape, size)
        except IndexError:
            raise VMValueError(
                f"{where}: slot {wanted} is outside a shape heap of {len(values)}"
            ) from None

    if all(code == _ASSERT_IMM for code, _ in pairs):
        stating: Any = match
        stating.demand = Demand(ndim=count, shape=tuple([size for _, size in pairs]))
    return match


def _negative_size(where: str, shape: Any, size: Any) -> NoReturn:
    if type(size) is not int:
        raise VMTypeError(f"{where}: wanted sizes, got {got(shape)}")
    # The place in the source, if it is known, comes last.
    what, line, place = where.partition("\n")
    axis = tuple(shape).index(size)
    raise VMValueError(f"{what}: axis {axis} would have the negative size {size}{line}{place}")


def _wrong_size(
    where: str, pairs: tuple[tuple[int, int], ...], value: Any, shape: Any, heap: ShapeHeap
) -> NoReturn:
    for axis, ((code, wanted), size) in enumerate(zip(pairs, shape)):
        if code == _ASSERT_IMM and size != wanted:
            raise VMValueError(f"{where}: axis {axis}: wanted {wanted}, got {size} in {got(value)}")
        if code == _ASSERT_LOAD and heap.values[wanted] != size:
            text = wanted_text(heap, wanted, where, axis)
            raise VMValueError(f"{where}: axis {axis}: wanted {text}, got {size} in {got(value)}")
    raise VMValueError(f"{where}: the sizes do not match, got {got(value)}")


def _store(heap: ShapeHeap, slot: int, value: Any, origin: str | DimProgram) -> None:
    what = "shape_expr" if type(origin) is DimProgram else str(origin)
    values = _values(heap, what)
    if type(value) is not int or not _INT64_MIN <= value <= _INT64_MAX:
        raise VMValueError(f"{what}: wanted a 64-bit int, got {got(value)}")
    if slot >= len(values):
        raise VMValueError(f"{what}: slot {slot} is outside a shape heap of {len(values)}")
    values[slot] = value
    heap.origins[slot] = origin


def _load(heap: ShapeHeap, slot: int, what: str) -> int:
    values = _values(heap, what)
    value = values[slot] if 0 <= slot < len(values) else None
    if value is None:
        raise VMValueError(f"{what}: slot {slot} of the shape heap has no value yet")
    return value


def match_prim_of(context: object, code: Any, wanted: Any) -> Callable[[Any, ShapeHeap], None]:
    """Compare an int with a constant or a slot, or store it into a slot."""
    _pairs((code, wanted), MatchCode, "match_prim_value")
    if code == _NOT_NEGATIVE:
        raise VMValueError("match_prim_value: a scalar may be negative")
    where = str(context)

    def match(value: Any, heap: ShapeHeap) -> None:
        if code == _NO_OP:
            return
        if type(value) is bool:
            value = int(value)
        if type(value) is not int:
            raise VMTypeError(f"{where}: wanted an int, got {got(value)}")
        if code == _STORE:
            _store(heap, wanted, value, where)
            return
        expected = wanted if code == _ASSERT_IMM else _load(heap, wanted, where)
        if value != expected:
            loaded = code == _ASSERT_LOAD
            text = wanted_text(heap, wanted, where, None) if loaded else str(expected)
            raise VMValueError(f"{where}: wanted {text}, got {value}")

    return match


def make_shape_of(*flat: Any) -> Callable[[ShapeHeap], ShapeTuple]:
    """A shape of constants and slots."""
    pairs = _pairs(flat, MakeCode, "make_shape")

    def make(heap: ShapeHeap) -> ShapeTuple:
        values = _values(heap, "make_shape")
        try:
            extents = [values[value] if code else value for code, value in pairs]
        except IndexError:
            extents = [None]
        if None in extents:
            for code, value in pairs:
                if code:
                    _load(heap, value, "make_shape")
        return _new_shape(ShapeTuple, extents)

    return make


def make_prim_of(code: Any, value: Any) -> Callable[[ShapeHeap], int]:
    """A constant or the value of a slot."""
    _pairs((code, value), MakeCode, "make_prim_value")
    if code == MakeCode.USE_IMM:
        return lambda heap: value
    return lambda heap: _load(heap, value, "make_prim_value")


def shape_expr_of(slot: Any, program: Any) -> Callable[[ShapeHeap], None]:
    """Evaluate a postfix program, whose symbols ``$0`` are slots, into a slot."""
    if type(program) is not DimProgram:
        raise VMTypeError(f"shape_expr: wanted a dimension program, got {got(program)}")
    if type(slot) is not int or not 0 <= slot < _MAX_SLOTS:
        raise VMValueError(f"shape_expr: slot {slot} is out of range")
    dim = program.dim

    def compute(heap: ShapeHeap) -> None:
        _values(heap, "shape_expr")
        value = evaluate(dim, heap)
        _store(heap, slot, int(value) if type(value) is bool else value, program)

    return compute


# Where the value of a slot came from, in words


def dimension_text(context: object, axis: int) -> str | None:
    """The dimension (or scalar) that a check's text shows at `axis`, such as ``2 * n``."""
    if not isinstance(context, str):
        return None
    begin = max((context.rfind(start) + len(start), start in context) for start in _STARTS)
    if not begin[1]:
        prim = re.search(_PRIM, context)
        return prim.group(1) if prim is not None and axis == 0 else None
    depth, part, start_of_part = 1, 0, begin[0]
    for i in range(start_of_part, len(context)):
        letter = context[i]
        depth += (letter == "(") - (letter == ")")
        if depth == 0 or (letter == "," and depth == 1):
            if part == axis:
                return context[start_of_part:i].strip() or None
            part, start_of_part = part + 1, i + 1
        if depth == 0:
            break
    return None


def origin_of(context: str, axis: int | None) -> str:
    """What a slot of the shape heap remembers: that it got its value from `axis` (of a scalar:
    None) of what `context` says.
    """
    return context if axis is None else f"axis {axis} of {context}"


def wanted_text(heap: Any, slot: int, context: str, axis: int | None) -> str:
    """For a message about a check with the text `context`: what is wanted, with its name, and where
    that value came from, if that is known.
    """
    name = dimension_text(context, axis or 0)
    value = heap.values[slot]
    wanted = str(value) if name is None or name == str(value) else f"{name} = {value}"
    origin = heap.origins[slot]
    function = context.partition(": ")[0] + ": "
    if type(origin) is not DimProgram:
        return f"{wanted} (from {_within(function, origin)})" if origin else wanted
    sources = [
        f"{_label(heap, leaf)} from {_within(function, heap.origins[leaf])}"
        for leaf in _leaves(heap, origin)
    ]
    return f"{wanted} ({', '.join(sources) or 'computed'})"


def _within(function: str, origin: str) -> str:
    """`origin` without the name of the function, which the message has already."""
    return origin.replace(f"of {function}", "of ", 1).removeprefix(function)


def _label(heap: Any, slot: int) -> str:
    origin = heap.origins[slot]
    axis = re.match(r"axis (\d+) of ", origin)
    name = dimension_text(origin, 0 if axis is None else int(axis.group(1)))
    return f"{name or 'a value'} = {heap.values[slot]}"


def _leaves(heap: Any, program: DimProgram) -> list[int]:
    """The slots that were not computed from others, of those `program` needs."""
    leaves: dict[int, None] = {}
    seen: set[int] = set()
    todo = [program]
    while todo and len(leaves) < _MAX_SHOWN:
        for symbol in symbols_of(todo.pop().dim):
            slot = int(symbol) if symbol.isdecimal() else len(heap.values)
            if slot >= len(heap.values) or slot in seen:
                continue
            seen.add(slot)
            origin = heap.origins[slot]
            if type(origin) is DimProgram:
                todo.append(origin)
            elif origin:
                leaves[slot] = None
    return list(leaves)[:_MAX_SHOWN]
