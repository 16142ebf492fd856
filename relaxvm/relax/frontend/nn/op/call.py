"""Calls of what nn has no operator for: tensor expressions, loop functions, packed functions."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .....base import FrontendError
from .....ir import FloatImm, PrimExpr
from .....runtime import Builtins
from .....tir import PrimFunc
from ....expr import PrimValue, StringImm
from ....op import call_dps_packed, call_tir, call_tir_inplace
from ....struct_info import ShapeExpr
from ..subroutine import in_subroutine
from ..tensor import Object, Tensor, current_builder, wrap_nested

io_effect: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "relaxvm_nn_io_effect", default=None
)
"""The order of prints (an `IOEffect`) of the export at work; None without debug."""


def _plain(value: Any) -> Any:
    """Expressions in place of tensors, at any depth."""
    if isinstance(value, (Tensor, Object)):
        return value._expr
    if isinstance(value, (tuple, list)):
        return type(value)([_plain(v) for v in value])
    return value


def tensor_expr_op(
    tensor_expr_func: Callable[..., Any],
    name_hint: str,
    args: Sequence[Any],
    *,
    attrs: dict[str, Any] | None = None,
) -> Any:
    """What a tensor expression computes: `tensor_expr_func` gets a `te.Tensor` for each tensor of
    `args`, and gives one or several.

    name_hint  name of the loop function; attrs: attributes for it
    """
    return wrap_nested(
        current_builder("tensor_expr_op").emit_te(
            tensor_expr_func,
            *[_plain(a) for a in args],
            primfunc_name_hint=name_hint,
            primfunc_attrs=attrs,
        ),
        name_hint,
    )


def _kernel_args(args: Any, what: str) -> tuple[list[Any], ShapeExpr | None]:
    """Tensors first, scalars behind them: how loop functions take their arguments."""
    items = list(args) if isinstance(args, (tuple, list)) else [args]
    tensors: list[Any] = []
    scalars: list[Any] = []
    for i, each in enumerate(items):
        if isinstance(each, Tensor):
            if scalars:
                raise FrontendError(
                    f"{what}: argument {i}: tensors stand before scalars, as loop functions have "
                    "them"
                )
            tensors.append(each._expr)
        elif isinstance(each, (PrimExpr, int)) and not isinstance(each, bool):
            scalars.append(each)
        elif isinstance(each, ShapeExpr):
            scalars.extend(each.values)
        else:
            raise FrontendError(
                f"{what}: argument {i}: wanted a Tensor or an integer, got {type(each).__name__}"
            )
    return tensors, ShapeExpr(scalars) if scalars else None


def _out(out: Any, what: str) -> Any:
    if isinstance(out, Tensor):
        return out.struct_info
    if isinstance(out, (tuple, list)) and out and all(isinstance(o, Tensor) for o in out):
        return [o.struct_info for o in out]
    raise FrontendError(
        f"{what}: out: wanted Tensor.placeholder(shape, dtype) or a list of them, got {out!r}"[:300]
    )


def _kernel(func: Any, name_hint: str, what: str) -> Any:
    if not isinstance(func, PrimFunc):
        raise FrontendError(f"{what}: wanted a T.prim_func, got {type(func).__name__}")
    return current_builder(what).add_func(func, name_hint)


def tensor_ir_op(func: PrimFunc, name_hint: str, args: Any, out: Any) -> Any:
    """What a loop function computes.

    func  its parameters: a buffer for each tensor of `args`, one for each output, a scalar for each
          integer of `args`
    out   `Tensor.placeholder(shape, dtype)` for each output
    """
    what = f"tensor_ir_op {name_hint}"
    tensors, scalars = _kernel_args(args, what)
    gv = _kernel(func, name_hint, what)
    call = call_tir(gv, tensors, _out(out, what), tir_vars=scalars)
    return wrap_nested(call, name_hint)


def tensor_ir_inplace_op(
    func: PrimFunc, name_hint: str, args: Any, inplace_indices: Any, out: Any
) -> Any:
    """As `tensor_ir_op`, but output i is written over tensor ``inplace_indices[i]`` (-1: it is
    new). That tensor must not be used afterwards.
    """
    what = f"tensor_ir_inplace_op {name_hint}"
    tensors, scalars = _kernel_args(args, what)
    gv = _kernel(func, name_hint, what)
    call = call_tir_inplace(gv, tensors, inplace_indices, _out(out, what), tir_vars=scalars)
    return wrap_nested(call, name_hint)


def extern(name: str, args: Any, out: Any) -> Any:
    """What the packed function `name` computes, which fills the outputs it is given last.

    args  tensors, numbers, scalar expressions and texts
    out   `Tensor.placeholder(shape, dtype)` for each output
    """
    operands = [_packed_arg(a, f"extern {name}: argument {i}") for i, a in enumerate(_listed(args))]
    call = call_dps_packed(name, operands, _out(out, f"extern {name}"))
    return wrap_nested(call, name.replace(".", "_"))


def _listed(args: Any) -> list[Any]:
    return list(args) if isinstance(args, (tuple, list)) else [args]


def _packed_arg(value: Any, what: str) -> Any:
    if isinstance(value, (Tensor, Object)):
        return value._expr
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, float):
        return PrimValue(FloatImm("float64", value))
    if isinstance(value, (int, PrimExpr)):
        return PrimValue(value)
    raise FrontendError(
        f"{what}: wanted a Tensor, a number or a text, got {type(value).__name__}: {value!r}"[:300]
    )


def debug_func(name: str, *args: Any, _line_info: str | None = None) -> None:
    """Call the packed function `name` with the source line (a text) and `args` while the program
    runs. Such calls stay in order.

    Raises FrontendError unless the model is exported with debug=True.
    """
    effect = current_io_effect(name)
    line = _line_info if _line_info is not None else _caller(2)
    operands = [_packed_arg(a, f"debug_func {name}: argument {i}") for i, a in enumerate(args)]
    effect.call(name, line, operands)


def print_(tensor: Tensor) -> None:
    """Print a tensor, with the source line, while the program runs. See `debug_func`."""
    debug_func(Builtins.DEBUG_PRINT.name, tensor, _line_info=_caller(2))


def _caller(depth: int) -> str:
    frame = sys._getframe(depth)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def current_io_effect(what: str) -> Any:
    """The order of prints of the export that is going on."""
    effect = io_effect.get()
    if effect is None or effect.effect is None:
        raise FrontendError(
            f"{what}: a method prints only if its model is exported with debug=True (and its "
            "effect_mode is not 'none')"
        )
    inside = in_subroutine.get()
    if inside:
        raise FrontendError(
            f"{what}: the subroutine of {inside} cannot print; set define_subroutine = False on it"
        )
    return effect
