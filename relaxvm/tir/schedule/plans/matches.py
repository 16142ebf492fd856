"""What blocks do that are neither products nor plain: gathers across rows, transposes, pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....arith import Analyzer, linear_in
from ....base import NamedTuple
from ....ir import IntImm, Var, walk
from ...stmt import Block, BufferLoad, BufferStore
from ..model.reducer import match_reducer
from ..primitives.windows import guarded
from .contraction import variables_of
from .queries import last_moving

_REDUCERS = frozenset({"max", "min", "sum", "prod"})
_LONGEST_WINDOW = 64


class Across(NamedTuple):
    """A gather across rows.

    load    what is gathered from
    axis    the dimension that the indices are of
    along   the axis of the block along both last dimensions
    kept    axes of the block that are dimensions of what is gathered from, without the last one
    """

    load: BufferLoad
    axis: int
    along: Var
    kept: tuple[Var, ...]


def match_gather(block: Block, loops: Mapping[Var, Any]) -> Across | None:
    """The gather across rows that the block is: of one buffer, in one place."""
    store = block.body
    if not isinstance(store, BufferStore) or not store.indices:
        return None
    along = store.indices[-1]
    if not isinstance(along, Var) or along not in loops:
        return None
    loads = [n for n in walk(store.value) if isinstance(n, BufferLoad)]
    for load in loads:
        if len(load.indices) < 2 or load.indices[-1] is not along:
            continue
        indirect = [
            k for k, i in enumerate(load.indices) if any(isinstance(n, BufferLoad) for n in walk(i))
        ]
        if len(indirect) != 1 or along not in variables_of((load.indices[indirect[0]],)):
            continue
        if sum(other.buffer.data is load.buffer.data for other in loads) != 1:
            continue
        others = [i for k, i in enumerate(load.indices[:-1]) if k != indirect[0]]
        kept = tuple(v for v in others if isinstance(v, Var) and v in loops and v is not along)
        if len(set(kept)) == len(others):
            return Across(load, indirect[0], along, kept)
    return None


def other_axis(store: BufferStore, loops: Mapping[Var, Any]) -> Any:
    """The axis along which the largest operand lies in memory, if it is not that of the result and
    both move both.
    """
    along = last_moving(store.indices, store.buffer)
    axis = None
    most = 1
    for load in (n for n in walk(store.value) if isinstance(n, BufferLoad)):
        last = last_moving(load.indices, load.buffer)
        moved = last in loops and last is not along and along in load.indices
        if moved and len(load.indices) > most:
            axis, most = last, len(load.indices)
    return axis if axis in store.indices else None


class Pool(NamedTuple):
    """What a block pools.

    vector    the axis along the last dimension of the result
    outer     the other spatial axes, in order
    along     the tap that moves along the last dimension of the data; None if the vector axis
              stands there alone
    taps      the other taps
    stride    by how much the data's last index grows with the vector axis; None if that varies
    beside    the last axis of `outer` along which windows slide, its tap and its stride; None if
              there is none
    guards    whether windows have places that do not count
    """

    vector: Var
    outer: tuple[Var, ...]
    along: Var | None
    taps: tuple[Var, ...]
    stride: int | None
    beside: tuple[Var, Var, int] | None
    guards: bool


def match_pool(block: Block) -> Pool | None:
    """The pool that `block` is, or None."""
    reducer = match_reducer(block)
    if reducer is None or reducer.name not in _REDUCERS or len(reducer.updates) != 1:
        return None
    conditions, value = guarded(reducer.updates[0], reducer.identity[0])
    loads = [n for n in walk(value) if isinstance(n, BufferLoad)]
    _, written = reducer.buffers[0]
    if len(loads) != 1 or not written or not all(isinstance(i, Var) for i in written):
        return None
    kinds = {a.var: a.iter_type for a in block.iter_vars}
    reduce = [v for v, kind in kinds.items() if kind != "spatial"]
    if {*written} != {v for v, kind in kinds.items() if kind == "spatial"}:
        return None
    vector: Any = written[-1]
    indices = [Analyzer(wrap=True).simplify(i) for i in loads[0].indices]
    used = [variables_of((i,)) for i in indices]
    sliding = [(u & {*reduce}, u & {*written}) for u in used]
    if not any(taps and axes for taps, axes in sliding) or any(len(t) > 1 for t, _ in sliding):
        return None
    if any(sum(v in u for u in used) > 1 for v in (*reduce, vector)):
        return None
    if vector not in used[-1]:
        return None
    step = linear_in(indices[-1], vector)
    stride = None if step is None else step[0]
    along = next(iter(sliding[-1][0]), None)
    if along is None and (indices[-1] is not vector or vector in variables_of(conditions)):
        return None
    if along is not None and _is_row(block, along):
        return None
    outer: Any = tuple(v for v in written if v is not vector)
    beside = []
    for (inner, axes), index in zip(sliding[:-1], indices):
        if len(inner) == len(axes) == 1:
            (axis,), (tap,) = axes, inner
            terms = linear_in(index, axis)
            if terms is not None:
                beside.append((axis, tap, terms[0]))
    return Pool(
        vector,
        outer,
        along,
        tuple(v for v in reduce if v is not along),
        stride,
        beside[-1] if beside else None,
        bool(conditions),
    )


def _is_row(block: Block, along: Var) -> bool:
    """Whether a window is so long that it is better reduced by itself, as rows are."""
    extent = next(a.range.extent for a in block.iter_vars if a.var is along)
    return isinstance(extent, IntImm) and extent.value > _LONGEST_WINDOW
