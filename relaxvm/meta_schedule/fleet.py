"""`FleetEngine`: the loop of tuning where stations search and measure, each at its own pace.

No station waits for another: who reports gets the next order at once. The driver chooses kernels,
adds up what was won and passes on what others found; all that takes long is done at the stations.
"""

from __future__ import annotations

import collections
import math
from dataclasses import field, replace
from typing import Any, Protocol

from ..base import record, submodules
from ..ir import IRModule, save_msgpack
from .engine import FINAL_SECONDS, Engine
from .interrupts import check, held
from .station import Order, Report, record_from
from .tasks import FADES, FINALISTS, Task

# How often an order is given whose stations died of it; how many seconds stations may take beyond
# the time of an order; how many of the best points others are told at once; how many candidates the
# first order for a kernel has, until whose report others wait; how long an order takes at most, as
# far as the last ones tell.
_ATTEMPTS, _GRACE_SECONDS, _NEWS, _FIRST, _ORDER_SECONDS = 3, 20.0, 8, 2, 10.0
_FIRST_TIME = "begun"


class Fleet(Protocol):
    """Stations, by number. One that is lost is replaced by another of the same number."""

    def clock(self) -> float:
        """Seconds."""

    def free(self) -> list[int]:
        """Stations with nothing to do."""

    def left(self) -> int:
        """How many stations there are, or will be again."""

    def ask(self, station: int, order: Order) -> None:
        """Give an order to a station that is free."""

    def answers(self, seconds: float) -> list[tuple[int, Order, Report | None]]:
        """What came, waiting so long for the first; None for the report of a station that was
        lost, and with it what it knew.
        """

    def stop(self) -> None:
        """Have stations report what they have."""

    def close(self) -> None:
        """End them."""


@record(frozen=False)
class FleetEngine(Engine):
    """One tuning, at the stations of a fleet.

    under_way  orders by stations
    """

    fleet: Fleet = field(kw_only=True)
    under_way: dict[int, Order] = field(default_factory=dict)
    _again: collections.deque[Order] = field(default_factory=collections.deque)
    _came: collections.deque[tuple[int, Order, Report | None]] = field(
        default_factory=collections.deque
    )
    _lost: collections.Counter[str] = field(default_factory=collections.Counter)
    # What was measured of a kernel, and by whom; how much of that a station was told.
    _measured: dict[str, list[tuple[Any, float, int]]] = field(
        default_factory=lambda: collections.defaultdict(list)
    )
    _told: dict[int, dict[str, int]] = field(default_factory=lambda: collections.defaultdict(dict))
    _saved: dict[str, bytes] = field(default_factory=dict)

    def clock(self) -> float:
        return self.fleet.clock()

    # -- the search --------------------------------------------------------------------------------

    def search(self, deadline: float) -> str:
        """Keep all stations at work; why it ended."""
        ended, deadline = "time", deadline - self.reserved()
        try:
            while self.clock() < deadline:
                check()
                ended = self._hand_out(deadline)
                if not self.under_way:
                    break
                self._take(min(1.0, deadline - self.clock()))
            else:
                ended = "time"
        except KeyboardInterrupt:
            with held():
                self.fleet.stop()
            self._settle()
            raise
        self._settle()
        return ended

    def _hand_out(self, deadline: float) -> str:
        """Give an order to each station that is free; why some got none."""
        if not self.fleet.left():
            return "no worker is left"
        for station in self.fleet.free():
            seconds = deadline - self.clock()
            if self._again:
                self._give(station, replace(self._again.popleft(), seconds=seconds))
                continue
            number = self.next() if self._left() > 0 else -1
            if number == -1:
                return "nothing more to win" if self._left() > 0 else "trials"
            self._give(station, self._order(self.tasks[number], seconds))
        return "time"

    def _left(self) -> int:
        """How many candidates may be tried that are not ordered yet."""
        ordered = sum(order.count for order in self.under_way.values())
        return self.most - sum(t.trials for t in self.tasks) - ordered

    def _order(self, task: Task, seconds: float) -> Order:
        ordered = sum(o.count for o in self.under_way.values() if o.task == task.name)
        of_task = self.most_of_task - task.trials - ordered
        count, points = min(self.round_trials, self._left(), of_task), []
        if task.default_seconds is None:
            task.ctx = task.ctx or self.context_of(task)
            points = self.trials.of(task.ctx.space.fn)
            task.state, count = _FIRST_TIME, min(count, _FIRST)
        elif task.trials:
            count = min(count, max(1, int(_ORDER_SECONDS * task.trials / max(task.spent, 1e-3))))
        if count == of_task:
            task.state = "as many trials as were allowed"
        # What is under way is expected to win something already.
        task.hope *= FADES
        return Order(task.name, None, count, seconds, points)

    def _give(self, station: int, order: Order) -> None:
        """Give an order, and with it what the station does not know of the kernel yet."""
        told, log = self._told[station], self._measured[order.task]
        kernel = None if order.task in told else self._kernel(order.task)
        new = [(p, part) for p, part, by in log[told.get(order.task, 0) :] if by != station]
        news = sorted(new, key=lambda pair: pair[1])[:_NEWS]
        told[order.task] = len(log)
        self.under_way[station] = order
        sizes = dict(self._named(order.task).sizes)
        self.fleet.ask(station, replace(order, kernel=kernel, news=news, sizes=sizes))

    def _kernel(self, name: str) -> bytes:
        if name not in self._saved:
            mod = IRModule({"main": self._named(name).fn})
            self._saved[name] = save_msgpack(mod, spans=False)
        return self._saved[name]

    def _named(self, name: str) -> Task:
        return next(task for task in self.tasks if task.name == name)

    def _settle(self) -> None:
        """Wait for what is under way, and forget what does not come."""
        until = self.clock() + _GRACE_SECONDS
        while self.under_way and (left := until - self.clock()) > 0:
            self._take(left)
        self._again.clear()
        for task in self.tasks:
            if task.state == _FIRST_TIME:
                task.state = "waiting"

    def _take(self, seconds: float) -> None:
        """Add up what comes within so many seconds."""
        # An interrupt may come between two of them.
        self._came.extend(self.fleet.answers(0.0 if self._came else max(0.0, seconds)))
        while self._came:
            station, order, report = self._came.popleft()
            self.under_way.pop(station, None)
            task = self._named(order.task)
            if report is None:
                self._repeat(station, task, order)
            elif order.count == 0:
                self._add_final(task, report)
            else:
                task.hope /= FADES
                self._add_up(station, task, report)

    def _repeat(self, station: int, task: Task, order: Order) -> None:
        """A station is gone: another gets its order."""
        self._told.pop(station, None)
        self._lost[order.task] += 1
        self.tell("note", None, f"worker {station} was lost over {order.task}, and is replaced")
        if self._lost[order.task] < _ATTEMPTS:
            self._again.append(order)
        else:
            task.state = f"not tuned: {_ATTEMPTS} workers were lost over it"

    def _add_up(self, station: int, task: Task, report: Report) -> None:
        del self._lost[task.name]
        task.spent += report.spent
        is_open = task.state in (_FIRST_TIME, "waiting", "searching")
        if report.default is None:
            if task.default_seconds is None:
                task.state = report.state
                self.tell("task", task, task.state)
            return
        if task.default_seconds is None:
            task.default_seconds = task.best_seconds = report.default
            task.roof_share = report.roof_share
            self.share()
        if is_open:
            task.state = report.state
        before = task.best_seconds or math.inf
        assert task.ctx is not None
        for point, outcome in report.trials:
            self._add_trial(station, task, point, outcome)
        if report.correlation is not None:
            task.correlation = report.correlation
        task.learn(1.0 - (task.best_seconds or before) / before)
        if is_open and task.is_hopeless:
            task.state = "nothing won by many trials"
        self.tell("trials", task, "")

    def _add_trial(self, station: int, task: Task, point: Any, outcome: float | str) -> None:
        assert task.ctx is not None
        assert task.default_seconds is not None
        task.trials += 1
        if isinstance(outcome, str):
            task.refused += 1
        else:
            self._measured[task.name].append((point, outcome, station))
            # Another worker's seconds are these only if its default schedule's are.
            outcome *= task.default_seconds
            task.best_seconds = min(task.best_seconds or math.inf, outcome)
        if point is not None:
            self.trials.note(task.ctx.space.fn, point, outcome)

    # -- the end -----------------------------------------------------------------------------------

    def finals(self, deadline: float) -> None:
        """Compare the best of each kernel with its default schedule, all at once."""
        for task in sorted(self.tasks, key=lambda t: -t.share):
            faster = [(part, p) for p, part, _ in self._measured[task.name] if p and part < 1.0]
            best = sorted(faster, key=lambda pair: pair[0])[:FINALISTS]
            if best:
                seconds = FINAL_SECONDS * len(best)
                self._again.append(Order(task.name, None, 0, seconds, [p for _, p in best]))
        until = max(deadline, self.clock()) + _GRACE_SECONDS
        while (self._again or self.under_way) and self.clock() < until and self.fleet.left():
            for station in self.fleet.free():
                if self._again:
                    self._give(station, self._again.popleft())
            self._take(until - self.clock())

    def _add_final(self, task: Task, report: Report) -> None:
        task.final, task.state = report.final, report.state
        if report.record is not None and self.database is not None:
            record = record_from(report.record)
            with held():
                self.database.commit_workload(record.workload.mod)
                self.database.commit_tuning_record(record)
        self.tell("final", task, str(task.final))


__getattr__ = submodules(__name__)
