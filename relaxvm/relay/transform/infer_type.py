"""InferType: the type of every value of a function in Relay's spelling.

fn (%x: Tensor[(1, 4), float32], %w) { nn.dense(%x, %w, units=2) }     %w: Tensor[(2, 4), float32]

What operators determine, parameters become: the weight of a layer, of `units` or `channels`.
A function's parameters become what it is called with, its result what its body gives. What follows
late (a parameter that was read before, a function that calls itself) is found by doing it again
with what is known by then, so a module takes as many rounds as such things wait for one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import StructInfoError, callees_first
from ...ir import GlobalVar, IRModule, PassContext
from ...ir.transform import module_pass
from ...relax import (
    BaseCheckResult,
    Binding,
    Call,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    StructInfo,
)
from ...relax.analysis import detect_recursion, graph_calls, struct_info_base_check
from ...relax.expr import joined_branches
from ...relax.normal_form import Normalizer, Scope, names_in
from ...relax.rewriter import Inferring
from ...relax.transform import Normalize
from ..spelling import (
    Spelled,
    arguments,
    determined,
    is_typed,
    unknown_argument,
    waits,
    written_out,
)


@module_pass(opt_level=0)
def InferType(mod: IRModule, ctx: PassContext) -> IRModule:
    """Find the type of every value; operators of what had none are written out.

    Raises StructInfoError naming operator, argument and variable where a type does not follow.
    """
    mod = Normalize.run(mod, ctx)
    facts = _Facts(mod)
    functions = facts.functions
    calls = graph_calls(mod)
    order = callees_first(calls, calls)
    while facts.begin_round():
        for name in order:
            facts.typed[name] = new = _Typing(facts).function_of(functions[name], name)
            facts.learn(name, new.struct_info)
    if facts.missing is not None:
        raise facts.missing
    for gv in (gv for group in detect_recursion(mod) for gv in group):
        if waits(facts.typed[gv.name_hint].ret_struct_info):
            raise StructInfoError(
                f"{gv.name_hint}: what it gives does not follow; declare its ret_type"
            )
    changed = mod.clone(functions={})
    for gv, function in mod.items():
        changed[facts.name(gv)] = facts.typed.get(gv.name_hint, function)
    same = all(mod.get(gv) is fn and gv in mod.functions for gv, fn in changed.items())
    return mod if same else changed


class _Facts:
    """What is known of a module's variables and functions.

    infos       variable, or name of a global function -> what it is
    typed       name -> the function as this round has it
    incomplete  whether this round has come upon something that is not known
    news        whether it learned something after that
    missing     the first type that did not follow in this round
    """

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.functions = {gv.name_hint: fn for gv, fn in mod.items() if isinstance(fn, Function)}
        self.infos: dict[Any, StructInfo] = {
            name: fn.struct_info
            for name, fn in self.functions.items()
            if all(map(is_typed, (*fn.params, fn.body)))
        }
        self.names: dict[str, GlobalVar] = {}
        self.changes = 0
        self.news = True

    def begin_round(self) -> bool:
        """Whether another round may find more."""
        again, self.news = self.news, False
        if again:
            self.typed: dict[str, Function] = {}
            self.incomplete = False
            self.missing: StructInfoError | None = None
        return again

    def known(self, what: Any) -> StructInfo | None:
        """What `what` is."""
        info = self.infos.get(what)
        self.incomplete = self.incomplete or info is None
        return info

    def learn(self, what: Any, info: StructInfo) -> None:
        """Note what `what` is, if `info` says it."""
        old = self.infos.get(what)
        if old is info or waits(info):
            return
        # The result of a recursive function may grow with each round.
        self.changes += old is not None
        if self.changes > 4 * len(self.functions) + 16:
            self.miss(f"InferType: the type of {getattr(what, 'name_hint', what)} has no end")
            return
        self.news = self.news or old is not None or self.incomplete
        self.infos[what] = info

    def miss(self, message: str) -> None:
        """A type does not follow from what is known."""
        self.incomplete = True
        self.missing = self.missing or StructInfoError(message)

    def name(self, gv: GlobalVar) -> GlobalVar:
        """`gv` as it says what its function is."""
        if gv.name_hint not in self.functions:
            if gv.name_hint not in self.mod:
                names = ", ".join(each.name_hint for each in self.mod)
                raise StructInfoError(f"there is no function @{gv.name_hint}; there are: {names}")
            return gv
        info = self.known(gv.name_hint)
        if info is None or gv.struct_info is info:
            return gv
        renewed = self.names.get(gv.name_hint)
        if renewed is None or renewed.struct_info is not info:
            renewed = self.names[gv.name_hint] = gv.replace(struct_info=info)
        return renewed


class _Typing(Inferring):
    """One function, once.

    inner  the inner functions, by their variables
    """

    def __init__(self, facts: _Facts) -> None:
        super().__init__({})
        self.facts = facts
        self.params: set[Any] = set()
        self.inner: dict[Any, Function] = {}

    def function_of(self, fn: Function, name: str) -> Function:
        """`fn` with all types that are known."""
        self.open(fn)
        return self.closed(fn.replace(body=self.rewritten_body(fn)), name)

    def open(self, fn: Function) -> None:
        self.params.update(fn.params)
        for p in fn.params:
            if waits(p.struct_info) and (info := self.facts.known(p)) is not None:
                self.replaced[p] = p.replace(struct_info=info)

    def closed(self, fn: Function, name: str) -> Function:
        """`fn`, whose body is typed, with its parameters and its result."""
        params = tuple([self.replaced.get(p, p) for p in fn.params])
        declared, actual = fn.ret_struct_info, fn.body.struct_info
        sure = struct_info_base_check(declared, actual)
        if sure is BaseCheckResult.FAIL_L0:
            raise StructInfoError(f"{name}: it is declared to give {declared}, it gives {actual}")
        # What nobody declared follows from the body.
        ret = None if waits(declared) or sure is not BaseCheckResult.PASS else declared
        if params == fn.params and ret is declared:
            return fn
        return fn.replace(params=params, ret_struct_info=ret)

    def begin(self, fn: Function) -> None:
        self.normal = Normalizer(names_in(fn))

    def local_function(self, b: Binding) -> None:
        fn: Any = b.value
        self.open(fn)
        self.inner[b.var] = fn
        if waits(b.var.struct_info) and (info := self.facts.known(b.var)) is not None:
            self.replaced[b.var] = b.var.replace(struct_info=info)

    def leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, GlobalVar):
            return self.facts.name(leaf)
        return self.replaced.get(leaf, leaf)

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        value: Any = b.value
        if isinstance(value, Function):
            return self.function_bound(b, value)
        if isinstance(value, If):
            return self.bound(b, self.branches(value))
        new = self.operand(value, [])
        if isinstance(b, MatchCast):
            return self.cast(b, new)
        if not isinstance(new, Call):
            return self.bound(b, new)
        if isinstance(new.op, Spelled):
            return self.spelled(b, new)
        self.arguments_of(value.op, new)
        if new is not value or waits(new.struct_info):
            new = new.replace(struct_info=None)
        return self.bound(b, new)

    def bound(self, b: Binding, value: Any) -> Sequence[Binding] | None:
        """`b` of another value."""
        var, info = b.var, value.struct_info
        if info is not var.struct_info:
            if struct_info_base_check(var.struct_info, info) is BaseCheckResult.FAIL_L0:
                raise StructInfoError(
                    f"{var.name_hint}: it is declared to be {var.struct_info}, it is {info}"
                )
            var = self.replaced[b.var] = b.var.replace(struct_info=info)
        elif value is b.value:
            return None
        return (b.replace(var=var, value=value),)

    def function_bound(self, b: Binding, fn: Function) -> Sequence[Binding] | None:
        new = self.closed(fn, b.var.name_hint)
        self.facts.learn(b.var, new.struct_info)
        var = self.replaced.get(b.var, b.var)
        # The same but for the names of symbols: what reads it in its own body is right.
        both = (var.struct_info, new.struct_info), (new.struct_info, var.struct_info)
        if any(struct_info_base_check(*infos) is not BaseCheckResult.PASS for infos in both):
            var = self.replaced[b.var] = var.replace(struct_info=new.struct_info)
        return None if var is b.var and new is fn else (b.replace(var=var, value=new),)

    def branches(self, value: If) -> If:
        """Where one of them gives what is not known yet, a recursive call, it is what the other
        gives.
        """
        both = value.true_branch.struct_info, value.false_branch.struct_info
        known = [info for info in both if not waits(info)]
        if len(known) == 1:
            return value.replace(struct_info=known[0])
        if known and struct_info_base_check(*known) is BaseCheckResult.FAIL_L0:
            raise StructInfoError(f"if: one branch gives {known[0]}, the other {known[1]}")
        joined = joined_branches(value.true_branch, value.false_branch)
        return value.replace(struct_info=joined) if self.replaced else value

    def cast(self, b: MatchCast, value: Expr) -> Sequence[Binding] | None:
        """A cast of what turns out to be of that type is no more than that."""
        sure = struct_info_base_check(b.struct_info, value.struct_info)
        if sure is BaseCheckResult.FAIL_L0:
            raise StructInfoError(f"wanted {b.struct_info}, got {value.struct_info}")
        if sure is BaseCheckResult.PASS and waits(b.value.struct_info):
            self.replaced[b.var] = value
            return ()
        return None if value is b.value else (b.replace(value=value),)

    def arguments_of(self, callee: Any, call: Call) -> None:
        """Parameters whose types somebody waits for are what their function is called with."""
        if self.facts.missing is None:
            return
        if isinstance(callee, GlobalVar):
            fn = self.facts.functions.get(callee.name_hint)
        else:
            fn = self.inner.get(callee)
        for p, value in zip(fn.params if fn else (), call.args):
            if waits(p.struct_info) and p not in self.facts.infos:
                self.facts.learn(p, value.struct_info)

    def spelled(self, b: Binding, call: Any) -> Sequence[Binding] | None:
        """What a call of Relay's operator stands for, if its operands are known by now."""
        for key, info in determined(call).items():
            var = arguments(call)[key]
            if var in self.params and waits(var.struct_info):
                self.facts.learn(var, info)
                self.replaced[var] = var.replace(struct_info=info)
        call = self.operand(call, [])
        problem = unknown_argument(call)
        if problem:
            self.facts.miss(problem)
            return self.bound(b, call)
        scope = Scope()
        scope.begin(self.local is DataflowVar)
        self.normal.scopes.append(scope)
        new = self.normal.value(written_out(call))
        self.normal.scopes.pop()
        return (*scope.block.bindings, *(self.bound(b, new) or (b,)))
