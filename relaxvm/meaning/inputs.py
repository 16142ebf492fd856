"""Arguments for functions that nobody gave any: random numbers, special ones among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import to_numpy_dtype, values_to_bits
from ..ir import PrimExpr, walk
from ..ir import Var as TirVar
from ..relax import Function
from ..relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..runtime import (
    NDArray,
    ShapeTuple,
    wrap_unchecked,
)
from ..tir import evaluate_expr


class Unknown(Exception):
    """No value can be made for a parameter."""


class Inputs:
    """Makes arguments; symbols are `size`, then a little more, so that two of them differ if they
    may.
    """

    def __init__(self, rng: np.random.Generator, size: int, special: bool) -> None:
        self.rng, self.size, self.special = rng, size, special
        self.symbols: dict[TirVar, int] = {}

    def argument(self, fn: Any, param: Any) -> Any:
        """A value for a parameter of a graph or loop function."""
        if isinstance(fn, Function):
            return self.value(param.struct_info, param.name_hint)
        buffer = fn.buffer_map.get(param)
        if buffer is None:
            if param.dtype.is_handle:
                raise Unknown(f"{param.name} is a bare pointer")
            return self.number(param) if param.dtype.is_int else 1.5
        if buffer.strides or buffer.dtype.lanes > 1:
            raise Unknown(f"{buffer.name} has strides or vectors")
        return self.tensor(buffer.shape, buffer.dtype)

    def value(self, info: StructInfo, name: str) -> Any:
        """A value of `info`."""
        if isinstance(info, TupleStructInfo):
            return tuple(self.value(f, name) for f in info.fields)
        if isinstance(info, TensorStructInfo) and info.dims is not None and info.dtype != "void":
            return self.tensor(info.dims, info.dtype)
        if isinstance(info, ShapeStructInfo) and info.values is not None:
            return ShapeTuple([self.number(d) for d in info.values])
        if isinstance(info, PrimStructInfo) and info.dtype.is_int:
            return self.size if info.value is None else self.number(info.value)
        raise Unknown(f"nothing is known of {name} but {info}")

    def number(self, e: PrimExpr) -> int:
        """The value of a dimension; symbols in it get theirs."""
        if isinstance(e, TirVar):
            return self.symbols.setdefault(e, self.size)
        if all(v in self.symbols for v in _symbols(e)):
            return int(evaluate_expr(e, self.symbols))
        raise Unknown(f"the symbols of {e} are not known yet")

    def tensor(self, dims: Sequence[PrimExpr], dtype: Any) -> NDArray:
        """An array of random numbers, special ones among them if so wanted."""
        shape = [self.number(d) for d in dims]
        if any(n < 0 for n in shape):
            raise Unknown(f"shape {shape} cannot be")
        if dtype.is_bool:
            elements: Any = self.rng.integers(0, 2, shape).astype(bool)
        elif np.issubdtype(to_numpy_dtype(dtype), np.integer) and not dtype.is_bits:
            elements = self.rng.integers(0, 3, shape).astype(to_numpy_dtype(dtype))
        elif dtype.is_float or dtype.is_bits:
            elements = self.rng.normal(size=shape)
            if self.special and elements.size:
                values = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0])
                places = self.rng.integers(0, elements.size, min(5, 1 + elements.size // 4))
                elements.reshape(-1)[places] = values[: len(places)]
            if dtype.is_bits:
                elements = values_to_bits(elements.astype(np.float32), dtype)
            elements = elements.astype(to_numpy_dtype(dtype), copy=False)
        else:
            raise Unknown(f"no numbers of {dtype} can be made")
        return wrap_unchecked(np.ascontiguousarray(elements).reshape(shape), dtype)


def _symbols(e: PrimExpr) -> list[TirVar]:
    return [n for n in walk(e) if isinstance(n, TirVar)]
