"""What elementary functions mean, on numpy's float64: the reference for all dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def _of_c(f: Callable[[float], float]) -> Callable[[Any], Any]:
    of_each = np.frompyfunc(f, 1, 1)
    return lambda x: np.float64(of_each(x))


def _sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


# -- products of x with a part of 1 (see math_gates.py) --------------------------------------------


def _product(x: Any, y: Any) -> tuple[Any, Any]:
    """x * y and what it lacks, where nothing overflows (Dekker)."""

    def halves(v: Any) -> tuple[Any, Any]:
        moved = v * 134217729.0
        upper = moved - (moved - v)
        return upper, v - upper

    product, (a, b), (c, d) = x * y, halves(x), halves(np.float64(y))
    return product, ((a * c - product) + a * d + b * c) + b * d


def _gate(x: Any, v: Any, lack: Any) -> Any:
    """x sigmoid(v + lack). The part is subnormal before the product is: scaled meanwhile."""
    far = v < -64
    small = np.exp(np.where(far, v + 64, -np.abs(v))) * (1 + np.where(v > 0, -lack, lack))
    part = np.where(v > 0, 1.0, small) / np.where(far, 1.0, 1.0 + small)
    return x * part * np.where(far, math.exp(-64), 1.0)


def _silu(x: Any) -> Any:
    return _gate(x, x, 0.0)


def _mish(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    above, below = 1 + 2 * small, small * (small + 2)
    part = np.where(x > 0, above / (above + 2 * small * small), below / (below + 2))
    return np.where(x < -64, _gate(x, x, 0.0), x * part)


_SLOPE, _SLOPE_LOW = math.sqrt(8 / math.pi), -9.96930880911092e-17


def _gelu_tanh(x: Any) -> Any:
    y = np.clip(x, -30.0, 10.0)
    square, square_low = _product(y, y)
    bent, bent_low = _product(square, 0.044715 * _SLOPE)
    total = bent + _SLOPE
    back = total - bent
    low = (bent - (total - back)) + (_SLOPE - back) + bent_low + _SLOPE_LOW
    low = low + square_low * (0.044715 * _SLOPE) + square * -6.175149918155315e-19
    v, v_low = _product(y, total)
    return _gate(x, v, v_low + y * low)


def _gelu(x: Any) -> Any:
    """x / 2 erfc(-x / sqrt(2)), corrected by what the quotient lacks."""
    y = np.clip(x, -50.0, 40.0)
    z, low = _product(y, -math.sqrt(0.5))
    low = (low + y * 4.833646656726457e-17) * (2 / math.sqrt(math.pi))
    return 0.5 * x * (ELEMENTARY["erfc"](z) - low * np.exp(-z * z))


ELEMENTARY: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(np.float64(10), x),
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.float64(1) / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "erf": _of_c(math.erf),
    "erfc": _of_c(math.erfc),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "mish": _mish,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "nearbyint": np.rint,
    "trunc": np.trunc,
    "pow": np.float_power,  # np.power of scalars takes a wrong short cut at (-inf, 0.5)
    "atan2": np.arctan2,
    "fmod": np.fmod,
    "hypot": np.hypot,
}
"""Intrinsic -> what it means, of float64 numbers or arrays. Of other dtypes it is computed in
float64 and rounded once.
"""
