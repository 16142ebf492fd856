"""Residues: which numbers ``coeff * k + base`` can an expression be?"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TYPE_CHECKING, Any

from ..base import NamedTuple
from ..ir import (
    Add,
    Broadcast,
    Call,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Op,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    Var,
)
from .tree import is_scalar_int, scalar_post_order

if TYPE_CHECKING:
    from .analyzer import Analyzer


class ModularSet(NamedTuple):
    """The numbers ``coeff * k + base`` for all integers k; `coeff` 0: only `base`."""

    coeff: int
    base: int

    @staticmethod
    def of(coeff: int, base: int) -> ModularSet:
        """The set with its least description: 0 <= base < coeff."""
        coeff = abs(coeff)
        return ModularSet(coeff, base % coeff if coeff else base)

    def union(self, other: ModularSet) -> ModularSet:
        """The least set that covers both."""
        coeff = gcd(self.coeff, other.coeff, self.base - other.base)
        return ModularSet.of(coeff, self.base)

    def intersect(self, other: ModularSet) -> ModularSet:
        """What is in both (Chinese remainders); `self` if that is nothing."""
        a, b = (self, other) if self.coeff >= other.coeff else (other, self)
        if not b.coeff or not a.coeff:
            return self if not self.coeff else other
        shared = gcd(a.coeff, b.coeff)
        if (a.base - b.base) % shared:
            return self
        step = (b.base - a.base) // shared * pow(a.coeff // shared, -1, b.coeff // shared)
        whole = a.coeff // shared * b.coeff
        return ModularSet.of(whole, a.base + a.coeff * step)


EVERYTHING = ModularSet(1, 0)


def modular_set(known: Analyzer, expr: PrimExpr) -> ModularSet:
    """The residues of a scalar integer expression."""
    memo: dict[int, tuple[PrimExpr, ModularSet]] = {}
    for e in scalar_post_order(expr, memo):
        memo[id(e)] = (e, _one(known, e, lambda c: memo[id(c)][1]))
    return memo[id(expr)][1]


def assume(known: Analyzer, a: PrimExpr, b: PrimExpr) -> None:
    """Learn from a == b: ``x % c == r`` says which residue x has."""
    if isinstance(a, (FloorMod, Mod, Call)) and isinstance(b, IntImm):
        if isinstance(a, Call) and a.op is not _TRUNCMOD:
            return
        x, by = a.args if isinstance(a, Call) else (a.a, a.b)
        if isinstance(by, IntImm) and by.value > 0:
            residue = ModularSet.of(by.value, b.value)
            old = known._modular.get(x)
            known._modular[x] = residue if old is None else old.intersect(residue)


def _one(known: Analyzer, e: PrimExpr, of: Callable[[Any], ModularSet]) -> ModularSet:
    learned = known._modular.get(e)
    if learned is not None:
        return learned
    if isinstance(e, IntImm):
        return ModularSet(0, e.value)
    if isinstance(e, Var) and e in known._values:
        return modular_set(known, known._values[e])
    rule = _RULES.get(e.op if isinstance(e, Call) else type(e))
    if rule is None or not e.dtype.is_int:
        return EVERYTHING
    residue = rule(known, e, of)
    if isinstance(e, (Add, Sub, Mul)) and e.dtype.is_int and residue.coeff != 1:
        # Beyond the width only the powers of two in the residue are left.
        if not known._exact(known._poly(e) if is_scalar_int(e) else _NO_POLY, e):
            return ModularSet.of(gcd(residue.coeff, 1 << e.dtype.bits), residue.base)
    return residue


def _add(known: Analyzer, e: Any, of: Any) -> ModularSet:
    a, b = of(e.a), of(e.b)
    sign = 1 if isinstance(e, Add) else -1
    return ModularSet.of(gcd(a.coeff, b.coeff), a.base + sign * b.base)


def _mul(known: Analyzer, e: Mul, of: Any) -> ModularSet:
    a, b = of(e.a), of(e.b)
    coeff = gcd(a.coeff * b.coeff, a.coeff * b.base, a.base * b.coeff)
    return ModularSet.of(coeff, a.base * b.base)


def _floordiv(known: Analyzer, e: Any, of: Any) -> ModularSet:
    x, by = _operands(e)
    a, b = of(x), of(by)
    rounds_down = type(e) is FloorDiv or known.const_int_bound(x).min_value >= 0
    if b.coeff == 0 and b.base > 0 and a.coeff and a.coeff % b.base == 0:
        if rounds_down or a.base == 0:
            return ModularSet.of(a.coeff // b.base, a.base // b.base)
    return EVERYTHING


def _floormod(known: Analyzer, e: Any, of: Any) -> ModularSet:
    x, by = _operands(e)
    a, b = of(x), of(by)
    coeff = gcd(a.coeff, b.coeff, b.base)
    down = isinstance(e, FloorMod) or known.const_int_bound(x).min_value >= 0
    if b.base == b.coeff == 0 or not (down or (coeff and a.base % coeff == 0)):
        return EVERYTHING
    if b.coeff == 0 and down and a.coeff and a.coeff % b.base == 0:
        return ModularSet.of(b.base, a.base)
    return ModularSet.of(coeff, a.base)


def _operands(e: Any) -> Any:
    return e.args if isinstance(e, Call) else (e.a, e.b)


def _either(known: Analyzer, e: Any, of: Any) -> ModularSet:
    return of(e.a).union(of(e.b))


def _cast(known: Analyzer, e: Cast, of: Any) -> ModularSet:
    value = e.value
    if isinstance(value, Cast) and value.dtype.is_float:
        # There and back: exact for what the float has room for.
        room = {16: 11, 32: 24, 64: 53}.get(value.dtype.bits, 0)
        if value.dtype.kind != "float" or not value.value.dtype.is_int:
            return EVERYTHING
        bound = known.const_int_bound(value.value)
        exact = max(abs(bound.min_value), abs(bound.max_value)) <= 1 << room
        value = value.value
        if not exact or not bound.within(type(bound).of_dtype(e.dtype)):
            return EVERYTHING
        return of(value)
    if not (value.dtype.is_int and e.dtype.is_int):
        return EVERYTHING
    a: ModularSet = of(value)
    bound = known.const_int_bound(value)
    if bound.within(type(bound).of_dtype(e.dtype)):
        return a
    return ModularSet.of(gcd(a.coeff, 1 << e.dtype.bits), a.base)


def _select(known: Analyzer, e: Any, of: Any) -> ModularSet:
    yes, no = e.args[1:] if isinstance(e, Call) else (e.true_value, e.false_value)
    return of(yes).union(of(no))


def _shift(known: Analyzer, e: Call, of: Any) -> ModularSet:
    a, by = of(e.args[0]), e.args[1]
    if not isinstance(by, IntImm) or not 0 <= by.value < e.dtype.bits or a.coeff % (1 << by.value):
        return EVERYTHING
    return ModularSet.of(a.coeff >> by.value, a.base >> by.value)


def _mask(known: Analyzer, e: Call, of: Any) -> ModularSet:
    a, mask = of(e.args[0]), e.args[1]
    if not isinstance(mask, IntImm) or mask.value < 0 or mask.value & (mask.value + 1):
        return EVERYTHING
    return ModularSet.of(gcd(a.coeff, mask.value + 1), a.base)


def _let(known: Analyzer, e: Let, of: Any) -> ModularSet:
    value = of(e.value)
    old = known._modular.get(e.var)
    known._modular[e.var] = value
    try:
        return modular_set(known, e.body)
    finally:
        known._modular.pop(e.var)
        if old is not None:
            known._modular[e.var] = old


_TRUNCMOD = Op.get("tir.truncmod")
_NO_POLY: Any = None
_RULES: dict[Any, Callable[[Any, Any, Any], ModularSet]] = {
    Add: _add,
    Sub: _add,
    Mul: _mul,
    FloorDiv: _floordiv,
    Div: _floordiv,
    Op.get("tir.truncdiv"): _floordiv,
    FloorMod: _floormod,
    Mod: _floormod,
    _TRUNCMOD: _floormod,
    Min: _either,
    Max: _either,
    Cast: _cast,
    Select: _select,
    Op.get("tir.if_then_else"): _select,
    Op.get("tir.shift_right"): _shift,
    Op.get("tir.bitwise_and"): _mask,
    Let: _let,
    Broadcast: lambda known, e, of: of(e.value),
    Ramp: lambda known, e, of: ModularSet.of(
        gcd(of(e.base).coeff, of(e.stride).coeff, of(e.stride).base), of(e.base).base
    ),
}
