"""The domain ai.onnx.ml: trees, linear models, support vectors, and what prepares their features.

What the standard leaves open (classes of which one has weights, one row of coefficients for two
labels) is as onnxruntime has it. Where inputs are integers, numbers are of float32.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from .....base import FrontendError
from .....runtime import array
from ....expr import Constant, Tuple, const
from ..registry import onnx as _onnx
from ..registry import op
from ..trees import Trees, base_numbers, laid_out, trees_by_keys, trees_by_numbers
from ..values import dims_of, dtype_of
from .sequence import fields_of

onnx = functools.partial(_onnx, domain="ai.onnx.ml")


def _floats(x: Any) -> Any:
    """`x` in the floating dtype that is computed with."""
    return x if dtype_of(x).is_float else op.astype(x, "float32")


def _row(values: Any, like: Any) -> Any:
    return const(np.array(values, str(dtype_of(like))), dtype_of(like))


def _rows(x: Any) -> Any:
    """`x` with two axes: a vector is one row."""
    return op.expand_dims(x, 0) if len(dims_of(x)) == 1 else x


def _width(x: Any) -> int | None:
    """How many features a row has, if that is known."""
    dims = dims_of(x)
    if not dims:
        raise FrontendError(f"wanted rows of features, got {x.struct_info}")
    return getattr(dims[-1], "value", None)


# -- features -------------------------------------------------------------------------------------


@onnx("ArrayFeatureExtractor")
def array_feature_extractor(node: Any, x: Any, places: Any) -> Any:
    return op.take(_rows(x), op.reshape(places, (-1,)), -1)


@onnx("Binarizer")
def binarizer(node: Any, x: Any, *, threshold: float) -> Any:
    wide = _floats(x)
    return op.astype(op.greater(wide, _row(threshold, wide)), dtype_of(x))


@onnx("FeatureVectorizer")
def feature_vectorizer(node: Any, *inputs: Any, inputdimensions: Any = ()) -> Any:
    wanted = inputdimensions or ()
    if len(wanted) != len(inputs):
        raise FrontendError(
            f"attribute inputdimensions: wanted {len(inputs)} numbers, got {list(wanted)}"
        )
    parts = []
    for x, width in zip(inputs, wanted):
        part = op.astype(op.expand_dims(x, 1) if len(dims_of(x)) == 1 else x, "float32")
        have = _width(part)
        if have is None:
            raise node.needs("number of features", *dims_of(part))
        if have > width:
            part = op.strided_slice(part, [1], [0], [width])
        elif have < width:
            part = op.nn.pad(part, [0, 0, 0, width - have])
        parts.append(part)
    return op.concat(Tuple(parts), 1)


@onnx("Imputer")
def imputer(
    node: Any,
    x: Any,
    *,
    imputed_value_floats: Any,
    imputed_value_int64s: Any,
    replaced_value_float: float,
    replaced_value_int64: int,
) -> Any:
    whole = dtype_of(x).is_int
    values = imputed_value_int64s if whole else imputed_value_floats
    replaced = replaced_value_int64 if whole else replaced_value_float
    width = _width(x)
    if not values or len(values) not in (1, width or len(values)):
        name = "imputed_value_int64s" if whole else "imputed_value_floats"
        raise FrontendError(f"attribute {name}: wanted 1 or {width} numbers, got {values}")
    lost = op.isnan(x) if replaced != replaced else op.equal(x, _row(replaced, x))
    return op.where(lost, _row(values, x), x)


@onnx("Normalizer")
def normalizer(node: Any, x: Any, *, norm: str) -> Any:
    wide = _floats(x)
    if norm == "MAX":
        size = op.max(wide, -1, True)
    elif norm == "L1":
        size = op.sum(op.abs(wide), -1, True)
    elif norm == "L2":
        size = op.sqrt(op.sum(op.multiply(wide, wide), -1, True))
    else:
        raise FrontendError(f"attribute norm: wanted MAX, L1 or L2, got {norm!r}")
    size = node.emit(size)
    by = op.where(op.equal(size, _row(0, size)), _row(1, size), size)
    return op.astype(op.divide(wide, by), "float32")


@onnx("Scaler")
def scaler(node: Any, x: Any, *, offset: Any, scale: Any) -> Any:
    wide = _floats(x)
    for name, values in (("offset", offset), ("scale", scale)):
        if not values or len(values) not in (1, _width(x) or len(values)):
            raise FrontendError(f"attribute {name}: wanted 1 or {_width(x)} numbers, got {values}")
    moved = op.subtract(wide, _row(offset, wide))
    return op.astype(op.multiply(moved, _row(scale, wide)), "float32")


# -- keys -----------------------------------------------------------------------------------------


@onnx("LabelEncoder")
def label_encoder_1(
    node: Any, x: Any, *, classes_strings: Any, default_int64: int, default_string: str
) -> Any:
    texts = np.array(classes_strings or (), object)
    numbers = np.arange(len(texts))
    if dtype_of(x).is_string:
        return _looked_up(node, x, texts, numbers, np.array([default_int64], "int64"))
    return _looked_up(node, x, numbers, texts, np.array([default_string], object))


@onnx("LabelEncoder", since=2)
def label_encoder(
    node: Any,
    x: Any,
    *,
    default_float: float,
    default_int64: int,
    default_string: str,
    default_tensor: Any = None,
    keys_floats: Any,
    keys_int64s: Any,
    keys_strings: Any,
    keys_tensor: Any = None,
    values_floats: Any,
    values_int64s: Any,
    values_strings: Any,
    values_tensor: Any = None,
) -> Any:
    keys = _one_of(
        keys_floats=keys_floats,
        keys_int64s=keys_int64s,
        keys_strings=keys_strings,
        keys_tensor=keys_tensor,
    )
    values = _one_of(
        values_floats=values_floats,
        values_int64s=values_int64s,
        values_strings=values_strings,
        values_tensor=values_tensor,
    )
    if default_tensor is not None:
        default = default_tensor.numpy()
    else:
        kind = {"f": default_float, "O": default_string}.get(values.dtype.kind, default_int64)
        default = np.array([kind], values.dtype)
    if default.dtype != values.dtype or default.size != 1:
        raise FrontendError(
            f"attribute default_tensor: wanted one element of {values.dtype}, got {default.size} "
            f"of {default.dtype}"
        )
    return _looked_up(node, x, keys, values, default)


def _one_of(**attributes: Any) -> np.ndarray:
    """The one attribute that is there, as an array."""
    there = {name: value for name, value in attributes.items() if value is not None}
    if len(there) != 1:
        raise FrontendError(f"wanted one of the attributes {', '.join(attributes)}, got {[*there]}")
    (value,) = there.values()
    constant = _values(value.numpy() if hasattr(value, "numpy") else value)
    return constant.data.numpy()


@onnx("CategoryMapper")
def category_mapper(
    node: Any,
    x: Any,
    *,
    cats_int64s: Any,
    cats_strings: Any,
    default_int64: int,
    default_string: str,
) -> Any:
    numbers = np.array(cats_int64s or (), "int64")
    texts = np.array(cats_strings or (), object)
    if dtype_of(x).is_string:
        return _looked_up(node, x, texts, numbers, np.array([default_int64], "int64"))
    return _looked_up(node, x, numbers, texts, np.array([default_string], object))


@onnx("OneHotEncoder")
def one_hot_encoder(node: Any, x: Any, *, cats_int64s: Any, cats_strings: Any, zeros: int) -> Any:
    keys = np.array(_labels(cats_int64s, cats_strings))
    # Numbers count as integers, cut off.
    x = x if dtype_of(x).is_string else op.astype(x, "int64")
    places = np.arange(len(keys))
    # What is in no category is behind all: zeros, or an index that stops the program.
    place = _looked_up(node, x, keys, places, np.array([len(keys)]))
    rows = np.eye(len(keys) + (1 if zeros else 0), len(keys), dtype="float32")
    return op.take(const(rows), place, 0)


@onnx("ZipMap")
def zip_map(node: Any, x: Any, *, classlabels_int64s: Any, classlabels_strings: Any) -> Any:
    labels = _labels(classlabels_int64s, classlabels_strings)
    if _width(x) not in (None, len(labels)):
        raise FrontendError(f"{len(labels)} labels do not fit rows of {_width(x)}")
    return Tuple((x, _values(labels)))


@onnx("DictVectorizer")
def dict_vectorizer(node: Any, x: Any, *, int64_vocabulary: Any, string_vocabulary: Any) -> Any:
    keys, values = fields_of(x)
    places = _values(_labels(int64_vocabulary, string_vocabulary))
    same = op.equal(op.expand_dims(places, 1), op.expand_dims(keys, 0))
    if dtype_of(values).is_string:
        # Behind the values an empty one, which those take that no key is equal to.
        values = op.concat(Tuple((values, _values(("",)))), 0)
        same = op.concat(Tuple((same, const(np.ones((len(places.data), 1), bool)))), 1)
        place = op.argmax(op.astype(same, "int32"), 1)
        return op.expand_dims(op.take(values, place, 0), 0)
    chosen = op.where(same, op.expand_dims(values, 0), const(0, dtype_of(values)))
    return op.expand_dims(op.sum(chosen, 1), 0)


@onnx("CastMap")
def cast_map(node: Any, x: Any, *, cast_to: str, map_form: str, max_map: int) -> Any:
    keys, values = fields_of(x)
    dtypes = {"TO_FLOAT": "float32", "TO_STRING": "string", "TO_INT64": "int64"}
    if cast_to not in dtypes:
        raise FrontendError(
            f"attribute cast_to: wanted one of {', '.join(dtypes)}, got {cast_to!r}"
        )
    dtype = dtypes[cast_to]
    if str(dtype_of(values)) != dtype:
        values = op.astype(values, dtype)
    if map_form == "DENSE":
        return op.expand_dims(op.take(values, op.argsort(keys, -1, False, "int64"), 0), 0)
    if map_form != "SPARSE" or max_map < 1:
        raise FrontendError(
            f"attributes map_form, max_map: wanted DENSE, or SPARSE with a size, got {map_form!r} "
            f"and {max_map}"
        )
    nothing = _values(("",) * max_map if dtype == "string" else np.zeros(max_map, dtype))
    return op.expand_dims(op.scatter_elements(nothing, keys, values, 0), 0)


# -- linear models --------------------------------------------------------------------------------


def _linear(x: Any, coefficients: Any, intercepts: Any, rows: int) -> Any:
    """What `rows` rows of coefficients make of each row of `x`."""
    x = _floats(_rows(x))
    width = _width(x)
    if not coefficients or len(coefficients) != rows * (width or len(coefficients) // rows):
        raise FrontendError(
            f"attribute coefficients: wanted {rows} times {width} numbers, got "
            f"{len(coefficients or ())}"
        )
    matrix = np.array(coefficients, str(dtype_of(x))).reshape(rows, -1).T
    scores = op.matmul(x, const(matrix, dtype_of(x)))
    if not intercepts:
        return scores
    if len(intercepts) != rows:
        raise FrontendError(f"attribute intercepts: wanted {rows} numbers, got {list(intercepts)}")
    return op.add(scores, _row(intercepts, x))


@onnx("LinearRegressor")
def linear_regressor(
    node: Any, x: Any, *, coefficients: Any, intercepts: Any, post_transform: str, targets: int
) -> Any:
    if targets < 1:
        raise FrontendError(f"attribute targets: wanted at least 1, got {targets}")
    scores = _linear(x, coefficients, intercepts, targets)
    return op.astype(_transformed(node, scores, post_transform), "float32")


@onnx("LinearClassifier", ignores="multi_class")
def linear_classifier(
    node: Any,
    x: Any,
    *,
    classlabels_ints: Any,
    classlabels_strings: Any,
    coefficients: Any,
    intercepts: Any,
    post_transform: str,
) -> Any:
    labels = _labels(classlabels_ints, classlabels_strings)
    width = _width(x)
    rows = len(intercepts or ()) or len(coefficients) // (width or len(coefficients) or 1)
    scores = node.emit(_linear(x, coefficients, intercepts, max(rows, 1)))
    if rows == 1 and len(labels) == 2:
        chosen = op.greater(op.squeeze(scores, -1), _row(0, scores))
        scores = _of_two(node, scores, post_transform, True)
    elif rows == len(labels):
        chosen = op.argmax(scores, -1)
        scores = _transformed(node, scores, post_transform)
    else:
        raise FrontendError(
            f"attribute coefficients: {rows} rows of numbers do not fit {len(labels)} labels"
        )
    return [_labelled(node, chosen, labels), op.astype(scores, "float32")]


# -- scores and labels ----------------------------------------------------------------------------


def _labels(numbers: Any, texts: Any) -> Any:
    """The labels of classes; either may be there."""
    labels = numbers or texts
    if not labels or (numbers and texts):
        raise FrontendError("wanted labels of classes, either integers or strings")
    return labels


def _values(values: Any) -> Any:
    """A constant of integers, of floats or of strings."""
    if not isinstance(values, np.ndarray):
        kind = type(values[0]) if len(values) else int
        dtype: Any = {str: object, int: "int64"}.get(kind, "float32")
        values = np.array(values, dtype)
    return Constant(array(values.reshape(-1)))


def _labelled(node: Any, chosen: Any, labels: Any) -> Any:
    """The labels of the classes that are `chosen`, by number."""
    if not node.wants(0):
        return None
    return op.take(_values(labels), op.astype(chosen, "int64"), 0)


def _looked_up(node: Any, x: Any, keys: Any, values: Any, default: Any) -> Any:
    """For each element of `x` the value that stands where `keys` has it, else `default`."""
    if len(keys) != len(values):
        raise FrontendError(f"{len(keys)} keys do not fit {len(values)} values")
    dtype = dtype_of(x)
    keys = np.asarray(keys, object if dtype.is_string else str(dtype))
    if dtype.is_float and node.opset >= 4:
        # No order finds NaN; onnxruntime does since this version.
        lost = np.flatnonzero(np.isnan(keys))
        if len(lost):
            rest = np.delete(np.arange(len(keys)), lost)
            known = _looked_up(node, x, keys[rest], values[rest], default)
            return op.where(op.isnan(x), _values(values[lost[:1]]), known)
    if not len(keys):
        return op.full_like(x, op.reshape(_values(default), ()), _values(values).data.dtype)
    # Of equal keys the first holds.
    keys, first = np.unique(keys, return_index=True)
    place = node.emit(op.searchsorted(_values(keys), x, False, "int64"))
    place = node.emit(op.minimum(place, const(len(keys) - 1, "int64")))
    known = op.equal(op.take(_values(keys), place, 0), x)
    return op.where(known, op.take(_values(values[first]), place, 0), _values(default))


def _transformed(node: Any, scores: Any, how: str | None) -> Any:
    """Scores after the attribute `post_transform`."""
    if how in (None, "NONE"):
        return scores
    if how == "LOGISTIC":
        return op.sigmoid(scores)
    if how == "SOFTMAX":
        return op.nn.softmax(scores, -1)
    if how == "PROBIT":
        return _probit(node, scores)
    if how != "SOFTMAX_ZERO":
        raise FrontendError(
            "attribute post_transform: wanted NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT, "
            f"got {how!r}"
        )
    scores = node.emit(scores)
    # A softmax in which what is 0 stays so.
    greatest = node.emit(op.max(scores, -1, True))
    counts = op.greater(op.abs(scores), _row(1e-7, scores))
    powers = op.exp(op.subtract(scores, greatest))
    powers = op.where(counts, powers, op.multiply(scores, op.exp(op.negative(greatest))))
    powers = node.emit(powers)
    total = node.emit(op.sum(powers, -1, True))
    none = op.equal(total, _row(0, total))
    shares = op.divide(powers, op.where(none, _row(1, total), total))
    return op.where(none, _row(0.5, total), shares)


def _probit(node: Any, p: Any) -> Any:
    """The quantile of the normal distribution, by Winitzki's approximation of erf's inverse."""
    a = 0.147
    x = node.emit(op.subtract(op.multiply(p, _row(2, p)), _row(1, p)))
    log = op.log(op.multiply(op.subtract(_row(1, p), x), op.add(_row(1, p), x)))
    log = node.emit(log)
    half = node.emit(op.add(op.multiply(log, _row(0.5, p)), _row(2 / (np.pi * a), p)))
    inner = op.subtract(op.multiply(half, half), op.multiply(log, _row(1 / a, p)))
    size = op.sqrt(op.subtract(op.sqrt(inner), half))
    size = op.where(op.equal(x, _row(0, p)), _row(0, p), size)
    return op.multiply(op.multiply(op.sign(x), size), _row(np.sqrt(2), p))


def _of_two(node: Any, score: Any, how: str | None, as_share: bool) -> Any:
    """Scores [n, 2] of two classes from that of the second, [n, 1].

    as_share  they add up to 1, and else to 0
    """
    score = node.emit(score)
    if how == "LOGISTIC":
        return op.sigmoid(op.concat(Tuple((op.negative(score), score)), -1))
    whole = _row(1 if as_share or how == "PROBIT" else 0, score)
    both = op.concat(Tuple((op.subtract(whole, score), score)), -1)
    return _probit(node, both) if how == "PROBIT" else both


# -- trees ----------------------------------------------------------------------------------------

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _precision(x: Any) -> str:
    """The dtype of thresholds and sums."""
    return "float64" if dtype_of(x) == "float64" else "float32"


def _walked(node: Any, x: Any, trees: Trees, targets: int, aggregate: str) -> Any:
    """What the trees say of each row, [n, targets]."""
    if targets < 1 or targets > 1 << 30:
        raise FrontendError(f"attribute n_targets: wanted at least 1, got {targets}")
    if aggregate not in _AGGREGATES:
        wanted = ", ".join(_AGGREGATES)
        raise FrontendError(f"attribute aggregate_function: wanted {wanted}, got {aggregate!r}")
    x = _rows(x)
    arrays = laid_out(trees, targets, aggregate)
    precision = _precision(x)
    x = x if dtype_of(x) == precision else op.astype(x, precision)
    most = int(arrays["features"].max()) + 1
    width = _width(x)
    if width is None:
        # Fewer features than the trees ask for stop the program.
        x = op.take(x, const(np.arange(most), "int64"), 1)
    elif width < most:
        raise FrontendError(
            f"attribute nodes_featureids: wanted numbers below {width}, the features that the "
            f"input has, got {most - 1}"
        )
    values = arrays["values"]
    rules = arrays.pop("rules")
    mode = {"MIN": "min", "MAX": "max"}.get(aggregate, "sum")
    result = op.tree_ensemble(
        x,
        **{name: const(array, str(array.dtype)) for name, array in arrays.items()},
        **({} if rules is None else {"rules": const(rules, "uint8")}),
        num_targets=targets,
        mode=mode,
    )
    if mode != "sum" and (values.shape[1] < targets or np.isinf(values).any()):
        # What no tree says anything of is 0.
        result = node.emit(result)
        result = op.where(op.isinf(result), _row(0, result), result)
    if aggregate == "AVERAGE":
        return op.divide(result, _row(len(trees.roots), result))
    return result


@onnx("TreeEnsemble", since=5, ignores="nodes_hitrates")
def tree_ensemble(
    node: Any,
    x: Any,
    *,
    aggregate_function: int,
    leaf_targetids: Any,
    leaf_weights: Any,
    membership_values: Any,
    n_targets: Any,
    nodes_falseleafs: Any,
    nodes_falsenodeids: Any,
    nodes_featureids: Any,
    nodes_missing_value_tracks_true: Any,
    nodes_modes: Any,
    nodes_splits: Any,
    nodes_trueleafs: Any,
    nodes_truenodeids: Any,
    post_transform: int,
    tree_roots: Any,
) -> Any:
    attributes = dict(locals())
    for name, known in (("aggregate_function", _AGGREGATES), ("post_transform", _TRANSFORMS)):
        if not 0 <= attributes[name] < len(known):
            raise FrontendError(
                f"attribute {name}: wanted 0 to {len(known) - 1}, got {attributes[name]}"
            )
    trees = trees_by_numbers(attributes, _precision(x))
    targets = int(trees.target.max(initial=0)) + 1 if n_targets is None else n_targets
    scores = _walked(node, x, trees, targets, _AGGREGATES[aggregate_function])
    scores = _transformed(node, scores, _TRANSFORMS[post_transform])
    return scores if dtype_of(x) == _precision(x) else op.astype(scores, dtype_of(x))


@onnx("TreeEnsembleRegressor", ignores="nodes_hitrates nodes_hitrates_as_tensor")
def tree_ensemble_regressor(
    node: Any,
    x: Any,
    *,
    aggregate_function: str,
    base_values: Any,
    base_values_as_tensor: Any = None,
    n_targets: Any,
    nodes_falsenodeids: Any,
    nodes_featureids: Any,
    nodes_missing_value_tracks_true: Any,
    nodes_modes: Any,
    nodes_nodeids: Any,
    nodes_treeids: Any,
    nodes_truenodeids: Any,
    nodes_values: Any,
    nodes_values_as_tensor: Any = None,
    post_transform: str,
    target_ids: Any,
    target_nodeids: Any,
    target_treeids: Any,
    target_weights: Any,
    target_weights_as_tensor: Any = None,
) -> Any:
    attributes = dict(locals())
    trees = trees_by_keys(attributes, "target", _precision(x))
    targets = int(trees.target.max(initial=0)) + 1 if n_targets is None else n_targets
    scores = _walked(node, x, trees, targets, aggregate_function)
    scores = _based(scores, base_numbers(attributes, targets))
    return op.astype(_transformed(node, scores, post_transform), "float32")


def _based(scores: Any, base: Any) -> Any:
    return scores if base is None else op.add(scores, _row(base, scores))


@onnx("TreeEnsembleClassifier", ignores="nodes_hitrates nodes_hitrates_as_tensor")
def tree_ensemble_classifier(
    node: Any,
    x: Any,
    *,
    base_values: Any,
    base_values_as_tensor: Any = None,
    class_ids: Any,
    class_nodeids: Any,
    class_treeids: Any,
    class_weights: Any,
    class_weights_as_tensor: Any = None,
    classlabels_int64s: Any,
    classlabels_strings: Any,
    nodes_falsenodeids: Any,
    nodes_featureids: Any,
    nodes_missing_value_tracks_true: Any,
    nodes_modes: Any,
    nodes_nodeids: Any,
    nodes_treeids: Any,
    nodes_truenodeids: Any,
    nodes_values: Any,
    nodes_values_as_tensor: Any = None,
    post_transform: str,
) -> Any:
    attributes = dict(locals())
    labels = _labels(classlabels_int64s, classlabels_strings)
    trees = trees_by_keys(attributes, "class", _precision(x))
    classes = len(labels)
    base = base_numbers(attributes, classes)
    of = np.unique(trees.target)
    if classes > 2 or len(of) != 1:
        scores = node.emit(_based(_walked(node, x, trees, classes, "SUM"), base))
        chosen = op.argmax(scores, -1)
        scores = _transformed(node, scores, post_transform)
        return [_labelled(node, chosen, labels), op.astype(scores, "float32")]
    # Weights for one class alone.
    as_share = bool((trees.weight >= 0).all())
    alone = trees._replace(target=np.zeros_like(trees.target))
    score = _walked(node, x, alone, 1, "SUM")
    if base is not None:
        score = op.add(score, _row(base[min(int(of[0]), len(base) - 1)], score))
    score = node.emit(score)
    least = 0.5 if as_share and classes == 2 else 0.0
    chosen = op.greater(op.squeeze(score, -1), _row(least, score))
    if classes == 1:
        scores = _probit(node, score) if post_transform == "PROBIT" else score
        labels = (0, 1) if classlabels_int64s else ("0", "1")
    elif of[0] == 0:
        scores = _of_two(node, score, post_transform, as_share)
    else:
        other = op.zeros_like(score)
        scores = _transformed(node, op.concat(Tuple((other, score)), -1), post_transform)
    return [_labelled(node, chosen, labels), op.astype(scores, "float32")]


# -- support vectors ------------------------------------------------------------------------------


def _kernels(x: Any, vectors: Any, kind: str, params: Any) -> Any:
    """What the kernel makes of each row of `x` and each of `vectors`."""
    gamma, shift, degree = params or (0.0, 0.0, 0.0)
    if kind == "RBF":
        apart = op.subtract(op.expand_dims(x, 1), _row(vectors, x))
        return op.exp(op.multiply(op.sum(op.multiply(apart, apart), -1), _row(-gamma, x)))
    products = op.matmul(x, _row(vectors.T, x))
    if kind == "LINEAR":
        return products
    moved = op.add(op.multiply(products, _row(gamma, x)), _row(shift, x))
    if kind == "POLY":
        return op.power(moved, _row(degree, x))
    if kind == "SIGMOID":
        return op.tanh(moved)
    raise FrontendError(f"attribute kernel_type: wanted LINEAR, POLY, RBF or SIGMOID, got {kind!r}")


def _matrix(name: str, values: Any, rows: int, columns: int | None) -> Any:
    """The attribute `name` as a matrix."""
    if rows < 1 or not values or len(values) % rows:
        raise FrontendError(f"attribute {name}: {len(values or ())} numbers are no {rows} rows")
    matrix = np.array(values).reshape(rows, -1)
    if columns is not None and matrix.shape[1] != columns:
        raise FrontendError(
            f"attribute {name}: wanted {rows} rows of {columns} numbers, got {len(values)}"
        )
    return matrix


def _biases(rho: Any, count: int) -> Any:
    if len(rho or ()) < count:
        raise FrontendError(f"attribute rho: wanted {count} numbers, got {len(rho or ())}")
    return rho[:count]


@onnx("SVMRegressor")
def svm_regressor(
    node: Any,
    x: Any,
    *,
    coefficients: Any,
    kernel_params: Any,
    kernel_type: str,
    n_supports: int,
    one_class: int,
    post_transform: str,
    rho: Any,
    support_vectors: Any,
) -> Any:
    x = _floats(_rows(x))
    if n_supports > 0:
        vectors = _matrix("support_vectors", support_vectors, n_supports, _width(x))
        x = _kernels(x, vectors, kernel_type, kernel_params)
    weights = _matrix("coefficients", coefficients, 1, _width(x))
    scores = op.add(op.matmul(x, _row(weights.T, x)), _row(_biases(rho, 1), x))
    if one_class:
        scores = op.where(op.greater(scores, _row(0, x)), _row(1, x), _row(-1, x))
    return op.astype(_transformed(node, scores, post_transform), "float32")


@onnx("SVMClassifier")
def svm_classifier(
    node: Any,
    x: Any,
    *,
    classlabels_ints: Any,
    classlabels_strings: Any,
    coefficients: Any,
    kernel_params: Any,
    kernel_type: str,
    post_transform: str,
    prob_a: Any,
    prob_b: Any,
    rho: Any,
    support_vectors: Any,
    vectors_per_class: Any,
) -> Any:
    labels = _labels(classlabels_ints, classlabels_strings)
    classes = len(labels)
    x = _floats(_rows(x))
    if not vectors_per_class:
        weights = _matrix("coefficients", coefficients, classes, _width(x))
        scores = op.add(op.matmul(x, _row(weights.T, x)), _row(_biases(rho, 1), x))
        scores = node.emit(scores)
        chosen = op.argmax(scores, -1)
        if classes == 1:
            chosen = op.greater(op.squeeze(scores, -1), _row(0, x))
            labels = (0, 1) if classlabels_ints else ("0", "1")
        else:
            scores = _transformed(node, scores, post_transform)
        return [_labelled(node, chosen, labels), op.astype(scores, "float32")]
    if len(vectors_per_class) != classes or classes < 2:
        raise FrontendError(
            f"attribute vectors_per_class: {len(vectors_per_class)} classes do not fit {classes} "
            "labels; wanted as many, and two at least"
        )
    ends = np.cumsum(vectors_per_class)
    count = int(ends[-1])
    vectors = _matrix("support_vectors", support_vectors, count, _width(x))
    weights = _matrix("coefficients", coefficients, classes - 1, count)
    pairs = list(itertools.combinations(range(classes), 2))
    # Between two classes, only their own support vectors count.
    against = np.zeros((count, len(pairs)))
    won, lost = np.zeros((2, len(pairs), classes))
    for k, (i, j) in enumerate(pairs):
        of_i, of_j = (slice(ends[c] - vectors_per_class[c], ends[c]) for c in (i, j))
        against[of_i, k], against[of_j, k] = weights[j - 1, of_i], weights[i, of_j]
        won[k, i] = lost[k, j] = 1
    kernels = _kernels(x, vectors, kernel_type, kernel_params)
    scores = op.add(op.matmul(kernels, _row(against, x)), _row(_biases(rho, len(pairs)), x))
    scores = node.emit(scores)
    wins = node.emit(op.astype(op.greater(scores, _row(0, x)), dtype_of(x)))
    votes = op.matmul(wins, _row(won - lost, x))
    votes = op.add(votes, _row(lost.sum(0), x))
    chosen = op.argmax(votes, -1)
    if prob_a:
        slopes, shifts = (_biases(p, len(pairs)) for p in (prob_a, prob_b))
        shares = op.add(op.multiply(scores, _row(slopes, x)), _row(shifts, x))
        shares = op.clip(op.sigmoid(op.negative(shares)), 1e-7, 1 - 1e-7)
        scores = op.pairwise_coupling(shares, classes)
    if prob_a or classes > 2:
        scores = _transformed(node, scores, post_transform)
    else:
        scores = _of_two(node, scores, post_transform, post_transform != "NONE")
    return [_labelled(node, chosen, labels), op.astype(scores, "float32")]
