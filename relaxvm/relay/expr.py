"""Relay's constructors of expressions and types. What they give is the graph language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base import dtype as as_dtype
from ..ir import GlobalVar as GlobalVar
from ..ir import Op
from ..ir import Var as Symbol
from ..relax import (
    BindingBlock,
    Constant,
    Expr,
    FuncStructInfo,
    SeqExpr,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    Var,
    VarBinding,
)
from ..relax import Call as RelaxCall
from ..relax import Function as RelaxFunction
from ..relax import If as RelaxIf
from ..relax import Tuple as RelaxTuple
from ..relax import TupleGetItem as TupleGetItem
from ..relax import const as relax_const
from .spelling import UNTYPED, is_typed, operand


def Unknown() -> Symbol:
    """A dimension of unknown size: a new symbol. `relay.Any()`."""
    return Symbol("any", "int64")


def TensorType(shape: Iterable[Any], dtype: Any = "float32") -> TensorStructInfo:
    """The type of tensors of `shape`, whose sizes are ints, symbols or `relay.Any()`."""
    return TensorStructInfo(tuple(shape), as_dtype(dtype))


def scalar_type(dtype: Any) -> TensorStructInfo:
    """The type of a tensor without axes."""
    return TensorType((), dtype)


def TupleType(fields: Iterable[StructInfo]) -> TupleStructInfo:
    """The type of tuples."""
    return TupleStructInfo(tuple(fields))


def FuncType(
    arg_types: Iterable[StructInfo],
    ret_type: StructInfo,
    type_params: Any = None,
    type_constraints: Any = None,
) -> FuncStructInfo:
    """The type of functions. Type parameters and constraints say nothing that is checked here."""
    return FuncStructInfo(tuple(arg_types), ret_type)


def var(
    name_hint: str,
    type_annotation: StructInfo | str | None = None,
    shape: Sequence[Any] | None = None,
    dtype: Any = "float32",
    span: Any = None,
) -> Var:
    """A variable: of a type, of a shape and a dtype, a scalar (`type_annotation` is a dtype), or,
    without any of them, of a type not known yet.
    """
    if type_annotation is not None and shape is not None:
        raise ValueError("var: wanted type_annotation or shape, got both")
    if shape is not None:
        return Var(name_hint, TensorType(shape, dtype))
    if isinstance(type_annotation, str):
        return Var(name_hint, scalar_type(type_annotation))
    return Var(name_hint, UNTYPED if type_annotation is None else type_annotation)


_DTYPES: dict[type, str] = {bool: "bool", int: "int32", float: "float32"}


def const(value: Any, dtype: Any = None, span: Any = None) -> Constant:
    """A constant. Python numbers are bool, int32 and float32, arrays keep their dtype but float64
    in lists, which becomes float32.
    """
    if isinstance(value, (bool, int, float)):
        return relax_const(np.asarray(value, dtype or _DTYPES[type(value)]), dtype)
    if isinstance(value, (list, tuple)):
        value = np.asarray(value)
        narrow = {"float64": "float32", "int64": "int32"}.get(value.dtype.name)
        value = value.astype(narrow) if narrow and dtype is None else value
    return relax_const(value, dtype)


def Tuple(fields: Iterable[Any], span: Any = None) -> RelaxTuple:
    """Several values as one."""
    return RelaxTuple([operand(f) for f in fields])


def Call(op: Any, args: Iterable[Any], attrs: Any = None, type_args: Any = None) -> RelaxCall:
    """Apply an operator or a function."""
    values = [operand(a) for a in args]
    function = op if not isinstance(op, Op) else None
    untyped = function is None and not all(map(is_typed, values))
    return RelaxCall(op, values, attrs, (), UNTYPED if untyped else None)


def Function(
    params: Sequence[Var],
    body: Any,
    ret_type: StructInfo | None = None,
    type_params: Any = None,
    attrs: Mapping[str, Any] | None = None,
    span: Any = None,
) -> RelaxFunction:
    """A function. Values that the body uses more than once are computed once."""
    return RelaxFunction(list(params), operand(body), ret_type, attrs=attrs)


def If(cond: Any, true_branch: Any, false_branch: Any, span: Any = None) -> RelaxIf:
    """One of two values."""
    branches: list[Any] = [operand(b) for b in (true_branch, false_branch)]
    return RelaxIf(operand(cond), *branches)


def Let(variable: Var, value: Any, body: Any, span: Any = None) -> SeqExpr:
    """`body`, in which `variable` is `value`."""
    block = BindingBlock((VarBinding(variable, operand(value)),))
    return SeqExpr((block,), operand(body))


class ScopeBuilder:
    """Writes an expression statement by statement.

    sb = relay.ScopeBuilder()
    with sb.if_scope(cond):
        x1 = sb.let("x1", relay.add(x, x))
        sb.ret(x1)
    with sb.else_scope():
        sb.ret(x)
    f = relay.Function([cond, x], sb.get())
    """

    def __init__(self) -> None:
        self._scopes: list[_Scope] = [_Scope()]
        self._results: list[Any] = [None]

    def let(self, variable: Any, value: Any) -> Var:
        """A variable (or one of that name) bound to `value`."""
        value = operand(value)
        if isinstance(variable, str):
            variable = Var(variable, value.struct_info)
        self._scopes[-1].bindings.append(VarBinding(variable, value))
        return variable

    def ret(self, value: Any) -> None:
        """The result of the scope. Raises ValueError if it has one."""
        scope = self._scopes[-1]
        if scope.result is not None:
            raise ValueError("ScopeBuilder: ret was called twice in one scope")
        scope.result = operand(value)

    def if_scope(self, cond: Any) -> _Inside:
        """``with sb.if_scope(cond):``: what is done where `cond` holds; `else_scope` follows."""
        return _Inside(self, operand(cond))

    def else_scope(self) -> _Inside:
        """``with sb.else_scope():``: what is done where the condition of `if_scope` does not."""
        if self._scopes[-1].choice is None:
            raise ValueError("ScopeBuilder: else_scope comes right after if_scope")
        return _Inside(self, None)

    def get(self) -> Expr:
        """The whole expression. Raises ValueError if nothing is returned."""
        if len(self._scopes) != 1:
            raise ValueError("ScopeBuilder: a scope is open still")
        return self._scopes[-1].expression()


class _Scope:
    def __init__(self) -> None:
        self.bindings: list[VarBinding] = []
        self.result: Expr | None = None
        # The condition and the first branch of an `if_scope` whose `else_scope` is to come.
        self.choice: tuple[Expr, Expr] | None = None

    def expression(self) -> Expr:
        if self.result is None:
            raise ValueError("ScopeBuilder: a scope returns nothing: call ret, in both branches")
        if not self.bindings:
            return self.result
        return SeqExpr((BindingBlock(tuple(self.bindings)),), self.result)


class _Inside:
    """A branch while it is written."""

    def __init__(self, builder: ScopeBuilder, cond: Expr | None) -> None:
        self.builder, self.cond = builder, cond

    def __enter__(self) -> ScopeBuilder:
        self.builder._scopes.append(_Scope())
        return self.builder

    def __exit__(self, kind: Any, *_: Any) -> None:
        branch = self.builder._scopes.pop()
        if kind is not None:
            return
        outer = self.builder._scopes[-1]
        if self.cond is not None:
            outer.choice = self.cond, branch.expression()
            return
        assert outer.choice is not None
        (cond, first), outer.choice = outer.choice, None
        self.builder.ret(If(cond, first, branch.expression()))
