"""TVM's helpers for code that builds graph functions: conversion of arguments, copies, and the
inputs of `call_tir`.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from ..base import StructInfoError
from ..ir import StringImm as PrimString
from ..tir import PrimFunc
from .emit_te import call_te_inputs
from .expr import as_relax
from .struct_info import Expr, ShapeExpr, StructInfo
from .substitute import copy_with_new_vars as copy_with_new_vars

F = TypeVar("F", bound=Callable[..., Any])


def convert_to_expr(value: Any) -> Expr:
    """`value` as a value of the graph language: a scalar expression or number becomes a
    `PrimValue`, a string a `StringImm`, a tuple or list a `Tuple`.

    Raises StructInfoError for anything else, and for `tir.StringImm`, which could be either.
    """
    if isinstance(value, PrimString):
        raise StructInfoError("convert_to_expr: tir.StringImm may mean two things; give a string")
    return as_relax(value)


def gen_call_tir_inputs(
    func: Callable[..., Any], *args: Any, **kwargs: Any
) -> tuple[PrimFunc, list[Expr], StructInfo, ShapeExpr | None]:
    """The loop function of the tensor expression ``func(*args, **kwargs)``, and the arguments,
    result and `tir_vars` with which `call_tir` calls it.

    primfunc_attrs  attributes for the loop function
    """
    attrs = kwargs.pop("primfunc_attrs", None)
    prim_func, inputs, out_sinfo, tir_vars = call_te_inputs(func, args, kwargs)
    if attrs:
        prim_func = prim_func.with_attr(attrs)
    return prim_func, inputs, out_sinfo, ShapeExpr(tir_vars) if tir_vars else None


def _as_list(value: Any) -> list[Expr]:
    if not isinstance(value, (list, tuple)):
        raise StructInfoError(f"wanted a list of values, got {type(value).__name__}")
    return [convert_to_expr(each) for each in value]


class _ArgsConverter:
    """Decorators that convert arguments before the function sees them; None stays None.

    @args_converter.to_expr("x", "axis")      each by `convert_to_expr`
    @args_converter.to_list_expr("values")    a list, each element so
    @args_converter.auto                      as the annotations say: Expr, list[Expr]
    """

    def to_expr(self, *arg_names: str) -> Callable[[F], F]:
        """Convert the arguments `arg_names` to values of the graph language."""
        return lambda func: _converting(func, dict.fromkeys(arg_names, convert_to_expr))

    def to_list_expr(self, *arg_names: str) -> Callable[[F], F]:
        """Convert the arguments `arg_names`, lists, to lists of values of the graph language."""
        return lambda func: _converting(func, dict.fromkeys(arg_names, _as_list))

    def auto(self, func: F) -> F:
        """Convert what is annotated ``Expr``, or a list or tuple of it, optional or not."""
        hints = typing.get_type_hints(func)
        named = {name: _conversion(hints.get(name)) for name in inspect.signature(func).parameters}
        return _converting(func, {name: c for name, c in named.items() if c is not None})


def _conversion(hint: Any) -> Callable[[Any], Any] | None:
    if isinstance(hint, type) and issubclass(hint, Expr):
        return convert_to_expr
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, tuple, Sequence):
        return _as_list if inner and _conversion(inner[0]) is convert_to_expr else None
    conversions = [_conversion(each) for each in inner if each is not type(None)]
    # Of a choice between several kinds nothing is converted.
    return conversions[0] if len(conversions) == 1 and len(inner) == 2 else None


def _converting(func: F, conversions: dict[str, Callable[[Any], Any]]) -> F:
    signature = inspect.signature(func)
    unknown = conversions.keys() - signature.parameters.keys()
    if unknown:
        name = getattr(func, "__name__", "the function")
        raise StructInfoError(f"{name} has no argument {', '.join(sorted(unknown))}")

    @functools.wraps(func)
    def converted(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        for name, convert in conversions.items():
            if bound.arguments.get(name) is None:
                continue
            kind = signature.parameters[name].kind
            value = bound.arguments[name]
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(map(convert, value))
            elif kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {k: convert(v) for k, v in value.items()}
            else:
                bound.arguments[name] = convert(value)
        return func(*bound.args, **bound.kwargs)

    return cast(F, converted)


args_converter = _ArgsConverter()
