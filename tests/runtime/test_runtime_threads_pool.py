"""The thread pool: regions, failures, many callers, fork, exit, idleness, sizes."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pathlib
import queue
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
import types
import warnings

import numpy as np
import pytest

from relaxvm.base import DataType, VMTypeError, VMValueError
from relaxvm.runtime import cpu_budget, threads, threads_ir, trampoline
from relaxvm.runtime.kernel import KernelInfo, KernelParam
from relaxvm.script import tir as T
from relaxvm.target import build

MUCH = 1 << 40
Body = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
ParallelFor = ctypes.CFUNCTYPE(
    ctypes.c_int32, Body, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)

PROGRAM = """
    import os, sys, threading
    import numpy as np
    {before}
    import relaxvm as tvm
    from relaxvm.runtime import threads
    {after}
    from relaxvm.script import from_source
    TEXT = '''
    @T.prim_func
    def main(A: T.Buffer((100000,), "float64"), B: T.Buffer((100000,), "float64")):
        for i in T.parallel(100000):
            B[i] = A[i] * T.float64(2) + T.float64(1)
    '''
    import textwrap
    rt = tvm.build(from_source(textwrap.dedent(TEXT)))
    rt.num_threads = 3
    def once():
        a = np.arange(100000.0); b = np.zeros_like(a)
        rt["main"](a, b)
        assert (b == a * 2 + 1).all()
    for _ in range(20):
        once()
    assert threads.worker_count() == 2
"""


def parallel_for():
    return ParallelFor(threads.parallel_for_address())


def run_program(rest="", before="", after=""):
    text = textwrap.dedent(PROGRAM.replace("{before}", before).replace("{after}", after))
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", text + textwrap.dedent(rest)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=pathlib.Path(__file__).parents[2],
        check=False,
    )


def pools():
    """The pool of the process, and one of its own that parks with pthreads."""
    llvm = pytest.importorskip("llvmlite.binding")
    architecture = llvm.get_default_triple().split("-")[0]
    threads.parallel_for_address()
    yield threads._library()
    yield threads._build(architecture, "pthread")
    yield threads._build(architecture, "serial")


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 17, 1000])
def test_every_iteration_runs_once(kind, n):
    pool = list(pools())[kind]
    counts = (ctypes.c_int64 * 1000)()
    lock = threading.Lock()

    @Body
    def body(ctx, begin, end):
        with lock:
            for i in range(begin, end):
                counts[i] += 1
        return 0

    run = ParallelFor(pool.addresses["relaxvm_parallel_for"])
    for turn in range(1, 21):
        assert run(body, None, n, 4, MUCH) == 0
        assert list(counts[:n]) == [turn] * n
        if turn % 5 == 0:
            time.sleep(0.002)  # let the workers park
    assert sum(counts) == 20 * n


@pytest.mark.parametrize("kind", [0, 1])
def test_several_threads_work_on_one_region(kind):
    run = ParallelFor(list(pools())[kind].addresses["relaxvm_parallel_for"])
    seen, meeting = set(), threading.Barrier(3, timeout=20)

    @Body
    def body(ctx, begin, end):
        seen.add(threading.get_ident())
        meeting.wait()
        return 0

    assert run(body, None, 3, 3, MUCH) == 0
    assert len(seen) == 3


def test_little_work_stays_with_the_caller():
    seen = set()

    @Body
    def body(ctx, begin, end):
        seen.add((threading.get_ident(), begin, end))
        return 0

    assert parallel_for()(body, None, 1000, 4, threads_ir.GRAIN) == 0
    assert seen == {(threading.get_ident(), 0, 1000)}


def test_small_regions_that_lack_threads_wake_them_together():
    pool, run = threads._library(), parallel_for()
    empty = Body(lambda ctx, begin, end: 0)
    assert run(empty, None, 100, 2, MUCH) == 0
    end = time.monotonic() + 20
    while ctypes.c_int32.from_address(pool._state + threads_ir.SLEEPERS).value < (
        pool.word(threads_ir.STARTED)
    ):
        assert time.monotonic() < end, "the workers did not park"
        time.sleep(0.001)
    before = pool.word(threads_ir.REGIONS)
    small = 2 * threads_ir.GRAIN
    for _ in range(threads_ir.WANTING // small):
        assert run(empty, None, 100, 2, small) == 0
    assert before < pool.word(threads_ir.REGIONS)


@pytest.mark.parametrize("kind", [0, 1])
def test_a_thread_begins_with_the_same_iterations_in_every_region(kind):
    run = ParallelFor(list(pools())[kind].addresses["relaxvm_parallel_for"])
    for _ in range(10):
        first, meeting = {}, threading.Barrier(2, timeout=20)

        @Body
        def body(ctx, begin, end, first=first, meeting=meeting):
            if threading.get_ident() not in first:
                first[threading.get_ident()] = begin
                meeting.wait()
            return 0

        assert run(body, None, 1000, 2, MUCH) == 0
        assert first.pop(threading.get_ident()) == 0
        assert list(first.values()) == [500]


def test_the_first_failure_is_returned_and_ends_the_region():
    done = []

    @Body
    def body(ctx, begin, end):
        done.append(begin)
        if begin <= 2 < end:
            return 7
        time.sleep(0.05)
        return 0

    assert parallel_for()(body, None, 2000, 2, MUCH) == 7
    # The one who failed takes no more; the other has what it took before it could know.
    assert len(done) < 8
    assert parallel_for()(Body(lambda ctx, begin, end: 0), None, 2000, 2, MUCH) == 0


def test_a_region_inside_a_region_runs_alone():
    run, inner = parallel_for(), []

    @Body
    def deep(ctx, begin, end):
        inner.append((begin, end))
        return 0

    @Body
    def body(ctx, begin, end):
        return run(deep, None, 10, 4, MUCH)

    assert run(body, None, 4, 4, MUCH) == 0
    assert inner == [(0, 10)] * 4


def test_32_callers_at_once_all_get_their_results():
    run, wrong = parallel_for(), []

    def caller():
        total = (ctypes.c_int64 * 64)()

        @Body
        def body(ctx, begin, end):
            for i in range(begin, end):
                total[i] += i
            return 0

        for turn in range(1, 11):
            if run(body, None, 64, 3, MUCH) or list(total) != [turn * i for i in range(64)]:
                wrong.append(turn)

    callers = [threading.Thread(target=caller) for _ in range(32)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(60)
    assert not any(each.is_alive() for each in callers)
    assert not wrong


def test_idle_workers_use_no_time():
    run = parallel_for()
    assert run(Body(lambda ctx, begin, end: 0), None, 100, 4, MUCH) == 0
    used = []
    for _ in range(5):
        time.sleep(0.05)
        before = time.process_time()
        time.sleep(0.2)
        used.append(time.process_time() - before)
        if used[-1] < 0.05:
            return
    # Something else may have worked in this process meanwhile, but not each time.
    pytest.fail(f"seconds of processor time in 0.2 s of rest: {used}")


CAN_PLACE = hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1


@pytest.mark.skipif(not CAN_PLACE, reason="needs Linux and two processors")
def test_workers_that_would_wake_beside_their_caller_keep_off_its_processor():
    done = run_program("""
        import ctypes, time
        from relaxvm.runtime import threads_ir as layout
        pool = threads._library()
        at = pool.addresses["relaxvm_pool_state"]
        mine = os.sched_getaffinity(0)
        workers = [t.native_id for t in threading.enumerate() if "relaxvm worker" in t.name]
        assert len(workers) == 2
        for _ in range(100):
            # As if a worker had got up on the processor of its caller.
            ctypes.c_int32.from_address(at + layout.COLLIDED).value = 1
            time.sleep(0.01)
            once()
            marks = [pool.word(layout.THREADS + 16 * k + 8) for k in range(2)]
            if all(marks):
                break
        assert all(mark - 1 in mine for mark in marks), marks
        kept = sorted(sorted(os.sched_getaffinity(t)) for t in workers)
        assert kept == sorted(sorted(mine - {mark - 1}) for mark in marks), (kept, marks)
        assert os.sched_getaffinity(0) == mine
    """)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("turn", range(3))
def test_child_and_parent_of_a_fork_both_go_on(turn):
    run = parallel_for()
    meeting = threading.Barrier(2, timeout=20)

    @Body
    def body(ctx, begin, end):
        meeting.wait()
        return 0

    assert run(body, None, 2, 2, MUCH) == 0
    with warnings.catch_warnings():
        # From 3.12 on a fork of a process with threads warns.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(20)
            alone = threads.worker_count() == 0
            fine = run(body, None, 2, 2, MUCH) == 0 and threads.worker_count() >= 1
            os._exit(0 if alone and fine else 1)
        finally:
            os._exit(2)
    assert run(body, None, 2, 2, MUCH) == 0
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "threading.Thread(target=lambda: [once() for _ in range(10**9)], daemon=True).start()",
        "import atexit; atexit.register(once)",
        "sys.exit(0)",
    ],
    ids=["parked", "while a daemon computes", "region at exit", "sys.exit"],
)
def test_the_interpreter_ends_at_once(rest):
    done = run_program(rest)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("other", ["torch", "numba"])
def test_works_beside_other_pools_in_either_order(other, where):
    if importlib.util.find_spec(other) is None:
        pytest.skip(f"{other} is not installed")
    use = {
        "torch": "x = torch.rand(500, 500); assert ((x @ x) >= 0).all()",
        "numba": "numba.njit(parallel=True)(lambda a: a + 1)(np.ones(9))",
    }[other]
    done = run_program(f"{use}\nonce()\n{use}\nonce()", **{where: f"import {other}"})
    assert done.returncode == 0, done.stderr


def test_blas_before_and_after_does_no_harm():
    use = "x = np.ones((400, 400)); assert (x @ x == 400).all()"
    done = run_program(f"{use}\nonce()", before=use)
    assert done.returncode == 0, done.stderr


def test_the_size_can_be_set_and_set_back():
    first = threads.pool_size()
    assert threads.set_num_threads(3) == first
    try:
        assert threads.pool_size() == 3
        seen, meeting = set(), threading.Barrier(3, timeout=20)

        @Body
        def body(ctx, begin, end):
            seen.add(threading.get_ident())
            meeting.wait()
            return 0

        assert parallel_for()(body, None, 3, 0, MUCH) == 0
        assert len(seen) == 3
    finally:
        assert threads.set_num_threads(None) == 3
    assert threads.pool_size() == cpu_budget.usable_cores()


@pytest.mark.parametrize("wrong", [0, -1, 257, 10**30])
def test_sizes_out_of_range_are_refused(wrong):
    with pytest.raises(VMValueError, match="1 to 256"):
        threads.set_num_threads(wrong)


@pytest.mark.parametrize("wrong", [True, 2.0, "2", [2]])
def test_sizes_that_are_no_ints_are_refused(wrong):
    with pytest.raises(VMTypeError, match="number of threads"):
        threads.set_num_threads(wrong)


# -- cores -----------------------------------------------------------------------------------------


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux' files")


@linux
def test_hyper_threads_count_once(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 9})
    folder = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    pairs = {0: "0,2", 2: "0,2", 1: "1,3", 3: "1,3"}
    write(tmp_path, {folder.format(k): f"{v}\n" for k, v in pairs.items()})
    assert cpu_budget.usable_cores(tmp_path) == 3


@linux
@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "250000 100000\n"}, 3),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "20000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/../x\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/x\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
        ({"proc/self/cgroup": "0::/a\nnonsense\n", "sys/fs/cgroup/a/cpu.max": "1 0\n"}, 8),
        ({}, 8),
    ],
)
def test_cgroup_quotas_limit_the_cores(tmp_path, monkeypatch, files, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    write(tmp_path, files)
    assert cpu_budget.usable_cores(tmp_path) == cores


# -- when the GIL is released ----------------------------------------------------------------------


def info(flops, *shapes):
    params = tuple(
        KernelParam(f"p{i}", "tensor", DataType("float32"), s) for i, s in enumerate(shapes)
    )
    return KernelInfo("k", "k", params, (), True, flops)


def test_much_arithmetic_on_few_elements_releases_the_gil():
    plenty = trampoline.RELEASE_GIL_ELEMENTS
    assert trampoline.release_elements(info(None, (4,))) == plenty
    assert trampoline.release_elements(info(100, (4,))) == plenty
    assert trampoline.release_elements(info(10**9, (4,))) == 0
    one = ("$n",)
    assert trampoline.release_elements(info(one, (one,), (one,))) == plenty
    cube = ("$n", "$n", "*", "$n", "*", 2, "*")
    assert 0 < trampoline.release_elements(info(cube, (one, one), (one, one))) < plenty // 4
    huge = ("$n", 1 << 62, "*")
    assert trampoline.release_elements(info(huge, (one,))) <= plenty


def test_the_budget_stands_in_the_first_argument():
    assert ctypes.sizeof(trampoline.Arg) == 40
    assert trampoline.Arg.threads.offset == 36
    assert struct.calcsize("P") == 8 or threads._library().parking == "serial"


def test_two_python_threads_overlap_in_a_long_kernel():
    @T.prim_func
    def spin(A: T.Buffer((4,), "uint64"), n: T.int64):
        for _i in range(n):
            A[0] = A[0] * T.uint64(6364136223846793005) + T.uint64(1442695040888963407)

    rt = build(spin, name="main")
    assert rt["main"].info.flops is not None
    inside = threading.Event()

    def other():
        inside.set()
        rt["main"](np.zeros(4, "uint64"), 1 << 27)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(20)
    turns = 0
    while thread.is_alive():
        turns += 1
        time.sleep(0.001)
    thread.join()
    # With the GIL held this thread would have got a turn at the start and at the end only.
    assert turns > 5


@pytest.mark.parametrize("threads", [True, False])
def test_work_side_by_side_is_all_done_and_its_errors_are_raised(monkeypatch, threads):
    if not threads:

        def none_left(work, args):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(cpu_budget._thread, "start_new_thread", none_left)
    monkeypatch.setattr(cpu_budget, "usable_cores", lambda: 3)
    done = []
    cpu_budget.side_by_side(done.append, iter(range(20)))
    assert sorted(set(done)) == list(range(20))

    def fails(item):
        if item > 3:
            raise OSError(item)

    with pytest.raises(OSError, match="4"):
        cpu_budget.side_by_side(fails, range(9))


def test_who_is_interrupted_waiting_for_work_may_wait_again(monkeypatch):
    class Interrupted(queue.SimpleQueue):
        times = 0

        def get(self):
            self.times += 1
            if self.times == 1:
                raise KeyboardInterrupt
            return super().get(timeout=20)

    monkeypatch.setattr(cpu_budget, "queue", types.SimpleNamespace(SimpleQueue=Interrupted))
    monkeypatch.setattr(cpu_budget, "usable_cores", lambda: 2)
    begun, go_on, done, me = threading.Event(), threading.Event(), [], threading.get_ident()

    def work(item):
        if threading.get_ident() != me:
            begun.set()
            go_on.wait(20)
        done.append(item)

    finish = cpu_budget.begun_side_by_side(work, range(5))
    assert begun.wait(20)
    with pytest.raises(KeyboardInterrupt):
        finish()
    assert len(done) == 4
    go_on.set()
    finish()
    assert sorted(done) == list(range(5))


def test_several_threads_may_wait_for_the_same_work(monkeypatch):
    monkeypatch.setattr(cpu_budget, "usable_cores", lambda: 2)
    for _ in range(20):
        begin, done = threading.Event(), []
        finish = cpu_budget.begun_side_by_side(
            lambda k, begin=begin, done=done: (begin.wait(20), done.append(k)), range(3)
        )
        waiting = [threading.Thread(target=finish, daemon=True) for _ in range(4)]
        for each in waiting:
            each.start()
        begin.set()
        for each in waiting:
            each.join(20)
        assert not any(each.is_alive() for each in waiting)
        assert sorted(done) == [0, 1, 2]


def test_who_is_interrupted_at_work_keeps_nobody_else_waiting(monkeypatch):
    me, begun, interrupted = threading.get_ident(), threading.Event(), []

    class Interrupted(queue.SimpleQueue):
        def put(self, item):
            if threading.get_ident() == me and not interrupted:
                interrupted.append(True)
                raise KeyboardInterrupt
            super().put(item)

    def work(item):
        # This thread is the last to be done with its first item, and the others wait.
        if threading.get_ident() == me:
            begun.set()
            time.sleep(0.2)
        begun.wait(20)

    monkeypatch.setattr(cpu_budget, "queue", types.SimpleNamespace(SimpleQueue=Interrupted))
    monkeypatch.setattr(cpu_budget, "usable_cores", lambda: 1)
    finish = cpu_budget.begun_side_by_side(work, range(3))
    waiting = [threading.Thread(target=finish, daemon=True) for _ in range(2)]
    for each in waiting:
        each.start()
    with pytest.raises(KeyboardInterrupt):
        finish()
    for each in waiting:
        each.join(20)
        assert not each.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_does_again_what_was_being_done(monkeypatch):
    monkeypatch.setattr(cpu_budget, "usable_cores", lambda: 2)
    parent, begun, go_on, done = os.getpid(), threading.Event(), threading.Event(), []

    def work(item):
        begun.set()
        if os.getpid() == parent:
            go_on.wait(20)
        done.append(item)

    finish = cpu_budget.begun_side_by_side(work, range(3))
    assert begun.wait(20)
    child = os.fork()
    if not child:
        try:
            signal.alarm(20)
            finish()
        finally:
            os._exit(sorted(done) != [0, 1, 2])
    assert os.waitpid(child, 0)[1] == 0
    go_on.set()
    finish()
    assert sorted(done) == [0, 1, 2]
