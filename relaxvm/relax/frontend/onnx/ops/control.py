"""Branches and loops: If, and Loop and Scan as functions that call themselves."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..... import tir
from .....base import FrontendError
from .....ir import IntImm
from ....expr import Function, If, Tuple, Var, const
from ....struct_info import (
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    parts,
)
from ....symbols import definable_tir_vars_in_struct_info, tir_vars_in_struct_info
from ..registry import onnx, op
from ..values import ABSENT, dims_of, dtype_of, numbers, shape_expr


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


def _joined(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else Tuple(tuple(values))


@onnx("If")
def if_(node: Any, condition: Any, *, then_branch: Any, else_branch: Any) -> Any:
    known = numbers(node.graph.elements.of(condition))
    if known is not None:
        return _body(node, then_branch if known.reshape(-1)[0] else else_branch, node.scope)
    scalar = node.emit(op.reshape(condition, ()))
    builder = node.graph.builder
    branches = []
    for graph in (then_branch, else_branch):
        builder.begin_scope()
        try:
            outputs = _body(node, graph, node.scope)
        except BaseException:
            builder.end_scope()
            raise
        if any(x is ABSENT for x in outputs):
            builder.end_scope()
            raise node.needs("condition, on which depends whether there is a result,", condition)
        branches.append(builder.end_scope(_joined(outputs)))
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
        return _unrolled(node, trips, condition, list(carried), body)

    def step(i: Any, values: list[Any], around: dict[str, Any]) -> Any:
        scope = {**around, names[0]: i, names[1]: const(True, "bool")}
        scope.update(zip(names[2:], values))
        go_on, *outputs = _body(node, body, scope)
        rows = outputs[count:]
        if rows:
            rows = [_declared(node, x, o) for x, o in zip(rows, body.output[-len(rows) :])]
        return op.reshape(go_on, ()), outputs[:count], rows

    most = const(np.iinfo("int64").max, "int64") if trips is None else op.reshape(trips, ())
    begin = const(True, "bool") if condition is None else op.reshape(condition, ())
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
    value = node.emit(value)
    info = TensorStructInfo(tuple(d.dim_value for d in dims), dtype_of(value))
    return node.graph.builder.match_cast(value, info)


def _unrolled(node: Any, trips: Any, condition: Any, values: list[Any], body: Any) -> list[Any]:
    """A loop over sequences, whose length changes: one iteration after the other, as many as are
    known to run.
    """
    most = np.iinfo("int64").max if trips is None else int(node.number(trips, "trip count"))
    go_on = condition is None or bool(node.number(condition, "condition"))
    count, rows, i = len(values), list[list[Any]](), 0
    while go_on and i < most:
        names = [p.name for p in body.input]
        scope = ChainMap(dict[str, Any](), node.scope)
        scope.update({names[0]: const(i, "int64"), names[1]: const(True, "bool")})
        scope.update(zip(names[2:], values))
        go, *outputs = _body(node, body, scope)
        go_on = bool(node.number(go, "condition"))
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
    names = [i.name for i in body.input]
    axes = [
        a % len(dims_of(x))
        for a, x in zip(scan_input_axes or [0] * num_scan_inputs, inputs[states:])
    ]
    back = list(scan_input_directions or [0] * num_scan_inputs)
    results = len(body.output) - states
    rows = [op.flip(x, a) if b else x for x, a, b in zip(inputs[states:], axes, back)]
    length = dims_of(inputs[states])[axes[0]]
    around = _around(node, body)
    # Names that no node can have, for what is read row by row.
    around.update({("row", k): node.emit(x) for k, x in enumerate(rows)})

    def step(i: Any, values: list[Any], inner: dict[Any, Any]) -> Any:
        scope = {n: v for n, v in inner.items() if isinstance(n, str)}
        scope.update(zip(names, values))
        for k, (name, axis) in enumerate(zip(names[states:], axes)):
            scope[name] = node.emit(op.take(inner["row", k], i, axis))
        outputs = _body(node, body, scope)
        return const(True, "bool"), outputs[:states], outputs[states:]

    trips = op.reshape(op.shape_to_tensor(shape_expr([length])), ())
    results_of_run = _run(
        node, trips, const(True, "bool"), list(inputs[:states]), step, around, results
    )
    for k in range(results):
        y = results_of_run[states + k]
        if scan_output_directions and scan_output_directions[k]:
            y = op.flip(y, 0)
        axis = scan_output_axes[k] if scan_output_axes else 0
        if axis:
            rank = len(dims_of(y))
            order = list(range(1, rank))
            order.insert(axis % rank, 0)
            y = op.permute_dims(y, order)
        results_of_run[states + k] = y
    return results_of_run


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
    carried = [node.emit(x) for x in carried]
    inner_values = {n: x for n, x in around.items() if isinstance(x, Var)}
    infos: list[Any] = [x.struct_info for x in carried]
    while True:
        frame = _Frame(infos, inner_values)
        with builder.nested_function(frame.params):
            go, values, rows = step(frame.i, frame.carried, {**around, **frame.around})
            node.emit(go)
            infos_after = [node.emit(v).struct_info for v in values]
            row_infos = [node.emit(r).struct_info for r in rows]
        wider = [_wider(a, b) for a, b in zip(infos, infos_after)]
        if all(a is b for a, b in zip(infos, wider)):
            break
        infos = wider
    _check_rows(row_infos, frame)
    frame = _Frame(infos, inner_values, row_infos)
    fields = tuple(_without_symbols(p.struct_info) for p in (*frame.carried, *frame.rows))
    returned = TupleStructInfo(fields)
    name = builder.get_unique_name("loop")
    gv = builder.add_func(Function.create_empty(frame.params, returned), name)
    with builder.function(gv.name_hint, frame.params):
        go_on = node.emit(op.logical_and(op.less(frame.i, frame.trips), frame.go))
        builder.begin_scope()
        go, values, rows = step(frame.i, frame.carried, {**around, **frame.around})
        collected = [
            node.emit(op.concat([whole, op.expand_dims(row, 0)], 0))
            for whole, row in zip(frame.rows, rows)
        ]
        following = node.emit(op.add(frame.i, const(1, "int64")))
        values = [node.emit(v) for v in values]
        again = builder.emit(
            gv(following, frame.trips, node.emit(go), *values, *collected, *frame.fixed)
        )
        more = builder.end_scope(again)
        builder.begin_scope()
        stop = builder.end_scope(Tuple((*frame.carried, *frame.rows)))
        builder.emit_func_output(builder.emit(If(go_on, more, stop)))
    builder.update_func(gv, builder.get()[gv].without_attr("global_symbol"))
    empty = [node.emit(op.zeros(shape_expr([0, *info.dims]), info.dtype)) for info in row_infos]
    symbols = [shape_expr(frame.loose)] if frame.loose else []
    whole = builder.emit(
        gv(
            const(0, "int64"),
            node.emit(trips),
            node.emit(condition),
            *carried,
            *empty,
            *inner_values.values(),
            *symbols,
        )
    )
    outputs = [importer.emit(whole[i], "", node.span) for i in range(len(carried) + results)]
    for k, info in enumerate(row_infos, len(carried)):
        # Of what is collected, all sizes but the number of iterations are known here.
        if not isinstance(dims_of(outputs[k])[0], IntImm):
            known = TensorStructInfo((dims_of(outputs[k])[0], *info.dims), info.dtype)
            outputs[k] = builder.match_cast(outputs[k], known)
    return outputs


class _Frame:
    """The parameters of a loop's function."""

    def __init__(
        self, infos: Sequence[Any], around: dict[Any, Var], rows: Sequence[Any] = ()
    ) -> None:
        scalar = TensorStructInfo((), "int64")
        self.i = Var("i", scalar)
        self.trips = Var("trips", scalar)
        self.go = Var("go", TensorStructInfo((), "bool"))
        self.carried = [Var(f"carried_{k}", info) for k, info in enumerate(infos)]
        self.rows = [
            Var(
                f"rows_{k}",
                TensorStructInfo((tir.Var(f"rows_{k}", "int64"), *info.dims), info.dtype),
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
        elif isinstance(a, tir.Var) and a.name.startswith("carried"):
            dims.append(a)  # varies already
        else:
            dims.append(tir.Var(f"carried_{len(dims)}", "int64"))
            changed = True
    return TensorStructInfo(tuple(dims), before.dtype) if changed else before


def dims_of_info(info: Any) -> tuple[Any, ...]:
    """The dimensions, None where they are unknown."""
    return info.dims if info.dims is not None else (None,) * info.ndim


def _check_rows(infos: Sequence[Any], frame: _Frame) -> None:
    """Refuse results of an iteration whose size only the iteration knows."""
    bound = {s for p in frame.params for s in tir_vars_in_struct_info(p.struct_info)}
    for info in infos:
        varying = [s for s in tir_vars_in_struct_info(info) if s not in bound]
        if not isinstance(info, TensorStructInfo) or info.dims is None or varying:
            raise FrontendError(
                f"a result that a loop collects is {info}: its shape must be known before the loop"
            )


def _without_symbols(info: Any) -> StructInfo:
    """What can be said of a value outside of the function that made it."""
    if isinstance(info, TensorStructInfo) and tir_vars_in_struct_info(info):
        return TensorStructInfo(dtype=info.dtype, ndim=info.ndim)
    return info
