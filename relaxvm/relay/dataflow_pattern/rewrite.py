"""Expressions rewritten, and made functions, where patterns match, as Relay has them.

    class Fold(DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.x = wildcard()
            self.pattern = is_op("nn.relu")(is_op("nn.relu")(self.x))

        def callback(self, pre, post, node_map):
            return relay.nn.relu(node_map[self.x][0])

    rewrite(Fold(), fn)

A part of an expression that matches is rewritten if nothing else reads what is inside of it; where
two parts overlap, the outer one is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...base import NamedTuple, PassError, PatternError, TIRError
from ...ir import IRModule, Op, post_order, structural_equal
from ...relax import Call, Expr, Function, Tuple, TupleGetItem, Var
from ...relax.dpl import ConstantPattern, DFPattern, Match
from ..expr import Call as make_call
from ..expr_functor import MixedModeMutator
from ..spelling import Spelled, is_typed, operand
from ..transform import InferType
from ..view import View, seen_below, visited


class DFPatternCallback:
    """What stands where `pattern` matches; `callback` says it.

    require_type  whether types are found before each time that patterns are looked for
    rewrite_once  whether to stop after the first time; else until nothing changes
    """

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.pattern: DFPattern | None = None
        self.require_type = require_type
        self.rewrite_once = rewrite_once

    def rewrite(self, expr: Any) -> Any:
        """`expr` (or a function) rewritten."""
        return rewrite(self, expr)

    def callback(self, pre: Any, post: Any, node_map: Mapping[DFPattern, Sequence[Any]]) -> Any:
        """What stands for an expression that matched.

        pre       the expression as it was
        post      the same after what it reads was rewritten
        node_map  parts of the pattern -> lists of what they matched, rewritten
        """
        raise PatternError(f"{type(self).__name__} has no method callback(pre, post, node_map)")


_MOST_ROUNDS = 100
# How many parts may be rewritten in all, by as many as there were in the first round.
_MOST_PARTS = 100


def rewrite(callbacks: Any, expr: Any, mod: IRModule | None = None) -> Any:
    """`expr` (or a function) with what patterns match rewritten, until nothing changes.

    callbacks  a `DFPatternCallback`, or several: in each round they are tried in turn
    mod        where functions are that `expr` calls, for their types
    Raises PassError if that does not come to an end.
    """
    each: list[Any] = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    for callback in each:
        if not isinstance(getattr(callback, "pattern", None), DFPattern):
            raise PatternError(f"{type(callback).__name__}: wanted a pattern in its field pattern")
    parts: list[int] = []
    while len(parts) < _MOST_ROUNDS and sum(parts) <= _MOST_PARTS * (parts or [1])[0]:
        before = expr
        parts.append(1)
        for callback in each:
            if callback.require_type:
                expr = _typed(expr, mod)
            rewriter = _Rewriter(callback)
            expr = rewriter.visit(expr)
            parts[-1] += len(rewriter.groups or ())
        same = expr is before or structural_equal(expr, before, map_free_vars=False)
        if same or any(callback.rewrite_once for callback in each):
            return expr
    names = ", ".join(type(callback).__name__ for callback in each)
    raise PassError(f"rewrite: {names}: something matches still after {len(parts)} rounds")


def partition(
    pattern: DFPattern,
    expr: Any,
    attrs: Mapping[str, Any] | None = None,
    check: Callable[[Any], Any] = lambda expr: True,
) -> Any:
    """`expr` (or a function) in which what matches is a call of a function of its own, with the
    attribute "PartitionedFromPattern": the operators in it, and an underscore after each.

    attrs  further attributes of these functions
    check  says of an expression that matches whether to take it
    """
    return _Partitioner(pattern, attrs or {}, check).visit(expr)


def _typed(expr: Any, mod: IRModule | None) -> Any:
    if isinstance(expr, Expr) and not isinstance(expr, Function) and is_typed(expr):
        return expr
    whole = IRModule() if mod is None else mod.clone()
    whole["main"] = IRModule.from_expr(expr)["main"]
    entry: Any = InferType()(whole)["main"]
    return entry if isinstance(expr, Function) else entry.body


class _Match(Match):
    """Of expressions as they are seen: operators of the graph language are those of the same name
    in Relay, as arithmetic on patterns has them.
    """

    def value(self, place: Any) -> Any:
        return _graph_op(place) if isinstance(place, Spelled) else super().value(place)


def _graph_op(op: Spelled) -> Op:
    try:
        return Op.get(f"relax.{op.name}")
    except TIRError:
        return op


class _Group(NamedTuple):
    """A part of an expression that matches.

    found   parts of the pattern -> what they matched
    inside  what is computed in it, operands first
    inputs  what it reads
    """

    found: dict[DFPattern, Any]
    inside: list[Any]
    inputs: list[Any]


def _groups(
    pattern: DFPattern, root: Any, view: View, check: Callable[[Any], Any] = lambda expr: True
) -> dict[Any, _Group]:
    """The parts that match, by the last expression of each, of which none overlap."""
    below = seen_below(view)
    order = list(visited(root, view))
    readers: dict[Any, list[Any]] = {}
    for n in order:
        for each in below(n):
            readers.setdefault(each, []).append(n)
    groups: dict[Any, _Group] = {}
    taken: set[Any] = set()
    partitioned: set[Any] = set()
    for n in reversed(order):
        if n in partitioned or _is_partitioned(n):
            # What is in a function that was made here is not looked at again.
            partitioned.update(below(n) if isinstance(n, Function) else _inner_of(n, below))
            continue
        match = _Match()
        if n in taken or not isinstance(n, Expr) or not match.run(pattern, n):
            continue
        ends = {match.bound[p] for p in match.bound if _ends(p)} - {n}
        stops = ends if pattern.parts else set(below(n))
        group = _Group(match.places(), *_extent(n, stops, below))
        inside = set(group.inside)
        alone = all(r in inside for each in inside - {n} for r in readers[each])
        if alone and taken.isdisjoint(inside) and check(n):
            groups[n] = group
            taken |= inside
    return groups


def _ends(part: Any) -> bool:
    """Whether what a part of a pattern matches is read, and not computed, by what matches it."""
    return isinstance(part, DFPattern) and not part.parts and not isinstance(part, ConstantPattern)


def _is_partitioned(n: Any) -> bool:
    return isinstance(n, Function) and bool(n.get_attr("PartitionedFromPattern"))


def _inner_of(n: Any, below: Callable[[Any], list[Any]]) -> list[Any]:
    return below(n) if isinstance(n, (Call, Tuple, TupleGetItem)) else []


def _extent(
    root: Any, stops: set[Any], below: Callable[[Any], list[Any]]
) -> tuple[list[Any], list[Any]]:
    inside, inputs = [], []
    for n in post_order(root, lambda n: [] if n in stops else below(n)):
        if n in stops or isinstance(n, Var):
            inputs.append(n)
        elif below(n):
            inside.append(n)
    return inside, [n for n in inputs if not isinstance(n, Op)]


class _Grouped(MixedModeMutator):
    """Visits what is not in a group as usual; `replaced` says what stands for a group."""

    groups: dict[Any, _Group] | None = None

    def find(self, root: Any) -> dict[Any, _Group]:
        raise NotImplementedError

    def visit(self, expr: Any) -> Any:
        if self.groups is None:
            self.groups = self.find(operand(expr))
        return super().visit(expr)

    def _method(self, expr: Any) -> Callable[[Any], Any]:
        method = super()._method(expr)
        group = (self.groups or {}).get(expr)
        if group is None:
            return method
        return lambda pre: self.replaced(pre, operand(method(pre)), group)

    def replaced(self, pre: Any, post: Any, group: _Group) -> Any:
        raise NotImplementedError

    def now(self, expr: Any) -> Any:
        """What became of an expression that was visited."""
        return self.memo_map.get(expr, expr)


class _Rewriter(_Grouped):
    def __init__(self, callback: Any) -> None:
        super().__init__()
        self.callback = callback

    def find(self, root: Any) -> dict[Any, _Group]:
        return _groups(self.callback.pattern, root, self._view)

    def replaced(self, pre: Any, post: Any, group: _Group) -> Any:
        post = self._view.of(post)
        node_map = {p: [post if n is pre else self.now(n)] for p, n in group.found.items()}
        new = operand(self.callback.callback(pre, post, node_map))
        if not isinstance(new, Expr):
            raise PatternError(
                f"{type(self.callback).__name__}: callback: wanted an expression, got "
                f"{type(new).__name__}"
            )
        return new


class _Partitioner(_Grouped):
    def __init__(
        self, pattern: DFPattern, attrs: Mapping[str, Any], check: Callable[[Any], Any]
    ) -> None:
        super().__init__()
        self.pattern, self.attrs, self.check = pattern, attrs, check
        self.count = 0

    def find(self, root: Any) -> dict[Any, _Group]:
        return _groups(self.pattern, root, self._view, self.check)

    def replaced(self, pre: Any, post: Any, group: _Group) -> Any:
        hint, self.count = f"FunctionVar_{self.count}_", self.count + 1
        params = {n: Var(f"{hint}{i}", n.struct_info) for i, n in enumerate(group.inputs)}
        body: dict[Any, Any] = dict(params)
        names = []
        for n in group.inside:
            body[n] = _with_operands(n, body, self._view)
            names.append(_name(n))
        attrs = {**self.attrs, "PartitionedFromPattern": "".join(names)}
        fn = Function(list(params.values()), self._view.written(body[pre]), attrs=attrs)
        return make_call.make(fn, [self.now(n) for n in group.inputs])


def _with_operands(n: Any, new: Mapping[Any, Any], view: View) -> Any:
    if isinstance(n, Call):
        return view.called(n, n.op, [new.get(a, a) for a in n.args])
    if isinstance(n, Tuple):
        return Tuple([new.get(f, f) for f in n.fields])
    if isinstance(n, TupleGetItem):
        return TupleGetItem(new.get(n.tuple_value, n.tuple_value), n.index)
    raise PatternError(f"partition: no function is made of a {type(n).__name__}")


def _name(n: Any) -> str:
    if isinstance(n, Call):
        return f"{getattr(n.op, 'name', 'call')}_"
    return f"TupleGetItem{n.index}_" if isinstance(n, TupleGetItem) else "Tuple_"
