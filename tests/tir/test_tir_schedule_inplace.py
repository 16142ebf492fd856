"""Kernels that write their result over an input have the schedule that they would have apart."""

import dataclasses

import numpy as np
import pytest
from conv_helpers import AVX512, Case

from relaxvm import te, tir
from relaxvm.base import ScheduleError
from relaxvm.ir import walk
from relaxvm.relax.transform.inplace_kernels import overwritable_inputs, write_over
from relaxvm.script import from_source
from relaxvm.target import build
from relaxvm.tir import Schedule
from relaxvm.tir.schedule.plans import schedule_function

CPU = dataclasses.replace(AVX512, l2_bytes=1 << 20, l3_bytes=1 << 24)


def given(*tensors):
    return te.create_prim_func([*tensors], "int64").with_attr("tir.noalias", True)


def pointwise(shape, *steps, dtype="float32"):
    x = te.placeholder(shape, dtype, "X")
    y = x
    for step in steps:
        y = te.compute(shape, lambda *i, y=y, step=step: step(y(*i), x(*i)), name="Y")
    return given(x, y)


def relu(v, _):
    return tir.max(v, tir.const(0, v.dtype))


def residual(v, x):
    return v * v + x


def softmax(m, n):
    x = te.placeholder((m, n), "float32", "X")
    k, r = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "r")
    top = te.compute((m,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((m, n), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((m,), lambda i: te.sum(e[i, r], axis=r), name="total")
    return given(x, te.compute((m, n), lambda i, j: e[i, j] / total[i], name="Y"))


def centred(m, n):
    """Reads its input in the last block as well."""
    x = te.placeholder((m, n), "float32", "X")
    k = te.reduce_axis((0, n), "k")
    total = te.compute((m,), lambda i: te.sum(x[i, k], axis=k), name="total")
    return given(x, te.compute((m, n), lambda i, j: x[i, j] - total[i], name="Y"))


def product(m, n, k):
    a, b = te.placeholder((m, k), "float32", "A"), te.placeholder((k, n), "float32", "B")
    c, r = te.placeholder((m, n), "float32", "C"), te.reduce_axis((0, k), "r")
    made = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="AB")
    return given(a, b, c, te.compute((m, n), lambda i, j: made[i, j] + c[i, j], name="Y"))


def convolution(**case):
    return Case(after="residual", **case).function()


# name: (the kernel, the input that is overwritten)
KERNELS = {
    "relu 14x14": (pointwise((1, 8, 14, 14), relu), 0),
    "relu 7x7": (pointwise((1, 8, 7, 7), relu), 0),
    "relu of nothing": (pointwise((2, 0, 7), relu), 0),
    "relu of one": (pointwise((1, 1), relu), 0),
    "relu, symbolic": (pointwise((tir.Var("n", "int64"), 7, 7), relu), 0),
    "relu int8": (pointwise((3, 7, 7), relu, dtype="int8"), 0),
    "relu float64": (pointwise((3, 7, 7), relu, dtype="float64"), 0),
    "several steps": (pointwise((8, 14, 14), relu, residual, residual), 0),
    "softmax": (softmax(9, 33), 0),
    "softmax of a row": (softmax(1, 5), 0),
    "centred": (centred(9, 33), 0),
    "product": (product(13, 48, 64), 2),
    "ragged product": (product(17, 33, 40), 2),
    "convolution": (convolution(data=(1, 8, 10, 11), channels=16, padding=(1, 1)), 2),
    "pixels in a row": (convolution(data=(1, 32, 7, 7), channels=32, kernel=(1, 1)), 2),
    "depthwise": (convolution(data=(1, 8, 14, 17), channels=8, groups=8, padding=(1, 1)), 2),
}  # fmt: skip


def written_over(fn, source):
    return write_over(fn, source, len(fn.params) - 1, "main")


def loops_of(fn):
    """The loops of a function, and the blocks in them."""
    found = []
    for n in walk(fn.body):
        if isinstance(n, tir.For):
            found.append((n.kind, str(n.extent), sorted(n.annotations)))
        elif isinstance(n, tir.BlockRealize):
            found.append(
                (n.block.name_hint, str(n.predicate), [str(b.shape) for b in n.block.alloc_buffers])
            )
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_in_place_the_schedule_is_the_same(name):
    fn, source = KERNELS[name]
    apart, together = schedule_function(fn, CPU), schedule_function(written_over(fn, source), CPU)
    assert apart is not fn
    assert loops_of(written_over(apart, source)) == loops_of(together)


@pytest.mark.parametrize("name", KERNELS)
def test_in_place_the_result_is_the_same(name):
    fn, source = KERNELS[name]
    rng = np.random.default_rng(0)
    symbols = {v: 3 for v in fn.buffers[0].shape if isinstance(v, tir.Var)}
    shapes = [[int(tir.evaluate_expr(e, symbols)) for e in b.shape] for b in fn.buffers]
    arrays = [np.asarray(rng.integers(-4, 5, s), str(b.dtype)) for s, b in zip(shapes, fn.buffers)]
    tir.interpret(fn, *arrays)
    *inputs, wanted = arrays
    lib = build(schedule_function(written_over(fn, source), CPU), "llvm")
    lib["main"](*inputs)
    np.testing.assert_allclose(inputs[source], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "fn",
    [
        Case(data=(1, 8, 7, 7), channels=8, padding=(1, 1), after="bias").function(),
        Case(data=(1, 8, 7, 7), channels=8, kernel=(1, 1), after="bias").function(),
        Case(data=(2, 8, 9, 9), channels=8, groups=8, padding=(1, 1), after="bias").function(),
        product(16, 16, 16),
    ],
    ids=["convolution", "pixels in a row", "depthwise", "product"],
)
def test_what_reads_its_input_again_and_again_does_not_overwrite_it(fn):
    sources = {source for source, _ in overwritable_inputs(fn)}
    assert 0 not in sources


TWICE = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), X: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for t, i in T.grid(2, 8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = X[vi] + T.float32(1)
    for i in range(8):
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            A[vi] = A[vi] + B[vi]
"""


def test_an_update_is_not_run_in_each_iteration_of_a_loop_that_repeats():
    sch = Schedule(from_source(TWICE))
    t, i = sch.get_loops(sch.get_block("B"))
    with pytest.raises(ScheduleError, match="would update the same elements again"):
        sch.reverse_compute_at(sch.get_block("A"), t)


BETWEEN = """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32")):
    B = T.alloc_buffer((8, 8), "float32")
    for i, j in T.grid(8, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for {loops}:
        with T.block("A"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = {value}
"""


def test_what_reads_its_own_elements_first_is_put_into_the_block_that_overwrites_them():
    text = BETWEEN.format(loops="i, j in T.grid(8, 8)", value="B[vi, vj] + T.float32(1)")
    fn = from_source(text)
    sch = Schedule(fn)
    sch.compute_inline(sch.get_block("B"))
    arrays = [np.arange(64, dtype="float32").reshape(8, 8) for _ in range(2)]
    tir.interpret(fn, arrays[0])
    tir.interpret(sch.mod["main"], arrays[1])
    np.testing.assert_array_equal(*arrays)


def test_an_axis_of_one_value_is_that_value():
    text = BETWEEN.format(loops="i, j in T.grid(8, 8)", value="B[0, vj] + T.float32(1)")
    fn = from_source(text.replace("8, 8", "1, 8"))
    sch = Schedule(fn)
    sch.compute_inline(sch.get_block("B"))
    arrays = [np.arange(8, dtype="float32").reshape(1, 8) for _ in range(2)]
    tir.interpret(fn, arrays[0])
    tir.interpret(sch.mod["main"], arrays[1])
    np.testing.assert_array_equal(*arrays)


@pytest.mark.parametrize(
    ("loops", "value"),
    [
        ("i, j in T.grid(8, 8)", "B[vj, vi]"),
        ("i, j in T.grid(8, 8)", "B[vi, vj] + B[vi, 0]"),
        ("t, i, j in T.grid(2, 8, 8)", "B[vi, vj] + T.float32(1)"),
    ],
    ids=["other elements", "others as well", "overwritten twice"],
)
def test_what_reads_elements_that_are_overwritten_by_then_is_not_put_there(loops, value):
    sch = Schedule(from_source(BETWEEN.format(loops=loops, value=value)))
    with pytest.raises(ScheduleError, match="writes A, which it reads"):
        sch.compute_inline(sch.get_block("B"))


ROWS = """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for i, j in T.grid(8, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[{read}]
    for i, j in T.grid(8, 8):
        with T.block("A"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = A[vi, vj] - B[vi]
"""


def test_iterations_that_have_a_row_each_may_be_merged():
    sch = Schedule(from_source(ROWS.format(read="vi, vj")))
    sch.merge(*(sch.get_loops(sch.get_block(n))[0] for n in "BA"))
    (i, *_) = sch.get_loops(sch.get_block("A"))
    sch.parallel(i)


@pytest.mark.parametrize("read", ["vj, vi", "7 - vi, vj", "vi // 2, vj"])
def test_iterations_that_read_rows_of_others_are_not_merged(read):
    sch = Schedule(from_source(ROWS.format(read=read)))
    with pytest.raises(ScheduleError, match="hand values on"):
        sch.merge(*(sch.get_loops(sch.get_block(n))[0] for n in "BA"))
