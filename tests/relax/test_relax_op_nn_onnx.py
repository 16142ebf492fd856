"""What the operators of nn, image and vision mean, against onnxruntime; resizing also against
ONNX's own reference, which is not right everywhere.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate

WHY = "the meanings are compared with onnxruntime where it is installed"
onnx = pytest.importorskip("onnx", reason=WHY)
ort = importlib.import_module("onnxruntime") if importlib.util.find_spec("onnxruntime") else None
nn = R.nn


def run_onnx(kind: str, inputs: list[Any], opset: int = 20, **attrs: Any) -> list[np.ndarray]:
    """The outputs of a model of one node; an input None is left out."""
    given = {f"i{k}": v for k, v in enumerate(inputs) if v is not None}
    names = [f"i{k}" if v is not None else "" for k, v in enumerate(inputs)]
    node = onnx.helper.make_node(kind, names, ["out"], **attrs)
    infos = [
        onnx.helper.make_tensor_value_info(
            n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape
        )
        for n, v in given.items()
    ]
    out = onnx.ValueInfoProto(name="out")
    graph = onnx.helper.make_graph([node], "one", infos, [out])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    model.ir_version = 10
    if ort is None:
        if kind != "Resize":
            pytest.skip(WHY)
        reference = importlib.import_module("onnx.reference")
        return reference.ReferenceEvaluator(model).run(None, given)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, given)


def ours(op: Any, *inputs: Any, **attrs: Any) -> Any:
    """The meaning of one operator on arrays; what is no array is passed as it is."""
    env, args = {}, []
    for k, value in enumerate(inputs):
        if isinstance(value, np.ndarray):
            var = relax.Var(f"a{k}", relax.TensorStructInfo(value.shape, value.dtype.name))
            env[var] = value
            args.append(var)
        else:
            args.append(value)
    return evaluate(op(*args, **attrs), env)


def close(got: Any, want: Any, tol: float = 1e-5) -> None:
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype("float32")


@pytest.mark.parametrize(
    ("groups", "strides", "dilation", "padding"),
    [
        (1, (1, 1), (1, 1), (0, 0, 0, 0)),
        (2, (2, 1), (1, 2), (1, 2, 0, 1)),
        (4, (1, 3), (2, 1), (2, 2, 2, 2)),
    ],
)
def test_conv2d_is_conv(rng, groups, strides, dilation, padding):
    x, w = normal(rng, 2, 4, 8, 9), normal(rng, 8, 4 // groups, 3, 2)
    attrs = {"strides": strides}
    got = ours(nn.conv2d, x, w, padding=padding, dilation=dilation, groups=groups, **attrs)
    want = run_onnx("Conv", [x, w], dilations=dilation, group=groups, pads=padding, **attrs)
    close(got, want[0])


def test_conv1d_and_conv3d_are_conv(rng):
    x, w = normal(rng, 1, 2, 9), normal(rng, 3, 2, 4)
    close(
        ours(nn.conv1d, x, w, strides=2, padding=(1, 2)),
        run_onnx("Conv", [x, w], strides=[2], pads=[1, 2])[0],
    )
    x, w = normal(rng, 1, 2, 4, 5, 6), normal(rng, 3, 2, 2, 3, 2)
    pads = (1, 0, 1, 0, 1, 1)
    close(ours(nn.conv3d, x, w, padding=pads), run_onnx("Conv", [x, w], pads=pads)[0])


@pytest.mark.parametrize(("groups", "more"), [(1, (0, 0)), (2, (1, 2))])
def test_conv2d_transpose_is_conv_transpose(rng, groups, more):
    x, w = normal(rng, 2, 4, 4, 5), normal(rng, 4, 3, 3, 2)
    attrs = {"strides": (2, 3), "output_padding": more}
    padding = (1, 0, 0, 1)
    got = ours(nn.conv2d_transpose, x, w, padding=padding, groups=groups, **attrs)
    want = run_onnx("ConvTranspose", [x, w], pads=padding, group=groups, **attrs)
    close(got, want[0])


def test_max_pool_is_max_pool(rng):
    x = normal(rng, 1, 2, 8, 9)
    got = ours(nn.max_pool2d, x, (3, 2), strides=(2, 1), padding=(1, 0, 1, 1), dilation=(1, 2))
    want = run_onnx(
        "MaxPool", [x], kernel_shape=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1), dilations=(1, 2)
    )
    close(got, want[0])
    got = ours(nn.max_pool2d, x, 3, strides=2, ceil_mode=True)
    close(got, run_onnx("MaxPool", [x], kernel_shape=(3, 3), strides=(2, 2), ceil_mode=1)[0])


@pytest.mark.parametrize("include", [False, True])
def test_avg_pool_is_average_pool(rng, include):
    x = normal(rng, 1, 2, 8, 9)
    got = ours(nn.avg_pool2d, x, (3, 2), strides=2, padding=(1, 0, 1, 1), count_include_pad=include)
    want = run_onnx(
        "AveragePool",
        [x],
        kernel_shape=(3, 2),
        strides=(2, 2),
        pads=(1, 0, 1, 1),
        count_include_pad=int(include),
    )
    close(got, want[0])
    close(ours(nn.global_avg_pool2d, x), run_onnx("GlobalAveragePool", [x])[0])
    close(ours(nn.global_max_pool2d, x), run_onnx("GlobalMaxPool", [x])[0])


@pytest.mark.parametrize(
    ("op", "kind", "attrs", "theirs"),
    [
        (nn.relu, "Relu", {}, {}),
        (nn.leakyrelu, "LeakyRelu", {"alpha": 0.2}, {"alpha": 0.2}),
        (nn.elu, "Elu", {"alpha": 0.7}, {"alpha": 0.7}),
        (nn.selu, "Selu", {}, {}),
        (nn.celu, "Celu", {"alpha": 1.5}, {"alpha": 1.5}),
        (nn.gelu, "Gelu", {}, {}),
        (nn.gelu_tanh, "Gelu", {}, {"approximate": "tanh"}),
        (nn.softplus, "Softplus", {}, {}),
        (nn.mish, "Mish", {}, {}),
        (nn.hardswish, "HardSwish", {}, {}),
        (nn.hardsigmoid, "HardSigmoid", {"alpha": 0.3, "beta": 0.4}, {"alpha": 0.3, "beta": 0.4}),
        (nn.softmax, "Softmax", {"axis": 1}, {"axis": 1}),
        (nn.log_softmax, "LogSoftmax", {"axis": 0}, {"axis": 0}),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_activations_are_onnxs(rng, op, kind, attrs, theirs):
    x = normal(rng, 4, 5) * 4
    close(ours(op, x, **attrs), run_onnx(kind, [x], **theirs)[0])


def test_prelu_is_prelu(rng):
    x, slope = normal(rng, 2, 3, 4), normal(rng, 3)
    close(ours(nn.prelu, x, slope), run_onnx("PRelu", [x, slope.reshape(3, 1)])[0])


def test_norms_are_onnxs(rng):
    x, g, b = normal(rng, 2, 4, 3, 5), normal(rng, 4), normal(rng, 4)
    m, v = normal(rng, 4), np.abs(normal(rng, 4)) + 0.5
    last_g, last_b = normal(rng, 3, 5), normal(rng, 3, 5)
    close(
        ours(nn.layer_norm, x, last_g, last_b, axes=[2, 3]),
        run_onnx("LayerNormalization", [x, last_g, last_b], axis=2)[0],
    )
    close(
        ours(nn.instance_norm, x, g, b, channel_axis=1, axes=[2, 3]),
        run_onnx("InstanceNormalization", [x, g, b])[0],
    )
    close(
        ours(nn.group_norm, x, g, b, num_groups=2, channel_axis=1, axes=[2, 3]),
        run_onnx("GroupNormalization", [x, g, b], 21, num_groups=2)[0],
    )
    close(
        ours(nn.batch_norm, x, g, b, m, v, axis=1, training=False)[0],
        run_onnx("BatchNormalization", [x, g, b, m, v])[0],
    )


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_nll_loss_is_negative_log_likelihood_loss(rng, reduction):
    p, w = normal(rng, 3, 4, 2), np.abs(normal(rng, 4))
    t = rng.integers(0, 4, (3, 2))
    got = ours(nn.nll_loss, p, t, w, reduction=reduction, ignore_index=1)
    want = run_onnx("NegativeLogLikelihoodLoss", [p, t, w], reduction=reduction, ignore_index=1)
    close(got, want[0])


@pytest.mark.parametrize(
    ("mode", "theirs"),
    [("constant", "constant"), ("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")],
)
def test_pad_is_pad(rng, mode, theirs):
    x = normal(rng, 3, 4)
    got = ours(nn.pad, x, [1, 2, 0, 3], pad_mode=mode, pad_value=0.5)
    widths, value = np.array([1, 0, 2, 3]), np.array(0.5, "float32")
    close(got, run_onnx("Pad", [x, widths, value], mode=theirs)[0])


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space_are_onnxs(rng, mode):
    x = normal(rng, 2, 8, 2, 3)
    got = ours(nn.depth_to_space, x, 2, mode=mode)
    close(got, run_onnx("DepthToSpace", [x], blocksize=2, mode=mode)[0])
    x = normal(rng, 2, 3, 4, 6)
    close(ours(nn.space_to_depth, x, 2), run_onnx("SpaceToDepth", [x], blocksize=2)[0])


@pytest.mark.parametrize(
    "mode", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
@pytest.mark.parametrize("size", [(8, 5), (2, 9), (1, 1)])
def test_resize_is_resize(rng, mode, method, size):
    if ort is None and (method, mode, size) == ("cubic", "pytorch_half_pixel", (1, 1)):
        pytest.skip("ONNX's reference reads -0.5 where its text says 0")
    x = normal(rng, 1, 2, 4, 5)
    theirs = {"nearest_neighbor": "nearest"}.get(method, method)
    got = ours(
        R.image.resize2d,
        x,
        size,
        method=method,
        coordinate_transformation_mode=mode,
    )
    sizes = np.array([1, 2, *size])
    want = run_onnx(
        "Resize", [x, None, None, sizes], mode=theirs, coordinate_transformation_mode=mode
    )
    close(got, want[0])


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest_is_the_same_pixel(rng, rounding):
    x = normal(rng, 1, 1, 4, 6)
    for mode in ("half_pixel", "asymmetric"):
        got = ours(
            R.image.resize2d,
            x,
            (2, 9),
            method="nearest_neighbor",
            rounding_method=rounding,
            coordinate_transformation_mode=mode,
        )
        sizes = np.array([1, 1, 2, 9])
        want = run_onnx(
            "Resize",
            [x, None, None, sizes],
            mode="nearest",
            nearest_mode=rounding,
            coordinate_transformation_mode=mode,
        )
        close(got, want[0])


def test_crop_and_resize_and_cubic_options_are_onnxs(rng):
    x = normal(rng, 1, 1, 5, 6)
    roi, sizes = np.array([0, 0, 0.1, -0.2, 1, 1, 0.9, 1.2], "float32"), np.array([1, 1, 4, 3])
    mode = "tf_crop_and_resize"
    got = ours(
        R.image.resize2d,
        x,
        (4, 3),
        roi=(0.1, -0.2, 0.9, 1.2),
        coordinate_transformation_mode=mode,
        extrapolation_value=7.5,
    )
    want = run_onnx(
        "Resize",
        [x, roi, None, sizes],
        mode="linear",
        coordinate_transformation_mode=mode,
        extrapolation_value=7.5,
    )
    close(got, want[0], 1e-4)
    sizes = np.array([1, 1, 7, 9])
    got = ours(R.image.resize2d, x, (7, 9), method="cubic", cubic_alpha=-0.5, cubic_exclude=1)
    want = run_onnx(
        "Resize", [x, None, None, sizes], mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1
    )
    close(got, want[0], 1e-4)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_the_nearest_pixel_of_a_crop_is_onnxs(rng, rounding):
    x = normal(rng, 1, 1, 5, 6)
    # Exact in float32, in which onnxruntime finds places: of others it rounds halves either way.
    corners = (0.125, -0.25, 0.875, 1.25)
    for size in ((4, 3), (9, 7), (1, 1)):
        got = ours(
            R.image.resize2d,
            x,
            size,
            roi=corners,
            method="nearest_neighbor",
            rounding_method=rounding,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=7.5,
        )
        roi = np.array([0, 0, *corners[:2], 1, 1, *corners[2:]], "float32")
        want = run_onnx(
            "Resize",
            [x, roi, None, np.array([1, 1, *size])],
            mode="nearest",
            nearest_mode=rounding,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=7.5,
        )
        close(got, want[0])


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("method", "theirs"), [("bilinear", "linear"), ("nearest", "nearest"), ("bicubic", "cubic")]
)
def test_grid_sample_is_grid_sample(rng, method, theirs, padding, align):
    x = normal(rng, 2, 2, 4, 5)
    grid = rng.uniform(-1.6, 1.6, (2, 3, 4, 2)).astype("float32")
    got = ours(
        R.image.grid_sample, x, grid, method=method, padding_mode=padding, align_corners=align
    )
    want = run_onnx(
        "GridSample", [x, grid], mode=theirs, padding_mode=padding, align_corners=int(align)
    )
    close(got, want[0], 1e-4)


@pytest.mark.parametrize("center", [0, 1])
def test_non_max_suppression_is_onnxs(rng, center):
    low = rng.uniform(0, 3, (2, 12, 2))
    boxes = np.concatenate([low, low + rng.uniform(0.5, 3, low.shape)], -1).astype("float32")
    scores = rng.uniform(size=(2, 3, 12)).astype("float32")
    for most, iou, least in ((3, 0.3, 0.2), (12, 0.5, 0.0), (12, 0.9, 0.6)):
        got = ours(
            R.vision.non_max_suppression, boxes, scores, most, iou, least, center_point_box=center
        )
        numbers = [np.array([most]), np.array([iou], "float32"), np.array([least], "float32")]
        want = run_onnx("NonMaxSuppression", [boxes, scores, *numbers], center_point_box=center)[0]
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("aligned", [False, True])
def test_roi_align_is_roi_align(rng, ratio, aligned):
    x = normal(rng, 2, 3, 7, 8)
    low = rng.uniform(-1, 5, (4, 2))
    corners = np.concatenate([low, low + rng.uniform(0, 7, low.shape)], -1).astype("float32")
    batch = np.array([0, 1, 1, 0])
    rois = np.concatenate([batch[:, None].astype("float32"), corners], -1)
    got = ours(R.vision.roi_align, x, rois, (2, 3), 0.75, sample_ratio=ratio, aligned=aligned)
    mode = "half_pixel" if aligned else "output_half_pixel"
    want = run_onnx(
        "RoiAlign",
        [x, corners, batch],
        output_height=2,
        output_width=3,
        spatial_scale=0.75,
        sampling_ratio=ratio,
        coordinate_transformation_mode=mode,
    )
    close(got, want[0], 1e-4)
