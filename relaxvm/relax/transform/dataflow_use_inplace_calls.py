"""DataflowUseInplaceCalls: a kernel in a dataflow block writes over an argument that nobody reads
any more.

    before:  z = R.add(x, y); w = R.multiply(z, y)
    after:   z = R.add(x, y)
             w = R.call_tir_inplace(cls.multiply_inplace, (z, y), inplace_indices=[0], ...)

Operators that work element by element (add, subtract, multiply, divide, silu, relu) become such
calls where they can, and `call_tir` of any loop function that allows it. The argument is a tensor
that the same block computed, of the result's shape, under one name, and read here for the last
time. Builds do the same where they plan memory; this pass shows it, before anything is lowered.
"""

from __future__ import annotations

from typing import Any

from ...base import NameSupply, decided, in_function
from ...ir import GlobalVar, IRModule, PassContext
from ...ir.transform import module_pass
from ...tir import PrimFunc
from ..analysis.written import may_share
from ..block_builder import BlockBuilder
from ..derive import dims_equal, place_of
from ..expr import Binding, Call, DataflowBlock, Function, Tuple, Var, VarBinding
from ..flow import BIND, BINDS, Event, events, vars_in
from ..known_ops import CALL_DPS_PACKED, CALL_TIR, CALL_TIR_INPLACE, ops_named
from ..op.record import Op
from ..rewriter import Dropper
from ..struct_info import Expr, StructInfo, TensorStructInfo
from .inplace_kernels import overwritable_inputs, write_over

_OPERATORS = ops_named("add subtract multiply divide nn.silu nn.relu")


@module_pass(opt_level=0)
def DataflowUseInplaceCalls(mod: IRModule, ctx: PassContext) -> IRModule:
    """Make calls in dataflow blocks write over arguments that are dead after them."""
    kernels = _Kernels(mod)
    changed: dict[GlobalVar, Any] = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            with in_function(gv):
                changes = _changes(fn, kernels)
            if changes:
                changed[gv] = Dropper(changes).rewrite(fn)
    return mod.clone({**mod.functions, **changed, **kernels.made}) if changed else mod


def _changes(fn: Function, kernels: _Kernels) -> dict[int, Binding]:
    """By the id of its variable, each binding that becomes one in place."""
    row = events(fn, inner=True)
    own = _own_tensors(row)
    last_use: dict[Var, int] = {}
    for position, e in enumerate(row):
        last_use.update(dict.fromkeys(e.reads(), position))
    changes: dict[int, Binding] = {}
    for position, e in enumerate(row):
        if e.kind is not BIND or type(e.node) is not VarBinding or e.node.var not in own:
            continue
        # A tensor of this block, on its own, for the last time.
        read = vars_in(e.value)
        dead = {
            v
            for v in read
            if own.get(v) is e.block and last_use[v] == position and read.count(v) == 1
        }
        if dead:
            made = kernels.over(e.value, dead)
            if made is not None:
                decided("{} is computed in place", e.node)
                changes[id(e.node.var)] = e.node.replace(value=made)
    return changes


def _own_tensors(row: list[Event]) -> dict[Var, DataflowBlock]:
    """The tensors that kernels in dataflow blocks compute, known by no other name, and where."""
    own: dict[Var, DataflowBlock] = {}
    shared: set[Var] = set()
    for e in row:
        if e.kind not in BINDS:
            continue
        value = e.node.value
        shared.update(v for each in may_share(value) for v in vars_in(each))
        op = value.op if isinstance(value, Call) else None
        fresh = op is CALL_TIR or op is CALL_DPS_PACKED or callable(getattr(op, "lower", None))
        if fresh and isinstance(e.block, DataflowBlock) and not list(may_share(value)):
            if isinstance(e.node.var.struct_info, TensorStructInfo):
                own[e.node.var] = e.block
    return {v: block for v, block in own.items() if v not in shared}


class _Kernels:
    """Calls in place, and the loop functions made for them."""

    def __init__(self, mod: IRModule) -> None:
        self.made: dict[GlobalVar, PrimFunc] = {}
        self.builder = BlockBuilder(mod)
        self.parts: dict[GlobalVar, Any] = {}
        self._pairs: dict[PrimFunc, tuple[tuple[int, int], ...]] = {}
        self._known: dict[tuple[PrimFunc, int, int], GlobalVar] = {}
        self._names = NameSupply(lambda: [gv.name_hint for gv in mod], "_")

    def over(self, call: Any, dead: set[Var]) -> Call | None:
        """`call`, with its result written over one of `dead`; None if that cannot be."""
        call = self.lowered(call)
        if call is None or not isinstance(call.args[1], Tuple):
            return None
        info, args = call.sinfo_args[0], call.args[1].fields
        gv = call.args[0]
        if gv not in self.parts:
            self.parts[gv] = self.builder.get().get(gv)
        part = self.parts[gv]
        if not isinstance(part, PrimFunc) or not isinstance(info, TensorStructInfo):
            return None
        if part not in self._pairs:
            self._pairs[part] = overwritable_inputs(part)
        for source, out in self._pairs[part]:
            if out != len(args) or args[source] not in dead:
                continue
            if _alike(args[source].struct_info, info):
                callee = self.inplace(gv.name_hint, part, source, out)
                arguments = (callee, *call.args[1:])
                attrs = {"inplace_indices": (source,)}
                return Call(CALL_TIR_INPLACE, arguments, attrs, (info,), None, call.span)
        return None

    def lowered(self, call: Call) -> Call | None:
        """`call` as one of a loop function."""
        if call.op is CALL_TIR:
            return call
        if call.op not in _OPERATORS or not all(map(_is_known, call.args)):
            return None
        assert isinstance(call.op, Op)
        assert callable(call.op.lower)
        made = call.op.lower(self.builder, call)
        if not isinstance(made, Call) or made.op is not CALL_TIR:
            return None
        return made.replace(span=call.span)

    def inplace(self, name: str, part: PrimFunc, source: int, out: int) -> GlobalVar:
        """The function that writes `out` over `source`."""
        known = self._known.get((part, source, out))
        if known is None:
            name = self._names.fresh(f"{name}_inplace")
            function = write_over(part, source, out, name).without_attr("global_symbol")
            known = self._known[part, source, out] = GlobalVar(name)
            self.made[known] = function
        return known


def _is_known(arg: Expr) -> bool:
    info: StructInfo = arg.struct_info
    return not isinstance(info, TensorStructInfo) or (
        info.dims is not None and info.dtype != "void"
    )


def _alike(have: Any, made: TensorStructInfo) -> bool:
    """Whether a tensor of `have` can hold one of `made`."""
    if not isinstance(have, TensorStructInfo) or have.dims is None or made.dims is None:
        return False
    same = have.dtype is made.dtype and place_of(have) is place_of(made)
    return same and dims_equal(have.dims, made.dims) is True
