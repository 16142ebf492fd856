"""MergeCompositeFunctions: fused functions for the same code generator become one for it.

    before:  lv = cls.fused_matmul(x, w)     # {"Composite": "numpy.matmul"}
             gv = cls.fused_relu(lv)         # {"Composite": "numpy.relu"}
    after:   gv = cls.fused_matmul_numpy(x, w)

    @R.function
    def fused_matmul_numpy(x, w):
        R.func_attr({"Codegen": "numpy"})    # calls both, functions inside of it
        ...

Calls are merged along the values that they pass on, within a dataflow block, as far as nothing
outside of them stands between: else what they become would need its own result.
"""

from __future__ import annotations

from typing import Any

from ...base import in_function
from ...ir import GlobalVar, IRModule, Node, PassContext, descend
from ...ir.transform import module_pass
from ...ir.walk import transform
from ..analysis.vars import all_global_vars
from ..expr import Binding, Call, DataflowBlock, DataflowVar, Function, Var, VarBinding
from ..flow import Uses, events, in_order, vars_in
from ..struct_info import StructInfo
from ..substitute import copy_with_new_vars
from .outline import Outliner


@module_pass(opt_level=0)
def MergeCompositeFunctions(mod: IRModule, ctx: PassContext) -> IRModule:
    """Make public functions, marked with the code generator (``Codegen``), of the calls of fused
    functions (``Composite``: "generator.what") that pass values on to one another.
    """
    composites = {
        gv.name_hint: fn
        for gv, fn in mod.items()
        if isinstance(fn, Function) and fn.get_attr("Composite")
    }
    if not composites:
        return mod
    outliner = Outliner(mod)
    merger = _Merger(composites, outliner)
    for gv, fn in mod.items():
        if isinstance(fn, Function) and gv.name_hint not in composites:
            with in_function(gv):
                outliner.mod[gv] = merger.function(fn)
    if all(outliner.mod[gv] is fn for gv, fn in mod.items()):
        return mod
    used = {g.name_hint for f in outliner.mod.functions.values() for g in _called(f)}
    for name, fn in composites.items():
        if name not in used and fn.get_attr("global_symbol") is None:
            del outliner.mod[name]
    return outliner.mod


def _called(fn: Any) -> list[GlobalVar]:
    return all_global_vars(fn) if isinstance(fn, Function) else []


def _read_outside(fn: Function) -> dict[Var, set[Any]]:
    """By variable: the variables of the bindings that read it; None for a result or a condition."""
    uses = Uses()
    read: dict[Var, set[Any]] = {}
    for e in events(fn, inner=True):
        binds = isinstance(e.node, Binding) and e.value is not None
        for v in uses.of(e.node) if binds else e.reads():
            read.setdefault(v, set()).add(e.node.var if binds else None)
    return read


class _Region:
    """Calls that become one function, or a binding that stays as it is.

    generator  the code generator of the calls; None for another binding
    needs      other regions whose values it reads
    is_needed  whether another one may need it
    """

    def __init__(self, generator: str | None, member: Binding) -> None:
        self.generator = generator
        self.members = [member]
        self.needs: dict[_Region, None] = {}
        self.is_needed = False
        self.into: _Region | None = None

    def now(self) -> _Region:
        """The region that it belongs to."""
        region = self
        while region.into is not None:
            region = region.into
        if self is not region:
            self.into = region
        return region

    def need(self, other: _Region) -> None:
        """Note that it reads a value of `other`."""
        self.needs[other] = None
        other.is_needed = True

    def waits_for(self, other: _Region) -> bool:
        """Whether it needs `other` by way of something else than itself and `other`."""

        def needed(region: _Region) -> list[_Region]:
            regions = [r.now() for r in region.needs]
            return [r for r in regions if r is not other] if region is self else regions

        return other.is_needed and any(r is other for r in descend(self, needed, id))


class _Merger:
    """Merges the calls of `composites` in the blocks of functions."""

    def __init__(self, composites: dict[str, Function], outliner: Outliner) -> None:
        self.composites, self.made = composites, outliner

    def function(self, fn: Function) -> Function:
        """`fn` with regions made calls; the same object if it calls no composites."""
        if fn.get_attr("Codegen"):
            return fn
        self.read = _read_outside(fn)
        return transform(
            fn,
            lambda n: self.block(n) if isinstance(n, DataflowBlock) else None,
            pre=lambda n: n if isinstance(n, (Call, Var, StructInfo)) else None,
        )

    def block(self, block: DataflowBlock) -> Node | None:
        """What becomes of `block`; None if there is nothing to be done."""
        regions = self.regions(block)
        if not regions:
            return None
        places = {b.var: i for i, b in enumerate(block.bindings)}
        for region in regions:
            region.members.sort(key=lambda b: places[b.var])
        ends = {r.members[-1].var: r for r in regions}
        inside = {b.var for r in regions for b in r.members}
        out: list[Binding] = []
        for b in block.bindings:
            if b.var in ends:
                out += self.call(ends[b.var], block)
            elif b.var not in inside:
                out.append(b)
        return block.replace(bindings=tuple(in_order(out)))

    def regions(self, block: DataflowBlock) -> list[_Region]:
        """The regions of `block`, in order."""
        uses = Uses()
        region_of: dict[Var, _Region] = {}
        for b in block.bindings:
            inputs = uses.of(b)
            if isinstance(b.value, Function):
                inputs += vars_in(b.value)
            own = _Region(self.generator(b), b)
            like: list[_Region] = []
            for producer in dict.fromkeys(region_of[v].now() for v in inputs if v in region_of):
                if own.generator is not None and producer.generator == own.generator:
                    like.append(producer)
                else:
                    own.need(producer)
            region_of[b.var] = own
            # After what it needs in any case is known.
            for producer in like:
                _join_or_need(own.now(), producer.now())
        regions = dict.fromkeys(r.now() for r in region_of.values())
        return [r for r in regions if r.generator is not None]

    def generator(self, b: Binding) -> str | None:
        """The code generator that `b` calls a fused function of; None if it does not."""
        name = getattr(b.value.op, "name_hint", None) if isinstance(b.value, Call) else None
        fn = self.composites.get(name) if type(b) is VarBinding and name is not None else None
        return None if fn is None else str(fn.get_attr("Composite")).partition(".")[0]

    def call(self, region: _Region, block: DataflowBlock) -> list[Binding]:
        """The call of a function for `region`."""
        inside = {b.var for b in region.members}
        bindings: list[Binding] = []
        for b in region.members:
            call: Any = b.value
            fn = copy_with_new_vars(self.composites[call.op.name_hint])
            local = DataflowVar("local_func", fn.struct_info)
            called = Call(local, call.args, struct_info=call.struct_info, span=call.span)
            bindings += [VarBinding(local, fn, b.span), b.replace(value=called)]
        results = [b.var for b in region.members if not self.read.get(b.var, set()) <= inside]
        first: Any = region.members[0].value
        return self.made.call(
            block,
            bindings,
            results or [region.members[-1].var],
            f"{first.op.name_hint}_{region.generator}",
            {"Codegen": region.generator},
            finish=lambda fn, name: fn.with_attr("global_symbol", name),
        )


def _join_or_need(reader: _Region, producer: _Region) -> None:
    """Make one region of two, unless one of them waits for the other."""
    if reader is producer:
        return
    if reader.waits_for(producer) or producer.waits_for(reader):
        reader.need(producer)
        return
    less, more = sorted((reader, producer), key=lambda r: len(r.members))
    more.members += less.members
    more.needs.update(less.needs)
    more.is_needed |= less.is_needed
    less.into = more
