"""IndexMap: where each element of a tensor goes in another layout.

IndexMap.from_func(lambda n, c, h, w: (n, c // 4, h, w, c % 4))
"""

from __future__ import annotations

import ast
import inspect
import keyword
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import tir
from ...arith import Analyzer
from ...base import ScheduleError, StructInfoError
from ...ir import (
    Add,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    Node,
    PrimExpr,
    Sub,
    Var,
    as_expr,
    cast,
    const,
    node,
    substitute,
    walk,
)
from ..derive import dims_equal

_Range = tuple[PrimExpr, PrimExpr]
_MAX_TEXT = 4000
_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: Add,
    ast.Sub: Sub,
    ast.Mult: Mul,
    ast.FloorDiv: FloorDiv,
    ast.Mod: FloorMod,
}
_ON_ARRAYS: dict[type[PrimExpr], Any] = {
    Add: np.add,
    Sub: np.subtract,
    Mul: np.multiply,
    FloorDiv: np.floor_divide,
    FloorMod: np.mod,
}
_SIGNS: dict[type[PrimExpr], str] = {Add: "+", Sub: "-", Mul: "*", FloorDiv: "//", FloorMod: "%"}


@node
class IndexMap(Node):
    """From indices to indices: the element at `initial_indices` goes to `final_indices`."""

    initial_indices: tuple[Var, ...]
    final_indices: tuple[PrimExpr, ...]
    _defs_ = ("initial_indices",)

    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any], ndim: int | None = None, index_dtype: str = "int64"
    ) -> IndexMap:
        """The map that a Python function of indices is; `ndim` says how many ``*args`` takes."""
        names: list[str] = []
        variadic = False
        try:
            parameters = inspect.signature(mapping_function).parameters
        except (TypeError, ValueError):
            raise StructInfoError(
                f"index_map: wanted a Python function of indices, got {mapping_function!r}"
            ) from None
        for p in parameters.values():
            if p.kind is inspect.Parameter.VAR_POSITIONAL:
                variadic = True
            elif p.kind is not inspect.Parameter.VAR_KEYWORD:
                names.append(p.name)
        if variadic:
            if ndim is None:
                raise StructInfoError(
                    "index_map: takes any number of indices; the rank must be known"
                )
            names += [f"i{k}" for k in range(len(names), ndim)]
        indices = tuple(Var(n, index_dtype) for n in names)
        try:
            made = mapping_function(*indices)
        except TypeError as error:
            raise StructInfoError(f"index_map: calling {mapping_function!r}: {error}") from None
        final = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        return IndexMap(indices, tuple(as_expr(e, index_dtype) for e in final))

    @staticmethod
    def from_text(text: str) -> IndexMap:
        """The map that a lambda is as text; nothing of it is run.

        Raises StructInfoError for anything else.
        """
        try:
            if len(text) > _MAX_TEXT:
                raise ValueError(f"longer than {_MAX_TEXT} characters")
            node = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise StructInfoError(f"index_map: {text[:80]!r} is no lambda: {error}") from None
        if not isinstance(node, ast.Lambda):
            raise StructInfoError(f'index_map: wanted "lambda i, j: (...)", got {text[:80]!r}')
        names = [a.arg for a in node.args.args]
        indices = tuple(Var(n, "int64") for n in names)
        env = dict(zip(names, indices))
        final = node.body.elts if isinstance(node.body, ast.Tuple) else [node.body]
        try:
            return IndexMap(indices, tuple(_parsed(e, env) for e in final))
        except RecursionError:
            raise StructInfoError(f"index_map: {text[:80]!r} is nested too deeply") from None

    def text(self) -> str:
        """The map as a lambda, which `from_text` reads."""
        names: dict[Any, str] = {}
        for k, v in enumerate(self.initial_indices):
            plain = v.name.isidentifier() and not keyword.iskeyword(v.name)
            names[v] = v.name if plain and v.name not in names.values() else f"i{k}_"
        final = ", ".join(_text_of(e, names) for e in self.final_indices)
        comma = "," if len(self.final_indices) == 1 else ""
        head = " ".join(["lambda", ", ".join(names.values())]).strip()
        return f"{head}: ({final}{comma})"

    @staticmethod
    def _normalise_(initial_indices: Any, final_indices: Any) -> tuple[Any, ...]:
        own = tuple(initial_indices)
        final = tuple(as_expr(e) for e in final_indices)
        for e in final:
            for n in walk(e):
                known = isinstance(n, (IntImm, *_OPERATORS.values())) or n in own
                if isinstance(n, PrimExpr) and not known:
                    raise StructInfoError(
                        f"index_map: an index is made of the old indices and integers by +, -, *, "
                        f"// and %, got {n} in {e}"
                    )
        return own, final

    def map_indices(self, indices: Sequence[Any]) -> list[PrimExpr]:
        """Where the element at `indices` goes."""
        if len(indices) != len(self.initial_indices):
            raise StructInfoError(
                f"index_map: wanted {len(self.initial_indices)} indices, got {len(indices)}"
            )
        given = {v: cast(v.dtype, as_expr(i)) for v, i in zip(self.initial_indices, indices)}
        analyzer = Analyzer(wrap=False)
        return [analyzer.simplify(substitute(e, given)) for e in self.final_indices]

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

    def places(self, shape: Sequence[int]) -> tuple[np.ndarray, ...]:
        """Where each element of an array of `shape` goes: the final indices, by initial ones."""
        at = dict(zip(self.initial_indices, np.indices(shape, sparse=True)))

        def value(e: PrimExpr) -> Any:
            if isinstance(e, IntImm):
                return np.asarray(e.value)
            if isinstance(e, Var):
                return at[e]
            binary: Any = e
            return _ON_ARRAYS[type(e)](value(binary.a), value(binary.b))

        with np.errstate(all="ignore"):
            return tuple(np.broadcast_to(value(e), shape) for e in self.final_indices)

    def inverse(self, shape: Sequence[Any]) -> Any:
        """The `tir.schedule.IndexMap` back; None unless it is shown that each place gets one
        element.
        """
        forth = tir.schedule.IndexMap(self.initial_indices, self.final_indices)
        dims = [cast("int64", as_expr(d, "int64")) for d in shape]
        try:
            # There, a block of fewer elements than it holds is smaller.
            if dims_equal(forth.map_shape(dims), self.map_shape(shape)) is not True:
                return None
            return forth.inverse(dims) if forth.is_bijective(dims) else None
        except ScheduleError:
            return None

    def is_bijective(self, shape: Sequence[Any]) -> bool:
        """Whether it is shown that each place gets one element."""
        return self.inverse(shape) is not None


def _parsed(e: ast.expr, names: dict[str, Var]) -> PrimExpr:
    """An index expression from its syntax; `ast.parse` limits how deep it is."""
    if isinstance(e, ast.Name) and e.id in names:
        return names[e.id]
    if isinstance(e, ast.Constant) and type(e.value) is int and abs(e.value) < 1 << 62:
        return const(e.value, "int64")
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
        return const(0, "int64") - _parsed(e.operand, names)
    if isinstance(e, ast.BinOp) and type(e.op) in _OPERATORS:
        operator: Any = _OPERATORS[type(e.op)]
        return operator(_parsed(e.left, names), _parsed(e.right, names))
    raise StructInfoError(
        f"index_map: an index is made of the old indices and integers by +, -, *, // and %, "
        f"got {ast.unparse(e)[:80]}"
    )


def _text_of(e: PrimExpr, names: dict[Any, str], inner: bool = False) -> str:
    if isinstance(e, IntImm):
        return str(e.value)
    if e in names:
        return names[e]
    binary: Any = e
    sign = _SIGNS[type(e)]
    made = f"{_text_of(binary.a, names, True)} {sign} {_text_of(binary.b, names, True)}"
    return f"({made})" if inner else made


def _range_of(e: PrimExpr, ranges: dict[Any, _Range], analyzer: Analyzer) -> _Range:
    """The least and the greatest value of an index expression; maps are small, so this recurses.

    Raises StructInfoError for an expression whose range is not found.
    """
    if isinstance(e, IntImm):
        return cast("int64", e), cast("int64", e)
    if isinstance(e, Var):
        return ranges[e]
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
                # A block has its full size however few elements there are: shapes must not depend
                # on whether a dimension is a symbol.
                return const(0, "int64"), const(c.value - 1, "int64")
        if isinstance(e, Mul) and a is b and isinstance(a, PrimExpr):
            return analyzer.simplify(a * c), analyzer.simplify(a * d)
    raise StructInfoError(f"index_map: cannot tell how large the index {e} may get")
