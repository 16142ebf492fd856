"""Shrink buffers of which each iteration of a loop uses its own part.

    T = T.alloc_buffer((64, 64))                T = T.alloc_buffer((64,))
    for i in range(64):                         for i in range(64):
        for j in range(64):                         for j in range(64):
            T[i, j] = A[i, j] * A[i, j]                 T[j] = A[i, j] * A[i, j]
        for j in range(64):                         for j in range(64):
            B[i, j] = T[i, j] + 1                       B[i, j] = T[j] + 1

Schedules leave such buffers behind: what a tile needs is indexed as if all tiles were kept. A
buffer is shrunk to what one iteration of a loop L uses if every iteration first writes all of that
part: the first access inside L is in a nest of loops that holds no other access of the buffer (but
of the element just stored), is under no condition (but that of staying within the buffer) and fills
a box without gaps, or several such nests fill neighbouring boxes one after the other; and every
other access stays within the box. So no iteration can see what another one left. Axes along which
the box has one element vanish.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from ...arith import Analyzer, IterMapper, IterSumExpr, as_number, conjuncts, interval_of, range_of
from ...base import NamedTuple
from ...ir import (
    INTRINSICS,
    LT,
    Call,
    IntImm,
    IRModule,
    PassContext,
    PrimExpr,
    Ramp,
    Range,
    Sub,
    Var,
    cast,
    const,
    descend,
    walk,
)
from ...ir.transform import prim_func_pass
from ..stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    ForKind,
    PrimFunc,
    SeqStmt,
    Stmt,
    statements_below,
)
from .rewriter import Steps, StmtRewriter, bind_sizes, constant, replace_tuple, with_loads


@prim_func_pass(opt_level=0)
def CompactBufferAllocation(
    fn: PrimFunc, mod: IRModule, ctx: PassContext, is_strict: bool = True
) -> PrimFunc:
    """Shrink the buffers of blocks to what is in use at once. Blocks must be opaque.

    is_strict  False: an axis may also grow, to what is in use at once along it
    """
    all_accesses = _Accesses(fn)
    shrunk: dict[Buffer, _Box] = {}
    homes: dict[int, list[Buffer]] = {}
    for buffer, accesses in all_accesses.of.items():
        box, scope = _box_of(buffer, accesses, _Prover(fn, accesses, is_strict))
        if box is None and not is_strict:
            box, scope = _box_of(buffer, accesses, _Prover(fn, accesses, True))
        if box is not None:
            box = box.allocated(buffer, accesses)
        if box is not None and box.differs(buffer) and not (is_strict and box.grows(buffer)):
            shrunk[buffer] = box
            home = _parallel_loop(scope, buffer)
            if home is not None:
                homes.setdefault(id(home), []).append(buffer)
    return _Shrink(fn, shrunk, all_accesses, homes).on_function(fn) if shrunk else fn


class _Scope:
    """A statement on the way from the body of the function to an access."""

    __slots__ = ("depth", "node", "outer")

    def __init__(self, node: Stmt, outer: _Scope | None) -> None:
        self.node, self.outer = node, outer
        self.depth: int = 0 if outer is None else outer.depth + 1

    def inside(self) -> list[_Scope]:
        """Those of the statements directly in this one."""
        return [_Scope(s, self) for s in statements_below(self.node)]

    def loops_until(self, stop: Stmt | None) -> list[For]:
        """The loops around, innermost first, up to (without) the statement `stop`."""
        loops: list[For] = []
        scope: _Scope | None = self
        while scope is not None and scope.node is not stop:
            if isinstance(scope.node, For):
                loops.append(scope.node)
            scope = scope.outer
        return loops


class _Access(NamedTuple):
    """One load or store, in program order: a store comes after the loads of its value."""

    indices: tuple[PrimExpr, ...]
    scope: _Scope
    is_store: bool


class _Accesses:
    """Every access of the buffers that blocks allocate; those used in other ways are left out."""

    def __init__(self, fn: PrimFunc) -> None:
        self.of: dict[Buffer, list[_Access]] = {}
        self._owned: dict[Var, Buffer] = {}
        self._strange: set[Buffer] = set()
        for scope in descend(_Scope(fn.body, None), _Scope.inside):
            s = scope.node
            if isinstance(s, Block):
                for b in s.alloc_buffers:
                    if _is_plain(b):
                        self._owned[b.data] = b
                        self.of[b] = []
                continue
            other = (Stmt, IntImm, Buffer) if isinstance(s, BufferStore) else (Stmt, IntImm)
            for child in s._children_:
                if not isinstance(child, other):
                    self._record(child, scope)
            if isinstance(s, BufferStore):
                self._add(s.buffer, s.indices, scope, True)
        for b in self._strange:
            del self.of[b]

    def _record(self, root: Any, scope: _Scope) -> None:
        for n in () if type(root) is IntImm else walk(root, into=_used_by):
            if isinstance(n, BufferLoad):
                self._add(n.buffer, n.indices, scope, False)
            elif isinstance(n, Var) and n in self._owned:
                self._strange.add(self._owned[n])

    def _add(
        self, buffer: Buffer, indices: tuple[PrimExpr, ...], scope: _Scope, is_store: bool
    ) -> None:
        if buffer.data not in self._owned:
            return
        if buffer not in self.of or any(not _is_run(i) for i in indices):
            # Another view of the same memory, or several elements anywhere in it.
            self._strange.add(self._owned[buffer.data])
        else:
            self.of[buffer].append(_Access(indices, scope, is_store))


def _used_by(n: Any) -> Sequence[Any]:
    """What an expression uses: of a load its indices, of an address the buffer."""
    if isinstance(n, BufferLoad):
        return n.indices
    if isinstance(n, Buffer):
        return (n.data,)
    if isinstance(n, Call) and n.op is INTRINSICS["address_of"]:
        return [a.buffer if isinstance(a, BufferLoad) else a for a in n.args]
    below: Sequence[Any] = n._children_
    return below


def _is_run(index: PrimExpr) -> bool:
    return index.dtype.lanes == 1 or type(index) is Ramp


def _is_plain(b: Buffer) -> bool:
    return (
        not b.strides
        and constant(b.elem_offset) == 0
        and b.dtype.lanes == 1
        and not getattr(b, "axis_separators", ())
    )


# -- what one iteration uses -----------------------------------------------------------------------


class _Box(NamedTuple):
    """Along each axis the first element, and how many."""

    low: tuple[PrimExpr, ...]
    extent: tuple[PrimExpr, ...]

    def differs(self, buffer: Buffer) -> bool:
        """Whether it is not the whole."""
        return any(e is not size for e, size in zip(self.extent, buffer.shape))

    def grows(self, buffer: Buffer) -> bool:
        """Whether it is larger than the whole along an axis."""
        return any(_is_larger(e, size) for e, size in zip(self.extent, buffer.shape))

    def allocated(self, buffer: Buffer, accesses: list[_Access]) -> _Box:
        """The box with the whole of an axis along which each iteration fills another part."""
        pairs = zip(self.extent, buffer.shape)
        varies = [any(_mentions_any(e, a.scope) for a in accesses) for e in self.extent]
        return _Box(self.low, tuple(n if v else e for v, (e, n) in zip(varies, pairs)))

    @property
    def kept(self) -> tuple[int, ...]:
        """The axes with more than one element."""
        return tuple([k for k, e in enumerate(self.extent) if constant(e) != 1])


def _is_larger(extent: PrimExpr, size: PrimExpr) -> bool:
    a, b = constant(extent), constant(size)
    return a is not None and b is not None and a > b


def _box_of(
    buffer: Buffer, accesses: list[_Access], prover: _Prover
) -> tuple[_Box | None, _Scope | None]:
    """The part that one iteration of the innermost possible loop, or one run of the block that owns
    the buffer, uses; and that loop or block.
    """
    if not accesses or not accesses[0].is_store:
        return None, None
    if any(i.dtype.lanes > 1 for i in accesses[0].indices):
        return None, None
    common = accesses[0].scope
    for a in accesses[1:]:
        common = _common(common, a.scope)
    scope: _Scope | None = common
    while scope is not None:
        s = scope.node
        owns = isinstance(s, Block) and any(b is buffer for b in s.alloc_buffers)
        if isinstance(s, For) or (isinstance(s, Block) and owns):
            box = prover.box_within(s, accesses, buffer.shape)
            if box is not None or owns:
                return box, scope
        scope = scope.outer
    return None, None


def _parallel_loop(scope: _Scope | None, buffer: Buffer) -> For | None:
    """The innermost parallel loop from `scope` out to the block that owns the buffer. Each of its
    iterations needs memory of its own: they used parts of one buffer that are one part now.
    """
    while scope is not None:
        s = scope.node
        if isinstance(s, Block) and any(b is buffer for b in s.alloc_buffers):
            return None
        if isinstance(s, For) and s.kind == ForKind.PARALLEL:
            return s
        scope = scope.outer
    return None


def _common(a: _Scope, b: _Scope) -> _Scope:
    while a.node is not b.node:
        if a.depth >= b.depth and a.outer is not None:
            a = a.outer
        elif b.outer is not None:
            b = b.outer
        else:
            return a
    return a


class _Prover:
    def __init__(self, fn: PrimFunc, accesses: list[_Access], is_strict: bool) -> None:
        self.is_strict = is_strict
        self.analyzer = Analyzer(wrap=False)
        bind_sizes(self.analyzer, fn)
        _bind_loops(self.analyzer, (a.scope for a in accesses))
        # Of the loops between a place and a statement around it.
        self._spans: dict[tuple[_Scope, Stmt], dict[Var, Any]] = {}

    def box_within(
        self, loop: For | Block, accesses: list[_Access], shape: tuple[PrimExpr, ...]
    ) -> _Box | None:
        """The box that the first accesses fill in each iteration of `loop` (or run of the block),
        if all others stay in it.
        """
        box: _Box | None = None
        rest = accesses
        while rest:
            more, behind = self._filled_first(loop, rest, shape)
            both = more if box is None or more is None else self._joined(box, more)
            if both is None:
                break
            box, rest = both, behind
        if box is None:
            return None
        return box if all(self._inside(a, loop, box, shape) for a in rest) else None

    def _filled_first(
        self, loop: For | Block, accesses: list[_Access], shape: tuple[PrimExpr, ...]
    ) -> tuple[_Box | None, list[_Access]]:
        """The box that the first access fills, and the accesses that follow its loops."""
        first = accesses[0]
        nest = first.scope.loops_until(loop)
        if not first.is_store or any(i.dtype.lanes > 1 for i in first.indices):
            return None, accesses
        if not self._unconditional(first, loop, shape) or _shares_nest(first, accesses, nest):
            return None, accesses
        behind = [
            a
            for a in accesses[1:]
            if not (nest and nest[-1] in a.scope.loops_until(loop) and _same(a, first))
        ]
        return self._filled(first.indices, nest, shape), behind

    def _joined(self, a: _Box, b: _Box) -> _Box | None:
        """The box that both boxes make if `b` lies right behind `a` along one axis."""
        equal = self.analyzer.can_prove_equal
        axis = None
        for k, (low, extent) in enumerate(zip(b.low, b.extent)):
            if equal(a.low[k], low) and equal(a.extent[k], extent):
                continue
            if axis is not None or not equal(a.low[k] + a.extent[k], low):
                return None
            axis = k
        if axis is None:
            return a
        whole = self.analyzer.simplify(a.extent[axis] + b.extent[axis])
        return _Box(a.low, (*a.extent[:axis], whole, *a.extent[axis + 1 :]))

    def _unconditional(self, first: _Access, loop: Stmt, shape: tuple[PrimExpr, ...]) -> bool:
        """Whether the store runs in each iteration of `loop` wherever its own loops run, or at
        least wherever it stays within the buffer.
        """
        scope: _Scope | None = first.scope
        while scope is not None and scope.node is not loop:
            s = scope.node
            if isinstance(s, BlockRealize) and constant(s.predicate) != 1:
                if not all(self._is_bound(c, first, shape) for c in conjuncts(s.predicate)):
                    return False
            if not isinstance(s, (For, Block, BlockRealize, SeqStmt, BufferStore)):
                return False
            scope = scope.outer
        return scope is not None

    def _is_bound(self, condition: Any, first: _Access, shape: tuple[PrimExpr, ...]) -> bool:
        """Whether a condition holds, or says no more than that an index is within its axis."""
        if self.analyzer.can_prove(condition):
            return True
        if not isinstance(condition, LT):
            return False
        gap = condition.b - condition.a
        if any(
            self.analyzer.can_prove_equal(cast(gap.dtype, e) - cast(gap.dtype, i), gap)
            for i, e in zip(first.indices, shape)
        ):
            return True
        if any(map(self._is_whole_vector_within, first.indices, shape, repeat(condition))):
            return True
        return self._is_place_in_panels(condition.a, first, shape) and not _mentions_any(
            condition.b, first.scope
        )

    def _is_whole_vector_within(self, index: PrimExpr, size: PrimExpr, condition: LT) -> bool:
        """Whether a condition ``v < n`` bounds an index ``v * w + r``, 0 <= r < w, of n * w
        elements.
        """
        whole, count = constant(size), constant(condition.b)
        if not whole or not count or whole % count:
            return False
        width, dtype = whole // count, index.dtype
        place = index - cast(dtype, condition.a) * width
        prove = self.analyzer.can_prove
        return prove(place >= const(0, dtype)) and prove(place < const(width, dtype))

    def _is_place_in_panels(self, e: Any, first: _Access, shape: tuple[PrimExpr, ...]) -> bool:
        """Whether `e` is where along an axis the store is if that is kept in panels of which the
        last one need not be full, or sorted by phases of which some may be shorter: as two indices,
        e // w and e % w. Then a bound of it means elements that no iteration writes, nor can any
        read them.
        """
        indices = [cast(e.dtype, i) for i in first.indices]
        return any(
            width is not None and self.analyzer.can_prove_equal(panel * width + place, e)
            for place, width in zip(indices, map(constant, shape))
            for panel in indices
            if panel is not place and width != 1
        )

    def _filled(
        self, indices: tuple[PrimExpr, ...], nest: list[For], shape: tuple[PrimExpr, ...]
    ) -> _Box | None:
        """The box of a store under `nest`, if each of its elements is written."""
        extents = {f.loop_var: f.extent for f in nest}
        if any(_mentions(e, extents) for f in nest for e in (f.min, f.extent)):
            return None
        mapper = IterMapper({f.loop_var: (f.min, f.extent) for f in nest}, self.analyzer)
        totals: list[IterSumExpr] = []
        lows: list[PrimExpr] = []
        sizes: list[PrimExpr] = []
        for index, whole in zip(indices, shape):
            total = mapper.sum_of(self.analyzer.simplify(index))
            count = None if total is None else mapper.dense_extent(total)
            if total is None or count is None:
                return None
            totals.append(total)
            low = self.analyzer.simplify(as_number(total.base, index.dtype))
            size = self.analyzer.simplify(as_number(count, index.dtype))
            covers = constant(low) == 0 and self.analyzer.can_prove(size >= cast(size.dtype, whole))
            if covers and self.is_strict:
                size = whole  # what is behind the end is not written
            lows.append(low)
            sizes.append(size)
        return _Box(tuple(lows), tuple(sizes)) if mapper.independent(totals) else None

    def _inside(self, access: _Access, loop: Stmt, box: _Box, shape: tuple[PrimExpr, ...]) -> bool:
        known = self._spans.setdefault((access.scope, loop), {})
        for f in () if known else reversed(access.scope.loops_until(loop)):
            known[f.loop_var] = range_of(f.min, f.extent, known, self.analyzer)
        for index, low, extent, size in zip(access.indices, box.low, box.extent, shape):
            if constant(low) == 0 and extent is size:
                # All of the axis: what is outside of it is not reached, if only by conditions.
                continue
            interval = interval_of(index, known, self.analyzer)
            if interval is None:
                return False
            below = cast(low.dtype, interval[0]) - low
            above = cast(low.dtype, interval[1]) - low - cast(low.dtype, extent)
            if not (self.analyzer.can_prove(below >= 0) and self.analyzer.can_prove(above < 0)):
                return False
        return True


def _bind_loops(analyzer: Analyzer, scopes: Iterable[_Scope]) -> None:
    """Tell the analyzer the ranges of the loops around, the outer ones first."""
    done: set[int] = set()
    for scope in scopes:
        for f in reversed(scope.loops_until(None)):
            if id(f) not in done:
                done.add(id(f))
                whole = Range.from_min_extent(f.min, f.extent)
                analyzer.bind(f.loop_var, whole, allow_override=True)


def _shares_nest(first: _Access, accesses: list[_Access], nest: list[For]) -> bool:
    """Whether another access is in one of the loops around the first one; but for those of the
    element that has just been stored.
    """
    if not nest:
        return False
    outermost = nest[-1]
    for a in accesses[1:]:
        if _same(a, first):
            continue
        scope: _Scope | None = a.scope
        while scope is not None:
            if scope.node is outermost:
                return True
            scope = scope.outer
    return False


def _same(a: _Access, b: _Access) -> bool:
    return all(i is j for i, j in zip(a.indices, b.indices))


def _mentions_any(e: PrimExpr, scope: _Scope) -> bool:
    """Whether `e` has a variable of the loops around."""
    if type(e) is IntImm:
        return False
    return _mentions(e, {f.loop_var: f.extent for f in scope.loops_until(None)})


def _mentions(e: PrimExpr, variables: dict[Var, PrimExpr]) -> bool:
    return type(e) is not IntImm and not variables.keys().isdisjoint(walk(e))


# -- shrinking -------------------------------------------------------------------------------------


class _Shrink(StmtRewriter):
    """homes  what is allocated in each parallel loop, by the loop's id"""

    def __init__(
        self,
        fn: PrimFunc,
        boxes: dict[Buffer, _Box],
        accesses: _Accesses,
        homes: dict[int, list[Buffer]],
    ) -> None:
        super().__init__()
        self.boxes = boxes
        self.homes = homes
        self.moved = {b for buffers in homes.values() for b in buffers}
        self.analyzer = Analyzer(wrap=False)
        bind_sizes(self.analyzer, fn)
        _bind_loops(self.analyzer, (a.scope for b in boxes for a in accesses.of[b]))
        self.new: dict[Buffer, Buffer] = {}
        self._memo: dict[int, tuple[Any, Any]] = {}
        for b, box in boxes.items():
            shape = tuple(cast(b.shape[k].dtype, box.extent[k]) for k in box.kept)
            self.new[b] = b.replace(shape=shape or (const(1, b.shape[0].dtype),))

    def _place(self, b: Buffer, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        box = self.boxes[b]
        place = tuple([self._moved(indices[k], box.low[k]) for k in box.kept])
        return place or (const(0, indices[0].dtype),)

    def _moved(self, index: PrimExpr, low: PrimExpr) -> PrimExpr:
        if type(index) is Ramp:
            return index.replace(base=self._moved(index.base, low))
        return self.analyzer.simplify(Sub(index, cast(index.dtype, low)))

    def buffer(self, b: Buffer) -> Buffer:
        return self.new.get(b, b)

    def expr(self, e: Any) -> Any:
        return with_loads(e, self._load, self._memo)

    def _load(self, n: BufferLoad) -> BufferLoad | None:
        if n.buffer in self.boxes:
            return BufferLoad(self.new[n.buffer], self._place(n.buffer, n.indices))
        return None

    def on_store(self, stmt: BufferStore) -> Stmt:
        value = self.expr(stmt.value)
        indices = replace_tuple(stmt.indices, self.expr)
        if stmt.buffer in self.boxes:
            indices = self._place(stmt.buffer, indices)
        return stmt.replace(buffer=self.buffer(stmt.buffer), value=value, indices=indices)

    def on_for(self, stmt: For) -> Steps:
        loop = yield from super().on_for(stmt)
        buffers = self.homes.get(id(stmt))
        if not buffers or not isinstance(loop, For):
            return loop
        own = tuple(self.buffer(b) for b in buffers)
        block = Block((), (), (), "", loop.body, alloc_buffers=own)
        return loop.replace(body=BlockRealize((), const(True), block))

    def on_block(self, stmt: Block) -> Steps:
        body = yield stmt.body
        init = stmt.init
        if init is not None:
            init = yield init
        kept = [b for b in stmt.alloc_buffers if b not in self.moved]
        return stmt.replace(
            body=body,
            init=init,
            alloc_buffers=tuple(self.buffer(b) for b in kept),
            reads=replace_tuple(stmt.reads, self._region),
            writes=replace_tuple(stmt.writes, self._region),
        )

    def _region(self, r: BufferRegion) -> BufferRegion:
        new = self.new.get(r.buffer)
        if new is None:
            # Where it begins may be read of a buffer that shrank.
            return self.expr(r)
        whole = [Range.from_min_extent(const(0, e.dtype), e) for e in new.shape]
        return BufferRegion(new, tuple(whole))
