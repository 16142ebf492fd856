"""ForwardFoldScaleAxis: products with constants go into the weights after them.

lv = R.multiply(x, s)  # s > 0             lv1 = R.nn.relu(x)
lv1 = R.nn.relu(lv)                        gv = R.nn.conv2d(lv1, w')
gv = R.nn.conv2d(lv1, w)
"""

from __future__ import annotations

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from .scale_folding import fold_scales


@module_pass(opt_level=3, numerics="reassociates")
def ForwardFoldScaleAxis(mod: IRModule, ctx: PassContext, *, written: bool = False) -> IRModule:
    """Fold products and quotients by constants into the constants of what stands after them."""
    return fold_scales(mod, backward=False, forward=True, written=written)
