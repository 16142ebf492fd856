"""Which loop functions may write a result over one of their inputs, and the functions that do;
which only put their inputs one behind the other.

    before:  f(A: T.Buffer(4), B: T.Buffer(4)):  for i in range(4): B[i] = A[i] + 1
    after:   f_inplace(A: T.Buffer(4)):          for i in range(4): A[i] = A[i] + 1

Allowed if every element of the input that is read after writing has begun is read by the very
iteration that overwrites it: the one store into the output has, among its operands, loads of the
input at its own indices only; no two iterations store to the same element; everything else that
reads the input is in statements that end before, and read no element twice. (So is a softmax, which
reads its input first. A product or a convolution reads its input again and again: what follows them
could not be computed in their tiles, as their schedules have it.) Allowed, too, if the input is
copied whole to the output first and not read any more then: that copy is left out, so that a
scatter costs what it scatters. The result has one buffer for both, so nothing aliases and the
kernel stays as fast as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir import (
    LT,
    Call,
    IntImm,
    Map,
    Op,
    PrimExpr,
    Var,
    const,
    descend,
    is_const,
    substitute,
    walk,
)
from ...tir import (
    AllocateConst,
    AttrStmt,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    body_nodes,
)
from ...tir.analysis import buffer_accesses
from ...tir.schedule.plans import no_more

_IF = Op.get("tir.if_then_else")


def overwritable_inputs(fn: PrimFunc) -> tuple[tuple[int, int], ...]:
    """The pairs (input, output) of parameter numbers where the output may be written over the
    input.
    """
    access = buffer_accesses(fn)
    buffers = [fn.buffer_map.get(p) for p in fn.params]
    inputs = [(i, b) for i, b in enumerate(buffers) if b is not None and access.get(b) == "r"]
    outputs = [(j, b) for j, b in enumerate(buffers) if b is not None and access.get(b) == "w"]
    if not inputs or not outputs or has_views(fn):
        return ()
    stages = stages_of(fn.body)
    pairs = []
    for j, out in outputs:
        write = _the_store(stages, out)
        for i, source in inputs:
            if not _same_layout(source, out):
                continue
            in_time = write is not None and _reads_in_time(stages, write, source)
            if in_time or _copies_first(stages, source, out) is not None:
                pairs.append((i, j))
    return tuple(pairs)


def write_over(fn: PrimFunc, source: int, out: int, name: str) -> PrimFunc:
    """`fn` under the name `name`, its parameter `out` gone: that result is written over parameter
    `source`.
    """
    kept, gone = fn.buffer_map[fn.params[source]], fn.buffer_map[fn.params[out]]
    stages = stages_of(fn.body)
    first = _copies_first(stages, kept, gone)
    nothing = {} if first is None else {stages[first]: Evaluate(const(0))}
    body = substitute(substitute(fn.body, nothing), {gone: kept})
    params = tuple(p for k, p in enumerate(fn.params) if k != out)
    buffers: Mapping[Any, Any] = {p: b for p, b in fn.buffer_map.items() if p is not fn.params[out]}
    kernel: PrimFunc = fn.replace(params=params, body=body, buffer_map=Map(buffers))
    if kernel.get_attr("global_symbol") is not None:
        kernel = kernel.with_attr("global_symbol", name)
    return kernel


def inputs_in_a_row(fn: PrimFunc) -> tuple[int, ...]:
    """The parameters whose elements, one tensor's behind the other's, are those of the last
    parameter, which `fn` only copies them to; () if that is not what it does.

    So it is with a concatenation along the first axis that is longer than 1.
    """
    stages = stages_of(fn.body)
    buffers = [fn.buffer_map.get(p) for p in fn.params]
    out = buffers[-1] if buffers else None
    if len(buffers) < 3 or None in buffers or len(stages) != 1 or out is None or out.strides:
        return ()
    copy = _store_everywhere(stages[0], out)
    sizes = [d.value if isinstance(d, IntImm) else 0 for d in out.shape]
    axis = next((k for k, size in enumerate(sizes) if size != 1), 0)
    if copy is None or not sizes or 0 in sizes:
        return ()
    inputs: list[int] = []
    end = 0
    along = copy.indices[axis]
    whole: _Range = (copy.value, 0, sizes[axis])
    for load, first, last in descend(whole, lambda place: _ranges_in(along, place)):
        if isinstance(load, Call):
            continue
        if not isinstance(load, BufferLoad):
            return ()
        source = load.buffer
        wanted = (*sizes[:axis], last - first, *sizes[axis + 1 :])
        places = (*copy.indices[:axis], along - first, *copy.indices[axis + 1 :])
        if (
            source not in buffers
            or source.dtype is not out.dtype
            or source.strides
            or first != end
            or len(source.shape) != len(wanted)
            or not all(is_const(d, n) for d, n in zip(source.shape, wanted))
            or not all(a is b for a, b in zip(load.indices, places))
        ):
            return ()
        inputs.append(buffers.index(source))
        end = last
    in_a_row = end == sizes[axis] and sorted(inputs) == list(range(len(buffers) - 1))
    return tuple(inputs) if in_a_row else ()


# A value, and the places along an axis for which it is that of a concatenation.
_Range = tuple[PrimExpr, int, int]


def _ranges_in(axis: PrimExpr, place: _Range) -> tuple[_Range, ...]:
    """The two branches of ``if_then_else(axis < n, ...)``, each with the places where it holds."""
    value, first, last = place
    if not isinstance(value, Call) or value.op is not _IF:
        return ()
    test, yes, no = value.args
    if not isinstance(test, LT) or test.a is not axis or not isinstance(test.b, IntImm):
        return ()
    middle = min(max(test.b.value, first), last)
    return (yes, first, middle), (no, middle, last)


def has_views(fn: PrimFunc) -> bool:
    """Whether memory is seen under a second name, of which nothing is proven here."""
    return any(
        isinstance(n, (MatchBufferRegion, DeclBuffer))
        or (isinstance(n, LetStmt) and n.var.dtype.kind == "handle")
        for n in body_nodes(fn)
    )


def _same_layout(a: Buffer, b: Buffer) -> bool:
    # Scalar expressions are interned: the same expression is the same object.
    return (
        a.dtype is b.dtype
        and len(a.shape) == len(b.shape)
        and all(x is y for x, y in zip(a.shape, b.shape))
        and not a.strides
        and not b.strides
        and a.scope() == b.scope()
    )


def stages_of(body: Stmt) -> list[Stmt]:
    """The statements that run one after the other at the top of a body."""
    while True:
        if isinstance(body, BlockRealize) and not body.block.iter_vars and body.block.init is None:
            body = body.block.body
        elif isinstance(body, (AttrStmt, AllocateConst)):
            body = body.body
        elif isinstance(body, SeqStmt):
            return list(body.seq)
        else:
            return [body]


class _Store:
    """The one store into an output: in which stage, and where its indices come from."""

    __slots__ = ("stage", "store")

    def __init__(self, stage: int, store: BufferStore) -> None:
        self.stage = stage
        self.store = store


def _the_store(stages: list[Stmt], out: Buffer) -> _Store | None:
    """The only store into `out`, if no two of its iterations write one element."""
    store: _Store | None = None
    for number, stage in enumerate(stages):
        place: _Place = (stage, (), {})
        for s, loops, bound in descend(place, _statements_in):
            if isinstance(s, While) and _stores_into(s, out):
                return None
            if isinstance(s, BufferStore) and s.buffer is out:
                if store is not None or not _distinct(s, loops, bound):
                    return None
                store = _Store(number, s)
    return store


# A statement, the loops around it, and what the axes of blocks around it are.
_Place = tuple[Stmt, tuple[For, ...], Mapping[Var, PrimExpr]]


def _statements_in(place: _Place) -> list[_Place]:
    s, loops, bound = place
    if isinstance(s, BlockRealize):
        inner = {**bound, **{iv.var: v for iv, v in zip(s.block.iter_vars, s.iter_values)}}
        return [(c, loops, inner) for c in (s.block.init, s.block.body) if c is not None]
    if isinstance(s, For):
        return [(s.body, (*loops, s), bound)]
    return [(c, loops, bound) for c in s._children_ if isinstance(c, Stmt)]


def _stores_into(s: Stmt, out: Buffer) -> bool:
    return any(isinstance(n, BufferStore) and n.buffer is out for n in walk(s))


def _distinct(s: BufferStore, loops: tuple[For, ...], bound: Mapping[Var, PrimExpr]) -> bool:
    """Whether each loop around the store shows its variable alone as an index."""
    shown = set()
    for index in s.indices:
        while isinstance(index, Var) and index in bound:
            index = bound[index]
        shown.add(id(index))
    return all(
        id(loop.loop_var) in shown or (isinstance(loop.extent, IntImm) and loop.extent.value <= 1)
        for loop in loops
    )


def _copies_first(stages: list[Stmt], source: Buffer, out: Buffer) -> int | None:
    """The number of the stage that copies `source` to `out`, if nothing is done with `out` before
    and with `source` after.
    """
    first = next((k for k, stage in enumerate(stages) if _mentions(stage, out)), None)
    if first is None or any(_mentions(stage, source) for stage in stages[first + 1 :]):
        return None
    copy = _store_everywhere(stages[first], out)
    value = None if copy is None else copy.value
    if copy is None or not isinstance(value, BufferLoad) or value.buffer is not source:
        return None
    return first if _at_same_place(value, copy) else None


def _store_everywhere(stage: Stmt, out: Buffer) -> BufferStore | None:
    """The store into `out`, at each of its places, that is all a stage does."""
    store: BufferStore | None = None
    place: _Place = (stage, (), {})
    for s, loops, bound in descend(place, _statements_in):
        if isinstance(s, BufferStore):
            if store is not None or s.buffer is not out or not _goes_over_all(s, loops, bound):
                return None
            store = s
        elif isinstance(s, BlockRealize):
            if not is_const(s.predicate, 1) or s.block.init is not None:
                return None
        elif not isinstance(s, (For, SeqStmt)):
            return None
    return store


def _mentions(stage: Stmt, buffer: Buffer) -> bool:
    return any(n is buffer for n in walk(stage))


def _goes_over_all(s: BufferStore, loops: tuple[For, ...], bound: Mapping[Var, PrimExpr]) -> bool:
    """Whether the loops around a store go over each element of its buffer."""
    around = {loop.loop_var: loop for loop in loops}
    for index, size in zip(s.indices, s.buffer.shape):
        while isinstance(index, Var) and index in bound:
            index = bound[index]
        loop = around.pop(index, None) if isinstance(index, Var) else None
        if loop is None or not is_const(loop.min, 0) or loop.extent is not size:
            return False
    return not around


def _reads_in_time(stages: list[Stmt], write: _Store, source: Buffer) -> bool:
    """Whether no element of `source` is read after it was overwritten, however stages that read it
    once are put together.
    """
    if any(_loads_of(stage, source) for stage in stages[write.stage + 1 :]):
        return False
    if not all(_reads_once(stage, source) for stage in stages[: write.stage]):
        return False
    for n in walk(stages[write.stage], into=_evaluated):
        if isinstance(n, BufferStore) and n is write.store:
            if not all(_at_same_place(load, n) for load in _loads_of(n.value, source)):
                return False
            if any(_loads_of(index, source) for index in n.indices):
                return False
        elif not isinstance(n, Stmt):
            continue
        elif any(_loads_of(e, source) for e in _evaluated(n) if not isinstance(e, Stmt)):
            return False
    return True


def _reads_once(stage: Stmt, source: Buffer) -> bool:
    """Whether loads of `source` in a stage run no more often than it has elements."""
    place: _Place = (stage, (), {})
    for s, loops, _ in descend(place, _statements_in):
        if isinstance(s, (For, BlockRealize, SeqStmt)) or not _loads_of(s, source):
            continue
        if not no_more((loop.extent for loop in loops), source.shape):
            return False
    return True


def _evaluated(n: Any) -> Sequence[Any]:
    """What a statement evaluates and runs; the regions that a block declares are no reads."""
    if isinstance(n, BlockRealize):
        inner = [s for s in (n.block.init, n.block.body) if s is not None]
        return [*n.iter_values, n.predicate, *inner]
    return n._children_ if isinstance(n, Stmt) else ()


def _loads_of(root: Any, source: Buffer) -> list[BufferLoad]:
    return [n for n in walk(root) if isinstance(n, BufferLoad) and n.buffer is source]


def _at_same_place(load: BufferLoad, store: BufferStore) -> bool:
    return len(load.indices) == len(store.indices) and all(
        x is y for x, y in zip(load.indices, store.indices)
    )
