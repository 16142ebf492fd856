"""`PatternContext`: patterns that are joined to a graph by who uses whom, matched with a block.

with PatternContext() as context:
    a, b = is_op("relax.matmul")(x, w), is_op("relax.nn.relu")(wildcard())
    a >> b
    found = context.match_dfb(block)          # {a: lv, b: lv1, x: x, w: w}
"""

from __future__ import annotations

import contextvars
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...base import PatternError, reachable
from ...ir import GlobalVar, Op, descend
from ..expr import Binding, BindingBlock, Call, DataflowVar, ExternFunc, Tuple, Var
from ..flow import leaves, vars_in
from ..struct_info import Expr
from .match import FAIL, Goals, Match, bound_values, enter, heads

if TYPE_CHECKING:
    from .pattern import DFPattern, SameShapeConstraint

_contexts: contextvars.ContextVar[tuple[PatternContext, ...]] = contextvars.ContextVar(
    "relaxvm_pattern_contexts", default=()
)


class PatternContext:
    """What is demanded of several patterns together.

    incremental  start with what the current context demands

    Calls of patterns that are made while it is entered demand that the call uses its arguments.
    Different patterns match different variables.
    """

    def __init__(self, incremental: bool = False) -> None:
        # (producer, consumer) -> {(index, only)}; index None for an argument of a call pattern.
        self._uses: dict[tuple[DFPattern, DFPattern], dict[tuple[int | None, bool], None]] = {}
        self._checks: list[SameShapeConstraint] = []
        self._graph: Graph | None = None
        if incremental:
            outer = PatternContext.current()
            if outer is None:
                raise PatternError("PatternContext(incremental=True): no context is entered")
            self._uses = {pair: dict(kinds) for pair, kinds in outer._uses.items()}
            self._checks = list(outer._checks)

    def __enter__(self) -> PatternContext:
        _contexts.set((*_contexts.get(), self))
        return self

    def __exit__(self, *exc_info: object) -> None:
        entered = _contexts.get()
        if not entered or entered[-1] is not self:
            raise PatternError("PatternContext: left in another order than entered")
        _contexts.set(entered[:-1])

    @staticmethod
    def current() -> PatternContext | None:
        """The innermost context that is entered, or None."""
        entered = _contexts.get()
        return entered[-1] if entered else None

    def add_use(
        self,
        producer: DFPattern,
        consumer: DFPattern,
        index: int | None = -1,
        only: bool = False,
    ) -> None:
        """Demand that what `consumer` matches reads what `producer` matches.

        index  as which of its values, functions left out; -1: any; None: `consumer` says it itself
        only   and that nothing else does
        """
        if producer is consumer:
            raise PatternError(f"a pattern cannot be used by itself: {producer!r}")
        self._uses.setdefault((producer, consumer), {})[index, only] = None
        self._graph = None

    def add_check(self, check: SameShapeConstraint) -> None:
        """Demand that `check` holds of what is matched."""
        self._checks.append(check)
        self._graph = None

    def graph(self) -> Graph:
        """What is demanded, ready to be matched."""
        if self._graph is None:
            self._graph = Graph(self._uses, self._checks)
        return self._graph

    def match_dfb(
        self,
        dfb: BindingBlock,
        start_hint: Var | None = None,
        must_include_hint: bool = False,
    ) -> dict[DFPattern, Var] | None:
        """The variable that each pattern matches in the block, or None if they do not match.

        start_hint  look for a match of this variable first; and nowhere else if
                    `must_include_hint`
        A pattern that matches an argument that is no variable, such as a constant, gives that.
        """
        if not isinstance(dfb, BindingBlock):
            raise PatternError(f"match_dfb: wanted a block, got {type(dfb).__name__}")
        graph, block = self.graph(), BlockIndex(dfb.bindings)
        if start_hint is not None:
            for pattern in graph.nodes:
                match = Match(block.values, graph.groups)
                if match.reach((enter, pattern, start_hint, graph.goals(block))):
                    return graph.answer(match)
            if must_include_hint:
                return None
        match = Match(block.values, graph.groups)
        matched = bool(graph.nodes) and match.reach(graph.goals(block))
        return graph.answer(match) if matched else None


class BlockIndex:
    """A block by what patterns ask of it; `bind` keeps it true while bindings change.

    values  variable -> what it is bound to, where that can be looked through
    """

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self.values: dict[Var, Expr] = {}
        self._bound: dict[Var, Expr] = {}
        self._by_op: dict[Op, list[Var]] = {}
        self._all: dict[Var, None] = {}
        self._users: dict[Var, dict[Var, None]] = {}
        self.casts = [b.var for b in bindings if b.var not in bound_values((b,))]
        for b in bindings:
            self.bind(b.var, b.value)
        for var in self.casts:
            del self.values[var]

    def bind(self, var: Var, value: Expr) -> None:
        """From here on `var` is bound to `value`."""
        if var in self._bound:
            for read in vars_in(self._bound[var]):
                self._users[read].pop(var, None)
        for read in vars_in(value):
            self._all.setdefault(read)
            self._users.setdefault(read, {})[var] = None
        self._all.setdefault(var)
        self.values[var] = self._bound[var] = value
        if type(value) is Call and isinstance(value.op, Op):
            self._by_op.setdefault(value.op, []).append(var)

    def candidates(self, pattern: DFPattern) -> list[Var]:
        """The variables that may match, and perhaps others."""
        known = heads(pattern)
        if known is None:
            return list(self._all)
        return [var for op in known for var in self._by_op.get(op, ())]

    def users(self, place: Any) -> list[Var]:
        """The variables whose values read `place`, and those that do so by way of a tuple."""
        users = dict.fromkeys(self._users.get(place, ()))
        for var in list(users):
            if type(self._bound[var]) is Tuple:
                users.update(dict.fromkeys(self.users(var)))
        return list(users)

    def is_only_used_by(self, producer: Var, consumer: Var) -> bool:
        """Whether nothing else reads `producer`, within the block or outside of it."""
        if producer in self._bound and not isinstance(producer, DataflowVar):
            return False
        return list(self._users.get(producer, ())) == [consumer]

    def reads(self, var: Any) -> list[Any]:
        """What the value of `var` reads, functions left out and tuples opened."""
        value = self._bound.get(var)
        if value is None:
            return []
        read: list[Any] = leaves(value)
        if type(value) is Call:
            del read[0]
        return [each for each in read if not isinstance(each, (GlobalVar, ExternFunc, Op))]


class _Use:
    """`consumer` reads `producer`."""

    def __init__(self, pair: Any, kinds: Mapping[tuple[int | None, bool], None]) -> None:
        self.producer, self.consumer = pair
        self.indices = [index for index, _ in kinds if index is not None and index >= 0]
        self.is_part = all(index is None for index, _ in kinds)
        self.only = any(only for _, only in kinds)

    def holds(self, block: BlockIndex, match: Match) -> bool:
        """Whether it holds of what both are bound to."""
        if self.is_part:
            return True
        producer, consumer = match.bound[self.producer], match.bound[self.consumer]
        read = block.reads(consumer)
        for index in self.indices:
            if index >= len(read) or read[index] is not producer:
                return False
        if not any(each is producer for each in read):
            return False
        if not self.only or not isinstance(producer, Var):
            return True
        return block.is_only_used_by(producer, consumer)


class Graph:
    """Patterns and who uses whom, with the order in which they are matched.

    nodes   the patterns, those first that few calls can match
    groups  pattern -> a number: those of different numbers match different variables
    """

    def __init__(
        self,
        uses: Mapping[tuple[DFPattern, DFPattern], Mapping[tuple[int | None, bool], None]],
        checks: Sequence[SameShapeConstraint],
        roots: Sequence[DFPattern] = (),
        one_to_one: bool = True,
    ) -> None:
        self._uses = [_Use(pair, kinds) for pair, kinds in uses.items()]
        self._checks = list(checks)
        nodes = dict.fromkeys([*roots, *(p for pair in uses for p in pair)])
        for check in checks:
            for p in check.args:
                if p not in nodes:
                    raise PatternError(f"same_shape_as: {p!r} is used by none of the patterns")
        self.nodes: list[DFPattern] = sorted(nodes, key=lambda p: heads(p) is None)
        self.groups = _groups(self.nodes) if one_to_one else {}
        self._plan = self._planned()

    def _planned(self) -> list[DFPattern | _Use]:
        """Patterns to begin with, and uses that lead from one that is matched to another, or
        are to be checked.
        """
        uses_of: dict[DFPattern, list[_Use]] = {}
        for use in self._uses:
            uses_of.setdefault(use.producer, []).append(use)
            uses_of.setdefault(use.consumer, []).append(use)
        plan: dict[DFPattern | _Use, None] = {}
        reached: set[DFPattern] = set()

        def neighbours(pattern: DFPattern) -> list[DFPattern]:
            return [p for use in uses_of.get(pattern, ()) for p in (use.consumer, use.producer)]

        for first in self.nodes:
            if first not in reached:
                plan[first] = None
                for pattern in reachable([first], neighbours):
                    reached.add(pattern)
                    plan.update(dict.fromkeys(uses_of.get(pattern, ())))
        return list(plan)

    def goals(self, block: BlockIndex) -> Goals:
        """The goals of a match of all patterns in `block`."""
        goals: Goals = (_hold, self._checks, None, None) if self._checks else None
        for item in reversed(self._plan):
            step = _follow if isinstance(item, _Use) else _begin
            goals = (step, block, item, goals)
        return goals

    def goals_from(self, block: BlockIndex, var: Var) -> Goals:
        """The same, for matches in which the first pattern matches `var`."""
        _, _, first, rest = self.goals(block)
        return enter, first, var, rest

    def answer(self, match: Match) -> dict[DFPattern, Any]:
        """What each node is bound to."""
        return {pattern: match.bound[pattern] for pattern in self.nodes}


def _groups(nodes: Sequence[DFPattern]) -> dict[DFPattern, int]:
    """A number for each node, the same for those that stand around one another."""
    number: dict[DFPattern, int] = {}
    for i, node in enumerate(nodes):
        inside = list(descend(node, lambda p: [getattr(p, name) for name in p.around], id))
        known = {number[p] for p in inside if p in number}
        own = min(known, default=i)
        for p, n in list(number.items()):
            if n in known:
                number[p] = own
        number.update(dict.fromkeys(inside, own))
    return {node: number[node] for node in nodes}


def _begin(match: Match, block: BlockIndex, pattern: DFPattern, rest: Goals) -> Goals:
    """Match `pattern`, wherever in the block."""
    if pattern in match.bound:
        return rest
    return _one_of(match, (pattern, block.candidates(pattern)), 0, rest)


def _one_of(match: Match, choice: Any, start: int, rest: Goals) -> Goals:
    """Match a pattern with one of the places from `start` on."""
    pattern, places = choice
    if start == len(places):
        return FAIL
    first = enter, pattern, places[start], rest
    return match.alternatives((first, (_one_of, choice, start + 1, rest)))


def _follow(match: Match, block: BlockIndex, use: _Use, rest: Goals) -> Goals:
    """From one side of `use` to the other."""
    consumer = match.bound.get(use.consumer)
    producer = match.bound.get(use.producer)
    if consumer is not None and producer is not None:
        return rest if use.holds(block, match) else FAIL
    again = _follow, block, use, rest
    places: list[Any]
    if consumer is None:
        pattern, places = use.consumer, block.users(producer)
    else:
        pattern, places = use.producer, block.reads(consumer)
        places = [places[i] for i in use.indices if i < len(places)] if use.indices else places
    return _one_of(match, (pattern, list({id(p): p for p in places}.values())), 0, again)


def _hold(match: Match, checks: Any, _: Any, rest: Goals) -> Goals:
    return rest if all(check.holds(match) for check in checks) else FAIL
