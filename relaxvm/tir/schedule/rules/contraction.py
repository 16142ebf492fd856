"""Contractions: sums of products of two inputs, computed in tiles that stay in registers.

    C[i, j] += A[i, k] * B[k, j]            dense, batched, einsum
    C[o, h, w] += W[o, c, r, s] * X[c, h + r, w + s]        convolutions without stride

The last axis of the output is the *vector* axis: it must be in one input only (the streamed one). A
*row* axis is in the other input only (the broadcast one). A tile of rows x vectors is accumulated
in registers over all reduce axes; each step loads the vectors once and each row's factor once.

    for jo:                                     tiles of the vector axis
        pack B[:, jo]                           only if the streamed input is far from contiguous
        for io:                                 tiles of the row axis
            acc[rows, vectors] = 0
            for k: acc += A[row, k] * B[k, vector]
            C[tile] = acc

Where tiles do not divide an axis, the loop over its tiles is marked for `LoopPartition`: full tiles
carry no conditions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....base import CpuModel
from ....ir import Add, Call, Cast, IntImm, Mul, PrimExpr, Var, walk
from ...stmt import Block, Buffer, BufferLoad
from ...transform import PARTITION_HINT
from ..index_map import IndexMap
from ..reducer import match_reducer
from ..schedule import Schedule

__all__ = ["Contraction", "match_contraction", "schedule_contraction"]

_PACK_FROM_ROWS = 4


@dataclass(frozen=True)
class Contraction:
    """What a block contracts.

    vector     the axis along the output's last dimension
    row        an axis that only the broadcast input has, None if there is none
    reduce     the reduce axes, in the order of the loops
    streamed   the input with the vector axis, and how it is indexed
    is_matrix  whether the streamed input is indexed by plain axes
    unit       whether neighbours along the vector axis are neighbours in the streamed input
    """

    vector: Var
    row: Var | None
    reduce: tuple[Var, ...]
    streamed: Buffer
    streamed_indices: tuple[PrimExpr, ...]
    is_matrix: bool
    unit: bool


def match_contraction(block: Block) -> Contraction | None:
    """The contraction that `block` is, or None."""
    reducer = match_reducer(block)
    if reducer is None or reducer.name != "sum" or len(reducer.updates) != 1:
        return None
    product = _without_casts(reducer.updates[0])
    if not isinstance(product, Mul):
        return None
    factors = (_without_casts(product.a), _without_casts(product.b))
    if not all(isinstance(f, BufferLoad) for f in factors):
        return None
    _, indices = reducer.buffers[0]
    if not indices or not isinstance(indices[-1], Var):
        return None
    vector = indices[-1]
    kinds = {axis.var: axis.iter_type for axis in block.iter_vars}
    used = [_variables(f.indices) for f in factors]  # type: ignore[attr-defined]
    inside = [vector in u for u in used]
    if sum(inside) != 1 or kinds.get(vector) != "spatial":
        return None
    streamed, other = (0, 1) if inside[0] else (1, 0)
    rows = [v for v in indices if isinstance(v, Var) and v in used[other] - used[streamed]]
    load: Any = factors[streamed]
    return Contraction(
        vector,
        rows[-1] if rows else None,
        tuple(axis.var for axis in block.iter_vars if axis.iter_type == "reduce"),
        load.buffer,
        load.indices,
        all(isinstance(i, (Var, IntImm)) for i in load.indices),
        _is_unit(load.indices, vector),
    )


def _without_casts(e: PrimExpr) -> PrimExpr:
    while isinstance(e, Cast):
        e = e.value
    return e


def _variables(indices: tuple[PrimExpr, ...]) -> set[Any]:
    return {n for i in indices for n in walk(i) if isinstance(n, Var)}


def _is_unit(indices: tuple[PrimExpr, ...], vector: Var) -> bool:
    """Whether `vector` stands alone, or in a sum, in the last index, and nowhere else."""
    if vector in _variables(indices[:-1]):
        return False
    parts = [indices[-1]]
    alone = 0
    while parts:
        e = parts.pop()
        if isinstance(e, Add):
            parts += [e.a, e.b]
        elif e is vector:
            alone += 1
        elif isinstance(e, Call) or vector in _variables((e,)):
            return False
    return alone == 1


# -- the shape of a tile ---------------------------------------------------------------------------


def tile_shape(rows: int | None, columns: int, lanes: int, registers: int) -> tuple[int, int]:
    """(rows, vectors) of the tile that computes rows x columns with the fewest steps.

    A step of a tile costs its multiplications, but never less than its loads and the latency of
    eight sums in flight.

    rows  None: known only when the kernel runs, so many
    """
    best, best_cost = (1, 1), float("inf")
    for vectors in (1, 2, 3, 4, 6, 8):
        if vectors > 1 and vectors * lanes > columns + lanes - 1:
            break
        tiles_per_column = -(-columns // (vectors * lanes)) / columns
        for height in range(1, 17):
            if height * vectors + vectors + 1 > registers or (rows is not None and height > rows):
                continue
            cost = _cost_per_row(rows, height, vectors) * tiles_per_column
            if cost < best_cost * 0.999:
                best, best_cost = (height, vectors), cost
    return best


def _cost_per_row(rows: int | None, height: int, vectors: int) -> float:
    """What all steps of tiles of `height` rows cost, by row; the last tile may be less high."""
    if rows is None:
        return _step_cost(height, vectors) / height
    rest = rows % height
    full = rows // height * _step_cost(height, vectors)
    return (full + (_step_cost(rest, vectors) if rest else 0.0)) / rows


def _step_cost(height: int, vectors: int) -> float:
    return max(height * vectors / 2, (height + vectors) / 2, 4.0) + 0.25


# -- scheduling ------------------------------------------------------------------------------------


def schedule_contraction(sch: Schedule, rv: Any, c: Contraction, cpu: CpuModel) -> bool:
    """Tile the contraction in block `rv`. False if it is left as it was."""
    block: Block = sch.get(rv)
    loops = loops_of(sch, rv)
    if loops is None or not (c.unit or c.is_matrix):
        return False
    columns = extent_of(sch, loops[c.vector])
    if columns is None:
        return False
    lanes = vector_lanes(columns, cpu.lanes(block.writes[0].buffer.dtype.bits))
    if lanes < 2:
        return False
    row = None if c.row is None else loops[c.row]
    rows = 1 if row is None else extent_of(sch, row)
    height, vectors = tile_shape(rows, columns, lanes, cpu.vector_registers)
    outer = [loop for axis, loop in loops.items() if axis not in (c.vector, c.row, *c.reduce)]
    reduce = [loops[v] for v in c.reduce]
    jo, ji = sch.split(loops[c.vector], [None, vectors * lanes])
    if row is None:
        sch.reorder(*outer, jo, *reduce, ji)
        _accumulate(sch, rv, jo, [ji], reduce, lanes)
        return True
    io, ii = sch.split(row, [None, height])
    sch.reorder(*outer, jo, io, *reduce, ii, ji)
    if not c.unit or (c.is_matrix and (rows is None or rows >= height * _PACK_FROM_ROWS)):
        _pack(sch, rv, c, jo, lanes * vectors, lanes)
    _accumulate(sch, rv, io, [ii, ji], reduce, lanes)
    for loop, total, size in ((jo, columns, lanes * vectors), (io, rows, height)):
        if total is None or total % size:
            # Full tiles get a loop of their own, in which no condition is left.
            sch.annotate(loop, PARTITION_HINT, True)
    return True


def vector_lanes(columns: int, most: int) -> int:
    """The most lanes, up to `most`, that fill the columns without a rest; 1 if there are no good
    ones.
    """
    fits = [n for n in range(1, most + 1) if columns % n == 0]
    return fits[-1] if fits and fits[-1] >= min(4, most, columns) else 1


def loops_of(sch: Schedule, rv: Any) -> dict[Var, Any] | None:
    """{axis: loop} if each axis of the block is one loop of its own, and there are no others."""
    found = {}
    block = sch.get(rv)
    by_var = {sch.get(loop).loop_var: loop for loop in sch.get_loops(rv)}
    for axis, value in zip(block.iter_vars, sch.state.realize(block).iter_values):
        if value not in by_var:
            return None
        found[axis.var] = by_var[value]
    return found if len(found) == len(by_var) else None


def extent_of(sch: Schedule, loop: Any) -> int | None:
    """The loop's extent if it is a constant."""
    e = sch.get(loop).extent
    return e.value if isinstance(e, IntImm) else None


def _pack(sch: Schedule, block: Any, c: Contraction, jo: Any, width: int, lanes: int) -> None:
    """Copy the streamed input's columns of one tile into a panel: [reduce, column]."""
    reads = [r.buffer for r in sch.get(block).reads]
    copy = sch.cache_read(block, reads.index(c.streamed), "global")
    place = next(k for k, i in enumerate(c.streamed_indices) if i is c.vector)

    def panel(*indices: Any) -> list[Any]:
        others = [e for k, e in enumerate(indices) if k != place]
        column = indices[place]
        return [column // width, *others, column % width]

    index_map = IndexMap.from_func(panel, ndim=len(c.streamed_indices), index_dtype="int64")
    sch.transform_layout(copy, ("write", 0), index_map)
    sch.compute_at(copy, jo)
    loops = list(sch.get_loops(copy))
    inner = loops[_position(sch, loops, jo) + 1 :]
    bound = sch.state.realize(sch.get(copy)).iter_values[place]
    column = next((x for x in inner if sch.get(x).loop_var in _variables((bound,))), None)
    if column is None:
        return
    sch.reorder(*[x for x in inner if x is not column], column)
    if c.unit and (extent_of(sch, column) or 1) % lanes == 0:
        _, vector = sch.split(column, [None, lanes])
        sch.vectorize(vector)


def _accumulate(
    sch: Schedule, block: Any, at: Any, tile: list[Any], reduce: list[Any], lanes: int
) -> None:
    """Keep the sums of one tile in registers, and write them once."""
    write = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(write, at)
    start = sch.decompose_reduction(block, reduce[0])
    for each in (start, block, write):
        loops = list(sch.get_loops(each))
        inner = loops[_position(sch, loops, at) + 1 :] if each is write else loops[-len(tile) :]
        *steps, last = inner
        over, vector = sch.split(last, [None, lanes])
        _finish(sch, [*steps, over], vector)


def _finish(sch: Schedule, steps: list[Any], vector: Any) -> None:
    if extent_of(sch, vector) != 1:
        sch.vectorize(vector)
    for loop in steps:
        if (extent_of(sch, loop) or 99) <= 32:
            sch.unroll(loop)


def _position(sch: Schedule, loops: Any, loop: Any) -> int:
    wanted = sch.get(loop)
    return next(k for k, x in enumerate(loops) if sch.get(x) is wanted)
