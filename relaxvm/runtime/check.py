"""Checks of values against struct info at the borders of a VM function.

`context` texts come from the compiler, such as ``main: parameter x: Tensor((n, 64), float32)``, and
begin each message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..base import DataType, NamedTuple, VMTypeError, VMValueError
from .dims import Dim, evaluate, format_dim, is_symbol, symbols_of
from .ndarray import NDArray, ShapeTuple
from .sequence import VMSequence, is_sequence
from .sinfo import (
    INFO_TYPES,
    FuncInfo,
    Info,
    PrimInfo,
    SequenceInfo,
    ShapeInfo,
    TensorInfo,
    TupleInfo,
)

_Check = Callable[[Any], Any]


class Demand(NamedTuple):
    """What a check of a constant kind demands of a tensor; whoever knows that may leave it out.

    ndim  -1: any        dtype, shape  None: any
    """

    dtype: DataType | None = None
    ndim: int = -1
    shape: tuple[int, ...] | None = None


def tensor_text(array: NDArray | np.ndarray, dtype: DataType | None = None) -> str:
    """``Tensor((3, 4), float32)`` for a message."""
    dims = ", ".join(map(str, array.shape)) + ("," if array.ndim == 1 else "")
    return f"Tensor(({dims}), {dtype or array.dtype})"


def got(value: object) -> str:
    """A short description of a run-time value for a message."""
    if isinstance(value, (NDArray, np.ndarray)):
        return tensor_text(value)
    if type(value) is ShapeTuple:
        return f"Shape({shape_text(value)})"
    if value is None:
        return "None"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, (list, VMSequence)):
        return f"{'list' if isinstance(value, list) else 'a sequence'} of {len(value)}"
    if isinstance(value, (bool, int, float, str)):
        text = short_number(value) if isinstance(value, int) else str(value)[:80]
        return f"{type(value).__name__} {text}"
    return type(value).__name__


def shape_text(values: tuple[Any, ...]) -> str:
    """A tuple of what should be ints, for a message; safe whatever it holds."""
    shown = [short_number(v) if isinstance(v, int) else type(v).__name__ for v in values[:12]]
    return f"({', '.join(shown)}{', ...' if len(values) > 12 else ',' if len(values) == 1 else ''})"


def short_number(value: float) -> str:
    """`value` as text for a message."""
    # str() of a huge int is slow, and refused by Python past some size.
    return str(value) if -(1 << 127) < value < 1 << 127 else "of more than 127 bits"


def plain_number(value: Any) -> Any:
    """A numpy number or an array without axes as a Python number; all else as it is."""
    is_array = isinstance(value, (np.generic, np.ndarray, NDArray))
    return value.item() if is_array and value.ndim == 0 else value


def number_of(value: Any, dtype: DataType) -> int | float | bool | None:
    """A Python number as one of `dtype`; None if it is of another kind. Raises OverflowError for
    one that does not fit.
    """
    if dtype.is_bool:
        return bool(value) if isinstance(value, int) and value in (0, 1) else None
    if dtype.is_float:
        return float(value) if isinstance(value, (int, float)) else None
    if not isinstance(value, int):
        return None
    if not dtype.min_value <= value <= dtype.max_value:
        raise OverflowError
    return int(value)


def as_condition(value: Any, what: str = "if") -> bool:
    """A bool, an int, or a tensor of one bool or int as a condition.

    Raises VMTypeError for anything else.
    """
    if type(value) is bool or type(value) is int:
        return bool(value)
    if type(value) is NDArray and value.size == 1 and not value.dtype.is_float:
        return bool(value.item())
    raise VMTypeError(f"{what}: wanted a bool or a bool tensor with one element, got {got(value)}")


def _known(dtype: Any) -> DataType | None:
    """A dtype as the program says it, None if it says none."""
    return dtype if type(dtype) is DataType and dtype.kind != "void" else None


def tensor_info_of(ndim: Any, dtype: Any, context: Any) -> _Check:
    """Raise VMTypeError unless `value` is a tensor of `ndim` axes (-1: any) and `dtype` (None:
    any).
    """
    wanted = _known(dtype)
    axes, where = int(ndim), str(context)

    def check(value: Any) -> None:
        if type(value) is not NDArray:
            raise VMTypeError(f"{where}: wanted a tensor, got {got(value)}")
        if wanted is not None and value.dtype is not wanted:
            raise VMTypeError(f"{where}: wanted dtype {wanted}, got {got(value)}")
        if axes >= 0 and value.array.ndim != axes:
            raise VMTypeError(f"{where}: wanted {axes} dimensions, got {got(value)}")

    stating: Any = check
    stating.demand = Demand(wanted, axes)
    return check


def shape_info_of(ndim: Any, context: Any) -> _Check:
    """Raise VMTypeError unless `value` is a shape of `ndim` sizes (-1: any)."""
    length, where = int(ndim), str(context)

    def check(value: Any) -> None:
        if type(value) is not ShapeTuple:
            raise VMTypeError(f"{where}: wanted a shape, got {got(value)}")
        if length >= 0 and len(value) != length:
            raise VMTypeError(f"{where}: wanted {length} dimensions, got {got(value)}")

    return check


def prim_info_of(dtype: Any, context: Any) -> _Check:
    """Raise VMTypeError unless `value` is a number of `dtype`, VMValueError if out of range."""
    wanted, where = DataType(dtype), str(context)

    def check(value: Any) -> None:
        if wanted.is_bool:
            fits = type(value) is bool or (type(value) is int and value in (0, 1))
        elif wanted.is_int:
            fits = type(value) is int
            if fits and not wanted.min_value <= value <= wanted.max_value:
                raise VMValueError(f"{where}: {got(value)} does not fit {wanted}")
        elif wanted.is_float:
            fits = type(value) is float or type(value) is int
        else:
            fits = True
        if not fits:
            raise VMTypeError(f"{where}: wanted a {wanted}, got {got(value)}")

    return check


def tuple_info_of(count: Any, context: Any) -> _Check:
    """Raise VMTypeError unless `value` is a tuple of `count` elements."""
    wanted, where = int(count), str(context)

    def check(value: Any) -> None:
        if not isinstance(value, tuple) or type(value) is ShapeTuple:
            raise VMTypeError(f"{where}: wanted a tuple of {wanted}, got {got(value)}")
        if len(value) != wanted:
            raise VMTypeError(f"{where}: wanted a tuple of {wanted}, got {len(value)} elements")

    return check


def sequence_info_of(ndim: Any, dtype: Any, context: Any) -> _Check:
    """Raise VMTypeError unless `value` is a sequence, of tensors of `ndim` axes (-1: any) and
    `dtype` (None: any values).
    """
    wanted = _known(dtype)
    axes, where = int(ndim), str(context)
    check_item = tensor_info_of(ndim, dtype, where)

    def check(value: Any) -> None:
        if not is_sequence(value):
            raise VMTypeError(f"{where}: wanted a sequence, a list, got {got(value)}")
        known = (value.dtype, value.ndim) if type(value) is VMSequence else ()
        if (wanted is None or wanted in known) and (axes == -1 or axes in known):
            return
        for item in value:
            check_item(item)

    return check


def func_info_of(context: Any) -> _Check:
    """Raise VMTypeError unless `value` can be called."""
    where = str(context)

    def check(value: Any) -> None:
        if not callable(value):
            raise VMTypeError(f"{where}: wanted a function, got {got(value)}")

    return check


def result_of(info: Any, context: Any, heap: Any = None) -> _Check:
    """`value`, if it fits `info`; raises VMTypeError or VMValueError otherwise.

    Dimensions may use slots of `heap` (``$0``); a lone symbol that has no value there stands for
    any size, the same wherever it appears.
    """
    if not isinstance(info, INFO_TYPES):
        raise VMTypeError(f"check_result: wanted a struct info, got {got(info)}")
    where = str(context)

    def check(value: Any) -> Any:
        _match(info, value, where, {}, heap)
        return value

    return check


def _match(info: Info, value: Any, where: str, symbols: dict[str, int], heap: Any) -> None:
    if isinstance(info, TensorInfo):
        tensor_info_of(info.ndim, info.dtype, where)(value)
        if info.shape is not None:
            _match_dims(info.shape, value.array.shape, value, where, symbols, heap)
    elif isinstance(info, ShapeInfo):
        shape_info_of(info.ndim, where)(value)
        if info.values is not None:
            _match_dims(info.values, value, value, where, symbols, heap)
    elif isinstance(info, PrimInfo):
        prim_info_of(info.dtype, where)(value)
        if info.value is not None:
            _match_dims((info.value,), (value,), value, where, symbols, heap)
    elif isinstance(info, TupleInfo):
        tuple_info_of(len(info.fields), where)(value)
        for i, (field, item) in enumerate(zip(info.fields, value)):
            _match(field, item, f"{where}: element {i}", symbols, heap)
    elif isinstance(info, SequenceInfo):
        sequence_info_of(-1, None, where)(value)
        for i, item in enumerate(value):
            _match(info.element, item, f"{where}: element {i}", symbols, heap)
    elif isinstance(info, FuncInfo):
        func_info_of(where)(value)


def _match_dims(
    dims: tuple[Dim, ...], sizes: Any, value: Any, where: str, symbols: dict[str, int], heap: Any
) -> None:
    for axis, (dim, size) in enumerate(zip(dims, sizes)):
        name = is_symbol(dim)
        if name is not None and _lookup(name, symbols, heap) is None:
            symbols[name] = size
            continue
        names = set(symbols_of(dim))
        numbers = {s: v for s in names if (v := _lookup(s, symbols, heap)) is not None}
        if len(numbers) < len(names):
            continue
        wanted = evaluate(dim, numbers)
        if wanted != size:
            text = str(wanted) if type(dim) is int else f"{format_dim(dim)} = {wanted}"
            raise VMValueError(f"{where}: dimension {axis}: wanted {text}, got {got(value)}")


def _lookup(name: str, symbols: dict[str, int], heap: Any) -> int | None:
    number = symbols.get(name)
    return (
        heap.get(name) if number is None and heap is not None and hasattr(heap, "get") else number
    )
