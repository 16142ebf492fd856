"""A graph function as what it does: values and their operands, and its bindings in order.

    operands(R.add(x, (y, z)))        add, x, (y, z)
    leaves(R.add(x, (y, z)))          add, x, y, z
    for e in events(fn): ...          every binding, branch and result, from top to bottom

Nothing here recurses as deep as a function nests.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import (
    NamedTuple,
    Steps,
    VerifyError,
    callees_first,
    components,
    made_of_tuples,
    run_steps,
)
from ..ir import FloatImm, IntImm, Node, descend, walk
from .expr import (
    Binding,
    BindingBlock,
    Call,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from .struct_info import ShapeExpr, StructInfo
from .symbols import definable_tir_vars_in_struct_info

# -- operands -------------------------------------------------------------------------------------

_OPERANDS: dict[type, Callable[[Any], Sequence[Node]]] = {
    Call: lambda call: (call.op, *call.args),
    Tuple: lambda value: value.fields,
    TupleGetItem: lambda item: (item.tuple_value,),
    If: lambda value: (value.cond,),
}
_NO_LEAVES = (Call, Tuple, TupleGetItem)
_WITH_BODIES = (Function, SeqExpr, If)


def operands(value: Node) -> Sequence[Node]:
    """What is read when `value` is evaluated: the callee and arguments of a call, the fields of a
    tuple, the condition of an `If`. Leaves have none, nor has a function.
    """
    of = _OPERANDS.get(type(value))
    return () if of is None else of(value)


def leaves(value: Node) -> list[Node]:
    """The leaves that are read when `value` is evaluated, in order: the operands of its operands,
    down to those that have none. For a leaf, itself.
    """
    of = _OPERANDS.get(type(value))
    if of is None:
        return [value]
    read: list[Node] = []
    for each in of(value):
        if type(each) not in _OPERANDS:
            read.append(each)
        elif type(each) is Tuple and _OPERANDS.keys().isdisjoint(map(type, each.fields)):
            read += each.fields  # as the arguments of a kernel
        else:
            read += [n for n in descend(each, _inside) if type(n) not in _NO_LEAVES]
    return read


def _inside(value: Node) -> Sequence[Node]:
    """Operands of what stands as an operand itself; an `If` there is out of normal form."""
    of = None if type(value) is If else _OPERANDS.get(type(value))
    return () if of is None else of(value)


def vars_in(value: Node) -> list[Var]:
    """The variables a value reads when it is evaluated, as often as it does; those of an `If`'s
    branches excluded.

    Of a function, and of what stands where normal form has leaves, all variables count.
    """
    read: list[Var] = []
    for leaf in leaves(value):
        if isinstance(leaf, Var):
            read.append(leaf)
        elif type(leaf) in _WITH_BODIES:
            # What a function captures is among them; its own variables do no harm.
            read += [n for n in walk(leaf) if isinstance(n, Var)]
    return read


def name_of(callee: Node) -> str:
    """What messages call an operator or a function."""
    names = (getattr(callee, key, None) for key in ("global_symbol", "name", "name_hint"))
    return next((str(name) for name in names if name), "a function")


def is_symbolic(value: Node) -> bool:
    """Whether a shape or scalar that `value` reads is no constant."""
    for leaf in leaves(value):
        if isinstance(leaf, ShapeExpr):
            if not all(isinstance(d, IntImm) for d in leaf.values):
                return True
        elif isinstance(leaf, PrimValue) and not isinstance(leaf.value, (IntImm, FloatImm)):
            return True
    return False


def map_leaves(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """`value` with its arguments or fields replaced by what `leaf` gives for them, those of tuples
    in it likewise; the same object if nothing changes. A leaf is replaced itself.
    """
    if type(value) is Call:
        args = _mapped(value.args, leaf)
        return value if args is value.args else value.replace(args=args)
    if type(value) is Tuple:
        # Struct info limits how deep tuples nest.
        fields = _mapped(value.fields, leaf)
        return value if fields is value.fields else value.replace(fields=fields)
    if type(value) is TupleGetItem:
        return value.replace(tuple_value=leaf(value.tuple_value))
    return leaf(value)


def _mapped(values: tuple[Any, ...], leaf: Callable[[Any], Any]) -> tuple[Any, ...]:
    mapped = tuple([map_leaves(v, leaf) if type(v) is Tuple else leaf(v) for v in values])
    return values if all(a is b for a, b in zip(mapped, values)) else mapped


# -- events ---------------------------------------------------------------------------------------


class Kind(enum.Enum):
    """What happens in an `Event`."""

    BIND = "bind"
    """`node` is a binding, of a value without bodies that are read."""
    OPEN = "open"
    """`node` is a binding of a value with bodies (an `If`), whose events follow."""
    ENTER = "enter"
    """A body begins: the sequence `scope`."""
    RESULT = "result"
    """`node` is the result of the sequence `scope`, which ends."""
    CLOSE = "close"
    """`node` is the binding of the OPEN before; the variable is bound here."""


BIND, OPEN, ENTER, RESULT, CLOSE = Kind
BINDS = (BIND, CLOSE)
"""Where a variable is bound."""


class Scope:
    """A sequence of bindings: a function's body, or a branch of an `If`.

    owner  the binding of the `If` or inner function; None for the function that is read
    ends   its events that bind a variable, and its result: where something may be let go
    """

    __slots__ = ("depth", "ends", "owner")

    def __init__(self, depth: int, owner: Binding | None) -> None:
        self.depth = depth
        self.owner = owner
        self.ends: list[int] = []


class Event(NamedTuple):
    """One step of a function laid out in a row.

    node   see `Kind`; None where a body begins
    value  what is evaluated here: a binding's value, or a result; else None
    block  the block in which the binding `node` stands
    """

    kind: Kind
    scope: Scope
    node: Any
    value: Any
    block: BindingBlock | None

    @property
    def owner(self) -> Any:
        """The binding of the `If` or inner function in whose body this is, or None."""
        return self.scope.owner

    def reads(self) -> list[Var]:
        """The variables that are read here."""
        return [] if self.value is None else vars_in(self.value)


# Without parsing arguments: there is one for each binding, in every pass.
_event = made_of_tuples(Event)


def events(fn: Function, inner: bool = False) -> list[Event]:
    """The events of `fn` in order.

    inner  whether the bodies of inner functions are read too; else these are values like others
    """
    row: list[Event] = []
    run_steps(_read(fn.body, Scope(0, None), row, (If, Function) if inner else (If,)))
    return row


def _read(seq: SeqExpr, scope: Scope, row: list[Event], opened: tuple[type, ...]) -> Steps:
    for block in seq.blocks:
        for b in block.bindings:
            value = b.value
            if type(value) not in opened:
                scope.ends.append(len(row))
                row.append(_event((BIND, scope, b, value, block)))
                continue
            row.append(_event((OPEN, scope, b, value, block)))
            for body in bodies(value):
                within = Scope(scope.depth + 1, b)
                row.append(_event((ENTER, within, None, None, None)))
                yield _read(body, within, row, opened)
            scope.ends.append(len(row))
            row.append(_event((CLOSE, scope, b, None, block)))
    scope.ends.append(len(row))
    row.append(_event((RESULT, scope, seq.body, seq.body, None)))


def bodies(value: Node) -> tuple[SeqExpr, ...]:
    """The sequences inside `value`."""
    if isinstance(value, If):
        return value.true_branch, value.false_branch
    return (value.body,) if isinstance(value, Function) else ()


def bindings_of(fn: Function) -> list[Binding]:
    """Every binding of `fn` in order, those of branches and inner functions before the one that
    they stand in.
    """
    return [e.node for e in events(fn, inner=True) if e.kind in BINDS]


def releases(row: Sequence[Event], last_use: Mapping[Var, int]) -> dict[int, list[Var]]:
    """By event: what is used for the last time there, seen from the sequence that binds it.

    last_use  the last event that reads a variable. One inside a branch of a later `If` is no
              matter before the end of that `If`.
    Parameters are bound nowhere and not among the answers.
    """
    home = {e.node.var: e.scope for e in row if e.kind in BINDS}
    released: dict[int, list[Var]] = {}
    for var, position in last_use.items():
        if var in home:
            ends = home[var].ends
            released.setdefault(ends[bisect_left(ends, position)], []).append(var)
    return released


# -- what struct info reads -----------------------------------------------------------------------


class Uses:
    """The variables that bindings read, those named in struct info included."""

    def __init__(self) -> None:
        self._of_info: dict[int, tuple[StructInfo, list[Var]]] = {}

    def of_info(self, info: StructInfo) -> list[Var]:
        """The variables that `info` names as shapes."""
        entry = self._of_info.get(id(info))
        if entry is None:
            entry = self._of_info[id(info)] = (info, struct_info_vars(info))
        return entry[1]

    def of(self, b: Binding) -> list[Var]:
        """What `b` itself reads; what stands inside an If or a Function is not entered."""
        value = b.value
        if isinstance(value, Function):
            read: list[Var] = []
            for info in (value.ret_struct_info, *(p.struct_info for p in value.params)):
                read += self.of_info(info)
        else:
            read = vars_in(value)
        read += self.of_info(b.var.struct_info)
        if isinstance(b, MatchCast):
            read += self.of_info(b.struct_info)
        elif isinstance(value, Call):
            for info in value.sinfo_args:
                read += self.of_info(info)
            if value.struct_info is not b.var.struct_info:
                read += self.of_info(value.struct_info)
        return read


def struct_info_vars(info: StructInfo) -> list[Var]:
    """The variables that `info` names as shapes, each once."""
    return list(dict.fromkeys(n for n in walk(info) if isinstance(n, Var)))


# -- order ----------------------------------------------------------------------------------------


def in_order(bindings: Sequence[Binding]) -> list[Binding]:
    """`bindings` without effects, each after what it needs, symbols of casts among it; else as they
    stand. Raises VerifyError for those that need one another.
    """
    uses = Uses()
    bound = {b.var: b for b in bindings}
    casts: dict[Any, Var] = {
        symbol: b.var
        for b in bindings
        if isinstance(b, MatchCast)
        for symbol in definable_tir_vars_in_struct_info(b.struct_info)
    }
    needs: dict[Var, list[Var]] = {}
    for var, b in bound.items():
        read = uses.of(b)
        if isinstance(b.value, Function):
            # What is in it it captures, but for its own; it may call itself.
            read += [v for v in vars_in(b.value) if v is not var]
        if casts:
            read += [casts[n] for n in walk(b) if n in casts and casts[n] is not var]
        needs[var] = [
            v for v in read if v in bound and not (v is var and type(b.value) is Function)
        ]
    for group in components(bound, needs):
        if len(group) > 1 or group[0] in needs[group[0]]:
            names = ", ".join(v.name_hint for v in group)
            raise VerifyError(f"values that need one another: {names}")
    return [bound[v] for v in callees_first(bound, needs)]
