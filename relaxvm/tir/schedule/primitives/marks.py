"""Primitives that change how buffers are kept, say how a loop is run, and leave remarks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ....base import DataType, ScheduleError
from ....ir import IntImm, Map, PointerType, PrimExpr, PrimType, Range, Var, as_expr, cast, const
from ...stmt import (
    Block,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    ForKind,
    IterVar,
    PrimFunc,
)
from ..model.bindings import loop_uses
from ..model.dependence import check_no_bare_statements, check_parallel
from ..model.facts import BlockKind, facts_of
from ..model.plain import checked
from ..model.primitive import BLOCK, BLOCK_OR_LOOP, EXTRA, LOOP, Host, Kind, primitive
from ..model.regions import only_plain_accesses, owner_of, replace_accesses, replace_buffer
from ..model.state import State, refuse

# -- buffers ---------------------------------------------------------------------------------------


def regions_of(block: Block, what: str) -> tuple[BufferRegion, ...]:
    """What a block says that it reads or writes: the field of that name, with an s."""
    if what not in ("read", "write"):
        refuse(f'wanted "read" or "write", got {what!r}', block)
    return block.reads if what == "read" else block.writes


def written_buffer(block: Block, index: int, what: str = "write") -> Buffer:
    """The buffer at a position of `reads` or `writes`, by number."""
    regions = regions_of(block, what)
    if not 0 <= index < len(regions):
        refuse(
            f"block {block.name_hint} has {len(regions)} {what} regions, got the index {index}",
            block,
        )
    return regions[index].buffer


def find_buffer(block: Block, key: int | str | Buffer, what: str) -> Buffer:
    """A buffer of the block's `reads` or `writes`: by position, by name, or itself."""
    if isinstance(key, int):
        return written_buffer(block, key, what)
    regions = regions_of(block, what)
    for r in regions:
        if r.buffer is key or r.buffer.name == key:
            return r.buffer
    names = ", ".join(r.buffer.name for r in regions) or "none"
    name = key if isinstance(key, str) else getattr(key, "name", key)
    refuse(f"block {block.name_hint} does not {what} {name}; it does: {names}", block)


class _BufferKind(Kind):
    """A buffer of a block: ("read" or "write", position), or its name."""

    def given(self, host: Host, value: Any, what: str) -> Any:
        if isinstance(value, Buffer):
            return value.name
        return self.resolve(host, list(value) if isinstance(value, tuple) else value, what)

    def resolve(self, host: Host, value: Any, what: str) -> Any:
        if isinstance(value, list) and len(value) == 2 and value[0] in ("read", "write"):
            return [value[0], checked("int", value[1], what)]
        if isinstance(value, str):
            return value
        raise ScheduleError(
            f'{what}: a buffer is given as ("read", 0), ("write", 0) or by name, got {value!r}'
        )


BUFFER: Kind = _BufferKind()


def buffer_of(block: Block, key: Any) -> tuple[str, Buffer]:
    """("read" or "write", the buffer) for a buffer given in one of the ways of TVM."""
    if isinstance(key, list):
        return key[0], find_buffer(block, key[1], key[0])
    for what in ("write", "read"):
        for r in regions_of(block, what):
            if r.buffer.name == key:
                return what, r.buffer
    refuse(f"block {block.name_hint} has no buffer named {key!r}", block)


def check_scope(storage_scope: str, *sites: Any) -> None:
    """Refuse what is no name of a storage scope. (What a scope means, the code generator says.)"""
    if not re.fullmatch(r"[A-Za-z]\w*(\.\w+)*", storage_scope):
        refuse(
            f'a storage scope is a name such as "global", "local" or "shared.dyn", got '
            f"{storage_scope!r}",
            *sites,
        )


def swap_buffer(state: State, old: Buffer, new: Buffer, parameters: bool = False) -> State:
    """The function with `new` in place of the allocated buffer `old`.

    parameters  whether `old` may also be a parameter
    """
    owner = owner_of(state, old.data)
    if owner is None and not parameters:
        refuse(
            f"{old.name} is a parameter of the function; only buffers allocated in it can change"
        )
    root = state.root() if owner is None else owner
    swapped = replace_buffer(root, old, new)
    state = state.exchange(root, swapped)
    return state if owner is not None else with_parameter(state, old, new)


def with_parameter(state: State, old: Buffer, new: Buffer) -> State:
    """The function that declares a parameter to be `new` instead of `old`."""
    fn = state.fn
    bindings = Map({p: (new if b is old else b) for p, b in fn.buffer_map.items()})
    extended = PrimFunc(fn.params, fn.body, fn.ret_type, bindings, fn.attrs, fn.span)
    return state.with_fn(extended)


@primitive(block=BLOCK)
def set_scope(
    state: State, block: Block, buffer_index: int | str, storage_scope: str
) -> tuple[State, None]:
    """Let a buffer that the block writes be in another storage scope ("global", "local", ...).

    Raises ScheduleError for a parameter of the function.

        B = T.alloc_buffer((64,))    →    B = T.alloc_buffer((64,), scope="local")
    """
    check_scope(storage_scope, block)
    buffer = find_buffer(block, buffer_index, "write")
    if buffer.scope() == storage_scope:
        return state, None
    pointer = PointerType(PrimType(buffer.dtype), storage_scope)
    new = buffer.replace(data=Var(buffer.data.name, pointer))
    return swap_buffer(state, buffer, new), None


@primitive(block=BLOCK)
def storage_align(
    state: State, block: Block, buffer_index: int, axis: int, factor: int, offset: int
) -> tuple[State, None]:
    """Let the stride of dimension `axis` be `factor * k + offset` for some k, where memory is laid
    out. The remark is an annotation of the block, `buffer_dim_align`.

        with T.block("B"):    →    with T.block("B"):
            ...                        T.block_attr({"buffer_dim_align": [[0, -2, 32, 8]]})
    """
    buffer = written_buffer(block, buffer_index)
    axis = axis + buffer.ndim if axis < 0 else axis
    if not 0 <= axis < buffer.ndim:
        refuse(f"{buffer.name} has {buffer.ndim} dimensions, got axis {axis}", block)
    if factor <= 0:
        refuse(f"the factor is positive, got {factor}", block)
    if owner_of(state, buffer.data) is None:
        refuse(f"{buffer.name} is a parameter: its caller decides where it lies", block)
    row = (buffer_index, axis, factor, offset)
    rows = [
        r
        for r in block.annotations.get("buffer_dim_align", ())
        if tuple(map(int, r[:2])) != row[:2]
    ]
    marked = block.annotations.with_({"buffer_dim_align": (*rows, row)})
    return state.replace(block, block.replace(annotations=marked)), None


@primitive(block=BLOCK, buffer=BUFFER)
def set_axis_separator(
    state: State, block: Block, buffer: Any, axis_separators: Sequence[int]
) -> tuple[State, None]:
    """Say between which dimensions a buffer may be laid out in several physical dimensions. On a
    CPU memory has one, and nothing changes.

    buffer  ("read" or "write", position), or a name

        B = T.alloc_buffer((8, 4))    →    B = T.alloc_buffer((8, 4), axis_separators=[1])
    """
    _, old = buffer_of(block, buffer)
    outside = [a for a in axis_separators if not 0 < a < old.ndim]
    if outside or list(axis_separators) != sorted(set(axis_separators)):
        refuse(
            f"axis_separators are positions between the {old.ndim} dimensions of {old.name}, in "
            f"order, got {list(axis_separators)}",
            block,
        )
    new = old.replace(axis_separators=tuple(axis_separators))
    return swap_buffer(state, old, new, parameters=True), None


@primitive(block=BLOCK)
def unsafe_set_dtype(
    state: State, block: Block, buffer_index: int, dtype: str
) -> tuple[State, None]:
    """Keep a buffer that the block writes in another dtype: values are cast when stored and when
    loaded. Results may differ: that is what "unsafe" means.

        B = T.alloc_buffer((64,), "float32")    →    B = T.alloc_buffer((64,), "float16")
    """
    old = written_buffer(block, buffer_index)
    if old.dtype == DataType(dtype):
        return state, None
    owner = owner_of(state, old.data)
    if owner is None:
        refuse(f"{old.name} is a parameter; only buffers allocated in the function can change")
    only_plain_accesses(state, owner, old, "unsafe_set_dtype", outside=True)
    pointer = PointerType(PrimType(DataType(dtype)), old.scope())
    new = old.replace(data=Var(old.data.name, pointer), dtype=DataType(dtype))
    plain, narrow = old.dtype, new.dtype

    def load(n: BufferLoad) -> PrimExpr | None:
        if n.buffer is not old:
            return None
        return cast(plain, BufferLoad(new, n.indices))

    def store(n: BufferStore) -> BufferStore | None:
        if n.buffer is not old:
            return None
        return BufferStore(new, cast(narrow, n.value), n.indices)

    retyped = replace_accesses(owner, load, store)
    retyped = replace_buffer(retyped, old, new)
    return state.exchange(owner, retyped), None


@primitive()
def enter_postproc(state: State) -> tuple[State, None]:
    """Mark the place in the trace where the search ends and finishing begins."""
    return state, None


# -- loops, and remarks ----------------------------------------------------------------------------


def _set_kind(state: State, f: For, kind: ForKind, binding: Any = None) -> State:
    return state.replace(f, f.replace(kind=kind, thread_binding=binding))


@primitive(loop=LOOP)
def parallel(state: State, loop: Var) -> tuple[State, None]:
    """Run the iterations of a loop on several threads.

    Raises ScheduleError unless they are shown to be independent: the loop moves only spatial axes,
    and what is read in an iteration was written in it or before the loop.

        for i in range(8):    →    for i in T.parallel(8):
    """
    f = state.loop(loop)
    check_parallel(state, f, "parallel")
    return _set_kind(state, f, ForKind.PARALLEL), None


@primitive(loop=LOOP)
def vectorize(state: State, loop: Var) -> tuple[State, None]:
    """Run the iterations of a loop as lanes of vectors.

    Raises ScheduleError unless the loop has a constant extent and its iterations are shown to be
    independent and to write elements of their own.

        for i in range(8):    →    for i in T.vectorized(8):
    """
    f = state.loop(loop)
    if not isinstance(f.extent, IntImm):
        refuse(
            f"loop {loop.name} has the extent {f.extent}; only a loop of constant extent can be "
            "vectorized: split it first",
            f,
        )
    check_parallel(state, f, "vectorized")
    return _set_kind(state, f, ForKind.VECTORIZED), None


@primitive(loop=LOOP)
def unroll(state: State, loop: Var) -> tuple[State, None]:
    """Write the iterations of a loop out one after the other when it is lowered.

    for i in range(4):    →    for i in T.unroll(4):
    """
    return _set_kind(state, state.loop(loop), ForKind.UNROLLED), None


_THREADS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")


@primitive(loop=LOOP)
def bind(state: State, loop: Var, thread_axis: str) -> tuple[State, None]:
    """Bind a loop to a thread axis: "blockIdx.x" … "threadIdx.z" or "vthread".

    Raises ScheduleError unless the iterations are shown to be independent, or to be steps of one
    reduction that "threadIdx.x", "threadIdx.y" or "threadIdx.z" share.

        for i in range(8):    →    for i in T.thread_binding(8, thread="threadIdx.x"):
    """
    f = state.loop(loop)
    if thread_axis not in _THREADS and not thread_axis.startswith("vthread"):
        refuse(f"wanted one of {', '.join(_THREADS)} or vthread, got {thread_axis!r}", f)
    if not (thread_axis.startswith("threadIdx") and _only_reduces(state, f)):
        check_parallel(state, f, "parallel")
    axis = IterVar(
        Range.from_min_extent(f.min, f.extent), Var("", loop.dtype), "thread", thread_axis
    )
    return _set_kind(state, f, ForKind.THREAD_BINDING, axis), None


def _only_reduces(state: State, f: For) -> bool:
    """Whether all that a loop does is to go through a reduce axis of one reduction."""
    check_no_bare_statements(state, f.body)
    realizes = state.child_realizes(f.body)
    if len(realizes) != 1 or loop_uses(realizes[0], f.loop_var) != {"reduce"}:
        return False
    facts = facts_of(state, realizes[0].block)
    return facts.kind is BlockKind.REDUCTION and facts.commutative


def _value(v: Any) -> Any:
    if isinstance(v, PrimExpr):
        return v
    if isinstance(v, (list, tuple)):
        return tuple(_value(x) for x in v)
    if isinstance(v, dict):
        return {k: _value(x) for k, x in v.items()}
    if isinstance(v, bool):
        return const(v, "bool")
    return as_expr(v) if isinstance(v, (int, float)) else v


@primitive(block_or_loop=BLOCK_OR_LOOP, ann_val=EXTRA)
def annotate(state: State, block_or_loop: Any, ann_key: str, ann_val: Any) -> tuple[State, None]:
    """Leave a remark on a block or loop, for passes or for other tools.

    ann_val  a number, string, list or dictionary of them

        with T.block("B"):    →    with T.block("B"):
            ...                        T.block_attr({"key": 1})
                                       ...
    """
    target: Any = state.loop(block_or_loop) if isinstance(block_or_loop, Var) else block_or_loop
    state.check(target)
    annotated = target.replace(annotations=target.annotations.with_({ann_key: _value(ann_val)}))
    return state.replace(target, annotated), None


@primitive(block_or_loop=BLOCK_OR_LOOP)
def unannotate(state: State, block_or_loop: Any, ann_key: str) -> tuple[State, None]:
    """Take a remark away again. Raises ScheduleError if there is none of that name.

    T.block_attr({"key": 1})    →    (gone)
    """
    target: Any = state.loop(block_or_loop) if isinstance(block_or_loop, Var) else block_or_loop
    if ann_key not in target.annotations:
        there = ", ".join(map(str, target.annotations)) or "none"
        refuse(f"no annotation {ann_key!r} here; there are: {there}", target)
    plain = target.replace(annotations=target.annotations.without(ann_key))
    return state.replace(target, plain), None
