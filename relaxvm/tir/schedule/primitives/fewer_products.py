"""`fewer_products`: convolutions of three rows, written with fewer multiplications.

    C[o, h, w] += X[c, h + r, w + s] * W[o, c, r, s]          3 products for each row and s

    V[t, a, c, x] = sum_i B[a, i] * X[c, 4 * t + i, x]        a tile t is 4 rows of the result
    M[t, w, a, o] += V[t, a, c, w + s] * U[a, c, s, o]        6 products for 4 rows and each s
    C[o, 4 * t + i, w] = sum_a A[i, a] * M[t, w, a, o]

with U[a, c, s, o] = sum_r G[a, r] * W[o, c, r, s]. That is half the work (two thirds for tiles of
two rows, whose weights grow by a third instead of two). Sums are of other numbers than the user
wrote: results differ by a few roundings more.

The matrices are those of Toom and Cook for the points 0, 1, -1, 2, -2 and infinity, transposed:
S. Winograd, Arithmetic Complexity of Computations (1980); A. Lavin, S. Gray, arXiv:1509.09308. The
width stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ....arith import Analyzer
from ....base import NamedTuple
from ....ir import FloatImm, IntImm, Mul, PrimExpr, const, is_const
from ...analysis import get_block_access_region
from ...op import if_then_else
from ...stmt import Block, Buffer, BufferLoad, BufferStore, decl_buffer
from ..model.places import add_allocation, insert_after, insert_before, nest_of
from ..model.primitive import BLOCK, list_of, primitive
from ..model.reducer import match_reducer
from ..model.state import State, refuse
from .checks import check_runs_everywhere
from .layout import whole_nest
from .nests import looped, new_axis

ROWS = 3
"""Of the filters that can be written so."""
_POINTS = (0, 1, -1, 2, -2)


class Matrices(NamedTuple):
    """data [a, i], weight [a, r], result [j, a]:  y = result @ ((weight @ g) * (data @ d)) is
    y[j] = sum_r d[j + r] * g[r].
    """

    data: np.ndarray
    weight: np.ndarray
    result: np.ndarray


def matrices(outputs: int) -> Matrices:
    """The matrices for tiles of so many results of a filter of three."""
    points = [Fraction(p) for p in _POINTS[: outputs + ROWS - 2]]
    count = len(points) + 1
    data, weight = np.zeros((count, count)), np.zeros((count, ROWS))
    result = np.zeros((outputs, count))
    for k, p in enumerate(points):
        others = [float(q) for q in points if q != p]
        data[k, : count - 1] = np.poly(others)[::-1]
        scale = float(np.prod([float(p) - q for q in others]))
        weight[k] = [float(p) ** r / scale for r in range(ROWS)]
        result[:, k] = [float(p) ** j for j in range(outputs)]
    data[-1] = np.poly([float(p) for p in points])[::-1]
    weight[-1, -1] = result[-1, -1] = 1
    return Matrices(data, weight, result)


class Filter(NamedTuple):
    """A convolution that can be written so: out[n, o, h, w] += data[n, c, h + r, w + s] *
    weight[o, c, r, s].

    sizes  of the axes o, h, w, c, s
    """

    data: Buffer
    weight: Buffer
    out: Buffer
    sizes: tuple[int, int, int, int, int]


def match_filter(block: Block) -> Filter | str:
    """The filter that a block is, or why it is none."""
    reducer = match_reducer(block)
    if reducer is None or reducer.name != "sum":
        return "it sums no products"
    product = reducer.updates[0]
    loads: list[Any] = [product.a, product.b] if isinstance(product, Mul) else []
    # Casts are none of the form: what they round or cut off would be lost.
    if not loads or not all(isinstance(e, BufferLoad) for e in loads):
        return "it sums no products of elements as they are"
    out, written = reducer.buffers[0]
    extents = {a.var: a.range.extent for a in block.iter_vars}
    spatial = [a.var for a in block.iter_vars if a.is_spatial]
    if list(written) != spatial or len(spatial) != 4:
        return "its result is no [image, channel, row, column]"
    n, o, h, w = spatial
    data, weight = loads if loads[1].indices[:1] == (o,) else loads[::-1]
    taps = tuple(weight.indices[1:])
    summed = {a.var for a in block.iter_vars if a.is_reduce}
    if weight.indices[:1] != (o,) or len(taps) != 3 or {*taps} != summed:
        return "its weight is no [channel, channel, row, column]"
    c, r, s = taps
    simplify = Analyzer(wrap=True).simplify
    reads = [n, c, simplify(h + r), simplify(w + s)]
    if [*data.indices[:2], *(simplify(i) for i in data.indices[2:])] != reads:
        return "its window does not slide by one pixel, or its taps or channels are apart"
    if not is_const(extents[r], ROWS):
        rows: Any = extents[r]
        rows = getattr(rows, "value", rows)  # printing it loads the printer of scripts
        return f"its filter has {rows} rows, and fewer products are known of {ROWS}"
    if {str(b.dtype) for b in (data.buffer, weight.buffer, out)} != {"float32"}:
        return "its numbers are no float32"
    start = block.init.value if isinstance(block.init, BufferStore) else None
    if not (isinstance(start, FloatImm) and start.value == 0):
        return "its sums do not begin at 0"
    sizes: list[Any] = [extents[v] for v in (o, h, w, c, s)]
    shapes: list[Any] = [*out.shape[1:], *weight.buffer.shape, *data.buffer.shape[1:]]
    if not all(isinstance(e, IntImm) for e in (*sizes, *shapes)):
        return "its sizes are not known when it is built"
    high, wide, depth, across = (int(e.value) for e in sizes[1:])
    channels = int(sizes[0].value)
    wanted = [channels, high, wide, channels, depth, ROWS, across, depth]
    same = all(is_const(e, k) for e, k in zip(shapes, wanted))
    if not same or not extents[n] is out.shape[0] is data.buffer.shape[0]:
        return "it goes over parts of its buffers"
    return Filter(data.buffer, weight.buffer, out, (channels, high, wide, depth, across))


@primitive(block=BLOCK, gives=list_of(BLOCK))
def fewer_products(
    state: State, block: Block, rows: int, panel: int
) -> tuple[State, tuple[Block, ...]]:
    """Write a convolution of three rows with fewer multiplications. Results differ by a few
    roundings more than by another order of the sums.

    rows     of the result that a tile has: 2 or 4
    panel    channels of the result that lie side by side, a part of all
    returns  [weights, inputs, products, results, copy], the new blocks

    Raises ScheduleError for other blocks than out[n, o, h, w] += data[n, c, h + r, w + s] *
    weight[o, c, r, s] of float32, over whole buffers, with three values of r.

        C[o, h, w] += X[c, h + r, w + s] * W[o, c, r, s]    →    U = G W;  V = B X
                                                                 M[t, w, a] += V[t, a, w + s] * U[a]
                                                                 C = A M
    """
    conv = match_filter(block)
    if isinstance(conv, str):
        refuse(f"block {block.name_hint} is no such convolution: {conv}", block)
    if rows not in (2, 4):
        refuse(f"tiles are of 2 or 4 rows, got {rows}", block)
    if panel < 1 or conv.sizes[0] % panel:
        refuse(f"panels of {panel} leave a rest of {conv.sizes[0]} channels", block)
    check_runs_everywhere(state, block)
    top = whole_nest(state, block)
    form = _Form(conv, rows, panel, block)
    scope = state.scope(state.realize(block))
    place = form.blocks.index(form.products)
    nests = [looped(b) for b in form.blocks]
    state = state.replace(top, nests[place], [(block, form.products)])
    products = state.now(form.products)
    for nest in nests[:place]:
        state = insert_before(state, nest_of(state, products), nest)
    for nest in reversed(nests[place + 1 :]):
        state = insert_after(state, nest_of(state, products), nest)
    state = add_allocation(state, scope, *form.buffers)
    told = [b for b in form.blocks if b is not form.rows]
    return state, tuple(state.now(b) for b in told)


def transformed_weights(weight: np.ndarray, rows: int, panel: int) -> np.ndarray:
    """U[panel of channels, a, c, s, channel in the panel] of weights [o, c, 3, s]."""
    # [r, panel, channel, s, output of the panel]
    panels = weight.reshape(-1, panel, *weight.shape[1:])
    taps = np.ascontiguousarray(panels.transpose(3, 0, 2, 4, 1)).astype("float64")
    factors = matrices(rows).weight
    packed = np.empty((taps.shape[1], len(factors), *taps.shape[2:]), weight.dtype)
    for a, row in enumerate(factors):
        total = row[0] * taps[0]
        for factor, tap in zip(row[1:], taps[1:]):
            total += factor * tap
        packed[:, a] = total
    return packed


class _Form:
    """The blocks that stand for one convolution.

    blocks, buffers  theirs, in order
    products         the block that multiplies
    rows             the block that fills up the last tile; None: it is full
    """

    def __init__(self, f: Filter, rows: int, panel: int, block: Block) -> None:
        self._index = block.iter_vars[0].var.dtype
        self.blocks: list[Block] = []
        self.buffers: list[Buffer] = []
        self.rows: Block | None = None
        channels, height, wide, depth, taps = f.sizes
        batch, _, high, across = f.data.shape
        data, matrix, dtype = f.data, matrices(rows), str(f.data.dtype)
        count, panels, tiles = rows + ROWS - 1, channels // panel, -(-height // rows)

        def transformed(p: Any, a: Any, k: Any, s: Any, o: Any) -> PrimExpr:
            column = [f.weight[p * panel + o, k, r, s] for r in range(ROWS)]
            return _chosen(a, matrix.weight, column)

        shape: tuple[Any, ...] = (panels, count, depth, taps, panel)
        weight = self._stage(f.weight.name, shape, dtype, transformed)
        if tiles * rows != height:
            more = (batch, depth, tiles * rows + ROWS - 1, across)

            def padded(n: Any, k: Any, y: Any, x: Any) -> PrimExpr:
                return if_then_else(y < high, f.data[n, k, y, x], const(0, dtype))

            data = self._stage("rows", more, dtype, padded)
            self.rows = self.blocks[-1]

        def differences(n: Any, t: Any, a: Any, k: Any, x: Any) -> PrimExpr:
            lines = [data[n, k, t * rows + i, x] for i in range(count)]
            return _chosen(a, matrix.data, lines)

        inputs = self._stage("inputs", (batch, tiles, count, depth, across), dtype, differences)
        shape = (batch, panels, tiles, wide, count, panel)

        def step(n: Any, p: Any, t: Any, w: Any, a: Any, o: Any, k: Any, s: Any) -> PrimExpr:
            return inputs[n, t, a, k, w + s] * weight[p, a, k, s, o]

        products = self._stage("products", shape, dtype, step, sums=weight.shape[2:4])
        self.products = self.blocks[-1]

        def results(n: Any, p: Any, t: Any, i: Any, w: Any, o: Any) -> PrimExpr:
            terms = [products[n, p, t, w, const(a, w.dtype), o] for a in range(count)]
            return _chosen(i, matrix.result, terms)

        stage = self._stage("results", (batch, panels, tiles, rows, wide, panel), dtype, results)

        def turned(n: Any, o: Any, h: Any, w: Any) -> PrimExpr:
            return stage[n, o // panel, h // rows, h % rows, w, o % panel]

        self._stage(f.out.name, f.out.shape, dtype, turned, f.out)

    def _stage(
        self,
        name: str,
        shape: Sequence[Any],
        dtype: str,
        value: Callable[..., PrimExpr],
        out: Buffer | None = None,
        sums: Sequence[Any] = (),
    ) -> Buffer:
        """A block that computes each element of `out`, or of a buffer of its own; over axes of the
        sizes `sums` it adds up.
        """
        if out is None:
            out = decl_buffer(shape, dtype, name)
            self.buffers.append(out)
        axes = [new_axis(f"v{k}", e, self._index) for k, e in enumerate(shape)]
        position = tuple(a.var for a in axes)
        axes += [new_axis(*x, self._index, "reduce") for x in zip("cs", sums)]
        each = value(*(a.var for a in axes))
        init = BufferStore(out, const(0, out.dtype), position) if sums else None
        body = BufferStore(out, BufferLoad(out, position) + each if sums else each, position)
        block = Block(tuple(axes), (), (), name, body)
        reads, writes, _ = get_block_access_region(block)
        own = [r for r in reads if r.buffer not in {w.buffer for w in writes}]
        self.blocks.append(block.replace(reads=tuple(own), writes=tuple(writes), init=init))
        return out


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
