"""matmul, linear, einsum, dot, outer, linalg.det and linalg.inv: against their meanings, dtype by
dtype, and their mistakes.
"""

from __future__ import annotations

import numpy as np
import pytest
from op_table import FLOATS, INTS, NUMBERS, Case, T, check, check_errors, check_gradients

from relaxvm import relax, tir
from relaxvm.base import StructInfoError, VMError
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.op.names import ops
from relaxvm.runtime import VirtualMachine, cpu


def matrix_of_symbols(rank):
    return lambda d: relax.TensorStructInfo(None, d, ndim=rank)


def regular(rng, shape):
    """Matrices that are far from singular."""
    return rng.uniform(-0.5, 0.5, shape) + np.eye(*shape[-2:]) * 2


CASES = [
    Case(R.linalg.det, T("n", "m", "m", data=regular), rtol=2e-2),
    Case(R.linalg.det, T(3, 3, data=regular), rtol=2e-2),
    Case(R.linalg.det, T("zero", 2, 2, data=regular)),
    Case(R.linalg.inv, T("n", 3, 3, data=regular), rtol=2e-2, atol=1e-2),
    Case(R.linalg.inv, T(1, 1, data=regular), rtol=2e-2),
    Case(R.matmul, T("n", 4), T(4, "m"), dtypes=NUMBERS, count=4),
    Case(R.matmul, T("n", "k"), T("k", 2), dtypes=NUMBERS, count=5, slow=True),
    Case(R.matmul, T(4), T(4), dtypes=NUMBERS, count=4),
    Case(R.matmul, T("n"), T("n", 2), count=4),
    Case(R.matmul, T(2, 1, "n", 4), T(4), count=4),
    Case(R.matmul, T(4), T(3, 4, 2), count=4),
    Case(R.matmul, T("m", 1, 2, 3), T(4, 3, 2), count=4),
    Case(R.matmul, T("n", 2, 3), T("m", 3, 2), sizes={"m": 3}, count=3, grad=False),
    Case(R.matmul, T("n", 2, 3), T("one", 3, 2), count=3, grad=False, dtypes=("float32", "int16")),
    Case(R.matmul, T("one", 2, 3), T("n", 3, 2), count=3, slow=True, grad=False),
    Case(R.matmul, T(2, 0), T(0, 3), dtypes=("float32", "int32")),
    Case(R.matmul, T("zero", 3), T(3, 2), slow=True),
    Case(R.matmul, T(1, 1), T(1, 1), slow=True),
    Case(
        R.matmul,
        T("n", 4),
        T(4, "m"),
        out_dtype="float32",
        dtypes=(*FLOATS, "int8"),
        count=4,
        grad=False,
    ),
    Case(R.matmul, T("n", 40), T(40, 2), out_dtype="int32", dtypes=("int8", "uint8"), grad=False),
    Case(
        R.matmul,
        T(2, 4, dtype="uint8"),
        T(4, 2, dtype="int8"),
        out_dtype="int32",
        dtypes=("int32",),
    ),
    Case(
        R.matmul,
        T(2, 4),
        T(4, 2),
        out_dtype="float16",
        dtypes=("float32", "float64"),
        count=4,
        grad=False,
    ),
    Case(
        R.matmul,
        T(2, 200, low=0.9, high=1.1),
        T(200, 2, low=0.9, high=1.1),
        dtypes=("float16", "bfloat16"),
    ),
    Case(
        R.matmul, T("n", 4, info=matrix_of_symbols(2)), T(4, 2, info=matrix_of_symbols(2)), count=4
    ),
    Case(R.dot, T("n", 4), T(4, "m"), dtypes=NUMBERS, count=4),
    Case(R.dot, T(4), T(4), dtypes=NUMBERS, count=4),
    Case(R.dot, T(2, 3), T(2, 3, 4), count=4),
    Case(R.dot, T(2, 3), T(3), count=4, slow=True),
    Case(R.dot, T(3), T(2, 3, 1), count=4, slow=True),
    Case(R.dot, T(), T("n", 3)),
    Case(R.dot, T(2), T(), slow=True),
    Case(R.dot, T(2, 0), T(0, 2), slow=True),
    Case(R.outer, T("n"), T(4), dtypes=NUMBERS),
    Case(R.outer, T(0), T(4), slow=True),
    Case(R.outer, T(1), T("m"), slow=True),
    Case(R.einsum, (T("n", 4), T(4, "m")), subscripts="ij,jk->ik", dtypes=NUMBERS, count=4),
    Case(R.einsum, (T("n", 4), T(4, "m")), subscripts="ij,jk", count=4, slow=True),
    Case(R.einsum, (T(3, 2),), subscripts="ba", dtypes=NUMBERS),
    Case(R.einsum, (T("n", "n"),), subscripts="ii", count=3),
    Case(R.einsum, (T(3, 3),), subscripts="ii->i"),
    Case(R.einsum, (T(3, 4, 3),), subscripts="iji->j", count=3),
    Case(R.einsum, (T(2, "n"),), subscripts="ij->", count=6),
    Case(R.einsum, (T(2, 3), T(4)), subscripts="ij,k->ik", count=3),
    Case(
        R.einsum, (T(2, 3), T(3, 4), T(4, 2)), subscripts="ij,jk,kl->il", dtypes=NUMBERS, count=20
    ),
    Case(R.einsum, (T(2, 3), T(2, 3), T(3)), subscripts="ij,ij,j->i", count=9),
    Case(R.einsum, (T(2, 3, 4, 5), T(5, 2)), subscripts="...ij,jk->...ik", count=5),
    Case(R.einsum, (T(2, 3), T("n", 3, 4)), subscripts="...a,...ab", sizes={"n": 2}, count=3),
    Case(R.einsum, (T(2, 1, 3), T(4, 3)), subscripts="...a,...a->...", count=3),
    Case(R.einsum, (T(2, 3, 4),), subscripts="...a -> a...", slow=True),
    Case(R.einsum, (T(3, 2, 3),), subscripts="i...i->...", slow=True),
    Case(R.einsum, (T(3, 1), T(4, 2)), subscripts="ij,jk->ik", count=4, slow=True),
    Case(R.einsum, (T(2, 0), T(0, 3)), subscripts="ij,jk->ik"),
    Case(R.einsum, (T(), T(2)), subscripts=",i->i", slow=True),
    Case(
        R.einsum,
        (T(2, "n", 4, info=lambda d: relax.TensorStructInfo(None, d, ndim=3)),),
        subscripts="abc->cb",
        count=2,
    ),
    Case(R.einsum, (T(2, 4), T("n", 2, 4), T("n")), subscripts="bk,nbk,n->b", count=12, slow=True),
]


def test_products_agree_with_their_meanings():
    check(CASES, dtypes=("float32", "int8"), in_turn=True)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.slow
def test_products_agree_on_every_dtype(dtype):
    check(CASES, dtypes=(dtype,), slow=True)


def random_einsum(rng):
    """Two or three operands over four letters of random sizes, and a result of some of them."""
    sizes = dict(zip("abcd", rng.integers(1, 4, 4).tolist()))
    terms = [
        "".join(rng.choice(list("abcd"), rng.integers(0, 4))) for _ in range(rng.integers(1, 4))
    ]
    used = sorted(set("".join(terms)))
    result = rng.permutation(used)[: rng.integers(0, len(used) + 1)] if used else []
    operands = tuple(T(*(sizes[c] for c in t)) for t in terms)
    return Case(R.einsum, operands, subscripts=f"{','.join(terms)}->{''.join(result)}", count=27)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_random_subscripts_agree(seed):
    rng = np.random.default_rng(seed)
    cases = [random_einsum(rng) for _ in range(30)]
    check(cases, dtypes=("float64",))
    check_gradients(cases)


def test_gradients_of_products():
    check_gradients(CASES)


def variable(name, *shape, dtype="float32"):
    return relax.Var(name, relax.TensorStructInfo(shape, dtype))


def test_linear_is_matmul_with_the_weight_turned_and_a_bias():
    rng = np.random.default_rng(0)
    x, w, b = variable("x", 2, 3), variable("w", 4, 3), variable("b", 4)
    values = {
        v: rng.uniform(-1, 1, [d.value for d in v.struct_info.dims]).astype("float32")
        for v in (x, w, b)
    }
    call = R.linear(x, w, b)
    assert call.struct_info is relax.TensorStructInfo((2, 4), "float32")
    want = values[x] @ values[w].T + values[b]
    assert np.allclose(evaluate(call, values), want, atol=1e-6)
    assert R.linear(x, w, out_dtype="float64").struct_info.dtype == "float64"
    assert R.linear(x, variable("v", 3)).struct_info is relax.TensorStructInfo((2,), "float32")


def run(params, make):
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(*params))
        builder.emit_func_output(out)
    return VirtualMachine(relax.build(builder.get(), target="llvm"), cpu())["main"]


def test_inner_dimensions_that_differ_at_run_time_are_refused_before_memory_is_read():
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    for make in (R.matmul, R.dot, lambda a, b: R.einsum((a, b), "ij,jk->ik")):
        main = run([variable("a", 2, n), variable("b", m, 3)], make)
        ones = np.ones
        assert np.all(main(ones((2, 4), "float32"), ones((4, 3), "float32")).numpy() == 4)
        with pytest.raises(VMError, match=r"(matmul|dot|einsum)_sizes.*wanted [mn] = [45]"):
            main(ones((2, 4), "float32"), ones((5, 3), "float32"))


def test_batches_that_do_not_broadcast_at_run_time_are_refused():
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    main = run([variable("a", n, 2, 2), variable("b", m, 2, 2)], R.matmul)
    ones = np.ones
    assert main(ones((1, 2, 2), "float32"), ones((5, 2, 2), "float32")).shape == (5, 2, 2)
    with pytest.raises(VMError):
        main(ones((2, 2, 2), "float32"), ones((5, 2, 2), "float32"))


def test_shapes_of_products_with_little_known():
    x, y = relax.Var("x", relax.TensorStructInfo(None, "float32")), variable("y", 3, 4)
    half = relax.Var("half", relax.TensorStructInfo(None, "float32", ndim=3))
    untyped = relax.Var("untyped", relax.TensorStructInfo((2, 3), "void"))
    assert R.matmul(x, y).struct_info is relax.TensorStructInfo(None, "float32")
    assert R.matmul(half, y).struct_info is relax.TensorStructInfo(None, "float32", ndim=3)
    assert R.matmul(untyped, y).struct_info.dims is not None
    assert R.einsum((x, y), "ij,jk->ik").struct_info.ndim == 2
    assert R.einsum((x, y), "...j,jk->...k").struct_info.ndim == -1


def test_gradients_of_products_need_ranks():
    x, y = relax.Var("x", relax.TensorStructInfo(None, "float32")), variable("y", 3, 4)
    gy = relax.Var("gy", relax.TensorStructInfo(None, "float32"))
    for call in (R.matmul(x, y), R.dot(x, y), R.einsum((x, y), "...j,jk->...k")):
        with pytest.raises(StructInfoError, match="its gradient needs operands of known rank"):
            call.op.grad(ops, call, gy, gy)


def test_a_singular_matrix_has_no_inverse():
    x = relax.Var("x", relax.TensorStructInfo((2, 2), "float32"))
    ones = np.ones((2, 2), "float32")
    assert evaluate(R.linalg.det(x), {x: ones}) == 0.0
    with pytest.raises(VMError, match="inv: a matrix is singular"):
        evaluate(R.linalg.inv(x), {x: ones})


def test_matrices_that_are_not_square_are_refused():
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    vector = relax.Var("v", relax.TensorStructInfo((2,), "float32"))
    for op in (R.linalg.det, R.linalg.inv):
        check_errors(
            [
                (lambda op=op: op(x), "x: wanted square matrices, got 2 rows of 3"),
                (lambda op=op: op(vector), "x: wanted 2 or more dimensions, got 1"),
            ]
        )


def test_mistakes_in_products_are_explained():
    a, b, v = variable("a", 2, 3), variable("b", 4, 5), variable("v", 3)
    i = variable("i", 3, 2, dtype="int32")
    scalar, cube = variable("scalar"), variable("cube", 2, 3, 4)
    wide = variable("wide", 5, 4, 2)
    check_errors(
        [
            (
                lambda: R.matmul(a, b),
                "matmul: inner dimensions differ: the last one of x1 is 3, dimension -2 of x2 is 4",
            ),
            (lambda: R.matmul(a, scalar), "matmul: x2: wanted at least 1 dimension, got a scalar"),
            (lambda: R.matmul(a, i), "matmul: the dtypes differ: x1 is float32, x2 is int32"),
            (lambda: R.matmul(cube, wide), "the shapes do not broadcast"),
            (
                lambda: R.matmul(a, v, out_dtype="int32"),
                "matmul: out_dtype: x1 is float32, so it is a floating",
            ),
            (
                lambda: R.matmul(a, v, out_dtype="bool"),
                "matmul: out_dtype: wanted a number's dtype, got bool",
            ),
            (lambda: R.linear(v, cube), "linear: weight: wanted 1 or 2 dimensions, got 3"),
            (lambda: R.dot(a, b), "dot: inner dimensions differ: 3 in x1 and 4 in x2"),
            (lambda: R.outer(a, v), "outer: x1: wanted 1 dimensions, got 2"),
            (
                lambda: R.einsum((a, b), "ij,jk->ik"),
                "einsum: subscript 'j' is 3 in operand 0 and 4 in operand 1",
            ),
            (
                lambda: R.einsum((a,), "ij,jk->ik"),
                "einsum: subscripts: .* is for 2 operands, got 1",
            ),
            (
                lambda: R.einsum((a,), "ijk"),
                "einsum: operand 0: 'ijk' names 3 axes, it has 2 dimensions",
            ),
            (
                lambda: R.einsum((a,), "i->i"),
                "einsum: operand 0: 'i' names 1 axes, it has 2 dimensions",
            ),
            (
                lambda: R.einsum((a,), "ii->i"),
                "einsum: operand 0: subscript 'i' stands for dimensions of 2 and 3",
            ),
            (
                lambda: R.einsum((a,), "ij->ik"),
                "einsum: subscripts: 'k' of the result is in no operand",
            ),
            (lambda: R.einsum((a,), "ij->ii"), "einsum: subscripts: the result names 'i' twice"),
            (lambda: R.einsum((a,), "i1->i"), "einsum: subscripts: wanted letters.*got '1'"),
            (
                lambda: R.einsum((cube,), "...i->i"),
                "einsum: subscripts: the result of .* needs '...'",
            ),
            (lambda: R.einsum((), "->"), "einsum: operands: wanted at least one tensor"),
            (lambda: R.einsum((a, i), "ij,ki->jk"), "einsum: the dtypes differ"),
        ]
    )
