"""An LSTM over a sequence of any length, written as a recursion.

    python examples/lstm_recursion.py

The function `run` calls itself last of all, so the machine runs it as a loop: a sequence of 20,000
steps needs no more memory than one of 20, and no limit on the depth of calls is met. The result is
compared with numpy's, step by step.
"""

import time

import numpy as np

import relaxvm as tvm
from relaxvm import relax
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

BATCH, INPUT, HIDDEN = 2, 4, 8


@I.ir_module
class Lstm:
    @R.function
    def cell(
        x: R.Tensor((2, 4), "float32"),
        h: R.Tensor((2, 8), "float32"),
        c: R.Tensor((2, 8), "float32"),
        w: R.Tensor((12, 32), "float32"),
        bias: R.Tensor((32,), "float32"),
    ) -> R.Tuple(R.Tensor((2, 8), "float32"), R.Tensor((2, 8), "float32")):
        with R.dataflow():
            gates = R.add(R.matmul(R.concat([x, h], axis=1), w), bias)
            parts = R.split(gates, 4, axis=1)
            keep = R.multiply(R.sigmoid(parts[1]), c)
            new = R.multiply(R.sigmoid(parts[0]), R.tanh(parts[2]))
            c_next = R.add(keep, new)
            h_next = R.multiply(R.sigmoid(parts[3]), R.tanh(c_next))
            R.output(h_next, c_next)
        return (h_next, c_next)

    @R.function
    def run(
        step: R.Prim(value="i"),
        xs: R.Tensor(("n", 2, 4), "float32"),
        h: R.Tensor((2, 8), "float32"),
        c: R.Tensor((2, 8), "float32"),
        w: R.Tensor((12, 32), "float32"),
        bias: R.Tensor((32,), "float32"),
    ) -> R.Tensor((2, 8), "float32"):
        i = T.int64()
        n = T.int64()
        if R.prim_value(i < n):
            row = R.strided_slice(xs, axes=[0], begin=[i], end=[i + 1], assume_inbound=True)
            state = Lstm.cell(R.reshape(row, (2, 4)), h, c, w, bias)
            last = Lstm.run(R.prim_value(i + 1), xs, state[0], state[1], w, bias)
        else:
            last = h
        return last


def numpy_lstm(xs, w, bias):
    h = c = np.zeros((BATCH, HIDDEN), "float32")

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    for x in xs:
        i, f, g, o = np.split(np.concatenate([x, h], axis=1) @ w + bias, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    return h


def main():
    vm = relax.VirtualMachine(relax.build(Lstm, "llvm"), tvm.cpu(), max_depth=10)
    rng = np.random.default_rng(0)
    w = rng.normal(size=(INPUT + HIDDEN, 4 * HIDDEN), scale=0.4).astype("float32")
    bias = rng.normal(size=4 * HIDDEN, scale=0.1).astype("float32")
    start = np.zeros((BATCH, HIDDEN), "float32")
    for length in (0, 1, 20, 20_000):
        xs = rng.normal(size=(length, BATCH, INPUT)).astype("float32")
        began = time.perf_counter()
        h = vm["run"](0, xs, start, start, w, bias).numpy()
        took = time.perf_counter() - began
        np.testing.assert_allclose(h, numpy_lstm(xs, w, bias), rtol=1e-4, atol=1e-5)
        print(f"{length:6} steps: {took * 1e3:8.1f} ms, as numpy")


if __name__ == "__main__":
    main()
