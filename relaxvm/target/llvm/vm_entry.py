"""What Python calls: an entry per VM function, with METH_FASTCALL | METH_KEYWORDS.

    ptr entry(ptr self, ptr args, i64 nargs, ptr names)

It knows the plain cases: NDArrays, exact numpy arrays of the right dtype, numbers, shapes, tuples
of such, and ``out=`` alone as a keyword. All else goes to the slow call, with the same arguments,
which converts or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...base import DataType, llvm
from ...runtime import (
    FunctionInfo,
    Info,
    ObjectInfo,
    PrimInfo,
    SequenceInfo,
    ShapeInfo,
    TensorInfo,
    TupleInfo,
    outputs,
)
from ...runtime import pyabi as abi
from .vm_emit import Pieces

if TYPE_CHECKING:
    from .vm_program import Unit


MAX_INSTRUCTIONS = 100_000
SELF, ARGS, NAMES = (llvm.value(name, "ptr") for name in ("%self", "%args", "%names"))
NARGS, RECORD = llvm.value("%nargs", "i64"), llvm.value("%record", "ptr")
WRAPPED = llvm.value("%wrapped", "ptr")
OUT_BYTES = outputs.RECORD_BYTES
MAX_FIELDS = 64
_EXACT: dict[Any, str] = {ShapeInfo: "type:ShapeTuple", SequenceInfo: "type:VMSequence"}


def result_in_place(info: FunctionInfo) -> TensorInfo | None:
    """The result of a function if it can be computed right in the caller's memory, else None."""
    ret = info.ret
    if type(ret) is not TensorInfo or ret.dtype is None or ret.ndim < 0:
        return None
    # What lies in tuples and objects may share memory with the destination.
    flat = all(type(p) in (PrimInfo, ShapeInfo, TensorInfo) for p in info.params)
    return ret if flat and "out" not in info.param_names else None


def fields_in_place(info: FunctionInfo) -> bool:
    """Whether the fields of a tuple may be computed right in the caller's memory, which Python has
    looked at (`outputs.Offer`).
    """
    return type(info.ret) is TupleInfo and "out" not in info.param_names


def _may_be_sequence(info: Info) -> bool:
    if isinstance(info, TupleInfo):
        return any(map(_may_be_sequence, info.fields))
    return isinstance(info, (ObjectInfo, SequenceInfo))


class Entry(Pieces):
    """The entry of function `index`."""

    def __init__(self, unit: Unit, index: int) -> None:
        text = llvm.Function(
            unit.generator, unit.entry_symbol(index), "ptr", budget=MAX_INSTRUCTIONS
        )
        for each in (SELF, ARGS, NARGS, NAMES):
            text.param(each[1:], each.type)
        super().__init__(text, unit.words, text.load("ptr", text.at(SELF, abi.BYTES_DATA)))
        self.unit = unit
        self.index = index
        self.info = unit.infos[index]
        self.wrapped = 0

    # -- small pieces ------------------------------------------------------------------------------

    def slow_unless(self, good: llvm.Operand) -> None:
        fine = self.text.label("fine")
        self.text.branch(good, fine, "slow")
        self.text.start(fine)

    # -- the whole ---------------------------------------------------------------------------------

    def emit(self, fresh: bool) -> llvm.Function:
        """The definition. fresh: whether the result surely shares no memory with constants."""
        text, info = self.text, self.info
        careful = self.word("careful", "i64")
        calm = text.op("icmp eq", careful, 0)
        right = text.op("icmp eq", NARGS, info.num_inputs)
        self.slow_unless(text.op("and", calm, right))
        arguments = [self.field(ARGS, 8 * i) for i in range(info.num_inputs)]
        ret = result_in_place(info)
        offered = fields_in_place(info)
        out = None
        if offered:
            out = self._named_out(self._offered)
        elif ret is not None:
            out = self._named_out(partial(self._out, ret, arguments))
        else:
            self.slow_unless(text.op("icmp eq", NAMES, None))
        passed = [self._argument(param, value) for param, value in zip(info.params, arguments)]
        # Where the stack is, for those who look how deep it is.
        base = text.cast("ptrtoint", RECORD, "i64")
        result = text.call(self.unit.body_symbol(self.index), self.ctx, 0, base, out, *passed)
        self._leave_with(result, fresh, None if offered else out)
        text.start("slow")
        self._release_wrapped()
        slow = self.word(f"slow:{self.index}")
        text.ret(self.call("PyObject_Vectorcall", slow, ARGS, NARGS, NAMES))
        text.alloca("ptr", 8, max(1, self.wrapped), WRAPPED)
        text.alloca("i8", 8, OUT_BYTES, RECORD)
        # The slots of wrapped arrays; released on every way out.
        with text.into(text.allocas, "entry"):
            for i in range(self.wrapped):
                text.store(None, text.element("ptr", WRAPPED, i), of="ptr")
        return text

    def _release_wrapped(self) -> None:
        if self.wrapped:
            self.text.call("relaxvm_vm_release", self.ctx, WRAPPED, self.wrapped)

    def _leave_with(self, result: llvm.Value, fresh: bool, out: llvm.Value | None) -> None:
        text = self.text
        self._release_wrapped()
        # Sequences become lists, and constants are copied.
        as_it_is = fresh or not (self.unit.has_tensor_constants or _may_be_sequence(self.info.ret))
        if out is None and as_it_is:
            text.ret(result)
            return
        with text.if_(text.op("icmp eq", result, None)):
            text.ret(None)
        if out is not None:
            with text.if_(text.op("icmp ne", out, None)):
                object_ = self.field(RECORD, 24)
                with text.if_(text.op("icmp eq", result, object_)):
                    text.ret(result)
                self._convert("finish", result, object_, self.word(f"linked:{self.index}"))
        if as_it_is:
            text.ret(result)
        else:
            self._convert("own", result)

    def _convert(self, helper: str, result: llvm.Value, *others: llvm.Value) -> None:
        """Return what a helper makes of the result."""
        converted = self.vectorcall(helper, result, *others)
        self.call("Py_DecRef", result)
        self.text.ret(converted)

    # -- out ---------------------------------------------------------------------------------------

    def _named_out(self, record: Callable[[llvm.Value], llvm.Value]) -> llvm.Value:
        """What `record` makes of the object given as `out`; null without one."""
        text = self.text

        def named() -> llvm.Value:
            count = self.field(NAMES, abi.TUPLE_SIZE, "i64")
            self.slow_unless(text.op("icmp eq", count, 1))
            name = self.field(NAMES, abi.TUPLE_ITEMS)
            self.slow_unless(text.op("icmp eq", name, self.word("obj:out")))
            return record(self.field(ARGS, 8 * self.info.num_inputs))

        return text.either(text.op("icmp ne", NAMES, None), named)

    def _offered(self, offer: llvm.Value) -> llvm.Value:
        """The records of an `Offer`."""
        self.slow_unless(self.is_kind(offer, "type:Offer"))
        return self.text.at(self.field(offer, abi.FIRST_SLOT), abi.BYTES_DATA)

    def _out(self, ret: TensorInfo, arguments: list[llvm.Value], out: llvm.Value) -> llvm.Value:
        """The record of an array for the result."""
        text = self.text
        array = self._array_of(out, ret)
        self._check_out(array, ret, arguments)
        data, sizes = self.field(array, abi.ND_DATA), self.field(array, abi.ND_DIMS)
        for offset, word in ((0, data), (16, array), (24, out), (32, sizes)):
            text.store(word, text.at(RECORD, offset))
        return RECORD

    def _array_of(self, value: llvm.Value, info: TensorInfo) -> llvm.Value:
        """The numpy array in an NDArray, or a plain numpy array, of a dtype and rank."""
        assert info.dtype is not None
        name = str.__str__(info.dtype)
        plain = not (info.dtype.is_bits or info.dtype.is_string)
        descr = self.word(f"descr:{name}") if plain else None
        dtype = self.word(f"dtype:{name}")
        array = self.text.call("relaxvm_vm_array", self.ctx, value, info.ndim, descr, dtype)
        self.slow_unless(self.text.op("icmp ne", array, None))
        return array

    def _check_out(self, array: llvm.Value, ret: TensorInfo, arguments: list[llvm.Value]) -> None:
        """Constant sizes, flags; that it shares no memory with the arguments."""
        text = self.text
        flags = self.field(array, abi.ND_FLAGS, "i32", 4)
        wanted = abi.C_CONTIGUOUS | abi.ALIGNED | abi.WRITEABLE
        present = text.op("and", flags, wanted)
        self.slow_unless(text.op("icmp eq", present, wanted))
        assert ret.dtype is not None
        total = llvm.constant(ret.dtype.itemsize, "i64")
        if ret.ndim:
            sizes = self.field(array, abi.ND_DIMS)
            for axis in range(ret.ndim):
                size = self.field(sizes, 8 * axis, "i64")
                dim = None if ret.shape is None else ret.shape[axis]
                if type(dim) is int:
                    self.slow_unless(text.op("icmp eq", size, dim))
                    size = llvm.constant(dim, "i64")
                total = text.op("mul", total, size)
        text.store(total, self.text.at(RECORD, 8), of="i64")
        low = text.cast("ptrtoint", self.field(array, abi.ND_DATA), "i64")
        high = text.op("add", low, total)
        for param, value in zip(self.info.params, arguments):
            if type(param) is TensorInfo:
                self._check_apart(param, value, low, high)

    def _check_apart(
        self, param: TensorInfo, value: llvm.Value, low: llvm.Value, high: llvm.Value
    ) -> None:
        """Slow where an argument, gapless as checked later, begins or ends inside of out."""
        text = self.text
        if param.ndim < 0 or param.dtype is None:
            self.slow_unless(False)
            return
        array = self._array_of(value, param)
        size, dims = llvm.constant(param.dtype.itemsize, "i64"), self.field(array, abi.ND_DIMS)
        for axis in range(param.ndim):
            size = text.op("mul", size, self.field(dims, 8 * axis, "i64"))
        start = text.cast("ptrtoint", self.field(array, abi.ND_DATA), "i64")
        end = text.op("add", start, size)
        before_it = text.op("icmp ule", end, low)
        after_it = text.op("icmp uge", start, high)
        self.slow_unless(text.op("or", before_it, after_it))

    # -- arguments ---------------------------------------------------------------------------------

    def _argument(self, info: Any, value: llvm.Value) -> llvm.Value:
        """The object to pass for an argument; slow where it is not as programs see values."""
        text, dtype = self.text, info.dtype if type(info) is TensorInfo else None
        if dtype is None or dtype.is_bits or dtype.is_string:
            self._plain(info, value, 0)
            return value
        name = str.__str__(dtype)
        kept = text.element("ptr", WRAPPED, self.wrapped)
        self.wrapped += 1
        tensor = text.call(
            "relaxvm_vm_tensor",
            self.ctx,
            value,
            self.word(f"descr:{name}"),
            self.word(f"dtype:{name}"),
            kept,
        )
        self.slow_unless(text.op("icmp ne", tensor, None))
        return tensor

    def _plain(self, info: Any, value: llvm.Value, level: int) -> None:
        """Slow unless `value` is what the converter of `info` would give back as it is."""
        text, kind = self.text, type(info)
        if kind is TensorInfo:
            self.slow_unless(self.is_kind(value, "type:NDArray"))
            self.gapless(value, "slow")
        elif kind in _EXACT:
            self.slow_unless(self.is_kind(value, _EXACT[kind]))
        elif kind is TupleInfo and len(info.fields) <= MAX_FIELDS and level < 4:
            self.slow_unless(self.is_kind(value, "type:tuple"))
            length = self.field(value, abi.TUPLE_SIZE, "i64")
            self.slow_unless(text.op("icmp eq", length, len(info.fields)))
            for i, field in enumerate(info.fields):
                self._plain(field, self.field(value, abi.TUPLE_ITEMS + 8 * i), level + 1)
        elif kind is PrimInfo and info.dtype.is_bool:
            self.slow_unless(self.truth_of(value)[1])
        elif kind is PrimInfo and info.dtype.is_int:
            self._int(info.dtype, value)
        elif kind is PrimInfo and info.dtype.is_float:
            self.slow_unless(self.is_kind(value, "type:float"))
        elif kind is ObjectInfo:
            self._anything(value)
        else:
            self.slow_unless(False)

    def _int(self, dtype: DataType, value: llvm.Value) -> None:
        text = self.text
        number = self.long_of(value, "slow")
        if dtype.min_value > -(1 << 63):
            self.slow_unless(text.op("icmp sge", number, dtype.min_value))
        if dtype.max_value < (1 << 63) - 1:
            self.slow_unless(text.op("icmp sle", number, dtype.max_value))

    def _anything(self, value: llvm.Value) -> None:
        """An NDArray without gaps, or one of the plain kinds."""
        text = self.text
        with text.if_(self.is_kind(value, "type:NDArray")) as otherwise:
            self.gapless(value, "slow")
            otherwise()
            good = text.op("icmp eq", value, self.word("obj:None"))
            for name in ("int", "float", "bool", "str", "ShapeTuple", "VMClosure"):
                good = text.op("or", good, self.is_kind(value, f"type:{name}"))
            self.slow_unless(good)
