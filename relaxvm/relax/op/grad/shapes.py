"""Shared by backward operators: what the gradient that they are given must be."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

from ....base import StructInfoError
from ....ir import PrimExpr
from ...derive import plain_text
from ...struct_info import Expr, StructInfo, TupleStructInfo
from ..infer import FLOAT, same_dtype, tensor
from ..sizes import KnownTensor, want_same


def want_shape(info: KnownTensor, wanted: Sequence[PrimExpr], name: str) -> None:
    """A tensor is of the shape `wanted`. Raises StructInfoError if it never is."""
    shapes = (", ".join(map(plain_text, dims)) for dims in (wanted, info.dims))
    text = "{}: wanted shape ({}), got ({})".format(name, *shapes)
    if len(info.dims) != len(wanted):
        raise StructInfoError(text)
    want_same(info.dims, wanted, "{what}", what=text)


def backward_of(module: str, forward: Any, text: str, of: int = 1) -> Callable[..., StructInfo]:
    """The inference rule of ``grad.<forward>_backward``, which takes `output_grad` and what the
    operator `forward` takes, and gives the gradients of the first `of` arguments.

    module  where the operator is made
    text    its docstring
    """
    record = forward.op
    hints = typing.get_type_hints(record.rule, include_extras=True)
    names = list(record.signature.parameters)[:of]

    def rule(output_grad: Expr, *args: Any, **attrs: Any) -> StructInfo:
        result = record.rule(*args, **attrs)
        for name, arg in zip(names, args):
            tensor(arg, name, FLOAT)
        g = tensor(output_grad, "output_grad", FLOAT)
        same_dtype((g, result), ("output_grad", names[0]))
        if g.ndim != result.ndim:
            raise StructInfoError(f"output_grad: wanted {result.ndim} dimensions, got {g.ndim}")
        want_shape(g, result.dims, "output_grad")
        infos = [arg.struct_info for arg in args[:of]]
        return infos[0] if of == 1 else TupleStructInfo(infos)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = inspect.Parameter("output_grad", kind, annotation="Expr")
    parameters = [first, *record.signature.parameters.values()]
    rule.__name__ = rule.__qualname__ = f"{record.short.rpartition('.')[2]}_backward"
    rule.__module__ = module
    rule.__annotations__ = {"output_grad": Expr, **hints}
    rule.__doc__ = inspect.cleandoc(text)
    vars(rule)["__signature__"] = record.signature.replace(parameters=parameters)
    return rule
