"""Postprocessors: what is done with a schedule when all is decided, and what is refused then.

    class Small(ms.postproc.PyPostproc):
        def apply(self, sch):
            return len(sch.mod.script()) < 10_000

Enters: a schedule with the remarks that rules left. Leaves: True, and the schedule finished, or
False: no candidate. A ScheduleError counts as False.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..base import ScheduleError, record, submodules
from ..ir import IntImm, Var, substitute, walk
from ..tir import Block, BufferStore, For, ForKind, PrimFunc
from ..tir.schedule import BlockRV, IndexMap, LoopRV, Schedule
from ..tir.schedule.analysis import suggest_index_map
from ..tir.schedule.plans import root_of
from .derived import Part
from .schedule_rule.finishing import PARALLEL, UNROLL, VECTORIZE
from .schedule_rule.multi_level_tiling import AUTO_TENSORIZE

# Vectors of fewer elements are left to LLVM.
_LEAST_LANES = 4
_PREPROC = "meta_schedule.layout_rewrite_preproc"
_LAYOUT_FREE = "layout_free_buffers"


class Postproc(Part):
    """Derive from it (`PyPostproc`) by giving `apply`."""

    def apply(self, sch: Schedule) -> bool:
        """Finish a schedule; False if it is not to be measured."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it does")

    @staticmethod
    def create(kind: str = "llvm") -> list[Postproc]:
        """Those of TVM for CPUs, in order. Raises ScheduleError for other kinds of targets."""
        if kind not in ("llvm", "cpu", "c"):
            raise ScheduleError(
                f"Postproc.create: code is made for CPUs here, kind is llvm, cpu or c, got {kind!r}"
            )
        return [
            DisallowDynamicLoop(),
            RewriteParallelVectorizeUnroll(),
            RewriteReductionBlock(),
            RewriteTensorize(),
            RewriteLayout(),
        ]


PyPostproc = Postproc
create = Postproc.create


class DisallowDynamicLoop(Postproc):
    """Refuse loops whose number of iterations is not a constant."""

    def apply(self, sch: Schedule) -> bool:
        return all(
            isinstance(n.extent, IntImm)
            for fn in _functions(sch)
            for n in walk(fn.body)
            if isinstance(n, For)
        )


@record(frozen=False)
class DisallowAsyncStridedMemCopy(Postproc):
    """Refuse asynchronous copies between buffers with gaps. Here copies wait for their end, so that
    there is nothing to refuse.
    """

    merge_async_commit_queue_scope: bool = True

    def apply(self, sch: Schedule) -> bool:
        return True


class RewriteParallelVectorizeUnroll(Postproc):
    """Do what `schedule_rule.ParallelizeVectorizeUnroll` asks for: the outermost loops of each nest
    become one that is shared out, the innermost ones one in vectors, short loops are written out.
    """

    def apply(self, sch: Schedule) -> bool:
        for root in _roots(sch):
            remarks: dict[str, int] = {}
            for key in (PARALLEL, VECTORIZE, *UNROLL.values()):
                value = sch.get(root).annotations.get(key)
                if value is not None:
                    sch.unannotate(root, key)
                    remarks[key] = int(value)
            seen: list[Any] = []
            for block in sch.get_child_blocks(root) if remarks else ():
                self._finish(sch, block, remarks, seen)
        return True

    def _finish(
        self, sch: Schedule, block: BlockRV, remarks: dict[str, int], seen: list[Any]
    ) -> None:
        loops = list(sch.get_loops(block))
        if not loops:
            return
        # Nests that several blocks share are shared out once, by the first.
        first = not any(sch.get(loops[0]) is f for f in seen)
        if VECTORIZE in remarks:
            _vectorize(sch, block, remarks[VECTORIZE])
        if first and PARALLEL in remarks:
            _parallelize(sch, block, remarks[PARALLEL])
        outermost = sch.get_loops(block)[0]
        for explicit, key in UNROLL.items():
            if first and remarks.get(key, 0) > 0:
                sch.annotate(outermost, "pragma_auto_unroll_max_step", remarks[key])
                sch.annotate(outermost, "pragma_unroll_explicit", int(explicit))
        seen.append(sch.get(outermost))


def _parallelize(sch: Schedule, block: BlockRV, most: int) -> None:
    """Share out the outermost loop, with those inside as long as all have at most so many jobs;
    not at all for one job.
    """
    if most < 2:
        return
    loops = list(sch.get_loops(block))
    reducing = _reducing(sch, block)
    while len(loops) > 1 and _extent(sch, loops[0]) * _extent(sch, loops[1]) <= most:
        inner = sch.get(loops[1])
        if inner.loop_var in reducing or inner.kind is not ForKind.SERIAL:
            break
        try:
            with sch.attempt():
                fused = sch.fuse(*loops[:2])
        except ScheduleError:
            break
        loops[:2] = [fused]
    if _extent(sch, loops[0]) > 1 and sch.get(loops[0]).kind is ForKind.SERIAL:
        with contextlib.suppress(ScheduleError):
            sch.parallel(loops[0])


def _vectorize(sch: Schedule, block: BlockRV, most: int) -> None:
    """Run the innermost loop in vectors, in parts of at most so many iterations."""
    inner = sch.get_loops(block)[-1]
    if sch.get(inner).loop_var in _reducing(sch, block) or not _goes_along(sch, block, inner):
        return
    extent = _extent(sch, inner)
    width = max((n for n in range(1, most + 1) if extent % n == 0), default=1)
    if width < _LEAST_LANES or sch.get(inner).kind is not ForKind.SERIAL:
        return
    with contextlib.suppress(ScheduleError), sch.attempt():
        if width < extent:
            inner = sch.split(inner, [None, width])[1]
        sch.vectorize(inner)


def _goes_along(sch: Schedule, block: BlockRV, loop: LoopRV) -> bool:
    """Whether steps of a loop write one element after another."""
    node: Block = sch.get(block)
    store = node.body
    if not isinstance(store, BufferStore) or not store.indices:
        return False
    values = dict(zip([a.var for a in node.iter_vars], sch.state.realize(node).iter_values))
    var = sch.get(loop).loop_var

    def uses(index: Any) -> bool:
        axes = [n for n in walk(index) if isinstance(n, Var)]
        return any(var is n for axis in axes if axis in values for n in walk(values[axis]))

    return uses(store.indices[-1]) and not any(map(uses, store.indices[:-1]))


def _reducing(sch: Schedule, block: BlockRV) -> set[Var]:
    """The variables of loops that axes which reduce depend on."""
    node: Block = sch.get(block)
    return {
        n
        for axis, value in zip(node.iter_vars, sch.state.realize(node).iter_values)
        if axis.iter_type != "spatial"
        for n in walk(value)
        if isinstance(n, Var)
    }


def _extent(sch: Schedule, loop: LoopRV) -> int:
    extent = sch.get(loop).extent
    return extent.value if isinstance(extent, IntImm) else 1 << 30


class RewriteReductionBlock(Postproc):
    """Make the beginning of each reduction a block of its own, before its first loop; one of no
    steps stays as it is.
    """

    def apply(self, sch: Schedule) -> bool:
        for block in _blocks(sch):
            if sch.get(block).init is not None:
                reducing = _reducing(sch, block)
                for loop in sch.get_loops(block):
                    if sch.get(loop).loop_var in reducing:
                        if _extent(sch, loop):
                            sch.decompose_reduction(block, loop)
                        break
        return True


@record(frozen=False)
class RewriteTensorize(Postproc):
    """Replace the blocks that `schedule_rule.MultiLevelTilingWithIntrin` set apart by their
    intrinsic. Refuses what is not what the intrinsic computes.

    vectorize_init_loop  whether the loops that begin the sums run in vectors
    """

    vectorize_init_loop: bool = False

    def apply(self, sch: Schedule) -> bool:
        by_name = {sch.get(block).name_hint: block for block in _blocks(sch)}
        for block in _blocks(sch):
            name = sch.get(block).annotations.get(AUTO_TENSORIZE)
            if name is None:
                continue
            sch.unannotate(block, AUTO_TENSORIZE)
            # As `RewriteReductionBlock` calls what it takes apart.
            begins = sch.get(block).name_hint.removesuffix("_update") + "_init"
            if self.vectorize_init_loop and begins in by_name:
                for child in sch.get_child_blocks(by_name[begins]):
                    sch.vectorize(sch.get_loops(child)[-1])
            sch.tensorize(block, str(getattr(name, "value", name)))
        return True


class RewriteLayout(Postproc):
    """Read the parameters that the attribute ``layout_free_buffers`` of the function lists through
    copies in the order in which the loops want them.
    """

    def apply(self, sch: Schedule) -> bool:
        for fn in _functions(sch):
            free = [fn.buffer_map.get(fn.params[int(k)]) for k in fn.get_attr(_LAYOUT_FREE, ())]
            for block in _blocks(sch):
                for k, region in enumerate(sch.get(block).reads):
                    if any(region.buffer is b for b in free if b is not None):
                        self._rewrite(sch, block, k)
        return True

    def _rewrite(self, sch: Schedule, block: BlockRV, k: int) -> None:
        node: Block = sch.get(block)
        buffer = node.reads[k].buffer
        realize = sch.state.realize(node)
        values: dict[Any, Any] = dict(zip([a.var for a in node.iter_vars], realize.iter_values))
        indices = [r.min for r in node.reads[k].region]
        loops = [sch.get(loop) for loop in sch.get_loops(block)]
        layout = suggest_index_map(
            buffer, [substitute(i, values) for i in indices], loops, realize.predicate
        )
        if layout is not None and not layout.is_equivalent_to(_same(buffer.ndim)):
            with sch.attempt():
                copy = sch.cache_read(block, k, "global")
                sch.transform_layout(block, ("read", k), layout)
                sch.annotate(copy, _PREPROC, 1)


@record(frozen=False)
class RewriteUnboundBlock(Postproc):
    """Bind loops to threads of a GPU; on a CPU, nothing."""

    max_threadblocks: int = 256

    def apply(self, sch: Schedule) -> bool:
        return True


class RewriteCooperativeFetch(Postproc):
    """Share copies among the threads of a GPU; on a CPU, nothing."""

    def apply(self, sch: Schedule) -> bool:
        return True


class VerifyGPUCode(Postproc):
    """Refuse what is too large for a GPU; on a CPU, nothing."""

    def apply(self, sch: Schedule) -> bool:
        return True


@record(frozen=False)
class VerifyVTCMLimit(Postproc):
    """Refuse what is too large for the memory of a Hexagon; on a CPU, nothing."""

    vtcm_capacity: int | None = None

    def apply(self, sch: Schedule) -> bool:
        return True


def _same(ndim: int) -> IndexMap:
    axes = [Var(f"i{k}", "int32") for k in range(ndim)]
    return IndexMap(axes, axes)


def _functions(sch: Schedule) -> list[PrimFunc]:
    return [fn for fn in sch.mod.functions.values() if isinstance(fn, PrimFunc)]


def _roots(sch: Schedule) -> Iterator[BlockRV]:
    for gv, fn in sch.mod.functions.items():
        if isinstance(fn, PrimFunc):
            yield root_of(sch, gv.name_hint)


def _blocks(sch: Schedule) -> Iterator[BlockRV]:
    """Blocks of all functions, and those inside of them."""
    level = list(_roots(sch))
    while level:
        level = [child for block in level for child in sch.get_child_blocks(block)]
        yield from level


__getattr__ = submodules(__name__)
