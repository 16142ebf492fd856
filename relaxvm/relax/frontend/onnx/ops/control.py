"""Branches and loops: If, and Loop and Scan as functions that call themselves."""

from __future__ import annotations

import contextlib
import functools
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..... import tir
from .....base import FrontendError
from .....ir import IntImm, walk
from ....derive import elements, struct_info_lca
from ....expr import Function, If, Tuple, Var, const
from ....op.loops import for_each, load, loop_function, store
from ....struct_info import (
    SequenceStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    parts,
)
from ....symbols import (
    definable_tir_vars_in_struct_info,
    erase_unbound,
    tir_vars_in_struct_info,
)
from ..registry import onnx, op
from ..values import ABSENT, dims_of, dtype_of, numbers, shape_expr
from .sequence import as_info


def _outer(graph: Any) -> Iterator[str]:
    """Names that a graph, or one inside of it, takes from around it."""
    own = {t.name for t in graph.initializer} | {i.name for i in graph.input}
    for proto in graph.node:
        inner = [a.g for a in proto.attribute if a.HasField("g")]
        inner += [g for a in proto.attribute for g in a.graphs]
        for name in (*proto.input, *(n for g in inner for n in _outer(g))):
            if name and name not in own:
                yield name
        own.update(proto.output)
    yield from (o.name for o in graph.output if o.name not in own)


def _body(node: Any, graph: Any, scope: Any) -> list[Any]:
    """The outputs of a graph inside of `node`, imported where the builder stands."""
    importer = node.graph
    inner = ChainMap({}, scope)
    for proto in graph.initializer:
        from_file = importer.model.tensor(proto)
        inner[proto.name] = const(from_file)
    importer.nodes(graph.node, inner, node.opsets, node.attributes)
    return [importer.lookup(inner, o.name, f"output {o.name}") for o in graph.output]


def _around(node: Any, body: Any) -> dict[Any, Any]:
    """What the graph `body` uses of the values around it."""
    own = {i.name for i in body.input}
    names = (n for n in dict.fromkeys(_outer(body)) if n not in own)
    return {n: node.graph.lookup(node.scope, n, "its body") for n in names}


def _scalar(x: Any) -> Any:
    return op.reshape(x, ()) if dims_of(x) else x


def _joined(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else Tuple(tuple(values))


@onnx("If")
def if_(node: Any, condition: Any, *, then_branch: Any, else_branch: Any) -> Any:
    if not dtype_of(condition).is_bool:
        raise node.error(f"wanted a condition of bool, got {dtype_of(condition)}")
    known = numbers(node.graph.elements.of(condition))
    if known is not None:
        return _body(node, then_branch if known.reshape(-1)[0] else else_branch, node.scope)
    scalar = node.emit(op.reshape(condition, ()))
    builder = node.graph.builder
    wanted: list[Any] = [None] * len(then_branch.output)
    while True:
        branches, infos = [], []
        for graph in (then_branch, else_branch):
            builder.begin_scope()
            try:
                outputs = _body(node, graph, node.scope)
            except BaseException:
                builder.end_scope()
                raise
            if any(x is ABSENT for x in outputs):
                builder.end_scope()
                raise node.needs(
                    "condition, on which depends whether there is a result,", condition
                )
            outputs = [node.emit(as_info(node, x, info)) for x, info in zip(outputs, wanted)]
            branches.append(builder.end_scope(_joined(outputs)))
            infos.append([x.struct_info for x in outputs])
        joined = [a if a is b else _sequence_of(a, b) for a, b in zip(*infos)]
        if all(info is None or info is wanted[k] for k, info in enumerate(joined)):
            break
        # Sequences of different lengths: what both are is known now.
        wanted = joined
    chosen = If(scalar, *branches)
    if any(isinstance(i, TensorStructInfo) and i.ndim < 0 for i in parts(chosen.struct_info)):
        raise node.needs("condition, on which depends the rank of a result,", condition)
    value = node.emit(chosen)
    return [value] if len(then_branch.output) == 1 else list(value)


# -- loops -----------------------------------------------------------------------------------------

Step = Callable[[Any, list[Any], dict[str, Any]], tuple[Any, list[Any], list[Any]]]
"""(iteration, what is carried, values around) -> (whether to go on, what is carried, results)."""


@onnx("Loop")
def loop(node: Any, trips: Any = None, condition: Any = None, *carried: Any, body: Any) -> Any:
    names = [i.name for i in body.input]
    count = len(carried)
    if any(x is ABSENT or not isinstance(x.struct_info, TensorStructInfo) for x in carried):
        unrolled = _unrolled(node, trips, condition, list(carried), body)
        if unrolled is not None:
            return unrolled

    def step(i: Any, values: list[Any], around: dict[str, Any]) -> Any:
        scope = {**around, names[0]: i, names[1]: const(True, "bool")}
        scope.update(zip(names[2:], values))
        go_on, *outputs = _body(node, body, scope)
        rows = outputs[count:]
        if rows:
            rows = [_declared(node, x, o) for x, o in zip(rows, body.output[-len(rows) :])]
        return _scalar(go_on), outputs[:count], rows

    most = const(np.iinfo("int64").max, "int64") if trips is None else _scalar(trips)
    begin = const(True, "bool") if condition is None else _scalar(condition)
    around = _around(node, body)
    results = len(body.output) - 1 - count
    return _run(node, most, begin, list(carried), step, around, results)


def _declared(node: Any, value: Any, declared: Any) -> Any:
    """A result of a loop, checked at run time to have the sizes that the model declares for it,
    where they are not known otherwise.
    """
    dims = declared.type.tensor_type.shape.dim
    if all(isinstance(d, IntImm) for d in dims_of(value)) or not dims:
        return value
    if len(dims) != len(dims_of(value)) or not all(d.HasField("dim_value") for d in dims):
        return value
    return node.sized(value, *(d.dim_value for d in dims))


_UNROLLED_AT_MOST = 64


def _unrolled(
    node: Any, trips: Any, condition: Any, values: list[Any], body: Any
) -> list[Any] | None:
    """A loop over sequences, whose length changes: one iteration after the other, if it is known
    that few run. An optional without a value needs that.
    """
    importer = node.graph
    needed = any(x is ABSENT for x in values)

    def known(x: Any, what: str) -> Any:
        values = np.array(True) if x is None else numbers(importer.elements.of(x))
        return node.number(x, what) if values is None and needed else values

    most, first = known(trips, "trip count"), known(condition, "condition")
    if most is None or first is None:
        return None
    if not needed and (trips is None or most > _UNROLLED_AT_MOST):
        return None
    most, go_on = np.iinfo("int64").max if trips is None else int(most), bool(first)
    count, rows, i = len(values), list[list[Any]](), 0
    around = importer.position()
    while go_on and i < most:
        names = [p.name for p in body.input]
        scope = ChainMap(dict[str, Any](), node.scope)
        scope.update({names[0]: const(i, "int64"), names[1]: const(True, "bool")})
        scope.update(zip(names[2:], values))
        with _iteration(importer, around, const(i, "int64")):
            go, *outputs = _body(node, body, scope)
        goes = known(go, "condition")
        if goes is None:
            return None
        go_on = bool(goes)
        values, i = outputs[:count], i + 1
        rows.append(outputs[count:])
    collected = [op.stack(Tuple(column), 0) for column in zip(*rows)]
    if len(collected) < len(body.output) - 1 - count:
        raise FrontendError("a loop that never runs gives results of unknown shape")
    return [*values, *collected]


@onnx("Scan", since=9)
def scan(
    node: Any,
    *inputs: Any,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Any,
    scan_input_directions: Any,
    scan_output_axes: Any,
    scan_output_directions: Any,
) -> Any:
    states = len(inputs) - num_scan_inputs
    axes = [
        a % len(dims_of(x))
        for a, x in zip(scan_input_axes or [0] * num_scan_inputs, inputs[states:])
    ]
    back = scan_input_directions or [0] * num_scan_inputs
    rows = [op.flip(x, a) if b else x for x, a, b in zip(inputs[states:], axes, back)]
    outputs = _scanned(node, body, inputs[:states], rows, axes, _around(node, body))
    for k in range(len(body.output) - states):
        y = outputs[states + k]
        if scan_output_directions and scan_output_directions[k]:
            y = op.flip(y, 0)
        axis = scan_output_axes[k] if scan_output_axes else 0
        if axis:
            rank = len(dims_of(y))
            order = list(range(1, rank))
            order.insert(axis % rank, 0)
            y = op.permute_dims(y, order)
        outputs[states + k] = y
    return outputs


@onnx("Scan", since=8)
def scan_8(
    node: Any,
    lengths: Any,
    *inputs: Any,
    body: Any,
    num_scan_inputs: int,
    directions: Any,
) -> Any:
    states = len(inputs) - num_scan_inputs
    if len(inputs) < num_scan_inputs or not inputs:
        raise FrontendError(f"wanted {num_scan_inputs} inputs to scan, got {len(inputs)}")
    backward = directions or [0] * num_scan_inputs
    # The axes are batch and time; what each of the batch has is a scan of its own.
    rows = [op.flip(x, 1) if b else x for x, b in zip(inputs[states:], backward)]
    wholes = {("whole", k): node.emit(x) for k, x in enumerate([*inputs[:states], *rows])}
    if lengths is not None:
        wholes["whole", -1] = lengths
    batch = dims_of(wholes["whole", 0])[0]

    def one(b: Any, values: list[Any], inner: dict[Any, Any]) -> Any:
        parts = [node.emit(op.take(inner["whole", k], b, 0)) for k in range(len(inputs))]
        length = None if lengths is None else node.emit(op.take(inner["whole", -1], b, 0))
        outer = {n: v for n, v in inner.items() if not isinstance(n, tuple)}
        axes = [0] * num_scan_inputs
        found = _scanned(node, body, parts[:states], parts[states:], axes, outer, length)
        return const(True, "bool"), [], found

    around = {**_around(node, body), **wholes}
    return _run(node, _length(batch), const(True, "bool"), [], one, around, len(body.output))


def _length(dim: Any) -> Any:
    """A dimension as a tensor."""
    return op.reshape(op.shape_to_tensor(shape_expr([dim])), ())


def _scanned(
    node: Any,
    body: Any,
    states: Sequence[Any],
    rows: Sequence[Any],
    axes: Sequence[int],
    around: dict[Any, Any],
    length: Any = None,
) -> list[Any]:
    """The last states of a scan over `axes` of `rows`, and what it collects along the first axis.

    length  how many steps count; what is behind them leaves the states and gives zeros
    """
    names = [i.name for i in body.input]
    count = len(states)
    # Names that no node can have, for what is read row by row.
    around = {**around, **{("row", k): node.emit(x) for k, x in enumerate(rows)}}
    if length is not None:
        around["row", -1] = length

    def step(i: Any, values: list[Any], inner: dict[Any, Any]) -> Any:
        scope = {n: v for n, v in inner.items() if isinstance(n, str)}
        scope.update(zip(names, values))
        for k, (name, axis) in enumerate(zip(names[count:], axes)):
            scope[name] = node.emit(op.take(inner["row", k], i, axis))
        outputs = _body(node, body, scope)
        if length is not None:
            counts = node.emit(op.less(i, op.astype(inner["row", -1], "int64")))
            others = [*values, *(const(0, dtype_of(y)) for y in outputs[count:])]
            outputs = [op.where(counts, y, other) for y, other in zip(outputs, others)]
        return const(True, "bool"), outputs[:count], outputs[count:]

    trips, results = _length(dims_of(rows[0])[axes[0]]), len(body.output) - count
    return _run(node, trips, const(True, "bool"), list(states), step, around, results)


def _run(
    node: Any,
    trips: Any,
    condition: Any,
    carried: list[Any],
    step: Step,
    around: dict[Any, Any],
    results: int,
) -> list[Any]:
    """Call a new function of the module that runs `step` until it says to stop, or `trips` times.

    Its parameters are the iteration's number, `trips`, whether to go on, what is carried, what has
    been collected of the results, and what `step` uses of the values around. A dimension of what is
    carried that changes from one iteration to the next is a symbol of the function.
    """
    importer, builder = node.graph, node.graph.builder
    carried, condition = [node.emit(x) for x in carried], node.emit(condition)
    position = importer.position()
    if position is not None:
        around = {**around, _POSITION: position}
    inner_values = {n: x for n, x in around.items() if isinstance(x, Var)}
    infos: list[Any] = [x.struct_info for x in carried]

    def stepped(frame: _Frame) -> Any:
        inside = {**around, **frame.around}
        with _iteration(importer, inside.pop(_POSITION, None), frame.i):
            go, values, rows = step(frame.i, frame.carried, inside)
            values = [as_info(node, v, info) for v, info in zip(values, infos)]
            return node.emit(go), [node.emit(v) for v in values], [node.emit(r) for r in rows]

    while True:
        frame = _Frame(infos, inner_values)
        with builder.nested_function(frame.params):
            go, values, rows = stepped(frame)
            infos_after = [v.struct_info for v in values]
            row_infos = [r.struct_info for r in rows]
        wider = [_wider(a, b) for a, b in zip(infos, infos_after)]
        if all(a is b for a, b in zip(infos, wider)):
            break
        infos = wider
    _check_rows(row_infos)
    known = {s for p in frame.params for s in tir_vars_in_struct_info(p.struct_info)}
    known = {s for s in known if not is_varying(s)}
    carried = [node.emit(as_info(node, x, info)) for x, info in zip(carried, infos)]
    if (
        _is_true(importer, condition)
        and _is_true(importer, go)
        and all(_in_loops(info) and known.issuperset(_symbols(*info.dims)) for info in row_infos)
    ):
        # It runs so many times: results are written to their places, in memory that is there.
        trips = node.emit(op.maximum(trips, const(0, "int64")))
        (count,) = node.sizes(trips, "trips")
        place = [_put_row(importer, info) for info in row_infos]
    else:
        # Nobody knows how many rows there will be, or how large: they are a sequence first.
        count, place = tir.const(0, "int64"), None
    frame = _Frame(infos, inner_values, row_infos, place is None)
    fields = tuple(_without_symbols(p.struct_info) for p in (*frame.carried, *frame.rows))
    returned = TupleStructInfo(fields)
    name = builder.get_unique_name("loop")
    gv = builder.add_func(Function.create_empty(frame.params, returned), name)
    with builder.function(gv.name_hint, frame.params):
        go_on = node.emit(op.logical_and(op.less(frame.i, frame.trips), frame.go))
        builder.begin_scope()
        go, values, rows = stepped(frame)
        collected = [
            builder.emit(put(whole, row, frame.i))
            for put, whole, row in zip(place or [_behind] * results, frame.rows, rows)
        ]
        following = node.emit(op.add(frame.i, const(1, "int64")))
        again = builder.emit(gv(following, frame.trips, go, *values, *collected, *frame.fixed))
        more = builder.end_scope(again)
        builder.begin_scope()
        stop = builder.end_scope(Tuple((*frame.carried, *frame.rows)))
        builder.emit_func_output(builder.emit(If(go_on, more, stop)))
    builder.update_func(gv, builder.get()[gv].without_attr("global_symbol"))
    empty = [
        node.emit(op.sequence.empty(info.dtype, info.ndim))
        if place is None
        else _room(importer, [count, *info.dims], info.dtype)
        for info in row_infos
    ]
    symbols = [shape_expr(frame.loose)] if frame.loose else []
    whole = builder.emit(
        gv(
            const(0, "int64"),
            node.emit(trips),
            condition,
            *carried,
            *empty,
            *inner_values.values(),
            *symbols,
        )
    )
    outputs = [importer.emit(whole[i], "", node.span) for i in range(len(carried) + results)]
    for k, info in enumerate([*infos, *row_infos]):
        if not isinstance(info, TensorStructInfo):
            continue
        # All sizes are known here but those that change, and the number of iterations.
        dims: list[Any] = list(info.dims or ())
        if k >= len(infos):
            if place is None:
                none = [0, *(d if known.issuperset(_symbols(d)) else 0 for d in dims)]
                nothing = op.zeros(shape_expr(none), info.dtype)
                outputs[k] = node.emit(op.sequence.concat(outputs[k], nothing, new_axis=True))
            dims.insert(0, None if place is None else count)
        here = dims_of(outputs[k])
        dims = [
            d if d is not None and known.issuperset(_symbols(d)) else h for d, h in zip(dims, here)
        ]
        if any(h is not d and not isinstance(h, IntImm) for d, h in zip(dims, here)):
            outputs[k] = builder.match_cast(outputs[k], TensorStructInfo(dims, info.dtype))
    return outputs


def _is_true(importer: Any, x: Any) -> bool:
    values = numbers(importer.elements.of(x))
    return values is not None and bool(values.reshape(-1)[0])


def _in_loops(info: Any) -> bool:
    """Whether loop functions move elements of this kind."""
    return bool(info.dtype.is_int or info.dtype.is_float or info.dtype.is_bool)


def _behind(rows: Any, row: Any, i: Any) -> Any:
    return op.sequence.insert(rows, row)


def _put_row(importer: Any, info: TensorStructInfo) -> Callable[[Any, Any, Any], Any]:
    """A function that makes a call which writes a row to its place, over what is there."""
    dims = [tir.Var(f"d{k}", "int64") for k in range(info.ndim)]
    rows = tir.decl_buffer([tir.Var("n", "int64"), *dims], info.dtype, "rows")
    row, place = tir.decl_buffer(dims, info.dtype, "row"), tir.decl_buffer((), "int64", "place")
    body = for_each(dims, lambda *k: store(rows, load(row, *k), load(place), *k))
    gv = importer.builder.add_func(loop_function([rows, row, place], body), "put_row")
    return lambda x, y, i: op.call_tir_inplace(gv, (x, y, i), 0, x.struct_info)


def _room(importer: Any, dims: list[Any], dtype: Any) -> Any:
    """Where rows are collected. Nobody else may have what is written over: a constant, or what
    becomes one with another value like it; so it is written over here already.
    """
    empty = importer.emit(op.zeros(shape_expr(dims), dtype))
    if not isinstance(empty, Var):
        empty = importer.builder.emit(empty)
    buffer = tir.decl_buffer([tir.Var(f"d{k}", "int64") for k in range(len(dims))], dtype, "rows")
    body = for_each(buffer.shape, lambda *k: store(buffer, tir.const(0, dtype), *k))
    gv = importer.builder.add_func(loop_function([buffer], body), "clear")
    return importer.builder.emit(op.call_tir_inplace(gv, (empty,), 0, empty.struct_info))


class _Frame:
    """The parameters of a loop's function."""

    def __init__(
        self,
        infos: Sequence[Any],
        around: dict[Any, Var],
        rows: Sequence[Any] = (),
        as_sequences: bool = False,
    ) -> None:
        scalar = TensorStructInfo((), "int64")
        self.i = Var("i", scalar)
        self.trips = Var("trips", scalar)
        self.go = Var("go", TensorStructInfo((), "bool"))
        self.carried = [Var(f"carried_{k}", info) for k, info in enumerate(infos)]
        self.rows = [
            Var(
                f"rows_{k}",
                SequenceStructInfo(TensorStructInfo(None, info.dtype, None, info.ndim))
                if as_sequences
                else TensorStructInfo((tir.Var(f"rows_{k}", "int64"), *info.dims), info.dtype),
            )
            for k, info in enumerate(rows)
        ]
        self.around = {n: Var(x.name_hint, x.struct_info) for n, x in around.items()}
        plain = [self.i, self.trips, self.go, *self.carried, *self.rows, *self.around.values()]
        bound = {s for p in plain for s in definable_tir_vars_in_struct_info(p.struct_info)}
        used = {s: None for p in plain for s in tir_vars_in_struct_info(p.struct_info)}
        # Symbols that no parameter's shape binds come as a shape of their own.
        self.loose = [s for s in used if s not in bound]
        more = [Var("symbols", ShapeStructInfo(self.loose))] if self.loose else []
        self.fixed = [*self.around.values(), *more]
        self.params = [self.i, self.trips, self.go, *self.carried, *self.rows, *self.fixed]


def _wider(before: Any, after: Any) -> Any:
    """`before` with symbols in the dimensions that `after` has otherwise."""
    if before is after:
        return before
    sequence = _sequence_of(before, after)
    if sequence is not None:
        return sequence
    if isinstance(before, TupleStructInfo) and isinstance(after, TupleStructInfo):
        fields = [_wider(a, b) for a, b in zip(before.fields, after.fields)]
        return TupleStructInfo(fields)
    same = isinstance(before, TensorStructInfo) and isinstance(after, TensorStructInfo)
    if not same or before.dtype is not after.dtype or before.ndim != after.ndim:
        raise FrontendError(
            f"what a loop carries is {before} before an iteration and {after} behind it; wanted "
            "the same dtype and rank"
        )
    dims = []
    changed = False
    for a, b in zip(dims_of_info(before), after.dims or [None] * after.ndim):
        if a is b or (b is not None and str(a) == str(b)):
            dims.append(a)
        elif is_varying(a):
            dims.append(a)  # varies already
        else:
            dims.append(tir.Var(f"{_VARYING}{len(dims)}", "int64"))
            changed = True
    return TensorStructInfo(tuple(dims), before.dtype) if changed else before


def _sequence_of(a: Any, b: Any) -> Any:
    """The sequences that values of `a` and of `b` are; None unless these are sequences (or tuples)
    that are not of one known length.
    """
    kinds = (SequenceStructInfo, TupleStructInfo)
    if not isinstance(a, kinds) or not isinstance(b, kinds):
        return None
    infos = [*elements(a), *elements(b)]
    if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo):
        if len(a.fields) == len(b.fields):
            return None
    return SequenceStructInfo(functools.reduce(struct_info_lca, infos))


@contextlib.contextmanager
def _iteration(importer: Any, around: Any, i: Any) -> Iterator[None]:
    """Inside of it, the iteration `i` of a loop is imported, at the position `around`."""
    before = importer.stream
    importer.stream = around, i
    try:
        yield
    finally:
        importer.stream = before


# Names the position of a loop, as no node can be called.
_POSITION = ("position",)

# How symbols of dimensions are called that change from one iteration to the next.
_VARYING = "varying_in_loop_"


def is_varying(dim: Any) -> bool:
    """Whether a dimension of what a loop carries changes from one iteration to the next."""
    return isinstance(dim, tir.Var) and dim.name.startswith(_VARYING)


def dims_of_info(info: Any) -> tuple[Any, ...]:
    """The dimensions, None where they are unknown."""
    return info.dims if info.dims is not None else (None,) * info.ndim


def _symbols(*dims: Any) -> set[Any]:
    """The symbols of dimensions."""
    return {n for d in dims for n in walk(d) if isinstance(n, tir.Var)}


def _check_rows(infos: Sequence[Any]) -> None:
    """Refuse results of an iteration that no tensor can hold all of."""
    for info in infos:
        if not isinstance(info, TensorStructInfo) or info.dims is None:
            raise FrontendError(
                f"a result that a loop collects is {info}: wanted a tensor of known rank"
            )


def _without_symbols(info: Any) -> StructInfo:
    """What can be said of a value outside of the function that made it."""
    return erase_unbound(info, ())
