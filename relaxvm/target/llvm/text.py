"""How dtypes, their constants and names are written in LLVM IR."""

from __future__ import annotations

import functools
import re

from ...base import CodegenError, DataType
from ...base.llvm import Function, vector_of
from ...ir import IntImm, PrimExpr

_VALUE = {"bool": "i1", "handle": "ptr"}


@functools.cache
def scalar_type(dtype: DataType) -> str:
    """The register type of one element."""
    if dtype.is_int:
        return f"i{dtype.bits}"
    if dtype.is_float:
        # Those of 4, 8 and 16 bits live there as the float32 that they are exactly.
        return "double" if dtype.bits == 64 else "float"
    if dtype.kind not in _VALUE:
        raise CodegenError(f"a value of dtype {dtype} has no register type")
    return _VALUE[dtype.kind]


@functools.cache
def value_type(dtype: DataType) -> str:
    """The register type of a scalar or vector."""
    return vector_of(scalar_type(dtype), dtype.lanes)


@functools.cache
def storage_type(dtype: DataType, native_half: bool) -> str:
    """The type of one element in memory."""
    if dtype.is_bool or dtype.is_byte:
        return "i8"
    if dtype.kind == "bfloat":
        return "i16"
    if dtype.kind == "float" and dtype.bits == 16:
        return "half" if native_half else "i16"
    return scalar_type(dtype)


@functools.cache
def is_kept_as_is(dtype: DataType) -> bool:
    """Whether memory holds what a register does."""
    return storage_type(dtype, True) == scalar_type(dtype)


def constant_size(extents: tuple[PrimExpr, ...], itemsize: int) -> int | None:
    """The bytes of so many elements; None where only the run knows."""
    size = itemsize
    for extent in extents:
        if not isinstance(extent, IntImm):
            return None
        size *= max(extent.value, 0)
    return size


_OTHERS = re.compile("[^A-Za-z0-9_]")


def mangle(name: str) -> str:
    """`name` as part of a symbol: letters, digits and ``_`` stay, others become ``$`` and
    hexadecimal code points.
    """
    return _OTHERS.sub(lambda c: f"${ord(c[0]):x}$", name)


_ARITHMETIC = ("fmul float", "fadd float", "fsub float", "fdiv float", "call float @llvm.fm")
_LENGTH = re.compile(r" = icmp ne i64 %v\d+, (\d+)\n")
_SHORT = 64


def computes_long(function: Function) -> bool:
    """Whether there are many operations of float32 for each that is loaded, as in the formulas of
    elementary functions, and no loop is known to be short.
    """
    body = "\n".join([*function.lines, ""])
    operations = sum(body.count(f" = {each}") for each in _ARITHMETIC)
    if operations < 8 * max(1, body.count(" = load float")):
        return False
    return min(map(int, _LENGTH.findall(body)), default=_SHORT) >= _SHORT
