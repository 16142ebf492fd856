"""What a program has checked about dimensions, so that nothing is checked twice.

    require_equal(builder, [(n, m)])          a check that n is m, unless that is proven or known
    broadcast_dims(builder, [(n,), (m,)], …)  numpy's broadcast: a check, a symbol for the result

A fact holds from its check to the end of the scope that the check stands in, for all that comes
later there and in branches inside. Facts live in the builder's scopes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..base import UNKNOWN, StructInfoError
from ..ir import IntImm, PrimExpr, is_const, substitute, walk
from ..ir import Var as TirVar
from ..runtime import Builtins
from .expr import Call, ExternFunc, StringImm
from .rules import LowerBuilder
from .struct_info import ShapeExpr, ShapeStructInfo
from .symbols import plain_text, prove_dims, where

_BROADCAST = ExternFunc(Builtins.BROADCAST_SHAPE.name)
_PURE_PACKED = "relax.call_pure_packed"


class ShapeFacts:
    """The facts of one scope.

    equal   symbol -> the expression that it was checked to be equal to
    pairs   other pairs of expressions that were checked to be equal, by identity
    covers  broadcast dimension -> the dimensions that were checked to be it, or 1
    made    dimensions -> the broadcast of exactly these
    """

    __slots__ = ("covers", "equal", "made", "pairs")

    def __init__(self) -> None:
        self.equal: dict[TirVar, PrimExpr] = {}
        self.pairs: dict[tuple[int, int], tuple[PrimExpr, PrimExpr]] = {}
        self.covers: dict[PrimExpr, frozenset[PrimExpr]] = {}
        self.made: dict[frozenset[PrimExpr], PrimExpr] = {}


def require_equal(builder: LowerBuilder, pairs: Sequence[tuple[PrimExpr, PrimExpr]]) -> None:
    """Emit one check that the two of each pair are equal, for those that are not known to be so.

    The program stops with an error before any later kernel runs. Raises StructInfoError for two
    that never are.
    """
    known = list(builder.shape_facts())
    doubtful = []
    for a, b in pairs:
        same = prove_dims(a, b)
        if same is None and not _are_known_equal(known, a, b):
            doubtful.append((a, b))
        if same is False:
            call: Any = builder.legalising
            of = f"{call.op.short}: " if call is not None else ""
            raise StructInfoError(
                f"{of}sizes that must be equal never are: {plain_text(a)} and {plain_text(b)}"
                f"{where(getattr(call, 'span', UNKNOWN))}"
            )
    if not doubtful:
        return
    got = ShapeExpr([a for a, _ in doubtful])
    name, span, call = "", UNKNOWN, builder.legalising
    if call is not None:
        # The name is what a failed check tells of itself.
        name, span = f"{call.op.short.rpartition('.')[2]}_sizes", call.span
    builder.match_cast(got, ShapeStructInfo([b for _, b in doubtful]), name, span)
    for a, b in doubtful:
        _remember_equal(known, a, b)


def _are_equal(known: list[ShapeFacts], a: PrimExpr, b: PrimExpr) -> bool:
    return prove_dims(a, b) is True or _are_known_equal(known, a, b)


def _are_known_equal(known: list[ShapeFacts], a: PrimExpr, b: PrimExpr) -> bool:
    if any((id(a), id(b)) in facts.pairs for facts in known):
        return True
    a, b = (_in_known_terms(known, e) for e in (a, b))
    return prove_dims(a, b) is True


def _in_known_terms(known: list[ShapeFacts], expr: PrimExpr) -> PrimExpr:
    if isinstance(expr, IntImm) or not any(facts.equal for facts in known):
        return expr
    values = {}
    for n in (expr,) if isinstance(expr, TirVar) else walk(expr):
        if isinstance(n, TirVar):
            for facts in known:
                if n in facts.equal:
                    values[n] = facts.equal[n]
                    break
    return substitute(expr, values) if values else expr


def _remember_equal(known: list[ShapeFacts], a: PrimExpr, b: PrimExpr) -> None:
    here = known[0]
    here.pairs[id(a), id(b)] = here.pairs[id(b), id(a)] = (a, b)
    a, b = (_in_known_terms(known, e) for e in (a, b))
    if not isinstance(a, TirVar):
        a, b = b, a
    if not isinstance(a, TirVar) or a is b or any(n is a for n in walk(b)):
        return
    # What is written in terms of `a` so far is from here on written in terms of `b`.
    for symbol, value in list(here.equal.items()):
        here.equal[symbol] = substitute(value, {a: b})
    here.equal[a] = b


def broadcast_dims(
    builder: LowerBuilder, shapes: Sequence[Sequence[PrimExpr]], what: str
) -> tuple[PrimExpr, ...]:
    """The dimensions of numpy's broadcast of `shapes`, when the program runs.

    What depends on which symbols turn out to be 1 gets a symbol of its own; the program checks that
    the broadcast exists. `what` says whose shapes these are, for the message.
    """
    known = list(builder.shape_facts())
    ndim = max(map(len, shapes), default=0)
    widest: list[PrimExpr | None] = []
    parts: list[list[PrimExpr]] = []
    for k in range(-ndim, 0):
        parts.append(_distinct(known, [s[k] for s in shapes if len(s) >= -k]))
        widest.append(_widest(known, parts[-1]))
    if any(d is None for d in widest):
        exprs = [ShapeExpr(s) for s in shapes]
        info = ShapeStructInfo(ndim=ndim)
        args = (_BROADCAST, *exprs, StringImm(what))
        shape = builder.emit(Call(_PURE_PACKED, args, None, (info,)))
        dims = [_decided(parts[k], k) if d is None else d for k, d in enumerate(widest)]
        builder.match_cast(shape, ShapeStructInfo(dims))
        for k, d in enumerate(dims):
            if widest[k] is None:
                known[0].made[frozenset(parts[k])] = d
                covered = known[0].covers.get(d, frozenset())
                known[0].covers[d] = covered | _everything_in(known, parts[k])
        widest = list(dims)
    return tuple(d for d in widest if d is not None)


def _distinct(known: list[ShapeFacts], dims: list[PrimExpr]) -> list[PrimExpr]:
    """The dimensions that count: no ones, and of equal ones the first."""
    distinct: list[PrimExpr] = []
    for dim in dims:
        one = is_const(dim, 1)
        if not one and not any(_are_equal(known, dim, other) for other in distinct):
            distinct.append(dim)
    return distinct or dims[:1]


def _widest(known: list[ShapeFacts], dims: list[PrimExpr]) -> PrimExpr | None:
    """The dimension that is sure to be the broadcast of all; None if that is not known."""
    if len(dims) == 1:
        return dims[0]
    for facts in known:
        widest = facts.made.get(frozenset(dims))
        if widest is not None:
            return widest
    for dim in dims:
        for facts in known:
            covered = facts.covers.get(dim, frozenset())
            if covered and all(other is dim or other in covered for other in dims):
                return dim
    return None


def _decided(dims: list[PrimExpr], axis: int) -> PrimExpr:
    """What a broadcast in doubt is if it exists: the size among `dims`, else a new symbol."""
    size = next((d for d in dims if isinstance(d, IntImm)), None)
    return TirVar(f"d{axis}", "int64") if size is None else size


def _everything_in(known: list[ShapeFacts], dims: list[PrimExpr]) -> frozenset[PrimExpr]:
    covered = set(dims)
    for dim in dims:
        for facts in known:
            covered |= facts.covers.get(dim, frozenset())
    return frozenset(covered)


def facts_of(scopes: Sequence[Any]) -> Iterator[ShapeFacts]:
    """The facts that hold in the innermost of `scopes`, nearest first."""
    for scope in reversed(scopes):
        if scope.facts is None:
            scope.facts = ShapeFacts()
        yield scope.facts
        if scope.barrier:
            return
