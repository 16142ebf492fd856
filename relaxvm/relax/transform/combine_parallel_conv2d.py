"""CombineParallelConv2D: convolutions of one value become one.

a = R.nn.conv2d(x, w1)                     lv = R.nn.conv2d(x, [w1, w2, w3])
b = R.nn.conv2d(x, w2)                     a = R.strided_slice(lv, ...)
c = R.nn.conv2d(x, w3)                     b = R.strided_slice(lv, ...)
                                           c = R.strided_slice(lv, ...)
"""

from __future__ import annotations

from ...ir import IRModule, Op, PassContext
from ...ir.transform import module_pass
from ..expr import Call
from ..op.nn.layout import Layout
from .combine_parallel import Check, Kind, combine_parallel

_CONV2D = Op.get("relax.nn.conv2d")


@module_pass(opt_level=4)
def CombineParallelConv2D(
    mod: IRModule, ctx: PassContext, *, min_num_branches: int = 3, check: Check | None = None
) -> IRModule:
    """Combine 2-D convolutions of one value that differ in weights and how many channels they give
    alone, with the biases and activations after them.

    min_num_branches  fewer are left alone
    check             (value, weights, biases by branch, what variables are bound to) -> whether
    """
    return combine_parallel(mod, Kind(_channels), min_num_branches, check)


def _channels(call: Call) -> tuple[int, int] | None:
    if call.op is not _CONV2D or call.attrs["groups"] != 1:
        return None
    kernel, out = (Layout(call.attrs[f"{name}_layout"]) for name in ("kernel", "out"))
    return kernel.position("O") - len(kernel), out.position("C") - len(out)
