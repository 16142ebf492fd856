"""Gradient: reverse-mode differentiation.

    def main(x, w):                        def main_adjoint(x, w):
        y = R.matmul(x, w)                     y = R.matmul(x, w)
        loss = R.sum(y)                        loss = R.sum(y)
        return loss                            y_adjoint = R.broadcast_to(R.ones((), ...), ...)
                                               return loss, (x's adjoint, w's adjoint)

The bindings are read backwards: what a value adds to the target is spread over its operands by the
operator's gradient rule. An operand that several read gets the sum, in the order of reading. A
branch is computed again for its gradient, so that nothing it computes has to be kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...base import PassError, StructInfoError
from ...ir import GlobalVar, IRModule, PassContext, walk
from ...ir.transform import module_pass
from ..derive import where
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Function,
    If,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..flow import name_of
from ..normal_form import Normalizer, names_in
from ..op.names import ops
from ..op.record import Missing, Op
from ..struct_info import Expr, TensorStructInfo, TupleStructInfo
from ..substitute import copy_with_new_vars
from .convert_to_dataflow import as_dataflow
from .to_non_dataflow import without_dataflow


@module_pass(opt_level=0)
def Gradient(
    mod: IRModule,
    ctx: PassContext,
    *,
    func_name: str,
    require_grads: Any = None,
    target_index: int = 0,
) -> IRModule:
    """Add the function `func_name`_adjoint, which gives what `func_name` does and the gradients of
    its parameters: ``result, (gradient, ...)``.

    require_grads  the parameters (variables or names) to differentiate by; None: all of floats
    target_index   which field of the result is differentiated, where that is a tuple
    Raises PassError for a target that is no scalar of floats, for what has no gradient, and if the
    module has a function of that name.
    """
    gv = mod.get_global_var(func_name)
    fn = mod[gv]
    if not isinstance(fn, Function):
        raise PassError(f"Gradient: {func_name} is no graph function but a {type(fn).__name__}")
    name = GlobalVar(f"{func_name}_adjoint")
    if name.name_hint in mod:
        raise PassError(
            f"Gradient: the module has a function {name.name_hint}; rename it, or delete it"
        )
    new = copy_with_new_vars(fn)
    named = dict(zip(fn.params, new.params))
    wanted = [named[p] for p in _parameters(fn, require_grads)]
    result: Any = new.body.body
    fields = result.fields if isinstance(result, Tuple) else (result,)
    if not 0 <= target_index < len(fields):
        raise PassError(f"Gradient: target_index {target_index} of {len(fields)} results")
    info: Any = fields[target_index].struct_info
    if not _is_float(info) or info.dims is None or info.dims:
        raise PassError(f"Gradient: wanted a target that is a scalar of floats, got {info}")
    adjoint = differentiated(new, wanted, target_index)
    if any(isinstance(n, DataflowBlock) for n in fn.body.blocks):
        adjoint = as_dataflow(adjoint, mod)
    attrs = {"global_symbol": name.name_hint} if "global_symbol" in fn.attrs else {}
    changed = mod.clone()
    changed[name] = adjoint.replace(attrs={**fn.attrs, **attrs})
    return changed


def _parameters(fn: Function, require_grads: Any) -> list[Var]:
    if require_grads is None:
        return [p for p in fn.params if _is_float(p.struct_info)]
    if isinstance(require_grads, (str, Var)):
        require_grads = [require_grads]
    by_name = {p.name_hint: p for p in fn.params}
    params = []
    for p in require_grads:
        own = by_name.get(p) if isinstance(p, str) else p
        if own not in fn.params or not _is_float(own.struct_info):
            names = ", ".join(n for n, v in by_name.items() if _is_float(v.struct_info))
            raise PassError(
                f"Gradient: require_grads: {getattr(p, 'name_hint', p)} is no parameter of floats; "
                f"these are: {names or 'none'}"
            )
        params.append(own)
    return params


def differentiated(fn: Function, wanted: Sequence[Var], index: int = 0) -> Function:
    """`fn`, in plain blocks, giving ``result, (gradient of the sum of the result by each of
    `wanted`, ...)``; of field `index` of the result, if that is a tuple.
    """
    fn = without_dataflow(fn)
    bindings = [b for block in fn.body.blocks for b in block.bindings]
    back = _Backwards(_depending(wanted, bindings))
    result = fn.body.body
    target = result.fields[index] if isinstance(result, Tuple) else result
    back.add(target, ops.ones_like(target))
    back.through(bindings)
    whole = Tuple([result, back.gradients(wanted)])
    body = SeqExpr((BindingBlock((*bindings, *back.out)),), whole)
    plain = Function(fn.params, body, None, fn.is_pure, fn.attrs, fn.span)
    return Normalizer(names_in(plain)).function(plain)


def _is_float(info: Any) -> bool:
    return isinstance(info, TensorStructInfo) and info.dtype is not None and info.dtype.is_float


def _may_carry(info: Any) -> bool:
    """Whether some tensor of floats may be in it."""
    if isinstance(info, TupleStructInfo):
        return any(map(_may_carry, info.fields))
    return _is_float(info)


def _depending(wanted: Iterable[Var], bindings: Sequence[Binding]) -> set[Var]:
    """The variables of floats that depend on `wanted`, those of branches among them."""
    needed = set(wanted)
    for b in bindings:
        inside = [n for n in walk(b.value) if isinstance(n, Binding)] if _nests(b) else []
        for each in (*inside, b):
            read = [n for n in walk(each.value) if isinstance(n, Var)]
            if _may_carry(each.var.struct_info) and not needed.isdisjoint(read):
                needed.add(each.var)
    return needed


def _nests(b: Binding) -> bool:
    return isinstance(b.value, If)


class _Backwards:
    """Reads bindings backwards.

    needed   the variables whose adjoints are asked for
    adjoint  by variable: what it adds to the target, so far
    fields   the same, of the fields of tuples
    out      the bindings that this takes
    """

    def __init__(self, needed: set[Var]) -> None:
        self.needed = needed
        self.adjoint: dict[Var, Expr] = {}
        self.fields: dict[Var, dict[int, Expr]] = {}
        self.out: list[Binding] = []

    def bound(self, var: Any, value: Expr) -> Var:
        """A variable of `value`, what is known of the adjoint of `var`."""
        if isinstance(value, Var):
            return value
        self.out.append(VarBinding(Var(f"{var.name_hint}_adjoint", value.struct_info), value))
        return self.out[-1].var

    def add(self, value: Any, gradient: Any) -> None:
        """Add to the adjoint of a value."""
        if isinstance(value, Tuple):
            for k, each in enumerate(value.fields):
                self.add(each, _field(gradient, k))
        elif value in self.needed:
            if isinstance(value.struct_info, TupleStructInfo):
                for k in range(len(value.struct_info.fields)):
                    self.add_field(value, k, _field(gradient, k))
            else:
                known = self.adjoint.get(value)
                whole = gradient if known is None else ops.add(known, gradient)
                self.adjoint[value] = self.bound(value, whole)

    def add_field(self, value: Var, k: int, gradient: Any) -> None:
        """Add to the adjoint of a field of a tuple."""
        own = self.fields.setdefault(value, {})
        whole = gradient if k not in own else _sum(own[k], gradient)
        own[k] = self.bound(value, whole)

    def of(self, var: Var) -> Expr | None:
        """The adjoint of a variable that is bound; None if the target does not depend on it."""
        if var not in self.fields:
            return self.adjoint.get(var)
        info: Any = var.struct_info
        own = self.fields[var]
        return Tuple([own.get(k) or _zeros(TupleGetItem(var, k)) for k in range(len(info.fields))])

    def gradients(self, variables: Sequence[Var]) -> Tuple:
        """The adjoints of variables, zeros where the target does not depend on them."""
        return Tuple([self.of(v) or _zeros(v) for v in variables])

    def through(self, bindings: Sequence[Binding]) -> None:
        """Spread the adjoints of what `bindings` bind, the last one first."""
        for b in reversed(bindings):
            gradient = self.of(b.var)
            if gradient is not None and b.var in self.needed:
                self.spread(b, gradient)

    def spread(self, b: Binding, gradient: Expr) -> None:
        """Spread an adjoint over the operands of a value."""
        value: Any = b.value
        if isinstance(value, Call):
            for arg, each in zip(value.args, self.of_call(b, value, gradient)):
                if each is not None:
                    self.add(arg, each)
        elif isinstance(value, TupleGetItem):
            if value.tuple_value in self.needed:
                self.add_field(value.tuple_value, value.index, gradient)
        elif isinstance(value, If):
            self.branches(b, value, gradient)
        elif isinstance(value, (Var, Tuple)):
            self.add(value, gradient)

    def of_call(self, b: Binding, call: Call, gradient: Expr) -> Sequence[Expr | None]:
        """The gradients of a call's arguments."""
        op = call.op
        rule = op.grad if isinstance(op, Op) else None
        if rule is None or isinstance(rule, Missing):
            why = rule.why if isinstance(rule, Missing) else "it is no operator with a gradient"
            raise PassError(
                f"Gradient: {name_of(op)} ({b.var.name_hint}) is not differentiated: {why}"
                f"{where(call.span)}"
            )
        try:
            return rule(ops, call, b.var, self.bound(b.var, gradient))
        except StructInfoError as error:
            raise PassError(f"Gradient: {b.var.name_hint}: {error}{where(call.span)}") from error

    def branches(self, b: Binding, value: If, gradient: Expr) -> None:
        """Of a choice: the gradients of what its branches read, by the same choice."""
        inside = [*walk(value.true_branch), *walk(value.false_branch)]
        own = {n.var for n in inside if isinstance(n, Binding)}
        read = dict.fromkeys(n for n in inside if isinstance(n, Var))
        captured = [v for v in read if v in self.needed and v not in own]
        whole = self.bound(b.var, gradient)
        taken = [
            self.branch(seq, whole, captured) for seq in (value.true_branch, value.false_branch)
        ]
        chosen = self.bound(b.var, If(value.cond, taken[0], taken[1], span=value.span))
        for k, v in enumerate(captured):
            self.add(v, TupleGetItem(chosen, k))

    def branch(self, seq: Any, gradient: Expr, captured: Sequence[Var]) -> SeqExpr:
        """The gradients of `captured` if the result of `seq` has this one."""
        again = copy_with_new_vars(Function((), seq, seq.struct_info)).body
        bindings = [b for block in again.blocks for b in block.bindings]
        back = _Backwards({*captured, *_depending(captured, bindings)})
        back.add(again.body, gradient)
        back.through(bindings)
        return SeqExpr((BindingBlock((*bindings, *back.out)),), back.gradients(captured))


def _field(value: Any, k: int) -> Any:
    return value.fields[k] if isinstance(value, Tuple) else TupleGetItem(value, k)


def _sum(a: Any, b: Any) -> Any:
    """Of two adjoints of one value."""
    info = a.struct_info
    if isinstance(info, TupleStructInfo):
        return Tuple([_sum(_field(a, k), _field(b, k)) for k in range(len(info.fields))])
    return ops.add(a, b) if _is_float(info) else a


def _zeros(value: Any) -> Any:
    """An adjoint of `value` that adds nothing; what is no tensor has none, and stands itself."""
    info = value.struct_info
    if isinstance(info, TupleStructInfo):
        return Tuple([_zeros(TupleGetItem(value, k)) for k in range(len(info.fields))])
    return ops.zeros_like(value) if isinstance(info, TensorStructInfo) else value
