"""FakeQuantizationToInteger: islands of floats between dequantize and quantize become integers."""

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import PassError
from relaxvm.ir import IRModule, assert_structural_equal
from relaxvm.relax import op as R
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.transform import FakeQuantizationToInteger
from relaxvm.runtime import VirtualMachine, cpu
from relaxvm.script import ir as I
from relaxvm.script import relax as S
from relaxvm.tir import Var as Symbol


def const(value, dtype="float32"):
    return relax.const(np.asarray(value, dtype))


def dq(x, scale, zero=0, axis=-1):
    return R.dequantize(x, const(scale), const(zero, "int32"), axis=axis)


def q(x, scale, zero=0, dtype="int8", axis=-1):
    return R.quantize(x, const(scale), const(zero, "int32"), axis=axis, out_dtype=dtype)


def module(f, *infos):
    """A function of variables of `infos`, whose calls `f` may nest."""
    given = [relax.Var(f"x{k}", relax.TensorStructInfo(s, d)) for k, (s, d) in enumerate(infos)]
    bb = relax.BlockBuilder()
    with bb.function("main", given):
        with bb.dataflow():
            out = bb.emit_output(f(*given))
        bb.emit_func_output(out)
    return bb.get()


def run(mod, *arrays):
    return VirtualMachine(relax.build(mod, "llvm"), cpu())["main"](*arrays).numpy()


def elements(infos, sizes):
    rng = np.random.default_rng(7)
    for shape, dtype in infos:
        limits = np.iinfo(dtype)
        shape = [d if isinstance(d, int) else sizes for d in shape]
        yield rng.integers(limits.min, limits.max + 1, shape, dtype)


RNG = np.random.default_rng(11)
W = relax.const(RNG.integers(-127, 128, (4, 3, 3, 3), "int8"))
M = relax.const(RNG.integers(-127, 128, (8, 5), "int8"))
PADS = [0, 0, 1, 1, 0, 2]
TURNED = relax.const(M.data.numpy().T.copy())
SW = RNG.uniform(0.002, 0.01, 4).astype("float32")
SM = RNG.uniform(0.002, 0.01, 5).astype("float32")
BIAS = relax.const(RNG.integers(-2000, 2000, 4, "int32"))
N = Symbol("n", "int64")
IMAGE, ROWS, TOKENS = ((N, 3, 8, 8), "uint8"), ((N, 8), "int8"), ((N, 6, 8), "int8")


def conv(x, axis=0, **attrs):
    return R.nn.conv2d(dq(x, 0.05, 120), dq(W, SW, axis=axis), **attrs)


def biased(x):
    bias = R.reshape(dq(BIAS, SW * np.float32(0.05), axis=0), (1, 4, 1, 1))
    return R.add(conv(x, padding=1), bias)


# name -> (program, inputs); the integers differ by a step at most
ISLANDS = {
    "conv": (lambda x: q(conv(x), 0.3, 3), [IMAGE]),
    "conv, bias, relu": (lambda x: q(R.nn.relu(biased(x)), 0.2, -128), [IMAGE]),
    "conv, float bias": (
        lambda x: q(R.add(conv(x), const(np.arange(4.0).reshape(1, 4, 1, 1))), 0.2), [IMAGE]
    ),
    "conv, relu6, max pool": (
        lambda x: q(R.nn.max_pool2d(R.nn.relu6(conv(x)), (2, 2), (2, 2)), 0.05, -128), [IMAGE]
    ),
    "conv NHWC": (
        lambda x: q(
            R.nn.conv2d(
                R.permute_dims(dq(x, 0.05, 120), axes=[0, 2, 3, 1]),
                R.permute_dims(dq(W, SW, axis=0), axes=[2, 3, 1, 0]),
                data_layout="NHWC", kernel_layout="HWIO",
            ), 0.3, 3,
        ), [IMAGE],
    ),
    "conv2d_transpose": (
        lambda x: q(
            R.nn.conv2d_transpose(
                dq(x, 0.05, 120), dq(relax.const(np.ones((3, 2, 2, 2), "int8")), 0.1), strides=2
            ), 0.5,
        ), [IMAGE],
    ),
    "matmul": (lambda x: q(R.matmul(dq(x, 0.1, 3), dq(M, SM, axis=1)), 0.1), [ROWS]),
    "linear": (
        lambda x: q(R.linear(dq(x, 0.1, 3), dq(TURNED, SM, axis=0)), 0.1),
        [ROWS],
    ),
    "batch matmul": (
        lambda x, y: q(R.matmul(dq(x, 0.1, 3), R.permute_dims(dq(y, 0.05, -5), [0, 2, 1])), 1.0),
        [TOKENS, TOKENS],
    ),
    "add": (lambda x, y: q(R.add(dq(x, 0.1, 3), dq(y, 0.3, -7)), 0.4, 5), [ROWS, ROWS]),
    "subtract": (lambda x, y: q(R.subtract(dq(x, 0.1, 3), dq(y, 0.3)), 0.4), [ROWS, ROWS]),
    "multiply": (lambda x, y: q(R.multiply(dq(x, 0.1, 3), dq(y, 0.3)), 3.0), [ROWS, ROWS]),
    "add a constant": (lambda x: q(R.add(dq(x, 0.01, 3), const(100.0)), 1.0), [ROWS]),
    "scale": (lambda x: q(R.divide(R.multiply(dq(x, 0.1), const(3.0)), const(2.0)), 0.2), [ROWS]),
    "sum of other scales, then a function": (
        lambda x, y: q(R.add(R.add(dq(x, 0.1), dq(y, 0.25)), dq(x, 0.1)), 0.5), [ROWS, ROWS]
    ),
    "residual": (
        lambda x, y: q(R.add(R.matmul(dq(x, 0.1), dq(M, SM, axis=1)), dq(y, 0.2, 9)), 0.2),
        [ROWS, ((N, 5), "int8")],
    ),
    "concat": (
        lambda x, y: q(R.concat([dq(x, 0.1, 3), dq(y, 0.3, -7)], axis=1), 0.4, 5), [ROWS, ROWS]
    ),
    "split": (lambda x: q(R.split(dq(x, 0.1, 3), 2, axis=1)[1], 0.2), [ROWS]),
    "moves": (
        lambda x: q(
            R.strided_slice(
                R.nn.pad(R.permute_dims(dq(x, 0.1, 3), [0, 2, 1]), PADS, pad_value=1.5),
                axes=[1], begin=[0], end=[5],
            ), 0.2,
        ), [TOKENS],
    ),
    "mean": (lambda x: q(R.mean(dq(x, 0.1, 3), axis=[1, 2]), 0.01), [TOKENS]),
    "average pool": (lambda x: q(R.nn.avg_pool2d(dq(x, 0.1, 3), 2), 0.1, dtype="uint8"), [IMAGE]),
    "global average": (lambda x: q(R.nn.global_avg_pool2d(dq(x, 0.1, 3)), 0.1), [IMAGE]),
    "resize": (
        lambda x: q(R.image.resize2d(dq(x, 0.1, 3), (16, 16), method="nearest_neighbor"), 0.1),
        [IMAGE],
    ),
    "sigmoid": (lambda x: q(R.sigmoid(dq(x, 0.1, 3)), 1 / 256, -128), [ROWS]),
    "gelu": (lambda x: q(R.nn.gelu(dq(x, 0.05, 3)), 0.05, -100), [ROWS]),
    "leaky relu": (lambda x: q(R.nn.leakyrelu(dq(x, 0.1, 3), 0.1), 0.1, -100), [ROWS]),
    "clip": (lambda x: q(R.clip(dq(x, 0.1, 3), -2, 3.55), 0.1, dtype="int16"), [ROWS]),
    "limits between coarse integers": (
        lambda x: q(R.clip(dq(x, 0.4), -1.0, 2.5), 0.01, dtype="int16"), [ROWS]
    ),
    "two quantised": (
        lambda x: R.add(q(R.nn.relu(dq(x, 0.1)), 0.2), q(R.nn.relu(dq(x, 0.1)), 0.3)), [ROWS]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ISLANDS)
def test_an_island_becomes_integers_and_keeps_its_value(name):
    f, infos = ISLANDS[name]
    mod = module(f, *infos)
    before = mod.script()
    made = FakeQuantizationToInteger(hard_fail=True)(mod)
    assert_well_formed(made)
    assert mod.script() == before
    text = made.script()
    assert "R.dequantize" not in text
    assert 'R.Tensor((n, 8), dtype="float32")' not in text
    for n in (0, 1, 3):
        arrays = list(elements(infos, n))
        real, got = run(mod, *arrays), run(made, *arrays)
        assert got.dtype == real.dtype
        differ = np.abs(got.astype(int) - real)
        assert differ.max(initial=0) <= 1
        if "conv" in name or "matmul" in name:  # where halves are rare
            assert differ.sum() <= 0.05 * differ.size


def test_the_form_of_a_convolution():
    @I.ir_module
    class Before:
        @S.function
        def main(x: S.Tensor((1, 3, 8, 8), "uint8"), w: S.Tensor((4, 3, 3, 3), "int8")):
            with S.dataflow():
                a = S.dequantize(x, S.const(0.5, "float32"), S.const(3, "int32"))
                b = S.dequantize(w, S.const(0.25, "float32"), S.const(0, "int32"))
                c = S.nn.conv2d(a, b)
                d = S.nn.relu(c)
                e = S.quantize(d, S.const(2.0, "float32"), S.const(1, "int32"), out_dtype="uint8")
                S.output(e)
            return e

    @I.ir_module
    class After:
        @S.function
        def main(x: S.Tensor((1, 3, 8, 8), "uint8"), w: S.Tensor((4, 3, 3, 3), "int8")):
            with S.dataflow():
                c = S.qnn.conv2d(
                    x,
                    w,
                    S.const(3, "int32"),
                    S.const(0, "int32"),
                    S.const(0.5, "float32"),
                    S.const(0.25, "float32"),
                    strides=(1, 1),
                    padding=(0, 0, 0, 0),
                    dilation=(1, 1),
                    out_layout="NCHW",
                )
                d = S.maximum(c, S.const(0, "int32"))
                e = S.qnn.requantize(
                    d,
                    S.const(0.125, "float32"),
                    S.const(0, "int32"),
                    S.const(2.0, "float32"),
                    S.const(1, "int32"),
                    out_dtype="uint8",
                )
                S.output(e)
            return e

    assert_structural_equal(FakeQuantizationToInteger()(Before), After)


def test_what_has_no_rule_stays_and_is_named_where_that_is_asked_for():
    mod = module(lambda x: q(R.sin(R.nn.relu(dq(x, 0.1))), 0.1), ROWS)
    assert FakeQuantizationToInteger()(mod) is mod
    with pytest.raises(PassError, match=r"relax.sin at .*: it has no rule for integers"):
        FakeQuantizationToInteger(hard_fail=True)(mod)


def test_softmax_is_converted_where_that_is_asked_for():
    mod = module(lambda x: q(R.nn.softmax(dq(x, 0.1)), 1 / 256, -128), ROWS)
    assert FakeQuantizationToInteger()(mod) is mod
    for asked in ("nn.softmax", ["relax.nn.softmax"]):
        made = FakeQuantizationToInteger(optional_qnn_ops=asked)(mod)
        assert "R.qnn.softmax" in made.script()
    with pytest.raises(
        PassError, match="optional_qnn_ops: wanted some of relax.nn.softmax; got relax.add"
    ):
        FakeQuantizationToInteger(optional_qnn_ops=["add"])(mod)


def test_without_quantize_only_use_qat_computes_integers():
    mod = module(lambda x: R.sin(R.matmul(dq(x, 0.1, 3), dq(M, SM, axis=1))), ROWS)
    assert FakeQuantizationToInteger()(mod) is mod
    made = FakeQuantizationToInteger(use_qat=True)(mod)
    assert "R.qnn.dense" in made.script()
    assert "R.matmul" not in made.script()
    (x,) = elements([ROWS], 4)
    np.testing.assert_allclose(run(made, x), run(mod, x), atol=1e-4)


def test_scales_that_are_no_constants_are_computed():
    def f(x, w, s, t):
        z = const(0, "int32")
        y = R.matmul(R.dequantize(x, s, z), R.dequantize(w, t, z, axis=1))
        return R.quantize(R.nn.relu(y), const(0.3), z)

    infos = [ROWS, ((8, 5), "int8"), ((), "float32"), ((5,), "float32")]
    mod = module(f, *infos)
    made = FakeQuantizationToInteger(hard_fail=True)(mod)
    assert "R.matmul(" not in made.script()
    x, w = elements(infos[:2], 3)
    given = x, w, np.float32(0.1).reshape(()), SM
    assert np.abs(run(made, *given).astype(int) - run(mod, *given)).max() <= 1


def test_a_sum_within_an_island_is_not_cut_off_at_the_scale_of_its_end():
    mod = module(
        lambda x, y: q(R.matmul(R.add(dq(x, 0.1), dq(y, 0.3)), dq(M, SM, axis=1)), 1.0), ROWS, ROWS
    )
    # A product takes bytes, and the sum has more.
    assert FakeQuantizationToInteger()(mod) is mod


def test_a_value_read_in_floats_too_stays_for_that_reader():
    def f(x):
        y = R.nn.relu(dq(x, 0.1))
        return R.add(R.dequantize(q(y, 0.2), const(0.2), const(0, "int32")), R.sin(y))

    mod = module(f, ROWS)
    made = FakeQuantizationToInteger()(mod)
    assert "R.qnn.requantize" in made.script()
    assert "R.nn.relu" in made.script()


def test_modules_without_dequantize_are_the_same_object():
    mod = module(lambda x: R.add(x, x), ROWS)
    assert FakeQuantizationToInteger()(mod) is mod
    assert isinstance(mod, IRModule)


def test_long_programs_take_linear_time():
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((4,), "int8"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(dq(x, 0.1))
            for _ in range(3000):
                y = bb.emit(R.nn.relu(y))
            out = bb.emit_output(q(y, 0.1))
        bb.emit_func_output(out)
    text = FakeQuantizationToInteger()(bb.get()).script()
    assert text.count("R.maximum") == 3000
    assert "R.nn.relu" not in text
