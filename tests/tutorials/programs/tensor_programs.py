"""Chapter 2 of a course: a tensor program is loops, buffers and blocks; numpy with explicit loops
says the same; transformations change the loops and keep the meaning; a formula gives the loops
too.
"""

import numpy as np
import tvm
from tvm import te
from tvm.ir.module import IRModule
from tvm.script import tir as T

dtype = "float32"
n = 64
a_np = np.random.rand(n, n).astype(dtype)
b_np = np.random.rand(n, n).astype(dtype)
c_mm_relu = np.maximum(a_np @ b_np, 0)


def lnumpy_mm_relu(A: np.ndarray, B: np.ndarray, C: np.ndarray):
    Y = np.empty((n, n), dtype="float32")
    for i in range(n):
        for j in range(n):
            for k in range(n):
                if k == 0:
                    Y[i, j] = 0
                Y[i, j] = Y[i, j] + A[i, k] * B[k, j]
    for i in range(n):
        for j in range(n):
            C[i, j] = max(Y[i, j], 0)


c_np = np.empty((n, n), dtype=dtype)
lnumpy_mm_relu(a_np, b_np, c_np)
np.testing.assert_allclose(c_mm_relu, c_np, rtol=1e-5)


@tvm.script.ir_module
class MyModule:
    @T.prim_func
    def mm_relu(
        A: T.Buffer[(64, 64), "float32"],
        B: T.Buffer[(64, 64), "float32"],
        C: T.Buffer[(64, 64), "float32"],
    ):
        # the function's name in a library, and: its buffers do not overlap
        T.func_attr({"global_symbol": "mm_relu", "tir.noalias": True})
        Y = T.alloc_buffer((64, 64), dtype="float32")
        for i, j, k in T.grid(64, 64, 64):
            with T.block("Y"):
                vi = T.axis.spatial(64, i)
                vj = T.axis.spatial(64, j)
                vk = T.axis.reduce(64, k)
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(64, 64):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(Y[vi, vj], T.float32(0))


print(type(MyModule) is IRModule, type(MyModule["mm_relu"]) is tvm.tir.PrimFunc)
text = MyModule.script()
tvm.ir.assert_structural_equal(tvm.script.from_source(text), MyModule)

# --- transform it
sch = tvm.tir.Schedule(MyModule)
block_Y = sch.get_block("Y", func_name="mm_relu")
i, j, k = sch.get_loops(block_Y)
j0, j1 = sch.split(j, factors=[None, 4])
sch.reorder(j0, k, j1)
block_C = sch.get_block("C", "mm_relu")
sch.reverse_compute_at(block_C, j0)
sch.decompose_reduction(block_Y, k)
assert "Y_init" in sch.mod.script()
assert "Y_update" in sch.mod.script()
print(sch.get(j1).extent, [sch.get(loop).loop_var.name for loop in sch.get_loops("Y_update")])


# --- build it and run it
def transform(mod, jfactor):
    sch = tvm.tir.Schedule(mod)
    block_Y = sch.get_block("Y", func_name="mm_relu")
    i, j, k = sch.get_loops(block_Y)
    j0, j1 = sch.split(j, factors=[None, jfactor])
    sch.reorder(j0, k, j1)
    block_C = sch.get_block("C", "mm_relu")
    sch.reverse_compute_at(block_C, j0)
    return sch.mod


for mod in (MyModule, sch.mod, transform(MyModule, jfactor=8), transform(MyModule, jfactor=16)):
    rt_lib = tvm.build(mod, target="llvm")
    a_nd = tvm.nd.array(a_np)
    b_nd = tvm.nd.array(b_np)
    c_nd = tvm.nd.empty((n, n), dtype="float32")
    func_mm_relu = rt_lib["mm_relu"]
    func_mm_relu(a_nd, b_nd, c_nd)
    np.testing.assert_allclose(c_mm_relu, c_nd.numpy(), rtol=1e-5)
    f_timer = rt_lib.time_evaluator("mm_relu", tvm.cpu(), number=2)
    assert f_timer(a_nd, b_nd, c_nd).mean > 0

# --- a formula instead of loops
A = te.placeholder((64, 64), "float32", name="A")
B = te.placeholder((64, 64), "float32", name="B")
k = te.reduce_axis((0, 64), "k")
Y = te.compute((64, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="Y")
C = te.compute((64, 64), lambda i, j: te.max(Y[i, j], 0), name="C")
te_func = te.create_prim_func([A, B, C]).with_attr({"global_symbol": "mm_relu"})
MyModuleFromTE = tvm.IRModule({"mm_relu": te_func})
tvm.build(transform(MyModuleFromTE, 4), "llvm")["mm_relu"](a_nd, b_nd, c_nd)
np.testing.assert_allclose(c_mm_relu, c_nd.numpy(), rtol=1e-5)

# --- the chapter's exercises: a sum, a convolution, a batched product made parallel
x = np.arange(16).reshape(4, 4)
y = np.arange(4, 0, -1)


@tvm.script.ir_module
class MyAdd:
    @T.prim_func
    def add(A: T.Buffer((4, 4), "int64"), B: T.Buffer((4,), "int64"), C: T.Buffer((4, 4), "int64")):
        T.func_attr({"global_symbol": "add"})
        for i, j in T.grid(4, 4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                vj = T.axis.spatial(4, j)
                C[vi, vj] = A[vi, vj] + B[vj]


c_tvm = tvm.nd.array(np.empty((4, 4), dtype=np.int64))
tvm.build(MyAdd, target="llvm")["add"](tvm.nd.array(x), tvm.nd.array(y), c_tvm)
np.testing.assert_allclose(c_tvm.numpy(), x + y, rtol=1e-5)

N, CI, H, W, CO, K = 1, 1, 8, 8, 2, 3
OUT_H, OUT_W = H - K + 1, W - K + 1


@tvm.script.ir_module
class MyConv:
    @T.prim_func
    def conv(
        data: T.Buffer((N, CI, H, W), "int64"),
        weight: T.Buffer((CO, CI, K, K), "int64"),
        out: T.Buffer((N, CO, OUT_H, OUT_W), "int64"),
    ):
        T.func_attr({"global_symbol": "conv", "tir.noalias": True})
        for b, co, h, w, ci, kh, kw in T.grid(N, CO, OUT_H, OUT_W, CI, K, K):
            with T.block("conv"):
                vb, vco, vh, vw, vci, vkh, vkw = T.axis.remap("SSSSRRR", [b, co, h, w, ci, kh, kw])
                with T.init():
                    out[vb, vco, vh, vw] = T.int64(0)
                out[vb, vco, vh, vw] += (
                    data[vb, vci, vh + vkh, vw + vkw] * weight[vco, vci, vkh, vkw]
                )


data = np.arange(N * CI * H * W).reshape(N, CI, H, W)
weight = np.arange(CO * CI * K * K).reshape(CO, CI, K, K)
windows = np.lib.stride_tricks.sliding_window_view(data, (K, K), axis=(2, 3))
conv_np = np.einsum("nchwij,ocij->nohw", windows, weight)
conv_tvm = tvm.nd.array(np.empty((N, CO, OUT_H, OUT_W), dtype=np.int64))
tvm.build(MyConv, target="llvm")["conv"](tvm.nd.array(data), tvm.nd.array(weight), conv_tvm)
np.testing.assert_allclose(conv_tvm.numpy(), conv_np)


@tvm.script.ir_module
class MyBmmRelu:
    @T.prim_func
    def bmm_relu(A: T.Buffer((4, 32, 32)), B: T.Buffer((4, 32, 32)), C: T.Buffer((4, 32, 32))):
        T.func_attr({"global_symbol": "bmm_relu", "tir.noalias": True})
        Y = T.alloc_buffer((4, 32, 32), dtype="float32")
        for n, i, j, k in T.grid(4, 32, 32, 32):
            with T.block("Y"):
                vn, vi, vj, vk = T.axis.remap("SSSR", [n, i, j, k])
                with T.init():
                    Y[vn, vi, vj] = T.float32(0)
                Y[vn, vi, vj] = Y[vn, vi, vj] + A[vn, vi, vk] * B[vn, vk, vj]
        for n, i, j in T.grid(4, 32, 32):
            with T.block("C"):
                vn, vi, vj = T.axis.remap("SSS", [n, i, j])
                C[vn, vi, vj] = T.max(Y[vn, vi, vj], T.float32(0))


sch = tvm.tir.Schedule(MyBmmRelu)
Y = sch.get_block("Y", func_name="bmm_relu")
C = sch.get_block("C", func_name="bmm_relu")
b, i, j, k = sch.get_loops(Y)
sch.parallel(b)
k0, k1 = sch.split(k, factors=[8, 4])
j0, j1 = sch.split(j, factors=[4, 8])
sch.reorder(j0, k0, k1, j1)
sch.reverse_compute_at(C, j0)
c_init = sch.decompose_reduction(Y, k0)
sch.vectorize(sch.get_loops(c_init)[-1])
sch.unroll(k1)
sch.vectorize(sch.get_loops(C)[-1])
target = """
@I.ir_module
class TargetModule:
    @T.prim_func
    def bmm_relu(
        A: T.Buffer((4, 32, 32), "float32"),
        B: T.Buffer((4, 32, 32), "float32"),
        C: T.Buffer((4, 32, 32), "float32"),
    ):
        T.func_attr({"global_symbol": "bmm_relu", "tir.noalias": True})
        Y = T.alloc_buffer([4, 32, 32], dtype="float32")
        for i0 in T.parallel(4):
            for i1, i2_0 in T.grid(32, 4):
                for ax0_init in T.vectorized(8):
                    with T.block("Y_init"):
                        n, i = T.axis.remap("SS", [i0, i1])
                        j = T.axis.spatial(32, i2_0 * 8 + ax0_init)
                        Y[n, i, j] = T.float32(0)
                for ax1_0 in T.serial(8):
                    for ax1_1 in T.unroll(4):
                        for ax0 in T.serial(8):
                            with T.block("Y_update"):
                                n, i = T.axis.remap("SS", [i0, i1])
                                j = T.axis.spatial(32, i2_0 * 8 + ax0)
                                k = T.axis.reduce(32, ax1_0 * 4 + ax1_1)
                                Y[n, i, j] = Y[n, i, j] + A[n, i, k] * B[n, k, j]
                for i2_1 in T.vectorized(8):
                    with T.block("C"):
                        n, i = T.axis.remap("SS", [i0, i1])
                        j = T.axis.spatial(32, i2_0 * 8 + i2_1)
                        C[n, i, j] = T.max(Y[n, i, j], T.float32(0))
"""
tvm.ir.assert_structural_equal(sch.mod, tvm.script.from_source(target))
A = np.random.rand(4, 32, 32).astype("float32")
B = np.random.rand(4, 32, 32).astype("float32")
out = tvm.nd.empty((4, 32, 32))
tvm.build(sch.mod, "llvm")["bmm_relu"](tvm.nd.array(A), tvm.nd.array(B), out)
np.testing.assert_allclose(out.numpy(), np.maximum(A @ B, 0), rtol=1e-5)
print("Pass")
