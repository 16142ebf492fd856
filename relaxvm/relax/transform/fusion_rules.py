"""What may become one kernel: what the default schedules run no slower than its parts.

Kernels are *light* (elementwise, broadcast, injective) or *heavy*: they reduce, have windows, or
go over rows several times. A group has one heavy kernel at most. What follows it reads the result
where it writes its own; what comes before it is read once.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Container, Sequence
from dataclasses import field
from typing import Any

from ...base import NamedTuple, record
from ...ir import FloatImm, IntImm, PrimExpr, walk
from ...tir import BufferLoad, BufferStore, PrimFunc
from ...tir.analysis import OpPattern, OpPatternKind
from ...tir.schedule.plans import LARGEST, MOST_BUFFERS, cost_of
from ..expr import Tuple, Var, VarBinding
from ..struct_info import Expr, TensorStructInfo, TupleStructInfo

_ELEMWISE = OpPatternKind.ELEMWISE
_BROADCAST = OpPatternKind.BROADCAST
_INJECTIVE = OpPatternKind.INJECTIVE
_COMM_REDUCE = OpPatternKind.COMM_REDUCE

_costs: weakref.WeakKeyDictionary[PrimFunc, int] = weakref.WeakKeyDictionary()


class Read(NamedTuple):
    """A kernel reads a value of the kernel `producer`, in the way `how`."""

    producer: Kernel
    value: Var
    how: OpPatternKind


@record(values=False, frozen=False)
class Kernel:
    """A call of a loop function that may join others.

    at        the event that binds its result
    infos     what it gives
    reads     what it reads of other such kernels
    is_view   whether it only gives an array another shape, which costs nothing
    ends      whether nothing that follows it joins it
    items     bindings of the fields of its result, if that is a tuple
    readers   the events that read what it gives, in order, and those of each of its values
    """

    at: int
    binding: VarBinding
    call: Any
    block: Any
    fn: PrimFunc
    pattern: OpPattern
    infos: tuple[TensorStructInfo, ...]
    reads: list[Read]
    is_view: bool
    ends: bool = False
    items: list[VarBinding] = field(default_factory=list)
    readers: list[int] = field(default_factory=list)
    readers_of: dict[Var, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.group = Group(self)

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """The tensors it is called with."""
        inputs: Any = self.call.args[1]
        return inputs.fields if isinstance(inputs, Tuple) else ()

    @property
    def is_tuple(self) -> bool:
        """Whether it gives several tensors."""
        return isinstance(self.call.sinfo_args[0], TupleStructInfo)

    @property
    def values(self) -> list[Var]:
        """The variables of the tensors that it gives."""
        return [b.var for b in self.items] if self.is_tuple else [self.binding.var]

    @property
    def is_light(self) -> bool:
        """Whether each element of its result takes one of each argument."""
        return self.pattern.kind <= _INJECTIVE

    @property
    def is_elementwise(self) -> bool:
        return self.pattern.kind <= _BROADCAST

    @property
    def cost(self) -> int:
        """Operations for an element of the result, as the schedules count them; moving costs
        nothing.
        """
        cost = _costs.get(self.fn)
        if cost is None:
            stores = (n for n in walk(self.fn.body) if isinstance(n, BufferStore))
            moves = (BufferLoad, IntImm, FloatImm)
            values = [s.value for s in stores if not isinstance(s.value, moves)]
            cost = _costs[self.fn] = sum(map(cost_of, values))
        return cost

    def read_outside(self, inside: Container[int]) -> list[Var]:
        """The variables of what it gives that are read by others than those events."""
        return [
            v for v in self.values if any(position not in inside for position in self.readers_of[v])
        ]

    @property
    def numel(self) -> tuple[int, tuple[PrimExpr, ...]]:
        """How many elements its (first) result has: a number, times sizes that are not known."""
        known, unknown = 1, []
        for d in self.infos[0].dims or ():
            if isinstance(d, IntImm):
                known *= d.value
            else:
                unknown.append(d)
        return known, tuple(sorted(unknown, key=id))


class Group:
    """Kernels that become one, in order. `heavy` is the one that is not light, or None."""

    def __init__(self, kernel: Kernel) -> None:
        self.members = [kernel]
        self.heavy = None if kernel.is_light else kernel

    @property
    def is_heavy(self) -> bool:
        return self.heavy is not None

    @property
    def last(self) -> Kernel:
        return self.members[-1]

    def take(self, other: Group) -> None:
        """Take the members of another group."""
        for member in other.members:
            member.group = self
        self.members += other.members
        self.heavy = self.heavy or other.heavy


# -- one result ------------------------------------------------------------------------------------


def refusal(kernel: Kernel, way: Sequence[Kernel], groups: Sequence[Group]) -> str | None:
    """Why `kernel` and those that follow it, up to the last of `way`, are not to be one; "" where
    nobody would expect it; None if they are.
    """
    if all(m.is_view for m in kernel.group.members):
        # It costs nothing by itself, and inside of another hides from schedules what is read.
        return ""
    inside = {kernel, *way}
    if sum(g.is_heavy for g in groups) > 1:
        return "each of them computes much for itself"
    if sum(m.cost for g in groups for m in g.members if m.is_light) > LARGEST:
        return "one loop would compute too much"
    for w in way:
        for read in w.reads:
            if read.producer in inside:
                why = _why_not_read(read, w, kernel.group.is_heavy)
                if why is not None:
                    return why
    return None


def _why_not_read(read: Read, reader: Kernel, heavy: bool) -> str | None:
    if read.producer.ends:
        return "a reduction ends a group"
    if heavy and not reader.is_elementwise:
        return "that is no elementwise operator"
    if read.how is _ELEMWISE or (read.how is _COMM_REDUCE and not heavy):
        return None
    if heavy:
        return "its result is read in another order"
    if read.how > _INJECTIVE:
        return "that reads its elements again and again"
    if read.producer.cost == 0:
        return None
    if read.how is _INJECTIVE and _at_most(reader.numel, read.producer.numel):
        return None
    return "its elements would be computed again and again"


def _at_most(a: tuple[int, Any], b: tuple[int, Any]) -> bool:
    return a[0] <= b[0] and a[1] == b[1]


# -- several results -------------------------------------------------------------------------------


def refusal_of_results(kernel: Kernel, reader: Kernel) -> str | None:
    """Why the group of `kernel`, whose result is read elsewhere, too, and that of `reader` are not
    to be one.
    """
    groups = (kernel.group, reader.group)
    if groups[0].is_heavy:
        return "what it gives is read elsewhere, too"
    members = [m for g in groups for m in g.members if m is not g.heavy]
    if not all(m.is_elementwise for m in members):
        return "what it gives is read elsewhere, too"
    if sum(m.cost for m in members) > LARGEST:
        return "one loop would compute too much"
    wanted = _ELEMWISE if reader.is_light else _COMM_REDUCE
    if any(r.how is not wanted for r in reader.reads if r.producer is kernel):
        return "what it gives is read elsewhere, too, and here in another order"
    if reader.group.heavy is None and kernel.numel != reader.group.last.numel:
        return "their results are of different sizes"
    return None


# -- one argument ----------------------------------------------------------------------------------


# Bytes that have to be saved: what stays in the caches next to the core is read again for nothing.
_WORTH_BYTES = 1 << 15


def refusal_of_siblings(groups: Sequence[Group]) -> str | None:
    """Why two groups that read the same, and nothing of one another, are not to be one; "" where
    nobody would expect it.
    """
    members = [m for g in groups for m in g.members]
    if not all(m.is_elementwise for m in members) or len({m.numel for m in members}) > 1:
        return ""
    if len({v for m in members for v in (*m.arguments, *m.values)}) > MOST_BUFFERS:
        return ""
    if sum(m.cost for m in members) > LARGEST:
        return "one loop would compute too much"
    saved = sum(moved_bytes(g.members) for g in groups) - moved_bytes(members)
    return "they would not read much less" if saved < _WORTH_BYTES else None


def moved_bytes(members: Sequence[Kernel]) -> int:
    """How many bytes kernels that run as one read from memory and write to it; sizes that are not
    known count as `_TYPICAL`.
    """
    inside = {m.at for m in members}
    read = {v: v.struct_info for m in members for v in m.arguments}
    for m in members:
        for own in m.values:
            read.pop(own, None)
    written = [v.struct_info for m in members for v in m.read_outside(inside)]
    return sum(map(_bytes_of, (*read.values(), *written)))


_TYPICAL = 128


def _bytes_of(info: Any) -> int:
    sizes = [d.value if isinstance(d, IntImm) else _TYPICAL for d in info.dims or ()]
    return math.prod(sizes) * int(info.dtype.itemsize)
