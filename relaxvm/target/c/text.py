"""C as text: types, constants, names and comments, from a compiler that trusts none of its input.

A value of an 8-bit or 16-bit float type lives in a variable as the float that it is exactly, and a
bool in memory is a byte. Names and order depend on the input only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from ...base import CodegenError, DataType, NamedTuple

# How tightly an expression holds together: the greater number needs parentheses inside the lesser.
ATOM, UNARY, PRODUCT, SUM, RELATION, CHOICE = range(6)
# Of C++, too, which reads the header.
_KEYWORDS = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while asm typeof bool true false lane failed result done main errno
    linux unix i386 stdin stdout stderr memcpy memmove memset memcmp malloc calloc realloc free
    isnan isinf isfinite signbit fpclassify isnormal isgreater isless
    alignas alignof and and_eq asm bitand bitor catch char8_t class co_await co_return co_yield
    compl concept consteval constexpr constinit const_cast decltype delete dynamic_cast explicit
    export friend mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public reinterpret_cast requires static_assert static_cast template this thread_local
    throw try typeid typename using virtual wchar_t xor xor_eq""".split()
)
# Functions of the C library that code calls, of double; those of float end in f.
_MATHEMATICAL = frozenset(
    """exp exp2 log log2 log10 sqrt sin cos log1p expm1 tanh erf erfc tan asin acos atan sinh cosh
    asinh acosh atanh pow atan2 hypot fmod copysign fma floor ceil trunc nearbyint ldexp nextafter
    fabs rint round fmin fmax""".split()
)
# Macros of the standard headers, what the standard keeps for them, and helpers.
_RESERVED = re.compile(
    r"_.*|(?:NULL|EOF|NAN|INFINITY|BUFSIZ|I|offsetof|assert)$|(?:DL|kDL|RELAXVM|relaxvm)|"
    r"(?:U?INT|SIZE|PTRDIFF|WCHAR|WINT|SIG|EXIT|RAND|MB|HUGE|FP|M|MATH|FLT|DBL|LDBL)_?[A-Z0-9_]+$|"
    r".*_t$|.*_(?:[iu]|b?f)\d+(?:_\w+)?$|float_bits$|bits_float$|odd_float$"
)


# A declaration with its `*` and its size; names in code; what holds words that are none.
_DECLARED = re.compile(r" *(?!return|goto)(?:const )?\w+ (\* ?)?(\w+)(\[\w+\])?(?: =|;)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_WORDS = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"')


class Code(NamedTuple):
    """A C expression. `number` is its value if it is an integer constant."""

    text: str
    level: int = ATOM
    number: int | None = None

    def within(self, level: int) -> str:
        """The text where operands of at most `level` may stand."""
        return self.text if self.level <= level else f"({self.text})"


def value_type(dtype: DataType) -> str:
    """The C type of a variable that holds one element."""
    if dtype.is_bool:
        return "bool"
    if dtype.is_byte and dtype.bits < 8:
        raise CodegenError(f"C has no values of dtype {dtype}; build for llvm, or astype them")
    if dtype.is_int:
        return f"{'' if dtype.is_signed else 'u'}int{dtype.bits}_t"
    if dtype.is_float:
        return "double" if dtype.bits == 64 else "float"
    if dtype.is_handle:
        return "void *"
    raise CodegenError(f"C has no values of dtype {dtype}")


def storage_type(dtype: DataType) -> str:
    """The C type of one element in memory."""
    if dtype.is_bool or (dtype.is_float and dtype.bits < 32):
        return f"uint{max(dtype.bits, 8)}_t"
    return value_type(dtype)


def suffix(dtype: DataType) -> str:
    """How names of helpers spell a type."""
    if dtype.is_bfloat or dtype.is_float8 or dtype.is_bool:
        return {"bfloat": "bf16"}.get(dtype.kind, dtype.kind.replace("float8", "f8"))
    return f"{'f' if dtype.is_float else 'i' if dtype.is_signed else 'u'}{dtype.bits}"


def constant(value: int | float, dtype: DataType) -> Code:
    """A constant of `dtype`."""
    if dtype.is_bool:
        return Code("true" if value else "false", ATOM, int(bool(value)))
    return _floating(float(value), dtype) if dtype.is_float else _integer(int(value), dtype)


def _integer(value: int, dtype: DataType) -> Code:
    if dtype.bits >= 32 and dtype.is_signed and value == dtype.min_value:
        return Code(f"INT{dtype.bits}_MIN", ATOM, value)
    text = str(value)
    if not dtype.is_signed and dtype.bits >= 32:
        text = f"{value}U" if value < 1 << 32 else f"UINT64_C({value})"
    elif abs(value) >= 1 << 31:
        text = f"INT64_C({value})" if value >= 0 else f"-INT64_C({-value})"
    return Code(text, UNARY if value < 0 else ATOM, value)


def _floating(value: float, dtype: DataType) -> Code:
    double = dtype.bits == 64
    level = UNARY if math.copysign(1.0, value) < 0 else ATOM
    if math.isnan(value):
        return Code("(double)NAN", UNARY) if double else Code("NAN")
    if math.isinf(value):
        sign = "-" if value < 0 else ""
        return Code(f"{sign}(double)INFINITY" if double else f"{sign}INFINITY", UNARY)
    if double:
        return Code(repr(value), level)
    text = str(np.float32(value))
    return Code(text + ("f" if "." in text or "e" in text else ".0f"), level)


def identifier(name: str, hint: str = "v") -> str:
    """`name` as a C identifier that is no keyword and nothing of the standard library's. Several
    names may give the same.
    """
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", name)[:60].strip("_")
    if not plain or plain[0].isdigit():
        plain = f"{hint}_{plain}" if plain else hint
    taken = plain in _KEYWORDS or not {plain, plain.removesuffix("f")}.isdisjoint(_MATHEMATICAL)
    return f"{plain}_v" if taken or _RESERVED.match(plain) else plain


def comment(text: str) -> str:
    """`text` as it may stand in a comment, whatever it is."""
    plain = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    return re.sub(r"(?<=[*/?])(?=[*/?])", " ", plain)


def string(text: str) -> str:
    """`text`, in UTF-8, as a string literal."""
    out = []
    for byte in text.encode("utf-8", "replace"):
        plain = chr(byte)
        out.append(plain if 32 <= byte < 127 and plain not in '"\\?' else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


class _Declared(NamedTuple):
    """A variable in scope. Writing through a pointer is a use; writing to others is none."""

    is_pointer: bool
    indent: int
    line: int


def all_used(lines: Sequence[str], params: Sequence[str]) -> list[str]:
    """The lines of a function, with ``(void)name;`` for each parameter and variable that they do
    not use, so that compilers do not warn: bounds may have proved what it was wanted for.
    """
    scope = {name: _Declared(True, 0, 0) for name in params}
    used: set[str] = set()
    unused: dict[int, list[str]] = {}

    def leave(indent: int) -> None:
        while scope and (last := scope[next(reversed(scope))]).indent > indent:
            name, _ = scope.popitem()
            if name not in used:
                unused.setdefault(last.line, []).append(f"{' ' * max(4, last.indent)}(void){name};")
            used.discard(name)

    for number, line in enumerate(lines, 1):
        code = _WORDS.sub("", line)
        if code.endswith(":"):
            continue
        indent = len(code) - len(code.lstrip())
        leave(indent)
        declared = _DECLARED.match(code)
        names = _NAME.findall(code, declared.end() if declared else 0)
        if names and names[0] in scope and not scope[names[0]].is_pointer:
            is_written = code.startswith((f"{names[0]}[", f"{names[0]} ="), indent)
            names = names[is_written:]
        used.update(names)
        if declared:
            used.discard(declared[2])
            scope[declared[2]] = _Declared(bool(declared[1]), indent, number)
    leave(-1)
    out = unused.pop(0, [])[::-1]
    for number, line in enumerate(lines, 1):
        out += [line, *unused.get(number, ())]
    return out
