"""Tensors and the operations that make them.

Tensor(op, value_index)              a value, indexed as A[i, j]
Operation ::= PlaceholderOp(name, shape, dtype)
            | ComputeOp(name, tag, attrs, axis, reduce_axis, body)
            | ExternOp(name, tag, attrs, inputs, input_placeholders, output_placeholders, body)
            | ScanOp(name, tag, attrs, scan_axis, init, update, state_placeholder, inputs)
TensorSlice(tensor, indices)         A[i] of a matrix, which takes the other indices: A[i][j]
PrimExpr, beyond tir ::= ProducerLoad(producer, indices) | Reduce(...)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from ..arith import prove_equal
from ..base import DataType, TIRError
from ..base import dtype as as_dtype
from ..ir import (
    IntImm,
    Map,
    Node,
    PrimExpr,
    Range,
    Select,
    Var,
    as_expr,
    cast,
    const,
    derive,
    derived,
    is_const,
    node,
)
from ..tir import Buffer, IterVar, Stmt


class Operation(Node):
    """What makes one or more tensors."""

    __slots__ = ()
    name: str
    tag: str
    attrs: Map

    def output(self, index: int) -> Tensor:
        """The tensor of that number."""
        return Tensor(self, index)

    @property
    def num_outputs(self) -> int:
        """How many tensors it makes."""
        return len(self.output_dtypes)

    @property
    def output_shapes(self) -> tuple[tuple[PrimExpr, ...], ...]:
        """The shape of each tensor."""
        raise TIRError(f"{type(self).__name__} does not say its shapes")

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that it reads, in order of first use."""
        return ()

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
    def tag(self) -> str:  # type: ignore[override]
        """Placeholders have none."""
        return ""

    @property
    def attrs(self) -> Map:  # type: ignore[override]
        """Placeholders have none."""
        return Map()

    @property
    def output_shapes(self) -> tuple[tuple[PrimExpr, ...], ...]:
        return (self.shape,)

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
    def output_shapes(self) -> tuple[tuple[PrimExpr, ...], ...]:
        shape = tuple(axis.dom.extent for axis in self.axis if axis.dom is not None)
        return (shape,) * len(self.body)

    @property
    def output_dtypes(self) -> tuple[DataType, ...]:
        return tuple(e.dtype for e in self.body)

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        producers: dict[Tensor, None] = {}
        stack: list[Node] = list(reversed(self.body))
        seen: set[int] = set()
        while stack:
            n = stack.pop()
            if id(n) in seen:
                continue
            seen.add(id(n))
            if isinstance(n, ProducerLoad):
                producers.setdefault(n.producer)
                stack.extend(reversed(n.indices))
            else:
                stack.extend(c for c in reversed(n._children_) if isinstance(c, PrimExpr))
        return tuple(producers)


@node
class ExternOp(Operation):
    """Tensors that a statement makes, over buffers that stand for `inputs` and for the results."""

    name: str
    tag: str
    attrs: Map
    inputs: tuple[Tensor, ...]
    input_placeholders: tuple[Buffer, ...]
    output_placeholders: tuple[Buffer, ...]
    body: Stmt

    @property
    def output_shapes(self) -> tuple[tuple[PrimExpr, ...], ...]:
        return tuple(b.shape for b in self.output_placeholders)

    @property
    def output_dtypes(self) -> tuple[DataType, ...]:
        return tuple(b.dtype for b in self.output_placeholders)

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys(self.inputs))


@node
class ScanOp(Operation):
    """Tensors whose rows follow from earlier rows: those of `init` come first, then `update` is
    computed row by row along `scan_axis`, from what `state_placeholder` stands for.
    """

    name: str
    tag: str
    attrs: Map
    scan_axis: IterVar
    init: tuple[Tensor, ...]
    update: tuple[Tensor, ...]
    state_placeholder: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]

    @property
    def output_shapes(self) -> tuple[tuple[PrimExpr, ...], ...]:
        return tuple(s.shape for s in self.state_placeholder)

    @property
    def output_dtypes(self) -> tuple[DataType, ...]:
        return tuple(s.dtype for s in self.state_placeholder)

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys((*self.init, *self.update)))


@node(interned=True)
class Tensor(Node):
    """One result of an operation. `A[i, j]`, `A(i, j)` and `A[i][j]` read an element; arithmetic of
    tensors and numbers is element by element, and broadcasts as numpy's.
    """

    op: Operation
    value_index: int = 0

    # Scalar expressions on the left of an operator leave it to the tensor.
    __broadcasts__ = True

    @property
    def shape(self) -> tuple[PrimExpr, ...]:
        """The dimensions."""
        return self.op.output_shapes[self.value_index]

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

    def __getitem__(self, indices: Any) -> PrimExpr | TensorSlice:
        place = indices if isinstance(indices, tuple) else (indices,)
        return TensorSlice(self, place) if len(place) < self.ndim else self(*place)

    def __call__(self, *indices: Any) -> PrimExpr:
        return ProducerLoad(self, indices)

    def astype(self, dtype: Any) -> Tensor:
        """Its elements cast to `dtype`."""
        return broadcast_compute(lambda x: cast(as_dtype(dtype), x), (self,))

    def __add__(self, other: Any) -> Tensor:
        return broadcast_compute(operator.add, (self, other))

    def __radd__(self, other: Any) -> Tensor:
        return broadcast_compute(operator.add, (other, self))

    def __sub__(self, other: Any) -> Tensor:
        return broadcast_compute(operator.sub, (self, other))

    def __rsub__(self, other: Any) -> Tensor:
        return broadcast_compute(operator.sub, (other, self))

    def __mul__(self, other: Any) -> Tensor:
        return broadcast_compute(operator.mul, (self, other))

    def __rmul__(self, other: Any) -> Tensor:
        return broadcast_compute(operator.mul, (other, self))

    def __truediv__(self, other: Any) -> Tensor:
        return broadcast_compute(operator.truediv, (self, other))

    def __rtruediv__(self, other: Any) -> Tensor:
        return broadcast_compute(operator.truediv, (other, self))

    def __floordiv__(self, other: Any) -> Tensor:
        return broadcast_compute(operator.floordiv, (self, other))

    def __mod__(self, other: Any) -> Tensor:
        return broadcast_compute(operator.mod, (self, other))

    def __pow__(self, other: Any) -> Tensor:
        return broadcast_compute(operator.pow, (self, other))

    def __neg__(self) -> Tensor:
        return broadcast_compute(operator.neg, (self,))

    def __iter__(self) -> Any:
        raise TIRError(f"tensor {self.name} cannot be iterated; index it with all its axes")

    def __repr__(self) -> str:
        return f"Tensor({self.name}, {self.ndim}-d, {self.dtype})"


class TensorSlice:
    """The first indices of a tensor; `[...]` gives it more."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: tuple[Any, ...]) -> None:
        self.tensor = tensor
        self.indices = indices

    def __getitem__(self, indices: Any) -> PrimExpr | TensorSlice:
        more = indices if isinstance(indices, tuple) else (indices,)
        return self.tensor[(*self.indices, *more)]

    @property
    def dtype(self) -> DataType:
        """The element dtype."""
        return self.tensor.dtype

    def __prim_expr__(self) -> PrimExpr:
        return self.tensor(*self.indices)


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


# -- operands that broadcast -----------------------------------------------------------------------


def broadcast_compute(scalar: Callable[..., Any], operands: Sequence[Any]) -> Tensor:
    """The tensor of ``scalar(a[i], b[i], ...)`` over the broadcast of `operands`: tensors and
    scalars.

    Raises TIRError if sizes are not known to be equal and neither is 1.
    """
    dims = _broadcast_shape([x.shape for x in operands if isinstance(x, Tensor)])
    index = [Var(f"i{k}", d.dtype) for k, d in enumerate(dims)]
    body = as_expr(scalar(*(broadcast_value(x, index, dims) for x in operands)))
    axes = tuple(
        IterVar(Range.from_min_extent(const(0, d.dtype), d), i) for i, d in zip(index, dims)
    )
    return ComputeOp("compute", "", Map(), axes, (), (body,)).output(0)


def broadcast_value(x: Any, index: Sequence[PrimExpr], dims: Sequence[PrimExpr]) -> Any:
    """The element of `x` at `index` of the broadcast `dims`; a scalar is itself."""
    if not isinstance(x, Tensor):
        return x
    start = len(index) - x.ndim
    own: list[PrimExpr] = []
    for dim, i, d in zip(x.shape, index[start:], dims[start:]):
        zero = const(0, i.dtype)
        if is_const(dim, 1):
            own.append(zero)
        elif same_size(dim, d):
            own.append(i)
        else:
            own.append(Select(dim.equal(const(1, dim.dtype)), zero, i))
    return x(*own)


def same_size(a: PrimExpr, b: PrimExpr) -> bool:
    """Whether two dimensions are known to be equal."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value == b.value
    return a is b or prove_equal(a.astype("int64"), b.astype("int64"))


def _broadcast_shape(shapes: Sequence[Sequence[PrimExpr]]) -> tuple[PrimExpr, ...]:
    dims: list[PrimExpr] = []
    for k in range(-max(map(len, shapes)), 0):
        sizes = [s[k] for s in shapes if len(s) >= -k]
        wide = next((d for d in sizes if not is_const(d, 1)), sizes[0])
        for d in sizes:
            if not (is_const(d, 1) or same_size(d, wide)):
                texts = " and ".join(f"({', '.join(map(str, s))})" for s in shapes)
                raise TIRError(
                    f"tensors of shapes {texts} do not broadcast: along axis {k}, {wide} and {d} "
                    f"are not known to be equal, and neither is 1"
                )
        dims.append(wide)
    return tuple(dims)
