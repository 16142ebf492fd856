"""Sums of products of 8- and 16-bit numbers, kept in 32 bits.

    C[i, j] += int32(A[i, k]) * int32(B[k, j])          int8, uint8, with zero points too
    C[i, j] += float32(A[i, k]) * float32(B[k, j])      bfloat16, float16

What the machine has decides how they are computed:

    instruction              operands as packed          terms in one step
    vpdpbusd (VNNI)          uint8 x int8                4
    sdot, udot, usdot        as they are                 4
    vpmaddwd (AVX2)          int16 x int16               2
    vdpbf16ps, bfdot         bfloat16 x bfloat16         2
    multiply and add         int16, or float32           1

Operands are copied once into the order in which the instruction reads them (`pack_contraction`):
elements that one instruction takes side by side, columns in panels as wide as a tile. The copies
are blocks of their own, in front. Then a tile of rows x vectors is summed up in registers, as in
`contraction.py`, and what is computed of each sum alone (a bias, requantisation) is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ....base import CpuModel, DataType, NamedTuple, record
from ....ir import Var
from ...stmt import Block, Buffer
from ..model.reducer import match_reducer
from ..model.state import free_variables
from ..primitives.intrin import TensorIntrin, dot_intrin
from ..primitives.packing import Factor, factors_of
from ..schedule import Schedule
from .contraction import (
    finish_tile,
    in_registers,
    partition_tails,
    strips_cost,
    tile_shape,
    unroll_short,
)
from .cost import Cost, Demand, predict, rates_of
from .plan import InTiles, Plan
from .queries import TYPICAL_SIZE, extent_of, loops_inside, reduces
from .view import View

KNOWN = "tir.known_params"
"""Of a function that is scheduled: the positions of parameters that are known when it is built."""
# With fewer rows a copy costs more than it saves, unless it is made when the kernel is built.
_LEAST_ROWS = 4
_LEAST_STEPS = 1 << 12
_INTEGERS = frozenset({"int8", "uint8", "int16"})
_FLOATS = frozenset({"bfloat16", "float16"})
_X86 = ("x86_64", "amd64")


@record
class Way:
    """How products are summed.

    broadcast  dtype of the packed elements that all columns share
    streamed   dtype of the packed elements of the columns
    group      products in one step of one sum
    spare      registers that a step needs for itself
    """

    broadcast: str
    streamed: str
    group: int = 1
    spare: int = 0

    @property
    def dtypes(self) -> tuple[DataType, DataType]:
        return DataType(self.broadcast), DataType(self.streamed)


def way_of(broadcast: str, streamed: str, out: str, cpu: CpuModel) -> Way | None:
    """How `cpu` best sums products of these dtypes; None if they are no matter of this rule."""
    narrow = {broadcast, streamed}
    if out == "int32" and narrow <= _INTEGERS:
        return _of_integers(broadcast, streamed, cpu)
    if out == "float32" and narrow <= _FLOATS:
        if narrow == {"bfloat16"} and (
            cpu.has("avx512bf16") or (cpu.has("bf16") and cpu.architecture not in _X86)
        ):
            return Way("bfloat16", "bfloat16", 2, _ahead(cpu))
        return Way("float32", "float32", 1, _ahead(cpu))
    return None


def sums_narrow(block: Block) -> bool:
    """Whether a block sums products of elements of two buffers of narrow integers, zero points
    taken off.
    """
    factors = factors_of(block)
    if factors is None or factors[0].load.buffer is factors[1].load.buffer:
        return False
    return all(f.load.dtype.is_int and f.load.dtype.bits <= 16 for f in factors)


def _ahead(cpu: CpuModel) -> int:
    """Registers for factors loaded ahead: Arm's cores do not multiply from memory, and LLVM then
    starts several loads early.
    """
    return 0 if cpu.architecture in _X86 else 3


def _of_integers(broadcast: str, streamed: str, cpu: CpuModel) -> Way:
    bytes_only = "int16" not in (broadcast, streamed)
    if cpu.architecture in _X86:
        if bytes_only and (cpu.has("avx512vnni") or cpu.has("avxvnni")):
            # One factor has a sign, the other has none: the streamed one stays as it is.
            return Way("uint8" if streamed == "int8" else "int8", streamed, 4)
        return Way("int16", "int16", 2, 1)
    if bytes_only and cpu.has("dotprod"):
        mixed = broadcast != streamed and cpu.has("i8mm")
        return Way(broadcast if mixed else streamed, streamed, 4, _ahead(cpu))
    return Way("int16", "int16", 1, _ahead(cpu))


# -- scheduling ------------------------------------------------------------------------------------


class _Narrow(NamedTuple):
    """A contraction of narrow numbers.

    one, other  the factor with the rows, the streamed one
    grouped     the reduce axis to take in groups
    """

    vector: Var
    row: Var
    grouped: Var
    one: Factor
    other: Factor
    out: Buffer


def _narrow(view: View) -> _Narrow | None:
    block, loops = view.block, view.by_axis
    factors, reducer = factors_of(block), match_reducer(block)
    if factors is None or reducer is None or loops is None:
        return None
    out, indices = reducer.buffers[0]
    if not indices or not isinstance(indices[-1], Var):
        return None
    vector = indices[-1]
    inside = [vector in free_variables(f.load) for f in factors]
    if sum(inside) != 1:
        return None
    one, other = factors if inside[1] else factors[::-1]
    dtypes = {str(f.load.dtype) for f in factors}
    sums = str(out.dtype)
    if not ((dtypes <= _INTEGERS and sums == "int32") or (dtypes <= _FLOATS and sums == "float32")):
        return None
    grouped, row = _grouped(view, one, other), _row(indices, one, other)
    if grouped is None or row is None:
        return None
    return _Narrow(vector, row, grouped, one, other, out)


@record
class InDots(InTiles):
    """What plans share that sum up tiles of `rows` x (`vectors` x `lanes`) sums of `group` products
    a step, of operands packed as the dtypes `broadcast` and `streamed`.
    """

    group: int
    broadcast: DataType
    streamed: DataType

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        for vectors, rows in in_registers(cpu, range(1, 7)):
            yield replace(self, rows=rows, vectors=vectors)

    def wrong_operands(self, one: Factor, other: Factor) -> str | None:
        """Why these cannot be packed so, and multiplied; None if they can."""
        kinds = self.broadcast, self.streamed
        for load, kind in zip((one.load, other.load), kinds):
            # A sign that the instruction wants otherwise is taken care of when packing.
            if kind.bits < load.dtype.bits or kind.is_float != load.dtype.is_float:
                return f"{load.dtype} cannot be packed as {kind}"
        dot = dot_intrin(self.lanes, *kinds)
        if self.group > 1 and TensorIntrin.get(dot, allow_missing=True) is None:
            return f"no instruction sums {self.group} products of {kinds[0]} and {kinds[1]}"
        if self.group == 1 and kinds[0] != kinds[1]:
            return f"products of one term are of one dtype, got {kinds[0]} and {kinds[1]}"
        return None

    def sum_tile(
        self, sch: Schedule, rv: Any, steps: Any, row: Any, vector: Any, lane: Any
    ) -> None:
        """Sum up a tile of packed operands, whose loops are `row`, `vector` and `lane`, in
        registers.
        """
        start = sch.decompose_reduction(rv, steps[0])
        unroll_short(sch, sch.get_loops(start)[-3:-1])
        sch.vectorize(sch.get_loops(start)[-1])
        unroll_short(sch, [row, vector])
        if self.group > 1:
            sch.tensorize(lane, dot_intrin(self.lanes, self.broadcast, self.streamed))
        else:
            sch.vectorize(lane)


@record
class LowPrecision(InDots):
    """Tiles of products of rows and columns.

    epilogue  whether what alone reads the sums is computed in the tiles
    """

    epilogue: bool = False

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> LowPrecision | None:
        narrow = _narrow(view)
        if narrow is None:
            return None
        one, other, out = narrow.one.load, narrow.other.load, narrow.out
        way = way_of(str(one.dtype), str(other.dtype), str(out.dtype), cpu)
        columns, lanes = view.extents[narrow.vector], cpu.lanes(32)
        if way is None or columns is None or lanes < 4 or view.steps < _LEAST_STEPS:
            return None
        rows = view.extents[narrow.row]
        if rows is not None and rows < _LEAST_ROWS and not _is_known(view.sch, other.buffer):
            return None
        shape = tile_shape(rows, columns, lanes, cpu.vector_registers - way.spare)
        return cls(*shape, lanes, way.group, *way.dtypes, view.pointwise is not None)

    def wrong(self, view: View) -> str | None:
        narrow = _narrow(view)
        if narrow is None or view.extents[narrow.vector] is None:
            return "it sums no products of rows and columns of narrow numbers"
        if reason := self.wrong_operands(narrow.one, narrow.other):
            return reason
        if self.epilogue and view.pointwise is None:
            return "nothing is computed of each sum alone"
        for what, axis, size, step in (
            ("rows", narrow.row, self.rows, 1),
            ("columns", narrow.vector, self.width, self.lanes),
        ):
            most = view.extents[axis]
            if most is not None and size > -(-most // step) * step:
                return f"tiles of {size} {what}, and there are {most}"
        return None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        narrow: Any = _narrow(view)
        demand = view.sweep(cpu)
        columns: Any = view.extents[narrow.vector]
        rows = view.extents[narrow.row] or TYPICAL_SIZE
        panels, strips = -(-columns // self.width), -(-rows // self.rows)
        step = panels * strips_cost(rows, self.rows, self.vectors, rates_of(cpu, self.lanes, 32))
        # Copies are made before, of both sides; rows are read once a panel, panels once a strip.
        sides = [size for _, size in demand.traffic[:-1]]
        near = self.streamed.itemsize * self.width * view.steps / rows / columns
        traffic = (*((3 * n, n) for n in sides), (near * panels * strips, near), demand.traffic[-1])
        cycles = view.steps / rows / columns * step / self.group + 3 * sum(sides) / self.lanes
        vain = 1 - columns / (panels * self.width)
        return predict(
            Demand(cycles, traffic, panels * (demand.parts // (rows * columns)), vain), cpu
        )

    def apply(self, view: View) -> None:
        sch, rv, narrow = view.sch, view.rv, _narrow(view)
        assert narrow is not None
        positions = [a.var for a in view.block.iter_vars]
        after = view.epilogue if self.epilogue else None
        copy, streamed, *others = sch.pack_contraction(
            rv,
            [positions.index(narrow.vector), positions.index(narrow.grouped)],
            self.group,
            [self.vectors, self.lanes],
            [self.broadcast, self.streamed],
        )
        if after is not None:
            sch.compute_inline(copy)
            copy = after
        self._tile(sch, rv, copy, narrow)
        for pack in (streamed, *others):
            finish_copy(sch, pack)

    def _tile(self, sch: Schedule, rv: Any, copy: Any, narrow: _Narrow) -> None:
        """Sum up tiles of rows x vectors in registers, and write each once."""
        axes = sch.get(rv).iter_vars
        loops = dict(zip((a.var.name for a in axes), sch.get_loops(rv)))
        kinds = {a.var.name: a.iter_type for a in axes}
        jo, jv, ji = (loops.pop(f"{narrow.vector.name}_{k}") for k in range(3))
        ko = loops.pop(f"{narrow.grouped.name}_0")
        inner = [ji, loops.pop(f"{narrow.grouped.name}_1")] if self.group > 1 else [ji]
        columns = extent_of(sch, sch.get_loops(copy)[-1])
        line = loops.pop(narrow.row.name)
        rows = extent_of(sch, line)
        steps = [*(x for name, x in loops.items() if kinds[name] == "reduce"), ko]
        outer = [x for name, x in loops.items() if kinds[name] == "spatial"]
        io, ii = sch.split(line, [None, self.rows])
        sch.reorder(*outer, jo, io, *steps, ii, jv, *inner)
        sch.set_scope(rv, 0, "local")
        sch.reverse_compute_at(copy, io)
        self.sum_tile(sch, rv, steps, ii, jv, ji)
        finish_tile(sch, loops_inside(sch, copy, io), self.lanes)
        partition_tails(sch, (jo, columns, self.width), (io, rows, self.rows))


def _is_known(sch: Schedule, buffer: Buffer) -> bool:
    fn = sch.state.fn
    return any(fn.buffer_map.get(fn.params[int(k)]) is buffer for k in fn.get_attr(KNOWN, ()))


def _grouped(view: View, one: Factor, other: Factor) -> Var | None:
    """The reduce axis to take in groups: the longest that alone indexes both factors."""
    reduced = [a.var for a in view.block.iter_vars if a.is_reduce and view.extents[a.var]]
    alone = [v for v in reduced if one.is_alone(v) and other.is_alone(v)]
    return max(alone, key=lambda v: view.extents[v] or 0, default=None)


def _row(indices: Any, one: Factor, other: Factor) -> Var | None:
    """The last axis of the output that the streamed factor does not have."""
    used, streamed = free_variables(one.load), free_variables(other.load)
    rows = [v for v in indices if isinstance(v, Var) and v in used and v not in streamed]
    return rows[-1] if rows else None


def finish_copy(sch: Schedule, pack: Any) -> None:
    """Unroll what lies side by side in a copy; LLVM vectorises what is around it."""
    block: Block = sch.get(pack)
    loops = list(sch.get_loops(pack))
    if reduces(block) or len(loops) < 3:
        return
    if (extent_of(sch, loops[-1]) or 99) <= 4:
        sch.unroll(loops[-1])
