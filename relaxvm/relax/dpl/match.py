"""The matcher: a small machine with goals to reach and choices to come back to.

A goal is ``(step, a, b, rest)``: ``step(match, a, b, rest)`` gives the goals that are left, which
end in `rest`, or `FAIL`. `Match.alternatives` notes other goals that would do as well; what fails
goes back to the last of them and forgets what was bound since. Nothing recurses, however deep a
pattern is, and nothing is raised where something does not match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...base import PatternError
from ...ir import Node, Op, post_order, structural_equal, substitute
from ...ir import Var as TirVar
from ..derive import bind_symbols, dims_equal, is_base_of, substitute_struct_info
from ..expr import (
    LEAF_TYPES,
    Binding,
    BindingBlock,
    Call,
    Function,
    SeqExpr,
    Var,
    VarBinding,
)
from ..flow import bindings_of
from ..struct_info import Expr, StructInfo

if TYPE_CHECKING:
    from .pattern import DFPattern

Goals = Any
Step = Callable[["Match", Any, Any, Goals], Goals]
FAIL: Goals = ()
_MAX_STEPS = 200_000


class Match:
    """One attempt to match.

    bound  pattern -> the place it matched: an operand as it stands, often a variable. Also a symbol
           of a pattern -> the expression it stands for.
    """

    def __init__(
        self,
        values: Mapping[Var, Expr] | None = None,
        groups: Mapping[DFPattern, int] | None = None,
    ) -> None:
        self._values = {} if values is None else values
        # Of a function that is matched as a value: what its variables are bound to.
        self._inner: dict[Var, Expr] = {}
        # Patterns that are nodes of a graph match different variables, unless of one group.
        self._groups = groups or {}
        self.bound: dict[Any, Any] = {}
        self._trail: list[Any] = []
        self._choices: list[tuple[Goals, int]] = []
        self._steps = 0

    # -- running

    def run(self, pattern: DFPattern, place: Node) -> bool:
        """Whether `place` matches."""
        return self.reach((enter, pattern, place, None))

    def reach(self, goals: Goals) -> bool:
        """Whether all `goals` can be reached; afterwards `bound` says how."""
        while goals is not None:
            step, a, b, rest = goals
            goals = step(self, a, b, rest)
            self._steps += 1
            if goals is FAIL:
                if not self._choices:
                    return False
                goals, mark = self._choices.pop()
                for key in self._trail[mark:]:
                    del self.bound[key]
                del self._trail[mark:]
            if self._steps > _MAX_STEPS:
                raise PatternError(
                    f"a pattern takes more than {_MAX_STEPS:,} steps at one place; it has too many "
                    "alternatives (|, unordered tuples, add and multiply either way around)"
                )
        return True

    def another(self) -> bool:
        """Whether there is a further way to reach the goals; it is in `bound` then."""
        return self.reach((_fail, None, None, None))

    def bind(self, key: Any, value: Any) -> None:
        """Bind `key`, which is not bound yet."""
        self.bound[key] = value
        self._trail.append(key)

    def alternatives(self, goals: Sequence[Goals]) -> Goals:
        """The first of `goals`; the others are tried where it fails, in order."""
        if not goals:
            return FAIL
        mark = len(self._trail)
        self._choices += [(each, mark) for each in reversed(goals[1:])]
        return goals[0]

    def unless(self, pattern: DFPattern, place: Any, rest: Goals) -> Goals:
        """`rest`, provided that `place` does not match."""
        depth = len(self._choices)
        self._choices.append((rest, len(self._trail)))
        return enter, pattern, place, (_refuse, depth, None, None)

    # -- what patterns ask

    def value(self, place: Any) -> Any:
        """What `place` is: a variable is looked through as far as its value is known."""
        value, steps = place, 0
        while True:
            if isinstance(value, Var):
                known = self._values.get(value, self._inner.get(value))
                if known is None or known is value:
                    return value
                value = known
            elif type(value) is SeqExpr and all(
                type(b) is VarBinding for block in value.blocks for b in block.bindings
            ):
                self._inner.update((b.var, b.value) for k in value.blocks for b in k.bindings)
                value = value.body
            else:
                return value
            steps += 1
            if steps > len(self._values) + len(self._inner) + 1000:
                raise PatternError("var2val: variables are bound to one another in a circle")

    def same(self, a: Any, b: Any) -> bool:
        """Whether two places hold the very same value: one binding, or equal leaves."""
        a, b = self.value(a), self.value(b)
        if a is b:
            return True
        is_leaf = type(a) is type(b) and type(a) in LEAF_TYPES and not isinstance(a, Var)
        return is_leaf and structural_equal(a, b)

    def info(self, place: Any) -> StructInfo | None:
        """What is known of `place`; None for an operator."""
        return getattr(self.value(place), "struct_info", None)

    def fits(self, wanted: StructInfo, got: StructInfo) -> bool:
        """Whether `got` is an instance of `wanted`, whose symbols stand for anything."""
        wanted = substitute_struct_info(wanted, self.symbols())
        values = bind_symbols([(wanted, got)])
        if not is_base_of(substitute_struct_info(wanted, values) if values else wanted, got):
            return False
        for symbol, value in values.items():
            if symbol not in self.bound:
                self.bind(symbol, value)
        return True

    def equal_dims(self, wanted: Sequence[Any], got: Sequence[Any] | None) -> bool:
        """Whether `got` are provably the dimensions `wanted`."""
        if got is None or len(wanted) != len(got):
            return False
        symbols = self.symbols()
        return dims_equal([substitute(dim, symbols) for dim in wanted], got) is True

    def symbols(self) -> dict[TirVar, Any]:
        """What the symbols of the pattern stand for, as far as they are known."""
        return {k: v for k, v in self.bound.items() if isinstance(k, TirVar)}

    # -- the answer

    def places(self) -> dict[DFPattern, Any]:
        """pattern -> the operand it matched, as it stands"""
        return {k: v for k, v in self.bound.items() if not isinstance(k, (TirVar, Var))}

    def values(self) -> dict[DFPattern, Any]:
        """pattern -> the value it matched"""
        return {k: self.value(v) for k, v in self.places().items()}


def enter(match: Match, pattern: DFPattern, place: Any, rest: Goals) -> Goals:
    """The step that matches `pattern` with `place`."""
    before = match.bound.get(pattern)
    if before is not None:
        return rest if match.same(before, place) else FAIL
    group = match._groups.get(pattern)
    if group is not None and isinstance(place, Var):
        taken = match.bound.get(place)
        if taken is None:
            match.bind(place, group)
        elif taken != group:
            return FAIL
    match.bind(pattern, place)
    return pattern.step(match, place, rest)


def enter_all(patterns: Iterable[DFPattern], places: Iterable[Any], rest: Goals) -> Goals:
    """The goals that match `patterns` with `places`, in order."""
    for pattern, place in reversed(list(zip(patterns, places))):
        rest = (enter, pattern, place, rest)
    return rest


def _fail(match: Match, a: Any, b: Any, rest: Goals) -> Goals:
    return FAIL


def _refuse(match: Match, depth: int, b: Any, rest: Goals) -> Goals:
    del match._choices[depth:]
    return FAIL


# -- many places ----------------------------------------------------------------------------------

Heads = frozenset[Op] | None


def heads(pattern: DFPattern) -> Heads:
    """The operators of calls that may match `pattern`; None if something else may."""
    known: dict[DFPattern, Heads] = {}
    for each in post_order(pattern, lambda p: p.head_parts):
        known[each] = each.heads([known[p] for p in each.head_parts])
    return known[pattern]


def may_start(known: Heads, value: Expr) -> bool:
    """Whether `value` may match a pattern with these `heads`."""
    return known is None or (type(value) is Call and value.op in known)


def bound_values(bindings: Iterable[Binding]) -> dict[Var, Expr]:
    """What can be looked through: variables bound to a value as it is, without a cast."""
    return {b.var: b.value for b in bindings if type(b) is VarBinding}


def matches_in(
    pattern: DFPattern, where: Function | BindingBlock
) -> Iterator[tuple[VarBinding, Match]]:
    """The bindings in `where` whose value matches, and how, from top to bottom."""
    if not isinstance(where, (Function, BindingBlock)):
        raise PatternError(f"wanted a function or a block, got {type(where).__name__}")
    bindings = list(bindings_of(where) if isinstance(where, Function) else where.bindings)
    values = bound_values(bindings)
    first = heads(pattern)
    for b in bindings:
        if type(b) is VarBinding and may_start(first, b.value):
            match = Match(values)
            if match.run(pattern, b.var):
                yield b, match
