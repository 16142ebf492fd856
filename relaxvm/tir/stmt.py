"""The loop language: buffers, statements, blocks and loop functions.

    PrimFunc(params, body, ret_type, buffer_map, attrs)

    Stmt ::= BufferStore(buffer, value, indices)             buffer[indices] = value
           | For(loop_var, min, extent, kind, body)          kind: a ForKind
           | While(condition, body)
           | IfThenElse(condition, then_case, else_case?)
           | LetStmt(var, value, body)
           | SeqStmt(seq) | Evaluate(value) | AssertStmt(condition, message, body)
           | AttrStmt(node, attr_key, value, body)
           | Allocate(buffer_var, dtype, extents, condition, body)          (lowered)
           | AllocateConst(buffer_var, dtype, extents, data, body)
           | DeclBuffer(buffer, body)
           | BlockRealize(iter_values, predicate, block)
             Block(iter_vars, reads, writes, name_hint, body, init?, alloc_buffers,
                   match_buffers, annotations)

    PrimExpr, beyond `ir/expr.py` ::= BufferLoad(buffer, indices)

A `Buffer` names memory: `data` (a handle variable), dtype, shape, optional strides in elements, and
elem_offset. Buffers compare by identity. A buffer parameter is a handle variable of `params` that
`buffer_map` maps to its buffer; variables first met in the shapes and strides of `buffer_map` are
bound by the caller's arrays.
"""

from __future__ import annotations

import enum
import importlib
import math
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..base import UNKNOWN, DataType, Span, TIRError, bfloat16_to_float32, bits_to_values
from ..base import dtype as as_dtype
from ..ir import (
    INT32,
    INTRINSICS,
    ArithmeticExpr,
    BaseFunc,
    Broadcast,
    Call,
    IntImm,
    Map,
    Node,
    Op,
    PointerType,
    PrimExpr,
    PrimType,
    Ramp,
    Range,
    Shuffle,
    StringImm,
    Var,
    as_condition,
    as_expr,
    cast,
    const,
    derive,
    derived,
    node,
    walk,
)
from .flat import flat_buffer, flat_index
from .specialize import specialize

if TYPE_CHECKING:
    from ..base import DTypeLike
    from ..ir import ScalarLike


_HANDLE = as_dtype("handle")

FORMULA = Span(name="a formula")
"""The span of a loop function whose loops nobody wrote: `te.create_prim_func` made them. A build
may give it a schedule unasked, until somebody else has (`tir.Schedule`, a pass with loops of its
own).
"""


@node
class Buffer(Node):
    """A named, typed, shaped piece of memory. Compared by identity.

    data            the handle variable that points to it
    shape           dimensions (int32 or int64 expressions)
    strides         in elements; empty: C-contiguous
    elem_offset     elements from `data` to the first element
    data_alignment  bytes that `data` is known to be aligned to
    """

    data: Var
    dtype: DataType
    shape: tuple[PrimExpr, ...]
    strides: tuple[PrimExpr, ...] = ()
    elem_offset: PrimExpr = IntImm("int64", 0)
    name: str = "buffer"
    data_alignment: int = 64
    offset_factor: int = 0
    buffer_type: str = "default"
    axis_separators: tuple[int, ...] = ()
    span: Span = UNKNOWN
    _defs_ = ("data", "shape", "strides", "elem_offset")
    # Masks of `access_ptr`.
    READ = 1
    WRITE = 2

    if TYPE_CHECKING:

        def __init__(
            self,
            data: Var,
            dtype: DTypeLike,
            shape: ScalarLike | Iterable[ScalarLike],
            strides: Iterable[ScalarLike] | None = ...,
            elem_offset: ScalarLike = ...,
            name: str = ...,
            data_alignment: int = ...,
            offset_factor: int = ...,
            buffer_type: str = ...,
            axis_separators: tuple[int, ...] = ...,
            span: Span = ...,
        ) -> None: ...

    @staticmethod
    def _normalise_(*fields: Any) -> tuple[Any, ...]:
        (data, dtype, shape, strides, elem_offset, name, *rest) = fields
        dtype = as_dtype(dtype)
        shape = tuple(_index(e, f"shape of buffer {name}") for e in _sequence(shape))
        strides = tuple(_index(e, f"strides of buffer {name}") for e in _sequence(strides or ()))
        if strides and len(strides) != len(shape):
            raise TIRError(f"buffer {name}: {len(shape)} dimensions but {len(strides)} strides")
        return (data, dtype, shape, strides, _index(elem_offset, "elem_offset"), str(name), *rest)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def scope(self) -> str:
        """The storage scope of `data`: "global" unless it says otherwise."""
        return self.data.storage_scope

    def __getitem__(self, indices: Any) -> Any:
        """A load of one element (or, with slices of constant step 1, a `BufferRegion`)."""
        index = indices if isinstance(indices, tuple) else (indices,)
        if any(isinstance(i, slice) for i in index):
            ranges = []
            for i, extent in zip(index, self.shape):
                if isinstance(i, slice):
                    if i.step not in (None, 1):
                        raise TIRError(f"a region of buffer {self.name} has step 1, got {i.step}")
                    start = as_expr(i.start if i.start is not None else 0)
                    stop = as_expr(i.stop if i.stop is not None else extent)
                    ranges.append(Range.from_min_extent(start, stop - start))
                else:
                    ranges.append(Range.from_min_extent(as_expr(i), const(1, as_expr(i).dtype)))
            return BufferRegion(self, tuple(ranges))
        return BufferLoad(self, index)

    # Without this, Python would iterate by indexing, for ever.
    __iter__ = None

    def vload(
        self, begin: Any, dtype: str | None = None, predicate: PrimExpr | None = None
    ) -> PrimExpr:
        """A load of `lanes(dtype)` consecutive elements along the last axis.

        predicate  a vector of bools: elements where it is false are not read and count as 0
        """
        lanes = as_dtype(dtype).lanes if dtype is not None else 1
        *outer, last = [as_expr(b) for b in _sequence(begin)]
        last = last if lanes == 1 or last.dtype.lanes > 1 else Ramp(last, 1, lanes)
        if predicate is None:
            return BufferLoad(self, (*outer, last))
        zero = const(0, self.dtype)
        read = [
            Call(self.dtype, INTRINSICS["if_then_else"], (wanted, BufferLoad(self, place), zero))
            for wanted, place in self._lanes(as_expr(predicate), (*outer, last))
        ]
        return Shuffle(tuple(read), tuple(range(len(read))))

    def vstore(self, begin: Any, value: Any, predicate: PrimExpr | None = None) -> Stmt:
        """A store of the vector `value` along the last axis.

        predicate  a vector of bools: elements where it is false are not written
        """
        value = as_expr(value)
        *outer, last = [as_expr(b) for b in _sequence(begin)]
        lanes = value.dtype.lanes
        last = last if lanes == 1 or last.dtype.lanes > 1 else Ramp(last, 1, lanes)
        if predicate is None:
            return BufferStore(self, value, (*outer, last))
        predicate = as_expr(predicate)
        # What is stored may change what the value reads.
        kept, mask = Var("value", value.dtype), Var("mask", predicate.dtype)
        stores = [
            IfThenElse(wanted, BufferStore(self, Shuffle((kept,), (k,)), place))
            for k, (wanted, place) in enumerate(self._lanes(mask, (*outer, last)))
        ]
        return LetStmt(mask, predicate, LetStmt(kept, value, SeqStmt(tuple(stores))))

    def _lanes(
        self, predicate: PrimExpr, indices: tuple[PrimExpr, ...]
    ) -> list[tuple[PrimExpr, tuple[PrimExpr, ...]]]:
        """Each lane of a vector access: whether it is made, and its own indices."""
        lanes = index_lanes(indices, f"access of {self.name}")
        if not predicate.dtype.is_bool or predicate.dtype.lanes != lanes or lanes == 1:
            what = f"{lanes} bools" if lanes > 1 else "the access of a vector"
            raise TIRError(
                f"predicate of an access to {self.name}: wanted {what}, got {predicate.dtype}"
            )
        return [
            (
                Shuffle((predicate,), (k,)),
                tuple(i if i.dtype.lanes == 1 else _lane_of(i, k) for i in indices),
            )
            for k in range(lanes)
        ]

    def offset_of(self, indices: Any) -> list[PrimExpr]:
        """Where an element lies: how many elements after `data`, as the only item."""
        return [flat_index(self, tuple(map(as_expr, _sequence(indices))))]

    def get_flattened_buffer(self) -> Buffer:
        """The one-dimensional buffer over the same memory."""
        return flat_buffer(self)

    def access_ptr(
        self,
        access_mask: Any,
        ptr_type: str = "handle",
        content_lanes: int = 1,
        offset: Any = 0,
        extent: Any = None,
    ) -> PrimExpr:
        """The address of the element `offset` elements after the first, for an extern function.

        access_mask    "r", "w" or "rw", or the sum of `Buffer.READ` and `Buffer.WRITE`
        content_lanes  the function takes vectors of as many elements
        extent         how many elements it may touch; default: all that follow
        """
        if isinstance(access_mask, str):
            if not set(access_mask) <= set("rw"):
                raise TIRError(f'access_ptr: wanted "r", "w" or "rw", got {access_mask!r}')
            access_mask = sum({"r": Buffer.READ, "w": Buffer.WRITE}[c] for c in set(access_mask))
        if ptr_type != "handle":
            raise TIRError(f'access_ptr: the pointer is a "handle", got {ptr_type!r}')
        if extent is None:
            lengths = (self.strides[0] * self.shape[0],) if self.strides else self.shape
            extent = math.prod(lengths, start=const(1, "int64")) - offset
        element = const(0, self.dtype.with_lanes(content_lanes))
        start = (self.elem_offset + offset) // content_lanes
        args = element, self.data, start, as_expr(extent) // content_lanes, const(access_mask)
        return Call("handle", Op.get("tir.tvm_access_ptr"), args)

    def __repr__(self) -> str:
        return f"Buffer({self.name}: {self.dtype}, {self.ndim}-d)"


def _lane_of(e: PrimExpr, k: int) -> PrimExpr:
    return e.base + e.stride * k if isinstance(e, Ramp) else Shuffle((e,), (k,))


def _sequence(values: Any) -> tuple[Any, ...]:
    if isinstance(values, (tuple, list)):
        return tuple(values)
    return (values,)


def _index(value: Any, what: str) -> PrimExpr:
    expr = as_expr(value)
    if not expr.dtype.is_int:
        raise TIRError(f"{what}: wanted an integer, got {expr.dtype}")
    return expr


def decl_buffer(
    shape: Any,
    dtype: str = "float32",
    name: str = "buffer",
    data: Var | None = None,
    strides: Any = (),
    elem_offset: Any = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Any = (),
    span: Span = UNKNOWN,
) -> Buffer:
    """A new buffer, with a new data variable unless one is given."""
    if data is None:
        data = Var(name, PointerType(PrimType(as_dtype(dtype)), scope))
    return Buffer(
        data,
        dtype,
        shape,
        strides,
        IntImm("int64", 0) if elem_offset is None else elem_offset,
        name,
        64 if data_alignment <= 0 else data_alignment,
        offset_factor,
        buffer_type or "default",
        tuple(axis_separators or ()),
        span,
    )


# What most indices are; others are looked at one by one.
_INDICES = frozenset({Var, IntImm, Ramp, *ArithmeticExpr.__subclasses__()})
_IS_INT = operator.attrgetter("dtype.is_int")
_LANES, _ONE = operator.attrgetter("dtype.lanes"), frozenset({1})


def index_lanes(indices: tuple[PrimExpr, ...], what: str) -> int:
    """The lanes of an access: those of its one vector index, or 1. Raises TIRError for two vector
    indices.
    """
    lanes = 1
    for i in indices:
        if i.dtype.lanes != 1:
            if lanes != 1 and lanes != i.dtype.lanes:
                raise TIRError(f"{what}: vector indices of {lanes} and {i.dtype.lanes} lanes")
            lanes = i.dtype.lanes
    return lanes


def _access(buffer: Any, indices: Any, what: str) -> tuple[PrimExpr, ...]:
    if not isinstance(buffer, Buffer):
        raise TIRError(f"{what}: wanted a Buffer, got {type(buffer).__name__}")
    if type(indices) is not tuple:
        indices = _sequence(indices)
    for i in indices:
        if not isinstance(i, PrimExpr) or not i.dtype.is_int:
            indices = tuple([_index(i, f"index of {buffer.name}") for i in indices])
            break
    if len(indices) != len(buffer.shape):
        raise TIRError(
            f"{what}: buffer {buffer.name} has {buffer.ndim} dimensions, got {len(indices)} indices"
        )
    return indices


@node(interned=True)
class BufferLoad(PrimExpr):
    """buffer[indices]; the last index may be a vector."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    dtype: DataType = derived()
    _operands_ = property(operator.attrgetter("indices"))
    _sound_ = (
        "type(buffer) is Buffer and type(indices) is tuple and len(indices) == len(buffer.shape)"
        " and _INDICES.issuperset(map(type, indices)) and all(map(_IS_INT, indices))"
    )

    @staticmethod
    def _normalise_(buffer: Any, indices: Any) -> tuple[Buffer, tuple[PrimExpr, ...]]:
        return buffer, _access(buffer, indices, "load")

    def _init_derived_(self) -> None:
        dtype = self.buffer.dtype
        if not _ONE.issuperset(map(_LANES, self.indices)):
            dtype = dtype.with_lanes(index_lanes(self.indices, "load") * dtype.lanes)
        derive(self, "dtype", dtype)


@node
class BufferRegion(Node):
    """A box of elements of a buffer."""

    buffer: Buffer
    region: tuple[Range, ...]

    @staticmethod
    def _normalise_(buffer: Any, region: Any) -> tuple[Buffer, tuple[Range, ...]]:
        region = tuple(region)
        if len(region) != len(buffer.shape):
            raise TIRError(
                f"region: buffer {buffer.name} has {buffer.ndim} dimensions, got {len(region)} "
                f"ranges"
            )
        return buffer, region

    @staticmethod
    def full_region(buffer: Buffer) -> BufferRegion:
        """All of `buffer`."""
        return BufferRegion(
            buffer, tuple(Range.from_min_extent(const(0, e.dtype), e) for e in buffer.shape)
        )


class Stmt(Node):
    """Something a loop function does.

    statements  those directly in it, in the order in which they run
    """

    __slots__ = ("statements",)
    span: Span
    statements: tuple[Stmt, ...]
    _copied_: ClassVar[dict[str, str]] = {"statements": "()"}

    def __str__(self) -> str:
        return self.script()


@node
class BufferStore(Stmt):
    """buffer[indices] = value"""

    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]
    span: Span = UNKNOWN

    @staticmethod
    def _normalise_(buffer: Any, value: Any, indices: Any, span: Any) -> tuple[Any, ...]:
        indices = _access(buffer, indices, "store")
        wanted = buffer.dtype
        if not _ONE.issuperset(map(_LANES, indices)):
            wanted = wanted.with_lanes(index_lanes(indices, "store") * wanted.lanes)
        if not isinstance(value, PrimExpr):
            value = as_expr(value, buffer.dtype)
        if value.dtype is not wanted:
            if value.dtype.element is not wanted.element or value.dtype.lanes != 1:
                raise TIRError(
                    f"store: buffer {buffer.name} holds {wanted}, the value is {value.dtype}; "
                    f"cast it"
                )
            value = Broadcast(value, wanted.lanes)
        return buffer, value, indices, span


class ForKind(enum.IntEnum):
    """How the iterations of a loop are run."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4


_KINDS = {
    "serial": ForKind.SERIAL,
    "parallel": ForKind.PARALLEL,
    "vectorized": ForKind.VECTORIZED,
    "unroll": ForKind.UNROLLED,
    "unrolled": ForKind.UNROLLED,
    "thread_binding": ForKind.THREAD_BINDING,
}


@node
class IterVar(Node):
    """An axis: its domain, its variable and how it may be iterated.

    iter_type   "spatial" (independent), "reduce", "opaque", "ordered" (scan) or "thread"
    is_spatial  whether its iterations are independent
    is_reduce   whether its iterations add up to a result
    """

    dom: Range | None
    var: Var
    iter_type: str = "spatial"
    thread_tag: str = ""
    span: Span = UNKNOWN
    is_spatial: bool = derived()
    is_reduce: bool = derived()
    _defs_ = ("var",)

    # TVM's numbers for the kinds, accepted in place of the names.
    DataPar, ThreadIndex, CommReduce, Ordered, Opaque = 0, 1, 2, 3, 4

    if TYPE_CHECKING:

        def __init__(
            self,
            dom: Range | Iterable[ScalarLike] | None,
            var: Var | str,
            iter_type: str | int = ...,
            thread_tag: str = ...,
            span: Span = ...,
        ) -> None: ...

    @staticmethod
    def _normalise_(
        dom: Any, var: Any, iter_type: Any, thread_tag: Any, span: Any
    ) -> tuple[Any, ...]:
        names = ("spatial", "thread", "reduce", "ordered", "opaque")
        if isinstance(iter_type, int):
            iter_type = names[iter_type]
        if iter_type not in names:
            raise TIRError(f"IterVar: wanted one of {', '.join(names)}, got {iter_type!r}")
        if isinstance(dom, (tuple, list)):
            dom = Range.from_min_extent(as_expr(dom[0]), as_expr(dom[1]) - as_expr(dom[0]))
        if isinstance(var, str):
            var = Var(var, dom.extent.dtype if dom is not None else INT32)
        return dom, var, iter_type, thread_tag, span

    def _init_derived_(self) -> None:
        derive(self, "is_spatial", self.iter_type == "spatial")
        derive(self, "is_reduce", self.iter_type == "reduce")

    @property
    def range(self) -> Range:
        """Its domain. Raises TIRError if it has none, as axes of threads may."""
        if self.dom is None:
            raise TIRError(f"axis {self.var.name} has no domain")
        return self.dom

    def __prim_expr__(self) -> PrimExpr:
        return self.var

    def _op(self, other: Any, f: Any) -> Any:
        return f(self.var, other.var if isinstance(other, IterVar) else other)

    def __add__(self, other: Any) -> Any:
        return self._op(other, lambda a, b: a + b)

    def __radd__(self, other: Any) -> Any:
        return other + self.var

    def __sub__(self, other: Any) -> Any:
        return self._op(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return other - self.var

    def __mul__(self, other: Any) -> Any:
        return self._op(other, lambda a, b: a * b)

    def __rmul__(self, other: Any) -> Any:
        return other * self.var

    def __floordiv__(self, other: Any) -> Any:
        return self._op(other, lambda a, b: a // b)

    def __rfloordiv__(self, other: Any) -> Any:
        return other // self.var

    def __mod__(self, other: Any) -> Any:
        return self._op(other, lambda a, b: a % b)

    def __rmod__(self, other: Any) -> Any:
        return other % self.var

    def __neg__(self) -> Any:
        return -self.var

    def __lt__(self, other: Any) -> Any:
        return self._op(other, lambda a, b: a < b)

    def __le__(self, other: Any) -> Any:
        return self._op(other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> Any:
        return self._op(other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> Any:
        return self._op(other, lambda a, b: a >= b)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, IterVar):
            return self is other
        if isinstance(other, (PrimExpr, int)):
            return self.var == other
        return NotImplemented

    def __ne__(self, other: object) -> Any:
        if isinstance(other, IterVar):
            return self is not other
        if isinstance(other, (PrimExpr, int)):
            return self.var != other
        return NotImplemented

    __hash__ = object.__hash__

    def astype(self, dtype: str) -> PrimExpr:
        """The axis variable cast to `dtype`."""
        return cast(dtype, self.var)


@node
class For(Stmt):
    """for loop_var in min .. min + extent"""

    loop_var: Var
    min: PrimExpr
    extent: PrimExpr
    if TYPE_CHECKING:
        kind: ForKind
    else:
        kind: int
    body: Stmt
    thread_binding: IterVar | None = None
    annotations: Map = Map.EMPTY
    span: Span = UNKNOWN
    _copied_ = {"statements": "(body,)"}
    _defs_ = ("loop_var",)

    if TYPE_CHECKING:

        def __init__(
            self,
            loop_var: Var,
            min: ScalarLike,
            extent: ScalarLike,
            kind: int | str,
            body: Stmt,
            thread_binding: IterVar | None = ...,
            annotations: Mapping[str, Any] | None = ...,
            span: Span = ...,
        ) -> None: ...

    _sound_ = (
        "isinstance(loop_var, Var) and isinstance(min, PrimExpr) and isinstance(extent, PrimExpr)"
        " and min.dtype is loop_var.dtype is extent.dtype and min.dtype.is_int"
        " and type(kind) is ForKind and isinstance(body, Stmt) and type(annotations) is Map"
    )

    @staticmethod
    def _normalise_(
        loop_var: Any,
        min: Any,
        extent: Any,
        kind: Any,
        body: Any,
        binding: Any,
        annotations: Any,
        span: Any,
    ) -> tuple[Any, ...]:
        kind = _KINDS.get(kind, kind) if isinstance(kind, str) else kind
        if not isinstance(loop_var, Var) or not loop_var.dtype.is_int:
            raise TIRError(f"For: the loop variable is an integer Var, got {loop_var!r}")
        dtype = loop_var.dtype
        both = isinstance(min, PrimExpr) and isinstance(extent, PrimExpr)
        if not (both and min.dtype is dtype is extent.dtype):
            min, extent = cast(dtype, min), cast(dtype, extent)
        if not isinstance(body, Stmt):
            raise TIRError(f"For: the body is a statement, got {type(body).__name__}")
        if type(kind) is not ForKind:
            try:
                kind = ForKind(kind)
            except ValueError:
                raise TIRError(
                    f"For: unknown kind {kind!r}; wanted one of {', '.join(_KINDS)}"
                ) from None
        if type(annotations) is not Map:
            annotations = Map.of(annotations)
        return loop_var, min, extent, kind, body, binding, annotations, span


@node
class While(Stmt):
    """while condition: body"""

    condition: PrimExpr
    body: Stmt
    span: Span = UNKNOWN
    _copied_ = {"statements": "(body,)"}

    @staticmethod
    def _normalise_(condition: Any, body: Any, span: Any) -> tuple[Any, ...]:
        return as_condition(condition), body, span


@node
class IfThenElse(Stmt):
    """if condition: then_case else: else_case"""

    condition: PrimExpr
    then_case: Stmt
    else_case: Stmt | None = None
    span: Span = UNKNOWN
    _copied_ = {"statements": "(then_case,) if else_case is None else (then_case, else_case)"}
    _sound_ = "isinstance(condition, PrimExpr) and condition.dtype.is_bool"

    @staticmethod
    def _normalise_(condition: Any, then_case: Any, else_case: Any, span: Any) -> tuple[Any, ...]:
        return as_condition(condition), then_case, else_case, span


@node
class LetStmt(Stmt):
    """var = value, visible in body"""

    var: Var
    value: PrimExpr
    body: Stmt
    span: Span = UNKNOWN
    _copied_ = {"statements": "(body,)"}
    _defs_ = ("var",)

    @staticmethod
    def _normalise_(var: Any, value: Any, body: Any, span: Any) -> tuple[Any, ...]:
        value = as_expr(value)
        if not isinstance(var, Var) or var.dtype is not value.dtype:
            raise TIRError(f"LetStmt: {var!r} cannot hold a value of dtype {value.dtype}")
        return var, value, body, span


@node
class SeqStmt(Stmt):
    """Statements one after the other. `seq(...)` builds flat ones."""

    seq: tuple[Stmt, ...]
    span: Span = UNKNOWN
    _copied_ = {"statements": "seq"}

    @staticmethod
    def _normalise_(seq: Any, span: Any) -> tuple[Any, ...]:
        seq = tuple(seq)
        for stmt in seq:
            if not isinstance(stmt, Stmt):
                raise TIRError(f"SeqStmt: wanted statements, got {type(stmt).__name__}")
        return seq, span

    def __len__(self) -> int:
        return len(self.seq)

    def __getitem__(self, index: int) -> Stmt:
        return self.seq[index]

    def __bool__(self) -> bool:
        return True


@node
class Evaluate(Stmt):
    """Evaluate a call for what it does."""

    value: PrimExpr
    span: Span = UNKNOWN

    @staticmethod
    def _normalise_(value: Any, span: Any) -> tuple[Any, ...]:
        return as_expr(value), span


def seq(*stmts: Any) -> Stmt:
    """The statements in order: nested sequences flattened, no-ops dropped, one left bare.

    Raises TIRError for a list that holds itself.
    """
    flat: list[Stmt] = []
    # The sequences around the statement in hand, innermost last, with what is left of each.
    around: dict[int, Iterator[Any]] = {id(stmts): iter(stmts)}
    while around:
        innermost = next(reversed(around))
        for each in around[innermost]:
            items = each.seq if isinstance(each, SeqStmt) else each
            if isinstance(items, (list, tuple)):
                if id(items) in around:
                    raise TIRError("seq: a list of statements holds itself")
                around[id(items)] = iter(items)
                break
            if each is not None and (type(each) is not Evaluate or not is_no_op(each)):
                flat.append(each)
        else:
            del around[innermost]
    if not flat:
        return Evaluate(const(0))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


statements_below: Callable[[Stmt], Sequence[Stmt]] = operator.attrgetter("statements")
"""The statements directly in one, in the order in which they run."""


def statements_in(root: Stmt, closed: tuple[type[Stmt], ...] = ()) -> list[Stmt]:
    """`root` and the statements in it, parents first, in the order in which they run; those of the
    classes `closed` are not entered.
    """
    stack: list[Any] = [root]
    met = []
    while stack:
        s = stack.pop()
        met.append(s)
        if type(s) not in closed:
            stack += s.statements[::-1]
    return met


def is_no_op(stmt: Any) -> bool:
    """Whether `stmt` is the evaluation of a constant."""
    return isinstance(stmt, Evaluate) and isinstance(stmt.value, IntImm)


@node
class AssertStmt(Stmt):
    """Leave with `message` unless `condition` holds; else go on with `body`."""

    condition: PrimExpr
    message: PrimExpr
    body: Stmt
    span: Span = UNKNOWN
    _copied_ = {"statements": "(body,)"}

    @staticmethod
    def _normalise_(condition: Any, message: Any, body: Any, span: Any) -> tuple[Any, ...]:
        message = StringImm(message) if isinstance(message, str) else as_expr(message)
        return as_condition(condition), message, body, span


@node
class AttrStmt(Stmt):
    """`body` under a remark about `node`."""

    node: Any
    attr_key: str
    value: PrimExpr
    body: Stmt
    span: Span = UNKNOWN
    _copied_ = {"statements": "(body,)"}

    @staticmethod
    def _normalise_(node: Any, attr_key: Any, value: Any, body: Any, span: Any) -> tuple[Any, ...]:
        return node, attr_key, as_expr(value), body, span


@node
class Allocate(Stmt):
    """Memory of `extents` elements behind `buffer_var`, alive in `body`. A vector dtype counts as
    its elements.
    """

    buffer_var: Var
    dtype: DataType
    extents: tuple[PrimExpr, ...]
    condition: PrimExpr
    body: Stmt
    annotations: Map = Map.EMPTY
    span: Span = UNKNOWN
    _copied_ = {"statements": "(body,)"}
    _defs_ = ("buffer_var",)

    @staticmethod
    def _normalise_(
        buffer_var: Any,
        dtype: Any,
        extents: Any,
        condition: Any,
        body: Any,
        annotations: Any,
        span: Any,
    ) -> tuple[Any, ...]:
        extents = tuple(_index(e, "Allocate") for e in _sequence(extents))
        return (
            buffer_var,
            as_dtype(dtype),
            extents,
            as_condition(condition),
            body,
            Map.of(annotations),
            span,
        )


@node
class AllocateConst(Stmt):
    """Constant memory with the contents `data` (a flat tuple of numbers) behind `buffer_var`, alive
    in `body`.
    """

    buffer_var: Var
    dtype: DataType
    extents: tuple[PrimExpr, ...]
    data: Any
    body: Stmt
    annotations: Map = Map.EMPTY
    span: Span = UNKNOWN
    _copied_ = {"statements": "(body,)"}
    _defs_ = ("buffer_var",)

    @staticmethod
    def _normalise_(
        buffer_var: Any, dtype: Any, extents: Any, data: Any, body: Any, annotations: Any, span: Any
    ) -> tuple[Any, ...]:
        extents = tuple(_index(e, "AllocateConst") for e in _sequence(extents))
        if hasattr(data, "numpy"):
            data = data.numpy()
        if hasattr(data, "reshape"):
            if as_dtype(dtype).is_bfloat and data.dtype == "uint16":
                data = bfloat16_to_float32(data)
            elif as_dtype(dtype).is_byte:
                bits = data.dtype in ("uint8", "V1")
                data = bits_to_values(data, as_dtype(dtype)) if bits else data.astype("float32")
            data = tuple(data.reshape(-1).tolist())
        return buffer_var, as_dtype(dtype), extents, tuple(data), body, Map.of(annotations), span


@node
class DeclBuffer(Stmt):
    """`buffer` (another view of memory allocated elsewhere) is declared for `body`."""

    buffer: Buffer
    body: Stmt
    span: Span = UNKNOWN
    _copied_ = {"statements": "(body,)"}
    _defs_ = ("buffer",)


@node
class MatchBufferRegion(Node):
    """`buffer` is a view of the region `source`; variables in its shape and strides are bound by
    it.
    """

    buffer: Buffer
    source: BufferRegion
    _defs_ = ("buffer",)


@node
class Block(Stmt):
    """A unit of computation over iteration variables, with what it reads and writes declared."""

    iter_vars: tuple[IterVar, ...]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    name_hint: str
    body: Stmt
    init: Stmt | None = None
    alloc_buffers: tuple[Buffer, ...] = ()
    match_buffers: tuple[MatchBufferRegion, ...] = ()
    annotations: Map = Map.EMPTY
    span: Span = UNKNOWN
    _copied_ = {"statements": "(body,) if init is None else (init, body)"}
    _defs_ = ("iter_vars", "alloc_buffers")
    # Definitions are met before uses when fields are compared in this order; names do not count.
    _order_ = (
        "iter_vars",
        "alloc_buffers",
        "match_buffers",
        "reads",
        "writes",
        "init",
        "body",
        "annotations",
    )

    _sound_ = (
        "type(iter_vars) is type(reads) is type(writes) is type(alloc_buffers)"
        " is type(match_buffers) is tuple and type(annotations) is Map"
    )

    @staticmethod
    def _normalise_(
        iter_vars: Any,
        reads: Any,
        writes: Any,
        name_hint: Any,
        body: Any,
        init: Any,
        alloc_buffers: Any,
        match_buffers: Any,
        annotations: Any,
        span: Any,
    ) -> tuple[Any, ...]:
        return (
            tuple(iter_vars),
            tuple(reads),
            tuple(writes),
            name_hint,
            body,
            init,
            tuple(alloc_buffers or ()),
            tuple(match_buffers or ()),
            Map.of(annotations),
            span,
        )


@node
class BlockRealize(Stmt):
    """Run `block` with its iteration variables bound to `iter_values`, where `predicate` holds."""

    iter_values: tuple[PrimExpr, ...]
    predicate: PrimExpr
    block: Block
    span: Span = UNKNOWN
    _copied_ = {"statements": "(block,)"}

    @staticmethod
    def _normalise_(iter_values: Any, predicate: Any, block: Any, span: Any) -> tuple[Any, ...]:
        iter_values = tuple(iter_values)
        if len(iter_values) != len(block.iter_vars):
            raise TIRError(
                f"block {block.name_hint} has {len(block.iter_vars)} iteration variables, "
                f"got {len(iter_values)} values"
            )
        for iv, v in zip(block.iter_vars, iter_values):
            if not isinstance(v, PrimExpr) or v.dtype is not iv.var.dtype:
                pairs = zip(block.iter_vars, iter_values)
                iter_values = tuple([cast(iv.var.dtype, v) for iv, v in pairs])
                break
        if not isinstance(predicate, PrimExpr) or not predicate.dtype.is_bool:
            predicate = as_condition(predicate)
        return iter_values, predicate, block, span


REASSOCIATE = "tir.reassociate"
"""Attribute of a function whose reductions may be computed in any order."""

NONTEMPORAL = "tir.nontemporal"
"""Annotation of a loop whose stores of vectors need not stay in the caches."""

PREFETCH = "tir.prefetch"
"""Annotation of a loop around others: so many elements ahead of what those read, memory is asked
for at each of its steps.
"""

PREFETCH_PANEL = "tir.prefetch_panel"
"""Annotation beside that of a loop that reads a panel of so many elements. Where loops outside read
the panel again and again, each time asks for its share of the next panel instead.
"""


@node
class PrimFunc(BaseFunc):
    """A loop function.

    params      scalar variables, and handle variables for buffers
    buffer_map  handle variable -> buffer
    """

    params: tuple[Var, ...]
    body: Stmt
    ret_type: PrimType | None = None
    buffer_map: Map = Map.EMPTY
    attrs: Map = Map.EMPTY
    span: Span = UNKNOWN
    _defs_ = ("params", "buffer_map")
    _order_ = ("params", "buffer_map", "ret_type", "attrs", "body")

    if TYPE_CHECKING:

        def __init__(
            self,
            params: Iterable[Var | Buffer] | Var | Buffer,
            body: Stmt,
            ret_type: PrimType | None = ...,
            buffer_map: Mapping[Var, Buffer] | None = ...,
            attrs: Mapping[str, Any] | None = ...,
            span: Span = ...,
        ) -> None: ...

    _sound_ = (
        "type(params) is tuple and set(map(type, params)) <= {Var} and isinstance(body, Stmt)"
        " and type(buffer_map) is type(attrs) is Map and buffer_map.keys() <= set(params)"
    )

    @staticmethod
    def _normalise_(
        params: Any, body: Any, ret_type: Any, buffer_map: Any, attrs: Any, span: Any
    ) -> tuple[Any, ...]:
        # As in TVM, a Buffer may be given as a parameter.
        extra: dict[Var, Buffer] = {}
        variables = []
        for p in _sequence(params):
            if isinstance(p, Buffer):
                handle = Var(p.name, _HANDLE)
                extra[handle] = p
                p = handle
            if not isinstance(p, Var):
                raise TIRError(
                    f"PrimFunc: a parameter is a Var or a Buffer, got {type(p).__name__}"
                )
            variables.append(p)
        if not isinstance(body, Stmt):
            raise TIRError(f"PrimFunc: the body is a statement, got {type(body).__name__}")
        if extra or type(buffer_map) is not Map:
            buffer_map = Map.of({**(buffer_map or {}), **extra})
        known = set(variables)
        for handle in buffer_map:
            if handle not in known:
                raise TIRError(f"PrimFunc: buffer_map names {handle!r}, which is no parameter")
        attrs = attrs if type(attrs) is Map else Map.of(attrs)
        return tuple(variables), body, ret_type, buffer_map, attrs, span

    def replace(self, **changes: Any) -> PrimFunc:
        """A copy with some fields changed. A new body has loops that somebody wrote."""
        if self.span is FORMULA and changes.get("body", self.body) is not self.body:
            changes.setdefault("span", UNKNOWN)
        return Node.replace(self, **changes)

    @property
    def struct_info(self) -> Any:
        """The signature, a `relax.FuncStructInfo` (see `relax.analysis.loop_signature`)."""
        return importlib.import_module("relaxvm.relax.analysis").loop_signature(self)

    def _for_callers_(self) -> None:
        """A GlobalVar of a loop function has no struct info: lowered code calls it by pointers."""

    def with_body(self, new_body: Stmt, span: Span | None = None) -> PrimFunc:
        """A copy with another body."""
        return self.replace(body=new_body)

    def specialize(self, param_map: Any) -> PrimFunc:
        """A copy with the parameters in `param_map` fixed (see `tir.specialize`)."""
        return specialize(self, param_map)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers of the buffer parameters, in order."""
        bound = self.buffer_map
        return tuple([bound[p] for p in self.params if p in bound])


_body_nodes: weakref.WeakKeyDictionary[PrimFunc, list[Node]] = weakref.WeakKeyDictionary()


def body_nodes(fn: PrimFunc) -> list[Node]:
    """Every node in the body of `fn`, parents first, each once.

    Looked for once: many steps of a build ask. Nobody changes the list.
    """
    nodes = _body_nodes.get(fn)
    if nodes is None:
        nodes = _body_nodes[fn] = walk(fn.body)
    return nodes
