"""Sizes that depend on symbols, as polynomials: so that they can be added up, compared and shown.

What is no sum of products (``n // 2``, ``min(n, m)``) stands as one unit in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..base import VMError
from .dims import Dim, Scalar, evaluate, fold, format_dim, symbols_of

Atom = tuple[int | float | str, ...]
Monomial = tuple[Atom, ...]
_MAX_TERMS = 64
_MAX_ITEMS = 512
_MAX_COEFFICIENT = 1 << 64


class Formula:
    """An integer polynomial over dimensions: {product of units: coefficient}. Does not change."""

    __slots__ = ("_hash", "terms")

    terms: dict[Monomial, int]

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = {m: c for m, c in sorted(terms.items(), key=_order) if c}
        self._hash = hash(tuple(self.terms.items()))

    @classmethod
    def of(cls, value: int) -> Formula:
        """A number."""
        return cls({(): value})

    @classmethod
    def symbol(cls, name: str) -> Formula:
        """The symbol `name`."""
        return cls({((f"${name}",),): 1})

    @classmethod
    def from_dim(cls, dim: Dim, symbols: Mapping[str, Formula] | None = None) -> Formula | None:
        """`dim`, its symbols replaced by what `symbols` says; None if that is unknown or too
        long.
        """
        return fold(
            dim,
            lambda value: cls.of(value) if isinstance(value, int) else None,
            cls.symbol if symbols is None else symbols.get,
            _apply,
        )

    @property
    def constant(self) -> int | None:
        """The number it is, None if it depends on symbols."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the symbols in it."""
        names = (s for m in self.terms for atom in m for s in symbols_of(atom))
        return tuple(dict.fromkeys(names))

    def __add__(self, other: Formula) -> Formula:
        terms = dict(self.terms)
        for m, c in other.terms.items():
            terms[m] = terms.get(m, 0) + c
        return Formula(terms)

    def __mul__(self, other: Formula) -> Formula:
        terms: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                key = tuple(sorted((*m, *n), key=repr))
                terms[key] = terms.get(key, 0) + c * d
        return Formula(terms)

    def times(self, other: Formula) -> Formula | None:
        """The product; None if it grows too long."""
        if len(self.terms) * len(other.terms) > _MAX_TERMS:
            return None
        product = self * other
        return product if product._is_small() else None

    def _is_small(self) -> bool:
        return len(self.terms) <= _MAX_TERMS and all(
            abs(c) <= _MAX_COEFFICIENT and sum(map(len, m)) <= _MAX_ITEMS
            for m, c in self.terms.items()
        )

    def scaled(self, factor: int) -> Formula:
        """`factor` times this."""
        return Formula({m: c * factor for m, c in self.terms.items()})

    def substitute(self, symbols: Mapping[str, Formula]) -> Formula | None:
        """This with every symbol replaced; None if one is not in `symbols` or it grows too
        long.
        """
        return Formula.from_dim(self.to_dim(), symbols)

    def at_most(self, other: Formula) -> bool:
        """Whether this is surely at most `other`, symbols being sizes: at least 0."""
        for m in {**self.terms, **other.terms}:
            mine, its = self.terms.get(m, 0), other.terms.get(m, 0)
            if mine > its or (mine < its and any(len(atom) > 1 for atom in m)):
                return False
        return True

    def to_dim(self) -> Dim:
        """As a dimension."""
        constant = self.constant
        if constant is not None:
            return constant
        out: list[int | float | str] = []
        for m, c in self.terms.items():
            size = abs(c)
            factors: list[Atom] = [*m] if size == 1 and m else [(size,), *m]
            # Only the first term keeps its sign; the others are added or subtracted.
            if not out and c < 0:
                factors[:0] = [] if factors[0] == (size,) else [(1,)]
                factors[0] = (-size,)
            first = not out
            for i, atom in enumerate(factors):
                out.extend(atom)
                if i:
                    out.append("*")
            if not first:
                out.append("+" if c > 0 else "-")
        return tuple(out)

    def evaluate(self, symbols: Mapping[str, Scalar]) -> int:
        """Its value. Raises VMValueError for a symbol that is not given."""
        total = 0
        for m, c in self.terms.items():
            for atom in m:
                c *= int(evaluate(atom, symbols))
            total += c
        return total

    def __eq__(self, other: object) -> bool:
        return type(other) is Formula and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return format_dim(self.to_dim())

    def __repr__(self) -> str:
        return f"Formula({self})"


def _order(term: tuple[Monomial, int]) -> tuple[int, str]:
    """Higher powers first, the constant last, names in order; positive terms before others."""
    m, c = term
    return (-len(m) if c > 0 or not m else 1, repr(m))


def _apply(name: str, known: list[Formula | None]) -> Formula | None:
    operands = [operand for operand in known if operand is not None]
    if len(operands) < len(known):
        return None
    if name == "neg":
        return operands[0].scaled(-1)
    if name in ("+", "-", "*"):
        a, b = operands
        if name == "*":
            return a.times(b)
        total = a + (b if name == "+" else b.scaled(-1))
        return total if total._is_small() else None
    program: list[int | float | str] = []
    for operand in operands:
        dim = operand.to_dim()
        program.extend(dim if isinstance(dim, tuple) else (dim,))
    program.append(name)
    if all(operand.constant is not None for operand in operands):
        try:
            return Formula.of(int(evaluate(tuple(program), {})))
        except VMError:
            # The program will say so when it runs.
            return None
    return Formula({(tuple(program),): 1}) if len(program) <= _MAX_ITEMS else None


class Peak:
    """The largest of several formulas."""

    __slots__ = ("candidates",)

    def __init__(self, candidates: Iterable[Formula]) -> None:
        kept: list[Formula] = []
        distinct = dict.fromkeys(candidates)
        for f in sorted(distinct, key=_by_weight):
            # Beyond a few, looking for what another one covers costs more than it saves.
            if len(kept) > _MAX_TERMS or not any(f.at_most(other) for other in kept):
                kept.append(f)
        self.candidates = tuple(kept) or (Formula.of(0),)

    @property
    def constant(self) -> int | None:
        """The number it is, None if it depends on symbols."""
        return self.candidates[0].constant if len(self.candidates) == 1 else None

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the symbols in it."""
        return tuple(dict.fromkeys(s for f in self.candidates for s in f.symbols))

    def evaluate(self, symbols: Mapping[str, Scalar]) -> int:
        """Its value. Raises VMValueError for a symbol that is not given."""
        return max(f.evaluate(symbols) for f in self.candidates)

    def bound(self) -> Formula:
        """One formula that is at least every candidate, units being sizes: at least 0."""
        keys = {m for f in self.candidates for m in f.terms}
        return Formula({m: max(f.terms.get(m, 0) for f in self.candidates) for m in keys})

    def __str__(self) -> str:
        texts = [str(f) for f in self.candidates]
        if len(texts) == 1:
            return texts[0]
        left_out = len(texts) - _SHOWN
        more = f", ... {left_out} more" if left_out > 0 else ""
        return f"max({', '.join(texts[:_SHOWN])}{more})"

    def __repr__(self) -> str:
        return f"Peak({self})"


_SHOWN = 6


def _by_weight(f: Formula) -> tuple[bool, int, int]:
    """What may cover others first; a number last."""
    return (f.constant is not None, -len(f.terms), -sum(f.terms.values()))
