"""A convolutional network for handwritten digits, written in relax operators and compiled.

    python examples/digits_convnet.py [--epochs 5] [--onnx digits.onnx]

A small network (convolutions, batch norms, a residual block, pools) learns scikit-learn's 8x8
images in plain numpy, in a few seconds. Its weights then go into a graph of `relax.op` operators
for any number of images at once; relaxvm compiles it and reads images it has not seen. The model
that the command `relaxvm` knows as `digits` was written by ``--epochs 12 --onnx``.
"""

from __future__ import annotations

import argparse
import pathlib
import time

import numpy as np

import relaxvm
from relaxvm import relax, tir
from relaxvm.relax import op
from relaxvm.runtime import array, cpu

WIDTHS = (12, 24)
EPSILON = 1e-5


# -- training, in numpy ---------------------------------------------------------------------------
# A layer maps its input forward, and the gradient of its output back to that of its input; the
# gradients of its weights lie in `grads`, under the names that the weights have in `weights`.


class Conv:
    """A 3x3 convolution with one pixel of padding."""

    def __init__(self, rng, inputs, outputs):
        scale = np.sqrt(2.0 / (9 * inputs))
        self.weights = {"w": rng.normal(0, scale, (outputs, inputs, 3, 3)).astype("float32")}
        self.grads = {}

    def forward(self, x, training):
        self.columns = neighbours(x)
        weight = self.weights["w"]
        return as_images(self.columns @ weight.reshape(len(weight), -1).T, x.shape)

    def backward(self, gy):
        rows = gy.transpose(0, 2, 3, 1).reshape(-1, gy.shape[1])
        weight = self.weights["w"]
        self.grads["w"] = (rows.T @ self.columns).reshape(weight.shape)
        # Back through a convolution: a convolution by the same weights, turned round.
        turned = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
        return as_images(neighbours(gy) @ turned.reshape(len(turned), -1).T, gy.shape)


def neighbours(x):
    """[n * h * w, c * 9]: each pixel of images [n, c, h, w] with the eight around it."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, 9 * x.shape[1])


def as_images(rows, shape):
    """Rows of channels, one for each pixel, as images of that number, height and width."""
    n, _, h, w = shape
    return np.ascontiguousarray(rows.reshape(n, h, w, -1).transpose(0, 3, 1, 2))


class BatchNorm:
    """Normalises each channel, by the batch while training and by moving averages afterwards."""

    def __init__(self, channels):
        self.weights = {"g": np.ones(channels, "float32"), "b": np.zeros(channels, "float32")}
        self.mean, self.var = np.zeros(channels, "float32"), np.ones(channels, "float32")
        self.grads = {}

    def forward(self, x, training):
        if training:
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
            self.mean = 0.9 * self.mean + 0.1 * mean
            self.var = 0.9 * self.var + 0.1 * var
        else:
            mean, var = self.mean, self.var
        self.factor = (1.0 / np.sqrt(var + EPSILON))[:, None, None]
        self.normal = (x - mean[:, None, None]) * self.factor
        g, b = self.weights["g"], self.weights["b"]
        return self.normal * g[:, None, None] + b[:, None, None]

    def backward(self, gy):
        over = (0, 2, 3)
        self.grads["g"], self.grads["b"] = (gy * self.normal).sum(over), gy.sum(over)
        g = gy * self.weights["g"][:, None, None]
        along = (g * self.normal).mean(over, keepdims=True) * self.normal
        return (g - g.mean(over, keepdims=True) - along) * self.factor


class Relu:
    """max(x, 0)."""

    weights: dict = {}

    def forward(self, x, training):
        self.kept = x > 0
        return x * self.kept

    def backward(self, gy):
        return gy * self.kept


class MaxPool:
    """The greatest of each 2x2 pixels."""

    weights: dict = {}

    def forward(self, x, training):
        n, c, h, w = x.shape
        parts = x.reshape(n, c, h // 2, 2, w // 2, 2)
        made = parts.max((3, 5), keepdims=True)
        self.kept = parts == made
        return made[:, :, :, 0, :, 0]

    def backward(self, gy):
        spread = self.kept * gy[:, :, :, None, :, None]
        n, c, h, _, w, _ = spread.shape
        return spread.reshape(n, c, 2 * h, 2 * w)


class Linear:
    """A matrix and a bias, on flattened images."""

    def __init__(self, rng, inputs, outputs):
        w = rng.normal(0, np.sqrt(1.0 / inputs), (inputs, outputs)).astype("float32")
        self.weights = {"w": w, "b": np.zeros(outputs, "float32")}
        self.grads = {}

    def forward(self, x, training):
        self.shape, self.x = x.shape, x.reshape(len(x), -1)
        return self.x @ self.weights["w"] + self.weights["b"]

    def backward(self, gy):
        self.grads["w"], self.grads["b"] = self.x.T @ gy, gy.sum(0)
        return (gy @ self.weights["w"].T).reshape(self.shape)


class Residual:
    """x + layers(x)."""

    weights: dict = {}

    def __init__(self, *layers):
        self.layers = layers

    def forward(self, x, training):
        y = x
        for layer in self.layers:
            y = layer.forward(y, training)
        return x + y

    def backward(self, gy):
        g = gy
        for layer in reversed(self.layers):
            g = layer.backward(g)
        return gy + g


def network(rng):
    """The layers in order."""
    a, b = WIDTHS
    return [
        *(Conv(rng, 1, a), BatchNorm(a), Relu()),
        *(Residual(Conv(rng, a, a), BatchNorm(a), Relu(), Conv(rng, a, a), BatchNorm(a)), Relu()),
        MaxPool(),
        *(Conv(rng, a, b), BatchNorm(b), Relu()),
        MaxPool(),
        Linear(rng, 4 * b, 10),
    ]


def flat(layers):
    """The layers, and those inside residual blocks."""
    for layer in layers:
        yield from flat(layer.layers) if isinstance(layer, Residual) else [layer]


def run(layers, x, training=False):
    """The logits [n, 10] of images [n, 1, 8, 8]."""
    for layer in layers:
        x = layer.forward(x, training)
    return x


def train(layers, images, labels, epochs, rng, batch=64, rate=0.05, momentum=0.9):
    """Stochastic gradient descent with momentum; the rate falls to 0 along a cosine."""
    speeds = {}
    steps = epochs * (len(images) // batch)
    step = 0
    for epoch in range(epochs):
        order = rng.permutation(len(images))
        losses = []
        for start in range(0, len(images) - batch + 1, batch):
            chosen = order[start : start + batch]
            logits = run(layers, images[chosen], training=True)
            logits = logits - logits.max(1, keepdims=True)
            shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            rows = np.arange(batch)
            losses.append(-np.log(shares[rows, labels[chosen]] + 1e-12).mean())
            shares[rows, labels[chosen]] -= 1
            g = (shares / batch).astype("float32")
            for layer in reversed(layers):
                g = layer.backward(g)
            now = rate * 0.5 * (1 + np.cos(np.pi * step / steps))
            step += 1
            for layer in flat(layers):
                for name, weight in layer.weights.items():
                    speed = speeds.setdefault((id(layer), name), np.zeros_like(weight))
                    speed *= momentum
                    speed -= now * layer.grads[name]
                    weight += speed
        print(f"epoch {epoch + 1:2}: loss {np.mean(losses):.4f}")


# -- the same network, in relax -------------------------------------------------------------------


def to_relax(layers):
    """A module whose `main` gives the probabilities [n, 10] of images [n, 1, 8, 8], for any n."""
    builder = relax.BlockBuilder()
    n = tir.Var("n", "int64")
    images = relax.Var("images", relax.TensorStructInfo((n, 1, 8, 8), "float32"))
    with builder.function("main", [images]):
        with builder.dataflow():
            logits = emit_all(builder, layers, images)
            out = builder.emit_output(op.nn.softmax(logits, axis=-1))
        builder.emit_func_output(out)
    return builder.get()


def emit_all(builder, layers, x):
    """The layers as operators, one after the other."""
    for layer in layers:
        x = emit(builder, layer, x)
    return x


def emit(builder, layer, x):
    """One layer as operators."""
    weights = {name: relax.const(w) for name, w in layer.weights.items()}
    match layer:
        case Conv():
            return builder.emit(op.nn.conv2d(x, weights["w"], padding=1))
        case BatchNorm():
            mean, var = relax.const(layer.mean), relax.const(layer.var)
            made = op.nn.batch_norm(
                x, weights["g"], weights["b"], mean, var, axis=1, epsilon=EPSILON, training=False
            )
            return builder.emit(relax.TupleGetItem(builder.emit(made), 0))
        case Relu():
            return builder.emit(op.nn.relu(x))
        case MaxPool():
            return builder.emit(op.nn.max_pool2d(x, pool_size=2, strides=2))
        case Residual():
            return builder.emit(op.add(x, emit_all(builder, layer.layers, x)))
        case Linear():
            rows = builder.emit(op.reshape(x, (x.struct_info.shape[0], -1)))
            product = builder.emit(op.matmul(rows, weights["w"]))
            return builder.emit(op.add(product, weights["b"]))


def main() -> None:
    """Train, compile, and compare on images that were held out."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from threadpoolctl import threadpool_limits

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--onnx", metavar="FILE", help="write the trained network as a model")
    options = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32").reshape(-1, 1, 8, 8)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=0.25, random_state=0
    )
    rng = np.random.default_rng(0)
    layers = network(rng)
    start = time.perf_counter()
    # Matrices this small are not worth the time that threads take to meet.
    with threadpool_limits(1):
        train(layers, train_x, train_y, options.epochs, rng)
    print(f"trained on {len(train_x)} images in {time.perf_counter() - start:.1f} s\n")

    mod = to_relax(layers)
    if options.onnx:
        pathlib.Path(options.onnx).write_bytes(relaxvm.onnx.to_onnx(mod).SerializeToString())
    print("== the module ==\n")
    for line in mod.script().splitlines():
        print(line if len(line) <= 118 else f"{line[:114]} ...")
    start = time.perf_counter()
    # Batch norms by their moving averages become a few elementwise operators.
    mod = relax.transform.DecomposeOpsForInference()(mod)
    ex = relax.build(mod, target="llvm")
    print(f"\n== built in {time.perf_counter() - start:.2f} s ==\n")
    vm = relax.VirtualMachine(ex, cpu())

    x = array(test_x)
    got = vm["main"](x).numpy()
    start = time.perf_counter()
    vm["main"](x)
    ours = (time.perf_counter() - start) / len(test_x)
    with threadpool_limits(1):
        start = time.perf_counter()
        logits = run(layers, test_x)
    numpys = (time.perf_counter() - start) / len(test_x)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    one = vm["main"](array(test_x[:1])).numpy()

    accuracy = float((got.argmax(1) == test_y).mean())
    print(f"accuracy on {len(test_x)} images not seen before: {accuracy:.4f}")
    print(f"largest difference from numpy's probabilities: {np.abs(got - shares).max():.2e}")
    print(f"one image alone differs from the same among all by {np.abs(one - got[:1]).max():.2e}")
    print(f"time per image: {ours * 1e6:.1f} us, numpy {numpys * 1e6:.1f} us")
    if accuracy < 0.95:
        raise SystemExit("the accuracy is below 0.95")


if __name__ == "__main__":
    main()
