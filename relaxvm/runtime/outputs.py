"""Where the caller wants results: ``vm["main"](x, out=y)``.

A destination is an array, or a tuple (or list) of destinations for a function that gives a tuple;
None in such a tuple stands for a result that is to be a new one. All that can be known is checked
before the function runs. Machine code computes right in a destination that shares no memory with an
argument; all other results go through memory of the program's own, and are written once all fit.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import NoneType
from typing import Any

import numpy as np

from ..base import DataType, VMTypeError, VMValueError
from .check import got, shape_text, tensor_text
from .limits import MAX_NESTING
from .ndarray import NDArray, ShapeTuple, memory_of
from .nested import map_leaves
from .program import FunctionInfo
from .pyabi import address_of_data
from .sinfo import Info, ObjectInfo, TensorInfo, TupleInfo
from .storage import memory_overlaps

_MAX_PLACES = 1 << 16
# To ask numpy about each pair takes less than to find out where so many arrays lie.
_FEW = 8


class _Place:
    """One part of a destination.

    path    the fields that lead to it
    memory  the array to write; None for a tuple or a result that is to be new
    count   how many fields the tuple has, -1 if it is none
    """

    __slots__ = ("count", "dtype", "memory", "path", "where")

    def __init__(self, where: str, path: tuple[int, ...]) -> None:
        self.where, self.path = where, path
        self.memory: np.ndarray | None = None
        self.dtype: DataType | None = None
        self.count = -1


RECORD_BYTES = 40
"""What machine code is told of a destination: its data, its size in bytes, who owns it; for a
single one also the object to return, and its sizes.
"""


class Offer:
    """Destinations for the fields of a tuple, as records in the order of these."""

    __slots__ = ("records",)

    def __init__(self, records: bytes) -> None:
        self.records = records


class Destination:
    """A checked `out` for calls of a function.

    out  what the caller gave, which `write` returns

    Raises VMTypeError or VMValueError naming function, field, wanted and got.
    """

    __slots__ = ("_info", "_places", "_whole", "out")

    def __init__(self, info: FunctionInfo, out: object) -> None:
        self._info = info
        self.out = out
        self._places = list(_places_of(info, out))
        self._whole = all(p.memory is not None or p.count >= 0 for p in self._places)
        arrays = [p for p in self._places if p.memory is not None]
        for a, b in _overlapping([p.memory for p in arrays], []):
            raise VMValueError(
                f"{arrays[a].where} and {arrays[b].where} overlap in memory; give arrays that do "
                "not share memory"
            )

    def filled_by(self, native: Callable[..., Any], operands: Sequence[Any]) -> Any:
        """What `write` gives for the result of machine code called with these arguments."""
        ret = self._info.ret
        if type(ret) is not TupleInfo or "out" in self._info.param_names:
            return self.write(native(*operands))
        near = _arrays_in(operands)
        memories, records = {p.path: p.memory for p in self._places}, []
        for path in _leaf_paths(ret):
            memory = memories.get(path)
            if memory is None or near is None or not _in_place(memory, near):
                records.append(struct.pack("=5q", 0, -1, 0, 0, 0))
            else:
                data = address_of_data(memory)
                records.append(struct.pack("=5q", data, memory.nbytes, id(memory), 0, 0))
        return self.write(native(*operands, out=Offer(b"".join(records))))

    def write(self, value: Any) -> Any:
        """Copy the result `value` there, unless it lies there; gives `out`, with new results in
        place of None.

        Nothing is copied unless all of it fits.
        """
        written = [(place, _fitting(place, value)) for place in self._places]
        targets = [(p.memory, value.array) for p, value in written if p.memory is not None]
        targets = [pair for pair in targets if not _lies_there(*pair)]
        memories = [memory for memory, _ in targets]
        sources = [source for _, source in targets]
        # A result may be an argument, over which another result is written first.
        for i in {j for _, j in _overlapping(memories, sources)}:
            sources[i] = sources[i].copy()
        for memory, source in zip(memories, sources):
            memory[...] = source
        return self.out if self._whole else _filled(self.out, value)


def taken_destination(info: FunctionInfo, kwargs: dict[str, Any]) -> Destination | None:
    """The checked ``out=`` of a call, taken out of `kwargs`, unless a parameter has that name."""
    if "out" not in kwargs or "out" in info.param_names:
        return None
    out = kwargs.pop("out")
    return None if out is None else Destination(info, out)


def _leaf_paths(info: Info | None, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Where what is no tuple lies in a result, in order."""
    if type(info) is TupleInfo:
        for i, part in enumerate(info.fields):
            yield from _leaf_paths(part, (*path, i))
    else:
        yield path


def _arrays_in(values: Sequence[Any]) -> list[np.ndarray] | None:
    """The arrays in arguments; None where something else may hold one."""
    leaves: list[Any] = []
    map_leaves(tuple(values), leaves.append)
    known = (NDArray, ShapeTuple, int, float, bool, NoneType)
    if any(type(leaf) not in known for leaf in leaves):
        return None
    return [leaf.array for leaf in leaves if type(leaf) is NDArray]


def _in_place(memory: np.ndarray, near: list[np.ndarray]) -> bool:
    """Whether a result may be computed in `memory`, apart from the arrays it is computed of."""
    plain = memory.flags.c_contiguous and memory.flags.aligned and memory.size > 0
    return plain and not any(np.may_share_memory(memory, each) for each in near)


def _lies_there(memory: np.ndarray, source: np.ndarray) -> bool:
    """Whether a result that fits `memory` has been computed there."""
    if not memory.flags.c_contiguous:
        return False
    return source.base is memory or _extent(memory) == _extent(source)


def _places_of(info: FunctionInfo, out: object) -> Iterator[_Place]:
    """The parts of `out`, tuples before their fields, checked against what the function gives."""
    waiting: list[tuple[Any, Info | None, str, tuple[int, ...]]] = [
        (out, info.ret, f"{info.name}: out", ())
    ]
    seen = 0
    while waiting:
        part, wanted, where, path = waiting.pop()
        place = _Place(where, path)
        seen += 1
        if seen > _MAX_PLACES or len(path) > MAX_NESTING:
            raise VMTypeError(f"{info.name}: out: too many or too deeply nested arrays")
        if isinstance(part, (tuple, list)):
            place.count = len(part)
            fields = _fields_for(part, wanted, where)
            waiting.extend(
                (item, field, f"{where}[{i}]", (*path, i))
                for i, (item, field) in reversed(list(enumerate(zip(part, fields))))
            )
        elif part is not None:
            place.memory, place.dtype = _writable(part, wanted, where)
        yield place


def _fields_for(parts: Any, wanted: Info | None, where: str) -> Iterable[Info | None]:
    if isinstance(wanted, TupleInfo):
        if len(wanted.fields) != len(parts):
            raise VMTypeError(
                f"{where}: wanted a tuple of {len(wanted.fields)}, got {len(parts)} elements"
            )
        return wanted.fields
    if wanted is not None and not isinstance(wanted, ObjectInfo):
        raise VMTypeError(f"{where}: wanted {wanted}, got {got(tuple(parts))}")
    return [None] * len(parts)


def _writable(target: Any, wanted: Info | None, where: str) -> tuple[np.ndarray, DataType]:
    """The memory of one array to write, and its element type."""
    if isinstance(wanted, TupleInfo):
        raise VMTypeError(f"{where}: wanted a tuple of {len(wanted.fields)}, got {got(target)}")
    if not isinstance(wanted, (TensorInfo, ObjectInfo, NoneType)):
        raise VMTypeError(f"{where}: the result is {wanted}, which no array holds; give None there")
    try:
        memory, dtype = memory_of(target)
    except VMTypeError as error:
        raise VMTypeError(f"{where}: {error}") from None
    if not memory.flags.writeable or isinstance(target, np.generic):
        raise VMValueError(f"{where}: the array is read-only; give one that can be written")
    if _touches_itself(memory):
        raise VMValueError(
            f"{where}: elements of the array share memory (strides {memory.strides}); give one "
            "whose elements are apart"
        )
    if isinstance(wanted, TensorInfo):
        if wanted.dtype is not None and wanted.dtype is not dtype:
            raise VMTypeError(
                f"{where}: wanted dtype {wanted.dtype}, got {tensor_text(memory, dtype)}"
            )
        if wanted.ndim >= 0 and wanted.ndim != memory.ndim:
            raise VMTypeError(
                f"{where}: wanted {wanted.ndim} dimensions, got {tensor_text(memory, dtype)}"
            )
        for axis, (size, dim) in enumerate(zip(memory.shape, wanted.shape or ())):
            if isinstance(dim, int) and dim != size:
                raise VMValueError(f"{where}: axis {axis}: wanted {dim}, got {size}")
    return memory, dtype


def _touches_itself(memory: np.ndarray) -> bool:
    """Whether two elements may lie over each other, as in a broadcast array made writeable."""
    if memory.size <= 1 or memory.flags.c_contiguous:
        return False
    reach = memory.itemsize
    for stride, size in sorted((abs(s), n) for s, n in zip(memory.strides, memory.shape) if n > 1):
        if stride < reach:
            return True
        reach += stride * (size - 1)
    return False


def _fitting(place: _Place, value: Any) -> Any:
    """The part of the result that goes to `place`."""
    for field in place.path:
        value = value[field]
    if place.count >= 0:
        if type(value) is not tuple or len(value) != place.count:
            raise VMTypeError(
                f"{place.where}: got a tuple of {place.count} to write, but the result is "
                f"{got(value)}"
            )
    elif place.memory is not None:
        if type(value) is not NDArray:
            raise VMTypeError(
                f"{place.where}: got an array to write, but the result is {got(value)}"
            )
        if value.dtype is not place.dtype:
            assert place.dtype is not None
            shown = tensor_text(place.memory, place.dtype)
            raise VMTypeError(f"{place.where}: wanted dtype {value.dtype}, got {shown}")
        if value.shape != place.memory.shape:
            raise VMValueError(
                f"{place.where}: wanted shape {shape_text(value.shape)}, "
                f"got {shape_text(place.memory.shape)}"
            )
    return value


def _filled(out: Any, value: Any) -> Any:
    """`out` with what is None in it taken from `value`."""
    if isinstance(out, (tuple, list)):
        return tuple([_filled(part, result) for part, result in zip(out, value)])
    return value if out is None else out


def _overlapping(memories: list[Any], sources: list[np.ndarray]) -> list[tuple[int, int]]:
    """Pairs (i, j) for which `memories[i]` overlaps another of them, or another's source, j.

    With `sources`, j counts in them, and a source may overlap the memory it is written to. Sorting
    settles the usual case, in which all lie apart; only then else are pairs compared.
    """
    if len(memories) < 2:
        return []
    if len(memories) < _FEW and not sources:
        if not any(np.may_share_memory(a, b) for a, b in itertools.combinations(memories, 2)):
            return []
    everything = sorted(map(_extent, [*memories, *sources]))
    extents = [extent for extent in everything if extent[0] < extent[1]]
    if all(a[1] <= b[0] for a, b in itertools.pairwise(extents)):
        return []
    others = sources or memories
    return [
        (i, j)
        for i, a in enumerate(memories)
        for j, b in enumerate(others)
        if (i != j if sources else i < j) and memory_overlaps(a, b)
    ]


def _extent(array: np.ndarray) -> tuple[int, int]:
    """The first byte of an array and the one behind its last."""
    start = array.__array_interface__["data"][0]
    if array.flags.c_contiguous or not array.size:
        return start, start + array.nbytes
    spans = [stride * (size - 1) for stride, size in zip(array.strides, array.shape)]
    low = start + sum(span for span in spans if span < 0)
    return low, start + sum(span for span in spans if span > 0) + array.itemsize
