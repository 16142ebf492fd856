"""Attention of com.microsoft, with its caches and positions, and what stands around it.

Attention is written in parts, softmax(q k^T * scale + ...) v, which FuseAttention makes one kernel
of: it reads keys and values where they lie, so that neither a cache is transposed nor a head that
several queries share repeated. Heads are [batch, heads, sequence, size] here, as caches are.
"""

from __future__ import annotations

import math
from typing import Any

from ..... import tir
from .....ir import IntImm, PrimExpr
from ....expr import PrimValue, Tuple, const
from ....op.sizes import simplified, size_analyzer
from ..registry import Ints, onnx, op
from ..values import as_size, dims_of, dtype_of, shape_expr

MS = "com.microsoft"


# -- sizes -----------------------------------------------------------------------------------------


def is_same(a: PrimExpr, b: Any) -> bool:
    """Whether two sizes are known to be equal."""
    return bool(size_analyzer(a).can_prove_equal(a, as_size(b)))


def part(x: Any, axis: int, begin: Any, end: Any) -> Any:
    """The elements of `x` from `begin` to `end` along an axis."""
    return op.strided_slice(x, [axis], [begin], [end])


def parts(node: Any, x: Any, sizes: Any, axis: int = -1) -> list[Any]:
    """`x` in parts of these sizes along an axis."""
    x, pieces, begin = node.emit(x), [], as_size(0)
    for size in sizes:
        end = simplified(begin + as_size(size))
        pieces.append(part(x, axis, begin, end))
        begin = end
    return pieces


def places(node: Any, count: Any, dtype: str = "int64") -> Any:
    """0, 1, ... of `count` elements, a size."""
    numbers = op.arange(PrimValue(as_size(count)), dtype=dtype)
    if dims_of(numbers)[0] is as_size(count):
        return numbers
    # A sum of sizes is not negative, which arange does not take for granted.
    return node.sized(numbers, as_size(count))


def _joined(*pieces: Any, axis: int = 2) -> Any:
    return op.concat(Tuple(pieces), axis)


# -- heads -----------------------------------------------------------------------------------------


def _heads(x: Any, count: int) -> Any:
    """[batch, sequence, heads * size] as [batch, heads, sequence, size]."""
    batch, length, width = dims_of(x)
    shape = shape_expr([batch, length, count, simplified(width // count)])
    return op.permute_dims(op.reshape(x, shape), (0, 2, 1, 3))


def _rows(x: Any) -> Any:
    """[batch, heads, sequence, size] as [batch, sequence, heads * size]."""
    batch, heads, length, size = dims_of(x)
    shape = shape_expr([batch, length, simplified(heads * size)])
    return op.reshape(op.permute_dims(x, (0, 2, 1, 3)), shape)


def _scaled(x: Any, factor: float) -> Any:
    return x if factor == 1.0 else op.multiply(x, const(factor, dtype_of(x)))


def attend(
    node: Any,
    q: Any,
    k: Any,
    v: Any,
    scale: float,
    *,
    added: Any = (),
    seen: Any = None,
    softcap: float = 0.0,
    sink: Any = None,
) -> tuple[Any, Any, Any]:
    """softmax(softcap(q k^T * scale) + added) v as [batch, s, heads * dv], the scores that softmax
    gets, and the weights.

    q      [batch, heads, s, d]        k, v  [batch, key heads, t, d or dv]
    scale  0: 1 / sqrt(d)
    added  tensors that broadcast to [batch, heads, s, t]
    seen   which keys each query sees, bools that broadcast to that; None: all
    sink   [heads]: a score of which the weight goes nowhere
    """
    batch, heads, rows, size = dims_of(q)
    few, columns = dims_of(k)[1], dims_of(k)[2]
    grouped = not is_same(heads, few)
    if grouped:
        group = simplified(heads // few)
        q = op.reshape(q, shape_expr([batch, few, group, rows, size]))
        k, v = op.expand_dims(k, 2), op.expand_dims(v, 2)
        added = [_for_groups(x, few, group) for x in added]
        seen = None if seen is None else _for_groups(seen, few, group)
    turned = (0, 1, 2, 4, 3) if grouped else (0, 1, 3, 2)
    if not scale:
        if not isinstance(size, IntImm):
            raise node.error(f"the size of a head must be known, got {size}")
        scale = 1.0 / max(size.value, 1) ** 0.5
    scores = _scaled(op.matmul(q, op.permute_dims(k, turned)), scale)
    if softcap:
        scores = _scaled(op.tanh(_scaled(scores, 1.0 / softcap)), softcap)
    for x in added:
        scores = op.add(scores, x if dtype_of(x) is dtype_of(q) else op.astype(x, dtype_of(q)))
    if seen is not None:
        scores = op.where(seen, scores, const(float("-inf"), dtype_of(q)))
    scores = node.emit(scores)
    if sink is None:
        weights = node.emit(op.nn.softmax(scores, -1))
    else:
        lead = (few, group) if grouped else (heads,)
        column = op.reshape(sink, shape_expr([1, *lead, 1, 1]))
        column = op.broadcast_to(column, shape_expr([batch, *lead, rows, 1]))
        whole = op.nn.softmax(_joined(scores, column, axis=-1), -1)
        weights = node.emit(part(whole, -1, 0, columns))
    result = op.matmul(weights, v)
    shape = shape_expr([batch, heads, rows, columns])
    if grouped:
        result = op.reshape(result, shape_expr([batch, heads, rows, dims_of(v)[-1]]))
        return _rows(result), op.reshape(scores, shape), op.reshape(weights, shape)
    return _rows(result), scores, weights


def _for_groups(x: Any, few: Any, group: Any) -> Any:
    """What broadcasts to [batch, heads, s, t] for heads in groups."""
    dims = dims_of(x)
    lead = (1, 1) if is_same(dims[1], 1) else (few, group)
    return op.reshape(x, shape_expr([dims[0], *lead, *dims[2:]]))


def _up_to_own(node: Any, rows: Any, columns: Any) -> Any:
    """Keys that stand at a query's place or before, where the last query stands at the last key:
    bools [rows, columns].
    """
    first = op.add(places(node, rows), PrimValue(simplified(columns - rows)))
    return op.less_equal(op.expand_dims(places(node, columns), 0), op.expand_dims(first, 1))


def _checked(node: Any, x: Any, *dims: Any) -> Any:
    """`x`, of which dimensions are said to be `dims` (or 1): checked when it runs, if need be."""
    own = [d if is_same(d, 1) else w for d, w in zip(dims_of(x), dims)]
    if all(map(is_same, dims_of(x), own)):
        return x
    for have, want in zip(dims_of(x), own):
        if isinstance(have, IntImm) and isinstance(want, IntImm) and have.value != want.value:
            raise node.error(f"wanted a mask or bias of {dims}, got {x.struct_info}")
    return node.sized(x, *own)


def _added(node: Any, mask: Any, bias: Any, low: float, q: Any, keys: Any, past: Any) -> list[Any]:
    """What a mask and a bias add to scores of the queries `q`, behind `past` keys, and `keys` keys.

    mask  where keys are hidden 0, [batch, keys], [batch, rows, keys] or [batch, 1, most, most]; or
          [batch] lengths, [2 * batch] ends and starts, [3 * batch + 2] lengths and more
    low   what is added to the scores of hidden keys
    """
    batch, heads, rows, _ = dims_of(q)
    rest = [] if bias is None else [_checked(node, bias, batch, heads, rows, keys)]
    if mask is None:
        return rest
    rank = len(dims_of(mask))
    if rank in (2, 3):
        mask = _checked(node, mask, *((batch, keys) if rank == 2 else (batch, rows, keys)))
    if rank == 1:
        shown = _within(node, mask, batch, keys)
    else:
        if rank == 4:
            mask = part(part(mask, 2, past, simplified(past + rows)), 3, 0, keys)
        else:
            mask = op.expand_dims(mask, (1, 2) if rank == 2 else 1)
        shown = op.greater(mask, const(0, dtype_of(mask)))
    dtype = dtype_of(q)
    return [op.where(shown, const(0.0, dtype), const(low, dtype)), *rest]


def _within(node: Any, bounds: Any, batch: Any, keys: Any) -> Any:
    """Whether each of `keys` keys lies in its batch's bounds: [batch, 1, 1, keys]."""
    (count,) = dims_of(bounds)
    positions = places(node, keys, str(dtype_of(bounds)))
    if isinstance(count, tir.Var) and not is_same(count, batch):
        # A size of its own is taken for the batch's.
        bounds = _checked(node, bounds, batch)
        count = batch
    ends, starts = bounds, None
    if not is_same(count, batch):
        ends = part(bounds, 0, 0, batch)
        if is_same(count, simplified(batch * 2)):
            starts = part(bounds, 0, batch, count)
        elif not is_same(count, simplified(batch * 3 + 2)):
            raise node.error(
                f"mask: wanted {batch} elements, twice or three times as many (and 2), got {count}"
            )
    shown = op.less(positions, op.expand_dims(ends, (1, 2, 3)))
    if starts is None:
        return shown
    return op.logical_and(shown, op.greater_equal(positions, op.expand_dims(starts, (1, 2, 3))))


def _cached(
    node: Any, past: Any, new: Any, length: Any, shares: Any, beams: Any = None
) -> tuple[Any, Any]:
    """Keys to attend to, and the cache that goes on: what was there with `new` behind.

    length  of a shared buffer: how many rows of it count
    beams   [batches, beams, most]: of which beam each row is that a beam attends to
    """
    if past is None:
        return new, new
    if not shares:
        whole = node.emit(_joined(past, new))
        return whole, whole
    if length is None:
        raise node.error("past_present_share_buffer: its past_sequence_length is missing")
    (count,) = node.sizes(length, "past_sequence_length")
    end = simplified(count + dims_of(new)[2])
    old = node.emit(part(past, 2, 0, count))
    keys = node.emit(_joined(old, new))
    present = _joined(keys, part(past, 2, end, dims_of(past)[2]))
    return keys if beams is None else node.emit(_joined(_of_beams(node, old, beams), new)), present


def _of_beams(node: Any, rows: Any, beams: Any) -> Any:
    """Rows of a cache [batches * beams, heads, t, size], each from the beam that `beams` says."""
    batches, width, _ = dims_of(beams)
    batch, _, count, _ = dims_of(rows)
    first = op.multiply(places(node, batches), PrimValue(width))
    own = op.astype(part(beams, 2, 0, count), "int64")
    source = op.reshape(op.add(own, op.expand_dims(first, (1, 2))), shape_expr([batch, count]))
    positions = op.broadcast_to(places(node, count), shape_expr([batch, count]))
    picked = op.gather_nd(
        op.permute_dims(rows, (0, 2, 1, 3)), op.stack(Tuple((source, positions)), 2)
    )
    return op.permute_dims(picked, (0, 2, 1, 3))


# -- attention of one input ------------------------------------------------------------------------


@onnx("Attention", domain=MS, ignores="rotary_embedding_dim")
def attention(
    node: Any,
    x: Any,
    weights: Any,
    bias: Any = None,
    mask: Any = None,
    past: Any = None,
    attention_bias: Any = None,
    past_length: Any = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    qkv_hidden_sizes: Ints = None,
    scale: float = 0.0,
    mask_filter_value: float = -10000.0,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
) -> Any:
    """Queries, keys and values are products of one input: past and present hold keys and values."""
    projected = op.matmul(x, weights)
    projected = projected if bias is None else op.add(projected, bias)
    return self_attention(
        node,
        projected,
        mask,
        past,
        attention_bias,
        past_length,
        num_heads=num_heads,
        unidirectional=unidirectional,
        qkv_hidden_sizes=qkv_hidden_sizes,
        scale=scale,
        mask_filter_value=mask_filter_value,
        do_rotary=do_rotary,
        past_present_share_buffer=past_present_share_buffer,
    )


def self_attention(
    node: Any,
    projected: Any,
    mask: Any,
    past: Any,
    attention_bias: Any = None,
    past_length: Any = None,
    *,
    num_heads: int,
    unidirectional: int,
    qkv_hidden_sizes: Any = None,
    scale: float,
    mask_filter_value: float,
    do_rotary: int,
    past_present_share_buffer: int,
) -> Any:
    """`Attention` of queries, keys and values side by side: [batch, s, all]."""
    if do_rotary:
        raise node.error("do_rotary is not imported; use RotaryEmbedding and MultiHeadAttention")
    width = dims_of(projected)[2]
    sizes = qkv_hidden_sizes or [simplified(width // 3)] * 3
    q, k, v = (node.emit(_heads(p, num_heads)) for p in parts(node, projected, sizes))
    old: list[Any] = [None, None]
    if past is not None:
        old = [op.squeeze(p, 0) for p in parts(node, past, (1, 1), 0)]
    share = past_present_share_buffer
    k, new_k = _cached(node, old[0], k, past_length, share)
    v, new_v = _cached(node, old[1], v, past_length, share)
    rows, keys = dims_of(q)[2], dims_of(k)[2]
    added = _added(node, mask, attention_bias, mask_filter_value, q, keys, simplified(keys - rows))
    seen = op.expand_dims(_up_to_own(node, rows, keys), (0, 1)) if unidirectional else None
    y, _, _ = attend(node, q, k, v, scale, added=added, seen=seen)
    if not node.wants(1):
        return y
    return y, op.stack(Tuple((new_k, new_v)), 0)


# -- attention of several inputs -------------------------------------------------------------------


@onnx("MultiHeadAttention", domain=MS)
def multi_head_attention(
    node: Any,
    query: Any,
    key: Any = None,
    value: Any = None,
    bias: Any = None,
    mask: Any = None,
    attention_bias: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    past_length: Any = None,
    cache_indirection: Any = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    scale: float = 0.0,
    mask_filter_value: float = -10000.0,
) -> Any:
    return _attention_of_three(
        node,
        query,
        key,
        value,
        bias,
        mask,
        attention_bias,
        (past_key, past_value),
        past_length,
        num_heads,
        unidirectional,
        scale,
        mask_filter_value,
        past_length is not None,
        cache_indirection,
    )


@onnx("DecoderMaskedMultiHeadAttention", domain=MS, ignores="output_qk")
def decoder_masked_attention(
    node: Any,
    query: Any,
    key: Any = None,
    value: Any = None,
    mask: Any = None,
    attention_bias: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    past_length: Any = None,
    beam_width: Any = None,
    cache_indirection: Any = None,
    bias: Any = None,
    *,
    num_heads: int,
    scale: float = 0.0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
) -> Any:
    return _attention_of_three(
        node,
        query,
        key,
        value,
        bias,
        mask,
        attention_bias,
        (past_key, past_value),
        past_length,
        num_heads,
        0,
        scale,
        mask_filter_value,
        past_present_share_buffer or past_length is not None,
        cache_indirection,
    )


def _attention_of_three(
    node: Any,
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    mask: Any,
    attention_bias: Any,
    past: tuple[Any, Any],
    past_length: Any,
    heads: int,
    causal: int,
    scale: float,
    low: float,
    shares: Any,
    beams: Any,
) -> Any:
    lies = [x is not None and len(dims_of(x)) == 4 for x in (key, value)]
    if len(dims_of(query)) == 5:
        query, key, value = (_packed(p) for p in parts(node, query, (1, 1, 1), 3))
    elif key is not None and len(dims_of(key)) == 5:
        key, value = (_packed(p) for p in parts(node, key, (1, 1), 3))
    elif key is None:
        whole = dims_of(query)[2]
        query, key, value = parts(node, query, [simplified(whole // 3)] * 3)
    if value is None:
        raise node.error("its inputs key and value go together, or packed with others")
    trio = [query, key, value]
    if bias is not None:
        # Keys and values that lie as a cache have theirs in them.
        sizes = [
            simplified(dims_of(x)[1] * dims_of(x)[3]) if four else dims_of(x)[2]
            for x, four in zip(trio, (False, *lies))
        ]
        biases = parts(node, bias, sizes, 0)
        trio = [x if f else op.add(x, b) for x, b, f in zip(trio, biases, (False, *lies))]
    q, k, v = (node.emit(x if f else _heads(x, heads)) for x, f in zip(trio, (False, *lies)))
    k, new_k = _cached(node, past[0], k, past_length, shares, beams)
    v, new_v = _cached(node, past[1], v, past_length, shares, beams)
    rows, keys = dims_of(q)[2], dims_of(k)[2]
    added = _added(node, mask, attention_bias, low, q, keys, simplified(keys - rows))
    seen = op.expand_dims(_up_to_own(node, rows, keys), (0, 1)) if causal else None
    y, scores, _ = attend(node, q, k, v, scale, added=added, seen=seen)
    lowest = const(float(dtype_of(q).min_value), dtype_of(q))
    return y, new_k, new_v, op.maximum(scores, lowest) if node.wants(3) else None


def _packed(x: Any) -> Any:
    """[batch, s, heads, 1, size] as [batch, s, heads * size]."""
    batch, length, heads, _, size = dims_of(x)
    return op.reshape(x, shape_expr([batch, length, simplified(heads * size)]))


@onnx("PackedMultiHeadAttention", domain=MS, ignores="mask_filter_value")
def packed_multi_head_attention(
    node: Any,
    query: Any,
    key: Any = None,
    value: Any = None,
    bias: Any = None,
    offset: Any = None,
    starts: Any = None,
    attention_bias: Any = None,
    *,
    num_heads: int,
    scale: float = 0.0,
) -> Any:
    """Of sequences without padding, one after another: [tokens, heads * size]."""
    if starts is None:
        raise node.error("its input cumulative_sequence_length is missing")
    if attention_bias is not None:
        raise node.error("attention_bias of packed sequences is not imported")
    trio = [query, key, value]
    if key is None:
        tokens, heads, _, size = dims_of(query)
        shape = shape_expr([tokens, simplified(heads * size)])
        trio = [op.reshape(p, shape) for p in parts(node, query, (1, 1, 1), 2)]
    if bias is not None:
        biases = parts(node, bias, [dims_of(x)[1] for x in trio], 0)
        trio = [op.add(x, b) for x, b in zip(trio, biases)]
    return _var_len(trio, starts, num_heads, scale)


@onnx("PackedAttention", domain=MS)
def packed_attention(
    node: Any,
    x: Any,
    weights: Any,
    bias: Any,
    offset: Any,
    starts: Any,
    attention_bias: Any = None,
    *,
    num_heads: int,
    scale: float = 0.0,
    qkv_hidden_sizes: Ints = None,
) -> Any:
    if attention_bias is not None:
        raise node.error("attention_bias of packed sequences is not imported")
    projected = node.emit(op.add(op.matmul(x, weights), bias))
    sizes = qkv_hidden_sizes or [simplified(dims_of(projected)[1] // 3)] * 3
    return _var_len(parts(node, projected, sizes), starts, num_heads, scale)


def _var_len(trio: Any, starts: Any, heads: int, scale: float) -> Any:
    shapes = [
        shape_expr([1, dims_of(x)[0], heads, simplified(dims_of(x)[1] // heads)]) for x in trio
    ]
    q, k, v = (op.reshape(x, s) for x, s in zip(trio, shapes))
    longest = op.shape_to_tensor(shape_expr([dims_of(trio[0])[0]]))
    y = op.nn.attention_var_len(q, k, v, starts, op.reshape(longest, ()), scale=scale or None)
    return op.reshape(y, shape_expr([dims_of(trio[0])[0], dims_of(trio[2])[1]]))


# -- grouped queries -------------------------------------------------------------------------------


@onnx("GroupQueryAttention", domain=MS, ignores="kv_cache_bit_width")
def group_query_attention(
    node: Any,
    query: Any,
    key: Any = None,
    value: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    seqlens_k: Any = None,
    total: Any = None,
    cos: Any = None,
    sin: Any = None,
    position_ids: Any = None,
    attention_bias: Any = None,
    head_sink: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    q_norm: Any = None,
    k_norm: Any = None,
    query_seqlens: Any = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    softcap: float = 0.0,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    local_window_size: int = -1,
    smooth_softmax: int = -1,
    causal: int = 1,
    qk_output: int = 0,
    qk_norm_epsilon: float = 1e-6,
    q_norm_epsilon: Any = None,
    k_norm_epsilon: Any = None,
    sliding_window_cache: int = 0,
    k_quant_type: str = "NONE",
    v_quant_type: str = "NONE",
) -> Any:
    """Each batch has its own length: seqlens_k + 1 keys with the new ones, which stand behind the
    old ones in the cache. The cache that goes on has as many rows as the old one, or `total` if
    that is more; what stands behind a batch's keys is not said.
    """
    if sliding_window_cache or (k_quant_type, v_quant_type) != ("NONE", "NONE"):
        raise node.error("caches that are quantised or slide are not imported")
    if seqlens_k is None or total is None:
        raise node.error("its inputs seqlens_k and total_sequence_length must be there")
    if key is None:
        size = simplified(dims_of(query)[2] // (num_heads + 2 * kv_num_heads))
        sizes = [simplified(size * n) for n in (num_heads, kv_num_heads, kv_num_heads)]
        query, key, value = parts(node, query, sizes)
    q, k = _heads(query, num_heads), _heads(key, kv_num_heads)
    v = node.emit(_heads(value, kv_num_heads))
    if q_norm is not None:
        q = op.nn.rms_norm(q, q_norm, -1, q_norm_epsilon or qk_norm_epsilon)
        k = op.nn.rms_norm(k, k_norm, -1, k_norm_epsilon or qk_norm_epsilon)
    batch, _, rows, _ = dims_of(q)
    lengths = node.emit(op.add(op.astype(seqlens_k, "int64"), const(1, "int64")))
    lengths = op.reshape(lengths, shape_expr([batch]))
    new = PrimValue(rows) if query_seqlens is None else op.astype(query_seqlens, "int64")
    # With padding behind it, a first prompt is shorter than its rows.
    begin = node.emit(op.maximum(op.subtract(lengths, new), const(0, "int64")))
    positions = op.add(op.expand_dims(begin, 1), places(node, rows))
    if do_rotary:
        turns = positions if position_ids is None else position_ids
        q, k = (_rotated(node, x, turns, cos, sin, rotary_interleaved) for x in (q, k))
    q, k = node.emit(q), node.emit(k)
    first = past_key is None or is_same(dims_of(past_key)[2], 0)
    if not first:
        have = op.shape_to_tensor(shape_expr([dims_of(past_key)[2]]))
        longer = node.emit(op.maximum(op.astype(op.reshape(total, (1,)), "int64"), have))
        (length,) = node.sizes(longer, "length")
        k = _written(node, past_key, k, begin, length)
        v = _written(node, past_value, v, begin, length)
    keys = dims_of(k)[2]
    columns = places(node, keys)
    if first and query_seqlens is None:
        own = op.reshape(places(node, rows), shape_expr([1, 1, rows, 1]))
    else:
        own = op.expand_dims(positions, (1, 3))
    if not causal:
        seen = op.less(columns, op.expand_dims(lengths, (1, 2, 3)))
    else:
        own = node.emit(own)
        seen = op.less_equal(columns, own)
        if local_window_size > 0:
            after = op.subtract(own, const(local_window_size, "int64"))
            seen = op.logical_and(seen, op.greater(columns, after))
    if attention_bias is not None and not is_same(dims_of(attention_bias)[3], keys):
        attention_bias = node.emit(_as_wide(attention_bias, keys))
        attention_bias = _checked(node, attention_bias, *dims_of(q)[:3], keys)
    sink = head_sink
    if sink is None and smooth_softmax == 1:
        sink = op.zeros(shape_expr([num_heads]), dtype_of(q))
    y, scores, weights = attend(
        node,
        q,
        k,
        v,
        scale,
        added=() if attention_bias is None else (attention_bias,),
        seen=seen,
        softcap=softcap,
        sink=sink,
    )
    if qk_output == 1:
        # What no query sees counts as 0 in it.
        scores = op.where(op.isinf(scores), const(0.0, dtype_of(q)), scores)
    return y, k, v, (None, scores, weights)[qk_output]


def _as_wide(bias: Any, keys: Any) -> Any:
    """A bias whose last dimension is short of the cache's rows."""
    *lead, width = dims_of(bias)
    blank = op.zeros(shape_expr([*lead, simplified(keys - width)]), dtype_of(bias))
    return _joined(bias, blank, axis=3)


def _written(node: Any, past: Any, new: Any, begin: Any, length: Any) -> Any:
    """The cache with the rows `new` from `begin` on, which each batch has of its own.

    length  how many rows it has then
    """
    batch, heads, rows, size = dims_of(new)
    have = dims_of(past)[2]
    if is_same(length, simplified(have + rows)) and is_same(batch, 1):
        return node.emit(_joined(past, new))
    if not is_same(length, have):
        blank = shape_expr([batch, heads, simplified(length - have), size])
        past = _joined(past, op.zeros(blank, dtype_of(past)))
    positions = op.add(op.expand_dims(begin, 1), places(node, rows))
    positions = op.broadcast_to(
        op.expand_dims(positions, (1, 3)), shape_expr([batch, heads, rows, size])
    )
    return node.emit(op.scatter_elements(past, positions, new, 2))


# -- positions -------------------------------------------------------------------------------------


@onnx("RotaryEmbedding", domain=MS, ignores="scale")
def rotary_embedding(
    node: Any,
    x: Any,
    position_ids: Any,
    cos: Any,
    sin: Any,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    is_packed_batching: int = 0,
) -> Any:
    if is_packed_batching:
        raise node.error("is_packed_batching is not imported")
    flat = len(dims_of(x)) == 3
    if flat:
        size = simplified(dims_of(cos)[1] * 2)
        count = num_heads or getattr(simplified(dims_of(x)[2] // size), "value", None)
        if count is None:
            raise node.error(f"the number of heads must be known, got {dims_of(x)[2]} // {size}")
        x = _heads(x, count)
    if len(dims_of(position_ids)) == 1:
        start = op.astype(position_ids, "int64")
        position_ids = op.expand_dims(op.add(start, places(node, dims_of(x)[2])), 0)
    y = _rotated(node, x, position_ids, cos, sin, interleaved)
    return _rows(y) if flat else y


def _rotated(node: Any, x: Any, positions: Any, cos: Any, sin: Any, interleaved: int) -> Any:
    """Pairs of the first dimensions of heads, turned by the angles of their positions.

    x         [batch, heads, s, d]      positions  [batch or 1, s]
    cos, sin  [positions, r / 2]: of the first r dimensions; others stay
    """
    if cos is None or sin is None:
        raise node.error("do_rotary: its inputs cos_cache and sin_cache are missing")
    batch, heads, length, size = dims_of(x)
    half = dims_of(cos)[1]
    width = simplified(half * 2)
    x = node.emit(x)
    turned, rest = x, None
    if not is_same(width, size):
        turned, rest = (node.emit(p) for p in parts(node, x, (width, size - width)))
    c, s = (op.expand_dims(op.take(t, positions, 0), 1) for t in (cos, sin))
    c, s = node.emit(c), node.emit(s)
    if interleaved:
        pairs = node.emit(op.reshape(turned, shape_expr([batch, heads, length, half, 2])))
        a, b = (node.emit(op.squeeze(part(pairs, 4, i, i + 1), 4)) for i in (0, 1))
    else:
        a, b = (node.emit(p) for p in parts(node, turned, (half, half)))
    first = op.subtract(op.multiply(a, c), op.multiply(b, s))
    second = op.add(op.multiply(a, s), op.multiply(b, c))
    if interleaved:
        y = op.reshape(
            op.stack(Tuple((first, second)), 4), shape_expr([batch, heads, length, width])
        )
    else:
        y = _joined(first, second, axis=3)
    return y if rest is None else _joined(y, rest, axis=3)


@onnx("RelativePositionBias", domain=MS)
def relative_position_bias(
    node: Any,
    table: Any,
    query_length: Any,
    key_length: Any,
    *,
    max_distance: int,
    is_bidirectional: int = 0,
) -> Any:
    """T5's: distances in buckets, the far ones on a logarithmic scale; [1, heads, query, key]."""
    (rows,), (columns,) = (node.sizes(n, "length") for n in (query_length, key_length))
    buckets = getattr(dims_of(table)[0], "value", None)
    if buckets is None:
        raise node.error("the number of buckets must be known")
    back = op.subtract(
        op.expand_dims(places(node, rows), 1), op.expand_dims(places(node, columns), 0)
    )
    back = node.emit(back)
    zero, offset = const(0, "int64"), None
    if is_bidirectional:
        buckets //= 2
        ahead = op.astype(op.less(back, zero), "int64")
        offset = op.multiply(ahead, const(buckets, "int64"))
        back = node.emit(op.abs(back))
    else:
        back = node.emit(op.maximum(back, zero))
    exact = buckets // 2
    share = op.divide(
        op.astype(op.maximum(back, const(1, "int64")), "float32"), const(float(exact))
    )
    scale = const((buckets - exact) / math.log(max_distance / exact), "float32")
    far = op.add(op.astype(op.multiply(op.log(share), scale), "int64"), const(exact, "int64"))
    far = op.minimum(far, const(buckets - 1, "int64"))
    bucket = op.where(op.less(back, const(exact, "int64")), back, far)
    bucket = bucket if offset is None else op.add(bucket, offset)
    return op.expand_dims(op.permute_dims(op.take(table, bucket, 0), (2, 0, 1)), 0)


@onnx("GatedRelativePositionBias", domain=MS)
def gated_relative_position_bias(
    node: Any,
    query: Any,
    query_bias: Any,
    position: Any,
    weight: Any,
    bias: Any,
    eco: Any,
    offset: Any = None,
    *,
    num_heads: int,
) -> Any:
    if offset is not None:
        raise node.error("token_offset (packed sequences) is not imported")
    heads = _heads(op.add(query, query_bias), num_heads)
    gates = op.add(op.matmul(heads, weight), bias)
    batch, _, length, wide = dims_of(node.emit(gates))
    shape = shape_expr([batch, num_heads, length, 2, simplified(wide // 2)])
    gates = op.sigmoid(op.sum(op.reshape(gates, shape), -1))
    update, reset = parts(node, gates, (1, 1))
    one, two = (const(v, dtype_of(query)) for v in (1.0, 2.0))
    factor = op.add(op.multiply(update, op.subtract(op.multiply(reset, eco), one)), two)
    return op.multiply(factor, position)


# -- padding ---------------------------------------------------------------------------------------


@onnx("RemovePadding", domain=MS)
def remove_padding(node: Any, x: Any, counts: Any) -> Any:
    """Tokens of [batch, s, width] without the padding behind each sequence."""
    batch, length, width = dims_of(x)
    counts = node.emit(counts)
    kept = op.less(places(node, length, "int32"), op.expand_dims(counts, 1))
    flat = node.emit(op.reshape(kept, shape_expr([simplified(batch * length)])))
    order = op.argsort(op.astype(op.logical_not(flat), "int8"))
    tokens = op.squeeze(node.emit(op.nonzero(flat)), 0)
    rows = op.reshape(x, shape_expr([simplified(batch * length), width]))
    ends = op.cumsum(counts, 0, "int32")
    starts = _joined(op.zeros(shape_expr([1]), "int32"), ends, axis=0)
    longest = op.max(counts, 0, True)
    shape = shape_expr([batch, length])
    return op.take(rows, tokens, 0), op.reshape(order, shape), starts, longest


@onnx("RestorePadding", domain=MS)
def restore_padding(node: Any, x: Any, offset: Any) -> Any:
    batch, length = dims_of(offset)
    tokens, width = dims_of(x)
    total = simplified(batch * length)
    flat = op.reshape(offset, shape_expr([total]))
    blank = op.zeros(shape_expr([total, width]), dtype_of(x))
    positions = op.expand_dims(op.astype(part(flat, 0, 0, tokens), "int64"), 1)
    return op.reshape(op.scatter_nd(blank, positions, x), shape_expr([batch, length, width]))
