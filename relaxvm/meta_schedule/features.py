"""What is known of a schedule without running it: a row of numbers for each of its stores.

Sizes are logarithms (base 2, of one more than them), so that a linear model can multiply. Accesses
are those of the innermost loops: how far apart two steps of a loop read is asked by computing the
index for both.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..base import NamedTuple, submodules
from ..ir import Add, Cast, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var, descend, walk
from ..tir import (
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    PrimFunc,
    Stmt,
    statements_below,
)

_SYMBOL = 64
# Stores whose rows count for a whole function, those that run most often first.
_STORES = 4
_KINDS = (ForKind.SERIAL, ForKind.PARALLEL, ForKind.VECTORIZED, ForKind.UNROLLED)
NAMES = (
    *("steps", "arithmetic", "loads", "serial", "parallel", "vectorized", "unrolled", "innermost"),
    *("runs along vectors", "same along vectors", "jumps along vectors", "local stores"),
    *(f"bytes in {depth} loops" for depth in (1, 2, 3, 5)),
    "bytes in all",
)
"""What the numbers of a row are."""
BUFFER_NAMES = ("is stored", "bytes in all", "bytes in 1 loop", "step of 1 loop", "times read")
"""What the numbers are that a row has of each buffer, where it tells of buffers."""


class Detail(NamedTuple):
    """What a row tells besides `NAMES`.

    buffers     of how many buffers, those of which most is touched first (`BUFFER_NAMES` of each)
    intensity   at how many depths of loops, from the innermost on, it tells how much arithmetic
                there is for a byte that is touched
    line_bytes  that memory is touched by
    """

    buffers: int = 0
    intensity: int = 0
    line_bytes: int = 64

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return len(NAMES) + self.buffers * len(BUFFER_NAMES) + self.intensity


class _Place(NamedTuple):
    loops: tuple[For, ...]
    bindings: tuple[tuple[Var, Any], ...]


def features_of_stores(fn: PrimFunc, detail: Detail = Detail()) -> np.ndarray[Any, Any]:
    """One row (see `NAMES` and `Detail`) for each store of a scheduled function, float64."""
    try:
        rows = [_row(store, place, detail) for store, place in _stores(fn)]
    except RecursionError:
        rows = []  # an index deeper than any that comes from loops
    return np.array(rows, "float64").reshape(len(rows), detail.width)


def of_whole(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The rows of a whole function as one: sums over all stores, then the rows of those that run
    most often.
    """
    rows = rows[np.argsort(-rows[:, 0], kind="stable")]
    shown = np.zeros((_STORES, rows.shape[1]))
    shown[: len(rows)] = rows[:_STORES]
    # log2(1 + sum of 2 ** x), whatever x is.
    whole = np.logaddexp2.reduce(rows, axis=0, initial=0.0)
    return np.concatenate([whole, shown.ravel()])


def _stores(fn: PrimFunc) -> Iterator[tuple[BufferStore, _Place]]:
    start: tuple[Stmt, _Place] = (fn.body, _Place((), ()))

    def below(item: tuple[Stmt, _Place]) -> list[tuple[Stmt, _Place]]:
        s, place = item
        if isinstance(s, For):
            place = place._replace(loops=(*place.loops, s))
        elif isinstance(s, BlockRealize):
            pairs = tuple((a.var, v) for a, v in zip(s.block.iter_vars, s.iter_values))
            place = place._replace(bindings=(*place.bindings, *pairs))
        return [(child, place) for child in statements_below(s)]

    return ((s, place) for s, place in descend(start, below) if isinstance(s, BufferStore))


def _row(store: BufferStore, place: _Place, detail: Detail) -> list[float]:
    extents = [
        int(f.extent.value) if isinstance(f.extent, IntImm) else _SYMBOL for f in place.loops
    ]
    steps = math.prod(extents)
    kinds = dict.fromkeys(_KINDS, 1)
    for f, extent in zip(place.loops, extents):
        if f.kind in kinds:
            kinds[f.kind] *= extent
    nodes = walk(store.value)
    loads = [n for n in nodes if isinstance(n, BufferLoad)]
    accesses: list[BufferLoad | BufferStore] = [store, *loads]
    ends = [_Index(access, place, detail.line_bytes) for access in accesses]
    jumps = [end.steps[-1] for end in ends] if place.loops else []
    row: list[float] = [steps, len(nodes) - len(loads), len(loads), *kinds.values()]
    row += [extents[-1] if extents else 1]
    row += [sum(abs(j) == 1 for j in jumps), sum(j == 0 for j in jumps)]
    row += [sum(abs(j) > 1 for j in jumps), store.buffer.scope() not in ("", "global")]
    depths = len(extents)
    for depth in (1, 2, 3, 5, depths):
        row.append(sum(end.touched(extents, max(0, depths - depth)) for end in ends))
    row += [number for of_one in _of_buffers(ends, extents, detail) for number in of_one]
    for k in range(1, detail.intensity + 1):
        first = depths - math.ceil(depths * k / detail.intensity)
        touched = sum(end.touched(extents, first) for end in ends)
        row.append(math.prod(extents[first:]) * (len(nodes) - len(loads)) / touched)
    return [math.log2(1.0 + float(n)) for n in row]


def _of_buffers(ends: list[_Index], extents: list[int], detail: Detail) -> list[list[float]]:
    by_buffer: dict[Buffer, list[_Index]] = {}
    for end in ends:
        by_buffer.setdefault(end.access.buffer, []).append(end)
    rows = [
        [
            any(isinstance(e.access, BufferStore) for e in of_one),
            max(e.touched(extents, 0) for e in of_one),
            max(e.touched(extents, max(0, len(extents) - 1)) for e in of_one),
            max((abs(e.steps[-1]) for e in of_one if e.steps), default=0),
            len(of_one),
        ]
        for of_one in by_buffer.values()
    ]
    rows.sort(key=lambda row: -row[1])
    rows += [[0.0] * len(BUFFER_NAMES)] * max(0, detail.buffers - len(rows))
    return rows[: detail.buffers]


class _Index:
    """Where an access is, as a function of the loops around it."""

    def __init__(self, access: BufferLoad | BufferStore, place: _Place, line: int) -> None:
        self.access, self._place, self._line = access, place, line
        shape = [int(n.value) if isinstance(n, IntImm) else _SYMBOL for n in access.buffer.shape]
        self._strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        self._bytes = max(1, access.buffer.dtype.bits // 8)
        self._size = math.prod(shape)

        here = self._at(-1)
        self.steps = [self._at(k) - here for k in range(len(place.loops))]
        """How many elements further the second step of each loop reads."""

    def _at(self, loop: int) -> int:
        """The element where one loop is at its second step, all others at their first."""
        env: dict[Any, Any] = {f.loop_var: int(k == loop) for k, f in enumerate(self._place.loops)}
        for var, value in self._place.bindings:
            env[var] = _value(value, env)
        return sum(
            stride * _value(index, env) for stride, index in zip(self._strides, self.access.indices)
        )

    def touched(self, extents: list[int], first: int) -> float:
        """Bytes of lines that are touched by the loops from `first` on, at most."""
        count, dense = 1, False
        for k in range(first, len(extents)):
            step = self.steps[k]
            if step:
                count *= extents[k]
                dense |= abs(step) * self._bytes < self._line
        return min(count, self._size) * (self._bytes if dense else self._line)


_OPERATIONS: dict[type, Callable[[int, int], int]] = {
    Add: operator.add,
    Sub: operator.sub,
    Mul: operator.mul,
    Min: min,
    Max: max,
    FloorDiv: lambda a, b: a // b if b else 0,
    FloorMod: lambda a, b: a % b if b else 0,
}


def _value(expr: Any, env: Mapping[Any, int]) -> int:
    """An index; what depends on data, or on symbols, counts as 0."""
    if isinstance(expr, IntImm):
        return expr.value
    if isinstance(expr, Var):
        return env.get(expr, 0)
    if isinstance(expr, Cast):
        return _value(expr.value, env)
    operation = _OPERATIONS.get(type(expr))
    return 0 if operation is None else operation(_value(expr.a, env), _value(expr.b, env))


__getattr__ = submodules(__name__)
