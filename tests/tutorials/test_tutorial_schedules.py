"""A course on transforming loops, typed as a TVM user would: tile, fuse, vectorise, tensorise."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import te
from relaxvm.script import tir as T


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@tvm.script.ir_module
class MyModule:
    @T.prim_func
    def mm_relu(
        A: T.Buffer((128, 128), "float32"),
        B: T.Buffer((128, 128), "float32"),
        C: T.Buffer((128, 128), "float32"),
    ):
        T.func_attr({"global_symbol": "mm_relu", "tir.noalias": True})
        Y = T.alloc_buffer((128, 128), dtype="float32")
        for i, j, k in T.grid(128, 128, 128):
            with T.block("Y"):
                vi = T.axis.spatial(128, i)
                vj = T.axis.spatial(128, j)
                vk = T.axis.reduce(128, k)
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(128, 128):
            with T.block("C"):
                vi = T.axis.spatial(128, i)
                vj = T.axis.spatial(128, j)
                C[vi, vj] = T.max(Y[vi, vj], T.float32(0))


def transform(mod, jfactor):
    sch = tvm.tir.Schedule(mod)
    block_Y = sch.get_block("Y", func_name="mm_relu")
    i, j, k = sch.get_loops(block_Y)
    j0, j1 = sch.split(j, factors=[None, jfactor])
    sch.reorder(j0, k, j1)
    block_C = sch.get_block("C", "mm_relu")
    sch.reverse_compute_at(block_C, j0)
    sch.decompose_reduction(block_Y, k)
    return sch.mod


@pytest.mark.parametrize("jfactor", [4, 8, 16])
def test_tiling_and_fusing_a_matmul_gives_the_same_result(jfactor, rng):
    a = rng.random((128, 128)).astype("float32") - 0.5
    b = rng.random((128, 128)).astype("float32") - 0.5
    rt_lib = tvm.build(transform(MyModule, jfactor), target="llvm")
    a_nd, b_nd = tvm.nd.array(a), tvm.nd.array(b)
    c_nd = tvm.nd.empty((128, 128), dtype="float32")
    rt_lib["mm_relu"](a_nd, b_nd, c_nd)
    np.testing.assert_allclose(c_nd.numpy(), np.maximum(a @ b, 0), rtol=1e-4, atol=1e-5)
    f_timer = rt_lib.time_evaluator("mm_relu", tvm.cpu())
    assert f_timer(a_nd, b_nd, c_nd).mean > 0


def test_the_trace_of_the_transformation_can_be_shown(capsys):
    sch = tvm.tir.Schedule(MyModule)
    block_Y = sch.get_block("Y", func_name="mm_relu")
    i, j, k = sch.get_loops(block_Y)
    sch.split(j, factors=[None, 4])
    sch.mod.show()
    sch.trace.show()
    printed = capsys.readouterr().out
    assert "j_0 * 4 + j_1" in printed
    assert "sch.split(loop=" in printed


@tvm.script.ir_module
class MyBmmRelu:
    @T.prim_func
    def bmm_relu(
        A: T.Buffer((16, 128, 128), "float32"),
        B: T.Buffer((16, 128, 128), "float32"),
        C: T.Buffer((16, 128, 128), "float32"),
    ):
        T.func_attr({"global_symbol": "bmm_relu", "tir.noalias": True})
        Y = T.alloc_buffer([16, 128, 128], dtype="float32")
        for n, i, j, k in T.grid(16, 128, 128, 128):
            with T.block("Y"):
                vn, vi, vj, vk = T.axis.remap("SSSR", [n, i, j, k])
                with T.init():
                    Y[vn, vi, vj] = T.float32(0)
                Y[vn, vi, vj] = Y[vn, vi, vj] + A[vn, vi, vk] * B[vn, vk, vj]
        for n, i, j in T.grid(16, 128, 128):
            with T.block("C"):
                vn, vi, vj = T.axis.remap("SSS", [n, i, j])
                C[vn, vi, vj] = T.max(Y[vn, vi, vj], T.float32(0))


@tvm.script.ir_module
class TargetModule:
    @T.prim_func
    def bmm_relu(
        A: T.Buffer((16, 128, 128), "float32"),
        B: T.Buffer((16, 128, 128), "float32"),
        C: T.Buffer((16, 128, 128), "float32"),
    ) -> None:
        T.func_attr({"global_symbol": "bmm_relu", "tir.noalias": True})
        Y = T.alloc_buffer([16, 128, 128], dtype="float32")
        for i0 in T.parallel(16):
            for i1, i2_0 in T.grid(128, 16):
                for ax0_init in T.vectorized(8):
                    with T.block("Y_init"):
                        n, i = T.axis.remap("SS", [i0, i1])
                        j = T.axis.spatial(128, i2_0 * 8 + ax0_init)
                        Y[n, i, j] = T.float32(0)
                for ax1_0 in T.serial(32):
                    for ax1_1 in T.unroll(4):
                        for ax0 in T.serial(8):
                            with T.block("Y_update"):
                                n, i = T.axis.remap("SS", [i0, i1])
                                j = T.axis.spatial(128, i2_0 * 8 + ax0)
                                k = T.axis.reduce(128, ax1_0 * 4 + ax1_1)
                                Y[n, i, j] = Y[n, i, j] + A[n, i, k] * B[n, k, j]
                for i2_1 in T.vectorized(8):
                    with T.block("C"):
                        n, i = T.axis.remap("SS", [i0, i1])
                        j = T.axis.spatial(128, i2_0 * 8 + i2_1)
                        C[n, i, j] = T.max(Y[n, i, j], T.float32(0))


def test_the_exercise_reaches_its_target_module():
    sch = tvm.tir.Schedule(MyBmmRelu)
    Y = sch.get_block("Y", func_name="bmm_relu")
    C = sch.get_block("C", func_name="bmm_relu")
    b, i, j = sch.get_loops(C)
    sch.parallel(b)
    j0, j1 = sch.split(j, factors=[None, 8])
    sch.compute_at(Y, j0)
    _, _, _, ax0, ax1 = sch.get_loops(Y)
    ax1_0, ax1_1 = sch.split(ax1, factors=[None, 4])
    sch.reorder(ax1_0, ax1_1, ax0)
    Y_init = sch.decompose_reduction(Y, ax1_0)
    sch.vectorize(sch.get_loops(Y_init)[-1])
    sch.unroll(ax1_1)
    sch.vectorize(j1)
    tvm.ir.assert_structural_equal(sch.mod, TargetModule)


def test_vector_add_bound_to_threads():
    n = 1024
    A = te.placeholder((n,), "float32", name="A")
    B = te.placeholder((n,), "float32", name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    sch = tvm.tir.Schedule(te.create_prim_func([A, B, C]))
    block_C = sch.get_block("C")
    (i,) = sch.get_loops(block=block_C)
    i0, i1 = sch.split(i, [None, 128])
    sch.bind(i0, "blockIdx.x")
    sch.bind(i1, "threadIdx.x")
    text = sch.mod.script()
    assert 'T.thread_binding(8, thread="blockIdx.x")' in text
    assert 'T.thread_binding(128, thread="threadIdx.x")' in text


def test_a_window_sum_with_its_cache_at_each_tile(rng):
    @tvm.script.ir_module
    class MyModuleWindowSum:
        @T.prim_func
        def main(A: T.Buffer((1027,), "float32"), B: T.Buffer((1024,), "float32")) -> None:
            T.func_attr({"global_symbol": "main", "tir.noalias": True})
            for i in T.grid(1024):
                with T.block("C"):
                    vi = T.axis.remap("S", [i])
                    B[vi] = A[vi] + A[vi + 1] + A[vi + 2]

    sch = tvm.tir.Schedule(MyModuleWindowSum)
    nthread = 128
    block_C = sch.get_block("C")
    (i,) = sch.get_loops(block=block_C)
    i0, i1 = sch.split(i, [None, nthread])
    A_shared = sch.cache_read(block_C, read_buffer_index=0, storage_scope="shared")
    sch.compute_at(A_shared, i1)
    _, _, ax = sch.get_loops(A_shared)
    assert int(sch.get(ax).extent) == 3
    a = rng.random(1027).astype("float32")
    out = tvm.nd.empty((1024,))
    tvm.build(sch.mod, "llvm")["main"](tvm.nd.array(a), out)
    np.testing.assert_allclose(out.numpy(), a[:1024] + a[1:1025] + a[2:1026], rtol=1e-5)


# -- tensorisation ---------------------------------------------------------------------------------


@T.prim_func
def tmm16_desc(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (16, 16), "float32", offset_factor=16, scope="global.A_reg")
    B = T.match_buffer(b, (16, 16), "float32", offset_factor=16, scope="global.B_reg")
    C = T.match_buffer(c, (16, 16), "float32", offset_factor=16, scope="global.accumulator")
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        for i, j, k in T.grid(16, 16, 16):
            with T.block(""):
                vii, vjj, vkk = T.axis.remap("SSR", [i, j, k])
                C[vii, vjj] = C[vii, vjj] + A[vii, vkk] * B[vjj, vkk]


@T.prim_func
def tmm16_impl(a: T.handle, b: T.handle, c: T.handle) -> None:
    sa = T.int32()
    sb = T.int32()
    sc = T.int32()
    A = T.match_buffer(
        a, (16, 16), "float32", offset_factor=16, strides=[sa, 1], scope="global.A_reg"
    )
    B = T.match_buffer(
        b, (16, 16), "float32", offset_factor=16, strides=[sb, 1], scope="global.B_reg"
    )
    C = T.match_buffer(
        c, (16, 16), "float32", offset_factor=16, strides=[sc, 1], scope="global.accumulator"
    )
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        for i, j in T.grid(16, 16):
            for k in T.unroll(16):
                C[i, j] = C[i, j] + A[i, k] * B[j, k]


@tvm.script.ir_module
class MatmulModule:
    @T.prim_func
    def main(
        A: T.Buffer((64, 64), "float32"),
        B: T.Buffer((64, 64), "float32"),
        C: T.Buffer((64, 64), "float32"),
    ) -> None:
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        for i, j, k in T.grid(64, 64, 64):
            with T.block("matmul"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] += A[vi, vk] * B[vj, vk]


def test_a_matmul_made_of_tensor_intrinsics(rng):
    tvm.tir.TensorIntrin.register("tutorial.tmm16", tmm16_desc, tmm16_impl, override=True)
    sch = tvm.tir.Schedule(MatmulModule)
    i, j, k = sch.get_loops("matmul")
    i, ii = sch.split(i, factors=[None, 16])
    j, ji = sch.split(j, factors=[None, 16])
    k, ki = sch.split(k, factors=[None, 16])
    sch.reorder(i, j, k, ii, ji, ki)
    block_mm = sch.blockize(ii)
    A_reg = sch.cache_read(block_mm, 0, storage_scope="global.A_reg")
    B_reg = sch.cache_read(block_mm, 1, storage_scope="global.B_reg")
    sch.compute_at(A_reg, k)
    sch.compute_at(B_reg, k)
    write_back_block = sch.cache_write(block_mm, 0, storage_scope="global.accumulator")
    sch.reverse_compute_at(write_back_block, j)
    sch.decompose_reduction(block_mm, k)
    sch.tensorize(block_mm, "tutorial.tmm16")
    a = rng.random((64, 64)).astype("float32")
    b = rng.random((64, 64)).astype("float32")
    want = a @ b.T
    c = np.zeros((64, 64), "float32")
    tvm.tir.interpret(sch.mod["main"], a, b, c)
    np.testing.assert_allclose(c, want, rtol=1e-4)
    out = tvm.nd.empty((64, 64))
    tvm.build(sch.mod, "llvm")["main"](tvm.nd.array(a), tvm.nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4)
