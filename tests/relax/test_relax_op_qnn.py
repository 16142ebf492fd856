"""Quantised operators, against oracles in Python's integers and fractions that share no code with
the operators' meanings.
"""

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from op_table import Case, T, check, check_errors, thinned

from relaxvm import relax, script
from relaxvm.ir import structural_equal
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.transform import LegalizeQnn
from relaxvm.runtime import VirtualMachine, cpu
from relaxvm.tir import Var as Symbol

BYTES = ("int8", "uint8")


def _random(seed=0):
    return np.random.default_rng([20261123, seed])


# -- the oracle ------------------------------------------------------------------------------------


def fixed_point(input_scale, output_scale):
    """(multiplier, shift) by exact arithmetic; the ratio is a double."""
    ratio = Fraction(float(input_scale) / float(output_scale))
    shift = 0
    while ratio >= 1:
        ratio, shift = ratio / 2, shift + 1
    while ratio < Fraction(1, 2):
        ratio, shift = ratio * 2, shift - 1
    multiplier = math.floor(ratio * 2**31 + Fraction(1, 2))
    return (multiplier, shift) if multiplier < 2**31 else (2**30, shift + 1)


def rounded(value, rounding):
    if rounding == "TONEAREST" and value < 0:
        return -math.floor(-value + Fraction(1, 2))
    return math.floor(value + Fraction(1, 2))


def clipped(value, dtype):
    limits = np.iinfo(dtype)
    return min(max(value, int(limits.min)), int(limits.max))


def rescaled(x, s, z, so, zo, dtype, rounding="UPWARD"):
    """One element requantised."""
    multiplier, shift = fixed_point(s, so)
    exact = (int(x) - int(z)) * multiplier * Fraction(2) ** (shift - 31)
    return clipped(rounded(exact, rounding) + int(zo), dtype)


def each(f, dtype, *arrays):
    arrays = np.broadcast_arrays(*arrays)
    flat = [f(*values) for values in zip(*(a.ravel().tolist() for a in arrays))]
    return np.array(flat, dtype).reshape(arrays[0].shape)


def f32(value):
    return np.float32(value)


# -- two ways to run -------------------------------------------------------------------------------


def const(value, dtype=None):
    return relax.const(np.asarray(value, dtype) if dtype else value)


def run(f, *arrays, dims=None):
    """What the meaning, the build, and the build without LegalizeQnn give; all are the same."""
    dims = dims or [a.shape for a in arrays]
    given = [
        relax.Var(f"x{k}", relax.TensorStructInfo(d, str(a.dtype)))
        for k, (a, d) in enumerate(zip(arrays, dims))
    ]
    meant = evaluate(f(*map(const, arrays)))
    bb = relax.BlockBuilder()
    with bb.function("main", given):
        with bb.dataflow():
            out = bb.emit_output(f(*given))
        bb.emit_func_output(out)
    mod = bb.get()
    legal = LegalizeQnn()(mod)
    assert "R.qnn." not in legal.script()
    assert structural_equal(mod, script.from_source(mod.script(show_meta=True)))
    built = VirtualMachine(relax.build(mod, "llvm"), cpu())["main"](*arrays).numpy()
    np.testing.assert_array_equal(built, meant)
    return meant


def all_bytes(dtype):
    return np.arange(256, dtype="uint8").view(dtype)


# -- fixed-point numbers ---------------------------------------------------------------------------

SCALES = [1e-9, 3e-5, 0.1, 0.5, 1 / 3, 1.0, 0.99999994, 7.0, 255.0, 1e4, 1e9, 2**-149, 3.4e38]


def test_multiplier_and_shift_are_those_of_exact_arithmetic():
    si, so = (np.array(s, "float32") for s in zip(*itertools.product(SCALES, SCALES)))
    si = np.concatenate([si, _random().uniform(1e-6, 1, 500).astype("float32")])
    so = np.concatenate([so, _random().uniform(1e-6, 1, 500).astype("float32")])
    multiplier = run(lambda a, b: R.fixed_point_multiplier(a, b)[0], si, so)
    shift = run(lambda a, b: R.fixed_point_multiplier(a, b)[1], si, so)
    for k, (a, b) in enumerate(zip(si, so)):
        wanted = fixed_point(a, b)
        assert multiplier[k] == wanted[0]
        assert shift[k] == min(max(wanted[1], -33), 34)


def test_a_ratio_of_scales_that_is_no_positive_number_multiplies_by_zero():
    bad = np.array([0, -1, np.nan, np.inf, 1], "float32")
    with_zero = np.array([1, 1, 1, 1, 0], "float32")
    got = run(lambda a, b: R.fixed_point_multiplier(a, b)[0], bad, with_zero)
    np.testing.assert_array_equal(got, np.zeros(5, "int32"))


EXTREMES = np.array(
    [0, 1, -1, 2, -2, 3, 5, -5, 127, -128, 2**15, 2**30, -(2**30), 2**31 - 1, -(2**31)], "int32"
)


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
@pytest.mark.parametrize("out", ["int8", "uint8", "int16", "int32"])
def test_requantize_is_exact_on_extremes(rounding, out):
    cases = [s for s in itertools.product(SCALES, SCALES) if s[0] == 0.1 or s[1] == 0.1]
    si, so = (np.array(s, "float32") for s in zip(*cases))
    x = np.broadcast_to(EXTREMES[:, None], (len(EXTREMES), len(si))).copy()
    for zi, zo in ((0, 0), (-7, 3), (2**31 - 1, 1), (-(2**31), 0)):
        zo = clipped(zo, out)
        got = run(
            lambda x, si, so, zi=zi, zo=zo: R.qnn.requantize(
                x, si, zi, so, zo, rounding=rounding, out_dtype=out
            ),
            x, si, so,
        )  # fmt: skip
        f = functools.partial(rescaled, dtype=out, rounding=rounding)
        np.testing.assert_array_equal(got, each(f, out, x, si, zi, so, zo))


@pytest.mark.parametrize("rounding", ["None", "UPWARD", "TONEAREST"])
@pytest.mark.parametrize(
    ("dtype", "out"), [("int8", "uint8"), ("uint8", "int8"), ("int16", "int8")]
)
def test_requantize_of_constants_is_exact(dtype, out, rounding):
    x = all_bytes(dtype) if dtype != "int16" else _random().integers(-(2**15), 2**15, 999, "int16")
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    for (si, so), zi in itertools.product([(0.5, 0.25), (0.25, 0.5), (0.1, 0.3)], (low, 0, high)):
        got = run(
            lambda x, si=si, so=so, zi=zi: R.qnn.requantize(
                x, si, zi, so, 9, rounding=rounding, out_dtype=out
            ),
            x,
        )
        f = functools.partial(rescaled, dtype=out, rounding=rounding)
        np.testing.assert_array_equal(got, each(f, out, x, f32(si), zi, f32(so), 9))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_requantize_goes_along_every_axis(axis):
    x = _random().integers(-(2**20), 2**20, (3, 4, 5), "int32")
    size = x.shape[axis]
    s, so = (_random(k).uniform(1e-4, 1e-2, size).astype("float32") for k in range(2))
    z, zo = (np.arange(size, dtype="int32") - k for k in (9, 2))
    got = run(lambda x: R.qnn.requantize(x, const(s), const(z), const(so), const(zo), axis=axis), x)
    place = [1, 1, 1]
    place[axis] = size
    f = functools.partial(rescaled, dtype="int8")
    wanted = each(f, "int8", x, *(p.reshape(place) for p in (s, z, so, zo)))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
@pytest.mark.parametrize("real", ["float32", "float64"])
@pytest.mark.parametrize("out", ["int8", "uint8", "int16", "int32"])
def test_requantize_in_floats_rounds_every_step(real, rounding, out):
    x = np.concatenate([EXTREMES, _random().integers(-1000, 1000, 200, "int32")])
    for si, zi, so, zo in (
        (0.5, 0, 1.0, 3),
        (0.3, 7, 0.7, 5),
        (1e-9, -1, 1e9, 0),
        (1e9, 1, 1e-9, 0),
    ):
        got = run(
            lambda x, p=(si, zi, so, zo): R.qnn.requantize(
                x, *p, rounding=rounding, compute_dtype=real, out_dtype=out
            ),
            x,
        )
        t = np.dtype(real).type
        v = (x.astype("int64") - zi).astype(real) * (t(f32(si)) / t(f32(so))) + t(zo)
        v = np.floor(v + t(0.5)) if rounding == "UPWARD" else np.rint(v)
        limits = np.iinfo(out)
        wanted = np.clip(v.astype("float64"), limits.min, limits.max).astype(out)
        np.testing.assert_array_equal(got, wanted)


# -- operators -------------------------------------------------------------------------------------


def sums(f, x, w, zx, zw):
    """f of exact distances, wrapped to int32."""
    return f(x.astype("int64") - zx, w.astype("int64") - zw).astype("int32")


@pytest.mark.parametrize(("dtype", "weight"), [*itertools.product(BYTES, BYTES), ("int16", "int8")])
def test_dense_sums_exactly(dtype, weight):
    rng = _random()
    low = int(np.iinfo(dtype).min)
    for (m, k, n), zx, zw in (
        ((1, 7, 3), 0, 0),
        ((5, 300, 40), 3, 0),
        ((0, 4, 4), low, 5),
        ((3, 0, 2), 3, np.arange(2, dtype="int32")),
        ((6, 65, 33), low, np.arange(33, dtype="int32")),
    ):
        x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (m, k), dtype)
        w = rng.integers(np.iinfo(weight).min, np.iinfo(weight).max + 1, (n, k), weight)
        zs = zx, const(zw) if np.ndim(zw) else zw
        got = run(lambda x, w, zs=zs, n=n: R.qnn.dense(x, w, *zs, 0.1, 0.2, units=n), x, w)
        wanted = sums(lambda a, b: a @ b.T, x, w, zx, zw if np.ndim(zw) == 0 else zw[:, None])
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("n", [0, 1, 9])
def test_batch_matmul_of_a_symbolic_batch(n):
    rng = _random()
    x, y = rng.integers(0, 256, (n, 5, 8), "uint8"), rng.integers(-128, 128, (n, 6, 8), "int8")
    b = Symbol("n", "int64")
    got = run(
        lambda x, y: R.qnn.batch_matmul(x, y, 128, -3, 0.1, 0.2), x, y, dims=[(b, 5, 8), (b, 6, 8)]
    )
    wanted = sums(lambda a, b: a @ b.transpose(0, 2, 1), x, y, 128, -3)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("data", "kernel", "out"),
    [("NCHW", "OIHW", None), ("NHWC", "HWIO", None), ("NHWC", "OHWI", "NCHW")],
)
@pytest.mark.parametrize(
    ("dtype", "weight"), [("uint8", "int8"), ("int8", "int8"), ("int16", "int8")]
)
def test_convolution_sums_exactly(dtype, weight, data, kernel, out):
    rng = _random()
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (2, 6, 9, 8), dtype)
    for groups, zx, zw in ((1, 0, 0), (1, 100, 0), (2, -3 if dtype != "uint8" else 255, 7)):
        w = rng.integers(-128, 128, (4, 6 // groups, 3, 2), weight)
        how = {"strides": (2, 1), "padding": (1, 0, 2, 1), "dilation": (1, 2), "groups": groups}
        got = run(
            lambda x, w, z=(zx, zw), how=how: R.qnn.conv2d(
                x, w, *z, 0.1, 0.2, kernel_size=(3, 2), channels=4, **how,
                data_layout=data, kernel_layout=kernel, out_layout=out,
            ),
            x.transpose(["NCHW".index(c) for c in data]).copy(),
            w.transpose(["OIHW".index(c) for c in kernel]).copy(),
        )  # fmt: skip
        real = R.nn.conv2d(const(x.astype("int64") - zx), const(w.astype("int64") - zw), **how)
        wanted = evaluate(real).astype("int32").transpose(["NCHW".index(c) for c in out or data])
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("name", "ndim"), [("conv1d", 1), ("conv3d", 3), ("conv2d_transpose", 2)])
def test_other_convolutions_sum_exactly(name, ndim):
    rng = _random()
    x = rng.integers(0, 256, (2, 4, *range(5, 5 + ndim)), "uint8")
    w = rng.integers(-128, 128, (4, 4, *(2,) * ndim), "int8")
    how = {"strides": 2, "padding": 1}
    got = run(lambda x, w: getattr(R.qnn, name)(x, w, 7, -2, 0.1, 0.2, kernel_size=2, **how), x, w)
    real = getattr(R.nn, name)(const(x.astype("int64") - 7), const(w.astype("int64") + 2), **how)
    np.testing.assert_array_equal(got, evaluate(real).astype("int32"))


@pytest.mark.parametrize("name", ["add", "subtract", "mul"])
@pytest.mark.parametrize("dtype", BYTES)
def test_two_operands_are_combined_exactly(name, dtype):
    x, y = (all_bytes(dtype)[a] for a in np.indices((256, 256)))
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    sign = {"add": 1, "subtract": -1}.get(name)
    sets = [
        (0.1, 3, 0.2, low, 0.3, high),
        (0.25, low, 0.25, high, 0.25, 5),
        (1e9, 1, 1e9, 2, 1e-3, 0),
    ][: 1 if name == "mul" else 3]
    for p in sets:
        p = tuple(clipped(v, dtype) if k % 2 else v for k, v in enumerate(p))
        got = run(lambda x, y, p=p: getattr(R.qnn, name)(x, y, *p), x, y)
        sx, zx, sy, zy, so, zo = (f32(v) if k % 2 == 0 else v for k, v in enumerate(p))
        if sign is None:
            product = (x.astype(int) - zx) * (y.astype(int) - zy)
            table = {v: rescaled(v, sx * sy, 0, so, zo, dtype) for v in np.unique(product).tolist()}
            wanted = np.vectorize(table.get)(product)
        else:
            one, two = (
                np.array(
                    [
                        int(v) - z if s == so else rescaled(v, s, z, so, 0, "int32")
                        for v in all_bytes(dtype)
                    ]
                )
                for s, z in ((sx, zx), (sy, zy))
            )
            wanted = np.clip(one[:, None] + sign * two[None] + zo, low, high)
        np.testing.assert_array_equal(got, wanted)


def test_add_along_axes_broadcasts():
    x, y = (
        _random().integers(-128, 128, (2, 3, 4), "int8"),
        _random(1).integers(-128, 128, (4,), "int8"),
    )
    s = np.array([0.1, 0.2, 0.3], "float32")
    got = run(lambda x, y: R.qnn.add(x, y, const(s), 1, 0.5, 2, 0.4, 3, lhs_axis=1), x, y)
    one = each(lambda v, s: rescaled(v, s, 1, f32(0.4), 0, "int32"), int, x, s[:, None])
    two = each(lambda v: rescaled(v, f32(0.5), 2, f32(0.4), 0, "int32"), int, y)
    np.testing.assert_array_equal(got, np.clip(one + two + 3, -128, 127))


UNARY = {
    "abs": np.abs, "exp": np.exp, "log": np.log, "rsqrt": lambda v: 1 / np.sqrt(v),
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)), "sqrt": np.sqrt, "tanh": np.tanh,
    "erf": np.vectorize(math.erf), "silu": lambda v: v / (1 + np.exp(-v)),
    "gelu": lambda v: v * (1 + np.vectorize(math.erf)(v / math.sqrt(2))) / 2,
    "hardswish": lambda v: v * np.clip(v / 6 + 0.5, 0, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [*BYTES, "int16"])
def test_functions_of_all_values(name, dtype):
    x = all_bytes(dtype) if dtype != "int16" else _random().integers(-(2**15), 2**15, 500, "int16")
    s, z, so, zo = 0.03 if dtype in BYTES else 2e-4, 100, 0.02, 7
    got = run(lambda x: getattr(R.qnn, name)(x, s, z, so, zo), x)
    with np.errstate(all="ignore"):
        real = UNARY[name]((x.astype(int) - z) * float(f32(s))) / float(f32(so))
        # Where the exact quotient is within float32's errors of a half, either neighbour will do.
        wanted = np.clip(np.rint(np.nan_to_num(real, nan=-zo)) + zo, *_limits(dtype))
    known = np.isfinite(real)
    near = np.abs(real - np.floor(np.where(known, real, 0)) - 0.5) < 1e-3
    assert np.all((got == wanted) | (near & (np.abs(got - wanted) <= 1)) | ~known)


def _limits(dtype):
    return np.iinfo(dtype).min, np.iinfo(dtype).max


@pytest.mark.parametrize("dtype", [*BYTES, "int16"])
def test_leaky_relu_rounds_once(dtype):
    x = all_bytes(dtype) if dtype != "int16" else _random().integers(-(2**15), 2**15, 500, "int16")
    for alpha, z in ((0.1, 3), (1.5, 0), (1e-9, int(_limits(dtype)[1]))):
        got = run(lambda x, a=alpha, z=z: R.qnn.leaky_relu(x, 0.3, z, 0.2, 11, alpha=a), x)
        s = float(f32(0.3))
        f = lambda v, s=s, a=alpha, z=z: rescaled(v, s * a if v < z else s, z, f32(0.2), 11, dtype)  # noqa: E731
        np.testing.assert_array_equal(got, each(f, dtype, x))


def test_concatenate_requantises_what_has_another_scale():
    xs = [_random(k).integers(-128, 128, (2, k + 1), "int8") for k in range(3)]
    s, z = [0.1, 0.5, 0.5], [0, 3, -4]
    got = run(lambda *xs: R.qnn.concatenate(xs, s, z, 0.5, 3, axis=1), *xs)
    parts = [
        each(lambda v, s=s[k], z=z[k]: rescaled(v, f32(s), z, f32(0.5), 3, "int8"), "int8", x)
        for k, x in enumerate(xs)
    ]
    np.testing.assert_array_equal(parts[1], xs[1])
    np.testing.assert_array_equal(got, np.concatenate(parts, 1))


@pytest.mark.parametrize("count", [True, False])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_averages_are_rounded_once(layout, count):
    x = _random().integers(0, 256, (2, 5, 6, 7), "uint8")
    got = run(
        lambda x: R.qnn.avg_pool2d(
            x, 0.1, 100, 0.2, 20, (3, 2), (2, 1), 1, 1, False, count, layout
        ),
        x,
    )
    d = const(x.astype("float64") - 100)
    exact = evaluate(R.nn.avg_pool2d(d, (3, 2), (2, 1), 1, 1, False, count, layout))
    wanted = np.rint(exact.astype("float32") / (f32(0.2) / f32(0.1))) + 20
    np.testing.assert_array_equal(got, np.clip(wanted, 0, 255))


@pytest.mark.parametrize("n", [0, 1, 4])
def test_mean_of_a_symbolic_number_of_elements(n):
    x = _random().integers(-128, 128, (3, n, 5), "int8")
    dims = [(3, Symbol("n", "int64"), 5)]
    for axis, keep in ((1, False), ((0, 1), True), (None, False)):
        got = run(lambda x, a=axis, k=keep: R.qnn.mean(x, 0.1, 3, 0.05, 7, a, k), x, dims=dims)
        total = (x.astype(int) - 3).sum(axis=axis, keepdims=keep)
        count = x.size // max(np.asarray(total).size, 1)
        if count == 0:
            np.testing.assert_array_equal(got, np.full(np.shape(total), 7))
            continue
        whole = float(f32(0.05)) * count
        f = lambda v, w=whole: rescaled(v, f32(0.1), 0, w, 7, "int8")  # noqa: E731
        np.testing.assert_array_equal(got, each(f, "int8", total))


def test_softmax_is_that_of_floats():
    x = _random().integers(-128, 128, (4, 9), "int8")
    got = run(lambda x: R.qnn.softmax(x, 0.1, 3, 1 / 256, -128), x)
    e = np.exp((x.astype(int) - 3) * float(f32(0.1)))
    wanted = np.clip(np.rint(256 * e / e.sum(-1, keepdims=True)) - 128, -128, 127)
    assert np.abs(got - wanted).max() <= 1
    assert np.mean(got == wanted) > 0.9


def test_quantize_and_dequantize_take_numbers():
    x = _random().uniform(-3, 3, (2, 3)).astype("float32")
    got = run(lambda x: R.qnn.dequantize(R.qnn.quantize(x, 0.1, 5), 0.1, 5), x)
    assert np.abs(got - x).max() <= 0.0501


# -- parameters that are tensors, and what the table of operators asks -----------------------------


def s(*shape):
    return T(*shape, dtype="float32", low=0.01, high=0.5)


def z(*shape):
    return T(*shape, dtype="int32", low=0, high=9)


_X, _PAIR, _CONV = T("n", 4, low=0, high=100), (s(), z(), s(), z()), (z(), z(), s(), s())
CASES = [
    Case(R.fixed_point_multiplier, s("n"), s(), dtypes=("float32",), exact=True),
    Case(R.fixed_point_multiplier, s(), s(1), dtypes=("float32",), exact=True),
    Case(R.fixed_point_rescale, T("n", 4), z(), T("n", dtype="int32", low=2**30, high=2**31 - 1),
         T("n", dtype="int32", low=-33, high=34), z(), axis=0, dtypes=("int8", "uint16", "int32"),
         exact=True),
    Case(R.qnn.requantize, T("n", 4), s(4), z(4), s(), z(), dtypes=("int8", "int32"), exact=True),
    Case(R.qnn.requantize, T("n"), *_PAIR, compute_dtype="float32", dtypes=("int32",), exact=True),
    *(Case(f, T("n", 4), T(4), *_PAIR, s(), z(), dtypes=BYTES, exact=True)
      for f in (R.qnn.add, R.qnn.subtract, R.qnn.mul)),
    *(Case(getattr(R.qnn, name), _X, *_PAIR, dtypes=("uint8", "int16"), atol=1) for name in UNARY),
    Case(R.qnn.leaky_relu, _X, *_PAIR, alpha=0.1, dtypes=BYTES, exact=True),
    Case(R.qnn.softmax, _X, *_PAIR, dtypes=BYTES, atol=1),
    Case(R.qnn.concatenate, (T(2, "n"), T(2, 3)), (s(), s()), (z(), z()), s(), z(), axis=1,
         dtypes=BYTES, exact=True),
    Case(R.qnn.avg_pool2d, T("n", 5, 6, 3), *_PAIR, pool_size=2, dtypes=BYTES, exact=True),
    Case(R.qnn.mean, T("n", 4), *_PAIR, axis=0, dtypes=BYTES, exact=True),
    Case(R.qnn.dense, T("n", 4), T(3, 4), z(), z(3), s(), s(3), dtypes=BYTES, exact=True),
    Case(R.qnn.batch_matmul, T("n", 2, 4), T("n", 3, 4), *_CONV, dtypes=BYTES, exact=True),
    Case(R.qnn.conv1d, T("n", 2, 7), T(3, 2, 2), *_CONV, dtypes=BYTES, exact=True),
    Case(R.qnn.conv2d, T("n", 2, 5, 6), T(3, 2, 2, 2), *_CONV, dtypes=BYTES, padding=1, exact=True),
    Case(R.qnn.conv3d, T("n", 2, 3, 4, 5), T(3, 2, 2, 2, 2), *_CONV, dtypes=BYTES, exact=True),
    Case(R.qnn.conv2d_transpose, T("n", 2, 3, 4), T(2, 3, 2, 2), *_CONV, dtypes=BYTES, exact=True),
]  # fmt: skip


def test_inferred_interpreted_and_compiled_are_the_meaning():
    check(thinned(CASES, 2))


@pytest.mark.slow
def test_every_case_inferred_interpreted_and_compiled_is_the_meaning():
    check(CASES)


def var(dtype, *shape):
    return relax.Var("x", relax.TensorStructInfo(shape, dtype))


def test_mistakes_are_named():
    x, w, y = var("uint8", 2, 3, 8, 8), var("int8", 4, 3, 3, 3), var("int32", 4, 5)
    conv = functools.partial(R.qnn.conv2d, x, w)
    check_errors([
        (lambda: R.qnn.requantize(y, 0.0, 0, 1.0, 0), "input_scale: wanted positive finite .* 0.0"),
        (lambda: R.qnn.requantize(y, 1.0, 0, -2.0, 0), "output_scale: wanted positive .* -2.0"),
        (lambda: R.qnn.requantize(y, math.nan, 0, 1.0, 0), "input_scale: wanted positive .* nan"),
        (lambda: R.qnn.requantize(y, math.inf, 0, 1.0, 0), "input_scale: wanted positive .* inf"),
        (lambda: R.qnn.requantize(y, [1.0, 2.0], 0, 1.0, 0), "input_scale: .* axis -1; got 2"),
        (lambda: R.qnn.requantize(y, 1.0, 0, 1.0, 128), "output_zero_point: .* int8, got 128"),
        (lambda: R.qnn.requantize(y, 1.0, 0, 1.0, 0, rounding="UP"), "rounding: wanted UPWARD"),
        (lambda: R.qnn.requantize(y, 1.0, 0, 1.0, 0, compute_dtype="int8"), "compute_dtype"),
        (lambda: R.qnn.requantize(y, 1.0, 0, 1.0, 0, out_dtype="int64"), "out_dtype: wanted int8"),
        (lambda: R.qnn.requantize(y, 1.0, 0, 1.0, 0, axis=2), "axis: wanted -2 to 1"),
        (lambda: conv(-1, 0, 0.1, 0.1), "input_zero_point: wanted a value of uint8, got -1"),
        (lambda: conv(0, 0, 0.1, [0.1] * 3), "kernel_scale: .* vector of 4"),
        (lambda: conv(0, 0, 0.1, 0.1, kernel_size=5), "kernel_size: wanted 3, as weight has"),
        (lambda: conv(0, 0, 0.1, 0.1, channels=5), "channels: wanted 4, as weight has; got 5"),
        (lambda: conv(0, 0, 0.1, 0.1, kernel_layout="HW"), "kernel_layout: wanted"),
        (lambda: conv(0, 0, 0.1, 0.1, out_layout="NCH"), "out_layout"),
        (lambda: conv(0, 0, 0.1, 0.1, out_dtype="int8"), "out_dtype: wanted int32"),
        (lambda: R.qnn.dense(y, y, 0, 0, 0.1, 0.1), "data: wanted int8"),
        (lambda: R.qnn.add(x, w, 0.1, 0, 0.1, 0, 0.1, 0), "lhs is uint8, rhs is int8"),
        (lambda: R.qnn.leaky_relu(x, 0.1, 0, 0.1, 0, alpha=-1.0), "alpha: wanted a positive"),
        (lambda: R.qnn.concatenate([x, x], [0.1], [0, 0], 0.1, 0), "as many scales"),
        (lambda: R.qnn.concatenate([], [], [], 0.1, 0), "and some"),
        (lambda: R.qnn.tanh(x, "a", 0, 0.1, 0), "scale"),
    ])  # fmt: skip


def test_where_a_dtype_is_not_known_neither_is_the_result():
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "void"))
    call = R.qnn.tanh(x, 0.1, 0, 0.1, 0)
    assert call.struct_info.dtype == "void"
    assert call.struct_info.ndim == -1


def test_all_of_a_quantised_product_is_one_kernel():
    x = var("uint8", 64, 256)
    w, b = const(np.ones((512, 256), "int8")), const(np.ones(512, "int32"))
    scale = const(np.full(512, 0.1, "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(R.add(R.qnn.dense(x, w, 3, 0, 0.1, scale), b))
            y = bb.emit(R.qnn.requantize(y, scale, 0, 8.0, 3, out_dtype="uint8"))
            y = bb.emit_output(R.maximum(y, const(3, "uint8")))
        bb.emit_func_output(y)
    kernels = [t for t in relax.build(bb.get(), "llvm").as_text().splitlines() if "fused" in t]
    assert any("matmul_integer_add_fixed_point_rescale_maximum" in t for t in kernels)
