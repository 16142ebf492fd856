"""RemoveWeightLayoutRewriteBlock: weights come in the layout that a block would give them.

    def f(A, W: (8, 8), C):                             def f(A, W: (2, 8, 4), C):
        W2 = T.alloc_buffer((2, 8, 4))                      with T.block("rewrite"):
        with T.block("rewrite"):                                T.evaluate(0)
            T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
            W2[j // 4, i, j % 4] = W[i, j]
        ...  # C from A and W2                              ...  # C from A and W

For measuring a kernel whose weights are rearranged beforehand: it means the same of weights in
their new layout. Constants of the function are rearranged here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...base import declined
from ...ir import IntImm, IRModule, Map, Node, PassContext, const, is_const, walk
from ...ir import Var as TirVar
from ...ir.transform import prim_func_pass
from ...ir.walk import transform
from ...runtime import NDArray, array
from ..interp import interpret
from ..stmt import (
    AllocateConst,
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    PrimFunc,
    Stmt,
)

LAYOUT_REWRITE_PREPROC = "meta_schedule.layout_rewrite_preproc"
"""The annotation of blocks that bring a weight into the layout that others read."""


def is_layout_rewrite(block: Block) -> bool:
    """Whether `block` is marked as one that brings a weight into another layout."""
    mark = block.annotations.get(LAYOUT_REWRITE_PREPROC)
    return is_const(mark, 1) or (isinstance(mark, int) and mark == 1)


@prim_func_pass(opt_level=0)
def RemoveWeightLayoutRewriteBlock(
    fn: PrimFunc, mod: IRModule, ctx: PassContext, *, skip_tensor_rewrite: bool = False
) -> PrimFunc:
    """Take what blocks marked ``meta_schedule.layout_rewrite_preproc`` write as parameters, in the
    place of what they read; the blocks then do nothing.

    skip_tensor_rewrite  constants get the new shape, with any contents: enough for measuring time
    """
    moved: dict[Buffer, Buffer] = {}
    blocks = [n for n in walk(fn.body) if isinstance(n, Block) and is_layout_rewrite(n)]
    constants = {n.buffer_var: n for n in walk(fn.body) if isinstance(n, AllocateConst)}
    data: dict[TirVar, NDArray] = {}
    for block in blocks:
        store, load = block.body, getattr(block.body, "value", None)
        if not isinstance(store, BufferStore) or not isinstance(load, BufferLoad):
            declined("block {} stays: it does more than copy", block.name_hint)
            return fn
        old, new = load.buffer, store.buffer
        why = _why_not(fn, block, old, new, constants)
        if why is not None:
            declined(f"block {{}} stays: {why}", block.name_hint)
            return fn
        moved[old] = new
        if old.data in constants:
            before = constants[old.data]
            data[old.data] = _rearranged(before, block, old, new, skip_tensor_rewrite)
    return _without(fn, moved, data) if moved else fn


def _why_not(
    fn: PrimFunc, block: Block, old: Buffer, new: Buffer, constants: Mapping[TirVar, AllocateConst]
) -> str | None:
    """Why `new` cannot come in the place of `old`, from which `block` makes it."""
    if old not in fn.buffer_map.values() and old.data not in constants:
        return f"{old.name} is neither a parameter nor a constant"
    own = set(walk(block))
    others = [n for n in walk(fn.body) if n not in own]
    if any(n.data is old.data for n in others if isinstance(n, Buffer) and n is not old):
        return f"{old.name} has another view"
    if any(isinstance(n, (BufferLoad, BufferStore)) and n.buffer is old for n in others):
        return f"{old.name} is used elsewhere, too"
    if any(isinstance(n, BufferStore) and n.buffer is new for n in others):
        return f"{new.name} is written elsewhere, too"
    if not any(isinstance(n, Block) and new in n.alloc_buffers for n in others):
        return f"{new.name} is not allocated here"
    if new.dtype is not old.dtype or new.scope() != "global" or new.strides:
        return f"{new.name} is not in plain memory, or of another dtype"
    left = (b for b in fn.buffer_map.values() if b is not old)
    told = {d for b in (*left, new) for d in b.shape} | set(fn.params)
    symbols = {d for d in old.shape if isinstance(d, TirVar)} - told
    if any(n in symbols for each in (fn.body, new) for n in walk(each)):
        return f"the shape of {new.name} does not tell the sizes of {old.name}"
    known = all(isinstance(d, IntImm) for d in (*old.shape, *new.shape))
    if old.data in constants and not (known and all(a.dom is not None for a in block.iter_vars)):
        return f"the sizes of the constant {old.name} are not known"
    return None


def _rearranged(
    constant: AllocateConst, block: Block, old: Buffer, new: Buffer, skip: bool
) -> NDArray:
    """What `block` makes of a constant."""
    before, after = (
        np.resize(np.array(constant.data), [d.value for d in b.shape if isinstance(d, IntImm)])
        for b in (old, new)
    )
    if skip:
        return array(after, dtype=constant.dtype)
    body: Stmt = block.body
    for axis in reversed(block.iter_vars):
        body = For(axis.var, axis.range.min, axis.range.extent, ForKind.SERIAL, body)
    result = array(np.zeros_like(after), dtype=constant.dtype)
    interpret(PrimFunc((old, new), body), array(before, dtype=constant.dtype), result)
    return result


def _without(
    fn: PrimFunc, moved: Mapping[Buffer, Buffer], contents: Mapping[TirVar, NDArray]
) -> PrimFunc:
    """`fn` on what the marked blocks would write; `contents` are those of constants."""
    gone = set(moved.values())
    by_data = {old.data: new for old, new in moved.items()}

    def post(n: Node) -> Node | None:
        if isinstance(n, Block):
            if is_layout_rewrite(n):
                return n.replace(body=Evaluate(const(0)), reads=(), writes=())
            left = tuple(b for b in n.alloc_buffers if b not in gone)
            return n if len(left) == len(n.alloc_buffers) else n.replace(alloc_buffers=left)
        if isinstance(n, AllocateConst) and n.buffer_var in contents:
            new = by_data[n.buffer_var]
            return AllocateConst(
                new.data, n.dtype, new.shape, contents[n.buffer_var], n.body, n.annotations
            )
        if isinstance(n, DeclBuffer) and n.buffer in moved:
            return n.replace(buffer=moved[n.buffer])
        return None

    body = transform(fn.body, post, pre=lambda n: n if isinstance(n, Buffer) else None)
    buffers = {p: moved.get(b, b) for p, b in fn.buffer_map.items()}
    return fn.replace(body=body, buffer_map=Map(buffers))
