"""Whole models as ONNX files hold them, with random weights: what `bench_models` measures.

    proto = model("resnet50")            # the size that is measured
    proto = model("resnet50", "small")   # the same in all but its sizes, for tests

Most are graphs of `graphs`, written by `relaxvm.onnx.to_onnx`; the others are put together here.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from graphs import bert_of_any_length, bound
from onnx import TensorProto
from to_onnx import onnx_model

from relaxvm.relax.frontend.onnx import to_onnx

__all__ = ["MODELS", "model"]

OPSET = 21
_SLOPE = {"HardSigmoid": {"alpha": 1 / 6}}


def model(name: str, size: str = "full") -> onnx.ModelProto:
    """The model called `name`, one of `MODELS`; `size` is "full" or "small"."""
    if size not in ("full", "small"):
        raise ValueError(f"size: wanted 'full' or 'small', got {size!r}")
    return MODELS[name](size)


def _graph(name: str, size: str) -> onnx.ModelProto:
    return onnx.load_from_string(onnx_model(bound(name, size)[0]))


class _Writer:
    """Nodes and weights of a model."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self.rng = np.random.default_rng(0)

    def weight(self, values: Any, dtype: str = "float32") -> str:
        name = f"w{len(self.weights)}"
        array = np.asarray(values, dtype)
        self.weights.append(onnx.numpy_helper.from_array(array, name))
        return name

    def normal(self, *shape: int, gain: float = 1.0) -> str:
        scale = gain * np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.1
        return self.weight(self.rng.standard_normal(shape) * scale)

    def emit(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.several(kind, 1, *inputs, **attributes)[0]

    def several(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        name = f"v{len(self.nodes)}"
        names = [name, *(f"{name}_{k}" for k in range(1, count))]
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), names, name, **attributes))
        return names

    def conv(self, x: str, inputs: int, outputs: int, size: int, stride: int = 1,
             act: str | None = None, groups: int = 1) -> str:  # fmt: skip
        """A convolution with the batch norm behind it folded in, as torch exports the two."""
        gain = 1.0 if act is None else 1.45
        weights = self.normal(outputs, inputs // groups, size, size, gain=gain)
        settings = {"pads": [size // 2] * 4, "strides": [stride] * 2, "group": groups}
        return self.act(self.emit("Conv", x, weights, self.normal(outputs), **settings), act)

    def act(self, x: str, kind: str | None) -> str:
        """An activation as torch exports it: SiLU is two nodes, GPT-2's GELU eight."""
        if kind == "SiLU":
            return self.emit("Mul", x, self.emit("Sigmoid", x))
        if kind == "GELU of GPT-2":
            cube = self.emit("Mul", self.emit("Pow", x, self.weight(3.0)), self.weight(0.044715))
            inner = self.emit("Mul", self.emit("Add", x, cube), self.weight((2 / np.pi) ** 0.5))
            share = self.emit("Add", self.emit("Tanh", inner), self.weight(1.0))
            return self.emit("Mul", self.emit("Mul", x, self.weight(0.5)), share)
        return x if kind is None else self.emit(kind, x, **_SLOPE.get(kind, {}))

    def gemm(self, x: str, inputs: int, outputs: int) -> str:
        """x [n, inputs]"""
        weights = self.normal(outputs, inputs), self.normal(outputs)
        return self.emit("Gemm", x, *weights, transB=1)

    def linear(self, x: str, inputs: int, outputs: int, bias: bool = True) -> str:
        """x [..., inputs]"""
        product = self.emit("MatMul", x, self.normal(inputs, outputs))
        return self.emit("Add", self.normal(outputs), product) if bias else product

    def norm(self, x: str, dim: int) -> str:
        scale = self.weight(self.rng.uniform(0.7, 1.3, dim))
        return self.emit("LayerNormalization", x, scale, self.normal(dim), epsilon=1e-5)

    def transformer(
        self, x: str, rows: int, dim: int, heads: int, act: str = "Gelu",
        causal: bool = False, key_bias: bool = True,
    ) -> tuple[str, str, str]:  # fmt: skip
        """A layer with its norms before what they are for: x [1, rows, dim] to the same; and its
        keys and values [1, heads, rows, dim / heads].
        """
        size, y = dim // heads, self.norm(x, dim)
        split = self.weight([1, rows, heads, size], "int64")
        parts = [self.linear(y, dim, dim, bias) for bias in (True, key_bias, True)]
        q, k, v = (self.emit("Transpose", self.emit("Reshape", p, split), perm=[0, 2, 1, 3])
                   for p in parts)  # fmt: skip
        scores = self.emit("MatMul", q, self.emit("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.emit("Div", scores, self.weight(size**0.5))
        if causal:
            seen = self.weight(np.tril(np.ones((1, 1, rows, rows))), "bool")
            scores = self.emit("Where", seen, scores, self.weight(np.finfo("float32").min))
        mixed = self.emit("MatMul", self.emit("Softmax", scores, axis=-1), v)
        joined = self.emit("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = self.emit("Reshape", joined, self.weight([1, rows, dim], "int64"))
        x = self.emit("Add", x, self.linear(joined, dim, dim))
        wide = self.act(self.linear(self.norm(x, dim), dim, 4 * dim), act)
        return self.emit("Add", x, self.linear(wide, 4 * dim, dim)), k, v

    def model(self, inputs: dict[str, tuple[Any, ...]], outputs: dict[str, tuple[Any, ...]],
              **options: Any) -> onnx.ModelProto:  # fmt: skip
        """inputs, outputs: {name: (type, dimensions)}"""
        info = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            self.nodes,
            "model",
            [info(n, *each) for n, each in inputs.items()],
            [info(n, *each) for n, each in outputs.items()],
            self.weights,
        )
        opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10, **options)


# -- pictures --------------------------------------------------------------------------------------


def _digits_mlp(size: str) -> onnx.ModelProto:
    """Images of 8x8 points in two hidden layers; any number of them."""
    w, wide = _Writer(), 16 if size == "small" else 128
    x = "x"
    for inputs, outputs in ((64, wide), (wide, wide)):
        x = w.emit("Relu", w.gemm(x, inputs, outputs))
    y = w.emit("Softmax", w.gemm(x, wide, 10), axis=1)
    return w.model({"x": (1, ["n", 64])}, {y: (1, ["n", 10])})


def _digits_convnet(size: str) -> onnx.ModelProto:
    """Images of 8x8 points by convolutions; any number of them."""
    w, wide = _Writer(), 8 if size == "small" else 32
    x = "x"
    for inputs, outputs in ((1, wide), (wide, 2 * wide)):
        x = w.conv(x, inputs, outputs, 3, act="Relu")
        x = w.emit("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = w.gemm(w.emit("Flatten", x), 8 * wide, 10)
    return w.model({"x": (1, ["n", 1, 8, 8])}, {y: (1, ["n", 10])})


def _inverted(w: _Writer, x: str, inputs: int, hidden: int, outputs: int, size: int, stride: int,
              squeezed: int, act: str, acts: tuple[str, str]) -> str:  # fmt: skip
    """A block of MobileNet's: channels made many, a depthwise convolution, channels made few.

    squeezed  the channels that those of the whole picture are weighed by (0: they are not), with
              the two activations `acts`
    """
    y = w.conv(x, inputs, hidden, 1, act=act) if hidden != inputs else x
    y = w.conv(y, hidden, hidden, size, stride, act, groups=hidden)
    if squeezed:
        mean = w.emit("GlobalAveragePool", y)
        few = w.conv(mean, hidden, squeezed, 1, act=acts[0])
        y = w.emit("Mul", w.conv(few, squeezed, hidden, 1, act=acts[1]), y)
    y = w.conv(y, hidden, outputs, 1)
    return w.emit("Add", y, x) if stride == 1 and inputs == outputs else y


def _mobilenet_v3(size: str) -> onnx.ModelProto:
    """MobileNetV3, large (Howard et al., 2019)."""
    w, side, k = _Writer(), *((224, 1) if size == "full" else (32, 8))
    # kernel, hidden channels, channels, squeezed channels, activation, stride of each block
    plan = [
        (3, 16, 16, 0, "Relu", 1), (3, 64, 24, 0, "Relu", 2), (3, 72, 24, 0, "Relu", 1),
        (5, 72, 40, 24, "Relu", 2), (5, 120, 40, 32, "Relu", 1), (5, 120, 40, 32, "Relu", 1),
        (3, 240, 80, 0, "HardSwish", 2), (3, 200, 80, 0, "HardSwish", 1),
        (3, 184, 80, 0, "HardSwish", 1), (3, 184, 80, 0, "HardSwish", 1),
        (3, 480, 112, 120, "HardSwish", 1), (3, 672, 112, 168, "HardSwish", 1),
        (5, 672, 160, 168, "HardSwish", 2), (5, 960, 160, 240, "HardSwish", 1),
        (5, 960, 160, 240, "HardSwish", 1),
    ]  # fmt: skip
    x, inputs = w.conv("x", 3, 16 // k, 3, 2, "HardSwish"), 16 // k
    for kernel, hidden, outputs, squeezed, act, stride in plan:
        sizes = hidden // k, outputs // k, kernel, stride, squeezed // k, act
        x, inputs = _inverted(w, x, inputs, *sizes, ("Relu", "HardSigmoid")), outputs // k
    x = w.emit("GlobalAveragePool", w.conv(x, inputs, 960 // k, 1, act="HardSwish"))
    x = w.gemm(w.emit("Flatten", x), 960 // k, 1280 // k)
    y = w.gemm(w.act(x, "HardSwish"), 1280 // k, 1000 // k)
    return w.model({"x": (1, [1, 3, side, side])}, {y: (1, [1, 1000 // k])})


def _efficientnet(size: str) -> onnx.ModelProto:
    """EfficientNet-B0 (Tan and Le, 2019)."""
    w, side, k = _Writer(), *((224, 1) if size == "full" else (32, 8))
    # how many times the channels, kernel, stride of the first, channels, blocks
    plan = [
        (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1),
    ]  # fmt: skip
    x, inputs = w.conv("x", 3, 32 // k, 3, 2, "SiLU"), 32 // k
    for expand, kernel, stride, outputs, count in plan:
        for i in range(count):
            sizes = inputs * expand, outputs // k, kernel, 1 if i else stride, max(1, inputs // 4)
            x, inputs = _inverted(w, x, inputs, *sizes, "SiLU", ("SiLU", "Sigmoid")), outputs // k
    x = w.emit("GlobalAveragePool", w.conv(x, inputs, 1280 // k, 1, act="SiLU"))
    y = w.gemm(w.emit("Flatten", x), 1280 // k, 1000 // k)
    return w.model({"x": (1, [1, 3, side, side])}, {y: (1, [1, 1000 // k])})


def _detector(size: str) -> onnx.ModelProto:
    """YOLOv8n and, behind it, the choice of boxes: corners [boxes, 4], scores and kinds [boxes]."""
    w, side, k, kinds, rare = _Writer(), *((640, 1, 80, 2.4) if size == "full" else (64, 4, 5, 1.3))
    c = [16 // k << i for i in range(5)]

    def conv(x: str, inputs: int, outputs: int, size: int, stride: int = 1) -> str:
        return w.conv(x, inputs, outputs, size, stride, "SiLU")

    def cross(x: str, inputs: int, outputs: int, count: int, adds: bool) -> str:
        """Half of the channels go through `count` pairs of convolutions; all halves are joined."""
        half = outputs // 2
        parts = w.several("Split", 2, conv(x, inputs, outputs, 1), axis=1, num_outputs=2)
        for _ in range(count):
            y = conv(conv(parts[-1], half, half, 3), half, half, 3)
            parts.append(w.emit("Add", parts[-1], y) if adds else y)
        return conv(w.emit("Concat", *parts, axis=1), half * len(parts), outputs, 1)

    def above(x: str, y: str) -> str:
        """`x`, twice as high and wide, on `y`."""
        scales = w.weight([1, 1, 2, 2], "float32")
        modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
        return w.emit("Concat", w.emit("Resize", x, "", scales, nearest_mode="floor", **modes), y,
                      axis=1)  # fmt: skip

    x, seen = conv("x", 3, c[0], 3, 2), []
    for i, count in enumerate((1, 2, 2, 1)):
        x = cross(conv(x, c[i], c[i + 1], 3, 2), c[i + 1], c[i + 1], count, True)
        seen.append(x)
    pools = [conv(x, c[4], c[3], 1)]
    for _ in range(3):
        pools.append(w.emit("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2] * 4))
    x = conv(w.emit("Concat", *pools, axis=1), 4 * c[3], c[4], 1)
    middle = cross(above(x, seen[2]), c[4] + c[3], c[3], 1, False)
    fine = cross(above(middle, seen[1]), c[3] + c[2], c[2], 1, False)
    joined = w.emit("Concat", conv(fine, c[2], c[2], 3, 2), middle, axis=1)
    middle = cross(joined, c[3] + c[2], c[3], 1, False)
    joined = w.emit("Concat", conv(middle, c[3], c[3], 3, 2), x, axis=1)
    coarse = cross(joined, c[4] + c[3], c[4], 1, False)

    flat, centres, strides, bins = [], [], [], 16
    for level, (x, inputs) in enumerate(zip((fine, middle, coarse), c[2:])):
        sides, stride = side >> level + 3, 8 << level
        for outputs, wide in ((4 * bins, max(16, 64 // k)), (kinds, max(c[2], kinds))):
            y = conv(conv(x, inputs, wide, 3), wide, wide, 3)
            flat.append(w.conv(y, wide, outputs, 1))
        joined = w.emit("Concat", *flat[-2:], axis=1)
        flat[-2:] = [w.emit("Reshape", joined, w.weight([1, 4 * bins + kinds, -1], "int64"))]
        row, column = np.indices((sides, sides)).reshape(2, -1) + 0.5
        centres.append(np.stack([column, row])), strides.append(np.full(sides**2, stride))
    every = w.emit("Concat", *flat, axis=2)
    numbers = sum(map(len, strides))
    edges, scores = w.several("Split", 2, every, w.weight([4 * bins, kinds], "int64"), axis=1)
    edges = w.emit("Reshape", edges, w.weight([1, 4, bins, numbers], "int64"))
    share = w.emit("Softmax", w.emit("Transpose", edges, perm=[0, 2, 1, 3]), axis=1)
    means = w.emit("Conv", share, w.weight(np.arange(bins).reshape(1, bins, 1, 1)))
    means = w.emit("Reshape", means, w.weight([1, 4, numbers], "int64"))
    before, behind = w.several("Split", 2, means, axis=1, num_outputs=2)
    points = w.weight(np.concatenate(centres, 1)[None])
    low, high = w.emit("Sub", points, before), w.emit("Add", points, behind)
    middle = w.emit("Div", w.emit("Add", low, high), w.weight(2.0))
    boxes = w.emit("Concat", middle, w.emit("Sub", high, low), axis=1)
    boxes = w.emit("Mul", boxes, w.weight(np.concatenate(strides)))
    boxes = w.emit("Transpose", boxes, perm=[0, 2, 1])
    # Most places hold nothing.
    scores = w.emit("Sigmoid", w.emit("Sub", scores, w.weight(rare)))
    limits = w.weight([100], "int64"), w.weight([0.45]), w.weight([0.25])
    chosen = w.emit("NonMaxSuppression", boxes, scores, *limits, center_point_box=1)
    kind, which = (w.emit("Gather", chosen, w.weight(i, "int64"), axis=1) for i in (1, 2))
    corners = w.emit("Gather", w.emit("Squeeze", boxes, w.weight([0], "int64")), which)
    values = w.emit("GatherND", scores, chosen)
    return w.model(
        {"x": (1, [1, 3, side, side])},
        {corners: (1, ["boxes", 4]), values: (1, ["boxes"]), kind: (7, ["boxes"])},
    )


def _vit(size: str) -> onnx.ModelProto:
    """ViT-B/16 (Dosovitskiy et al., 2020): pictures in 14x14 pieces."""
    w = _Writer()
    side, piece, dim, heads, layers = (
        (224, 16, 768, 12, 12) if size == "full" else (32, 8, 16, 2, 2)
    )
    rows, classes = (side // piece) ** 2, dim + 232
    pieces = w.emit("Conv", "x", w.normal(dim, 3, piece, piece), w.normal(dim), strides=[piece] * 2)
    flat = w.emit("Reshape", pieces, w.weight([1, dim, rows], "int64"))
    flat = w.emit("Transpose", flat, perm=[0, 2, 1])
    x = w.emit("Concat", w.normal(1, 1, dim), flat, axis=1)
    x = w.emit("Add", x, w.normal(1, rows + 1, dim))
    for _ in range(layers):
        x, _, _ = w.transformer(x, rows + 1, dim, heads)
    first = w.emit("Gather", w.norm(x, dim), w.weight(0, "int64"), axis=1)
    return w.model({"x": (1, [1, 3, side, side])}, {w.gemm(first, dim, classes): (1, [1, classes])})


# -- texts and sounds ------------------------------------------------------------------------------


def _gpt2_prefill(size: str) -> onnx.ModelProto:
    """GPT-2 on the tokens of a prompt: logits of each, and the keys and values of all layers."""
    w = _Writer()
    tokens, vocab, dim, heads, layers = (
        (128, 50257, 768, 12, 12) if size == "full" else (7, 30, 16, 2, 2)
    )
    words = w.normal(vocab, dim)
    x = w.emit("Add", w.emit("Gather", words, "tokens"), w.normal(1, tokens, dim))
    outputs = {}
    for _ in range(layers):
        x, *cache = w.transformer(x, tokens, dim, heads, "GELU of GPT-2", causal=True)
        outputs.update({name: (1, [1, heads, tokens, dim // heads]) for name in cache})
    logits = w.emit("MatMul", w.norm(x, dim), w.emit("Transpose", words, perm=[1, 0]))
    return w.model({"tokens": (7, [1, tokens])}, {logits: (1, [1, tokens, vocab]), **outputs})


def _whisper_encoder(size: str) -> onnx.ModelProto:
    """The encoder of Whisper-tiny (Radford et al., 2022): 30 seconds of sound."""
    w = _Writer()
    bands, frames, dim, heads, layers = (
        (80, 3000, 384, 6, 4) if size == "full" else (6, 14, 16, 2, 2)
    )
    x, inputs, rows = "x", bands, frames // 2
    for stride in (1, 2):
        weights = w.normal(dim, inputs, 3), w.normal(dim)
        x, inputs = w.emit("Conv", x, *weights, pads=[1, 1], strides=[stride]), dim
        x = w.emit("Gelu", x)
    x = w.emit("Add", w.emit("Transpose", x, perm=[0, 2, 1]), w.normal(rows, dim))
    for _ in range(layers):
        x, _, _ = w.transformer(x, rows, dim, heads, key_bias=False)
    return w.model({"x": (1, [1, bands, frames])}, {w.norm(x, dim): (1, [1, rows, dim])})


def _tagger(kind: str, size: str) -> onnx.ModelProto:
    """Words to tags by a layer that reads them in both directions: [1, length] to
    [length, 1, tags].
    """
    words, wide, hidden, tags = (30, 8, 8, 5) if size == "small" else (10_000, 128, 256, 17)
    w, gates = _Writer(), {"LSTM": 4, "GRU": 3}[kind]
    x = w.emit("Transpose", w.emit("Gather", w.normal(words, wide), "words"), perm=[1, 0, 2])
    shapes = (2, gates * hidden, wide), (2, gates * hidden, hidden), (2, 2 * gates * hidden)
    weights = [w.normal(*shape) for shape in shapes]
    more = {} if kind == "LSTM" else {"linear_before_reset": 1}
    read = w.emit(kind, x, *weights, hidden_size=hidden, direction="bidirectional", **more)
    rows = w.emit("Transpose", read, perm=[0, 2, 1, 3])
    joined = w.emit("Reshape", rows, w.weight([0, 0, 2 * hidden], "int64"))
    y = w.emit("MatMul", joined, w.normal(2 * hidden, tags))
    return w.model({"words": (7, [1, "length"])}, {y: (1, ["length", 1, tags])})


# -- trees, and graphs in 8 bits -------------------------------------------------------------------


def _trees(size: str) -> onnx.ModelProto:
    """500 trees of depth 6 over 30 columns, summed up."""
    trees, depth, columns = (5, 3, 6) if size == "small" else (500, 6, 30)
    w, inner = _Writer(), 2**depth - 1
    nodes = [(t, i) for t in range(trees) for i in range(2 * inner + 1)]
    leaves = [(t, i) for t, i in nodes if i >= inner]
    rng = w.rng
    w.emit(
        "TreeEnsembleRegressor",
        "x",
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[t for t, _ in nodes],
        nodes_nodeids=[i for _, i in nodes],
        nodes_featureids=[int(rng.integers(columns)) if i < inner else 0 for _, i in nodes],
        nodes_values=[float(rng.standard_normal()) if i < inner else 0.0 for _, i in nodes],
        nodes_modes=["BRANCH_LEQ" if i < inner else "LEAF" for _, i in nodes],
        nodes_truenodeids=[2 * i + 1 if i < inner else 0 for _, i in nodes],
        nodes_falsenodeids=[2 * i + 2 if i < inner else 0 for _, i in nodes],
        target_treeids=[t for t, _ in leaves],
        target_nodeids=[i for _, i in leaves],
        target_ids=[0] * len(leaves),
        target_weights=[float(v) for v in rng.standard_normal(len(leaves))],
    )
    return w.model({"x": (1, ["n", columns])}, {"v0": (1, ["n", 1])})


def _quantised(name: str, size: str) -> onnx.ModelProto:
    """A graph whose convolutions read 8 bits: QuantizeLinear and DequantizeLinear around what they
    are given, weights stored in 8 bits, a scale for each output channel.

    The scales of values are those of activations that are normalised: 3 of them reach 127.
    """
    proto = _graph(name, size)
    graph = proto.graph
    weights = {t.name: t for t in graph.initializer}
    nodes, done = list(graph.node), {}
    del graph.node[:]

    numbers = itertools.count()

    def stored(array: Any, dtype: str) -> str:
        label = f"q{next(numbers)}"
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, dtype), label))
        return label

    def coarse(name: str) -> str:
        """What is left of a value, or of a weight, in 8 bits."""
        if name in done:
            return done[name]
        done[name] = label = f"{name}.in_8_bits"
        if name in weights:
            values = onnx.numpy_helper.to_array(weights[name])
            scale = np.abs(values).max(axis=tuple(range(1, values.ndim))) / 127 + 1e-9
            rounded = np.round(values / scale.reshape(-1, *[1] * (values.ndim - 1)))
            inputs = [stored(rounded, "int8"), stored(scale, "float32")]
            inputs.append(stored(np.zeros(len(scale)), "int8"))
            graph.node.append(onnx.helper.make_node("DequantizeLinear", inputs, [label], axis=0))
            graph.initializer.remove(weights[name])
            return label
        settings = [stored(3 / 127, "float32"), stored(0, "int8")]
        make = onnx.helper.make_node
        graph.node.append(make("QuantizeLinear", [name, *settings], [f"{name}.stored"]))
        graph.node.append(make("DequantizeLinear", [f"{name}.stored", *settings], [label]))
        return label

    for node in nodes:
        if node.op_type == "Conv":
            node.input[:] = [*map(coarse, node.input[:2]), *node.input[2:]]
        graph.node.append(node)
    return proto


# Model -> the graph that it is.
_GRAPHS = {
    **{n: n for n in ("resnet50", "mobilenet_v2", "inception", "vgg", "unet", "bert_base")},
    "minilm_6": "sentence_encoder",
    **{n: n for n in ("gpt2_decode", "llama_decode", "lstm")},
}
MODELS: dict[str, Callable[[str], onnx.ModelProto]] = {
    **{name: functools.partial(_graph, graph) for name, graph in _GRAPHS.items()},
    "mobilenet_v3": _mobilenet_v3,
    "efficientnet_b0": _efficientnet,
    "yolov8n_nms": _detector,
    "vit_b16": _vit,
    "bert_base_dynamic": lambda size: to_onnx(bert_of_any_length(size)),
    "gpt2_prefill": _gpt2_prefill,
    "whisper_tiny_encoder": _whisper_encoder,
    "resnet50_int8": functools.partial(_quantised, "resnet50"),
    "lstm_tagger": functools.partial(_tagger, "LSTM"),
    "gru_tagger": functools.partial(_tagger, "GRU"),
    "trees": _trees,
    "digits_mlp": _digits_mlp,
    "digits_convnet": _digits_convnet,
}
