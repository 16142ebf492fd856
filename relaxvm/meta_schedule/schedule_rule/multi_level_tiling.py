"""Loops in tiles of several levels, with what is read or written kept in small buffers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...base import NamedTuple, ScheduleError, record, submodules
from ...ir import Var, walk
from ...tir import Block, BufferLoad
from ...tir.schedule import BlockRV, LoopRV, Schedule, TensorIntrin
from ...tir.schedule.analysis import get_tensorize_loop_mapping
from ...tir.schedule.plans import View
from .schedule_rule import ScheduleRule, loops_by_axis

AUTO_TENSORIZE = "meta_schedule.auto_tensorize"
"""On a block that is to become the intrinsic of that name."""
TILED = "meta_schedule.tiling_structure"
"""On a block that was tiled, with how."""
_USES = ("no", "may", "must")
_ANY_SIZE = 1 << 30


class ReuseType:
    """Where what a block reads or writes is kept.

    req     "no", "may" (with and without it, as two designs) or "must"
    levels  after how many letters of the structure, at least 1
    scope   of the small buffers, "global" or "local"
    """

    def __init__(self, req: str, levels: Sequence[int], scope: str) -> None:
        if req not in _USES:
            raise ScheduleError(f"ReuseType: req is one of {', '.join(_USES)}, got {req!r}")
        if any(type(n) is not int or n < 1 for n in levels):
            raise ScheduleError(f"ReuseType: levels are numbers above 0, got {list(levels)}")
        self.req, self.levels, self.scope = req, tuple(levels), scope

    def as_dict(self) -> dict[str, Any]:
        """The arguments by name."""
        return {"req": self.req, "levels": list(self.levels), "scope": self.scope}


class _Tiled(NamedTuple):
    sch: Schedule
    block: BlockRV
    tiles: Sequence[Sequence[LoopRV]]

    def copy(self) -> _Tiled:
        return self._replace(sch=self.sch.copy())

    def loop(self, level: int) -> LoopRV:
        """The innermost loop of the first `level` letters of the structure."""
        loops = [loop for tile in self.tiles[:level] for loop in tile]
        if not loops:
            raise ScheduleError(f"there is no loop in the first {level} levels of tiles")
        return loops[-1]


@record(frozen=False)
class MultiLevelTiling(ScheduleRule):
    """Tile the loops of blocks that use what they read several times.

    structure             "SSRSRS": the order of tiles of spatial (S) and of reduced axes (R), the
                          outermost first. How large they are is drawn
    tile_binds            of GPUs, as `vector_load_lens`: refused here
    max_innermost_factor  how large innermost tiles are at most; None: any
    reuse_read            small copies of what is read
    reuse_write           of what is written: a consumer of the same elements comes there, else the
                          block's own results are collected
    filter_fn             (block, its loops) -> whether to tile it, instead of asking for reuse
    """

    structure: str
    tile_binds: Sequence[str] | None = None
    max_innermost_factor: int | None = None
    vector_load_lens: Sequence[int] | None = None
    reuse_read: ReuseType | None = None
    reuse_write: ReuseType | None = None
    filter_fn: Callable[[Block, Any], bool] | None = None

    def __post_init__(self) -> None:
        if not self.structure or set(self.structure) - set("SR"):
            raise ScheduleError(f'the structure is letters S and R, got "{self.structure}"')
        for name in ("tile_binds", "vector_load_lens"):
            if getattr(self, name):
                raise ScheduleError(
                    f"MultiLevelTiling: {name} is for threads of GPUs, and code is made for CPUs "
                    f"here: leave it out, got {getattr(self, name)!r}"
                )
        for reuse in (self.reuse_read, self.reuse_write):
            if reuse is not None and any(n >= len(self.structure) for n in reuse.levels):
                raise ScheduleError(
                    f'"{self.structure}" has {len(self.structure)} levels; something is kept at '
                    f"one before the last, got {list(reuse.levels)}"
                )

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        return self._tiled(sch, block) if self._wants(sch, block) else [sch]

    def _wants(self, sch: Schedule, block: BlockRV) -> bool:
        node: Block = sch.get(block)
        if TILED in node.annotations or not node.iter_vars:
            return False
        if self.filter_fn is not None:
            return self.filter_fn(node, [sch.get(loop) for loop in sch.get_loops(block)])
        return reuses(sch, block)

    def _tiled(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        before = sch.copy()
        try:
            start = self._tile(sch, block)
        except ScheduleError:
            return [before]  # a size that is a symbol, a loop that cannot be moved
        designs = [start]
        sums = sch.get(start.block).init is not None
        wanted = (
            (_keep_writes, self.reuse_write if sums else None),
            (_keep_reads, self.reuse_read),
        )
        for add, reuse in wanted:
            if reuse is not None and reuse.req != "no":
                plain = [] if reuse.req == "must" else designs
                designs = [*plain, *(d for tiled in designs for d in add(tiled, reuse))] or designs
        return [tiled.sch for tiled in designs]

    def _tile(self, sch: Schedule, block: BlockRV) -> _Tiled:
        node: Block = sch.get(block)
        loops = loops_by_axis(sch, block)
        tiles: list[list[LoopRV]] = [[] for _ in self.structure]
        for axis in node.iter_vars:
            letter = "R" if axis.is_reduce else "S"
            levels = [k for k, x in enumerate(self.structure) if x == letter]
            if loops is None or axis.iter_type not in ("spatial", "reduce") or not levels:
                raise ScheduleError(f"axis {axis.var.name} has no place in {self.structure}")
            if axis.var not in loops:
                continue
            loop = loops[axis.var]
            factors = self._factors(sch, node, axis.var, loop, len(levels))
            for level, part in zip(levels, sch.split(loop, factors)):
                tiles[level].append(part)
        sch.reorder(*(loop for tile in tiles for loop in tile))
        sch.annotate(block, TILED, self.structure)
        return _Tiled(sch, block, tiles)

    def _factors(
        self, sch: Schedule, block: Block, axis: Var, loop: LoopRV, count: int
    ) -> list[Any]:
        """How large the tiles of a loop are, drawn."""
        factors: list[Any] = sch.sample_perfect_tile(
            loop, count, self.max_innermost_factor or _ANY_SIZE
        )
        return factors


def reuses(sch: Schedule, block: BlockRV) -> bool:
    """Whether tiles of a block keep something near: of its inputs, elements that not all of its
    axes index, or, of a block that nothing reads, what blocks before it compute for them.
    """
    view, axes = View(sch, block), loops_by_axis(sch, block)
    node = view.block
    if not axes or len(node.writes) != 1 or not view.facts.idempotent:
        return False
    own = node.writes[0].buffer
    for load in walk(node.body):
        if isinstance(load, BufferLoad) and load.buffer is not own:
            used = {v for index in load.indices for v in walk(index) if isinstance(v, Var)}
            if any(axis not in used for axis in axes):
                return True
    return not sch.get_consumers(block) and bool(sch.get_producers(block))


def _keep_writes(start: _Tiled, reuse: ReuseType) -> Iterator[_Tiled]:
    pointwise = View(start.sch, start.block).pointwise
    for level in reuse.levels:
        tiled = start.copy()
        with contextlib.suppress(ScheduleError):
            if pointwise is None:
                consumer = tiled.sch.cache_write(tiled.block, 0, reuse.scope)
            else:
                (consumer,) = tiled.sch.get_consumers(tiled.block)
                tiled.sch.set_scope(tiled.block, 0, reuse.scope)
            tiled.sch.reverse_compute_at(consumer, tiled.loop(level), preserve_unit_loops=True)
            yield tiled


def _keep_reads(start: _Tiled, reuse: ReuseType) -> Iterator[_Tiled]:
    own = {region.buffer for region in start.sch.get(start.block).writes}
    reads = [k for k, r in enumerate(start.sch.get(start.block).reads) if r.buffer not in own]
    for level in reuse.levels:
        tiled = start.copy()
        with contextlib.suppress(ScheduleError):
            for k in reads:
                copy = tiled.sch.cache_read(tiled.block, k, reuse.scope)
                tiled.sch.compute_at(copy, tiled.loop(level), preserve_unit_loops=True)
            yield tiled


class MultiLevelTilingWideVector(MultiLevelTiling):
    """The same with innermost tiles of whole vectors, along the last axis of what is written.

    vector_length_in_bits  of a vector. Further arguments as of `MultiLevelTiling`
    """

    def __init__(self, structure: str, vector_length_in_bits: int, *args: Any, **options: Any):
        super().__init__(structure, None, *args, **options)
        self.vector_length_in_bits = vector_length_in_bits

    def _factors(
        self, sch: Schedule, block: Block, axis: Var, loop: LoopRV, count: int
    ) -> list[Any]:
        written = block.writes[0]
        lanes = max(1, self.vector_length_in_bits // written.buffer.dtype.bits)
        if not written.region or written.region[-1].min is not axis:
            return super()._factors(sch, block, axis, loop, count)
        factors: list[Any] = sch.sample_partitioned_tile(loop, count, count - 1, lanes)
        return factors


class MultiLevelTilingWithIntrin(MultiLevelTiling):
    """The same for blocks whose innermost tiles can be a tensor intrinsic: its loops are a block of
    their own, that `postproc.RewriteTensorize` replaces, and the loops around it are tiled. Others
    are left alone.

    intrin_name  as registered by `tir.TensorIntrin.register`. Further arguments as of
                 `MultiLevelTiling`
    """

    def __init__(self, intrin_name: str, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.intrin_name = intrin_name
        intrin = TensorIntrin.get(intrin_name)
        assert intrin is not None
        self._desc = intrin.desc

    def _wants(self, sch: Schedule, block: BlockRV) -> bool:
        if not super()._wants(sch, block):
            return False
        return get_tensorize_loop_mapping(sch, block, self._desc) is not None

    def _tile(self, sch: Schedule, block: BlockRV) -> _Tiled:
        info = get_tensorize_loop_mapping(sch, block, self._desc)
        assert info is not None
        by_loop = {id(sch.get(loop)): loop for loop in sch.get_loops(block)}
        inner: list[tuple[int, LoopRV]] = []
        for path, desc_loop in info.loop_map.items():
            _, part = sch.split(by_loop[id(path.stmt)], [None, desc_loop.extent])
            inner.append((info.desc_loop_indexer[desc_loop], part))
        last = [part for _, part in sorted(inner, key=lambda pair: pair[0])]
        moved = {id(sch.get(part)) for part in last}
        outer = [loop for loop in sch.get_loops(block) if id(sch.get(loop)) not in moved]
        sch.reorder(*outer, *last)
        around = sch.blockize(last[0])
        sch.annotate(around, AUTO_TENSORIZE, self.intrin_name)
        return super()._tile(sch, around)


__getattr__ = submodules(__name__)
