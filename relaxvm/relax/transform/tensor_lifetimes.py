"""How long each tensor that a function allocates is in use, and whether it outlives the
function.
"""

from __future__ import annotations

from ...ir import GlobalVar, IRModule, Op
from ...tir import PrimFunc
from ..expr import Call, ExternFunc, Function, Var
from ..flow import BIND, BINDS, RESULT, Event, Scope, releases
from ..known_ops import (
    ALLOC_TENSOR,
    CALL_TIR_DYN,
    builtin_of,
    is_op,
    ops_named,
)
from ..struct_info import Expr

_KEEPS_NOTHING = ops_named(
    "call_tir call_dps_packed memory.kill_tensor memory.kill_storage vm.kill_object "
    "shape_of tensor_to_shape shape_to_tensor print assert_op"
)
_READ, _ALIAS, _ESCAPE = "read", "alias", "escape"


def _use_of(value: Expr, mod: IRModule) -> str:
    """What a value may do with the tensors it reads: only read, be another name of them, or
    keep them.
    """
    if not isinstance(value, Call):
        return _ESCAPE if isinstance(value, Function) else _ALIAS
    callee = value.op
    if callee is CALL_TIR_DYN:
        callee = value.args[0]
    if isinstance(callee, GlobalVar):
        known = mod.get(callee)
        return _READ if isinstance(known, PrimFunc) else _ESCAPE
    if isinstance(callee, ExternFunc):
        row = builtin_of(callee)
        if value.attrs.get("dps") or (row is not None and row.keeps_nothing):
            return _READ
        # What allocates may go on in the room behind its argument, which others must not share.
        return _ALIAS if row is not None and row.pure and not row.account else _ESCAPE
    if isinstance(callee, Op):
        if callee in _KEEPS_NOTHING:
            return _READ
        return _ALIAS if getattr(callee, "pure", False) and not _takes_function(value) else _ESCAPE
    return _ESCAPE


def _takes_function(call: Call) -> bool:
    """Whether an operator calls or captures a function, as `make_closure` and
    `call_pure_packed` do.
    """
    return any(isinstance(a, (GlobalVar, ExternFunc, Function)) for a in call.args) or (
        isinstance(call.op, Op) and "closure" in call.op.name
    )


class Lifetimes:
    """For each allocated tensor: whether it escapes, and the event after which its storage is free.

    One pass backwards: whoever uses a name uses what the name stands for.
    """

    def __init__(self, row: list[Event], mod: IRModule) -> None:
        self.escaped: set[Var] = set()
        self.last_use: dict[Var, int] = {}
        self.scope_of: dict[Var, Scope] = {}
        self.released: dict[int, list[Var]] = {}
        self.root: dict[Var, Var] = {}
        self.shared: set[Var] = set()
        tensors = []
        for e in row:
            if e.kind in BINDS:
                self.scope_of[e.node.var] = e.scope
                if is_op(e.node.value, ALLOC_TENSOR):
                    tensors.append(e.node.var)
                elif e.kind is BIND and isinstance(e.node.value, Var):
                    self.root[e.node.var] = self.root.get(e.node.value, e.node.value)
        for position in range(len(row) - 1, -1, -1):
            self._look(position, row[position], mod)
        lives = {
            v: self.last_use[v] for v in tensors if v in self.last_use and v not in self.escaped
        }
        # A tensor that nobody reads is still written once, right after it is allocated: its own
        # call uses it.
        self.released = releases(row, lives)
        self.planned = frozenset(lives)

    def _look(self, position: int, e: Event, mod: IRModule) -> None:
        read = e.reads()
        for v in read:
            self._use(v, position)
        if e.kind is RESULT:
            for v in read:
                if e.owner is None:
                    self.escaped.add(v)
                    continue
                # The If's variable is another name of its branches' results.
                self.shared.add(self.root.get(v, v))
                self._alias(v, e.owner.var)
                home = self.scope_of.get(v)
                if home is not None and home.depth >= e.scope.depth:
                    self.escaped.add(v)
        if e.kind is not BIND or not read:
            return
        value = e.node.value
        use = _use_of(value, mod)
        for v in read:
            if use == _ESCAPE:
                self.escaped.add(v)
            elif use == _ALIAS:
                if not isinstance(value, Var):
                    self.shared.add(self.root.get(v, v))
                self._alias(v, e.node.var)

    def _use(self, v: Var, position: int) -> None:
        if position > self.last_use.get(v, -1):
            self.last_use[v] = position

    def _alias(self, v: Var, name: Var) -> None:
        if name in self.escaped:
            self.escaped.add(v)
        if name in self.last_use:
            self._use(v, self.last_use[name])
