"""Arrays of text: numpy arrays of Python objects, of which every one is a `str`.

Nothing native reads them. A program moves and compares them by `vm.library.operator`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base import DataType, VMTypeError, VMValueError

STRING = DataType("string")
_TEXT = "OUT"


def holds_text(dtype: np.dtype) -> bool:
    """Whether arrays of numpy's `dtype` may hold text; objects still have to be looked at."""
    return dtype.kind in _TEXT


def strings_of(values: np.ndarray) -> np.ndarray:
    """The texts of an array of them (of numpy's text, or of objects) as `str`, in new memory.

    Raises VMTypeError for anything else, UTF-8 in bytes included, and VMValueError for half of a
    surrogate pair, which no file can hold.
    """
    result = np.empty(values.shape, object)
    flat = result.reshape(-1)
    for i, text in enumerate(values.reshape(-1)):
        if not isinstance(text, str):
            raise VMTypeError(
                f"wanted numbers or strings, got elements of dtype {values.dtype}: "
                f"{type(text).__name__} at element {i}"
            )
        flat[i] = str(text)
        if not text.isascii():
            _check_unicode(text, i)
    return result


def _check_unicode(text: str, place: int) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise VMValueError(f"the string at element {place} is no Unicode: {error}") from None


def numbers_to_strings(values: np.ndarray) -> np.ndarray:
    """Numbers as text: the shortest that reads back as the same one; "NaN", "INF", "-INF"."""
    result = np.empty(values.shape, object)
    flat = result.reshape(-1)
    for i, number in enumerate(values.reshape(-1)):
        flat[i] = str(number) if np.isfinite(number) else _not_finite(number)
    return result


def _not_finite(number: Any) -> str:
    return "NaN" if np.isnan(number) else "INF" if number > 0 else "-INF"


def strings_to_numbers(values: np.ndarray, dtype: DataType) -> np.ndarray:
    """Text as numbers: float64; where all texts are integers and `dtype` is one of them, int64 or
    uint64.

    Raises VMValueError, which shows it, for text that is no number.
    """
    flat = [_number(text, dtype, i) for i, text in enumerate(values.reshape(-1))]
    whole = dtype.is_int and all(type(n) is int for n in flat)
    kind = ("int64" if dtype.is_signed else "uint64") if whole else "float64"
    try:
        return np.array(flat, kind).reshape(values.shape)
    except OverflowError as error:
        raise VMValueError(f"a string holds no {dtype}: {error}") from None


def _number(text: str, dtype: DataType, place: int) -> int | float:
    if dtype.is_int:
        try:
            return int(text)
        except ValueError:
            pass  # 1e3 and 100.5 are numbers as well
    try:
        return float(text)
    except ValueError:
        shown = text if len(text) <= 40 else text[:40] + "..."
        raise VMValueError(f"wanted a number, got {shown!r} at element {place}") from None
