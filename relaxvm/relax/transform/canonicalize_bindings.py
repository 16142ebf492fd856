"""CanonicalizeBindings: one name for one value.

    y = x                                      z = R.add(x, x)
    z = R.add(y, x)                            return z
    t = (z, y)
    w = t[0]
    return w

Variables that only rename others go, `match_cast`s whose answer is known go with the symbols they
would bind, a field of a tuple that was just built is the value itself, and a tuple rebuilt from all
its fields is the tuple. A variable of a dataflow block that nobody outside reads is made a dataflow
variable.
"""

from __future__ import annotations

from ...base import RelaxvmError
from ...ir import IRModule, PassContext, PrimExpr, substitute
from ...ir import Var as TirVar
from ...ir.transform import function_pass
from ..analysis.well_formed import check_well_formed
from ..derive import bind_symbols, definable_tir_vars_in_struct_info
from ..expr import BindingBlock, DataflowBlock, DataflowVar, Function, MatchCast, Var
from ..flow import BIND, BINDS, ENTER, RESULT, Uses, events
from ..renamings import drop_renamings
from ..substitute import substitute_graph


@function_pass(opt_level=1)
def CanonicalizeBindings(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Remove bindings that only give another name to what has one, and checks that cannot fail.

    A check that would be shown to fail is left for run time.
    """
    return local_variables(drop_renamings(_symbols(fn)))


# -- symbols --------------------------------------------------------------------------------------


def _symbols(fn: Function) -> Function:
    """`fn` with symbols that match_cast binds to a known dimension replaced by it."""
    known = _known_symbols(fn)
    if not known:
        return fn
    try:
        replaced = substitute_graph(fn, known)
        check_well_formed(replaced)
    except RelaxvmError:
        # Two sizes that were taken to be equal are not: the program's own checks say so better.
        return fn
    return replaced


def _known_symbols(fn: Function) -> dict[TirVar, PrimExpr]:
    """Symbols bound in one place only, by a match_cast of a value whose dimension is known."""
    visible: set[TirVar] = set()
    scopes: list[list[TirVar]] = []
    places: dict[TirVar, int] = {}
    known: dict[TirVar, PrimExpr] = {}

    def define(symbol: TirVar) -> bool:
        if symbol in visible:
            return False
        visible.add(symbol)
        places[symbol] = places.get(symbol, 0) + 1
        if scopes:
            scopes[-1].append(symbol)
        return True

    def signature(f: Function) -> None:
        for p in f.params:
            for symbol in definable_tir_vars_in_struct_info(p.struct_info):
                define(symbol)

    signature(fn)
    for e in events(fn, inner=True):
        b = e.node
        if e.kind is ENTER:
            scopes.append([])
            if isinstance(e.owner.value, Function):
                signature(e.owner.value)
        elif e.kind is RESULT and e.owner is not None:
            visible.difference_update(scopes.pop())
        elif e.kind is BIND and isinstance(b, MatchCast):
            bound = bind_symbols([(b.struct_info, b.value.struct_info)])
            for symbol in definable_tir_vars_in_struct_info(b.struct_info):
                if define(symbol) and symbol in bound:
                    known[symbol] = substitute(bound[symbol], known)
    return {symbol: dim for symbol, dim in known.items() if places[symbol] == 1}


# -- dataflow variables ---------------------------------------------------------------------------


def local_variables(fn: Function) -> Function:
    """`fn` with variables of dataflow blocks that are read only there made dataflow variables."""
    block_of: dict[Var, BindingBlock] = {}
    outside: set[Var] = set()
    used: set[Var] = set()
    uses = Uses()

    def read(variables: list[Var], block: BindingBlock | None) -> None:
        for v in variables:
            if block_of.get(v, block) is not block:
                outside.add(v)
            used.add(v)

    for e in events(fn, inner=True):
        if e.kind is RESULT:
            read(e.reads(), None)
        elif e.kind in BINDS:
            read(uses.of(e.node), e.block)
            if isinstance(e.block, DataflowBlock) and type(e.node.var) is Var:
                block_of[e.node.var] = e.block
    read(uses.of_info(fn.ret_struct_info), None)
    local = {
        v: DataflowVar(v.name_hint, v.struct_info, v.span)
        for v in block_of
        if v in used and v not in outside
    }
    return substitute_graph(fn, local)
