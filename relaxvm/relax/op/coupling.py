"""pairwise_coupling: what each of several classes is worth, from what it is worth against each."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ...base import StructInfoError
from ...ir import const
from ..struct_info import Expr, StructInfo, TensorStructInfo
from .infer import FLOAT, tensor
from .lower import lower_by_meaning
from .record import missing, op
from .sizes import want_equal

_ROUNDS = 100


def _numpy(x: Any, *, num_classes: int) -> Any:
    k, count = num_classes, len(x)
    share = np.zeros((count, k, k), x.dtype)
    for column, (i, j) in enumerate(itertools.combinations(range(k), 2)):
        share[:, i, j], share[:, j, i] = x[:, column], 1 - x[:, column]
    across = share.transpose(0, 2, 1)
    q = -across * share
    q[:, range(k), range(k)] = (share * share).sum(1)
    result = np.full((count, k), 1 / k, x.dtype)
    # Rows that have settled stay as they are.
    rows = np.arange(count)
    for _ in range(max(_ROUNDS, k)):
        p, own = result[rows], q[rows]
        slope = np.einsum("nij,nj->ni", own, p)
        total = (p * slope).sum(1)
        loose = np.abs(slope - total[:, None]).max(1, initial=0) >= 0.005 / k
        rows, p, own, slope, total = rows[loose], p[loose], own[loose], slope[loose], total[loose]
        if not len(rows):
            break
        for t in range(k):
            step = (total - slope[:, t]) / own[:, t, t]
            p[:, t] += step
            total = (total + step * (step * own[:, t, t] + 2 * slope[:, t])) / (1 + step) ** 2
            slope = (slope + step[:, None] * own[:, t]) / (1 + step)[:, None]
            p /= (1 + step)[:, None]
        result[rows] = p
    return result


@op(
    "pairwise_coupling",
    numpy=_numpy,
    lower=lower_by_meaning,
    grad=missing("is found in steps until it settles"),
    layout=missing("its axes have fixed meanings"),
)
def pairwise_coupling(x: Expr, num_classes: int) -> StructInfo:
    """Probabilities of classes from those of one against another, as LIBSVM has them (Wu, Lin and
    Weng 2004, the second method).

    x        [n, num_classes * (num_classes - 1) / 2]: for classes i < j in order, the probability
             of i where it is one of both; between 0 and 1, and neither of them
    returns  [n, num_classes]
    """
    info = tensor(x, "x", FLOAT, 2)
    if num_classes < 2:
        raise StructInfoError(f"num_classes: wanted at least 2, got {num_classes}")
    pairs = const(num_classes * (num_classes - 1) // 2, "int64")
    want_equal(info.dims[1], pairs, "x: wanted {b} columns, one for each two classes, got {a}")
    return TensorStructInfo((info.dims[0], const(num_classes, "int64")), info.dtype, info.vdevice)
