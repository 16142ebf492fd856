"""The backward pass of nn.nll_loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import te
from ....ir import And, PrimExpr, cast, const
from ..lower import te_lower, wide_dtype
from ..nn.loss import nll_loss
from ..record import missing, op
from .shapes import backward_of

_SECOND = missing("second derivatives are not taken")
_NUMBERED = missing("axes are numbered by position")
ZERO, ONE = const(0, "int64"), const(1, "int64")


def _nll_numpy(
    output_grad: Any,
    predictions: Any,
    targets: Any,
    weights: Any = None,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Any:
    p = np.asarray(predictions)
    wide = np.float32 if p.dtype == np.float16 else np.float64
    along = 0 if p.ndim == 1 else 1
    classes, t = p.shape[along], np.asarray(targets).astype("int64")
    share = np.ones(classes, wide) if weights is None else np.asarray(weights).astype(wide)
    inside = (t >= 0) & (t < classes)
    kept = t != ignore_index
    each = np.zeros(t.shape, wide)
    if classes:
        each = np.where(inside, share[np.where(inside, t, 0)], 0.0)
    g = np.negative(np.asarray(output_grad).astype(wide)) * np.where(kept, each, 0.0)
    if reduction == "mean":
        g = g / np.sum(np.where(kept, np.where(inside, each, np.nan), 0.0))
    one_hot = np.expand_dims(t, along) == np.arange(classes).reshape(
        [-1 if k == along else 1 for k in range(p.ndim)]
    )
    return np.where(one_hot, np.expand_dims(g, along), 0.0).astype(p.dtype)


def _nll_te(
    g: te.Tensor,
    p: te.Tensor,
    targets: te.Tensor,
    weights: te.Tensor | None = None,
    *,
    reduction: str,
    ignore_index: int,
) -> te.Tensor:
    wide = wide_dtype(p.dtype)
    along = 0 if p.ndim == 1 else 1
    classes = cast("int64", p.shape[along])
    zero, nan = const(0, wide), const(float("nan"), wide)

    def target(i: tuple[PrimExpr, ...]) -> PrimExpr:
        return cast("int64", targets(*i))

    def kept(i: tuple[PrimExpr, ...]) -> PrimExpr:
        return target(i) != const(ignore_index, "int64")

    def share(i: tuple[PrimExpr, ...], outside: PrimExpr) -> PrimExpr:
        t = target(i)
        own = const(1, wide) if weights is None else cast(wide, weights(t))
        own_share = te.if_then_else(And(t >= ZERO, t < classes), own, outside)
        return te.if_then_else(kept(i), own_share, zero)

    total: te.Tensor | None = None
    if reduction == "mean":
        shares = te.compute(targets.shape, lambda *i: share(i, nan), "weights")
        total = shares
        if targets.ndim:
            axes = [te.reduce_axis((0, d), f"k{k}") for k, d in enumerate(targets.shape)]
            total = te.compute(
                (), lambda: te.sum(shares(*(a.var for a in axes)), axis=axes), "total"
            )

    def value(*index: PrimExpr) -> PrimExpr:
        i = tuple(v for k, v in enumerate(index) if k != along)
        grad = cast(wide, g(*i) if g.ndim else g())
        value_of = (zero - grad) * share(i, zero)
        if total is not None:
            value_of = value_of / total()
        chosen = target(i).equal(cast("int64", index[along]))
        return cast(p.dtype, te.if_then_else(chosen, value_of, zero))

    return te.compute(p.shape, value, "nll_loss_backward")


nll_loss_backward = op("grad.nll_loss_backward", _nll_numpy, te_lower(_nll_te), _SECOND, _NUMBERED)(
    backward_of(
        __name__,
        nll_loss,
        """The gradient of nn.nll_loss with respect to `predictions`, given that of its result.
        Arguments are as there.
        """,
    )
)
