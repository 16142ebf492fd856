"""Attention: against its meaning, against a plain computation of masks, and its mistakes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_reference import run_onnx
from op_table import FLOATS, Case, T, check, check_errors, check_gradients, thinned

from relaxvm import relax, tir
from relaxvm.base import VMError
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.runtime import VirtualMachine, cpu

attention, var_len = R.nn.attention, R.nn.attention_var_len


def hiding(rng, shape):
    """A bias that hides half of the keys, and all keys from the first query."""
    bias = np.where(rng.integers(0, 2, shape) == 1, 0.0, -np.inf)
    bias[..., 0, :] = -np.inf
    return bias


STARTS = dict(dtype="int32", data=[0, 2, 5])
PACKED = (T(1, 5, 2, 4), T(1, 5, 2, 4), T(1, 5, 2, 4))

CASES = [
    Case(attention, T(2, 3, 2, 4), T(2, 5, 2, 4), T(2, 5, 2, 3), count=20),
    Case(attention, T("n", "m", 2, 4), T("n", "k", 2, 4), T("n", "k", 2, 4), count=20),
    Case(attention, T(1, 3, 4, 4), T(1, 3, 2, 4), T(1, 3, 2, 4), scale=0.25, count=12),
    Case(attention, T(1, 3, 2, 4), T(1, 5, 2, 4), T(1, 5, 2, 4), causal_mask="TopLeft", count=20),
    Case(
        attention,
        T(1, "n", 2, 4),
        T(1, "k", 1, 4),
        T(1, "k", 1, 4),
        causal_mask="BottomRight",
        count=20,
    ),
    Case(
        attention,
        T(1, 5, 1, 4),
        T(1, "n", 1, 4),
        T(1, "n", 1, 4),
        causal_mask="BottomRight",
        count=12,
    ),
    Case(
        attention,
        T(1, 6, 1, 2),
        T(1, 6, 1, 2),
        T(1, 6, 1, 2),
        causal_mask="TopLeft",
        window_size=2,
        count=12,
    ),
    Case(attention, T(1, 2, 1, 2), T(1, "zero", 1, 2), T(1, "zero", 1, 2), slow=True),
    Case(attention, T(1, 0, 1, 2), T(1, 2, 1, 2), T(1, 2, 1, 2), slow=True),
    Case(attention, T(2, 2, 1, 0), T(2, 3, 1, 0), T(2, 3, 1, 4), count=3),
    Case(
        attention,
        T(1, 2, 1, 2, low=100, high=120),
        T(1, 3, 1, 2, low=100, high=120),
        T(1, 3, 1, 2),
        dtypes=("float32", "float64"),
        rtol=2e-2,
    ),
    Case(R.nn.attention_bias, T(2, 3, 2, 4), T(2, 5, 2, 4), T(2, 5, 2, 3), T(2, 2, 3, 5), count=20),
    Case(
        R.nn.attention_bias,
        T("n", 3, 2, 4),
        T("n", "k", 2, 4),
        T("n", "k", 2, 3),
        T(1, 1, 3, "k"),
        count=20,
    ),
    Case(
        R.nn.attention_bias,
        T(1, 3, 2, 4),
        T(1, 5, 2, 4),
        T(1, 5, 2, 3),
        T(3, 5, data=hiding),
        count=20,
    ),
    Case(
        R.nn.attention_bias,
        T(1, 3, 2, 4),
        T(1, 5, 2, 4),
        T(1, 5, 2, 3),
        T(5),
        causal_mask="BottomRight",
        count=20,
        slow=True,
    ),
    Case(attention, T(2, 3, "n", 4), T(2, 5, "m", 4), T(2, 5, "m", 3), sizes={"n": 6}, count=20),
    Case(attention, T(1, 3, 4, 4), T(1, 3, "m", 4), T(1, 3, "m", 4), count=20),
    Case(var_len, *PACKED, T(3, **STARTS), 4, count=20),
    Case(var_len, *PACKED, T(3, **STARTS), 3, T(3, **STARTS), 3, causal_mask="TopLeft", count=20),
    Case(
        var_len,
        T(1, "n", 4, 4),
        T(1, "k", 2, 4),
        T(1, "k", 2, 4),
        T(3, dtype="int64", data=[0, 1, 3]),
        2,
        T(3, dtype="int32", data=[0, 3, 5]),
        causal_mask="BottomRight",
        count=20,
    ),
    Case(
        var_len,
        T(1, 6, 1, 4),
        T(1, 6, 1, 4),
        T(1, 6, 1, 4),
        T("n", dtype="int32", data=[0, 0, 5]),
        5,
        T("n", dtype="int32", data=[0, 0, 5]),
        window_size=2,
        causal_mask="TopLeft",
        scale=1.0,
        count=20,
    ),
]


def test_attention_agrees_with_its_meaning():
    check(thinned(CASES, 2), dtypes=("float32",))
    check(CASES[:3], dtypes=("bfloat16",))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.slow
def test_attention_agrees_on_every_dtype(dtype):
    check(CASES, dtypes=(dtype,), slow=True)


def test_gradients_of_attention():
    check_gradients([c for c in CASES if c.op is not var_len and c.rtol is None])


def variable(name, *shape, dtype="float32"):
    return relax.Var(name, relax.TensorStructInfo(shape, dtype))


def values_of(call, seed=0):
    rng = np.random.default_rng(seed)
    return {
        v: rng.uniform(-1, 1, [int(d) for d in v.struct_info.dims]).astype(v.struct_info.dtype)
        for v in call.args
    }


@pytest.mark.parametrize("mask", ["TopLeft", "BottomRight"])
@pytest.mark.parametrize("window", [None, 2])
def test_causal_masks_are_a_bias_of_minus_infinity(mask, window):
    q, k, v = variable("q", 1, 3, 2, 4), variable("k", 1, 5, 2, 4), variable("v", 1, 5, 2, 4)
    call = attention(q, k, v, causal_mask=mask, window_size=window)
    env = values_of(call)
    bias = np.full((3, 5), -np.inf, "float32")
    for i in range(3):
        diagonal = i if mask == "TopLeft" else i + 2
        first = 0 if window is None else max(0, diagonal - window + 1)
        bias[i, first : diagonal + 1] = 0
    b = variable("b", 3, 5)
    want = evaluate(attention(q, k, v, b), {**env, b: bias})
    assert np.allclose(evaluate(call, env), want, atol=1e-6)


def test_grouped_heads_are_repeated_heads():
    q, k, v = variable("q", 1, 3, 4, 2), variable("k", 1, 3, 2, 2), variable("v", 1, 3, 2, 2)
    k4, v4 = variable("k4", 1, 3, 4, 2), variable("v4", 1, 3, 4, 2)
    env = values_of(attention(q, k, v))
    env[k4], env[v4] = np.repeat(env[k], 2, axis=2), np.repeat(env[v], 2, axis=2)
    got, want = evaluate(attention(q, k, v), env), evaluate(attention(q, k4, v4), env)
    assert np.allclose(got, want, atol=1e-6)


def test_packed_sequences_are_attended_one_by_one():
    q, k, v = (variable(n, 1, 7, 2, 4) for n in "qkv")
    starts = variable("starts", 3, dtype="int32")
    env = values_of(attention(q, k, v))
    env[starts] = np.array([0, 3, 7], "int32")
    got = evaluate(var_len(q, k, v, starts, 4, starts, 4), env)
    for part in (slice(0, 3), slice(3, 7)):
        small = [variable(n, 1, part.stop - part.start, 2, 4) for n in "qkv"]
        want = evaluate(attention(*small), {s: env[f][:, part] for s, f in zip(small, (q, k, v))})
        assert np.allclose(got[:, part], want, atol=1e-6)


def test_attention_agrees_with_onnxruntime():
    shapes = [(1, 3, 16), (1, 3, 8), (1, 3, 8)]
    rng = np.random.default_rng(3)
    arrays = [rng.uniform(-1, 1, s).astype("float32") for s in shapes]
    attrs = dict(is_causal=1, q_num_heads=4, kv_num_heads=2)
    want = run_onnx("Attention", arrays, opset=23, **attrs)
    params = [variable(n, 1, 3, h, 4) for n, h in zip("qkv", (4, 2, 2))]
    env = {p: a.reshape(1, 3, -1, 4) for p, a in zip(params, arrays)}
    got = evaluate(attention(*params, causal_mask="TopLeft"), env)
    assert np.allclose(got.reshape(1, 3, 16), want, atol=1e-5)


def test_key_lengths_that_differ_at_run_time_are_refused():
    t, u = tir.Var("t", "int64"), tir.Var("u", "int64")
    params = [variable("q", 1, 2, 1, 4), variable("k", 1, t, 1, 4), variable("v", 1, u, 1, 4)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(attention(*params))
        builder.emit_func_output(out)
    main = VirtualMachine(relax.build(builder.get(), target="llvm"), cpu())["main"]
    ones = np.ones
    q = ones((1, 2, 1, 4), "float32")
    assert np.allclose(
        main(q, ones((1, 3, 1, 4), "float32"), ones((1, 3, 1, 4), "float32")).numpy(), 1
    )
    with pytest.raises(VMError):
        main(q, ones((1, 3, 1, 4), "float32"), ones((1, 2, 1, 4), "float32"))


def test_heads_that_are_no_multiple_at_run_time_are_refused():
    h, g = tir.Var("h", "int64"), tir.Var("g", "int64")
    params = [variable("q", 1, 2, h, 4), variable("k", 1, 3, g, 4), variable("v", 1, 3, g, 4)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(attention(*params))
        builder.emit_func_output(out)
    main = VirtualMachine(relax.build(builder.get(), target="llvm"), cpu())["main"]

    def run(heads, shared):
        q, k = (np.ones((1, s, n, 4), "float32") for s, n in ((2, heads), (3, shared)))
        return main(q, k, k).numpy()

    assert run(6, 3).tolist() == np.ones((1, 2, 6, 4)).tolist()
    assert run(0, 3).shape == (1, 2, 0, 4)
    assert run(0, 0).shape == (1, 2, 0, 4)
    for heads, shared in ((5, 2), (2, 3), (2, 0)):
        with pytest.raises(VMError):
            run(heads, shared)


def test_mistakes_in_attention_are_explained():
    q, k = variable("q", 2, 3, 4, 8), variable("k", 2, 5, 4, 8)
    three, short = variable("three", 2, 5, 3, 8), variable("short", 2, 4, 4, 8)
    flat, whole = variable("flat", 2, 3, 8), variable("whole", 2, 3, 4, 8, dtype="int32")
    starts = variable("starts", 3, dtype="int32")
    check_errors(
        [
            (lambda: attention(flat, k, k), "nn.attention: query: wanted 4 dimensions, got 3"),
            (
                lambda: attention(whole, k, k),
                "nn.attention: query: wanted a floating dtype, got int32",
            ),
            (
                lambda: attention(q, three, three),
                "nn.attention: the heads of query are a multiple of those of key, got 4 and 3",
            ),
            (
                lambda: attention(q, k, short),
                "nn.attention: the sequence lengths of key and value differ: 5 and 4",
            ),
            (
                lambda: attention(q, variable("k", 2, 5, 4, 6), k),
                "nn.attention: the head dimensions of query and key differ: 8 and 6",
            ),
            (
                lambda: attention(q, variable("k", 3, 5, 4, 8), k),
                "nn.attention: the batch sizes of query and key differ: 2 and 3",
            ),
            (
                lambda: attention(q, k, k, causal_mask="Left"),
                "nn.attention: causal_mask: wanted None, 'TopLeft' or 'BottomRight', got 'Left'",
            ),
            (
                lambda: attention(q, k, k, window_size=3),
                "nn.attention: window_size: it goes with a causal_mask",
            ),
            (
                lambda: attention(q, k, k, causal_mask="TopLeft", window_size=0),
                "nn.attention: window_size: wanted at least 1, got 0",
            ),
            (
                lambda: attention(q, k, k, variable("b", 2, 4, 3, 4)),
                "nn.attention_bias: .*4 in bias and 5",
            ),
            (
                lambda: attention(q, k, k, variable("b", 1, 1, 1, 1, 1)),
                "nn.attention_bias: bias: wanted at most 4 dimensions, got 5",
            ),
            (
                lambda: var_len(q, k, k, starts, 5),
                "nn.attention_var_len: queries: wanted one batch that holds all sequences",
            ),
            (
                lambda: var_len(q, k, k, variable("s", 3), 5),
                "nn.attention_var_len: seqstart_q: wanted an integer dtype",
            ),
            (
                lambda: var_len(q, k, k, starts, 5, variable("s", 4, dtype="int32")),
                "the lengths of seqstart_q and seqstart_k differ: 3 and 4",
            ),
        ]
    )
