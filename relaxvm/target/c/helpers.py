"""Small C functions that generated code calls where C itself has no operation with that meaning:
arithmetic that wraps, guarded division, saturating casts, 16-bit and 8-bit floats.

Each is a template; `$T` is the type it works on, `$U` that type without sign, `$W` one without sign
that is not promoted, `$S` what names spell for it. What a file does not use is not in it.
"""

from __future__ import annotations

from string import Template

import numpy as np

from ...base import FLOAT8_TYPES, CodegenError, DataType, bits_to_floats
from .text import constant, suffix, value_type

_WRAPS = "$T ${N}_$S($T a, $T b)\n{\n    return ($T)(($U)a $OP ($U)b);\n}"
_INTEGERS: dict[str, str] = {
    "add": _WRAPS.replace("$OP", "+"),
    "sub": _WRAPS.replace("$OP", "-"),
    "mul": _WRAPS.replace("$OP", "*"),
    "shl": """\
$T shl_$S($T a, $T b)
{
    return ($T)(($U)b < ${BITS}U ? ($W)a << b : 0U);
}""",
    "min": "$T min_$S($T a, $T b)\n{\n    return ($T)(a < b ? a : b);\n}",
    "max": "$T max_$S($T a, $T b)\n{\n    return ($T)(a > b ? a : b);\n}",
    "popcount": """\
$T popcount_$S($T a)
{
    $T count = 0;
    for ($U rest = ($U)a; rest != 0; rest = ($U)(rest & (rest - 1U))) {
        ++count;
    }
    return count;
}""",
    "clz": """\
int32_t clz_$S($T a)
{
    int32_t count = $BITS;
    for ($U rest = ($U)a; rest != 0; rest = ($U)(rest >> 1)) {
        --count;
    }
    return count;
}""",
    "bswap": """\
$T bswap_$S($T a)
{
    $W swapped = 0, rest = ($W)a;
    for (int byte = 0; byte < $BITS / 8; ++byte) {
        swapped = ($W)(swapped << 8) | (rest & 255U);
        rest = rest >> 8;
    }
    return ($T)swapped;
}""",
    "bitreverse": """\
$T bitreverse_$S($T a)
{
    $W turned = 0, rest = ($W)a;
    for (int bit = 0; bit < $BITS; ++bit) {
        turned = ($W)(turned << 1) | (rest & 1U);
        rest = rest >> 1;
    }
    return ($T)turned;
}""",
    "fshl": """\
$T fshl_$S($T a, $T b, $T c)
{
    const $W by = ($U)c % ${BITS}U;
    return ($T)(by == 0 ? ($W)($U)a : (($W)($U)a << by | ($W)($U)b >> (${BITS}U - by)));
}""",
    "fshr": """\
$T fshr_$S($T a, $T b, $T c)
{
    const $W by = ($U)c % ${BITS}U;
    return ($T)(by == 0 ? ($W)($U)b : (($W)($U)a << (${BITS}U - by) | ($W)($U)b >> by));
}""",
}
_SIGNED: dict[str, str] = {
    "div": """\
$T div_$S($T a, $T b)
{
    if (b == 0) {
        return 0;
    }
    return ($T)(b == -1 ? ($T)(($U)0 - ($U)a) : a / b);
}""",
    "mod": "$T mod_$S($T a, $T b)\n{\n    return ($T)(b == 0 || b == -1 ? 0 : a % b);\n}",
    "shr": """\
$T shr_$S($T a, $T b)
{
    const int by = ($U)b < ${BITS}U ? (int)b : $BITS - 1;
    return ($T)(a < 0 ? ~(~a >> by) : a >> by);
}""",
    "abs": "$T abs_$S($T a)\n{\n    return ($T)(a < 0 ? ($T)(($U)0 - ($U)a) : a);\n}",
    "add_sat": """\
$T add_sat_$S($T a, $T b)
{
    if (b > 0 ? a > $MAX - b : a < $MIN - b) {
        return ($T)(b > 0 ? $MAX : $MIN);
    }
    return ($T)(a + b);
}""",
    "sub_sat": """\
$T sub_sat_$S($T a, $T b)
{
    if (b < 0 ? a > $MAX + b : a < $MIN + b) {
        return ($T)(b < 0 ? $MAX : $MIN);
    }
    return ($T)(a - b);
}""",
    # 64 bits so that a double holds them: of the low bits it says whether there are some.
    "squeeze": """\
$T squeeze_$S($T a)
{
    const $T low = a & 0xFFF;
    return a > INT64_C(1) << 53 || a < -(INT64_C(1) << 53) ? a - low + (low != 0) * 0x800 : a;
}""",
}
_UNSIGNED: dict[str, str] = {
    "div": "$T div_$S($T a, $T b)\n{\n    return ($T)(b == 0 ? 0 : a / b);\n}",
    "mod": "$T mod_$S($T a, $T b)\n{\n    return ($T)(b == 0 ? 0 : a % b);\n}",
    "shr": "$T shr_$S($T a, $T b)\n{\n    return ($T)(b < ${BITS}U ? a >> b : 0);\n}",
    "add_sat": "$T add_sat_$S($T a, $T b)\n{\n    return ($T)(a > $MAX - b ? $MAX : a + b);\n}",
    "sub_sat": "$T sub_sat_$S($T a, $T b)\n{\n    return ($T)(a < b ? 0 : a - b);\n}",
    "squeeze": """\
$T squeeze_$S($T a)
{
    const $T low = a & 0xFFFU;
    return a > UINT64_C(1) << 53 ? a - low + (low != 0) * 0x800U : a;
}""",
}
# What is too large, or too small, gives the nearest there is; NaN gives 0.
_TO_INTEGER = """\
$T ${F}_to_$S($FT x)
{
    if (!(x > $LOW)) {
        return ($T)(isnan(x) ? 0 : $MIN);
    }
    return ($T)(x >= $HIGH ? $MAX : ($T)x);
}"""
_EXTREME = """\
$T $N_$S($T a, $T b)
{
    return choose_$S((a != a) | (a $OP b), a, b);
}
#if defined(RELAXVM_SIMD)
#pragma omp declare reduction($N_$S : $T : omp_out = $N_$S(omp_out, omp_in)) \\
    initializer(omp_priv = $ENDINFINITY)
#endif"""
_FLOATS: dict[str, str] = {
    # Without a branch: loops of it become vectors.
    "choose": """\
$T choose_$S(bool first, $T a, $T b)
{
    const $B take = ($B)0 - ($B)first;
    $B x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    x = (x & take) | (y & ~take);
    memcpy(&a, &x, sizeof a);
    return a;
}""",
    # NaN if either is NaN.
    "min": _EXTREME.replace("$N", "min").replace("$OP", "<").replace("$END", ""),
    "max": _EXTREME.replace("$N", "max").replace("$OP", ">").replace("$END", "-"),
    # The same for a value that waits for the one before it.
    "min_so_far": "$T min_so_far_$S($T a, $T b)\n{\n    return isnan(a) || a < b ? a : b;\n}",
    "max_so_far": "$T max_so_far_$S($T a, $T b)\n{\n    return isnan(a) || a > b ? a : b;\n}",
    # GCC takes the square root by itself, also of minus infinity, whose power is plus infinity.
    "pow": """\
$T pow_$S($T x, $T y)
{
    if (y == ${HALF}) {
        return isinf(x) ? ($T)INFINITY : sqrt$F(x) + ${ZERO};
    }
    return pow$F(x, y);
}""",
    "round": "float round_$S(float x)\n{\n    return from_$S(to_$S(x));\n}",
    "nextafter": """\
float nextafter_$S(float x, float y)
{
    const unsigned bits = to_$S(x);
    if (isnan(x) || isnan(y)) {
        return x + y;
    }
    if (x == y) {
        return y;
    }
    if (x == 0) {
        return from_$S((uint16_t)((to_$S(y) & 0x8000U) | 1U));
    }
    return from_$S((uint16_t)((y > x) == (x > 0) ? bits + 1U : bits - 1U));
}""",
}
_PLAIN: dict[str, str] = {
    "float_bits": """\
uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}""",
    "bits_float": """\
float bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}""",
    # Rounded to odd, so that rounding once more to fewer bits gives the nearest.
    "odd_float": """\
float odd_float(double x)
{
    const float single = (float)x;
    const uint32_t bits = float_bits(single);
    if (isnan(x) || (double)single == x) {
        return single;
    }
    return bits_float((fabs((double)single) > fabs(x) ? bits - 1U : bits) | 1U);
}""",
    "to_f16": """\
uint16_t to_f16(float x)
{
    const uint32_t bits = float_bits(x), size = bits & 0x7FFFFFFFU, sign = bits >> 16 & 0x8000U;
    if (size >= 143U << 23) {
        return (uint16_t)(sign | (size > 0x7F800000U ? 0x7E00U : 0x7C00U));
    }
    if (size < 113U << 23) {
        return (uint16_t)(sign | (float_bits(bits_float(size) + 0.5f) - (126U << 23)));
    }
    return (uint16_t)(sign | ((size - (112U << 23) + 0xFFFU + (size >> 13 & 1U)) >> 13));
}""",
    "from_f16": """\
float from_f16(uint16_t bits)
{
    const uint32_t sign = (bits & 0x8000U) << 16, size = (bits & 0x7FFFU) << 13;
    if (size < 1U << 23) {
        return bits_float(sign | float_bits((float)(size >> 13) * 0x1p-24f));
    }
    return bits_float(sign | (size + (size >= 0x7C00U << 13 ? 224U << 23 : 112U << 23)));
}""",
    "to_bf16": """\
uint16_t to_bf16(float x)
{
    const uint32_t bits = float_bits(x);
    return (uint16_t)((isnan(x) ? bits | 0x400000U : bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}""",
    "from_bf16": """\
float from_bf16(uint16_t bits)
{
    return bits_float((uint32_t)bits << 16);
}""",
}
_TO_FLOAT8 = """\
uint8_t to_$S(float x)
{
    const uint32_t bits = float_bits(x), size = bits & 0x7FFFFFFFU, sign = bits >> 24 & 0x80U;
    uint32_t code;
    if (size > 0x7F800000U) {
        return ${NAN_CODE}U;
    }
    if (size < ${TINY}U) {
        code = float_bits(bits_float(size) + $MAGIC) - ${MAGIC_BITS}U;
    } else {
        code = (size - ${REBIAS}U + ${HALF}U + (size >> $SHIFT & 1U)) >> $SHIFT;
    }
    if (code > ${TOP}U) {
        return (uint8_t)(${INFINITE}U | sign);
    }
    return (uint8_t)($SIGNED);
}"""
_TO_POWER = """\
uint8_t to_$S(float x)
{
    const uint32_t bits = float_bits(x);
    const uint32_t tiny = bits >= 0x600000U, code = (bits + 0x400000U) >> 23;
    if (bits < 1U << 23 && bits > 0) {
        return (uint8_t)tiny;
    }
    return bits == 0 || bits >= 0x80000000U || code > 254U ? 255 : (uint8_t)code;
}"""
_BITS_OF = """\
$T ${F}_as_$S($FT x)
{
    $T same;
    memcpy(&same, &x, sizeof same);
    return same;
}"""
# Memory that is declared as another type.
_LOAD = """\
$T load_$S(const void *memory, int64_t index)
{
    $T element;
    memcpy(&element, (const char *)memory + index * $BYTES, sizeof element);
    return element;
}"""
_STORE = """\
void store_$S(void *memory, int64_t index, $T element)
{
    memcpy((char *)memory + index * $BYTES, &element, sizeof element);
}"""


class Helpers:
    """The helpers that one file uses, in an order in which each stands after those it calls."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def text(self) -> str:
        """Their definitions."""
        return "\n\n".join(f"static inline {text}" for text in self._texts.values())

    def plain(self, name: str) -> str:
        """The name of a helper that exists once."""
        return self._add(name, Template(_PLAIN[name]), {})

    def of(self, name: str, dtype: DataType) -> str:
        """The name of the helper `name` for `dtype`."""
        value_type(dtype)  # raises for what C has no values of
        full = f"{name}_{suffix(dtype)}"
        if full in self._texts:
            return full
        if dtype.is_float:
            if dtype.bits < 32 and name in ("to", "from"):
                return self._eight_bits(name, dtype) if dtype.bits == 8 else self.plain(full)
            if dtype.bits < 32:
                for part in ("to", "from"):
                    self.of(part, dtype)
            if name in ("min", "max"):
                self.of("choose", dtype)
            table = _FLOATS
        else:
            table = _INTEGERS | (_SIGNED if dtype.is_signed else _UNSIGNED)
        return self._add(full, Template(table[name]), _names(dtype) | {"N": name})

    def to_integer(self, source: DataType, to: DataType) -> str:
        """The cast of a float to an integer."""
        names = _names(to) | {"F": "f64" if source.bits == 64 else "f32", "FT": value_type(source)}
        low = int(to.min_value) if to.is_signed else -1
        kind = DataType("float64") if source.bits == 64 else DataType("float32")
        names["LOW"] = constant(low, kind).text
        names["HIGH"] = constant(int(to.max_value) + 1, kind).text
        return self._add(f"{names['F']}_to_{names['S']}", Template(_TO_INTEGER), names)

    def same_bits(self, source: str, of: DataType, to: str, result: DataType) -> str:
        """The bits of a value of the C type `source` as one of the C type `to`."""
        names = {"F": suffix(of), "S": suffix(result), "FT": source, "T": to}
        return self._add(f"{names['F']}_as_{names['S']}", Template(_BITS_OF), names)

    def memory(self, name: str, element: str, size: int) -> str:
        """`load` or `store` of elements of the C type `element` in memory of any type."""
        names = {"T": element, "S": element.removesuffix("_t"), "BYTES": str(size)}
        template = _LOAD if name == "load" else _STORE
        return self._add(f"{name}_{names['S']}", Template(template), names)

    def define(self, full: str, text: str) -> None:
        """Add a function, after those that it calls."""
        self._texts.setdefault(full, text)

    def has(self, full: str) -> bool:
        """Whether there is a function of that name."""
        return full in self._texts

    def _eight_bits(self, name: str, dtype: DataType) -> str:
        full = f"{name}_{suffix(dtype)}"
        if name == "to":
            template = _TO_POWER if not FLOAT8_TYPES[dtype.kind][0] else _TO_FLOAT8
            return self._add(full, Template(template), _float8_names(dtype))
        codes = bits_to_floats(np.arange(256, dtype=np.uint8), dtype)
        values = [constant(float(v), DataType("float32")).text for v in codes]
        rows = [", ".join(values[i : i + 8]) for i in range(0, 256, 8)]
        listed = ",\n        ".join(rows)
        body = f"    static const float values[256] = {{\n        {listed},\n    }};\n"
        text = f"float {full}(uint8_t bits)\n{{\n{body}    return values[bits];\n}}"
        return self._add(full, Template(text), {})

    def _add(self, full: str, template: Template, names: dict[str, str]) -> str:
        if full not in self._texts:
            text = template.substitute(names)
            for other in _PLAIN:
                if other != full and f"{other}(" in text:
                    self.plain(other)
            self._texts[full] = text
        return full


def _names(dtype: DataType) -> dict[str, str]:
    names = {"T": value_type(dtype), "S": suffix(dtype), "BITS": str(dtype.bits)}
    if dtype.is_int:
        names["U"] = f"uint{dtype.bits}_t"
        names["W"] = f"uint{max(dtype.bits, 32)}_t"
        names["MIN"] = constant(int(dtype.min_value), dtype).text
        names["MAX"] = constant(int(dtype.max_value), dtype).text
    elif dtype.is_float:
        names["F"] = "" if dtype.bits == 64 else "f"
        names["B"] = "uint64_t" if dtype.bits == 64 else "uint32_t"
        names["HALF"], names["ZERO"] = (constant(v, dtype).text for v in (0.5, 0.0))
    return names


def _float8_names(dtype: DataType) -> dict[str, str]:
    name = dtype.kind
    mantissa, bias = FLOAT8_TYPES[name]
    shift = 23 - mantissa
    if name.endswith("uz"):
        top, infinite, nan = 127, 128, 128
    elif name.endswith("fn"):
        top, infinite, nan = 126, 127, 127
    else:
        infinite = (127 >> mantissa) << mantissa
        top, nan = infinite - 1, infinite | 1 << mantissa >> 1
    if bias > 127:
        raise CodegenError(f"C has no {dtype}")
    numbers = {
        "SHIFT": shift,
        "HALF": (1 << (shift - 1)) - 1,
        "REBIAS": (127 - bias) << 23,
        "TINY": (128 - bias) << 23,
        "MAGIC_BITS": (127 + 24 - bias - mantissa) << 23,
        "TOP": top,
        "INFINITE": infinite,
        "NAN_CODE": nan,
    }
    names = {key: str(value) for key, value in numbers.items()}
    names["S"] = suffix(dtype)
    names["MAGIC"] = constant(2.0 ** (24 - bias - mantissa), DataType("float32")).text
    # Without a zero that has a sign, or with one.
    names["SIGNED"] = "code == 0 ? 0U : code | sign" if name.endswith("uz") else "code | sign"
    return names
