"""Bindings that give a new name to what has one: variables bound to variables, fields of a tuple
that was just built, tuples rebuilt from all their fields.
"""

from __future__ import annotations

from typing import Any

from .expr import Binding, Function, MatchCast, Tuple, TupleGetItem, Var, VarBinding
from .flow import BIND, CLOSE, events
from .rewriter import Dropper, SameVars
from .struct_info import Expr, TupleStructInfo
from .substitute import substitute_graph


def drop_renamings(fn: Function) -> Function:
    """`fn` without bindings that only give another name to what has one; the same object if there
    are none.
    """
    same = SameVars()
    tuples: dict[Var, Expr] = {}
    changes: dict[int, Binding | None] = {}
    for e in events(fn, inner=True):
        if e.kind not in (BIND, CLOSE):
            continue
        b = e.node
        value = _simpler(b, tuples)
        if isinstance(value, Var) and _is_renaming(b, value):
            same.merge(value, b.var, e.block)
            changes[id(b.var)] = None
            if value in tuples:
                tuples[b.var] = tuples[value]
            continue
        same.bound(b.var, e.block)
        if isinstance(value, (Tuple, TupleGetItem)):
            tuples[b.var] = value
        if value is not b.value:
            changes[id(b.var)] = VarBinding(b.var, value, b.span)
    if not changes:
        return fn
    return substitute_graph(Dropper(changes).rewrite(fn), same.mapping())


def _is_renaming(b: Binding, value: Var) -> bool:
    """Whether `b` gives a new name to the variable `value`, of which it says nothing new."""
    if value.struct_info is not b.var.struct_info:
        return False
    return not isinstance(b, MatchCast) or b.struct_info is value.struct_info


def _simpler(b: Binding, tuples: dict[Var, Expr]) -> Expr:
    """The value of `b`, or a simpler expression of the same value and struct info."""
    value = b.value
    if isinstance(b, MatchCast):
        return value
    if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Var):
        held = tuples.get(value.tuple_value)
        if isinstance(held, Tuple):
            field = held.fields[value.index]
            if field.struct_info is value.struct_info and not isinstance(field, Tuple):
                return field
    if isinstance(value, Tuple) and value.fields:
        whole = _whole_tuple(value, tuples)
        if whole is not None:
            return whole
    return value


def _whole_tuple(value: Tuple, tuples: dict[Var, Expr]) -> Var | None:
    """The tuple of which `value` holds all fields in order, or None."""
    held: Any = None
    for i, field in enumerate(value.fields):
        item = tuples.get(field) if isinstance(field, Var) else None
        if not isinstance(item, TupleGetItem) or item.index != i:
            return None
        if held is not None and item.tuple_value is not held:
            return None
        held = item.tuple_value
    if not isinstance(held, Var) or not isinstance(held.struct_info, TupleStructInfo):
        return None
    return held if held.struct_info is value.struct_info else None
