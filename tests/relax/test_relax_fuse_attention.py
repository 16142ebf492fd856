"""FuseAttention: attention written in parts becomes one kernel, whatever stands between its parts;
what others read stays.
"""

import random

import numpy as np
import pytest
from pass_cases import means_the_same, model
from ten_graphs import check_meaning, small

import relaxvm as tvm
from relaxvm import relax, tir
from relaxvm.ir import PassContext
from relaxvm.pipeline import GRAPH_TO_LEGAL, LEGAL_TO_FUSED
from relaxvm.relax import op
from relaxvm.relax.interp import Evaluator
from relaxvm.relax.op.meaning import from_storage
from relaxvm.relax.transform import FuseAttention, fuse_attention
from relaxvm.runtime import VirtualMachine

fuse = FuseAttention()
SPLIT, TURNED = [0, 2, 1, 3], [0, 2, 3, 1]


def calls(mod):
    """The names of the operators in main."""
    values = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    return [v.op.name.removeprefix("relax.") for v in values if isinstance(v, relax.Call)]


def fused(mod):
    """The module with its attention in one kernel; the one given stays as it was."""
    before = str(mod)
    new = fuse(mod)
    assert str(mod) == before
    left = calls(new)
    assert left.count("call_tir") == 1 and "matmul" not in left and "nn.softmax" not in left
    assert fuse(new) is new
    return new


def parts(emit, q, k, v, between=None, after=None):
    """softmax(between(q k)) v, of q [..., s, d], k [..., d, t], v [..., t, e]."""
    scores = emit(op.matmul(q, k))
    if between is not None:
        scores = emit(between(emit, scores))
    weights = emit(op.nn.softmax(scores, axis=-1))
    return op.matmul(weights if after is None else emit(after(emit, weights)), v)


def both(build, *shapes, dtype="float64", **sizes):
    """The pass leaves the meaning as it is, but for rounding."""
    mod = model(build, *shapes, dtype=dtype)
    new = fused(mod)
    means_the_same(mod, new, **sizes)
    return new


# -- shapes ----------------------------------------------------------------------------------------

HEADS = [(2, 9, 24), (2, 11, 24), (2, 11, 24), (2, 1, 1, 11)]


def encoder(emit, x, y, z, mask):
    """As in models from files: heads split and joined by reshapes and transposes."""
    q, k, v = (
        emit(op.permute_dims(emit(op.reshape(a, (2, -1, 3, 8))), axes))
        for a, axes in zip((x, y, z), (SPLIT, TURNED, SPLIT))
    )
    mixed = emit(
        parts(emit, q, k, v, lambda emit, s: op.add(emit(op.divide(s, np.sqrt(8.0))), mask))
    )
    return op.reshape(emit(op.permute_dims(mixed, SPLIT)), (2, 9, 24))


def test_heads_are_read_where_they_stand():
    new = both(encoder, *HEADS)
    assert calls(new) == ["reshape"] * 3 + ["call_tir", "reshape"]


@pytest.mark.parametrize("s", [0, 1, 2, 30])
@pytest.mark.parametrize("t", [0, 1, 17, 70])
def test_lengths(s, t):
    both(parts, (1, 2, s, 4), (1, 2, 4, t), (1, 2, t, 5))


@pytest.mark.parametrize(("n", "m"), [(1, 1), (0, 3), (3, 0), (40, 7), (5, 65)])
def test_lengths_that_are_known_late(n, m):
    s, t = (tir.Var(name, "int64") for name in "nm")
    both(parts, (2, 2, s, 4), (2, 2, 4, t), (2, 2, t, 4), n=n, m=m)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 3, 2)])
def test_any_number_of_axes_up_to_five(lead):
    both(parts, (*lead, 5, 4), (*lead, 4, 6), (*lead, 6, 4))


@pytest.mark.parametrize("queries", [1, 9])
def test_keys_in_the_order_of_the_product_and_transposed(queries):
    shapes = (1, 2, queries, 4), (1, 2, 30, 4), (1, 2, 30, 4)
    both(lambda emit, q, k, v: parts(emit, q, emit(op.permute_dims(k, [0, 1, 3, 2])), v), *shapes)


def repeated(emit, x):
    return emit(op.repeat(x, 3, axis=1))


def expanded(emit, x):
    wide = emit(op.broadcast_to(emit(op.expand_dims(x, 2)), (1, 2, 3, 20, 4)))
    return emit(op.reshape(wide, (1, 6, 20, 4)))


@pytest.mark.parametrize("grouped", [repeated, expanded])
@pytest.mark.parametrize("queries", [1, 12])
def test_heads_that_share_keys_are_not_copied(grouped, queries):
    def build(emit, q, k, v):
        k = emit(op.permute_dims(grouped(emit, k), [0, 1, 3, 2]))
        return parts(emit, q, k, grouped(emit, v))

    new = both(build, (1, 6, queries, 4), (1, 2, 20, 4), (1, 2, 20, 4))
    assert calls(new) == ["call_tir"]


def test_one_head_of_keys_for_all():
    both(parts, (2, 5, 7, 4), (2, 1, 4, 9), (2, 1, 9, 4))
    both(parts, (2, 2, 3, 7, 4), (2, 2, 1, 4, 9), (2, 2, 1, 9, 4))


# -- what stands between ---------------------------------------------------------------------------

SHAPES = (2, 3, 10, 4), (2, 3, 4, 12), (2, 3, 12, 4)


@pytest.mark.parametrize(
    "between",
    [
        lambda emit, s: op.multiply(s, 0.25),
        lambda emit, s: op.multiply(0.25, s),
        lambda emit, s: op.divide(1.0, s),
        lambda emit, s: op.divide(s, 0.0),
        lambda emit, s: op.multiply(s, s),
        lambda emit, s: op.multiply(emit(op.tanh(emit(op.divide(s, 5.0)))), 5.0),
        lambda emit, s: op.maximum(emit(op.negative(s)), -1.0),
        lambda emit, s: op.add(s, relax.const(np.eye(10, 12), "float64")),
        lambda emit, s: op.subtract(s, relax.const(np.ones((3, 1, 1)), "float64")),
    ],
)
def test_what_is_done_element_by_element(between):
    both(lambda emit, *x: parts(emit, *x, between), *SHAPES)


@pytest.mark.parametrize("low", [-np.inf, -1e9, -3.0])
@pytest.mark.parametrize("mask", [(10, 12), (2, 1, 1, 12), (2, 3, 10, 12), (10, 1)])
def test_masks_that_are_known_late(mask, low):
    def build(emit, q, k, v, m):
        seen = emit(op.greater(m, 0.0))
        return parts(emit, q, k, v, lambda emit, s: op.where(seen, s, relax.const(low, "float64")))

    both(build, *SHAPES, mask)
    mod = model(build, *SHAPES, mask)
    arrays = [np.random.default_rng(1).standard_normal(s) for s in (*SHAPES, mask)]
    arrays[3][...] = -1.0
    means_the_same(mod, fused(mod), *arrays)


def test_a_row_without_keys_is_what_it_was():
    mask = np.zeros((10, 12))
    mask[3] = -np.inf
    mod = model(
        lambda emit, *x: parts(emit, *x, lambda emit, s: op.add(s, relax.const(mask, "float64"))),
        *SHAPES,
    )
    new = fused(mod)
    means_the_same(mod, new)
    got = Evaluator(new)("main", *(np.ones(s) for s in SHAPES))
    assert np.isnan(got[:, :, 3]).all() and not np.isnan(got[:, :, :3]).any()


def test_numbers_that_are_not_finite():
    for number in (np.nan, np.inf, -np.inf):
        for which in range(3):
            arrays = [np.random.default_rng(1).standard_normal(s) for s in SHAPES]
            arrays[which][0, 1, 2, 3] = number
            mod = model(parts, *SHAPES)
            means_the_same(mod, fused(mod), *arrays)


def upper(emit, s, t, low):
    return op.triu(op.full((s, t), relax.const(low, "float64")), 1)


def lower_choice(emit, s, t, low):
    seen = emit(op.tril(op.ones((s, t), "bool")))
    return op.where(seen, relax.const(0.0, "float64"), relax.const(low, "float64"))


def compared(emit, s, t, low):
    i, j = (emit(op.arange(0, n, 1, "int64")) for n in (s, t))
    later = emit(op.greater(emit(op.expand_dims(j, 0)), emit(op.expand_dims(i, 1))))
    return op.where(later, relax.const(low, "float64"), relax.const(0.0, "float64"))


@pytest.mark.parametrize("low", [-np.inf, -1e9])
@pytest.mark.parametrize("make", [upper, lower_choice, compared])
@pytest.mark.parametrize("sizes", [(9, 20), (20, 9), ("n", "n")])
def test_masks_over_positions(make, low, sizes):
    n = tir.Var("n", "int64")
    s, t = (n if x == "n" else x for x in sizes)

    def build(emit, q, k, v):
        mask = emit(make(emit, s, t, low))
        return parts(emit, q, k, v, lambda emit, x: op.add(x, mask))

    for number in (1, 26) if s is n else (1,):
        new = both(build, (1, 2, s, 4), (1, 2, 4, t), (1, 2, t, 4), n=number)
    assert "triu" not in calls(new) and "where" not in calls(new)


def test_a_mask_that_does_not_change_with_positions_alone_is_read():
    table = np.where(np.random.default_rng(0).random((10, 12)) < 0.5, 0.0, -np.inf)
    table[:, 3] = 0.0
    mask = relax.const(table, "float64")
    new = both(lambda emit, *x: parts(emit, *x, lambda emit, s: op.add(s, mask)), *SHAPES)
    (call,) = (b.value for block in new["main"].body.blocks for b in block.bindings)
    assert len(call.args[1].fields) == 4


@pytest.mark.parametrize("low", [-np.inf, -1e9, -100.0])
@pytest.mark.parametrize("shift", [-3, 0, 5])
def test_a_constant_mask_up_to_a_diagonal(shift, low):
    mask = np.where(np.tri(30, 40, shift, bool), 0.0, low)
    build = lambda emit, *x: parts(  # noqa: E731
        emit, *x, lambda emit, s: op.add(s, relax.const(mask, "float64"))
    )
    new = both(build, (1, 2, 30, 4), (1, 2, 4, 40), (1, 2, 40, 4))
    (call,) = (b.value for block in new["main"].body.blocks for b in block.bindings)
    assert len(call.args[1].fields) == 3


@pytest.mark.parametrize(
    "after",
    [
        lambda emit, x: relax.TupleGetItem(emit(op.nn.dropout(x, 0.5)), 0),
        lambda emit, x: op.astype(x, "float64"),
    ],
)
def test_what_changes_no_weight_may_come_after_softmax(after):
    both(lambda emit, *x: parts(emit, *x, after=after), *SHAPES)


@pytest.mark.parametrize("between", ["int32", "bool", "float32"])
def test_weights_that_are_rounded_after_softmax_stay(between):
    def rounded(emit, x):
        return op.astype(emit(op.astype(x, between)), "float64")

    text = told(lambda emit, *x: [emit(parts(emit, *x, after=rounded))], *SHAPES)
    assert f"weights are rounded to {between} in between" in text


@pytest.mark.parametrize("low", [-np.inf, -1e9])
@pytest.mark.parametrize("added", [True, False])
def test_rows_of_which_another_mask_hides_the_keys_that_are_left(added, low):
    """As of sequences that are filled up on the left."""
    seen = np.tri(10, 12, 0, bool)

    def build(emit, q, k, v, filled):
        def between(emit, s):
            s = emit(op.add(s, filled))
            if added:
                return op.add(s, relax.const(np.where(seen, 0.0, low), "float64"))
            return op.where(relax.const(seen), s, relax.const(low, "float64"))

        return parts(emit, q, k, v, between)

    mod = model(build, *SHAPES, (2, 1, 1, 12))
    arrays = [np.random.default_rng(1).standard_normal(s) for s in SHAPES]
    filled = np.zeros((2, 1, 1, 12))
    filled[..., :4] = low
    means_the_same(mod, fused(mod), *arrays, filled)


@pytest.mark.parametrize("low", [-np.inf, -1e9])
@pytest.mark.parametrize("added", [True, False])
def test_a_mask_over_positions_hides_no_more_than_another_leaves(added, low):
    """The second leaves the first query a key that the first mask hides: no key is lower."""
    masks = [np.tri(10, 12, shift, bool) for shift in (-1, 0)]
    if added:
        masks[0] = ~np.tri(10, 12, 0, bool)

    def build(emit, q, k, v):
        def between(emit, s):
            def behind(mask, s):
                if added:
                    return op.add(s, relax.const(np.where(mask, 0.0, low), "float64"))
                return op.where(relax.const(mask), s, relax.const(low, "float64"))

            return behind(masks[1], emit(behind(masks[0], s)))

        return parts(emit, q, k, v, between)

    both(build, *SHAPES)


# -- dtypes, threads, both ways of running ---------------------------------------------------------


def numpy_attention(q, k, v, low, factor):
    scores = np.where(np.tri(q.shape[2], k.shape[3], 0, bool), q @ k * factor, low)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [("float64", 1e-12), ("float32", 1e-5), ("float16", 4e-3), ("bfloat16", 3e-2)],
)
@pytest.mark.parametrize("queries", [1, 70])
def test_compiled_kernels_on_every_dtype(dtype, rtol, queries):
    shapes = (2, 3, queries, 20), (2, 3, 20, 90), (2, 3, 90, 24)
    seen = np.tri(queries, 90, 0, bool)

    def build(emit, q, k, v):
        def between(emit, s):
            s = emit(op.multiply(s, relax.const(0.5, dtype)))
            return op.where(relax.const(seen), s, relax.const(-np.inf, dtype))

        return parts(emit, q, k, v, between)

    mod = model(build, *shapes, dtype=dtype)
    rng = np.random.default_rng(0)
    arrays = [tvm.nd.array(rng.standard_normal(s), dtype=dtype) for s in shapes]
    wide = [from_storage(a.numpy(), dtype).astype("float64") for a in arrays]
    built = relax.build(mod, "llvm")
    got = [
        from_storage(
            VirtualMachine(built, tvm.cpu(), exec_mode=mode, num_threads=threads)["main"](
                *arrays
            ).numpy(),
            dtype,
        )
        for mode in ("bytecode", "compiled")
        for threads in (1, 2)
    ]
    assert all(np.array_equal(got[0], x) for x in got)
    want = numpy_attention(*wide, -np.inf, 0.5)
    np.testing.assert_allclose(got[0].astype("float64"), want, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("low", [-3.0, -65504.0, -np.inf])
def test_a_number_that_is_not_low_hides_nothing_in_float16(low):
    mask = np.where(np.tri(30, 40, 0, bool), 0.0, low)

    def build(emit, q, k, v):
        return parts(emit, q, k, v, lambda emit, s: op.add(s, relax.const(mask, "float16")))

    shapes = (1, 2, 30, 4), (1, 2, 4, 40), (1, 2, 40, 4)
    arrays = [np.random.default_rng(0).standard_normal(s).astype("float16") for s in shapes]
    built = relax.build(fused(model(build, *shapes, dtype="float16")), "llvm")
    got = VirtualMachine(built, tvm.cpu())["main"](*arrays).numpy()
    q, k, v = (a.astype("float64") for a in arrays)
    weights = np.exp(q @ k + mask)
    want = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)


# -- what stays ------------------------------------------------------------------------------------


def told(build, *shapes):
    mod = model(build, *shapes)
    with PassContext() as ctx:
        assert fuse(mod) is mod
    return str(ctx.report)


def test_scores_and_weights_that_are_read_elsewhere_stay():
    def scores(emit, q, k, v):
        s = emit(op.matmul(q, k))
        return [s, emit(op.matmul(emit(op.nn.softmax(s)), v))]

    def weights(emit, q, k, v):
        w = emit(op.nn.softmax(emit(op.matmul(q, k))))
        return [emit(op.matmul(w, v)), emit(op.exp(w))]

    for build in (scores, weights):
        assert "is read elsewhere, too" in told(build, *SHAPES)


def test_what_is_no_attention_stays():
    def along_queries(emit, q, k, v):
        return op.matmul(emit(op.nn.softmax(emit(op.matmul(q, k)), axis=2)), v)

    def no_first_product(emit, q, k, v):
        return op.matmul(emit(op.nn.softmax(emit(op.exp(q)))), k)

    def summed(emit, q, k, v):
        s = emit(op.matmul(q, k))
        s = emit(op.subtract(s, emit(op.mean(q, axis=-1, keepdims=True))))
        return op.matmul(emit(op.nn.softmax(emit(op.cumsum(s, axis=-1)))), v)

    for build in (along_queries, no_first_product, summed):
        mod = model(build, *SHAPES)
        assert fuse(mod) is mod


def test_broadcasts_that_make_more_scores_stay():
    def wider(emit, q, k, v, m):
        return parts(emit, q, k, v, lambda emit, s: op.add(s, m))

    assert "broadcasts it" in told(wider, (1, 2, 3, 4), (1, 2, 4, 5), (1, 2, 5, 4), (3, 1, 1, 1))
    assert "more batches" in told(parts, (1, 2, 3, 4), (1, 2, 4, 5), (2, 2, 5, 4))


def test_layers_that_are_alike_are_written_once(monkeypatch):
    """Alike is what has the same formulas: not other scales, masks that are added to others, or
    values that are another's queries.
    """
    written, formula = [], fuse_attention._Attention._formula

    def counting(self, heads_first):
        written.append(self)
        return formula(self, heads_first)

    monkeypatch.setattr(fuse_attention._Attention, "_formula", counting)

    def layers(emit, x, y, z, mask, other):
        def layer(scale, added, same=False):
            def between(emit, s):
                return op.add(emit(op.multiply(s, scale)), added)

            q, k, v = (
                emit(op.permute_dims(emit(op.reshape(a, (2, -1, 3, 8))), axes))
                for a, axes in ((x, SPLIT), (y, TURNED), (y if same else z, SPLIT))
            )
            return emit(parts(emit, q, k, v, between))

        first = layer(0.5, mask), layer(0.5, mask), layer(0.5, other)
        return [
            *first,
            layer(2.0, mask),
            layer(0.5, emit(op.negative(mask))),
            layer(0.5, mask, True),
        ]

    mod = model(layers, *HEADS, HEADS[3], dtype="float64")
    new = fuse(mod)
    assert calls(new).count("call_tir") == 6
    # Two masks are two values, read alike; a negated one is another formula.
    assert len(written) == 4
    means_the_same(mod, new)


def test_layers_of_one_formula_that_are_written_differently_share_a_kernel():
    def layers(emit, x, y, z):
        turned = emit(op.permute_dims(x, SPLIT))
        back = emit(op.permute_dims(turned, SPLIT))
        return [emit(parts(emit, q, y, z)) for q in (x, back, z)]

    mod = model(layers, *[(2, 4, 4, 4)] * 3, dtype="float64")
    new = fuse(mod)
    assert calls(new) == ["call_tir"] * 3
    assert len(new.functions) == 3
    means_the_same(mod, new)


def test_layers_whose_queries_are_moved_otherwise_are_not_alike():
    """Also where a long way leads from the scores to these queries, which ends before it is seen
    how they are moved.
    """

    def layers(emit, x, y, z):
        def layer(axes):
            def between(emit, s):
                far = q
                for _ in range(15):
                    far = emit(op.negative(far))
                return op.add(emit(op.add(s, far)), x)

            q = emit(op.permute_dims(x, axes))
            return emit(parts(emit, q, y, z, between))

        return [layer([0, 1, 2, 3]), layer([0, 2, 1, 3]), layer([0, 1, 3, 2])]

    mod = model(layers, *[(2, 4, 4, 4)] * 3, dtype="float64")
    new = fuse(mod)
    assert calls(new).count("call_tir") == 3
    means_the_same(mod, new)


def test_exact_numerics_keep_the_parts():
    mod = model(parts, *SHAPES)
    with PassContext(config={"numerics": "exact"}):
        assert "nn.softmax" in calls(tvm.transform.Sequential([fuse])(mod))


def test_unknown_shapes_stay():
    x = [relax.Var(n, relax.TensorStructInfo(ndim=4, dtype="float32")) for n in "qkv"]
    builder = relax.BlockBuilder()
    with builder.function("main", x):
        with builder.dataflow():
            out = builder.emit_output(parts(builder.emit, *x))
        builder.emit_func_output(out)
    mod = builder.get()
    assert fuse(mod) is mod


@pytest.mark.parametrize("name", ["bert_base", "sentence_encoder"])
def test_graphs_have_one_kernel_for_attention(name):
    mod, inputs, _ = small(name)
    with PassContext() as ctx:
        kernels = [gv.name_hint for gv in LEGAL_TO_FUSED(GRAPH_TO_LEGAL(mod))]
    assert "attention" in kernels and not any("softmax" in n for n in kernels)
    assert all(d.done for d in ctx.report.of("FuseAttention"))
    check_meaning(name, VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())["main"](*inputs))


# -- many ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 60), marks=pytest.mark.slow)])
def test_random_attention(seeds):
    for seed in seeds:
        rng = random.Random(seed)
        b, h, s, t, d, e = (
            rng.choice(n) for n in ((1, 2), (1, 4), (1, 5, 26), (1, 7, 50), (3, 16), (4, 16))
        )
        shared = rng.choice((1, h))
        bias = relax.const(np.random.default_rng(seed).random((h, 1, t)), "float64")
        seen, low = relax.const(np.tri(s, t, 0, bool)), relax.const(-np.inf, "float64")
        steps = [
            lambda emit, x: op.multiply(x, 0.3),
            lambda emit, x, bias=bias: op.add(x, bias),
            lambda emit, x: op.tanh(x),
            lambda emit, x, seen=seen, low=low: op.where(seen, x, low),
            lambda emit, x: op.clip(x, -1.0, 1.0),
        ]
        chosen = rng.sample(steps, rng.randint(0, 3))

        def between(emit, x, chosen=chosen):
            for step in chosen[:-1]:
                x = emit(step(emit, x))
            return chosen[-1](emit, x)

        def build(emit, q, k, v, rng=rng, between=between, chosen=chosen):
            k = (
                emit(op.permute_dims(k, TURNED))
                if rng.random() < 0.5
                else emit(op.permute_dims(k, [0, 2, 3, 1]))
            )
            v = emit(op.permute_dims(v, SPLIT))
            made = parts(emit, q, k, v, between if chosen else None)
            return op.permute_dims(emit(made), SPLIT) if rng.random() < 0.5 else made

        both(build, (b, h, s, d), (b, t, shared, d), (b, t, shared, e))


def test_ten_thousand_bindings():
    def build(emit, q, k, v):
        for _ in range(1000):
            q = emit(parts(emit, q, k, v, lambda emit, s: op.multiply(s, 0.5)))
        return op.negative(q)

    mod = model(build, (1, 1, 3, 4), (1, 1, 4, 3), (1, 1, 3, 4))
    assert calls(fuse(mod)) == ["call_tir"] * 1000 + ["negative"]
