"""The native functions that compiled VM functions share: memory, boxes, frames, errors.

Each takes the context first. Names are loaded from it, see `runtime.compiled_code`. All but the
shortest are the same machine code beside every program, so that LLVM compiles them once.
"""

from __future__ import annotations

import functools
import re

from ...runtime import pyabi as abi
from ...runtime import result_memory as results
from .module import ModuleText

MAX_ASKED = 8
_ARRAY_FLAGS = abi.WRITEABLE | abi.ALIGNED | abi.C_CONTIGUOUS
_WORD = re.compile(r"^(\s*)(%[\w.]+) = word (\S+)$", re.M)
_FIELD = re.compile(r"^(\s*)(%[\w.]+) = field (\w+) (%[\w.]+), (-?\d+)$", re.M)
_PUT = re.compile(r"^(\s*)put (\w+) (\S+), (%[\w.]+), (-?\d+)$", re.M)
_HEAD = re.compile(r"\s*define ((?:hidden|internal) \w+) @(\w+)\(([^)]*)\)([^{]*)")


class Words:
    """The names of the context's words so far, and their places."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def offset(self, name: str) -> int:
        """Bytes from the start of the context."""
        return 8 * self._numbers.setdefault(name, len(self._numbers))

    def copy(self) -> Words:
        """Others that begin with these."""
        others = Words()
        others._numbers = dict(self._numbers)
        return others

    @property
    def names(self) -> tuple[str, ...]:
        """In order."""
        return tuple(self._numbers)


def expand(text: str, words: Words) -> str:
    """LLVM IR of text with three abbreviations:

    ``%x = word py:PyTuple_New`` loads a word of %ctx, ``%x = field ptr %object, 16`` a field,
    ``put ptr %value, %object, 16`` stores one.
    """
    count = 0

    def place(indent: str, base: str, offset: int) -> tuple[str, str]:
        nonlocal count
        count += 1
        return f"{indent}%at.{count} = getelementptr i8, ptr {base}, i64 {offset}\n", f"%at.{count}"

    def word(m: re.Match[str]) -> str:
        line, address = place(m[1], "%ctx", words.offset(m[3]))
        return f"{line}{m[1]}{m[2]} = load ptr, ptr {address}, align 8"

    def field(m: re.Match[str]) -> str:
        line, address = place(m[1], m[4], int(m[5]))
        return f"{line}{m[1]}{m[2]} = load {m[3]}, ptr {address}, align 4"

    def put(m: re.Match[str]) -> str:
        line, address = place(m[1], m[4], int(m[5]))
        return f"{line}{m[1]}store {m[2]} {m[3]}, ptr {address}, align 4"

    return _PUT.sub(put, _FIELD.sub(field, _WORD.sub(word, text)))


def define_support(text: ModuleText) -> None:
    """The module of the functions that all programs share."""
    for function in _expanded()[1]:
        text.add(function)


def declare_support(text: ModuleText) -> Words:
    """What a program's module needs of the shared functions, and the others. Gives the words that
    they use: the context of every program begins with those.
    """
    words, shared, inlined = _expanded()
    for function in shared:
        head = _HEAD.match(function)
        assert head is not None
        args = tuple(arg.split()[0] for arg in head[3].split(","))
        text.declare(head[2], head[1], args, " ".join(head[4].split()))
    for function in inlined:
        head = _HEAD.match(function)
        assert head is not None
        args = tuple(arg.split()[0] for arg in head[3].split(","))
        text.signatures[head[2]] = head[1].split()[-1], args
        text.add(function)
    return words.copy()


@functools.lru_cache(maxsize=1)
def _expanded() -> tuple[Words, tuple[str, ...], tuple[str, ...]]:
    words = Words()
    for word in ("careful", "max_depth", "threads"):
        words.offset(word)
    shared = tuple(expand(function, words) for function in _SHARED)
    return words, shared, tuple(expand(function, words) for function in _INLINED)


_SHARED = (
    # Call a Python function with ints.
    f"""
define hidden ptr @relaxvm_vm_ask(ptr %ctx, ptr %callable, i64 %n, ptr %words)
    cold noinline nounwind {{
entry:
  %objects = alloca [{MAX_ASKED + 1} x ptr], align 8
  %from.long = word py:PyLong_FromLongLong
  %vectorcall = word py:PyObject_Vectorcall
  %decref = word py:Py_DecRef
  br label %make
make:
  %i = phi i64 [ 0, %entry ], [ %i.next, %made ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %convert, label %call
convert:
  %word.at = getelementptr i64, ptr %words, i64 %i
  %value = load i64, ptr %word.at, align 8
  %object = call ptr %from.long(i64 %value)
  %failed = icmp eq ptr %object, null
  br i1 %failed, label %drop, label %made
made:
  %object.at = getelementptr ptr, ptr %objects, i64 %i
  store ptr %object, ptr %object.at, align 8
  %i.next = add i64 %i, 1
  br label %make
call:
  %answer = call ptr %vectorcall(ptr %callable, ptr %objects, i64 %n, ptr null)
  br label %drop
drop:
  %result = phi ptr [ null, %convert ], [ %answer, %call ]
  br label %each
each:
  %k = phi i64 [ %i, %drop ], [ %k.next, %one ]
  %left = icmp sgt i64 %k, 0
  br i1 %left, label %one, label %done
one:
  %k.next = sub i64 %k, 1
  %old.at = getelementptr ptr, ptr %objects, i64 %k.next
  %old = load ptr, ptr %old.at, align 8
  call void %decref(ptr %old)
  br label %each
done:
  ret ptr %result
}}""",
    # Go on in the interpreter, or raise what it would. Gives the function's result.
    """
define hidden ptr @relaxvm_vm_leave(ptr %ctx, i64 %site, i64 %code, ptr %spill, ptr %frame,
    i64 %depth) cold noinline nounwind {
  %words = alloca [5 x i64], align 8
  %spill.word = ptrtoint ptr %spill to i64
  %frame.word = ptrtoint ptr %frame to i64
  put i64 %site, %words, 0
  put i64 %code, %words, 8
  put i64 %spill.word, %words, 16
  put i64 %frame.word, %words, 24
  put i64 %depth, %words, 32
  %callable = word call:leave
  %result = call ptr @relaxvm_vm_ask(ptr %ctx, ptr %callable, i64 5, ptr %words)
  ret ptr %result
}""",
    # Say on the error that is set which instruction it comes from.
    """
define hidden void @relaxvm_vm_note(ptr %ctx, i64 %where, i64 %depth) cold noinline nounwind {
  %kind.at = alloca ptr, align 8
  %value.at = alloca ptr, align 8
  %trace.at = alloca ptr, align 8
  %args = alloca [3 x ptr], align 8
  %fetch = word py:PyErr_Fetch
  %normalize = word py:PyErr_NormalizeException
  %restore = word py:PyErr_Restore
  %from.long = word py:PyLong_FromLongLong
  %vectorcall = word py:PyObject_Vectorcall
  %decref = word py:Py_DecRef
  %set.trace = word py:PyException_SetTraceback
  call void %fetch(ptr %kind.at, ptr %value.at, ptr %trace.at)
  call void %normalize(ptr %kind.at, ptr %value.at, ptr %trace.at)
  %kind = load ptr, ptr %kind.at, align 8
  %value = load ptr, ptr %value.at, align 8
  %trace = load ptr, ptr %trace.at, align 8
  %has.trace = icmp ne ptr %trace, null
  br i1 %has.trace, label %keep.trace, label %say
keep.trace:
  %ignored = call i32 %set.trace(ptr %value, ptr %trace)
  br label %say
say:
  %where.object = call ptr %from.long(i64 %where)
  %depth.object = call ptr %from.long(i64 %depth)
  %no.where = icmp eq ptr %where.object, null
  %no.depth = icmp eq ptr %depth.object, null
  %no.memory = or i1 %no.where, %no.depth
  br i1 %no.memory, label %finished, label %call
call:
  put ptr %where.object, %args, 0
  put ptr %depth.object, %args, 8
  put ptr %value, %args, 16
  %callable = word call:note
  %answer = call ptr %vectorcall(ptr %callable, ptr %args, i64 3, ptr null)
  br label %finished
finished:
  %said = phi ptr [ null, %say ], [ %answer, %call ]
  call void %decref(ptr %where.object)
  call void %decref(ptr %depth.object)
  %other.error = icmp eq ptr %said, null
  br i1 %other.error, label %replaced, label %same
replaced:
  call void %decref(ptr %kind)
  call void %decref(ptr %value)
  call void %decref(ptr %trace)
  ret void
same:
  call void %decref(ptr %said)
  call void %restore(ptr %kind, ptr %value, ptr %trace)
  ret void
}""",
    # Aligned memory: the object that owns it, its address in %data; null without an error.
    f"""
define hidden ptr @relaxvm_vm_alloc(ptr %ctx, i64 %size, ptr %data) noinline nounwind {{
entry:
  %padded = add i64 %size, 64
  %big = icmp uge i64 %padded, {results.FROM_BYTES}
  br i1 %big, label %look, label %small
small:
  %new.bytes = word py:PyBytes_FromStringAndSize
  %bytes = call ptr %new.bytes(ptr null, i64 %padded)
  %bytes.failed = icmp eq ptr %bytes, null
  br i1 %bytes.failed, label %failed, label %bytes.made
bytes.made:
  %bytes.data = getelementptr i8, ptr %bytes, i64 {abi.BYTES_DATA}
  br label %align
look:
  ; a block of the table that fits and that nobody else holds
  %table = word results
  %end = field i64 %table, {8 * results.END}
  %now = field i64 %table, {8 * results.NOW}
  %slack = lshr i64 %padded, {results.SLACK_SHIFT}
  %first = getelementptr i64, ptr %table, i64 {results.FIRST}
  br label %each
each:
  %i = phi i64 [ 0, %look ], [ %i.next, %next ]
  %more = icmp ult i64 %i, %end
  br i1 %more, label %slot, label %large
slot:
  %seat = getelementptr [{results.SLOT_WORDS} x i64], ptr %first, i64 %i
  %have = field i64 %seat, {8 * results.CAPACITY}
  %spare = sub i64 %have, %padded
  %fits = icmp ule i64 %spare, %slack
  br i1 %fits, label %fitting, label %next
fitting:
  %block = field ptr %seat, {8 * results.OBJECT}
  %holders = field i32 %block, {abi.OB_REFCNT}
  %unheld = icmp eq i32 %holders, 1
  br i1 %unheld, label %again, label %next
next:
  %i.next = add i64 %i, 1
  br label %each
again:
  put i64 %now, %seat, {8 * results.USED}
  %incref = word py:Py_IncRef
  call void %incref(ptr %block)
  br label %array.made
large:
  %word = alloca i64, align 8
  store i64 %padded, ptr %word, align 8
  %callable = word call:alloc
  %new.array = call ptr @relaxvm_vm_ask(ptr %ctx, ptr %callable, i64 1, ptr %word)
  %array.failed = icmp eq ptr %new.array, null
  br i1 %array.failed, label %failed, label %array.made
array.made:
  %array = phi ptr [ %block, %again ], [ %new.array, %large ]
  %array.data = field ptr %array, {abi.ND_DATA}
  br label %align
align:
  %owner = phi ptr [ %bytes, %bytes.made ], [ %array, %array.made ]
  %start = phi ptr [ %bytes.data, %bytes.made ], [ %array.data, %array.made ]
  %address = ptrtoint ptr %start to i64
  %raised = add i64 %address, 63
  %aligned = and i64 %raised, -64
  %aligned.data = inttoptr i64 %aligned to ptr
  store ptr %aligned.data, ptr %data, align 8
  ret ptr %owner
failed:
  %clear = word py:PyErr_Clear
  call void %clear()
  ret ptr null
}}""",
    # An NDArray over memory that %holder keeps alive.
    f"""
define hidden ptr @relaxvm_vm_box(ptr %ctx, ptr %descr, ptr %dtype, i32 %nd, ptr %dims,
    ptr %data, ptr %holder) noinline nounwind {{
  %incref = word py:Py_IncRef
  %new.array = word np:PyArray_NewFromDescr
  %ndarray = word type:ndarray
  call void %incref(ptr %descr)
  %array = call ptr %new.array(ptr %ndarray, ptr %descr, i32 %nd, ptr %dims, ptr null, ptr %data,
    i32 {_ARRAY_FLAGS}, ptr null)
  %array.failed = icmp eq ptr %array, null
  br i1 %array.failed, label %no.array, label %own
no.array:
  ret ptr null
own:
  call void %incref(ptr %holder)
  put ptr %holder, %array, {abi.ND_BASE}
  %wrapped = call ptr @relaxvm_vm_wrap(ptr %ctx, ptr %array, ptr %dtype)
  ret ptr %wrapped
}}""",
    # An argument that is wanted as a tensor, as the program sees it: itself if it is an NDArray
    # without gaps, an NDArray over a view of it (a new reference, also put in %kept) if it is a
    # plain numpy array of the dtype; null for all else.
    f"""
define hidden ptr @relaxvm_vm_tensor(ptr %ctx, ptr %value, ptr %descr, ptr %dtype, ptr %kept)
    noinline nounwind {{
entry:
  %type = field ptr %value, {abi.OB_TYPE}
  %NDArray = word type:NDArray
  %is.ours = icmp eq ptr %type, %NDArray
  br i1 %is.ours, label %ours, label %theirs
ours:
  %slot = field ptr %value, {abi.SLOT_ARRAY}
  %empty = icmp eq ptr %slot, null
  br i1 %empty, label %refuse, label %look
look:
  %slot.flags = field i32 %slot, {abi.ND_FLAGS}
  %slot.gapless = and i32 %slot.flags, {abi.C_CONTIGUOUS}
  %slot.fine = icmp ne i32 %slot.gapless, 0
  br i1 %slot.fine, label %as.it.is, label %refuse
as.it.is:
  ret ptr %value
theirs:
  %ndarray = word type:ndarray
  %is.array = icmp eq ptr %type, %ndarray
  br i1 %is.array, label %array, label %refuse
array:
  %its.descr = field ptr %value, {abi.ND_DESCR}
  %its.flags = field i32 %value, {abi.ND_FLAGS}
  %present = and i32 %its.flags, {abi.C_CONTIGUOUS | abi.ALIGNED}
  %same.descr = icmp eq ptr %its.descr, %descr
  %plain = icmp eq i32 %present, {abi.C_CONTIGUOUS | abi.ALIGNED}
  %good = and i1 %same.descr, %plain
  br i1 %good, label %view, label %refuse
view:
  %nd = field i32 %value, {abi.ND_NDIM}
  %dims = field ptr %value, {abi.ND_DIMS}
  %data = field ptr %value, {abi.ND_DATA}
  %made = call ptr @relaxvm_vm_box(ptr %ctx, ptr %descr, ptr %dtype, i32 %nd, ptr %dims, ptr %data,
    ptr %value)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %no.memory, label %mark
no.memory:
  ; the slow call tries again, and says so
  %clear = word py:PyErr_Clear
  call void %clear()
  br label %refuse
mark:
  ; a view may be written where the array may
  %own = field ptr %made, {abi.SLOT_ARRAY}
  %own.flags = field i32 %own, {abi.ND_FLAGS}
  %writeable = and i32 %its.flags, {abi.WRITEABLE}
  %others = and i32 %own.flags, {~abi.WRITEABLE}
  %merged = or i32 %others, %writeable
  put i32 %merged, %own, {abi.ND_FLAGS}
  store ptr %made, ptr %kept, align 8
  ret ptr %made
refuse:
  ret ptr null
}}""",
    # The array of an NDArray or a plain numpy array, of this rank; null for all else.
    f"""
define hidden ptr @relaxvm_vm_array(ptr %ctx, ptr %value, i32 %nd) noinline nounwind {{
entry:
  %type = field ptr %value, {abi.OB_TYPE}
  %NDArray = word type:NDArray
  %is.ours = icmp eq ptr %type, %NDArray
  br i1 %is.ours, label %ours, label %look
ours:
  %slot = field ptr %value, {abi.SLOT_ARRAY}
  %empty = icmp eq ptr %slot, null
  br i1 %empty, label %refuse, label %look
look:
  %array = phi ptr [ %value, %entry ], [ %slot, %ours ]
  %kind = field ptr %array, {abi.OB_TYPE}
  %ndarray = word type:ndarray
  %is.array = icmp eq ptr %kind, %ndarray
  br i1 %is.array, label %rank, label %refuse
rank:
  %its.nd = field i32 %array, {abi.ND_NDIM}
  %same = icmp eq i32 %its.nd, %nd
  br i1 %same, label %fine, label %refuse
fine:
  ret ptr %array
refuse:
  ret ptr null
}}""",
    # How many elements an array has.
    f"""
define hidden i64 @relaxvm_vm_count(ptr %array) noinline nounwind {{
entry:
  %nd = field i32 %array, {abi.ND_NDIM}
  %dims = field ptr %array, {abi.ND_DIMS}
  %axes = sext i32 %nd to i64
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %one ]
  %total = phi i64 [ 1, %entry ], [ %total.next, %one ]
  %more = icmp slt i64 %i, %axes
  br i1 %more, label %one, label %done
one:
  %at = getelementptr i64, ptr %dims, i64 %i
  %size = load i64, ptr %at, align 8
  %total.next = mul i64 %total, %size
  %i.next = add i64 %i, 1
  br label %each
done:
  ret i64 %total
}}""",
    # An NDArray around an array, whose reference it takes (also where it fails).
    f"""
define hidden ptr @relaxvm_vm_wrap(ptr %ctx, ptr %array, ptr %dtype) nounwind {{
  %incref = word py:Py_IncRef
  %decref = word py:Py_DecRef
  %generic.alloc = word py:PyType_GenericAlloc
  %NDArray = word type:NDArray
  %made = call ptr %generic.alloc(ptr %NDArray, i64 0)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %give.up, label %fill
give.up:
  call void %decref(ptr %array)
  ret ptr null
fill:
  %cpu = word obj:cpu
  put ptr %array, %made, {abi.SLOT_ARRAY}
  call void %incref(ptr %dtype)
  put ptr %dtype, %made, {abi.SLOT_DTYPE}
  call void %incref(ptr %cpu)
  put ptr %cpu, %made, {abi.SLOT_DEVICE}
  ret ptr %made
}}""",
    # A ShapeTuple of %n sizes.
    f"""
define hidden ptr @relaxvm_vm_shape(ptr %ctx, i64 %n, ptr %dims) noinline nounwind {{
entry:
  %generic.alloc = word py:PyType_GenericAlloc
  %from.long = word py:PyLong_FromLongLong
  %decref = word py:Py_DecRef
  %kind = word type:ShapeTuple
  %made = call ptr %generic.alloc(ptr %kind, i64 %n)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %give.up, label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %put ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %done
one:
  %size.at = getelementptr i64, ptr %dims, i64 %i
  %size = load i64, ptr %size.at, align 8
  %object = call ptr %from.long(i64 %size)
  %no.memory = icmp eq ptr %object, null
  br i1 %no.memory, label %undo, label %put
put:
  %items = getelementptr i8, ptr %made, i64 {abi.TUPLE_ITEMS}
  %item = getelementptr ptr, ptr %items, i64 %i
  store ptr %object, ptr %item, align 8
  %i.next = add i64 %i, 1
  br label %each
undo:
  call void %decref(ptr %made)
  br label %give.up
give.up:
  ret ptr null
done:
  ret ptr %made
}}""",
    # What an extern returned, as the program sees it. Takes the reference.
    f"""
define hidden ptr @relaxvm_vm_adopt(ptr %ctx, ptr %object) noinline nounwind {{
entry:
  %type = field ptr %object, {abi.OB_TYPE}
  %NDArray = word type:NDArray
  %is.ours = icmp eq ptr %type, %NDArray
  br i1 %is.ours, label %ours, label %plain
ours:
  %array = field ptr %object, {abi.SLOT_ARRAY}
  %empty = icmp eq ptr %array, null
  br i1 %empty, label %slow, label %look
look:
  %flags = field i32 %array, {abi.ND_FLAGS}
  %gapless = and i32 %flags, {abi.C_CONTIGUOUS}
  %fine = icmp ne i32 %gapless, 0
  br i1 %fine, label %as.it.is, label %slow
plain:
  %int = word type:int
  %float = word type:float
  %bool = word type:bool
  %str = word type:str
  %none = word obj:None
  %shape = word type:ShapeTuple
  %is.int = icmp eq ptr %type, %int
  %is.float = icmp eq ptr %type, %float
  %is.bool = icmp eq ptr %type, %bool
  %is.str = icmp eq ptr %type, %str
  %is.none = icmp eq ptr %object, %none
  %is.shape = icmp eq ptr %type, %shape
  %or.1 = or i1 %is.int, %is.float
  %or.2 = or i1 %is.bool, %is.str
  %or.3 = or i1 %is.none, %is.shape
  %or.4 = or i1 %or.1, %or.2
  %or.5 = or i1 %or.3, %or.4
  br i1 %or.5, label %as.it.is, label %slow
as.it.is:
  ret ptr %object
slow:
  %args = alloca ptr, align 8
  store ptr %object, ptr %args, align 8
  %callable = word call:adopt
  %vectorcall = word py:PyObject_Vectorcall
  %decref = word py:Py_DecRef
  %adopted = call ptr %vectorcall(ptr %callable, ptr %args, i64 1, ptr null)
  call void %decref(ptr %object)
  ret ptr %adopted
}}""",
    # A new frame of function %f; null with an error set.
    """
define hidden ptr @relaxvm_vm_make_frame(ptr %ctx, i64 %f) cold noinline nounwind {
  %word = alloca i64, align 8
  store i64 %f, ptr %word, align 8
  %callable = word call:frame
  %answer = call ptr @relaxvm_vm_ask(ptr %ctx, ptr %callable, i64 1, ptr %word)
  %failed = icmp eq ptr %answer, null
  br i1 %failed, label %give.up, label %made
made:
  %as.long = word py:PyLong_AsLongLong
  %decref = word py:Py_DecRef
  %address = call i64 %as.long(ptr %answer)
  call void %decref(ptr %answer)
  %frame = inttoptr i64 %address to ptr
  ret ptr %frame
give.up:
  ret ptr null
}""",
    # Let go of a frame that cannot be kept. An error that is set stays so.
    """
define hidden void @relaxvm_vm_drop_frame(ptr %ctx, i64 %f, ptr %frame) cold noinline nounwind {
  %kind.at = alloca ptr, align 8
  %value.at = alloca ptr, align 8
  %trace.at = alloca ptr, align 8
  %words = alloca [2 x i64], align 8
  %fetch = word py:PyErr_Fetch
  %restore = word py:PyErr_Restore
  %clear = word py:PyErr_Clear
  %decref = word py:Py_DecRef
  call void %fetch(ptr %kind.at, ptr %value.at, ptr %trace.at)
  %frame.word = ptrtoint ptr %frame to i64
  put i64 %f, %words, 0
  put i64 %frame.word, %words, 8
  %callable = word call:drop
  %answer = call ptr @relaxvm_vm_ask(ptr %ctx, ptr %callable, i64 2, ptr %words)
  call void %decref(ptr %answer)
  call void %clear()
  %kind = load ptr, ptr %kind.at, align 8
  %value = load ptr, ptr %value.at, align 8
  %trace = load ptr, ptr %trace.at, align 8
  call void %restore(ptr %kind, ptr %value, ptr %trace)
  ret void
}""",
)

# What every call runs, each in its caller.
_INLINED = (
    # Let go of a row of objects, null ones among them.
    """
define internal void @relaxvm_vm_release(ptr %ctx, ptr %slots, i64 %n)
    alwaysinline nounwind {
entry:
  %decref = word py:Py_DecRef
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %done
one:
  %at = getelementptr ptr, ptr %slots, i64 %i
  %object = load ptr, ptr %at, align 8
  %i.next = add i64 %i, 1
  %none = icmp eq ptr %object, null
  br i1 %none, label %next, label %drop
drop:
  call void %decref(ptr %object)
  br label %next
next:
  br label %each
done:
  ret void
}""",
    # A frame of function %f nobody else uses; null with an error set.
    """
define internal ptr @relaxvm_vm_take(ptr %ctx, ptr %free, i64 %f) alwaysinline nounwind {
entry:
  %first = load ptr, ptr %free, align 8
  %none = icmp eq ptr %first, null
  br i1 %none, label %make, label %use
use:
  %next = load ptr, ptr %first, align 8
  store ptr %next, ptr %free, align 8
  ret ptr %first
make:
  %frame = call ptr @relaxvm_vm_make_frame(ptr %ctx, i64 %f)
  ret ptr %frame
}""",
    # Keep the frame for another call, unless somebody kept an object of it.
    f"""
define internal void @relaxvm_vm_give(ptr %ctx, ptr %free, i64 %f, ptr %frame, ptr %watch,
    i64 %n) alwaysinline nounwind {{
entry:
  %extra = field i64 %frame, 8
  %is.extra = icmp ne i64 %extra, 0
  br i1 %is.extra, label %drop, label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %keep
one:
  %at = getelementptr [2 x i64], ptr %watch, i64 %i
  %object = load ptr, ptr %at, align 8
  %expected = field i32 %at, 8
  %i.next = add i64 %i, 1
  %none = icmp eq ptr %object, null
  br i1 %none, label %next, label %look
look:
  %count = field i32 %object, {abi.OB_REFCNT}
  %same = icmp eq i32 %count, %expected
  br i1 %same, label %next, label %drop
next:
  br label %each
keep:
  %first = load ptr, ptr %free, align 8
  store ptr %first, ptr %frame, align 8
  store ptr %frame, ptr %free, align 8
  ret void
drop:
  call void @relaxvm_vm_drop_frame(ptr %ctx, i64 %f, ptr %frame)
  ret void
}}""",
)
