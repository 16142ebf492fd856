"""Recurrent layers: RNN, GRU, LSTM. A direction is a call of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .....base import FrontendError
from ....expr import Tuple, const
from ..registry import Floats, onnx, op, passes_on
from ..values import dims_of, dtype_of, shape_expr

# Activation -> alpha and beta where the model does not say them, as ONNX has it.
_NUMBERS: dict[str, tuple[float, ...]] = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01,),
    "thresholdedrelu": (1.0,),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0,),
}
_REVERSED = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


_KEYS = ("activations", "alphas", "betas")


def _activations(
    activations: Any, alphas_and_betas: Sequence[Floats], directions: int, defaults: Sequence[str]
) -> Any:
    """For each direction, the attributes `activations`, `alphas` and `betas`."""
    names = [n.lower() for n in activations or [*defaults] * directions]
    count = len(defaults)
    if len(names) not in (count, count * directions) and len(names) < count * directions:
        raise FrontendError(f"wanted {count * directions} activations, got {list(names)}")
    numbers = []
    for place, attribute in enumerate(alphas_and_betas):
        takes = [len(_NUMBERS.get(n, ())) > place for n in names]
        said = list(attribute or ())
        # Numbers of all activations, or of those that take some.
        rest = [v for v, t in zip(said, takes) if t] if len(said) == len(names) else said
        rest += [_NUMBERS[n][place] for n, t in zip(names, takes) if t][len(rest) :]
        supply = iter(rest)
        numbers.append([next(supply) if t else 0.0 for t in takes])
    return [
        dict(
            zip(
                _KEYS,
                (tuple(part[begin:][:count]) for part in (names, *numbers)),
            )
        )
        for begin in range(0, count * directions, count)
    ]


def _layer(
    node: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any,
    lengths: Any,
    states: Sequence[Any],
    defaults: Sequence[str],
    call: Callable[..., Any],
    *,
    activation_alpha: Floats = None,
    activation_beta: Floats = None,
    activations: Any = None,
    clip: Any = None,
    direction: str = "forward",
    layout: int = 0,
) -> list[Any]:
    """The outputs of a layer: what all steps give, and the last states.

    call  (x, direction, lengths, states, attributes) -> a call of the operator
    """
    ranks = ((x, 3), (w, 3), (r, 3), (b, 2), (lengths, 1), *((s, 3) for s in states))
    for value, rank in ranks:
        if value is not None and len(dims_of(value)) != rank:
            raise FrontendError(f"wanted an input of {rank} dimensions, got {value.struct_info}")
    way = direction.lower().replace("foward", "forward")
    if way not in _REVERSED:
        raise FrontendError(f"direction: wanted one of {', '.join(_REVERSED)}, got {way!r}")
    directions, hidden = _REVERSED[way], dims_of(r)[2]
    if getattr(dims_of(r)[0], "value", None) != len(directions):
        raise FrontendError(f"{way}: wanted weights of {len(directions)}, got {r.struct_info}")
    batch_first = bool(layout)
    if batch_first:
        x = op.permute_dims(x, (1, 0, 2))
        states = [s if s is None else op.permute_dims(s, (1, 0, 2)) for s in states]
    x = node.emit(x)
    steps, batch, _ = dims_of(x)
    if lengths is None:
        lengths = op.full(
            shape_expr([batch]),
            node.emit(op.reshape(op.shape_to_tensor(shape_expr([steps])), ())),
            "int64",
        )
    lengths = node.emit(lengths)
    empty = op.zeros(shape_expr([batch, hidden]), dtype_of(x))
    parts = []
    numbers = activation_alpha, activation_beta
    functions = _activations(activations, numbers, len(directions), defaults)
    for d, (reverse, more) in enumerate(zip(directions, functions)):
        begin = [empty if s is None else direction_of(s, d) for s in states]
        more.update(clip=clip, reverse=reverse)
        parts.append(tuple(node.emit(call(x, d, lengths, begin, more))))
    y, *last = (op.stack(Tuple(column), 1 if k == 0 else 0) for k, column in enumerate(zip(*parts)))
    if batch_first:
        y, last = op.permute_dims(y, (2, 0, 1, 3)), [op.permute_dims(s, (1, 0, 2)) for s in last]
    return [y, *last]


def direction_of(x: Any, d: int) -> Any:
    """What belongs to the direction `d`."""
    return op.take(x, const(d, "int64"), 0)


def _gates(x: Any, d: int, order: Sequence[int]) -> Any:
    """Weights or biases of a direction, their gates in another order, laid out [inputs, gates *
    hidden].
    """
    one = direction_of(x, d)
    rows, *inner = dims_of(one)
    if list(order) != sorted(order):
        parts = op.reshape(one, shape_expr([len(order), rows // len(order), *inner]))
        one = op.reshape(op.take(parts, const(list(order), "int64"), 0), shape_expr([rows, *inner]))
    return op.permute_dims(one, (1, 0)) if inner else one


def _biases(b: Any, d: int, order: Sequence[int], r: Any, dtype: Any) -> tuple[Any, Any]:
    """The biases of the inputs' products and of the states' products."""
    width = dims_of(r)[1]
    if b is None:
        none = op.zeros(shape_expr([width]), dtype)
        return none, none
    both = op.reshape(direction_of(b, d), shape_expr([2, width]))
    return tuple(_gates(both, k, order) for k in range(2))


@onnx("LSTM", since=1, ignores="hidden_size output_sequence")
@passes_on(_layer)
def lstm(
    node: Any, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None,
    c: Any = None, p: Any = None, *, input_forget: int = 0, **attributes: Any,
) -> Any:  # fmt: skip
    order = (0, 2, 3, 1)
    if p is not None and len(dims_of(p)) != 2:
        raise FrontendError(f"P: wanted 2 dimensions, got {p.struct_info}")

    def call(x: Any, d: int, lengths: Any, states: Any, more: dict[str, Any]) -> Any:
        bias = op.add(*_biases(b, d, order, r, dtype_of(x)))
        peephole = None if p is None else _gates(p, d, (0, 2, 1))
        args = (x, _gates(w, d, order), _gates(r, d, order), bias, lengths, *states, peephole)
        return op.nn.lstm(*args, coupled=bool(input_forget), **more)

    return _layer(
        node, x, w, r, b, lengths, (h, c), ["sigmoid", "tanh", "tanh"], call, **attributes
    )


@onnx("GRU", since=1, ignores="hidden_size output_sequence")
@passes_on(_layer)
def gru(
    node: Any, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None,
    *, linear_before_reset: int = 0, **attributes: Any,
) -> Any:  # fmt: skip
    order = (0, 1, 2)

    def call(x: Any, d: int, lengths: Any, states: Any, more: dict[str, Any]) -> Any:
        biases = _biases(b, d, order, r, dtype_of(x))
        args = (x, _gates(w, d, order), _gates(r, d, order), *biases, lengths, *states)
        return op.nn.gru(*args, reset_after=bool(linear_before_reset), **more)

    return _layer(node, x, w, r, b, lengths, (h,), ["sigmoid", "tanh"], call, **attributes)


@onnx("RNN", since=1, ignores="hidden_size output_sequence")
@passes_on(_layer)
def rnn(
    node: Any, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None,
    **attributes: Any,
) -> Any:  # fmt: skip
    def call(x: Any, d: int, lengths: Any, states: Any, more: dict[str, Any]) -> Any:
        bias = op.add(*_biases(b, d, (0,), r, dtype_of(x)))
        return op.nn.rnn(x, _gates(w, d, (0,)), _gates(r, d, (0,)), bias, lengths, *states, **more)

    return _layer(node, x, w, r, b, lengths, (h,), ["tanh"], call, **attributes)
