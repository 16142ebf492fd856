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
parameters nor captured values show are passed as a shape. An inner function may call itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ...ir import IRModule, Op, PassContext, substitute, walk
from ...ir import Var as PrimVar
from ...ir.transform import module_pass
from ..derive import definable_tir_vars_in_struct_info, tir_vars_in_struct_info
from ..expr import (
    Binding,
    Call,
    Function,
    GlobalVar,
    MatchCast,
    SeqExpr,
    Tuple,
    Var,
    VarBinding,
)
from ..struct_info import Expr, ShapeExpr, ShapeStructInfo
from .lowered_ops import OBJECT
from .scopes import BindingRewriter, vars_in

__all__ = ["LambdaLift"]

_MAKE_CLOSURE = Op.get("relax.make_closure")


@module_pass(opt_level=0)
def LambdaLift(mod: IRModule, ctx: PassContext) -> IRModule:
    """Lift inner functions into the module."""
    todo = deque(
        (gv, fn, None) for gv, fn in mod.items() if isinstance(fn, Function) and _has_inner(fn)
    )
    if not todo:
        return mod
    made = mod.clone()
    while todo:
        gv, fn, itself = todo.popleft()
        lifter = _Lifter(gv, made)
        if itself is not None:
            lifter.known[itself[0]] = itself[1]
        made[gv] = lifter.rewrite(fn)
        todo.extend(lifter.lifted)
    return made


def _has_inner(fn: Function) -> bool:
    return any(isinstance(n, Function) and n is not fn for n in walk(fn))


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

    def __init__(self, gv: GlobalVar, mod: IRModule) -> None:
        self.gv = gv
        self.mod = mod
        self.known: dict[Var, _Known] = {}
        self.lifted: list[tuple[GlobalVar, Function, tuple[Var, _Known] | None]] = []
        self.closures: list[Binding] = []

    def begin(self, fn: Function) -> None:
        self.as_value = _used_as_value(fn)
        for var, known in self.known.items():
            if var in self.as_value:
                self.closures.extend(_bind_closure(var, known))

    def prologue(self, fn: Function) -> Sequence[Binding]:
        return self.closures

    def _inner_function(self, frames: list[Any], b: Binding) -> None:
        frames[-1].put(b, self._lift(b))

    def _lift(self, b: Binding) -> list[Binding]:
        inner = b.value
        assert isinstance(inner, Function)
        captured, symbols = _captured(b.var, inner)
        name = _unique(f"{self.gv.name_hint}_{b.var.name_hint}", self.mod)
        fresh_symbols = {s: PrimVar(s.name, s.dtype) for s in symbols}
        mapping: dict[Any, Any] = dict(fresh_symbols)
        params = []
        for v in captured:
            info = substitute(v.struct_info, fresh_symbols)
            mapping[v] = Var(v.name_hint, info, v.span)
            params.append(mapping[v])
        values: list[Expr] = list(captured)
        shown = [p.struct_info for p in (*inner.params, *captured)]
        hidden = [s for s in symbols if all(s not in _definable(i) for i in shown)]
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
        itself = None
        if any(n is b.var for n in walk(lifted)):
            itself = (b.var, _Known(gv, tuple(params), b.var.name_hint))
        if itself is not None or _has_inner(lifted):
            self.lifted.append((gv, lifted, itself))
        return _bind_closure(b.var, known) if b.var in self.as_value else []

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        value = b.value
        if isinstance(value, Call) and isinstance(value.op, Var):
            known = self.known.get(value.op)
            if known is not None:
                args = (*value.args, *known.captured)
                made = Call(known.gv, args, value.attrs, (), value.struct_info, value.span)
                return [b.replace(value=made)]
        return None


def _bind_closure(var: Var, known: _Known) -> list[Binding]:
    """Bind `var` to a closure; `make_closure` gives an object, of which the old signature is
    then asserted.
    """
    made = type(var)(var.name_hint, OBJECT, var.span)
    call = Call(_MAKE_CLOSURE, (known.gv, Tuple(known.captured)), struct_info=OBJECT)
    return [VarBinding(made, call, var.span), MatchCast(var, made, var.struct_info, var.span)]


def _used_as_value(fn: Function) -> set[Var]:
    """Variables read anywhere but as the callee of a call of `fn` itself; inside inner
    functions all count.
    """
    used: set[Var] = set()
    stack: list[Any] = [fn.body]
    while stack:
        each = stack.pop()
        if isinstance(each, SeqExpr):
            for block in each.blocks:
                for b in block.bindings:
                    stack.append(b.value)
            stack.append(each.body)
        elif isinstance(each, Call):
            used.update(v for a in each.args for v in vars_in(a))
        elif hasattr(each, "true_branch"):
            used.update(vars_in(each.cond))
            stack.extend((each.true_branch, each.false_branch))
        elif isinstance(each, Function):
            own = {b.var for b in _inner_bindings(each)} | set(each.params)
            used.update(v for v in vars_in(each) if v not in own)
        else:
            used.update(vars_in(each))
    return used


def _inner_bindings(fn: Function) -> list[Binding]:
    return [n for n in walk(fn) if isinstance(n, Binding)]


def _captured(itself: Var, inner: Function) -> tuple[list[Var], list[PrimVar]]:
    """The variables and symbols that `inner` uses and somebody outside binds, in order of
    appearance.
    """
    bound: set[Var] = {itself}
    defined: set[Any] = set()
    for n in walk(inner):
        if isinstance(n, Function):
            bound.update(n.params)
        elif isinstance(n, Binding):
            bound.add(n.var)
            if isinstance(n, MatchCast):
                defined.update(_definable(n.struct_info))
            if isinstance(n.value, Function):
                for p in n.value.params:
                    defined.update(_definable(p.struct_info))
    captured = []
    seen: set[int] = set()
    symbols: list[PrimVar] = []
    for n in walk(inner):
        if isinstance(n, Var) and n not in bound and id(n) not in seen:
            seen.add(id(n))
            captured.append(n)
    for n in walk(inner):
        if isinstance(n, PrimVar) and n not in defined and id(n) not in seen:
            seen.add(id(n))
            symbols.append(n)
    for v in captured:
        for s in tir_vars_in_struct_info(v.struct_info):
            if id(s) not in seen:
                seen.add(id(s))
                symbols.append(s)
    return captured, symbols


def _definable(info: Any) -> list[Any]:
    return definable_tir_vars_in_struct_info(info)


def _unique(name: str, mod: IRModule) -> str:
    number, found = 0, name
    while found in mod:
        number += 1
        found = f"{name}_{number}"
    return found
