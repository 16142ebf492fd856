"""Primitives that change how buffers are kept, and markers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ....base import DataType, ScheduleError
from ....ir import Map, PointerType, PrimExpr, PrimType, Var, cast
from ...stmt import Block, Buffer, BufferLoad, BufferRegion, BufferStore, PrimFunc
from ..model.plain import checked
from ..model.primitive import BLOCK, Host, Kind, primitive
from ..model.regions import only_plain_accesses, owner_of, replace_accesses, replace_buffer
from ..model.state import State, refuse


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
