"""Whether a block does what the specification of an intrinsic says, and on which regions."""

from __future__ import annotations

from typing import Any

from ....arith import number_of
from ....base import DataType
from ....ir import ArithmeticExpr, IntImm, PrimExpr, Range, Var, cast, children, descend, substitute
from ....ir.walk import transform
from ...stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from ..model.state import State, free_variables, loads_of, refuse


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
