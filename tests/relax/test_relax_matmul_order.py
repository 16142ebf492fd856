"""AdjustMatmulOrder, ExpandMatmulOfSum, ReorderTakeAfterMatmul, ReorderPermuteDimsAfterConcat,
FuseTransposeMatmul: products, and what stands before them, in another order.
"""

import numpy as np
import pytest
from pass_cases import becomes, means_the_same, model, same_results, stays
from relax_vm_helpers import build_interpreted

from relaxvm import relax
from relaxvm.base import VMValueError
from relaxvm.ir import IntImm, IRModule
from relaxvm.ir import Var as TirVar
from relaxvm.relax import op, transform

order = transform.AdjustMatmulOrder()
expand = transform.ExpandMatmulOfSum()
take = transform.ReorderTakeAfterMatmul()
concat = transform.ReorderPermuteDimsAfterConcat()
transposed = transform.FuseTransposeMatmul()
n = TirVar("n", "int64")


def const(*shape):
    return relax.const(np.random.default_rng(1).standard_normal(shape))


def changes(run, build, *shapes, **sizes):
    mod = model(build, *shapes)
    new = run(mod)
    assert new is not mod
    assert run(new) is new
    means_the_same(mod, new, **sizes)
    return new


def refuses(run, build, *shapes):
    mod = model(build, *shapes)
    assert run(mod) is mod


def result_of(mod, name):
    """The shapes of the results of the calls of an operator, in order."""
    return [
        tuple(getattr(d, "value", str(d)) for d in b.var.struct_info.dims)
        for b in mod["main"].body.blocks[0].bindings
        if isinstance(b.value, relax.Call) and b.value.op.name == f"relax.{name}"
    ]


# -- AdjustMatmulOrder -----------------------------------------------------------------------------


def left(e, a, b, c):
    return op.matmul(e(op.matmul(a, b)), c)


def right(e, a, b, c):
    return op.matmul(a, e(op.matmul(b, c)))


def test_the_form_of_another_order():
    becomes(
        order,
        """
        @R.function
        def main(a: R.Tensor((64, 8)), b: R.Tensor((8, 64)), c: R.Tensor((64, 1))):
            with R.dataflow():
                lv = R.matmul(a, b)
                gv = R.matmul(lv, c)
                R.output(gv)
            return gv
        """,
        """
        @R.function
        def main(a: R.Tensor((64, 8)), b: R.Tensor((8, 64)), c: R.Tensor((64, 1))):
            with R.dataflow():
                lv = R.matmul(b, c)
                gv = R.matmul(a, lv)
                R.output(gv)
            return gv
        """,
    )


@pytest.mark.parametrize(
    ("one", "shapes", "inner"),
    [
        (left, [(9, 2), (2, 9), (9, 1)], (2, 1)),
        (right, [(1, 9), (9, 2), (2, 9)], (1, 2)),
        (left, [(3, 9, 2), (2, 9), (9, 1)], (2, 1)),
        (right, [(3, 1, 9), (9, 2), (3, 2, 9)], (3, 1, 2)),
        (left, [(n, 2), (2, 9), (9, 1)], (2, 1)),
    ],
)
def test_the_cheaper_product_comes_first(one, shapes, inner):
    assert result_of(changes(order, one, *shapes, n=5), "matmul")[0] == inner


def test_an_order_that_is_as_good_or_not_always_better_stays():
    refuses(order, left, (4, 4), (4, 4), (4, 4))
    refuses(order, right, (4, 4), (4, 4), (4, 4))
    refuses(order, left, (n, 9), (9, 9), (9, n))
    refuses(order, left, (1, 9), (9, 2), (2, 9))
    refuses(order, left, (9,), (9, 9), (9, 1))
    refuses(order, left, (9, 9), (9, 9), (9,))


def test_a_transposed_product_is_taken_apart():
    def build(e, x, a, b):
        return op.matmul(x, e(op.permute_dims(e(op.matmul(a, b)))))

    new = changes(order, build, (1, 9), (9, 2), (2, 9))
    assert result_of(new, "matmul") == [(1, 2), (1, 9)]

    def otherwise(e, x, a, b):
        return op.matmul(x, e(op.permute_dims(e(op.matmul(a, b)), (1, 0, 2))))

    refuses(order, otherwise, (3, 1, 9), (9, 3, 2), (2, 9))


def test_known_factors_come_together():
    new = changes(order, lambda e, x: left(e, x, const(9, 2), const(2, 9)), (1, 9))
    assert result_of(new, "matmul")[0] == (9, 9)
    refuses(order, lambda e, x: right(e, x, const(9, 2), const(2, 9)), (1, 9))
    mod = model(left, (1, 9), (9, 2), (2, 9))
    assert order(mod) is mod
    mod["main"] = mod["main"].with_attr("num_input", IntImm("int64", 1))
    assert result_of(order(mod), "matmul")[0] == (9, 9)


def test_a_product_that_others_read_is_there():
    def build(e, a, b, c):
        lv = e(op.matmul(a, b))
        return [e(op.matmul(lv, c)), lv, e(op.exp(lv))]

    changes(order, left, (9, 8), (8, 9), (9, 1))
    refuses(order, build, (9, 8), (8, 9), (9, 1))


def test_mixed_dtypes_keep_their_order():
    def build(e, a, b, c):
        return op.matmul(e(op.matmul(a, b, out_dtype="float32")), c, out_dtype="float32")

    mod = model(build, (9, 2), (2, 9), (9, 1), dtype="float16")
    assert order(mod) is mod


def test_a_long_row_of_products_ends():
    weights = [const(8, 8) for _ in range(30)]

    def build(e, x):
        for w in weights:
            x = e(op.matmul(x, w))
        return e(op.matmul(x, const(8, 1)))

    changes(order, build, (4, 8))


# -- ExpandMatmulOfSum -----------------------------------------------------------------------------


def of_sum(e, x, a, b):
    return op.matmul(x, e(op.add(a, b)))


def test_the_form_of_a_sum_of_products():
    becomes(
        expand,
        """
        @R.function
        def main(x: R.Tensor((2, 4)), a: R.Tensor((4, 3)), b: R.Tensor((4, 3))):
            with R.dataflow():
                lv = R.add(a, b)
                gv = R.matmul(x, lv)
                R.output(gv)
            return gv
        """,
        """
        @R.function
        def main(x: R.Tensor((2, 4)), a: R.Tensor((4, 3)), b: R.Tensor((4, 3))):
            with R.dataflow():
                lv = R.matmul(x, a)
                lv1 = R.matmul(x, b)
                gv = R.add(lv, lv1)
                R.output(gv)
            return gv
        """,
    )


def test_sums_of_batches_of_matrices():
    changes(expand, of_sum, (2, n, 4), (4, 3), (2, 4, 3), n=3)
    changes(expand, lambda e, x, a: of_sum(e, x, a, const(4, 3)), (2, 4), (4, 3))


def test_sums_that_broadcast_within_matrices_or_are_known_stay():
    refuses(expand, of_sum, (2, 4), (4, 3), (1, 3))
    refuses(expand, of_sum, (2, 4), (4, 3), (3,))
    refuses(expand, lambda e, x: of_sum(e, x, const(4, 3), const(4, 3)), (2, 4))


def test_lora_needs_no_product_of_its_matrices():
    def build(e, x, w, a, b):
        return of_sum(e, x, w, e(op.matmul(a, b)))

    mod = model(build, (1, 8), (8, 8), (8, 2), (2, 8))
    new = order(expand(mod))
    means_the_same(mod, new)
    assert (8, 8) not in result_of(new, "matmul")


# -- ReorderTakeAfterMatmul ------------------------------------------------------------------------


def indices(*values):
    return relax.const(np.array(values, "int64"))


@pytest.mark.parametrize("mode", ["fast", "wrap", "clip", "nan"])
def test_columns_are_taken_of_the_product(mode):
    at = indices(2, 0, -1, 1) if mode == "fast" else indices(2, 0, 7, 1)

    def build(e, x, w):
        return op.matmul(x, e(op.take(w, at, axis=1, mode=mode)))

    new = changes(take, build, (2, n, 4), (4, 3), n=3)
    assert result_of(new, "take") == [(2, "n", 4)]
    changes(take, build, (4,), (4, 3))


def test_each_row_of_a_batch_takes_its_matrix_of_the_product():
    at = indices(2, 0, -1)

    def build(e, x, w):
        return op.matmul(x, e(op.take(w, at, axis=0)))

    new = changes(take, build, (3, 2, 4), (3, 4, 5))
    assert result_of(new, "matmul") == [(3, 2, 15)]


def test_an_index_out_of_bounds_is_an_error_as_before():
    def build(e, x, w, at):
        return op.matmul(x, e(op.take(w, e(op.astype(at, "int64")), axis=0)))

    mod = model(build, (3, 2, 4), (3, 4, 5), (3,), dtype="float32")
    args = np.ones((3, 2, 4), "float32"), np.ones((3, 4, 5), "float32"), np.float32([0, 1, 3])
    for each in (mod, take(mod)):
        with pytest.raises(VMValueError):
            build_interpreted(each)["main"](*args)


def test_takes_of_what_is_summed_over_stay():
    at = indices(2, 0, 1)
    refuses(take, lambda e, x, w: op.matmul(x, e(op.take(w, at, axis=0))), (2, 3), (4, 5))
    refuses(take, lambda e, x, w: op.matmul(x, e(op.take(w, at, axis=0))), (4, 3), (3,))
    refuses(take, lambda e, x, w: op.matmul(x, e(op.take(w, at))), (2, 3), (4, 5))
    refuses(take, lambda e, x, w: op.matmul(x, e(op.take(w, at, axis=0))), (1, 2, 4), (3, 4, 5))


# -- ReorderPermuteDimsAfterConcat -----------------------------------------------------------------


def test_the_form_of_one_permutation():
    becomes(
        concat,
        """
        @R.function
        def main(a: R.Tensor((2, 4)), b: R.Tensor((3, 4)), c: R.Tensor((1, 4))):
            with R.dataflow():
                lv = R.permute_dims(a)
                lv1 = R.permute_dims(b, axes=[1, 0])
                lv2 = R.permute_dims(c, axes=[-1, 0])
                gv = R.concat((lv, lv1, lv2), axis=1)
                R.output(gv)
            return gv
        """,
        """
        @R.function
        def main(a: R.Tensor((2, 4)), b: R.Tensor((3, 4)), c: R.Tensor((1, 4))):
            with R.dataflow():
                lv = R.concat((a, b, c), axis=0)
                gv = R.permute_dims(lv, axes=[1, 0])
                R.output(gv)
            return gv
        """,
    )


def joined(e, *parts, axis=-1, axes=((1, 2, 0), (1, 2, 0))):
    turns = [e(op.permute_dims(p, a)) for p, a in zip(parts, axes)]
    return op.concat(relax.Tuple(turns), axis=axis)


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_every_axis_finds_its_place(axis):
    shape = [2, 3, 4]
    shape[(1, 2, 0)[axis]] = 5
    changes(concat, lambda e, a, b: joined(e, a, b, axis=axis), (2, 3, 4), tuple(shape))


def test_other_permutations_and_parts_stay():
    def half(e, a, b):
        return op.concat(relax.Tuple([e(op.permute_dims(a)), b]))

    cube = (2, 2, 2)
    refuses(concat, lambda e, a, b: joined(e, a, b, axes=((1, 2, 0), (1, 0, 2))), cube, cube)
    refuses(concat, half, (2, 3), (3, 2))
    refuses(concat, lambda e, a: op.concat(relax.Tuple([e(op.permute_dims(a))])), (2, 3))


# -- FuseTransposeMatmul ---------------------------------------------------------------------------


def by_transposed(e, x, w):
    rank = len(w.struct_info.dims)
    return op.matmul(x, e(op.permute_dims(w, [*range(rank - 2), rank - 1, rank - 2])))


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 4), (5, 4)),
        ((4,), (5, 4)),
        ((2, 3, 4), (5, 4)),
        ((2, 3, 4), (2, 5, 4)),
        ((2, 1, 3, 4), (3, 5, 4)),
        ((3, 0), (5, 0)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_a_product_with_a_transposed_operand_is_one_kernel(shapes, dtype):
    mod = model(by_transposed, *shapes, dtype=dtype)
    new = transposed(mod)
    assert "NT_matmul" in new
    assert [b.value.op.name for b in new["main"].body.blocks[0].bindings[:1]] == ["relax.call_tir"]
    rng = np.random.default_rng(0)
    same_results(mod, new, *(rng.integers(-9, 9, s).astype(dtype) for s in shapes))


def test_sizes_that_may_differ_when_it_runs_stay():
    refuses(transposed, by_transposed, (n, TirVar("m", "int64")), (5, TirVar("k", "int64")))
    mod = model(by_transposed, (3, n), (5, n), dtype="float32")
    same_results(mod, transposed(mod), np.ones((3, 4), "float32"), np.ones((5, 4), "float32"))


def test_equal_products_share_a_kernel_and_other_readers_keep_the_transposed():
    def build(e, x, w):
        turned = e(op.permute_dims(w))
        return [e(op.matmul(x, turned)), e(op.matmul(e(op.exp(x)), turned)), turned]

    mod = model(build, (3, 4), (5, 4), dtype="float32")
    new = transposed(mod)
    assert sorted(g.name_hint for g in new) == ["NT_matmul", "main"]
    rng = np.random.default_rng(0)
    same_results(mod, new, *(rng.standard_normal(s, "float32") for s in ((3, 4), (5, 4))))


def test_other_products_and_permutations_stay():
    refuses(transposed, lambda e, x, w: op.matmul(x, w), (3, 4), (4, 5))
    refuses(transposed, lambda e, x, w: op.matmul(e(op.permute_dims(x)), w), (4, 3), (4, 5))
    refuses(
        transposed,
        lambda e, x, w: op.matmul(x, e(op.permute_dims(w, (1, 0, 2)))),
        (2, 3, 4),
        (4, 2, 5),
    )


@pytest.mark.parametrize("run", [order, expand, take, transposed])
def test_what_may_be_written_into_in_between_stays(run):
    stays(
        run,
        """
        @R.function(pure=False)
        def main(x: R.Tensor((2, 2), "float32"), w: R.Tensor((2, 2), "float32")):
            a = R.permute_dims(w)
            b = R.add(w, x)
            c = R.take(w, R.const([1, 0], "int64"), axis=1)
            d = R.matmul(w, R.const([[1, 2], [3, 4]], "float32"))
            _ = R.call_packed("test.write", w, sinfo_args=R.Tuple())
            return (R.matmul(x, a), R.matmul(x, b), R.matmul(x, c), R.matmul(x, d))
        """,
    )


@pytest.mark.parametrize("run", [order, expand, take, concat, transposed])
def test_thousands_of_products(run):
    info = relax.TensorStructInfo((2, 2), "float32")
    x = relax.Var("x", info)
    last, bindings = x, []
    steps = op.permute_dims, lambda v: op.matmul(x, v), lambda v: op.add(v, x)
    for _ in range(500):
        for make in (*steps, lambda v: op.matmul(v, x)):
            var = relax.Var(f"v{len(bindings)}", info)
            bindings.append(relax.VarBinding(var, make(last)))
            last = var
    body = relax.SeqExpr([relax.BindingBlock(bindings)], last)
    mod = IRModule({"main": relax.Function([x], body).with_attr("global_symbol", "main")})
    assert "main" in run(mod)
