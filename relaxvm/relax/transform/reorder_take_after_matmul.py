"""ReorderTakeAfterMatmul: first the product with the whole table, then its columns are taken.

    lv = R.take(w, indices, axis=1)            lv = R.matmul(x, w)
    gv = R.matmul(x, lv)                       gv = R.take(lv, indices, axis=1)

So the table need not be rearranged. Where each row of a batch takes a matrix of its own from a
table of few (LoRA's weights), all of them are multiplied at once, and what each row needs is taken.
"""

from __future__ import annotations

from typing import Any

from ...ir import IRModule, PassContext
from ...ir.transform import function_pass
from ..derive import prove_dims, tensor_dims
from ..dpl import is_op, rewrite_call, wildcard
from ..expr import Function
from ..op.infer import axis_of
from ..op.names import ops
from ..struct_info import Expr, ShapeExpr


@function_pass(opt_level=4)
def ReorderTakeAfterMatmul(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Multiply by a table before columns, or the matrices of a batch, are taken of it.

    x @ take(w, i, axis=-1)  for i [n]                                  take(x @ w, i, axis=-1)
    x @ take(w, i, axis=0)   for x [b, s, k], w [t, k, n] and i [b]     of x @ w as [k, t * n]
    """
    x, table, indices = wildcard(), wildcard(), wildcard()

    def rule(call: Any, matched: Any) -> Expr | None:
        take, attrs = matched[taken], dict(call.attrs)
        left, weights, places = (tensor_dims(matched[p]) for p in (x, table, indices))
        if left is None or weights is None or places is None or take.attrs["axis"] is None:
            return None
        axis, dtype = axis_of(take.attrs["axis"], len(weights)), matched[x].struct_info.dtype
        if dtype is not matched[table].struct_info.dtype or len(places) != 1:
            return None
        if axis == len(weights) - 1 > 0:
            product = ops.matmul(matched[x], matched[table], **attrs)
            last = len(tensor_dims(product) or ()) - 1
            return ops.take(product, matched[indices], axis=last, mode=take.attrs["mode"])
        if (len(left), len(weights), axis, take.attrs["mode"]) != (3, 3, 0, "fast"):
            return None
        if not prove_dims(left[0], places[0]):
            return None
        (batch, rows, inner), (many, _, columns) = left, weights
        side = ops.permute_dims(matched[table], axes=[1, 0, 2])
        side = ops.reshape(side, ShapeExpr([inner, many * columns]))
        every = ops.reshape(
            ops.matmul(matched[x], side, **attrs), ShapeExpr([batch, rows, many, columns])
        )
        every = ops.permute_dims(every, axes=[0, 2, 1, 3])
        return ops.gather_nd(every, ops.expand_dims(matched[indices], axis=1), batch_dims=1)

    taken = is_op("relax.take")(table, indices)
    return rewrite_call(is_op("relax.matmul")(x, taken), rule, fn)
