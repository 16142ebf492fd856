"""Looking at programs and changing them: walking a module, writing passes, running them in order,
watching them.
"""

import io

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, te, tir
from relaxvm.ir.instrument import PassTimingInstrument, PrintIR
from relaxvm.relax.expr_functor import PyExprMutator, PyExprVisitor, mutator, visitor
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


@I.ir_module
class MyModule:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), y: R.Tensor((3, 4), "float32")) -> R.Tensor(
        (3, 4), "float32"
    ):
        with R.dataflow():
            lv0 = R.multiply(x, y)
            gv0 = R.add(lv0, y)
            R.output(gv0)
        return gv0


@mutator
class EwiseFMARewriter(PyExprMutator):
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
        return relax.Call(ewise_fma_op, [value.args[0], value.args[1], call.args[1]])


@tvm.ir.transform.module_pass(opt_level=2, name="EwiseFuseFMA")
class EwiseFuseFMA:
    """Multiply, then add, in one call."""

    def transform_module(self, mod, ctx):
        rewriter = EwiseFMARewriter(mod)
        for g_var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                rewriter.builder_.update_func(g_var, rewriter.visit_expr(func))
        return rewriter.builder_.get()


def operators(mod):
    found = []

    @visitor
    class Collect(PyExprVisitor):
        def visit_call_(self, call):
            super().visit_call_(call)
            found.append(call.op.name)

    Collect().visit_expr(mod["main"])
    return found


def run(mod, *args):
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    return vm["main"](*args).numpy()


def test_the_parts_of_a_function_are_reached_by_attribute():
    relax_func = MyModule["main"]
    assert [p.name_hint for p in relax_func.params] == ["x", "y"]
    func_body = relax_func.body
    assert isinstance(func_body, relax.SeqExpr)
    dataflow_block = func_body.blocks[0]
    assert isinstance(dataflow_block, relax.DataflowBlock)
    binding = dataflow_block.bindings[0]
    assert isinstance(binding, relax.VarBinding)
    assert binding.value.op == tvm.ir.Op.get("relax.multiply")
    assert binding.value.args[0] is relax_func.params[0]
    assert binding.var.struct_info == relax.TensorStructInfo((3, 4), "float32")
    assert func_body.body.same_as(dataflow_block.bindings[1].var)


def test_a_visitor_sees_every_call_in_order():
    assert operators(MyModule) == ["relax.multiply", "relax.add"]


def test_a_mutator_in_a_module_pass_fuses_two_calls_into_one():
    fused = EwiseFuseFMA()(MyModule)
    cleaned = relax.transform.DeadCodeElimination()(fused)
    assert operators(cleaned) == ["relax.ewise_fma"]
    assert operators(MyModule) == ["relax.multiply", "relax.add"]
    x, y = (np.random.default_rng(s).random((3, 4)).astype("float32") for s in (0, 1))
    np.testing.assert_allclose(run(cleaned, x, y), x * y + y, rtol=1e-6)


def test_unused_bindings_can_be_removed_by_the_analysis():
    fused = EwiseFuseFMA()(MyModule)
    fused["main"] = relax.analysis.remove_all_unused(fused["main"])
    assert operators(fused) == ["relax.ewise_fma"]


def test_operators_are_lowered_to_calls_of_te_functions():
    def te_fma(a, b, c):
        return te.compute(a.shape, lambda *i: a(*i) * b(*i) + c(*i), name="fma")

    table = {"relax.ewise_fma": te_fma}

    @mutator
    class LowerToTensorIR(PyExprMutator):
        def __init__(self, mod, op_map):
            super().__init__(mod)
            self.op_map = {tvm.ir.Op.get(k): v for k, v in op_map.items()}

        def visit_call_(self, call):
            call = self.visit_expr_post_order(call)
            if call.op in self.op_map:
                return self.builder_.call_te(self.op_map[call.op], *call.args)
            return call

        def transform(self):
            for global_var, func in self.builder_.get().functions.items():
                if not isinstance(func, relax.Function):
                    continue
                updated_func = relax.analysis.remove_all_unused(self.visit_expr(func))
                self.builder_.update_func(global_var, updated_func)
            return self.builder_.get()

    @tvm.ir.transform.module_pass(opt_level=0, name="LowerToTensorIR")
    class LowerToTensorIRPass:
        def __init__(self, op_map):
            self.op_map = op_map

        def transform_module(self, mod, ctx):
            return LowerToTensorIR(mod, self.op_map).transform()

    lowered = LowerToTensorIRPass(table)(EwiseFuseFMA()(MyModule))
    assert any(isinstance(f, tir.PrimFunc) for f in lowered.functions.values())
    assert operators(lowered) == ["relax.call_tir"]
    x, y = (np.random.default_rng(s).random((3, 4)).astype("float32") for s in (0, 1))
    np.testing.assert_allclose(run(lowered, x, y), x * y + y, rtol=1e-6)


def test_one_extern_call_is_rewritten_to_another():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                y = R.call_dps_packed("env.slow", (x,), out_sinfo=R.Tensor((4,), "float32"))
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                y = R.call_dps_packed("env.fast", (x,), out_sinfo=R.Tensor((4,), "float32"))
                R.output(y)
            return y

    @mutator
    class Faster(PyExprMutator):
        def visit_extern_func_(self, func):
            return relax.ExternFunc("env.fast") if func.global_symbol == "env.slow" else func

    tvm.ir.assert_structural_equal(Faster(Before).transform(), Expected)


def test_function_passes_are_functions_or_classes():
    seen = []

    @relax.transform.function_pass(opt_level=1, name="Look")
    def look(func, mod, ctx):
        seen.append(sorted(gv.name_hint for gv in mod.get_global_vars()))
        return func

    @relax.transform.function_pass(opt_level=1)
    class Tag:
        def __init__(self, value):
            self.value = value

        def transform_function(self, func, mod, ctx):
            return func.with_attr("tag", self.value)

    mod = tvm.transform.Sequential([look, Tag("hot")])(MyModule)
    assert seen == [["main"]]
    assert mod["main"].attrs["tag"] == "hot"
    assert "tag" not in MyModule["main"].attrs


def test_dataflow_block_passes_see_one_block_at_a_time():
    sizes = []

    @relax.transform.dataflowblock_pass(opt_level=0, name="Count")
    def count(block, mod, ctx):
        sizes.append(len(block.bindings))
        return block

    assert count(MyModule) == MyModule
    assert sizes == [2]


def test_prim_func_passes_rewrite_loop_functions():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + T.float32(1)

    @tir.transform.prim_func_pass(opt_level=0)
    def ones_to_twos(f, mod, ctx):
        def change(node):
            same = isinstance(node, tir.FloatImm) and node.value == 1.0
            return tir.FloatImm("float32", 2.0) if same else None

        return f.with_body(tir.stmt_functor.ir_transform(f.body, None, change, ["tir.FloatImm"]))

    mod = ones_to_twos(tvm.IRModule.from_expr(func.with_attr("global_symbol", "main")))
    out = tvm.nd.empty((8,), "float32")
    tvm.build(mod, "llvm")["main"](tvm.nd.array(np.zeros(8, "float32")), out)
    np.testing.assert_array_equal(out.numpy(), np.full(8, 2, "float32"))


def test_a_sequence_runs_under_the_context():
    names = []

    @tvm.instrument.pass_instrument
    class Watch:
        def run_before_pass(self, mod, info):
            names.append(info.name)

    seq = tvm.transform.Sequential(
        [relax.transform.LegalizeOps(), relax.transform.DeadCodeElimination()], name="mine"
    )
    with tvm.transform.PassContext(opt_level=3, instruments=[Watch()]):
        legal = seq(MyModule)
    assert names == ["mine", "LegalizeOps", "DeadCodeElimination"]
    assert set(operators(legal)) == {"relax.call_tir"}
    names.clear()
    with tvm.transform.PassContext(disabled_pass=["LegalizeOps"], instruments=[Watch()]):
        assert operators(seq(MyModule)) == ["relax.multiply", "relax.add"]
    assert "LegalizeOps" not in names


def test_timing_and_printing_instruments_report_each_pass():
    timing, text = PassTimingInstrument(), io.StringIO()
    with tvm.transform.PassContext(instruments=[timing, PrintIR(file=text)]):
        relax.build(MyModule, "llvm")
        table = timing.render()
    assert "LegalizeOps" in table
    assert "us (" in table
    assert "# after LegalizeOps" in text.getvalue()
    assert "R.call_tir" in text.getvalue()


def test_print_ir_is_a_pass_too(capsys):
    tvm.transform.Sequential([tvm.transform.PrintIR()])(MyModule)
    assert "R.multiply" in capsys.readouterr().out


def test_equality_finds_the_place_that_differs():
    @I.ir_module
    class Other:
        @R.function
        def main(a: R.Tensor((3, 4), "float32"), b: R.Tensor((3, 4), "float32")) -> R.Tensor(
            (3, 4), "float32"
        ):
            with R.dataflow():
                lv = R.multiply(a, b)
                gv = R.subtract(lv, b)
                R.output(gv)
            return gv

    assert not tvm.ir.structural_equal(MyModule, Other)
    assert tvm.ir.structural_equal(MyModule, tvm.script.from_source(MyModule.script()))
    with pytest.raises(ValueError, match=r"add|subtract"):
        tvm.ir.assert_structural_equal(MyModule, Other)


def test_a_module_is_saved_as_json_and_loaded():
    text = tvm.ir.save_json(MyModule)
    tvm.ir.assert_structural_equal(tvm.ir.load_json(text), MyModule)
    assert tvm.ir.structural_hash(tvm.ir.load_json(text)) == tvm.ir.structural_hash(MyModule)


def test_an_analyzer_proves_facts_about_indices():
    analyzer = tvm.arith.Analyzer()
    n, i = tir.Var("n", "int64"), tir.Var("i", "int64")
    analyzer.bind(i, tvm.ir.Range(0, 8))
    analyzer.bind(n, tvm.ir.Range(0, 1 << 20))
    assert analyzer.can_prove(tir.floordiv(i, 8) == 0)
    assert analyzer.can_prove_equal((n + 1) * 2, 2 * n + 2)
    assert tvm.ir.structural_equal(analyzer.simplify(tir.floormod(n * 8 + i, 8)), i)
    bound = analyzer.const_int_bound(i * 3)
    assert (bound.min_value, bound.max_value) == (0, 21)
