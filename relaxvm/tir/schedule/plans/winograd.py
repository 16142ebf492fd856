"""Convolutions of three rows in fewer multiplications: Winograd's way (`fewer_products`).

    for n, block of tiles:                              tiles of 4 rows of the result, or of 2
        V = B X                                         of the rows of the block, padded
        for panel of channels, tile:
            for w:                                      tiles of pixels
                for a: acc[pixels, vectors] = 0; for c, s: acc += V * U; M[a] = acc
                results = A M
            C[channels, rows, w] = results, turned round

Of constant weights U is made when the program is built. Vectors lie along the channels, steps read
runs of the input, and neither the images nor their tiles need to be turned round before the
products. Sums are of other numbers than the user wrote: the default schedule does this where
numerics may be `approximate` only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ....base import CpuModel, ScheduleError, decided, record
from ....ir import IntImm, Map, PassContext, walk
from ...stmt import Block, BufferLoad, PrimFunc, SeqStmt, seq
from ...transform import with_index_dtype
from ..model.reducer import match_reducer
from ..model.regions import users_of
from ..primitives.fewer_products import ROWS, Filter, match_filter, transformed_weights
from ..schedule import Schedule
from .contraction import in_registers, partition_tails, strips_cost, tile_shape
from .convolution_work import Work, from_memory
from .cost import Cost, Demand, predict, rates_of
from .injective import inline_producers
from .matches import block_of
from .panels import Ahead, ahead_of, ask_for_panels
from .plan import InTiles, Plan
from .queries import extent_of, loops_inside, root_of
from .view import View

# Weights are read once for each pixel: of fewer pixels the larger ones cost more than is saved.
_LEAST_PIXELS = 128
# Of few channels there are few products to save.
_LEAST_CHANNELS = 32
_LEAST_LANES = 4
# Weights of more bytes than so many second caches get tiles of two rows, with which they grow less.
_MOST_WEIGHTS = 8


def with_fewer_products(
    fn: PrimFunc, constants: Collection[int], cpu: CpuModel
) -> tuple[PrimFunc, dict[int, Callable[[np.ndarray], np.ndarray]]]:
    """`fn`, not yet scheduled, with a convolution of constant weights written as above; and
    {position of the weights: what makes U of them}. `fn` itself where that does not pay.
    """
    fn = with_index_dtype(fn, "int64")
    try:
        sch = Schedule(fn, error_render_level="fast")
        blocks = sch.get_child_blocks(root_of(sch))
    except ScheduleError:
        return fn, {}
    for rv in blocks:
        view = View(sch, rv)
        conv = match_filter(view.block)
        plan = _planned(view, conv, cpu)
        if plan is None or isinstance(conv, str):
            continue
        places = [k for k in constants if fn.buffer_map.get(fn.params[k]) is conv.weight]
        if len(places) != 1 or len(users_of(sch.state, conv.weight.data)[0]) != 1:
            continue
        try:
            weights, *_ = sch.fewer_products(rv, plan.tile, plan.width)
        except ScheduleError:
            continue
        decided("{} in fewer products, by tiles of {} rows", view.block, plan.tile)
        pack = partial(transformed_weights, rows=plan.tile, panel=plan.width)
        return _given(sch.state.fn, sch, weights, places[0]), {places[0]: pack}
    return fn, {}


def _given(fn: PrimFunc, sch: Schedule, rv: Any, place: int) -> PrimFunc:
    """`fn` with what block `rv` computes as its parameter at `place`."""
    root: Block = sch.get(root_of(sch))
    changed, nest = sch.get(rv).writes[0].buffer, sch.get(sch.get_loops(rv)[0])
    assert isinstance(root.body, SeqStmt)
    body = seq(*(s for s in root.body.seq if s is not nest))
    kept = [b for b in root.alloc_buffers if b is not changed]
    rest = root.replace(body=body, alloc_buffers=kept)
    bindings = Map({**fn.buffer_map, fn.params[place]: changed})
    return fn.replace(body=sch.state.realize(root).replace(block=rest), buffer_map=bindings)


def _planned(view: View, conv: Filter | str, cpu: CpuModel) -> Winograd | None:
    """The plan for a convolution that is not written so yet; None where it does not pay."""
    lanes = cpu.lanes(32)
    if isinstance(conv, str) or lanes < _LEAST_LANES:
        return None
    channels, height, wide, depth, taps = conv.sizes
    widths = [n for n in (2, 4) if channels % (n * lanes) == 0]
    if not widths or min(channels, depth) < _LEAST_CHANNELS or height * wide < _LEAST_PIXELS:
        return None
    _, vectors = tile_shape(wide, channels, lanes, cpu.vector_registers, tuple(widths))
    size = 2 * channels * depth * ROWS * taps * conv.data.dtype.itemsize
    tile = 2 if size > _MOST_WEIGHTS * cpu.l2_bytes else 4
    return Winograd.of(_Shape.of(conv, tile, vectors * lanes, view), lanes, cpu)


@record
class _Shape:
    """Of a convolution that is written so: V[n, tile, a, c, x], U[panel, a, c, s, o].

    kept  whether U is an input
    """

    images: int
    tiles: int
    count: int
    depth: int
    across: int
    panels: int
    taps: int
    panel: int
    wide: int
    kept: bool

    @classmethod
    def of(cls, f: Filter, tile: int, panel: int, view: View) -> _Shape:
        channels, height, wide, depth, taps = f.sizes
        images = f.out.shape[0].value if isinstance(f.out.shape[0], IntImm) else 1
        across: Any = f.data.shape[3]
        tiles, panels = -(-height // tile), channels // panel
        count = tile + ROWS - 1
        return cls(images, tiles, count, depth, across.value, panels, taps, panel, wide, False)


@record
class Winograd(InTiles):
    """Tiles of `rows` pixels x (`vectors` x `lanes`) channels, of convolutions of three rows that
    are computed in fewer products, of `tile` rows of the result at once.

    block   such tiles for which the input is transformed at once
    ahead   how far, in elements, weights are asked for before they are read
    panel   the size of a panel whose reading asks for the next one; 0: it does not
    joined  whether all blocks are one loop, for threads to share
    """

    tile: int
    block: int
    ahead: int = 0
    panel: int = 0
    joined: bool = False

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Winograd | None:
        shape = view.found(_form)
        if shape is None or shape.panel % cpu.lanes(32):
            return None
        plan = cls.of(shape, cpu.lanes(32), cpu)
        # Of constants; how far is told by the input, which is read as often.
        ahead = ahead_of(view.block.reads[0].buffer, cpu) if shape.kept else Ahead()
        return replace(plan, ahead=ahead.elements, panel=ahead.panel)

    @classmethod
    def fitting(cls, view: View, cpu: CpuModel) -> Winograd | None:
        approximate = PassContext.current().allows("approximate")
        return cls.choose(view, cpu) or (
            _planned(view, match_filter(view.block), cpu) if approximate else None
        )

    @classmethod
    def of(cls, s: _Shape, lanes: int, cpu: CpuModel) -> Winograd:
        vectors = s.panel // lanes
        pixels, _ = tile_shape(s.wide, s.panel, lanes, cpu.vector_registers, (vectors,))
        plan = cls(pixels, vectors, lanes, s.count - ROWS + 1, 1, joined=cpu.cores > 1)
        blocks = [n for n in range(1, s.tiles + 1) if s.tiles % n == 0]
        return min((replace(plan, block=n) for n in blocks), key=lambda p: p._predicted(s, cpu))

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        for tile in (2, 4):
            for vectors, rows in in_registers(cpu, range(1, 5)):
                plan = replace(self, rows=rows, vectors=vectors, tile=tile, block=1)
                s = plan._shape(view)
                for n in (1, 2, 4, 8) if s is not None else ():
                    yield replace(plan, block=block_of(s.tiles, 1, s.tiles / n))

    def _shape(self, view: View) -> Any:
        """That of the form, or of what the convolution becomes; None if it cannot."""
        shape, conv = view.found(_form), match_filter(view.block)
        if shape is not None or isinstance(conv, str) or conv.sizes[0] % self.width:
            return shape
        return _Shape.of(conv, self.tile, self.width, view)

    def wrong(self, view: View) -> str | None:
        conv, form = match_filter(view.block), view.found(_form)
        if form is None and isinstance(conv, str):
            return f"it is no convolution that fewer products can give: {conv}"
        if PassContext.current().get("numerics") == "exact":
            return "numerics are to be exact, and fewer products are sums of other numbers"
        if self.tile not in (2, 4):
            return f"tiles of {self.tile} rows of the result, and there are such of 2 and 4"
        s = self._shape(view)
        if s is None or (s.panel, s.count) != (self.width, self.tile + ROWS - 1):
            return f"panels of {self.width} channels and tiles of {self.tile} rows leave a rest"
        if self.rows > s.wide:
            return f"tiles of {self.rows} pixels, and there are {s.wide} in a row"
        return (
            f"blocks of {self.block} of {s.tiles} tiles leave a rest" * bool(s.tiles % self.block)
            or None
        )

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        return self._predicted(self._shape(view), cpu)

    def _predicted(self, s: _Shape, cpu: CpuModel) -> Cost:
        rates = rates_of(cpu, self.lanes, 32)
        step = strips_cost(s.wide, self.rows, self.vectors, rates)
        sums = s.tiles * s.count * s.panels * step * s.depth * s.taps
        channels, size = s.panels * s.panel, 4
        inputs = s.tiles * s.depth * s.across * s.count
        results = s.tiles * channels * s.wide * self.tile
        weights = s.panels * s.count * s.depth * s.taps * s.panel
        # Half of what is multiplied with is 0; results are turned round one by one.
        transforms = inputs * s.count / 2 / self.lanes + results * (s.count / 2 / self.lanes + 0.5)
        cycles = s.images * (sums + transforms) + (0 if s.kept else 3 * weights)
        blocks = s.tiles // self.block
        data = inputs * size // s.count * self.tile
        traffic = (
            (s.images * data, s.images * data),
            (s.images * inputs * size * s.panels, inputs * size / blocks),
            (s.images * weights * size * blocks, weights * size),
            (s.images * results * size, s.images * results * size),
        )
        apart = s.images * blocks >= cpu.cores
        cycles += from_memory(weights * size, apart, cpu)
        demand = Demand(cycles, traffic, s.images * blocks)
        if apart:
            return predict(demand, cpu)
        # Threads share the panels, once what all read is transformed.
        first = s.images * inputs * (s.count / 2 / self.lanes + 2 * size / rates.l2)
        shared = demand._replace(parts=s.panels, alone=first, handed=inputs * size / blocks)
        return predict(shared, cpu)

    def members(self, view: View) -> Sequence[Any]:
        sch, known = view.sch, {id(view.sch.get(b)): b for b in view.left}
        own = [view.rv]
        for _ in range(3):
            own += sch.get_consumers(own[-1])[:1]
        reached: list[Any] = [view.rv]
        for _ in range(3):
            reached = [b for a in reached for b in sch.get_producers(a)]
            own += reached
        return [known[id(sch.get(b))] for b in own if id(sch.get(b)) in known]

    def apply(self, view: View) -> None:
        sch, rv = view.sch, view.rv
        if view.found(_form) is None:
            weights, _, rv, *_ = sch.fewer_products(rv, self.tile, self.width)
            panel, which, *others = sch.get_loops(weights)
            sch.reorder(panel, *others, which)
            sch.unroll(which)
        _Winograd(View(sch, rv), self).run()


def _form(view: View) -> _Shape | None:
    """What a block sums products of, if it and those around it are the form."""
    sch, block = view.sch, view.block
    reducer = match_reducer(block)
    if reducer is None or reducer.name != "sum":
        return None
    axes = [a.var for a in block.iter_vars]
    loads = [n for n in walk(reducer.updates[0]) if isinstance(n, BufferLoad)]
    if len(axes) != 8 or len(loads) != 2 or view.by_axis is None:
        return None
    n, p, t, w, a, o, k, s = axes
    out, written = reducer.buffers[0]
    wanted = [[n, t, a, k, w + s], [p, a, k, s, o], axes[:6]]
    buffers = [*(x.buffer for x in loads), out]
    if [list(x) for x in (loads[0].indices, loads[1].indices, written)] != wanted:
        return None
    shapes: Any = [b.shape for b in buffers]
    known = all(isinstance(e, IntImm) for shape in shapes for e in shape[1:])
    if not known or [r.buffer for r in (*block.reads, *block.writes)] != buffers:
        return None
    before = _writers(sch, view.rv, buffers[0])
    after = sch.get_consumers(view.rv)
    if len(before) != 1 or len(after) != 1 or len(sch.get_consumers(after[0])) != 1:
        return None
    write = sch.get_consumers(after[0])[0]
    ranks = [len(sch.get(b).iter_vars) for b in (before[0], after[0], write)]
    if ranks != [5, 6, 4]:
        return None
    # The batch may be known late.
    images = shapes[0][0].value if isinstance(shapes[0][0], IntImm) else 1
    tiles, count, depth, across = (e.value for e in shapes[0][1:])
    panels, taps, panel, wide = (
        e.value for e in (shapes[1][0], shapes[1][3], shapes[1][4], shapes[2][3])
    )
    kept = not _writers(sch, view.rv, buffers[1])
    return _Shape(images, tiles, count, depth, across, panels, taps, panel, wide, kept)


def _writers(sch: Schedule, rv: Any, buffer: Any) -> list[Any]:
    """The blocks that write a buffer that block `rv` reads."""
    return [b for b in sch.get_producers(rv) if sch.get(b).writes[0].buffer is buffer]


class _Winograd(Work):
    """The scheduling of one form."""

    def __init__(self, view: View, plan: Winograd) -> None:
        super().__init__(view, plan, plan.joined)
        self.plan = plan

    def run(self) -> None:
        sch, rv = self.sch, self.rv
        (inputs,) = _writers(sch, rv, self.view.block.reads[0].buffer)
        (results,) = sch.get_consumers(rv)
        (write,) = sch.get_consumers(results)
        own = [sch.get(b) for b in (rv, *sch.get_producers(rv), results, write)]
        every = sch.get_child_blocks(root_of(sch))
        inline_producers(sch, [b for b in every if not any(sch.get(b) is x for x in own)])
        after = View(sch, write).pointwise
        if after is not None:
            sch.compute_inline(write)
            write = after
        before = sch.get_producers(inputs)
        for first in (b for each in before for b in sch.get_producers(each)):
            sch.compute_inline(first)
        self._loops(inputs, before, results, write)

    def _loops(self, inputs: Any, before: Sequence[Any], results: Any, write: Any) -> None:
        sch, rv, lanes = self.sch, self.rv, self.lanes
        n, p, t, w, a, o, k, s = sch.get_loops(rv)
        wide: Any = extent_of(sch, w)
        tb, ti = sch.split(t, [None, self.plan.block])
        wo, wi = sch.split(w, [None, self.plan.rows])
        over, lane = sch.split(o, [None, lanes])
        sch.reorder(n, tb, p, ti, wo, a, k, s, wi, over, lane)
        sch.compute_at(inputs, tb)
        *_, which, depth, _ = loops_inside(sch, inputs, tb)
        sch.reorder(depth, which)
        sch.unroll(which)
        # The padded rows of one tile and channel stay in the first cache.
        for each in before:
            sch.compute_at(each, depth)
        sch.reverse_compute_at(results, wo)
        sch.reverse_compute_at(write, ti)
        row, *pixels, last = loops_inside(sch, results, wo)  # of one pixel there is no loop
        across, vector = sch.split(last, [None, lanes])
        sch.reorder(*pixels, across, row, vector)
        self.finish([across, row], vector)
        self.sum_in_tile(a, k, 3, sch.cache_write(rv, 0, "local"))
        ask_for_panels(sch, [k, s], Ahead(self.plan.ahead, self.plan.panel))
        self.finish_copy(write, ti, True)
        partition_tails(sch, (wo, wide, self.plan.rows))
        self.join([n, tb])
