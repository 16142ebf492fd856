"""Storages and tensors of compiled functions: prepared, in arenas, new, or the memory of `out`."""

from __future__ import annotations

from typing import Any

from ...base import llvm, to_numpy_dtype
from ...runtime import DYNAMIC, ShapeTuple, result_memory
from .vm_body import Body
from .vm_dims import product
from .vm_emit import CTX, OUT
from .vm_entry import OUT_BYTES
from .vm_values import Integer, Memory, Region, Shape, Size, Tensor

MOST_BYTES = (1 << 48) - 1


def alloc_storage(body: Body) -> None:
    op, pc = body.ops[body.pc], body.pc
    static = body.static()
    scope = static[3] if len(static) > 3 and type(static[3]) is str else "global"
    memory = Memory(size=op.size_bytes, region=Region("fresh", op.dst in body.shown), scope=scope)
    if pc in body.plan.skipped:
        word = 8 * body.layout.objects[op.dst]
        memory.base, memory.box, memory.holder = (("frame", word + k) for k in (0, 8, 16))
        memory.region.kind = "prepared"
        body.prepared(memory)
        return
    if op.size_bytes < 0:
        memory.size = _storage_size(body, static[0])
    if pc in body.plan.arenas:
        _take_arena(body, memory)
    elif pc in body.results:
        _alloc_result(body, memory)
    else:
        memory.base, holder = _fresh(body, memory.size)
        _hold(body, memory, holder)


def _hold(body: Body, memory: Memory, holder: llvm.Value) -> None:
    """The storage is the result; the holder is a new reference."""
    memory.holder = holder
    body.set(memory, [holder])


def _storage_size(body: Body, static: Any) -> Size:
    """The bytes asked for, within what a storage may have."""
    if type(static) is int:
        size: Size = static
    elif type(static) is ShapeTuple:
        size = product(body, tuple(static))
    else:
        value = body.operand(1)
        if isinstance(value, Integer):
            size = value.value
        elif isinstance(value, Shape):
            size = product(body, value.dims)
        else:
            body.leave("the size of a storage is not known to be a shape")
    body.refuse("ugt", size, MOST_BYTES)
    return size


def _fresh(
    body: Body, size: Size, again: llvm.Value | None = None
) -> tuple[llvm.Value, llvm.Value]:
    """New memory: its address, and the object that holds it."""
    place = body.scratch(1)
    if again is None:
        holder = body.text.call("relaxvm_vm_alloc", CTX, size, place)
    else:
        holder = body.text.call("relaxvm_vm_alloc_again", CTX, again, size, place)
    body.guard(body.text.op("icmp eq", holder, None))
    return body.text.load("ptr", place), holder


def _alloc_result(body: Body, memory: Memory) -> None:
    """The storage of a result: the caller's memory if there is some of that size."""
    size, region = memory.size, memory.region
    text, record = body.text, OUT_BYTES * body.results[body.pc]
    fitting, own, done = text.label("given"), text.label("own"), text.label("placed")
    look = text.label("look")
    if not isinstance(size, int) or size <= result_memory.AGAIN_BYTES:
        region.again = body.word(f"again:{body.index}:{body.pc}")
    body.text.branch(text.op("icmp ne", OUT, None), look, own)
    text.start(look)
    bytes_given = body.field(OUT, record + 8, "i64")
    text.branch(text.op("icmp eq", bytes_given, size), fitting, own)
    text.start(fitting)
    theirs = body.field(OUT, record)
    owner = body.field(OUT, record + 16)
    body.count(owner)
    text.jump(done)
    text.start(own)
    base, holder = _fresh(body, size, region.again)
    own_end = text.block
    text.enter(done)
    use = text.phi("i1", (True, fitting), (False, own_end))
    memory.base = text.phi("ptr", (theirs, fitting), (base, own_end))
    holder = text.phi("ptr", (owner, fitting), (holder, own_end))
    region.result = use
    # What comes from outside may be the caller's memory too.
    region.shown = region.shown or body.calls_out
    _hold(body, memory, holder)


def _take_arena(body: Body, memory: Memory) -> None:
    text, pc, size = body.text, body.pc, memory.size
    word = 8 * body.layout.arenas[pc]
    have = body.field(body.frame, word + 8, "i64")
    grow, ready = text.label("grow"), text.label("ready")
    text.branch(text.op("icmp sgt", size, have), grow, ready)
    with body.aside(grow):
        words = body.row([body.index, text.cast("ptrtoint", body.frame, "i64"), pc, size], "i64")
        callable_ = body.word("call:grow")
        answer = text.call("relaxvm_vm_ask", CTX, callable_, 4, words)
        with text.if_(text.op("icmp eq", answer, None)):
            body.call("PyErr_Clear")
            text.jump(body.leave_label())
        body.drop(answer)
        text.jump(ready)
    text.start(ready)
    memory.base, memory.holder = body.field(body.frame, word), ("frame", word + 16)
    memory.region.kind, memory.arena = "arena", pc
    body.set(memory)


def alloc_tensor(body: Body) -> None:
    op = body.ops[body.pc]
    offset, shape, dtype = body.static()[1:4]
    if body.pc in body.plan.skipped:
        word = 8 * body.layout.objects[op.dst]
        storage = body.get(op.args[0])
        assert isinstance(storage, Memory)
        prepared = Tensor(
            ("frame", word + 8),
            dtype=dtype,
            dims=tuple(shape),
            data=("frame", word),
            region=storage.region,
            start=offset,
            end=op.function.end_bytes,
            writeable=True,
        )
        body.prepared(prepared)
        return
    if offset is DYNAMIC:
        body.leave("the offset of a tensor is not constant")
    storage = body.known_as(0, Memory, "the storage of a tensor is not known")
    dims = wanted_sizes(body, shape)
    # A size of 0 hides how large the others are: the interpreter looks at those.
    numel = product(body, dims)
    needed = product(body, (numel, to_numpy_dtype(dtype).itemsize))
    static_end = offset + needed if isinstance(needed, int) else -1
    if len([d for d in dims if not isinstance(d, int)]) > 1 or 0 in dims:
        nonzero = tuple(at_least_one(body, d) for d in dims)
        body.refuse("ugt", product(body, nonzero), MOST_BYTES)
    body.refuse("ugt", numel, MOST_BYTES)
    if static_end >= 0 and isinstance(storage.size, int):
        if static_end > storage.size:
            body.leave("a tensor does not fit its storage")
    else:
        total: Size = static_end
        if not isinstance(needed, int):
            total = needed if offset == 0 else body.text.op("add", needed, offset)
        body.refuse("ugt", total, storage.size)
    base = body.load(storage.base)
    owned = [storage.holder] if isinstance(storage.holder, llvm.Value) else []
    for holder in owned:
        body.count(holder)
    tensor = Tensor(
        dtype=dtype,
        dims=dims,
        data=body.text.at(base, offset),
        region=storage.region,
        holder=storage.holder,
        start=offset,
        end=static_end,
        arena=storage.arena,
        writeable=True,
    )
    body.set(tensor, owned)


def wanted_sizes(body: Body, shape: Any) -> tuple[Size, ...]:
    """The sizes that argument 1 gives to a tensor, which are `shape` if that is constant."""
    if shape is DYNAMIC:
        dims = body.known_as(1, Shape, "the shape of a tensor is not known").dims
    else:
        dims = tuple(shape)
    if len(dims) > 32:
        body.leave("a tensor has too many axes")
    for extent in dims:
        body.refuse("ugt", extent, MOST_BYTES)
    return dims


def at_least_one(body: Body, size: Size) -> Size:
    if isinstance(size, int):
        return size or 1
    if ("some", size) not in body.known:
        zero = body.text.op("icmp eq", size, 0)
        body.known["some", size] = body.text.select(zero, 1, size)
    return body.known["some", size]
