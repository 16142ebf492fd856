"""Register-level building blocks: typed instructions, narrow floats, casts, guarded integer
division.

Every function works on scalars and vectors.
"""

from __future__ import annotations

from ...base import SMALL_FLOATS, CodegenError, DataType
from ...base.llvm import Function, Operand, Value, constant, suffix_of, vector_of
from ...ir import wrap_int
from .machine import has_maximum
from .module import ModuleText
from .text import storage_type, value_type

# Bits of the mantissa, and what is added to the exponent.
_FORMATS = {"float": (10, 15), **SMALL_FLOATS}
_FLOAT_PREDICATE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


class Values:
    """Emits instructions into one function."""

    def __init__(self, module: ModuleText, text: Function) -> None:
        self.module = module
        self.text = text

    def const(self, number: int | float, element: str, lanes: int) -> Value:
        """A constant in every lane."""
        return constant(number, vector_of(element, lanes))

    # -- comparisons -------------------------------------------------------------------------------

    def compare(self, relation: str, dtype: DataType, a: Value, b: Operand) -> Value:
        """`relation` is eq, ne, lt, le, gt or ge."""
        if dtype.is_float:
            return self.text.op(f"fcmp {_FLOAT_PREDICATE[relation]}", a, b)
        if relation in ("eq", "ne"):
            return self.text.op(f"icmp {relation}", a, b)
        return self.text.op(f"icmp {('s' if dtype.kind == 'int' else 'u')}{relation}", a, b)

    def min_max(self, relation: str, dtype: DataType, a: Value, b: Operand) -> Value:
        """The lesser (`relation` lt) or greater (gt); NaN if either is NaN."""
        if dtype.is_float and has_maximum():
            # One use of each operand. Comparing and choosing takes three, and some of LLVM's
            # passes follow all paths through a chain: 3 ** n for n values.
            name = "llvm.maximum" if relation == "gt" else "llvm.minimum"
            return self.text.intrinsic(name, a, constant(b, a.type), flags="nsz")
        chosen = self.text.select(self.compare(relation, dtype, a, b), a, b)
        if not dtype.is_float:
            return chosen
        # An ordered comparison with NaN is false and chose b: right if b is the NaN.
        return self.text.select(self.text.op("fcmp uno", a, a), a, chosen)

    # -- integer division --------------------------------------------------------------------------

    def divide(self, dtype: DataType, a: Value, b: Value, remainder: bool) -> Value:
        """C's quotient or remainder; 0 where b is 0, and the least integer divided by -1 wraps."""
        if dtype.is_bool:
            return self.const(0, "i1", dtype.lanes) if remainder else self.text.op("and", a, b)
        signed = dtype.kind == "int"
        opcode = ("s" if signed else "u") + ("rem" if remainder else "div")
        known = _integer(b)
        if known is not None and known != 0 and not (signed and known == -1):
            return self.text.op(opcode, a, b)
        is_zero = self.text.op("icmp eq", b, 0)
        unsafe = is_zero
        if signed:
            is_least = self.text.op("icmp eq", a, int(dtype.min_value))
            is_minus_one = self.text.op("icmp eq", b, -1)
            unsafe = self.text.op("or", is_zero, self.text.op("and", is_least, is_minus_one))
        # Dividing by 1 instead gives what wrapping would: the least integer itself, and no
        # remainder.
        result = self.text.op(opcode, a, self.text.select(unsafe, 1, b))
        return self.text.select(is_zero, 0, result)

    def shift(self, dtype: DataType, a: Value, b: Value, left: bool) -> Value:
        """A shift by an amount taken as unsigned; too far gives 0, or the sign to the right."""
        if dtype.is_bool:
            return self.text.op("and", a, self.text.not_(b))
        known = _integer(b)
        if known is not None and 0 <= known < dtype.bits:
            right = "ashr" if dtype.kind == "int" else "lshr"
            return self.text.op("shl" if left else right, a, b)
        fits = self.text.op("icmp ult", b, dtype.bits)
        if not left and dtype.kind == "int":
            return self.text.op("ashr", a, self.text.select(fits, b, dtype.bits - 1))
        shifted = self.text.op("shl" if left else "lshr", a, b)
        return self.text.select(fits, shifted, 0)

    # -- floats of 16 bits and fewer ---------------------------------------------------------------

    def rounded(self, dtype: DataType, value: Value) -> Value:
        """A float register rounded to a float of 4, 8 or 16 bits; other dtypes pass through."""
        if not dtype.is_float or dtype.bits > 16:
            return value
        return self.from_bits(dtype, self.to_bits(dtype, value))

    def to_bits(self, dtype: DataType, value: Value) -> Value:
        """A float register rounded to nearest even, as the bits of a narrow float: i16, or i8. What
        is too large for a small one gives infinity or NaN: see `base.floats_to_bits`.
        """
        op, cast, select = self.text.op, self.text.cast, self.text.select
        lanes, name = dtype.lanes, dtype.kind
        ints, kept = vector_of("i32", lanes), vector_of(f"i{max(8, dtype.bits)}", lanes)
        if name == "float" and self.module.native_half:
            return cast("bitcast", cast("fptrunc", value, vector_of("half", lanes)), kept)
        bits = cast("bitcast", value, ints)
        if name == "bfloat":
            last = op("and", op("lshr", bits, 16), 1)
            up = op("add", op("add", bits, 0x7FFF), last)
            quiet = op("or", bits, 0x400000)
            chosen = select(op("fcmp uno", value, value), quiet, up)
            return cast("trunc", op("lshr", chosen, 16), kept)
        mantissa, bias = _FORMATS[name]
        size = op("and", bits, 0x7FFFFFFF)
        is_nan = op("icmp ugt", size, 0x7F800000)
        # Rebias the exponent and round, ties to even, carrying into the exponent.
        shift = 23 - mantissa
        odd: int | Value = op("and", op("lshr", size, shift), 1)
        if not mantissa:
            odd = 1  # between powers of two the greater one is taken
        half = (1 << (shift - 1)) - 1
        rebiased = op("add", size, ((bias - 127) << 23) + half)
        code = op("lshr", op("add", rebiased, odd), shift)
        if name == "float8_e8m0fnu":
            # Its least value, 2**-127, is subnormal among float32.
            above = cast("zext", op("icmp uge", size, 0x600000), ints)
            code = select(op("icmp ult", size, 1 << 23), above, code)
            wrong = op("or", op("icmp sle", bits, 0), is_nan)
            wrong = op("or", wrong, op("icmp ugt", code, 254))
            return cast("trunc", select(wrong, 255, code), kept)
        # Subnormal: such an addition makes the hardware round at the right bit, which ends in the
        # low bits.
        units = 24 - bias - mantissa
        added = op("fadd", cast("bitcast", size, vector_of("float", lanes)), 2.0**units)
        tiny = op("sub", cast("bitcast", added, ints), (127 + units) << 23)
        code = select(op("icmp ult", size, (128 - bias) << 23), tiny, code)
        sign = op("and", op("lshr", bits, 32 - dtype.bits), 1 << dtype.bits >> 1)
        if dtype.bits == 4:
            top, infinite, nan = 7, 7, 8
        elif name.endswith("uz"):
            top, infinite, nan = 127, 128, 128
            sign = select(op("icmp eq", code, 0), 0, sign)
        elif name.endswith("fn"):
            top, infinite, nan = 126, 127, 127
        else:
            infinite = _infinity(dtype)
            top, nan = infinite - 1, infinite | 1 << mantissa >> 1
        code = op("or", select(op("icmp ugt", code, top), infinite, code), sign)
        # Of these types, NaN has a sign in float16 only.
        wrong = op("or", sign, nan) if name == "float" else constant(nan, ints)
        return cast("trunc", select(is_nan, wrong, code), kept)

    def from_bits(self, dtype: DataType, bits: Value) -> Value:
        """The float register of the bits (i16 or i8) of a narrow float. Exact."""
        op, cast, select = self.text.op, self.text.cast, self.text.select
        lanes, name = dtype.lanes, dtype.kind
        floats, ints = vector_of("float", lanes), vector_of("i32", lanes)
        if name == "float" and self.module.native_half:
            return cast("fpext", cast("bitcast", bits, vector_of("half", lanes)), floats)
        wide = cast("zext", bits, ints)
        if name == "bfloat":
            return cast("bitcast", op("shl", wide, 16), floats)
        if name == "float8_e8m0fnu":
            chosen = select(op("icmp eq", wide, 0), 0x400000, op("shl", wide, 23))
            chosen = select(op("icmp eq", wide, 255), 0x7FC00000, chosen)
            return cast("bitcast", chosen, floats)
        mantissa, bias = _FORMATS[name]
        code = op("and", wide, (1 << dtype.bits >> 1) - 1)
        size = op("shl", code, 23 - mantissa)
        normal = op("add", size, (127 - bias) << 23)
        # Subnormal: the mantissa counts units of the least value.
        counted = op("fmul", cast("uitofp", code, floats), 2.0 ** (1 - bias - mantissa))
        tiny = cast("bitcast", counted, ints)
        chosen = select(op("icmp ult", code, 1 << mantissa), tiny, normal)
        # Of four bits, every code is a number.
        if name.endswith("fn") and dtype.bits > 4:
            chosen = select(op("icmp eq", code, 127), 0x7FC00000, chosen)
        elif not name.endswith(("fn", "uz")):
            infinite = _infinity(dtype)
            special = op("add", size, (255 - (infinite >> mantissa)) << 23)
            chosen = select(op("icmp uge", code, infinite), special, chosen)
        sign = op("shl", op("and", wide, 1 << dtype.bits >> 1), 32 - dtype.bits)
        chosen = op("or", chosen, sign)
        if name.endswith("uz"):
            chosen = select(op("icmp eq", wide, 128), 0x7FC00000, chosen)
        return cast("bitcast", chosen, floats)

    def narrow_double(self, value: Value, lanes: int) -> Value:
        """A double as a float rounded to odd, so that rounding it once more to 16 bits gives the
        nearest.
        """
        floats, doubles, ints = (vector_of(t, lanes) for t in ("float", "double", "i32"))
        single = self.text.cast("fptrunc", value, floats)
        back = self.text.cast("fpext", single, doubles)
        size, size_back = (self.text.intrinsic("llvm.fabs", v) for v in (value, back))
        too_large = self.text.op("fcmp ogt", size_back, size)
        inexact = self.text.op("fcmp one", size_back, size)
        bits = self.text.cast("bitcast", single, ints)
        toward_zero = self.text.op("sub", bits, self.text.cast("zext", too_large, ints))
        odd = self.text.op("or", toward_zero, self.text.cast("zext", inexact, ints))
        return self.text.cast("bitcast", odd, floats)

    # -- memory ------------------------------------------------------------------------------------

    def to_storage(self, dtype: DataType, value: Value) -> Value:
        """A register as memory holds it."""
        kept = vector_of(storage_type(dtype, self.module.native_half), dtype.lanes)
        if dtype.is_float and dtype.bits <= 16:
            halves = "half" in kept
            return self.text.cast("fptrunc", value, kept) if halves else self.to_bits(dtype, value)
        if dtype.is_bool or dtype.is_byte:
            return self.text.cast("zext", value, kept)
        return value

    def from_storage(self, dtype: DataType, value: Value) -> Value:
        """The register of what memory holds."""
        if dtype.kind == "bool":
            return self.text.op("icmp ne", value, 0)
        if dtype.is_float and dtype.bits <= 16:
            if "half" in value.type:
                return self.text.cast("fpext", value, value_type(dtype))
            return self.from_bits(dtype, value)
        if dtype.is_byte:
            return self.text.cast("trunc", value, value_type(dtype))
        return value

    # -- casts -------------------------------------------------------------------------------------

    def cast(self, source: DataType, to: DataType, value: Value) -> Value:
        """`value` converted by the rules at the top of `ir/expr.py`."""
        if source is to:
            return value
        result, lanes = value_type(to), to.lanes
        if to.is_bool:
            if source.is_float:
                return self.text.op("fcmp une", value, 0.0)
            return self.text.op("icmp ne", value, 0)
        if source.is_float:
            return self._from_float(source, to, value)
        if to.is_float:
            return self._int_to_float(source, to, value)
        if not (source.is_int or source.is_bool) or not to.is_int:
            raise CodegenError(f"no cast from {source} to {to}")
        known = _integer(value)
        if known is not None and lanes == 1:
            return constant(wrap_int(known, to), result)
        width = 1 if source.is_bool else source.bits
        opcode = "trunc" if to.bits < width else "sext" if source.kind == "int" else "zext"
        return self.text.cast(opcode, value, result)

    def _from_float(self, source: DataType, to: DataType, value: Value) -> Value:
        result, lanes = value_type(to), to.lanes
        if to.is_int:
            if self._saturates_by_hand(to):
                return self._saturated(source, to, value)
            name = "llvm.fptosi.sat" if to.kind == "int" else "llvm.fptoui.sat"
            suffix = f"{suffix_of(result)}.{suffix_of(value.type)}"
            return self.text.extern(result, f"{name}.{suffix}", value)
        if to.bits <= 16:
            return self.rounded(
                to, self.narrow_double(value, lanes) if source.bits == 64 else value
            )
        opcode = "fpext" if to.bits == 64 else "fptrunc"
        return self.text.cast(opcode, value, result)

    def _saturates_by_hand(self, to: DataType) -> bool:
        """Whether a float is brought into the limits of `to` by comparisons: LLVM does it lane by
        lane for x86, while aarch64 has an instruction for it.
        """
        fits = to.bits < 32 or (to.bits == 32 and to.kind == "int")
        return fits and not self.module.triple.startswith(("aarch64", "arm64"))

    def _saturated(self, source: DataType, to: DataType, value: Value) -> Value:
        """A float without its fraction as an integer of at most 32 bits, the nearest one there is;
        0 for NaN.
        """
        ints = vector_of("i32", to.lanes)
        low, high = float(to.min_value), float(to.max_value)
        if source.bits <= 32 and to.bits == 32:
            high = 2.0**31 - 2.0**7  # the last float32 below the limit
        is_number = self.text.op("fcmp ord", value, value)
        kept = self.text.select(is_number, value, 0.0)
        kept = self.text.select(self.text.op("fcmp ogt", kept, low), kept, low)
        kept = self.text.select(self.text.op("fcmp olt", kept, high), kept, high)
        rounded = self.text.cast("fptosi", kept, ints)
        if high != float(to.max_value):
            above = self.text.op("fcmp ogt", value, high)
            rounded = self.text.select(above, int(to.max_value), rounded)
        return self.text.cast("trunc", rounded, value_type(to))

    def _int_to_float(self, source: DataType, to: DataType, value: Value) -> Value:
        lanes = to.lanes
        opcode = "sitofp" if source.kind == "int" else "uitofp"
        if to.bits > 16:
            return self.text.cast(opcode, value, value_type(to))
        if source.is_bool or source.bits <= 16:
            return self.rounded(to, self.text.cast(opcode, value, vector_of("float", lanes)))
        if source.bits == 64:
            value = self._with_sticky_bit(source, value)
        double = self.text.cast(opcode, value, vector_of("double", lanes))
        return self.rounded(to, self.narrow_double(double, lanes))

    def _with_sticky_bit(self, source: DataType, value: Value) -> Value:
        """A 64-bit integer of more than 53 bits with its low 12 bits squeezed into one: then a
        double holds it.
        """
        low = self.text.op("and", value, 0xFFF)
        some = self.text.op("icmp ne", low, 0)
        sticky = self.text.select(some, constant(0x800, value.type), 0)
        squeezed = self.text.op("or", self.text.op("and", value, -4096), sticky)
        if source.kind == "int":
            shifted = self.text.op("add", value, 1 << 53)
            is_large = self.text.op("icmp ugt", shifted, 1 << 54)
        else:
            is_large = self.text.op("icmp ugt", value, 1 << 53)
        return self.text.select(is_large, squeezed, value)


def _infinity(dtype: DataType) -> int:
    """The code of infinity in a type that has one: all bits of the exponent."""
    mantissa, _ = _FORMATS[dtype.kind]
    return ((1 << dtype.bits >> 1) - 1) >> mantissa << mantissa


def _integer(constant_: Value) -> int | None:
    """The integer that a constant is in each lane."""
    if constant_.startswith("%"):
        return None
    # A splat: every element is written the same.
    text = constant_[1:-1].split(",", 1)[0].split()[1] if constant_[0] == "<" else str(constant_)
    return int(text) if text.lstrip("-").isdigit() else None
