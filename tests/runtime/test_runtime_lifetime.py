"""Machines, their code and their errors, when things end or fail at the worst moment."""

import ctypes
import gc
import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest
from fuzz.random_bytecode import compiled

from relaxvm.base import DataType, VMValueError
from relaxvm.runtime import ExecBuilder, TensorInfo, VirtualMachine
from relaxvm.runtime.locks import lock

pytestmark = pytest.mark.vm_modes

F32 = DataType("float32")
FOUR = TensorInfo(F32, 1, (4,))


@pytest.fixture(scope="module")
def program():
    """main(x) = inner(twice(x)), inner(x) = env.last(x); each written by an extern, so that three
    frames are alive where `env.last` runs.
    """
    b = ExecBuilder()
    for name, callee in (("main", "middle"), ("middle", "inner")):
        with b.function(name, 1, ["x"], [FOUR], FOUR):
            b.emit_call("vm.builtin.alloc_storage", [16, 0, F32, "global"], b.r(1))
            b.emit_call("vm.builtin.alloc_tensor", [b.r(1), 0, (4,), F32], b.r(2))
            b.emit_call("env.twice", [b.r(0), b.r(2)])
            b.emit_call(callee, [b.r(2)], b.r(3))
            b.emit_call("env.seen", [b.r(3)])
            b.emit_ret(b.r(3))
    with b.function("inner", 1, ["x"], [FOUR], FOUR):
        b.emit_call("env.last", [b.r(0)], b.r(1))
        b.emit_ret(b.r(1))
    return compiled(b)


def twice(x, out):
    out.array[...] = x.array * 2


def machine(program, last=lambda x: x.numpy().copy(), seen=lambda x: None):
    return VirtualMachine(
        program, functions={"env.twice": twice, "env.last": last, "env.seen": seen}
    )


def ones():
    return np.ones(4, "float32")


class Service:
    """What a user's object may be: it owns a machine that calls it, and uses it to the very end."""

    def __init__(self, said):
        self.said = said

    def last(self, x):
        return x.numpy().copy()

    def __del__(self):
        self.said.append(self.call(ones()).tolist())


@pytest.mark.parametrize("first", ["service", "machine"])
def test_a_finalizer_may_call_code_that_is_collected_with_it(program, vm_mode, first):
    said = []
    # The collector finalizes in the order in which things were made: try both.
    if first == "service":
        service = Service(said)
        vm = machine(program, service.last)
    else:
        later = []
        vm = machine(program, lambda x, later=later: later[0].last(x))
        service = Service(said)
        later.append(service)
    service.call = vm["main"]
    service.me = service
    service = vm = later = None
    gc.collect()
    assert said == [[4.0] * 4]


def test_a_machine_may_go_while_a_thread_is_in_it(program, vm_mode):
    inside, go, got = threading.Event(), threading.Event(), []

    def last(x):
        inside.set()
        assert go.wait(60)
        return x.numpy().copy()

    held = [machine(program, last)]
    thread = threading.Thread(target=lambda: got.append(held[0]["main"](ones()).tolist()))
    thread.start()
    assert inside.wait(60)
    held.clear()
    gc.collect()
    go.set()
    thread.join(60)
    assert got == [[4.0] * 4]


def test_an_extern_may_drop_the_machine_it_runs_in(program, vm_mode):
    held = {}

    def last(x):
        held.clear()
        gc.collect()
        return x.numpy().copy()

    held["vm"] = machine(program, last)
    assert held["vm"]["main"](ones()).tolist() == [4.0] * 4


class Strange(Exception):
    """Everything about it fails."""

    def add_note(self, note):
        raise ZeroDivisionError

    @property
    def __notes__(self):
        raise ZeroDivisionError

    def __str__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "kind", [Strange, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration]
)
def test_any_exception_leaves_three_frames_as_what_it_is(program, vm_mode, kind):
    error = kind()

    def last(x):
        if failing:
            raise error
        return x.numpy().copy()

    vm = machine(program, last)
    for failing in (False, True, False, True):
        if failing:
            with pytest.raises(kind) as caught:
                vm["main"](ones())
            assert caught.value is error
        else:
            assert vm["main"](ones()).tolist() == [4.0] * 4
    if kind is not Strange:
        frames = [note.split(",")[0].split()[-1] for note in error.__notes__]
        assert frames == ["inner", "middle", "main"] * 2


def test_what_an_extern_returns_to_nobody_is_not_looked_at(program, vm_mode):
    nobody_wants = [np.zeros(2, object), np.ma.masked_array([1.0]), [[]]]
    nobody_wants[2].append(nobody_wants[2])
    for value in nobody_wants:
        vm = machine(program, seen=lambda x, value=value: value)
        assert vm["main"](ones()).tolist() == [4.0] * 4
        assert (
            VirtualMachine(
                program,
                functions={
                    "env.twice": twice,
                    "env.last": lambda x: x.numpy().copy(),
                    "env.seen": lambda x, value=value: value,
                },
                max_instructions=1000,
            )["main"](ones()).tolist()
            == [4.0] * 4
        )


class Interrupt(BaseException):
    pass


def test_exceptions_from_outside_leave_the_machine_as_it_was(program, vm_mode):
    # What other tests left is not to end in a thread that is interrupted.
    gc.collect()
    vm = machine(program)
    call, stop, wrong = vm["main"], threading.Event(), []
    counts = {"done": 0, "interrupted": 0}

    def work():
        x = ones()
        while not stop.is_set():
            try:
                for _ in range(20):
                    if call(x).tolist() != [4.0] * 4:
                        wrong.append("result")
                    counts["done"] += 1
            except Interrupt:
                counts["interrupted"] += 1

    def guarded():
        try:
            work()
        except Interrupt:
            # One that came between two rounds.
            pass

    for _ in range(30):
        thread = threading.Thread(target=guarded)
        thread.start()
        for _ in range(5):
            time.sleep(0.001)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupt)
            )
        stop.set()
        thread.join(60)
        stop.clear()
    assert not wrong
    assert counts["done"]
    assert call(ones()).tolist() == [4.0] * 4


@pytest.mark.parametrize("deepest", [(1 << 63) - 1, 1 << 63, 1 << 64, 10**30])
def test_any_depth_may_be_allowed(program, vm_mode, deepest):
    functions = {"env.twice": twice, "env.last": lambda x: x, "env.seen": lambda x: None}
    vm = VirtualMachine(program, functions=functions, max_depth=deepest)
    assert vm["main"](ones()).tolist() == [4.0] * 4


@pytest.mark.parametrize("name", [None, 3, b"main", ["main"], {}])
def test_what_is_no_name_names_no_function(program, vm_mode, name):
    with pytest.raises(VMValueError, match=r"no function .* in this program.*; it has: main"):
        machine(program)[name]


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def in_a_child(work):
    """The exit status of a fork that does `work`; it has a minute."""
    with warnings.catch_warnings():
        # From 3.12 on a fork of a process with threads warns.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


@needs_fork
def test_a_child_goes_on_where_other_threads_were_failing(program, vm_mode):
    def last(x):
        if x.numpy()[0] > 100:
            raise ValueError("too large")
        return x.numpy().copy()

    vm, stop = machine(program, last), threading.Event()
    large = np.full(4, 200, "float32")

    def use():
        assert vm["main"](ones()).tolist() == [4.0] * 4
        with pytest.raises(ValueError, match="too large") as caught:
            vm["main"](large)
        assert len(caught.value.__notes__) == 3

    def hammer():
        while not stop.is_set():
            use()

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        found = []
        for _ in range(5):
            time.sleep(0.002)
            found.append(in_a_child(use))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert found == [0] * 5


@needs_fork
def test_a_lock_that_is_held_during_a_fork_is_open_in_the_child():
    guard = lock()
    with guard:
        assert in_a_child(lambda: guard.acquire(timeout=10) or os._exit(2)) == 0
        assert not guard.acquire(blocking=False)
    assert guard.acquire(blocking=False)


@needs_fork
def test_a_child_links_kernels_though_another_thread_was_linking(program):
    from relaxvm.runtime import trampoline

    with trampoline._lock:
        assert in_a_child(lambda: machine(program)["main"](ones())) == 0
