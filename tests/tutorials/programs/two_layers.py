"""A network of two layers: loop functions, a library function, a graph that calls them; its
parameters bound, built, saved, loaded and run.
"""

import inspect
import pickle

import numpy as np
import tvm
import tvm.relax.transform
from tvm import relax, tir
from tvm.ir.module import IRModule
from tvm.runtime import NDArray
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tir as T
from tvm_ffi import register_global_func


@register_global_func("env.linear", override=True)
def linear(x: NDArray, w: NDArray, b: NDArray, out: NDArray):
    """out = x w^T + b"""
    out.copyfrom(x.numpy() @ w.numpy().T + b.numpy())


@I.ir_module
class TwoLayers:
    @T.prim_func
    def relu(x: T.handle, y: T.handle):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        X = T.match_buffer(x, (1, n), "float32")
        Y = T.match_buffer(y, (1, n), "float32")
        for i, j in T.grid(1, n):
            with T.block("Y"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = T.max(X[vi, vj], T.float32(0))

    @R.function
    def main(
        x: R.Tensor((1, 16), "float32"),
        w0: R.Tensor((8, 16), "float32"),
        b0: R.Tensor((8,), "float32"),
        w1: R.Tensor((4, 8), "float32"),
        b1: R.Tensor((4,), "float32"),
    ):
        cls = TwoLayers
        with R.dataflow():
            h = R.call_dps_packed("env.linear", (x, w0, b0), R.Tensor((1, 8), "float32"))
            a = R.call_tir(cls.relu, (h,), R.Tensor((1, 8), "float32"))
            out = R.call_dps_packed("env.linear", (a, w1, b1), R.Tensor((1, 4), "float32"))
            R.output(out)
        return out


rng = np.random.default_rng(0)
shapes = {"w0": (8, 16), "b0": (8,), "w1": (4, 8), "b1": (4,)}
params = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
x = rng.standard_normal((1, 16)).astype("float32")
wanted = np.maximum(x @ params["w0"].T + params["b0"], 0) @ params["w1"].T + params["b1"]

assert isinstance(TwoLayers, IRModule)
assert isinstance(TwoLayers["relu"], tir.PrimFunc)
assert isinstance(TwoLayers["main"], tvm.relax.expr.Function)
tvm.ir.assert_structural_equal(tvm.ir.load_json(tvm.ir.save_json(TwoLayers)), TwoLayers)

bound = relax.transform.BindParams("main", {k: tvm.nd.array(v) for k, v in params.items()})(
    TwoLayers
)
with tvm.transform.PassContext(opt_level=3):
    ex = relax.build(bound, target=tvm.target.Target("llvm"))
vm = relax.VirtualMachine(ex, tvm.cpu())
got = vm["main"](tvm.nd.array(x))
tvm.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=1e-5)

ex.export_library("two_layers.so.rvm")
again = relax.VirtualMachine(tvm.runtime.load_module("two_layers.so.rvm"), tvm.cpu())
np.testing.assert_array_equal(again["main"](tvm.nd.array(x)).numpy(), got.numpy())

assert inspect.getsource(linear).startswith("@register_global_func")
dtype = pickle.loads(pickle.dumps(tvm.DataType("float32x4")))
print(sorted(gv.name_hint for gv in TwoLayers.get_global_vars()), got.shape, dtype)
