"""Blocks that compute something of constants alone leave their kernel: they run while building.

for ...: W_packed[...] = int16(W[...]) - zero[...]        a function of its own, run once
for ...: C[...] += X_packed[...] * W_packed[...]    →     the kernel, which W_packed is given to
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ....base import DataType, record
from ....ir import IntImm, Map, Var, const, descend, walk
from ...copies import fresh_copy
from ...stmt import Block, BlockRealize, Buffer, Evaluate, PrimFunc, SeqStmt, Stmt, seq

_HANDLE = DataType("handle")


@record
class ConstantBlocks:
    """What a kernel reads instead of constants.

    position  of the parameter that it is given as: in the place of a constant that is not read any
              more, or behind all parameters
    inputs    the positions of the constants that it is made of
    fn        (those constants, the result)
    buffer    the result
    """

    position: int
    inputs: tuple[int, ...]
    fn: PrimFunc
    buffer: Buffer


@record
class _Child:
    """One nest of the function, and the memory that its blocks touch."""

    stmt: Stmt
    reads: frozenset[Var]
    writes: frozenset[Var]


def without_constant_blocks(
    fn: PrimFunc, constants: Collection[int]
) -> tuple[PrimFunc, list[ConstantBlocks]]:
    """`fn` without the nests that read constants only, and what these compute.

    constants  which parameters are known when the kernel is built
    """
    root = fn.body.block if isinstance(fn.body, BlockRealize) else None
    if root is None or not isinstance(root.body, SeqStmt):
        return fn, []
    children = [_child(s) for s in root.body.seq]
    places = {
        fn.buffer_map[fn.params[k]].data: k for k in constants if fn.params[k] in fn.buffer_map
    }
    owned = {b.data: b for b in root.alloc_buffers}
    early: dict[Var, _Child] = {}
    for child in children:
        (data, *more) = child.writes or (None,)
        alone = data in owned and not more and sum(data in c.writes for c in children) == 1
        known = child.reads <= {*places, *early, data}
        if data is not None and alone and known and _may_run_alone(child.stmt, owned[data]):
            early[data] = child
    late = [c for c in children if not any(c is e for e in early.values())]
    needed = [d for d in early if any(d in c.reads for c in late)]
    if not needed or not late:
        return fn, []
    free = [k for d, k in places.items() if not any(d in c.reads for c in late)]
    computed: list[ConstantBlocks] = []
    for data in needed:
        position = (
            free.pop(0)
            if free
            else len(fn.params) + sum(b.position >= len(fn.params) for b in computed)
        )
        computed.append(_alone(fn, owned, early, places, data, position))
    return _without(fn, root, [c.stmt for c in late], early, computed), computed


def _child(stmt: Stmt) -> _Child:
    blocks = [n for n in walk(stmt) if isinstance(n, Block)]
    reads = frozenset(r.buffer.data for b in blocks for r in b.reads)
    return _Child(stmt, reads, frozenset(r.buffer.data for b in blocks for r in b.writes))


def _may_run_alone(stmt: Stmt, result: Buffer) -> bool:
    """Whether a nest only stores, in a buffer whose size is known."""
    nodes = walk(stmt)
    inside = any(isinstance(n, Block) and n.alloc_buffers for n in nodes)
    known = all(isinstance(e, IntImm) for e in result.shape)
    return known and not inside and not any(isinstance(n, Evaluate) for n in nodes)


def _alone(
    fn: PrimFunc,
    owned: dict[Var, Buffer],
    early: dict[Var, _Child],
    places: dict[Var, int],
    data: Var,
    position: int,
) -> ConstantBlocks:
    """The nests that compute the buffer of `data`, as a function."""
    wanted = set(descend(data, lambda d: [r for r in early[d].reads if r in early], once=id))
    nests = [early[d] for d in early if d in wanted]
    inputs = sorted({places[d] for c in nests for d in c.reads if d in places})
    buffers = [*(fn.buffer_map[fn.params[k]] for k in inputs), owned[data]]
    handles = [Var(f"{b.name}_handle", _HANDLE) for b in buffers]
    body = Block(
        (), (), (), "root", seq(*(c.stmt for c in nests)),
        alloc_buffers=tuple(owned[d] for d in early if d in wanted and d is not data),
    )  # fmt: skip
    alone = PrimFunc(
        tuple(handles),
        fresh_copy(BlockRealize((), const(True), body)),
        None,
        Map(dict(zip(handles, buffers))),
        fn.attrs,
    )
    return ConstantBlocks(position, tuple(inputs), alone, owned[data])


def _without(
    fn: PrimFunc,
    root: Block,
    left: Sequence[Stmt],
    early: dict[Var, _Child],
    computed: Sequence[ConstantBlocks],
) -> PrimFunc:
    """The function of what is left, which gets the others' results as parameters."""
    params = [
        *fn.params,
        *(Var(b.buffer.name, _HANDLE) for b in computed if b.position >= len(fn.params)),
    ]
    bindings = dict(fn.buffer_map)
    for b in computed:
        if b.position < len(fn.params):
            bindings.pop(params[b.position], None)
            params[b.position] = Var(b.buffer.name, _HANDLE)
        bindings[params[b.position]] = b.buffer
    kept = tuple(b for b in root.alloc_buffers if b.data not in early)
    body = root.replace(body=seq(*left), alloc_buffers=kept)
    realize = BlockRealize((), const(True), body)
    return PrimFunc(tuple(params), realize, fn.ret_type, Map(bindings), fn.attrs, fn.span)
