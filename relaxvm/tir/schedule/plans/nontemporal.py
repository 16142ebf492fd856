"""Results larger than the caches: vectors of them are stored past the caches, so that their lines
are not read first, and what is read stays longer.

    for i: for j in 4096: B[i, j] = ...     →     for i: for jo in 16: for jm in 8:   (nontemporal)
                                                      for ji in vectorized(32): B[i, ...] = ...

The stores themselves are the code generator's (`target/llvm/streams.py`). It takes whole vectors
only, so rows have to be a whole number of them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

from ....base import CpuModel, ScheduleError
from ....ir import Call, Intrinsic, substitute, walk
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
)
from ...transform.rewriter import constant
from ..model.facts import BlockKind, facts_of
from ..model.regions import users_of
from ..schedule import Schedule
from .queries import extent_of, product_of

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
        if _is_for_others(sch, body.buffer) and (shape := _steps(sch, rv, cpu)) is not None:
            with contextlib.suppress(ScheduleError), sch.attempt():
                _, middle, vector = sch.split(sch.get_loops(rv)[-1], [None, *shape])
                sch.vectorize(vector)
                sch.annotate(middle, NONTEMPORAL, True)


def _steps(sch: Schedule, rv: Any, cpu: CpuModel) -> tuple[int, int] | None:
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
