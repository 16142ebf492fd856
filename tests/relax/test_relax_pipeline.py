"""The stages of a build, their verifiers and the pipelines by name."""

import numpy as np
import pytest
from relax_vm_helpers import (
    Body,
    call_tir,
    count_calls,
    elementwise,
    emit,
    gv,
    kernels_of,
    module,
    tensor,
)

from relaxvm import pipeline, relax, tir
from relaxvm.base import CodegenError, PassError, VerifyError
from relaxvm.ir import PassContext, assert_structural_equal
from relaxvm.ir.instrument import PassInstrument
from relaxvm.ir.transform import Pass, Sequential, module_pass
from relaxvm.pipeline import STAGES, get_pipeline, register_pipeline, run_stages, verify_stage
from relaxvm.relax import (
    DataflowBlock,
    DataflowVar,
    Function,
    SeqExpr,
    ShapeExpr,
    Var,
    VarBinding,
    named_pipelines,
)
from relaxvm.runtime import VirtualMachine


def chain(length=3):
    x, b = Var("x", tensor((4,))), Body()
    y = x
    for _ in range(length):
        y = b(call_tir(gv("f"), (y,), tensor((4,))))
    return module({"main": b.function([x], y), gv("f"): elementwise(lambda a: a + 1.0, 1)})


def reaches(mod):
    """The stages whose rules `mod` keeps."""
    found = []
    for name in STAGES:
        try:
            verify_stage(mod, name)
        except VerifyError:
            continue
        found.append(name)
    return found


def test_stages_are_reached_in_order():
    assert list(STAGES) == ["GRAPH", "LEGAL", "FUSED", "PLANNED"]
    mod = chain()
    assert reaches(mod) == ["GRAPH", "LEGAL", "FUSED"]
    assert reaches(run_stages(mod)) == ["GRAPH", "LEGAL", "FUSED", "PLANNED"]


def test_inner_function_is_legal_but_not_fused():
    x, b = Var("x", tensor((4,))), Body()
    y = Var("y", tensor((4,)))
    f = b(Function([y], SeqExpr((), y)), "f")
    mod = module({"main": b.function([x], b(relax.Call(f, (x,))))})
    assert reaches(mod) == ["GRAPH", "LEGAL"]
    with pytest.raises(
        VerifyError, match=r"main: binding of f: .*inner function at stage FUSED; run LambdaLift"
    ):
        verify_stage(mod, "FUSED")


def test_dataflow_and_symbols_are_refused_when_planned():
    x = Var("x", tensor((4,)))
    v = DataflowVar("v", x.struct_info)
    w = Var("w", x.struct_info)
    block = DataflowBlock([VarBinding(v, x), VarBinding(w, v)])
    with pytest.raises(
        VerifyError, match="main: body: there may be no dataflow block at stage PLANNED"
    ):
        verify_stage(module({"main": Function([x], SeqExpr([block], w))}), "PLANNED")
    n = tir.Var("n", "int64")
    y = Var("y", tensor((n,)))
    with pytest.raises(VerifyError, match="main: result: shapes and scalars"):
        verify_stage(module({"main": Function([y], SeqExpr((), ShapeExpr((n,))))}), "PLANNED")


def test_unknown_stage_is_an_error_listing_them():
    with pytest.raises(PassError, match="GRAPH, LEGAL, FUSED, PLANNED"):
        verify_stage(chain(), "DONE")


def test_needed_pass_disabled_is_an_error_with_advice():
    with PassContext(disabled_pass=["CallTIRRewrite"]):
        with pytest.raises(VerifyError, match=r"relax\.call_tir may not be called.*disabled"):
            run_stages(chain())


def test_instruments_see_every_pass_in_order():
    class Names(PassInstrument):
        def __init__(self):
            self.seen = []

        def run_before_pass(self, mod, info):
            self.seen.append(info.name)

    names = Names()
    with PassContext(instruments=[names]):
        run_stages(chain())
    wanted = [
        p.info.name
        for s in (pipeline.GRAPH_TO_LEGAL, pipeline.LEGAL_TO_FUSED, pipeline.FUSED_TO_PLANNED)
        for p in s.passes
        if p.info.opt_level <= 2
    ]
    assert [n for n in names.seen if n in wanted] == wanted
    order = ["Normalize", "LambdaLift", "ToNonDataflow", "RemovePurityChecking", "CallTIRRewrite"]
    assert [n for n in wanted if n in order] == order


def test_levels_and_disabled_passes_are_honoured():
    x, b = Var("x", tensor((4,))), Body()
    b(call_tir(gv("f"), (x,), tensor((4,))))
    mod = module({"main": b.function([x], x), gv("f"): elementwise(lambda a: a, 1)})
    assert count_calls(run_stages(mod)["main"])["f"] == 0
    with PassContext(opt_level=0):
        assert count_calls(run_stages(mod)["main"])["f"] == 1
    with PassContext(disabled_pass=["DeadCodeElimination"]):
        assert count_calls(run_stages(mod)["main"])["f"] == 1
    with PassContext(opt_level=0, required_pass=["DeadCodeElimination"]):
        assert count_calls(run_stages(mod)["main"])["f"] == 0


def test_pipelines_by_name():
    assert isinstance(get_pipeline("zero"), Pass)
    zero = get_pipeline("zero")(chain())
    assert count_calls(zero["main"])["relax.call_tir"] == 3
    planned = get_pipeline("default_build")(chain())
    verify_stage(planned, "PLANNED")
    assert relax.get_pipeline is get_pipeline
    assert relax.pipeline.default_build_pipeline()(chain()) is not None
    with pytest.raises(PassError, match=r"no pipeline is named 'fast'.*zero"):
        get_pipeline("fast")


def test_pipeline_can_be_registered(monkeypatch):
    monkeypatch.setattr(named_pipelines, "_PIPELINES", dict(named_pipelines._PIPELINES))

    @register_pipeline("test_nothing")
    def make(suffix=""):
        @module_pass(opt_level=0, name="nothing" + suffix)
        def nothing(mod, ctx):
            return mod

        return nothing

    mod = chain()
    assert get_pipeline("test_nothing")(mod) is mod
    assert get_pipeline("test_nothing", suffix="_2").info.name == "nothing_2"
    with pytest.raises(PassError, match="exists already"):
        register_pipeline("test_nothing")


def test_pipeline_refuses_ill_formed_modules_before_any_pass():
    x, stranger = Var("x", tensor((4,))), Var("stranger", tensor((4,)))
    with pytest.raises(VerifyError, match="stranger"):
        get_pipeline("default_build")(module({"main": Body().function([x], stranger)}))


def test_a_planned_module_is_emitted_and_runs():
    mod = get_pipeline("default_build")(chain())
    vm = VirtualMachine(emit(mod), functions=kernels_of(mod))
    assert vm["main"](np.zeros(4, "float32")).numpy().tolist() == [3] * 4
    with pytest.raises(CodegenError, match="not an operation"):
        emit(chain())


def test_lists_of_passes_make_the_same_pipeline():
    parts = (
        pipeline.library_dispatch_passes,
        pipeline.legalize_passes,
        pipeline.dataflow_lower_passes,
        pipeline.finalize_passes,
    )
    made = Sequential([p for part in parts for p in part(None)])(chain())
    assert_structural_equal(made, run_stages(chain()))
    assert pipeline.get_default_pipeline("llvm") is pipeline.default_build_pipeline


def test_a_sequence_of_ones_own_runs_what_the_default_build_leaves_to_level_3():
    x, b = Var("x", tensor((4,))), Body()
    y, z = (b(relax.op.exp(x)) for _ in range(2))
    mod = module({"main": b.function([x], b(relax.op.add(y, z)))})
    own = Sequential([relax.transform.EliminateCommonSubexpr()])
    build = Sequential(pipeline.GRAPH_TO_LEGAL.passes[:-1])

    def exps(passes):
        return count_calls(relax.transform.DeadCodeElimination(passes(mod))["main"])["relax.exp"]

    assert (exps(own), exps(build)) == (1, 2)
    with PassContext(opt_level=3):
        assert exps(build) == 1


def test_levels_say_what_a_build_runs():
    levels = {p.info.name: p.info.opt_level for p in pipeline.GRAPH_TO_LEGAL.passes}
    assert levels["LegalizeOps"] == 0
    assert levels["InlinePrivateFunctions"] == levels["DeadCodeElimination"] == 1
    assert levels["FoldConstant"] == 2
    assert levels["EliminateCommonSubexpr"] == 3
