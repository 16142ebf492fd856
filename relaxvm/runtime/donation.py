"""Arguments that a call uses up: ``relax.build(mod, donate=["cache"])``.

A program may write its results over a donated array, and into the room that lies behind it. So it
gets memory that nobody else holds: the array's own where that is so, else a copy (of numpy arrays
and other libraries' tensors, of arrays with views, of one that is given twice). Either way an
`NDArray` given is used up: whoever looks at it afterwards is told so.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .ndarray import NDArray, use_up, wrap_unchecked
from .nested import map_leaves
from .program import FunctionInfo
from .result_memory import held_once
from .storage import aligned_copy


def taken(info: FunctionInfo, args: Sequence[Any], converted: Sequence[Any]) -> Sequence[Any]:
    """The arguments to run on: `converted` (from `args`), its donated ones in memory that is
    the program's alone. Uses `args` up.
    """
    if not info.donated:
        return converted
    leaves: list[Any] = []
    map_leaves(tuple(converted), leaves.append)
    times = Counter(map(id, leaves))
    leaves.clear()
    several: set[int] = set()

    def own(leaf: Any) -> Any:
        if type(leaf) is not NDArray:
            return leaf
        array = leaf.array
        if times[id(leaf)] > 1:
            several.add(id(leaf))
        if id(leaf) in several or not _writable(array) or not held_once(array):
            array = aligned_copy(array)
        return wrap_unchecked(array, leaf.dtype, leaf.device)

    def kept(leaf: Any) -> Any:
        """What is not donated here may be donated elsewhere."""
        if id(leaf) not in several:
            return leaf
        return wrap_unchecked(leaf.array, leaf.dtype, leaf.device)

    result = list(converted)
    for i in info.donated:
        result[i] = map_leaves((converted[i],), own)[0]
    if several:
        for i in {*range(len(result))} - {*info.donated}:
            result[i] = map_leaves((converted[i],), kept)[0]
    for i in info.donated:
        message = (
            f"this array was given to {info.name} as {info.param_names[i]}, which uses it up "
            "(donate): go on with what the call returned, or give a copy"
        )
        map_leaves((args[i],), functools.partial(use_up, message))
    return result


def _writable(array: np.ndarray) -> bool:
    return array.flags.writeable and array.flags.c_contiguous
