"""`dot_accumulate` in LLVM: the machine's instruction where it has one, else plain arithmetic.

A vector longer than the instruction's registers is cut into pieces of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base import DataType, NamedTuple
from ...base.llvm import Value, parts_of, vector_of
from .dot_units import dot_units

if TYPE_CHECKING:
    from .expr import ExprEmitter


def emit_dot(
    g: ExprEmitter, dtypes: tuple[DataType, DataType, DataType], acc: Value, a: Value, b: Value
) -> Value:
    """The value of ``dot_accumulate(acc, a, b)``. 16-bit floats come as their bits (i16)."""
    of, of_a, of_b = dtypes
    known = _instruction(g, of.lanes, of_a, of_b)
    if known is None:
        return _plain(g, dtypes, acc, a, b)
    lanes, instruction, swaps = known
    group = of_a.lanes // of.lanes
    if swaps:
        a, b = b, a
    pieces = []
    for start in range(0, of.lanes, lanes):
        parts = (
            _piece(g, acc, of.lanes // lanes, range(start, start + lanes)),
            _piece(g, a, of.lanes // lanes, range(start * group, (start + lanes) * group)),
            _piece(g, b, of.lanes // lanes, range(start * group, (start + lanes) * group)),
        )
        pieces.append(_step(g, instruction, *parts))
    while len(pieces) > 1:
        pairs = zip(pieces[::2], pieces[1::2])
        pieces = [g.text.shuffle(x, y, range(2 * lanes)) for x, y in pairs]
        lanes *= 2
    return pieces[0]


def _piece(g: ExprEmitter, value: Value, count: int, places: range) -> Value:
    """One of so many pieces of a vector."""
    return value if count == 1 else g.text.shuffle(value, None, places)


# -- instructions ----------------------------------------------------------------------------------


class _Instruction(NamedTuple):
    """One that adds sums of products to a register.

    unit    what `dot_units` calls it          widths     in bits, that it may have
    kinds   of a and b, or of b and a          intrinsic  what LLVM calls it
    of      the elements that its operands have there; "": those of a and b
    """

    unit: str
    widths: tuple[int, ...]
    kinds: tuple[str, str]
    intrinsic: str
    of: str = ""


_X86, _ARM = (512, 256, 128), (128,)
_BYTES, _SHORTS, _BF16 = ("uint8", "int8"), ("int16", "int16"), ("bfloat16", "bfloat16")
_NEON = "llvm.aarch64.neon"
_INSTRUCTIONS = (
    # Operands of int32 lanes: the form that every version of LLVM reads.
    _Instruction("vpdpbusd.{}", _X86, _BYTES, "llvm.x86.avx512.vpdpbusd.{}", "i32"),
    _Instruction("dpbf16ps.{}", _X86, _BF16, "llvm.x86.avx512bf16.dpbf16ps.{}", "bfloat"),
    _Instruction("pmaddwd.512", (512,), _SHORTS, "llvm.x86.avx512.pmaddw.d.512"),
    _Instruction("pmaddwd.256", (256,), _SHORTS, "llvm.x86.avx2.pmadd.wd"),
    _Instruction("pmaddwd.128", (128,), _SHORTS, "llvm.x86.sse2.pmadd.wd"),
    _Instruction("sdot", _ARM, ("int8", "int8"), f"{_NEON}.sdot.v4i32.v16i8"),
    _Instruction("udot", _ARM, ("uint8", "uint8"), f"{_NEON}.udot.v4i32.v16i8"),
    _Instruction("usdot", _ARM, _BYTES, f"{_NEON}.usdot.v4i32.v16i8"),
    _Instruction("bfdot", _ARM, _BF16, f"{_NEON}.bfdot.v4f32.v8bf16", "bfloat"),
)


def _instruction(
    g: ExprEmitter, lanes: int, a: DataType, b: DataType
) -> tuple[int, _Instruction, bool] | None:
    """(sums that it computes, an instruction, whether it wants b before a), or None."""
    units, kinds = dot_units(g.module.machine), (a.element, b.element)
    if a.bits * a.lanes != 32 * lanes:
        return None
    for bits in _X86:
        whole, rest = divmod(lanes, bits // 32)
        if rest or whole & (whole - 1):
            continue
        for row in _INSTRUCTIONS:
            if bits in row.widths and row.unit.format(bits) in units:
                if row.kinds in (kinds, kinds[::-1]):
                    return bits // 32, row, row.kinds != kinds
    return None


def _step(g: ExprEmitter, row: _Instruction, acc: Value, *sides: Value) -> Value:
    """A register, from (accumulator, a, b)."""
    bits = 32 * parts_of(acc.type)[1]
    if row.of:
        of = vector_of(row.of, bits // (16 if row.of == "bfloat" else 32))
        sides = tuple(g.text.cast("bitcast", side, of) for side in sides)
    if row.kinds == _SHORTS:
        # Where there is VNNI, LLVM makes one instruction (vpdpwssd) of this and the addition. The
        # sum of two products wraps only for four times -32768, as int32 does.
        return g.text.op("add", acc, g.text.extern(acc.type, row.intrinsic, *sides))
    return g.text.extern(acc.type, row.intrinsic.format(bits), acc, *sides)


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
            wide = g.from_bits(one, part) if dtype.is_float else g.cast(one, of, part)
            factors.append(wide)
        product = g.text.op("fmul contract" if of.is_float else "mul", *factors)
        acc = g.text.op("fadd contract" if of.is_float else "add", acc, product)
    return acc
