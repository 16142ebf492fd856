"""Symbolic sizes, memory plans and profiles, beside what calls cost without.

make bench
"""

import pathlib
import sys

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax
from relaxvm.runtime import VirtualMachine
from relaxvm.script import from_source

LAYERS = 20
SIZES = (1, 7, 64, 33, 128, 2, 100, 15)


def layers_module():
    """A row of kernels over ("n", 64) that can write in place."""
    lines = ["        lv0 = R.call_tir(cls.step, (x,), out_sinfo=R.Tensor((n, 64), 'float32'))"]
    for k in range(1, LAYERS):
        lines.append(
            f"        lv{k} = R.call_tir(cls.step, (lv{k - 1},), "
            "out_sinfo=R.Tensor((n, 64), 'float32'))"
        )
    body = "\n".join(lines)
    return from_source(
        f"""
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @T.prim_func(private=True)
    def step(a: T.handle, b: T.handle):
        T.func_attr({{"tir.noalias": True}})
        n = T.int64()
        A = T.match_buffer(a, (n, 64), "float32")
        B = T.match_buffer(b, (n, 64), "float32")
        for i, j in T.grid(n, 64):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(0.5) + T.float32(1)

    @R.function
    def main(x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", 64), "float32"):
        n = T.int64()
        cls = Module
{body}
        return lv{LAYERS - 1}
"""
    )


@pytest.fixture(scope="module")
def layers():
    return relax.build(layers_module(), target="llvm")


def inputs():
    return [np.ones((n, 64), "float32") for n in SIZES]


@pytest.mark.benchmark(group=f"{LAYERS} kernels of changing symbolic size (divide by {len(SIZES)})")
@pytest.mark.parametrize("what", ["pooled", "naive", "limited", "not in place", "numpy"])
def bench_symbolic_sizes(benchmark, layers, what):
    given = inputs()
    if what == "numpy":

        def main(x):
            for _ in range(LAYERS):
                x = x * np.float32(0.5) + np.float32(1)
            return x

    elif what == "not in place":
        with tvm.transform.PassContext(config={"relax.StaticPlanBlockMemory.inplace": False}):
            main = VirtualMachine(relax.build(layers_module(), target="llvm"))["main"]
    else:
        options = {"memory_limit_bytes": 1 << 30} if what == "limited" else {}
        memory = "naive" if what == "naive" else "pooled"
        main = VirtualMachine(layers, memory_cfg=memory, **options)["main"]
    benchmark(lambda: [main(x) for x in given])


@pytest.mark.benchmark(group="one profiled run beside one run")
@pytest.mark.parametrize("what", ["call", "profile"])
def bench_profile(benchmark, layers, what):
    vm, x = VirtualMachine(layers), inputs()[2]
    vm.profile("main", x)
    benchmark((lambda: vm["main"](x)) if what == "call" else (lambda: vm.profile("main", x)))


@pytest.mark.benchmark(group="memory plan of a program")
def bench_memory_plan(benchmark, layers):
    assert layers.memory_plan()["main"].peak == "512 * n"
    benchmark(layers.memory_plan)


if __name__ == "__main__":
    sys.exit(pytest.main([str(pathlib.Path(__file__)), "--benchmark-only"]))


CACHE = """
from relaxvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def grow(
        cache: R.Tensor((1, "n", 12, 64), "float32"), row: R.Tensor((1, 1, 12, 64), "float32")
    ):
        with R.dataflow():
            longer = R.concat([cache, row], axis=1)
            R.output(longer)
        return longer

    @R.function
    def write(
        cache: R.Tensor((1, "n", 12, 64), "float32"),
        place: R.Tensor((1, 2), "int64"),
        row: R.Tensor((1, 12, 64), "float32"),
    ):
        with R.dataflow():
            written = R.scatter_nd(cache, place, row)
            R.output(written)
        return written
"""


@pytest.mark.parametrize("donate", [(), ("cache",)], ids=["plain", "donated"])
@pytest.mark.parametrize("rows", [1024, 4096, 16384])
@pytest.mark.parametrize("name", ["grow", "write"])
def bench_one_row_more(benchmark, name, rows, donate):
    benchmark.group = f"{name} a cache of {rows} rows"
    call = VirtualMachine(relax.build(from_source(CACHE), "llvm", donate=donate))[name]
    rest = {"grow": [np.ones((1, 1, 12, 64), "float32")]}.get(
        name, [np.array([[0, rows // 2]]), np.ones((1, 12, 64), "float32")]
    )
    cache = tvm.nd.array(np.zeros((1, rows, 12, 64), "float32"))

    def step():
        nonlocal cache
        cache = call(cache, *rest)

    benchmark(step)
