"""Objects are let go right after they are used for the last time.

    before:  storage = R.memory.alloc_storage(…); x = R.memory.alloc_tensor(storage, …)
             _ = cls.f(a, x)
             lv = R.call_packed("env.g", x); gv = R.call_packed("env.h", lv); return gv
    after:   storage = …; x = …
             _ = cls.f(a, x)
             lv = R.call_packed("env.g", x); R.memory.kill_tensor(x); R.memory.kill_storage(storage)
             gv = R.call_packed("env.h", lv); R.vm.kill_object(lv); return gv

A storage lives as long as the tensors in it, a variable as long as its other names. What is used
inside a branch but bound before it goes after the `If`. Parameters belong to the caller, results
to whoever receives them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import IRModule, PassContext
from ...ir.transform import function_pass
from ..expr import Binding, Call, Function, If, Tuple, TupleGetItem, Var
from ..flow import BINDS, RESULT, events, releases, vars_in
from ..known_ops import (
    MEM_ALLOC_STORAGE,
    MEM_ALLOC_TENSOR,
    MEM_KILL_STORAGE,
    MEM_KILL_TENSOR,
    VM_ALLOC_STORAGE,
    VM_ALLOC_TENSOR,
    VM_KILL_OBJECT,
    VOID,
    discard,
    is_op,
)
from ..rewriter import BindingRewriter
from ..struct_info import PrimStructInfo, ShapeStructInfo


@function_pass(opt_level=0)
def KillAfterLastUse(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Insert `R.memory.kill_tensor`, `R.memory.kill_storage` and `R.vm.kill_object` after last
    uses.
    """
    kills = _kills(fn)
    return _Rewriter(kills).rewrite(fn) if kills else fn


_KILLS = {MEM_KILL_STORAGE, MEM_KILL_TENSOR, VM_KILL_OBJECT}


def _kills(fn: Function) -> dict[Var, list[Binding]]:
    """By bound variable: the kills that follow its binding."""
    row = events(fn)
    root: dict[Var, Var] = {}
    bound: dict[Var, Binding] = {}
    gone: set[Var] = set()
    for e in row:
        if e.kind in BINDS:
            b = e.node
            bound[b.var] = b
            if isinstance(b.value, Var):
                root[b.var] = root.get(b.value, b.value)
            elif isinstance(b.value, Call) and b.value.op in _KILLS:
                gone.update(root.get(v, v) for v in vars_in(b.value))
    last_use: dict[Var, int] = {}
    for position, e in enumerate(row):
        for v in e.reads():
            v = root.get(v, v)
            if v in bound and v not in gone and _holds_memory(bound[v]):
                last_use[v] = position
    # A storage is in use while a tensor in it is.
    for v in reversed(list(bound)):
        value = bound[v].value
        if is_op(value, MEM_ALLOC_TENSOR) or is_op(value, VM_ALLOC_TENSOR):
            assert isinstance(value, Call)
            for storage in vars_in(value)[:1]:
                if storage in last_use and v in last_use:
                    last_use[storage] = max(last_use[storage], last_use[v])
    after: dict[Var, list[Binding]] = {}
    for position, dead in releases(row, last_use).items():
        e = row[position]
        if e.kind is not RESULT:
            # Tensors before the storage they are in.
            for v in sorted(dead, key=lambda v: _is_storage(bound[v])):
                after.setdefault(e.node.var, []).append(_kill(v, bound[v]))
    return after


def _holds_memory(b: Binding) -> bool:
    """Whether the variable holds an object worth letting go early."""
    if not isinstance(b.value, (Call, If, Tuple, TupleGetItem)):
        return False
    info = b.var.struct_info
    return info is not VOID and not isinstance(info, (PrimStructInfo, ShapeStructInfo))


def _is_storage(b: Binding) -> bool:
    return is_op(b.value, MEM_ALLOC_STORAGE) or is_op(b.value, VM_ALLOC_STORAGE)


def _kill(v: Var, b: Binding) -> Binding:
    op = VM_KILL_OBJECT
    if is_op(b.value, MEM_ALLOC_STORAGE):
        op = MEM_KILL_STORAGE
    elif is_op(b.value, MEM_ALLOC_TENSOR):
        op = MEM_KILL_TENSOR
    return discard(Call(op, (v,), struct_info=VOID))


class _Rewriter(BindingRewriter):
    def __init__(self, kills: dict[Var, list[Binding]]) -> None:
        self.kills = kills

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        dead = self.kills.get(b.var)
        return None if dead is None else (b, *dead)
