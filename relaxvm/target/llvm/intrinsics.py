"""The intrinsics of the scalar language in LLVM: a table from name to emitter.

An emitter gets the `ExprEmitter`, the call and its arguments' values. That the dtypes fit was seen
when the call was made, and by `verify_well_formed`. Functions of floats work in
float32 for the 16-bit types and round once at the end. float32 functions are libm's: within 2
units in the last place of the exact result.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...base import CodegenError, DataType
from ...base.llvm import Value, constant, suffix_of, vector_of
from ...ir import Call, Cast, IntImm, StringImm, bound_failure
from .dot import emit_dot
from .text import scalar_type, storage_type, value_type

if TYPE_CHECKING:
    from .expr import ExprEmitter


Emitter = Callable[["ExprEmitter", Call, list[Value]], Value]

INTRINSIC_EMITTERS: dict[str, Emitter] = {
    "likely": lambda g, call, args: args[0],
    "ignore_loop_partition": lambda g, call, args: args[0],
    "assume": lambda g, call, args: constant(True, "i1"),
    "undef": lambda g, call, args: constant(0, value_type(call.dtype)),
    "copysign": lambda g, call, args: g.text.intrinsic("llvm.copysign", *args),
    "fmod": lambda g, call, args: g.rounded(call.dtype, g.text.op("frem", *args)),
    "bitwise_and": lambda g, call, args: g.text.op("and", *args),
    "bitwise_or": lambda g, call, args: g.text.op("or", *args),
    "bitwise_xor": lambda g, call, args: g.text.op("xor", *args),
    "bitwise_not": lambda g, call, args: g.text.op(
        "xor", args[0], True if call.dtype.is_bool else -1
    ),
    "shift_left": lambda g, call, args: g.shift(call.dtype, args[0], args[1], True),
    "shift_right": lambda g, call, args: g.shift(call.dtype, args[0], args[1], False),
    "truncdiv": lambda g, call, args: g.divide(call.dtype, args[0], args[1], False),
    "truncmod": lambda g, call, args: g.divide(call.dtype, args[0], args[1], True),
    "popcount": lambda g, call, args: (
        args[0] if call.dtype.is_bool else g.text.intrinsic("llvm.ctpop", *args)
    ),
}

# Intrinsics that reach outside of the function: refused in code from untrusted files.
OUTSIDE = frozenset(
    "call_extern call_pure_extern call_llvm_intrin call_llvm_pure_intrin address_of "
    "tvm_access_ptr".split()
)

# LLVM intrinsics that user code may name: operand count.
_OF_FLOATS = {
    1: "sqrt fabs floor ceil rint trunc nearbyint round roundeven exp exp2 log log2 log10 sin cos "
    "canonicalize",
    2: "pow minnum maxnum copysign",
    3: "fma fmuladd",
}
_OF_INTEGERS = {
    1: "ctpop bswap bitreverse",
    2: "smin smax umin umax sadd.sat uadd.sat ssub.sat usub.sat",
    3: "fshl fshr",
}
LLVM_INTRINSICS: dict[str, int] = {
    name: count
    for table in (_OF_FLOATS, _OF_INTEGERS)
    for count, names in table.items()
    for name in names.split()
}
# Numbers for them, as LLVM has: the same in all versions, so that saved functions may hold them.
LLVM_INTRINSIC_IDS = {zlib.crc32(name.encode()) >> 1: f"llvm.{name}" for name in LLVM_INTRINSICS}
_FLOAT_ONLY = frozenset(" ".join(_OF_FLOATS.values()).split())

# What they are called there, where they are functions of floats that LLVM has too.
_ROUNDING = {
    **{name: f"llvm.{name}" for name in ("floor", "ceil", "trunc", "nearbyint")},
    "round": "llvm.nearbyint",
}
_OF_LLVM = {
    **{name: f"llvm.{name}" for name in "exp exp2 log log2 log10 sqrt sin cos pow fma".split()},
    "muladd": "llvm.fmuladd",
    **_ROUNDING,
}
_LIBM_UNARY = "log1p expm1 tanh erf erfc tan asin acos atan sinh cosh asinh acosh atanh".split()
_LIBM_BINARY = "atan2 hypot".split()


def _emitter(*names: str) -> Callable[[Emitter], Emitter]:
    """Registers what emits these."""

    def mark(f: Emitter) -> Emitter:
        INTRINSIC_EMITTERS.update(dict.fromkeys(names, f))
        return f

    return mark


def _name(call: Call) -> str:
    return str(getattr(call.op, "name", call.op))


def _short(call: Call) -> str:
    return _name(call).removeprefix("tir.")


def _lanes(g: ExprEmitter, value: Value, lanes: int) -> list[Value]:
    return [value] if lanes == 1 else [g.text.lane(value, i) for i in range(lanes)]


@_emitter(*_OF_LLVM)
def _of_llvm(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
    name = _short(call)
    if name in _ROUNDING and not call.dtype.is_float:
        return args[0]
    return g.rounded(call.dtype, g.text.intrinsic(_OF_LLVM[name], *args))


@_emitter(*_LIBM_UNARY, *_LIBM_BINARY)
def _libm(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
    element = scalar_type(call.dtype)
    name = _short(call) + ("" if element == "double" else "f")
    lanes = call.dtype.lanes
    values = [
        g.text.extern(element, name, *one) for one in zip(*(_lanes(g, a, lanes) for a in args))
    ]
    return g.rounded(call.dtype, g.text.joined(values))


@_emitter("ldexp")
def _ldexp(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
    value, exponent = call.args
    lanes, element = call.dtype.lanes, scalar_type(call.dtype)
    if call.dtype.bits == 16:
        # In double, where no result is subnormal, then rounded once.
        double = DataType("float64").with_lanes(lanes)
        wide_call = Call(double, call.op, (Cast(double, value), exponent))
        scaled = _ldexp(g, wide_call, [g.cast(value.dtype, double, args[0]), args[1]])
        return g.cast(double, call.dtype, scaled)
    # Far beyond any exponent, and small enough for C's int.
    kind = DataType("int64").with_lanes(lanes)
    wide = g.cast(exponent.dtype, kind, args[1])
    if exponent.dtype.kind == "uint" and exponent.dtype.bits == 64:
        wide = g.text.select(g.text.op("icmp ugt", args[1], 4096), 4096, wide)
    clamped = g.min_max("lt", kind, g.min_max("gt", kind, wide, -4096), 4096)
    small = g.cast(kind, DataType("int32").with_lanes(lanes), clamped)
    name = "ldexp" if element == "double" else "ldexpf"
    pairs = zip(_lanes(g, args[0], lanes), _lanes(g, small, lanes))
    scaled = g.text.joined([g.text.extern(element, name, *pair) for pair in pairs])
    return g.rounded(call.dtype, scaled)


@_emitter("nextafter")
def _nextafter(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
    dtype = call.dtype
    if dtype.bits != 16:
        return _libm(g, call, args)
    # The neighbours of a float are the neighbours of its bits.
    x, y = args
    bits, target = g.to_bits(dtype, x), g.to_bits(dtype, y)
    grows = g.text.op("xor", g.text.op("fcmp olt", x, y), g.text.op("fcmp olt", x, 0.0))
    moved = g.text.op("add", bits, g.text.select(grows, g.const(1, "i16", dtype.lanes), -1))
    least = g.text.op("or", g.text.op("and", target, -32768), 1)
    moved = g.text.select(g.text.op("fcmp oeq", x, 0.0), least, moved)
    moved = g.text.select(g.text.op("fcmp oeq", x, y), target, moved)
    result = g.from_bits(dtype, moved)
    either_nan = g.text.op("fcmp uno", x, y)
    return g.text.select(either_nan, g.text.op("fadd", x, y), result)


@_emitter("fabs")
def _fabs(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
    if call.dtype.is_float:
        return g.text.intrinsic("llvm.fabs", args[0])
    if call.dtype.kind != "int":
        return args[0]
    negated = g.text.op("sub", 0, args[0])
    return g.text.select(g.text.op("icmp slt", args[0], 0), negated, args[0])


@_emitter("clz")
def _clz(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
    source = call.args[0].dtype
    if source.is_bool:
        count = g.text.not_(args[0])
    else:
        of, defined = args[0].type, constant(False, "i1")
        count = g.text.extern(of, f"llvm.ctlz.{suffix_of(of)}", args[0], defined)
    # No count has a sign.
    unsigned = source if source.is_bool else DataType(f"uint{source.bits}").with_lanes(source.lanes)
    return g.cast(unsigned, call.dtype, count)


@_emitter("isnan", "isinf", "isfinite")
def _classify(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
    source, lanes = call.args[0].dtype, call.dtype.lanes
    if not source.is_float:
        return g.const(_short(call) == "isfinite", "i1", lanes)
    value_type(source)
    if _short(call) == "isnan":
        return g.text.op("fcmp uno", args[0], args[0])
    size = g.text.intrinsic("llvm.fabs", args[0])
    return g.text.op("fcmp oeq" if _short(call) == "isinf" else "fcmp olt", size, math.inf)


@_emitter("reinterpret")
def _reinterpret(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
    source, to = call.args[0].dtype, call.dtype
    value = args[0]
    if source.is_float and source.bits <= 16:
        bits = g.bits_of(call.args[0], value)
        value = g.text.cast("trunc", bits, vector_of(f"i{source.bits}", source.lanes))
    if to.is_float and to.bits <= 16:
        bits = g.text.cast("bitcast", value, vector_of(f"i{to.bits}", to.lanes))
        wide = vector_of(f"i{max(8, to.bits)}", to.lanes)
        return g.from_bits(to, g.text.cast("zext", bits, wide))
    return g.text.cast("bitcast", value, value_type(to))


@_emitter("dot_accumulate")
def _dot_accumulate(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
    (acc, a, b), (x, y) = call.args, args[1:]
    if a.dtype.is_float:
        x, y = g.bits_of(a, x), g.bits_of(b, y)
    return emit_dot(g, (acc.dtype, a.dtype, b.dtype), args[0], x, y)


@_emitter("bound_check")
def _bound_check(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
    index, limit = call.args[:2]
    lanes = call.dtype.lanes
    name = call.args[2].value if isinstance(call.args[2], StringImm) else "?"
    if index.dtype is not call.dtype or index.dtype.element != "int64" or limit.dtype != "int64":
        raise CodegenError("bound_check: wanted int64 indices and an int64 limit")
    # As unsigned, a negative index is too large; a negative limit leaves no room at all.
    room = g.min_max("gt", DataType("int64"), args[1], 0)
    inside = g.text.op("icmp ult", args[0], g.text.splat(room, lanes))
    if lanes > 1:
        inside = g.text.extern("i1", f"llvm.vector.reduce.and.{suffix_of(inside.type)}", inside)
    g.leave_unless(inside, bound_failure(name[:200]))
    return args[0]


@_emitter("vectorlow", "vectorhigh")
def _half_of(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
    lanes = call.dtype.lanes
    start = lanes if _short(call) == "vectorhigh" else 0
    if lanes == 1:
        return g.text.lane(args[0], start)
    return g.text.shuffle(args[0], None, range(start, start + lanes))


# -- the outside world -----------------------------------------------------------------------------


def _extern_type(g: ExprEmitter, dtype: DataType, what: str) -> str:
    """The type of an argument or result as C passes it."""
    if dtype.kind == "void":
        return "void"
    if dtype.lanes != 1 or (dtype.is_float and dtype.bits == 16):
        raise CodegenError(f"{what}: C has no plain way to pass {dtype}")
    return "i8" if dtype.is_bool else scalar_type(dtype)


@_emitter("call_extern", "call_pure_extern")
def _call_extern(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
    name = call.args[0].value if isinstance(call.args[0], StringImm) else None
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise CodegenError(f"{_name(call)}: wanted the name of a C function, got {call.args[0]!r}")
    if not g.module.has_symbol(name):
        raise CodegenError(f"{_name(call)}: this process has no C function named {name!r}")
    result = _extern_type(g, call.dtype, name)
    passed = []
    for arg, operand in zip(call.args[1:], args[1:]):
        _extern_type(g, arg.dtype, name)
        if isinstance(arg, StringImm):
            operand = g.module.constant(arg.value.encode() + b"\0")
        passed.append(g.text.cast("zext", operand, "i8") if arg.dtype.is_bool else operand)
    attributes = "nounwind readnone" if _short(call) == "call_pure_extern" else "nounwind"
    g.module.declare(name, result, tuple(each.type for each in passed), attributes)
    register = g.text.call(name, *passed)
    return g.text.op("icmp ne", register, 0) if call.dtype.is_bool else register


@_emitter("call_llvm_intrin", "call_llvm_pure_intrin")
def _call_llvm(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
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
    register = g.text.intrinsic(f"llvm.{known}", *(value for _, value in operands))
    return g.rounded(dtype, register)


@_emitter("tvm_access_ptr")
def _access_ptr(g: ExprEmitter, call: Call, args: list[Value]) -> Value:
    element, data, offset = call.args[:3]
    if data.dtype.kind != "handle" or not offset.dtype.is_int or offset.dtype.lanes != 1:
        raise CodegenError("tvm_access_ptr: wanted a handle and an integer offset")
    kind = storage_type(element.dtype.element, g.module.native_half)
    return g.text.element(kind, args[1], g.widened(offset, args[2]), inbounds=True)
