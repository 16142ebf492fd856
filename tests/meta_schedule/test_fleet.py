"""Tuning at several stations: none waits for another, what is lost is repeated, limits hold."""

import collections

import pytest

from relaxvm.base import ScheduleError
from relaxvm.ir import IRModule, save_msgpack
from relaxvm.meta_schedule.builder import plain_context
from relaxvm.meta_schedule.measure_callback import AddToDatabase
from relaxvm.meta_schedule.runner import RayRunner, Runner
from relaxvm.meta_schedule.space import Point
from relaxvm.meta_schedule.station import Order, Station
from relaxvm.meta_schedule.tasks import Task
from relaxvm.meta_schedule.tuning import Parts, Setting, tune_kernels
from relaxvm.target import Target
from tests.meta_schedule.replayed import ReplayedFleet, busy_share, engine, kernel
from tests.meta_schedule.test_hostile import product


@pytest.mark.parametrize("workers", [1, 100])
def test_stations_do_not_wait_for_each_other(workers):
    # The driver's own time is not counted here; `replayed` counts it when it is run.
    share, trials = busy_share(workers, 30.0)
    assert share > 0.9 and trials > 30 * 3 * workers


def test_limits_of_trials_hold_whatever_is_under_way():
    run = engine(ReplayedFleet(8), kernels=3)
    run.most, run.most_of_task = 50, 20
    assert run.run(1e6) == "trials"
    assert sum(t.trials for t in run.tasks) == 50
    assert max(t.trials for t in run.tasks) == 20
    assert all(t.state == "tuned" and t.final.holds for t in run.tasks)


def test_what_others_found_is_passed_on_once():
    fleet = ReplayedFleet(2)
    run = engine(fleet, kernels=1)
    run.most = 100
    run.run(1e6)
    news = collections.Counter()
    for station, order in fleet.orders:
        assert len(order.news) <= 8
        news.update((station, repr(point)) for point, _ in order.news)
    assert news and max(news.values()) == 1


def test_orders_of_lost_stations_are_repeated():
    heard = []
    fleet = ReplayedFleet(3, dies=lambda order, station: order in (1, 4, 7))
    run = engine(fleet, kernels=2, tell=lambda kind, task, text: heard.append((kind, text)))
    run.most = 64
    assert run.run(1e6) == "trials"
    assert sum(t.trials for t in run.tasks) == 64
    assert sum(kind == "note" and "was lost" in text for kind, text in heard) == 3


def test_a_kernel_that_kills_its_stations_is_given_up():
    fleet = ReplayedFleet(2, dies=lambda order, station: True)
    run = engine(fleet, kernels=2)
    assert run.run(1e6) == "nothing more to win"
    assert {t.state for t in run.tasks} == {"not tuned: 3 workers were lost over it"}
    assert len(fleet.orders) == 6


def test_an_interrupt_collects_what_stations_have():
    heard = []

    def stop(kind, task, text):
        heard.append(kind)
        if heard.count("trials") == 3 and kind == "trials":
            raise KeyboardInterrupt

    fleet = ReplayedFleet(4)
    run = engine(fleet, kernels=4, tell=stop)
    assert run.run(1e6) == "interrupted" and fleet.stopped
    # What was under way then is counted, and the best are compared.
    assert heard.count("trials") == 3 + 4 - 1 and not run.under_way
    faster = [t for t in run.tasks if t.best_seconds < t.default_seconds]
    assert faster and heard.count("final") == len(faster)
    assert all((t.state == "tuned") == (t in faster) for t in run.tasks)


@pytest.fixture(scope="module")
def place():
    setting = Setting(Parts(), Target("llvm"), 1, None, 0, 0.5, 16)
    station = Station(setting.at_stations(), plain_context(), 1)
    yield station
    station.close()


@pytest.mark.slow
def test_a_station_searches_measures_and_compares(place):
    about = place.about()
    assert about["speed"] > 0 and {"cpu", "features", "caches"} <= about["same"].keys()
    kernel_saved = save_msgpack(IRModule({"main": product()}), spans=False)
    first = place.done(Order("a", kernel_saved, 2, 60.0))
    assert first.state == "searching" and len(first.trials) == 2 and first.default > 0
    assert first.spent > 0 and 0 <= first.roof_share <= 1
    point, part = min((t for t in first.trials if isinstance(t[1], float)), key=lambda t: t[1])
    # What others measured is not tried again.
    second = place.done(Order("a", None, 1, 60.0, news=[(point, part)]))
    assert len(second.trials) == 1 and second.trials[0][0] != point
    final = place.done(Order("a", None, 0, 0.05, [point]))
    assert final.final.pairs >= 8 and (final.record is not None) == final.final.holds
    with pytest.raises(ScheduleError, match="told nothing"):
        place.done(Order("b", None, 1, 60.0))


@pytest.mark.slow
def test_the_limit_of_one_kernel_is_not_that_of_the_next(place):
    for n in (4, 5):
        saved = save_msgpack(IRModule({"main": product(n)}), spans=False)
        first = place.done(Order(f"limit{n}", saved, 1, 60.0))
        assert (first.state, len(first.trials)) == ("searching", 1)
    for n in (4, 5):
        assert len(place.done(Order(f"limit{n}", None, 2, 60.0)).trials) == 2
    saved = save_msgpack(IRModule({"main": product(7)}), spans=False)
    # Another order for the kernel may have more time.
    assert place.done(Order("limit7", saved, 1, 0.0)).state == "waiting"
    assert place.done(Order("limit7", None, 1, 60.0)).state == "searching"


@pytest.mark.slow
def test_a_station_stops_when_it_is_told_and_compares_still(place):
    saved = save_msgpack(IRModule({"main": kernel(9)}), spans=False)
    place.stop()
    report = place.done(Order("c", saved, 16, 60.0))
    assert len(report.trials) <= 1
    final = place.done(Order("c", None, 0, 0.05, [Point().as_json()]))
    assert final.final.pairs >= 8


def test_parts_that_cannot_be_at_workers_are_refused():
    tasks = [Task("a", kernel(4), 1.0)]
    with pytest.raises(
        ScheduleError, match="runner=.ray. .or a RayRunner. and leave the builder out"
    ):
        tune_kernels(tasks, 1, parts=Parts(builder="ray"))
    setting = Setting(Parts(measure_callbacks=[AddToDatabase()]), Target("llvm"), 1, None, 0, 1, 1)
    with pytest.raises(ScheduleError, match="measure_callbacks"):
        setting.at_stations()
    with pytest.raises(ScheduleError, match="num_workers"):
        Runner.create("ray", num_workers=0)
    assert isinstance(Runner.create("ray"), RayRunner)
