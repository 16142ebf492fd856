"""FoldBatchnormToConv2D: a batch norm by constant statistics becomes a product and a sum, and the
product goes into the weights before it.

    lv = R.nn.conv2d(x, w)                     lv = R.nn.conv2d(x, w')
    lv1 = R.nn.batch_norm(                     gv = R.add(lv, shift)
        lv, gamma, beta, mean, var,            return gv
        axis=1, training=False)
    gv = lv1[0]
    return gv

That is gamma / sqrt(var + epsilon) and beta - mean * scale, rounded once. What does not stand
after weights keeps the product. A bias before the batch norm is scaled and takes the shift. One for
training is left alone: `DecomposeOpsForInference` says that a model is not trained any more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base import declined
from ...ir import IRModule, Op, PassContext, is_const
from ...ir.transform import module_pass
from ..derive import tensor_dims
from ..expr import (
    Call,
    Constant,
    Function,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..flow import BIND, events
from ..op.infer import axis_of
from ..op.names import ops
from ..rewriter import Dropper
from .rule_text import rewritten, rule
from .scale_folding import array_of, constant_like, fold_scales
from .signature import replace_functions
from .simplify_expr import joined

_BATCH_NORM = Op.get("relax.nn.batch_norm")
_BIAS_AND_SHIFT = rule("reassociates", "add(p := add(x, a), b)", joined)


@module_pass(opt_level=2, numerics="reassociates")
def FoldBatchnormToConv2D(mod: IRModule, ctx: PassContext) -> IRModule:
    """Fold batch norms by constant statistics into the weights of the convolution or product before
    them, where nothing else needs what that gives; elsewhere make them a product and a sum.
    """
    folded = fold_scales(mod, backward=True, forward=False, prepare=_as_products)
    changed = {
        gv: rewritten(fn, folded, ctx, (_BIAS_AND_SHIFT,), "reassociates")
        for gv, fn in folded.items()
        if isinstance(fn, Function) and fn is not mod.functions.get(gv)
    }
    return replace_functions(folded, changed)


def _as_products(fn: Function) -> tuple[Function, list[Var]]:
    """`fn` with batch norms in simpler operators, and the variables of the products."""
    norms: dict[Any, tuple[Any, Constant, Constant]] = {}
    fields: dict[Any, list[Any]] = {}
    for e in events(fn, inner=True):
        b, value = e.node, e.value
        if e.kind is BIND and isinstance(value, TupleGetItem) and value.tuple_value in norms:
            fields.setdefault(value.tuple_value, []).append(b)
            continue
        for var in e.reads():
            if norms.pop(var, None) is not None:
                declined("{} stays: its result is needed as a tuple", var)
        if e.kind is BIND and isinstance(value, Call) and value.op is _BATCH_NORM:
            constants = _scale_and_shift(value)
            if constants is None:
                declined("{} stays: it is not by constants of known sizes", b)
            else:
                norms[b.var] = b, *constants
    changes: dict[int, Any] = {}
    products = []
    for var, (b, factor, offset) in norms.items():
        data, _, _, mean, variance = b.value.args
        product = ops.multiply(data, factor, span=b.value.span)
        scaled = type(var)(var.name_hint, product.struct_info, var.span)
        changes[id(var)] = VarBinding(scaled, product, b.span)
        products.append(scaled)
        for field in fields.get(var, ()):
            results = ops.add(scaled, offset, span=b.value.span), mean, variance
            changes[id(field.var)] = field.replace(value=results[field.value.index])
    return Dropper(changes).rewrite(fn) if changes else fn, products


def _scale_and_shift(call: Call) -> tuple[Constant, Constant] | None:
    """What `call` multiplies by and adds; None if that is not known or too large for its dtype."""
    dims, attrs = tensor_dims(call.args[0]), call.attrs
    gamma, beta, mean, variance = (array_of(a) for a in call.args[1:])
    if attrs["training"] or dims is None:
        return None
    if gamma is None or beta is None or mean is None or variance is None:
        return None
    axis = axis_of(attrs["axis"], len(dims))
    if not is_const(dims[axis], len(mean)):
        return None
    scale = 1.0 / np.sqrt(variance.astype("float64") + attrs["epsilon"])
    if attrs["scale"]:
        scale = scale * gamma
    shift = (beta if attrs["center"] else 0.0) - mean * scale
    shape = [len(mean) if k == axis else 1 for k in range(len(dims))]
    factor, offset = (constant_like(call.args[1], a.reshape(shape)) for a in (scale, shift))
    return None if factor is None or offset is None else (factor, offset)
