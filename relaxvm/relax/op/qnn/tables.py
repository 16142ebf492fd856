"""Quantised functions of one element: of 8 bits, all 256 results stand in a table."""

from __future__ import annotations

from typing import Any

from ....base import StructInfoError, submodules
from ...expr import const
from ...struct_info import Expr
from ..compound import compound
from ..names import ops
from ..quant_params import STORED
from ..record import Op, Operator
from .elementwise import rescaled
from .parameters import (
    BY_PLACE,
    BY_TABLE,
    ROUNDS,
    SMALL,
    check_output,
    distance,
    of_each,
    quantised,
    takes_numbers,
)

_SCALARS = ("input_scale", "input_zero_point")


def _unary(name: str, meaning: str, family: str = "") -> Operator[...]:
    real = f"relax.{family}{name}"

    def rule(
        x: Expr, scale: Expr, zero_point: Expr, output_scale: Expr, output_zero_point: Expr
    ) -> Expr:
        info = quantised(x, scale, zero_point, "x", ("scale", "zero_point"), None, STORED)
        check_output(output_scale, output_zero_point, info.dtype)

        of_real: Any = Op.get(real)

        def f(stored: Expr) -> Expr:
            y = of_real.function(ops.dequantize(stored, scale, zero_point))
            return ops.quantize(y, output_scale, output_zero_point, out_dtype=str(info.dtype))

        return of_each(x, f)

    rule.__name__ = rule.__qualname__ = name
    rule.__doc__ = f"""{meaning} of a quantised tensor, in its dtype: `quantize` of it of
    `dequantize`, in float32. Of 8 bits all 256 results stand in a table. Parameters are scalars.
    """
    BY_TABLE[real] = takes_numbers(compound(f"qnn.{name}", ROUNDS, BY_PLACE)(rule))
    return BY_TABLE[real]


abs = _unary("abs", "The absolute value")
erf = _unary("erf", "The error function")
exp = _unary("exp", "The exponential function")
gelu = _unary("gelu", "x times the normal distribution at x", "nn.")
hardswish = _unary("hardswish", "x * clip(x / 6 + 0.5, 0, 1)", "nn.")
log = _unary("log", "The natural logarithm")
rsqrt = _unary("rsqrt", "1 / sqrt(x)")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x))")
silu = _unary("silu", "x * sigmoid(x)", "nn.")
sqrt = _unary("sqrt", "The square root")
tanh = _unary("tanh", "The hyperbolic tangent")


@takes_numbers
@compound("qnn.leaky_relu", ROUNDS, BY_PLACE)
def leaky_relu(
    x: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    *,
    alpha: float,
) -> Expr:
    """x where it is positive, else alpha * x, requantised once (UPWARD): what is negative from the
    scale alpha * input_scale. `alpha` is positive and finite; parameters are scalars.
    """
    info = quantised(x, input_scale, input_zero_point, "x", _SCALARS, None, SMALL)
    check_output(output_scale, output_zero_point, info.dtype)
    if not 0 < alpha < float("inf"):
        raise StructInfoError(f"alpha: wanted a positive finite number, got {alpha}")
    slow = ops.multiply(ops.astype(input_scale, "float64"), const(alpha, "float64"))

    def f(stored: Expr) -> Expr:
        fast, slower = (
            rescaled(stored, s, input_zero_point, output_scale, output_zero_point, info.dtype)
            for s in (input_scale, slow)
        )
        negative = ops.less(distance(stored, input_zero_point), const(0, "int32"))
        return ops.where(negative, slower, fast)

    return of_each(x, f)


__getattr__ = submodules(__name__)
