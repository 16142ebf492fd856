"""`dot_accumulate` in LLVM: the machine's instruction where it has one, else plain arithmetic.

A vector longer than the instruction's registers is cut into pieces of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...base import DataType
from ...base.llvm import Value, vector_of

if TYPE_CHECKING:
    from .expr import ExprEmitter


# (dtypes of a and b, unit): how one register is computed from (accumulator, a, b).
_Step = Callable[["ExprEmitter", int, Value, Value, Value], Value]


def emit_dot(
    g: ExprEmitter, dtypes: tuple[DataType, DataType, DataType], acc: Value, a: Value, b: Value
) -> Value:
    """The value of ``dot_accumulate(acc, a, b)``. 16-bit floats come as their bits (i16)."""
    of, of_a, of_b = dtypes
    instruction = _instruction(g, of.lanes, of_a, of_b)
    if instruction is None:
        return _plain(g, dtypes, acc, a, b)
    lanes, step = instruction
    group = of_a.lanes // of.lanes
    pieces = []
    for start in range(0, of.lanes, lanes):
        parts = (
            _piece(g, acc, of.lanes // lanes, range(start, start + lanes)),
            _piece(g, a, of.lanes // lanes, range(start * group, (start + lanes) * group)),
            _piece(g, b, of.lanes // lanes, range(start * group, (start + lanes) * group)),
        )
        pieces.append(step(g, lanes, *parts))
    while len(pieces) > 1:
        pairs = zip(pieces[::2], pieces[1::2])
        pieces = [g.text.shuffle(x, y, range(2 * lanes)) for x, y in pairs]
        lanes *= 2
    return pieces[0]


def _piece(g: ExprEmitter, value: Value, count: int, places: range) -> Value:
    """One of so many pieces of a vector."""
    return value if count == 1 else g.text.shuffle(value, None, places)


# -- instructions ----------------------------------------------------------------------------------


def _vpdpbusd(g: ExprEmitter, lanes: int, acc: Value, a: Value, b: Value) -> Value:
    # Operands of int32 lanes: the form that every version of LLVM reads.
    x, y = (g.text.cast("bitcast", v, acc.type) for v in (a, b))
    return g.text.extern(acc.type, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", acc, x, y)


def _of_pairs(name: str) -> _Step:
    """An instruction whose operands are vectors of bfloat."""

    def step(g: ExprEmitter, lanes: int, acc: Value, a: Value, b: Value) -> Value:
        x, y = (g.text.cast("bitcast", v, vector_of("bfloat", 2 * lanes)) for v in (a, b))
        return g.text.extern(acc.type, name.format(32 * lanes), acc, x, y)

    return step


_dpbf16ps = _of_pairs("llvm.x86.avx512bf16.dpbf16ps.{}")
_bfdot = _of_pairs("llvm.aarch64.neon.bfdot.v4f32.v8bf16")
_PMADDWD = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


def _pmaddwd(g: ExprEmitter, lanes: int, acc: Value, a: Value, b: Value) -> Value:
    # Where there is VNNI, LLVM makes one instruction (vpdpwssd) of this and the addition. The sum
    # of two products wraps only for four times -32768, as int32 does.
    return g.text.op("add", acc, g.text.extern(acc.type, f"llvm.x86.{_PMADDWD[lanes]}", a, b))


def _arm(name: str) -> _Step:
    full = f"llvm.aarch64.neon.{name}.v4i32.v16i8"
    return lambda g, lanes, acc, a, b: g.text.extern(acc.type, full, acc, a, b)


_X86, _ARM = (512, 256, 128), (128,)
# (unit, widths in bits that it may have, kinds of a and b or of b and a, how it is written)
_INSTRUCTIONS: tuple[tuple[str, tuple[int, ...], str, str, _Step], ...] = (
    ("vpdpbusd.{}", _X86, "uint8", "int8", _vpdpbusd),
    ("dpbf16ps.{}", _X86, "bfloat16", "bfloat16", _dpbf16ps),
    ("pmaddwd.{}", _X86, "int16", "int16", _pmaddwd),
    ("sdot", _ARM, "int8", "int8", _arm("sdot")),
    ("udot", _ARM, "uint8", "uint8", _arm("udot")),
    ("usdot", _ARM, "uint8", "int8", _arm("usdot")),
    ("bfdot", _ARM, "bfloat16", "bfloat16", _bfdot),
)


def _instruction(g: ExprEmitter, lanes: int, a: DataType, b: DataType) -> tuple[int, _Step] | None:
    """(sums that one instruction computes, how it is written), or None."""
    units, kinds = g.module.dot_units(), (a.element, b.element)
    if a.bits * a.lanes != 32 * lanes:
        return None
    for bits in _X86:
        whole, rest = divmod(lanes, bits // 32)
        if rest or whole & (whole - 1):
            continue
        for unit, widths, first, second, step in _INSTRUCTIONS:
            if bits in widths and unit.format(bits) in units:
                if kinds == (first, second):
                    return bits // 32, step
                if kinds == (second, first):
                    return bits // 32, lambda g, n, acc, x, y, step=step: step(g, n, acc, y, x)
    return None


# -- plain arithmetic ------------------------------------------------------------------------------


def _plain(
    g: ExprEmitter, dtypes: tuple[DataType, DataType, DataType], acc: Value, a: Value, b: Value
) -> Value:
    """One multiplication and one addition for each place in a group."""
    of, of_a, of_b = dtypes
    lanes, group = of.lanes, of_a.lanes // of.lanes
    for k in range(group):
        factors = []
        for dtype, value in ((of_a, a), (of_b, b)):
            if lanes == 1:
                part = g.text.lane(value, k)
            else:
                part = g.text.shuffle(value, None, range(k, dtype.lanes, group))
            one = dtype.with_lanes(lanes)
            wide = g.from_bits16(one, part) if dtype.is_float else g.cast(one, of, part)
            factors.append(wide)
        product = g.text.op("fmul contract" if of.is_float else "mul", *factors)
        acc = g.text.op("fadd contract" if of.is_float else "add", acc, product)
    return acc
