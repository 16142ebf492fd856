"""Default schedules of attention: in blocks of rows, whatever the sizes are."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import te, tir
from relaxvm.base import CpuModel
from relaxvm.ir import IntImm, IRModule, const, walk
from relaxvm.ir.transform import Sequential
from relaxvm.relax.op.attention import _attention_numpy as meaning
from relaxvm.tir import Allocate, For
from relaxvm.tir.schedule.plans import schedule_function
from relaxvm.tir.transform import LOWER_TIR

WIDE = CpuModel(vector_bits=512, vector_registers=32, fma=True)
HALF = CpuModel(vector_bits=256, vector_registers=16, fma=True)
NARROW = CpuModel(vector_bits=128, vector_registers=16)
SHARED = CpuModel(vector_bits=256, vector_registers=16, fma=True, cores=2)


def as_size(n):
    return const(n, "int64") if isinstance(n, int) else n


def attention(q, k, v, wide="float32", bias=None, seen=None, dtype="float32"):
    """The formula, of shapes [batch, s, heads, d]."""
    arrays = [te.placeholder([*map(as_size, x)], dtype, name) for x, name in zip((q, k, v), "qkv")]
    if bias is not None:
        arrays.append(te.placeholder(bias, dtype, "bias"))
    group = const(q[2] // k[2] if isinstance(q[2], int) and isinstance(k[2], int) else 1, "int64")
    out = te.attention(
        *arrays[:3], factor=const(0.25, wide), group=group, bias=(*arrays, None)[3], seen=seen
    )
    return te.create_prim_func([*arrays, out], index_dtype_override="int64")


def random(*shape, dtype="float32"):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


def kept(fn):
    """How many elements of each kind of buffer are kept, by the lowered function."""
    low = Sequential(tuple(LOWER_TIR))(IRModule({"main": fn}))
    sizes = {}
    for n in walk(low["main"].body):
        if isinstance(n, Allocate):
            size = n.extents[0]
            sizes[n.buffer_var.name] = size.value if isinstance(size, IntImm) else None
    return sizes


def check(fn, cpu, arrays, out, bias=None, **options):
    made = schedule_function(fn, cpu)
    tvm.build(made, target="llvm")["main"](*arrays, out)
    wanted = meaning(*arrays, scale=0.25, **options)
    rtol = {"float64": 1e-12, "float16": 4e-3}.get(out.dtype.name, 2e-5)
    np.testing.assert_allclose(out, wanted, rtol=rtol, atol=rtol / 10)
    return made


SIZES = [
    ((1, 77, 2, 65), (1, 77, 2, 65), 65),
    ((2, 40, 6, 16), (2, 50, 2, 16), 32),
    ((1, 24, 1, 8), (1, 200, 1, 8), 20),
    ((1, 100, 3, 4), (1, 33, 3, 4), 16),
]


@pytest.mark.parametrize(
    "cpu", [WIDE, HALF, NARROW, SHARED], ids=["512", "256", "128", "two cores"]
)
@pytest.mark.parametrize(("q", "k", "size"), SIZES)
def test_the_scores_are_kept_for_one_block_of_rows(q, k, size, cpu):
    v = (*k[:3], size)
    arrays, out = [random(*x) for x in (q, k, v)], np.zeros((*q[:3], size), "float32")
    sizes = kept(check(attention(q, k, v), cpu, arrays, out))
    for name in ("product", "weights"):
        assert sizes[name] <= 24 * (k[1] + 64)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_floats_are_computed_in_a_wide_one(dtype):
    q, k = (1, 33, 2, 20), (1, 70, 2, 20)
    arrays, out = [random(*x, dtype=dtype) for x in (q, k, k)], np.zeros(q, dtype)
    wide = "float32" if dtype == "float16" else dtype
    sizes = kept(check(attention(q, k, k, wide, dtype=dtype), HALF, arrays, out))
    assert sizes["product"] <= 24 * (70 + 64)


def test_lengths_that_are_known_late():
    s, t = (tir.Var(name, "int64") for name in "st")
    fn = attention((1, s, 2, 16), (1, t, 2, 16), (1, t, 2, 16))
    made = schedule_function(fn, HALF)
    run = tvm.build(made, target="llvm")["main"]
    for rows, columns in [(1, 1), (0, 3), (3, 0), (30, 100), (65, 33)]:
        arrays = [random(1, n, 2, 16) for n in (rows, columns, columns)]
        out = np.ones((1, rows, 2, 16), "float32")
        run(*arrays, out)
        np.testing.assert_allclose(out, meaning(*arrays, scale=0.25), rtol=2e-5, atol=2e-6)
    assert kept(made)["sums"] == 24 * 16


@pytest.mark.parametrize("shape", [(1, 2, 40, 50), (1, 1, 40, 1), (50,)])
def test_a_bias_that_hides_all_keys_of_a_row_gives_0(shape):
    q, k = (1, 40, 2, 16), (1, 50, 2, 16)
    bias = random(*shape)
    if len(shape) == 4:
        bias[:, :, 0] = -np.inf
    arrays, out = [*(random(*x) for x in (q, k, k)), bias], np.ones(q, "float32")
    check(attention(q, k, k, bias=shape), HALF, arrays, out)
    assert len(shape) == 1 or not out[:, 0].any()


def test_a_mask_over_positions():
    q, k = (1, 40, 2, 16), (1, 50, 2, 16)
    arrays, out = [random(*x) for x in (q, k, k)], np.ones(q, "float32")
    fn = attention(q, k, k, seen=lambda i, j: j <= i)
    check(fn, WIDE, arrays, out, causal_mask="TopLeft")


def shortened(fn):
    """How many loops end where a loop around them says."""
    loops = [n for n in walk(fn.body) if isinstance(n, For)]
    outer = {n.loop_var for n in loops}
    return sum(any(v in outer for v in walk(n.extent)) for n in loops)


@pytest.mark.parametrize("cpu", [WIDE, SHARED], ids=["512", "two cores"])
@pytest.mark.parametrize("shift", [-30, 0, 20, 99])
@pytest.mark.parametrize("late", [False, True])
def test_keys_after_a_diagonal_are_not_computed(shift, late, cpu):
    s, t = (tir.Var(name, "int64") for name in "st") if late else (61, 90)
    shapes = (1, s, 2, 16), (1, t, 2, 16), (1, t, 2, 16)
    made = schedule_function(attention(*shapes, seen=lambda i, j: j <= i + shift), cpu)
    run = tvm.build(made, target="llvm")["main"]
    assert shortened(made) == 4
    for rows, columns in [(61, 90), (1, 1), (0, 5), (5, 0), (90, 17)] if late else [(s, t)]:
        arrays = [random(1, n, 2, 16) for n in (rows, columns, columns)]
        out, hidden = np.ones((1, rows, 2, 16), "float32"), np.tri(rows, columns, shift, bool)
        run(*arrays, out)
        want = meaning(*arrays, np.where(hidden, 0, -np.inf), scale=0.25)
        np.testing.assert_allclose(out, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("keys", [1, 16])
def test_a_diagonal_in_a_single_panel_of_keys(keys):
    q, k = (1, 10, 2, 16), (1, keys, 2, 16)
    arrays, out = [random(*x) for x in (q, k, k)], np.ones(q, "float32")
    check(attention(q, k, k, seen=lambda i, j: j <= i), WIDE, arrays, out, causal_mask="TopLeft")


def test_masks_that_are_no_diagonal_hide_nothing_before_it_is_known():
    for seen in (lambda i, j: j % 7 <= i, lambda i, j: j <= i % 5, lambda i, j: j >= i):
        q, k = (1, 40, 2, 16), (1, 50, 2, 16)
        arrays, out = [random(*x) for x in (q, k, k)], np.ones(q, "float32")
        made = schedule_function(attention(q, k, k, seen=seen), WIDE)
        assert not shortened(made)
        tvm.build(made, target="llvm")["main"](*arrays, out)
        i, j = np.ogrid[:40, :50]
        want = meaning(*arrays, np.where(seen(i, j), 0, -np.inf), scale=0.25)
        np.testing.assert_allclose(out, want, rtol=2e-5, atol=2e-6)


def test_few_queries_of_several_heads_read_a_key_once():
    q, k = (1, 1, 8, 64), (1, 100, 2, 64)
    arrays, out = [random(*x) for x in (q, k, k)], np.zeros(q, "float32")
    fn = attention(q, k, k)
    check(fn, HALF, arrays, out)
    assert "keys" not in kept(schedule_function(fn, HALF))
