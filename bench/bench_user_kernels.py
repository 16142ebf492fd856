"""The same kernel as an operator and as users write it: a te function with ints, one whose rows are
a symbol, and script text with indices of int32, of int64 and of both.

    python bench/bench_user_kernels.py [WORD ...]    a table; kernels whose names hold a word
    make bench                                       the same kernels one by one, as benches

At most 5 % between them: a way is beside the operator of the same shapes (symbolic beside
symbolic).
"""

from __future__ import annotations

import argparse
import functools
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from contestants import Kernel, runner

from relaxvm import relax, te, tir
from relaxvm.relax import op as R
from relaxvm.script import from_source

nn = R.nn
WAYS = ("operator", "te", "int32", "int64", "mixed", "symbolic operator", "symbolic te")


@dataclass
class Formula:
    """A kernel: `operator` of graph variables, `te` of te tensors, on arrays of `shapes`. The first
    dimension of those in `rows` is a symbol where sizes are symbolic.
    """

    name: str
    operator: Callable[..., Any]
    te: Callable[..., Any]
    shapes: Sequence[tuple[int, ...]]
    rows: Sequence[int] = (0,)

    def __str__(self) -> str:
        return self.name

    @functools.cached_property
    def arrays(self) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        return [rng.uniform(-1, 1, s).astype("float32") for s in self.shapes]

    def kernel(self, way: str) -> Kernel:
        n = tir.Var("n", "int64") if way.startswith("symbolic") else None
        params = [
            relax.Var(
                f"x{k}",
                relax.TensorStructInfo([n, *s[1:]] if n is not None and k in self.rows else s),
            )
            for k, s in enumerate(self.shapes)
        ]
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            with builder.dataflow():
                if way.endswith("operator"):
                    call = self.operator(*params)
                elif way.endswith("te"):
                    call = builder.call_te(self.te, *params)
                else:
                    fn = from_source(self.text(way)).without_attr("global_symbol")
                    out = relax.TensorStructInfo(fn.buffers[-1].shape, "float32")
                    call = relax.call_tir(builder.add_func(fn, "written"), params, out)
                out = builder.emit_output(call)
            builder.emit_func_output(out)
        return Kernel(f"{self.name}, {way}", builder.get(), self.arrays)

    def text(self, way: str) -> str:
        """A script with indices of int32, int64, or of int32 into buffers of int64."""
        tensors = [te.placeholder(s, "float32", f"A{k}") for k, s in enumerate(self.shapes)]
        wide = "int64" if way == "int64" else None
        lines = te.create_prim_func([*tensors, self.te(*tensors)], wide).script().splitlines()
        if way == "mixed":
            shapes = r"(T\.Buffer|alloc_buffer)\(\(([\d, ]+)\)"
            lines = [re.sub(shapes, _in_int64, line) for line in lines]
        return "\n".join(lines)


def _in_int64(shape: re.Match[str]) -> str:
    dims = re.sub(r"(\d+)", r"T.int64(\1)", shape[2])
    return f"{shape[1]}(({dims})"


def _sum(shape: Any, size: int, value: Callable[..., Any]) -> Any:
    k = te.reduce_axis((0, size), "k")
    return te.compute(shape, lambda *i: te.sum(value(*i, k), axis=k))


def _matmul(a: Any, b: Any) -> Any:
    return _sum((a.shape[0], 512), 512, lambda i, j, k: a[i, k] * b[k, j])


def _batched(a: Any, b: Any) -> Any:
    return _sum((a.shape[0], 128, 128), 64, lambda n, i, j, k: a[n, i, k] * b[n, k, j])


def _matvec(a: Any, b: Any) -> Any:
    return _sum((a.shape[0],), 4096, lambda i, k: a[i, k] * b[k])


def _padded(x: Any) -> Any:
    n, c, h, w = x.shape
    return te.compute(
        (n, c, h + 2, w + 2),
        lambda n, c, i, j: tir.if_then_else(
            tir.all(i >= 1, i < h + 1, j >= 1, j < w + 1), x[n, c, i - 1, j - 1], 0.0
        ),
    )


def _conv2d(x: Any, w: Any) -> Any:
    padded, (o, c, r, s) = _padded(x), (int(d) for d in w.shape)
    rc, rh, rw = (te.reduce_axis((0, d), f"r{d}") for d in (c, r, s))
    return te.compute(
        (x.shape[0], o, 56, 56),
        lambda n, o, i, j: te.sum(
            padded[n, rc, i + rh, j + rw] * w[o, rc, rh, rw], axis=[rc, rh, rw]
        ),
    )


def _depthwise(x: Any, w: Any) -> Any:
    padded = _padded(x)
    rh, rw = te.reduce_axis((0, 3), "rh"), te.reduce_axis((0, 3), "rw")
    return te.compute(
        (x.shape[0], 32, 112, 112),
        lambda n, c, i, j: te.sum(padded[n, c, i + rh, j + rw] * w[c, 0, rh, rw], axis=[rh, rw]),
    )


def _softmax(x: Any) -> Any:
    m, n = x.shape
    k, r = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "r")
    top = te.compute((m,), lambda i: te.max(x[i, k], axis=k))
    # As the operator has it. A division for each element is another formula, a fifth slower.
    e = te.compute((m, n), lambda i, j: te.exp(tir.min(x[i, j] - top[i], 0.0)))
    total = te.compute((m,), lambda i: te.sum(e[i, r], axis=r))
    whole = te.compute((m,), lambda i: 1.0 / total[i])
    return te.compute((m, n), lambda i, j: e[i, j] * whole[i])


def _layer_norm(x: Any, g: Any, b: Any) -> Any:
    m, n = x.shape
    k, r = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "r")
    total = te.compute((m,), lambda i: te.sum(x[i, k], axis=k))
    mean = te.compute((m,), lambda i: total[i] / 768.0)
    square = te.compute((m, n), lambda i, j: (x[i, j] - mean[i]) * (x[i, j] - mean[i]))
    spread = te.compute((m,), lambda i: te.sum(square[i, r], axis=r))
    return te.compute(
        (m, n),
        lambda i, j: (x[i, j] - mean[i]) * te.rsqrt(spread[i] / 768.0 + 1e-5) * g[j] + b[j],
    )


def _chain(x: Any) -> Any:
    low = te.compute(x.shape, lambda *i: tir.max(x(*i), -0.5))
    return te.compute(x.shape, lambda *i: tir.min(low(*i), 0.5))


def _row_sum(x: Any) -> Any:
    return _sum((x.shape[0],), 1024, lambda i, k: x[i, k])


def _transpose(x: Any) -> Any:
    return te.compute((x.shape[1], x.shape[0]), lambda i, j: x[j, i])


FORMULAS = [
    Formula("matmul", R.matmul, _matmul, [(512, 512), (512, 512)]),
    Formula("batched matmul", R.matmul, _batched, [(12, 128, 64), (12, 64, 128)], (0, 1)),
    Formula("matrix by vector", R.matmul, _matvec, [(4096, 4096), (4096,)]),
    Formula(
        "conv2d", lambda x, w: nn.conv2d(x, w, padding=1), _conv2d,
        [(1, 64, 56, 56), (64, 64, 3, 3)],
    ),
    Formula(
        "depthwise", lambda x, w: nn.conv2d(x, w, padding=1, groups=32), _depthwise,
        [(1, 32, 112, 112), (32, 1, 3, 3)],
    ),
    Formula("softmax", nn.softmax, _softmax, [(512, 1024)]),
    Formula(
        "layer norm", lambda x, g, b: nn.layer_norm(x, g, b, axes=-1), _layer_norm,
        [(512, 768), (768,), (768,)],
    ),
    Formula("row sum", lambda x: R.sum(x, axis=-1), _row_sum, [(1024, 1024)]),
    Formula("transpose", R.permute_dims, _transpose, [(1024, 1024)]),
    Formula("elementwise chain", lambda x: R.clip(x, -0.5, 0.5), _chain, [(1024, 1024)]),
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def bench_user_kernel(benchmark, formula, way):
    benchmark.group = f"{formula}, one thread"
    benchmark(runner(formula.kernel(way), "relaxvm"))


def seconds_of(formula: Formula, seconds: float) -> dict[str, float]:
    """{way: seconds of the fastest call}, one thread, taking turns. The ways differ by less than
    what else the machine does, so the median would say more about that.
    """
    runs = {way: runner(formula.kernel(way), "relaxvm") for way in WAYS}
    for run in runs.values():
        np.testing.assert_allclose(run().numpy(), runs["operator"]().numpy(), rtol=1e-2, atol=1e-3)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    end = time.perf_counter() + seconds * len(WAYS)
    while time.perf_counter() < end or len(times["operator"]) < 5:
        for way, run in runs.items():
            start = time.perf_counter()
            run()
            times[way].append(time.perf_counter() - start)
    return {way: min(t) for way, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only kernels whose names hold one of these")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each way")
    given = parser.parse_args()
    print("| kernel | operator | " + " | ".join(WAYS[1:5]) + " | symbolic | te |")
    print("|---|" + "---|" * len(WAYS))
    for formula in FORMULAS:
        if given.words and not any(w in formula.name for w in given.words):
            continue
        found = seconds_of(formula, given.seconds)
        cells = [f"{found['operator'] * 1e6:.0f} us"]
        cells += [f"{found[way] / found['operator']:.2f}" for way in WAYS[1:5]]
        cells.append(f"{found['symbolic operator'] * 1e6:.0f} us")
        cells.append(f"{found['symbolic te'] / found['symbolic operator']:.2f}")
        print(f"| {formula.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
