"""Relay's spelling: its operators and constructors write the graph language."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, relay
from relaxvm.base import StructInfoError
from relaxvm.relax.interp import Evaluator
from relaxvm.relay.spelling import CALLS

RNG = np.random.default_rng(0)
A = RNG.standard_normal((2, 3, 4)).astype("float32")
B = RNG.standard_normal((2, 3, 4)).astype("float32")
IMAGE = RNG.standard_normal((1, 4, 6, 5)).astype("float32")


def value(build, *arrays):
    """What ``build(*variables)`` gives: typed at once, and found by InferType."""
    results = []
    for typed in (True, False):
        params = [
            relay.var(f"x{i}", shape=a.shape, dtype=str(a.dtype)) if typed else relay.var(f"x{i}")
            for i, a in enumerate(arrays)
        ]
        made = relay.Function(params, build(*params))
        mod = tvm.IRModule.from_expr(made)
        if not typed:
            known = [relax.TensorStructInfo(a.shape, str(a.dtype)) for a in arrays]
            named = {f"x{i}": info for i, info in enumerate(known)}
            mod = _declared(mod, named)
            mod = relay.transform.InferType()(mod)
            assert "relay." not in mod.script()
        results.append(Evaluator(mod)("main", *arrays))
    left, right = results
    for a, b in zip(_flat(left), _flat(right), strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b, equal_nan=True)
    return left


def _declared(mod, named):
    """`mod`, whose parameters are of these types."""
    declare = relax.transform.UpdateParamStructInfo(lambda p: named.get(p.name_hint))
    return declare(relax.transform.Normalize()(mod))


def _flat(x):
    return [leaf for each in x for leaf in _flat(each)] if isinstance(x, tuple) else [np.asarray(x)]


def padded(x):
    return np.pad(x, ((0, 0), (2, 2), (0, 0), (0, 0)))


CASES = {
    "add": (lambda x, y: relay.add(x, y), lambda x, y: x + y),
    "arithmetic": (lambda x, y: relay.exp(x) * y - x / y, lambda x, y: np.exp(x) * y - x / y),
    "sum, the other axes": (
        lambda x, y: relay.sum(x, axis=1, exclude=True),
        lambda x, y: x.sum((0, 2)),
    ),
    "variance of a sample": (
        lambda x, y: relay.variance(x, axis=[1, 2], unbiased=True),
        lambda x, y: x.var((1, 2), ddof=1),
    ),
    "std": (
        lambda x, y: relay.std(x, axis=-1, keepdims=True),
        lambda x, y: x.std(-1, keepdims=True),
    ),
    "all": (lambda x, y: relay.all(relay.greater(x, y), axis=1), lambda x, y: (x > y).all(1)),
    "any": (lambda x, y: relay.any(relay.greater(x, y), axis=1), lambda x, y: (x > y).any(1)),
    "last argmax": (
        lambda x, y: relay.argmax(relay.sign(x), axis=2, select_last_index=True),
        lambda x, y: 3 - np.sign(x)[..., ::-1].argmax(2),
    ),
    "reshape by codes": (
        lambda x, y: relay.reshape(x, (0, -4, 1, -1, -2)),
        lambda x, y: x.reshape(2, 1, 3, 4),
    ),
    "reshape, two joined": (lambda x, y: relay.reshape(x, (-3, 0)), lambda x, y: x.reshape(6, 4)),
    "expand_dims": (
        lambda x, y: relay.expand_dims(x, -1, num_newaxis=2),
        lambda x, y: x[..., None, None],
    ),
    "transpose": (lambda x, y: relay.transpose(x, [2, 0, 1]), lambda x, y: x.transpose(2, 0, 1)),
    "split": (
        lambda x, y: relay.split(x, (1, 3), axis=2)[-1],
        lambda x, y: np.split(x, (1, 3), 2)[-1],
    ),
    "concatenate": (
        lambda x, y: relay.concatenate([x, y], axis=1),
        lambda x, y: np.concatenate([x, y], 1),
    ),
    "stack": (lambda x, y: relay.stack((x, y), axis=1), lambda x, y: np.stack([x, y], 1)),
    "strided_slice by sizes": (
        lambda x, y: relay.strided_slice(x, [0, 1], [2, -1], slice_mode="size"),
        lambda x, y: x[0:2, 1:],
    ),
    "slice_like": (
        lambda x, y: relay.slice_like(x, relay.const(np.zeros((1, 2), "float32")), axes=(0, 1)),
        lambda x, y: x[:1, :2],
    ),
    "take": (
        lambda x, y: relay.take(x, relay.const([3, 0]), axis=2),
        lambda x, y: x[:, :, [3, 0]],
    ),
    "where": (lambda x, y: relay.where(relay.less(x, y), x, y), np.minimum),
    "cast": (
        lambda x, y: relay.cast(x * relay.const(9.0), "int8"),
        lambda x, y: (x * 9).astype("int8"),
    ),
    "full": (
        lambda x, y: relay.full(relay.const(3), (2, 2), "int32"),
        lambda x, y: np.full((2, 2), 3, "int32"),
    ),
    "dense": (
        lambda x, y: relay.nn.dense(x, relay.const(B[0]), units=3),
        lambda x, y: x @ B[0].T,
    ),
    "batch_matmul": (
        lambda x, y: relay.nn.batch_matmul(x, y),
        lambda x, y: x @ y.transpose(0, 2, 1),
    ),
    "bias_add": (
        lambda x, y: relay.nn.bias_add(x, relay.const(B[0, :, 0])),
        lambda x, y: x + B[0, :, :1],
    ),
    "batch_flatten": (lambda x, y: relay.nn.batch_flatten(x), lambda x, y: x.reshape(2, 12)),
    "dropout": (lambda x, y: relay.nn.dropout(x, 0.3), lambda x, y: x),
    "softmax": (
        lambda x, y: relay.nn.softmax(x),
        lambda x, y: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    ),
    "pad": (
        lambda x, y: relay.nn.pad(x, ((0, 0), (1, 0), (0, 2)), 5.0),
        lambda x, y: np.pad(x, ((0, 0), (1, 0), (0, 2)), constant_values=5),
    ),
}
IMAGES = {
    "lrn": (
        lambda x: relay.nn.lrn(x, size=5, alpha=0.5, beta=0.75, bias=2.0),
        lambda x: x / (2 + 0.1 * sum(padded(x * x)[:, k : k + 4] for k in range(5))) ** 0.75,
    ),
    "global_avg_pool2d": (
        lambda x: relay.nn.global_avg_pool2d(x),
        lambda x: x.mean((2, 3), keepdims=True),
    ),
    "max_pool2d": (
        lambda x: relay.nn.max_pool2d(x, pool_size=(2, 1), strides=(2, 1)),
        lambda x: x.reshape(1, 4, 3, 2, 5).max(3),
    ),
    "upsampling": (
        lambda x: relay.nn.upsampling(x, 2, 3),
        lambda x: x.repeat(2, 2).repeat(3, 3),
    ),
    "instance_norm": (
        lambda x: relay.nn.instance_norm(x, *[relay.const(np.ones(4, "float32"))] * 2),
        lambda x: (
            (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5) + 1
        ),
    ),
    "l2_normalize": (
        lambda x: relay.nn.l2_normalize(x, eps=1e-3, axis=[1]),
        lambda x: x / np.sqrt(np.maximum((x * x).sum(1, keepdims=True), 1e-3)),
    ),
    "conv2d of one tap": (
        lambda x: relay.nn.conv2d(
            x, relay.const(np.ones((2, 4, 1, 1), "float32")), channels=2, kernel_size=1
        ),
        lambda x: x.sum(1, keepdims=True).repeat(2, 1),
    ),
    "batch_norm": (
        lambda x: relay.nn.batch_norm(x, *[relay.const(np.ones(4, "float32"))] * 4)[0],
        lambda x: (x - 1) / np.sqrt(1 + 1e-5) + 1,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_mean_what_numpy_means(name):
    build, want = CASES[name]
    got, wanted = value(build, A, B), want(A, B)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", IMAGES)
def test_layers_mean_what_numpy_means(name):
    build, want = IMAGES[name]
    np.testing.assert_allclose(value(build, IMAGE), want(IMAGE), rtol=2e-5, atol=1e-6)


def test_every_operator_is_called_by_its_name_and_says_what_it_takes():
    assert len(CALLS) > 130
    for name, function in CALLS.items():
        place, _, last = name.rpartition(".")
        place = place.replace("qnn", "qnn.op")
        if name != "nn.dropout":  # one of its results is wanted
            assert getattr(getattr(relay, place) if place else relay, last) is function
        with pytest.raises(StructInfoError, match="it takes"):
            function(nonsense=1)


def test_results_of_a_known_number_are_unpacked():
    x = relay.var("x")
    norm, _, _ = relay.nn.batch_norm(x, *(relay.var(n) for n in "gbmv"))
    assert isinstance(norm, relay.TupleGetItem)
    parts = relay.split(x, 3)
    assert len(parts) == 3
    with pytest.raises(IndexError, match="a tuple of 3 fields has no field 3"):
        parts[3]


def test_values_that_are_used_twice_are_computed_once():
    y = x = relay.var("x", shape=(2,))
    for _ in range(60):
        y = relay.add(y, y)
    mod = relax.transform.Normalize()(tvm.IRModule.from_expr(relay.Function([x], y)))
    assert mod.script().count("R.add(") == 60


def test_a_scope_builder_writes_branches():
    c, x = relay.var("c", "bool"), relay.var("x", shape=(2,))
    sb = relay.ScopeBuilder()
    with sb.if_scope(c):
        one = sb.let("one", relay.add(x, relay.const(1.0)))
        sb.ret(relay.multiply(one, one))
    with sb.else_scope():
        sb.ret(x)
    mod = tvm.IRModule.from_expr(relay.Function([c, x], sb.get()))
    arrays = np.ones(2, "float32")
    assert Evaluator(mod)("main", np.array(True), arrays).tolist() == [4, 4]
    assert Evaluator(mod)("main", np.array(False), arrays).tolist() == [1, 1]
    for wrong, message in (
        (lambda: relay.ScopeBuilder().get(), "returns nothing"),
        (lambda: relay.ScopeBuilder().else_scope(), "right after if_scope"),
        (lambda: sb.ret(x), "twice"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()


def test_let_binds_a_value():
    x, v = relay.var("x", shape=(2,)), relay.var("v", shape=(2,))
    body = relay.Let(v, relay.exp(x), relay.add(v, v))
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    assert Evaluator(mod)("main", np.zeros(2, "float32")).tolist() == [2, 2]


def test_constants_have_relay_s_dtypes():
    kinds = [str(relay.const(v).struct_info.dtype) for v in (1, 1.5, True, [1, 2], [0.5], A)]
    assert kinds == ["int32", "float32", "bool", "int32", "float32", "float32"]
    assert str(relay.const(1, "int8").struct_info.dtype) == "int8"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: relay.nn.dense(x, relay.var("w", shape=(5, 4)), units=6), "wanted 6 of them"),
        (lambda x: relay.reshape(x, (0, 0, 0, 0)), "other axes than"),
        (lambda x: relay.reshape(x, (-9,)), "codes from -4 to 0"),
        (lambda x: relay.add(x, relay.var("w", shape=(9,))), "add"),
        (lambda x: relay.sum(x, axes=1), "it takes"),
        (
            lambda x: relay.nn.conv2d(x, relay.var("w", shape=(4, 3, 3, 3)), channels=8),
            "channels: wanted 8 along O of OIHW, the weight has 4",
        ),
    ],
)
def test_what_does_not_fit_is_an_error_that_says_so(build, message):
    with pytest.raises(StructInfoError, match=message):
        build(relay.var("x", shape=(2, 3, 4)))


def test_a_type_that_does_not_follow_is_named():
    x = relay.var("data")
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    with pytest.raises(StructInfoError, match=r"relay.nn.relu: .* argument data \(data\)"):
        relay.transform.InferType()(mod)
