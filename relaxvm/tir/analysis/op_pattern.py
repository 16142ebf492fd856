"""What kind of operator a loop function is, for fusion: how its results read its parameters.

B[i, j] = A[i, j] + C[j]      ELEMWISE: A is read where B is written; C is broadcast
B[i, j] = C[j]                BROADCAST
B[i, j] = A[j, i]             INJECTIVE: an element of B needs one place of each parameter
B[i] += A[i, k]               COMM_REDUCE: each element of A counts once
B[i, j] += A[i, k] * C[k, j]  OUT_ELEMWISE_FUSABLE: elements are read again and again; so are
                              windows, and rows that are reduced first (softmax, normalisations)

Casts of indices and axes of length 1 do not count.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ...arith import Analyzer
from ...base import record
from ...ir import (
    Call,
    Cast,
    GlobalVar,
    Intrinsic,
    Mul,
    PrimExpr,
    Var,
    descend,
    is_const,
    substitute,
    walk,
)
from ..stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    body_nodes,
)


class OpPatternKind(enum.IntEnum):
    """Kinds of operators under TVM's names and numbers, which the attribute ``op_pattern`` has."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


@record
class OpPattern:
    """kind   of the whole function; as its attribute ``op_pattern`` says, if it has one
    reads     parameter -> how it is read: ELEMWISE to INJECTIVE by what is computed for each
              element of a result, COMM_REDUCE if each of its elements counts once in each pass over
              it, else OUT_ELEMWISE_FUSABLE
    writes    the parameters that are written
    plain     whether the body is nothing but blocks in serial loops, so that it can be put beside
              other bodies; `reads` is empty if not
    """

    kind: OpPatternKind
    reads: Mapping[Var, OpPatternKind]
    writes: tuple[Var, ...]
    plain: bool


ELEMWISE, BROADCAST, INJECTIVE, COMM_REDUCE, OUT_ELEMWISE_FUSABLE, TUPLE, OPAQUE = OpPatternKind
_UNKNOWN = OpPattern(OPAQUE, {}, (), False)
_known: weakref.WeakKeyDictionary[PrimFunc, OpPattern] = weakref.WeakKeyDictionary()


def op_pattern(fn: PrimFunc) -> OpPattern:
    """The kind of `fn`, and how its results read its parameters.

    Looked for once for each function.
    """
    pattern = _known.get(fn)
    if pattern is None:
        pattern = _derived(fn)
        stated = fn.get_attr("op_pattern")
        if stated is not None:
            pattern = _stated(fn, pattern, OpPatternKind(int(stated)))
        _known[fn] = pattern
    return pattern


def _stated(fn: PrimFunc, derived: OpPattern, kind: OpPatternKind) -> OpPattern:
    """What is known of a function that says its kind: its parameters are read so, too, where
    nothing is known of them.
    """
    reads = derived.reads
    if derived.kind is OPAQUE:
        reads = {p: kind for p in fn.buffer_map if p not in derived.writes}
    return OpPattern(kind, reads, derived.writes, derived.plain)


def _derived(fn: PrimFunc) -> OpPattern:
    realizes = _blocks(fn)
    if realizes is None or _has_effects(fn):
        return _UNKNOWN
    params = {buffer.data: p for p, buffer in fn.buffer_map.items()}
    written = {r.buffer.data for each in realizes for r in each.block.writes}
    writes = tuple(params[data] for data in params if data in written)
    if len(params) != len(fn.buffer_map) or not all(map(_is_compact, fn.buffer_map.values())):
        return _UNKNOWN
    blocks = [_of_block(each.block) for each in realizes]
    known = [b for b in blocks if b is not None]
    if len(known) != len(blocks) or not writes:
        return OpPattern(OPAQUE, {}, writes, True)
    patterns = _composed(known)
    reads = {params[data]: how for data, how in patterns.items() if data in params}
    return OpPattern(_kind_of(known), reads, writes, True)


def _is_compact(b: Buffer) -> bool:
    return not b.strides and is_const(b.elem_offset, 0) and not b.axis_separators


def _blocks(fn: PrimFunc) -> list[BlockRealize] | None:
    """The blocks of `fn` in order, if there is nothing but these, in serial loops."""
    root = fn.body
    if not isinstance(root, BlockRealize) or root.block.iter_vars or root.block.match_buffers:
        return None
    parts = [s for s in descend(root.block.body, _inside) if not isinstance(s, (SeqStmt, For))]
    return (
        [s for s in parts if isinstance(s, BlockRealize)]
        if all(isinstance(s, BlockRealize) for s in parts)
        else None
    )


def _inside(s: Stmt) -> Sequence[Stmt]:
    return s.seq if isinstance(s, SeqStmt) else (s.body,) if isinstance(s, For) else ()


def _has_effects(fn: PrimFunc) -> bool:
    """Whether `fn` calls something of which nothing is known."""
    return any(
        isinstance(n.op, GlobalVar)
        or (isinstance(n.op, Intrinsic) and n.op.effect in ("opaque", "read"))
        for n in body_nodes(fn)
        if isinstance(n, Call)
    )


# -- one block -------------------------------------------------------------------------------------


@record
class _Block:
    """kind, what is read and how, what is written; and whether the block reduces"""

    kind: OpPatternKind
    reads: Sequence[tuple[Var, OpPatternKind]]
    writes: tuple[Var, ...]
    reduces: bool


def _of_block(block: Block) -> _Block | None:
    """What a block does; None if it is none of the kinds."""
    if block.alloc_buffers or block.match_buffers:
        return None
    body = block.body
    stores = body.seq if isinstance(body, SeqStmt) else (body,)
    reduces = any(a.is_reduce for a in block.iter_vars)
    if reduces is (block.init is None) or (len(stores) > 1 and not reduces):
        return None
    axes = _Axes(block)
    reads: list[tuple[Var, OpPatternKind]] = []
    written = {s.buffer.data for s in stores if isinstance(s, BufferStore)}
    for s in stores:
        if not isinstance(s, BufferStore):
            return None
        place = axes.place(s)
        loads = [n for e in (s.value, *s.indices) for n in walk(e) if isinstance(n, BufferLoad)]
        for load in loads:
            read = axes.place(load)
            if load.buffer.data in written:
                if read != place:
                    return None
                continue
            how = axes.in_sum(read) if reduces else _relation(read, place)
            reads.append((load.buffer.data, how))
    kinds = [how for _, how in reads]
    if reduces:
        kind = OUT_ELEMWISE_FUSABLE if _multiplies(stores) else COMM_REDUCE
        if kind is COMM_REDUCE and axes.windows:
            kind = OUT_ELEMWISE_FUSABLE
    elif INJECTIVE in kinds:
        kind = INJECTIVE
    else:
        kind = ELEMWISE if ELEMWISE in kinds or not kinds else BROADCAST
    return _Block(kind, reads, tuple(written), reduces)


# An index and the size of its dimension, for each dimension.
_Place = tuple[tuple[PrimExpr, PrimExpr], ...]


class _Axes:
    """The axes of a block, and places as indices of them without those of length 1.

    windows  whether an axis was met that slides: in an index that is no axis
    """

    def __init__(self, block: Block) -> None:
        self._analyzer = Analyzer(wrap=False)
        self._units: dict[Any, Any] = {}
        self._long: set[Var] = set()
        self.windows = False
        for a in block.iter_vars:
            if is_const(a.range.extent, 1):
                self._units[a.var] = a.range.min
            else:
                self._analyzer.bind(a.var, a.range)
                self._long.add(a.var)

    def place(self, access: BufferLoad | BufferStore) -> _Place:
        """Where an access is, without dimensions of length 1."""
        sized = zip(access.indices, access.buffer.shape)
        return tuple((self._index(i), e) for i, e in sized if not is_const(e, 1))

    def _index(self, index: PrimExpr) -> PrimExpr:
        while isinstance(index, Cast):
            index = index.value
        if isinstance(index, Var):
            return self._units.get(index, index)
        return self._analyzer.simplify(substitute(index, self._units))

    def in_sum(self, place: _Place) -> OpPatternKind:
        """How a place is read by a block that reduces."""
        indices = [i for i, _ in place]
        if not all(isinstance(i, Var) for i in indices):
            used = {v for i in indices for v in walk(i) if isinstance(v, Var)}
            self.windows = self.windows or not used.isdisjoint(self._long)
            return OUT_ELEMWISE_FUSABLE
        once = len(set(indices)) == len(indices) and self._long == set(indices)
        return COMM_REDUCE if once else OUT_ELEMWISE_FUSABLE


def _relation(read: _Place, written: _Place) -> OpPatternKind:
    """How a place is read where another is written."""
    if read == written:
        return ELEMWISE
    rest = iter(written)
    # Each index is searched for from where the last one was found.
    if all(isinstance(place[0], Var) and place in rest for place in read):
        return BROADCAST
    return INJECTIVE


def _multiplies(stores: Sequence[Stmt]) -> bool:
    """Whether a sum is one of products of two arrays."""
    for n in (n for s in stores for n in walk(s) if isinstance(n, Mul)):
        sides = [_without_casts(e) for e in (n.a, n.b)]
        buffers = [e.buffer.data for e in sides if isinstance(e, BufferLoad)]
        if len(set(buffers)) == 2:
            return True
    return False


def _without_casts(e: PrimExpr) -> PrimExpr:
    while isinstance(e, Cast):
        e = e.value
    return e


# -- blocks one after the other --------------------------------------------------------------------


def _composed(blocks: Sequence[_Block]) -> dict[Var, OpPatternKind]:
    """How each buffer is read by what is computed of it in the end."""
    patterns: dict[Var, OpPatternKind] = {}
    for b in reversed(blocks):
        # A pass over what is reduced is not repeated for what is computed of the results.
        after = ELEMWISE if b.reduces else max(patterns.get(w, ELEMWISE) for w in b.writes)
        for data, how in b.reads:
            patterns[data] = max(patterns.get(data, ELEMWISE), how, after)
    return patterns


def _kind_of(blocks: Sequence[_Block]) -> OpPatternKind:
    kind = max(b.kind for b in blocks)
    reduced: set[Var] = set()
    for b in blocks:
        of_reduced = [how for data, how in b.reads if data in reduced]
        if b.reduces or of_reduced:
            reduced.update(b.writes)
        if any(how is not ELEMWISE for how in of_reduced):
            # Rows are reduced, and what comes of it is read for each of their elements.
            kind = max(kind, OUT_ELEMWISE_FUSABLE)
    return kind
