"""What is done about whole nests, once each block has its loops.

Loops side by side that go over the same range, element by element, become one: what they both
read, or one reads of the other, comes from memory once.

    for i in T.serial(n):                for i in T.serial(n):
        B[i] = max(A[i], 0)       ->         B[i] = max(A[i], 0)
    for i in T.serial(n):                    C[i] = B[i] * 2
        C[i] = B[i] * 2

Vectors of results larger than the caches are stored past those, so that their lines are not read
first, and what is read stays longer. The stores themselves are the code generator's
(`target/llvm/streams.py`), which takes whole vectors only: rows have to be a whole number of them.

    for i: for j in 4096: B[i, j] = ...     →     for i: for jo in 16: for jm in 8:   (nontemporal)
                                                      for ji in vectorized(32): B[i, ...] = ...

The outermost loop of each nest that has enough to do is shared out among the cores.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ....base import CpuModel, ScheduleError, TIRError, decided, declined
from ....ir import Call, IntImm, Intrinsic, PrimExpr, descend, substitute, walk
from ...analysis import estimate_tir_flops
from ...flat import flat_index
from ...stmt import (
    NONTEMPORAL,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    Stmt,
    statements_below,
)
from ...transform.rewriter import constant
from ..model.facts import BlockKind, facts_of
from ..model.regions import users_of
from ..schedule import Schedule
from .queries import TYPICAL_SIZE, extent_of, product_of

# -- neighbours ------------------------------------------------------------------------------------


MOST_BUFFERS = 8  # as many streams as a core's prefetchers follow


def merge_neighbours(sch: Schedule, blocks: Any) -> None:
    """Merge each loop with the one before it, where both go through an array in step and the order
    of what they do allows it.
    """
    before: Any = None
    for rv in blocks:
        loops = list(sch.get_loops(rv))
        block: Block = sch.get(rv)
        if len(loops) != 1 or any(axis.is_reduce for axis in block.iter_vars):
            before = None
            continue
        loop, first, places = loops[0], block, _places(block, block)
        if before is not None:
            joined = before[2] | _places(block, before[1])
            in_step = len(joined) < len(before[2]) + len(places)
            if in_step and len({buffer for buffer, _ in joined}) <= MOST_BUFFERS:
                try:
                    loop = sch.merge(before[0], loop)
                except ScheduleError as error:
                    declined("block {} not in one loop with {}: {}", block, before[1], str(error))
                else:
                    decided("block {} runs in one loop with {}", block, before[1])
                    first, places = before[1], joined
        before = loop, first, places


def _places(block: Block, like: Block) -> set[tuple[Buffer, tuple[PrimExpr, ...]]]:
    """What a block reads and writes: buffers, and where, in the axes of the block `like`."""
    axes: dict[Any, PrimExpr] = {a.var: b.var for a, b in zip(block.iter_vars, like.iter_vars)}
    return {
        (r.buffer, tuple(substitute(x.min, axes) for x in r.region))
        for r in (*block.reads, *block.writes)
    }


# -- past the caches -------------------------------------------------------------------------------


# Vectors in one step of the innermost loop, and steps between two looks at the alignment.
_VECTORS = 4
_STEPS = 8
_CHOICE = Intrinsic.get("tir.if_then_else")


def store_past_caches(sch: Schedule, blocks: Sequence[Any], cpu: CpuModel) -> None:
    """Let those of the blocks that write a large result store it so."""
    for rv in blocks:
        body = sch.get(rv).body
        if not isinstance(body, BufferStore) or not is_large(sch, body.buffer, cpu.l3_bytes):
            continue
        if _is_for_others(sch, body.buffer) and (shape := _vector_steps(sch, rv, cpu)) is not None:
            with contextlib.suppress(ScheduleError), sch.attempt():
                _, middle, vector = sch.split(sch.get_loops(rv)[-1], [None, *shape])
                sch.vectorize(vector)
                sch.annotate(middle, NONTEMPORAL, True)


def _vector_steps(sch: Schedule, rv: Any, cpu: CpuModel) -> tuple[int, int] | None:
    """(vectors, elements of a vector) in one step of the loop along the result; None if that is no
    plain row of vectors.
    """
    block: Block = sch.get(rv)
    loops = sch.get_loops(rv)
    if not loops or facts_of(sch.state, block).kind is not BlockKind.COMPLETE:
        return None
    inner: For = sch.get(loops[-1])
    extent = extent_of(sch, loops[-1])
    lanes = cpu.lanes(block.writes[0].buffer.dtype.bits)
    if inner.kind != ForKind.SERIAL or inner.annotations or lanes < 2 or not extent:
        return None
    if extent % lanes or not _runs_along(sch, block, inner):
        return None
    vectors = math.gcd(extent // lanes, _VECTORS)
    return math.gcd(extent // lanes // vectors, _STEPS), vectors * lanes


def is_large(sch: Schedule, buffer: Buffer, size_bytes: int) -> bool:
    """Whether a buffer is a parameter of more than `size_bytes`."""
    count = product_of(map(constant, buffer.shape))
    large = count is not None and count * buffer.dtype.itemsize > size_bytes
    return large and buffer in sch.state.fn.buffers


def _is_for_others(sch: Schedule, buffer: Buffer) -> bool:
    """Whether nobody here reads the buffer, and one block alone writes it."""
    readers, writers = users_of(sch.state, buffer.data)
    return not readers and len(writers) == 1 and not buffer.strides


def _runs_along(sch: Schedule, block: Block, loop: For) -> bool:
    """Whether a step of the loop, whose body is the block alone, is one to the next element of all
    that the block touches, or none at all.
    """
    if not isinstance(loop.body, BlockRealize):
        return False
    # A choice between elements is one between addresses at best.
    if any(isinstance(n, Call) and n.op is _CHOICE for n in walk(block.body)):
        return False
    values = dict(zip((a.var for a in block.iter_vars), loop.body.iter_values))
    analyzer, following = sch.state.analyzer, {loop.loop_var: loop.loop_var + 1}
    for n in walk(block.body):
        if not isinstance(n, (BufferLoad, BufferStore)):
            continue
        place = analyzer.simplify(substitute(flat_index(n.buffer, n.indices), values))
        stride = constant(analyzer.simplify(substitute(place, following) - place))
        if n.buffer.strides or stride not in ((0, 1) if isinstance(n, BufferLoad) else (1,)):
            return False
    return True


# -- several cores ---------------------------------------------------------------------------------


_PARALLEL_FLOPS = 1 << 20
_PARALLEL_STEPS = 1 << 15
_EVEN = 4  # iterations for each core, from which on they are shared out evenly enough


def share_loops(sch: Schedule, blocks: Any, cpu: CpuModel) -> None:
    """Share out the outermost loop of each nest that has enough to do."""
    seen: dict[int, For] = {}  # kept alive: another one could get the number of one that is gone

    def see(loop: Any) -> None:
        seen[id(sch.get(loop))] = sch.get(loop)

    for rv in blocks:
        loops = list(sch.get_loops(rv))
        if any(sch.get(loop).kind == ForKind.PARALLEL for loop in loops):
            decided("block {} runs on several cores", sch.get(rv))
            continue
        if not loops or id(sch.get(loops[0])) in seen:
            continue
        see(loops[0])
        if not _is_much(sch.get(loops[0])):
            continue
        for depth in range(3):
            if depth == len(loops):
                break
            loops = _with_enough_iterations(sch, loops, depth, cpu)
            see(loops[0])
            extent = extent_of(sch, loops[depth])
            if extent is not None and extent < cpu.cores:
                continue
            try:
                sch.parallel(loops[depth])
            except ScheduleError:
                # It carries sums from one iteration to the next: a loop inside may be shared out.
                continue
            decided("block {} runs on several cores", sch.get(rv))
            break
        else:
            declined("block {} runs on one core: no loop of it can be shared out", sch.get(rv))


def _with_enough_iterations(
    sch: Schedule, loops: list[Any], depth: int, cpu: CpuModel
) -> list[Any]:
    """The loop at a depth and those inside made one while they have too few iterations to share out
    evenly. An outermost one whose extent is not known may be so: batches are often of one.
    """
    sure = extent_of(sch, loops[depth]) or (1 if depth == 0 else TYPICAL_SIZE)
    more = 0
    for outer, inner in pairwise(loops[depth:]):
        extent = extent_of(sch, inner)
        if sure >= _EVEN * cpu.cores or extent is None:
            break
        if any(sch.get(x).annotations for x in (outer, inner)):
            # A division by a symbol tells nothing about what is divided; a hint would be lost.
            break
        sure, more = sure * extent, more + 1
    if more:
        with contextlib.suppress(ScheduleError):
            return _made_one(sch, loops, depth, more)
    # Not all: as many as can be.
    with contextlib.suppress(ScheduleError):
        for _ in range(more - 1):
            loops = _made_one(sch, loops, depth, 1)
    return loops


def _made_one(sch: Schedule, loops: list[Any], depth: int, more: int) -> list[Any]:
    """The loop at a depth and so many more inside it made one, which can be shared out."""
    with sch.attempt():
        for _ in range(more):
            loops = [*loops[:depth], sch.fuse(*loops[depth : depth + 2]), *loops[depth + 2 :]]
        sch.copy().parallel(loops[depth])
    return loops


def _is_much(nest: For) -> bool:
    """Whether a nest may be worth another thread, one that is awake; the code of the loop looks
    again, at what it turns out to do (`target/llvm/parallel.py`).
    """
    return _steps(nest) >= _PARALLEL_STEPS or _flops(nest) >= _PARALLEL_FLOPS


def _steps(nest: For) -> float:
    """How often stores run, symbols taken for typical."""

    def below(item: tuple[Stmt, float]) -> list[tuple[Stmt, float]]:
        s, times = item
        if isinstance(s, For):
            times *= s.extent.value if isinstance(s.extent, IntImm) else TYPICAL_SIZE
        return [(c, times) for c in statements_below(s)]

    start: tuple[Stmt, float] = (nest, 1.0)
    inside = descend(start, below)
    return sum(times for s, times in inside if isinstance(s, BufferStore))


def _flops(nest: For) -> float:
    try:
        return estimate_tir_flops(nest, guards=True)
    except TIRError:
        # A loop without a bound: nothing is known, so it counts as little.
        return 0.0
