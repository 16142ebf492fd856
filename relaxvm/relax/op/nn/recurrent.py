"""Recurrent layers over a sequence, in one direction: nn.lstm, nn.gru, nn.rnn.

The inputs of all steps are multiplied by their weights at once; what is left of a step is one
kernel with the loop over time in it. Weights are laid out as [inputs, gates * hidden], the gates
one behind the other: i, f, g, o of an LSTM, z, r, h of a GRU.

A row of the batch ends with its length: behind it the results are 0, and the last states are those
of its own last step. Two directions are two calls, one of them with ``reverse=True``. 16-bit floats
are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .... import tir
from ....base import StructInfoError
from ....ir import FloorDiv, FloorMod, Max, Min, PrimExpr, Select, const
from ....tir import ELEMENTARY, Buffer, IfThenElse, Stmt, seq
from ...expr import Call, Tuple, TupleGetItem
from ...rules import LowerBuilder
from ...struct_info import Expr, StructInfo, TensorStructInfo, TupleStructInfo
from ..infer import FLOAT, INTEGER, same_dtype, tensor, tensor_of
from ..loops import Names, call_loops, for_each, load, store
from ..lower import wide_dtype
from ..names import ops as all_ops
from ..record import missing, op
from ..sizes import ONE, ZERO, is_known, want_equal

# -- what a step does, on arrays and on scalar expressions ---------------------------------------


class _Numpy:
    def __getattr__(self, name: str) -> Any:
        return ELEMENTARY[name]

    let = staticmethod(lambda x: x)
    abs, choose = staticmethod(np.abs), staticmethod(np.where)
    max, min = staticmethod(np.maximum), staticmethod(np.minimum)


class _Scalar(Names):
    def __getattr__(self, name: str) -> Any:
        return getattr(tir, name)

    let = Names.of

    @staticmethod
    def max(x: PrimExpr, bound: float) -> PrimExpr:
        return Max(x, const(bound, x.dtype))

    @staticmethod
    def min(x: PrimExpr, bound: float) -> PrimExpr:
        return Min(x, const(bound, x.dtype))

    @staticmethod
    def choose(test: PrimExpr, x: Any, y: Any) -> PrimExpr:
        return Select(test, x, y if isinstance(y, PrimExpr) else const(y, x.dtype))


ACTIVATIONS: dict[str, Callable[[Any, Any, float, float], Any]] = {
    "tanh": lambda m, x, a, b: m.tanh(x),
    "sigmoid": lambda m, x, a, b: m.sigmoid(x),
    "relu": lambda m, x, a, b: m.max(x, 0.0),
    "affine": lambda m, x, a, b: x * a + b,
    "leakyrelu": lambda m, x, a, b: m.choose(x >= 0.0, x, x * a),
    "thresholdedrelu": lambda m, x, a, b: m.choose(x >= a, x, 0.0),
    "scaledtanh": lambda m, x, a, b: m.tanh(x * b) * a,
    "hardsigmoid": lambda m, x, a, b: m.min(m.max(x * a + b, 0.0), 1.0),
    "elu": lambda m, x, a, b: m.choose(x >= 0.0, x, (m.exp(x) - 1.0) * a),
    "softsign": lambda m, x, a, b: x / (m.abs(x) + 1.0),
    "softplus": lambda m, x, a, b: m.max(x, 0.0) + m.log(m.exp(m.abs(x) * -1.0) + 1.0),
}
"""Name -> (what it is written with, x, alpha, beta) -> activation."""


def _act(m: Any, attrs: Any, k: int, x: Any) -> Any:
    """The layer's activation number `k` of `x`, which is clipped first."""
    if attrs["clip"] is not None:
        x = m.max(m.min(x, attrs["clip"]), -attrs["clip"])
    alpha, beta = (v[k] if k < len(v) else 0.0 for v in (attrs["alphas"], attrs["betas"]))
    return m.let(ACTIVATIONS[attrs["activations"][k]](m, m.let(x), alpha, beta))


def _lstm_step(m: Any, attrs: Any, gates: Any, state: Any, peephole: Any) -> tuple[Any, ...]:
    """(h, c) behind a step; the output gate looks at the new c."""
    (i, f, g, o), (_, c) = gates, state
    looks = [*peephole] or [0.0] * 3
    i = _act(m, attrs, 0, i + looks[0] * c)
    f = 1.0 - i if attrs["coupled"] else _act(m, attrs, 0, f + looks[1] * c)
    c = m.let(f * c + i * _act(m, attrs, 1, g))
    # The cell is not clipped: as onnxruntime has it, clip bounds gates alone.
    return _act(m, attrs, 0, o + looks[2] * c) * _act(m, {**attrs, "clip": None}, 2, c), c


# -- meaning ---------------------------------------------------------------------------------------


def _wide(values: Sequence[Any]) -> list[np.ndarray]:
    """Floats one width up."""
    up = {"float16": "float32", "float32": "float64"}
    return [np.asarray(v).astype(up.get(str(v.dtype), v.dtype)) for v in values]


def _run(
    pre: np.ndarray,
    lengths: np.ndarray,
    states: list[np.ndarray],
    step: Callable[[np.ndarray, list[np.ndarray]], Sequence[np.ndarray]],
    reverse: bool,
    dtype: Any,
) -> tuple[np.ndarray, ...]:
    steps = len(pre)
    y = np.zeros((steps, *states[0].shape), pre.dtype)
    lengths = np.clip(lengths, 0, steps)
    for s in range(steps):
        live = np.flatnonzero(s < lengths)
        t = lengths[live] - 1 - s if reverse else np.full(len(live), s)
        after = step(pre[t, live], [x[live] for x in states])
        for x, new in zip(states, after):
            x[live] = new
        y[t, live] = after[0]
    return tuple(v.astype(dtype) for v in (y, *states))


def _lstm_numpy(
    data: Any, weight: Any, recurrent: Any, bias: Any, lengths: Any, hidden: Any, cell: Any,
    peephole: Any = None, *, reverse: bool, **attrs: Any,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    x, w, r, b, h, c = _wide((data, weight, recurrent, bias, hidden, cell))
    looks = np.split(_wide([peephole])[0], 3) if peephole is not None else ()

    def step(pre: Any, state: list[Any]) -> tuple[Any, ...]:
        gates = np.split(pre + state[0] @ r, 4, axis=1)
        return _lstm_step(_Numpy(), attrs, gates, state, looks)

    return _run(x @ w + b, lengths, [h, c], step, reverse, data.dtype)


def _rnn_numpy(
    data: Any, weight: Any, recurrent: Any, bias: Any, lengths: Any, hidden: Any,
    *, reverse: bool, **attrs: Any,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    x, w, r, b, h = _wide((data, weight, recurrent, bias, hidden))

    def step(pre: Any, state: list[Any]) -> tuple[Any, ...]:
        return (_act(_Numpy(), attrs, 0, pre + state[0] @ r),)

    return _run(x @ w + b, lengths, [h], step, reverse, data.dtype)


def _gru_numpy(
    data: Any, weight: Any, recurrent: Any, bias: Any, recurrent_bias: Any, lengths: Any,
    hidden: Any, *, reverse: bool, reset_after: bool, **attrs: Any,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    x, w, r, b, rb, h0 = _wide((data, weight, recurrent, bias, recurrent_bias, hidden))
    size = h0.shape[1]

    def step(pre: Any, state: list[Any]) -> tuple[Any, ...]:
        (h,) = state
        inner = h @ r[:, : 2 * size] + rb[: 2 * size]
        z, reset = (_act(_Numpy(), attrs, 0, g) for g in np.split(pre[:, : 2 * size] + inner, 2, 1))
        if reset_after:
            new = reset * (h @ r[:, 2 * size :] + rb[2 * size :])
        else:
            new = (reset * h) @ r[:, 2 * size :] + rb[2 * size :]
        return ((1.0 - z) * _act(_Numpy(), attrs, 1, pre[:, 2 * size :] + new) + z * h,)

    return _run(x @ w + b, lengths, [h0], step, reverse, data.dtype)


# -- loops -----------------------------------------------------------------------------------------

# Rows of the weights, and of the batch, that are taken together: what is summed into is loaded and
# stored once for several products, what is read is read once for several rows. Of so many columns
# the sums stay in the first cache meanwhile.
_ROWS, _BATCH, _COLUMNS = 8, 4, 256


def _add_products(sums: Buffer, x: Buffer, weights: Buffer, begin: Any, end: Any) -> Stmt:
    """sums[b, n] += x[b, :] @ weights[:, n], for n from `begin` to `end`."""
    batch, count = x.shape
    width = const(_COLUMNS, "int64")

    def some(first: PrimExpr, ks: Sequence[PrimExpr], bs: Sequence[PrimExpr]) -> Stmt:
        names = Names("x")
        factors = [[names.of(load(x, b, k)) for k in ks] for b in bs]

        def one(i: PrimExpr) -> Stmt:
            n = first + i
            shared = Names("w")
            column = [shared.of(load(weights, k, n)) for k in ks]
            stores = []
            for b, row in zip(bs, factors):
                total = load(sums, b, n)
                for factor, weight in zip(row, column):
                    total = total + factor * weight
                stores.append(store(sums, total, b, n))
            return shared.within(seq(*stores))

        return names.within(for_each([Min(width, end - first)], one, "n"))

    def columns(block: PrimExpr) -> Stmt:
        first = begin + block * width

        def rows(ks: Sequence[PrimExpr]) -> Stmt:
            return _in_blocks(batch, _BATCH, lambda bs: some(first, ks, bs), "b")

        return _in_blocks(count, _ROWS, rows, "k")

    return for_each([FloorDiv(end - begin + width - ONE, width)], columns, "c")


def _in_blocks(
    count: PrimExpr, width: int, body: Callable[[Sequence[PrimExpr]], Stmt], prefix: str
) -> Stmt:
    """`body` of `width` indices at a time, and of those that are left one by one."""
    blocks, each = FloorDiv(count, const(width, "int64")), const(width, "int64")

    def block(i: PrimExpr) -> Stmt:
        return body([i * each + const(j, "int64") for j in range(width)])

    def single(i: PrimExpr) -> Stmt:
        return body([blocks * each + i])

    return seq(
        for_each([blocks], block, prefix),
        for_each([FloorMod(count, each)], single, f"{prefix}rest"),
    )


def _loops(
    pre: Buffer,
    lengths: Buffer,
    begin: Sequence[Buffer],
    out: Sequence[Buffer],
    reverse: bool,
    products: Callable[[Callable[..., PrimExpr]], Sequence[Stmt]],
    after: Callable[..., Sequence[PrimExpr]],
) -> Stmt:
    """The loop over time. The last states are the states.

    products  (x) -> statements before the states change; x(b, n) is an element of `pre` of the step
    after     (names, x, b, j) -> the states' elements [b, j] behind the step
    """
    y, *states = out
    steps, batch, hidden = y.shape

    def length(b: PrimExpr) -> PrimExpr:
        from_user = tir.Cast(ZERO.dtype, load(lengths, b))
        return Max(Min(from_user, steps), ZERO)

    def step(s: PrimExpr) -> Stmt:
        def place(b: PrimExpr) -> PrimExpr:
            # What is behind a row's end is computed and not used.
            return Max(length(b) - ONE - s, ZERO) if reverse else s

        def x(b: PrimExpr, n: PrimExpr) -> PrimExpr:
            return load(pre, place(b), b, n)

        def row(b: PrimExpr) -> Stmt:
            def one(j: PrimExpr) -> Stmt:
                m = _Scalar()
                new = [m.let(e) for e in after(m, x, b, j)]
                stores = [store(state, e, b, j) for state, e in zip(states, new)]
                return m.within(seq(*stores, store(y, new[0], place(b), b, j)))

            nothing = for_each([hidden], lambda j: store(y, const(0, y.dtype), s, b, j), "z")
            return IfThenElse(s < length(b), for_each([hidden], one, "j"), nothing)

        return seq(*products(x), for_each([batch], row, "b"))

    copies = [
        for_each(b.shape, lambda *i, b=b, state=state: store(state, load(b, *i), *i), "c")
        for b, state in zip(begin, states)
    ]
    return seq(*copies, for_each([steps], step, "t"))


def _all_gates(sums: Buffer, h: Buffer, recurrent: Buffer) -> Callable[..., list[Stmt]]:
    """Statements for `_loops` that sum all gates at once."""
    end = recurrent.shape[1]
    return lambda x: [_filled(sums, x, ZERO, end), _add_products(sums, h, recurrent, ZERO, end)]


def _filled(sums: Buffer, x: Callable[..., PrimExpr], begin: Any, end: Any) -> Stmt:
    """sums[b, n] = x(b, n), for n from `begin` to `end`."""
    return for_each(
        [sums.shape[0], end - begin], lambda b, i: store(sums, x(b, begin + i), b, begin + i), "g"
    )


def _lower(fill: Callable[..., Stmt], extra: int) -> Callable[[LowerBuilder, Call], Expr]:
    """A legalisation: the inputs' products, and the loops ``fill(attrs, pre, ...)``.

    extra  states' worth of scratch beside a step's sums
    """

    def lower(builder: LowerBuilder, call: Call) -> Expr:
        dtype = tensor_of(call.args[0]).dtype
        args, attrs = list(call.args), dict(call.attrs)
        wide = wide_dtype(dtype)
        if wide is not dtype:
            floats = [tensor_of(a).dtype is dtype for a in args]
            wider = [
                builder.emit(all_ops.astype(a, wide)) if f else a for a, f in zip(args, floats)
            ]
            record: Any = call.op
            whole: Any = builder.emit(record.build(*wider, **attrs))
            fields = range(len(whole.struct_info.fields))
            return Tuple(
                [builder.emit(all_ops.astype(TupleGetItem(whole, k), dtype)) for k in fields]
            )
        data, weight, recurrent, bias, *rest = args
        pre = builder.emit(all_ops.add(builder.emit(all_ops.matmul(data, weight)), bias))
        (hidden, width), (steps, batch, _) = tensor_of(recurrent).dims, tensor_of(data).dims
        if not is_known(pre.struct_info):  # it is known how long the sums are, but not their terms
            pre = builder.match_cast(pre, TensorStructInfo((steps, batch, width), dtype))
        scratch = [((batch, width), wide)] + [((batch, hidden), wide)] * extra

        def loops(*buffers: Buffer, out: list[Buffer], scratch: list[Buffer]) -> Stmt:
            return fill(attrs, *buffers, out=out, scratch=scratch)

        return call_loops(builder, call, loops, pre, recurrent, *rest, scratch=scratch)

    return lower


def _lstm_loops(
    attrs: Any,
    pre: Buffer,
    recurrent: Buffer,
    lengths: Buffer,
    *rest: Buffer,
    out: Any,
    scratch: Any,
) -> Stmt:
    (sums,), states, looks = scratch, out[1:], rest[2:]
    hidden, products = recurrent.shape[0], _all_gates(sums, out[1], recurrent)

    def after(m: Any, x: Any, b: PrimExpr, j: PrimExpr) -> Any:
        gates = [m.let(load(sums, b, hidden * k + j)) for k in range(4)]
        old = [m.let(load(state, b, j)) for state in states]
        peephole = [load(p, hidden * k + j) for p in looks for k in range(3)]
        return _lstm_step(m, attrs, gates, old, peephole)

    return _loops(pre, lengths, rest[:2], out, attrs["reverse"], products, after)


def _rnn_loops(
    attrs: Any,
    pre: Buffer,
    recurrent: Buffer,
    lengths: Buffer,
    hidden: Buffer,
    out: Any,
    scratch: Any,
) -> Stmt:
    (sums,), products = scratch, _all_gates(scratch[0], out[1], recurrent)

    def after(m: Any, x: Any, b: PrimExpr, j: PrimExpr) -> Any:
        return (_act(m, attrs, 0, load(sums, b, j)),)

    return _loops(pre, lengths, [hidden], out, attrs["reverse"], products, after)


def _gru_loops(
    attrs: Any, pre: Buffer, recurrent: Buffer, bias: Buffer, lengths: Buffer, begin: Buffer,
    out: Any, scratch: Any,
) -> Stmt:  # fmt: skip
    (sums, reset), h, reset_after = scratch, out[1], attrs["reset_after"]
    hidden, width = recurrent.shape
    two = hidden * 2

    def products(x: Callable[..., PrimExpr]) -> list[Stmt]:
        def gates(b: PrimExpr, n: PrimExpr) -> PrimExpr:
            return x(b, n) + load(bias, n)

        def one(b: PrimExpr, j: PrimExpr) -> Stmt:
            m = _Scalar()
            r = _act(m, attrs, 0, load(sums, b, hidden + j))
            return m.within(store(reset, r * load(h, b, j), b, j))

        if reset_after:
            return [
                _filled(sums, gates, ZERO, two),
                _filled(sums, lambda b, n: load(bias, n), two, width),
                _add_products(sums, h, recurrent, ZERO, width),
            ]
        return [
            _filled(sums, gates, ZERO, width),
            _add_products(sums, h, recurrent, ZERO, two),
            for_each(h.shape, one, "h"),
            _add_products(sums, reset, recurrent, two, width),
        ]

    def after(m: Any, x: Any, b: PrimExpr, j: PrimExpr) -> Any:
        z, r, g = (m.let(load(sums, b, hidden * k + j)) for k in range(3))
        z = _act(m, attrs, 0, z)
        if reset_after:
            g = x(b, two + j) + _act(m, attrs, 0, r) * g
        return ((1.0 - z) * _act(m, attrs, 1, g) + z * m.let(load(h, b, j)),)

    return _loops(pre, lengths, [begin], out, attrs["reverse"], products, after)


# -- the operators ---------------------------------------------------------------------------------


def _info(gates: int, states: Sequence[str], lengths: Expr, **floats: Expr) -> StructInfo:
    """Struct info of (y, states...); checks what the layers have in common.

    states  which of the arguments `floats` are; others are data, weight, recurrent and vectors
    """
    ranks = {"data": 3, "weight": 2, "recurrent": 2, **dict.fromkeys(states, 2)}
    infos = {name: tensor(x, name, FLOAT, ranks.get(name, 1)) for name, x in floats.items()}
    dtype = same_dtype(list(infos.values()), list(infos))
    steps, batch, inputs = infos["data"].dims
    hidden = infos["recurrent"].dims[0]
    wanted = {
        "data": (steps, batch, inputs),
        "weight": (inputs, hidden * gates),
        "recurrent": (hidden, hidden * gates),
        "peephole": (hidden * 3,),
        **dict.fromkeys(states, (batch, hidden)),
    }
    for name, info in infos.items():
        for a, b in zip(info.dims, wanted.get(name, (hidden * gates,))):
            want_equal(a, b, "{name}: wanted a dimension of {b}, got {a}", name=name)
    (rows,) = tensor(lengths, "lengths", INTEGER, 1).dims
    want_equal(rows, batch, "lengths: wanted one of each of {b} rows, got {a}")
    state = TensorStructInfo((batch, hidden), dtype)
    y = TensorStructInfo((steps, batch, hidden), dtype)
    return TupleStructInfo((y, *(state for _ in states)))


def _check_activations(count: int, activations: Any, alphas: Any, betas: Any, clip: Any) -> None:
    if len(activations) != count or not all(f in ACTIVATIONS for f in activations):
        names = ", ".join(ACTIVATIONS)
        raise StructInfoError(f"activations: wanted {count} of {names}; got {activations}")
    for name, values in (("alphas", alphas), ("betas", betas)):
        if not all(isinstance(v, (int, float)) for v in values):
            raise StructInfoError(f"{name}: wanted numbers, got {values}")
    if clip is not None and not clip >= 0:
        raise StructInfoError(f"clip: wanted a number of at least 0, got {clip}")


_NO_GRAD = missing("needs the states of all steps; unroll the layer with a cell to train it")
_TIME = missing("its axes are time, batch and features")


@op("nn.lstm", _lstm_numpy, _lower(_lstm_loops, 0), _NO_GRAD, _TIME)
def lstm(
    data: Expr,
    weight: Expr,
    recurrent: Expr,
    bias: Expr,
    lengths: Expr,
    hidden: Expr,
    cell: Expr,
    peephole: Expr | None = None,
    activations: tuple[str, ...] = ("sigmoid", "tanh", "tanh"),
    alphas: tuple[float, ...] = (),
    betas: tuple[float, ...] = (),
    clip: float | None = None,
    coupled: bool = False,
    reverse: bool = False,
) -> StructInfo:
    """(y, h, c): a long short-term memory over a sequence.

    data      [steps, batch, inputs]       weight     [inputs, 4 * hidden], of the gates i, f, g, o
    bias      [4 * hidden]                 recurrent  [hidden, 4 * hidden]
    lengths   [batch], steps of each row   hidden, cell  [batch, hidden], the first states
    peephole  [3 * hidden], what i, f and o add of the cell
    returns   y [steps, batch, hidden], h and c [batch, hidden], the last states

    activations  of the gates i, f and o; of g; of the cell. alphas, betas: their numbers
    clip         bounds what the gates' activations are computed of
    coupled      f is 1 - i
    reverse      from each row's last step to its first
    """
    floats = {"data": data, "weight": weight, "recurrent": recurrent, "bias": bias}
    floats |= {"hidden": hidden, "cell": cell}
    if peephole is not None:
        floats["peephole"] = peephole
    _check_activations(3, activations, alphas, betas, clip)
    return _info(4, ("hidden", "cell"), lengths, **floats)


@op("nn.gru", _gru_numpy, _lower(_gru_loops, 1), _NO_GRAD, _TIME)
def gru(
    data: Expr,
    weight: Expr,
    recurrent: Expr,
    bias: Expr,
    recurrent_bias: Expr,
    lengths: Expr,
    hidden: Expr,
    activations: tuple[str, ...] = ("sigmoid", "tanh"),
    alphas: tuple[float, ...] = (),
    betas: tuple[float, ...] = (),
    clip: float | None = None,
    reset_after: bool = False,
    reverse: bool = False,
) -> StructInfo:
    """(y, h): gated recurrent units over a sequence.

    data      [steps, batch, inputs]       weight     [inputs, 3 * hidden], of the gates z, r, h
    bias      [3 * hidden]                 recurrent  [hidden, 3 * hidden]
    lengths   [batch], steps of each row   recurrent_bias  [3 * hidden]
    hidden    [batch, hidden], the first state
    returns   y [steps, batch, hidden] and h [batch, hidden], the last state

    activations  of the gates z and r; of h. alphas, betas: their numbers
    clip         bounds what activations are computed of
    reset_after  whether r is multiplied with the product of the state (and its bias), not with the
                 state before it
    reverse      from each row's last step to its first
    """
    floats = {"data": data, "weight": weight, "recurrent": recurrent, "bias": bias}
    floats |= {"recurrent_bias": recurrent_bias, "hidden": hidden}
    _check_activations(2, activations, alphas, betas, clip)
    return _info(3, ("hidden",), lengths, **floats)


@op("nn.rnn", _rnn_numpy, _lower(_rnn_loops, 0), _NO_GRAD, _TIME)
def rnn(
    data: Expr,
    weight: Expr,
    recurrent: Expr,
    bias: Expr,
    lengths: Expr,
    hidden: Expr,
    activations: tuple[str, ...] = ("tanh",),
    alphas: tuple[float, ...] = (),
    betas: tuple[float, ...] = (),
    clip: float | None = None,
    reverse: bool = False,
) -> StructInfo:
    """(y, h): a plain recurrent layer, ``h = f(x @ weight + h @ recurrent + bias)``.

    data      [steps, batch, inputs]       weight     [inputs, hidden]
    bias      [hidden]                     recurrent  [hidden, hidden]
    lengths   [batch], steps of each row   hidden     [batch, hidden], the first state
    returns   y [steps, batch, hidden] and h [batch, hidden], the last state

    activations  f; alphas, betas: its numbers
    clip         bounds what f is computed of
    reverse      from each row's last step to its first
    """
    floats = {"data": data, "weight": weight, "recurrent": recurrent, "bias": bias}
    floats["hidden"] = hidden
    _check_activations(1, activations, alphas, betas, clip)
    return _info(1, ("hidden",), lengths, **floats)
