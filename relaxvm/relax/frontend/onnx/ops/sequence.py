"""Sequences and optionals. A sequence is a tuple where its length is known, which fuses and folds;
otherwise a value of `op.sequence`. Whether an optional has a value, the graph says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .....base import FrontendError
from ....expr import Tuple, const
from ....struct_info import SequenceStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ..registry import onnx, op
from ..values import ABSENT, NeedsConstant, dims_of, numbers


@onnx("SequenceConstruct", since=11)
def sequence_construct(node: Any, *inputs: Any) -> Any:
    _check_elements(list(inputs))
    return Tuple(inputs)


@onnx("SequenceEmpty", since=11, ignores="dtype")
def sequence_empty(node: Any) -> Any:
    return Tuple(())


@onnx("SequenceLength", since=11)
def sequence_length(node: Any, x: Any) -> Any:
    return op.sequence.length(x) if is_dynamic(x) else const(len(fields_of(x)), "int64")


@onnx("SequenceAt", since=11)
def sequence_at(node: Any, x: Any, position: Any) -> Any:
    place = _place(node, x, position)
    if place is not None:
        return fields_of(x)[place]
    item = op.sequence.at(x, position)
    if getattr(item.struct_info, "ndim", 0) < 0:
        raise _needs_rank(node, x)
    return item


@onnx("SequenceInsert", since=11)
def sequence_insert(node: Any, x: Any, value: Any, position: Any = None) -> Any:
    place = _place(node, x, position, 1)
    if place is None:
        return op.sequence.insert(x, value, position)
    fields = list(fields_of(x))
    fields.insert(place, value)
    _check_elements(fields)
    return Tuple(fields)


@onnx("SequenceErase", since=11)
def sequence_erase(node: Any, x: Any, position: Any = None) -> Any:
    place = _place(node, x, position)
    if place is None:
        return op.sequence.erase(x, position)
    fields = list(fields_of(x))
    del fields[place]
    return Tuple(fields)


@onnx("ConcatFromSequence", since=11)
def concat_from_sequence(node: Any, x: Any, *, axis: int, new_axis: int) -> Any:
    if is_dynamic(x):
        joined = op.sequence.concat(x, axis=axis, new_axis=bool(new_axis))
        if joined.struct_info.ndim < 0:
            raise _needs_rank(node, x)
        return joined
    fields = Tuple(fields_of(x))
    if not fields.fields:
        raise FrontendError("wanted a sequence of at least one element, got an empty one")
    return op.stack(fields, axis) if new_axis else op.concat(fields, axis)


@onnx("SplitToSequence", since=11)
def split_to_sequence(node: Any, x: Any, split: Any = None, *, axis: int, keepdims: int) -> Any:
    size = getattr(dims_of(x)[axis], "value", None)
    sizes = None if split is None else numbers(node.graph.elements.of(split))
    if size is None or (split is not None and sizes is None):
        # With sizes, keepdims does not count.
        return op.sequence.split(x, split, axis=axis, keepdims=bool(keepdims))
    if sizes is None:
        parts = [1] * size
    elif sizes.ndim:
        parts = [int(n) for n in sizes]
    else:
        parts = [min(int(sizes), size - i) for i in range(0, size, max(int(sizes), 1))]
    if sum(parts) != size or min(parts, default=0) < 0:
        raise FrontendError(f"split: wanted sizes of at least 0 with the sum {size}, got {parts}")
    pieces, begin = [], 0
    for part in parts:
        piece = op.strided_slice(x, [axis], [begin], [begin + part])
        pieces.append(op.squeeze(piece, axis) if split is None and not keepdims else piece)
        begin += part
    return Tuple(tuple(node.emit(p) for p in pieces))


def is_dynamic(x: Any) -> bool:
    """Whether `x` is a sequence whose length run time decides."""
    return isinstance(x.struct_info, SequenceStructInfo)


def as_info(node: Any, x: Any, info: StructInfo) -> Any:
    """`x` as a value of `info`: where that is a sequence, a tuple becomes one."""
    if not isinstance(info, SequenceStructInfo) or is_dynamic(x):
        return x
    if fields_of(x):
        return op.sequence.construct(x)
    element = info.element
    if not isinstance(element, TensorStructInfo):
        raise FrontendError(f"wanted a sequence of tensors, got one of {element}")
    return op.sequence.empty(element.dtype, element.ndim)


def _needs_rank(node: Any, x: Any) -> NeedsConstant:
    error: NeedsConstant = node.needs("number of dimensions of the sequence's elements", x)
    hint = ", ".join(f"{name!r}: [shape of each element]" for name in error.inputs)
    error.args = (error.args[0].partition("; pass")[0] + f"; pass shape_dict={{{hint}}}",)
    return error


def fields_of(x: Any) -> tuple[Any, ...]:
    """The elements of a sequence."""
    if isinstance(x, Tuple):
        return x.fields
    if not isinstance(x.struct_info, TupleStructInfo):
        raise FrontendError(f"wanted a sequence, got {x.struct_info}")
    return tuple(x)


def _check_elements(fields: list[Any]) -> None:
    dtypes = {getattr(f.struct_info, "dtype", type(f.struct_info).__name__) for f in fields}
    if len(dtypes) > 1:
        first, last = fields[0].struct_info, fields[-1].struct_info
        raise FrontendError(f"wanted elements of one dtype, got {first} and {last}")


def _place(node: Any, x: Any, position: Any, more: int = 0) -> int | None:
    """A position of `x`, from the front, the last by default; None if run time decides."""
    if is_dynamic(x):
        return None
    count = len(fields_of(x))
    known = np.array(count - 1 + more) if position is None else node.graph.elements.of(position)
    known = numbers(known)
    if known is None:
        return None
    if known.size != 1:
        raise FrontendError(f"position: wanted one number, got {known.size}")
    place = int(known.reshape(-1)[0])
    if not -count <= place < count + more:
        raise FrontendError(
            f"position: wanted {-count} to {count + more - 1} in a sequence of {count}, got {place}"
            if count + more
            else "the sequence is empty"
        )
    return place + count if place < 0 else place


@onnx("Optional", since=15, ignores="type")
def optional(node: Any, x: Any = None) -> Any:
    return ABSENT if x is None else x


@onnx("OptionalGetElement", since=15)
def optional_element(node: Any, x: Any) -> Any:
    if x is None:
        raise FrontendError("the optional has no value")
    return x


@onnx("OptionalHasElement", since=15)
def optional_has(node: Any, x: Any = None) -> Any:
    return const(x is not None, "bool")
