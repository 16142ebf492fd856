"""CombineParallelMatmul, ...Dense, ...BatchMatmul, ...Conv2D, BatchingOps: products of one value
with several weights become one product.
"""

import random

import numpy as np
import pytest
from pass_cases import becomes, means_the_same, model, stays

from relaxvm import relax
from relaxvm.ir import IRModule, Op, PassContext
from relaxvm.ir import Var as TirVar
from relaxvm.relax import op, transform

matmul = transform.CombineParallelMatmul()
dense = transform.CombineParallelDense()
flat_dense = transform.CombineParallelDense(to_batch=False)
batched = transform.CombineParallelBatchMatmul()
conv2d = transform.CombineParallelConv2D()
rng = np.random.default_rng(0)


def const(*shape):
    return relax.const(rng.standard_normal(shape))


def calls(mod):
    """The names of the operators called, in order."""
    return [
        b.value.op.name.removeprefix("relax.").removeprefix("nn.")
        for block in mod["main"].body.blocks
        for b in block.bindings
        if isinstance(b.value, relax.Call)
    ]


def combines(run, build, *shapes, names, sizes=0):
    """The pass leaves calls of these operators before the first slice, and the meaning."""
    mod = model(build, *shapes)
    before = str(mod)
    new = run(mod)
    assert str(mod) == before, "the module that was given has changed"
    assert run(new) is new
    means_the_same(mod, new, n=sizes)
    found = calls(new)
    assert found[: found.index("strided_slice")] == names.split()
    return new


def refuses(run, build, *shapes):
    mod = model(build, *shapes)
    assert run(mod) is mod


def test_the_form_of_what_comes_out():
    becomes(
        matmul,
        """
        @R.function
        def main(x: R.Tensor((2, 2), "float32")):
            with R.dataflow():
                lv = R.matmul(x, R.const([[1, 2], [3, 4]], "float32"))
                lv1 = R.add(lv, R.const([1, 2], "float32"))
                lv2 = R.matmul(x, R.const([[5], [6]], "float32"))
                lv3 = R.add(lv2, R.const([7], "float32"))
                gv = (lv1, lv3)
                R.output(gv)
            return gv
        """,
        """
        @R.function
        def main(x: R.Tensor((2, 2), "float32")):
            with R.dataflow():
                lv = R.matmul(x, R.const([[1, 2, 5], [3, 4, 6]], "float32"))
                lv4 = R.add(lv, R.const([1, 2, 7], "float32"))
                lv1 = R.strided_slice(lv4, axes=[1], begin=[0], end=[2])
                lv3 = R.strided_slice(lv4, axes=[1], begin=[2], end=[3])
                gv = (lv1, lv3)
                R.output(gv)
            return gv
        """,
    )


def heads(e, x):
    out = []
    for size in (6, 4, 4):
        y = e(op.add(e(op.matmul(x, const(8, size))), const(size)))
        out.append(e(op.reshape(y, (2, 3, size // 2, 2))))
    return out


def test_query_key_and_value_become_one_product():
    combines(matmul, heads, (2, 3, 8), names="matmul add")


@pytest.mark.parametrize("size", [1, 5])
def test_of_any_number_of_rows(size):
    n = TirVar("n", "int64")

    def build(e, x):
        return [e(op.nn.silu(e(op.matmul(x, const(4, k))))) for k in (2, 3)]

    combines(matmul, build, (n, 4), names="matmul silu", sizes=size)


def test_weights_that_are_parameters_are_joined_when_it_runs():
    def build(e, x, w, v, b, c):
        return [
            e(op.nn.relu(e(op.add(e(op.matmul(x, w)), b)))),
            e(op.nn.relu(e(op.add(e(op.matmul(x, v)), c)))),
        ]

    combines(
        matmul, build, (2, 4), (4, 3), (4, 5), (3,), (1, 5), names="concat matmul"
    )  # biases of different ranks stay
    combines(
        matmul,
        build,
        (2, 4),
        (4, 3),
        (4, 5),
        (3,),
        (5,),
        names="concat matmul concat add relu",
    )


def test_what_follows_only_some_branches_stays_with_them():
    def build(e, x):
        a, b, c = (e(op.matmul(x, const(4, 4))) for _ in range(3))
        return [e(op.nn.relu(a)), e(op.nn.relu(b)), c]

    combines(matmul, build, (2, 4), names="matmul")


def test_a_result_that_is_read_twice_ends_a_branch():
    def build(e, x):
        a, b = (e(op.matmul(x, const(4, 4))) for _ in range(2))
        return [e(op.nn.relu(a)), e(op.nn.relu(b)), a]

    combines(matmul, build, (2, 4), names="matmul")


@pytest.mark.parametrize(
    ("operand", "names"),
    [
        (lambda k: relax.const(2.0 + k, "float64"), "matmul multiply"),
        (lambda k: const(1, 1, k + 2), "matmul multiply"),
        (lambda k: const(2, 3, k + 2), "matmul multiply"),
        (lambda k: const(2, 1, 1), "matmul multiply"),
    ],
)
def test_factors_of_every_shape_are_joined(operand, names):
    def build(e, x):
        return [e(op.multiply(e(op.matmul(x, const(4, k + 2))), operand(k))) for k in range(3)]

    combines(matmul, build, (2, 3, 4), names=names)


def test_a_factor_that_all_share_is_read_once():
    def build(e, x, y):
        return [e(op.multiply(y, e(op.matmul(x, const(4, k + 2))))) for k in range(3)]

    combines(matmul, build, (2, 3, 4), (3, 1), names="matmul multiply")


def test_a_residual_value_is_not_copied_to_be_added():
    def build(e, x, y):
        return [e(op.add(e(op.matmul(x, const(4, 4))), y)) for _ in range(2)]

    combines(matmul, build, (2, 4), (2, 4), names="matmul")


def test_operand_order_is_kept():
    def build(e, x):
        return [e(op.subtract(const(3), e(op.matmul(x, const(4, 3))))) for _ in range(2)]

    combines(matmul, build, (2, 4), names="matmul subtract")

    def mixed(e, x):
        a, b = (e(op.matmul(x, const(4, 3))) for _ in range(2))
        return [e(op.subtract(const(3), a)), e(op.subtract(b, const(3)))]

    combines(matmul, mixed, (2, 4), names="matmul")


def test_branches_of_each_other_and_of_other_values_stay():
    def product(e, x, *weight):
        return e(op.matmul(x, const(*weight)))

    for build in (
        lambda e, x, y: [product(e, x, 4, 4), product(e, y, 4, 4)],
        lambda e, x, y: [product(e, product(e, x, 4, 4), 4, 4)],
        lambda e, x, y: [product(e, x, 4), product(e, x, 4)],
        lambda e, x, y: [product(e, x, 4, 2), product(e, x, 3, 4, 2)],
    ):
        refuses(matmul, build, (2, 4), (2, 4))


def test_a_weight_that_is_made_of_an_earlier_branch_stays():
    def build(e, x):
        a = e(op.matmul(x, const(4, 4)))
        return [e(op.matmul(x, a)), e(op.matmul(x, const(4, 2)))]

    combines(matmul, build, (4, 4), names="matmul")


def test_what_computes_a_weight_or_a_bias_moves_up():
    def build(e, x, y, w):
        a = e(op.add(e(op.matmul(x, const(4, 3))), const(3)))
        b = e(op.matmul(x, e(op.permute_dims(w))))
        return [a, e(op.add(b, e(op.exp(y))))]

    names = "permute_dims exp concat matmul concat add"
    combines(matmul, build, (2, 4), (3,), (3, 4), names=names)


def test_a_product_that_is_joined_with_others_does_not_move_up():
    def build(e, x, z, w, v, u, s, y):
        a = e(op.add(e(op.matmul(x, w)), y))
        b = e(op.matmul(x, v))
        c, d = (e(op.matmul(z, weight)) for weight in (u, s))
        return [a, e(op.add(b, c)), d]

    new = combines(matmul, build, *[(4, 4)] * 7, names="concat matmul")
    assert calls(new).count("matmul") == 2


def test_what_reads_an_array_before_it_is_written_into_stays_there():
    stays(
        matmul,
        """
        @T.prim_func
        def twice(A: T.Buffer((2, 2), "float32")):
            for i, j in T.grid(2, 2):
                with T.block("twice"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    A[vi, vj] = A[vi, vj] * T.float32(2)

        @R.function(pure=False)
        def main(
            x: R.Tensor((2, 2), "float32"),
            w: R.Tensor((2, 2), "float32"),
            v: R.Tensor((2, 2), "float32"),
        ):
            cls = Module
            lv = R.matmul(x, w)
            lv1 = R.call_tir_inplace(
                cls.twice, (v,), inplace_indices=[0], out_sinfo=R.Tensor((2, 2), "float32")
            )
            lv2 = R.exp(v)
            lv3 = R.matmul(x, lv2)
            return (lv, lv1, lv3)
        """,
    )


def test_what_computes_a_weight_stays_behind_the_symbols_it_needs():
    stays(
        matmul,
        """
        @R.function
        def main(
            x: R.Tensor((2, 2), "float32"),
            w: R.Tensor((2, 2), "float32"),
            v: R.Tensor(dtype="float32", ndim=1),
        ):
            with R.dataflow():
                n = T.int64()
                lv = R.matmul(x, w)
                lv1 = R.match_cast(v, R.Tensor((n,), "float32"))
                lv2 = R.full(R.shape([n]), R.const(0.5, "float32"))
                lv3 = R.multiply(w, R.sum(lv2))
                lv4 = R.matmul(x, lv3)
                gv = (lv, lv1, lv4)
                R.output(gv)
            return gv
        """,
    )


def test_a_bias_that_needs_a_branch_is_added_later():
    def build(e, x, y):
        a = e(op.add(e(op.matmul(x, const(4, 3))), const(3)))
        late = e(op.exp(e(op.sum(a, axis=0))))
        return [a, e(op.add(e(op.matmul(x, const(4, 3))), late))]

    combines(matmul, build, (2, 4), (3,), names="matmul")


def test_the_check_decides_and_is_told_all():
    seen = []

    def check(x, weights, biases, bound):
        seen.append((x.name_hint, len(weights), sorted(biases), len(bound)))
        return False

    mod = model(heads, (2, 3, 8))
    with PassContext() as ctx:
        assert transform.CombineParallelMatmul(check=check)(mod) is mod
    assert seen == [("x0", 3, [0, 1, 2], 10)]
    assert "stay" in str(ctx.report)
    assert transform.CombineParallelMatmul(check)(mod) is mod
    assert calls(transform.CombineParallelMatmul(lambda *told: True)(mod)).count("matmul") == 1


# -- convolutions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "kernel", "out", "shape", "weight"),
    [
        ("NCHW", "OIHW", "NCHW", (1, 4, 5, 6), lambda o: (o, 4, 3, 3)),
        ("NHWC", "HWIO", "NHWC", (1, 5, 6, 4), lambda o: (3, 3, 4, o)),
        ("NCHW", "OIHW", "NCHW2c", (1, 4, 5, 6), lambda o: (o, 4, 3, 3)),
        ("NCHW4c", "OIHW2o", "NHWC", (1, 1, 5, 6, 4), lambda o: (o // 2, 4, 3, 3, 2)),
        ("NCHW4c", "OIHW2i2o", "NCHW2c", (1, 1, 5, 6, 4), lambda o: (o // 2, 2, 3, 3, 2, 2)),
    ],
)
def test_convolutions_of_one_value_become_one(layout, kernel, out, shape, weight):
    def build(e, x):
        made = []
        for o in (2, 6, 4):
            y = op.nn.conv2d(
                x, const(*weight(o)), data_layout=layout, kernel_layout=kernel, out_layout=out
            )
            made.append(e(op.nn.relu(e(y))))
        return made

    combines(conv2d, build, shape, names="conv2d relu")


def test_biases_of_convolutions_are_joined_along_channels():
    def build(e, x):
        return [
            e(op.add(e(op.nn.conv2d(x, const(o, 2, 1, 1))), const(1, o, 1, 1))) for o in (2, 6, 4)
        ]

    combines(conv2d, build, (1, 2, 5, 6), names="conv2d add")


def test_convolutions_that_differ_stay():
    def build(e, x):
        return [
            e(op.nn.conv2d(x, const(4, 4, 1, 1))),
            e(op.nn.conv2d(x, const(4, 4, 3, 3), padding=1)),
            e(op.nn.conv2d(x, const(4, 4, 1, 1), strides=2)),
            e(op.nn.conv2d(x, const(4, 2, 1, 1), groups=2)),
            e(op.nn.conv2d(x, const(4, 2, 1, 1), groups=2)),
        ]

    refuses(transform.CombineParallelConv2D(min_num_branches=2), build, (1, 4, 5, 6))


@pytest.mark.parametrize("run", [matmul, dense, flat_dense, batched, conv2d])
def test_fewer_branches_than_wanted_stay(run):
    def build(e, x, y, z):
        return [
            e(op.matmul(x, const(4, 4))),
            *(e(op.nn.conv2d(z, const(2, 2, 1, 1))) for _ in range(2)),
            *(() if run is matmul else (e(op.matmul(y, const(2, 4, 4))) for _ in range(2))),
        ]

    refuses(run, build, (2, 4), (2, 3, 4), (1, 2, 3, 3))


# -- dense and batched products --------------------------------------------------------------------


def three(e, x, size=5):
    return [
        e(op.nn.relu(e(op.add(e(op.matmul(x, const(4, size))), const(size))))) for _ in range(3)
    ]


def test_dense_products_are_stacked_or_put_side_by_side():
    stacked = combines(dense, three, (3, 4), names="matmul add relu")
    assert "R.Tensor((3, 3, 5)" in stacked["main"].script()
    combines(flat_dense, three, (3, 4), names="matmul add relu")


def test_stacked_weights_and_biases_may_be_parameters():
    def build(e, x, w, v, u, a, b, c):
        return [e(op.add(e(op.matmul(x, each)), bias)) for each, bias in ((w, a), (v, b), (u, c))]

    names = "stack matmul stack expand_dims add"
    combines(dense, build, (2, 4), *[(4, 3)] * 3, *[(3,)] * 3, names=names)


def test_dense_products_of_different_sizes_are_put_side_by_side_only():
    def build(e, x):
        return [e(op.matmul(x, const(4, k + 1))) for k in range(3)]

    refuses(dense, build, (3, 4))
    combines(flat_dense, build, (3, 4), names="matmul")


def test_batched_products():
    def build(e, x):
        return [e(op.tanh(e(op.matmul(x, const(2, 4, k + 1))))) for k in range(3)]

    combines(batched, build, (2, 3, 4), names="matmul tanh")
    refuses(dense, build, (2, 3, 4))


def test_batching_ops_is_all_of_them():
    def build(e, x, y, z):
        return [
            *three(e, x),
            *(e(op.matmul(y, const(2, 4, 4))) for _ in range(3)),
            *(e(op.nn.conv2d(z, const(2, 2, 1, 1))) for _ in range(3)),
        ]

    new = transform.BatchingOps()(model(build, (2, 4), (2, 3, 4), (1, 2, 3, 3)))
    assert calls(new).count("matmul") == 2
    assert calls(new).count("conv2d") == 1


# -- where ----------------------------------------------------------------------------------------


def test_what_may_be_written_into_between_the_branches_stays():
    stays(
        matmul,
        """
        @R.function(pure=False)
        def main(x: R.Tensor((2, 2), "float32")):
            y = R.matmul(x, R.const([[1, 2], [3, 4]], "float32"))
            _ = R.call_packed("test.write", x, sinfo_args=R.Tuple())
            z = R.matmul(x, R.const([[1, 2], [3, 5]], "float32"))
            return (y, z)
        """,
    )


def test_branches_of_an_if_are_not_joined():
    stays(
        matmul,
        """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((2, 2), "float32")):
            if c:
                r = R.matmul(x, R.const([[1, 2], [3, 4]], "float32"))
            else:
                r = R.matmul(x, R.const([[1, 2], [3, 5]], "float32"))
            return r
        """,
    )


def test_thousands_of_products():
    info = relax.TensorStructInfo((2, 2), "float32")
    weights = [relax.const(np.full((2, 2), k, "float32")) for k in range(4)]
    x = relax.Var("x", info)
    last, bindings = x, []
    for i in range(2_000):
        var = relax.Var(f"v{i}", info)
        bindings.append(relax.VarBinding(var, op.matmul(last, weights[i % 4])))
        last = last if i % 4 < 3 else var
    body = relax.SeqExpr([relax.BindingBlock(bindings)], last)
    mod = IRModule({"main": relax.Function([x], body).with_attr("global_symbol", "main")})
    assert calls(matmul(mod)).count("matmul") == 500


# -- random graphs ---------------------------------------------------------------------------------


def random_graph(seed):
    """Products, few values of which are read by many, and what follows them."""
    r = random.Random(seed)
    weights = [const(4, 4) for _ in range(3)]

    def step(e, values, params):
        x = r.choice(values[:3] + values[-2:])
        kind = r.randrange(9)
        if kind < 5:
            w = r.choice((*weights, const(4, 4), *params))
            return e(op.matmul(x, w) if r.random() < 0.8 else op.matmul(w, x))
        if kind < 7:
            bias = r.choice((const(4), const(4, 4), const(1, 4), r.choice(values)))
            return e(r.choice((op.add, op.subtract, op.multiply))(x, bias))
        if kind == 7:
            return e(op.permute_dims(x))
        return e(r.choice((op.nn.relu, op.tanh))(x))

    def build(e, x, *params):
        values = [x]
        for _ in range(r.randrange(6, 24)):
            values.append(step(e, values, params))
        return [values[-1], *r.sample(values, r.randrange(1, 4))]

    return model(build, (4, 4), (4, 4), (4, 4))


RANDOM = {
    "matmul": matmul,
    "dense": transform.CombineParallelDense(min_num_branches=2),
    "flat dense": transform.CombineParallelDense(min_num_branches=2, to_batch=False),
    "order": transform.AdjustMatmulOrder(),
    "expand": transform.ExpandMatmulOfSum(),
}


@pytest.mark.parametrize("run", RANDOM.values(), ids=RANDOM)
def test_random_graphs_mean_what_they_did(run):
    changed = 0
    for seed in range(80):
        mod = random_graph(seed)
        new = run(mod)
        changed += new is not mod
        means_the_same(mod, new)
    assert changed >= (1 if run in (RANDOM["order"], RANDOM["expand"]) else 20)


@pytest.mark.parametrize(
    ("left", "right"),
    [((1, 16), (16, 24)), ((16,), (16, 24)), ((2, 1, 3, 16), (5, 16, 24)), ((3, 1024), (1024, 24))],
)
def test_columns_of_a_wider_product_mean_the_same_to_the_bit(left, right):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal(left, "float32"), rng.standard_normal(right, "float32")
    meaning = Op.get("relax.matmul").numpy
    whole = meaning(a, b)
    np.testing.assert_allclose(whole, np.matmul(a, b), rtol=1e-4, atol=1e-4)
    for part in (slice(0, 16), slice(16, 24), slice(7, 8)):
        np.testing.assert_array_equal(meaning(a, b[..., part]), whole[..., part])
    column = meaning(a, b[..., 5]) if b.ndim == 2 else whole[..., 5]
    np.testing.assert_array_equal(column, whole[..., 5])
