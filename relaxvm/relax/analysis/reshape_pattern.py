"""Whether a loop function only gives an array another shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...arith import Analyzer, detect_iter_map, prove_equal
from ...ir import PrimExpr, Range, Var, cast, const, is_const, substitute
from ...tir import Block, BlockRealize, Buffer, BufferLoad, BufferStore, For, PrimFunc

_Side = tuple[Buffer, Sequence[PrimExpr]]


def has_reshape_pattern(func: PrimFunc) -> bool:
    """Whether `func` of two buffers writes each element of the first to the same place of the
    second, in row-major order: reshape, expand_dims, squeeze, flatten.

    False where that is not proved.
    """
    buffers = [func.buffer_map[p] for p in func.params if p in func.buffer_map]
    only = _only_block(func.body)
    if len(buffers) != 2 or only is None:
        return False
    source, target = buffers
    block, store = only
    load = store.value
    if not isinstance(load, BufferLoad) or (load.buffer, store.buffer) != (source, target):
        return False
    if not prove_equal(_numel(source.shape), _numel(target.shape)):
        return False
    axes = _domains(block)
    written: _Side = (target, store.indices)
    read: _Side = (source, load.indices)
    return any(
        _whole(*a, axes) and _in_step(a, b, axes) for a, b in ((written, read), (read, written))
    )


def _domains(block: Block) -> dict[Var, Range]:
    return {axis.var: axis.dom for axis in block.iter_vars if axis.dom is not None}


def _in_step(a: _Side, b: _Side, axes: dict[Var, Range]) -> bool:
    """Whether both are at one place; the indices of `a` are the axes themselves."""
    analyzer = Analyzer(wrap=True)
    for var, dom in axes.items():
        analyzer.bind(var, dom)
    if analyzer.can_prove_equal(_flat(*a), _flat(*b)):
        return True
    # The place is one number, and the axes are its digits.
    buffer, indices = a
    dtype = indices[0].dtype if indices else "int64"
    place = Var("place", dtype)
    rest: PrimExpr = place
    analyzer.bind(place, Range.from_min_extent(0, cast(dtype, _numel(buffer.shape))))
    digits: dict[Var, PrimExpr] = {}
    for i, extent in reversed(list(zip(indices, buffer.shape))):
        if isinstance(i, Var):
            digits[i] = cast(i.dtype, rest % cast(dtype, extent))
        rest = rest // cast(dtype, extent)
    return analyzer.can_prove_equal(analyzer.simplify(substitute(_flat(*b), digits)), place)


def _only_block(body: object) -> tuple[Block, BufferStore] | None:
    """The block around the one store, and that, if the loops around it meet all of its domain."""
    loops: dict[Var, Range] = {}
    while True:
        if isinstance(body, For):
            loops[body.loop_var] = Range.from_min_extent(body.min, body.extent)
            body = body.body
        elif isinstance(body, BlockRealize):
            block = body.block
            if block.init is not None or block.alloc_buffers or block.match_buffers:
                return None
            if isinstance(block.body, BufferStore):
                doms = _domains(block).values()
                once = detect_iter_map(body.iter_values, loops, check_level="injective")
                all_of_it = prove_equal(_product(loops.values()), _product(doms))
                whole = all_of_it and not once.errors and is_const(body.predicate, 1)
                return (block, block.body) if whole else None
            body = block.body
        else:
            return None


def _whole(buffer: Buffer, indices: Sequence[PrimExpr], axes: dict[Var, Range]) -> bool:
    """Whether the axes, as indices, meet every element of `buffer`."""
    used = [i for i in indices if isinstance(i, Var)]
    return len(set(used)) == len(used) and all(
        (
            isinstance(i, Var)
            and i in axes
            and is_const(axes[i].min, 0)
            and prove_equal(axes[i].extent, extent)
        )
        or (is_const(i, 0) and is_const(extent, 1))
        for i, extent in zip(indices, buffer.shape)
    )


def _product(ranges: Iterable[Range]) -> PrimExpr:
    return _numel([r.extent for r in ranges])


def _numel(shape: Sequence[PrimExpr]) -> PrimExpr:
    total: PrimExpr = const(1, "int64")
    for extent in shape:
        total = total * extent
    return total


def _flat(buffer: Buffer, indices: Sequence[PrimExpr]) -> PrimExpr:
    dtype = indices[0].dtype if indices else "int64"
    place: PrimExpr = const(0, dtype)
    for i, extent in zip(indices, buffer.shape):
        place = place * cast(dtype, extent) + cast(dtype, i)
    return place
