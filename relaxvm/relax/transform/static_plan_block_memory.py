"""Tensors that are never alive at the same time share storage.

    before:  a = R.builtin.alloc_tensor(R.shape([4]), …); _ = cls.f(x, a)
             b = R.builtin.alloc_tensor(R.shape([4]), …); _ = cls.f(a, b)
             c = R.builtin.alloc_tensor(R.shape([2]), …); _ = cls.g(b, c)
    after:   storage = R.memory.alloc_storage(R.shape([16]), …)
             a = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([4]), …); _ = cls.f(x, a)
             storage_1 = R.memory.alloc_storage(R.shape([16]), …)
             b = R.memory.alloc_tensor(storage_1, R.prim_value(0), R.shape([4]), …); _ = cls.f(a, b)
             c = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([2]), …); _ = cls.g(b, c)

A tensor is planned if it provably does not outlive its function: not returned, not captured, not
handed to a graph function, a closure or a packed function that may keep it. What aliases it (a
tuple, a field, another name, the result of a branch or of a pure operator) keeps it alive. A freed
storage serves the next tensor that fits; a static one grows if that is cheaper than a new one. A
symbolic size is reused for sizes provably equal, or, where the function's attribute
``tir_var_upper_bound`` ({"n": 1024}) bounds its symbols, planned as the largest it can be.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import Any

from ...arith import Analyzer
from ...base import PassError
from ...ir import GlobalVar, IntImm, IRModule, Op, PassContext, PrimExpr, Range, walk
from ...ir import Var as PrimVar
from ...ir.transform import function_pass
from ...tir import PrimFunc
from ..expr import (
    Binding,
    Call,
    DataTypeImm,
    ExternFunc,
    Function,
    PrimValue,
    StringImm,
    Var,
    VarBinding,
)
from ..struct_info import Expr, ShapeExpr
from .lower_alloc_tensor import size_bytes
from .lowered_ops import (
    ALLOC_TENSOR,
    CALL_DPS_PACKED,
    CALL_TIR,
    CALL_TIR_DYN,
    MEM_KILL_STORAGE,
    MEM_KILL_TENSOR,
    OBJECT,
    VM_KILL_OBJECT,
    alloc_storage,
    is_op,
    tensor_from_storage,
)
from .scopes import (
    BIND,
    BRANCH,
    END,
    RESULT,
    BindingRewriter,
    Event,
    Scope,
    linearise,
    release_positions,
    vars_in,
)

__all__ = ["StaticPlanBlockMemory"]

MATCH_RANGE = 16
"""A storage serves no tensor more than this many times smaller, as long as another choice
remains.
"""


@function_pass(opt_level=0)
def StaticPlanBlockMemory(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Plan which tensors share storage."""
    events = linearise(fn)
    if not any(e.kind == BIND and is_op(e.node.value, ALLOC_TENSOR) for e in events):
        return fn
    plan = _Planner(fn).plan(events, _Lifetimes(events, mod))
    return _Rewriter(plan).rewrite(fn) if plan else fn


# -- how long each tensor lives -------------------------------------------------------------------

_KEEPS_NOTHING = {CALL_TIR, CALL_DPS_PACKED, MEM_KILL_TENSOR, MEM_KILL_STORAGE, VM_KILL_OBJECT} | {
    Op.get(f"relax.{name}")
    for name in ("shape_of", "tensor_to_shape", "shape_to_tensor", "print", "assert_op")
}
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
        if value.attrs.get("dps") or callee.global_symbol in ("vm.builtin.shape_of",):
            return _READ
        return _ALIAS if callee.global_symbol == "vm.builtin.reshape" else _ESCAPE
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


class _Lifetimes:
    """For each allocated tensor: whether it escapes, and the event after which its storage is free.

    One pass backwards: whoever uses a name uses what the name stands for.
    """

    def __init__(self, events: list[Event], mod: IRModule) -> None:
        self.escaped: set[Var] = set()
        self.last_use: dict[Var, int] = {}
        self.scope_of: dict[Var, Scope] = {}
        self.released: dict[int, list[Var]] = {}
        tensors = []
        for e in events:
            if e.kind in (BIND, END):
                self.scope_of[e.node.var] = e.scope
                if is_op(e.node.value, ALLOC_TENSOR):
                    tensors.append(e.node.var)
        for position in range(len(events) - 1, -1, -1):
            self._look(position, events[position], mod)
        lives = {
            v: self.last_use[v] for v in tensors if v in self.last_use and v not in self.escaped
        }
        # A tensor that nobody reads is still written once, right after it is allocated: its own
        # call uses it.
        self.released = release_positions(lives, self.scope_of)
        self.planned = frozenset(lives)

    def _look(self, position: int, e: Event, mod: IRModule) -> None:
        if e.kind == RESULT:
            owner = e.scope.owner
            for v in vars_in(e.node):
                self._use(v, position)
                if owner is None:
                    self.escaped.add(v)
                    continue
                # The If's variable is another name of its branches' results.
                self._alias(v, owner.var)
                home = self.scope_of.get(v)
                if home is not None and home.depth >= e.scope.depth:
                    self.escaped.add(v)
            return
        if e.kind == END:
            return
        value = e.node.value
        if e.kind == BRANCH:
            for v in vars_in(value):
                self._use(v, position)
            return
        use = _use_of(value, mod)
        for v in vars_in(value):
            self._use(v, position)
            if use == _ESCAPE:
                self.escaped.add(v)
            elif use == _ALIAS:
                self._alias(v, e.node.var)

    def _use(self, v: Var, position: int) -> None:
        if position > self.last_use.get(v, -1):
            self.last_use[v] = position

    def _alias(self, v: Var, name: Var) -> None:
        if name in self.escaped:
            self.escaped.add(v)
        if name in self.last_use:
            self._use(v, self.last_use[name])


# -- which storage each tensor gets ---------------------------------------------------------------


class _Storage:
    """A storage in the plan. `size` is an int, or an expression for sizes only known at run
    time.
    """

    __slots__ = ("alloc", "number", "size")

    def __init__(self, size: int | PrimExpr, alloc: Call, number: int) -> None:
        self.size = size
        self.alloc = alloc
        self.number = number

    def order(self) -> tuple[Any, int]:
        return (self.size, self.number)


class _Pool:
    """Free storages of one device and memory scope."""

    __slots__ = ("static", "symbolic")

    def __init__(self) -> None:
        self.static: list[_Storage] = []
        self.symbolic: dict[PrimExpr, list[_Storage]] = {}

    def copy(self) -> _Pool:
        made = _Pool()
        # Storages may have grown inside a branch since the copy was taken.
        made.static = sorted(self.static, key=_Storage.order)
        made.symbolic = {size: list(free) for size, free in self.symbolic.items() if free}
        return made

    def take_static(self, size: int) -> _Storage | None:
        """The smallest free storage that fits without great waste, else the largest, grown."""
        at = bisect_left(self.static, (size, -1), key=_Storage.order)
        if at < len(self.static) and self.static[at].size <= max(size, 1) * MATCH_RANGE:
            return self.static.pop(at)
        if at > 0 and self.static[at - 1].size * MATCH_RANGE >= size:
            grown = self.static.pop(at - 1)
            grown.size = size
            return grown
        return None

    def give_back(self, storage: _Storage) -> None:
        if isinstance(storage.size, int):
            insort(self.static, storage, key=_Storage.order)
        else:
            self.symbolic.setdefault(storage.size, []).append(storage)


class _Planner:
    """Goes through the events once, taking storages from the pools and giving them back."""

    def __init__(self, fn: Function) -> None:
        self.pools: dict[tuple[Any, ...], _Pool] = {}
        self.analyzer = Analyzer()
        self.bounded = _bind_upper_bounds(fn, self.analyzer)
        self.sizes: dict[PrimExpr, PrimExpr] = {}
        self.representatives: list[PrimExpr] = []
        self.count = 0

    def plan(self, events: list[Event], lives: _Lifetimes) -> dict[Var, _Storage]:
        chosen: dict[Var, _Storage] = {}
        saved: list[dict[tuple[Any, ...], _Pool]] = []
        for position, e in enumerate(events):
            if e.kind == BRANCH:
                # Both branches start from what is free here; what they leave free cannot be relied
                # on afterwards.
                saved.append(self.pools)
                self.pools = _copy_pools(saved[-1])
            elif e.kind == RESULT and e.scope.owner is not None:
                self.pools = _copy_pools(saved[-1])
            elif e.kind == END:
                self.pools = _copy_pools(saved.pop())
            elif (
                e.kind == BIND and e.node.var in lives.planned and is_op(e.node.value, ALLOC_TENSOR)
            ):
                chosen[e.node.var] = self._choose(e.node.var, e.node.value)
            for v in lives.released.get(position, ()):
                if v in chosen:
                    self._pool(chosen[v].alloc).give_back(chosen[v])
        return chosen

    def _pool(self, alloc: Call) -> _Pool:
        device, scope = alloc.args[2], alloc.args[3]
        key = (
            device.value if isinstance(device, PrimValue) else device,
            scope.value if isinstance(scope, StringImm) else scope,
        )
        return self.pools.setdefault(key, _Pool())

    def _choose(self, var: Var, alloc: Call) -> _Storage:
        size = self._size(size_bytes(alloc, var))
        pool = self._pool(alloc)
        found: _Storage | None = None
        if isinstance(size, int):
            found = pool.take_static(size)
        elif pool.symbolic.get(size):
            found = pool.symbolic[size].pop()
        if found is None:
            self.count += 1
            found = _Storage(size, alloc, self.count)
        return found

    def _size(self, size: PrimExpr) -> int | PrimExpr:
        """A number if it is one or is bounded by one, else the first expression met that
        provably equals it.
        """
        if isinstance(size, IntImm):
            return size.value
        known = self.sizes.get(size)
        if known is None:
            known = self._representative(size)
            self.sizes[size] = known
        return known.value if isinstance(known, IntImm) else known

    def _representative(self, size: PrimExpr) -> PrimExpr:
        simple = self.analyzer.simplify(size)
        if isinstance(simple, IntImm):
            return simple
        if all(v in self.bounded for v in walk(simple) if isinstance(v, PrimVar)):
            most = int(self.analyzer.const_int_bound(simple).max_value)
            if most < _LARGEST:
                return IntImm("int64", max(most, 0))
        if simple in self.sizes:
            return self.sizes[simple]
        for other in self.representatives[-_COMPARED:]:
            if self.analyzer.can_prove_equal(other, simple):
                return other
        self.representatives.append(simple)
        self.sizes[simple] = simple
        return simple


_LARGEST = 1 << 62
_COMPARED = 32


def _copy_pools(pools: dict[tuple[Any, ...], _Pool]) -> dict[tuple[Any, ...], _Pool]:
    return {key: pool.copy() for key, pool in pools.items()}


def _bind_upper_bounds(fn: Function, analyzer: Analyzer) -> set[PrimVar]:
    """Tell `analyzer` the ranges the function's attributes promise; the symbols that have an
    upper bound.
    """
    upper = _bounds(fn, "tir_var_upper_bound")
    if not upper:
        return set()
    lower = _bounds(fn, "tir_var_lower_bound")
    bounded = set()
    seen = set()
    for n in walk(fn):
        if isinstance(n, PrimVar) and n not in seen:
            seen.add(n)
            if n.name in upper:
                least = lower.get(n.name, 0)
                extent = max(upper[n.name] - least + 1, 1)
                analyzer.bind(
                    n, Range.from_min_extent(IntImm(n.dtype, least), IntImm(n.dtype, extent))
                )
                bounded.add(n)
    return bounded


def _bounds(fn: Function, attr: str) -> dict[str, int]:
    given = fn.get_attr(attr)
    if given is None:
        return {}
    found = {}
    if isinstance(given, Mapping):
        for name, bound in given.items():
            number = bound.value if isinstance(bound, IntImm) else bound
            if isinstance(name, str) and type(number) is int and number >= 0:
                found[name] = number
                continue
            raise PassError(
                f"{attr}: wanted {{symbol name: int of at least 0}}, got {name!r}: {bound!r}"
            )
        return found
    raise PassError(f"{attr}: wanted {{symbol name: int}}, got {type(given).__name__}")


# -- writing the plan into the function -----------------------------------------------------------


class _Rewriter(BindingRewriter):
    def __init__(self, plan: dict[Var, _Storage]) -> None:
        self.plan = plan
        self.made: dict[int, Var] = {}

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        storage = self.plan.get(b.var)
        if storage is None:
            return None
        call = b.value
        assert isinstance(call, Call)
        out: list[Binding] = []
        var = self.made.get(storage.number)
        if var is None:
            name = "storage" if storage.number == 1 else f"storage_{storage.number - 1}"
            var = self.made[storage.number] = Var(name, OBJECT, b.span)
            dtype = storage.alloc.args[1]
            assert isinstance(dtype, DataTypeImm)
            size = ShapeExpr((storage.size,))
            device, scope = storage.alloc.args[2:4]
            made = alloc_storage(size, device, scope, dtype.value)
            out.append(VarBinding(var, made, b.span))
        out.append(b.replace(value=tensor_from_storage(var, call)))
        return out
