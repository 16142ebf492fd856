"""Replace operations that the code generators do not know by ones they do.

    a // b          truncating division, corrected where the remainder's sign differs from the
                    divisor's
    a // 8          a shift                        a % 8        a mask
    sigmoid(x)      from exp(-|x|)                 exp10(x)     pow(10, x)
    rsqrt(x)        1 / sqrt(x)
    exp(x)          a formula of `tir/math.py` that can be vectorised; so for tanh, erf, log, sin
                    and others, of float32 and the 16-bit floats, and for exp of float64 (config
                    "tir.math_formulas"); for gelu, gelu_tanh, silu and mish always

The attribute "tir.fma" of a function says that its machine has FMA, which shortens some
formulas; code generators set it.

Integer results are exact. sigmoid is within 3, rsqrt within 2, exp10 within 2 units in the last
place of the exact value; the formulas are within the bounds that `tir/math.py` states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...arith import Analyzer
from ...ir import (
    GE,
    LT,
    NE,
    Add,
    And,
    Call,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    IRModule,
    Mod,
    Mul,
    PassContext,
    PrimExpr,
    Select,
    Sub,
    call_intrinsic,
    cast,
    const,
)
from ...ir.transform import prim_func_pass, register_config
from ...ir.walk import transform
from ..math import DOUBLES, FORMULAS, formula
from ..math_gates import GATES
from ..stmt import Buffer, PrimFunc
from .rewriter import ScopedRewriter, Steps

register_config(
    "tir.math_formulas",
    bool,
    True,
    "exp, tanh, erf, log, sin and others of float32 become formulas that can be vectorised, "
    "instead of calls of the C library",
)


# It runs under any numerics: what its formulas give is the machine's own, the same in every build.
@prim_func_pass(opt_level=0, numerics="approximate", obeys_numerics=True)
def LowerIntrin(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Lower floor division, the derived intrinsics, and elementary functions of float32."""
    fused = bool(fn.get_attr("tir.fma"))
    return _Lower(fn, bool(ctx.get("tir.math_formulas")), fused).on_function(fn)


class _Lower(ScopedRewriter):
    def __init__(self, fn: PrimFunc, formulas: bool, fused: bool) -> None:
        super().__init__(fn)
        self.formulas, self.fused = formulas, fused
        self._plain: set[int] = set()

    def expr(self, e: PrimExpr) -> PrimExpr:
        if self._is_plain(e):
            return e
        return lower_intrinsics(e, self.analyzer, self._memo, self.formulas, self.fused)

    def _is_plain(self, e: PrimExpr) -> bool:
        """Whether nothing in `e` is to be lowered. What unrolled copies share is looked at once."""
        plain = self._plain
        reached: list[Any] = [e]
        seen = {id(e)}
        for n in reached:  # which grows meanwhile
            if type(n) in _HANDLERS:
                return False
            for child in n._children_:
                key = id(child)
                if key not in plain and key not in seen and type(child) is not Buffer:
                    seen.add(key)
                    reached.append(child)
        plain |= seen
        return True

    def on_for(self, stmt: Any) -> Steps:
        self._memo = {}
        loop = yield from super().on_for(stmt)
        self._memo = {}
        return loop


def lower_intrinsics(
    e: PrimExpr,
    analyzer: Analyzer | None = None,
    memo: dict[int, tuple[Any, Any]] | None = None,
    formulas: bool = False,
    fused: bool = False,
) -> PrimExpr:
    """`e` in terms of operations that code generators know.

    analyzer  tells which values are not negative
    formulas  whether elementary functions of float32 are written out, too
    fused     whether the machine has `fma` as one operation
    """

    def post(n: Any) -> PrimExpr | None:
        if type(n) is Call:
            written = _formula(n, formulas, fused)
            if written is not None:
                return written
        return _HANDLERS[type(n)](n, analyzer)

    return transform(e, post, lambda n: n if type(n) is Buffer else None, memo, _ASKED)


def _not_negative(e: PrimExpr, analyzer: Analyzer | None) -> bool:
    if e.dtype.kind == "uint" or e.dtype.is_bool:
        return True
    if isinstance(e, IntImm):
        return e.value >= 0
    if analyzer is None or e.dtype.lanes != 1:
        return False
    return analyzer.const_int_bound(e).min_value >= 0


def _power_of_two(e: PrimExpr) -> int | None:
    value = e.value if isinstance(e, IntImm) else 0
    return value.bit_length() - 1 if value > 0 and value & (value - 1) == 0 else None


def _floor_div(n: FloorDiv, analyzer: Analyzer | None) -> PrimExpr:
    a, b, dtype = n.a, n.b, n.dtype
    if dtype.is_float:
        return call_intrinsic("floor", Div(a, b))
    if _not_negative(a, analyzer) and _not_negative(b, analyzer):
        return Div(a, b)
    shift = _power_of_two(b)
    if shift is not None:
        return call_intrinsic("shift_right", a, const(shift, dtype)) if shift else a
    quotient, remainder, zero = Div(a, b), Mod(a, b), const(0, dtype)
    return Select(_wrong_sign(remainder, b, zero), Sub(quotient, const(1, dtype)), quotient)


def _floor_mod(n: FloorMod, analyzer: Analyzer | None) -> PrimExpr:
    a, b, dtype = n.a, n.b, n.dtype
    if dtype.is_float:
        return Sub(a, Mul(b, call_intrinsic("floor", Div(a, b))))
    if _not_negative(a, analyzer) and _not_negative(b, analyzer):
        return Mod(a, b)
    shift = _power_of_two(b)
    if shift is not None:
        return call_intrinsic("bitwise_and", a, const((1 << shift) - 1, dtype))
    remainder, zero = Mod(a, b), const(0, dtype)
    return Select(_wrong_sign(remainder, b, zero), Add(remainder, b), remainder)


def _wrong_sign(remainder: PrimExpr, b: PrimExpr, zero: PrimExpr) -> PrimExpr:
    """Whether a truncating division rounded up: the remainder is not 0 and its sign is not the
    divisor's.
    """
    if isinstance(b, IntImm):
        return LT(remainder, zero) if b.value > 0 else LT(zero, remainder)
    signs = call_intrinsic("bitwise_xor", remainder, b)
    return And(NE(remainder, zero), LT(signs, zero))


def _call(n: Call, analyzer: Analyzer | None) -> PrimExpr | None:
    handler = _CALLS.get(getattr(n.op, "name", ""))
    return None if handler is None else handler(n)


def _in_float32(f: Callable[[PrimExpr], PrimExpr]) -> Callable[[Call], PrimExpr]:
    """The 16-bit types compute in float32 and round once."""

    def lower(n: Call) -> PrimExpr:
        (x,) = n.args
        if n.dtype.bits == 16:
            return Cast(
                n.dtype, f(cast(f"float32x{n.dtype.lanes}" if n.dtype.lanes > 1 else "float32", x))
            )
        return f(x)

    return lower


def _sigmoid(x: PrimExpr) -> PrimExpr:
    # exp of a negative number cannot overflow, so small results keep their digits.
    zero, one = const(0.0, x.dtype), const(1.0, x.dtype)
    e = call_intrinsic("exp", Sub(zero, call_intrinsic("fabs", x)))
    return Div(Select(GE(x, zero), one, e), Add(one, e))


def _rsqrt(x: PrimExpr) -> PrimExpr:
    return Div(const(1.0, x.dtype), call_intrinsic("sqrt", x))


def _exp10(x: PrimExpr) -> PrimExpr:
    return call_intrinsic("pow", const(10.0, x.dtype), x)


def _formula(n: Call, wanted: bool, fused: bool) -> PrimExpr | None:
    # The C library has no gates.
    name = getattr(n.op, "name", "").removeprefix("tir.")
    if name not in (DOUBLES if n.dtype.element == "float64" else FORMULAS if wanted else GATES):
        return None
    if not wanted and name not in GATES:
        return None
    return _in_float32(lambda x: formula(name, x, fused))(n)


_CALLS: dict[str, Callable[[Call], PrimExpr]] = {
    "tir.sigmoid": _in_float32(_sigmoid),
    "tir.rsqrt": _in_float32(_rsqrt),
    "tir.exp10": _in_float32(_exp10),
}

_HANDLERS: dict[type, Callable[[Any, Analyzer | None], PrimExpr | None]] = {
    FloorDiv: _floor_div,
    FloorMod: _floor_mod,
    Call: _call,
}
_ASKED = frozenset({Buffer, *_HANDLERS})
