"""Shared libraries that carry a document: the system links them, loading runs nothing of them."""

import ctypes
import os
import shutil
import subprocess

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, te
from relaxvm.base import LinkError, LoadError, VMTypeError, VMValueError
from relaxvm.runtime import load, load_module

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="this machine has no C compiler")
X = np.arange(8, dtype="float32")


@pytest.fixture(scope="module")
def kernels():
    a = te.placeholder((8,), name="A")
    return tvm.build(te.create_prim_func([a, te.compute((8,), lambda i: a[i] * 2.0)]))


@pytest.fixture(scope="module")
def program():
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((8,), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(relax.op.add(x, relax.const(np.full(8, 3.0, "float32")))))
    return relax.build(bb.get(), "llvm")


def doubled(module):
    out = np.zeros_like(X)
    module(X, out)
    return out.tolist()


def test_a_module_in_a_shared_library_loads_and_runs(kernels, tmp_path):
    path = tmp_path / "k.so"
    kernels.export_library(path)
    assert path.read_bytes().startswith(b"\x7fELF")
    assert doubled(load_module(path)) == (X * 2).tolist()
    assert sorted(os.listdir(tmp_path)) == ["k.so"]
    symbol = kernels.section.infos[0].symbol
    assert getattr(ctypes.CDLL(str(path)), symbol) is not None


@pytest.mark.parametrize("mmap", [False, True])
def test_a_program_in_a_shared_library_loads_and_runs(program, tmp_path, mmap):
    path = tmp_path / "model.so"
    program.export_library(str(path))
    vm = relax.VirtualMachine(load(path, mmap=mmap), tvm.cpu())
    assert vm["main"](X).numpy().tolist() == (X + 3).tolist()
    assert load(path).trusted
    program.mod.export_library(path)
    assert relax.VirtualMachine(load_module(path))["main"](X).numpy().tolist() == (X + 3).tolist()


def test_loading_runs_nothing_of_the_library(kernels, tmp_path):
    """A library whose constructor would end the process is only read."""
    source, path = tmp_path / "evil.c", tmp_path / "k.so"
    source.write_text(
        "#include <stdlib.h>\n__attribute__((constructor)) void f(void) { abort(); }\n"
    )
    kernels.export_library(path, addons=[source])
    assert subprocess.run(
        ["python3", "-c", f"import ctypes; ctypes.CDLL({str(path)!r})"]
    ).returncode
    assert doubled(load_module(path)) == (X * 2).tolist()


def test_the_machine_code_of_a_library_of_others_is_not_used(kernels, tmp_path):
    path = tmp_path / "k.so"
    kernels.export_library(path)
    data = bytearray(path.read_bytes())
    data[-24 - 10] ^= 1  # within the signature
    path.write_bytes(data)
    module = load_module(path)
    assert not module.trusted
    assert doubled(module) == (X * 2).tolist()


def test_a_library_without_a_document_is_refused(kernels, tmp_path):
    path = tmp_path / "k.so"
    kernels.export_library(path)
    whole = path.read_bytes()
    for spoiled in (
        whole[:4],
        whole[:-1],
        whole[: -len(whole) // 2],
        whole[:-8] + (1 << 62).to_bytes(8, "little"),
        whole[:-8] + len(whole).to_bytes(8, "little"),
    ):
        path.write_bytes(spoiled)
        with pytest.raises(LoadError, match=r"k\.so: a shared library without a document"):
            load_module(path)
    path.write_bytes(whole[:-8] + (3).to_bytes(8, "little"))
    with pytest.raises(LoadError):
        load_module(path)


def test_other_endings_are_the_document_alone(kernels, tmp_path):
    kernels.export_library(tmp_path / "k.rvm")
    assert (tmp_path / "k.rvm").read_bytes() == kernels.to_bytes()


def test_without_a_linker_a_warning_and_a_file_that_loads(kernels, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.warns(UserWarning, match="no C compiler was found: it is a file for load_module"):
        kernels.export_library(tmp_path / "k.so")
    assert doubled(load_module(tmp_path / "k.so")) == (X * 2).tolist()


def test_a_program_without_kernels_is_the_document_alone(tmp_path):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((8,), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(x)
    with pytest.warns(UserWarning, match="there is no object code for one"):
        relax.build(bb.get(), "llvm", exec_mode="bytecode").export_library(tmp_path / "m.so")
    assert load(tmp_path / "m.so").needs() == ()


def test_a_failing_linker_says_why_and_leaves_no_file(kernels, tmp_path):
    with pytest.raises(LinkError, match="could not link.*nonsense"):
        kernels.export_library(tmp_path / "k.so", options=["-lnonsense"])
    with pytest.raises(LinkError, match="no-such-compiler"):
        kernels.export_library(tmp_path / "k.so", cc="no-such-compiler")
    assert os.listdir(tmp_path) == []


def test_fcompile_links_in_place_of_the_compiler(kernels, tmp_path):
    seen = []

    def link(output, objects, options):
        seen.append((len(objects), options))
        subprocess.run(["cc", "-shared", "-o", output, *objects], check=True)

    kernels.export_library(tmp_path / "k.so", fcompile=link, options=["-O2"])
    assert seen == [(1, ["-O2"])]
    assert doubled(load_module(tmp_path / "k.so")) == (X * 2).tolist()
    with pytest.raises(VMTypeError, match="fcompile"):
        kernels.export_library(tmp_path / "k.so", fcompile="gcc")
    with pytest.raises(VMValueError, match="unknown options nonsense"):
        kernels.export_library(tmp_path / "k.so", nonsense=1)


def test_write_to_file_takes_texts_too(kernels, tmp_path):
    kernels.write_to_file(tmp_path / "k.ll")
    assert (tmp_path / "k.ll").read_text() == kernels.get_source("llvm")
    kernels.save(tmp_path / "k.txt", "ll")
    assert (tmp_path / "k.txt").read_text() == kernels.get_source("llvm")
    kernels.write_to_file(tmp_path / "k.rvm")
    assert doubled(load_module(tmp_path / "k.rvm")) == (X * 2).tolist()
