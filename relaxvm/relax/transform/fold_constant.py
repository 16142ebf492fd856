"""FoldConstant: what depends on constants only is computed while compiling.

    w = R.permute_dims(R.const(...))           lv = R.matmul(x, R.const(...))
    lv = R.matmul(x, w)

Calls of loop functions and pure operators are computed by the loop functions themselves; see
`constant_eval`. What something may write into stays as it is. What several functions compute from
the same arrays becomes one array.
"""

from __future__ import annotations

from typing import Any

from ...base import decided, declined, in_function
from ...ir import IRModule, Op, PassContext
from ...ir.transform import module_pass, register_config
from ..analysis.written import maybe_written_vars
from ..expr import (
    Binding,
    Call,
    Function,
    MatchCast,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..flow import bindings_of, vars_in
from ..known_ops import CALL_TIR, SHAPE_OF
from ..rewriter import Dropper
from ..struct_info import Expr, ShapeExpr, ShapeStructInfo
from ..substitute import substitute_graph
from .constant_eval import ConstantEvaluator, is_constant
from .signature import replace_functions

register_config(
    "relax.FoldConstant.max_bytes",
    int,
    1 << 20,
    "results larger than this, and than the constants they are made of, are left to run time",
    lambda value: value >= 0,
)


@module_pass(opt_level=2)
def FoldConstant(mod: IRModule, ctx: PassContext) -> IRModule:
    """Compute calls of loop functions and pure operators on constants."""
    evaluator = ConstantEvaluator(mod, ctx, ctx.get("relax.FoldConstant.max_bytes"))
    changed: dict[Any, Any] = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            with in_function(gv):
                changed[gv] = _folded(fn, mod, evaluator)
    return replace_functions(mod, changed)


def _folded(fn: Function, mod: IRModule, evaluator: ConstantEvaluator) -> Function:
    folding = _Folding(fn, mod, evaluator)
    for b in bindings_of(fn):
        folding.binding(b)
    if not folding.changes:
        return fn
    return substitute_graph(Dropper(folding.changes).rewrite(fn), folding.replaced)


class _Folding:
    """Which variables are constants, and what becomes of their bindings.

    known     variable -> its value
    replaced  those that the value stands for everywhere; their bindings go
    """

    def __init__(self, fn: Function, mod: IRModule, evaluator: ConstantEvaluator) -> None:
        self.fn = fn
        self.mod = mod
        self.evaluator = evaluator
        self.known: dict[Var, Expr] = {}
        self.replaced: dict[Any, Any] = {}
        self.changes: dict[int, Binding | None] = {}
        self._written: set[Var] | None = None

    def binding(self, b: Binding) -> None:
        """Fold `b` if its value is known."""
        if isinstance(b, MatchCast):
            return
        shape = _known_shape(b.value)
        if shape is not None and shape.struct_info is b.var.struct_info:
            self.changes[id(b.var)] = None
            self.replaced[b.var] = shape
            if is_constant(shape):
                self.known[b.var] = shape
            return
        value = self.value(b.value)
        if value is None:
            return
        if self.is_written(b):
            declined("{} not computed while compiling: something may write into it", b)
            return
        if isinstance(b.value, Call):
            decided("{} computed while compiling", b)
        self.known[b.var] = value
        if isinstance(value, Tuple):
            if not isinstance(b.value, Tuple):
                self.changes[id(b.var)] = VarBinding(b.var, value, b.span)
        elif value.struct_info is b.var.struct_info:
            self.changes[id(b.var)] = None
            self.replaced[b.var] = value
        elif value is not b.value:
            # Callers were told less than is known now, and keep to that.
            self.changes[id(b.var)] = VarBinding(b.var, value, b.span)

    def is_written(self, b: Binding) -> bool:
        if self._written is None:
            self._written = maybe_written_vars(self.fn, self.mod)
        return not self._written.isdisjoint((b.var, *vars_in(b.value)))

    def value(self, value: Expr) -> Expr | None:
        """The constant that `value` is, or None."""
        if isinstance(value, Call):
            return self.call(value)
        if isinstance(value, TupleGetItem):
            held = self.leaf(value.tuple_value)
            return held.fields[value.index] if isinstance(held, Tuple) else None
        return self.leaf(value)

    def call(self, call: Call) -> Expr | None:
        if not isinstance(call.op, Op):
            return None
        first = 1 if call.op is CALL_TIR else 0
        args = list(call.args)
        for i in range(first, len(args)):
            leaf = self.leaf(args[i])
            if leaf is None:
                return None
            args[i] = leaf
        return self.evaluator.value(call.replace(args=tuple(args)))

    def leaf(self, value: Any) -> Expr | None:
        """The constant that stands for a leaf, or None if there is none."""
        if isinstance(value, Var):
            return self.known.get(value)
        if isinstance(value, Tuple):
            fields = [f if not isinstance(f, Var) else self.known.get(f) for f in value.fields]
            if any(f is None for f in fields):
                return None
            value = value.replace(fields=tuple(fields))
        return value if is_constant(value) else None


def _known_shape(value: Expr) -> ShapeExpr | None:
    """The shape that `value` asks a tensor for, if struct info says it."""
    if not isinstance(value, Call) or value.op is not SHAPE_OF:
        return None
    info = value.struct_info
    if not isinstance(info, ShapeStructInfo) or info.values is None:
        return None
    return ShapeExpr(info.values)
