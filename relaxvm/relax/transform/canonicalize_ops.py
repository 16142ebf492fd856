"""CanonicalizeOps: one operator where several say the same.

    a = R.expand_dims(x, axis=0)               a = R.reshape(x, R.shape([1, 8]))
    b = R.square(a)                            b = R.multiply(a, a)
    c = R.zeros(R.shape([8]), "float32")       c = R.full(R.shape([8]), R.const(0.0))

So that passes and patterns after it need to know the one only.
"""

from __future__ import annotations

import numpy as np

from ...ir import IRModule, Op, PassContext
from ...ir.transform import function_pass
from .. import op as R
from ..expr import Call, Constant, Function, const
from ..known_ops import is_op
from ..struct_info import Expr
from .rule_text import dims_of, dtype_of, numpy_dtype, rewritten, rule
from .simplify_expr import filled_again, in_shape_of

_RESHAPE = Op.get("relax.reshape")


def _reshaped(call: Call, x: Expr) -> Expr | None:
    return None if is_op(call, _RESHAPE) else in_shape_of(call, x)


def _negated(x: Expr, c: Expr) -> Expr | None:
    if not isinstance(c, Constant) or numpy_dtype(c.struct_info) is None or dtype_of(c).is_bool:
        return None
    return R.add(x, const(np.negative(c.data.numpy()), str(dtype_of(c))))


def _outer(x: Expr, y: Expr) -> Expr | None:
    return R.multiply(R.expand_dims(x, 1), R.expand_dims(y, 0)) if dims_of(x) else None


RULES = (
    rule("exact", "reshaped(x)", _reshaped),
    rule("exact", "filled(x)", lambda call: filled_again(call, call)),
    rule("exact", "square(x)", lambda x: R.multiply(x, x)),
    rule("exact", "subtract(x, c)", _negated),
    rule("exact", "outer(x, y)", _outer),
    rule("exact", "nn.relu6(x)", lambda x: R.clip(x, 0, 6)),
)


@function_pass(opt_level=3)
def CanonicalizeOps(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Write operators by those that other passes know."""
    return rewritten(fn, mod, ctx, RULES)
