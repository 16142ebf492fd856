"""What a kernel's failure numbers say to the user: kernel, parameter, wanted, got, and why."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ..base import DataType, VMError, VMTypeError, VMValueError
from .check import short_number, tensor_text
from .dims import Dim, Scalar, evaluate, format_dim, is_symbol, symbols_of
from .kernel import Failure, KernelInfo, KernelParam
from .ndarray import NDArray
from .registry import nearest_names

_BFLOAT16 = DataType("bfloat16")


def where_text(info: KernelInfo, i: int) -> str:
    return f"{info.name}: argument {i} ({info.params[i].name})"


def wanted_text(param: KernelParam) -> str:
    if param.kind == "scalar":
        return f"a Python number for {param.dtype}"
    return str(param).split(": ", 1)[1]


def _got(value: object) -> str:
    if isinstance(value, (NDArray, np.ndarray)):
        return tensor_text(value)
    return f"{type(value).__name__} {reprlib.repr(value)}"[:200]


def raise_wrong_kind(info: KernelInfo, i: int, value: object) -> NoReturn:
    param = info.params[i]
    if param.kind == "tensor" and isinstance(value, (NDArray, np.ndarray)):
        raise_for_failure(info, Failure("dtype", i), [None] * i + [value])
    if (
        param.kind == "scalar"
        and isinstance(value, int)
        and not isinstance(value, bool)
        and not param.dtype.is_bool
    ):
        low, high = param.dtype.min_value, param.dtype.max_value
        raise VMValueError(
            f"{where_text(info, i)}: wanted a {param.dtype} ({low} to {high}), "
            f"got {short_number(value)}"
        )
    raise VMTypeError(f"{where_text(info, i)}: wanted {wanted_text(param)}, got {_got(value)}")


def raise_for_failure(info: KernelInfo, failure: Failure, args: Sequence[Any]) -> NoReturn:
    i, kind = failure.param, failure.kind
    if kind == "assert":
        raise VMValueError(f"{info.name}: assertion failed: {failure.message or 'no message'}")
    where, param, value = where_text(info, i), info.params[i], args[i] if i < len(args) else None
    text = f"{where}: wanted {wanted_text(param)}, got {_got(value)}"
    note = f"\n  {failure.message}" if failure.message else ""
    if kind in ("kind", "ndim", "dtype"):
        raise VMTypeError(text + _dtype_hint(param, value) + note)
    if kind == "align":
        size = param.dtype.itemsize
        text = f"{where}: the data is not aligned to its {size}-byte elements"
    elif kind == "readonly":
        text = f"{where}: wanted a writeable array for an output, got a read-only one"
    elif kind == "strides":
        strides = getattr(value, "strides", "?")
        declared = "a C-contiguous array"
        if param.strides is not None:
            declared = f"strides ({', '.join(map(format_dim, param.strides))}) in elements"
        text = f"{where}: wanted {declared}, got {_got(value)} with strides {strides} in bytes"
    elif kind == "alias":
        text = (
            f"{info.name}: parameters {param.name} and {info.params[failure.other].name} overlap "
            "in memory, and one of them is written; give arrays that do not share memory"
        )
    else:
        text += _shape_reason(info, failure, args)
    raise VMValueError(text + note)


def _dtype_hint(param: KernelParam, value: object) -> str:
    if param.dtype is _BFLOAT16 and str(getattr(value, "dtype", "")) == "uint16":
        return "; bits of bfloat16 become an array by relaxvm.nd.array(bits, dtype='bfloat16')"
    return ""


def _shape_reason(info: KernelInfo, failure: Failure, args: Sequence[Any]) -> str:
    """Which axis, and where the values of the symbols it depends on came from."""
    axis = failure.axis
    if axis < 0:
        return ""
    param, value = info.params[failure.param], args[failure.param]
    if not 0 <= axis < len(value.shape):
        return ""
    dim = param.shape[axis]
    values, origins = bindings(info, args, (failure.param, axis))
    names = dict.fromkeys(symbols_of(dim))
    sources = "; ".join(f"{s} is {values[s]} from {origins[s]}" for s in names if s in values)
    try:
        wanted = f"{format_dim(dim)} = {evaluate(dim, values)}" if names else str(dim)
    except VMError:
        wanted = format_dim(dim)
    return f": axis {axis}: wanted {wanted}, got {value.shape[axis]}" + (
        f" ({sources})" if sources else ""
    )


def bindings(
    info: KernelInfo, args: Sequence[Any], failed: tuple[int, int] = (-1, -1)
) -> tuple[dict[str, Scalar], dict[str, str]]:
    """The value of each symbol and where it came from. As in the wrapper, the first place binds.

    failed  a parameter and an axis of it whose size says nothing
    """
    values: dict[str, Scalar] = {}
    origins: dict[str, str] = {}

    def bind(dim: Dim, value: int, origin: str) -> None:
        name = is_symbol(dim)
        if name is not None and name not in values:
            values[name], origins[name] = value, origin

    for param, arg in zip(info.params, args):
        if param.kind == "scalar" and isinstance(arg, int):
            values[param.name], origins[param.name] = arg, f"argument {param.name}"
    for i, (param, arg) in enumerate(zip(info.params, args)):
        if (
            param.kind == "scalar"
            or not isinstance(arg, (NDArray, np.ndarray))
            or len(arg.shape) != len(param.shape)
        ):
            continue
        for axis, dim in enumerate(param.shape):
            if (i, axis) != failed:
                bind(dim, arg.shape[axis], f"{param.name}.shape[{axis}]")
        for axis, dim in enumerate(param.strides or ()):
            bind(dim, arg.strides[axis] // param.dtype.itemsize, f"{param.name}.strides[{axis}]")
    return values, origins


def missing_kernel(name: str, kernels: Mapping[str, Any]) -> VMValueError:
    """The error for a kernel that does not exist: lists those that do."""
    names = list(kernels)
    listed = ", ".join(names[:20]) + (" ..." if len(names) > 20 else "")
    return VMValueError(
        f"no kernel is called {name!r}{nearest_names(name, names)}; there are: {listed or 'none'}"
    )
