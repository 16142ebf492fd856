"""What a block does: what it reads and writes, and in which order its iterations may be run."""

from __future__ import annotations

import enum
import itertools
import operator
from collections.abc import Iterable, Iterator
from typing import Any

from ....arith import IterMapper, Numbers, number_of
from ....base import NamedTuple, TIRError
from ....ir import (
    Call,
    IntImm,
    Let,
    PrimExpr,
    Substitution,
    Var,
    const,
    descend,
    is_const,
    walk,
)
from ....ir.walk import holds
from ...analysis import get_block_access_region
from ...stmt import (
    Allocate,
    AssertStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    statements_below,
    statements_in,
)
from .boxes import Access, mapper_of, region_while
from .reducer import match_reducer
from .state import State, free_variables


class BlockKind(enum.Enum):
    """What order the iterations of a block may have.

    COMPLETE   every iteration writes its own elements, of buffers that the block does not read:
               order does not matter, and running an iteration twice does no harm
    REDUCTION  as complete for each group of iterations that differ only in reduce axes; the group
               starts with `init` and then updates the same elements one after the other
    UPDATE     a reduction without its `init`: running it twice does harm
    INPLACE    every iteration reads and writes only its own elements
    OPAQUE     none of these
    """

    COMPLETE = "complete"
    REDUCTION = "reduction"
    UPDATE = "update"
    INPLACE = "inplace"
    OPAQUE = "opaque"


class Facts(NamedTuple):
    """kind     `why` says why a block is opaque
    reads       boxes read from outside the block, without the elements that it updates
    writes      boxes written
    guarded     whether some of what `writes` says is written only under a condition
    commutative for reductions and updates: whether the steps may be reordered
    simple      the body is stores, lets and conditions only
    pointers    memory whose address a simple body takes
    """

    kind: BlockKind
    why: str
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    guarded: bool
    commutative: bool
    simple: bool
    pointers: frozenset[Var] = frozenset()

    @property
    def elementwise(self) -> bool:
        """Whether each iteration writes its own elements once, and of what it writes reads no
        others.
        """
        return self.kind in (BlockKind.COMPLETE, BlockKind.INPLACE)

    @property
    def updates(self) -> bool:
        """Whether it goes on from what is where it writes."""
        return self.kind in (BlockKind.UPDATE, BlockKind.INPLACE)

    @property
    def idempotent(self) -> bool:
        """Whether running the whole block, or a spatial part of it, again does no harm."""
        return self.kind in (BlockKind.COMPLETE, BlockKind.REDUCTION)

    def read_data(self) -> set[Var]:
        """The memory read, without that of what it updates."""
        return set(map(_DATA, self.reads))

    def used_data(self) -> set[Var]:
        """The memory whose values it reads, or may go on from."""
        return self.read_data() if self.idempotent else self.touched_data()

    def write_data(self) -> set[Var]:
        """The memory written."""
        return set(map(_DATA, self.writes))

    def touched_data(self) -> set[Var]:
        """The memory read or written."""
        return {a.buffer.data for a in (*self.reads, *self.writes)}

    def shared_data(self, other: Facts) -> set[Var]:
        """The memory that one of the two blocks writes and the other one touches."""
        return (self.write_data() & other.touched_data()) | (self.read_data() & other.write_data())

    def write_of(self, buffer: Buffer) -> Access:
        """The first box of the buffer's memory that it writes."""
        return next(a for a in self.writes if a.buffer.data is buffer.data)


def facts_of(state: State, block: Block) -> Facts:
    """The facts about `block`, remembered for as long as what it does is the same; where it has to
    say so itself, for as long as the block is.
    """
    does = (block.iter_vars, block.init, block.alloc_buffers, block.match_buffers)

    def read() -> tuple[Facts, Block | None]:
        reader = _Reader(state, block)
        return reader.facts(), block if reader.declared else None

    facts: Facts
    facts, declared = state.remember(("facts", does), block.body, read)
    if declared is not None and declared is not block:
        facts, _ = state.remember("facts", block, read)
    return facts


_HAVE_BUFFER = (BufferLoad, BufferStore, BufferRegion)
_DATA = operator.attrgetter("buffer.data")
_SIMPLE = frozenset({SeqStmt, BufferStore, IfThenElse, LetStmt})


def _point(indices: Iterable[PrimExpr]) -> tuple[tuple[PrimExpr, Any], ...]:
    return tuple(zip(indices, itertools.repeat(1)))


def _box(region: BufferRegion) -> tuple[tuple[PrimExpr, Any], ...]:
    from_range = []
    for r in region.region:
        extent: Any = r.extent
        from_range.append((r.min, getattr(extent, "value", extent)))
    return tuple(from_range)


class _Reader:
    def __init__(self, state: State, block: Block) -> None:
        self.state = state
        self.block = block
        self.reads: dict[Access, None] = {}
        self.writes: dict[Access, None] = {}
        self.own_reads: list[Access] = []
        self.guarded = False
        self.strange = ""
        self.pointers: set[Var] = set()
        self.declared = False  # whether what the block declares counts

    def facts(self) -> Facts:
        parts = [self.block.body] if self.block.init is None else [self.block.init, self.block.body]
        loop = None if self.block.iter_vars else _loop_used(self.state, parts)
        simple = not self.block.match_buffers and all(_is_simple(p) for p in parts)
        if simple:
            for p in parts:
                self._stores(p)
            if self.pointers:
                self.reads, self.writes = {}, {}
                self._regions()
        elif not self._nested(parts):
            self._regions()
        written = {a.buffer.data for a in self.writes}
        if loop is not None:
            self.strange = f"it uses loop {loop.name} itself, not by way of an axis"
        self._two_names()
        self.own_reads = [a for a in self.reads if a.buffer.data in written]
        outside = tuple(a for a in self.reads if a.buffer.data not in written)
        kind, why, commutative = self._kind()
        if kind is BlockKind.OPAQUE:
            outside = tuple(self.reads)
        return Facts(
            kind,
            why,
            outside,
            tuple(self.writes),
            self.guarded,
            commutative,
            simple,
            frozenset(self.pointers),
        )

    # -- accesses ----------------------------------------------------------------------------------

    def _stores(self, root: Stmt) -> None:
        def below(item: tuple[Stmt, bool]) -> list[tuple[Stmt, bool]]:
            s, guarded = item
            return [(c, guarded or isinstance(s, IfThenElse)) for c in statements_below(s)]

        for s, guarded in descend((root, False), below):
            if isinstance(s, BufferStore):
                self.writes.setdefault(Access(s.buffer, _point(s.indices)))
                self.guarded = self.guarded or guarded
                for e in (s.value, *s.indices):
                    if type(e) is not Var:
                        self._loads(e)
                if s.value.dtype.lanes != s.buffer.dtype.lanes:
                    self.strange = "it stores vectors"
            elif isinstance(s, (IfThenElse, LetStmt)):
                self._loads(s.condition if isinstance(s, IfThenElse) else s.value)

    def _loads(self, e: PrimExpr) -> None:
        seen: set[int] = set()
        stack: list[Any] = [e]
        while stack:
            n = stack.pop()
            if id(n) in seen:
                continue
            seen.add(id(n))
            stack += (n.indices if isinstance(n, BufferLoad) else n._children_)[::-1]
            if isinstance(n, BufferLoad):
                self.reads.setdefault(Access(n.buffer, _point(n.indices)))
                if n.dtype.lanes != n.buffer.dtype.lanes:
                    self.strange = "it loads vectors"
            elif isinstance(n, Let):
                self.strange = "it has a let inside an expression"
            elif isinstance(n, Call):
                # The order of checks says only which of several failures is the one to be told.
                if getattr(n.op, "effect", "pure") not in ("pure", "read", "check"):
                    name = getattr(n.op, "name", n.op)
                    self.strange = f"it calls {name}, which has side effects"
                self.pointers.update(c for c in n.args if isinstance(c, Var))

    def _two_names(self) -> None:
        """Look for memory that is used by way of a view, which a block around this one declares,
        and otherwise as well: which accesses touch the same is not known.
        """
        mine = {a.buffer.data for table in (self.reads, self.writes) for a in table}
        around = self.state.blocks_around(self.block) if self.state.has(self.block) else []
        views = [m for block in around for m in block.match_buffers]
        source_of = {m.buffer.data: m.source.buffer.data for m in views}

        def memory(name: Var) -> Var:
            while name in source_of:
                name = source_of[name]
            return name

        seen_as = {memory(name) for name in mine}
        for block in around if views else ():
            inside = {n.buffer.data for n in walk(block.body) if isinstance(n, _HAVE_BUFFER)}
            for match in block.match_buffers:
                whole = memory(match.buffer.data)
                if whole in seen_as and sum(memory(name) is whole for name in inside) > 1:
                    view, source = match.buffer.name, match.source.buffer.name
                    self.strange = f"{view} is a view of {source}, which is used as well"

    def _nested(self, parts: list[Stmt]) -> bool:
        """Read a block of loops around other blocks off the facts about those. False: it is more
        than that.
        """
        if self.block.match_buffers:
            return False
        nested: list[tuple[BlockRealize, list[For]]] = []
        whole: _Nest = (SeqStmt(tuple(parts)), ())
        for s, loops in descend(whole, _in_loops):
            if isinstance(s, BlockRealize):
                nested.append((s, list(loops)))
            elif not isinstance(s, (For, SeqStmt)):
                return False
        inside = {b.data for b in self.block.alloc_buffers}
        reads: list[Access] = []
        writes: list[Access] = []
        for r, around in nested:
            if not self._child(r, around, inside, reads, writes):
                return False
        if not writes or not _one_box_each(writes):
            return False
        for table, accesses in ((self.reads, reads), (self.writes, writes)):
            for a in accesses:
                table.setdefault(a)
        return True

    def _child(
        self,
        realize: BlockRealize,
        loops: list[For],
        inside: set[Var],
        reads: list[Access],
        writes: list[Access],
    ) -> bool:
        """Add what a block inside touches; False where that is not known."""
        facts = facts_of(self.state, realize.block)
        if facts.kind is BlockKind.OPAQUE:
            return False
        certain = isinstance(realize.predicate, IntImm) and realize.predicate.value
        self.guarded = self.guarded or facts.guarded or not certain
        own = facts.writes if self._goes_on(realize, loops, facts) else ()
        for out, accesses in ((reads, (*facts.reads, *own)), (writes, facts.writes)):
            for a in accesses:
                if a.buffer.data in inside:
                    continue
                box = region_while(self.state, realize, a, loops)
                axes = tuple(axis for axis in box.axes if axis is not None)
                if len(axes) < len(box.axes):
                    return False
                out.append(Access(a.buffer, axes))
                if out is writes:
                    self.guarded = self.guarded or not box.exact
        return True

    def _goes_on(self, realize: BlockRealize, loops: list[For], facts: Facts) -> bool:
        """Whether a block inside goes on with what is in its elements already."""
        if facts.kind is not BlockKind.REDUCTION:
            return facts.updates
        mapper = mapper_of(self.state, loops)
        for axis, value in zip(realize.block.iter_vars, realize.iter_values):
            if axis.is_reduce and axis.dom is not None:
                total = mapper.sum_of(value)
                if total is None or not mapper.equal(total.base, number_of(axis.dom.min)):
                    return True
        return False

    def _regions(self) -> None:
        self.guarded, self.declared = False, True
        block = self.block
        try:
            plain = block if block.init is None else block.replace(init=None)
            reads, writes, opaque = get_block_access_region(plain)
            if block.init is not None:
                more = get_block_access_region(
                    Block(block.iter_vars, (), (), "", block.init, None, block.alloc_buffers)
                )
                reads, opaque = reads + more[0], opaque + more[2]
        except TIRError as error:
            self.strange = str(error)
            reads, writes, opaque = list(block.reads), list(block.writes), []
        # What a call does behind a pointer is what the block declares.
        declared = {r.buffer.data for r in (*block.reads, *block.writes)}
        taken = {r.buffer.data for r in opaque} | _pointers(block)
        if taken:
            reads = [r for r in reads if r.buffer.data not in taken]
            writes = [r for r in writes if r.buffer.data not in taken]
            reads += [r for r in block.reads if r.buffer.data in taken]
            writes += [r for r in block.writes if r.buffer.data in taken]
        for data in taken - declared:
            self.strange = f"the address of {data.name} is taken, which it does not declare"
            for b in _buffers_of(self.state):
                if b.data is data:
                    reads.append(BufferRegion.full_region(b))
                    writes.append(BufferRegion.full_region(b))
        for region in reads:
            self.reads.setdefault(Access(region.buffer, _box(region)))
        for region in writes:
            self.writes.setdefault(Access(region.buffer, _box(region)))
        # A region is the hull of what is touched. Only a declaration says that all of it is.
        hulls = any(r.buffer.data not in taken and not self._filled(r.buffer) for r in writes)
        self.guarded = _has_guard(block) or hulls
        if not self.strange and not writes:
            self.strange = "it writes nothing that is known"

    def _filled(self, buffer: Buffer) -> bool:
        """Whether the buffer is written by way of one view, of which every element is written."""
        views = [m.buffer for m in self.block.match_buffers if m.source.buffer.data is buffer.data]
        body: _Nest = (self.block.body, ())
        inside = descend(body, _in_loops)
        stores = [(s, list(loops)) for s, loops in inside if isinstance(s, BufferStore)]
        if len(views) != 1 or any(s.buffer.data is buffer.data for s, _ in stores):
            return False
        whole = BlockRealize(tuple(a.var for a in self.block.iter_vars), const(True), self.block)
        numbers = Numbers(self.state.analyzer)
        for s, loops in stores:
            box = region_while(self.state, whole, Access(s.buffer, _point(s.indices)), loops)
            if s.buffer is views[0] and box.fills(s.buffer.shape, numbers):
                return True
        return False

    # -- what kind of block it is ------------------------------------------------------------------

    def _kind(self) -> tuple[BlockKind, str, bool]:
        block = self.block
        if self.strange:
            return BlockKind.OPAQUE, self.strange, False
        spatial = [a for a in block.iter_vars if a.is_spatial]
        reduced = [a for a in block.iter_vars if a.is_reduce]
        if len(spatial) + len(reduced) != len(block.iter_vars):
            other = next(a for a in block.iter_vars if a.iter_type not in ("spatial", "reduce"))
            return BlockKind.OPAQUE, f"its axis {other.var.name} is {other.iter_type}", False
        places: dict[Var, Access] = {}
        for a in self.writes:
            if not _same_place(places.setdefault(a.buffer.data, a), a):
                return BlockKind.OPAQUE, f"it writes {a.buffer.name} in two places", False
        domains = {a.var: a.dom for a in spatial if a.dom is not None}
        only = {v: dom.min for v, dom in domains.items() if is_const(dom.extent, 1)}
        for a in self.own_reads:
            if not _same_place(_where(places[a.buffer.data], only), _where(a, only)):
                name = a.buffer.name
                return BlockKind.OPAQUE, f"it reads {name} where other iterations write it", False
        why = self._not_its_own(spatial, reduced)
        if why:
            return BlockKind.OPAQUE, why, False
        if block.init is None and not reduced:
            return (BlockKind.INPLACE if self.own_reads else BlockKind.COMPLETE), "", True
        if not self.own_reads and reduced:
            return (
                BlockKind.OPAQUE,
                "it overwrites the same element for each value of a reduce axis",
                False,
            )
        commutative = _is_commutative(block)
        return (BlockKind.UPDATE if block.init is None else BlockKind.REDUCTION), "", commutative

    def _not_its_own(self, spatial: list[Any], reduced: list[Any]) -> str:
        """Why two iterations of different spatial axes may write the same element."""
        iters = {a.var: (a.dom.min, a.dom.extent) for a in spatial if a.dom is not None}
        reducing = {a.var for a in reduced}
        for access in self.writes:
            free = {v for m, _ in access.box for v in free_variables(m)}
            if free & reducing:
                name = next(iter(free & reducing)).name
                return f"where it writes {access.buffer.name} depends on the reduce axis {name}"
            if iters.keys() <= {
                m for m, extent in access.box if type(extent) is int and extent == 1
            }:
                continue
            indices = []
            pseudo = dict(iters)
            for low, extent in access.box:
                if isinstance(extent, int) and extent == 1:
                    indices.append(low)
                    continue
                inside = Var("inside", low.dtype)
                pseudo[inside] = (const(0, low.dtype), extent)
                indices.append(low + inside)
            determined = IterMapper(pseudo).determined(indices)
            lost = [v for v in iters if v not in determined]
            if lost:
                return (
                    f"iterations of its spatial axis {lost[0].name} are not shown to write "
                    f"different elements of {access.buffer.name}"
                )
        return ""


def _pointers(block: Block) -> set[Var]:
    """The memory outside of the block that it uses by way of pointers."""
    used: set[Var] = set()
    own: set[Var] = set()
    for n in walk(block):
        if isinstance(n, Block):
            own.update(b.data for b in n.alloc_buffers)
            own.update(m.buffer.data for m in n.match_buffers)
        elif isinstance(n, (Allocate, LetStmt)):
            own.add(n.buffer_var if isinstance(n, Allocate) else n.var)
        if not isinstance(n, (Block, Buffer, BufferLoad, BufferStore, BufferRegion)):
            handles = (c for c in n._children_ if isinstance(c, Var))
            used.update(v for v in handles if v.dtype.is_handle)
    return used - own


def _buffers_of(state: State) -> Iterator[Buffer]:
    yield from state.fn.buffers
    for block in (state.root(), *state.blocks()):
        yield from block.alloc_buffers


def _loop_used(state: State, parts: list[Stmt]) -> Var | None:
    """A loop outside that the statements mention."""
    inside: set[Var] = set()
    used: list[Var] = []
    for part in parts:
        for n in walk(part):
            if isinstance(n, Var) and state.has_loop(n):
                used.append(n)
            elif isinstance(n, For):
                inside.add(n.loop_var)
    return next((v for v in used if v not in inside), None)


def _one_box_each(accesses: list[Access]) -> bool:
    """Whether all accesses of one buffer are of one box."""
    boxes: dict[Any, Access] = {}
    return all(_same_box(boxes.setdefault(a.buffer, a).box, a.box) for a in accesses)


def _same_place(a: Access, b: Access) -> bool:
    """Whether two accesses of one memory touch the same, maybe by way of two equal buffers."""
    return not a.why_unlike(b) and _same_box(a.box, b.box)


def _where(access: Access, only: dict[Var, PrimExpr]) -> Access:
    """An access with axes of a single value, `only`, written as that."""
    moved = Substitution(only)
    return Access(access.buffer, tuple((moved(m), e) for m, e in access.box))


def _same_box(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    for (x, m), (y, n) in zip(a, b):
        if x is not y or not (m is n or (isinstance(m, int) and m == n)):
            return False
    return len(a) == len(b)


_Nest = tuple[Stmt, tuple[For, ...]]


def _in_loops(item: _Nest) -> list[_Nest]:
    """The statements directly in a loop or a sequence, each with the loops around it."""
    s, loops = item
    if isinstance(s, For):
        return [(s.body, (*loops, s))]
    return [(c, loops) for c in s.seq] if isinstance(s, SeqStmt) else []


def _is_simple(root: Stmt) -> bool:
    return _SIMPLE.issuperset(map(type, statements_in(root)))


def _has_guard(block: Block) -> bool:
    return any(
        isinstance(s, (IfThenElse, AssertStmt))
        or (isinstance(s, BlockRealize) and not getattr(s.predicate, "value", 0))
        for s in statements_in(block.body)
    )


def _is_commutative(block: Block) -> bool:
    reduces = False
    for b in (block, *statements_in(block.body)):
        if not isinstance(b, Block) or holds(b.body, Block):
            continue
        if any(a.is_reduce for a in b.iter_vars):
            reduces = True
            reducer = match_reducer(b)
            if reducer is None or not reducer.commutative:
                return False
    return reduces
