"""A back end of one's own: a partition finds patterns that a library does well and makes them
functions with `Composite` and `Codegen` attributes; a lowering pass calls the library for these
and leaves the rest to the compiler.
"""

import numpy as np
import tvm
from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script import ir as I
from tvm.script import relax as R

calls: list[str] = []


# --- the library: its functions fill what they are given
@tvm.register_func("env.mylib.matmul_bias_relu", override=True)
def matmul_bias_relu(x, w, b, out):
    calls.append("matmul_bias_relu")
    out.copyfrom(np.maximum(x.numpy() @ w.numpy() + b.numpy(), 0))


@tvm.register_func("env.mylib.matmul_bias", override=True)
def matmul_bias(x, w, b, out):
    calls.append("matmul_bias")
    out.copyfrom(x.numpy() @ w.numpy() + b.numpy())


@I.ir_module
class Model:
    @R.function
    def main(
        x: R.Tensor(("n", 16), "float32"),
        w0: R.Tensor((16, 32), "float32"),
        b0: R.Tensor((32,), "float32"),
        w1: R.Tensor((32, 8), "float32"),
        b1: R.Tensor((8,), "float32"),
    ) -> R.Tensor(("n", 8), "float32"):
        with R.dataflow():
            lv0 = R.matmul(x, w0)
            lv1 = R.add(lv0, b0)
            lv2 = R.nn.relu(lv1)
            lv3 = R.exp(R.negative(lv2))
            lv4 = R.matmul(lv3, w1)
            lv5 = R.add(lv4, b1)
            lv6 = R.nn.softmax(lv5, axis=-1)
            R.output(lv6)
        return lv6


OPS = {name: tvm.ir.Op.get(f"relax.{name}") for name in ("matmul", "add", "nn.relu")}


def is_call(expr, op):
    return isinstance(expr, relax.Call) and expr.op == OPS[op]


@mutator
class Partitioner(PyExprMutator):
    """Chains of matmul, add and perhaps relu become calls of functions for "mylib"."""

    def __init__(self, mod):
        super().__init__(mod)
        self.mod = mod
        self.uses: dict[relax.Var, int] = {}

    def transform(self) -> IRModule:
        for gv, func in self.mod.functions_items():
            if isinstance(func, relax.Function):
                for users in relax.analysis.udchain(func.body.blocks[0]).items():
                    self.uses[users[0]] = len(users[1])
                self.builder_.update_func(
                    gv, relax.analysis.remove_all_unused(self.visit_expr(func))
                )
        return self.builder_.get()

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        chain, value = ["matmul_bias"], call
        if is_call(call, "nn.relu"):
            chain = ["matmul_bias", "relu"]
            value = self.lookup_binding(call.args[0])
            if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
                args = list(value.args)
                return self.call_library("_".join(chain), args, call.struct_info)
            return call
        if not is_call(value, "add"):
            return call
        product = self.lookup_binding(value.args[0])
        if not is_call(product, "matmul"):
            return call
        return self.call_library("_".join(chain), [*product.args, value.args[1]], call.struct_info)

    def call_library(self, name, args, out_sinfo):
        bb = relax.BlockBuilder()
        params = [relax.Var(f"p{i}", arg.struct_info) for i, arg in enumerate(args)]
        with bb.function(
            name, params, attrs={"Codegen": "mylib", "Composite": f"mylib.{name}"}, private=True
        ):
            with bb.dataflow():
                lv = bb.emit(relax.op.matmul(params[0], params[1]))
                lv = bb.emit(relax.op.add(lv, params[2]))
                if name.endswith("relu"):
                    lv = bb.emit(relax.op.nn.relu(lv))
                gv = bb.emit_output(lv)
            bb.emit_func_output(gv)
        func = relax.utils.copy_with_new_vars(bb.get()[name])
        return relax.Call(self.builder_.add_func(func, name), args, None, None)


@mutator
class RunLibrary(PyExprMutator):
    """Functions with a `Codegen` attribute are called from the library."""

    def __init__(self, mod):
        super().__init__(mod)
        self.mod = mod

    def transform(self) -> IRModule:
        for gv, func in self.mod.functions_items():
            if not func.attrs or "Codegen" not in func.attrs:
                self.builder_.update_func(gv, self.visit_expr(func))
        return relax.transform.DeadCodeElimination()(self.builder_.get())

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if isinstance(call.op, tvm.ir.GlobalVar):
            func = self.mod[call.op]
            if (
                isinstance(func, relax.Function)
                and func.attrs
                and func.attrs.get("Codegen") == "mylib"
            ):
                name = f"env.{func.attrs['Composite']}"
                return relax.op.call_dps_packed(
                    name, relax.Tuple(call.args), out_sinfo=call.struct_info
                )
        return call


@tvm.transform.module_pass(opt_level=0)
class PartitionForMyLib:
    def transform_module(self, mod, ctx):
        return relax.transform.DeadCodeElimination(["main"])(Partitioner(mod).transform())


@tvm.transform.module_pass(opt_level=0)
class CodegenForMyLib:
    def transform_module(self, mod, ctx):
        return RunLibrary(mod).transform()


rng = np.random.default_rng(3)
shapes = [(5, 16), (16, 32), (32,), (32, 8), (8,)]
inputs = [rng.standard_normal(s).astype("float32") for s in shapes]
x, w0, b0, w1, b1 = inputs
h = np.exp(-np.maximum(x @ w0 + b0, 0)) @ w1 + b1
wanted = np.exp(h - h.max(-1, keepdims=True))
wanted /= wanted.sum(-1, keepdims=True)

partitioned = PartitionForMyLib()(Model)
for gv, func in sorted(partitioned.functions_items(), key=lambda item: item[0].name_hint):
    print(gv.name_hint, func.attrs.get("Composite") if func.attrs else None)
mod = CodegenForMyLib()(partitioned)
print([gv.name_hint for gv in mod.get_global_vars()])
assert relax.analysis.well_formed(mod)

for version, expected in (
    (Model, []),
    (partitioned, []),
    (mod, ["matmul_bias_relu", "matmul_bias"]),
):
    calls.clear()
    vm = relax.VirtualMachine(relax.build(version, "llvm"), tvm.cpu())
    np.testing.assert_allclose(
        vm["main"](*map(tvm.nd.array, inputs)).numpy(), wanted, rtol=1e-4, atol=1e-5
    )
    assert calls == expected, calls
