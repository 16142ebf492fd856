"""Thresholds and grids against plain numpy."""

import numpy as np
import pytest

from relaxvm.base import PassError
from relaxvm.quantize import (
    Observed,
    current_qconfig,
    grid_of,
    kl_divergence,
    percentile,
    qconfig,
    weight_grid,
)

RNG = np.random.default_rng(0)


def seen(x, bins=2048):
    limit = np.abs(x).max()
    counts = np.histogram(np.abs(x), bins, (0, limit))[0]
    return Observed(float(x.min()), float(x.max()), counts)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (0.0, 6.0), (0.5, 2.0), (-4.0, -1.0)])
def test_the_range_with_zero_in_it_is_spread_over_all_integers(dtype, low, high):
    grid = grid_of(Observed(low, high), qconfig(dtype_input=dtype))
    least, greatest = min(low, 0.0), max(high, 0.0)
    limits = np.iinfo(dtype)
    assert grid.scale == np.float32((greatest - least) / 255)
    assert grid.zero == np.rint(limits.min - least / ((greatest - least) / 255))
    ends = grid.stored(np.asarray([least, 0.0, greatest]))
    assert [*ends] == [limits.min, grid.zero, limits.max]


@pytest.mark.parametrize(("dtype", "zero"), [("int8", 0), ("uint8", 128)])
def test_a_symmetric_grid_has_127_steps_on_both_sides(dtype, zero):
    grid = grid_of(Observed(-1.0, 3.0), qconfig(symmetric=True, dtype_input=dtype))
    assert (grid.scale, grid.zero) == (np.float32(3.0 / 127), zero)
    assert [*grid.stored(np.asarray([-3.0, 3.0]))] == [zero - 127, zero + 127]


def test_global_scale_needs_nothing_that_was_seen():
    grid = grid_of(Observed(), qconfig(calibrate_mode="global_scale", global_scale=8.0))
    assert (grid.scale, grid.zero) == (np.float32(8.0 / 127), 0)


@pytest.mark.parametrize("percent", [50.0, 90.0, 99.0, 99.9, 100.0])
def test_a_percentile_is_the_end_of_the_bin_of_numpys(percent):
    x = RNG.standard_normal(100_000)
    one = seen(x)
    width = one.limit / len(one.counts)
    wanted = np.sort(np.abs(x))[round(percent * len(x) / 100) - 1]
    got = percentile(one.counts, percent) * width
    assert got - width * 1.001 <= wanted <= got * 1.000001


def plain_kl(counts, steps):
    """The formula's words, one bin at a time."""
    counts = [counts[1], *counts[1:]]
    best = None
    for n in range(steps, len(counts) + 1):
        p = [float(c) for c in counts[:n]]
        p[-1] += sum(counts[n:])
        q = [0.0] * n
        for k in range(steps):
            first, last = k * n // steps, (k + 1) * n // steps
            part = counts[first:last]
            used = sum(c > 0 for c in part)
            for j, c in enumerate(part):
                q[first + j] = sum(part) / used if c > 0 else 0.0
        total_p, total_q = sum(p), max(sum(q), 1.0)
        loss = sum(
            a / total_p * np.log((a / total_p) / max(b / total_q, 1e-6)) for a, b in zip(p, q) if a
        )
        if best is None or loss < best[0]:
            best = loss, n + 0.5 if n < len(counts) else n
    return best[1]


@pytest.mark.parametrize("draw", ["standard_normal", "standard_cauchy", "random"])
@pytest.mark.parametrize("steps", [8, 16])
def test_kl_divergence_is_that_of_the_formula(draw, steps):
    x = np.abs(getattr(RNG, draw)(3000))
    counts = np.histogram(x, 70, (0, x.max()))[0]
    assert kl_divergence(counts, steps) == plain_kl(counts.tolist(), steps)


def test_kl_divergence_keeps_what_is_even_and_cuts_a_far_outlier():
    even = seen(RNG.random(100_000))
    assert kl_divergence(even.counts) > 2000
    far = seen(np.append(RNG.standard_normal(100_000), 100.0))
    assert kl_divergence(far.counts) < 300


def test_weights_have_a_scale_for_each_channel():
    w = RNG.standard_normal((5, 3, 2, 2)).astype("float32")
    grid = weight_grid(w, 0, qconfig())
    np.testing.assert_array_equal(
        grid.scale, (np.abs(w).max((1, 2, 3)).astype("float64") / 127).astype("float32")
    )
    stored = grid.stored(w, 0)
    assert np.abs(stored.astype(int)).max() == 127
    error = np.abs(stored * grid.scale[:, None, None, None] - w)
    assert (error <= grid.scale[:, None, None, None] * 0.5001).all()
    assert weight_grid(w, None, qconfig()).scale == np.float32(np.abs(w).max().astype(float) / 127)


def test_power2_takes_the_next_power_of_two():
    grid = weight_grid(np.asarray([[0.3, -0.9]]), None, qconfig(weight_scale="power2"))
    assert grid.scale == np.float32(1.0 / 127)


@pytest.mark.parametrize("axis", [None, 0])
def test_zeros_and_tiny_numbers_get_a_scale_that_can_be_divided_by(axis):
    for w in (np.zeros((2, 3)), np.full((2, 3), 1e-45), np.asarray([[0.0] * 3, [1.0] * 3])):
        grid = weight_grid(w, axis, qconfig())
        assert (grid.scale > 0).all() and np.isfinite(grid.scale).all()
        assert (np.abs(grid.stored(w, 0).astype(int)) <= 127).all()
    for one in (Observed(), Observed(-1e-45, 1e-45), Observed(-3e38, 3e38), Observed(5.0, 5.0)):
        grid = grid_of(one, qconfig())
        assert grid.scale > 0 and np.isfinite(grid.scale)


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("calibrate_mode", "max_min"),
        ("weight_scale", None),
        ("dtype_input", "int4"),
        ("dtype_weight", 8),
        ("per_channel", 1),
        ("percentile", 0),
        ("percentile", 101),
        ("percentile", float("nan")),
        ("global_scale", True),
        ("global_scale", float("inf")),
        ("skip_layers", "lv"),
        ("skip_conv_layers", [0.5]),
    ],
)
def test_a_wrong_option_is_named_with_what_it_may_be(name, value):
    with pytest.raises(PassError, match=f"qconfig: {name}: wanted .*got"):
        qconfig(**{name: value})


def test_an_unknown_option_is_an_error_that_names_the_nearest():
    with pytest.raises(PassError, match=r"'calibrate_mod'; did you mean calibrate_mode\?"):
        qconfig(calibrate_mod="min_max")


def test_configurations_nest():
    with qconfig(percentile=90):
        with qconfig(percentile=80) as inner:
            assert current_qconfig() is inner
        assert current_qconfig().percentile == 90
    assert current_qconfig() == qconfig()
