"""ToNonDataflow: dataflow blocks become plain blocks, and dataflow variables plain variables.

with R.dataflow():
    lv = R.add(x, x)                       lv = R.add(x, x)
    gv = R.add(lv, x)                      gv = R.add(lv, x)
    R.output(gv)                           return gv
return gv
"""

from __future__ import annotations

from ...ir import GlobalVar, IRModule, Node, PassContext, PrimExpr, walk
from ...ir.transform import function_pass
from ...ir.walk import transform
from ..expr import BindingBlock, Constant, DataflowBlock, DataflowVar, Function, SeqExpr, Var
from ..normal_form import join_plain_blocks
from ..struct_info import StructInfo


@function_pass(opt_level=0)
def ToNonDataflow(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Replace dataflow blocks and variables by plain ones; afterwards order and effects may matter
    everywhere.
    """
    return without_dataflow(fn)


def without_dataflow(fn: Function) -> Function:
    """`fn` with plain blocks and variables only."""
    nodes = walk(fn, (StructInfo, PrimExpr))
    if not any(isinstance(n, (DataflowBlock, DataflowVar)) for n in nodes):
        return fn

    def post(n: Node) -> Node | None:
        if type(n) is DataflowVar:
            return Var(n.name_hint, n.struct_info, n.span)
        if type(n) is DataflowBlock:
            return BindingBlock(n.bindings, n.span)
        if type(n) is SeqExpr:
            return n.replace(blocks=join_plain_blocks(n.blocks))
        return None

    def pre(n: Node) -> Node | None:
        if isinstance(n, (Constant, GlobalVar)):
            return n
        # Struct info is entered only where it names a variable.
        if isinstance(n, StructInfo) and not any(isinstance(m, Var) for m in walk(n)):
            return n
        return None

    return transform(fn, post, pre=pre)
