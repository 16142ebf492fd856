"""Write out the loops marked `T.unroll`, and short serial loops if asked to.

    for i in T.unroll(3):                       A[0] = 1.0
        A[i] = 1.0                              A[1] = 1.0
                                                A[2] = 1.0

A loop whose extent is not a constant, or that would grow the function too much, stays a loop.

Of a function with the attribute WRITES_OUT, code generators write out loops by themselves: those
whose copies differ only in where they read and write stay, with the annotation WRITTEN_OUT. What
follows looks at their statements once, and not once for each copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...arith import stride
from ...base import NamedTuple
from ...ir import (
    Call,
    IntImm,
    IRModule,
    Let,
    PassContext,
    PrimExpr,
    Ramp,
    Shuffle,
    Var,
    const,
    post_order,
    substitute,
    walk,
    wrap_int,
)
from ...ir.transform import prim_func_pass, register_config
from ..copies import defined
from ..stmt import (
    PREFETCH,
    PREFETCH_PANEL,
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    Stmt,
    body_nodes,
    seq,
)
from .rewriter import Steps, StmtRewriter, constant

MAX_NODES = 20_000
# LLVM takes some 6 s for as many.
MAX_TOTAL_NODES = 40_000

_KEY = "tir.UnrollLoop"
register_config(
    f"{_KEY}.auto_max_step",
    int,
    0,
    "write out serial loops around none that stay if there are at most this many stores then",
    lambda value: 0 <= value <= MAX_NODES,
)
register_config(
    f"{_KEY}.auto_max_depth",
    int,
    8,
    "how many loops inside one another are written out for auto_max_step",
    lambda value: value >= 0,
)
register_config(
    f"{_KEY}.auto_max_extent",
    int,
    0,
    "write out serial loops of at most this many iterations, around none that stay",
    lambda value: 0 <= value <= 1024,
)
register_config(
    f"{_KEY}.explicit_unroll",
    bool,
    True,
    "write loops out; otherwise those that T.unroll or auto_max_step name are left marked T.unroll",
)
register_config(
    f"{_KEY}.unroll_local_access",
    bool,
    False,
    "write out loops whose variable is in an index of a buffer of scope local",
)
WRITES_OUT, WRITTEN_OUT = "tir.writes_out", "tir.written_out"
"""An attribute and an annotation (see above): how many nodes more the loop is when written out."""

# Of innermost loops that are written out in steps: so many stores make what counts iterations
# little beside them. Where threads share a core, as those of rented machines often do, products of
# 512^3 are up to 1.4 times as fast on Zen 3; with 24 stores they lose a twentieth of that.
_STORES_IN_STEP, _MOST_IN_STEP, _NODES_IN_STEP, _WIDEST_STORE = 32, 8, 3000, 512
# So many scalars that a loop moves, apart or together, are written out beside vectors: to make
# vectors of them, LLVM would have to look at all the rest.
_MOST_MOVED = 96
_ASKING = frozenset((PREFETCH, PREFETCH_PANEL))

# What a loop's annotations may say for the loops from there on.
_PRAGMAS = {
    "pragma_auto_unroll_max_step": "auto_max_step",
    "pragma_unroll_explicit": "explicit_unroll",
}


@prim_func_pass(opt_level=0)
def UnrollLoop(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Unroll loops of kind "unroll", and others as configured."""
    return _Unroll(fn, ctx).on_function(fn)


class _Left(NamedTuple):
    """What a statement comes to when its loops are unrolled.

    stores  how many it has
    loops   whether any stay
    depth   of those that are written out inside one another
    """

    stores: int = 0
    loops: bool = False
    depth: int = 0


class _Unroll(StmtRewriter):
    def __init__(self, fn: PrimFunc, ctx: PassContext) -> None:
        super().__init__()
        # Passes of a user are promised straight code, and checks are of one access each.
        seen = ctx.get("tir.add_lower_pass") or ctx.get("tir.instrument_bound_checkers")
        self._leaves = bool(fn.get_attr(WRITES_OUT, False)) and not seen
        names = ("auto_max_step", "auto_max_depth", "auto_max_extent", "explicit_unroll")
        self.options = {name: ctx.get(f"{_KEY}.{name}") for name in names}
        self.local = ctx.get(f"{_KEY}.unroll_local_access")
        self._nodes_left, self._fn = MAX_TOTAL_NODES, fn
        self._left = _Left()

    def on_store(self, stmt: BufferStore) -> Stmt:
        self._left = self._left._replace(stores=self._left.stores + 1)
        return stmt

    def on_for(self, stmt: For) -> Steps:
        outside, self._left = self._left, _Left()
        options = self.options
        if WRITTEN_OUT in stmt.annotations:
            stmt = stmt.replace(annotations=stmt.annotations.without(WRITTEN_OUT))
        if not _PRAGMAS.keys().isdisjoint(stmt.annotations):
            said = {o: int(stmt.annotations.get(k, options[o])) for k, o in _PRAGMAS.items()}
            self.options = {**options, **said}
        body = yield stmt.body
        unrolled, left = self._unrolled(stmt.replace(body=body), self._left)
        self.options = options
        self._left = _Left(
            outside.stores + left.stores,
            outside.loops or left.loops,
            max(outside.depth, left.depth),
        )
        return unrolled

    def _unrolled(self, stmt: For, left: _Left) -> tuple[Stmt, _Left]:
        stays = stmt, left._replace(loops=True)
        extent = constant(stmt.extent)
        named = stmt.kind == ForKind.UNROLLED
        if extent is None or not (named or stmt.kind == ForKind.SERIAL):
            return stays
        few = (
            not named
            and not left.loops
            and (
                extent <= self.options["auto_max_extent"]
                or self._moves_few(stmt, extent * left.stores)
            )
        )
        named = (
            named
            or (
                not left.loops
                and left.depth < self.options["auto_max_depth"]
                and 0 < extent * left.stores <= self.options["auto_max_step"]
            )
            or (self.local and _is_local_index(stmt.loop_var, stmt.body))
        )
        if not (named or few):
            return self._in_steps(stmt, extent, left) or stays
        if extent <= 0:
            return seq(), _Left()
        if not (few or self.options["explicit_unroll"]):
            return stmt.replace(kind=ForKind.UNROLLED), left._replace(loops=True)
        nodes = _written_nodes(stmt.body)
        if nodes * extent > min(MAX_NODES, self._nodes_left):
            return stays
        self._nodes_left -= nodes * extent
        left = _Left(extent * left.stores, left.loops, left.depth + 1)
        moves = self._leaves and extent > 1 and _can_be_left(stmt)
        return _written(stmt, extent, nodes, moves), left

    def _moves_few(self, stmt: For, count: int) -> bool:
        """Whether a loop with `count` stores in all moves few scalars, and not as a run, in a
        function that stores vectors.
        """
        if not self._leaves or stmt.annotations or not 0 < count <= _MOST_MOVED:
            return False
        stores = [n for n in walk(stmt.body) if type(n) is BufferStore]
        if not all(_moves_apart(n, stmt.loop_var) for n in stores):
            return False
        return any(type(n) is BufferStore and n.value.dtype.lanes > 1 for n in body_nodes(self._fn))

    def _in_steps(self, stmt: For, extent: int, left: _Left) -> tuple[Stmt, _Left] | None:
        """An innermost loop that stores few vectors takes several iterations a step: to count them
        and to find places costs as much as the rest. It is written out if it is short.
        """
        steps = [n for n in range(2, min(_MOST_IN_STEP, extent) + 1) if extent % n == 0]
        if not steps or not self._leaves or left.loops or not 0 < left.stores < _STORES_IN_STEP:
            return None
        times = next((n for n in steps if n * left.stores >= _STORES_IN_STEP), steps[-1])
        is_whole, asks = times == extent, PREFETCH in stmt.annotations
        moves = _can_be_left(stmt) if is_whole else _differs_in_places(stmt.loop_var, stmt.body)
        # Straight copies of a whole loop would ask for nothing any more.
        if not stmt.annotations.keys() <= _ASKING or (is_whole and asks and not moves):
            return None
        nodes = _written_nodes(stmt.body)
        if nodes * times > min(_NODES_IN_STEP, self._nodes_left):
            return None
        if not all(map(_is_of_whole_vectors, walk(stmt.body))):
            return None
        self._nodes_left -= nodes * times
        step, var = stmt, stmt.loop_var
        if not is_whole:
            outer, inner = (Var(f"{var.name}_{k}", var.dtype) for k in (0, 1))
            zero, number = IntImm(var.dtype, 0), IntImm(var.dtype, times)
            body = substitute(stmt.body, {var: stmt.min + outer * times + inner})
            step = For(inner, zero, number, ForKind.SERIAL, body)
        written = _written(step, times, nodes, moves)
        left = _Left(times * left.stores, not is_whole, left.depth + 1)
        if is_whole:
            return written, left
        extent_left = IntImm(var.dtype, extent // times)
        return stmt.replace(loop_var=outer, min=zero, extent=extent_left, body=written), left


def _written(loop: For, extent: int, nodes: int, moves: bool) -> Stmt:
    """The copies of `loop`, of `nodes` each: left to code generators where they only move."""
    if not moves:
        return seq(*iterations(loop, extent))
    annotations = {**loop.annotations, WRITTEN_OUT: const(nodes * (extent - 1), "int64")}
    return loop.replace(kind=ForKind.UNROLLED, annotations=annotations)


def _written_nodes(body: Stmt) -> int:
    """How many nodes `body` has when the loops in it are written out."""
    below = walk(body)
    copies = (n.annotations.get(WRITTEN_OUT, 0) for n in below if type(n) is For)
    return len(below) + sum(map(int, copies))


def _moves_apart(store: BufferStore, var: Var) -> bool:
    """Whether a store moves a scalar, which `var` does not move by one from place to place."""
    value = store.value
    if type(value) is not BufferLoad or value.dtype.lanes > 1:
        return False
    return any(stride(i, var) != 1 for s in (store, value) for i in s.indices)


def _is_of_whole_vectors(n: Any) -> bool:
    """Whether a node is no store of a scalar or of more than fits two registers, no distance
    between elements and no choice, of which LLVM knows more as long as they are a loop; and no
    shuffle, of which those around it are many.
    """
    if type(n) is BufferStore:
        dtype = n.value.dtype
        return bool(dtype.lanes > 1 and dtype.lanes * dtype.bits <= _WIDEST_STORE)
    if type(n) is Ramp:
        return isinstance(n.stride, IntImm) and n.stride.value == 1
    return type(n) is not Call and type(n) is not Shuffle


def _can_be_left(stmt: For) -> bool:
    """Whether code generators can write out a loop of constant extent."""
    return isinstance(stmt.min, IntImm) and _differs_in_places(stmt.loop_var, stmt.body)


def _differs_in_places(var: Var, body: Stmt) -> bool:
    """Whether copies of `body` differ only in the places that they read and write, each by as much
    as the other, and in conditions of `var` alone.
    """
    statements: list[Any] = [body]
    for s in statements:  # which grows meanwhile
        if type(s) is SeqStmt:
            statements += s.seq
        elif type(s) is For and WRITTEN_OUT in s.annotations:
            statements.append(s.body)
        elif type(s) is IfThenElse:
            used = {n for n in walk(s.condition) if isinstance(n, (Var, BufferLoad, Call))}
            if var in used and len(used) > 1:
                return False
            statements += (s.then_case,) if s.else_case is None else (s.then_case, s.else_case)
        elif type(s) is not BufferStore or not _moves(var, s.indices):
            return False
        else:
            for e in post_order(s.value, _beside_places):
                if e is var or (type(e) is BufferLoad and not _moves(var, e.indices)):
                    return False
    return True


def _beside_places(e: Any) -> Any:
    return () if type(e) is BufferLoad else e._children_


def _moves(var: Var, indices: tuple[PrimExpr, ...]) -> bool:
    """Whether a place is the same number of elements further for each value of `var`."""
    (index,) = indices if len(indices) == 1 else (None,)
    if type(index) is Ramp and isinstance(index.stride, IntImm):
        index = index.base
    return index is not None and (
        stride(index, var) is not None or all(n is not var for n in walk(index))
    )


def iterations(stmt: For, extent: int) -> list[Stmt]:
    """The body of a loop for each of its values, `extent` of them; each defines what is its own.
    Only what the loop's variable and what is defined inside stand in is looked at for each copy.
    """
    var, body = stmt.loop_var, stmt.body
    below = post_order(body)
    own = _definitions(below)
    moved = {id(var), *map(id, own)}
    changing = []
    for n in below:
        if id(n) in moved:
            if isinstance(n, Buffer):
                changing.append(n)
            continue
        for c in n._children_:
            if id(c) in moved:
                moved.add(id(n))
                changing.append(n)
                break
    variables = [n for n in own if isinstance(n, Var)]
    buffers = {id(n) for n in own if isinstance(n, Buffer)}
    copies = []
    for i in range(extent):
        index: Any = stmt.min + i
        if isinstance(stmt.min, IntImm):
            index = IntImm(var.dtype, wrap_int(stmt.min.value + i, var.dtype))
        new: dict[int, Any] = {id(var): index}
        if i:
            new |= {id(n): type(n)(n.name, n.dtype, n.type_annotation) for n in variables}

        def now(c: Any, get: Callable[[int, Any], Any] = new.get) -> Any:
            return get(id(c), c)

        for n in changing:
            copied = n._map_children_(now)
            if i and copied is n and id(n) in buffers:
                # A view of outside memory is a new buffer too: two declarations of one buffer
                # would clash.
                copied = Buffer(*(getattr(n, f) for f in n._fields))
            new[id(n)] = copied
        copies.append(now(body))
    return copies


def _is_local_index(var: Var, body: Stmt) -> bool:
    return any(
        isinstance(n, (BufferStore, BufferLoad))
        and n.buffer.scope() == "local"
        and any(var in walk(i) for i in n.indices)
        for n in walk(body)
    )


_DEFINING = (Stmt, Let)


def _definitions(below: list[Any]) -> list[Any]:
    """The variables and buffers that are bound inside, which each copy needs of its own."""
    definitions: list[Any] = []
    for n in below:
        if not isinstance(n, _DEFINING):
            continue
        own = defined(n)
        if isinstance(n, Block):
            definitions += [b.data for b in own if isinstance(b, Buffer)]
        definitions += own
    return list(dict.fromkeys(definitions))
