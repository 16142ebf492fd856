"""SpecializePrimFuncBasedOnCallSite: loop functions say in which memory their callers keep tensors.

    x: R.Tensor((4,), "float32", "llvm:0:fast")        x: R.Tensor((4,), "float32", "llvm:0:fast")
    R.call_tir(cls.exp, (x,), ...)                     R.call_tir(cls.exp, (x,), ...)
    def exp(A: T.Buffer((4,)), ...)                    def exp(A: T.Buffer((4,), scope="fast"), ...)

A function that is called with tensors in different memories becomes several. Run it once
`RealizeVDevice` has said where tensors are.
"""

from __future__ import annotations

from typing import Any

from ...base import NameSupply
from ...ir import BaseFunc, GlobalVar, IRModule, Map, PassContext, PointerType, PrimType, substitute
from ...ir import Var as TirVar
from ...ir.transform import module_pass
from ...tir import Buffer, PrimFunc
from ..derive import place_of
from ..expr import Binding, Call, Function, Tuple
from ..flow import bindings_of
from ..kernel_call import KERNEL_CALLS
from ..rewriter import Dropper
from ..struct_info import TupleStructInfo

# For each parameter the scope of its memory; None: as it says itself.
_Scopes = tuple[str | None, ...]


@module_pass(opt_level=0)
def SpecializePrimFuncBasedOnCallSite(mod: IRModule, ctx: PassContext) -> IRModule:
    """Give the buffers of loop functions the memory scopes of the tensors that `call_tir` hands
    them.
    """
    sites: dict[str, dict[_Scopes, list[tuple[GlobalVar, Binding]]]] = {}
    for gv, fn in mod.items():
        for b in bindings_of(fn) if isinstance(fn, Function) else ():
            callee = _callee(b.value, mod)
            if callee is not None:
                scopes = _scopes(b.value, mod[callee])
                sites.setdefault(callee.name_hint, {}).setdefault(scopes, []).append((gv, b))
    names = NameSupply(lambda: [gv.name_hint for gv in mod], "_")
    functions: dict[GlobalVar, BaseFunc] = {}
    changes: dict[GlobalVar, dict[int, Any]] = {}
    for name, kinds in sites.items():
        gv = mod.get_global_var(name)
        part = mod[gv]
        assert isinstance(part, PrimFunc)
        alone = len(kinds) == 1 and part.get_attr("global_symbol") is None
        for scopes, calls in kinds.items():
            special = _with_scopes(part, scopes)
            if alone:
                functions[gv] = special
            elif special is not part:
                callee = GlobalVar(names.fresh(name))
                functions[callee] = special.without_attr("global_symbol")
                for caller, b in calls:
                    assert isinstance(b.value, Call)
                    new = b.replace(value=b.value.replace(args=(callee, *b.value.args[1:])))
                    changes.setdefault(caller, {})[id(b.var)] = new
    for caller, changed in changes.items():
        fn = mod[caller]
        assert isinstance(fn, Function)
        functions[caller] = Dropper(changed).rewrite(fn)
    if all(gv in mod and mod[gv] is fn for gv, fn in functions.items()):
        return mod
    return mod.clone({**mod.functions, **functions})


def _callee(value: Any, mod: IRModule) -> GlobalVar | None:
    if not isinstance(value, Call) or value.op not in KERNEL_CALLS:
        return None
    gv = value.args[0]
    known = isinstance(gv, GlobalVar) and isinstance(mod.get(gv), PrimFunc)
    return gv if known and isinstance(gv, GlobalVar) else None


def _scopes(call: Any, part: Any) -> _Scopes:
    args = call.args[1].fields if isinstance(call.args[1], Tuple) else ()
    info = call.sinfo_args[0]
    outputs = info.fields if isinstance(info, TupleStructInfo) else (info,)
    inplace = call.attrs.get("inplace_indices", (-1,) * len(outputs))
    infos = [a.struct_info for a in args]
    infos += [o for o, source in zip(outputs, inplace) if source < 0]
    found: list[str | None] = []
    for p, each in zip(part.params, infos):
        place, buffer = place_of(each), part.buffer_map.get(p)
        other = place is not None and buffer is not None and buffer.scope() != place.memory_scope
        found.append(place.memory_scope if place is not None and other else None)
    return tuple(found)


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
