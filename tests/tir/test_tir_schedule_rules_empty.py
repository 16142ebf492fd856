"""Sums over axes that may have no values: scheduled like others, and filled all the same."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import te, tir
from relaxvm.base import CpuModel
from relaxvm.ir import IntImm, walk
from relaxvm.tir import interpret
from relaxvm.tir.schedule.plans import schedule_function
from relaxvm.tir.schedule.plans.sums import is_filled, without_empty
from relaxvm.tir.stmt import Block, For, ForKind

WIDE = CpuModel("x86_64", 256, 16, True)


def product(m, k, n):
    a, b = te.placeholder((m, k), "float32", "A"), te.placeholder((k, n), "float32", "B")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")
    return te.create_prim_func([a, b, c])


def softmax_of_sums(n, k):
    """Sums, and another chain of sums over what they gave."""
    a = te.placeholder((n, k), "float32", "A")
    r, s = te.reduce_axis((0, k), "r"), te.reduce_axis((0, k), "s")
    total = te.compute((n,), lambda i: te.sum(a[i, r], axis=r), "total")
    out = te.compute((n,), lambda i: te.sum(a[i, s] * total[i], axis=s), "out")
    return te.create_prim_func([a, out])


def names(fn):
    return {b.name_hint for b in walk(fn) if isinstance(b, Block)}


def sizes(*which):
    return [te.size_var(s, "int64") if isinstance(s, str) else s for s in which]


def test_the_block_for_no_values_goes():
    k = te.size_var("k", "int64")
    fn = product(64, k, 32)
    assert "C_empty" in names(fn)
    trimmed, symbols = without_empty(fn)
    assert "C_empty" not in names(trimmed)
    assert symbols == {k}
    assert not is_filled(trimmed, symbols)
    assert is_filled(schedule_function(fn, WIDE), symbols)
    assert without_empty(product(64, 16, 32)) is None


@pytest.mark.parametrize("shape", [("m", "k", "n"), (64, "k", 32), ("m", "k", 48), (64, "k", "n")])
def test_a_product_of_any_depth_gets_register_tiles(shape):
    made = schedule_function(product(*sizes(*shape)), WIDE)
    vectors = [f for f in walk(made) if isinstance(f, For) and f.kind == ForKind.VECTORIZED]
    assert vectors
    assert all(isinstance(f.extent, IntImm) for f in vectors)
    assert "C_empty" not in names(made)


@pytest.mark.parametrize("k", [0, 1, 7, 200])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (13, 40), (0, 5), (5, 0), (64, 32)])
def test_products_of_any_depth(m, k, n):
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, (m, k)).astype("float32")
    b = rng.uniform(-1, 1, (k, n)).astype("float32")
    fn = product(*sizes("m", "k", "n"))
    c = np.full((m, n), np.nan, "float32")
    tvm.build(schedule_function(fn, WIDE), target="llvm")["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    if m * n * k < 200:
        c = np.full((m, n), np.nan, "float32")
        interpret(schedule_function(fn, WIDE), a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("make", [softmax_of_sums, lambda n, k: product(n, n, k)])
def test_other_sums(make, k):
    n = te.size_var("n")
    fn = make(n, te.size_var("k"))
    made = schedule_function(fn, WIDE)
    rng = np.random.default_rng(0)
    for rows in (0, 4):
        shapes = [(rows, k)] if make is softmax_of_sums else [(rows, rows), (rows, k)]
        arrays = [rng.uniform(-1, 1, s).astype("float32") for s in shapes]
        want = np.full((rows,) if make is softmax_of_sums else (rows, k), np.nan, "float32")
        got = want.copy()
        interpret(fn, *arrays, want)
        tvm.build(made, target="llvm")["main"](*arrays, got)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_condition_of_ones_own_is_no_such_block():
    k = tir.Var("k", "int64")
    a = te.placeholder((8, k), "float32", "A")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((8,), lambda i: te.sum(a[i, r], axis=r), "C")
    fn = te.create_prim_func([a, c])
    nest = fn.body.block.body.seq[0]
    assert without_empty(fn.replace(body=fn.body.replace(block=fn.body.block.replace(
        body=type(fn.body.block.body)((nest, nest))
    )))) is None  # fmt: skip
