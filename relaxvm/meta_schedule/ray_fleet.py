"""`RayFleet`: stations that are actors of Ray."""

from __future__ import annotations

import collections
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

from ..base import ScheduleError, submodules
from .runner import RayRunner
from .station import Order, Report, Setting, Station
from .tasks import Listener

# A station whose reference kernel is slower than the median of all, by more than this, is left out:
# its CPU is not what it seems, or not its own. How often a place is filled again without a report.
_SLOWEST, _REPLACED = 0.75, 3


class RayFleet:
    """Stations on a Ray cluster, of equal CPUs.

    runner   where, and how many
    setting  of the tuning
    context  `plain_context`
    tell     is told of what is left out

    Raises ScheduleError if there is no Ray, or no worker starts.
    """

    def __init__(
        self, runner: RayRunner, setting: Setting, context: Sequence[Any], tell: Listener
    ) -> None:
        self._ray, self._tell = runner.cluster(), tell
        # One thread works, another hears that it is to stop.
        remote = self._ray.remote(max_concurrency=2, **runner.options())(Station)
        self._start = lambda number: remote.remote(setting, context, number)
        self._actors = {number: self._start(number) for number in range(runner.count())}
        self._orders: dict[Any, tuple[int, Order]] = {}
        self._replaced: collections.Counter[int] = collections.Counter()
        self._free: list[int] = []
        self._new = {actor.about.remote(): number for number, actor in self._actors.items()}
        self._same, self._speed = "", 0.0
        try:
            self._choose(runner.start_sec)
        except BaseException:
            self.close()
            raise

    def _choose(self, seconds: float) -> None:
        """Take the largest group of equal stations; those that are not there yet may come later."""
        until = time.monotonic() + seconds
        known: dict[int, dict[str, Any]] = {}
        reasons = ["none came in time"]
        while self._new and time.monotonic() < until:
            for number, about in self._abouts(max(0.0, until - time.monotonic())):
                if isinstance(about, dict):
                    known[number] = about
                else:
                    reasons.append(str(about))
        if not known:
            raise ScheduleError(f"tune: no worker of Ray can be used: {reasons[-1][-2000:]}")
        groups = collections.Counter(json.dumps(about["same"]) for about in known.values())
        self._same = groups.most_common(1)[0][0]
        equal = [a["speed"] for a in known.values() if json.dumps(a["same"]) == self._same]
        self._speed = statistics.median(equal)
        for number, about in known.items():
            self._judge(number, about)

    def _abouts(self, seconds: float) -> list[tuple[int, Any]]:
        """What new stations say of themselves, or an exception; waiting so long for the first."""
        return [(self._new.pop(ref), answer) for ref, answer in self._ready([*self._new], seconds)]

    def _ready(self, refs: list[Any], seconds: float) -> list[tuple[Any, Any]]:
        if not refs:
            return []
        first, _ = self._ray.wait(refs, timeout=seconds)
        rest = [ref for ref in refs if ref not in first]
        more = self._ray.wait(rest, num_returns=len(rest), timeout=0)[0] if first and rest else []
        answers = []
        for ref in (*first, *more):
            try:
                answers.append((ref, self._ray.get(ref)))
            except self._ray.exceptions.RayError as error:
                answers.append((ref, error))
        return answers

    def _judge(self, number: int, about: dict[str, Any]) -> None:
        """Take a station, or leave it out."""
        same = json.dumps(about["same"])
        if same == self._same and about["speed"] >= _SLOWEST * self._speed:
            self._free.append(number)
            return
        if same != self._same:
            wanted = json.loads(self._same)
            parts = [
                f"{k}: {about['same'][k]} in place of {wanted[k]}"
                for k in wanted
                if about["same"][k] != wanted[k]
            ]
            reason = "; ".join(parts)
        else:
            reason = f"its reference kernel runs at {about['speed'] / self._speed:.0%} of others'"
        self._leave_out(number, reason)

    def _leave_out(self, number: int, reason: str) -> None:
        self._tell("note", None, f"worker {number} is left out: {reason}")
        self._ray.kill(self._actors.pop(number))

    def clock(self) -> float:
        """Seconds."""
        return time.perf_counter()

    def free(self) -> list[int]:
        """Stations with nothing to do."""
        return list(self._free)

    def left(self) -> int:
        """How many stations there are, or will be again."""
        return len(self._actors)

    def ask(self, station: int, order: Order) -> None:
        """Give an order to a station that is free."""
        self._free.remove(station)
        self._orders[self._actors[station].done.remote(order)] = (station, order)

    def answers(self, seconds: float) -> list[tuple[int, Order, Report | None]]:
        """What came, waiting so long for the first."""
        answers: list[tuple[int, Order, Report | None]] = []
        for ref, answer in self._ready([*self._orders, *self._new], seconds):
            if ref in self._new:
                self._arrived(self._new.pop(ref), answer)
                continue
            station, order = self._orders.pop(ref)
            if isinstance(answer, Report):
                self._replaced.pop(station, None)
                self._free.append(station)
                answers.append((station, order, answer))
            else:
                self._replace(station, answer)
                answers.append((station, order, None))
        return answers

    def _arrived(self, number: int, about: Any) -> None:
        if isinstance(about, dict):
            self._judge(number, about)
        else:
            self._replace(number, about)

    def _replace(self, number: int, reason: Any) -> None:
        """Start another station for one that is lost."""
        self._replaced[number] += 1
        if self._replaced[number] > _REPLACED:
            self._leave_out(number, f"it was lost {self._replaced[number]} times: {reason}"[:500])
            return
        # It may be there still, and have raised an error.
        self._ray.kill(self._actors[number])
        self._actors[number] = self._start(number)
        self._new[self._actors[number].about.remote()] = number

    def stop(self) -> None:
        """Have stations report what they have."""
        for actor in self._actors.values():
            actor.stop.remote()

    def close(self) -> None:
        """End all stations."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()


__getattr__ = submodules(__name__)
