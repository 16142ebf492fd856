"""A fleet of stations that only pretend: what they take is replayed, in a time of their own.

`python -m tests.meta_schedule.replayed` tells how busy a driver keeps 1 to 400 of them; its own
time on a core counts.
"""

import heapq
import itertools
import random
import time

from relaxvm import te
from relaxvm.meta_schedule.builder import Builder
from relaxvm.meta_schedule.database import MemoryDatabase
from relaxvm.meta_schedule.engine import Trials
from relaxvm.meta_schedule.fleet import FleetEngine
from relaxvm.meta_schedule.measure import sign_test
from relaxvm.meta_schedule.runner import Runner
from relaxvm.meta_schedule.space import Point
from relaxvm.meta_schedule.station import Report
from relaxvm.meta_schedule.tasks import Task
from relaxvm.meta_schedule.tuning import Parts, Setting
from relaxvm.target import Target

# Seconds of trials: drawing, building, checking and timing a candidate of a dense layer. Of larger
# kernels they take longer, and the driver has less to do.
SECONDS = (0.21, 0.24, 0.19, 0.35, 0.22, 0.28, 0.2, 0.26)


class ReplayedFleet:
    """Stations by number, each with the work of one.

    driver  how much time of the driver's counts: seconds since some moment
    dies    (number of an order, station): whether the station dies of it
    """

    def __init__(self, workers, driver=lambda: 0.0, dies=lambda order, station: False):
        self._driver, self._begun, self._skipped = driver, driver(), 0.0
        self._dies, self._idle = dies, list(range(workers))
        self._coming, self._orders = [], itertools.count()
        self._trials, self._rng = itertools.cycle(SECONDS), random.Random(0)
        self.workers, self.busy, self.knows, self.orders = workers, 0.0, set(), []
        self.stopped = False

    def clock(self):
        return self._skipped + self._driver() - self._begun

    def free(self):
        return list(self._idle)

    def left(self):
        return self.workers

    def ask(self, station, order):
        self._idle.remove(station)
        assert (order.kernel is None) == ((station, order.task) in self.knows)
        self.knows.add((station, order.task))
        number = next(self._orders)
        self.orders.append((station, order))
        spent = sum(itertools.islice(self._trials, max(1, order.count)))
        self.busy += spent
        report = self._report(order, spent)
        if self._dies(number, station):
            report = None
        heapq.heappush(self._coming, (self.clock() + spent, number, station, order, report))

    def _report(self, order, spent):
        if not order.count:
            final = sign_test([[2.0, 1.0]] * 10, 0.95)
            return Report("tuned", 1e-3, final=final, spent=spent)
        trials = [
            (Point(caches=self._rng.randrange(1 << 30)).as_json(), self._rng.uniform(0.5, 3.0))
            for _ in range(order.count)
        ]
        return Report("searching", 1e-3, trials, 0.1, 0.5, spent)

    def answers(self, seconds):
        if not self._coming:
            self._skipped += seconds
            return []
        wait = min(seconds, self._coming[0][0] - self.clock())
        self._skipped += max(0.0, wait)
        answers = []
        while self._coming and self._coming[0][0] <= self.clock():
            _, _, station, order, report = heapq.heappop(self._coming)
            if report is None:
                self.knows = {(s, task) for s, task in self.knows if s != station}
            self._idle.append(station)
            answers.append((station, order, report))
        return answers

    def stop(self):
        self.stopped = True

    def close(self):
        pass


def kernel(n):
    a = te.placeholder((n,), "float32", "a")
    return te.create_prim_func([a, te.compute((n,), lambda i: a[i] * 2, "b")])


def engine(fleet, kernels=20, tell=lambda kind, task, text: None):
    tasks = [Task(f"kernel{n}", kernel(n + 8), 1 / kernels) for n in range(kernels)]
    setting = Setting(Parts(), Target("llvm"), 1, None, 0, 0.95, 16)
    made_of = (tasks, MemoryDatabase(), Builder(), Runner(), tell, Trials(None))
    return setting.engine(*made_of, kind=lambda *a, **k: FleetEngine(*a, **k, fleet=fleet))


def busy_share(workers, seconds, driver=lambda: 0.0):
    """The part of the time in which workers work, from the first order to the last report."""
    fleet = ReplayedFleet(workers, driver)
    run = engine(fleet)
    for task in run.tasks:
        # The kernels of a model that go on being worth it.
        task.share = 1e6
    run.search(seconds)
    return fleet.busy / (workers * fleet.clock()), sum(t.trials for t in run.tasks)


if __name__ == "__main__":
    for count in (1, 2, 10, 50, 100, 200, 400):
        share, trials = busy_share(count, 60.0, time.process_time)
        print(f"{count:4} workers: {share:.1%} busy, {trials / 60:.0f} trials/s")
