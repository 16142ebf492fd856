"""`Op`: the object a call points to, and the intrinsics of the scalar language.

Graph operators (`relax.op`) are `Op`s with more rules. The intrinsics here are what a scalar
expression may call:
their names, arity and result types. What they mean is in `tir/interp.py`, how they are emitted in
`target/`.
"""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

from ..base import DataType, TIRError, did_you_mean
from .node import Node

# TVM's names of attributes: fields of the records.
_RECORD = {
    "FInferStructInfo": "infer",
    "FLegalize": "lower",
    "FPrimalGradient": "grad",
    "FPurity": "pure",
    "FRelaxInferLayout": "layout",
    "FDecompose": "decompose",
    "TCallEffectKind": "effect",
    "TScriptPrinterName": "name",
}


class Op(Node):
    """A named operation. One object per name; `Op.get(name)` finds it."""

    __slots__ = ("_more", "name")
    name: str
    _more: dict[str, Any]
    _table: ClassVar[dict[str, Op]] = {}
    _type_key: ClassVar[str] = "ir.Op"

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TIRError(f"an operation has a name, got {type(name).__name__}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "_more", {})
        if Op._table.setdefault(name, self) is not self:
            raise TIRError(f"an operation named {name!r} exists already")

    @staticmethod
    def get(name: str) -> Op:
        """The operation of that name, as in ``Op.get("tir.exp")``. Raises TIRError if there is
        none.
        """
        if not isinstance(name, str):
            raise TIRError(f"an operation has a name, got {type(name).__name__}")
        op = Op._table.get(name)
        if op is None and name.startswith("relax."):
            # The room above that has them, if nobody needed it yet.
            importlib.import_module("relaxvm.relax.op")
            op = Op._table.get(name)
        if op is None:
            # Files of before say where an operator of Relay's is from.
            op = Op._table.get(name.removeprefix("relay."))
        if op is None:
            raise TIRError(f"no operation is named {name!r}{did_you_mean(name, Op._table)}")
        return op

    @staticmethod
    def list_op_names() -> list[str]:
        """The names of all operations known so far."""
        return sorted(Op._table)

    @property
    def num_inputs(self) -> int:
        """How many arguments a call has, attributes aside; -1 if that differs."""
        return -1

    def get_attr(self, attr_name: str) -> Any:
        """What is known of the operation under TVM's name of the attribute, None if nothing is: a
        part of its record ("FPurity", "FInferStructInfo", "FLegalize", ...), or what users set.
        """
        if attr_name in self._more:
            return self._more[attr_name]
        return getattr(self, _RECORD.get(attr_name, ""), None)

    def has_attr(self, attr_name: str) -> bool:
        """Whether something is known under that name."""
        return self.get_attr(attr_name) is not None

    def set_attr(self, attr_name: str, value: Any, plevel: int = 10) -> None:
        """Let `get_attr` give `value`. The compiler's own rules stay what the record says."""
        self._more[attr_name] = value

    def reset_attr(self, attr_name: str) -> None:
        """Forget what `set_attr` said."""
        self._more.pop(attr_name, None)

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Op.get, (self.name,))


class Intrinsic(Op):
    """An operation of the scalar language.

    arity    number of arguments, or None for any
    result   "same" (dtype of the first argument), "bool", "float" (same, and must be floating),
             "int" (same, integer),
             "int32" (of integers), or "given" (the call says)
    effect   "pure", "read" (depends on memory), "check" (may leave with a failure, else pure) or
             "opaque" (may write or leave)
    """

    __slots__ = ("arity", "effect", "result")
    arity: int | None
    result: str
    effect: str

    def __init__(self, name: str, arity: int | None, result: str, effect: str = "pure") -> None:
        super().__init__(name)
        object.__setattr__(self, "arity", arity)
        object.__setattr__(self, "result", result)
        object.__setattr__(self, "effect", effect)

    @property
    def num_inputs(self) -> int:
        """How many arguments a call has; -1 if that differs."""
        return -1 if self.arity is None else self.arity


_FLOAT_UNARY = (
    "exp exp2 exp10 log log2 log10 log1p expm1 sqrt rsqrt tanh sigmoid erf erfc sin cos tan asin "
    "acos atan sinh cosh asinh acosh atanh gelu gelu_tanh silu mish"
).split()
_ROUNDING = "floor ceil round nearbyint trunc".split()
_FLOAT_BINARY = "pow atan2 fmod copysign hypot nextafter".split()
_INT_BINARY = "bitwise_and bitwise_or bitwise_xor shift_left shift_right".split()
_INT_UNARY = "bitwise_not popcount".split()

INTRINSICS: dict[str, Intrinsic] = {}


def _declare(names: list[str], arity: int | None, result: str, effect: str = "pure") -> None:
    for name in names:
        INTRINSICS[name] = Intrinsic(f"tir.{name}", arity, result, effect)


_declare(_FLOAT_UNARY, 1, "float")
_declare(_ROUNDING, 1, "same")
_declare(["fabs"], 1, "same")  # also T.abs; integers too
_declare(_FLOAT_BINARY, 2, "float")
_declare(["ldexp"], 2, "float")
_declare(["fma", "muladd"], 3, "float")
_declare(_INT_BINARY, 2, "int")
_declare(_INT_UNARY, 1, "int")
_declare(["clz"], 1, "int32")
_declare(["isnan", "isinf", "isfinite"], 1, "bool")
_declare(["truncdiv", "truncmod"], 2, "int")  # C's integer division, kept apart from Div of floats
_declare(["reinterpret"], 1, "given")
_declare(["dot_accumulate"], 3, "given")  # each lane of the first, plus products of 2 or 4 lanes
_declare(["if_then_else"], 3, "given")  # evaluates only the taken side
_declare(["likely", "ignore_loop_partition"], 1, "same")
_declare(["assume"], 1, "bool", "opaque")
_declare(["ret"], 1, "given", "opaque")
_declare(["undef"], 0, "given")
_declare(["vectorlow", "vectorhigh"], 1, "given")
_declare(["call_extern", "call_pure_extern"], None, "given", "opaque")
_declare(["call_llvm_intrin", "call_llvm_pure_intrin"], None, "given", "opaque")
_declare(["bound_check"], 3, "given", "check")  # an index, its limit, what to say otherwise
_declare(["address_of"], 1, "given", "read")
_declare(["tvm_access_ptr"], 5, "given", "read")


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Set an attribute of the operation `op_name` for `Op.get_attr`; without `value`, a decorator
    of what it shall be.

    Raises TIRError if there is no such operation.
    """

    def register(what: Any) -> Any:
        Op.get(op_name).set_attr(attr_key, what, level)
        return what

    return register if value is None else register(value)


def intrinsic(name: str) -> Intrinsic:
    """The intrinsic `name` (without the ``tir.`` prefix). Raises TIRError if there is none."""
    entry = INTRINSICS.get(name)
    if entry is None:
        raise TIRError(f"no intrinsic is named {name!r}")
    return entry


def intrinsic_dtype(op: Intrinsic, args: tuple[Any, ...]) -> DataType | None:
    """The result dtype of `op` on `args`, or None where the call must say. Raises TIRError if they
    do not fit.
    """
    if op.arity is not None and len(args) != op.arity:
        raise TIRError(f"{op.name} takes {op.arity} arguments, got {len(args)}")
    if op.result == "given":
        return None
    first: DataType = args[0].dtype
    if op.result == "bool":
        return DataType("bool").with_lanes(first.lanes)
    if op.result == "float" and not first.is_float:
        raise TIRError(
            f"{op.name} takes floating arguments, got {first}; cast first, as in "
            f'T.Cast("float32", x)'
        )
    if first.is_small_float and op.result != "bool" and op.name != "tir.likely":
        raise TIRError(f"{op.name} of {first}: it has no arithmetic; cast it to float32")
    if op.result in ("int", "int32") and not (first.is_int or first.is_bool):
        raise TIRError(f"{op.name} takes integer arguments, got {first}")
    return DataType("int32").with_lanes(first.lanes) if op.result == "int32" else first


def bound_failure(name: str) -> str:
    """What a `bound_check` of `name` says when it fails."""
    return name if " " in name else f"access of buffer {name} out of bounds"


def why_no_dot(result: DataType, acc: DataType, a: DataType, b: DataType) -> str | None:
    """What is wrong with the dtypes of a `dot_accumulate`; None if nothing is."""
    if result is not acc:
        return f"gives {result}, adds to {acc}"
    group = a.lanes // acc.lanes
    if a.lanes != b.lanes or group not in (2, 4) or group * acc.lanes != a.lanes:
        return f"wanted 2 or 4 lanes for each of the {acc.lanes} of {acc}, got {a} and {b}"
    if acc.element == "int32":
        fits = all(d.is_int and d.bits in (8, 16) for d in (a, b))
    else:
        fits = acc.element == "float32" and a is b and a.is_float and a.bits == 16
    return None if fits else f"no sums of products of {a} and {b} in {acc}"
