"""Statements to C: one generator per statement class, run by `run_steps`.

A generator yields the statements inside it where their code belongs. Failing assertions and
`T.ret` return at once, or, in a function that has memory of its own to free, go to its end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...base import UNKNOWN, CodegenError, DataType, Steps, run_steps
from ...ir import (
    Add,
    Call,
    Cast,
    IntImm,
    Intrinsic,
    Max,
    Min,
    PrimExpr,
    Range,
    StringImm,
    Var,
    const,
    is_const,
    walk,
)
from ...tir import (
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
from ..llvm.text import constant_size
from .expr import ExprEmitter, Pointer
from .text import PRODUCT, RELATION, SUM, UNARY, Code, comment, storage_type, value_type

if TYPE_CHECKING:
    from .module import ModuleText

STACK_BYTES = 16384
_SMALL_BYTES = 64
# Of lines.
MOST_UNROLLED = 2000
MOST_BYTES = 1 << 62
_FLOATS = ("float32", "float64")
# Totals of fewer rounds, and least and greatest values, are not worth the joining of their parts.
_LEAST_LANES, _LEAST_JOINED = 16, 128
_IN_VECTORS = (BufferStore, SeqStmt, LetStmt)
_RET = Intrinsic.get("tir.ret")
_WRITTEN_OUT = ("RELAXVM_VECTOR", "RELAXVM_UNROLL")
_OUT_OF_MEMORY = "out of memory for a local buffer"


class KernelEmitter(ExprEmitter):
    """Emits the body of one loop function.

    memory   the shape and dtype of the memory behind handles, where they are known
    ret      the dtype of what `T.ret` gives, if the function returns something
    exits    how often the code leaves the function before its end
    """

    def __init__(self, module: ModuleText, fn: PrimFunc) -> None:
        super().__init__(module)
        self.memory: dict[Var, tuple[tuple[PrimExpr, ...], DataType]] = {}
        self.ret: DataType | None = None
        self.exits = 0
        self.used_failures: set[int] = set()
        self._heap = 0
        self._frees = False
        self._stack_left = STACK_BYTES
        self._noalias = bool(fn.get_attr("tir.noalias", False))
        self._reassociates = bool(fn.get_attr("tir.reassociate", False))
        self._read_only: set[Var] = set()
        self._statement: Stmt = fn.body

    def run(self, body: Stmt) -> list[str]:
        """The lines of a function with this body."""
        self._frees = self._has_heap(body)
        try:
            run_steps(self._steps(body))
        except CodegenError as error:
            span = getattr(self._statement, "span", UNKNOWN)
            place = f" at {span}" if span is not UNKNOWN else ""
            raise CodegenError(f"{error}\n  in statement {self._statement!r}{place}") from None
        if not self._frees:
            self.emit("return 0;")
            return self.lines
        body_lines, self.lines = self.lines, []
        for i in range(self._heap):
            self.emit(f"void *heap_{i} = NULL;")
        self.emit("int32_t result = 0;")
        self.lines += body_lines
        if self.exits:
            self._indent -= 1
            self.emit("done:")
            self._indent += 1
        for i in range(self._heap):
            self.emit(f"free(heap_{i});")
        self.emit("return result;")
        return self.lines

    def _has_heap(self, body: Stmt) -> bool:
        """Whether some memory may be too much for the stack."""
        sizes = [_bytes_of(n) for n in walk(body) if isinstance(n, Allocate)]
        return any(size < 0 for size in sizes) or sum(sizes) > STACK_BYTES

    def _steps(self, stmt: Stmt) -> Steps:
        self._statement = stmt
        handler = _HANDLERS.get(type(stmt))
        if handler is None:
            raise CodegenError(f"no code for {type(stmt).__name__}; lower the function first")
        return handler(self, stmt)

    def need_failure(self, message: str) -> int:
        number = self.module.failure(message)
        self.used_failures.add(number)
        return number

    def fail_unless(self, condition: Code, code: int | str, why: str = "") -> None:
        self.open(f"if (!{condition.within(UNARY)}) {{")
        self._leave(code, why)
        self.close()

    def _leave(self, code: int | str, why: str = "") -> None:
        self.exits += 1
        said = f" /* {comment(why[:200])} */" if why else ""
        if not self._frees:
            self.emit(f"return {code};{said}")
            return
        self.emit(f"result = {code};{said}")
        self.emit("goto done;")

    @contextlib.contextmanager
    def _bound(self, var: Var, code: Code) -> Iterator[None]:
        """Give a variable a value, and its former one back afterwards."""
        former = self.env.get(var)
        self.env[var] = code
        yield
        del self.env[var]
        if former is not None:
            self.env[var] = former

    # -- statements --------------------------------------------------------------------------------

    def sequence(self, stmt: SeqStmt) -> Steps:
        for each in stmt.seq:
            yield self._steps(each)

    def store_element(self, stmt: BufferStore) -> Steps:
        handle, dtype = stmt.buffer.data, stmt.buffer.dtype.element
        if handle in self._read_only:
            raise CodegenError(f"store to {stmt.buffer.name}, which is constant")
        if len(stmt.indices) != 1:
            raise CodegenError(
                f"an access with {len(stmt.indices)} indices; FlattenBuffer has not run"
            )
        (where,), lanes = stmt.indices, stmt.value.dtype.lanes
        self.forget(where, stmt.value)
        index = yield self.value(where)
        code = yield self.value(stmt.value)
        if lanes == 1:
            self.emit(self.store(dtype, handle, index, self.to_storage(dtype, code)))
            return
        if self._reads_what_it_writes(stmt):
            code = self.kept(stmt.value.dtype, code)
        self.each_lane(lanes, self.store(dtype, handle, index, self.to_storage(dtype, code)))

    def _reads_what_it_writes(self, stmt: BufferStore) -> bool:
        """Whether a lane may read what another one has written already."""
        for n in walk(stmt.value):
            if not isinstance(n, BufferLoad):
                continue
            if n.buffer.data is stmt.buffer.data:
                if n.indices != stmt.indices:
                    return True
            elif not self._noalias:
                return True
        return any(isinstance(n, BufferLoad) for n in walk(stmt.indices[0]))

    def evaluate_call(self, stmt: Evaluate) -> Steps:
        value = stmt.value
        self.forget(value)
        if isinstance(value, (IntImm, StringImm)):
            return
        if isinstance(value, Call) and value.op is _RET:
            yield self._return(value.args[0])
            return
        code = yield self.value(value)
        if code.number is None and not code.text.isidentifier():
            self.emit(f"(void){code.within(UNARY)};")

    def _return(self, value: PrimExpr) -> Steps:
        if self.ret is not None:
            code = yield self.value(value)
            self.emit(f"*returned = {self.to_storage(self.ret, code)};")
        elif not is_const(value, 0):
            raise CodegenError("T.ret of a value: the function declares no result")
        self._leave(0)

    def condition(self, stmt: IfThenElse) -> Steps:
        self.forget(stmt.condition)
        holds = yield self._condition(stmt.condition)
        self.open(f"if ({holds.text}) {{")
        yield self._steps(stmt.then_case)
        if stmt.else_case is not None:
            self.close("} else {")
            self._indent += 1
            yield self._steps(stmt.else_case)
        self.close()

    def _condition(self, condition: PrimExpr) -> Steps:
        if condition.dtype.lanes != 1:
            raise CodegenError(f"a condition of {condition.dtype}; wanted a scalar")
        return self.value(condition)

    def loop(self, stmt: For) -> Steps:
        var = stmt.loop_var
        dtype = var.dtype
        if dtype.lanes != 1 or not dtype.is_int:
            raise CodegenError(f"a loop variable of {dtype}")
        self.forget(stmt.min, stmt.extent)
        first = yield self.value(stmt.min)
        extent = yield self.value(stmt.extent)
        if isinstance(stmt.extent, IntImm) and stmt.extent.value <= 0:
            return
        # Both are evaluated once, before the loop changes what they are read from.
        if "[" in first.text or "(" in first.text:
            first = self.kept(dtype, first)
        if extent.number is None and not extent.text.isidentifier():
            extent = self.kept(stmt.extent.dtype, extent)
        kind, name = value_type(dtype), self.name(var.name, "i")
        (_, most), (_, top) = self.bounds(stmt.min), self.bounds(stmt.extent)
        fits = stmt.extent.dtype is dtype and most + max(top, 0) <= dtype.max_value
        self.analyzer.bind(var, Range.from_min_extent(stmt.min, stmt.extent), True)
        place, exits, heap, size = len(self.lines), self.exits, self._heap, self.unrolled_lines
        if fits or (first.number == 0 and stmt.extent.dtype is dtype):
            end = extent if first.number == 0 else _sum(first, extent)
            self.open(f"for ({kind} {name} = {first.text}; {name} < {end.text}; ++{name}) {{")
        else:
            # min + i may wrap: count apart.
            step = self.name("step")
            count = value_type(stmt.extent.dtype)
            self.open(f"for ({count} {step} = 0; {step} < {extent.text}; ++{step}) {{")
            unsigned = f"uint{dtype.bits}_t"
            sum_ = f"({kind})(({unsigned}){first.within(UNARY)} + ({unsigned}){step})"
            self.emit(f"const {kind} {name} = {sum_};")
        inside = len(self.lines)
        totals = []
        with self._bound(var, Code(name)):
            yield self._steps(stmt.body)
            written = len(self.lines)
            for store in _totals(stmt) if self._noalias else ():
                self.forget()
                index = yield self.value(store.indices[0])
                access = self.load(store.buffer.dtype, store.buffer.data, index)
                totals.append((access.text, store))
            if len(self.lines) != written:  # no plain place
                totals = []
                del self.lines[written:]
        self.release(name)
        self.close()
        # Threads and lanes cannot leave the function, nor have slots of their own for memory.
        if (self.exits, self._heap) == (exits, heap):
            size = self.unrolled_lines - size
            hint = self._hint(stmt, self.lines[inside:], size, extent.number)
            if hint:
                indent = self.lines[place][: -len(self.lines[place].lstrip())]
                self.lines.insert(place, f"{indent}{hint}")
            elif totals:
                short = extent.number is not None and extent.number < _LEAST_JOINED
                self._reduce(place, inside, totals, short)

    def _reduce(
        self, place: int, inside: int, totals: list[tuple[str, BufferStore]], short: bool
    ) -> None:
        """Let the loop whose lines begin at `place` keep its totals in variables, so that the C
        compiler may compute parts of them beside each other; not if it is `short`.
        """
        operators = {self._joined_by(store) for _, store in totals}
        body = self.lines[inside:-1]
        counts = [sum(line.count(access) for line in body) for access, _ in totals]
        if len(operators) != 1 or "" in operators or inside != place + 1 or {*counts} != {2}:
            return
        by = operators.pop()
        if short and by != "+":
            chained = self.module.helpers.of(f"{by[:3]}_so_far", totals[0][1].buffer.dtype)
            self.lines[inside:-1] = [
                line.replace(by, chained) if any(access in line for access, _ in totals) else line
                for line in body
            ]
            return
        indent = self.lines[place][: -len(self.lines[place].lstrip())]
        names = [self.name("total") for _ in totals]
        before, after = [], []
        for name, (access, store) in zip(names, totals):
            body = [line.replace(access, name) for line in body]
            before.append(f"{indent}{value_type(store.buffer.dtype)} {name} = {access};")
            after.append(f"{indent}{access} = {name};")
        before.append(f"{indent}RELAXVM_REDUCE({by}, {', '.join(names)})")
        self.lines[place:] = [*before, self.lines[place], *body, self.lines[-1], *after]

    def _joined_by(self, store: BufferStore) -> str:
        """How OpenMP joins parts of a total; "" if its terms stay in order."""
        if isinstance(store.value, Add):
            return "+" if self._reassociates else ""
        return self.module.helpers.of(
            "max" if isinstance(store.value, Max) else "min", store.buffer.dtype
        )

    def _hint(self, loop: For, body: list[str], size: int, count: int | None) -> str:
        """What the C compiler is told of a loop of `count` iterations with this body, of which
        `size` lines are left when the loops inside are unrolled; "" for nothing.
        """
        if loop.kind == ForKind.PARALLEL:
            return "RELAXVM_PARALLEL"
        heads = [k for k, line in enumerate(body) if line.lstrip().startswith(("for (", "while ("))]
        if loop.kind == ForKind.VECTORIZED and self._noalias and not heads:
            return "RELAXVM_VECTOR"
        hinted = all(k and body[k - 1].lstrip().startswith(_WRITTEN_OUT) for k in heads)
        if loop.kind == ForKind.UNROLLED and hinted and count and size * count <= MOST_UNROLLED:
            self.unrolled_lines += size * (count - 1)
            return f"RELAXVM_UNROLL({count})"
        return ""

    def repeat(self, stmt: While) -> Steps:
        self.forget(stmt.condition)
        holds, lines = yield self.aside(stmt.condition)
        if not lines:
            self.open(f"while ({holds.text}) {{")
        else:
            self.open("for (;;) {")
            self.lines += lines
            self.open(f"if (!{holds.within(UNARY)}) {{")
            self.emit("break;")
            self.close()
        yield self._steps(stmt.body)
        self.close()

    def bind(self, stmt: LetStmt) -> Steps:
        self.forget(stmt.value)
        code = yield self.value(stmt.value)
        name, dtype = self.name(stmt.var.name), stmt.var.dtype
        if dtype.is_handle:
            pointer = self._typed(stmt)
            self.emit(f"{pointer} *{name} = ({pointer} *){code.within(UNARY)};")
            self.pointers[stmt.var] = Pointer(name, pointer)
            yield self._steps(stmt.body)
            del self.pointers[stmt.var]
        elif dtype.lanes > 1:
            self.emit(f"{value_type(dtype)} {name}[{dtype.lanes}];")
            self.each_lane(dtype.lanes, f"{name}[lane] = {code.text};")
            with self._bound(stmt.var, Code(f"{name}[lane]")):
                yield self._steps(stmt.body)
        else:
            self.emit(f"const {value_type(dtype)} {name} = {code.text};")
            if dtype.is_int:
                self.analyzer.update(
                    stmt.var, self.analyzer.const_int_bound(stmt.value), override=True
                )
            with self._bound(stmt.var, Code(name)):
                yield self._steps(stmt.body)
        self.release(name)

    def _typed(self, stmt: LetStmt) -> str:
        """The C type of what is behind a pointer variable: that of the buffers that have it."""
        for n in walk(stmt.body):
            if isinstance(n, (BufferLoad, BufferStore)) and n.buffer.data is stmt.var:
                return storage_type(n.buffer.dtype)
        return "void"

    def check(self, stmt: AssertStmt) -> Steps:
        message = stmt.message.value if isinstance(stmt.message, StringImm) else "assertion"
        self.forget(stmt.condition)
        holds = yield self._condition(stmt.condition)
        self.fail_unless(holds, self.need_failure(message[:4096]), message)
        yield self._steps(stmt.body)

    def under_attribute(self, stmt: AttrStmt) -> Steps:
        if stmt.attr_key == "thread_extent" and isinstance(stmt.node, IterVar):
            # A launch over threads is a loop over them.
            zero = const(0, stmt.node.var.dtype)
            yield self._steps(For(stmt.node.var, zero, stmt.value, ForKind.SERIAL, stmt.body))
        else:
            yield self._steps(stmt.body)

    def declare(self, stmt: DeclBuffer) -> Steps:
        yield self._steps(stmt.body)

    def allocate(self, stmt: Allocate) -> Steps:
        kind, size = storage_type(stmt.dtype), _bytes_of(stmt)
        name = self.name(stmt.buffer_var.name, "buffer")
        self.memory[stmt.buffer_var] = (stmt.extents, stmt.dtype)
        if 0 <= size <= self._stack_left:
            count = max(1, size // stmt.dtype.element.itemsize)
            self._stack_left -= size
            # Compilers that keep the elements of small ones apart warn of what they cannot follow.
            zeros = " = {0}" if size <= _SMALL_BYTES else ""
            self.emit(f"{kind} {name}[{count}]{zeros};")
            heap = None
        else:
            heap = yield self._from_heap(stmt, kind, name, size)
        self.pointers[stmt.buffer_var] = Pointer(name, kind)
        yield self._steps(stmt.body)
        del self.pointers[stmt.buffer_var]
        self.release(name)
        if heap is None:
            self._stack_left += size
        else:
            self.emit(f"free({heap});")
            self.emit(f"{heap} = NULL;")

    def _from_heap(self, stmt: Allocate, kind: str, name: str, size: int) -> Steps:
        """Memory from `malloc`; gives the variable that holds it until it is freed."""
        if size > MOST_BYTES:
            raise CodegenError(f"a local buffer of {size} bytes")
        heap = f"heap_{self._heap}"
        self._heap += 1
        failure = self.need_failure(_OUT_OF_MEMORY)
        if size >= 0:
            total = f"{max(1, size)}U" if size < 1 << 31 else f"(size_t)UINT64_C({size})"
        else:
            self.forget(*stmt.extents)
            each = stmt.dtype.element.itemsize * stmt.dtype.lanes
            total = f"{name}_bytes"
            self.emit(f"size_t {total} = {each};")
            for extent in stmt.extents:
                code = yield self.value(extent)
                if code.number is not None:
                    count = str(max(code.number, 0))
                else:
                    wide = f"(int64_t){code.within(UNARY)}"
                    count = self.kept(DataType("int64"), Code(wide, UNARY)).text
                self.open(f"if ({count} > 0 && {total} > (size_t)PTRDIFF_MAX / (size_t){count}) {{")
                self._leave(failure, _OUT_OF_MEMORY)
                self.close()
                self.emit(f"{total} *= {count} > 0 ? (size_t){count} : 0U;")
            total = f"{total} > 0 ? {total} : 1U"
        self.emit(f"{heap} = malloc({total});")
        self.fail_unless(Code(f"{heap} != NULL", RELATION), failure, _OUT_OF_MEMORY)
        self.emit(f"{kind} *{name} = ({kind} *){heap};")
        return heap

    def allocate_const(self, stmt: AllocateConst) -> Steps:
        count = 1
        for extent in stmt.extents:
            if not isinstance(extent, IntImm) or extent.value < 0:
                raise CodegenError("AllocateConst: the extents must be constants")
            count *= extent.value
        if count != len(stmt.data):
            raise CodegenError(f"AllocateConst: {count} elements declared, {len(stmt.data)} given")
        name = self.module.constant(stmt.buffer_var.name, stmt.dtype, stmt.data)
        self.pointers[stmt.buffer_var] = Pointer(name, storage_type(stmt.dtype))
        self._read_only.add(stmt.buffer_var)
        yield self._steps(stmt.body)
        self._read_only.discard(stmt.buffer_var)
        del self.pointers[stmt.buffer_var]


def _totals(loop: For) -> list[BufferStore]:
    """The sums, and least and greatest values, that a loop computes in one element each; none if
    something else in it depends on the order of its rounds.
    """
    var, totals = loop.loop_var, []
    nodes = walk(loop.body)
    stores = [n for n in nodes if isinstance(n, BufferStore)]
    loads = [n for n in nodes if isinstance(n, BufferLoad)]
    others = [n for n in nodes if isinstance(n, Stmt) and not isinstance(n, _IN_VECTORS)]
    calls = [n for n in nodes if isinstance(n, Call)]
    pure = all(getattr(n.op, "effect", "opaque") == "pure" for n in calls)
    short = isinstance(loop.extent, IntImm) and loop.extent.value < _LEAST_LANES
    if loop.kind != ForKind.SERIAL or short or others or not pure:
        return []
    for store in stores:
        (index,), value, buffer = store.indices, store.value, store.buffer
        reads = [n for n in loads if n.buffer.data is buffer.data]
        writes = [n for n in stores if n.buffer.data is buffer.data]
        if index.dtype.lanes != 1 or len(writes) != 1:
            return []
        if not any(n is var or isinstance(n, BufferLoad) for n in walk(index)):
            sides = (value.a, value.b) if isinstance(value, (Add, Max, Min)) else ()
            mine = len(reads) == 1 and any(reads[0] is side for side in sides)
            if not mine or reads[0].indices != store.indices or str(buffer.dtype) not in _FLOATS:
                return []
            totals.append(store)
        elif not _next_to_each_other(index, var) or any(n.indices != store.indices for n in reads):
            return []
    return totals


def _next_to_each_other(index: PrimExpr, var: Var) -> bool:
    """Whether an index grows by 1 from round to round."""
    if isinstance(index, Add):
        first, second = (any(n is var for n in walk(each)) for each in (index.a, index.b))
        return first != second and _next_to_each_other(index.a if first else index.b, var)
    return (index.value if isinstance(index, Cast) else index) is var


def _sum(first: Code, extent: Code) -> Code:
    if first.number is not None and extent.number is not None:
        return Code(str(first.number + extent.number))
    return Code(f"{first.within(SUM)} + {extent.within(PRODUCT)}", SUM)


def _bytes_of(stmt: Allocate) -> int:
    """The size of local memory; -1 if it is not constant."""
    size = constant_size(stmt.extents, stmt.dtype.element.itemsize * stmt.dtype.lanes)
    return -1 if size is None else size


_HANDLERS: dict[type, Callable[[KernelEmitter, Any], Steps]] = {
    SeqStmt: KernelEmitter.sequence,
    BufferStore: KernelEmitter.store_element,
    Evaluate: KernelEmitter.evaluate_call,
    IfThenElse: KernelEmitter.condition,
    For: KernelEmitter.loop,
    While: KernelEmitter.repeat,
    LetStmt: KernelEmitter.bind,
    AssertStmt: KernelEmitter.check,
    AttrStmt: KernelEmitter.under_attribute,
    DeclBuffer: KernelEmitter.declare,
    Allocate: KernelEmitter.allocate,
    AllocateConst: KernelEmitter.allocate_const,
}
