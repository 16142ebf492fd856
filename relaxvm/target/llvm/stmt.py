"""Statements to LLVM: one generator per statement class, run over an explicit stack.

A generator yields the statements inside it where their code belongs. Failing assertions and
`T.ret` jump to one exit block, which frees what is still allocated and returns.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...arith import Analyzer, stride, value_of
from ...base import UNKNOWN, CodegenError, DataType, to_numpy_dtype, values_to_bits
from ...base.llvm import Function, Operand, Value, constant, int_constant, value
from ...ir import (
    Add,
    Broadcast,
    Call,
    Cast,
    FloatImm,
    IntImm,
    Mul,
    PrimExpr,
    Select,
    StringImm,
    Var,
    binary,
    const,
    is_const,
    nodes_of,
    substitute,
)
from ...tir import (
    PREFETCH,
    REASSOCIATE,
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
)
from ...tir.transform import SCALAR_WORK, WRITTEN_OUT
from .access import Access
from .expr import IF_THEN_ELSE, ExprEmitter
from .machine import SUMS_IN_MEMORY
from .module import NO_UNROLLING, NO_VECTORS, ModuleText
from .parallel import RET, is_shared_out, iteration_work, share_out
from .prefetch import ask_ahead
from .streams import fence, is_streamed, past_caches
from .text import constant_size, value_type

Steps = Iterator[Stmt]
Memory = tuple[tuple[PrimExpr, ...], DataType]
"""What is known of the memory behind a handle: its shape and dtype."""
_Store = tuple[Access, tuple[BufferLoad, PrimExpr] | None, bool]
"""What is known of a store: where it goes, its `_reduction_step`, and `_may_be_zero`."""

STACK_BYTES = 16384
# Beside these, for a buffer that is to be registers: all that 32 of 64 bytes hold, twice.
_TILE_BYTES = 4096
_ALIGN = 64
THREADS = value("%threads", "i64")
_LOCAL = f" noalias align {_ALIGN}"
_INT64 = DataType("int64")
# Stores seven 64-bit elements apart become shuffles of 56 elements. Where those are read again,
# LLVM 22 ends the process for machines with AVX-512.
_NO_INTERLEAVING = 7
# LLVM writes out loops around others too, if all of it is short. That saves little where a loop of
# more iterations stays inside, and was an eighth of LLVM's time for MobileNetV2.
_FEW_ITERATIONS = 8
# Sums of so few scalars it writes out whole, and makes vectors of the loop around them, with a
# shuffle for each element: a third of a second for averages of 7x7 pixels. As loops they are
# vectors of their own, and run in half the time.
_SHORT_SUM = 64
_OUT_OF_MEMORY = "out of memory for a local buffer"


def constant_bytes(dtype: DataType, data: tuple[Any, ...]) -> bytes:
    """The memory image of constants. Raises CodegenError for what does not fit the dtype."""
    kind = to_numpy_dtype(dtype)
    try:
        if dtype.is_bits:
            return values_to_bits(np.asarray(data, dtype=np.float64), dtype.element).tobytes()
        return np.asarray(data, dtype=kind).tobytes()
    except (OverflowError, TypeError, ValueError) as error:
        raise CodegenError(f"AllocateConst: the data does not fit {dtype}: {error}") from None


def _may_be_zero(value: PrimExpr) -> bool:
    """Whether a value is the constant zero, or a choice of which one side is."""
    sides = [value]
    for e in sides:  # which grows meanwhile
        if isinstance(e, (IntImm, FloatImm)):
            if e.value == 0:
                return True
        elif isinstance(e, (Broadcast, Cast)):
            sides.append(e.value)
        elif isinstance(e, Select):
            sides += (e.true_value, e.false_value)
        elif isinstance(e, Call) and e.op is IF_THEN_ELSE:
            sides += e.args[1:]
    return False


def _reduction_step(stmt: BufferStore) -> tuple[BufferLoad, PrimExpr] | None:
    """``X[i]`` and e of ``X[i] = X[i] + e`` or ``X[i] * e`` of floats. None for other stores."""
    value = stmt.value
    if not isinstance(value, (Add, Mul)) or value.dtype.element not in ("float32", "float64"):
        return None
    own = BufferLoad(stmt.buffer, stmt.indices)
    if value.a is own:
        return own, value.b
    return (own, value.a) if value.b is own else None


class KernelEmitter(ExprEmitter):
    """Emits the body of one loop function.

    memory   that behind handles, where it is known
    ret      where the result of `T.ret` is stored, with its dtype; None if the function returns
             nothing
    pointers what is known about pointers from outside of a statement, as parameter attributes
    threads  most threads of a parallel loop, as i64; "1" inside of one
    extents  of the loops so far
    unfenced functions with stores past the caches
    """

    def __init__(self, module: ModuleText, text: Function, fn: PrimFunc, stack_bytes: int) -> None:
        super().__init__(module, text)
        self.ret: tuple[Value, DataType] | None = None
        self.memory: dict[Var, Memory] = {}
        self.exits: list[tuple[Operand, str]] = []
        self.used_failures: set[int] = set()
        self.pointers: dict[str, str] = {}
        self.symbol = ""
        self.loops = 0
        self.threads = THREADS
        self.uses_threads = False
        self.unfenced: list[Function] = []
        self._scalar_loops: set[Var] = set()
        # Whether scalars are added up since a loop began or ended.
        self._adds_scalars = False
        self._stores: dict[BufferStore, _Store] = {}
        self._long_loops = 0  # how many were emitted
        self._slots: list[Value] = []
        self._on_stack: list[tuple[str, Value]] = []
        self._stack_bytes = self._stack_left = stack_bytes
        self._read_only: set[Var] = set()
        self.extents: dict[Var, PrimExpr] = {}
        self._statement: Stmt = fn.body
        self._analyzer = Analyzer(wrap=True)
        self._variables: dict[PrimExpr, set[Var]] = {}
        self._reassociates = bool(fn.get_attr(REASSOCIATE, False))

    def run(self, body: Stmt) -> None:
        """Emit `body`, then the exit block."""
        try:
            self._run(body)
        except CodegenError as error:
            span = getattr(self._statement, "span", UNKNOWN)
            place = f" at {span}" if span is not UNKNOWN else ""
            raise CodegenError(f"{error}\n  in statement {self._statement!r}{place}") from None
        self.finish()

    def finish(self) -> None:
        """End the function: free what is still allocated and return."""
        text = self.text
        self.exits.append((0, text.block))
        text.enter("exit")
        code = text.phi("i32", *self.exits)
        for place in self._on_stack:
            # Of such memory LLVM makes vectors in registers, into which it writes elements. Where
            # one of which half was set to zero was put aside, LLVM 22 lost the zeros.
            widest = self.widest.get(place, 1)
            if place[0] == text.name and self.zeroed.get(place, widest) < widest:
                text.let_escape(place[1])
                self.moving.add(place)
        in_registers = set(self._on_stack) - self.moving
        if any(place[0] == text.name for place in self.sums - in_registers):
            text.attributes += f" {SUMS_IN_MEMORY}"
        for slot in self._slots:
            self._free(slot)
        if any(each is text for each in self.unfenced):
            fence(self)
        text.ret(code)

    def is_local(self, handle: Var) -> bool:
        """Whether memory was allocated in this function."""
        return self.pointers.get(self.env.get(handle, "")) == _LOCAL

    @contextlib.contextmanager
    def inside(
        self, text: Function, env: dict[Var, Value], wide: dict[Var, Value]
    ) -> Iterator[None]:
        """What is emitted meanwhile goes to another function, which has these variables."""
        around = (self.text, self.env, self.wide, self.exits, self._slots, self._stack_left)
        self.text, self.env, self.wide, self.exits, self._slots = text, env, wide, [], []
        self._stack_left, self.threads = self._stack_bytes, constant(1, "i64")
        self.forget()
        yield
        self.text, self.env, self.wide, self.exits, self._slots, self._stack_left = around
        self.threads = THREADS
        self.forget()

    def _run(self, body: Stmt) -> None:
        stack: list[Steps] = [iter((body,))]
        while stack:
            stmt = next(stack[-1], None)
            if stmt is None:
                stack.pop()
                continue
            self._statement = stmt
            self._memo = {}
            handler = _HANDLERS.get(type(stmt))
            if handler is None:
                raise CodegenError(f"no code for {type(stmt).__name__}; lower the function first")
            steps = handler(self, stmt)
            if steps is not None:
                stack.append(steps)

    def fail_unless(self, condition: Value, code: Operand) -> None:
        """Leave with `code` unless `condition` (i1) holds."""
        text = self.text
        failed, fine = text.label("failed"), text.label("fine")
        text.branch(condition, fine, failed)
        text.start(failed)
        self.exits.append((code, failed))
        text.jump("exit")
        text.start(fine)

    def leave_unless(self, condition: Value, message: str) -> None:
        number = self.module.failure(message)
        self.used_failures.add(number)
        self.fail_unless(condition, number)

    # -- statements --------------------------------------------------------------------------------

    def store_element(self, stmt: BufferStore) -> None:
        access, step, may_be_zero = self._stores.get(stmt) or self._looked_at(stmt)
        rest = self.evaluate(access.rest)
        value = self.evaluate(stmt.value) if step is None else self._combined(stmt.value, *step)
        if may_be_zero:
            place, lanes = (self.text.name, self.pointer(stmt.buffer.data)), stmt.value.dtype.lanes
            at_once = lanes if access.shape == "run" else 1
            self.zeroed[place] = min(at_once, self.zeroed.get(place, at_once))
        self.store(stmt, access, rest, value)

    def _looked_at(self, stmt: BufferStore) -> _Store:
        """What is known of a store, once for all copies of it."""
        if stmt.buffer.data in self._read_only:
            raise CodegenError(f"store to {stmt.buffer.name}, which is constant")
        access = self.access(stmt.indices)
        if stmt.value.dtype.bits == 64:
            for var in nodes_of(access.first, Var):
                if stride(access.first, var) in (_NO_INTERLEAVING, -_NO_INTERLEAVING):
                    self._scalar_loops.add(var)
        step = _reduction_step(stmt) if self._reassociates else None
        known = self._stores[stmt] = access, step, _may_be_zero(stmt.value)
        return known

    def _combined(self, value: PrimExpr, old: BufferLoad, step: PrimExpr) -> Value:
        """The value of a reduction step, whose order does not matter: LLVM may keep several
        partial results.
        """
        # Vectors are partial results already: their order is the schedule's.
        is_scalar = value.dtype.lanes == 1
        self._adds_scalars |= is_scalar
        flags = "reassoc contract" if is_scalar else "contract"
        if isinstance(value, Add) and isinstance(step, Mul):
            factors = (self.evaluate(step.a), self.evaluate(step.b))
            parts = self.evaluate(old), self.text.op("fmul contract", *factors)
        else:
            parts = self.evaluate(old), self.evaluate(step)
        return self.text.op(f"{'fmul' if type(value) is Mul else 'fadd'} {flags}", *parts)

    def evaluate_call(self, stmt: Evaluate) -> None:
        value = stmt.value
        if isinstance(value, Call) and value.op is RET:
            self._return(value.args[0])
        elif not isinstance(value, (IntImm, StringImm)):
            self.evaluate(value)

    def _return(self, value: PrimExpr) -> None:
        if self.ret is not None:
            place, dtype = self.ret
            kept = self.to_storage(dtype, self.evaluate(value))
            self.text.store(kept, place, dtype.itemsize, of=kept.type)
        elif not is_const(value, 0):
            raise CodegenError("T.ret of a value: the function declares no result")
        self.exits.append((0, self.text.block))
        self.text.jump("exit")
        self.text.start(self.text.label("after"))

    def condition(self, stmt: IfThenElse) -> Steps:
        decided = self._decided(stmt.condition) if self.written else None
        if decided is not None:
            taken = stmt.then_case if decided else stmt.else_case
            if taken is not None:
                yield taken
            return
        with self.text.if_(self.evaluate(stmt.condition)) as otherwise:
            yield stmt.then_case
            if stmt.else_case is not None:
                otherwise()
                yield stmt.else_case

    def _decided(self, condition: PrimExpr) -> bool | None:
        """Whether a condition holds in the copy at hand of what is written out; None: the run has
        to tell.
        """
        variables = self._variables.get(condition)
        if variables is None:
            variables = self._variables[condition] = nodes_of(condition, Var)
        if not variables or not variables <= self.written.keys():
            return None
        value = value_of(condition, self.written)
        if value is None:
            known = {v: IntImm(v.dtype, self.written[v]) for v in variables}
            simple = self._analyzer.simplify(substitute(condition, known))
            value = simple.value if isinstance(simple, IntImm) else None
        return None if value is None else bool(value)

    def loop(self, stmt: For) -> Steps:
        is_written_out = stmt.kind == ForKind.UNROLLED and WRITTEN_OUT in stmt.annotations
        return self._copies(stmt) if is_written_out else self._repeated(stmt)

    def _repeated(self, stmt: For) -> Steps:
        text, dtype = self.text, stmt.loop_var.dtype
        if is_streamed(self, stmt):
            yield from past_caches(self, stmt)
            return
        with self._bound(stmt.loop_var):
            first = self.evaluate(stmt.min)
            first_wide = self.widened(stmt.min, first)
            extent = self.wide_value(stmt.extent)
            if isinstance(stmt.extent, IntImm) and stmt.extent.value <= 0:
                return
            self.extents[stmt.loop_var] = stmt.extent
            if stmt.kind == ForKind.PARALLEL:
                work = iteration_work(stmt.body, self.env)
                if SCALAR_WORK in stmt.annotations:
                    work = binary(Add, work, stmt.annotations[SCALAR_WORK])
                if is_shared_out(self, stmt, work):
                    yield from share_out(self, stmt, first_wide, extent, work)
                    return
            guard = (
                "" if isinstance(stmt.extent, IntImm) else "sgt" if dtype.kind == "int" else "ne"
            )

            long_before = self._long_loops
            known = stmt.extent.value if isinstance(stmt.extent, IntImm) else None
            is_short = known is not None and _FEW_ITERATIONS < known <= _SHORT_SUM

            def hint() -> str:
                # What not to do: LLVM warns on the user's stderr about wishes it cannot follow.
                hints = [NO_VECTORS] if stmt.loop_var in self._scalar_loops else []
                if self._long_loops > long_before or (is_short and self._adds_scalars):
                    hints.append(NO_UNROLLING)
                return self.module.loop_hints(hints)

            with text.for_(extent, guard=guard, note=hint, hoists=True) as counter:
                self.bind_counter(stmt, counter, first_wide)
                if PREFETCH in stmt.annotations:
                    ask_ahead(self, stmt)
                self._adds_scalars = False
                yield stmt.body
            self._adds_scalars = False
            self._long_loops += known is None or known > _FEW_ITERATIONS

    def _copies(self, stmt: For) -> Steps:
        """A loop that is written out."""
        if not isinstance(stmt.min, IntImm) or not isinstance(stmt.extent, IntImm):
            raise CodegenError(f"{WRITTEN_OUT}: wanted a loop of constant range, got {stmt!r}")
        for i in range(stmt.min.value, stmt.min.value + stmt.extent.value):
            self.take_copy(stmt.loop_var, i)
            if PREFETCH in stmt.annotations:
                ask_ahead(self, stmt)
            yield stmt.body
        self.leave_copies(stmt.loop_var)

    def take_copy(self, var: Var, number: int) -> None:
        """Let the variable of a loop that is written out have its value in the copy at hand."""
        self.written[var] = number
        self.env[var] = int_constant(number, value_type(var.dtype))
        self.wide[var] = int_constant(number, "i64")

    def leave_copies(self, var: Var) -> None:
        """The variable of a loop has no value any more."""
        for known in (self.written, self.env, self.wide):
            known.pop(var, None)

    def bind_counter(self, stmt: For, counter: Value, first: Value) -> None:
        """Give the variable of a loop its value, from that of a counter that begins at 0."""
        wide = counter if first == "0" else self.text.op("add", counter, first)
        self.env[stmt.loop_var] = self.text.cast("trunc", wide, value_type(stmt.loop_var.dtype))
        self.wide.pop(stmt.loop_var, None)
        if first == "0" or self._cannot_wrap(stmt):
            self.wide[stmt.loop_var] = wide

    @staticmethod
    def _cannot_wrap(stmt: For) -> bool:
        """Whether min + i stays in the loop variable's range, so that its 64-bit form is the same
        number.
        """
        dtype = stmt.loop_var.dtype
        if not isinstance(stmt.min, IntImm) or not isinstance(stmt.extent, IntImm):
            return dtype.bits == 64
        return stmt.min.value + stmt.extent.value <= int(dtype.max_value)

    @contextlib.contextmanager
    def _bound(self, var: Var) -> Iterator[None]:
        """Give the variable its former meaning back afterwards."""
        former, former_wide = self.env.get(var), self.wide.pop(var, None)
        self.rebind()
        yield
        self.rebind()
        self.env.pop(var, None)
        self.wide.pop(var, None)
        if former is not None:
            self.env[var] = former
        if former_wide is not None:
            self.wide[var] = former_wide

    def repeat(self, stmt: While) -> Steps:
        with self.text.while_(lambda: self.evaluate(stmt.condition)):
            yield stmt.body

    def bind(self, stmt: LetStmt) -> Steps:
        if stmt.var.dtype.kind == "handle" and self.module.confined:
            raise CodegenError("a pointer variable; code from a file must not make pointers")
        value = self.evaluate(stmt.value)
        with self._bound(stmt.var):
            self.env[stmt.var] = value
            yield stmt.body

    def check(self, stmt: AssertStmt) -> Steps:
        message = stmt.message.value if isinstance(stmt.message, StringImm) else "assertion"
        self.leave_unless(self.evaluate(stmt.condition), message[:4096])
        yield stmt.body

    def under_attribute(self, stmt: AttrStmt) -> Steps:
        if stmt.attr_key == "thread_extent" and isinstance(stmt.node, IterVar):
            # A launch over threads is a loop over them.
            zero = const(0, stmt.node.var.dtype)
            yield For(stmt.node.var, zero, stmt.value, ForKind.SERIAL, stmt.body)
        else:
            yield stmt.body

    def allocate(self, stmt: Allocate) -> Steps:
        size = constant_size(stmt.extents, stmt.dtype.lanes * stmt.dtype.element.itemsize)
        self.memory[stmt.buffer_var] = (stmt.extents, stmt.dtype)
        self.apart.add(stmt.buffer_var)
        with self._bound(stmt.buffer_var):
            is_tile = stmt.buffer_var.storage_scope == "local" and (size or 0) <= _TILE_BYTES
            if size is not None and (is_tile or size <= self._stack_left):
                size = -(-max(size, 1) // _ALIGN) * _ALIGN
                self._stack_left -= 0 if is_tile else size
                memory = self.env[stmt.buffer_var] = self.text.alloca("i8", _ALIGN, size)
                self._on_stack.append((self.text.name, memory))
                self.pointers[memory] = _LOCAL
                yield stmt.body
                return
            if size is not None and size >= 1 << 62:
                raise CodegenError(f"a local buffer of {size} bytes")
            pointer, slot = self._malloc(self._dynamic_size(stmt) if size is None else size)
            self.env[stmt.buffer_var] = pointer
            self.pointers[pointer] = _LOCAL
            yield stmt.body
            self._free(slot)
            self.text.store(None, slot, of="ptr")

    def _dynamic_size(self, stmt: Allocate) -> Value:
        """The bytes of an allocation; leaves with a failure if they do not fit."""
        size = constant(stmt.dtype.element.itemsize * stmt.dtype.lanes, "i64")
        fits = []
        for extent in stmt.extents:
            wide = self.wide_value(extent)
            wide = self.min_max("gt", _INT64, wide, 0)
            pair = self.text.extern("{ i64, i1 }", "llvm.umul.with.overflow.i64", size, wide)
            size = self.text.field(pair, 0)
            fits.append(self.text.field(pair, 1))
        fits.append(self.text.op("icmp ugt", size, 1 << 62))
        overflows = functools.reduce(functools.partial(self.text.op, "or"), fits)
        self.leave_unless(self.text.not_(overflows), _OUT_OF_MEMORY)
        return size

    def _malloc(self, size: int | Value) -> tuple[Value, Value]:
        """(aligned pointer, slot that holds the pointer to free)."""
        self.module.declare("malloc", "ptr", ("i64",), "nounwind")
        self.module.declare("free", "void", ("ptr",), "nounwind")
        slot = self.text.slot("ptr", None)
        self._slots.append(slot)
        padded = size + _ALIGN if isinstance(size, int) else self.text.op("add", size, _ALIGN)
        raw = self.text.call("malloc", padded, flags="noalias")
        self.text.store(raw, slot)
        self.leave_unless(self.text.op("icmp ne", raw, None), _OUT_OF_MEMORY)
        address = self.text.cast("ptrtoint", raw, "i64")
        up = self.text.op("sub", 0, address)
        skip = self.text.op("and", up, _ALIGN - 1)
        return self.text.at(raw, skip, inbounds=True), slot

    def _free(self, slot: Value) -> None:
        held = self.text.load("ptr", slot)
        self.text.call("free", held)

    def allocate_const(self, stmt: AllocateConst) -> Steps:
        name = self.module.constant(constant_bytes(stmt.dtype, stmt.data) or b"\0")
        with self._bound(stmt.buffer_var):
            self.env[stmt.buffer_var] = name
            self._read_only.add(stmt.buffer_var)
            yield stmt.body
            self._read_only.discard(stmt.buffer_var)


_HANDLERS: dict[type, Callable[[KernelEmitter, Any], Steps | None]] = {
    SeqStmt: lambda g, stmt: iter(stmt.seq),
    BufferStore: KernelEmitter.store_element,
    Evaluate: KernelEmitter.evaluate_call,
    IfThenElse: KernelEmitter.condition,
    For: KernelEmitter.loop,
    While: KernelEmitter.repeat,
    LetStmt: KernelEmitter.bind,
    AssertStmt: KernelEmitter.check,
    AttrStmt: KernelEmitter.under_attribute,
    DeclBuffer: lambda g, stmt: iter((stmt.body,)),
    Allocate: KernelEmitter.allocate,
    AllocateConst: KernelEmitter.allocate_const,
}
