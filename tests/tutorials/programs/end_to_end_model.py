"""Chapter 3: a whole model. A graph function calls loop functions and functions of a library,
both by destination passing; parameters are bound; the same network in numpy says what is right.
"""

import pickle as pkl

import numpy as np
import tvm
from tvm import relax
from tvm.script import relax as R
from tvm.script import tir as T

rng = np.random.default_rng(0)
shapes = {"w0": (32, 784), "b0": (32,), "w1": (10, 32), "b1": (10,)}
mlp_params = {k: rng.standard_normal(s).astype("float32") for k, s in shapes.items()}
mlp_params = pkl.loads(pkl.dumps(mlp_params))
img = rng.random((1, 784), dtype="float32")
class_names = [
    "T-shirt",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Boot",
]


def numpy_mlp(data, w0, b0, w1, b1):
    lv0 = data @ w0.T + b0
    lv1 = np.maximum(lv0, 0)
    return lv1 @ w1.T + b1


res = numpy_mlp(img, **mlp_params)
pred_kind = res.argmax(axis=1)


@tvm.script.ir_module
class MyModule:
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
        cls = MyModule
        with R.dataflow():
            lv0 = R.call_tir(cls.linear0, (x, w0, b0), R.Tensor((1, n), "float32"))
            lv1 = R.call_tir(cls.relu0, (lv0,), R.Tensor((1, n), "float32"))
            out = R.call_tir(cls.linear0, (lv1, w1, b1), R.Tensor((1, k), "float32"))
            R.output(out)
        return out


ex = relax.vm.build(MyModule, target="llvm")
print(type(ex) is relax.Executable)
vm = relax.VirtualMachine(ex, tvm.cpu())
data_nd = tvm.nd.array(img)
nd_params = {k: tvm.nd.array(v) for k, v in mlp_params.items()}
nd_res = vm["main"](data_nd, nd_params["w0"], nd_params["b0"], nd_params["w1"], nd_params["b1"])
np.testing.assert_allclose(nd_res.numpy(), res, rtol=1e-4, atol=1e-4)
assert class_names[nd_res.numpy().argmax(axis=1)[0]] == class_names[pred_kind[0]]


# --- functions of an existing library
@tvm.register_func("env.linear", override=True)
def torch_linear(x: tvm.nd.NDArray, w: tvm.nd.NDArray, b: tvm.nd.NDArray, out: tvm.nd.NDArray):
    x_np, w_np, b_np, out_np = (np.from_dlpack(a) for a in (x, w, b, out))
    np.matmul(x_np, w_np.T, out=out_np)
    np.add(out_np, b_np, out=out_np)


@tvm.register_func("env.relu", override=True)
def lnumpy_relu(x: tvm.nd.NDArray, out: tvm.nd.NDArray):
    np.maximum(np.from_dlpack(x), 0, out=np.from_dlpack(out))


@tvm.script.ir_module
class MyModuleWithExternCall:
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
            lv0 = R.call_dps_packed("env.linear", (x, w0, b0), R.Tensor((1, n), "float32"))
            lv1 = R.call_dps_packed("env.relu", (lv0,), R.Tensor((1, n), "float32"))
            out = R.call_dps_packed("env.linear", (lv1, w1, b1), R.Tensor((1, k), "float32"))
            R.output(out)
        return out


@tvm.script.ir_module
class MyModuleMixture:
    @T.prim_func
    def linear0(x: T.handle, w: T.handle, b: T.handle, z: T.handle):
        m, n = T.int64(), T.int64()
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
        x: R.Tensor((1, 784), "float32"),
        w0: R.Tensor((32, 784), "float32"),
        b0: R.Tensor((32,), "float32"),
        w1: R.Tensor((10, 32), "float32"),
        b1: R.Tensor((10,), "float32"),
    ):
        cls = MyModuleMixture
        with R.dataflow():
            lv0 = R.call_tir(cls.linear0, (x, w0, b0), R.Tensor((1, 32), dtype="float32"))
            lv1 = R.call_dps_packed("env.relu", (lv0,), R.Tensor((1, 32), dtype="float32"))
            out = R.call_tir(cls.linear0, (lv1, w1, b1), R.Tensor((1, 10), dtype="float32"))
            R.output(out)
        return out


for mod in (MyModuleWithExternCall, MyModuleMixture):
    vm = relax.VirtualMachine(relax.vm.build(mod, target="llvm"), tvm.cpu())
    nd_res = vm["main"](data_nd, *(nd_params[name] for name in ("w0", "b0", "w1", "b1")))
    np.testing.assert_allclose(nd_res.numpy(), res, rtol=1e-4, atol=1e-4)

# --- parameters become part of the program
MyModuleWithParams = relax.transform.BindParams("main", nd_params)(MyModuleMixture)
assert len(MyModuleWithParams["main"].params) == 1
assert "metadata" in MyModuleWithParams.script()
ex = relax.vm.build(MyModuleWithParams, target="llvm")
vm = relax.VirtualMachine(ex, tvm.cpu())
nd_res = vm["main"](data_nd)
np.testing.assert_allclose(nd_res.numpy(), res, rtol=1e-4, atol=1e-4)
print("MyModuleWithParams Prediction:", nd_res.numpy().argmax(axis=1) == pred_kind)


# --- what the graph function is made of
main = MyModuleMixture["main"]
print([p.name_hint for p in main.params], main.ret_struct_info)
(block,) = main.body.blocks
print(type(block).__name__, [b.var.name_hint for b in block.bindings], main.body.body.name_hint)
print(block.bindings[0].value.op, block.bindings[0].value.args[0])
