"""Register-level building blocks: typed instructions, 16-bit floats, casts, guarded integer
division.

A value is its LLVM name or constant; its type is passed beside it. Every function works on scalars
and vectors.
"""

from __future__ import annotations

from ...base import SMALL_FLOATS, CodegenError, DataType
from ...ir import wrap_int
from .machine import has_maximum
from .module import ModuleText
from .text import (
    FunctionText,
    element_constant,
    scalar_type,
    splat_constant,
    storage_type,
    value_type,
    vector_of,
)

_FLOAT32 = DataType("float32")
_FLOAT_PREDICATE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


class Values:
    """Emits instructions into one function."""

    def __init__(self, module: ModuleText, text: FunctionText) -> None:
        self.module = module
        self.text = text

    # -- instructions ------------------------------------------------------------------------------

    def op(self, opcode: str, of: str, a: str, b: str) -> str:
        return self.text.op(f"{opcode} {of} {a}, {b}")

    def convert(self, opcode: str, of: str, a: str, to: str) -> str:
        """A conversion instruction; nothing where the types are the same."""
        return a if of == to else self.text.op(f"{opcode} {of} {a} to {to}")

    def select(self, lanes: int, condition: str, of: str, a: str, b: str) -> str:
        return self.text.op(f"select {vector_of('i1', lanes)} {condition}, {of} {a}, {of} {b}")

    def call(self, result: str, name: str, *args: tuple[str, str], flags: str = "") -> str:
        """A call of a pure function or intrinsic, declared on the way; `flags` are LLVM's for
        floating point.
        """
        self.module.declare(name, result, tuple(of for of, _ in args))
        listed = ", ".join(f"{of} {value}" for of, value in args)
        head = f"call {flags} {result}" if flags else f"call {result}"
        return self.text.op(f"{head} @{name}({listed})")

    def intrinsic(self, name: str, of: str, *args: str, flags: str = "") -> str:
        """A call of the LLVM intrinsic `name`, overloaded on `of`, whose arguments and result have
        that type.
        """
        full = f"{name}.{self.module.suffix(of)}"
        return self.call(of, full, *((of, a) for a in args), flags=flags)

    def splat(self, value: str, element: str, lanes: int) -> str:
        """`value` in every lane."""
        if lanes == 1:
            return value
        if not value.startswith("%"):
            return splat_constant(value, element, lanes)
        vector = vector_of(element, lanes)
        one = self.text.op(f"insertelement {vector} poison, {element} {value}, i64 0")
        mask = f"<{lanes} x i32> zeroinitializer"
        return self.text.op(f"shufflevector {vector} {one}, {vector} poison, {mask}")

    def const(self, value: int | str, element: str, lanes: int) -> str:
        """An integer constant, or a float constant given as text, in every lane."""
        return splat_constant(str(value), element, lanes)

    def lane(self, vector: str, element: str, lanes: int, i: int) -> str:
        return self.text.op(f"extractelement <{lanes} x {element}> {vector}, i64 {i}")

    def with_lane(self, vector: str, element: str, lanes: int, i: int, value: str) -> str:
        return self.text.op(
            f"insertelement <{lanes} x {element}> {vector}, {element} {value}, i64 {i}"
        )

    # -- comparisons -------------------------------------------------------------------------------

    def compare(self, relation: str, dtype: DataType, a: str, b: str) -> str:
        """`relation` is eq, ne, lt, le, gt or ge."""
        of = value_type(dtype)
        if dtype.is_float:
            return self.op(f"fcmp {_FLOAT_PREDICATE[relation]}", of, a, b)
        if relation in ("eq", "ne"):
            return self.op(f"icmp {relation}", of, a, b)
        return self.op(f"icmp {'s' if dtype.kind == 'int' else 'u'}{relation}", of, a, b)

    def min_max(self, relation: str, dtype: DataType, a: str, b: str) -> str:
        """The lesser (`relation` lt) or greater (gt); NaN if either is NaN."""
        of = value_type(dtype)
        if dtype.is_float and has_maximum():
            # One use of each operand. Comparing and choosing takes three, and some of LLVM's
            # passes follow all paths through a chain: 3 ** n for n values.
            name = "llvm.maximum" if relation == "gt" else "llvm.minimum"
            return self.intrinsic(name, of, a, b, flags="nsz")
        chosen = self.select(dtype.lanes, self.compare(relation, dtype, a, b), of, a, b)
        if not dtype.is_float:
            return chosen
        # An ordered comparison with NaN is false and chose b: right if b is the NaN.
        return self.select(dtype.lanes, self.op("fcmp uno", of, a, a), of, a, chosen)

    # -- integer division --------------------------------------------------------------------------

    def divide(self, dtype: DataType, a: str, b: str, remainder: bool) -> str:
        """C's quotient or remainder; 0 where b is 0, and the least integer divided by -1 wraps."""
        of, lanes = value_type(dtype), dtype.lanes
        if dtype.is_bool:
            return self.const("false", "i1", lanes) if remainder else self.op("and", of, a, b)
        signed = dtype.kind == "int"
        opcode = ("s" if signed else "u") + ("rem" if remainder else "div")
        known = _integer(b)
        if known is not None and known != 0 and not (signed and known == -1):
            return self.op(opcode, of, a, b)
        zero, one = self.const(0, f"i{dtype.bits}", lanes), self.const(1, f"i{dtype.bits}", lanes)
        is_zero = self.op("icmp eq", of, b, zero)
        unsafe = is_zero
        if signed:
            least = self.const(int(dtype.min_value), f"i{dtype.bits}", lanes)
            is_least = self.op("icmp eq", of, a, least)
            is_minus_one = self.op("icmp eq", of, b, self.const(-1, f"i{dtype.bits}", lanes))
            mask = vector_of("i1", lanes)
            unsafe = self.op("or", mask, is_zero, self.op("and", mask, is_least, is_minus_one))
        # Dividing by 1 instead gives what wrapping would: the least integer itself, and no
        # remainder.
        result = self.op(opcode, of, a, self.select(lanes, unsafe, of, one, b))
        return self.select(lanes, is_zero, of, zero, result)

    def shift(self, dtype: DataType, a: str, b: str, left: bool) -> str:
        """A shift by an amount taken as unsigned; too far gives 0, or the sign to the right."""
        of, lanes, element = value_type(dtype), dtype.lanes, scalar_type(dtype)
        if dtype.is_bool:
            return self.op("and", of, a, self.op("xor", of, b, self.const("true", "i1", lanes)))
        limit = self.const(dtype.bits, element, lanes)
        fits = self.op("icmp ult", of, b, limit)
        if not left and dtype.kind == "int":
            most = self.const(dtype.bits - 1, element, lanes)
            return self.op("ashr", of, a, self.select(lanes, fits, of, b, most))
        shifted = self.op("shl" if left else "lshr", of, a, b)
        return self.select(lanes, fits, of, shifted, self.const(0, element, lanes))

    # -- 16-bit floats -----------------------------------------------------------------------------

    def rounded(self, dtype: DataType, value: str) -> str:
        """A float register rounded to a float of 8 or 16 bits; other dtypes pass through."""
        if dtype.is_small_float:
            return self.from_bits8(dtype, self.to_bits8(dtype, value))
        if not dtype.is_float or dtype.bits != 16:
            return value
        return self.from_bits16(dtype, self.to_bits16(dtype, value))

    def to_bits16(self, dtype: DataType, value: str) -> str:
        """A float register rounded to nearest even, as the bits (i16) of float16 or bfloat16."""
        lanes = dtype.lanes
        floats, ints, shorts = (vector_of(t, lanes) for t in ("float", "i32", "i16"))

        def const(number: int) -> str:
            return self.const(number, "i32", lanes)

        if dtype.kind == "float" and self.module.native_half:
            half = self.convert("fptrunc", floats, value, vector_of("half", lanes))
            return self.convert("bitcast", vector_of("half", lanes), half, shorts)
        bits = self.convert("bitcast", floats, value, ints)
        if dtype.kind == "bfloat":
            last = self.op("and", ints, self.op("lshr", ints, bits, const(16)), const(1))
            up = self.op("add", ints, self.op("add", ints, bits, const(0x7FFF)), last)
            quiet = self.op("or", ints, bits, const(0x400000))
            chosen = self.select(lanes, self.op("fcmp uno", floats, value, value), ints, quiet, up)
            return self.convert("trunc", ints, self.op("lshr", ints, chosen, const(16)), shorts)
        sign = self.op("and", ints, self.op("lshr", ints, bits, const(16)), const(0x8000))
        size = self.op("and", ints, bits, const(0x7FFFFFFF))
        # Normal: rebias the exponent and round at bit 13, ties to even, carrying into the exponent.
        odd = self.op("and", ints, self.op("lshr", ints, size, const(13)), const(1))
        rebiased = self.op("add", ints, size, const(((15 - 127) << 23) + 0xFFF))
        normal = self.op("lshr", ints, self.op("add", ints, rebiased, odd), const(13))
        # Subnormal: adding 0.5 makes the hardware round at the right bit, which ends in the low
        # bits.
        half = self.const("0x3FE0000000000000", "float", lanes)
        as_float = self.convert("bitcast", ints, size, floats)
        added = self.convert("bitcast", floats, self.op("fadd", floats, as_float, half), ints)
        tiny = self.op("sub", ints, added, const(126 << 23))
        is_tiny = self.op("icmp ult", ints, size, const(113 << 23))
        finite = self.select(lanes, is_tiny, ints, tiny, normal)
        is_nan = self.op("icmp ugt", ints, size, const(0x7F800000))
        special = self.select(lanes, is_nan, ints, const(0x7E00), const(0x7C00))
        is_large = self.op("icmp uge", ints, size, const((127 + 16) << 23))
        chosen = self.select(lanes, is_large, ints, special, finite)
        return self.convert("trunc", ints, self.op("or", ints, chosen, sign), shorts)

    def from_bits16(self, dtype: DataType, bits: str) -> str:
        """The float register of the bits (i16) of a float16 or bfloat16. Exact."""
        lanes = dtype.lanes
        floats, ints, shorts = (vector_of(t, lanes) for t in ("float", "i32", "i16"))

        def const(number: int) -> str:
            return self.const(number, "i32", lanes)

        if dtype.kind == "float" and self.module.native_half:
            half = self.convert("bitcast", shorts, bits, vector_of("half", lanes))
            return self.convert("fpext", vector_of("half", lanes), half, floats)
        wide = self.convert("zext", shorts, bits, ints)
        if dtype.kind == "bfloat":
            return self.convert("bitcast", ints, self.op("shl", ints, wide, const(16)), floats)
        sign = self.op("shl", ints, self.op("and", ints, wide, const(0x8000)), const(16))
        size = self.op("shl", ints, self.op("and", ints, wide, const(0x7FFF)), const(13))
        exponent = self.op("and", ints, size, const(0x7C00 << 13))
        normal = self.op("add", ints, size, const((127 - 15) << 23))
        special = self.op("add", ints, size, const((255 - 31) << 23))
        # Subnormal: the mantissa counts units of 2^-24.
        mantissa = self.op("lshr", ints, size, const(13))
        counted = self.convert("uitofp", ints, mantissa, floats)
        scaled = self.op("fmul", floats, counted, self.const("0x3E70000000000000", "float", lanes))
        tiny = self.convert("bitcast", floats, scaled, ints)
        is_tiny = self.op("icmp eq", ints, exponent, const(0))
        is_special = self.op("icmp eq", ints, exponent, const(0x7C00 << 13))
        finite = self.select(lanes, is_tiny, ints, tiny, normal)
        chosen = self.select(lanes, is_special, ints, special, finite)
        return self.convert("bitcast", ints, self.op("or", ints, chosen, sign), floats)

    def to_bits8(self, dtype: DataType, value: str) -> str:
        """A float register rounded to nearest even, as the bits (i8) of a small float. What is too
        large gives infinity or NaN: see `base.floats_to_bits`.
        """
        lanes, name = dtype.lanes, dtype.kind
        mantissa, bias = SMALL_FLOATS[name]
        floats, ints, chars = (vector_of(t, lanes) for t in ("float", "i32", "i8"))

        def const(number: int) -> str:
            return self.const(number, "i32", lanes)

        bits = self.convert("bitcast", floats, value, ints)
        size = self.op("and", ints, bits, const(0x7FFFFFFF))
        is_nan = self.op("icmp ugt", ints, size, const(0x7F800000))
        # As for float16: rebias and round; where the result is subnormal, let an addition round.
        shift = 23 - mantissa
        odd = self.op("and", ints, self.op("lshr", ints, size, const(shift)), const(1))
        if not mantissa:
            odd = const(1)  # between powers of two the greater one is taken
        half = (1 << (shift - 1)) - 1
        rebiased = self.op("add", ints, size, const(((bias - 127) << 23) + half))
        code = self.op("lshr", ints, self.op("add", ints, rebiased, odd), const(shift))
        if name == "float8_e8m0fnu":
            # Its least value, 2**-127, is subnormal among float32.
            is_tiny = self.op("icmp ult", ints, size, const(1 << 23))
            above = self.op("icmp uge", ints, size, const(0x600000))
            tiny = self.convert("zext", vector_of("i1", lanes), above, ints)
            code = self.select(lanes, is_tiny, ints, tiny, code)
            wrong = self.op("icmp sle", ints, bits, const(0))
            too_large = self.op("icmp ugt", ints, code, const(254))
            mask = vector_of("i1", lanes)
            wrong = self.op("or", mask, self.op("or", mask, wrong, is_nan), too_large)
            code = self.select(lanes, wrong, ints, const(255), code)
            return self.convert("trunc", ints, code, chars)
        added_bits = (127 + 24 - bias - mantissa) << 23
        magic = self.const(
            element_constant(2.0 ** (24 - bias - mantissa), _FLOAT32), "float", lanes
        )
        as_float = self.convert("bitcast", ints, size, floats)
        added = self.convert("bitcast", floats, self.op("fadd", floats, as_float, magic), ints)
        is_tiny = self.op("icmp ult", ints, size, const((128 - bias) << 23))
        tiny = self.op("sub", ints, added, const(added_bits))
        code = self.select(lanes, is_tiny, ints, tiny, code)
        unused = 32 - dtype.bits
        sign = self.op("lshr", ints, bits, const(unused))
        sign = self.op("and", ints, sign, const(1 << dtype.bits >> 1))
        if dtype.bits == 4:
            top, infinite, nan = 7, 7, 8
        elif name.endswith("uz"):
            top, infinite, nan = 127, 128, 128
            is_zero = self.op("icmp eq", ints, code, const(0))
            sign = self.select(lanes, is_zero, ints, const(0), sign)
        elif name.endswith("fn"):
            top, infinite, nan = 126, 127, 127
        else:
            infinite = (127 >> mantissa) << mantissa
            top, nan = infinite - 1, infinite | 1 << mantissa >> 1
        too_large = self.op("icmp ugt", ints, code, const(top))
        code = self.select(lanes, too_large, ints, const(infinite), code)
        signed = self.op("or", ints, code, sign)
        chosen = self.select(lanes, is_nan, ints, const(nan), signed)
        return self.convert("trunc", ints, chosen, chars)

    def from_bits8(self, dtype: DataType, bits: str) -> str:
        """The float register of the bits (i8) of a small float. Exact."""
        lanes, name = dtype.lanes, dtype.kind
        mantissa, bias = SMALL_FLOATS[name]
        floats, ints, chars = (vector_of(t, lanes) for t in ("float", "i32", "i8"))

        def const(number: int) -> str:
            return self.const(number, "i32", lanes)

        def where_code(relation: str, number: int, yes: str, no: str) -> str:
            return self.select(lanes, self.op(relation, ints, code, const(number)), ints, yes, no)

        wide = self.convert("zext", chars, bits, ints)
        if name == "float8_e8m0fnu":
            code = wide
            chosen = self.op("shl", ints, wide, const(23))
            chosen = where_code("icmp eq", 0, const(0x400000), chosen)
            chosen = where_code("icmp eq", 255, const(0x7FC00000), chosen)
            return self.convert("bitcast", ints, chosen, floats)
        code = self.op("and", ints, wide, const((1 << dtype.bits >> 1) - 1))
        size = self.op("shl", ints, code, const(23 - mantissa))
        normal = self.op("add", ints, size, const((127 - bias) << 23))
        # Subnormal: the mantissa counts units of the least value.
        unit = self.const(element_constant(2.0 ** (1 - bias - mantissa), _FLOAT32), "float", lanes)
        counted = self.op("fmul", floats, self.convert("uitofp", ints, code, floats), unit)
        tiny = self.convert("bitcast", floats, counted, ints)
        chosen = where_code("icmp ult", 1 << mantissa, tiny, normal)
        if dtype.bits == 4:
            pass  # every code is a number
        elif not name.endswith("fn") and not name.endswith("uz"):
            top = 127 >> mantissa
            special = self.op("add", ints, size, const((255 - top) << 23))
            chosen = where_code("icmp uge", top << mantissa, special, chosen)
        elif name.endswith("fn"):
            chosen = where_code("icmp eq", 127, const(0x7FC00000), chosen)
        sign = self.op("and", ints, wide, const(1 << dtype.bits >> 1))
        sign = self.op("shl", ints, sign, const(32 - dtype.bits))
        chosen = self.op("or", ints, chosen, sign)
        if name.endswith("uz"):
            code = wide
            chosen = where_code("icmp eq", 128, const(0x7FC00000), chosen)
        return self.convert("bitcast", ints, chosen, floats)

    def narrow_double(self, value: str, lanes: int) -> str:
        """A double as a float rounded to odd, so that rounding it once more to 16 bits gives the
        nearest.
        """
        floats, doubles, ints = (vector_of(t, lanes) for t in ("float", "double", "i32"))
        single = self.convert("fptrunc", doubles, value, floats)
        back = self.convert("fpext", floats, single, doubles)
        size, size_back = (self.intrinsic("llvm.fabs", doubles, v) for v in (value, back))
        too_large = self.op("fcmp ogt", doubles, size_back, size)
        inexact = self.op("fcmp one", doubles, size_back, size)
        bits = self.convert("bitcast", floats, single, ints)
        toward_zero = self.op(
            "sub", ints, bits, self.convert("zext", vector_of("i1", lanes), too_large, ints)
        )
        odd = self.op(
            "or", ints, toward_zero, self.convert("zext", vector_of("i1", lanes), inexact, ints)
        )
        return self.convert("bitcast", ints, odd, floats)

    # -- memory ------------------------------------------------------------------------------------

    def to_storage(self, dtype: DataType, value: str) -> tuple[str, str]:
        """(type, value) of a register as memory holds it."""
        kept = vector_of(storage_type(dtype, self.module.native_half), dtype.lanes)
        if dtype.kind == "bool":
            return kept, self.convert("zext", value_type(dtype), value, kept)
        if dtype.is_float and dtype.bits == 16:
            if kept.endswith(("half", "half>")):
                return kept, self.convert("fptrunc", value_type(dtype), value, kept)
            return kept, self.to_bits16(dtype, value)
        if dtype.is_small_float:
            return kept, self.to_bits8(dtype, value)
        if dtype.is_byte:
            return kept, self.convert("zext", value_type(dtype), value, kept)
        return kept, value

    def from_storage(self, dtype: DataType, value: str) -> str:
        """The register of what memory holds."""
        kept = vector_of(storage_type(dtype, self.module.native_half), dtype.lanes)
        if dtype.kind == "bool":
            return self.op("icmp ne", kept, value, self.const(0, "i8", dtype.lanes))
        if dtype.is_float and dtype.bits == 16:
            if kept.endswith(("half", "half>")):
                return self.convert("fpext", kept, value, value_type(dtype))
            return self.from_bits16(dtype, value)
        if dtype.is_small_float:
            return self.from_bits8(dtype, value)
        if dtype.is_byte:
            return self.convert("trunc", kept, value, value_type(dtype))
        return value

    # -- casts -------------------------------------------------------------------------------------

    def cast(self, source: DataType, to: DataType, value: str) -> str:
        """`value` converted by the rules at the top of `ir/expr.py`."""
        if source is to:
            return value
        of, result, lanes = value_type(source), value_type(to), to.lanes
        if to.is_bool:
            if source.is_float:
                return self.op(
                    "fcmp une",
                    of,
                    value,
                    self.const("0x0000000000000000", scalar_type(source), lanes),
                )
            return self.op("icmp ne", of, value, self.const(0, scalar_type(source), lanes))
        if source.is_float:
            return self._from_float(source, to, value)
        if to.is_float:
            return self._int_to_float(source, to, value)
        if not (source.is_int or source.is_bool) or not to.is_int:
            raise CodegenError(f"no cast from {source} to {to}")
        known = _integer(value)
        if known is not None and lanes == 1:
            return str(wrap_int(known, to))
        width = 1 if source.is_bool else source.bits
        opcode = "trunc" if to.bits < width else "sext" if source.kind == "int" else "zext"
        return self.convert(opcode, of, value, result)

    def _from_float(self, source: DataType, to: DataType, value: str) -> str:
        of, result, lanes = value_type(source), value_type(to), to.lanes
        if to.is_int:
            if self._saturates_by_hand(to):
                return self._saturated(source, to, value)
            name = "llvm.fptosi.sat" if to.kind == "int" else "llvm.fptoui.sat"
            suffix = f"{self.module.suffix(result)}.{self.module.suffix(of)}"
            return self.call(result, f"{name}.{suffix}", (of, value))
        if to.bits <= 16:
            return self.rounded(
                to, self.narrow_double(value, lanes) if source.bits == 64 else value
            )
        opcode = "fpext" if to.bits == 64 else "fptrunc"
        return self.convert(opcode, of, value, result)

    def _saturates_by_hand(self, to: DataType) -> bool:
        """Whether a float is brought into the limits of `to` by comparisons: LLVM does it lane by
        lane for x86, while aarch64 has an instruction for it.
        """
        fits = to.bits < 32 or (to.bits == 32 and to.kind == "int")
        return fits and not self.module.triple.startswith(("aarch64", "arm64"))

    def _saturated(self, source: DataType, to: DataType, value: str) -> str:
        """A float without its fraction as an integer of at most 32 bits, the nearest one there is;
        0 for NaN.
        """
        lanes, of = to.lanes, value_type(source)
        scalar, ints = scalar_type(source), vector_of("i32", lanes)

        def limit(number: float) -> str:
            return self.const(element_constant(number, source.element), scalar, lanes)

        low, high = float(to.min_value), float(to.max_value)
        if source.bits <= 32 and to.bits == 32:
            high = 2.0**31 - 2.0**7  # the last float32 below the limit
        lowest, highest = limit(low), limit(high)
        is_number = self.op("fcmp ord", of, value, value)
        kept = self.select(lanes, is_number, of, value, limit(0.0))
        kept = self.select(lanes, self.op("fcmp ogt", of, kept, lowest), of, kept, lowest)
        kept = self.select(lanes, self.op("fcmp olt", of, kept, highest), of, kept, highest)
        rounded = self.convert("fptosi", of, kept, ints)
        if high != float(to.max_value):
            above = self.op("fcmp ogt", of, value, highest)
            most = self.const(int(to.max_value), "i32", lanes)
            rounded = self.select(lanes, above, ints, most, rounded)
        return self.convert("trunc", ints, rounded, value_type(to))

    def _int_to_float(self, source: DataType, to: DataType, value: str) -> str:
        of, lanes = value_type(source), to.lanes
        opcode = "sitofp" if source.kind == "int" else "uitofp"
        if to.bits > 16:
            return self.convert(opcode, of, value, value_type(to))
        if source.is_bool or source.bits <= 16:
            return self.rounded(to, self.convert(opcode, of, value, vector_of("float", lanes)))
        if source.bits == 64:
            value = self._with_sticky_bit(source, value)
        double = self.convert(opcode, of, value, vector_of("double", lanes))
        return self.rounded(to, self.narrow_double(double, lanes))

    def _with_sticky_bit(self, source: DataType, value: str) -> str:
        """A 64-bit integer of more than 53 bits with its low 12 bits squeezed into one: then a
        double holds it.
        """
        of, lanes = value_type(source), source.lanes

        def const(number: int) -> str:
            return self.const(number, "i64", lanes)

        low = self.op("and", of, value, const(0xFFF))
        some = self.op("icmp ne", of, low, const(0))
        sticky = self.select(lanes, some, of, const(0x800), const(0))
        squeezed = self.op("or", of, self.op("and", of, value, const(-4096)), sticky)
        if source.kind == "int":
            shifted = self.op("add", of, value, const(1 << 53))
            is_large = self.op("icmp ugt", of, shifted, const(1 << 54))
        else:
            is_large = self.op("icmp ugt", of, value, const(1 << 53))
        return self.select(lanes, is_large, of, squeezed, value)


def _integer(value: str) -> int | None:
    if value.startswith("%"):
        return None
    if value.startswith("<"):
        # A splat: every element is written the same.
        value = value[1:-1].split(",", 1)[0].split()[1]
    return int(value) if value.lstrip("-").isdigit() else None
