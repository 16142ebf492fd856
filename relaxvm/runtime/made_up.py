"""Values for parameters that nobody gave: random numbers, zeros or ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..base import VMValueError
from . import dims
from .ndarray import NDArray, array
from .sinfo import PrimInfo, ShapeInfo, TensorInfo, TupleInfo

SIZE = 64
"""What a symbol counts as where a run has to be typical."""
_MOST_BYTES = 1 << 36


def value(
    name: str,
    param: Any,
    sizes: Mapping[str, int],
    rng: np.random.Generator,
    fill: str = "random",
) -> Any:
    """A value for a parameter.

    name   of the parameter, for errors
    param  what it wants, as `Executable.function` tells
    sizes  of the symbols in it
    fill   one of FILLS

    Raises VMValueError where nothing can be made up.
    """
    if isinstance(param, TupleInfo):
        fields = enumerate(param.fields)
        return tuple(value(f"{name}[{i}]", field, sizes, rng, fill) for i, field in fields)
    if isinstance(param, ShapeInfo) and param.values is not None:
        return tuple(dims.evaluate(d, sizes) for d in param.values)
    if isinstance(param, PrimInfo):
        return 0 if param.value is None else dims.evaluate(param.value, sizes)
    if not isinstance(param, TensorInfo) or param.shape is None:
        raise VMValueError(f"{name}: {param} has no shape to make up; an array has to be given")
    shape = tuple(int(dims.evaluate(d, sizes)) for d in param.shape)
    if any(d < 0 for d in shape) or math.prod(shape) * 8 > _MOST_BYTES:
        raise VMValueError(f"{name}: a shape of {list(shape)} is not made up")
    return FILLS[fill](shape, str(param.dtype or "float32"), rng)


def _random(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> NDArray:
    if dtype.startswith(("int", "uint", "bool")):
        return array(rng.integers(0, 2, shape).astype(dtype), dtype=dtype)
    return array(rng.standard_normal(shape, "float32"), dtype=dtype)


FILLS: dict[str, Callable[[tuple[int, ...], str, np.random.Generator], NDArray]] = {
    "random": _random,
    "zeros": lambda shape, dtype, _: array(np.zeros(shape, "float32"), dtype=dtype),
    "ones": lambda shape, dtype, _: array(np.ones(shape, "float32"), dtype=dtype),
}
"""Random are normal floats, and integers 0 and 1, which are in every table that they may index."""
