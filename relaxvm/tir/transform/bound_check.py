"""`bound_check(index, limit, name)` is `index` where 0 <= index < limit; elsewhere the function
leaves with a failure that names the buffer.
"""

from __future__ import annotations

from collections.abc import Callable

from ...base import DataType
from ...ir import (
    INTRINSICS,
    Broadcast,
    Call,
    IntImm,
    PrimExpr,
    Ramp,
    StringImm,
    Sub,
    binary,
    cast,
    const,
)

_INT64 = DataType("int64")
BOUND_CHECK = INTRINSICS["bound_check"]


def checked_index(
    index: PrimExpr, limit: PrimExpr, name: str, proven: Callable[[PrimExpr, PrimExpr], bool]
) -> PrimExpr:
    """`index` of the buffer `name`, checked to be below `limit` unless that is proven.

    proven  asked for scalar indices: whether 0 <= index < limit is certain. Of a vector with equal
            steps only the ends are checked.
    """
    if isinstance(index, Broadcast):
        value = checked_index(index.value, limit, name, proven)
        return index if value is index.value else Broadcast(value, index.lanes)
    if isinstance(index, Ramp) and isinstance(index.stride, IntImm) and _small(index.stride):
        reach = const((index.lanes - 1) * index.stride.value, _INT64)
        room = binary(Sub, cast(_INT64, limit), reach)
        base = checked_index(index.base, room, name, proven)
        if base is index.base:
            return index
        return Ramp(cast(_INT64, base), cast(_INT64, index.stride), index.lanes)
    if index.dtype.lanes == 1 and proven(index, limit):
        return index
    wide = cast(_INT64.with_lanes(index.dtype.lanes), index)
    return Call(wide.dtype, BOUND_CHECK, (wide, cast(_INT64, limit), StringImm(name)))


def _small(stride: IntImm) -> bool:
    """Whether a few lanes of this stride cannot leave 64 bits."""
    return 0 <= stride.value < 1 << 31
