"""The MLC-course module and its kin: script, passes, LLVM, file, VM."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax
from relaxvm.base import LinkError, VMTypeError
from relaxvm.ir import PassContext, assert_structural_equal
from relaxvm.ir.instrument import PassInstrument
from relaxvm.pipeline import run_stages
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

pytestmark = pytest.mark.vm_modes


@pytest.fixture
def env():
    """The two functions the module takes from outside."""

    @tvm.register_func("env.relu", override=True)
    def relu(x, out):
        # numpy before 2.1 reads DLPack as read-only, so outputs are written through their view.
        np.maximum(np.from_dlpack(x), 0, out=out.numpy())

    @tvm.register_func("env.linear", override=True)
    def linear(x, w, b, out):
        out.numpy()[...] = np.from_dlpack(x) @ w.numpy().T + b.numpy()

    yield
    for name in ("env.relu", "env.linear"):
        tvm.runtime.remove_global_func(name)


@I.ir_module
class Mixture:
    @T.prim_func
    def linear0(x: T.handle, w: T.handle, b: T.handle, z: T.handle):
        m, n, k = T.int64(), T.int64(), T.int64()
        X = T.match_buffer(x, (m, k), "float32")
        W = T.match_buffer(w, (n, k), "float32")
        B = T.match_buffer(b, (n,), "float32")
        Z = T.match_buffer(z, (m, n), "float32")
        Y = T.alloc_buffer((m, n), "float32")
        for i, j, kk in T.grid(m, n, k):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, kk])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + X[vi, vk] * W[vj, vk]
        for i, j in T.grid(m, n):
            with T.block("Z"):
                vi, vj = T.axis.remap("SS", [i, j])
                Z[vi, vj] = Y[vi, vj] + B[vj]

    @R.function
    def main(
        x: R.Tensor(("m", 64), "float32"),
        w0: R.Tensor((32, 64), "float32"),
        b0: R.Tensor((32,), "float32"),
        w1: R.Tensor((10, 32), "float32"),
        b1: R.Tensor((10,), "float32"),
    ) -> R.Tensor(("m", 10), "float32"):
        m = T.int64()
        cls = Mixture
        with R.dataflow():
            lv0 = R.call_tir(cls.linear0, (x, w0, b0), R.Tensor((m, 32), "float32"))
            lv1 = R.call_dps_packed("env.relu", (lv0,), R.Tensor((m, 32), "float32"))
            out = R.call_dps_packed("env.linear", (lv1, w1, b1), R.Tensor((m, 10), "float32"))
            R.output(out)
        return out


def parameters():
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(shape).astype("float32")
        for name, shape in {"w0": (32, 64), "b0": (32,), "w1": (10, 32), "b1": (10,)}.items()
    }


def expected(x, p):
    return np.maximum(x @ p["w0"].T + p["b0"], 0) @ p["w1"].T + p["b1"]


def test_mixture_runs(env):
    params = parameters()
    ex = relax.build(Mixture, "llvm")
    vm = relax.VirtualMachine(ex, tvm.cpu())
    for rows in (1, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 64)).astype("float32")
        got = vm["main"](x, *params.values()).numpy()
        np.testing.assert_allclose(got, expected(x, params), rtol=1e-4, atol=1e-4)


def test_bound_parameters_saved_and_loaded(env, tmp_path):
    params = parameters()
    bound = relax.transform.BindParams("main", params)(Mixture)
    ex = relax.vm.build(bound, target="llvm")
    ex.export_library(tmp_path / "m.rvm")
    vm = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "m.rvm")), tvm.cpu())
    x = np.random.default_rng(1).standard_normal((2, 64)).astype("float32")
    np.testing.assert_allclose(vm["main"](x).numpy(), expected(x, params), rtol=1e-4, atol=1e-4)
    rebuilt = tvm.runtime.load(tmp_path / "m.rvm", trust="portable")
    again = relax.VirtualMachine(rebuilt, tvm.cpu())["main"](x).numpy()
    np.testing.assert_allclose(again, expected(x, params), rtol=1e-4, atol=1e-4)


def test_params_of_build_are_bound(env):
    params = parameters()
    vm = relax.VirtualMachine(relax.build(Mixture, "llvm", params=params))
    x = np.zeros((1, 64), "float32")
    np.testing.assert_allclose(vm["main"](x).numpy(), expected(x, params), rtol=1e-4, atol=1e-4)


def test_equal_modules_give_equal_bytes(env):
    first, second = relax.build(Mixture, "llvm"), relax.build(Mixture, "llvm")
    assert first.to_bytes(sign=False) == second.to_bytes(sign=False)


def test_missing_environment_functions_are_listed():
    ex = relax.build(Mixture, "llvm")
    assert ex.needs() == ("env.linear", "env.relu")
    with pytest.raises(LinkError, match=r"(?s)env\.linear.*env\.relu"):
        relax.VirtualMachine(ex)


def test_wrong_argument_names_the_parameter(env):
    vm = relax.VirtualMachine(relax.build(Mixture, "llvm"))
    params = parameters()
    with pytest.raises(VMTypeError, match=r"main: parameter x: Tensor\(\(m, 64\), float32\)"):
        vm["main"](np.zeros(64, "float32"), *params.values())
    params["b1"] = np.zeros(11, "float32")
    with pytest.raises(ValueError, match=r"main: parameter b1.*wanted 10.*got 11"):
        vm["main"](np.zeros((1, 64), "float32"), *params.values())


@I.ir_module
class Control:
    @T.prim_func
    def add(
        a: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32"), c: T.Buffer((2,), "float32")
    ):
        for i in range(2):
            with T.block("c"):
                v = T.axis.spatial(2, i)
                c[v] = a[v] + b[v]

    @T.prim_func
    def dec(a: T.Buffer((), "int64"), b: T.Buffer((), "int64")):
        with T.block("b"):
            b[()] = a[()] - T.int64(1)

    @T.prim_func
    def positive(a: T.Buffer((), "int64"), b: T.Buffer((), "bool")):
        with T.block("b"):
            b[()] = a[()] > T.int64(0)

    @R.function
    def times(
        n: R.Tensor((), "int64"), x: R.Tensor((2,), "float32"), acc: R.Tensor((2,), "float32")
    ) -> R.Tensor((2,), "float32"):
        cls = Control
        more = R.call_tir(cls.positive, (n,), R.Tensor((), "bool"))
        if more:
            left = R.call_tir(cls.dec, (n,), R.Tensor((), "int64"))
            sum = R.call_tir(cls.add, (x, acc), R.Tensor((2,), "float32"))
            result: R.Tensor((2,), "float32") = cls.times(left, x, sum)
        else:
            result: R.Tensor((2,), "float32") = acc
        return result


def test_recursion_and_branches_with_native_kernels():
    vm = relax.VirtualMachine(relax.build(Control, "llvm"))
    x = np.array([1, 2], "float32")
    got = vm["times"](np.array(1000), x, np.zeros(2, "float32"))
    assert got.numpy().tolist() == [1000, 2000]


def test_exec_modes_and_spellings_agree(env):
    for build in (relax.build, relax.vm.build, relax.vm_build.build, tvm.build, tvm.compile):
        assert build(Control, "llvm", exec_mode="compiled").globals == ("times",)


def test_every_step_of_the_lowering_prints_and_parses_back():
    steps = []

    class Keep(PassInstrument):
        def run_after_pass(self, mod, info):
            steps.append((info.name, mod))

    with PassContext(instruments=[Keep()]):
        run_stages(Mixture)
        run_stages(Control)
    assert len(steps) > 20
    for name, mod in steps:
        assert_structural_equal(from_source(mod.script()), mod), name


def test_an_empty_constant_of_a_loaded_file_has_no_alignment(tmp_path):
    # Its place in the file is where the text before it ends: seldom a multiple of 8.
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((4, 3), "float32"))
    with builder.function("main", [x]):
        indices = relax.const(np.zeros(0, "int64"))
        builder.emit_func_output(builder.emit(relax.op.take(x, indices, axis=0)))
    relax.build(builder.get(), "llvm").export_library(str(tmp_path / "f.rvm"))
    vm = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "f.rvm")), tvm.cpu())
    assert vm["main"](np.ones((4, 3), "float32")).shape == (0, 3)
