"""Chapter 5: a graph function made by a program. A block builder emits formulas and operators; a
translator walks the layers of somebody's model; operators become loops by legalisation.
"""

import numpy as np
import tvm
from tvm import relax, te
from tvm.script import ir as I
from tvm.script import relax as R

# --- te formulas
A = te.placeholder((1, 64), name="A", dtype="float32")
print(type(A) is te.Tensor, A.shape[1], A.dtype)


def te_matmul(A: te.Tensor, B: te.Tensor) -> te.Tensor:
    assert A.shape[1] == B.shape[0]
    n = A.shape[0]
    m = B.shape[1]
    k = te.reduce_axis((0, A.shape[1]), name="k")
    return te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="matmul")


def te_relu(A: te.Tensor) -> te.Tensor:
    return te.compute(A.shape, lambda *i: te.max(A(*i), 0), name="relu")


B = te.placeholder((64, 32), name="B", dtype="float32")
C = te_matmul(A, B)
D = te_relu(C)
loops = te.create_prim_func([A, B, D])
assert [p.name for p in loops.params]
assert "matmul" in loops.script()

# --- a block builder
A = relax.Var("A", relax.TensorStructInfo((16, 64), "float32"))
B = relax.Var("B", relax.TensorStructInfo((64, 32), "float32"))
bb = relax.BlockBuilder()
with bb.function("main"):
    with bb.dataflow():
        C = bb.emit_te(te_matmul, A, B)
        D = bb.emit_te(te_relu, C)
        R = bb.emit_output(D)
    bb.emit_func_output(R, params=[A, B])
MyModule = bb.get()
print(sorted(gv.name_hint for gv in MyModule.get_global_vars()))
print(C.struct_info, isinstance(C, relax.Var))

bb = relax.BlockBuilder()
with bb.function("main", [A, B]):
    with bb.dataflow():
        C = bb.emit_te(te_matmul, A, B)
        D = bb.emit_te(te_relu, C)
        out = bb.emit_output(D)
    bb.emit_func_output(out)
Again = bb.finalize()

a_np = np.random.rand(16, 64).astype("float32") - 0.5
b_np = np.random.rand(64, 32).astype("float32")
for mod in (MyModule, Again):
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    np.testing.assert_allclose(
        vm["main"](tvm.nd.array(a_np), tvm.nd.array(b_np)).numpy(),
        np.maximum(a_np @ b_np, 0),
        rtol=1e-4,
        atol=1e-5,
    )


# --- a translator from a traced model: nodes in order, a function per kind
class Node:
    def __init__(self, name, op, target=None, args=()):
        self.name, self.op, self.target, self.args = name, op, target, args


class Linear:
    def __init__(self, n_in, n_out, seed):
        rng = np.random.default_rng(seed)
        self.weight = rng.standard_normal((n_out, n_in)).astype("float32")
        self.bias = rng.standard_normal(n_out).astype("float32")


class ReLU:
    pass


class GraphModule:
    def __init__(self):
        self.layers = {"linear0": Linear(784, 32, 0), "relu": ReLU(), "linear1": Linear(32, 10, 1)}
        x = Node("x", "placeholder")
        lin0 = Node("linear0", "call_module", "linear0", (x,))
        act = Node("relu", "call_module", "relu", (lin0,))
        lin1 = Node("linear1", "call_module", "linear1", (act,))
        self.nodes = [x, lin0, act, lin1, Node("output", "output", "output", (lin1,))]


def map_param(param: np.ndarray):
    return relax.const(param, relax.TensorStructInfo(param.shape, str(param.dtype)))


def from_fx(fx_mod, input_shapes, call_function_map, call_module_map):
    input_index = 0
    node_map = {}
    bb = relax.BlockBuilder()
    fn_inputs = []
    fn_output = None
    with bb.function("main"):
        with bb.dataflow():
            for node in fx_mod.nodes:
                if node.op == "placeholder":
                    shape = input_shapes[input_index]
                    input_index += 1
                    input_var = relax.Var(
                        node.target or node.name, relax.TensorStructInfo(shape, "float32")
                    )
                    fn_inputs.append(input_var)
                    node_map[node] = input_var
                elif node.op == "call_module":
                    named_module = fx_mod.layers[node.target]
                    node_map[node] = call_module_map[type(named_module)](
                        bb, node_map, node, named_module
                    )
                elif node.op == "output":
                    output = node_map[node.args[0]]
                    assert fn_output is None
                    fn_output = bb.emit_output(output)
        bb.emit_func_output(output if fn_output is None else fn_output, fn_inputs)
    return bb.get()


def te_dense(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, x.shape[1]), name="k")
    return te.compute(
        (x.shape[0], w.shape[0]), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="dense"
    )


def te_add_row(x: te.Tensor, b: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i, j: x[i, j] + b[j], name="add")


def map_linear_te(bb, node_map, node, nn_mod):
    x = node_map[node.args[0]]
    w = map_param(nn_mod.weight)
    b = map_param(nn_mod.bias)
    return bb.emit_te(te_add_row, bb.emit_te(te_dense, x, w), b)


def map_relu_te(bb, node_map, node, nn_mod):
    return bb.emit_te(te_relu, node_map[node.args[0]])


def map_linear(bb, node_map, node, nn_mod):
    x = node_map[node.args[0]]
    return bb.emit(relax.op.linear(x, map_param(nn_mod.weight), map_param(nn_mod.bias)))


def map_relu(bb, node_map, node, nn_mod):
    return bb.emit(relax.op.nn.relu(node_map[node.args[0]]))


model = GraphModule()
MLPModule = from_fx(model, [(1, 784)], {}, {Linear: map_linear_te, ReLU: map_relu_te})
MLPModuleHighLevel = from_fx(model, [(1, 784)], {}, {Linear: map_linear, ReLU: map_relu})

img = np.random.rand(1, 784).astype("float32")
l0, l1 = model.layers["linear0"], model.layers["linear1"]
wanted = np.maximum(img @ l0.weight.T + l0.bias, 0) @ l1.weight.T + l1.bias
legal = relax.transform.LegalizeOps()(MLPModuleHighLevel)
for mod in (MLPModule, MLPModuleHighLevel, legal):
    vm = relax.VirtualMachine(relax.vm.build(mod, target="llvm"), tvm.cpu())
    np.testing.assert_allclose(vm["main"](tvm.nd.array(img)).numpy(), wanted, rtol=1e-3, atol=1e-3)
high = [
    b.value.op.name
    for b in MLPModuleHighLevel["main"].body.blocks[0].bindings
    if hasattr(b.value, "op")
]
low = [b.value.op.name for b in legal["main"].body.blocks[0].bindings if hasattr(b.value, "op")]
print(high)
print(set(low), sorted({gv.name_hint for gv in legal.get_global_vars()} - {"main"}))


# --- operators in text, and a rule of one's own for legalising
from tvm.script import relax as R  # noqa: E402


@I.ir_module
class Text:
    @R.function
    def main(x: R.Tensor((3, "n"), "float32")):
        with R.dataflow():
            gv: R.Tensor((3, "n"), "float32") = R.nn.relu(R.multiply(x, R.const(2, "float32")))
            R.output(gv)
        return gv


def doubled_relu(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return bb.call_te(
        lambda x: te.compute(x.shape, lambda *i: te.max(x(*i), 0) * 2, name="my_relu"), call.args[0]
    )


mod = relax.transform.LegalizeOps({"relax.nn.relu": doubled_relu})(Text)
print(sorted(gv.name_hint for gv in mod.get_global_vars()))
vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
x = np.array([[-1, 0.5], [2, -3], [0, 1]], "float32")
np.testing.assert_allclose(vm["main"](tvm.nd.array(x)).numpy(), np.maximum(2 * x, 0) * 2)
