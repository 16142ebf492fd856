"""`dot_accumulate` in LLVM: the machine's instruction where it has one, else plain arithmetic.

A vector longer than the instruction's registers is cut into pieces of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...base import DataType
from .text import value_type, vector_of

if TYPE_CHECKING:
    from .expr import ExprEmitter


# (dtypes of a and b, unit): how one register is computed from (accumulator, a, b).
_Step = Callable[["ExprEmitter", int, str, str, str], str]


def emit_dot(
    g: ExprEmitter, dtypes: tuple[DataType, DataType, DataType], acc: str, a: str, b: str
) -> str:
    """The value of ``dot_accumulate(acc, a, b)``. 16-bit floats come as their bits (i16)."""
    of, of_a, of_b = dtypes
    instruction = _instruction(g, of.lanes, of_a, of_b)
    if instruction is None:
        return _plain(g, dtypes, acc, a, b)
    lanes, step = instruction
    group = of_a.lanes // of.lanes
    element, narrow = ("float" if of.is_float else "i32"), f"i{of_a.bits}"
    pieces = []
    for start in range(0, of.lanes, lanes):
        parts = (
            _piece(g, acc, element, of.lanes, start, lanes),
            _piece(g, a, narrow, of_a.lanes, start * group, lanes * group),
            _piece(g, b, narrow, of_b.lanes, start * group, lanes * group),
        )
        pieces.append(step(g, lanes, *parts))
    return _joined(g, pieces, element, lanes)


# -- vectors in pieces -----------------------------------------------------------------------------


def _piece(g: ExprEmitter, value: str, element: str, lanes: int, start: int, count: int) -> str:
    return (
        value if lanes == count else _picked(g, value, element, lanes, range(start, start + count))
    )


def _picked(g: ExprEmitter, value: str, element: str, lanes: int, places: range) -> str:
    of = vector_of(element, lanes)
    mask = ", ".join(f"i32 {i}" for i in places)
    return g.text.op(f"shufflevector {of} {value}, {of} poison, <{len(places)} x i32> <{mask}>")


def _joined(g: ExprEmitter, pieces: list[str], element: str, lanes: int) -> str:
    while len(pieces) > 1:
        mask = ", ".join(f"i32 {i}" for i in range(2 * lanes))
        of = vector_of(element, lanes)
        pieces = [
            g.text.op(f"shufflevector {of} {x}, {of} {y}, <{2 * lanes} x i32> <{mask}>")
            for x, y in zip(pieces[::2], pieces[1::2])
        ]
        lanes *= 2
    return pieces[0]


# -- instructions ----------------------------------------------------------------------------------


def _instruction(g: ExprEmitter, lanes: int, a: DataType, b: DataType) -> tuple[int, _Step] | None:
    """(sums that one instruction computes, how it is written), or None."""
    units = g.module.dot_units()
    group = a.lanes // lanes
    kinds = (a.element, b.element)
    for bits in (512, 256, 128):
        count = bits // 32
        whole = lanes // count
        if lanes % count or whole & (whole - 1):
            continue
        if group == 4 and f"vpdpbusd.{bits}" in units and sorted(map(str, kinds)) == _MIXED:
            return count, _vpdpbusd if kinds[0] == "uint8" else _swapped(_vpdpbusd)
        if group == 2 and f"dpbf16ps.{bits}" in units and kinds[0] == "bfloat16":
            return count, _dpbf16ps
        if group == 2 and f"pmaddwd.{bits}" in units and kinds == ("int16", "int16"):
            return count, _pmaddwd
    if lanes % 4 or (lanes // 4) & (lanes // 4 - 1):
        return None
    if group == 4 and kinds[0] == kinds[1] and str(kinds[0]) in ("int8", "uint8"):
        name = "sdot" if kinds[0] == "int8" else "udot"
        return (4, _arm(name)) if name in units else None
    if group == 4 and "usdot" in units and sorted(map(str, kinds)) == _MIXED:
        return 4, _arm("usdot") if kinds[0] == "uint8" else _swapped(_arm("usdot"))
    if group == 2 and "bfdot" in units and kinds[0] == "bfloat16":
        return 4, _bfdot
    return None


_MIXED = ["int8", "uint8"]


def _swapped(step: _Step) -> _Step:
    return lambda g, lanes, acc, a, b: step(g, lanes, acc, b, a)


def _as(g: ExprEmitter, value: str, narrow: str, count: int, to: str) -> str:
    return g.convert("bitcast", vector_of(narrow, count), value, to)


def _vpdpbusd(g: ExprEmitter, lanes: int, acc: str, a: str, b: str) -> str:
    # Operands of int32 lanes: the form that every version of LLVM reads.
    of = vector_of("i32", lanes)
    x, y = (_as(g, v, "i8", 4 * lanes, of) for v in (a, b))
    return g.call(of, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", (of, acc), (of, x), (of, y))


def _dpbf16ps(g: ExprEmitter, lanes: int, acc: str, a: str, b: str) -> str:
    of, pairs = vector_of("float", lanes), vector_of("bfloat", 2 * lanes)
    x, y = (_as(g, v, "i16", 2 * lanes, pairs) for v in (a, b))
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
    return g.call(of, name, (of, acc), (pairs, x), (pairs, y))


_PMADDWD = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


def _pmaddwd(g: ExprEmitter, lanes: int, acc: str, a: str, b: str) -> str:
    # Where there is VNNI, LLVM makes one instruction (vpdpwssd) of this and the addition. The sum
    # of two products wraps only for four times -32768, as int32 does.
    of, pairs = vector_of("i32", lanes), vector_of("i16", 2 * lanes)
    sums = g.call(of, f"llvm.x86.{_PMADDWD[lanes]}", (pairs, a), (pairs, b))
    return g.op("add", of, acc, sums)


def _arm(name: str) -> _Step:
    def step(g: ExprEmitter, lanes: int, acc: str, a: str, b: str) -> str:
        of, bytes_ = vector_of("i32", lanes), vector_of("i8", 4 * lanes)
        full = f"llvm.aarch64.neon.{name}.v4i32.v16i8"
        return g.call(of, full, (of, acc), (bytes_, a), (bytes_, b))

    return step


def _bfdot(g: ExprEmitter, lanes: int, acc: str, a: str, b: str) -> str:
    of, pairs = vector_of("float", lanes), vector_of("bfloat", 2 * lanes)
    x, y = (_as(g, v, "i16", 2 * lanes, pairs) for v in (a, b))
    return g.call(of, "llvm.aarch64.neon.bfdot.v4f32.v8bf16", (of, acc), (pairs, x), (pairs, y))


# -- plain arithmetic ------------------------------------------------------------------------------


def _plain(
    g: ExprEmitter, dtypes: tuple[DataType, DataType, DataType], acc: str, a: str, b: str
) -> str:
    """One multiplication and one addition for each place in a group."""
    of, of_a, of_b = dtypes
    lanes, group, result = of.lanes, of_a.lanes // of.lanes, value_type(of)
    for k in range(group):
        factors = []
        for dtype, value in ((of_a, a), (of_b, b)):
            narrow = f"i{dtype.bits}"
            if lanes == 1:
                part = g.lane(value, narrow, dtype.lanes, k)
            else:
                part = _picked(g, value, narrow, dtype.lanes, range(k, dtype.lanes, group))
            one = dtype.with_lanes(lanes)
            wide = g.from_bits16(one, part) if dtype.is_float else g.cast(one, of, part)
            factors.append(wide)
        product = g.op("fmul contract" if of.is_float else "mul", result, *factors)
        acc = g.op("fadd contract" if of.is_float else "add", result, acc, product)
    return acc
