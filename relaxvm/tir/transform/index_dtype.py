"""`with_index_dtype`: a loop function whose loops, axes, shapes and indices have one integer type.

    for i: T.int32 in range(8):                      for i: T.int64 in range(8):
        A[T.int64(i * 2) + 1] = float(i)                 A[i * 2 + 1] = float(T.int32(i))

Types get mixed where Python's numbers (int32) meet the shapes of a graph (int64). Every index then
stands in casts, and two that are the same place are written differently. Values keep their types.

What an index is worth in its old type, where sums may wrap, is what it is worth in the new one:
from the ranges of loops and sizes is proved that nothing wraps, and what cannot be proved keeps its
type, under a cast. Not so on request (``exact=False``), for formulas that nobody meant to wrap.
"""

from __future__ import annotations

from typing import Any

from ...arith import ConstIntBound
from ...base import DataType, NamedTuple
from ...base import dtype as as_dtype
from ...ir import (
    INTRINSICS,
    Add,
    Call,
    Cast,
    CompareExpr,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Map,
    Max,
    Min,
    Mod,
    Mul,
    PrimExpr,
    Range,
    Select,
    Sub,
    Var,
    binary,
    cast,
)
from ..analysis.scope import post_order_expr
from ..stmt import (
    FORMULA,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    ForKind,
    IterVar,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    Stmt,
    body_nodes,
)
from .rewriter import ScopedRewriter, Steps, replace_tuple, size_bounds

# So far below its type's end an int32 size stays, that i + 1 of an index i does not wrap. Arrays
# of more elements along one axis are refused by the function that is made, as those past the end.
_MARGIN = 1 << 16


def with_index_dtype(fn: PrimFunc, dtype: Any, exact: bool = True) -> PrimFunc:
    """`fn` with integers of one type for loops, axes, shapes and indices; the same function if it
    has no others.

    exact  whether what may wrap keeps its type (see above). A function that is all of one type is
           left as it is then, if anything in it may wrap.

    Scalar parameters and values keep their types.
    """
    dtypes, to = _index_dtypes(fn), as_dtype(dtype)
    # Formulas have no other casts of indices than their dimensions ask for.
    if dtypes <= {to} and (
        fn.span is FORMULA
        or not any(_hides_index(n, to) for n in body_nodes(fn) if type(n) is Cast)
    ):
        return fn
    rewriter = _IndexDtype(fn, to, exact)
    result = rewriter.on_function(fn)
    return fn if exact and len(dtypes) == 1 and rewriter.kept_any else result


def _index_dtypes(fn: PrimFunc) -> set[DataType]:
    """The types of loops, axes and dimensions."""
    dtypes = {e.dtype for b in fn.buffers for e in b.shape}
    for n in body_nodes(fn):
        if isinstance(n, For):
            dtypes.add(n.loop_var.dtype)
        elif isinstance(n, Block):
            dtypes |= {axis.var.dtype for axis in n.iter_vars}
        elif isinstance(n, Buffer):
            dtypes |= {e.dtype for e in n.shape}
    return dtypes


def _hides_index(n: Cast, to: DataType) -> bool:
    """Whether an index is in a cast, which may be had without."""
    inside = n.value
    return n.dtype is to and inside.dtype.is_int and not isinstance(inside, (BufferLoad, Var))


class _Sides(NamedTuple):
    """What becomes of an expression.

    value  in the type it has
    narrow in the type of indices; None: it has no such value
    data   whether it depends on what buffers hold
    loop   whether it depends on what has another type now, or may have
    kept   whether part of `narrow` is in the old type, because it may wrap
    """

    value: Any
    narrow: PrimExpr | None
    data: bool = False
    loop: bool = False
    kept: bool = False


_ARITHMETIC = (Add, Sub, Mul, FloorDiv, FloorMod, Div, Mod, Min, Max)
_IF = INTRINSICS["if_then_else"]
# The same of a number with its sign extended.
_BITS = frozenset(INTRINSICS[name] for name in ("bitwise_and", "bitwise_or", "bitwise_xor"))


class _IndexDtype(ScopedRewriter):
    def __init__(self, fn: PrimFunc, to: DataType, exact: bool) -> None:
        super().__init__()
        self.to, self.exact = to, exact
        self.whole = ConstIntBound.of_dtype(to)
        self.kept_any = False
        self.new: dict[Var, Var] = {}
        self._sides: dict[int, tuple[Any, _Sides]] = {}
        self._tops = size_bounds(fn)

    def on_function(self, fn: PrimFunc) -> PrimFunc:
        limits: dict[str, int] = dict(fn.get_attr("tir_var_upper_bound", {}) or {})
        known = set(fn.params)
        for b in fn.buffers:
            known.add(b.data)
            for e in (*b.shape, *b.strides, b.elem_offset):
                if not isinstance(e, Var) or e in known or e in self.new:
                    continue
                top = self._tops.get(e, self.whole.max_value)
                if self.exact and top > self.whole.max_value:
                    continue
                renewed = self._renewed(e)
                if e in self._tops:
                    if self.exact and renewed and e.dtype.bits < self.to.bits:
                        top = limits[e.name] = min(top, int(e.dtype.max_value) - _MARGIN)
                    self.analyzer.update(self.new.get(e, e), ConstIntBound(0, top))
        buffers = Map({p: self.buffer(b) for p, b in fn.buffer_map.items()})
        result = fn.replace(buffer_map=buffers, body=self.run(fn.body), span=fn.span)
        return result.with_attr("tir_var_upper_bound", limits) if limits else result

    # -- variables ---------------------------------------------------------------------------------

    def _renewed(self, v: Var) -> bool:
        """Give `v` the type of indices; False if it has that, or is no index."""
        if v.dtype.kind != "int" or v.dtype.lanes != 1 or v.dtype is self.to:
            return False
        self.new[v] = type(v)(v.name, self.to)
        self._sides = {}
        return True

    def _ranged(self, v: Var, dom: Range) -> None:
        """The values of a variable that goes through a range, which is new already."""
        if self._last(dom) <= v.dtype.max_value:
            self.analyzer.bind(v, dom, allow_override=True)

    def _last(self, dom: Range) -> int:
        bound = self.analyzer.const_int_bound
        return bound(dom.min).max_value + bound(dom.extent).max_value - 1

    # -- expressions -------------------------------------------------------------------------------

    def expr(self, e: PrimExpr) -> PrimExpr:
        return self._read(e).value

    def index(self, e: PrimExpr) -> PrimExpr:
        """An index, or what else counts as one."""
        sides = self._read(e)
        self.kept_any = self.kept_any or sides.kept
        return sides.value if sides.narrow is None else sides.narrow

    def _read(self, e: PrimExpr) -> _Sides:
        memo = self._sides
        if id(e) not in memo:
            for n in post_order_expr(e):
                if id(n) not in memo:
                    memo[id(n)] = (n, self._one(n))
        return memo[id(e)][1]

    def _one(self, n: Any) -> _Sides:
        if isinstance(n, Var):
            new = self.new.get(n)
            if new is not None:
                return _Sides(cast(n.dtype, new), new, loop=True)
            return _Sides(n, self._as_index(n))
        if isinstance(n, IntImm):
            return _Sides(n, self._as_index(n))
        if isinstance(n, BufferLoad):
            load = BufferLoad(self.buffer(n.buffer), tuple(map(self.index, n.indices)))
            return _Sides(load, self._as_index(load), data=True, loop=True)
        parts = [self._sides[id(c)][1] for c in n._children_ if id(c) in self._sides]
        data = any(p.data for p in parts) or (isinstance(n, Call) and n.op is not _IF)
        loop, kept = any(p.loop for p in parts), any(p.kept for p in parts)
        if isinstance(n, CompareExpr) and loop and not data:
            a, b = parts
            if a.narrow is not None and b.narrow is not None:
                self.kept_any = self.kept_any or kept
                return _Sides(binary(type(n), a.narrow, b.narrow), None, loop=True)
        index = self._index_of(n, parts) if loop or isinstance(n, Cast) else None
        if index is not None and n.dtype is self.to:
            return _Sides(index, index, data, loop, kept)
        value = n._map_children_(self._child)
        loop = loop or index is not None
        if index is None:
            index, kept = self._as_index(value), loop and not data
        return _Sides(value, index, data, loop, kept)

    def _child(self, c: Any) -> Any:
        entry = self._sides.get(id(c))
        if entry is not None:
            return entry[1].value
        return self.buffer(c) if isinstance(c, Buffer) else c

    def _as_index(self, e: PrimExpr) -> PrimExpr | None:
        """`e` cast, if it is an integer that the type of indices holds."""
        if e.dtype is self.to:
            return e
        if not e.dtype.is_int or e.dtype.lanes != 1:
            return None
        fits = not self.exact or self.analyzer.const_int_bound(e).within(self.whole)
        return cast(self.to, e) if fits else None

    def _index_of(self, n: Any, parts: list[_Sides]) -> PrimExpr | None:
        """An operation on integers, done in the type of indices; None if that is another one."""
        if n.dtype.kind != "int" or n.dtype.lanes != 1:
            return None
        sides: list[Any] = [p.narrow for p in parts]
        kind = type(n)
        choice = kind is Select or (kind is Call and n.op is _IF)
        if any(s is None for s in (sides[1:] if choice else sides)):
            return None
        if kind is Cast:
            result: Any = sides[0]
        elif kind in _ARITHMETIC:
            result = binary(kind, *sides)
        elif kind is Select:
            result = Select(parts[0].value, *sides[1:])
        elif choice:
            result = Call(self.to, n.op, (parts[0].value, *sides[1:]))
        elif kind is Call and n.op in _BITS:
            result = Call(self.to, n.op, tuple(sides))
        else:
            return None
        if not self.exact or (n.dtype is self.to and kind is not Cast):
            return result
        bound = self.analyzer.const_int_bound(result)
        # Any number of the type: that is what the analyzer says of what may wrap as well.
        fits = kind is Cast or bound != self.whole
        return result if fits and bound.within(ConstIntBound.of_dtype(n.dtype)) else None

    def _range(self, r: Range) -> Range:
        return Range.from_min_extent(self.index(r.min), self.index(r.extent))

    def buffer(self, b: Buffer) -> Buffer:
        new = self._buffers.get(b)
        if new is None:
            new = self._buffers[b] = b.replace(
                shape=replace_tuple(b.shape, self.index),
                strides=replace_tuple(b.strides, self.index),
                elem_offset=self._offset(b.elem_offset),
            )
        return new

    def _offset(self, e: PrimExpr) -> PrimExpr:
        return e if isinstance(e, IntImm) else self.index(e)

    # -- statements --------------------------------------------------------------------------------

    def on_store(self, stmt: BufferStore) -> Stmt:
        buffer, value = self.buffer(stmt.buffer), self.expr(stmt.value)
        return stmt.replace(
            buffer=buffer, value=value, indices=replace_tuple(stmt.indices, self.index)
        )

    def on_for(self, stmt: For) -> Steps:
        dom, v = self._range(Range.from_min_extent(stmt.min, stmt.extent)), stmt.loop_var
        wraps = self.exact and self._last(dom) > v.dtype.max_value
        if stmt.kind == ForKind.THREAD_BINDING or wraps or not self._renewed(v):
            new, first, extent = v, cast(v.dtype, dom.min), cast(v.dtype, dom.extent)
        else:
            new, first, extent = self.new[v], dom.min, dom.extent
        self._ranged(new, dom)
        body = yield stmt.body
        return stmt.replace(loop_var=new, min=first, extent=extent, body=body)

    def on_let(self, stmt: LetStmt) -> Steps:
        sides = self._read(stmt.value)
        if sides.narrow is not None and sides.loop and not sides.data and self._renewed(stmt.var):
            new = self.new[stmt.var]
            self.analyzer.update(new, self.analyzer.const_int_bound(sides.narrow), override=True)
            body = yield stmt.body
            return stmt.replace(var=new, value=sides.narrow, body=body)
        body = yield stmt.body
        return stmt.replace(value=sides.value, body=body)

    def on_realize(self, stmt: BlockRealize) -> Steps:
        values = replace_tuple(stmt.iter_values, self.index)
        for axis in stmt.block.iter_vars:
            dom = None if axis.dom is None else self._range(axis.dom)
            self._renewed(axis.var)
            if dom is not None:
                self._ranged(self.new.get(axis.var, axis.var), dom)
        # Over the loops around, and over the axes in older scripts.
        predicate = self.expr(stmt.predicate)
        block = yield stmt.block
        assert isinstance(block, Block)
        axes = [cast(axis.var.dtype, v) for axis, v in zip(block.iter_vars, values)]
        return stmt.replace(iter_values=tuple(axes), predicate=predicate, block=block)

    def on_block(self, stmt: Block) -> Steps:
        axes = tuple(map(self._axis, stmt.iter_vars))
        buffers = replace_tuple(stmt.alloc_buffers, self.buffer)
        views = replace_tuple(stmt.match_buffers, self._view)
        reads, writes = (replace_tuple(r, self._region) for r in (stmt.reads, stmt.writes))
        init = stmt.init
        if init is not None:
            init = yield init
        body = yield stmt.body
        return stmt.replace(
            iter_vars=axes, reads=reads, writes=writes, init=init, body=body,
            alloc_buffers=buffers, match_buffers=views,
        )  # fmt: skip

    def _axis(self, axis: IterVar) -> IterVar:
        dom = None if axis.dom is None else self._range(axis.dom)
        return axis.replace(dom=dom, var=self.new.get(axis.var, axis.var))

    def _region(self, r: BufferRegion) -> BufferRegion:
        return r.replace(buffer=self.buffer(r.buffer), region=tuple(map(self._range, r.region)))

    def _view(self, m: MatchBufferRegion) -> MatchBufferRegion:
        source, b = self._region(m.source), m.buffer
        for e in (*b.shape, *b.strides, b.elem_offset):
            if isinstance(e, Var) and e not in self.new:
                self._renewed(e)
        return m.replace(buffer=self.buffer(b), source=source)
