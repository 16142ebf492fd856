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

from ...ir import IRModule, Op, PassContext, PrimExpr, walk
from ...ir.transform import module_pass
from ..expr import Call, Function
from ..struct_info import StructInfo
from .legalize_ops import LegalizeOps

_FAMILY = "relax.qnn."


@module_pass(opt_level=0)
def LegalizeQnn(mod: IRModule, ctx: PassContext) -> IRModule:
    """Replace the operators of `relax.op.qnn` by the integer operators that they stand for."""
    functions = [fn for fn in mod.functions.values() if isinstance(fn, Function)]
    if not any(_is_qnn(n) for fn in functions for n in walk(fn, (StructInfo, PrimExpr))):
        return mod
    graph = (name for name in Op.list_op_names() if name.startswith("relax."))
    others = [name for name in graph if not name.startswith(_FAMILY)]
    legal: IRModule = LegalizeOps(skip_ops=others).run(mod, ctx)
    return legal


def _is_qnn(node: object) -> bool:
    return type(node) is Call and isinstance(node.op, Op) and node.op.name.startswith(_FAMILY)
