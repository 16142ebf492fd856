"""Questions about blocks and buffers that searches ask before they schedule."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import add
from typing import Any

from ...arith import Analyzer, IterMapper, number_of
from ...base import NamedTuple, ScheduleError
from ...ir import IntImm, PrimExpr, Var, as_expr, cast, children, const, descend
from ..index_map import IndexMap
from ..stmt import Block, Buffer, BufferLoad, BufferStore, For, PrimFunc, Stmt
from .model.bindings import loop_uses
from .model.boxes import iters_of
from .model.state import Path, State, free_variables, start
from .primitives.lookup import get_output_blocks


def is_output_block(sch: Any, block: Any) -> bool:
    """Whether a block writes something that is seen outside of the block around it."""
    state, node = _located(sch, block)
    if node is state.root():
        return False
    return any(b is node for b in get_output_blocks(state, state.scope(state.realize(node)))[1])


def has_block(sch: Any, block_name: str) -> bool:
    """Whether a schedule has a block of that name in the function that it works on."""
    return any(b.name_hint == block_name for b in sch.state.blocks())


has_sblock = has_block


def _located(sch: Any, block: Any) -> tuple[State, Block]:
    node = sch.get(sch.get_block(block) if isinstance(block, str) else block)
    if not isinstance(node, Block):
        raise ScheduleError(f"wanted a block (of get_block), got {type(node).__name__}")
    path = sch.get_sref(node)
    return next(s for s in sch._states.values() if s.has(node) and s.path(node) is path), node


# -- layouts ---------------------------------------------------------------------------------------


def suggest_index_map(
    buffer: Buffer,
    indices: Sequence[Any],
    loops: Sequence[For],
    predicate: Any = True,
    analyzer: Analyzer | None = None,
) -> IndexMap | None:
    """A layout of `buffer` in which loops that access it at `indices` go through memory in order.

    loops      from the outside in
    predicate  the condition under which it is accessed
    returns    old indices -> one for each digit of a loop; None if the access is no sum of digits
               of loops, or leaves places of the buffer out

        for i, j in T.grid(2, 32): A[j % 4 * 2 + i]     →     lambda x: (x % 2, x // 2)
    """
    mapper = IterMapper(iters_of(loops), analyzer)
    if not isinstance(as_expr(predicate), IntImm):
        mapper.constrain(predicate)
    flat: PrimExpr = const(0)
    for index, size in zip(indices, buffer.shape):
        flat = flat * cast("int32", size) + cast("int32", index)
    total = mapper.sum_of(Analyzer(wrap=False).simplify(flat))
    digits = mapper.digits(total) if total is not None else None
    if total is None or digits is None or number_of(total.base) != 0:
        return None
    step: Any = 1
    for d in digits:
        if not mapper.equal(d.scale, step):
            return None
        step = mapper.mul(step, d.extent)
    whole: Any = 1
    for size in buffer.shape:
        whole = mapper.mul(whole, number_of(size))
    if not mapper.equal(step, whole):
        return None
    rank = {f.loop_var: k for k, f in enumerate(loops)}

    def order(d: Any) -> tuple[int, Any]:
        return min(rank[v] for v in mapper.mark_variables(d.source)), -d.lower_factor

    if not all(isinstance(n, int) for d in digits for n in (d.lower_factor, d.extent, d.scale)):
        return None
    axes = [Var(f"i{k}", "int32") for k in range(buffer.ndim)]
    sizes = [e.value for e in buffer.shape if isinstance(e, IntImm)]
    if len(sizes) != buffer.ndim:
        return None
    return IndexMap(axes, [_digit(axes, sizes, d) for d in sorted(digits, key=order)])


def _digit(axes: Sequence[Var], sizes: Sequence[int], d: Any) -> PrimExpr:
    """``place // d.scale % d.extent`` of the place in memory that indices have."""
    low, high = d.scale, d.scale * d.extent
    parts: list[PrimExpr] = []
    place: PrimExpr = const(0)
    aligned = True
    stride = 1
    for v, size in reversed(list(zip(axes, sizes))):
        # What the dimension has of the digit: from `first` to `last`.
        first, last = max(low, stride), min(high, stride * size)
        if first < last:
            aligned = aligned and first % stride == first % low == last % first == 0
            part: PrimExpr = v if first == stride else v // (first // stride)
            if last < stride * size:
                part = part % (last // first)
            parts.insert(0, part if first == low else part * (first // low))
        place = v * stride + place
        stride *= size
    if not aligned:
        return place // low % d.extent
    return functools.reduce(add, parts, const(0)) if len(parts) != 1 else parts[0]


# -- intrinsics ------------------------------------------------------------------------------------


class TensorizeInfo(NamedTuple):
    """loop_map              loop of the block -> loop of the intrinsic's desc that it stands for
    desc_loop_indexer        loop of the desc -> its position
    block_iter_paddings      for each axis, the number that its extent has to become a multiple of;
                             None if none has to
    """

    loop_map: dict[Path, For]
    desc_loop_indexer: dict[For, int]
    block_iter_paddings: list[int] | None


def get_tensorize_loop_mapping(
    sch: Any, block: Any, desc_func: PrimFunc, allow_padding: bool = False
) -> TensorizeInfo | None:
    """Which loops of a block may be cut for an intrinsic, by the kinds and extents of their axes:
    each axis of `desc_func`, from the last to the first, takes the last axis of its kind whose
    extent it divides. None if there is none for one of them.

    allow_padding  take also an axis that is not divided, with a padding
    """
    state, node = _located(sch, block)
    desc_loops, desc = _desc_of(desc_func)
    realize = state.realize(node)
    loops = {f.loop_var: f for f in state.loops_above(realize)}
    paddings = [1] * len(node.iter_vars)
    left = list(range(len(node.iter_vars)))
    loop_map: dict[Path, For] = {}
    for axis, loop in reversed(list(zip(desc.iter_vars, desc_loops))):
        size = number_of(loop.extent)
        for k in reversed(left):
            mine, value = node.iter_vars[k], realize.iter_values[k]
            if mine.iter_type != axis.iter_type or not (isinstance(value, Var) and value in loops):
                continue
            divided = state.analyzer.can_prove_equal(mine.range.extent % size, 0)
            if not divided:
                if not allow_padding or not isinstance(size, int):
                    continue
                paddings[k] = size
            loop_map[state.path(loops[value])] = loop
            left.remove(k)
            break
        else:
            return None
    positions = {f: k for k, f in enumerate(desc_loops)}
    return TensorizeInfo(loop_map, positions, paddings if max(paddings, default=1) > 1 else None)


class AutoTensorizeMappingInfo(NamedTuple):
    """mappings    of the block's axes to those of the intrinsic, with axes of batches before them
    lhs_iters      the axes of the block
    rhs_iters      those of the intrinsic's desc
    """

    mappings: list[IndexMap]
    lhs_iters: list[Any]
    rhs_iters: list[Any]


def get_auto_tensorize_mapping_info(
    sch: Any, block: Any, desc_func: PrimFunc
) -> AutoTensorizeMappingInfo | None:
    """How axes of a block are fused so that it becomes what `desc_func` computes: those that index
    the same of its operands belong together. What indexes all of them is a batch. None if the
    block does not compute the same of one value each, or has no axes for one of the desc's.

    The mapping is what `transform_block_layout` takes, after `reindex` of the operands.
    """
    _, node = _located(sch, block)
    desc = _desc_of(desc_func)[1]
    mine, theirs = _operands(node), _operands(desc)
    if mine is None or theirs is None or not _same_value(mine[1], theirs[1]):
        return None
    groups: dict[Any, list[Any]] = {}
    for a in node.iter_vars:
        groups.setdefault((a.iter_type, _uses(mine[0], a.var)), []).append(a)
    wanted = [(a.iter_type, _uses(theirs[0], a.var)) for a in desc.iter_vars]
    batch = ("spatial", (True,) * len(mine[0]))
    # Axes of one iteration index nothing; they join the first group of their kind.
    for key in [k for k in groups if k not in wanted and k != batch]:
        into = next((w for w in wanted if w[0] == key[0]), None)
        if into is None or any(number_of(a.dom.extent) != 1 for a in groups[key]):
            return None
        groups[into] = sorted([*groups.get(into, ()), *groups.pop(key)], key=node.iter_vars.index)
    if len(set(wanted)) != len(wanted) or any(w not in groups for w in wanted):
        return None
    new = {a.var: Var(a.var.name, a.var.dtype) for a in node.iter_vars}
    final: list[PrimExpr] = [new[a.var] for a in groups.get(batch, ()) if batch not in wanted]
    for w in wanted:
        fused: PrimExpr | None = None
        for a in groups[w]:
            fused = new[a.var] if fused is None else fused * a.dom.extent + new[a.var]
        assert fused is not None
        final.append(fused)
    mapping = IndexMap(list(new.values()), final)
    return AutoTensorizeMappingInfo([mapping], list(node.iter_vars), list(desc.iter_vars))


def _desc_of(desc_func: PrimFunc) -> tuple[list[For], Block]:
    """The loops of a desc, and the one block in them."""
    state = start(desc_func)
    blocks = [b for b in state.blocks() if not state.blocks(b) and b.iter_vars]
    if len(blocks) != 1:
        raise ScheduleError(f"the desc of an intrinsic has one block, got {len(blocks)}")
    realize = state.realize(blocks[0])
    loops = state.loops_above(realize)
    by_axis = []
    for v in realize.iter_values:
        mine = [f for f in loops if f.loop_var in free_variables(v)]
        if len(mine) != 1 or len(loop_uses(realize, mine[0].loop_var)) != 1:
            raise ScheduleError("the desc of an intrinsic has one loop for each axis")
        by_axis.append(mine[0])
    return by_axis, blocks[0]


def _operands(block: Block) -> tuple[list[Any], BufferStore] | None:
    """The accesses of a block of one store, the store first; None for any other."""
    body: Stmt = block.body
    if not isinstance(body, BufferStore):
        return None
    outermost: Any = descend(body.value, lambda n: () if isinstance(n, BufferLoad) else children(n))
    own = body.buffer.data
    loads = [n for n in outermost if isinstance(n, BufferLoad) and n.buffer.data is not own]
    return [body, *loads], body


def _uses(accesses: Sequence[Any], axis: Var) -> tuple[bool, ...]:
    return tuple(any(axis in free_variables(i) for i in n.indices) for n in accesses)


def _same_value(mine: BufferStore, theirs: BufferStore) -> bool:
    """Whether two stores compute the same of their loads, whatever these are indexed by."""

    def below(pair: tuple[Any, Any]) -> list[tuple[Any, Any]]:
        return [] if isinstance(pair[0], BufferLoad) else list(zip(*map(children, pair)))

    start: tuple[Any, Any] = (mine.value, theirs.value)
    for a, b in descend(start, below):
        if type(a) is not type(b) or a.dtype is not b.dtype:
            return False
        if isinstance(a, BufferLoad):
            if (a.buffer.data is mine.buffer.data) is not (b.buffer.data is theirs.buffer.data):
                return False
        elif len(children(a)) != len(children(b)) or (not children(a) and a is not b):
            return False
    return True
