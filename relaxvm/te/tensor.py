"""Tensors and the operations that make them.

Tensor(op, value_index)              a value, indexed as A[i, j]
Operation ::= PlaceholderOp(name, shape, dtype)
            | ComputeOp(name, tag, attrs, axis, reduce_axis, body)
PrimExpr, beyond tir ::= ProducerLoad(producer, indices) | Reduce(...)
"""

from __future__ import annotations

from typing import Any

from ..base import DataType, TIRError
from ..base import dtype as as_dtype
from ..ir import Map, Node, PrimExpr, as_expr, node
from ..ir.node import derive, derived
from ..tir.stmt import IterVar

__all__ = ["ComputeOp", "Operation", "PlaceholderOp", "ProducerLoad", "Tensor"]


class Operation(Node):
    """What makes one or more tensors."""

    __slots__ = ()
    name: str

    def output(self, index: int) -> Tensor:
        """The tensor of that number."""
        return Tensor(self, index)

    @property
    def num_outputs(self) -> int:
        """How many tensors it makes."""
        return len(self.output_dtypes)

    @property
    def output_shape(self) -> tuple[PrimExpr, ...]:
        """The shape all its tensors have."""
        raise TIRError(f"{type(self).__name__} does not say its shape")

    @property
    def output_dtypes(self) -> tuple[DataType, ...]:
        """The dtype of each tensor."""
        raise TIRError(f"{type(self).__name__} does not say its dtypes")


@node
class PlaceholderOp(Operation):
    """A tensor given from outside."""

    name: str
    shape: tuple[PrimExpr, ...]
    dtype: DataType

    @property
    def output_shape(self) -> tuple[PrimExpr, ...]:
        return self.shape

    @property
    def output_dtypes(self) -> tuple[DataType, ...]:
        return (self.dtype,)


@node
class ComputeOp(Operation):
    """Tensors given by formulas over `axis` (and, for a reduction, `reduce_axis`)."""

    name: str
    tag: str
    attrs: Map
    axis: tuple[IterVar, ...]
    reduce_axis: tuple[IterVar, ...]
    body: tuple[PrimExpr, ...]

    @property
    def output_shape(self) -> tuple[PrimExpr, ...]:
        return tuple(axis.dom.extent for axis in self.axis if axis.dom is not None)

    @property
    def output_dtypes(self) -> tuple[DataType, ...]:
        return tuple(e.dtype for e in self.body)

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that the formulas read, in order of first use."""
        found: dict[Tensor, None] = {}
        stack: list[Node] = list(reversed(self.body))
        seen: set[int] = set()
        while stack:
            n = stack.pop()
            if id(n) in seen:
                continue
            seen.add(id(n))
            if isinstance(n, ProducerLoad):
                found.setdefault(n.producer)
                stack.extend(reversed(n.indices))
            else:
                stack.extend(c for c in reversed(n._children_()) if isinstance(c, PrimExpr))
        return tuple(found)


@node(interned=True)
class Tensor(Node):
    """One result of an operation. `A[i, j]` and `A(i, j)` read an element."""

    op: Operation
    value_index: int = 0

    @property
    def shape(self) -> tuple[PrimExpr, ...]:
        """The dimensions."""
        return self.op.output_shape

    @property
    def dtype(self) -> DataType:
        """The element dtype."""
        return self.op.output_dtypes[self.value_index]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def name(self) -> str:
        """The name of the operation, with a number where it has several results."""
        several = self.op.num_outputs > 1
        return f"{self.op.name}_v{self.value_index}" if several else self.op.name

    def __getitem__(self, indices: Any) -> PrimExpr:
        return self(*indices) if isinstance(indices, tuple) else self(indices)

    def __call__(self, *indices: Any) -> PrimExpr:
        return ProducerLoad(self, indices)

    def __iter__(self) -> Any:
        raise TIRError(f"tensor {self.name} cannot be iterated; index it with all its axes")

    def __repr__(self) -> str:
        return f"Tensor({self.name}, {self.ndim}-d, {self.dtype})"


@node(interned=True)
class ProducerLoad(PrimExpr):
    """An element of a tensor."""

    producer: Tensor
    indices: tuple[PrimExpr, ...]
    dtype: DataType = derived()

    @staticmethod
    def _normalise_(producer: Any, indices: Any) -> tuple[Tensor, tuple[PrimExpr, ...]]:
        indices = tuple(as_expr(i) for i in indices)
        if len(indices) != producer.ndim:
            raise TIRError(
                f"tensor {producer.name} has {producer.ndim} dimensions, got {len(indices)} indices"
            )
        for i in indices:
            if not i.dtype.is_int or i.dtype.lanes != 1:
                raise TIRError(f"tensor {producer.name}: an index is an integer, got {i.dtype}")
        return producer, indices

    def _init_derived_(self) -> None:
        derive(self, "dtype", as_dtype(self.producer.dtype))
