"""`PyExprVisitor` and `PyExprMutator`: users' own walks over graph functions, one method per kind
of expression.

    @mutator
    class ReluToGelu(PyExprMutator):
        def visit_call_(self, call):
            call = self.visit_expr_post_order(call)
            return self.builder_.call_te(gelu, *call.args) if is_relu(call) else call

    mod = ReluToGelu(mod).transform()

Bindings are visited in a loop, so long functions need no deep stack; only nested branches recurse.
"""

from __future__ import annotations

import operator
from typing import Any, TypeVar

from ..base import VerifyError
from ..ir import GlobalVar, IRModule, Op, derived_from
from .block_builder import BlockBuilder
from .expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    ExternFunc,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    joined_branches,
    source_of,
)
from .struct_info import Expr, ShapeExpr, StructInfo

C = TypeVar("C", bound=type)

_METHODS: dict[type, str] = {
    Constant: "visit_constant_",
    Tuple: "visit_tuple_",
    Var: "visit_var_",
    DataflowVar: "visit_dataflow_var_",
    ShapeExpr: "visit_shape_expr_",
    ExternFunc: "visit_extern_func_",
    GlobalVar: "visit_global_var_",
    Function: "visit_function_",
    Call: "visit_call_",
    SeqExpr: "visit_seq_expr_",
    If: "visit_if_",
    TupleGetItem: "visit_tuple_getitem_",
    PrimValue: "visit_prim_value_",
    StringImm: "visit_string_imm_",
    DataTypeImm: "visit_data_type_imm_",
}


def visitor(cls: C) -> C:
    """Marks a class derived from `PyExprVisitor` (TVM needs the mark; here it only checks)."""
    return derived_from(cls, PyExprVisitor, VerifyError)


def mutator(cls: C) -> C:
    """Marks a class derived from `PyExprMutator` (TVM needs the mark; here it only checks)."""
    return derived_from(cls, PyExprMutator, VerifyError)


class ExprFunctor:
    """Chooses a method by the kind of expression, binding or block, and gives what it gives; the
    methods (`visit_call_`, `visit_tuple_`, ...) are the subclass's.
    """

    def visit_expr(self, expr: Any) -> Any:
        """Visit any expression by the method for its kind."""
        name = _METHODS.get(type(expr), "visit_op_" if isinstance(expr, Op) else "")
        if not name:
            raise VerifyError(f"{type(expr).__name__} is no expression of the graph language")
        method = getattr(self, name, None)
        return self._visit(name, expr) if method is None else method(expr)

    def visit_binding(self, binding: Binding) -> Any:
        """Visit a binding by the method for its kind."""
        is_cast = isinstance(binding, MatchCast)
        return self._visit("visit_match_cast_" if is_cast else "visit_var_binding_", binding)

    def visit_binding_block(self, block: BindingBlock) -> Any:
        """Visit a block by the method for its kind."""
        is_dataflow = isinstance(block, DataflowBlock)
        name = "visit_dataflow_block_" if is_dataflow else "visit_binding_block_"
        return self._visit(name, block)

    def visit_var_def(self, var: Var) -> Any:
        """Visit a variable where it is bound."""
        is_dataflow = isinstance(var, DataflowVar)
        return self._visit("visit_dataflow_var_def_" if is_dataflow else "visit_var_def_", var)

    def _visit(self, name: str, n: Any) -> Any:
        method = getattr(self, name, None)
        if method is None:
            raise VerifyError(f"{type(self).__name__} has no method {name}")
        return method(n)


class PyExprVisitor(ExprFunctor):
    """Visits every expression, operands before what uses them. Override the methods of interest."""

    def _nothing(self, expr: Any) -> None:
        """A leaf."""

    visit_constant_ = visit_var_ = visit_dataflow_var_ = visit_shape_expr_ = _nothing
    visit_extern_func_ = visit_global_var_ = visit_op_ = visit_prim_value_ = _nothing
    visit_string_imm_ = visit_data_type_imm_ = visit_var_def_ = visit_dataflow_var_def_ = _nothing

    def visit_tuple_(self, value: Tuple) -> None:
        for field in value.fields:
            self.visit_expr(field)

    def visit_tuple_getitem_(self, value: TupleGetItem) -> None:
        self.visit_expr(value.tuple_value)

    def visit_call_(self, call: Call) -> None:
        self.visit_expr(call.op)
        for arg in call.args:
            self.visit_expr(arg)

    def visit_if_(self, value: If) -> None:
        self.visit_expr(value.cond)
        self.visit_expr(value.true_branch)
        self.visit_expr(value.false_branch)

    def visit_function_(self, fn: Function) -> None:
        for param in fn.params:
            self.visit_var_def(param)
        self.visit_expr(fn.body)

    def visit_seq_expr_(self, seq: SeqExpr) -> None:
        for block in seq.blocks:
            self.visit_binding_block(block)
        self.visit_expr(seq.body)

    def visit_binding_block_(self, block: BindingBlock) -> None:
        for binding in block.bindings:
            self.visit_binding(binding)

    def visit_dataflow_block_(self, block: DataflowBlock) -> None:
        for binding in block.bindings:
            self.visit_binding(binding)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)


class PyExprMutator(ExprFunctor):
    """Rebuilds functions. Methods return the new expression; what they emit into `builder_` goes
    before it.

    mod  the module whose functions are rebuilt; `builder_` starts with it
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.builder_ = BlockBuilder(mod)
        self._var_remap: dict[int, tuple[Var, Expr]] = {}

    def transform(self) -> IRModule:
        """The module with every graph function rebuilt."""
        for gv, fn in self.builder_.get().items():
            if isinstance(fn, Function):
                new = self.visit_expr(fn)
                if new is not fn:
                    self.builder_.update_func(gv, new)
        return self.builder_.get()

    # -- what methods use -------------------------------------------------------------------------

    def visit_expr_post_order(self, expr: Any) -> Any:
        """`expr` with its operands visited, by the default rules; it is not visited itself."""
        default = getattr(PyExprMutator, _METHODS.get(type(expr), "visit_op_"))
        return default(self, expr)

    def lookup_binding(self, var: Var) -> Expr | None:
        """What `var` is bound to in the function being built, or None."""
        return self.builder_.lookup_binding(var)

    def set_var_remap(self, vid: Var, var: Expr) -> None:
        """From here on `var` stands wherever `vid` stood."""
        self._var_remap[id(vid)] = (vid, var)

    def get_var_remap(self, vid: Var) -> Expr:
        """What stands for `vid`: itself unless it was remapped."""
        entry = self._var_remap.get(id(vid))
        return entry[1] if entry is not None else vid

    def with_struct_info(self, var: Var, sinfo: StructInfo) -> Var:
        """`var` with other struct info: a new variable unless it has that already."""
        return var.replace(struct_info=sinfo)

    def visit_with_new_scope(self, expr: Any) -> SeqExpr:
        """`expr` as a branch of its own."""
        self.builder_.begin_scope()
        scope = self.builder_.end_scope(self._body(expr))
        assert scope is not None
        return scope

    # -- the rules --------------------------------------------------------------------------------

    def _same(self, expr: Any) -> Any:
        """A leaf stays."""
        return expr

    visit_constant_ = visit_extern_func_ = visit_global_var_ = visit_op_ = _same
    visit_prim_value_ = visit_string_imm_ = visit_data_type_imm_ = visit_shape_expr_ = _same

    def visit_var_(self, var: Var) -> Expr:
        return self.get_var_remap(var)

    def visit_dataflow_var_(self, var: DataflowVar) -> Expr:
        return self.get_var_remap(var)

    def visit_var_def_(self, var: Var) -> Var:
        return var

    def visit_dataflow_var_def_(self, var: DataflowVar) -> Var:
        return var

    def visit_tuple_(self, value: Tuple) -> Expr:
        return value.replace(fields=self._all(value.fields))

    def visit_tuple_getitem_(self, value: TupleGetItem) -> Expr:
        held = self.visit_expr(value.tuple_value)
        if held is value.tuple_value:
            return value
        return (
            held.fields[value.index] if isinstance(held, Tuple) else TupleGetItem(held, value.index)
        )

    def visit_call_(self, call: Call) -> Expr:
        op = self.visit_expr(call.op)
        args = self._all(call.args)
        if op is call.op and args is call.args:
            return call
        return Call(op, args, call.attrs, call.sinfo_args, None, call.span)

    def visit_if_(self, value: If) -> Expr:
        cond = self.visit_expr(value.cond)
        true_branch = self._branch(value.true_branch)
        false_branch = self._branch(value.false_branch)
        if (
            cond is value.cond
            and true_branch is value.true_branch
            and false_branch is value.false_branch
        ):
            return value
        info = joined_branches(true_branch, false_branch, self.builder_.is_bound_symbol)
        return If(cond, true_branch, false_branch, info, value.span)

    def _branch(self, seq: SeqExpr) -> SeqExpr:
        return _unless_same(self.visit_with_new_scope(seq), seq)

    def visit_function_(self, fn: Function) -> Function:
        params = tuple(self._param(p) for p in fn.params)
        with self.builder_.nested_function(params):
            body = self._body(fn.body)
            new_body = self.builder_.finish_nested(body)
        new_body = _unless_same(new_body, fn.body)
        same = all(a is b for a, b in zip(params, fn.params))
        if same and new_body is fn.body:
            return fn
        ret = fn.ret_struct_info if new_body.struct_info is fn.body.struct_info and same else None
        return Function(params, new_body, ret, fn.is_pure, fn.attrs, fn.span)

    def _param(self, param: Var) -> Var:
        new = self.visit_var_def(param)
        if new is not param:
            self.set_var_remap(param, new)
        return new

    def visit_seq_expr_(self, seq: SeqExpr) -> Expr:
        """The blocks go into the current scope; what is returned is the value."""
        return self._body(seq)

    def _body(self, expr: Any) -> Expr:
        if not isinstance(expr, SeqExpr):
            return self.visit_expr(expr)
        for block in expr.blocks:
            new_block = self.visit_binding_block(block)
            # None: a method of the subclass has emitted what it wanted.
            if new_block is not None:
                self.builder_._add_block(new_block)
        return self.visit_expr(expr.body)

    def visit_binding_block_(self, block: BindingBlock) -> BindingBlock:
        self.builder_._begin_binding_block()
        return self._bindings(block)

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        self.builder_._begin_dataflow_block()
        return self._bindings(block)

    def _bindings(self, block: BindingBlock) -> BindingBlock:
        outer = self.builder_.source
        for binding in block.bindings:
            self.builder_.source = source_of(binding)
            self.visit_binding(binding)
        self.builder_.source = outer
        new_block = self.builder_._end_block()
        return block if _same_items(new_block.bindings, block.bindings) else new_block

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = self.builder_.normalize(self.visit_expr(binding.value))
        var = self._rebound(binding.var, value.struct_info, value is binding.value)
        changed = binding if var is binding.var and value is binding.value else None
        self.builder_.emit_normalized(changed or VarBinding(var, value, binding.span))

    def visit_match_cast_(self, binding: MatchCast) -> None:
        value = self.builder_.normalize(self.visit_expr(binding.value))
        var = self._rebound(binding.var, binding.struct_info, True)
        same = var is binding.var and value is binding.value
        new = binding if same else MatchCast(var, value, binding.struct_info, binding.span)
        self.builder_.emit_normalized(new)

    def _rebound(self, old: Var, info: StructInfo, keep_info: bool) -> Var:
        var = self.visit_var_def(old)
        if not keep_info and var.struct_info is not info:
            var = self.with_struct_info(var, info)
        if var is not old:
            self.set_var_remap(old, var)
        return var

    def _all(self, exprs: tuple[Any, ...]) -> tuple[Any, ...]:
        visited = tuple([self.visit_expr(e) for e in exprs])
        return exprs if _same_items(visited, exprs) else visited


def _unless_same(new: SeqExpr, old: SeqExpr) -> SeqExpr:
    """`old` if `new` has the very same bindings and value, so that unchanged parts stay the same
    objects.
    """
    if new.body is not old.body or len(new.blocks) != len(old.blocks):
        return new
    for a, b in zip(new.blocks, old.blocks):
        if type(a) is not type(b) or not _same_items(a.bindings, b.bindings):
            return new
    return old


def _same_items(new: tuple[Any, ...], old: tuple[Any, ...]) -> bool:
    return len(new) == len(old) and all(map(operator.is_, new, old))
