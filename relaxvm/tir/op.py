"""The scalar language's functions as users call them: `tir.exp(x)`, `tir.floordiv(a, b)`,
`tir.call_extern(...)`.

Each checks its arguments' dtypes and builds one expression. What the expressions mean is in
`interp_scalar.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import DataType, TIRError, submodules
from ..base import dtype as as_dtype
from ..ir import (
    And,
    Broadcast,
    Call,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Not,
    Op,
    Or,
    PrimExpr,
    Select,
    Shuffle,
    StringImm,
    as_condition,
    as_expr,
    binary,
    call_intrinsic,
    cast,
    const,
    divide,
    match,
    shift,
    why_no_dot,
)
from .stmt import Buffer, BufferLoad

__getattr__ = submodules(__name__)


def _need_int(name: str, *args: PrimExpr) -> None:
    for a in args:
        if not (a.dtype.is_int or a.dtype.is_bool):
            raise TIRError(f"{name} takes integer arguments, got {a.dtype}")


def _need_float(name: str, *args: PrimExpr) -> None:
    for a in args:
        if not a.dtype.is_float:
            raise TIRError(
                f"{name} takes floating arguments, got {a.dtype}; "
                f'cast first, as in T.Cast("float32", x)'
            )


def _as_float(x: Any) -> PrimExpr:
    """`x`, cast to float32 if it is an integer or bool."""
    x = as_expr(x)
    if x.dtype.is_int or x.dtype.is_bool:
        return cast(as_dtype("float32").with_lanes(x.dtype.lanes), x)
    return x


def _unary(name: str, meaning: str) -> Callable[[Any], PrimExpr]:
    def function(x: Any) -> PrimExpr:
        x = _as_float(x)
        _need_float(name, x)
        return call_intrinsic(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{meaning}, of a floating `x`; of an integer, as float32. "
        "Raises TIRError for other dtypes."
    )
    return function


exp = _unary("exp", "e to the power x")
exp2 = _unary("exp2", "2 to the power x")
exp10 = _unary("exp10", "10 to the power x")
expm1 = _unary("expm1", "exp(x) - 1, precise near 0")
log = _unary("log", "The natural logarithm")
log2 = _unary("log2", "The logarithm to base 2")
log10 = _unary("log10", "The logarithm to base 10")
log1p = _unary("log1p", "log(1 + x), precise near 0")
sqrt = _unary("sqrt", "The square root")
rsqrt = _unary("rsqrt", "1 / sqrt(x)")
tanh = _unary("tanh", "The hyperbolic tangent")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x))")
erf = _unary("erf", "The error function")
erfc = _unary("erfc", "1 - erf(x), precise where that is small")
gelu = _unary("gelu", "x times the share of the normal distribution below it")
gelu_tanh = _unary("gelu_tanh", "`gelu`, approximated with tanh")
silu = _unary("silu", "x * sigmoid(x)")
mish = _unary("mish", "x * tanh(log(1 + exp(x)))")
sin = _unary("sin", "The sine")
cos = _unary("cos", "The cosine")
tan = _unary("tan", "The tangent")
asin = _unary("asin", "The arc sine")
acos = _unary("acos", "The arc cosine")
atan = _unary("atan", "The arc tangent")
sinh = _unary("sinh", "The hyperbolic sine")
cosh = _unary("cosh", "The hyperbolic cosine")
asinh = _unary("asinh", "The inverse hyperbolic sine")
acosh = _unary("acosh", "The inverse hyperbolic cosine")
atanh = _unary("atanh", "The inverse hyperbolic tangent")


def _rounding(name: str, meaning: str) -> Callable[[Any], PrimExpr]:
    def function(x: Any) -> PrimExpr:
        expr = as_expr(x)
        if expr.dtype.is_int or expr.dtype.is_bool:
            return expr
        _need_float(name, expr)
        return call_intrinsic(name, expr)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}, in the dtype of `x`; an integer is returned as it is."
    return function


floor = _rounding("floor", "The greatest integer <= x")
ceil = _rounding("ceil", "The least integer >= x")
trunc = _rounding("trunc", "The integer next to x toward zero")
round = _rounding("round", "The integer nearest to x, ties to even")
nearbyint = _rounding("nearbyint", "The integer nearest to x, ties to even")


def _classify(name: str, of_integers: bool, meaning: str) -> Callable[[Any], PrimExpr]:
    def function(x: Any) -> PrimExpr:
        x = as_expr(x)
        if x.dtype.is_int or x.dtype.is_bool:
            return const(of_integers, as_dtype("bool").with_lanes(x.dtype.lanes))
        _need_float(name, x)
        return call_intrinsic(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Whether x is {meaning}: a bool. Constant for integers."
    return function


isnan = _classify("isnan", False, "not a number")
isinf = _classify("isinf", False, "plus or minus infinity")
isfinite = _classify("isfinite", True, "neither infinite nor NaN")


def _binary_float(name: str, meaning: str) -> Callable[[Any, Any], PrimExpr]:
    def function(x: Any, y: Any) -> PrimExpr:
        x, y = match(x, y)
        _need_float(name, x)
        return call_intrinsic(name, x, y)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}, of floating arguments. Raises TIRError for other dtypes."
    return function


pow = _binary_float("pow", "x to the power y")
power = pow
atan2 = _binary_float("atan2", "The angle of the point (y, x) as atan2(x, y) of C names them")
fmod = _binary_float("fmod", "C's floating remainder: the sign is that of x")
copysign = _binary_float("copysign", "x with the sign of y")
hypot = _binary_float("hypot", "sqrt(x*x + y*y) without overflow on the way")
nextafter = _binary_float("nextafter", "The number of this dtype next to x toward y")


def _binary_int(name: str, meaning: str, build: Any = call_intrinsic) -> Callable[..., PrimExpr]:
    def function(x: Any, y: Any) -> PrimExpr:
        x, y = match(x, y)
        _need_int(name, x, y)
        result: PrimExpr = build(name, x, y)
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}, of integers or bools. Raises TIRError for other dtypes."
    return function


bitwise_and = _binary_int("bitwise_and", "Bit by bit and")
bitwise_or = _binary_int("bitwise_or", "Bit by bit or")
bitwise_xor = _binary_int("bitwise_xor", "Bit by bit exclusive or")
shift_left = _binary_int(
    "shift_left", "x shifted left by y; 0 if y is negative or >= the width", shift
)
shift_right = _binary_int(
    "shift_right",
    "x shifted right by y, keeping the sign; by the width or more 0, or -1 below 0",
    shift,
)


def _unary_int(name: str, meaning: str) -> Callable[[Any], PrimExpr]:
    def function(x: Any) -> PrimExpr:
        x = as_expr(x)
        _need_int(name, x)
        return call_intrinsic(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning} of the integer x. Raises TIRError for floats."
    return function


bitwise_not = _unary_int("bitwise_not", "Every bit turned over, in its dtype,")
popcount = _unary_int("popcount", "The number of set bits, in its dtype,")
clz = _unary_int("clz", "The number of leading zero bits, an int32 (the width for 0),")


def ldexp(x: Any, exponent: Any) -> PrimExpr:
    """x * 2**exponent, for a floating x and an integer exponent."""
    x, exponent = as_expr(x), as_expr(exponent)
    _need_float("ldexp", x)
    _need_int("ldexp's exponent", exponent)
    return call_intrinsic("ldexp", x, exponent)


def fma(x: Any, y: Any, z: Any) -> PrimExpr:
    """x * y + z rounded once, of floating arguments (16-bit types: in float32, then once more)."""
    x, y = match(x, y)
    x, z = match(x, z)
    x, y = match(x, y)
    _need_float("fma", x, y, z)
    return call_intrinsic("fma", x, y, z)


def muladd(x: Any, y: Any, z: Any) -> PrimExpr:
    """x * y + z of floating arguments, rounded once where the machine does that in one instruction,
    else twice: the fast form, for sums whose last bit does not matter.
    """
    x, y = match(x, y)
    x, z = match(x, z)
    x, y = match(x, y)
    _need_float("muladd", x, y, z)
    return call_intrinsic("muladd", x, y, z)


def fabs(x: Any) -> PrimExpr:
    """The absolute value, in the dtype of x. The least signed integer wraps to itself."""
    x = as_expr(x)
    if not (x.dtype.is_float or x.dtype.is_int):
        raise TIRError(f"abs takes numbers, got {x.dtype}")
    return x if x.dtype.kind == "uint" else call_intrinsic("fabs", x)


abs = fabs


def floordiv(a: Any, b: Any) -> PrimExpr:
    """floor(a / b); 0 for an integer divided by 0. Raises TIRError for constants a and 0."""
    return divide(FloorDiv, a, b)


def floormod(a: Any, b: Any) -> PrimExpr:
    """a - b * floor(a / b): the sign is that of b; 0 for an integer divided by 0."""
    return divide(FloorMod, a, b)


def truncdiv(a: Any, b: Any) -> PrimExpr:
    """a / b of integers rounded toward zero, as C divides; 0 if b is 0."""
    a, b = match(a, b)
    _need_int("truncdiv", a, b)
    return divide(Div, a, b)


def truncmod(a: Any, b: Any) -> PrimExpr:
    """The remainder of `truncdiv`: the sign is that of a; 0 if b is 0."""
    a, b = match(a, b)
    _need_int("truncmod", a, b)
    return divide(Mod, a, b)


def div(a: Any, b: Any) -> PrimExpr:
    """a / b of floats; of integers, rounded toward zero."""
    return divide(Div, a, b)


def ceildiv(a: Any, b: Any) -> PrimExpr:
    """a / b of integers rounded up."""
    a, b = match(a, b)
    _need_int("ceildiv", a, b)
    return divide(FloorDiv, a + (b - 1), b)


def indexdiv(a: Any, b: Any) -> PrimExpr:
    """a // b of indices, which are not negative."""
    a, b = match(a, b)
    _need_int("indexdiv", a, b)
    return divide(FloorDiv, a, b)


def indexmod(a: Any, b: Any) -> PrimExpr:
    """a % b of indices, which are not negative."""
    a, b = match(a, b)
    _need_int("indexmod", a, b)
    return divide(FloorMod, a, b)


def _chain(cls: type[Any], values: tuple[Any, ...], name: str) -> PrimExpr:
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = tuple(values[0])
    if not values:
        raise TIRError(f"{name} wants at least one value")
    result = as_expr(values[0])
    for value in values[1:]:
        result = binary(cls, result, value)
    return result


def min(*values: Any) -> PrimExpr:
    """The least of the values; NaN if one is NaN."""
    return _chain(Min, values, "min")


def max(*values: Any) -> PrimExpr:
    """The greatest of the values; NaN if one is NaN."""
    return _chain(Max, values, "max")


def all(*conditions: Any) -> PrimExpr:
    """Whether every condition holds; later ones are not evaluated after a false one."""
    parts = (
        conditions[0]
        if len(conditions) == 1 and isinstance(conditions[0], (tuple, list))
        else conditions
    )
    result: PrimExpr | None = None
    for each in parts:
        condition = as_condition(each)
        result = condition if result is None else And(result, condition)
    return const(True, "bool") if result is None else result


def any(*conditions: Any) -> PrimExpr:
    """Whether some condition holds; later ones are not evaluated after a true one."""
    parts = (
        conditions[0]
        if len(conditions) == 1 and isinstance(conditions[0], (tuple, list))
        else conditions
    )
    result: PrimExpr | None = None
    for each in parts:
        condition = as_condition(each)
        result = condition if result is None else Or(result, condition)
    return const(False, "bool") if result is None else result


logical_and = all
logical_or = any


def logical_not(condition: Any) -> PrimExpr:
    """Whether the condition does not hold."""
    return Not(condition)


def select(condition: Any, true_value: Any, false_value: Any) -> PrimExpr:
    """`true_value` where the condition holds, else `false_value`; both may be evaluated."""
    return Select(condition, true_value, false_value)


def if_then_else(condition: Any, true_value: Any, false_value: Any) -> PrimExpr:
    """`true_value` if the scalar condition holds, else `false_value`; only one is evaluated."""
    test = as_condition(condition)
    if test.dtype.lanes != 1:
        raise TIRError(f"if_then_else wants a scalar condition, got {test.dtype}; use Select")
    yes, no = match(true_value, false_value)
    if isinstance(test, IntImm):
        return yes if test.value else no
    return call_intrinsic("if_then_else", test, yes, no, dtype=yes.dtype)


def likely(condition: Any) -> PrimExpr:
    """The condition, with the hint that it mostly holds."""
    condition = as_condition(condition)
    return condition if isinstance(condition, IntImm) else call_intrinsic("likely", condition)


def ignore_loop_partition(condition: Any) -> PrimExpr:
    """The condition, which `LoopPartition` is not to split a loop for."""
    condition = as_condition(condition)
    if isinstance(condition, IntImm):
        return condition
    return call_intrinsic("ignore_loop_partition", condition)


def bound_check(index: Any, limit: Any, name: str) -> PrimExpr:
    """The int64 `index` if it is at least 0 and less than `limit`; else the function leaves with a
    failure.

    name  what the failure is about: a buffer, or in several words all that is to be said
    """
    wide = (cast("int64", as_expr(index)), cast("int64", as_expr(limit)))
    return call_intrinsic("bound_check", *wide, StringImm(name), dtype="int64")


def assume(condition: Any) -> PrimExpr:
    """A promise that the condition holds here. Code may rely on it."""
    return call_intrinsic("assume", as_condition(condition))


def max_value(dtype: str) -> PrimExpr:
    """The greatest finite value of `dtype`."""
    kind = _number_dtype(dtype, "max_value")
    return const(kind.max_value, kind)


def min_value(dtype: str) -> PrimExpr:
    """The least finite value of `dtype`."""
    kind = _number_dtype(dtype, "min_value")
    return const(kind.min_value, kind)


def infinity(dtype: str) -> PrimExpr:
    """Plus infinity in the floating `dtype`."""
    kind = _number_dtype(dtype, "infinity")
    if not kind.is_float:
        raise TIRError(f"infinity is floating; {kind} has none, use max_value")
    return const(float("inf"), kind)


def _number_dtype(dtype: str, what: str) -> DataType:
    kind = as_dtype(dtype)
    if kind.kind in ("handle", "void"):
        raise TIRError(f"{what} wants a number's dtype, got {kind}")
    return kind


def reinterpret(dtype: str, value: Any) -> PrimExpr:
    """The bits of `value` read as `dtype`, which must have as many bits."""
    kind, expr = as_dtype(dtype), as_expr(value)
    if expr.dtype is kind:
        return expr
    if kind.bits * kind.lanes != expr.dtype.bits * expr.dtype.lanes:
        raise TIRError(
            f"reinterpret: {expr.dtype} has {expr.dtype.bits * expr.dtype.lanes} bits, "
            f"{kind} has {kind.bits * kind.lanes}; use Cast to convert the value"
        )
    return call_intrinsic("reinterpret", expr, dtype=kind)


def dot_accumulate(acc: Any, a: Any, b: Any) -> PrimExpr:
    """``acc[i] + a[g * i] * b[g * i] + ... + a[g * i + g - 1] * b[g * i + g - 1]`` for each lane i.

    acc    int32 or float32, of n lanes
    a, b   of g * n lanes each, g 2 or 4: integers of 8 or 16 bits (in any mixture of signs) for
           int32, float16 or bfloat16 (both the same) for float32

    Products are taken in the dtype of `acc`. Integers wrap; in which order floats are added, and
    whether subnormal ones count, is the machine's choice: this is what VNNI's vpdpbusd, Arm's sdot
    and vdpbf16ps do.
    """
    acc, a, b = as_expr(acc), as_expr(a), as_expr(b)
    wrong = why_no_dot(acc.dtype, acc.dtype, a.dtype, b.dtype)
    if wrong:
        raise TIRError(f"dot_accumulate: {wrong}")
    return call_intrinsic("dot_accumulate", acc, a, b, dtype=acc.dtype)


def ret(value: Any) -> PrimExpr:
    """Leave the function with `value`; stands alone in an Evaluate statement."""
    value = as_expr(value)
    return call_intrinsic("ret", value, dtype=value.dtype)


def undef(dtype: str = "float32") -> PrimExpr:
    """Some value of `dtype`, no matter which."""
    return call_intrinsic("undef", dtype=_number_dtype(dtype, "undef"))


def vectorlow(dtype: str, vector: Any) -> PrimExpr:
    """The lower half of a vector."""
    return _half("vectorlow", dtype, vector)


def vectorhigh(dtype: str, vector: Any) -> PrimExpr:
    """The upper half of a vector."""
    return _half("vectorhigh", dtype, vector)


def _half(name: str, dtype: str, vector: Any) -> PrimExpr:
    kind, vector = as_dtype(dtype), as_expr(vector)
    if vector.dtype.lanes % 2 or vector.dtype.with_lanes(vector.dtype.lanes // 2) is not kind:
        raise TIRError(f"{name}: half of {vector.dtype} is not {kind}")
    return call_intrinsic(name, vector, dtype=kind)


def vectorcombine(dtype: str, low: Any, high: Any) -> PrimExpr:
    """Two vectors one after the other."""
    low, high = as_expr(low), as_expr(high)
    whole = Shuffle((low, high), tuple(const(k) for k in range(low.dtype.lanes + high.dtype.lanes)))
    if whole.dtype is not as_dtype(dtype):
        raise TIRError(
            f"vectorcombine: {low.dtype} and {high.dtype} make {whole.dtype}, not {dtype}"
        )
    return whole


def broadcast(value: Any, lanes: int) -> PrimExpr:
    """The vector of `lanes` copies of a scalar."""
    return Broadcast(value, lanes)


def call_intrin(dtype: str, op: Any, *args: Any) -> PrimExpr:
    """A call of the operation `op` (an `Op` or a name such as "tir.exp") with the result dtype
    given.

    Raises TIRError if the operation is unknown or gives another dtype.
    """
    if isinstance(op, str) and not op.startswith("tir."):
        op = f"tir.{op}"
    return Call(as_dtype(dtype), Op.get(op) if isinstance(op, str) else op, args)


def _call_named(intrinsic: str, dtype: str, name: Any, args: tuple[Any, ...]) -> PrimExpr:
    if not isinstance(name, (str, StringImm, int, PrimExpr)):
        raise TIRError(
            f"{intrinsic} wants the function's name, got {type(name).__name__}: {name!r}"
        )
    callee = StringImm(name) if isinstance(name, str) else as_expr(name)
    return Call(as_dtype(dtype), Op.get(f"tir.{intrinsic}"), (callee, *args))


def call_extern(dtype: str, func_name: Any, *args: Any) -> PrimExpr:
    """A call of the C function `func_name`, which may do anything."""
    return _call_named("call_extern", dtype, func_name, args)


def call_pure_extern(dtype: str, func_name: Any, *args: Any) -> PrimExpr:
    """A call of the C function `func_name`, which only computes its result."""
    return _call_named("call_pure_extern", dtype, func_name, args)


def call_llvm_intrin(dtype: str, name: Any, *args: Any) -> PrimExpr:
    """A call of an LLVM intrinsic such as "llvm.prefetch"."""
    return _call_named("call_llvm_intrin", dtype, name, args)


def call_llvm_pure_intrin(dtype: str, name: Any, *args: Any) -> PrimExpr:
    """A call of an LLVM intrinsic that only computes its result, such as "llvm.sqrt"."""
    return _call_named("call_llvm_pure_intrin", dtype, name, args)


def q_multiply_shift(x: Any, y: Any, q: Any, s: Any) -> PrimExpr:
    """x * y * 2**(s - q) of fixed-point numbers, rounded to nearest, half up: the int32 `x` and
    `y`, of which y has `q` fractional bits, multiplied in int64.
    """
    x, s = as_expr(x), as_expr(s)
    left, right = max(s, const(0, s.dtype)), max(-s, const(0, s.dtype))
    return _fixed_point(x, y, left, right, q)


def q_multiply_shift_per_axis(
    x: Any, y: Any, ls: Any, rs: Any, q: Any, is_lshift_required: Any, is_rshift_required: Any
) -> PrimExpr:
    """As `q_multiply_shift`, with a shift to the left by `ls` and one to the right by `rs`, each
    made only where it is required.
    """
    x, ls, rs = as_expr(x), as_expr(ls), as_expr(rs)
    left = Select(as_condition(is_lshift_required), ls, const(0, ls.dtype))
    right = Select(as_condition(is_rshift_required), rs, const(0, rs.dtype))
    return _fixed_point(x, y, left, right, q)


def _fixed_point(x: PrimExpr, y: Any, left: PrimExpr, right: PrimExpr, q: Any) -> PrimExpr:
    wide = as_dtype("int64").with_lanes(x.dtype.lanes)
    value, factor, up, down, bits = (cast(wide, as_expr(e)) for e in (x, y, left, right, q))
    shift = down + bits
    half = shift_left(const(1, wide), shift - const(1, wide))
    product = shift_left(value, up) * factor + half
    return cast(x.dtype, shift_right(product, shift))


def address_of(place: Any) -> PrimExpr:
    """The address of a buffer element (given as a load of it) or of a buffer's first element."""
    if isinstance(place, Buffer):
        place = BufferLoad(place, tuple(const(0, e.dtype) for e in place.shape))
    if not isinstance(place, BufferLoad):
        raise TIRError(f"address_of wants a buffer element, got {type(place).__name__}")
    return call_intrinsic("address_of", place, dtype="handle")


def type_annotation(dtype: Any) -> PrimExpr:
    """A value that stands for its dtype, as `tvm_access_ptr` takes one."""
    return const(0, dtype)


def tvm_access_ptr(ptype: Any, data: Any, offset: Any, extent: Any, rw_mask: Any = 3) -> PrimExpr:
    """The address of element `offset` behind the handle `data`, good for `extent` elements.

    ptype    the elements' dtype, or an expression of it
    rw_mask  1 read, 2 written, 3 both
    """
    element = const(0, ptype) if isinstance(ptype, str) else as_expr(ptype)
    return call_intrinsic("tvm_access_ptr", element, data, offset, extent, rw_mask, dtype="handle")
