"""FuseTIR: the kernels of a group become one.

    before:  def main(x, y): lv = cls.fused_add_exp(x, y) ...
             def fused_add_exp(x, y):                            # {"Primitive": 1}
                 lv = R.call_tir(cls.add, (x, y), out_sinfo=R.Tensor((n, 4), "float32"))
                 gv = R.call_tir(cls.exp, (lv,), out_sinfo=R.Tensor((n, 4), "float32"))
                 return gv
    after:   def main(x, y): lv = R.call_tir(cls.fused_add_exp, (x, y), out_sinfo=...) ...
             def fused_add_exp(x: T.Buffer((n, 4)), y: T.Buffer((n, 4)), gv: T.Buffer((n, 4))):
                 lv = T.alloc_buffer((n, 4))
                 ...  # the blocks of add, from x and y to lv
                 ...  # the blocks of exp, from lv to gv

Loops for what neither the group nor its callers read go, and so do arguments that only they read.
A group stays a graph function, which means the same, if a kernel checks something when it is called
that is not certain in the group: that two sizes are equal, that a size is not negative.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from ...base import NameSupply, Span, declined
from ...ir import BaseFunc, GlobalVar, IRModule, PassContext, PrimExpr, walk
from ...ir.transform import module_pass
from ...tir import PrimFunc
from ..alike import Alike
from ..derive import substitute_struct_info
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    is_leaf,
)
from ..known_ops import CALL_TIR, CALL_TIR_INPLACE
from ..rewriter import BindingRewriter
from ..struct_info import Expr, ShapeExpr, StructInfo, TupleStructInfo
from .group_kernel import GroupKernel, NotMerged, Place, kernel_of_group
from .private_functions import without_unmentioned


@module_pass(opt_level=0)
def FuseTIR(mod: IRModule, ctx: PassContext) -> IRModule:
    """Make one loop function of each graph function with the attribute ``Primitive``, and calls of
    it by `call_tir` of the calls of that. Loop functions that nothing needs then go.
    """
    kernels: dict[str, GroupKernel] = {}
    tell = _listener.get()
    known = defaultdict(list) if tell is _nobody else _constant_arguments(mod)
    for gv, fn in mod.items():
        if isinstance(fn, Function) and fn.get_attr("Primitive") and not fn.get_attr("Codegen"):
            try:
                kernels[gv.name_hint] = kernel = kernel_of_group(fn, mod)
            except NotMerged as why:
                declined("group {} stays a function: {}", gv.name_hint, str(why))
                continue
            if kernel.function is not None:
                tell(gv.name_hint, kernel.function, kernel.constants(known[gv.name_hint]))
        elif isinstance(fn, PrimFunc) and gv.name_hint in known:
            tell(gv.name_hint, fn, tuple(known[gv.name_hint]))
    for name in _not_served(mod, kernels):
        if kernels.pop(name, None) is not None:
            declined("group {} stays a function: its kernel does not fit all its uses", name)
    return _with_kernels(mod, kernels) if kernels else mod


def _not_served(mod: IRModule, kernels: Mapping[str, GroupKernel]) -> Iterator[str]:
    """The names of groups that are not only called, or not by calls that their kernels fit."""
    for fn in mod.functions.values() if kernels else ():
        if not isinstance(fn, Function):
            continue
        bound: set[int] = set()
        for n in walk(fn):
            if isinstance(n, Binding):
                bound.add(id(n.value))
            below: Any = n._children_
            if type(n) is Call and isinstance(n.op, GlobalVar):
                below = n.args
                kernel = kernels.get(n.op.name_hint)
                if kernel is not None and not (id(n) in bound and kernel.can_serve(n)):
                    yield n.op.name_hint
            yield from (c.name_hint for c in below if isinstance(c, GlobalVar))


def _with_kernels(mod: IRModule, kernels: Mapping[str, GroupKernel]) -> IRModule:
    names = NameSupply(lambda: [gv.name_hint for gv in mod])
    exported = {n for n in kernels if mod[n].get_attr("global_symbol") is not None}
    functions: dict[GlobalVar, BaseFunc] = {}
    callees: dict[str, GlobalVar] = {}
    alike: Alike[GlobalVar] = Alike()
    for name, kernel in kernels.items():
        if kernel.function is not None:
            gv = GlobalVar(names.fresh(name) if name in exported else name)
            known = alike.of(kernel.function)
            if not known:
                alike.put(kernel.function, gv)
            gv = callees[name] = known[0] if known else gv
            functions[gv] = kernel.function
    rewriter = _Callers(kernels, callees)
    for gv, fn in mod.items():
        if gv.name_hint not in kernels or gv.name_hint in exported:
            functions[gv] = rewriter.rewrite(fn) if isinstance(fn, Function) else fn
    # Private kernels that only groups called go.
    parts = {gv.name_hint for kernel in kernels.values() for gv in kernel.parts}
    return without_unmentioned(mod.clone(functions=functions), parts)


# -- who wants to know -----------------------------------------------------------------------------

# (name, loop function, which of its parameters are constants wherever it is called)
Listener = Callable[[str, PrimFunc, "tuple[int, ...]"], None]


def _nobody(name: str, fn: PrimFunc, constants: tuple[int, ...]) -> None:
    """Listens where nobody does."""


_listener: ContextVar[Listener] = ContextVar("kernels_told", default=_nobody)


@contextlib.contextmanager
def kernels_told(listener: Listener) -> Iterator[None]:
    """Within the context `FuseTIR` tells of each kernel as soon as it knows it: most stay as they
    are until they are compiled, which can begin.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def _constant_arguments(mod: IRModule) -> defaultdict[str, list[int]]:
    """By callee: which arguments are constants in all its calls, of those in groups apart."""
    calls: dict[str, list[Sequence[Any]]] = {}
    for fn in mod.functions.values():
        if not isinstance(fn, Function) or fn.get_attr("Primitive"):
            continue
        for n in walk(fn, (StructInfo, PrimExpr)):
            if type(n) is Call and isinstance(n.op, GlobalVar):
                calls.setdefault(n.op.name_hint, []).append(n.args)
            elif type(n) is Call and n.op is CALL_TIR and isinstance(n.args[1], Tuple):
                callee: Any = n.args[0]
                calls.setdefault(callee.name_hint, []).append(n.args[1].fields)
    known: defaultdict[str, list[int]] = defaultdict(list)
    for name, sites in calls.items():
        together = enumerate(zip(*sites))
        known[name] = [k for k, args in together if all(isinstance(a, Constant) for a in args)]
    return known


# -- its callers -----------------------------------------------------------------------------------


class _Callers(BindingRewriter):
    """Replaces the calls of groups by calls of their kernels.

    callees  the group's name -> its kernel
    """

    def __init__(
        self, kernels: Mapping[str, GroupKernel], callees: Mapping[str, GlobalVar]
    ) -> None:
        self.kernels = kernels
        self.callees = callees
        self.blocks: list[BindingBlock] = []
        self.outlined: set[str] = set()

    def begin_block(self, block: BindingBlock) -> None:
        self.blocks.append(block)

    def end_block(self, block: BindingBlock) -> None:
        self.blocks.pop()

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        call = b.value
        name = call.op.name_hint if type(call) is Call and isinstance(call.op, GlobalVar) else None
        kernel = self.kernels.get(name) if name is not None else None
        if kernel is None:
            return None
        assert isinstance(call, Call)
        assert name is not None
        out: list[Binding] = []
        places: dict[Place, Expr] = {}

        def argument(place: Place | Constant) -> Expr:
            if isinstance(place, Constant):
                return place
            value = call.args[place.param]
            for count, field in enumerate(place.fields, 1):
                part = place._replace(fields=place.fields[:count])
                if part not in places:
                    places[part] = self.bound(TupleGetItem(value, field), "item", out)
                value = places[part]
            return value

        new_value: Expr | None = None
        if kernel.function is not None:
            new_value = _call(
                kernel, self.callees[name], call, [argument(p) for p in kernel.inputs],
                self.span_of(name, call),
            )  # fmt: skip
            count = len(kernel.outputs)
            if kernel.result == (0 if count == 1 else list(range(count))):
                return [*out, b.replace(value=new_value)]
            new_value = self.bound(new_value, b.var.name_hint, out)
        items: dict[int, Expr] = {}

        def leaf(tree: Any) -> Expr:
            if isinstance(tree, (Place, Constant)):
                return argument(tree)
            if tree not in items:
                assert new_value is not None
                whole = len(kernel.outputs) == 1
                items[tree] = (
                    new_value if whole else self.bound(TupleGetItem(new_value, tree), "item", out)
                )
            return items[tree]

        value = _result(kernel.result, leaf, call.span)
        return [*out, b.replace(value=value)]

    def span_of(self, name: str, call: Call) -> Span:
        """Where a call and what it computes come from. The call of a group that a pass outlined
        says both; equal groups share the function of the first, which is not where others are from.
        """
        inner, own = ({*s.parts} or {s} for s in (self.kernels[name].span, call.span))
        if inner <= own:
            self.outlined.add(name)
        outlined = name in self.outlined
        return call.span if outlined else Span.merge(self.kernels[name].span, call.span)

    def bound(self, value: Expr, name: str, out: list[Binding]) -> Expr:
        """`value` as a leaf."""
        if is_leaf(value):
            return value
        var_class = DataflowVar if isinstance(self.blocks[-1], DataflowBlock) else Var
        var = var_class(name, value.struct_info)
        out.append(VarBinding(var, value))
        return var


def _result(tree: Any, leaf: Callable[[Any], Expr], span: Span) -> Expr:
    """The leaves of nested lists, in tuples."""
    # No function inside of the one above: it would stand in a circle with what it sees.
    if isinstance(tree, list):
        return Tuple([_result(each, leaf, span) for each in tree], span)
    return leaf(tree)


def _call(
    kernel: GroupKernel, callee: GlobalVar, call: Call, inputs: Sequence[Expr], span: Span
) -> Call:
    """The call of the kernel for `call`."""
    known = kernel.symbols(call)
    infos = [substitute_struct_info(info, known) for info in kernel.outputs]
    info = infos[0] if len(infos) == 1 else TupleStructInfo(infos)
    scalars = (ShapeExpr([known[s] for s in kernel.scalars]),) if kernel.scalars else ()
    args = (callee, Tuple(inputs), *scalars)
    if all(i < 0 for i in kernel.inplace):
        return Call(CALL_TIR, args, None, (info,), None, span)
    return Call(CALL_TIR_INPLACE, args, {"inplace_indices": kernel.inplace}, (info,), None, span)
