"""Replacing variables and symbols inside graph functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ..arith import Analyzer
from ..ir import FloatImm, IntImm, Node, walk
from ..ir import Var as TirVar
from ..ir.walk import transform
from .derive import (
    definable_tir_vars_in_struct_info,
    replaced_by,
    simplify_dims,
    substitute_struct_info,
)
from .expr import (
    LEAF_TYPES,
    Binding,
    Function,
    MatchCast,
    PrimValue,
    Var,
)
from .struct_info import ShapeStructInfo, StructInfo

N = TypeVar("N", bound=Node)

# What has no variables but those in its struct info.
_CLOSED: tuple[type[Any], ...] = (
    StructInfo,
    *(kind for kind in LEAF_TYPES if not issubclass(kind, Var)),
)


def substitute_graph(root: N, mapping: Mapping[Any, Any]) -> N:
    """`root` with variables and symbols replaced wherever they stand, and the dimensions
    simplified.

    Functions of the module are not entered, nor are the symbols that a signature binds itself
    replaced in it. Unchanged parts stay the same objects. Raises StructInfoError if a dimension
    becomes a negative constant.
    """
    by_id = {id(k): v for k, v in mapping.items()}
    if not by_id:
        return root
    if all(map(_is_value, mapping)):
        return transform(
            root, None, pre=lambda n: by_id.get(id(n)) or _variable(n), without=_CLOSED
        )
    return transform(root, _tidy, pre=lambda n: replaced_by(n, by_id))


def _is_value(key: Any) -> bool:
    """Whether `key` is a variable that no struct info can mention: those mentioned are shapes."""
    return isinstance(key, Var) and not isinstance(key.struct_info, ShapeStructInfo)


def _variable(n: Node) -> Node | None:
    """`n` if it is a variable, so that its struct info is not entered."""
    return n if isinstance(n, Var) else None


def copy_with_new_vars(fn: Function) -> Function:
    """`fn` with every variable and symbol that it binds replaced by a new one of the same name."""
    mapping: dict[Any, Any] = {}
    symbols: dict[TirVar, TirVar] = {}
    variables: list[Var] = []
    for n in walk(fn):
        infos: tuple[StructInfo, ...] = ()
        if isinstance(n, Function):
            variables.extend(n.params)
            infos = tuple(p.struct_info for p in n.params)
        elif isinstance(n, Binding):
            variables.append(n.var)
            infos = (n.struct_info,) if isinstance(n, MatchCast) else ()
        for info in infos:
            for s in definable_tir_vars_in_struct_info(info):
                symbols.setdefault(s, type(s)(s.name, s.dtype, s.type_annotation))
    for v in variables:
        mapping[v] = type(v)(v.name_hint, substitute_struct_info(v.struct_info, symbols), v.span)
    return substitute_graph(fn, {**mapping, **symbols})


def copy_bound_vars(expr: N) -> N:
    """`expr` with every variable that it binds replaced by a new one of the same name; symbols
    stay.
    """
    mapping: dict[Any, Any] = {}
    for n in walk(expr):
        bound = n.params if isinstance(n, Function) else (n.var,) if isinstance(n, Binding) else ()
        for v in bound:
            mapping[v] = type(v)(v.name_hint, v.struct_info, v.span)
    return substitute_graph(expr, mapping)


def _tidy(n: Node) -> Node | None:
    if isinstance(n, PrimValue):
        if isinstance(n.value, (IntImm, FloatImm, TirVar)):
            return None
        return n.replace(value=Analyzer(wrap=True).simplify(n.value))
    return simplify_dims(n)
