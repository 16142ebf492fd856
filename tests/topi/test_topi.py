"""Every topi function against numpy: formulas through create_prim_func and machine code."""

import pathlib

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import te, topi
from relaxvm.base import TIRError
from relaxvm.topi import utils
from relaxvm.topi.__main__ import as_markdown

RNG = np.random.default_rng(11)


def floats(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape).astype("float32")


def ints(*shape, low=0, high=5, dtype="int32"):
    return RNG.integers(low, high, shape).astype(dtype)


def run(formula, *arrays):
    """What machine code gives for ``formula(*tensors)``."""
    tensors = [te.placeholder(a.shape, str(a.dtype), f"in{k}") for k, a in enumerate(arrays)]
    made = formula(*tensors)
    results = list(made) if isinstance(made, (list, tuple)) else [made]
    func = te.create_prim_func([*tensors, *results])
    outs = [tvm.nd.array(np.zeros([int(d.value) for d in t.shape], str(t.dtype))) for t in results]
    tvm.build(func)(*map(tvm.nd.array, arrays), *outs)
    return [o.numpy() for o in outs]


def check(formula, arrays, *wanted, rtol=1e-5, atol=1e-5):
    got = run(formula, *arrays)
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted):
        w = np.asarray(w)
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w.astype(g.dtype), rtol=rtol, atol=atol)


X, Y, P = floats(3, 4), floats(4), floats(3, 4, low=0.5)
I, J = ints(3, 4, low=-7, high=7), ints(4, low=1, high=5)
B = RNG.integers(0, 2, (3, 4)).astype(bool)
erf = np.vectorize(__import__("math").erf)

UNARY = {
    "abs": np.abs, "asinh": np.arcsinh, "atan": np.arctan, "ceil": np.ceil, "cos": np.cos,
    "cosh": np.cosh, "erf": erf, "fast_erf": erf, "exp": np.exp, "fast_exp": np.exp,
    "floor": np.floor, "negative": np.negative, "round": np.round, "sign": np.sign,
    "sin": np.sin, "sinh": np.sinh, "tan": np.tan, "tanh": np.tanh, "fast_tanh": np.tanh,
    "trunc": np.trunc, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "identity": lambda x: x,
    "isfinite": np.isfinite, "isinf": np.isinf, "isnan": np.isnan,
}  # fmt: skip
POSITIVE = {
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
SMALL = {"acos": np.arccos, "asin": np.arcsin, "atanh": np.arctanh}


@pytest.mark.parametrize(
    ("names", "x"), [(UNARY, X), (POSITIVE, P), (SMALL, X / 3), ({"acosh": np.arccosh}, P + 1)]
)
def test_functions_of_one_tensor(names, x):
    check(lambda a: [getattr(topi, n)(a) for n in names], [x], *(f(x) for f in names.values()))


BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "equal": np.equal, "not_equal": np.not_equal, "less": np.less,
    "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    "floor_divide": np.floor_divide, "floor_mod": np.mod, "mod": np.fmod,
}  # fmt: skip
FLOATS = {"divide": np.divide, "log_add_exp": np.logaddexp}
BITS = {
    "left_shift": np.left_shift, "right_shift": np.right_shift, "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
}  # fmt: skip


@pytest.mark.parametrize(
    ("names", "x", "y"), [({**BINARY, **FLOATS}, X, Y), ({**BINARY, **BITS}, I, J)]
)
def test_functions_of_two_tensors_broadcast(names, x, y):
    check(
        lambda a, b: [getattr(topi, n)(a, b) for n in names],
        [x, y],
        *(f(x, y) for f in names.values()),
    )


def test_operands_are_numbers_and_other_dtypes():
    check(
        lambda a, i: [
            topi.add(a, 1), topi.subtract(2.5, a), topi.multiply(te.const(3), a),
            topi.add(i, 0.5), topi.add(a, i), topi.power(a, 2), topi.maximum(a, 0.0),
            topi.add(a, np.float32(1)), topi.add(i, np.int32(1)),
        ],
        [X, I],
        X + 1, 2.5 - X, X * 3, I + 0.5, X + I, X * X, np.maximum(X, 0), X + 1, I + 1,
    )  # fmt: skip
    assert isinstance(topi.add(te.var("n"), 1), tvm.ir.PrimExpr)


def test_elementwise_with_options():
    check(
        lambda a, i, b: [
            topi.clip(a, -1, 1), topi.cast(a, "int32"), topi.cast(i, "float16"),
            topi.reinterpret(a, "int32"), topi.bitwise_not(i), topi.logical_not(b),
            topi.exp(i), topi.where(b, a, i.astype("float32")), topi.elemwise_sum([a, a, a]),
        ],
        [X, I, B],
        X.clip(-1, 1), X.astype("int32"), I.astype("float16"), X.view("int32"), ~I, ~B, np.exp(I),
        np.where(B, X, I), 3 * X,
    )  # fmt: skip


def test_reductions():
    t = floats(2, 3, 4)
    first = np.array([[1, 5, 5], [7, 0, 7]], "float32")
    check(
        lambda a, m, b: [
            topi.sum(a), topi.sum(a, axis=1), topi.max(a, axis=(0, 2)), topi.min(a, -1, True),
            topi.prod(a, axis=[0]), topi.argmax(a, 1), topi.argmin(a, axis=2, keepdims=True),
            topi.argmax(m, 1), topi.argmax(m, 1, select_last_index=True), topi.argmax(m),
            topi.all(b), topi.any(b, axis=1), topi.all(b, axis=0, keepdims=True),
            topi.collapse_sum(a, (1, 4)),
        ],
        [t, first, B],
        t.sum(), t.sum(1), t.max((0, 2)), t.min(-1, keepdims=True), t.prod(0), t.argmax(1),
        t.argmin(2)[..., None], [1, 0], [2, 2], 3, B.all(), B.any(1), B.all(0, keepdims=True),
        t.sum((0, 1))[None],
    )  # fmt: skip
    assert topi.argmax(te.placeholder((3, 4)), 1).dtype == "int32"


def test_sums_along_the_way():
    check(
        lambda a: [
            topi.cumsum(a, 1), topi.cumsum(a), topi.cumprod(a, 0), topi.cumsum(a, 1, exclusive=True)
        ],
        [X],
        X.cumsum(1), X.cumsum(), X.cumprod(0), X.cumsum(1) - X,
    )  # fmt: skip


def test_shapes():
    t = floats(2, 3, 4)
    check(
        lambda a, y: [
            topi.broadcast_to(y, (2, 3, 4)), topi.expand_dims(y, 0, 2), topi.reshape(a, (4, 6)),
            topi.squeeze(topi.expand_dims(a, 1)), topi.transpose(a), topi.transpose(a, (1, 0, 2)),
            topi.flip(a, 1), topi.concatenate([a, a], 2), topi.stack((a, a), 1),
            *topi.split(a, 2, axis=2), *topi.split(a, [1], axis=1), topi.repeat(a, 2, 0),
            topi.tile(a, (2, 1, 1)), *topi.meshgrid([y, y], "ij"),
            topi.strided_slice(a, [0, 1], [2, 3], [1, 1], [0, 1]),
            topi.strided_slice(a, [0, 0, 3], [2, 3, 0], [1, 2, -1]),
            topi.strided_slice(a, [0, 1, 0], [2, -1, 2], slice_mode="size"),
            topi.shape(a), topi.ndarray_size(a), topi.collapse_sum(a, (3, 4)),
        ],
        [t, Y],
        np.broadcast_to(Y, (2, 3, 4)), Y[None, None], t.reshape(4, 6), t, t.T,
        t.transpose(1, 0, 2), t[:, ::-1], np.concatenate([t, t], 2), np.stack([t, t], 1),
        t[..., :2], t[..., 2:], t[:, :1], t[:, 1:], t.repeat(2, 0), np.tile(t, (2, 1, 1)),
        *np.meshgrid(Y, Y, indexing="ij"), t[:, 1:], t[:, ::2, 3:0:-1], t[:, 1:, :2],
        [2, 3, 4], 24, t.sum(0),
    )  # fmt: skip


@pytest.mark.parametrize("as_tensors", [False, True])
@pytest.mark.parametrize(
    ("begin", "end", "strides"),
    [
        ([1, 0, 2], [2, 3, 4], None),
        ([0, -2], [2, 99], [1, 1]),
        ([1, 2, 3], [-9, -9, 0], [-1, -2, -2]),
        ([0, 0, 1], [2, 3, 1], None),
        ([0], [2], [3]),
    ],
)
def test_slices_are_set(begin, end, strides, as_tensors):
    t = floats(2, 3, 4)
    places = tuple(slice(*each) for each in zip(begin, end, strides or [None] * len(begin)))
    wanted = t.copy()
    value = wanted[places] + 1
    wanted[places] = value
    given = [begin, end] + ([] if strides is None else [strides])
    if as_tensors:
        arrays = [np.array(each, "int32") for each in given]
        check(lambda a, v, *slices: topi.strided_set(a, v, *slices), [t, value, *arrays], wanted)
    else:
        check(lambda a, v: topi.strided_set(a, v, *given), [t, value], wanted)


def test_a_slice_that_cannot_be_set_is_refused():
    a, v = te.placeholder((3, 4)), te.placeholder((2, 4))
    with pytest.raises(TIRError, match="as many ends as begins"):
        topi.strided_set(a, v, [0, 0, 0], [1, 1, 1])
    with pytest.raises(TIRError, match="one known axis"):
        topi.strided_set(a, v, te.placeholder((2, 2), "int32"), [1])


def test_layouts_and_triangles():
    t = floats(1, 8, 2, 3)
    check(
        lambda a, x: [
            topi.layout_transform(a, "NCHW", "NHWC"), topi.layout_transform(a, "NCHW", "NCHW4c"),
            topi.layout_transform(topi.layout_transform(a, "NCHW", "NCHW4c"), "NCHW4c", "NCHW"),
            topi.trilu(x, 0, True), topi.trilu(x, -1, False),
        ],
        [t, X],
        t.transpose(0, 2, 3, 1), t.reshape(1, 2, 4, 2, 3).transpose(0, 1, 3, 4, 2), t,
        np.triu(X), np.tril(X, -1),
    )  # fmt: skip


def test_elements_by_indices():
    at, t = ints(2, 3, high=3), floats(2, 3, 4)
    pairs = np.array([[0, 1, 1], [2, 0, 1]], "int32")
    put = X.copy()
    put[[0, 2]] = 1
    added = np.zeros(3, "float32")
    np.add.at(added, at[0], Y[:3])
    check(
        lambda x, a, t, p, y: [
            topi.take(x, a), topi.take(x, a, axis=0), topi.take(x, topi.add(a, 9), axis=0),
            topi.take(t, a, axis=1, batch_dims=1),
            topi.gather(x, 0, topi.strided_slice(p, [0], [1])),
            topi.gather_nd(t, p), topi.one_hot(a, 5.0, -1.0, 3, -1, "float32"),
            topi.index_put(x, [np_const([0, 2])], topi.full((2, 4), "float32", 1.0)),
            topi.scatter_elements(
                topi.zeros((3,)), topi.squeeze(topi.strided_slice(a, [0], [1])),
                topi.strided_slice(y, [0], [3]), reduction="add",
            ),
            topi.scatter_nd(
                topi.zeros((2, 3)), p, topi.strided_slice(y, [0], [3]), "update"
            ),
            topi.index_tensor(x, [np_const([2, 0])]),
        ],
        [X, at, t, pairs, Y],
        X.reshape(-1)[at], X[at], np.broadcast_to(X[2], (2, 3, 4)),
        np.stack([t[0][at[0]], t[1][at[1]]]), np.take_along_axis(X[:, :3], pairs[:1], 0),
        t[pairs[0], pairs[1]], np.where(np.eye(3)[at] > 0, 5.0, -1.0), put, added,
        [[0, 0, Y[0]], [Y[1], Y[2], 0]], X[[2, 0]],
    )  # fmt: skip


def np_const(values):
    return te.compute(
        (len(values),), lambda i: te.if_then_else(i == 0, values[0], values[1]), "constant"
    )


def test_orders():
    check(
        lambda a, y: [
            topi.sort(a, 1), topi.sort(a, 0, is_ascend=0), topi.argsort(a, axis=1, dtype="int32"),
            *topi.topk(a, 2, axis=1), topi.searchsorted(topi.sort(y), a),
        ],
        [X, Y],
        np.sort(X, 1), -np.sort(-X, 0), X.argsort(1), -np.sort(-X, 1)[:, :2],
        (-X).argsort(1)[:, :2], np.searchsorted(np.sort(Y), X.ravel()).reshape(3, 4),
    )  # fmt: skip


def test_products():
    a, b = floats(2, 3, 4), floats(2, 4, 5)
    check(
        lambda a, b, x: [
            topi.matmul(a, b), topi.matmul(x, x, transp_b=True), topi.matmul(x, x, transp_a=True),
            topi.tensordot(a, b, ((0, 2), (0, 1))), topi.tensordot(x, b, 0),
            topi.einsum("bij,bjk->bik", a, b),
            topi.nn.batch_matmul(a, b, transpose_b=False), topi.nn.dense(x, x),
            topi.nn.matmul(x, x, transpose_b=True),
        ],
        [a, b, X],
        a @ b, X @ X.T, X.T @ X, np.tensordot(a, b, ((0, 2), (0, 1))), np.tensordot(X, b, 0),
        a @ b, a @ b, X @ X.T, X @ X.T,
    )  # fmt: skip


def test_new_tensors():
    check(
        lambda a: [
            topi.full((2, 3), "int32", 7), topi.full_like(a, 1.5), topi.zeros((2,), "int8"),
            topi.ones((2, 2)), topi.zeros_like(a), topi.ones_like(a), topi.arange(5),
            topi.arange(1, 9, 3, "int32"),
        ],
        [X],
        np.full((2, 3), 7), np.full_like(X, 1.5), [0, 0], np.ones((2, 2)), 0 * X, 0 * X + 1,
        np.arange(5), [1, 4, 7],
    )  # fmt: skip


def test_sequences():
    t, lengths = floats(4, 3, 2), np.array([1, 4, 2], "int32")
    masked, turned = t.copy(), t.copy()
    for b, n in enumerate(lengths):
        masked[n:, b] = -1
        turned[:n, b] = t[:n, b][::-1]
    check(
        lambda a, n: [
            topi.sequence_mask(a, n, -1.0), topi.reverse_sequence(a, n, seq_axis=0, batch_axis=1),
        ],
        [t, lengths],
        masked, turned,
    )  # fmt: skip


# -- nn --------------------------------------------------------------------------------------------


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def conv(x, w, stride=1, pad=(0, 0, 0, 0), dilation=1, groups=1):
    """NCHW, OIHW; written out."""
    x = np.pad(x, ((0, 0), (0, 0), (pad[0], pad[2]), (pad[1], pad[3])))
    n, c, h, v = x.shape
    o, i, kh, kw = w.shape
    ho, wo = ((s - (k - 1) * dilation - 1) // stride + 1 for s, k in ((h, kh), (v, kw)))
    out = np.zeros((n, o, ho, wo), "float32")
    for f in range(o):
        own = x[:, f // (o // groups) * i :][:, :i]
        for y in range(kh):
            for z in range(kw):
                part = own[:, :, y * dilation :, z * dilation :][:, :, ::stride, ::stride]
                out[:, f] += np.tensordot(part[:, :, :ho, :wo], w[f, :, y, z], ((1,), (0,)))
    return out


def test_activations():
    check(
        lambda x, s: [
            topi.nn.relu(x), topi.nn.leaky_relu(x, 0.1), topi.nn.prelu(x, s), topi.nn.softmax(x),
            topi.nn.fast_softmax(x, 0), topi.nn.log_softmax(x), topi.nn.silu(x), topi.nn.gelu(x),
        ],
        [X, Y],
        np.maximum(X, 0), np.where(X > 0, X, X * np.float32(0.1)), np.where(X > 0, X, X * Y),
        softmax(X), softmax(X, 0), np.log(softmax(X)), X / (1 + np.exp(-X)),
        X * 0.5 * (1 + erf(X / np.sqrt(2))),
    )  # fmt: skip


def test_bias_and_flatten():
    t = floats(2, 3, 4, 5)
    c, d = floats(3), floats(5)
    check(
        lambda t, c, d: [
            topi.nn.bias_add(t, c), topi.nn.bias_add(t, d, axis=-1), topi.nn.flatten(t),
            topi.nn.scale_shift_nchw(t, c, c), topi.nn.scale_shift_nhwc(t, d, d),
        ],
        [t, c, d],
        t + c[:, None, None], t + d, t.reshape(2, 60), t * c[:, None, None] + c[:, None, None],
        t * d + d,
    )  # fmt: skip


def test_convolutions():
    x, w = floats(1, 4, 7, 8), floats(6, 4, 3, 3)
    g, d = floats(6, 2, 3, 3), floats(4, 2, 3, 3)
    nhwc, hwio = (0, 2, 3, 1), (2, 3, 1, 0)
    check(
        lambda x, w, g, d: [
            topi.nn.conv2d(x, w, 1, 1, 1), topi.nn.conv2d_nchw(x, w, (2, 2), (1, 0, 0, 1), 1),
            topi.nn.conv2d_nchw(x, w, 1, "SAME", 2), topi.nn.conv2d_nchw(x, w, 1, "VALID", 1),
            topi.nn.conv2d(
                topi.transpose(x, nhwc), topi.transpose(w, hwio), 1, 0, 1, data_layout="NHWC"
            ),
            topi.nn.conv2d_nhwc(topi.transpose(x, nhwc), topi.transpose(w, hwio), 1, 0, 1),
            topi.nn.conv2d_hwcn(
                topi.transpose(x, (2, 3, 1, 0)), topi.transpose(w, hwio), 1, 0, 1
            ),
            topi.nn.group_conv2d_nchw(x, g, 1, 0, 1, 2),
            topi.nn.depthwise_conv2d_nchw(x, d, 1, 1, 1),
            topi.nn.depthwise_conv2d_nhwc(
                topi.transpose(x, nhwc), topi.transpose(d, (2, 3, 0, 1)), 1, 1, 1
            ),
        ],
        [x, w, g, d],
        conv(x, w, pad=(1, 1, 1, 1)), conv(x, w, 2, (1, 0, 0, 1)),
        conv(x, w, pad=(2, 2, 2, 2), dilation=2), conv(x, w), conv(x, w).transpose(nhwc),
        conv(x, w).transpose(nhwc), conv(x, w).transpose(2, 3, 1, 0), conv(x, g, groups=2),
        conv(x, d.reshape(8, 1, 3, 3), pad=(1, 1, 1, 1), groups=4),
        conv(x, d.reshape(8, 1, 3, 3), pad=(1, 1, 1, 1), groups=4).transpose(nhwc),
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip


def test_convolutions_of_one_and_three_axes():
    x, w = floats(2, 3, 9), floats(4, 3, 3)
    v, u = floats(1, 2, 4, 5, 6), floats(3, 2, 1, 3, 2)
    flat = conv(x[:, :, None], w[:, :, None])[:, :, 0]
    deep = sum(
        np.tensordot(u[:, :, 0, i, j], v[0, :, :, i : i + 3, j : j + 5], ((1,), (0,)))
        for i in range(3)
        for j in range(2)
    )[None]
    check(
        lambda x, w, v, u: [
            topi.nn.conv1d(x, w), topi.nn.conv1d_ncw(x, w), topi.nn.conv3d_ncdhw(v, u, 1, 0, 1, 1),
            topi.nn.conv1d_nwc(topi.transpose(x, (0, 2, 1)), topi.transpose(w)),
        ],
        [x, w, v, u],
        flat, flat, deep, flat.transpose(0, 2, 1), rtol=1e-4, atol=1e-4,
    )  # fmt: skip


def test_transposed_convolution_is_a_convolution_of_the_spaced_input():
    x, w = floats(1, 2, 4, 5), floats(2, 3, 3, 3)
    spaced = np.zeros((1, 2, 7, 9), "float32")
    spaced[:, :, ::2, ::2] = x
    want = conv(spaced, w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1], pad=(1, 1, 1, 1))
    check(
        lambda x, w: [
            topi.nn.conv2d_transpose_nchw(x, w, (2, 2), (1, 1), "float32", (0, 0)),
            topi.nn.dilate(x, (1, 1, 2, 2)),
        ],
        [x, w],
        want, spaced, rtol=1e-4, atol=1e-4,
    )  # fmt: skip


def test_pooling():
    x = floats(1, 2, 6, 8)
    blocks = x.reshape(1, 2, 3, 2, 4, 2)
    check(
        lambda x: [
            topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max"),
            topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "avg"),
            topi.nn.pool2d(x, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "avg"),
            topi.nn.global_pool(x, "avg"), topi.nn.global_pool(x, "max"),
            topi.nn.adaptive_pool(x, (3, 4), "avg"),
            topi.nn.pool3d(topi.expand_dims(x, 2), [1, 2, 2], [1, 2, 2], [1] * 3, [0] * 6, "max"),
            topi.nn.pool1d(topi.reshape(x, (2, 6, 8)), [2], [2], [1], [0, 0], "max"),
        ],
        [x],
        blocks.max((3, 5)), blocks.mean((3, 5)),
        conv(x.reshape(2, 1, 6, 8), np.full((1, 1, 3, 3), 1 / 9), 1, [1] * 4).reshape(x.shape),
        x.mean((2, 3), keepdims=True), x.max((2, 3), keepdims=True), blocks.mean((3, 5)),
        blocks.max((3, 5))[:, :, None], x.reshape(2, 6, 4, 2).max(3),
    )  # fmt: skip


def test_normalisation():
    x, c = floats(2, 4, 3, 5), floats(4, low=0.5)
    last, by = floats(5), (lambda v: v[:, None, None])
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))

    def normal(x, axes):
        return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)

    check(
        lambda x, c, d, m, v: [
            *topi.nn.batch_norm(x, c, c, m, v), topi.nn.layer_norm(x, d, d, [3]),
            topi.nn.instance_norm(x, c, c, 1, [2, 3]), topi.nn.group_norm(x, c, c, 2, 1, [2, 3]),
            topi.nn.rms_norm(x, d, [3]), topi.nn.lrn(x, 3, 1, 0.5, 0.75, 2.0),
        ],
        [x, c, last, mean, var],
        (x - by(mean)) / np.sqrt(by(var) + 1e-5) * by(c) + by(c), mean, var,
        normal(x, 3) * last + last, normal(x, (2, 3)) * by(c) + by(c),
        normal(x.reshape(2, 2, 2, 3, 5), (2, 3, 4)).reshape(x.shape) * by(c) + by(c),
        x / np.sqrt((x * x).mean(3, keepdims=True) + 1e-5) * last,
        x / (2 + 0.5 / 3 * sum(
            np.pad(x * x, ((0, 0), (1, 1), (0, 0), (0, 0)))[:, k : k + 4] for k in range(3)
        )) ** 0.75,
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip


def test_padding_and_spacing():
    x = floats(1, 4, 4, 6)
    pads = ((0, 0), (0, 0), (1, 2), (3, 0))
    before, after = zip(*pads)
    spaces = x.reshape(1, 4, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 16, 2, 3)
    check(
        lambda x: [
            topi.nn.pad(x, before, after, 1.5), topi.nn.pad(x, before),
            topi.nn.mirror_pad(x, before, after), topi.nn.mirror_pad(x, before, after, "REFLECT"),
            topi.nn.space_to_depth(x, 2), topi.nn.depth_to_space(topi.nn.space_to_depth(x, 2), 2),
            topi.nn.upsampling(x, 2, 3), topi.nn.upsampling(x, 2.0, 2.0, method="bilinear"),
            topi.image.resize2d(x, [0.0] * 4, (8, 12), method="nearest_neighbor",
                                coordinate_transformation_mode="asymmetric"),
        ],
        [x],
        np.pad(x, pads, constant_values=1.5), np.pad(x, [(b, b) for b in before]),
        np.pad(x, pads, "symmetric"), np.pad(x, pads, "reflect"), spaces, x,
        x.repeat(2, 2).repeat(3, 3), twice(x), x.repeat(2, 2).repeat(2, 3),
    )  # fmt: skip


def twice(x):
    """Bilinear, twice the size: the first elements lie on each other."""
    for axis in (2, 3):
        size = x.shape[axis]
        at = np.arange(2 * size) / 2
        low = np.floor(at).astype(int)
        part = (at - low).reshape([-1 if k == axis else 1 for k in range(4)])
        ends = [x.take(np.clip(low + k, 0, size - 1), axis) for k in (0, 1)]
        x = ends[0] * (1 - part) + ends[1] * part
    return x


# -- symbols, names, errors ------------------------------------------------------------------------


def test_symbolic_shapes():
    n = te.var("n")
    a, w = te.placeholder((n, 6), name="a"), te.placeholder((5, 6), name="w")
    made = topi.nn.softmax(topi.nn.dense(topi.add(a, 1), w))
    assert utils.get_const_tuple(made.shape)[1] == 5
    func = tvm.build(te.create_prim_func([a, w, made]))
    weights = floats(5, 6)
    for rows in (1, 7):
        x, out = floats(rows, 6), tvm.nd.array(np.zeros((rows, 5), "float32"))
        func(tvm.nd.array(x), tvm.nd.array(weights), out)
        np.testing.assert_allclose(out.numpy(), softmax((x + 1) @ weights.T), rtol=1e-5)


def test_shapes_in_symbols_reach_the_result():
    n = te.var("n")
    a = te.placeholder((n, 4), name="a")
    b = topi.reshape(a, (n * 2, 2))
    c = topi.strided_slice(topi.concatenate([b, b], axis=0), [0, 0], [n, 2])
    func = tvm.build(te.create_prim_func([a, topi.transpose(c)]))
    x, out = floats(3, 4), tvm.nd.array(np.zeros((2, 3), "float32"))
    func(tvm.nd.array(x), out)
    np.testing.assert_array_equal(out.numpy(), x.reshape(6, 2)[:3].T)


def test_statements_and_new_tensors_of_symbolic_shapes():
    n = te.var("n")
    a = te.placeholder((n, 4), name="a")
    b = topi.cumsum(topi.add(a, topi.full((n, 1), "float32", 2)), axis=0)
    order = topi.argsort(topi.squeeze(topi.strided_slice(a, [0], [1], axes=[1]), 1), dtype="int32")
    made = topi.take(topi.multiply(b, a), order, axis=0)
    func = tvm.build(te.create_prim_func([a, made]))
    x, out = floats(3, 4), tvm.nd.array(np.zeros((3, 4), "float32"))
    func(tvm.nd.array(x), out)
    want = ((x + 2).cumsum(0) * x)[x[:, 0].argsort()]
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5)


def test_a_long_chain_is_built_in_time_linear_in_its_length(monkeypatch):
    seen = []
    init = tvm.relax.formulas.Formulas.given_back
    monkeypatch.setattr(
        tvm.relax.formulas.Formulas,
        "given_back",
        lambda self, value, memo: (init(self, value, memo), seen.append(len(memo)))[0],
    )
    a = b = te.placeholder((4,), name="a")
    for _ in range(50):
        b = topi.add(topi.exp(b), a)
    assert max(seen) < 100
    assert len(te.create_prim_func([a, b]).script()) > 50


def test_wrong_arguments_are_refused_by_name():
    a = te.placeholder((4,), name="a")
    with pytest.raises(TypeError, match="exp"):
        topi.exp(a, 3)
    with pytest.raises(tvm.TVMError, match="axis"):
        topi.sum(a, axis=3)
    with pytest.raises(tvm.TVMError, match="4 dimensions"):
        topi.nn.conv2d(a, a, 1, 0, 1)
    with pytest.raises(tvm.TVMError, match="placeholder"):
        topi.exp(np.zeros(3, "float32"))
    with pytest.raises(tvm.TVMError):
        topi.add(a, "x")
    with pytest.raises(AttributeError, match="nosuch"):
        _ = topi.nosuch


def test_sizes_that_are_not_known_to_be_equal_are_refused():
    a, b = (te.placeholder((te.var(s), 4)) for s in "nm")
    with pytest.raises(tvm.TVMError, match="not known|broadcast"):
        topi.add(a, b)
    with pytest.raises(tvm.TVMError, match="matmul"):
        topi.matmul(te.placeholder((3, 4)), te.placeholder((5, 3)))
    with pytest.raises(tvm.TVMError, match="pool_type"):
        topi.nn.pool2d(a, 2, 2, 1, 0, "unique")


def test_emit_te_takes_topi_functions():
    bb = tvm.relax.BlockBuilder()
    x = tvm.relax.Var("x", tvm.relax.TensorStructInfo((tvm.tir.Var("n", "int64"), 4), "float32"))
    with bb.function("main", [x]):
        y = bb.emit_te(topi.nn.softmax, x, axis=-1)
        z = bb.emit_te(topi.add, y, tvm.relax.const(1, "float32"))
        bb.emit_func_output(bb.emit_te(topi.cumsum, z, axis=1))
    vm = tvm.relax.VirtualMachine(tvm.relax.build(bb.get(), "llvm"), tvm.cpu())
    x = floats(3, 4)
    np.testing.assert_allclose(vm["main"](x).numpy(), (softmax(x) + 1).cumsum(1), rtol=1e-5)


def test_schedules_find_the_blocks():
    a, b = (te.placeholder((16, 16), name=s) for s in "ab")
    sch = tvm.tir.Schedule(te.create_prim_func([a, b, topi.nn.relu(topi.matmul(a, b))]))
    names = [sch.get(block).name_hint for block in sch.get_child_blocks(sch.get_block("root"))]
    assert len(names) == 2
    sch.split(sch.get_loops(sch.get_block(names[0]))[0], [None, 4])
    sch = tvm.tir.Schedule(te.create_prim_func([a, b, topi.add(a, b)]))
    sch.parallel(sch.get_loops(sch.get_block("T_add"))[0])


def test_utils():
    n = te.var("n")
    assert utils.get_const_tuple((te.const(3), n, 4)) == (3, n, 4)
    assert utils.get_const_int(te.const(3) + 4) == 7
    assert utils.get_const_float(te.const(0.5, "float32")) == 0.5
    with pytest.raises(tvm.TVMError, match="constant integer"):
        utils.get_const_int(n)
    assert utils.equal_const_int(te.const(3), 3) and not utils.equal_const_int(n, 3)
    assert utils.ravel_index([1, 2], [3, 4]) == 6 and utils.unravel_index(6, [3, 4]) == [1, 2]
    assert utils.get_max_power2_factor(24) == 8 and utils.get_max_power2_factor(24, 4) == 4
    assert utils.get_const_int(utils.prod((2, 3))) == 6 and utils.ceil_div(7, 2) == 4
    assert utils.is_empty_shape((2, 0))


def test_functions_have_names_and_say_which_operator_they_are():
    assert topi.nn.relu.__name__ == "relu" and "relu" in topi.nn.relu.__doc__
    assert set(topi.nn.__all__) > {"relu", "conv2d", "pool2d"} and "ops" not in topi.__all__
    assert [n for n in topi.__all__ if not getattr(topi, n).__doc__] == []


def test_docs_topi_md_is_up_to_date():
    path = pathlib.Path(__file__).parent.parent.parent / "docs" / "topi.md"
    assert path.read_text(encoding="utf-8") == as_markdown(), (
        "run python -m relaxvm.topi --markdown"
    )
