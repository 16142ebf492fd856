"""SplitLayoutRewritePreproc: what brings weights into another layout becomes a kernel of its own.

    def f(A, W, C):                                     lv = R.call_tir(cls.f_weight_prepack, (w,))
        W2 = T.alloc_buffer((2, 8, 4))                  gv = R.call_tir(cls.f_prepacked, (x, lv))
        with T.block("rewrite"):
            T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
            W2[j // 4, i, j % 4] = W[i, j]       ->
        ...  # C from A and W2

    gv = R.call_tir(cls.f, (x, w), ...)

So that `FoldConstant` or `LiftTransformParams` can do it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import NamedTuple, NameSupply, decided, declined, in_function
from ...ir import GlobalVar, IRModule, PassContext, walk
from ...ir.transform import module_pass
from ...ir.walk import transform
from ...tir import Block, Buffer, PrimFunc, Stmt
from ...tir.transform import LAYOUT_REWRITE_PREPROC, is_layout_rewrite
from ..expr import Binding, Function, TupleGetItem, VarBinding
from ..struct_info import Expr
from .private_functions import without_unmentioned
from .split_kernel import Callers, Kernel, Part, info_of, touched


@module_pass(opt_level=0)
def SplitLayoutRewritePreproc(mod: IRModule, ctx: PassContext) -> IRModule:
    """Split loop functions with blocks marked ``meta_schedule.layout_rewrite_preproc`` that
    `call_tir` calls in two, which are called one after the other.
    """
    names = NameSupply(lambda: [gv.name_hint for gv in mod])
    splits: dict[str, _Split] = {}
    result = mod.clone()
    for gv, fn in mod.items():
        split = None
        if isinstance(fn, PrimFunc):
            with in_function(gv):
                split = _split(fn, gv.name_hint, names)
        if split is not None:
            splits[gv.name_hint] = split
            result[split.gv_prepack], result[split.gv_rest] = split.prepack.fn, split.rest.fn
    rewriter = Callers(splits, _written)
    for gv, fn in mod.items() if splits else ():
        if isinstance(fn, Function):
            with in_function(gv):
                result[gv] = rewriter.rewrite(fn)
    if not rewriter.used:
        return mod
    unused = {each.name_hint for s in splits.values() for each in (s.gv_prepack, s.gv_rest)}
    return without_unmentioned(result, {*splits, *unused})


class _Split(NamedTuple):
    """A loop function in two. `rewritten` are the buffers that the first gives to the second."""

    whole: Kernel
    gv_prepack: GlobalVar
    prepack: Part
    gv_rest: GlobalVar
    rest: Part
    rewritten: Sequence[Buffer]


def _split(fn: PrimFunc, name: str, names: NameSupply) -> _Split | None:
    """`fn` in two; None if no block is marked, or it is not certain that they mean the same."""
    if not any(isinstance(n, Block) and is_layout_rewrite(n) for n in walk(fn.body)):
        return None
    whole = Kernel(fn)
    first: list[Stmt] = []
    second: list[Stmt] = []
    for s in whole.statements:
        marked = {is_layout_rewrite(n) for n in walk(s) if isinstance(n, Block)}
        if len(marked) > 1:
            declined("{} not split: a loop holds marked blocks and others", name)
            return None
        (first if marked == {True} else second).append(s)
    moves, others = [touched(s) for s in first], [touched(s) for s in second]
    rewritten = list(dict.fromkeys(b for t in moves for b in t.writes))
    sources = list(dict.fromkeys(b for t in moves for b in t.reads))
    written = {b for t in others for b in t.writes}
    params = whole.buffers
    why = None
    if not second:
        why = "nothing but marked blocks"
    elif not whole.is_plain or not all(t.plain for t in moves):
        why = "its buffers are not plain tensors"
    elif any(b not in params or b in written for b in sources):
        why = "marked blocks read what is no parameter, or is written"
    elif any(b not in whole.allocated or b in written for b in rewritten):
        why = "marked blocks write what is no buffer of their own"
    if why is not None:
        declined(f"{{}} not split: {why}", name)
        return None
    plain = [_unmarked(s) for s in first]
    mentioned = {n for s in second for n in walk(s)}
    inputs: list[Buffer] = []
    left = list(rewritten)
    for b in params:
        if b in sources and b.data not in mentioned:
            own = [new for t in moves if b in t.reads for new in t.writes if new in left]
            inputs += own
            left = [new for new in left if new not in own]
        elif b is not None:
            inputs.append(b)
    outputs = [b for b in inputs if b in written]
    inputs = [*(b for b in inputs if b not in outputs), *left, *outputs]
    return _Split(
        whole,
        GlobalVar(names.fresh(f"{name}_weight_prepack")),
        whole.part(plain, [*sources, *rewritten], "_weight_prepack"),
        GlobalVar(names.fresh(f"{name}_prepacked")),
        whole.part(second, inputs, "_prepacked"),
        rewritten,
    )


def _unmarked(s: Stmt) -> Stmt:
    def post(n: Any) -> Any:
        if not isinstance(n, Block):
            return None
        kept = {k: v for k, v in n.annotations.items() if k != LAYOUT_REWRITE_PREPROC}
        return n.replace(annotations=kept)

    return transform(s, post)


def _written(
    callers: Callers, b: Binding, split: _Split, values: dict[Any, Expr], known: Any
) -> list[Binding]:
    """What stands for a call of a function in two."""
    call: Any = b.value
    info = info_of(split.rewritten, known)
    packed = split.prepack.call(split.gv_prepack, values, info, known, call.span)
    var = callers.local("prepacked", info, b.var.span)
    out: list[Binding] = [VarBinding(var, packed)]
    values[split.rewritten[0]] = var
    if len(split.rewritten) > 1:
        for k, buffer in enumerate(split.rewritten):
            item = TupleGetItem(var, k)
            own = values[buffer] = callers.local(buffer.name, item.struct_info)
            out.append(VarBinding(own, item))
    rest = split.rest.call(split.gv_rest, values, call.sinfo_args[0], known, call.span)
    decided("{} called on weights in another layout", b)
    return [*out, b.replace(value=rest)]
