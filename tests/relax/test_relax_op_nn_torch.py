"""What the operators of nn and image mean, and their gradients, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.op.names import ops

torch = pytest.importorskip("torch", reason="compares with torch where it is installed")
F = torch.nn.functional
nn = R.nn
INF = float("inf")


def arguments(inputs: Any) -> tuple[list[Any], dict[Any, Any]]:
    """What an operator is called with, and the values of its variables."""
    env, args = {}, []
    for k, value in enumerate(inputs):
        if isinstance(value, np.ndarray):
            var = relax.Var(f"a{k}", relax.TensorStructInfo(value.shape, value.dtype.name))
            env[var] = value
            args.append(var)
        else:
            args.append(value)
    return args, env


def ours(op: Any, *inputs: Any, **attrs: Any) -> Any:
    """The meaning of one operator on arrays; what is no array is passed as it is."""
    args, env = arguments(inputs)
    return evaluate(op(*args, **attrs), env)


def close(got: Any, want: Any, tol: float = 1e-5) -> None:
    np.testing.assert_allclose(got, want.detach().numpy(), rtol=tol, atol=tol)


def same_gradients(call: Any, env: Any, theirs: Any, tol: float = 1e-9) -> None:
    """The operator's gradients, by its rule and by torch, of every argument that has one.

    theirs  (*tensors) -> tensor
    """
    y = evaluate(call, env)
    g = np.random.default_rng(3).normal(size=y.shape)
    out, gy = relax.Var("y", call.struct_info), relax.Var("gy", call.struct_info)
    gradients = call.op.grad(ops, call, out, gy)
    tensors = [
        torch.from_numpy(np.array(v)).requires_grad_(v.dtype.kind == "f") for v in env.values()
    ]
    want = theirs(*tensors)
    np.testing.assert_allclose(y, want.detach().numpy(), tol, tol)
    want.backward(torch.from_numpy(g))
    values = {**env, out: y, gy: g}
    for k, (gradient, tensor) in enumerate(zip(gradients, tensors)):
        if gradient is not None and tensor.grad is not None:
            np.testing.assert_allclose(
                evaluate(gradient, values), tensor.grad.numpy(), tol, tol, err_msg=f"argument {k}"
            )


def compare(op: Any, theirs: Any, *inputs: Any, **attrs: Any) -> None:
    """The meaning and the gradients of an operator on float64 arrays."""
    args, env = arguments(inputs)
    same_gradients(op(*args, **attrs), env, theirs)


@pytest.fixture(params=range(4))
def rng(request: Any) -> np.random.Generator:
    return np.random.default_rng(request.param)


def some(rng: np.random.Generator, low: int, high: int, count: int) -> tuple[int, ...]:
    return tuple(int(v) for v in rng.integers(low, high + 1, count))


NDIMS = pytest.mark.parametrize("ndim", [1, 2, 3])


@NDIMS
def test_convolutions_are_torchs(rng, ndim):
    (groups, each, out) = some(rng, 1, 2, 3)
    sizes, taps = some(rng, 5, 6, ndim), some(rng, 1, 3, ndim)
    strides, dilation, before = some(rng, 1, 3, ndim), some(rng, 1, 2, ndim), some(rng, 0, 2, ndim)
    after = some(rng, 0, 2, ndim)
    x = rng.normal(size=(2, groups * each, *sizes))
    w = rng.normal(size=(groups * out, each, *taps))
    sides = [v for b, a in reversed(list(zip(before, after))) for v in (b, a)]
    theirs = getattr(F, f"conv{ndim}d")
    compare(
        getattr(nn, f"conv{ndim}d"),
        lambda x, w: theirs(F.pad(x, sides), w, None, strides, 0, dilation, groups),
        x,
        w,
        strides=strides,
        padding=(*before, *after),
        dilation=dilation,
        groups=groups,
    )


@NDIMS
def test_transposed_convolutions_are_torchs(rng, ndim):
    (groups, each, out) = some(rng, 1, 2, 3)
    sizes, taps = some(rng, 2, 4, ndim), some(rng, 2, 3, ndim)
    strides, dilation, padding = some(rng, 1, 3, ndim), some(rng, 1, 2, ndim), some(rng, 0, 1, ndim)
    more = tuple(int(rng.integers(0, max(s, d))) for s, d in zip(strides, dilation))
    x = rng.normal(size=(2, groups * each, *sizes))
    w = rng.normal(size=(groups * each, out, *taps))
    theirs = getattr(F, f"conv_transpose{ndim}d")
    compare(
        getattr(nn, f"conv{ndim}d_transpose"),
        lambda x, w: theirs(x, w, None, strides, padding, more, groups, dilation),
        x,
        w,
        strides=strides,
        padding=padding,
        output_padding=more,
        dilation=dilation,
        groups=groups,
    )


@NDIMS
@pytest.mark.parametrize("ceil", [False, True])
def test_pools_over_windows_are_torchs(rng, ndim, ceil):
    size = some(rng, 1, 4, ndim)
    sizes = tuple(int(rng.integers(2 * k, 2 * k + 3)) for k in size)
    padding = tuple(int(rng.integers(0, k // 2 + 1)) for k in size)
    strides, dilation = some(rng, 1, 3, ndim), some(rng, 1, 2, ndim)
    x = rng.permutation(4 * int(np.prod(sizes))).reshape(2, 2, *sizes) * 0.5
    attrs = {"strides": strides, "padding": padding, "ceil_mode": ceil}
    theirs = getattr(F, f"max_pool{ndim}d")
    compare(
        getattr(nn, f"max_pool{ndim}d"),
        lambda x: theirs(x, size, strides, padding, dilation, ceil),
        x,
        pool_size=size,
        dilation=dilation,
        **attrs,
    )
    averages = getattr(F, f"avg_pool{ndim}d")
    for include in (False, True):
        compare(
            getattr(nn, f"avg_pool{ndim}d"),
            lambda x, include=include: averages(x, size, strides, padding, ceil, include),
            x,
            pool_size=size,
            count_include_pad=include,
            **attrs,
        )


@NDIMS
def test_adaptive_and_global_pools_are_torchs(rng, ndim):
    sizes, wanted = some(rng, 1, 6, ndim), some(rng, 1, 7, ndim)
    x = rng.permutation(4 * int(np.prod(sizes))).reshape(2, 2, *sizes) * 0.5
    for kind in ("avg", "max"):
        theirs = getattr(F, f"adaptive_{kind}_pool{ndim}d")
        pooled = getattr(nn, f"adaptive_{kind}_pool{ndim}d")
        compare(pooled, lambda x, theirs=theirs: theirs(x, wanted), x, output_size=wanted)
        whole = getattr(nn, f"global_{kind}_pool{ndim}d")
        compare(whole, lambda x, theirs=theirs: theirs(x, (1,) * ndim), x)


EXTREME = np.array(
    [0, -0.0, 1, -1, 1e-30, -1e-30, 1e-40, 5, -5, 30, -30, 89, -89, 1e4, -1e4, 1e20, -1e20, INF,
     -INF, np.nan, 3, -3, 6, 20, 21], "float32",
)  # fmt: skip


@pytest.mark.parametrize(
    ("op", "theirs", "attrs", "their_attrs"),
    [
        (nn.relu, F.relu, {}, {}),
        (nn.relu6, F.relu6, {}, {}),
        (nn.leakyrelu, F.leaky_relu, {"alpha": 0.2}, {"negative_slope": 0.2}),
        (nn.elu, F.elu, {"alpha": 0.7}, {"alpha": 0.7}),
        (nn.celu, F.celu, {"alpha": 0.7}, {"alpha": 0.7}),
        (nn.selu, F.selu, {}, {}),
        (nn.silu, F.silu, {}, {}),
        (nn.softplus, F.softplus, {}, {}),
        (nn.softplus, F.softplus, {"beta": 2.0, "threshold": 5.0}, {"beta": 2.0, "threshold": 5.0}),
        (nn.mish, F.mish, {}, {}),
        (nn.hardswish, F.hardswish, {}, {}),
        (nn.hardsigmoid, F.hardsigmoid, {}, {}),
        (nn.gelu, F.gelu, {}, {}),
        (nn.gelu_tanh, F.gelu, {}, {"approximate": "tanh"}),
    ],
    ids=lambda v: v.__name__ if callable(v) else "",
)
def test_activations_are_torchs_at_the_ends_of_the_range_too(op, theirs, attrs, their_attrs):
    want = theirs(torch.from_numpy(EXTREME), **their_attrs)
    # torch's gelu of +inf is NaN, from inf * 0 in a part that is not needed.
    kept = np.array([not (op in (nn.gelu, nn.gelu_tanh) and v == INF) for v in EXTREME])
    np.testing.assert_allclose(
        ours(op, EXTREME, **attrs)[kept], want.numpy()[kept], rtol=1e-5, atol=1e-6
    )
    x = np.random.default_rng(0).normal(size=(5, 6)) * 4
    args, env = arguments([x])
    # torch computes some coefficients of these, such as 1/6, in float32.
    same_gradients(op(*args, **attrs), env, lambda x: theirs(x, **their_attrs), 1e-7)


ROWS = np.array(
    [[1e4, -1e4, 0, 5], [-INF] * 4, [INF, 0, 1, 2], [-INF, 0, -INF, 1], [np.nan, 0, 1, 2],
     [3e38, -3e38, 3e38, 0]], "float32",
)  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_of_extreme_rows_is_torchs(axis):
    for op, theirs in ((nn.softmax, F.softmax), (nn.log_softmax, F.log_softmax)):
        close(ours(op, ROWS, axis=axis), theirs(torch.from_numpy(ROWS), axis))
        x = np.random.default_rng(0).normal(size=(3, 4, 2))
        compare(op, lambda x, theirs=theirs: theirs(x, axis), x, axis=axis)


@pytest.mark.parametrize(
    ("scale", "offset"), [(1.0, 0.0), (0.0, 7.0), (1e-3, 1e4), (1e-20, 0.0), (1e18, 0.0)]
)
def test_norms_of_constant_small_and_far_data_are_torchs(scale, offset):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(3, 4, 5)) * scale + offset
    last, channel = rng.normal(size=(2, 5)), rng.normal(size=(2, 4))
    args, env = arguments([x, *last])
    same_gradients(
        nn.layer_norm(*args, axes=-1), env, lambda x, g, b: F.layer_norm(x, (5,), g, b), 1e-6
    )
    args, env = arguments([x, last[0]])
    same_gradients(
        nn.rms_norm(*args, axes=-1), env, lambda x, g: F.rms_norm(x, (5,), g, 1e-5), 1e-6
    )
    args, env = arguments([x, *channel])
    same_gradients(
        nn.group_norm(*args, num_groups=2, channel_axis=1, axes=[2]),
        env,
        lambda x, g, b: F.group_norm(x, 2, g, b),
        1e-6,
    )
    same_gradients(
        nn.instance_norm(*args, channel_axis=1, axes=[2]),
        env,
        lambda x, g, b: F.instance_norm(x, weight=g, bias=b),
        1e-6,
    )


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_is_torchs(training):
    rng = np.random.default_rng(5)
    x, g, b = rng.normal(size=(3, 4, 5)), rng.normal(size=4), rng.normal(size=4)
    mean, var = rng.normal(size=4), rng.uniform(0.5, 2, 4)
    got = ours(nn.batch_norm, x, g, b, mean, var, axis=1, training=training, momentum=0.2)
    moved = [torch.from_numpy(a.copy()) for a in (mean, var)]
    want = F.batch_norm(
        *(torch.from_numpy(a) for a in (x,)), *moved, torch.from_numpy(g), torch.from_numpy(b),
        training, 0.2, 1e-5,
    )  # fmt: skip
    close(got[0], want, 1e-9)
    close(got[1], moved[0], 1e-9)
    # The moving variance takes the biased one, as TVM's does; torch takes the unbiased one.
    biased = var * 0.8 + x.var((0, 2)) * 0.2 if training else var
    np.testing.assert_allclose(got[2], biased, rtol=1e-9)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignore", [-100, 1])
def test_nll_loss_is_torchs(reduction, ignore):
    rng = np.random.default_rng(2)
    p, t, w = rng.normal(size=(3, 4, 2)), rng.integers(0, 4, (3, 2)), rng.uniform(0.5, 2, 4)
    compare(
        lambda *args: nn.nll_loss(*args, reduction=reduction, ignore_index=ignore),
        lambda p, t, w: F.nll_loss(p, t, w.detach(), reduction=reduction, ignore_index=ignore),
        p,
        t,
        w,
    )


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_pads_are_torchs(mode):
    x = np.random.default_rng(2).normal(size=(2, 3, 4, 5))
    compare(
        nn.pad,
        lambda x: F.pad(x, (3, 2, 0, 3), mode=mode),
        x,
        pad_width=[0, 0, 0, 0, 0, 3, 3, 2],
        pad_mode=mode,
    )


def test_pixel_shuffle_and_prelu_are_torchs():
    rng = np.random.default_rng(2)
    compare(
        nn.pixel_shuffle,
        lambda x: F.pixel_shuffle(x, 3),
        rng.normal(size=(2, 18, 2, 3)),
        upscale_factor=3,
    )
    compare(nn.prelu, F.prelu, rng.normal(size=(2, 3, 4)), rng.normal(size=3))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
def test_attention_is_torchs(rng, causal, groups):
    batch, rows, columns, heads, size = (int(v) for v in rng.integers(1, 5, 5))
    q = rng.normal(size=(batch, rows, heads * groups, size))
    k, v = rng.normal(size=(2, batch, columns, heads, size))
    bias = rng.normal(size=(1, 1, rows, columns))
    if columns > 1:
        bias[..., -1] = -INF

    def theirs(q: Any, k: Any, v: Any, bias: Any) -> Any:
        k, v = (x.repeat_interleave(groups, 2) for x in (k, v))
        mask = bias + (torch.full((rows, columns), -INF).triu(1) if causal else 0.0)
        made = F.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)), mask.expand(batch, -1, -1, -1), scale=0.7
        )
        return made.transpose(1, 2)

    args, env = arguments([q, k, v, bias])
    call = nn.attention(*args, scale=0.7, causal_mask="TopLeft" if causal else None)
    same_gradients(call, env, theirs)


def test_attention_of_several_sequences_is_that_of_each():
    rng = np.random.default_rng(4)
    q, k, v = rng.normal(size=(1, 6, 4, 3)), *rng.normal(size=(2, 1, 8, 2, 3))
    starts, others = np.array([0, 2, 2, 6]), np.array([0, 3, 4, 8])

    def theirs(q: Any, k: Any, v: Any, *_: Any) -> Any:
        parts = []
        for b in range(3):
            own, keys = slice(*starts[b : b + 2]), slice(*others[b : b + 2])
            part, key, value = (
                x.transpose(1, 2)
                for x in (
                    q[:, own],
                    k[:, keys].repeat_interleave(2, 2),
                    v[:, keys].repeat_interleave(2, 2),
                )
            )
            seen = torch.ones(part.shape[2], key.shape[2], dtype=bool)
            seen = seen.tril(key.shape[2] - part.shape[2])
            made = F.scaled_dot_product_attention(part, key, value, seen)
            parts.append(made.transpose(1, 2))
        return torch.cat(parts, 1)

    args, env = arguments([q, k, v, starts, others])
    call = nn.attention_var_len(*args[:4], 4, args[4], causal_mask="BottomRight")
    same_gradients(call, env, theirs)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("method", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_is_torchs(method, padding, align):
    rng = np.random.default_rng(7)
    x, grid = rng.normal(size=(2, 2, 4, 5)), rng.uniform(-2.5, 2.5, (2, 4, 3, 2))
    compare(
        R.image.grid_sample,
        lambda x, g: F.grid_sample(x, g, method, padding, align),
        x,
        grid,
        method=method,
        padding_mode=padding,
        align_corners=align,
    )


@pytest.mark.parametrize("size", [(7, 3), (1, 9), (4, 5)])
@pytest.mark.parametrize(
    ("method", "mode", "rounding", "theirs"),
    [
        ("linear", "half_pixel", "round", {"mode": "bilinear", "align_corners": False}),
        ("linear", "align_corners", "round", {"mode": "bilinear", "align_corners": True}),
        ("cubic", "half_pixel", "round", {"mode": "bicubic", "align_corners": False}),
        ("nearest_neighbor", "asymmetric", "floor", {"mode": "nearest"}),
        ("nearest_neighbor", "half_pixel", "round_prefer_ceil", {"mode": "nearest-exact"}),
    ],
)
def test_resize_is_torchs_interpolate(size, method, mode, rounding, theirs):
    x = np.random.default_rng(7).normal(size=(2, 2, 4, 5))
    args, env = arguments([x])
    call = R.image.resize2d(
        *args,
        size,
        method=method,
        coordinate_transformation_mode=mode,
        rounding_method=rounding,
    )
    same_gradients(call, env, lambda x: F.interpolate(x, size, **theirs))
