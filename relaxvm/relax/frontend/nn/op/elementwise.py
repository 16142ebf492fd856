"""Operators on elements: arithmetic, comparison, functions of one number; and sums over axes.

Two tensors broadcast as in numpy. A number takes the dtype of the tensor beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....base import submodules
from ..tensor import Tensor, apply

__getattr__ = submodules(__name__)


def _binary(op: str, meaning: str, hint: str | None = None) -> Callable[..., Tensor]:
    def apply_it(a: Any, b: Any, name: str = hint or op) -> Tensor:
        return apply(op, a, b, hint=name)

    return _documented(apply_it, op, f"{meaning}; `a` and `b` broadcast.")


def _unary(op: str, meaning: str) -> Callable[..., Tensor]:
    def apply_it(x: Tensor, name: str = op) -> Tensor:
        return apply(op, x, hint=name)

    return _documented(apply_it, op, f"{meaning}, of the shape and dtype of `x`.")


def _reduction(op: str, meaning: str) -> Callable[..., Tensor]:
    def apply_it(
        x: Tensor,
        axis: int | list[int] | tuple[int, ...] | None = None,
        keepdims: bool = False,
        name: str = op,
    ) -> Tensor:
        return apply(op, x, axis=axis, keepdims=keepdims, hint=name)

    return _documented(
        apply_it,
        op,
        f"{meaning} over the axes `axis` (None: all), which are left out of the shape or, with "
        "`keepdims`, have size 1.",
    )


def _documented(f: Callable[..., Tensor], name: str, text: str) -> Callable[..., Tensor]:
    f.__name__ = f.__qualname__ = name
    f.__doc__ = text
    return f


add = _binary("add", "a + b")
subtract = _binary("subtract", "a - b")
multiply = _binary("multiply", "a * b", "mul")
divide = _binary("divide", "a / b")
floor_divide = _binary("floor_divide", "a / b rounded down")
power = _binary("power", "a to the power of b")
maximum = _binary("maximum", "The larger of a and b")
minimum = _binary("minimum", "The smaller of a and b")
less = _binary("less", "Whether a < b, as bool")
less_equal = _binary("less_equal", "Whether a <= b, as bool")
greater = _binary("greater", "Whether a > b, as bool")
greater_equal = _binary("greater_equal", "Whether a >= b, as bool")
equal = _binary("equal", "Whether a and b are equal, as bool")
not_equal = _binary("not_equal", "Whether a and b differ, as bool")
logical_and = _binary("logical_and", "Whether both of two bools hold")
logical_or = _binary("logical_or", "Whether one of two bools holds")

abs = _unary("abs", "The absolute value")
ceil = _unary("ceil", "The least integer that is not below")
cos = _unary("cos", "The cosine of radians")
erf = _unary("erf", "The error function")
exp = _unary("exp", "e to the power of x")
floor = _unary("floor", "The largest integer that is not above")
log = _unary("log", "The natural logarithm")
logical_not = _unary("logical_not", "Whether a bool does not hold")
negative = _unary("negative", "-x")
round = _unary("round", "The nearest integer, the even one of two")
rsqrt = _unary("rsqrt", "1 / the square root")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x))")
sin = _unary("sin", "The sine of radians")
sqrt = _unary("sqrt", "The square root")
square = _unary("square", "x * x")
tan = _unary("tan", "The tangent of radians")
tanh = _unary("tanh", "The hyperbolic tangent")

sum = _reduction("sum", "The sum")
max = _reduction("max", "The largest element")
min = _reduction("min", "The smallest element")
mean = _reduction("mean", "The mean")
prod = _reduction("prod", "The product")
std = _reduction("std", "The standard deviation (of all, not of a sample)")
variance = _reduction("variance", "The variance (of all, not of a sample)")


def where(condition: Tensor, x1: Any, x2: Any, name: str = "where") -> Tensor:
    """`x1` where the bool tensor `condition` holds, else `x2`; all three broadcast."""
    if not isinstance(x1, Tensor) and isinstance(x2, Tensor):
        x1 = Tensor.from_scalar(x1, x2.dtype)
    elif not isinstance(x2, Tensor) and isinstance(x1, Tensor):
        x2 = Tensor.from_scalar(x2, x1.dtype)
    return apply("where", condition, x1, x2, hint=name)


def clip(x: Tensor, min: float, max: float, name: str = "clip") -> Tensor:
    """`x`, but not below `min` nor above `max`."""
    return apply("clip", x, min=min, max=max, hint=name)
