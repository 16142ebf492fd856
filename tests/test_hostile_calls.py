"""Arguments, names and files that no caller should give: a typed error each, never a hang."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, runtime, tir
from relaxvm.base import CodegenError, LinkError, LoadError, VMTypeError, VMValueError
from relaxvm.ir import IRModule
from relaxvm.relax import Function, SeqExpr, ShapeExpr, TensorStructInfo, Var
from relaxvm.tir import BufferStore, For, PrimFunc, decl_buffer

pytestmark = pytest.mark.vm_modes

VECTOR = TensorStructInfo((4,), "float32")


def scale_kernel():
    """b[i] = a[i] * k"""
    n, i, k = tir.Var("n", "int64"), tir.Var("i", "int64"), tir.Var("k", "float32")
    a, b = decl_buffer((n,), "float32", "a"), decl_buffer((n,), "float32", "b")
    handles = [tir.Var("a", "handle"), tir.Var("b", "handle")]
    body = For(i, tir.const(0, "int64"), n, "serial", BufferStore(b, a[i] * k, (i,)))
    return PrimFunc([*handles, k], body, None, dict(zip(handles, (a, b))))


def identity_vm(**options):
    x = Var("x", VECTOR)
    mod = IRModule({"main": Function([x], SeqExpr([], x))})
    return relax.VirtualMachine(relax.build(mod, "llvm"), **options)


@pytest.fixture(scope="module")
def rt():
    return tvm.build(scale_kernel(), "llvm")


def test_a_kernel_takes_its_arguments_by_name(rt):
    a, names = np.ones(3, "float32"), [param.name for param in rt.entry_func.info.params]
    out = a.copy()
    rt.entry_func(a, out, k=2.0)
    assert out.tolist() == [2, 2, 2]
    rt(**dict(zip(names, (a, out, 3.0))))
    assert out.tolist() == [3, 3, 3]
    with pytest.raises(VMTypeError, match=r"no parameter is called 'scale'\n  main\("):
        rt.entry_func(a, out, scale=2.0)
    with pytest.raises(VMTypeError, match="parameter k is given twice"):
        rt.entry_func(a, out, 2.0, k=2.0)
    with pytest.raises(VMTypeError, match="wanted 3 arguments, got 2; missing: k"):
        rt.entry_func(a, **{names[1]: out})


def test_a_huge_number_is_not_written_out_in_the_message(rt):
    a = np.zeros(3, "float32")
    with pytest.raises(VMValueError) as caught:
        rt.entry_func(a, a.copy(), 10**400)
    assert "more than 127 bits" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_saved_function_takes_no_arguments():
    vm = identity_vm()
    x = np.arange(4, dtype="float32")
    vm.save_function("main", "kept", x)
    with pytest.raises(VMTypeError, match="kept: wanted no arguments, got 1"):
        vm["kept"](x)
    assert vm["kept"]().numpy().tolist() == [0, 1, 2, 3]


def test_the_name_of_a_saved_function_is_text():
    with pytest.raises(VMTypeError, match="wanted a name to save as, got int"):
        identity_vm().save_function("main", 3, np.zeros(4, "float32"))


def test_granted_functions_are_a_mapping():
    with pytest.raises(VMTypeError, match="functions: wanted a mapping"):
        identity_vm(functions=3)


def test_a_limit_says_what_is_the_least():
    with pytest.raises(VMValueError, match="max_seconds: wanted at least 0"):
        identity_vm(max_seconds=-1.0)


def test_a_computed_dimension_is_named_by_its_own_expression():
    n = tir.Var("n", "int64")
    x = Var("x", TensorStructInfo((n,), "float32"))
    y = Var("y", TensorStructInfo((n * n - 1,), "float32"))
    mod = IRModule({"main": Function([x, y], SeqExpr([], ShapeExpr((n,))))})
    vm = relax.VirtualMachine(relax.build(mod, "llvm"))
    with pytest.raises(VMValueError) as caught:
        vm["main"](np.zeros(2, "float32"), np.zeros(4, "float32"))
    assert "n * n - 1" in str(caught.value)
    wanted = "wanted n * n - 1 = 3 (n = 2 from axis 0 of parameter x: Tensor((n,), float32)), got 4"
    assert wanted in str(caught.value)
    assert "0 * 0" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
@pytest.mark.parametrize("load", [runtime.load, runtime.load_module, runtime.Module.load])
def test_loading_a_pipe_is_refused_and_does_not_wait(load, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LoadError, match="wanted a plain file"):
        load(tmp_path / "pipe")


@pytest.mark.parametrize("load", [runtime.load, runtime.load_module, runtime.Module.load])
def test_loading_what_is_no_path_is_a_typed_error(load, tmp_path):
    for wrong in (None, 3, []):
        with pytest.raises(VMTypeError, match="wanted a path"):
            load(wrong)
    with pytest.raises(LoadError, match="plain file"):
        load(tmp_path)
    with pytest.raises(LoadError, match="path of a file"):
        load("a\0b")


def test_exporting_to_what_is_no_path_is_a_typed_error(rt):
    for wrong in (None, 3, []):
        with pytest.raises(VMTypeError, match="export: wanted a path"):
            rt.export_library(wrong)
    for wrong in ("", "a\0b"):
        with pytest.raises(VMValueError, match="wanted the path of a file"):
            rt.export_library(wrong)


_WITHOUT_LLVMLITE = """
    import sys
    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] == "llvmlite":
                raise ModuleNotFoundError("No module named 'llvmlite'", name="llvmlite")
    sys.meta_path.insert(0, Refuse())
    import numpy as np
    from relaxvm import runtime
    from relaxvm.base import RelaxvmError
    for trust in ("native", "portable"):
        library = runtime.Module.load({path!r}, trust)
        try:
            library.linked
        except RelaxvmError as error:
            print(type(error).__name__, error)
"""


def test_without_llvmlite_kernels_say_what_to_install(rt, tmp_path):
    path = tmp_path / "library"
    rt.export_library(path)
    script = textwrap.dedent(_WITHOUT_LLVMLITE).format(path=str(path))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert not done.returncode, (done.returncode, done.stdout, done.stderr)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [LinkError.__name__, CodegenError.__name__]
    assert all("pip install llvmlite" in line for line in lines)


_COMPILE_OFTEN = """
    import resource
    from relaxvm.target.llvm.machine import compile_text, host_machine
    from relaxvm.target.llvm.net import in_this_process
    in_this_process()
    text = "define i32 @f(i32 %x) {\\n  %y = add i32 %x, 1\\n  ret i32 %y\\n}\\n"
    machine = host_machine()
    def used():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    for _ in range(20):
        compile_text(text, machine)
    before = used()
    for _ in range(100):
        compile_text(text, machine)
    print((used() - before) // 100)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_compiling_leaves_no_pass_pipeline_behind():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_COMPILE_OFTEN)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    # llvmlite alone keeps 30 KB and more of each compilation.
    assert int(done.stdout) < 15_000
