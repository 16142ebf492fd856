"""`suggest_layout_transforms`: if the outputs of a loop function took another layout, the layouts
of its blocks and inputs that keep the order of accesses.

    out[n, c, h, w] = f(x[n, c, h, w]),  out -> (n, h, w, c):   the block and x likewise
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...arith import IterMapper, IterSumExpr
from ...base import TIRError
from ...ir import Node, PrimExpr, Var, walk
from ...tir import Block, Buffer, BufferLoad, BufferStore, IndexMap, PrimFunc

# The spatial axis of the block that each index of an access follows, None where it follows none.
_Layout = tuple[Var | None, ...]


def suggest_layout_transforms(
    func: PrimFunc, write_buffer_transforms: Sequence[IndexMap | Callable[..., Any]]
) -> dict[Block, dict[Block | Buffer, IndexMap]]:
    """{block: {that block, or a buffer it accesses: index map}} for layouts of the last parameters.

    write_buffer_transforms  one map for each of the last parameters, the outputs
    A block is left out unless it writes one buffer whose map is known, with indices of one spatial
    axis each in the order of its axes; a buffer it reads is, unless its indices are such too. Where
    two blocks want different maps for a buffer, the first has it.
    Raises TIRError for maps that do not fit the parameters.
    """
    outputs = func.params[len(func.params) - len(write_buffer_transforms) :]
    if len(write_buffer_transforms) > len(func.params):
        raise TIRError(
            f"Incompatible PrimFunc and write_transformations: {len(write_buffer_transforms)} maps "
            f"for {len(func.params)} parameters"
        )
    known: dict[Buffer, IndexMap] = {}
    for param, stated in zip(outputs, write_buffer_transforms):
        buffer = func.buffer_map.get(param)
        if buffer is None:
            raise TIRError(f"suggest_layout_transforms: parameter {param.name} is no buffer")
        known[buffer] = _map_for(buffer, stated)
    suggested: dict[Block, dict[Block | Buffer, IndexMap]] = {}
    for block in walk(func.body) if known else ():
        if isinstance(block, Block) and len(block.writes) == 1 and block.writes[0].buffer in known:
            maps = _for_block(block, known)
            if maps:
                suggested[block] = maps
    return suggested


def _map_for(buffer: Buffer, stated: Any) -> IndexMap:
    if not isinstance(stated, IndexMap):
        if not callable(stated):
            raise TIRError(f"wanted an IndexMap or a function, got {type(stated).__name__}")
        dtype = str(buffer.shape[0].dtype) if buffer.shape else "int32"
        stated = IndexMap.from_func(stated, index_dtype=dtype)
    if len(stated.initial_indices) != buffer.ndim:
        raise TIRError(
            f"Mismatch between output buffer shape and index map: {buffer.name} has {buffer.ndim} "
            f"dimensions, the map takes {len(stated.initial_indices)}"
        )
    return stated


def _for_block(block: Block, known: dict[Buffer, IndexMap]) -> dict[Block | Buffer, IndexMap]:
    """The maps of `block` and its buffers; those of the buffers are added to `known`."""
    output = block.writes[0].buffer
    layouts = _layouts(block)
    written = layouts.get(output)
    axes = [axis.var for axis in block.iter_vars]
    if written is None or None in written or not _in_order(written, axes):
        return {}
    own = _carried_over(written, known[output], axes)
    if own is None or not own.is_bijective(
        [axis.dom.extent for axis in block.iter_vars if axis.dom is not None]
    ):
        return {}
    maps: dict[Block | Buffer, IndexMap] = {block: own, output: known[output]}
    for region in block.reads:
        buffer = region.buffer
        layout = layouts.get(buffer)
        if buffer in known or layout is None or not _in_order(layout, axes):
            continue
        index_map = _carried_over(written, known[output], layout)
        if index_map is not None and index_map.is_bijective(buffer.shape):
            maps[buffer] = known[buffer] = index_map
    return maps


def _layouts(block: Block) -> dict[Buffer, _Layout | None]:
    """By buffer: the layout that all accesses in `block` have; None if they differ or have none.

    Empty for a block that holds another, writes more than one buffer or has axes in order.
    """
    if any(axis.iter_type not in ("spatial", "reduce") for axis in block.iter_vars):
        return {}
    ranges = {
        axis.var: (axis.dom.min, axis.dom.extent)
        for axis in block.iter_vars
        if axis.iter_type == "spatial" and axis.dom is not None
    }
    mapper = IterMapper(ranges)
    layouts: dict[Buffer, _Layout | None] = {}
    for n in walk(block.body):
        if isinstance(n, Block):
            return {}
        if isinstance(n, BufferStore) and n.buffer is not block.writes[0].buffer:
            return {}
        if isinstance(n, (BufferLoad, BufferStore)):
            layout = _layout_of(mapper, ranges, n.indices)
            if layouts.setdefault(n.buffer, layout) != layout:
                layouts[n.buffer] = None
    return layouts


def _layout_of(
    mapper: IterMapper, spatial: Mapping[Var, Any], indices: Sequence[PrimExpr]
) -> _Layout | None:
    layout: list[Var | None] = []
    for index in indices:
        axes = {n for n in walk(index) if isinstance(n, Var) and n in spatial}
        total = mapper.sum_of(index) if axes else None
        if len(axes) > 1 or (axes and (total is None or {*_sources(total)} != axes)):
            return None
        layout.append(axes.pop() if axes else None)
    return tuple(layout)


def _sources(total: IterSumExpr) -> Iterator[Node]:
    for digit in total.args:
        source = digit.source.source
        yield from _sources(source) if isinstance(source, IterSumExpr) else (source,)


def _in_order(layout: Sequence[Var | None], axes: Sequence[Var]) -> bool:
    places = [axes.index(v) for v in layout if v is not None]
    return all(a < b for a, b in itertools.pairwise(places))


def _carried_over(
    written: Sequence[Var | None], index_map: IndexMap, target: Sequence[Var | None]
) -> IndexMap | None:
    """`index_map`, of indices that follow the axes `written`, for indices that follow `target`.

    (N, C, H, W) -> (N, H, W, C // 4, C % 4) for (K, C, H, W) is (K, C, H, W) -> (K, H, W, C // 4,
    C % 4): what depends on N alone goes, K stays where it is. None if something depends on axes
    that are there and on axes that are not.
    """
    kept = [v for axis, v in zip(written, index_map.initial_indices) if axis in target]
    final: list[PrimExpr] = []
    for e in index_map.final_indices:
        there = [n in kept for n in walk(e) if isinstance(n, Var)]
        if not there or (any(there) and not all(there)):
            return None
        if all(there):
            final.append(e)
    initial = list(kept)
    for k, axis in enumerate(target):
        if axis is None or axis not in written:
            new = Var("d", index_map.initial_indices[0].dtype)
            initial.insert(k, new)
            final.insert(min(k, len(final)), new)
    return IndexMap(initial, final)
