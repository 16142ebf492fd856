"""Many threads call, build and load one program at once, and processes are forked in the middle:
every call gives what it gives alone.
"""

from __future__ import annotations

import os
import random
import threading
import time
import warnings

import numpy as np

from fuzz import graph_programs
from fuzz.graphs import Outside, flat
from relaxvm import relax
from relaxvm.base import RelaxvmError
from relaxvm.runtime import VirtualMachine, load
from relaxvm.runtime.threads import set_num_threads
from relaxvm.script import from_source

FORK_SECONDS = 60.0
LARGE = """
@I.ir_module
class Module:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "int64"), y: R.Tensor(("n",), "int64")):
        n = T.int64()
        a = R.matmul(R.reshape(R.astype(x, "float32"), (n, 1)),
                     R.reshape(R.astype(y, "float32"), (1, n)))
        return (R.sum(R.matmul(a, a), axis=0), R.multiply(x, y))
"""


def make(rng: random.Random) -> dict:
    text = graph_programs.program(rng.getrandbits(40), rng.choice((4, 8, 12)))
    return {
        "lines": (LARGE if rng.random() < 0.3 else text).splitlines(),
        "exec_mode": rng.choice(("compiled", "bytecode")),
        "inputs": [rng.getrandbits(30) for _ in range(4)],
        "pool": rng.choice((1, 2, 4)),
        "calls": rng.choice((5, 50, 200)),
        "threads": [rng.choice(("call", "call", "call", "own", "build", "load", "wrong"))
                    for _ in range(rng.choice((2, 4, 16)))],
        "forks": rng.choice((0, 0, 1, 2)),
    }  # fmt: skip


def check(case: dict) -> bool:
    mod = from_source("\n".join(case["lines"]) + "\n")
    outside, mode = Outside(), case["exec_mode"]
    given = [graph_programs.inputs(seed, mod) for seed in case["inputs"]]
    executable = relax.build(mod, "llvm")
    data = executable.to_bytes()

    def machine(executable=executable):
        functions = {**outside.functions(), "test.keep": lambda x: x}
        return VirtualMachine(executable, functions=functions, exec_mode=mode)

    shared, found = machine(), []
    wanted = [[a.tobytes() for a in flat(shared["main"](*args))] for args in given]

    def right(vm, k):
        got = [a.tobytes() for a in flat(vm["main"](*given[k]))]
        assert got == wanted[k], "another result"

    def work(what, rounds):
        vm = machine() if what == "own" else shared
        for r in range(rounds):
            if what == "build" and r % 20 == 0:
                vm = machine(relax.build(mod, "llvm"))
            if what == "load" and r % 10 == 0:
                vm = machine(load(data))
            if what == "wrong":
                try:
                    vm["main"](np.zeros(3, "int8"), r)
                    raise AssertionError("wrong arguments are taken")
                except RelaxvmError:
                    pass
            right(vm, r % len(given))

    def safely(what):
        try:
            work(what, case["calls"])
        except BaseException as error:
            found.append(error)

    former = set_num_threads(case["pool"])
    try:
        threads = [threading.Thread(target=safely, args=(what,)) for what in case["threads"]]
        for thread in threads:
            thread.start()
        for _ in range(case["forks"]):
            _fork(lambda: work("call", len(given)))
        for thread in threads:
            thread.join()
    finally:
        set_num_threads(former)
    if found:
        raise found[0]
    return True


def _fork(work) -> None:
    """Do it in a forked process, which must end well."""
    with warnings.catch_warnings():
        # Newer Pythons warn of forks beside threads, which is what is tried.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + FORK_SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, f"a forked process ended with {status}"
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("a forked process hangs")
