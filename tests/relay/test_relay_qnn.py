"""`relay.qnn`: quantised operators by Relay's names, and the passes over them."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relay
from relaxvm.ir import structural_equal
from relaxvm.relax.interp import Evaluator

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (1, 3, 6, 6)).astype("uint8")
KERNEL = RNG.integers(-128, 128, (4, 3, 3, 3)).astype("int8")


def number(value):
    return relay.const(value, "int32" if isinstance(value, int) else "float32")


def program():
    x = relay.var("x", shape=IMAGE.shape, dtype="uint8")
    kernel = relay.var("kernel", shape=KERNEL.shape, dtype="int8")
    numbers = [number(v) for v in (3, 0, 0.1, 0.02)]
    y = relay.qnn.op.conv2d(x, kernel, *numbers, kernel_size=(3, 3), channels=4, padding=(1, 1))
    y = relay.qnn.op.requantize(
        y, *map(number, (0.002, 0, 0.05, 1)), rounding="TONEAREST", out_dtype="uint8"
    )
    scales, zeros = (number(0.05), number(0.1)), (number(1), number(3))
    y = relay.qnn.op.concatenate((y, x), scales, zeros, number(0.1), number(2), axis=1)
    y = relay.qnn.op.leaky_relu(y, 0.1, *map(number, (0.1, 2, 0.1, 2)))
    return tvm.IRModule.from_expr(relay.Function([x, kernel], y))


def calls(mod):
    text = mod.astext()
    return [word.partition("(")[0] for word in text.split() if "(" in word]


def meaning(mod, *arrays):
    typed = relay.transform.InferType()(mod)
    return Evaluator(typed)("main", *arrays)


def test_programs_print_parse_and_mean_the_same():
    mod = relay.transform.InferType()(program())
    again = relay.transform.InferType()(relay.parse(mod.astext()))
    assert structural_equal(again, mod)
    assert "qnn.conv2d" in calls(mod)


@pytest.mark.parametrize("level", [0, 3])
def test_a_graph_of_quantised_operators_gives_what_they_mean(level):
    want = meaning(program(), IMAGE, KERNEL)
    with tvm.transform.PassContext(opt_level=level):
        run = relay.create_executor("graph", program(), tvm.cpu(), "llvm").evaluate()
        got = run(IMAGE, KERNEL).numpy()
    assert got.dtype == "uint8"
    np.testing.assert_array_equal(got, want)


PASSES = (
    relay.qnn.transform.CanonicalizeOps,
    relay.qnn.transform.Legalize,
    relay.transform.Legalize,
)


@pytest.mark.parametrize("legalize", PASSES)
def test_integer_operators_stand_for_quantised_ones(legalize):
    before = program()
    after = legalize()(before)
    assert not [name for name in calls(after) if name.startswith("qnn.")]
    assert "qnn.conv2d" in calls(before)
    np.testing.assert_array_equal(meaning(after, IMAGE, KERNEL), meaning(before, IMAGE, KERNEL))


def test_passes_have_relays_names_and_levels():
    infos = [p().info for p in (*PASSES, relay.transform.FakeQuantizationToInteger)]
    assert [(i.name, i.opt_level) for i in infos] == [
        ("CanonicalizeOps", 0),
        ("Legalize", 0),
        ("Legalize", 1),
        ("FakeQuantizationToInteger", 0),
    ]


def fake(between):
    x = relay.var("x", shape=(4, 8), dtype="int8")
    w = relay.var("w", shape=(3, 8), dtype="int8")
    real = [relay.qnn.op.dequantize(v, number(0.1), number(0)) for v in (x, w)]
    y = relay.qnn.op.quantize(between(relay.nn.dense(*real)), number(0.5), number(0))
    return tvm.IRModule.from_expr(relay.Function([x, w], y))


def test_what_lies_between_dequantize_and_quantize_becomes_integers():
    before = fake(relay.nn.relu)
    after = relay.transform.FakeQuantizationToInteger()(before)
    assert "qnn.dense" in calls(after)
    assert "qnn.dequantize" not in calls(after)
    x, w = (RNG.integers(-128, 128, (n, 8)).astype("int8") for n in (4, 3))
    one, other = (meaning(m, x, w).astype("int32") for m in (before, after))
    assert np.abs(one - other).max() <= 1


def test_what_cannot_be_computed_in_integers_is_named():
    with pytest.raises(tvm.error.PassError, match="tan at .*no rule for integers"):
        relay.transform.FakeQuantizationToInteger(hard_fail=True)(fake(relay.tan))
    with pytest.raises(tvm.error.PassError, match="optional_qnn_ops: wanted some of"):
        relay.transform.FakeQuantizationToInteger(optional_qnn_ops=["nn.dense"])(fake(relay.tan))


UNARY = "abs erf exp hardswish log rsqrt sigmoid sqrt tanh softmax".split()


def test_operators_of_one_and_two_tensors_take_relays_arguments():
    x = relay.var("x", shape=(2, 8), dtype="uint8")
    numbers = [number(v) for v in (0.1, 3, 0.2, 5)]
    y = x
    for name in UNARY:
        y = relay.op.get(f"qnn.{name}").build(y, *numbers)
    for name in ("add", "subtract", "mul"):
        y = getattr(relay.qnn.op, name)(y, x, *numbers, number(0.3), number(7), lhs_axis=-1)
    y = relay.qnn.op.batch_matmul(
        relay.expand_dims(y, 0), relay.expand_dims(x, 0), *map(number, (7, 3, 0.3, 0.1))
    )
    mod = tvm.IRModule.from_expr(relay.Function([x], y))
    array = RNG.integers(0, 256, (2, 8)).astype("uint8")
    run = relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()
    np.testing.assert_array_equal(run(array).numpy(), meaning(mod, array))


def test_pools_and_transposed_convolutions_take_relays_arguments():
    x = relay.var("x", shape=IMAGE.shape, dtype="uint8")
    kernel = relay.const(KERNEL.transpose(1, 0, 2, 3))
    numbers = [number(v) for v in (0.1, 3, 0.2, 5)]
    y = relay.qnn.op.avg_pool2d(x, *numbers, (2, 2), (2, 2), (0, 0), (1, 1), layout="NCHW")
    y = relay.qnn.op.conv2d_transpose(
        y, kernel, *map(number, (5, 0, 0.2, 0.02)), strides=(2, 2), channels=4, kernel_size=(3, 3)
    )
    mod = tvm.IRModule.from_expr(relay.Function([x], y))
    run = relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()
    np.testing.assert_array_equal(run(IMAGE).numpy(), meaning(mod, IMAGE))
