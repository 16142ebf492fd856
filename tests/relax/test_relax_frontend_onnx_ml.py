"""The domain ai.onnx.ml, beside onnxruntime and onnx's own reference."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the models are made with the package onnx")

from onnx import TensorProto as P  # noqa: E402
from onnx import helper  # noqa: E402

from relaxvm.base import FrontendError, RelaxvmError  # noqa: E402
from relaxvm.relax.frontend.onnx import from_onnx  # noqa: E402
from relaxvm.relax.frontend.onnx.backend import RelaxvmBackend  # noqa: E402

ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


def model(name, *inputs, outputs=(P.FLOAT,), version=3, dims=None, **attributes):
    """A model of one operator; the outputs have the given element types."""
    names = [f"x{k}" for k in range(len(inputs))]
    out = [f"y{k}" for k in range(len(outputs))]
    node = helper.make_node(name, names, out, domain=ML, **attributes)
    kinds = [
        P.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs
    ]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, k, dims or x.shape)
         for n, k, x in zip(names, kinds, inputs)],
        [helper.make_tensor_value_info(n, k, None) if k else onnx.ValueInfoProto(name=n)
         for n, k in zip(out, outputs)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def ours(proto, *inputs, **options):
    return list(RelaxvmBackend.prepare(proto, **options).run(list(inputs)))


def onnxruntime_gives(proto, *inputs):
    runtime = pytest.importorskip("onnxruntime", reason="the answers are onnxruntime's")
    session = runtime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {f"x{k}": x for k, x in enumerate(inputs)})


def reference_gives(proto, *inputs):
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(proto).run(None, {f"x{k}": x for k, x in enumerate(inputs)})


def same(results, wanted, **tolerance):
    assert len(results) == len(wanted)
    for result, want in zip(results, wanted):
        assert result.shape == want.shape and result.dtype == want.dtype
        np.testing.assert_allclose(result, want, **{"rtol": 1e-5, "atol": 1e-5, **tolerance})


# -- features, keys and labels --------------------------------------------------------------------

TEXTS = np.array([["b", "a"], ["", "ccc"], ["a", "d"]], object)
NUMBERS = np.array([[3, -1], [0, 7], [3, 2]], "int64")


def string_kind(array):
    return P.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
@pytest.mark.parametrize(
    ("name", "version", "inputs", "attributes"),
    [
        ("Scaler", 1, [np.float32(NUMBERS) / 2], {"offset": [1.5], "scale": [0.5]}),
        ("Scaler", 1, [NUMBERS], {"offset": [1.5, 2.0], "scale": [0.5, 3.0]}),
        *(("Normalizer", 1, [np.float32(NUMBERS)], {"norm": n}) for n in ("MAX", "L1", "L2")),
        ("Binarizer", 1, [np.float32(NUMBERS)], {"threshold": 2.0}),
        ("Imputer", 1, [np.float32([[1, np.nan], [np.nan, 3]])],
         {"imputed_value_floats": [5.0, 6.0], "replaced_value_float": float("nan")}),
        ("Imputer", 1, [NUMBERS], {"imputed_value_int64s": [5], "replaced_value_int64": 3}),
        ("FeatureVectorizer", 1, [np.float32(NUMBERS), np.float32(NUMBERS)],
         {"inputdimensions": [2, 2]}),
        ("ArrayFeatureExtractor", 1, [np.float32(NUMBERS), np.array([[1, 0, 1]])], {}),
        ("ArrayFeatureExtractor", 1, [TEXTS, np.array([1])], {}),
        ("LabelEncoder", 2, [TEXTS],
         {"keys_strings": ["a", "b"], "values_int64s": [4, 5], "default_int64": 9}),
        ("LabelEncoder", 2, [NUMBERS],
         {"keys_int64s": [3, 0, -1], "values_strings": ["x", "", "z"], "default_string": "?"}),
        ("LabelEncoder", 2, [NUMBERS],
         {"keys_int64s": [3, 0, -1], "values_floats": [1.0, 2.0, 3.0]}),
        ("LabelEncoder", 4, [np.float32([np.nan, 1.0, 2.0, -np.inf])],
         {"keys_floats": [1.0, float("nan"), float("-inf")], "values_int64s": [1, 2, 3]}),
        ("LabelEncoder", 2, [np.float32([np.nan, 1.0])],
         {"keys_floats": [1.0, float("nan")], "values_int64s": [1, 2]}),
        ("LabelEncoder", 2, [TEXTS],
         {"keys_strings": ["a", "b"], "values_strings": ["b", "a"]}),
        ("CategoryMapper", 1, [TEXTS],
         {"cats_int64s": [7, 8], "cats_strings": ["a", "ccc"], "default_int64": -5}),
        ("CategoryMapper", 1, [NUMBERS],
         {"cats_int64s": [7, 3], "cats_strings": ["a", "ccc"], "default_string": "none"}),
        ("OneHotEncoder", 1, [NUMBERS[:, 0]], {"cats_int64s": [3, 5, 0]}),
        ("OneHotEncoder", 1, [TEXTS], {"cats_strings": ["a", "b"], "zeros": 1}),
        ("OneHotEncoder", 1, [np.float32(NUMBERS)], {"cats_int64s": [3, 7, 0]}),
        ("LinearRegressor", 1, [np.float32(NUMBERS)],
         {"coefficients": [1.0, 2.0, 3.0, 4.0], "intercepts": [0.5, 1.5], "targets": 2}),
        ("LinearRegressor", 1, [np.float32(NUMBERS)], {"coefficients": [1.0, 2.0]}),
    ],
)  # fmt: skip
def test_features_and_labels_are_onnxruntimes(name, version, inputs, attributes, exec_mode):
    proto = model(name, *inputs, outputs=(P.UNDEFINED,), version=version, **attributes)
    wanted = onnxruntime_gives(proto, *inputs)
    results = ours(proto, *inputs, exec_mode=exec_mode)
    if wanted[0].dtype == object:
        assert results[0].tolist() == wanted[0].tolist()
    else:
        same(results, wanted)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("transform", TRANSFORMS[:3])
def test_linear_classifiers_are_onnxruntimes(classes, transform):
    rng = np.random.default_rng(classes)
    x = halves(rng, 20, missing=0.0) + np.float32(0.125)
    for rows in {classes, 1 if classes == 2 else classes}:
        proto = model("LinearClassifier", x, outputs=(P.STRING, P.FLOAT), version=1,
                      coefficients=rng.standard_normal(rows * 5).tolist(),
                      intercepts=rng.standard_normal(rows).tolist(), post_transform=transform,
                      classlabels_strings=["x", "yy", "z"][:classes])  # fmt: skip
        results, wanted = ours(proto, x), onnxruntime_gives(proto, x)
        assert results[0].tolist() == wanted[0].tolist()
        same(results[1:], wanted[1:])


def test_older_label_encoders_number_their_classes():
    proto = model("LabelEncoder", TEXTS, outputs=(P.INT64,), version=1,
                  classes_strings=["a", "b"], default_int64=-7)  # fmt: skip
    assert ours(proto, TEXTS)[0].tolist() == [[1, 0], [-7, -7], [0, -7]]
    proto = model("LabelEncoder", NUMBERS, outputs=(P.STRING,), version=1,
                  classes_strings=["a", "b", "c"], default_string="?")  # fmt: skip
    assert ours(proto, NUMBERS)[0].tolist() == [["?", "?"], ["a", "?"], ["?", "c"]]


def test_a_category_that_is_unknown_stops_the_program_unless_zeros_are_wanted():
    proto = model("OneHotEncoder", NUMBERS, version=1, cats_int64s=[3, 0], zeros=0)
    with pytest.raises(RelaxvmError, match="take"):
        ours(proto, NUMBERS)


def test_zip_map_gives_the_scores_and_the_labels_of_their_columns():
    x = np.float32([[0.25, 0.75], [1.0, 0.0]])
    proto = model("ZipMap", x, outputs=(P.UNDEFINED,), version=1, classlabels_strings=["no", "yes"])
    ((scores, labels),) = ours(proto, x)
    assert np.array_equal(scores, x) and labels.tolist() == ["no", "yes"]
    wanted = [{"no": 0.25, "yes": 0.75}, {"no": 1.0, "yes": 0.0}]
    assert [dict(zip(labels, row.tolist())) for row in scores] == wanted


def of_map(name, keys, values, **attributes):
    node = helper.make_node(name, ["x"], ["y"], domain=ML, **attributes)
    value = helper.make_tensor_type_proto(string_kind(values), None)
    kind = helper.make_map_type_proto(string_kind(keys), value)
    graph = helper.make_graph([node], "g", [helper.make_value_info("x", kind)],
                              [onnx.ValueInfoProto(name="y")])  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ML, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_maps_are_their_keys_and_values(exec_mode):
    keys, values = np.array(["b", "a", "zz"], object), np.float32([1, 2, 3])
    proto = of_map("DictVectorizer", keys, values, string_vocabulary=["a", "none", "b"])
    assert ours(proto, (keys, values), exec_mode=exec_mode)[0].tolist() == [[2.0, 0.0, 1.0]]
    numbers, texts = np.array([4, 1, 2]), np.array(["4.5", "1", "2"], object)
    proto = of_map("DictVectorizer", numbers, texts, int64_vocabulary=[1, 3, 4])
    assert ours(proto, (numbers, texts), exec_mode=exec_mode)[0].tolist() == [["1", "", "4.5"]]
    proto = of_map("CastMap", numbers, texts, cast_to="TO_FLOAT")
    assert ours(proto, (numbers, texts), exec_mode=exec_mode)[0].tolist() == [[1.0, 2.0, 4.5]]
    proto = of_map("CastMap", numbers, values, cast_to="TO_INT64", map_form="SPARSE", max_map=6)
    assert ours(proto, (numbers, values), exec_mode=exec_mode)[0].tolist() == [[0, 2, 3, 0, 1, 0]]


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "words"),
    [
        ("Scaler", [NUMBERS], {"offset": [1.0] * 3, "scale": [1.0]}, "offset: wanted 1 or 2"),
        ("Imputer", [NUMBERS], {"imputed_value_floats": [1.0]}, "imputed_value_int64s: wanted 1"),
        ("Normalizer", [np.float32(NUMBERS)], {"norm": "L3"}, "norm: wanted MAX, L1 or L2"),
        ("FeatureVectorizer", [NUMBERS], {"inputdimensions": [1, 2]}, "inputdimensions: wanted 1"),
        ("LabelEncoder", [NUMBERS], {"keys_int64s": [1], "values_floats": []}, "wanted one of"),
        ("LabelEncoder", [NUMBERS], {"keys_int64s": [1, 2], "values_floats": [1.0]}, "2 keys do"),
        ("LabelEncoder", [NUMBERS], {"keys_strings": ["a"], "values_floats": [1.0]}, "do not fit"),
        ("LinearRegressor", [np.float32(NUMBERS)], {"coefficients": [1.0]}, "coefficients: wanted"),
        ("LinearRegressor", [np.float32(NUMBERS)], {"targets": 0}, "targets: wanted at least 1"),
        ("LinearClassifier", [NUMBERS], {"coefficients": [1.0] * 4}, "labels of classes"),
        ("LinearClassifier", [NUMBERS], {"coefficients": [1.0] * 4, "classlabels_ints": [1, 2, 3]},
         "2 rows of numbers do not fit 3 labels"),
        ("SVMRegressor", [np.float32(NUMBERS)], {"n_supports": 3, "support_vectors": [1.0]},
         "support_vectors: 1 numbers are no 3 rows"),
        ("SVMRegressor", [np.float32(NUMBERS)], {"coefficients": [1.0, 2.0]}, "rho: wanted 1"),
        ("SVMClassifier", [NUMBERS], {"classlabels_ints": [0, 1], "vectors_per_class": [1]},
         "vectors_per_class: 1 classes do not fit 2"),
        ("ZipMap", [np.float32(NUMBERS)], {"classlabels_int64s": [1]}, "1 labels do not fit rows"),
    ],
)  # fmt: skip
def test_attributes_that_do_not_fit_are_refused(name, inputs, attributes, words):
    outputs = (P.INT64, P.FLOAT) if name.endswith("Classifier") else (P.FLOAT,)
    attributes = {k: v for k, v in attributes.items() if v != []}
    with pytest.raises(FrontendError, match=words):
        from_onnx(model(name, *inputs, outputs=outputs, version=2, **attributes))


# -- support vectors ------------------------------------------------------------------------------


def vectors(rng, kind, classes):
    counts = rng.integers(1, 4, classes).tolist()
    pairs = classes * (classes - 1) // 2
    return {
        "kernel_type": kind, "kernel_params": [0.5, 0.25, 3.0], "vectors_per_class": counts,
        "support_vectors": rng.standard_normal(sum(counts) * 5).tolist(),
        "coefficients": rng.standard_normal(sum(counts) * (classes - 1)).tolist(),
        "rho": rng.standard_normal(pairs).tolist(),
        "classlabels_ints": list(range(10, 10 + classes)),
    }  # fmt: skip


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("probable", [False, True])
@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors_decide_as_onnxruntimes_do(classes, probable, kind):
    rng = np.random.default_rng(classes)
    attributes = vectors(rng, kind, classes)
    if probable:
        pairs = len(attributes["rho"])
        attributes |= {f"prob_{p}": rng.standard_normal(pairs).tolist() for p in "ab"}
    x = halves(rng, 20, missing=0.0)
    for transform in TRANSFORMS[:-1]:
        proto = model("SVMClassifier", x, outputs=(P.INT64, P.FLOAT), version=1,
                      post_transform=transform, **attributes)  # fmt: skip
        same(ours(proto, x, interpret=True), onnxruntime_gives(proto, x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_regression_by_support_vectors_is_onnxruntimes(kind, one_class):
    rng = np.random.default_rng(3)
    x = halves(rng, 20, missing=0.0)
    proto = model("SVMRegressor", x, version=1, kernel_type=kind, kernel_params=[0.5, 0.25, 2.0],
                  support_vectors=rng.standard_normal(20).tolist(), n_supports=4, rho=[0.25],
                  coefficients=rng.standard_normal(4).tolist(), one_class=one_class)  # fmt: skip
    same(ours(proto, x), onnxruntime_gives(proto, x), rtol=1e-3, atol=1e-4)


def test_support_vectors_of_no_kernel_are_linear():
    rng = np.random.default_rng(3)
    x = halves(rng, 20, missing=0.0)
    weights = rng.standard_normal(15).tolist()
    proto = model("SVMRegressor", x, version=1, coefficients=weights[:5], rho=[0.25])
    same(ours(proto, x), reference_gives(proto, x))
    proto = model("SVMClassifier", x, outputs=(P.INT64, P.FLOAT), version=1, rho=[0.25] * 3,
                  coefficients=weights, classlabels_ints=[5, 6, 7],
                  post_transform="LOGISTIC")  # fmt: skip
    same(ours(proto, x), reference_gives(proto, x))


# -- trees ----------------------------------------------------------------------------------------


def grown(rng, trees=7, depth=4, features=5, modes=("BRANCH_LEQ",), targets=1, of_leaf=1):
    """Attributes of random trees, whose nodes stand in a random order."""
    nodes, weights = [], []
    for tree in rng.permutation(trees) * 3:
        own = [(0, 0)]
        count = 1
        for node, level in own:
            kind = rng.choice(modes) if level < depth and rng.random() < 0.9 else "LEAF"
            threshold = float(rng.integers(-4, 5)) / 2
            children = (0, 0)
            if kind != "LEAF":
                children = (count, count + 1)
                own += [(c, level + 1) for c in children]
                count += 2
            else:
                for target in rng.choice(targets, min(of_leaf, targets), replace=False):
                    weights.append((tree, node, int(target), float(rng.standard_normal())))
            nodes.append((tree, node, int(rng.integers(features)), threshold, kind, *children,
                          int(rng.integers(2))))  # fmt: skip
    names = "treeids nodeids featureids values modes truenodeids falsenodeids missing".split()
    names[-1] = "missing_value_tracks_true"
    attributes = {f"nodes_{n}": list(v) for n, v in zip(names, zip(*nodes))}
    return attributes, [list(v) for v in zip(*weights)]


def weighted(prefix, columns):
    names = ("treeids", "nodeids", "ids", "weights")
    return {f"{prefix}_{n}": v for n, v in zip(names, columns)}


def halves(rng, rows, features=5, missing=0.1):
    x = rng.integers(-5, 6, (rows, features)) / 2
    return np.where(rng.random(x.shape) < missing, np.nan, x).astype("float32")


ORDERS = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ"]


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("modes", [*((m,) for m in (*ORDERS, "BRANCH_NEQ")), ORDERS])
def test_trees_of_every_mode_are_onnxruntimes(modes, exec_mode):
    rng = np.random.default_rng(len(modes[0]))
    attributes, weights = grown(rng, modes=modes)
    x = halves(rng, 40)
    proto = model(
        "TreeEnsembleRegressor", x, n_targets=1, **attributes, **weighted("target", weights)
    )
    same(ours(proto, x, exec_mode=exec_mode), onnxruntime_gives(proto, x))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize(("targets", "of_leaf"), [(1, 1), (3, 1), (3, 3), (5, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_trees_say_what_onnxruntime_makes_of_them(aggregate, targets, of_leaf, dtype):
    rng = np.random.default_rng(targets)
    attributes, weights = grown(rng, targets=targets, of_leaf=of_leaf, modes=ORDERS[:4])
    x = halves(rng, 9, missing=0.0).astype(dtype)
    # Where no leaf says anything of a target, onnxruntime leaves the base value out.
    base = {"base_values": [0.5 * k for k in range(targets)]} if of_leaf == targets else {}
    proto = model("TreeEnsembleRegressor", x, n_targets=targets, aggregate_function=aggregate,
                  **attributes, **weighted("target", weights), **base)  # fmt: skip
    same(ours(proto, x, interpret=True), onnxruntime_gives(proto, x))


def test_double_thresholds_are_compared_in_double():
    rng = np.random.default_rng(0)
    attributes, weights = grown(rng)
    attributes["nodes_values"] = np.array(attributes["nodes_values"]) + 1e-12
    columns = weighted("target", weights)
    tensors = {}
    for group, name in ((attributes, "nodes_values"), (columns, "target_weights")):
        values = np.array(group.pop(name), "float64")
        tensors[f"{name}_as_tensor"] = onnx.numpy_helper.from_array(values)
    x = halves(rng, 30).astype("float64")
    proto = model("TreeEnsembleRegressor", x, n_targets=1, **attributes, **columns, **tensors)
    wanted = onnxruntime_gives(proto, x)
    same(ours(proto, x), wanted)
    assert not np.allclose(wanted[0], ours(proto, x + 1e-9)[0])


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_trees_of_integers_are_onnxruntimes(dtype):
    rng = np.random.default_rng(0)
    attributes, weights = grown(rng, targets=3, of_leaf=3, modes=ORDERS[:4])
    x = halves(rng, 30, missing=0.0).astype(dtype)
    proto = model("TreeEnsembleClassifier", x, outputs=(P.INT64, P.FLOAT), **attributes,
                  **weighted("class", weights), classlabels_int64s=[0, 1, 2])  # fmt: skip
    same(ours(proto, x), onnxruntime_gives(proto, x))


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("transform", TRANSFORMS[:-1])
def test_many_classes_are_onnxruntimes(classes, transform):
    rng = np.random.default_rng(classes)
    attributes, weights = grown(rng, targets=classes, of_leaf=classes)
    x = halves(rng, 25)
    proto = model("TreeEnsembleClassifier", x, outputs=(P.INT64, P.FLOAT), **attributes,
                  **weighted("class", weights), post_transform=transform,
                  classlabels_int64s=list(range(10, 10 + classes)))  # fmt: skip
    result = ours(proto, x, interpret=True)
    same(result[1:], onnxruntime_gives(proto, x)[1:])
    # Of two classes that both have weights, onnxruntime gives the numbers instead of the labels.
    by = reference_gives if classes == 2 else onnxruntime_gives
    assert np.array_equal(result[0], by(proto, x)[0])


@pytest.mark.parametrize("of", [0, 1])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("transform", TRANSFORMS[:-1])
@pytest.mark.parametrize("base", [None, [0.25]])
def test_weights_for_one_of_two_classes_are_read_as_onnxruntime_does(of, positive, transform, base):
    rng = np.random.default_rng(3)
    attributes, (trees, nodes, ids, weights) = grown(rng, trees=3)
    weights = np.abs(weights) / 3 if positive else weights
    columns = weighted("class", (trees, nodes, [of] * len(ids), weights))
    more = {"base_values": base} if base and not of else {}
    x = halves(rng, 25)
    proto = model("TreeEnsembleClassifier", x, outputs=(P.INT64, P.FLOAT), **attributes, **columns,
                  classlabels_int64s=[7, 5], post_transform=transform, **more)  # fmt: skip
    same(ours(proto, x, interpret=True), onnxruntime_gives(proto, x))


def test_one_label_is_a_score():
    rng = np.random.default_rng(4)
    attributes, weights = grown(rng, trees=3)
    x = halves(rng, 25)
    proto = model("TreeEnsembleClassifier", x, outputs=(P.INT64, P.FLOAT), **attributes,
                  **weighted("class", weights), classlabels_int64s=[1])  # fmt: skip
    same(ours(proto, x, interpret=True), onnxruntime_gives(proto, x))


def as_numbered(rng, dtype, modes=range(7), targets=2, trees=4, depth=4, low=-1):
    """Attributes of TreeEnsemble: the nodes of each tree stand before those of the next."""
    inner, leaves, roots, members = [], [], [], []
    for _ in range(trees):
        roots.append(len(inner))
        levels = [0]
        inner.append([0] * 4)
        for k, level in enumerate(levels, roots[-1]):
            mode = int(rng.choice(list(modes)))
            inner[k] = [mode, int(rng.integers(5)), float(rng.integers(-4, 5)) / 2,
                        int(rng.integers(2))]  # fmt: skip
            for _ in range(2):
                if level + 1 < depth and rng.random() < 0.7:
                    inner[k] += [len(inner), 0]
                    inner.append([0] * 4)
                    levels.append(level + 1)
                else:
                    inner[k] += [len(leaves), 1]
                    leaves.append((int(rng.integers(targets)), float(rng.standard_normal())))
    for node in inner:
        if node[0] == 6:
            members += [*(rng.choice(6, rng.integers(1, 5), replace=False) - low), np.nan]
    columns = list(zip(*inner))
    tensor = {
        "nodes_modes": np.array(columns[0], "uint8"),
        "nodes_splits": np.array(columns[2], dtype),
        "leaf_weights": np.array([w for _, w in leaves], dtype),
    }
    if members:
        tensor["membership_values"] = np.array(members, dtype)
    return {
        **{name: onnx.numpy_helper.from_array(array) for name, array in tensor.items()},
        "tree_roots": roots,
        "nodes_featureids": columns[1],
        "nodes_missing_value_tracks_true": columns[3],
        "nodes_truenodeids": columns[4],
        "nodes_trueleafs": columns[5],
        "nodes_falsenodeids": columns[6],
        "nodes_falseleafs": columns[7],
        "leaf_targetids": [t for t, _ in leaves],
        "n_targets": targets,
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(6))
def test_numbered_trees_are_onnxruntimes(dtype, seed):
    rng = np.random.default_rng(seed)
    attributes = as_numbered(rng, dtype)
    # Of members, onnxruntime knows the integers from 1 on.
    x = (halves(rng, 40) + 2).astype(dtype)
    kind = {"outputs": (P.DOUBLE if dtype == "float64" else P.FLOAT,)}
    proto = model("TreeEnsemble", x, version=5, **kind, **attributes)
    same(ours(proto, x, interpret=seed > 1), onnxruntime_gives(proto, x))


def test_numbered_trees_of_half_floats_are_summed_in_single():
    rng = np.random.default_rng(0)
    attributes = as_numbered(rng, "float16", modes=range(6))
    x = halves(rng, 40).astype("float16")
    proto = model("TreeEnsemble", x, version=5, outputs=(P.FLOAT16,), **attributes)
    same(ours(proto, x), reference_gives(proto, x), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("rows", [0, 1, 200])
def test_the_number_of_rows_and_of_features_may_be_symbols(rows):
    rng = np.random.default_rng(0)
    attributes, weights = grown(rng, trees=40)
    x = halves(rng, rows)
    proto = model("TreeEnsembleRegressor", x, n_targets=1, dims=("n", "k"), **attributes,
                  **weighted("target", weights))  # fmt: skip
    same(ours(proto, x), [reference_gives(proto, x)[0]] if rows else [np.zeros((0, 1), "float32")])


def test_fewer_features_than_the_trees_ask_for_stop_the_program():
    rng = np.random.default_rng(0)
    attributes, weights = grown(rng)
    x = halves(rng, 3)
    proto = model("TreeEnsembleRegressor", x, n_targets=1, dims=("n", "k"), **attributes,
                  **weighted("target", weights))  # fmt: skip
    with pytest.raises(RelaxvmError, match="take"):
        ours(proto, x[:, :2])
    proto = model("TreeEnsembleRegressor", x[:, :2], n_targets=1, **attributes,
                  **weighted("target", weights))  # fmt: skip
    with pytest.raises(FrontendError, match="nodes_featureids: wanted numbers below 2"):
        from_onnx(proto)


def chain(depth):
    """A tree in which each node's true child is a leaf."""
    modes = ["BRANCH_LEQ", "LEAF"] * depth + ["LEAF"]
    count = len(modes)
    return {
        "nodes_treeids": [0] * count, "nodes_nodeids": list(range(count)),
        "nodes_featureids": [0] * count, "nodes_modes": modes,
        "nodes_values": [float(k // 2) for k in range(count)],
        "nodes_truenodeids": [k + 1 if m != "LEAF" else 0 for k, m in enumerate(modes)],
        "nodes_falsenodeids": [k + 2 if m != "LEAF" else 0 for k, m in enumerate(modes)],
        "target_treeids": [0] * count, "target_nodeids": list(range(count)),
        "target_ids": [0] * count, "target_weights": [float(k) for k in range(count)],
    }  # fmt: skip


def test_a_tree_of_depth_ten_thousand_is_walked():
    x = np.array([[-1.0], [5000.0], [9999.5]], "float32")
    proto = model("TreeEnsembleRegressor", x, n_targets=1, **chain(10_000))
    assert ours(proto, x)[0][:, 0].tolist() == [1.0, 10_001.0, 20_000.0]


@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [
        ("nodes_truenodeids", [0, 0, 3, 0, 0], "node 0 of tree 0 begins a tree and is a child"),
        ("nodes_falsenodeids", [2, 0, 2, 0, 0], "node 2 of tree 0 is the child of 2 nodes"),
        ("nodes_truenodeids", [9, 0, 3, 0, 0], "nodes_truenodeids: node 0 of tree 0 leads to 9"),
        ("nodes_falsenodeids", [-1, 0, 3, 0, 0], "nodes_falsenodeids: node 0 of tree 0 leads to"),
        ("nodes_featureids", [0, 0, -1, 0, 0], "nodes_featureids: wanted numbers from 0"),
        ("nodes_featureids", [0, 0, 1 << 40, 0, 0], "nodes_featureids: wanted numbers from 0"),
        ("nodes_featureids", [0, 0, 1, 0, 0], "nodes_featureids: wanted numbers below 1"),
        ("nodes_modes", ["BRANCH_LEQ", "LEAF", "LOOP", "LEAF", "LEAF"], "nodes_modes: wanted one"),
        ("nodes_modes", ["LEAF"], "nodes_modes: wanted 5 elements"),
        ("nodes_values", [0.0], "nodes_values: wanted 5 elements, got"),
        ("nodes_nodeids", [0, 1, 2, 3, 3], "nodes_nodeids: node 3 of tree 0 is listed twice"),
        ("nodes_nodeids", [], "nodes_nodeids: wanted 5 elements"),
        ("nodes_treeids", [], "nodes_treeids: the ensemble has no trees"),
        ("nodes_missing_value_tracks_true", [1], "tracks_true: wanted 5 elements"),
        ("target_nodeids", [0, 1, 2, 3, 7], "target_nodeids: tree 0 has no node 7"),
        ("target_ids", [0, 0, 0, 0, 1], "wanted numbers from 0 to 0, got 1"),
        ("target_ids", [0, 0, 0, 0, -1], "wanted numbers from 0 to 0, got -1"),
        ("target_ids", [], "target_ids: wanted 5 elements"),
        ("n_targets", 0, "n_targets: wanted at least 1"),
        ("n_targets", -5, "n_targets: wanted at least 1"),
        ("n_targets", 1 << 40, "n_targets: wanted"),
        ("base_values", [1.0, 2.0], "base_values: wanted 1 or 1"),
        ("aggregate_function", "MEDIAN", "aggregate_function: wanted AVERAGE, SUM"),
        ("post_transform", "TANH", "post_transform: wanted NONE"),
    ],
)
def test_damaged_trees_are_refused_by_node_and_attribute(attribute, value, words):
    x = np.zeros((1, 1), "float32")
    attributes = {**chain(2), "n_targets": 1}
    proto = model("TreeEnsembleRegressor", x, **attributes)
    node = proto.graph.node[0]
    kept = [a for a in node.attribute if a.name != attribute]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(attribute, value)] if value != [] else kept)
    with pytest.raises(FrontendError, match=words) as error:
        from_onnx(proto)
    assert any("TreeEnsembleRegressor" in note for note in error.value.__notes__)


@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [
        ("tree_roots", [99], "tree_roots: wanted numbers from 0"),
        ("nodes_truenodeids", None, "nodes_truenodeids: wanted numbers from 0"),
        ("nodes_falseleafs", [1], "nodes_falseleafs: wanted"),
        ("leaf_targetids", [0], "leaf_targetids: wanted"),
        ("membership_values", np.array([1.0, np.nan], "float32"), "membership_values: wanted"),
        ("membership_values", np.array([1.0], "float32"), "membership_values: wanted"),
        ("nodes_modes", np.array([9] * 99, "uint8"), "nodes_modes: wanted"),
        ("aggregate_function", 7, "aggregate_function: wanted 0 to 3"),
        ("post_transform", -1, "post_transform: wanted 0 to 4"),
    ],
)
def test_damaged_numbered_trees_are_refused(attribute, value, words):
    rng = np.random.default_rng(1)
    attributes = as_numbered(rng, "float32", modes=(0, 6))
    if value is None:
        value = [k + 1000 for k in attributes[attribute]]
    is_array = isinstance(value, np.ndarray)
    attributes[attribute] = onnx.numpy_helper.from_array(value) if is_array else value
    x = np.zeros((1, 5), "float32")
    with pytest.raises(FrontendError, match=words):
        from_onnx(model("TreeEnsemble", x, version=5, **attributes))


# -- trained trees --------------------------------------------------------------------------------


def listed(trees, weight):
    """Attributes of the trees of scikit-learn; `weight` gives the weights of a leaf."""
    nodes, weights = [], []
    for number, each in enumerate(trees):
        tree = each.tree_
        for node in range(tree.node_count):
            leaf = tree.children_left[node] < 0
            links = (0, 0) if leaf else (tree.children_left[node], tree.children_right[node])
            nodes.append((number, node, max(tree.feature[node], 0), tree.threshold[node],
                          "LEAF" if leaf else "BRANCH_LEQ", *map(int, links)))  # fmt: skip
            if leaf:
                weights += [(number, node, k, w) for k, w in enumerate(weight(tree.value[node]))]
    names = "treeids nodeids featureids values modes truenodeids falsenodeids".split()
    attributes = {f"nodes_{n}": list(v) for n, v in zip(names, zip(*nodes))}
    return attributes, [list(v) for v in zip(*weights)]


def test_trained_forests_predict_as_scikit_learn_does():
    ensemble = pytest.importorskip("sklearn.ensemble", reason="scikit-learn trains the trees")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 6)).astype("float32")
    label = (x[:, 0] > 0).astype(int) + (x[:, 1] * x[:, 2] > 0.3)
    forest = ensemble.RandomForestClassifier(20, random_state=0).fit(x, label)
    attributes, weights = listed(forest.estimators_, lambda v: v[0] / v[0].sum() / 20)
    proto = model("TreeEnsembleClassifier", x, outputs=(P.INT64, P.FLOAT), **attributes,
                  **weighted("class", weights), classlabels_int64s=[0, 1, 2])  # fmt: skip
    labels, shares = ours(proto, x)
    np.testing.assert_allclose(shares, forest.predict_proba(x), atol=1e-5)
    assert np.array_equal(labels, forest.predict(x))

    target = x[:, 0] ** 2 + x[:, 1]
    boosted = ensemble.GradientBoostingRegressor(random_state=0).fit(x, target)
    attributes, weights = listed(boosted.estimators_[:, 0], lambda v: 0.1 * v[0])
    proto = model("TreeEnsembleRegressor", x, n_targets=1, **attributes,
                  **weighted("target", weights), base_values=[float(target.mean())])  # fmt: skip
    np.testing.assert_allclose(ours(proto, x)[0][:, 0], boosted.predict(x), atol=1e-4)
