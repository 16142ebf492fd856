"""SpecializePrimFuncBasedOnCallSite: loop functions say in which memory their callers keep tensors.

    x: R.Tensor((4,), "float32", "llvm:0:fast")        x: R.Tensor((4,), "float32", "llvm:0:fast")
    R.call_tir(cls.exp, (x,), ...)                     R.call_tir(cls.exp, (x,), ...)
    def exp(A: T.Buffer((4,)), ...)                    def exp(A: T.Buffer((4,), scope="fast"), ...)

A function that is called with tensors in different memories becomes several. Run it once
`RealizeVDevice` has said where tensors are.
"""

from __future__ import annotations

from typing import Any

from ...ir import IRModule, Map, PassContext, PointerType, PrimType, substitute
from ...ir import Var as TirVar
from ...ir.transform import module_pass
from ...tir import Buffer, PrimFunc
from ..derive import place_of
from ..expr import Tuple
from ..struct_info import TupleStructInfo
from .call_sites import specialized_by_call

# For each parameter the scope of its memory; None: as it says itself.
_Scopes = tuple[str | None, ...]


@module_pass(opt_level=0)
def SpecializePrimFuncBasedOnCallSite(mod: IRModule, ctx: PassContext) -> IRModule:
    """Give the buffers of loop functions the memory scopes of the tensors that `call_tir` hands
    them.
    """
    return specialized_by_call(mod, lambda fn, call, part: _scopes(call, part), _with_scopes)


def _scopes(call: Any, part: Any) -> _Scopes:
    args = call.args[1].fields if isinstance(call.args[1], Tuple) else ()
    info = call.sinfo_args[0]
    outputs = info.fields if isinstance(info, TupleStructInfo) else (info,)
    inplace = call.attrs.get("inplace_indices", (-1,) * len(outputs))
    infos = [a.struct_info for a in args]
    infos += [o for o, source in zip(outputs, inplace) if source < 0]
    scopes: list[str | None] = []
    for p, each in zip(part.params, infos):
        place, buffer = place_of(each), part.buffer_map.get(p)
        other = place is not None and buffer is not None and buffer.scope() != place.memory_scope
        scopes.append(place.memory_scope if place is not None and other else None)
    return tuple(scopes)


def _with_scopes(part: PrimFunc, scopes: _Scopes) -> PrimFunc:
    """`part` with these scopes for its first parameters."""
    mapping: dict[Any, Any] = {}
    for p, scope in zip(part.params, scopes):
        if scope is not None:
            old = part.buffer_map[p]
            assert isinstance(old, Buffer)
            data = TirVar(old.data.name, PointerType(PrimType(old.dtype), scope))
            mapping[old.data], mapping[old] = data, old.replace(data=data)
    if not mapping:
        return part
    buffers = {p: mapping.get(b, b) for p, b in part.buffer_map.items()}
    return part.replace(
        body=substitute(part.body, mapping), buffer_map=Map(buffers), span=part.span
    )
