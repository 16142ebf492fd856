"""FoldScaleAxis, its halves, and FoldBatchnormToConv2D: products with constants go into weights.

All is float64 here, so that what is not rounding is seen.
"""

import contextlib
import mmap
import random
import weakref

import numpy as np
import pytest
from pass_cases import becomes, means_the_same, model, stays

from relaxvm import relax
from relaxvm.base import DataType
from relaxvm.ir import IRModule, PassContext, assert_structural_equal
from relaxvm.ir import Var as TirVar
from relaxvm.ir.instrument import PassTimingInstrument
from relaxvm.relax import op, transform
from relaxvm.relax.analysis import post_order_visit
from relaxvm.relax.op.meaning import from_storage, to_storage
from relaxvm.runtime import cpu, wrap_unchecked
from relaxvm.runtime.storage import Pages

both = transform.FoldScaleAxis()
backward = transform.BackwardFoldScaleAxis()
forward = transform.ForwardFoldScaleAxis()
norms = transform.FoldBatchnormToConv2D()
rng = np.random.default_rng(0)


constant = relax.const


def const(*shape, dtype="float64"):
    return constant(rng.standard_normal(shape), dtype)


def positive(*shape, dtype="float64"):
    return constant(rng.uniform(0.5, 2.0, shape), dtype)


def products(mod):
    """How many products and quotients by constants there are."""
    text = mod["main"].script(show_meta=False)
    return text.count("R.multiply(") + text.count("R.divide(") + text.count("R.nn.batch_norm(")


def folds(run, build, *shapes, left=0):
    """The pass leaves this many products, and the meaning as it was."""
    mod = model(build, *shapes)
    before = str(mod)
    new = run(mod)
    assert products(new) == left
    assert str(mod) == before, "the module that was given has changed"
    if left == products(mod):
        assert new is mod
    means_the_same(mod, new)
    return new


def refuses(run, build, *shapes):
    """The pass leaves the module alone, and says why."""
    mod = model(build, *shapes)
    with PassContext(opt_level=3) as ctx:
        assert run(mod) is mod
    told = ctx.report.of(run.info.name)
    assert told and not any(d.done for d in told)
    return str(told[0])


# -- convolutions and products ---------------------------------------------------------------------

CONVOLUTIONS = {
    "1d": (op.nn.conv1d, (2, 4, 9), (6, 4, 3), {}, (6, 1), (4, 1)),
    "2d": (op.nn.conv2d, (2, 4, 6, 5), (6, 4, 3, 2), {"padding": 1}, (6, 1, 1), (4, 1, 1)),
    "3d": (op.nn.conv3d, (1, 2, 4, 4, 4), (3, 2, 2, 2, 2), {}, (3, 1, 1, 1), (2, 1, 1, 1)),
    "strided": (op.nn.conv2d, (1, 2, 6, 6), (3, 2, 3, 3), {"strides": 2}, (3, 1, 1), (2, 1, 1)),
    "grouped": (op.nn.conv2d, (1, 6, 4, 4), (4, 3, 3, 3), {"groups": 2}, (4, 1, 1), (6, 1, 1)),
    "depthwise": (op.nn.conv2d, (1, 4, 4, 4), (8, 1, 3, 3), {"groups": 4}, (8, 1, 1), (4, 1, 1)),
    "nhwc": (
        op.nn.conv2d, (1, 6, 5, 4), (6, 4, 3, 3),
        {"data_layout": "NHWC"}, (6,), (4,),
    ),
    "hwio": (
        op.nn.conv2d, (1, 6, 5, 4), (3, 3, 2, 6),
        {"data_layout": "NHWC", "kernel_layout": "HWIO", "groups": 2}, (6,), (4,),
    ),
    "blocked": (
        op.nn.conv2d, (1, 2, 5, 5, 4), (3, 2, 3, 3, 4, 2),
        {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i2o", "out_layout": "NCHW2c"},
        (3, 1, 1, 2), (2, 1, 1, 4),
    ),
    "blocked groups": (
        op.nn.conv2d, (1, 3, 5, 5, 4), (12, 4, 3, 3),
        {"data_layout": "NCHW4c", "kernel_layout": "OIHW", "out_layout": "NHWC", "groups": 3},
        (12,), (3, 1, 1, 4),
    ),
    "transposed 1d": (op.nn.conv1d_transpose, (2, 4, 5), (4, 3, 3), {}, (3, 1), (4, 1)),
    "transposed": (
        op.nn.conv2d_transpose, (1, 4, 4, 4), (4, 3, 2, 2), {"strides": 2}, (3, 1, 1), (4, 1, 1),
    ),
    "transposed groups": (
        op.nn.conv2d_transpose, (1, 4, 4, 4), (4, 3, 2, 2), {"groups": 2}, (6, 1, 1), (4, 1, 1),
    ),
    "transposed 3d": (
        op.nn.conv3d_transpose, (1, 2, 3, 3, 3), (2, 3, 2, 2, 2), {}, (3, 1, 1, 1), (2, 1, 1, 1),
    ),
    "matmul": (op.matmul, (2, 3, 4), (4, 6), {}, (6,), (4,)),
    "batched matmul": (op.matmul, (2, 3, 4), (2, 4, 6), {}, (2, 1, 6), (2, 1, 4)),
    "batch scales": (op.matmul, (2, 3, 4), (2, 4, 6), {}, (2, 1, 1), (2, 1, 1)),
    "matmul by a vector": (op.matmul, (2, 3, 4), (4,), {}, (), (4,)),
    "a number": (op.nn.conv2d, (1, 2, 4, 4), (3, 2, 3, 3), {}, (), (1, 1)),
}  # fmt: skip
each_convolution = pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS)


@each_convolution
@pytest.mark.parametrize("scaled", [op.multiply, op.divide])
def test_a_scale_after_weights_goes_into_them(case, scaled):
    make, data, weight, attrs, out, _ = case

    def build(emit, x):
        y = emit(make(x, const(*weight), **attrs))
        return scaled(y, positive(*out))

    folds(backward, build, data)
    refuses(forward, build, data)


@each_convolution
@pytest.mark.parametrize("scaled", [op.multiply, op.divide])
def test_a_scale_before_weights_goes_into_them(case, scaled):
    make, data, weight, attrs, _, into = case

    def build(emit, x):
        return make(emit(scaled(x, positive(*into))), const(*weight), **attrs)

    folds(forward, build, data)
    refuses(backward, build, data)


def test_the_form_of_what_comes_out():
    becomes(
        both,
        """
        @R.function
        def main(x: R.Tensor((2, 2), "float32")):
            with R.dataflow():
                lv = R.matmul(x, R.const([[1, 2], [3, 4]], "float32"))
                lv1 = R.add(R.const([1, 1], "float32"), lv)
                lv2 = R.nn.relu(lv1)
                gv = R.multiply(R.const([2, 4], "float32"), lv2)
                R.output(gv)
            return gv
        """,
        """
        @R.function
        def main(x: R.Tensor((2, 2), "float32")):
            with R.dataflow():
                lv = R.matmul(x, R.const([[2, 8], [6, 16]], "float32"))
                lv1 = R.add(R.const([2, 4], "float32"), lv)
                gv = R.nn.relu(lv1)
                R.output(gv)
            return gv
        """,
    )


# -- through other operators -----------------------------------------------------------------------


def conv(emit, x, outputs=4, size=1, **attrs):
    inputs = int(x.struct_info.dims[1].value) // attrs.get("groups", 1)
    return emit(op.nn.conv2d(x, const(outputs, inputs, size, size), **attrs))


THROUGH = {
    "relu": op.nn.relu,
    "leaky relu": lambda x: op.nn.leakyrelu(x, 0.1),
    "prelu": lambda x: op.nn.prelu(x, const(4)),
    "abs": op.abs,
    "negative": op.negative,
    "a bias": lambda x: op.add(x, const(4, 1, 1)),
    "a number": lambda x: op.subtract(const(), x),
    "a whole bias": lambda x: op.add(x, const(1, 4, 6, 6)),
    "another factor": lambda x: op.multiply(x, const(1, 1, 6, 1)),
    "maximum": lambda x: op.maximum(x, const(4, 1, 1)),
    "max pool": lambda x: op.nn.max_pool2d(x, 2, padding=1),
    "average pool": lambda x: op.nn.avg_pool2d(x, 2, padding=1),
    "adaptive pool": lambda x: op.nn.adaptive_avg_pool2d(x, 1),
    "global pool": op.nn.global_max_pool2d,
    "zeros around": lambda x: op.nn.pad(x, (0, 0, 0, 0, 1, 1, 1, 1)),
    "mean": lambda x: op.mean(x, axis=[2, 3], keepdims=True),
    "greatest": lambda x: op.max(x, axis=[2, 3], keepdims=True),
    "where": lambda x: op.where(relax.const(True), x, const(4, 1, 1)),
    "broadcast": lambda x: op.broadcast_to(x, (1, 4, 6, 6)),
    "itself": lambda x: op.add(x, x),
    "depthwise": lambda x: op.nn.conv2d(x, const(4, 1, 3, 3), groups=4),
}


@pytest.mark.parametrize("through", THROUGH.values(), ids=THROUGH)
def test_a_positive_scale_goes_through(through):
    def after(emit, x):
        return op.multiply(emit(through(conv(emit, x))), positive(4, 1, 1))

    def before(emit, x):
        return conv(emit, emit(through(emit(op.multiply(x, positive(4, 1, 1))))), 3)

    shape = (1, 4, 6, 6)
    left = int(through is THROUGH["another factor"])  # which stays
    folds(backward, after, shape, left=left)
    folds(forward, before, shape, left=left)


@pytest.mark.parametrize(
    "through",
    [op.nn.relu, op.abs, THROUGH["max pool"], THROUGH["maximum"], THROUGH["greatest"]],
)
def test_a_negative_scale_does_not_go_through_what_has_a_corner(through):
    refuses(
        both,
        lambda e, x: op.multiply(
            e(through(conv(e, x))), relax.const(np.array([1.0, -1, 2, 3]).reshape(4, 1, 1))
        ),
        (1, 3, 6, 6),
    )


@pytest.mark.parametrize(
    "through",
    [op.exp, op.sigmoid, op.nn.relu6, lambda x: op.nn.pad(x, (0,) * 6 + (1, 1), pad_value=1.0)],
)
def test_nothing_goes_through_what_is_not_linear(through):
    refuses(both, lambda e, x: op.multiply(e(through(conv(e, x))), positive(4, 1, 1)), (1, 3, 6, 6))


def test_both_sides_of_a_residual_sum_are_scaled():
    def build(e, x):
        y = e(op.nn.relu(conv(e, x)))
        z = e(op.add(conv(e, e(op.nn.relu(conv(e, y)))), y))
        return op.multiply(z, positive(4, 1, 1))

    # What reads the inner sum makes up for its scale.
    folds(backward, build, (1, 3, 5, 5))


def test_a_residual_sum_with_a_parameter_is_left_alone():
    why = refuses(
        both,
        lambda e, x: op.multiply(e(op.add(conv(e, x), x)), positive(4, 1, 1)),
        (1, 4, 5, 5),
    )
    assert "x0 is given by nothing that can be scaled" in why


def test_a_value_that_is_given_out_is_not_scaled():
    def build(e, x):
        y = conv(e, x)
        return relax.Tuple([y, e(op.multiply(y, positive(4, 1, 1)))])

    assert "is needed as it is, too" in refuses(both, build, (1, 4, 5, 5))


def test_a_reader_that_cannot_make_up_for_the_scale_keeps_it():
    def build(e, x):
        y = conv(e, x)
        return op.add(e(op.exp(y)), e(op.multiply(y, positive(4, 1, 1))))

    refuses(both, build, (1, 4, 5, 5))


def test_a_product_that_is_added_to_what_it_is_of():
    refuses(
        backward,
        lambda e, x: op.exp(e(op.add(y := conv(e, x), e(op.multiply(y, positive(4, 1, 1)))))),
        (1, 4, 5, 5),
    )


def test_the_product_of_a_value_with_itself_takes_no_scale():
    def build(e, x):
        y = conv(e, x)
        return op.multiply(e(op.multiply(y, y)), positive(4, 1, 1))

    refuses(both, build, (1, 4, 5, 5))


def test_a_concatenation_is_scaled_part_by_part():
    def build(e, x):
        parts = relax.Tuple([conv(e, x, 2), conv(e, x, 3)])
        return op.multiply(e(op.concat(parts, axis=1)), positive(5, 1, 1))

    folds(backward, build, (1, 4, 5, 5))

    def before(e, x, y):
        part = e(op.multiply(x, positive(4, 1, 1)))
        return conv(e, e(op.concat(relax.Tuple([y, part]), axis=1)))

    folds(forward, before, (1, 4, 5, 5), (1, 2, 5, 5))


def test_the_scale_of_attention_goes_into_the_weights_of_a_query():
    def build(e, x):
        def heads(y, *axes):
            return e(op.permute_dims(e(op.reshape(y, (2, 3, 2, 4))), axes))

        q = heads(e(op.add(e(op.matmul(x, const(8, 8))), const(8))), 0, 2, 1, 3)
        k = heads(e(op.matmul(x, const(8, 8))), 0, 2, 3, 1)
        return op.divide(e(op.matmul(q, k)), relax.const(8.0, "float64"))

    folds(both, build, (2, 3, 8))


def test_the_other_factor_is_scaled_where_the_first_cannot_be():
    def build(e, x, y):
        return op.multiply(e(op.matmul(x, e(op.matmul(y, const(4, 4))))), positive(4))

    folds(both, build, (3, 3), (3, 4))


def test_axes_that_move_take_the_scale_along():
    def build(e, x):
        y = e(op.permute_dims(conv(e, x), (0, 2, 3, 1)))
        y = e(op.reshape(y, (1, 25, 4)))
        return op.multiply(e(op.expand_dims(e(op.squeeze(y, 0)), 1)), positive(4))

    folds(both, build, (1, 3, 5, 5))


def test_a_reshape_that_mixes_the_scaled_axis_stops_it():
    refuses(
        both,
        lambda e, x: op.multiply(e(op.reshape(conv(e, x), (1, 2, 2, 25))), positive(2, 1, 1)),
        (1, 3, 5, 5),
    )


def test_scales_one_after_the_other():
    def build(e, x):
        for _ in range(3):
            x = conv(e, x, 4, 3, padding=1)
            for f in (op.subtract, op.divide, op.multiply, op.add):
                x = e(f(x, positive(4, 1, 1)))
            x = e(op.nn.relu(x))
        return x

    folds(both, build, (1, 2, 5, 5))


# -- values ----------------------------------------------------------------------------------------


def test_a_scale_of_zero_is_folded_backward_but_not_undone():
    zero = relax.const(np.array([0.0, 1, 2, 3]).reshape(4, 1, 1))
    folds(backward, lambda e, x: op.multiply(conv(e, x), zero), (1, 3, 5, 5))
    assert "divides by zero" in refuses(
        forward, lambda e, x: conv(e, e(op.multiply(x, zero))), (1, 4, 5, 5)
    )


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_scales_that_are_not_finite_stay(value):
    def build(e, x):
        return op.multiply(conv(e, x), relax.const(value, "float64"))

    mod = model(build, (1, 3, 5, 5))
    assert both(mod) is mod


@pytest.mark.parametrize("scale", [1e20, 1e-20])
def test_weights_that_would_overflow_or_lose_digits_stay(scale):
    def build(e, x):
        y = e(op.matmul(x, const(4, 4, dtype="float32")))
        for _ in range(2):
            y = e(op.multiply(y, relax.const(scale, "float32")))
        return y

    assert products(both(model(build, (2, 4), dtype="float32"))) == 1


def test_a_large_constant_that_others_read_is_not_copied():
    weight = const(100, 100)

    def build(e, x):
        y = e(op.multiply(e(op.matmul(x, weight)), positive(100)))
        return op.matmul(y, weight)

    assert "a large constant is used elsewhere" in refuses(backward, build, (2, 100))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_floating_dtype_is_folded_and_rounded_once(dtype):
    weight, scale = const(4, 4, dtype=dtype), positive(4, dtype=dtype)
    mod = model(lambda e, x: op.multiply(e(op.matmul(x, weight)), scale), (2, 4), dtype=dtype)
    new = both(mod)
    assert products(new) == 0
    folded = new["main"].body.blocks[0].bindings[0].value.args[1]
    assert str(folded.struct_info.dtype) == dtype


@pytest.mark.parametrize(
    ("dtype", "divisor"), [("float16", 1e-5), ("float16", 6e4), ("float32", 1e-39)]
)
def test_divisors_whose_inverse_their_dtype_cannot_hold_stay(dtype, divisor):
    def build(e, x, w):
        return op.divide(e(op.matmul(x, w)), relax.const(divisor, dtype))

    mod = model(build, (2, 4), (4, 4), dtype=dtype)
    with PassContext() as ctx:
        assert transform.BackwardFoldScaleAxis(written=True)(mod) is mod
    assert "overflow or lose digits" in str(ctx.report)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_large_weights_are_looked_at_to_the_last_piece(dtype):
    weight, factor = np.tile(np.linspace(0.5, 2, 300), (500, 1)), positive(300, dtype=dtype)

    def folded(last, factor):
        weight[-1, -1] = last
        w = relax.const(weight, dtype)
        return both(
            model(lambda e, x: op.multiply(e(op.matmul(x, w)), factor), (2, 500), dtype=dtype)
        )

    new = folded(3.0, factor)
    assert products(new) == 0
    got = new["main"].body.blocks[0].bindings[0].value.args[1].data
    w, f = (from_storage(c.data.array, dtype) for c in (relax.const(weight, dtype), factor))
    exact = to_storage(w.astype("float64") * f, dtype)
    np.testing.assert_array_equal(got.array, exact)
    assert products(folded(3e38, relax.const(np.full(300, 2.0), dtype))) == 1
    assert products(folded(1e-37, relax.const(np.full(300, 0.01), dtype))) == 1


def test_integers_and_mixed_dtypes_stay():
    def whole(e, x):
        return op.multiply(e(op.matmul(x, relax.const(np.ones((4, 4)), "int32"))), relax.const(3))

    def widened(e, x):
        y = e(op.matmul(x, const(4, 4, dtype="float16"), out_dtype="float32"))
        return op.multiply(y, positive(4, dtype="float32"))

    for build, dtype in ((whole, "int32"), (widened, "float16")):
        mod = model(build, (2, 4), dtype=dtype)
        assert both(mod) is mod


@pytest.mark.parametrize("size", [0, 1, 3])
def test_symbolic_batches(size):
    n = TirVar("n", "int64")

    def build(e, x):
        y = e(op.nn.relu(e(op.multiply(conv(e, x), positive(4, 1, 1)))))
        y = e(op.reshape(e(op.mean(y, axis=[2, 3])), (n, 4)))
        return op.divide(e(op.matmul(y, const(4, 5))), positive(5))

    mod = model(build, (n, 3, 4, 4))
    new = both(mod)
    assert products(new) == 0
    means_the_same(mod, new, n=size)


def test_rows_of_a_product_are_scaled_where_there_are_any_number_of_columns():
    n = TirVar("n", "int64")
    build = lambda e, x: op.multiply(e(op.matmul(const(4, 4), x)), positive(4, 1))  # noqa: E731
    assert products(both(model(build, (4, n)))) == 0


def test_a_value_that_may_be_written_into_is_not_scaled():
    stays(
        both,
        """
        @R.function(pure=False)
        def main(x: R.Tensor((2, 2), "float32")):
            y = R.matmul(x, R.const([[1, 2], [3, 4]], "float32"))
            _ = R.call_packed("test.write", y, sinfo_args=R.Tuple())
            z = R.multiply(y, R.const([2, 4], "float32"))
            return z
        """,
    )


def test_a_product_inside_a_branch_is_folded_there():
    becomes(
        both,
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((2, 2), "float32")):
            if c:
                y = R.matmul(x, R.const([[1, 2], [3, 4]], "float32"))
                z = R.multiply(y, R.const([2, 4], "float32"))
                r = z
            else:
                r = R.multiply(x, R.const([2, 4], "float32"))
            return r
        """,
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((2, 2), "float32")):
            if c:
                y = R.matmul(x, R.const([[2, 8], [6, 16]], "float32"))
                r = y
            else:
                r = R.multiply(x, R.const([2, 4], "float32"))
            return r
        """,
    )


# -- batch norms -----------------------------------------------------------------------------------


def norm(e, x, mean=None, **more):
    vectors = [const(4), const(4), const(4) if mean is None else mean, positive(4)]
    return e(op.nn.batch_norm(x, *vectors, **{"axis": 1, "training": False, **more}))


@pytest.mark.parametrize("more", [{}, {"scale": False}, {"center": False, "epsilon": 0.1}])
def test_a_batch_norm_after_a_convolution_becomes_a_sum(more):
    new = folds(norms, lambda e, x: norm(e, conv(e, x), **more)[0], (1, 3, 5, 5))
    assert new["main"].script(show_meta=False).count("R.add(") == 1


def test_a_bias_between_convolution_and_batch_norm_takes_the_shift():
    def build(e, x):
        return norm(e, e(op.add(conv(e, x), const(1, 4, 1, 1))))[0]

    new = folds(norms, build, (1, 3, 5, 5))
    assert new["main"].script(show_meta=False).count("R.add(") == 1
    # Sums of the user that no batch norm touches are not reordered.
    stays = model(lambda e, x: e(op.add(e(op.add(x, const(3))), const(3))), (2, 3))
    assert norms(stays) is stays


def test_a_batch_norm_after_anything_else_becomes_a_product_and_a_sum():
    for axis, shape in ((1, (2, 4, 5, 5)), (3, (2, 3, 5, 4))):
        mod = model(lambda e, x, axis=axis: norm(e, x, axis=axis)[0], shape)
        new = norms(mod)
        assert [b.value.op.name for b in new["main"].body.blocks[0].bindings[:2]] == [
            "relax.multiply",
            "relax.add",
        ]
        means_the_same(mod, new)


def test_the_statistics_of_a_batch_norm_are_given_back():
    def build(e, x):
        made = norm(e, conv(e, x))
        return relax.Tuple([e(made[2]), e(made[0]), e(made[1]), e(made[0])])

    folds(norms, build, (1, 3, 5, 5))


@pytest.mark.parametrize(
    "build",
    [
        lambda e, x: norm(e, x),
        lambda e, x: norm(e, x, training=True)[0],
        lambda e, x: norm(e, x, mean=e(op.exp(const(4))))[0],
    ],
)
def test_batch_norms_that_cannot_be_known_stay(build):
    refuses(norms, build, (1, 4, 5, 5))


def test_decomposed_batch_norms_are_folded():
    mod = model(lambda e, x: norm(e, conv(e, x))[0], (1, 3, 5, 5))
    parts = transform.FoldConstant()(transform.DecomposeOpsForInference()(mod))
    new = both(parts)
    assert products(new) == 0
    means_the_same(mod, new)


# -- random graphs ---------------------------------------------------------------------------------


def random_graph(seed):
    r = random.Random(seed)

    def step(e, values):
        x = r.choice(values[-3:])
        c = int(x.struct_info.dims[1].value)
        scale = positive(c, 1, 1) if r.random() < 0.7 else const(1, c, 1, 1)
        kind = r.randrange(12)
        if kind < 2:
            return e(op.nn.conv2d(x, const(r.choice((c, 4)), c, 3, 3), padding=1))
        if kind == 2:
            return e(op.nn.conv2d(x, const(c, 1, 1, 1), groups=c))
        if kind < 6:
            return e(r.choice((op.multiply, op.divide))(x, r.choice((scale, positive()))))
        if kind == 6:
            return e(r.choice((op.add, op.subtract))(x, const(c, 1, 1)))
        if kind == 7:
            return e(r.choice((op.nn.relu, op.negative, op.abs, op.tanh))(x))
        if kind == 8:
            return e(op.nn.avg_pool2d(x, 3, padding=1))
        if kind == 9:
            return e(op.concat(relax.Tuple([x, r.choice(values)]), axis=1))
        others = [v for v in values if v.struct_info.dims[1].value == c]
        return e(r.choice((op.add, op.multiply, op.maximum))(x, r.choice(others)))

    def build(e, x, y):
        values = [x, y]
        for _ in range(r.randrange(4, 16)):
            values.append(step(e, values))
        return relax.Tuple([values[-1], *r.sample(values[2:], r.randrange(2))])

    return model(build, (1, 4, 4, 4), (1, 4, 4, 4))


@pytest.mark.parametrize("run", [both, backward, forward])
def test_random_graphs_mean_what_they_did(run):
    folded = 0
    for seed in range(60):
        mod = random_graph(seed)
        new = run(mod)
        folded += products(mod) - products(new)
        means_the_same(mod, new)
    assert folded > 20


# -- weights that nobody else has ------------------------------------------------------------------


def given_away(value, dtype):
    """A constant in memory as `OnnxFile` gives it to a build."""
    memory = np.ndarray((value.nbytes,), np.uint8, Pages(-1, value.nbytes))
    array = memory.view(dtype).reshape(value.shape)
    array[...] = value
    return relax.Constant(wrap_unchecked(array, DataType(dtype), cpu()))


def constants(mod):
    """By address: the contents."""
    contents = {}

    def keep(node):
        if type(node) is relax.Constant:
            contents[node.data.array.ctypes.data] = node.data.numpy().copy()

    post_order_visit(mod["main"], keep)
    return contents


@pytest.mark.parametrize("run", [both, backward])
def test_weights_that_nobody_else_has_are_scaled_where_they_are(run, monkeypatch):
    in_place = 0
    for seed in range(60):
        results, before = [], {}
        for make in (relax.const, given_away):
            monkeypatch.setitem(globals(), "constant", make)
            monkeypatch.setitem(globals(), "rng", np.random.default_rng(seed))
            mod = random_graph(seed)
            before = constants(mod)
            results.append(run(mod))
        assert_structural_equal(*results)
        after = constants(results[1])
        in_place += sum((after[a] != before[a]).any() for a in after.keys() & before.keys())
    assert in_place > 20


def a_scaled_weight(weight, more=()):
    def build(e, x):
        y = e(op.nn.conv2d(x, weight, padding=1))
        for each in more:
            y = e(op.add(y, each))
        return e(op.multiply(y, positive(4, 1, 1, dtype="float32")))

    return model(build, (1, 4, 5, 5), dtype="float32")


def test_weights_that_somebody_else_has_stay_as_they_are():
    """Who holds the tensor, knows it weakly, has a view of it, or looks on; and other weights."""
    value = rng.standard_normal((4, 4, 3, 3)).astype("float32")
    for hold in (
        lambda c: c.data,
        lambda c: weakref.ref(c.data),
        lambda c: c.data.array,
        lambda c: c.data.numpy()[0],
        lambda c: PassContext(instruments=[PassTimingInstrument()]),
        lambda c: None,
    ):
        weight = given_away(value, "float32")
        mod, held = a_scaled_weight(weight), hold(weight)
        with held if type(held) is PassContext else contextlib.nullcontext():
            new = both(mod)
        assert products(new) == 0
        assert (weight.data.numpy() == value).all() == (held is not None)
        # What is mapped, and what has gaps, has other readers or another order.
    for array in (mapped(value), given_away(value, "float32").data.array.transpose(1, 0, 2, 3)):
        before = array.copy()
        weight = relax.Constant(wrap_unchecked(array, DataType("float32"), cpu()))
        del array
        assert products(both(a_scaled_weight(weight))) == 0
        assert (weight.data.array == before).all()


def mapped(value):
    memory = np.ndarray((value.nbytes,), np.uint8, mmap.mmap(-1, value.nbytes))
    array = memory.view(value.dtype).reshape(value.shape)
    array[...] = value
    return array


def test_a_weight_that_is_read_twice_is_scaled_for_one_reader_alone():
    weight = given_away(rng.standard_normal((4, 4, 3, 3)).astype("float32"), "float32")
    before = weight.data.numpy().copy()

    def build(e, x):
        y = e(op.nn.conv2d(x, weight, padding=1))
        y = e(op.multiply(y, positive(4, 1, 1, dtype="float32")))
        return e(op.nn.conv2d(y, weight, padding=1))

    assert products(both(model(build, (1, 4, 5, 5), dtype="float32"))) == 0
    assert (weight.data.numpy() == before).all()


def test_a_weight_stays_as_it_is_where_another_constant_cannot_be_scaled():
    weight = given_away(rng.standard_normal((4, 4, 3, 3)).astype("float32"), "float32")
    before = weight.data.numpy().copy()
    mod = a_scaled_weight(weight, [relax.const(np.full((4, 1, 1), 3e38), "float32")])
    assert products(both(mod)) == 1
    assert (weight.data.numpy() == before).all()


@pytest.mark.parametrize("row", [True, False])
def test_thousands_of_products_in_a_row_or_of_one_value(row):
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    value = op.negative(x)
    last = relax.Var("v", value.struct_info)
    bindings = [relax.VarBinding(last, value)]
    for i in range(3_000):
        value = op.multiply(last, relax.const(1.0)) if i % 3 else op.add(last, x)
        var = relax.Var(f"v{i}", value.struct_info)
        bindings.append(relax.VarBinding(var, value))
        last = var if row else last
    body = relax.SeqExpr([relax.BindingBlock(bindings)], var)
    mod = IRModule({"main": relax.Function([x], body).with_attr("global_symbol", "main")})
    left = len(both(mod)["main"].body.blocks[0].bindings)
    assert left < 2_100
