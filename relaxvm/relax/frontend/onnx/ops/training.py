"""Training: gradients of a part of the graph, and steps of optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .....base import FrontendError
from ....expr import TupleGetItem, Var, const
from ....struct_info import TensorStructInfo
from ....transform import Gradient, InlinePrivateFunctions
from ..registry import onnx, op
from ..values import dtype_of

_DOMAIN = "ai.onnx.preview.training"
_ADJOINT = "gradient"


@onnx("Gradient", domain=_DOMAIN)
def gradient(node: Any, *inputs: Any, xs: Any, zs: Any, y: str) -> Any:
    """The nodes between `xs` and `y` again, as a function of `xs`, and its adjoint."""
    zs = zs or ()
    if len(inputs) != len(xs) + len(zs):
        raise FrontendError(
            f"wanted {len(xs) + len(zs)} inputs, as xs and zs have, got {len(inputs)}"
        )
    known = dict(zip((*xs, *zs), inputs))
    nodes = list(reversed(list(_leading_to(node.graph.bodies[-1], node.proto, y, set(known)))))
    made = {o for proto in nodes for o in proto.output}
    around = {n: node.scope[n] for n in _taken(nodes) if n in node.scope and n not in made}
    values = {n: x for n, x in {**around, **known}.items() if isinstance(x, Var) or n in xs}
    if any(not isinstance(x.struct_info, TensorStructInfo) for x in values.values()):
        raise FrontendError("it is computed from sequences, which have no gradient here")
    inner = type(node.graph)(node.graph.model, dict(node.opsets))
    params = {n: Var(f"x{k}", x.struct_info) for k, (n, x) in enumerate(values.items())}
    scope = {**around, **known, **params}
    with inner.builder.function(_ADJOINT, list(params.values())):
        inner.nodes(nodes, scope, node.opsets, node.attributes)
        inner.builder.emit_func_output(
            inner.emit(op.sum(inner.lookup(scope, y, "attribute y"), None, False))
        )
    mod = InlinePrivateFunctions()(inner.builder.get())
    fn = mod[_ADJOINT]
    by = [p for p, n in zip(fn.params, params) if n in xs]
    mod = Gradient(func_name=_ADJOINT, require_grads=by)(mod)
    adjoint = mod[f"{_ADJOINT}_adjoint"].without_attr("global_symbol")
    builder = node.graph.builder
    gv = builder.add_func(adjoint, builder.get_unique_name(_ADJOINT))
    both = node.emit(gv(*values.values()))
    order = [n for n in params if n in xs]
    return [TupleGetItem(TupleGetItem(both, 1), order.index(n)) for n in xs]


def _leading_to(protos: Any, last: Any, y: str, known: set[str]) -> Iterator[Any]:
    """The nodes in front of `last` that `y` is computed by from what is known, backwards."""
    before = []
    for proto in protos:
        if proto is last:
            break
        before.append(proto)
    wanted = {y}
    for proto in reversed(before):
        if (wanted - known).intersection(proto.output):
            wanted.update(proto.input)
            if proto.op_type == "Gradient":
                wanted.update(a.s.decode() for a in proto.attribute if a.name == "y")
            yield proto


def _taken(protos: Any) -> Iterator[str]:
    for proto in protos:
        yield from proto.input
        for attribute in proto.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _taken(graph.node)


# -- optimizers ------------------------------------------------------------------------------------

Step = Callable[..., tuple[Any, ...]]


def _steps(inputs: tuple[Any, ...], states: int, step: Step) -> list[Any]:
    """What a step makes of each tensor: first the new tensors, then the states, one kind behind
    the other.

    inputs  the tensors, then their gradients, then the states, one kind behind the other
    """
    kinds = 2 + states
    if not inputs or len(inputs) % kinds:
        raise FrontendError(f"wanted {kinds} inputs for each tensor, got {len(inputs)}")
    count = len(inputs) // kinds
    updated = [step(*inputs[k::count]) for k in range(count)]
    return [x for column in zip(*updated) for x in column]


def _scale(x: Any, number: float) -> Any:
    return op.multiply(x, const(number, dtype_of(x)))


def _regular(x: Any, g: Any, norm: float) -> Any:
    return op.add(_scale(x, norm), g) if norm else g


def _rate(r: Any, x: Any) -> Any:
    return op.astype(op.reshape(r, ()), dtype_of(x))


@onnx("Adagrad", domain=_DOMAIN)
def adagrad(
    node: Any, r: Any, t: Any, *inputs: Any, decay_factor: float, epsilon: float,
    norm_coefficient: float,
) -> Any:  # fmt: skip
    def step(x: Any, g: Any, h: Any) -> tuple[Any, ...]:
        dtype = dtype_of(x)
        one = const(1.0, dtype)
        rate = op.divide(_rate(r, x), op.add(_scale(_rate(t, x), decay_factor), one))
        g = node.emit(_regular(x, g, norm_coefficient))
        h = node.emit(op.add(h, op.multiply(g, g)))
        scale = op.add(op.sqrt(h), const(epsilon, dtype))
        return op.subtract(x, op.divide(op.multiply(rate, g), scale)), h

    return _steps(inputs, 1, step)


@onnx("Adam", domain=_DOMAIN)
def adam(
    node: Any, r: Any, t: Any, *inputs: Any, alpha: float, beta: float, epsilon: float,
    norm_coefficient: float, norm_coefficient_post: float,
) -> Any:  # fmt: skip
    def step(x: Any, g: Any, v: Any, h: Any) -> tuple[Any, ...]:
        dtype = dtype_of(x)
        g = node.emit(_regular(x, g, norm_coefficient))
        v = node.emit(op.add(_scale(v, alpha), _scale(g, 1 - alpha)))
        h = node.emit(op.add(_scale(h, beta), _scale(op.multiply(g, g), 1 - beta)))
        time, rate = node.emit(_rate(t, x)), _rate(r, x)
        one = const(1.0, dtype)
        of_v, of_h = (op.subtract(one, op.power(const(c, dtype), time)) for c in (alpha, beta))
        corrected = op.divide(op.multiply(rate, op.sqrt(of_h)), of_v)
        # In front of the first step nothing is corrected.
        rate = op.where(op.greater(time, const(0.0, dtype)), corrected, rate)
        moved = op.divide(v, op.add(op.sqrt(h), const(epsilon, dtype)))
        x = op.subtract(x, op.multiply(rate, moved))
        return (_scale(x, 1 - norm_coefficient_post) if norm_coefficient_post else x), v, h

    return _steps(inputs, 2, step)


@onnx("Momentum", domain=_DOMAIN)
def momentum(
    node: Any, r: Any, t: Any, *inputs: Any, alpha: float, beta: float, mode: str,
    norm_coefficient: float,
) -> Any:  # fmt: skip
    if mode not in ("standard", "nesterov"):
        raise FrontendError(f"mode: wanted standard or nesterov, got {mode!r}")

    def step(x: Any, g: Any, v: Any) -> tuple[Any, ...]:
        dtype = dtype_of(x)
        g = node.emit(_regular(x, g, norm_coefficient))
        first = op.less_equal(_rate(t, x), const(0.0, dtype))
        share = op.where(first, const(1.0, dtype), const(beta, dtype))
        v = node.emit(op.add(_scale(v, alpha), op.multiply(share, g)))
        way = op.add(g, _scale(v, alpha)) if mode == "nesterov" else v
        return op.subtract(x, op.multiply(_rate(r, x), way)), v

    return _steps(inputs, 1, step)
