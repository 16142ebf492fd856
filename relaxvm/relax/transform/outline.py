"""Bindings that become a function of their own, and the call that stands in their place.

lv = R.add(x, y)                        gv = cls.fused_add_relu(x, y)
gv = R.nn.relu(lv)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...base import NamedTuple, NameSupply, Span
from ...ir import GlobalVar, IRModule, Substitution, value_key, walk
from ...ir import Var as PrimVar
from ..alike import Alike
from ..derive import definable_tir_vars_in_struct_info, tir_vars_in_struct_info
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    PrimValue,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..flow import leaves, map_leaves
from ..struct_info import Expr, ShapeExpr, ShapeStructInfo, TupleStructInfo
from .value_keys import ValueKeys


class Outliner:
    """Puts functions for groups of bindings into a new module, `mod`; equal ones are one."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod.clone()
        self._names = NameSupply(lambda: [gv.name_hint for gv in mod])
        self._known: Alike[GlobalVar] = Alike()
        self._by_key: dict[Any, GlobalVar] = {}

    def call(
        self,
        block: BindingBlock,
        bindings: Sequence[Binding],
        results: Sequence[Var],
        name: str,
        attrs: Mapping[str, Any],
        constants_inside: bool = False,
        finish: Callable[[Function, str], Function] | None = None,
    ) -> list[Binding]:
        """What stands for `bindings` of `block`: the call of a function that does the same, and
        what takes its results apart.

        results           those of their variables that are read elsewhere
        name              a hint for the name of the function, which gets `attrs`
        constants_inside  whether constants stay in the function; else they are arguments
        finish            given the function and its name: what to put into the module instead
        """
        arguments = _arguments(bindings, constants_inside)
        key = _key(bindings, results, attrs, arguments)
        # Most groups are made of the same calls as another one.
        gv = self._by_key.get(key)
        if gv is None:
            inner = _function(bindings, results, attrs, arguments)
            gv = self._by_key[key] = self._named(inner, name, finish)
        values = arguments.all()
        span = Span.merge(*(b.value.span for b in bindings if isinstance(b.value, Call)))
        if len(results) == 1:
            call = Call(gv, values, struct_info=results[0].struct_info, span=span)
            return [VarBinding(results[0], call, bindings[-1].span)]
        info = TupleStructInfo([v.struct_info for v in results])
        kind = DataflowVar if isinstance(block, DataflowBlock) else Var
        whole = kind("fused", info, span)
        out: list[Binding] = [VarBinding(whole, Call(gv, values, struct_info=info, span=span))]
        spans = {b.var: b.span for b in bindings}
        for i, v in enumerate(results):
            out.append(VarBinding(v, TupleGetItem(whole, i), spans[v]))
        return out

    def _named(
        self, fn: Function, name: str, finish: Callable[[Function, str], Function] | None
    ) -> GlobalVar:
        """The function of the module that is `fn`."""
        for known in self._known.of(fn):
            return known
        new = GlobalVar(self._names.fresh(name), fn.struct_info)
        self._known.put(fn, new)
        self.mod[new] = fn if finish is None else finish(fn, new.name_hint)
        return new


class _Arguments(NamedTuple):
    """What a function of bindings is called with.

    values   variables from elsewhere, and constants that do not stay inside
    symbols  those in the bindings
    hidden   those that no value shows
    """

    values: dict[Any, None]
    symbols: dict[PrimVar, None]
    hidden: tuple[PrimVar, ...]

    def all(self) -> list[Expr]:
        """In order; what is hidden comes as a shape, the last one."""
        return [*self.values, *([ShapeExpr(self.hidden)] if self.hidden else ())]


def _arguments(
    bindings: Sequence[Binding], constants_inside: bool | Callable[[Constant], bool]
) -> _Arguments:
    own = constants_inside if callable(constants_inside) else lambda _: constants_inside
    bound = {b.var for b in bindings}
    values: dict[Any, None] = {}
    symbols: dict[PrimVar, None] = {}
    for b in bindings:
        read = leaves(b.value)
        for leaf in read:
            outside = isinstance(leaf, Var) and leaf not in bound
            if outside or (isinstance(leaf, Constant) and not own(leaf)):
                values[leaf] = None
        for info in getattr(b.value, "sinfo_args", ()):
            symbols.update(dict.fromkeys(tir_vars_in_struct_info(info)))
        for leaf in read:
            if isinstance(leaf, (ShapeExpr, PrimValue)):
                symbols.update(dict.fromkeys(n for n in walk(leaf) if isinstance(n, PrimVar)))
        if not isinstance(b.value, Function):
            symbols.update(dict.fromkeys(tir_vars_in_struct_info(b.var.struct_info)))
    shown: set[PrimVar] = set()
    for v in values:
        symbols.update(dict.fromkeys(tir_vars_in_struct_info(v.struct_info)))
        shown.update(definable_tir_vars_in_struct_info(v.struct_info))
    return _Arguments(values, symbols, tuple(s for s in symbols if s not in shown))


class _Numbered(ValueKeys):
    """Keys in which arguments, and what is bound, are numbers."""

    def __init__(self, numbers: Mapping[Any, int]) -> None:
        super().__init__()
        self.places = numbers

    def _atom(self, value: Any) -> Any:
        place = self.places.get(value) if isinstance(value, (Var, Constant)) else None
        if place is None:
            return super()._atom(value)
        return "place", place, id(value.struct_info)


def _key(
    bindings: Sequence[Binding],
    results: Sequence[Var],
    attrs: Mapping[str, Any],
    arguments: _Arguments,
) -> Any:
    """The same for groups of the same calls, on other values; while what they are made of is
    alive. Of groups of other things: of this one alone.
    """
    places = {v: k for k, v in enumerate((*arguments.values, *(b.var for b in bindings)))}
    keys = _Numbered(places)
    calls = [keys.call(b.value) if type(b.value) is Call else id(b) for b in bindings]
    infos = [id(b.var.struct_info) for b in bindings]
    outputs = [places[v] for v in results]
    named = frozenset((k, value_key(v)) for k, v in attrs.items())
    return (*calls, *infos, len(arguments.values), *outputs, named)


def function_of(
    bindings: Sequence[Binding],
    results: Sequence[Var],
    attrs: Mapping[str, Any],
    constants_inside: bool | Callable[[Constant], bool] = False,
    parameters: str | None = None,
) -> tuple[Function, list[Expr]]:
    """A function of `bindings` that gives `results`, and what it is to be called with. Symbols that
    no argument shows come as a shape, the last argument.

    parameters  what their names begin with, before a number; else they are called as arguments are
    """
    arguments = _arguments(bindings, constants_inside)
    return _function(bindings, results, attrs, arguments, parameters), arguments.all()


def _function(
    bindings: Sequence[Binding],
    results: Sequence[Var],
    attrs: Mapping[str, Any],
    arguments: _Arguments,
    parameters: str | None = None,
) -> Function:
    values, symbols, hidden = arguments
    mapping: dict[Any, Any] = {s: PrimVar(s.name, s.dtype) for s in symbols}
    symbols_inside = Substitution(mapping)
    names = NameSupply()
    params: list[Var] = []
    for v in values:
        name = getattr(v, "name_hint", "constant")
        name = name if parameters is None else f"{parameters}{len(params)}"
        mapping[v] = Var(names.fresh(name), symbols_inside(v.struct_info), v.span)
        params.append(mapping[v])
    if hidden:
        params.append(Var("symbols", ShapeStructInfo(tuple(mapping[s] for s in hidden))))
    outside_vars = set(results)
    for b in bindings:
        kind = Var if b.var in outside_vars else DataflowVar
        info = symbols_inside(b.var.struct_info)
        mapping[b.var] = kind(names.fresh(b.var.name_hint), info, b.var.span)

    all_inside = Substitution(mapping)

    def inside(value: Any) -> Any:
        # Mostly there is nothing to change but arguments.
        if symbols or type(value) is Function or isinstance(getattr(value, "op", None), Var):
            return all_inside(value)
        return map_leaves(value, lambda leaf: mapping.get(leaf, leaf))

    body = [VarBinding(mapping[b.var], inside(b.value), b.span) for b in bindings]
    outputs = [mapping[v] for v in results]
    result = outputs[0] if len(outputs) == 1 else Tuple(outputs)
    seq = SeqExpr((DataflowBlock(tuple(body)),), result)
    return Function(params, seq, result.struct_info, attrs=dict(attrs))
