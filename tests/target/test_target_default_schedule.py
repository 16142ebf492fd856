"""Who gets a default schedule: formulas do, loops that somebody wrote do not; and the same kernel
gets the same one however it was written.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import te, tir
from relaxvm.ir import IRModule, assert_structural_equal, walk
from relaxvm.ir.walk import transform
from relaxvm.script import from_source
from relaxvm.target import cpu_model
from relaxvm.tir import Block, For, ForKind
from relaxvm.tir.schedule.plans import schedule_function


def product(m=64, n=64, k=64):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "r")
    return [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")]


def is_tiled(rt):
    return re.search(r"<\d+ x float>", rt.get_source("ll")) is not None


def run(rt, name="main"):
    rng = np.random.default_rng(0)
    a, b = rng.random((64, 64), "float32"), rng.random((64, 64), "float32")
    c = np.zeros_like(a)
    rt[name](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)


def test_formulas_are_scheduled_and_written_loops_are_not():
    formula = te.create_prim_func(product())
    written = from_source(formula.script())
    touched = tir.Schedule(formula).mod["main"]
    root = formula.body.block
    changed = formula.with_body(formula.body.replace(block=root.replace(name_hint="mine")))
    assert_structural_equal(formula, written)
    for fn, options, tiled in (
        (formula, {}, True),
        (formula.with_attr("global_symbol", "main"), {}, True),
        (formula, {"schedule": False}, False),
        (written, {}, False),
        (touched, {}, False),
        (changed, {}, False),
    ):
        rt = tvm.build(fn, "llvm", **options)
        assert is_tiled(rt) is tiled
        run(rt)


def test_a_formula_of_known_sizes_is_one_still():
    n = te.var("n", "int64")
    fn = te.create_prim_func(product(n))
    buffer = tir.decl_buffer((tir.const(64, "int64"), tir.const(64, "int64")), "float32")
    rt = tvm.build(fn.specialize({fn.params[0]: buffer}), "llvm")
    assert is_tiled(rt)
    run(rt)


def test_a_module_may_hold_both():
    formula = te.create_prim_func(product())
    mod = IRModule({"made": formula, "written": from_source(formula.script())})
    rt = tvm.build(mod, "llvm")
    run(rt, "made")
    run(rt, "written")
    parts = rt.get_source("ll").split("define ")
    assert any("x float>" in p for p in parts if "made" in p.split("(")[0])
    assert not any("x float>" in p for p in parts if "written" in p.split("(")[0])
    assert mod["written"].get_attr("tir.is_scheduled") is None


def test_a_schedule_by_hand_of_what_somebody_wrote():
    written = from_source(te.create_prim_func(product()).script())
    made = tir.schedule.default_schedule(written, "llvm")
    assert any(n.kind == ForKind.VECTORIZED for n in walk(made) if isinstance(n, For))
    run(tvm.build(made, "llvm"))
    mod = IRModule({"main": written})
    assert_structural_equal(tir.schedule.default_schedule(mod, "llvm")["main"], made)
    assert tir.schedule.default_schedule(IRModule({"main": made}))["main"] is made
    with pytest.raises(tir.ScheduleError, match="wanted a PrimFunc or an IRModule, got str"):
        tir.schedule.default_schedule("main")


# -- one kernel, written in several ways -----------------------------------------------------------


def sums(shape, size, value):
    r = te.reduce_axis((0, size), "r")
    return te.compute(shape, lambda *i: te.sum(value(*i, r), axis=r))


def softmax(x):
    m, n = x.shape
    r, s = te.reduce_axis((0, n), "r"), te.reduce_axis((0, n), "s")
    top = te.compute((m,), lambda i: te.max(x[i, r], axis=r))
    e = te.compute((m, n), lambda i, j: te.exp(x[i, j] - top[i]))
    total = te.compute((m,), lambda i: te.sum(e[i, s], axis=s))
    return te.compute((m, n), lambda i, j: e[i, j] / total[i])


def conv2d(x, w):
    n, c, h, width = x.shape
    p = te.compute(
        (n, c, h + 2, width + 2),
        lambda b, c, i, j: tir.if_then_else(
            tir.all(i >= 1, i < h + 1, j >= 1, j < width + 1), x[b, c, i - 1, j - 1], 0.0
        ),
    )
    o, channels, _, _ = (int(d) for d in w.shape)
    rc, rh, rw = (te.reduce_axis((0, d), f"r{d}") for d in (channels, 3, 3))
    return te.compute(
        (n, o, h, width),
        lambda b, k, i, j: te.sum(p[b, rc, i + rh, j + rw] * w[k, rc, rh, rw], axis=[rc, rh, rw]),
    )


KERNELS = {
    "matmul": ([(65, 64), (64, 48)], lambda a, b: sums(
        (a.shape[0], 48), 64, lambda i, j, r: a[i, r] * b[r, j])),
    "batched": ([(3, 33, 64), (3, 64, 48)], lambda a, b: sums(
        (a.shape[0], 33, 48), 64, lambda n, i, j, r: a[n, i, r] * b[n, r, j])),
    "matvec": ([(64, 96), (96,)], lambda a, b: sums(
        (a.shape[0],), 96, lambda i, r: a[i, r] * b[r])),
    "conv2d": ([(2, 16, 14, 14), (16, 16, 3, 3)], conv2d),
    "softmax": ([(33, 130)], softmax),
    "row sum": ([(65, 130)], lambda a: sums((a.shape[0],), 130, lambda i, r: a[i, r])),
    "transpose": ([(65, 130)], lambda a: te.compute((130, a.shape[0]), lambda i, j: a[j, i])),
    "elementwise": ([(65, 130)], lambda a: te.compute(a.shape, lambda i, j: te.exp(a[i, j]) * 2.0)),
}  # fmt: skip


def in_int64(shape):
    dims = re.sub(r"(\d+)", r"T.int64(\1)", shape[2])
    return f"{shape[1]}(({dims})"


def ways(name, rows):
    """The kernel in int32, in int64, as text in both, and as text that mixes them."""
    shapes, formula = KERNELS[name]

    def made(dtype, override=None):
        n = te.var("n", dtype) if rows is None else rows
        tensors = [
            te.placeholder((n if k == 0 or name == "batched" else s[0], *s[1:]), name=f"A{k}")
            for k, s in enumerate(shapes)
        ]
        return te.create_prim_func([*tensors, formula(*tensors)], override)

    yield made("int32")
    yield made("int64", "int64")
    yield from_source(made("int32").script())
    yield from_source(made("int64", "int64").script())
    text = made("int32").script()
    yield from_source(re.sub(r"(T\.Buffer|alloc_buffer)\(\(([\d, ]+)\)", in_int64, text))


def nameless(fn):
    """Without the names of blocks, and without the bound of what was an int32 size."""
    fn = transform(fn, lambda n: n.replace(name_hint="b") if isinstance(n, Block) else None)
    return fn.without_attr("tir_var_upper_bound")


@pytest.mark.parametrize("rows", ["known", "symbol"])
@pytest.mark.parametrize("name", KERNELS)
def test_however_it_is_written_it_gets_the_same_schedule(name, rows):
    known = KERNELS[name][0][0][0] if rows == "known" else None
    first, *others = (nameless(schedule_function(f, cpu_model("llvm"))) for f in ways(name, known))
    for other in others:
        assert_structural_equal(first, other)
