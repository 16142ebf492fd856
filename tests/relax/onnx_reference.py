"""One operator run by onnxruntime, where it is installed: an independent answer for tests of
meanings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxvm import relax


def run_onnx(op_type: str, inputs: list[np.ndarray], opset: int = 18, **attrs: Any) -> np.ndarray:
    """The first result of the ONNX operator on `inputs`. Skips the test where onnxruntime is not
    installed.
    """
    ort = pytest.importorskip(
        "onnxruntime", reason="compares with onnxruntime where it is installed"
    )
    onnx = pytest.importorskip("onnx", reason="builds the model for onnxruntime")
    helper = onnx.helper
    names = [f"x{i}" for i in range(len(inputs))]
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in inputs]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **attrs)],
        op_type,
        [helper.make_tensor_value_info(n, k, a.shape) for n, k, a in zip(names, kinds, inputs)],
        [onnx.ValueInfoProto(name="y")],
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, inputs)))[0]


def variables(arrays: list[np.ndarray]) -> list[relax.Var]:
    """A variable for each array, of its shape and dtype."""
    return [
        relax.Var(f"x{i}", relax.TensorStructInfo(a.shape, str(a.dtype)))
        for i, a in enumerate(arrays)
    ]
