"""Turn vectorized loops into vector statements.

    for i in T.vectorized(4):                   B[T.ramp(0, 1, 4)] = A[T.ramp(0, 1, 4)] +
                                                T.broadcast(x, 4)
        B[i] = A[i] + x

The result is the same as that of the serial loop. Conditions that hold for all lanes, or for none,
are decided first. A statement that has no vector form (a condition that depends on the loop, an
inner loop whose bounds do, an opaque call) runs as a serial loop of its own; the whole loop stays
serial if its iterations may read what others write, if the extent is not a constant, or if the
vectors would be too long.

The attribute "tir.vector_bits" of a function says how wide its machine's vectors are. Then short
loops that copy or compute with little become whole vectors, of which the last overlaps the one
before: serial ones, such as HoistIfThenElse leaves of padding, and those of results marked for
vectors that no register fits.

    for i in range(30):                         for v in T.unroll(2):
        B[i] = A[i] * 4.0           →               B[T.ramp(v * 14, 1, 16)] =
                                                      A[T.ramp(v * 14, 1, 16)] *
                                                      T.broadcast(4.0, 16)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from ...arith import Analyzer, conjuncts, linear_in, scalar_post_order, stride
from ...ir import (
    GE,
    GT,
    INTRINSICS,
    LE,
    LT,
    Add,
    And,
    ArithmeticExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    FloatImm,
    IntImm,
    Intrinsic,
    IRModule,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    PassContext,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    Var,
    binary,
    cast,
    const,
    descend,
    post_order,
    substitute,
    walk,
)
from ...ir.transform import prim_func_pass, register_config
from ...ir.walk import transform
from ..copies import fresh_copy
from ..op import if_then_else
from ..stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    seq,
    statements_below,
)
from .rewriter import ScopedRewriter, Steps, StmtRewriter, constant

MAX_VECTOR_LANES = 64
# The annotation of a parallel loop for how many scalars it stored before: copies wait for memory,
# and take longer than their few vectors say.
SCALAR_WORK = "tir.scalar_work"
# Longer loops of scalars stay some: LLVM writes several vectors of them out in one iteration.
_MOST_ITERATIONS = 256
# Of vectors that are written out instead of being a loop of their own.
_MOST_NODES = 200
# Elements that vectors are picked from, at most this far apart.
_MOST_STRIDE = 4

register_config("tir.disable_vectorize", bool, False, "VectorizeLoop makes loops serial")
register_config(
    "tir.VectorizeLoop.explicit_vectors",
    bool,
    True,
    "write vectors; otherwise loops that could be some are left marked T.vectorized",
)


@prim_func_pass(opt_level=0)
def VectorizeLoop(
    fn: PrimFunc, mod: IRModule, ctx: PassContext, *, enable_vectorize: bool = True
) -> PrimFunc:
    """Vectorize the loops marked so; with `enable_vectorize=False` they become serial."""
    enable = enable_vectorize and not ctx.get("tir.disable_vectorize")
    return _Vectorize(fn, enable, ctx.get("tir.VectorizeLoop.explicit_vectors")).on_function(fn)


class _NoVector(Exception):
    """This expression has no vector form. Never leaves this file."""


class _Vectorize(ScopedRewriter):
    def __init__(self, fn: PrimFunc, enable: bool, explicit: bool) -> None:
        super().__init__(fn)
        self.enable, self.explicit = enable, explicit
        self.bits = int(fn.get_attr("tir.vector_bits", 0)) if enable and explicit else 0
        if self.bits and any(map(_adds_to_scalar, descend(fn.body, _serial_below))):
            # The order of that sum is LLVM's choice, and shall not be another one where the same
            # function works in place and its other loops stay scalars.
            self.bits = 0
        self.outside = {buffer.data for buffer in fn.buffer_map.values()}
        # How many scalars the loop at hand stored before.
        self.scalars = 0
        # What shares no memory with what it is computed of.
        self.alone = set(self.outside) if fn.get_attr("tir.noalias") else set()

    def on_allocate(self, stmt: Allocate) -> Steps:
        self.alone.add(stmt.buffer_var)
        return (yield from super().on_allocate(stmt))

    def on_for(self, stmt: For) -> Steps:
        bits, outside = self.bits, self.scalars
        self.scalars = 0
        if stmt.annotations:
            # They may be about the vectors inside.
            self.bits = 0
        self.enter(stmt)
        body = yield stmt.body
        if stmt.kind == ForKind.VECTORIZED and self.enable:
            body = _decided(body, stmt, self.analyzer)
        self.bits = bits
        loop, lanes = stmt.replace(body=body), constant(stmt.extent)
        if self.scalars and stmt.kind == ForKind.PARALLEL:
            more = {SCALAR_WORK: const(self.scalars, "int64")}
            loop = loop.replace(annotations=loop.annotations.with_(more))
        self.scalars = outside + self.scalars * (lanes or 1)
        if bits and isinstance(body, BufferStore):
            odd = stmt.kind == ForKind.VECTORIZED and lanes and lanes & lanes - 1
            if stmt.kind == ForKind.SERIAL or (odd and self._is_result(body, stmt.loop_var)):
                whole = self._in_vectors(loop, body)
                if whole is not loop:
                    self.scalars += lanes or 1
                    return whole
        if stmt.kind != ForKind.VECTORIZED:
            return loop
        serial = loop.replace(kind=ForKind.SERIAL)
        if not self.enable or lanes is None or lanes > MAX_VECTOR_LANES:
            return serial
        if lanes <= 0:
            return seq()
        if lanes > 1 and _depends_on_order(body, stmt.loop_var):
            return serial
        if not self.explicit and lanes > 1:
            return loop
        return _vectors(body, stmt, lanes, self.analyzer)

    def _is_result(self, store: BufferStore, var: Var) -> bool:
        """Whether a store is of what is not read again soon, nor from memory that is always the
        same: values may stay in registers instead, but for vectors that overlap.
        """
        return store.buffer.data in self.outside and not any(
            all(v is var for index in n.indices for v in walk(index) if isinstance(v, Var))
            for n in walk(store.value)
            if isinstance(n, BufferLoad)
        )

    def _in_vectors(self, loop: For, store: BufferStore) -> Stmt:
        """The loop as few vectors, if it computes the same when iterations are repeated."""
        extent, var = loop.extent, loop.loop_var
        bound = self.analyzer.const_int_bound(extent)
        fewest, most = int(bound.min_value), int(bound.max_value)
        if loop.annotations or not 1 <= most <= _MOST_ITERATIONS:
            return loop
        if most == 1:
            once = substitute(store, {var: loop.min})
            return once if fewest == 1 else IfThenElse(GT(extent, const(0, extent.dtype)), once)
        loads = [n for n in walk(store.value) if isinstance(n, BufferLoad)]
        if store.buffer.data not in self.alone or not _is_simple(store, var):
            return loop
        if not self.alone | self.outside >= {n.buffer.data for n in loads}:
            # A pointer kept in a let may be to the same memory.
            return loop
        kinds = {n.dtype for n in loads} | {store.buffer.dtype}
        lanes = min(self.bits // max(d.bits for d in kinds), fewest)
        if lanes < 2:
            return loop
        lanes = 1 << lanes.bit_length() - 1
        number = -(-most // lanes)
        vector, last = Var("v", var.dtype), cast(var.dtype, extent) - lanes
        start: PrimExpr = binary(Min, vector * lanes, last)
        if number > 1 and fewest == most and (most - lanes) % (number - 1) == 0:
            start = vector * ((most - lanes) // (number - 1))
        part = loop.replace(min=loop.min + start, extent=const(lanes, extent.dtype))
        body = _vectors(store, part, lanes, self.analyzer)
        few = number * len(walk(body)) <= _MOST_NODES
        if not few and store.buffer.data in self.outside:
            # Much work for LLVM to write out itself, rather than a step before it.
            return loop
        kind = ForKind.UNROLLED if few else ForKind.SERIAL
        return For(vector, const(0, var.dtype), const(number, extent.dtype), kind, body)


def _serial_below(s: Stmt) -> Sequence[Stmt]:
    is_vector = isinstance(s, For) and s.kind == ForKind.VECTORIZED
    return () if is_vector else statements_below(s)


def _adds_to_scalar(s: Stmt) -> bool:
    """Whether a statement adds to a scalar of floats."""
    if not isinstance(s, BufferStore) or not isinstance(s.value, Add) or not s.value.dtype.is_float:
        return False
    return s.value.dtype.lanes == 1 and any(
        isinstance(part, BufferLoad)
        and part.buffer.data is s.buffer.data
        and all(map(operator.is_, part.indices, s.indices))
        for part in (s.value.a, s.value.b)
    )


def _is_simple(store: BufferStore, var: Var) -> bool:
    """Whether a store fills a run of memory, with runs and sums and products of them."""
    if len(store.indices) != 1 or stride(store.indices[0], var) != 1:
        return False

    def parts(n: PrimExpr) -> tuple[PrimExpr, ...]:
        return (n.a, n.b) if isinstance(n, (Add, Sub, Mul, Min, Max)) else ()

    def fits(n: PrimExpr) -> bool:
        if n.dtype.lanes != 1 or n.dtype.bits < 8:
            return False
        if not isinstance(n, BufferLoad):
            return bool(parts(n)) or isinstance(n, (IntImm, FloatImm))
        step = stride(n.indices[0], var) if len(n.indices) == 1 else None
        near = step is not None and 0 <= step <= _MOST_STRIDE
        return near and n.buffer.data is not store.buffer.data

    return all(fits(n) for n in descend(store.value, parts))


def _vectors(body: Stmt, loop: For, lanes: int, analyzer: Analyzer) -> Stmt:
    """`body` for all iterations of a loop, none of which minds the others."""
    if lanes == 1:
        return substitute(body, {loop.loop_var: loop.min})
    return _Lanes(loop, lanes, analyzer).run(body)


def _decided(body: Stmt, loop: For, analyzer: Analyzer) -> Stmt:
    """`body` without the choices on the variable of `loop` that are the same for all its values;
    conditions that hold for all or none are put in terms of the others.
    """

    def decide(n: Any) -> Any:
        if isinstance(n, CompareExpr):
            return _of_the_first(n, loop, analyzer)
        if n.op is not INTRINSICS["if_then_else"]:
            return None
        condition, inside, outside = n.args
        left: list[PrimExpr] = []
        for each in conjuncts(condition):
            if analyzer.can_prove(Not(each)):
                return outside
            if not analyzer.can_prove(each):
                left.append(each)
        if not left:
            return inside
        if len(left) == len(conjuncts(condition)):
            return None
        decision = left[0]
        for each in left[1:]:
            decision = And(decision, each)
        return if_then_else(decision, inside, outside)

    return transform(body, decide, only=_DECIDED)


_DECIDED: frozenset[type] = frozenset({Call, *CompareExpr.__subclasses__()})


def _of_the_first(condition: CompareExpr, loop: For, analyzer: Analyzer) -> PrimExpr | None:
    """``rest < 0`` for ``rest + i < 0``, if rest is a multiple of the iterations 0 <= i < n: then
    it holds for all of them or for none.
    """
    first = _first_lanes(condition, loop, analyzer)
    if first is None or first[1] != 0:
        return None
    return LT(first[0], const(0, first[0].dtype))


def _first_lanes(condition: PrimExpr, loop: For, analyzer: Analyzer) -> tuple[PrimExpr, int] | None:
    """(rest, c) of a condition ``rest + i < 0`` on the iterations 0 <= i < n, if rest is c less
    than a multiple of n, 0 <= c < n: it holds for all of them, for the first c, or for none.
    """
    kind, lanes = type(condition), constant(loop.extent)
    if not isinstance(condition, CompareExpr) or kind not in (LT, LE, GT, GE) or not lanes:
        return None
    if not condition.a.dtype.is_int or constant(loop.min) != 0:
        return None
    if not any(v is loop.loop_var for v in walk(condition)):
        return None
    small, large = condition.a, condition.b
    if kind in (GT, GE):
        small, large = large, small
    dtype = max(loop.loop_var.dtype, small.dtype, key=lambda d: d.bits)
    terms = linear_in(analyzer.simplify(Sub(cast(dtype, small), cast(dtype, large))), loop.loop_var)
    if terms is None or terms[0] != 1:
        return None
    rest = terms[1] if kind in (LT, GT) else binary(Sub, terms[1], const(1, dtype))
    over = constant(analyzer.simplify(rest % lanes))
    return None if over is None else (rest, -over % lanes)


def _depends_on_order(body: Stmt, loop_var: Var) -> bool:
    """Whether an iteration may touch what another one writes.

    Allowed: memory that is only read, and memory of which each iteration touches its own element:
    all accesses have the identical index, and that moves with the loop.
    """
    places: dict[Var, set[PrimExpr]] = {}
    written: set[Var] = set()
    for n in walk(body):
        if isinstance(n, (BufferLoad, BufferStore)):
            if len(n.indices) != 1:
                return True
            places.setdefault(n.buffer.data, set()).add(n.indices[0])
            if isinstance(n, BufferStore):
                written.add(n.buffer.data)
        elif isinstance(n, (Allocate, AllocateConst, While)):
            return True
        elif isinstance(n, Call) and not _is_the_same_later(n, loop_var):
            return True
    for data in written:
        indices = places[data]
        if len(indices) != 1 or stride(next(iter(indices)), loop_var) in (None, 0):
            return True
    return False


def _is_the_same_later(call: Call, loop_var: Var) -> bool:
    """Whether a call does nothing but compute; or checks, once for all iterations."""
    if not isinstance(call.op, Intrinsic):
        return False
    return call.op.effect == "pure" or (
        call.op.effect == "check" and not any(v is loop_var for v in walk(call))
    )


_LANES = operator.attrgetter("dtype.lanes")


class _Lanes(StmtRewriter):
    """Rewrites the body of one loop, statement by statement."""

    def __init__(self, loop: For, lanes: int, analyzer: Analyzer) -> None:
        super().__init__()
        self.loop = loop
        self.lanes = lanes
        self.analyzer = analyzer
        first = loop.min
        self.env: dict[int, PrimExpr] = {
            id(loop.loop_var): Ramp(first, const(1, first.dtype), lanes)
        }
        self._memo: dict[int, tuple[Any, PrimExpr]] = {}

    # -- expressions -------------------------------------------------------------------------------

    def expr(self, e: PrimExpr) -> PrimExpr:
        """The expression for all lanes at once; a scalar stays one if it is the same in each."""
        done = self._memo

        def below(n: PrimExpr) -> Sequence[PrimExpr]:
            if id(n) in done or isinstance(n, Let):
                return ()
            return n._operands_

        order = scalar_post_order(e, done)
        for n in post_order(e, below) if Let in map(type, order) else order:
            if id(n) in done:
                continue
            if not n._operands_:
                done[id(n)] = (n, self.env.get(id(n), n))
            else:
                done[id(n)] = (n, self._let(n) if isinstance(n, Let) else self._rebuild(n))
        return done[id(e)][1]

    def _rebuild(self, n: Any) -> PrimExpr:
        new: list[PrimExpr] = []
        for c in n._operands_:
            new.append(self._memo[id(c)][1])
        if all(map(operator.is_, n._operands_, new)):
            return n
        if max(map(_LANES, n._operands_)) > 1:
            raise _NoVector("it has vectors already")
        handler = _REBUILD.get(type(n))
        if handler is None:
            handler = _arithmetic if isinstance(n, (ArithmeticExpr, CompareExpr)) else None
        if handler is None:
            raise _NoVector(type(n).__name__)
        return handler(self, n, new)

    def _let(self, n: Let) -> PrimExpr:
        if any(isinstance(c, Let) for c in walk(n.body)):
            raise _NoVector("nested lets")
        value = self.expr(n.value)
        if value is n.value and not self._mentions_lanes(n.body):
            return n
        if value.dtype.lanes == 1:
            saved, self._memo = self._memo, {}
            body = self.expr(n.body)
            self._memo = saved
            return Let(n.var, value, body)
        var = Var(n.var.name, value.dtype)
        self.env[id(n.var)] = var
        saved, self._memo = self._memo, {}
        body = self.expr(n.body)
        self._memo = saved
        return Let(var, value, self.widen(body))

    def _mentions_lanes(self, e: PrimExpr) -> bool:
        return any(id(c) in self.env for c in walk(e))

    def widen(self, e: PrimExpr) -> PrimExpr:
        """A scalar copied to all lanes."""
        return e if e.dtype.lanes == self.lanes else Broadcast(e, self.lanes)

    # -- statements --------------------------------------------------------------------------------

    def _serial(self, stmt: Stmt) -> Stmt:
        """One statement as a serial loop of its own, with a variable of its own."""
        return fresh_copy(self.loop.replace(kind=ForKind.SERIAL, body=stmt))

    def _is_steady(self, stmt: Stmt) -> bool:
        """Whether a statement is the same in every iteration: once is enough for a store, and for
        what has no effect.
        """
        return self.env.keys().isdisjoint(map(id, walk(stmt)))

    def on_evaluate(self, stmt: Evaluate) -> Stmt:
        return stmt if self._is_steady(stmt) else self._serial(stmt)

    def on_assert(self, stmt: AssertStmt) -> Any:
        return self._serial(stmt)

    def on_while(self, stmt: While) -> Any:
        return self._serial(stmt)

    def on_store(self, stmt: BufferStore) -> Stmt:
        if self._is_steady(stmt):
            return stmt
        try:
            indices = tuple(self.expr(i) for i in stmt.indices)
            value = self.expr(stmt.value)
        except _NoVector:
            return self._serial(stmt)
        if indices[0].dtype.lanes == 1:
            return self._serial(stmt)
        return BufferStore(stmt.buffer, self.widen(value), indices, stmt.span)

    def on_for(self, stmt: For) -> Steps:
        try:
            first, extent = self.expr(stmt.min), self.expr(stmt.extent)
        except _NoVector:
            return self._serial(stmt)
        if first.dtype.lanes > 1 or extent.dtype.lanes > 1:
            return self._serial(stmt)
        body = yield stmt.body
        return stmt.replace(min=first, extent=extent, body=body)

    def on_if(self, stmt: IfThenElse) -> Steps:
        try:
            condition = self.expr(stmt.condition)
        except _NoVector:
            return self._serial(stmt)
        if condition.dtype.lanes > 1:
            return (yield from self._in_parts(stmt))
        then_case = yield stmt.then_case
        else_case = stmt.else_case
        if else_case is not None:
            else_case = yield else_case
        return stmt.replace(condition=condition, then_case=then_case, else_case=else_case)

    def _in_parts(self, stmt: IfThenElse) -> Steps:
        """A statement that the first lanes run: as many in each vector that is not a whole one."""
        parts = conjuncts(stmt.condition)
        chosen = [c for c in parts if self.expr(c).dtype.lanes > 1]
        lanes_run = None
        if len(chosen) == 1 and stmt.else_case is None and not _loads(stmt.condition):
            lanes_run = _first_lanes(chosen[0], self.loop, self.analyzer)
        if lanes_run is None or not lanes_run[1] or self.expr(lanes_run[0]).dtype.lanes > 1:
            return self._serial(stmt)
        rest, count = self.expr(lanes_run[0]), lanes_run[1]
        zero, last = const(0, rest.dtype), const(self.lanes - 1, rest.dtype)
        few = self.loop.replace(extent=const(count, self.loop.extent.dtype))
        first = _vectors(fresh_copy(stmt.then_case), few, count, self.analyzer)
        whole = yield stmt.then_case
        result = IfThenElse(LT(rest + last, zero), whole, IfThenElse(LT(rest, zero), first))
        for each in parts:
            if each is not chosen[0]:
                result = IfThenElse(self.expr(each), result)
        return result

    def on_let(self, stmt: LetStmt) -> Steps:
        try:
            value = self.expr(stmt.value)
        except _NoVector:
            return self._serial(stmt)
        if value.dtype.lanes == 1:
            body = yield stmt.body
            return stmt.replace(value=value, body=body)
        if _serial_needs(stmt.body, stmt.var):
            return self._serial(stmt)
        var = Var(stmt.var.name, value.dtype)
        self.env[id(stmt.var)] = var
        self._memo = {}
        body = yield stmt.body
        return LetStmt(var, value, body, stmt.span)

    def on_attr(self, stmt: AttrStmt) -> Steps:
        body = yield stmt.body
        return stmt.replace(body=body)

    def on_decl(self, stmt: DeclBuffer) -> Steps:
        body = yield stmt.body
        return stmt.replace(body=body)

    def on_seq(self, stmt: SeqStmt) -> Steps:
        parts = []
        for each in stmt.seq:
            parts.append((yield each))
        return seq(*parts)


def _serial_needs(body: Stmt, var: Var) -> bool:
    """Whether a statement inside might have to run lane by lane, where a vector variable has no
    meaning.
    """
    simple = (BufferStore, SeqStmt, LetStmt)
    for n in walk(body):
        if isinstance(n, Stmt) and not isinstance(n, simple):
            return True
        if isinstance(n, (And, Or, Let)):
            return True
        if isinstance(n, Call) and getattr(n.op, "name", None) not in _ELEMENTWISE:
            return True
        if isinstance(n, Select) and _loads(n.true_value, n.false_value):
            return True
    return False


# -- expressions by class --------------------------------------------------------------------------


def _arithmetic(v: _Lanes, n: Any, new: list[PrimExpr]) -> PrimExpr:
    a, b = new
    cls = type(n)
    if cls in (Add, Sub) and isinstance(a, Ramp) and b.dtype.lanes == 1:
        return Ramp(binary(cls, a.base, b), a.stride, a.lanes)
    if cls is Add and isinstance(b, Ramp) and a.dtype.lanes == 1:
        return Ramp(binary(cls, a, b.base), b.stride, b.lanes)
    if cls is Mul and isinstance(a, Ramp) and b.dtype.lanes == 1:
        return Ramp(binary(cls, a.base, b), binary(cls, a.stride, b), a.lanes)
    if cls is Mul and isinstance(b, Ramp) and a.dtype.lanes == 1:
        return Ramp(binary(cls, a, b.base), binary(cls, a, b.stride), b.lanes)
    return cls(v.widen(a), v.widen(b))


def _cast(v: _Lanes, n: Cast, new: list[PrimExpr]) -> PrimExpr:
    (value,) = new
    to = n.dtype.element
    if (
        isinstance(value, Ramp)
        and to.is_int
        and to.bits > value.dtype.bits
        and _stays_in_range(value, v.loop)
    ):
        return Ramp(cast(to, value.base), cast(to, value.stride), value.lanes)
    return Cast(to.with_lanes(v.lanes), value)


def _stays_in_range(ramp: Ramp, loop: For) -> bool:
    """Whether no lane of the ramp wraps, so that widening base and stride widens the ramp."""
    base, stride = constant(ramp.base), constant(ramp.stride)
    if ramp.base is loop.min and stride == 1:
        # The loop's own variable: min + extent is representable or the loop would not have run as
        # it did.
        return base is None or base + ramp.lanes - 1 <= int(ramp.base.dtype.max_value)
    if base is None or stride is None:
        return False
    low, high = int(ramp.base.dtype.min_value), int(ramp.base.dtype.max_value)
    return low <= base + stride * (ramp.lanes - 1) <= high


def _not(v: _Lanes, n: Not, new: list[PrimExpr]) -> PrimExpr:
    return Not(v.widen(new[0]))


def _logical(v: _Lanes, n: Any, new: list[PrimExpr]) -> PrimExpr:
    if _loads(n.b):
        raise _NoVector("a load that may not be reached")
    return type(n)(v.widen(new[0]), v.widen(new[1]))


def _select(v: _Lanes, n: Select, new: list[PrimExpr]) -> PrimExpr:
    condition, yes, no = new
    if condition.dtype.lanes > 1 and _loads(n.true_value, n.false_value):
        raise _NoVector("a load that may not be reached")
    return Select(condition, v.widen(yes), v.widen(no))


def _load(v: _Lanes, n: BufferLoad, new: list[PrimExpr]) -> PrimExpr:
    return BufferLoad(n.buffer, tuple(new))


def _call(v: _Lanes, n: Call, new: list[PrimExpr]) -> PrimExpr:
    name = getattr(n.op, "name", "")
    if name == "tir.if_then_else":
        condition, yes, no = new
        if condition.dtype.lanes == 1:
            yes, no = v.widen(yes), v.widen(no)
            return Call(yes.dtype, n.op, (condition, yes, no))
        if _loads(n.args[1], n.args[2]):
            raise _NoVector("a load that may not be reached")
        return Select(condition, v.widen(yes), v.widen(no))
    if name not in _ELEMENTWISE:
        raise _NoVector(name)
    return Call(n.dtype.with_lanes(v.lanes), n.op, tuple(v.widen(a) for a in new))


def _loads(*exprs: PrimExpr) -> bool:
    return any(isinstance(n, BufferLoad) for e in exprs for n in walk(e))


_ELEMENTWISE = frozenset(
    f"tir.{name}"
    for name in (
        "exp exp2 exp10 log log2 log10 log1p expm1 sqrt rsqrt tanh sigmoid erf erfc sin cos tan "
        "asin acos atan sinh cosh asinh acosh atanh gelu gelu_tanh silu mish floor ceil round "
        "nearbyint trunc fabs pow atan2 fmod copysign hypot nextafter ldexp fma muladd bitwise_and "
        "bitwise_or bitwise_xor shift_left shift_right bitwise_not popcount clz isnan isinf "
        "isfinite truncdiv truncmod reinterpret likely ignore_loop_partition"
    ).split()
)

_REBUILD: dict[type, Callable[[_Lanes, Any, list[PrimExpr]], PrimExpr]] = {
    Cast: _cast,
    Not: _not,
    And: _logical,
    Or: _logical,
    Select: _select,
    BufferLoad: _load,
    Call: _call,
}
