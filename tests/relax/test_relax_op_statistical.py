"""Reductions, running sums, median, argmax: against their meanings, dtype by dtype, and their
mistakes.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx_reference import run_onnx, variables
from op_table import FLOATS, INTS, NUMBERS, Case, T, check, check_errors, check_gradients, thinned

from relaxvm import relax, tir
from relaxvm.base import StructInfoError, VMError
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.runtime import VirtualMachine, cpu


def special(rng, shape):
    """Infinities, NaN and ordinary numbers, in different rows."""
    values = rng.uniform(-3, 3, shape)
    flat = values.reshape(-1)
    flat[: min(4, flat.size)] = np.array([-np.inf, -np.inf, np.nan, np.inf])[: flat.size]
    return values


def distinct(rng, shape):
    """Elements that are at least 0.5 apart, for gradients of choices."""
    return rng.permutation(np.prod(shape, dtype=int)).reshape(shape) * 0.5 - 2


def tied(rng, shape):
    return rng.integers(0, 3, shape)


def less_known(d):
    return relax.TensorStructInfo(None, d, ndim=2)


def reductions(op, dtypes, **more):
    return [
        Case(op, T("n", 4), dtypes=dtypes, **more),
        Case(op, T("n", 4), dtypes=dtypes, axis=-1, **more),
        Case(op, T(2, "n", 3), dtypes=dtypes, axis=(0, -2), keepdims=True, **more),
        Case(op, T(3, 1), dtypes=dtypes, axis=[1], slow=True, **more),
        Case(op, T(), dtypes=dtypes, slow=True, **more),
        Case(op, T(2, 3), dtypes=dtypes, axis=(), slow=True, **more),
        Case(op, T(2, 0, 3), dtypes=dtypes, axis=1, grad=False, **more),
        Case(op, T("zero", 3), dtypes=dtypes, axis=1, keepdims=True, slow=True, **more),
        Case(op, T("n", 4, info=less_known), dtypes=dtypes, axis=0, slow=True, **more),
    ]


def wide_values(rng, shape):
    return rng.uniform(1000, 1001, shape)


def with_zeros(rng, shape):
    """No zero, one, and several of them in a row."""
    made = rng.uniform(0.5, 2, shape)
    made[..., ::3] *= rng.integers(0, 2, made[..., ::3].shape)
    made[0] = np.maximum(made[0], 0.25)
    return made


CASES = [
    *reductions(R.sum, NUMBERS, count=12),
    *reductions(R.prod, NUMBERS, count=12),
    *reductions(R.mean, FLOATS, count=12),
    *reductions(R.variance, FLOATS, count=12),
    *reductions(R.logsumexp, FLOATS, count=12),
    Case(R.std, T("n", 4), axis=1, count=4),
    Case(R.std, T(3, 4), keepdims=True, count=12),
    Case(R.std, T(0), grad=False),
    Case(
        R.variance,
        T(3, 50, data=wide_values),
        axis=1,
        dtypes=("float32", "float64"),
        atol=1e-4,
        grad=False,
    ),
    Case(R.sum, T(4, 200, low=0, high=3), axis=1, dtypes=("float16", "bfloat16"), grad=False),
    Case(R.prod, T(2, 3, data=[[0.0, 2, 3], [0, 0, 5]]), axis=1),
    Case(R.logsumexp, T(2, 3, data=[[1e4, 1e4, 0], [-1e4, -1e4, -1e4]]), axis=1, grad=False),
    Case(R.logsumexp, T(3, 4, data=special), axis=1, grad=False),
    *[
        case
        for op in (R.max, R.min)
        for case in [
            Case(op, T("n", 4, data=distinct), dtypes=NUMBERS, exact=True),
            Case(
                op,
                T(2, "n", 3, data=distinct),
                axis=(0, 2),
                keepdims=True,
                dtypes=NUMBERS,
                exact=True,
            ),
            Case(op, T(3, 4, data=special), axis=1, exact=True, grad=False),
            Case(op, T(2, 3, data=[[-np.inf] * 3, [np.inf] * 3]), axis=1, exact=True, grad=False),
            Case(op, T(2, 0), axis=1, dtypes=NUMBERS, exact=True, grad=False),
            Case(op, T(), dtypes=NUMBERS, exact=True, slow=True),
        ]
    ],
    *[
        case
        for op in (R.argmax, R.argmin)
        for case in [
            Case(op, T("n", 4), dtypes=NUMBERS),
            Case(op, T("n", 4, data=tied), axis=-1, dtypes=NUMBERS),
            Case(op, T(2, "n", 3, data=tied), axis=1, keepdims=True, dtypes=NUMBERS),
            Case(op, T(3, 4, data=special), axis=1),
            Case(op, T(3, data=[-np.inf] * 3)),
            Case(op, T(3, data=[np.inf] * 3)),
            Case(op, T(2, "n", data=[[np.nan, np.nan, 1], [1, np.nan, 3]]), axis=1),
            Case(op, T("zero", 2), axis=1, keepdims=True),
            Case(op, T("zero", "zero"), axis=0, slow=True),
            Case(op, T(), keepdims=True),
            Case(op, T("n", 4), axis=1, dtypes=("bool",)),
        ]
    ],
    *[
        case
        for op in (R.max, R.min)
        for case in [
            Case(op, T("n", 4), axis=-1, keepdims=True, dtypes=("bool",)),
            Case(op, T(3, "zero"), axis=1, dtypes=("bool",)),
        ]
    ],
    *[
        case
        for exclusive in (False, True)
        for case in [
            Case(R.cumprod, T(3, 5, data=with_zeros), axis=0, exclusive=exclusive, count=3),
            Case(R.cumprod, T(3, 5, data=with_zeros), axis=1, exclusive=exclusive, count=5),
            Case(R.cumprod, T(3, 5, data=with_zeros), exclusive=exclusive, count=15),
            Case(
                R.grad.cumprod_backward,
                T("n", 4),
                T("n", 4, data=with_zeros),
                axis=-1,
                exclusive=exclusive,
                count=4,
            ),
            Case(R.grad.cumprod_backward, T("zero", 2), T("zero", 2), exclusive=exclusive),
        ]
    ],
    *[
        case
        for op in (R.cumsum, R.cumprod)
        for case in [
            Case(op, T("n", 4), axis=-1, dtypes=NUMBERS, count=4),
            Case(op, T("n", 4), dtypes=NUMBERS, count=12, slow=True),
            Case(op, T(2, "n", 3), axis=1, exclusive=True, dtypes=NUMBERS, count=4),
            Case(op, T(2, 3), exclusive=True, count=6),
            Case(op, T("n"), axis=0, dtype="float64", dtypes=("float32", "int8")),
            Case(op, T(5), axis=0, dtype="int32", dtypes=("int8", "uint16", "bool")),
            Case(op, T(5), axis=0, dtype="float16", dtypes=("float32", "int32")),
            Case(
                op,
                T(3, 2),
                axis=0,
                dtype="bfloat16",
                dtypes=("float16", "bfloat16", "float64"),
                grad=False,
            ),
            Case(op, T(0, 3), axis=0, exclusive=True),
            Case(op, T("zero", 3), slow=True),
            Case(op, T(), slow=True),
        ]
    ],
    Case(R.median, T("n", 4, data=distinct), axis=1, dtypes=NUMBERS),
    Case(R.median, T("n", 4, data=tied), axis=0, keepdims=True, dtypes=NUMBERS, grad=False),
    Case(R.median, T(3, 4, data=distinct), dtypes=NUMBERS),
    Case(R.median, T(2, "n", 3, data=distinct), axis=[0, 2], keepdims=True, dtypes=NUMBERS),
    Case(R.median, T(3, 4, data=special), axis=-1, grad=False),
    Case(R.median, T(2, "zero"), axis=[1], dtypes=("float32", "int8"), grad=False),
    Case(R.median, T(0), dtypes=("float16", "int64"), grad=False),
    Case(R.median, T(), slow=True),
]


def test_reductions_agree_with_their_meanings():
    check(thinned(CASES, 2), dtypes=("float32", "int8"), in_turn=True)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, "bool"])
@pytest.mark.slow
def test_reductions_agree_on_every_dtype(dtype):
    check(CASES, dtypes=(dtype,), slow=True)


def test_the_gradient_of_cumprod_wants_that_of_its_result():
    x, g = (relax.Var("x", relax.TensorStructInfo((2, n), "float32")) for n in (3, 4))
    with pytest.raises(StructInfoError, match=r"output_grad: wanted shape \(2, 3\), got \(2, 4\)"):
        R.grad.cumprod_backward(g, x)


def test_gradients_of_reductions():
    check_gradients(CASES)


def test_sum_of_float16_accumulates_in_float32():
    x = np.full(4096, 1.0, "float16")
    var = relax.Var("x", relax.TensorStructInfo((4096,), "float16"))
    assert evaluate(R.sum(var), {var: x}) == np.float16(4096)


def test_median_of_one_axis_has_an_index_and_of_several_none():
    x = relax.Var("x", relax.TensorStructInfo((2, 3, 4), "float32"))
    pair = relax.TupleStructInfo(
        (relax.TensorStructInfo((2, 4), "float32"), relax.TensorStructInfo((2, 4), "int64"))
    )
    assert R.median(x, 1).struct_info is pair
    assert R.median(x, [1]).struct_info is pair
    assert R.median(x).struct_info is relax.TensorStructInfo((), "float32")


def test_reductions_of_unknown_rank():
    x = relax.Var("x", relax.TensorStructInfo(None, "float32"))
    assert R.sum(x).struct_info.ndim == 0
    assert R.sum(x, axis=1).struct_info.ndim == -1
    assert R.cumsum(x).struct_info.ndim == 1
    assert R.argmax(x, axis=3).struct_info is relax.TensorStructInfo(None, "int64")


@pytest.mark.parametrize("op", [R.argmax, R.argmin])
def test_an_index_among_no_elements_is_an_error_when_it_turns_out(op):
    x = relax.Var("x", relax.TensorStructInfo((2, tir.Var("n", "int64")), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op(x, axis=1))
        builder.emit_func_output(out)
    main = VirtualMachine(relax.build(builder.get(), target="llvm"), cpu())["main"]
    assert main(np.ones((2, 3), "float32")).numpy().tolist() == [0, 0]
    with pytest.raises(VMError, match="there are no elements to choose from"):
        main(np.ones((2, 0), "float32"))
    with pytest.raises(VMError, match="there are no elements to choose from"):
        evaluate(op(x, axis=1), {x: np.ones((2, 0), "float32")})


ONNX = [
    ("ReduceLogSumExp", R.logsumexp, dict(keepdims=0), {}),
    ("ReduceMean", R.mean, dict(keepdims=1), dict(keepdims=True)),
    ("ReduceProd", R.prod, dict(keepdims=1), dict(keepdims=True)),
    ("ArgMax", R.argmax, dict(axis=1, keepdims=0), dict(axis=1)),
    ("ArgMin", R.argmin, dict(axis=-1), dict(axis=-1, keepdims=True)),
]


@pytest.mark.parametrize(("name", "op", "onnx_attrs", "attrs"), ONNX)
def test_meanings_of_reductions_are_those_of_onnx(name, op, onnx_attrs, attrs):
    x = np.random.default_rng(1).integers(-4, 4, (3, 4, 2)).astype("float32")
    want = run_onnx(name, [x], **onnx_attrs)
    (param,) = variables([x])
    got = evaluate(op(param, **attrs), {param: x})
    assert got.shape == want.shape
    assert np.allclose(got, want, rtol=1e-5)


def test_running_sums_of_floats_in_integers_saturate_as_astype_does():
    ends = T(6, data=[np.inf, -np.inf, np.nan, 3e9, -3e9, 1.5])
    check([Case(op, ends, dtype="int32", dtypes=FLOATS) for op in (R.cumsum, R.cumprod)])


@pytest.mark.parametrize("exclusive", [False, True])
def test_cumsum_is_that_of_onnx(exclusive):
    x = np.random.default_rng(1).uniform(-4, 4, (3, 4)).astype("float32")
    want = run_onnx("CumSum", [x, np.array(1)], exclusive=int(exclusive))
    (param,) = variables([x])
    got = evaluate(R.cumsum(param, axis=1, exclusive=exclusive), {param: x})
    assert np.allclose(got, want, rtol=1e-5, atol=1e-6)


def test_mistakes_in_reductions_are_explained():
    f = relax.Var("f", relax.TensorStructInfo((2, 3), "float32"))
    i = relax.Var("i", relax.TensorStructInfo((2, 3), "int32"))
    b = relax.Var("b", relax.TensorStructInfo((2, 3), "bool"))
    empty = relax.Var("empty", relax.TensorStructInfo((2, 0), "float32"))
    check_errors(
        [
            (lambda: R.sum(f, axis=2), "sum: axis: wanted -2 to 1 for 2 dimensions, got 2"),
            (lambda: R.sum(f, axis=(0, -2)), r"sum: axis: an axis stands twice in \[0, -2\]"),
            (lambda: R.sum(f, axis="x"), "sum: attribute axis: wanted int"),
            (lambda: R.mean(f, axis=1.5), "mean: attribute axis: wanted int"),
            (lambda: R.median(f, axis=("x",)), "median: axis: wanted an int, got str"),
            (lambda: R.sum(b), "sum: x: wanted a number's dtype .*got bool"),
            (lambda: R.mean(i), "mean: x: wanted a floating dtype, got int32"),
            (lambda: R.variance(i), "variance: x: wanted a floating dtype, got int32"),
            (lambda: R.argmax(f, axis=-3), "argmax: axis: wanted -2 to 1 for 2 dimensions, got -3"),
            (lambda: R.argmax(empty, axis=1), "argmax: x: axis 1 is empty: there are no elements"),
            (lambda: R.argmin(f, axis=[0, 1]), "argmin: attribute axis: wanted int"),
            (lambda: R.cumsum(f, axis=5), "cumsum: axis: wanted -2 to 1 for 2 dimensions, got 5"),
            (lambda: R.cumsum(b), "cumsum: data: wanted a number's dtype"),
            (lambda: R.cumsum(f, dtype="bool"), "cumsum: dtype: wanted a number's dtype, got bool"),
            (lambda: R.median(f, axis=[0, 0]), "median: axis: an axis stands twice"),
            (lambda: R.max(relax.ShapeExpr([2])), "max: x: wanted a tensor, got"),
        ]
    )
