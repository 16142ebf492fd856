"""PackConstants: weights are brought into the layout that kernels read best, while building.

    matmul(x, W, out)          →      matmul(x, W_panels, out)
                                      # the kernel reads W_panels[j // 16, k, j % 16]

The schedule of a matrix product copies its right side into panels, which costs as much as some rows
of the product. Of a constant the copy is made here. Which layout is wanted is the rules' to say
(`tir/schedule/rules`); a kernel changes only if all its callers pass constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...base import CpuModel
from ...ir import GlobalVar, IRModule, PassContext, walk
from ...ir.node import Node
from ...ir.transform import module_pass
from ...ir.walk import transform
from ...runtime import NDArray
from ...tir import PrimFunc
from ...tir.schedule.rules import with_constant_layouts
from ..expr import Call, Constant, Function
from ..struct_info import StructInfo
from .signature import replace_functions

__all__ = ["PackConstants"]


@module_pass(opt_level=1, numerics="reassociates")
def PackConstants(mod: IRModule, ctx: PassContext, *, cpu: CpuModel) -> IRModule:
    """Change kernels that are called directly, with outputs as arguments, and their constants."""
    calls = _kernel_calls(mod)
    changed: dict[GlobalVar, Any] = {}
    packs: dict[GlobalVar, dict[int, Any]] = {}
    for gv, found in calls.items():
        constants = [k for k, args in enumerate(zip(*(c.args for c in found))) if _known(args)]
        fn = mod[gv]
        assert isinstance(fn, PrimFunc)
        if constants:
            new, pack = with_constant_layouts(fn, constants, cpu)
            if pack:
                changed[gv], packs[gv] = new, pack
    if not changed:
        return mod
    made: dict[tuple[int, int, GlobalVar], Constant] = {}

    def packed(constant: Constant, k: int, gv: GlobalVar) -> Constant:
        key = (id(constant.data), k, gv)
        if key not in made:
            array = constant.data.numpy()
            made[key] = Constant(NDArray(packs[gv][k](array)))
        return made[key]

    def post(n: Node) -> Node | None:
        if not isinstance(n, Call) or n.op not in packs:
            return None
        args = tuple(packed(a, k, n.op) if k in packs[n.op] else a for k, a in enumerate(n.args))
        return n.replace(args=args)

    def pre(n: Node) -> Node | None:
        return n if isinstance(n, (StructInfo, Constant, GlobalVar)) else None

    for gv, fn in mod.items():
        if isinstance(fn, Function):
            changed[gv] = transform(fn, post, pre=pre)
    return replace_functions(mod, changed)


def _known(args: tuple[Any, ...]) -> bool:
    return all(isinstance(a, Constant) for a in args)


def _kernel_calls(mod: IRModule) -> dict[GlobalVar, list[Call]]:
    """The calls of each loop function that is only ever called, with all its parameters."""
    calls: dict[GlobalVar, list[Call]] = {}
    otherwise: set[GlobalVar] = set()
    for n in _nodes(mod):
        if isinstance(n, Call) and isinstance(n.op, GlobalVar):
            calls.setdefault(n.op, []).append(n)
            mentions: Any = n.args
        else:
            mentions = n._children_()
        otherwise.update(c for c in mentions if isinstance(c, GlobalVar))
    return {
        gv: found
        for gv, found in calls.items()
        if gv not in otherwise
        and isinstance(fn := mod.functions.get(gv), PrimFunc)
        and all(len(c.args) == len(fn.params) for c in found)
    }


def _nodes(mod: IRModule) -> Iterator[Node]:
    for fn in mod.functions.values():
        yield from walk(fn)
