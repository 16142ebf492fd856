"""RewriteAnnotatedOps, PlanDevices: every operator on one device, and copies where devices meet.

    a = relay.add(x, y)                          a = relay.add(x, y)
    b = relay.sqrt(a)                            c = relay.device_copy(a, cpu, cuda)
    b = relay.annotation.on_device(b, cuda)      b = relay.sqrt(c)
    return b                                     return b

What is not annotated runs on the fallback device, where parameters and constants are, too. A value
is copied to a device once, however many read it there. The result stays where it is computed,
unless the function is called by others of the module: that gives it on the fallback device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import PassError
from ...ir import GlobalVar, IRModule, PassContext, VDevice, walk
from ...relax import (
    Binding,
    Call,
    Expr,
    Function,
    If,
    SeqExpr,
    TensorStructInfo,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from ...relax import op as ops
from ...relax.flow import map_leaves
from ...relax.known_ops import HINT_ON_DEVICE, is_op
from ...relax.rewriter import Inferring
from ...relax.transform import UpdateParamStructInfo
from ..parts import device as device_of
from .relay_pass import relay_pass


@relay_pass(1, dataflow=False)
def RewriteAnnotatedOps(mod: IRModule, ctx: PassContext, *, fallback_device: Any) -> IRModule:
    """Replace annotations by copies.

    fallback_device  where what is not annotated runs: a device, DLPack's number of its kind, or a
                     name such as "cpu"
    """
    return _planned(mod, device_of(fallback_device))


@relay_pass(0, dataflow=False)
def PlanDevices(mod: IRModule, ctx: PassContext, *, config: Any = "cpu") -> IRModule:
    """Replace annotations by copies.

    config  the fallback device, or an object that says it: TVM's `CompilationConfig`, by its
            `default_primitive_virtual_device`
    """
    fallback = getattr(config, "default_primitive_virtual_device", config)
    return _planned(mod, device_of(getattr(fallback, "device_type_int", fallback)))


def _planned(mod: IRModule, fallback: VDevice) -> IRModule:
    graphs = {gv: fn for gv, fn in mod.items() if isinstance(fn, Function)}
    hints: list[Any] = [n for fn in graphs.values() for n in walk(fn) if is_op(n, HINT_ON_DEVICE)]
    if not hints:
        return mod
    called = {
        n.op.name_hint
        for fn in graphs.values()
        for n in walk(fn)
        if isinstance(n, Call) and isinstance(n.op, GlobalVar)
    }
    declared = dict.fromkeys([fallback, *(device_of(h.attrs["dst_vdevice"]) for h in hints)])
    known = mod.global_infos.get("vdevice", ())
    planned = mod.clone()
    planned.update_global_info("vdevice", [*known, *(d for d in declared if d not in known)])
    placed = UpdateParamStructInfo(lambda p: _placed(p.struct_info, fallback))(planned)
    for gv, fn in placed.items():
        if isinstance(fn, Function):
            planned[gv] = _Placing(fn, fallback, gv.name_hint in called).placed()
    return planned


def _placed(info: Any, device: VDevice) -> Any:
    """`info`, all whose tensors are on `device`."""
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo([_placed(f, device) for f in info.fields])
    if isinstance(info, TensorStructInfo) and info.vdevice is None:
        return info.replace(vdevice=device)
    return info


class _Placing(Inferring):
    """Puts copies into one function.

    wanted  variable of a call -> the device of its annotation
    device  variable -> where it is
    copies  by scope: (variable, device) -> its copy there
    """

    def __init__(self, fn: Function, fallback: VDevice, is_called: bool) -> None:
        super().__init__({})
        self.fn, self.fallback, self.is_called = fn, fallback, is_called
        self.wanted: dict[Any, VDevice] = {}
        self.device: dict[Any, VDevice] = {}
        self.copies: list[dict[Any, Var]] = [{}]
        hints: list[Any] = [n for n in walk(fn) if is_op(n, HINT_ON_DEVICE)]
        for n in hints:
            (value,), device = n.args, device_of(n.attrs["dst_vdevice"])
            if self.wanted.setdefault(value, device) is not device:
                raise PassError(
                    f"on_device: {value.name_hint} is to be on {device.script()} and on "
                    f"{self.wanted[value].script()}"
                )

    def placed(self) -> Function:
        """The function with its copies."""
        return self.function(self.fn, self.fn.params)

    def enter(self, fn: Function | None) -> None:
        self.copies.append(dict(self.copies[-1]))

    def leave(self) -> None:
        self.copies.pop()

    def on(self, device: VDevice, leaf: Any, out: list[Binding]) -> Any:
        """`leaf` as it is read on `device`; a copy that this takes is appended to `out`."""
        now = self.replaced.get(leaf, leaf)
        if not isinstance(leaf, Var) or not isinstance(leaf.struct_info, TensorStructInfo):
            return now
        if self.device.get(leaf, self.fallback) is device:
            return now
        copy = self.copies[-1].get((leaf, device))
        if copy is None:
            value = ops.to_vdevice(now, device)
            copy = Var(f"{leaf.name_hint}_copy", value.struct_info)
            self.copies[-1][leaf, device] = copy
            out.append(VarBinding(copy, value))
        return copy

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        out: list[Binding] = []
        value = b.value
        if isinstance(value, Call) and value.op is HINT_ON_DEVICE:
            device = device_of(value.attrs["dst_vdevice"])
            self.replaced[b.var] = self.on(device, value.args[0], out)
            self.device[b.var] = device
            return out
        device = self.fallback
        if isinstance(value, Call) and not isinstance(value.op, GlobalVar):
            device = self.wanted.get(b.var, device)
        elif isinstance(value, TupleGetItem):
            device = self.device.get(value.tuple_value, device)
        self.device[b.var] = device
        if isinstance(value, (If, Function)):
            return super().binding(b)
        new: Any = map_leaves(value, lambda leaf: self.on(device, leaf, out))
        if new is value:
            return None
        if isinstance(new, Call):
            new = new.replace(struct_info=None)
        var = b.var
        if type(b) is VarBinding and new.struct_info is not var.struct_info:
            var = self.replaced[b.var] = var.replace(struct_info=new.struct_info)
        return [*out, b.replace(var=var, value=new)]

    def operand(self, value: Expr, out: list[Binding]) -> Expr:
        """A condition, or the result of a branch: on the fallback device."""
        return map_leaves(value, lambda leaf: self.on(self.fallback, leaf, out))

    def sequence_result(self, seq: SeqExpr, out: list[Binding]) -> Expr:
        if seq is self.fn.body and not self.is_called:
            return map_leaves(seq.body, lambda leaf: self.replaced.get(leaf, leaf))
        return self.operand(seq.body, out)
