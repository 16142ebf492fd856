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
from ..op import Op
from ..struct_info import StructInfo

_CALL_PURE = Op.get("relax.call_pure_packed")
_CALL_INPLACE = Op.get("relax.call_inplace_packed")
_INVOKE_PURE = Op.get("relax.invoke_pure_closure")
_INVOKE = Op.get("relax.invoke_closure")


@function_pass(opt_level=0)
def RemovePurityChecking(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Mark pure functions as accepted, and turn calls declared pure into plain calls."""

    def post(n: Node) -> Node | None:
        if type(n) is Call:
            return _unwrapped(n)
        if type(n) is Function:
            return _forced(n)
        return None

    def pre(n: Node) -> Node | None:
        return n if isinstance(n, (StructInfo, Constant, DataflowBlock)) else None

    return transform(fn, post, pre=pre)


def _forced(fn: Function) -> Function | None:
    if not fn.is_pure or fn.get_attr("relax.force_pure"):
        return None
    return fn.with_attr("relax.force_pure", True)


def _unwrapped(call: Call) -> Call | None:
    if call.op is _CALL_PURE or call.op is _CALL_INPLACE:
        return Call(call.args[0], call.args[1:], None, call.sinfo_args, call.struct_info, call.span)
    if call.op is _INVOKE_PURE:
        return call.replace(op=_INVOKE)
    return None
