"""How to use the pass infrastructure: passes alone and in sequence, opt levels, required and
disabled passes, own passes, options, instruments, printing between passes.
"""

import numpy as np
import tvm
from tvm import relax
from tvm.ir.instrument import PassInstrument, PassTimingInstrument, pass_instrument
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script import ir as I
from tvm.script import relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 4, 6, 6), "float32"), weight: R.Tensor((4, 4, 3, 3), "float32")):
        with R.dataflow():
            c = R.const(2, "float32")
            d = R.const(3, "float32")
            lv = R.nn.conv2d(x, weight)
            y = R.add(c, d)
            y = R.multiply(y, R.const(2, "float32"))
            y = R.add(lv, y)
            z = R.add(y, y)
            z1 = R.add(y, y)
            unused = R.exp(z1)
            z2 = R.add(z, z1)
            R.output(z2)
        return z2


mod = Module
x = np.random.rand(1, 4, 6, 6).astype("float32")
w = np.random.rand(4, 4, 3, 3).astype("float32")


def run(mod):
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    return vm["main"](tvm.nd.array(x), tvm.nd.array(w)).numpy()


def operators(mod):
    return [
        b.value.op.name
        for b in mod["main"].body.blocks[0].bindings
        if isinstance(b.value, relax.Call)
    ]


windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
wanted = 4 * (np.einsum("nchwij,ocij->nohw", windows, w) + 10)
np.testing.assert_allclose(run(mod), wanted, rtol=1e-4)

# --- passes by hand, then as a sequence
fold_const = relax.transform.FoldConstant()
folded = fold_const(mod)
print(len(operators(mod)), len(operators(folded)))
cse = relax.transform.EliminateCommonSubexpr()
mod_opt = relax.transform.DeadCodeElimination()(cse(folded))
print(operators(mod_opt))
np.testing.assert_allclose(run(mod_opt), wanted, rtol=1e-4)

seq = tvm.transform.Sequential(
    [
        relax.transform.FoldConstant(),
        relax.transform.EliminateCommonSubexpr(),
        relax.transform.DeadCodeElimination(),
    ]
)
tvm.ir.assert_structural_equal(seq(mod), mod_opt)
print(seq.info, "|", fold_const.info.name, fold_const.info.opt_level)

with tvm.transform.PassContext(opt_level=3):
    tvm.ir.assert_structural_equal(seq(mod), mod_opt)
with tvm.transform.PassContext(opt_level=3, disabled_pass=["EliminateCommonSubexpr"]):
    mod4 = seq(mod)
print(len(operators(mod4)) - len(operators(mod_opt)))
with tvm.transform.PassContext(opt_level=0, required_pass=["FoldConstant"]) as ctx:
    assert tvm.transform.PassContext.current() is ctx
    print(ctx.opt_level, list(ctx.required_pass))


# --- own passes
@tvm.ir.transform.module_pass(opt_level=2, name="AddSuffix")
def add_suffix(mod, ctx):
    """A module pass from a function."""
    gv = mod.get_global_var("main")
    return tvm.IRModule({"main": mod[gv].with_attr("seen_at", ctx.opt_level)})


with tvm.transform.PassContext(opt_level=2):
    print(add_suffix.info.name, int(add_suffix(mod)["main"].attrs["seen_at"]))


@relax.transform.function_pass(opt_level=1)
class CustomPipeline:
    """A function pass from a class, with a parameter: constants are multiplied."""

    def __init__(self, multiplier):
        self.multiplier = multiplier

    def transform_function(self, func, mod, ctx):
        obj = self

        @mutator
        class ReplaceConstant(PyExprMutator):
            def visit_constant_(self, c: relax.Constant):
                if c.struct_info.ndim:
                    return c
                return relax.const(c.data.numpy() * obj.multiplier, c.struct_info.dtype)

        return ReplaceConstant().visit_expr(func)


custom_pass = CustomPipeline(3)
assert custom_pass.info.name == "CustomPipeline"
np.testing.assert_allclose(run(custom_pass(mod)), wanted + 4 * (90 - 10), rtol=1e-4)


@relax.transform.dataflowblock_pass(opt_level=0, name="count_bindings")
def count_bindings(block, mod, ctx):
    print("bindings:", len(block.bindings))
    return block


tvm.ir.assert_structural_equal(count_bindings(mod), mod)


# --- instruments
@pass_instrument
class CountPasses:
    def __init__(self):
        self.names = []
        self.inside = False

    def enter_pass_ctx(self):
        self.inside = True

    def exit_pass_ctx(self):
        self.inside = False

    def run_before_pass(self, mod, info):
        assert self.inside
        self.names.append(info.name)

    def run_after_pass(self, mod, info):
        assert isinstance(mod, tvm.IRModule)

    def should_run(self, mod, info):
        return info.name != "EliminateCommonSubexpr"


counter = CountPasses()
timing = PassTimingInstrument()
with tvm.transform.PassContext(opt_level=3, instruments=[counter, timing]):
    seq(mod)
    profiles = timing.render()
print([name for name in counter.names if name != "sequential"], counter.inside)
assert "FoldConstant" in profiles


@pass_instrument
class RunBefore(PassInstrument):
    def run_before_pass(self, mod, info):
        if info.name == "FoldConstant":
            raise ValueError("stop here")


try:
    with tvm.transform.PassContext(instruments=[RunBefore()]):
        seq(mod)
except ValueError as error:
    print("ValueError:", error)


# --- the module between two passes
@I.ir_module
class Small:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = R.add(x, R.add(R.const(1, "float32"), R.const(2, "float32")))
        return y


tvm.transform.Sequential([relax.transform.FoldConstant(), tvm.transform.PrintIR()])(Small)
with tvm.transform.PassContext(config={"tir.instrument_bound_checkers": True}) as ctx:
    assert ctx.config["tir.instrument_bound_checkers"]
try:
    tvm.transform.PassContext(config={"tir.instrument_bounds_checker": True})
except (tvm.TVMError, AttributeError, ValueError) as error:
    print(type(error).__name__, "instrument_bounds_checker" in str(error))
assert "tir.instrument_bound_checkers" in tvm.transform.PassContext.list_configs()
