"""FuseOps: kernels that run better as one become one function, which FuseTIR makes a kernel.

    before:  lv = R.call_tir(cls.add, (x, y), ...)       after:  gv = cls.fused_add_relu(x, y)
             gv = R.call_tir(cls.relu, (lv,), ...)

    @R.function(private=True)
    def fused_add_relu(x, y):
        R.func_attr({"Primitive": True})
        with R.dataflow(): ...the two calls...

A group grows from a kernel to its immediate post-dominator, the nearest kernel that everything
computed of it goes through, with all on the way: so a group has one result, and nothing outside of
it waits between its members. At last a group whose result is read elsewhere too may join a reader
and give several results, if nobody else reads it before the last member. So the call of a group
stands where its last member stood, and nothing moves up. A kernel with loops for results that
nobody reads is a group, too: it becomes one without these.

What joins is decided by `fusion_rules`: by what the default schedules run well as one function.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from ...base import decided, declined, in_function
from ...ir import (
    GlobalVar,
    IRModule,
    PassContext,
    descend,
)
from ...ir.transform import module_pass, register_config
from ...tir import PrimFunc
from ...tir.analysis import OpPatternKind, op_pattern
from ...tir.schedule.plans import is_scheduled
from ..analysis.reshape_pattern import has_reshape_pattern
from ..analysis.written import maybe_written_vars
from ..expr import (
    Call,
    Function,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..flow import BIND, Event, Uses, events
from ..known_ops import CALL_TIR
from ..rewriter import Dropper
from ..struct_info import (
    TensorStructInfo,
    TupleStructInfo,
)
from .fusion_rules import (
    Group,
    Kernel,
    Read,
    refusal,
    refusal_of_results,
    refusal_of_siblings,
)
from .outline import Outliner
from .private_functions import is_opaque
from .split_kernel import Kernel as TirKernel
from .split_kernel import live_statements

register_config(
    "relax.FuseOps.max_depth",
    int,
    256,
    "the most kernels that become one",
    lambda value: value >= 1,
)


@module_pass(opt_level=0)
def FuseOps(
    mod: IRModule, ctx: PassContext, *, fuse_opt_level: int = -1, as_relay: bool = False
) -> IRModule:
    """Make private functions, marked "Primitive", of kernels that are to become one.

    fuse_opt_level  0: none; 1: those of one result; 2, or -1: those of several results, too
    as_relay        reductions end groups, and names tell each member
    """
    if fuse_opt_level == 0:
        return mod
    outliner = None
    for gv, fn in mod.items():
        if not isinstance(fn, Function) or is_opaque(fn):
            continue
        with in_function(gv):
            groups = groups_of(fn, mod, ctx, fuse_opt_level != 1, as_relay)
            if not groups:
                continue
            outliner = Outliner(mod) if outliner is None else outliner
            _outline(outliner, gv, fn, groups, as_relay)
    return mod if outliner is None else outliner.mod


def groups_of(
    fn: Function, mod: IRModule, ctx: PassContext, several: bool = True, as_relay: bool = False
) -> list[Group]:
    """The kernels of `fn` that are to become one.

    several   those of several results, too
    as_relay  nothing that follows a reduction joins it
    """
    return _Blocks(fn, mod, as_relay).groups(ctx.get("relax.FuseOps.max_depth"), several)


# -- which kernels there are -----------------------------------------------------------------------


class _Blocks:
    """The kernels of a function, block by block, and who reads what.

    readers  variable -> the events that read it, in order
    """

    def __init__(self, fn: Function, mod: IRModule, reductions_end: bool) -> None:
        self.mod, self.reductions_end = mod, reductions_end
        self.row = events(fn)
        self.readers: dict[Var, list[int]] = {}
        uses = Uses()
        for position, e in enumerate(self.row):
            read = uses.of(e.node) if e.kind is BIND else e.reads()
            for v in dict.fromkeys(read):
                self.readers.setdefault(v, []).append(position)
        self.fn = fn
        self.of_var: dict[Var, Kernel] = {}
        self.kernels: dict[int, Kernel] = {}

    def groups(self, most: int, several: bool) -> list[Group]:
        """The groups of more than one kernel."""
        for position, e in enumerate(self.row):
            if e.kind is BIND:
                self._meet(position, e)
        if not self.kernels:
            return []
        self._drop_written()
        for position, kernel in list(self.kernels.items()):
            if not self._find_readers(kernel):
                del self.kernels[position]
        ends = self._post_dominators(most)
        kernels = list(self.kernels.values())
        # From what has much to compute to what follows; then from small kernels to what they end
        # in, which may be the operand of something that follows.
        for heavy in (True, False):
            for k in kernels:
                end = ends.get(k.at)
                if end is not None and end.group is not k.group and k.group.is_heavy is heavy:
                    self._try(k, end, most)
        if several:
            for k in kernels:
                if k.at not in ends:
                    self._try_with_readers(k, most)
        if several:
            self._join_siblings(most)
        members = {
            id(k.group): k.group
            for k in kernels
            if len(k.group.members) > 1 or _computes_in_vain(k)
        }
        for k in dict.fromkeys(self.of_var.values()):
            # A circle, which would keep calls and their weights until the collector runs.
            del k.group
        return list(members.values())

    def _meet(self, position: int, e: Event) -> None:
        b = e.node
        if type(b) is not VarBinding:
            return
        value = b.value
        if type(value) is TupleGetItem and isinstance(value.tuple_value, Var):
            whole = self.of_var.get(value.tuple_value)
            if whole is not None and whole.block is e.block:
                whole.items.append(b)
                self.of_var[b.var] = whole
            return
        kernel = _kernel(position, b, e.block, self.mod, self.of_var)
        if kernel is not None:
            kernel.ends = self.reductions_end and kernel.pattern.kind is OpPatternKind.COMM_REDUCE
            self.kernels[position] = kernel
            self.of_var[b.var] = kernel

    def _drop_written(self) -> None:
        """Leave out kernels whose values are written later, or that read such values."""
        written = maybe_written_vars(self.fn, self.mod)
        if not written:
            return
        for position, kernel in list(self.kernels.items()):
            variables = [*kernel.values, kernel.binding.var, *kernel.arguments]
            if not written.isdisjoint(variables):
                del self.kernels[position]

    def _find_readers(self, kernel: Kernel) -> bool:
        """Note who reads what `kernel` gives; False if nobody does, or one reads a whole tuple."""
        projected = {id(b.var) for b in kernel.items}
        whole = any(
            id(getattr(self.row[position].node, "var", None)) not in projected
            for position in self.readers.get(kernel.binding.var, ())
        )
        kernel.readers_of = {v: self.readers.get(v, []) for v in kernel.values}
        kernel.readers = sorted({position for r in kernel.readers_of.values() for position in r})
        return bool(kernel.readers) and not (kernel.is_tuple and whole)

    # -- post-dominators ---------------------------------------------------------------------------

    def _post_dominators(self, most: int) -> dict[int, Kernel]:
        """Where everything that is computed of a kernel comes together: the next such kernel."""
        ends: dict[int, Kernel] = {}
        for position, kernel in reversed(self.kernels.items()):
            end = self._meeting(kernel, ends, most)
            if end is not None:
                ends[position] = end
        return ends

    def _meeting(self, kernel: Kernel, ends: Mapping[int, Kernel], most: int) -> Kernel | None:
        readers = [self.kernels.get(position) for position in kernel.readers]
        if not readers:
            return None
        end = readers[0]
        steps = 0
        for other in readers[1:]:
            while end is not other:
                if end is None or other is None or steps > most:
                    return None
                steps += 1
                if end.at < other.at:
                    end = ends.get(end.at)
                else:
                    other = ends.get(other.at)
        return end if end is not None and end.block is kernel.block else None

    def _between(self, kernel: Kernel, end: Kernel, most: int) -> list[Kernel] | None:
        """The kernels on the way from `kernel` to `end`, and that; None if there are too many."""

        def following(k: Kernel) -> list[Kernel]:
            return [] if k is end else [self.kernels[position] for position in k.readers]

        _, *way = islice(descend(kernel, following, once=id), most + 2)
        return sorted(way, key=lambda k: k.at) if len(way) <= most else None

    # -- joining -----------------------------------------------------------------------------------

    def _try(self, kernel: Kernel, end: Kernel, most: int) -> None:
        way = self._between(kernel, end, most)
        if way is None:
            return
        groups = {id(k.group): k.group for k in (kernel, *way)}
        why = _too_many(groups.values(), most) or refusal(kernel, way, list(groups.values()))
        if why is None:
            _join(list(groups.values()))
        elif why:
            declined(f"{{}} not fused with {{}}: {why}", kernel.binding, end.binding)

    def _join_siblings(self, most: int) -> None:
        """Join groups that read the same value, if that moves fewer bytes."""
        together: dict[Any, list[Kernel]] = {}
        for kernel in self.kernels.values():
            for value in dict.fromkeys(kernel.arguments):
                if isinstance(value, Var):
                    together.setdefault((value, id(kernel.block)), []).append(kernel)
        for kernels in together.values():
            first = kernels[0]
            for other in kernels[1:]:
                if other.group is first.group:
                    continue
                groups = sorted((first.group, other.group), key=lambda g: g.members[0].at)
                why = (
                    _too_many(groups, most)
                    or self._why_not_beside(groups)
                    or refusal_of_siblings(groups)
                )
                if why is None:
                    _join(groups)
                    continue
                if why:
                    declined(f"{{}} not fused with {{}}: {why}", first.binding, other.binding)
                first = other

    def _why_not_beside(self, groups: Sequence[Group]) -> str | None:
        """Why two groups cannot be computed where the last member of both stands."""
        last = max(g.last.at for g in groups)
        inside = {m.at for g in groups for m in g.members}
        for member in (m for g in groups for m in g.members):
            if any(position <= last and position not in inside for position in member.readers):
                return "another reads what one of them gives before both are done"
        return None

    def _try_with_readers(self, kernel: Kernel, most: int) -> None:
        """Join a kernel whose result is read elsewhere, too, with one of its readers."""
        if kernel.is_tuple or kernel.group.last is not kernel:
            return
        for position in kernel.readers:
            reader = self.kernels.get(position)
            if reader is None or reader.block is not kernel.block:
                return
            if reader.group is kernel.group:
                continue
            groups = [kernel.group, reader.group]
            last = max(groups[1].members[-1].at, kernel.at)
            inside = {m.at for g in groups for m in g.members}
            for member in (m for g in groups for m in g.members):
                if any(r <= last and r not in inside for r in member.readers):
                    declined(
                        "{} not fused with {}: another reads what one of them gives before both "
                        "are done",
                        kernel.binding,
                        reader.binding,
                    )
                    return
            why = _too_many(groups, most) or refusal_of_results(kernel, reader)
            if why is None:
                _join(groups)
            elif why:
                declined(f"{{}} not fused with {{}}: {why}", kernel.binding, reader.binding)
            return


def _too_many(groups: Any, most: int) -> str | None:
    count = sum(len(g.members) for g in groups)
    return f"{count} kernels are more than relax.FuseOps.max_depth" if count > most else None


def _join(groups: list[Group]) -> None:
    groups.sort(key=lambda g: -len(g.members))
    first = groups[0]
    for other in groups[1:]:
        first.take(other)
    first.members.sort(key=lambda k: k.at)


def _kernel(
    position: int, b: VarBinding, block: Any, mod: IRModule, of_var: Mapping[Var, Kernel]
) -> Kernel | None:
    """What is to be known of the binding `b`, if it calls a loop function that may join others."""
    call = b.value
    if not isinstance(call, Call) or call.op is not CALL_TIR:
        return None
    gv, inputs = call.args[0], call.args[1]
    fn = mod.get(gv) if isinstance(gv, GlobalVar) else None
    if not isinstance(fn, PrimFunc) or not isinstance(inputs, Tuple):
        return None
    info = call.sinfo_args[0]
    infos = info.fields if isinstance(info, TupleStructInfo) else (info,)
    tensors: tuple[Any, ...] = (*infos, *(a.struct_info for a in inputs.fields))
    if not all(isinstance(i, TensorStructInfo) and i.dims is not None for i in tensors):
        return None
    pattern = op_pattern(fn)
    if fn not in _known:
        _known[fn] = _look_at(fn)
    may_join, is_view = _known[fn]
    if not may_join:
        return None
    params = fn.params[: len(inputs.fields)]
    if any(p in pattern.writes or p not in fn.buffer_map for p in params):
        return None
    reads = []
    for p, arg in zip(params, inputs.fields):
        if isinstance(arg, Var) and (producer := of_var.get(arg)) is not None:
            reads.append(Read(producer, arg, pattern.reads.get(p, pattern.kind)))
    return Kernel(position, b, call, block, fn, pattern, tensors[: len(infos)], reads, is_view)


def _computes_in_vain(kernel: Kernel) -> bool:
    """Whether there are loops of their own for results that nobody reads."""
    if not kernel.is_tuple:
        return False
    taken = [b.value for b in kernel.items if kernel.readers_of[b.var]]
    read = {v.index for v in taken if isinstance(v, TupleGetItem)}
    results = kernel.fn.params[len(kernel.arguments) :][: len(kernel.infos)]
    buffers = [kernel.fn.buffer_map[p] for k, p in enumerate(results) if k not in read]
    whole = TirKernel(kernel.fn)
    local = {b.data for b in (*whole.allocated, *buffers)}
    return len(live_statements(whole.statements, local)) < len(whole.statements)


_known: weakref.WeakKeyDictionary[PrimFunc, tuple[bool, bool]] = weakref.WeakKeyDictionary()


def _look_at(fn: PrimFunc) -> tuple[bool, bool]:
    """Whether `fn` may join others, and whether it only gives an array another shape."""
    pattern = op_pattern(fn)
    if not pattern.plain or pattern.kind is OpPatternKind.OPAQUE or is_scheduled(fn):
        return False, False
    is_view = (
        pattern.kind <= OpPatternKind.INJECTIVE and len(fn.params) == 2 and has_reshape_pattern(fn)
    )
    # By itself that costs nothing; inside of another it takes divisions, unless axes stay.
    return not (is_view and pattern.kind is OpPatternKind.INJECTIVE), is_view


# -- groups become functions -----------------------------------------------------------------------


def _outline(
    outliner: Outliner, gv: GlobalVar, fn: Function, groups: Sequence[Group], as_relay: bool
) -> None:
    """Replace the kernels of `fn` that are in groups by calls."""
    changes: dict[int, Any] = {}
    for group in groups:
        bindings = [b for kernel in group.members for b in (kernel.binding, *kernel.items)]
        changes.update(dict.fromkeys([id(b.var) for b in bindings]))
        first, *others = group.members
        last = group.last
        if others:
            places = ", ".join(["{}"] * len(others))
            decided(f"{{}} fused with {places}", *(k.binding for k in group.members))
        else:
            decided("{} computes only those of its results that are read", first.binding)
        name = _name(group, as_relay)
        call = outliner.call(first.block, bindings, _results(group), name, {"Primitive": True})
        changes[id(last.binding.var)] = call
    outliner.mod[gv] = Dropper(changes).rewrite(fn)


def _name(group: Group, each: bool) -> str:
    stems = [k.call.args[0].name_hint.rstrip("0123456789_") for k in group.members]
    parts = ["fused", *(stem for stem in stems if stem)]
    return "_".join(parts if each else [*dict.fromkeys(parts)][:_MOST_NAMES])


_MOST_NAMES = 8


def _results(group: Group) -> list[Var]:
    """The variables of a group that are read outside of it."""
    inside = {k.at for k in group.members}
    results: list[Var] = []
    for k in group.members:
        results += k.read_outside(inside)
    return results
