"""One loop function while it is scheduled: where its loops and blocks are, and how to change them.

A `State` is immutable. A primitive takes one and returns another that shares what it left alone;
if it refuses, nothing has happened. Loops are known by their variables, which no two loops share.
Blocks are known by identity; `moved` says what became of those that were rebuilt.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NoReturn

from ....arith import Analyzer
from ....base import ScheduleError, submodules
from ....ir import (
    Add,
    IntImm,
    Node,
    PrimExpr,
    Substitution,
    Var,
    const,
    descend,
    enter_leave,
    nodes_of,
    walk,
)
from ....ir.walk import transform
from ...copies import fresh_copy
from ...stmt import (
    Block,
    BlockRealize,
    BufferLoad,
    For,
    IterVar,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
    statements_below,
    statements_in,
)
from ...transform.rewriter import bind_sizes

__getattr__ = submodules(__name__)


def refuse(reason: str, *sites: Any) -> NoReturn:
    """Stop a primitive. `sites` are the loops and blocks to mark in the message's picture."""
    error = ScheduleError(reason)
    error.sites = sites
    raise error


class ScheduleDebugMask(IntEnum):
    """What `Schedule(debug_mask=...)` may be as a number; any but 0 verifies each step."""

    VERIFY_SREF_TREE = 1
    VERIFY_CACHED_FLAGS = 2


class Path:
    """A statement and what it stands in. `scope` is the path of the nearest block around it."""

    __slots__ = ("depth", "parent", "scope", "stmt")

    def __init__(self, stmt: Stmt, parent: Path | None) -> None:
        self.stmt, self.parent = stmt, parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.scope: Path | None = None
        if parent is not None:
            self.scope = parent if type(parent.stmt) is Block else parent.scope


class State:
    """A loop function, and where its statements are."""

    __slots__ = ("_above", "_facts", "_loops", "_paths", "fn", "moved")

    def __init__(self, fn: PrimFunc, before: State | None = None) -> None:
        self.fn = fn
        # id(block that the primitive met) -> (that block, what became of it)
        self.moved: dict[int, tuple[Block, Block]] = {}
        # id(statement) -> (it, the statement around it)
        self._above: dict[int, tuple[Stmt, Stmt]] = {} if before is None else before._above
        self._loops: dict[Var, For] = {} if before is None else before._loops
        self._paths: dict[int, Path] = {}
        # What analyses found about blocks, by id; the block is kept alive beside it.
        self._facts: dict[Any, Any] = {} if before is None else before._facts
        if before is None:
            self._enter(fn.body)

    def fresh(self) -> State:
        """The same state, with nothing moved yet."""
        if not self.moved:
            return self
        state = State(self.fn, self)
        state._paths = self._paths  # of the same function
        return state

    @property
    def analyzer(self) -> Analyzer:
        """What is known about the sizes of the function: for all its states, so that nothing may be
        added.
        """
        known: Analyzer = self.remember("analyzer", self.fn.buffer_map, self.analyzer_of)
        return known

    def analyzer_of(self, *blocks: Block) -> Analyzer:
        """A new analyzer, which knows about the sizes, and about the axes of blocks."""
        analyzer = Analyzer(wrap=False)
        bind_sizes(analyzer, self.fn)
        for a in (a for block in blocks for a in block.iter_vars if a.dom is not None):
            analyzer.bind(a.var, a.dom, allow_override=True)
        return analyzer

    def remember(self, key: Any, owner: object, make: Callable[[], Any]) -> Any:
        """What `make` gives, computed once for the immutable `owner`."""
        full = (key, id(owner))
        entry = self._facts.get(full)
        if entry is None:
            if len(self._facts) > 10_000:
                self._facts.clear()
            entry = self._facts[full] = (owner, make())
        return entry[1]

    # -- places ------------------------------------------------------------------------------------

    def get_sref(self, stmt: Stmt) -> Path:
        """Where a block or loop is. Raises ScheduleError if it is not in the function."""
        return self.path(stmt)

    def _enter(self, root: Stmt, known: Collection[int] = ()) -> list[Stmt]:
        """Note what stands in `root`, but not what does in the statements `known`, by their id;
        give those that were met.
        """
        left = [root]
        for s in left:  # which grows meanwhile
            if id(s) not in known:
                left += s.statements
        self._note([s for s in left if id(s) not in known])
        return [s for s in left if id(s) in known]

    def _leave(self, root: Stmt, kept: Sequence[Stmt]) -> None:
        """Forget what stood in `root` and stands nowhere else; what is in those `kept` stays."""
        stay = set(map(id, kept))
        left = [root]
        for s in left:  # which grows meanwhile
            for c in () if id(s) in stay else s.statements:
                if self._above[id(c)][1] is s:
                    del self._above[id(c)]
                    left.append(c)
            if type(s) is For and self._loops.get(s.loop_var) is s and not self.has(s):
                del self._loops[s.loop_var]

    def _note(self, statements: Iterable[Stmt]) -> None:
        """Note what stands directly in these."""
        for s in statements:
            if type(s) is For:
                self._loops[s.loop_var] = s
            for c in s.statements:
                self._above[id(c)] = (c, s)

    def path(self, stmt: Stmt) -> Path:
        """Where `stmt` is. Raises ScheduleError if it is not in the function."""
        path: Path | None = None
        for s in reversed(self.around(stmt)):
            path = self._paths.get(id(s)) or self._paths.setdefault(id(s), Path(s, path))
        assert path is not None
        return path

    def around(self, stmt: Stmt) -> list[Stmt]:
        """`stmt` and the statements around it, from the inside out. Raises as `path` does."""
        around, entry = [stmt], self._above.get(id(stmt))
        if entry is None:
            self.check(stmt)
        while entry is not None:
            around.append(entry[1])
            entry = self._above.get(id(entry[1]))
        return around

    def check(self, stmt: Stmt) -> None:
        """Raise ScheduleError if `stmt` is not in the function."""
        if id(stmt) not in self._above and stmt is not self.fn.body:
            what = f"block {stmt.name_hint}" if isinstance(stmt, Block) else type(stmt).__name__
            refuse(f"{what} is no longer in the function")

    def has(self, stmt: Stmt) -> bool:
        """Whether `stmt` is in the function."""
        return id(stmt) in self._above or stmt is self.fn.body

    def loop(self, var: Var) -> For:
        """The loop over `var`."""
        loop = self._loops.get(var)
        if loop is None:
            refuse(f"loop {var.name} is no longer in the function: a primitive replaced it")
        return loop

    def has_loop(self, var: Var) -> bool:
        """Whether a loop over `var` is in the function."""
        return var in self._loops

    def blocks(self, root: Stmt | None = None) -> list[Block]:
        """The blocks below `root` (the whole function by default; itself not), in program order."""
        top = self.fn.body if root is None else root

        def inside() -> list[Block]:
            return [s for s in statements_in(top) if type(s) is Block and s is not root]

        blocks: list[Block] = self.remember(("blocks", root is None), top, inside)
        return blocks

    def child_realizes(self, root: Stmt) -> list[BlockRealize]:
        """The blocks directly in `root`: those with no other block between."""

        def direct() -> list[BlockRealize]:
            return [s for s in statements_in(root, (BlockRealize,)) if type(s) is BlockRealize]

        realizes: list[BlockRealize] = self.remember("child_realizes", root, direct)
        return realizes

    def realize(self, block: Block) -> BlockRealize:
        """The statement that runs `block`."""
        above = self.parent(block)
        if type(above) is not BlockRealize:
            refuse(f"block {block.name_hint} is not run by a realize", block)
        return above

    def scope(self, stmt: Stmt) -> Block:
        """The nearest block around `stmt`."""
        around = self.blocks_around(stmt)
        if not around:
            refuse("the root block has no block around it", stmt)
        return around[0]

    def blocks_around(self, stmt: Stmt) -> list[Block]:
        """The blocks around `stmt`, from the inside out."""
        return [s for s in self.around(stmt)[1:] if isinstance(s, Block)]

    def root(self) -> Block:
        """The outermost block."""
        body = self.fn.body
        assert isinstance(body, BlockRealize)
        return body.block

    def loops_above(self, stmt: Stmt, stop: Stmt | None = None) -> list[For]:
        """The loops around `stmt` within its block (or within `stop`), from the outside in."""
        out: list[For] = []
        entry = self._above.get(id(stmt))
        if entry is None:
            self.check(stmt)
        while entry is not None and type(s := entry[1]) is not Block and s is not stop:
            if type(s) is For:
                out.append(s)
            entry = self._above.get(id(s))
        return out[::-1]

    def parent(self, stmt: Stmt) -> Stmt | None:
        """The statement around `stmt`; None around the outermost. Raises as `path` does."""
        entry = self._above.get(id(stmt))
        if entry is not None:
            return entry[1]
        self.check(stmt)
        return None

    # -- changes -----------------------------------------------------------------------------------

    def replace(
        self, old: Stmt, new: Stmt | None, moved: Iterable[tuple[Block, Block]] = ()
    ) -> State:
        """The function with `new` in place of `old` (None: without it).

        moved  the blocks inside that were rebuilt, as (before, after)
        """
        above = self.parent(old)
        if new is old:
            return self
        state = State(self.fn, self)
        state._above, state._loops = dict(self._above), dict(self._loops)
        known = {id(old), *map(id, statements_below(old))}
        state._above.pop(id(old), None)
        kept = () if new is None else state._enter(new, known)
        state._leave(old, kept)
        pairs = list(moved)
        if type(old) is Block and type(new) is Block:
            pairs.append((old, new))
        child, replaced = old, new
        while above is not None:
            s, (_, above) = above, state._above.pop(id(above), (above, None))
            if replaced is None and type(s) is not SeqStmt:
                if type(s) is Block:
                    refuse(f"block {s.name_hint} would be left without a body", s)
                if type(s) is For:
                    del state._loops[s.loop_var]
                child = s
                continue
            rebuilt = _with_child(s, child, replaced)
            if type(s) in (For, BlockRealize) and replaced is not None:
                state._above[id(replaced)] = (replaced, rebuilt)
                if type(rebuilt) is For:
                    state._loops[rebuilt.loop_var] = rebuilt
            else:
                state._note((rebuilt,))
            if type(s) is Block:
                assert type(rebuilt) is Block
                pairs.append((s, rebuilt))
            child, replaced = s, rebuilt
        assert replaced is not None
        state.fn, state.moved = self.fn.replace(body=replaced), self._moves(pairs)
        return state

    def _moves(self, pairs: Iterable[tuple[Block, Block]]) -> dict[int, tuple[Block, Block]]:
        step = {id(a): b for a, b in pairs}
        result = {k: (first, step.get(id(last), last)) for k, (first, last) in self.moved.items()}
        for a, b in pairs:
            # Also of those that were themselves made in between: a primitive may hold on to them.
            result.setdefault(id(a), (a, b))
        return result

    def now(self, block: Block) -> Block:
        """What became of a block since the primitive began."""
        pair = self.moved.get(id(block))
        return block if pair is None else pair[1]

    def with_fn(self, fn: PrimFunc) -> State:
        """The same places in a function of which only what is around the body changed."""
        state = State(fn, self)
        state.moved = self.moved
        return state

    def exchange(self, old: Stmt, new: Stmt) -> State:
        """`replace` by a statement of the same structure: its blocks are those of the old one."""
        return self.replace(old, new, paired_blocks(old, new))

    def rebuild(self, root: Stmt, change: Callable[[Stmt], Stmt | None]) -> State:
        """`root` rewritten from the inside out: `change` sees each statement after what is in it,
        and returns its replacement, of the same structure, or None.
        """
        return self.exchange(root, transform(root, change, _other_than_statements))


def _other_than_statements(n: Node) -> Node | None:
    return None if isinstance(n, Stmt) else n


def _with_child(s: Stmt, child: Stmt, new: Stmt | None) -> Stmt:
    if type(s) is SeqStmt:
        return seq(*[new if c is child else c for c in s.seq])
    assert new is not None
    if type(s) is For:
        own = s.thread_binding, s.annotations, s.span
        return For(s.loop_var, s.min, s.extent, s.kind, new, *own)
    if type(s) is BlockRealize:
        assert type(new) is Block
        return BlockRealize(s.iter_values, s.predicate, new, s.span)
    if type(s) is Block:
        return s.replace(body=new) if s.body is child else s.replace(init=new)
    return _with_all(s, {id(child): new})


def _with_all(s: Stmt, new: Mapping[int, Stmt]) -> Stmt:
    return s._map_children_(lambda c: new.get(id(c), c))


def substitute_loops(
    stmt: Stmt, values: Mapping[Var, PrimExpr]
) -> tuple[Stmt, list[tuple[Block, Block]]]:
    """`stmt` with loop variables replaced, and the blocks that became others.

    A block with axes does not see loop variables, its realize and the domains of its axes do; so
    its body is not visited.
    """

    moved = Substitution(values)

    def change(s: Stmt) -> Stmt | None:
        if type(s) is BlockRealize:
            return s.replace(
                iter_values=tuple(map(moved, s.iter_values)), predicate=moved(s.predicate)
            )
        if type(s) is For:
            return s.replace(min=moved(s.min), extent=moved(s.extent))
        if type(s) in (SeqStmt, Block):
            return None
        return s._map_children_(lambda c: c if isinstance(c, Stmt) else moved(c))

    def axis(a: IterVar) -> IterVar:
        if a.dom is None or type(a.dom.min) is type(a.dom.extent) is IntImm:
            return a
        return a.replace(dom=moved(a.dom))

    pairs: list[tuple[Block, Block]] = []

    def block(b: Block) -> Stmt:
        if not b.iter_vars:
            new = moved(b)
            if new is not b:
                pairs.extend(paired_blocks(b, new))
            return new
        axes = tuple(map(axis, b.iter_vars))
        if all(a is c for a, c in zip(axes, b.iter_vars)):
            return b
        new = b.replace(iter_vars=axes)
        pairs.append((b, new))
        return new

    return rebuilt_outside_blocks(stmt, change, block), pairs


def rebuilt_outside_blocks(
    root: Stmt,
    change: Callable[[Stmt], Stmt | None],
    block: Callable[[Block], Stmt] = lambda b: b,
) -> Stmt:
    """`root` rewritten from the inside out, as by `State.rebuild`; of blocks only what `block` says
    becomes of them: they are not entered.
    """
    done: dict[int, Stmt] = {}
    for s in reversed(statements_in(root, (Block,))):
        if type(s) is Block:
            done[id(s)] = block(s)
        else:
            new = s
            for c in statements_below(s):
                if done[id(c)] is not c:
                    one = type(s) in (For, BlockRealize)
                    new = _with_child(s, c, done[id(c)]) if one else _with_all(s, done)
                    break
            changed = change(new)
            done[id(s)] = new if changed is None else changed
    return done[id(root)]


def paired_blocks(before: Stmt, after: Stmt) -> list[tuple[Block, Block]]:
    """The blocks of two statements of the same structure, side by side."""

    def below(pair: tuple[Stmt, Stmt]) -> list[tuple[Stmt, Stmt]]:
        a, b = pair
        return [] if a is b else list(zip(statements_below(a), statements_below(b)))

    return [
        (a, b)
        for a, b in descend((before, after), below)
        if a is not b and isinstance(a, Block) and isinstance(b, Block)
    ]


# -- the beginning ---------------------------------------------------------------------------------


def start(fn: PrimFunc) -> State:
    """The state of a function: with a root block, every loop variable of its own, every block one
    object.
    """
    return State(_each_once(_with_root(fn)))


def _with_root(fn: PrimFunc) -> PrimFunc:
    body = fn.body
    if isinstance(body, BlockRealize) and not body.block.iter_vars:
        return fn
    if isinstance(body, Block):
        return fn.replace(body=BlockRealize((), const(True), body))
    root = Block((), (), (), "root", body)
    return fn.replace(body=BlockRealize((), const(True), root))


def _each_once(fn: PrimFunc) -> PrimFunc:
    """Copies of loops and blocks that stand in several places, with variables of their own."""
    seen: set[int] = set()

    # A shared statement is treated once for each place.
    results: list[Stmt] = []
    for s, entering in enter_leave(fn.body, statements_below):
        if entering:
            continue
        below = statements_below(s)
        new = s
        if below:
            parts = results[len(results) - len(below) :]
            del results[len(results) - len(below) :]
            if any(a is not b for a, b in zip(parts, below)):
                pairs = zip(map(id, below), parts)
                new = seq(*parts) if type(s) is SeqStmt else _with_all(s, dict(pairs))
        if type(new) in (For, Block):
            key = id(new.loop_var if type(new) is For else new)
            new = fresh_copy(new) if key in seen else new
            seen.add(key)
        results.append(new)
    return fn if results[0] is fn.body else fn.replace(body=results[0])


# Of the same few expressions primitives ask again and again.
@functools.lru_cache(1024)
def free_variables(e: Any) -> frozenset[Var]:
    """The variables in an expression."""
    return frozenset(nodes_of(e, Var))


@functools.lru_cache(1024)
def loads_of(e: Node) -> tuple[BufferLoad, ...]:
    """The loads in an expression."""
    return tuple([n for n in walk(e) if isinstance(n, BufferLoad)])


def addends(e: PrimExpr) -> list[PrimExpr]:
    """What a sum adds up; differences are not looked into."""
    inside = descend(e, lambda n: (n.a, n.b) if isinstance(n, Add) else ())
    return [n for n in inside if not isinstance(n, Add)]
