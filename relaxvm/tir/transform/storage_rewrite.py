"""Let allocations that are never needed at the same time share memory.

B = T.decl_buffer((8,), "float32")          shared = T.allocate([8], "float32")
...  # B is made of A, C of B               B = T.decl_buffer((8,), "float32", data=shared)
D = T.decl_buffer((6,), "float32")          ...
...  # D is made of C                       D = T.decl_buffer((6,), "float32", data=shared)
                                            ...
"""

from __future__ import annotations

import math
from typing import Any

from ...base import NamedTuple
from ...ir import (
    INTRINSICS,
    Call,
    IntImm,
    IRModule,
    PassContext,
    PrimExpr,
    Var,
    children,
    const,
    walk,
)
from ...ir import transform as passes
from ...ir.walk import transform
from ..copies import renew
from ..stmt import Allocate, Block, Buffer, DeclBuffer, For, ForKind, PrimFunc, Stmt, While
from .convert_ssa import with_single_definitions
from .rewriter import Steps, StmtRewriter, constant

_ADDRESS_OF = INTRINSICS["address_of"]


@passes.prim_func_pass(opt_level=0)
def StorageRewrite(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Merge allocations of constant sizes, one dtype and one scope, whose first and last uses do
    not overlap. Each iteration of a loop that is not serial has memory of its own. Buffers whose
    address is taken stay as they are.
    """
    fn = with_single_definitions(fn)
    uses = _Uses()
    uses.run(fn.body)
    shared: dict[Var, Var] = {}
    sizes: dict[Var | None, list[tuple[Var, Allocate, int]]] = {}
    for members in uses.groups():
        var = renew(members[0].buffer_var)
        shared |= {m.buffer_var: var for m in members}
        home = uses.lives[members[0].buffer_var].home
        sizes.setdefault(home, []).append((var, members[0], max(map(_elements, members))))
    if not shared:
        return fn

    def around(home: Var | None, body: Stmt) -> Stmt:
        for var, like, size in sizes.get(home, ()):
            extents = (const(size, like.extents[0].dtype),)
            body = like.replace(buffer_var=var, extents=extents, body=body)
        return body

    def merged(n: Any) -> Stmt | None:
        if isinstance(n, Allocate) and n.buffer_var in own:
            return n.body
        if isinstance(n, For) and n.loop_var in sizes:
            return n.replace(body=around(n.loop_var, n.body))
        return None

    own = set(shared.values())
    body = transform(fn.body, merged, pre=lambda n: shared.get(n) if isinstance(n, Var) else None)
    return fn.replace(body=around(None, body))


def _elements(stmt: Allocate) -> int:
    return math.prod(e.value for e in stmt.extents if isinstance(e, IntImm))


class _Life(NamedTuple):
    """stmt   what allocates
    home   the variable of the loop around it each of whose iterations has its own, None: none is
    loops  how many loops stand around it
    """

    stmt: Allocate
    home: Var | None
    loops: int


class _Uses(StmtRewriter):
    """When each allocation is first and last used, in statements from the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.lives: dict[Var, _Life] = {}
        self.first: dict[Var, int] = {}
        self.last: dict[Var, int] = {}
        # Of each loop around: where it begins, and what of outside is used in it.
        self.loops: list[tuple[int, set[Var]]] = []
        self.homes: list[Var | None] = [None]
        self.escaped: set[Var] = set()

    def groups(self) -> list[list[Allocate]]:
        """Those that are to share memory."""
        by_kind: dict[Any, list[list[Allocate]]] = {}
        for var in sorted(self.first, key=self.first.__getitem__):
            stmt, home, _ = self.lives[var]
            fixed = all(constant(e) is not None for e in stmt.extents)
            plain = fixed and stmt.extents and not stmt.annotations
            if not plain or var in self.escaped or constant(stmt.condition) != 1:
                continue
            alike = by_kind.setdefault((home, stmt.dtype, var.type_annotation), [])
            free = [g for g in alike if self.last[g[-1].buffer_var] < self.first[var]]
            if free:
                near = min(free, key=lambda g: abs(_elements(g[-1]) - _elements(stmt)))
                near.append(stmt)
            else:
                alike.append([stmt])
        return [group for alike in by_kind.values() for group in alike if len(group) > 1]

    def _use(self, var: Var) -> None:
        if var not in self.lives:
            return
        now, outside = self._visited, self.lives[var].loops
        for _, used in self.loops[outside : outside + 1]:
            # What it holds may be wanted in the next iteration.
            used.add(var)
        self.first.setdefault(var, self.loops[outside][0] if outside < len(self.loops) else now)
        self.last[var] = now

    def expr(self, e: PrimExpr) -> PrimExpr:
        stack: list[Any] = [e]
        while stack:
            n = stack.pop()
            if isinstance(n, Buffer):
                self.buffer(n)
            elif isinstance(n, Var):
                if n in self.lives:
                    self.escaped.add(n)
            else:
                if isinstance(n, Call) and n.op is _ADDRESS_OF:
                    self.escaped.update(b.data for b in walk(n) if isinstance(b, Buffer))
                stack.extend(children(n))
        return e

    def buffer(self, b: Buffer) -> Buffer:
        self._use(b.data)
        for part in (*b.shape, *b.strides, b.elem_offset):
            self.expr(part)
        return b

    def on_decl(self, stmt: DeclBuffer) -> Steps:
        body = yield stmt.body
        return stmt.replace(body=body)

    def on_block(self, stmt: Block) -> Steps:
        self.escaped.update(m.source.buffer.data for m in stmt.match_buffers)
        return super().on_block(stmt)

    def on_allocate(self, stmt: Allocate) -> Steps:
        self.lives[stmt.buffer_var] = _Life(stmt, self.homes[-1], len(self.loops))
        return super().on_allocate(stmt)

    def on_for(self, stmt: For) -> Steps:
        serial = stmt.kind in (ForKind.SERIAL, ForKind.UNROLLED)
        self.homes.append(self.homes[-1] if serial else stmt.loop_var)
        loop = yield from self._loop(super().on_for(stmt))
        self.homes.pop()
        return loop

    def on_while(self, stmt: While) -> Steps:
        return self._loop(super().on_while(stmt))

    def _loop(self, steps: Steps) -> Steps:
        self.loops.append((self._visited, set()))
        loop = yield from steps
        _, used = self.loops.pop()
        for var in used:
            self.last[var] = self._visited
        return loop
