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
symbolic size is reused for sizes provably equal or smaller, or, where the function's attribute
``tir_var_upper_bound`` ({"n": 1024}) bounds its symbols, planned as the largest it can be.

A function that is one sequence and calls no other graph function has its tensors of known size in
one storage, at offsets, where that takes less memory (`pack_memory`). What is only concatenated
there, in the order of memory, is computed in its place in the whole, and the copy goes:

    before:  _ = cls.f(x, a); _ = cls.g(y, b); _ = cls.concat(a, b, c); _ = cls.h(c, d)
    after:   a = R.memory.alloc_tensor(storage, R.prim_value(0), …); _ = cls.f(x, a)
             b = R.memory.alloc_tensor(storage, R.prim_value(64), …); _ = cls.g(y, b)
             c = R.memory.alloc_tensor(storage, R.prim_value(0), …); …; _ = cls.h(c, d)

What both branches of an `If` allocate is allocated once, before it, and free again after it. A
kernel that may write over an input which nobody reads later does so (`inplace_kernels`): it is
called as a function of its own with one buffer for both.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...arith import Analyzer
from ...base import NameSupply, PassError, decided, declined, in_function
from ...ir import GlobalVar, IntImm, IRModule, PassContext, PrimExpr, Range, walk
from ...ir import Var as PrimVar
from ...ir.transform import module_pass, register_config
from ...tir import Buffer, PrimFunc
from ...tir.analysis import buffer_accesses
from ..expr import (
    Binding,
    Call,
    DataTypeImm,
    Function,
    PrimValue,
    StringImm,
    Var,
    VarBinding,
)
from ..flow import BIND, CLOSE, OPEN, RESULT, Event, events
from ..known_ops import (
    ALLOC_TENSOR,
    INVOKE_CLOSURE,
    INVOKE_PURE_CLOSURE,
    OBJECT,
    alloc_storage,
    is_op,
    tensor_from_storage,
)
from ..rewriter import BindingRewriter
from ..struct_info import ShapeExpr, TensorStructInfo
from .inplace_kernels import has_views, inputs_in_a_row, overwritable_inputs, write_over
from .join_memory import find_wholes, pack_joined
from .lower_alloc_tensor import size_bytes
from .pack_memory import Block
from .tensor_lifetimes import Lifetimes

MATCH_RANGE = 16
"""A storage serves no tensor more than this many times smaller, as long as another choice
remains.
"""


register_config(
    "relax.StaticPlanBlockMemory.inplace",
    bool,
    True,
    "let kernels write results over inputs that nobody reads any more, and parts of a "
    "concatenation into it",
)


@module_pass(opt_level=0)
def StaticPlanBlockMemory(
    mod: IRModule, ctx: PassContext, *, whole_storages: bool = False
) -> IRModule:
    """Plan which tensors share storage.

    whole_storages  a tensor has all of its storage from its first call to its last reader's end:
                    none lie side by side in one, and no kernel writes over what it reads
    """
    inplace = ctx.get("relax.StaticPlanBlockMemory.inplace") and not whole_storages
    kernels = _Kernels(mod, inplace)
    planned = {}
    for gv, fn in mod.items():
        with in_function(gv):
            planned[gv] = _plan_function(fn, mod, kernels, not whole_storages)
    if all(planned[gv] is fn for gv, fn in mod.items()):
        return mod
    return mod.clone({**planned, **kernels.made})


def _plan_function(fn: Any, mod: IRModule, kernels: _Kernels, packed: bool) -> Any:
    if not isinstance(fn, Function):
        return fn
    bounds = _promised(fn)
    row = events(fn)
    if not any(e.kind is BIND and is_op(e.node.value, ALLOC_TENSOR) for e in row):
        return fn
    planner = _Planner(fn, kernels, bounds)
    lives = Lifetimes(row, mod)
    plan = planner.plan(row, lives)
    if packed and _is_alone(row, mod):
        planner.pack(plan, row, lives)
    if plan:
        storages = {id(s.final()) for s in plan.values()}
        decided("memory of {} tensors planned as {} storages", len(plan), len(storages))
    if not plan:
        return fn
    return _Rewriter(plan, planner).rewrite(fn)


def _is_alone(row: list[Event], mod: IRModule) -> bool:
    """Whether a function has no branches and calls no other: memory that it holds all the time is
    needed all the time.
    """
    for e in row:
        op = e.node.value.op if e.kind is BIND and isinstance(e.node.value, Call) else None
        calls = isinstance(op, Var) or op in (INVOKE_CLOSURE, INVOKE_PURE_CLOSURE)
        if e.kind is OPEN or calls or (isinstance(op, GlobalVar) and _is_graph(mod.get(op))):
            return False
    return True


def _is_graph(fn: Any) -> bool:
    return not isinstance(fn, PrimFunc)


class _Kernels:
    """What may be written in place, and the functions made for it."""

    def __init__(self, mod: IRModule, enabled: bool) -> None:
        self.mod = mod
        self.enabled = enabled
        self.made: dict[GlobalVar, PrimFunc] = {}
        self._pairs: dict[PrimFunc, tuple[tuple[int, int], ...]] = {}
        self._rows: dict[PrimFunc, tuple[int, ...]] = {}
        self._access: dict[PrimFunc, Mapping[Buffer, str]] = {}
        self._known: dict[tuple[PrimFunc, int, int], GlobalVar] = {}
        self._names = NameSupply(lambda: [gv.name_hint for gv in mod.functions], "_")

    def pairs(self, call: Call) -> tuple[tuple[int, int], ...]:
        """The arguments (input, output) of a call where the output may be written over the
        input.
        """
        fn = self._called(call)
        if not self.enabled or fn is None:
            return ()
        pairs = self._pairs.get(fn)
        if pairs is None:
            pairs = self._pairs[fn] = overwritable_inputs(fn)
        return pairs

    def inputs_in_a_row(self, call: Call) -> tuple[int, ...]:
        """The arguments that a call only copies to its last one, one behind the other, if that is
        all it does.
        """
        fn = self._called(call)
        if not self.enabled or fn is None:
            return ()
        inputs = self._rows.get(fn)
        if inputs is None:
            inputs = self._rows[fn] = inputs_in_a_row(fn)
        return inputs

    def only_reads(self, call: Any, tensor: Callable[[Any], bool]) -> bool:
        """Whether a call is one of a loop function that does not write those of its arguments that
        are `tensor`.
        """
        fn = self._called(call) if isinstance(call, Call) else None
        if fn is None:
            return False
        access = self._access.get(fn)
        if access is None:
            access = self._access[fn] = {} if has_views(fn) else buffer_accesses(fn)
        buffers = [fn.buffer_map.get(p) for p, a in zip(fn.params, call.args) if tensor(a)]
        return all(b is not None and access.get(b) == "r" for b in buffers)

    def _called(self, call: Call) -> PrimFunc | None:
        fn = self.mod.get(call.op) if isinstance(call.op, GlobalVar) else None
        return fn if isinstance(fn, PrimFunc) and len(fn.params) == len(call.args) else None

    def inplace(self, gv: GlobalVar, source: int, out: int) -> GlobalVar:
        """The function that writes `out` over `source`."""
        fn = self.mod[gv]
        assert isinstance(fn, PrimFunc)
        known = self._known.get((fn, source, out))
        if known is None:
            name = self._names.fresh(f"{gv.name_hint}_inplace")
            kernel = write_over(fn, source, out, name)
            known = self._known[fn, source, out] = GlobalVar(name)
            self.made[known] = kernel
        return known


# -- which storage each tensor gets ---------------------------------------------------------------


class _Storage:
    """A storage in the plan. `size` is an int, or an expression for sizes only known at run
    time.

    before  the variable of the `If` before which it is allocated; None: where it is first used
    merged  the storage of the other branch that stands for this one
    """

    __slots__ = ("alloc", "before", "merged", "number", "size")

    def __init__(self, size: int | PrimExpr, alloc: Call, number: int) -> None:
        self.size = size
        self.alloc = alloc
        self.number = number
        self.before: Var | None = None
        self.merged: _Storage | None = None

    def final(self) -> _Storage:
        """The storage that stands for this one."""
        storage = self
        while storage.merged is not None:
            storage = storage.merged
        return storage

    def order(self) -> tuple[Any, int]:
        return (self.size, self.number)


class _Pool:
    """Free storages of one device and memory scope."""

    __slots__ = ("static", "symbolic")

    def __init__(self) -> None:
        self.static: list[_Storage] = []
        self.symbolic: dict[PrimExpr, list[_Storage]] = {}

    def copy(self) -> _Pool:
        pool = _Pool()
        # Storages may have grown inside a branch since the copy was taken.
        pool.static = sorted(self.static, key=_Storage.order)
        pool.symbolic = {size: list(free) for size, free in self.symbolic.items() if free}
        return pool

    def take_static(self, size: int) -> _Storage | None:
        """The smallest free storage that fits without great waste, else the largest, grown."""
        place = bisect_left(self.static, (size, -1), key=_Storage.order)
        if place < len(self.static) and self.static[place].size <= max(size, 1) * MATCH_RANGE:
            return self.static.pop(place)
        if place > 0 and self.static[place - 1].size * MATCH_RANGE >= size:
            grown = self.static.pop(place - 1)
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

    def __init__(self, fn: Function, kernels: _Kernels, bounds: dict[str, tuple[int, int]]) -> None:
        self.kernels = kernels
        self.calls: dict[Var, tuple[GlobalVar, int]] = {}
        self.created: list[_Storage] = []
        self.lifted: list[_Storage] = []
        self.owner: dict[int, Var] = {}
        self.blocks: dict[Var, Block] = {}
        self.offsets: dict[Var, int] = {}
        self.overwritten: set[Var] = set()
        self.gone: set[Var] = set()
        self.pools: dict[tuple[Any, ...], _Pool] = {}
        self.analyzer = Analyzer(wrap=True)
        self.bounded = _bind_bounds(fn, bounds, self.analyzer)
        self.sizes: dict[PrimExpr, PrimExpr] = {}
        self.representatives: list[PrimExpr] = []
        self.count = 0

    def plan(self, row: list[Event], lives: Lifetimes) -> dict[Var, _Storage]:
        chosen: dict[Var, _Storage] = {}
        saved: list[dict[tuple[Any, ...], _Pool]] = []
        outer: list[list[_Storage]] = []
        branches: list[list[list[_Storage]]] = []
        writers = self._writers(row)
        for position, e in enumerate(row):
            if e.kind is OPEN:
                # Both branches start from what is free here; what they leave free cannot be relied
                # on afterwards.
                saved.append(self.pools)
                self.pools = _copy_pools(saved[-1])
                outer.append(self.created)
                branches.append([])
                self.created = []
            elif e.kind is RESULT and e.owner is not None:
                self.pools = _copy_pools(saved[-1])
                branches[-1].append(self.created)
                self.created = []
            elif e.kind is CLOSE:
                self.pools = _copy_pools(saved.pop())
                self.created = outer.pop()
                self._lift(e.node.var, *branches.pop())
            elif (
                e.kind is BIND and e.node.var in lives.planned and is_op(e.node.value, ALLOC_TENSOR)
            ):
                storage = self._over_an_input(e.node, writers, chosen, lives)
                if storage is not None:
                    self.blocks[e.node.var] = self.blocks[self.owner[storage.number]]
                else:
                    storage, size = self._choose(e.node.var, e.node.value)
                    self.blocks[e.node.var] = Block(size if isinstance(size, int) else -1, position)
                chosen[e.node.var] = storage
                self.owner[storage.number] = e.node.var
            for v in lives.released.get(position, ()):
                if v in chosen:
                    self.blocks[v].death = position
                # Else another tensor has been written over it.
                if v in chosen and self.owner[chosen[v].number] is v:
                    self._pool(chosen[v].alloc).give_back(chosen[v])
        return chosen

    def pack(self, plan: dict[Var, _Storage], row: list[Event], lives: Lifetimes) -> None:
        """Put the tensors of known size of each pool into one storage, if that takes less."""
        tensors: dict[int, list[Var]] = {}
        for v, storage in plan.items():
            if isinstance(storage.size, int):
                tensors.setdefault(id(self._pool(storage.alloc)), []).append(v)
        home = {v: id(self._pool(storage.alloc)) for v, storage in plan.items()}
        own = find_wholes(row, lives, self.kernels, self.blocks, home, self.calls, self.overwritten)
        for group in tensors.values():
            before = {id(plan[v]): plan[v].size for v in group}
            blocks = list(dict.fromkeys(self.blocks[v] for v in group))
            size, joined = pack_joined(blocks, [w for w in own if w.home == home[group[0]]])
            if size is None or size >= sum(before.values()) + bool(joined):
                continue
            self.count += 1
            arena = _Storage(size, plan[group[0]].alloc, self.count)
            for v in group:
                plan[v] = arena
                self.offsets[v] = self.blocks[v].offset
            for whole in joined:
                decided("{} copies nothing: its parts are computed in their places", whole.binding)
                self.gone.add(whole.binding.var)

    def hoisted(self) -> dict[Var, list[_Storage]]:
        """By the variable of an `If`: the storages to allocate before it."""
        hoisted: dict[Var, list[_Storage]] = {}
        # One that was lifted out of several branches stands where it came to last.
        for storage in dict.fromkeys(self.lifted):
            if storage.merged is None and storage.before is not None:
                hoisted.setdefault(storage.before, []).append(storage)
        return hoisted

    def _lift(self, var: Var, one: list[_Storage], two: list[_Storage]) -> None:
        """Pair what the branches of the `If` bound to `var` allocate: each pair becomes one storage
        of the sequence that the `If` stands in.
        """
        free: dict[Any, list[_Storage]] = {}
        for storage in sorted(one, key=_by_size):
            free.setdefault(self._kind(storage), []).append(storage)
        for other in sorted(two, key=_by_size, reverse=True):
            # The largest with the largest.
            candidates = free.get(self._kind(other))
            if not candidates:
                continue
            kept = candidates[-1]
            if isinstance(kept.size, int) and isinstance(other.size, int):
                if max(kept.size, other.size) > MATCH_RANGE * max(min(kept.size, other.size), 1):
                    continue
                kept.size = max(kept.size, other.size)
            candidates.pop()
            other.merged = kept
            kept.before = var
            self.lifted.append(kept)
            self.created.append(kept)
            self._pool(kept.alloc).give_back(kept)

    def _kind(self, storage: _Storage) -> Any:
        """What storages must have in common to be one."""
        size = storage.size
        return id(self._pool(storage.alloc)), 0 if isinstance(size, int) else size

    @staticmethod
    def _writers(row: list[Event]) -> dict[Var, tuple[int, Binding]]:
        """The call that writes each allocated tensor first."""
        writers: dict[Var, tuple[int, Binding]] = {}
        for position, e in enumerate(row):
            if e.kind is BIND and isinstance(e.node.value, Call):
                for arg in e.node.value.args:
                    if isinstance(arg, Var):
                        writers.setdefault(arg, (position, e.node))
        return writers

    def _over_an_input(
        self,
        b: Binding,
        writers: dict[Var, tuple[int, Binding]],
        chosen: dict[Var, _Storage],
        lives: Lifetimes,
    ) -> _Storage | None:
        """The storage of an input that the call which writes `b.var` may overwrite."""
        writer = writers.get(b.var)
        if writer is None or writer[1].var in self.calls:
            return None
        position, binding = writer
        call, alloc = binding.value, b.value
        assert isinstance(call, Call)
        assert isinstance(alloc, Call)
        roots = [lives.root.get(a, a) if isinstance(a, Var) else None for a in call.args]
        for source, out in self.kernels.pairs(call):
            tensor = roots[source]
            if call.args[out] is not b.var or tensor is None:
                continue
            storage = chosen.get(tensor)
            why_not = ""
            if storage is None:
                why_not = "that is not the function's own"
            # Its last use, under this name only, in no other argument.
            elif tensor not in lives.released.get(position, ()):
                why_not = "that is read again"
            elif (
                tensor in lives.shared
                or roots.count(tensor) > 1
                or self.owner[storage.number] is not tensor
            ):
                why_not = "others share its memory"
            elif not _same_tensor(tensor, b.var):
                why_not = "it has another shape or dtype"
            elif self._pool(alloc) is not self._pool(storage.alloc):
                why_not = "it is in another memory"
            # Of a branch it is not known what writes it.
            made_by = writers[tensor][1] if tensor in writers else tensor
            if storage is None or why_not:
                declined("{} not written over its input {}: {}", binding, made_by, why_not)
                continue
            assert isinstance(call.op, GlobalVar)
            decided("{} written over its input {}", binding, made_by)
            self.calls[binding.var] = (self.kernels.inplace(call.op, source, out), out)
            self.overwritten.add(tensor)
            return storage
        return None

    def _pool(self, alloc: Call) -> _Pool:
        device, scope = alloc.args[2], alloc.args[3]
        key = (
            device.value if isinstance(device, PrimValue) else device,
            scope.value if isinstance(scope, StringImm) else scope,
            getattr(alloc.struct_info, "vdevice", None),
        )
        return self.pools.setdefault(key, _Pool())

    def _choose(self, var: Var, alloc: Call) -> tuple[_Storage, int | PrimExpr]:
        """A storage for a tensor, and the bytes that the tensor takes."""
        size = self._size(size_bytes(alloc, var))
        pool = self._pool(alloc)
        storage: _Storage | None = None
        if isinstance(size, int):
            storage = pool.take_static(size)
        elif pool.symbolic.get(size):
            storage = pool.symbolic[size].pop()
        else:
            storage = self._larger(pool, size)
        if storage is None:
            self.count += 1
            storage = _Storage(size, alloc, self.count)
            self.created.append(storage)
        return storage, size

    def _larger(self, pool: _Pool, size: PrimExpr) -> _Storage | None:
        """A free storage that is provably large enough."""
        compared = 0
        for other, free in pool.symbolic.items():
            if not free:
                continue
            compared += 1
            if compared > _COMPARED_SIZES:
                break
            if self.analyzer.can_prove(other >= size):
                return free.pop()
        return None

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
_COMPARED_SIZES = 4
_LARGEST_DIM = 1 << 32


def _by_size(storage: _Storage) -> int:
    return storage.size if isinstance(storage.size, int) else 0


def _same_tensor(a: Var, b: Var) -> bool:
    """Whether two tensors have the same dtype and, written alike, the same shape."""
    one, two = a.struct_info, b.struct_info
    if not isinstance(one, TensorStructInfo) or not isinstance(two, TensorStructInfo):
        return False
    mine, its = one.dims, two.dims
    return (
        one.dtype is two.dtype
        and mine is not None
        and its is not None
        and len(mine) == len(its)
        and all(x is y for x, y in zip(mine, its))
    )


def _copy_pools(pools: dict[tuple[Any, ...], _Pool]) -> dict[tuple[Any, ...], _Pool]:
    return {key: pool.copy() for key, pool in pools.items()}


def _promised(fn: Function) -> dict[str, tuple[int, int]]:
    """The least and the greatest value of each symbol that has an upper bound, by its name."""
    upper, lower = _bounds(fn, "tir_var_upper_bound"), _bounds(fn, "tir_var_lower_bound")
    for name, most in upper.items():
        if lower.get(name, 0) > most:
            raise PassError(f"tir_var_lower_bound: {name} is {lower[name]}, above its upper {most}")
    return {name: (lower.get(name, 0), most) for name, most in upper.items()}


def _bind_bounds(
    fn: Function, bounds: dict[str, tuple[int, int]], analyzer: Analyzer
) -> set[PrimVar]:
    """Tell `analyzer` the ranges the function's attributes promise; the symbols that have an
    upper bound.
    """
    if not bounds:
        _bind_sizes(fn, analyzer)
        return set()
    bounded = set()
    seen = set()
    for n in walk(fn):
        if isinstance(n, PrimVar) and n not in seen:
            seen.add(n)
            if n.name in bounds:
                least, most = bounds[n.name]
                extent = min(most - least + 1, int(n.dtype.max_value))
                analyzer.bind(
                    n, Range.from_min_extent(IntImm(n.dtype, least), IntImm(n.dtype, extent))
                )
                bounded.add(n)
    return bounded


def _bind_sizes(fn: Function, analyzer: Analyzer) -> None:
    """What is a dimension of a parameter is at least 0."""
    seen = set()
    for p in fn.params:
        info = p.struct_info
        for dim in (info.dims or ()) if isinstance(info, TensorStructInfo) else ():
            if isinstance(dim, PrimVar) and dim not in seen:
                seen.add(dim)
                most = min(_LARGEST_DIM, int(dim.dtype.max_value))
                analyzer.bind(
                    dim,
                    Range.from_min_extent(IntImm(dim.dtype, 0), IntImm(dim.dtype, most)),
                )


def _bounds(fn: Function, attr: str) -> dict[str, int]:
    declared = fn.get_attr(attr)
    if declared is None:
        return {}
    bounds = {}
    if isinstance(declared, Mapping):
        for name, bound in declared.items():
            number = bound.value if isinstance(bound, IntImm) else bound
            if isinstance(name, str) and type(number) is int and 0 <= number < 2**63:
                bounds[name] = number
                continue
            raise PassError(
                f"{attr}: wanted {{symbol name: int of at least 0}}, got {name!r}: {bound!r}"
            )
        return bounds
    raise PassError(f"{attr}: wanted {{symbol name: int}}, got {type(declared).__name__}")


# -- writing the plan into the function -----------------------------------------------------------


class _Rewriter(BindingRewriter):
    def __init__(
        self,
        plan: dict[Var, _Storage],
        planner: _Planner,
    ) -> None:
        self.plan = plan
        self.offsets = planner.offsets
        self.hoisted = planner.hoisted()
        self.calls = planner.calls
        self.gone = planner.gone
        self.vars: dict[int, Var] = {}
        self.made: set[int] = set()

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        if b.var in self.gone:
            return ()
        early = self.hoisted.get(b.var)
        if early is not None:
            return [*map(self._allocation, early), b]
        inplace = self.calls.get(b.var)
        if inplace is not None:
            callee, out = inplace
            assert isinstance(b.value, Call)
            args = tuple(a for k, a in enumerate(b.value.args) if k != out)
            return [b.replace(value=b.value.replace(op=callee, args=args))]
        storage = self.plan.get(b.var)
        if storage is None:
            return None
        storage, call = storage.final(), b.value
        assert isinstance(call, Call)
        out_bindings: list[Binding] = []
        if storage.before is None and storage.number not in self.made:
            out_bindings.append(self._allocation(storage))
        offset = self.offsets.get(b.var, 0)
        tensor = tensor_from_storage(self._var(storage), call, offset)
        out_bindings.append(b.replace(value=tensor))
        return out_bindings

    def _var(self, storage: _Storage) -> Var:
        var = self.vars.get(storage.number)
        if var is None:
            name = "storage" if not self.vars else f"storage_{len(self.vars)}"
            var = self.vars[storage.number] = Var(name, OBJECT, storage.alloc.span)
        return var

    def _allocation(self, storage: _Storage) -> Binding:
        self.made.add(storage.number)
        dtype = storage.alloc.args[1]
        assert isinstance(dtype, DataTypeImm)
        size = ShapeExpr((storage.size,))
        device, scope = storage.alloc.args[2:4]
        allocation = alloc_storage(size, device, scope, dtype.value)
        return VarBinding(self._var(storage), allocation, storage.alloc.span)
