"""FuseOpsByPattern: what matches a pattern becomes a function that is marked with the pattern.

    before:  lv = R.matmul(x, w)             after:  gv = cls.fused_relax_matmul_relax_nn_relu(x, w)
             gv = R.nn.relu(lv)

    @R.function(private=True)
    def fused_relax_matmul_relax_nn_relu(x, w):
        R.func_attr({"Composite": "numpy.matmul_relu", "Primitive": True})
        with R.dataflow(): ...the two calls...

The call stands where the last of the matched bindings stood. What one pattern took, a later one
leaves alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from ...base import PassError, declined, in_function, record
from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from ..analysis.purity import is_pure_call
from ..analysis.written import maybe_written_vars
from ..dpl import DFPattern
from ..dpl.match import Match, bound_values, heads, may_start
from ..dpl.pattern import CallPattern, TupleGetItemPattern, TuplePattern
from ..expr import BindingBlock, Call, Function, SeqExpr, Var, VarBinding
from ..flow import BIND, Event, Uses, events, struct_info_vars
from ..rewriter import Dropper
from ..struct_info import Expr
from ..substitute import copy_with_new_vars
from .outline import Outliner
from .private_functions import is_opaque


@record(values=False)
class PatternCheckContext:
    """What a check of a `FusionPattern` is given.

    matched_expr        the value that matches the whole pattern
    annotated_expr      annotation -> the value that its pattern matched
    matched_bindings    the bindings that would be taken: variable -> value
    var_usages          variable of these -> the variables whose values read it
    value_to_bound_var  value of these -> its variable
    """

    matched_expr: Expr
    annotated_expr: Mapping[str, Expr]
    matched_bindings: Mapping[Var, Expr]
    var_usages: Mapping[Var, Sequence[Var]]
    value_to_bound_var: Mapping[Expr, Var]


@record(values=False)
class FusionPattern:
    """A pattern to be fused, under a name such as "blas.matmul": code generator, dot, what it is.

    annotation_patterns  names for parts of the pattern, for `check` and `attrs_getter`
    check                given a `PatternCheckContext`: whether to fuse this match
    attrs_getter         given {annotation: matched value}: attributes for the function
    """

    name: str
    pattern: DFPattern
    annotation_patterns: Mapping[str, DFPattern] = field(default_factory=dict)
    check: Callable[[PatternCheckContext], bool] | None = None
    attrs_getter: Callable[[dict[str, Expr]], Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        wrong = [
            f"{what} is {kind}, got {type(value).__name__}"
            for what, value, kind, fits in (
                ("its name", self.name, "a string", isinstance(self.name, str) and self.name),
                ("its pattern", self.pattern, "a pattern", isinstance(self.pattern, DFPattern)),
                (
                    "annotation_patterns",
                    self.annotation_patterns,
                    "{name: pattern}",
                    isinstance(self.annotation_patterns, Mapping)
                    and all(isinstance(p, DFPattern) for p in self.annotation_patterns.values()),
                ),
                ("check", self.check, "a function", self.check is None or callable(self.check)),
                (
                    "attrs_getter",
                    self.attrs_getter,
                    "a function",
                    self.attrs_getter is None or callable(self.attrs_getter),
                ),
            )
            if not fits
        ]
        if wrong:
            raise PassError(f"FusionPattern {self.name!r}: {'; '.join(wrong)}")

    @staticmethod
    def of(value: Any) -> FusionPattern:
        """`value`, which may be a tuple of the fields: (name, pattern), ... Raises PassError for
        what is no pattern.
        """
        if isinstance(value, FusionPattern):
            return value
        if not isinstance(value, (tuple, list)) or not 2 <= len(value) <= 5:
            raise PassError(
                f"FuseOpsByPattern: wanted a FusionPattern or (name, pattern, ...), got {value!r}"
            )
        name, pattern, *more = value
        parts = [{} if each is None and i == 0 else each for i, each in enumerate(more)]
        return FusionPattern(name, pattern, *parts)


@module_pass(opt_level=0)
def FuseOpsByPattern(
    mod: IRModule,
    ctx: PassContext,
    *,
    patterns: Sequence[Any],
    bind_constants: bool = True,
    annotate_codegen: bool = False,
    entry_functions: Sequence[str] | None = None,
) -> IRModule:
    """Make functions of what matches `patterns`, each in turn; the first one that takes a binding
    keeps it.

    patterns          `FusionPattern`s, or tuples of (name, pattern, annotation_patterns, check,
                      attrs_getter)
    bind_constants    whether constants stay in the functions; else they are arguments
    annotate_codegen  put each into a public function with the attribute ``Codegen``: the part of
                      the name before the first dot
    entry_functions   names of the functions to look at (default: all but fused ones)
    """
    rules = [FusionPattern.of(p) for p in patterns]
    names = [gv.name_hint for gv in mod] if entry_functions is None else list(entry_functions)
    outliner: Outliner | None = None
    for name in names:
        gv = mod.get_global_var(name)
        fn = mod[gv]
        if not isinstance(fn, Function) or (entry_functions is None and is_opaque(fn)):
            continue
        with in_function(gv):
            matches = _Matches(fn, mod)
            for rule in rules:
                matches.take(rule)
            if matches.taken:
                outliner = Outliner(mod) if outliner is None else outliner
                outliner.mod[gv] = matches.outline(outliner, bind_constants, annotate_codegen)
    return mod if outliner is None else outliner.mod


class _Group:
    """Matched bindings that become a function."""

    def __init__(self, rule: FusionPattern, members: list[VarBinding], attrs: Any) -> None:
        self.rule, self.members, self.attrs = rule, members, attrs


class _Matches:
    """The bindings of a function, and those that patterns took."""

    def __init__(self, fn: Function, mod: IRModule) -> None:
        self.fn, self.mod = fn, mod
        row = events(fn, inner=True)
        uses = Uses()
        # By variable: where it is bound; and what reads it, where.
        self.home: dict[Var, tuple[int, Event]] = {}
        self.readers: dict[Var, list[tuple[int, Event]]] = {}
        for position, e in enumerate(row):
            if e.kind is BIND:
                self.home[e.node.var] = position, e
            for v in dict.fromkeys(uses.of(e.node) if e.kind is BIND else e.reads()):
                self.readers.setdefault(v, []).append((position, e))
        self.values = bound_values(e.node for _, e in self.home.values())
        self.written: set[Var] | None = None
        self.taken: dict[Var, _Group] = {}

    def take(self, rule: FusionPattern) -> None:
        """Take what matches, from top to bottom."""
        first = heads(rule.pattern)
        for var, value in self.values.items():
            if var in self.taken or not may_start(first, value):
                continue
            match = Match(self.values)
            if not match.run(rule.pattern, var):
                continue
            members = self._members(match, var)
            why = self._refusal(members, var)
            if why is None and rule.check is not None:
                why = None if rule.check(self._context(rule, match, members)) else "its check"
            if why is not None:
                declined(f"{{}} not fused as {rule.name}: {why}", self.home[var][1].node)
                continue
            attrs = {}
            if rule.attrs_getter is not None:
                attrs = dict(rule.attrs_getter(self._annotated(rule, match)))
            group = _Group(rule, [self.home[v][1].node for v in members], attrs)
            self.taken.update(dict.fromkeys(members, group))

    def _members(self, match: Match, root: Var) -> list[Var]:
        """The variables bound to what the parts of the pattern matched, in order."""
        members: dict[Var, None] = {root: None}
        for pattern, place in match.places().items():
            inner = isinstance(pattern, (CallPattern, TupleGetItemPattern, TuplePattern))
            while inner and isinstance(place, Var) and place in self.values:
                members[place] = None
                place = self.values[place]
        return sorted(members, key=lambda v: self.home[v][0])

    def _refusal(self, members: list[Var], root: Var) -> str | None:
        """Why these cannot become one call where the last of them stands; None if they can."""
        if not isinstance(self.values[root], Call):
            return "it is no call"
        position, end = self.home[root]
        if any(v in self.taken for v in members):
            return "a part of it belongs to another pattern"
        if any(self.home[v][1].block is not end.block for v in members):
            return "its parts stand in different blocks"
        calls = [self.values[v] for v in members]
        if not all(is_pure_call(c, self.mod) for c in calls if isinstance(c, Call)):
            return "it may have effects"
        if any(struct_info_vars(v.struct_info) for v in members):
            return "its shape is a variable"
        inside = set(members)
        for v in members[:-1]:
            for where, e in self.readers.get(v, ()):
                if where < position and not (e.kind is BIND and e.node.var in inside):
                    return f"{v.name_hint} is read before its result is known"
        if len(members) > 1:
            if self.written is None:
                self.written = maybe_written_vars(self.fn, self.mod)
            read = {u for v in members for u in Uses().of(self.home[v][1].node)}
            if not self.written.isdisjoint(read | inside):
                return "something may write what it reads"
        return None

    def _annotated(self, rule: FusionPattern, match: Match) -> dict[str, Expr]:
        values = match.values()
        return {name: values[p] for name, p in rule.annotation_patterns.items() if p in values}

    def _context(
        self, rule: FusionPattern, match: Match, members: list[Var]
    ) -> PatternCheckContext:
        bindings = {v: self.values[v] for v in members}
        usages = {
            v: [e.node.var for _, e in self.readers.get(v, ()) if e.kind is BIND] for v in members
        }
        return PatternCheckContext(
            self.values[members[-1]],
            self._annotated(rule, match),
            bindings,
            usages,
            {value: v for v, value in bindings.items()},
        )

    def outline(self, outliner: Outliner, constants: bool, codegen: bool) -> Function:
        """The function with what was taken replaced by calls."""
        changes: dict[int, Any] = {}
        for group in {id(g): g for g in self.taken.values()}.values():
            inside = {b.var for b in group.members}
            root = group.members[-1]
            results = [b.var for b in group.members if b is root or self._is_read(b.var, inside)]
            ops = [b.value.op for b in group.members if isinstance(b.value, Call)]
            name = "_".join(["fused", *(getattr(op, "name", "call") for op in ops)])
            name = name.replace(".", "_")
            attrs = {"Composite": group.rule.name, "Primitive": True, **group.attrs}
            changes.update(dict.fromkeys([id(v) for v in inside]))
            finish = None
            if codegen:
                generator = group.rule.name.partition(".")[0]
                name = f"{name}_{generator}"
                finish = functools.partial(in_codegen, generator)
            block: Any = self.home[root.var][1].block
            call = outliner.call(block, group.members, results, name, attrs, constants, finish)
            changes[id(root.var)] = call
        return Dropper(changes).rewrite(self.fn)

    def _is_read(self, var: Var, inside: set[Var]) -> bool:
        readers = self.readers.get(var, ())
        return any(e.kind is not BIND or e.node.var not in inside for _, e in readers)


def in_codegen(generator: str, fn: Function, name: str) -> Function:
    """The public function `name` for a code generator that calls `fn`, a function inside of it."""
    outer = copy_with_new_vars(fn)
    local = Var("local_func", fn.struct_info)
    result = Var("output", fn.ret_struct_info)
    call = Call(local, outer.params, struct_info=outer.ret_struct_info)
    result = Var("output", outer.ret_struct_info)
    block = BindingBlock((VarBinding(local, fn), VarBinding(result, call)))
    attrs = {"Codegen": generator, "global_symbol": name}
    return Function(outer.params, SeqExpr((block,), result), outer.ret_struct_info, attrs=attrs)
