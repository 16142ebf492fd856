"""BackwardFoldScaleAxis: products with constants go into the weights before them.

lv = R.nn.conv2d(x, w)                     lv = R.nn.conv2d(x, w')
lv1 = R.nn.relu(lv)                        lv1 = R.nn.relu(lv)
gv = R.multiply(lv1, s)  # s > 0           return lv1
"""

from __future__ import annotations

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from .scale_folding import fold_scales


@module_pass(opt_level=3, numerics="reassociates")
def BackwardFoldScaleAxis(mod: IRModule, ctx: PassContext, *, written: bool = False) -> IRModule:
    """Fold products and quotients by constants into the constants of what stands before them."""
    return fold_scales(mod, backward=True, forward=False, written=written)
