"""The rules every graph function keeps, checked.

variables    bound once, before use, in a scope that sees the use; dataflow variables stay inside
             their block
symbols      bound by parameters or match_cast before they are used; a result mentions only those
             of parameters
normal form  every value that is no leaf has a variable of its own
struct info  calls give what they say, bindings are what their variables say, results what
             functions say
purity       no impure call in a dataflow block, nor in a pure function unless it has
             ``relax.force_pure``, which only a pure function may have
module       called functions exist, kernels take what call_tir gives them, public names are unique
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...base import (
    UNKNOWN,
    InternalError,
    RelaxvmError,
    Span,
    Steps,
    StructInfoError,
    VerifyError,
    run_steps,
)
from ...ir import GlobalVar, IntImm, IRModule, Op, PrimExpr, walk
from ...ir import Var as TirVar
from ...tir import PrimFunc
from ..derive import (
    BaseCheckResult,
    cast_check,
    definable_tir_vars_in_struct_info,
    derive_call_ret_struct_info,
    found_values,
    infer_call,
    is_base_of,
    made_at,
    tir_vars_in_struct_info,
    where,
)
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    TupleGetItem,
    Var,
    VarBinding,
    is_leaf,
)
from ..flow import leaves, name_of, struct_info_vars
from ..kernel_call import KERNEL_CALLS, check_kernel_call, loop_result
from ..normal_form import is_flat
from ..struct_info import (
    Expr,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
)
from .purity import is_pure_call


def well_formed(mod: IRModule | Function, check_struct_info: bool = True) -> bool:
    """Whether a module or a function keeps the rules, and no symbol belongs to two functions.
    `check_well_formed` says which one it breaks.
    """
    try:
        check_well_formed(mod, check_struct_info, own_symbols=True)
    except VerifyError:
        return False
    return True


def check_well_formed(
    mod: IRModule | Function, check_struct_info: bool = True, own_symbols: bool = False
) -> None:
    """Raise VerifyError, naming function, variable and source line, for the first rule broken.

    check_struct_info  also infer every call again and compare
    own_symbols        also refuse a symbol that two functions bind. A build accepts it, since each
                       function binds its own.
    """
    if isinstance(mod, Function):
        _Checker(None, str(mod.get_attr("global_symbol", "the function")), check_struct_info).check(
            mod
        )
        return
    if not isinstance(mod, IRModule):
        raise VerifyError(
            f"well_formed: wanted an IRModule or a Function, got {type(mod).__name__}"
        )
    _check_names(mod)
    owner: dict[int, str] = {}
    for gv, fn in mod.items():
        if not isinstance(fn, Function):
            continue
        checker = _Checker(mod, gv.name_hint, check_struct_info)
        checker.check(fn)
        for symbol, place in checker.symbol_places.values() if own_symbols else ():
            other = owner.setdefault(id(symbol), gv.name_hint)
            if other != gv.name_hint:
                raise VerifyError(
                    f"in {gv.name_hint}, {place}: the symbol {symbol.name} is bound in {other} "
                    "too; make one for each function"
                )


assert_well_formed = check_well_formed


def _check_names(mod: IRModule) -> None:
    owner: dict[str, str] = {}
    for gv, fn in mod.items():
        symbol = fn.get_attr("global_symbol")
        if symbol is None:
            continue
        if not isinstance(symbol, str):
            raise VerifyError(f"{gv.name_hint}: global_symbol is a string, got {symbol!r}")
        if isinstance(fn, Function) and symbol != gv.name_hint:
            raise VerifyError(
                f"{gv.name_hint}: its global_symbol is {symbol!r}; a graph function has the "
                "name it stands under"
            )
        if symbol in owner:
            raise VerifyError(
                f"{gv.name_hint} and {owner[symbol]} have the same global_symbol {symbol!r}; "
                "rename one, or make it private"
            )
        owner[symbol] = gv.name_hint


class _Checker:
    def __init__(self, mod: IRModule | None, name: str, check_struct_info: bool) -> None:
        self.mod = mod
        self.name = name
        self.check_infos = check_struct_info
        self.at = ""
        self.span: Span = UNKNOWN
        self.bound: set[int] = set()
        # symbol, and what bound it; kept when the scope ends, for messages.
        self.symbol_places: dict[int, tuple[TirVar, str]] = {}
        self.visible: set[int] = set()
        self.symbols: set[int] = set()
        # What casts found symbols to be.
        self.values: dict[TirVar, PrimExpr] = {}
        # What the scope being checked has made visible, to be undone when it ends.
        self.log: list[tuple[set[int], int]] = []
        self.outer_symbols: frozenset[int] = frozenset()
        self.pure_region = False
        self.in_dataflow = False
        self.force_pure = False
        self._info_symbols: dict[int, tuple[StructInfo, list[TirVar], list[Var]]] = {}

    def check(self, fn: Function) -> None:
        try:
            run_steps(self.function(fn, outer=True))
        except VerifyError:
            raise
        except InternalError:
            raise
        except RelaxvmError as error:
            raise self.error(str(error)) from error

    def error(self, message: str, span: Span | None = None) -> VerifyError:
        place = f", {self.at}" if self.at else ""
        return VerifyError(f"in {self.name}{place}: {message}{where(span or self.span)}")

    # -- functions and blocks ---------------------------------------------------------------------

    def function(self, fn: Function, outer: bool) -> Steps:
        saved = (self.pure_region, self.in_dataflow, self.force_pure)
        outer_log, self.log = self.log, []
        place, span = self.at, self.span
        if fn.get_attr("relax.force_pure", False):
            if not fn.is_pure:
                raise self.error("relax.force_pure is for pure functions, this has is_pure=False")
            self.force_pure = True
        self.pure_region, self.in_dataflow = fn.is_pure, False
        self.params(fn)
        yield self.seq(fn.body)
        if outer:
            self.at = "its result"
        self.span = fn.body.body.span if hasattr(fn.body.body, "span") else fn.span
        self.result(fn)
        self.leave(outer_log)
        self.pure_region, self.in_dataflow, self.force_pure = saved
        self.at, self.span = place, span
        return None

    def params(self, fn: Function) -> None:
        for p in fn.params:
            self.bind_var(p, "parameter")
            for symbol in definable_tir_vars_in_struct_info(p.struct_info):
                self.see(self.symbols, id(symbol))
                self.symbol_places.setdefault(id(symbol), (symbol, f"parameter {p.name_hint}"))
        for p in fn.params:
            self.at = f"parameter {p.name_hint}"
            self.check_info(p.struct_info, p.span, "no parameter determines it")
        self.at = ""

    def result(self, fn: Function) -> None:
        ret = fn.ret_struct_info
        outer = self.symbols_of_params(fn)
        for symbol in self.info_symbols(ret)[0]:
            if id(symbol) not in outer:
                raise self.error(
                    f"ret_struct_info {ret} mentions {symbol.name}, which no parameter determines, "
                    "so callers cannot know it",
                    fn.span,
                )
        if not self.check_infos:
            return
        got = fn.body.struct_info
        if not is_base_of(ret, got):
            raise self.error(
                f"the result is not what ret_struct_info says\n  wanted: {ret}\n  got:    {got}\n"
                "  if the sizes agree for a reason that cannot be proved, bind the result "
                "with match_cast"
            )

    def symbols_of_params(self, fn: Function) -> set[int]:
        # Symbols of an enclosing function are known to callers too: they stand inside it.
        symbols = set(self.outer_symbols)
        for p in fn.params:
            symbols.update(id(s) for s in definable_tir_vars_in_struct_info(p.struct_info))
        return symbols

    def seq(self, seq: Any) -> Steps:
        if not isinstance(seq, SeqExpr):
            raise self.error(f"a body or branch is a SeqExpr, got {type(seq).__name__}")
        for block in seq.blocks:
            if not isinstance(block, BindingBlock):
                raise self.error(f"a SeqExpr holds blocks, got {type(block).__name__}")
            self.in_dataflow = isinstance(block, DataflowBlock)
            for binding in block.bindings:
                yield self.binding(binding)
            if self.in_dataflow:
                for binding in block.bindings:
                    if isinstance(binding.var, DataflowVar):
                        self.visible.discard(id(binding.var))
            self.in_dataflow = False
        self.at = "the value of a body"
        self.span = getattr(seq.body, "span", UNKNOWN)
        if not is_leaf(seq.body):
            raise self.error(
                f"it is not bound to a variable: {type(seq.body).__name__}; run Normalize"
            )
        self.leaf(seq.body)
        return None

    def branch(self, seq: SeqExpr) -> Steps:
        outer, self.log = self.log, []
        yield self.seq(seq)
        self.leave(outer)
        return None

    def leave(self, outer: list[tuple[set[int], int]]) -> None:
        """End a scope: what it bound is not visible any more."""
        for names, key in self.log:
            names.discard(key)
        self.log = outer

    def see(self, names: set[int], key: int) -> None:
        """Make a variable or symbol visible until the scope ends."""
        if key not in names:
            names.add(key)
            self.log.append((names, key))

    # -- bindings ---------------------------------------------------------------------------------

    def binding(self, binding: Binding) -> Steps:
        var, value = binding.var, binding.value
        self.at = f"variable {getattr(var, 'name_hint', '?')}"
        self.span = binding.span or UNKNOWN
        if self.span is UNKNOWN:
            self.span = getattr(value, "span", UNKNOWN)
        if not isinstance(var, Var):
            raise self.error(f"a binding binds a Var, got {type(var).__name__}")
        if isinstance(var, DataflowVar) and not self.in_dataflow:
            raise self.error("a DataflowVar is bound outside a dataflow block")
        if isinstance(binding, MatchCast):
            self.match_cast(binding)
        elif isinstance(binding, VarBinding):
            place, span = self.at, self.span
            if isinstance(value, Function):
                self.see(self.visible, id(var))  # an inner function may call itself
            yield self.value(value)
            self.at, self.span = place, span
            if self.check_infos:
                self.fits(var.struct_info, value.struct_info, "its value does not fit it")
        else:
            raise self.error(f"{type(binding).__name__} is no binding")
        self.bind_var(var, "variable")
        self.check_info(var.struct_info, self.span, "it is not bound before")
        return None

    def match_cast(self, binding: MatchCast) -> None:
        if not is_leaf(binding.value):
            raise self.error(
                f"the value of match_cast is not bound to a variable: "
                f"{type(binding.value).__name__}; run Normalize"
            )
        self.leaf(binding.value)
        info = binding.struct_info
        got = binding.value.struct_info
        sure = cast_check(info, got, lambda v: id(v) in self.symbols, self.values)
        for symbol in definable_tir_vars_in_struct_info(info):
            self.see(self.symbols, id(symbol))
            self.symbol_places.setdefault(id(symbol), (symbol, self.at))
        self.check_info(info, self.span, "nothing determines it")
        if sure is BaseCheckResult.FAIL_L0:
            raise self.error(
                f"match_cast: the value can never be that\n  wanted: {info}"
                f"{found_values(info, self.values)}\n"
                f"  got:    {got}{made_at(binding.value)}"
            )
        if self.check_infos:
            self.fits(binding.var.struct_info, info, "match_cast gives it other struct info")

    def fits(self, wanted: StructInfo, got: StructInfo, message: str) -> None:
        if wanted is not got and not is_base_of(wanted, got):
            raise self.error(f"{message}\n  wanted: {wanted}\n  got:    {got}")

    def bind_var(self, var: Var, what: str) -> None:
        if id(var) in self.bound:
            raise self.error(f"{what} {var.name_hint} is bound twice")
        self.bound.add(id(var))
        self.see(self.visible, id(var))

    # -- values -----------------------------------------------------------------------------------

    def value(self, value: Any) -> Steps:
        if isinstance(value, If):
            yield self.conditional(value)
        elif isinstance(value, Function):
            outer = self.outer_symbols
            self.outer_symbols = frozenset(self.symbols)
            yield self.function(value, outer=False)
            self.outer_symbols = outer
        elif not isinstance(value, Expr) and not isinstance(value, GlobalVar):
            raise self.error(f"{type(value).__name__} is no expression of the graph language")
        elif not is_flat(value):
            raise self.error(
                f"it is not in normal form: an operand of {type(value).__name__} has no "
                "variable of its own; "
                "run Normalize"
            )
        elif isinstance(value, Call):
            self.call(value)
        elif isinstance(value, TupleGetItem):
            self.leaf(value.tuple_value)
        else:
            self.leaf(value)
        return None

    def conditional(self, value: If) -> Steps:
        if self.in_dataflow:
            raise self.error("an If stands in a dataflow block")
        if not is_leaf(value.cond):
            raise self.error("the condition of an If is not bound to a variable; run Normalize")
        self.leaf(value.cond)
        info = value.cond.struct_info
        if not _is_bool_scalar(info):
            raise self.error(f"the condition of an If is a bool scalar, got {info}")
        for branch in (value.true_branch, value.false_branch):
            place, span = self.at, self.span
            yield self.branch(branch)
            self.at, self.span = place, span
            if self.check_infos:
                self.fits(value.struct_info, branch.struct_info, "a branch does not fit the If")
        self.check_info(value.struct_info, self.span, "it is bound only inside a branch")
        return None

    def call(self, call: Call) -> None:
        if call.span is not UNKNOWN:
            self.span = call.span
        if not isinstance(call.op, Op):
            self.leaf(call.op)
        for arg in call.args:
            self.leaf(arg)
        for info in call.sinfo_args:
            self.check_info(info, self.span, "it is not bound before")
        self.check_purity(call)
        callee = self.callee(call.op)
        if self.check_infos:
            self.check_call(call, callee)
        if call.op in KERNEL_CALLS:
            self.check_kernel(call)

    def callee(self, op: Any) -> Any:
        if self.mod is None or not isinstance(op, GlobalVar):
            return None
        return self.mod[op]

    def check_purity(self, call: Call) -> None:
        if not (self.in_dataflow or (self.pure_region and not self.force_pure)):
            return
        if not is_pure_call(call, self.mod):
            place = "a dataflow block" if self.in_dataflow else f"the pure function {self.name}"
            raise self.error(
                f"{name_of(call.op)} may have effects and is called in {place}; use "
                "call_pure_packed if it has none, or declare the function pure=False and call it "
                "outside dataflow blocks"
            )

    def check_call(self, call: Call, callee: Any) -> None:
        try:
            if isinstance(callee, Function):
                names = [p.name_hint for p in callee.params]
                got = derive_call_ret_struct_info(
                    callee.struct_info,
                    call.args,
                    name=call.op.name_hint,  # type: ignore[attr-defined]
                    param_names=names,
                )
            elif isinstance(callee, PrimFunc):
                if call.sinfo_args:
                    return
                got = loop_result(getattr(callee.ret_type, "dtype", None))
            else:
                got = infer_call(call.op, call.args, call.attrs, call.sinfo_args)
        except StructInfoError as error:
            raise self.error(str(error)) from None
        self.fits(call.struct_info, got, "the call gives other struct info than it says")

    def check_kernel(self, call: Call) -> None:
        gv = call.args[0]
        if self.mod is None or not isinstance(gv, GlobalVar):
            return
        fn = self.mod[gv]
        if isinstance(fn, Function):
            raise self.error(
                f"{gv.name_hint} is a graph function; call it directly, without call_tir"
            )
        if isinstance(fn, PrimFunc):
            try:
                check_kernel_call(call, fn)
            except StructInfoError as error:
                raise self.error(str(error)) from None

    # -- leaves -----------------------------------------------------------------------------------

    def leaf(self, value: Any) -> None:
        for each in (value,) if type(value) in _LEAF_RULES else leaves(value):
            rule = _LEAF_RULES.get(type(each))
            if rule is not None:
                rule(self, each)

    def use_var(self, var: Var) -> None:
        if id(var) in self.visible:
            return
        if id(var) in self.bound:
            if isinstance(var, DataflowVar):
                raise self.error(
                    f"{var.name_hint} is a dataflow variable and used outside its block; pass "
                    f"it to R.output{made_at(var)}"
                )
            raise self.error(
                f"{var.name_hint} is used outside the scope that binds it{made_at(var)}"
            )
        raise self.error(f"{var.name_hint} is not bound")

    def use_global(self, gv: GlobalVar) -> None:
        if self.mod is not None and gv not in self.mod:
            has = ", ".join(g.name_hint for g in self.mod) or "none"
            raise self.error(f"{gv.name_hint} is not in the module; it has: {has}")

    def use_constant(self, constant: Constant) -> None:
        info, data = constant.struct_info, constant.data
        wanted = TensorStructInfo(tuple(int(d) for d in data.shape), data.dtype)
        if not is_base_of(info, wanted):
            raise self.error(
                f"a constant is not what it says\n  wanted: {info}\n  got:    {wanted}"
            )

    def use_shape(self, shape: ShapeExpr) -> None:
        self.check_exprs(shape.values)

    def use_prim(self, value: PrimValue) -> None:
        self.check_exprs((value.value,))

    def check_exprs(self, exprs: Iterable[PrimExpr]) -> None:
        for expr in exprs:
            if isinstance(expr, IntImm):
                continue
            for n in (expr,) if isinstance(expr, TirVar) else walk(expr):
                if isinstance(n, TirVar) and id(n) not in self.symbols:
                    raise self.error(
                        f"symbol {n.name} is not bound before it is used in {expr}"
                        f"{self.bound_in(n)}"
                    )

    def bound_in(self, symbol: TirVar) -> str:
        """A line for a message about a symbol that is not visible: where it was."""
        place = self.symbol_places.get(id(symbol))
        return f"; it was bound by {place[1]}, in a scope that has ended" if place else ""

    def info_symbols(self, info: StructInfo) -> tuple[list[TirVar], list[Var]]:
        entry = self._info_symbols.get(id(info))
        if entry is None:
            entry = (info, tir_vars_in_struct_info(info), struct_info_vars(info))
            self._info_symbols[id(info)] = entry
        return entry[1], entry[2]

    def check_info(self, info: StructInfo, span: Span, why: str) -> None:
        symbols, variables = self.info_symbols(info)
        for symbol in symbols:
            if id(symbol) not in self.symbols:
                raise self.error(
                    f"{info} mentions the symbol {symbol.name}, but {why}{self.bound_in(symbol)}",
                    span,
                )
        for var in variables:
            self.use_var(var)


_LEAF_RULES: dict[type, Callable[[_Checker, Any], None]] = {
    Var: _Checker.use_var,
    DataflowVar: _Checker.use_var,
    GlobalVar: _Checker.use_global,
    Constant: _Checker.use_constant,
    ShapeExpr: _Checker.use_shape,
    PrimValue: _Checker.use_prim,
}


def _is_bool_scalar(info: StructInfo) -> bool:
    if isinstance(info, PrimStructInfo):
        return info.dtype.is_bool
    if isinstance(info, TensorStructInfo):
        return info.dtype in ("bool", "void") and info.ndim in (-1, 0)
    return isinstance(info, ObjectStructInfo)
