"""InlinePrivateFunctions, Inline: calls of functions become their bodies.

    before:  def main(x): gv = cls.twice(x); return gv
             def twice(a): b = R.add(a, a); return b
    after:   def main(x): b = R.add(x, x); return b

The functions that are left without a call go. A function that calls itself, directly or through
others, stays; so does one with branches where it is called from a dataflow block. An argument that
may not fit its parameter is checked by a match_cast, as the call would have checked it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...base import VerifyError, callees_first, decided, declined, in_function
from ...ir import BaseFunc, GlobalVar, IRModule, PassContext, walk
from ...ir import Var as TirVar
from ...ir.transform import module_pass
from ..analysis.recursion import detect_recursion, graph_calls
from ..derive import (
    bind_symbols,
    definable_tir_vars_in_struct_info,
    is_base_of,
    substitute_struct_info,
    tir_vars_in_struct_info,
)
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowVar,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    Var,
    VarBinding,
)
from ..flow import struct_info_vars
from ..rewriter import BindingRewriter
from ..struct_info import Expr, StructInfo
from ..substitute import substitute_graph
from .private_functions import function_of, is_private

_MAX_BINDINGS = 100_000
"""No more bindings than this are inlined in a module: calls of calls of calls can double them each
time."""


@module_pass(opt_level=0)
def InlinePrivateFunctions(mod: IRModule, ctx: PassContext) -> IRModule:
    """Put the bodies of private functions where they are called."""
    return _inlined(mod, is_private)


@module_pass(opt_level=0)
def Inline(mod: IRModule, ctx: PassContext) -> IRModule:
    """Put the bodies of functions with the attribute "inline" (Relay's "Inline") where they are
    called. Public ones stay in the module too.
    """
    return _inlined(mod, lambda fn: fn.get_attr("inline") or fn.get_attr("Inline"))


@module_pass(opt_level=0)
def DefuseOps(mod: IRModule, ctx: PassContext) -> IRModule:
    """Put the bodies of functions with the attribute "Primitive", which `FuseOps` makes, where they
    are called.
    """
    return _inlined(mod, lambda fn: fn.get_attr("Primitive"))


def _inlined(mod: IRModule, wanted: Callable[[BaseFunc], Any]) -> IRModule:
    recursive = {gv.name_hint for group in detect_recursion(mod) for gv in group}
    inlined = {
        gv.name_hint
        for gv, fn in mod.items()
        if isinstance(fn, Function)
        and wanted(fn)
        and gv.name_hint not in recursive
        and not fn.get_attr("relax.force_pure")
    }
    for gv, fn in mod.items():
        if isinstance(fn, Function) and wanted(fn) and gv.name_hint in recursive:
            declined("{} not inlined: it calls itself", gv)
    if not inlined:
        return mod
    done: dict[str, Function] = {}
    bodies: dict[str, Body] = {}
    total = [0]
    for name in _callees_first(mod):
        with in_function(name):
            fn = _Inliner(bodies, total).function(function_of(mod, name))
        done[name] = fn
        if name in inlined:
            bodies[name] = Body(fn)
    if all(mod[name] is fn for name, fn in done.items()):
        return mod
    after = mod.clone({gv: done.get(gv.name_hint, fn) for gv, fn in mod.items()})
    unseen = {name for name in inlined if mod[name].get_attr("global_symbol") is None}
    return _without_uncalled(after, mod, unseen)


def inline_functions(fn: Function, function_map: Mapping[Any, Function]) -> Function:
    """`fn` with the bodies of `function_map` where they are called; see
    `Function.inline_functions`.
    """
    by_name = {getattr(key, "name_hint", key): each for key, each in function_map.items()}
    for name, each in by_name.items():
        if not isinstance(each, Function):
            raise VerifyError(
                f"inline_functions: {name} is no graph function but a {type(each).__name__}"
            )
    mod = IRModule(by_name)
    recursive = [gv.name_hint for group in detect_recursion(mod) for gv in group]
    if recursive:
        raise VerifyError(f"inline_functions: {', '.join(recursive)} calls itself")
    bodies: dict[str, Body] = {}
    total = [0]
    for name in _callees_first(mod):
        bodies[name] = Body(_Inliner(bodies, total).function(by_name[name]))
    return _Inliner(bodies, total).function(fn)


def _callees_first(mod: IRModule) -> list[str]:
    """The graph functions, each after those it calls (where they do not call each other)."""
    calls = graph_calls(mod)
    return callees_first(calls, calls)


def _without_uncalled(after: IRModule, before: IRModule, inlined: set[str]) -> IRModule:
    """`after` without functions that were called, and are not any more."""
    was = _mentioned(before)
    while True:
        now = _mentioned(after)
        gone = {n for n in inlined if n in after and n in was and n not in now}
        if not gone:
            return after
        after = after.clone({gv: fn for gv, fn in after.items() if gv.name_hint not in gone})


def _mentioned(mod: IRModule) -> set[str]:
    return {
        n.name_hint
        for fn in mod.functions.values()
        if isinstance(fn, Function)
        for n in walk(fn)
        if isinstance(n, GlobalVar)
    }


class Body:
    """A function ready to be inlined."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.branches = False
        self.variables: list[Var] = []
        self.symbols: dict[TirVar, None] = {}
        self._bind(fn.params)
        for n in walk(fn.body):
            if isinstance(n, Binding):
                self.variables.append(n.var)
                if isinstance(n, MatchCast):
                    symbols = definable_tir_vars_in_struct_info(n.struct_info)
                    self.symbols.update(dict.fromkeys(symbols))
            elif isinstance(n, Function):
                self.variables.extend(n.params)
                self._bind(n.params)
            elif isinstance(n, If):
                self.branches = True
        self.size = len(self.variables)

    def _bind(self, params: Sequence[Var]) -> None:
        for p in params:
            symbols = definable_tir_vars_in_struct_info(p.struct_info)
            self.symbols.update(dict.fromkeys(symbols))

    def fresh_symbols(self) -> dict[TirVar, Any]:
        """A new symbol for each that the function binds."""
        return {s: type(s)(s.name, s.dtype, s.type_annotation) for s in self.symbols}

    def fresh_variables(self, mapping: dict[Any, Any]) -> dict[Any, Any]:
        """`mapping` of symbols and parameters, and a new variable for each that the body binds."""
        infos: dict[int, StructInfo] = {}
        fresh = dict(mapping)
        for v in self.variables:
            info = infos.get(id(v.struct_info))
            if info is None:
                info = substitute_struct_info(v.struct_info, fresh)
                if not struct_info_vars(v.struct_info):
                    infos[id(v.struct_info)] = info
            fresh[v] = type(v)(v.name_hint, info, v.span)
        return fresh


class _Inliner(BindingRewriter):
    """Rebuilds one function with the calls of `bodies` inlined."""

    def __init__(self, bodies: dict[str, Body], total: list[int]) -> None:
        self.bodies = bodies
        self.total = total
        self.renamed: dict[Any, Any] = {}

    def function(self, fn: Function) -> Function:
        """`fn` with calls inlined; the same object if there are none."""
        return substitute_graph(self.rewrite(fn), self.final_names())

    def final_names(self) -> dict[Any, Any]:
        """variable of a call -> what it is now, through all calls"""
        finals: dict[Any, Any] = {}
        for var in self.renamed:
            value, trail = var, []
            while value in self.renamed and value not in finals:
                trail.append(value)
                value = self.renamed[value]
            value = finals.get(value, value)
            finals.update((v, value) for v in trail)
        return finals

    def binding(self, b: Binding) -> Sequence[Binding | BindingBlock] | None:
        call, flow = b.value, self.local is DataflowVar
        if type(call) is not Call or not isinstance(call.op, GlobalVar):
            return None
        body = self.bodies.get(call.op.name_hint)
        if body is None or len(body.fn.params) != len(call.args):
            return None
        if flow and body.branches:
            declined("{} not inlined: it has branches, a dataflow block has none", b)
            return None
        if self.total[0] + body.size > _MAX_BINDINGS:
            declined("{} not inlined: more than {} bindings are", b, _MAX_BINDINGS)
            return None
        self.total[0] += body.size
        body_inside = opened(call, body)
        if body_inside is None:
            declined("{} not inlined: its parameters' symbols need one another", b)
            return None
        decided("{} inlined", b)
        checks, seq = body_inside
        if flow:
            return self.flat(b, checks, seq)
        return [*checks, *seq.blocks, *self.result(b, seq.body)]

    def flat(self, b: Binding, checks: list[Binding], seq: SeqExpr) -> list[Binding]:
        """The bindings that stand for `b` inside a dataflow block."""
        inner = [x for block in seq.blocks for x in block.bindings]
        for x in (*checks, *inner):
            if type(x.var) is Var:
                self.renamed[x.var] = DataflowVar(x.var.name_hint, x.var.struct_info, x.var.span)
        return [*checks, *inner, *self.result(b, seq.body)]

    def result(self, b: Binding, value: Expr) -> Sequence[Binding]:
        """The binding of the call's variable, unless the value can stand for it everywhere."""
        if (
            type(b) is VarBinding
            and isinstance(value, Var)
            and value.struct_info is b.var.struct_info
            and not isinstance(value, DataflowVar)
            and self.stays(b.var, value)
        ):
            self.renamed[b.var] = value
            return ()
        return (b.replace(value=value),)

    def stays(self, var: Var, value: Var) -> bool:
        # Made a dataflow variable just now, it is not seen outside the block.
        return value not in self.renamed or isinstance(var, DataflowVar)


def opened(call: Call, body: Body) -> tuple[list[Binding], SeqExpr] | None:
    """The checks of the arguments, and the body with the arguments put in. None if the
    parameters' symbols need one another in a circle.
    """
    fn = body.fn
    symbols = body.fresh_symbols()
    sizes = bind_symbols((p.struct_info, a.struct_info) for p, a in zip(fn.params, call.args))
    symbols.update(sizes)
    mapping: dict[Any, Any] = dict(symbols)
    bound: list[Binding] = []
    checks: list[MatchCast] = []
    for p, arg in zip(fn.params, call.args):
        wanted = substitute_struct_info(p.struct_info, symbols)
        if not is_base_of(wanted, arg.struct_info):
            mapping[p] = Var(p.name_hint, wanted, call.span)
            checks.append(MatchCast(mapping[p], arg, wanted, call.span))
        elif isinstance(arg, Tuple):
            # A field is taken of a variable, never of a tuple that is written out.
            mapping[p] = Var(p.name_hint, arg.struct_info, call.span)
            bound.append(VarBinding(mapping[p], arg, call.span))
        else:
            mapping[p] = arg
    ordered = _in_order(checks, {v for e in sizes.values() for v in _symbols(e)})
    if ordered is None:
        return None
    return [*ordered, *bound], substitute_graph(fn.body, body.fresh_variables(mapping))


def _symbols(expr: Any) -> list[TirVar]:
    return [n for n in walk(expr) if isinstance(n, TirVar)]


def _in_order(checks: list[MatchCast], known: set[TirVar]) -> list[MatchCast] | None:
    """`checks` so that each uses only symbols of `known`, its own, or those before it."""
    ordered: list[MatchCast] = []
    left = checks
    own = {s for c in checks for s in definable_tir_vars_in_struct_info(c.struct_info)}
    unbound = own - known
    while left:
        ready: list[MatchCast] = []
        later: list[MatchCast] = []
        for c in left:
            mine = set(definable_tir_vars_in_struct_info(c.struct_info))
            needed = set(tir_vars_in_struct_info(c.struct_info)) - mine
            (later if needed & unbound else ready).append(c)
        if not ready:
            return None
        for c in ready:
            unbound.difference_update(definable_tir_vars_in_struct_info(c.struct_info))
        ordered += ready
        left = later
    return ordered
