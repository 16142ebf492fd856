"""The two-layer network of the course: kernels, a graph that calls them, library functions,
parameters bound, built, run.
"""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


@tvm.script.ir_module
class TwoLayers:
    @T.prim_func
    def relu0(x: T.handle, y: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (1, n), "float32")
        Y = T.match_buffer(y, (1, n), "float32")
        for i, j in T.grid(1, n):
            with T.block("Y"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = T.max(X[vi, vj], T.float32(0))

    @T.prim_func
    def linear0(x: T.handle, w: T.handle, b: T.handle, z: T.handle):
        m, n, k = T.int64(), T.int64(), T.int64()
        X = T.match_buffer(x, (1, m), "float32")
        W = T.match_buffer(w, (n, m), "float32")
        B = T.match_buffer(b, (n,), "float32")
        Z = T.match_buffer(z, (1, n), "float32")
        Y = T.alloc_buffer((1, n), "float32")
        for i, j, k in T.grid(1, n, m):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + X[vi, vk] * W[vj, vk]
        for i, j in T.grid(1, n):
            with T.block("Z"):
                vi, vj = T.axis.remap("SS", [i, j])
                Z[vi, vj] = Y[vi, vj] + B[vj]

    @R.function
    def main(
        x: R.Tensor((1, "m"), "float32"),
        w0: R.Tensor(("n", "m"), "float32"),
        b0: R.Tensor(("n",), "float32"),
        w1: R.Tensor(("k", "n"), "float32"),
        b1: R.Tensor(("k",), "float32"),
    ):
        m, n, k = T.int64(), T.int64(), T.int64()
        with R.dataflow():
            lv0 = R.call_tir(linear0, (x, w0, b0), R.Tensor((1, n), dtype="float32"))
            lv1 = R.call_tir(relu0, (lv0,), R.Tensor((1, n), dtype="float32"))
            out = R.call_tir(linear0, (lv1, w1, b1), R.Tensor((1, k), dtype="float32"))
            R.output(out)
        return out


@tvm.script.ir_module
class WithLibrary:
    @R.function
    def main(
        x: R.Tensor((1, "m"), "float32"),
        w0: R.Tensor(("n", "m"), "float32"),
        b0: R.Tensor(("n",), "float32"),
        w1: R.Tensor(("k", "n"), "float32"),
        b1: R.Tensor(("k",), "float32"),
    ):
        m, n, k = T.int64(), T.int64(), T.int64()
        with R.dataflow():
            lv0 = R.call_dps_packed("env.linear", (x, w0, b0), R.Tensor((1, n), dtype="float32"))
            lv1 = R.call_dps_packed("env.relu", (lv0,), R.Tensor((1, n), dtype="float32"))
            out = R.call_dps_packed("env.linear", (lv1, w1, b1), R.Tensor((1, k), dtype="float32"))
            R.output(out)
        return out


@pytest.fixture
def params():
    rng = np.random.default_rng(1)
    shapes = {"w0": (12, 30), "b0": (12,), "w1": (10, 12), "b1": (10,)}
    return {name: rng.standard_normal(s).astype("float32") for name, s in shapes.items()}


@pytest.fixture
def image():
    return np.random.default_rng(2).standard_normal((1, 30)).astype("float32")


def reference(image, params):
    hidden = np.maximum(image @ params["w0"].T + params["b0"], 0)
    return hidden @ params["w1"].T + params["b1"]


@pytest.fixture
def library():
    @tvm.register_func("env.linear", override=True)
    def torch_like_linear(x: tvm.nd.NDArray, w: tvm.nd.NDArray, b: tvm.nd.NDArray, out):
        np.add(x.numpy() @ w.numpy().T, b.numpy(), out=out.numpy())

    @tvm.register_func("env.relu", override=True)
    def numpy_relu(x: tvm.nd.NDArray, out: tvm.nd.NDArray):
        np.maximum(x.numpy(), 0, out=out.numpy())

    yield
    tvm.runtime.remove_global_func("env.linear")
    tvm.runtime.remove_global_func("env.relu")


def test_the_network_runs_with_parameters_passed_as_arguments(image, params):
    ex = relax.vm.build(TwoLayers, target="llvm")
    assert type(ex) is relax.Executable
    vm = relax.VirtualMachine(ex, tvm.cpu())
    nd_params = {k: tvm.nd.array(v) for k, v in params.items()}
    out = vm["main"](tvm.nd.array(image), *nd_params.values())
    np.testing.assert_allclose(out.numpy(), reference(image, params), rtol=1e-4, atol=1e-5)
    out = vm["main"](
        tvm.nd.array(image), nd_params["w0"], nd_params["b0"], nd_params["w1"], nd_params["b1"]
    )
    assert out.numpy().argmax(axis=1) == reference(image, params).argmax(axis=1)


def test_the_network_runs_with_parameters_bound_into_it(image, params):
    bound = relax.transform.BindParams("main", {k: tvm.nd.array(v) for k, v in params.items()})(
        TwoLayers
    )
    assert [p.name_hint for p in bound["main"].params] == ["x"]
    vm = relax.VirtualMachine(relax.build(bound, target="llvm"), tvm.cpu())
    out = vm["main"](tvm.nd.array(image))
    np.testing.assert_allclose(out.numpy(), reference(image, params), rtol=1e-4, atol=1e-5)


def test_registered_library_functions_do_the_work(image, params, library):
    ex = relax.build(WithLibrary, "llvm")
    vm = relax.VirtualMachine(ex, tvm.cpu())
    out = vm["main"](tvm.nd.array(image), *(tvm.nd.array(v) for v in params.values()))
    np.testing.assert_allclose(out.numpy(), reference(image, params), rtol=1e-4, atol=1e-5)


def test_library_functions_and_kernels_mix(image, params, library):
    @I.ir_module
    class Mixed:
        @T.prim_func
        def linear0(
            X: T.Buffer((1, 30), "float32"),
            W: T.Buffer((12, 30), "float32"),
            B: T.Buffer((12,), "float32"),
            Z: T.Buffer((1, 12), "float32"),
        ):
            T.func_attr({"global_symbol": "linear0", "tir.noalias": True})
            for i, j, k in T.grid(1, 12, 30):
                with T.block("Z"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        Z[vi, vj] = B[vj]
                    Z[vi, vj] = Z[vi, vj] + X[vi, vk] * W[vj, vk]

        @R.function
        def main(
            x: R.Tensor((1, 30), "float32"),
            w0: R.Tensor((12, 30), "float32"),
            b0: R.Tensor((12,), "float32"),
            w1: R.Tensor((10, 12), "float32"),
            b1: R.Tensor((10,), "float32"),
        ) -> R.Tensor((1, 10), "float32"):
            cls = Mixed
            with R.dataflow():
                lv0 = R.call_tir(cls.linear0, (x, w0, b0), out_sinfo=R.Tensor((1, 12), "float32"))
                lv1 = R.call_tir("env.relu", (lv0,), (1, 12), dtype="float32")
                out = R.call_tir("env.linear", (lv1, w1, b1), (1, 10), dtype="float32")
                R.output(out)
            return out

    bound = relax.transform.BindParams("main", params)(Mixed)
    vm = relax.VirtualMachine(relax.vm.build(bound, target="llvm"), tvm.cpu())
    out = vm["main"](tvm.nd.array(image))
    np.testing.assert_allclose(out.numpy(), reference(image, params), rtol=1e-4, atol=1e-5)


def test_the_program_is_saved_and_loaded(tmp_path, image, params, library):
    path = str(tmp_path / "model.so")
    relax.build(WithLibrary, "llvm").export_library(path)
    loaded = tvm.runtime.load_module(path)
    vm = relax.VirtualMachine(loaded, tvm.cpu())
    out = vm["main"](image, **params)
    np.testing.assert_allclose(out.numpy(), reference(image, params), rtol=1e-4, atol=1e-5)


def test_a_call_that_does_not_fit_names_function_and_parameter(image, params):
    vm = relax.VirtualMachine(relax.build(TwoLayers, "llvm"), tvm.cpu())
    wrong = dict(params, b0=np.zeros(11, "float32"))
    with pytest.raises(tvm.TVMError, match=r"(?s)main.*b0|b0.*main"):
        vm["main"](image, **wrong)


def test_a_missing_library_function_is_named_before_anything_runs():
    ex = relax.build(WithLibrary, "llvm")
    with pytest.raises(tvm.TVMError, match=r"env\.linear"):
        relax.VirtualMachine(ex, tvm.cpu())
