"""One VM function as LLVM IR: registers, who owns what, and the ways out.

    ptr body(ptr ctx, i64 depth, i64 base, ptr out, ptr argument...)     a new reference, or null

Objects that a call owns lie in a row of slots, released on the way out (`vm_exits`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ...base import DataType, llvm
from ...runtime import (
    INTERPRETER,
    Builtins,
    NDArray,
    ResolvedFunction,
    ShapeTuple,
    TupleInfo,
    builtin_args,
    bytecode,
    static_values,
)
from ...runtime import pyabi as abi
from ...runtime.frame import escapes
from ...runtime.ops import Op, OpKind
from .vm_emit import CTX, DEPTH, MAX_INSTRUCTIONS, SCRATCH, SLOTS, SPILL
from .vm_exits import Exits, Leaves, Untranslatable
from .vm_flow import after
from .vm_values import (
    Boolean,
    Heap,
    Integer,
    Memory,
    Nothing,
    Obj,
    Place,
    Real,
    Shape,
    Size,
    Tensor,
    Value,
)

if TYPE_CHECKING:
    from .vm_program import Unit


MAX_SLOTS = 4096
"""Objects that a function may hold: they lie on the C stack."""
_V = TypeVar("_V", bound=Value)
_INT64 = range(-(1 << 63), 1 << 63)


class Body(Exits):
    """Emits one function. `unit` is the program around it."""

    def __init__(self, unit: Unit, index: int, function: ResolvedFunction) -> None:
        text = llvm.Function(
            unit.generator,
            unit.body_symbol(index),
            "ptr",
            linkage="internal",
            budget=MAX_INSTRUCTIONS,
        )
        for name, kind in (("ctx", "ptr"), ("depth", "i64"), ("base", "i64"), ("out", "ptr")):
            text.param(name, kind)
        for i in range(function.info.num_inputs):
            text.param(f"p{i}", "ptr")
        super().__init__(unit, text, index, function)
        self.program = function.program
        self.info = function.info
        self.template = function.template
        self.plan = function.plan
        self.instructions = function.program.instructions(function.info)
        self.single_block = len(self.flow.blocks) == 1
        _, self.shown, _ = escapes(self.ops, self.info.num_inputs)
        self.fresh = True
        self.calls_out = any(
            op.kind in (OpKind.EXTERN, OpKind.FUNCTION, OpKind.INVOKE) for op in self.ops
        )
        self.results = self._result_storages()
        self.factors: dict[Size, tuple[int, tuple[Size, ...]]] = {}
        self._lasting: dict[Any, llvm.Value] = {}
        self._saved: dict[tuple[int, int], Value] = {}
        self._written: dict[int, int] = {i: -1 for i in range(self.info.num_inputs)}
        self._slots_of: dict[int, list[int]] = {}
        self._pool: list[int] = []

    # -- the whole ---------------------------------------------------------------------------------

    def translate(self, instruction: Callable[[Body], None]) -> None:
        """Emit the definition; `instruction` emits the instruction at `pc`."""
        text = self.text
        passed = text.params[4:]
        if self.layout.needed:
            self._take_frame()
        for i in range(self.info.num_inputs):
            if i in self.flow.crossing:
                self.count(passed[i])
                self._store_canonical(i, passed[i])
            else:
                self.env[i] = Obj(passed[i])
        text.jump("b0")
        reached = {0}
        for block, (start, end) in enumerate(self.flow.blocks):
            if start in reached:
                reached.update(self._emit_block(block, start, end, instruction))
            else:
                self._mark_left(start, end)
        self._finish()

    def _emit_block(
        self, block: int, start: int, end: int, instruction: Callable[[Body], None]
    ) -> list[int]:
        """Emit a block; gives where it goes on."""
        self._enter(block, start)
        last = self.ops[end - 1]
        following = after(last, end)
        self._start_env = dict(self.env)
        self._only_checked = block == 0
        try:
            for pc in range(start, end):
                self.pc, self._leave = pc, ""
                instruction(self)
                self._only_checked &= self._can_begin_again(self.ops[pc])
            self._only_checked = False
            if last.kind not in (OpKind.GOTO, OpKind.IF, OpKind.RET):
                self.text.jump(f"b{end}")
        except Leaves:
            self._mark_left(self.pc + 1, end)
            self._only_checked = False
            following = []
        for register, pc in self._written.items():
            value = self.env.get(register)
            if value is not None:
                self._saved[register, pc] = value
        return following

    def _can_begin_again(self, op: Op) -> bool:
        """Whether the function may begin from its start once `op` has run: it has no effect, and
        the arguments are still what they were.
        """
        row = op.builtin
        return row is not None and (row.checks or row.pure) and op.dst >= self.info.num_inputs

    def _mark_left(self, start: int, end: int) -> None:
        for pc in range(start, end):
            self.steps[pc] = (INTERPRETER, "the function has left for the interpreter")

    def _enter(self, block: int, start: int) -> None:
        self._block = block
        self.text.start(f"b{start}")
        self._live = self.flow.live_before(self.ops, block, self.registers)
        if block == 0:
            return
        if block == 1:
            self._lasting = self.known
        self.known = dict(self._lasting)
        self._written, self.env = {}, {}
        for register, pc in self.flow.sources[block].items():
            value = self._saved.get((register, pc))
            if value is None or register in self.flow.crossing:
                continue
            copy = self.env[register] = value.copied()
            if type(copy) is Heap:
                # Of other blocks only what is written once holds here too.
                copy.known = {s: v for s, v in copy.known.items() if copy.writes[s] == 1}

    def _result_storages(self) -> dict[int, int]:
        """The instructions that allocate a storage for nothing but a tensor of the result, and
        which one it is: tensors in tuples are counted in the order in which they lie.
        """
        if self.flow.loops or not self.unit.takes_out(self.index):
            return {}
        # What instructions make: a storage or tensor is the instruction that allocated its memory,
        # a tuple a list.
        results: dict[int, Any] = {}
        used: Counter[int] = Counter()
        returned: dict[int, set[int]] = {}
        for block, (start, end) in enumerate(self.flow.blocks):
            known = {r: results.get(pc) for r, pc in self.flow.sources[block].items()}
            for pc in range(start, end):
                op = self.ops[pc]
                args = [known.get(place) for place in op.args]
                value: Any = None
                if op.kind == OpKind.RET:
                    for k, leaf in enumerate(_leaves(self.info.ret, args[0])):
                        used[leaf] += 1
                        returned.setdefault(k, set()).add(leaf)
                elif op.builtin is Builtins.ALLOC_STORAGE:
                    value = pc
                elif op.builtin is Builtins.MAKE_TUPLE:
                    value = args
                elif op.builtin is Builtins.TUPLE_GETITEM:
                    index = self.template[op.args[1]]
                    if type(args[0]) is list and type(index) is int and index < len(args[0]):
                        value = args[0][index]
                elif op.aliases:
                    # A second tensor in the storage, or a view, might be handed out as new.
                    used.update(a for a in args if type(a) is int)
                    value = args[0] if op.builtin is Builtins.ALLOC_TENSOR else None
                results[pc] = known[op.args[0] if op.kind == OpKind.KILL else op.dst] = value
        # Of several for one place, the memory of the first may be read while the last is computed.
        places = {k: leaves - {-1} for k, leaves in returned.items()}
        only = {next(iter(leaves)): k for k, leaves in places.items() if len(leaves) == 1}
        return {pc: k for pc, k in only.items() if used[pc] == 2}

    def _take_frame(self) -> None:
        text = self.text
        free = self.context_place(f"free:{self.index}")
        self.frame = text.call("relaxvm_vm_take", CTX, free, self.index)
        with text.if_(text.op("icmp eq", self.frame, None)):
            text.call("relaxvm_vm_note", CTX, self.index << 32, DEPTH)
            text.ret(None)

    def _finish(self) -> None:
        text = self.text
        text.lines.extend(self._cold)
        if self._errors:
            text.start("error")
            errors = [(self.index << 32 | pc, block) for pc, block in self._errors]
            where = text.phi("i64", *errors)
            text.call("relaxvm_vm_note", CTX, where, DEPTH)
            self.exits.append((None, "error"))
            text.jump("exit")
        if self.exits:
            text.start("exit")
            result = text.phi("ptr", *self.exits)
            if self._slots:
                text.call("relaxvm_vm_release", CTX, SLOTS, self._slots)
            if self.layout.needed:
                watch = self.text.at(self.frame, 8 * self.layout.watch)
                free = self.context_place(f"free:{self.index}")
                count = self.layout.watched
                text.call("relaxvm_vm_give", CTX, free, self.index, self.frame, watch, count)
            text.ret(result)
        for place, count in (
            (SLOTS, self._slots),
            (SCRATCH, self._scratch),
            (SPILL, self._spill_words),
        ):
            text.alloca("i64", 8, max(1, count), place)
        with text.into(text.allocas, "entry"):
            self.fill(SLOTS, 8 * self._slots, 0)

    # -- registers ---------------------------------------------------------------------------------

    def get(self, register: int) -> Value:
        """What is known about a register."""
        value = self.env.get(register)
        if value is None:
            if register not in self.flow.crossing:
                raise Untranslatable(f"register %{register} has no value here")
            value = self.env[register] = Obj(self.load_canonical(register))
        return value

    def known_as(self, k: int, kind: type[_V], reason: str) -> _V:
        """Argument `k`, of which this is known. Leaves, for `reason`, where it is not."""
        value = self.operand(k)
        if not isinstance(value, kind):
            self.leave(reason)
        return value

    def refine(self, k: int, value: Value) -> None:
        """Note what a check has shown about argument `k` of the instruction."""
        place = self.ops[self.pc].args[k]
        if place < self.registers:
            self.env[place] = value

    def operand(self, k: int) -> Value:
        """Argument `k` of the instruction."""
        place = self.ops[self.pc].args[k]
        return self.get(place) if place < self.registers else self.constant(k, place)

    def constant(self, k: int, place: int) -> Value:
        """Argument `k`, a constant in the register file."""
        constant = self.template[place]
        name = f"{self.index}:{self.pc}:{k}"
        kind = type(constant)
        if constant is None:
            return Nothing(self.in_context("obj:None"))
        box = self.in_context(f"arg:{name}")
        if kind is int and constant in _INT64:
            return Integer(box, constant)
        if kind is bool:
            return Boolean(box, llvm.constant(constant, "i1"))
        if kind is float:
            return Real(box, llvm.constant(constant, "double"))
        if kind is ShapeTuple and all(extent in _INT64 for extent in constant):
            return Shape(box, tuple(constant))
        if kind is NDArray and constant.array.flags.c_contiguous:
            array = constant.array
            return Tensor(
                box,
                dtype=constant.dtype,
                dims=tuple(array.shape),
                data=self.in_context(f"data:{name}"),
                region=self.unit.constants_region,
            )
        return Obj(box)

    def static(self) -> list[Any]:
        """The arguments of a builtin as the bytecode has them; DYNAMIC where they are registers."""
        call = self.instructions[self.pc]
        assert type(call) is bytecode.Call
        return static_values(self.program, builtin_args(call.args))

    def set(self, value: Value, owned: list[llvm.Value] | None = None) -> None:
        """The result of the instruction. `owned`: objects whose references it holds."""
        dst = self.ops[self.pc].dst
        if not 0 <= dst < self.registers:
            for pointer in owned or ():
                self.drop(pointer)
            return
        crossing = dst in self.flow.crossing
        if crossing and isinstance(value, (Heap, Memory)):
            raise Untranslatable("a storage or shape heap is set on two paths")
        self.disown(dst)
        for one in owned or ():
            self._keep(dst, one)
        if crossing:
            pointer = self.boxed(value, dst)
            self.count(pointer)
            self._store_canonical(dst, pointer)
            value.box = pointer
        else:
            self._written[dst] = self.pc
        self.env[dst] = value

    def prepared(self, value: Value) -> None:
        """The result of the instruction lies in the frame already."""
        dst = self.ops[self.pc].dst
        self.env[dst] = value
        self._written[dst] = self.pc

    def share(self, value: Value) -> None:
        """Set the result to a value that another register has too."""
        shared = value.copied()
        kept = shared.box
        if kept is None and isinstance(shared, (Tensor, Memory)):
            kept = shared.holder
        self.set_sharing(shared, kept)

    def set_sharing(self, value: Value, kept: Place | None) -> None:
        """Set the result, which holds one reference more to the object at `kept`, if that may end
        before the call.
        """
        owned = [kept] if isinstance(kept, llvm.Value) and not is_param(kept) else []
        for one in owned:
            self.count(one)
        self.set(value, owned)

    def kill(self, register: int) -> None:
        """End a register."""
        if register in self.flow.crossing:
            self._store_canonical(register, llvm.constant(None, "ptr"))
        self.disown(register)
        self.env.pop(register, None)
        self._written.pop(register, None)

    def keep(self, pointer: llvm.Value) -> None:
        """Hold a reference until the function ends."""
        self._keep(-1, pointer)

    def _keep(self, register: int, pointer: llvm.Value) -> None:
        """Let the register hold a reference that the function has."""
        if self._pool:
            slot = self._pool.pop()
        else:
            slot = self._slots
            self._slots += 1
            if slot >= MAX_SLOTS:
                raise Untranslatable("it holds very many values at once")
        cell = self.text.at(SLOTS, 8 * slot)
        if self.flow.loops:
            self._replace(cell, pointer)
        else:
            self.text.store(pointer, cell)
        self._slots_of.setdefault(register, []).append(slot)

    def disown(self, register: int) -> None:
        """Release what the register holds."""
        slots = self._slots_of.get(register)
        if not slots:
            return
        for slot in slots:
            self._replace(self.text.at(SLOTS, 8 * slot), None)
        if self.single_block:
            self._pool += slots
            del self._slots_of[register]

    def _store_canonical(self, register: int, pointer: llvm.Value) -> None:
        self._replace(self._canonical_place(register), pointer)

    def _replace(self, cell: llvm.Value, pointer: llvm.Operand) -> None:
        """Put a reference where another one is, which is released."""
        old = self.text.load("ptr", cell)
        self.text.store(pointer, cell, of="ptr")
        self.drop(old)

    # -- objects -----------------------------------------------------------------------------------

    def boxed(self, value: Value, register: int | None) -> llvm.Value:
        """`value` as an object, which lives at least as long as the instruction: as long as the
        register, if it is the value of one.
        """
        if value.box is not None:
            return self.load(value.box)
        text = self.text
        if isinstance(value, Nothing):
            return self.word("obj:None")
        if isinstance(value, Boolean):
            yes, no = self.word("obj:True"), self.word("obj:False")
            return text.select(value.value, yes, no)
        if isinstance(value, Integer):
            box = self.call("PyLong_FromLongLong", value.value)
        elif isinstance(value, Real):
            box = self.call("PyFloat_FromDouble", value.value)
        elif isinstance(value, Shape):
            row = self.row(list(value.dims), "i64")
            box = text.call("relaxvm_vm_shape", CTX, len(value.dims), row)
        elif isinstance(value, Tensor):
            box = self._boxed_tensor(value)
        else:
            self.leave("a storage or shape heap is needed as an object")
        self.fail_if_null(box)
        self._keep(-1 if register is None else register, box)
        value.box = box
        return box

    def _boxed_tensor(self, value: Tensor) -> llvm.Value:
        assert value.dtype is not None
        assert value.holder is not None
        descr = self.word(f"descr:{_dtype_name(value.dtype)}")
        dtype = self.word(f"dtype:{_dtype_name(value.dtype)}")
        row = self.row(list(value.dims), "i64")
        holder = self.load(value.holder)
        data = self.load(value.data)
        args = descr, dtype, len(value.dims), row, data, holder
        if value.region.again is None:
            return self.text.call("relaxvm_vm_box", CTX, *args)
        return self.text.call("relaxvm_vm_box_again", CTX, value.region.again, *args)

    def boxed_operand(self, k: int) -> llvm.Value:
        """Argument `k` as an object."""
        place = self.ops[self.pc].args[k]
        return self.boxed(self.operand(k), place if place < self.registers else None)

    def python(self, callable_: llvm.Value, objects: list[llvm.Value]) -> llvm.Value:
        """Call a Python function; null results go to the error path. Gives a new reference."""
        args = self.row(objects)
        result = self.call("PyObject_Vectorcall", callable_, args, len(objects), None)
        self.fail_if_null(result)
        return result

    # -- looking into objects ----------------------------------------------------------------------

    def object_of(self, k: int, kind: str, reason: str) -> llvm.Value:
        """Argument `k` as an object of exactly this type, which is checked here. Leaves, for
        `reason`, where it surely is none.
        """
        value = self.operand(k)
        if not isinstance(value, Obj) or value.kind not in ("", kind):
            self.leave(reason)
        box = self.boxed(value, None)
        if not value.kind:
            self.guard(self.text.not_(self.is_kind(box, f"type:{kind}")))
        return box

    def integer(self, k: int) -> Size:
        """Argument `k` as a 64-bit int; bools count."""
        value = self.operand(k)
        if isinstance(value, Integer):
            return value.value
        if isinstance(value, Boolean):
            return self.text.cast("zext", value.value, "i64")
        if not isinstance(value, Obj) or value.kind == "NDArray":
            self.leave("it is no int")
        number = self.long_of(self.boxed(value, None), self.leave_label())
        self.refine(k, Integer(value.box, number))
        return number

    def boolean(self, k: int) -> llvm.Value:
        """Argument `k` as a bool (i1)."""
        value = self.operand(k)
        if isinstance(value, Boolean):
            return value.value
        if not isinstance(value, Obj):
            self.leave("it is no bool")
        yes, known = self.truth_of(self.boxed(value, None))
        self.guard(self.text.not_(known))
        self.refine(k, Boolean(value.box, yes))
        return yes

    def check_range(self, number: Size, dtype: DataType) -> None:
        """Leave unless `number` is one of `dtype`."""
        for how, bound in (("slt", dtype.min_value), ("sgt", dtype.max_value)):
            if type(bound) is int and bound in _INT64[1:-1]:
                self.refuse(how, number, bound)

    def tensor(self, k: int, dtype: DataType | None, ndim: int | None) -> Tensor | None:
        """Argument `k` as a tensor of this dtype and rank (None: any), which is checked here.

        None if nothing can be known about its sizes.
        """
        value = self.operand(k)
        if isinstance(value, Tensor):
            wrong_dtype = dtype is not None and value.dtype is not None and value.dtype is not dtype
            if wrong_dtype or (ndim is not None and len(value.dims) != ndim):
                self.leave("the tensor is of another kind")
            if dtype is None or value.dtype is not None:
                return value
            assert value.box is not None
            self.guard(self._wrong_dtype(self.load(value.box), dtype))
            value = value.copied()
            value.dtype = dtype
            self.refine(k, value)
            return value
        box = self.object_of(k, "NDArray", "it is no tensor")
        self.refine(k, Obj(value.box, "NDArray"))
        if ndim is None:
            if dtype is not None:
                self.guard(self._wrong_dtype(box, dtype))
            return None
        array = self.field(box, abi.SLOT_ARRAY)
        bad = self.text.op("icmp eq", array, None)
        if dtype is not None:
            bad = self.text.op("or", bad, self._wrong_dtype(box, dtype))
        self.guard(bad)
        strange = self.text.not_(self.is_kind(array, "type:ndarray"))
        axes = self.field(array, abi.ND_NDIM, "i32", 4)
        flags = self.field(array, abi.ND_FLAGS, "i32", 4)
        wanted = abi.C_CONTIGUOUS | abi.ALIGNED
        present = self.text.op("and", flags, wanted)
        wrong_axes = self.text.op("icmp ne", axes, ndim)
        wrong_flags = self.text.op("icmp ne", present, wanted)
        bad = self.text.op("or", wrong_axes, wrong_flags)
        self.guard(self.text.op("or", bad, strange))
        data = self.field(array, abi.ND_DATA)
        dims: tuple[Size, ...] = ()
        if ndim:
            sizes = self.field(array, abi.ND_DIMS)
            dims = tuple(self.field(sizes, 8 * i, "i64") for i in range(ndim))
        tensor = Tensor(value.box, dtype=dtype, dims=dims, data=data)
        self.refine(k, tensor)
        return tensor

    def _wrong_dtype(self, box: llvm.Value, dtype: DataType) -> llvm.Value:
        actual = self.field(box, abi.SLOT_DTYPE)
        wanted = self.word(f"dtype:{_dtype_name(dtype)}")
        return self.text.op("icmp ne", actual, wanted)


def _leaves(info: Any, value: Any) -> list[int]:
    """What a result of this kind consists of, in order; -1 for what is not known."""
    if type(info) is not TupleInfo:
        return [value if type(value) is int else -1]
    fits = type(value) is list and len(value) == len(info.fields)
    parts = value if fits else [None] * len(info.fields)
    return [leaf for field, part in zip(info.fields, parts) for leaf in _leaves(field, part)]


def _dtype_name(dtype: DataType) -> str:
    return str.__str__(dtype)


def is_param(name: str) -> bool:
    """Whether this is an argument: its caller holds it as long as the call lasts."""
    return name.startswith("%p") and name[2:].isdigit()
