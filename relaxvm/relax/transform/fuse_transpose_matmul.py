"""FuseTransposeMatmul: a product reads its transposed operand as it lies in memory.

lv = R.permute_dims(w)                     gv = R.call_tir(cls.NT_matmul, (x, w), ...)
gv = R.matmul(x, lv)
"""

from __future__ import annotations

from typing import Any

from ...base import declined, in_function
from ...ir import IRModule, PassContext, is_const
from ...ir.transform import module_pass
from ...te import Tensor
from ..block_builder import BlockBuilder
from ..derive import prove_dims, tensor_dims
from ..dpl import is_op, rewrite_call, wildcard
from ..expr import Function
from ..op.linalg import matmul_te
from ..op.lower import call_te
from ..struct_info import Expr, ShapeExpr
from .adjust_matmul_order import swaps_last


@module_pass(opt_level=4)
def FuseTransposeMatmul(mod: IRModule, ctx: PassContext) -> IRModule:
    """Make loop functions of products whose second operand has its last two axes exchanged, if all
    sizes are known to fit.
    """
    builder = BlockBuilder(mod)
    x, w = wildcard(), wildcard()
    turned = is_op("relax.permute_dims")(w)

    def rule(call: Any, matched: Any) -> Expr | None:
        turn, dims = matched[turned], tensor_dims(call)
        if dims is None or not swaps_last(turn):
            return None
        if not _fit(call.args[0], turn.args[0]):
            declined("{} not fused with {}: sizes may not fit", call, turn)
            return None
        args = ShapeExpr(dims), call.args[0], turn.args[0]
        dtype = str(call.struct_info.dtype)
        return call_te(builder, call, _nt_matmul, *args, te_name="NT_matmul", out_dtype=dtype)

    changed = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            with in_function(gv):
                new = rewrite_call(is_op("relax.matmul")(x, turned), rule, fn)
            if new is not fn:
                changed[gv] = new
    if not changed:
        return mod
    for gv, new in changed.items():
        builder.update_func(gv, new)
    return builder.get()


def _fit(x: Expr, w: Expr) -> bool:
    """Whether the sizes of `x` and of the transposed `w` certainly fit."""
    one, two = tensor_dims(x), tensor_dims(w)
    if not one or not two or not prove_dims(one[-1], two[-1]):
        return False
    pairs = zip(one[-3::-1], two[-3::-1])
    return all(prove_dims(a, b) or is_const(a, 1) or is_const(b, 1) for a, b in pairs)


def _nt_matmul(dims: Any, a: Tensor, b: Tensor, *, out_dtype: Any) -> Tensor:
    """The product of `a` and `b` with its last two axes exchanged."""
    turned: Any = _Turned(b)
    return matmul_te(dims, a, turned, out_dtype=out_dtype)


class _Turned:
    """A tensor read with its last two axes exchanged."""

    def __init__(self, tensor: Tensor) -> None:
        *batch, rows, columns = tensor.shape
        self.tensor, self.shape = tensor, (*batch, columns, rows)
        self.ndim, self.dtype = tensor.ndim, tensor.dtype

    def __call__(self, *index: Any) -> Any:
        *batch, row, column = index
        return self.tensor(*batch, column, row)
