"""The native functions that compiled VM functions share: memory, boxes, frames, errors.

Each takes the context first. Names are loaded from it, see `runtime.compiled_code`. All but the
shortest are the same machine code beside every program, so that LLVM compiles them once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from ...base import llvm
from ...base.llvm import Value
from ...runtime import pyabi as abi
from ...runtime import result_memory as results
from .module import ModuleText
from .vm_emit import Pieces, Words

_MAX_ASKED = 8
_ALIGNMENT = 64
_AGAIN_BYTES = results.AGAIN_BYTES + _ALIGNMENT
_ARRAY_FLAGS = abi.WRITEABLE | abi.ALIGNED | abi.C_CONTIGUOUS
_NEW_ARRAY = "ptr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)"
_COLD = "cold noinline nounwind"
_INLINE = "alwaysinline nounwind"
_EVERY: list[tuple[Callable[..., None], str, str]] = []


class _Counting(Pieces):
    """Counts references without a call, but for objects that die, or that Python counts in its own
    way: those that live for ever and those with very many references.
    """

    def count(self, pointer: Value) -> None:
        self.text.call("relaxvm_vm_count", self.ctx, pointer)

    def drop(self, pointer: Value) -> None:
        self.text.call("relaxvm_vm_drop", self.ctx, pointer)


def _support(
    signature: str, attributes: str = "noinline nounwind"
) -> Callable[[Callable[..., None]], None]:
    """One function: what it marks gets the pieces of its body and its parameters but the context.
    Every module that calls an inlined one has it.
    """

    def add(emit: Callable[..., None]) -> None:
        _EVERY.append((emit, signature, attributes))

    return add


def define_support(text: ModuleText) -> None:
    """The module of the functions that all programs share."""
    for f in _defined()[1]:
        text.add(f)


def declare_support(text: ModuleText) -> Words:
    """What a program's module needs of the shared functions, and the others. Gives the words that
    they use: the context of every program begins with those.
    """
    words, functions = _defined()
    for f in functions:
        kinds = f.module.signatures[f.name][1]
        if f.linkage == "internal":
            text.signatures[f.name] = f.result, kinds
            text.add(f)
        else:
            text.declare(f.name, f"{f.linkage} {f.result}", kinds, f.attributes)
    return words


@functools.lru_cache(maxsize=1)
def _defined() -> tuple[Words, list[llvm.Function]]:
    words, module = Words(careful=0, max_depth=8, threads=16), llvm.Module()
    functions = []
    for emit, signature, attributes in _EVERY:
        linkage = "internal" if attributes == _INLINE else "hidden"
        f = module.define(signature, f"relaxvm_vm_{emit.__name__}", attributes, linkage)
        context, *others = f.params
        emit(_Counting(f, words, context), *others)
        functions.append(f)
    return words, functions


def _null_unless(e: Pieces, good: Value) -> None:
    with e.text.if_(e.text.not_(good)):
        e.text.ret(None)


def _ask(e: Pieces, name: str, *numbers: llvm.Operand) -> Value:
    """Call a helper of the runtime with ints."""
    row = e.text.alloca("i64", 8, len(numbers))
    for i, number in enumerate(numbers):
        e.text.store(number, e.text.at(row, 8 * i), of="i64")
    return e.text.call("relaxvm_vm_ask", e.ctx, e.word(f"call:{name}"), len(numbers), row)


def _fetch(e: Pieces, normalized: bool = False) -> tuple[Value, ...]:
    """The error that is set, taken away: its type, itself, its traceback."""
    places = [e.text.alloca("ptr") for _ in range(3)]
    e.call("PyErr_Fetch", *places)
    if normalized:
        e.call("PyErr_NormalizeException", *places)
    return tuple(e.text.load("ptr", place) for place in places)


# -- references ------------------------------------------------------------------------------------


@_support("void(ptr, ptr)", _INLINE)
def count(e: Pieces, one: Value) -> None:
    """A reference more."""
    f = e.text
    place = f.at(one, abi.OB_REFCNT)
    holders = f.load("i32", place)
    with f.if_(f.op("icmp slt", holders, 0)) as otherwise:
        e.call("Py_IncRef", one)
        otherwise()
        f.store(f.op("add", holders, 1), place)
    f.ret()


@_support("void(ptr, ptr)", _INLINE)
def drop(e: Pieces, one: Value) -> None:
    """A reference less; null is fine."""
    f = e.text
    with f.if_(f.op("icmp ne", one, None)):
        place = f.at(one, abi.OB_REFCNT)
        holders = f.load("i32", place)
        with f.if_(f.op("icmp sgt", holders, 1)) as otherwise:
            f.store(f.op("sub", holders, 1), place)
            otherwise()
            e.call("Py_DecRef", one)
    f.ret()


# -- Python functions and errors -------------------------------------------------------------------


@_support("ptr(ptr, ptr, i64, ptr)", _COLD)
def ask(e: Pieces, callable_: Value, n: Value, words: Value) -> None:
    """Call a Python function with ints."""
    f = e.text
    objects = f.alloca("ptr", 8, _MAX_ASKED)
    missing = f.slot("i1", False)
    with f.for_(n) as i:
        number = e.call("PyLong_FromLongLong", f.load("i64", f.element("i64", words, i)))
        f.store(number, f.element("ptr", objects, i))
        with f.if_(f.op("icmp eq", number, None)):
            f.store(True, missing, of="i1")
    result = f.either(
        f.not_(f.load("i1", missing)),
        lambda: e.call("PyObject_Vectorcall", callable_, objects, n, None),
    )
    with f.for_(n) as i:
        e.drop(f.load("ptr", f.element("ptr", objects, i)))
    f.ret(result)


@_support("ptr(ptr, i64, i64, ptr, ptr, i64)", _COLD)
def leave(e: Pieces, site: Value, code: Value, spill: Value, frame: Value, depth: Value) -> None:
    """Go on in the interpreter, or raise what it would. Gives the function's result."""
    places = (e.text.cast("ptrtoint", pointer, "i64") for pointer in (spill, frame))
    e.text.ret(_ask(e, "leave", site, code, *places, depth))


@_support("void(ptr, i64, i64)", _COLD)
def note(e: Pieces, where: Value, depth: Value) -> None:
    """Say on the error that is set which instruction it comes from."""
    f = e.text
    error = _fetch(e, normalized=True)
    _, value, trace = error
    with f.if_(f.op("icmp ne", trace, None)):
        e.call("PyException_SetTraceback", value, trace)
    numbers = [e.call("PyLong_FromLongLong", each) for each in (where, depth)]
    missing = f.op("or", *(f.op("icmp eq", number, None) for number in numbers))
    told = f.either(f.not_(missing), lambda: e.vectorcall("note", *numbers, value))
    for number in numbers:
        e.drop(number)
    with f.if_(f.op("icmp eq", told, None)) as otherwise:
        # Another error has taken its place.
        for part in error:
            e.drop(part)
        otherwise()
        e.drop(told)
        e.call("PyErr_Restore", *error)
    f.ret()


# -- frames ----------------------------------------------------------------------------------------


@_support("ptr(ptr, i64)", _COLD)
def make_frame(e: Pieces, index: Value) -> None:
    """A new frame of function `index`; null with an error set."""
    f = e.text
    answer = _ask(e, "frame", index)
    _null_unless(e, f.op("icmp ne", answer, None))
    address = e.call("PyLong_AsLongLong", answer)
    e.drop(answer)
    f.ret(f.cast("inttoptr", address, "ptr"))


@_support("void(ptr, i64, ptr)", _COLD)
def drop_frame(e: Pieces, index: Value, frame: Value) -> None:
    """Let go of a frame that cannot be kept. An error that is set stays so."""
    error = _fetch(e)
    e.drop(_ask(e, "drop", index, e.text.cast("ptrtoint", frame, "i64")))
    e.call("PyErr_Clear")
    e.call("PyErr_Restore", *error)
    e.text.ret()


# -- what every call runs, each in its caller ------------------------------------------------------


@_support("void(ptr, ptr, i64)", _INLINE)
def release(e: Pieces, slots: Value, n: Value) -> None:
    """Let go of a row of objects, null ones among them."""
    f = e.text
    with f.for_(n) as i:
        e.drop(f.load("ptr", f.element("ptr", slots, i)))
    f.ret()


@_support("ptr(ptr, ptr, i64)", _INLINE)
def take(e: Pieces, free: Value, index: Value) -> None:
    """A frame of function `index` nobody else uses; null with an error set."""
    f = e.text
    first = f.load("ptr", free)
    with f.if_(f.op("icmp ne", first, None)):
        f.store(f.load("ptr", first), free)
        f.ret(first)
    f.ret(f.call("relaxvm_vm_make_frame", e.ctx, index))


@_support("void(ptr, ptr, i64, ptr, ptr, i64)", _INLINE)
def give(e: Pieces, free: Value, index: Value, frame: Value, watch: Value, n: Value) -> None:
    """Keep the frame for another call, unless somebody kept an object of it."""
    f = e.text
    drop, look = f.label("drop"), f.label("look")
    f.branch(f.op("icmp ne", e.field(frame, 8, "i64"), 0), drop, look)
    f.start(look)
    with f.for_(n) as i:
        watched = f.element("[2 x i64]", watch, i)
        one = f.load("ptr", watched)
        with f.if_(f.op("icmp ne", one, None)):
            same = f.label("same")
            holders = e.field(one, abi.OB_REFCNT, "i32", 4)
            f.branch(f.op("icmp eq", holders, e.field(watched, 8, "i32", 4)), same, drop)
            f.start(same)
    f.store(f.load("ptr", free), frame)
    f.store(frame, free)
    f.ret()
    f.start(drop)
    f.call("relaxvm_vm_drop_frame", e.ctx, index, frame)
    f.ret()


# -- memory and boxes ------------------------------------------------------------------------------


def _give_memory(e: Pieces, owner: Value, start: Value, data: Value) -> None:
    """Return `owner`, and in `data` the first aligned address from `start` on."""
    f = e.text
    address = f.op("add", f.cast("ptrtoint", start, "i64"), _ALIGNMENT - 1)
    f.store(f.cast("inttoptr", f.op("and", address, -_ALIGNMENT), "ptr"), data)
    f.ret(owner)


@_support("ptr(ptr, i64, ptr)")
def alloc(e: Pieces, size: Value, data: Value) -> None:
    """Aligned memory: the object that owns it, its address in `data`; null without an error."""
    f = e.text
    padded = f.op("add", size, _ALIGNMENT)
    failed = f.label("failed")
    with f.if_(f.op("icmp ult", padded, results.FROM_BYTES)):
        small = e.call("PyBytes_FromStringAndSize", None, padded)
        with f.if_(f.op("icmp ne", small, None)):
            _give_memory(e, small, f.at(small, abi.BYTES_DATA), data)
        f.jump(failed)
    # A block of the table that fits and that nobody else holds.
    table = e.word("results")
    now, first = e.field(table, 8 * results.NOW, "i64"), f.at(table, 8 * results.FIRST)
    slack = f.op("lshr", padded, results.SLACK_SHIFT)
    with f.for_(e.field(table, 8 * results.END, "i64")) as i:
        seat = f.element(f"[{results.SLOT_WORDS} x i64]", first, i)
        spare = f.op("sub", e.field(seat, 8 * results.CAPACITY, "i64"), padded)
        with f.if_(f.op("icmp ule", spare, slack)):
            block = e.field(seat, 8 * results.OBJECT)
            with f.if_(e.held_once(block)):
                f.store(now, f.at(seat, 8 * results.USED))
                e.count(block)
                _give_memory(e, block, e.field(block, abi.ND_DATA), data)
    large = _ask(e, "alloc", padded)
    with f.if_(f.op("icmp ne", large, None)):
        _give_memory(e, large, e.field(large, abi.ND_DATA), data)
    f.enter(failed)
    e.call("PyErr_Clear")
    f.ret(None)


@_support("ptr(ptr, ptr, i64, ptr)")
def alloc_again(e: Pieces, pair: Value, size: Value, data: Value) -> None:
    """The same, first of all the memory of an array of the pair."""
    f = e.text
    padded = f.op("add", size, _ALIGNMENT)
    for array in _idle(e, pair):
        holder = e.field(array, abi.ND_BASE)
        same = f.op("icmp eq", e.field(holder, abi.BYTES_SIZE, "i64"), padded)
        with f.if_(f.op("and", same, e.held_once(holder))):
            e.count(holder)
            _give_memory(e, holder, f.at(holder, abi.BYTES_DATA), data)
    f.ret(f.call("relaxvm_vm_alloc", e.ctx, size, data))


def _idle(e: Pieces, pair: Value) -> Iterator[Value]:
    """What the caller emits runs for each array of a pair that nobody else can see."""
    f = e.text
    for k in range(2):
        array = e.field(pair, 8 * k)
        with f.if_(f.op("icmp ne", array, None)):
            unwatched = f.op("icmp eq", e.field(array, abi.ND_WEAKREFS), None)
            with f.if_(f.op("and", unwatched, e.held_once(array))):
                yield array


@_support("ptr(ptr, ptr, ptr)", "nounwind")
def wrap(e: Pieces, array: Value, dtype: Value) -> None:
    """An NDArray around an array, whose reference it takes (also where it fails)."""
    f = e.text
    fresh = e.call("PyType_GenericAlloc", e.word("type:NDArray"), 0)
    with f.if_(f.op("icmp eq", fresh, None)):
        e.drop(array)
        f.ret(None)
    f.store(array, f.at(fresh, abi.SLOT_ARRAY))
    for slot, one in ((abi.SLOT_DTYPE, dtype), (abi.SLOT_DEVICE, e.word("obj:cpu"))):
        e.count(one)
        f.store(one, f.at(fresh, slot))
    f.ret(fresh)


@_support("ptr(ptr, ptr, ptr, i32, ptr, ptr, ptr)")
def box(
    e: Pieces, descr: Value, dtype: Value, nd: Value, dims: Value, data: Value, holder: Value
) -> None:
    """An NDArray over memory that `holder` keeps alive."""
    f = e.text
    e.count(descr)
    new, kind = e.word("np:PyArray_NewFromDescr"), e.word("type:ndarray")
    args = (kind, descr, nd, dims, None, data, _ARRAY_FLAGS, None)
    array = f.call(new, *args, of=_NEW_ARRAY)
    _null_unless(e, f.op("icmp ne", array, None))
    e.count(holder)
    f.store(holder, f.at(array, abi.ND_BASE))
    f.ret(f.call("relaxvm_vm_wrap", e.ctx, array, dtype))


@_support("ptr(ptr, ptr, ptr, ptr, i32, ptr, ptr, ptr)")
def box_again(
    e: Pieces,
    pair: Value,
    descr: Value,
    dtype: Value,
    nd: Value,
    dims: Value,
    data: Value,
    holder: Value,
) -> None:
    """The same, around an array of the pair if it has this memory, dtype and shape; else a new one
    goes into the pair.
    """
    f = e.text
    for array in _idle(e, pair):
        flags = f.op("and", e.field(array, abi.ND_FLAGS, "i32", 4), _ARRAY_FLAGS)
        same = f.op("icmp eq", flags, _ARRAY_FLAGS)
        for offset, wanted in (
            (abi.ND_BASE, holder),
            (abi.ND_DATA, data),
            (abi.ND_DESCR, descr),
            (abi.ND_NDIM, nd),
        ):
            its = e.field(array, offset, wanted.type)
            same = f.op("and", same, f.op("icmp eq", its, wanted))
        with f.if_(same):
            sizes, other = e.field(array, abi.ND_DIMS), f.label("other")
            with f.for_(f.cast("zext", nd, "i64")) as i:
                equal = f.label("equal")
                size, its = (f.load("i64", f.element("i64", row, i)) for row in (dims, sizes))
                f.branch(f.op("icmp eq", size, its), equal, other)
                f.start(equal)
            e.count(array)
            f.ret(f.call("relaxvm_vm_wrap", e.ctx, array, dtype))
            f.start(other)
    fresh = f.call("relaxvm_vm_box", e.ctx, descr, dtype, nd, dims, data, holder)
    _null_unless(e, f.op("icmp ne", fresh, None))
    with f.if_(e.is_kind(holder, "type:bytes")):
        small = f.op("icmp ule", e.field(holder, abi.BYTES_SIZE, "i64"), _AGAIN_BYTES)
        with f.if_(small):
            newest, last = e.field(fresh, abi.SLOT_ARRAY), f.at(pair, 8)
            oldest = f.load("ptr", last)
            e.count(newest)
            f.store(f.load("ptr", pair), last)
            f.store(newest, pair)
            e.drop(oldest)
    f.ret(fresh)


@_support("ptr(ptr, ptr, ptr, ptr, ptr)")
def tensor(e: Pieces, value: Value, descr: Value, dtype: Value, kept: Value) -> None:
    """An argument that is wanted as a tensor, as the program sees it: itself if it is an NDArray
    without gaps, an NDArray over a view of it (a new reference, also put in `kept`) if it is a
    plain numpy array of the dtype; null for all else.
    """
    f = e.text
    with f.if_(e.is_kind(value, "type:NDArray")):
        gaps = f.label("gaps")
        e.gapless(value, gaps)
        f.ret(value)
        f.start(gaps)
        f.ret(None)
    _null_unless(e, e.is_kind(value, "type:ndarray"))
    flags, plain = e.field(value, abi.ND_FLAGS, "i32", 4), abi.C_CONTIGUOUS | abi.ALIGNED
    same = f.op("icmp eq", e.field(value, abi.ND_DESCR), descr)
    _null_unless(e, f.op("and", same, f.op("icmp eq", f.op("and", flags, plain), plain)))
    dims, data = e.field(value, abi.ND_DIMS), e.field(value, abi.ND_DATA)
    nd = e.field(value, abi.ND_NDIM, "i32", 4)
    view = f.call("relaxvm_vm_box", e.ctx, descr, dtype, nd, dims, data, value)
    with f.if_(f.op("icmp eq", view, None)):
        # The slow call tries again, and says so.
        e.call("PyErr_Clear")
        f.ret(None)
    # A view may be written where the array may.
    place = f.at(e.field(view, abi.SLOT_ARRAY), abi.ND_FLAGS)
    others = f.op("and", f.load("i32", place), ~abi.WRITEABLE)
    f.store(f.op("or", others, f.op("and", flags, abi.WRITEABLE)), place)
    f.store(view, kept)
    f.ret(view)


@_support("ptr(ptr, ptr, i32, ptr, ptr)")
def array(e: Pieces, value: Value, nd: Value, descr: Value, dtype: Value) -> None:
    """The array of an NDArray of this dtype, or a plain numpy array of that of numpy, of this rank;
    null for all else.
    """
    f = e.text
    ours = e.is_kind(value, "type:NDArray")
    inner = f.either(ours, lambda: e.field(value, abi.SLOT_ARRAY), lambda: value)
    _null_unless(e, f.op("icmp ne", inner, None))
    _null_unless(e, e.is_kind(inner, "type:ndarray"))
    place = f.select(ours, f.at(value, abi.SLOT_DTYPE), f.at(value, abi.ND_DESCR))
    same = f.op("icmp eq", f.load("ptr", place), f.select(ours, dtype, descr))
    same = f.op("and", same, f.op("icmp eq", e.field(inner, abi.ND_NDIM, "i32", 4), nd))
    f.ret(f.select(same, inner, None))


@_support("ptr(ptr, i64, ptr)")
def shape(e: Pieces, n: Value, dims: Value) -> None:
    """A ShapeTuple of `n` sizes."""
    f = e.text
    fresh = e.call("PyType_GenericAlloc", e.word("type:ShapeTuple"), n)
    _null_unless(e, f.op("icmp ne", fresh, None))
    items = f.at(fresh, abi.TUPLE_ITEMS)
    with f.for_(n) as i:
        size = e.call("PyLong_FromLongLong", f.load("i64", f.element("i64", dims, i)))
        with f.if_(f.op("icmp eq", size, None)):
            e.drop(fresh)
            f.ret(None)
        f.store(size, f.element("ptr", items, i))
    f.ret(fresh)


@_support("ptr(ptr, ptr)")
def adopt(e: Pieces, value: Value) -> None:
    """What an extern returned, as the program sees it. Takes the reference."""
    f = e.text
    slow = f.label("slow")
    with f.if_(e.is_kind(value, "type:NDArray")):
        e.gapless(value, slow)
        f.ret(value)
    plain = f.op("icmp eq", value, e.word("obj:None"))
    for name in ("int", "float", "bool", "str", "ShapeTuple"):
        plain = f.op("or", plain, e.is_kind(value, f"type:{name}"))
    with f.if_(plain):
        f.ret(value)
    f.enter(slow)
    adopted = e.vectorcall("adopt", value)
    e.drop(value)
    f.ret(adopted)
