"""Operators of com.microsoft: what they mean in numpy here is what the importer makes of them, and
what onnxruntime computes, where that is installed and has a kernel.
"""

import itertools
import math

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax
from relaxvm.base import FrontendError, OpNotImplemented, VMError
from relaxvm.ir import walk
from relaxvm.relax.frontend.onnx import from_onnx
from relaxvm.relax.interp import Evaluator
from relaxvm.target import cpu_model

onnx = pytest.importorskip("onnx", reason="reading ONNX models needs the extra onnx")
try:
    import onnxruntime
except ImportError:
    onnxruntime = None
helper = onnx.helper
# Where a machine cannot multiply bytes and add four products at once.
SATURATES = not {"avxvnni", "avx512vnni", "dotprod"} & cpu_model("llvm").features
MS = "com.microsoft"
RNG = np.random.default_rng(1)


def floats(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def int32(*values):
    return np.array(values, "int32")


def one_node(op_type, inputs, outputs=(True,), domain=MS, shapes=None, **attrs):
    """A model of one node, and its inputs by name. Outputs that are False are left out."""
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(inputs)]
    results = [f"y{i}" if wanted else "" for i, wanted in enumerate(outputs)]
    feed = {n: a for n, a in zip(names, inputs) if n}
    kind = helper.np_dtype_to_tensor_dtype
    infos = [
        helper.make_tensor_value_info(n, kind(a.dtype), (shapes or {}).get(n, a.shape))
        for n, a in feed.items()
    ]
    # What onnxruntime does not infer the type of.
    typed = {}
    if op_type.endswith("Attention"):
        typed["y3"] = helper.make_tensor_value_info("y3", kind(inputs[0].dtype), None)
    graph = helper.make_graph(
        [helper.make_node(op_type, names, results, domain=domain, **attrs)],
        op_type,
        infos,
        [typed.get(n, onnx.ValueInfoProto(name=n)) for n in results if n],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feed


def by_onnxruntime(model, feed):
    """What onnxruntime computes; None where it is not installed or has no such kernel, or where
    its sums of two products of 8 bits saturate.
    """
    if onnxruntime is None or (SATURATES and any(a.dtype == "int8" for a in feed.values())):
        return None
    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        return session.run(None, feed)
    except Exception as error:
        absent = ("NOT_IMPLEMENTED", "not implemented", "only supports", "not supported")
        if any(text in str(error) for text in absent):
            return None
        raise


def computed(mod, inputs):
    """What `mod` gives; tests of built programs put another way of running in its place."""
    return Evaluator(mod)("main", *inputs)


def check(op_type, inputs, *wanted, known=(), rtol=2e-5, peer=True, part=None, **options):
    """The operator gives `wanted` for `inputs`; None is an output that is not asked for.

    known  inputs that are given as constants        peer  whether onnxruntime agrees
    part   (output, array) -> what of it is said
    """
    outputs = [w is not None for w in wanted]
    model, feed = one_node(op_type, inputs, outputs, **options)
    constants = {f"x{i}": inputs[i] for i in known}
    mod = from_onnx(model, constants=constants)
    got = computed(mod, [a for n, a in feed.items() if n not in constants])
    got = got if len([w for w in wanted if w is not None]) > 1 else [got]
    answers = [got]
    theirs = by_onnxruntime(model, feed) if peer else None
    if theirs is not None:
        answers.append(theirs)
    for answer in answers:
        expected = [(i, w) for i, w in enumerate(wanted) if w is not None]
        for (i, w), value in zip(expected, answer, strict=True):
            value, w = np.asarray(value), np.asarray(w)
            assert value.shape == w.shape
            if answer is got:
                assert value.dtype == w.dtype or w.dtype == "float64"
            a, b = (x.astype("float64") if x.dtype.kind == "f" else x for x in (value, w))
            if part is not None:
                a, b = part(i, a), part(i, b)
            scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0)))
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale)
    return mod


# -- activations and products ----------------------------------------------------------------------


def erf_gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x.astype("float64") / math.sqrt(2)))


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_activations():
    x, y, bias = floats(2, 3, 8), floats(2, 3, 8), floats(8)
    check("Gelu", [x], erf_gelu(x))
    check("BiasGelu", [x, bias], erf_gelu(x + bias))
    check("FastGelu", [x], tanh_gelu(x))
    check("FastGelu", [x, bias], tanh_gelu(x + bias))
    check("QuickGelu", [x], x * sigmoid(1.702 * x))
    check("QuickGelu", [x], x * sigmoid(1.3 * x), alpha=1.3)
    check("ScaledSiLU", [x], 0.5 * x * sigmoid(0.5 * x), alpha=0.5)
    check("SwiGLU", [x], x[..., :4] * sigmoid(x[..., :4]) * x[..., 4:])
    gate, up = np.minimum(x, 0.7), np.clip(y, -0.7, 0.7)
    wanted = gate * sigmoid(1.5 * gate) * (up + 1)
    check("SwiGLU", [x, y], wanted, limit=0.7, activation_beta=1.0, activation_alpha=1.5)
    check("BiasSplitGelu", [x, bias], (x + bias)[..., :4] * erf_gelu((x + bias)[..., 4:]))
    check("BiasAdd", [x, bias, y], x + bias + y)
    check("GatedAdd", [x, y, y[..., :1]], x + y * y[..., :1])
    check("BiasDropout", [x, bias, y], x + bias + y, np.ones(x.shape, bool))
    scores, added = floats(2, 3, 4, 5), floats(2, 1, 1, 5)
    wanted = softmax(scores + added)
    check("BiasSoftmax", [scores, added], wanted, is_inner_broadcast=1, axis=3)
    wanted = softmax(scores + scores[0])
    check("BiasSoftmax", [scores, scores[0]], wanted, is_inner_broadcast=0, axis=3)


def test_float16_activations():
    x = floats(3, 8, dtype="float16")
    wide = x.astype("float64")
    check("Gelu", [x], erf_gelu(wide).astype("float16"), rtol=3e-3, peer=False)
    check("FastGelu", [x, x[0]], tanh_gelu(wide + wide[0]).astype("float16"), rtol=3e-3)


ACTIVATIONS = {
    "": ([], lambda y: y),
    "Relu": ([], lambda y: np.maximum(y, 0)),
    "LeakyRelu": ([0.2], lambda y: np.where(y < 0, 0.2 * y, y)),
    "HardSigmoid": ([0.3, 0.4], lambda y: np.clip(0.3 * y + 0.4, 0, 1)),
    "Tanh": ([], np.tanh),
    "Sigmoid": ([], sigmoid),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_products_with_an_activation(activation):
    params, meaning = ACTIVATIONS[activation]
    a, b, c = floats(3, 4), floats(5, 4), floats(5)
    attrs = dict(zip(("activation_alpha", "activation_beta"), params), activation=activation)
    wanted = meaning(0.5 * (a @ b.T) + 2 * c)
    # onnxruntime wants a name.
    check(
        "FusedGemm",
        [a, b, c],
        wanted,
        transB=1,
        alpha=0.5,
        beta=2.0,
        peer=bool(activation),
        **attrs,
    )
    x, weight, bias, more = floats(1, 4, 6, 6), floats(4, 2, 1, 1), floats(4), floats(1, 4, 6, 6)
    parts = [
        np.einsum("bchw,oc->bohw", x[:, i : i + 2], weight[i : i + 2, :, 0, 0]) for i in (0, 2)
    ]
    wanted = meaning(np.concatenate(parts, 1) + bias[:, None, None] + more)
    attrs = {"activation": activation, "group": 2}
    attrs |= {"activation_params": params} if params else {}
    check("FusedConv", [x, weight, bias, more], wanted, peer=bool(activation), **attrs)
    last = [x.transpose(0, 2, 3, 1), weight, bias, more.transpose(0, 2, 3, 1)]
    check("NhwcFusedConv", last, wanted.transpose(0, 2, 3, 1), **attrs)


def test_an_activation_that_is_clipped_or_unknown():
    x, weight = floats(1, 2, 3, 3), np.eye(2, dtype="float32")[:, :, None, None]
    wanted = np.clip(x, -0.5, 0.5)
    check("FusedConv", [x, weight], wanted, activation="Clip", activation_params=[-0.5, 0.5])
    with pytest.raises(FrontendError, match="activation: wanted one of Clip, .*, got 'Bend'"):
        check("FusedConv", [x, weight], wanted, activation="Bend")
    with pytest.raises(FrontendError, match="activation LeakyRelu: wanted alpha, got"):
        check("FusedConv", [x, weight], wanted, activation="LeakyRelu")


@pytest.mark.parametrize("batch", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("matrix", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_products_of_transposed_operands(matrix, batch):
    a, b = floats(2, 3, 4, 5), floats(2, 3, 5, 6)

    def turned(x, matrix, batch):
        x = np.swapaxes(x, -1, -2) if matrix else x
        return np.ascontiguousarray(np.moveaxis(x, -2, 0) if batch else x)

    operands = [turned(x, m, c) for x, m, c in zip((a, b), matrix, batch)]
    attrs = dict(zip(("transA", "transB", "transBatchA", "transBatchB"), (*matrix, *batch)))
    check("FusedMatMul", operands, 0.3 * np.matmul(a, b), alpha=0.3, **attrs)
    if not any(batch):
        attrs = dict(zip(("transA", "transB"), matrix))
        check("TransposeMatMul", operands, np.matmul(a, b), **attrs)


def test_windows_with_channels_last_and_pads_that_are_an_input():
    x = RNG.integers(0, 255, (1, 4, 4, 3)).astype("uint8")
    wanted = x.reshape(1, 2, 2, 2, 2, 3).max((2, 4))
    check("NhwcMaxPool", [x], wanted, kernel_shape=[2, 2], strides=[2, 2])
    data, weight = floats(1, 2, 3, 3), floats(2, 1, 2, 2)
    whole = np.zeros((1, 2, 6, 6), "float32")
    for i, j in np.ndindex(3, 3):
        block = data[:, :, i, j, None, None] * weight[None, :, 0]
        whole[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] += block
    pads, attrs = np.array([1, 0, 1, 0]), {"group": 2, "strides": [2, 2]}
    name = "ConvTransposeWithDynamicPads"
    check(name, [data, weight, pads], whole[:, :, 1:-1], known=(2,), **attrs)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 3)] * 2), -1)[None].astype("float32")
    check("GridSample", [data, grid], data, align_corners=1)


@pytest.mark.parametrize("size", [(3, 4), (1, 1), (6, 13), (1, 5)])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_boxes_of_pictures_in_one_size(mode, size):
    x, which = floats(2, 3, 6, 7), int32(0, 1, 1, 0)
    boxes = np.array(
        [[0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9], [-0.2, 0.5, 1.3, 0.6], [0.9, 0.8, 0.1, 0.2]]
    )
    boxes = boxes.astype("float32")

    def places(first, end, extent, count):
        first, end = (e * np.float32(extent - 1) for e in (first, end))
        if count == 1:
            return [np.float32(0.5) * (first + end)]
        return [first + i * ((end - first) / np.float32(count - 1)) for i in range(count)]

    wanted = np.full((4, 3, *size), -2.5)
    for n, (y1, x1, y2, x2) in enumerate(boxes):
        for i, v in enumerate(places(y1, y2, 6, size[0])):
            for j, h in enumerate(places(x1, x2, 7, size[1])):
                if not (0 <= v <= 5 and 0 <= h <= 6):
                    continue
                picture = x[which[n]].astype("float64")
                if mode == "nearest":
                    wanted[n, :, i, j] = picture[:, int(v + 0.5), int(h + 0.5)]
                    continue
                rows = [int(v), math.ceil(v)]
                above, below = (
                    picture[:, r, int(h)] * (1 - h % 1) + picture[:, r, math.ceil(h)] * (h % 1)
                    for r in rows
                )
                wanted[n, :, i, j] = above * (1 - v % 1) + below * (v % 1)
    attrs = {"mode": mode, "extrapolation_value": -2.5}
    inputs = [x, boxes, which, int32(*size)]
    check("CropAndResize", inputs, wanted.astype("float32"), known=(3,), **attrs)


# -- normalisations --------------------------------------------------------------------------------


def layer_norm(x, gamma, beta=0.0, epsilon=1e-12):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + epsilon) * gamma + beta


def rms_factor(x, epsilon):
    return 1 / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)


def test_normalisations_of_sums():
    x, skip, gamma, beta, bias = floats(2, 3, 8), floats(2, 3, 8), *floats(3, 8)
    name = "SkipLayerNormalization"
    total = x + skip + bias
    check(name, [x, skip, gamma, beta, bias], layer_norm(total, gamma, beta), None, None, total)
    check(name, [x, skip[0], gamma], layer_norm(x + skip[0], gamma))
    check(name, [x, skip[:1], gamma, beta], layer_norm(x + skip[:1], gamma, beta, 0.1), epsilon=0.1)
    spread = 1 / np.sqrt(total.var(-1, keepdims=True) + 1e-12)
    means = total.mean(-1, keepdims=True)
    wanted = [layer_norm(total, gamma, beta), means, spread, total]
    check(name, [x, skip, gamma, beta, bias], *wanted, peer=False)
    name = "SkipSimplifiedLayerNormalization"
    wanted = [total * rms_factor(total, 1e-12) * gamma, None, None, total]
    check(name, [x, skip, gamma, bias], *wanted)
    flat = x[0] + skip[0]
    check(name, [x[0], skip[0], gamma], flat * rms_factor(flat, 1e-12) * gamma)
    factor = rms_factor(x, 1e-5)
    wanted = [x * factor * gamma, factor.astype("float32")]
    check("SimplifiedLayerNormalization", [x, gamma], *wanted, domain="")


def test_normalisation_by_groups_of_channels():
    x, gamma, beta, skip = floats(2, 4, 3, 8), floats(8), floats(8), floats(2, 8)

    def meaning(x):
        groups = x.reshape(2, 12, 2, 4)
        mean, var = groups.mean((1, 3), keepdims=True), groups.var((1, 3), keepdims=True)
        return ((groups - mean) / np.sqrt(var + 1e-5)).reshape(x.shape) * gamma + beta

    def first(x):
        return x.transpose(0, 3, 1, 2)

    wanted = meaning(x)
    check("GroupNorm", [x, gamma, beta], wanted, groups=2, activation=0)
    wanted = first(wanted * sigmoid(wanted))
    check("GroupNorm", [first(x), gamma, beta], wanted, groups=2, activation=1, channels_last=0)
    total = x + skip[:, None, None] + beta
    inputs, attrs = [gamma, beta, skip, beta], {"groups": 2, "activation": 0}
    check("SkipGroupNorm", [x, *inputs], meaning(total), total, **attrs)
    wanted = first(meaning(total)), first(total)
    check("SkipGroupNorm", [first(x), *inputs], *wanted, channels_last=0, **attrs)


def test_embeddings_that_are_normalised():
    ids = RNG.integers(0, 9, (2, 4)).astype("int32")
    words, at, kinds, gamma, beta = floats(9, 8), floats(6, 8), floats(2, 8), *floats(2, 8)
    total = words[ids] + at[:4] + kinds[ids % 2]
    norm = layer_norm(total, gamma, beta)
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], "int32")
    name, inputs = "EmbedLayerNormalization", [ids, ids % 2, words, at, kinds, gamma, beta]
    check(name, inputs, norm, int32(0, 0))
    check(name, [*inputs, mask], norm, int32(3, 1), total)
    wanted = layer_norm(words[ids] + at[ids % 6], gamma, beta)
    inputs = [ids, None, words, at, None, gamma, beta, None, ids % 6]
    check(name, inputs, wanted, int32(0, 0))


# -- attention -------------------------------------------------------------------------------------


def heads(x, count):
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def rows(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def attend(q, k, v, scale=None, added=0.0, seen=True, softcap=0.0, sink=None):
    """Results in rows, scores and weights, of [batch, heads, s, d]."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1).astype("float64") for x in (k, v))
    scores = q.astype("float64") @ k.swapaxes(2, 3) * (scale or 1 / math.sqrt(q.shape[3]))
    scores = softcap * np.tanh(scores / softcap) if softcap else scores
    scores = np.where(seen, scores + added, -np.inf)
    sums = scores
    if sink is not None:
        column = np.broadcast_to(sink[:, None, None], (*scores.shape[:3], 1))
        sums = np.concatenate([scores, column], -1)
    weights = softmax(sums)[..., : k.shape[2]]
    return rows(weights @ v), scores, weights


def causal(rows, keys):
    return np.tril(np.ones((rows, keys), bool), keys - rows)


MASKS = {
    "none": (None, 0.0),
    "lengths": (int32(3, 2), np.array([[1, 1, 1, 0], [1, 1, 0, 0]])[:, None]),
    "ends and starts": (int32(3, 4, 1, 0), np.array([[0, 1, 1, 0], [1, 1, 1, 1]])[:, None]),
    "lengths and sums": (
        int32(3, 2, 0, 4, 8, 0, 4, 8),
        np.array([[1, 1, 1, 0], [1, 1, 0, 0]])[:, None],
    ),
    "keys": (np.array([[1, 1, 0, 1], [0, 1, 1, 1]], "int32"),) * 2,
    # Each query sees one key at least.
    "pairs": (np.maximum(RNG.integers(0, 2, (2, 4, 4)), np.eye(4)).astype("int32"),) * 2,
}


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("kind", MASKS)
def test_attention_with_masks_of_every_rank(kind, unidirectional):
    mask, shown = MASKS[kind]
    x, weights, bias = floats(2, 4, 8), floats(8, 24), floats(24)
    q, k, v = (heads(p, 2) for p in np.split(x @ weights + bias, 3, -1))
    added = 0.0 if mask is None else np.where(np.reshape(shown, (2, 1, -1, 4)), 0, -1e4)
    seen = causal(4, 4) if unidirectional else True
    wanted, _, _ = attend(q, k, v, added=added, seen=seen)
    attrs = {"num_heads": 2, "unidirectional": unidirectional}
    check("Attention", [x, weights, bias, mask], wanted, **attrs)
    if kind in ("none", "lengths", "keys", "pairs"):
        check("MultiHeadAttention", [rows(q), rows(k), rows(v), None, mask], wanted, **attrs)


def test_attention_with_a_cache_and_with_a_bias():
    x, weights, bias, past = floats(2, 4, 8), floats(8, 24), floats(24), floats(2, 2, 2, 3, 4)
    q, *new = (heads(p, 2) for p in np.split(x @ weights + bias, 3, -1))
    k, v = (np.concatenate([p, n], 2) for p, n in zip(past, new))
    wanted, _, _ = attend(q, k, v, 0.3, seen=causal(4, 7))
    attrs = {"num_heads": 2, "unidirectional": 1, "scale": 0.3}
    check("Attention", [x, weights, bias, None, past], wanted, np.stack([k, v]), **attrs)
    buffer = np.concatenate([past, floats(2, 2, 2, 6, 4)], 3)
    present = buffer.copy()
    present[:, :, :, 3:7] = np.stack(new)
    inputs = [x, weights, bias, None, buffer, None, np.array(3, "int32")]
    attrs["past_present_share_buffer"] = 1
    check("Attention", inputs, wanted, present, peer=False, **attrs)
    added = floats(1, 1, 4, 4)
    check(
        "Attention",
        [x, weights, bias, None, None, added],
        attend(q, *new, added=added)[0],
        num_heads=2,
    )
    whole = (RNG.random((2, 1, 9, 9)) < 0.5).astype("int32")
    hidden = np.where(whole[:, :, 3:7, :7], 0, -1e4)
    inputs = [x, weights, bias, whole, past]
    wanted, _, _ = attend(q, k, v, added=hidden)
    check("Attention", inputs, wanted, np.stack([k, v]), num_heads=2, peer=False)


@pytest.mark.parametrize(
    ("mask", "shape"),
    [
        (int32(3, 2), ["other"]),
        (np.ones((2, 7), "int32"), ["other", "total"]),
        (np.ones((2, 4, 7), "int32"), ["batch", "rows", "total"]),
        (None, None),
    ],
)
def test_attention_of_sizes_that_are_known_when_it_runs(mask, shape):
    """A mask may name its dimensions otherwise: they are checked then."""
    x, weights, past = floats(2, 4, 8), floats(8, 24), floats(2, 2, 2, 3, 4)
    added = floats(1, 2, 4, 7) if mask is None else None
    shapes = {"x0": ["batch", "s", 8], "x3": shape, "x4": [2, "batch", 2, "past", 4]}
    shapes |= {"x5": [1, 2, "rows", "total"]}
    inputs = [x, weights, None, mask, past, added]
    attrs = {"num_heads": 2, "unidirectional": 1}
    model, feed = one_node("Attention", inputs, (True, True), shapes=shapes, **attrs)
    mod = from_onnx(model)
    assert "to attention" in str(mod.explain())
    q, *new = (heads(p, 2) for p in np.split(x @ weights, 3, -1))
    k, v = (np.concatenate([p, n], 2) for p, n in zip(past, new))
    low = 0.0 if added is None else added
    if shape == ["other"]:
        low = np.where(np.arange(7) < mask[:, None], 0, -1e4)[:, None, None]
    got, present = Evaluator(mod)("main", *feed.values())
    wanted, _, _ = attend(q, k, v, added=low, seen=causal(4, 7))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    assert np.array_equal(present[:, :, :, :3], past)
    if mask is not None:
        feed["x3"] = np.concatenate([mask, mask], -1)
        with pytest.raises(VMError, match="wanted"):
            Evaluator(mod)("main", *feed.values())


def test_attention_with_values_of_another_size():
    x, weights = floats(2, 4, 8), floats(8, 28)
    q, k, v = (heads(p, 2) for p in np.split(x @ weights, [8, 16], -1))
    wanted, _, _ = attend(q, k, v)
    check("Attention", [x, weights], wanted, num_heads=2, qkv_hidden_sizes=[8, 8, 12])


def test_multi_head_attention_of_every_packing():
    q, k, v, bias = floats(2, 4, 8), floats(2, 5, 8), floats(2, 5, 12), floats(28)
    name, attrs = "MultiHeadAttention", {"num_heads": 2}
    parts = [heads(x + b, 2) for x, b in zip((q, k, v), np.split(bias, [8, 16]))]
    check(name, [q, k, v, bias], attend(*parts, 0.2)[0], scale=0.2, **attrs)
    low = np.where([[1, 1, 1, 0, 0], [1] * 5], 0, -1000.0)[:, None, None]
    wanted, scores, _ = attend(*(heads(x, 2) for x in (q, k, v)), added=low)
    inputs = [q, k, v, None, int32(3, 5)]
    check(name, inputs, wanted, mask_filter_value=-1000.0, **attrs)
    wanted = attend(*(heads(x, 2) for x in (q, k, v)))
    present = [heads(x, 2) for x in (k, v)]
    check(name, [q, k, v], wanted[0], *present, wanted[1], **attrs)
    packed = floats(2, 4, 2, 3, 4)
    q, k, v = (packed[:, :, :, i].transpose(0, 2, 1, 3) for i in range(3))
    wanted, _, _ = attend(q, k, v)
    check(name, [packed], wanted, **attrs)
    check(name, [rows(q), np.ascontiguousarray(packed[:, :, :, 1:])], wanted, **attrs)
    check(name, [rows(q), *(np.ascontiguousarray(x) for x in (k, v))], wanted, **attrs)
    bias = floats(24)
    wanted, _, _ = attend(heads(rows(q) + bias[:8], 2), k, v)
    check(name, [rows(q), *(np.ascontiguousarray(x) for x in (k, v)), bias], wanted, **attrs)


def test_multi_head_attention_with_a_cache():
    q, k, v, bias = floats(2, 4, 8), floats(2, 4, 8), floats(2, 4, 8), floats(24)
    past = floats(2, 2, 2, 3, 4)
    parts = [heads(x + b, 2) for x, b in zip((q, k, v), np.split(bias, 3))]
    keys, values = (np.concatenate([p, n], 2) for p, n in zip(past, parts[1:]))
    mask, added = np.array([[1] * 5 + [0] * 2, [0] + [1] * 6], "int32"), floats(2, 1, 4, 7)
    low = np.where(mask, 0, -1e4)[:, None, None] + added
    wanted, _, _ = attend(parts[0], keys, values, added=low, seen=causal(4, 7))
    inputs = [q, k, v, bias, mask, added, *past]
    attrs = {"num_heads": 2, "unidirectional": 1}
    check("MultiHeadAttention", inputs, wanted, keys, values, **attrs)


def test_a_decoding_step_in_a_shared_buffer():
    """Rows of a cache may be those of other beams."""
    batch, width, most, count = 4, 2, 9, 3
    q, k, v = floats(batch, 1, 8), floats(batch, 1, 8), floats(batch, 1, 8)
    past, bias = floats(2, batch, 2, most, 4), floats(24)
    beams = RNG.integers(0, width, (batch // width, width, most)).astype("int32")
    parts = [heads(x + b, 2) for x, b in zip((q, k, v), np.split(bias, 3))]
    present = past.copy()
    present[:, :, :, count] = np.stack([p[:, :, 0] for p in parts[1:]])
    source = np.arange(batch)[:, None] // width * width + beams.reshape(batch, most)[:, :count]
    old = np.stack(
        [[p[source[b], :, range(count)].swapaxes(0, 1) for b in range(batch)] for p in past]
    )
    keys, values = (np.concatenate([o, p], 2) for o, p in zip(old, parts[1:]))
    wanted, scores, _ = attend(parts[0], keys, values)
    name, attrs = (
        "DecoderMaskedMultiHeadAttention",
        {"num_heads": 2, "past_present_share_buffer": 1},
    )
    inputs = [q, k, v, None, None, *past, int32(count), int32(width), beams, bias]
    check(name, inputs, wanted, *present, scores, output_qk=1, **attrs)
    inputs = [q, k, v, bias, None, None, *past, int32(count), beams]
    check("MultiHeadAttention", inputs, wanted, *present, num_heads=2)
    plain, _, _ = attend(
        parts[0], *(np.concatenate([p[:, :, :count], n], 2) for p, n in zip(past, parts[1:]))
    )
    inputs = [q, k, v, None, None, *past, int32(count), None, None, bias]
    check(name, inputs, plain, *present, **attrs)


def test_packed_attention_of_sequences_without_padding():
    """As each sequence alone."""
    x, weights, bias = floats(7, 8), floats(8, 24), floats(24)
    starts = int32(0, 1, 3, 7)
    offset = np.arange(12, dtype="int32").reshape(3, 4)
    trio, bounds = np.split(x @ weights + bias, 3, -1), itertools.pairwise(starts)
    wanted = np.concatenate(
        [
            attend(*(heads(p[None, a:b], 2) for p in trio))[0][0]
            for a, b in itertools.pairwise(starts)
        ]
    )
    check("PackedAttention", [x, weights, bias, offset, starts], wanted, num_heads=2)
    biases = np.split(bias, 3)
    inputs = [*(p - b for p, b in zip(trio, biases)), bias, offset, starts]
    check("PackedMultiHeadAttention", inputs, wanted, num_heads=2)
    packed = np.stack([p.reshape(7, 2, 4) for p in trio], 2)
    inputs = [packed, None, None, None, offset, starts]
    check("PackedMultiHeadAttention", inputs, wanted, num_heads=2)


def rotated(x, at, cos, sin, interleaved=0):
    """[batch, heads, s, d], the first dimensions turned by positions [batch, s]."""
    half = cos.shape[1]
    c, s = cos[at][:, None], sin[at][:, None]
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if interleaved
        else (slice(half), slice(half, 2 * half))
    )
    y = x.copy()
    y[..., first] = x[..., first] * c - x[..., second] * s
    y[..., second] = x[..., first] * s + x[..., second] * c
    return y


ANGLES = RNG.random((32, 8)).astype("float32")
COS, SIN = np.cos(ANGLES), np.sin(ANGLES)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_positions(interleaved):
    x, at = floats(2, 2, 3, 16), np.array([[0, 1, 2], [4, 5, 6]])
    wanted, attrs = rotated(x, at, COS, SIN, interleaved), {"interleaved": interleaved}
    check("RotaryEmbedding", [rows(x), at, COS, SIN], rows(wanted), **attrs)
    wanted = rotated(x, np.array([[4, 5, 6]]), COS, SIN, interleaved)
    check("RotaryEmbedding", [x, np.array([4]), COS, SIN], wanted, **attrs)
    cos, sin = COS[:, :2].copy(), SIN[:, :2].copy()
    wanted = rows(rotated(x, at, cos, sin, interleaved))
    attrs |= {"rotary_embedding_dim": 4, "num_heads": 2}
    check("RotaryEmbedding", [rows(x), at, cos, sin], wanted, **attrs)


def grouped(
    batch,
    length,
    past,
    lengths,
    total,
    packed=False,
    rotary=0,
    interleaved=0,
    added=None,
    sink=None,
    positions=None,
    new=None,
    buffer=None,
    dtype="float32",
    peer=True,
    known=(),
    window=-1,
    causal=1,
    softcap=0.0,
    smooth=False,
    **attrs,
):
    """Check GroupQueryAttention of 4 heads on 2; what is behind a batch's keys is not looked at."""
    q, k, v = (floats(batch, length, n * 16, dtype=dtype) for n in (4, 2, 2))
    old = None if past is None else floats(2, batch, 2, buffer or past, 16, dtype=dtype)
    ends = np.array(lengths) + 1
    begins = np.maximum(ends - (length if new is None else np.array(new)), 0)
    at = begins[:, None] + np.arange(length)
    turns = at if positions is None else positions
    queries, fresh, values = heads(q, 4), heads(k, 2), heads(v, 2)
    if rotary:
        queries, fresh = (rotated(x, turns, COS, SIN, interleaved) for x in (queries, fresh))
    keys = max(buffer or past or 0, total)
    present = np.zeros(
        (2, batch, 2, max(keys, keys if new is None else begins.max() + length), 16), dtype
    )
    if old is not None:
        present[:, :, :, : old.shape[3]] = old
    for b in range(batch):
        present[:, b, :, begins[b] : begins[b] + length] = np.stack([fresh[b], values[b]])
    present = present[:, :, :, :keys]
    j = np.arange(keys)
    seen = j <= at[:, None, :, None]
    if window > 0:
        seen &= j > at[:, None, :, None] - window
    if not causal:
        seen = j < ends[:, None, None, None]
    bias = 0.0 if added is None else np.pad(added, [(0, 0)] * 3 + [(0, keys - added.shape[3])])
    wanted, _, weights = attend(
        queries,
        *present,
        attrs.get("scale"),
        bias,
        seen,
        softcap,
        np.zeros(4) if smooth else sink,
    )
    inputs = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    inputs += [None, None] if old is None else [*old]
    inputs += [int32(*lengths), np.array([total], "int32")]
    inputs += [COS.astype(dtype), SIN.astype(dtype)] if rotary else [None, None]
    inputs += [positions, added, sink, None, None, None, None, None if new is None else int32(*new)]
    while inputs[-1] is None:
        inputs.pop()
    valid = [min(length, e) if new is None else n for e, n in zip(ends, new or ends)]

    def part(i, x):
        if i == 0:
            return np.concatenate([x[b, :n] for b, n in enumerate(valid)])
        return np.concatenate([x[b, :, :n] for b, n in enumerate(ends)], 1)

    attrs |= {"num_heads": 4, "kv_num_heads": 2, "softcap": softcap}
    attrs |= {"local_window_size": window} if window > 0 else {}
    attrs |= {} if causal else {"causal": 0}
    attrs |= {"smooth_softmax": 1} if smooth else {}
    if rotary:
        attrs |= {"do_rotary": 1, "rotary_interleaved": interleaved}
    rtol = 2e-5 if dtype == "float32" else 6e-3
    results = [x.astype(dtype) for x in (wanted, *present)]
    return check(
        "GroupQueryAttention",
        inputs,
        *results,
        part=part,
        rtol=rtol,
        peer=peer,
        known=known,
        **attrs,
    )


GROUPED = {
    "a prompt": dict(batch=1, length=4, past=0, lengths=[3], total=4),
    "a prompt without a cache": dict(
        batch=1, length=4, past=None, lengths=[3], total=4, peer=False
    ),
    "padded prompts": dict(batch=2, length=4, past=0, lengths=[3, 1], total=4),
    "a step": dict(batch=1, length=1, past=3, lengths=[3], total=4),
    "a step with a known total": dict(batch=1, length=1, past=3, lengths=[3], total=4, known=(6,)),
    "steps of one length": dict(batch=2, length=1, past=3, lengths=[3, 3], total=4),
    "steps of several lengths": dict(batch=2, length=1, past=3, lengths=[3, 1], total=4),
    "steps of several lengths and a known total": dict(
        batch=2, length=1, past=3, lengths=[3, 1], total=4, known=(6,)
    ),
    "a second prompt, packed and turned": dict(
        batch=1, length=3, past=3, lengths=[5], total=6, packed=True, rotary=1
    ),
    "pairs turned": dict(
        batch=2, length=1, past=3, lengths=[3, 1], total=4, rotary=1, interleaved=1
    ),
    "own positions": dict(
        batch=2, length=1, past=3, lengths=[3, 3], total=4, rotary=1, positions=np.array([[5], [3]])
    ),
    "a window": dict(batch=1, length=6, past=0, lengths=[5], total=6, window=3),
    "a window on a cache": dict(batch=1, length=1, past=6, lengths=[6], total=7, window=3),
    "scores capped": dict(batch=1, length=6, past=0, lengths=[5], total=6, softcap=2.0),
    "a sink": dict(batch=1, length=6, past=0, lengths=[5], total=6, sink=floats(4)),
    "a smooth softmax": dict(batch=1, length=3, past=2, lengths=[4], total=5, smooth=True),
    "a bias and a cap": dict(
        batch=2,
        length=3,
        past=3,
        lengths=[5, 5],
        total=6,
        added=floats(1, 4, 3, 6),
        softcap=1.5,
        scale=0.3,
        peer=False,
    ),
    "all keys": dict(batch=1, length=3, past=3, lengths=[5], total=6, causal=0),
    "a buffer": dict(batch=2, length=1, past=3, lengths=[3, 2], total=4, buffer=9),
    "a buffer and a bias": dict(
        batch=1, length=1, past=3, lengths=[3], total=4, buffer=9, added=floats(1, 1, 1, 4)
    ),
    "padded chunks": dict(batch=2, length=3, past=5, lengths=[7, 4], total=8, new=[3, 2], rotary=1),
    "float16": dict(
        batch=1,
        length=3,
        past=3,
        lengths=[5],
        total=6,
        packed=True,
        rotary=1,
        window=2,
        softcap=3.0,
        dtype="float16",
    ),
}


@pytest.mark.parametrize("kind", GROUPED)
def test_grouped_queries(kind):
    grouped(**GROUPED[kind])


def test_norms_of_heads_before_they_meet():
    q, k, v, a, b = floats(1, 3, 64), floats(1, 3, 32), floats(1, 3, 32), floats(16), floats(16)
    queries, keys = (x * rms_factor(x, 1e-6) * w for x, w in ((heads(q, 4), a), (heads(k, 2), b)))
    wanted, _, _ = attend(queries, keys, heads(v, 2), seen=causal(3, 3))
    inputs = [q, k, v, None, None, int32(2), int32(3), *[None] * 7, a, b]
    attrs = {"num_heads": 4, "kv_num_heads": 2}
    check("GroupQueryAttention", inputs, wanted, peer=False, **attrs)


@pytest.mark.parametrize("which", [1, 2])
def test_scores_and_weights_of_grouped_queries_can_be_asked_for(which):
    q, k, v = floats(1, 3, 64), floats(1, 3, 32), floats(1, 3, 32)
    y, scores, weights = attend(
        *(heads(x, n) for x, n in ((q, 4), (k, 2), (v, 2))), seen=causal(3, 3)
    )
    wanted = [None, np.where(causal(3, 3), scores, 0), weights][which]
    past = np.zeros((1, 2, 0, 16), "float32")
    inputs = [q, k, v, past, past, int32(2), int32(3)]
    present = heads(k, 2), heads(v, 2)
    attrs = {"num_heads": 4, "kv_num_heads": 2, "qk_output": which}
    check("GroupQueryAttention", inputs, y, *present, wanted, **attrs)


@pytest.mark.parametrize("seed", range(12))
def test_grouped_queries_of_random_shapes_and_options(seed):
    rng = np.random.default_rng(seed)
    batch, past = int(rng.integers(1, 4)), int(rng.integers(0, 6))
    length = 1 if batch > 1 and past else int(rng.integers(1, 5))
    end = past + length
    lengths = [end - 1] * batch
    if length == 1 and past:
        lengths = [int(n) for n in rng.integers(0, end, batch - 1)] + [end - 1]
    grouped(
        batch,
        length,
        past,
        lengths,
        end,
        packed=bool(rng.integers(2)),
        rotary=int(rng.integers(2)),
        interleaved=int(rng.integers(2)),
        window=int(rng.integers(1, 5)) if rng.integers(2) else -1,
        softcap=3.0 * int(rng.integers(2)),
        scale=0.5,
        buffer=end + int(rng.integers(1, 4)) if past and rng.integers(2) else None,
    )


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_a_step_of_decoding_is_one_kernel_that_reads_each_head_of_the_cache_once(exec_mode):
    """Of a cache whose length is known when it runs."""
    q, k, v = floats(1, 1, 64), floats(1, 1, 32), floats(1, 1, 32)
    past = floats(2, 1, 2, 5, 16)
    inputs = [q, k, v, *past, int32(5), int32(6)]
    shape = [1, 2, "past", 16]
    model, feed = one_node(
        "GroupQueryAttention",
        inputs,
        (True, True, True),
        shapes={"x3": shape, "x4": shape},
        num_heads=4,
        kv_num_heads=2,
    )
    mod = from_onnx(model)
    text = str(mod.explain())
    assert "fused with matmul" in text and "to attention" in text
    assert not any(f" {op} at" in text for op in ("broadcast_to", "repeat", "softmax"))
    program = relax.build(mod, "llvm", exec_mode=exec_mode)
    vm = relax.VirtualMachine(program, tvm.cpu(), exec_mode=exec_mode)
    keys, values = (np.concatenate([p, heads(n, 2)], 2) for p, n in zip(past, (k, v)))
    wanted, _, _ = attend(heads(q, 4), keys, values)
    for got, w in zip(vm["main"](*feed.values()), (wanted, keys, values), strict=True):
        np.testing.assert_allclose(got.numpy(), w, rtol=1e-5, atol=1e-5)


def test_relative_positions_in_buckets():
    """As T5 has them."""
    table = floats(8, 3)

    def bucket(back, both):
        count, offset = (4, 4 if back < 0 else 0) if both else (8, 0)
        back = abs(back) if both else max(back, 0)
        if back < count // 2:
            return offset + back
        share = math.log(back / (count // 2)) / math.log(20 / (count // 2))
        return offset + min(count // 2 + int(share * (count - count // 2)), count - 1)

    for both in (0, 1):
        which = np.array([[bucket(i - j, both) for j in range(12)] for i in range(12)])
        lengths = [np.array(12), np.array(12)]
        wanted = table[which].transpose(2, 0, 1)[None]
        attrs = {"max_distance": 20, "is_bidirectional": both}
        check("RelativePositionBias", [table, *lengths], wanted, known=(1, 2), **attrs)
    query, bias, weight, more, eco = (
        floats(2, 4, 8),
        floats(8),
        floats(4, 6),
        floats(6),
        floats(1, 2, 1, 1),
    )
    position = floats(1, 2, 4, 4)
    gates = heads(query + bias, 2) @ weight + more
    u, r = np.split(sigmoid(gates.reshape(2, 2, 4, 2, 3).sum(-1)), 2, -1)
    wanted = (u * (r * eco - 1) + 2) * position
    inputs = [query, bias, position, weight, more, eco]
    check("GatedRelativePositionBias", inputs, wanted, num_heads=2)


def test_padding_goes_and_comes_back():
    x, counts = floats(2, 3, 4), int32(1, 3)
    offset = int32(0, 3, 4, 5, 1, 2).reshape(2, 3)
    tokens = np.concatenate([x[0, :1], x[1]])
    check("RemovePadding", [x, counts], tokens, offset, int32(0, 1, 4), int32(3))
    back = x.copy()
    back[0, 1:] = 0
    check("RestorePadding", [tokens, offset], back)


# -- moved and made --------------------------------------------------------------------------------


def test_what_is_moved_and_made():
    x = floats(2, 3, 8)
    check("ExpandDims", [x, np.array(-1, "int32")], x[..., None], known=(1,))
    check("GatherND", [x, np.array([[0, 1], [1, 2]])], x[[0, 1], [1, 2]])
    check("TorchEmbedding", [x[0], np.array([1, 2])], x[0][1:])
    pads = np.array([0, 1, 0, 0, 0, 2])
    widths = [(0, 0), (1, 0), (0, 2)]
    check("Pad", [x, pads, floats(1) * 0 + 3], np.pad(x, widths, constant_values=3), known=(1, 2))
    for mode in ("edge", "reflect"):
        check("Pad", [x, pads[None]], np.pad(x, widths, mode=mode), known=(1,), mode=mode)
    check("Trilu", [x, np.array(1)], np.triu(x, 1), known=(1,))
    check("Trilu", [x], np.tril(x), upper=0)
    values = np.array([2, 1, 1, 3, 4, 3], "float32")
    wanted = np.array([2, 1, 3, 4], "float32"), np.array([0, 1, 1, 2, 3, 2]), np.array([1, 2, 2, 1])
    check("Unique", [values], *wanted)
    check("Range", [np.array([1]), np.array(7)], np.arange(1, 7))
    ends = [np.array(v, "int16") for v in (1, 7, 2)]
    check("Range", ends, np.arange(1, 7, 2, "int16"), known=(0, 1, 2))
    slices = np.stack([x[..., i : i + 3] for i in range(0, 6, 2)], -2)
    check("UnfoldTensor", [x], slices, size=3, step=2)
    slices = np.stack([x[:, i : i + 2] for i in (0, 1)], 1).transpose(0, 1, 3, 2)
    check("UnfoldTensor", [x], slices, size=2, dim=1)
    check("SampleOp", [x], x)


def test_what_is_computed_of_elements():
    x = floats(3, 4)
    check("IsAllFinite", [x, floats(2)], np.array(True))
    for value, flags in ((np.inf, {"isinf_only": 1}), (np.nan, {"isnan_only": 1}), (np.nan, {})):
        bad = np.where(x == x[1, 1], np.float32(value), x)
        check("IsAllFinite", [x, bad], np.array(False), **flags)
    check("IsAllFinite", [np.where(x == x[1, 1], np.inf, x)], np.array(True), isnan_only=1)
    a, b = floats(3, 4, 2), floats(3, 4, 2)
    product = a.view("complex64") * b.view("complex64")
    check("ComplexMul", [a, b], product.view("float32"))
    product = a.view("complex64") * b.view("complex64").conj()
    check("ComplexMulConj", [a, b], product.view("float32"))
    other = floats(5, 4)
    squares = ((x[:, None] - other) ** 2).sum(-1)
    check("CDist", [x, other], squares)
    check("CDist", [x, other], np.sqrt(squares), metric="euclidean")


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_runs_of_tokens_do_not_repeat(size):
    """Of any number of tokens."""
    tokens = np.array([[0, 1, 2, 0, 1, 2, 0, 1], [1] * 8, range(8)])
    scores = floats(3, 9)
    wanted = scores.copy()
    for row, each in zip(wanted, tokens.tolist()):
        for i in range(len(each) - size + 1):
            if each[i : i + size - 1] == each[len(each) - size + 1 :]:
                row[each[i + size - 1]] = -np.inf
    assert np.isinf(wanted).any() == (size < 9)
    check("NGramRepeatBlock", [tokens, scores], wanted, ngram_size=size)
    shapes = {"x0": ["batch", "s"]}
    check("NGramRepeatBlock", [tokens, scores], wanted, ngram_size=size, shapes=shapes)


def test_hashes_of_integers():
    """The first is of 12345 by the reference program."""
    values = [12345, 2**31 - 1, 7]
    for dtype in ("int32", "uint32", "int64", "uint64"):
        words = np.array(values, dtype)
        wanted = [murmur(w.tobytes(), 7) for w in words]
        check("MurmurHash3", [words], np.array(wanted, "uint32"), seed=7)
        check("MurmurHash3", [words], np.array(wanted, "uint32").view("int32"), seed=7, positive=0)
    for dtype in ("float32", "float64"):
        numbers = floats(5, dtype=dtype)
        wanted = [murmur(x.tobytes(), 0) for x in numbers]
        check("MurmurHash3", [numbers], np.array(wanted, "uint32"))


def murmur(data, seed):
    h, mask = seed, 0xFFFFFFFF
    for i in range(0, len(data), 4):
        k = int.from_bytes(data[i : i + 4], "little") * 0xCC9E2D51 & mask
        k = (k << 15 | k >> 17) * 0x1B873593 & mask
        h ^= k
        h = ((h << 13 | h >> 19) & mask) * 5 + 0xE6546B64 & mask
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    return h ^ h >> 16


# -- mixtures of experts ---------------------------------------------------------------------------


def mixture(x, router, inner, weight, bias, count, normal=True):
    """inner  (tokens, expert) -> its activation."""
    shares = softmax(router.astype("float64"))
    y = np.zeros_like(x)
    for token, share in enumerate(shares):
        best = np.argsort(-share, kind="stable")[:count]
        total = share[best].sum() if normal else 1.0
        for e in best:
            y[token] += share[e] / total * (inner(x[token], e) @ weight[e].T + bias[e])
    return y


def test_mixtures_of_experts():
    x, router = floats(6, 8), floats(6, 4)
    w1, b1, w2, b2 = floats(4, 16, 8), floats(4, 16), floats(4, 8, 16), floats(4, 8)
    meanings = {
        "relu": lambda h: np.maximum(h, 0),
        "gelu": tanh_gelu,
        "silu": lambda h: h * sigmoid(h),
        "identity": lambda h: h,
    }
    for name, meaning in meanings.items():
        wanted = mixture(x, router, lambda t, e, f=meaning: f(t @ w1[e].T + b1[e]), w2, b2, 2)
        attrs = {"k": 2, "activation_type": name, "normalize_routing_weights": 1}
        check("MoE", [x, router, w1, b1, w2, b2], wanted, **attrs)
    wanted = mixture(x, router, lambda t, e: np.maximum(t @ w1[e].T + b1[e], 0), w2, b2, 1, False)
    inputs = [x.reshape(2, 3, 8), router, w1, b1, w2, b2]
    check("MoE", inputs, wanted.reshape(2, 3, 8))


@pytest.mark.parametrize("fusion", [0, 1, 2])
def test_mixtures_of_gated_experts(fusion):
    x, router = floats(6, 8), floats(6, 4)
    w1, b1, w3, b3 = floats(4, 16, 8), floats(4, 16), floats(4, 16, 8), floats(4, 16)
    w2, b2 = floats(4, 8, 16), floats(4, 8)

    def inner(t, e):
        gate, up = np.minimum(t @ w1[e].T + b1[e], 1.5), np.clip(t @ w3[e].T + b3[e], -1.5, 1.5)
        return gate * sigmoid(1.2 * gate) * (up + 0.5)

    wanted = mixture(x, router, inner, w2, b2, 2)
    if fusion == 0:
        inputs = [x, router, w1, b1, w2, b2, w3, b3]
    else:
        joined = [
            np.stack([a, b], 2) if fusion == 1 else np.stack([a, b], 1)
            for a, b in ((w1, w3), (b1, b3))
        ]
        inputs = [x, router, joined[0].reshape(4, 32, 8), joined[1].reshape(4, 32), w2, b2]
    attrs = {"k": 2, "activation_type": "swiglu", "normalize_routing_weights": 1}
    attrs |= {"swiglu_fusion": fusion, "swiglu_limit": 1.5}
    attrs |= {"activation_alpha": 1.2, "activation_beta": 0.5}
    check("MoE", inputs, wanted, peer=fusion == 1, **attrs)


# -- quantised -------------------------------------------------------------------------------------


def stored(*shape, dtype="uint8"):
    return RNG.integers(0, 255, shape).astype("uint8").view(dtype)


def params(scale, zero, dtype="uint8"):
    return np.array(scale, "float32"), np.array(zero, dtype)


def real(x, scale, zero=0):
    return (x.astype("float64") - np.asarray(zero).astype("float64")) * scale


def rounded(x, scale, zero, dtype="uint8"):
    limits = np.iinfo(dtype)
    shifted = np.rint(x / scale) + np.asarray(zero).astype("float64")
    return np.clip(shifted, limits.min, limits.max).astype(dtype)


def check_stored(op_type, inputs, wanted, **options):
    """Ties may be rounded either way: float32 is not exact."""

    def near(i, x):
        return x.astype("float64") + (np.abs(x.astype("float64") - wanted) == 1) * (
            wanted.astype("float64") - x
        )

    check(op_type, inputs, wanted, part=near, **options)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantised_arithmetic(dtype):
    a, b = stored(3, 4, dtype=dtype), stored(4, dtype=dtype)
    pa, pb, pc = params(0.1, 7, dtype), params(0.2, 3, dtype), params(0.3, 5, dtype)
    x, y = real(a, *pa), real(b, *pb)
    check_stored("QLinearAdd", [a, *pa, b, *pb, *pc], rounded(x + y, *pc, dtype))
    check_stored("QLinearMul", [a, *pa, b, *pb, *pc], rounded(x * y, *pc, dtype))
    plain = rounded(real(a, 0.1) + real(b, 0.2), 0.3, 0, dtype)
    check_stored("QLinearAdd", [a, pa[0], None, b, pb[0], None, pc[0]], plain, peer=False)
    shown = RNG.random((3, 4)) < 0.5
    wanted = np.where(shown, rounded(x, *pc, dtype), rounded(y, *pc, dtype))
    check_stored("QLinearWhere", [shown, a, *pa, b, *pb, *pc], wanted)
    wanted = np.concatenate([rounded(x, *pc, dtype), rounded(y, *pc, dtype)[None]])
    check_stored("QLinearConcat", [*pc, a, *pa, b[None], *pb], wanted, axis=0)
    products = (a.astype("int32") - 7) * (b.astype("int32") - 3)
    check("MulInteger", [a, pa[1], b, pb[1]], products)
    sums = a.sum(1, dtype="int32" if dtype == "int8" else "uint32")
    check("ReduceSumInteger", [a], sums, axes=[1], keepdims=0, peer=False)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantised_functions(dtype):
    a, pa, pc = stored(3, 4, 2, dtype=dtype), params(0.1, 7, dtype), params(0.01, 3, dtype)
    x, inputs = real(a, *pa), [a, *pa, *pc]
    check_stored("QLinearSigmoid", inputs, rounded(sigmoid(x), *pc, dtype))
    wanted = rounded(np.where(x < 0, 0.3 * x, x), *pc, dtype)
    check_stored("QLinearLeakyRelu", inputs, wanted, alpha=0.3)
    check_stored("QLinearSoftmax", inputs, rounded(softmax(x), *pc, dtype), opset=13)
    flat = softmax(x.reshape(3, 8)).reshape(3, 4, 2)
    check_stored("QLinearSoftmax", inputs, rounded(flat, *pc, dtype), opset=11, axis=1)
    wanted = rounded(x.mean(1, keepdims=True), *pc, dtype)
    check_stored("QLinearReduceMean", inputs, wanted, axes=[1], keepdims=1)


@pytest.mark.parametrize("last", [0, 1])
def test_quantised_windows(last):
    def placed(x):
        return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x

    a, pa, pc, attrs = stored(1, 4, 6, 6), params(0.1, 7), params(0.12, 3), {"channels_last": last}
    x = real(a, *pa)
    pooled = x.reshape(1, 4, 3, 2, 3, 2).mean((3, 5))
    windows = {"kernel_shape": [2, 2], "strides": [2, 2]}
    inputs = [placed(a), *pa, *pc]
    wanted = placed(rounded(pooled, *pc))
    check_stored("QLinearAveragePool", inputs, wanted, **windows, **attrs)
    wanted = placed(rounded(x.mean((2, 3), keepdims=True), *pc))
    check_stored("QLinearGlobalAveragePool", inputs, wanted, **attrs)
    weight, bias, pc = stored(2, 4, 1, 1, dtype="int8"), int32(100, 2000), params(2, 3)
    y = np.einsum("bchw,oc->bohw", x, real(weight, 0.02)[:, :, 0, 0])
    wanted = placed(rounded(y + (bias * 0.1 * 0.02)[:, None, None], *pc))
    inputs = [placed(a), *pa, weight, *params(0.02, 0, "int8"), *pc, bias]
    check_stored("QLinearConv", inputs, wanted, **attrs)


@pytest.mark.parametrize("by_column", [False, True])
def test_quantised_products(by_column):
    a, b = stored(2, 3, 4), stored(4, 5, dtype="int8")
    pa, pb = (
        params(0.1, 7),
        params([0.2] * 5, [1] * 5, "int8") if by_column else params(0.2, 1, "int8"),
    )
    bias = floats(5)
    wanted = real(a, *pa) @ real(b, *pb) + bias
    inputs = [a, b, pa[0], pb[0], pa[1], pb[1], bias]
    check("MatMulIntegerToFloat", inputs, wanted.astype("float32"))
    more, pc = np.arange(5, dtype="int32"), params(1.7, 4)
    sums = real(a[0], *pa) @ real(b, *pb) + more * 0.1 * 0.2
    inputs = [a[0], *pa, b, *pb, more]
    check("QGemm", inputs, sums.astype("float32"))
    check_stored("QGemm", [*inputs, *pc], rounded(sums, *pc))
    turned = [np.ascontiguousarray(a[0].T), *pa, np.ascontiguousarray(b.T), *pb]
    wanted = 0.5 * (real(a[0], *pa) @ real(b, *pb)).astype("float32")
    check("QGemm", turned, wanted, transA=1, transB=1, alpha=0.5)
    x = floats(2, 3, 4)
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = np.float32((high - low) / np.float32(255))
    zero = np.rint(np.clip(-low / scale, 0, 255))
    held = real(rounded(x, scale, zero), scale, zero)
    wanted = (held @ real(b, *pb) + bias).astype("float32")
    check("DynamicQuantizeMatMul", [x, b, *pb, bias], wanted)


def test_products_of_16_bits():
    a, b = (RNG.integers(-(2**15), 2**15, s).astype("int16") for s in ((3, 4), (4, 5)))
    check("MatMulInteger16", [a, b], a.astype("int32") @ b.astype("int32"))
    a, b = a.view("uint16"), b.view("uint16")
    check("MatMulInteger16", [a, b], a.astype("uint32") @ b.astype("uint32"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_quantised_values_of_16_bits_too(dtype):
    x, one, several = (
        floats(3, 4) * 100,
        params(0.1, 3, dtype),
        params([0.1, 0.2, 0.3], [3, 4, 5], dtype),
    )
    check("QuantizeLinear", [x, *one], rounded(x, np.float32(0.1), 3, dtype))
    columns = [p[:, None] for p in several]
    wanted = rounded(x, *columns, dtype)
    check("QuantizeLinear", [x, *several], wanted, axis=0)
    check("DequantizeLinear", [wanted, *several], real(wanted, *columns).astype("float32"), axis=0)
    check("DequantizeLinear", [wanted, *one], real(wanted, *one).astype("float32"))


def test_quantised_attention():
    x, weight, bias = stored(2, 4, 8), stored(8, 24), floats(24)
    px, pw = params(0.01, 8), params([0.02] * 24, [5] * 24)
    q, k, v = (heads(p, 2) for p in np.split(real(x, *px) @ real(weight, *pw) + bias, 3, -1))
    low = np.where([[1, 1, 1, 1], [1, 1, 1, 0]], 0, -1e4)[:, None, None]
    inputs = [x, weight, bias, px[0], pw[0], int32(4, 3), px[1], pw[1]]
    wanted = attend(q, k, v, added=low)[0].astype("float32")
    check("QAttention", inputs, wanted, num_heads=2)
    past = floats(2, 2, 2, 3, 4)
    k, v = (np.concatenate([p, n], 2) for p, n in zip(past, (k, v)))
    wanted = [attend(q, k, v, seen=causal(4, 7))[0], np.stack([k, v])]
    inputs = [x, weight, bias, px[0], pw[0], None, px[1], pw[1], past]
    wanted = [w.astype("float32") for w in wanted]
    check("QAttention", inputs, *wanted, num_heads=2, unidirectional=1)


def test_quantised_embeddings():
    ids = RNG.integers(0, 6, (2, 4)).astype("int32")
    tables = [stored(9, 8), stored(6, 8), stored(2, 8), stored(8), stored(8)]
    scales, zeros = zip(*(params(0.01 * i, i) for i in range(1, 6)))
    words, at, kinds, gamma, beta = map(real, tables, scales, zeros)
    wanted = layer_norm(words[ids] + at[:4] + kinds[ids % 2], gamma, beta).astype("float32")
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], "int32")
    inputs = [ids, ids % 2, *tables, mask, *scales, *zeros]
    check("QEmbedLayerNormalization", inputs, wanted, int32(3, 1), rtol=1e-4)


@pytest.mark.parametrize("by_column", [False, True])
def test_an_lstm_of_stored_weights(by_column):
    """onnxruntime rounds its data and states to 8 bits, too."""
    x, w, r, bias = floats(4, 2, 3), stored(1, 3, 8), stored(1, 2, 8), floats(1, 16)
    shape = (1, 8) if by_column else (1,)
    scales = [(0.01 * RNG.random(shape)).astype("float32") for _ in "wr"]
    # onnxruntime wants symmetric ones of columns.
    dtype = "int8" if by_column else "uint8"
    zeros = [np.zeros(shape, dtype) if by_column else stored(*shape) for _ in "wr"]
    w, r = w.view(dtype), r.view(dtype)
    spread = (slice(None), None, slice(None) if by_column else None)
    left, right = (real(v, s[spread], z[spread])[0] for v, s, z in zip((w, r), scales, zeros))
    h, c, ys = np.zeros((2, 2)), np.zeros((2, 2)), []
    for step in x:
        gates = step @ left + h @ right + bias[0, :8] + bias[0, 8:]
        i, o, f, g = np.split(gates, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        ys.append(h)
    wanted = [np.array(ys)[:, None], h[None], c[None]]
    wanted = [v.astype("float32") for v in wanted]
    params = [p for pair in zip(scales, zeros) for p in pair]
    inputs = [x, w, r, bias, None, None, None, None, *params]
    check("DynamicQuantizeLSTM", inputs, *wanted, hidden_size=2, rtol=2e-2)
    check("DynamicQuantizeLSTM", inputs, *wanted, hidden_size=2, peer=False)


# -- weights of a few bits -------------------------------------------------------------------------


def fields(x, bits):
    """The numbers in the bytes of the last axis."""
    parts = [x >> shift & (2**bits - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*x.shape[:-1], -1).astype("float64")


@pytest.mark.parametrize(("depth", "block"), [(64, 16), (72, 32)])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_products_with_weights_of_a_few_bits(bits, depth, block):
    width, blocks = 6, -(-depth // block)
    packed = stored(width, blocks, block * bits // 8)
    scale = RNG.random((width, blocks)).astype("float32")
    zeros = stored(width, -(-blocks * bits // 8))
    points = fields(zeros, bits)[:, :blocks]
    x, bias = floats(2, 3, depth), floats(width)

    def product(zero, which=None):
        numbers = fields(packed, bits).reshape(width, -1)[:, :depth]
        which = np.arange(depth) // block if which is None else which
        return x @ ((numbers - zero[:, which]) * scale[:, which]).T

    attrs = {"K": depth, "N": width, "bits": bits, "block_size": block, "rtol": 1e-4}
    wanted = product(np.full(scale.shape, 2.0 ** (bits - 1))).astype("float32")
    check("MatMulNBits", [x, packed, scale], wanted, **attrs)
    wanted = product(points).astype("float32")
    check("MatMulNBits", [x, packed, scale, zeros], wanted, **attrs)
    inputs = [x, packed, scale.reshape(-1), zeros.reshape(-1), None, bias]
    check("MatMulNBits", inputs, wanted + bias, **attrs)
    real = (RNG.random(scale.shape) * 8).astype("float32")
    wanted = product(real).astype("float32")
    check("MatMulNBits", [x, packed, scale, real], wanted, peer=bits < 8, **attrs)
    group = RNG.integers(0, blocks, depth).astype("int32")
    wanted = product(real, group).astype("float32")
    check("MatMulNBits", [x, packed, scale, real, group], wanted, peer=bits < 8, **attrs)
    # onnxruntime takes another block's point.
    wanted = product(points, group).astype("float32")
    check("MatMulNBits", [x, packed, scale, zeros, group], wanted, peer=False, **attrs)


def test_weights_of_a_few_bits_stay_so_in_a_program():
    """In any number of rows, float16 too."""
    packed = stored(8, 2, 16)
    for dtype, rtol in (("float32", 1e-5), ("float16", 3e-3)):
        scale, x = np.ones((8, 2), dtype), floats(3, 64, dtype=dtype)
        model, _ = one_node(
            "MatMulNBits", [x], shapes={"x0": ["rows", 64]}, K=64, N=8, block_size=32
        )
        model.graph.node[0].input[:] = ["x0", "weight", "scale"]
        for name, value in (("weight", packed), ("scale", scale)):
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
        mod = from_onnx(model)
        built = relax.transform.LegalizeOps()(relax.transform.FoldConstant()(mod))
        held = [str(e.data.dtype) for e in constants_of(built) if e.data.size > 100]
        assert held == ["uint8"]
        vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
        wanted = x.astype("float64") @ (fields(packed, 4).reshape(8, 64) - 8).T
        for rows in (3, 1, 0):
            got = vm["main"](x[:rows]).numpy()
            np.testing.assert_allclose(got, wanted[:rows].astype(dtype), rtol=rtol, atol=50 * rtol)


def constants_of(mod):
    return {e for fn in mod.functions.values() for e in walk(fn) if isinstance(e, relax.Constant)}


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rows_of_tables_of_a_few_bits(bits):
    table, scale = stored(5, 64 * bits // 8), RNG.random((5, 4)).astype("float32")
    zeros, which = stored(5, -(-4 * bits // 8)), np.array([[1, 4], [0, 2]])
    attrs = {"bits": bits, "block_size": 16}
    for point, inputs in ((2.0 ** (bits - 1), []), (fields(zeros, bits)[:, :4], [zeros])):
        point = np.broadcast_to(point, scale.shape)
        numbers = fields(table, bits).reshape(5, 4, 16) - point[..., None]
        wanted = (numbers * scale[..., None]).reshape(5, 64)[which].astype("float32")
        check("GatherBlockQuantized", [table, which, scale, *inputs], wanted, **attrs)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_mixtures_of_experts_of_a_few_bits(bits):
    experts, width, inner = 4, 32, 16
    x, router = floats(5, width), floats(5, experts)
    w1, w2 = (
        stored(experts, 2 * inner, width * bits // 8),
        stored(experts, width, inner * bits // 8),
    )
    b1, b2 = floats(experts, 2 * inner), floats(experts, width)
    s1, s2 = (
        0.05 * RNG.random(s).astype("float32")
        for s in ((experts, 2 * inner, 2), (experts, width, 1))
    )
    z1, z2 = stored(experts, 2 * inner, -(-2 * bits // 8)), stored(experts, width, 1)
    real = [
        (fields(w, bits) - np.repeat(fields(z, bits)[..., : s.shape[2]], 16, 2))
        * np.repeat(s, 16, 2)
        for w, s, z in ((w1, s1, z1), (w2, s2, z2))
    ]

    def gated(t, e):
        gate, up = (t @ real[0][e].T + b1[e]).reshape(inner, 2).T
        return gate * sigmoid(gate) * up

    wanted = mixture(x, router, gated, real[1], b2, 2)
    inputs = [x, router, w1, s1, b1, w2, s2, b2, None, None, None, z1, z2]
    attrs = {"k": 2, "expert_weight_bits": bits, "normalize_routing_weights": 1}
    options = {"activation_type": "swiglu", "swiglu_fusion": 1, "block_size": 16}
    # onnxruntime rounds activations to 8 bits beside weights of 8 bits.
    check("QMoE", inputs, wanted, rtol=1e-2 if bits == 8 else 2e-4, **options, **attrs)
    scales = [s[..., 0].copy() for s in (s1, s2)]
    real = [
        (fields(w, bits) - 2 ** (bits - 1)) * s[..., None]
        for w, s in ((w1[:, ::2], scales[0][:, ::2]), (w2, scales[1]))
    ]

    def plain(t, e):
        h = t @ real[0][e].T
        return h * sigmoid(h)

    wanted = mixture(x, router, plain, real[1], b2 * 0, 2)
    inputs = [x, router, w1[:, ::2].copy(), scales[0][:, ::2].copy(), None, w2, scales[1]]
    options = {"activation_type": "silu", "weights_prepacked": 0}
    check("QMoE", inputs, wanted, rtol=2e-4, **options, **attrs)


# -- models that onnxruntime optimised -------------------------------------------------------------


def bert(layers=2, width=16, count=2, length=6):
    """A small BERT as exporters write it, and its inputs."""
    weights, nodes = {}, []

    def weight(name, *shape):
        weights[name] = (floats(*shape) * 0.2).astype("float32")
        return name

    def add(op_type, *inputs, **attrs):
        output = f"v{len(nodes)}"
        nodes.append(helper.make_node(op_type, inputs, [output], f"n{len(nodes)}", **attrs))
        return output

    def constant(name, value):
        weights[name] = np.array(value)
        return name

    def norm(x, name):
        scale, shift = weight(name + "_scale", width), weight(name + "_shift", width)
        return add("LayerNormalization", x, scale, shift, epsilon=1e-12)

    def dense(x, name, *shape):
        product = add("MatMul", x, weight(name + "_weight", *shape))
        return add("Add", weight(name + "_bias", shape[1]), product)

    words = add("Gather", weight("words", 30, width), "input_ids")
    kinds = add("Gather", weight("kinds", 2, width), "token_type_ids")
    at = weight("positions", 1, length, width)
    x = norm(add("Add", add("Add", words, kinds), at), "embedding")
    mask = add("Unsqueeze", "attention_mask", constant("axes", np.array([1, 2])))
    mask = add("Cast", mask, to=onnx.TensorProto.FLOAT)
    hidden = add("Sub", constant("one", np.float32(1)), mask)
    mask = add("Mul", hidden, constant("low", np.float32(-10000)))
    shape = constant("heads", np.array([0, 0, count, width // count]))
    back = constant("rows", np.array([0, 0, width]))
    scale = constant("scale", np.float32((width // count) ** 0.5))
    for i in range(layers):
        q, k, v = (dense(x, f"{n}{i}", width, width) for n in "qkv")
        q, v = (add("Transpose", add("Reshape", p, shape), perm=[0, 2, 1, 3]) for p in (q, v))
        k = add("Transpose", add("Reshape", k, shape), perm=[0, 2, 3, 1])
        scores = add("Add", add("Div", add("MatMul", q, k), scale), mask)
        y = add("MatMul", add("Softmax", scores, axis=-1), v)
        y = add("Reshape", add("Transpose", y, perm=[0, 2, 1, 3]), back)
        x = norm(add("Add", dense(y, f"out{i}", width, width), x), f"norm{i}")
        h = dense(x, f"up{i}", width, 4 * width)
        bent = add("Erf", add("Div", h, constant("root", np.float32(2**0.5))))
        bent = add("Mul", h, add("Add", bent, "one"))
        h = add("Mul", bent, constant("half", np.float32(0.5)))
        x = norm(add("Add", dense(h, f"down{i}", 4 * width, width), x), f"last{i}")
    names = ("input_ids", "token_type_ids", "attention_mask")
    kind = onnx.TensorProto.INT64
    infos = [helper.make_tensor_value_info(n, kind, ["batch", length]) for n in names]
    result = helper.make_tensor_value_info(x, onnx.TensorProto.FLOAT, ["batch", length, width])
    values = [onnx.numpy_helper.from_array(v, n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "bert", infos, [result], values)
    ids = RNG.integers(0, 30, (2, length))
    inputs = [ids, ids % 2, (np.arange(length) < [[4], [6]]).astype("int64")]
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), dict(zip(names, inputs))


def optimised(model, path, level):
    """The model as onnxruntime's offline optimiser writes it."""
    ort = pytest.importorskip("onnxruntime", reason="its optimiser writes the model")
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session, onnx.load(path)


def test_a_model_that_onnxruntime_optimised_gives_what_the_original_gives(tmp_path):
    model, feed = bert()
    session, better = optimised(model, tmp_path / "better.onnx", "ORT_ENABLE_EXTENDED")
    kinds = {n.op_type for n in better.graph.node if n.domain == MS}
    assert {"BiasGelu", "SkipLayerNormalization"} <= kinds
    (wanted,) = session.run(None, feed)
    for each in (model, better):
        mod = from_onnx(each)
        got = Evaluator(mod)("main", *feed.values())
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    assert str(mod.explain()).count("to attention") >= 2


def test_layouts_for_one_machine_are_refused_with_a_way_out(tmp_path):
    weight = onnx.numpy_helper.from_array(floats(64, 64, 3, 3), "w")
    kind = onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], kernel_shape=[3, 3], name="first"),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, [1, 64, 8, 8])],
        [helper.make_tensor_value_info("y", kind, [1, 64, 6, 6])],
        [weight],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session, better = optimised(model, tmp_path / "all.onnx", "ORT_ENABLE_ALL")
    x = floats(1, 64, 8, 8)
    (wanted,) = session.run(None, {"x": x})
    if not any(n.domain == "com.microsoft.nchwc" for n in better.graph.node):
        got = Evaluator(from_onnx(better))("main", x)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
        return
    with pytest.raises(
        OpNotImplemented, match="nchwc.*: Conv, 1 times .*optimise at level extended"
    ):
        from_onnx(better)
    _, extended = optimised(model, tmp_path / "extended.onnx", "ORT_ENABLE_EXTENDED")
    got = Evaluator(from_onnx(extended))("main", x)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


# -- built -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_built_programs_give_the_same(exec_mode, monkeypatch):
    def built(mod, inputs):
        program = relax.build(mod, "llvm", exec_mode=exec_mode)
        vm = relax.VirtualMachine(program, tvm.cpu(), exec_mode=exec_mode)
        results = vm["main"](*inputs)
        several = isinstance(results, (tuple, list))
        return [r.numpy() for r in results] if several else results.numpy()

    monkeypatch.setitem(globals(), "computed", built)
    test_activations()
    test_normalisations_of_sums()
    test_normalisation_by_groups_of_channels()
    test_embeddings_that_are_normalised()
    test_attention_with_a_cache_and_with_a_bias()
    test_multi_head_attention_with_a_cache()
    test_multi_head_attention_of_every_packing()
    test_a_decoding_step_in_a_shared_buffer()
    test_packed_attention_of_sequences_without_padding()
    for kind in ("ends and starts", "pairs"):
        test_attention_with_masks_of_every_rank(kind, 1)
    for options in list(GROUPED.values())[::3]:
        grouped(**options)
    test_rotary_positions(1)
    test_padding_goes_and_comes_back()
    test_what_is_moved_and_made()
    test_what_is_computed_of_elements()
    test_runs_of_tokens_do_not_repeat(2)
    test_hashes_of_integers()
    test_mixtures_of_gated_experts(1)
    test_boxes_of_pictures_in_one_size("bilinear", (3, 4))
    test_quantised_arithmetic("int8")
    test_quantised_functions("uint8")
    test_quantised_windows(1)
    test_quantised_products(True)
    test_quantised_attention()
    test_products_with_weights_of_a_few_bits(4, 72, 32)
    test_rows_of_tables_of_a_few_bits(2)


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "message"),
    [
        ("Attention", [floats(1, 2, 4)], {"num_heads": 1}, "its input weights is missing"),
        ("MultiHeadAttention", [floats(1, 2, 4)] * 3, {}, "attribute num_heads: it is missing"),
        ("QuickGelu", [floats(3)], {"alpha": 1}, "attribute alpha: wanted FLOAT, got INT"),
        ("QuickGelu", [floats(3)], {"beta": 1.0}, "attribute beta: it is not imported"),
        ("Gelu", [floats(3), floats(3)], {}, "wanted 1 inputs at most"),
        (
            "Attention",
            [floats(1, 2, 4), floats(4, 12), None, int32(1, 2, 3)],
            {"num_heads": 1},
            "mask",
        ),
        (
            "GroupQueryAttention",
            [floats(1, 2, 4)] * 3,
            {"num_heads": 1, "kv_num_heads": 1},
            "seqlens_k",
        ),
        ("CDist", [floats(2, 2)] * 2, {"metric": "yule"}, "metric: wanted euclidean"),
    ],
)
def test_what_does_not_fit_is_told_with_its_node(op_type, inputs, attrs, message):
    model, _ = one_node(op_type, inputs, **attrs)
    with pytest.raises(FrontendError, match=message) as raised:
        from_onnx(model)
    assert f"com.microsoft.{op_type}" in "".join(raised.value.__notes__)


# -- matrices and signals --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_inverse_is_that_of_each_matrix(dtype):
    x = floats(2, 3, 3, dtype=dtype) + 3 * np.eye(3, dtype=dtype)
    check("Inverse", [x], np.linalg.inv(x))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_transforms_of_real_signals_are_numpys(count):
    x, axes = floats(2, 3, 4, 6), tuple(range(-count, 0))
    y = np.fft.rfftn(x, axes=axes)
    pairs = np.stack((y.real, y.imag), -1).astype("float32")
    check("Rfft", [x], pairs, signal_ndim=count)
    check("Irfft", [pairs], x, signal_ndim=count, rtol=1e-4)
    with pytest.raises(FrontendError, match="wanted normalized 0, onesided 1"):
        from_onnx(one_node("Rfft", [x], signal_ndim=count, onesided=0)[0])
