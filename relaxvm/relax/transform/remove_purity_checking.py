"""RemovePurityChecking: the last pass that knows which calls are pure.

    lv = R.call_pure_packed("f", x, sinfo_args=...)
    lv = R.call_packed("f", x, sinfo_args=...)          # afterwards

Calls in dataflow blocks stay as they are (run ToNonDataflow first). Pure functions get
``relax.force_pure``, so that the calls with effects which lowering puts into them are accepted.
"""

from __future__ import annotations

from ...ir import IRModule, Node, PassContext
from ...ir.transform import function_pass
from ...ir.walk import transform
from ..expr import Call, Constant, DataflowBlock, Function
from ..known_ops import CALL_INPLACE_PACKED, CALL_PURE_PACKED, INVOKE_CLOSURE, INVOKE_PURE_CLOSURE
from ..struct_info import StructInfo


@function_pass(opt_level=0)
def RemovePurityChecking(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Mark pure functions as accepted, and turn calls declared pure into plain calls."""

    def post(n: Node) -> Node | None:
        if type(n) is Call:
            return _unwrapped(n)
        if type(n) is Function:
            return _forced(n)
        return None

    return transform(fn, post, without=(StructInfo, Constant, DataflowBlock))


def _forced(fn: Function) -> Function | None:
    if not fn.is_pure or fn.get_attr("relax.force_pure"):
        return None
    return fn.with_attr("relax.force_pure", True)


def _unwrapped(call: Call) -> Call | None:
    if call.op is CALL_PURE_PACKED or call.op is CALL_INPLACE_PACKED:
        return Call(call.args[0], call.args[1:], None, call.sinfo_args, call.struct_info, call.span)
    if call.op is INVOKE_PURE_CLOSURE:
        return call.replace(op=INVOKE_CLOSURE)
    return None
