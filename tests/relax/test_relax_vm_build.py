"""relax.build: what goes in, what comes out, what is refused."""

import numpy as np
import pytest
from relax_vm_helpers import Body, call_tir, elementwise, gv, module, tensor

import relaxvm as tvm
from relaxvm import pipeline, relax, tir
from relaxvm.base import CodegenError, PassError, RelaxvmError, VerifyError
from relaxvm.ir import Map, PassContext
from relaxvm.ir.instrument import DumpIR, PassInstrument, PassTimingInstrument, VerifyAfterAll
from relaxvm.ir.transform import module_pass
from relaxvm.relax import Call, ExternFunc, Function, SeqExpr, TensorStructInfo, Var
from relaxvm.target import Target
from relaxvm.tir.stmt import BufferLoad, BufferStore, For, decl_buffer

ADD1 = gv("add1")


def chain(length=2, shape=(4,), kernel=None):
    x, b = Var("x", tensor(shape)), Body()
    y = x
    for _ in range(length):
        y = b(call_tir(ADD1, (y,), tensor(shape)))
    kernel = kernel or elementwise(lambda a: a + 1.0, 1, shape)
    return module({"main": b.function([x], y), ADD1: kernel})


def zeros(*shape):
    return np.zeros(shape, "float32")


def test_executable_has_function_kernel_and_provenance():
    ex = relax.build(chain(), "llvm")
    assert ex.globals == ("main",)
    assert ex.kernels.names == ("add1",)
    assert ex.provenance.producer == "relaxvm"
    assert ex.provenance.version == tvm.__version__
    assert ex.provenance.target.startswith("llvm")
    assert ex.provenance.passes[0] == "Normalize"
    assert ex.provenance.passes[-1] == "AttachGlobalSymbol"
    assert relax.VirtualMachine(ex)["main"](zeros(4)).numpy().tolist() == [2] * 4


def test_instruments_see_every_stage_of_a_build(tmp_path):
    class Names(PassInstrument):
        def __init__(self):
            self.seen = []

        def run_after_pass(self, mod, info):
            self.seen.append(info.name)

    names, timing = Names(), PassTimingInstrument()
    watching = [names, timing, DumpIR(tmp_path), VerifyAfterAll()]
    with PassContext(opt_level=4, instruments=watching):
        relax.build(chain(), "llvm")
        timed = {name for _, name, _ in timing.timings_us}
    stages = (pipeline.GRAPH_TO_LEGAL, pipeline.LEGAL_TO_FUSED, pipeline.FUSED_TO_PLANNED)
    wanted = [p.info.name for stage in stages for p in stage.passes]
    wanted += ["WidenIndices", "PackConstants", "DefaultSchedule"]
    wanted += [p.info.name for p in pipeline.LOWER_TIR]
    assert [name for name in names.seen if name in wanted][-len(wanted) :] == wanted
    assert timed == set(names.seen)
    dumped = sorted(file.stem for file in tmp_path.iterdir())
    assert [file.partition("_")[2] for file in dumped] == names.seen


def test_the_verifying_instrument_names_the_pass_that_breaks_a_function():
    @module_pass(opt_level=0)
    def Strange(mod, ctx):
        x, stranger = Var("x", tensor((4,))), Var("stranger", tensor((4,)))
        return module({"main": Body().function([x], stranger)})

    @module_pass(opt_level=0)
    def StrangeLoops(mod, ctx):
        i = tir.Var("i", "int64")
        out = decl_buffer((4,), "float32", "out")
        handle = tir.Var("out_handle", "handle")
        store = BufferStore(out, tir.const(0, "float32"), [i])
        return module({"f": tir.PrimFunc([handle], store, None, Map({handle: out}))})

    for broken in (Strange, StrangeLoops):
        with PassContext(instruments=[VerifyAfterAll()]), pytest.raises(VerifyError) as caught:
            broken(chain())
        assert any(f"after pass {broken.info.name}" in note for note in caught.value.__notes__)


def test_the_steps_that_tvm_names_make_the_same_program():
    builder = relax.ExecBuilder()
    loops = relax.vm_build._vmcodegen(builder, pipeline.run_stages(chain()), "bytecode")
    assert [gv.name_hint for gv in loops] == ["add1"]
    ex = relax.vm_build._vmlink(builder, "llvm", loops)
    assert relax.VirtualMachine(ex)["main"](zeros(4)).numpy().tolist() == [2] * 4


def test_only_reachable_kernels_are_compiled():
    mod = chain()
    mod["unused"] = elementwise(lambda a: a * 2.0, 1)
    assert relax.build(mod, "llvm").kernels.names == ("add1",)


def test_module_without_kernels_or_main_builds():
    x = Var("x", tensor((4,)))
    ex = relax.build(module({"same": Body().function([x], x, name="same")}), "llvm")
    assert ex.kernels is None or not ex.kernels.infos
    assert relax.VirtualMachine(ex)["same"](zeros(4)).shape == (4,)


def test_single_function_builds():
    x = Var("x", tensor((4,)))
    assert relax.build(Body().function([x], x), "llvm").globals == ("main",)


def test_target_may_be_an_object_or_the_current_one():
    for target in (None, "llvm", Target("llvm")):
        assert relax.build(chain(), target).kernels is not None
    with Target("llvm"):
        assert relax.build(chain()).kernels is not None


def test_symbolic_kernels_run_natively():
    n = tir.Var("n", "int64")
    mod = chain(3, (n, 2), elementwise(lambda a: a + 1.0, 1, ("m", 2)))
    vm = relax.VirtualMachine(relax.build(mod, "llvm"))
    for rows in (0, 1, 7):
        assert vm["main"](zeros(rows, 2)).numpy().tolist() == [[3.0, 3.0]] * rows


def test_inplace_kernel_runs_natively():
    a = decl_buffer((2,), "float32", "a")
    i = tir.Var("i", "int64")
    body = For(i, 0, 2, 0, BufferStore(a, BufferLoad(a, [i]) * 2.0, [i]))
    from relax_vm_helpers import prim_func

    x, b = Var("x", tensor((2,))), Body()
    y = b(call_tir(ADD1, (x,), tensor((2,))))
    z = b(relax.call_tir_inplace(gv("double"), (y,), 0, tensor((2,))))
    mod = module(
        {
            "main": b.function([x], z),
            ADD1: elementwise(lambda v: v + 1.0, 1, (2,)),
            gv("double"): prim_func([a], body),
        }
    )
    vm = relax.VirtualMachine(relax.build(mod, "llvm"))
    assert vm["main"](zeros(2)).numpy().tolist() == [2, 2]


def test_scalars_run_natively():
    n = tir.Var("n", "int64")
    x, b = Var("x", tensor((n,))), Body()
    y = b(call_tir(gv("scale"), (x,), tensor((n,)), tir_vars=(n * 2,)))
    kernel = elementwise(lambda a, s: a * tir.Cast("float32", s), 1, ("m",), scalars=1)
    vm = relax.VirtualMachine(
        relax.build(module({"main": b.function([x], y), gv("scale"): kernel}))
    )
    assert vm["main"](np.ones(3, "float32")).numpy().tolist() == [6, 6, 6]


def test_pass_context_is_honoured():
    with PassContext(disabled_pass=["StaticPlanBlockMemory", "KillAfterLastUse"]):
        ex = relax.build(chain(5), "llvm")
    assert "StaticPlanBlockMemory" not in ex.provenance.passes
    assert ex.as_text().count("vm.builtin.alloc_storage ") == 5
    assert relax.VirtualMachine(ex)["main"](zeros(4)).numpy().tolist() == [5] * 4


def test_pipeline_may_be_named_given_or_left_out():
    seen = []

    @module_pass(opt_level=0)
    def Note(mod, ctx):
        seen.append(len(mod))
        return mod

    for chosen in ("default", "zero", Note, Note()):
        vm = relax.VirtualMachine(relax.build(chain(), "llvm", pipeline=chosen))
        assert vm["main"](zeros(4)).numpy().tolist() == [2] * 4
    assert seen == [2, 2]
    assert "Note" in relax.build(chain(), "llvm", relax_pipeline=Note).provenance.passes
    planned = relax.get_pipeline("default_build")(chain())
    vm = relax.VirtualMachine(relax.build(planned, "llvm", pipeline=None))
    assert vm["main"](zeros(4)).numpy().tolist() == [2] * 4


def test_module_lowered_by_hand_may_go_through_the_pipeline_again():
    planned = relax.get_pipeline("default_build")(chain())
    vm = relax.VirtualMachine(relax.build(planned, "llvm"))
    assert vm["main"](zeros(4)).numpy().tolist() == [2] * 4


def test_params_are_bound_by_name_or_variable():
    x, w, b = Var("x", tensor((2,))), Var("w", tensor((2,))), Body()
    y = b(call_tir(gv("add"), (x, w), tensor((2,))))
    mod = module(
        {"main": b.function([x, w], y), gv("add"): elementwise(lambda a, c: a + c, 2, (2,))}
    )
    value = np.array([5, 6], "float32")
    for key in ("w", w):
        vm = relax.VirtualMachine(relax.build(mod, "llvm", params={key: value}))
        assert vm["main"](zeros(2)).numpy().tolist() == [5, 6]
    with pytest.raises(VerifyError, match="no function has a parameter named v"):
        relax.build(mod, "llvm", params={"v": value})


@pytest.mark.parametrize("given", [None, 5, "main", {"main": 1}, [chain]])
def test_input_that_is_no_module_is_refused(given):
    with pytest.raises(VerifyError, match="wanted an IRModule"):
        relax.build(given, "llvm")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exec_mode": "fast"}, "exec_mode is one of bytecode, compiled"),
        ({"pipeline": "fastest"}, "no pipeline is named"),
        ({"pipeline": 5}, "pipeline is a name or a Pass"),
        ({"tir_pipeline": 5}, "tir_pipeline"),
        ({"system_lib": True}, "system_lib"),
    ],
)
def test_senseless_options_are_refused(options, message):
    with pytest.raises(PassError, match=message):
        relax.build(chain(), "llvm", **options)


def test_unknown_target_is_refused():
    with pytest.raises(RelaxvmError):
        relax.build(chain(), "abacus")


def test_ill_formed_module_is_refused_before_any_pass():
    x, stranger = Var("x", tensor((4,))), Var("stranger", tensor((4,)))

    @module_pass(opt_level=0)
    def Never(mod, ctx):
        raise AssertionError("ran a pass on an ill-formed module")

    with pytest.raises(VerifyError, match="stranger"):
        relax.build(module({"main": Body().function([x], stranger)}), "llvm", pipeline=Never)


def test_unlowered_module_without_pipeline_is_refused():
    with pytest.raises(VerifyError, match="PLANNED"):
        relax.build(chain(), "llvm", pipeline=None)


def test_missing_kernel_is_refused_by_name():
    mod = chain()
    del mod["add1"]
    with pytest.raises(VerifyError, match="add1"):
        relax.build(mod, "llvm")


def test_error_in_a_pass_names_pass_and_function():
    x, b = Var("x", TensorStructInfo(None, "float32", None, 1)), Body()
    n = tir.Var("n", "int64")
    p = Var("p", relax.PrimStructInfo(value=n))
    shape = relax.ShapeExpr((tir.popcount(n),))
    y = b(Call(ExternFunc("t.f"), (shape,), sinfo_args=(x.struct_info,)))
    fn = Function([x, p], b.seq(y), is_pure=False, attrs={"global_symbol": "broken"})
    with pytest.raises(CodegenError, match=r"broken: tir\.popcount") as caught:
        relax.build(module({"broken": fn}), "llvm")
    notes = "\n".join(caught.value.__notes__)
    assert "in function broken" in notes
    assert "while running pass VMShapeLower" in notes


def test_graph_function_and_kernel_of_one_name_are_refused():
    x = Var("x", tensor((4,)))
    mod = chain()
    mod["other"] = Function([x], SeqExpr((), x), attrs={"global_symbol": "add1"})
    with pytest.raises(RelaxvmError, match="add1"):
        relax.build(mod, "llvm")


def test_compile_gives_an_executable_or_a_module():
    assert isinstance(tvm.compile(chain(), "llvm"), tvm.runtime.Executable)
    lone = tvm.compile(elementwise(lambda a: a + 1.0, 1), "llvm")
    out = tvm.nd.array(zeros(4))
    lone["main"](tvm.nd.array(zeros(4)), out)
    assert out.numpy().tolist() == [1] * 4
    assert tvm.driver.build is tvm.build


def test_params_of_several_functions_are_held_once():
    b = relax.BlockBuilder()
    for name in ("prefill", "decode"):
        x = Var("x", TensorStructInfo((1, 200), "float32"))
        w = Var("w", TensorStructInfo((200, 200), "float32"))
        s = Var("s", relax.PrimStructInfo("int64"))
        with b.function(name, [x, w, s]):
            b.emit_func_output(b.emit(relax.op.matmul(x, w)))
    weight = np.ones((200, 200), "float32")
    ex = relax.build(b.get(), "llvm", params={"w": weight, "s": np.int64(3)}, exec_mode="bytecode")
    assert sum(getattr(c, "nbytes", 0) >= weight.nbytes for c in ex.constants) == 1
    vm = relax.VirtualMachine(ex, tvm.cpu())
    for name in ("prefill", "decode"):
        assert vm[name](np.ones((1, 200), "float32")).numpy().tolist() == [[200.0] * 200]
    with pytest.raises(VerifyError, match=r"parameter w of prefill is no constant"):
        relax.build(b.get(), "llvm", params={"w": np.array([object()])})
