"""Primitives that change layouts: of a buffer in memory, of a block's iterations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....arith import Numbers
from ....base import DataType, ScheduleError
from ....ir import INT32, FloatImm, IntImm, PrimExpr, Range, Var, cast, const, substitute
from ....ir.walk import transform
from ...index_map import IndexMap, MapOnShape, read_lambda
from ...stmt import (
    Block,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    IterVar,
    Stmt,
    statements_below,
)
from ..model.bindings import predicate_is_domain, runs_everywhere
from ..model.dependence import check_no_bare_statements, domain_box
from ..model.facts import facts_of
from ..model.places import insert_before
from ..model.primitive import BLOCK, Host, Kind, Names, primitive, to_data
from ..model.regions import only_plain_accesses, owner_of, users_of, with_regions
from ..model.state import State, free_variables, refuse
from .checks import check_from_zero, check_runs_everywhere, check_takes
from .marks import BUFFER, buffer_of, regions_of, with_parameter, written_buffer
from .nests import axes_over, looped, new_axis


class _IndexMapKind(Kind):
    """An `IndexMap`, a Python function that makes one, or its text."""

    def given(self, host: Host, value: Any, what: str) -> Any:
        if isinstance(value, str):
            return read_lambda(value)
        if not isinstance(value, IndexMap) and not callable(value):
            raise ScheduleError(f"{what}: wanted a function of indices, got {value!r}")
        return value

    def complete(self, host: Host, value: Any, arguments: Mapping[str, Any], what: str) -> Any:
        index_map, dtypes = value, self._dtypes(host, arguments, what)
        widest = max(dtypes, key=lambda d: d.bits, default=INT32)
        if not isinstance(index_map, IndexMap):
            kinds = [p.kind for p in inspect.signature(index_map).parameters.values()]
            rank = len(dtypes) if inspect.Parameter.VAR_POSITIONAL in kinds else None
            index_map, _ = IndexMap.from_func_with_separators(
                index_map, rank, index_dtype=str(widest)
            )
        own = set(index_map.initial_indices)
        final = []
        for e in index_map.final_indices:
            # Sampled numbers are recorded as what they are.
            others = {v: host.resolve_expr(v, what) for v in free_variables(e) - own}
            sampled = {v: n for v, n in others.items() if n is not v}
            e = host.state_now().analyzer.simplify(substitute(e, sampled)) if sampled else e
            final.append(e)
        plain = IndexMap(
            index_map.initial_indices,
            final,
            index_map.inverse_index_map,
            index_map.axis_separators,
        )
        return plain.widened(widest)

    def _dtypes(self, host: Host, arguments: Mapping[str, Any], what: str) -> list[DataType]:
        """The dtypes of the indices: of a buffer, or of the axes of a block."""
        if "buffer" in arguments:
            return [e.dtype for e in self._buffer(host, arguments, what).shape]
        return [a.var.dtype for a in host.resolve_block(arguments["block"], what).iter_vars]

    @staticmethod
    def _buffer(host: Host, arguments: Mapping[str, Any], what: str) -> Buffer:
        block = host.resolve_block(arguments["block"], what)
        return buffer_of(block, BUFFER.resolve(host, arguments["buffer"], what))[1]

    def encode(self, names: Names, value: Any) -> Any:
        used = {v for e in value.final_indices for v in free_variables(e)}
        for v in sorted(used - set(value.initial_indices), key=lambda v: v.name):
            names.name_of(v)
        return value.to_data()

    def decode(self, names: Names, data: Any) -> Any:
        return IndexMap.from_data(data, names.of_name)


class _PadKind(_IndexMapKind):
    """What padding holds: a number, or a value for each place, as an index map of one result."""

    def given(self, host: Host, value: Any, what: str) -> Any:
        if isinstance(value, (IntImm, FloatImm, np.generic)):
            return value
        if value is None or isinstance(value, (bool, int, float)):
            return value
        return super().given(host, value, what)

    def complete(self, host: Host, value: Any, arguments: Mapping[str, Any], what: str) -> Any:
        dtype = getattr(value, "dtype", None)
        if dtype is not None:
            buffer = self._buffer(host, arguments, what)
            if str(dtype) != str(buffer.dtype):
                raise ScheduleError(
                    f"{what}: {buffer.name} is {buffer.dtype}, the value is a {dtype}"
                )
            return to_data(value)
        if value is None or isinstance(value, (bool, int, float)):
            return value
        index_map = super().complete(host, value, arguments, what)
        if len(index_map.final_indices) != 1:
            raise ScheduleError(f"{what}: wanted one value, got {len(index_map.final_indices)}")
        return index_map

    def _dtypes(self, host: Host, arguments: Mapping[str, Any], what: str) -> list[DataType]:
        # Indices of the new layout.
        old = super()._dtypes(host, arguments, what)
        index_map = arguments["index_map"]
        if not isinstance(index_map, IndexMap):
            index_map = INDEX_MAP.complete(host, index_map, arguments, what)
        return [max(old, key=lambda d: d.bits, default=INT32)] * len(index_map.final_indices)

    def encode(self, names: Names, value: Any) -> Any:
        return super().encode(names, value) if isinstance(value, IndexMap) else value

    def decode(self, names: Names, data: Any) -> Any:
        if data is None or isinstance(data, (bool, int, float)):
            return data
        return IndexMap.from_data(data, names.of_name)


class _RangesKind(_IndexMapKind):
    """A function from axes to ranges (begin, end), as an `IndexMap` to 2 indices for each."""

    def complete(self, host: Host, value: Any, arguments: Mapping[str, Any], what: str) -> Any:
        block, buf_type = host.resolve_block(arguments["block"], what), arguments["buf_type"]
        buffer = written_buffer(block, arguments["buffer_index"], buf_type)

        if isinstance(value, IndexMap):
            return super().complete(host, value, arguments, what)

        @functools.wraps(value)
        def ends(*axes: Any, **named: Any) -> list[Any]:
            answer = value(*axes, **named)
            ranges = answer if isinstance(answer, (tuple, list)) else (answer,)
            if len(ranges) == 2 * buffer.ndim and not isinstance(ranges[0], (tuple, list)):
                # As a trace shows them.
                return list(ranges)
            parts: list[Any] = []
            for each in ranges:
                pair = each if isinstance(each, (tuple, list)) else (each, each + 1)
                if len(pair) != 2:
                    raise ScheduleError(f"{what}: a range is (begin, end), got {len(pair)} parts")
                parts += pair
            return parts

        return super().complete(host, ends, arguments, what)


INDEX_MAP: Kind = _IndexMapKind()
_RANGES: Kind = _RangesKind()
PAD: Kind = _PadKind()


# -- buffers ---------------------------------------------------------------------------------------


@primitive(block=BLOCK, buffer=BUFFER, index_map=INDEX_MAP, pad_value=PAD)
def transform_layout(
    state: State,
    block: Block,
    buffer: Any,
    index_map: IndexMap,
    pad_value: Any = None,
    *,
    assume_injective_transform: bool = False,
) -> tuple[State, None]:
    """Keep a buffer in another layout: every access goes through `index_map`.

    buffer       ("read" or "write", position), or a name
    index_map    old indices -> new ones: a function, its text (``"lambda i: (i // 4, i % 4)"``) or
                 an `IndexMap`. `IndexMap.AXIS_SEPARATOR` among the results says where memory may be
                 laid out in several physical dimensions, which means nothing on CPUs
    pad_value    what elements that no old index maps to hold: a number that the buffer's dtype has,
                 or a function of the new indices and of sizes, which reads no buffer; None: nothing
                 in particular. Of an input it is what the callers promise
    assume_injective_transform
                 a parameter may have elements that no old index maps to, without a pad_value. That
                 the map is injective is proved all the same

    The layout of a parameter changes for the callers, too: its shape is another. Raises
    ScheduleError unless the map is injective.

        B = T.alloc_buffer((8, 8))      →     B = T.alloc_buffer((2, 8, 4))
        B[i, j] = ...                         B[i // 4, j, i % 4] = ...
    """
    _, old = buffer_of(block, buffer)
    check_takes(index_map, old.ndim, f"{old.name} has {old.ndim} dimensions, the index map", block)
    on = index_map.on(old.shape, state.analyzer)
    if not on.is_injective:
        refuse(
            f"{index_map} is not shown to map different elements of {old.name} to different places",
            block,
        )
    dense = on.is_bijective
    owner = owner_of(state, old.data)
    if not (dense or assume_injective_transform) and owner is None and pad_value is None:
        refuse(
            f"{index_map} leaves elements of the parameter {old.name} unused; give a pad_value",
            block,
        )
    if old.strides:
        refuse(
            f"{old.name} has strides of its own; only a compact buffer can change its layout", block
        )
    # What the caller has in a parameter stays, unless all of it is written afresh.
    unused = None
    if not dense and pad_value is not None and owner is None and not _written_whole(state, old):
        unused = index_map.non_surjective_inverse(old.shape)
    root = state.root() if owner is None else owner
    only_plain_accesses(state, root, old, "transform_layout", outside=True)
    new = old.replace(shape=on.shape, axis_separators=index_map.axis_separators)
    state = moved_accesses(state, root, old, new, index_map, owner is None)
    if not dense and pad_value is not None:
        state = _padded(state, new, pad_value, unused)
    return state, None


def moved_accesses(
    state: State, root: Block, old: Buffer, new: Buffer, index_map: IndexMap, parameter: bool
) -> State:
    """The function in which `new` is used, at `index_map` of the indices, instead of `old`."""
    readers, writers = users_of(state, old.data)
    # ``(i * 2 + j) // 2`` is `i` only if j is known to be small.
    simplify = state.analyzer_of(*readers, *writers).simplify

    def place(indices: Any) -> tuple[PrimExpr, ...]:
        return tuple(simplify(e) for e in index_map.map_indices(indices))

    def post(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.buffer is old:
            return BufferLoad(new, place(n.indices))
        if isinstance(n, BufferStore) and n.buffer is old:
            return n.replace(buffer=new, indices=place(n.indices))
        if isinstance(n, BufferRegion) and n.buffer is old:
            return BufferRegion.full_region(new)
        if isinstance(n, Block) and any(b is old for b in n.alloc_buffers):
            return n.replace(alloc_buffers=tuple(new if b is old else b for b in n.alloc_buffers))
        return None

    asked = frozenset({Buffer, BufferLoad, BufferStore, BufferRegion, Block})
    moved = transform(root, post, lambda n: n if isinstance(n, Buffer) else None, only=asked)
    state = state.exchange(root, moved)
    if parameter:
        state = with_parameter(state, old, new)
    return _regions_anew(state, new.data)


def _regions_anew(state: State, data: Var) -> State:
    """The regions of all blocks that touch the memory, from the inside out."""

    def anew(s: Stmt) -> Stmt | None:
        if type(s) is not Block or all(r.buffer.data is not data for r in (*s.reads, *s.writes)):
            return None
        return with_regions(state, s)

    return state.rebuild(state.fn.body, anew)


def _written_whole(state: State, buffer: Buffer) -> bool:
    """Whether one block is shown to write all of the buffer afresh, before anybody reads it."""
    readers, writers = users_of(state, buffer.data)
    if len(writers) != 1 or readers or runs_everywhere(state, writers[0]):
        return False
    facts = facts_of(state, writers[0])
    if not facts.idempotent or facts.guarded:
        return False
    access = facts.write_of(buffer)
    return domain_box(state, writers[0], access).fills(buffer.shape, Numbers(state.analyzer))


def _padded(
    state: State, buffer: Buffer, value: Any, unused: tuple[IndexMap, PrimExpr] | None
) -> State:
    """All of the buffer filled with the pad value, before the first block that writes it; or what
    is `unused` of it: (a map of its indices, the condition that nothing maps to them).
    """
    if isinstance(value, IndexMap):
        told = f"{buffer.name} has {buffer.ndim} dimensions now, pad_value"
        check_takes(value, buffer.ndim, told)
    _, writers = users_of(state, buffer.data)
    if not writers:
        return state
    owner = owner_of(state, buffer.data)
    start = state.root() if owner is None else owner
    axes = axes_over(buffer.shape)
    indices = tuple(a.var for a in axes)
    if isinstance(value, IndexMap):
        fill: PrimExpr = cast(buffer.dtype, value.map_indices(indices)[0])
    else:
        fill = const(value, buffer.dtype)
    block = Block(axes, (), (), f"{buffer.name}_pad", BufferStore(buffer, fill, indices))
    block = with_regions(state, block)
    state = insert_before(state, start.body, looped(block))
    if unused is None:
        return state
    realize = state.realize(block)
    pairs = zip(unused[0].initial_indices, realize.iter_values)
    positions = {v: cast(v.dtype, x) for v, x in pairs}
    return state.replace(realize, realize.replace(predicate=substitute(unused[1], positions)))


# -- blocks ----------------------------------------------------------------------------------------


@primitive(block=BLOCK, gen_new_ranges=_RANGES)
def annotate_buffer_access(
    state: State, block: Block, buffer_index: int, buf_type: str, gen_new_ranges: IndexMap
) -> tuple[State, None]:
    """Declare what part of a buffer the block reads or writes, and that somebody said so.

    buffer_index    position in the block's `reads` or `writes`
    buf_type        "read" or "write"
    gen_new_ranges  the block's axes -> for each dimension a range (begin, end), or one index

    It is a remark: schedules look at the accesses themselves. Raises ScheduleError for a range
    that an access is shown to leave.

        with T.block("B"):                    with T.block("B"):
            T.reads(A[0:64])             →        T.reads(A[vi * 2:vi * 2 + 2])
            ...                                   T.block_attr({"explicit_read_region": [0]})
    """
    buffer, own = written_buffer(block, buffer_index, buf_type), gen_new_ranges
    if (
        len(own.initial_indices) != len(block.iter_vars)
        or len(own.final_indices) != 2 * buffer.ndim
    ):
        refuse(
            f"wanted {buffer.ndim} ranges of {buffer.name} from the {len(block.iter_vars)} axes, "
            f"got {len(own.final_indices) // 2} from {len(own.initial_indices)}",
            block,
        )
    axes = dict(zip(own.initial_indices, (a.var for a in block.iter_vars)))
    ends = [substitute(e, axes) for e in own.final_indices]
    facts, proves = facts_of(state, block), state.analyzer.can_prove
    for access in facts.reads if buf_type == "read" else facts.writes:
        for k, (low, extent) in enumerate(access.box if access.buffer is buffer else ()):
            begin, end = ends[2 * k : 2 * k + 2]
            if proves(begin > low) or proves(end < low + extent):
                refuse(
                    f"block {block.name_hint} touches {low} of dimension {k} of {buffer.name}, "
                    f"outside of {begin} to before {end}",
                    block,
                )
    ranges = [
        Range.from_min_extent(begin, state.analyzer.simplify(end - begin))
        for begin, end in zip(ends[::2], ends[1::2])
    ]
    declared = regions_of(block, buf_type)
    said = BufferRegion(buffer, tuple(ranges))
    regions = (*declared[:buffer_index], said, *declared[buffer_index + 1 :])
    key = f"explicit_{buf_type}_region"
    positions = {*map(int, block.annotations.get(key, ())), buffer_index}
    remarks = block.annotations.with_({key: tuple(sorted(positions))})
    annotated = block.replace(annotations=remarks, **{f"{buf_type}s": regions})
    return state.replace(block, annotated), None


@primitive(block=BLOCK)
def unsafe_hide_buffer_access(
    state: State, block: Block, buf_type: str, buf_index_array: Sequence[int]
) -> tuple[State, None]:
    """Take buffers out of what a block declares to read or to write.

    buf_type         "read" or "write"
    buf_index_array  positions in the block's `reads` or `writes`

    Loads and stores are seen all the same: schedules look at those. What is hidden is what a call
    does behind a pointer, which only the declaration tells: steps that would change a result are
    then allowed. That is what "unsafe" means.

        T.reads(A[vi], B[0:64])    →    T.reads(A[vi])
    """
    for index in buf_index_array:
        written_buffer(block, index, buf_type)
    regions = enumerate(regions_of(block, buf_type))
    kept = tuple(r for k, r in regions if k not in buf_index_array)
    return state.replace(block, block.replace(**{f"{buf_type}s": kept})), None


@primitive(block=BLOCK, index_map=INDEX_MAP)
def transform_block_layout(state: State, block: Block, index_map: IndexMap) -> tuple[State, None]:
    """Let the iterations of a block be numbered by other axes: one per result of `index_map`.

    index_map  old axes -> new axes

    The block gets one loop per new axis. Raises ScheduleError unless the map is bijective, does not
    mix spatial and reduce axes, and the order of the iterations does not matter.

        for i, j in T.grid(8, 4):         for f in range(32):
            with T.block("B"):      →         with T.block("B"):
                vi, vj = ...                      v0 = T.axis.spatial(32, f)
                B[vi, vj] = ...                   B[v0 // 4, v0 % 4] = ...
    """
    name = block.name_hint
    facts = facts_of(state, block)
    if not facts.elementwise and not facts.commutative:
        refuse(
            f"the order of the iterations of block {name} matters: {facts.why or facts.kind}", block
        )
    check_runs_everywhere(state, block)
    count = len(block.iter_vars)
    check_takes(index_map, count, f"block {name} has {count} axes, the index map", block)
    extents = [a.range.extent for a in block.iter_vars]
    check_from_zero(block, block.iter_vars)
    on = index_map.on(extents, state.analyzer)
    if not on.is_bijective:
        refuse(
            f"{index_map} is not shown to be one to one on the iterations of block {name}", block
        )
    top = whole_nest(state, block)
    nest, new_block = _renumbered(state, block, on)
    return state.replace(top, nest, [(block, new_block)]), None


def whole_nest(state: State, block: Block) -> Stmt:
    """The outermost loop around the block; refuses if the loops hold anything else."""
    realize = state.realize(block)
    top: Stmt = realize
    for f in reversed(state.loops_above(realize)):
        if f.body is not top:
            refuse(f"loop {f.loop_var.name} around block {block.name_hint} holds something else", f)
        top = f
    parent = state.parent(top)
    if parent is not None and len(statements_below(parent)) == 1:
        check_no_bare_statements(state, top)
    if not predicate_is_domain(state, realize, state.loops_above(realize)):
        refuse(f"block {block.name_hint} runs under a condition", block)
    return top


def _renumbered(state: State, block: Block, on: MapOnShape) -> tuple[Stmt, Block]:
    kinds = {v: a.iter_type for v, a in zip(on.map.initial_indices, block.iter_vars)}
    axes: list[IterVar] = []
    for k, (e, plain, size) in enumerate(
        zip(on.map.final_indices, on.plain.final_indices, on.shape)
    ):
        total = on.mapper.sum_of(plain)
        mixed = {kinds[v] for v in on.mapper.variables(total)} if total is not None else set()
        if len(mixed) > 1:
            refuse(f"the new axis {e} mixes {' and '.join(sorted(mixed))} axes", block)
        dtype = block.iter_vars[0].var.dtype if block.iter_vars else e.dtype
        # An axis of one iteration is in no sum; it stays what it was.
        alone = kinds.get(e, "spatial") if isinstance(e, Var) else "spatial"
        axes.append(new_axis(f"v{k}", size, dtype, next(iter(mixed), alone)))
    back = on.left_inverse().map_indices([a.var for a in axes])
    values = {a.var: cast(a.var.dtype, e) for a, e in zip(block.iter_vars, back)}
    renamed = block.replace(iter_vars=tuple(axes))
    simplify = state.analyzer_of(renamed).simplify

    def simpler(n: Any) -> Any:
        if not isinstance(n, (BufferLoad, BufferStore)):
            return None
        return n.replace(indices=tuple(simplify(i) for i in n.indices))

    new_block = with_regions(state, transform(renamed, simpler, values.get))
    return looped(new_block), new_block
