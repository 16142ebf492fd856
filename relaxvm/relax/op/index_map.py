"""IndexMap: where each element of a tensor goes in another layout.

    IndexMap.from_func(lambda n, c, h, w: (n, c // 4, h, w, c % 4))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ...arith import Analyzer
from ...base import StructInfoError
from ...ir.expr import Add, Cast, FloorDiv, FloorMod, IntImm, Mul, PrimExpr, Sub, as_expr, cast, const
from ...ir.expr import Var as TirVar
from ...ir.node import Node, node
from ...ir.walk import substitute
from ..derive import prove_dims

__all__ = ["IndexMap"]

_Range = tuple[PrimExpr, PrimExpr]


@node
class IndexMap(Node):
    """From indices to indices: the element at `initial_indices` goes to `final_indices`."""

    initial_indices: tuple[TirVar, ...]
    final_indices: tuple[PrimExpr, ...]
    _defs_ = ("initial_indices",)

    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any], ndim: int | None = None, index_dtype: str = "int64"
    ) -> IndexMap:
        """The map that a Python function of the indices is; `ndim` says how many a ``*args`` takes."""
        names: list[str] = []
        variadic = False
        for p in inspect.signature(mapping_function).parameters.values():
            if p.kind is inspect.Parameter.VAR_POSITIONAL:
                variadic = True
            elif p.kind is not inspect.Parameter.VAR_KEYWORD:
                names.append(p.name)
        if variadic:
            if ndim is None:
                raise StructInfoError("index_map: takes any number of indices; the rank must be known")
            names += [f"i{k}" for k in range(len(names), ndim)]
        indices = tuple(TirVar(n, index_dtype) for n in names)
        made = mapping_function(*indices)
        final = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        return IndexMap(indices, tuple(as_expr(e, index_dtype) for e in final))

    def map_indices(self, indices: Sequence[Any]) -> list[PrimExpr]:
        """Where the element at `indices` goes."""
        if len(indices) != len(self.initial_indices):
            raise StructInfoError(
                f"index_map: wanted {len(self.initial_indices)} indices, got {len(indices)}"
            )
        given = {v: cast(v.dtype, as_expr(i)) for v, i in zip(self.initial_indices, indices)}
        return [substitute(e, given) for e in self.final_indices]

    def map_shape(self, shape: Sequence[Any]) -> list[PrimExpr]:
        """The smallest shape that holds every element of a tensor of `shape`.

        Raises StructInfoError if it cannot be told, or an index could be negative.
        """
        if len(shape) != len(self.initial_indices):
            raise StructInfoError(
                f"index_map: wanted {len(self.initial_indices)} dimensions, got {len(shape)}"
            )
        analyzer = Analyzer(wrap=False)
        dims = [cast("int64", as_expr(d, "int64")) for d in shape]
        zero = const(0, "int64")
        ranges = {v: (zero, analyzer.simplify(d - 1)) for v, d in zip(self.initial_indices, dims)}
        made = []
        for e in self.final_indices:
            low, high = _range_of(e, ranges, analyzer)
            if not (isinstance(low, IntImm) and low.value >= 0):
                raise StructInfoError(f"index_map: the index {e} may be negative")
            made.append(analyzer.simplify(high + 1))
        return made

    def is_bijective(self, shape: Sequence[Any]) -> bool:
        """Whether the new places are certainly as many as the elements (each is taken, if none is taken twice)."""
        have: PrimExpr = const(1, "int64")
        for d in shape:
            have = have * as_expr(d, "int64")
        want: PrimExpr = const(1, "int64")
        for d in self.map_shape(shape):
            want = want * d
        return prove_dims(have, want) is True and self._is_one_to_one(shape)

    def _is_one_to_one(self, shape: Sequence[Any]) -> bool:
        """Whether it is known that no place is taken twice: the indices are a permutation, or cut by // and % of one."""
        whole: set[TirVar] = set()
        parts: dict[TirVar, set[tuple[str, int]]] = {}
        for e in self.final_indices:
            if isinstance(e, TirVar):
                whole.add(e)
            elif isinstance(e, (FloorDiv, FloorMod)) and isinstance(e.a, TirVar) and isinstance(e.b, IntImm):
                kind = "div" if isinstance(e, FloorDiv) else "mod"
                parts.setdefault(e.a, set()).add((kind, e.b.value))
        return all(
            v in whole
            or any(("mod", c) in parts.get(v, ()) for kind, c in parts.get(v, ()) if kind == "div")
            for v in self.initial_indices
        )


def _range_of(e: PrimExpr, ranges: dict[Any, _Range], analyzer: Analyzer) -> _Range:
    """The least and the greatest value of an index expression; maps are small, so this recurses.

    Raises StructInfoError for an expression whose range is not found.
    """
    if isinstance(e, IntImm):
        return cast("int64", e), cast("int64", e)
    if isinstance(e, TirVar):
        return ranges[e] if e in ranges else (cast("int64", e), cast("int64", e))
    if isinstance(e, Cast):
        return _range_of(e.value, ranges, analyzer)
    if isinstance(e, (Add, Sub, Mul, FloorDiv, FloorMod)):
        (a, b), (c, d) = _range_of(e.a, ranges, analyzer), _range_of(e.b, ranges, analyzer)
        if isinstance(e, Add):
            return analyzer.simplify(a + c), analyzer.simplify(b + d)
        if isinstance(e, Sub):
            return analyzer.simplify(a - d), analyzer.simplify(b - c)
        if isinstance(c, IntImm) and c is d:
            if isinstance(e, Mul):
                low, high = (a, b) if c.value >= 0 else (b, a)
                return analyzer.simplify(low * c), analyzer.simplify(high * c)
            if c.value > 0 and isinstance(e, FloorDiv):
                return analyzer.simplify(a // c), analyzer.simplify(b // c)
            if c.value > 0:
                inside = analyzer.can_prove(a >= 0) and analyzer.can_prove(b < c)
                return (a, b) if inside else (const(0, "int64"), const(c.value - 1, "int64"))
        if isinstance(e, Mul) and a is b and isinstance(a, PrimExpr):
            return analyzer.simplify(a * c), analyzer.simplify(a * d)
    raise StructInfoError(f"index_map: cannot tell how large the index {e} may get")
