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

import bench_build
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


def pooling() -> list[Case]:
    def pool(what: str, shape: Sequence[int], size: int, stride: int, padding: int) -> Case:
        out = (shape[2] + 2 * padding - size) // stride + 1
        attrs = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [padding] * 4}
        ours = {"max": nn.max_pool2d, "avg": nn.avg_pool2d}[what]
        more = {"count_include_pad": False} if what == "avg" else {}
        kernel = Kernel(
            f"{what} pool {size}x{size}/{stride}, {shape[1]}x{shape[2]}x{shape[3]}",
            lambda x: ours(x, pool_size=size, strides=stride, padding=padding), [f32(*shape)],
            lambda f, x: getattr(f, f"{what}_pool2d")(x, size, stride, padding, **more),
            ({"max": "MaxPool", "avg": "AveragePool"}[what], attrs, []), slow_meaning=True,
        )  # fmt: skip
        return Case(kernel, 1.0, 0.0, 4.0 * shape[0] * shape[1] * (shape[2] * shape[3] + out * out))

    def whole(*shape: int) -> Case:
        kernel = Kernel(
            f"global average pool {'x'.join(map(str, shape))}", nn.global_avg_pool2d, [f32(*shape)],
            lambda f, x: f.adaptive_avg_pool2d(x, 1), ("GlobalAveragePool", {}, []),
            0, lambda x: x.mean((2, 3), keepdims=True),
        )  # fmt: skip
        return Case(kernel, 1.0, 0.0, 4.0 * float(np.prod(shape)))

    return [
        pool("max", (1, 64, 112, 112), 3, 2, 1),
        pool("max", (1, 64, 224, 224), 2, 2, 0),
        pool("max", (1, 512, 13, 13), 13, 1, 6),
        pool("avg", (1, 192, 28, 28), 3, 1, 1),
        whole(1, 2048, 7, 7),
        whole(8, 64, 112, 112),
    ]


CASES = [*CONTRACTIONS, *rows(128, 768), *rows(4096, 4096), *elementwise(), *movement(), *pooling()]


# -- ours beside ours ------------------------------------------------------------------------------


@dataclass
class Pair:
    """A kernel of ours and another one of ours, and how many times faster it should be."""

    kernel: Kernel
    beside: Kernel
    target: float


def product(m: int, k: int, n: int, dtypes: Sequence[str], free: str = "") -> Kernel:
    """A @ B from dtypes[0] and dtypes[1] to dtypes[2]; the sizes named in `free` are symbols."""
    sizes = {"m": m, "k": k, "n": n}
    dims = {s: tvm.tir.Var(s, "int64") if s in free else v for s, v in sizes.items()}
    a = relax.Var("x0", relax.TensorStructInfo((dims["m"], dims["k"]), dtypes[0]))
    b = relax.Var("x1", relax.TensorStructInfo((dims["k"], dims["n"]), dtypes[1]))
    builder = relax.BlockBuilder()
    with builder.function("main", [a, b]):
        with builder.dataflow():
            out = builder.emit_output(R.matmul(a, b, out_dtype=dtypes[2]))
        builder.emit_func_output(out)
    arrays = [
        tvm.nd.array(RNG.integers(0, 64, shape).astype("float32")).astype(dtype)
        for shape, dtype in zip(((m, k), (k, n)), dtypes)
    ]
    name = f"{dtypes[0]} matmul {m}x{k}x{n}" + (f", symbolic {free}" if free else "")
    return Kernel(name, builder.get(), arrays)


F32 = ("float32",) * 3


def pairs() -> list[Pair]:
    plain, square = product(1024, 1024, 1024, F32), product(512, 512, 512, F32)
    return [
        Pair(product(1024, 1024, 1024, ("uint8", "int8", "int32")), plain, 2.5),
        Pair(product(1024, 1024, 1024, ("bfloat16", "bfloat16", "float32")), plain, 1.6),
        *(Pair(product(512, 512, 512, F32, free), square, 0.9) for free in ("m", "n", "mkn")),
    ]


def pair_ratio(pair: Pair, seconds: float) -> float:
    """How many times faster than what it stands beside; one thread, taking turns."""
    runs = [runner(kernel, "relaxvm") for kernel in (pair.kernel, pair.beside)]
    times: list[list[float]] = [[], []]
    end = time.perf_counter() + 2 * seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for run, found in zip(runs, times):
            start = time.perf_counter()
            run()
            found.append(time.perf_counter() - start)
    ours, theirs = map(statistics.median, times)
    return theirs / ours


def growth(seconds: float) -> dict[int, float]:
    """{n: FLOP/s of the product of two n x n matrices}, one thread, taking turns."""
    runs = {n: runner(product(n, n, n, F32), "relaxvm") for n in (256, 512, 1024, 2048)}
    times: dict[int, list[float]] = {n: [] for n in runs}
    end = time.perf_counter() + seconds * len(runs)
    while time.perf_counter() < end or len(times[256]) < 5:
        for n, run in runs.items():
            start = time.perf_counter()
            run()
            times[n].append(time.perf_counter() - start)
    return {n: 2.0 * n**3 / statistics.median(t) for n, t in times.items()}


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


def build_seconds(make: Any, build: Any) -> tuple[float, float]:
    """(cold, from the cache) seconds to build a 512x512x512 matrix product; medians."""
    build(make(256))
    times = []
    for _ in range(7):
        first, second = make(), make()
        with bench_build.empty_cache():
            start = time.perf_counter()
            build(first)
            middle = time.perf_counter()
            build(second)
            times.append((middle - start, time.perf_counter() - middle))
    cold, warm = zip(*times)
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
    for what, make, build in (
        ("kernel of a 512x512x512 product", bench_build.gemm, bench_build.build_gemm),
        ("the same by relax.build", bench_build.gemm_graph, lambda m: relax.build(m, "llvm")),
    ):
        cold, warm = build_seconds(make, build)
        print(f"{what}: {cold * 1e3:.0f} ms cold (target of the kernel 150), "
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
    if options.words:
        return
    for pair in pairs():
        ratio = pair_ratio(pair, options.seconds)
        met = ratio >= pair.target
        missed += not met
        print(f"{pair.kernel!s:46} {ratio:5.2f} times as fast as our {pair.beside} "
              f"(target {pair.target:.2f}) {'met' if met else 'MISSED'}", flush=True)  # fmt: skip
    rates = growth(options.seconds)
    spread = max(rates.values()) / min(rates.values())
    # 15 % to either side of the middle.
    met = spread <= 1.15 / 0.85
    missed += not met
    print("growth: " + ", ".join(f"{n}: {r / 1e9:.0f} GFLOP/s" for n, r in rates.items())
          + f", {spread:.2f} apart (target 1.35) {'met' if met else 'MISSED'}")  # fmt: skip
    print(f"{missed} missed")


if __name__ == "__main__":
    main()
