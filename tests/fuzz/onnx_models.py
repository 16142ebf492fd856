"""Random ONNX models: operators, attributes, types and versions that the schemas of onnx name, in
chains, in branches, loops and functions, with dimensions by name. What `onnx.reference` and
onnxruntime answer, the importer answers, interpreted and built; where those two differ, one of
them, and `DISAGREEMENTS` counts it.
"""

from __future__ import annotations

import collections
import functools
import json
import math
import random
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from fuzz import onnx_peer
from relaxvm.base import InternalError, RelaxvmError
from relaxvm.relax.frontend.onnx import from_onnx
from relaxvm.relax.frontend.onnx.backend import RelaxvmRep

NEWEST = onnx.defs.onnx_opset_version()
DISAGREEMENTS: collections.Counter[str] = collections.Counter()
"""Operator -> how many models onnx.reference and onnxruntime answer differently."""
ASKED_FOR: collections.Counter[str] = collections.Counter()
"""What must be known, of what models with dimensions by name leave open -> how many."""
LARGEST = 4000
"""Elements of a value."""

# What is random, what reads files, what has graphs inside (wrapped around instead), and what is
# not on tensors; and what onnxruntime gives NaN for where numbers are alike.
LEFT_OUT = set(
    """
    Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike ImageDecoder
    If Loop Scan SequenceMap Optional OptionalGetElement OptionalHasElement ConcatFromSequence
    SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength
    SplitToSequence Constant MeanVarianceNormalization
    """.split()
)
ML = "ArrayFeatureExtractor Binarizer Imputer Normalizer OneHotEncoder Scaler"
WORDS: dict[str, list[str]] = {
    "approximate": ["none", "tanh"],
    "auto_pad": ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"],
    "case_change_action": ["LOWER", "UPPER", "NONE"],
    "coordinate_transformation_mode": ["half_pixel", "asymmetric", "align_corners"],
    "delimiter": ["b", ""],
    "direction": ["forward", "reverse", "bidirectional"],
    "equation": ["ij,jk->ik", "ij->ji", "...i,...i->...", "ii->i", "ij,ij", "bij,bjk->bik", "i->"],
    "mode": ["linear", "nearest", "cubic"],
    "nearest_mode": ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"],
    "norm": ["MAX", "L1", "L2"],
    "padding_mode": ["zeros", "border", "reflection"],
    "pattern": ["a.*", "[ab]+", ""],
    "reduction": ["none", "add", "mul", "min", "max"],
    "update_rule": ["linear", "gated", "delta", "gated_delta"],
}
WORDS_OF = {
    ("BitShift", "direction"): ["LEFT", "RIGHT"],
    ("DepthToSpace", "mode"): ["DCR", "CRD"],
    ("NegativeLogLikelihoodLoss", "reduction"): ["none", "mean", "sum"],
    ("Pad", "mode"): ["constant", "reflect", "edge", "wrap"],
    ("RoiAlign", "mode"): ["avg", "max"],
    ("RoiAlign", "coordinate_transformation_mode"): ["half_pixel", "output_half_pixel"],
    ("SoftmaxCrossEntropyLoss", "reduction"): ["none", "mean", "sum"],
    ("TfIdfVectorizer", "mode"): ["TF", "IDF", "TFIDF"],
}


# Of attributes that are neither flags nor axes.
NUMBERS = {
    "blocksize": (1, 2), "k": (-2, -1, 0, 1, 2), "p": (1, 2), "size": (1, 3), "num_groups": (1, 2),
    "maxsplit": (1, 2), "stash_type": (1,), "start": (-2, 0, 1), "end": (-1, 1, 3),
    "ignore_index": (-1, 0, 1), "block_size": (0,), "qk_matmul_output_mode": (0, 1, 2, 3),
    "zeros": (1,), "left_window_size": (-1,), "right_window_size": (-1,),
}  # fmt: skip
POSITIVE = {"lambd", "alpha", "epsilon", "spatial_scale", "clip", "scale"}
OUTSIDE = {"BitCast", "DynamicQuantizeLinear", "Pow"}
"""What shows how numbers were rounded, or what NaN is as an integer: it takes no results."""
_NO_CLIP = "onnx.reference leaves out clip and the second direction"
_NEWEST_ONLY = "onnx.reference has the definition of a later version"
DIFFER: dict[str, tuple[int, str]] = {
    "AffineGrid": (0, "one size with align_corners: each divides by zero in its own way"),
    "BatchNormalization": (14, _NEWEST_ONLY),
    "ConvTranspose": (0, "onnx.reference adds a bias of groups to all channels alike"),
    "GRU": (0, _NO_CLIP),
    "Hardmax": (13, _NEWEST_ONLY),
    "Imputer": (0, "onnx.reference replaces integers by floats where both are given"),
    "LRN": (0, "onnx.reference leaves out channels where the size is 1"),
    "LSTM": (0, _NO_CLIP),
    "LogSoftmax": (13, _NEWEST_ONLY),
    "LpNormalization": (0, "onnx.reference forgets absolute values for p = 1"),
    "MaxPool": (0, "onnx.reference counts indices anew in each channel if there are dilations"),
    "NonZero": (0, "a scalar: onnxruntime and we take it as a vector, as numpy once did"),
    "Normalizer": (0, "MAX divides by the greatest number, in onnx.reference by its size"),
    "OneHotEncoder": (0, "onnx.reference does not cut off floats before it compares"),
    "RNN": (0, _NO_CLIP),
    "RoiAlign": (16, _NEWEST_ONLY),
    "Softmax": (13, _NEWEST_ONLY),
    "StringNormalizer": (0, "onnx.reference strips accents and empty strings"),
    "Unique": (0, "unsorted with an axis: onnx.reference takes along axis 0"),
}
"""Operator -> from which opset on onnx.reference is right about it (0: never), and why. Before,
onnxruntime decides."""
LACKS = (
    # What a loop collects has a shape that is known before it.
    "a result that a loop collects is",
    # Convolutions of integers have one axis or two.
    "its windows over 3 axes are not imported yet",
    # Inside of a loop it is not told which inputs a value is computed from.
    "must be known when the model is imported",
)
"""Beginnings or parts of messages: what the importer is known not to do."""
TYPES = {
    "Col2Im": ("float32", "float64"),
    "GridSample": ("float32", "float64"),
    "OneHotEncoder": ("int64", "float32"),
    "QLinearMatMul": ("float32", "int8", "uint8"),
    "Resize": ("float32", "float64"),
    "Upsample": ("float32", "int32"),
}
"""Types that are judged, of operators whose others only onnx.reference has, roughly."""

# -- what operators want ---------------------------------------------------------------------------
# Shapes, or values in a list, of the inputs, and attributes: {name: (rng) -> (inputs, attributes)}.
# An operator that is not here takes whatever shapes it is happy with.


def _given(values: Any, dtype: str | None = "int64") -> Any:
    """An input of these values; without a dtype of one that the schema allows."""
    return {"values": values, "dtype": dtype}


def _conv(rng: random.Random, weight_first: bool = False) -> Any:
    axes, group = rng.choice((1, 2, 2, 3)), rng.choice((1, 1, 2))
    inner, outer = rng.choice((1, 2)), rng.choice((1, 3))
    kernel = [rng.randint(1, 3) for _ in range(axes)]
    x = [rng.choice((1, 2)), group * inner, *(rng.randint(5, 7) for _ in kernel)]
    w = [group * inner, outer] if weight_first else [group * outer, inner]
    attrs: dict[str, Any] = {"group": group}
    for name in ("strides", "dilations"):
        if rng.random() < 0.4:
            attrs[name] = [rng.randint(1, 2) for _ in kernel]
    if rng.random() < 0.5:
        attrs["pads"] = [rng.randint(0, 1) * (k > 1) for k in kernel * 2]
    elif "dilations" not in attrs and rng.random() < 0.5:
        attrs["auto_pad"] = rng.choice(WORDS["auto_pad"])
    if weight_first and rng.random() < 0.4:
        attrs["output_padding"] = [rng.randint(0, 1) for _ in kernel]
    return [x, [*w, *kernel], rng.choice((None, [group * outer]))], attrs


def _pool(rng: random.Random) -> Any:
    inputs, attrs = _conv(rng)
    del attrs["group"]
    attrs["kernel_shape"] = inputs[1][2:]
    return [inputs[0]], attrs


def _recurrent(gates: int, rng: random.Random) -> Any:
    t, b, i, h = (rng.randint(1, 3) for _ in range(4))
    direction = rng.choice(WORDS["direction"])
    d = 2 if direction == "bidirectional" else 1
    inputs = [[t, b, i], [d, gates * h, i], [d, gates * h, h]]
    more = [[d, 2 * gates * h], None, [d, b, h]]
    if gates == 4:
        more += [[d, b, h], [d, 3 * h]]
    inputs += [rng.choice((None, m)) for m in more]
    attrs: dict[str, Any] = {"hidden_size": h, "direction": direction}
    if gates == 3 and rng.random() < 0.5:
        attrs["linear_before_reset"] = 1
    if rng.random() < 0.3:
        attrs["clip"] = 0.5
    return inputs, attrs


def _norm(rng: random.Random, count: int) -> Any:
    c = rng.choice((1, 2, 4))
    x = [rng.randint(1, 2), c, *(rng.randint(1, 4) for _ in range(rng.randint(0, 3)))]
    return [x, *[[c]] * count], {}


def _resize(rng: random.Random) -> Any:
    x = [1, rng.randint(1, 2), rng.randint(1, 5), rng.randint(1, 5)][: rng.choice((2, 4, 4))]
    size = [*x[:-2], *(rng.randint(1, 7) for _ in x[-2:])] if len(x) == 4 else [2, 3]
    attrs = {"mode": rng.choice(WORDS["mode"])}
    for name in ("coordinate_transformation_mode", "nearest_mode"):
        if rng.random() < 0.6:
            attrs[name] = rng.choice(WORDS[name])
    if rng.random() < 0.5:
        return [x, None, None, _given(size)], attrs
    scales = [
        1.0 if i < len(x) - 2 else rng.choice((0.5, 0.6, 1.5, 2.0, 3.0)) for i in range(len(x))
    ]
    return [x, None, _given(scales, "float32")], attrs


def _quantise(rng: random.Random) -> Any:
    rank = rng.randint(1, 3)
    x = [rng.randint(1, 4) for _ in range(rank)]
    axis = rng.randrange(rank)
    scale: Any = rng.choice(([], [x[axis]]))
    positive = {"shape": scale, "low": 0.25, "high": 2}
    zero = rng.choice((None, {"shape": scale, "low": 0, "high": rng.choice((0, 3))}))
    return [x, positive, zero], {"axis": axis}


def _product(rng: random.Random) -> Any:
    m, k, n = (rng.randint(1, 4) for _ in range(3))
    batch = [rng.choice((1, 2)) for _ in range(rng.randint(0, 2))]
    return [[*batch, m, k], rng.choice(([k, n], [*batch, k, n]))], {}


def _gemm(rng: random.Random) -> Any:
    m, k, n = (rng.randint(1, 4) for _ in range(3))
    a, b = rng.randint(0, 1), rng.randint(0, 1)
    c = rng.choice((None, [n], [m, 1], [m, n], [], [1, n]))
    inputs = [[k, m] if a else [m, k], [n, k] if b else [k, n], c]
    return inputs, {
        "transA": a,
        "transB": b,
        "alpha": rng.choice((1.0, 0.5)),
        "beta": rng.choice((1.0, 2.0)),
    }


def _attention(rng: random.Random) -> Any:
    b, h, s, t, d, e = (rng.randint(1, 3) for _ in range(6))
    g = rng.choice((1, 2))
    mask = rng.choice((None, [s, t], [b, 1, s, t]))
    if rng.random() < 0.5:
        heads = {"q_num_heads": h * g, "kv_num_heads": h}
        return [[b, s, h * g * d], [b, t, h * d], [b, t, h * e], mask], heads
    causal = {"is_causal": rng.randint(0, 1)}
    return [[b, h * g, s, d], [b, h, t, d], [b, h, t, e], mask], causal


def _slice(rng: random.Random) -> Any:
    x = [rng.randint(1, 5) for _ in range(rng.randint(1, 3))]
    axes = rng.sample(range(len(x)), rng.randint(1, len(x)))
    some = lambda: [rng.randint(-6, 6) for _ in axes]  # noqa: E731
    steps = [rng.choice((1, 1, 2, -1)) for _ in axes]
    ints = [_given(v) for v in (some(), some(), axes, steps)]
    return [x, *ints[: rng.choice((2, 3, 4))]], {}


def _pad(rng: random.Random) -> Any:
    x = [rng.randint(2, 4) for _ in range(rng.randint(1, 4))]
    pads = [rng.choice((0, 0, 1, 1, -1)) for _ in range(2 * len(x))]
    return [x, _given(pads)], {}


def _indexed(rng: random.Random, updates: bool) -> Any:
    x = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    axis = rng.randrange(len(x))
    shape = [rng.randint(1, n) for n in x]
    indices = {"shape": shape, "low": -x[axis], "high": x[axis] - 1}
    return [x, indices, *([shape] if updates else [])], {"axis": axis}


def _gather(rng: random.Random) -> Any:
    x = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    axis = rng.randrange(len(x))
    shape = [rng.randint(1, 3) for _ in range(rng.randint(0, 2))]
    return [x, {"shape": shape, "low": -x[axis], "high": x[axis] - 1}], {"axis": axis}


def _gather_nd(rng: random.Random, updates: bool = False) -> Any:
    x = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    depth, shape = rng.randint(1, len(x)), [rng.randint(1, 3)]
    low = {"shape": [*shape, depth], "low": -min(x), "high": min(x) - 1}
    return [x, low, *([[*shape, *x[depth:]]] if updates else [])], {}


def _ints(low: int, high: int, count: int | None = None) -> Any:
    """A vector of integers as the second input."""

    def recipe(rng: random.Random) -> Any:
        x = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
        n = len(x) if count is None else count
        return [x, _given([rng.randint(low, high) for _ in range(n)])], {}

    return recipe


def _reshape(rng: random.Random) -> Any:
    target = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
    x = [int(np.prod(target[:k])) for k in (1,)] + target[1:]
    rng.shuffle(x)
    if rng.random() < 0.5:
        target[rng.randrange(len(target))] = -1
    return [x, _given(target)], {}


def _expand(rng: random.Random) -> Any:
    target = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
    x = [rng.choice((1, n)) for n in target[rng.randrange(len(target)) :]]
    return [x, _given(target)], {}


def _unsqueeze(rng: random.Random) -> Any:
    x = [rng.randint(1, 4) for _ in range(rng.randint(0, 3))]
    axes = rng.sample(range(len(x) + 2), 2)
    return [x, _given(axes)], {"axes": axes}


def _loss(rng: random.Random) -> Any:
    n, c, rest = rng.randint(1, 3), rng.randint(1, 4), [rng.randint(1, 3)] * rng.randint(0, 2)
    target = {"shape": [n, *rest], "low": 0, "high": c - 1}
    return [[n, c, *rest], target, rng.choice((None, [c]))], {}


def _qmatmul(rng: random.Random) -> Any:
    (a, b), _ = _product(rng)
    scale = {"shape": [], "low": 0.25, "high": 2}
    return [a, scale, [], b, scale, [], scale, []], {}


def _qconv(rng: random.Random) -> Any:
    (x, w, bias), attrs = _conv(rng)
    scale = {"shape": [], "low": 0.25, "high": 2}
    return [x, scale, [], w, scale, [], scale, [], bias], attrs


def _range(rng: random.Random) -> Any:
    ends = ((0, 2, -1), (5, -4, 2), (1, 2, -1))
    return [_given(rng.choice(values), None) for values in ends], {}


def _grid(rng: random.Random) -> Any:
    axes = rng.choice((2, 2, 3))
    out = [rng.randint(1, 3) for _ in range(axes)]
    x = [2, rng.randint(1, 2), *(rng.randint(1, 4) for _ in range(axes))]
    return [x, {"shape": [2, *out, axes], "low": -1, "high": 1}], {}


def _blocks(rng: random.Random, depth: bool) -> Any:
    b = rng.randint(1, 2)
    x = [rng.randint(1, 2), 2 * b * b, 2, 3] if depth else [1, rng.randint(1, 2), 2 * b, 3 * b]
    return [x], {"blocksize": b}


def _nms(rng: random.Random) -> Any:
    n, b, c = rng.randint(1, 5), rng.randint(1, 2), rng.randint(1, 2)
    most = _given(rng.randint(0, 3))
    iou = _given(rng.choice((0.0, 0.5)), "float32")
    return [[b, n, 4], [b, c, n], most, iou], {}


def _roi(rng: random.Random) -> Any:
    n = rng.randint(1, 3)
    x = [2, rng.randint(1, 2), rng.randint(2, 5), rng.randint(2, 5)]
    sizes = {
        "output_height": rng.randint(1, 3),
        "output_width": 2,
        "sampling_ratio": rng.choice((0, 2)),
    }
    return [x, {"shape": [n, 4], "low": 0, "high": 4}, {"shape": [n], "low": 0, "high": 1}], sizes


def _layer_norm(rng: random.Random) -> Any:
    x = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    axis = rng.randrange(len(x))
    return [x, x[axis:], rng.choice((None, x[axis:]))], {"axis": rng.choice((axis, axis - len(x)))}


def _windows(rng: random.Random) -> Any:
    b, c, h, w = rng.randint(1, 2), rng.randint(1, 2), rng.randint(2, 4), rng.randint(2, 4)
    k = [rng.randint(1, 2), rng.randint(1, 2)]
    count = (h - k[0] + 1) * (w - k[1] + 1)
    sizes = [_given(v) for v in ([h, w], k)]
    return [[b, c * k[0] * k[1], count], *sizes], {}


def _deform(rng: random.Random) -> Any:
    c, o, h, w, k = (rng.randint(1, 3) for _ in range(5))
    h, w = h + 2, w + 2
    out = [h - k + 1, w - k + 1]
    mask = rng.choice((None, [1, k * k, *out]))
    bias = rng.choice((None, [o]))
    return [[1, c, h, w], [o, c, k, k], [1, 2 * k * k, *out], bias, mask], {}


def _unpool(rng: random.Random) -> Any:
    shape = [1, 1, rng.randint(1, 3), rng.randint(1, 3)]
    count = shape[2] * shape[3]
    places = rng.sample(range(count * 4), count)
    indices = _given(np.reshape(places, shape).tolist())
    return [shape, indices], {"kernel_shape": [2, 2], "strides": [2, 2]}


def _rotary(rng: random.Random) -> Any:
    b, h, s, d = rng.randint(1, 2), rng.randint(1, 3), rng.randint(1, 3), 2 * rng.randint(1, 3)
    turned = rng.choice((0, d if d < 4 else 4))
    cache = [b, s, (turned or d) // 2]
    attrs = {"rotary_embedding_dim": turned, "interleaved": rng.randint(0, 1)}
    if rng.random() < 0.4:
        return [[b, s, h * d], cache, cache], {**attrs, "num_heads": h}
    return [[b, h, s, d], cache, cache], attrs


def _cache(rng: random.Random) -> Any:
    b, h, t, d = (rng.randint(1, 3) for _ in range(4))
    s = rng.randint(1, t)
    where = {"shape": [b], "low": 0, "high": t - s}
    return [[b, h, t, d], [b, h, s, d], rng.choice((None, where))], {
        "mode": rng.choice(("linear", "circular"))
    }


def _causal(rng: random.Random) -> Any:
    b, c, t, k = (rng.randint(1, 3) for _ in range(4))
    more = [rng.choice((None, [c])), rng.choice((None, [b, c, k - 1] if k > 1 else None))]
    return [[b, c, t], [c, 1, k], *more], {"activation": rng.choice(("none", "silu"))}


def _linear_attention(rng: random.Random) -> Any:
    b, h, s, d, e = (rng.randint(1, 3) for _ in range(5))
    rule = rng.choice(WORDS["update_rule"])
    decay, beta = ([b, s, h] if "gated" in rule else None), ([b, s, h] if "delta" in rule else None)
    state = rng.choice((None, [b, h, d, e]))
    attrs = {"q_num_heads": h, "kv_num_heads": h, "update_rule": rule}
    return [[b, s, h * d], [b, s, h * d], [b, s, h * e], state, decay, beta], attrs


def _features(rng: random.Random, **attrs: Any) -> Any:
    """Rows of features; attributes with a number for each where a list of one is given."""
    n = rng.randint(1, 4)
    return [[rng.randint(1, 4), n]], {k: v * n if len(v) == 1 else v for k, v in attrs.items()}


def _dft(rng: random.Random) -> Any:
    return [[1, rng.randint(1, 5), rng.randint(1, 2)]], {}


def _stft(rng: random.Random) -> Any:
    return [[1, 12, 1], _given(rng.randint(1, 4)), None, _given(rng.randint(2, 6))], {}


def _upsample(rng: random.Random) -> Any:
    scales = [1.0, 1.0, 2.0, rng.choice((1.0, 3.0))]
    return [[1, 1, rng.randint(1, 3), 2], _given(scales, "float32")], {"scales": scales}


def _reverse(rng: random.Random) -> Any:
    batch = rng.randint(0, 1)
    lengths = _given([rng.randint(1, 3) for _ in range(3)])
    return [[3, 3, 2], lengths], {"batch_axis": batch, "time_axis": 1 - batch}


def _one_hot(rng: random.Random) -> Any:
    depth = _given(rng.randint(1, 4))
    return [_given([0, 1, -1], None), depth, [2]], {"axis": rng.choice((-1, 0, 1))}


def _tfidf(rng: random.Random) -> Any:
    grams = {"max_gram_length": 2, "min_gram_length": rng.randint(1, 2), "ngram_counts": [0, 2]}
    pool = {"ngram_indexes": [0, 1, 2], "pool_int64s": [0, 1, 1, 2], "weights": [0.5, 1.0, 2.0]}
    return [[rng.choice((2, 3)), 4]], {**grams, **pool, "max_skip_count": rng.randint(0, 2)}


def _integers(recipe: Any) -> Any:
    """A product of integers: two operands, and perhaps their zero points."""

    def with_zeros(rng: random.Random) -> Any:
        inputs, attrs = recipe(rng)
        return [*inputs[:2], rng.choice((None, [])), rng.choice((None, []))], attrs

    return with_zeros


def _regions(rng: random.Random) -> Any:
    regions = _given([[0, 0, 0, 3, 3], [0, 1, 1, 2, 2]], None)
    return [[1, 1, 4, 4], regions], {"pooled_shape": [2, 2]}


RECIPES: dict[str, Any] = {
    "AffineGrid": lambda rng: ([[2, 2, 3], _given([2, 1, rng.randint(2, 4), 3])], {}),
    "ArgMax": lambda rng: ([[rng.randint(1, 4), 3]], {}),
    "ArgMin": lambda rng: ([[rng.randint(1, 4), 3]], {}),
    "Attention": _attention,
    "AveragePool": _pool,
    "BatchNormalization": lambda rng: _norm(rng, 4),
    "Binarizer": _features,
    "Cast": lambda rng: ([{"shape": _shape(rng, []), "low": 0, "high": 3}], {}),
    "CastLike": lambda rng: ([{"shape": _shape(rng, []), "low": 0, "high": 3}, [1]], {}),
    "CausalConvWithState": _causal,
    "CenterCropPad": _ints(1, 5),
    "Clip": lambda rng: ([_shape(rng, []), rng.choice((None, [])), rng.choice((None, []))], {}),
    "Col2Im": _windows,
    "Compress": lambda rng: ([[rng.randint(1, 4), 2], [rng.randint(1, 2)]], {"axis": 0}),
    "ConstantOfShape": lambda rng: ([_given([rng.randint(0, 3)] * 2)], {}),
    "Conv": _conv,
    "ConvInteger": _integers(_conv),
    "ConvTranspose": lambda rng: _conv(rng, True),
    "CumProd": lambda rng: ([[2, 3], _given(rng.randint(-2, 1))], {}),
    "CumSum": lambda rng: ([[2, 3], _given(rng.randint(-2, 1))], {}),
    "DFT": _dft,
    "DeformConv": _deform,
    "DepthToSpace": lambda rng: _blocks(rng, True),
    "DequantizeLinear": _quantise,
    "Det": lambda rng: ([[*[2] * rng.randint(0, 1), *[rng.randint(1, 4)] * 2]], {}),
    "Expand": _expand,
    "EyeLike": lambda rng: ([[rng.randint(1, 4), rng.randint(1, 4)]], {}),
    "GRU": functools.partial(_recurrent, 3),
    "Gather": _gather,
    "GatherElements": lambda rng: _indexed(rng, False),
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "GridSample": _grid,
    "GroupNormalization": lambda rng: (_norm(rng, 2)[0], {"num_groups": 1}),
    "Imputer": lambda rng: _features(rng, imputed_value_floats=[0.5]),
    "InstanceNormalization": lambda rng: _norm(rng, 2),
    "LRN": lambda rng: ([[1, rng.randint(1, 5), 2, 2]], {"size": rng.choice((1, 3))}),
    "LSTM": functools.partial(_recurrent, 4),
    "LayerNormalization": _layer_norm,
    "LinearAttention": _linear_attention,
    "LpNormalization": _features,
    "LpPool": _pool,
    "MatMul": _product,
    "MatMulInteger": _integers(_product),
    "MaxPool": _pool,
    "MaxRoiPool": _regions,
    "MaxUnpool": _unpool,
    "NegativeLogLikelihoodLoss": _loss,
    "NonMaxSuppression": _nms,
    "Normalizer": _features,
    "OneHot": _one_hot,
    "OneHotEncoder": lambda rng: _features(rng, cats_int64s=[-1, 0, 2]),
    "PRelu": lambda rng: ([[2, 3], rng.choice(([3], [1], [2, 1]))], {}),
    "Pad": _pad,
    "QLinearConv": _qconv,
    "QLinearMatMul": _qmatmul,
    "QuantizeLinear": _quantise,
    "RMSNormalization": lambda rng: (_layer_norm(rng)[0][:1] * 2, {"axis": 0}),
    "RNN": functools.partial(_recurrent, 1),
    "Range": _range,
    "Reshape": _reshape,
    "Resize": _resize,
    "ReverseSequence": _reverse,
    "RoiAlign": _roi,
    "RotaryEmbedding": _rotary,
    "STFT": _stft,
    "Scaler": lambda rng: _features(rng, offset=[0.5], scale=[2.0]),
    "Scatter": lambda rng: _indexed(rng, True),
    "ScatterElements": lambda rng: _indexed(rng, True),
    "ScatterND": lambda rng: _gather_nd(rng, True),
    "Slice": _slice,
    "SoftmaxCrossEntropyLoss": _loss,
    "SpaceToDepth": lambda rng: _blocks(rng, False),
    "Split": lambda rng: ([[rng.randint(1, 4), 3]], {"axis": 1, "num_outputs": 1}),
    "TensorScatter": _cache,
    "TfIdfVectorizer": _tfidf,
    "Tile": _ints(0, 3),
    "TopK": lambda rng: ([[rng.randint(2, 4), 3], _given([rng.randint(0, 2)])], {"sorted": 1}),
    "Trilu": lambda rng: ([[2, rng.randint(1, 4)], _given(rng.randint(-2, 2))], {}),
    "Unsqueeze": _unsqueeze,
    "Upsample": _upsample,
}


# -- making ----------------------------------------------------------------------------------------


@functools.cache
def schemas(opset: int) -> dict[tuple[str, str], Any]:
    """(domain, operator) -> its schema at an opset of the standard domain."""
    names = {s.name for s in onnx.defs.get_all_schemas() if s.domain == ""} - LEFT_OUT
    found = {}
    for domain, name in [
        *(("", n) for n in sorted(names)),
        *(("ai.onnx.ml", n) for n in ML.split()),
    ]:
        try:
            found[domain, name] = onnx.defs.get_schema(name, opset if not domain else 4, domain)
        except onnx.defs.SchemaError:
            continue
    return found


DTYPES = {
    f"tensor({text})": dtype
    for dtype, text in {
        "float32": "float", "float64": "double", "float16": "float16", "bfloat16": "bfloat16",
        "bool": "bool", "str": "string", "float8_e4m3fn": "float8e4m3fn",
        "float8_e5m2": "float8e5m2", "int4": "int4", "uint4": "uint4",
        **{f"{u}int{n}": f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)},
    }.items()
}  # fmt: skip
USUAL = ("float32", "float32", "float32", "int64", "float16", "float64", "int32", "bool", "uint8")


def numpy_dtype(dtype: str) -> Any:
    return object if dtype == "str" else np.dtype(getattr(ml_dtypes, dtype, dtype))


def array_of(value: dict[str, Any]) -> np.ndarray:
    """The values that a case says."""
    dtype = numpy_dtype(value["dtype"])
    if "values" in value:
        return np.asarray(np.asarray(value["values"]).astype(dtype))
    rng, shape = np.random.default_rng(value["seed"]), value["shape"]
    if value["dtype"] == "str":
        return np.asarray(np.array(["a", "b", "ab", "", "Ä b"], object)[rng.integers(0, 5, shape)])
    if value["dtype"] == "bool":
        return np.asarray(rng.integers(0, 2, shape) == 1)
    low, high = value.get("low", -2), value.get("high", 3)
    if np.dtype(dtype).kind in "iu" or value["dtype"] in ("int4", "uint4"):
        low = max(math.ceil(low), 0) if value["dtype"].startswith("u") else math.ceil(low)
        return np.asarray(rng.integers(low, int(high) + 1, shape).astype("int64").astype(dtype))
    return np.asarray((rng.integers(int(low * 4), int(high * 4) + 1, shape) / 4).astype(dtype))


def _fresh(rng: random.Random, wanted: Any, dtype: str) -> dict[str, Any]:
    if isinstance(wanted, dict) and "values" in wanted:
        return {**wanted, "dtype": wanted["dtype"] or dtype}
    if isinstance(wanted, list):
        wanted = {"shape": wanted}
    return {**wanted, "dtype": dtype, "seed": rng.getrandbits(30)}


def _shape(rng: random.Random, known: list[list[int]]) -> list[int]:
    if known and rng.random() < 0.6:
        shape = list(rng.choice(known))
        if rng.random() < 0.5:
            shape = [rng.choice((1, n)) for n in shape[rng.randint(0, len(shape)) :]]
        return shape
    size = lambda: rng.choice((1, 2, 2, 3, 3, 4, 0 if rng.random() < 0.2 else 5))  # noqa: E731
    return [size() for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)))]


def _attribute(rng: random.Random, schema: Any, attribute: Any, rank: int) -> Any:
    name, kind = attribute.name, attribute.type.name
    if name in ("to", "dtype", "output_dtype", "precision"):
        return rng.choice((1, 1, 2, 3, 6, 7, 9, 10, 11, 16))
    if name == "output_datatype":
        return rng.choice((1, 10, 11))
    if schema.name == "LRN" and name != "size":
        return None
    if kind == "INT":
        if name in ("axis", "batch_dims", "batch_axis", "time_axis"):
            return rng.randint(-rank, max(0, rank - 1))
        return rng.choice(NUMBERS.get(name, (0, 1)))
    if kind == "FLOAT":
        if name in POSITIVE:
            return rng.choice((0.5, 1.0, 2.0))
        return rng.choice((0.0, 0.5, 1.0, 2.0, -0.5, 0.01))
    if kind == "INTS":
        if name == "perm":
            return rng.sample(range(rank), rank) or None
        if name == "axes":
            return rng.sample(range(-rank, 0), rng.randint(1, rank)) if rank else None
        return [rng.choice((0, 1, 1, 2, 3)) for _ in range(rng.choice((1, 2, max(1, rank))))]
    if kind == "FLOATS":
        return [rng.choice((0.5, 1.0, 2.0)) for _ in range(rng.randint(1, 3))]
    if kind == "TENSOR":
        return {"dtype": rng.choice(USUAL), "values": [rng.choice((0, 1, 2))]}
    words = WORDS_OF.get((schema.name, name), WORDS.get(name))
    if kind == "STRING" and words:
        return rng.choice(words)
    return None


def _node(rng: random.Random, opset: int, key: tuple[str, str], known: dict[str, Any]) -> Any:
    """A node and the values that it brings along."""
    schema = schemas(opset)[key]
    shapes, attrs = RECIPES[key[1]](rng) if key[1] in RECIPES else (None, {})
    types: dict[str, str] = {}
    names, fresh, ranks = [], {}, []
    formals = list(schema.inputs)
    if formals and formals[-1].option.name == "Variadic":
        formals += formals[-1:] * rng.randint(0, 2)
    for place, formal in enumerate(formals):
        wanted = shapes[place] if shapes is not None and place < len(shapes) else None
        left_out = wanted is None and (shapes is not None or rng.random() < 0.5)
        if formal.option.name == "Optional" and left_out:
            names.append("")
            continue
        allowed = [DTYPES[t] for t in sorted(formal.types) if t in DTYPES]
        allowed = [d for d in allowed if d in TYPES.get(key[1], allowed)] or allowed
        if not allowed:
            return None
        usual = [d for d in USUAL if d in allowed]
        dtype = rng.choice(usual if usual and rng.random() < 0.8 else allowed)
        homogeneous = formal.option.name != "Variadic" or formal.is_homogeneous
        dtype = types.setdefault(formal.type_str, dtype) if homogeneous else dtype
        if key[1] == "Attention" and formal.type_str == "T2":
            dtype = types["T1"]
        if wanted is not None and "zero_point" in formal.name and "float" in dtype:
            wanted = {
                "shape": wanted["shape"] if isinstance(wanted, dict) else wanted,
                "low": 0,
                "high": 0,
            }
        same = [n for n, v in known.items() if v["dtype"] == dtype]
        if isinstance(wanted, list):
            same = [n for n in same if known[n]["shape"] == wanted]
        reused = not isinstance(wanted, dict) and key[1] not in OUTSIDE
        if same and reused and rng.random() < 0.7:
            names.append(rng.choice(same))
            ranks.append(len(known[names[-1]]["shape"]))
            continue
        name = f"v{rng.getrandbits(32):x}"
        if wanted is None:
            wanted = _shape(
                rng, [v["shape"] for v in [*known.values(), *fresh.values()] if "shape" in v]
            )
        fresh[name] = _fresh(rng, wanted, dtype)
        ranks.append(array_of(fresh[name]).ndim)
        names.append(name)
    while names and not names[-1]:
        names.pop()
    attrs = {n: v for n, v in attrs.items() if n in schema.attributes}
    for attribute in schema.attributes.values():
        odds = 1.0 if attribute.required else 0.3 if key[1] in RECIPES else 0.5
        if attribute.name not in attrs and rng.random() < odds:
            value = _attribute(rng, schema, attribute, ranks[0] if ranks else 2)
            if value is not None and attribute.name not in (
                "pads",
                "auto_pad",
                "strides",
                "kernel_shape",
                "output_shape",
            ):
                attrs[attribute.name] = value
    most = min(schema.max_output, len(schema.outputs) + rng.randint(0, 2))
    count = rng.randint(max(1, schema.min_output), max(1, most))
    outputs = [f"y{rng.getrandbits(32):x}" for _ in range(count)]
    return [key[0], key[1], names, outputs, attrs], fresh


def make(rng: random.Random) -> dict[str, Any]:
    opset = rng.choice((rng.randint(7, NEWEST), rng.randint(13, NEWEST), NEWEST))
    case: dict[str, Any] = {"opset": opset, "nodes": [], "values": {}}
    known: dict[str, Any] = {}
    values: dict[str, Any] = {}
    keys = list(schemas(opset))
    for _ in range(rng.choice((1, 1, 2, 3, 4, 6))):
        key = rng.choice(keys)
        for _ in range(8):
            candidate = _node(rng, opset, key, known)
            if candidate is None:
                break
            node, fresh = candidate
            arrays = {n: values[n] if n in values else array_of(fresh[n]) for n in node[2] if n}
            results = _answers(opset, node, arrays)
            if not results:
                continue
            case["nodes"].append(node)
            case["values"] |= fresh
            for name, array in [*arrays.items(), *zip(node[3], results)]:
                known[name] = {"dtype": _dtype(array), "shape": list(array.shape)}
                values[name] = array
            break
    fixed = [n for n, v in case["values"].items() if "values" in v or v["shape"] == []]
    case["weights"] = [n for n in case["values"] if rng.random() < (0.85 if n in fixed else 0.2)]
    case["inner"] = {n: v for n, v in known.items() if n not in case["values"]}
    case["every"] = rng.random() < 0.5
    case["wrap"] = rng.choice(("", "", "", "function", "if", "loop"))
    case["symbols"] = rng.choice(("", "", "each", "equal"))
    case["way"] = rng.choice(("interpreted",) * 7 + ("built",))
    return case


def _answers(opset: int, node: Any, arrays: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """What the node gives, by the first that accepts it; None if it is no node to have."""
    weights = {n: a for n, a in arrays.items() if a.dtype == np.int64 and a.ndim < 2}
    inputs = {n: a for n, a in arrays.items() if n not in weights}
    model = _model(opset, [_proto(node)], inputs, weights, node[3])
    inferred = onnx_peer.inferred(model.SerializeToString())
    if inferred is None:
        return None
    results, _ = by_reference(model, inputs)
    results = [np.asarray(r) for r in results or ()]
    fits = all(r.size <= LARGEST and _dtype(r) in DTYPES.values() for r in results)
    return results if fits and all(map(_as_inferred, results, inferred)) else None


def _as_inferred(array: np.ndarray, inferred: tuple[int, Any]) -> bool:
    """Whether a result of onnx.reference has the type and shape that onnx itself infers."""
    kind, dims = inferred
    if kind not in (0, _element(array)):
        return False
    if dims is None:
        return True
    return len(dims) == array.ndim and all(w in (None, n) for w, n in zip(dims, array.shape))


def _dtype(array: np.ndarray) -> str:
    return "str" if array.dtype.kind in "OUT" else array.dtype.name


# -- models ----------------------------------------------------------------------------------------


def _element(array: np.ndarray) -> int:
    if array.dtype.kind in "OUT":
        return int(onnx.TensorProto.STRING)
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def _proto(node: Any) -> Any:
    domain, name, inputs, outputs, attrs = node
    tensor = lambda v: onnx.numpy_helper.from_array(array_of(v))  # noqa: E731
    attrs = {n: tensor(v) if isinstance(v, dict) else v for n, v in attrs.items()}
    return helper.make_node(
        name, inputs, outputs, domain=domain, name=f"{name}_{outputs[0]}", **attrs
    )


def _model(
    opset: int,
    nodes: Any,
    inputs: Any,
    weights: Any,
    outputs: Any,
    dims: Any = None,
    functions: Any = (),
) -> Any:
    infos = [
        helper.make_tensor_value_info(n, _element(a), (dims or {}).get(n, a.shape))
        for n, a in inputs.items()
    ]
    tensors = [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()]
    results = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph(nodes, "g", infos, results, tensors)
    versions = [("", opset), ("ai.onnx.ml", 4), ("local", 1)]
    opsets = [helper.make_opsetid(*v) for v in versions]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def model_of(case: dict[str, Any], symbols: bool = True) -> tuple[Any, dict[str, np.ndarray]]:
    """The model of a case and its inputs. What no node makes is an input."""
    made, outside = set(), {}
    for _, _, inputs, outputs, _ in case["nodes"]:
        for name in inputs:
            if name and name not in made and name not in outside:
                value = case["values"].get(name) or {**case["inner"][name], "seed": 1}
                outside[name] = array_of(value)
        made.update(outputs)
    weights = {n: a for n, a in outside.items() if n in case["weights"]}
    inputs = {n: a for n, a in outside.items() if n not in weights}
    used = {n for node in case["nodes"] for n in node[2]}
    outputs = [o for node in case["nodes"] for o in node[3] if case["every"] or o not in used]
    nodes, functions = [_proto(n) for n in case["nodes"]], []
    if case["wrap"] == "function":
        body = [helper.make_opsetid(*v) for v in (("", case["opset"]), ("ai.onnx.ml", 4))]
        functions = [helper.make_function("local", "Body", list(outside), outputs, nodes, body)]
        nodes = [helper.make_node("Body", list(outside), outputs, domain="local")]
    elif case["wrap"]:
        inner = [f"{o}_inner" for o in outputs]
        copies = [helper.make_node("Identity", [o], [i]) for o, i in zip(outputs, inner)]
        infos = [
            helper.make_tensor_value_info(i, case_element(case, o), None)
            for o, i in zip(outputs, inner)
        ]
        if case["wrap"] == "if":
            inputs["go"] = np.array(True)
            body = helper.make_graph([*nodes, *copies], "then", [], infos)
            nodes = [helper.make_node("If", ["go"], outputs, then_branch=body, else_branch=body)]
        else:
            weights["trips"] = np.array(2)
            heads = [helper.make_tensor_value_info(n, k, []) for n, k in (("i", 7), ("c", 9))]
            copies.append(helper.make_node("Identity", ["c"], ["c_next"]))
            infos.insert(0, helper.make_tensor_value_info("c_next", 9, []))
            body = helper.make_graph([*nodes, *copies], "body", heads, infos)
            nodes = [helper.make_node("Loop", ["trips", ""], outputs, body=body)]
    dims: dict[str, Any] = {}
    if symbols and case["symbols"]:
        each = case["symbols"] == "each"
        dims = {
            n: [f"{n}_{k}" if each else f"n{d}" for k, d in enumerate(a.shape)]
            for n, a in inputs.items()
        }
    return _model(case["opset"], nodes, inputs, weights, outputs, dims, functions), inputs


def case_element(case: dict[str, Any], name: str) -> int:
    dtype = case["inner"][name]["dtype"]
    return 8 if dtype == "str" else int(helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)))


# -- answers ---------------------------------------------------------------------------------------


def by_reference(model: Any, inputs: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """The results of onnx's evaluator and None; or None and its error."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return ReferenceEvaluator(model).run(None, dict(inputs)), None
    except Exception as error:
        return None, error


def by_onnxruntime(model: Any, inputs: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """The results of onnxruntime and None; or None and its error, None where it was not asked."""
    if any(a.dtype.kind not in "fiubO" for a in inputs.values()):
        return None, None
    return onnx_peer.run(model.SerializeToString(), inputs)


def difference(got: Any, wanted: Any, near: bool = False) -> str:
    """What differs between two lists of results: place and how; or an empty string.

    near  whether integers may differ by one
    """
    for place, (g, w) in enumerate(zip(got, wanted, strict=True)):
        g, w = np.asarray(g), np.asarray(w)
        if g.dtype.kind in "OUT" and w.dtype.kind in "OUT":
            # onnx.reference has the number 0 where there is no text.
            texts = [x if isinstance(x, str) else "" for x in w.reshape(-1)]
            if g.shape != w.shape or g.reshape(-1).tolist() != texts:
                return f"{place}: texts {g.tolist()} {w.tolist()}"
        elif (g.dtype, g.shape) != (w.dtype, w.shape):
            return f"{place}: got {g.dtype} {g.shape}, wanted {w.dtype} {w.shape}"
        elif g.dtype == bool:
            if not np.array_equal(g, w):
                return f"{place}: got {g.tolist()}, wanted {w.tolist()}"
        elif g.dtype.kind in "iu" or "int" in g.dtype.name:
            # NaN and infinity as an integer are the least one there, zero or the greatest here.
            wide, defined = [a.astype("object") for a in (g, w)], np.ones(w.shape, bool)
            if w.dtype.kind == "i":
                defined = w != np.iinfo(w.dtype).min
            if np.any(np.abs(wide[0] - wide[1])[defined] > near):
                return f"{place}: got {g.tolist()}, wanted {w.tolist()}"
        else:
            close = 10 ** -{8: 6, 4: 3.5, 2: 1.5}.get(g.dtype.itemsize, 0.7)
            g, w = g.astype("f8"), w.astype("f8")
            scale = np.abs(w[np.isfinite(w)]).max(initial=1.0)
            if not np.allclose(g, w, close, close * scale, equal_nan=True):
                return f"{place}: got {g.tolist()}, wanted {w.tolist()}"
    return ""


def _ours(model: Any, inputs: dict[str, np.ndarray], **options: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return RelaxvmRep(model, **options).run(inputs)


def check(case: dict[str, Any]) -> bool:
    if not case["nodes"]:
        return False
    model, inputs = model_of(case)
    answers, refusals = {}, {}
    for name, run in (("onnx.reference", by_reference), ("onnxruntime", by_onnxruntime)):
        answers[name], refusals[name] = run(model, inputs)
    answers = {name: a for name, a in answers.items() if a is not None}
    since = [DIFFER.get(node[1], (1, ""))[0] or NEWEST + 1 for node in case["nodes"]]
    if case["opset"] < max(since):
        answers.pop("onnx.reference", None)
        if "onnxruntime" not in answers:
            return False
    if not answers:
        try:
            from_onnx(model)
        except InternalError:
            raise
        except RelaxvmError:
            pass
        return False
    near = any("Q" in node[1] or "Quantize" in node[1] for node in case["nodes"])
    makers = {o: node[1] for node in case["nodes"] for o in node[3]}
    outputs = [o.name for o in model.graph.output]
    if len(answers) == 2 and (text := difference(*answers.values(), near)):
        DISAGREEMENTS[makers[outputs[int(text.split(":")[0])]]] += 1
    built = [{"exec_mode": mode} for mode in ("bytecode", "compiled")]
    for options in [{"interpret": True}] if case["way"] == "interpreted" else built:
        try:
            got = _ours(model, inputs, **options)
        except RelaxvmError as error:
            # What onnxruntime finds wrong with a model, we may as well.
            theirs = refusals["onnxruntime"]
            if theirs is not None and theirs != "NotImplemented":
                return False
            if case["symbols"] and not isinstance(error, InternalError):
                ASKED_FOR[str(error).split("\n")[0]] += 1
                return check({**case, "symbols": ""})
            if any(text in str(error) for text in LACKS):
                return False
            raise
        texts = {name: difference(got, wanted, near) for name, wanted in answers.items()}
        if all(texts.values()):
            text = next(iter(texts.values()))
            maker = makers[outputs[int(text.split(":")[0])]]
            raise AssertionError(
                f"another answer of {maker}\n{options} {json.dumps(texts, indent=1)}"
            )
    return True
