"""Operators that make tensors: full, zeros, ones, arange, eye, tril, triu, hamming_window."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import tir
from ...arith import Analyzer
from ...base import UNKNOWN, DataType, Span, StructInfoError, submodules
from ...ir import (
    EQ,
    GE,
    LE,
    Add,
    FloatImm,
    FloorDiv,
    IntImm,
    Mul,
    Not,
    PrimExpr,
    Select,
    Sub,
    Var,
    cast,
    const,
    is_const,
)
from ...te import Tensor, compute
from ..expr import Call, PrimValue
from ..expr import const as constant
from ..rules import LowerBuilder, Ops
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
)
from .infer import (
    ANY,
    FLOAT,
    INTEGER,
    NUMBER,
    array_dtype,
    check_kind,
    dtype_of,
    scalar_of,
    shape_argument,
    tensor,
    tensor_of,
)
from .lower import call_te, scalar_constant, te_lower
from .meaning import convert, value_dtype
from .record import Prim, Shape, face_of, missing, op
from .sizes import want_true

__getattr__ = submodules(__name__)


_CREATES = missing("it has no tensor argument")


def _fills_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[None, ...]:
    """Nothing: the result does not depend on the elements of the arguments that are like it."""
    return (None,) * len(call.args)


# -- full ------------------------------------------------------------------------------------------


def _fill_info(value: Expr) -> Any:
    info = value.struct_info
    if isinstance(info, PrimStructInfo):
        check_kind(info.dtype, "fill_value", ANY)
        return info
    return tensor(value, "fill_value", ndim=0)


def _filled(shape: Any, value: Any, dtype: DataType) -> np.ndarray:
    return np.full(shape, convert(np.asarray(value), dtype), dtype=value_dtype(dtype))


def _te_full(shape: Any, value: Any, dtype: DataType) -> Tensor:
    def element(*index: PrimExpr) -> PrimExpr:
        return cast(dtype, value() if isinstance(value, Tensor) else value)

    return compute(tuple(shape), element, "full")


def _fill_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    info = call.args[1].struct_info
    if not isinstance(info, TensorStructInfo) or not info.dtype.is_float:
        return None, None
    return None, ops.astype(ops.sum(gy), info.dtype)


def _lower_full(builder: LowerBuilder, call: Call) -> Expr:
    info: Any = call.struct_info
    shape, value = call.args
    return call_te(builder, call, _te_full, shape, scalar_constant(value), dtype=info.dtype)


@op(
    "full",
    numpy=lambda shape, fill_value, *, dtype: (
        np.full(shape, fill_value) if dtype is None else _filled(shape, fill_value, dtype)
    ),
    lower=_lower_full,
    grad=_fill_grad,
    layout=_CREATES,
)
def _full(shape: Shape, fill_value: Expr, dtype: DataType | None = None) -> StructInfo:
    """A tensor of `shape` whose every element is `fill_value`, a tensor of no dimensions or a
    scalar.

    dtype  of the result; None: that of `fill_value` (a Python float is float32, an int int32)
    """
    value = _fill_info(fill_value)
    return TensorStructInfo(
        shape_argument(shape), value.dtype if dtype is None else array_dtype(dtype)
    )


def _scalar(value: Any, dtype: Any, op_name: str) -> Any:
    """A Python number as a constant: int32 or float32 if no dtype is given, else of a dtype wide
    enough for any.
    """
    if isinstance(value, (IntImm, FloatImm)):
        value = bool(value.value) if value.dtype.is_bool else value.value
    if isinstance(value, bool):
        return constant(value)
    if isinstance(value, int):
        if dtype is not None and (kind := dtype_of(dtype, f"{op_name}: attribute dtype")).is_int:
            if not kind.min_value <= value <= kind.max_value:
                raise StructInfoError(
                    f"{op_name}: fill_value: {value} does not fit {kind}: its range is "
                    f"{kind.min_value} to {kind.max_value}"
                )
        if dtype is None and -(2**31) <= value < 2**31:
            return constant(value, "int32")
        if not -(2**63) <= value < 2**64:
            raise StructInfoError(f"{op_name}: fill_value: {value} does not fit 64 bits")
        return constant(value, "int64" if value < 2**63 else "uint64")
    if isinstance(value, float):
        return constant(value, "float32" if dtype is None else "float64")
    return value


@face_of(_full)
def full(shape: Any, fill_value: Any, dtype: Any = None, span: Span = UNKNOWN) -> Call:
    return _full.op.build(shape, _scalar(fill_value, dtype, "full"), dtype, span=span)


def _like_info(x: Expr, dtype: DataType | None, name: str = "x") -> TensorStructInfo:
    info = tensor(x, name)
    return info if dtype is None else info.replace(dtype=array_dtype(dtype))


def _lower_full_like(builder: LowerBuilder, call: Call) -> Expr:
    info: Any = call.struct_info
    x, value = call.args
    own: Any = x.struct_info
    return call_te(
        builder, call, _te_full, ShapeExpr(own.dims), scalar_constant(value), dtype=info.dtype
    )


@op(
    "full_like",
    numpy=lambda x, fill_value, *, dtype: (
        convert(np.full(np.shape(x), fill_value), _dtype_of(x))
        if dtype is None
        else _filled(np.shape(x), fill_value, dtype)
    ),
    lower=_lower_full_like,
    grad=_fill_grad,
)
def _full_like(x: Expr, fill_value: Expr, dtype: DataType | None = None) -> StructInfo:
    """A tensor of the shape of `x` (and its dtype, unless `dtype` says otherwise) filled with
    `fill_value`.
    """
    _fill_info(fill_value)
    return _like_info(x, dtype)


def _dtype_of(x: Any) -> DataType:
    return DataType(np.asarray(x).dtype)


@face_of(_full_like)
def full_like(x: Any, fill_value: Any, dtype: Any = None, span: Span = UNKNOWN) -> Call:
    own = getattr(getattr(x, "struct_info", None), "dtype", "void")
    known = dtype if dtype is not None else own if own != "void" else "float64"
    return _full_like.op.build(x, _scalar(fill_value, known, "full_like"), dtype, span=span)


def _constant_op(name: str, value: int) -> tuple[Callable[..., Call], Callable[..., Call]]:
    """zeros and zeros_like, or ones and ones_like."""

    def lower(builder: LowerBuilder, call: Call) -> Expr:
        info: Any = call.struct_info
        shape = call.args[0]
        if isinstance(shape.struct_info, TensorStructInfo):
            shape = ShapeExpr(tensor_of(shape).dims)
        return call_te(builder, call, _te_full, shape, const(value, info.dtype), dtype=info.dtype)

    def of_shape(shape: Shape, dtype: DataType) -> StructInfo:
        return TensorStructInfo(shape_argument(shape), array_dtype(dtype))

    def of_tensor(x: Expr, dtype: DataType | None = None) -> StructInfo:
        return _like_info(x, dtype)

    of_shape.__name__ = of_shape.__qualname__ = name
    of_shape.__doc__ = f"A tensor of `shape` and `dtype` whose every element is {value}."
    of_tensor.__name__ = of_tensor.__qualname__ = f"{name}_like"
    of_tensor.__doc__ = f"As `{name}`, of the shape of `x` and, without `dtype`, its dtype."
    filled = op(
        name,
        numpy=lambda shape, *, dtype: np.full(shape, value, dtype=value_dtype(dtype)),
        lower=lower,
        grad=_CREATES,
        layout=_CREATES,
    )(of_shape)
    like = op(
        f"{name}_like",
        numpy=lambda x, *, dtype: np.full(
            np.shape(x), value, dtype=np.asarray(x).dtype if dtype is None else value_dtype(dtype)
        ),
        lower=lower,
        grad=_fills_grad,
    )(of_tensor)
    return filled, like


zeros, zeros_like = _constant_op("zeros", 0)
ones, ones_like = _constant_op("ones", 1)


# -- arange ----------------------------------------------------------------------------------------


def _prim(x: Expr, name: str, takes: Any = NUMBER) -> PrimStructInfo:
    info = x.struct_info
    if not isinstance(info, PrimStructInfo):
        raise StructInfoError(f"{name}: wanted a scalar value such as R.prim_value(3), got {info}")
    check_kind(info.dtype, name, takes)
    return info


def _length(start: PrimExpr, end: PrimExpr, step: PrimExpr) -> PrimExpr | None:
    """How many numbers arange gives; None if a float among the bounds is no constant."""
    parts = (start, end, step)
    if any(p.dtype.is_float for p in parts):
        numbers = [p.value for p in parts if isinstance(p, (IntImm, FloatImm))]
        if len(numbers) < 3:
            return None
        low, high, width = map(float, numbers)
        count = (high - low) / width
        if not math.isfinite(count):
            raise StructInfoError(
                f"wanted finite bounds, got start {low}, end {high}, step {width}"
            )
        return _counted(math.ceil(count))
    constants = [p.value for p in parts if isinstance(p, IntImm)]
    if len(constants) == 3:
        # In Python's integers: the distance of two int64 may not be one.
        begin, stop, stride = constants
        return _counted(-((begin - stop) // stride))
    first, last, by = (cast("int64", p) for p in parts)
    if is_const(first, 0) and is_const(by, 1):
        # The usual way to count up to a size.
        return last if isinstance(last, Var) else _not_negative(last)
    one = const(1, "int64")
    if isinstance(by, IntImm):
        if by.value > 0:
            return _not_negative(FloorDiv(Add(Sub(last, first), Sub(by, one)), by))
        down = const(-by.value, "int64")
        return _not_negative(FloorDiv(Add(Sub(first, last), Sub(down, one)), down))
    up = FloorDiv(Add(Sub(last, first), Sub(by, one)), by)
    size = Sub(const(0, "int64"), by)
    down = FloorDiv(Add(Sub(first, last), Sub(size, one)), size)
    return _not_negative(Select(GE(by, one), up, down))


def _counted(count: int) -> PrimExpr:
    if count >= 1 << 63:
        raise StructInfoError(f"wanted a length of int64, got {count} numbers")
    return const(max(0, count), "int64")


def _not_negative(e: PrimExpr) -> PrimExpr:
    return Analyzer(wrap=True).simplify(tir.max(e, const(0, "int64")))


def _numbers(start: Any, end: Any, step: Any, *, dtype: DataType) -> np.ndarray:
    floats = any(np.asarray(p).dtype.kind == "f" for p in (start, end, step))
    if floats:
        start, end, step = (float(p) for p in (start, end, step))
        count = max(0, math.ceil((end - start) / step))
        return convert(start + np.arange(count, dtype="float64") * step, dtype)
    start, end, step = (int(p) for p in (start, end, step))
    return convert(np.arange(start, end, step, dtype="int64"), dtype)


def _te_arange(
    count: Any, start: PrimExpr, end: PrimExpr, step: PrimExpr, dtype: DataType
) -> Tensor:
    wide = "float64" if any(p.dtype.is_float for p in (start, end, step)) else "int64"

    def element(i: PrimExpr) -> PrimExpr:
        return cast(dtype, Add(cast(wide, start), Mul(cast(wide, i), cast(wide, step))))

    return compute(tuple(count), element, "arange")


def _lower_arange(builder: LowerBuilder, call: Call) -> Expr:
    values = map(scalar_of, call.args)
    info: Any = call.struct_info
    return call_te(
        builder, call, _te_arange, ShapeExpr(info.dims), *values, dtype=call.attrs["dtype"]
    )


@op("arange", _numbers, _lower_arange, _CREATES, _CREATES)
def _arange(start: Prim, end: Prim, step: Prim, dtype: DataType) -> StructInfo:
    """The numbers start, start + step, ... before `end`, as a tensor of one dimension.

    start, end, step  scalars; one given alone is the end. Without `dtype`, int64 for integers and
                      float32 otherwise.
    Counting from 0 by 1 to a symbol, the symbol is the length; it must not be negative.
    """
    for p, n in ((start, "start"), (end, "end"), (step, "step")):
        _prim(p, n)
    check_kind(array_dtype(dtype), "dtype", NUMBER)
    values = [scalar_of(p) for p in (start, end, step)]
    by = values[2]
    if isinstance(by, (IntImm, FloatImm)) and (by.value == 0 or by.value != by.value):
        raise StructInfoError(f"step: wanted a number that is not 0, got {by.value}")
    if by.dtype.is_int and not isinstance(by, IntImm):
        want_true(Not(by.equal(const(0, by.dtype))), "step: wanted a number that is not 0")
    count = _length(*values)
    if count is None:
        raise StructInfoError(
            "wanted constants as floating start, end and step: they decide the length"
        )
    if dtype.is_int and isinstance(count, IntImm) and count.value:
        _check_ends(values, count.value, dtype)
    return TensorStructInfo((count,), dtype)


def _check_ends(values: Any, count: int, dtype: DataType) -> None:
    """Raise StructInfoError if constants certainly count past what `dtype` holds."""
    if not all(isinstance(v, IntImm) for v in values):
        return
    first, _, by = (v.value for v in values)
    for v in (first, first + (count - 1) * by):
        if not dtype.min_value <= v <= dtype.max_value:
            raise StructInfoError(
                f"dtype: {v} does not fit {dtype}: its range is {dtype.min_value} to "
                f"{dtype.max_value}"
            )


def _number(value: Any) -> Any:
    """A Python float as a double, so that nothing of it is lost."""
    if isinstance(value, float):
        return PrimValue(FloatImm(DataType("float64"), value))
    return value


@face_of(_arange)
def arange(
    start: Any, end: Any = None, step: Any = 1, dtype: Any = None, span: Span = UNKNOWN
) -> Call:
    if end is None:
        start, end = 0, start
    limits = [_number(v) for v in (start, end, step)]
    if dtype is None:
        dtype = "float32" if any(map(_is_float, limits)) else "int64"
    return _arange.op.build(*limits, dtype, span=span)


def _is_float(value: Any) -> bool:
    if isinstance(value, PrimValue):
        value = value.value
    if isinstance(value, PrimExpr):
        return value.dtype.is_float
    info = getattr(value, "struct_info", None)
    return isinstance(info, PrimStructInfo) and info.dtype.is_float


# -- matrices --------------------------------------------------------------------------------------


def _size(x: Expr, name: str) -> PrimExpr:
    value = _prim(x, name, INTEGER).value
    if isinstance(value, IntImm) and value.value < 0:
        raise StructInfoError(f"{name}: wanted a size, got {value.value}")
    return cast("int64", value)


def _te_eye(shape: Any, k: PrimExpr, dtype: DataType) -> Tensor:
    one, zero = const(1, dtype), const(0, dtype)
    return compute(
        tuple(shape),
        lambda i, j: Select(
            EQ(cast("int64", j), Add(cast("int64", i), cast("int64", k))), one, zero
        ),
        "eye",
    )


def _lower_eye(builder: LowerBuilder, call: Call) -> Expr:
    info: Any = call.struct_info
    k = scalar_of(call.args[-1])
    return call_te(builder, call, _te_eye, ShapeExpr(info.dims), k, dtype=info.dtype)


def _eye_meaning(n: Any, m: Any, k: Any, *, dtype: DataType) -> np.ndarray:
    return np.eye(int(n), int(m), int(k), dtype=value_dtype(dtype))


@op("eye", _eye_meaning, _lower_eye, _CREATES, _CREATES)
def _eye(n: Prim, m: Prim, k: Prim, dtype: DataType) -> StructInfo:
    """The matrix of `n` rows and `m` (default: `n`) columns with ones on the diagonal `k` above the
    main one.
    """
    rows, columns = _size(n, "n"), _size(m, "m")
    _prim(k, "k", INTEGER)
    check_kind(array_dtype(dtype), "dtype", ANY)
    return TensorStructInfo((rows, columns), dtype)


@face_of(_eye)
def eye(n: Any, m: Any = None, k: Any = 0, dtype: Any = "float32", span: Span = UNKNOWN) -> Call:
    return _eye.op.build(n, n if m is None else m, k, dtype, span=span)


@op(
    "eye_like",
    numpy=lambda x, k, *, dtype: _eye_meaning(x.shape[0], x.shape[1], k, dtype=dtype or x.dtype),
    lower=_lower_eye,
    grad=_fills_grad,
    layout=missing("the result does not depend on the elements of its argument"),
)
def eye_like(x: Expr, k: Prim = 0, dtype: DataType | None = None) -> StructInfo:
    """As `eye`, of the shape of the matrix `x` and, without `dtype`, its dtype."""
    tensor(x, "x", ndim=2)
    _prim(k, "k", INTEGER)
    return _like_info(x, dtype)


def _triangle(
    name: str, meaning: str, numpy: Callable[..., Any], keeps: Any
) -> Callable[..., Call]:
    def rule(x: Expr, k: Prim = 0) -> StructInfo:
        info = tensor(x, "x")
        if info.ndim < 2:
            raise StructInfoError(f"x: wanted at least 2 dimensions, got {info.ndim}")
        _prim(k, "k", INTEGER)
        return info

    def te_function(x: Tensor, k: PrimExpr) -> Tensor:
        def element(*index: PrimExpr) -> PrimExpr:
            i, j = (cast("int64", n) for n in index[-2:])
            return Select(keeps(j, Add(i, cast("int64", k))), x(*index), const(0, x.dtype))

        return compute(x.shape, element, name)

    def grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
        return getattr(ops, name)(gy, call.args[1]), None

    rule.__name__ = rule.__qualname__ = name
    rule.__doc__ = meaning
    declare = op(
        name,
        numpy=lambda x, k: numpy(x, int(k)),
        lower=te_lower(te_function),
        grad=grad,
    )
    return declare(rule)


tril = _triangle(
    "tril",
    "Each matrix (the last two axes) of `x` with zeros above the diagonal `k` above the main one.",
    np.tril,
    LE,
)
triu = _triangle(
    "triu",
    "Each matrix (the last two axes) of `x` with zeros below the diagonal `k` above the main one.",
    np.triu,
    GE,
)


# -- windows ---------------------------------------------------------------------------------------


def _hamming(
    window_size: Any, periodic: Any, alpha: Any, beta: Any, *, dtype: DataType
) -> np.ndarray:
    size = int(window_size)
    turns = size if periodic else size - 1
    if size == 1:
        return np.ones(1, dtype=value_dtype(dtype))
    angle = np.arange(size, dtype="float64") * (2.0 * math.pi / max(1, turns))
    return convert(float(alpha) - float(beta) * np.cos(angle), dtype)


def _te_hamming(
    shape: Any, periodic: PrimExpr, alpha: PrimExpr, beta: PrimExpr, dtype: DataType
) -> Tensor:
    size = cast("int64", shape[0])
    one = const(1, "int64")
    wide = DataType("float64")

    def element(i: PrimExpr) -> PrimExpr:
        turns = tir.max(Select(periodic, size, Sub(size, one)), one)
        angle = cast(wide, i) * const(2.0 * math.pi, wide) / cast(wide, turns)
        value = Sub(cast(wide, alpha), Mul(cast(wide, beta), tir.cos(angle)))
        return cast(dtype, Select(EQ(size, one), const(1.0, wide), value))

    return compute(tuple(shape), element, "hamming_window")


def _lower_hamming(builder: LowerBuilder, call: Call) -> Expr:
    info: Any = call.struct_info
    values = map(scalar_of, call.args[1:])
    return call_te(builder, call, _te_hamming, ShapeExpr(info.dims), *values, dtype=info.dtype)


@op("hamming_window", _hamming, _lower_hamming, _CREATES, _CREATES)
def _hamming_window(
    window_size: Prim, periodic: Prim, alpha: Prim, beta: Prim, dtype: DataType
) -> StructInfo:
    """The Hamming window alpha - beta * cos(2 pi i / N), N being `window_size`, or 1 less unless
    `periodic`.

    A window of one element is 1.
    """
    size = _size(window_size, "window_size")
    if is_const(size, 0):
        raise StructInfoError("window_size: wanted at least 1, got 0")
    _prim(periodic, "periodic", {"bool"})
    _prim(alpha, "alpha", FLOAT)
    _prim(beta, "beta", FLOAT)
    check_kind(array_dtype(dtype), "dtype", FLOAT)
    return TensorStructInfo((size,), dtype)


@face_of(_hamming_window)
def hamming_window(
    window_size: Any,
    periodic: Any = True,
    alpha: Any = 0.54,
    beta: Any = 0.46,
    dtype: Any = "float32",
    span: Span = UNKNOWN,
) -> Call:
    if isinstance(periodic, (bool, int)):
        periodic = PrimValue(const(bool(periodic), "bool"))
    values = (window_size, periodic, _number(alpha), _number(beta))
    return _hamming_window.op.build(*values, dtype, span=span)
