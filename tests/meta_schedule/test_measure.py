"""Candidates in processes of their own: right or refused, timed, and no harm done by any."""

import contextlib
import os
import random
import subprocess
import sys
import textwrap
import time
import types

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import meta_schedule as ms
from relaxvm import te
from relaxvm.base import ScheduleError
from relaxvm.ir import IRModule
from relaxvm.meta_schedule import processes, worker
from relaxvm.meta_schedule.arguments import argument_specs, sameness
from relaxvm.meta_schedule.measure import QUICK, Measurer, sign_test
from relaxvm.meta_schedule.sizes import Sized
from relaxvm.script import from_source
from relaxvm.script import tir as T
from relaxvm.tir import Schedule

# What a candidate of somebody who registered C functions could do.
_C = """
import ctypes, llvmlite.binding as llvm
for name in ("abort", "_exit", "sleep", "puts", "malloc"):
    llvm.add_symbol(name, ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value)
"""


@T.prim_func
def double(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.block("B"):
            v = T.axis.spatial(64, i)
            B[v] = A[v] * T.float32(2)


def candidate(line):
    """`double`, computed otherwise."""
    text = f"""
    @T.prim_func
    def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(64):
            with T.block("B"):
                v = T.axis.spatial(64, i)
{textwrap.indent(line, " " * 16)}
    """
    return from_source(textwrap.dedent(text))


def dense(m, n, k):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="B")
    r = te.reduce_axis((0, k), name="k")
    return te.create_prim_func(
        [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r), name="C")]
    )


def split(fn, factor):
    sch = Schedule(fn)
    i, j, k = sch.get_loops(sch.get_block("C"))
    outer, inner = sch.split(j, [None, factor])
    sch.reorder(outer, k, inner)
    sch.vectorize(inner)
    return sch


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A measurer of `double` whose candidates may call C functions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "_START", processes._START.replace("from rel", _C + "from rel"))
        patch.setattr(processes, "_idle", [])
        folder = tmp_path_factory.mktemp("work")
        builder = ms.builder.LocalBuilder(1)
        with Measurer(
            double, "llvm", work_dir=folder, builder=builder, memory_bytes=1 << 28
        ) as measurer:
            yield measurer
        builder.close()
        for process in processes._idle:
            process.end()


OUTCOMES = {
    "B[v] = A[v] + A[v]": "",
    "B[v] = A[v] * T.float32(3)": "wrong",
    "B[v] = T.float32(0) / (A[v] - A[v])": "wrong",
    'T.evaluate(T.call_extern("int32", "puts", "noise"))\nB[v] = A[v] * T.float32(2)': "",
    "B[v + 64] = A[v] * T.float32(2)": "error",
    'T.evaluate(T.call_extern("int32", "abort"))\nB[v] = A[v] * T.float32(2)': "crash",
    'T.evaluate(T.call_extern("int32", "no_such_function"))\nB[v] = A[v]': "build",
    'T.evaluate(T.call_extern("int32", "sleep", 1))\nB[v] = A[v] * T.float32(2)': "timeout",
}


def test_whatever_a_candidate_does_the_next_is_measured(hostile):
    hostile.counts.clear()
    seen = []
    lines = list(OUTCOMES)[:-1]
    results = hostile.measure([candidate(line) for line in lines], lambda i, one: seen.append(i))
    kinds = [one.refusal.kind if one.refusal else "" for one in results]
    assert kinds == [OUTCOMES[line] for line in lines]
    assert seen == list(range(len(lines)))
    assert all((one.seconds is None) == bool(one.refusal) for one in results)
    assert hostile.counts["refused"] == 5 and hostile.counts["crash"] == 1
    assert "64 of 64 values differ, first at [0]" in results[1].refusal.reason
    assert "out of bounds" in results[4].refusal.reason
    assert "signal 6" in results[5].refusal.reason


@pytest.mark.slow
def test_what_hangs_is_ended(hostile):
    (one,) = hostile.measure([candidate(list(OUTCOMES)[-1])])
    assert one.refusal.kind == "timeout"
    assert hostile.measure([candidate("B[v] = A[v] + T.float32(1) * A[v]")])[0].seconds


@pytest.mark.slow
def test_memory_without_end_is_refused(hostile):
    loop = """
    for n in range(1 << 30):
        T.evaluate(T.call_extern("int64", "malloc", T.int64(1 << 20)))
    B[v] = A[v] * T.float32(2)
    """
    (one,) = hostile.measure([candidate(textwrap.dedent(loop))])
    # malloc gives no more: it goes on until its time is over, within its memory.
    assert one.refusal.kind == "timeout"
    assert hostile.measure([double])[0].seconds


@pytest.mark.slow
def test_what_leaks_goes_with_its_process(hostile):
    leak = candidate(
        'T.evaluate(T.call_extern("int64", "malloc", T.int64(1 << 18)))\nB[v] = A[v] * T.float32(2)'
    )
    before = hostile._runner._process.generation
    (one,) = hostile.measure([leak])
    assert one.seconds or one.refusal.kind in ("error", "memory", "crash", "timeout")
    hostile.measure([candidate("B[v] = T.float32(2) * A[v] + T.float32(0)")])
    assert hostile._runner._process.generation > before


@pytest.mark.slow
def test_a_wrong_one_leaves_a_program_that_shows_it(hostile):
    (one,) = hostile.measure([candidate("B[v] = A[v] - A[v]")])
    ran = subprocess.run(
        [sys.executable, one.refusal.file], capture_output=True, text=True, check=True
    )
    assert "values differ" in ran.stdout.split("now ")[1], ran.stdout + ran.stderr
    assert "prim_func" in ran.stdout


def test_candidates_come_as_schedules_traces_plans_and_functions(hostile):
    fn = dense(8, 32, 64)
    sch = split(fn, 8)
    plan = next(c.plan for c in tvm.tir.schedule.plans_of(Schedule(fn), "C", "llvm"))
    with Measurer(IRModule({"f": fn}), "llvm", builder=hostile._builder) as measurer:
        ones = measurer.measure(
            [sch, sch.trace, sch.trace.as_json(), plan, ("C", plan), sch.mod, sch.mod["main"]]
        )
        assert [one.refusal for one in ones] == [None] * 7
        assert len({ones[i].seconds for i in (0, 1, 2, 5, 6)}) == 1  # measured once
        assert ones[1].schedule.trace is not None and ones[0].samples and ones[3].build_seconds
        bad = measurer.measure([3, sch.trace.as_json()[0], ("D", plan)])
        assert [one.refusal.kind for one in bad] == ["schedule"] * 3
        final = measurer.beats(sch, seconds=0.05)
        assert final.pairs >= 8 and final.low <= final.speedup <= final.high
        assert not measurer.beats(measurer.default.fn, seconds=0.05, margin=1.0).holds


def test_an_interrupt_leaves_no_work_behind(hostile):
    def stop(i, one):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hostile.measure([candidate("B[v] = A[v] + A[v] + T.float32(0)"), double], stop)
    assert hostile.measure([double])[0].seconds


@pytest.mark.slow
def test_workers_end_when_their_owner_is_killed(tmp_path):
    program = tmp_path / "owner.py"
    hangs = (
        "import ctypes; from relaxvm.meta_schedule import worker;"
        "worker._built = lambda request: ctypes.PyDLL(None).sleep(100);"
    )
    program.write_text(
        textwrap.dedent(
            f"""
            from relaxvm.meta_schedule import processes
            processes._START = processes._START.replace("from rel", {hangs!r} + "from rel")
            idle, busy = processes.Process(1 << 28), processes.Process(1 << 28)
            idle.ready(), busy.ready()
            print(idle._worker._process.pid, busy._worker._process.pid, flush=True)
            busy.ask({{"do": "build"}}, 100)
            """
        )
    )
    owner = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    pids = [int(x) for x in owner.stdout.readline().split()]
    owner.kill()
    owner.wait()
    owner.stdout.close()
    until = time.monotonic() + 60
    while time.monotonic() < until and any(map(_runs, pids)):
        time.sleep(0.02)
    assert not any(map(_runs, pids))


def _runs(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_arguments_are_in_range_and_bounds_follow_from_sums():
    @T.prim_func
    def gather(
        X: T.Buffer((10, 4), "float32"), I: T.Buffer((3,), "int64"), Y: T.Buffer((3, 4), "float32")
    ):
        for i, j in T.grid(3, 4):
            with T.block("Y"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = X[I[vi], vj]

    assert argument_specs(gather, Sized(gather)) == [
        ["float32", [10, 4], None, None], ["int64", [3], 0, 10], ["float32", [3, 4], None, None],
    ]  # fmt: skip
    assert sameness(gather) == (True, 0.0)
    exact, bound = sameness(dense(2, 2, 100))
    assert not exact and bound == pytest.approx(4e-5)
    with tvm.transform.PassContext(config={"numerics": "exact"}):
        assert sameness(dense(2, 2, 100))[0]


def test_differences_are_told():
    a = np.array([1.0, np.nan, np.inf, 0.0], "float32")
    assert worker._difference(a, a.copy(), True, 0.0) == ""
    for k, value in ((0, 1.1), (1, 0.0), (2, -np.inf), (3, -0.0), (0, np.nan)):
        b = a.copy()
        b[k] = value
        assert f"first at [{k}]" in worker._difference(a, b, True, 0.0)
        assert bool(worker._difference(a, b, False, 0.2)) == (k in (1, 2) or np.isnan(value))
    n = np.arange(2000)
    assert worker._difference(n, n + (n == 5), False, 0.1) == ""
    assert worker._difference(n, n + (n == 5), True, 0.1)
    assert worker._difference(n, n + 2 * (n == 5), False, 0.1)


class Machine:
    """A clock, and neighbours: they stop the process for milliseconds, which it is told of for
    switches of its own core, and slow it down while they use its caches.
    """

    def __init__(self, patch, rng, busy):
        self.now, self.switches, self.waited = 0.0, 0, 0.0
        self.rng, self.busy, self.until, self.slow = rng, busy, 0.0, 1.0
        patch.setattr(worker, "time", types.SimpleNamespace(perf_counter=lambda: self.now))
        patch.setattr(worker, "_switches", lambda: self.switches)
        # What the system says is wrong by a little.
        patch.setattr(worker, "_waited", lambda: self.waited * 1.001)

    def kernel(self, seconds):
        def call():
            if self.now > self.until:
                self.until = self.now + self.rng.uniform(1e-4, 4e-3)
                self.slow = self.rng.uniform(1.2, 3) if self.rng.random() < self.busy / 2 else 1.0
                if self.rng.random() < self.busy:
                    away = self.rng.uniform(1e-3, 8e-3)
                    self.now += away
                    if self.rng.random() < 0.7:
                        self.switches += 1
                        self.waited += away
            self.now += seconds * self.slow

        return call


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("busy", [0.0, 0.5, 0.95])
def test_no_time_is_told_that_an_undisturbed_run_does_not_have(monkeypatch, busy, alone):
    machine = Machine(monkeypatch, random.Random(5), busy)
    clock = worker._Clock(machine.kernel(1e-5), alone)
    request = {**QUICK.as_request(), "enough": 0.0}
    for seconds in (4e-6, 9e-6, 6e-4, 5e-3):
        told = [clock.measure(machine.kernel(seconds), request, None) for _ in range(6)]
        samples = [s for one in told for s in one["samples"]]
        assert min(samples) >= seconds * (1 - 1e-9)
        assert all(3 <= len(one["samples"]) <= 5 and one["noise"] >= 1 for one in told)
        if not busy:
            assert max(samples) <= seconds * (1 + 1e-9) and all(one["calm"] for one in told)
        elif seconds < 1e-4:
            # Short parts fit between the neighbours.
            assert np.median(samples) < 3 * seconds
        pairs = clock.compare(
            [machine.kernel(seconds), machine.kernel(2 * seconds)],
            {**request, "for_seconds": 0.02, "least": 8, "most": 20},
            None,
        )
        assert min(a for a, _ in pairs) >= seconds * (1 - 1e-9)
        assert min(b for _, b in pairs) >= 2 * seconds * (1 - 1e-9)


def test_measuring_among_neighbours_ends_in_time(monkeypatch):
    machine = Machine(monkeypatch, random.Random(1), 1.0)
    clock = worker._Clock(machine.kernel(1e-3), True)
    request = {**ms.runner.EvaluatorConfig(1, 1000, 4).as_request(), "enough": 0.0}
    begun = machine.now
    told = clock.measure(machine.kernel(1e-2), {**request, "seconds": 2.0}, None)
    assert 1.0 < machine.now - begun < 2.0 and told["samples"]


def test_a_cold_sample_is_one_call(monkeypatch):
    machine, emptied = Machine(monkeypatch, random.Random(1), 0.0), []
    clock = worker._Clock(machine.kernel(1e-5), True)
    request = {**ms.runner.EvaluatorConfig(3, 4, 1, True).as_request(), "enough": 0.0}
    calls = []
    kernel = machine.kernel(1e-6)
    told = clock.measure(lambda: (calls.append(0), kernel()), request, lambda: emptied.append(0))
    assert len(told["samples"]) == 4 and len(calls) == len(emptied)


def test_the_sign_test_counts():
    assert sign_test([[2.0, 1.0]] * 10, 0.95).holds
    assert sign_test([[2.0, 1.0]] * 10, 0.95).confidence == pytest.approx(1 - 2**-10)
    assert not sign_test([[2.0, 1.0]] * 3, 0.95).holds
    assert not sign_test([[1.0, 1.0]] * 100, 0.5).holds
    assert not sign_test([[1.005, 1.0]] * 100, 0.95, margin=0.01).holds
    one = sign_test([[1.0 + k / 100, 1.0] for k in range(101)], 0.95)
    assert 1.35 < one.low < one.speedup == 1.5 < one.high < 1.65
    assert "101 pairs" in str(one)


def test_builders_and_runners_of_this_machine_and_of_the_user(hostile):
    builder = ms.builder.LocalBuilder(max_workers=1, timeout_sec=20)
    built, broken = builder.build(
        [
            ms.builder.BuilderInput(IRModule({"main": double}), "llvm"),
            ms.builder.BuilderInput(candidate('T.evaluate(T.call_extern("int32", "nn"))'), "llvm"),
        ]
    )
    assert built.error_msg is None and "no C function" in broken.error_msg
    config = ms.runner.EvaluatorConfig(number=2, repeat=3, min_repeat_ms=0)
    runner = ms.runner.LocalRunner(evaluator_config=config)
    infos = ms.arg_info.ArgInfo.from_prim_func(double)
    inputs = [ms.runner.RunnerInput(path, "cpu", infos) for path in (built.artifact_path, "none")]
    first, second = (future.result() for future in runner.run(inputs))
    assert len(first.run_secs) == 3 and second.error_msg
    flush = ms.runner.EvaluatorConfig(1, 2, 0, enable_cpu_cache_flush=True)
    runner.evaluator_config = flush
    (cold,) = runner.run(inputs[:1])
    assert cold.done() and min(cold.result().run_secs) > 0

    @ms.derived_object
    class Mine(ms.runner.PyRunner):
        def run(self, runner_inputs):
            result = ms.runner.RunnerResult([0.25, 0.5, 0.75], None)
            return [ms.runner.RunnerFuture(lambda: True, lambda: result) for _ in runner_inputs]

    with Measurer(double, "llvm", builder=builder, runner=Mine()) as measurer:
        assert measurer.measure([candidate("B[v] = A[v]")])[0].seconds == 0.5
        assert not measurer.beats(double).holds
    builder.close()
    runner.close()
    assert not os.path.exists(built.artifact_path)
    with pytest.raises(ScheduleError, match="there is no RPC"):
        ms.runner.RPCRunner()
    with pytest.raises(ScheduleError, match="repeat"):
        ms.runner.EvaluatorConfig(repeat=0)
    with pytest.raises(ScheduleError, match="PyRunner"):
        ms.runner.LocalRunner(f_run_evaluator=print)


def test_a_kernel_that_cannot_be_measured_says_why():
    @T.prim_func
    def dynamic(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("B"):
                v = T.axis.spatial(n, i)
                B[v] = A[v]

    with pytest.raises(ScheduleError, match="constant sizes"):
        Measurer(dynamic, "llvm")
    with tvm.transform.PassContext(
        config={"tir.add_lower_pass": [(1, tvm.tir.transform.Simplify())]}
    ):
        with pytest.raises(ScheduleError, match="cannot be sent"):
            Measurer(double, "llvm")


def test_callbacks_of_a_batch_and_the_profiler(tmp_path):
    class Model:
        def update(self, ctx, candidates, results):
            self.seen = candidates, results

    sch = Schedule(double)
    scheduler = types.SimpleNamespace(
        database_=ms.database.create("memory"),
        cost_model_=Model(),
        tasks_=[types.SimpleNamespace(ctx=ms.TuneContext(sch.mod, target="llvm"))],
    )
    file = tmp_path / "kernel"
    file.touch()
    candidates = [types.SimpleNamespace(sch=sch, args_info=None)] * 2
    built = [ms.builder.BuilderResult(str(file)), ms.builder.BuilderResult(None, "no")]
    ran = [ms.runner.RunnerResult([2.0]), ms.runner.RunnerResult(None, "no")]
    with ms.Profiler() as profiler:
        assert ms.Profiler.current() is profiler
        with ms.Profiler.timeit("Callbacks"):
            for callback in ms.MeasureCallback.create("default"):
                callback.apply(scheduler, 0, candidates, built, ran)
    assert not file.exists()
    assert scheduler.cost_model_.seen == (candidates[:1], ran[:1])
    assert len(scheduler.database_) == 2
    assert scheduler.database_.query_tuning_record(double, "llvm").seconds == 2.0
    assert profiler.get().keys() == {"Callbacks", "Total"} and "Callbacks" in profiler.table()
    with pytest.raises(ScheduleError, match="kind is one of default"):
        ms.MeasureCallback.create("other")


def test_kernels_that_take_turns_at_one_runner_are_each_checked_against_their_own(hostile):
    runner = ms.runner.LocalRunner()
    options = {"target": "llvm", "builder": hostile._builder, "runner": runner}
    small, wide = dense(4, 8, 16), dense(2, 32, 8)
    with Measurer(small, **options) as one, Measurer(wide, **options) as other:
        for measurer, fn in ((one, small), (other, wide), (one, small)):
            (measured,) = measurer.measure([split(fn, 2 if measurer.counts else 8)])
            assert measured.refusal is None, measured.refusal
            assert measurer.beats(split(fn, 8), seconds=0.01).pairs >= 8
    runner.close()
