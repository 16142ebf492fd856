"""Relay's constructors of expressions and types. What they give is the graph language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base import DTypeError
from ..base import dtype as as_dtype
from ..ir import RELAY, Op, substitute
from ..ir import GlobalVar as GlobalVar
from ..relax import (
    BindingBlock,
    Constant,
    Expr,
    SeqExpr,
    TensorStructInfo,
    VarBinding,
)
from ..relax import Call as RelaxCall
from ..relax import Function as RelaxFunction
from ..relax import If as RelaxIf
from ..relax import Tuple as RelaxTuple
from ..relax import TupleGetItem as RelaxTupleGetItem
from ..relax import Var as RelaxVar
from ..relax import const as relax_const
from ..relax.static_type import of_static_type
from .spelling import UNTYPED, Spelled, is_typed, let_span, operand
from .ty import FuncType as FuncType
from .ty import Kind, scalar_type
from .ty import TensorType as TensorType
from .ty import TupleType as TupleType


def var(
    name_hint: str,
    type_annotation: Any = None,
    shape: Sequence[Any] | None = None,
    dtype: Any = "float32",
    span: Any = None,
) -> RelaxVar:
    """A variable: of a type, of a shape and a dtype, a scalar (`type_annotation` is a dtype), or,
    without any of them, of a type not known yet.
    """
    if type_annotation is not None and shape is not None:
        raise ValueError("var: wanted type_annotation or shape, got both")
    if shape is not None:
        return RelaxVar(name_hint, TensorStructInfo(tuple(shape), as_dtype(dtype)))
    if isinstance(type_annotation, str):
        return RelaxVar(name_hint, scalar_type(type_annotation))
    return RelaxVar(
        name_hint, UNTYPED if type_annotation is None else of_static_type(type_annotation)
    )


class Var(metaclass=Kind):
    """A variable, perhaps of a type."""

    of = RelaxVar

    @staticmethod
    def make(name_hint: str, type_annotation: Any = None, span: Any = None) -> RelaxVar:
        return var(name_hint, type_annotation)


_DTYPES: dict[type, str] = {bool: "bool", int: "int32", float: "float32"}


def const(value: Any, dtype: Any = None, span: Any = None) -> Constant:
    """A constant. Python numbers are bool, int32 and float32, arrays keep their dtype but float64
    in lists, which becomes float32.
    """
    if type(value) in _DTYPES:
        wanted = as_dtype(dtype or _DTYPES[type(value)])
        if wanted.is_int and not wanted.min_value <= value <= wanted.max_value:
            raise DTypeError(f"const: {value} is no {wanted}; give a wider dtype")
        with np.errstate(over="ignore"):  # beyond what a float holds: infinite
            value = np.asarray(
                value, str(wanted) if wanted.is_float and not wanted.is_bits else None
            )
        return relax_const(value, wanted)
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, (list, tuple)):
        value = np.asarray(value)
        narrow = {"float64": "float32", "int64": "int32"}.get(value.dtype.name)
        value = value.astype(narrow) if narrow and dtype is None else value
    return relax_const(value, dtype)


class Tuple(metaclass=Kind):
    """Several values as one."""

    of = RelaxTuple

    @staticmethod
    def make(fields: Iterable[Any], span: Any = None) -> RelaxTuple:
        return RelaxTuple([operand(f) for f in fields])


class Call(metaclass=Kind):
    """Apply an operator or a function."""

    of = RelaxCall

    @staticmethod
    def make(
        op: Any, args: Iterable[Any], attrs: Any = None, type_args: Any = None, span: Any = None
    ) -> Any:
        values = [operand(a) for a in args]
        if isinstance(op, Spelled):
            return op.called(values, attrs or {})
        untyped = isinstance(op, Op) and not all(map(is_typed, values))
        return RelaxCall(op, values, attrs, (), UNTYPED if untyped else None)


class Function(metaclass=Kind):
    """A function. Values that the body uses more than once are computed once."""

    of = RelaxFunction

    @staticmethod
    def make(
        params: Sequence[RelaxVar],
        body: Any,
        ret_type: Any = None,
        type_params: Any = None,
        attrs: Mapping[str, Any] | None = None,
        span: Any = None,
    ) -> RelaxFunction:
        returns = None if ret_type is None else of_static_type(ret_type)
        return RelaxFunction(list(params), operand(body), returns, attrs=attrs, span=RELAY)


class If(metaclass=Kind):
    """One of two values."""

    of = RelaxIf

    @staticmethod
    def make(cond: Any, true_branch: Any, false_branch: Any, span: Any = None) -> RelaxIf:
        branches: list[Any] = [operand(b) for b in (true_branch, false_branch)]
        return RelaxIf(operand(cond), *branches)


class Let(metaclass=Kind):
    """`body`, in which `variable` is `value`: a sequence of one binding."""

    of = SeqExpr

    @staticmethod
    def make(variable: RelaxVar, value: Any, body: Any, span: Any = None) -> SeqExpr:
        block = BindingBlock((VarBinding(variable, operand(value), let_span()),))
        return SeqExpr((block,), operand(body))


class TupleGetItem(metaclass=Kind):
    """One field of a tuple."""

    of = RelaxTupleGetItem

    @staticmethod
    def make(tuple_value: Any, index: int, span: Any = None) -> RelaxTupleGetItem:
        return RelaxTupleGetItem(operand(tuple_value), index)


def bind(expr: Any, binds: Mapping[RelaxVar, Any]) -> Any:
    """`expr` (or a function), in which values stand for variables; of a function, parameters that
    are bound are gone.
    """
    values = {v: operand(value) for v, value in binds.items()}
    if isinstance(expr, RelaxFunction):
        params = [p for p in expr.params if p not in values]
        body: Any = substitute(expr.body, values)
        return RelaxFunction(params, body, None, expr.is_pure, expr.attrs, expr.span)
    return substitute(expr, values)


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

    def let(self, variable: Any, value: Any) -> RelaxVar:
        """A variable (or one of that name) bound to `value`."""
        value = operand(value)
        if isinstance(variable, str):
            variable = RelaxVar(variable, value.struct_info)
        self._scopes[-1].bindings.append(VarBinding(variable, value, let_span()))
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
        self.builder.ret(If.make(cond, first, branch.expression()))
