"""What TVM's programs run between lowering and code generation: entries, their calls, barriers.

Here a kernel's entry is made by the code generator, from what the function declares, and threads
run one after the other; so that little is left to do.

T.func_attr({"global_symbol": "f",          T.func_attr({"global_symbol": "f",
             "target": Target("llvm")})                  "target": Target("llvm"),
                                                         "calling_conv": 1})
"""

from __future__ import annotations

from ...base import TIRError, declined
from ...ir import IRModule, PassContext
from ...ir.transform import prim_func_pass
from ..stmt import PrimFunc

# TVM's number for functions that any caller may enter.
_PACKED = 1


@prim_func_pass(opt_level=0)
def MakePackedAPI(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Mark the functions that are entered from outside, those with a global symbol: their entry
    takes arrays of any kind, and checks rank, dtype, shape, strides and alignment before the body
    runs. It is compiled from the parameters' declarations, which stay.

    Raises TIRError for such a function without the attribute "target" (`BindTarget` sets it).
    """
    name = fn.get_attr("global_symbol")
    if name is None:
        return fn
    if fn.get_attr("target") is None:
        raise TIRError(
            f"MakePackedAPI: function {name} has no attribute target; run "
            "tir.transform.BindTarget(target) before"
        )
    return fn if fn.get_attr("calling_conv") is not None else fn.with_attr("calling_conv", _PACKED)


@prim_func_pass(opt_level=0)
def LowerTVMBuiltin(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Leave functions as they are, and report it: none of TVM's packed calls, call stacks and
    structs exist here, and large buffers get memory of their own when code is made.
    """
    declined("nothing to lower: loop functions here hold no packed calls, stacks or structs")
    return fn


@prim_func_pass(opt_level=0)
def ThreadSync(
    fn: PrimFunc, mod: IRModule, ctx: PassContext, storage_scope: str = "shared"
) -> PrimFunc:
    """Leave functions as they are, and report it: loops over threads run one iteration after the
    other, so that what a loop has written is there for those behind it.
    """
    declined("no barrier for {} memory: threads run one after the other", storage_scope)
    return fn
