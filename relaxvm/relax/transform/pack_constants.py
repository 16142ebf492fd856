"""PackConstants: weights are brought into the layout that kernels read best, while building.

    matmul(x, W, out)          →      matmul(x, W_panels, out)
                                      # the kernel reads W_panels[j // 16, k, j % 16]

The schedule of a matrix product copies its right side into panels, which costs as much as some rows
of the product. Of a constant the copy is made here. Which layout is wanted is the rules' to say
(`tir/schedule/plans`); a kernel changes only if all its callers pass constants.

Of narrow numbers (int8, bfloat16) kernels widen and rearrange more than an order of dimensions can
say, and look at zero points: what such a kernel computes of constants alone is compiled by itself
and run here. So are weights of convolutions that are computed in fewer products, where numerics may
be approximate (`tir/schedule/plans/winograd.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...base import CpuModel, NamedTuple, decided, in_function, telling
from ...ir import GlobalVar, IRModule, Node, PassContext, PrimExpr, walk
from ...ir.transform import module_pass
from ...ir.walk import transform
from ...runtime import NDArray, empty, wrap_unchecked
from ...target import Target, build
from ...tir import PrimFunc
from ...tir.analysis import called_functions
from ...tir.schedule.plans import ConstantBlocks, with_constants
from ..expr import Call, Constant, Function
from ..op.meaning import to_storage
from ..struct_info import StructInfo
from .signature import replace_functions


@module_pass(opt_level=1, numerics="approximate", obeys_numerics=True)
def PackConstants(mod: IRModule, ctx: PassContext, *, cpu: CpuModel) -> IRModule:
    """Change kernels that are called directly, with outputs as arguments, and their constants."""
    calls = _kernel_calls(mod)
    changed: dict[GlobalVar, Any] = {}
    packs: dict[GlobalVar, dict[int, _Pack]] = {}
    for gv, sites in calls.items():
        constants = [k for k, args in enumerate(zip(*(c.args for c in sites))) if _known(args)]
        fn = mod[gv]
        assert isinstance(fn, PrimFunc)
        if constants:
            with in_function(gv):
                new, layouts, blocks = with_constants(fn, constants, cpu)
                for k in constants:
                    if k in layouts:
                        decided("argument {} packed into the layout that the kernel reads", k)
                    elif k in [b.position for b in blocks]:
                        decided("argument {} replaced by what the kernel computes of it", k)
            if layouts or blocks:
                changed[gv] = new
                packs[gv] = {k: _Pack((k,), partial(_moved, f)) for k, f in layouts.items()}
                packs[gv] |= {b.position: _Pack(b.inputs, partial(_computed, b)) for b in blocks}
    if not changed:
        return mod
    packed_constants: dict[Any, Constant] = {}
    # By what they are made of: kernels that want one layout of a weight share it.
    alike: dict[tuple[int, ...], list[Constant]] = {}

    def packed(gv: GlobalVar, k: int, args: Sequence[Any]) -> Constant:
        pack = packs[gv][k]
        data = [args[i].data for i in pack.inputs]
        sources = tuple(map(id, data))
        if (gv, k, *sources) not in packed_constants:
            result, others = pack.compute(data), alike.setdefault(sources, [])
            same = next((c for c in others if _equal(c.data, result)), None)
            if same is None:
                others.append(same := Constant(result))
            packed_constants[(gv, k, *sources)] = same
        return packed_constants[(gv, k, *sources)]

    def post(n: Node) -> Node | None:
        if not isinstance(n, Call) or n.op not in packs:
            return None
        args = [*n.args, *(None for k in packs[n.op] if k >= len(n.args))]
        for k in packs[n.op]:
            args[k] = packed(n.op, k, n.args)
        return n.replace(args=tuple(args))

    for gv, fn in mod.items():
        if isinstance(fn, Function):
            changed[gv] = transform(fn, post, without=(StructInfo, Constant, GlobalVar))
    return replace_functions(mod, changed)


class _Pack(NamedTuple):
    """What a kernel gets for a constant: `compute` of the constants at the positions `inputs`."""

    inputs: tuple[int, ...]
    compute: Callable[[Sequence[NDArray]], NDArray]


def _moved(pack: Callable[[np.ndarray], np.ndarray], sources: Sequence[NDArray]) -> NDArray:
    """A view of the source, where the layout is only another order: the copy is made when the
    executable is, so that no more of a source is kept than of what is packed.
    """
    (source,) = sources
    return wrap_unchecked(to_storage(pack(source.numpy()), source.dtype), source.dtype)


def _computed(blocks: ConstantBlocks, sources: Sequence[NDArray]) -> NDArray:
    shape = tuple(int(e) for e in blocks.buffer.shape)  # type: ignore[call-overload]
    result = empty(shape, str(blocks.buffer.dtype))
    with telling(None):
        build(blocks.fn, Target("llvm"), name="packed")["packed"](*sources, result)
    return result


def _equal(a: NDArray, b: NDArray) -> bool:
    """Whether both are of the same bits."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    left, right = (np.ascontiguousarray(x.numpy()).reshape(-1).view("uint8") for x in (a, b))
    return bool(np.array_equal(left, right))


def _known(args: tuple[Any, ...]) -> bool:
    return all(isinstance(a, Constant) for a in args)


def _kernel_calls(mod: IRModule) -> dict[GlobalVar, list[Call]]:
    """The calls of each loop function that is only ever called, with all its parameters."""
    calls: dict[GlobalVar, list[Call]] = {}
    otherwise: set[GlobalVar] = set()
    for fn in mod.functions.values():
        if isinstance(fn, PrimFunc):
            otherwise.update(called_functions(fn))
            continue
        for n in walk(fn, (StructInfo, PrimExpr)):
            if isinstance(n, Call) and isinstance(n.op, GlobalVar):
                calls.setdefault(n.op, []).append(n)
                mentions: Any = n.args
            else:
                mentions = n._children_
            for c in mentions:
                if isinstance(c, GlobalVar):
                    otherwise.add(c)
    return {
        gv: sites
        for gv, sites in calls.items()
        if gv not in otherwise
        and isinstance(callee := mod.functions.get(gv), PrimFunc)
        and all(len(c.args) == len(callee.params) for c in sites)
    }
