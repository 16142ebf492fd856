"""RewriteWeightLayouts: weights are brought into the layouts that kernels read best, by kernels of
their own.

    gv = R.call_tir(cls.dense, (x, w), ...)    →    lv = R.call_tir(cls.dense_weight_prepack, (w,))
                                                    gv = R.call_tir(cls.dense_prepacked, (x, lv))

So that `LiftTransformParams` can move that out of the function. What `PackConstants` does of
constants, this does of the parameters after the first "num_input".
"""

from __future__ import annotations

from ...base import CpuModel, decided, in_function
from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from ...tir import PrimFunc
from ...tir.schedule.plans import with_layout_rewrites
from .attach_attr_layout_free_buffers import LAYOUT_FREE, AttachAttrLayoutFreeBuffers
from .split_layout_rewrite_preproc import SplitLayoutRewritePreproc


@module_pass(opt_level=1)
def RewriteWeightLayouts(mod: IRModule, ctx: PassContext, *, cpu: CpuModel) -> IRModule:
    """Split loop functions that `call_tir` calls with weights, and whose schedule for `cpu` wants
    these in another layout.
    """
    marked = AttachAttrLayoutFreeBuffers()(mod)
    changed = {}
    for gv, fn in marked.items():
        if isinstance(fn, PrimFunc) and fn.get_attr(LAYOUT_FREE):
            weights = [int(k) for k in fn.get_attr(LAYOUT_FREE)]
            with in_function(gv):
                new = with_layout_rewrites(fn.without_attr(LAYOUT_FREE), weights, cpu)
                if new.body is not fn.body:
                    decided("weights are packed into the layout that the kernel reads")
                    changed[gv] = new
    if not changed:
        return mod
    return SplitLayoutRewritePreproc()(marked.clone({**marked.functions, **changed}))
