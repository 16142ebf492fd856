"""Default schedules: chosen where they fit, and what they compute stays the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm.base import CpuModel
from relaxvm.ir import IRModule, PassContext, walk
from relaxvm.ir.transform import Sequential
from relaxvm.script import from_source
from relaxvm.target import cpu_model
from relaxvm.tir import For, ForKind
from relaxvm.tir.schedule.rules import DefaultSchedule, schedule_function, tile_shape

CPUS = {
    "this": dataclasses.replace(cpu_model(), cores=1),
    "narrow": CpuModel(vector_bits=128, vector_registers=16),
    "two cores": dataclasses.replace(cpu_model(), cores=2),
}


def source(params, grid, kinds, body, init=None, symbols=()):
    """A loop function of one block. params: (name, shape); grid: (axis, extent)."""
    names = ", ".join(f"p{i}: T.handle" for i in range(len(params)))
    lines = ["@T.prim_func", f"def main({names}):", '    T.func_attr({"tir.noalias": True})']
    lines += [f"    {s} = T.int64()" for s in symbols]
    for i, (name, shape) in enumerate(params):
        dims = ", ".join(str(d) if isinstance(d, str) else f"T.int64({d})" for d in shape)
        lines.append(f'    {name} = T.match_buffer(p{i}, ({dims},), "float32")')
    axes = ", ".join(a for a, _ in grid)
    extents = ", ".join(str(e) if isinstance(e, str) else f"T.int64({e})" for _, e in grid)
    loops = ", ".join(f"l{a}" for a, _ in grid)
    lines.append(f"    for {loops} in T.grid({extents}):")
    lines.append('        with T.block("out"):')
    lines.append(f'            {axes} = T.axis.remap("{kinds}", [{loops}])')
    if init:
        lines += ["            with T.init():", f"                {init}"]
    lines.append(f"            {body}")
    return from_source("\n".join(lines) + "\n")


def matmul(m, n, k, symbols=()):
    return source(
        [("A", (m, k)), ("B", (k, n)), ("C", (m, n))],
        [("i", m), ("j", n), ("k", k)],
        "SSR",
        "C[i, j] = C[i, j] + A[i, k] * B[k, j]",
        "C[i, j] = T.float32(0)",
        symbols,
    )


def check(fn, shapes, meaning, cpu="this", scheduled=True):
    made = schedule_function(fn, CPUS[cpu])
    assert (made is not fn) is scheduled
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s).astype("float32") for s in shapes]
    tvm.build(made, target="llvm")["main"](*arrays)
    want = meaning(*[a.astype("float64") for a in arrays[:-1]])
    np.testing.assert_allclose(arrays[-1], want, rtol=1e-4, atol=1e-4 * max(1, np.abs(want).max()))
    return made


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(32, 64, 24), (37, 48, 19), (5, 40, 64), (128, 10, 33), (29, 1000, 8)]
)
def test_matmul_of_any_size(m, n, k, cpu):
    check(matmul(m, n, k), [(m, k), (k, n), (m, n)], np.matmul, cpu)


@pytest.mark.parametrize("m", [1, 2, 13, 40, 100])
def test_matmul_with_rows_known_only_later(m):
    fn = matmul("m", 48, 32, ["m"])
    check(fn, [(m, 32), (32, 48), (m, 48)], np.matmul)


def test_matrix_times_vector():
    fn = matmul(1, 128, 300)
    check(fn, [(1, 300), (300, 128), (1, 128)], np.matmul)


def test_batched_matmul():
    fn = source(
        [("A", (3, 20, 16)), ("B", (3, 16, 32)), ("C", (3, 20, 32))],
        [("b", 3), ("i", 20), ("j", 32), ("k", 16)],
        "SSSR",
        "C[b, i, j] = C[b, i, j] + A[b, i, k] * B[b, k, j]",
        "C[b, i, j] = T.float32(0)",
    )
    check(fn, [(3, 20, 16), (3, 16, 32), (3, 20, 32)], np.matmul)


def test_a_transposed_right_side_is_packed():
    fn = source(
        [("A", (40, 48)), ("B", (64, 48)), ("C", (40, 64))],
        [("i", 40), ("j", 64), ("k", 48)],
        "SSR",
        "C[i, j] = C[i, j] + A[i, k] * B[j, k]",
        "C[i, j] = T.float32(0)",
    )
    made = check(fn, [(40, 48), (64, 48), (40, 64)], lambda a, b: a @ b.T)
    assert "B_global" in made.script()


def test_a_convolution():
    fn = source(
        [("X", (1, 5, 18, 18)), ("W", (7, 5, 3, 3)), ("C", (1, 7, 16, 16))],
        [("n", 1), ("o", 7), ("h", 16), ("w", 16), ("c", 5), ("r", 3), ("s", 3)],
        "SSSSRRR",
        "C[n, o, h, w] = C[n, o, h, w] + X[n, c, h + r, w + s] * W[o, c, r, s]",
        "C[n, o, h, w] = T.float32(0)",
    )

    def meaning(x, w):
        views = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
        return np.einsum("nchwrs,ocrs->nohw", views, w)

    check(fn, [(1, 5, 18, 18), (7, 5, 3, 3), (1, 7, 16, 16)], meaning)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sums_along_each_axis(axis):
    names = ["i", "j", "k"]
    kept = [n for n in names if n != names[axis]]
    sizes = dict(zip(names, (12, 33, 20)))
    out = ", ".join(kept)
    fn = source(
        [("A", (12, 33, 20)), ("C", tuple(sizes[n] for n in kept))],
        [*((n, sizes[n]) for n in kept), (names[axis], sizes[names[axis]])],
        "SSR",
        f"C[{out}] = C[{out}] + A[i, j, k]",
        f"C[{out}] = T.float32(0)",
    )
    # The function counts as changed: its sums may be reordered from now on.
    check(fn, [(12, 33, 20), tuple(sizes[n] for n in kept)], lambda a: a.sum(axis))


@pytest.mark.parametrize("worst", [np.nan, np.inf, -np.inf])
def test_a_maximum_keeps_nan_and_infinities(worst):
    fn = source(
        [("A", (3, 100)), ("C", (3,))],
        [("i", 3), ("k", 100)],
        "SR",
        "C[i] = T.max(C[i], A[i, k])",
        'C[i] = T.float32("-inf")',
    )
    made = schedule_function(fn, CPUS["this"])
    a = np.random.default_rng(0).standard_normal((3, 100)).astype("float32")
    a[1, 37] = worst
    c = np.zeros(3, "float32")
    tvm.build(made, target="llvm")["main"](a, c)
    np.testing.assert_array_equal(c, a.max(-1))


def test_much_work_is_shared_out_among_cores():
    def kinds(m, cores):
        cpu = dataclasses.replace(CPUS["this"], cores=cores)
        fn = schedule_function(matmul(m, 256, 256), cpu)
        return {n.kind for n in walk(fn) if isinstance(n, For)}

    assert ForKind.PARALLEL in kinds(256, 2)
    assert ForKind.PARALLEL not in kinds(256, 1)
    assert ForKind.PARALLEL not in kinds(4, 2)


def test_functions_that_somebody_scheduled_stay():
    fn = matmul(32, 64, 24)
    own = schedule_function(fn, CPUS["this"])
    mod = IRModule({"main": own})
    assert DefaultSchedule(cpu=CPUS["this"])(mod)["main"] is own
    marked = fn.with_attr("tir.is_scheduled", True)
    mod = IRModule({"main": marked})
    assert DefaultSchedule(cpu=CPUS["this"])(mod)["main"] is marked


def test_exact_numerics_forbid_the_rules():
    mod = IRModule({"main": matmul(32, 64, 24)})
    rules = Sequential([DefaultSchedule(cpu=CPUS["this"])])
    with PassContext(config={"numerics": "exact"}):
        assert rules(mod)["main"] is mod["main"]
    assert rules(mod)["main"] is not mod["main"]


def test_tiles_fit_the_registers():
    for registers in (8, 16, 32):
        for rows in (None, 1, 3, 128, 1000):
            for columns in (16, 48, 128, 3072):
                height, vectors = tile_shape(rows, columns, 16, registers)
                assert height * vectors + vectors + 1 <= registers
                assert rows is None or height <= rows
    assert tile_shape(1024, 1024, 16, 32)[0] * tile_shape(1024, 1024, 16, 32)[1] >= 20
