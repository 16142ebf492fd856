"""Expressions as Relay has them: calls of Relay's operators, whose operands stand where they are
read.

    gv = permute_dims(w)                         nn.dense(x, w, units=10)
    matmul(x, gv)
         the graph language         of ->        <- written         what visitors see
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..base import UNKNOWN
from ..ir import GlobalVar, Node, Op, post_order, walk
from ..ir.walk import transform
from ..relax import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    If,
    SeqExpr,
    StructInfo,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..relax.analysis import contains_impure_call
from .spelling import UNTYPED, Spelled, arguments, is_let, is_typed
from .text import recognised

_LEAVES = (Op, GlobalVar, Constant, Function)


class View:
    """Between the two forms. What was seen once is the same object when it is seen again."""

    def __init__(self) -> None:
        # What variables stand for that are none in Relay, and what those of a let are bound to.
        self._values: dict[Var, Any] = {}
        self._let: dict[Var, Any] = {}
        # Those of a let that are part of what an operator of Relay writes.
        self._absorbed: set[Any] = set()
        self._views: dict[Any, Any] = {}
        # By their views, expressions of the graph language in which nothing is a view.
        self._originals: dict[Any, Any] = {}

    def of(self, expr: Any) -> Any:
        """An expression as Relay has it. Functions stay, and are seen when they are entered."""
        if isinstance(expr, _LEAVES) or not isinstance(expr, Expr):
            return expr
        if expr not in self._views:
            order = list(post_order(expr, lambda n: [] if n in self._views else self._below(n)))
            self._count(order)
            for n in order:
                if n not in self._views:
                    view = self._views[n] = self._seen(n)
                    self._views.setdefault(view, view)
                    if self._is_whole(n):
                        self._originals.setdefault(view, n)
        return self._views[expr]

    def called(self, call: Call, op: Any, args: list[Any]) -> Any:
        """`call` of other operands."""
        if not isinstance(op, Spelled):
            info = UNTYPED if isinstance(op, Op) and not all(map(is_typed, args)) else None
            return Call(op, args, call.attrs, call.sinfo_args, info, call.span)
        written = op.called(args, call.attrs)
        view = Call(op, args, call.attrs, (), written.struct_info, call.span)
        self._views[view] = view
        return view

    def written(self, expr: Any) -> Any:
        """An expression in which anything may be as Relay has it in the graph language."""
        return transform(expr, _written_out, pre=self._kept)

    # -- from the graph language -------------------------------------------------------------------

    def _below(self, n: Any) -> list[Any]:
        if isinstance(n, _LEAVES):
            return []
        if isinstance(n, Var):
            return [self._values[n]] if n in self._values else []
        if isinstance(n, SeqExpr):
            kept = []
            for b in _bindings(n):
                if _is_value(b):
                    self._values[b.var] = b.value
                else:
                    kept.append(b.value)
                    if is_let(b):
                        self._let[b.var] = b.value
            return [*kept, n.body]
        return [n.op, *n.args] if isinstance(n, Call) else operands(n)

    def _count(self, order: list[Any]) -> None:
        """How often each is read."""
        self._uses: dict[Any, int] = {}
        for n in order:
            for each in self._below(n):
                self._uses[each] = self._uses.get(each, 0) + 1

    def _inner(self, operand: Any) -> Any:
        """What computes an operand."""
        value = operand
        if isinstance(operand, Var):
            value = self._values.get(operand, self._let.get(operand))
        return value if isinstance(value, (Call, Tuple, TupleGetItem)) else None

    def _reads(self, operand: Any) -> int:
        """How often an operand is read; 0 if what computes it is read elsewhere."""
        value = self._inner(operand)
        alone = value is operand or self._uses.get(value) == 1
        return self._uses.get(operand, 0) if alone else 0

    def _is_whole(self, n: Any) -> bool:
        if isinstance(n, Function) or n in self._values:
            return False
        below = self._below(n)
        if not self._absorbed.isdisjoint(below):
            return False
        return all(self._originals.get(self._at(each)) is each for each in below)

    def _at(self, n: Any) -> Any:
        return self._views.get(n, n)

    def _seen(self, n: Any) -> Any:
        if isinstance(n, Call):
            return self._call(n)
        if isinstance(n, Var):
            return self._at(self._values[n]) if n in self._values else n
        if isinstance(n, Tuple):
            return _replaced(n, fields=tuple([self._at(f) for f in n.fields]))
        if isinstance(n, TupleGetItem):
            return _replaced(n, tuple_value=self._at(n.tuple_value))
        if isinstance(n, If):
            parts = [self._at(part) for part in operands(n)]
            same = all(a is b for a, b in zip(parts, operands(n)))
            cond, *branches = parts
            branches = [b if isinstance(b, SeqExpr) else SeqExpr((), b) for b in branches]
            info, span = n.struct_info, n.span
            return n if same else If(cond, branches[0], branches[1], info, span)
        return self._lets(n) if isinstance(n, SeqExpr) else n

    def _lets(self, seq: SeqExpr) -> Any:
        """One let in another, of what is more than a value that is read."""
        body = self._at(seq.body)
        for b in reversed(_bindings(seq)):
            if not _is_value(b) and b.var not in self._absorbed:
                binding = _replaced(b, value=self._at(b.value))
                body = SeqExpr((BindingBlock((binding,)),), body)
        return body

    def _call(self, call: Call) -> Any:
        if isinstance(call.op, Spelled):
            operands: dict[str, Any] = arguments(call)
            op: Spelled = call.op
        else:
            known = recognised(call, self._inner, self._reads)
            if known is None:
                args = tuple([self._at(a) for a in call.args])
                return _replaced(call, op=self._at(call.op), args=args)
            op, operands, absorbed = known
            self._absorbed.update(absorbed)
        args = tuple([self._at(v) for v in operands.values() if isinstance(v, Expr)])
        attrs = {k: _in_full(op, k, v) for k, v in operands.items() if not isinstance(v, Expr)}
        if op is call.op and attrs == dict(call.attrs) and _same(args, call.args):
            return call
        return Call(op, args, attrs, (), call.struct_info, call.span)

    # -- and back ----------------------------------------------------------------------------------

    def _kept(self, n: Node) -> Node | None:
        if isinstance(n, (StructInfo, Var, Op)):
            return n
        original: Node | None = self._originals.get(n)
        return original


def _written_out(n: Node) -> Node | None:
    if not (isinstance(n, Call) and isinstance(n.op, Spelled)):
        return None
    new = n.op.applied(arguments(n))
    return new.replace(span=n.span) if isinstance(new, Call) and n.span is not UNKNOWN else new


def _replaced(n: Any, **fields: Any) -> Any:
    same = all(
        _same(new, getattr(n, key)) if isinstance(new, tuple) else new is getattr(n, key)
        for key, new in fields.items()
    )
    return n if same else n.replace(**fields)


def _same(new: Any, old: Any) -> bool:
    return len(new) == len(old) and all(a is b for a, b in zip(new, old))


def _bindings(seq: SeqExpr) -> list[Binding]:
    return [b for block in seq.blocks for b in block.bindings]


def _is_value(b: Binding) -> bool:
    """Whether a binding only gives a name to a value, which may stand where it is read."""
    if is_let(b) or type(b) is not VarBinding or contains_impure_call(b.value):
        return False
    return not (isinstance(b.value, Function) and any(n is b.var for n in walk(b.value)))


_SPATIAL = re.compile(r"nn\.(?:conv|max_pool|avg_pool)(\d)d")
# Attributes of these, and how many numbers they are along each axis.
_NUMBERS = {"strides": 1, "dilation": 1, "kernel_size": 1, "pool_size": 1, "padding": 2}


def _in_full(op: Spelled, key: str, value: Any) -> Any:
    """An attribute as Relay keeps it: a number for each axis, where one says it for all."""
    spatial = _SPATIAL.match(op.name)
    if spatial is None or key not in _NUMBERS or value is None:
        return value
    rank = int(spatial[1])
    numbers = [value] * rank if isinstance(value, int) else list(value)
    return numbers * _NUMBERS[key] if len(numbers) == rank else numbers


# -- what is seen ----------------------------------------------------------------------------------


def operands(expr: Any) -> list[Any]:
    """The expressions right below `expr`, but for those of a function's body."""
    if isinstance(expr, Call):
        return list(expr.args)
    if isinstance(expr, Tuple):
        return list(expr.fields)
    if isinstance(expr, TupleGetItem):
        return [expr.tuple_value]
    if isinstance(expr, If):
        branches = expr.true_branch, expr.false_branch
        return [expr.cond, *(b if b.blocks else b.body for b in branches)]
    if isinstance(expr, SeqExpr):
        return [*(b.value for b in _bindings(expr)), expr.body]
    return []


def visited(root: Any, view: View | None = None) -> list[Any]:
    """What Relay's visitors see of an expression or a function, operands first, each shared one
    once.
    """
    view = View() if view is None else view
    return post_order(view.of(root), seen_below(view))


def seen_below(view: View) -> Callable[[Any], list[Any]]:
    """What says what is right below an expression that is seen."""

    def below(n: Any) -> list[Any]:
        if isinstance(n, Function):
            return [*n.params, view.of(n.body)]
        if isinstance(n, SeqExpr):
            pairs = [each for b in _bindings(n) for each in (b.var, b.value)]
            return [*pairs, n.body]
        return [n.op, *n.args] if isinstance(n, Call) else operands(n)

    return below
