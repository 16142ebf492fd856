"""What is known of a value beside its struct info: its elements.

A shape that is computed from shapes stays symbolic: a small integer tensor may be known as an array
of scalar expressions, element by element. Operators of `relax.op` that move or combine such
elements are listed in one table here, by their names in `relax.op`, so that no translation of an
ONNX operator says anything about shapes; what all elements are numbers of becomes a constant.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .... import tir
from ....base import DataType, FrontendError, StructInfoError
from ....ir import IntImm, Mul, PrimExpr, const, structural_equal
from ....runtime import array
from ...expr import Call, Constant, PrimValue, Tuple, TupleGetItem, Var
from ...op.meaning import evaluate
from ...op.record import Op
from ...op.sizes import simplified, size_analyzer
from ...struct_info import Expr, ShapeExpr, TensorStructInfo, TupleStructInfo

# Elements of constants that are computed while importing, so that a weight is left to FoldConstant.
FOLDED_AT_MOST = 1 << 16
# Elements of a tensor that is known by its expressions.
SYMBOLS_AT_MOST = 1 << 10


class NeedsConstant(FrontendError):
    """A value must be known when the model is imported.

    inputs  the model's inputs that would have to be given as ``constants``
    """

    def __init__(self, message: str, inputs: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.inputs = inputs


class _Absent:
    """Stands for what is left out: an input of a function, the value of an optional."""


ABSENT: Any = _Absent()


def _elementwise(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` of scalar expressions for arrays of them."""
    each = np.frompyfunc(lambda a, b: f(as_size(a), as_size(b)), 2, 1)
    return lambda a, b: each(a, b)


def _as_numpy(name: str) -> Callable[..., Any]:
    """What the operator `name` means in numpy, which holds for expressions: it only moves them."""

    def moved(*args: Any, **attrs: Any) -> Any:
        record = Op.get(f"relax.{name}")
        assert isinstance(record, Op)
        return record.numpy(*args, **attrs)

    return moved


def _decided(compare: Callable[[Any, Any], PrimExpr]) -> Callable[..., Any]:
    """A comparison of expressions, where it can be proved or disproved."""

    def decide(a: Any, b: Any) -> bool:
        test = compare(a, b)
        analyzer = size_analyzer(test)
        if analyzer.can_prove(test):
            return True
        if analyzer.can_prove(tir.Not(test)):
            return False
        raise Unknown

    return _elementwise(decide)


class Unknown(Exception):
    """Elements cannot be told; used inside of this file only."""


def _quotient(a: Any, b: Any) -> PrimExpr:
    """a / b toward zero; as a floor where both are sizes, which proves more."""
    analyzer = size_analyzer(a, b)
    if all(analyzer.can_prove(tir.GE(e, const(0, "int64"))) for e in (a, b)):
        return tir.floordiv(a, b)
    return tir.truncdiv(a, b)


_MOVES = """
    broadcast_to concat expand_dims flatten flip gather_elements gather_nd permute_dims repeat
    reshape split squeeze stack strided_slice take tile where
"""

SYMBOLIC: dict[str, Callable[..., Any]] = {
    "shape_to_tensor": lambda shape: shape,
    "astype": lambda x, dtype: x,
    "negative": np.negative,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _elementwise(_quotient),
    "floor_divide": _elementwise(tir.floordiv),
    "floor_mod": _elementwise(tir.floormod),
    "maximum": _elementwise(tir.max),
    "minimum": _elementwise(tir.min),
    "sum": lambda x, axis, keepdims: np.sum(x, axis=axis, keepdims=keepdims),
    "prod": lambda x, axis, keepdims: np.prod(x, axis=axis, keepdims=keepdims),
    "equal": _decided(tir.EQ),
    "not_equal": _decided(tir.NE),
    "less": _decided(tir.LT),
    "less_equal": _decided(tir.LE),
    "greater": _decided(tir.GT),
    "greater_equal": _decided(tir.GE),
    **{name: _as_numpy(name) for name in _MOVES.split()},
}
"""Operator -> what its result's elements are, given arrays of expressions and its attributes."""


class Elements:
    """The elements of the values of one graph, where they are known."""

    def __init__(self) -> None:
        # By identity of the variable, which is kept alive.
        self._of: dict[int, tuple[Expr, Any]] = {}

    def set(self, var: Expr, elements: Any) -> None:
        """`var` is known to have these elements (for a tuple: a tuple of them)."""
        self._of[id(var)] = (var, elements)

    def of(self, value: Any) -> Any:
        """An array of integers, bools or scalar expressions (for a tuple: a tuple); or None."""
        entry = self._of.get(id(value))
        if entry is not None:
            return entry[1]
        if isinstance(value, Constant):
            return _numbers(value)
        if isinstance(value, ShapeExpr):
            return _objects(value.values)
        if isinstance(value, PrimValue):
            return _objects(value.value)
        if isinstance(value, Tuple):
            fields = tuple(self.of(f) for f in value.fields)
            return None if any(f is None for f in fields) else fields
        if isinstance(value, TupleGetItem):
            fields = self.of(value.tuple_value)
            return None if fields is None else fields[value.index]
        return None

    def of_call(self, call: Call) -> Any:
        """The elements of the result of a call of an operator, or None."""
        name = getattr(call.op, "name", "").removeprefix("relax.")
        rule = SYMBOLIC.get(name)
        if rule is None or not _is_small_integers(call.struct_info):
            return None
        args = [self.of(a) for a in call.args]
        if any(a is None for a in args):
            return None
        if name in ("reshape", "broadcast_to"):
            args[1] = tuple(getattr(d, "value", d) for d in args[1])
            if not all(isinstance(d, int) for d in args[1]):
                return None
        try:
            with np.errstate(all="ignore"):
                return _settled(rule(*args, **call.attrs), call.struct_info)
        except Unknown:
            return None


def _is_small_integers(info: Any) -> bool:
    if isinstance(info, TupleStructInfo):
        return all(map(_is_small_integers, info.fields))
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        return False
    numel = static_numel(info)
    whole = info.dtype.is_int or info.dtype.is_bool
    return whole and numel is not None and numel <= SYMBOLS_AT_MOST


def _settled(value: Any, info: Any) -> Any:
    """What a rule gave, as arrays of simplified expressions of the shapes of `info`."""
    if isinstance(info, TupleStructInfo):
        return tuple(_settled(v, f) for v, f in zip(value, info.fields))
    flat = np.asarray(value, dtype=object).reshape(-1)
    if info.dtype.is_bool:
        return flat.astype(bool).reshape(np.shape(value))
    elements = np.empty(len(flat), object)
    for i, each in enumerate(flat):
        elements[i] = as_size(each if isinstance(each, (int, np.integer)) else simplified(each))
    return elements.reshape([d.value for d in info.dims])


def as_size(value: Any) -> PrimExpr:
    """A number or an expression as an int64 expression."""
    if isinstance(value, PrimExpr):
        return value if value.dtype == "int64" else tir.Cast(DataType("int64"), value)
    return const(int(value), "int64")


def _numbers(constant: Constant) -> Any:
    data = constant.data
    whole = data.dtype.is_int or data.dtype.is_bool
    return data.numpy() if whole and data.size <= FOLDED_AT_MOST else None


def _objects(values: Any) -> np.ndarray:
    if isinstance(values, tuple):
        elements = np.empty(len(values), object)
        elements[:] = values
        return elements
    scalar = np.empty((), object)
    scalar[()] = values
    return scalar


def static_numel(info: Any) -> int | None:
    """How many elements a tensor of `info` has, if that is a number."""
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        return None
    count = 1
    for d in info.dims:
        if not isinstance(d, IntImm):
            return None
        count *= d.value
    return count


def numbers(elements: Any) -> np.ndarray | None:
    """`elements` as an array of integers, if all are numbers."""
    if elements is None or isinstance(elements, tuple):
        return None
    if elements.dtype != object:
        return np.asarray(elements)
    values = [getattr(e, "value", e) for e in elements.reshape(-1)]
    if not all(isinstance(v, (int, np.integer)) for v in values):
        return None
    return np.array(values, "int64").reshape(elements.shape)


def folded(call: Call) -> Expr | None:
    """The constant (or the tuple of constants) that a call of an operator on small constants is."""
    if not isinstance(call.op, Op) or not callable(call.op.numpy) or not call.op.pure:
        return None
    if not all(map(_is_small_constant, call.args)):
        return None
    if not _is_small(call.struct_info) or not all(
        not isinstance(v, PrimExpr) or isinstance(v, IntImm) or hasattr(v, "value")
        for v in call.attrs.values()
    ):
        return None
    return constant_of(evaluate(call), call.struct_info)


def constant_of(value: Any, info: Any) -> Expr:
    """A value of `op.meaning.evaluate` as an expression."""
    if isinstance(info, TupleStructInfo):
        return Tuple(tuple(constant_of(v, f) for v, f in zip(value, info.fields)))
    return Constant(array(np.asarray(value), dtype=info.dtype))


def _is_small_constant(e: Any) -> bool:
    if isinstance(e, Constant):
        return e.data.size <= FOLDED_AT_MOST
    if isinstance(e, Tuple):
        return all(map(_is_small_constant, e.fields))
    if isinstance(e, ShapeExpr):
        return all(isinstance(d, IntImm) for d in e.values)
    if isinstance(e, PrimValue):
        return hasattr(e.value, "value")
    return not isinstance(e, (Var, Call, TupleGetItem))


def _is_small(info: Any) -> bool:
    if isinstance(info, TupleStructInfo):
        return all(map(_is_small, info.fields))
    numel = static_numel(info)
    return numel is not None and numel <= FOLDED_AT_MOST


def dtype_of(x: Expr) -> DataType:
    """The dtype of a tensor. Raises StructInfoError for what is none."""
    info = x.struct_info
    if not isinstance(info, TensorStructInfo):
        raise StructInfoError(f"wanted a tensor, got {info}")
    return info.dtype


def dims_of(x: Expr) -> tuple[PrimExpr, ...]:
    """The dimensions of a tensor; FrontendError if they are not known."""
    info = x.struct_info
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        raise FrontendError(f"wanted a tensor of known rank, got {info}")
    return info.dims


def has_dims(x: Expr, dims: Sequence[PrimExpr]) -> bool:
    """Whether a tensor has these dimensions, as they are written."""
    own = dims_of(x)
    return len(own) == len(dims) and all(map(operator.is_, own, dims))


def shape_expr(dims: Iterable[Any]) -> ShapeExpr:
    """Dimensions as an expression; plain ints are int64."""
    return ShapeExpr([const(d, "int64") if isinstance(d, int) else d for d in dims])


def product(dims: Iterable[Any]) -> PrimExpr:
    """How many elements a tensor of these dimensions has."""
    total: PrimExpr = const(1, "int64")
    for d in dims:
        total = d if isinstance(total, IntImm) and total.value == 1 else total * d
    return simplified(total)


def quotient(dims: Iterable[PrimExpr], by: Iterable[PrimExpr]) -> PrimExpr:
    """The product of `dims` by that of others, which divides it: what both have is left out."""
    above, below = _factors(dims), _factors(by)
    for factor in list(below):
        same = next((f for f in above if structural_equal(f, factor)), None)
        if same is not None:
            above.remove(same)
            below.remove(factor)
    numbers_above, numbers_below = (
        math.prod(f.value for f in part if isinstance(f, IntImm)) for part in (above, below)
    )
    common = math.gcd(numbers_above, numbers_below) or 1
    rest_above, rest_below = (
        [f for f in part if not isinstance(f, IntImm)] for part in (above, below)
    )
    top = product([const(numbers_above // common, "int64"), *rest_above])
    bottom = product([const(numbers_below // common, "int64"), *rest_below])
    return top if isinstance(bottom, IntImm) and bottom.value == 1 else simplified(top // bottom)


def _factors(dims: Iterable[PrimExpr]) -> list[PrimExpr]:
    """What is multiplied in dimensions."""
    factors: list[PrimExpr] = []
    for each in dims:
        factors += _factors((each.a, each.b)) if isinstance(each, Mul) else [each]
    return factors
