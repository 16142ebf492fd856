"""LegalizeQnn: operators of quantised tensors become integer operators. Relay's CanonicalizeOps of
`qnn.transform`.

    lv = R.qnn.mean(x, 0.1, 3, 0.2, 0, axis=1)      lv1 = R.astype(x, "int32")
                                                    lv2 = R.subtract(lv1, 3)
                                                    lv3 = R.sum(lv2, axis=1)
                                                    ...
                                                    lv = R.fixed_point_rescale(lv3, ...)

What stands for each is its own rule (`relax/op/compound.py`). It is done early, so that what
follows from constant scales and weights is folded.
"""

from __future__ import annotations

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from .legalize_ops.legalize import Rules, legalized


@module_pass(opt_level=0)
def LegalizeQnn(mod: IRModule, ctx: PassContext) -> IRModule:
    """Replace the operators of `relax.op.qnn` by the integer operators that they stand for."""
    return legalized(mod, Rules({}, (), False, family="relax.qnn."))
