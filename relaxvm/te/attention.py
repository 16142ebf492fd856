"""Attention as a formula: softmax(q k^T) v, of rows of scores that stay near the core.

The rows of scores stand in blocks, and a block is an axis that all stages share: schedules compute
the scores, weights and products of one before the next, and the scores are never written whole
(`tir/schedule/plans/attention.py`). Weights are divided by their sum last, where there is a value
for each dimension of a head only.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Any

from ..arith import Analyzer
from ..base import NamedTuple
from ..ir import IntImm, Max, Min, PrimExpr, Select, cast, const, is_const
from ..tir import ceildiv, exp, floordiv, floormod, if_then_else
from .operation import compute, reduce_axis
from .reducer import max as te_max
from .reducer import sum as te_sum
from .tensor import Tensor

# Rows of a block: what tiles of two to twelve rows divide.
_ROWS = 24
# With fewer queries for each key, a copy of the keys costs more than it spares.
_FEW_ROWS = 8
# Keys of a panel: what tiles of some vectors divide.
_PANELS = (64, 48, 32)
# Dimensions of a head are filled up to whole vectors.
_VECTOR = 16


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    factor: PrimExpr,
    group: PrimExpr,
    bias: Tensor | None = None,
    seen: Callable[[PrimExpr, PrimExpr], PrimExpr] | None = None,
    score: Callable[..., PrimExpr] | None = None,
    hidden: float = 0.0,
    heads_first: bool = False,
) -> Tensor:
    """softmax(score(q k^T * factor) + bias) v, for each head.

    q        [batch, s, heads, d]      k, v  [batch, t, heads / group, d or dv]
    returns  [batch, s, heads, dv], or [batch, heads, s, dv] if `heads_first`
    factor   of the dtype in which all is computed
    bias     broadcasts to [batch, heads, s, t]
    seen     (query, key) -> whether it counts; None: all do
    score    (batch, head, query, key, product) -> score; None: the product
    hidden   what a query gets that sees none of its keys: 0, or NaN as softmax gives

    Tensors are what has a shape and a dtype and gives elements when called.
    """
    rows, wide, size = _rows(q, group), factor.dtype, v.shape[3]
    t, zero = k.shape[1], const(0, wide)

    def axis(extent: PrimExpr, name: str) -> Any:
        return reduce_axis((0, extent), name)

    def query(b: Any, h: Any, io: Any, ii: Any, d: Any) -> PrimExpr:
        head, i = rows.query(h, io, ii)
        return cast(wide, q(b, i, head, d)) * factor

    queries = compute((*rows.shape, q.shape[3]), query, "queries")
    value, width = _values(v, wide) if rows.tiled else (_element(v, wide), (size,))
    product = _products(queries, k, rows)

    def score_of(b: Any, h: Any, io: Any, ii: Any, j: Any) -> PrimExpr:
        score_value, (head, i) = product(b, h, io, ii, j), rows.query(h, io, ii)
        if score is not None:
            score_value = score(b, head, i, j, score_value)
        if bias is not None:
            places = zip(bias.shape, (b, head, i, j)[4 - bias.ndim :])
            score_value = score_value + cast(wide, bias(*(_only(n, x) for n, x in places)))
        return (
            score_value
            if seen is None
            else Select(seen(i, j), score_value, const(float("-inf"), wide))
        )

    plain = bias is None and seen is None and score is None
    scores = product if plain else compute((*rows.shape, t), score_of, "scores")
    j = axis(t, "j")
    top = compute(rows.shape, lambda *r: te_max(scores(*r, j.var), axis=j), "top")
    # The least finite number stands for the maximum of nothing: weights are 0 then, not NaN.
    # Nothing is above 0: said so that the shorter formula of exp is taken.
    weights = compute(
        (*rows.shape, t), lambda *r: exp(Min(scores(*r) - top(*r[:4]), zero)), "weights"
    )
    n = axis(t, "n")
    total = compute(rows.shape, lambda *r: te_sum(weights(*r, n.var), axis=n), "total")
    m = axis(t, "m")
    sums = compute(
        (*rows.shape, *width),
        lambda b, h, io, ii, *d: te_sum(
            weights(b, h, io, ii, m.var) * value(b, rows.key(h), m.var, *d), axis=m
        ),
        "sums",
    )

    def out(b: Any, i: Any, h: Any, d: Any) -> PrimExpr:
        place = rows.place(h, i)
        within = (d,) if len(width) == 1 else (floordiv(d, width[1]), floormod(d, width[1]))
        share = sums(b, *place, *within) / total(b, *place)
        none = t.equal(const(0, t.dtype)) if isnan(hidden) else total(b, *place).equal(zero)
        return cast(q.dtype, Select(none, zero, share))

    batch, s, heads, _ = q.shape
    if heads_first:
        return compute((batch, heads, s, size), lambda b, h, i, d: out(b, i, h, d), "attention")
    return compute((batch, s, heads, size), out, "attention")


class _Rows(NamedTuple):
    """How rows of scores stand in blocks.

    shape  (batch, heads, blocks, rows of a block)
    query  (head, block, row) -> (head of the query, its position); past the end, the last one
    key    (head) -> head of the keys
    place  (head of the query, its position) -> (head, block, row)
    tiled  whether there are many: keys and values then go where tiles read them
    """

    shape: tuple[PrimExpr, ...]
    query: Callable[[PrimExpr, PrimExpr, PrimExpr], tuple[PrimExpr, PrimExpr]]
    key: Callable[[PrimExpr], PrimExpr]
    place: Callable[[PrimExpr, PrimExpr], tuple[PrimExpr, PrimExpr, PrimExpr]]
    tiled: bool


def _rows(q: Any, group: PrimExpr) -> _Rows:
    """Blocks of one head, of nearly one size; of few queries one block for all heads that read the
    same keys, which are then read once.
    """
    batch, s, heads, _ = q.shape
    one, zero = const(1, s.dtype), const(0, s.dtype)
    group = cast(s.dtype, group)
    if isinstance(s, IntImm) and isinstance(group, IntImm) and s.value * group.value < _FEW_ROWS:
        each = Max(s, one)

        def shared(h: PrimExpr, io: PrimExpr, ii: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
            return _simple(h * group + floordiv(ii, each)), _simple(floormod(ii, each))

        return _Rows(
            (batch, _simple(floordiv(heads, group)), one, _simple(s * group)),
            shared,
            lambda h: h,
            lambda h, i: (floordiv(h, group), zero, _simple(floormod(h, group) * s + i)),
            False,
        )
    count = s.value if isinstance(s, IntImm) else 0
    whole = -(-count // -(-count // _ROWS)) if count else _ROWS
    rows, even = const(whole, s.dtype), count and count % whole == 0

    def query(h: PrimExpr, io: PrimExpr, ii: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        i = io * rows + ii
        return h, i if even else Min(i, s - one)

    return _Rows(
        (batch, heads, _simple(ceildiv(s, rows)), rows),
        query,
        lambda h: h if is_const(group, 1) else floordiv(h, cast(h.dtype, group)),
        lambda h, i: (h, floordiv(i, rows), floormod(i, rows)),
        True,
    )


def _element(x: Any, wide: Any) -> Callable[..., PrimExpr]:
    return lambda b, h, j, d: cast(wide, x(b, j, h, d))


def _products(queries: Tensor, k: Any, rows: _Rows) -> Callable[..., PrimExpr]:
    """(batch, head, block, row, j) -> the product with a key. Of many rows they are with panels of
    keys, in which neighbours lie side by side; past the last key there are zeros.
    """
    batch, t, heads, depth = k.shape
    wide = queries.dtype
    axis = reduce_axis((0, depth), "d")
    if not rows.tiled:
        return compute(
            (*rows.shape, t),
            lambda b, h, io, ii, j: te_sum(
                queries(b, h, io, ii, axis.var) * cast(wide, k(b, j, h, axis.var)), axis=axis
            ),
            "product",
        )
    panel = const(_panel(t), t.dtype)
    panels = _simple(ceildiv(t, panel))

    def fill(b: PrimExpr, h: PrimExpr, jo: PrimExpr, d: PrimExpr, ji: PrimExpr) -> PrimExpr:
        j = jo * panel + ji
        return if_then_else(j < t, cast(wide, k(b, j, h, d)), const(0, wide))

    keys = compute((batch, heads, panels, depth, panel), fill, "keys")
    products = compute(
        (*rows.shape, panels, panel),
        lambda b, h, io, ii, jo, ji: te_sum(
            queries(b, h, io, ii, axis.var) * keys(b, rows.key(h), jo, axis.var, ji), axis=axis
        ),
        "product",
    )
    return lambda *index: products(*index[:4], floordiv(index[4], panel), floormod(index[4], panel))


def _panel(t: PrimExpr) -> int:
    """How many keys a panel has: so that few are filled up. One that is not full is not the only
    one: tiles are whole vectors then, whatever is read of them.
    """
    count = t.value if isinstance(t, IntImm) else _PANELS[0]
    fits = [n for n in _PANELS if n < count or count == n]
    return min(fits, key=lambda n: -(-count // n) * n, default=_VECTOR)


def _values(v: Any, wide: Any) -> tuple[Callable[..., PrimExpr], tuple[PrimExpr, ...]]:
    """(batch, head, j, *d) -> a value, and the sizes of d: one, or whole vectors filled up with 0
    where a head has other dimensions.
    """
    batch, t, heads, size = v.shape
    vector = const(_VECTOR, size.dtype)
    vectors = _simple(ceildiv(size, vector))
    if _simple(vectors * vector) is size:
        if v.dtype == wide:
            return _element(v, wide), (size,)
        values = compute((batch, heads, t, size), _element(v, wide), "values")
        return values, (size,)

    def fill(b: PrimExpr, h: PrimExpr, do: PrimExpr, j: PrimExpr, di: PrimExpr) -> PrimExpr:
        d = do * vector + di
        return if_then_else(d < size, cast(wide, v(b, j, h, d)), const(0, wide))

    parts = compute((batch, heads, vectors, t, vector), fill, "values")
    return lambda b, h, j, do, di: parts(b, h, do, j, di), (vectors, vector)


def _only(size: PrimExpr, i: PrimExpr) -> PrimExpr:
    """The index `i` of a dimension that may be one for all."""
    return const(0, i.dtype) if is_const(size, 1) else i


def _simple(e: PrimExpr) -> PrimExpr:
    return Analyzer(wrap=False).simplify(e)
