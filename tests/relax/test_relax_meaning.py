"""CheckMeaning names the pass that changes what a module means, wherever in a build it stands."""

import functools
import subprocess
import sys

import numpy as np
import pytest
from pass_cases import parse

from relaxvm import pipeline, relax
from relaxvm.ir import PassContext, const
from relaxvm.ir.transform import Sequential, function_pass, module_pass
from relaxvm.ir.walk import transform as rebuild
from relaxvm.meaning import MeaningError
from relaxvm.relax import Call, transform
from relaxvm.relax.known_ops import MEM_ALLOC_STORAGE, MEM_ALLOC_TENSOR
from relaxvm.relax.substitute import substitute_graph
from relaxvm.target import Target
from relaxvm.target.llvm import expr as llvm_expr
from relaxvm.testing import CheckMeaning, bisect
from relaxvm.tir import Add, BufferStore, Sub
from relaxvm.tir.schedule.plans import DefaultSchedule
from relaxvm.tir.transform import pipeline as lowering
from relaxvm.tir.transform import prim_func_pass

MODEL = """
@R.function
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")):
    with R.dataflow():
        a = R.multiply(x, y)
        b = R.exp(a)
        c = R.add(b, y)
        d = R.add(c, x)
        R.output(d)
    return d
"""


# Kernels stay apart: there is memory to plan.
UNFUSED = functools.partial(PassContext, disabled_pass=["FuseOps"])


def model():
    return parse(MODEL)


def caught(tmp_path, run, **options):
    """The error of `run` under the check."""
    with pytest.raises(MeaningError) as error:
        with UNFUSED(instruments=[CheckMeaning(out=tmp_path, **options)]):
            run()
    return error.value


@function_pass(opt_level=0)
def WrongSum(fn, mod, ctx):
    """x + y becomes x - y."""
    add, subtract = relax.op.add(*fn.params).op, relax.op.subtract(*fn.params).op
    return rebuild(
        fn, lambda n: n.replace(op=subtract) if isinstance(n, Call) and n.op is add else None
    )


@pytest.mark.parametrize("level", range(5))
def test_the_passes_of_a_build_keep_the_meaning(level):
    check = CheckMeaning()
    with PassContext(opt_level=level, instruments=[check]):
        relax.build(model(), "llvm", exec_mode="bytecode")
    assert {"LegalizeOps", "CallTIRRewrite", "VMShapeLower", "LowerIntrin"} <= {*check.checked}
    assert "DefaultSchedule" in check.checked or not level
    assert check.unchecked == []


def test_a_wrong_pass_is_named_with_the_first_binding_and_a_small_program(tmp_path):
    passes = Sequential([transform.CanonicalizeBindings(), WrongSum(), transform.LegalizeOps()])
    error = caught(tmp_path, lambda: passes(model()))
    assert (error.stage, error.function, error.binding) == ("WrongSum", "main", "c")
    assert "c = R.subtract(b, y)" in str(error)
    text = error.path.read_text()
    assert str(error.path) in str(error)
    assert "R.add" in text and "R.subtract" in text
    assert "R.exp" not in text and "R.multiply" not in text
    done = subprocess.run([sys.executable, error.path], capture_output=True, text=True)
    assert "MeaningError: main means something else" in done.stderr


def planned_wrong(fn, mod, ctx):
    """Every tensor lies at the beginning of the first storage."""
    first = []

    def change(n):
        if isinstance(n, relax.VarBinding) and isinstance(n.value, Call):
            if n.value.op is MEM_ALLOC_STORAGE:
                first.append(n.var)
            if n.value.op is MEM_ALLOC_TENSOR:
                return n.replace(value=n.value.replace(args=(first[0], *n.value.args[1:])))
        return None

    rebuild(fn, change)
    return rebuild(fn, change)


def stores_one_more(fn, mod, ctx):
    """What is stored is one more."""

    def change(n):
        if isinstance(n, BufferStore) and n.value.dtype.element == "float32":
            return n.replace(value=n.value + const(1.0, n.value.dtype))
        return None

    return fn.replace(body=rebuild(fn.body, change))


STAGES = {
    "GRAPH_TO_LEGAL": WrongSum(),
    "LEGAL_TO_FUSED": prim_func_pass(stores_one_more, opt_level=0, name="StoresOneMore"),
    "FUSED_TO_PLANNED": function_pass(planned_wrong, opt_level=0, name="PlannedWrong"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_wrong_pass_is_named_at_every_stage(stage, tmp_path, monkeypatch):
    wrong, passes = STAGES[stage], list(getattr(pipeline, stage).passes)
    after = "LowerAllocTensor" if stage == "FUSED_TO_PLANNED" else passes[0].info.name
    place = [p.info.name for p in passes].index(after) + 1
    passes.insert(place, wrong)
    monkeypatch.setattr(pipeline, stage, Sequential(passes, name="changed"))
    error = caught(tmp_path, lambda: relax.build(model(), "llvm", exec_mode="bytecode"))
    assert error.stage == wrong.info.name
    assert error.function == "main"
    assert error.path.exists()


@pytest.mark.parametrize("place", [0, 5, len(lowering.LOWER_TIR)])
def test_a_wrong_pass_over_loops_is_named(place, tmp_path, monkeypatch):
    wrong = prim_func_pass(stores_one_more, opt_level=0, name="StoresOneMore")
    passes = [*lowering.LOWER_TIR]
    passes.insert(place, wrong)
    monkeypatch.setattr(lowering, "LOWER_TIR", tuple(passes))
    error = caught(tmp_path, lambda: relax.build(model(), "llvm", exec_mode="bytecode"))
    assert error.stage == "StoresOneMore"
    assert error.function in ("multiply", "exp", "add")


def test_given_inputs_are_used_and_an_error_of_the_changed_module_is_told(tmp_path):
    @module_pass(opt_level=0)
    def Forget(mod, ctx):
        return mod.clone({gv: fn for gv, fn in mod.items() if gv.name_hint == "main"})

    legal = transform.LegalizeOps()(model())
    x = np.ones((2, 4), "float32")
    error = caught(tmp_path, lambda: Forget()(legal), inputs=[x, x])
    assert error.stage == "Forget"
    assert "it fails" in str(error)


def test_what_takes_too_long_is_left_out_and_told():
    check = CheckMeaning(limit=0.0)
    with PassContext(instruments=[check]):
        transform.LegalizeOps()(model())
    assert check.checked == []
    assert check.unchecked == ["LegalizeOps: main: the 0.0 seconds of limit= are over"]


INPUTS = [np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4), np.ones((2, 4), "float32")]


def test_bisect_finds_nothing_in_a_right_build():
    assert bisect(model(), INPUTS, "llvm") is None


def test_bisect_names_a_wrong_pass(monkeypatch, tmp_path):
    passes = [WrongSum(), *pipeline.GRAPH_TO_LEGAL.passes]
    monkeypatch.setattr(pipeline, "GRAPH_TO_LEGAL", Sequential(passes, name="changed"))
    error = bisect(model(), INPUTS, "llvm", out=tmp_path)
    assert (error.stage, error.binding) == ("WrongSum", "c")


def test_bisect_names_a_wrong_schedule(monkeypatch, tmp_path):
    right = DefaultSchedule._run

    def wrong(mod, ctx, **options):
        return prim_func_pass(stores_one_more, opt_level=0).run(right(mod, ctx, **options), ctx)

    monkeypatch.setattr(DefaultSchedule, "_run", wrong)
    error = bisect(model(), INPUTS, "llvm", out=tmp_path)
    assert error.stage == "DefaultSchedule"


def test_bisect_names_wrong_code_and_its_kernel(monkeypatch, tmp_path):
    monkeypatch.setitem(llvm_expr._ARITHMETIC, Add, ("add", "fsub", "or"))
    with UNFUSED():
        error = bisect(model(), INPUTS, "llvm", out=tmp_path)
    assert error.stage == "code generation"
    assert error.path.exists()


def swapped(mod):
    """`mod` with the parameters of main the other way round."""
    main = mod["main"]
    x, y = main.params
    swap = {x: relax.Var("x", x.struct_info), y: relax.Var("y", y.struct_info)}
    body = substitute_graph(main.body, {x: swap[y], y: swap[x]})
    changed = main.replace(params=tuple(swap.values()), body=body)
    return mod.clone({**mod.functions, mod.get_global_var("main"): changed})


def test_bisect_names_wrong_bytecode(monkeypatch, tmp_path):
    right = pipeline.emit_functions

    def wrong(mod):
        return right(transform.Normalize()(swapped(mod)))

    monkeypatch.setattr(pipeline, "emit_functions", wrong)
    two = parse(MODEL.replace("R.add(b, y)", "R.subtract(b, y)"))
    error = bisect(two, INPUTS, "llvm", out=tmp_path)
    assert error.stage == "bytecode"
    assert error.function == "main"


def test_bisect_names_the_passes_of_llvm(monkeypatch, tmp_path):
    # Sums that may be ordered anew lose what cancels, once LLVM's passes run.
    loose = {Add: ("add", "fadd reassoc nsz", "or"), Sub: ("sub", "fsub reassoc nsz", "xor")}
    for kind, row in loose.items():
        monkeypatch.setitem(llvm_expr._ARITHMETIC, kind, row)
    text = MODEL.replace("R.multiply(x, y)", "R.subtract(R.add(x, R.const(1e9)), R.const(1e9))")
    error = bisect(parse(text), INPUTS, "llvm", out=tmp_path)
    assert error.stage == "LLVM's passes"
    assert error.path.exists()


def test_bisect_names_wrong_compiled_graph_functions(monkeypatch, tmp_path):
    programs, emit, compiled = [], pipeline.emit_functions, pipeline.compile_program

    def emitted(mod):
        programs.append(emit(transform.Normalize()(swapped(mod))))
        return emit(mod)

    def wrong(program, kernels):
        other = pipeline.assemble(programs[-1], kernels.section, Target("llvm"), ())
        return program.with_kernels(compiled(other, kernels).kernels)

    monkeypatch.setattr(pipeline, "emit_functions", emitted)
    monkeypatch.setattr(pipeline, "compile_program", wrong)
    error = bisect(parse(MODEL.replace("R.add(b, y)", "R.subtract(b, y)")), INPUTS, "llvm")
    assert (error.stage, error.function) == ("compiled graph functions", "main")
