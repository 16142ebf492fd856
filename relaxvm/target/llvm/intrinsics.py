"""The intrinsics of the scalar language in LLVM: a table from name to emitter.

An emitter gets the `ExprEmitter`, the call and its arguments' values. Functions of floats work in
float32 for the 16-bit types and round once at the end. float32 functions are libm's: within 2
units in the last place of the exact result.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...base import CodegenError, DataType
from ...ir import Call, Cast, IntImm, StringImm, bound_failure, why_no_dot
from .dot import emit_dot
from .text import scalar_type, value_type, vector_of

if TYPE_CHECKING:
    from .expr import ExprEmitter


Emitter = Callable[["ExprEmitter", Call, list[str]], str]

INTRINSIC_EMITTERS: dict[str, Emitter] = {}

# Intrinsics that reach outside of the function: refused in code from untrusted files.
OUTSIDE = frozenset(
    {
        "call_extern",
        "call_pure_extern",
        "call_llvm_intrin",
        "call_llvm_pure_intrin",
        "address_of",
        "tvm_access_ptr",
    }
)

# LLVM intrinsics that user code may name: operand count.
LLVM_INTRINSICS: dict[str, int] = {
    **dict.fromkeys(
        "sqrt fabs floor ceil rint trunc nearbyint round roundeven exp exp2 log log2 "
        "log10 sin cos ctpop bswap "
        "bitreverse canonicalize".split(),
        1,
    ),
    **dict.fromkeys(
        (
            "pow minnum maxnum copysign smin smax umin umax sadd.sat uadd.sat ssub.sat usub.sat"
        ).split(),
        2,
    ),
    **dict.fromkeys("fma fmuladd fshl fshr".split(), 3),
}
# Numbers for them, as LLVM has: the same in all versions, so that saved functions may hold them.
LLVM_INTRINSIC_IDS = {zlib.crc32(name.encode()) >> 1: f"llvm.{name}" for name in LLVM_INTRINSICS}
_FLOAT_ONLY = frozenset(
    "sqrt fabs floor ceil rint trunc nearbyint round roundeven exp exp2 log log2 log10 "
    "sin cos canonicalize "
    "pow minnum maxnum copysign fma fmuladd".split()
)

_LLVM_UNARY = {
    "exp": "llvm.exp",
    "exp2": "llvm.exp2",
    "log": "llvm.log",
    "log2": "llvm.log2",
    "log10": "llvm.log10",
    "sqrt": "llvm.sqrt",
    "sin": "llvm.sin",
    "cos": "llvm.cos",
}
_ROUNDING = {
    "floor": "llvm.floor",
    "ceil": "llvm.ceil",
    "trunc": "llvm.trunc",
    "round": "llvm.nearbyint",
    "nearbyint": "llvm.nearbyint",
}
_LIBM_UNARY = "log1p expm1 tanh erf erfc tan asin acos atan sinh cosh asinh acosh atanh".split()
_LIBM_BINARY = "atan2 hypot".split()


def _emitter(*names: str) -> Callable[[Emitter], Emitter]:
    def mark(f: Emitter) -> Emitter:
        for name in names:
            INTRINSIC_EMITTERS[name] = f
        return f

    return mark


def _is(call: Call, *kinds: str) -> None:
    """Raise CodegenError unless the call and all its arguments have one dtype, of one "
    "of `kinds`."""
    for arg in call.args:
        if arg.dtype is not call.dtype:
            raise CodegenError(
                f"{_name(call)}: {call.dtype} from arguments of {[str(a.dtype) for a in call.args]}"
            )
    if call.dtype.kind not in kinds:
        raise CodegenError(f"{_name(call)} of {call.dtype}")


def _name(call: Call) -> str:
    return str(getattr(call.op, "name", call.op))


def _short(call: Call) -> str:
    return _name(call).removeprefix("tir.")


def _per_lane(
    g: ExprEmitter, dtype: DataType, args: list[str], make: Callable[[list[str]], str]
) -> str:
    """Apply a scalar function to each lane."""
    if dtype.lanes == 1:
        return make(args)
    element, lanes = scalar_type(dtype), dtype.lanes
    result = "poison"
    for i in range(lanes):
        value = make([g.lane(a, element, lanes, i) for a in args])
        result = g.with_lane(result, element, lanes, i, value)
    return result


@_emitter(*_LLVM_UNARY)
def _llvm_unary(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "float", "bfloat")
    name = _LLVM_UNARY[_short(call)]
    return g.rounded(call.dtype, g.intrinsic(name, value_type(call.dtype), args[0]))


@_emitter("pow")
def _pow(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "float", "bfloat")
    return g.rounded(call.dtype, g.intrinsic("llvm.pow", value_type(call.dtype), *args))


@_emitter("fma")
def _fma(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "float", "bfloat")
    return g.rounded(call.dtype, g.intrinsic("llvm.fma", value_type(call.dtype), *args))


@_emitter("muladd")
def _muladd(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "float", "bfloat")
    return g.rounded(call.dtype, g.intrinsic("llvm.fmuladd", value_type(call.dtype), *args))


@_emitter("copysign")
def _copysign(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "float", "bfloat")
    return g.intrinsic("llvm.copysign", value_type(call.dtype), *args)


@_emitter(*_ROUNDING)
def _round(g: ExprEmitter, call: Call, args: list[str]) -> str:
    if call.dtype.is_int or call.dtype.is_bool:
        return args[0]
    _is(call, "float", "bfloat")
    return g.rounded(
        call.dtype, g.intrinsic(_ROUNDING[_short(call)], value_type(call.dtype), args[0])
    )


@_emitter(*_LIBM_UNARY, *_LIBM_BINARY)
def _libm(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "float", "bfloat")
    element = scalar_type(call.dtype)
    name = _short(call) + ("" if element == "double" else "f")
    value = _per_lane(
        g, call.dtype, args, lambda one: g.call(element, name, *((element, a) for a in one))
    )
    return g.rounded(call.dtype, value)


@_emitter("fmod")
def _fmod(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "float", "bfloat")
    return g.rounded(call.dtype, g.op("frem", value_type(call.dtype), *args))


@_emitter("ldexp")
def _ldexp(g: ExprEmitter, call: Call, args: list[str]) -> str:
    value, exponent = call.args
    if value.dtype is not call.dtype or exponent.dtype.lanes != call.dtype.lanes:
        raise CodegenError(f"ldexp of {value.dtype} and {exponent.dtype}")
    lanes, element = call.dtype.lanes, scalar_type(call.dtype)
    if call.dtype.bits == 16:
        # In double, where no result is subnormal, then rounded once.
        double = DataType("float64").with_lanes(lanes)
        wide_call = Call(double, call.op, (Cast(double, value), exponent))
        scaled = _ldexp(g, wide_call, [g.cast(value.dtype, double, args[0]), args[1]])
        return g.cast(double, call.dtype, scaled)
    # Far beyond any exponent, and small enough for C's int.
    wide = g.cast(exponent.dtype, DataType("int64").with_lanes(lanes), args[1])
    if exponent.dtype.kind == "uint" and exponent.dtype.bits == 64:
        most = g.const(4096, "i64", lanes)
        wide = g.select(
            lanes,
            g.op("icmp ugt", vector_of("i64", lanes), args[1], most),
            vector_of("i64", lanes),
            most,
            wide,
        )
    kind = DataType("int64").with_lanes(lanes)
    clamped = g.min_max(
        "lt",
        kind,
        g.min_max("gt", kind, wide, g.const(-4096, "i64", lanes)),
        g.const(4096, "i64", lanes),
    )
    small = g.cast(kind, DataType("int32").with_lanes(lanes), clamped)
    name = "ldexp" if element == "double" else "ldexpf"

    def one(pair: list[str]) -> str:
        return g.call(element, name, (element, pair[0]), ("i32", pair[1]))

    if lanes == 1:
        return g.rounded(call.dtype, one([args[0], small]))
    result = "poison"
    for i in range(lanes):
        value_i, exponent_i = g.lane(args[0], element, lanes, i), g.lane(small, "i32", lanes, i)
        result = g.with_lane(result, element, lanes, i, one([value_i, exponent_i]))
    return g.rounded(call.dtype, result)


@_emitter("nextafter")
def _nextafter(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "float", "bfloat")
    dtype = call.dtype
    if dtype.bits != 16:
        return _libm(g, call, args)
    # The neighbours of a float are the neighbours of its bits.
    lanes, x, y = dtype.lanes, args[0], args[1]
    floats, shorts, mask = (
        vector_of("float", lanes),
        vector_of("i16", lanes),
        vector_of("i1", lanes),
    )
    bits, target = g.to_bits16(dtype, x), g.to_bits16(dtype, y)
    zero = g.const("0x0000000000000000", "float", lanes)
    grows = g.op("xor", mask, g.op("fcmp olt", floats, x, y), g.op("fcmp olt", floats, x, zero))
    one, minus_one = g.const(1, "i16", lanes), g.const(-1, "i16", lanes)
    moved = g.op("add", shorts, bits, g.select(lanes, grows, shorts, one, minus_one))
    sign = g.op("and", shorts, target, g.const(-32768, "i16", lanes))
    least = g.op("or", shorts, sign, one)
    moved = g.select(lanes, g.op("fcmp oeq", floats, x, zero), shorts, least, moved)
    moved = g.select(lanes, g.op("fcmp oeq", floats, x, y), shorts, target, moved)
    result = g.from_bits16(dtype, moved)
    either_nan = g.op("fcmp uno", floats, x, y)
    return g.select(lanes, either_nan, floats, g.op("fadd", floats, x, y), result)


@_emitter("fabs")
def _fabs(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "float", "bfloat", "int", "uint", "bool")
    of = value_type(call.dtype)
    if call.dtype.is_float:
        return g.intrinsic("llvm.fabs", of, args[0])
    if call.dtype.kind != "int":
        return args[0]
    zero = g.const(0, scalar_type(call.dtype), call.dtype.lanes)
    negated = g.op("sub", of, zero, args[0])
    return g.select(call.dtype.lanes, g.op("icmp slt", of, args[0], zero), of, negated, args[0])


@_emitter("bitwise_and", "bitwise_or", "bitwise_xor")
def _bitwise(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "int", "uint", "bool")
    return g.op(_short(call).removeprefix("bitwise_"), value_type(call.dtype), *args)


@_emitter("bitwise_not")
def _bitwise_not(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "int", "uint", "bool")
    ones = "true" if call.dtype.is_bool else -1
    return g.op(
        "xor",
        value_type(call.dtype),
        args[0],
        g.const(ones, scalar_type(call.dtype), call.dtype.lanes),
    )


@_emitter("shift_left", "shift_right")
def _shift(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "int", "uint", "bool")
    return g.shift(call.dtype, args[0], args[1], _short(call) == "shift_left")


@_emitter("popcount")
def _popcount(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "int", "uint", "bool")
    return (
        args[0]
        if call.dtype.is_bool
        else g.intrinsic("llvm.ctpop", value_type(call.dtype), args[0])
    )


@_emitter("clz")
def _clz(g: ExprEmitter, call: Call, args: list[str]) -> str:
    source = call.args[0].dtype
    if not (source.is_int or source.is_bool) or call.dtype.element != "int32":
        raise CodegenError(f"clz: {call.dtype} from {source}")
    of = value_type(source)
    if source.is_bool:
        count = g.op("xor", of, args[0], g.const("true", "i1", source.lanes))
    else:
        count = g.call(of, f"llvm.ctlz.{g.module.suffix(of)}", (of, args[0]), ("i1", "false"))
    # No count has a sign.
    unsigned = source if source.is_bool else DataType(f"uint{source.bits}").with_lanes(source.lanes)
    return g.cast(unsigned, call.dtype, count)


@_emitter("truncdiv", "truncmod")
def _truncating(g: ExprEmitter, call: Call, args: list[str]) -> str:
    _is(call, "int", "uint", "bool")
    return g.divide(call.dtype, args[0], args[1], _short(call) == "truncmod")


@_emitter("isnan", "isinf", "isfinite")
def _classify(g: ExprEmitter, call: Call, args: list[str]) -> str:
    source, lanes = call.args[0].dtype, call.dtype.lanes
    if not source.is_float:
        return g.const("true" if _short(call) == "isfinite" else "false", "i1", lanes)
    of = value_type(source)
    if _short(call) == "isnan":
        return g.op("fcmp uno", of, args[0], args[0])
    size = g.intrinsic("llvm.fabs", of, args[0])
    infinity = g.const("0x7FF0000000000000", scalar_type(source), lanes)
    return g.op("fcmp oeq" if _short(call) == "isinf" else "fcmp olt", of, size, infinity)


@_emitter("reinterpret")
def _reinterpret(g: ExprEmitter, call: Call, args: list[str]) -> str:
    source, to = call.args[0].dtype, call.dtype
    if source.bits * source.lanes != to.bits * to.lanes or "handle" in (source.kind, to.kind):
        raise CodegenError(f"reinterpret from {source} to {to}: the sizes differ")
    of, value = value_type(source), args[0]
    if source.is_float and source.bits == 16:
        of, value = vector_of("i16", source.lanes), g.bits16(call.args[0], value)
    if source.is_small_float:
        of, value = vector_of(f"i{source.bits}", source.lanes), g.to_bits8(source, value)
        if source.bits < 8:
            value = g.convert("trunc", vector_of("i8", source.lanes), value, of)
    if to.is_small_float:
        bits = vector_of(f"i{to.bits}", to.lanes)
        value = g.convert("bitcast", of, value, bits)
        if to.bits < 8:
            value = g.convert("zext", bits, value, vector_of("i8", to.lanes))
        return g.from_bits8(to, value)
    if to.is_float and to.bits == 16:
        return g.from_bits16(to, g.convert("bitcast", of, value, vector_of("i16", to.lanes)))
    return g.convert("bitcast", of, value, value_type(to))


@_emitter("dot_accumulate")
def _dot_accumulate(g: ExprEmitter, call: Call, args: list[str]) -> str:
    (acc, a, b), (x, y) = call.args, args[1:]
    wrong = why_no_dot(call.dtype, acc.dtype, a.dtype, b.dtype)
    if wrong:
        raise CodegenError(f"dot_accumulate: {wrong}")
    if a.dtype.is_float:
        x, y = g.bits16(a, x), g.bits16(b, y)
    return emit_dot(g, (acc.dtype, a.dtype, b.dtype), args[0], x, y)


@_emitter("likely", "ignore_loop_partition")
def _likely(g: ExprEmitter, call: Call, args: list[str]) -> str:
    return args[0]


@_emitter("assume")
def _assume(g: ExprEmitter, call: Call, args: list[str]) -> str:
    return "true"


@_emitter("bound_check")
def _bound_check(g: ExprEmitter, call: Call, args: list[str]) -> str:
    index, limit = call.args[:2]
    lanes = call.dtype.lanes
    name = call.args[2].value if isinstance(call.args[2], StringImm) else "?"
    if index.dtype is not call.dtype or index.dtype.element != "int64" or limit.dtype != "int64":
        raise CodegenError("bound_check: wanted int64 indices and an int64 limit")
    # As unsigned, a negative index is too large; a negative limit leaves no room at all.
    room = g.min_max("gt", DataType("int64"), args[1], "0")
    inside = g.op("icmp ult", value_type(call.dtype), args[0], g.splat(room, "i64", lanes))
    if lanes > 1:
        mask = vector_of("i1", lanes)
        inside = g.call("i1", f"llvm.vector.reduce.and.{g.module.suffix(mask)}", (mask, inside))
    g.leave_unless(inside, bound_failure(name[:200]))
    return args[0]


@_emitter("undef")
def _undef(g: ExprEmitter, call: Call, args: list[str]) -> str:
    if call.dtype.lanes > 1:
        return "zeroinitializer"
    return "0x0000000000000000" if call.dtype.is_float else "false" if call.dtype.is_bool else "0"


@_emitter("vectorlow", "vectorhigh")
def _half_of(g: ExprEmitter, call: Call, args: list[str]) -> str:
    source, lanes = call.args[0].dtype, call.dtype.lanes
    if source.lanes != 2 * lanes or source.element is not call.dtype.element:
        raise CodegenError(f"{_name(call)} of {source} as {call.dtype}")
    start = lanes if _short(call) == "vectorhigh" else 0
    if lanes == 1:
        return g.lane(args[0], scalar_type(source), 2, start)
    of = value_type(source)
    mask = ", ".join(f"i32 {start + i}" for i in range(lanes))
    return g.text.op(f"shufflevector {of} {args[0]}, {of} poison, <{lanes} x i32> <{mask}>")


# -- the outside world -----------------------------------------------------------------------------


def _extern_type(g: ExprEmitter, dtype: DataType, what: str) -> str:
    """The type of an argument or result as C passes it."""
    if dtype.kind == "void":
        return "void"
    if dtype.lanes != 1 or (dtype.is_float and dtype.bits == 16):
        raise CodegenError(f"{what}: C has no plain way to pass {dtype}")
    return "i8" if dtype.is_bool else scalar_type(dtype)


@_emitter("call_extern", "call_pure_extern")
def _call_extern(g: ExprEmitter, call: Call, args: list[str]) -> str:
    name = call.args[0].value if isinstance(call.args[0], StringImm) else None
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise CodegenError(f"{_name(call)}: wanted the name of a C function, got {call.args[0]!r}")
    if not g.module.has_symbol(name):
        raise CodegenError(f"{_name(call)}: this process has no C function named {name!r}")
    result = _extern_type(g, call.dtype, name)
    typed = []
    for arg, value in zip(call.args[1:], args[1:]):
        if arg.dtype.is_bool:
            value = g.convert("zext", "i1", value, "i8")
        if isinstance(arg, StringImm):
            value = g.module.constant(arg.value.encode() + b"\0")
        typed.append((_extern_type(g, arg.dtype, name), value))
    attributes = "nounwind readnone" if _short(call) == "call_pure_extern" else "nounwind"
    g.module.declare(name, result, tuple(of for of, _ in typed), attributes)
    listed = ", ".join(f"{of} {value}" for of, value in typed)
    if result == "void":
        g.text.emit(f"  call void @{name}({listed})")
        return "0"
    register = g.text.op(f"call {result} @{name}({listed})")
    return g.op("icmp ne", "i8", register, "0") if call.dtype.is_bool else register


@_emitter("call_llvm_intrin", "call_llvm_pure_intrin")
def _call_llvm(g: ExprEmitter, call: Call, args: list[str]) -> str:
    named = call.args[0]
    full = named.value if isinstance(named, StringImm) else None
    if isinstance(named, IntImm):
        full = LLVM_INTRINSIC_IDS.get(named.value)
    known = None
    if isinstance(full, str) and full.startswith("llvm."):
        stem = full.removeprefix("llvm.")
        known = next((k for k in (stem, stem.rsplit(".", 1)[0]) if k in LLVM_INTRINSICS), None)
    if known is None:
        raise CodegenError(
            f"{_name(call)}: {call.args[0]!r} is not supported; known: "
            f"{', '.join(sorted(LLVM_INTRINSICS))}"
        )
    operands = list(zip(call.args[1:], args[1:]))
    count = LLVM_INTRINSICS[known]
    # TVM's form carries the number of signature arguments first.
    if len(operands) == count + 1 and isinstance(operands[0][0], IntImm):
        operands = operands[1:]
    dtype = call.dtype
    fits = dtype.is_float if known in _FLOAT_ONLY else dtype.is_int
    if len(operands) != count or not fits or any(arg.dtype is not dtype for arg, _ in operands):
        raise CodegenError(
            f"llvm.{known} takes {count} arguments of the dtype of its result, got {dtype} from "
            f"{[str(a.dtype) for a, _ in operands]}"
        )
    if known == "bswap" and dtype.bits == 8:
        return operands[0][1]
    register = g.intrinsic(f"llvm.{known}", value_type(dtype), *(value for _, value in operands))
    return g.rounded(dtype, register)


@_emitter("tvm_access_ptr")
def _access_ptr(g: ExprEmitter, call: Call, args: list[str]) -> str:
    element, data, offset = call.args[:3]
    if data.dtype.kind != "handle" or not offset.dtype.is_int or offset.dtype.lanes != 1:
        raise CodegenError("tvm_access_ptr: wanted a handle and an integer offset")
    return g.address(element.dtype.element, args[1], g.widened(offset, args[2]))
