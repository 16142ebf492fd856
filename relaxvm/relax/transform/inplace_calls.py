"""Calls of kernels that compute their result in the memory of an argument, and the functions made
for them. What may be called so is said by `inplace_kernels` and `append_kernels`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...base import NameSupply
from ...ir import GlobalVar, IRModule
from ...runtime import Builtins
from ...tir import PrimFunc
from ..block_builder import BlockBuilder
from ..derive import dims_equal, place_of
from ..expr import Call, DataflowVar, Tuple, Var, VarBinding
from ..flow import Event
from ..known_ops import CALL_TIR, CALL_TIR_INPLACE, ops_named
from ..op import call_pure_packed
from ..op.record import Op
from ..struct_info import Expr, ShapeExpr, StructInfo, TensorStructInfo
from .append_kernels import append_only, appending
from .inplace_kernels import overwritable_inputs, write_over

_OPERATORS = ops_named("add subtract multiply divide nn.silu nn.relu")


def last_uses(row: list[Event]) -> dict[Var, int]:
    """The event at which each variable is read for the last time."""
    last: dict[Var, int] = {}
    for position, e in enumerate(row):
        last.update(dict.fromkeys(e.reads(), position))
    return last


class InplaceKernels:
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
        gv, part = call.args[0], self._part(call.args[0])
        if not isinstance(part, PrimFunc) or not isinstance(info, TensorStructInfo):
            return None
        if part not in self._pairs:
            self._pairs[part] = overwritable_inputs(part)
        for source, out in self._pairs[part]:
            if out != len(args) or args[source] not in dead:
                continue
            if _alike(args[source].struct_info, info):
                writer = functools.partial(write_over, part, source, out)
                callee = self._function(gv.name_hint, (part, source, out), writer)
                return _inplace(call, callee, source, args)
        return None

    def behind(self, call: Any, dead: set[Var]) -> tuple[VarBinding, Call] | None:
        """What makes room behind one of `dead`, and `call` writing only what goes there; None if it
        is no such call.
        """
        if not isinstance(call, Call) or call.op is not CALL_TIR or len(call.args) > 2:
            return None
        gv, info = call.args[0], call.sinfo_args[0]
        part = self._part(gv)
        if not isinstance(part, PrimFunc) or not isinstance(info, TensorStructInfo):
            return None
        if not isinstance(gv, GlobalVar) or not isinstance(call.args[1], Tuple):
            return None
        how, args = appending(part), call.args[1].fields
        if how is None or info.dims is None or how.out != len(args) or args[how.source] not in dead:
            return None
        shape = ShapeExpr(info.dims)
        room = call_pure_packed(Builtins.GROW.name, args[how.source], shape, sinfo_args=info)
        grown = VarBinding(DataflowVar("grown", info), room, call.span)
        appender = functools.partial(append_only, part, how)
        callee = self._function(gv.name_hint, (part, how.source, -1), appender)
        args = tuple(grown.var if k == how.source else a for k, a in enumerate(args))
        return grown, _inplace(call, callee, how.source, args)

    def _part(self, gv: Any) -> Any:
        if gv not in self.parts:
            self.parts[gv] = self.builder.get().get(gv)
        return self.parts[gv]

    def lowered(self, call: Call) -> Call | None:
        """`call` as one of a loop function."""
        if call.op is CALL_TIR:
            return call
        if call.op not in _OPERATORS or not all(map(_is_known, call.args)):
            return None
        assert isinstance(call.op, Op)
        assert callable(call.op.lower)
        lowered = call.op.lower(self.builder, call)
        if not isinstance(lowered, Call) or lowered.op is not CALL_TIR:
            return None
        return lowered.replace(span=call.span)

    def _function(
        self, name: str, key: tuple[PrimFunc, int, int], make: Callable[[str], PrimFunc]
    ) -> GlobalVar:
        """The function of that key, made once."""
        known = self._known.get(key)
        if known is None:
            name = self._names.fresh(f"{name}_inplace")
            known = self._known[key] = GlobalVar(name)
            self.made[known] = make(name).without_attr("global_symbol")
        return known


def _inplace(call: Call, callee: GlobalVar, source: int, args: tuple[Expr, ...]) -> Call:
    """`call` of `callee`, which writes its result over argument `source`."""
    arguments = (callee, Tuple(args), *call.args[2:])
    attrs = {"inplace_indices": (source,)}
    return Call(CALL_TIR_INPLACE, arguments, attrs, call.sinfo_args, None, call.span)


def _is_known(arg: Expr) -> bool:
    info: StructInfo = arg.struct_info
    return not isinstance(info, TensorStructInfo) or (
        info.dims is not None and info.dtype != "void"
    )


def _alike(have: Any, wanted: TensorStructInfo) -> bool:
    """Whether a tensor of `have` can hold one of `wanted`."""
    if not isinstance(have, TensorStructInfo) or have.dims is None or wanted.dims is None:
        return False
    same = have.dtype is wanted.dtype and place_of(have) is place_of(wanted)
    return same and dims_equal(have.dims, wanted.dims) is True
