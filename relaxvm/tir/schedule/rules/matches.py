"""What blocks do that write each element once: gathers across rows, transposes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ....ir import Var, walk
from ...stmt import Block, BufferLoad, BufferStore
from .contraction import variables_of


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
    along = store.indices[-1]
    axis = None
    most = 1
    for load in (n for n in walk(store.value) if isinstance(n, BufferLoad)):
        if len(load.indices) > most and load.indices[-1] in loops and along in load.indices[:-1]:
            axis, most = load.indices[-1], len(load.indices)
    return axis if axis in store.indices[:-1] else None
