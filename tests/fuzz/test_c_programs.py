"""Random loop programs in C: many in one library, under every warning and sanitizer; they give what
the interpreter gives.
"""

import copy
import random

import pytest
from c_library import SANITIZERS, argument, compile_library, needs_compiler, replay

from fuzz import loops
from relaxvm import tir
from relaxvm.ir import IRModule
from relaxvm.target import compile_kernels
from relaxvm.target.c.compiler import DIALECT, NO_MASKS
from relaxvm.tir import Schedule
from relaxvm.tir.schedule import Trace

pytestmark = needs_compiler
# Sources alone: of the library, object code is made here.
ELSEWHERE = "c -mtriple=aarch64-linux-gnu"
# `cache_inplace` copies in what it is given, also what nothing has written yet and nobody reads;
# programs may bind what they do not use.
CLEAN = ("-O1", "-Wno-uninitialized", "-Wno-unused-variable", *SANITIZERS)
# As the virtual machine has it compiled; at this level warnings are no faults.
FAST = (*DIALECT[1:], "-O3", NO_MASKS, "-w")


def scheduled(case):
    """(the function as it was written, and under the case's schedule)."""
    written = loops.function("\n".join(case["lines"]) + "\n")
    sch = Schedule(written, error_render_level="fast")
    Trace.apply_json_to_schedule([case["steps"], case["decisions"]], sch)
    return written, sch.mod["main"]


def check(seeds, folder, *flags):
    cases, functions = {}, {}
    for seed in seeds:
        case = loops.make(random.Random(seed), ways=("machine",))
        written, after = scheduled(case)
        cases[f"f{seed}"] = (written, case)
        # Every other one with memory that is promised to be apart, as loops for vectors need it.
        attrs = {"global_symbol": f"f{seed}", "tir.noalias": seed % 2 == 0}
        functions[f"f{seed}"] = after.with_attrs(attrs)
    sources = compile_kernels(IRModule(functions), ELSEWHERE).sources
    calls, wanted = [], []
    for name, (written, case) in cases.items():
        dtypes = [str(written.buffer_map.get(p, p).dtype) for p in written.params]
        for sizes in case["sizes"]:
            args = loops.given(written, case, sizes)
            passed = [argument(copy.copy(a), kind) for a, kind in zip(args, dtypes)]
            calls.append((sources.entry_names[name], passed))
            tir.interpret(written, *args)
            wanted.append((name, written, args, case["exact"]))
    library = compile_library(sources.files, str(folder), *flags)
    for (name, fn, args, exact), (message, arrays) in zip(wanted, replay(library, calls, folder)):
        assert not message, f"{name}: {message}"
        left = iter(arrays)
        got = [next(left) if p in fn.buffer_map else a for p, a in zip(fn.params, args)]
        loops.same(args, got, fn, exact)


def test_a_few_random_programs(tmp_path):
    check(range(6), tmp_path, *CLEAN)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [CLEAN, FAST], ids=["clean", "fast"])
@pytest.mark.parametrize("start", range(1000, 2000, 100))
def test_many_random_programs(start, flags, tmp_path):
    check(range(start, start + 100), tmp_path, *flags)
