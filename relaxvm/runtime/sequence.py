"""Sequences: values one after the other, as many as run time decides, and what is done with them.

The functions here are what the operators `relax.sequence.*` mean, of tuples of numpy arrays, and
what runs as `vm.library.sequence.*`, of `VMSequence`s of the machine's values. Callers of a program
give and get lists. A tuple of a program is a sequence, too.

No function changes a sequence that somebody has. One that gets an element at its end shares its
memory with the new one, so that n insertions cost O(n).
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..base import VMTypeError, VMValueError
from .constants import integer
from .library import axis_of, library, result_of
from .locks import lock
from .ndarray import NDArray
from .storage import ShapeTuple

_appending = lock()


class VMSequence(collections.abc.Sequence[Any]):
    """Values of a program, one after the other.

    dtype, ndim  of all tensors among them; None and -1 where they differ or there are others
    """

    __slots__ = ("__weakref__", "_items", "_length", "dtype", "ndim")

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)
        kinds = {_kind(x) for x in self._items}
        dtypes, ranks = {dtype for dtype, _ in kinds}, {rank for _, rank in kinds}
        self.dtype = dtypes.pop() if len(dtypes) == 1 else None
        self.ndim = ranks.pop() if len(ranks) == 1 else -1

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items[: self._length])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._items[: self._length][index]
        return self._items[range(self._length)[index]]

    def __repr__(self) -> str:
        return f"VMSequence({list(self)!r})"

    def appended(self, value: Any) -> VMSequence:
        """These elements, and `value` behind them."""
        with _appending:
            # What stands behind the end of this one is another's.
            items = self._items if len(self._items) == self._length else list(self)
            items.append(value)
        longer = VMSequence.__new__(VMSequence)
        longer._items, longer._length = items, self._length + 1
        dtype, ndim = _kind(value)
        same = not self._length
        longer.dtype = dtype if same or dtype is self.dtype else None
        longer.ndim = ndim if same or ndim == self.ndim else -1
        return longer


def _kind(x: Any) -> tuple[Any, int]:
    return (x.dtype, x.ndim) if type(x) is NDArray else (None, -1)


def is_sequence(x: Any) -> bool:
    """Whether a value is a sequence: one of these, or a tuple or list that is no shape."""
    return isinstance(x, (tuple, list, VMSequence)) and type(x) is not ShapeTuple


def _want(x: Any, what: str) -> Any:
    if not is_sequence(x):
        raise VMTypeError(f"{what}: wanted a sequence, got {type(x).__name__}")
    return x


def _place(x: Any, position: Any, what: str, more: int = 0) -> int:
    """A position of `x`, an integer or a tensor of one, counted from the front."""
    count = len(x)
    if getattr(position, "size", 1) != 1:
        raise VMTypeError(f"{what}: position: wanted one integer, got {position.size}")
    place = integer(getattr(position, "item", lambda: position)(), f"{what}: position")
    if not -count <= place < count + more:
        if count + more == 0:
            raise VMValueError(f"{what}: the sequence is empty, and has no element {place}")
        raise VMValueError(
            f"{what}: position: wanted {-count} to {count + more - 1} in a sequence of {count}, "
            f"got {place}"
        )
    return place + count if place < 0 else place


def construct(fields: Any) -> Any:
    """The fields of a tuple, of which there is one at least, as a sequence."""
    return _want(fields, "sequence.construct")


def empty(*kind: Any, **kinds: Any) -> Any:
    """A sequence without elements, for tensors of `dtype` with `ndim` dimensions (-1: any)."""
    return ()


def length(x: Any) -> np.ndarray:
    """How many elements there are: an int64 tensor without dimensions."""
    return np.array(len(_want(x, "sequence.length")), "int64")


def at(x: Any, position: Any) -> Any:
    """The element at `position`, an integer; counted from the end if it is negative."""
    return _want(x, "sequence.at")[_place(x, position, "sequence.at")]


def insert(x: Any, value: Any, position: Any = None) -> Any:
    """`x` with `value` before the element at `position`, or behind all. n insertions at the end
    cost O(n); others copy the sequence, not its tensors.
    """
    what = "sequence.insert"
    if type(x) is VMSequence and position is None and x.dtype is not None:
        if type(value) is NDArray and value.dtype is x.dtype:
            return x.appended(value)
    if value is None:
        raise VMTypeError(f"{what}: value: wanted an element, got None")
    first = x[0] if len(_want(x, what)) else value
    if getattr(first, "dtype", None) != getattr(value, "dtype", None):
        wanted, got = (getattr(v, "dtype", type(v).__name__) for v in (first, value))
        raise VMTypeError(f"{what}: value: wanted {wanted}, as the elements are, got {got}")
    place = len(x) if position is None else _place(x, position, what, 1)
    if isinstance(x, VMSequence) and place == len(x):
        return x.appended(value)
    return (*x[:place], value, *x[place:])


def erase(x: Any, position: Any = None) -> Any:
    """`x` without the element at `position`, or without the last."""
    what = "sequence.erase"
    place = _place(_want(x, what), -1 if position is None else position, what)
    return (*x[:place], *x[place + 1 :])


def concat(x: Any, otherwise: Any = None, *, axis: int, new_axis: int) -> np.ndarray:
    """The tensors of `x` behind each other along `axis`, or, with `new_axis`, along a new one.

    otherwise  what an empty sequence gives, a tensor of the result's rank; without it that is an
               error
    """
    what = "sequence.concat"
    items = list(_want(x, what))
    if not items and otherwise is not None:
        return np.asarray(otherwise)
    if not items:
        raise VMValueError(f"{what}: wanted at least one element, got an empty sequence")
    first = items[0]
    place = axis_of(axis, first.ndim + bool(new_axis), f"{what}: axis")
    for i, item in enumerate(items):
        shape, wanted = list(item.shape), list(first.shape)
        if not new_axis and len(shape) == len(wanted):
            shape[place] = wanted[place]
        if shape != wanted:
            along = "" if new_axis else f" but along axis {place}"
            raise VMValueError(
                f"{what}: element {i}: wanted the shape of element 0{along}, {first.shape}, got "
                f"{item.shape}"
            )
    return np.stack(items, place) if new_axis else np.concatenate(items, place)


def split(x: Any, sizes: Any = None, *, axis: int, keepdims: int) -> tuple[np.ndarray, ...]:
    """Parts of the tensor `x` along `axis`.

    sizes     how long each is, an integer vector; or one integer, of which the last part may have
              less; or none: 1 each
    keepdims  whether parts of 1, without `sizes`, keep the axis
    """
    what = "sequence.split"
    place = axis_of(axis, x.ndim, f"{what}: axis")
    size = x.shape[place]
    if sizes is None:
        parts = np.ones(size, "int64")
    elif sizes.ndim:
        parts = sizes.reshape(-1)
    elif sizes < 1:
        raise VMValueError(f"{what}: sizes: wanted at least 1, got {sizes}")
    else:
        parts = np.minimum(sizes, size - np.arange(0, size, sizes))
    if (parts < 0).any() or parts.sum() != size:
        raise VMValueError(
            f"{what}: sizes: wanted numbers of at least 0 with the sum {size}, got {parts.tolist()}"
        )
    pieces = np.split(x, np.cumsum(parts)[:-1], place) if len(parts) else []
    if sizes is None and not keepdims:
        pieces = [np.squeeze(p, place) for p in pieces]
    return tuple(p.copy() for p in pieces)


def _values(x: Any, what: str) -> Any:
    """Tensors, and those in a sequence, as numpy arrays."""
    if is_sequence(x):
        return [_values(each, what) for each in x]
    if type(x) is not NDArray:
        raise VMTypeError(f"{what}: wanted tensors, got {type(x).__name__}")
    return x._values()


def _in_machine(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of the machine's values: first its attributes, then its arguments."""
    kinds = inspect.signature(function).parameters.values()
    attributes = [p.name for p in kinds if p.kind is p.KEYWORD_ONLY]
    what, count = f"sequence.{function.__name__}", len(attributes)

    def run(*args: Any) -> Any:
        value = function(*args)
        if type(value) is VMSequence or function is at:
            return value
        return result_of(value) if isinstance(value, np.ndarray) else VMSequence(value)

    def run_on_tensors(*values: Any) -> Any:
        if len(values) < count:
            raise VMTypeError(f"{what}: wanted {', '.join(attributes)}, got {len(values)} values")
        args = values[count:]
        named = {n: integer(v, f"{what}: {n}") for n, v in zip(attributes, values)}
        first = next((v for x in args for v in (x if is_sequence(x) else (x,))), None)
        dtype = getattr(first, "dtype", None)
        value = function(*(_values(x, what) for x in args), **named)
        if isinstance(value, np.ndarray):
            return result_of(value, dtype)
        return VMSequence(result_of(v, dtype) for v in value)

    return functools.wraps(function)(run_on_tensors if attributes else run)


SEQUENCES: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (construct, empty, length, at, insert, erase, concat, split)
}
"""What the operators mean, by their names."""

for _name, _function in SEQUENCES.items():
    library(f"sequence.{_name}")(_in_machine(_function))
