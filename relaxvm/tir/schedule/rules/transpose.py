"""Copies whose last axis moves: read along one axis of memory, written along another.

    for i, j: B[i, j] = A[j, i]      →      for io, jo: for i, j in a tile: B[i, j] = A[j, i]

A tile is a few cache lines of either buffer, so that each line is used up while it is in cache. In
a plain copy the tile is transposed in registers: vectors are loaded along one axis, exchanged by
shuffles, and stored along the other. Rows and columns that are left over are copied one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ....base import CpuModel, DataType
from ....ir import Map, PrimExpr, Ramp, Range, Shuffle, Var, const, walk
from ...stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    IterVar,
    LetStmt,
    PrimFunc,
    Stmt,
    decl_buffer,
    seq,
)
from ...transform import PARTITION_HINT
from ..facts import facts_of
from ..intrin import register_builtin
from ..schedule import Schedule
from .queries import extent_of, is_copy, loops_of


def schedule_transpose(sch: Schedule, rv: Any, cpu: CpuModel) -> bool:
    """Tile the copy in block `rv`. False if all it reads lies as what it writes."""
    block: Block = sch.get(rv)
    store = block.body
    loops = loops_of(sch, rv)
    if not isinstance(store, BufferStore) or loops is None:
        return False
    if not facts_of(sch.state, block).elementwise or not store.indices:
        return False
    along: Any = store.indices[-1]
    across = _other_axis(store, loops)
    if across is None or along not in loops:
        return False
    # All rows of a square must fit the registers, with room for exchanging them.
    lanes = min(cpu.lanes(store.buffer.dtype.bits), cpu.vector_registers // 2)
    rows, columns = extent_of(sch, loops[across]), extent_of(sch, loops[along])
    tile = max(2, cpu.line_bytes * 8 // store.buffer.dtype.bits)
    if (rows is not None and rows < lanes) or (columns is not None and columns < lanes):
        return False
    others = [loop for v, loop in loops.items() if v is not across and v is not along]
    if lanes > 1 and is_copy(store) and rows is not None and columns is not None:
        sch.reorder(*others, loops[across], loops[along])
        row, column = _whole_squares(sch, rv, rows, columns, lanes)
        high, wide = (tile if n // lanes * lanes % tile == 0 else lanes for n in (rows, columns))
        ro, ri, r = sch.split(row, [None, high // lanes, lanes])
        wo, wi, w = sch.split(column, [None, wide // lanes, lanes])
        sch.reorder(ro, wo, ri, wi, r, w)
        sch.tensorize(r, _intrinsic(store, across, lanes))
        sch.unroll(ri)
        sch.unroll(wi)
        return True
    ro, r = sch.split(loops[across], [None, tile])
    wo, w = sch.split(loops[along], [None, tile])
    sch.reorder(*others, ro, wo, r, w)
    for loop, extent in ((ro, rows), (wo, columns)):
        if extent is None or extent % tile:
            sch.annotate(loop, PARTITION_HINT, True)
    return True


def _other_axis(store: BufferStore, loops: dict[Var, Any]) -> Any:
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


def _whole_squares(sch: Schedule, rv: Any, rows: int, columns: int, lanes: int) -> list[Any]:
    """The two innermost loops around a block, over whole squares. What is left over of rows or
    columns gets a nest of its own, with the short loop inside: it uses up what it touches.
    """
    for k, size in ((-2, rows), (-1, columns)):
        if size % lanes == 0:
            continue
        pair = sch.get_loops(rv)[-2:]
        loop, other = pair[k], pair[-3 - k]
        sch.reorder(loop, other)
        whole, rest = sch.loop_partition(loop, [size // lanes * lanes, None])
        (rv,), (left,) = sch.get_child_blocks(whole), sch.get_child_blocks(rest)
        if k == -1:
            sch.reorder(sch.get_loops(rv)[-1], whole)
        sch.reorder(sch.get_loops(left)[-1], rest)
    return list(sch.get_loops(rv))[-2:]


# -- transposing in registers ----------------------------------------------------------------------


def _intrinsic(store: BufferStore, across: Var, lanes: int) -> str:
    """The name of the intrinsic that copies ``lanes x lanes`` elements, which it registers.

    across  the axis that is last in the source
    """
    value: Any = store.value
    along = store.indices[-1]
    source = tuple(0 if i is across else 1 if i is along else 2 for i in value.indices)
    target = tuple(0 if i is across else 1 if i is along else 2 for i in store.indices)
    square = _Square(value.dtype, along.dtype, lanes, source, target)
    places = "".join(map(str, source)), "".join(map(str, target))
    name = f"transpose_{lanes}x{lanes}_{value.dtype}_{places[0]}_{places[1]}_{along.dtype}"
    register_builtin(name, lambda: (_description(square), _shuffled(square)))
    return name


_HANDLE = DataType("handle")


class _Square(NamedTuple):
    """A copy of ``lanes x lanes`` elements of `dtype`; `index_dtype` is that of indices.

    source, target  what moves in each dimension of the two buffers: 0 the axis that is last in the
                    source, 1 that which is last in the target, 2 none
    """

    dtype: DataType
    index_dtype: DataType
    lanes: int
    source: tuple[int, ...]
    target: tuple[int, ...]

    def number(self, n: int) -> PrimExpr:
        return const(n, self.index_dtype)

    def buffers(self) -> list[Buffer]:
        return [
            decl_buffer(
                [self.number(1 if k == 2 else self.lanes) for k in kind],
                name=name,
                dtype=str(self.dtype),
            )
            for kind, name in ((self.source, "source"), (self.target, "target"))
        ]


def _function(buffers: list[Buffer], body: Stmt) -> PrimFunc:
    handles = tuple(Var(f"{b.name}_handle", _HANDLE) for b in buffers)
    root = Block((), (), (), "root", body)
    realize = BlockRealize((), const(True), root)
    return PrimFunc(handles, realize, None, Map(dict(zip(handles, buffers))))


def _description(square: _Square) -> PrimFunc:
    buffers = a, b = square.buffers()
    zero = square.number(0)
    axes = [Var(name, square.index_dtype) for name in ("r", "w")]
    loops = [Var(name, square.index_dtype) for name in ("r0", "w0")]
    places = [*axes, zero]
    value = BufferLoad(a, tuple(places[k] for k in square.source))
    store = BufferStore(b, value, tuple(places[k] for k in square.target))
    extent = square.number(square.lanes)
    domain = Range.from_min_extent(zero, extent)
    block = Block(tuple(IterVar(domain, v, "spatial") for v in axes), (), (), "copy", store)
    body: Stmt = BlockRealize(tuple(loops), const(True), block)
    for loop in reversed(loops):
        body = For(loop, zero, extent, ForKind.SERIAL, body)
    return _function(buffers, body)


def _shuffled(square: _Square) -> PrimFunc:
    """Load rows of the source, exchange parts of them, and store columns."""
    buffers = a, b = square.buffers()
    lanes, number = square.lanes, square.number
    run = Ramp(number(0), number(1), lanes)
    rows: list[Any] = []
    lets: list[tuple[Var, PrimExpr]] = []

    def keep(value: PrimExpr) -> Var:
        var = Var(f"v{len(lets)}", value.dtype)
        lets.append((var, value))
        return var

    for k in range(lanes):
        places = [run, number(k), number(0)]
        rows.append(keep(BufferLoad(a, tuple(places[p] for p in square.source))))

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
    for k in range(lanes):
        places = [number(k), run, number(0)]
        stores.append(BufferStore(b, columns[k], tuple(places[p] for p in square.target)))
    body = seq(*stores)
    for var, value in reversed(lets):
        body = LetStmt(var, value, body)
    return _function(buffers, body)


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
