"""`BlockBuilder`: graph functions written binding by binding.

    b = BlockBuilder()
    with b.function("main", [x, w]):
        with b.dataflow():
            h = b.emit(relax.call_tir(gv, (x, w), R.Tensor((n, 4), "float32")))
            y = b.emit_output(h)
        b.emit_func_output(y)
    mod = b.get()

What is emitted may be nested in any way: it is brought to normal form, with struct info inferred.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..base import UNKNOWN, BuilderError, NameSupply, Span, StructInfoError
from ..ir import (
    BaseFunc,
    GlobalVar,
    IRModule,
    PrimExpr,
    structural_equal,
    substitute,
    walk,
)
from ..ir import Var as TirVar
from ..tir import PrimFunc
from .alike import Alike
from .analysis.purity import is_pure_call
from .analysis.vars import free_vars
from .derive import (
    BaseCheckResult,
    cast_check,
    definable_tir_vars_in_struct_info,
    found_values,
    where,
)
from .emit_te import call_te_inputs
from .expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowVar,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    Var,
    VarBinding,
    as_relax,
    joined_branches,
)
from .flow import leaves, name_of
from .kernel_call import KERNEL_CALLS, check_kernel_call, loop_result
from .normal_form import Normalizer, Scope, is_flat, names_in
from .op import call_tir
from .shape_facts import ShapeFacts, facts_of
from .struct_info import Expr, ShapeStructInfo, StructInfo

_builders: contextvars.ContextVar[tuple[BlockBuilder, ...]] = contextvars.ContextVar(
    "relaxvm_block_builders", default=()
)


class _Frame:
    """A function being written."""

    __slots__ = (
        "attrs",
        "done",
        "loose",
        "name",
        "nested",
        "normal",
        "params",
        "private",
        "pure",
        "symbols",
        "unseen",
        "values",
        "var_of",
    )

    def __init__(
        self,
        name: str,
        params: tuple[Var, ...] | None,
        attrs: Any,
        pure: bool,
        private: bool,
        names: NameSupply,
        nested: bool = False,
    ) -> None:
        self.nested = nested
        self.name = name
        self.params = params
        self.attrs = dict(attrs or {})
        self.pure = pure
        self.private = private
        self.normal = Normalizer(names)
        self.var_of: dict[int, tuple[Var, Expr | None]] = {}
        # The symbols that the parameters bind, by identity.
        self.symbols: set[int] = set()
        # What casts found symbols to be.
        self.values: dict[TirVar, PrimExpr] = {}
        # Whether something was used that may be bound nowhere.
        self.unseen = False
        self.done = False
        # Outside of a function: how many blocks and scopes are open.
        self.loose = 0


class BlockBuilder:
    """Writes graph functions into a module (see the top of this file).

    mod  a module to add to; it is not changed, `get` returns a new one
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        if mod is not None and not isinstance(mod, IRModule):
            raise BuilderError(f"BlockBuilder: wanted an IRModule, got {type(mod).__name__}")
        own = self._mod = mod.clone() if mod is not None else IRModule()
        self._frames: list[_Frame] = []
        self._globals = NameSupply(lambda: [gv.name_hint for gv in own])
        # Of all its functions: the second one's first variable is `lv1`, as in TVM.
        self._locals = NameSupply()
        # For `add_func`; made when it is first asked.
        self._alike: Alike[GlobalVar] | None = None
        # What legalisation made of which operator, so that the same one is not made twice.
        self.legalised: dict[Any, Any] = {}
        # The call that is being legalised: run-time checks are named after its operator.
        self.legalising: Call | None = None
        # Where what is emitted comes from; unknown: from the line that calls.
        self.source = UNKNOWN

    # -- where we are -----------------------------------------------------------------------------

    @staticmethod
    def current() -> BlockBuilder | None:
        """The builder whose function is being written in this thread, or None."""
        stack = _builders.get()
        return stack[-1] if stack else None

    def _frame(self, what: str) -> _Frame:
        if not self._frames:
            raise BuilderError(f"{what}: no function is open; use `with b.function(name, params):`")
        frame = self._frames[-1]
        if frame.done:
            raise BuilderError(f"{what}: function {frame.name} has its output already")
        return frame

    def _scope(self, what: str) -> Scope:
        return self._frame(what).normal.scopes[-1]

    def current_block_is_dataflow(self) -> bool:
        """Whether the block being written is a dataflow block."""
        return self._scope("current_block_is_dataflow").block.dataflow

    def is_bound_symbol(self, symbol: TirVar) -> bool:
        """Whether a parameter or a cast before this place binds `symbol`."""
        for frame in reversed(self._frames):
            if id(symbol) in frame.symbols or any(s.binds(symbol) for s in frame.normal.scopes):
                return True
            if not frame.nested:
                break
        return False

    def shape_facts(self) -> Iterator[ShapeFacts]:
        """What has been checked about dimensions in the scopes being written, nearest first."""
        return facts_of(self._frame("shape_facts").normal.scopes)

    # -- functions --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def function(
        self,
        name: str,
        params: Var | Sequence[Var] | None = None,
        attrs: Any = None,
        private: bool = False,
        pure: bool = True,
    ) -> Iterator[None]:
        """Write the function `name`; the block must end with `emit_func_output`.

        private  the function gets no `global_symbol`, so that passes may change its signature
        pure     whether it has no effect but its result
        If the body raises, nothing of the function remains.
        """
        if not isinstance(name, str) or not name:
            raise BuilderError(f"function: the name is a string, got {name!r}")
        if private and name in self._mod:
            name = self._globals.fresh(name)
        if name in self._mod and not _is_declaration(self._mod[name]):
            raise BuilderError(f"function: the module has a function {name!r} already")
        if any(f.name == name for f in self._frames):
            raise BuilderError(f"function: {name!r} is being written already")
        # Loop functions that the body adds get other names.
        self._globals.reserve(name)
        frame = _Frame(name, None, attrs, pure, private, self._locals)
        if params is not None:
            _set_params(frame, params)
        frame.normal.scopes.append(Scope())
        self._frames.append(frame)
        token = _builders.set((*_builders.get(), self))
        try:
            yield
        except BaseException:
            del self._frames[self._frames.index(frame) :]
            raise
        finally:
            _builders.reset(token)
        self._frames.remove(frame)
        if not frame.done:
            raise BuilderError(
                f"function {name}: emit_func_output is missing; it says what the function returns"
            )

    @contextlib.contextmanager
    def nested_function(self, params: Sequence[Var] = ()) -> Iterator[None]:
        """Write a function that does not go into the module; `finish_nested` gives its body."""
        frame = _Frame("a nested function", None, None, True, True, self._locals, nested=True)
        _set_params(frame, params)
        frame.normal.scopes.append(Scope())
        self._frames.append(frame)
        token = _builders.set((*_builders.get(), self))
        try:
            yield
        finally:
            _builders.reset(token)
            del self._frames[self._frames.index(frame) :]

    def add_params(self, *params: Var) -> None:
        """More parameters of the function being written."""
        frame = self._frame("add_params")
        _set_params(frame, params)

    def finish_nested(self, output: Any) -> SeqExpr:
        """The body of the function begun by `nested_function`, with the value `output`."""
        frame = self._frame("finish_nested")
        body = self._leaf(frame, output)
        frame.done = True
        return SeqExpr(frame.normal.scopes[-1].finish(), body)

    def emit_func_output(self, output: Any, params: Var | Sequence[Var] | None = None) -> GlobalVar:
        """End the function: it returns `output`. `params` may be given here instead of in
        `function`.
        """
        frame = self._frame("emit_func_output")
        if frame.loose:
            raise BuilderError("emit_func_output: the block that is open is in no function")
        if len(frame.normal.scopes) != 1:
            raise BuilderError(f"emit_func_output: function {frame.name} has an open scope")
        if frame.normal.scopes[-1].block.dataflow:
            raise BuilderError(
                f"emit_func_output: function {frame.name} has an open dataflow block; "
                "emit_output what is needed, and leave it first"
            )
        if params is not None:
            if frame.params is not None:
                raise BuilderError(
                    f"emit_func_output: function {frame.name} has its parameters already"
                )
            _set_params(frame, params)
        if frame.params is None:
            raise BuilderError(f"emit_func_output: function {frame.name} needs params=")
        body = self._leaf(frame, output)
        seq = SeqExpr(frame.normal.scopes[-1].finish(), body)
        attrs = dict(frame.attrs)
        if not frame.private:
            attrs.setdefault("global_symbol", frame.name)
        fn = Function(frame.params, seq, None, frame.pure, attrs)
        if frame.unseen and len(self._frames) == 1:
            _refuse_unbound(frame.name, fn)
        frame.done = True
        # A declaration is replaced in place: callers hold its GlobalVar.
        self._mod[frame.name] = fn
        self._remember(self._mod.get_global_var(frame.name), fn)
        self._globals.reserve(frame.name)
        return self._mod.get_global_var(frame.name)

    def add_func(self, func: BaseFunc, func_name: str) -> GlobalVar:
        """Add a function under `func_name` or a name like it; an equal one that is there already
        is used instead.
        """
        if not isinstance(func, BaseFunc):
            raise BuilderError(f"add_func: wanted a function, got {type(func).__name__}")
        if self._alike is None:
            self._alike = Alike()
            for gv, each in self._mod.items():
                self._alike.put(each, gv)
        for gv in self._alike.of(func):
            if gv in self._mod and structural_equal(self._mod[gv], func):
                return gv
        name = self._globals.fresh(func_name)
        if func.get_attr("global_symbol") not in (None, name):
            func = func.with_attr("global_symbol", name)
        self._mod[name] = func
        gv = self._mod.get_global_var(name)
        self._remember(gv, func)
        return gv

    def _remember(self, gv: GlobalVar, func: BaseFunc) -> None:
        if self._alike is not None:
            self._alike.put(func, gv)

    def update_func(self, gv: GlobalVar | str, updated_func: BaseFunc) -> None:
        """Put a function under `gv`, replacing what is there; a name must be there already."""
        if not isinstance(gv, GlobalVar):
            gv = self._mod.get_global_var(gv)
        self._mod.update_func(gv, updated_func)
        self._remember(gv, updated_func)

    def get(self) -> IRModule:
        """The module with what has been written so far."""
        return self._mod.clone()

    def get_context_mod(self) -> IRModule:
        """The same as `get`, under TVM's other name."""
        return self.get()

    def finalize(self) -> IRModule:
        """The module; every function must be complete."""
        if self._frames:
            raise BuilderError(f"finalize: function {self._frames[-1].name} is not complete")
        return self.get()

    # -- blocks and scopes ------------------------------------------------------------------------

    @contextlib.contextmanager
    def dataflow(self) -> Iterator[None]:
        """Write a dataflow block; only what is given to `emit_output` can be used after it.

        Outside of a function it is written for its own sake, and forgotten.
        """
        if not self._frames or self._frames[-1].loose:
            frame = self._begin_loose(True)
            depth = frame.loose
            try:
                yield
            finally:
                # A body that raised may have left others open.
                while frame.loose >= depth:
                    self._end_loose()
            return
        frame = self._frame("dataflow")
        depth = len(frame.normal.scopes)
        scope = frame.normal.scopes[-1]
        if scope.block.dataflow:
            raise BuilderError("dataflow: a dataflow block cannot stand in another")
        scope.begin(True)
        try:
            yield
        except BaseException:
            del frame.normal.scopes[depth:]
            scope.discard()
            raise
        if frame.normal.scopes[-1] is not scope:
            raise BuilderError("dataflow: a scope opened in the block is still open")
        scope.end()

    def begin_scope(self, params: Sequence[Var] | None = None) -> None:
        """Begin a branch: what is emitted until `end_scope` belongs to it.

        params  variables whose names and symbols are known in it
        """
        if not self._frames or self._frames[-1].loose:
            frame = self._begin_loose(False)
            for param in params or ():
                symbols = definable_tir_vars_in_struct_info(param.struct_info)
                frame.symbols.update(map(id, symbols))
                frame.var_of[id(param)] = (param, None)
            return
        frame = self._frame("begin_scope")
        if frame.normal.scopes[-1].block.dataflow:
            raise BuilderError("begin_scope: a dataflow block has no branches; end it first")
        for param in params or ():
            frame.normal.names.reserve(param.name_hint)
        frame.normal.scopes.append(Scope())

    def end_scope(self, output: Any = None) -> SeqExpr | None:
        """End the branch begun last. With `output`, gives it as a `SeqExpr` with that value, else
        drops it.
        """
        frame = self._frame("end_scope")
        if frame.loose:
            body = None if output is None else self._leaf(frame, output)
            blocks = self._end_loose()
            return None if body is None else SeqExpr(blocks.finish(), body)
        if len(frame.normal.scopes) < 2:
            raise BuilderError("end_scope: no scope is open")
        if frame.normal.scopes[-1].block.dataflow:
            raise BuilderError("end_scope: the scope has an open dataflow block")
        body = None if output is None else self._leaf(frame, output)
        scope = frame.normal.scopes.pop()
        return None if body is None else SeqExpr(scope.finish(), body)

    @contextlib.contextmanager
    def testing_scope(self, def_vars: Sequence[TirVar]) -> Iterator[None]:
        """Write bindings outside of a function, where the symbols `def_vars` are known."""
        for symbol in def_vars:
            if not isinstance(symbol, TirVar):
                raise BuilderError(f"testing_scope: wanted symbols, got {type(symbol).__name__}")
        self.begin_scope([Var("sparam", ShapeStructInfo(def_vars))])
        try:
            with self.dataflow():
                yield
        finally:
            self.end_scope()

    def _begin_loose(self, dataflow: bool) -> _Frame:
        """Open a block in no function, inside those that are open."""
        if not self._frames:
            name = "a block outside of a function"
            frame = _Frame(name, (), None, False, True, self._locals, nested=True)
            frame.normal.scopes.append(Scope())
            self._frames.append(frame)
        frame = self._frames[-1]
        if frame.normal.scopes[-1].block.dataflow:
            raise BuilderError("a dataflow block holds no other blocks; end it first")
        frame.loose += 1
        frame.normal.scopes.append(Scope())
        if dataflow:
            frame.normal.scopes[-1].begin(True)
        return frame

    def _end_loose(self) -> Scope:
        frame = self._frames[-1]
        frame.loose -= 1
        scope = frame.normal.scopes.pop()
        if not frame.loose:
            self._frames.remove(frame)
        return scope

    # -- bindings ---------------------------------------------------------------------------------

    def emit(self, expr: Any, name_hint: str = "") -> Var:
        """Bind `expr` to a new variable (a `DataflowVar` inside a dataflow block), and give it."""
        frame = self._frame("emit")
        return self._bind(frame, expr, name_hint, False)

    def emit_output(self, output: Any, name_hint: str = "") -> Var:
        """Bind `output` (an expression, or several as a tuple) to a variable that can be used
        after the dataflow block.
        """
        frame = self._frame("emit_output")
        if not frame.normal.scopes[-1].block.dataflow:
            raise BuilderError("emit_output: not in a dataflow block; use emit or emit_func_output")
        return self._bind(frame, output, name_hint, True)

    def as_outputs(self, *variables: Var) -> tuple[Var, ...]:
        """Let variables of the open dataflow block be used after it: those that now stand in the
        place of `variables`.
        """
        frame = self._frame("as_outputs")
        block = frame.normal.scopes[-1].block
        outputs: dict[Var, Var] = {}
        for var in variables:
            if not block.dataflow or id(var) not in block.defined:
                raise BuilderError(
                    f"as_outputs: wanted variables of an open dataflow block, got {var}"
                )
            if isinstance(var, DataflowVar):
                outputs.setdefault(var, Var(var.name_hint, var.struct_info, var.span))
        bindings = block.bindings
        block.bindings, block.defined, block.memo = [], set(), {}
        for binding in bindings:
            var = outputs.get(binding.var, binding.var)
            new = binding.replace(var=var, value=substitute(binding.value, outputs))
            block.append(new)
            frame.var_of[id(var)] = (var, new.value)
        return tuple(outputs.get(var, var) for var in variables)

    def _bind(self, frame: _Frame, expr: Any, name_hint: str, as_output: bool) -> Var:
        expr = as_relax(expr)
        value = frame.normal.value(expr)
        self._check_visible(frame, value)
        if isinstance(value, Call):
            value = self._typed(value)
            self._check_kernel(value)
            self._check_purity(frame, value)
        elif isinstance(value, If):
            value = self._joined(value)
        var = frame.normal.bind(value, name_hint, as_output=as_output, span=self._place(3))
        if not isinstance(expr, Var):
            frame.normal.remember(expr, var)
        frame.var_of[id(var)] = (var, value)
        return var

    def _joined(self, value: If) -> If:
        """`value` with what its branches have in common in terms of the symbols bound here."""
        branches = value.true_branch, value.false_branch
        if value.struct_info is not joined_branches(*branches):
            return value  # its struct info was given
        return value.replace(struct_info=joined_branches(*branches, self.is_bound_symbol))

    def _leaf(self, frame: _Frame, expr: Any) -> Expr:
        leaf = frame.normal.leaf(as_relax(expr))
        self._check_visible(frame, leaf)
        return leaf

    def _typed(self, call: Call) -> Call:
        """A direct call of a loop function with its return type."""
        op = call.op
        if not isinstance(op, GlobalVar) or op.struct_info is not None or call.sinfo_args:
            return call
        fn = self._mod.get(op)
        if not isinstance(fn, PrimFunc):
            return call
        info = loop_result(getattr(fn.ret_type, "dtype", None))
        return call.replace(struct_info=info)

    def _check_kernel(self, call: Call) -> None:
        """Check a call_tir of a loop function that is in the module already against its buffers."""
        if call.op not in KERNEL_CALLS:
            return
        callee = call.args[0]
        fn = self._mod.get(callee) if isinstance(callee, GlobalVar) else None
        if isinstance(fn, PrimFunc):
            check_kernel_call(call, fn)

    def _check_purity(self, frame: _Frame, call: Call) -> None:
        """Refuse calls with effects in a dataflow block of a function the user writes."""
        if frame.nested or not frame.normal.scopes[-1].block.dataflow:
            return
        if not is_pure_call(call, self._mod):
            span = call.span if call.span is not UNKNOWN else self._place(4)
            raise BuilderError(
                f"function {frame.name}: {name_of(call.op)} may have effects, which a "
                "dataflow block does not allow; use call_pure_packed if it has none, or call it "
                f"outside the block, in a function made with pure=False{where(span)}"
            )

    def _check_visible(self, frame: _Frame, value: Expr) -> None:
        """Refuse dataflow variables of a block that has ended."""
        for each in leaves(value):
            if isinstance(each, DataflowVar):
                if not any(id(each) in s.block.defined for s in frame.normal.scopes):
                    raise BuilderError(
                        f"{each.name_hint} is a dataflow variable of another block; pass it to "
                        "emit_output there and use what that "
                        f"gives{where(getattr(value, 'span', UNKNOWN))}"
                    )
            elif isinstance(each, Var):
                frame.unseen = frame.unseen or id(each) not in frame.var_of

    def _place(self, depth: int) -> Span:
        return _line_of_caller(depth + 1) if self.source is UNKNOWN else self.source

    def match_cast(
        self, value: Any, struct_info: StructInfo, name_hint: str = "", span: Span = UNKNOWN
    ) -> Var:
        """Bind `value`, checked at run time to be of `struct_info`; symbols first met there are
        bound by it.

        Raises StructInfoError if it certainly is not.
        """
        frame = self._frame("match_cast")
        if not isinstance(struct_info, StructInfo):
            raise StructInfoError(
                f"match_cast: wanted struct info, got {type(struct_info).__name__}: {struct_info!r}"
            )
        leaf = self._leaf(frame, value)
        if span is UNKNOWN:
            span = self._place(2)
        sure = cast_check(struct_info, leaf.struct_info, self.is_bound_symbol, frame.values)
        if sure is BaseCheckResult.FAIL_L0:
            leaf_span = getattr(leaf, "span", UNKNOWN)
            raise StructInfoError(
                f"match_cast: the value can never be that\n  wanted: {struct_info}"
                f"{found_values(struct_info, frame.values)}{where(span)}\n"
                f"  got:    {leaf.struct_info}{where(leaf_span)}"
            )
        block = frame.normal.scopes[-1].block
        name = frame.normal.names.fresh(name_hint or ("lv" if block.dataflow else "gv"))
        var = (DataflowVar if block.dataflow else Var)(name, struct_info, span)
        block.append(MatchCast(var, leaf, struct_info, span))
        frame.var_of[id(var)] = (var, leaf)
        return var

    emit_match_cast = match_cast

    def emit_normalized(self, binding: Binding) -> Var:
        """Append a binding whose value is in normal form already, variable included."""
        frame = self._frame("emit_normalized")
        if not isinstance(binding, (VarBinding, MatchCast)):
            raise BuilderError(f"emit_normalized: wanted a binding, got {type(binding).__name__}")
        if not is_flat(binding.value) and not isinstance(binding.value, (If, Function)):
            raise BuilderError(
                f"emit_normalized: the value of {binding.var.name_hint} is not in normal "
                "form; use emit"
            )
        block = frame.normal.scopes[-1].block
        if isinstance(binding.var, DataflowVar) and not block.dataflow:
            raise BuilderError(
                f"emit_normalized: {binding.var.name_hint} is a dataflow variable outside a "
                "dataflow block"
            )
        if isinstance(binding.value, If) and block.dataflow:
            raise BuilderError("emit_normalized: an If cannot stand in a dataflow block")
        self._check_visible(frame, binding.value)
        frame.normal.names.reserve(binding.var.name_hint)
        block.append(binding)
        frame.var_of[id(binding.var)] = (binding.var, binding.value)
        return binding.var

    # -- expressions ------------------------------------------------------------------------------

    def normalize(self, expr: Any) -> Expr:
        """`expr` in normal form. What it needs is bound in the current block; functions need no
        open block.
        """
        expr = as_relax(expr)
        if isinstance(expr, Function):
            return Normalizer(names_in(expr)).function(expr)
        if isinstance(expr, SeqExpr):
            if not self._frames:
                return Normalizer(names_in(expr)).seq(expr)
            return self._frame("normalize").normal.seq(expr)
        if is_flat(expr):
            return expr
        return self._frame("normalize").normal.value(expr)

    def call_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
        """A `call_tir` of the loop function that the tensor expression `func(*args, **kwargs)`
        describes.

        Tensors among `args` become placeholders, scalars and shapes scalar expressions.
        `primfunc_name_hint` names the loop function, which is added to the module; `primfunc_attrs`
        are attributes for it.
        """
        name = kwargs.pop("primfunc_name_hint", None)
        attrs = kwargs.pop("primfunc_attrs", None)
        span = kwargs.pop("span", UNKNOWN)
        prim_func, inputs, out_sinfo, tir_vars = call_te_inputs(func, args, kwargs)
        if attrs:
            prim_func = prim_func.with_attr(attrs)
        gv = self.add_func(prim_func, name or _name_of(func))
        return call_tir(gv, inputs, out_sinfo, tir_vars or None, span=span)

    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
        """Bind `call_te(func, *args, **kwargs)`; `name_hint` names the variable."""
        hint = kwargs.pop("name_hint", "")
        return self.emit(self.call_te(func, *args, **kwargs), hint)

    def lookup_binding(self, var: Var) -> Expr | None:
        """What `var` was bound to in the function being written, or None."""
        for frame in reversed(self._frames):
            entry = frame.var_of.get(id(var))
            if entry is not None:
                return entry[1]
        return None

    def get_unique_name(self, name_prefix: str) -> str:
        """A name that no variable of the builder's functions (outside one: no function of the
        module) has.
        """
        return (self._frames[-1].normal.names if self._frames else self._globals).fresh(name_prefix)

    # TVM's mutators open blocks by these names.

    def _begin_dataflow_block(self) -> None:
        self._begin_block(True)

    def _begin_binding_block(self) -> None:
        self._begin_block(False)

    def _begin_block(self, dataflow: bool) -> None:
        if not self._frames or self._frames[-1].loose:
            self._begin_loose(dataflow)
        else:
            self._scope("begin of block").begin(dataflow)

    def _end_block(self) -> BindingBlock:
        scope = self._scope("end of block")
        done = scope.block.finish()
        if self._frames[-1].loose:
            self._end_loose()
        scope.discard()
        return done if done is not None else BindingBlock(())

    def _add_block(self, block: BindingBlock) -> None:
        """Append a block that was ended, or one like it."""
        self._scope("a block").add(block)


def _line_of_caller(depth: int) -> Span:
    """The line that calls the builder, if that is not one of relaxvm's own."""
    frame = sys._getframe(depth)
    if frame.f_globals.get("__name__", "").startswith(_OWN):
        return UNKNOWN
    return Span(frame.f_code.co_filename, frame.f_lineno, 1)


_OWN = __name__.partition(".")[0] + "."


def _set_params(frame: _Frame, params: Any) -> None:
    items = (params,) if isinstance(params, Var) else tuple(params)
    for param in items:
        if not isinstance(param, Var) or isinstance(param, DataflowVar):
            raise BuilderError(
                f"function {frame.name}: a parameter is a relax.Var, got {type(param).__name__}"
            )
        if id(param) in frame.var_of:
            raise BuilderError(f"function {frame.name}: parameter {param.name_hint} stands twice")
        frame.var_of[id(param)] = (param, None)
        frame.normal.names.reserve(param.name_hint)
        frame.symbols.update(map(id, definable_tir_vars_in_struct_info(param.struct_info)))
    frame.params = (*(frame.params or ()), *items)


def _refuse_unbound(name: str, fn: Function) -> None:
    """Raise BuilderError for a variable that a function uses and nothing in it binds."""
    for var in free_vars(fn):
        bindings = (n for n in walk(fn) if isinstance(n, Binding))
        user: Any = next((b for b in bindings if any(n is var for n in walk(b.value))), fn)
        raise BuilderError(
            f"function {name}: {var.name_hint} is used, but it is no parameter and nothing in the "
            f"function binds it{where(user.span)}"
        )


def _is_declaration(fn: BaseFunc) -> bool:
    """Whether `fn` was made by `Function.create_empty` and waits for its body."""
    if not isinstance(fn, Function):
        return False
    body = fn.body.body
    empty = not fn.body.blocks and isinstance(body, Tuple) and not body.fields
    return empty and fn.ret_struct_info is not body.struct_info


def _name_of(func: Callable[..., Any]) -> str:
    own = getattr(func, "__name__", None)
    name = own or getattr(getattr(func, "func", None), "__name__", None)
    is_lambda = isinstance(func, types.LambdaType) and name == "<lambda>"
    return "te_func" if name is None or is_lambda else str(name)
