"""Scaled dot-product attention: softmax(q k^T * scale + bias) v, with masks, windows and shared key
heads.

Layout [batch, sequence, heads, dimension]. Fewer heads of keys and values than of queries (grouped
queries) are shared: query head h reads head h // (query heads // key heads). float16 and bfloat16
are computed in float32 and rounded once. A query that sees no key at all gives 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te, tir
from ...base import UNKNOWN, Span, StructInfoError
from ...ir import And, FloorDiv, Max, PrimExpr, Select, cast, const, is_const
from ..derive import prove_dims
from ..expr import Call, PrimValue
from ..expr import const as constant
from ..rules import LowerBuilder, Ops, operator_name
from ..struct_info import Expr, PrimStructInfo, ShapeExpr, StructInfo, TensorStructInfo
from .broadcast import unbroadcast
from .infer import FLOAT, INTEGER, same_dtype, tensor, tensor_of
from .lower import call_te, wide_dtype
from .nn.window import simple
from .record import face_of, missing, op
from .sizes import ONE, want_equal

_LAYOUT = missing("its layout is fixed")
_MASKS = ("TopLeft", "BottomRight")


# -- inference -------------------------------------------------------------------------------------


def _options(scale: Any, causal_mask: Any, window_size: Any) -> None:
    if causal_mask is not None and causal_mask not in _MASKS:
        raise StructInfoError(
            f"causal_mask: wanted None, 'TopLeft' or 'BottomRight', got {causal_mask!r}"
        )
    if window_size is not None:
        if causal_mask is None:
            raise StructInfoError("window_size: it goes with a causal_mask, got None for that")
        if window_size < 1:
            raise StructInfoError(f"window_size: wanted at least 1, got {window_size}")


def _attention_info(
    query: Expr, key: Expr, value: Expr, names: tuple[str, str, str], one_batch: bool = False
) -> TensorStructInfo:
    q, k, v = (tensor(x, n, FLOAT, ndim=4) for x, n in zip((query, key, value), names))
    dtype = same_dtype((q, k, v), names)

    def want(what: str, axis: int, a: int, b: int) -> None:
        one, two = (q, k, v)[a].dims[axis], (q, k, v)[b].dims[axis]
        text = "the {what} of {x} and {y} differ: {a} and {b}"
        want_equal(one, two, text, what=what, x=names[a], y=names[b])

    if not one_batch:
        want("batch sizes", 0, 0, 1)
    want("batch sizes", 0, 1, 2)
    want("sequence lengths", 1, 1, 2)
    want("numbers of heads", 2, 1, 2)
    want("head dimensions", 3, 0, 1)
    heads, shared = q.dims[2], k.dims[2]
    if heads is not shared:
        # Only 0 is a multiple of 0.
        whole = FloorDiv(heads, Max(shared, ONE)) * shared
        text = "the heads of {x} are a multiple of those of {y}, got {heads} and {shared}"
        words = {"x": names[0], "y": names[1], "heads": heads, "shared": shared}
        want_equal(whole, heads, text, **words)
    if one_batch:
        for info, name in ((q, names[0]), (k, names[1])):
            text = "{name}: wanted one batch that holds all sequences one after another, got {a}"
            want_equal(info.dims[0], ONE, text, name=name)
    return TensorStructInfo((*q.dims[:3], v.dims[3]), dtype, q.vdevice)


# -- meaning ---------------------------------------------------------------------------------------


def _softmax_times(scores: np.ndarray, visible: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Rows of `scores` (..., s, t) to weights, times `v` (..., t, d)."""
    scores = np.where(visible, scores, -np.inf)
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(top == -np.inf, 0.0, top)
    weights = np.where(visible, np.exp(scores - top), 0.0)
    total = weights.sum(axis=-1, keepdims=True)
    share = np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)
    return np.matmul(share, v)


def _visible(rows: int, columns: int, causal_mask: Any, window_size: Any) -> np.ndarray:
    """Which of `columns` keys each of `rows` queries sees."""
    if causal_mask is None:
        return np.ones((rows, columns), bool)
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    back = i - j + (columns - rows if causal_mask == "BottomRight" else 0)
    seen = back >= 0
    return seen if window_size is None else seen & (back < window_size)


def _heads_first(x: Any, times: int = 1) -> np.ndarray:
    x = np.asarray(x)
    x = x.astype("float64" if x.dtype != np.float16 else "float32")
    return np.repeat(np.transpose(x, (0, 2, 1, 3)), times, axis=1)


def _attention_numpy(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    *,
    scale: Any = None,
    causal_mask: Any = None,
    window_size: Any = None,
) -> Any:
    dtype = np.asarray(query).dtype
    times = query.shape[2] // key.shape[2] if key.shape[2] else 1
    q, k, v = _heads_first(query), _heads_first(key, times), _heads_first(value, times)
    factor = scale if scale is not None else 1 / np.sqrt(np.maximum(q.shape[3], 1))
    scores = np.matmul(q, np.swapaxes(k, 2, 3)) * factor
    if bias is not None:
        scores = scores + np.asarray(bias).astype(scores.dtype)
    seen = _visible(q.shape[2], k.shape[2], causal_mask, window_size)
    heads = _softmax_times(scores, np.broadcast_to(seen, scores.shape), v)
    return np.transpose(heads, (0, 2, 1, 3)).astype(dtype)


def _var_len_numpy(
    queries: Any,
    keys: Any,
    values: Any,
    seqstart_q: Any,
    max_seqlen_q: Any,
    seqstart_k: Any = None,
    max_seqlen_k: Any = None,
    *,
    scale: Any = None,
    causal_mask: Any = None,
    window_size: Any = None,
) -> Any:
    seqstart_k = seqstart_q if seqstart_k is None else seqstart_k
    shape = (*queries.shape[:3], values.shape[3])
    result = np.zeros(shape, np.asarray(queries).dtype)
    for b in range(len(seqstart_q) - 1):
        q, k = (slice(int(s[b]), int(s[b + 1])) for s in (seqstart_q, seqstart_k))
        result[:, q] = _attention_numpy(
            queries[:, q],
            keys[:, k],
            values[:, k],
            scale=scale,
            causal_mask=causal_mask,
            window_size=window_size,
        )
    return result


# -- legalisation ----------------------------------------------------------------------------------


def _default_scale(size: PrimExpr, dtype: Any) -> PrimExpr:
    """1 / sqrt(size); 1 for no dimension at all."""
    return const(1.0, dtype) / tir.sqrt(cast(dtype, Max(size, const(1, size.dtype))))


def _times(heads: PrimExpr, shared: PrimExpr) -> PrimExpr:
    """How many query heads read each key head: at least 1, so that it divides."""
    one = const(1, heads.dtype)
    if prove_dims(heads, shared) is True:
        return one
    return simple(Max(FloorDiv(heads, Max(shared, one)), one))


def _tiles(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, bias: te.Tensor | None, seen: Any, scale: Any
) -> te.Tensor:
    wide = wide_dtype(q.dtype)
    factor = const(scale, wide) if scale is not None else _default_scale(q.shape[3], wide)
    group = _times(q.shape[2], k.shape[2])
    return te.attention(q, k, v, factor=factor, group=group, bias=bias, seen=seen)


def _seen(back: PrimExpr, causal_mask: Any, window_size: Any) -> PrimExpr:
    """Whether a key that stands `back` places before the diagonal is visible."""
    visible = back >= const(0, back.dtype)
    return visible if window_size is None else And(visible, back < const(window_size, back.dtype))


def _attention_te(
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    bias: te.Tensor | None = None,
    *,
    scale: Any,
    causal_mask: Any,
    window_size: Any,
) -> te.Tensor:
    shift = k.shape[1] - q.shape[1] if causal_mask == "BottomRight" else const(0, "int64")

    def seen(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        return _seen(i - j + shift, causal_mask, window_size)

    return _tiles(q, k, v, bias, None if causal_mask is None else seen, scale)


def _attention_lower(builder: LowerBuilder, call: Call) -> Expr:
    return call_te(builder, call, _attention_te, *call.args, **dict(call.attrs))


def _var_len_lower(builder: LowerBuilder, call: Call) -> Expr:
    inputs = (*call.args[:3], *_starts(call))
    return call_te(builder, call, _var_len_te, *inputs, **dict(call.attrs))


def _starts(call: Call) -> tuple[Any, Any]:
    """Where the sequences of the queries start, and those of the keys."""
    start_q = call.args[3]
    return start_q, call.args[5] if len(call.args) > 5 else start_q


def _var_len_te(
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    start_q: te.Tensor,
    start_k: te.Tensor,
    *,
    scale: Any,
    causal_mask: Any,
    window_size: Any,
) -> te.Tensor:
    bounds = start_q.shape[0]
    zero, one = const(0, "int64"), const(1, "int64")
    over = te.reduce_axis((0, bounds), "s")
    # The sequence of a query is the last one that starts at it or before; past the end there is
    # none.
    sequence = te.compute(
        (q.shape[1],),
        lambda i: te.sum(Select(cast("int64", start_q(over.var)) <= i, one, zero), axis=over),
        "sequence",
    )

    def bound(starts: te.Tensor, i: PrimExpr, more: int) -> PrimExpr:
        place = sequence(i) - one + const(more, "int64")
        inside = And(place >= zero, place < bounds)
        return te.if_then_else(inside, cast("int64", starts(place)), zero)

    def seen(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        first, last = bound(start_k, i, 0), bound(start_k, i, 1)
        visible = And(And(j >= first, j < last), sequence(i) < bounds)
        if causal_mask is None:
            return visible
        back = (i - bound(start_q, i, 0)) - (j - first)
        if causal_mask == "BottomRight":
            back = back + (last - first) - (bound(start_q, i, 1) - bound(start_q, i, 0))
        return And(visible, _seen(back, causal_mask, window_size))

    # A tensor of its own, so that its guarded loads are evaluated once for each pair.
    flags = te.compute((q.shape[1], k.shape[1]), lambda i, j: cast("int8", seen(i, j)), "seen")
    return _tiles(q, k, v, None, lambda i, j: flags(i, j).equal(const(1, "int8")), scale)


# -- gradient --------------------------------------------------------------------------------------


def _attention_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr, ...]:
    rows, columns = _known_dims(call, 3)[0][1], _known_dims(call, 3)[1][1]
    seen = _seen_by(ops, rows, columns, call.attrs)
    return _gradients(ops, call.args, call.attrs["scale"], seen, gy)


def _var_len_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr | None, ...]:
    _known_dims(call, 4)
    query, key = call.args[:2]
    seen = _seen_in_sequences(ops, query, key, *_starts(call), call.attrs)
    grads = _gradients(ops, call.args[:3], call.attrs["scale"], seen, gy)
    return *grads, *(None for _ in call.args[3:])


def _known_dims(call: Call, count: int) -> list[Any]:
    """The dimensions of the first `count` arguments."""
    dims: list[Any] = [tensor_of(x).dims for x in call.args[:count]]
    if any(d is None for d in dims):
        name = operator_name(call)
        raise StructInfoError(f"the gradient of {name} needs known shapes; match_cast them first")
    return dims


def _gradients(ops: Ops, args: Any, scale: Any, seen: Any, gy: Expr) -> tuple[Expr, ...]:
    """Of query, key, value and bias, if there is one. The weights are computed again; 16-bit floats
    are computed in float32 and rounded once.

    seen  which keys each query sees: a bool tensor [rows, columns]; None for all
    """
    infos: list[Any] = [x.struct_info for x in args]
    dtype = infos[0].dtype
    wide = wide_dtype(dtype)

    def up(x: Expr) -> Any:
        return x if wide is dtype else ops.astype(x, wide)

    q, k, v = map(up, args[:3])
    g = up(gy)
    (_, _, heads, size), (batch, columns, shared, _) = infos[0].dims, infos[1].dims
    group = _times(heads, shared)
    if not is_const(group, 1):
        k, v = (_for_each_head(ops, x, group, heads) for x in (k, v))
    factor = scale if scale is not None else PrimValue(_default_scale(size, wide))
    scores = ops.multiply(ops.einsum((q, k), subscripts="bihd,bjhd->bhij"), factor)
    if len(args) > 3:
        scores = ops.add(scores, up(args[3]))
    hidden = constant(float("-inf"), wide)
    if seen is not None:
        scores = ops.where(seen, scores, hidden)
    # A row that sees nothing has -inf here; a finite stand-in makes its weights 0, not NaN.
    total = ops.maximum(ops.logsumexp(scores, axis=-1, keepdims=True), float(wide.min_value))
    weights = ops.exp(ops.subtract(scores, total))
    of_weights = ops.einsum((g, v), subscripts="bihd,bjhd->bhij")
    share = ops.sum(ops.multiply(weights, of_weights), axis=-1, keepdims=True)
    of_scores = ops.multiply(weights, ops.subtract(of_weights, share))
    products = ops.multiply(of_scores, factor)
    grads: list[Any] = [
        ops.einsum((products, k), subscripts="bhij,bjhd->bihd"),
        ops.einsum((products, q), subscripts="bhij,bihd->bjhd"),
        ops.einsum((weights, g), subscripts="bhij,bihd->bjhd"),
    ]
    if not is_const(group, 1):
        for which in (1, 2):
            size = infos[which].dims[3]
            parts = ops.reshape(grads[which], (batch, columns, shared, group, size))
            grads[which] = ops.sum(parts, axis=3)
    if len(args) > 3:
        grads.append(unbroadcast(ops, of_scores, args[3]))
    return tuple(x if wide is dtype else ops.astype(x, dtype) for x in grads)


def _for_each_head(ops: Ops, x: Any, group: PrimExpr, heads: PrimExpr) -> Any:
    """[batch, t, key heads, d] to [batch, t, heads, d]: `group` heads in a row read one."""
    batch, columns, shared, size = x.struct_info.dims
    wide = ShapeExpr((batch, columns, shared, group, size))
    repeated = ops.broadcast_to(ops.expand_dims(x, axis=3), wide)
    return ops.reshape(repeated, ShapeExpr((batch, columns, heads, size)))


def _seen_by(ops: Ops, rows: PrimExpr, columns: PrimExpr, attrs: Any) -> Any:
    """Which keys each query sees, a bool tensor [rows, columns]; None for all."""
    if attrs["causal_mask"] is None:
        return None
    shift = columns - rows if attrs["causal_mask"] == "BottomRight" else const(0, "int64")
    i, j = _column(ops, rows), _row(ops, columns)
    return _in_window(ops, ops.add(ops.subtract(i, j), PrimValue(shift)), attrs["window_size"])


def _seen_in_sequences(ops: Ops, q: Any, k: Any, start_q: Any, start_k: Any, attrs: Any) -> Any:
    """As `_seen_by`, of sequences that stand one after another: each query sees its own keys."""
    (_, rows, *_), (_, columns, *_) = q.struct_info.dims, k.struct_info.dims
    (bounds,) = start_q.struct_info.dims
    i, j = _column(ops, rows), _row(ops, columns)
    starts = ops.reshape(ops.astype(start_q, "int64"), ShapeExpr((const(1, "int64"), bounds)))
    begun = ops.astype(ops.less_equal(starts, i), "int64")
    # The sequence of a query is the last one that starts at it or before; past the end is none.
    sequence = ops.subtract(ops.sum(begun, axis=[1]), 1)
    end = PrimValue(simple(bounds - 1))

    def bound(edges: Any, more: int) -> Any:
        place = ops.minimum(ops.maximum(ops.add(sequence, more), 0), end)
        ends = ops.take(ops.astype(edges, "int64"), place, axis=0)
        return ops.expand_dims(ends, axis=1)

    first, last = bound(start_k, 0), bound(start_k, 1)
    own = ops.logical_and(ops.greater_equal(sequence, 0), ops.less(sequence, end))
    seen = ops.logical_and(ops.greater_equal(j, first), ops.less(j, last))
    seen = ops.logical_and(seen, ops.expand_dims(own, axis=1))
    if attrs["causal_mask"] is None:
        return seen
    first_q = bound(start_q, 0)
    back = ops.subtract(ops.subtract(i, first_q), ops.subtract(j, first))
    if attrs["causal_mask"] == "BottomRight":
        more = ops.subtract(ops.subtract(last, first), ops.subtract(bound(start_q, 1), first_q))
        back = ops.add(back, more)
    return ops.logical_and(seen, _in_window(ops, back, attrs["window_size"]))


def _in_window(ops: Ops, back: Any, window_size: Any) -> Any:
    """Whether a key that stands `back` places before the diagonal is visible."""
    seen = ops.greater_equal(back, 0)
    return seen if window_size is None else ops.logical_and(seen, ops.less(back, window_size))


def _row(ops: Ops, count: PrimExpr) -> Any:
    """0, 1, ... in a row of `count` columns."""
    start, step = (PrimValue(const(n, "int64")) for n in (0, 1))
    return ops.expand_dims(ops.arange(start, PrimValue(count), step, "int64"), axis=0)


def _column(ops: Ops, count: PrimExpr) -> Any:
    start, step = (PrimValue(const(n, "int64")) for n in (0, 1))
    return ops.expand_dims(ops.arange(start, PrimValue(count), step, "int64"), axis=1)


# -- operators -------------------------------------------------------------------------------------


@op(
    "nn.attention",
    numpy=_attention_numpy,
    lower=_attention_lower,
    grad=_attention_grad,
    layout=_LAYOUT,
)
def _attention(
    query: Expr,
    key: Expr,
    value: Expr,
    *,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> StructInfo:
    """softmax(query key^T * scale) value, for each head.

    query        [batch, s, heads, d]      key, value  [batch, t, key heads, d] and [batch, t, key
                 heads, dv]
    returns      [batch, s, heads, dv]
    scale        None: 1 / sqrt(d)
    causal_mask  "TopLeft": query i sees keys up to i; "BottomRight": up to i + t - s
    window_size  of the keys that the mask shows, how many of the last ones are seen
    """
    _options(scale, causal_mask, window_size)
    return _attention_info(query, key, value, ("query", "key", "value"))


@op(
    "nn.attention_bias",
    numpy=_attention_numpy,
    lower=_attention_lower,
    grad=_attention_grad,
    layout=_LAYOUT,
)
def attention_bias(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr,
    *,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> StructInfo:
    """nn.attention with `bias` added to the scores before softmax.

    bias  broadcasts to [batch, heads, s, t]; minus infinity hides a key
    """
    _options(scale, causal_mask, window_size)
    result = _attention_info(query, key, value, ("query", "key", "value"))
    info = tensor(bias, "bias", FLOAT)
    q, k = tensor(query, "query"), tensor(key, "key")
    same_dtype((result, info), ("query", "bias"))
    if info.ndim > 4:
        raise StructInfoError(f"bias: wanted at most 4 dimensions, got {info.ndim}")
    scores = (q.dims[0], q.dims[2], q.dims[1], k.dims[1])
    for axis, (dim, size) in enumerate(zip(info.dims, scores[4 - info.ndim :])):
        if not is_const(dim, 1):
            text = (
                "the bias does not broadcast: dimension {axis} is {a} in bias and {b} in the "
                "scores; wanted equal ones, or 1 in bias"
            )
            want_equal(dim, size, text, axis=axis)
    return result


@face_of(_attention)
def attention(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
    span: Span = UNKNOWN,
) -> Call:
    """Attention over [batch, sequence, heads, dimension]; with a `bias`, nn.attention_bias. See
    those.
    """
    options: dict[str, Any] = {
        "scale": scale,
        "causal_mask": causal_mask,
        "window_size": window_size,
        "span": span,
    }
    if bias is None:
        return _attention(query, key, value, **options)
    return attention_bias(query, key, value, bias, **options)


@op(
    "nn.attention_var_len",
    numpy=_var_len_numpy,
    lower=_var_len_lower,
    grad=_var_len_grad,
    layout=_LAYOUT,
)
def attention_var_len(
    queries: Expr,
    keys: Expr,
    values: Expr,
    seqstart_q: Expr,
    max_seqlen_q: Expr,
    seqstart_k: Expr | None = None,
    max_seqlen_k: Expr | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> StructInfo:
    """nn.attention of several sequences that stand one after another in one batch.

    queries       [1, total, heads, d]       keys, values  [1, total of keys, key heads, d]
    seqstart_q    integers [sequences + 1], ascending: where the queries of each sequence start, and
                  where the last ends
    seqstart_k    the same for keys and values; None: where those of the queries start
    max_seqlen_*  the longest of each: a hint, which changes nothing
    Queries outside every sequence give 0.
    """
    _options(scale, causal_mask, window_size)
    starts = tensor(seqstart_q, "seqstart_q", INTEGER, ndim=1)
    if seqstart_k is not None:
        others = tensor(seqstart_k, "seqstart_k", INTEGER, ndim=1)
        text = "the lengths of seqstart_q and seqstart_k differ: {a} and {b}"
        want_equal(starts.dims[0], others.dims[0], text)
    for x, name in ((max_seqlen_q, "max_seqlen_q"), (max_seqlen_k, "max_seqlen_k")):
        if x is not None and not isinstance(x.struct_info, PrimStructInfo):
            tensor(x, name, INTEGER)
    return _attention_info(queries, keys, values, ("queries", "keys", "values"), one_batch=True)
