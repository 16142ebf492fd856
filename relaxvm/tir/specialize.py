"""`specialize`: a loop function with some parameters fixed.

specialize(f, {n: 16})          f(a: handle, n)   ->  f(a: handle), every n a 16
specialize(f, {m: 16})          every m a 16, if m stands in the shape of a buffer parameter
specialize(f, {a: buffer})      A[m, n] becomes the buffer's shape, dtype checked; m and n follow
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base import TIRError
from ..ir import BinaryExpr, IntImm, Map, Node, PrimExpr, Var, as_expr, binary, cast, walk
from ..ir.walk import transform

if TYPE_CHECKING:
    from .stmt import Buffer, PrimFunc


def specialize(func: PrimFunc, param_map: Mapping[Any, Any]) -> PrimFunc:
    """`func` with the parameters in `param_map` fixed.

    A scalar parameter given a value (a number or an expression) disappears. A buffer parameter
    given a `Buffer` stays, with that buffer in its place; variables of its shape take the values
    they must have. A variable of a shape that is given a value has it everywhere. Raises TIRError
    for an unknown parameter, a dtype or rank that differs, or a variable given two values.
    """
    values: dict[Var, PrimExpr] = {}
    buffers: dict[Any, Any] = {}
    name = func.get_attr("global_symbol", "function")
    symbols = {
        v for b in func.buffer_map.values() for d in b.shape for v in walk(d) if isinstance(v, Var)
    }
    for key, value in param_map.items():
        if key in symbols - {*func.params}:
            _bind(values, key, as_expr(value, key.dtype), f"symbol {key.name}")
            continue
        param = _parameter(func, key, name)
        if param not in func.buffer_map:
            if not isinstance(value, (PrimExpr, int, float)):
                raise TIRError(
                    f"specialize {name}: parameter {param.name} is a {param.dtype}, "
                    f"got {type(value).__name__}"
                )
            _bind(values, param, as_expr(value, param.dtype), f"parameter {param.name}")
            continue
        old = func.buffer_map[param]
        if not isinstance(value, type(old)):
            raise TIRError(
                f"specialize {name}: parameter {param.name} is a buffer, got {type(value).__name__}"
            )
        buffers[param] = value
        _match_buffer(values, old, value, name)
    if not values and not buffers:
        return func
    return _apply(func, values, buffers)


def _parameter(func: PrimFunc, key: Any, name: str) -> Var:
    for param in func.params:
        if key is param or (isinstance(key, str) and key == param.name):
            return param
        if param in func.buffer_map and key is func.buffer_map[param]:
            return param
    known = ", ".join(p.name for p in func.params)
    raise TIRError(f"specialize {name}: {key!r} is no parameter; there are: {known or 'none'}")


def _bind(values: dict[Var, PrimExpr], var: Var, value: PrimExpr, where: str) -> None:
    value = cast(var.dtype, value)
    if values.setdefault(var, value) is not value:
        raise TIRError(
            f"specialize: {where} gives {var.name} the value {value!r}, but it has {values[var]!r}"
        )


def _match_buffer(values: dict[Var, PrimExpr], old: Buffer, new: Buffer, name: str) -> None:
    where = f"specialize {name}: buffer {old.name}"
    if new.dtype is not old.dtype:
        raise TIRError(f"{where} holds {old.dtype}, the new one {new.dtype}")
    if new.ndim != old.ndim:
        raise TIRError(f"{where} has {old.ndim} dimensions, the new one {new.ndim}")
    pairs = list(zip(old.shape, new.shape))
    if old.strides or new.strides:
        if len(old.strides) != len(new.strides):
            raise TIRError(f"{where}: one of the two declares strides, the other does not")
        pairs += zip(old.strides, new.strides)
    pairs.append((old.elem_offset, new.elem_offset))
    for a, b in pairs:
        if isinstance(a, Var):
            _bind(values, a, b, f"buffer {old.name}")
        elif isinstance(a, IntImm) and isinstance(b, IntImm) and a.value != b.value:
            raise TIRError(f"{where} has the size {a.value} where the new one has {b.value}")


def _apply(func: PrimFunc, values: dict[Var, PrimExpr], buffers: dict[Any, Any]) -> PrimFunc:
    mapping: dict[int, Node] = {id(var): value for var, value in values.items()}
    for param, new in buffers.items():
        old = func.buffer_map[param]
        mapping[id(old)] = new
        mapping[id(old.data)] = new.data
    memo: dict[int, tuple[Node, Node]] = {}

    def changed(node: Any) -> Any:
        return transform(node, _fold, pre=lambda n: mapping.get(id(n)), memo=memo)

    gone = {var for var in values if var in func.params}
    params = tuple(p for p in func.params if p not in gone)
    buffer_map = Map({p: changed(b) for p, b in func.buffer_map.items()})
    attrs = Map({k: changed(v) if isinstance(v, Node) else v for k, v in func.attrs.items()})
    body = changed(func.body)
    return func.replace(
        params=params, buffer_map=buffer_map, body=body, attrs=attrs, span=func.span
    )


def _fold(n: Node) -> Node | None:
    if isinstance(n, BinaryExpr) and (isinstance(n.a, IntImm) or isinstance(n.b, IntImm)):
        if n.a.dtype.is_int and n.dtype.lanes == 1:
            return binary(type(n), n.a, n.b)
    return None
