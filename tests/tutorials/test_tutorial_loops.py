"""A first course on loop functions, typed as a TVM user would: write, print, build, run, time."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import te
from relaxvm.ir.module import IRModule
from relaxvm.script import tir as T


@tvm.script.ir_module
class VectorAdd:
    @T.prim_func
    def main(
        A: T.Buffer((128,), "float32"),
        B: T.Buffer((128,), "float32"),
        C: T.Buffer((128,), "float32"),
    ):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        for i in range(128):
            with T.block("C"):
                vi = T.axis.spatial(128, i)
                C[vi] = A[vi] + B[vi]


@tvm.script.ir_module
class MatmulRelu:
    @T.prim_func
    def mm_relu(
        A: T.Buffer[(32, 32), "float32"],
        B: T.Buffer[(32, 32), "float32"],
        C: T.Buffer[(32, 32), "float32"],
    ):
        T.func_attr({"global_symbol": "mm_relu", "tir.noalias": T.bool(True)})
        Y = T.alloc_buffer((32, 32), dtype="float32")
        for i, j, k in T.grid(32, 32, 32):
            with T.block("Y"):
                vi = T.axis.spatial(32, i)
                vj = T.axis.spatial(32, j)
                vk = T.axis.reduce(32, k)
                T.reads(A[vi, vk], B[vk, vj])
                T.writes(Y[vi, vj])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(32, 32):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(Y[vi, vj], T.float32(0))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_vector_add_is_an_irmodule_with_one_function():
    assert isinstance(VectorAdd, tvm.IRModule)
    assert isinstance(VectorAdd["main"], tvm.tir.PrimFunc)
    assert [gv.name_hint for gv in VectorAdd.get_global_vars()] == ["main"]
    assert VectorAdd.get_global_var("main") in VectorAdd.functions


def test_vector_add_builds_and_runs_on_nd_arrays():
    rt_mod = tvm.build(VectorAdd, target="llvm")
    func = rt_mod["main"]
    a = tvm.nd.array(np.arange(128, dtype="float32"))
    b = tvm.nd.array(np.ones(128, dtype="float32"))
    c = tvm.nd.empty((128,), dtype="float32")
    func(a, b, c)
    np.testing.assert_array_equal(c.numpy(), np.arange(1, 129, dtype="float32"))


def test_matmul_relu_with_subscripted_buffers_matches_numpy(rng):
    a_np = rng.random((32, 32)).astype("float32") - 0.5
    b_np = rng.random((32, 32)).astype("float32") - 0.5
    rt_lib = tvm.build(MatmulRelu, target="llvm")
    a_nd, b_nd = tvm.nd.array(a_np), tvm.nd.array(b_np)
    c_nd = tvm.nd.array(np.zeros((32, 32), "float32"))
    rt_lib["mm_relu"](a_nd, b_nd, c_nd)
    tvm.testing.assert_allclose(c_nd.numpy(), np.maximum(a_np @ b_np, 0), rtol=1e-5, atol=1e-6)


def test_time_evaluator_gives_a_mean_in_seconds(rng):
    rt_lib = tvm.build(MatmulRelu, target="llvm")
    args = [tvm.nd.array(rng.random((32, 32)).astype("float32")) for _ in range(3)]
    f_timer = rt_lib.time_evaluator("mm_relu", tvm.cpu(), number=2, repeat=3)
    result = f_timer(*args)
    assert len(result.results) == 3
    assert result.mean > 0
    assert result.min <= result.median <= result.max


def test_script_of_a_module_reads_back_as_the_same_module():
    text = MatmulRelu.script()
    assert "T.prim_func" in text
    assert 'with T.block("Y")' in text
    again = tvm.script.from_source(text)
    tvm.ir.assert_structural_equal(again, MatmulRelu)


def test_show_prints_the_script(capsys):
    VectorAdd.show()
    assert "def main" in capsys.readouterr().out


@T.prim_func
def scaled_add(a: T.handle, b: T.handle, c: T.handle, alpha: T.float32):
    n = T.int32()
    m = T.int32()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, [n, m], "float32")
    C = T.match_buffer(c, (n, m), dtype="float32")
    for i, j in T.grid(n, m):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * alpha + B[vi, vj]


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (16, 7)])
def test_handles_matched_with_symbolic_shapes_run_for_any_size(shape, rng):
    rt_mod = tvm.build(tvm.IRModule({"scaled_add": scaled_add}), "llvm")
    a, b = (tvm.nd.array(rng.random(shape).astype("float32")) for _ in range(2))
    c = tvm.nd.empty(shape)
    rt_mod["scaled_add"](a, b, c, 2.0)
    np.testing.assert_allclose(c.numpy(), a.numpy() * 2 + b.numpy(), rtol=1e-6)


def test_a_prim_func_alone_builds_under_its_own_name(rng):
    rt_mod = tvm.build(scaled_add, target=tvm.target.Target("llvm -num-cores 2"))
    a = tvm.nd.array(rng.random((4, 4)).astype("float32"))
    c = tvm.nd.empty((4, 4), "float32", tvm.cpu(0))
    rt_mod["scaled_add"](a, a, c, 1.0)
    np.testing.assert_allclose(c.numpy(), a.numpy() * 2, rtol=1e-6)


def test_te_compute_becomes_a_prim_func_and_runs(rng):
    n = te.var("n")
    A = te.placeholder((n, 16), "float32", name="A")
    B = te.placeholder((16, 8), "float32", name="B")
    k = te.reduce_axis((0, 16), "k")
    C = te.compute((n, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="matmul")
    zero = tvm.tir.const(0, "float32")
    D = te.compute((n, 8), lambda i, j: tvm.tir.max(C[i, j], zero), name="relu")
    func = te.create_prim_func([A, B, D]).with_attr("global_symbol", "mm_relu")
    mod = IRModule({"mm_relu": func})
    rt_mod = tvm.build(mod, target="llvm")
    a, b = rng.random((5, 16)).astype("float32") - 0.5, rng.random((16, 8)).astype("float32") - 0.5
    out = tvm.nd.empty((5, 8), "float32")
    rt_mod["mm_relu"](tvm.nd.array(a), tvm.nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), np.maximum(a @ b, 0), rtol=1e-5, atol=1e-6)


def test_from_expr_names_the_function_by_its_global_symbol():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    func = te.create_prim_func([A, B])
    assert "main" in IRModule.from_expr(func)
    assert "inc" in IRModule.from_expr(func.with_attr({"global_symbol": "inc"}))


def test_outer_python_values_shape_the_program():
    M, N, dtype = 6, 3, "int32"

    @T.prim_func
    def fill(A: T.Buffer((M, N), dtype)):
        for i, j in T.grid(M, N):
            with T.block("fill"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = vi * N + vj

    out = tvm.nd.array(np.zeros((M, N), dtype))
    tvm.build(fill, "llvm")["fill"](out)
    np.testing.assert_array_equal(out.numpy(), np.arange(M * N).reshape(M, N))


def test_interpreter_and_llvm_say_the_same(rng):
    args = [rng.random((32, 32)).astype("float32") for _ in range(3)]
    reference = [a.copy() for a in args]
    tvm.tir.interpret(MatmulRelu["mm_relu"], *reference)
    tvm.build(MatmulRelu, "llvm")["mm_relu"](*args)
    np.testing.assert_allclose(args[2], reference[2], rtol=1e-5)


def test_exercise_broadcast_add():
    @tvm.script.ir_module
    class BroadcastAdd:
        @T.prim_func
        def add(
            A: T.Buffer((4, 4), "int64"), B: T.Buffer((4,), "int64"), C: T.Buffer((4, 4), "int64")
        ):
            T.func_attr({"global_symbol": "add", "tir.noalias": True})
            for i, j in T.grid(4, 4):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = A[vi, vj] + B[vj]

    a, b = np.arange(16).reshape(4, 4), np.arange(4, 0, -1).reshape(4)
    c = tvm.nd.array(np.empty((4, 4), dtype=np.int64))
    tvm.build(BroadcastAdd, target="llvm")["add"](tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), a + b, rtol=1e-5)


def test_exercise_conv2d_by_loops(rng):
    N, CI, H, W, CO, K = 1, 1, 8, 8, 2, 3
    OH, OW = H - K + 1, W - K + 1

    @tvm.script.ir_module
    class Conv:
        @T.prim_func
        def conv(
            A: T.Buffer((N, CI, H, W), "int64"),
            B: T.Buffer((CO, CI, K, K), "int64"),
            C: T.Buffer((N, CO, OH, OW), "int64"),
        ):
            T.func_attr({"global_symbol": "conv", "tir.noalias": True})
            for b, o, y, x, i, dy, dx in T.grid(N, CO, OH, OW, CI, K, K):
                with T.block("C"):
                    vb, vo, vy, vx, vi, vdy, vdx = T.axis.remap("SSSSRRR", [b, o, y, x, i, dy, dx])
                    with T.init():
                        C[vb, vo, vy, vx] = T.int64(0)
                    C[vb, vo, vy, vx] += A[vb, vi, vy + vdy, vx + vdx] * B[vo, vi, vdy, vdx]

    data = np.arange(N * CI * H * W).reshape(N, CI, H, W)
    weight = np.arange(CO * CI * K * K).reshape(CO, CI, K, K)
    windows = np.lib.stride_tricks.sliding_window_view(data, (K, K), axis=(2, 3))
    expected = np.einsum("ncyxij,ocij->noyx", windows, weight)
    out = tvm.nd.array(np.empty((N, CO, OH, OW), dtype=np.int64))
    tvm.build(Conv, target="llvm")["conv"](tvm.nd.array(data), tvm.nd.array(weight), out)
    np.testing.assert_array_equal(out.numpy(), expected)


def test_annotated_loops_run_as_serial_ones_do():
    @T.prim_func
    def double(A: T.Buffer((32, 16), "float32"), B: T.Buffer((32, 16), "float32")):
        for i in T.parallel(32):
            for j0 in T.serial(2):
                for j1 in T.vectorized(8):
                    with T.block("B"):
                        vi = T.axis.spatial(32, i)
                        vj = T.axis.spatial(16, j0 * 8 + j1)
                        B[vi, vj] = A[vi, vj] * T.float32(2)

    a = np.arange(512, dtype="float32").reshape(32, 16)
    b = tvm.nd.empty((32, 16))
    tvm.build(double, "llvm")(tvm.nd.array(a), b)
    np.testing.assert_array_equal(b.numpy(), a * 2)


def test_lowering_shows_loops_over_flat_buffers():
    for lowered in (tvm.lower(VectorAdd), tvm.lower(VectorAdd["main"], name="unused")):
        assert isinstance(lowered, IRModule)
        assert "T.block" not in lowered["main"].script()
    unnamed = VectorAdd["main"].without_attr("global_symbol")
    assert [gv.name_hint for gv in tvm.lower(unnamed, name="add").get_global_vars()] == ["add"]
