"""Activations and softmax.

16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .... import tir
from ....base import StructInfoError
from ....ir import GT, Max, Min, PrimExpr, Select, cast, const, is_const
from ....te import Tensor, compute, reduce_axis
from ....te import sum as te_sum
from ...expr import Call
from ...rules import Ops
from ...struct_info import Expr, StructInfo, TensorStructInfo
from ..infer import FLOAT, NUMBER, axis_of, same_dtype, tensor
from ..lower import elementwise, in_float32, te_lower
from ..meaning import elementary, in_wider
from ..record import ELEMENTWISE, op
from ..sizes import want_equal
from .window import greatest


def _rules(
    numpy: Callable[..., Any],
    scalar: Callable[..., PrimExpr],
    grad: Callable[..., Any],
    exact: bool = False,
) -> dict[str, Any]:
    """The record of an operator on `data`, element by element; attributes come by keyword.

    grad   (ops, x, y, gy, **attrs) -> gradient
    exact  nothing is rounded, so nothing is gained one width up
    """

    def te_function(data: Tensor, **attrs: Any) -> Tensor:
        def formula(v: PrimExpr) -> PrimExpr:
            return scalar(v, **attrs)

        return elementwise(data, formula if exact else in_float32(formula))

    return {
        "numpy": numpy if exact else in_wider(numpy),
        "lower": te_lower(te_function),
        "grad": lambda ops, call, y, gy: (grad(ops, call.args[0], y, gy, **dict(call.attrs)),),
        "layout": ELEMENTWISE,
    }


def _like(x: PrimExpr, value: float) -> PrimExpr:
    return const(value, x.dtype)


# -- piecewise linear -----------------------------------------------------------------------------


@op(
    "nn.relu",
    **_rules(
        lambda x: np.maximum(x, np.zeros((), x.dtype)),
        lambda x: Max(x, _like(x, 0)),
        lambda ops, x, y, gy: ops.where(x > 0.0, gy, 0.0),
        exact=True,
    ),
)
def relu(data: Expr) -> StructInfo:
    """max(data, 0), of numbers. Raises StructInfoError for bool."""
    return tensor(data, "data", NUMBER)


@op(
    "nn.relu6",
    **_rules(
        lambda x: np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(6)),
        lambda x: Min(Max(x, _like(x, 0)), _like(x, 6)),
        lambda ops, x, y, gy: ops.where(ops.logical_and(x > 0.0, x < 6.0), gy, 0.0),
        exact=True,
    ),
)
def relu6(data: Expr) -> StructInfo:
    """min(max(data, 0), 6), of numbers. Raises StructInfoError for bool."""
    return tensor(data, "data", NUMBER)


@op(
    "nn.leakyrelu",
    **_rules(
        lambda x, alpha: np.where(x > 0, x, alpha * x),
        lambda x, alpha: Select(GT(x, _like(x, 0)), x, x * _like(x, alpha)),
        lambda ops, x, y, gy, alpha: ops.where(x > 0.0, gy, gy * alpha),
    ),
)
def leakyrelu(data: Expr, alpha: float = 0.01) -> StructInfo:
    """data where it is positive, else alpha * data. Raises StructInfoError if it is not float."""
    return tensor(data, "data", FLOAT)


def _hardsigmoid(x: PrimExpr, alpha: float, beta: float) -> PrimExpr:
    return Min(Max(x * _like(x, alpha) + _like(x, beta), _like(x, 0)), _like(x, 1))


def _hardsigmoid_grad(ops: Ops, x: Any, y: Expr, gy: Expr, alpha: float, beta: float) -> Any:
    return ops.where(ops.logical_and(y > 0.0, y < 1.0), gy * alpha, 0.0)


@op(
    "nn.hardsigmoid",
    **_rules(
        lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1).astype(x.dtype),
        _hardsigmoid,
        _hardsigmoid_grad,
    ),
)
def hardsigmoid(data: Expr, alpha: float = 1.0 / 6.0, beta: float = 0.5) -> StructInfo:
    """min(max(alpha * data + beta, 0), 1). Raises StructInfoError if `data` is not float."""
    return tensor(data, "data", FLOAT)


def _hardswish_grad(ops: Ops, x: Any, y: Expr, gy: Expr) -> Any:
    inner = ops.where(x < 3.0, gy * (x * (1.0 / 3.0) + 0.5), gy)
    return ops.where(x > -3.0, inner, 0.0)


@op(
    "nn.hardswish",
    **_rules(
        lambda x: x * np.clip(x / 6.0 + 0.5, 0, 1),
        lambda x: x * _hardsigmoid(x, 1.0 / 6.0, 0.5),
        _hardswish_grad,
    ),
)
def hardswish(data: Expr) -> StructInfo:
    """data * min(max(data / 6 + 1/2, 0), 1). Raises StructInfoError if `data` is not float."""
    return tensor(data, "data", FLOAT)


# -- exponential below zero -----------------------------------------------------------------------

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _negative(x: PrimExpr) -> PrimExpr:
    """x where it is negative, else 0: keeps exp from overflowing on the side that is not taken."""
    return Min(x, _like(x, 0))


def _elu(x: PrimExpr, alpha: float) -> PrimExpr:
    return Select(GT(x, _like(x, 0)), x, tir.expm1(_negative(x)) * _like(x, alpha))


@op(
    "nn.elu",
    **_rules(
        lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
        _elu,
        lambda ops, x, y, gy, alpha: ops.where(
            x > 0.0, gy, gy * (ops.exp(ops.minimum(x, 0.0)) * alpha)
        ),
    ),
)
def elu(data: Expr, alpha: float = 1.0) -> StructInfo:
    """data where it is positive, else alpha * (exp(data) - 1).

    Raises StructInfoError if `data` is not float.
    """
    return tensor(data, "data", FLOAT)


@op(
    "nn.selu",
    **_rules(
        lambda x: _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(np.minimum(x, 0))),
        lambda x: _elu(x, _SELU_ALPHA) * _like(x, _SELU_SCALE),
        lambda ops, x, y, gy: (
            ops.where(x > 0.0, gy, gy * (ops.exp(ops.minimum(x, 0.0)) * _SELU_ALPHA)) * _SELU_SCALE
        ),
    ),
)
def selu(data: Expr) -> StructInfo:
    """1.0507 * elu(data, alpha=1.6733): self-normalising. Raises StructInfoError if not float."""
    return tensor(data, "data", FLOAT)


@op(
    "nn.celu",
    **_rules(
        lambda x, alpha: np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0) / alpha),
        lambda x, alpha: (
            Max(x, _like(x, 0)) + tir.expm1(_negative(x) / _like(x, alpha)) * _like(x, alpha)
        ),
        lambda ops, x, y, gy, alpha: ops.where(
            x > 0.0, gy, gy * ops.exp(ops.minimum(x, 0.0) / alpha)
        ),
    ),
)
def celu(data: Expr, alpha: float = 1.0) -> StructInfo:
    """max(data, 0) + alpha * (exp(min(data, 0) / alpha) - 1).

    Raises StructInfoError if `data` is not float or `alpha` is 0.
    """
    if alpha == 0:
        raise StructInfoError("alpha: wanted a number other than 0, got 0")
    return tensor(data, "data", FLOAT)


# -- smooth ---------------------------------------------------------------------------------------


def _gelu_grad(ops: Ops, x: Any, y: Expr, gy: Expr) -> Any:
    below = (ops.erf(x * math.sqrt(0.5)) + 1.0) * 0.5
    density = ops.exp(x * x * -0.5) * (1.0 / math.sqrt(2 * math.pi))
    return gy * (below + x * density)


@op(
    "nn.gelu",
    **_rules(
        elementary("gelu"),
        tir.gelu,
        _gelu_grad,
    ),
)
def gelu(data: Expr) -> StructInfo:
    """data times the normal distribution's share below it. Raises StructInfoError if not float."""
    return tensor(data, "data", FLOAT)


_GELU_SLOPE, _GELU_CUBE = math.sqrt(2 / math.pi), 0.044715


def _gelu_tanh_grad(ops: Ops, x: Any, y: Expr, gy: Expr) -> Any:
    bent = ops.tanh((x + x * x * x * _GELU_CUBE) * _GELU_SLOPE)
    slope = (x * x * (3.0 * _GELU_CUBE) + 1.0) * _GELU_SLOPE
    return gy * ((bent + 1.0) * 0.5 + x * 0.5 * (1.0 - bent * bent) * slope)


@op(
    "nn.gelu_tanh",
    **_rules(
        elementary("gelu_tanh"),
        tir.gelu_tanh,
        _gelu_tanh_grad,
    ),
)
def gelu_tanh(data: Expr) -> StructInfo:
    """`gelu`, approximated with tanh. Raises StructInfoError if `data` is not float."""
    return tensor(data, "data", FLOAT)


def _silu_grad(ops: Ops, x: Any, y: Expr, gy: Expr) -> Any:
    s = ops.sigmoid(x)
    return gy * (s * (x * (1.0 - s) + 1.0))


@op("nn.silu", **_rules(elementary("silu"), tir.silu, _silu_grad))
def silu(data: Expr) -> StructInfo:
    """data * sigmoid(data). Raises StructInfoError if `data` is not float."""
    return tensor(data, "data", FLOAT)


def _softplus(x: PrimExpr) -> PrimExpr:
    """log(1 + exp(x)) without overflow and without loss of small results."""
    return Max(x, _like(x, 0)) + tir.log1p(tir.exp(-tir.fabs(x)))


def _is_exact(beta: float) -> bool:
    """Whether a product by `beta` is not rounded: what exp makes of a rounded one is far off."""
    return abs(math.frexp(beta)[0]) == 0.5


def _softplus_numpy(x: np.ndarray, beta: float, threshold: float) -> np.ndarray:
    scaled = (x if _is_exact(beta) else x.astype("float64")) * beta
    smooth = (np.maximum(scaled, 0) + np.log1p(np.exp(-np.abs(scaled)))) / beta
    return np.where(scaled > threshold, x, smooth).astype(x.dtype)


def _softplus_scaled(x: PrimExpr, beta: float, threshold: float) -> PrimExpr:
    wide = x if _is_exact(beta) else cast("float64", x)
    scaled = wide * _like(wide, beta)
    smooth = cast(x.dtype, _softplus(scaled) / _like(wide, beta))
    return Select(GT(scaled, _like(wide, threshold)), x, smooth)


@op(
    "nn.softplus",
    **_rules(
        _softplus_numpy,
        _softplus_scaled,
        lambda ops, x, y, gy, beta, threshold: ops.where(
            x * beta > threshold, gy, gy * ops.sigmoid(x * beta)
        ),
    ),
)
def softplus(data: Expr, beta: float = 1.0, threshold: float = 20.0) -> StructInfo:
    """log(1 + exp(beta * data)) / beta; data itself where beta * data > threshold.

    Raises StructInfoError if `data` is not float or `beta` is 0.
    """
    if beta == 0:
        raise StructInfoError("beta: wanted a number other than 0, got 0")
    return tensor(data, "data", FLOAT)


def _mish_grad(ops: Ops, x: Any, y: Expr, gy: Expr) -> Any:
    bent = ops.tanh(ops.nn.softplus(x))
    return gy * (bent + x * (1.0 - bent * bent) * ops.sigmoid(x))


@op("nn.mish", **_rules(elementary("mish"), tir.mish, _mish_grad))
def mish(data: Expr) -> StructInfo:
    """data * tanh(softplus(data)). Raises StructInfoError if `data` is not float."""
    return tensor(data, "data", FLOAT)


# -- prelu ----------------------------------------------------------------------------------------


def _alpha_shape(ndim: int, axis: int) -> list[int]:
    return [-1 if k == axis % ndim else 1 for k in range(ndim)]


def _prelu_numpy(data: np.ndarray, alpha: np.ndarray, *, axis: int) -> np.ndarray:
    slope = alpha.reshape(_alpha_shape(data.ndim, axis)) if alpha.size else alpha
    slope = np.broadcast_to(slope, data.shape) if data.size else np.zeros_like(data)
    return np.where(data > 0, data, data * slope).astype(data.dtype)


def _prelu_te(data: Tensor, alpha: Tensor, axis: int) -> Tensor:
    along = axis_of(axis, data.ndim)
    one = is_const(alpha.shape[0], 1)

    def value(*i: PrimExpr) -> PrimExpr:
        x, a = data(*i), alpha(const(0, i[along].dtype) if one else i[along])
        return Select(GT(x, const(0, x.dtype)), x, in_float32(lambda u, v: u * v)(x, a))

    return compute(data.shape, value, "prelu")


def _prelu_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, Any]:
    x, alpha = call.args
    info: Any = x.struct_info
    along = axis_of(call.attrs["axis"], info.ndim)
    others = [k for k in range(info.ndim) if k != along]
    slope = ops.expand_dims(alpha, axis=others) if others else alpha
    below: Any = x
    falls = ops.where(below > 0.0, 0.0, gy)
    ga = ops.sum(falls * x, axis=others) if others else falls * x
    slopes = alpha.struct_info
    assert isinstance(slopes, TensorStructInfo)
    if slopes.dims is not None and is_const(slopes.dims[0], 1):
        ga = ops.sum(ga, axis=[0], keepdims=True)
    return ops.where(below > 0.0, gy, gy * slope), ga


@op(
    "nn.prelu",
    numpy=_prelu_numpy,
    lower=te_lower(_prelu_te),
    grad=_prelu_grad,
)
def prelu(data: Expr, alpha: Expr, axis: int = 1) -> StructInfo:
    """data where it is positive, else data times the slope of its place along `axis`.

    alpha  one dimension: of the size of `axis`, or 1
    Raises StructInfoError if it is of another size or dtype, or `data` is not float.
    """
    info, slopes = tensor(data, "data", FLOAT), tensor(alpha, "alpha", FLOAT, 1)
    same_dtype((info, slopes), ("data", "alpha"))
    along = axis_of(axis, info.ndim)
    if not is_const(slopes.dims[0], 1):
        text = "alpha: wanted {b} slopes, as axis {axis} of data has, or 1; got {a}"
        want_equal(slopes.dims[0], info.dims[along], text, axis=along)
    return info


# -- softmax --------------------------------------------------------------------------------------


def _shifted(x: np.ndarray, axis: int) -> np.ndarray:
    return x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)


def _softmax_numpy(x: np.ndarray, *, axis: int) -> np.ndarray:
    if x.size == 0:
        return x
    e = np.exp(_shifted(x, axis))
    return e / np.sum(e, axis=axis, keepdims=True)


def _log_softmax_numpy(x: np.ndarray, *, axis: int) -> np.ndarray:
    if x.size == 0:
        return x
    low = _shifted(x, axis)
    return low - np.log(np.sum(np.exp(low), axis=axis, keepdims=True))


def _softmax_te(log: bool) -> Callable[..., Tensor]:
    def build(data: Tensor, axis: int) -> Tensor:
        along = axis_of(axis, data.ndim)
        wide = "float32" if data.dtype.bits == 16 else data.dtype
        rest = tuple(d for k, d in enumerate(data.shape) if k != along)

        def row(i: Any) -> tuple[PrimExpr, ...]:
            return tuple(v for k, v in enumerate(i) if k != along)

        def across(k: Any, i: Any) -> tuple[PrimExpr, ...]:
            return (*i[:along], k.var, *i[along:])

        k = reduce_axis((0, data.shape[along]), "k")
        # One width up, too: maxima of 16-bit floats are not taken by vectors.
        top = compute(rest, lambda *i: greatest(cast(wide, data(*across(k, i))), axis=[k]), "top")

        def shifted(i: Any) -> PrimExpr:
            return cast(wide, data(*i)) - top(*row(i))

        # Nothing is above 0: said so that the shorter formula of exp is taken.
        e = compute(data.shape, lambda *i: tir.exp(Min(shifted(i), const(0, wide))), "exp")
        r = reduce_axis((0, data.shape[along]), "r")
        total = compute(rest, lambda *i: te_sum(e(*across(r, i)), axis=[r]), "total")

        # One logarithm, or one division, for a row. The greatest element adds 1 to the total, so
        # that its inverse is a normal number.
        whole = compute(
            rest,
            lambda *i: tir.log(total(*i)) if log else const(1, total.dtype) / total(*i),
            "whole",
        )

        def value(*i: PrimExpr) -> PrimExpr:
            value_of = shifted(i) - whole(*row(i)) if log else e(*i) * whole(*row(i))
            return cast(data.dtype, value_of)

        return compute(data.shape, value, "softmax")

    return build


def _softmax_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any]:
    return (y * (gy - ops.sum(gy * y, axis=call.attrs["axis"], keepdims=True)),)


def _log_softmax_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any]:
    return (gy - ops.exp(y) * ops.sum(gy, axis=call.attrs["axis"], keepdims=True),)


def _along(data: Expr, axis: int) -> StructInfo:
    info = tensor(data, "data", FLOAT)
    axis_of(axis, info.ndim)
    return info


@op(
    "nn.softmax",
    numpy=in_wider(_softmax_numpy),
    lower=te_lower(_softmax_te(False)),
    grad=_softmax_grad,
)
def softmax(data: Expr, axis: int = -1) -> StructInfo:
    """exp(data) / sum(exp(data)) along `axis`, shifted so that nothing overflows.

    Raises StructInfoError if `data` is not float or has no such axis.
    """
    return _along(data, axis)


@op(
    "nn.log_softmax",
    numpy=in_wider(_log_softmax_numpy),
    lower=te_lower(_softmax_te(True)),
    grad=_log_softmax_grad,
)
def log_softmax(data: Expr, axis: int = -1) -> StructInfo:
    """The logarithm of `softmax` along `axis`, precise where that is small.

    Raises StructInfoError if `data` is not float or has no such axis.
    """
    return _along(data, axis)
