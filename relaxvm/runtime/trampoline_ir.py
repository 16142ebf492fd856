"""The LLVM IR of the native entry, and the layout it relies on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..base import Deferred
from .pyabi import (
    BYTES_DATA,
    DESCR_BYTEORDER,
    DESCR_TYPE_NUM,
    LIST_ITEMS,
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

if TYPE_CHECKING:
    from ..base import llvm
else:
    llvm = Deferred("relaxvm.base.llvm")

CODE_COUNT = -1_000_000
"""The number of arguments is wrong."""
CODE_WANTS_NDARRAY = -1_000_001
"""Work large enough to release the GIL: arrays must be NDArrays, whose headers are private."""

ROW_MOST = 64
"""Calls that a row may make: in between, no thread has its turn and no signal is noticed."""

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
    """LLVM IR of the native functions ``relaxvm_call(self, args, nargs)``, which calls the kernel
    of its entry record, and ``relaxvm_call_row``, which calls several.
    """
    m = llvm.Module()
    _Entry(m.define("i64(ptr, ptr, i64)", "relaxvm_enter", linkage="internal")).emit()
    f = m.define("ptr(ptr, ptr, i64)", "relaxvm_call")
    _answer(f, f.params[0], f.call("relaxvm_enter", *f.params))
    _row(m.define("ptr(ptr, ptr, i64)", "relaxvm_call_row"))
    return m.text()


def _word(f: llvm.Function, record: llvm.Value, name: str, kind: str = "ptr") -> llvm.Value:
    """A word of the entry record, loaded where it is needed."""
    return f.load(kind, f.at(record, BYTES_DATA + 8 * RECORD.index(name)))


def _answer(f: llvm.Function, record: llvm.Value, code: llvm.Value) -> None:
    """Return None if `code` is 0, else it as an int."""
    with f.if_(f.op("icmp eq", code, 0)):
        none = _word(f, record, "Py_None")
        f.call(_word(f, record, "Py_IncRef"), none, of="void(ptr)")
        f.ret(none)
    f.ret(f.call(_word(f, record, "PyLong_FromLong"), code, of="ptr(i64)"))


def _row(f: llvm.Function) -> None:
    """The calls of a row on the elements of a list, up to the first that fails.

    The row's own record: how many calls, the most arguments of one; for each its entry record, its
    number of arguments, and their places in the list.
    """
    row, args, _ = f.params
    count, most = (f.load("i64", f.at(row, BYTES_DATA + 8 * k)) for k in range(2))
    items = f.load("ptr", f.at(f.load("ptr", args), LIST_ITEMS))
    operands, first = f.alloca("ptr", 8, most), f.at(row, BYTES_DATA + 16)
    before = f.block
    f.enter("call")
    k, next_k = f.carried("i64", (0, before))
    entry, next_entry = f.carried("ptr", (first, before))
    record, n, places = f.load("ptr", entry), f.load("i64", f.at(entry, 8)), f.at(entry, 16)
    with f.for_(n) as i:
        place = f.load("i64", f.element("i64", places, i))
        f.store(f.load("ptr", f.element("ptr", items, place)), f.element("ptr", operands, i))
    code = f.call("relaxvm_enter", record, operands, n)
    following = f.op("add", k, 1)
    next_k(following, f.block)
    next_entry(f.element("i64", places, n), f.block)
    fine, more = f.op("icmp eq", code, 0), f.op("icmp ult", following, count)
    f.branch(f.op("and", fine, more), "call", "done")
    f.start("done")
    _answer(f, record, f.select(fine, 0, f.op("add", f.op("mul", code, ROW_MOST), k)))


class _Entry:
    def __init__(self, f: llvm.Function) -> None:
        self.f = f
        self.record, self.args, self.nargs = f.params
        self.scalars: list[tuple[llvm.Operand, str]] = []

    def word(self, name: str, kind: str = "ptr") -> llvm.Value:
        return _word(self.f, self.record, name, kind)

    def member(self, base: llvm.Value, offset: int, kind: str = "ptr") -> llvm.Value:
        return self.f.load(kind, self.f.at(base, offset), 4)

    def unless(self, good: llvm.Operand, label: str = "bad.argument") -> None:
        """Go to `label` where `good` does not hold."""
        fine = self.f.label("fine")
        self.f.branch(good, fine, label)
        self.f.start(fine)

    def emit(self) -> None:
        """The call of one kernel: gives 0 or the number of its failure."""
        f = self.f
        nparams = self.word("nparams", "i64")
        self.unless(f.op("icmp eq", nparams, self.nargs), "bad.count")
        threads = f.cast("trunc", self.word("num_threads", "i64"), "i32")
        kinds = f.at(self.record, BYTES_DATA + 8 * len(RECORD))
        buffer = f.alloca("[40 x i8]", 8, nparams)
        before = f.block
        f.branch(f.op("icmp eq", nparams, 0), "filled", "each")
        f.start("each")
        i, next_i = f.carried("i64", (0, before))
        total, next_total = f.carried("i64", (0, before))
        raw, next_raw = f.carried("i1", (False, before))
        arg = f.element("[40 x i8]", buffer, i)
        self.object = f.load("ptr", f.element("ptr", self.args, i))
        self.type = self.member(self.object, OB_TYPE)
        word = f.load("i64", f.element("i64", kinds, i))
        self.kind, self.shift = f.op("and", word, 255), f.op("lshr", word, 8)
        tensors = dict.fromkeys((TENSOR, TENSOR_BF16, TENSOR_UINT16), "tensor")
        scalars = {BOOL: "bool", SIGNED: "signed", UNSIGNED: "unsigned", FLOAT: "float"}
        f.switch(self.kind, "bad.argument", {**tensors, **scalars})
        header, raw_here = self.tensor()
        axes = self.describe(arg, threads, header)
        count = self.count(header, axes)
        total_array, raw_array = f.op("add", total, count), f.op("or", raw, raw_here)
        counted = f.block
        f.jump("next")
        self.number()
        f.start("scalar")
        payload = f.phi("i64", *self.scalars)
        for offset, stored, of in (
            *((0, payload, "i64"), (8, None, "ptr"), (16, None, "ptr"), (24, -1, "i32")),
            *((28, 0, "i32"), (32, 0, "i32"), (36, threads, "i32")),
        ):
            f.store(stored, f.at(arg, offset), 4, of=of)
        f.enter("next")
        total_now = f.phi("i64", (total_array, counted), (total, "scalar"))
        raw_now = f.phi("i1", (raw_array, counted), (raw, "scalar"))
        following = f.op("add", i, 1)
        next_i(following, "next")
        next_total(total_now, "next")
        next_raw(raw_now, "next")
        f.branch(f.op("icmp ult", following, nparams), "each", "filled")
        f.start("filled")
        elements = f.phi("i64", (0, before), (total_now, "next"))
        any_raw = f.phi("i1", (False, before), (raw_now, "next"))
        code = self.kernel(buffer, elements, any_raw)
        failures: list[tuple[llvm.Operand, str]] = [(f.cast("sext", code, "i64"), f.block)]
        f.jump("number")
        for label, number in (("wants.ndarray", CODE_WANTS_NDARRAY), ("bad.count", CODE_COUNT)):
            f.start(label)
            failures.append((number, label))
            f.jump("number")
        f.start("bad.argument")
        failures.append((f.op("xor", i, -1), "bad.argument"))
        f.enter("number")
        f.ret(f.phi("i64", *failures))

    def tensor(self) -> tuple[llvm.Value, llvm.Value]:
        """The header of an array, and whether it is not an NDArray's."""
        f = self.f
        f.start("tensor")
        ndarray = self.word("ndarray")
        wants_bf16 = f.op("icmp eq", self.kind, TENSOR_BF16)
        f.branch(f.op("icmp eq", self.type, self.word("NDArray")), "ours", "theirs")
        f.start("ours")
        slot, dtype = self.member(self.object, SLOT_ARRAY), self.member(self.object, SLOT_DTYPE)
        self.unless(f.op("icmp ne", slot, None))
        is_bf16 = f.op("icmp eq", dtype, self.word("bfloat16"))
        lacks = f.op("and", wants_bf16, f.not_(is_bf16))
        has = f.op("and", f.op("icmp eq", self.kind, TENSOR_UINT16), is_bf16)
        is_numpy = f.op("icmp eq", self.member(slot, OB_TYPE), ndarray)
        self.unless(f.op("and", is_numpy, f.not_(f.op("or", lacks, has))))
        ours = f.block
        f.jump("array")
        f.start("theirs")
        is_numpy = f.op("icmp eq", self.type, ndarray)
        self.unless(f.op("and", is_numpy, f.not_(wants_bf16)))
        order = self.member(self.member(self.object, ND_DESCR), DESCR_BYTEORDER, "i8")
        self.unless(f.op("icmp ne", order, ord(">" if sys.byteorder == "little" else "<")))
        theirs = f.block
        f.enter("array")
        header = f.phi("ptr", (slot, ours), (self.object, theirs))
        return header, f.phi("i1", (False, ours), (True, theirs))

    def describe(self, arg: llvm.Value, threads: llvm.Value, header: llvm.Value) -> llvm.Value:
        """Fill in the argument of an array; gives its rank."""
        f, descr = self.f, self.member(header, ND_DESCR)
        ndim = self.member(header, ND_NDIM, "i32")
        for offset, stored in (
            (0, self.member(header, ND_DATA, "i64")),
            (8, self.member(header, ND_DIMS)),
            (16, self.member(header, ND_STRIDES)),
            (24, ndim),
            (28, self.member(descr, DESCR_TYPE_NUM, "i32")),
            (32, self.member(header, ND_FLAGS, "i32")),
            (36, threads),
        ):
            f.store(stored, f.at(arg, offset), 4)
        return f.cast("sext", ndim, "i64")

    def count(self, header: llvm.Value, axes: llvm.Value) -> llvm.Value:
        """The elements of an array."""
        f, dims = self.f, self.member(header, ND_DIMS)
        before = f.block
        f.enter("axis")
        axis, next_axis = f.carried("i64", (0, before))
        count, next_count = f.carried("i64", (1, before))
        f.branch(f.op("icmp slt", axis, axes), "axis.body", "counted")
        f.start("axis.body")
        extent = f.load("i64", f.element("i64", dims, axis))
        next_count(f.op("mul", count, extent), "axis.body")
        next_axis(f.op("add", axis, 1), "axis.body")
        f.jump("axis")
        f.start("counted")
        return count

    def number(self) -> None:
        """The payloads of Python's numbers, in `scalars`."""
        f = self.f
        f.start("bool")
        is_true = f.op("icmp eq", self.object, self.word("Py_True"))
        is_false = f.op("icmp eq", self.object, self.word("Py_False"))
        self.scalars.append((f.cast("zext", is_true, "i64"), "bool"))
        f.branch(f.op("or", is_true, is_false), "scalar", "bad.argument")
        signed = self.integer("signed", "PyLong_AsLongLong", "ashr")
        unsigned = self.integer("unsigned", "PyLong_AsUnsignedLongLong", "lshr")
        f.start("float")
        is_float = f.op("icmp eq", self.type, self.word("PyFloat_Type"))
        self.unless(f.op("or", is_float, self.is_int()))
        real = f.call(self.word("PyFloat_AsDouble"), self.object, of="double(ptr)")
        bits = f.cast("bitcast", real, "i64")
        self.scalars.append((bits, f.block))
        after = f.block
        f.branch(f.op("fcmp une", real, -1.0), "scalar", "check.error")
        f.start("check.error")
        checked = f.phi("i64", signed, unsigned, (bits, after))
        error = f.call(self.word("PyErr_Occurred"), of="ptr()")
        with f.if_(f.op("icmp ne", error, None)):
            f.call(self.word("PyErr_Clear"), of="void()")
            f.jump("bad.argument")
        # -1 without an error is a value; for an unsigned one, 2**64 - 1 fits only if the shift is 0
        is_unsigned = f.op("icmp eq", self.kind, UNSIGNED)
        too_big = f.op("and", is_unsigned, f.op("icmp ne", self.shift, 0))
        self.scalars.append((checked, f.block))
        f.branch(too_big, "bad.argument", "scalar")

    def is_int(self) -> llvm.Value:
        flags = self.member(self.type, TP_FLAGS, "i64")
        return self.f.op("icmp ne", self.f.op("and", flags, LONG_SUBCLASS), 0)

    def integer(self, label: str, convert: str, back: str) -> tuple[llvm.Value, str]:
        """A Python int that fits; where that has to be looked into, the value and the block."""
        f = self.f
        f.start(label)
        self.unless(self.is_int())
        number = f.call(self.word(convert), self.object, of="i64(ptr)")
        fits = f.op("icmp eq", f.op(back, f.op("shl", number, self.shift), self.shift), number)
        sure = f.op("icmp ne", number, -1)
        self.scalars.append((number, f.block))
        if label == "unsigned":
            after = f.block
            f.branch(f.op("and", fits, sure), "scalar", "check.error")
        else:
            after = "signed.check"
            f.branch(f.op("and", fits, sure), "scalar", after)
            f.start(after)
            f.branch(fits, "check.error", "bad.argument")
        return number, after

    def kernel(self, buffer: llvm.Value, elements: llvm.Value, any_raw: llvm.Value) -> llvm.Value:
        """The failure number (i32) of the call, without the GIL where the work is worth it."""
        f, wrapper = self.f, self.word("wrapper")

        def unlocked() -> llvm.Value:
            self.unless(f.not_(any_raw), "wants.ndarray")
            thread = f.call(self.word("PyEval_SaveThread"), of="ptr()")
            code = f.call(wrapper, buffer, of="i32(ptr)")
            f.call(self.word("PyEval_RestoreThread"), thread, of="void(ptr)")
            return code

        large = f.op("icmp uge", elements, self.word("release_elements", "i64"))
        return f.either(large, unlocked, lambda: f.call(wrapper, buffer, of="i32(ptr)"))
