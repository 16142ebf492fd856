"""What random models (see `fuzz.onnx_models`) found, one case each."""

import ml_dtypes
import numpy as np
import pytest

from relaxvm.base import FrontendError
from relaxvm.relax.frontend.onnx import from_onnx
from relaxvm.relax.frontend.onnx.backend import RelaxvmRep

onnx = pytest.importorskip("onnx", reason="reading ONNX models needs the extra onnx")
helper = onnx.helper


def one(op_type, arrays, opset=23, domain="", dims=None, weights=False, **attrs):
    """A model of one node and its inputs."""
    names = [f"x{k}" if a is not None else "" for k, a in enumerate(arrays)]
    values = {n: np.asarray(a) for n, a in zip(names, arrays) if a is not None}
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in values.items()}
    inputs = [
        helper.make_tensor_value_info(n, kinds[n], dims or a.shape) for n, a in values.items()
    ]
    proto = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], domain=domain, **attrs)],
        "g",
        [] if weights else inputs,
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(a, n) for n, a in values.items()] if weights else [],
    )
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 4)]
    model = helper.make_model(proto, opset_imports=versions)
    return model, {} if weights else values


def f32(*values):
    return np.array(values, "float32")


PICTURE = np.uint8([[[[0, 3, 1, 2]]]])
TO_SEVEN = [None, None, np.array([1, 1, 1, 7])]
ONE_ROW = f32(0.25, -0.5, 2)[None]
CASES = {
    "Shrink below zero": (
        one("Shrink", [f32(-1, 0, 1)], lambd=-0.5, bias=0.5),
        f32(-0.5, 0.5, 0.5),
    ),
    "Shrink of integers by a fraction": (
        one("Shrink", [np.int32([3, -2, 0])], bias=0.25),
        [2, -1, 0],
    ),
    "Gemm of integers by a fraction": (
        one("Gemm", [[[3]], [[1, 2]], [[1, 1]]], alpha=0.5, beta=2.0),
        [[3, 5]],
    ),
    "Erf of integers": (one("Erf", [np.int32([0, 5, -5])]), [0, 0, 0]),
    "OneHotEncoder of fractions": (
        one("OneHotEncoder", [ONE_ROW], domain="ai.onnx.ml", cats_int64s=[0, 2]),
        [[[1, 0], [1, 0], [0, 1]]],
    ),
    "QuantizeLinear of integers": (
        one("QuantizeLinear", [np.int32([4, 9]), np.float32(2), np.uint8(1)]),
        [3, 5],
    ),
    "QLinearMatMul of floats of 8 bits": (
        one(
            "QLinearMatMul",
            [
                *(np.array([[2]], ml_dtypes.float8_e4m3fn), f32(0.5)),
                *(np.array(0, ml_dtypes.float8_e4m3fn), np.int8([[3]]), f32(2), np.int8(1)),
                *(f32(0.5), np.int8(1)),
            ],
        ),
        [[9]],
    ),
    "MatMulInteger with the second zero point alone": (
        one("MatMulInteger", [np.uint8([[2]]), np.uint8([[3]]), None, np.uint8(1)]),
        [[4]],
    ),
    "ConvInteger with the second zero point alone": (
        one("ConvInteger", [np.uint8([[[2]]]), np.uint8([[[3]]]), None, np.uint8(1)]),
        [[[4]]],
    ),
    "GridSample of integers": (
        one("GridSample", [np.int32([[[[1, 5]]]]), f32(-0.5, 0, 0, 0).reshape(1, 1, 2, 2)]),
        [[[[1, 3]]]],
    ),
    "Hardmax over sizes of run time": (
        one("Hardmax", [f32(1, 3, 2)], dims=["n"]),
        f32(0, 1, 0),
    ),
    "Hardmax over nothing": (one("Hardmax", [np.ones((2, 0), "float32")]), np.ones((2, 0))),
    "Clip of halves without limits": (one("Clip", [np.float16([7])], 6), [7]),
    "Resize of integers, antialiased": (
        one(
            "Resize",
            [PICTURE, *TO_SEVEN],
            mode="linear",
            antialias=1,
            coordinate_transformation_mode="asymmetric",
        ),
        [[[[0, 2, 3, 2, 1, 2, 2]]]],
    ),
    "Resize of integers, linear": (
        one(
            "Resize",
            [PICTURE, *TO_SEVEN],
            mode="linear",
            coordinate_transformation_mode="asymmetric",
        ),
        [[[[0, 1, 2, 1, 1, 1, 2]]]],
    ),
    "RoiAlign of a region without pixels": (
        one(
            "RoiAlign",
            [np.ones((1, 1, 4, 4), "float32"), f32(0, 3, 3, 2)[None], np.array([0])],
            output_height=2,
            sampling_ratio=0,
        ),
        np.zeros((1, 1, 2, 1)),
    ),
    "a scalar of 16 bits among the weights": (
        one("Identity", [np.array(2, ml_dtypes.bfloat16)], weights=True),
        np.array(2),
    ),
}


@pytest.mark.parametrize("what", CASES)
def test_an_answer_that_was_another(what):
    (model, inputs), wanted = CASES[what]
    for options in ({"interpret": True}, {"exec_mode": "compiled"}):
        (got,) = RelaxvmRep(model, **options).run(inputs)
        assert got.shape == np.shape(wanted)
        np.testing.assert_allclose(got.astype("float64"), wanted, 1e-6)


def test_features_of_a_scalar_are_refused():
    model, _ = one("Scaler", [f32(1).reshape(())], domain="ai.onnx.ml", offset=[0.0], scale=[1.0])
    with pytest.raises(FrontendError, match="wanted rows of features"):
        from_onnx(model)
