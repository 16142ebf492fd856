"""`SubroutineMixin`: modules whose `forward` becomes a function of its own.

    class Layer(nn.Module):
        define_subroutine = True        # every use is a call of one private function `layer`

Modules of one class whose inputs and parameters have the same shapes share one function.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

from ....base import RelaxvmError, add_note
from ...analysis import free_symbolic_vars
from ...expr import Call, Expr, Function, Var
from ...struct_info import ShapeExpr, ShapeStructInfo
from .tensor import Object, Tensor, current_builder, unwrap_nested, wrap_nested

in_subroutine: contextvars.ContextVar[str] = contextvars.ContextVar(
    "relaxvm_nn_in_subroutine", default=""
)
"""The class whose subroutine is being written, if one is."""


class SubroutineMixin:
    """What `Module` inherits: `define_subroutine`, and notes on errors in constructors."""

    define_subroutine: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        methods: Any = cls
        if "__init__" in cls.__dict__:
            methods.__init__ = _noting(methods.__init__)
        if "forward" in cls.__dict__:
            methods.forward = _as_subroutine(methods.forward)


def _noting(init: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(init)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except RelaxvmError as error:
            note = f"while making {type(self).__name__}"
            # A constructor may have called that of its base class.
            if getattr(error, "__notes__", [""])[-1] != note:
                add_note(error, note)
            raise

    return wrapped


def _as_subroutine(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.define_subroutine:
            return forward(self, *args, **kwargs)
        return _call(self, forward, args, kwargs)

    return wrapped


def _call(module: Any, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """``forward(module, *args)`` as a call of a function that does it."""
    name = type(module).__name__
    if module.has_effects():
        # State is threaded through the method that is exported, not through functions inside.
        return forward(module, *args, **kwargs)
    builder = current_builder(name)
    bound = inspect.signature(forward).bind(module, *args, **kwargs)
    inputs = _Inputs()
    own_inputs = {key: inputs.take(value, key) for key, value in list(bound.arguments.items())[1:]}
    held = [(param, param._expr) for _, param in module.named_parameters()]
    token = in_subroutine.set(name)
    try:
        for path, param in module.named_parameters():
            param._expr = inputs.add(param._expr, path)
        with builder.nested_function(inputs.params):
            with builder.dataflow():
                bound.arguments.update(own_inputs)
                answer = unwrap_nested(forward(*bound.args, **bound.kwargs), f"{name}.forward")
                output = builder.emit_output(answer)
            body = builder.finish_nested(output)
    finally:
        in_subroutine.reset(token)
        for param, expr in held:
            param._expr = expr
    fn = Function(inputs.params, body)
    symbols = free_symbolic_vars(fn)
    if symbols:
        # Dimensions that no parameter's shape shows alone are passed as numbers.
        inputs.params.append(Var("symbols", ShapeStructInfo(symbols)))
        inputs.args.append(ShapeExpr(symbols))
        fn = Function(inputs.params, body)
    gv = builder.add_func(fn, _function_name(name))
    return wrap_nested(Call(gv, tuple(inputs.args)), _function_name(name))


class _Inputs:
    """The parameters of a subroutine, and what is passed for them."""

    def __init__(self) -> None:
        self.params: list[Var] = []
        self.args: list[Expr] = []

    def add(self, value: Expr, name: str) -> Var:
        var = Var(name, value.struct_info)
        self.params.append(var)
        self.args.append(value)
        return var

    def take(self, value: Any, name: str) -> Any:
        """`value` as the subroutine sees it: tensors are its parameters, all else stays."""
        if isinstance(value, Tensor):
            return Tensor(_expr=self.add(value._expr, name))
        if isinstance(value, Object):
            inner = object.__new__(type(value))
            inner.__dict__.update(value.__dict__)
            inner._expr = self.add(value._expr, name)
            return inner
        if isinstance(value, (tuple, list)):
            return type(value)([self.take(v, f"{name}_{i}") for i, v in enumerate(value)])
        return value


def _function_name(name: str) -> str:
    """``RMSNorm`` -> ``rms_norm``"""
    parted = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", parted).lower()
