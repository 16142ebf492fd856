"""RealizeVDevice: every tensor says on which virtual device it is.

lv = R.hint_on_device(x, "cpu:0")      lv: R.Tensor((4,), "float32", "llvm:0") = x
gv = R.add(lv, y)                      gv: R.Tensor((4,), "float32", "llvm:0") = R.add(lv, y)

What takes part in one call is on one device, but for `to_vdevice` and `hint_on_device`. So the
devices that variables and results are annotated with spread along uses, those of hints likewise;
what a hint was given comes last. Where its argument is on another device, `to_vdevice` moves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...base import PassError
from ...ir import GlobalVar, IRModule, Node, PassContext, VDevice, walk
from ...ir.transform import module_pass
from ...ir.walk import transform
from ...runtime import device_name
from .. import op as ops
from ..derive import has_place, place_of, placed_as, where
from ..expr import (
    Binding,
    Call,
    Constant,
    Function,
    If,
    SeqExpr,
    Tuple,
    Var,
    VarBinding,
)
from ..expr_functor import PyExprMutator
from ..flow import vars_in
from ..known_ops import HINT_ON_DEVICE, TO_VDEVICE
from ..struct_info import (
    Expr,
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .signature import replace_functions


@module_pass(opt_level=0)
def RealizeVDevice(mod: IRModule, ctx: PassContext) -> IRModule:
    """Spread the virtual devices of annotations and hints to all tensors that they say something
    about, and replace the hints.

    Raises PassError for a hint at a device that the module does not declare, StructInfoError for a
    call of a function with an argument that is not where its parameter is.
    """
    changed: dict[Any, Any] = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            facts = _Facts(mod, fn)
            if facts.places:
                changed[gv] = _Placing(facts).visit_expr(fn)
    replaced = replace_functions(mod, changed)
    if replaced is mod:
        return mod
    graphs = [(gv, fn) for gv, fn in replaced.items() if isinstance(fn, Function)]
    # Calls of functions whose signatures have changed give something else now.
    return replace_functions(
        replaced,
        {
            gv: transform(fn, _inferred_again, without=(StructInfo, Var, Constant, GlobalVar))
            for gv, fn in graphs
        },
    )


def _inferred_again(n: Node) -> Node | None:
    if type(n) is not Call or not isinstance(n.op, GlobalVar) or n.op.struct_info is None:
        return None
    inferred = Call(n.op, n.args, n.attrs, n.sinfo_args, None, n.span)
    return inferred if inferred.struct_info is not n.struct_info else None


class _Facts:
    """What a function says about devices.

    places    variable -> its device
    together  variable -> those on the same device
    bound     variable -> its value
    """

    def __init__(self, mod: IRModule, fn: Function) -> None:
        self.declared = [v for v in mod.global_infos.get("vdevice", ()) if isinstance(v, VDevice)]
        self.places: dict[Var, VDevice] = {}
        self.together: dict[Var, list[Var]] = {}
        self.bound: dict[Var, Expr] = {}
        hinted: dict[Var, VDevice] = {}
        results: list[Function] = []
        for n in walk(fn):
            if isinstance(n, Function):
                self.annotated(n.params)
                results.append(n)
            elif isinstance(n, Binding):
                self.bound[n.var] = n.value
                self.annotated((n.var,))
                if isinstance(n.value, Call) and n.value.op is HINT_ON_DEVICE:
                    device = self.places[n.var] = self.hint(n.value)
                    hinted.update((v, device) for v in _tensors(n.value.args))
                else:
                    self.link(n.var, _operands(n.value))
        for each in results:
            self.result(each.body, each.ret_struct_info)
        self.spread(self.places)
        self.spread({v: d for v, d in hinted.items() if v not in self.places})

    def annotated(self, variables: Iterable[Var]) -> None:
        for v in variables:
            device = place_of(v.struct_info)
            if device is not None:
                self.places[v] = device

    def hint(self, call: Call) -> VDevice:
        """The declared device that a hint means."""
        wanted = call.attrs["dst_vdevice"], call.attrs["memory_scope"]
        for device in self.declared:
            kind, _ = device_name(device.kind)
            if wanted == (f"{kind}:{device.vdevice_id}", device.memory_scope):
                return device
        has = ", ".join(d.script() for d in self.declared) or "none"
        raise PassError(
            f"RealizeVDevice: R.hint_on_device wants {wanted[0]} (memory {wanted[1]}), which the "
            f"module does not declare; it has: {has}{where(call.span)}"
        )

    def link(self, var: Var, others: Iterable[Var]) -> None:
        for other in others:
            self.together.setdefault(var, []).append(other)
            self.together.setdefault(other, []).append(var)

    def result(self, value: Expr, info: StructInfo) -> None:
        """Take over the devices in what a function is declared to give."""
        while isinstance(value, SeqExpr):
            value = value.body
        device = place_of(info)
        if isinstance(value, Var) and device is not None:
            self.places.setdefault(value, device)
        elif isinstance(info, TupleStructInfo):
            while isinstance(value, Var) and value in self.bound:
                value = self.bound[value]
            if isinstance(value, Tuple):
                for field, field_info in zip(value.fields, info.fields):
                    self.result(field, field_info)

    def spread(self, places: dict[Var, VDevice]) -> None:
        """Take over `places`, and what is together with them."""
        todo = list(places)[::-1]
        self.places.update(places)
        while todo:
            var = todo.pop()
            for other in self.together.get(var, ()):
                if other not in self.places:
                    self.places[other] = self.places[var]
                    todo.append(other)


def _operands(value: Expr) -> Iterator[Var]:
    """The variables that are where the result of `value` is."""
    if isinstance(value, If):
        return _tensors((value.true_branch, value.false_branch))
    if isinstance(value, Function) or (isinstance(value, Call) and value.op is TO_VDEVICE):
        return iter(())
    return _tensors(value.args if isinstance(value, Call) else (value,))


def _tensors(values: Iterable[Expr]) -> Iterator[Var]:
    """The variables of arrays, or of what may hold some, among `values` and their results."""
    for value in values:
        while isinstance(value, SeqExpr):
            value = value.body
        for v in vars_in(value):
            if not isinstance(v.struct_info, (ShapeStructInfo, PrimStructInfo, FuncStructInfo)):
                yield v


class _Placing(PyExprMutator):
    """Rebuilds one function."""

    def __init__(self, facts: _Facts) -> None:
        super().__init__()
        self.facts = facts

    def visit_function_(self, fn: Function) -> Function:
        placed = super().visit_function_(fn)
        if placed is fn:
            return fn
        ret = placed_as(fn.ret_struct_info, placed.body.struct_info)
        return placed.replace(ret_struct_info=ret)

    def visit_call_(self, call: Call) -> Expr:
        placed = super().visit_call_(call)
        if not isinstance(placed, Call) or placed.op is not HINT_ON_DEVICE:
            return placed
        (arg,), device = placed.args, self.facts.hint(call)
        if getattr(arg.struct_info, "vdevice", None) is device:
            return arg
        return ops.to_vdevice(arg, device, span=call.span)  # type: ignore[call-arg]

    def visit_var_def_(self, var: Var) -> Var:
        return var.replace(struct_info=self.placed(var, var.struct_info))

    visit_dataflow_var_def_ = visit_var_def_

    def visit_var_binding_(self, binding: VarBinding) -> None:
        old, value = binding.var, self.visit_expr(binding.value)
        if isinstance(value, Call) and len(value.sinfo_args) == 1:
            info = self.placed(old, value.sinfo_args[0])
            if info is not value.sinfo_args[0]:
                value = Call(value.op, value.args, value.attrs, (info,), None, value.span)
        value = self.builder_.normalize(value)
        # What the program declared of it stays.
        info = old.struct_info if value is binding.value else value.struct_info
        var = old.replace(struct_info=self.placed(old, info))
        if var is not old:
            self.set_var_remap(old, var)
        same = var is old and value is binding.value
        self.builder_.emit_normalized(binding if same else VarBinding(var, value, binding.span))

    def placed(self, var: Var, info: StructInfo) -> StructInfo:
        """`info`, on the device of `var`."""
        device = self.facts.places.get(var)
        if device is None or not isinstance(info, TensorStructInfo) or has_place(info):
            return info
        return info.replace(vdevice=device)
