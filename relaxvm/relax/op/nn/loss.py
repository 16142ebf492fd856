"""Losses: cross_entropy_with_logits, nll_loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base import StructInfoError
from ....ir import EQ, GE, LT, And, FloatImm, PrimExpr, cast, const
from ....te import Tensor, compute, reduce_axis
from ....te import sum as te_sum
from ....tir import if_then_else
from ...expr import Call, PrimValue
from ...rules import Ops
from ...struct_info import Expr, StructInfo, TensorStructInfo
from ..infer import FLOAT, INTEGER, known_sizes, same_dtype, tensor, want_word
from ..lower import rounded, te_lower, wide_dtype
from ..meaning import in_wider
from ..record import missing, op
from ..sizes import want_equal, want_same

_NO_LAYOUT = missing("the class axis is numbered by position")


def _total(x: Tensor, name: str) -> Tensor:
    """The sum of all elements."""
    if not x.ndim:
        return x
    axes = [reduce_axis((0, d), f"k{k}") for k, d in enumerate(x.shape)]
    return compute((), lambda: te_sum(x(*(a.var for a in axes)), axis=axes), name)


# -- cross_entropy_with_logits --------------------------------------------------------------------


def _cross_entropy_te(predictions: Tensor, labels: Tensor) -> Tensor:
    wide = wide_dtype(predictions.dtype)
    products = compute(
        predictions.shape,
        lambda *i: cast(wide, predictions(*i)) * cast(wide, labels(*i)),
        "products",
    )
    total = _total(products, "total")

    def value() -> PrimExpr:
        loss = const(0, wide) - total()
        if predictions.ndim > 1:
            loss = loss / cast(wide, predictions.shape[0])
        return cast(predictions.dtype, loss)

    return compute((), value, "cross_entropy")


def _cross_entropy_numpy(predictions: np.ndarray, labels: np.ndarray) -> Any:
    total = -np.sum(predictions * labels)
    count = len(predictions) if predictions.ndim > 1 else 1
    return np.asarray(total / np.asarray(count, total.dtype))


def _cross_entropy_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, Any]:
    predictions, labels = call.args
    info: Any = predictions.struct_info
    share = -gy
    if info.ndim != 1:
        count = known_sizes(predictions, "predictions")[0]
        share = share / PrimValue(cast(info.dtype, count))
    return share * labels, share * predictions


@op(
    "nn.cross_entropy_with_logits",
    numpy=in_wider(_cross_entropy_numpy),
    lower=te_lower(_cross_entropy_te),
    grad=_cross_entropy_grad,
    layout=_NO_LAYOUT,
)
def cross_entropy_with_logits(predictions: Expr, labels: Expr) -> StructInfo:
    """-sum(predictions * labels) / (size of the first axis; 1 for a vector): a scalar.

    predictions  logarithms of probabilities, as log_softmax gives them
    labels       probabilities, of the same shape
    Raises StructInfoError if shapes or dtypes differ, or they are not float.
    """
    p, t = tensor(predictions, "predictions", FLOAT), tensor(labels, "labels", FLOAT)
    dtype = same_dtype((p, t), ("predictions", "labels"))
    if p.ndim != t.ndim:
        raise StructInfoError(f"labels: wanted {p.ndim} dimensions, as predictions; got {t.ndim}")
    if p.ndim == 0:
        raise StructInfoError("predictions: wanted 1 or more dimensions, got 0")
    want_same(t.dims, p.dims, "labels: wanted size {b} along axis {k}, got {a}")
    return TensorStructInfo((), dtype, p.vdevice)


# -- nll_loss -------------------------------------------------------------------------------------

_REDUCTIONS = ("none", "sum", "mean")


def _nll_te(
    predictions: Tensor, targets: Tensor, weights: Tensor | None = None, *, reduction: str,
    ignore_index: int,
) -> Tensor:  # fmt: skip
    wide = wide_dtype(predictions.dtype)
    classes = predictions.shape[0 if predictions.ndim == 1 else 1]
    nan, zero = FloatImm(wide, float("nan")), const(0, wide)

    def chosen(i: Any, value: Any) -> PrimExpr:
        """value(class), NaN for a class that there is not, 0 for what is ignored."""
        t = cast("int64", targets(*i))
        inside = And(GE(t, const(0, "int64")), LT(t, cast("int64", classes)))
        chosen_value = if_then_else(inside, value(t), nan)
        return if_then_else(EQ(t, const(ignore_index, "int64")), zero, chosen_value)

    def weight(t: PrimExpr) -> PrimExpr:
        return const(1, wide) if weights is None else cast(wide, weights(t))

    def loss(*i: PrimExpr) -> PrimExpr:
        def value(t: PrimExpr) -> PrimExpr:
            p = predictions(t) if predictions.ndim == 1 else predictions(i[0], t, *i[1:])
            return (zero - cast(wide, p)) * weight(t)

        return chosen(i, value)

    losses = compute(targets.shape, loss, "losses")
    if reduction == "none":
        result = losses
    else:
        result = _total(losses, "total")
        if reduction == "mean":
            shares = compute(targets.shape, lambda *i: chosen(i, weight), "weights")
            total, share = result, _total(shares, "weight")
            result = compute((), lambda: total() / share(), "mean")
    return rounded(result, predictions.dtype)


def _nll_numpy(
    predictions: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None, *,
    reduction: str, ignore_index: int,
) -> Any:  # fmt: skip
    kind = predictions.dtype
    wide = {"float16": np.float32, "float32": np.float64}.get(kind.name, kind)
    rows = predictions.astype(wide)
    rows = rows if rows.ndim == 1 else np.moveaxis(rows, 1, 0)
    classes, t = rows.shape[0], targets.astype("int64")
    share = np.ones(classes, wide) if weights is None else weights.astype(wide)
    inside = (t >= 0) & (t < classes)
    if classes:
        safe = np.where(inside, t, 0)
        picked = np.take_along_axis(rows.reshape(classes, *t.shape), safe[None], 0)[0]
        each = np.where(inside, share[safe], np.nan)
    else:
        picked = each = np.full(t.shape, np.nan, wide)
    kept = t != ignore_index
    each = np.where(kept, each, 0)
    losses = np.where(kept, -picked * each, 0)
    if reduction == "none":
        return losses.astype(kind)
    total = np.sum(losses)
    return np.asarray(total / np.sum(each) if reduction == "mean" else total).astype(kind)


def _nll_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    grad = ops.grad.nll_loss_backward(gy, *call.args, **dict(call.attrs))
    return grad, *(None for _ in call.args[1:])


@op("nn.nll_loss", _nll_numpy, te_lower(_nll_te), _nll_grad, _NO_LAYOUT)
def nll_loss(
    predictions: Expr,
    targets: Expr,
    weights: Expr | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> StructInfo:
    """-weights[t] * predictions[t] for each target t: the negative log likelihood.

    predictions  [n, c, d1, ...] or [c], logarithms of probabilities
    targets      [n, d1, ...] or [], classes; `ignore_index` counts nothing, and another class that
                 is not there gives NaN
    weights      [c]; without them, ones
    reduction    "none"; "sum"; "mean", which divides by the sum of the targets' weights
    Raises StructInfoError if shapes or dtypes do not fit.
    """
    p, t = tensor(predictions, "predictions", FLOAT), tensor(targets, "targets", INTEGER)
    want_word("reduction", reduction, _REDUCTIONS)
    if p.ndim == 0:
        raise StructInfoError("predictions: wanted 1 or more dimensions, got 0")
    if t.ndim != p.ndim - 1:
        raise StructInfoError(f"targets: wanted {p.ndim - 1} dimensions, got {t.ndim}")
    places = (*p.dims[:1], *p.dims[2:]) if p.ndim > 1 else ()
    want_same(t.dims, places, "targets: wanted size {b} along axis {k}, got {a}")
    if weights is not None:
        w = tensor(weights, "weights", FLOAT, 1)
        same_dtype((p, w), ("predictions", "weights"))
        classes = p.dims[1 if p.ndim > 1 else 0]
        want_equal(w.dims[0], classes, "weights: wanted size {b}, got {a}")
    if reduction != "none":
        return TensorStructInfo((), p.dtype, p.vdevice)
    return TensorStructInfo(t.dims, p.dtype, p.vdevice)
