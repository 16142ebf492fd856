"""Elements that lie elsewhere: gathers, and copies whose last axis moves.

An index that is read from memory stands inside another index:

    for i, j: B[i, j] = A[I[i], j]          rows: whole runs of A are copied, I is read once a row
    for i, j: B[i, j] = A[I[i, j], j]       across rows, as gather_elements along another axis:

        for jo:                             columns of A, so few that they stay in the second cache
            panel = A[:, jo]
            for i, j in columns: B[i, j] = panel[I[i, j], j]

Read as written, each element of the second kind comes from another line of A, and when the next one
of that line is wanted it has left the caches. Indices are checked where they are read
(`bound_check`); the checks are what `GuardIndices` finds proven by, also in the panel.

What is read along one axis of memory and written along another:

    for i, j: B[i, j] = A[j, i]      →      for io, jo: for i, j in a tile: B[i, j] = A[j, i]

A tile is a few cache lines of either buffer, so that each line is used up while it is in cache. In
a plain copy the tile is transposed in registers: vectors are loaded along one axis, exchanged by
shuffles, and stored along the other. Rows and columns that are left over are parts of squares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ....base import CpuModel, DataType, NamedTuple, record
from ....ir import IntImm, PrimExpr, Ramp, Shuffle, Var, const
from ...stmt import (
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    LetStmt,
    PrimFunc,
    Stmt,
    decl_buffer,
    seq,
)
from ..primitives.intrin import register_builtin
from ..primitives.nests import function_over, looped, new_axis
from ..schedule import Schedule
from .contraction import partition_tails
from .cost import Cost, predict
from .matches import Across
from .plan import Plan
from .queries import extent_of, is_copy
from .view import View

# -- gathers ---------------------------------------------------------------------------------------


@record
class Gather(Plan):
    """Panels of `columns` of what is gathered from."""

    columns: int

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Gather | None:
        gather = view.gather
        if gather is None:
            return None
        buffer = gather.load.buffer
        size, columns = buffer.shape[gather.axis], view.extents[gather.along]
        if not isinstance(size, IntImm) or columns is None:
            return None
        item = buffer.dtype.itemsize
        times = math.prod(view.extents[v] or 0 for v in _rest(view, gather))
        # A copy pays where most of it is read, and where reading it in place misses the cache.
        if 2 * times < size.value or size.value * columns * item < cpu.l2_bytes:
            return None
        width = _width(size.value * item, columns, cpu)
        return None if width * item < cpu.line_bytes else cls(width)

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        return self.varied(columns=(max(1, self.columns // 2), self.columns * 2))

    def wrong(self, view: View) -> str | None:
        gather = view.gather
        if gather is None:
            return "it gathers nothing across rows"
        columns = view.extents[gather.along]
        if columns is None or self.columns > columns:
            return f"panels of {self.columns} columns, and there are {columns or 'unknown many'}"
        return None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        gather: Any = view.gather
        demand, buffer = view.sweep(cpu, self.columns), gather.load.buffer
        size: Any = buffer.shape[gather.axis]
        panel = float(size.value * self.columns * buffer.dtype.itemsize)
        # A panel is copied, and then read from where that is.
        near = tuple((amount, min(whole, panel)) for amount, whole in demand.traffic)
        return predict(demand._replace(traffic=(*near, *demand.traffic)), cpu)

    def apply(self, view: View) -> None:
        sch = view.sch
        gather: Any = view.gather
        loops: Any = view.by_axis
        outer, inner = sch.split(loops[gather.along], [None, self.columns])
        rest = [loops[v] for v in _rest(view, gather)]
        sch.reorder(*(loops[v] for v in gather.kept), outer, *rest, inner)
        partition_tails(sch, (outer, view.extents[gather.along], self.columns))
        position = [r.buffer for r in view.block.reads].index(gather.load.buffer)
        sch.compute_at(sch.cache_read(view.rv, position, "global"), outer)


def _rest(view: View, gather: Across) -> list[Var]:
    """The axes that the panel is read again for."""
    return [v for v in view.extents if v not in gather.kept and v is not gather.along]


def _width(column_bytes: int, columns: int, cpu: CpuModel) -> int:
    """How many columns half of the second cache holds: a power of two, or all of them."""
    width = 1
    while 2 * width * column_bytes <= cpu.l2_bytes // 2 and width < columns:
        width *= 2
    return min(width, columns)


# -- transposes ------------------------------------------------------------------------------------


@record
class Transpose(Plan):
    """Tiles of `rows` x `columns`.

    lanes  squares of so many are transposed in registers; 0: none are
    """

    rows: int
    columns: int
    lanes: int = 0

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Transpose | None:
        return cls.in_squares(view, *squares_of(view.block.writes[0].buffer, cpu))

    @classmethod
    def in_squares(cls, view: View, lanes: int, tile: int) -> Transpose | None:
        """Tiles of `tile` rows and columns, of squares of so many lanes where there are any."""
        axes = view.transposed
        if axes is None:
            return None
        sizes = [view.extents[v] for v in axes]
        if any(n is not None and n < lanes for n in sizes):
            return None
        if lanes == 1 or not _is_of_squares(view) or None in sizes:
            return cls(tile, tile)
        return cls(tile, tile, lanes)

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        rows, columns = ({max(1, n // 2), n, n * 2} for n in (self.rows, self.columns))
        return self.varied(lanes={0, self.lanes}, rows=rows, columns=columns)

    def wrong(self, view: View) -> str | None:
        axes = view.transposed
        if axes is None:
            return "all it reads lies as what it writes"
        sizes = [view.extents[v] for v in axes]
        lanes = self.lanes
        if lanes and (lanes == 1 or lanes & (lanes - 1) or not _is_of_squares(view)):
            return f"squares of {lanes} are for plain copies, and powers of two from 2 on"
        for what, size, most in zip(("rows", "columns"), (self.rows, self.columns), sizes):
            if lanes and (most is None or size % lanes):
                return (
                    f"tiles of {size} {what} are no squares of {lanes}, or there are unknown many"
                )
            if not lanes and most is not None and size > max(most, 2):
                return f"tiles of {size} {what}, and there are {most}"
        return None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        # The rows of a square are exchanged in halves, quarters, ...
        demand = view.sweep(cpu, self.lanes or 1, math.log2(self.lanes or 1))
        # Of lines that a tile has a part of, the rest comes again with others.
        line = cpu.line_bytes / view.block.writes[0].buffer.dtype.itemsize
        again = sum(max(0.0, line / side - 1) for side in (self.rows, self.columns))
        amount, whole = demand.traffic[-1]
        return predict(demand._replace(traffic=(*demand.traffic, (amount * again, whole))), cpu)

    def apply(self, view: View) -> None:
        sch, extents = view.sch, view.extents
        loops: Any = view.by_axis
        axes: Any = view.transposed
        across, along = axes
        others = [loop for v, loop in loops.items() if v not in axes]
        rows, columns = extents[across], extents[along]
        if self.lanes:
            sch.reorder(*others, loops[across], loops[along])
            tile = self.rows, self.columns
            copy_by_squares(sch, view.rv, loops[across], loops[along], self.lanes, tile)
            return
        ro, r = sch.split(loops[across], [None, self.rows])
        wo, w = sch.split(loops[along], [None, self.columns])
        sch.reorder(*others, ro, wo, r, w)
        partition_tails(sch, (ro, rows, self.rows), (wo, columns, self.columns))


def _is_of_squares(view: View) -> bool:
    """Whether a block is a plain copy, from the last axis of one buffer to that of another."""
    store: Any = view.block.body
    axes: Any = view.transposed
    return is_copy(store) and (store.value.indices[-1] is axes[0] and store.indices[-1] is axes[1])


def squares_of(buffer: Buffer, cpu: CpuModel) -> tuple[int, int]:
    """(The side of a square that is transposed in registers: all its rows must fit them, with room
    for exchanging them; the side of a tile of cache lines.)
    """
    lanes = min(cpu.lanes(buffer.dtype.bits), cpu.vector_registers // 2)
    return lanes, max(2, cpu.line_bytes * 8 // buffer.dtype.bits)


def copy_by_squares(
    sch: Schedule, rv: Any, across: Any, along: Any, lanes: int, tile: tuple[int, int]
) -> None:
    """Let block `rv`, a plain copy, transpose squares in registers. What is left over of rows or
    columns gets a nest of its own, of parts of squares.

    across, along  the innermost two loops, of constant extent: over the axis that is last in what
                   is read, and over the one that is last in what is written
    lanes          the side of a square
    tile           of how many rows and columns squares are done together, where they fit
    """
    for loop, other in ((across, along), (along, across)):
        size = extent_of(sch, loop) or 0
        if size > lanes and size % lanes:
            sch.reorder(loop, other)
            for part in sch.loop_partition(loop, [size // lanes * lanes, None]):
                (block,) = sch.get_child_blocks(part)
                inner = sch.get_loops(block)[-1]
                pair = (part, inner) if loop is across else (inner, part)
                copy_by_squares(sch, block, *pair, lanes, tile)
            return
    high, wide = (extent_of(sch, x) or 0 for x in (across, along))
    if high * wide < 2 * lanes or 1 in (high, wide):
        # The short loop inside: it uses up what it touches.
        sch.reorder(*((along, across) if high < wide else (across, along)))
        return
    sides = [min(n, lanes) for n in (high, wide)]
    high, wide = (t if n % t == 0 else m for n, t, m in zip((high, wide), tile, sides))
    ro, ri, r = sch.split(across, [None, high // sides[0], sides[0]])
    wo, wi, w = sch.split(along, [None, wide // sides[1], sides[1]])
    sch.reorder(ro, wo, ri, wi, r, w)
    sch.tensorize(r, _intrinsic(sch.get(rv).body, *sides))
    sch.unroll(ri)
    sch.unroll(wi)


# -- transposing in registers ----------------------------------------------------------------------


def _intrinsic(store: BufferStore, high: int, wide: int) -> str:
    """The name of the intrinsic that copies ``high x wide`` elements, which it registers: `high` of
    the axis that is last in the source, `wide` of the one that is last in the target.
    """
    value: Any = store.value
    across, along = value.indices[-1], store.indices[-1]
    source = tuple(0 if i is across else 1 if i is along else 2 for i in value.indices)
    target = tuple(0 if i is across else 1 if i is along else 2 for i in store.indices)
    square = _Square(value.dtype, along.dtype, high, wide, source, target)
    places = "".join(map(str, source)), "".join(map(str, target))
    name = f"transpose_{high}x{wide}_{value.dtype}_{places[0]}_{places[1]}_{along.dtype}"
    register_builtin(name, lambda: (_description(square), _shuffled(square)))
    return name


class _Square(NamedTuple):
    """A copy of ``high x wide`` elements of `dtype`; `index_dtype` is that of indices.

    source, target  what moves in each dimension of the two buffers: 0 the axis that is last in the
                    source, 1 that which is last in the target, 2 none
    """

    dtype: DataType
    index_dtype: DataType
    high: int
    wide: int
    source: tuple[int, ...]
    target: tuple[int, ...]

    def number(self, n: int) -> PrimExpr:
        return const(n, self.index_dtype)

    def buffers(self) -> list[Buffer]:
        sizes = (self.high, self.wide, 1)
        return [
            decl_buffer([self.number(sizes[k]) for k in kind], self.dtype, name)
            for kind, name in ((self.source, "source"), (self.target, "target"))
        ]


def _description(square: _Square) -> PrimFunc:
    buffers = a, b = square.buffers()
    sizes, dtype = zip("rw", (square.high, square.wide)), square.index_dtype
    axes = tuple(new_axis(name, n, dtype) for name, n in sizes)
    places = [*(a.var for a in axes), square.number(0)]
    value = BufferLoad(a, tuple(places[k] for k in square.source))
    store = BufferStore(b, value, tuple(places[k] for k in square.target))
    return function_over(buffers, looped(Block(axes, (), (), "copy", store)))


def _shuffled(square: _Square) -> PrimFunc:
    """Load rows of the source, exchange parts of them, and store columns. Of a part of a square,
    rows are made longer, and columns cut off.
    """
    buffers = a, b = square.buffers()
    high, wide, number = square.high, square.wide, square.number
    lanes = 1 << (max(high, wide) - 1).bit_length()
    rows: list[Any] = []
    lets: list[tuple[Var, PrimExpr]] = []

    def keep(value: PrimExpr) -> Var:
        var = Var(f"v{len(lets)}", value.dtype)
        lets.append((var, value))
        return var

    def cut(vector: PrimExpr, count: int) -> PrimExpr:
        """Its first `count` elements; what stands behind the end does not matter."""
        last = vector.dtype.lanes - 1
        numbers = tuple(const(min(k, last)) for k in range(count))
        return vector if count == last + 1 else Shuffle((vector,), numbers)

    for k in range(wide):
        places = [Ramp(number(0), number(1), high), number(k), number(0)]
        row = keep(BufferLoad(a, tuple(places[p] for p in square.source)))
        rows.append(keep(cut(row, lanes)))
    rows += rows[-1:] * (lanes - wide)

    def exchange(a: int, b: int, first: list[int], second: list[int]) -> None:
        pair = (rows[a], rows[b])
        rows[a] = keep(Shuffle(pair, tuple(const(i) for i in first)))
        rows[b] = keep(Shuffle(pair, tuple(const(i) for i in second)))

    group = min(lanes, _EXCHANGE_BITS // square.dtype.bits)
    step = 1
    while step < lanes:
        for k in range(lanes):
            if not k & step:
                exchange(k, k + step, *_halves(lanes, group, step))
        step *= 2
    # Inside a group, row k ends up as the column whose number has the bits of k in reverse.
    columns = [rows[k - k % group + _reversed(k % group, group)] for k in range(lanes)]
    stores: list[Stmt] = []
    for k in range(high):
        places = [number(k), Ramp(number(0), number(1), wide), number(0)]
        stores.append(
            BufferStore(b, cut(columns[k], wide), tuple(places[p] for p in square.target))
        )
    body = seq(*stores)
    for var, value in reversed(lets):
        body = LetStmt(var, value, body)
    return function_over(buffers, body)


# What machines exchange at once: most shuffle within 128 bits, or move those as a whole.
_EXCHANGE_BITS = 128


def _halves(lanes: int, group: int, step: int) -> tuple[list[int], list[int]]:
    """Which elements of two vectors go into the first and the second result.

    Within groups, parts of `step` elements of both are interleaved: those of each group's first
    half, and those of its second half. From the size of a group on, squares of `step` are swapped.
    """
    if step >= group:
        first = [k if not k & step else lanes + k - step for k in range(lanes)]
        second = [k + step if not k & step else lanes + k for k in range(lanes)]
        return first, second
    results: tuple[list[int], list[int]] = ([], [])
    for result, offset in zip(results, (0, group // 2)):
        for base in range(offset, lanes, group):
            for part in range(base, base + group // 2, step):
                result += range(part, part + step)
                result += range(lanes + part, lanes + part + step)
    return results


def _reversed(k: int, group: int) -> int:
    """`k` with its bits in reverse, as a number below `group`, a power of two."""
    turned = 0
    while group > 1:
        turned, k, group = 2 * turned + k % 2, k // 2, group // 2
    return turned
