"""Operators on shapes and values that need no library: shape_of, tensor_to_shape, print,
assert_op, ...
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base import UNKNOWN, Span, StructInfoError, VMError, submodules
from ...ir import IntImm, VDevice
from ...runtime import device_name
from ..expr import Call, PrimValue, StringImm, as_relax
from ..rules import Ops
from ..struct_info import (
    Expr,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .record import Text, face_of, missing, op

__getattr__ = submodules(__name__)


_BUILTIN = missing("a builtin of the virtual machine")
_EFFECT = missing("runs for its effect")
_NO_FLOATS = missing("it knows shapes, not elements")


def _back_on_its_device(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr, ...]:
    info = _tensor(call.args[0])
    return (gy if info.vdevice is None else ops.to_vdevice(gy, info.vdevice),)


@op("shape_of", numpy=lambda x: tuple(x.shape), lower=_BUILTIN, grad=_NO_FLOATS, layout=_NO_FLOATS)
def shape_of(x: Expr) -> StructInfo:
    """The shape of the tensor `x`."""
    info = _tensor(x)
    return ShapeStructInfo(info.dims, info.ndim)


@op(
    "tensor_to_shape",
    numpy=lambda x: tuple(int(v) for v in x),
    lower=_BUILTIN,
    grad=_NO_FLOATS,
    layout=_NO_FLOATS,
)
def tensor_to_shape(x: Expr) -> StructInfo:
    """The shape whose dimensions are the elements of the one-dimensional int64 tensor `x`."""
    info = _tensor(x)
    if info.ndim not in (-1, 1):
        raise StructInfoError(f"wanted a tensor of one dimension, got {info.ndim}")
    if info.dtype not in ("void", "int64"):
        raise StructInfoError(f"wanted a tensor of int64, got {info.dtype}")
    rank = info.dims[0] if info.dims is not None else None
    return ShapeStructInfo(ndim=rank.value if isinstance(rank, IntImm) else -1)


@op(
    "shape_to_tensor",
    numpy=lambda shape: np.asarray(shape, dtype="int64"),
    lower=_BUILTIN,
    grad=_NO_FLOATS,
    layout=_NO_FLOATS,
)
def shape_to_tensor(shape: Expr) -> StructInfo:
    """The dimensions of `shape` as a one-dimensional int64 tensor."""
    info = shape.struct_info
    if not isinstance(info, ShapeStructInfo):
        raise StructInfoError(f"wanted a shape, got {info}")
    return TensorStructInfo(None if info.ndim == -1 else (info.ndim,), "int64", None, 1)


def _tensor(x: Expr) -> TensorStructInfo:
    info = x.struct_info
    if not isinstance(info, TensorStructInfo):
        raise StructInfoError(f"wanted a tensor, got {info}")
    return info


@op("print", _EFFECT, _BUILTIN, _EFFECT, _EFFECT, pure=False)
def _print(format: Text, *values: Expr) -> StructInfo:
    """Print `values` when the program runs; `format` is a str.format template, or "" to print them
    in a row.
    """
    _want_string(format)
    return TupleStructInfo(())


@face_of(_print)
def print(*values: Any, format: Any = "", span: Span = UNKNOWN) -> Call:
    """Print `values` when the program runs; `format` is a str.format template, or "" to print them
    in a row.
    """
    return Call(_print.op, (as_relax(format), *values), None, (), None, span)


@op("assert_op", _EFFECT, _BUILTIN, _EFFECT, _EFFECT, pure=False)
def _assert_op(condition: Expr, format: Text, *format_args: Expr) -> StructInfo:
    """Stop the program with a message unless `condition`, a bool scalar, holds."""
    info = condition.struct_info
    if isinstance(info, PrimStructInfo):
        if not info.dtype.is_bool:
            raise StructInfoError(f"the condition is a bool, got {info}")
    elif isinstance(info, TensorStructInfo):
        if info.dtype not in ("void", "bool") or info.ndim not in (-1, 0):
            raise StructInfoError(f"the condition is a bool scalar, got {info}")
    elif not isinstance(info, ObjectStructInfo):
        raise StructInfoError(f"the condition is a bool scalar, got {info}")
    _want_string(format)
    return TupleStructInfo(())


@face_of(_assert_op)
def assert_op(
    condition: Any, format_args: Any = None, format: Any = "", span: Span = UNKNOWN
) -> Call:
    """Stop the program unless `condition` holds, with `format` (a str.format template) filled from
    `format_args`.
    """
    if isinstance(format_args, (tuple, list)):
        extra = tuple(format_args)
    else:
        extra = () if format_args is None else (format_args,)
    if isinstance(condition, bool):
        condition = PrimValue(condition)
    arguments = (condition, as_relax(format), *extra)
    return Call(_assert_op.op, arguments, None, (), None, span)


def _want_string(format: Expr) -> None:
    if not isinstance(format, StringImm):
        raise StructInfoError(f"format: wanted a string constant, got {format.struct_info}")


@op("null_value", numpy=lambda: None, lower=_BUILTIN, grad=_NO_FLOATS, layout=_NO_FLOATS)
def null_value() -> StructInfo:
    """No value: stands for an optional argument that is not given."""
    return ObjectStructInfo()


@op(
    "to_vdevice",
    numpy=lambda x, *, dst_vdevice: x,
    lower=_BUILTIN,
    grad=_back_on_its_device,
)
def to_vdevice(data: Expr, dst_vdevice: VDevice) -> StructInfo:
    """`data` on another device. All devices of kind llvm are one memory: there it is `data` itself,
    not a copy.
    """
    return _tensor(data).replace(vdevice=dst_vdevice)


@op(
    "hint_on_device",
    numpy=lambda x, *, dst_vdevice, memory_scope="global": x,
    lower=_BUILTIN,
    grad=lambda ops, call, y, gy: (gy,),
)
def _hint_on_device(data: Expr, dst_vdevice: str, memory_scope: str = "global") -> StructInfo:
    """`data`, with the remark for `RealizeVDevice` that it belongs on a device: a
    `runtime.Device`, a `VDevice`, or a name such as "cpu:0" or "cuda".
    """
    return _tensor(data)


@face_of(_hint_on_device)
def hint_on_device(
    data: Any, dst_vdevice: Any, memory_scope: str = "global", span: Span = UNKNOWN
) -> Call:
    if isinstance(dst_vdevice, VDevice):
        memory_scope = dst_vdevice.memory_scope
        dst_vdevice = f"{dst_vdevice.kind}:{dst_vdevice.vdevice_id}"
    try:
        kind, index = device_name(dst_vdevice)
    except VMError as error:
        raise StructInfoError(f"hint_on_device: {error}") from None
    return _hint_on_device.op.build(data, f"{kind}:{index}", memory_scope, span=span)
