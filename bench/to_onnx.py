"""The graphs of `graphs` as ONNX models, for onnxruntime: `relaxvm.onnx.to_onnx`, and for the
recursion ONNX's own operator.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

import relaxvm as tvm
from relaxvm import relax
from relaxvm.ir import IRModule, walk

__all__ = ["onnx_model"]


def onnx_model(mod: IRModule) -> bytes:
    """The function `main` of `mod`, its constants included, as a serialised model."""
    return (_lstm(mod) if "cell" in mod else tvm.onnx.to_onnx(mod)).SerializeToString()


def _lstm(mod: IRModule) -> onnx.ModelProto:
    """The recursion as an LSTM."""
    xs, h = (p.struct_info for p in mod["main"].params[:2])
    length, hidden, inputs = xs.shape[0], int(h.shape[1]), int(xs.shape[2])
    constants = [e.data.numpy() for e in walk(mod["cell"]) if isinstance(e, relax.Constant)]
    by_shape = {a.shape: a for a in constants}

    def ordered(array: np.ndarray) -> np.ndarray:
        """Gates in ONNX's order: input, output, forget, cell."""
        i, f, g, o = np.split(array, 4)
        return np.concatenate([i, o, f, g])

    bias = np.concatenate([ordered(by_shape[(4 * hidden,)]), np.zeros(4 * hidden, "float32")])
    weights = {
        "w": ordered(by_shape[4 * hidden, inputs])[None],
        "r": ordered(by_shape[4 * hidden, hidden])[None],
        "b": bias[None],
        "first": np.zeros(1, "int64"),
    }
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    names = ["xs", "w", "r", "b", "", "h0", "c0"]
    nodes = [
        node("Unsqueeze", ["h", "first"], ["h0"]),
        node("Unsqueeze", ["c", "first"], ["c0"]),
        node("LSTM", names, ["", "h1", "c1"], hidden_size=hidden),
        node("Squeeze", ["h1", "first"], ["last_h"]),
        node("Squeeze", ["c1", "first"], ["last_c"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "lstm",
        [info("xs", 1, [str(length), 1, inputs]), *(info(n, 1, [1, hidden]) for n in "hc")],
        [info(n, 1, [1, hidden]) for n in ("last_h", "last_c")],
        [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10
    )
