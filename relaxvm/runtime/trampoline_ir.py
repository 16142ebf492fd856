"""The LLVM IR of the native entry, and the layout it relies on."""

from __future__ import annotations

import itertools
import sys

from .pyabi import (
    BYTES_DATA,
    DESCR_BYTEORDER,
    DESCR_TYPE_NUM,
    LONG_SUBCLASS,
    ND_DATA,
    ND_DESCR,
    ND_DIMS,
    ND_FLAGS,
    ND_NDIM,
    ND_STRIDES,
    OB_TYPE,
    SLOT_ARRAY,
    SLOT_DTYPE,
    TP_FLAGS,
)

CODE_COUNT = -1_000_000
"""The number of arguments is wrong."""
CODE_WANTS_NDARRAY = -1_000_001
"""Work large enough to release the GIL: arrays must be NDArrays, whose headers are private."""

# What a parameter wants, as the low byte of its word in the entry record.
TENSOR, TENSOR_BF16, TENSOR_UINT16, BOOL, SIGNED, UNSIGNED, FLOAT = range(7)

# The entry record: 64-bit words, then one word per parameter (kind | shift << 8).
RECORD = (
    "wrapper",
    "nparams",
    "num_threads",
    "release_elements",
    "NDArray",
    "ndarray",
    "bfloat16",
    "PyFloat_Type",
    "Py_None",
    "Py_True",
    "Py_False",
    "PyLong_AsLongLong",
    "PyLong_AsUnsignedLongLong",
    "PyFloat_AsDouble",
    "PyErr_Occurred",
    "PyErr_Clear",
    "PyLong_FromLong",
    "Py_IncRef",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)


def entry_ir() -> str:
    """LLVM IR of the native function.

    Each `$name` of the entry record is loaded once, where it is needed.
    """

    def word(name: str, register: str, kind: str = "ptr") -> str:
        offset = BYTES_DATA + 8 * RECORD.index(name)
        return f"""
  %{register}.at = getelementptr i8, ptr %self, i64 {offset}
  %{register} = load {kind}, ptr %{register}.at, align 8"""

    def field(base: str, offset: int, register: str, kind: str = "ptr") -> str:
        return f"""
  %{register}.at = getelementptr i8, ptr %{base}, i64 {offset}
  %{register} = load {kind}, ptr %{register}.at, align 4"""

    def put(offset: int, kind: str, value: str) -> str:
        name = f"put{next(counter)}"
        return f"""
  %{name} = getelementptr i8, ptr %arg, i64 {offset}
  store {kind} {value}, ptr %{name}, align 4"""

    counter = itertools.count()
    kinds_at = BYTES_DATA + 8 * len(RECORD)
    return f"""
define ptr @relaxvm_call(ptr %self, ptr %args, i64 %nargs) nounwind {{
entry:{word("nparams", "nparams", "i64")}
  %right.count = icmp eq i64 %nparams, %nargs
  br i1 %right.count, label %begin, label %bad.count
begin:{word("num_threads", "threads", "i64")}
  %threads32 = trunc i64 %threads to i32
  {word("NDArray", "NDArray")}{word("ndarray", "ndarray")}{word("bfloat16", "bfloat16")}
  %buffer = alloca [40 x i8], i64 %nparams, align 8
  %empty = icmp eq i64 %nparams, 0
  br i1 %empty, label %filled, label %each
each:
  %i = phi i64 [ 0, %begin ], [ %i.next, %next ]
  %total = phi i64 [ 0, %begin ], [ %total.next, %next ]
  %raw = phi i1 [ false, %begin ], [ %raw.next, %next ]
  %object.at = getelementptr ptr, ptr %args, i64 %i
  %object = load ptr, ptr %object.at, align 8
  %kind.base = getelementptr i8, ptr %self, i64 {kinds_at}
  %kind.at = getelementptr i64, ptr %kind.base, i64 %i
  %kind.word = load i64, ptr %kind.at, align 8
  %kind = and i64 %kind.word, 255
  %shift = lshr i64 %kind.word, 8
  %arg = getelementptr [40 x i8], ptr %buffer, i64 %i{field("object", OB_TYPE, "type")}
  switch i64 %kind, label %bad.argument [
    i64 {TENSOR}, label %tensor
    i64 {TENSOR_BF16}, label %tensor
    i64 {TENSOR_UINT16}, label %tensor
    i64 {BOOL}, label %bool
    i64 {SIGNED}, label %signed
    i64 {UNSIGNED}, label %unsigned
    i64 {FLOAT}, label %float ]
tensor:
  %is.ours = icmp eq ptr %type, %NDArray
  br i1 %is.ours, label %ours, label %maybe.numpy
ours:{field("object", SLOT_ARRAY, "slot")}{field("object", SLOT_DTYPE, "dtype")}
  %slot.null = icmp eq ptr %slot, null
  br i1 %slot.null, label %bad.argument, label %ours.dtype
ours.dtype:
  %is.bf16 = icmp eq ptr %dtype, %bfloat16
  %wants.bf16 = icmp eq i64 %kind, {TENSOR_BF16}
  %wants.uint16 = icmp eq i64 %kind, {TENSOR_UINT16}
  %not.bf16 = xor i1 %is.bf16, true
  %lacks.bf16 = and i1 %wants.bf16, %not.bf16
  %has.bf16 = and i1 %wants.uint16, %is.bf16
  %dtype.bad = or i1 %lacks.bf16, %has.bf16{field("slot", OB_TYPE, "slot.type")}
  %slot.numpy = icmp eq ptr %slot.type, %ndarray
  %dtype.good = xor i1 %dtype.bad, true
  %ours.good = and i1 %slot.numpy, %dtype.good
  br i1 %ours.good, label %array, label %bad.argument
maybe.numpy:
  %is.numpy = icmp eq ptr %type, %ndarray
  %wants.bits = icmp ne i64 %kind, {TENSOR_BF16}
  %numpy.good = and i1 %is.numpy, %wants.bits
  br i1 %numpy.good, label %numpy, label %bad.argument
numpy:{field("object", ND_DESCR, "its.descr")}{field("its.descr", DESCR_BYTEORDER, "order", "i8")}
  %swapped = icmp eq i8 %order, {ord(">" if sys.byteorder == "little" else "<")}
  br i1 %swapped, label %bad.argument, label %array
array:
  %header = phi ptr [ %slot, %ours.dtype ], [ %object, %numpy ]
  %raw.here = phi i1 [ false, %ours.dtype ], [ true, %numpy ]
  %raw.array = or i1 %raw, %raw.here
  {field("header", ND_DATA, "data", "i64")}{field("header", ND_NDIM, "ndim", "i32")}
  {field("header", ND_DIMS, "dims")}{field("header", ND_STRIDES, "strides")}
  {field("header", ND_DESCR, "descr")}
  {field("header", ND_FLAGS, "flags", "i32")}
  {field("descr", DESCR_TYPE_NUM, "type.num", "i32")}
  {put(0, "i64", "%data")}{put(8, "ptr", "%dims")}{put(16, "ptr", "%strides")}
  {put(24, "i32", "%ndim")}{put(28, "i32", "%type.num")}{put(32, "i32", "%flags")}
  {put(36, "i32", "%threads32")}
  %axes = sext i32 %ndim to i64
  br label %axis
axis:
  %axis.i = phi i64 [ 0, %array ], [ %axis.next, %axis.body ]
  %count = phi i64 [ 1, %array ], [ %count.next, %axis.body ]
  %axis.more = icmp slt i64 %axis.i, %axes
  br i1 %axis.more, label %axis.body, label %counted
axis.body:
  %extent.at = getelementptr i64, ptr %dims, i64 %axis.i
  %extent = load i64, ptr %extent.at, align 8
  %count.next = mul i64 %count, %extent
  %axis.next = add i64 %axis.i, 1
  br label %axis
counted:
  %total.array = add i64 %total, %count
  br label %next
bool:{word("Py_True", "true.object")}{word("Py_False", "false.object")}
  %is.true = icmp eq ptr %object, %true.object
  %is.false = icmp eq ptr %object, %false.object
  %is.bool = or i1 %is.true, %is.false
  %bool.bits = zext i1 %is.true to i64
  br i1 %is.bool, label %scalar, label %bad.argument
signed:{field("type", TP_FLAGS, "signed.flags", "i64")}
  %signed.bit = and i64 %signed.flags, {LONG_SUBCLASS}
  %signed.ok = icmp ne i64 %signed.bit, 0
  br i1 %signed.ok, label %signed.convert, label %bad.argument
signed.convert:{word("PyLong_AsLongLong", "as.signed")}
  %signed.value = call i64 %as.signed(ptr %object)
  %signed.up = shl i64 %signed.value, %shift
  %signed.down = ashr i64 %signed.up, %shift
  %signed.fits = icmp eq i64 %signed.down, %signed.value
  %signed.sure = icmp ne i64 %signed.value, -1
  %signed.done = and i1 %signed.fits, %signed.sure
  br i1 %signed.done, label %scalar, label %signed.check
signed.check:
  br i1 %signed.fits, label %check.error, label %bad.argument
unsigned:{field("type", TP_FLAGS, "unsigned.flags", "i64")}
  %unsigned.bit = and i64 %unsigned.flags, {LONG_SUBCLASS}
  %unsigned.ok = icmp ne i64 %unsigned.bit, 0
  br i1 %unsigned.ok, label %unsigned.convert, label %bad.argument
unsigned.convert:{word("PyLong_AsUnsignedLongLong", "as.unsigned")}
  %unsigned.value = call i64 %as.unsigned(ptr %object)
  %unsigned.up = shl i64 %unsigned.value, %shift
  %unsigned.down = lshr i64 %unsigned.up, %shift
  %unsigned.fits = icmp eq i64 %unsigned.down, %unsigned.value
  %unsigned.sure = icmp ne i64 %unsigned.value, -1
  %unsigned.done = and i1 %unsigned.fits, %unsigned.sure
  br i1 %unsigned.done, label %scalar, label %check.error
float:{word("PyFloat_Type", "float.type")}
  %is.float = icmp eq ptr %type, %float.type
  br i1 %is.float, label %float.convert, label %float.from.int
float.from.int:{field("type", TP_FLAGS, "float.flags", "i64")}
  %float.bit = and i64 %float.flags, {LONG_SUBCLASS}
  %float.ok = icmp ne i64 %float.bit, 0
  br i1 %float.ok, label %float.convert, label %bad.argument
float.convert:{word("PyFloat_AsDouble", "as.double")}
  %float.value = call double %as.double(ptr %object)
  %float.bits = bitcast double %float.value to i64
  %float.sure = fcmp une double %float.value, -1.0
  br i1 %float.sure, label %scalar, label %check.error
check.error:
  %checked = phi i64 [ %signed.value, %signed.check ], [ %unsigned.value, %unsigned.convert ],
                     [ %float.bits, %float.convert ]
  {word("PyErr_Occurred", "occurred")}
  %error = call ptr %occurred()
  %no.error = icmp eq ptr %error, null
  br i1 %no.error, label %all.ones, label %clear
all.ones:
  ; -1 without an error is a value; for an unsigned one, 2**64 - 1 fits only if the shift is 0
  %is.unsigned = icmp eq i64 %kind, {UNSIGNED}
  %narrow = icmp ne i64 %shift, 0
  %too.big = and i1 %is.unsigned, %narrow
  br i1 %too.big, label %bad.argument, label %scalar
clear:{word("PyErr_Clear", "clear.error")}
  call void %clear.error()
  br label %bad.argument
scalar:
  %payload = phi i64 [ %bool.bits, %bool ], [ %signed.value, %signed.convert ],
                     [ %unsigned.value, %unsigned.convert ], [ %float.bits, %float.convert ],
                     [ %checked, %all.ones ]
  {put(0, "i64", "%payload")}{put(8, "ptr", "null")}{put(16, "ptr", "null")}{put(24, "i32", "-1")}
  {put(28, "i32", "0")}{put(32, "i32", "0")}{put(36, "i32", "%threads32")}
  br label %next
next:
  %total.next = phi i64 [ %total.array, %counted ], [ %total, %scalar ]
  %raw.next = phi i1 [ %raw.array, %counted ], [ %raw, %scalar ]
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %nparams
  br i1 %more, label %each, label %filled
filled:
  %elements = phi i64 [ 0, %begin ], [ %total.next, %next ]
  %any.raw = phi i1 [ false, %begin ], [ %raw.next, %next ]
  {word("wrapper", "wrapper")}{word("release_elements", "release", "i64")}
  %large = icmp uge i64 %elements, %release
  br i1 %large, label %big, label %small
small:
  %small.code = call i32 %wrapper(ptr %buffer)
  br label %called
big:
  br i1 %any.raw, label %wants.ndarray, label %unlocked
unlocked:{word("PyEval_SaveThread", "save")}{word("PyEval_RestoreThread", "restore")}
  %thread = call ptr %save()
  %big.code = call i32 %wrapper(ptr %buffer)
  call void %restore(ptr %thread)
  br label %called
called:
  %code = phi i32 [ %small.code, %small ], [ %big.code, %unlocked ]
  %done = icmp eq i32 %code, 0
  br i1 %done, label %success, label %failed
success:{word("Py_None", "none")}{word("Py_IncRef", "incref")}
  call void %incref(ptr %none)
  ret ptr %none
failed:
  %code.wide = sext i32 %code to i64
  br label %number
wants.ndarray:
  br label %number
bad.count:
  br label %number
bad.argument:
  %minus.i = xor i64 %i, -1
  br label %number
number:
  %result = phi i64 [ %code.wide, %failed ], [ {CODE_COUNT}, %bad.count ],
                    [ %minus.i, %bad.argument ], [ {CODE_WANTS_NDARRAY}, %wants.ndarray ]
  {word("PyLong_FromLong", "from.long")}
  %made = call ptr %from.long(i64 %result)
  ret ptr %made
}}
"""
