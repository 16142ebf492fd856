"""Keeping of a buffer what the next iteration of a loop needs as well: `rolling_buffer`.

An iteration of the loop needs a window of a dimension, which goes on by less than its size: what
both windows hold is not computed again, and the dimension is kept modulo the window's size.
"""

from __future__ import annotations

from ....arith import number_of
from ....base import NamedTuple
from ....ir import Or, PrimExpr, Var, const, descend, is_const, substitute
from ...index_map import IndexMap
from ...op import all as every
from ...stmt import Block, BlockRealize, Buffer, For, ForKind
from ..model.boxes import bound_box, region_while
from ..model.dependence import check_self_contained
from ..model.facts import BlockKind, facts_of
from ..model.primitive import BLOCK, primitive
from ..model.regions import only_plain_accesses, owner_of, users_of
from ..model.state import State, free_variables, refuse
from .layout import moved_accesses
from .marks import written_buffer


class _Window(NamedTuple):
    """What one iteration of `loop` needs of a dimension: `size` elements from `low`, of which the
    first `shared` are in the window before as well.
    """

    dim: int
    loop: For
    low: PrimExpr
    size: int
    shared: int


@primitive(block=BLOCK)
def rolling_buffer(state: State, block: Block, write_buffer_index: int) -> tuple[State, None]:
    """Keep of a buffer that the block writes the window which an iteration needs, and do not
    compute again what is left there from the iteration before.

    The buffer rolls along the dimension whose window the outermost loop moves; windows of other
    dimensions are not computed again either. Raises ScheduleError unless the buffer is allocated
    in the function, the block alone writes it and computes whole windows, all that read it come
    after it in the same loop (as `compute_at` puts the block) and stay within the window, and what
    the block reads is the same in both iterations.

        B = T.alloc_buffer((10, 4))         B = T.alloc_buffer((6, 4))
        for i in range(2):                  for i in range(2):
            for a, j in T.grid(6, 4):   →       for a, j in T.grid(6, 4):
                with T.block("B"):                  with T.block("B"):
                    v = i * 4 + a                       v = i * 4 + a
                                                        T.where(i < 1 or 2 <= a)
                    B[v, j] = ...                       B[v % 6, j] = ...
            ... B[i * 4 + a, j] ...             ... B[(i * 4 + a) % 6, j] ...
    """
    buffer = written_buffer(block, write_buffer_index)
    owner = owner_of(state, buffer.data)
    if owner is None:
        refuse(
            f"{buffer.name} is a parameter; only a buffer allocated in the function rolls", block
        )
    only_plain_accesses(state, owner, buffer, "rolling_buffer")
    readers = _readers(state, block, buffer)
    realize = state.realize(block)
    loops = state.loops_above(realize)
    shared = [f for f in loops if all(f in state.around(r) for r in readers)]
    windows = _windows(state, realize, buffer, shared, loops[len(shared) :])
    if not windows:
        refuse(
            f"no loop around block {block.name_hint} and all that read {buffer.name} moves a "
            "window of it by less than the window's size; use compute_at before",
            block,
        )
    first = min(windows, key=lambda w: shared.index(w.loop))
    _check_order(block, shared, windows)
    _check_steady(state, block, first.loop, {buffer.data})
    for r in readers:
        _check_within(state, r, buffer, shared[-1], first)
    state = state.replace(realize, realize.replace(predicate=_new_part(state, realize, windows)))
    shape = list(buffer.shape)
    shape[first.dim] = const(first.size, shape[first.dim].dtype)
    indices = [Var(f"i{k}", e.dtype) for k, e in enumerate(shape)]
    final: list[PrimExpr] = list(indices)
    final[first.dim] = indices[first.dim] % first.size
    new = buffer.replace(shape=tuple(shape))
    owner = state.now(owner)
    return moved_accesses(state, owner, buffer, new, IndexMap(indices, final), False), None


def _readers(state: State, block: Block, buffer: Buffer) -> list[Block]:
    """The blocks that read the buffer, which `block` alone writes."""
    facts = facts_of(state, block)
    whole = facts.kind is BlockKind.COMPLETE and not facts.guarded
    if not whole or not is_const(state.realize(block).predicate, 1):
        why = facts.why or "it is a reduction, or runs under a condition"
        refuse(f"block {block.name_hint} may not compute all of its elements: {why}", block)
    readers, writers = users_of(state, buffer.data)
    if len(writers) != 1 or writers[0] is not block:
        refuse(f"{buffer.name} is written by other blocks than {block.name_hint}", *writers)
    if not readers:
        refuse(f"nothing reads {buffer.name}", block)
    order = state.blocks()
    early = next((r for r in readers if order.index(r) < order.index(block)), None)
    if early is not None:
        refuse(f"block {early.name_hint} reads {buffer.name} before it is written", early, block)
    return readers


def _windows(
    state: State, realize: BlockRealize, buffer: Buffer, shared: list[For], inner: list[For]
) -> list[_Window]:
    """The windows that loops of `shared` move by less than their size."""
    block = realize.block
    access = next(a for a in facts_of(state, block).writes if a.buffer is buffer)
    box = region_while(state, realize, access, inner)
    if not box.exact:
        refuse(f"block {block.name_hint} is not shown to compute a box of {buffer.name}", block)
    windows: list[_Window] = []
    moved: set[Var] = set()
    for k, axis in enumerate(box.axes):
        if axis is None:
            continue
        low, size = axis[0], number_of(axis[1])
        if not isinstance(size, int) and free_variables(size) & {f.loop_var for f in shared}:
            refuse(f"the size of what is computed of {buffer.name} follows the loops", block)
        movers = [f for f in shared if f.loop_var in free_variables(low)]
        twice = moved & {f.loop_var for f in movers}
        if twice:
            name = next(iter(twice)).name
            refuse(f"loop {name} moves two dimensions of {buffer.name}", block)
        moved |= {f.loop_var for f in movers}
        if not movers or not isinstance(size, int):
            continue
        loop = movers[-1]
        after = substitute(low, {loop.loop_var: loop.loop_var + 1})
        step = number_of(state.analyzer.simplify(after - low))
        if isinstance(step, int) and 0 < step < size:
            windows.append(_Window(k, loop, low, size, size - step))
    return windows


def _check_order(block: Block, shared: list[For], windows: list[_Window]) -> None:
    """Refuse unless the iterations from the outermost window's loop on come one after the other,
    and are of the same number each time.
    """
    own = {f.loop_var for f in shared}
    rolling = [w.loop for w in windows]
    for f in shared[min(shared.index(f) for f in rolling) :]:
        if f in rolling and f.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
            refuse(
                f"the iterations of loop {f.loop_var.name} are not run one after the other",
                f,
                block,
            )
        if (free_variables(f.min) | free_variables(f.extent)) & own:
            refuse(f"the range of loop {f.loop_var.name} follows other loops", f, block)


def _check_steady(state: State, block: Block, loop: For, seen: set[Var]) -> None:
    """Refuse unless an element that the block computes is the same in all iterations of `loop`:
    what it reads is not written there, or each iteration writes it before, and always the same.
    """

    def writers_for(reader: Block) -> list[Block]:
        steady: list[Block] = []
        for data in facts_of(state, reader).read_data() - seen:
            seen.add(data)
            written = [w for w in users_of(state, data)[1] if loop in state.around(w)]
            if written:
                realizes = state.child_realizes(loop.body)
                check_self_contained(state, realizes, loop.body, [loop], data)
            for writer in written:
                if len(written) > 1 or facts_of(state, writer).kind is not BlockKind.COMPLETE:
                    refuse(
                        f"block {block.name_hint} depends on what block {writer.name_hint} writes "
                        f"in loop {loop.loop_var.name}, which may change",
                        block,
                        writer,
                    )
            steady += written
        return steady

    for _ in descend(block, writers_for):
        pass


def _check_within(
    state: State, reader: Block, buffer: Buffer, innermost: For, window: _Window
) -> None:
    """Refuse unless the block reads nothing outside of the window."""
    realize = state.realize(reader)
    around = [f for f in state.loops_above(realize) if f not in state.around(innermost)]
    proves = state.analyzer.can_prove
    for access in facts_of(state, reader).reads:
        if access.buffer is not buffer:
            continue
        axis = region_while(state, realize, access, around).axes[window.dim]
        if axis is not None and proves(axis[0] >= window.low):
            end = window.low + window.size
            if proves(axis[0] + axis[1] <= end):
                continue
        refuse(
            f"block {reader.name_hint} is not shown to read {buffer.name} only from {window.low} "
            f"to before {window.low + window.size} in dimension {window.dim}",
            reader,
        )


def _new_part(state: State, realize: BlockRealize, windows: list[_Window]) -> PrimExpr:
    """Where the block computes what no iteration before has."""
    access = facts_of(state, realize.block).writes[0]
    places = bound_box(realize, access)
    conditions: list[PrimExpr] = []
    for w in windows:
        place = state.analyzer.simplify(places[w.dim][0] - w.low)
        conditions.append(Or(w.loop.loop_var < w.loop.min + 1, place >= w.shared))
    return state.analyzer.simplify(every(*conditions))
