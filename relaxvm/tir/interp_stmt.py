"""Statements as Python closures. A closure takes the frame and returns None to go on, or a 1-tuple
to leave with it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..base import DataType, TIRError, VMError, VMValueError, to_numpy_dtype
from ..ir import INTRINSICS, Call, GlobalVar, IntImm, PrimExpr, StringImm, Var, is_const
from .interp_expr import ExprCompiler, Frame, Run, find_element, lanes_at, view_storage
from .interp_memory import Pointer, address, allocate, make_view
from .interp_scalar import lane_bits, lane_of_number
from .stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    MatchBufferRegion,
    SeqStmt,
    Stmt,
    While,
)

# Deeper nests of loops, blocks and branches are refused; straight code and lets may be as long as
# they like.
_DEEPEST = 100

Returned = Any


def _nothing(env: Frame) -> Returned:
    return None


class StmtCompiler(ExprCompiler):
    """Compiles the body of one function.

    caller  runs another function of the module: (frame's context, global variable, arguments) ->
            value
    """

    def __init__(
        self,
        where: str,
        caller: Callable[[Any, GlobalVar, list[Any], list[DataType], DataType], Any],
    ) -> None:
        super().__init__(where)
        self._caller = caller
        self._depth = 0
        self._late: dict[int, list[Buffer]] = {}

    # -- buffers -----------------------------------------------------------------------------------

    def expect_late_views(self, buffers: list[Buffer]) -> None:
        """Buffers used without a declaration: views of whatever their data variable points to."""
        for buffer in buffers:
            self._late.setdefault(id(buffer.data), []).append(buffer)

    def layout(self, buffer: Buffer) -> Callable[[Frame], tuple[Any, Any, int]]:
        """The closure that gives a buffer's shape, strides (or None) and element offset."""
        shape = [self.compile(e) for e in buffer.shape]
        strides = [self.compile(e) for e in buffer.strides]
        offset = self.compile(buffer.elem_offset)

        def run(env: Frame) -> tuple[Any, Any, int]:
            steps = tuple([s(env) for s in strides]) if strides else None
            return tuple([e(env) for e in shape]), steps, offset(env)

        return run

    def declare(self, buffer: Buffer) -> Callable[[Frame], None]:
        """Define the view of a buffer on the memory that its data variable holds."""
        if id(buffer.data) not in self.scope:
            raise TIRError(
                f"{self.where}: buffer {buffer.name} is declared on {buffer.data.name}, "
                "which is not defined here"
            )
        layout, memory = self.layout(buffer), self.slot_of(buffer.data)
        slot, where = self.define(buffer), self.where

        def run(env: Frame) -> None:
            env[slot] = make_view(where, buffer, env[memory], *layout(env))

        return run

    def late_views(self, data: Var) -> list[Callable[[Frame], None]]:
        """Views, made as soon as `data` is known, of the undeclared buffers on it whose layout is
        constant.
        """
        return [self.declare(b) for b in self._late.get(id(data), ()) if _has_constant_layout(b)]

    def view(self, buffer: Buffer) -> Run:
        if id(buffer) in self.scope:
            return operator.itemgetter(self.slot_of(buffer))
        if id(buffer.data) not in self.scope:
            raise TIRError(f"{self.where}: buffer {buffer.name} is used but not defined here")
        layout, memory, where = self.layout(buffer), self.slot_of(buffer.data), self.where
        return lambda env: make_view(where, buffer, env[memory], *layout(env))

    def pointer(self, buffer: Buffer) -> Run:
        return operator.itemgetter(self.slot_of(buffer.data))

    def call_function(
        self, gv: GlobalVar, args: list[Run], dtypes: list[DataType], result: DataType
    ) -> Run:
        caller = self._caller
        handles = [d.is_handle for d in dtypes]

        def run(env: Frame) -> Any:
            values = [Pointer(a(env)) if h else a(env) for a, h in zip(args, handles)]
            return caller(env[0], gv, values, dtypes, result)

        return run

    # -- statements --------------------------------------------------------------------------------

    def stmt(self, s: Stmt) -> Run:
        """The closure that runs `s`. Raises TIRError for what has no meaning."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise TIRError(f"{self.where}: statements nest more than {_DEEPEST} deep")
        mark = self.mark()
        parts = self._parts(s)
        self.leave(mark)
        self._depth -= 1
        if len(parts) == 1:
            return parts[0]

        def run(env: Frame) -> Returned:
            for part in parts:
                left = part(env)
                if left is not None:
                    return left
            return None

        return run

    def _parts(self, s: Any) -> list[Run]:
        """What `s` does, step by step. The last statement of a sequence and the body of a scope go
        on in the same list, so that any number of lets may follow each other.
        """
        parts: list[Run] = []
        while True:
            opens = _SCOPES.get(type(s))
            if opens is not None and not _is_launch(s):
                parts.extend(opens(self, s))
                s = s.body
            elif type(s) is SeqStmt:
                if not s.seq:
                    return parts or [_nothing]
                parts.extend([self.stmt(each) for each in s.seq[:-1]])
                s = s.seq[-1]
            elif type(s) in _HANDLERS:
                parts.append(_HANDLERS[type(s)](self, s))
                return parts
            else:
                raise TIRError(
                    f"{self.where}: the interpreter has no meaning for {type(s).__name__}"
                )

    def _store(self, s: BufferStore) -> Run:
        view, value = self.view(s.buffer), self.compile(s.value)
        indices = [self.compile(i) for i in s.indices]
        _, write = view_storage(s.buffer.dtype.element)
        where = self.where
        if s.value.dtype.lanes > 1:
            return self._store_vector(s, view, indices, value, write)

        def run(env: Frame) -> None:
            array, position, stored = view(env), tuple([i(env) for i in indices]), value(env)
            try:
                if position and min(position) < 0:
                    raise IndexError
                write(array, position, stored)
            except IndexError:
                find_element(where, "store", s.buffer, array, position)
                raise
            except ValueError:
                _refuse_read_only(where, s.buffer, array)
                raise

        return run

    def _store_vector(self, s: Any, view: Run, indices: list[Run], value: Run, write: Any) -> Run:
        inner, where = s.buffer.dtype.lanes, self.where
        lanes = s.value.dtype.lanes // inner

        def run(env: Frame) -> None:
            array, positions = view(env), [i(env) for i in indices]
            stored = value(env)
            places = lanes_at(s.indices, positions, lanes)
            for place in places:
                find_element(where, "store", s.buffer, array, place)
            _refuse_read_only(where, s.buffer, array)
            for k, lane in enumerate(stored):
                place = places[k // inner]
                write(array, place if inner == 1 else (*place, k % inner), lane)

        return run

    def _for(self, s: For) -> Run:
        start, count = self.compile(s.min), self.compile(s.extent)
        return self._loop(s.loop_var, start, count, s.body)

    def _loop(self, var: Var, start: Run, count: Run, inside: Stmt) -> Run:
        slot = self.define(var)
        body, where = self.stmt(inside), self.where
        highest = int(var.dtype.max_value)

        def run(env: Frame) -> Returned:
            first, number = start(env), count(env)
            if number > 0 and first + number - 1 > highest:
                raise VMValueError(
                    f"{where}: loop {var.name} runs from {first} over {number} values, "
                    f"past the range of {var.dtype}"
                )
            for i in range(first, first + number):
                env[slot] = i
                left = body(env)
                if left is not None:
                    return left
            return None

        return run

    def _while(self, s: While) -> Run:
        condition, body = self.compile(s.condition), self.stmt(s.body)

        def run(env: Frame) -> Returned:
            while condition(env):
                left = body(env)
                if left is not None:
                    return left
            return None

        return run

    def _if(self, s: IfThenElse) -> Run:
        # Chains of else-if are one flat list of cases.
        cases: list[tuple[Run, Run]] = []
        last: Any = s
        while isinstance(last, IfThenElse):
            cases.append((self.compile(last.condition), self.stmt(last.then_case)))
            last = last.else_case
        otherwise = _nothing if last is None else self.stmt(last)

        def run(env: Frame) -> Returned:
            for condition, body in cases:
                if condition(env):
                    return body(env)
            return otherwise(env)

        return run

    def _evaluate(self, s: Evaluate) -> Run:
        if type(s.value) is Call and s.value.op is INTRINSICS["ret"]:
            value = self.compile(s.value.args[0])
            dtype = s.value.args[0].dtype
            return lambda env: (value(env), dtype)
        value = self.compile(s.value)

        def run(env: Frame) -> None:
            value(env)

        return run

    def _block_realize(self, s: BlockRealize) -> Run:
        block, where = s.block, self.where
        values = [self.compile(v) for v in s.iter_values]
        certain = is_const(s.predicate, 1)
        predicate = None if certain else self.compile(s.predicate)
        domains = [self._domain(iv, block) for iv in block.iter_vars]
        slots = [self.define(iv.var) for iv in block.iter_vars]
        names = [iv.var.name for iv in block.iter_vars]
        reduced = [iv.is_reduce for iv in block.iter_vars]
        axes = list(zip(slots, domains, names, reduced))
        steps: list[Run] = []
        for buffer in block.alloc_buffers:
            steps.extend(self._alloc_buffer(buffer))
        for match in block.match_buffers:
            steps.append(self._match_buffer(match))
        init = None if block.init is None else self.stmt(block.init)
        body = self.stmt(block.body)

        def run(env: Frame) -> Returned:
            if predicate is not None and not predicate(env):
                return None
            at_start = True
            bound = [value(env) for value in values]
            for value, (slot, domain, name, is_reduced) in zip(bound, axes):
                low, extent = domain(env)
                if not low <= value < low + extent:
                    _leave_domain(where, block, name, value, low, extent)
                if is_reduced and value != low:
                    at_start = False
                env[slot] = value
            for step in steps:
                step(env)
            if init is not None and at_start:
                init(env)
            return body(env)

        return run

    def _domain(self, axis: IterVar, block: Block) -> Callable[[Frame], tuple[int, int]]:
        if axis.dom is None:
            raise TIRError(
                f"{self.where}: block {block.name_hint}: axis {axis.var.name} has no domain"
            )
        low, extent = axis.dom.min, axis.dom.extent
        if isinstance(low, IntImm) and isinstance(extent, IntImm):
            constant = (low.value, extent.value)
            return lambda env: constant
        first, number = self.compile(low), self.compile(extent)
        return lambda env: (first(env), number(env))

    # -- statements that open a scope --------------------------------------------------------------

    def _alloc_buffer(self, buffer: Buffer) -> list[Run]:
        layout, where = self.layout(buffer), self.where
        memory = self.define(buffer.data)

        def run(env: Frame) -> None:
            shape, strides, offset = layout(env)
            if strides is not None and all(n > 0 for n in shape):
                shape = (sum((n - 1) * abs(s) for n, s in zip(shape, strides)) + 1,)
            if offset > 0:
                shape = (math.prod(shape) + offset,)
            env[memory] = allocate(where, buffer.name, buffer.dtype, shape)

        return [run, self.declare(buffer), *self.late_views(buffer.data)]

    def _match_buffer(self, m: MatchBufferRegion) -> Run:
        buffer, source, where = m.buffer, m.source.buffer, self.where
        if buffer.dtype is not source.dtype:
            raise TIRError(
                f"{where}: match_buffer {buffer.name} holds {buffer.dtype}, "
                f"its source {source.name} {source.dtype}"
            )
        extra = source.ndim - buffer.ndim
        if extra < 0:
            raise TIRError(
                f"{where}: match_buffer {buffer.name} has more dimensions than "
                f"its source {source.name}"
            )
        view, memory = self.view(source), self.pointer(source)
        region = [(self.compile(r.min), self.compile(r.extent)) for r in m.source.region]
        fits: list[Callable[[Frame, int], None]] = []
        for what, exprs in (("shape", buffer.shape), ("strides", buffer.strides)):
            fits += [self._fit(e, f"{what} of match_buffer {buffer.name}") for e in exprs]
        size, ndim = buffer.dtype.itemsize, buffer.ndim
        from_start = isinstance(buffer.elem_offset, IntImm)
        if not from_start:
            fits.append(self._fit(buffer.elem_offset, f"offset of match_buffer {buffer.name}"))
        has_strides = bool(buffer.strides)
        slot, data = self.define(buffer), self.define(buffer.data)

        def run(env: Frame) -> None:
            array = view(env)
            box = []
            for axis, (low, extent) in enumerate(region):
                first, number = low(env), extent(env)
                if first < 0 or number < 0 or first + number > array.shape[axis]:
                    raise VMValueError(
                        f"{where}: match_buffer {buffer.name}: region {first}..{first + number} of "
                        f"axis {axis} is outside {source.name}, "
                        f"whose size there is {array.shape[axis]}"
                    )
                if axis < extra and number != 1:
                    raise VMValueError(
                        f"{where}: match_buffer {buffer.name}: axis {axis} of the region has "
                        f"{number} elements; an axis that the buffer lacks has 1"
                    )
                box.append(first if axis < extra else slice(first, first + number))
            part = array[tuple(box)]
            numbers = list(part.shape[:ndim])
            if has_strides:
                numbers += [s // size for s in part.strides[:ndim]]
            start = address(part) - address(memory(env)) if part.size else 0
            if not from_start:
                numbers.append(start // size)
            for fit, number in zip(fits, numbers):
                fit(env, number)
            env[slot] = part
            env[data] = memory(env)[start:] if from_start else memory(env)

        return run

    def _fit(self, expr: PrimExpr, what: str) -> Callable[[Frame, int], None]:
        """Bind a new variable to a number, or check that an expression has it."""
        where = self.where
        if isinstance(expr, Var) and id(expr) not in self.scope:
            slot = self.define(expr)
            return lambda env, number: operator.setitem(env, slot, number)
        wanted = self.compile(expr)

        def check(env: Frame, number: int) -> None:
            if wanted(env) != number:
                raise VMValueError(
                    f"{where}: {what}: declared {wanted(env)}, the region has {number}"
                )

        return check

    def _let(self, s: LetStmt) -> list[Run]:
        value = self.compile(s.value)
        slot = self.define(s.var)

        def run(env: Frame) -> None:
            env[slot] = value(env)

        return [run, *self.late_views(s.var)]

    def _assert(self, s: AssertStmt) -> list[Run]:
        condition, where = self.compile(s.condition), self.where
        message = s.message.value if isinstance(s.message, StringImm) else "an assertion failed"

        def run(env: Frame) -> None:
            if not condition(env):
                raise VMError(f"{where}: {message}")

        return [run]

    def _attr(self, s: AttrStmt) -> list[Run]:
        return []

    def _decl_buffer(self, s: DeclBuffer) -> list[Run]:
        if id(s.buffer.data) not in self.scope:
            return self._alloc_buffer(s.buffer)
        return [self.declare(s.buffer)]

    def _allocate(self, s: Allocate) -> list[Run]:
        extents = [self.compile(e) for e in s.extents]
        condition = self.compile(s.condition)
        slot, where = self.define(s.buffer_var), self.where
        empty = np.empty(0, dtype=np.uint8)

        def run(env: Frame) -> None:
            shape = tuple([e(env) for e in extents])
            memory = allocate(where, s.buffer_var.name, s.dtype, shape) if condition(env) else empty
            env[slot] = memory

        return [run, *self.late_views(s.buffer_var)]

    def _allocate_const(self, s: AllocateConst) -> list[Run]:
        sizes = [e.value for e in s.extents if isinstance(e, IntImm)]
        if len(sizes) < len(s.extents):
            raise TIRError(
                f"{self.where}: AllocateConst {s.buffer_var.name}: the shape is not constant"
            )
        count = s.dtype.lanes * math.prod(sizes)
        if len(s.data) != count:
            raise TIRError(
                f"{self.where}: AllocateConst {s.buffer_var.name} of {count} elements "
                f"has {len(s.data)} numbers"
            )
        lanes = [lane_of_number(v, s.dtype.element) for v in s.data]
        if s.dtype.is_bits:
            bits = np.array([lane_bits(v, s.dtype) for v in lanes], f"uint{s.dtype.bits}")
            constant = bits.view(to_numpy_dtype(s.dtype))
        else:
            constant = np.array(lanes, dtype=str(s.dtype.element))
        memory = constant.view(np.uint8)
        memory.flags.writeable = False
        slot = self.define(s.buffer_var)
        return [lambda env: operator.setitem(env, slot, memory), *self.late_views(s.buffer_var)]

    def _launch(self, s: AttrStmt) -> Run:
        """A launch over threads means a loop over them: they are independent."""
        axis: Any = s.node
        return self._loop(axis.var, lambda env: 0, self.compile(s.value), s.body)


def _is_launch(s: Any) -> bool:
    return type(s) is AttrStmt and s.attr_key == "thread_extent" and isinstance(s.node, IterVar)


def _has_constant_layout(buffer: Buffer) -> bool:
    return all(isinstance(e, IntImm) for e in (*buffer.shape, *buffer.strides, buffer.elem_offset))


def _refuse_read_only(where: str, buffer: Buffer, array: np.ndarray) -> None:
    if not array.flags.writeable:
        raise VMValueError(f"{where}: store to {buffer.name}, which is read-only")


def _leave_domain(
    where: str, block: Block, name: str, value: int, low: int, extent: int
) -> NoReturn:
    raise VMValueError(
        f"{where}: block {block.name_hint}: axis {name} is {value}, outside its domain "
        f"{low}..{low + extent - 1}; add a predicate (T.where) that excludes it"
    )


_HANDLERS: dict[type, Callable[[StmtCompiler, Any], Run]] = {
    AttrStmt: StmtCompiler._launch,
    BufferStore: StmtCompiler._store,
    For: StmtCompiler._for,
    While: StmtCompiler._while,
    IfThenElse: StmtCompiler._if,
    Evaluate: StmtCompiler._evaluate,
    BlockRealize: StmtCompiler._block_realize,
}
_SCOPES: dict[type, Callable[[StmtCompiler, Any], list[Run]]] = {
    LetStmt: StmtCompiler._let,
    AssertStmt: StmtCompiler._assert,
    AttrStmt: StmtCompiler._attr,
    DeclBuffer: StmtCompiler._decl_buffer,
    Allocate: StmtCompiler._allocate,
    AllocateConst: StmtCompiler._allocate_const,
}
