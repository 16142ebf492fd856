"""Loops bound to threads, and the passes that TVM's programs run on them: each keeps what the
interpreter gives.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
from memory_programs import SIZE, program
from transform_helpers import check, parse

import relaxvm as tvm
from relaxvm import te, tir
from relaxvm.base import TIRError
from relaxvm.ir import IRModule, PassContext, assert_structural_equal, walk
from relaxvm.tir.analysis import verify_well_formed
from relaxvm.tir.transform import (
    BindTarget,
    InjectVirtualThread,
    LowerCrossThreadReduction,
    LowerTVMBuiltin,
    MakePackedAPI,
    ThreadSync,
    UnifyThreadBinding,
)

TWO_STAGES = """
def main(A: T.Buffer((4, 8), "int32"), B: T.Buffer((4, 8), "int32")):
    for b in T.thread_binding(4, thread="blockIdx.x"):
        for i in T.thread_binding(8, thread="threadIdx.x"):
            A[b, i] = i * b
        for j in T.thread_binding(8, thread="threadIdx.x"):
            B[b, j] = A[b, 7 - j]
"""


def bound_vars(fn):
    return {
        tag: {
            n.loop_var
            for n in walk(fn)
            if isinstance(n, tir.For) and n.thread_binding and n.thread_binding.thread_tag == tag
        }
        for tag in ("blockIdx.x", "threadIdx.x", "vthread")
    }


def test_loops_of_one_thread_get_one_variable():
    check(UnifyThreadBinding(), TWO_STAGES, TWO_STAGES.replace("j", "i"))
    made = UnifyThreadBinding()(IRModule({"main": parse(TWO_STAGES)}))
    assert [len(v) for v in bound_vars(made["main"]).values()] == [1, 1, 0]
    assert UnifyThreadBinding()(made) is made


def test_threads_of_another_number_keep_their_variable():
    text = TWO_STAGES.replace("j in T.thread_binding(8", "j in T.thread_binding(4")
    check(UnifyThreadBinding(), text, text)


def test_what_threads_would_share_each_does_for_itself():
    check(
        UnifyThreadBinding(),
        """
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in T.thread_binding(8, thread="threadIdx.x"):
        S = T.decl_buffer((8,), "int32", scope="shared")
        for k in T.thread_binding(8, thread="threadIdx.x"):
            S[k] = A[k] + 1
        B[i] = S[7 - i]
""",
        """
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in T.thread_binding(8, thread="threadIdx.x"):
        S = T.decl_buffer((8,), "int32", scope="shared")
        for k in range(8):
            S[k] = A[k] + 1
        B[i] = S[7 - i]
""",
    )


def test_launches_of_one_thread_get_one_variable():
    fn = parse("""
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    with T.launch_thread("blockIdx.x", 1) as b:
        with T.launch_thread("threadIdx.x", 8) as i:
            A[i] = i
        with T.launch_thread("threadIdx.x", 8) as j:
            B[j] = A[7 - j] + b
            with T.launch_thread("threadIdx.x", 8) as k:
                A[k] += 1
""")
    made = UnifyThreadBinding()(IRModule({"main": fn}))["main"]
    verify_well_formed(made)
    launched = {n.node.var for n in walk(made) if isinstance(n, tir.AttrStmt)}
    assert len(launched) == 2
    (inner,) = (n for n in walk(made) if isinstance(n, tir.For))
    assert inner.kind == tir.ForKind.SERIAL
    same_answer(fn, made, np.zeros(8, "int32"), np.zeros(8, "int32"))


def same_answer(one, other, *args):
    got, wanted = copy.deepcopy(args), copy.deepcopy(args)
    tir.interpret(one, *wanted)
    tir.interpret(other, *got)
    assert all(np.array_equal(g, w) for g, w in zip(got, wanted))


def test_a_variable_of_two_threads_is_told_apart():
    i = tir.Var("i", "int32")
    A = tir.decl_buffer((4, 4), "int32", "A")
    store = tir.BufferStore(A, i, (i, i))

    def loop(tag, body):
        axis = tir.IterVar((0, 4), tir.Var("", "int32"), "thread", tag)
        return tir.For(i, 0, 4, "thread_binding", body, axis)

    handle = tir.Var("a", "handle")
    body = tir.seq(loop("threadIdx.x", store), loop("threadIdx.y", store))
    outer = loop("blockIdx.x", body).replace(loop_var=tir.Var("b", "int32"))
    fn = tir.PrimFunc([handle], outer, buffer_map={handle: A})
    made = UnifyThreadBinding()(IRModule({"main": fn}))["main"]
    verify_well_formed(made)
    assert len({n.loop_var for n in walk(made) if isinstance(n, tir.For)}) == 3
    same_answer(fn, made, np.zeros((4, 4), "int32"))


def test_what_virtual_threads_do_is_written_out():
    check(
        InjectVirtualThread(),
        """
def main(A: T.Buffer((2, 2), "int32")):
    for i in T.thread_binding(2, thread="vthread.x"):
        S = T.decl_buffer((2,), "int32", scope="local")
        for k in range(2):
            S[k] = A[i, k]
        A[i, 0] = S[1]
""",
        """
def main(A: T.Buffer((2, 2), "int32")):
    with T.decl_buffer((2,), "int32", scope="local") as S:
        for k in range(2):
            S[k] = A[0, k]
        A[0, 0] = S[1]
    with T.decl_buffer((2,), "int32", scope="local") as S:
        for k in range(2):
            S[k] = A[1, k]
        A[1, 0] = S[1]
""",
    )


@pytest.mark.parametrize("count", ["16", "n"])
def test_many_virtual_threads_become_a_loop(count):
    text = """
def main(A: T.Buffer((16,), "int32"), n: T.int32):
    with T.launch_thread("vthread", 4) as j:
        A[j] += 1
    for i in T.thread_binding(%s, thread="vthread"):
        A[i] += i
"""
    fn = parse(text % count)
    made = InjectVirtualThread()(IRModule({"main": fn}))["main"]
    (loop,) = (n for n in walk(made) if isinstance(n, tir.For))
    assert loop.kind == tir.ForKind.SERIAL and loop.thread_binding is None
    assert sum(isinstance(n, tir.BufferStore) for n in walk(made)) == 5
    same_answer(fn, made, np.arange(16, dtype="int32"), 7)


def row_sums():
    A = te.placeholder((5, 24), "float32", "A")
    k = te.reduce_axis((0, 24), "k")
    B = te.compute((5,), lambda i: te.sum(A[i, k], axis=k), name="B")
    return te.create_prim_func([A, B])


def test_threads_that_share_a_reduction_become_a_plain_loop():
    sch = tir.Schedule(row_sums())
    i, k = sch.get_loops("B")
    outer, inner = sch.split(k, [None, 8])
    sch.bind(i, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    made = LowerCrossThreadReduction()(sch.mod)
    assert [len(v) for v in bound_vars(made["main"]).values()] == [1, 0, 0]
    x = np.random.default_rng(0).random((5, 24), dtype="float32")
    same_answer(row_sums(), made["main"], x, np.zeros(5, "float32"))
    same_answer(sch.mod["main"], made["main"], x, np.zeros(5, "float32"))
    y = np.zeros(5, "float32")
    tvm.build(sch.mod, "llvm")["main"](x, y)
    np.testing.assert_allclose(y, x.sum(1), rtol=1e-6)


def test_only_threads_of_a_block_may_share_a_reduction():
    sch = tir.Schedule(row_sums())
    _, k = sch.get_loops("B")
    with pytest.raises(tvm.tir.ScheduleError, match="moves the reduce axis"):
        sch.bind(k, "blockIdx.x")


def test_barriers_and_packed_calls_are_not_needed_and_reported():
    mod = IRModule({"main": parse(TWO_STAGES)})
    with PassContext() as ctx:
        assert ThreadSync("shared")(mod) is mod
        assert LowerTVMBuiltin()(mod) is mod
    assert "no barrier for shared memory" in str(ctx.report.of("ThreadSync")[0])
    assert "nothing to lower" in str(ctx.report.of("LowerTVMBuiltin")[0])


def test_an_entry_is_marked_and_checks_what_it_is_given():
    fn = row_sums()
    with pytest.raises(TIRError, match="no attribute target; run"):
        MakePackedAPI()(IRModule({"main": fn}))
    mod = BindTarget(tvm.target.Target("llvm"))(IRModule({"main": fn}))
    made = MakePackedAPI()(mod)
    assert made["main"].attrs["calling_conv"] == 1 and "calling_conv" not in mod["main"].attrs
    assert MakePackedAPI()(made) is made
    private = IRModule({"f": fn.without_attr("global_symbol")})
    assert MakePackedAPI()(private) is private
    built = tvm.build(LowerTVMBuiltin()(made), "llvm")
    x, y = np.ones((5, 24), "float32"), np.zeros(5, "float32")
    built["main"](x, y)
    assert (y == 24).all()
    with pytest.raises(ValueError, match="24"):
        built["main"](np.ones((5, 23), "float32"), y)


TAGS = ("threadIdx.x", "threadIdx.y", "blockIdx.x", "vthread", "vthread.x")


@pytest.mark.parametrize("seed", range(40))
def test_random_loops_over_threads_stay_what_they_are(seed):
    rng = np.random.default_rng(seed)
    lines = program(seed).splitlines()
    for k, line in enumerate(lines):
        if "in range(6)" in line:
            tag = TAGS[rng.integers(len(TAGS))]
            lines[k] = line.replace("range(6)", f'T.thread_binding(6, "{tag}")')
    mod = IRModule({"main": parse("\n".join(lines) + "\n")})
    for each in (UnifyThreadBinding(), InjectVirtualThread(), LowerCrossThreadReduction()):
        made = each(mod)
        verify_well_formed(made)
        args = np.arange(SIZE, dtype="int32"), np.ones(SIZE, "int32"), 3, 4
        got, wanted = copy.deepcopy(args), copy.deepcopy(args)
        tir.interpret(made["main"], *got)
        tir.interpret(mod["main"], *wanted)
        tvm.build(made, "llvm")["main"](*args)
        for a, g, w in zip(args, got, wanted):
            assert np.array_equal(g, w) and np.array_equal(a, w)
        assert_structural_equal(each(made), made)
