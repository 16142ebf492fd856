"""The scalar language: shapes in `relax`, indices and values in `tir`. Interned: equal means
identical.

    PrimExpr ::= IntImm | FloatImm | StringImm | Var | SizeVar | Cast(dtype, PrimExpr)
               | Add | Sub | Mul | Div | Mod | FloorDiv | FloorMod | Min | Max        (a, b)
               | EQ | NE | LT | LE | GT | GE | And | Or                               (a, b)
               | Not(a) | Select(condition, true_value, false_value)
               | Let(var, value, body) | Call(dtype, op, args)
               | Ramp(base, stride, lanes) | Broadcast(value, lanes) | Shuffle(vectors, indices)
               | BufferLoad (tir)

Integers are two's complement of their width: arithmetic wraps. `Div` and `Mod` are of floats, or
C's truncating division of integers; `FloorDiv`/`FloorMod` round toward minus infinity. Dividing an
integer by zero gives 0, and so does the remainder (as numpy). Shifting by the width or more gives 0
(-1 for a negative left side shifted right). A float cast to an integer truncates, saturates at the
ends of the range, and maps NaN to 0.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from ..base import (
    SMALL_FLOATS,
    DataType,
    TIRError,
    bfloat16_to_float32,
    bits_to_floats,
    float32_to_bfloat16,
    floats_to_bits,
    promote,
    submodules,
)
from ..base import (
    dtype as as_dtype,
)
from .node import Node, derive, derived, node
from .op import Intrinsic, Op, intrinsic, intrinsic_dtype

if TYPE_CHECKING:
    from ..base import DTypeLike

# TVM's `tir.expr` and `ir.expr` have these too.
__getattr__ = submodules(__name__, {"relaxvm.ir.module": "GlobalVar", "relaxvm.te": "ProducerLoad"})


ScalarLike: TypeAlias = "PrimExpr | float"
"""What `as_expr` takes."""

# A greatest value written with eight digits, such as 3.4028235e38, may be a little above it.
_NEARLY = 1 + 1e-7
BOOL = as_dtype("bool")
_FLOAT32_MAX = as_dtype("float32").max_value * _NEARLY
INT32 = as_dtype("int32")
INT64 = as_dtype("int64")
_NO_ARITHMETIC = frozenset(["handle", "void", *SMALL_FLOATS])
_HANDLE = as_dtype("handle")


def wrap_int(value: int, to: DataType) -> int:
    """`value` modulo two to the width of `to`, in its range."""
    if to.kind == "bool":
        return int(value != 0)
    value &= (1 << to.bits) - 1
    return value - (1 << to.bits) if to.kind == "int" and value >> (to.bits - 1) else value


def round_float(value: float, to: DataType) -> float:
    """`value` rounded to the floating type `to`."""
    if to.bits == 64:
        return value
    with np.errstate(over="ignore", invalid="ignore"):
        if to.kind == "bfloat":
            # By way of float32, rounded to odd there, so that rounding again gives what once does.
            single = np.float32(value)
            if np.isfinite(single) and float(single) != value and not single.view(np.uint32) & 1:
                toward = np.float32(math.inf if value > float(single) else -math.inf)
                single = np.nextafter(single, toward)
            return float(bfloat16_to_float32(float32_to_bfloat16(single.reshape(1)))[0])
        if to.is_small_float:
            return float(bits_to_floats(floats_to_bits(np.asarray(value), to), to))
        return float(np.float16(value) if to.bits == 16 else np.float32(value))


def _operands_of(e: PrimExpr) -> list[PrimExpr]:
    return [c for c in e._children_ if isinstance(c, PrimExpr)]


# Of expressions below which there are no others: walks do not enter Python for these.
_ALL_CHILDREN = property(operator.attrgetter("_children_"))


class PrimExpr(Node):
    """A scalar (or vector) expression with a `dtype`. Python's operators build new expressions.

    _operands_  the expressions directly below, in order
    """

    __slots__ = ()
    dtype: DataType

    _operands_: ClassVar[Any] = property(_operands_of)

    def __add__(self, other: Any) -> PrimExpr:
        return binary(Add, self, other)

    def __radd__(self, other: Any) -> PrimExpr:
        return binary(Add, other, self)

    def __sub__(self, other: Any) -> PrimExpr:
        return binary(Sub, self, other)

    def __rsub__(self, other: Any) -> PrimExpr:
        return binary(Sub, other, self)

    def __mul__(self, other: Any) -> PrimExpr:
        return binary(Mul, self, other)

    def __rmul__(self, other: Any) -> PrimExpr:
        return binary(Mul, other, self)

    def __truediv__(self, other: Any) -> PrimExpr:
        return true_divide(self, other)

    def __rtruediv__(self, other: Any) -> PrimExpr:
        return true_divide(other, self)

    def __floordiv__(self, other: Any) -> PrimExpr:
        return divide(FloorDiv, self, other)

    def __rfloordiv__(self, other: Any) -> PrimExpr:
        return divide(FloorDiv, other, self)

    def __mod__(self, other: Any) -> PrimExpr:
        return divide(FloorMod, self, other)

    def __rmod__(self, other: Any) -> PrimExpr:
        return divide(FloorMod, other, self)

    def __neg__(self) -> PrimExpr:
        return binary(Sub, const(0, self.dtype), self)

    def __pos__(self) -> PrimExpr:
        return self

    def __pow__(self, other: Any) -> PrimExpr:
        return call_intrinsic("pow", *match(self, other))

    def __and__(self, other: Any) -> PrimExpr:
        return call_intrinsic("bitwise_and", *match(self, other))

    __rand__ = __and__

    def __or__(self, other: Any) -> PrimExpr:
        return call_intrinsic("bitwise_or", *match(self, other))

    __ror__ = __or__

    def __xor__(self, other: Any) -> PrimExpr:
        return call_intrinsic("bitwise_xor", *match(self, other))

    __rxor__ = __xor__

    def __lshift__(self, other: Any) -> PrimExpr:
        return shift("shift_left", self, other)

    def __rshift__(self, other: Any) -> PrimExpr:
        return shift("shift_right", self, other)

    def __rlshift__(self, other: Any) -> PrimExpr:
        return shift("shift_left", other, self)

    def __rrshift__(self, other: Any) -> PrimExpr:
        return shift("shift_right", other, self)

    def __invert__(self) -> PrimExpr:
        return Not(self) if self.dtype.is_bool else call_intrinsic("bitwise_not", self)

    def __abs__(self) -> PrimExpr:
        return call_intrinsic("fabs", self)

    def __lt__(self, other: Any) -> PrimExpr:
        return binary(LT, self, other)

    def __le__(self, other: Any) -> PrimExpr:
        return binary(LE, self, other)

    def __gt__(self, other: Any) -> PrimExpr:
        return binary(GT, self, other)

    def __ge__(self, other: Any) -> PrimExpr:
        return binary(GE, self, other)

    # `a == b` builds EQ(a, b). Used as a condition in Python it says whether both are the identical
    # expression, which is
    # what containers need.
    def __eq__(self, other: object) -> Any:
        if not isinstance(other, (PrimExpr, int, float, np.number)):
            return NotImplemented
        if other is self:
            return binary(EQ, self, other)
        try:
            return binary(EQ, self, other)
        except TIRError:
            return NotImplemented

    def __ne__(self, other: object) -> Any:
        if not isinstance(other, (PrimExpr, int, float, np.number)):
            return NotImplemented
        try:
            return binary(NE, self, other)
        except TIRError:
            return NotImplemented

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TIRError(
            f"the truth of {type(self).__name__} is not known before the program runs: use T.And, "
            f"T.Or, T.Not or "
            "T.Select instead of and, or, not and if, or arith.Analyzer().can_prove(...) for a "
            "proof"
        )

    def astype(self, dtype: str) -> PrimExpr:
        """This value cast to `dtype`."""
        return cast(dtype, self)

    def equal(self, other: Any) -> PrimExpr:
        """The expression `self == other`."""
        return binary(EQ, self, other)

    def __str__(self) -> str:
        return self.script()


class Type(Node):
    """What older programs ask instead of struct info: dtype, rank and kind, no sizes. Interned."""

    __slots__ = ()


@node(interned=True)
class PrimType(Type):
    """The type of a scalar value."""

    dtype: DataType

    @staticmethod
    def _normalise_(dtype: Any) -> tuple[DataType]:
        return (as_dtype(dtype),)


@node(interned=True)
class PointerType(Type):
    """The type of a pointer into memory of `storage_scope`."""

    element_type: PrimType
    storage_scope: str = ""

    @staticmethod
    def _normalise_(element_type: Any, storage_scope: Any) -> tuple[Any, str]:
        # One spelling for "said nothing" and "said global", so that both are the identical type.
        return element_type, "" if storage_scope == "global" else storage_scope


@node(interned=True)
class TupleType(Type):
    """The type of a tuple."""

    fields: tuple[Type, ...] = ()

    @staticmethod
    def _normalise_(fields: Any) -> tuple[tuple[Type, ...]]:
        return (tuple(fields),)

    def __eq__(self, other: object) -> bool:
        # Types of tensors with and without sizes may be equal.
        return isinstance(other, TupleType) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)


@node(interned=True)
class FuncType(Type):
    """The type of a function."""

    arg_types: tuple[Type, ...]
    ret_type: Type

    @staticmethod
    def _normalise_(arg_types: Any, ret_type: Any) -> tuple[tuple[Type, ...], Type]:
        return tuple(arg_types), ret_type

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FuncType):
            return False
        return self.arg_types == other.arg_types and self.ret_type == other.ret_type

    def __hash__(self) -> int:
        return hash((self.arg_types, self.ret_type))


# Least and greatest value of each scalar integer type: constants are made by the thousand.
_INT_BOUNDS = {
    kind: (int(kind.min_value), int(kind.max_value))
    for kind in map(
        DataType, ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
    )
}


@node(interned=True)
class IntImm(PrimExpr):
    """An integer constant; `value` must be in the range of `dtype`. For bool it is 0 or 1."""

    dtype: DataType
    value: int
    _operands_ = _ALL_CHILDREN

    if TYPE_CHECKING:

        def __init__(self, dtype: DTypeLike, value: int) -> None: ...

    _sound_ = (
        "type(dtype) is DataType and type(value) is int and dtype in _INT_BOUNDS"
        " and _INT_BOUNDS[dtype][0] <= value <= _INT_BOUNDS[dtype][1]"
    )

    @staticmethod
    def _normalise_(dtype: Any, value: Any) -> tuple[DataType, int]:
        dtype = as_dtype(dtype)
        if not (dtype.is_int or dtype.is_bool) or dtype.lanes != 1:
            raise TIRError(f"IntImm wants a scalar integer or bool dtype, got {dtype}")
        if not isinstance(value, (int, np.integer, np.bool_)):
            raise TIRError(f"IntImm wants an int, got {type(value).__name__}: {value!r}")
        value = int(value)
        if not dtype.min_value <= value <= dtype.max_value:
            raise TIRError(
                f"{value} does not fit {dtype}: its range is {dtype.min_value} to {dtype.max_value}"
            )
        return dtype, value

    def __bool__(self) -> bool:
        return self.value != 0

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return f"IntImm({self.dtype}, {self.value})"


@node(interned=True)
class FloatImm(PrimExpr):
    """A floating constant, rounded to `dtype`. Raises TIRError for what that cannot hold: a finite
    number beyond its range, infinity or NaN in some 8-bit types.
    """

    dtype: DataType
    value: float
    _operands_ = _ALL_CHILDREN

    if TYPE_CHECKING:

        def __init__(self, dtype: DTypeLike, value: float) -> None: ...

    @staticmethod
    def _normalise_(dtype: Any, value: Any) -> tuple[DataType, float]:
        dtype = as_dtype(dtype)
        if not dtype.is_float or dtype.lanes != 1:
            raise TIRError(f"FloatImm wants a scalar floating dtype, got {dtype}")
        try:
            value = float(value)
        except OverflowError:
            raise TIRError(f"{value} does not fit {dtype}") from None
        if dtype.bits == 64:
            return dtype, value
        rounded = round_float(value, dtype)
        # The least greatest value of any type is 15.5.
        if rounded != value and 15 < abs(value) < math.inf:
            if abs(value) > dtype.max_value * _NEARLY:
                raise TIRError(
                    f"{value!r} does not fit {dtype}, whose greatest is {dtype.max_value!r}"
                )
        if rounded != value and math.isnan(rounded) and not math.isnan(value):
            raise TIRError(f"{value!r} does not fit {dtype}")
        return dtype, rounded

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        return f"FloatImm({self.dtype}, {self.value})"


@node(interned=True)
class StringImm(PrimExpr):
    """A string constant, used as an argument of intrinsics and attributes."""

    value: str
    dtype: DataType = derived()

    def _init_derived_(self) -> None:
        derive(self, "dtype", _HANDLE)

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, str) and other == self.value)

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    __hash__ = object.__hash__


@node
class Var(PrimExpr):
    """A variable, compared by identity: two variables of one name are two variables.

    dtype  a scalar or vector dtype; "handle" for pointers and buffer parameters
    """

    name: str
    dtype: DataType = INT32
    type_annotation: PrimType | PointerType | None = None
    _operands_ = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            name: str,
            dtype: DTypeLike | Type = ...,
            type_annotation: PrimType | PointerType | None = ...,
        ) -> None: ...

    _sound_ = "isinstance(name, str) and type(dtype) is DataType"

    @staticmethod
    def _normalise_(name: Any, dtype: Any, type_annotation: Any) -> tuple[str, DataType, Any]:
        if isinstance(dtype, (PrimType, PointerType)):
            type_annotation = dtype
            dtype = dtype.dtype if isinstance(dtype, PrimType) else _HANDLE
        if not isinstance(name, str):
            raise TIRError(f"a variable's name is a string, got {type(name).__name__}: {name!r}")
        return name, as_dtype(dtype), type_annotation

    @property
    def name_hint(self) -> str:
        """TVM's older name for `name`."""
        return self.name

    @property
    def storage_scope(self) -> str:
        """Where the memory is that a pointer points into: "global" unless its type says
        otherwise.
        """
        annotation = self.type_annotation
        return (isinstance(annotation, PointerType) and annotation.storage_scope) or "global"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {self.dtype})"


@node
class SizeVar(Var):
    """A variable that is never negative: a size."""


@node(interned=True)
class Cast(PrimExpr):
    """`value` converted to `dtype` (see the rules at the top of this file)."""

    dtype: DataType
    value: PrimExpr
    _operands_ = _ALL_CHILDREN

    @staticmethod
    def _normalise_(dtype: Any, value: Any) -> tuple[DataType, PrimExpr]:
        dtype, value = as_dtype(dtype), as_expr(value)
        if dtype.lanes != value.dtype.lanes:
            raise TIRError(f"cannot cast {value.dtype} to {dtype}: the lanes differ")
        if "handle" in (dtype.kind, value.dtype.kind) and dtype is not value.dtype:
            raise TIRError(f"cannot cast {value.dtype} to {dtype}")
        return dtype, value


class BinaryExpr(PrimExpr):
    """An operation on two operands of the same dtype."""

    __slots__ = ()
    a: PrimExpr
    b: PrimExpr
    symbol: ClassVar[str] = "?"
    _operands_ = _ALL_CHILDREN

    _sound_: ClassVar[str] = (
        "isinstance(a, PrimExpr) and isinstance(b, PrimExpr) and a.dtype is b.dtype"
        " and a.dtype.kind not in _NO_ARITHMETIC"
    )

    @classmethod
    def _normalise_(cls, a: Any, b: Any) -> tuple[PrimExpr, PrimExpr]:
        if not (isinstance(a, PrimExpr) and isinstance(b, PrimExpr)):
            a, b = match(a, b)
        if a.dtype is not b.dtype:
            raise TIRError(
                f"{cls.__name__}: the operands' dtypes differ: {a.dtype} and {b.dtype}; cast one "
                f"of them"
            )
        if a.dtype.kind in _NO_ARITHMETIC:
            hint = "; cast them to float32" if a.dtype.is_small_float else ""
            raise TIRError(
                f"{cls.__name__}: the operands are {a.dtype}s, which have no arithmetic{hint}"
            )
        return a, b


class ArithmeticExpr(BinaryExpr):
    """A binary operation whose result has the operands' dtype."""

    __slots__ = ()
    _copied_: ClassVar[dict[str, str]] = {"dtype": "a.dtype"}


class CompareExpr(BinaryExpr):
    """A comparison; the result is bool with the operands' lanes."""

    __slots__ = ()

    def _init_derived_(self) -> None:
        lanes = self.a.dtype.lanes
        derive(self, "dtype", BOOL if lanes == 1 else BOOL.with_lanes(lanes))


class LogicalExpr(BinaryExpr):
    """`And` or `Or` of two bools."""

    __slots__ = ()
    _copied_: ClassVar[dict[str, str]] = {"dtype": "a.dtype"}

    @classmethod
    def _normalise_(cls, a: Any, b: Any) -> tuple[PrimExpr, PrimExpr]:
        a, b = as_condition(a), as_condition(b)
        if a.dtype is not b.dtype:
            raise TIRError(f"And/Or: the lanes of the operands differ: {a.dtype} and {b.dtype}")
        return a, b


@node(interned=True)
class Add(ArithmeticExpr):
    """a + b"""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "+"


@node(interned=True)
class Sub(ArithmeticExpr):
    """a - b"""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "-"


@node(interned=True)
class Mul(ArithmeticExpr):
    """a * b"""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "*"


@node(interned=True)
class Div(ArithmeticExpr):
    """a / b of floats; C's truncating division of integers."""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "/"


@node(interned=True)
class Mod(ArithmeticExpr):
    """C's remainder: the sign is that of `a`."""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "truncmod"


@node(interned=True)
class FloorDiv(ArithmeticExpr):
    """floor(a / b)"""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "//"


@node(interned=True)
class FloorMod(ArithmeticExpr):
    """a - b * floor(a / b): the sign is that of `b`."""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "%"


@node(interned=True)
class Min(ArithmeticExpr):
    """The lesser; NaN if either is NaN."""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "min"


@node(interned=True)
class Max(ArithmeticExpr):
    """The greater; NaN if either is NaN."""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "max"


@node(interned=True)
class EQ(CompareExpr):
    """a == b"""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "=="

    def __bool__(self) -> bool:
        return self.a is self.b


@node(interned=True)
class NE(CompareExpr):
    """a != b"""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "!="

    def __bool__(self) -> bool:
        return self.a is not self.b


@node(interned=True)
class LT(CompareExpr):
    """a < b"""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "<"


@node(interned=True)
class LE(CompareExpr):
    """a <= b"""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "<="


@node(interned=True)
class GT(CompareExpr):
    """a > b"""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = ">"


@node(interned=True)
class GE(CompareExpr):
    """a >= b"""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = ">="


@node(interned=True)
class And(LogicalExpr):
    """a and b; `b` is not evaluated where `a` is false (scalars)."""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "and"


@node(interned=True)
class Or(LogicalExpr):
    """a or b; `b` is not evaluated where `a` is true (scalars)."""

    a: PrimExpr
    b: PrimExpr
    dtype: DataType = derived()
    symbol = "or"


@node(interned=True)
class Not(PrimExpr):
    """not a"""

    a: PrimExpr
    dtype: DataType = derived()
    _operands_ = _ALL_CHILDREN
    _copied_ = {"dtype": "a.dtype"}

    @staticmethod
    def _normalise_(a: Any) -> tuple[PrimExpr]:
        return (as_condition(a),)


@node(interned=True)
class Select(PrimExpr):
    """`true_value` where `condition` holds, else `false_value`; both sides may be evaluated."""

    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr
    dtype: DataType = derived()
    _operands_ = _ALL_CHILDREN

    @staticmethod
    def _normalise_(condition: Any, true_value: Any, false_value: Any) -> tuple[PrimExpr, ...]:
        condition = as_condition(condition)
        true_value, false_value = match(true_value, false_value)
        if condition.dtype.lanes not in (1, true_value.dtype.lanes):
            raise TIRError(
                f"Select: the condition has {condition.dtype.lanes} lanes, the values "
                f"{true_value.dtype.lanes}"
            )
        return condition, true_value, false_value

    def _init_derived_(self) -> None:
        derive(self, "dtype", self.true_value.dtype)


@node(interned=True)
class Let(PrimExpr):
    """`body` with `var` standing for `value`."""

    var: Var
    value: PrimExpr
    body: PrimExpr
    dtype: DataType = derived()
    _defs_ = ("var",)

    @staticmethod
    def _normalise_(var: Any, value: Any, body: Any) -> tuple[Any, PrimExpr, PrimExpr]:
        value = as_expr(value)
        if not isinstance(var, Var) or var.dtype is not value.dtype:
            raise TIRError(f"Let: {var!r} cannot stand for a value of dtype {value.dtype}")
        return var, value, as_expr(body)

    def _init_derived_(self) -> None:
        derive(self, "dtype", self.body.dtype)


@node(interned=True)
class Call(PrimExpr):
    """A call of an intrinsic (or of another loop function, by its `GlobalVar`)."""

    dtype: DataType
    op: Node
    args: tuple[PrimExpr, ...]

    if TYPE_CHECKING:

        def __init__(
            self, dtype: DTypeLike, op: Node | str, args: Iterable[Node | float | str]
        ) -> None: ...

    @staticmethod
    def _normalise_(dtype: Any, op: Any, args: Any) -> tuple[DataType, Node, tuple[Any, ...]]:
        if isinstance(op, str):
            op = Op.get(op)
        args = tuple(
            a if isinstance(a, Node) else StringImm(a) if isinstance(a, str) else as_expr(a)
            for a in args
        )
        dtype = as_dtype(dtype)
        if isinstance(op, Intrinsic):
            wanted = intrinsic_dtype(op, args)
            if wanted is not None and wanted is not dtype:
                raise TIRError(
                    f"{op.name} on {args[0].dtype} gives {wanted}, the call says {dtype}"
                )
        return dtype, op, args


@node(interned=True)
class Ramp(PrimExpr):
    """The vector base, base + stride, … of `lanes` elements."""

    base: PrimExpr
    stride: PrimExpr
    lanes: int
    dtype: DataType = derived()
    _operands_ = _ALL_CHILDREN

    if TYPE_CHECKING:

        def __init__(self, base: ScalarLike, stride: ScalarLike, lanes: int) -> None: ...

    @staticmethod
    def _normalise_(base: Any, stride: Any, lanes: Any) -> tuple[PrimExpr, PrimExpr, int]:
        both = isinstance(base, PrimExpr) and isinstance(stride, PrimExpr)
        if not (both and base.dtype is stride.dtype):
            base, stride = match(base, stride)
        lanes = int(lanes)
        if base.dtype.lanes != 1 or not base.dtype.is_int:
            raise TIRError(f"Ramp wants a scalar integer base, got {base.dtype}")
        if lanes < 2:
            raise TIRError(f"Ramp wants at least 2 lanes, got {lanes}")
        return base, stride, lanes

    def _init_derived_(self) -> None:
        derive(self, "dtype", self.base.dtype.with_lanes(self.lanes))


@node(interned=True)
class Broadcast(PrimExpr):
    """The vector of `lanes` copies of `value`."""

    value: PrimExpr
    lanes: int
    dtype: DataType = derived()
    _operands_ = _ALL_CHILDREN

    @staticmethod
    def _normalise_(value: Any, lanes: Any) -> tuple[PrimExpr, int]:
        value, lanes = as_expr(value), int(lanes)
        if value.dtype.lanes != 1:
            raise TIRError(f"Broadcast wants a scalar, got {value.dtype}")
        if lanes < 2:
            raise TIRError(f"Broadcast wants at least 2 lanes, got {lanes}")
        return value, lanes

    def _init_derived_(self) -> None:
        derive(self, "dtype", self.value.dtype.with_lanes(self.lanes))


@node(interned=True)
class Shuffle(PrimExpr):
    """The elements at constant `indices` of the concatenation of `vectors`."""

    vectors: tuple[PrimExpr, ...]
    indices: tuple[PrimExpr, ...]
    dtype: DataType = derived()

    if TYPE_CHECKING:

        def __init__(self, vectors: Iterable[PrimExpr], indices: Iterable[ScalarLike]) -> None: ...

    @staticmethod
    def _normalise_(vectors: Any, indices: Any) -> tuple[Any, Any]:
        vectors = tuple(as_expr(v) for v in vectors)
        indices = tuple(as_expr(i) for i in indices)
        total = sum(v.dtype.lanes for v in vectors)
        if len({v.dtype.element for v in vectors}) != 1 or not indices:
            raise TIRError("Shuffle wants vectors of one element dtype and at least one index")
        for i in indices:
            if not isinstance(i, IntImm) or not 0 <= i.value < total:
                raise TIRError(f"Shuffle: index {i!r} is not a constant in 0..{total - 1}")
        return vectors, indices

    def _init_derived_(self) -> None:
        derive(self, "dtype", self.vectors[0].dtype.with_lanes(len(self.indices)))


@node
class Range(Node):
    """The integers min, …, min + extent - 1.

    `Range(n)` starts at 0 and `Range(begin, end)` ends before `end`, as in TVM; the fields
    themselves are given by name, or by `Range.from_min_extent`.
    """

    min: PrimExpr
    extent: PrimExpr

    _sound_ = (
        "isinstance(min, PrimExpr) and isinstance(extent, PrimExpr) and min.dtype is extent.dtype"
    )

    @staticmethod
    def _normalise_(min: Any, extent: Any) -> tuple[PrimExpr, PrimExpr]:
        return match(min, extent)

    @staticmethod
    def from_min_extent(min_value: Any, extent: Any) -> Range:
        """The range that starts at `min_value` and has `extent` elements."""
        new = Range.__new__(Range)
        _generated_range_init(new, min_value, extent)
        return new


def _range_init(self: Any, begin: Any = None, end: Any = None, **fields: Any) -> None:
    if begin is not None:
        if fields:
            raise TIRError("Range: give begin and end, or min= and extent=, not both")
        low = 0 if end is None else begin
        fields = {"min": low, "extent": begin if end is None else _span(begin, end)}
    if set(fields) != {"min", "extent"}:
        raise TIRError("Range: wanted (end), (begin, end), or min= and extent=")
    _generated_range_init(self, **fields)


def _span(begin: Any, end: Any) -> PrimExpr:
    a, b = match(begin, end)
    return binary(Sub, b, a)


_generated_range_init: Any = Range.__init__
Range.__init__ = _range_init  # type: ignore[assignment, method-assign]


# -- building --------------------------------------------------------------------------------------


def const(value: Any, dtype: str | None = None) -> PrimExpr:
    """The constant `value`; without a dtype, ints are int32 (int64 if they must be), floats
    float32 (float64 if they must be), bools bool, and numpy scalars and arrays of rank 0 what they
    are.

    A vector dtype gives a Broadcast. Raises TIRError for a value that does not fit.
    """
    if type(value) is int and type(dtype) is DataType and dtype in _INT_BOUNDS:
        return IntImm(dtype, value)
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    if dtype is None:
        if isinstance(value, np.generic):
            dtype = as_dtype(value.dtype)
        elif isinstance(value, bool):
            dtype = BOOL
        elif isinstance(value, int):
            dtype = INT32 if -(2**31) <= value < 2**31 else INT64
        elif isinstance(value, float):
            dtype = "float64" if _FLOAT32_MAX < abs(value) < math.inf else "float32"
        else:
            raise TIRError(f"wanted a number, got {type(value).__name__}: {value!r}")
    kind = dtype if type(dtype) is DataType else as_dtype(dtype)
    scalar: PrimExpr
    if kind.is_float:
        scalar = FloatImm(kind.element, value)
    else:
        if isinstance(value, (float, np.floating)) and not float(value).is_integer():
            raise TIRError(f"{value} is no {kind.element}")
        scalar = IntImm(kind.element, int(value))
    return scalar if kind.lanes == 1 else Broadcast(scalar, kind.lanes)


def is_const(e: object, value: int) -> bool:
    """Whether `e` is the integer constant `value`."""
    return isinstance(e, IntImm) and e.value == value


def as_expr(value: Any, dtype: str | None = None) -> PrimExpr:
    """`value` as a scalar expression: an expression, a Python or numpy number, or an object with
    `asobject()`.

    Raises TIRError for anything else.
    """
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, (bool, int, float, np.number, np.bool_)) or (
        isinstance(value, np.ndarray) and not value.ndim
    ):
        return const(value, dtype)
    convert = getattr(value, "__prim_expr__", None)
    if convert is not None:
        converted: PrimExpr = convert()
        return converted
    if isinstance(value, str):
        return StringImm(value)
    raise TIRError(f"wanted a scalar expression or a number, got {type(value).__name__}: {value!r}")


def as_condition(value: Any) -> PrimExpr:
    """`value` as a bool expression. Raises TIRError if it has another dtype."""
    expr = value
    if not isinstance(expr, PrimExpr):
        expr = const(value, "bool") if isinstance(value, (bool, np.bool_)) else as_expr(value)
    if not expr.dtype.is_bool:
        raise TIRError(f"wanted a bool condition, got {expr.dtype}; compare it, as in x != 0")
    return expr


def match(a: Any, b: Any) -> tuple[Any, Any]:
    """Both operands with a common dtype. A Python number takes the dtype of the expression beside
    it if it fits.
    """
    a_expr, b_expr = isinstance(a, PrimExpr), isinstance(b, PrimExpr)
    if a_expr and b_expr and a.dtype is b.dtype:
        return a, b
    if not a_expr and hasattr(a, "__prim_expr__"):
        a, a_expr = a.__prim_expr__(), True
    if not b_expr and hasattr(b, "__prim_expr__"):
        b, b_expr = b.__prim_expr__(), True
    if a_expr and not b_expr:
        b = _number_like(b, a.dtype)
    elif b_expr and not a_expr:
        a = _number_like(a, b.dtype)
    elif not a_expr:
        a, b = as_expr(a), as_expr(b)
    if a.dtype is b.dtype:
        return a, b
    try:
        common = promote(a.dtype, b.dtype)
    except TypeError as error:
        raise TIRError(str(error)) from None
    return cast(common, a), cast(common, b)


def _number_like(value: Any, dtype: DataType) -> PrimExpr:
    if type(value) is int and dtype in _INT_BOUNDS and not dtype.is_bool:
        low, high = _INT_BOUNDS[dtype]
        return IntImm(dtype, value) if low <= value <= high else const(value)
    if isinstance(value, (bool, np.bool_)):
        return as_expr(value) if dtype.is_bool else const(int(value), dtype)
    if isinstance(value, (int, np.integer)):
        if dtype.is_float:
            return const(float(value), dtype)
        if dtype.is_int:
            if dtype.min_value <= int(value) <= dtype.max_value:
                return const(int(value), dtype)
            return const(int(value), None)
        if dtype.is_bool:
            return const(int(value), "int32")
    if isinstance(value, (float, np.floating)):
        if dtype.is_float:
            return const(float(value), dtype)
        return const(float(value), as_dtype("float32").with_lanes(dtype.lanes))
    return as_expr(value)


def cast(dtype: str, value: Any) -> PrimExpr:
    """`value` cast to `dtype`: the same expression if it has it already, a new constant for a
    constant.

    A scalar cast to a vector dtype is broadcast.
    """
    if isinstance(value, PrimExpr) and value.dtype is dtype:
        return value
    to = dtype if type(dtype) is DataType else as_dtype(dtype)
    expr = value if isinstance(value, PrimExpr) else as_expr(value)
    if expr.dtype is to:
        return expr
    if expr.dtype.lanes == 1 and to.lanes > 1:
        return Broadcast(cast(to.element, expr), to.lanes)
    folded = cast_constant(expr, to)
    return folded if folded is not None else Cast(to, expr)


def cast_constant(expr: PrimExpr, to: DataType) -> PrimExpr | None:
    """The constant `expr` converted to `to` by the casting rules; None if it is no constant."""
    if isinstance(expr, Broadcast):
        inner = cast_constant(expr.value, to.element)
        return None if inner is None else Broadcast(inner, expr.lanes)
    if isinstance(expr, IntImm):
        if to.is_float:
            return FloatImm(to, int_to_float(expr.value, to))
        if to.is_int or to.is_bool:
            return IntImm(to, wrap_int(expr.value, to))
    if isinstance(expr, FloatImm):
        if to.is_float:
            return FloatImm(to, round_float(expr.value, to))
        if to.is_bool:
            return IntImm(to, int(expr.value != 0))
        if to.is_int:
            return IntImm(to, saturate(expr.value, to))
    return None


def int_to_float(value: int, to: DataType) -> float:
    """`value` rounded once to the floating type `to`."""
    if to.kind == "float" and to.bits == 32:
        return float(np.float32(np.int64(value) if value < 2**63 else np.uint64(value)))
    return round_float(value if to.kind == "bfloat" else float(value), to)


def saturate(value: float, to: DataType) -> int:
    """`value` truncated toward zero and clamped to the range of the integer dtype `to`; NaN: 0."""
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return int(to.max_value if value > 0 else to.min_value)
    return int(min(max(int(value), to.min_value), to.max_value))


def true_divide(a: Any, b: Any) -> PrimExpr:
    """a / b of floats. Raises TIRError for integers, whose division must say how it rounds."""
    if not isinstance(b, PrimExpr) and hasattr(b, "__broadcasts__"):
        # A te.Tensor: its own operator is asked next.
        return NotImplemented
    a, b = match(a, b)
    if not a.dtype.is_float:
        raise TIRError(
            f"/ on {a.dtype} is ambiguous: use // (rounds down), T.truncdiv (toward zero), or "
            f"cast to a float"
        )
    return binary(Div, a, b)


def binary(cls: type[BinaryExpr], a: Any, b: Any) -> PrimExpr:
    """`cls(a, b)` with dtypes matched; constants folded and neutral integer constants dropped."""
    if not isinstance(b, PrimExpr) and hasattr(b, "__broadcasts__"):
        # A te.Tensor: its own operator is asked next.
        return NotImplemented
    if not (isinstance(b, PrimExpr) and isinstance(a, PrimExpr) and a.dtype is b.dtype):
        a, b = match(a, b)
    if cls is Mod and a.dtype.is_float:
        raise TIRError("Mod is of integers; use T.fmod for floats")
    if a.dtype.is_bool and issubclass(cls, ArithmeticExpr):
        # As in C: bools in arithmetic are small integers.
        a, b = cast(INT32.with_lanes(a.dtype.lanes), a), cast(INT32.with_lanes(b.dtype.lanes), b)
    if isinstance(b, IntImm):
        if isinstance(a, IntImm):
            return fold_int(cls, a, b)
        if b.value == 0 and (cls is Add or cls is Sub):
            return a
        if b.value == 1 and (cls is Mul or cls is FloorDiv):
            return a
        if b.value == 0 and cls is Mul:
            return b
    elif isinstance(a, IntImm):
        if (a.value == 0 and cls is Add) or (a.value == 1 and cls is Mul):
            return b
        if a.value == 0 and cls is Mul:
            return a
    operation: Any = cls
    return operation(a, b)


def divide(cls: type[BinaryExpr], a: Any, b: Any) -> PrimExpr:
    """`binary` of a division that somebody wrote. Raises TIRError for a constant divided by 0."""
    a, b = match(a, b)
    if isinstance(b, IntImm) and b.value == 0 and isinstance(a, IntImm):
        raise TIRError(f"{a.value} {cls.symbol} 0: division by zero")
    return binary(cls, a, b)


def shift(name: str, a: Any, b: Any) -> PrimExpr:
    """A shift that somebody wrote. Raises TIRError for a constant distance that leaves nothing."""
    a, b = match(a, b)
    distance = b.value if isinstance(b, Broadcast) else b
    if isinstance(distance, IntImm) and not 0 <= distance.value < a.dtype.bits:
        raise TIRError(
            f"{name} by {distance.value}: wanted a distance of 0 to {a.dtype.bits - 1} for "
            f"{a.dtype}"
        )
    return call_intrinsic(name, a, b)


def fold_int(cls: type[BinaryExpr], a: IntImm, b: IntImm) -> PrimExpr:
    """The constant that `cls` of two integer constants of one dtype is."""
    result = INT_MEANING[cls](a.value, b.value)
    if issubclass(cls, CompareExpr):
        return IntImm(BOOL, int(result))
    low, high = _INT_BOUNDS[a.dtype]
    return IntImm(a.dtype, result if low <= result <= high else wrap_int(result, a.dtype))


def trunc_div(a: int, b: int) -> int:
    """C's division; 0 if b is 0."""
    if b == 0:
        return 0
    q = abs(a) // abs(b)
    return q if (a >= 0) == (b >= 0) else -q


def trunc_mod(a: int, b: int) -> int:
    """C's remainder; 0 if b is 0."""
    return 0 if b == 0 else a - b * trunc_div(a, b)


# What each operation means on Python integers, before the result is wrapped to its dtype.
INT_MEANING: dict[type, Any] = {
    Add: operator.add,
    Sub: operator.sub,
    Mul: operator.mul,
    Div: trunc_div,
    Mod: trunc_mod,
    FloorDiv: lambda a, b: a // b if b else 0,
    FloorMod: lambda a, b: a % b if b else 0,
    Min: min,
    Max: max,
    EQ: operator.eq,
    NE: operator.ne,
    LT: operator.lt,
    LE: operator.le,
    GT: operator.gt,
    GE: operator.ge,
}


def call_intrinsic(name: str, *args: Any, dtype: str | None = None) -> PrimExpr:
    """A call of the intrinsic `name`; `dtype` is needed where the arguments do not decide it."""
    op = intrinsic(name)
    exprs = tuple(as_expr(a) for a in args)
    result = intrinsic_dtype(op, exprs)
    if result is None:
        if dtype is None:
            raise TIRError(f"{op.name} needs dtype=")
        result = as_dtype(dtype)
    return Call(result, op, exprs)


def double_bits(value: float) -> int:
    """The 64 bits of a double, as an unsigned integer."""
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])
