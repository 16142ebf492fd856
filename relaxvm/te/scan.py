"""Tensors made row by row: `scan`, and what belongs to one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..arith import Analyzer
from ..base import TIRError
from ..ir import Map, PrimExpr, Range, cast, walk
from ..tir import IterVar
from .operation import current_tag
from .tensor import ComputeOp, Operation, PlaceholderOp, ProducerLoad, ScanOp, Tensor, same_size


def scan(
    init: Any,
    update: Any,
    state_placeholder: Any,
    inputs: Any = None,
    name: str = "scan",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Tensors whose rows follow from earlier rows.

    init               the first rows, (k, ...)
    update             the formula of row t, for t from k on; of the shape of the result, (m, ...)
    state_placeholder  what stands for the result in `update`, (m, ...)
    inputs             other tensors that `update` reads; none need be named

    Each may be a list, for several states at once. Returns a Tensor, or a list of them.

        s = te.placeholder((m, n))
        first = te.compute((1, n), lambda _, i: X[0, i])
        sums = te.compute((m, n), lambda t, i: s[t - 1, i] + X[t, i])
        S = te.scan(first, sums, s)          # sums along the columns
    """
    parts = [_listed(p) for p in (init, update, state_placeholder)]
    first, step, state = parts
    if not first or len({len(p) for p in parts}) != 1:
        raise TIRError(
            f"scan {name}: wanted as many init as update and state tensors, got "
            f"{', '.join(str(len(p)) for p in parts)}"
        )
    for p in (t for part in (*parts, _listed(inputs)) for t in part):
        if not isinstance(p, Tensor):
            raise TIRError(f"scan {name}: wanted tensors, got {type(p).__name__}")
    for i, u, s in zip(*parts):
        if not isinstance(s.op, PlaceholderOp):
            raise TIRError(f"scan {name}: the state {s.name} is a te.placeholder")
        alike = u.dtype is i.dtype is s.dtype and u.ndim == i.ndim == s.ndim and s.ndim > 0
        if not alike or not (_alike(u.shape, s.shape) and _alike(i.shape[1:], s.shape[1:])):
            raise TIRError(
                f"scan {name}: init {_told(i)}, update {_told(u)} and state {_told(s)} differ in "
                f"more than the number of rows of init"
            )
        if not _alike((i.shape[0], u.shape[0]), (first[0].shape[0], step[0].shape[0])):
            raise TIRError(f"scan {name}: the states have different numbers of rows")
    begin, rows = first[0].shape[0], step[0].shape[0]
    axis = IterVar(Range.from_min_extent(begin, rows - begin), "t", "ordered")
    op = ScanOp(
        name,
        tag or current_tag(),
        Map(attrs),
        axis,
        tuple(first),
        tuple(step),
        tuple(state),
        tuple(_listed(inputs)),
    )
    outputs = [op.output(i) for i in range(len(state))]
    return outputs[0] if len(outputs) == 1 else outputs


def _listed(tensors: Any) -> list[Tensor]:
    return [] if tensors is None else [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _alike(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    return len(a) == len(b) and all(map(same_size, a, b))


def _told(t: Tensor) -> str:
    return f"{t.name} ({', '.join(map(str, t.shape))}) {t.dtype}"


# -- rows ------------------------------------------------------------------------------------------


def row_operations(op: ScanOp) -> frozenset[Operation]:
    """What is computed for each row: the updates, and what they need that reads the state."""
    states = {s.op for s in op.state_placeholder}
    follows: dict[Operation, bool] = {}
    stack: list[tuple[Operation, bool]] = [(u.op, False) for u in op.update]
    while stack:
        each, ready = stack.pop()
        inputs = [t.op for t in each.input_tensors]
        if ready:
            follows[each] = each in states or any(follows.get(i, False) for i in inputs)
        elif each not in follows:
            follows[each] = False
            stack.append((each, True))
            stack.extend((i, False) for i in inputs)
    return frozenset({*(e for e, f in follows.items() if f), *(u.op for u in op.update)} - states)


def read_by(op: ScanOp) -> tuple[Tensor, ...]:
    """The tensors that must be there before the first row."""
    inner = row_operations(op)
    states = {s.op for s in op.state_placeholder}
    inputs = (t for each in inner for t in each.input_tensors)
    outside = sorted(
        (t for t in inputs if t.op not in inner and t.op not in states), key=lambda t: t.name
    )
    return tuple(dict.fromkeys((*op.init, *outside)))


def check_row(each: Operation, op: ScanOp, inner: frozenset[Operation]) -> None:
    """Raises TIRError if `each`, a part of a row, reads rows that are not there yet."""
    if not isinstance(each, ComputeOp) or not each.axis:
        raise TIRError(
            f"scan {op.name}: {each.name} reads the state; only a compute whose first axis is that "
            f"of the rows can"
        )
    row = each.axis[0].var
    assert op.scan_axis.dom is not None
    begin = cast(row.dtype, op.scan_axis.dom.min)
    analyzer = Analyzer(wrap=False)
    for e in each.body:
        for n in walk(e, (Tensor,)):
            if not isinstance(n, ProducerLoad) or not n.indices:
                continue
            read = cast(row.dtype, n.indices[0])
            if n.producer.op in inner and not analyzer.can_prove_equal(read, row):
                raise TIRError(
                    f"scan {op.name}: {each.name} reads {n.producer.name} of another row; only "
                    f"the state has earlier rows"
                )
            if n.producer in op.state_placeholder:
                with analyzer.constraint_scope(row >= begin):
                    known = analyzer.can_prove(read >= 0) and analyzer.can_prove(read < row)
                if not known:
                    raise TIRError(
                        f"scan {op.name}: {each.name} reads the state at row {n.indices[0]}, which "
                        f"is not known to lie before row {row}"
                    )
