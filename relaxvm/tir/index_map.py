"""Index maps: how the indices of one layout become those of another.

IndexMap.from_func(lambda n, c, h, w: (n, c // 4, h, w, c % 4))
"""

from __future__ import annotations

import ast
import inspect
import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arith import Analyzer, IterMapper, IterMark, IterSumExpr, number_of
from ..base import DataType, ScheduleError, StructInfoError
from ..ir import (
    Add,
    Cast,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    Node,
    Or,
    PrimExpr,
    Range,
    Sub,
    Var,
    as_expr,
    binary,
    cast,
    children,
    const,
    node,
    substitute,
    walk,
)
from ..ir.walk import transform
from ..runtime import NDArray
from ..runtime import array as as_array
from .interp import evaluate_expr

AXIS_SEPARATOR = "axis_separator"
_Range = tuple[PrimExpr, PrimExpr]


class IndexMapError(ScheduleError, StructInfoError):
    """What is no index map, or one that is not shown to do what is asked of it."""


@node(key="relax.IndexMap")  # saved so before loop functions had the same
class IndexMap(Node):
    """``initial_indices -> final_indices``: the element at the first goes to the second.

    initial_indices        the variables
    final_indices          expressions over them
    inverse_index_map      the map back, or a function that gives it (default: it is computed).
                           Whatever needs the inverse raises IndexMapError unless this map is shown
                           to give back every index of the sizes at hand.
    axis_separators        positions among the final indices between which memory may be laid out in
                           several physical dimensions
    """

    initial_indices: tuple[Var, ...]
    final_indices: tuple[PrimExpr, ...]
    inverse_index_map: IndexMap | None = None
    axis_separators: tuple[int, ...] = ()
    _defs_ = ("initial_indices",)

    AXIS_SEPARATOR = AXIS_SEPARATOR

    if TYPE_CHECKING:

        def __init__(
            self,
            initial_indices: Sequence[Var],
            final_indices: Sequence[PrimExpr],
            inverse_index_map: Any = ...,
            axis_separators: Sequence[int] = ...,
        ) -> None: ...

    @staticmethod
    def _normalise_(
        initial_indices: Sequence[Var],
        final_indices: Sequence[Any],
        inverse_index_map: Any,
        axis_separators: Sequence[int],
    ) -> tuple[Any, ...]:
        initial = tuple(initial_indices)
        final = tuple(as_expr(e) for e in final_indices)
        back = inverse_index_map
        if callable(back):
            dtype = str(initial[0].dtype) if initial else "int32"
            back = IndexMap.from_func(back, len(final), index_dtype=dtype)
        if back is not None and not isinstance(back, IndexMap):
            raise IndexMapError(
                "index_map: inverse_index_map is an IndexMap or a function of indices, got "
                f"{type(back).__name__}"
            )
        if back is not None:
            takes, gives = len(back.initial_indices), len(back.final_indices)
            if (takes, gives) != (len(final), len(initial)):
                names = ", ".join(v.name for v in initial)
                raise IndexMapError(
                    f"index_map: the inverse of {_lambda(names, map(str, final))} takes "
                    f"{len(final)} indices and gives {len(initial)}, got {back}"
                )
        return initial, final, back, tuple(axis_separators)

    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: Any = None,
        *,
        index_dtype: str = "int32",
    ) -> IndexMap:
        """The map that a Python function of variables gives: ``lambda i, j: (i // 4, j, i % 4)``.

        ndim  the number of indices, where the function takes ``*indices``
        """
        index_map, separators = IndexMap.from_func_with_separators(
            mapping_function, ndim, inverse_index_map, index_dtype=index_dtype
        )
        if separators:
            raise IndexMapError("index_map: use from_func_with_separators for axis separators")
        return index_map

    @staticmethod
    def from_func_with_separators(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: Any = None,
        *,
        index_dtype: str = "int32",
    ) -> tuple[IndexMap, list[int]]:
        """As `from_func`; also the positions of `AXIS_SEPARATOR` among the results."""
        names: list[str] = []
        last: list[str] = []  # after ``*indices``
        try:
            every = inspect.signature(mapping_function).parameters.values()
        except (TypeError, ValueError):
            raise IndexMapError(
                f"index_map: wanted a Python function of indices, got {mapping_function!r}"
            ) from None
        for p in every:
            if p.kind is p.VAR_POSITIONAL:
                if ndim is None:
                    raise IndexMapError("index_map: a function of *indices needs ndim")
                more = sum(q.kind is q.KEYWORD_ONLY for q in every)
                names += [f"{p.name}_{k}" for k in range(ndim - len(names) - more)]
            elif p.kind is p.VAR_KEYWORD:
                raise IndexMapError(f"index_map: what **{p.name} takes has no order")
            else:
                (last if p.kind is p.KEYWORD_ONLY else names).append(p.name)
        if ndim is not None and len(names) + len(last) != ndim:
            raise IndexMapError(
                f"index_map: wanted {ndim} indices, the function takes {len(names) + len(last)}"
            )
        variables = [Var(n, DataType(index_dtype)) for n in (*names, *last)]
        by_name = dict(zip(last, variables[len(names) :]))
        try:
            result = mapping_function(*variables[: len(names)], **by_name)
        except TypeError as error:
            raise IndexMapError(f"index_map: calling {mapping_function!r}: {error}") from None
        final: list[Any] = []
        separators: list[int] = []
        for e in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(e, str) and e == IndexMap.AXIS_SEPARATOR:
                separators.append(len(final))
            elif isinstance(e, float):
                final.append(const(e, "float64"))
            elif isinstance(e, PrimExpr) or hasattr(e, "__index__"):
                final.append(as_expr(e, index_dtype))
            else:
                raise IndexMapError(f"index_map: wanted index expressions, got {e!r}")
        return IndexMap(variables, final, inverse_index_map, separators), separators

    @staticmethod
    def from_text(text: str, *, index_dtype: str = "int32") -> IndexMap:
        """The map that a lambda is as text; nothing of it is run. Raises IndexMapError for more
        than its variables, numbers, and + - * // %.
        """
        return IndexMap.from_func(read_lambda(text), index_dtype=index_dtype)

    def text(self) -> str:
        """The map as a lambda, which `from_text` reads."""
        names: dict[Any, str] = {}
        for k, v in enumerate(self.initial_indices):
            plain = v.name.isidentifier() and not keyword.iskeyword(v.name)
            names[v] = v.name if plain and v.name not in names.values() else f"i{k}_"
        parts = [_text_of(e, names) for e in self.final_indices]
        for k in reversed(self.axis_separators):
            parts.insert(k, repr(AXIS_SEPARATOR))
        return _lambda(", ".join(names.values()), parts)

    def only_arithmetic(self) -> IndexMap:
        """The map, if it is made of its own indices by what text can say.

        Raises IndexMapError if not.
        """
        for e in self.final_indices:
            for n in walk(e):
                known = isinstance(n, (IntImm, *_ON_ARRAYS)) or n in self.initial_indices
                if isinstance(n, PrimExpr) and not known:
                    raise IndexMapError(
                        f"index_map: an index is made of the old indices and integers by +, -, *, "
                        f"// and %, got {n} in {e}"
                    )
        return self

    def widened(self, dtype: DataType) -> IndexMap:
        """The map over variables of the wider of its own dtype and `dtype`."""
        if all(v.dtype.bits >= dtype.bits for v in self.initial_indices):
            return self
        new = {v: Var(v.name, dtype) for v in self.initial_indices}

        def wider(e: Any) -> Any:
            if isinstance(e, Cast) and e.dtype.is_int:
                return e.value if e.value.dtype is dtype else None
            if isinstance(e, Var) and e.dtype.is_int:
                return cast(dtype, new.get(e, e))
            if isinstance(e, IntImm) and e.dtype.is_int:
                return cast(dtype, e)
            return None

        final = [transform(e, wider) for e in self.final_indices]
        return IndexMap(list(new.values()), final, self.inverse_index_map, self.axis_separators)

    def map_indices(
        self, indices: Sequence[Any], analyzer: Analyzer | None = None
    ) -> tuple[PrimExpr, ...]:
        """The final indices for given initial ones, simplified by `analyzer` if there is one."""
        if len(indices) != len(self.initial_indices):
            raise IndexMapError(
                f"index_map: it takes {len(self.initial_indices)} indices, got {len(indices)}"
            )
        values = {v: cast(v.dtype, as_expr(i)) for v, i in zip(self.initial_indices, indices)}
        final = (substitute(e, values) for e in self.final_indices)
        return tuple(final if analyzer is None else map(analyzer.simplify, final))

    def on(self, shape: Sequence[Any], analyzer: Analyzer | None = None) -> MapOnShape:
        """What can be told of the map on the indices of a shape, each found out once."""
        return MapOnShape(self, shape, analyzer)

    def map_shape(
        self, shape: Sequence[Any], analyzer: Analyzer | None = None
    ) -> tuple[PrimExpr, ...]:
        """The least shape that holds all final indices of an initial shape."""
        return self.on(shape, analyzer).shape

    def padded_shape(self, shape: Sequence[Any]) -> tuple[PrimExpr, ...]:
        """The shape of whole blocks that holds all final indices: an index modulo 4 has 4 places
        however few there are, so that a shape does not depend on whether a dimension is a symbol.

        Raises IndexMapError if it cannot be told, or an index could be negative.
        """
        if len(shape) != len(self.initial_indices):
            raise IndexMapError(
                f"index_map: wanted {len(self.initial_indices)} dimensions, got {len(shape)}"
            )
        analyzer = Analyzer(wrap=False)
        dims = [cast("int64", as_expr(d, "int64")) for d in shape]
        zero = const(0, "int64")
        ranges = {v: (zero, analyzer.simplify(d - 1)) for v, d in zip(self.initial_indices, dims)}
        sizes = []
        for e in self.final_indices:
            low, high = _range_of(e, ranges, analyzer)
            if not (isinstance(low, IntImm) and low.value >= 0):
                raise IndexMapError(f"index_map: the index {e} may be negative")
            sizes.append(analyzer.simplify(high + 1))
        return tuple(sizes)

    def places(self, shape: Sequence[int]) -> tuple[np.ndarray, ...]:
        """Where each element of an array of `shape` goes: the final indices, by initial ones."""
        known = dict(zip(self.initial_indices, np.indices(shape, sparse=True)))

        def value(e: Any) -> Any:
            if isinstance(e, IntImm):
                return np.asarray(e.value)
            if isinstance(e, Var):
                return known[e]
            return _ON_ARRAYS[type(e)](value(e.a), value(e.b))

        with np.errstate(all="ignore"):
            return tuple(np.broadcast_to(value(e), shape) for e in self.final_indices)

    def map_ndarray(self, array: Any) -> NDArray:
        """The elements of an array in the layout that the map gives, 0 where it puts none."""
        source = array if isinstance(array, NDArray) else as_array(array)
        values = source.numpy()
        sizes = [int(evaluate_expr(d)) for d in self.map_shape(values.shape)]
        moved = np.zeros(sizes, values.dtype)
        moved[self.only_arithmetic().places(values.shape)] = values
        return as_array(moved, dtype=source.dtype)

    def map_ranges(self, ranges: Sequence[Range]) -> tuple[Range, ...]:
        """Ranges of the final indices for initial ranges that start at 0."""
        return tuple(Range.from_min_extent(const(0, e.dtype), e) for e in self.map_shape(ranges))

    def is_injective(self, shape: Sequence[Any], analyzer: Analyzer | None = None) -> bool:
        """Whether different initial indices are shown to have different final ones."""
        return self.on(shape, analyzer).is_injective

    def is_bijective(self, shape: Sequence[Any], analyzer: Analyzer | None = None) -> bool:
        """Whether, besides, every index of `map_shape` is shown to be the image of one."""
        return self.on(shape, analyzer).is_bijective

    def inverse(self, shape: Sequence[Any], analyzer: Analyzer | None = None) -> IndexMap:
        """The map from final to initial indices. Raises IndexMapError unless it is shown to be
        bijective.

        shape  extents of the initial indices, or ranges that begin at 0
        """
        on = self.on(shape, analyzer)
        if not on.is_bijective:
            why = "leaves places unused; see non_surjective_inverse" if on.is_injective else ""
            sizes = ", ".join(map(str, on.sizes))
            raise IndexMapError(
                f"index_map: {self} is not shown to be invertible for sizes ({sizes})"
                + (f": it {why}" if why else "")
            )
        return on.left_inverse()

    def left_inverse(self, shape: Sequence[Any], analyzer: Analyzer | None = None) -> IndexMap:
        """The map that gives back the initial indices of those final ones that are the image of
        some. Raises IndexMapError unless the map is shown to be injective.
        """
        return self.on(shape, analyzer).left_inverse()

    def non_surjective_inverse(self, shape: Sequence[Any]) -> tuple[IndexMap, PrimExpr]:
        """(inverse, padding): where the condition `padding` holds, the final index is the image of
        no initial one. Raises IndexMapError unless the map is injective.

        ``lambda i: (i // 4, i % 4)`` for 14 indices: ``4 * axis0 + axis1``, and padding where that
        is at least 14.
        """
        on = self.on(shape)
        back = on.left_inverse()
        if on.is_bijective:
            return back, const(False)
        analyzer = Analyzer(wrap=False)
        for v, e in zip(back.initial_indices, on.shape):
            analyzer.bind(v, Range.from_min_extent(const(0, e.dtype), e))
        outside: list[PrimExpr] = []
        for value, extent in zip(back.final_indices, on.sizes):
            outside += [value < 0, value >= extent]
        # Places between the images: those that do not come back.
        for v, e in zip(back.initial_indices, self.map_indices(back.final_indices)):
            outside.append(v != analyzer.simplify(e))
        padding: PrimExpr = const(False)
        for condition in map(analyzer.simplify, outside):
            padding = _either(padding, condition)
        return back, padding

    def is_equivalent_to(self, other: IndexMap) -> bool:
        """Whether both maps give the same for all indices."""
        if len(self.initial_indices) != len(other.initial_indices):
            return False
        theirs = other.map_indices(self.initial_indices)
        analyzer = Analyzer(wrap=False)
        return len(theirs) == len(self.final_indices) and all(
            analyzer.can_prove_equal(a, b) for a, b in zip(self.final_indices, theirs)
        )

    def __str__(self) -> str:
        return _lambda(
            ", ".join(v.name for v in self.initial_indices), map(str, self.final_indices)
        )

    def __repr__(self) -> str:
        return f"IndexMap({self})"

    # -- as data -----------------------------------------------------------------------------------

    def to_python(self) -> str:
        """The map as Python text, from its data: what `from_func` reads."""
        data = self.to_data()
        names = ", ".join(f"i{k}" for k in range(data["ndim"]))
        parts = [_infix(e) for e in data["map"]]
        for k in reversed(self.axis_separators):
            parts.insert(k, "tir.IndexMap.AXIS_SEPARATOR")
        results = "".join(f"{part}, " for part in parts).rstrip()
        text = f"lambda {names}: ({results})"
        other = next((d for d in data["dtypes"] if d != "int32"), None)
        if other is None:
            return text
        if not self.axis_separators:
            return f"tir.IndexMap.from_func({text}, index_dtype={other!r})"
        return f"tir.IndexMap.from_func_with_separators({text}, index_dtype={other!r})[0]"

    def to_data(self) -> dict[str, Any]:
        """The map as JSON data."""
        names = {v: f"i{k}" for k, v in enumerate(self.initial_indices)}
        data = {
            "ndim": len(names),
            "dtypes": [str(v.dtype) for v in self.initial_indices],
            "map": [_to_data(e, names) for e in self.final_indices],
        }
        if self.axis_separators:
            data["axis_separators"] = list(self.axis_separators)
        if self.inverse_index_map is not None:
            data["inverse"] = self.inverse_index_map.to_data()
        return data

    @staticmethod
    def from_data(data: Any, size: Callable[[str], Any] | None = None) -> IndexMap:
        """The map from `to_data`'s JSON data; `size` finds other variables by name.

        Raises IndexMapError if the data is no index map.
        """
        fields = isinstance(data, dict) and set(data) - {"axis_separators", "inverse"} == {
            "ndim",
            "dtypes",
            "map",
        }
        if not (fields and all(isinstance(data[k], list) for k in ("dtypes", "map"))):
            raise IndexMapError(f"not an index_map: {data!r}")
        dtypes = data["dtypes"]
        if not all(isinstance(d, str) and d in _DTYPES for d in dtypes):
            raise IndexMapError(f"index_map: indices are {' or '.join(_DTYPES)}, got {dtypes!r}")
        variables = {f"i{k}": Var(f"i{k}", DataType(d)) for k, d in enumerate(dtypes)}
        dtype = DataType(dtypes[0] if dtypes else "int32")
        final = [_from_data(e, variables, dtype, size) for e in data["map"]]
        separators = data.get("axis_separators", [])
        if not (isinstance(separators, list) and all(type(k) is int for k in separators)):
            raise IndexMapError(f"index_map: axis_separators: wanted numbers, got {separators!r}")
        back = IndexMap.from_data(data["inverse"], size) if "inverse" in data else None
        return IndexMap(list(variables.values()), final, back, separators)


class MapOnShape:
    """An index map on the indices of a shape: extents, or ranges that begin at 0.

    plain    the same map of indices that begin earlier, by `offsets`: ``(i + 2) // 4`` of ``i < n``
             is ``i' // 4`` of those ``i' < n + 2`` that are at least 2
    """

    def __init__(
        self, index_map: IndexMap, shape: Sequence[Any], analyzer: Analyzer | None
    ) -> None:
        self.map, self.sizes = index_map, _extents(shape)
        first = index_map.initial_indices
        if len(self.sizes) != len(first):
            raise IndexMapError(f"index_map: it takes {len(first)} indices, got {len(self.sizes)}")
        self.plain, extents = index_map, self.sizes
        self.offsets = _offsets(index_map.final_indices, first)
        if self.offsets:
            earlier = {v: v - n for v, n in self.offsets.items()}
            simplify = Analyzer(wrap=False).simplify
            moved = [simplify(substitute(e, earlier)) for e in index_map.final_indices]
            self.plain = IndexMap(first, moved)
            extents = [e + self.offsets.get(v, 0) for v, e in zip(first, self.sizes)]
        iters = {v: (0, number_of(e)) for v, e in zip(first, extents)}
        self.mapper = IterMapper(iters, analyzer)

    @cached_property
    def shape(self) -> tuple[PrimExpr, ...]:
        """The least shape that holds all final indices."""
        mapper = self.mapper
        out: list[PrimExpr] = []
        for e in self.plain.final_indices:
            total = mapper.sum_of(e)
            ends = None if total is None else mapper.ends(total)
            if ends is None:
                raise IndexMapError(f"index_map: the greatest value of {e} is not known")
            size = mapper.add(ends[1], 1)
            out.append(const(size, e.dtype) if isinstance(size, int) else cast(e.dtype, size))
        return tuple(out)

    @cached_property
    def _determined(self) -> bool:
        return self.mapper.iters.keys() <= self.mapper.determined(self.plain.final_indices)

    @cached_property
    def is_injective(self) -> bool:
        """Whether different initial indices are shown to have different final ones."""
        return self._inverse_given is not None or self._determined

    @cached_property
    def is_bijective(self) -> bool:
        """Whether, besides, every index of `shape` is shown to be the image of one."""
        if not self.is_injective:
            return False
        before: Any = 1
        after: Any = 1
        for e in self.sizes:
            before = self.mapper.mul(before, number_of(e))
        for e in self.shape:
            after = self.mapper.mul(after, number_of(e))
        return self.mapper.equal(before, after)

    def left_inverse(self) -> IndexMap:
        """The map that gives back the initial indices of those final ones that are the image of
        some. Raises IndexMapError unless the map is shown to be injective.
        """
        back = self._inverse_given
        if back is not None:
            return back
        if not self._determined:
            raise IndexMapError(f"index_map: {self.map} is not shown to be invertible")
        mapper = self.mapper
        final = [Var(f"axis{k}", e.dtype) for k, e in enumerate(self.map.final_indices)]
        pieces: dict[int, tuple[IterMark, list[tuple[Any, Any, PrimExpr]]]] = {}
        for var, e in zip(final, self.plain.final_indices):
            total = mapper.sum_of(e)
            if total is None:
                continue
            _take(mapper, pieces, var, total)
        values: dict[Var, PrimExpr] = {}
        work = list(pieces)
        while work:
            mark, digits = pieces[work.pop()]
            value = _whole(mapper, mark, digits)
            if value is None:
                continue
            if isinstance(mark.source, Var):
                values.setdefault(mark.source, value)
                continue
            if not isinstance(mark.source, IterSumExpr):
                continue
            before = set(pieces)
            _take(mapper, pieces, value, mark.source)
            work.extend(k for k in pieces if k not in before)
            work.extend(id(d.source) for d in mark.source.args)
        simplify = Analyzer(wrap=False).simplify
        results = []
        for v in self.map.initial_indices:
            solved = values.get(v, const(0, v.dtype))
            results.append(simplify(cast(v.dtype, solved) - self.offsets.get(v, 0)))
        return IndexMap(final, results)

    @cached_property
    def _inverse_given(self) -> IndexMap | None:
        """The inverse that the user gave, shown to be one for the shape; None if there is none."""
        back = self.map.inverse_index_map
        if back is None:
            return None
        analyzer = Analyzer(wrap=False)
        for v, extent in zip(self.map.initial_indices, self.sizes):
            analyzer.bind(v, Range.from_min_extent(const(0, v.dtype), cast(v.dtype, extent)))
        for v, again in zip(self.map.initial_indices, back.map_indices(self.map.final_indices)):
            value = analyzer.simplify(cast(v.dtype, again))
            if not analyzer.can_prove_equal(value, v):
                sizes = ", ".join(map(str, self.sizes))
                raise IndexMapError(
                    f"index_map: inverse_index_map {back} is not shown to undo {self.map} for "
                    f"sizes ({sizes}): for {v.name} it gives {value}"
                )
        return IndexMap(back.initial_indices, back.final_indices)


_DTYPES = ("int32", "int64")
_BINARY: dict[str, Any] = {"+": Add, "*": Mul, "//": FloorDiv, "%": FloorMod}


def _to_data(e: Node, names: dict[Var, str]) -> Any:
    if isinstance(e, Var):
        return names.get(e, f"${e.name}")
    n = e.value if isinstance(e, FloatImm) else number_of(e)
    if isinstance(n, (int, float)):
        return n
    if isinstance(e, Cast):
        return [str(e.dtype), _to_data(e.value, names)]
    if isinstance(e, Sub):
        return ["+", _to_data(e.a, names), ["*", _to_data(e.b, names), -1]]
    for symbol, kind in _BINARY.items():
        if type(e) is kind:
            return [symbol, *(_to_data(operand, names) for operand in children(e))]
    raise IndexMapError(f"index_map: {e} cannot be recorded")


_MOST_TEXT = 4000
_OPERATORS: dict[type, Any] = {
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


def read_lambda(text: str) -> Callable[..., list[PrimExpr]]:
    """The function that a lambda as text stands for; see `IndexMap.from_text`."""
    try:
        if len(text) > _MOST_TEXT:
            raise ValueError(f"longer than {_MOST_TEXT} characters")
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise IndexMapError(f"index_map: {text[:80]!r} is no lambda: {error}") from None
    if not isinstance(tree, ast.Lambda):
        raise IndexMapError(f'index_map: wanted "lambda i, j: (...)", got {text[:80]!r}')
    a = tree.args
    if a.vararg or a.kwarg or a.kwonlyargs or a.defaults:
        raise IndexMapError(f"index_map: the indices of {text[:80]!r} are not plain names")
    names = [p.arg for p in (*a.posonlyargs, *a.args)]
    body = tree.body
    parts = body.elts if isinstance(body, (ast.Tuple, ast.List)) else [body]

    def value(e: ast.expr, known: dict[str, Any], dtype: Any) -> PrimExpr:
        if isinstance(e, ast.Name) and e.id in known:
            return as_expr(known[e.id])
        if isinstance(e, ast.Constant) and type(e.value) is int and abs(e.value) < 1 << 62:
            return const(e.value, dtype)
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return binary(Sub, const(0, dtype), value(e.operand, known, dtype))
        if isinstance(e, ast.BinOp) and type(e.op) in _OPERATORS:
            a, b = value(e.left, known, dtype), value(e.right, known, dtype)
            return binary(_OPERATORS[type(e.op)], a, b)
        raise IndexMapError(
            f"index_map: an index is made of the old indices and integers by +, -, *, // and %, "
            f"got {ast.unparse(e)[:80]}"
        )

    def mapping(*indices: Any) -> list[PrimExpr]:
        if len(indices) != len(names):
            raise IndexMapError(f"index_map: {text[:80]!r} takes {len(names)} indices")
        dtype = indices[0].dtype if indices else "int64"
        try:
            return [value(e, dict(zip(names, indices)), dtype) for e in parts]
        except RecursionError:
            raise IndexMapError(f"index_map: {text[:80]!r} is nested too deeply") from None

    parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in names]
    mapping.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return mapping


def _lambda(names: str, parts: Iterable[str]) -> str:
    every = list(parts)
    head = f"lambda {names}" if names else "lambda"
    return f"{head}: ({', '.join(every)}{',' if len(every) == 1 else ''})"


_SIGNS: dict[type[PrimExpr], str] = {Add: "+", Sub: "-", Mul: "*", FloorDiv: "//", FloorMod: "%"}


def _text_of(e: Any, names: dict[Any, str], inner: bool = False) -> str:
    if e in names:
        return names[e]
    if isinstance(e, IntImm) or type(e) not in _SIGNS:
        return str(e.value) if isinstance(e, IntImm) else str(e)
    text = f"{_text_of(e.a, names, True)} {_SIGNS[type(e)]} {_text_of(e.b, names, True)}"
    return f"({text})" if inner else text


def _range_of(e: PrimExpr, ranges: dict[Any, _Range], analyzer: Analyzer) -> _Range:
    """The least and the greatest value of an index expression; maps are small, so this recurses.

    Raises IndexMapError for an expression whose range is not found.
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
    raise IndexMapError(f"index_map: cannot tell how large the index {e} may get")


def _infix(data: Any) -> str:
    """An expression of `to_data` as Python."""
    if isinstance(data, list) and len(data) == 2:
        return f"{_infix(data[1])}.astype({data[0]!r})"
    if isinstance(data, list):
        return f"({_infix(data[1])} {data[0]} {_infix(data[2])})"
    return size_name(data) if isinstance(data, str) else repr(data)


def size_name(name: str) -> str:
    """What a size ``$n`` of a function is called in Python text; other names stay."""
    return re.sub(r"\W", "_", f"size_{name[1:]}") if name.startswith("$") else name


def _from_data(
    data: Any, variables: dict[str, Var], dtype: DataType, size: Callable[[str], Any] | None
) -> PrimExpr:
    if isinstance(data, str):
        variable = size(data) if data.startswith("$") and size is not None else variables.get(data)
        if isinstance(variable, PrimExpr):
            return variable
    if isinstance(data, float):
        return const(data, "float64")
    if isinstance(data, int):
        return const(data, dtype)
    if isinstance(data, list) and len(data) == 3 and data[0] in tuple(_BINARY):
        parts = [_from_data(d, variables, dtype, size) for d in data[1:]]
        return binary(_BINARY[data[0]], *parts)
    if isinstance(data, list) and len(data) == 2 and data[0] in _DTYPES:
        return cast(DataType(data[0]), _from_data(data[1], variables, dtype, size))
    raise IndexMapError(f"not an index of an index_map: {data!r}")


def _either(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return b if number_of(a) == 0 else a if number_of(b) == 0 else Or(a, b)


def _extents(shape: Sequence[Any]) -> list[Any]:
    for r in shape:
        if isinstance(r, Range) and number_of(r.min) != 0:
            raise IndexMapError(f"index_map: wanted ranges that begin at 0, got one from {r.min}")
    return [r.extent if isinstance(r, Range) else r for r in shape]


def _offsets(exprs: Sequence[PrimExpr], variables: Sequence[Var]) -> dict[Var, int]:
    """What is added to a variable before it is cut into digits, where that is one positive number
    everywhere.
    """
    offsets: dict[Var, set[int]] = {}
    for e in exprs:
        for n in walk(e):
            if isinstance(n, (FloorDiv, FloorMod)):
                a = n.a
                added = number_of(a.b) if isinstance(a, Add) else 0
                v = a.a if isinstance(a, Add) else a
                if isinstance(v, Var) and isinstance(added, int):
                    offsets.setdefault(v, set()).add(added)
    return {v: min(f) for v, f in offsets.items() if v in variables and len(f) == 1 and min(f) > 0}


def _take(mapper: IterMapper, pieces: Any, value: PrimExpr, total: IterSumExpr) -> None:
    """Cut the digits of a sum out of its value."""
    digits = mapper.digits(total) or []
    dtype = value.dtype
    base = number_of(total.base)
    if not (isinstance(base, int) and base == 0):
        value = value - (const(base, dtype) if isinstance(base, int) else cast(dtype, base))
    for k, d in enumerate(digits):
        piece = value
        if not mapper.equal(d.scale, 1):
            piece = binary(FloorDiv, piece, cast(dtype, as_expr(d.scale)))
        if k + 1 < len(digits):
            following = digits[k + 1].scale
            step = mapper.multiple(following, d.scale)
            if step is None:
                below = binary(FloorMod, value, cast(dtype, as_expr(following)))
                piece = binary(FloorDiv, below, cast(dtype, as_expr(d.scale)))
            else:
                piece = binary(FloorMod, piece, cast(dtype, as_expr(step)))
        _, known = pieces.setdefault(id(d.source), (d.source, []))
        known.append((d.lower_factor, d.extent, piece))


def _whole(mapper: IterMapper, mark: IterMark, digits: Any) -> PrimExpr | None:
    """The mark from its digits, or None if some are missing yet."""
    reach: Any = 1
    left = list(digits)
    value: PrimExpr | None = None
    while left:
        following = next((d for d in left if mapper.equal(d[0], reach)), None)
        if following is None:
            break
        left.remove(following)
        lower, extent, piece = following
        term = binary(Mul, piece, cast(piece.dtype, as_expr(lower)))
        value = term if value is None else binary(Add, value, cast(value.dtype, term))
        reach = mapper.mul(reach, extent)
    return value if mapper.at_most(mark.extent, reach) else None
