from __future__ import annotations

import pytest

from relaxvm.base import VMTypeError, VMValueError
from relaxvm.runtime import timing
from relaxvm.runtime.timing import BenchmarkResult, measure, time_evaluator


class Clock:
    """A clock that moves only when told, so that no test depends on real time."""

    def __init__(self, monkeypatch):
        self.now, self.slept = 0.0, []
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(timing.time, "sleep", self.slept.append)

    def work(self, seconds):
        def call(*args):
            self.now += seconds

        return call


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_a_result_has_the_statistics_of_its_runs():
    made = BenchmarkResult([1.0, 2.0, 6.0])
    assert (made.mean, made.median, made.min, made.max) == (3.0, 2.0, 1.0, 6.0)
    assert made.std == pytest.approx((14 / 3) ** 0.5)
    assert made.results == (1.0, 2.0, 6.0)
    assert "mean=3.0" in repr(made)
    assert "results=(1.0, 2.0, 6.0)" in repr(made)
    with pytest.raises(VMValueError):
        BenchmarkResult([])


def test_the_table_names_its_unit():
    lines = str(BenchmarkResult([0.0012, 0.0014])).splitlines()
    assert lines[0] == "Execution time summary:"
    assert lines[1].split() == [
        "mean",
        "(ms)",
        "median",
        "(ms)",
        "max",
        "(ms)",
        "min",
        "(ms)",
        "std",
        "(ms)",
    ]
    assert lines[2].split() == ["1.3000", "1.3000", "1.4000", "1.2000", "0.1000"]
    assert "(ns)" in str(BenchmarkResult([3e-9]))
    assert "(us)" in str(BenchmarkResult([3e-6]))
    assert "(s)" in str(BenchmarkResult([3.0]))


def test_each_result_is_the_mean_of_number_calls(clock):
    calls = []
    made = measure(lambda: (calls.append(1), clock.work(0.5)()), number=4, repeat=3)
    assert made.results == (0.5, 0.5, 0.5)
    assert len(calls) == 1 + 4 * 3


def test_number_grows_until_a_repeat_lasts_long_enough(clock):
    calls = []
    made = measure(lambda: (calls.append(1), clock.work(0.001)()), number=1, min_repeat_ms=50)
    assert made.mean == pytest.approx(0.001)
    assert len(calls) >= 50


def test_a_call_that_takes_no_time_ends(clock):
    made = measure(lambda: None, number=1, min_repeat_ms=1000, limit_zero_time_iterations=5)
    assert made.results == (0.0,)


def test_rest_follows_every_so_many_repeats(clock):
    measure(clock.work(1), number=1, repeat=5, cooldown_interval_ms=250, repeats_to_cooldown=2)
    assert clock.slept == [0.25, 0.25]


def test_before_runs_ahead_of_every_repeat_and_is_not_measured(clock):
    order = []
    made = measure(
        lambda: (order.append("call"), clock.work(1)()),
        number=1,
        repeat=2,
        before=lambda: (order.append("before"), clock.work(100)()),
    )
    assert order == ["call", "before", "call", "before", "call"]
    assert made.results == (1.0, 1.0)


def test_an_evaluator_passes_its_arguments(clock):
    seen = []
    evaluate = time_evaluator(
        lambda *args, **kwargs: seen.append((args, kwargs)), number=2, repeat=1
    )
    evaluate(1, x=2)
    assert seen == [((1,), {"x": 2})] * 3


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"number": 0}, VMValueError),
        ({"number": -1}, VMValueError),
        ({"number": 10**12}, VMValueError),
        ({"repeat": 0}, VMValueError),
        ({"repeat": 1.5}, VMTypeError),
        ({"number": True}, VMTypeError),
        ({"min_repeat_ms": -1}, VMValueError),
        ({"cooldown_interval_ms": -1}, VMValueError),
        ({"repeats_to_cooldown": 0}, VMValueError),
        ({"limit_zero_time_iterations": 0}, VMValueError),
        ({"numbr": 1}, VMTypeError),
    ],
)
def test_options_out_of_range_are_refused(options, error):
    with pytest.raises(error, match=next(iter(options))):
        time_evaluator(len, **options)
    if "numbr" not in options:
        with pytest.raises(error):
            measure(lambda: None, **options)
