"""What operators cost: legalisation in µs for every operator of the op table, and the kernels of
the families outside nn, image and qdq (see `bench_ops_nn.py`) beside numpy.

    make bench                       as benches
    python bench/bench_ops.py        two tables: kernels with ratios; legalisation, median and worst

Kernels are those of an untuned build; numpy is what a user would write for the same result.
"""

from __future__ import annotations

import importlib
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.relax import op as R
from relaxvm.relax.transform import LegalizeOps
from relaxvm.runtime import VirtualMachine, array, cpu

TESTS = pathlib.Path(__file__).parent.parent / "tests" / "relax"
RNG = np.random.default_rng(0)


@dataclass
class Kernel:
    """An operator on arrays, and numpy's way to the same result."""

    family: str
    name: str
    make: Callable[..., Any]
    numpy: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]

    def __str__(self) -> str:
        return f"{self.family}: {self.name}"


def f32(*shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype("float32")


def ints(high: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, high, shape)


MANY, SQUARE, WIDE = f32(1 << 18), f32(512, 512), f32(256, 1024)
POSITIVE, HALVES = f32(1 << 18, low=0.1, high=9.0), f32(1 << 18, low=-0.9, high=0.9)
TABLE, PLACES = f32(4096, 64), ints(4096, 4096)
A, B = f32(256, 256), f32(256, 256)
SEED = np.asarray(7)


def put(x: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
    made = x.copy()
    np.add.at(made, i, u)
    return made


def one_hot(i: np.ndarray) -> np.ndarray:
    return (i[:, None] == np.arange(64)).astype("float32")


def generator(seed: np.ndarray) -> np.random.Generator:
    return np.random.default_rng(int(seed))


def unary(names: str, x: np.ndarray, numpy: dict[str, Callable[..., Any]]) -> list[Kernel]:
    return [
        Kernel("unary", n, getattr(R, n), numpy.get(n) or getattr(np, n), (x,))
        for n in names.split()
    ]


OTHERS = {
    "acos": np.arccos, "asin": np.arcsin, "atan": np.arctan, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip
KERNELS = [
    *unary("abs negative round exp expm1 tanh sigmoid sin cos tan sinh cosh", MANY, OTHERS),
    *unary("log log2 log10 log1p sqrt rsqrt", POSITIVE, OTHERS),
    *unary("asin acos atan asinh atanh", HALVES, OTHERS),
    *(
        Kernel("binary", n, getattr(R, n), getattr(np, n), (MANY, POSITIVE))
        for n in ("add", "multiply", "divide", "maximum", "floor_divide", "greater")
    ),
    Kernel("binary", "power", R.power, np.power, (POSITIVE, HALVES)),
    Kernel("binary", "add of a row", R.add, np.add, (WIDE, f32(1024))),
    Kernel("ternary", "where", lambda x, y: R.where(R.greater(x, y), x, y),
           lambda x, y: np.where(x > y, x, y), (MANY, POSITIVE)),
    Kernel("ternary", "clip", lambda x: R.clip(x, -0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5),
           (MANY,)),
    Kernel("datatype", "astype int8", lambda x: R.astype(x, "int8"), lambda x: x.astype("int8"),
           (MANY,)),
    Kernel("create", "tril", R.tril, np.tril, (SQUARE,)),
    Kernel("manipulate", "permute_dims", R.permute_dims, lambda x: x.T.copy(), (SQUARE,)),
    Kernel("manipulate", "reshape", lambda x: R.reshape(x, (-1,)), lambda x: x.reshape(-1).copy(),
           (SQUARE,)),
    Kernel("manipulate", "concat", lambda x: R.concat([x, x], 1),
           lambda x: np.concatenate([x, x], 1), (SQUARE,)),
    Kernel("manipulate", "split", lambda x: R.split(x, 4, 1),
           lambda x: [p.copy() for p in np.split(x, 4, 1)], (SQUARE,)),
    Kernel("manipulate", "tile", lambda x: R.tile(x, (2, 2)), lambda x: np.tile(x, (2, 2)),
           (SQUARE,)),
    Kernel("manipulate", "flip", lambda x: R.flip(x, 1), lambda x: np.flip(x, 1).copy(),
           (SQUARE,)),
    Kernel("index", "take of rows", lambda x, i: R.take(x, i, 0), lambda x, i: np.take(x, i, 0),
           (TABLE, PLACES)),
    Kernel("index", "strided_slice", lambda x: R.strided_slice(x, [0, 1], [1, 1], [500, 500]),
           lambda x: x[1:500, 1:500].copy(), (SQUARE,)),
    Kernel("index", "gather_elements", lambda x, i: R.gather_elements(x, i, 1),
           lambda x, i: np.take_along_axis(x, i, 1), (SQUARE, ints(512, 512, 512))),
    Kernel("index", "one_hot",
           lambda i: R.one_hot(i, relax.PrimValue(1.0), relax.PrimValue(0.0), 64), one_hot,
           (ints(64, 4096),)),
    Kernel("scatter", "index_put, add",
           lambda x, i, u: R.index_put(x, (i,), u, accumulate=True), put, (TABLE, PLACES, TABLE)),
    *(
        Kernel("reduction", f"{n} of {what}", lambda x, n=n, a=a: getattr(R, n)(x, a),
               lambda x, f=f, a=a: f(x, a), (SQUARE,))
        for n, f in (("sum", np.sum), ("max", np.max), ("mean", np.mean), ("variance", np.var),
                     ("argmax", np.argmax))
        for a, what in ((1, "rows"), (0, "columns"))
    ),
    Kernel("reduction", "cumsum", lambda x: R.cumsum(x, 1), lambda x: np.cumsum(x, 1), (SQUARE,)),
    Kernel("linear algebra", "matmul 256", R.matmul, np.matmul, (A, B)),
    Kernel("linear algebra", "matmul by a vector", R.matmul, np.matmul, (SQUARE, f32(512))),
    Kernel("linear algebra", "einsum bij,bjk->bik", lambda x, y: R.einsum((x, y), "bij,bjk->bik"),
           np.matmul, (f32(8, 64, 64), f32(8, 64, 64))),
    Kernel("linear algebra", "outer", R.outer, np.outer, (f32(512), f32(512))),
    Kernel("sort", "sort", R.sort, np.sort, (SQUARE,)),
    Kernel("sort", "argsort", R.argsort, lambda x: np.argsort(x, kind="stable").astype("int32"),
           (SQUARE,)),
    Kernel("sort", "searchsorted", lambda s, v: R.searchsorted(s, v),
           lambda s, v: np.searchsorted(s, v).astype("int32"), (np.sort(TABLE[:, 0]), MANY)),
    Kernel("set", "unique", R.unique, np.unique, (ints(1000, 1 << 14),)),
    Kernel("random", "uniform", lambda seed: R.random.uniform((1 << 18,), seed),
           lambda seed: generator(seed).random(1 << 18, "float32"), (SEED,)),
    Kernel("random", "normal", lambda seed: R.random.normal((1 << 18,), seed),
           lambda seed: generator(seed).standard_normal(1 << 18, "float32"), (SEED,)),
]  # fmt: skip


def run_relaxvm(kernel: Kernel) -> Callable[[], Any]:
    params = [
        relax.Var(f"x{k}", relax.TensorStructInfo(a.shape, str(a.dtype)))
        for k, a in enumerate(kernel.arrays)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(kernel.make(*params)))
    main = VirtualMachine(relax.build(builder.get(), target="llvm"), cpu())["main"]
    arrays = [array(a) for a in kernel.arrays]
    return lambda: main(*arrays)


def run_numpy(kernel: Kernel) -> Callable[[], Any]:
    return lambda: kernel.numpy(*kernel.arrays)


def operators() -> dict[str, Any]:
    """A module with one call of each operator that is legalised, from the op table of the tests."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    table = importlib.import_module("op_table")
    found: dict[str, Any] = {}
    for path in sorted(TESTS.glob("test_relax_op_*.py")):
        for case in getattr(importlib.import_module(path.stem), "CASES", ()):
            if isinstance(case, table.Case) and case.op.op.short not in found:
                one = table.Instance(case, case.dtypes[0])
                found[case.op.op.short] = table.module_of([one])
    return found


def legalise_us(mod: Any) -> float:
    return median_us(lambda: LegalizeOps()(mod), least=3, seconds=0.0)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("what", [run_numpy, run_relaxvm], ids=lambda f: f.__name__[4:])
def bench_kernel(benchmark, kernel, what):
    benchmark.group = str(kernel)
    benchmark(what(kernel))


def bench_legalisation_of_every_operator(benchmark):
    """One call of each operator of the table, all in a row."""
    modules = operators()
    benchmark.group = "legalisation"
    benchmark.extra_info["operators"] = len(modules)
    benchmark.pedantic(lambda: [LegalizeOps()(m) for m in modules.values()], rounds=3)


def median_us(run: Callable[[], Any], least: int = 5, seconds: float = 0.1) -> float:
    """The median of at least `least` runs, and of as many as fit into `seconds`."""
    times = []
    run()
    start = time.perf_counter()
    while len(times) < least or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        run()
        times.append(time.perf_counter() - before)
    return statistics.median(times) * 1e6


def main() -> None:
    print(f"{'kernel':44}{'relaxvm µs':>12}{'numpy µs':>12}{'numpy / relaxvm':>17}")
    ratios: dict[str, list[float]] = {}
    for kernel in KERNELS:
        own, other = median_us(run_relaxvm(kernel)), median_us(run_numpy(kernel))
        ratios.setdefault(kernel.family, []).append(other / own)
        print(f"{kernel!s:44}{own:12.1f}{other:12.1f}{other / own:17.2f}", flush=True)
    for family, each in ratios.items():
        print(f"{family:44}{'':12}{'median':>12}{statistics.median(each):17.2f}")
    costs = {name: legalise_us(mod) for name, mod in operators().items()}
    ordered = sorted(costs.items(), key=lambda c: -c[1])
    middle = statistics.median(costs.values())
    print(f"\nlegalisation of {len(costs)} operators: median {middle:.0f} µs; the slowest:")
    for name, cost in ordered[:10]:
        print(f"  {name:42}{cost:12.0f}")


if __name__ == "__main__":
    main()
