"""Convolutions of three rows in fewer multiplications: Winograd's way, along the height.

    C[o, h, w] += X[c, h + r, w + s] * W[o, c, r, s]          3 products for each row and s

    V[t, a, c, x] = sum_i B[a, i] * X[c, 4 * t + i, x]        a tile t is 4 rows of the result
    M[t, w, a, o] += V[t, a, c, w + s] * U[a, c, s, o]        6 products for 4 rows and each s
    C[o, 4 * t + i, w] = sum_a A[i, a] * M[t, w, a, o]

with U[a, c, s, o] = sum_r G[a, r] * W[o, c, r, s], which is made of constant weights when the
program is built. That is half the work (two thirds for tiles of two rows, whose weights grow by a
third instead of two). Sums are of other numbers than the user wrote: results differ by a few
roundings more, so contexts that allow `approximate` numerics only get this.

The matrices are those of Toom and Cook for the points 0, 1, -1, 2, -2 and infinity, transposed:
S. Winograd, Arithmetic Complexity of Computations (1980); A. Lavin, S. Gray, arXiv:1509.09308. The
width stays as it is: vectors lie along the channels, steps read runs of the input, and neither the
images nor their tiles need to be turned round before the products.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ....arith import Analyzer
from ....base import CpuModel, ScheduleError, decided
from ....ir import FloatImm, IntImm, Map, Mul, PrimExpr, Range, Var, const, is_const, walk
from ...analysis import get_block_access_region
from ...op import floormod, if_then_else
from ...stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    SeqStmt,
    Stmt,
    decl_buffer,
    seq,
)
from ...transform import PARTITION_HINT, with_index_dtype
from ..layout import looped
from ..reducer import match_reducer
from ..regions import users_of
from ..schedule import Schedule
from .contraction import tile_shape
from .convolution_shape import Convolution, block_of, match_convolution
from .convolution_work import Sizes, Work, sizes_of
from .injective import inline_producers
from .panels import ahead_of, ask_for_panels
from .queries import is_pointwise, loops_inside, loops_of

_ROWS = 3
_POINTS = (0, 1, -1, 2, -2)
# Weights are read once for each pixel: of fewer pixels the larger ones cost more than is saved.
_LEAST_PIXELS = 128
# Of few channels there are few products to save.
_LEAST_CHANNELS = 32
_LEAST_LANES = 4
# Weights of more bytes than so many second caches get tiles of two rows, with which they grow less.
_MOST_WEIGHTS = 8


class Matrices(NamedTuple):
    """data [a, i], weight [a, r], result [j, a]:  y = result @ ((weight @ g) * (data @ d)) is
    y[j] = sum_r d[j + r] * g[r].
    """

    data: np.ndarray
    weight: np.ndarray
    result: np.ndarray


def matrices(outputs: int) -> Matrices:
    """The matrices for tiles of so many results of a filter of three."""
    points = [Fraction(p) for p in _POINTS[: outputs + _ROWS - 2]]
    count = len(points) + 1
    data, weight = np.zeros((count, count)), np.zeros((count, _ROWS))
    result = np.zeros((outputs, count))
    for k, p in enumerate(points):
        others = [float(q) for q in points if q != p]
        data[k, : count - 1] = np.poly(others)[::-1]
        scale = float(np.prod([float(p) - q for q in others]))
        weight[k] = [float(p) ** r / scale for r in range(_ROWS)]
        result[:, k] = [float(p) ** j for j in range(outputs)]
    data[-1] = np.poly([float(p) for p in points])[::-1]
    weight[-1, -1] = result[-1, -1] = 1
    return Matrices(data, weight, result)


# -- the form --------------------------------------------------------------------------------------


def with_fewer_products(
    fn: PrimFunc, constants: Collection[int], cpu: CpuModel
) -> tuple[PrimFunc, dict[int, Callable[[np.ndarray], np.ndarray]]]:
    """`fn`, not yet scheduled, with a convolution of constant weights written as above; and
    {position of the weights: what makes U of them}. `fn` itself where that does not pay.
    """
    fn = with_index_dtype(fn, "int64")
    try:
        sch = Schedule(fn, error_render_level="fast")
        blocks = sch.get_child_blocks(sch.get_block("root"))
    except ScheduleError:
        return fn, {}
    root: Block = sch.get(sch.get_block("root"))
    for rv in blocks:
        c = match_convolution(sch.get(rv))
        sizes = None if c is None else sizes_of(sch, rv, c)
        if c is None or sizes is None or not _fits(sch.get(rv), c, sizes, cpu):
            continue
        places = [k for k in constants if fn.buffer_map.get(fn.params[k]) is c.weight]
        if len(places) != 1 or len(users_of(sch.state, c.weight.data)[0]) != 1:
            continue
        form = _Form(sch.get(rv), c, sizes, cpu)
        nest: Any = sch.get(next(iter(sch.get_loops(rv))))
        children = list(root.body.seq) if isinstance(root.body, SeqStmt) else [root.body]
        if not any(s is nest for s in children) or not _is_whole(sch, rv, nest):
            continue
        body = seq(*(t for s in children for t in (form.nests if s is nest else [s])))
        new_root = root.replace(body=body, alloc_buffers=(*root.alloc_buffers, *form.buffers))
        bindings = dict(fn.buffer_map)
        bindings[fn.params[places[0]]] = form.weight
        realize = BlockRealize((), const(True), new_root)
        decided("{} in fewer products, by tiles of {} rows", sch.get(rv), form.rows)
        return fn.replace(body=realize, buffer_map=Map(bindings)), {places[0]: form.pack}
    return fn, {}


def _is_whole(sch: Schedule, rv: Any, nest: Stmt) -> bool:
    """Whether the loops `nest` are around block `rv` alone, which starts sums at 0 and skips no
    iteration.
    """
    block: Block = sch.get(rv)
    realize = sch.state.realize(block)
    while isinstance(nest, For):
        nest = nest.body
    start = block.init.value if isinstance(block.init, BufferStore) else None
    zero = isinstance(start, FloatImm) and start.value == 0
    return nest is realize and zero and is_const(realize.predicate, True)


def _fits(block: Block, c: Convolution, sizes: Sizes, cpu: CpuModel) -> bool:
    """Whether `block` is such a convolution, and large enough."""
    out: Buffer = block.writes[0].buffer
    lanes = cpu.lanes(out.dtype.bits)
    if not sizes.known or c.height is None or c.group_size is not None or sizes.taps % _ROWS:
        return False
    if {str(b.dtype) for b in (c.data, c.weight, out)} != {"float32"} or len(c.indices) != 4:
        return False
    shapes = [*c.weight.shape, *out.shape[1:]]
    wanted = [sizes.channels, sizes.depth, _ROWS, sizes.taps // _ROWS]
    wanted += [sizes.channels, sizes.height, sizes.width]
    if len(shapes) != len(wanted) or not all(is_const(e, n) for e, n in zip(shapes, wanted)):
        return False
    if not all(isinstance(e, IntImm) for e in c.data.shape[2:]):
        return False
    # Casts are none of the form: what they round or cut off would be lost.
    reducer = match_reducer(block)
    product = None if reducer is None else reducer.updates[0]
    if not isinstance(product, Mul) or not all(
        isinstance(e, BufferLoad) for e in (product.a, product.b)
    ):
        return False
    _, channel, *taps = c.weight_indices
    simplify = Analyzer(wrap=True).simplify
    reads = [c.indices[0], c.channel, c.height, c.width]
    steps = [simplify(v + t) for v, t in zip((c.height, c.width), taps)]
    return (
        c.strides == (1, 1)
        and list(c.weight_indices) == [c.channel, channel, *taps]
        and all(isinstance(v, Var) for v in (c.indices[0], channel, *taps))
        and [r.min for r in block.writes[0].region] == reads
        and [c.indices[1], *(simplify(i) for i in c.indices[2:])] == [channel, *steps]
        and c.data.shape[0] is out.shape[0]
        and lanes >= _LEAST_LANES
        and sizes.channels % (2 * lanes) == 0
        and min(sizes.channels, sizes.depth) >= _LEAST_CHANNELS
        and sizes.height * sizes.width >= _LEAST_PIXELS
    )


class _Form:
    """The blocks that stand for one convolution.

    nests, buffers  theirs, in order
    weight          U[panel of channels, a, c, s, channel in the panel]
    """

    def __init__(self, block: Block, c: Convolution, sizes: Sizes, cpu: CpuModel) -> None:
        lanes = cpu.lanes(c.data.dtype.bits)
        widths = [n for n in (2, 4) if sizes.channels % (n * lanes) == 0]
        registers = cpu.vector_registers
        _, vectors = tile_shape(sizes.width, sizes.channels, lanes, registers, widths)
        batch, _, high, across = c.data.shape
        depth, width = sizes.depth, sizes.taps // _ROWS
        self.panel = vectors * lanes
        size = 2 * sizes.channels * depth * _ROWS * width * (c.data.dtype.bits // 8)
        self.rows = 2 if size > _MOST_WEIGHTS * cpu.l2_bytes else 4
        self.matrices = matrices(self.rows)
        count, panels = self.rows + _ROWS - 1, sizes.channels // self.panel
        tiles = -(-sizes.height // self.rows)
        self.nests: list[Stmt] = []
        self.buffers: list[Buffer] = []
        dtype, result = str(c.data.dtype), block.writes[0].buffer
        shape = (panels, count, depth, width, self.panel)
        self.weight = decl_buffer(shape, dtype, c.weight.name)
        data = c.data
        if tiles * self.rows != sizes.height:
            more = (batch, depth, tiles * self.rows + _ROWS - 1, across)

            def padded(n: Any, k: Any, y: Any, x: Any) -> PrimExpr:
                return if_then_else(y < high, c.data[n, k, y, x], const(0, dtype))

            data = self._stage("rows", more, dtype, padded)

        def differences(n: Any, t: Any, a: Any, k: Any, x: Any) -> PrimExpr:
            rows = [data[n, k, t * self.rows + i, x] for i in range(count)]
            return _chosen(a, self.matrices.data, rows)

        inputs = self._stage("inputs", (batch, tiles, count, depth, across), dtype, differences)
        self._products(inputs, (batch, panels, tiles, sizes.width, count, self.panel))
        products = self.buffers[-1]

        def results(n: Any, p: Any, t: Any, i: Any, w: Any, o: Any) -> PrimExpr:
            terms = [products[n, p, t, w, const(a, w.dtype), o] for a in range(count)]
            return _chosen(i, self.matrices.result, terms)

        rows = (batch, panels, tiles, self.rows, sizes.width, self.panel)
        stage = self._stage("results", rows, dtype, results)

        def turned(n: Any, o: Any, h: Any, w: Any) -> PrimExpr:
            return stage[n, o // self.panel, h // self.rows, h % self.rows, w, o % self.panel]

        self._stage(result.name, result.shape, dtype, turned, result)

    def pack(self, array: np.ndarray) -> np.ndarray:
        """U of the weights."""
        # [r, panel, channel, s, output of the panel]
        panels = array.reshape(-1, self.panel, *array.shape[1:])
        rows = np.ascontiguousarray(panels.transpose(3, 0, 2, 4, 1)).astype("float64")
        packed = np.empty((rows.shape[1], len(self.matrices.weight), *rows.shape[2:]), array.dtype)
        for a, factors in enumerate(self.matrices.weight):
            total = factors[0] * rows[0]
            for factor, row in zip(factors[1:], rows[1:]):
                total += factor * row
            packed[:, a] = total
        return packed

    def _stage(
        self,
        name: str,
        shape: Sequence[Any],
        dtype: str,
        value: Callable[..., PrimExpr],
        out: Buffer | None = None,
    ) -> Buffer:
        """A block that computes each element of `out`, or of a buffer of its own."""
        if out is None:
            out = decl_buffer(shape, dtype, name)
            self.buffers.append(out)
        axes = [_axis(f"v{k}", e) for k, e in enumerate(shape)]
        position = tuple(a.var for a in axes)
        self._add(Block(tuple(axes), (), (), name, BufferStore(out, value(*position), position)))
        return out

    def _products(self, inputs: Buffer, shape: Sequence[Any]) -> None:
        out = decl_buffer(shape, str(inputs.dtype), "products")
        self.buffers.append(out)
        depth, width = self.weight.shape[2], self.weight.shape[3]
        axes = [_axis(f"v{k}", e) for k, e in enumerate(shape)]
        sums = [_axis("c", depth, "reduce"), _axis("s", width, "reduce")]
        n, p, t, w, a, o = position = tuple(x.var for x in axes)
        k, s = (x.var for x in sums)
        step = inputs[n, t, a, k, w + s] * self.weight[p, a, k, s, o]
        body = BufferStore(out, BufferLoad(out, position) + step, position)
        init = BufferStore(out, const(0, out.dtype), position)
        self._add(Block((*axes, *sums), (), (), "products", body, init))

    def _add(self, block: Block) -> None:
        reads, writes, _ = get_block_access_region(block.replace(init=None))
        own = [r for r in reads if r.buffer not in {w.buffer for w in writes}]
        self.nests.append(looped(block.replace(reads=tuple(own), writes=tuple(writes)))[0])


def _axis(name: str, extent: Any, kind: str = "spatial") -> IterVar:
    size = const(extent, "int64") if isinstance(extent, int) else extent
    return IterVar(Range.from_min_extent(const(0, "int64"), size), Var(name, "int64"), kind)


def _chosen(row: Any, matrix: np.ndarray, terms: Sequence[PrimExpr]) -> PrimExpr:
    """``sum_k matrix[row, k] * terms[k]``, the row known when loops are unrolled."""
    value: Any = None
    for k in reversed(range(len(matrix))):
        total: Any = None
        for factor, term in zip(matrix[k], terms):
            if factor:
                part = term if factor == 1 else term * const(float(factor), term.dtype)
                total = part if total is None else total + part
        value = total if value is None else if_then_else(row.equal(k), total, value)
    return value


# -- scheduling ------------------------------------------------------------------------------------


def schedule_winograd(sch: Schedule, blocks: Sequence[Any], cpu: CpuModel) -> Sequence[Any]:
    """Schedule the first such form among `blocks`; returns the blocks that are taken care of."""
    for rv in blocks:
        if _is_form(sch, rv, cpu):
            return _Winograd(sch, rv, cpu).run(blocks)
    return ()


def _is_form(sch: Schedule, rv: Any, cpu: CpuModel) -> bool:
    """Whether a block sums products of the form, and blocks of the form stand around it."""
    block: Block = sch.get(rv)
    reducer = match_reducer(block)
    if reducer is None or reducer.name != "sum" or len(reducer.updates) != 1:
        return False
    axes = [a.var for a in block.iter_vars]
    loads = [n for n in walk(reducer.updates[0]) if isinstance(n, BufferLoad)]
    if len(axes) != 8 or len(loads) != 2 or loops_of(sch, rv) is None:
        return False
    n, p, t, w, a, o, k, s = axes
    out, written = reducer.buffers[0]
    wanted = [[n, t, a, k, w + s], [p, a, k, s, o], axes[:6]]
    buffers = [*(x.buffer for x in loads), out]
    if [list(x) for x in (loads[0].indices, loads[1].indices, written)] != wanted:
        return False
    known = all(isinstance(e, IntImm) for b in buffers for e in b.shape[1:])
    if not known or [r.buffer for r in (*block.reads, *block.writes)] != buffers:
        return False
    before, after = sch.get_producers(rv), sch.get_consumers(rv)
    if len(before) != 1 or len(after) != 1 or len(sch.get_consumers(after[0])) != 1:
        return False
    write = sch.get_consumers(after[0])[0]
    ranks = [len(sch.get(b).iter_vars) for b in (before[0], after[0], write)]
    return ranks == [5, 6, 4] and is_const(floormod(out.shape[-1], cpu.lanes(out.dtype.bits)), 0)


class _Winograd(Work):
    """The scheduling of one form."""

    def __init__(self, sch: Schedule, rv: Any, cpu: CpuModel) -> None:
        self.sch, self.rv, self.cpu = sch, rv, cpu
        # The batch may be known late.
        block: Block = sch.get(rv)
        shapes: Any = [r.buffer.shape[1:] for r in (*block.reads, *block.writes)]
        inputs, weight, out = shapes
        self.tiles, _, _, self.across = (e.value for e in inputs)
        self.count, depth, taps, self.panel = (e.value for e in weight)
        panels, _, self.wide = (e.value for e in out[:3])
        self.bytes = 4
        self.lanes = cpu.lanes(32)
        pixels = self.tiles * (self.count - _ROWS + 1)
        self.sizes = Sizes(
            panels * self.panel, 1, pixels, self.wide, True, depth, taps * self.count
        )

    def run(self, blocks: Sequence[Any]) -> list[Any]:
        """Schedule it; returns the blocks that went along."""
        sch, rv = self.sch, self.rv
        names = {id(sch.get(b)): b for b in blocks}

        def named(rvs: Sequence[Any]) -> list[Any]:
            return [names[id(sch.get(b))] for b in rvs]

        (inputs,) = named(sch.get_producers(rv))
        (results,) = named(sch.get_consumers(rv))
        (write,) = named(sch.get_consumers(results))
        own = [rv, inputs, results, write]
        gone = inline_producers(sch, [b for b in blocks if b not in own], self.cpu)
        names = {id(sch.get(b)): b for b in blocks if b not in gone}
        after = named(sch.get_consumers(write))
        if len(after) == 1 and is_pointwise(sch, after[0], sch.get(write).writes[0].buffer):
            sch.compute_inline(write)
            write = after[0]
            own.append(write)
        before = named(sch.get_producers(inputs))
        for first in (b for each in before for b in named(sch.get_producers(each))):
            sch.compute_inline(first)
            own.append(first)
        self._loops(inputs, before, results, write)
        return [*own, *gone, *before]

    def _loops(self, inputs: Any, before: list[Any], results: Any, write: Any) -> None:
        sch, rv, lanes = self.sch, self.rv, self.lanes
        vectors = [self.panel // lanes]
        pixels, _ = tile_shape(self.wide, self.panel, lanes, self.cpu.vector_registers, vectors)
        n, p, t, w, a, o, k, s = sch.get_loops(rv)
        tb, ti = sch.split(t, [None, self._block(n)])
        wo, wi = sch.split(w, [None, pixels])
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
        row, pixel, last = loops_inside(sch, results, wo)
        across, vector = sch.split(last, [None, lanes])
        sch.reorder(pixel, across, row, vector)
        self.finish([across, row], vector)
        sums = sch.cache_write(rv, 0, "local")
        sch.reverse_compute_at(sums, a)
        self.sum_in_tile(k, 3)
        ask_for_panels(sch, [k, s], ahead_of(sch.get(rv).reads[1].buffer, self.cpu))
        self.write_tile(sums, a, lanes)
        self.finish_copy(write, ti)
        if self.wide % pixels:
            sch.annotate(wo, PARTITION_HINT, True)
        self.join([n, tb])

    def _block(self, batch: Any) -> int:
        """The tiles of rows of a block: what fits the second cache; all of an image if to read its
        inputs again for each panel is less than to read weights, which do not fit, for each block.
        """
        sizes, room = self.sizes, self.cpu.l2_bytes // 4
        one = self.count * sizes.depth * self.across * self.bytes
        size: int = block_of(self.tiles, 1, room / one, self.share([batch]))
        weights = sizes.channels * sizes.depth * sizes.taps * self.bytes
        panels = sizes.channels // self.panel
        again = weights * self.tiles // size
        return self.tiles if weights > room and panels * self.tiles * one < again else size
