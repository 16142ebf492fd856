"""LegalizeOps: operators become calls of loop functions.

    lv = R.add(x, y)        lv = R.call_tir(cls.add, (x, y), out_sinfo=R.Tensor((n, 4), "float32"))

How is the operator's own `lower` rule. A tensor whose dimensions are not known gets symbols for
them by `R.match_cast`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from ....base import PassError, TIRError, add_note
from ....ir import GlobalVar, IRModule, PassContext, PrimExpr, walk
from ....ir import Op as BaseOp
from ....ir.transform import module_pass
from ...derive import BaseCheckResult, struct_info_base_check, where
from ...expr import Call, Function, Tuple, as_relax
from ...expr_functor import PyExprMutator
from ...op.lower import lower_of
from ...op.record import Missing, Op
from ...op.sizes import with_symbols
from ...struct_info import (
    Expr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

Lower = Callable[[Any, Call], Any]
_MAX_ROUNDS = 16
_NEVER = BaseCheckResult.FAIL_L0


@module_pass(opt_level=0)
def LegalizeOps(
    mod: IRModule,
    ctx: PassContext,
    *,
    customize_legalize_map: Mapping[str, Lower] | None = None,
    skip_ops: Sequence[str] | None = None,
    enable_warning: bool = False,
) -> IRModule:
    """Replace every operator that has a `lower` rule by what the rule gives.

    customize_legalize_map  operator name -> (builder, call) -> expression, used instead of the
                            operator's own rule
    skip_ops                names of operators to leave alone
    enable_warning          warn of operators that stay because they have no rule or too little is
                            known of an argument
    Rules may give other operators; those are legalised in turn. Raises PassError if that does not
    come to an end.
    """
    rules = _Rules(customize_legalize_map or {}, skip_ops or (), enable_warning)
    for _ in range(_MAX_ROUNDS):
        todo = [gv for gv, fn in mod.items() if isinstance(fn, Function) and rules.wanted(fn)]
        if not todo:
            return mod
        mutator = _Legalizer(mod, rules)
        for gv in todo:
            mutator.run(gv)
        if not mutator.changed:
            return mod
        mod = mutator.builder_.get()
    raise PassError(
        f"LegalizeOps: after {_MAX_ROUNDS} rounds there are still operators to legalise: "
        f"{', '.join(sorted(mutator.used))}; do their rules give one another?"
    )


class _Rules:
    """Which operator is legalised how."""

    def __init__(self, custom: Mapping[str, Lower], skip: Sequence[str], warn: bool) -> None:
        if not isinstance(custom, Mapping):
            raise PassError(
                "LegalizeOps: customize_legalize_map: wanted operator name -> (builder, call) -> "
                f"expression, got {type(custom).__name__}"
            )
        if not isinstance(skip, Iterable):
            raise PassError(
                f"LegalizeOps: skip_ops: wanted operator names, got {type(skip).__name__}"
            )
        self.custom = {_checked(name): f for name, f in custom.items()}
        for name, f in custom.items():
            if not callable(f):
                raise PassError(
                    f"LegalizeOps: customize_legalize_map: the rule of {name} is a function "
                    f"(builder, call) -> expression, got {type(f).__name__}"
                )
        names = (skip,) if isinstance(skip, str) else skip
        self.skip = {_checked(name) for name in names}
        self.enable_warning = warn
        self.warned: set[str] = set()

    def of(self, call: Any) -> Lower | None:
        op = call.op if isinstance(call, Call) else None
        if not isinstance(op, Op) or op.name in self.skip:
            return None
        rule = self.custom.get(op.name, lower_of(call))
        if callable(rule):
            return rule
        if isinstance(rule, Missing):
            return None
        self.warn(op.name, "it has no legalisation")
        return None

    def wanted(self, fn: Function) -> bool:
        nodes = walk(fn, (StructInfo, PrimExpr))
        return any(self.of(n) is not None for n in nodes if type(n) is Call)

    def warn(self, name: str, why: str) -> None:
        if self.enable_warning and name not in self.warned:
            self.warned.add(name)
            warnings.warn(f"LegalizeOps: {name} stays: {why}", UserWarning, stacklevel=2)


def _checked(name: Any) -> str:
    if isinstance(name, BaseOp):
        return name.name
    if not isinstance(name, str):
        raise PassError(
            f"LegalizeOps: an operator is named by a string such as 'relax.add', got {name!r}"
        )
    if not isinstance(BaseOp.get(name), Op):
        raise TIRError(f"LegalizeOps: no operation is named {name!r} in a graph")
    return name


class _Legalizer(PyExprMutator):
    def __init__(self, mod: IRModule, rules: _Rules) -> None:
        super().__init__(mod)
        self.rules = rules
        self.changed = False
        self.used: set[str] = set()

    def run(self, gv: GlobalVar) -> None:
        fn = self.builder_.get_context_mod()[gv]
        new = self.visit_expr(fn)
        if new is not fn:
            self.builder_.update_func(gv, new)

    def visit_call_(self, call: Call) -> Expr:
        call = cast(Call, super().visit_call_(call))
        rule = self.rules.of(call)
        if rule is None:
            return call
        ready = call if _takes_unknown(call) else self.with_known_arguments(call)
        op = call.op
        assert isinstance(op, Op)
        name = op.name
        if ready is None:
            self.rules.warn(name, "the rank or dtype of an argument is not known")
            return call
        self.builder_.legalising = call
        try:
            ready = op.checked(self.builder_, ready)
            lowered = rule(self.builder_, ready)
        except Exception as error:
            add_note(error, f"while legalising {name} at {call.span}")
            raise
        if lowered is None or lowered is ready:
            return call
        lowered = _checked_result(as_relax(lowered), ready, name)
        self.changed = True
        self.used.add(name)
        return lowered

    def with_known_arguments(self, call: Call) -> Call | None:
        """`call` on arguments of known shape: unknown dimensions get symbols. None if rank or dtype
        are not known.
        """
        args = list(call.args)
        for i, arg in enumerate(args):
            info = arg.struct_info
            if not _is_known_kind(info):
                return None
            exact = with_symbols(info)
            if exact is not info:
                args[i] = self.builder_.match_cast(arg, exact)
        if all(a is b for a, b in zip(args, call.args)):
            return call
        return Call(call.op, args, call.attrs, call.sinfo_args, None, call.span)


def _checked_result(result: Expr, call: Call, name: str) -> Expr:
    """What a rule gave, if it can be a value of what the call promises; a rule from outside may be
    wrong.
    """
    # An expression that is not yet bound, such as a tuple, has no struct info to compare.
    info = getattr(result, "struct_info", None)
    wanted = call.struct_info
    if info is None or info is wanted or struct_info_base_check(wanted, info) != _NEVER:
        return result
    raise PassError(
        f"LegalizeOps: the rule of {name} gave {info}; wanted {wanted}, as the call at "
        f"{call.span} has"
    )


def why_not_legal(call: Call) -> str | None:
    """What is missing of an argument of an operator for `call` to be legalised, and what to do
    about it; None if nothing is.
    """
    if not callable(getattr(call.op, "lower", None)):
        return None
    parts = [p for a in call.args for p in (a.fields if isinstance(a, Tuple) else (a,))]
    for i, arg in enumerate(parts):
        if not _is_known_kind(arg.struct_info):
            name = getattr(arg, "name_hint", None) or f"argument {i}"
            info = arg.struct_info
            lacks = "dtype" if getattr(info, "dtype", "") == "void" else "rank"
            return (
                f"the {lacks} of {name} is not known, only {info}; say what it is, as in "
                f'R.match_cast({name}, R.Tensor((m, n), "float32")){where(call.span)}'
            )
    return None


def _takes_unknown(call: Call) -> bool:
    """Whether the operator works on arguments of which nothing is known."""
    return isinstance(call.op, Op) and call.op.takes_unknown


def _is_known_kind(info: StructInfo) -> bool:
    """Whether symbols for dimensions and values are all that `info` lacks."""
    if isinstance(info, TupleStructInfo):
        return all(map(_is_known_kind, info.fields))
    if isinstance(info, TensorStructInfo):
        return info.dtype != "void" and (info.dims is not None or info.ndim != -1)
    if isinstance(info, ShapeStructInfo):
        return info.values is not None or info.ndim != -1
    return True
