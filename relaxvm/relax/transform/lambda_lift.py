"""Inner functions become functions of the module; what they capture becomes parameters.

    before:  def main(x: R.Tensor((n,), "float32")):
                 def inner(y: R.Tensor((n,), "float32")): return cls.add(x, y)
                 gv = inner(x); return R.call_packed("env.apply", inner)
    after:   def main(x):
                 inner = R.match_cast(R.make_closure(cls.main_inner, (x,)), R.Callable(…))
                 gv = cls.main_inner(x, x); return R.call_packed("env.apply", inner)
             def main_inner(y, x_1): return cls.add(x_1, y)

Captured values are the last parameters, as `R.make_closure` sets them. A call whose callee is
known needs no closure, and one that only such calls would use is not made. Symbols that neither
parameters nor captured values show are passed as a shape. An inner function may call itself, and
those around it: where it only calls them, it takes what they capture instead of a closure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...base import NameSupply
from ...ir import IRModule, Node, Op, PassContext, substitute, walk
from ...ir import Var as PrimVar
from ...ir.transform import module_pass
from ..derive import definable_tir_vars_in_struct_info, tir_vars_in_struct_info
from ..expr import (
    Binding,
    Call,
    Function,
    GlobalVar,
    MatchCast,
    Tuple,
    Var,
    VarBinding,
)
from ..flow import bindings_of, events, vars_in
from ..known_ops import MAKE_CLOSURE, OBJECT
from ..rewriter import BindingRewriter
from ..struct_info import Expr, FuncStructInfo, ShapeExpr, ShapeStructInfo


@module_pass(opt_level=0)
def LambdaLift(mod: IRModule, ctx: PassContext) -> IRModule:
    """Lift inner functions into the module."""
    todo = [
        (gv, fn, dict[Var, _Known]())
        for gv, fn in mod.items()
        if isinstance(fn, Function) and _has_inner(fn)
    ]
    if not todo:
        return mod
    lifted = mod.clone()
    names = NameSupply(lambda: [gv.name_hint for gv in mod])
    for gv, fn, known in todo:  # grows while it is read
        lifter = _Lifter(gv, lifted, names, known)
        lifted[gv] = lifter.rewrite(fn)
        todo.extend(lifter.lifted)
    return lifted


def _has_inner(fn: Function) -> bool:
    return any(isinstance(b.value, Function) for b in bindings_of(fn))


class _Known:
    """A variable known to stand for a lifted function with these captured values."""

    __slots__ = ("captured", "gv", "name_hint")

    def __init__(self, gv: GlobalVar, captured: tuple[Expr, ...], name_hint: str) -> None:
        self.gv = gv
        self.captured = captured
        self.name_hint = name_hint


class _Lifter(BindingRewriter):
    """Lifts the functions directly inside one function; those deeper follow when their turn
    comes.
    """

    def __init__(
        self, gv: GlobalVar, mod: IRModule, names: NameSupply, known: dict[Var, _Known]
    ) -> None:
        self.gv = gv
        self.mod = mod
        self.names = names
        self.known = known
        self.lifted: list[tuple[GlobalVar, Function, dict[Var, _Known]]] = []
        self.closures: list[Binding] = []

    def begin(self, fn: Function) -> None:
        self.as_value = _used_as_value(fn)
        for var, known in self.known.items():
            if var in self.as_value:
                self.closures.extend(_bind_closure(var, known))

    def prologue(self, fn: Function) -> Sequence[Binding]:
        return self.closures

    def local_function(self, b: Binding) -> list[Binding]:
        inner = b.value
        assert isinstance(inner, Function)
        called = self._only_called(inner)
        captured, symbols = _captured(b.var, inner, called)
        name = self.names.fresh(f"{self.gv.name_hint}_{b.var.name_hint}")
        fresh_symbols = {s: PrimVar(s.name, s.dtype) for s in symbols}
        mapping: dict[Any, Any] = dict(fresh_symbols)
        params = []
        for v in captured:
            info = substitute(v.struct_info, fresh_symbols)
            mapping[v] = Var(v.name_hint, info, v.span)
            params.append(mapping[v])
        # What stands for functions known here may mention symbols that are others inside.
        functions = {
            v: Var(v.name_hint, substitute(v.struct_info, fresh_symbols), v.span)
            for v in (b.var, *called)
        }
        mapping.update(functions)
        values: list[Expr] = list(captured)
        shown = {id(s) for p in (*inner.params, *captured) for s in _definable(p.struct_info)}
        hidden = [s for s in symbols if id(s) not in shown]
        if hidden:
            values.append(ShapeExpr(tuple(hidden)))
            dims = tuple(fresh_symbols[s] for s in hidden)
            params.append(Var("symbols", ShapeStructInfo(dims)))
        lifted = substitute(inner, mapping)
        lifted = lifted.replace(params=(*lifted.params, *params)).without_attr("global_symbol")
        gv = GlobalVar(name, lifted.struct_info)
        self.mod[gv] = lifted
        known = _Known(gv, tuple(values), b.var.name_hint)
        self.known[b.var] = known
        within = {
            functions[var]: _Known(
                k.gv, tuple([substitute(c, mapping) for c in k.captured]), k.name_hint
            )
            for var, k in called.items()
        }
        if any(n is functions[b.var] for n in walk(lifted)):
            within[functions[b.var]] = _Known(gv, tuple(params), b.var.name_hint)
        if within or _has_inner(lifted):
            self.lifted.append((gv, lifted, within))
        return _bind_closure(b.var, known) if b.var in self.as_value else []

    def _only_called(self, inner: Function) -> dict[Var, _Known]:
        """The known functions from around `inner` that it calls, and uses in no other way."""
        if not self.known:
            return {}
        as_value = _used_as_value(inner)
        return {
            n: self.known[n]
            for n in walk(inner)
            if isinstance(n, Var) and n in self.known and n not in as_value
        }

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        value = b.value
        if isinstance(value, Call) and isinstance(value.op, Var):
            known = self.known.get(value.op)
            if known is not None:
                args = (*value.args, *known.captured)
                direct = Call(known.gv, args, value.attrs, (), value.struct_info, value.span)
                return [b.replace(value=direct)]
        return None


def _bind_closure(var: Var, known: _Known) -> list[Binding]:
    """Bind `var` to a closure; `make_closure` gives an object, of which the old signature is
    then asserted.
    """
    closure = type(var)(var.name_hint, OBJECT, var.span)
    call = Call(MAKE_CLOSURE, (known.gv, Tuple(known.captured)), struct_info=OBJECT)
    return [VarBinding(closure, call, var.span), MatchCast(var, closure, var.struct_info, var.span)]


def _used_as_value(fn: Function) -> set[Var]:
    """Variables read anywhere but as the callee of a call, in `fn` and the functions inside it."""
    used: set[Var] = set()
    for e in events(fn, inner=True):
        if isinstance(e.value, Call):
            used.update(v for a in e.value.args for v in vars_in(a))
        elif not isinstance(e.value, Function):
            used.update(e.reads())
    return used


def _captured(
    itself: Var, inner: Function, called: Mapping[Var, _Known]
) -> tuple[list[Var], list[PrimVar]]:
    """The variables and symbols that `inner` uses and somebody outside binds, in order of
    appearance.

    called  functions of which what they capture is needed, and not they themselves
    """
    bound: set[Var] = {itself, *called, *inner.params}
    defined: set[PrimVar] = set()
    mentioned: dict[Any, None] = {}
    for n in _mentioned(inner):
        if isinstance(n, Function):
            if n is not inner:
                bound.update(n.params)
                defined.update(s for p in n.params for s in _definable(p.struct_info))
        elif isinstance(n, Binding):
            bound.add(n.var)
            if isinstance(n, MatchCast):
                defined.update(_definable(n.struct_info))
        else:
            mentioned[n] = None
    for known in called.values():
        for value in known.captured:
            mentioned.update(dict.fromkeys(_mentioned(value)))
    captured = [v for v in mentioned if isinstance(v, Var) and v not in bound]
    symbols = {s: None for s in mentioned if isinstance(s, PrimVar) and s not in defined}
    for v in captured:
        symbols.update(dict.fromkeys(tir_vars_in_struct_info(v.struct_info)))
    return captured, list(symbols)


def _mentioned(root: Expr) -> Iterator[Any]:
    """The functions, bindings, variables and symbols below `root`, parents first; not the symbols
    that a signature binds itself.
    """
    for n in walk(root, into=_below):
        if isinstance(n, FuncStructInfo):
            yield from tir_vars_in_struct_info(n)
        elif isinstance(n, (Function, Binding, Var, PrimVar)):
            yield n


def _below(n: Node) -> Sequence[Node]:
    return () if isinstance(n, (Op, GlobalVar, FuncStructInfo)) else n._children_


def _definable(info: Any) -> list[Any]:
    return definable_tir_vars_in_struct_info(info)
