"""ConvertLayout: convolutions and pools work on tensors laid out as is wanted.

    with ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}):

    a = R.nn.conv2d(x, w)          x1 = R.permute_dims(x, axes=(0, 2, 3, 1))
    b = R.nn.relu(a)               w1 = R.permute_dims(w, axes=(0, 2, 3, 1))
    return b                       a = R.nn.conv2d(x1, w1, data_layout="NHWC", kernel_layout="OHWI")
                                   b1 = R.nn.relu(a)
                                   b = R.permute_dims(b1, axes=(0, 3, 1, 2))
                                   return b

What reads them follows as far as it can (`layout_rules.py`), so that tensors are laid out anew only
where nobody can follow, once for all who want the same. Constants are laid out while compiling.
Blocks such as those of NCHW16c are only made where sizes divide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...base import (
    PassError,
    StructInfoError,
    TIRError,
    callees_first,
    components,
    decided,
    declined,
    did_you_mean,
    in_function,
)
from ...ir import GlobalVar, IRModule, Op, PassContext
from ...ir.transform import module_pass
from ...runtime import array as as_array
from ...tir import IndexMap
from .. import op as R
from ..analysis.recursion import graph_calls
from ..analysis.written import maybe_written_vars
from ..derive import dims_equal, tensor_dims
from ..expr import (
    Binding,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    joined_branches,
)
from ..flow import BINDS, OPEN, RESULT, bodies, events, leaves, map_leaves
from ..known_ops import is_op
from ..op.nn.layout import layout_of
from ..op.record import Missing
from ..rewriter import RememberingRewriter
from ..struct_info import Expr, ShapeExpr, StructInfo, TensorStructInfo, TupleStructInfo
from .constant_eval import is_constant
from .layout_rules import (
    Layouts,
    Order,
    canonical,
    is_one,
    layout_attributes,
    named_layouts,
    permuted,
    plain,
    rule_of,
    same_sequence,
    with_named,
)
from .private_functions import function_of, is_opaque, is_private, only_called
from .signature import replace_functions

_PERMUTE = Op.get("relax.permute_dims")
Desired = Mapping[str, Sequence[str]]
Chooser = Callable[[Call], "Desired | None"]


@module_pass(opt_level=3, numerics="reassociates", obeys_numerics=True)
def ConvertLayout(
    mod: IRModule,
    ctx: PassContext,
    *,
    desired_layouts: Desired,
    layout_cb: Chooser | None = None,
) -> IRModule:
    """Lay tensors out as operators want them.

    desired_layouts  operator -> the layouts of its data, of its kernel if it has one, and of its
                     result; "default" and what is left out: as written (the result: as the data).
                     {"relax.nn.conv2d": ["NHWC", "OHWI"]}
    layout_cb        (call) -> the same for that call, or None for `desired_layouts`

    Where numerics have to be exact, sums stay as they are whose order of summation would change.
    Raises PassError for operators that have no layout, and layouts that are none of theirs.
    """
    wanted = _Wanted(desired_layouts, layout_cb)
    calls = graph_calls(mod)
    private = _private_functions(mod, calls)
    while True:
        signatures: dict[str, Layouts | None] = dict.fromkeys(private)
        changed: dict[GlobalVar, Any] = {}
        refused: set[str] = set()
        for name in callees_first(calls, calls):
            fn = function_of(mod, name)
            if not is_opaque(fn):
                with in_function(name):
                    plan = _Plan(fn, mod, wanted, signatures, ctx)
                    changed[mod.get_global_var(name)] = plan.converted(name)
                refused |= plan.refused
        if not refused:
            return replace_functions(mod, changed)
        private -= refused


def _private_functions(mod: IRModule, calls: Mapping[str, list[str]]) -> set[str]:
    """The functions whose parameters and results may be laid out otherwise: all of whose calls we
    see, and which do not call themselves through others.
    """
    called = only_called(mod, is_private)
    private = {
        name
        for name, sites in called.items()
        if sites and not any(is_opaque(function_of(mod, site.caller)) for site in sites)
    }
    for group in components(calls, calls):
        if len(group) > 1 or group[0] in calls[group[0]]:
            private -= set(group)
    return private


# -- what is wanted -------------------------------------------------------------------------------


class _Wanted:
    """The layouts that calls are to have."""

    def __init__(
        self, desired: Desired, layout_cb: Callable[[Call], Desired | None] | None
    ) -> None:
        self.desired = _checked(desired, "desired_layouts")
        self.layout_cb = layout_cb

    def of(self, call: Call) -> Mapping[str, str] | None:
        """attribute -> layout, for a call that is to be laid out."""
        desired = self.desired
        if self.layout_cb is not None:
            own = self.layout_cb(call)
            if own is not None:
                desired = _checked(own, "what layout_cb gives")
        return desired.get(call.op)


def _checked(desired: Any, what: str) -> dict[Any, dict[str, str]]:
    """operator -> attribute -> layout"""
    if not isinstance(desired, Mapping):
        raise PassError(
            f"ConvertLayout: {what}: wanted a dict from operators to lists of layouts, got "
            f"{type(desired).__name__}"
        )
    checked: dict[Any, dict[str, str]] = {}
    for name, layouts in desired.items():
        op = _operator(name)
        attrs = layout_attributes(op)
        wanted = (layouts,) if isinstance(layouts, str) else tuple(layouts)
        if len(wanted) > len(attrs) or not wanted:
            raise PassError(
                f"ConvertLayout: {op.name}: wanted 1 to {len(attrs)} layouts "
                f"({', '.join(attrs)}), got {len(wanted)}: {list(wanted)}"
            )
        checked[op] = {
            key: _layout(op, key, layout, attrs)
            for key, layout in zip(attrs, wanted)
            if layout != "default"
        }
    return checked


def full_name(op: Any) -> str:
    """The name of an operator, with the room that users may leave out."""
    text = op.name if isinstance(op, Op) else str(op)
    return text if text.startswith("relax.") else f"relax.{text}"


def _operator(name: Any) -> Op:
    """The operator of that name, which has layouts."""
    full = full_name(name)
    try:
        op = Op.get(full)
        if layout_attributes(op):
            return op
        what = "has no layout"
    except TIRError:
        what = "is no operator"
    text = name.name if isinstance(name, Op) else name
    known = [n for n in Op.list_op_names() if layout_attributes(Op.get(n))]
    hint = did_you_mean(full, known)
    raise PassError(f"ConvertLayout: {text} {what}: wanted one of {len(known)} that have{hint}")


def _layout(op: Op, key: str, layout: Any, attrs: Mapping[str, Any]) -> str:
    axes = attrs[key] or next(iter(attrs.values()))
    try:
        layout_of(layout, axes, key)
    except StructInfoError as error:
        spatial = axes[2:]
        first, second = axes[:2]
        usual = [axes, f"{first}{spatial}{second}", f"{spatial}{second}{first}"]
        usual += [f"{axes}16{first.lower()}16{second.lower()}", f"{axes}16{second.lower()}"]
        hint = did_you_mean(layout, usual) or f"; usual ones are {', '.join(usual[:2])}"
        raise PassError(f"ConvertLayout: {op.name}: {error}{hint}") from None
    return str(layout)


# -- deciding -------------------------------------------------------------------------------------


def _laid_out(info: StructInfo, order: Any) -> StructInfo | None:
    """What is known of a value of `info` that is laid out so; None if it cannot be."""
    if order is None:
        return info
    if isinstance(order, tuple):
        fields = info.fields if isinstance(info, TupleStructInfo) else ()
        infos = [_laid_out(i, o) for i, o in zip(fields, order)]
        if len(fields) != len(order) or any(i is None for i in infos):
            return None
        return TupleStructInfo([i for i in infos if i is not None])
    dims = tensor_dims(info)
    shape = None if dims is None else order.shape(dims, spread=True)
    if shape is None:
        return None
    assert isinstance(info, TensorStructInfo)
    return TensorStructInfo(shape, info.dtype, info.vdevice)


def _agree(a: StructInfo, b: StructInfo) -> bool:
    """Whether tensors, or tuples of them, certainly have the same shapes."""
    if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo):
        return len(a.fields) == len(b.fields) and all(map(_agree, a.fields, b.fields))
    first, second = tensor_dims(a), tensor_dims(b)
    if first is None or second is None:
        return a is b
    return dims_equal(first, second) is True


class _Plan:
    """What becomes of the values of one function.

    home     variable -> the order that it is computed in, where that is not as written
    answers  variable -> how the call that it is bound to is laid out
    infos    variable -> the struct info of that call
    demands  variable -> the orders it is read in, and the blocks where
    results  id of a sequence -> the order of its result
    refused  private functions whose calls here cannot follow their signatures
    """

    def __init__(
        self,
        fn: Function,
        mod: IRModule,
        wanted: _Wanted,
        signatures: dict[str, Layouts | None],
        ctx: PassContext,
    ) -> None:
        self.fn, self.mod, self.wanted, self.signatures, self.ctx = fn, mod, wanted, signatures, ctx
        self.home: dict[Var, Any] = {}
        self.answers: dict[Var, Layouts] = {}
        self.infos: dict[Var, StructInfo] = {}
        self.demands: dict[Var, dict[tuple[Any, Any], None]] = {}
        self.results: dict[int, Any] = {}
        self.refused: set[str] = set()
        self._written: set[Var] | None = None

    def converted(self, name: str) -> Function:
        """The function with its values laid out as decided. For a private function, what that
        makes of its signature is entered in `signatures`.
        """
        private = name in self.signatures
        for e in events(self.fn, inner=True):
            if e.kind in BINDS:
                if type(e.value) is If:
                    self.branches(e.node)
                elif type(e.value) is not Function:
                    self.bind(e.node, e.block)
            elif e.kind is OPEN and type(e.value) is If:
                self.demand(e.value.cond, None, e.block)
            elif e.kind is RESULT and type(getattr(e.owner, "value", None)) is not If:
                self.result(self.fn.body if e.owner is None else e.owner.value.body, private)
        params = [self.param(p) if private else None for p in self.fn.params]
        result = self.results.get(id(self.fn.body))
        if private and (result is not None or any(o is not None for o in params)):
            self.signatures[name] = Layouts(tuple(params), result)
        if not self.answers and not self.home:
            return self.fn
        return _Rewriter(self).function(self.fn)

    def order_of(self, value: Expr) -> Any:
        """The order that a value is in; of a tuple, of each field."""
        if isinstance(value, Tuple):
            return canonical(tuple(map(self.order_of, value.fields)))
        return self.home.get(value) if isinstance(value, Var) else None

    def demand(self, value: Any, order: Any, block: Any) -> None:
        """Note that a value is read in this order."""
        if isinstance(value, Tuple):
            orders = order if isinstance(order, tuple) else (None,) * len(value.fields)
            for each, own in zip(value.fields, orders):
                self.demand(each, own, block)
        elif isinstance(value, Var):
            self.demands.setdefault(value, {})[order, block] = None

    def is_written(self, *values: Any) -> bool:
        """Whether one of these variables may be written into."""
        if self._written is None:
            self._written = maybe_written_vars(self.fn, self.mod)
        return any(v in self._written for v in values if isinstance(v, Var))

    def settle(self, var: Var, order: Any) -> None:
        order = canonical(order)
        if order is not None:
            self.home[var] = order

    def result(self, seq: SeqExpr, private: bool) -> None:
        order = self.order_of(seq.body) if private and seq is self.fn.body else None
        if order is not None:
            self.results[id(seq)] = order
        self.demand(seq.body, order, None)

    def param(self, param: Var) -> Any:
        """The order in which a private function takes a parameter: the one it is read in."""
        orders = {order for order, _ in self.demands.get(param, ())}
        order = orders.pop() if len(orders) == 1 else None
        dims = tensor_dims(param)
        if not isinstance(order, Order) or order.blocks or dims is None:
            return None
        if len(order.axes) != len(dims) or self.is_written(param):
            return None
        self.home[param] = order
        return order

    def branches(self, b: Binding) -> None:
        """Both branches of an `If` give their results in one order."""
        seqs = bodies(b.value)
        orders = [self.order_of(seq.body) for seq in seqs]
        order = next((o for o in orders if o is not None), None)
        results = [b.var, *(seq.body for seq in seqs)]
        fits = all(_laid_out(each.struct_info, order) is not None for each in results)
        if not fits or (order is not None and self.is_written(*results)):
            order = None
        for seq in seqs:
            self.demand(seq.body, order, None)
            if order is not None:
                self.results[id(seq)] = order
        self.settle(b.var, order)

    def bind(self, b: Binding, block: Any) -> None:
        """Decide about a binding without bodies."""
        value = b.value
        if isinstance(value, Call):
            answer = self.call(b, value)
        else:
            answer = self.moved(b, value)
        if answer is None:
            for leaf in leaves(value):
                self.demand(leaf, None, block)
            return
        self.answers[b.var] = answer
        self.settle(b.var, answer.result)
        whole = value.tuple_value if isinstance(value, TupleGetItem) else value
        values = value.args if isinstance(value, Call) else [whole]
        for arg, order in zip(values, answer.args):
            if not isinstance(order, Expr):
                self.demand(arg, order, block)

    def moved(self, b: Binding, value: Any) -> Layouts | None:
        """How a value follows that is no call."""
        if isinstance(value, TupleGetItem):
            orders = self.order_of(value.tuple_value)
            if not isinstance(orders, tuple):
                return None
            if _laid_out(b.var.struct_info, orders[value.index]) is None:
                return None
            return Layouts((orders,), orders[value.index])
        order = self.order_of(value)
        if order is None or self.is_written(b.var, value):
            return None
        if _laid_out(b.var.struct_info, order) is None:
            return None
        if isinstance(b, MatchCast):
            unblocked = isinstance(order, Order) and not order.blocks
            if not unblocked or _laid_out(b.struct_info, order) is None:
                return None
        return Layouts((order,), order)

    def call(self, b: Binding, call: Call) -> Layouts | None:
        """How a call is laid out; None if it stays as it is."""
        wanted = self.wanted.of(call)
        orders = [self.order_of(arg) for arg in call.args]
        if isinstance(call.op, GlobalVar):
            answer: Any = self.signatures.get(call.op.name_hint)
        elif wanted is not None:
            answer = with_named(call, wanted)
        elif all(o is None for o in orders):
            return None
        else:
            rule = rule_of(call.op)
            answer = f"it has no layout rule ({rule.why})" if isinstance(rule, Missing) else None
            if callable(rule):
                answer = rule(call, orders) or "its layout rule does not say how"
        if isinstance(answer, Layouts):
            answer = self.checked(b, call, answer)
            if isinstance(call.op, GlobalVar) and not isinstance(answer, Layouts):
                self.refused.add(call.op.name_hint)
        if isinstance(answer, Layouts):
            if wanted is not None and named_layouts(call) != answer.attrs:
                layouts = ", ".join(answer.attrs[k] for k in named_layouts(call))
                decided("{} laid out as {}", b, layouts)
                for key in wanted:
                    if answer.attrs[key] != wanted[key]:
                        declined("{}: {} does not divide into {}", b, key, wanted[key])
            return answer
        if wanted is not None:
            declined("{} not laid out as {}: {}", b, ", ".join(wanted.values()), answer)
        elif answer is not None and any(o is not None for o in orders):
            declined("{} takes tensors as they were written: {}", b, answer)
        return None

    def checked(self, b: Binding, call: Call, answer: Layouts) -> Layouts | str | None:
        """`answer`, if operators accept it; None if it changes nothing."""
        args = tuple(o if isinstance(o, Expr) else canonical(o) for o in answer.args)
        answer = replace(answer, args=args, result=canonical(answer.result))
        laid_out = [(x, o) for x, o in zip(call.args, args) if o is not None]
        if not laid_out and answer.result is None:
            return None
        if not answer.exact and not self.ctx.allows("reassociates"):
            return "a sum would have another order"
        if self.is_written(b.var, *(x for x, _ in laid_out)):
            return "it may be written into"
        result = _laid_out(call.struct_info, answer.result)
        new = []
        for arg, order in zip(call.args, args):
            if isinstance(order, Expr):
                new.append(order)
                continue
            info = _laid_out(arg.struct_info, order)
            if info is None:
                return "sizes do not divide into blocks, or are not known"
            new.append(arg if order is None else Var("laid_out", info))
        if result is None or _laid_out(b.var.struct_info, answer.result) is None:
            return "sizes of its result do not divide into blocks, or are not known"
        self.infos[b.var] = result
        if answer.same or isinstance(call.op, GlobalVar):
            return answer
        attrs = {**call.attrs, **answer.attrs}
        try:
            new_call = Call(call.op, new, attrs, call.sinfo_args)
        except StructInfoError as error:
            return str(error).partition("\n")[0]
        self.infos[b.var] = new_call.struct_info
        return (
            answer
            if _agree(new_call.struct_info, result)
            else "its result would have another shape"
        )


# -- rebuilding -----------------------------------------------------------------------------------


class _Rewriter(RememberingRewriter):
    """Rebuilds the function of a plan.

    laid_out  variable -> what it is in its home order
    forms     (variable, order) -> what it is in that order, in the block or branch being rebuilt
    given     the same, for variables that are seen outside of their block
    """

    def __init__(self, plan: _Plan) -> None:
        super().__init__()
        self.plan = plan
        self.laid_out: dict[Var, Var] = {}
        self.forms: dict[Any, Expr] = {}
        self.given: dict[Any, Var] = {}
        self.constants: dict[Any, tuple[Expr, Expr]] = {}
        self._ending = False

    @property
    def local(self) -> type[Var]:
        """The class of variables that only the block being read needs."""
        return Var if self._ending or not self._open else super().local

    def function(self, fn: Function) -> Function:
        """`fn` with its values laid out."""
        body = self.rewritten_body(fn)
        params = [self.laid_out.get(p, p) for p in fn.params]
        if body is fn.body and all(a is b for a, b in zip(params, fn.params)):
            return fn
        ret = fn.ret_struct_info if self.plan.results.get(id(fn.body)) is None else None
        return fn.replace(params=tuple(params), body=body, ret_struct_info=ret)

    def begin(self, fn: Function) -> None:
        """Parameters of private functions may be laid out."""
        for param in fn.params:
            self.renewed(param, self.plan.home.get(param))

    def renewed(self, var: Var, order: Any, info: StructInfo | None = None) -> Var:
        """The variable for what `var` is in its home order."""
        if order is None:
            return var
        info = info or _laid_out(var.struct_info, order) or var.struct_info
        block = self._open[-1] if self._open else None
        read = self.plan.demands.get(var, {})
        inside = isinstance(block, DataflowBlock) and not any(
            own == order and where is not block for own, where in read
        )
        kind = DataflowVar if inside else type(var)
        new = self.laid_out[var] = kind(var.name_hint, info, var.span)
        return new

    def begin_block(self, block: Any) -> None:
        """What a dataflow block computes for itself is not seen after it."""
        if isinstance(block, DataflowBlock):
            self.enter(None)

    def end_block(self, block: Any) -> None:
        """See `begin_block`."""
        if isinstance(block, DataflowBlock):
            self.leave()

    def sequence_result(self, seq: SeqExpr, out: list[Binding]) -> Expr:
        """The result of a sequence in the order that is decided."""
        self._ending = True
        converted = self.convert(seq.body, self.plan.results.get(id(seq)), out)
        self._ending = False
        return converted

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        """`b` in the order that is decided, and what others need of it."""
        value: Any = b.value
        order = self.plan.home.get(b.var)
        out: list[Binding] = []
        if isinstance(value, If):
            if order is None:
                return None
            info = joined_branches(value.true_branch, value.false_branch)
            value = value.replace(struct_info=info)
        elif isinstance(value, Function):
            return None
        elif (answer := self.plan.answers.get(b.var)) is not None:
            value = self.answered(b, value, answer, out)
            if value is None:
                return out
        else:
            value = map_leaves(value, lambda leaf: self.convert(leaf, None, out))
            if is_op(value, _PERMUTE) and isinstance(value.args[0], Var):
                # What is wanted in the order before the transposition is there already.
                before = plain(len(tensor_dims(b.var) or ())).renumbered(permuted(value))
                self.remember(self.forms, (b.var, canonical(before)), value.args[0])
                wanted = self.plan.demands.get(b.var, {})
                if type(b.var) is DataflowVar and wanted and all(o is not None for o, _ in wanted):
                    if all(o == before for o, _ in wanted):
                        return out
            if value is b.value:
                return None
            return [*out, b.replace(value=value)]
        if isinstance(b, MatchCast) and order is not None:
            b = b.replace(struct_info=_laid_out(b.struct_info, order))
        info = b.struct_info if isinstance(b, MatchCast) else value.struct_info
        new = b.replace(var=self.renewed(b.var, order, info), value=value)
        return [*out, new, *self.outside(b.var, order)]

    def answered(self, b: Binding, value: Any, answer: Layouts, out: list[Binding]) -> Any:
        """The value of `b` laid out as decided; None if it is there already."""
        if not isinstance(value, Call):
            if isinstance(value, TupleGetItem):
                return TupleGetItem(
                    self.convert(value.tuple_value, answer.args[0], out), value.index
                )
            return self.convert(value, answer.args[0], out)
        args = [
            order if isinstance(order, Expr) else self.convert(arg, order, out)
            for arg, order in zip(value.args, answer.args)
        ]
        if answer.same:
            x: Any = args[0]
            if type(b.var) is DataflowVar or type(x) is not DataflowVar:
                if answer.result is not None:
                    self.laid_out[b.var] = x
                    return None
            return x
        attrs = {**value.attrs, **answer.attrs}
        info = self.plan.infos[b.var]
        return Call(value.op, args, attrs, value.sinfo_args, info, value.span)

    def outside(self, var: Var, home: Any) -> list[Binding]:
        """The forms of `var` that are read outside of the dataflow block that binds it."""
        out: list[Binding] = []
        block = self._open[-1]
        if home is None or type(var) is DataflowVar or not isinstance(block, DataflowBlock):
            return out
        self._ending = True
        for order, where in self.plan.demands.get(var, ()):
            if order != home and where is not block and (var, order) not in self.given:
                plain = self.convert(var, order, out)
                if order is None:
                    plain, last = var, out.pop()
                    out.append(last.replace(var=var))
                self.given[var, order] = plain
        self._ending = False
        return out

    # -- conversions ------------------------------------------------------------------------------

    def convert(self, value: Any, order: Any, out: list[Binding]) -> Any:
        """`value` in this order; what computes it is appended to `out`."""
        if isinstance(value, Tuple):
            orders = order if isinstance(order, tuple) else (None,) * len(value.fields)
            fields = [self.convert(v, o, out) for v, o in zip(value.fields, orders)]
            same = all(a is b for a, b in zip(fields, value.fields))
            return value if same else Tuple(fields)
        if isinstance(value, Constant) and order is not None:
            return self.constant(value, order, out)
        if not isinstance(value, Var):
            return value
        home = self.plan.home.get(value)
        if order == home:
            return self.laid_out.get(value, value)
        known = self.given.get((value, order)) or self.forms.get((value, order))
        if known is None:
            known = self.moved(self.laid_out.get(value, value), value.struct_info, home, order, out)
            self.remember(self.forms, (value, order), known)
        return known

    def emit(self, value: Expr, like: Any, out: list[Binding]) -> Var:
        """A variable bound to `value`."""
        var = self.local(getattr(like, "name_hint", "lv"), value.struct_info, like.span)
        out.append(VarBinding(var, value, like.span))
        return var

    def moved(self, base: Any, info: StructInfo, home: Any, order: Any, out: list[Binding]) -> Any:
        """`base`, which is a value of `info` in its home order, in another order."""
        if isinstance(info, TupleStructInfo):
            fields = []
            for k, each in enumerate(info.fields):
                field = self.emit(TupleGetItem(base, k), base, out)
                own, other = (o[k] if isinstance(o, tuple) else None for o in (home, order))
                fields.append(field if own == other else self.moved(field, each, own, other, out))
            return self.emit(Tuple(fields), base, out)
        dims: Any = tensor_dims(info)
        assert dims is not None
        if home is None and all(map(is_one, dims)) and len(dims) <= len(order.parts):
            return base
        ndim = len((order or home).axes)
        if home is not None and ndim > len(dims):
            base, home = self.moved(base, info, home, None, out), None
        source, target = home or plain(ndim), order or plain(ndim)
        grows = ndim > len(dims)
        dims = (*[1] * (ndim - len(dims)), *dims)
        if same_sequence(source, target, dims):
            shape = ShapeExpr(target.shape(dims, spread=True) or ())
            return self.emit(R.reshape(base, shape), base, out)
        if grows:
            base = self.emit(R.reshape(base, ShapeExpr(dims)), base, out)
        if source.blocks or target.blocks:
            index_map = _index_map(source, target, dims)
            return self.emit(R.layout_transform(base, index_map), base, out)
        axes = tuple(source.position(axis) for axis in target.axes)
        return self.emit(R.permute_dims(base, axes=axes), base, out)

    def constant(self, value: Constant, order: Order, out: list[Binding]) -> Any:
        """A constant in another order, computed here where it can be."""
        if not is_constant(value):
            return self.moved(value, value.struct_info, None, order, out)
        known = self.constants.get((id(value), order))
        if known is None:
            info: Any = value.struct_info
            values = np.ascontiguousarray(_array_in(value.data.numpy(), order))
            new = Constant(as_array(values, dtype=str(info.dtype)), span=value.span)
            known = self.constants[id(value), order] = value, new
        return known[1]


def _array_in(array: np.ndarray, order: Order) -> np.ndarray:
    """An array, perhaps one that is broadcast, in this order."""
    if array.size == 1 and array.ndim <= len(order.parts):
        return array
    dims = (1,) * (len(order.axes) - array.ndim) + array.shape
    parts: list[tuple[int, int]] = []
    split: list[int] = []
    for axis, dim in enumerate(dims):
        block = order.blocks.get(axis)
        parts.append((axis, 0))
        if block is None:
            split.append(dim)
        else:
            parts.append((axis, block))
            split += (1, 1) if dim == 1 else (dim // block, block)
    return array.reshape(split).transpose([parts.index(part) for part in order.parts])


def _index_map(source: Order, target: Order, dims: Sequence[Any]) -> IndexMap:
    """Where the elements of a tensor of `dims` go from one order to another."""

    def final(*index: Any) -> list[Any]:
        by_part = dict(zip(source.parts, index))
        indices = []
        for axis, block in target.parts:
            same = source.blocks.get(axis) == target.blocks.get(axis)
            inner = source.blocks.get(axis)
            where = (
                by_part[axis, 0]
                if inner is None
                else by_part[axis, 0] * inner + by_part[axis, inner]
            )
            outer = target.blocks.get(axis)
            if same:
                indices.append(by_part[axis, block])
            elif outer is None or is_one(dims[axis]):
                indices.append(0 if block else where)
            else:
                indices.append(where % block if block else where // outer)
        return indices

    return IndexMap.from_func(final, ndim=len(source.parts), index_dtype="int64")
