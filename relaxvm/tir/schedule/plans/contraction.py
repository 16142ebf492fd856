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
            C[tile] = acc                       what alone reads the sums (bias, activation, ...)
                                                is computed here, from the registers

Where tiles do not divide an axis, the loop over its tiles is marked for `LoopPartition`: full tiles
carry no conditions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ....base import CpuModel, Rates, record
from ....ir import Call, Cast, FloorDiv, FloorMod, IntImm, Mul, PrimExpr, Var
from ...stmt import Block, BufferLoad
from ...transform import PARTITION_HINT
from ...transform.rewriter import constant
from ..model.reducer import match_reducer
from ..model.state import addends, free_variables
from ..schedule import Schedule
from .cost import COMMON, step_cycles
from .panels import Ahead, Operand, ahead_of
from .queries import extent_of, loops_inside, product_of

MOST_ROWS = 16
"""Of a tile."""
PAGE = 4096  # bytes
_ROWS_TO_ASK = 6
_PACK_FROM_ROWS = 4
# Below this a tile has nothing to gain.
_LEAST_STEPS = 1 << 10
_TYPICAL_COLUMNS = 1024
# How much more a tile may cost that leaves no rest.
_EVEN = 1.1
_WIDTHS = (1, 2, 3, 4, 6, 8)


@record
class Contraction:
    """What a block contracts.

    vector     the axis along the output's last dimension
    row        an axis that only the broadcast input has, None if there is none
    reduce     the reduce axes, in the order of the loops
    streamed   the input with the vector axis
    broadcast  the other one
    unit       whether neighbours along the vector axis are neighbours in the streamed input
    panel      the columns of a panel if the streamed input is kept in panels already
    """

    vector: Var
    row: Var | None
    reduce: tuple[Var, ...]
    streamed: Operand
    broadcast: Operand
    unit: bool
    panel: int | None

    @property
    def axes(self) -> set[Var | None]:
        """Those of rows, columns and products."""
        return {self.vector, self.row, *self.reduce}


def match_contraction(block: Block) -> Contraction | None:
    """The contraction that `block` is, or None."""
    reducer = match_reducer(block)
    if reducer is None or reducer.name != "sum":
        return None
    product = without_casts(reducer.updates[0])
    if not isinstance(product, Mul):
        return None
    left, right = without_casts(product.a), without_casts(product.b)
    if not (isinstance(left, BufferLoad) and isinstance(right, BufferLoad)):
        return None
    factors = (left, right)
    _, indices = reducer.buffers[0]
    if not indices or not isinstance(indices[-1], Var):
        return None
    vector = indices[-1]
    kinds = {axis.var: axis.iter_type for axis in block.iter_vars}
    used = [variables_of(f.indices) for f in factors]
    inside = [vector in u for u in used]
    if sum(inside) != 1 or kinds.get(vector) != "spatial":
        return None
    streamed, other = (0, 1) if inside[0] else (1, 0)
    rows = [v for v in indices if isinstance(v, Var) and v in used[other] - used[streamed]]
    operands = [Operand(f.buffer, f.indices) for f in factors]
    of = operands[streamed]
    return Contraction(
        vector,
        rows[-1] if rows else None,
        tuple(axis.var for axis in block.iter_vars if axis.is_reduce),
        of,
        operands[other],
        _is_unit(of.indices, vector),
        panel_of(of.indices, vector),
    )


def without_casts(e: PrimExpr) -> PrimExpr:
    while isinstance(e, Cast):
        e = e.value
    return e


def variables_of(indices: Sequence[PrimExpr]) -> set[Any]:
    return set().union(*map(free_variables, indices))


def _is_unit(indices: tuple[PrimExpr, ...], vector: Var) -> bool:
    """Whether `vector` stands alone, or in a sum, in the last index, and nowhere else."""
    if vector in variables_of(indices[:-1]):
        return False
    parts = addends(indices[-1])
    moving = [e for e in parts if isinstance(e, Call) or vector in variables_of((e,))]
    return len(moving) == 1 and moving[0] is vector


def panel_of(indices: tuple[PrimExpr, ...], vector: Var) -> int | None:
    """n if the indices are [vector // n, ..., vector % n]."""
    first, last = indices[0], indices[-1]
    if not (isinstance(first, FloorDiv) and isinstance(last, FloorMod)) or len(indices) < 3:
        return None
    if first.a is not vector or last.a is not vector or vector in variables_of(indices[1:-1]):
        return None
    n = last.b
    return n.value if first.b is n and isinstance(n, IntImm) else None


# -- the shape of a tile ---------------------------------------------------------------------------


@functools.lru_cache(1024)
def tile_shape(
    rows: int | None,
    columns: int,
    lanes: int,
    registers: int,
    widths: tuple[int, ...] = _WIDTHS,
) -> tuple[int, int]:
    """(rows, vectors) of the tile that computes rows x columns with the fewest steps.

    A step of a tile costs its multiplications, but never less than its loads and the latency of
    eight sums in flight.

    rows    None: known only when the kernel runs, so many
    widths  the numbers of vectors to choose from, growing
    """
    best, best_cost = (1, widths[0]), float("inf")
    for vectors in widths:
        if vectors > widths[0] and vectors * lanes > columns + lanes - 1:
            break
        for height in range(1, MOST_ROWS + 1):
            if height * vectors + vectors + 1 > registers or (rows is not None and height > rows):
                continue
            cost = tile_cost(rows, columns, lanes, height, vectors)
            if cost < best_cost * 0.999:
                best, best_cost = (height, vectors), cost
    return best


def in_registers(
    cpu: CpuModel, vectors: Iterable[int], most_rows: int = MOST_ROWS
) -> Iterator[tuple[int, int]]:
    """(vectors, rows) of tiles whose sums, a row of one side and a number fit into registers."""
    for wide in vectors:
        for rows in range(1, min(most_rows, (cpu.vector_registers - wide - 1) // wide) + 1):
            yield wide, rows


def tile_cost(
    rows: int | None,
    columns: int,
    lanes: int,
    height: int,
    vectors: int,
    rates: Rates = COMMON,
) -> float:
    """What a step of all tiles costs, by element; the last tile may be less high."""
    tiles_per_column = -(-columns // (vectors * lanes)) / columns
    if rows is None:
        step = step_cycles(height * vectors, vectors, height, rates)
        return step / height * tiles_per_column
    return strips_cost(rows, height, vectors, rates) / rows * tiles_per_column


def strips_cost(rows: int, height: int, vectors: int, rates: Rates) -> float:
    """Cycles of a step of all tiles of a column; the last may be less high."""
    full, rest = divmod(rows, height)
    whole = full * step_cycles(height * vectors, vectors, height, rates)
    return whole + (step_cycles(rest * vectors, vectors, rest, rates) if rest else 0.0)


# -- what is summed --------------------------------------------------------------------------------


@record(frozen=False)
class Product:
    """A contraction with its sizes. None: known only when the kernel runs.

    loops    the loop over each axis
    extents  how many values each axis has
    """

    contraction: Contraction
    loops: dict[Var, Any]
    extents: dict[Var, int | None]

    @property
    def rows(self) -> int | None:
        return 1 if self.contraction.row is None else self.extents[self.contraction.row]

    @property
    def columns(self) -> int | None:
        return self.extents[self.contraction.vector]

    @property
    def depths(self) -> tuple[int | None, ...]:
        """How many values each reduce axis has."""
        return tuple(self.extents[v] for v in self.contraction.reduce)

    @property
    def depth(self) -> int | None:
        """How many products a sum has."""
        return product_of(self.depths)

    @property
    def outer(self) -> list[Any]:
        """The loops over neither rows, columns nor products."""
        return [x for axis, x in self.loops.items() if axis not in self.contraction.axes]

    @property
    def reduce(self) -> list[Any]:
        return [self.loops[v] for v in self.contraction.reduce]

    @property
    def row(self) -> Any:
        """The loop over the rows, None if there is none."""
        row = self.contraction.row
        return None if row is None else self.loops[row]

    @property
    def column(self) -> Any:
        return self.loops[self.contraction.vector]

    def streamed_bytes(self) -> int | None:
        """The size of the streamed input, as far as one step of the outer loops needs it."""
        count = product_of((self.columns, *self.depths))
        return None if count is None else count * self.contraction.streamed.bytes

    @property
    def times(self) -> int:
        """How many products there are side by side; sizes that are not known count as 1."""
        axes = (v for v in self.loops if v not in self.contraction.axes)
        return math.prod(self.extents[v] or 1 for v in axes)

    def most_rows(self, cpu: CpuModel) -> int:
        """How many rows of the other input stay in the first cache side by side: where they are
        pages apart, as many as that has ways, of a page each.
        """
        operand, row = self.contraction.broadcast, self.contraction.row
        places = [k for k, i in enumerate(operand.indices) if row in variables_of((i,))]
        inside = operand.buffer.shape[places[-1] + 1 :] if places else [None]
        apart = product_of(map(constant, inside))
        pages = apart is not None and apart * operand.bytes % PAGE == 0
        return max(1, cpu.l1_bytes // PAGE) if pages else MOST_ROWS

    def can_be_packed(self) -> bool:
        """Whether the streamed input can be copied into panels."""
        c = self.contraction
        return c.streamed.is_plain and c.panel is None and c.row is not None

    def is_tiled(self, steps: float) -> bool:
        """Whether a tile has something to gain, and vectors of the streamed input can be had."""
        c = self.contraction
        return steps >= _LEAST_STEPS and (c.unit or c.streamed.is_plain or c.panel is not None)

    def shape(self, lanes: int, registers: int) -> tuple[int, int]:
        """(rows, vectors) of a tile: those of the panels there are, or that leave no rest, if
        possible at a low price.
        """
        c, rows, columns = self.contraction, self.rows, self.columns
        if c.panel is not None:
            return tile_shape(rows, c.panel, lanes, registers, (max(1, c.panel // lanes),))
        if columns is None:
            return tile_shape(rows, _TYPICAL_COLUMNS, lanes, registers)
        best = tile_shape(rows, columns, lanes, registers)
        even = [n for n in _WIDTHS[1:] if columns % (n * lanes) == 0]
        if best[1] in even or not even:
            return best
        other = tile_shape(rows, columns, lanes, registers, tuple(even))
        costs = [tile_cost(rows, columns, lanes, *shape) for shape in (best, other)]
        return other if costs[1] <= costs[0] * _EVEN else best

    def needs_panels(self, height: int, cpu: CpuModel) -> bool:
        """Whether tiles of so many rows are to read copies of the streamed input, in panels."""
        rows = self.rows
        if not self.can_be_packed():
            return False
        if not self.contraction.unit or rows is None:
            return True
        # In place, a tile reads a piece of each row: too short for the prefetchers of memory.
        size = self.streamed_bytes()
        far = size is None or size > cpu.l3_bytes // 2
        return rows >= height * (1 if far else _PACK_FROM_ROWS)

    def asks_ahead(self, height: int, cpu: CpuModel) -> Ahead:
        """What to ask for of a streamed input in panels before tiles of so many rows read it, where
        they have rows enough for that to cost nothing.
        """
        c = self.contraction
        asks = c.panel is not None and height >= _ROWS_TO_ASK
        return ahead_of(c.streamed.buffer, cpu) if asks else Ahead()


# -- what tiles share ------------------------------------------------------------------------------


def vector_lanes(columns: int, most: int) -> int:
    """The lanes of vectors, `most` at most, that fill the columns: without a rest, if as few
    vectors as a rest would leave do that.
    """
    fits = [n for n in range(1, most + 1) if columns % n == 0]
    return fits[-1] if columns // fits[-1] <= -(-columns // most) else most


def accumulate(
    sch: Schedule,
    block: Any,
    loop: Any,
    tile: list[Any],
    reduce: list[Any],
    lanes: int,
    epilogue: Any,
    whole: bool = True,
) -> None:
    """Keep the sums of one tile in registers; write them, or what the block `epilogue` makes of
    them, once.

    whole  whether the columns of a tile that are written are whole vectors
    """
    start, write = sums_in_registers(sch, block, loop, reduce[0], epilogue)
    for each in (start, block, write):
        nest = list(sch.get_loops(each))
        nest = loops_inside(sch, write, loop) if each is write else nest[-len(tile) :]
        if each is write and not whole:
            unroll_short(sch, nest[:-1])
        else:
            finish_tile(sch, nest, lanes)


def sums_in_registers(
    sch: Schedule, block: Any, loop: Any, first: Any, write: Any = None
) -> tuple[Any, Any]:
    """Keep the sums of an iteration of `loop` in registers while the loops from `first` on run: the
    blocks that start them, and that write them, which is `write` if that is one.
    """
    if write is None:
        write = sch.cache_write(block, 0, "local")
    else:
        sch.set_scope(block, 0, "local")
    sch.reverse_compute_at(write, loop)
    return sch.decompose_reduction(block, first), write


def finish_tile(sch: Schedule, loops: Sequence[Any], lanes: int) -> None:
    """Vectorise the last of the loops, over the columns of a tile, and unroll the rest of it."""
    if not loops:
        return  # a tile of one sum
    *steps, columns = loops
    over, vector = sch.split(columns, [None, lanes])
    if extent_of(sch, vector) != 1:
        sch.vectorize(vector)
    unroll_short(sch, [*steps, over])


def unroll_short(sch: Schedule, loops: Sequence[Any]) -> None:
    for loop in loops:
        if (extent_of(sch, loop) or 99) <= 32:
            sch.unroll(loop)


def partition_tails(sch: Schedule, *loops: tuple[Any, int | None, int]) -> None:
    """Give full tiles a loop of their own, in which no condition is left.

    loops  (the loop over tiles, the extent that is tiled or None, the size of a tile)
    """
    for loop, total, size in loops:
        if total is None or total % size:
            sch.annotate(loop, PARTITION_HINT, True)
