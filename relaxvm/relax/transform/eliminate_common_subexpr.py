"""EliminateCommonSubexpr: what was computed is not computed again.

    a = R.add(x, y)                            a = R.add(x, y)
    b = R.add(x, y)                            gv = R.multiply(a, a)
    gv = R.multiply(a, b)                      return gv
    return gv

A value is known from its binding to the end of the branch it stands in. Inner functions know only
their own: they capture no more than they did. Calls that have effects, allocate, or give an object
with a state of its own are left alone, and so is what something may write into.
"""

from __future__ import annotations

from typing import Any

from ...base import decided, declined
from ...ir import IRModule, Op, PassContext
from ...ir.transform import function_pass
from ..analysis.purity import is_pure_call
from ..analysis.written import maybe_written_vars
from ..expr import (
    Binding,
    Call,
    Function,
    MatchCast,
    Tuple,
    TupleGetItem,
    Var,
)
from ..flow import BINDS, ENTER, RESULT, events, vars_in
from ..known_ops import CALL_INPLACE_PACKED, CALL_TIR_INPLACE
from ..rewriter import Dropper, SameVars
from ..struct_info import FuncStructInfo, ObjectStructInfo, StructInfo, parts
from ..substitute import substitute_graph
from .value_keys import ValueKeys

# Each call of these gives memory of its own.
_ALLOCATES = ("relax.builtin.alloc", "relax.memory.", "relax.vm.")
_IN_PLACE = (CALL_TIR_INPLACE, CALL_INPLACE_PACKED)


@function_pass(opt_level=1)
def EliminateCommonSubexpr(
    fn: Function, mod: IRModule, ctx: PassContext, *, call_only: bool = False
) -> Function:
    """Replace a value that was computed before, where it is still in scope, by the earlier one.

    call_only  look at calls only, not at tuples, their fields and match_casts
    """
    same = SameVars()
    seen = _Seen(mod, call_only)
    changes: dict[int, Binding | None] = {}
    written: set[Var] | None = None
    for e in events(fn, inner=True):
        b = e.node
        if e.kind is ENTER:
            seen.enter(isinstance(e.owner.value, Function))
        elif e.kind is RESULT and e.owner is not None:
            seen.leave()
        elif e.kind in BINDS:
            same.bound(b.var, e.block)
            key = seen.key(b)
            if key is None:
                continue
            earlier = seen.find(key)
            if earlier is not None:
                if written is None:
                    written = maybe_written_vars(fn, mod)
                if written.isdisjoint((b.var, earlier, *vars_in(b.value))):
                    same.merge(earlier, b.var, e.block)
                    changes[id(b.var)] = None
                    seen.number(b.var, earlier)
                    decided("{} not computed again: it is {}", b, earlier)
                    continue
                declined("{} computed again although it is {}: one may be written into", b, earlier)
            seen.add(key, b.var)
    if not changes:
        return fn
    return substitute_graph(Dropper(changes).rewrite(fn), same.mapping())


class _Seen:
    """The values known where we are, by a key that is the same for the same computation."""

    def __init__(self, mod: IRModule, call_only: bool) -> None:
        self.mod = mod
        self.call_only = call_only
        self.tables: list[dict[Any, Var]] = [{}]
        self.undo: list[tuple[bool, list[tuple[Any, Var | None]]]] = [(False, [])]
        self.keys = ValueKeys()

    def enter(self, function: bool) -> None:
        """Begin a branch, or the body of an inner function."""
        self.undo.append((function, []))
        if function:
            self.tables.append({})

    def leave(self) -> None:
        """Forget what the branch or function computed."""
        function, log = self.undo.pop()
        if function:
            self.tables.pop()
            return
        table = self.tables[-1]
        for key, before in reversed(log):
            if before is None:
                del table[key]
            else:
                table[key] = before

    def find(self, key: Any) -> Var | None:
        """The variable that holds the computation, if one does."""
        return self.tables[-1].get(key)

    def add(self, key: Any, var: Var) -> None:
        """From here on `var` holds it."""
        table = self.tables[-1]
        self.undo[-1][1].append((key, table.get(key)))
        table[key] = var

    def number(self, var: Var, like: Var) -> None:
        """`var` is what `like` is."""
        numbers = self.keys.numbers
        numbers[var] = numbers.get(like, id(like))

    # -- keys -------------------------------------------------------------------------------------

    def key(self, b: Binding) -> Any:
        """What `b` computes, or None if it has to compute it itself."""
        value = b.value
        info = id(b.var.struct_info)
        if isinstance(b, MatchCast):
            if self.call_only:
                return None
            return ("cast", info, id(b.struct_info), self.keys.leaf(value))
        if isinstance(value, Call):
            return (info, self.keys.call(value)) if self.may_share(value) else None
        if self.call_only:
            return None
        if isinstance(value, TupleGetItem):
            return ("item", info, self.keys.leaf(value.tuple_value), value.index)
        if isinstance(value, Tuple):
            return ("tuple", info, self.keys.leaf(value))
        return None

    def may_share(self, call: Call) -> bool:
        op = call.op
        if isinstance(op, Op):
            if op.name.startswith(_ALLOCATES) or op in _IN_PLACE:
                return False
        return _is_plain(call.struct_info) and is_pure_call(call, self.mod)


def _is_plain(info: StructInfo) -> bool:
    """Whether values of `info` are known by what they hold: not objects with a state, nor
    functions.
    """
    kinds = list(map(type, parts(info)))
    return ObjectStructInfo not in kinds and FuncStructInfo not in kinds
