"""nn.lstm, nn.gru, nn.rnn: the op table's cases, and onnxruntime's answers for layers at random."""

import numpy as np
import pytest
from op_table import FLOATS, Case, T, check, check_errors, thinned
from test_relax_frontend_onnx import F, helper, model, run

from relaxvm import relax
from relaxvm.relax.frontend.onnx import from_onnx
from relaxvm.relax.op import nn


def layer(gates, t="n", b=3, i=4, h=5, rows=None):
    """Arguments up to the bias."""
    return (
        T(t, b, i),
        T(i, gates * h, low=-1, high=1),
        T(h, gates * h, low=-1, high=1),
        T(gates * h),
    )


def lengths(*values):
    return T(len(values), dtype="int64", data=list(values))


STATE = T(3, 5)
ODD = {"activations": ("hardsigmoid", "softsign", "leakyrelu"), "alphas": (0.3, 0.0, 0.1)}

CASES = [
    Case(nn.lstm, *layer(4), lengths(3, 3, 3), STATE, STATE, dtypes=FLOATS),
    Case(nn.lstm, *layer(4), lengths(2, 0, 3), STATE, STATE, T(15), reverse=True),
    Case(nn.lstm, *layer(4), lengths(-4, 9, 1), STATE, STATE, clip=0.5, coupled=True),
    Case(nn.lstm, *layer(4), lengths(3, 2, 1), STATE, STATE, betas=(0.5,), **ODD),
    Case(nn.lstm, *layer(4, t=0), lengths(0, 0, 0), STATE, STATE, slow=True),
    Case(nn.lstm, *layer(4, h=19), lengths(3, 2, 3), T(3, 19), T(3, 19)),
    Case(nn.gru, *layer(3), T(15), lengths(3, 1, 2), STATE, dtypes=FLOATS),
    Case(nn.gru, *layer(3), T(15), lengths(3, 1, 2), STATE, reset_after=True, reverse=True),
    Case(nn.gru, *layer(3, b=6), T(15), lengths(3, 1, 2, 3, 3, 0), T(6, 5), clip=1.0),
    Case(nn.rnn, *layer(1), lengths(3, 1, 2), STATE, dtypes=FLOATS),
    Case(nn.rnn, *layer(1), lengths(3, 1, 2), STATE, activations=("relu",), reverse=True),
    *(
        Case(nn.rnn, *layer(1), lengths(3, 3, 3), STATE, activations=(f,), alphas=(0.7,), slow=True)
        for f in ("affine", "elu", "scaledtanh", "softplus", "thresholdedrelu")
    ),
]  # fmt: skip


def test_recurrent_layers_mean_what_their_loops_compute():
    check(thinned(CASES, 2))


@pytest.mark.slow
def test_recurrent_layers_of_every_activation_and_size():
    check(CASES, slow=True)


def test_arguments_that_do_not_fit_are_refused():
    def var(name, *shape, dtype="float32"):
        return relax.Var(name, relax.TensorStructInfo(shape, dtype))

    x, n, s = var("x", 6, 3, 4), var("n", 3, dtype="int64"), var("s", 3, 5)
    w, r, b = var("w", 4, 20), var("r", 5, 20), var("b", 20)
    check_errors(
        [
            (lambda: nn.lstm(x, r, r, b, n, s, s), "weight: wanted a dimension of 4, got 5"),
            (lambda: nn.lstm(x, w, r, b, n, s, s, b), "peephole: wanted a dimension of 15, got 20"),
            (lambda: nn.lstm(x, w, r, b, s, s, s), "lengths: wanted an integer dtype"),
            (lambda: nn.rnn(x, w, r, b, n, s), "wanted a dimension of 5, got 20"),
            (
                lambda: nn.lstm(x, w, r, b, n, s, s, activations=("sine", "tanh", "tanh")),
                "activations: wanted 3 of tanh",
            ),
            (lambda: nn.lstm(x, w, r, b, n, s, s, clip=-1.0), "clip: wanted a number of at least"),
        ]
    )


# -- ONNX ------------------------------------------------------------------------------------------

PLAIN = ["Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "HardSigmoid", "Elu", "Softsign"]


def random_layer(seed):
    """A model with one layer, and its inputs."""
    rng = np.random.default_rng(seed)
    kind = ["LSTM", "GRU", "RNN"][seed % 3]
    gates, count = {"LSTM": (4, 3), "GRU": (3, 2), "RNN": (1, 1)}[kind]
    steps, batch, inputs, hidden = rng.integers(1, 6, 4)
    direction = ["forward", "reverse", "bidirectional"][rng.integers(3)]
    ways = 2 if direction == "bidirectional" else 1
    attrs = {"hidden_size": int(hidden), "direction": direction}
    if rng.integers(2):
        attrs["activations"] = [str(a) for a in rng.choice(PLAIN, count * ways)]
        attrs["activation_alpha"] = [0.3] * (count * ways)
        attrs["activation_beta"] = [0.2] * (count * ways)
    if rng.integers(2):
        attrs["clip"] = 0.7
    if kind == "GRU":
        attrs["linear_before_reset"] = int(rng.integers(2))
    shapes = {
        "w": (ways, gates * hidden, inputs),
        "r": (ways, gates * hidden, hidden),
        "b": (ways, 2 * gates * hidden),
        "len": (batch,),
        "h": (ways, batch, hidden),
        "c": (ways, batch, hidden),
        "p": (ways, 3 * hidden),
    }
    taken = ["w", "r", *(n if rng.integers(2) else "" for n in ("b", "len", "h"))]
    if kind == "LSTM":
        taken += [n if rng.integers(2) else "" for n in ("c", "p")]
    values = {n: rng.uniform(-1, 1, shapes[n]).astype("float32") for n in taken if n}
    if "len" in values:
        values["len"] = rng.integers(1, steps + 1, batch).astype("int32")
    outputs = ["y", "yh", "yc"][: 3 if kind == "LSTM" else 2]
    layer_node = helper.make_node(kind, ["x", *taken], outputs, **attrs)
    m = model([layer_node], {"x": (F, ["steps", "batch", int(inputs)])}, outputs, values, opset=14)
    m.ir_version = 10
    return m, rng.uniform(-1, 1, (steps, batch, inputs)).astype("float32")


def test_layers_at_random_give_what_onnxruntime_gives():
    ort = pytest.importorskip(
        "onnxruntime", reason="compares with onnxruntime where it is installed"
    )
    for seed in range(60):
        m, x = random_layer(seed)
        session = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
        wanted = session.run(None, {"x": x})
        for got, want in zip(run(from_onnx(m), x), wanted):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}: {m}")


def test_a_layer_with_the_batch_first_is_the_same_layer():
    rng = np.random.default_rng(3)
    w, r = (rng.uniform(-1, 1, (1, 8, k)).astype("float32") for k in (3, 2))
    x = rng.uniform(-1, 1, (5, 4, 3)).astype("float32")
    layers = [
        model(
            [helper.make_node("LSTM", ["x", "w", "r"], ["y", "h"], hidden_size=2, layout=k)],
            {"x": (F, [None] * 3)},
            ["y", "h"],
            {"w": w, "r": r},
        )
        for k in (0, 1)
    ]
    (y, h), (y1, h1) = (
        run(from_onnx(m, shape_dict={"x": s}), v)
        for m, s, v in zip(layers, ((5, 4, 3), (4, 5, 3)), (x, x.transpose(1, 0, 2)))
    )
    np.testing.assert_array_equal(y1, y.transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(h1, h.transpose(1, 0, 2))
