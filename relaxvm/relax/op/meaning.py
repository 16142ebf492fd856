"""What operators mean, run on numpy: the reference for tests, and what constants are folded with.

    evaluate(R.add(x, R.exp(y)), {x: a, y: b})

An array value is a numpy array; one of bfloat16, which numpy lacks, is a float32 array of values
that bfloat16 has, one of int4 an int8 array of values that int4 has. Results are rounded, and
wrapped, to such a type after every operator. A shape is a tuple of ints, a scalar a numpy scalar of
its dtype, a tuple a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...base import (
    DataType,
    RelaxvmError,
    StructInfoError,
    VMValueError,
    bits_to_values,
    to_numpy_dtype,
    values_to_bits,
)
from ...ir import PrimExpr
from ...runtime import numbers_to_strings, strings_of, strings_to_numbers
from ...tir import ELEMENTARY, evaluate_expr
from ..expr import (
    Call,
    Constant,
    DataTypeImm,
    PrimValue,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from ..struct_info import (
    Expr,
    PrimStructInfo,
    SequenceStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .record import Op


def from_storage(array: Any, dtype: str) -> np.ndarray:
    """The values of an array as the runtime gives it (bfloat16 as bits in uint16, or as ml_dtypes
    has it).
    """
    array = np.asarray(array)
    if not DataType(dtype).is_bits or array.dtype == np.float32:
        return array
    storage = to_numpy_dtype(dtype)
    bits = array if array.dtype == storage else np.ascontiguousarray(array).view(storage)
    return bits_to_values(bits, DataType(dtype)).reshape(array.shape)


def to_storage(values: Any, dtype: str) -> np.ndarray:
    """Values as the runtime stores them in an array of `dtype`."""
    values = np.asarray(values)
    if DataType(dtype).is_bits:
        return values_to_bits(values, DataType(dtype)).reshape(values.shape)
    return values.astype(to_numpy_dtype(dtype), copy=False)


def value_dtype(dtype: str) -> np.dtype:
    """The numpy dtype that values of `dtype` have here: float32, int8 or uint8 for what numpy
    lacks.
    """
    known = DataType(dtype)
    if not known.is_bits:
        return to_numpy_dtype(dtype)
    return np.dtype(f"{known.kind}8" if known.is_int else "float32")


def in_wider(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` of float arrays, computed one width up (float16 in float32, float32 in float64) and
    rounded once.
    """

    def wide(*args: Any, **attrs: Any) -> Any:
        kind = np.asarray(args[0]).dtype
        up = {"float16": np.float32, "float32": np.float64}.get(kind.name)
        if up is None:
            return f(*args, **attrs)
        value = f(*(np.asarray(a).astype(up) for a in args), **attrs)
        return np.asarray(value).astype(kind)

    return wide


def elementary(name: str) -> Callable[[Any], np.ndarray]:
    """The intrinsic `name` of float arrays, computed in float64 and rounded once."""
    f = ELEMENTARY[name]
    return lambda x: np.asarray(f(np.asarray(x, "float64"))).astype(np.asarray(x).dtype)


def convert(x: Any, dtype: DataType) -> np.ndarray:
    """Values converted to `dtype` by the rules of the scalar language; for bfloat16, to values that
    round to its.
    """
    x = np.asarray(x)
    to = value_dtype(dtype)
    if dtype.is_string:
        return x if x.dtype == to else numbers_to_strings(x)
    if x.dtype == object:
        numbers = strings_to_numbers(x, dtype)
        return numbers != 0 if dtype.is_bool else convert(numbers, dtype)
    if dtype.kind == "bfloat":
        return _toward_bfloat16(x)
    if dtype.is_small_float:
        return bits_to_values(values_to_bits(x, dtype), dtype).reshape(x.shape)
    if x.dtype.kind != "f" or dtype.is_float or dtype.is_bool:
        return _wrapped(x.astype(to), dtype)
    # Floats to integers: toward zero, ends of the range beyond it, 0 for NaN.
    low, high = dtype.min_value, dtype.max_value
    wide = np.trunc(x.astype("float64"))
    inside = (wide >= float(low)) & (
        wide < float(high) + 1.0 if dtype.bits < 64 else wide < float(high)
    )
    result = np.where(inside, wide, 0.0).astype(to)
    result = np.where(wide >= float(high), to.type(high), result)
    result = np.where(wide <= float(low), to.type(low), result)
    return np.where(np.isnan(wide), to.type(0), result)


def _wrapped(x: np.ndarray, dtype: DataType) -> np.ndarray:
    """Integers that wrap where `dtype` has fewer bits than theirs."""
    return bits_to_values(values_to_bits(x, dtype), dtype) if dtype.is_byte else x


def _toward_bfloat16(x: np.ndarray) -> np.ndarray:
    """x as float32, rounded to odd, so that rounding again to bfloat16 gives what rounding once
    does.
    """
    if x.dtype.kind == "f" and x.dtype.itemsize <= 4:
        return x.astype(np.float32)
    near = x.astype(np.float32)
    if x.dtype.kind == "f":
        finite = np.isfinite(near)
        below, above = finite & (near.astype(x.dtype) < x), finite & (near.astype(x.dtype) > x)
    else:
        # Every 64-bit integer near a float32 of it is exact in a long double or compares
        # as a Python int.
        exact = np.frompyfunc(int, 1, 1)
        whole, rounded = exact(x.astype(object)), exact(near.astype(object))
        below, above = np.asarray(rounded < whole, bool), np.asarray(rounded > whole, bool)
    even = (near.view(np.uint32) & np.uint32(1)) == 0
    near = np.where(below & even, np.nextafter(near, np.float32(np.inf)), near)
    return np.where(above & even, np.nextafter(near, np.float32(-np.inf)), near)


def evaluate(
    expr: Expr, env: Mapping[Any, Any] | None = None, symbols: Mapping[Any, int] | None = None
) -> Any:
    """The value of `expr`, an expression of operators, variables and constants.

    env      variable -> value (see the top of this file)
    symbols  symbol -> its value, for the shapes and scalars written in `expr`
    Raises StructInfoError for an operator without a meaning in numpy and for a variable that is not
    in `env`.
    """
    values: dict[int, Any] = {}
    keep: list[Any] = []
    for var, value_of in (env or {}).items():
        values[id(var)] = value_of
        keep.append(var)
    stack: list[tuple[Any, bool]] = [(expr, False)]
    while stack:
        each, ready = stack.pop()
        if id(each) in values:
            continue
        if not ready:
            stack.append((each, True))
            stack.extend((c, False) for c in reversed(_operands(each)))
            continue
        values[id(each)] = _value(each, values, symbols or {})
        keep.append(each)
    return values[id(expr)]


def run_operator(name: str, args: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """What the operator `name` gives for values (see the top of this file).

    Raises VMValueError for what is no operator, and for whatever is wrong with the values.
    """
    try:
        op = Op.get(name)
    except RelaxvmError as error:
        raise VMValueError(str(error)) from error
    if not isinstance(op, Op) or not callable(op.numpy):
        raise VMValueError(f"{name} is no operator with a meaning in numpy")
    try:
        with np.errstate(all="ignore"):
            return op.numpy(*args, **attributes)
    except RelaxvmError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise VMValueError(f"{op.short}: {error}") from error


def _operands(e: Any) -> tuple[Any, ...]:
    if isinstance(e, Call):
        return e.args
    if isinstance(e, Tuple):
        return e.fields
    return (e.tuple_value,) if isinstance(e, TupleGetItem) else ()


def _value(e: Any, values: dict[int, Any], symbols: Mapping[Any, int]) -> Any:
    if isinstance(e, Call):
        return _call(e, [values[id(a)] for a in e.args], symbols)
    if isinstance(e, Tuple):
        return tuple(values[id(f)] for f in e.fields)
    if isinstance(e, TupleGetItem):
        return values[id(e.tuple_value)][e.index]
    if isinstance(e, Constant):
        return from_storage(e.data.numpy(), e.data.dtype)
    if isinstance(e, ShapeExpr):
        return tuple(int(_scalar(d, symbols)) for d in e.values)
    if isinstance(e, PrimValue):
        return _scalar(e.value, symbols)
    if isinstance(e, (StringImm, DataTypeImm)):
        return e.value
    if isinstance(e, Var):
        raise StructInfoError(f"evaluate: no value is given for the variable {e.name_hint}")
    raise StructInfoError(
        f"evaluate: {type(e).__name__} is no expression of operators and constants"
    )


def _scalar(e: PrimExpr, symbols: Mapping[Any, int]) -> Any:
    return evaluate_expr(e, symbols)


def _call(call: Call, args: list[Any], symbols: Mapping[Any, int]) -> Any:
    op = call.op
    if not isinstance(op, Op) or not callable(op.numpy):
        why = getattr(getattr(op, "numpy", None), "why", "it is no operator")
        raise StructInfoError(f"evaluate: {getattr(op, 'name', op)} has no meaning in numpy: {why}")
    attrs = {k: _attribute(v, symbols) for k, v in call.attrs.items()}
    with np.errstate(all="ignore"):
        return _as(call.struct_info, op.numpy(*args, **attrs), op.short)


def _attribute(value: Any, symbols: Mapping[Any, int]) -> Any:
    return _scalar(value, symbols) if isinstance(value, PrimExpr) else value


def _as(info: StructInfo, raw: Any, name: str) -> Any:
    """What a meaning gave, as a value of `info`. Raises StructInfoError if it is of other kind."""
    if isinstance(info, TupleStructInfo):
        if not isinstance(raw, (tuple, list)) or len(raw) != len(info.fields):
            raise StructInfoError(f"{name}: its meaning gives {type(raw).__name__}, wanted {info}")
        return tuple(_as(f, m, name) for f, m in zip(info.fields, raw))
    if isinstance(info, TensorStructInfo):
        array = np.asarray(raw)
        if info.dtype == "void":
            return array
        if info.dtype.is_string:
            return strings_of(array)
        if info.dtype.is_bits:
            return from_storage(to_storage(array, info.dtype), info.dtype)
        if array.dtype != to_numpy_dtype(info.dtype):
            raise StructInfoError(f"{name}: its meaning gives {array.dtype}, wanted {info.dtype}")
        return array
    if isinstance(info, SequenceStructInfo):
        return tuple(_as(info.element, item, name) for item in raw)
    if isinstance(info, ShapeStructInfo):
        return tuple(int(d) for d in raw)
    if isinstance(info, PrimStructInfo):
        return value_dtype(info.dtype).type(raw)
    return raw
