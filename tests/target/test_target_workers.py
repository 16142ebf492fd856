"""Kernels compiled by several processes, and by children of `fork`."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from test_target_units import CALLS, CPU, many, run

import relaxvm
from relaxvm import relax
from relaxvm.base import CodegenError, RelaxvmError
from relaxvm.ir import PassContext
from relaxvm.script import from_source
from relaxvm.target import Target, compile_kernels
from relaxvm.target.llvm import at_hand, build, units, workers
from relaxvm.tir.schedule.plans import DefaultSchedule


@pytest.fixture
def two_jobs(monkeypatch):
    monkeypatch.setenv("RELAXVM_BUILD_JOBS", "2")
    monkeypatch.setattr(workers, "_UNITS_PER_WORKER", 1)


def test_a_worker_compiles_the_same_code(cache, two_jobs, monkeypatch):
    mod = many(4)
    mod["calls"] = from_source(CALLS)["alone"]
    parts = units.split(mod)
    settings = units.Settings(build.machine_of(None), schedule=DefaultSchedule(cpu=CPU))
    with PassContext(config={"numerics": "exact"}):
        narrow = units.Settings(build.machine_of(None), schedule=DefaultSchedule(cpu=CPU))
    shared = workers._Shared(parts, narrow)
    # The worker does everything; this process only waits.
    shared.texts.close()
    shared._work_elsewhere()
    assert all(made is not None for made in shared.made)
    assert shared.made == [units.compile_unit(unit, narrow) for unit in parts]
    assert workers.compile_units(parts, settings) == [
        units.compile_unit(unit, settings) for unit in parts
    ]


def test_a_worker_without_units_takes_texts_that_wait(cache, two_jobs):
    parts = units.split(many(3))
    settings = units.Settings(build.machine_of(None), schedule=DefaultSchedule(cpu=CPU))
    shared = workers._Shared(parts, settings)
    shared.waiting.clear()
    for i, unit in enumerate(parts):
        shared.texts.put(i, units.generate_unit(unit, settings))
    shared.texts.close()
    shared._work_elsewhere()
    assert shared.made == [units.compile_unit(unit, settings) for unit in parts]


def test_where_a_worker_fails_the_error_is_that_of_this_process(cache, two_jobs):
    mod = many(3)
    mod["broken"] = from_source("""
from relaxvm.script import tir as T
@T.prim_func
def broken(A: T.Buffer((1,), "float64")):
    A[0] = T.call_extern("float64", "no_such_function_anywhere", A[0])
""")
    with pytest.raises(CodegenError, match=r"broken.*no_such_function_anywhere"):
        compile_kernels(mod)


def test_of_what_llvm_and_what_this_process_refuse_the_first_is_told(cache, monkeypatch):
    monkeypatch.setenv("RELAXVM_BUILD_JOBS", "1")
    compile_text = units.compile_text

    def refuse(text, *args, name, **options):
        time.sleep(0.05)
        if name == "scale1":
            raise CodegenError("LLVM refuses scale1")
        return compile_text(text, *args, name=name, **options)

    monkeypatch.setattr(units, "compile_text", refuse)
    mod = many(2)
    mod["broken"] = from_source("""
from relaxvm.script import tir as T
@T.prim_func
def broken(A: T.Buffer((1,), "float64")):
    A[0] = T.call_extern("float64", "no_such_function_anywhere", A[0])
""")
    with pytest.raises(CodegenError, match="LLVM refuses scale1"):
        compile_kernels(mod)


@pytest.mark.parametrize(
    "start", ["import os; os._exit(1)", "raise SystemExit", "print('hello' * 9, flush=True)"]
)
def test_workers_that_die_or_babble_cost_time_only(cache, two_jobs, monkeypatch, start):
    monkeypatch.setattr(at_hand, "_START", start)
    section = compile_kernels(many(3)).section
    run(section, "scale2", 2)


def test_a_worker_sees_the_modules_of_this_process_and_not_those_around_it(
    cache, two_jobs, monkeypatch, tmp_path
):
    # A folder full of somebody's files, in which Python happens to be.
    (tmp_path / "here").mkdir()
    for name in ("numpy", "msgpack", "random", "pickle"):
        (tmp_path / "here" / f"{name}.py").write_text("open('executed', 'w')")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    parts = units.split(many(2))
    settings = units.Settings(build.machine_of(None), schedule=DefaultSchedule(cpu=CPU))
    shared = workers._Shared(parts, settings)
    shared.texts.close()
    shared._work_elsewhere()
    assert all(made is not None for made in shared.made)
    assert not (tmp_path / "here" / "executed").exists()


def test_a_worker_that_says_nothing_is_not_waited_for(cache, two_jobs, monkeypatch):
    monkeypatch.setattr(at_hand, "_START", "import time; time.sleep(1000)")
    monkeypatch.setattr(workers, "_PATIENCE_SECONDS", 0.2)
    run(compile_kernels(many(3)).section, "scale2", 2)


def test_an_interrupt_ends_the_workers_at_once(cache, two_jobs, monkeypatch):
    monkeypatch.setattr(at_hand, "_START", "import time; time.sleep(1000)")

    def interrupted(*args):
        time.sleep(0.2)
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "generate_unit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compile_kernels(many(3))


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\x93\x01\x02\x03", b"\xc1" * 20, b"\x95" * 6])
def test_an_answer_that_is_none_counts_as_no_answer(cache, two_jobs, monkeypatch, garbage):
    start = (
        "import sys; out = sys.stdout.buffer; data = {0!r}\n"
        "while sys.stdin.buffer.read(1):\n"
        "    out.write(len(data).to_bytes(8, 'little') + data); out.flush()"
    )
    # `format` is called with the module's name.
    monkeypatch.setattr(at_hand, "_START", start.replace("{0!r}", repr(garbage)))
    run(compile_kernels(many(3)).section, "scale2", 2)


def test_where_no_thread_can_start_this_process_compiles(cache, two_jobs, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    run(compile_kernels(many(3)).section, "scale2", 2)


def test_another_program_is_not_started_as_a_worker(cache, two_jobs, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/usr/bin/some-program")
    monkeypatch.setattr("subprocess.Popen", lambda *a, **k: pytest.fail("started"))
    run(compile_kernels(many(3)).section, "scale2", 2)


@pytest.mark.slow
def test_builders_that_share_a_folder_do_not_disturb_each_other(cache):
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_target_units as t\n"
        "t.units.fingerprint = lambda: 'these'\n"
        "for i in range(6):\n"
        "    s = t.compile_kernels(t.many(4)).section\n"
        "    t.run(s, 'scale3', 3)\n"
    )
    root = os.path.dirname(os.path.dirname(relaxvm.__file__))
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, os.path.dirname(__file__)],
            env={**os.environ, "PYTHONPATH": root},
        )
        for _ in range(3)
    ]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]


# Builds in a thread while the main thread forks: a child that finds LLVM locked hangs.
FORKS = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
import test_target_units as t
t.compile_kernels(t.many(1))
def build():
    i = 0
    while True:
        t.compile_kernels(t.IRModule({"f": t.scaled(float(i))}))
        i += 1
threading.Thread(target=build, daemon=True).start()
time.sleep(0.3)
for i in range(6):
    pid = os.fork()
    if pid == 0:
        t.compile_kernels(t.IRModule({"f": t.scaled(1000.0 + i)}))
        os._exit(0)
    until = time.monotonic() + 40
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(pid, 9)
            sys.exit("a child hangs")
        time.sleep(0.02)
    time.sleep(0.017)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_forked_while_another_thread_compiles_can_compile():
    root = os.path.dirname(os.path.dirname(relaxvm.__file__))
    done = subprocess.run(
        [sys.executable, "-c", FORKS, os.path.dirname(__file__)],
        env={**os.environ, "PYTHONPATH": root, "RELAXVM_CACHE": "0"},
        capture_output=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr.decode()[-500:]


# -- a worker at hand -----------------------------------------------------------------------------


def layers(count, sizes):
    """A graph of `count` operators whose kernels are of `sizes`."""
    b, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((max(sizes),), "float32"))
    with b.function("main", [x]):
        last = [b.emit(relax.op.strided_slice(x, [0], [0], [n])) for n in sizes]
        for i in range(count):
            last[i % len(sizes)] = b.emit(relax.op.cumsum(last[i % len(sizes)], 0))
        b.emit_func_output(relax.Tuple(last))
    return b.get()


@pytest.fixture
def started(cache, monkeypatch):
    """The workers that were started for a build as it began."""
    monkeypatch.setenv("RELAXVM_BUILD_JOBS", "2")
    monkeypatch.setattr(at_hand, "idle_core", lambda: True)
    begun = []

    class Watched(at_hand.Worker):
        def __init__(self, *options):
            begun.append(self)
            super().__init__(*options)

    monkeypatch.setattr(at_hand, "Worker", Watched)
    return begun


def test_a_large_module_that_is_new_has_a_worker_started_once(started):
    mod = layers(60, [5, 6, 7, 8])
    relax.build(mod, "llvm")
    (worker,) = started
    assert worker._process.returncode is not None
    assert at_hand.at_hand() is None
    # It is known now, and so are its kernels.
    relax.build(mod, "llvm")
    assert len(started) == 1
    # This one is new, but has no kernels that are.
    relax.build(layers(61, [5, 6, 7, 8]), "llvm")
    assert [w._process.returncode is not None for w in started[1:]] == [True]


def test_no_worker_is_started_for_small_modules_busy_machines_and_one_job(started, monkeypatch):
    relax.build(layers(20, [5, 6]), "llvm")
    monkeypatch.setattr(at_hand, "idle_core", lambda: False)
    relax.build(layers(60, [5, 6]), "llvm")
    monkeypatch.setattr(at_hand, "idle_core", lambda: True)
    monkeypatch.setenv("RELAXVM_BUILD_JOBS", "1")
    relax.build(layers(70, [5, 6]), "llvm")
    assert not started


def test_a_build_that_fails_leaves_no_worker(started):
    with pytest.raises(ValueError, match="stop"), at_hand.worker_at_hand(["op"] * 99):
        raise ValueError("stop")
    (worker,) = started
    assert worker._process.returncode is not None
    with at_hand.worker_at_hand(["op"] * 99):
        assert len(started) == 2


# -- kernels compiled ahead -----------------------------------------------------------------------


# What passes may do before kernels are compiled: nothing, or something.
SAME = operator.methodcaller("replace")
OTHER = operator.methodcaller("with_attr", "other", 1)


def compile_ahead(mod, prepare=SAME):
    """The worker at hand, which compiles the kernels of `mod` as `prepare` makes them."""
    for gv, fn in mod.items():
        fn = fn.with_attr("global_symbol", gv.name_hint)
        workers.compile_ahead(gv.name_hint, fn, Target("llvm"), None, prepare)
    return at_hand.at_hand()


def wait_for(ahead, count):
    """Until it made so many."""
    while len(ahead.units) < count:
        assert ahead.worker.is_alive()
        time.sleep(0.01)


def test_what_was_compiled_ahead_is_the_unit_and_not_compiled_again(started, monkeypatch):
    parts = units.split(many(4))
    settings = units.Settings(build.machine_of(None))
    expected = [units.compile_unit(unit, settings) for unit in parts]
    monkeypatch.setattr(workers, "generate_unit", lambda *given: pytest.fail("compiled again"))
    with at_hand.worker_at_hand(["op"] * 99):
        wait_for(compile_ahead(many(4)), 4)
        assert workers.compile_units(parts, settings) == expected
        assert at_hand.at_hand() is None
    (worker,) = started
    assert worker.asked == 4
    assert worker._process.returncode is not None


def test_what_passes_changed_after_it_was_compiled_ahead_is_compiled(started):
    parts = units.split(many(4))
    settings = units.Settings(build.machine_of(None))
    with at_hand.worker_at_hand(["op"] * 99):
        ahead = compile_ahead(many(4), OTHER)
        wait_for(ahead, 4)
        assert workers.compile_units(parts, settings) == [
            units.compile_unit(unit, settings) for unit in parts
        ]
    assert ahead.units.keys().isdisjoint((unit.stem, unit.document) for unit in parts)


@pytest.mark.parametrize("right", [True, False])
def test_what_a_worker_is_at_work_on_is_waited_for_and_compiled_if_it_is_another(started, right):
    """No other begins the kernel meanwhile; if it was not what is wanted, it is done after that."""
    parts = units.split(many(4))
    settings = units.Settings(build.machine_of(None))
    with at_hand.worker_at_hand(["op"] * 99):
        ahead = at_hand.take()
        ahead.at_work = "scale2"
        shared = workers._Shared(parts, settings, ahead)
        assert sorted([*shared.waiting, shared.begun]) == [0, 1, 2, 3]
        assert parts[shared.begun].called == {"scale2"}
        if right:
            unit = parts[shared.begun]
            ahead.units[unit.stem, unit.document] = units.compile_unit(unit, settings)
        shared.texts.close()
        shared._work_elsewhere()
    assert shared.made == [units.compile_unit(unit, settings) for unit in parts]
    assert [worker.asked for worker in started] == [3 if right else 4]


@pytest.mark.parametrize(
    "start",
    [
        "import os; os._exit(1)",
        "print('hello' * 9, flush=True)",
        "import sys, time; time.sleep(0.2); sys.stdout.buffer.write((1).to_bytes(8, 'little')"
        " + b'x'); sys.stdout.flush()",
    ],
)
def test_a_worker_that_fails_ahead_costs_time_only(started, monkeypatch, start):
    monkeypatch.setattr(at_hand, "_START", start)
    with at_hand.worker_at_hand(["op"] * 99):
        compile_ahead(many(4))
        run(compile_kernels(many(4)).section, "scale2", 2)


def test_what_is_wrong_with_a_target_is_told_where_its_kernels_are_compiled(started):
    target = Target("llvm -mcpu=none-such -mtriple=none-such")
    with at_hand.worker_at_hand(["op"] * 99):
        for gv, fn in many(4).items():
            workers.compile_ahead(gv.name_hint, fn, target, None, SAME)
        ahead = at_hand.at_hand()
        with pytest.raises(RelaxvmError, match="none-such"):
            compile_kernels(many(4), target)
        assert not ahead.units


def test_nothing_is_compiled_ahead_without_a_worker_and_of_functions_that_call(started):
    assert compile_ahead(many(1)) is None
    with at_hand.worker_at_hand(["op"] * 99):
        ahead = compile_ahead({gv: fn for gv, fn in from_source(CALLS).items() if fn.params[1:]})
        wait_for(ahead, 1)
        assert [stem for stem, _ in ahead.units] == ["alone"]
        assert ahead._pool._work_queue.empty()


def test_kernels_that_a_build_compiles_ahead_are_those_it_wants(started, cache, monkeypatch):
    rng = np.random.default_rng(0)
    b, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((8, 24), "float32"))
    with b.function("main", [x]):
        y = x
        for i in range(60):
            weight = rng.standard_normal((24, 24)).astype("float32")
            y = b.emit(relax.op.matmul(y, relax.const(weight)))
            y = b.emit(relax.op.nn.relu(y) if i % 2 else relax.op.tanh(y))
        b.emit_func_output(y)
    stems = set()

    class Patient(at_hand.AtHand):
        def stop(self, wait=False):
            wait_for(self, 2)
            stems.update(stem for stem, _ in self.units)
            super().stop(wait)

    monkeypatch.setattr(at_hand, "AtHand", Patient)
    monkeypatch.setattr(workers, "_UNITS_FOR_READY", 1)
    monkeypatch.setattr(workers, "generate_unit", lambda *given: pytest.fail("compiled again"))
    ahead = relax.build(b.get(), "llvm").to_bytes(sign=False)
    assert stems == {"fused_matmul_relu", "fused_matmul_tanh"}
    monkeypatch.undo()
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(cache / "other"))
    assert relax.build(b.get(), "llvm").to_bytes(sign=False) == ahead
