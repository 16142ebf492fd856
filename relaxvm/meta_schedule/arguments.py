"""What a candidate is tried with, and how far its results may be from those of the default."""

from __future__ import annotations

import math
from typing import Any

from ..base import DataType
from ..ir import IntImm, PassContext, PrimExpr, walk
from ..tir import Block, BufferLoad, BufferStore, PrimFunc
from ..tir.schedule.plans import order_matters
from .arg_info import ArgInfo
from .sizes import Sized

# How far two right results may differ for each sum of one term, relative to the largest; as many
# terms, as many times their square root.
_ROUNDING = {"float64": 1e-12, "float32": 4e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
_COARSEST = 6e-2


def argument_specs(fn: PrimFunc, one: Sized) -> list[list[Any]]:
    """[dtype, shape, least, beyond the largest] of each argument of `fn`, which is called as `one`
    says; the two are None for floats. Integers that say a place in another buffer are in range
    there. Of a scalar [dtype, None, values, None]: it has to be one of these, the first if it may.
    Raises ScheduleError for tensors whose sizes are not constant.
    """
    places = _places(one.fn)
    sizes = {v for b in fn.buffer_map.values() for n in b.shape for v in walk(n)}
    tensors = zip(one.fn.buffers, ArgInfo.from_prim_func(one.fn))
    specs: list[list[Any]] = []
    for k, param in enumerate(fn.params):
        if k in one.scalars:
            others = [] if param in sizes else [1, 0]
            specs.append([str(param.dtype), None, [one.scalars[k], *others], None])
            continue
        buffer, info = next(tensors)
        least, beyond = integers_of(buffer.dtype)
        if buffer in places and least is not None:
            least, beyond = 0, max(1, min(places[buffer], int(buffer.dtype.max_value)))
        specs.append([info.dtype, list(info.shape), least, beyond])
    return specs


def integers_of(dtype: DataType) -> tuple[int | None, int | None]:
    """The least of the integers of `dtype` that are tried, and what is beyond the largest; None for
    floats.
    """
    if dtype.is_bool:
        return 0, 2
    if not dtype.is_int:
        return None, None
    if dtype.bits <= 8:
        return int(dtype.min_value), int(dtype.max_value) + 1
    return (-8, 9) if dtype.is_signed else (0, 17)


def _places(fn: PrimFunc) -> dict[Any, int]:
    """Buffers of integers that are read inside of an index -> the size of the shortest axis."""
    places: dict[Any, int] = {}
    for node in walk(fn.body):
        if not isinstance(node, (BufferLoad, BufferStore)):
            continue
        for index, size in zip(node.indices, node.buffer.shape):
            if not isinstance(index, PrimExpr) or not isinstance(size, IntImm):
                continue
            for inner in walk(index):
                if isinstance(inner, BufferLoad):
                    known = places.get(inner.buffer, size.value)
                    places[inner.buffer] = min(known, size.value)
    return places


def sameness(fn: PrimFunc) -> tuple[bool, float]:
    """(whether every schedule of `fn` gives the same bits, how far results may differ otherwise
    relative to the largest). They do if nothing adds up floats, and where the current `PassContext`
    wants exact numerics.
    """
    numerics = PassContext.current().get("numerics")
    longest, bound = 0, 0.0
    for node in walk(fn.body):
        if isinstance(node, Block) and order_matters(node):
            longest = max(longest, _terms(node))
            kinds = [b.buffer.dtype for b in (*node.reads, *node.writes)]
            for kind in kinds:
                if kind.is_float:
                    bound = max(bound, _ROUNDING.get(str(kind), _COARSEST))
    exact = numerics == "exact" or not longest
    return exact, bound * math.sqrt(max(1, longest))


def _terms(block: Block) -> int:
    """How many terms a sum of `block` has."""
    terms = 1
    for axis in block.iter_vars:
        if axis.is_reduce:
            extent = None if axis.dom is None else axis.dom.extent
            terms *= extent.value if isinstance(extent, IntImm) else 1
    return max(1, terms)
