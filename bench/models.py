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

    def normal(self, *shape: int) -> str:
        scale = np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.1
        return self.weight(self.rng.standard_normal(shape) * scale)

    def emit(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

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


def _digits_mlp(size: str) -> onnx.ModelProto:
    """Images of 8x8 points in two hidden layers; any number of them."""
    w, wide = _Writer(), 16 if size == "small" else 128
    x = "x"
    for inputs, outputs in ((64, wide), (wide, wide)):
        product = w.emit("Gemm", x, w.normal(outputs, inputs), w.normal(outputs), transB=1)
        x = w.emit("Relu", product)
    y = w.emit("Softmax", w.emit("Gemm", x, w.normal(10, wide), w.normal(10), transB=1), axis=1)
    return w.model({"x": (1, ["n", 64])}, {y: (1, ["n", 10])})


def _digits_convnet(size: str) -> onnx.ModelProto:
    """Images of 8x8 points by convolutions; any number of them."""
    w, wide = _Writer(), 8 if size == "small" else 32
    x = "x"
    for inputs, outputs in ((1, wide), (wide, 2 * wide)):
        bias = w.normal(outputs)
        x = w.emit("Conv", x, w.normal(outputs, inputs, 3, 3), bias, pads=[1, 1, 1, 1])
        x = w.emit("MaxPool", w.emit("Relu", x), kernel_shape=[2, 2], strides=[2, 2])
    flat = w.emit("Flatten", x)
    y = w.emit("Gemm", flat, w.normal(10, 8 * wide), w.normal(10), transB=1)
    return w.model({"x": (1, ["n", 1, 8, 8])}, {y: (1, ["n", 10])})


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


_GRAPHS = ("resnet50", "mobilenet_v2", "inception", "vgg", "bert_base", "sentence_encoder",
           "gpt2_decode", "llama_decode", "lstm", "unet")  # fmt: skip
MODELS: dict[str, Callable[[str], onnx.ModelProto]] = {
    **{name: functools.partial(_graph, name) for name in _GRAPHS},
    "bert_base_dynamic": lambda size: to_onnx(bert_of_any_length(size)),
    "resnet50_int8": functools.partial(_quantised, "resnet50"),
    "lstm_tagger": functools.partial(_tagger, "LSTM"),
    "gru_tagger": functools.partial(_tagger, "GRU"),
    "trees": _trees,
    "digits_mlp": _digits_mlp,
    "digits_convnet": _digits_convnet,
}
