"""One function's bytecode followed without running it: which memory each register may refer to.

Paths are followed together: where they meet, a register may refer to what it does on any of them.
A function that jumps back is not followed, since it may allocate any number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from ..base import NamedTuple, NameSupply, record
from .bytecode import VOID, Arg, ArgKind, Call, Goto, If, Ret
from .constants import DimProgram
from .dims import is_symbol, symbols_of
from .formula import Formula, Peak
from .heap import MakeCode, MatchCode, dimension_text
from .ndarray import NDArray, ShapeTuple
from .program import FunctionInfo, Program
from .sinfo import PrimInfo, ShapeInfo, TensorInfo, TupleInfo, dims_of
from .verify import builtin_args, builtin_called

_REGISTER, _IMMEDIATE, _CONSTANT, _FUNCTION = ArgKind
_MAX_WORK = 2_000_000
_MAX_SITES = 64
_MAX_NESTING = 16
_NO_BYTES, _ONE = Formula.of(0), Formula.of(1)
_MAX_PEAKS = 1024
_MAX_KINDS = 256


@record(frozen=False)
class Site:
    """A storage: allocated where, of what size, holding which tensors."""

    pc: int
    size: Formula
    tensors: list[str] = field(default_factory=list)


class _Value(NamedTuple):
    """What is known of a register's value.

    sites     memory it may refer to: numbers of blocks, or -1 - i for that of parameter i
    dims      its shape (or itself, if it is a shape)
    items     its elements, if it is a tuple
    number    itself, if it is an int
    function  a closure's function and what it captures
    """

    sites: frozenset[int] = frozenset()
    dims: tuple[Formula | None, ...] | None = None
    itemsize: int = 0
    items: tuple[_Value, ...] | None = None
    number: Formula | None = None
    function: tuple[str, tuple[_Value, ...]] | None = None


_NOTHING = _Value()


@record(values=False, frozen=False)
class Trace:
    """What following a function gave. `problem` says why it could not be followed to its end.

    peak      most bytes alive at once         total     all bytes, as if nothing were freed
    result    bytes that the result keeps      borrowed  parameters that the result may refer to
    late      symbols that get their values while the function runs
    """

    problem: str = ""
    sites: list[Site] = field(default_factory=list)
    peak: Peak = field(default_factory=lambda: Peak(()))
    total: Formula = _NO_BYTES
    result: Formula = _NO_BYTES
    borrowed: set[int] = field(default_factory=set)
    late: set[str] = field(default_factory=set)


@record(frozen=False)
class _State:
    """Registers and shape heap slots at one point."""

    registers: dict[int, _Value]
    slots: dict[tuple[int, int], Formula]

    def copy(self) -> _State:
        return _State(dict(self.registers), dict(self.slots))


def trace_function(program: Program, info: FunctionInfo, callees: Mapping[str, Trace]) -> Trace:
    """Follow `info`, whose callees have been followed. About linear in its size."""
    return _Tracer(program, info, callees).run()


class _Tracer:
    def __init__(self, program: Program, info: FunctionInfo, callees: Mapping[str, Trace]) -> None:
        self.program = program
        self.info = info
        self.callees = callees
        self.trace = Trace()
        self.sizes: list[Formula] = []
        self.state = _State({}, {})
        self.holders: dict[int, int] = {}
        self.live: dict[Any, int] = {}
        self.live_key: tuple[Any, ...] | None = ()
        self.peaks: dict[Any, int] = {(): 0}
        self.results: list[Formula] = []
        self.names = NameSupply(joint="_")
        self.pinned: set[int] = set()
        self.site_of: dict[int, Site] = {}
        self.total: dict[Any, int] = {}
        self.work = 0
        self.pc = 0

    # -- the walk ---------------------------------------------------------------------------------

    def run(self) -> Trace:
        for i, param in enumerate(self.info.params):
            self._set(i, self._parameter(i, param))
        waiting: dict[int, list[_State]] = {}
        reached = True
        for pc, instruction in enumerate(self.program.instructions(self.info)):
            self.pc = pc
            for state in waiting.pop(pc, ()):
                self._join(state, reached)
                reached = True
            if not reached:
                continue
            if type(instruction) is Call:
                self._call(instruction)
            elif type(instruction) is Ret:
                self._return(instruction)
                reached = False
            else:
                offset = instruction.false_offset if type(instruction) is If else 0
                if type(instruction) is Goto:
                    offset = instruction.offset
                    reached = False
                if offset < 0:
                    self._give_up("it jumps back, and may allocate any number of times")
                else:
                    self._spend(len(self.state.registers))
                    waiting.setdefault(pc + offset, []).append(self.state.copy())
            if self.trace.problem:
                break
        return self._finish()

    def _finish(self) -> Trace:
        trace = self.trace
        trace.peak = Peak(
            Formula({**dict(symbolic), (): constant}) for symbolic, constant in self.peaks.items()
        )
        trace.result = Peak(self.results).bound()
        trace.total = Formula(self.total)
        return trace

    def _give_up(self, problem: str) -> None:
        self.trace.problem = self.trace.problem or problem

    def _spend(self, steps: int) -> None:
        self.work += steps
        if self.work > _MAX_WORK:
            self._give_up("its control flow is too tangled to follow")

    def _parameter(self, i: int, param: Any, depth: int = 0) -> _Value:
        mine = frozenset((-1 - i,))
        if type(param) is TensorInfo:
            itemsize = 0 if param.dtype is None else int(param.dtype.itemsize)
            return _Value(mine, self._dims(param.shape), itemsize)
        if type(param) is ShapeInfo:
            return _Value(dims=self._dims(param.values))
        if type(param) is PrimInfo:
            number = None if param.value is None else self._dims((param.value,))
            return _Value(number=number[0] if number else None)
        if type(param) is TupleInfo and depth < _MAX_NESTING:
            fields = tuple(self._parameter(i, field, depth + 1) for field in param.fields)
            return _Value(mine, items=fields)
        return _Value(mine)

    def _dims(self, dims: Any) -> tuple[Formula | None, ...] | None:
        if dims is None:
            return None
        formulas = tuple(Formula.from_dim(dim) for dim in dims)
        for symbol in (s for f in formulas if f is not None for s in f.symbols):
            self.names.reserve(symbol)
        return formulas

    # -- registers and memory ---------------------------------------------------------------------

    def _set(self, register: int, value: _Value) -> None:
        """Put `value` into a register. What only the old value referred to is free."""
        if register == VOID:
            return
        old = self.state.registers.get(register)
        for site in value.sites:
            self._hold(site)
        if old is not None:
            for site in old.sites:
                self._drop(site)
        self.state.registers[register] = value

    def _hold(self, site: int) -> None:
        count = self.holders.get(site, 0)
        self.holders[site] = count + 1
        if count == 0 and site >= 0 and site not in self.pinned:
            self._add(self.sizes[site], 1)

    def _drop(self, site: int) -> None:
        self.holders[site] -= 1
        if not self.holders[site]:
            del self.holders[site]
            if site >= 0 and site not in self.pinned:
                self._add(self.sizes[site], -1)

    def _add(self, size: Formula, sign: int) -> None:
        for monomial, coefficient in size.terms.items():
            self.live[monomial] = self.live.get(monomial, 0) + sign * coefficient
            if monomial:
                self.live_key = None

    def _count(self, size: Formula) -> None:
        for monomial, coefficient in size.terms.items():
            self.total[monomial] = self.total.get(monomial, 0) + coefficient
        if len(self.total) > _MAX_KINDS:
            self._give_up("too many different sums of symbolic sizes")

    def _note_peak(self) -> None:
        if self.live_key is None:
            symbolic = {m: c for m, c in self.live.items() if m and c}
            self.live_key = tuple(sorted(symbolic.items(), key=repr))
        constant = self.live.get((), 0)
        if constant > self.peaks.get(self.live_key, -1):
            self.peaks[self.live_key] = constant
        if len(self.peaks) > _MAX_PEAKS:
            self._give_up("too many different sums of symbolic sizes")

    def _block(self, size: Formula) -> int:
        """A new block of memory, not referred to yet."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def _allocate(self, dst: int, what: str, size: Formula | None, value: _Value) -> int:
        """A new block that the new value of `dst` refers to; -1 if its size is not known."""
        if size is None:
            self._give_up(f"the size of the {what} at instruction {self.pc} is not known")
            return -1
        site = self._block(size)
        self._count(size)
        # The old value of the register is let go only after the new one is made.
        self._hold(site)
        self._note_peak()
        self._set(dst, value._replace(sites=value.sites | {site}))
        self._drop(site)
        return site

    def _union(self, values: Sequence[_Value]) -> frozenset[int]:
        sites: frozenset[int] = frozenset().union(*(v.sites for v in values))
        if len(sites) <= _MAX_SITES:
            return sites
        # Too many to keep apart: they are taken to live until the function returns.
        self._spend(len(sites))
        for site in sites:
            if site >= 0 and site not in self.pinned:
                if not self.holders.get(site):
                    self._add(self.sizes[site], 1)
                self.pinned.add(site)
        return frozenset(s for s in sites if s < 0)

    def _join(self, other: _State, reached: bool) -> None:
        """Go on from `other`, and from here too if `reached`."""
        if not reached:
            self._restart(other)
            return
        mine = self.state
        self._spend(len(mine.registers) + len(other.registers))
        renamed = self._exclusive_pairs(mine, other)
        registers: dict[int, _Value] = {}
        for register in mine.registers.keys() | other.registers.keys():
            a = mine.registers.get(register, _NOTHING)
            b = other.registers.get(register, _NOTHING)
            registers[register] = _rename(a if a is b else _either(a, b), renamed)
        slots = {k: f for k, f in mine.slots.items() if other.slots.get(k) == f}
        self._restart(_State(registers, slots))
        self._note_peak()

    def _restart(self, state: _State) -> None:
        self.state = state
        self.holders = {}
        self.live = {}
        self.live_key = None
        self._spend(len(state.registers))
        for site in self.pinned:
            self._add(self.sizes[site], 1)
        for value in state.registers.values():
            for site in value.sites:
                self._hold(site)

    def _exclusive_pairs(self, mine: _State, other: _State) -> dict[int, int]:
        """Blocks of which only one can exist, as one was made on each path: both get one new
        name.
        """
        alive = [_sites_in(mine), _sites_in(other)]
        pairs: dict[int, int] = {}
        taken: set[int] = set()
        for register, a in mine.registers.items():
            b = other.registers.get(register)
            if b is None or a.sites == b.sites:
                continue
            one, two = sorted(a.sites - b.sites), sorted(b.sites - a.sites)
            if len(one) != 1 or len(two) != 1 or min(one[0], two[0]) < 0:
                continue
            if one[0] in alive[1] or two[0] in alive[0] or {one[0], two[0]} & self.pinned:
                continue
            if one[0] in pairs or two[0] in taken:
                continue
            pairs[one[0]] = two[0]
            taken.add(two[0])
        renamed = {}
        for one_site, two_site in pairs.items():
            a_size, b_size = self.sizes[one_site], self.sizes[two_site]
            if a_size.at_most(b_size):
                renamed[one_site] = renamed[two_site] = self._block(b_size)
            elif b_size.at_most(a_size):
                renamed[one_site] = renamed[two_site] = self._block(a_size)
        return renamed

    # -- operands ---------------------------------------------------------------------------------

    def _value(self, arg: Arg) -> _Value:
        kind, value = arg
        if kind == _REGISTER:
            return self.state.registers.get(value, _NOTHING)
        if kind == _IMMEDIATE:
            return _Value(number=Formula.of(value))
        if kind == _FUNCTION:
            callee = self.program.functions[value]
            return _Value(function=(callee.name, ()) if callee.kind == "vm" else None)
        constant = self.program.constants[value]
        if type(constant) is NDArray:
            dims = tuple(Formula.of(int(d)) for d in constant.shape)
            return _Value(dims=dims, itemsize=int(constant.dtype.itemsize))
        if type(constant) is ShapeTuple:
            return _Value(dims=tuple(map(Formula.of, constant)))
        return _Value(number=Formula.of(constant) if type(constant) is int else None)

    def _int(self, arg: Arg) -> int:
        """A number that the verifier has found to be constant."""
        return int(self.program.constants[arg.value] if arg.kind == _CONSTANT else arg.value)

    def _constant(self, arg: Arg) -> Any:
        return self.program.constants[arg.value] if arg.kind == _CONSTANT else None

    # -- instructions -----------------------------------------------------------------------------

    def _return(self, instruction: Ret) -> None:
        value = self._value(instruction.value)
        total = _NO_BYTES
        for site in value.sites | self.pinned:
            if site < 0:
                self.trace.borrowed.add(-1 - site)
            else:
                total = total + self.sizes[site]
        self.results.append(total)

    def _call(self, call: Call) -> None:
        callee = self.program.functions[call.func]
        if callee.kind == "kernel":
            self._set(call.dst, _NOTHING)
            return
        if callee.kind == "vm":
            self._call_function(callee.name, [self._value(a) for a in call.args], call.dst)
            return
        builtin = builtin_called(self.program, call)
        if builtin is None:
            # An extern may return (a part of) what it is given.
            values = [self._value(a) for a in call.args]
            self._set(call.dst, _Value(self._union(values)))
            return
        args = builtin_args(call.args)
        follow = getattr(self, builtin.effect.name.lower(), None)
        if follow is not None:
            follow(args, call.dst)
        elif builtin.aliases:
            self._set(call.dst, _Value(self._union([self._value(a) for a in args])))
        else:
            self._set(call.dst, _NOTHING)

    def _call_function(self, name: str, values: list[_Value], dst: int) -> None:
        trace = self.callees.get(name)
        if trace is None or trace.problem:
            reason = "it may call itself" if trace is None else trace.problem
            self._give_up(reason if reason.startswith("in ") else f"in {name}: {reason}")
            return
        symbols = self._symbols_for(self.program.function(name), values)
        for late in trace.late:
            fresh = self.names.fresh(late)
            symbols[late] = Formula.symbol(fresh)
            self.trace.late.add(fresh)
        peaks = [f.substitute(symbols) for f in trace.peak.candidates]
        total, result = trace.total.substitute(symbols), trace.result.substitute(symbols)
        if total is None or result is None or any(f is None for f in peaks):
            self._give_up(f"the sizes of what it passes to {name} are not known")
            return
        for f in peaks:
            assert f is not None
            self._add(f, 1)
            self._note_peak()
            self._add(f, -1)
        self._count(total)
        borrowed = [values[i] for i in trace.borrowed if i < len(values)]
        value = _Value(self._union(borrowed))
        if result.terms:
            site = self._block(result)
            value = value._replace(sites=value.sites | {site})
        self._set(dst, value)
        self._note_peak()

    def _symbols_for(self, info: FunctionInfo, values: list[_Value]) -> dict[str, Formula]:
        """What the callee's symbols are in terms of ours."""

        def sizes_of(value: _Value, param: Any) -> tuple[Formula | None, ...] | None:
            return (value.number,) if type(param) is PrimInfo else value.dims

        return lone_symbols(info.params, values, lambda value: value.items, sizes_of)

    # -- builtins: each effect is followed by the method of its name -------------------------------

    def allocate(self, args: Sequence[Arg], dst: int) -> None:
        value = self._value(args[0])
        size = value.number if value.dims is None else _product(value.dims)
        site = self._allocate(dst, "storage", size, _NOTHING)
        if size is not None:
            self.site_of[site] = Site(self.pc, size)
            self.trace.sites.append(self.site_of[site])

    def place(self, args: Sequence[Arg], dst: int) -> None:
        storage, shape = self._value(args[0]), self._value(args[2]).dims
        dtype = self._constant(args[3])
        for site in storage.sites:
            if site in self.site_of:
                shown = ", ".join("?" if d is None else str(d) for d in shape or ())
                comma = "," if shape is not None and len(shape) == 1 else ""
                self.site_of[site].tensors.append(f"%{dst}: Tensor(({shown}{comma}), {dtype})")
        self._set(dst, _Value(storage.sites, shape, int(getattr(dtype, "itemsize", 0))))

    def kill(self, args: Sequence[Arg], dst: int) -> None:
        if args[0].kind == _REGISTER:
            self._set(args[0].value, _NOTHING)

    def same(self, args: Sequence[Arg], dst: int) -> None:
        self._set(dst, self._value(args[0]))

    def reshape(self, args: Sequence[Arg], dst: int) -> None:
        self._set(dst, self._value(args[0])._replace(dims=self._value(args[1]).dims, items=None))

    def shape(self, args: Sequence[Arg], dst: int) -> None:
        self._set(dst, _Value(dims=self._value(args[0]).dims))

    def copy(self, args: Sequence[Arg], dst: int) -> None:
        value = self._value(args[0])
        size = _product(value.dims) if value.itemsize else None
        size = None if size is None else size.scaled(value.itemsize)
        self._allocate(dst, "copy", size, value._replace(sites=frozenset()))

    def shape_tensor(self, args: Sequence[Arg], dst: int) -> None:
        dims = self._value(args[0]).dims
        rank = None if dims is None else Formula.of(len(dims))
        size = None if rank is None else rank.scaled(8)
        self._allocate(dst, "tensor", size, _Value(dims=(rank,)))

    def tuple(self, args: Sequence[Arg], dst: int) -> None:
        items = [self._value(a) for a in args]
        self._set(dst, _Value(self._union(items), items=tuple(items)))

    def item(self, args: Sequence[Arg], dst: int) -> None:
        value, index = self._value(args[0]), self._value(args[1]).number
        position = None if index is None else index.constant
        if position is not None and value.items is not None and 0 <= position < len(value.items):
            self._set(dst, value.items[position])
        elif position is not None and value.dims is not None and 0 <= position < len(value.dims):
            self._set(dst, _Value(number=value.dims[position]))
        else:
            self._set(dst, _Value(value.sites))

    def closure(self, args: Sequence[Arg], dst: int) -> None:
        first, captured = self._value(args[0]), tuple(self._value(a) for a in args[1:])
        function = first.function
        if function is not None:
            function = (function[0], captured + function[1])
        self._set(dst, _Value(self._union([first, *captured]), function=function))

    def invoke(self, args: Sequence[Arg], dst: int) -> None:
        closure, operands = self._value(args[0]), self._value(args[1])
        if closure.function is None or operands.items is None:
            if args[0].kind == _FUNCTION:
                # An extern or a builtin called as a value.
                self._give_up(f"the function called at instruction {self.pc} is not followed")
                return
            self._give_up(f"the closure called at instruction {self.pc} is known only at run time")
            return
        name, captured = closure.function
        self._call_function(name, [*operands.items, *captured], dst)

    def outlive(self, args: Sequence[Arg], dst: int) -> None:
        self._set(dst, _NOTHING)
        self._give_up(
            f"the cache at instruction {self.pc} outlives the call, and grows as it is used"
        )

    # -- symbolic shapes --------------------------------------------------------------------------

    def match_shape(self, args: Sequence[Arg], dst: int) -> None:
        value, heap = self._value(args[0]), args[1].value
        pairs = [(self._int(a), self._int(b)) for a, b in zip(args[3::2], args[4::2])]
        dims = value.dims
        known: list[Formula | None] = [None] * len(pairs)
        if dims is not None and len(dims) == len(pairs):
            known = list(dims)
        for axis, (code, number) in enumerate(pairs):
            if code == MatchCode.ASSERT_EQUAL_TO_IMM:
                known[axis] = Formula.of(number)
            elif code == MatchCode.STORE_TO_HEAP:
                known[axis] = self._store(heap, number, known[axis], args[2], axis)
            elif code == MatchCode.ASSERT_EQUAL_TO_LOAD:
                known[axis] = self.state.slots.get((heap, number), known[axis])
        self._learn(args[0], dims=tuple(known))

    def match_number(self, args: Sequence[Arg], dst: int) -> None:
        value, heap, number = self._value(args[0]), args[1].value, self._int(args[4])
        if self._int(args[3]) == MatchCode.STORE_TO_HEAP:
            stored = self._store(heap, number, value.number, args[2], 0)
            self._learn(args[0], number=stored)

    def _learn(self, arg: Arg, **known: Any) -> None:
        """The same value stays in a register; more is known of it."""
        if arg.kind == _REGISTER and arg.value in self.state.registers:
            value = self.state.registers[arg.value]
            self.state.registers[arg.value] = value._replace(**known)

    def _store(
        self, heap: int, slot: int, known: Formula | None, context: Arg, axis: int
    ) -> Formula:
        if known is None:
            name = self.names.fresh(_symbol_in(self._constant(context), axis) or f"slot{slot}")
            self.trace.late.add(name)
            known = Formula.symbol(name)
        self.state.slots[heap, slot] = known
        return known

    def compute_slot(self, args: Sequence[Arg], dst: int) -> None:
        heap, slot, program = args[0].value, self._int(args[1]), self._constant(args[2])
        size = None
        if type(program) is DimProgram:
            known = {
                name: self.state.slots[heap, int(name)]
                for name in symbols_of(program.dim)
                if (heap, int(name)) in self.state.slots
            }
            size = Formula.from_dim(program.dim, known)
        if size is None:
            self.state.slots.pop((heap, slot), None)
        else:
            self.state.slots[heap, slot] = size

    def _loaded(self, heap: int, code: int, number: int) -> Formula | None:
        if code == MakeCode.USE_IMM:
            return Formula.of(number)
        return self.state.slots.get((heap, number))

    def load_shape(self, args: Sequence[Arg], dst: int) -> None:
        heap = args[0].value
        pairs = [(self._int(a), self._int(b)) for a, b in zip(args[1::2], args[2::2])]
        dims = tuple(self._loaded(heap, code, number) for code, number in pairs)
        self._set(dst, _Value(dims=dims))

    def load_number(self, args: Sequence[Arg], dst: int) -> None:
        number = self._loaded(args[0].value, self._int(args[1]), self._int(args[2]))
        self._set(dst, _Value(number=number))

    def common_shape(self, args: Sequence[Arg], dst: int) -> None:
        shapes = [self._value(a).dims for a in args if type(self._constant(a)) is not str]
        first = shapes[0] if shapes else None
        self._set(dst, _Value(dims=first if all(s == first for s in shapes) else None))


def lone_symbols(
    infos: Iterable[Any],
    values: Iterable[Any],
    fields_of: Callable[[Any], Iterable[Any] | None],
    sizes_of: Callable[[Any, Any], Sequence[Any] | None],
) -> dict[str, Any]:
    """The symbols that stand alone in struct infos, with what is known of them from values.

    fields_of  the fields of a value that should be a tuple, None if that is not known
    sizes_of   the dimensions that a value has for a struct info, each None if it is not known
    """
    known: dict[str, Any] = {}
    stack = [*zip(infos, values)][::-1]
    while stack:
        info, value = stack.pop()
        if type(info) is TupleInfo:
            stack += [*zip(info.fields, fields_of(value) or ())][::-1]
        for dim, size in zip(dims_of(info), sizes_of(value, info) or ()):
            name = is_symbol(dim)
            if name is not None and size is not None:
                known.setdefault(name, size)
    return known


def _product(dims: Sequence[Formula | None] | None) -> Formula | None:
    total = _ONE
    for dim in (None,) if dims is None else dims:
        product = None if dim is None else total.times(dim)
        if product is None:
            return None
        total = product
    return total


def _sites_in(state: _State) -> set[int]:
    return {site for value in state.registers.values() for site in value.sites}


def _either(a: _Value, b: _Value) -> _Value:
    """What is known of a value that is `a` or `b`."""
    dims = None
    if a.dims is not None and b.dims is not None and len(a.dims) == len(b.dims):
        dims = tuple(x if x == y else None for x, y in zip(a.dims, b.dims))
    return _Value(
        a.sites | b.sites,
        dims,
        a.itemsize if a.itemsize == b.itemsize else 0,
        None,
        a.number if a.number == b.number else None,
        None,
    )


def _rename(value: _Value, renamed: dict[int, int]) -> _Value:
    if not renamed or not any(site in renamed for site in value.sites):
        return value
    return value._replace(sites=frozenset(renamed.get(site, site) for site in value.sites))


def _symbol_in(context: Any, axis: int) -> str | None:
    """The symbol that a check's text shows at `axis`: the name it has in the source."""
    name = dimension_text(context, axis)
    return name if name is not None and name.isidentifier() else None
