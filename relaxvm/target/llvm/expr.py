"""Scalar expressions to LLVM: a table from node class to emitter, run over an explicit stack.

Each shared subexpression is emitted once per statement. Nodes whose sides are evaluated
conditionally are generators: they yield the subexpressions they want evaluated where they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from ...base import CodegenError, DataType, to_numpy_dtype
from ...base.llvm import Function, Value, constant, int_constant, value, vector_of
from ...ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    GlobalVar,
    IntImm,
    Intrinsic,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    SizeVar,
    StringImm,
    Sub,
    Var,
    wrap_int,
)
from ...tir import BufferLoad, BufferStore
from .access import Access, access_index, access_of, access_shape
from .intrinsics import INTRINSIC_EMITTERS, OUTSIDE
from .module import ModuleText
from .streams import nontemporal
from .text import is_kept_as_is, scalar_type, storage_type, value_type
from .values import Values

Steps = Generator[PrimExpr, Value, Value]
_INT64 = DataType("int64")
_CHEAP_NODES = 12
_CHEAP_CALLS = frozenset(
    "bitwise_and bitwise_or bitwise_xor bitwise_not shift_left shift_right isnan isinf "
    "isfinite fabs likely floor ceil "
    "trunc sqrt copysign fma reinterpret".split()
)


def is_cheap(root: PrimExpr, loads: bool = False) -> bool:
    """Whether evaluating `root` needlessly costs little and cannot hurt: few nodes, no calls or
    divisions, no loads unless `loads`.
    """
    stack: list[Any] = [root]
    count = 0
    while stack:
        e = stack.pop()
        count += 1
        if count > _CHEAP_NODES:
            return False
        kind = type(e)
        if kind is BufferLoad and loads:
            stack.append(access_index(e.indices))
            continue
        if kind is Call:
            fits = isinstance(e.op, Intrinsic) and e.op.name.removeprefix("tir.") in _CHEAP_CALLS
        elif (kind is Div or kind is Mod) and e.dtype.is_int:
            fits = isinstance(e.b, IntImm) and e.b.value > 0
        else:
            fits = kind in _CHEAP
        if not fits:
            return False
        stack.extend(e.args if kind is Call else e._children_)
    return True


class ExprEmitter(Values):
    """Emits expressions into one function.

    env       values of variables
    wide      variables that are also known as i64: what a cast of them to int64 gives
    apart     data variables of memory that no other of the function overlaps; those of `fixed`
              are only read
    streamed  aligned memory whose vectors are stored past the caches (`streams.py`)
    widest    (function, pointer) of memory: how many elements are read or written at once, at most
    zeroed    (function, pointer) of memory: how many zeros are written at once, at least
    sums      the same of memory that is stored to again and again at one place
    moving    the same of memory that is used at places which only the run knows
    written   the values of variables of loops that are written out, in the copy at hand
    """

    def __init__(self, module: ModuleText, text: Function) -> None:
        super().__init__(module, text)
        self.env: dict[Var, Value] = {}
        self.wide: dict[Var, Value] = {}
        self.apart: set[Var] = set()
        self.fixed: set[Var] = set()
        self.streamed: frozenset[Var] = frozenset()
        self.widest: dict[tuple[str, Value], int] = {}
        self.zeroed: dict[tuple[str, Value], int] = {}
        self.sums: set[tuple[str, Value]] = set()
        self.moving: set[tuple[str, Value]] = set()
        self._stored: set[tuple[str, Value]] = set()
        self._loaded: set[tuple[str, Value]] = set()
        self.written: dict[Var, int] = {}
        self._accesses: dict[tuple[int, ...], Access] = {}
        self._memo: dict[PrimExpr, Value] = {}
        # Sums and products of variables and constants, and vectors of constants, which last as
        # long as a block, and the nodes they are of: unrolled statements share them.
        self._sums: dict[PrimExpr, Value] = {}
        self._sums_known = text.known

    def rebind(self) -> None:
        """A variable has another value now."""
        self._sums = {}

    def bind_symbol(self, var: Var, wide: Value) -> None:
        """Let `var` be a value (i64) that its type holds."""
        self.wide[var], self.env[var] = wide, self.cast(_INT64, var.dtype, wide)

    def _keep_sum(self, node: Any, value: Value) -> None:
        if self._sums_known is not self.text.known:
            self._sums, self._sums_known = {}, self.text.known
        sums = self._sums
        for part in (node.value,) if type(node) is Broadcast else (node.a, node.b):
            if type(part) not in _NUMBERS and part not in sums:
                return
            if part in self.written:
                return
        sums[node] = value

    def forget(self) -> None:
        """Memory may have changed."""
        self._memo = {}

    def evaluate(self, root: PrimExpr) -> Value:
        """The value of `root`, emitted here."""
        if type(root) is IntImm:
            return int_constant(root.value, value_type(root.dtype))
        stack: list[tuple[Any, Any]] = [(root, None)]
        memo = self._memo
        while stack:
            node, state = stack.pop()
            if state is None:
                if node in memo:
                    continue
                leaf = _LEAVES.get(type(node))
                if leaf is not None:
                    memo[node] = leaf(self, node)
                    continue
                branching = self._branching(node) if type(node) in _BRANCHING else None
                if branching is not None:
                    state = (branching, None)
                else:
                    sums = self._sums if self._sums_known is self.text.known else {}
                    if node in sums:
                        memo[node] = sums[node]
                        continue
                    if type(node) in _BINARY:
                        state = [node.a, node.b]
                    elif type(node) is BufferLoad:
                        state = [self.access(node.indices).rest]
                    else:
                        state = self._operands(node)
                    inner = []
                    for part in state:
                        if part not in memo:
                            leaf = _LEAVES.get(type(part))
                            if leaf is not None:
                                memo[part] = leaf(self, part)
                            elif part in sums:
                                memo[part] = sums[part]
                            else:
                                inner.append((part, None))
                    if inner:
                        stack.append((node, state))
                        stack += reversed(inner)
                        continue
            if type(state) is list:
                emitter = _EMITTERS.get(type(node))
                if emitter is None:
                    raise CodegenError(
                        f"no code for {type(node).__name__}; lower the function first"
                    )
                memo[node] = emitter(self, node, *map(memo.__getitem__, state))
                if emitter is _arithmetic and node.dtype.is_int:
                    self._keep_sum(node, memo[node])
                elif type(node) is Broadcast and type(node.value) in _NUMBERS:
                    self._keep_sum(node, memo[node])
                continue
            generator, wanted = state
            try:
                following = generator.send(None if wanted is None else memo[wanted])
            except StopIteration as done:
                memo = self._memo
                memo[node] = done.value
                continue
            memo = self._memo
            stack.append((node, (generator, following)))
            stack.append((following, None))
        return memo[root]

    def _open(self) -> int:
        return len(self._memo)

    def _close(self, mark: int) -> None:
        """Forget what was emitted since `mark`: it does not dominate what follows."""
        while len(self._memo) > mark:
            self._memo.popitem()

    def _operands(self, node: Any) -> list[PrimExpr]:
        """The subexpressions to evaluate before `node`, which is neither binary nor a load."""
        kind = type(node)
        if kind is Cast and type(node.value) in (Var, SizeVar):
            return []
        if kind is Call:
            if isinstance(node.op, Intrinsic) and node.op.name == "tir.address_of":
                load = node.args[0]
                return [self.access(load.indices).rest] if isinstance(load, BufferLoad) else []
            if isinstance(node.op, Intrinsic) and node.op.name in _OF_BITS:
                return [self._bits16_operand(a) for a in node.args]
            return list(node.args)
        return list(node._children_)

    def _bits16_operand(self, node: PrimExpr) -> PrimExpr:
        """What to evaluate of an expression whose bits are wanted: registers hold 16-bit floats as
        float32, so the detour is left out where the bits are at hand.
        """
        if node.dtype.is_float and node.dtype.bits == 16:
            if type(node) is BufferLoad:
                return self.access(node.indices).rest
            if type(node) is Call and node.op is _REINTERPRET and node.args[0].dtype.is_int:
                return node.args[0]
        return node

    # -- conditional evaluation --------------------------------------------------------------------

    def _branching(self, node: Any) -> Steps | None:
        kind = type(node)
        if kind is Let:
            return self._let(node)
        if kind is And or kind is Or:
            if node.dtype.lanes > 1 or is_cheap(node.b):
                return None
            return self._short_circuit(node, kind is And)
        if kind is Select:
            # Both sides are evaluated, so what they load is in bounds or checked (a call, which is
            # not cheap); of branches LLVM makes a choice of addresses, and no vectors.
            sides = (node.true_value, node.false_value)
            if node.condition.dtype.lanes > 1 or all(is_cheap(s, loads=True) for s in sides):
                return None
            return self._choose(node.condition, node.true_value, node.false_value)
        if kind is Call and node.op is IF_THEN_ELSE:
            condition, yes, no = node.args
            run = _run_or_constant(yes, no)
            if run is not None:
                return self._choose_run(condition, run, no, node.dtype)
            return self._choose(condition, yes, no)
        return None

    def _let(self, node: Let) -> Steps:
        value = yield node.value
        former = self.env.get(node.var)
        saved = self._memo
        if former is not None:
            # Bound twice: expressions of the variable mean another thing inside.
            self._memo = {}
        mark = self._open()
        self.env[node.var] = value
        self.rebind()
        result = yield node.body
        self._close(mark)
        self.rebind()
        if former is None:
            del self.env[node.var]
        else:
            self.env[node.var] = former
            self._memo = saved
        return result

    def _short_circuit(self, node: And | Or, is_and: bool) -> Steps:
        text = self.text
        first = yield node.a
        more, end = text.label("more"), text.label("end")
        start = text.block
        text.branch(first, *((more, end) if is_and else (end, more)))
        text.start(more)
        mark = self._open()
        second = yield node.b
        self._close(mark)
        last = text.block
        text.enter(end)
        return text.phi("i1", (not is_and, start), (second, last))

    def _choose(self, condition: PrimExpr, yes: PrimExpr, no: PrimExpr) -> Steps:
        text = self.text
        holds = yield condition
        if is_cheap(yes) and is_cheap(no):
            a = yield yes
            b = yield no
            return text.select(holds, a, b)
        ends: list[tuple[Value, str]] = []
        with text.if_(holds) as otherwise:
            for side in (yes, no):
                if ends:
                    otherwise()
                mark = self._open()
                value = yield side
                self._close(mark)
                ends.append((value, text.block))
        return text.phi(value_type(yes.dtype), *ends)

    def _choose_run(self, condition: PrimExpr, load: BufferLoad, no: Any, to: DataType) -> Steps:
        """A run of memory, or a constant in all lanes: read from one address or another, without a
        branch. (Vectors of lanes that are no power of two must not live across one: LLVM takes them
        apart.)
        """
        dtype, lanes = load.buffer.dtype, load.dtype.lanes
        holds = yield condition
        access = self.access(load.indices)
        rest = yield access.rest
        pointer = self.run_of(load.buffer.data, lanes)
        place = self.address(dtype, pointer, access, rest)
        image = np.full(lanes, no.value.value, to_numpy_dtype(dtype)).tobytes()
        chosen = self.text.select(holds, place, self.module.constant(image))
        kind = storage_type(dtype, self.module.native_half)
        read = self.text.load(vector_of(kind, lanes), chosen, dtype.itemsize)
        return self.cast(load.dtype, to, self.from_storage(load.dtype, read))

    def leave_unless(self, condition: Value, message: str) -> None:
        """Leave the function with a failure unless `condition` (i1) holds."""
        raise CodegenError("a check cannot stand in the dimension of a parameter")

    # -- memory ------------------------------------------------------------------------------------

    def widened(self, index: PrimExpr, value: Value) -> Value:
        """An index as i64 (or a vector of i64)."""
        if isinstance(index, Var) and index in self.wide:
            return self.wide[index]
        if index.dtype is _INT64:
            return value
        return self.cast(index.dtype, _INT64.with_lanes(index.dtype.lanes), value)

    def wide_value(self, index: PrimExpr) -> Value:
        """The value of an index as i64, emitted here."""
        return self.widened(index, self.evaluate(index))

    def access(self, indices: tuple[PrimExpr, ...]) -> Access:
        """What an access by these indices is. What is to be evaluated for it is its `rest`, which
        copies of loops that are written out share.
        """
        key = (*map(id, indices),)
        known = self._accesses.get(key)
        if known is None:
            known = self._accesses[key] = access_of(indices, self.written)
        return known

    def address(self, dtype: DataType, pointer: Value, access: Access, rest: Value) -> Value:
        """The address of an element or the first of a run, in memory of `dtype` elements."""
        offset = access.offset
        for var, step in access.steps:
            offset += step * self.written[var]
        key = pointer, dtype, id(access), rest, offset
        place = self.text.known.get(key)
        if place is None:
            place = self.text.known[key] = self._address(dtype, pointer, access, rest, offset)
        return place

    def _address(
        self, dtype: DataType, pointer: Value, access: Access, rest: Value, offset: int
    ) -> Value:
        text, key = self.text, (pointer, dtype, id(access), rest)
        base = text.known.get(key) if offset else None
        if base is None:
            first = self.widened(access.rest, rest)
            element = storage_type(dtype.element, self.module.native_half)
            if first == "0":
                first, offset = int_constant(wrap_int(offset, _INT64), "i64"), 0
            if first.startswith("%"):
                self.moving.add((text.name, pointer))
            if not offset:
                return text.element(element, pointer, first, True) if first != "0" else pointer
            base = text.known[key] = text.element(element, pointer, first)
        return text.element("i8", base, wrap_int(offset * dtype.element.itemsize, _INT64))

    def whole_index(self, pointer: Value, access: Access, rest: Value) -> Value:
        """The index itself in memory, wide."""
        offset = sum([step * self.written[var] for var, step in access.steps], access.offset)
        first, offset = self.widened(access.rest, rest), wrap_int(offset, _INT64)
        self.moving.add((self.text.name, pointer))
        return self.text.op("add", first, offset) if offset else first

    def pointer(self, handle: Var) -> Value:
        """The address behind a buffer's data variable."""
        pointer = self.env.get(handle)
        if pointer is None:
            raise CodegenError(
                f"buffer data {handle.name} is not a parameter and was not allocated here"
            )
        return pointer

    def run_of(self, handle: Var, lanes: int) -> Value:
        """The pointer to memory of which so many elements are read or written at once."""
        place = self.text.name, self.env.get(handle) or self.pointer(handle)
        self.widest[place] = max(lanes, self.widest.get(place, 1))
        return place[1]

    def load(self, node: BufferLoad, rest: Value) -> Value:
        """A load; `rest` is what was evaluated of its access."""
        stored = self.load_stored(node, rest)
        return stored if is_kept_as_is(node.dtype) else self.from_storage(node.dtype, stored)

    def load_stored(self, node: BufferLoad, rest: Value) -> Value:
        """What memory holds, not yet as a register holds it."""
        dtype, access = node.buffer.dtype, self.access(node.indices)
        kind = storage_type(dtype, self.module.native_half)
        if access.shape in ("run", "strided"):
            pointer = self.run_of(node.buffer.data, node.dtype.lanes)
        else:
            pointer = self.pointer(node.buffer.data)
        if access.shape in ("scalar", "run"):
            lanes = node.dtype.lanes
            place = self.address(dtype, pointer, access, rest)
            data, of, align = node.buffer.data, vector_of(kind, lanes), dtype.element.itemsize
            memory, is_fixed = pointer if data in self.apart else "", data in self.fixed
            if not is_fixed:
                here = (self.text.name, place)
                self._loaded.add(here)
                if here in self._stored:
                    self.sums.add((self.text.name, pointer))
            return self.text.load(of, place, align, memory=memory, is_fixed=is_fixed)
        if access.shape == "strided":
            return self._strided(node, pointer, kind, self.whole_index(pointer, access, rest))
        gathered = value("poison", vector_of(kind, node.dtype.lanes))
        for i, place in enumerate(self._places(dtype, pointer, access, rest)):
            one = self.text.load(kind, place, dtype.element.itemsize)
            gathered = self.text.with_lane(gathered, i, one)
        return gathered

    def _places(
        self, dtype: DataType, pointer: Value, access: Access, rest: Value
    ) -> Iterator[Value]:
        """The address of each element of an access that is no run."""
        text, index = self.text, access.indices[0]
        kind, lanes = storage_type(dtype.element, self.module.native_half), index.dtype.lanes
        if access.shape == "scatter":
            wide = self.whole_index(pointer, access, rest)
            for i in range(lanes):
                yield text.element(kind, pointer, text.lane(wide, i), inbounds=True)
            return
        first, step = self.address(dtype, pointer, access, rest), dtype.element.itemsize
        assert isinstance(index, Ramp)
        assert isinstance(index.stride, IntImm)
        for i in range(lanes):
            yield text.at(first, wrap_int(i * step * index.stride.value, _INT64))

    def _strided(self, node: BufferLoad, pointer: Value, kind: str, first: Value) -> Value:
        """Every few elements from `first` on: picked out of runs that cover them. The last run ends
        where the last element does, so that nothing behind it is read.
        """
        ramp: Any = node.indices[0]
        dtype, lanes, stride = node.buffer.dtype, node.dtype.lanes, ramp.stride.value
        of = vector_of(kind, lanes)
        last = (lanes - 1) * stride + 1 - lanes
        picked = value("poison", of)
        for run in range(stride):
            start = min(run * lanes, last)
            first_of_run = self.text.op("add", first, start) if start else first
            place = self.text.element(kind, pointer, first_of_run, inbounds=True)
            read = self.text.load(of, place, dtype.element.itemsize)
            wanted = [i * stride for i in range(lanes)]
            places = [
                lanes + p - start
                if (p // lanes == run or (run == stride - 1 and p >= start))
                else i
                for i, p in enumerate(wanted)
            ]
            picked = self.text.shuffle(picked, read, places)
        return picked

    def bits_of(self, node: PrimExpr, part: Value) -> Value:
        """A narrow float expression as its bits, from what `_bits16_operand` chose to evaluate of
        it.
        """
        if self._bits16_operand(node) is node:
            return self.to_bits(node.dtype, part)
        if type(node) is BufferLoad:
            part = self.load_stored(node, part)
        return self.text.cast("bitcast", part, vector_of("i16", node.dtype.lanes))

    def store(self, stmt: BufferStore, access: Access, rest: Value, stored: Value) -> None:
        """A store of a register; `rest` is what was evaluated of its access."""
        dtype, handle, value_dtype = stmt.buffer.dtype, stmt.buffer.data, stmt.value.dtype
        is_run = access.shape == "run"
        pointer = self.run_of(handle, value_dtype.lanes) if is_run else self.pointer(handle)
        kept = stored if is_kept_as_is(value_dtype) else self.to_storage(value_dtype, stored)
        align, memory = dtype.element.itemsize, pointer if handle in self.apart else ""
        if access.shape in ("scalar", "run"):
            place = self.address(dtype, pointer, access, rest)
            hint, here = "", (self.text.name, place)
            again = here in self._stored or not self.text.varies(place)
            if again and here in self._loaded:
                self.sums.add((self.text.name, pointer))
            self._stored.add(here)
            if handle in self.streamed:
                size = value_dtype.lanes * align
                align, hint = nontemporal(access.first, size, align)
            self.text.store(kept, place, align, note=hint, memory=memory)
            return
        for i, place in enumerate(self._places(dtype, pointer, access, rest)):
            self.text.store(self.text.lane(kept, i), place, align, memory=memory)


def _run_or_constant(yes: Any, no: Any) -> BufferLoad | None:
    """The run of memory that `yes` is, if `no` is a constant that memory could hold instead."""
    casts = type(yes) is Cast
    load = yes.value if casts else yes
    if type(load) is not BufferLoad or load.dtype.lanes < 2 or access_shape(load.indices) != "run":
        return None
    constant = no.value if type(no) is Broadcast else None
    if not isinstance(constant, (IntImm, FloatImm)):
        return None
    if (casts and constant.value != 0) or load.buffer.dtype.kind not in ("int", "uint", "float"):
        return None
    return load if is_cheap(access_index(load.indices)) else None


# -- the tables ------------------------------------------------------------------------------------

_BRANCHING = {Let, And, Or, Select, Call}
_NUMBERS = (Var, SizeVar, IntImm, FloatImm)
_BINARY = {Add, Sub, Mul, Div, Mod, Min, Max, EQ, NE, LT, LE, GT, GE}
_CHEAP = _BINARY | {And, Or, Not, Select, Cast, Broadcast, Ramp, IntImm, FloatImm, Var, SizeVar}
_RELATION = {EQ: "eq", NE: "ne", LT: "lt", LE: "le", GT: "gt", GE: "ge", Min: "lt", Max: "gt"}
_ARITHMETIC = {Add: ("add", "fadd", "or"), Sub: ("sub", "fsub", "xor"), Mul: ("mul", "fmul", "and")}


def _variable(g: ExprEmitter, node: Var) -> Value:
    register = g.env.get(node)
    if register is None:
        raise CodegenError(f"variable {node.name} has no value here")
    return register


def _arithmetic(g: ExprEmitter, node: Any, a: Value, b: Value) -> Value:
    dtype, (for_int, for_float, for_bool) = node.dtype, _ARITHMETIC[type(node)]
    if dtype.is_float:
        return g.rounded(dtype, g.text.op(for_float, a, b))
    return g.text.op(for_bool if dtype.is_bool else for_int, a, b)


def _division(g: ExprEmitter, node: Any, a: Value, b: Value) -> Value:
    if node.dtype.is_float:
        opcode = "fdiv" if type(node) is Div else "frem"
        return g.rounded(node.dtype, g.text.op(opcode, a, b))
    return g.divide(node.dtype, a, b, type(node) is Mod)


def _cast(g: ExprEmitter, node: Cast, *parts: Value) -> Value:
    source = node.value
    if not parts:
        assert isinstance(source, Var)
        if node.dtype is _INT64 and source in g.wide:
            return g.wide[source]
        parts = (_variable(g, source),)
    return g.cast(source.dtype, node.dtype, parts[0])


def _ramp(g: ExprEmitter, node: Ramp, base: Value, stride: Value) -> Value:
    element, lanes = scalar_type(node.base.dtype), node.lanes
    of = vector_of(element, lanes)
    steps = value("<" + ", ".join(f"{element} {i}" for i in range(lanes)) + ">", of)
    if node.base.dtype.bits == 8 and lanes > 128:
        raise CodegenError(f"a ramp of {lanes} lanes in {node.base.dtype}")
    scaled = steps
    if stride != "1":
        scaled = g.text.op("mul", g.text.splat(stride, lanes), steps)
    return g.text.op("add", g.text.splat(base, lanes), scaled)


def _shuffle(g: ExprEmitter, node: Shuffle, *parts: Value) -> Value:
    widths = {v.dtype.lanes for v in node.vectors}
    count = len(node.vectors)
    # All of them: the node takes no others.
    indices = [i.value for i in node.indices if isinstance(i, IntImm)]
    if count <= 2 and len(widths) == 1 and 1 not in widths and len(indices) > 1:
        # One instruction says what single lanes would have to be gathered into again.
        return g.text.shuffle(parts[0], parts[1] if count == 2 else None, indices)
    places = [
        (part, v.dtype.lanes, i)
        for v, part in zip(node.vectors, parts)
        for i in range(v.dtype.lanes)
    ]
    picked = []
    for index in indices:
        part, lanes, i = places[index]
        picked.append(part if lanes == 1 else g.text.lane(part, i))
    return g.text.joined(picked)


def _call(g: ExprEmitter, node: Call, *parts: Value) -> Value:
    if isinstance(node.op, GlobalVar):
        return g.module.call_function(g, node, [*parts])
    if not isinstance(node.op, Intrinsic):
        raise CodegenError(
            f"{getattr(node.op, 'name', node.op)} cannot be called from a loop function"
        )
    name = node.op.name.removeprefix("tir.")
    if g.module.confined and name in OUTSIDE:
        raise CodegenError(f"{name} reaches outside of the kernel; code from a file must not")
    if name == "address_of":
        load = node.args[0]
        assert isinstance(load, BufferLoad)
        return g.address(
            load.buffer.dtype, g.pointer(load.buffer.data), g.access(load.indices), parts[0]
        )
    emitter = INTRINSIC_EMITTERS.get(name)
    if emitter is None:
        raise CodegenError(
            f"{node.op.name} has no code; LowerIntrin has not run, or it cannot stand here"
        )
    return emitter(g, node, [*parts])


_LEAVES: dict[type, Callable[[ExprEmitter, Any], Value]] = {
    Var: _variable,
    SizeVar: _variable,
    IntImm: lambda g, node: int_constant(node.value, value_type(node.dtype)),
    FloatImm: lambda g, node: constant(node.value, value_type(node.dtype)),
    StringImm: lambda g, node: constant(None, "ptr"),
}

# Of a node, from the values of its operands (see `_operands`).
_EMITTERS: dict[type, Callable[..., Value]] = {
    **dict.fromkeys((Add, Sub, Mul), _arithmetic),
    **dict.fromkeys((Div, Mod), _division),
    **dict.fromkeys(
        (Min, Max), lambda g, node, a, b: g.min_max(_RELATION[type(node)], node.dtype, a, b)
    ),
    **dict.fromkeys(
        (EQ, NE, LT, LE, GT, GE),
        lambda g, node, a, b: g.compare(_RELATION[type(node)], node.a.dtype, a, b),
    ),
    And: lambda g, node, a, b: g.text.op("and", a, b),
    Or: lambda g, node, a, b: g.text.op("or", a, b),
    Not: lambda g, node, a: g.text.not_(a),
    Select: lambda g, node, *parts: g.text.select(*parts),
    Cast: _cast,
    Ramp: _ramp,
    Broadcast: lambda g, node, one: g.text.splat(one, node.lanes),
    Shuffle: _shuffle,
    BufferLoad: ExprEmitter.load,
    Call: _call,
}

_REINTERPRET = Intrinsic.get("tir.reinterpret")
# Calls whose 16-bit arguments are wanted as bits.
_OF_BITS = frozenset({"tir.reinterpret", "tir.dot_accumulate"})
IF_THEN_ELSE = Intrinsic.get("tir.if_then_else")
