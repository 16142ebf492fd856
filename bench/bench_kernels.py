"""Untuned kernels beside numpy (OpenBLAS), torch and onnxruntime, and beside what this machine can
do at most, measured in the same run.

    python bench/bench_kernels.py [WORD ...]    the table of docs/performance.md, or those of its
                                                kernels whose names hold one of the words
    make bench                                  the same kernels one by one, as benches

Targets are those of the project's issue on schedules: how many times faster than the best of the
others (1.0: as fast). Figures are medians of rounds in which each has its turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from contestants import RUNS, Kernel, interleaved, runner

import relaxvm as tvm
from relaxvm import relax, te
from relaxvm.relax import op as R
from relaxvm.script import from_source

RNG, nn = np.random.default_rng(0), R.nn


@dataclass
class Case:
    """A kernel, its target, its arithmetic and the bytes that it must move at least."""

    kernel: Kernel
    target: float
    flops: float = 0.0
    moved: float = 0.0

    def __str__(self) -> str:
        return self.kernel.name


def f32(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype("float32")


# -- contractions ----------------------------------------------------------------------------------


def gemm(m: int, k: int, n: int, constant: int = 0, target: float = 1.0) -> Case:
    """A @ B; the right side variable or constant."""
    name = f"matmul {m}x{k}x{n}, {'constant' if constant else 'variable'} right side"
    kernel = Kernel(
        name, R.matmul, [f32(m, k), f32(k, n)],
        lambda f, a, b: a @ b, ("MatMul", {}, []), constant, np.matmul,
    )  # fmt: skip
    return Case(kernel, target, 2.0 * m * k * n, 4.0 * (m * k + k * n + m * n))


def transposed(m: int, k: int, n: int) -> Case:
    kernel = Kernel(
        f"matmul {m}x{k}x{n}, transposed right side",
        lambda a, b: R.einsum((a, b), "ik,jk->ij"), [f32(m, k), f32(n, k)],
        lambda f, a, b: a @ b.T, ("Gemm", {"transB": 1}, []), 0, lambda a, b: a @ b.T,
    )  # fmt: skip
    return Case(kernel, 1.0, 2.0 * m * k * n, 4.0 * (m * k + k * n + m * n))


def batched(b: int, m: int, k: int, n: int) -> Case:
    kernel = Kernel(
        f"batched matmul {b}x{m}x{k}x{n}", R.matmul, [f32(b, m, k), f32(b, k, n)],
        lambda f, x, y: x @ y, ("MatMul", {}, []), 0, np.matmul,
    )  # fmt: skip
    return Case(kernel, 1.0, 2.0 * b * m * k * n, 4.0 * b * (m * k + k * n + m * n))


def conv(
    text: str, shape: Sequence[int], weights: Sequence[int], size: int, stride: int = 1,
    padding: int = 0, groups: int = 1,
) -> Case:  # fmt: skip
    """A convolution with constant weights; `size` is the side of its output."""
    attrs = {"pads": [padding] * 4, "strides": [stride] * 2, "group": groups}
    kernel = Kernel(
        f"conv2d {text}",
        lambda x, w: nn.conv2d(x, w, strides=stride, padding=padding, groups=groups),
        [f32(*shape), f32(*weights)],
        lambda f, x, w: f.conv2d(x, w, stride=stride, padding=padding, groups=groups),
        ("Conv", attrs, []), 1, slow_meaning=True,
    )  # fmt: skip
    flops = 2.0 * weights[0] * size * size * weights[1] * weights[2] * weights[3]
    moved = 4.0 * (np.prod(shape) + np.prod(weights) + weights[0] * size * size)
    return Case(kernel, 0.95, flops, float(moved))


CONTRACTIONS = [
    *(gemm(n, n, n, c) for n in (128, 512, 1024, 2048) for c in (0, 1)),
    *(gemm(128, 768, 3072, c) for c in (0, 1)),
    transposed(512, 512, 512),
    batched(12, 128, 64, 128),
    gemm(1, 4096, 4096, 1),
    gemm(1, 784, 128, 1),
    gemm(1, 1024, 32000, 1),
    conv("3x3 64>64, 56x56", (1, 64, 56, 56), (64, 64, 3, 3), 56, padding=1),
    conv("1x1 256>64, 56x56", (1, 256, 56, 56), (64, 256, 1, 1), 56),
    conv("7x7/2 3>64, 224x224", (1, 3, 224, 224), (64, 3, 7, 7), 112, 2, 3),
    conv("depthwise 3x3, 32 channels, 112x112", (1, 32, 112, 112), (32, 1, 3, 3), 112, 1, 1, 32),
    conv("3x3 512>512, 7x7", (1, 512, 7, 7), (512, 512, 3, 3), 7, padding=1),
]  # fmt: skip


# -- rows, elementwise, moving data ----------------------------------------------------------------


def rows(m: int, n: int) -> list[Case]:
    moved, x, g, b = 8.0 * m * n, f32(m, n), f32(n), f32(n)

    def softmax(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def layer_norm(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * g + b

    def rms_norm(x: np.ndarray, g: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * g

    kernels = [
        Kernel(
            f"softmax {m}x{n}", nn.softmax, [x], lambda f, x: f.softmax(x, -1),
            ("Softmax", {}, []), 0, softmax,
        ),
        Kernel(
            f"layer norm {m}x{n}", lambda x, g, b: nn.layer_norm(x, g, b, axes=-1), [x, g, b],
            lambda f, x, g, b: f.layer_norm(x, (n,), g, b), ("LayerNormalization", {}, []),
            2, layer_norm,
        ),
        Kernel(
            f"rms norm {m}x{n}", nn.rms_norm, [x, g], lambda f, x, g: f.rms_norm(x, (n,), g),
            None, 1, rms_norm,
        ),
    ]  # fmt: skip
    return [Case(k, 1.2, 0.0, moved) for k in kernels]


def ten_stages() -> Kernel:
    """((x * 1.1 + 0.3) ... ) of ten stages, as one te kernel."""
    shape = (1, 64, 56, 56)
    x = te.placeholder(shape, "float32", "x")
    y = x
    for k in range(10):
        last = y
        if k % 3 == 2:
            made = te.compute(
                shape, lambda *i, y=last: tvm.tir.max(y(*i), tvm.tir.const(-0.5, "float32"))
            )
        elif k % 3 == 1:
            made = te.compute(shape, lambda *i, y=last: y(*i) + tvm.tir.const(0.3, "float32"))
        else:
            made = te.compute(shape, lambda *i, y=last: y(*i) * tvm.tir.const(1.1, "float32"))
        y = made
    fn = te.create_prim_func([x, y])
    builder = relax.BlockBuilder()
    p = relax.Var("x0", relax.TensorStructInfo(shape, "float32"))
    gv = builder.add_func(fn, "chain")
    with builder.function("main", [p]):
        with builder.dataflow():
            out = builder.emit_output(
                relax.call_tir(gv, (p,), relax.TensorStructInfo(shape, "float32"))
            )
        builder.emit_func_output(out)

    def stages(f: Any, x: Any) -> Any:
        for k in range(10):
            x = f(x, -0.5) if k % 3 == 2 else x + 0.3 if k % 3 == 1 else x * 1.1
        return x

    return Kernel(
        "chain of ten elementwise, 1x64x56x56", builder.get(), [f32(*shape)],
        lambda f, x: stages(lambda x, v: x.clamp_min(v), x), None, 0,
        lambda x: stages(lambda x, v: np.maximum(x, np.float32(v)), x),
    )  # fmt: skip


def elementwise() -> list[Case]:
    x, million = f32(1000, 1000) * 3, 8e6
    return [
        Case(Kernel(
            "gelu 10^6", nn.gelu, [x], lambda f, x: f.gelu(x), ("Gelu", {}, []),
            slow_meaning=True,
        ), 1.2, 0.0, million),
        Case(Kernel(
            "tanh 10^6", R.tanh, [x], lambda f, x: x.tanh(), ("Tanh", {}, []), 0, np.tanh
        ), 1.2, 0.0, million),
        Case(Kernel(
            "exp 10^6", R.exp, [x], lambda f, x: x.exp(), ("Exp", {}, []), 0, np.exp
        ), 1.2, 0.0, million),
        Case(ten_stages(), 3.0, 0.0, 8.0 * 64 * 56 * 56),
    ]  # fmt: skip


def torch_concat(f: Any, *tensors: Any) -> Any:
    import torch

    return torch.cat(tensors, 1)


def movement() -> list[Case]:
    big, a, b = f32(4096, 4096), f32(1024, 1024), f32(1024, 1024)
    table, where = f32(32000, 512), RNG.integers(0, 32000, 1024)
    block = f32(256, 1024, 64)

    def total(axis: int) -> Case:
        kernel = Kernel(
            f"sum over axis {axis} of 256x1024x64", lambda x: R.sum(x, axis), [block],
            lambda f, x: x.sum(axis), ("ReduceSum", {"keepdims": 0}, [np.array([axis])]),
            0, lambda x: x.sum(axis),
        )  # fmt: skip
        return Case(kernel, 1.0, float(block.size), 4.0 * block.size)

    return [
        Case(Kernel(
            "transpose 4096x4096", R.permute_dims, [big], lambda f, x: x.T.contiguous(),
            ("Transpose", {}, []), 0, lambda x: np.ascontiguousarray(x.T),
        ), 1.0, 0.0, 8.0 * big.size),
        Case(Kernel(
            "concat 2 of 1024x1024, axis 1", lambda a, b: R.concat((a, b), 1), [a, b],
            torch_concat,
            ("Concat", {"axis": 1}, []), 0, lambda a, b: np.concatenate((a, b), 1),
        ), 1.0, 0.0, 16.0 * a.size),
        Case(Kernel(
            "take 1024 rows of 32000x512", lambda t, i: R.take(t, i, 0), [table, where],
            lambda f, t, i: t.index_select(0, i), ("Gather", {}, []), 0, lambda t, i: t[i],
        ), 1.0, 0.0, 8.0 * 1024 * 512),
        *(total(axis) for axis in range(3)),
    ]  # fmt: skip


CASES = [*CONTRACTIONS, *rows(128, 768), *rows(4096, 4096), *elementwise(), *movement()]


# -- what the machine can do -----------------------------------------------------------------------


def fma_roof() -> float:
    """float32 FLOP/s of one thread: multiply-adds on registers only."""
    lanes = tvm.target.cpu_model().lanes(32)
    chains, steps = 12, 100_000
    fn = from_source(f"""
@T.prim_func
def main(a: T.handle, c: T.handle):
    A = T.match_buffer(a, ({lanes},), "float32")
    C = T.match_buffer(c, ({chains}, {lanes}), "float32")
    acc = T.alloc_buffer(({chains}, {lanes}), "float32")
    for i in T.unroll({chains}):
        for j in T.vectorized({lanes}):
            acc[i, j] = T.float32(i)
    for k in range({steps}):
        for i in T.unroll({chains}):
            for j in T.vectorized({lanes}):
                acc[i, j] = acc[i, j] * A[j] + T.float32(0.5)
    for i in T.unroll({chains}):
        for j in T.vectorized({lanes}):
            C[i, j] = acc[i, j]
""")
    run = tvm.build(fn, target="llvm")["main"]
    a, c = np.full(lanes, 0.5, "float32"), np.zeros((chains, lanes), "float32")
    return 2.0 * lanes * chains * steps / _best(lambda: run(a, c))


def read_roof() -> float:
    """Bytes per second that one thread reads from memory: a sum over 256 MiB."""
    fn = R.sum
    x = np.ones(1 << 26, "float32")
    call = Kernel("read", lambda v: fn(v), [x])
    return x.nbytes / _best(runner(call, "relaxvm"))


def _best(run: Any, times: int = 9) -> float:
    run()
    found = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def build_seconds() -> tuple[float, float]:
    """(cold, from the cache) seconds to build a 512x512x512 matrix product."""
    case = gemm(512, 512, 512)
    mod = case.kernel.module()
    times = []
    for k in range(7):
        # Another number of columns each time: the first build of each is cold.
        case = gemm(512, 512, 512 + 16 * k)
        mod = case.kernel.module()
        start = time.perf_counter()
        relax.build(mod, target="llvm")
        middle = time.perf_counter()
        relax.build(case.kernel.module(), target="llvm")
        times.append((middle - start, time.perf_counter() - middle))
    cold, warm = zip(*times[1:])
    return statistics.median(cold), statistics.median(warm)


# -- benches and the table -------------------------------------------------------------------------


@pytest.mark.parametrize("what", RUNS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=str)
def bench_kernel(benchmark, case, threads, what):
    benchmark.group = f"{case}, {threads} threads"
    benchmark(runner(case.kernel, what, threads))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=0.5, help="per contestant and kernel")
    options = parser.parse_args()
    fma, read = fma_roof(), read_roof()
    print(f"roofs of one thread: {fma / 1e9:.1f} GFLOP/s (FMA), {read / 1e9:.1f} GB/s (read)")
    cold, warm = build_seconds()
    print(f"build of a 512x512x512 product: {cold * 1e3:.0f} ms cold (target 150), "
          f"{warm * 1e3:.1f} ms from the cache (target 3)")  # fmt: skip
    print(f"{'kernel':46} thr {'us':>9} {'roof':>5} {'best other':>22} {'times':>6} target")
    missed = 0
    for case in CASES:
        if options.words and not any(w in str(case) for w in options.words):
            continue
        for threads in options.threads:
            times = interleaved(case.kernel, threads, options.seconds)
            ours = times.pop("relaxvm")
            who, theirs = min(times.items(), key=lambda t: t[1])
            roof = max(case.flops / fma, case.moved / read) / threads / ours
            ratio = theirs / ours
            missed += ratio < case.target
            print(
                f"{case!s:46} {threads:3} {ours * 1e6:9.1f} {roof:5.0%} "
                f"{who + ' ' + format(theirs * 1e6, '.1f'):>22} {ratio:6.2f} {case.target:.2f} "
                f"{'met' if ratio >= case.target else 'MISSED'}",
                flush=True,
            )
    print(f"{missed} missed")


if __name__ == "__main__":
    main()
