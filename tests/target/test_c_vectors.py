"""C that its compiler can make vectors of: totals in any order, functions without branches."""

from __future__ import annotations

import numpy as np
import pytest
from c_library import needs_compiler

import relaxvm as tvm
from relaxvm import te, tir
from relaxvm.ir import IRModule, PassContext
from relaxvm.script import tir as T
from relaxvm.target import compile_kernels

ELSEWHERE = "c -mtriple=aarch64-linux-gnu"


def text(fn):
    return compile_kernels(IRModule({"f": fn}), ELSEWHERE).sources["c"]


def totals(dtype, reassociate=True):
    @T.prim_func
    def main(
        x: T.handle,
        total: T.Buffer((3,), dtype),
        most: T.Buffer((3,), dtype),
        least: T.Buffer((3,), dtype),
    ):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True})
        n = T.int64()
        X = T.match_buffer(x, (3, n), dtype)
        for i in range(3):
            total[i] = T.cast(0, dtype)
            most[i] = -T.infinity(dtype)
            least[i] = T.infinity(dtype)
            for k in range(n):
                total[i] = total[i] + X[i, k]
            for k in range(n):
                most[i] = T.max(most[i], X[i, k])
            for k in range(n):
                least[i] = T.min(X[i, k], least[i])

    return main.with_attr("tir.reassociate", True) if reassociate else main


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_totals_are_those_of_the_loops(dtype):
    fn = totals(dtype)
    assert text(fn).count("RELAXVM_REDUCE(") == 3 + 2  # and its two definitions
    built = tvm.build(fn, target="c")
    rng = np.random.default_rng(0)
    for n in (0, 1, 5, 64, 1000):
        x = rng.standard_normal((3, n)).astype(dtype)
        if n:
            x[1, n // 2], x[2, -1] = np.nan, np.inf
        results = [np.zeros(3, dtype) for _ in range(3)]
        wanted = [r.copy() for r in results]
        built(x, *results)
        tir.interpret(fn, x, *wanted)
        np.testing.assert_allclose(results[0], wanted[0], rtol=1e-5, atol=1e-5)
        for got, want in zip(results[1:], wanted[1:]):
            np.testing.assert_array_equal(got, want)


def test_sums_stay_in_order_unless_their_function_may_change_it():
    exact = totals("float32", reassociate=False)
    assert "(max_f32, " in text(exact) and "(+, " not in text(exact)


def test_a_loop_whose_rounds_read_each_other_has_no_hint():
    @T.prim_func
    def running(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((1,))):
        T.func_attr({"tir.noalias": True, "tir.reassociate": True, "tir.is_scheduled": True})
        for i in range(15):
            B[i + 1] = B[i] + A[i]
            C[0] = C[0] + B[i + 1]

    @T.prim_func
    def scattered(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "float32"), C: T.Buffer((1,))):
        T.func_attr({"tir.noalias": True, "tir.reassociate": True, "tir.is_scheduled": True})
        for i in range(16):
            B[A[i]] = B[A[i]] + T.float32(1)
            C[0] = C[0] + B[i]

    @T.prim_func
    def partial(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((1,))):
        T.func_attr({"tir.noalias": True, "tir.reassociate": True, "tir.is_scheduled": True})
        for i in range(16):
            C[0] = C[0] + A[i]
            B[i] = C[0]

    for fn in (running, scattered, partial):
        assert "RELAXVM_REDUCE" not in text(fn)


@needs_compiler
@pytest.mark.parametrize("name", ["exp", "exp2", "log", "tanh", "erf"])
def test_elementary_functions_are_the_formulas(name):
    n = 4096
    x = te.placeholder((n,), "float32", "x")
    fn = te.create_prim_func([x, te.compute((n,), lambda i: getattr(tir, name)(x[i]), name="y")])
    assert f"relaxvm_{name}f(float x)" in text(fn)
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 32, n, dtype=np.uint32)
    bits[:6] = np.float32([0, -0.0, np.inf, -np.inf, np.nan, 1]).view(np.uint32)
    values = bits.view(np.float32)
    values[n // 2 :] = rng.uniform(-20, 20, n // 2)
    got, wanted = np.zeros(n, "float32"), np.zeros(n, "float32")
    tvm.build(fn, target="c")(values, got)
    with PassContext(config={"tir.math_formulas": True}):
        formula = tir.transform.LowerIntrin()(IRModule({"main": fn}))["main"]
    tir.interpret(formula, values, wanted)
    np.testing.assert_array_equal(got, wanted)


def test_short_rows_are_compared_one_after_the_other():
    @T.prim_func
    def main(x: T.Buffer((40,), "float32"), most: T.Buffer((1,), "float32")):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True})
        most[0] = -T.infinity("float32")
        for k in range(40):
            most[0] = T.max(most[0], x[k])

    assert "most[0] = max_so_far_f32(most[0], x[(int64_t)k]);" in text(main)


def test_a_choice_is_a_branch_only_where_a_side_reads_more():
    @T.prim_func
    def main(x: T.Buffer((40,), "float32"), y: T.Buffer((40,), "float32")):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True})
        for k in range(20):
            y[k] = T.Select(x[k] > T.float32(0), x[k] + T.float32(1), x[k] * T.float32(2))
        for k in range(20):
            y[k + 20] = T.Select(x[k] > T.float32(0), x[k + 20], T.float32(0))

    written = text(main)
    assert "y[(int64_t)k] = choose_f32(" in written
    assert " ? x[(int64_t)k + 20] : 0.0f" in written
