"""Constants that are views with gaps, such as transposed weights, get memory of their own.

Weights are in memory once, and the system clears no memory for those after the first: a weight goes
when its copy is there, and the next of its size is copied to where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import getweakrefcount

import numpy as np

from .cpu_budget import begun_side_by_side, side_by_side, usable_cores
from .ndarray import NDArray, wrap_unchecked
from .result_memory import held_once
from .storage import Pages, aligned_copy, aligned_empty, memory_filled_by

# Such a one is copied by several threads, in parts.
_SHARED_BYTES, _SHARES = 1 << 25, 16


def _has_gaps(value: object) -> bool:
    return type(value) is NDArray and not value.array.flags.c_contiguous


def is_given_away(holder: Any) -> bool:
    """Whether the tensor ``holder.data`` is held by nothing else, and alone in memory that was
    filled from a file (`OnnxFile`) for a build: who has the holder may write there.
    """
    value = holder.data
    if not held_once(value) or _is_known_weakly(value):
        return False
    memory = memory_filled_by(value.array) if value.is_contiguous() else None
    return isinstance(getattr(memory, "base", None), Pages)


def _is_known_weakly(value: NDArray) -> bool:
    # Who knows it so may hold it until it is written over.
    return any(map(getweakrefcount, (value, value.array)))


def begun_without_gaps(
    constants: list[Any], replace: Callable[[int, NDArray], None]
) -> tuple[list[Any], Callable[[], None]]:
    """The constants without gaps; and what waits until threads have copied them.

    replace  puts the copy of a constant, by number, into the place of that in `constants`
    """
    by_size: dict[int, list[int]] = {}
    for number in range(len(constants)):
        if _has_gaps(constants[number]):
            by_size.setdefault(constants[number].array.nbytes, []).append(number)
    cores = usable_cores()
    # The longest first, of which nobody is to wait for the end.
    sizes = sorted(by_size, reverse=True)
    rows = [by_size[n][k::cores] for n in sizes for k in range(min(cores, len(by_size[n])))]
    copies: dict[int, NDArray] = {}
    for row in rows:
        memory = None
        for number in row:
            value = constants[number]
            copies[number] = _like(value, memory)
            unseen = held_once(value) and not _is_known_weakly(value)
            memory = memory_filled_by(value.array) if unseen else None

    def close(row: list[int]) -> None:
        for number in row:
            _copy(constants[number].array, copies[number].array)
            replace(number, copies[number])

    return [copies.get(i, c) for i, c in enumerate(constants)], begun_side_by_side(close, rows)


def _like(value: NDArray, memory: np.ndarray | None) -> NDArray:
    array = aligned_empty(value.array.shape, value.array.dtype, memory)
    return wrap_unchecked(array, value.dtype, value.device)


def _copy(source: np.ndarray, copy: np.ndarray) -> None:
    if copy.nbytes < _SHARED_BYTES:
        aligned_copy(source, copy=copy)
    else:
        axis = copy.shape.index(max(copy.shape))
        parts = [np.array_split(a, _SHARES, axis) for a in (source, copy)]
        side_by_side(lambda k: aligned_copy(parts[0][k], copy=parts[1][k]), range(_SHARES))
    copy.flags.writeable = source.flags.writeable
