"""Where a load or a store reaches: what of its index is evaluated, and what is known.

    A[ramp(k * 64 + u * 16 + 3, 1, 16)]     u from a loop that is written out:
    rest = k * 64    steps = ((u, 16),)    offset = 3

The address of `rest` is the same in all copies of the loop, and the distance from there a number.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...base import CodegenError, DataType, NamedTuple
from ...ir import Add, Cast, IntImm, Mul, PrimExpr, Ramp, Sub, Var, nodes_of, wrap_int

_INT64 = DataType("int64")
_RAMPS = ("run", "strided", "spaced")
# Of longer sums nothing is known.
_MOST_TERMS = 256


class Access(NamedTuple):
    """An access by `indices`.

    shape   see `access_shape`
    first   see `access_index`: ``rest + offset`` and, for each (variable, step), step * variable
    rest    what is to be evaluated
    """

    indices: tuple[PrimExpr, ...]
    shape: str
    first: PrimExpr
    rest: PrimExpr
    steps: tuple[tuple[Var, int], ...] = ()
    offset: int = 0


# Runs that are read to pick elements out of them; with more of them, elements one by one are as
# good.
_MOST_STRIDE = 4


def access_shape(indices: tuple[PrimExpr, ...]) -> str:
    """ "scalar", "run" (consecutive elements), "strided" (every few elements), "spaced" (by a
    constant distance) or "scatter". Raises CodegenError for an access not yet flattened.
    """
    if len(indices) != 1:
        raise CodegenError(f"an access with {len(indices)} indices; FlattenBuffer has not run")
    index = indices[0]
    if index.dtype.lanes == 1:
        return "scalar"
    if type(index) is Ramp and isinstance(index.stride, IntImm):
        if index.stride.value == 1:
            return "run"
        if 1 < index.stride.value <= _MOST_STRIDE and index.lanes > 2:
            return "strided"
        return "spaced" if index.dtype.element is _INT64 else "scatter"
    return "scatter"


def access_index(indices: tuple[Any, ...]) -> Any:
    """The expression to evaluate for an access: the index itself, or the first of a ramp."""
    return indices[0].base if access_shape(indices) in _RAMPS else indices[0]


def access_of(indices: tuple[PrimExpr, ...], written: Collection[Var]) -> Access:
    """An access inside of the loops over `written`, which are written out. It is taken apart if it
    depends on those; elsewhere LLVM would make no vectors of what may wrap around in between.
    """
    shape, index = access_shape(indices), access_index(indices)
    whole = Access(indices, shape, index, index)
    if index.dtype is not _INT64:
        return whole
    steps: dict[Var, int] = {}
    offset, kept = 0, []
    terms: list[tuple[Any, int]] = [(index, 1)]
    for _ in range(_MOST_TERMS):
        if not terms:
            break
        e, factor = terms.pop()
        inner: Any = e.value if type(e) is Cast and e.value.dtype.is_int else e
        if type(e) is IntImm:
            offset += factor * e.value
        elif isinstance(inner, Var) and inner in written:
            steps[inner] = steps.get(inner, 0) + factor
        elif type(e) is Add or type(e) is Sub:
            terms += ((e.b, factor if type(e) is Add else -factor), (e.a, factor))
        elif nodes_of(e, Var).isdisjoint(written):
            kept.append((e, factor))
        elif type(e) is Mul and type(e.b) is IntImm:
            terms.append((e.a, factor * e.b.value))
        else:
            return whole
    if terms or not steps:
        return whole
    rest: PrimExpr | None = None
    for e, factor in kept:
        part = e if factor in (1, -1) else Mul(e, IntImm(_INT64, wrap_int(factor, _INT64)))
        if factor == -1:
            rest = Sub(IntImm(_INT64, 0) if rest is None else rest, part)
        else:
            rest = part if rest is None else Add(rest, part)
    if rest is None:
        rest = IntImm(_INT64, 0)
    return Access(indices, shape, index, rest, tuple(steps.items()), offset)
