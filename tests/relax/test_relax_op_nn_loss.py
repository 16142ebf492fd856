"""cross_entropy_with_logits and nll_loss."""

from __future__ import annotations

import numpy as np
import pytest
from op_table import Case, T, check, check_errors, check_gradients

from relaxvm import relax
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate

nn = R.nn


def classes(*shape: object, count: int = 4, dtype: str = "int32") -> T:
    return T(*shape, dtype=dtype, low=0, high=count - 1)


CASES = [
    Case(nn.cross_entropy_with_logits, T("n", 4), T("n", 4), count=16),
    Case(nn.cross_entropy_with_logits, T(4), T(4), count=16),
    Case(nn.cross_entropy_with_logits, T(2, 3, "n"), T(2, 3, "n"), count=64),
    Case(nn.cross_entropy_with_logits, T("zero", 4), T("zero", 4)),
    *(
        Case(
            nn.nll_loss,
            T("n", 4, 2),
            classes("n", 2),
            T(4, low=0.1, high=2.0),
            reduction=r,
            count=16,
        )
        for r in ("none", "sum", "mean")
    ),
    Case(nn.nll_loss, T("n", 4), classes("n", dtype="int64"), count=16),
    Case(nn.nll_loss, T(5, 4), classes(5, dtype="uint8"), reduction="sum", count=16),
    Case(nn.nll_loss, T(4), classes(), count=4),
    Case(nn.nll_loss, T(4), classes(), T(4), reduction="none"),
    Case(nn.nll_loss, T(4, 3), T(4, dtype="int32", data=[0, 1, 2, 1]), ignore_index=1, count=16),
    Case(nn.nll_loss, T(3, 3), T(3, dtype="int32", data=[0, 9, -1]), reduction="none", grad=False),
    Case(nn.nll_loss, T(2, 3), T(2, dtype="int64", data=[-100, -100]), grad=False),
    Case(nn.nll_loss, T("zero", 3), classes("zero"), grad=False),
]


def test_losses_mean_the_same_to_numpy_the_interpreter_and_llvm():
    check(CASES, dtypes=("float32", "bfloat16"))


@pytest.mark.slow
def test_losses_of_every_dtype():
    check(CASES, slow=True)


def test_gradients_of_losses():
    check_gradients(CASES)


def test_a_class_that_is_not_there_gives_nan_and_an_ignored_one_nothing():
    p = relax.Var("p", relax.TensorStructInfo((3, 2), "float32"))
    t = relax.Var("t", relax.TensorStructInfo((3,), "int64"))
    env = {p: np.ones((3, 2), "float32"), t: np.array([0, 2, -100])}
    got = evaluate(nn.nll_loss(p, t, reduction="none"), env)
    np.testing.assert_array_equal(got, [-1, np.nan, 0])


def test_mistakes_are_told():
    p = relax.Var("p", relax.TensorStructInfo((3, 4), "float32"))
    t = relax.Var("t", relax.TensorStructInfo((3,), "int64"))
    f = relax.Var("f", relax.TensorStructInfo((3,), "float32"))
    check_errors(
        [
            (lambda: nn.nll_loss(p, f), "targets: wanted an integer dtype, got float32"),
            (lambda: nn.nll_loss(p, p), "targets: wanted an integer dtype"),
            (lambda: nn.nll_loss(p, t, f), "weights: wanted size .*4"),
            (
                lambda: nn.nll_loss(p, t, reduction="all"),
                "reduction: wanted one of none, sum, mean",
            ),
            (lambda: nn.nll_loss(f, t), "targets: wanted 0 dimensions, got 1"),
            (lambda: nn.cross_entropy_with_logits(p, f), "labels: wanted 2 dimensions"),
            (lambda: nn.cross_entropy_with_logits(p, t), "labels: wanted a floating dtype"),
        ]
    )
