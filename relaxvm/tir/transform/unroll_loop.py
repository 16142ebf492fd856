"""Write out the loops marked `T.unroll`, and short serial loops if asked to.

    for i in T.unroll(3):                       A[0] = 1.0
        A[i] = 1.0                              A[1] = 1.0
                                                A[2] = 1.0

A loop whose extent is not a constant, or that would grow the function too much, stays a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...ir import (
    Add,
    IntImm,
    IRModule,
    Let,
    Mul,
    PassContext,
    PrimExpr,
    Var,
    post_order,
    walk,
    wrap_int,
)
from ...ir.transform import prim_func_pass, register_config
from ..copies import defined
from ..stmt import (
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    PrimFunc,
    Stmt,
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
# What a loop's annotations may say for the loops from there on.
_PRAGMAS = {
    "pragma_auto_unroll_max_step": "auto_max_step",
    "pragma_unroll_explicit": "explicit_unroll",
}


@prim_func_pass(opt_level=0)
def UnrollLoop(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Unroll loops of kind "unroll", and others as configured."""
    return _Unroll(ctx).on_function(fn)


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
    def __init__(self, ctx: PassContext) -> None:
        super().__init__()
        names = ("auto_max_step", "auto_max_depth", "auto_max_extent", "explicit_unroll")
        self.options = {name: ctx.get(f"{_KEY}.{name}") for name in names}
        self.local = ctx.get(f"{_KEY}.unroll_local_access")
        self._nodes_left = MAX_TOTAL_NODES
        self._left = _Left()

    def on_store(self, stmt: BufferStore) -> Stmt:
        self._left = self._left._replace(stores=self._left.stores + 1)
        return stmt

    def on_for(self, stmt: For) -> Steps:
        outside, self._left = self._left, _Left()
        options = self.options
        if any(key in stmt.annotations for key in _PRAGMAS):
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
        few = not named and not left.loops and extent <= self.options["auto_max_extent"]
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
            return stays
        if extent <= 0:
            return seq(), _Left()
        if not (few or self.options["explicit_unroll"]):
            return stmt.replace(kind=ForKind.UNROLLED), left._replace(loops=True)
        below = list(post_order(stmt.body))
        if len(below) * extent > min(MAX_NODES, self._nodes_left):
            return stays
        self._nodes_left -= len(below) * extent
        left = _Left(extent * left.stores, left.loops, left.depth + 1)
        return seq(*_copies(stmt, extent, below)), left


def iterations(stmt: For, extent: int) -> list[Stmt]:
    """The body of a loop for each of its values, `extent` of them; each defines what is its own."""
    return _copies(stmt, extent, list(post_order(stmt.body)))


def _copies(stmt: For, extent: int, below: list[Any]) -> list[Stmt]:
    """`below` is what is in the body, children first. Only what the loop's variable and what is
    defined inside stand in is looked at for each copy.
    """
    var, body = stmt.loop_var, stmt.body
    own = _definitions(below)
    moved = {id(var), *map(id, own)}
    changing = []
    for n in below:
        if id(n) in moved:
            if isinstance(n, Buffer):
                changing.append(n)
            continue
        for c in n._children_():
            if id(c) in moved:
                moved.add(id(n))
                changing.append(n)
                break
    variables = [n for n in own if isinstance(n, Var)]
    buffers = {id(n) for n in own if isinstance(n, Buffer)}
    shifts: dict[int, _Shift | None] = {}
    if not own and isinstance(stmt.min, IntImm):
        changing, shifts = _with_shifts(body, changing, var)
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
            shift = shifts.get(id(n))
            copied = n._map_children_(now) if shift is None else shift.with_value(index)
            if i and copied is n and id(n) in buffers:
                # A view of outside memory is a new buffer too: two declarations of one buffer
                # would clash.
                copied = Buffer(*(getattr(n, f) for f in n._fields))
            new[id(n)] = copied
        copies.append(now(body))
    return copies


class _Shift(NamedTuple):
    """``rest + step * v + offset`` for a loop's variable v; no `rest` is 0."""

    rest: PrimExpr | None
    step: int
    offset: int

    def with_value(self, v: IntImm) -> PrimExpr:
        offset = IntImm(v.dtype, wrap_int(self.offset + self.step * v.value, v.dtype))
        if self.rest is None:
            return offset
        return Add(self.rest, offset) if offset.value else self.rest


def _with_shifts(
    body: Stmt, changing: list[Any], var: Var
) -> tuple[list[Any], dict[int, _Shift | None]]:
    """Which of `changing` is to be looked at for each copy, and what of it is linear in `var`:
    nothing inside of that needs copies, and what the copies share is simplified once.
    """
    shifts: dict[int, _Shift | None] = dict.fromkeys(map(id, changing))
    shifts[id(var)] = _Shift(None, 1, 0)
    for n in changing:
        if type(n) in _LINEAR and n.dtype is var.dtype:
            a, b = _shift(n.a, shifts), _shift(n.b, shifts)
            if a is not None and b is not None:
                shifts[id(n)] = _LINEAR[type(n)](a, b)
    needed, kept = {id(body)}, []
    for n in reversed(changing):
        if id(n) in needed:
            kept.append(n)
            if shifts[id(n)] is None:
                needed.update(map(id, n._children_()))
    return kept[::-1], shifts


def _shift(e: PrimExpr, shifts: dict[int, _Shift | None]) -> _Shift | None:
    """That of a part; None where it changes, but is not linear."""
    if isinstance(e, IntImm):
        return _Shift(None, 0, e.value)
    return shifts[id(e)] if id(e) in shifts else _Shift(e, 0, 0)


def _sum(a: _Shift, b: _Shift) -> _Shift:
    rest = a.rest if b.rest is None else b.rest if a.rest is None else Add(a.rest, b.rest)
    return _Shift(rest, a.step + b.step, a.offset + b.offset)


def _product(a: _Shift, b: _Shift) -> _Shift | None:
    if b.rest is not None or b.step:
        a, b = b, a
    if b.rest is not None or b.step:
        return None
    factor, rest = b.offset, a.rest
    if rest is not None:
        rest = Mul(rest, IntImm(rest.dtype, wrap_int(factor, rest.dtype)))
    return _Shift(rest, a.step * factor, a.offset * factor)


_LINEAR = {Add: _sum, Mul: _product}


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
