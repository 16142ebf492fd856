"""Primitives that say how a loop is run, and those that leave remarks on loops and blocks."""

from __future__ import annotations

from typing import Any

from ....ir import IntImm, PrimExpr, Range, Var, as_expr, const
from ...stmt import For, ForKind, IterVar
from ..model.bindings import loop_uses
from ..model.dependence import check_no_bare_statements, check_parallel
from ..model.facts import BlockKind, facts_of
from ..model.primitive import BLOCK_OR_LOOP, EXTRA, LOOP, primitive
from ..model.state import State, refuse


def _set_kind(state: State, f: For, kind: ForKind, binding: Any = None) -> State:
    return state.replace(f, f.replace(kind=kind, thread_binding=binding))


@primitive(loop=LOOP)
def parallel(state: State, loop: Var) -> tuple[State, None]:
    """Run the iterations of a loop on several threads.

    Raises ScheduleError unless they are shown to be independent: the loop moves only spatial axes,
    and what is read in an iteration was written in it or before the loop.

        for i in range(8):    →    for i in T.parallel(8):
    """
    f = state.loop(loop)
    check_parallel(state, f, "parallel")
    return _set_kind(state, f, ForKind.PARALLEL), None


@primitive(loop=LOOP)
def vectorize(state: State, loop: Var) -> tuple[State, None]:
    """Run the iterations of a loop as lanes of vectors.

    Raises ScheduleError unless the loop has a constant extent and its iterations are shown to be
    independent and to write elements of their own.

        for i in range(8):    →    for i in T.vectorized(8):
    """
    f = state.loop(loop)
    if not isinstance(f.extent, IntImm):
        refuse(
            f"loop {loop.name} has the extent {f.extent}; only a loop of constant extent can be "
            "vectorized: split it first",
            f,
        )
    check_parallel(state, f, "vectorized")
    return _set_kind(state, f, ForKind.VECTORIZED), None


@primitive(loop=LOOP)
def unroll(state: State, loop: Var) -> tuple[State, None]:
    """Write the iterations of a loop out one after the other when it is lowered.

    for i in range(4):    →    for i in T.unroll(4):
    """
    return _set_kind(state, state.loop(loop), ForKind.UNROLLED), None


_THREADS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")


@primitive(loop=LOOP)
def bind(state: State, loop: Var, thread_axis: str) -> tuple[State, None]:
    """Bind a loop to a thread axis: "blockIdx.x" … "threadIdx.z" or "vthread".

    Raises ScheduleError unless the iterations are shown to be independent, or to be steps of one
    reduction that "threadIdx.x", "threadIdx.y" or "threadIdx.z" share.

        for i in range(8):    →    for i in T.thread_binding(8, thread="threadIdx.x"):
    """
    f = state.loop(loop)
    if thread_axis not in _THREADS and not thread_axis.startswith("vthread"):
        refuse(f"wanted one of {', '.join(_THREADS)} or vthread, got {thread_axis!r}", f)
    if not (thread_axis.startswith("threadIdx") and _only_reduces(state, f)):
        check_parallel(state, f, "parallel")
    axis = IterVar(
        Range.from_min_extent(f.min, f.extent), Var("", loop.dtype), "thread", thread_axis
    )
    return _set_kind(state, f, ForKind.THREAD_BINDING, axis), None


def _only_reduces(state: State, f: For) -> bool:
    """Whether all that a loop does is to go through a reduce axis of one reduction."""
    check_no_bare_statements(state, f.body)
    realizes = state.child_realizes(f.body)
    if len(realizes) != 1 or loop_uses(realizes[0], f.loop_var) != {"reduce"}:
        return False
    facts = facts_of(state, realizes[0].block)
    return facts.kind is BlockKind.REDUCTION and facts.commutative


def _value(v: Any) -> Any:
    if isinstance(v, PrimExpr):
        return v
    if isinstance(v, (list, tuple)):
        return tuple(_value(x) for x in v)
    if isinstance(v, dict):
        return {k: _value(x) for k, x in v.items()}
    if isinstance(v, bool):
        return const(v, "bool")
    return as_expr(v) if isinstance(v, (int, float)) else v


@primitive(block_or_loop=BLOCK_OR_LOOP, ann_val=EXTRA)
def annotate(state: State, block_or_loop: Any, ann_key: str, ann_val: Any) -> tuple[State, None]:
    """Leave a remark on a block or loop, for passes or for other tools.

    ann_val  a number, string, list or dictionary of them

        with T.block("B"):    →    with T.block("B"):
            ...                        T.block_attr({"key": 1})
                                       ...
    """
    target: Any = state.loop(block_or_loop) if isinstance(block_or_loop, Var) else block_or_loop
    state.check(target)
    annotated = target.replace(annotations=target.annotations.with_({ann_key: _value(ann_val)}))
    return state.replace(target, annotated), None


@primitive(block_or_loop=BLOCK_OR_LOOP)
def unannotate(state: State, block_or_loop: Any, ann_key: str) -> tuple[State, None]:
    """Take a remark away again. Raises ScheduleError if there is none of that name.

    T.block_attr({"key": 1})    →    (gone)
    """
    target: Any = state.loop(block_or_loop) if isinstance(block_or_loop, Var) else block_or_loop
    if ann_key not in target.annotations:
        there = ", ".join(map(str, target.annotations)) or "none"
        refuse(f"no annotation {ann_key!r} here; there are: {there}", target)
    plain = target.replace(annotations=target.annotations.without(ann_key))
    return state.replace(target, plain), None
