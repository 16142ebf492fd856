"""What Python calls: an entry per VM function, with METH_FASTCALL | METH_KEYWORDS.

    ptr entry(ptr self, ptr args, i64 nargs, ptr names)

It knows the plain cases: NDArrays, exact numpy arrays of the right dtype, numbers, shapes, tuples
of such, and ``out=`` alone as a keyword. All else goes to the slow call, with the same arguments,
which converts or says what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...base import DataType
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
from .text import FunctionText

if TYPE_CHECKING:
    from .vm_program import Unit


OUT_BYTES = outputs.RECORD_BYTES
MAX_FIELDS = 64


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


def emit_entry(unit: Unit, index: int, fresh: bool) -> str:
    """The definition of the entry of function `index`."""
    return _Entry(unit, index).emit(fresh)


class _Entry:
    def __init__(self, unit: Unit, index: int) -> None:
        self.unit = unit
        self.index = index
        self.info = unit.infos[index]
        self.text = FunctionText(
            f"define ptr @{unit.entry_symbol(index)}(ptr %self, ptr %args, i64 %nargs, "
            "ptr %names) nounwind",
            100_000,
        )
        self.wrapped = 0

    # -- small pieces ------------------------------------------------------------------------------

    def at(self, pointer: str, offset: int) -> str:
        if not offset:
            return pointer
        return self.text.op(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def field(self, pointer: str, offset: int, kind: str = "ptr", align: int = 8) -> str:
        return self.text.op(f"load {kind}, ptr {self.at(pointer, offset)}, align {align}")

    def word(self, name: str, kind: str = "ptr") -> str:
        return self.field("%ctx", self.unit.words.offset(name), kind)

    def slow_unless(self, good: str) -> None:
        fine = self.text.label("fine")
        self.text.branch(good, fine, "slow")
        self.text.start(fine)

    def is_kind(self, pointer: str, name: str) -> str:
        return self.text.op(f"icmp eq ptr {self.field(pointer, abi.OB_TYPE)}, {self.word(name)}")

    # -- the whole ---------------------------------------------------------------------------------

    def emit(self, fresh: bool) -> str:
        text, info = self.text, self.info
        # The slots of wrapped arrays; released on every way out.
        text.emit(f"  %ctx = load ptr, ptr {self.at('%self', abi.BYTES_DATA)}, align 8")
        text.emit("  %mark = alloca i64, align 8")
        text.emit("  %base = ptrtoint ptr %mark to i64")
        text.emit("  store ptr null, ptr %wrapped, align 8")
        place = len(text.lines) - 1
        careful = self.word("careful", "i64")
        calm = text.op(f"icmp eq i64 {careful}, 0")
        right = text.op(f"icmp eq i64 %nargs, {info.num_inputs}")
        self.slow_unless(text.op(f"and i1 {calm}, {right}"))
        arguments = [self.field("%args", 8 * i) for i in range(info.num_inputs)]
        ret = result_in_place(info)
        offered = fields_in_place(info)
        out = self._offered(arguments) if offered else "null"
        if not offered:
            out = self._no_names() if ret is None else self._out(ret, arguments)
        passed = [self._argument(param, value) for param, value in zip(info.params, arguments)]
        typed = "".join(f", ptr {p}" for p in passed)
        result = text.op(
            f"call ptr @{self.unit.body_symbol(self.index)}(ptr %ctx, i64 0, i64 %base, "
            f"ptr {out}{typed})"
        )
        self._leave_with(result, fresh, "null" if offered else out)
        text.start("slow")
        self._release_wrapped()
        slow, call = self.word(f"slow:{self.index}"), self.word("py:PyObject_Vectorcall")
        answer = text.op(f"call ptr {call}(ptr {slow}, ptr %args, i64 %nargs, ptr %names)")
        text.emit(f"  ret ptr {answer}")
        count = self.wrapped
        text.allocas.append(f"  %wrapped = alloca [{max(1, count)} x ptr], align 8")
        text.lines[place] = "\n".join(
            f"  %clear{i} = getelementptr ptr, ptr %wrapped, i64 {i}\n"
            f"  store ptr null, ptr %clear{i}, align 8"
            for i in range(count)
        )
        text.allocas.append(f"  %record = alloca [{OUT_BYTES} x i8], align 8")
        return text.text()

    def _release_wrapped(self) -> None:
        if self.wrapped:
            self.text.emit(
                f"  call void @relaxvm_vm_release(ptr %ctx, ptr %wrapped, i64 {self.wrapped})"
            )

    def _leave_with(self, result: str, fresh: bool, out: str) -> None:
        text = self.text
        self._release_wrapped()
        # Sequences become lists, and constants are copied.
        as_it_is = fresh or not (self.unit.has_tensor_constants or _may_be_sequence(self.info.ret))
        if out == "null" and as_it_is:
            text.emit(f"  ret ptr {result}")
            return
        failed, look = text.label("failed"), text.label("look")
        text.branch(text.op(f"icmp eq ptr {result}, null"), failed, look)
        text.start(failed)
        text.emit("  ret ptr null")
        text.start(look)
        if out != "null":
            plain, destined = text.label("plain"), text.label("given")
            text.branch(text.op(f"icmp eq ptr {out}, null"), plain, destined)
            text.start(destined)
            object_ = self.field("%record", 24)
            done, finish = text.label("done"), text.label("finish")
            text.branch(text.op(f"icmp eq ptr {result}, {object_}"), done, finish)
            text.start(finish)
            self._convert("call:finish", [result, object_, self.word(f"linked:{self.index}")])
            text.start(done)
            text.emit(f"  ret ptr {result}")
            text.start(plain)
        if as_it_is:
            text.emit(f"  ret ptr {result}")
        else:
            self._convert("call:own", [result])

    def _convert(self, helper: str, objects: list[str]) -> None:
        """Return what a helper makes of the result, objects[0]."""
        text = self.text
        row = text.alloca("ptr", 8, len(objects))
        for i, one in enumerate(objects):
            text.emit(f"  store ptr {one}, ptr {self.at(row, 8 * i)}, align 8")
        call = self.word("py:PyObject_Vectorcall")
        converted = text.op(
            f"call ptr {call}(ptr {self.word(helper)}, ptr {row}, i64 {len(objects)}, ptr null)"
        )
        text.emit(f"  call void {self.word('py:Py_DecRef')}(ptr {objects[0]})")
        text.emit(f"  ret ptr {converted}")

    # -- out ---------------------------------------------------------------------------------------

    def _no_names(self) -> str:
        self.slow_unless(self.text.op("icmp eq ptr %names, null"))
        return "null"

    def _named_out(self, arguments: list[str]) -> tuple[str, str, str]:
        """The object given as `out`; the block before, where there is none, and the label of both
        ways.
        """
        text = self.text
        named, ready = text.label("named"), text.label("ready")
        before = text.block
        text.branch(text.op("icmp eq ptr %names, null"), ready, named)
        text.start(named)
        count = self.field("%names", abi.TUPLE_SIZE, "i64")
        self.slow_unless(text.op(f"icmp eq i64 {count}, 1"))
        name = self.field("%names", abi.TUPLE_ITEMS)
        self.slow_unless(text.op(f"icmp eq ptr {name}, {self.word('obj:out')}"))
        return self.field("%args", 8 * len(arguments)), before, ready

    def _offered(self, arguments: list[str]) -> str:
        """The records of an `Offer`, null without one."""
        text = self.text
        offer, before, ready = self._named_out(arguments)
        self.slow_unless(self.is_kind(offer, "type:Offer"))
        records = self.at(self.field(offer, abi.FIRST_SLOT), abi.BYTES_DATA)
        after = text.block
        text.jump(ready)
        text.start(ready)
        return text.op(f"phi ptr [ null, %{before} ], [ {records}, %{after} ]")

    def _out(self, ret: TensorInfo, arguments: list[str]) -> str:
        text = self.text
        out, before, ready = self._named_out(arguments)
        array = self._array_of(out, str.__str__(ret.dtype))
        self._check_out(array, ret, arguments)
        owner = self.at("%record", 16)
        data = self.field(array, abi.ND_DATA)
        text.emit(f"  store ptr {data}, ptr %record, align 8")
        text.emit(f"  store ptr {array}, ptr {owner}, align 8")
        text.emit(f"  store ptr {out}, ptr {self.at('%record', 24)}, align 8")
        sizes = self.field(array, abi.ND_DIMS)
        text.emit(f"  store ptr {sizes}, ptr {self.at('%record', 32)}, align 8")
        after = text.block
        text.jump(ready)
        text.start(ready)
        return text.op(f"phi ptr [ null, %{before} ], [ %record, %{after} ]")

    def _array_of(self, value: str, dtype: str) -> str:
        """The numpy array in an NDArray, or a plain numpy array, of the result's dtype."""
        text = self.text
        ours, theirs, ready = text.label("ours"), text.label("theirs"), text.label("array")
        text.branch(self.is_kind(value, "type:NDArray"), ours, theirs)
        text.start(ours)
        inner = self.field(value, abi.SLOT_ARRAY)
        self.slow_unless(text.op(f"icmp ne ptr {inner}, null"))
        actual = self.field(value, abi.SLOT_DTYPE)
        self.slow_unless(text.op(f"icmp eq ptr {actual}, {self.word(f'dtype:{dtype}')}"))
        ours_end = text.block
        text.jump(ready)
        text.start(theirs)
        self.slow_unless(self.is_kind(value, "type:ndarray"))
        descr = self.field(value, abi.ND_DESCR)
        if dtype == "bfloat16":
            self.slow_unless("false")
        self.slow_unless(text.op(f"icmp eq ptr {descr}, {self.word(f'descr:{dtype}')}"))
        theirs_end = text.block
        text.jump(ready)
        text.start(ready)
        return text.op(f"phi ptr [ {inner}, %{ours_end} ], [ {value}, %{theirs_end} ]")

    def _check_out(self, array: str, ret: TensorInfo, arguments: list[str]) -> None:
        """Rank, constant sizes, flags; that it shares no memory with the arguments."""
        text = self.text
        ndim = self.field(array, abi.ND_NDIM, "i32", 4)
        flags = self.field(array, abi.ND_FLAGS, "i32", 4)
        wanted = abi.C_CONTIGUOUS | abi.ALIGNED | abi.WRITEABLE
        present = text.op(f"and i32 {flags}, {wanted}")
        good = text.op(f"icmp eq i32 {present}, {wanted}")
        same = text.op(f"icmp eq i32 {ndim}, {ret.ndim}")
        self.slow_unless(text.op(f"and i1 {good}, {same}"))
        assert ret.dtype is not None
        total = str(ret.dtype.itemsize)
        if ret.ndim:
            sizes = self.field(array, abi.ND_DIMS)
            for axis in range(ret.ndim):
                size = self.field(sizes, 8 * axis, "i64")
                dim = None if ret.shape is None else ret.shape[axis]
                if type(dim) is int:
                    self.slow_unless(text.op(f"icmp eq i64 {size}, {dim}"))
                    size = str(dim)
                total = text.op(f"mul i64 {total}, {size}")
        text.emit(f"  store i64 {total}, ptr {self.at('%record', 8)}, align 8")
        low = text.op(f"ptrtoint ptr {self.field(array, abi.ND_DATA)} to i64")
        high = text.op(f"add i64 {low}, {total}")
        for param, value in zip(self.info.params, arguments):
            if type(param) is TensorInfo:
                self._check_apart(param, value, low, high)

    def _check_apart(self, param: TensorInfo, value: str, low: str, high: str) -> None:
        """Slow where an argument, gapless as checked later, begins or ends inside of out."""
        text = self.text
        if param.ndim < 0 or param.dtype is None:
            self.slow_unless("false")
            return
        array = text.op(f"call ptr @relaxvm_vm_array(ptr %ctx, ptr {value}, i32 {param.ndim})")
        self.slow_unless(text.op(f"icmp ne ptr {array}, null"))
        count = text.op(f"call i64 @relaxvm_vm_count(ptr {array})")
        size = text.op(f"mul i64 {count}, {param.dtype.itemsize}")
        start = text.op(f"ptrtoint ptr {self.field(array, abi.ND_DATA)} to i64")
        end = text.op(f"add i64 {start}, {size}")
        before_it = text.op(f"icmp ule i64 {end}, {low}")
        after_it = text.op(f"icmp uge i64 {start}, {high}")
        self.slow_unless(text.op(f"or i1 {before_it}, {after_it}"))

    # -- arguments ---------------------------------------------------------------------------------

    def _argument(self, info: Any, value: str) -> str:
        """The object to pass for an argument; slow where it is not as programs see values."""
        kind = type(info)
        if kind is TensorInfo:
            return self._tensor(info, value)
        self._plain(info, value, 0)
        return value

    def _tensor(self, info: TensorInfo, value: str) -> str:
        text = self.text
        if info.dtype is None or info.dtype.is_bits or info.dtype.is_string:
            self._plain(info, value, 0)
            return value
        name = str.__str__(info.dtype)
        kept = text.op(f"getelementptr ptr, ptr %wrapped, i64 {self.wrapped}")
        self.wrapped += 1
        tensor = text.op(
            f"call ptr @relaxvm_vm_tensor(ptr %ctx, ptr {value}, "
            f"ptr {self.word(f'descr:{name}')}, ptr {self.word(f'dtype:{name}')}, ptr {kept})"
        )
        self.slow_unless(text.op(f"icmp ne ptr {tensor}, null"))
        return tensor

    def _gapless(self, value: str) -> None:
        text = self.text
        array = self.field(value, abi.SLOT_ARRAY)
        self.slow_unless(text.op(f"icmp ne ptr {array}, null"))
        flags = self.field(array, abi.ND_FLAGS, "i32", 4)
        gapless = text.op(f"and i32 {flags}, {abi.C_CONTIGUOUS}")
        self.slow_unless(text.op(f"icmp ne i32 {gapless}, 0"))

    def _plain(self, info: Any, value: str, level: int) -> None:
        """Slow unless `value` is what the converter of `info` would give back as it is."""
        text, kind = self.text, type(info)
        if kind is TensorInfo:
            self.slow_unless(self.is_kind(value, "type:NDArray"))
            self._gapless(value)
        elif kind is ShapeInfo:
            self.slow_unless(self.is_kind(value, "type:ShapeTuple"))
        elif kind is SequenceInfo:
            self.slow_unless(self.is_kind(value, "type:VMSequence"))
        elif kind is TupleInfo and len(info.fields) <= MAX_FIELDS and level < 4:
            self.slow_unless(self.is_kind(value, "type:tuple"))
            length = self.field(value, abi.TUPLE_SIZE, "i64")
            self.slow_unless(text.op(f"icmp eq i64 {length}, {len(info.fields)}"))
            for i, field in enumerate(info.fields):
                self._plain(field, self.field(value, abi.TUPLE_ITEMS + 8 * i), level + 1)
        elif kind is PrimInfo and info.dtype.is_bool:
            yes = text.op(f"icmp eq ptr {value}, {self.word('obj:True')}")
            no = text.op(f"icmp eq ptr {value}, {self.word('obj:False')}")
            self.slow_unless(text.op(f"or i1 {yes}, {no}"))
        elif kind is PrimInfo and info.dtype.is_int:
            self._int(info.dtype, value)
        elif kind is PrimInfo and info.dtype.is_float:
            self.slow_unless(self.is_kind(value, "type:float"))
        elif kind is ObjectInfo:
            self._anything(value)
        else:
            self.slow_unless("false")

    def _int(self, dtype: DataType, value: str) -> None:
        text = self.text
        self.slow_unless(self.is_kind(value, "type:int"))
        number = text.op(f"call i64 {self.word('py:PyLong_AsLongLong')}(ptr {value})")
        odd, ready = text.label("odd"), text.label("number")
        text.branch(text.op(f"icmp eq i64 {number}, -1"), odd, ready)
        text.start(odd)
        text.emit(f"  call void {self.word('py:PyErr_Clear')}()")
        text.jump("slow")
        text.start(ready)
        if dtype.min_value > -(1 << 63):
            self.slow_unless(text.op(f"icmp sge i64 {number}, {dtype.min_value}"))
        if dtype.max_value < (1 << 63) - 1:
            self.slow_unless(text.op(f"icmp sle i64 {number}, {dtype.max_value}"))

    def _anything(self, value: str) -> None:
        """An NDArray without gaps, or one of the plain kinds."""
        text = self.text
        ours, others, ready = text.label("ours"), text.label("others"), text.label("ready")
        text.branch(self.is_kind(value, "type:NDArray"), ours, others)
        text.start(ours)
        self._gapless(value)
        text.jump(ready)
        text.start(others)
        good = text.op(f"icmp eq ptr {value}, {self.word('obj:None')}")
        for name in ("int", "float", "bool", "str", "ShapeTuple", "VMClosure"):
            good = text.op(f"or i1 {good}, {self.is_kind(value, f'type:{name}')}")
        self.slow_unless(good)
        text.jump(ready)
        text.start(ready)
