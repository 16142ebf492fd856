"""Loops that are shared out among the cores: the outermost of each nest that has enough to do."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from typing import Any

from ....base import CpuModel, ScheduleError, TIRError, decided, declined
from ....ir import IntImm, descend
from ...analysis import estimate_tir_flops
from ...stmt import BufferStore, For, ForKind, Stmt, statements_below
from ..schedule import Schedule
from .queries import TYPICAL_SIZE, extent_of

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
