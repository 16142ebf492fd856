"""Parts of a block's domain, and the loops that run them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ....arith import Number, Numbers, Span, as_number, number_of
from ....ir import GE, LT, Add, FloorDiv, IntImm, Mul, PrimExpr, Sub, Var, binary, cast, const
from ...op import all as every
from ...stmt import Block, BlockRealize, For, ForKind, SeqStmt, Stmt
from .boxes import Access, Box, mapper_of
from .state import State, free_variables

# -- which part of the domain ----------------------------------------------------------------------


def _axis_span(
    index: PrimExpr,
    size: Any,
    axis: Var,
    need: tuple[PrimExpr, Number],
    m: Numbers,
    others: dict[Var, Number],
) -> Span | None:
    """The values of `axis` for which ``index .. index + size`` meets the range `need`; None if the
    index is of no form that is known here.

    others  the extents of the other axes; those start at 0
    """
    low, extent = need
    low = cast(axis.dtype, low)
    if index is axis:
        if size == 1:
            return low, extent
        return None
    if isinstance(index, (Add, Sub)) and size == 1:
        constant = index.b
        if isinstance(index, Add) and isinstance(constant, Var) and constant in others:
            return _axis_span(index.a, others[constant], axis, need, m, others)
        if not free_variables(constant) & {axis, *others}:
            shifted = low - constant if isinstance(index, Add) else low + constant
            return _axis_span(index.a, size, axis, (shifted, extent), m, others)
        return None
    if isinstance(index, FloorDiv) and index.a is axis and isinstance(index.b, IntImm):
        c = index.b.value
        if c > 0 and size == 1:
            return low * c, m.mul(extent, c)
    if isinstance(index, Mul) and index.a is axis and isinstance(index.b, IntImm):
        c = index.b.value
        if c > 0 and isinstance(size, int) and size <= c:
            first = binary(FloorDiv, low, const(c, low.dtype))
            if isinstance(low, Mul) and isinstance(low.b, IntImm) and low.b.value % c == 0:
                first = low.a * (low.b.value // c)
                return first, m.ceildiv(extent, c)
            if isinstance(low, IntImm) and low.value % c == 0:
                return first, m.ceildiv(extent, c)
            return first, m.add(m.ceildiv(extent, c), 1)
    return None


def _length(axis: Any) -> Number:
    return number_of(axis.dom.min + axis.dom.extent)


def spans_for(
    state: State, block: Block, constraints: Sequence[tuple[Access, Box]], axes: str
) -> dict[Var, Span]:
    """For each axis the smallest span that the constraints (access, box of it) give."""
    spans: dict[Var, Span] = {}
    m = Numbers(state.analyzer)
    for access, box in constraints:
        for (index, size), need in zip(access.box, box.axes):
            if need is None or (isinstance(need[1], int) and need[1] <= 0):
                continue
            for a in block.iter_vars:
                if axes == "spatial" and not a.is_spatial:
                    continue
                if a.var not in free_variables(index) or a.var in spans:
                    continue
                others = {x.var: _length(x) for x in block.iter_vars if x is not a}
                span = _axis_span(index, size, a.var, need, m, others)
                if span is not None:
                    spans[a.var] = span
    return spans


def union(state: State, boxes: Iterable[Box]) -> Box | None:
    """The least box around all; None if there are none."""
    hull, total = Numbers(state.analyzer).hull, None
    for box in boxes:
        if total is not None:
            box = Box(tuple(map(hull, total.axes, box.axes)), total.exact and box.exact)
        total = box
    return total


# -- the new loops ---------------------------------------------------------------------------------


def new_realize(
    state: State,
    block: Block,
    spans: dict[Var, Span],
    around: Sequence[For],
    preserve_unit_loops: bool,
) -> tuple[Stmt, BlockRealize, list[For]]:
    """`block` under loops over the spans: (the statement, the realize, its loops)."""
    m = mapper_of(state, around)
    values: list[PrimExpr] = []
    loops: list[For] = []
    conditions: list[PrimExpr] = []
    outside = {f.loop_var for f in around}
    for a in block.iter_vars:
        dom = a.dom
        assert dom is not None
        first, extent = dom.min, number_of(dom.extent)
        span = spans.get(a.var)
        if span is not None and _usable(state, m, span, extent, outside):
            low, size = state.analyzer.simplify(span[0]), span[1]
            value, var = _value(a.var, low, size, len(loops), preserve_unit_loops)
            end = m.add(number_of(first), extent)
            total = m.sum_of(low)
            ends = None if total is None else m.ends(total)
            if ends is None or not m.at_most(m.add(ends[1], size), end):
                conditions.append(LT(value, cast(a.var.dtype, as_number(end, a.var.dtype))))
            if ends is None or not m.at_most(number_of(first), ends[0]):
                conditions.append(GE(value, first))
            extent = size
        else:
            value, var = _value(a.var, first, extent, len(loops), preserve_unit_loops)
        values.append(value)
        if var is not None:
            zero = const(0, var.dtype)
            loops.append(For(var, zero, as_number(extent, var.dtype), ForKind.SERIAL, _HOLE))
    realize = BlockRealize(tuple(values), every(*conditions), block)
    stmt: Stmt = realize
    nest: list[For] = []
    for f in reversed(loops):
        stmt = f.replace(body=stmt)
        nest.append(stmt)
    return stmt, realize, nest[::-1]


_HOLE = SeqStmt(())


def _usable(state: State, m: Numbers, span: Span, whole: Number, outside: set[Var]) -> bool:
    """Whether a span is smaller than the domain and its extent is fixed outside of the loops."""
    if m.at_most(whole, span[1]):
        return False
    if isinstance(span[1], int):
        return True
    known = free_variables(span[1])
    sizes = {v for b in state.fn.buffers for e in b.shape for v in free_variables(e)}
    return known <= (sizes | set(state.fn.params)) and not known & outside


def _value(
    axis: Var, low: PrimExpr, extent: Number, count: int, preserve: bool
) -> tuple[PrimExpr, Var | None]:
    if extent == 1 and not preserve:
        return cast(axis.dtype, low), None
    var = Var(f"ax{count}", axis.dtype)
    return binary(Add, cast(axis.dtype, low), var), var
