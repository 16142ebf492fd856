"""Who binds and who uses what, and the removal of what nobody uses."""

from __future__ import annotations

from typing import Any

from ...ir import GlobalVar, IRModule, Node, walk
from ...ir import Var as TirVar
from ...ir.walk import transform
from ..derive import definable_tir_vars_in_struct_info, is_base_of
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from ..struct_info import Expr, StructInfo
from .purity import is_pure_call
from .vars import struct_info_vars, used_vars


def get_var2val(func: Function) -> dict[Var, Expr]:
    """What each variable bound in `func` is bound to."""
    return {n.var: n.value for n in walk(func) if isinstance(n, Binding)}


def name_to_binding(func: Function) -> dict[str, list[Binding]]:
    """The bindings of `func` by the name of their variable."""
    found: dict[str, list[Binding]] = {}
    for n in walk(func):
        if isinstance(n, Binding):
            found.setdefault(n.var.name_hint, []).append(n)
    return found


def udchain(dfb: DataflowBlock) -> dict[Var, list[Var]]:
    """For each variable used or bound in the block: the variables of the bindings that use it."""
    chain: dict[Var, list[Var]] = {}
    for binding in dfb.bindings:
        chain.setdefault(binding.var, [])
        for used in used_vars(binding.value):
            chain.setdefault(used, []).append(binding.var)
    return chain


# -- dead bindings --------------------------------------------------------------------------------


class _Liveness:
    """Which bindings of a function matter: for its result, or for an effect."""

    def __init__(self, fn: Function, mod: IRModule | None) -> None:
        self.mod = mod
        self.bindings: dict[int, Binding] = {}
        # The variable bound to the If or Function in which a binding stands, for those that stand
        # in one.
        self.owner: dict[int, Var] = {}
        self.anchored: set[int] = set()
        self.inside: dict[int, list[Var]] = {}
        self.live: set[int] = set()
        self._shape_vars: dict[int, list[Var]] = {}
        self.collect(fn)
        self.spread(fn)

    def collect(self, fn: Function) -> None:
        stack: list[tuple[SeqExpr, Var | None]] = [(fn.body, None)]
        while stack:
            seq, owner = stack.pop()
            for block in seq.blocks:
                for binding in block.bindings:
                    var, value = binding.var, binding.value
                    self.bindings[id(var)] = binding
                    if owner is not None:
                        self.owner[id(var)] = owner
                    if self.has_effect(binding):
                        self.anchor(var)
                    if isinstance(value, If):
                        stack += ((value.true_branch, var), (value.false_branch, var))
                    elif isinstance(value, Function):
                        stack.append((value.body, var))

    def has_effect(self, binding: Binding) -> bool:
        if isinstance(binding, MatchCast):
            # A check that may fail is an effect; so is the binding of symbols.
            symbols = definable_tir_vars_in_struct_info(binding.struct_info)
            return bool(symbols) or not is_base_of(binding.struct_info, binding.value.struct_info)
        return isinstance(binding.value, Call) and not is_pure_call(binding.value, self.mod)

    def anchor(self, var: Var) -> None:
        """`var` must be computed whenever what it stands in is."""
        while id(var) not in self.anchored:
            self.anchored.add(id(var))
            owner = self.owner.get(id(var))
            if owner is None:
                return
            self.inside.setdefault(id(owner), []).append(var)
            if isinstance(self.bindings[id(owner)].value, Function):
                return
            var = owner

    def spread(self, fn: Function) -> None:
        todo: list[Var] = [v for v in _leaf_vars(fn.body.body)]
        todo += self.shape_vars(fn.ret_struct_info)
        todo += [self.bindings[k].var for k in self.anchored if k not in self.owner]
        while todo:
            var = todo.pop()
            if id(var) in self.live or id(var) not in self.bindings:
                continue
            self.live.add(id(var))
            binding = self.bindings[id(var)]
            todo += self.uses(binding)
            todo += self.inside.get(id(var), ())
            owner = self.owner.get(id(var))
            if owner is not None:
                todo.append(owner)

    def uses(self, binding: Binding) -> list[Var]:
        found = list(self.shape_vars(binding.var.struct_info))
        if isinstance(binding, MatchCast):
            found += self.shape_vars(binding.struct_info)
        value = binding.value
        if isinstance(value, If):
            found += _leaf_vars(value.cond)
            for branch in (value.true_branch, value.false_branch):
                found += _leaf_vars(branch.body)
        elif isinstance(value, Function):
            found += _leaf_vars(value.body.body)
        else:
            found += _leaf_vars(value)
            if isinstance(value, Call):
                for info in value.sinfo_args:
                    found += self.shape_vars(info)
        return found

    def shape_vars(self, info: StructInfo) -> list[Var]:
        found = self._shape_vars.get(id(info))
        if found is None:
            found = self._shape_vars[id(info)] = struct_info_vars(info)
        return found


def _leaf_vars(value: Any) -> list[Var]:
    found: list[Var] = []
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, Var):
            found.append(each)
        elif isinstance(each, Call):
            stack.append(each.op)
            stack.extend(each.args)
        elif isinstance(each, Tuple):
            stack.extend(each.fields)
        elif isinstance(each, TupleGetItem):
            stack.append(each.tuple_value)
        elif isinstance(each, (SeqExpr, If, Function)):
            # Out of normal form: everything in it counts.
            found.extend(n for n in walk(each) if isinstance(n, Var))
    return found


def remove_all_unused(func: Function, mod: IRModule | None = None) -> Function:
    """`func` without pure bindings that neither its result nor an effect needs; the same object if
    there are none.

    A match_cast that may fail or that binds symbols stays.
    """
    liveness = _Liveness(func, mod)
    if len(liveness.live) == len(liveness.bindings):
        return func
    live = liveness.live

    def post(n: Node) -> Node | None:
        if isinstance(n, BindingBlock):
            kept = tuple(b for b in n.bindings if id(b.var) in live)
            return n if len(kept) == len(n.bindings) else n.replace(bindings=kept)
        if isinstance(n, SeqExpr) and not all(b.bindings for b in n.blocks):
            return n.replace(blocks=tuple(b for b in n.blocks if b.bindings))
        return None

    def pre(n: Node) -> Node | None:
        return n if isinstance(n, (Var, StructInfo, Call, TirVar, GlobalVar)) else None

    return transform(func, post, pre=pre)
