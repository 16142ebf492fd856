"""pairwise_coupling: probabilities of classes from those of pairs."""

from __future__ import annotations

import numpy as np
from op_table import Case, T, check, check_errors

from relaxvm import relax
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate

CASES = [
    Case(R.pairwise_coupling, T("n", 3, low=0.05, high=0.95), num_classes=3,
         dtypes=("float32", "float64")),
    Case(R.pairwise_coupling, T("n", "one", low=0.05, high=0.95), num_classes=2,
         dtypes=("float32",)),
    Case(R.pairwise_coupling, T(0, 6), num_classes=4, dtypes=("float32",)),
]  # fmt: skip


def test_the_machine_gives_the_meaning():
    check(CASES)


def test_shares_that_agree_with_probabilities_give_them():
    p = np.array([0.1, 0.2, 0.3, 0.4])
    pairs = [p[i] / (p[i] + p[j]) for i in range(4) for j in range(i + 1, 4)]
    result = evaluate(R.pairwise_coupling(relax.const(np.array([pairs])), 4))
    np.testing.assert_allclose(result, [p], atol=2e-2)
    assert abs(result.sum() - 1) < 1e-6


def test_columns_are_pairs_of_classes():
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    check_errors(
        [
            (lambda: R.pairwise_coupling(x, 4), "x: wanted 6 columns, one for each two classes"),
            (lambda: R.pairwise_coupling(x, 1), "num_classes: wanted at least 2, got 1"),
        ]
    )
