"""Sequences and optionals whose length and presence the graph says: a sequence is a tuple."""

from __future__ import annotations

from typing import Any

from .....base import FrontendError
from ....expr import Tuple, const
from ....struct_info import TupleStructInfo
from ..registry import onnx, op
from ..values import ABSENT, dims_of


@onnx("SequenceConstruct", since=11)
def sequence_construct(node: Any, *inputs: Any) -> Any:
    return Tuple(inputs)


@onnx("SequenceEmpty", since=11, ignores="dtype")
def sequence_empty(node: Any) -> Any:
    return Tuple(())


@onnx("SequenceLength", since=11)
def sequence_length(node: Any, x: Any) -> Any:
    return const(len(fields_of(x)), "int64")


@onnx("SequenceAt", since=11)
def sequence_at(node: Any, x: Any, position: Any) -> Any:
    return fields_of(x)[_place(node, x, position, 0)]


@onnx("SequenceInsert", since=11)
def sequence_insert(node: Any, x: Any, value: Any, position: Any = None) -> Any:
    fields = list(fields_of(x))
    fields.insert(len(fields) if position is None else _place(node, x, position, 1), value)
    return Tuple(fields)


@onnx("SequenceErase", since=11)
def sequence_erase(node: Any, x: Any, position: Any = None) -> Any:
    fields = list(fields_of(x))
    del fields[-1 if position is None else _place(node, x, position, 0)]
    return Tuple(fields)


@onnx("ConcatFromSequence", since=11)
def concat_from_sequence(node: Any, x: Any, *, axis: int, new_axis: int) -> Any:
    fields = Tuple(fields_of(x))
    return op.stack(fields, axis) if new_axis else op.concat(fields, axis)


@onnx("SplitToSequence", since=11)
def split_to_sequence(node: Any, x: Any, split: Any = None, *, axis: int, keepdims: int) -> Any:
    size = getattr(dims_of(x)[axis], "value", None)
    if size is None:
        raise FrontendError("the length of the axis that is split must be known")
    if split is None:
        parts = [1] * size
    else:
        numbers = node.known(split, "split")
        if numbers.ndim:
            parts = [int(n) for n in numbers]
        else:
            each = int(numbers)
            parts = [min(each, size - i) for i in range(0, size, each)]
    pieces, begin = [], 0
    for part in parts:
        piece = op.strided_slice(x, [axis], [begin], [begin + part])
        pieces.append(op.squeeze(piece, axis) if split is None and not keepdims else piece)
        begin += part
    return Tuple(tuple(node.emit(p) for p in pieces))


def fields_of(x: Any) -> tuple[Any, ...]:
    """The elements of a sequence."""
    if isinstance(x, Tuple):
        return x.fields
    if not isinstance(x.struct_info, TupleStructInfo):
        raise FrontendError(f"wanted a sequence of known length, got {x.struct_info}")
    return tuple(x)


def _place(node: Any, x: Any, position: Any, more: int) -> int:
    count = len(fields_of(x))
    place = int(node.number(position, "position"))
    if not -count <= place < count + more:
        raise FrontendError(f"position {place} of a sequence of {count}")
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
