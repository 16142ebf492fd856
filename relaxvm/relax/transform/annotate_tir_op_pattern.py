"""AnnotateTIROpPattern: loop functions say what kind of operator they are.

    before:  @T.prim_func                       after:  @T.prim_func
             def relu(x, y): ...                        def relu(x, y):
                                                            T.func_attr({"op_pattern": 0})

The numbers are those of `tir.analysis.OpPatternKind`. A function that says its kind keeps it.
"""

from __future__ import annotations

from ...ir import IRModule, PassContext
from ...tir import PrimFunc
from ...tir.analysis import op_pattern
from ...tir.transform import prim_func_pass


@prim_func_pass(opt_level=0)
def AnnotateTIROpPattern(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """State the kind of each loop function, for fusion, as the attribute ``op_pattern``."""
    if fn.get_attr("op_pattern") is not None:
        return fn
    return fn.with_attr("op_pattern", int(op_pattern(fn).kind))
