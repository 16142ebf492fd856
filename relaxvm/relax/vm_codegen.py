"""Graph functions in their final form to bytecode.

Enters: functions whose bindings are calls of kernels, graph functions, packed functions, closures,
`R.vm.*` and ``vm.builtin.*``, tuples, branches and names. Leaves: the same through an
`ExecBuilder`.

Registers: parameters first. A name (``y = x``, `match_cast`) shares the register of what it names,
a constant has none. The registers of memory (storages, tensors in them, and what may alias them)
are written once, so that the machine can prepare them before the first call; all others are reused
after the last use of what they held. Both branches of an `If` write one register, directly where
the branch computes its result, else by a ``vm.builtin.move``. A function that calls itself last of
all moves the arguments into its parameters and jumps to its beginning, where they are checked; so
does one that calls another which comes back to it, whose instructions follow (see `tail_calls`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import UNKNOWN, CodegenError, NameSupply, RelaxvmError, add_note
from ..ir import FloatImm, GlobalVar, IntImm, IRModule, Op
from ..runtime import Builtin, Builtins, DimProgram, ExecBuilder, Label, NDArray, wrap_unchecked
from ..runtime.bytecode import VOID, Arg, ArgKind
from ..tir import PrimFunc
from .donate import donated_params
from .expr import (
    Call,
    Constant,
    DataTypeImm,
    ExternFunc,
    Function,
    PrimValue,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    source_of,
)
from .flow import (
    BIND,
    BINDS,
    CLOSE,
    ENTER,
    OPEN,
    RESULT,
    Event,
    Scope,
    events,
    releases,
    vars_in,
)
from .known_ops import (
    CALL_BUILTIN_WITH_CTX,
    CALL_TIR_DYN,
    INVOKE_CLOSURE,
    INVOKE_PURE_CLOSURE,
    VM_ALLOC_STORAGE,
    VM_ALLOC_TENSOR,
    VM_KILL_OBJECT,
    builtin_of,
)
from .struct_info import Expr, PrimStructInfo, ShapeExpr, ShapeStructInfo, TupleStructInfo
from .tail_calls import find_tail_calls, ordered_moves, tail_circles
from .vm_info import Names, runtime_info


def public_name(gv: GlobalVar, fn: Any) -> str:
    """The name of a function in the executable: its global symbol; for kernels and private
    functions, that in the module.
    """
    symbol = fn.get_attr("global_symbol") if isinstance(fn, Function) else None
    return str(symbol or gv.name_hint)


def emit_functions(mod: IRModule, builder: ExecBuilder | None = None) -> ExecBuilder:
    """The bytecode of every graph function of `mod`, in `builder` (None: a new one).

    Raises CodegenError naming function and binding.
    """
    builder = builder or ExecBuilder()
    constants: dict[int, tuple[NDArray, Arg]] = {}
    functions = {gv.name_hint: fn for gv, fn in mod.items() if isinstance(fn, Function)}
    rows = {name: events(fn) for name, fn in functions.items()}
    circles = tail_circles(rows)
    for name, fn in functions.items():
        names, params = Names(), NameSupply(joint="_")
        with builder.function(
            public_name(mod.get_global_var(name), fn),
            num_inputs=len(fn.params),
            param_names=[params.fresh(p.name_hint or "arg") for p in fn.params],
            params_sinfo=[runtime_info(p.struct_info, names) for p in fn.params],
            ret_sinfo=runtime_info(fn.ret_struct_info, names),
            donated=donated_params(fn, name),
        ):
            registers = _Registers()
            together = (name, *circles.get(name, ()))
            entries = {n: _Entry(functions[n], builder, registers) for n in together}
            for each in together:
                _FunctionCodegen(
                    entries[each], rows[each], mod, builder, constants, registers, entries
                ).emit()
    return builder


class _Registers:
    """The registers of an executable's function, given out one by one."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def fresh(self) -> int:
        """One that nobody had before."""
        self.count += 1
        return self.count - 1


class _Entry:
    """Where the instructions of a graph function begin.

    params  the registers in which they find the arguments
    """

    __slots__ = ("beginning", "fn", "params")

    def __init__(self, fn: Function, builder: ExecBuilder, registers: _Registers) -> None:
        self.fn = fn
        self.beginning = builder.label()
        self.params = [builder.r(registers.fresh()) for _ in fn.params]


class _Branch:
    """An `If` being emitted: where its branches end up.

    seen     branches emitted so far
    reached  whether the end of one of them is
    """

    __slots__ = ("after", "otherwise", "reached", "result", "seen")

    def __init__(self, otherwise: Label, after: Label, result: Arg | None) -> None:
        self.otherwise = otherwise
        self.after = after
        self.result = result
        self.seen = 0
        self.reached = False


class _FunctionCodegen:
    """Emits one function, going through its events once."""

    def __init__(
        self,
        entry: _Entry,
        events: list[Event],
        mod: IRModule,
        builder: ExecBuilder,
        constants: dict[int, tuple[NDArray, Arg]],
        registers: _Registers,
        entries: dict[str, _Entry],
    ) -> None:
        """Emits at `entry`.

        constants  arrays that are in the builder already, by identity
        entries    the functions that a tail call may jump to, by their names in the module
        """
        self.mod = mod
        self.b = builder
        self.constants = constants
        self.events = events
        self.entry = entry
        self.entries = entries
        self.tail_calls = find_tail_calls(events, entries)
        # Set after a jump to the beginning, until a place is reached that others jump to.
        self.gone = False
        self.place: dict[Var, Arg] = dict(zip(entry.fn.params, entry.params))
        self.registers = registers
        self.free: list[int] = []
        self.owned: dict[Var, int] = {}
        self.branches: list[_Branch] = []
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Find last uses, and the variables that can be computed right into the register of an
        `If`.
        """
        scope_of: dict[Var, Scope] = {}
        root: dict[Var, Var] = {}
        last_use: dict[Var, int] = {}
        self.result_of: dict[Var, Var] = {}
        self.last_work = 0
        for position, e in enumerate(self.events):
            value = e.value
            if e.kind in BINDS:
                scope_of[e.node.var] = e.scope
                if isinstance(value, Var):
                    root[e.node.var] = root.get(value, value)
            if e.kind is RESULT:
                origin = root.get(value, value)
                if e.owner is not None and scope_of.get(origin) is e.scope:
                    self.result_of[origin] = e.owner.var
            elif not (isinstance(value, Call) and value.op is VM_KILL_OBJECT):
                self.last_work = position
            for v in e.reads():
                last_use[root.get(v, v)] = position
        self.root = root
        self.used = set(last_use)
        self.last_use = last_use
        self.released = releases(self.events, last_use)

    # -- the walk ---------------------------------------------------------------------------------

    def emit(self) -> None:
        self.b.place(self.entry.beginning)
        for position, e in enumerate(self.events):
            binding = e.owner if e.kind in (ENTER, RESULT) else e.node
            self.b.source = UNKNOWN if binding is None else source_of(binding)
            try:
                self._event(position, e)
            except RelaxvmError as error:
                if e.kind is not BIND:
                    raise
                add_note(error, f"in the binding of {e.node.var.name_hint}")
                raise
            for v in self.released.get(position, ()):
                register = self.owned.pop(v, None)
                if register is not None:
                    self.free.append(register)

    def _event(self, position: int, e: Event) -> None:
        if e.kind is CLOSE:
            branch = self.branches.pop()
            self.b.place(branch.after)
            self.gone = not branch.reached
        elif e.kind is RESULT and e.owner is not None:
            self._end_branch(e.node)
        elif self.gone or e.kind is ENTER:
            return
        elif position in self.tail_calls:
            self._tail_call(e.node.value, self.tail_calls[position])
        elif e.kind is BIND:
            self._bind(position, e.node.var, e.node.value)
        elif e.kind is OPEN:
            self._begin_branches(e.node)
        else:
            self.b.emit_ret(self._object(e.node))

    def _begin_branches(self, binding: Any) -> None:
        var, value = binding.var, binding.value
        cond = self._condition(value.cond)
        result = None
        if var in self.used:
            result = self._register_of(var, reusable=False)
            self.place[var] = result
        branch = _Branch(self.b.label(), self.b.label(), result)
        self.branches.append(branch)
        self.b.emit_if(cond, branch.otherwise)

    def _condition(self, cond: Expr) -> Arg:
        value = self._arg(cond)
        if isinstance(cond, Var) and _in_register(value):
            return value
        register = self._new_register()
        self.b.emit_call(Builtins.READ_IF_COND, [value], dst=register)
        return register

    def _end_branch(self, result: Expr) -> None:
        branch = self.branches[-1]
        if branch.result is not None and not self.gone:
            if isinstance(result, Tuple):
                self._emit(Builtins.MAKE_TUPLE, result.fields, branch.result)
            else:
                value = self._object(result)
                if value != branch.result:
                    self.b.emit_call(Builtins.MOVE, [value], dst=branch.result)
        branch.seen += 1
        branch.reached = branch.reached or not self.gone
        if branch.seen == 1:
            if not self.gone:
                self.b.emit_goto(branch.after)
            self.b.place(branch.otherwise)
        self.gone = False

    # -- bindings ---------------------------------------------------------------------------------

    def _bind(self, position: int, var: Var, value: Expr) -> None:
        if isinstance(value, Call):
            self._call(position, var, value)
        elif isinstance(value, Tuple):
            if var in self.used:
                self._emit(Builtins.MAKE_TUPLE, value.fields, self._destination(var, False))
        elif isinstance(value, TupleGetItem):
            if var in self.used:
                args = (value.tuple_value, PrimValue(value.index))
                self._emit(Builtins.TUPLE_GETITEM, args, self._destination(var, False))
        elif isinstance(value, Function):
            raise CodegenError("an inner function is left; run LambdaLift first")
        else:
            self.place[var] = self._arg(value)

    def _call(self, position: int, var: Var, call: Call) -> None:
        op = call.op
        if op is VM_KILL_OBJECT:
            self._kill(position, call)
            return
        if isinstance(op, Var) or op in _CLOSURE_CALLS:
            closure, args = (op, Tuple(call.args)) if isinstance(op, Var) else call.args
            self._emit(Builtins.INVOKE_CLOSURE, (closure, args), self._destination(var, True))
            return
        name, operands = self._callee(call)
        if name is Builtins.NULL_VALUE:
            self.place[var] = self.b.void_arg()
            return
        if var in self.used and call.struct_info is _NOTHING and not self._is_graph(op):
            # Loop functions and others give no object at all; what reads `var` wants a tuple.
            self._emit(name, operands, self.b.void_arg())
            self._emit(Builtins.MAKE_TUPLE, (), self._destination(var, False))
            return
        memory = isinstance(name, Builtin) and (name.aliases or name is Builtins.ALLOC_STORAGE)
        self._emit(name, operands, self._destination(var, not memory))

    def _is_graph(self, op: Any) -> bool:
        return isinstance(op, GlobalVar) and isinstance(self.mod.get(op), Function)

    def _tail_call(self, call: Call, kills: list[Call]) -> None:
        """A call of this function, or of one that comes back to it, of which it returns the
        value.
        """
        assert isinstance(call.op, GlobalVar)
        target = self.entries[call.op.name_hint]
        moves = [(to.value, self._object(a)) for to, a in zip(target.params, call.args)]
        for register, source in ordered_moves(moves, self.registers.fresh):
            self.b.emit_call(Builtins.MOVE, [source], dst=self.b.r(register))
        let_go = {place for kill in kills for v in vars_in(kill) if (place := self.place.get(v))}
        let_go.difference_update(target.params)
        if target is not self.entry:
            # The next round moves values here before they are read.
            let_go.update(map(self.place.__getitem__, filter(_holds_memory, self.entry.fn.params)))
        for place in sorted(filter(_in_register, let_go)):
            self.b.emit_call(Builtins.KILL_OBJECT, [place])
        self.b.emit_goto(target.beginning)
        self.gone = True

    def _callee(self, call: Call) -> tuple[str | Builtin, tuple[Expr, ...]]:
        """The builtin, or the name of what a call calls in the executable, and the arguments."""
        op, args = call.op, call.args
        if isinstance(op, GlobalVar):
            fn = self.mod.get(op)
            if isinstance(fn, (PrimFunc, Function)):
                return public_name(op, fn), args
            raise CodegenError(f"the module has no function {op.name_hint} that could be called")
        if isinstance(op, ExternFunc):
            return builtin_of(op) or op.global_symbol, args
        if isinstance(op, Op):
            if op is CALL_BUILTIN_WITH_CTX and isinstance(args[0], ExternFunc):
                operands = args[1].fields if isinstance(args[1], Tuple) else (args[1],)
                return builtin_of(args[0]) or args[0].global_symbol, operands
            name = _VM_OPS.get(op)
            if name is not None:
                return name, args
            raise CodegenError(
                f"{op.name} is not an operation of the virtual machine; lower it first (the build "
                f"pipeline does, or LegalizeOps for operators)"
            )
        raise CodegenError(f"{type(op).__name__} cannot be called")

    def _kill(self, position: int, call: Call) -> None:
        for v in vars_in(call):
            origin = self.root.get(v, v)
            place = self.place.get(v)
            # What is let go right before the function returns goes with its registers anyway.
            if position > self.last_work or place is None or self.last_use[origin] > position:
                continue
            if _in_register(place):
                self.b.emit_call(Builtins.KILL_OBJECT, [place])

    def _emit(self, name: str | Builtin, args: tuple[Expr, ...], dst: Arg) -> None:
        temporaries: list[Arg] = []
        if name is Builtins.SHAPE_EXPR:
            program = DimProgram(_program(args[2]))
            operands = [self._arg(args[0]), self._arg(args[1]), self.b.convert_constant(program)]
        else:
            operands = [self._arg(a, temporaries) for a in args]
        self.b.emit_call(name, operands, dst=dst)
        self.free.extend(t.value for t in temporaries)

    # -- operands ---------------------------------------------------------------------------------

    def _arg(self, value: Expr, temporaries: list[Arg] | None = None) -> Arg:
        """`value` as an argument; a tuple is put together first."""
        if isinstance(value, Var):
            place = self.place.get(value)
            if place is None:
                raise CodegenError(f"variable {value.name_hint} is used before it is bound")
            return place
        if isinstance(value, Constant):
            return self._constant(value.data)
        make = _LEAVES.get(type(value))
        if make is not None:
            return make(self.b, value)
        if isinstance(value, GlobalVar):
            fn = self.mod.get(value)
            return self.b.f(value.name_hint if fn is None else public_name(value, fn))
        if isinstance(value, Tuple):
            register = self._new_register()
            inner: list[Arg] = []
            fields = [self._arg(f, inner) for f in value.fields]
            self.b.emit_call(Builtins.MAKE_TUPLE, fields, dst=register)
            self.free.extend(t.value for t in inner)
            if temporaries is not None:
                temporaries.append(register)
            return register
        raise CodegenError(
            f"{type(value).__name__} cannot stand as an argument; run Normalize first"
        )

    def _constant(self, data: NDArray) -> Arg:
        """`data` as a constant that nothing in the program can write to."""
        known = self.constants.get(id(data))
        if known is None:
            frozen = data.array.view()
            frozen.flags.writeable = False
            constant = self.b.convert_constant(wrap_unchecked(frozen, data.dtype, data.device))
            known = self.constants[id(data)] = (data, constant)
        return known[1]

    def _object(self, value: Expr) -> Arg:
        """`value` as something that can be returned or kept: functions become closures."""
        arg = self._arg(value)
        if arg.kind == ArgKind.FUNCTION:
            register = self._new_register()
            self.b.emit_call(Builtins.MAKE_CLOSURE, [arg], dst=register)
            return register
        return arg

    def _destination(self, var: Var, reusable: bool) -> Arg:
        if var not in self.used:
            return self.b.void_arg()
        register = self._register_of(var, reusable)
        self.place[var] = register
        return register

    def _register_of(self, var: Var, reusable: bool) -> Arg:
        target = self.result_of.get(var)
        if target is not None and target in self.place:
            return self.place[target]
        register = self._new_register() if reusable else self._fresh_register()
        if reusable:
            self.owned[var] = register.value
        return register

    def _new_register(self) -> Arg:
        return self.b.r(self.free.pop()) if self.free else self._fresh_register()

    def _fresh_register(self) -> Arg:
        return self.b.r(self.registers.fresh())


def _in_register(arg: Arg) -> bool:
    return arg.kind == ArgKind.REGISTER and arg.value < VOID


def _holds_memory(param: Var) -> bool:
    return not isinstance(param.struct_info, (PrimStructInfo, ShapeStructInfo))


_NOTHING = TupleStructInfo(())
_CLOSURE_CALLS = (INVOKE_CLOSURE, INVOKE_PURE_CLOSURE)
_VM_OPS = {
    VM_ALLOC_STORAGE: Builtins.ALLOC_STORAGE,
    VM_ALLOC_TENSOR: Builtins.ALLOC_TENSOR,
    CALL_TIR_DYN: Builtins.CALL_TIR_DYN,
}


def _program(items: Expr) -> Any:
    assert isinstance(items, Tuple)
    entries: list[Any] = []
    for item in items.fields:
        if isinstance(item, StringImm):
            entries.append(item.value)
        elif isinstance(item, PrimValue) and isinstance(item.value, IntImm):
            entries.append(int(item.value))
        else:
            raise CodegenError(f"a dimension program holds numbers and names, got {item!r}")
    return entries[0] if len(entries) == 1 and isinstance(entries[0], int) else tuple(entries)


def _prim(b: ExecBuilder, value: Any) -> Arg:
    scalar = value.value
    if isinstance(scalar, IntImm):
        return (
            b.convert_constant(bool(scalar.value)) if scalar.dtype.is_bool else b.imm(scalar.value)
        )
    if isinstance(scalar, FloatImm):
        return b.convert_constant(scalar.value)
    raise CodegenError(f"the scalar {scalar!r} is not a constant; VMShapeLower computes it first")


def _shape(b: ExecBuilder, value: Any) -> Arg:
    if all(isinstance(d, IntImm) for d in value.values):
        return b.convert_constant(tuple(int(d) for d in value.values))
    raise CodegenError("the shape is not constant; VMShapeLower makes it first")


_LEAVES: dict[type, Callable[[ExecBuilder, Any], Arg]] = {
    PrimValue: _prim,
    StringImm: lambda b, value: b.convert_constant(str(value.value)),
    DataTypeImm: lambda b, value: b.convert_constant(value.value),
    ShapeExpr: _shape,
    ExternFunc: lambda b, value: b.f(value.global_symbol),
}
