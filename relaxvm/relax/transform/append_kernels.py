"""Which loop functions put something behind an input, and the functions that do only that.

    before:  f(A: T.Buffer((n, 4)), B: T.Buffer((1, 4)), C: T.Buffer((n + 1, 4))):
                 for i, j in T.grid(n + 1, 4): C[i, j] = T.if_then_else(i < n, A[i, j], B[i - n, j])
    after:   f_append(C: T.Buffer((rows, 4)), B: T.Buffer((1, 4))):
                 for i, j in T.grid(1, 4): C[rows - 1 + i, j] = B[rows - 1 + i - (rows - 1), j]

So a concatenation looks, and what was fused with it stands in the other branch. The input has to be
the first part of the output's memory: dimensions before the axis are 1. What calls such a function
brings the input there (the machine's `grow`).
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer, ConstIntBound
from ...base import NamedTuple
from ...ir import Call as TirCall
from ...ir import IntImm, Map, Op, PrimExpr, Var, is_const, substitute, walk
from ...tir import BlockRealize, Buffer, BufferLoad, BufferStore, For, PrimFunc, Stmt, decl_buffer
from ...tir.analysis import buffer_accesses, get_block_access_region
from ...tir.transform import size_bounds
from .inplace_kernels import has_views, stages_of

_IF_THEN_ELSE = Op.get("tir.if_then_else")


class Appending(NamedTuple):
    """Parameter `out` is parameter `source` with more behind it along `axis`."""

    source: int
    out: int
    axis: int


class _Nest(NamedTuple):
    """Loops around one block that stores once."""

    loops: tuple[For, ...]
    realize: BlockRealize
    store: BufferStore

    @property
    def choice(self) -> tuple[PrimExpr, PrimExpr, PrimExpr] | None:
        """What is stored, if it is a choice: the condition, and what it chooses from."""
        value: Any = self.store.value
        if not isinstance(value, TirCall) or value.op is not _IF_THEN_ELSE:
            return None
        condition, yes, no = value.args
        return condition, yes, no


def appending(fn: PrimFunc) -> Appending | None:
    """How `fn` appends, if it does."""
    access = buffer_accesses(fn)
    if any(p not in fn.buffer_map for p in fn.params) or has_views(fn):
        return None
    buffers = [fn.buffer_map[p] for p in fn.params]
    if [access.get(b) for b in buffers].count("w") != 1:
        return None
    out = next(k for k, b in enumerate(buffers) if access.get(b) == "w")
    nest = _storing(fn, buffers[out])
    if nest is None:
        return None
    kept = _kept_branch(nest, fn)
    if kept is None or kept.buffer not in buffers:
        return None
    axis = _axis(nest, kept, fn)
    return None if axis is None else Appending(buffers.index(kept.buffer), out, axis)


def append_only(fn: PrimFunc, how: Appending, name: str) -> PrimFunc:
    """`fn` under the name `name`, without parameter `source`, in the place of which stands `out`:
    its first part is there already.
    """
    source, out = (fn.buffer_map[fn.params[k]] for k in (how.source, how.out))
    nest = _storing(fn, out)
    assert nest is not None
    assert nest.choice is not None
    simplify = Analyzer(wrap=False).simplify
    had, axis = source.shape[how.axis], how.axis
    more = simplify(out.shape[axis] - had)
    rows: PrimExpr = out.shape[axis]
    renamed: dict[object, object] = {}
    if isinstance(had, Var):
        rows = Var("rows", had.dtype)
        shape = (*out.shape[:axis], rows, *out.shape[axis + 1 :])
        renamed = {out: decl_buffer(shape, str(out.dtype), out.name), had: rows - more}
    realize, store = nest.realize, nest.store
    values = list(realize.iter_values)
    place = next(k for k, v in enumerate(realize.block.iter_vars) if v.var is store.indices[axis])
    values[place] = values[place] + simplify(rows - more)
    block = realize.block.replace(body=store.replace(value=nest.choice[2]))
    reads, writes, _ = get_block_access_region(block)
    block = block.replace(reads=tuple(reads), writes=tuple(writes))
    body: Stmt = realize.replace(iter_values=tuple(values), block=block)
    for loop in reversed(nest.loops):
        extent = more if loop.loop_var is realize.iter_values[place] else loop.extent
        body = loop.replace(extent=extent, body=body)
    changed = substitute(fn.body, {nest.loops[0]: body})
    params = [p for k, p in enumerate(fn.params) if k != how.out]
    params[params.index(fn.params[how.source])] = fn.params[how.out]
    buffers = {p: renamed.get(b, b) for p, b in fn.buffer_map.items() if b is not source}
    kernel: PrimFunc = fn.replace(
        params=tuple(params), body=substitute(changed, renamed), buffer_map=Map(buffers)
    )
    if kernel.get_attr("global_symbol") is not None:
        kernel = kernel.with_attr("global_symbol", name)
    return kernel


def _storing(fn: PrimFunc, out: Buffer) -> _Nest | None:
    """The last stage of `fn`, if it alone has to do with `out` and is such a nest."""
    *before, last = stages_of(fn.body)
    if any(n is out for stage in before for n in walk(stage)):
        return None
    loops = []
    while isinstance(last, For):
        loops.append(last)
        last = last.body
    if not loops or not isinstance(last, BlockRealize) or not is_const(last.predicate, 1):
        return None
    block = last.block
    plain = block.init is None and not block.alloc_buffers and not block.match_buffers
    if not plain or not isinstance(block.body, BufferStore) or block.body.buffer is not out:
        return None
    return _Nest(tuple(loops), last, block.body)


def _kept_branch(nest: _Nest, fn: PrimFunc) -> BufferLoad | None:
    """What the store takes from the input at its own place, if nothing else reads that input."""
    if nest.choice is None:
        return None
    _, kept, other = nest.choice
    if not isinstance(kept, BufferLoad) or kept.indices != nest.store.indices:
        return None
    elsewhere = (other, *stages_of(fn.body)[:-1])
    return None if any(n is kept.buffer for each in elsewhere for n in walk(each)) else kept


def _axis(nest: _Nest, kept: BufferLoad, fn: PrimFunc) -> int | None:
    """The axis along which the output is longer than the input, if the nest goes over all of the
    output, and only the size along that axis has to be known by another way afterwards.
    """
    out, source = nest.store.buffer, kept.buffer
    axes = {
        v.var: value for v, value in zip(nest.realize.block.iter_vars, nest.realize.iter_values)
    }
    loops = {loop.loop_var: loop for loop in nest.loops}
    longer = [k for k, (a, b) in enumerate(zip(source.shape, out.shape)) if a is not b]
    if len(longer) != 1 or len(source.shape) != len(out.shape) or source.dtype is not out.dtype:
        return None
    (axis,) = longer
    if source.strides or out.strides or not all(is_const(d, 1) for d in out.shape[:axis]):
        return None
    for index, size in zip(nest.store.indices, out.shape):
        value = axes.pop(index, None) if isinstance(index, Var) else None
        loop = loops.pop(value, None) if isinstance(value, Var) else None
        if loop is None or not is_const(loop.min, 0) or loop.extent is not size:
            return None
    if axes or loops:
        return None
    had = source.shape[axis]
    if nest.choice is None or nest.choice[0] is not (nest.store.indices[axis] < had):
        return None
    analyzer = Analyzer(wrap=False)
    for symbol, top in size_bounds(fn).items():
        analyzer.update(symbol, ConstIntBound(0, top))
    more = analyzer.simplify(out.shape[axis] - had)
    others = [b for b in fn.buffer_map.values() if b is not source and b is not out]
    sizes = [d for b in others for d in b.shape]
    # The output may be the shorter one.
    if not any(d is more for d in sizes) and not analyzer.can_prove(more >= 0):
        return None
    if isinstance(had, IntImm):
        return axis
    sizes += [more, *out.shape[:axis], *out.shape[axis + 1 :]]
    free = isinstance(had, Var) and not any(n is had for d in sizes for n in walk(d))
    return axis if free else None
