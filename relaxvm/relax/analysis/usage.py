"""Who binds and who uses what, and the removal of what nobody uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...base import reachable
from ...ir import GlobalVar, IRModule, Node, walk
from ...ir import Var as TirVar
from ...ir.walk import transform
from ..derive import definable_tir_vars_in_struct_info, is_base_of
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Var,
)
from ..flow import BINDS, Event, Uses, bodies, events, vars_in
from ..struct_info import Expr, StructInfo
from .purity import is_pure_call
from .vars import used_vars


def get_var2val(func: Function) -> dict[Var, Expr]:
    """What each variable bound in `func` is bound to."""
    return {n.var: n.value for n in walk(func) if isinstance(n, Binding)}


def name_to_binding(func: Function) -> dict[str, list[Binding]]:
    """The bindings of `func` by the name of their variable."""
    bindings: dict[str, list[Binding]] = {}
    for n in walk(func):
        if isinstance(n, Binding):
            bindings.setdefault(n.var.name_hint, []).append(n)
    return bindings


def udchain(dfb: DataflowBlock) -> dict[Var, list[Var]]:
    """For each variable used or bound in the block: the variables of the bindings that use it."""
    chain: dict[Var, list[Var]] = {}
    for binding in dfb.bindings:
        chain.setdefault(binding.var, [])
        for used in used_vars(binding.value):
            chain.setdefault(used, []).append(binding.var)
    return chain


# -- dead bindings --------------------------------------------------------------------------------


_WITH_BODIES = (If, Function)


def _live(
    bindings: Mapping[Var, Binding], row: Sequence[Event], fn: Function, mod: IRModule | None
) -> set[Var]:
    """The variables that matter: for the result of `fn`, or for an effect."""
    uses = Uses()
    # The binding of the If or Function in which a variable is bound, for those that are in one.
    owner = {
        e.node.var: e.scope.owner for e in row if e.scope.owner is not None and e.kind in BINDS
    }
    # What has to be computed whenever a variable is.
    inside: dict[Var, list[Var]] = {}
    anchored: dict[Var, None] = {}
    for b in bindings.values():
        if not _has_effect(b, mod):
            continue
        within: Binding | None = b
        # In whatever it stands, out to a function, which may never be called.
        while within is not None and within.var not in anchored:
            anchored[within.var] = None
            around = owner.get(within.var)
            if around is not None:
                inside.setdefault(around.var, []).append(within.var)
            within = None if around is None or isinstance(around.value, Function) else around

    def needed(var: Var) -> list[Var]:
        b = bindings[var]
        read = uses.of(b)
        if var in inside:
            read += inside[var]
        if var in owner:
            read.append(owner[var].var)
        if type(b.value) in _WITH_BODIES:
            for body in bodies(b.value):
                read += vars_in(body.body)
        return [v for v in read if v in bindings]

    first = [*vars_in(fn.body.body), *uses.of_info(fn.ret_struct_info)]
    first += [v for v in anchored if v not in owner]
    return set(reachable([v for v in first if v in bindings], needed))


def _has_effect(b: Binding, mod: IRModule | None) -> bool:
    if isinstance(b, MatchCast):
        # A check that may fail is an effect; so is the binding of symbols.
        symbols = definable_tir_vars_in_struct_info(b.struct_info)
        return bool(symbols) or not is_base_of(b.struct_info, b.value.struct_info)
    return isinstance(b.value, Call) and not is_pure_call(b.value, mod)


def remove_all_unused(func: Function, mod: IRModule | None = None) -> Function:
    """`func` without pure bindings that neither its result nor an effect needs; the same object if
    there are none.

    A match_cast that may fail or that binds symbols stays.
    """
    row = events(func, inner=True)
    bindings = {e.node.var: e.node for e in row if e.kind in BINDS}
    live = _live(bindings, row, func, mod)
    if len(live) == len(bindings):
        return func

    def post(n: Node) -> Node | None:
        if isinstance(n, BindingBlock):
            kept = tuple(b for b in n.bindings if b.var in live)
            return n if len(kept) == len(n.bindings) else n.replace(bindings=kept)
        if isinstance(n, SeqExpr) and not all(b.bindings for b in n.blocks):
            return n.replace(blocks=tuple(b for b in n.blocks if b.bindings))
        return None

    return transform(func, post, without=(Var, StructInfo, Call, TirVar, GlobalVar))
