"""Inputs of products in panels: [panel, depth, place in the panel], as register tiles read them.

A panel holds the columns (or rows) of one tile, so that a step along the depth reads what lies side
by side. Inputs are copied into panels in the loop that uses them, or kept so if they are constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base import CpuModel, NamedTuple
from ....ir import IntImm, PrimExpr, Var
from ...index_map import IndexMap
from ...stmt import PREFETCH, PREFETCH_PANEL, Buffer, ForKind
from ..model.state import free_variables
from ..schedule import Schedule
from .constants import ConstantLayout
from .queries import extent_of, loops_inside

# Bytes: far enough for memory to answer, near enough to stay in the first cache.
_AHEAD = 4096
# So many vectors side by side are copied by statements of their own.
_FEW_RUNS = 4
# What two panels, the one that is read and the next, may take of the second cache: larger ones
# find their place taken when they are read.
_OF_L2 = 1 / 8
# What a constant may take of the second cache to be there after its first use in a call: asking for
# it in each one is a fifth of a small tile's time.
_OF_L2_KEPT = 1 / 16


class Operand(NamedTuple):
    """An input of a product, and how it is indexed."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]

    @property
    def is_plain(self) -> bool:
        """Whether it is indexed by plain axes."""
        return all(isinstance(i, (Var, IntImm)) for i in self.indices)

    @property
    def bytes(self) -> int:
        """The size of an element."""
        return -(-self.buffer.dtype.bits // 8)

    def place(self, axis: Var) -> int:
        """Which of its dimensions `axis` is."""
        return next(k for k, i in enumerate(self.indices) if i is axis)


def to_panels(operand: Operand, axis: Var, width: int) -> IndexMap:
    """From [..., axis, ...] to [panel, ..., place in the panel]."""
    place = operand.place(axis)

    def panel(*indices: Any) -> list[Any]:
        others = [e for k, e in enumerate(indices) if k != place]
        return [indices[place] // width, *others, indices[place] % width]

    ndim, dtype = len(operand.indices), str(axis.dtype)
    return IndexMap.from_func(panel, ndim=ndim, index_dtype=dtype)


def constant_panels(operand: Operand, axis: Var, width: int) -> ConstantLayout:
    """The layout of a constant whose size along `axis` is a multiple of `width`."""
    place = operand.place(axis)

    def pack(array: np.ndarray) -> np.ndarray:
        split = (*array.shape[:place], -1, width, *array.shape[place + 1 :])
        return np.moveaxis(array.reshape(split), (place, place + 1), (0, -1))

    return ConstantLayout(operand.buffer, to_panels(operand, axis, width), pack)


class Ahead(NamedTuple):
    """What to ask of memory before tiles read it: it comes from there once in a call.

    elements  how far before they are read; 0: nothing is asked for
    panel     the size of a panel, whose reading asks for the next one; 0: it does not
    """

    elements: int = 0
    panel: int = 0


def ahead_of(constant: Buffer, cpu: CpuModel) -> Ahead:
    """What to ask for of a constant [panel, ..., place in the panel]: nothing if a cache
    keeps it.
    """
    size = constant.dtype.bits // 8
    count, *inside = (n.value if isinstance(n, IntImm) else 1 for n in constant.shape)
    panel = math.prod(inside)
    if count * panel * size <= max(cpu.l1_bytes, cpu.l2_bytes * _OF_L2_KEPT):
        return Ahead()
    spread = count > 1 and 2 * panel * size <= cpu.l2_bytes * _OF_L2
    return Ahead(_AHEAD // size, panel if spread else 0)


def ask_for_panels(sch: Schedule, reduce: Sequence[Any], ahead: Ahead) -> None:
    """Ask in the innermost rolled one of the loops `reduce` of the sums, which reads a run of a
    panel.
    """
    rolled = [x for x in reduce if sch.get(x).kind == ForKind.SERIAL]
    if not rolled or not ahead.elements:
        return
    sch.annotate(rolled[-1], PREFETCH, ahead.elements)
    if ahead.panel:
        sch.annotate(rolled[-1], PREFETCH_PANEL, ahead.panel)


def pack_panels(
    sch: Schedule, block: Any, operand: Operand, axis: Var, loop: Any, width: int, lanes: int
) -> None:
    """Copy what one iteration of `loop` needs of an input into panels; all of it before all loops
    if that is None.

    lanes  how many elements to copy at once where they lie side by side in both
    """
    reads = [r.buffer for r in sch.get(block).reads]
    copy = sch.cache_read(block, reads.index(operand.buffer), "global")
    move_panels(sch, copy, operand, axis, loop, width, lanes)


def move_panels(
    sch: Schedule, copy: Any, operand: Operand, axis: Var, loop: Any, width: int, lanes: int
) -> None:
    """Make the block `copy` of an input fill panels, in `loop` or before all loops."""
    place = operand.place(axis)
    sch.transform_layout(copy, ("write", 0), to_panels(operand, axis, width))
    if loop is not None:
        sch.compute_at(copy, loop)
    inner = list(sch.get_loops(copy)) if loop is None else loops_inside(sch, copy, loop)
    bound = sch.state.realize(sch.get(copy)).iter_values[place]
    within = free_variables(bound)
    along = next((x for x in inner if sch.get(x).loop_var in within), None)
    if along is None:
        return
    others = [x for x in inner if x is not along]
    extent = extent_of(sch, along)
    panel = None
    if extent is None or extent > width:
        panel, along = sch.split(along, [None, width])
    if place == len(operand.indices) - 1:
        # Long runs of the input, one behind the other.
        sch.reorder(*others, *([] if panel is None else [panel]), along)
        if lanes > 1 and width % lanes == 0 and (extent or 1) % lanes == 0:
            runs, along = sch.split(along, [None, lanes])
            sch.vectorize(along)
            if width // lanes <= _FEW_RUNS:
                sch.unroll(runs)
        elif width <= lanes:
            sch.unroll(along)
        return
    sch.reorder(*([] if panel is None else [panel]), *others, along)
    if width <= lanes:
        sch.unroll(along)
