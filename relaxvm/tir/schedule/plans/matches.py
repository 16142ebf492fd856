"""What blocks do that are no plain products: convolutions, and how large their tiles are; gathers
across rows, transposes, pools.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....arith import Analyzer, linear_in
from ....base import NamedTuple, Rates, record
from ....ir import FloorDiv, IntImm, Mul, PrimExpr, Var, walk
from ...stmt import Block, Buffer, BufferLoad, BufferStore
from ..model.reducer import match_reducer
from ..primitives.packing import factors_of
from ..primitives.windows import guarded
from .contraction import panel_of, variables_of, without_casts
from .cost import COMMON, step_cycles
from .queries import last_moving

# -- convolutions ----------------------------------------------------------------------------------


# Weights of more channels are more streams than a CPU fetches ahead.
_MOST_CHANNELS = 8
_TYPICAL_SIDE = 56
# What tiles are chosen by: ten sums in flight.
_CHOOSING = replace(COMMON, latency=5.0)


@record
class Convolution:
    """What a block convolves.

    width, height  the axes along which the window slides; height is None if there is one only
    channel        the axis of the output's channels
    group_size     how many channels of the output read the same input; None if all of them do
    depthwise      whether each channel of the output has an input of its own
    reduce         the reduce axes, in the order of the loops
    taps           those that the input's width and height are indexed by
    data, indices  the input, and how it is indexed
    strides        by how much the input's last index and that of the height grow with the axes
    weight         the other input
    weight_indices how that is indexed
    panel          the channels of a panel if the weight is kept in panels of them
    """

    width: Var
    height: Var | None
    channel: Var
    group_size: int | None
    depthwise: bool
    reduce: tuple[Var, ...]
    taps: tuple[Var, ...]
    data: Buffer
    indices: tuple[PrimExpr, ...]
    strides: tuple[int, int]
    weight: Buffer
    weight_indices: tuple[PrimExpr, ...]
    panel: int | None

    def batch(self, axes: Iterable[Var]) -> list[Var]:
        """Those of the axes of its block along which nothing slides and nothing is summed."""
        own = {self.height, self.width, self.channel, *self.reduce}
        return [v for v in axes if v not in own]


def match_convolution(block: Block) -> Convolution | None:
    """The convolution that `block` is, or None."""
    reducer = match_reducer(block)
    if reducer is None or reducer.name != "sum":
        return None
    factors: Any = _factors(block, reducer.updates[0])
    if factors is None:
        return None
    _, written = reducer.buffers[0]
    axes = [v for v in written if isinstance(v, Var)]
    if not 2 <= len(axes) == len(written):
        return None
    width = axes[-1]
    reduce = tuple(a.var for a in block.iter_vars if a.is_reduce)
    data, weight = factors
    if width in variables_of(weight.indices):
        data, weight = weight, data
    inside, outside = variables_of(data.indices), variables_of(weight.indices)
    if width in outside or width not in inside or not outside <= {*axes, *reduce}:
        return None
    step = _slides(data.indices, width, reduce)
    if step is None or step[0] != len(data.indices) - 1:
        return None
    slides = [(v, _slides(data.indices, v, reduce)) for v in axes[:-1] if v not in outside]
    heights = [(v, s) for v, s in slides if s is not None and s[0] < step[0]]
    height: Var | None = heights[-1][0] if heights else None
    height_step = heights[-1][1] if heights else None
    channels = [v for v in axes if v in outside]
    if len(channels) != 1:
        return None
    channel = channels[0]
    group = _group_size(data.indices, channel)
    if group == 0:
        return None
    dims = [step[0], *([] if height_step is None else [height_step[0]])]
    taps = tuple(v for v in reduce if any(v in variables_of((data.indices[d],)) for d in dims))
    strides = (step[1], 1 if height_step is None else height_step[1])
    return Convolution(
        width,
        height,
        channel,
        group,
        group == 1,
        reduce,
        taps,
        data.buffer,
        data.indices,
        strides,
        weight.buffer,
        weight.indices,
        panel_of(weight.indices, channel),
    )


def _factors(block: Block, update: PrimExpr) -> list[BufferLoad] | None:
    """The elements that are multiplied, without casts and zero points."""
    shifted = factors_of(block)
    if shifted is not None:
        return [f.load for f in shifted]
    product = without_casts(update)
    if not isinstance(product, Mul):
        return None
    a, b = without_casts(product.a), without_casts(product.b)
    return [a, b] if isinstance(a, BufferLoad) and isinstance(b, BufferLoad) else None


def _slides(
    indices: Sequence[PrimExpr], axis: Any, reduce: Sequence[Var]
) -> tuple[int, int] | None:
    """(dimension, stride) of the only index with `axis`, if that is ``stride * axis + taps``."""
    places = [k for k, i in enumerate(indices) if axis in variables_of((i,))]
    if len(places) != 1:
        return None
    terms = linear_in(Analyzer(wrap=True).simplify(indices[places[0]]), axis)
    if terms is None or terms[0] < 1 or not variables_of((terms[1],)) & {*reduce}:
        return None
    return places[0], terms[0]


def _group_size(indices: Sequence[PrimExpr], channel: Any) -> int | None:
    """How many channels of the output read the same input channels; 0 if that is not known."""
    size: int | None = None
    for index in indices:
        for n in walk(index):
            if isinstance(n, FloorDiv) and n.a is channel and isinstance(n.b, IntImm):
                size = n.b.value
    simple = [Analyzer(wrap=True).simplify(i) for i in indices]
    uses = [i for i in simple if channel in variables_of((i,))]
    if not uses:
        return None
    if len(uses) > 1:
        return 0
    terms = linear_in(uses[0], channel)
    if terms is not None:
        return 1 if terms[0] == 1 else 0
    return size or 0


@record
class Sizes:
    """Extents: of the axes of a convolution; the channels are those of one group.

    height, width  typical ones where they are known only when the kernel runs
    known          whether height and width are constants
    depth          how many input channels (or whatever is reduced without being a tap)
    images         of the batch, 1 if that is known only when the kernel runs
    """

    channels: int
    groups: int
    height: int
    width: int
    known: bool
    depth: int
    taps: int
    images: int = 1

    @property
    def steps(self) -> int:
        pixels = self.height * self.width
        return self.channels * self.groups * pixels * self.depth * self.taps


def sizes_of(c: Convolution, extents: Mapping[Var, int | None]) -> Sizes | None:
    """The extents of a convolution whose axes have these; None if it is too small or strange."""
    height = 1 if c.height is None else extents[c.height]
    channels, width = extents[c.channel], extents[c.width]
    reduce = [extents[v] for v in c.reduce]
    if channels is None or any(e is None for e in reduce):
        return None
    taps = math.prod(extents[v] or 0 for v in c.taps)
    depth = math.prod(extents[v] or 0 for v in c.reduce if v not in c.taps)
    if (width is not None and width < 2) or 0 in (height, channels, taps, depth):
        return None
    if c.group_size is not None and channels % c.group_size:
        return None
    own = c.group_size or channels
    sides = [_TYPICAL_SIDE if n is None else n for n in (height, width)]
    known = height is not None and width is not None
    images = math.prod(extents[v] or 1 for v in c.batch(extents))
    return Sizes(own, channels // own, sides[0], sides[1], known, depth, taps, images)


# -- the shape of a tile ---------------------------------------------------------------------------


@record
class Tile:
    """What is accumulated in registers at once: channels x rows x vectors of `lanes`."""

    channels: int
    rows: int
    vectors: int
    lanes: int


def tile_of(
    channels: int,
    rows: int,
    width: int,
    lanes: int,
    registers: int,
    even: bool = False,
    far: tuple[int, float] = (99, 0.0),
) -> Tile:
    """The tile that computes channels x rows x width with the fewest steps; the last tile along
    each of them may be less. Where vectors do not divide the width, rows and width are padded to
    whole tiles.

    A step costs its multiplications, but never less than its loads and the latency of ten sums in
    flight. Each channel has weights of its own, far from those of others.

    even  whether tiles must divide the channels
    far   (vectors whose columns stay in the first cache, cycles that one takes of wider tiles)
    """
    lanes = min(lanes, 1 << (width - 1).bit_length())
    along, padded = -(-width // lanes), width % lanes > 0
    best, best_cost = Tile(1, 1, 1, lanes), math.inf
    for high in range(1, min(channels, _MOST_CHANNELS) + 1):
        if even and channels % high:
            continue
        for deep in range(1, min(rows, 8) + 1):
            for wide in range(1, min(along, 8) + 1):
                sums = deep * wide
                if high * sums + sums + 1 > registers:
                    continue
                cost = tiles_cost(channels, rows, along, (high, deep, wide), padded, far)
                cost *= rests_cost(rows, along, deep, wide, padded)
                # Of tiles as good, one with fewer rows: their vectors lie closer together.
                if cost < best_cost * 0.999:
                    best, best_cost = Tile(high, deep, wide, lanes), cost
    return best


def tiles_cost(
    channels: int,
    rows: int,
    along: int,
    tile: tuple[int, int, int],
    padded: bool,
    far: tuple[int, float] = (99, 0.0),
    rates: Rates = _CHOOSING,
    lines: float = 1.0,
) -> float:
    """Cycles of one product of all sums: channels x rows x `along` vectors, in tiles of so many.

    lines  of the cache that are read for a vector
    """
    high, deep, wide = tile
    cost = 0.0
    for c, n in _parts(channels, high):
        for r, m in _parts(rows, deep, padded):
            for v, k in _parts(along, wide, padded):
                read = r * v * far[1] if deep * wide > far[0] else 0.0
                steps = max(step_cycles(c * r * v, r * v * lines, c, rates, c), read)
                cost += n * m * k * steps
    return cost


def rests_cost(rows: int, along: int, deep: int, wide: int, padded: bool) -> float:
    """How many times longer tiles take that leave parts of tiles: those are code of their own, and
    hide from `parallel` that tiles are independent.
    """
    return 1.0 if padded else 1 + 0.1 * ((rows % deep > 0) + (along % wide > 0))


def _parts(total: int, size: int, padded: bool = False) -> list[tuple[int, int]]:
    """(size, how many) of the parts of `total`; if it is padded, they are all of one size."""
    if padded:
        return [(size, -(-total // size))]
    rest = total % size
    return [(size, total // size), *([(rest, 1)] if rest else [])]


def block_of(count: int, step: int, most: float, share: int = 1) -> int:
    """How many of `count` to take at once: a multiple of `step` that divides them, at most `most`
    or as few as can be; all of them if there is no such number.

    share  how many are to get as many blocks each, if that can be
    """
    fits = [n for n in range(step, count + 1, step) if count % n == 0]
    small = [n for n in fits if n <= most]
    even = [n for n in small if count // n % share == 0]
    return even[-1] if even else small[-1] if small else fits[0] if fits else count


# -- gathers and transposes ------------------------------------------------------------------------


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
    if reducer is None or reducer.name not in _REDUCERS:
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
