"""Loops, shapes and indices in fewer bits.

for i in range(T.int64(8)):             for i in range(8):
    A[i * T.int64(2)] = 0.0                 A[i * 2] = 0.0
"""

from __future__ import annotations

from ...base import TIRError
from ...ir import IRModule, PassContext, walk
from ...ir.transform import prim_func_pass
from ..stmt import Buffer, PrimFunc
from .index_dtype import with_index_dtype


@prim_func_pass(opt_level=0)
def NarrowDataType(fn: PrimFunc, mod: IRModule, ctx: PassContext, target_bits: int) -> PrimFunc:
    """Integers of `target_bits` (32 or 64) for indices, as far as the ranges of loops and sizes
    prove that they hold them.
    """
    if target_bits not in (32, 64):
        raise TIRError(f"NarrowDataType: wanted 32 or 64 bits, got {target_bits!r}")
    return with_index_dtype(fn, f"int{target_bits}")


@prim_func_pass(opt_level=0)
def ForceNarrowIndexToInt32(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """int32 for all indices, whether or not they fit. Raises TIRError for buffers of int64: their
    elements may be indices.
    """
    for n in walk(fn):
        if isinstance(n, Buffer) and n.dtype == "int64":
            raise TIRError(f"ForceNarrowIndexToInt32: buffer {n.name} holds int64")
    return with_index_dtype(fn, "int32", exact=False)
