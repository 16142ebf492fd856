"""`pack_contraction`: the operands of a sum of products, laid out as an instruction wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....arith import Analyzer, stride
from ....base import DataType, NamedTuple
from ....ir import LT, Add, Cast, IntImm, Mul, PrimExpr, Sub, Var, cast, const, is_const, substitute
from ...op import all as every
from ...op import if_then_else
from ...stmt import Block, Buffer, BufferLoad, BufferStore, IterVar
from ..model.facts import BlockKind, facts_of
from ..model.places import add_allocation, insert_after, insert_before, nest_of
from ..model.primitive import BLOCK, list_of, primitive
from ..model.reducer import match_reducer
from ..model.regions import with_regions
from ..model.state import State, free_variables, loads_of, refuse
from .cache import new_buffer
from .checks import check_from_zero, check_own_loops, check_runs_everywhere
from .layout import whole_nest
from .nests import looped, new_axis


class Factor(NamedTuple):
    """``cast(out, load) + offset`` as one side of a product.

    dims    {dimension of the buffer: the axis that alone indexes it}
    offset  None: there is none
    """

    load: BufferLoad
    offset: PrimExpr | None

    def dimension(self, axis: Var) -> int | None:
        """The dimension that `axis` indexes, if it takes part in no other and stands alone or (not
        multiplied) in a sum.
        """
        dims = [k for k, e in enumerate(self.load.indices) if axis in free_variables(e)]
        if len(dims) != 1:
            return None
        return dims[0] if stride(self.load.indices[dims[0]], axis) == 1 else None

    def is_alone(self, axis: Var) -> bool:
        """Whether one index is the axis itself."""
        k = self.dimension(axis)
        return k is not None and self.load.indices[k] is axis


def factors_of(block: Block) -> tuple[Factor, Factor] | None:
    """The two sides of the products that `block` sums; None if it does something else.

    An offset (a zero point) changes with spatial axes only.
    """
    reducer = match_reducer(block)
    if reducer is None or reducer.name != "sum":
        return None
    product = reducer.updates[0]
    if not isinstance(product, Mul):
        return None
    reduce = {a.var for a in block.iter_vars if a.is_reduce}
    one, other = (_factor(e, reduce) for e in (product.a, product.b))
    return None if one is None or other is None else (one, other)


def _factor(e: PrimExpr, reduce: set[Var]) -> Factor | None:
    offset: PrimExpr | None = None
    if e.dtype.is_int and isinstance(e, (Add, Sub)):
        offset = e.b if isinstance(e, Add) else const(0, e.dtype) - e.b
        e = e.a
        if free_variables(offset) & reduce:
            return None
    if isinstance(e, Cast):
        source = e.value.dtype
        wider = source.bits < e.dtype.bits and source.is_float == e.dtype.is_float
        e = e.value if wider and (source.is_int or source.is_float) else e
    return Factor(e, offset) if isinstance(e, BufferLoad) else None


class _Plan(NamedTuple):
    """What `pack_contraction` was asked for, checked.

    axes      {axis: extent} of the block, in order
    product   (broadcast, streamed)
    shifts    what is added to elements so that they fit the packed dtypes
    folded    whether the packed elements have their offset in them, as there is room for it
    sizes     {vector axis, grouped axis: extent}
    extents   the same after padding
    parts     {vector axis: (panel, vector, lane), grouped axis: (group, place in it)}
    """

    block: Block
    out: Buffer
    indices: tuple[PrimExpr, ...]
    axes: dict[Var, PrimExpr]
    reduce: tuple[Var, ...]
    product: tuple[Factor, Factor]
    dtypes: tuple[DataType, DataType]
    shifts: tuple[int, int]
    folded: tuple[bool, bool]
    vector: Var
    grouped: Var
    group: int
    vectors: int
    lanes: int
    sizes: dict[Var, int]
    extents: dict[Var, int]
    parts: dict[Var, tuple[IterVar, ...]]

    @property
    def width(self) -> int:
        """How many columns a panel has."""
        return self.vectors * self.lanes

    def at(self, axis: Var, first: int = 0) -> PrimExpr:
        """The vector or the grouped axis put together from its parts, those from `first` on."""
        place: PrimExpr | None = None
        for part in self.parts[axis][first:]:
            size = part.range.extent
            assert isinstance(size, IntImm)
            if place is None:
                place = part.var
            elif axis is not self.grouped or size.value > 1:
                place = place * size.value + part.var
        assert place is not None
        return place

    def offset(self, which: int) -> PrimExpr | None:
        """What is to be added to a packed element to make it the factor."""
        offset, shift = self.product[which].offset, self.shifts[which]
        if offset is None or self.folded[which]:
            return const(-shift, self.out.dtype) if shift else None
        return offset - shift if shift else offset

    def value(self, which: int, dtype: DataType) -> PrimExpr:
        """The packed element as an expression of the block's axes, in `dtype`."""
        factor = self.product[which]
        return cast(dtype, self.stored(which, factor.load, {}))

    def stored(self, which: int, element: PrimExpr, position: dict[Var, PrimExpr]) -> PrimExpr:
        """What is packed of an element of a factor, while axes of the block are at `position`."""
        shift, dtype = self.shifts[which], self.dtypes[which]
        offset = self.product[which].offset
        if self.folded[which] and offset is not None:
            return cast(dtype, cast(offset.dtype, element) + substitute(offset, dict(position)))
        return cast(dtype, cast("int32", element) + shift) if shift else cast(dtype, element)


def _size(e: PrimExpr, what: str, block: Block) -> int:
    if not isinstance(e, IntImm):
        refuse(f"{what} of block {block.name_hint} is no constant: {e}", block)
    return int(e.value)


def _plan(
    state: State,
    block: Block,
    axes: Sequence[int],
    group: int,
    tile: Sequence[int],
    dtypes: Sequence[str],
) -> _Plan:
    name = block.name_hint
    facts = facts_of(state, block)
    factors = factors_of(block)
    if facts.kind is not BlockKind.REDUCTION or factors is None:
        refuse(f"block {name} is no sum of products of two loads", block)
    check_runs_everywhere(state, block)
    if len(axes) != 2 or not all(0 <= k < len(block.iter_vars) for k in axes):
        refuse(f"block {name} has {len(block.iter_vars)} axes, got the positions {axes}", block)
    vector, grouped = (block.iter_vars[k] for k in axes)
    if not vector.is_spatial or not grouped.is_reduce:
        refuse(f"wanted a spatial axis and a reduce axis of block {name}", block)
    if group < 1 or len(tile) != 2 or min(tile) < 1 or len(dtypes) != 2:
        refuse(f"wanted a group, a tile and two dtypes, got {group}, {tile}, {dtypes}", block)
    vectors, lanes = tile
    width = vectors * lanes
    inside = [vector.var in free_variables(f.load) for f in factors]
    if sum(inside) != 1:
        refuse(f"axis {vector.var.name} is not in exactly one factor of block {name}", block)
    product = factors if inside[1] else factors[::-1]
    reducer = match_reducer(block)
    assert reducer is not None
    out, indices = reducer.buffers[0]
    spatial = {a.var for a in block.iter_vars if a.is_spatial}
    if not indices or indices[-1] is not vector.var:
        refuse(f"axis {vector.var.name} is not the last index of {out.name}", block)
    if any(not (isinstance(e, IntImm) or e in spatial) for e in indices):
        refuse(f"{out.name} is not indexed by axes of block {name}", block)
    streamed = product[1]
    for f, axis in ((product[0], grouped), (streamed, grouped)):
        if not f.is_alone(axis.var):
            refuse(f"{f.load.buffer.name} has no dimension indexed by {axis.var.name}", block)
    if streamed.dimension(vector.var) is None:
        refuse(
            f"neighbours along {vector.var.name} are no neighbours in {streamed.load.buffer.name}",
            block,
        )
    check_from_zero(block, block.iter_vars)
    sizes = {a.var: a.range.extent for a in block.iter_vars}
    columns = _size(sizes[vector.var], f"the extent of axis {vector.var.name}", block)
    terms = _size(sizes[grouped.var], f"the extent of axis {grouped.var.name}", block)
    kinds = (DataType(dtypes[0]), DataType(dtypes[1]))
    plan = _Plan(
        block,
        out,
        indices,
        sizes,
        tuple(a.var for a in block.iter_vars if a.is_reduce),
        product,
        kinds,
        (_shift(product[0], kinds[0], block), _shift(streamed, kinds[1], block)),
        (_has_room(product[0], kinds[0]), _has_room(streamed, kinds[1])),
        vector.var,
        grouped.var,
        group,
        vectors,
        lanes,
        {vector.var: columns, grouped.var: terms},
        {vector.var: -(-columns // width) * width, grouped.var: -(-terms // group) * group},
        {
            vector.var: _parts(vector, (-(-columns // width), vectors, lanes)),
            grouped.var: _parts(grouped, (-(-terms // group), group)),
        },
    )
    _check_offsets(plan)
    return plan


def _parts(axis: IterVar, sizes: Sequence[int]) -> tuple[IterVar, ...]:
    names = [f"{axis.var.name}_{k}" for k in range(len(sizes))]
    return tuple(new_axis(n, size, axis.var.dtype, axis.iter_type) for n, size in zip(names, sizes))


def _shift(f: Factor, to: DataType, block: Block) -> int:
    """What to add to elements so that `to` holds each of them."""
    source = f.load.dtype
    if source is to:
        return 0
    if source.is_float and to.is_float and to.bits >= source.bits and to.bits > 16:
        return 0
    if source.is_int and to.is_int:
        if to.min_value <= source.min_value and source.max_value <= to.max_value:
            return 0
        if to.bits == source.bits:
            half = 1 << (to.bits - 1)
            return half if source.kind == "int" else -half
    refuse(f"{to} does not hold every {source} of {f.load.buffer.name}", block)


def _has_room(f: Factor, to: DataType) -> bool:
    """Whether `to` holds every sum of an element and the offset, which moves with axes that are
    indices of the factor by themselves.
    """
    source = f.load.dtype
    if f.offset is None or not (source.is_int and to.is_int):
        return False
    span = Analyzer(wrap=True).const_int_bound(f.offset)
    fits = to.min_value <= source.min_value + span[0] and source.max_value + span[1] <= to.max_value
    indices = [i for n in loads_of(f.offset) for i in n.indices]
    return fits and all(f.is_alone(v) for i in indices for v in free_variables(i))


def _check_offsets(plan: _Plan) -> None:
    for which in (0, 1):
        if plan.offset(which) is None:
            continue
        other = plan.product[1 - which].load
        used = free_variables(other)
        if any(v not in used and not is_const(plan.axes[v], 1) for v in plan.reduce):
            refuse(
                f"{other.buffer.name} is not indexed by every reduce axis, and the other factor "
                "has an offset",
                plan.block,
            )


# -- the primitive ---------------------------------------------------------------------------------


@primitive(block=BLOCK, gives=list_of(BLOCK))
def pack_contraction(
    state: State,
    block: Block,
    axes: Sequence[int],
    group: int,
    tile: Sequence[int],
    dtypes: Sequence[str],
) -> tuple[State, list[Block]]:
    """Copy the operands of a sum of products into the layout in which an instruction reads them.

    axes     positions of two axes of the block: the vector axis (the last index of the output, in
             one factor only, the streamed one) and the reduce axis that is taken in groups
    group    how many elements of the grouped axis lie side by side
    tile     (vectors, lanes): the vector axis lies in panels of that many columns
    dtypes   of the packed elements: (factor without the vector axis, streamed factor)
    returns  [copy of the result, packing of the streamed factor, others]

    The block gets axes (panel, vector, lane) for the vector axis and (group, place in it) for the
    grouped one, each with a loop, in the places of the old ones.

    What is padded is 0. Where a dtype of the same size but another sign is asked for, elements are
    moved by half its range; such offsets, and zero points for which the packed dtype has no room,
    are taken out of the products: ``sum (a + p) (b + q) = sum a b + p sum b + q sum a + n p q``.
    Raises ScheduleError unless the block sums products of two loads, widened, each indexed by the
    grouped axis alone.

        C[i, j] += A[i, k] * B[k, j]    →    B_p[j // 16, k // 4, j % 16 * 4 + k % 4] = B[k, j]
                                             C_p[i, j0 * 16 + j1 * 8 + j2] +=
                                                 A[i, k0 * 4 + k1] *
                                                 B_p[j0, k0, (j1 * 8 + j2) * 4 + k1]
                                             C[i, j] = C_p[i, j]
    """
    plan = _plan(state, block, axes, group, tile, dtypes)
    top = whole_nest(state, block)
    check_own_loops(state, block)
    scope = state.scope(state.realize(block))
    packs = [_packed_broadcast(state, plan), _packed_streamed(state, plan)]
    sums = [_sums(state, plan, which) for which in (0, 1)]
    total = new_buffer(plan.out, f"{plan.out.name}_packed", "global", _padded_shape(plan))
    contraction = _contraction(state, plan, packs, total)
    copy = _copy_out(state, plan, total, sums)
    state = state.replace(top, looped(contraction), [(block, contraction)])
    before = [p for p in (packs[1], packs[0], *sums) if p is not None]
    for p in before:
        state = insert_before(state, nest_of(state, contraction), looped(p.block))
    state = insert_after(state, nest_of(state, contraction), looped(copy))
    state = add_allocation(state, scope, total, *(p.buffer for p in before))
    return state, [state.now(b) for b in (copy, *(p.block for p in before))]


class _Made(NamedTuple):
    """A block that fills a buffer, and how the block's axes index it."""

    block: Block
    buffer: Buffer
    indices: tuple[PrimExpr, ...]


def _renamed(plan: _Plan, axes: Sequence[Var]) -> dict[Var, IterVar]:
    """New axes for a block of its own, by the contraction's axes."""
    kinds = {a.var: a.iter_type for a in plan.block.iter_vars}
    return {v: new_axis(v.name, plan.axes[v], v.dtype, kinds[v]) for v in axes}


def _guarded(value: PrimExpr, guards: list[PrimExpr]) -> PrimExpr:
    return if_then_else(every(*guards), value, const(0, value.dtype)) if guards else value


def _buffer(plan: _Plan, which: int, name: str, shape: Sequence[PrimExpr]) -> Buffer:
    source = plan.product[which].load.buffer
    like = source.replace(dtype=plan.dtypes[which])
    return new_buffer(like, f"{source.name}_{name}", "global", tuple(shape))


def _packed_broadcast(state: State, plan: _Plan) -> _Made | None:
    """The factor without the vector axis, the grouped axis last; None if it is like that."""
    load = plan.product[0].load
    source, grouped = load.buffer, plan.grouped
    place = load.indices.index(grouped)
    terms, padded = plan.sizes[grouped], plan.extents[grouped]
    as_it_is = plan.dtypes[0] is source.dtype and not plan.shifts[0] and not source.strides
    if as_it_is and terms == padded and place == source.ndim - 1:
        return None
    others = [k for k in range(source.ndim) if k != place]
    axes = [new_axis(f"v{k}", source.shape[k]) for k in others]
    axes.append(new_axis("vk", padded, grouped.dtype))
    by_dim = dict(zip([*others, place], axes))
    guards: list[PrimExpr] = []
    if terms != padded:
        guards.append(LT(by_dim[place].var, const(terms, grouped.dtype)))
    buffer = _buffer(plan, 0, "packed", [a.range.extent for a in axes])
    places = {k: a.var for k, a in by_dim.items()}
    block = _packing(state, plan, 0, places, guards, axes, buffer, tuple(a.var for a in axes))
    return _Made(block, buffer, (*(load.indices[k] for k in others), plan.at(grouped)))


def _packing(
    state: State,
    plan: _Plan,
    which: int,
    places: Mapping[int, PrimExpr],
    guards: list[PrimExpr],
    axes: Sequence[IterVar],
    buffer: Buffer,
    indices: tuple[PrimExpr, ...],
) -> Block:
    """The block that packs the elements of a factor, those at `places` along its dimensions."""
    load = plan.product[which].load
    element = BufferLoad(load.buffer, tuple(places[k] for k in range(load.buffer.ndim)))
    position = {v: places[k] for k, v in enumerate(load.indices) if isinstance(v, Var)}
    value = _guarded(plan.stored(which, element, position), guards)
    store = BufferStore(buffer, value, indices)
    return with_regions(state, Block(tuple(axes), (), (), buffer.name, store))


def _packed_streamed(state: State, plan: _Plan) -> _Made:
    """The factor with the vector axis: [others, panel, group of k, column in it and k in it]."""
    load = plan.product[1].load
    source, grouped, vector = load.buffer, plan.grouped, plan.vector
    g, w = plan.group, plan.width
    k_place = load.indices.index(grouped)
    j_place = plan.product[1].dimension(vector)
    assert j_place is not None
    others = [k for k in range(source.ndim) if k not in (k_place, j_place)]
    dtype = source.shape[j_place].dtype
    size = source.shape[j_place]
    axes = [new_axis(f"v{k}", source.shape[k]) for k in others]
    groups = plan.extents[grouped] // g
    in_panels = load.indices[j_place] is vector
    terms, columns = plan.sizes[grouped], plan.sizes[vector]
    grown = plan.extents[vector] - columns
    if in_panels:
        axes.append(new_axis("vp", plan.extents[vector] // w, dtype))
        length: Any = w
    else:
        length = size + grown if grown else size
    sizes = (("vq", groups), ("vj", length), ("vt", g))
    vq, vj, vt = (new_axis(name, n, dtype) for name, n in sizes)
    column = axes[-1].var * w + vj.var if in_panels else vj.var
    term = vq.var * g + vt.var if g > 1 else vq.var
    guards: list[PrimExpr] = []
    if terms != plan.extents[grouped]:
        guards.append(LT(term, const(terms, dtype)))
    if grown:
        guards.append(LT(column, cast(dtype, const(columns, dtype) if in_panels else size)))
    by_dim: dict[int, PrimExpr] = {k: a.var for k, a in zip(others, axes)}
    by_dim[k_place], by_dim[j_place] = term, column
    all_axes = [*axes, vq, vj, *([vt] if g > 1 else [])]
    last = vj.var * g + vt.var if g > 1 else vj.var
    shape = [*(a.range.extent for a in axes), const(groups, dtype)]
    shape.append(const(length * g, dtype) if isinstance(length, int) else length * g)
    shape = [state.analyzer.simplify(e) for e in shape]
    buffer = _buffer(plan, 1, "packed", shape)
    indices = (*(a.var for a in axes), vq.var, last)
    block = _packing(state, plan, 1, by_dim, guards, all_axes, buffer, indices)
    position: list[PrimExpr] = [load.indices[k] for k in others]
    own = plan.at(vector, 1)
    if in_panels:
        position.append(plan.parts[vector][0].var)
    else:
        own = substitute(load.indices[j_place], {vector: plan.at(vector)})
    q, t = (a.var for a in plan.parts[grouped])
    position += [q, own * g + t] if g > 1 else [q, own]
    return _Made(block, buffer, tuple(position))


def _sums(state: State, plan: _Plan, which: int) -> _Made | None:
    """The sums of a factor's packed elements over the reduce axes, if the other has an offset."""
    if plan.offset(1 - which) is None:
        return None
    load = plan.product[which].load
    used = free_variables(load)
    axes = _renamed(plan, [v for v in plan.axes if v in used])
    spatial = [a for a in axes.values() if a.is_spatial]
    names: dict[Any, PrimExpr] = {v: a.var for v, a in axes.items()}
    like = load.buffer.replace(dtype=plan.out.dtype)
    shape = tuple(a.range.extent for a in spatial) or (const(1, "int64"),)
    buffer = new_buffer(like, f"{load.buffer.name}_sum", "global", shape)
    indices = tuple(a.var for a in spatial) or (const(0, "int64"),)
    step = substitute(plan.value(which, plan.out.dtype), names)
    block = Block(
        tuple(axes.values()),
        (),
        (),
        buffer.name,
        BufferStore(buffer, BufferLoad(buffer, indices) + step, indices),
        BufferStore(buffer, const(0, buffer.dtype), indices),
    )
    position = tuple(v for v in axes if axes[v].is_spatial) or (const(0, "int64"),)
    return _Made(with_regions(state, block), buffer, position)


def _padded_shape(plan: _Plan) -> tuple[PrimExpr, ...]:
    *rest, last = plan.out.shape
    return (*rest, const(plan.extents[plan.vector], last.dtype))


def _contraction(state: State, plan: _Plan, packs: Sequence[_Made | None], total: Buffer) -> Block:
    """The sum of products over the packed factors and the padded axes."""
    names: dict[Any, PrimExpr] = {v: plan.at(v) for v in plan.parts}
    factors = []
    for which, pack in enumerate(packs):
        if pack is None:
            load: PrimExpr = substitute(plan.product[which].load, names)
        else:
            load = BufferLoad(pack.buffer, pack.indices)
        factors.append(cast(total.dtype, load))
    indices = tuple(substitute(e, names) for e in plan.indices)
    axes: list[IterVar] = []
    for a in plan.block.iter_vars:
        axes += plan.parts.get(a.var, (a,))
    if plan.group == 1:
        axes.remove(plan.parts[plan.grouped][1])
    packed = plan.block.replace(
        iter_vars=tuple(axes),
        reads=(),
        writes=(),
        body=BufferStore(total, BufferLoad(total, indices) + factors[0] * factors[1], indices),
        init=BufferStore(total, const(0, total.dtype), indices),
    )
    return with_regions(state, packed)


def _copy_out(state: State, plan: _Plan, total: Buffer, sums: Sequence[_Made | None]) -> Block:
    """The result without the padding, with what the offsets add."""
    axes = _renamed(plan, [e for e in plan.indices if isinstance(e, Var)])
    names: dict[Any, PrimExpr] = {v: a.var for v, a in axes.items()}
    value: PrimExpr = BufferLoad(total, plan.indices)
    for which in (0, 1):
        offset, sum_ = plan.offset(1 - which), sums[which]
        if offset is not None and sum_ is not None:
            value = value + offset * BufferLoad(sum_.buffer, sum_.indices)
    both = plan.offset(0), plan.offset(1)
    if both[0] is not None and both[1] is not None:
        count: PrimExpr = const(1, total.dtype)
        for v in plan.reduce:
            count = count * cast(total.dtype, plan.axes[v])
        value = value + count * both[0] * both[1]
    indices = tuple(substitute(e, names) for e in plan.indices)
    store = BufferStore(plan.out, substitute(value, names), indices)
    return with_regions(state, Block(tuple(axes.values()), (), (), total.name, store))
