"""The graphs of `graphs` as ONNX models, for onnxruntime: an operator of ours is what exporters
write for it, one or a few of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relaxvm import relax
from relaxvm.ir import IntImm, IRModule, walk

__all__ = ["onnx_model"]


def onnx_model(mod: IRModule) -> bytes:
    """The function `main` of `mod`, its constants included, as a serialised model."""
    return (_lstm(mod) if "cell" in mod else _Model().graph(mod["main"])).SerializeToString()


_SAME = {
    "nn.relu": "Relu",
    "nn.layer_norm": "LayerNormalization",
    "nn.rms_norm": "SimplifiedLayerNormalization",
    "nn.adaptive_avg_pool2d": "GlobalAveragePool",
    "nn.softmax": "Softmax",
    "nn.gelu": "Gelu",
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "matmul": "MatMul",
    "tanh": "Tanh",
    "exp": "Exp",
    "sqrt": "Sqrt",
    "cos": "Cos",
    "sin": "Sin",
    "greater": "Greater",
    "where": "Where",
    "take": "Gather",
    "scatter_nd": "ScatterND",
}


class _Model:
    def __init__(self) -> None:
        import onnx

        self.onnx = onnx
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.names: dict[Any, Any] = {}
        self.count = 0

    # -- pieces ------------------------------------------------------------------------------------

    def emit(self, kind: str, inputs: list[str], outputs: int = 1, **attrs: Any) -> Any:
        """A node; the name of its output, or a list of those of several."""
        self.count += 1
        names = [f"v{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, names, **attrs))
        return names if outputs > 1 else names[0]

    def weight(self, array: Any) -> str:
        """An initializer."""
        self.count += 1
        name = f"w{self.count}"
        self.weights.append(self.onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *values: Any) -> str:
        return self.weight(np.array(values, "int64"))

    def name(self, e: Any) -> Any:
        """The name of a value; a list of names for a tuple."""
        if e not in self.names:
            if isinstance(e, relax.Constant):
                self.names[e] = self.weight(e.data.numpy())
            elif isinstance(e, relax.Tuple):
                return [self.name(f) for f in e.fields]
            elif isinstance(e, relax.TupleGetItem):
                return self.name(e.tuple_value)[e.index]
        return self.names[e]

    def info(self, name: str, tensor: Any) -> Any:
        dims = [d.value if isinstance(d, IntImm) else str(d) for d in tensor.shape]
        helper = self.onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(str(tensor.dtype)))
        return helper.make_tensor_value_info(name, kind, dims)

    def graph(self, fn: Any) -> Any:
        """The model of a function."""
        inputs = []
        for k, p in enumerate(fn.params):
            parts = getattr(p.struct_info, "fields", None)
            names = [f"x{k}_{i}" for i in range(len(parts))] if parts else [f"x{k}"]
            inputs += [self.info(n, t) for n, t in zip(names, parts or [p.struct_info])]
            self.names[p] = names if parts else names[0]
        for block in fn.body.blocks:
            for b in block.bindings:
                call = isinstance(b.value, relax.Call)
                self.names[b.var] = self.call(b.value) if call else self.name(b.value)
        outputs = [self.onnx.ValueInfoProto(name=n) for n in _flat(self.name(fn.body.body))]
        return self.model(inputs, outputs)

    def model(self, inputs: list[Any], outputs: list[Any]) -> Any:
        helper = self.onnx.helper
        graph = helper.make_graph(self.nodes, "graph", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    # -- operators ---------------------------------------------------------------------------------

    def call(self, call: Any) -> Any:
        op = call.op.name.removeprefix("relax.")
        special: Callable[[Any], Any] | None = getattr(self, f"_{op.replace('.', '_')}", None)
        if special is not None:
            return special(call)
        attrs = call.attrs
        given: dict[str, Any] = {}
        if op in ("nn.layer_norm", "nn.rms_norm"):
            given = {"axis": -1, "epsilon": float(attrs["epsilon"])}
        elif op in ("nn.softmax", "take"):
            given = {"axis": int(attrs["axis"])}
        return self.emit(_SAME[op], [self.name(a) for a in call.args], **given)

    def _nn_conv2d(self, call: Any, kind: str = "Conv") -> str:
        a = call.attrs
        return self.emit(
            kind, [self.name(x) for x in call.args], strides=_ints(a["strides"]),
            pads=_ints(a["padding"]), dilations=_ints(a["dilation"]), group=int(a["groups"]),
        )  # fmt: skip

    def _nn_conv2d_transpose(self, call: Any) -> str:
        return self._nn_conv2d(call, "ConvTranspose")

    def _nn_max_pool2d(self, call: Any) -> str:
        a = call.attrs
        return self.emit(
            "MaxPool", [self.name(call.args[0])], kernel_shape=_ints(a["pool_size"]),
            strides=_ints(a["strides"]), pads=_ints(a["padding"]),
        )  # fmt: skip

    def _nn_batch_norm(self, call: Any) -> list[str]:
        names = [self.name(x) for x in call.args]
        epsilon = float(call.attrs["epsilon"])
        return [self.emit("BatchNormalization", names, epsilon=epsilon), *names[3:]]

    def _nn_relu6(self, call: Any) -> str:
        ends = [self.weight(np.float32(v)) for v in (0, 6)]
        return self.emit("Clip", [self.name(call.args[0]), *ends])

    def _nn_gelu_tanh(self, call: Any) -> str:
        return self.emit("Gelu", [self.name(call.args[0])], approximate="tanh")

    def _nn_silu(self, call: Any) -> str:
        x = self.name(call.args[0])
        return self.emit("Mul", [x, self.emit("Sigmoid", [x])])

    def _reshape(self, call: Any) -> str:
        shape = self.ints(*[int(d) for d in call.struct_info.shape])
        return self.emit("Reshape", [self.name(call.args[0]), shape])

    def _permute_dims(self, call: Any) -> str:
        axes = call.attrs["axes"]
        order = range(call.struct_info.ndim)[::-1] if axes is None else _ints(axes)
        return self.emit("Transpose", [self.name(call.args[0])], perm=list(order))

    def _expand_dims(self, call: Any) -> str:
        return self.emit(
            "Unsqueeze", [self.name(call.args[0]), self.ints(*_ints(call.attrs["axis"]))]
        )

    def _concat(self, call: Any) -> str:
        return self.emit("Concat", self.name(call.args[0]), axis=int(call.attrs["axis"]))

    def _split(self, call: Any) -> Any:
        axis = int(call.attrs["axis"])
        parts = [int(f.shape[axis]) for f in call.struct_info.fields]
        names = [self.name(call.args[0]), self.ints(*parts)]
        return self.emit("Split", names, outputs=len(parts), axis=axis)

    def _sum(self, call: Any) -> str:
        names = [self.name(call.args[0]), self.ints(*_ints(call.attrs["axis"]))]
        return self.emit("ReduceSum", names, keepdims=int(call.attrs["keepdims"]))

    def _full(self, call: Any) -> str:
        shape = [int(d) for d in call.struct_info.shape]
        return self.weight(np.full(shape, call.args[1].data.numpy()))

    def _arange(self, call: Any) -> str:
        start, stop, step = (a.value.value for a in call.args)
        return self.weight(np.arange(start, stop, step, str(call.struct_info.dtype)))

    def _astype(self, call: Any) -> str:
        kind = np.dtype(str(call.struct_info.dtype))
        to = self.onnx.helper.np_dtype_to_tensor_dtype(kind)
        return self.emit("Cast", [self.name(call.args[0])], to=to)

    def _nn_attention(self, call: Any) -> str:
        q, k, v, *mask = (self.name(a) for a in call.args)
        batch, many, heads, size = (int(d) for d in call.args[0].struct_info.shape)
        shared = int(call.args[1].struct_info.shape[2])
        if many != 1:
            raise NotImplementedError("attention of more than one query")
        # Heads that share keys are rows of one product.
        grouped = self.ints(batch, shared, heads // shared, size)
        q = self.emit("Reshape", [q, grouped])
        k = self.emit("Transpose", [k], perm=[0, 2, 3, 1])
        v = self.emit("Transpose", [v], perm=[0, 2, 1, 3])
        scale = call.attrs["scale"]
        scale = self.weight(np.float32(size**-0.5 if scale is None else float(scale)))
        scores = self.emit("Mul", [self.emit("MatMul", [q, k]), scale])
        for bias in mask:
            scores = self.emit("Add", [scores, bias])
        mixed = self.emit("MatMul", [self.emit("Softmax", [scores], axis=-1), v])
        return self.emit("Reshape", [mixed, self.ints(batch, many, heads, size)])

    _nn_attention_bias = _nn_attention


def _lstm(mod: IRModule) -> Any:
    """The recursion as ONNX's own operator."""
    made = _Model()
    xs, h = (p.struct_info for p in mod["main"].params[:2])
    hidden, inputs = int(h.shape[1]), int(xs.shape[2])
    constants = [e.data.numpy() for e in walk(mod["cell"]) if isinstance(e, relax.Constant)]
    weights = {a.shape: a for a in constants}

    def ordered(array: np.ndarray) -> str:
        i, f, g, o = np.split(array, 4)
        return made.weight(np.concatenate([i, o, f, g])[None])

    w, r = ordered(weights[4 * hidden, inputs]), ordered(weights[4 * hidden, hidden])
    bias = np.concatenate(np.split(weights[(4 * hidden,)], 4))
    i, f, g, o = np.split(bias, 4)
    b = made.weight(np.concatenate([i, o, f, g, np.zeros(4 * hidden, "float32")])[None])
    start = [made.emit("Unsqueeze", [n, made.ints(0)]) for n in ("x1", "x2")]
    _, last_h, last_c = made.emit(
        "LSTM", ["x0", w, r, b, "", *start], outputs=3, hidden_size=hidden
    )
    outputs = [made.emit("Squeeze", [n, made.ints(0)]) for n in (last_h, last_c)]
    infos = [made.info(f"x{k}", p.struct_info) for k, p in enumerate(mod["main"].params)]
    return made.model(infos, [made.onnx.ValueInfoProto(name=n) for n in outputs])


def _ints(values: Any) -> list[int]:
    return [int(v) for v in values] if hasattr(values, "__iter__") else [int(values)]


def _flat(names: Any) -> list[str]:
    return [n for part in names for n in _flat(part)] if isinstance(names, list) else [names]
