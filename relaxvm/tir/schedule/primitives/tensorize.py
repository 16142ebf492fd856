"""`blockize`: a part of a loop nest as a block of its own; `tensorize`: such a block replaced by an
intrinsic, if it does what the specification of that says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arith import IterMapper, IterSumExpr, as_number, conjuncts, number_of
from ....base import DataType
from ....ir import (
    Add,
    ArithmeticExpr,
    IntImm,
    Mul,
    PrimExpr,
    Range,
    Var,
    binary,
    cast,
    children,
    const,
    descend,
    substitute,
    walk,
)
from ....ir.walk import transform
from ...copies import fresh_copy
from ...op import all as every
from ...stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    MatchBufferRegion,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
)
from ..model.bindings import covers_domain, loop_uses
from ..model.boxes import mapper_of
from ..model.dependence import check_no_bare_statements
from ..model.facts import BlockKind, facts_of
from ..model.places import common_place, top_child
from ..model.primitive import BLOCK, BLOCK_OR_LOOP, LOOP_OR_BLOCKS, primitive
from ..model.regions import refresh_around, with_regions
from ..model.state import State, free_variables, loads_of, refuse, substitute_loops
from .checks import block_under
from .intrin import TensorIntrin
from .nests import new_axis
from .reductions import init_nest


def _divide(
    mapper: IterMapper, value: PrimExpr, inner: set[Var], name: str, sites: Sequence[Any]
) -> tuple[IterSumExpr, IterSumExpr, Any]:
    """A value as ``outer * step + inner``: (outer, inner, step)."""
    total = mapper.sum_of(value)
    digits = mapper.digits(total) if total is not None else None
    if total is None or digits is None:
        refuse(f"axis {name} is bound to {value}, which is no sum of digits of loops", *sites)
    low: list[Any] = []
    high: list[Any] = []
    step: Any = 1
    for d in digits:
        moved_by = mapper.mark_variables(d.source)
        if moved_by <= inner:
            if high:
                refuse(
                    f"axis {name} is moved by inner loops above outer ones: {value}; reorder first",
                    *sites,
                )
            if not mapper.equal(d.scale, step):
                refuse(f"axis {name} leaves gaps over the inner loops: {value}", *sites)
            low.append(d)
            step = mapper.mul(step, d.extent)
        elif moved_by & inner:
            refuse(
                f"axis {name} is bound to {value}, where one digit is moved by inner and outer "
                "loops; split the fused loop first",
                *sites,
            )
        else:
            q = mapper.multiple(d.scale, step)
            if q is None:
                refuse(f"axis {name} does not divide into inner and outer loops: {value}", *sites)
            high.append(d._replace(scale=q))
    return IterSumExpr(tuple(high), 0), IterSumExpr(tuple(low), 0), step


def _split_predicate(
    realize: BlockRealize, inner: set[Var], outer: set[Var]
) -> tuple[PrimExpr, PrimExpr]:
    parts: list[list[PrimExpr]] = [[], []]
    if not isinstance(realize.predicate, IntImm):
        for fact in conjuncts(realize.predicate):
            free = free_variables(fact)
            if free & inner and free & outer:
                refuse(
                    f"the predicate {fact} of block {realize.block.name_hint} is over inner and "
                    "outer loops; use factors that divide, or pad_einsum",
                    realize.block,
                )
            parts[0 if free & inner else 1].append(fact)
    return every(*parts[0]), every(*parts[1])


@primitive(target=LOOP_OR_BLOCKS, gives=BLOCK)
def blockize(
    state: State, target: Var | list[Block], preserve_unit_iters: bool = True
) -> tuple[State, Block]:
    """Make a loop and all in it a block of its own, and return that block.

    target               the loop; or a list of blocks that stand one after the other, which become
                         one block, with an axis for each loop around them that they use
    preserve_unit_iters  False: axes that the outer loops do not move are left out of the new block

    Raises ScheduleError unless there is one block in the loop, each of whose axes is made of outer
    loops times a step plus inner loops; or if loops around several blocks move their reduce axes.

        for i_0, i_1 in T.grid(8, 4):     for i_0 in range(8):
            with T.block("B"):      →         with T.block("B_o"):
                vi = i_0 * 4 + i_1                vi_o = T.axis.spatial(8, i_0)
                ...                               for i_1 in range(4):
                                                      with T.block("B"):
                                                          vi = vi_o * 4 + i_1
    """
    if isinstance(target, list):
        return _joined(state, target, preserve_unit_iters)
    loop = state.loop(target)
    realize, inner_loops = block_under(loop, "it cannot be made a block")
    outer_block, new, pairs = _blockized(state, realize, inner_loops, preserve_unit_iters)
    state = state.replace(loop, new, pairs)
    state = refresh_around(state, outer_block)
    return state, state.now(outer_block)


def _joined(
    state: State, blocks: Sequence[Block], preserve_unit_iters: bool
) -> tuple[State, Block]:
    """`blocks`, with the loops that hold nothing else, as one block."""
    if not blocks:
        refuse("blockize wants at least one block")
    realizes = [state.realize(b) for b in blocks]
    scope = state.scope(realizes[0])
    for r in realizes:
        if state.scope(r) is not scope:
            refuse(f"block {r.block.name_hint} is in another block than the others", r.block)
    place = common_place(state, realizes, scope)
    parts = [top_child(state, r, place) for r in realizes]
    parent = place.body if isinstance(place, Block) else place
    children = list(parent.seq) if isinstance(parent, SeqStmt) else [parent]
    if not isinstance(parent, SeqStmt):
        parts = [parent]
    rank = [k for k, c in enumerate(children) if any(c is p for p in parts)]
    held = [r for k in rank for r in state.child_realizes(children[k])]
    if rank != list(range(rank[0], rank[-1] + 1)) or len(held) != len(realizes):
        refuse("the blocks do not stand one after the other, alone in their loops", *blocks)
    body = seq(*(children[k] for k in rank))
    check_no_bare_statements(state, body)
    axes: list[IterVar] = []
    values: list[PrimExpr] = []
    names: dict[Var, PrimExpr] = {}
    around = state.loops_above(children[rank[0]])
    for f in (*around, *(n for n in walk(body) if isinstance(n, For))):
        if any(loads_of(e) for e in (f.min, f.extent)):
            refuse(f"the range of loop {f.loop_var.name} is read from memory", f)
    for f in around:
        uses = {u for r in realizes for u in loop_uses(r, f.loop_var)}
        if uses - {"spatial"}:
            refuse(
                f"loop {f.loop_var.name} moves reduce axes; decompose_reduction first",
                f,
                *blocks,
            )
        unit = number_of(f.extent) == 1
        if not any(n is f.loop_var for n in walk(body)):
            continue
        if unit and not preserve_unit_iters:
            names[f.loop_var] = f.min
            continue
        axes.append(new_axis(f"v{f.loop_var.name}", f.extent))
        axis = axes[-1].var
        values.append(f.loop_var - f.min)
        names[f.loop_var] = axis + f.min
    inner, pairs = substitute_loops(body, names)
    name = "_".join(["outer", *(b.name_hint for b in blocks), ""])
    joined = with_regions(state, Block(tuple(axes), (), (), name, inner))
    realize = BlockRealize(tuple(values), const(True), joined)
    kept = [*children[: rank[0]], realize, *children[rank[-1] + 1 :]]
    state = state.replace(parent, seq(*kept), pairs)
    state = refresh_around(state, joined)
    return state, state.now(joined)


def _blockized(
    state: State,
    realize: BlockRealize,
    inner_loops: list[For],
    preserve_unit_iters: bool,
) -> tuple[Block, BlockRealize, list[tuple[Block, Block]]]:
    block = realize.block
    facts = facts_of(state, block)
    if facts.kind is BlockKind.OPAQUE and block.init is not None:
        refuse(f"block {block.name_hint} cannot be divided: {facts.why}", block)
    all_loops = state.loops_above(realize)
    why = covers_domain(state, realize, all_loops)
    # Of a loop that was taken apart, each part is divided as if there were no other.
    some = bool(why) and isinstance(realize.predicate, IntImm) and bool(realize.predicate.value)
    if some:
        why = covers_domain(state, realize, all_loops, part=True)
    if why:
        refuse(f"block {block.name_hint} cannot be divided: {why}", block)
    mapper = mapper_of(state, all_loops)
    if block.init is not None:
        moved = mapper.determined(realize.iter_values)
        for f in inner_loops:
            if f.loop_var not in moved and number_of(f.extent) != 1:
                refuse(
                    f"loop {f.loop_var.name} runs the same reduction of block {block.name_hint} "
                    "more than once, so that init must stay in it",
                    f,
                    block,
                )
    inner = {f.loop_var for f in inner_loops}
    outer = {f.loop_var for f in all_loops} - inner
    for f in inner_loops:
        if any(n in outer for e in (f.min, f.extent) for n in walk(e)):
            refuse(f"the range of loop {f.loop_var.name} follows the loops around it", f)
    inner_predicate, outer_predicate = _split_predicate(realize, inner, outer)
    axes: list[IterVar] = []
    values: list[PrimExpr] = []
    bound: list[PrimExpr] = []
    for a, v in zip(block.iter_vars, realize.iter_values):
        assert a.dom is not None
        dtype = a.var.dtype
        high, low, step = _divide(mapper, v, inner, a.var.name, (block,))
        extent = mapper.dense_extent(high)
        if extent is None:
            refuse(
                f"the outer loops leave gaps in axis {a.var.name} of block {block.name_hint}", block
            )
        size = number_of(a.dom.extent)
        runs = not isinstance(extent, int) or mapper.at_most(1, size)
        if not low.args and runs and not some:
            # Inner loops do not move it: where the outer ones go too far, their predicate tells.
            # (Not so where they run although the axis has no values.)
            extent = size
        elif not some and not mapper.equal(mapper.mul(extent, step), size):
            refuse(
                f"axis {a.var.name} of block {block.name_hint} has the extent {a.dom.extent}, the "
                f"loops {extent} times {step}: the tail must be padded or peeled first",
                block,
            )
        total = mapper.sum_of(v)
        assert total is not None
        whole = mapper.to_expr(low._replace(base=total.base), dtype)
        if high.args or preserve_unit_iters:
            axes.append(new_axis(f"{a.var.name}_o", extent, dtype, a.iter_type))
            var = axes[-1].var
            values.append(mapper.to_expr(high, dtype))
            if not (isinstance(extent, int) and extent == 1):
                whole = binary(Add, binary(Mul, var, as_number(step, dtype)), whole)
            elif high.args:
                whole = binary(Add, var, whole)
        bound.append(whole)
    inside = BlockRealize(tuple(bound), inner_predicate, block)
    update, init = block, None
    if block.init is not None:
        update = block.replace(init=None, name_hint=f"{block.name_hint}_update")
        update = with_regions(state, update)
        init, _ = init_nest(state, inside, inner_loops)
    body: Stmt = inside.replace(block=update)
    for f in reversed(inner_loops):
        body = f.replace(body=body)
    new_block = Block(tuple(axes), (), (), f"{block.name_hint}_o", body, init)
    new_block = with_regions(state, new_block)
    pairs = [] if update is block else [(block, update)]
    return new_block, BlockRealize(tuple(values), outer_predicate, new_block), pairs


# -- tensorize -------------------------------------------------------------------------------------


@primitive(block_or_loop=BLOCK_OR_LOOP)
def tensorize(
    state: State, block_or_loop: Any, tensor_intrin: str, preserve_unit_iters: bool = True
) -> tuple[State, None]:
    """Replace a block (or a loop, made a block first) by the intrinsic registered as
    `tensor_intrin`.

    Raises ScheduleError unless the block does what the intrinsic's `desc` says, over parts of
    buffers of the shapes that it says.

        with T.block("C_o"):              with T.block("C_o"):
            for i in range(4):      →         A0 = T.match_buffer(A[vi_o * 4:vi_o * 4 + 4], (4,))
                with T.block("C"):            T.evaluate(T.call_extern(..., A0.data, ...))
                    ...
    """
    intrin = TensorIntrin.get(tensor_intrin)
    assert intrin is not None
    if isinstance(block_or_loop, Var):
        state, block = blockize(state, block_or_loop, preserve_unit_iters)
    else:
        block = block_or_loop
    match = Match(state, block, intrin.desc, tensor_intrin)
    regions = match.regions()
    impl = fresh_copy_function(intrin)
    views: list[MatchBufferRegion] = []
    reads: list[BufferRegion] = []
    writes: list[BufferRegion] = []
    written = {a.buffer.data for a in facts_of(state, block).writes}
    for desc_buffer, view in zip(intrin.desc.buffers, impl[1]):
        region = regions.get(desc_buffer)
        if region is None:
            refuse(f"{tensor_intrin}: its buffer {desc_buffer.name} is not used by its desc", block)
        views.append(MatchBufferRegion(view, region))
        (writes if region.buffer.data in written else reads).append(region)
    root = impl[0]
    own_reads = [w for w in writes if match.updates]
    new_block = block.replace(
        body=root.body,
        reads=(*own_reads, *reads),
        writes=tuple(writes),
        match_buffers=(*block.match_buffers, *views),
        alloc_buffers=(*block.alloc_buffers, *root.alloc_buffers),
        annotations=block.annotations.with_(root.annotations),
    )
    state = state.replace(block, new_block)
    return refresh_around(state, new_block), None


def fresh_copy_function(intrin: TensorIntrin) -> tuple[Block, list[Buffer]]:
    """The body of the implementation as a block over new variables, and its buffers."""
    impl = intrin.impl
    body = impl.body
    root = body.block if isinstance(body, BlockRealize) else Block((), (), (), "root", body)
    if root.iter_vars:
        root = Block((), (), (), "root", body)
    # The buffers become views: declared by match_buffer, so that one copy renews all.
    views = tuple(MatchBufferRegion(b, BufferRegion.full_region(b)) for b in impl.buffers)
    copy = fresh_copy(root.replace(match_buffers=(*views, *root.match_buffers)))
    buffers = [m.buffer for m in copy.match_buffers[: len(views)]]
    return copy.replace(match_buffers=copy.match_buffers[len(views) :]), buffers


# -- what a block computes -------------------------------------------------------------------------


class Match:
    """Compares a block with the desc of an intrinsic, in step. Refuses at the first difference.

    Loops correspond in order (loops of one iteration may be missing on either side), and so do the
    stores. An index may differ from the specification's by what does not change inside the block.
    """

    def __init__(self, state: State, block: Block, desc: PrimFunc, name: str) -> None:
        self.state, self.block, self.desc, self.name = state, block, desc, name
        self.bases: dict[Buffer, tuple[Buffer, tuple[PrimExpr, ...]]] = {}
        self.updates = False
        self.mine: set[Var] = set()
        self.simplify = state.analyzer_of().simplify
        mine, my_types = self._flat(block.body, "the block")
        body = desc.body.block.body if isinstance(desc.body, BlockRealize) else desc.body
        theirs, their_types = self._flat(body, "the desc")
        self._loops(mine[0], theirs[0])
        for a, b in zip(mine[0], theirs[0]):
            left, right = my_types.get(a.loop_var, set()), their_types.get(b.loop_var, set())
            if left != right:
                kinds = [" and ".join(sorted(k)) or "no" for k in (left, right)]
                self._differ(f"loop {a.loop_var.name} moving {kinds[0]} axes", f"{kinds[1]} axes")
        self._statements(mine[1], theirs[1])

    def _differ(self, mine: Any, theirs: Any) -> Any:
        refuse(
            f"block {self.block.name_hint} is not what {self.name} computes: the block has {mine}, "
            f"the intrinsic {theirs}",
            self.block,
        )

    def _flat(self, root: Stmt, what: str) -> tuple[tuple[list[For], Stmt], dict[Var, set[str]]]:
        """The loops and the statement under them, with block axes replaced by what they are bound
        to; and the kinds of axes that each loop moves.
        """
        loops: list[For] = []
        types: dict[Var, set[str]] = {}
        s = root
        while True:
            if isinstance(s, For):
                if number_of(s.extent) == 1:
                    s = substitute(s.body, {s.loop_var: s.min})
                else:
                    loops.append(s)
                    s = s.body
            elif isinstance(s, BlockRealize):
                certain = isinstance(s.predicate, IntImm) and s.predicate.value
                if not certain or s.block.match_buffers or s.block.alloc_buffers:
                    refuse(f"{what} of {self.name} runs under a condition or has views", self.block)
                if s.block.init is not None:
                    refuse(
                        f"{what} of {self.name} has an init; decompose_reduction first", self.block
                    )
                for a, v in zip(s.block.iter_vars, s.iter_values):
                    for moved_by in free_variables(v):
                        types.setdefault(moved_by, set()).add(a.iter_type)
                axes = (a.var for a in s.block.iter_vars)
                s = substitute(s.block.body, dict(zip(axes, s.iter_values)))
            else:
                return (loops, s), types

    def _loops(self, mine: list[For], theirs: list[For]) -> None:
        left, right = ([number_of(f.extent) for f in side] for side in (mine, theirs))
        if left != right:
            self._differ(f"loops of {_list(left)}", _list(right))
        self.variables: dict[Any, PrimExpr] = {}
        # The same in the dtypes of my loops: indices of other dtypes than the desc's are compared
        # without casts around them, since its loops are too short to wrap.
        self.positions: dict[Any, PrimExpr] = {}
        for a, b in zip(mine, theirs):
            mine_as, theirs_as = a.loop_var.dtype, b.loop_var.dtype
            shift = b.min - cast(theirs_as, a.min)
            self.variables[b.loop_var] = cast(theirs_as, a.loop_var) + shift
            offset = self.simplify(cast(mine_as, b.min) - a.min)
            self.positions[b.loop_var] = a.loop_var + offset
            self.mine.add(a.loop_var)

    # -- in step -----------------------------------------------------------------------------------

    def _statements(self, mine: Stmt, theirs: Stmt) -> None:
        left = mine.seq if isinstance(mine, SeqStmt) else (mine,)
        right = theirs.seq if isinstance(theirs, SeqStmt) else (theirs,)
        if len(left) != len(right):
            self._differ(f"{len(left)} statements", len(right))
        for a, b in zip(left, right):
            if not (isinstance(a, BufferStore) and isinstance(b, BufferStore)):
                self._differ(f"a {type(a).__name__}", f"a {type(b).__name__}")
            assert isinstance(a, BufferStore)
            assert isinstance(b, BufferStore)
            self._access(a.buffer, a.indices, b.buffer, b.indices)
            self._values(a.value, b.value)
            own = [n for n in loads_of(b.value) if n.buffer.data is b.buffer.data]
            self.updates = self.updates or bool(own)

    def _values(self, mine: Any, theirs: Any) -> None:
        def below(pair: tuple[Any, Any]) -> list[tuple[Any, Any]]:
            a, b = pair
            same = a is self.variables.get(b, b) if isinstance(b, Var) else a is b
            loads = isinstance(a, BufferLoad) and isinstance(b, BufferLoad)
            return [] if same or loads else list(zip(children(a), children(b)))

        for a, b in descend((mine, theirs), below):
            if isinstance(a, BufferLoad) and isinstance(b, BufferLoad):
                self._access(a.buffer, a.indices, b.buffer, b.indices)
                continue
            if isinstance(b, Var) and b in self.variables:
                b = self.variables[b]
            if a is b:
                continue
            below_a, below_b = a._children_, b._children_
            leaf = not below_a and not below_b
            if type(a) is not type(b) or len(below_a) != len(below_b) or leaf:
                self._differ(a, b)
            if any(
                getattr(a, f) is not getattr(b, f) and getattr(a, f) != getattr(b, f)
                for f, kind in zip(a._fields, a._kinds)
                if kind == "leaf" and f != "span"
            ):
                self._differ(a, b)

    def _access(self, mine: Buffer, indices: Any, theirs: Buffer, their_indices: Any) -> None:
        if mine.dtype is not theirs.dtype:
            self._differ(f"{mine.name} of {mine.dtype}", f"{theirs.name} of {theirs.dtype}")
        leading = len(indices) - len(their_indices)
        if leading < 0:
            self._differ(f"{mine.name} of {mine.ndim} dimensions", theirs.ndim)
        bases: list[PrimExpr] = []
        for k, index in enumerate(indices):
            base = index
            if k >= leading:
                base = index - self._index(their_indices[k - leading], index.dtype)
            base = self.simplify(base)
            if free_variables(base) & self.mine:
                self._differ(
                    f"{mine.name} at index {index} in dimension {k}",
                    "a constant" if k < leading else their_indices[k - leading],
                )
            bases.append(base)
        known = self.bases.get(theirs)
        if known is None:
            self.bases[theirs] = (mine, tuple(bases))
        elif known[0] is not mine or any(x is not y for x, y in zip(known[1], bases)):
            self._differ(
                f"{mine.name} and {known[0].name} at different places",
                f"{theirs.name} for both",
            )

    def _index(self, theirs: PrimExpr, dtype: DataType) -> PrimExpr:
        """An index of the desc over my loops, of `dtype`."""

        def mine(e: Any) -> PrimExpr | None:
            if isinstance(e, ArithmeticExpr):
                return None
            place = self.positions.get(e) if isinstance(e, Var) else None
            return cast(dtype, substitute(e, self.variables) if place is None else place)

        return transform(theirs, None, pre=mine)

    def regions(self) -> dict[Buffer, BufferRegion]:
        """The region of the block's buffer that stands for each buffer of the specification."""
        regions: dict[Buffer, BufferRegion] = {}
        used: dict[Any, Buffer] = {}
        for theirs, (mine, bases) in self.bases.items():
            if used.setdefault(mine.data, theirs) is not theirs:
                self._differ(f"{mine.name} in two roles", "two buffers")
            leading = len(bases) - theirs.ndim
            ranges = []
            for k, base in enumerate(bases):
                extent: Any = 1 if k < leading else number_of(theirs.shape[k - leading])
                ranges.append(Range.from_min_extent(base, cast(base.dtype, extent)))
            regions[theirs] = BufferRegion(mine, tuple(ranges))
        return regions


def _list(extents: Any) -> str:
    return " x ".join(str(e) for e in extents) or "no iterations"
