"""From what the caller of a VM function passes to what the function gets.

Arrays of any kind become NDArrays without a copy, unless they have gaps: programs see only
C-contiguous arrays, so those are copied here. Tuples and lists follow the parameter's struct info.
Whether shapes and dtypes fit is checked by the program itself, which the compiler made to do so;
here only the kinds are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..base import DataType, VMTypeError, VMValueError
from .builtin import VMClosure
from .check import got, number_of, plain_number
from .interpreter import contiguous
from .ndarray import NDArray, ShapeTuple, as_ndarray
from .nested import is_nest, map_leaves
from .program import FunctionInfo
from .sequence import VMSequence, is_sequence
from .sinfo import (
    FuncInfo,
    Info,
    ObjectInfo,
    PrimInfo,
    SequenceInfo,
    ShapeInfo,
    TensorInfo,
    TupleInfo,
)

Converter = Callable[[Any], Any]

_INT64 = DataType("int64")


def converters_of(info: FunctionInfo) -> tuple[Converter, ...]:
    """One converter per parameter of `info`.

    They raise VMTypeError naming function, parameter, wanted and got.
    """
    return tuple(
        _converter(param, f"{info.name}: parameter {name}")
        for name, param in zip(info.param_names, info.params)
    )


def _converter(info: Info, where: str) -> Converter:
    return _MAKERS[type(info)](info, where)


def _tensor(info: Any, where: str) -> Converter:
    def convert(value: Any) -> NDArray:
        if type(value) is NDArray:
            return contiguous(value)
        try:
            return contiguous(as_ndarray(value))
        except VMTypeError as error:
            raise VMTypeError(f"{where}: wanted {info}, got {got(value)}: {error}") from None

    return convert


def _shape(info: Any, where: str) -> Converter:
    def convert(value: Any) -> ShapeTuple:
        if isinstance(value, (tuple, list)):
            try:
                shape = value if type(value) is ShapeTuple else ShapeTuple(value)
            except VMTypeError as error:
                raise VMTypeError(f"{where}: wanted {info}: {error}") from None
            for axis, size in enumerate(shape):
                if not _INT64.min_value <= size <= _INT64.max_value:
                    raise VMValueError(f"{where}: axis {axis}: {got(size)} does not fit int64")
            return shape
        raise VMTypeError(f"{where}: wanted {info}, a tuple of ints, got {got(value)}")

    return convert


def _prim(info: Any, where: str) -> Converter:
    dtype = info.dtype
    known = dtype.is_bool or dtype.is_int or dtype.is_float

    def convert(value: Any) -> Any:
        value = plain_number(value)
        try:
            number = number_of(value, dtype) if known else value
        except OverflowError:
            raise VMValueError(f"{where}: {got(value)} does not fit {dtype}") from None
        if number is None and known:
            raise VMTypeError(f"{where}: wanted {info}, got {got(value)}")
        return number

    return convert


def _tuple(info: Any, where: str) -> Converter:
    fields = [_converter(field, f"{where}[{i}]") for i, field in enumerate(info.fields)]

    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (tuple, list)):
            raise VMTypeError(f"{where}: wanted {info}, got {got(value)}")
        if len(value) != len(fields):
            raise VMTypeError(
                f"{where}: wanted a tuple of {len(fields)}, got {len(value)} elements"
            )
        converted = tuple([field(item) for field, item in zip(fields, value)])
        # What needs no conversion stays the object it is.
        if type(value) is tuple and all(a is b for a, b in zip(converted, value)):
            return value
        return converted

    return convert


def _sequence(info: Any, where: str) -> Converter:
    convert_item = _converter(info.element, f"{where}: an element")

    def convert(value: Any) -> VMSequence:
        if not is_sequence(value):
            raise VMTypeError(f"{where}: wanted {info}, a list, got {got(value)}")
        # One that a program made is as it should be.
        return value if type(value) is VMSequence else VMSequence(map(convert_item, value))

    return convert


def _func(info: Any, where: str) -> Converter:
    def convert(value: Any) -> Any:
        if not callable(value):
            raise VMTypeError(f"{where}: wanted a function, got {got(value)}")
        return value

    return convert


def _object(info: Any, where: str) -> Converter:
    return lambda value: as_value(value, where)


def as_value(value: Any, where: str) -> Any:
    """`value` where nothing is known about what is wanted."""
    kind = type(value)
    if kind is NDArray:
        return contiguous(value)
    if kind in (int, float, bool, str, ShapeTuple, VMClosure) or value is None:
        return value
    if is_nest(value):
        return map_leaves(value, lambda leaf: as_value(leaf, where))
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(kind, "__dlpack__"):
        try:
            return contiguous(as_ndarray(value))
        except VMTypeError as error:
            raise VMTypeError(f"{where}: {error}") from None
    return value


def convert(value: Any) -> Any:
    """`value` as programs see it (TVM's `convert`): arrays NDArrays, lists tuples, the rest as it
    is.
    """
    return as_value(value, "convert")


_MAKERS: dict[type, Callable[[Any, str], Converter]] = {
    TensorInfo: _tensor,
    ShapeInfo: _shape,
    PrimInfo: _prim,
    TupleInfo: _tuple,
    SequenceInfo: _sequence,
    FuncInfo: _func,
    ObjectInfo: _object,
}
