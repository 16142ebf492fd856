"""The intrinsics of the scalar language in C: a table from name to emitter.

An emitter gets the `ExprEmitter`, the call and its arguments' values, and gives the text of the
result. Functions of floats are the C library's; for the 16-bit types they work in float and round
once at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...base import CodegenError, DataType
from ...ir import Call, IntImm, StringImm, bound_failure, why_no_dot
from ...tir import BufferLoad
from ..llvm import LLVM_INTRINSIC_IDS, LLVM_INTRINSICS
from .text import (
    ATOM,
    CHOICE,
    PRODUCT,
    RELATION,
    SUM,
    UNARY,
    Code,
    constant,
    storage_type,
    string,
    value_type,
)

if TYPE_CHECKING:
    from .expr import ExprEmitter


Emitter = Callable[["ExprEmitter", Call, list[Code]], Code]

INTRINSIC_EMITTERS: dict[str, Emitter] = {}
_FLOAT64 = DataType("float64")
_INT64 = DataType("int64")

_UNARY = (
    "exp exp2 log log2 log10 sqrt sin cos log1p expm1 tanh erf erfc tan asin acos atan sinh cosh "
    "asinh acosh atanh"
).split()
# Of float, as functions of their own, which loops can be vectors of.
_FORMULAS = frozenset(("exp", "exp2", "log", "tanh", "erf"))
_BINARY = "atan2 hypot fmod copysign".split()
_ROUNDING = {
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "nearbyint",
    "nearbyint": "nearbyint",
}
_BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
# Declared by headers that the code includes, with types of their own.
_STANDARD = frozenset(
    "memcpy memmove memset memcmp strlen malloc calloc realloc free abs labs exit abort".split()
)


def _emitter(*names: str) -> Callable[[Emitter], Emitter]:
    def mark(f: Emitter) -> Emitter:
        for name in names:
            INTRINSIC_EMITTERS[name] = f
        return f

    return mark


def call_name(call: Call) -> str:
    """The name of an intrinsic, without ``tir.``."""
    return str(getattr(call.op, "name", call.op)).removeprefix("tir.")


def _need(call: Call, fits: bool) -> None:
    """Raise CodegenError unless `fits`, and the call and all its arguments have one dtype."""
    if not fits or any(arg.dtype is not call.dtype for arg in call.args):
        dtypes = [str(a.dtype) for a in call.args]
        raise CodegenError(f"{call_name(call)}: {call.dtype} from arguments of {dtypes}")


def _library(g: ExprEmitter, dtype: DataType, name: str, *args: Code) -> Code:
    """A function of the C library, in float for the narrower types."""
    full = name if dtype.bits == 64 else f"{name}f"
    return g.rounded(dtype, Code(f"{full}({', '.join(a.text for a in args)})"))


@_emitter(*_UNARY, *_BINARY, "fma")
def _of_library(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    _need(call, call.dtype.is_float)
    name = call_name(call)
    if name in _FORMULAS and call.dtype.bits < 64:
        return g.rounded(call.dtype, Code(f"{g.module.formula(name)}({args[0].text})"))
    return _library(g, call.dtype, name, *args)


@_emitter("pow")
def _pow(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    _need(call, call.dtype.is_float)
    kind = DataType("float64" if call.dtype.bits == 64 else "float32")
    return g.rounded(call.dtype, g.helper("pow", kind, *args))


@_emitter("muladd")
def _muladd(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    _need(call, call.dtype.is_float)
    x, y, z = args
    text = f"{x.within(PRODUCT)} * {y.within(UNARY)} + {z.within(PRODUCT)}"
    return g.rounded(call.dtype, Code(text, SUM))


@_emitter(*_ROUNDING)
def _round(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    if call.dtype.is_int or call.dtype.is_bool:
        return args[0]
    _need(call, call.dtype.is_float)
    return _library(g, call.dtype, _ROUNDING[call_name(call)], *args)


@_emitter("ldexp")
def _ldexp(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    value, exponent = call.args
    if value.dtype is not call.dtype or exponent.dtype.lanes != call.dtype.lanes:
        raise CodegenError(f"ldexp of {value.dtype} and {exponent.dtype}")
    # Far beyond any exponent, and small enough for C's int.
    kind, by = exponent.dtype, args[1]
    if kind.bits >= 32:
        if kind.is_signed:
            by = g.helper("max", kind, by, constant(-4096, kind.element))
        by = g.helper("min", kind, by, constant(4096, kind.element))
    by = Code(f"(int){by.within(UNARY)}", UNARY)
    if call.dtype.bits >= 32:
        return _library(g, call.dtype, "ldexp", args[0], by)
    # In double, where no result is subnormal, then rounded once.
    scaled = _library(g, _FLOAT64, "ldexp", args[0], by)
    return g.cast(_FLOAT64, call.dtype, scaled)


@_emitter("nextafter")
def _nextafter(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    _need(call, call.dtype.is_float and call.dtype.bits > 8)
    if call.dtype.bits == 16:
        return g.helper("nextafter", call.dtype, *args)
    return _library(g, call.dtype, "nextafter", *args)


@_emitter("fabs")
def _fabs(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    dtype = call.dtype
    _need(call, dtype.is_float or dtype.is_int or dtype.is_bool)
    if dtype.is_float:
        return _library(g, DataType("float64" if dtype.bits == 64 else "float32"), "fabs", *args)
    return g.helper("abs", dtype, *args) if dtype.is_signed else args[0]


@_emitter(*_BITWISE)
def _bitwise(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    _need(call, call.dtype.is_int or call.dtype.is_bool)
    name, (a, b) = call_name(call), args
    if call.dtype.is_bool:
        sign = {"bitwise_and": "&&", "bitwise_or": "||", "bitwise_xor": "!="}[name]
        return Code(f"{a.within(SUM)} {sign} {b.within(SUM)}", CHOICE)
    code = Code(f"{a.within(UNARY)} {_BITWISE[name]} {b.within(UNARY)}", CHOICE)
    return g.as_type(call.dtype, code)


@_emitter("bitwise_not")
def _bitwise_not(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    _need(call, call.dtype.is_int or call.dtype.is_bool)
    if call.dtype.is_bool:
        return Code(f"!{args[0].within(UNARY)}", UNARY)
    return g.as_type(call.dtype, Code(f"~{args[0].within(UNARY)}", UNARY))


@_emitter("shift_left", "shift_right")
def _shift(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    dtype, (a, b) = call.dtype, args
    _need(call, dtype.is_int or dtype.is_bool)
    left = call_name(call) == "shift_left"
    if dtype.is_bool:
        return Code(f"{a.within(SUM)} && !{b.within(UNARY)}", CHOICE)
    if not left and b.number in range(dtype.bits) and g.bounds(call.args[0])[0] >= 0:
        return g.as_type(dtype, Code(f"{a.within(UNARY)} >> {b.number}", CHOICE))
    return g.helper("shl" if left else "shr", dtype, a, b)


@_emitter("popcount")
def _popcount(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    _need(call, call.dtype.is_int or call.dtype.is_bool)
    return args[0] if call.dtype.is_bool else g.helper("popcount", call.dtype, *args)


@_emitter("clz")
def _clz(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    source = call.args[0].dtype
    if not (source.is_int or source.is_bool) or call.dtype.element != "int32":
        raise CodegenError(f"clz: {call.dtype} from {source}")
    if source.is_bool:
        return Code(f"(int32_t)!{args[0].within(UNARY)}", UNARY)
    return g.helper("clz", source, *args)


@_emitter("truncdiv", "truncmod")
def _truncating(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    _need(call, call.dtype.is_int or call.dtype.is_bool)
    return g.divide(call.dtype, args[0], args[1], call_name(call) == "truncmod")


@_emitter("isnan", "isinf", "isfinite")
def _classify(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    name = call_name(call)
    if not call.args[0].dtype.is_float:
        return constant(name == "isfinite", DataType("bool"))
    return Code(f"{name}({args[0].text}) != 0", RELATION)


@_emitter("reinterpret")
def _reinterpret(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    source, to = call.args[0].dtype, call.dtype
    if source.bits * source.lanes != to.bits * to.lanes or source.is_handle or to.is_handle:
        raise CodegenError(f"reinterpret from {source} to {to}: the sizes differ")
    if source is to:
        return args[0]
    kind, wanted = storage_type(source), storage_type(to)
    raw = Code(g.to_storage(source, args[0]), UNARY)
    if source.lanes == to.lanes:
        if source.is_int and to.is_int:
            return Code(f"({wanted}){raw.within(UNARY)}", UNARY)
        if kind == wanted:
            return g.from_storage(to, raw.text)
        same = g.module.helpers.same_bits(kind, source.element, wanted, to.element)
        return g.from_storage(to, f"{same}({raw.text})")
    names = g.temporary(), g.temporary()
    g.emit(f"{kind} {names[0]}[{source.lanes}];")
    g.each_lane(source.lanes, f"{names[0]}[lane] = {raw.text};")
    g.emit(f"{wanted} {names[1]}[{to.lanes}];")
    g.emit(f"memcpy({names[1]}, {names[0]}, sizeof {names[1]});")
    return g.from_storage(to, f"{names[1]}[{'lane' if to.lanes > 1 else 0}]")


@_emitter("dot_accumulate")
def _dot_accumulate(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    (acc, a, b), of = call.args, call.dtype
    wrong = why_no_dot(of, acc.dtype, a.dtype, b.dtype)
    if wrong:
        raise CodegenError(f"dot_accumulate: {wrong}")
    group, lane = a.dtype.lanes // of.lanes, "lane" if of.lanes > 1 else "0"
    places = [f"{lane} * {group} + {k}" for k in range(group)]
    pairs = [g.lanes_of(each.dtype, code) for each, code in ((a, args[1]), (b, args[2]))]
    if of.is_float:
        products = [f"{x} * {y}" for x, y in ([lanes(p) for lanes in pairs] for p in places)]
        return Code(" + ".join([args[0].within(SUM), *products]), SUM)
    # Products of 16 bits fit; their sum may wrap.
    total = args[0]
    for place in places:
        x, y = (f"(int32_t){lanes(place)}" for lanes in pairs)
        if {a.dtype.element, b.dtype.element} == {"uint16"}:
            product = g.helper("mul", of, Code(x), Code(y))
        else:
            product = Code(f"{x} * {y}", PRODUCT)
        total = g.helper("add", of, total, product)
    return total


@_emitter("likely", "ignore_loop_partition")
def _likely(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    return args[0]


@_emitter("assume")
def _assume(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    return Code("true", ATOM, 1)


@_emitter("bound_check")
def _bound_check(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    index, limit = call.args[:2]
    name = call.args[2].value if isinstance(call.args[2], StringImm) else "?"
    if index.dtype is not call.dtype or index.dtype.element != "int64" or limit.dtype != "int64":
        raise CodegenError("bound_check: wanted int64 indices and an int64 limit")
    least, most = g.bounds(index)
    if least >= 0 and args[1].number is not None and most < args[1].number:
        return args[0]
    number = g.need_failure(bound_failure(name[:200]))
    one = g.lanes_of(index.dtype, args[0])
    if index.dtype.lanes == 1:
        place, vector = args[0].within(SUM), False
    else:
        place, vector = one("lane"), True
    below = f"{place} < {args[1].within(SUM)}"
    inside = Code(below if least >= 0 else f"{place} >= 0 && {below}", CHOICE)
    if vector:
        g.open(f"for (int lane = 0; lane < {index.dtype.lanes}; ++lane) {{")
    g.fail_unless(inside, number, f"{name[:200]} is accessed out of bounds")
    if vector:
        g.close()
        return Code(place)
    return args[0]


@_emitter("undef")
def _undef(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    return constant(0, call.dtype.element)


@_emitter("vectorlow", "vectorhigh")
def _half_of(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    source, lanes = call.args[0].dtype, call.dtype.lanes
    if source.lanes != 2 * lanes or source.element is not call.dtype.element:
        raise CodegenError(f"{call_name(call)} of {source} as {call.dtype}")
    start = lanes if call_name(call) == "vectorhigh" else 0
    one = g.lanes_of(source, args[0])
    return Code(one(start if lanes == 1 else f"lane + {start}"), UNARY)


# -- the outside world -----------------------------------------------------------------------------


@_emitter("call_extern", "call_pure_extern")
def _call_extern(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    name = call.args[0].value if isinstance(call.args[0], StringImm) else None
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise CodegenError(
            f"{call_name(call)}: wanted the name of a C function, got {call.args[0]!r}"
        )
    for dtype in (call.dtype, *(a.dtype for a in call.args[1:])):
        if dtype.lanes != 1 or (dtype.is_float and dtype.bits < 32):
            raise CodegenError(f"{name}: C has no plain way to pass {dtype}")
    result = "void" if call.dtype == "void" else storage_type(call.dtype)
    left = iter(args)
    arguments, types = [], []
    for arg in call.args[1:]:
        if isinstance(arg, StringImm):
            arguments.append(string(arg.value))
            types.append("const char *")
        else:
            arguments.append(g.to_storage(arg.dtype, next(left)))
            types.append(storage_type(arg.dtype))
    if name not in _STANDARD:
        g.module.declare(name, result, types)
    g.module.externs.add(name)
    text = f"{name}({', '.join(arguments)})"
    if result == "void":
        g.emit(f"{text};")
        return constant(0, DataType("int32"))
    return g.from_storage(call.dtype, text)


# LLVM's intrinsic: (helper or function of the C library, kind of it).
_OF_LLVM: dict[str, tuple[str, str]] = {
    **{name: (name, "library") for name in "sqrt fabs floor ceil rint trunc nearbyint".split()},
    **{name: (name, "library") for name in "round exp exp2 log log2 log10 sin cos".split()},
    **{name: (name, "library") for name in "pow copysign fma".split()},
    "roundeven": ("nearbyint", "library"),
    "minnum": ("fmin", "library"),
    "maxnum": ("fmax", "library"),
    "ctpop": ("popcount", "own"),
    "bswap": ("bswap", "own"),
    "bitreverse": ("bitreverse", "own"),
    "fshl": ("fshl", "own"),
    "fshr": ("fshr", "own"),
    "smin": ("min", "int"),
    "smax": ("max", "int"),
    "umin": ("min", "uint"),
    "umax": ("max", "uint"),
    "sadd.sat": ("add_sat", "int"),
    "ssub.sat": ("sub_sat", "int"),
    "uadd.sat": ("add_sat", "uint"),
    "usub.sat": ("sub_sat", "uint"),
}


@_emitter("call_llvm_intrin", "call_llvm_pure_intrin")
def _call_llvm(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    named, left = call.args[0], args
    full = named.value if isinstance(named, StringImm) else None
    if isinstance(named, IntImm):
        full, left = LLVM_INTRINSIC_IDS.get(named.value), args[1:]
    stem = full.removeprefix("llvm.") if isinstance(full, str) else ""
    known = next((k for k in (stem, stem.rsplit(".", 1)[0]) if k in LLVM_INTRINSICS), None)
    if known is None:
        raise CodegenError(f"{call_name(call)}: {named!r} has no form in C")
    operands = list(zip(call.args[1:], left))
    count, dtype = LLVM_INTRINSICS[known], call.dtype
    # TVM's form carries the number of signature arguments first.
    if len(operands) == count + 1 and isinstance(operands[0][0], IntImm):
        operands = operands[1:]
    name, kind = _OF_LLVM.get(known, ("", "library" if dtype.is_float else ""))
    fits = dtype.is_float if kind == "library" else dtype.is_int
    if len(operands) != count or not fits or any(arg.dtype is not dtype for arg, _ in operands):
        raise CodegenError(
            f"llvm.{known} takes {count} arguments of the dtype of its result, got {dtype} from "
            f"{[str(a.dtype) for a, _ in operands]}"
        )
    values = [value for _, value in operands]
    if known == "canonicalize":
        return values[0]
    if known == "fmuladd":
        return _muladd(g, Call(dtype, "tir.muladd", [a for a, _ in operands]), values)
    if name == "pow":
        return _pow(g, Call(dtype, "tir.pow", [a for a, _ in operands]), values)
    if kind == "library":
        return _library(g, dtype, name, *values)
    if kind == "own" or (kind == "int") is dtype.is_signed:
        return g.helper(name, dtype, *values)
    other = DataType(f"{kind}{dtype.bits}")
    turned = [Code(f"({value_type(other)}){v.within(UNARY)}", UNARY) for v in values]
    result = g.helper(name, other, *turned)
    return Code(f"({value_type(dtype)}){result.text}", UNARY)


@_emitter("address_of")
def _address_of(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    load = call.args[0]
    if not isinstance(load, BufferLoad):
        raise CodegenError("address_of: wanted a buffer element")
    return _address(g, load.buffer.dtype, g.pointer(load.buffer.data).name, args[0])


@_emitter("tvm_access_ptr")
def _access_ptr(g: ExprEmitter, call: Call, args: list[Code]) -> Code:
    element, data, offset = call.args[:3]
    if not data.dtype.is_handle or not offset.dtype.is_int or offset.dtype.lanes != 1:
        raise CodegenError("tvm_access_ptr: wanted a handle and an integer offset")
    return _address(g, element.dtype, args[0].text, args[1])


def _address(g: ExprEmitter, dtype: DataType, pointer: str, index: Code) -> Code:
    if index.number == 0:
        return Code(f"(void *){pointer}", UNARY)
    size = dtype.element.itemsize
    place = index.within(UNARY) if size == 1 else f"{index.within(PRODUCT)} * {size}"
    return Code(f"(void *)((char *){pointer} + {place})", UNARY)
