"""Loop functions with a gradient of their own, which is a registered te function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .... import te
from ....base import UNKNOWN, Span, StructInfoError
from ....ir import GlobalVar, Map
from ....tir import interpret
from ...expr import Call, ExternFunc, Tuple, TupleGetItem
from ...rules import LowerBuilder, Ops
from ...struct_info import Expr, StructInfo, TupleStructInfo
from ..call import as_arguments, as_out_sinfo, as_shape, call_tir, check_kernel_call, output_info
from ..infer import FLOAT, tensor
from ..lower import call_te
from ..record import Shape, face_of, missing, op

_SECOND = missing("second derivatives are not taken")


_TE_GRADIENTS: dict[str, Callable[..., Any]] = {}


def register_te_gradient(te_grad_name: str, te_grad_func: Callable[..., Any] | None = None) -> Any:
    """Make a te function the gradient named `te_grad_name`. Also a decorator.

    te_grad_func  (output_grad, *args, **te_grad_kwargs) -> one te tensor for each of args (a list
                  if there are several);
                  output_grad is a te tensor, or a list of them for several outputs
    """

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        if _TE_GRADIENTS.get(te_grad_name, f) is not f:
            raise StructInfoError(f"register_te_gradient: {te_grad_name!r} is registered already")
        _TE_GRADIENTS[te_grad_name] = f
        return f

    return register if te_grad_func is None else register(te_grad_func)


def _te_gradient_of(name: str) -> Callable[..., Any]:
    grad = _TE_GRADIENTS.get(name)
    if grad is None:
        known = ", ".join(sorted(_TE_GRADIENTS)) or "none"
        raise StructInfoError(
            f"te_grad_name: {name!r} is not registered (known: {known}); "
            "register_te_gradient does that"
        )
    return grad


def _te_gradient_numpy(output_grad: Any, *args: Any, te_grad_name: str, te_grad_kwargs: Any) -> Any:
    """Runs the gradient's loop function in the interpreter. A bfloat16 value comes as float32, and
    is computed so.
    """
    inputs: list[tuple[Any, Any]] = []

    def given(value: Any) -> Any:
        if isinstance(value, tuple):
            return [given(v) for v in value]
        array = np.ascontiguousarray(value)
        leaf = te.placeholder(array.shape, str(array.dtype), f"a{len(inputs)}")
        inputs.append((leaf, array))
        return leaf

    tensors = [given(output_grad), *map(given, args)]
    result = _te_gradient_of(te_grad_name)(*tensors, **dict(te_grad_kwargs or {}))
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    func = te.create_prim_func([*(t for t, _ in inputs), *results])
    outs = [np.zeros([int(d.value) for d in t.shape], str(t.dtype)) for t in results]
    interpret(func, *(a for _, a in inputs), *outs)
    return tuple(outs) if len(outs) > 1 else outs[0]


def _te_gradient_lower(builder: LowerBuilder, call: Call) -> Expr:
    f = _te_gradient_of(call.attrs["te_grad_name"])
    return call_te(builder, call, f, *call.args, **dict(call.attrs["te_grad_kwargs"] or {}))


@op(
    "grad.te_gradient",
    numpy=_te_gradient_numpy,
    lower=_te_gradient_lower,
    grad=_SECOND,
    layout=missing("the loop function is written for one order of axes"),
)
def te_gradient(
    output_grad: Expr, *args: Expr, te_grad_name: str, te_grad_kwargs: Map | None = None
) -> StructInfo:
    """The gradients of a loop function with respect to `args`, by the registered te function
    `te_grad_name`.

    A tensor for one argument, a tuple for several.
    """
    _te_gradient_of(te_grad_name)
    infos = [tensor(a, f"args[{i}]", FLOAT) for i, a in enumerate(args)]
    if not infos:
        raise StructInfoError("args: wanted at least one tensor")
    return infos[0] if len(infos) == 1 else TupleStructInfo(tuple(infos))


def _call_tir_lower(builder: LowerBuilder, call: Call) -> Expr:
    func, args, *rest = call.args
    assert isinstance(func, (GlobalVar, ExternFunc))
    return call_tir(func, args, call.struct_info, rest[0] if rest else None, span=call.span)


def _call_tir_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    _, args, *rest = call.args
    info: Any = args.struct_info
    fields: tuple[Expr, ...] = (
        args.fields
        if isinstance(args, Tuple)
        else tuple(TupleGetItem(args, i) for i in range(len(info.fields)))
    )
    grads = ops.grad.te_gradient(
        gy,
        *fields,
        te_grad_name=call.attrs["te_grad_name"],
        te_grad_kwargs=call.attrs["te_grad_kwargs"],
    )
    several = isinstance(grads.struct_info, TupleStructInfo)
    return None, (grads if several else Tuple((grads,))), *(None for _ in rest)


@op(
    "call_tir_with_grad",
    numpy=missing("it is the loop function's"),
    lower=_call_tir_lower,
    grad=_call_tir_grad,
    layout=missing("the loop function is written for one order of axes"),
)
def _call_tir_with_grad(
    func: Expr,
    args: Expr,
    tir_vars: Shape | None = None,
    *,
    te_grad_name: str,
    te_grad_kwargs: Map | None = None,
    sinfo_args: tuple[StructInfo, ...],
) -> StructInfo:
    """As call_tir, of a loop function whose gradient is the te function `te_grad_name`."""
    check_kernel_call(func, args, tir_vars, "call_tir_with_grad")
    return output_info(sinfo_args)


@face_of(_call_tir_with_grad)
def call_tir_with_grad(
    gvar: Any,
    args: Any,
    out_sinfo: Any,
    te_grad_name: str,
    te_grad_kwargs: Any = None,
    tir_vars: Any = None,
    *,
    dtype: Any = None,
    span: Span = UNKNOWN,
) -> Call:
    """As call_tir, of a loop function whose gradient is the registered te function `te_grad_name`.

    te_grad_kwargs  keyword arguments for that function
    Raises StructInfoError if an argument does not fit.
    """
    info = as_out_sinfo(out_sinfo, dtype, "call_tir_with_grad", span)
    extra = () if tir_vars is None else (as_shape(tir_vars, "call_tir_with_grad"),)
    attrs = {"te_grad_name": te_grad_name, "te_grad_kwargs": Map(te_grad_kwargs or {})}
    arguments = (gvar, as_arguments(args, "call_tir_with_grad"), *extra)
    return Call(_call_tir_with_grad.op, arguments, attrs, (info,), None, span)
