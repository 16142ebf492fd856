"""How loops run the iterations of blocks: which loop moves which axis, what a block touches while
some loops run, and whether all of its domain is run.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ....arith import IterMapper, IterSumExpr, Number, Numbers, conjuncts, number_of
from ....ir import IntImm, PrimExpr, Var, const
from ...stmt import Block, BlockRealize, For, SeqStmt, Stmt
from .boxes import Box, mapper_of, may_be_empty
from .facts import Facts
from .state import State, free_variables


def loop_uses(realize: BlockRealize, var: Var) -> set[str]:
    """The kinds of the axes whose values depend on the loop variable."""
    kinds = set()
    for axis, value in zip(realize.block.iter_vars, realize.iter_values):
        if value is var or (type(value) is not Var and var in free_variables(value)):
            kinds.add(axis.iter_type)
    return kinds


def spatial_loops(state: State, realize: BlockRealize, loops: Sequence[For]) -> set[Var]:
    """The loops among `loops` of which different iterations run different spatial instances."""
    values = [v for a, v in zip(realize.block.iter_vars, realize.iter_values) if a.is_spatial]
    return mapper_of(state, loops).determined(values)


def runs_each_once(state: State, realize: BlockRealize, loops: Sequence[For]) -> bool:
    """Whether no two iterations of the loops run the same spatial instance of a block."""
    determined = spatial_loops(state, realize, loops)
    return all(f.loop_var in determined or number_of(f.extent) == 1 for f in loops)


# -- the whole domain ------------------------------------------------------------------------------


def predicate_is_domain(state: State, realize: BlockRealize, loops: Sequence[For]) -> bool:
    """Whether the predicate does no more than keep the axes in their domains."""
    if isinstance(realize.predicate, IntImm):
        return bool(realize.predicate.value)
    mapper = mapper_of(state, loops)
    tops: list[tuple[IterSumExpr, Number]] = []
    for axis, value in zip(realize.block.iter_vars, realize.iter_values):
        total = mapper.sum_of(value)
        if total is None or axis.dom is None:
            return False
        end = mapper.add(number_of(axis.dom.min), number_of(axis.dom.extent))
        tops.append((total, mapper.sub(end, total.base)))
    return all(
        _follows(mapper, fact, tops) or state.analyzer.can_prove(fact)
        for fact in conjuncts(realize.predicate)
    )


def _follows(
    mapper: IterMapper, fact: PrimExpr, tops: Sequence[tuple[IterSumExpr, Number]]
) -> bool:
    """Whether ``sum < bound`` follows from ``axis < end``: the sum is the axis, or its upper
    digits.
    """
    upper = mapper.upper_bound(fact)
    if upper is None:
        return False
    total, bound = upper
    wanted = mapper.digits(total)
    if not wanted:
        return False
    limit = mapper.sub(bound, total.base)
    for axis, end in tops:
        have = mapper.digits(axis)
        if not have or len(have) < len(wanted):
            continue
        tail = have[len(have) - len(wanted) :]
        step = mapper.multiple(tail[0].scale, wanted[0].scale)
        if step is None or not all(
            a.source is b.source
            and mapper.equal(a.lower_factor, b.lower_factor)
            and mapper.equal(a.scale, mapper.mul(b.scale, step))
            for a, b in zip(tail, wanted)
        ):
            continue
        # step * sum <= axis < end, so the sum is at most (end - 1) // step.
        if mapper.at_most(mapper.ceildiv(end, step), limit) or mapper.at_most(
            end, mapper.mul(limit, step)
        ):
            return True
    return _follows_from_quotient(mapper, total, limit, tops)


def _follows_from_quotient(
    mapper: IterMapper,
    total: IterSumExpr,
    limit: Number,
    tops: Sequence[tuple[IterSumExpr, Number]],
) -> bool:
    """Whether ``sum < limit`` follows from ``scale * (sum // c) <= axis < end``."""
    joined = mapper.join(IterSumExpr(total.args, 0))
    if joined is None or not mapper.equal(joined[1], 1):
        return False
    mark = joined[0].source
    for axis, end in tops:
        for d in mapper.digits(axis) or ():
            last = mapper.at_most(mark.extent, mapper.mul(d.lower_factor, d.extent))
            if d.source is not mark or not last:
                continue
            reach = mapper.mul(d.lower_factor, mapper.ceildiv(end, d.scale))
            if mapper.at_most(reach, limit):
                return True
    return False


def runs_everywhere(state: State, block: Block) -> str:
    """Why it is not shown that every iteration of the block's domain is run exactly where the axes
    are in their domains; empty if it is shown.
    """
    realize = state.realize(block)
    loops = state.loops_above(realize)
    around = stands_under(state, realize)
    if around:
        return around
    if not predicate_is_domain(state, realize, loops):
        return "its predicate leaves out part of its domain"
    return covers_domain(state, realize, loops)


def stands_under(state: State, realize: BlockRealize, top: Stmt | None = None) -> str:
    """Where the block stands under more than loops within its scope (or within `top`): why it is
    not known when it runs; else empty.
    """
    for s in state.around(realize):
        if type(s) is Block or s is top:
            break
        if type(s) not in (For, SeqStmt, BlockRealize):
            return f"it stands under a {type(s).__name__}"
    return ""


def runs_its_part(state: State, realize: BlockRealize) -> bool:
    """Whether a block that is run on a part of its spatial domain only (a partitioned loop) has no
    further condition and completes each reduction that it starts.
    """
    if not (isinstance(realize.predicate, IntImm) and realize.predicate.value):
        return False
    if stands_under(state, realize) or moving_domain(state, realize.block):
        return False
    mapper = mapper_of(state, state.loops_above(realize))
    for axis, value in zip(realize.block.iter_vars, realize.iter_values):
        if not axis.is_spatial and isinstance(_whole_axis(mapper, axis, value), str):
            return False
    return True


def _whole_axis(
    mapper: IterMapper, axis: Any, value: PrimExpr, part: bool = False
) -> IterSumExpr | str:
    """The value of an axis as a sum that takes every value of the axis's domain, or why it is not
    shown to be one.

    part  whether a spatial axis may take only a run of the values of its domain
    """
    name = axis.var.name
    total = mapper.sum_of(value)
    if total is None:
        return f"the value of its axis {name} is no sum of loop variables"
    before = mapper.sub(total.base, number_of(axis.dom.min))
    inside = part and axis.is_spatial and mapper.at_most(0, before)
    if not inside and not mapper.equal(before, 0):
        return f"its axis {name} does not start where its domain does"
    extent = mapper.dense_extent(total)
    size = number_of(axis.dom.extent)
    some = inside and extent is not None and mapper.at_most(mapper.add(before, extent), size)
    if extent is None or not (some or mapper.at_most(size, extent)):
        return f"the loops do not reach all of its axis {name}"
    return total


def covers_domain(
    state: State, realize: BlockRealize, loops: Sequence[For], part: bool = False
) -> str:
    """Why the loops are not shown to reach every point of the block's domain; empty if they are.

    part  it need be every point only of a box in it, along spatial axes
    """
    moving = moving_domain(state, realize.block)
    if moving:
        return moving
    mapper = mapper_of(state, loops)
    sums = []
    for axis, value in zip(realize.block.iter_vars, realize.iter_values):
        total = _whole_axis(mapper, axis, value, part)
        if isinstance(total, str):
            return total
        sums.append(total)
    idle = may_be_empty(mapper, realize, loops)
    if idle is not None:
        return f"loop {idle.loop_var.name} around it may have no iterations"
    if not mapper.independent(sums):
        return "its axes do not take all combinations of their values"
    return ""


def moving_domain(state: State, block: Block) -> str:
    """Which axis has a range that a loop outside changes, as a reason; empty if there is none."""
    for axis in block.iter_vars:
        ends = () if axis.dom is None else (axis.dom.min, axis.dom.extent)
        for v in itertools.chain(*map(free_variables, ends)):
            if state.has_loop(v):
                return f"the range of its axis {axis.var.name} changes with loop {v.name}"
    return ""


def covers(state: State, writer: Facts, written: Box, whole: Any, read: Box, buffer: Any) -> str:
    """Why the box `read` is not shown to lie in the box `written`; empty if it does.

    whole  the box that the writer could ever write (its domain), which clips `written`
    """
    if writer.guarded:
        return "it is written under a condition"
    if not written.exact:
        return "not every element of the region is shown to be written"
    numbers = Numbers(state.analyzer)
    for k, (w, r) in enumerate(zip(written.axes, read.axes)):
        size = number_of(buffer.shape[k])
        full_range = (const(0, buffer.shape[k].dtype), size)
        clip = full_range if whole is None or whole.axes[k] is None else whole.axes[k]
        if not numbers.inside(full_range, clip) and (r is None or not numbers.inside(r, clip)):
            return f"dimension {k} is read beyond what is ever written"
        if w is None:
            return f"what is written along dimension {k} is not known"
        if numbers.inside(full_range, w):
            continue
        if r is None:
            return f"what is read along dimension {k} is not known"
        if not numbers.inside(r, w):
            return f"along dimension {k} more is read than was written"
    return ""
