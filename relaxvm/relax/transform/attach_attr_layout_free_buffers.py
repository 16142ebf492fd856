"""AttachAttrLayoutFreeBuffers: loop functions say which of their arguments are weights, so that a
tuner may change the layout of these.

    def main(x, w):                                     # {"num_input": 1}
        gv = R.call_tir(cls.gemm, (x, w), ...)

    def gemm(A, B, C): ...                              T.func_attr({"layout_free_buffers": [1]})

Weights are constants, and the parameters after the first "num_input". A function that is called
with weights in different places becomes several.
"""

from __future__ import annotations

from typing import Any

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from ...tir import PrimFunc
from ..expr import Call, Constant, Function, Tuple
from ..known_ops import CALL_TIR
from .call_sites import specialized_by_call
from .lazy_inputs import num_input

LAYOUT_FREE = "layout_free_buffers"


@module_pass(opt_level=0)
def AttachAttrLayoutFreeBuffers(mod: IRModule, ctx: PassContext) -> IRModule:
    """Give loop functions that `call_tir` calls with weights the attribute
    ``layout_free_buffers``: the positions of these among the parameters.
    """
    weights: dict[Function, set[Any]] = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            count = num_input(fn, gv.name_hint)
            weights[fn] = set() if count is None else set(fn.params[count:])

    def places(fn: Function, call: Call, part: PrimFunc) -> tuple[int, ...]:
        args = call.args[1].fields if isinstance(call.args[1], Tuple) else ()
        if call.op is not CALL_TIR:
            return ()
        return tuple(k for k, v in enumerate(args) if isinstance(v, Constant) or v in weights[fn])

    return specialized_by_call(mod, places, _marked)


def _marked(part: PrimFunc, places: tuple[int, ...]) -> PrimFunc:
    known = tuple(int(k) for k in part.get_attr(LAYOUT_FREE) or ())
    return part if known == places else part.with_attr(LAYOUT_FREE, places)
