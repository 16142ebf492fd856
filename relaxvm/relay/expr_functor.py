"""Relay's visitors and mutators of expressions: one method per kind of expression.

    class Scale(relay.ExprMutator):
        def visit_constant(self, const):
            return relay.multiply(relay.const(2.0), const)

    fn = Scale().visit(fn)

A function in normal form is seen as the expression that its bindings stand for; where there are
branches or inner functions, as Lets. `ExprVisitor` and `ExprMutator` go down by calling themselves,
so a method decides what is entered; the MixedMode classes visit operands first, without recursion,
so that graphs may be as deep as they like.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import VerifyError, submodules
from ..ir import GlobalVar, Op, post_order
from ..relax import (
    BindingBlock,
    Call,
    Constant,
    Expr,
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from .spelling import is_typed, operand
from .view import View, operands

_METHODS: dict[type, str] = {
    Function: "visit_function",
    SeqExpr: "visit_let",
    Call: "visit_call",
    If: "visit_if",
    Tuple: "visit_tuple",
    TupleGetItem: "visit_tuple_getitem",
    GlobalVar: "visit_global_var",
    Constant: "visit_constant",
}


class ExprFunctor:
    """Chooses a method by the kind of expression; each expression is visited once.

    memo_map  what a visit gave, by expression
    """

    def __init__(self) -> None:
        self.memo_map: dict[Any, Any] = {}
        self._view = View()
        self._depth = 0

    def visit(self, expr: Any) -> Any:
        """Visit any expression by the method for its kind. Raises VerifyError for what is none."""
        before = operand(expr)
        expr = self._view.of(before)
        if expr not in self.memo_map:
            self._depth += 1
            try:
                self.memo_map[expr] = self._view.of(self._method(expr)(expr))
            finally:
                self._depth -= 1
        result = self.memo_map[expr]
        if self._depth or not isinstance(result, Expr):
            return result
        return before if result is expr else self._view.written(result)

    def _method(self, expr: Any) -> Callable[[Any], Any]:
        name = _METHODS.get(type(expr), "visit_var" if isinstance(expr, Var) else "")
        name = "visit_op" if isinstance(expr, Op) else name
        # Shapes, scalars and texts stand as operands, where Relay has attributes.
        name = name or ("visit_extern" if _is_leaf(expr) else "")
        method: Callable[[Any], Any] | None = getattr(self, name, None) if name else None
        if method is None:
            raise VerifyError(f"{type(self).__name__} visits no {type(expr).__name__}")
        return method


def _is_leaf(expr: Any) -> bool:
    return isinstance(expr, ExternFunc) or (hasattr(expr, "struct_info") and not operands(expr))


class ExprVisitor(ExprFunctor):
    """Visits every expression. Override the methods of interest; `super()` goes on below."""

    def _leaf(self, expr: Any) -> None:
        """Nothing is below it."""

    visit_constant = visit_var = visit_op = visit_global_var = visit_extern = _leaf

    def _below(self, expr: Any) -> None:
        """Visit what is below `expr`."""
        for each in operands(expr):
            self.visit(each)

    visit_tuple = visit_tuple_getitem = visit_if = _below

    def visit_call(self, call: Call) -> None:
        """The operator or function, then the arguments."""
        self.visit(call.op)
        self._below(call)

    def visit_let(self, let: SeqExpr) -> None:
        """The variable, its value, and what comes after it."""
        for each in let.let:
            self.visit(each)

    def visit_function(self, fn: Function) -> None:
        """The parameters, then the body."""
        for p in fn.params:
            self.visit(p)
        self.visit(fn.body)


class ExprMutator(ExprFunctor):
    """Rebuilds expressions; what is left alone stays the same object."""

    def _same(self, expr: Any) -> Any:
        """A leaf stays."""
        return expr

    visit_constant = visit_var = visit_op = visit_global_var = visit_extern = _same

    def visit_call(self, call: Call) -> Any:
        """The call of what its operands became."""
        op = self.visit(call.op)
        args = [operand(self.visit(a)) for a in call.args]
        if op is call.op and all(a is b for a, b in zip(args, call.args)):
            return call
        return self._view.called(call, op, args)

    def visit_tuple(self, value: Tuple) -> Any:
        """The tuple of what its fields became."""
        fields = [operand(self.visit(f)) for f in value.fields]
        same = all(a is b for a, b in zip(fields, value.fields))
        return value if same else Tuple(fields, value.span)

    def visit_tuple_getitem(self, item: TupleGetItem) -> Any:
        """A field of what the tuple became."""
        held = operand(self.visit(item.tuple_value))
        return item if held is item.tuple_value else TupleGetItem(held, item.index)

    def visit_if(self, value: If) -> Any:
        """The choice between what the branches became."""
        parts = [operand(self.visit(each)) for each in operands(value)]
        if all(a is b for a, b in zip(parts, operands(value))):
            return value
        return If(*parts)

    def visit_let(self, let: SeqExpr) -> Any:
        """A let of what the variable, its value and what comes after it became."""
        binding = let.blocks[0].bindings[0]
        var, value = self.visit(binding.var), operand(self.visit(binding.value))
        if var is binding.var and value.struct_info is not binding.value.struct_info:
            # It is what its value is, unless that is not known yet.
            if not isinstance(binding, MatchCast) and is_typed(value):
                var = self.memo_map[binding.var] = var.replace(struct_info=value.struct_info)
        rest = let.let[2]
        body = operand(self.visit(rest))
        if var is binding.var and value is binding.value and body is rest:
            return let
        return SeqExpr((BindingBlock((binding.replace(var=var, value=value),)),), body)

    def visit_function(self, fn: Function) -> Any:
        """The function of what its body became."""
        params = [self.visit(p) for p in fn.params]
        before = self._view.of(fn.body)
        body = self._view.of(operand(self.visit(fn.body)))
        if body is before and all(a is b for a, b in zip(params, fn.params)):
            return fn
        return Function(params, body, None, fn.is_pure, fn.attrs, fn.span)


class _OperandsFirst(ExprFunctor):
    """Visits operands before what uses them, without recursion."""

    def visit(self, expr: Any) -> Any:
        """Visit any expression and first all that it needs."""
        seen = self._view.of(operand(expr))
        for each in post_order(seen, self._open) if seen not in self.memo_map else ():
            # Nothing is written while it is below another.
            self._depth += each is not seen
            try:
                super().visit(each)
            finally:
                self._depth -= each is not seen
        return super().visit(expr)

    def _open(self, expr: Any) -> list[Any]:
        return [e for e in operands(expr) if e not in self.memo_map]


class MixedModeVisitor(_OperandsFirst, ExprVisitor):
    """An `ExprVisitor` of graphs of any depth."""


class MixedModeMutator(_OperandsFirst, ExprMutator):
    """An `ExprMutator` of graphs of any depth."""


__getattr__ = submodules(__name__)
