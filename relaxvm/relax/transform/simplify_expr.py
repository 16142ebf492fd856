"""SimplifyExpr: algebra over the graph's operators.

    a = R.permute_dims(x, axes=(0, 2, 1))      b = R.reshape(x, R.shape([8]))
    b = R.permute_dims(a, axes=(0, 2, 1))      return b
    c = R.multiply(b, R.const(1.0))
    d = R.reshape(R.expand_dims(c, 0), (8,))
    return d

The rules are below, one line each; see `rule_text.py` for how they are read. What they leave unused
goes. RemoveRedundantReshape has the first few only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base import DataType
from ...ir import FloatImm, IntImm, IRModule, Op, PassContext, is_const
from ...ir.transform import function_pass
from .. import op as R
from ..derive import dims_equal
from ..expr import Call, Constant, Expr, Function, PrimValue, TupleGetItem, const
from ..known_ops import is_op
from ..op.faces import as_scalars
from ..op.index import slice_bounds, slice_parts
from ..op.infer import dims_product
from ..struct_info import ShapeExpr
from .rule_text import dims_of, dtype_of, rewritten, rule, splat, static_sizes

_SPLIT, _SLICE, _ARANGE = (Op.get(f"relax.{name}") for name in ("split", "strided_slice", "arange"))
_RESHAPED = frozenset(Op.get(f"relax.{name}") for name in ("reshape", "squeeze"))
_BROADCAST_TO = Op.get("relax.broadcast_to")
_MOST_INDICES = 1 << 16

# -- shapes ----------------------------------------------------------------------------------------


def _is_placed(value: Expr) -> bool:
    """Whether a tensor says on which device it is."""
    return getattr(value.struct_info, "vdevice", None) is not None


def in_shape_of(call: Call, x: Expr) -> Expr | None:
    """`x` in the shape of `call`, if it certainly has as many elements."""
    old, new = dims_of(x), dims_of(call)
    if old is None or new is None:
        return None
    if dims_equal([dims_product(old)], [dims_product(new)]) is not True:
        return None
    return R.reshape(x, ShapeExpr(new))


def _filled(call: Call, number: int) -> Expr | None:
    """A tensor like that of `call` of one number."""
    dims = dims_of(call)
    if dims is None or _is_placed(call):
        return None
    return (R.ones if number else R.zeros)(ShapeExpr(dims), dtype_of(call))


def filled_again(call: Call, uniform: Expr) -> Expr | None:
    value, old, dims = splat(uniform), dims_of(uniform), dims_of(call)
    if value is None or old is None or dims is None or _is_placed(call):
        return None
    # Sizes that are compared when it runs are compared still.
    if call.op in _RESHAPED and dims_equal([dims_product(old)], [dims_product(dims)]) is not True:
        return None
    if call.op is _BROADCAST_TO and any(
        not is_const(a, 1) and dims_equal([a], [b]) is not True
        for a, b in zip(old[::-1], dims[::-1])
    ):
        return None
    return R.full(ShapeExpr(dims), const(value, str(dtype_of(call))))


def _order(call: Call, ndim: int) -> list[int]:
    axes = call.attrs["axes"]
    return [a % ndim for a in axes] if axes is not None else list(range(ndim))[::-1]


def _unmoved(call: Call, x: Expr) -> Expr | None:
    """`x` where axes stay, reshaped where none but those of one element move."""
    dims = dims_of(x)
    if dims is None:
        return None
    order = _order(call, len(dims))
    if order == sorted(order):
        return x
    moved = [a for a in order if not is_const(dims[a], 1)]
    return R.reshape(x, ShapeExpr(dims_of(call))) if moved == sorted(moved) else None


def _permuted(call: Call, p: Call, x: Expr) -> Expr | None:
    dims = dims_of(x)
    if dims is None:
        return None
    first, second = _order(p, len(dims)), _order(call, len(dims))
    return R.permute_dims(x, axes=tuple(first[a] for a in second))


def _same_axes(call: Call, p: Call, x: Expr) -> bool:
    dims = dims_of(x)
    if dims is None:
        return False
    a, b = (np.atleast_1d(c.attrs["axis"]) % max(len(dims), 1) for c in (call, p))
    return sorted(a.tolist()) == sorted(b.tolist())


# -- dtypes and numbers ---------------------------------------------------------------------------


def _if_whole(x: Any) -> Any:
    """`x` if it is of integers, whose arithmetic has no special cases."""
    return None if x is None or not dtype_of(x).is_int else x


def _if_float(x: Any) -> Any:
    """`x` if it is of floats, whose negation loses nothing."""
    return x if dtype_of(x).is_float else None


def _cast_past(call: Call, p: Call, x: Expr) -> Expr | None:
    """A cast of `x` past one that loses nothing."""
    source, between, target = dtype_of(x), dtype_of(p), dtype_of(call)
    if not _holds(between, source):
        return None
    # Floats saturate where they become integers, and integers wrap.
    if source.is_int and not between.is_int and target.is_int and not _holds(target, source):
        return None
    return R.astype(x, target)


# Bits of mantissa, least and greatest exponent.
_FLOATS = {
    "float16": (11, -24, 16),
    "bfloat16": (8, -133, 128),
    "float32": (24, -149, 128),
    "float64": (53, -1074, 1024),
}


def _holds(wide: DataType, narrow: DataType) -> bool:
    """Whether `wide` has every value of `narrow`, which comes back unchanged."""
    if wide is narrow or narrow.is_bool:
        return wide is narrow or wide.is_int or wide in _FLOATS
    if narrow in _FLOATS:
        pair = zip(_FLOATS[narrow], _FLOATS.get(wide, (0, 0, 0)))
        (digits, more), (least, less), (most, greater) = pair
        return digits <= more and less <= least and most <= greater
    if not narrow.is_int or wide.is_bool:
        return False
    if wide.is_int:
        return bool(wide.min_value <= narrow.min_value and narrow.max_value <= wide.max_value)
    if wide not in _FLOATS:
        return False
    digits = narrow.bits - narrow.is_signed
    return digits <= _FLOATS[wide][0] and narrow.bits <= _FLOATS[wide][2]


def _if_same(a: Call, b: Call, result: Expr) -> Expr | None:
    return result if a.op is b.op else None


def _again(call: Call, x: Expr, y: Expr) -> Call:
    """The same operator on other operands."""
    return Call(call.op, (x, y), call.attrs, span=call.span)


def _scalar(call: Call, x: Expr, uniform: Expr, place: int) -> Expr | None:
    """`call` with a number instead of an array that is full of it."""
    if dims_of(uniform) == () or dims_of(x) == ():
        return None
    number = const(splat(uniform), str(dtype_of(uniform)))
    return _again(call, x, number) if place else _again(call, number, x)


def _halved(x: Expr, c: Any) -> Expr | None:
    """Division by powers of two is multiplication by others."""
    if not isinstance(c, Constant) or not dtype_of(c).is_float or dtype_of(c).is_bfloat:
        return None
    values = c.data.numpy()
    if not values.size or not np.isfinite(values).all() or not values.all():
        return None
    mantissas, exponents = np.frexp(values)
    if not (np.abs(mantissas) == 0.5).all():
        return None
    limits = np.finfo(values.dtype)
    if exponents.max() > 1 - limits.minexp or exponents.min() < 2 - limits.maxexp:
        return None
    return R.multiply(x, Constant(np.reciprocal(values)))


def joined(call: Call, p: Call, x: Expr, a: Any, b: Any) -> Expr | None:
    """One operation with what two constants give instead of two operations."""
    if call.op is not p.op or not isinstance(a, Constant) or not isinstance(b, Constant):
        return None
    if isinstance(x, Constant):
        return None
    dtype = dtype_of(x)
    if dtype.is_bool or dtype.is_bfloat or dtype.is_float8:
        return None
    op: Any = call.op
    with np.errstate(all="ignore"):
        joined = op.numpy(a.data.numpy(), b.data.numpy())
    if joined.size > max(a.data.numpy().size, b.data.numpy().size):
        return None
    return _again(call, x, const(np.asarray(joined), str(dtype)))


def _joined_whole(call: Call, p: Call, x: Expr, a: Any, b: Any) -> Expr | None:
    return _if_whole(joined(call, p, x, a, b))


def _number(value: Any) -> Any:
    value = value.value if isinstance(value, PrimValue) else value
    return value.value if isinstance(value, (IntImm, FloatImm)) else None


def _clipped(call: Call, p: Call, x: Expr) -> Expr | None:
    limits = [_number(v) for v in (*p.args[1:], *call.args[1:])]
    if None in limits or any(math.isnan(v) for v in limits):
        return None
    least, most = max(limits[0], limits[2]), min(limits[1], limits[3])
    if least > most:
        return None
    return R.clip(
        x,
        p.args[1] if least == limits[0] else call.args[1],
        p.args[2] if most == limits[1] else call.args[2],
    )


# -- pieces ----------------------------------------------------------------------------------------


def _windows(call: Any) -> list[tuple[int, int, int]] | None:
    """Start, step and length of a slice in each axis, if these are numbers and it goes forward."""
    sizes = static_sizes(call.args[0])
    if sizes is None or not isinstance(call, Call):
        return None
    windows = [(0, 1, size) for size in sizes]
    axes, parts = slice_parts(call)
    for a, part in zip(axes, parts):
        if not all(isinstance(v, IntImm) for v in part):
            return None
        start, length = slice_bounds(dims_of(call.args[0])[a], *part, call.attrs["assume_inbound"])
        step = int(part[2].value)
        if step < 1 or not isinstance(start, IntImm) or not isinstance(length, IntImm):
            return None
        windows[a] = (int(start.value), step, int(length.value))
    return windows if all(length for _, _, length in windows) else None


def _slice(x: Expr, windows: Sequence[tuple[int, int, int]]) -> Expr:
    """The elements of `x` in `windows`."""
    sizes = static_sizes(x)
    assert sizes is not None
    cut = [a for a, (_, _, length) in enumerate(windows) if length != sizes[a]]
    begin, step, length = zip(*(windows[a] for a in cut)) if cut else [()] * 3
    end = [b + (n - 1) * k + 1 for b, k, n in zip(begin, step, length)]
    cuts = [as_scalars(each) for each in (cut, begin, end, step)]
    return R.strided_slice(x, *cuts) if cut else x


def _sliced(call: Call, p: Call, x: Expr) -> Expr | None:
    outer, inner = _windows(call), _windows(p)
    if outer is None or inner is None:
        return None
    return _slice(x, [(b + a * k, k * s, n) for (a, s, n), (b, k, _) in zip(outer, inner)])


def _axis(call: Call) -> int:
    return (call.attrs["axis"] or 0) % len(dims_of(call))


def _concatenated(call: Call, each: Sequence[tuple[Any, Any, Any]]) -> Any:
    """What pieces that follow one another are pieces of."""
    if len(each) == 1:
        return each[0][0]
    if dims_of(call) is None:
        return None
    _, first, held = each[0]
    if isinstance(first, TupleGetItem):
        whole = is_op(held, _SPLIT) and len(held.struct_info.fields) == len(each)
        in_order = [
            isinstance(v, TupleGetItem) and v.tuple_value is first.tuple_value and v.index == k
            for k, (_, v, _) in enumerate(each)
        ]
        fits = whole and all(in_order) and held.attrs["axis"] % len(dims_of(call)) == _axis(call)
        return held.args[0] if fits else None
    if not all(is_op(v, _SLICE) and v.args[0] is first.args[0] for _, v, _ in each):
        return None
    windows = [_windows(v) for _, v, _ in each]
    if windows[0] is None:
        return None
    joined, axis = list(windows[0]), _axis(call)
    for w in windows[1:]:
        start, step, length = joined[axis]
        if w is None or w[axis][:2] != (start + step * length, step):
            return None
        joined[axis] = (start, step, length + w[axis][2])
        if [*joined[:axis], *joined[axis + 1 :]] != [*w[:axis], *w[axis + 1 :]]:
            return None
    return _slice(first.args[0], joined)


def _piece(call: Call, p: Call, each: Sequence[tuple[Any, Any, Any]]) -> Expr | None:
    """A slice of the one field of a concatenation in which it lies."""
    windows = _windows(call)
    if windows is None:
        return None
    axis, end = _axis(p), 0
    start, step, length = windows[axis]
    for field, _, _ in each:
        sizes = static_sizes(field)
        if sizes is None:
            return None
        if end <= start and start + (length - 1) * step < end + sizes[axis]:
            return _slice(
                field, [*windows[:axis], (start - end, step, length), *windows[axis + 1 :]]
            )
        end += sizes[axis]
    return None


def _taken_in_a_row(call: Call, x: Expr, a: Any) -> Expr | None:
    """A slice instead of elements at indices that grow by the same step."""
    sizes, axis = static_sizes(x), call.attrs["axis"]
    indices = _indices(a)
    if sizes is None or axis is None or indices is None or indices.ndim != 1 or not indices.size:
        return None
    first, last = int(indices[0]), int(indices[-1])
    step = int(indices[1]) - first if indices.size > 1 else 1
    if step < 1 or first < 0 or last >= sizes[axis % len(sizes)]:
        return None
    if not np.array_equal(indices, np.arange(first, last + 1, step)):
        return None
    windows = [(0, 1, size) for size in sizes]
    windows[axis % len(sizes)] = (first, step, indices.size)
    return _slice(x, windows)


def _indices(a: Any) -> Any:
    if isinstance(a, Constant):
        return a.data.numpy()
    sizes = static_sizes(a) if is_op(a, _ARANGE) else None
    if sizes is None or sizes[0] > _MOST_INDICES:
        return None
    start, end, step = map(_number, a.args)
    return None if None in (start, end, step) else np.arange(start, end, step)


def _padded(call: Call, p: Call, x: Expr) -> Expr | None:
    """One pad that is as wide as both."""
    (inner, mode, value), (outer, *same) = (
        [c.attrs[name] for name in ("pad_width", "pad_mode", "pad_value")] for c in (p, call)
    )
    if mode != "constant" or same[0] != mode or repr(same[1]) != repr(value):
        return None
    return R.nn.pad(x, tuple(a + b for a, b in zip(inner, outer)), mode, value)


# -- the rules -------------------------------------------------------------------------------------

RESHAPES = (
    rule("exact", "reshaped(x)", lambda x: x),
    rule("exact", "reshaped(reshaped(x))", in_shape_of),
)
NUMBERS = (
    # arrays of one number
    rule("exact", "moved(uniform)", filled_again),
    rule("exact", "binary(x, uniform)", lambda call, x, uniform: _scalar(call, x, uniform, 1)),
    rule("exact", "binary(uniform, x)", lambda call, x, uniform: _scalar(call, x, uniform, 0)),
    # neutral elements; x + 0.0 makes 0.0 of -0.0
    rule("exact", "add(x, -0.0)", lambda x: x),
    rule("exact", "add(x, 0)", _if_whole),
    rule("approximate", "add(x, 0)", lambda x: x),
    rule("exact", "subtract(x, 0)", lambda x: x),
    rule("approximate", "subtract(x, -0.0)", lambda x: x),
    rule("exact", "multiply(x, 1)", lambda x: x),
    rule("exact", "divide(x, 1)", lambda x: x),
    rule("exact", "floor_divide(x, 1)", _if_whole),
    rule("exact", "left_shift(x, 0)", lambda x: x),
    rule("exact", "right_shift(x, 0)", lambda x: x),
    rule("exact", "bitwise_or(x, 0)", lambda x: x),
    rule("exact", "bitwise_xor(x, 0)", lambda x: x),
    rule("exact", "bitwise_and(x, -1)", lambda x: x),
    rule("exact", "logical_and(x, True)", lambda x: x),
    rule("exact", "logical_and(True, x)", lambda x: x),
    rule("exact", "logical_or(x, False)", lambda x: x),
    rule("exact", "logical_or(False, x)", lambda x: x),
    rule("exact", "power(x, 1)", _if_whole),
    rule("approximate", "power(x, 1)", lambda x: x),
    rule("approximate", "power(x, 2)", lambda x: R.multiply(x, x)),
    rule("approximate", "power(x, 0.5)", lambda x: R.sqrt(x)),
    rule("approximate", "power(x, -0.5)", lambda x: R.rsqrt(x)),
    # absorbing elements; a float times 0 may be NaN
    rule("exact", "multiply(x, 0)", lambda call: _if_whole(_filled(call, 0))),
    rule("approximate", "multiply(x, 0)", lambda call: _filled(call, 0)),
    rule("exact", "subtract(x, x)", lambda call: _if_whole(_filled(call, 0))),
    rule("approximate", "subtract(x, x)", lambda call: _filled(call, 0)),
    rule("exact", "bitwise_xor(x, x)", lambda call: _filled(call, 0)),
    rule("exact", "logical_and(x, False)", lambda call: _filled(call, 0)),
    rule("exact", "logical_or(x, True)", lambda call: _filled(call, 1)),
    rule("exact", "either(x, x)", lambda x: x),
)
RULES = (
    *RESHAPES,
    *NUMBERS,
    # transposes
    rule("exact", "permute_dims(x)", _unmoved),
    rule("exact", "permute_dims(p := permute_dims(x))", _permuted),
    # casts
    rule("exact", "astype(x)", lambda x: x),
    rule("exact", "astype(p := astype(x))", _cast_past),
    # broadcasts: binary operators broadcast themselves
    rule("exact", "broadcast_to(x)", lambda x: x),
    rule("exact", "broadcast_to(broadcast_to(x), s)", lambda x, s: R.broadcast_to(x, s)),
    rule("exact", "binary(x, broadcast_to(y))", _again),
    rule("exact", "binary(broadcast_to(x), y)", _again),
    # signs
    rule("exact", "involution(p := involution(x))", lambda call, p, x: _if_same(call, p, x)),
    rule("exact", "abs(negative(x))", lambda x: R.abs(x) if dtype_of(x).is_signed else None),
    rule("exact", "square(negative(x))", lambda x: R.square(x)),
    rule("exact", "square(abs(x))", lambda x: R.square(x)),
    rule("exact", "add(x, negative(y))", lambda x, y: R.subtract(x, y)),
    rule("exact", "subtract(x, negative(y))", lambda x, y: R.add(x, y)),
    rule("exact", "multiply(negative(x), negative(y))", lambda x, y: R.multiply(x, y)),
    rule("exact", "divide(negative(x), negative(y))", lambda x, y: _if_float(R.divide(x, y))),
    # what changes nothing the second time
    rule("exact", "idempotent(p := idempotent(x))", lambda call, p: _if_same(call, p, p)),
    rule("exact", "rounded(p := rounded(x))", lambda p: p),
    rule("exact", "clip(p := clip(x))", _clipped),
    # divisions by powers of two, and constants that meet
    rule("exact", "divide(x, c)", _halved),
    rule("exact", "ring(p := ring(x, a), b)", _joined_whole),
    rule("reassociates", "ring(p := ring(x, a), b)", joined),
    # choices
    rule("exact", "where(True, x, y)", lambda x: x),
    rule("exact", "where(False, x, y)", lambda y: y),
    rule("exact", "where(c, x, x)", lambda x: x),
    rule("exact", "where(logical_not(c), x, y)", lambda c, x, y: R.where(c, y, x)),
    # pieces
    rule("exact", "concat(each)", _concatenated),
    rule("exact", "strided_slice(x)", lambda call, x: x if _windows(call) else None),
    rule("exact", "strided_slice(p := strided_slice(x))", _sliced),
    rule("exact", "strided_slice(p := concat(each))", _piece),
    rule("exact", "take(x, a)", _taken_in_a_row),
    rule("exact", "nn.pad(x)", lambda x: x),
    rule("exact", "nn.pad(p := nn.pad(x))", _padded),
    rule("exact", "flip(p := flip(x))", lambda call, p, x: x if _same_axes(call, p, x) else None),
    rule("exact", "tile(x)", lambda x: x),
    rule("exact", "repeat(x)", lambda x: x),
    rule("exact", "collapse_sum_to(x)", lambda x: x),
    rule("exact", "collapse_sum_like(x)", lambda x: x),
)


@function_pass(opt_level=2)
def SimplifyExpr(
    fn: Function, mod: IRModule, ctx: PassContext, *, numerics: str = "exact"
) -> Function:
    """Apply the rules of algebra that are no looser than `numerics`, and than the context allows.

    numerics  "exact": the same bits; "reassociates": constants that meet are joined first;
              "approximate": x + 0.0 and x ** 0.5 too
    """
    return rewritten(fn, mod, ctx, RULES, numerics)


@function_pass(opt_level=2)
def RemoveRedundantReshape(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Make one reshape of those that follow one another, and none of those that change nothing."""
    return rewritten(fn, mod, ctx, RESHAPES)
