"""Customise the optimisation of a model: patterns found by hand become calls of one fused
function, and calls of a library or of own loops; each as a pass written in Python.
"""

import numpy as np
import tvm
from tvm import IRModule, relax, te
from tvm.relax.expr_functor import PyExprMutator, PyExprVisitor, mutator, visitor
from tvm.script import ir as I
from tvm.script import relax as R

rng = np.random.default_rng(0)
params = {
    "w0": rng.standard_normal((32, 64)).astype("float32"),
    "b0": rng.standard_normal((32,)).astype("float32"),
    "w1": rng.standard_normal((10, 32)).astype("float32"),
    "b1": rng.standard_normal((10,)).astype("float32"),
}


def create_model():
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((1, 64), "float32"))
    w0, b0, w1, b1 = (relax.const(v, "float32") for v in params.values())
    with bb.function("main", [x]):
        with bb.dataflow():
            lv0 = bb.emit(relax.op.matmul(x, relax.op.permute_dims(w0)))
            lv1 = bb.emit(relax.op.add(lv0, b0))
            lv2 = bb.emit(relax.op.nn.relu(lv1))
            lv3 = bb.emit(relax.op.matmul(lv2, relax.op.permute_dims(w1)))
            lv4 = bb.emit(relax.op.add(lv3, b1))
            gv = bb.emit_output(lv4)
        bb.emit_func_output(gv)
    return bb.get()


MLPModel = create_model()
img = rng.standard_normal((1, 64)).astype("float32")
wanted = np.maximum(img @ params["w0"].T + params["b0"], 0) @ params["w1"].T + params["b1"]


def check(mod):
    with tvm.transform.PassContext(opt_level=3):
        ex = relax.build(mod, target="llvm")
    vm = relax.VirtualMachine(ex, tvm.cpu())
    np.testing.assert_allclose(vm["main"](tvm.nd.array(img)).numpy(), wanted, rtol=1e-4, atol=1e-4)


check(MLPModel)


# --- rewrite one operator
@relax.expr_functor.mutator
class EwiseFMARewriter(relax.PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        add_op = tvm.ir.Op.get("relax.add")
        multiply_op = tvm.ir.Op.get("relax.multiply")
        ewise_fma_op = tvm.ir.Op.get("relax.ewise_fma")
        if call.op != add_op:
            return call
        value = self.lookup_binding(call.args[0])
        if not isinstance(value, relax.Call) or value.op != multiply_op:
            return call
        return relax.Call(ewise_fma_op, [value.args[0], value.args[1], call.args[1]], None, None)


@tvm.script.ir_module
class MyModule:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), y: R.Tensor((3, 4), "float32")):
        with R.dataflow():
            lv0 = R.multiply(x, y)
            gv0 = R.add(lv0, y)
            R.output(gv0)
        return gv0


updated_fn = EwiseFMARewriter().visit_expr(MyModule["main"])
updated_fn = relax.analysis.remove_all_unused(updated_fn)
assert [b.value.op.name for b in updated_fn.body.blocks[0].bindings] == ["relax.ewise_fma"]


# --- a fusion of dense and add into a function of its own
@relax.expr_functor.mutator
class MatmulAddFusor(relax.PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self.mod_ = mod
        self.add_op = tvm.ir.Op.get("relax.add")
        self.matmul_op = tvm.ir.Op.get("relax.matmul")
        self.counter = 0

    def transform(self) -> IRModule:
        for global_var, func in self.mod_.functions.items():
            if not isinstance(func, relax.Function):
                continue
            # avoid already fused primitive functions
            if (
                func.attrs is not None
                and "Primitive" in func.attrs.keys()
                and func.attrs["Primitive"] != 0
            ):
                continue
            updated_func = self.visit_expr(func)
            updated_func = relax.analysis.remove_all_unused(updated_func)
            self.builder_.update_func(global_var, updated_func)
        return self.builder_.get()

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)

        def match_call(node, op):
            return isinstance(node, relax.Call) and node.op == op

        if not match_call(call, self.add_op):
            return call
        value = self.lookup_binding(call.args[0])
        if value is None or not match_call(value, self.matmul_op):
            return call
        x, w, b = value.args[0], value.args[1], call.args[1]

        # construct a new fused primitive function
        param_x = relax.Var("x", x.struct_info)
        param_w = relax.Var("w", w.struct_info)
        param_b = relax.Var("b", b.struct_info)
        bb = relax.BlockBuilder()
        fn_name = f"fused_matmul_add{self.counter}"
        self.counter += 1
        with bb.function(fn_name, [param_x, param_w, param_b]):
            with bb.dataflow():
                lv0 = bb.emit(relax.op.matmul(param_x, param_w))
                gv = bb.emit_output(relax.op.add(lv0, param_b))
            bb.emit_func_output(gv)
        fused_fn = bb.get()[fn_name].with_attr("Primitive", 1)
        global_var = self.builder_.add_func(fused_fn, fn_name)
        return relax.Call(global_var, [x, w, b], None, None)


@tvm.ir.transform.module_pass(opt_level=2, name="MatmulAddFuse")
class FuseDenseAddPass:
    """The wrapper for the pass."""

    def transform_module(self, mod, ctx):
        return MatmulAddFusor(mod).transform()


MLPFused = FuseDenseAddPass()(MLPModel)
print(sorted(gv.name_hint for gv in MLPFused.get_global_vars()))
check(MLPFused)


# --- lower to loops, operator by operator, with own loops for one of them
@relax.expr_functor.mutator
class LowerToTensorIR(relax.PyExprMutator):
    def __init__(self, mod: IRModule, op_map) -> None:
        super().__init__(mod)
        self.mod_ = mod
        self.op_map = {tvm.ir.Op.get(k): v for k, v in op_map.items()}

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if call.op in self.op_map:
            return self.op_map[call.op](self.builder_, call)
        return call

    def transform(self):
        for global_var, func in self.mod_.functions.items():
            if not isinstance(func, relax.Function):
                continue
            self.builder_.update_func(global_var, self.visit_expr(func))
        return self.builder_.get()


def map_matmul(bb, call):
    x, w = call.args

    def te_matmul(A, B):
        k = te.reduce_axis((0, A.shape[1]), name="k")
        return te.compute((A.shape[0], B.shape[1]), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k))

    return bb.call_te(te_matmul, x, w)


def map_add(bb, call):
    return bb.call_te(
        lambda a, b: te.compute(a.shape, lambda i, j: a[i, j] + b[j]), call.args[0], call.args[1]
    )


def map_relu(bb, call):
    return bb.call_te(lambda a: te.compute(a.shape, lambda *i: te.max(a(*i), 0)), call.args[0])


def map_transpose(bb, call):
    return bb.call_te(lambda a: te.compute(a.shape[::-1], lambda i, j: a[j, i]), call.args[0])


@tvm.ir.transform.module_pass(opt_level=0, name="LowerToTensorIR")
class LowerToTensorIRPass:
    def transform_module(self, mod, ctx):
        op_map = {
            "relax.matmul": map_matmul,
            "relax.add": map_add,
            "relax.nn.relu": map_relu,
            "relax.permute_dims": map_transpose,
        }
        return LowerToTensorIR(mod, op_map).transform()


MLPModelTIR = LowerToTensorIRPass()(MLPFused)
check(MLPModelTIR)
check(relax.transform.FoldConstant()(LowerToTensorIRPass()(MLPModel)))


# --- look without changing
@visitor
class CountOps(PyExprVisitor):
    def __init__(self):
        super().__init__()
        self.count: dict[str, int] = {}

    def visit_call_(self, call: relax.Call) -> None:
        super().visit_call_(call)
        if isinstance(call.op, tvm.ir.Op):
            self.count[call.op.name] = self.count.get(call.op.name, 0) + 1

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        super().visit_var_binding_(binding)
        self.count["bindings"] = self.count.get("bindings", 0) + 1


counter = CountOps()
counter.visit_expr(MLPModel["main"])
print(sorted(counter.count.items()))


# --- a dataflow block pass: relu of what cannot be negative goes
@mutator
class RemoveReluAfterExp(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if call.op == tvm.ir.Op.get("relax.nn.relu"):
            before = self.lookup_binding(call.args[0])
            if isinstance(before, relax.Call) and before.op == tvm.ir.Op.get("relax.exp"):
                return call.args[0]
        return call


@relax.transform.dataflowblock_pass(opt_level=2)
class RemoveRelu:
    def transform_dataflowblock(self, block, mod, ctx):
        return RemoveReluAfterExp(mod).visit_binding_block(block)


@I.ir_module
class ExpRelu:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.exp(x)
            lv1 = R.nn.relu(lv)
            gv = R.negative(lv1)
            R.output(gv)
        return gv


after = relax.transform.DeadCodeElimination()(
    relax.transform.CanonicalizeBindings()(RemoveRelu()(ExpRelu))
)
print([b.value.op.name for b in after["main"].body.blocks[0].bindings])
x = rng.standard_normal(4).astype("float32")
vm = relax.VirtualMachine(relax.build(after, "llvm"), tvm.cpu())
np.testing.assert_allclose(vm["main"](tvm.nd.array(x)).numpy(), -np.exp(x), rtol=1e-5)
