"""The thread pool: a region of an empty body, a streaming loop, two Python threads on one VM.

    make bench

Targets (ratios in one run; not tests): an empty region with 2 threads at most 5 µs; two Python
threads with a 5 ms kernel on one VM at least 1.8 times the calls per second of one.
"""

import ctypes
import threading
import time

import figures
import llvmlite.binding as llvm
import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax
from relaxvm.runtime import threads
from relaxvm.runtime.trampoline import parse_ir
from relaxvm.script import from_source

REGIONS = 1000

# Calls the pool in a loop, so that no call of Python's stands between two regions.
LOOP = """
define internal i32 @empty(ptr %ctx, i64 %begin, i64 %end) {
  ret i32 0
}
define void @regions(ptr %pool, i64 %count, i64 %threads) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %code = call i32 %pool(ptr @empty, ptr null, i64 1000, i64 %threads, i64 1099511627776)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

MODEL = """
@I.ir_module
class M:
    @T.prim_func
    def churn(A: T.Buffer((64,), "float64"), B: T.Buffer((64,), "float64")):
        for i in range(64):
            B[i] = A[i]
        for k in range(1500000):
            for i in range(64):
                B[i] = B[i] * T.float64(0.999) + T.float64(0.5)

    @R.function
    def main(x: R.Tensor((64,), "float64")) -> R.Tensor((64,), "float64"):
        with R.dataflow():
            y = R.call_tir(M.churn, (x,), R.Tensor((64,), "float64"))
            R.output(y)
        return y
"""

STREAM = """
@T.prim_func
def main(A: T.Buffer((1000000,), "float32"), B: T.Buffer((1000000,), "float32")):
    for i in T.parallel(1000000):
        B[i] = T.exp(A[i])
"""


@pytest.fixture(scope="module")
def regions():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(parse_ir(llvm, LOOP), machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    call, pool = kind(engine.get_function_address("regions")), threads.parallel_for_address()
    yield lambda count, wanted: call(pool, count, wanted)
    engine.close()


@pytest.mark.benchmark(group=f"{REGIONS} parallel regions of an empty body")
@pytest.mark.parametrize("wanted", [1, 2])
def bench_empty_regions(benchmark, regions, wanted):
    benchmark(regions, REGIONS, wanted)
    if wanted == 2:
        figures.record(benchmark, "region", REGIONS)


@pytest.mark.benchmark(group="one region of an empty body, the workers asleep")
@pytest.mark.parametrize("wanted", [1, 2])
def bench_cold_region(benchmark, regions, wanted):
    benchmark.pedantic(
        regions, args=(1, wanted), setup=lambda: time.sleep(0.001), rounds=200, warmup_rounds=5
    )


@pytest.mark.benchmark(group="exp of a million floats")
@pytest.mark.parametrize("wanted", [1, 2])
def bench_parallel_loop(benchmark, wanted):
    rt = tvm.build(from_source(STREAM))
    rt.num_threads = wanted
    a = tvm.nd.array(np.random.default_rng(0).random(1000000, "float32"))
    b = tvm.nd.array(np.zeros(1000000, "float32"))
    benchmark(rt["main"], a, b)


@pytest.mark.benchmark(group="8 calls of a 5 ms kernel on one VM")
@pytest.mark.parametrize("callers", [1, 2])
def bench_python_threads(benchmark, callers):
    vm = relax.VirtualMachine(relax.build(from_source(MODEL), target="llvm"), tvm.cpu())
    x = tvm.nd.array(np.ones(64))
    main = vm["main"]

    def some(count):
        for _ in range(count):
            main(x)

    def run():
        others = [threading.Thread(target=some, args=(8 // callers,)) for _ in range(callers)]
        for each in others:
            each.start()
        for each in others:
            each.join()

    benchmark.pedantic(run, rounds=10, warmup_rounds=1)
    figures.record(benchmark, f"5 ms kernel, {callers} thread" + "s" * (callers > 1))
