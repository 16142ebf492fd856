"""What building costs: a kernel and a whole model, cold and from the disk, by one process and more.

    make bench                            # with the others
    python bench/bench_build.py           # a table, with the parts of a cold build
    python bench/bench_build.py --memory bert_base ...    # the most memory of builds of models

Cold means an empty cache; a cached build reads from the disk what another wrote. Times are of the
wall clock, the best of a few runs; the processor times beside them are those of this process, in
which LLVM does not run. (`bench_compile.py` has the passes, one by one.)

Memory is the most that a fresh process has at a time (VmHWM), with an empty cache, that builds a
model of `models` from an ONNX file by `relaxvm.load`, or a graph of `graphs` that its caller holds
or does not; beside it stand the weights of the model and of the program (packed, or in two orders),
and what the processes have together that help it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest
from bench_compile import transformer

from relaxvm import relax, te
from relaxvm.ir import IRModule, Var, const
from relaxvm.target import compile_kernels, cpu_model
from relaxvm.target.llvm import build as kernel_build
from relaxvm.target.llvm import units
from relaxvm.tir import BufferStore, For, PrimFunc, decl_buffer, seq
from relaxvm.tir.schedule.plans import DefaultSchedule

SIZE = 512
COLD_MS, CACHED_MS = 150, 3


def gemm(size=SIZE):
    """One loop function, unscheduled."""
    a, b = (te.placeholder((size, size), "float32", name) for name in "AB")
    k = te.reduce_axis((0, size), "k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    return IRModule({"gemm": te.create_prim_func([a, b, c])})


def gemm_graph(size=SIZE):
    """The same as a graph of one operator."""
    x, y = (relax.Var(n, relax.TensorStructInfo((size, size), "float32")) for n in "xy")
    b = relax.BlockBuilder()
    with b.function("main", [x, y]):
        b.emit_func_output(b.emit(relax.op.matmul(x, y)))
    return b.get()


def resnet50():
    """A graph like ResNet-50's: 53 convolutions, each with its bias, and constant weights."""
    op, b, rng = relax.op, relax.BlockBuilder(), np.random.default_rng(0)
    image = relax.Var("image", relax.TensorStructInfo((1, 3, 224, 224), "float32"))

    def weight(*shape):
        return relax.const(rng.standard_normal(shape, dtype="float32"))

    def convolution(x, channels, size, stride=1, activate=True):
        kernel = weight(channels, int(x.struct_info.shape[1]), size, size)
        y = b.emit(op.nn.conv2d(x, kernel, strides=stride, padding=size // 2))
        y = b.emit(op.add(y, weight(1, channels, 1, 1)))
        return b.emit(op.nn.relu(y)) if activate else y

    with b.function("main", [image]):
        x = convolution(image, 64, 7, 2)
        x = b.emit(op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)))
        for stage, blocks in enumerate((3, 4, 6, 3)):
            channels = 64 << stage
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                y = convolution(x, channels, 1)
                y = convolution(y, channels, 3, stride)
                y = convolution(y, 4 * channels, 1, activate=False)
                short = x if block else convolution(x, 4 * channels, 1, stride, False)
                x = b.emit(op.nn.relu(b.emit(op.add(y, short))))
        x = b.emit(op.mean(x, [2, 3]))
        b.emit_func_output(b.emit(op.matmul(x, weight(2048, 1000))))
    return b.get()


def statements(count=2000):
    """One loop over many statements with divisions, as generated code has them."""
    i = Var("i", "int64")
    a, b = decl_buffer((64,), "int32", "A"), decl_buffer((count,), "int32", "B")
    stores = [BufferStore(b, a[(i + k) % 64] % (k % 11 + 3), (k,)) for k in range(count)]
    body = For(i, const(0, "int64"), const(64, "int64"), "serial", seq(*stores))
    handles = [Var("A", "handle"), Var("B", "handle")]
    return IRModule({"main": PrimFunc(handles, body, None, dict(zip(handles, (a, b))))})


def build_gemm(mod):
    return compile_kernels(mod, schedule=DefaultSchedule(cpu=cpu_model()))


@contextlib.contextmanager
def empty_cache():
    """A folder of its own for compiled kernels."""
    former = os.environ.get("RELAXVM_CACHE_DIR")
    folder = tempfile.mkdtemp(prefix="relaxvm-bench-")
    os.environ["RELAXVM_CACHE_DIR"] = folder
    try:
        yield pathlib.Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if former is None:
            del os.environ["RELAXVM_CACHE_DIR"]
        else:
            os.environ["RELAXVM_CACHE_DIR"] = former


# name -> (what is built, how, runs)
CASES = {
    f"GEMM {SIZE}, kernel": (gemm, build_gemm, 5),
    f"GEMM {SIZE}, relax.build": (gemm_graph, lambda mod: relax.build(mod, "llvm"), 5),
    "2000 statements": (statements, build_gemm, 1),
    "4000 statements": (lambda: statements(4000), build_gemm, 1),
    "transformer, 12 layers": (lambda: transformer(12), lambda mod: relax.build(mod, "llvm"), 1),
    "ResNet-50": (resnet50, lambda mod: relax.build(mod, "llvm"), 1),
}


@pytest.mark.parametrize("cached", [False, True], ids=["cold", "cached"])
@pytest.mark.parametrize("name", CASES)
def bench_build(benchmark, name, cached):
    make, run, rounds = CASES[name]
    mod = make()
    benchmark.group = f"build: {name}"
    with empty_cache() as folder:
        run(mod)

        def setup():
            if not cached:
                shutil.rmtree(folder / "objects", ignore_errors=True)

        benchmark.pedantic(run, (mod,), setup=setup, rounds=rounds)


def best(run, mod, rounds, before):
    """(wall, processor) milliseconds of the best of some runs."""
    found = (float("inf"), float("inf"))
    for _ in range(rounds):
        before()
        wall, cpu = time.perf_counter(), time.process_time()
        run(mod)
        one = (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3
        found = tuple(map(min, found, one))
    return found


@contextlib.contextmanager
def timed(parts):
    """Adds the time of the steps of a build to `parts`, by name. LLVM's is that of its worker."""
    steps = {
        (units, "_scheduled"): "schedule",
        (units, "verify_well_formed"): "verify",
        (units, "lower_module"): "lower",
        (units, "generate"): "generate",
        (units, "compile_text"): "LLVM",
        (kernel_build, "compile_functions"): "functions",
        (kernel_build, "compile_glue"): "LLVM of functions",
    }
    originals = {(room, name): getattr(room, name) for room, name in steps}

    def wrap(which):
        def step(*args, **options):
            start = time.perf_counter()
            try:
                return originals[which](*args, **options)
            finally:
                passed = (time.perf_counter() - start) * 1e3
                parts[steps[which]] = parts.get(steps[which], 0) + passed

        return step

    for room, name in steps:
        setattr(room, name, wrap((room, name)))
    try:
        yield
    finally:
        for (room, name), original in originals.items():
            setattr(room, name, original)


# What a fresh process does: write the model; build it and tell (weights, most memory, helpers).
_WRITE = """
import sys
sys.path.insert(0, sys.argv[1])
from models import model
with open(sys.argv[3], "wb") as file:
    file.write(model(sys.argv[2]).SerializeToString())
"""
_BUILD = """
import os, sys
here, name, how, path = sys.argv[1:]
sys.path.insert(0, here)
import relaxvm
from relaxvm.runtime import NDArray

def kilobytes(word, file):
    with open(f"/proc/{file}") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(word))

held, mod = [], None
if how == "file":
    program = relaxvm.load(path)
else:
    from graphs import bound
    from relaxvm import relax
    held.append(bound(name)[0])
    if how == "held":
        mod = held[0]
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # what making the graph took does not count
    program = relax.build(held.pop())
weights = sum(c.nbytes for c in program.constants if type(c) is NDArray)
with open(f"/proc/self/task/{os.getpid()}/children") as file:
    helpers = sum(kilobytes("Pss:", f"{child}/smaps_rollup") for child in file.read().split())
print(weights // 1024, kilobytes("VmHWM", "self/status"), helpers)
"""


def memory(names):
    """Print the table of memory."""
    here = str(pathlib.Path(__file__).parent)
    print(f"{'MB':28}{'weights':>9}{'program':>9}{'most':>9}{'above':>9}{'helpers':>9}")
    for name in names or ("bert_base", "gpt2_decode", "resnet50"):
        with empty_cache() as folder:
            path = str(folder / "model.onnx")
            subprocess.run([sys.executable, "-c", _WRITE, here, name, path], check=True)
            weights = os.path.getsize(path) / 1e6
            for how in ("file", "given away", "held"):
                for entry in folder.iterdir():
                    if entry.is_dir():
                        shutil.rmtree(entry)
                told = subprocess.run(
                    [sys.executable, "-c", _BUILD, here, name, how, path],
                    check=True, stdout=subprocess.PIPE, text=True,
                )  # fmt: skip
                program, most, helpers = (int(n) * 1.024e-3 for n in told.stdout.split())
                print(
                    f"{f'{name}, {how}':28}{weights:9.0f}{program:9.0f}{most:9.0f}"
                    f"{most - max(weights, program):9.0f}{helpers:9.0f}",
                    flush=True,
                )


def main():
    """Print the table."""
    if sys.argv[1:2] == ["--memory"]:
        memory(sys.argv[2:])
        return
    os.environ.setdefault("RELAXVM_BUILD_JOBS", "1")
    if units.Settings(kernel_build.machine_of()).key() is None:
        sys.exit("the sources have changed since this started: nothing is cached; run it again")
    print(f"{'ms':28}{'cold':>9}{'processor':>11}{'cached':>9}{'processor':>11}")
    for name, (make, run, rounds) in CASES.items():
        mod = make()
        with empty_cache() as folder:
            run(mod)
            parts: dict[str, float] = {}
            with timed(parts):
                cold = best(
                    run,
                    mod,
                    rounds,
                    lambda folder=folder: shutil.rmtree(folder / "objects", ignore_errors=True),
                )
            run(mod)
            cached = best(run, mod, max(3, rounds * 4), lambda: None)
        print(
            f"{name:28}{cold[0]:9.1f}{cold[1]:11.1f}{cached[0]:9.2f}{cached[1]:11.2f}", flush=True
        )
        if name.endswith("kernel"):
            for what, bound, got in (("cold", COLD_MS, cold), ("cached", CACHED_MS, cached)):
                verdict = "met" if got[0] <= bound else "MISSED"
                print(f"  {what}: {got[0]:.2f} ms, target {bound} ms: {verdict}")
        shares = ", ".join(f"{part} {ms / rounds:.1f}" for part, ms in parts.items())
        print(f"  processor time of a cold build, in ms: {shares}", flush=True)


if __name__ == "__main__":
    main()
