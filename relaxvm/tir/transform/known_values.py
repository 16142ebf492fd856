"""What buffers are known to hold, for passes that go through a function in program order.

    for i in range(16):
        A[i] = i * i                    for each i with 0 <= i < 16, A[i] is i * i
    T.evaluate(T.assume(n < 8 or B[n] == 0))          if not n < 8, B[n] is 0

What is known of a place ends with the next store that may reach it. Values are numbers, variables
and sums of integers: what a float computation gave need not be what it would give elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from ...arith import Analyzer, conjuncts
from ...base import NamedTuple
from ...ir import (
    EQ,
    GE,
    INTRINSICS,
    LT,
    NE,
    Call,
    FloatImm,
    Intrinsic,
    Let,
    Node,
    Not,
    Or,
    PrimExpr,
    Range,
    Var,
    cast,
    const,
    substitute,
    walk,
)
from ..stmt import (
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    Stmt,
    While,
)
from .rewriter import ScopedRewriter, Steps, is_plain, stable

# As many as a load is compared with.
_MOST_FACTS = 64


class Fact(NamedTuple):
    """``buffer[indices]`` is `value`, for each value of the variables in `every` with which all of
    `conditions` hold.

    store  that made it so; None: somebody said so
    """

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    value: PrimExpr
    store: BufferStore | None
    conditions: tuple[PrimExpr, ...] = ()
    every: frozenset[Var] = frozenset()

    @property
    def parts(self) -> tuple[PrimExpr, ...]:
        """The expressions in it."""
        return (*self.indices, self.value, *self.conditions)

    def where(self, values: dict[Any, PrimExpr]) -> Fact:
        """The fact with variables replaced."""
        indices, conditions = (
            tuple(substitute(e, values) for e in each) for each in (self.indices, self.conditions)
        )
        value = substitute(self.value, values)
        return self._replace(indices=indices, value=value, conditions=conditions)

    def at(self, indices: tuple[PrimExpr, ...], analyzer: Analyzer) -> PrimExpr | None:
        """The value there, if it is certain."""
        chosen: dict[Any, PrimExpr] = {}
        for own, index in zip(self.indices, indices):
            if own in self.every and own.dtype is index.dtype:
                chosen.setdefault(own, index)
        if len(chosen) < len(self.every):
            return None
        for own, index in zip(self.indices, indices):
            if chosen.get(own) is index or own is index:
                continue
            if not analyzer.can_prove_equal(substitute(own, chosen), index):
                return None
        if all(analyzer.can_prove(substitute(c, chosen)) for c in self.conditions):
            return analyzer.simplify(substitute(self.value, chosen))
        return None

    def for_each(self, loop: For, stores: list[BufferStore]) -> Fact | None:
        """The fact of one iteration as a fact of all of them; None if a later one may undo it.

        stores  in the loop that may reach the buffer
        """
        var = loop.loop_var
        alone = stores == ([] if self.store is None else [self.store])
        own = any(
            e is var
            and (alone or all(s.buffer is self.buffer and s.indices[k] is var for s in stores))
            for k, e in enumerate(self.indices)
        )
        if own and is_plain(loop.min) and is_plain(loop.extent):
            first, extent = cast(var.dtype, loop.min), cast(var.dtype, loop.extent)
            inside = (GE(var, first), LT(var, first + extent))
            conditions = (*self.conditions, *inside)
            return self._replace(conditions=conditions, every=self.every | {var})
        same = alone and not any(var in walk(e) for e in self.parts)
        return self if same and Analyzer(wrap=True).can_prove(loop.extent >= 1) else None


class KnownValues:
    """Told of every statement as it is passed; `value_at` says what a place holds then."""

    def __init__(self, fn: PrimFunc, analyzer: Analyzer, on: bool = True) -> None:
        self.analyzer = analyzer
        self.facts: list[Fact] = []
        self.on = on
        if not on:
            return
        # Memory that may be the same under two names: views, parameters, and what pointers say.
        self._source: dict[Var, Var] = {}
        self._unknown = False
        for n in walk(fn.body):
            if isinstance(n, MatchBufferRegion):
                view, source = map(self._memory, (n.buffer.data, n.source.buffer.data))
                if view is not source:
                    self._source[view] = source
            elif isinstance(n, (LetStmt, Let)) and n.var.dtype.is_handle:
                self._unknown = True
        separate = bool(fn.get_attr("tir.noalias", False))
        self._shared = frozenset() if separate else frozenset(b.data for b in fn.buffers)

    def value_at(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr | None:
        """What is there, if that is certain."""
        for fact in reversed(self.facts):
            if fact.buffer is buffer:
                value = fact.at(indices, self.analyzer)
                if value is not None:
                    return value
        return None

    def overlap(self, a: Var, b: Var) -> bool:
        """Whether two buffers' memories may be one."""
        a, b = self._memory(a), self._memory(b)
        return a is b or self._unknown or (a in self._shared and b in self._shared)

    def _memory(self, data: Var) -> Var:
        """What `data` is a view of, in the end."""
        while data in self._source:
            data = self._source[data]
        return data

    # -- statements --------------------------------------------------------------------------------

    def stored(self, stmt: BufferStore, origin: BufferStore) -> None:
        """After a store.

        origin  what it was in the function as it came in
        """
        if not self.on:
            return
        if has_effects(stmt):
            self.facts = []
        kept = [f for f in self.facts if not self._reaches(stmt, f)]
        scalar = all(i.dtype.lanes == 1 and is_plain(i) for i in stmt.indices)
        if scalar and stmt.value.dtype is stmt.buffer.dtype and _is_exact(stmt.value):
            kept.append(Fact(stmt.buffer, stmt.indices, stmt.value, origin))
        self.facts = kept[-_MOST_FACTS:]

    def _reaches(self, stmt: BufferStore, fact: Fact) -> bool:
        if fact.buffer is stmt.buffer and not fact.every:
            pairs = zip(fact.indices, stmt.indices)
            return not any(
                a.dtype is b.dtype and self.analyzer.can_prove(NE(a, b)) for a, b in pairs
            )
        return self.overlap(fact.buffer.data, stmt.buffer.data)

    def evaluated(self, stmt: Evaluate) -> None:
        """After an expression: what it assumes is known, what it may change is not."""
        value = stmt.value
        if not self.on:
            return
        if isinstance(value, Call) and value.op is INTRINSICS["assume"]:
            added = map(_assumed, conjuncts(value.args[0]))
            self.facts = [*self.facts, *(f for f in added if f is not None)][-_MOST_FACTS:]
        elif has_effects(stmt):
            self.facts = []

    @contextlib.contextmanager
    def loop(self, loop: For) -> Iterator[None]:
        """The body of a loop."""
        if not self.on:
            yield
            return
        before = self._lasting(loop.body, {loop.loop_var})
        self.facts = list(before)
        yield
        old = {id(f) for f in before}
        stores = [n for n in walk(loop.body) if isinstance(n, BufferStore)]
        self.facts = before + [
            lasting
            for f in self.facts
            if id(f) not in old and (lasting := f.for_each(loop, self._reaching(stores, f)))
        ]

    def _reaching(self, stores: list[BufferStore], fact: Fact) -> list[BufferStore]:
        return [s for s in stores if self.overlap(s.buffer.data, fact.buffer.data)]

    @contextlib.contextmanager
    def apart(self, stmt: Stmt) -> Iterator[None]:
        """A statement of which nothing is known that lasts."""
        if not self.on:
            yield
            return
        before = self._lasting(stmt, ())
        self.facts = list(before)
        yield
        self.facts = before

    @contextlib.contextmanager
    def block(self, stmt: BlockRealize) -> Iterator[None]:
        """A block; in terms of its axes inside, of what they are bound to behind."""
        values = {axis.var: v for axis, v in zip(stmt.block.iter_vars, stmt.iter_values)}
        if stmt.block.init is not None or not all(map(is_plain, values.values())):
            with self.apart(stmt):
                yield
            return
        begin = self.facts
        yield
        old = {id(f) for f in begin}
        after = [f if id(f) in old else f.where(values) for f in self.branch(begin, stmt.predicate)]
        self.facts = self.merged(begin, after, begin)

    def ended(self, var: Var) -> None:
        """After what `var` stood for."""
        self.facts = [f for f in self.facts if not any(n is var for e in f.parts for n in walk(e))]

    def overwrites(self, earlier: Stmt, later: tuple[Stmt, ...]) -> bool:
        """Whether the stores of one statement are repeated by one of those after it before
        anything reads them.
        """
        nest = nest_of(earlier)
        if nest is None or has_effects(earlier):
            return False
        loops, store = nest
        analyzer = Analyzer(wrap=True)
        for f in loops:
            analyzer.bind(f.loop_var, Range.from_min_extent(f.min, f.extent), allow_override=True)
        for stmt in later:
            again = nest_of(stmt)
            if again is not None and again[1].buffer is store.buffer and not has_effects(stmt):
                fact: Fact | None = Fact(store.buffer, again[1].indices, const(0), again[1])
                for f in reversed(again[0]):
                    fact = None if fact is None else fact.for_each(f, [again[1]])
                if fact is not None and fact.at(store.indices, analyzer) is not None:
                    return not self._reads(stmt, store.buffer.data)
            if has_effects(stmt) or self._reads(stmt, store.buffer.data):
                return False
        return False

    def _reads(self, stmt: Stmt, data: Var) -> bool:
        return any(
            self.overlap(n.buffer.data, data) for n in walk(stmt) if isinstance(n, BufferLoad)
        )

    def branch(self, begin: list[Fact], condition: PrimExpr) -> list[Fact]:
        """What is known after the branch at hand, which began with `begin`, if both may have
        run.
        """
        old = {id(f) for f in begin}
        added = [f for f in self.facts if id(f) not in old]
        conditional = [f._replace(conditions=(*f.conditions, condition)) for f in added]
        return [f for f in self.facts if id(f) in old] + (
            conditional if is_plain(condition) else []
        )

    @staticmethod
    def merged(begin: list[Fact], *branches: list[Fact]) -> list[Fact]:
        """What is known after one of the branches."""
        old = {id(f) for f in begin}
        both = set.intersection(*({id(f) for f in facts} for facts in branches))
        added = [f for facts in branches for f in facts if id(f) not in old]
        return [f for f in begin if id(f) in both] + added

    def _lasting(self, stmt: Stmt, variables: Iterable[Var]) -> list[Fact]:
        """What `stmt` leaves as it is, and is not about `variables`."""
        if has_effects(stmt):
            return []
        data = {n.buffer.data for n in walk(stmt) if isinstance(n, BufferStore)}
        names = set(variables)
        return [
            f
            for f in self.facts
            if not any(self.overlap(f.buffer.data, d) for d in data)
            and not any(n in names for e in f.parts for n in walk(e))
        ]


class KnowingRewriter(ScopedRewriter):
    """A rewriter that knows what buffers hold where it is, if `on`."""

    def __init__(self, fn: PrimFunc, on: bool = True) -> None:
        super().__init__(fn)
        self.known = KnownValues(fn, self.analyzer, on)

    def on_store(self, stmt: BufferStore) -> Stmt:
        store = super().on_store(stmt)
        assert isinstance(store, BufferStore)
        self.known.stored(store, stmt)
        return store

    def on_evaluate(self, stmt: Evaluate) -> Stmt:
        result = super().on_evaluate(stmt)
        assert isinstance(result, Evaluate)
        self.known.evaluated(result)
        return result

    def on_for(self, stmt: For) -> Steps:
        with self.known.loop(stmt):
            loop = yield from super().on_for(stmt)
        return loop

    def on_while(self, stmt: While) -> Steps:
        with self.known.apart(stmt):
            loop = yield from super().on_while(stmt)
        return loop

    def on_realize(self, stmt: BlockRealize) -> Steps:
        if self.known.on:
            for axis in stmt.block.iter_vars:
                if axis.dom is not None:
                    self.analyzer.bind(axis.var, axis.dom, allow_override=True)
        with self.known.block(stmt):
            realize = yield from super().on_realize(stmt)
        return realize

    def on_let(self, stmt: LetStmt) -> Steps:
        let = yield from super().on_let(stmt)
        self.known.ended(stmt.var)
        return let

    def on_if(self, stmt: IfThenElse) -> Steps:
        return self.arms(stmt, self.expr(stmt.condition))

    def arms(self, stmt: IfThenElse, condition: PrimExpr) -> Steps:
        """The statement under `condition`, in each arm of which that is known."""
        known, begin, else_case = self.known, self.known.facts, stmt.else_case
        with self.analyzer.constraint_scope(stable(condition)):
            then_case = yield stmt.then_case
        if not known.on:
            if else_case is not None:
                else_case = yield else_case
            return stmt.replace(condition=condition, then_case=then_case, else_case=else_case)
        after_then = known.branch(begin, condition)
        known.facts = begin
        if else_case is not None:
            with self.analyzer.constraint_scope(stable(Not(condition))):
                else_case = yield else_case
        known.facts = known.merged(begin, after_then, known.branch(begin, Not(condition)))
        return stmt.replace(condition=condition, then_case=then_case, else_case=else_case)


def has_effects(stmt: Node) -> bool:
    """Whether it does more than to store."""
    return any(
        isinstance(n, Call)
        and not (isinstance(n.op, Intrinsic) and n.op.effect in ("pure", "read", "check"))
        and n.op is not INTRINSICS["assume"]
        for n in walk(stmt)
    )


def nest_of(stmt: Stmt) -> tuple[list[For], BufferStore] | None:
    """The loops around one store, if `stmt` is no more than that."""
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    return (loops, stmt) if isinstance(stmt, BufferStore) else None


def _is_exact(e: PrimExpr) -> bool:
    """Whether `e` is the same wherever it is evaluated."""
    return isinstance(e, (FloatImm, Var)) or (not e.dtype.is_float and is_plain(e))


def _assumed(condition: PrimExpr) -> Fact | None:
    """The fact in ``c or d or buffer[indices] == value``."""
    others, facts = [], []
    for e in conjuncts(condition, Or):
        if isinstance(e, EQ) and isinstance(e.a, BufferLoad) and _is_exact(e.b):
            facts.append(Fact(e.a.buffer, e.a.indices, e.b, None))
        else:
            others.append(e)
    negated = tuple(Analyzer(wrap=True).simplify(Not(e)) for e in others)
    if len(facts) != 1 or not all(map(is_plain, (*negated, *facts[0].indices))):
        return None
    return facts[0]._replace(conditions=negated)
