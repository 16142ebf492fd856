"""Scalar types: one interned `DataType` per spelling.

A `DataType` is a `str`, so `x.dtype == "float32"` and dictionary look-ups by name work as TVM users
expect; equal means identical, so passes may compare with `is`.
"""

from __future__ import annotations

import enum
import functools
import re
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from .errors import DTypeError

DataTypeKind: TypeAlias = Literal[
    "int", "uint", "float", "bfloat", "bool", "handle", "void", "string",
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
]  # fmt: skip
"""What scalar types there are, widths aside."""

DTypeLike: TypeAlias = "str | type | np.dtype[Any]"
"""What `dtype` takes."""

_PATTERN = re.compile(r"(int|uint|float|bfloat)(\d+)(?:x(\d+))?")
_SMALL = re.compile(r"(float[48]_e\d\w*?)(?:x(\d+))?")
# Name: bits of the mantissa, bias of the exponent. Of eight bits the first is the sign, but in
# e8m0fnu. Those that end with "fn" have no infinity; with "uz" no negative zero either, whose bits
# are the NaN.
FLOAT8_TYPES = {
    "float8_e3m4": (4, 3),
    "float8_e4m3": (3, 7),
    "float8_e4m3b11fnuz": (3, 11),
    "float8_e4m3fn": (3, 7),
    "float8_e4m3fnuz": (3, 8),
    "float8_e5m2": (2, 15),
    "float8_e5m2fnuz": (2, 16),
    "float8_e8m0fnu": (0, 127),
}
# What is stored in a byte each, and cast, but not computed with; the four bits of float4 have
# neither infinity nor NaN.
SMALL_FLOATS = {**FLOAT8_TYPES, "float4_e2m1fn": (1, 1)}
# Names of programs for what has no width of its own.
_SHORT = {"int": "int32", "uint": "uint32", "float": "float32", "bfloat": "bfloat16"}
_WIDTHS = {
    "int": (2, 4, 8, 16, 32, 64),
    "uint": (1, 2, 4, 8, 16, 32, 64),
    "float": (16, 32, 64),
    "bfloat": (16,),
}
# Kinds that are their own names.
_BITS = {"bool": 1, "handle": 64, "string": 64, "void": 0}
_MAX_LANES = 65536


class DataTypeCode(enum.IntEnum):
    """The kinds of scalar types by number, as DLPack counts them."""

    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    BFLOAT = 4
    BOOL = 6
    FLOAT8_E3M4 = 7
    FLOAT8_E4M3 = 8
    FLOAT8_E4M3B11FNUZ = 9
    FLOAT8_E4M3FN = 10
    FLOAT8_E4M3FNUZ = 11
    FLOAT8_E5M2 = 12
    FLOAT8_E5M2FNUZ = 13
    FLOAT8_E8M0FNU = 14
    FLOAT4_E2M1FN = 17


class DataType(str):
    """A scalar type such as ``"float32"``, or a vector of `lanes` of them (``"float32x4"``).

    kind   "int", "uint", "float", "bfloat", "bool", "handle", "void", "string", or the name of a
           floating type of 8 or 4 bits
    bits   bits of one lane (bool is 1, handle and string, a reference, 64, void 0)
    lanes  1 for a scalar

    is_float  whether it is a floating type, bfloat16 and those of 4 and 8 bits included
    is_int    whether it is a signed or unsigned integer type (bool is not)
    is_handle whether values are addresses
    is_small_float  whether it is a floating type of 4 or 8 bits: stored and cast, no more
    is_byte   whether numpy lacks it, and an array of it holds a byte for each element: of small
              floats, and of integers of 2 and 4 bits, whose other bits are 0 (and not looked at)
    """

    __slots__ = (
        *("kind", "bits", "lanes", "element", "itemsize"),
        *("is_float", "is_int", "is_bool", "is_handle", "is_byte", "is_small_float"),
    )

    kind: DataTypeKind
    bits: int
    lanes: int
    element: DataType
    itemsize: int
    is_float: bool
    is_int: bool
    is_bool: bool
    is_handle: bool
    is_byte: bool
    is_small_float: bool
    _table: dict[str, DataType] = {}

    def __new__(cls, text: object) -> DataType:
        known = cls._table.get(text) if type(text) is str or type(text) is cls else None
        return known if known is not None else cls._make(text)

    @classmethod
    def _make(cls, text: object) -> DataType:
        if isinstance(text, np.dtype) or (isinstance(text, type) and issubclass(text, np.generic)):
            text = np.dtype(text).name
        elif isinstance(text, type) and text in (bool, int, float):
            text = {bool: "bool", int: "int64", float: "float64"}[text]
        if not isinstance(text, str):
            raise DTypeError(
                f"wanted the name of a dtype such as 'float32', got {type(text).__name__}: {text!r}"
            )
        name = str(text)
        if name in _SHORT:
            short = cls._table[name] = cls(_SHORT[name])
            return short
        kind, bits, lanes = cls._parse(name)
        canonical = kind if kind in _BITS or kind in SMALL_FLOATS else f"{kind}{bits}"
        element = cls._table.get(canonical)
        if element is None:
            element = cls._intern(canonical, kind, bits, 1)
        if lanes == 1:
            cls._table[name] = element
            return element
        full = f"{canonical}x{lanes}"
        vector = cls._table.get(full)
        if vector is None:
            vector = cls._intern(full, kind, bits, lanes)
        cls._table[name] = vector
        return vector

    @classmethod
    def _intern(cls, name: str, kind: str, bits: int, lanes: int) -> DataType:
        dtype = str.__new__(cls, name)
        dtype.kind, dtype.bits, dtype.lanes = cast("DataTypeKind", kind), bits, lanes
        dtype.itemsize = (bits + 7) // 8 * lanes
        dtype.is_float = kind[0] == "f" or kind == "bfloat"
        dtype.is_int = kind in ("int", "uint")
        dtype.is_bool, dtype.is_handle = kind == "bool", kind == "handle"
        dtype.is_small_float = bits <= 8 and kind[0] == "f"
        dtype.is_byte = dtype.is_small_float or bits in (2, 4)
        dtype.element = dtype if lanes == 1 else cls(name.rsplit("x", 1)[0])
        return cls._table.setdefault(name, dtype)

    @staticmethod
    def _parse(name: str) -> tuple[str, int, int]:
        head, _, tail = name.partition("x")
        if head in _BITS or name == "":
            lanes = int(tail) if tail.isdigit() else (1 if not tail else 0)
            if 1 <= lanes <= _MAX_LANES and (head == "bool" or lanes == 1):
                return (head or "void", _BITS[head or "void"], lanes)
        match = _PATTERN.fullmatch(name)
        if match:
            kind, bits, lanes = match[1], int(match[2]), int(match[3] or 1)
            if bits in _WIDTHS[kind] and 1 <= lanes <= _MAX_LANES:
                return ("bool", 1, lanes) if (kind, bits) == ("uint", 1) else (kind, bits, lanes)
        match = _SMALL.fullmatch(name)
        if match and match[1] in SMALL_FLOATS and 1 <= int(match[2] or 1) <= _MAX_LANES:
            return match[1], int(match[1][5]), int(match[2] or 1)
        raise DTypeError(
            f"unknown dtype {name!r}: wanted bool, int8..int64, uint8..uint64, float16, bfloat16, "
            "float32, float64, int4 and its kin, float8_e4m3fn and its kin, "
            "string, handle or void, with an optional lane count such as float32x4"
        )

    def with_lanes(self, lanes: int) -> DataType:
        """The vector of `lanes` elements of this type (the scalar itself for 1)."""
        if lanes == 1:
            return self.element
        name = f"{str.__str__(self.element)}x{lanes}"
        return self._table.get(name) or DataType(name)

    @property
    def is_float8(self) -> bool:
        """Whether this is a floating type of 8 bits: stored and cast, but not computed with."""
        return self.bits == 8 and self.kind[0] == "f"

    @property
    def is_bits(self) -> bool:
        """Whether numpy lacks this type, and an array of it holds bits."""
        return self.kind == "bfloat" or self.is_byte

    @property
    def is_string(self) -> bool:
        """Whether values are text: moved and compared, but by nothing native."""
        return self.kind == "string"

    @property
    def is_bfloat(self) -> bool:
        return self.kind == "bfloat"

    @property
    def is_signed(self) -> bool:
        return self.kind == "int" or (self.is_float and self.kind != "float8_e8m0fnu")

    @property
    def type_code(self) -> DataTypeCode:
        """The number of `kind`; void is a handle of no bits, as in TVM. Raises DTypeError for
        strings, which no other library takes.
        """
        if self.is_string:
            raise DTypeError("string: DLPack has no such type")
        return DataTypeCode["HANDLE" if self.kind == "void" else self.kind.upper()]

    @property
    def min_value(self) -> int | float:
        """The least finite value."""
        if self.kind == "int":
            return -(1 << (self.bits - 1))
        if self.kind in ("uint", "bool"):
            return 0
        return -self.max_value if self.is_signed else float(_small_values(self.kind)[0])

    @property
    def max_value(self) -> int | float:
        """The greatest finite value."""
        if self.kind == "int":
            return int((1 << (self.bits - 1)) - 1)
        if self.kind in ("uint", "bool"):
            return int((1 << self.bits) - 1)
        if self.kind == "bfloat":
            return 3.3895313892515355e38
        if self.is_small_float:
            return float(_small_values(self.kind)[-1])
        return float(np.finfo(to_numpy_dtype(self)).max)

    def __reduce__(self) -> tuple[type[DataType], tuple[str]]:
        return (DataType, (str.__str__(self),))


def dtype(text: object) -> DataType:
    """The interned `DataType` for a name, a numpy dtype or one of Python's `bool`, `int`, `float`.

    Raises TypeError if `text` is none of these, ValueError if the name is unknown.
    """
    return text if type(text) is DataType else DataType(text)


def dtype_of_code(code: int, bits: int, lanes: int = 1) -> DataType:
    """The type that DLPack describes so. Raises ValueError if there is none."""
    kind = DataTypeCode(code).name.lower()
    # These have their bits in their name.
    whole = kind == "bool" or kind in SMALL_FLOATS
    known = DataType(f"{kind}x{lanes}" if whole else f"{kind}{bits}x{lanes}")
    if whole and bits != known.bits and not (known.is_bool and bits == 8):
        raise ValueError(f"{kind} of {bits} bits")
    return known


def to_numpy_dtype(text: str) -> np.dtype:
    """The numpy dtype that stores one element.

    bfloat16 and what has 8 bits or less and numpy lacks are stored as their bits in uint16 and in
    raw bytes. Nothing else is stored as the latter, so that native code takes it for nothing else.
    Strings are Python objects.
    """
    element = DataType(text).element
    if element.is_string:
        return np.dtype(object)
    if element.is_bits:
        return np.dtype("uint16" if element.kind == "bfloat" else "V1")
    if element.kind in ("handle", "void"):
        raise DTypeError(f"dtype {element} has no array storage")
    return np.dtype(str(element))


def float32_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round float32 values to bfloat16 (to nearest, ties to even), as uint16 bits. NaN stays NaN
    (quiet).
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (
        (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    ).astype(np.uint16)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    quiet = ((bits >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    return np.asarray(np.where(is_nan, quiet, rounded), dtype=np.uint16)


def bfloat16_to_float32(bits: np.ndarray) -> np.ndarray:
    """The float32 values of bfloat16 bits given as uint16. Exact."""
    return (np.asarray(bits, dtype=np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def bits_to_floats(bits: np.ndarray, dtype: DataType) -> np.ndarray:
    """The float32 values of the bits of `dtype`: bfloat16, or a small floating type. Exact."""
    if dtype.kind == "bfloat":
        return bfloat16_to_float32(np.asarray(bits).view(np.uint16))
    return np.asarray(_small_table(dtype.kind)[np.asarray(bits).view(np.uint8)])


def bits_to_values(bits: np.ndarray, dtype: DataType) -> np.ndarray:
    """What the bits of a type that numpy lacks stand for: float32, or int8 or uint8. Exact."""
    if not dtype.is_int:
        return bits_to_floats(bits, dtype)
    codes = np.asarray(bits).view(np.uint8)
    if dtype.kind == "uint":
        return codes & np.uint8(dtype.max_value)
    unused = np.uint8(8 - dtype.bits)
    return (codes << unused).view(np.int8) >> unused.view(np.int8)


def values_to_bits(values: np.ndarray, dtype: DataType) -> np.ndarray:
    """The bits of a type that numpy lacks: floats are rounded (see `floats_to_bits`), integers
    wrap.
    """
    if not dtype.is_int:
        return floats_to_bits(values, dtype)
    mask = np.uint8((1 << dtype.bits) - 1)
    return np.asarray(np.asarray(values).astype(np.int64).astype(np.uint8) & mask).view("V1")


def floats_to_bits(values: np.ndarray, dtype: DataType) -> np.ndarray:
    """The bits of `dtype` nearest to floats (to nearest, ties to even, powers of two upwards).

    What is too large becomes infinite, or NaN in types without infinity, as does what is not
    positive in float8_e8m0fnu. float4_e2m1fn has neither: its greatest value, and -0.0 for NaN.
    """
    if dtype.kind == "bfloat":
        return float32_to_bfloat16(values)
    name = dtype.kind
    finite = _small_values(name)
    values = np.asarray(values, dtype=np.float64)
    size = np.abs(values)
    # Half way between neighbours; above the last lies what would come next.
    middles = (finite + np.append(finite[1:], 2 * finite[-1] - finite[-2])) / 2
    if name == "float8_e8m0fnu":
        middles[-1] = 1.5 * finite[-1]
    code = np.searchsorted(middles, size)
    tie = middles[np.minimum(code, len(finite) - 1)] == size
    code = code + (tie & ((code % 2 == 1) | (name == "float8_e8m0fnu")))
    overflow = code >= len(finite)
    sign = np.where(np.signbit(values) & ~np.isnan(values), 128, 0)
    if name == "float8_e8m0fnu":
        code = np.where(np.isnan(size) | overflow | (values <= 0), 255, code)
    elif name.endswith("uz"):
        code = np.where(np.isnan(size) | overflow, 128, code + np.where(code > 0, sign, 0))
    elif dtype.bits == 4:
        code = np.where(np.isnan(size), 8, np.minimum(code, 7) + sign // 16)
    else:
        top = 127 if name.endswith("fn") else len(finite)
        nan = 127 if name.endswith("fn") else top + (1 << FLOAT8_TYPES[name][0] >> 1)
        code = np.where(np.isnan(size), nan, np.where(overflow, top, code)) + sign
    return np.asarray(code, dtype=np.uint8).view("V1")


@functools.cache
def _small_table(name: str) -> np.ndarray:
    """The value of each of the 256 codes, of which four bits may count."""
    mantissa, bias = SMALL_FLOATS[name]
    codes = np.arange(256)
    if name[5] == "4":
        codes = (codes & 8) * 16 | codes & 7
    if name == "float8_e8m0fnu":
        values = np.ldexp(1.0, codes - bias)
        values[255] = np.nan
        return values.astype(np.float32)
    low = codes & 127
    exponent, fraction = low >> mantissa, low & ((1 << mantissa) - 1)
    hidden = np.where(exponent > 0, 1 << mantissa, 0)
    values = np.ldexp(
        (hidden + fraction).astype(np.float64), np.maximum(exponent, 1) - bias - mantissa
    )
    if name.endswith("uz") or name[5] == "4":
        pass
    elif name.endswith("fn"):
        values[low == 127] = np.nan
    else:
        top = 127 >> mantissa
        values[(exponent == top) & (fraction == 0)] = np.inf
        values[(exponent == top) & (fraction > 0)] = np.nan
    values[codes >= 128] *= -1
    if name.endswith("uz"):
        values[128] = np.nan
    return values.astype(np.float32)


@functools.cache
def _small_values(name: str) -> np.ndarray:
    """The finite values that are not negative, in the order of their codes."""
    table = _small_table(name).astype(np.float64)
    table = table if name == "float8_e8m0fnu" else table[: 128 if name[5] == "8" else 8]
    return np.asarray(table[np.isfinite(table)])


def promote(a: DataType, b: DataType) -> DataType:
    """The common type of two scalar operands, as TVM matches them.

    Floats win over integers, wider over narrower, and among equal widths unsigned over signed;
    bool yields to all.
    float16 with bfloat16 gives float32. Raises DTypeError for handles and for vectors of different
    lanes.
    """
    if a is b:
        return a
    lanes = max(a.lanes, b.lanes)
    if a.lanes != b.lanes and min(a.lanes, b.lanes) != 1:
        raise DTypeError(f"cannot combine vectors of {a.lanes} and {b.lanes} lanes")
    x, y = a.element, b.element
    if x is y:
        return x.with_lanes(lanes)
    if not {x.kind, y.kind}.isdisjoint(("handle", "void", "string")):
        raise DTypeError(f"cannot combine {a} with {b}")
    if x.is_float or y.is_float:
        if x.is_float and y.is_float:
            best = x if x.bits > y.bits else y if y.bits > x.bits else DataType("float32")
        else:
            best = x if x.is_float else y
    elif x.is_bool or y.is_bool:
        best = y if x.is_bool else x
    elif x.bits != y.bits:
        best = x if x.bits > y.bits else y
    else:
        best = x if x.kind == "uint" else y
    return best.with_lanes(lanes)
