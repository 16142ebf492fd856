"""Each tensor that memory planning left alone gets a storage of its own.

before:  x = R.builtin.alloc_tensor(R.shape([n, 4]), R.dtype("float32"), R.prim_value(0))
after:   storage = R.memory.alloc_storage(R.shape([n * 16]), R.prim_value(0), …)
         x = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([n, 4]), …)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...arith import Analyzer
from ...base import VerifyError
from ...ir import IntImm, IRModule, PassContext, PrimExpr
from ...ir.transform import function_pass
from ..expr import Binding, Call, DataTypeImm, Function, Var, VarBinding
from ..known_ops import ALLOC_TENSOR, OBJECT, alloc_storage, is_op, tensor_from_storage
from ..rewriter import BindingRewriter
from ..struct_info import ShapeExpr, TensorStructInfo


@function_pass(opt_level=0)
def LowerAllocTensor(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Split every remaining `R.builtin.alloc_tensor` into a storage and a tensor in it."""
    return _Rewriter().rewrite(fn)


class _Rewriter(BindingRewriter):
    def binding(self, b: Binding) -> Sequence[Binding] | None:
        call = b.value
        if not is_op(call, ALLOC_TENSOR):
            return None
        assert isinstance(call, Call)
        return own_storage(b, call)


def own_storage(b: Binding, call: Call) -> list[Binding]:
    """The two bindings that stand for `b`, which binds the ``builtin.alloc_tensor`` `call`."""
    size = size_bytes(call, b.var)
    if not isinstance(size, IntImm):
        size = Analyzer(wrap=True).simplify(size)
    storage = Var("storage", OBJECT, b.span)
    dtype = call.args[1]
    assert isinstance(dtype, DataTypeImm)
    allocation = alloc_storage(ShapeExpr((size,)), call.args[2], call.args[3], dtype.value)
    return [
        VarBinding(storage, allocation, b.span),
        b.replace(value=tensor_from_storage(storage, call)),
    ]


def size_bytes(call: Call, var: Var) -> PrimExpr:
    """The bytes that the tensor of a ``builtin.alloc_tensor`` takes. Raises VerifyError if they
    are unknown.
    """
    info, dtype = call.struct_info, call.args[1]
    dims = info.dims if isinstance(info, TensorStructInfo) else None
    if dims is None or not isinstance(dtype, DataTypeImm):
        raise VerifyError(
            f"{var.name_hint} = R.builtin.alloc_tensor(...): the size must be known as expressions "
            f"over symbols, got {info!r}; bind them first with R.match_cast"
        )
    sizes = [dim.value for dim in dims if isinstance(dim, IntImm)]
    if len(sizes) == len(dims):
        total = dtype.value.itemsize * math.prod(sizes)
        if total > _MAX_BYTES:
            raise VerifyError(
                f"{var.name_hint} = R.builtin.alloc_tensor(...): {total} bytes are more than any "
                f"machine has"
            )
        return IntImm("int64", total)
    numel: PrimExpr = IntImm("int64", 1)
    for dim in dims:
        numel = numel * dim
    # A product of symbols is a constant only where one dimension is 0.
    return numel if isinstance(numel, IntImm) else numel * dtype.value.itemsize


_MAX_BYTES = 1 << 62
