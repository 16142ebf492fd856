"""`Measurer`: candidates for the schedule of one kernel, built, checked and timed elsewhere.

with Measurer(mod, "llvm", work_dir="logs") as measurer:
    measurer.default.seconds                   candidate zero: what the default schedule takes
    for one in measurer.measure(schedules):    in their order
        one.seconds or one.refusal             seconds of a call; or kind, reason and repro file
    measurer.beats(schedules[3]).holds         whether it is faster, at a stated confidence

Candidates are built in some processes and run in another; the process that asks survives them all.
Whatever a candidate computes is compared with what the default schedule computes.
"""

from __future__ import annotations

import collections
import hashlib
import math
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from ..base import RelaxvmError, ScheduleError, record, submodules
from ..ir import IRModule, save_json
from ..runtime import write_atomically
from ..target import Target, default_schedule
from ..tir import PrimFunc
from ..tir.schedule import Schedule, Trace, apply_plan
from ..tir.schedule.plans import SCHEDULED, Plan, root_of
from .arg_info import ArgInfo, entry_of
from .arguments import argument_specs, sameness
from .builder import Builder, BuilderInput, LocalBuilder, plain_context
from .database import key_of
from .derived import asked
from .profiler import Profiler
from .runner import EvaluatorConfig, LocalRunner, Runner, RunnerInput
from .sizes import Sized

# A sample or five of 4 ms: enough to rank candidates, whose best are compared in pairs.
QUICK = EvaluatorConfig(number=1, repeat=5, min_repeat_ms=4)
# What takes so many times the best needs no second sample.
_ENOUGH = 1.5
# How many candidates are built, for each process that builds, before they are measured.
_AT_ONCE = 4
# How many times slower than the default a candidate may be before its time is over.
_SLOWEST, _LEAST_SECONDS = 20, 2.0


@record
class Refusal:
    """Why a candidate has no time.

    kind    "schedule" (it does not fit), "build", "error", "wrong" (its results are), "crash",
            "timeout", "memory"
    reason  in words
    file    a program that shows it, "" if there is none
    """

    kind: str
    reason: str
    file: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}" + (f" (see {self.file})" if self.file else "")


@record
class Measured:
    """What became of a candidate.

    seconds        of a call: the median of `samples`; None if it was refused
    noise          how much slower than in calm a reference kernel was meanwhile, at least: 1.0 is
                   undisturbed
    calm           whether `samples` are those that nobody disturbed; else the lowest of all
    build_seconds  that building took, `run_seconds` checking and timing
    fn             the loop function that was built, if there was one
    schedule       the schedule that it came from, if it came from one
    """

    seconds: float | None
    samples: tuple[float, ...] = ()
    refusal: Refusal | None = None
    noise: float = 1.0
    calm: bool = True
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    fn: PrimFunc | None = None
    schedule: Schedule | None = None


@record
class Comparison:
    """Two candidates, measured by turns.

    pairs       how many pairs, of which the second was faster, by the margin, in `wins`
    confidence  1 - the chance of so many wins, or more, if it were not (sign test)
    speedup     the median of what the first took, divided by what the second did
    low, high   bounds of that median, at the confidence that was asked for
    holds       whether the second is faster at that confidence
    """

    pairs: int
    wins: int
    confidence: float
    speedup: float
    low: float
    high: float
    holds: bool

    def __str__(self) -> str:
        return (
            f"{self.speedup:.3f}x ({self.low:.3f} to {self.high:.3f}), faster in {self.wins} of "
            f"{self.pairs} pairs, confidence {self.confidence:.4f}"
        )


def sign_test(
    pairs: Sequence[Sequence[float]], confidence: float, margin: float = 0.0
) -> Comparison:
    """Whether the second of each pair is smaller than the first, by the part `margin` at least, by
    counting.

    If both came from the same distribution, each pair would be won with probability 1/2 at most,
    and the wins of n pairs be distributed as heads of n coins.
    """
    n = len(pairs)
    wins = sum(b * (1 + margin) < a for a, b in pairs)
    ratios = sorted(a / b for a, b in pairs if b > 0)
    if not ratios:
        return Comparison(n, wins, 0.0, 1.0, 0.0, math.inf, False)
    level = 1.0 - _heads(n, wins)
    # The k-th of n is below the median unless fewer than k of them are.
    k = 0
    while k < len(ratios) // 2 and _heads(len(ratios), len(ratios) - k) < (1 - confidence) / 2:
        k += 1
    low, high = (ratios[k - 1], ratios[-k]) if k else (0.0, math.inf)
    return Comparison(n, wins, level, statistics.median(ratios), low, high, level >= confidence)


def _heads(n: int, least: int) -> float:
    """The chance of so many heads, or more, of n coins."""
    return sum(math.comb(n, k) for k in range(least, n + 1)) / 2**n


class OutOfTime(Exception):
    """The time that a `Measurer` was given is over."""


class Measurer:
    """Measures candidates for one kernel. Use it in a `with`, or `close` it.

    mod          a PrimFunc, or a module with one, not scheduled; of constant sizes and
                 without scalars, or `one` says with which it is measured
    target       what candidates are built for: this machine, or less than it has
    work_dir     where programs are written that show wrong results (None: nowhere)
    num_threads  most threads of a parallel loop
    builder      a `LocalBuilder`, or a `Builder` of the user's; `runner` likewise. What these run
                 is as right as they say: only a `LocalRunner` checks
    evaluator    how long is measured, if there is no runner that says so
    seed         of the arguments
    until        when, by `time.perf_counter`, whatever goes on is ended: OutOfTime

    The passes' options are those of the `PassContext` that is current when it is made. Raises
    ScheduleError if the default schedule itself cannot be measured, with the reason.
    """

    def __init__(
        self,
        mod: IRModule | PrimFunc,
        target: Any = None,
        *,
        work_dir: str | pathlib.Path | None = None,
        num_threads: int = 1,
        builder: Builder | None = None,
        runner: Runner | None = None,
        evaluator: EvaluatorConfig = QUICK,
        timeout_sec: float = 10.0,
        memory_bytes: int | None = None,
        seed: int = 0,
        one: Sized | None = None,
        until: float = math.inf,
    ) -> None:
        self.fn, self.until = entry_of(mod), until
        self._one = Sized(self.fn) if one is None else one
        self.target = Target.or_current(target)
        self.work_dir = None if work_dir is None else pathlib.Path(work_dir)
        self._context = plain_context()
        self._builder = LocalBuilder(memory_bytes=memory_bytes) if builder is None else builder
        if runner is None:
            runner_used: Runner = LocalRunner(
                timeout_sec, evaluator, memory_bytes=memory_bytes, num_threads=num_threads
            )
        self._runner = runner_used if runner is None else runner
        # Those that were given are their owner's to close.
        pairs = ((self._builder, builder), (self._runner, runner))
        self._owned = [used for used, of_user in pairs if of_user is None]
        self._known: dict[str, Measured] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        self.seconds_spent = 0.0
        self._seed = seed
        # What the default schedule computes, as the runner takes it.
        self._task: dict[str, Any] = {}
        try:
            if self._one.scalars and not isinstance(self._runner, LocalRunner):
                raise ScheduleError(
                    f"kernels with scalars are measured by a LocalRunner: a "
                    f"{type(self._runner).__name__} is told of tensors only"
                )
            self._specs = argument_specs(self.fn, self._one)
            self.default = self._first()
        except BaseException:
            self.close()
            raise

    def resized(self, one: Sized) -> Measurer:
        """Another one of the same function, at other sizes of its symbols."""
        return Measurer(
            self.fn, self.target, work_dir=self.work_dir, builder=self._builder,
            runner=self._runner, seed=self._seed, one=one, until=self.until,
        )  # fmt: skip

    # -- candidates --------------------------------------------------------------------------------

    def measure(
        self,
        candidates: Sequence[Any],
        on_result: Callable[[int, Measured], object] | None = None,
    ) -> list[Measured]:
        """What becomes of each candidate, in their order: a `Schedule`; a `Trace`, or its JSON; a
        `Plan` for the block that it fits, or (block, plan); or a loop function or a module with
        one, as it is.

        on_result  called with the position and the result of each as soon as it is there

        An interrupt ends what is running; results told to `on_result` are whole.
        """
        results: list[Measured] = []
        begun = time.perf_counter()
        try:
            for i, measured in enumerate(self._measured(candidates)):
                results.append(measured)
                if on_result is not None:
                    on_result(i, measured)
        finally:
            self.seconds_spent += time.perf_counter() - begun
        return results

    def _measured(self, candidates: Sequence[Any]) -> Iterator[Measured]:
        workers = self._builder.max_workers if isinstance(self._builder, LocalBuilder) else 1
        with ThreadPoolExecutor(workers) as pool:
            try:
                for start in range(0, len(candidates), _AT_ONCE * workers):
                    part = candidates[start : start + _AT_ONCE * workers]
                    yield from self._measured_part([self._drawn(each) for each in part], pool)
            except OutOfTime:
                # What is being built ends in time.
                pool.shutdown(cancel_futures=True)
                raise
            except BaseException:
                # Whoever waits for a process waits no more.
                pool.shutdown(wait=False, cancel_futures=True)
                self._kill()
                raise

    def _measured_part(
        self, drawn: Sequence[Measured], pool: ThreadPoolExecutor
    ) -> Iterator[Measured]:
        """First all are built, on all cores, then one after the other measured. Building at the
        same time on the other core made the reference kernel 1.3 to 1.5 times slower.
        """
        jobs: dict[str, Future[dict[str, Any]]] = {}
        for measured in drawn:
            if measured.fn is not None:
                key = key_of(measured.fn)
                if key not in self._known and key not in jobs:
                    jobs[key] = pool.submit(self._built, measured.fn)
        with Profiler.timeit("Build"):
            wait(jobs.values())
        for measured in drawn:
            if measured.fn is not None:
                key = key_of(measured.fn)
                if key not in self._known:
                    with Profiler.timeit("Run"):
                        self._known[key] = self._timed(measured, jobs[key].result())
                measured = replace(self._known[key], fn=measured.fn, schedule=measured.schedule)
            self.counts["refused" if measured.seconds is None else "measured"] += 1
            if measured.refusal is not None:
                self.counts[measured.refusal.kind] += 1
            yield measured

    def _drawn(self, candidate: Any) -> Measured:
        """A candidate with its loop function, or refused."""
        try:
            schedule = self._schedule_of(candidate)
            fn = entry_of(candidate if schedule is None else schedule.mod)
        except RelaxvmError as error:
            return Measured(None, refusal=Refusal("schedule", str(error)))
        return Measured(None, fn=fn.with_attr(SCHEDULED, True), schedule=schedule)

    def _schedule_of(self, candidate: Any) -> Schedule | None:
        if isinstance(candidate, Schedule):
            return candidate
        if isinstance(candidate, (IRModule, PrimFunc)):
            return None
        schedule = Schedule(IRModule({"main": self.fn}))
        if isinstance(candidate, Trace):
            candidate.apply_to_schedule(schedule)
        elif isinstance(candidate, Plan):
            _apply_somewhere(schedule, candidate)
        elif isinstance(candidate, tuple) and [isinstance(x, Plan) for x in candidate] == [0, 1]:
            apply_plan(schedule, *candidate)
        elif isinstance(candidate, (list, str)):
            Trace.apply_json_to_schedule(candidate, schedule)
        else:
            raise ScheduleError(
                "wanted a Schedule, a Trace, a Plan, (block, plan) or a loop function, got "
                f"{type(candidate).__name__}"
            )
        return schedule

    # -- building and running ----------------------------------------------------------------------

    def _built(self, fn: PrimFunc) -> dict[str, Any]:
        mod = IRModule({"main": fn})
        if isinstance(self._builder, LocalBuilder):
            seconds = self._left(self._builder.timeout_sec)
            answer = self._in_time(
                self._builder.build_one(mod, self.target, self._context, seconds)
            )
            if "kind" in answer or isinstance(self._runner, LocalRunner):
                return answer
        with asked(self._builder, "build"):
            (result,) = self._builder.build([BuilderInput(mod, self.target)])
        if result.artifact_path is None or result.error_msg:
            return {"kind": "build", "reason": str(result.error_msg), "spent": 0.0}
        answer = {"path": result.artifact_path, "spent": 0.0}
        if isinstance(self._runner, LocalRunner):
            try:
                answer["module"] = pathlib.Path(result.artifact_path).read_bytes()
            except OSError as error:
                return {"kind": "build", "reason": str(error), "spent": 0.0}
        return answer

    def _timed(self, measured: Measured, built: Mapping[str, Any]) -> Measured:
        spent = float(built["spent"])
        if "kind" in built:
            return self._refused(measured, built, spent)
        begun = time.perf_counter()
        if isinstance(self._runner, LocalRunner):
            request = {
                "do": "run",
                "module": built["module"],
                "enough": _ENOUGH * self._best(),
                **self._runner.evaluator_config.as_request(),
            }
            answer = self._in_time(
                self._runner.ask(self._task, request, self._left(self._patience()))
            )
        else:
            answer = self._ran(built["path"])
        took = time.perf_counter() - begun
        if "kind" in answer:
            return self._refused(measured, answer, spent, took)
        samples = tuple(answer["samples"])
        return replace(
            measured,
            seconds=statistics.median(samples),
            samples=samples,
            noise=answer["noise"],
            calm=answer["calm"],
            build_seconds=spent,
            run_seconds=took,
        )

    def _ran(self, path: str) -> dict[str, Any]:
        """By a runner of the user's."""
        infos = ArgInfo.from_prim_func(self._one.fn)
        with asked(self._runner, "run"):
            (future,) = self._runner.run([RunnerInput(path, "cpu", infos)])
            result = future.result()
        times = [float(s) for s in result.run_secs or ()]
        if not times or not all(math.isfinite(s) and s >= 0 for s in times):
            return {"kind": "error", "reason": str(result.error_msg or "no seconds")}
        return {"samples": times, "noise": 1.0, "calm": True}

    def _best(self) -> float:
        """Seconds of the fastest so far; 0 if there is none."""
        return min((m.seconds for m in self._known.values() if m.seconds is not None), default=0.0)

    def _patience(self) -> float:
        """After how many seconds a candidate is ended."""
        assert isinstance(self._runner, LocalRunner)
        default = self._known.get("")
        if default is None:
            return self._runner.timeout_sec
        return min(self._runner.timeout_sec, _SLOWEST * default.run_seconds + _LEAST_SECONDS)

    def _left(self, most: float = math.inf) -> float:
        """The seconds that are left, at most so many. Raises OutOfTime if there are none."""
        left = min(most, self.until - time.perf_counter())
        if left <= 0:
            raise OutOfTime
        return left

    def _in_time(self, answer: dict[str, Any]) -> dict[str, Any]:
        """An answer; raises OutOfTime if it is only that there was no time for a better one."""
        if answer.get("kind") == "timeout":
            self._left()
        return answer

    def _refused(
        self, measured: Measured, answer: Mapping[str, Any], build: float, run: float = 0.0
    ) -> Measured:
        file = ""
        if answer["kind"] in ("wrong", "crash") and measured.fn is not None:
            file = self._repro(measured.fn, answer)
        refusal = Refusal(answer["kind"], answer["reason"], file)
        return replace(measured, refusal=refusal, build_seconds=build, run_seconds=run)

    def _repro(self, fn: PrimFunc, answer: Mapping[str, Any]) -> str:
        """The path of a program that measures a candidate again; "" where none can be written."""
        if self.work_dir is None:
            return ""
        texts = [save_json(each, spans=False) for each in (self.fn, fn)]
        name = f"{answer['kind']}_{hashlib.sha256(texts[1].encode()).hexdigest()[:12]}.py"
        level, required, disabled, config = self._context
        text = f'''"""What a candidate of the tuner did."""

import relaxvm
from relaxvm.ir import load_json
from relaxvm.meta_schedule.measure import Measurer

REASON = {f"{answer['kind']}: {answer['reason']}"!r}
DEFAULT = load_json({texts[0]!r})
CANDIDATE = load_json({texts[1]!r})

if __name__ == "__main__":
    print(CANDIDATE.script())
    with relaxvm.transform.PassContext({level!r}, {required!r}, {disabled!r}, config={config!r}):
        with Measurer(DEFAULT, {self.target.export()!r}, seed={self._seed!r}) as measurer:
            (measured,) = measurer.measure([CANDIDATE])
    print("then", REASON)
    print("now ", measured.refusal or f"it takes {{measured.seconds}} seconds")
'''
        path = self.work_dir / "refused" / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, [text.encode()])
        except OSError:
            return ""
        return str(path)

    def _first(self) -> Measured:
        """The default schedule: what all others are checked against."""
        with ThreadPoolExecutor(1) as pool:
            # The start of a process takes a second.
            if isinstance(self._runner, LocalRunner):
                pool.submit(self._runner.start)
            fn = default_schedule(self.fn, self.target).with_attr(SCHEDULED, True)
            built = self._built(fn)
        measured = Measured(None, fn=fn)
        if "kind" not in built:
            if isinstance(self._runner, LocalRunner):
                exact, bound = sameness(self._one.fn)
                self._task = {
                    "module": built["module"],
                    "args": self._specs,
                    "exact": exact,
                    "bound": bound,
                    "seed": self._seed,
                }
                seconds = self._left()
                built = self._in_time(self._runner.prepare(self._task, seconds)) | built
            measured = self._timed(measured, built)
        if measured.seconds is None:
            reason = measured.refusal or built.get("reason")
            raise ScheduleError(f"the default schedule cannot be measured: {reason}")
        self._known[""] = self._known[key_of(fn)] = measured
        return measured

    # -- the final ---------------------------------------------------------------------------------

    def beats(
        self,
        winner: Any,
        default: Any = None,
        *,
        confidence: float = 0.95,
        seconds: float = 1.0,
        margin: float = 0.01,
    ) -> Comparison:
        """Whether a candidate is faster than another (None: the default schedule) by the part
        `margin` or more: both run by turns for so many seconds while nothing is built. The same
        code at two places in memory differs by up to a hundredth. Raises ScheduleError if either
        is refused.
        """
        if not 0.5 <= confidence < 1 or not seconds > 0:
            raise ScheduleError(
                f"beats: wanted a confidence from 0.5 to below 1 and seconds above 0, got "
                f"{confidence!r} and {seconds!r}"
            )
        if not isinstance(self._runner, LocalRunner):
            return self._pairs_elsewhere(winner, default, confidence, margin)
        modules = []
        for candidate in (self.default.fn if default is None else default, winner):
            drawn = self._drawn(candidate)
            answer: Mapping[str, Any] = (
                {"kind": "", "reason": drawn.refusal} if drawn.fn is None else self._built(drawn.fn)
            )
            if "kind" in answer:
                raise ScheduleError(f"beats: a candidate is refused: {answer['reason']}")
            modules.append(answer["module"])
        request = {
            "do": "compare",
            "modules": modules,
            "for_seconds": seconds,
            "least": 8,
            "most": 1000,
            **self._runner.evaluator_config.as_request(),
            "min_repeat_ms": 1,
        }
        patience = self._left(seconds + 2 * self._runner.timeout_sec)
        answer = self._in_time(self._runner.ask(self._task, request, patience))
        if "kind" in answer:
            reason = f"{answer['kind']}: {answer['reason']}"
            raise ScheduleError(f"beats: a candidate is refused: {reason}")
        return sign_test(answer["pairs"], confidence, margin)

    def _pairs_elsewhere(
        self, winner: Any, default: Any, confidence: float, margin: float
    ) -> Comparison:
        """By a runner of the user's, which is asked by turns."""
        fns = [self._drawn(self.default.fn if default is None else default), self._drawn(winner)]
        paths = [self._built(each.fn) for each in fns if each.fn is not None]
        if len(paths) < 2 or any("kind" in each for each in paths):
            raise ScheduleError("beats: a candidate is refused")
        pairs = []
        for _ in range(8):
            answers = [self._ran(each["path"]) for each in paths]
            if any("kind" in each for each in answers):
                raise ScheduleError("beats: a candidate is refused")
            pairs.append([statistics.median(each["samples"]) for each in answers])
        return sign_test(pairs, confidence, margin)

    # -- the end -----------------------------------------------------------------------------------

    def _kill(self) -> None:
        for each in (self._builder, self._runner):
            if isinstance(each, (LocalBuilder, LocalRunner)):
                each.kill()

    def close(self) -> None:
        """Give back the processes. What was given to it stays open."""
        for each in self._owned:
            each.close()

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _apply_somewhere(schedule: Schedule, plan: Plan) -> None:
    """Apply a plan to the first block that it fits."""
    reasons = []
    for block in schedule.get_child_blocks(root_of(schedule)):
        try:
            apply_plan(schedule, block, plan)
            return
        except ScheduleError as error:
            reasons.append(str(error))
    raise ScheduleError(f"{plan} fits no block: {'; '.join(reasons[:3])}")


__getattr__ = submodules(__name__)
