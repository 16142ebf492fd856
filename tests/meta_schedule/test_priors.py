"""What ships of the cost model: it is of this version, ranks kernels that it was not made from, and
is where a tuning begins.
"""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from relaxvm import meta_schedule as ms
from relaxvm import te
from relaxvm.base import LoadError
from relaxvm.ir import IRModule
from relaxvm.meta_schedule import priors
from relaxvm.meta_schedule.cost_model import XGBModel
from relaxvm.meta_schedule.regressors import rank_correlation
from relaxvm.meta_schedule.tuning import Parts
from relaxvm.tir import Schedule

TARGET = "llvm -num-cores=1"


def product(n):
    a, b = (te.placeholder((n, n), "float32", name) for name in "AB")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    return te.create_prim_func([a, b, c])


def tiled(fn, width):
    """With vectors of `width` columns inside."""
    sch = Schedule(fn)
    i, j, k = sch.get_loops(sch.get_block("C"))
    outer, inner = sch.split(j, [None, width])
    sch.reorder(i, outer, k, inner)
    sch.vectorize(inner)
    return sch


def test_the_file_is_of_this_version_and_small():
    groups = priors.priors()
    assert len(groups) >= 40
    assert priors.FILE.stat().st_size < 200_000
    assert all(min(g.costs) > 0 and len(g.costs) == len(g.features) for g in groups)


def test_kernels_that_were_left_out_are_put_in_order():
    """With a third of the kernels left out, the others rank these."""
    groups = priors.priors()
    model = XGBModel(prior=[g for i, g in enumerate(groups) if i % 3])
    guess = model._guess("")
    ranks = [
        rank_correlation(guess.predict(np.array(g.features) - g.centre), g.values())
        for g in groups[::3]
    ]
    assert statistics.median(ranks) > 0.5


def test_a_tuning_begins_with_them():
    fn = product(64)
    ctx = ms.TuneContext(IRModule({"main": fn}), target=TARGET)
    candidates = [ms.MeasureCandidate(tiled(fn, width)) for width in (1, 2, 8, 16, 64)]
    model = Parts().model(0)
    assert model.knows(ctx)
    assert not XGBModel().knows(ctx)
    scores = model.predict(ctx, candidates)
    assert np.isfinite(scores).all()
    # Trees cannot tell each from each.
    assert len(set(scores)) > 1
    np.testing.assert_array_equal(Parts().model(0).predict(ctx, candidates), scores)


def test_what_a_model_saves_becomes_a_file_of_priors_but_not_the_priors(tmp_path):
    model, out = XGBModel(prior=priors.priors()), tmp_path / "own.npz"
    model.save(tmp_path / "nothing.json")
    empty = XGBModel()
    empty.load(tmp_path / "nothing.json")
    assert not empty.data
    own = priors.priors()[0]
    assert priors.write(out, [own, ms.cost_model.FeatureGroup("one", own.features[:1], [1.0])]) == 1
    (again,) = priors.read(out)
    np.testing.assert_allclose(again.costs, own.costs)
    np.testing.assert_array_equal(again.features, own.features)


@pytest.mark.parametrize("broken", ["empty", "text", "columns", "rows"])
def test_another_file_is_refused(broken, tmp_path):
    path = tmp_path / "priors.npz"
    if broken in ("empty", "text"):
        path.write_bytes(b"" if broken == "empty" else b"no archive")
    else:
        with np.load(priors.FILE) as saved:
            parts = dict(saved)
        parts[broken] = np.array("others") if broken == "columns" else parts["rows"][:-1]
        np.savez(path, **parts)
    with pytest.raises(LoadError, match=r"priors\.npz: "):
        priors.read(path)
