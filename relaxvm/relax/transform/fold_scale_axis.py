"""FoldScaleAxis: products with constants go into weights, before or after them.

    lv = R.nn.conv2d(x, w)                     lv = R.nn.conv2d(x, w')
    lv1 = R.multiply(lv, s)                    lv2 = R.add(lv, b)
    lv2 = R.add(lv1, b)                        lv3 = R.nn.relu(lv2)
    lv3 = R.nn.relu(lv2)

`BackwardFoldScaleAxis` and `ForwardFoldScaleAxis` in one; the new constants are computed here.
"""

from __future__ import annotations

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from .scale_folding import fold_scales


@module_pass(opt_level=3, numerics="reassociates")
def FoldScaleAxis(mod: IRModule, ctx: PassContext) -> IRModule:
    """Fold products and quotients by constants into the constants of what stands before them, or
    else after them: weights of convolutions and products, biases, other factors.
    """
    return fold_scales(mod, backward=True, forward=True)
