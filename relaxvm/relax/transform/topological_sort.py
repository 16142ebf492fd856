"""TopologicalSort: the bindings of dataflow blocks in another order.

    before:  with R.dataflow(): a = R.exp(x); b = R.sin(x); c = R.add(a, a); d = R.add(b, c); ...
    depth-first, from-inputs:     a, c, b, d    what follows from a value, then the next value
    breadth-first, from-inputs:   a, b, c, d    what needs nothing but the arguments, then the rest
    depth-first, from-outputs:    a, c, b, d    the first operand's whole history, then the second's

A binding stands after what it reads, symbols that a match_cast binds among it. A block with a call
that works in place stays as it is: who reads its argument before it must go on to do so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base import PassError, reachable
from ...ir import IRModule, Node, PassContext, descend, walk
from ...ir import Var as TirVar
from ...ir.transform import function_pass
from ...ir.walk import transform
from ..derive import definable_tir_vars_in_struct_info
from ..expr import Binding, Call, DataflowBlock, Function, MatchCast
from ..flow import BINDS, Uses, events, vars_in
from ..known_ops import CALL_INPLACE_PACKED, CALL_TIR_INPLACE

_ORDERS = ("depth-first", "breadth-first")
_DIRECTIONS = ("from-inputs", "from-outputs")


@function_pass(opt_level=0)
def TopologicalSort(
    fn: Function,
    mod: IRModule,
    ctx: PassContext,
    *,
    order: str = "depth-first",
    direction: str = "from-inputs",
) -> Function:
    """Sort the bindings of every dataflow block.

    order      "depth-first" or "breadth-first"
    direction  "from-inputs" or "from-outputs": where the search begins
    """
    for name, value, known in (
        ("order", order, _ORDERS),
        ("direction", direction, _DIRECTIONS),
    ):
        if value not in known:
            raise PassError(f"TopologicalSort: {name} is {' or '.join(known)}, got {value!r}")
    # Parameters first, then the variables as they are bound.
    bound = [e.node.var for e in events(fn, inner=True) if e.kind in BINDS]
    places = {var: k for k, var in enumerate((*fn.params, *bound))}

    def post(n: Node) -> Node | None:
        if not isinstance(n, DataflowBlock) or any(map(_works_in_place, n.bindings)):
            return None
        bindings = _sorted(n, places, order == "depth-first", direction == "from-outputs")
        return None if bindings == list(n.bindings) else n.replace(bindings=tuple(bindings))

    return transform(fn, post)


def _works_in_place(b: Binding) -> bool:
    return isinstance(b.value, Call) and b.value.op in (CALL_TIR_INPLACE, CALL_INPLACE_PACKED)


def _sorted(
    block: DataflowBlock, places: Mapping[Any, int], depth_first: bool, from_outputs: bool
) -> list[Binding]:
    maker: dict[Any, Binding] = {b.var: b for b in block.bindings}
    mentioned = _symbols_mentioned(block)
    for b in reversed(block.bindings):
        # One that is known before it is cast to is bound by none of these.
        maker.update(dict.fromkeys(mentioned.get(b, ()), b))
    uses = Uses()
    # What each binding needs: bindings of the block, and variables from outside.
    needs: dict[Any, list[Any]] = {}
    outside: dict[Any, None] = {}
    for b in block.bindings:
        # What is in an inner function it captures, but for its own.
        captured = vars_in(b.value) if isinstance(b.value, Function) else ()
        read = [maker.get(n, n) for n in (*uses.of(b), *captured)]
        read += [maker[symbol] for symbol in mentioned.get(b, ())]
        needs[b] = [n for n in dict.fromkeys(read) if n is not b]
        outside.update(dict.fromkeys(n for n in needs[b] if not isinstance(n, Binding)))
    first = sorted(outside, key=lambda v: places.get(v, -1))
    users: dict[Any, list[Any]] = {}
    for b in block.bindings:
        for n in needs[b]:
            users.setdefault(n, []).append(b)
    if from_outputs:
        following, waiting = needs, {n: len(users.get(n, ())) for n in (*first, *needs)}
        ready = [b for b in block.bindings if b not in users]
    else:
        following, waiting = users, {b: len(needs[b]) for b in needs}
        ready = [*first, *(b for b in block.bindings if not needs[b])]

    def released(n: Any) -> list[Any]:
        """What may come next once `n` has come."""
        if n is block:
            return ready
        for each in following.get(n, ()):
            waiting[each] -= 1
        free = [each for each in following.get(n, ()) if not waiting[each]]
        # Read backwards in the end, the first operand's history is to come first.
        return free[::-1] if from_outputs and depth_first else free

    begin: Any = block
    row = descend(begin, released) if depth_first else reachable([begin], released)
    bindings = [n for n in row if isinstance(n, Binding)]
    return bindings[::-1] if from_outputs else bindings


def _symbols_mentioned(block: DataflowBlock) -> dict[Binding, list[TirVar]]:
    """By binding: the symbols it mentions that casts of the block may bind."""
    casts = [b for b in block.bindings if isinstance(b, MatchCast)]
    symbols = {s for b in casts for s in definable_tir_vars_in_struct_info(b.struct_info)}
    if not symbols:
        return {}
    return {
        b: [n for n in walk(b) if isinstance(n, TirVar) and n in symbols] for b in block.bindings
    }
