"""Rewriting what patterns match.

    rewrite_call(pattern, lambda call, found: R.multiply(found[x], two), fn)
    rewrite_bindings(context, lambda found, bindings: {found[a]: ..., found[b]: ...}, fn)

    rule = PatternMatchingRewriter.from_pattern(pattern, func) | OtherRule
    mod = rule(mod)                                  # a pass

What comes of a rule is looked at again, until no rule matches. Matched values that a new one
mentions are not computed again: the variables bound to them are used. What nothing needs any more
goes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ...base import (
    NameSupply,
    PatternError,
    add_note,
    in_function,
    reachable,
)
from ...ir import GlobalVar, IRModule, Node, PassContext, descend, substitute, walk
from ...ir.transform import Pass, PassInfo, run_pass
from ...ir.walk import transform
from ..analysis.usage import remove_all_unused
from ..analysis.well_formed import assert_well_formed
from ..analysis.written import maybe_written_vars
from ..derive import (
    BaseCheckResult,
    bind_symbols,
    declared_check,
    substitute_struct_info,
    where,
)
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    as_relax,
)
from ..flow import BINDS, OPEN, events, in_order, map_leaves, vars_in
from ..normal_form import Normalizer, Scope, names_in
from ..renamings import drop_renamings
from ..rewriter import BindingRewriter
from ..struct_info import Expr, ObjectStructInfo, StructInfo, TupleStructInfo
from ..substitute import substitute_graph
from .context import BlockIndex, Graph, PatternContext
from .match import Heads, Match, bound_values, heads, may_start
from .pattern import (
    AttrPattern,
    CallPattern,
    DFPattern,
    ExprPattern,
    PrimArrPattern,
    StructInfoPattern,
    TupleGetItemPattern,
    TuplePattern,
    operand_patterns,
    wildcard,
)

Found = dict[DFPattern, Any]
CallRule = Callable[[Any, Found], Any]
"""``rule(matched value, pattern -> value)`` gives a new value, or None or the value itself."""
GraphRule = Callable[[Found, Mapping[Var, Expr]], Any]
"""``rule(pattern -> variable, variable -> value)`` gives {variable: new value}."""

_MAX_REWRITES = 1000


def rewrite_call(pattern: DFPattern, rewriter: CallRule, func: Function) -> Function:
    """`func` with each bound value that matches replaced by what `rewriter` makes of it; the same
    object if nothing is.

    rewriter  given the value and {pattern: value it matched}; gives a value of the same struct
              info, nested as it likes, or None or the matched value to leave it

    Raises PatternError for what cannot stand there, and for a rule that matches its own results
    without end. Casts at run time check what is not known of the new value.
    """
    return _rewritten(func, None, [_Single(pattern, rewriter)])


def rewrite_bindings(ctx: PatternContext, rewriter: GraphRule, func: Function) -> Function:
    """`func` with bindings of its dataflow blocks replaced where the patterns of `ctx` match
    together; the same object if none are.

    rewriter  given {pattern: variable it matched} and {variable: value}; gives {variable: new
              value} for variables that the block binds, or nothing

    Bindings are put in an order in which each comes after what it needs. Raises PatternError as
    `rewrite_call` does, VerifyError if values need one another.
    """
    return _rewritten(func, None, [_Joint(ctx.graph(), rewriter)])


# -- rules ----------------------------------------------------------------------------------------


class _Single:
    """A rule for one value."""

    def __init__(self, pattern: DFPattern, rule: CallRule) -> None:
        if not isinstance(pattern, DFPattern) or not callable(rule):
            raise PatternError(
                f"a rewriter has a pattern and a function, got {type(pattern).__name__} and "
                f"{type(rule).__name__}"
            )
        self.pattern, self.rule = pattern, rule
        self.heads: Heads = heads(pattern)


class _Joint:
    """A rule for several bindings of a block."""

    def __init__(self, graph: Graph, rule: GraphRule) -> None:
        self.graph, self.rule = graph, rule


class PatternMatchingRewriter(Pass):
    """Rules as a pass: ``rewriter(mod)``, ``rewriter(fn)``, or part of a `Sequential`.

    `a | b` has the rules of both; where both match, those of `a` come first.
    """

    def __init__(
        self, rules: Sequence[_Single | _Joint], functions: Mapping[GlobalVar, Any] | None = None
    ) -> None:
        info = PassInfo(0, type(self).__name__, numerics="approximate")
        super().__init__(info, self._run_on, doc=type(self).__doc__)
        self._rules = list(rules)
        # Functions that what is put in may call.
        self._functions = dict(functions or {})

    @staticmethod
    def from_pattern(pattern: DFPattern, func: CallRule) -> PatternMatchingRewriter:
        """The rule of `rewrite_call`. For a tuple of patterns, bindings are replaced together:
        `func` is given and gives tuples.
        """
        if type(pattern) is TuplePattern:
            return TupleRewriter(pattern.fields, func)
        return ExprPatternRewriter(pattern, func)

    @staticmethod
    def from_module(mod: IRModule) -> PatternMatchingRewriter:
        """The rule that a module writes as two functions of the same parameters, `pattern` and
        `replacement`; `R.rewriter` makes it of a class.

        What is found must fit the struct info of the parameters; symbols stand for any size. If
        they return tuples, the fields are found and replaced together. Other functions of the
        module may be called by `replacement`, and come along. Raises PatternError if the two are
        no such rule.
        """
        return _from_module(mod)

    def __call__(self, *args: Any, **options: Any) -> Any:
        what = args[0] if len(args) == 1 and not options else None
        if isinstance(what, IRModule):
            return run_pass(self, what)
        if isinstance(what, Function):
            return self.rewrite(what)
        if isinstance(what, Expr):
            seq = what if isinstance(what, SeqExpr) else SeqExpr((), what)
            seq = Normalizer(names_in(what)).seq(seq)
            return self.rewrite(Function((), seq, is_pure=False)).body
        raise PatternError(f"{self.info.name}: wanted a module or an expression, got {args!r:.80}")

    def __or__(self, other: PatternMatchingRewriter) -> PatternMatchingRewriter:
        return OrRewriter(self, other)

    def rewrite(self, fn: Function, mod: IRModule | None = None) -> Function:
        """`fn` rewritten; the same object if nothing matches.

        mod  the module that it belongs to, if that is known
        """
        return _rewritten(fn, mod, self._rules)

    def _run_on(self, mod: IRModule, ctx: PassContext) -> IRModule:
        changed = {}
        for gv, fn in mod.items():
            if isinstance(fn, Function):
                with in_function(gv):
                    new = self.rewrite(fn, mod)
                if new is not fn:
                    changed[gv] = new
        return self._with_functions(mod, changed) if changed else mod

    def _with_functions(self, mod: IRModule, changed: dict[GlobalVar, Any]) -> IRModule:
        """`mod` with `changed` functions, and those of the rules that they call now."""
        result = mod.clone()
        names = NameSupply(lambda: [gv.name_hint for gv in mod])

        def called(gv: GlobalVar) -> list[GlobalVar]:
            fn: Any = changed.get(gv, self._functions.get(gv))
            return [n for n in walk(fn) if isinstance(n, GlobalVar) and n in self._functions]

        renamed = {
            gv: GlobalVar(names.fresh(gv.name_hint), gv.struct_info)
            for gv in reachable(list(changed), called)
            if gv not in changed
        }
        for gv, new in renamed.items():
            result[new] = substitute(self._functions[gv], renamed)
        for gv, fn in changed.items():
            result.update_func(gv, substitute(fn, renamed))
        return result


class ExprPatternRewriter(PatternMatchingRewriter):
    """The rule of `rewrite_call`."""

    def __init__(self, pattern: DFPattern, func: CallRule) -> None:
        super().__init__([_Single(pattern, func)])


class OrRewriter(PatternMatchingRewriter):
    """The rules of `lhs`, then those of `rhs`."""

    def __init__(self, lhs: PatternMatchingRewriter, rhs: PatternMatchingRewriter) -> None:
        for each in (lhs, rhs):
            if not isinstance(each, PatternMatchingRewriter):
                raise PatternError(f"|: wanted a rewriter, got {type(each).__name__}")
        super().__init__([*lhs._rules, *rhs._rules], {**lhs._functions, **rhs._functions})


class TupleRewriter(PatternMatchingRewriter):
    """Bindings of a dataflow block that match `patterns` are replaced together.

    func  given a tuple of the matched variables, and {pattern: value}; gives a tuple of as many
          new values, or None
    """

    def __init__(self, patterns: Sequence[DFPattern], func: CallRule) -> None:
        patterns = TuplePattern(tuple(patterns)).fields

        def rule(matched: Found, bindings: Mapping[Var, Expr]) -> Any:
            roots = [matched[p] for p in patterns]
            values = Match(bindings)
            new = func(Tuple(roots), {p: values.value(v) for p, v in matched.items()})
            if new is None:
                return None
            fields = getattr(new, "fields", new)
            if not isinstance(fields, (tuple, list)) or len(fields) != len(roots):
                raise PatternError(f"a rewriter of {len(roots)} values gives as many, got {new!r}")
            return dict(zip(roots, fields))

        super().__init__([_Joint(_graph_of(patterns), rule)])


def _graph_of(patterns: Sequence[DFPattern]) -> Graph:
    """Patterns that share parts as a graph."""
    uses: dict[tuple[DFPattern, DFPattern], dict[tuple[int | None, bool], None]] = {}
    for root in patterns:
        for each in descend(root, lambda p: p.parts, id):
            inside = each
            while inside.around:
                inside = getattr(inside, inside.around[0])
            for part in operand_patterns(inside):
                uses[part, each] = {(None, False): None}
    return Graph(uses, (), patterns, one_to_one=False)


# -- rewriting ------------------------------------------------------------------------------------


def _rewritten(fn: Function, mod: IRModule | None, rules: Sequence[_Single | _Joint]) -> Function:
    if not isinstance(fn, Function):
        raise PatternError(f"wanted a graph function to rewrite, got {type(fn).__name__}")
    singles = [r for r in rules if isinstance(r, _Single)]
    joints = [r for r in rules if isinstance(r, _Joint)]
    new = fn
    for _ in range(_MAX_REWRITES):
        before = new
        if singles:
            new = _SingleRewriter(singles, mod).rewrite(new)
        if joints:
            new = _JointRewriter(joints).rewrite(new)
        if new is before or not (singles and joints):
            break
    else:
        raise PatternError("the rules keep rewriting what the others gave")
    return fn if new is fn else remove_all_unused(drop_renamings(_made_visible(new)), mod)


def _stands_for(var: Var, new: Expr, normal: Normalizer, rule: Any) -> Binding:
    """The binding of `var` to the value `new`; a cast where that may be something else."""
    known = normal.recall(new)
    value = normal.value(new) if known is None else known
    sure = declared_check(var.struct_info, value.struct_info)
    if sure is BaseCheckResult.FAIL_L0:
        raise PatternError(
            f"{_rule_name(rule)} gave another kind of value for {var.name_hint}\n"
            f"  wanted: {var.struct_info}\n  got:    {value.struct_info}{where(var.span)}"
        )
    if sure is BaseCheckResult.PASS:
        return VarBinding(var, value, var.span)
    return MatchCast(var, normal.leaf(value), var.struct_info, var.span)


def _rule_name(rule: Any) -> str:
    return f"the rewriter {getattr(rule, '__name__', type(rule).__name__)}"


def _expression(value: Any, rule: Any) -> Expr:
    try:
        return as_relax(value)
    except (TypeError, ValueError):
        raise PatternError(
            f"{_rule_name(rule)} gave {type(value).__name__}; wanted an expression of the graph "
            "language, or None"
        ) from None


class _SingleRewriter(BindingRewriter):
    """Applies the rules for one value, binding by binding, from top to bottom."""

    def __init__(self, rules: Sequence[_Single], mod: IRModule | None) -> None:
        self.mod = mod
        self.by_op: dict[Any, list[_Single]] = {}
        self.rules = rules
        self.values: dict[Var, Expr] = {}
        self.flows: list[bool] = []
        # What a rule was given and put into its result is not given to it again.
        self.done: dict[tuple[int, int], Any] = {}

    def begin(self, fn: Function) -> None:
        self.fn = fn
        self.normal = Normalizer(names_in(fn))
        self.written: set[Var] | None = None

    def begin_block(self, block: BindingBlock) -> None:
        self.flows.append(isinstance(block, DataflowBlock))

    def end_block(self, block: BindingBlock) -> None:
        self.flows.pop()

    def binding(self, b: Binding) -> list[Binding | BindingBlock] | None:
        if type(b) is not VarBinding:
            return None
        out: list[Binding | BindingBlock] = []
        rewrites = 0
        self.trail: list[Any] = []

        def parts(each: Binding | BindingBlock) -> Sequence[Binding | BindingBlock]:
            nonlocal rewrites
            new = None if isinstance(each, BindingBlock) else self.rewritten(each)
            if new is None:
                bound = each.bindings if isinstance(each, BindingBlock) else (each,)
                for var, value in bound_values(bound).items():
                    # A name for what has one is looked through once.
                    known = self.values.get(value) if isinstance(value, Var) else None
                    self.values[var] = value if known is None else known
                out.append(each)
                return ()
            rewrites += 1
            if rewrites > _MAX_REWRITES:
                names = list(dict.fromkeys(map(_rule_name, self.trail[-8:])))
                alone = "keeps matching its own results" if len(names) == 1 else "undo each other"
                raise PatternError(
                    f"{' and '.join(names)} {alone} at {b.var.name_hint}{where(b.span)}"
                )
            return new

        first: Binding | BindingBlock = b
        for _ in descend(first, parts):
            pass
        return out if rewrites else None

    def rules_for(self, value: Expr) -> list[_Single]:
        """The rules that may match `value`."""
        key = value.op if type(value) is Call else None
        candidates = self.by_op.get(key)
        if candidates is None:
            candidates = [r for r in self.rules if may_start(r.heads, value)]
            self.by_op[key] = candidates
        return candidates

    def rewritten(self, b: Binding) -> list[Binding | BindingBlock] | None:
        """The bindings that stand for `b` once a rule was applied; None if none is."""
        if type(b) is not VarBinding:
            return None
        for single in self.rules_for(b.value):
            key = id(single), id(b.value)
            if key in self.done:
                continue
            match = Match(self.values)
            if not match.run(single.pattern, b.value) or not self.may_read_later(match):
                continue
            try:
                new = single.rule(b.value, match.values())
                if new is None or new is b.value:
                    continue
                self.trail.append(single.rule)
                self.done[key] = b.value
                return self.bound(b, _expression(new, single.rule), match, single.rule)
            except Exception as error:
                add_note(error, f"while rewriting {b.var.name_hint}{where(b.span)}")
                raise
        return None

    def may_read_later(self, match: Match) -> bool:
        """Whether everything that was looked through is still what it was."""
        through: list[Var] = []
        for place in match.places().values():
            if isinstance(place, Var) and (value := match.value(place)) is not place:
                through += (place, *vars_in(value))
        if self.written is None and through:
            self.written = maybe_written_vars(self.fn, self.mod)
        return not through or self.written is None or self.written.isdisjoint(through)

    def bound(
        self, b: VarBinding, new: Expr, match: Match, rule: Any
    ) -> list[Binding | BindingBlock]:
        """The bindings of `new` and what it needs; its last is of the variable of `b`."""
        scope = Scope()
        self.normal.scopes.append(scope)
        scope.begin(self.flows[-1])
        for place in match.places().values():
            if isinstance(place, Var):
                self.normal.remember(match.value(place), place)
        scope.block.append(_stands_for(b.var, new, self.normal, rule))
        self.normal.scopes.pop()
        blocks = scope.finish()
        if len(blocks) == 1:
            return list(blocks[0].bindings)
        return [*blocks[:-1], *blocks[-1].bindings]


class _JointRewriter(BindingRewriter):
    """Applies the rules for several bindings, dataflow block by dataflow block."""

    def __init__(self, rules: Sequence[_Joint]) -> None:
        self.rules = rules

    def rewrite(self, fn: Function) -> Function:
        """`fn` rewritten; the same object if nothing matches."""
        names = names_in(fn)
        return transform(
            fn,
            lambda n: _Joined(n, names).rewritten(self.rules) if _has_bindings(n) else None,
            pre=lambda n: n if isinstance(n, (Var, StructInfo, Call)) else None,
        )


def _has_bindings(n: Node) -> bool:
    return isinstance(n, DataflowBlock) and bool(n.bindings)


class _Joined:
    """A dataflow block while rules are applied to it."""

    def __init__(self, block: DataflowBlock, names: NameSupply) -> None:
        self.block = block
        self.index = BlockIndex(block.bindings)
        self.bindings = {b.var: b for b in block.bindings}
        self.changed = False
        self.rewrites = 0
        self.normal = Normalizer(names)
        self.scope = Scope()
        self.normal.scopes.append(self.scope)
        self.scope.begin(True)
        for var, value in self.index.values.items():
            self.normal.remember(value, var)

    def rewritten(self, rules: Sequence[_Joint]) -> DataflowBlock:
        """The block after the rules; the same object if none matches."""
        while any([self.sweep(each) for each in rules]):
            pass
        return (
            self.block.replace(bindings=tuple(in_order(list(self.bindings.values()))))
            if self.changed
            else self.block
        )

    def sweep(self, joint: _Joint) -> bool:
        """Apply a rule from the first binding to the last; whether it changed any."""
        graph, before = joint.graph, self.rewrites
        for first in self.index.candidates(graph.nodes[0]) if graph.nodes else ():
            match = Match(self.index.values, graph.groups)
            matched = match.reach(graph.goals_from(self.index, first))
            while matched and not self.apply(joint.rule, graph.answer(match)):
                matched = match.another()
            if matched:
                self.rewrites += 1
                if self.rewrites > 100 + 10 * len(self.block.bindings):
                    raise PatternError(
                        f"{_rule_name(joint.rule)} keeps matching its own results at "
                        f"{first.name_hint}{where(first.span)}"
                    )
        return self.rewrites > before

    def apply(self, rule: GraphRule, matched: Found) -> bool:
        """Whether the rule changed something."""
        new = rule(matched, MappingProxyType(self.index.values))
        if not new:
            return False
        if not isinstance(new, Mapping):
            raise PatternError(
                f"{_rule_name(rule)} gave {type(new).__name__}; wanted {{variable: new value}}"
            )
        for var, value in new.items():
            if var not in self.bindings:
                shown = getattr(var, "name_hint", type(var).__name__)
                raise PatternError(
                    f"{_rule_name(rule)} gave a value for {shown}, which the block does not bind"
                )
            old = self.bindings[var].value
            if value is not old:
                self.scope.block.memo.pop(id(old), None)
        values = {v: _expression(e, rule) for v, e in new.items()}
        todo = {v: e for v, e in values.items() if e is not self.bindings[v].value and e is not v}
        for var, value in todo.items():
            last = _stands_for(var, value, self.normal, rule)
            emitted = self.scope.block.bindings
            for b in (*emitted, last):
                self.bindings[b.var] = b
                self.index.bind(b.var, b.value)
            emitted.clear()
            self.changed = True
        return bool(todo)


def _made_visible(fn: Function) -> Function:
    """`fn` with dataflow variables that are read outside of their block made plain ones."""
    home: dict[Var, Any] = {}
    around: dict[Binding, tuple[Any, Any]] = {}
    outside: dict[Var, Var] = {}
    for e in events(fn, inner=True):
        if e.kind is OPEN:
            around[e.node] = e.block, e.scope
        if e.kind in BINDS and isinstance(e.node.var, DataflowVar):
            home[e.node.var] = e.block
        for var in e.reads():
            if not isinstance(var, DataflowVar) or var not in home or var in outside:
                continue
            block, scope = e.block, e.scope
            while block is not home[var] and scope.owner is not None:
                block, scope = around[scope.owner]
            if block is not home[var]:
                outside[var] = Var(var.name_hint, var.struct_info, var.span)
    return substitute_graph(fn, outside)


# -- rules written as functions -------------------------------------------------------------------


def _from_module(mod: IRModule) -> PatternMatchingRewriter:
    if not isinstance(mod, IRModule):
        raise PatternError(f"from_module: wanted a module, got {type(mod).__name__}")
    assert_well_formed(mod)
    both = [mod.get(name) for name in ("pattern", "replacement")]
    for name, fn in zip(("pattern", "replacement"), both):
        if not isinstance(fn, Function):
            raise PatternError(f"a rule is a module with a graph function {name!r}")
    before, after = both
    if len(before.params) != len(after.params):
        raise PatternError(
            f"pattern has {len(before.params)} parameters, replacement {len(after.params)}; they "
            "take the same"
        )
    params: list[DFPattern] = [_param_pattern(p) for p in before.params]
    roots = _patterns_of(before, params)
    used = set(itertools.chain.from_iterable(descend(r, lambda p: p.parts, id) for r in roots))
    for p, pattern in zip(before.params, params):
        if pattern not in used:
            raise PatternError(f"pattern does not use its parameter {p.name_hint}")
    if any(root in params for root in roots):
        raise PatternError("pattern returns a parameter as it is, which would match anything")
    others = {gv: f for gv, f in mod.items() if f is not before and f is not after}
    is_tuple = isinstance(before.body.body.struct_info, TupleStructInfo) and len(roots) > 1

    def rule(value: Any, matched: Found) -> Expr:
        return _put_in(after, [matched[p] for p in params])

    if is_tuple:
        rewriter: PatternMatchingRewriter = TupleRewriter(roots, rule)
    else:
        rewriter = ExprPatternRewriter(roots[0], rule)
    return PatternMatchingRewriter(rewriter._rules, others)


def _param_pattern(param: Var) -> DFPattern:
    info = param.struct_info
    anything = wildcard()
    return anything if type(info) is ObjectStructInfo else StructInfoPattern(anything, info)


def _straight(body: SeqExpr, name: str) -> Iterator[VarBinding]:
    """The bindings of a body without branches, casts or inner functions."""
    for block in body.blocks:
        for b in block.bindings:
            if type(b) is not VarBinding or isinstance(b.value, (Function, If)):
                raise PatternError(
                    f"{name} is a row of calls and tuples; {b.var.name_hint} is a "
                    f"{type(b.value if type(b) is VarBinding else b).__name__}{where(b.span)}"
                )
            yield b


def _patterns_of(fn: Function, params: Sequence[DFPattern]) -> list[DFPattern]:
    """The pattern of what `fn` returns; of each field if that is a tuple."""
    of: dict[Var, DFPattern] = dict(zip(fn.params, params))

    def leaf(value: Any) -> DFPattern:
        if isinstance(value, Var):
            return of[value]
        if isinstance(value, Tuple):
            return TuplePattern(tuple(map(leaf, value.fields)))
        return PrimArrPattern(value.values) if isinstance(value, ShapeExpr) else ExprPattern(value)

    for b in _straight(fn.body, "pattern"):
        value = b.value
        if isinstance(value, Call):
            op, args = leaf(value.op), tuple(map(leaf, value.args))
            pattern: DFPattern = CallPattern(op, args, add_constraint=False)
            if value.attrs:
                pattern = AttrPattern(pattern, value.attrs)
            if value.sinfo_args:
                pattern = StructInfoPattern(pattern, value.struct_info)
        elif isinstance(value, TupleGetItem):
            pattern = TupleGetItemPattern(leaf(value.tuple_value), value.index)
        else:
            pattern = leaf(value)
        of[b.var] = pattern
    result = fn.body.body
    fields = result.fields if isinstance(result, Tuple) else [result]
    roots = [leaf(f) for f in fields]
    if len(roots) == 1 and isinstance(roots[0], TuplePattern):
        return list(roots[0].fields)
    return roots


def _put_in(fn: Function, args: Sequence[Expr]) -> Expr:
    """What `fn` returns for `args`, as one nested expression."""
    symbols = bind_symbols((p.struct_info, a.struct_info) for p, a in zip(fn.params, args))
    values: dict[Var, Expr] = dict(zip(fn.params, args))

    def put(leaf: Any) -> Any:
        if isinstance(leaf, Var):
            return values[leaf]
        return substitute(leaf, symbols) if isinstance(leaf, (ShapeExpr, PrimValue)) else leaf

    for b in _straight(fn.body, "replacement"):
        value: Any = b.value
        if isinstance(value, Call):
            moved = [map_leaves(a, put) for a in value.args]
            infos = [substitute_struct_info(info, symbols) for info in value.sinfo_args]
            value = Call(put(value.op), moved, value.attrs, infos, span=value.span)
        elif isinstance(value, TupleGetItem):
            held, index = put(value.tuple_value), value.index
            value = held.fields[index] if isinstance(held, Tuple) else TupleGetItem(held, index)
        else:
            value = map_leaves(value, put)
        values[b.var] = value
    return map_leaves(fn.body.body, put)
