"""Factories for operators of one kind: `unary`, `broadcast_binary`, `reduce`.

tanh = unary("tanh", "The hyperbolic tangent.", numpy=np.tanh, scalar=tir.tanh,
             grad=lambda ops, x, y, gy: gy * (1.0 - y * y))
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ...base import DataType
from ...ir import PrimExpr, cast, const
from ...te import Tensor, compute, reduce_axis
from ..expr import Call
from ..rules import Ops
from ..struct_info import Expr, StructInfo, TensorStructInfo
from .broadcast import (
    broadcast_lower,
    match_scalars,
    mixed_info,
    mixed_numpy,
    operand_dtype,
    unbroadcast,
)
from .infer import FLOAT, NUMBER, axes_of, tensor
from .lower import elementwise, te_lower
from .record import ELEMENTWISE, Missing, missing, op
from .sizes import ONE, KnownTensor

NOT_SMOOTH = missing("piecewise constant")


def _name_rule(rule: Callable[..., Any], name: str, meaning: str) -> None:
    """Make `rule` look as if it stood where its family is used."""
    rule.__name__ = rule.__qualname__ = name.rpartition(".")[2]
    rule.__doc__ = meaning
    rule.__module__ = sys._getframe(2).f_globals["__name__"]


def unary(
    name: str,
    meaning: str,
    *,
    numpy: Callable[..., Any],
    scalar: Callable[[PrimExpr], PrimExpr],
    takes: Collection[str] = FLOAT,
    gives: str | None = None,
    grad: Callable[..., Any] | Missing = NOT_SMOOTH,
) -> Callable[..., Call]:
    """An operator of one tensor `x` that works element by element.

    meaning  the docstring
    numpy    (array) -> array        scalar  (scalar expression) -> scalar expression
    takes    kinds of dtype          gives   the dtype of the result; None: that of `x`
    grad     (ops, x, y, gy) -> the gradient with respect to x, where y = op(x)
    """
    result = DataType(gives) if gives is not None else None

    def rule(x: Expr) -> StructInfo:
        info = tensor(x, "x", takes)
        return info if result is None else info.replace(dtype=result)

    _name_rule(rule, name, meaning)
    of_x = grad
    declare = op(
        name,
        numpy=numpy,
        lower=te_lower(lambda x: elementwise(x, scalar)),
        grad=grad
        if isinstance(of_x, Missing)
        else lambda ops, call, y, gy: (of_x(ops, call.args[0], y, gy),),
        layout=ELEMENTWISE,
    )
    return declare(rule)


def broadcast_binary(
    name: str,
    meaning: str,
    *,
    numpy: Callable[..., Any],
    scalar: Callable[[PrimExpr, PrimExpr], PrimExpr],
    takes: Collection[str] = NUMBER,
    gives: str | None = None,
    grad: Callable[..., Any] | Missing = NOT_SMOOTH,
) -> Callable[..., Call]:
    """An operator of two operands that broadcast, tensors or scalar values of one dtype; Python
    numbers take that dtype. Beside another dtype a bool may stand (for those that give bool: any),
    with a warning at build: they are computed in the dtype that holds both, and the result is of
    the first one's. Of an unknown dtype the result is unknown.

    grad  (ops, x1, x2, y, gy) -> the two gradients in the shape of y; they are summed to the
          operands' shapes here
    The rest is as for `unary`.
    """
    result = DataType(gives) if gives is not None else None

    def rule(x1: Expr, x2: Expr) -> StructInfo:
        return mixed_info((x1, x2), ("x1", "x2"), takes, result)

    _name_rule(rule, name, meaning)
    of_both: Any = grad

    def grad_rule(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr | None, ...]:
        x1, x2 = call.args
        g1, g2 = of_both(ops, x1, x2, y, gy)
        first, second = (operand_dtype(x) for x in call.args)
        if first is not second:
            g1, g2 = None if first == "bool" else g1, None if second == "bool" else g2
        return unbroadcast(ops, g1, x1), unbroadcast(ops, g2, x2)

    declare = op(
        name,
        numpy=mixed_numpy(numpy, result is not None),
        lower=broadcast_lower(scalar, mixes=True),
        grad=of_both if isinstance(of_both, Missing) else grad_rule,
        layout=ELEMENTWISE,
    )
    return match_scalars(declare(rule))


# -- reductions ------------------------------------------------------------------------------------


def reduced_info(
    info: KnownTensor, axis: Any, keepdims: bool, dtype: DataType | None = None
) -> TensorStructInfo:
    """The struct info of a reduction over `axis` (an int, several, or None for all)."""
    axes = axes_of(axis, info.ndim)
    dims = [ONE if k in axes else d for k, d in enumerate(info.dims) if keepdims or k not in axes]
    return TensorStructInfo(dims, info.dtype if dtype is None else dtype, info.vdevice)


def reduced_dims(
    dims: Sequence[PrimExpr], axes: Collection[int], keepdims: bool
) -> tuple[PrimExpr, ...]:
    """The dimensions of a reduction over `axes` of a te tensor of `dims`."""
    kept = (const(1, d.dtype) if k in axes else d for k, d in enumerate(dims))
    return tuple(d for k, d in enumerate(kept) if keepdims or k not in axes)


def te_reduce(
    x: Tensor,
    axis: Any,
    keepdims: bool,
    reducer: Callable[..., Any],
    prepare: Callable[[PrimExpr], PrimExpr] | None = None,
    finish: Callable[[PrimExpr], PrimExpr] | None = None,
    widen: bool = False,
) -> Tensor:
    """`x` reduced over `axis` by a te reducer.

    prepare, finish  applied to every element before, and to the results after; their dtype is the
                     accumulator's
    widen            the 16-bit floats accumulate in float32
    """
    axes = axes_of(axis, x.ndim)
    wide = "float32" if widen and x.dtype.is_float and x.dtype.bits == 16 else x.dtype

    def before(v: PrimExpr) -> PrimExpr:
        v = cast(wide, v)
        return v if prepare is None else prepare(v)

    def after(v: PrimExpr) -> PrimExpr:
        return cast(x.dtype, v if finish is None else finish(v))

    if not axes:
        return elementwise(x, lambda v: after(before(v)))
    over = {a: reduce_axis((0, x.shape[a]), f"k{a}") for a in axes}
    dims = reduced_dims(x.shape, over, keepdims)

    def value(*index: PrimExpr) -> PrimExpr:
        rest = iter([i for k, i in enumerate(index) if not (keepdims and k in over)])
        place = [over[k].var if k in over else next(rest) for k in range(x.ndim)]
        return reducer(before(x(*place)), axis=list(over.values()))

    total: Tensor = compute(dims, value, "reduced")
    same = finish is None and total.dtype is x.dtype
    return total if same else elementwise(total, after)


def reduce(
    name: str,
    meaning: str,
    *,
    numpy: Callable[..., Any],
    reducer: Callable[..., Any],
    takes: Collection[str] = NUMBER,
    widen: bool = False,
    grad: Callable[..., Any] | Missing,
) -> Callable[..., Call]:
    """An operator that reduces `axis` of one tensor and keeps its dtype.

    numpy    (x, *, axis, keepdims) -> array; axis is an int, a tuple or None
    reducer  a te reducer such as `te.sum`; for the 16-bit floats it works in float32 if `widen`
    grad     (ops, call, y, gy) -> (gradient with respect to x,)
    """

    def rule(
        x: Expr, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
    ) -> StructInfo:
        return reduced_info(tensor(x, "x", takes), axis, keepdims)

    _name_rule(rule, name, meaning)
    declare = op(
        name,
        numpy=numpy,
        lower=te_lower(
            lambda x, axis, keepdims: te_reduce(x, axis, keepdims, reducer, widen=widen)
        ),
        grad=grad,
    )
    return declare(rule)
