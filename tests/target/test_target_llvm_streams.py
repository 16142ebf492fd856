"""Stores past the caches and memory asked for ahead: right whatever the alignment, and only where
they may be.
"""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import te, tir
from relaxvm.base import CodegenError
from relaxvm.ir import IRModule, const
from relaxvm.script import from_source
from relaxvm.target import compile_prim_funcs
from relaxvm.target.llvm import generate_llvm
from relaxvm.tir import NONTEMPORAL, PREFETCH, PREFETCH_PANEL

X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3"
ARM = "llvm -mtriple=aarch64-linux-gnu"


def streamed(n, dtype="float32", lanes=16, parallel=False, offset=0):
    """out = 2 x + 1 by vectors, with the annotation."""
    a = te.placeholder((n + offset,), dtype, name="A")
    out = te.compute((n,), lambda i: a(i + offset) * const(2, dtype) + const(1, dtype), "out")
    sch = tir.Schedule(te.create_prim_func([a, out]))
    (loop,) = sch.get_loops(sch.get_block("out"))
    outer, middle, inner = sch.split(loop, [None, 4, lanes])
    sch.vectorize(inner)
    sch.annotate(middle, NONTEMPORAL, True)
    if parallel:
        sch.parallel(outer)
    return sch.mod["main"]


def aligned(n, dtype, shift=0):
    """A view `shift` bytes behind a multiple of 64."""
    room = np.zeros(n * np.dtype(dtype).itemsize + 128, "uint8")
    start = -room.ctypes.data % 64 + shift
    return room[start : start + n * np.dtype(dtype).itemsize].view(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64"])
@pytest.mark.parametrize("parallel", [False, True])
def test_results_are_right_at_every_alignment(dtype, parallel):
    n = 64 * 32
    run = tvm.build(streamed(n, dtype, parallel=parallel), target="llvm")["main"]
    x = np.random.default_rng(3).integers(-30, 30, n).astype(dtype)
    for shift in {0, np.dtype(dtype).itemsize, 16, 32}:
        y = aligned(n, dtype, shift)
        run(x, y)
        np.testing.assert_array_equal(y, x * np.array(2, dtype) + np.array(1, dtype))


def test_both_versions_and_a_fence_are_generated():
    text = generate_llvm(IRModule({"main": streamed(2048)}), X86)
    hinted = [line for line in text.splitlines() if "!nontemporal" in line]
    assert len(hinted) == 1
    assert "align 64" in hinted[0]
    stores = [line for line in text.splitlines() if "store <16 x float>" in line]
    assert len(stores) == 2
    assert text.count("call void @llvm.x86.sse.sfence()") == 1
    assert compile_prim_funcs(IRModule({"main": streamed(2048)}), X86).native[0].object


def test_other_machines_need_no_fence():
    mod = IRModule({"main": streamed(2048)})
    text = generate_llvm(mod, ARM)
    assert "!nontemporal" in text
    assert "sfence" not in text
    assert compile_prim_funcs(mod, ARM).native[0].object[:4] == b"\x7fELF"


def test_every_part_of_a_parallel_loop_has_its_fence():
    text = generate_llvm(IRModule({"main": streamed(1 << 20, parallel=True)}), X86)
    body = text.split("define internal i32")[1].split("\n}")[0]
    assert "!nontemporal" in body
    assert "sfence" in body


def test_vectors_that_may_not_be_aligned_are_stored_as_ever():
    # Five elements a row: no vector of a later row is aligned.
    a = te.placeholder((7, 16), "float32", name="A")
    out = te.compute((7, 21), lambda i, j: tir.Select(j < 16, a(i, j % 16), 0.0), "out")
    sch = tir.Schedule(te.create_prim_func([a, out]))
    rows, columns = sch.get_loops(sch.get_block("out"))
    middle, inner = sch.split(columns, [3, 7])
    sch.vectorize(inner)
    sch.annotate(middle, NONTEMPORAL, True)
    assert "!nontemporal" not in generate_llvm(sch.mod, X86)


def test_loops_without_vectors_stay_as_they_are():
    a = te.placeholder((1024,), "float32", name="A")
    out = te.compute((1024,), lambda i: a(i) + 1.0, "out")
    sch = tir.Schedule(te.create_prim_func([a, out]))
    (loop,) = sch.get_loops(sch.get_block("out"))
    plain = generate_llvm(sch.mod, X86)
    sch.annotate(loop, NONTEMPORAL, True)
    assert generate_llvm(sch.mod, X86) == plain


# -- asking ahead ----------------------------------------------------------------------------------


def summed(rows, columns, ahead, chunk=64):
    """The sums of rows, in chunks at which memory is asked for."""
    a = te.placeholder((rows, columns), "float32", name="A")
    k = te.reduce_axis((0, columns), "k")
    out = te.compute((rows,), lambda i: te.sum(a(i, k), axis=[k]), "out")
    sch = tir.Schedule(te.create_prim_func([a, out]))
    _, loop = sch.get_loops(sch.get_block("out"))
    outer, _ = sch.split(loop, [None, chunk])
    sch.annotate(outer, PREFETCH, ahead)
    return sch.mod["main"]


def test_a_line_is_asked_for_once_in_each_chunk():
    text = generate_llvm(IRModule({"main": summed(8, 256, 256)}), X86)
    assert text.count("call void @llvm.prefetch.p0") == 64 * 4 // 64
    added = {line.rsplit(", ", 1)[1] for line in text.splitlines() if " add i64 " in line}
    assert {"1024", "1088", "1152", "1216"} <= added


def test_loops_inside_one_another_may_follow_one_that_asks_ahead():
    a = te.placeholder((4, 6, 64), "float32", name="A")
    j, k = te.reduce_axis((0, 6), "j"), te.reduce_axis((0, 64), "k")
    out = te.compute((4,), lambda i: te.sum(a(i, j, k), axis=[j, k]), "out")
    sch = tir.Schedule(te.create_prim_func([a, out]))
    sch.annotate(sch.get_loops(sch.get_block("out"))[0], PREFETCH, 384)
    text = generate_llvm(IRModule({"main": sch.mod["main"]}), X86)
    assert text.count("call void @llvm.prefetch.p0") == 64 * 4 // 64
    x, y = np.random.default_rng(4).random((4, 6, 64), "float32"), np.empty(4, "float32")
    tvm.build(sch.mod["main"], target="llvm")["main"](x, y)
    np.testing.assert_allclose(y, x.sum((1, 2)), rtol=1e-5)


def test_each_vector_of_straight_code_is_asked_for_once_into_the_second_cache():
    a = te.placeholder((8, 32), "float32", name="A")
    out = te.compute((8, 32), lambda i, j: a(i, j) + a(i, j) * a(i, j), "out")
    sch = tir.Schedule(te.create_prim_func([a, out]))
    row, column = sch.get_loops(sch.get_block("out"))
    over, lane = sch.split(column, [None, 8])
    sch.unroll(over)
    sch.vectorize(lane)
    sch.annotate(row, PREFETCH, 64)
    text = generate_llvm(IRModule({"main": sch.mod["main"]}), X86)
    # Of four in each row; rows are written out.
    asked = text.count(", i32 0, i32 2, i32 1)")
    assert text.count("call void @llvm.prefetch.p0") == asked == 8 * 4
    added = {line.rsplit(", ", 1)[1] for line in text.splitlines() if " add i64 " in line}
    assert "256" in added


def test_copies_that_read_one_place_ask_for_it_once():
    fn = from_source("""
# from relaxvm.script import tir as T
@T.prim_func
def main(A: T.Buffer((1024,), "float32"), B: T.Buffer((24,), "float32"), n: T.int64):
    for k in T.serial(64, annotations={"tir.prefetch": 64}):
        for i in T.unroll(3):
            for j in T.unroll(2):
                B[T.Ramp((i + n) // 2 * 8 + j * 4, 1, 4)] = A[T.Ramp(k * 16 + j * 4, 1, 4)]
""")
    text = generate_llvm(IRModule({"main": fn}), X86)
    # The copies over i are straight code, each with a j of its own.
    assert text.count("call void @llvm.prefetch.p0") == 2


UNKNOWN_PLACES = """
# from relaxvm.script import tir as T
@T.prim_func
def main(A: T.Buffer((512,), "float32"), B: T.Buffer((512,), "float32"),
         I: T.Buffer((512,), "int32"), m: T.int64, n: T.int64):
    for k in T.serial(8, annotations={"tir.prefetch": 64}):
        J_1 = T.allocate((4,), "int32", "local")
        J = T.decl_buffer((4,), "int32", data=J_1, scope="local")
        J[0] = I[k]
        for i in %s:
            %s
"""


@pytest.mark.parametrize(
    "statement",
    [
        # What the condition forbids to read, and a loop without iterations to check.
        "if k < 1: A[T.Ramp(i * 8, 1, 8)] = B[T.Ramp(I[k * T.int64(1 << 33) + i], 1, 8)]",
        "for j in range(m): A[T.Ramp(i * 8, 1, 8)] = B[T.Ramp(n * (j + 1) + i * 8, 1, 8)]",
        # What only the loop makes.
        "A[T.Ramp(i * 8, 1, 8)] = B[T.Ramp(J[0] + i, 1, 8)]",
        "for x in range(i + k, i + k + 1): A[T.Ramp(x, 1, 8)] = B[T.Ramp(x, 1, 8)]",
        "with T.LetStmt(k * 8 + i) as x: A[T.Ramp(x, 1, 8)] = B[T.Ramp(x, 1, 8)]",
        # No one place.
        "A[T.Ramp(i * 8, 1, 8)] = B[T.Ramp(i + k, 7, 8) * T.Broadcast(2, 8)]",
    ],
)
@pytest.mark.parametrize("loop", ["range(20)", "T.unroll(3)"])
def test_only_what_lies_at_known_places_is_asked_for(loop, statement):
    fn = from_source(UNKNOWN_PLACES % (loop, statement))
    rng = np.random.default_rng(6)
    b, places = rng.random(512, "float32"), rng.integers(0, 400, 512).astype("int32")
    results = np.zeros((2, 512), "float32")
    tir.interpret(fn, results[0], b, places, 0, 1 << 40)
    tvm.build(fn, target="llvm")["main"](results[1], b, places, 0, 1 << 40)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("around", ["T.unroll(k, k + 3)", "range(k, k + 3)"])
@pytest.mark.parametrize("asks", [", annotations={'tir.prefetch': 64}", ""])
def test_what_is_written_out_may_begin_anywhere(around, asks):
    fn = from_source(f"""
# from relaxvm.script import tir as T
@T.prim_func
def main(A: T.Buffer((512,), "float32"), B: T.Buffer((512,), "float32")):
    for k in T.serial(40{asks}):
        for i in {around}:
            A[T.Ramp(i * 8, 1, 8)] = A[T.Ramp(i * 8, 1, 8)] + B[T.Ramp(i * 4 + k, 1, 8)]
""")
    b, results = np.random.default_rng(6).random(512, "float32"), np.zeros((2, 512), "float32")
    tir.interpret(fn, results[0], b)
    tvm.build(fn, target="llvm")["main"](results[1], b)
    np.testing.assert_array_equal(*results)


def in_panels(rows, panel=None):
    """A product whose right side lies in panels of 16 columns, row by row of the left side."""
    a = te.placeholder((rows, 32), "float32", name="A")
    b = te.placeholder((4, 32, 16), "float32", name="B")
    k = te.reduce_axis((0, 32), "k")
    out = te.compute((4, rows, 16), lambda p, i, j: te.sum(a[i, k] * b[p, k, j], axis=[k]), "out")
    sch = tir.Schedule(te.create_prim_func([a, b, out]))
    block = sch.get_block("out")
    p, i, j, k = sch.get_loops(block)
    over, lane = sch.split(j, [None, 8])
    sch.reorder(p, i, k, over, lane)
    sch.unroll(over)
    sch.vectorize(lane)
    sch.reverse_compute_at(sch.cache_write(block, 0, "local"), i)
    sch.decompose_reduction(block, k)
    sch.annotate(k, PREFETCH, 256)
    if panel is not None:
        sch.annotate(k, PREFETCH_PANEL, panel)
    return sch.mod["main"]


@pytest.mark.parametrize(
    # In a step of eight iterations, which read 16 vectors: half a line each.
    ("rows", "panel", "asked"),
    [(8, None, 16), (8, 512, 1), (2, 512, 4), (1, 512, 16)],
)
def test_each_pass_over_a_panel_asks_for_its_share_of_the_next(rows, panel, asked):
    fn = in_panels(rows, panel)
    text = generate_llvm(IRModule({"main": fn}), X86)
    assert text.count("call void @llvm.prefetch.p0") == asked
    assert ("urem i64" in text) == (panel is not None and rows > 1)
    rng = np.random.default_rng(5)
    a, b = (rng.uniform(-1, 1, shape).astype("float32") for shape in ((rows, 32), (4, 32, 16)))
    out = np.zeros((4, rows, 16), "float32")
    tvm.build(fn, target="llvm")["main"](a, b, out)
    np.testing.assert_allclose(out, np.einsum("ik,pkj->pij", a, b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("panel", [0, -1, "large"])
def test_a_panel_has_elements(panel):
    with pytest.raises(CodegenError, match="tir.prefetch_panel: wanted a positive integer, got"):
        generate_llvm(IRModule({"main": in_panels(4, panel)}), X86)


def test_no_more_is_asked_for_than_a_core_can_wait_for():
    fn = summed(2, 1 << 22, 1 << 22, chunk=1 << 21)
    assert generate_llvm(IRModule({"main": fn}), X86).count("call void @llvm.prefetch.p0") == 64


def test_how_far_ahead_is_a_number():
    with pytest.raises(CodegenError, match="tir.prefetch: wanted an integer, got 'far'"):
        generate_llvm(IRModule({"main": summed(8, 256, "far")}), X86)


def test_asking_behind_the_end_does_no_harm():
    x = np.random.default_rng(4).uniform(-1, 1, (8, 256)).astype("float32")
    for ahead in (256, 1 << 40, -(1 << 40), (1 << 63) - 1):
        y = np.zeros(8, "float32")
        tvm.build(summed(8, 256, ahead), target="llvm")["main"](x, y)
        np.testing.assert_allclose(y, x.sum(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", [ARM, "llvm -mtriple=riscv64-linux-gnu"])
def test_asking_compiles_elsewhere(target):
    section = compile_prim_funcs(IRModule({"main": summed(8, 256, 256)}), target)
    assert section.native[0].object[:4] == b"\x7fELF"
