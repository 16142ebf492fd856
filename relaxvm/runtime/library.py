"""Functions that compiled programs call by name and that are always there: `vm.library.*`.

For work whose result depends on data (`unique`, `nonzero`) or that numpy does better than a naive
loop (sorting). Each checks what it is given, since any bytecode may call it, and reads bfloat16 as
float32. A function that fills outputs gets them last.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..base import DataType, Deferred, VMTypeError, VMValueError, float32_to_bfloat16
from .constants import integer
from .ndarray import NDArray, array
from .registry import register_func

if TYPE_CHECKING:
    import json
else:
    json = Deferred("json")

LIBRARY: dict[str, Callable[..., Any]] = {}
"""The functions by name; a program that needs one finds it here, whatever it is granted."""

_BY_PLACE = inspect.Parameter.POSITIONAL_ONLY
_F = TypeVar("_F", bound=Callable[..., Any])


def library(name: str) -> Callable[[_F], _F]:
    """Decorator: make a function part of the library, under ``vm.library.<name>``."""

    def add(function: _F) -> _F:
        full = f"vm.library.{name}"
        LIBRARY[full] = function
        return register_func(full, function)

    return add


def numeric(name: str, outs: int = 0) -> Callable[[_F], _F]:
    """Decorator: make a function of numpy arrays and numbers part of the library.

    A program's values are checked, and become what the parameters are annotated as.
    outs  how many tensors follow, which its results are written into; with none they are returned
    """

    def add(function: _F) -> _F:
        kinds = {k: _READERS[kind] for k, kind in function.__annotations__.items() if k != "return"}

        names = [*kinds, *(f"out{k}" for k in range(outs))]
        signature = inspect.Signature([inspect.Parameter(n, _BY_PLACE) for n in names])

        def run(*args: Any) -> Any:
            signature.bind(*args)
            values: list[Any] = []
            for (param, read), arg in zip(kinds.items(), args):
                values.append(read(arg, f"{name}: {param}", *values[:1]))
            result = function(*values)
            if not outs:
                return result_of(result)
            for out, each in zip(args[len(kinds) :], (result,) if outs == 1 else result):
                fill(out, each, name)
            return None

        added: Any = library(name)(run)
        added.__name__, added.__doc__, added.__signature__ = name, function.__doc__, signature
        return function

    return add


# -- arguments and results ------------------------------------------------------------------------


def values_of(x: Any, what: str) -> np.ndarray:
    """The elements of a tensor argument, bfloat16 as float32."""
    if type(x) is not NDArray:
        raise VMTypeError(f"{what}: wanted a tensor, got {type(x).__name__}")
    return x._values()


def axis_of(axis: Any, ndim: int, what: str) -> int:
    """An axis argument, counted from the front."""
    index = integer(axis, what)
    if not -ndim <= index < ndim:
        raise VMValueError(f"{what}: wanted {-ndim} to {ndim - 1}, got {index}")
    return index % ndim


def scalar_of(value: Any, what: str) -> float:
    """A number, given as one or as a tensor of one element."""
    array = values_of(value, what) if isinstance(value, NDArray) else np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "iuf":
        raise VMValueError(f"{what}: wanted one number, got shape {array.shape} of {array.dtype}")
    return array.reshape(-1)[0].item()


Axis = int
"""An axis of the first argument, from the front."""
# How an argument is read, by its annotation: what is passed, how errors call it, the first
# argument.
_READERS: dict[str, Callable[..., Any]] = {
    "np.ndarray": lambda x, what, *_: values_of(x, what),
    "Axis": lambda x, what, first: axis_of(x, first.ndim, what),
    "int": lambda x, what, *_: integer(x, what),
    "bool": lambda x, what, *_: bool(integer(x, what)),
    "float": lambda x, what, *_: scalar_of(x, what),
}


def fill(out: Any, values: np.ndarray, what: str) -> None:
    """Write `values`, of the right shape, into the output `out`, converted to its dtype."""
    if type(out) is not NDArray:
        raise VMTypeError(f"{what}: out: wanted a tensor, got {type(out).__name__}")
    if out.shape != values.shape:
        raise VMValueError(f"{what}: out: wanted shape {values.shape}, got {out.shape}")
    if not out.array.flags.writeable:
        raise VMValueError(f"{what}: out: is read-only")
    if out.dtype.kind == "bfloat":
        out.array[...] = float32_to_bfloat16(values).reshape(values.shape)
    else:
        out.array[...] = values


def result_of(values: np.ndarray, dtype: Any = None) -> NDArray:
    """A new tensor of `values`."""
    return array(np.ascontiguousarray(values).reshape(values.shape), dtype=dtype)


# -- operators by their meaning -------------------------------------------------------------------


def operator_text(name: str, attributes: dict[str, Any], dtypes: Any) -> str:
    """What `vm.library.operator` is told of an operator of the graph language.

    attributes  plain values, dtypes among them, and tuples of these
    dtypes      of the result; of a tuple: of each of its tensors
    Raises TypeError for attributes that are not plain.
    """
    fields = {k: _to_plain(v) for k, v in attributes.items()}
    return json.dumps({"operator": name, "attributes": fields, "dtypes": dtypes})


def _to_plain(value: Any) -> Any:
    if isinstance(value, DataType):
        return {"dtype": str(value)}
    return list(map(_to_plain, value)) if isinstance(value, (tuple, list)) else value


def _from_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return DataType(value["dtype"])
    return tuple(map(_from_plain, value)) if isinstance(value, list) else value


@functools.lru_cache(maxsize=1024)
def _parsed_operator(text: str) -> tuple[str, dict[str, Any], Any]:
    try:
        plain = json.loads(text)
        dtypes = plain["dtypes"]
        wanted = [DataType(d) for d in dtypes] if isinstance(dtypes, list) else DataType(dtypes)
        attributes = {k: _from_plain(v) for k, v in plain["attributes"].items()}
        return str(plain["operator"]), attributes, wanted
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise VMValueError(f"operator: wanted an operator as JSON: {error!r}") from error


@library("operator")
def operator(text: Any, *args: Any) -> Any:
    """An operator of the graph language, by its meaning in numpy: of values that nothing native
    reads, which are strings. Loads the room that says what operators mean.

    text  of `operator_text`
    """
    if type(text) is not str:
        raise VMTypeError(f"operator: wanted text, got {type(text).__name__}")
    name, attributes, dtypes = _parsed_operator(text)
    meaning = importlib.import_module("relaxvm.relax.op.meaning")
    value = meaning.run_operator(name, [_plain_value(a) for a in args], attributes)
    if type(dtypes) is not list:
        return result_of(np.asarray(value), dtypes)
    return tuple(result_of(np.asarray(v), d) for v, d in zip(value, dtypes))


def _plain_value(x: Any) -> Any:
    if type(x) is NDArray:
        return x._values()
    return tuple(map(_plain_value, x)) if isinstance(x, tuple) else x


# -- sorting --------------------------------------------------------------------------------------


def _order(x: np.ndarray, axis: Axis, descending: bool) -> np.ndarray:
    """The stable order of `x` along `axis`; NaN counts as greater than everything."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # From behind, ascending, read from behind: equal elements keep their order.
    back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(back, axis)


@numeric("sort", outs=1)
def sort(x: np.ndarray, axis: Axis, descending: bool) -> np.ndarray:
    """`x` sorted along `axis`."""
    # Equal elements cannot be told apart but for the signs of zeros, and numpy's default is up to
    # 100 times faster than its stable sort.
    ordered = np.sort(x, axis=axis)
    return np.flip(ordered, axis) if descending else ordered


numeric("argsort", outs=1)(_order)


@library("topk")
def topk(x: Any, axis: Any, largest: Any, parts: Any, *outs: Any) -> None:
    """The first elements of `x` in order along `axis`, as many as the outputs are long.

    parts  which outputs there are, as bits: 1 the elements, 2 their indices
    """
    values = values_of(x, "topk: x")
    place = axis_of(axis, values.ndim, "topk: axis")
    wanted = integer(parts, "topk: parts")
    if wanted not in (1, 2, 3) or len(outs) != (wanted + 1) // 2:
        raise VMTypeError(f"topk: parts {wanted} do not go with {len(outs)} outputs")
    order = _first(values, place, largest, outs[0])
    if wanted & 1:
        fill(outs[0], np.take_along_axis(values, order, place), "topk: values")
    if wanted & 2:
        fill(outs[-1], order, "topk: indices")


def _first(values: np.ndarray, axis: int, largest: Any, out: Any) -> np.ndarray:
    if type(out) is not NDArray or out.ndim != values.ndim:
        raise VMTypeError("topk: wanted an output tensor with as many dimensions as x")
    k = out.shape[axis]
    if k > values.shape[axis]:
        raise VMValueError(f"topk: wanted {k} elements of the {values.shape[axis]} along the axis")
    order = _order(values, axis, bool(integer(largest, "topk: largest")))
    return np.take(order, np.arange(k), axis=axis)


@numeric("searchsorted", outs=1)
def searchsorted(sorted_sequence: np.ndarray, values: np.ndarray, right: bool) -> np.ndarray:
    """Where `values` would be inserted into `sorted_sequence`.

    The sequence has one dimension, or those of `values` but for the last, row by row.
    """
    side: Any = "right" if right else "left"
    leading = sorted_sequence.shape[:-1]
    if sorted_sequence.ndim == 1:
        return np.asarray(np.searchsorted(sorted_sequence, values, side))
    if sorted_sequence.ndim == 0 or leading != values.shape[:-1]:
        raise VMValueError(
            "searchsorted: wanted the same leading dimensions, got "
            f"{sorted_sequence.shape} and {values.shape}"
        )
    insertions = np.empty(values.shape, "int64")
    for row in np.ndindex(leading):
        insertions[row] = np.searchsorted(sorted_sequence[row], values[row], side)
    return insertions


# -- results whose shape depends on data ----------------------------------------------------------


@numeric("nonzero")
def nonzero(x: np.ndarray) -> np.ndarray:
    """Where `x` is not zero: int64 [ndim, count], in row-major order."""
    return np.stack([np.asarray(i, "int64") for i in np.nonzero(np.atleast_1d(x))])


@library("unique")
def unique(x: Any, axis: Any, flat: Any, keep_order: Any, parts: Any) -> Any:
    """The distinct elements of `x` (or slices along `axis`, unless `flat`), and what `parts` adds.

    keep_order  in the order they are met first, not sorted
    parts       bits: 1 first indices, 2 indices of each element's representative, 4 counts
    """
    values = values_of(x, "unique: x")
    wanted = integer(parts, "unique: parts")
    along = None
    if not integer(flat, "unique: flat"):
        along = axis_of(axis, values.ndim, "unique: axis")
    found_parts = unique_values(values, along, bool(integer(keep_order, "unique: keep_order")))
    results = [result_of(found_parts[0], x.dtype)]
    results += [result_of(found_parts[k]) for k in (1, 2, 3) if wanted & (1 << (k - 1))]
    return results[0] if len(results) == 1 else tuple(results)


def unique_values(
    x: np.ndarray, axis: int | None, keep_order: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct elements, their first indices, each element's number among them, and counts."""
    if axis is not None and x.size == 0:
        return _unique_of_nothing(x, axis)
    distinct, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if keep_order:
        order = np.argsort(first, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        distinct = np.take(distinct, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], place[inverse]
    return distinct, first.astype("int64"), inverse.astype("int64"), counts.astype("int64")


def _unique_of_nothing(
    x: np.ndarray, axis: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Slices without elements are all equal; numpy refuses some of these shapes."""
    count = x.shape[axis]
    kept = np.take(x, np.arange(min(count, 1)), axis=axis)
    first = np.zeros(min(count, 1), "int64")
    return kept, first, np.zeros(count, "int64"), np.full(min(count, 1), count, "int64")
