"""ONNX's operators on every type of element that their schemas name."""

import warnings

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import StructInfoError
from relaxvm.relax.frontend.onnx import from_onnx
from relaxvm.relax.interp import Evaluator
from relaxvm.runtime import VirtualMachine, cpu

onnx = pytest.importorskip("onnx", reason="the schemas are those of the package onnx")
helper = onnx.helper


def few(*shape, low=0, high=4):
    """Numbers of `shape`, of whichever type is looked at."""
    return shape, low, high


def int64(*values):
    return np.array(values, "int64")


X, IMAGE = few(3, 4), few(1, 4, 2, 2)
ROW = few(4, low=1)
UNARY = """
    Abs Acos Asin Atanh BitwiseNot Ceil Cos Elu Erf Exp EyeLike Flatten Floor Gelu HardSigmoid
    Hardmax Identity IsInf IsNaN LeakyRelu Log LogSoftmax LpNormalization Mish Neg NonZero Not
    Reciprocal Relu Round Selu Shape Shrink Sigmoid Sign Sin Sinh Size Softmax Softplus Softsign
    Sqrt Squeeze Swish Tan Tanh ThresholdedRelu Transpose
"""
BINARY = """
    Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max
    Min Mod Mul Or PRelu Pow Sub Xor
"""
REDUCE = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"
CALLS = [
    *((name, [X], {}) for name in UNARY.split()),
    *((name, [X, ROW], {}) for name in BINARY.split()),
    *((f"Reduce{name}", [X, int64(1)], {}) for name in REDUCE.split()),
    ("ArgMax", [X], {}),
    ("ArgMin", [X], {"select_last_index": 1}),
    ("AveragePool", [IMAGE], {"kernel_shape": [2, 2]}),
    ("BitShift", [X, X], {"direction": "LEFT"}),
    ("CastLike", [X, np.float32(1)], {}),
    ("CenterCropPad", [X, int64(2, 6)], {}),
    ("Clip", [X, few(low=1, high=2), few(low=2, high=3)], {}),
    ("Compress", [X, np.array([True, False, True])], {"axis": 0}),
    ("Concat", [X, X], {"axis": 0}),
    ("Conv", [IMAGE, few(1, 4, 1, 1)], {}),
    ("CumProd", [X, np.array(1)], {}),
    ("CumSum", [X, np.array(1)], {}),
    ("DepthToSpace", [IMAGE], {"blocksize": 2}),
    ("Dropout", [X], {}),
    ("Expand", [X, int64(2, 3, 4)], {}),
    ("Gather", [X, int64(0, 2)], {}),
    ("GatherElements", [X, np.array([[0, 1]])], {}),
    ("GatherND", [X, np.array([[0, 1], [1, 1]])], {}),
    ("Gemm", [X, few(4, 2)], {}),
    ("GlobalAveragePool", [IMAGE], {}),
    ("LayerNormalization", [X, ROW], {}),
    ("MatMul", [X, few(4, 2)], {}),
    ("MaxPool", [IMAGE], {"kernel_shape": [2, 2]}),
    ("Mean", [X, X], {}),
    ("Mod", [X, ROW], {"fmod": 1}),
    ("OneHot", [X, np.array(4), int64(0, 1)], {}),
    ("OneHot", [int64(1, 2), np.array(4), few(2)], {}),
    ("Pad", [X, int64(1, 0, 0, 1)], {}),
    ("Pad", [X, int64(1, 0, 0, 1)], {"mode": "edge"}),
    ("RMSNormalization", [X, ROW], {}),
    ("Range", [few(high=1), few(low=3), few(low=1, high=2)], {}),
    ("Reshape", [X, int64(2, -1)], {}),
    ("ReverseSequence", [X, int64(1, 2, 3, 3)], {"time_axis": 0, "batch_axis": 1}),
    ("ScatterElements", [X, np.array([[1, 2]]), few(1, 2)], {}),
    ("ScatterND", [X, np.array([[1, 2]]), few(1)], {}),
    *(
        ("ScatterElements", [X, np.array([[1, 2]]), few(1, 2)], {"reduction": kind})
        for kind in ("add", "mul", "max", "min")
    ),
    *(
        ("ScatterND", [X, np.array([[1, 2], [1, 2]]), few(2)], {"reduction": kind})
        for kind in ("add", "mul", "max", "min")
    ),
    ("Slice", [X, int64(0), int64(2), int64(1)], {}),
    ("SpaceToDepth", [few(1, 1, 2, 2)], {"blocksize": 2}),
    ("Split", [X], {"axis": 1, "num_outputs": 2}),
    ("Sum", [X, X], {}),
    ("Tile", [X, int64(2, 1)], {}),
    ("TopK", [X, int64(2)], {}),
    ("Trilu", [X], {"upper": 0}),
    ("Unique", [X], {}),
    ("Unsqueeze", [X, int64(0)], {}),
    ("Where", [np.array([True, False, True, False]), X, X], {}),
]
OUTPUTS = {"Split": 2, "TopK": 2, "Unique": 4}


def types_of(name, inputs):
    """The numbers of the element types that the operator takes for what varies."""
    formals = onnx.defs.get_schema(name, 28).inputs
    place = next(i for i, x in enumerate(inputs) if isinstance(x, tuple))
    texts = {t[7:-1] for t in formals[min(place, len(formals) - 1)].types if t[:6] == "tensor"}
    kinds = onnx.TensorProto.DataType.items()
    return [n for kind, n in kinds if kind.lower() in texts and not kind.startswith("COMPLEX")]


def values(number, shape, low, high):
    """Small numbers, as text for strings."""
    numbers = np.random.default_rng(0).integers(low, high, shape)
    dtype = helper.tensor_dtype_to_np_dtype(number)
    if number == onnx.TensorProto.STRING:
        return np.asarray(numbers.astype("U"), object)
    return np.asarray(numbers % 2 == 0 if dtype.char == "?" else numbers.astype("f4").astype(dtype))


def case(name, inputs, attrs, number):
    """A model of one operator, and what it gets."""
    arrays = [values(number, *x) if isinstance(x, tuple) else np.asarray(x) for x in inputs]
    names = [f"x{i}" for i in range(len(arrays))]
    outputs = [f"y{i}" for i in range(OUTPUTS.get(name, 1))]
    varies = [isinstance(x, tuple) for x in inputs]
    kinds = [
        number if v else helper.np_dtype_to_tensor_dtype(a.dtype) for v, a in zip(varies, arrays)
    ]
    graph = helper.make_graph(
        [helper.make_node(name, names, outputs, **attrs)],
        "g",
        [helper.make_tensor_value_info(n, k, a.shape) for n, k, a in zip(names, kinds, arrays)],
        [onnx.ValueInfoProto(name=o) for o in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)])
    return model, dict(zip(names, arrays)), [n for n, v in zip(names, varies) if v]


def assert_same(got, wanted):
    for g, w in zip(got if isinstance(got, tuple) else (got,), wanted):
        w, g = np.asarray(w), np.asarray(g.numpy() if hasattr(g, "numpy") else g)
        if g.dtype == object:
            # The reference has a number 0 where there is no text.
            w = np.array([x if isinstance(x, str) else "" for x in w.reshape(-1)], object)
            np.testing.assert_array_equal(g.reshape(-1), w)
        else:
            near = 2e-2 if w.dtype.itemsize <= 2 else 1e-4
            np.testing.assert_allclose(g.astype("f8"), w.astype("f8"), near, near)


def refused(name, attrs, number):
    """What no one can do: arithmetic on text."""
    return number == onnx.TensorProto.STRING and attrs.get("reduction")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "inputs", "attrs"), CALLS)
def test_an_operator_takes_every_type_that_its_schema_names(name, inputs, attrs):
    from onnx.reference import ReferenceEvaluator

    for number in types_of(name, inputs):
        model, data, varies = case(name, inputs, attrs, number)
        constants = {n: x for n, x in data.items() if n not in varies}
        if refused(name, attrs, number):
            with pytest.raises(StructInfoError):
                from_onnx(model, constants=constants)
            continue
        mod = from_onnx(model, constants=constants)
        got = Evaluator(mod)("main", *(data[n] for n in varies))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                wanted = ReferenceEvaluator(model).run(None, data)
            except Exception:  # where the reference knows no such type, whatever it raises
                continue
        assert_same(got, wanted)


MOVES = "Concat Equal Gather Identity Pad ScatterElements Split Transpose Trilu Unique Where"


@pytest.mark.slow
@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
@pytest.mark.parametrize(("name", "inputs", "attrs"), [c for c in CALLS if c[0] in MOVES.split()])
def test_what_moves_elements_is_built_for_every_type(name, inputs, attrs, exec_mode):
    for number in types_of(name, inputs):
        if refused(name, attrs, number):
            continue
        model, data, varies = case(name, inputs, attrs, number)
        mod = from_onnx(model, constants={n: x for n, x in data.items() if n not in varies})
        arguments = [data[n] for n in varies]
        wanted = Evaluator(mod)("main", *arguments)
        program = relax.build(mod, "llvm", exec_mode=exec_mode)
        got = VirtualMachine(program, cpu(), exec_mode=exec_mode)["main"](*arguments)
        assert_same(
            tuple(got) if isinstance(got, tuple) else got,
            (wanted if isinstance(wanted, tuple) else (wanted,)),
        )
