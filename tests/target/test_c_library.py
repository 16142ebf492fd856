"""The library that a build for "c" exports: files in C that need nothing of relaxvm."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tarfile

import numpy as np
import pytest
from c_library import COMPILER, STRICT, compile_library, needs_compiler

import relaxvm as tvm
from relaxvm import relax, relay, te
from relaxvm.base import CodegenError, LoadError
from relaxvm.contrib import graph_executor
from relaxvm.runtime import load_module
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from relaxvm.target import c

MAIN = """
#include <stdio.h>
#include <string.h>
#include "kernels.h"

static float a[6] = {1, 2, 3, 4, 5, 6}, b[6], small[4];
static int64_t shape[2] = {2, 3}, wrong[2] = {3, 2}, gaps[2] = {4, 1};

static DLTensor tensor(float *data, int64_t *sizes)
{
    DLTensor made;
    memset(&made, 0, sizeof made);
    made.data = data;
    made.device.device_type = 1;
    made.ndim = 2;
    made.dtype.code = 2;
    made.dtype.bits = 32;
    made.dtype.lanes = 1;
    made.shape = sizes;
    return made;
}

static void say(int32_t code)
{
    printf("%s\\n", code == 0 ? "fine" : relaxvm_message(code));
}

int main(void)
{
    DLTensor x = tensor(a, shape), y = tensor(b, shape), bad;
    say(relaxvm_scale(&x, 2.5f, &y));
    printf("%g %g\\n", (double)b[0], (double)b[5]);
    say(relaxvm_scale(NULL, 2.5f, &y));
    say(relaxvm_scale(&x, 2.5f, &x));
    bad = tensor(b, wrong);
    say(relaxvm_scale(&x, 2.5f, &bad));
    bad = tensor(NULL, shape);
    say(relaxvm_scale(&x, 2.5f, &bad));
    bad = tensor(b, shape);
    bad.dtype.code = 0;
    say(relaxvm_scale(&x, 2.5f, &bad));
    bad = tensor(b, shape);
    bad.ndim = 1;
    say(relaxvm_scale(&x, 2.5f, &bad));
    bad = tensor(b, shape);
    bad.strides = gaps;
    say(relaxvm_scale(&x, 2.5f, &bad));
    a[1] = -1;
    say(relaxvm_scale(&x, 2.5f, &y));
    (void)small;
    return 0;
}
"""


@T.prim_func
def scale(x: T.handle, factor: T.float32, y: T.handle):
    T.func_attr({"global_symbol": "scale", "tir.noalias": True})
    n = T.int64()
    A = T.match_buffer(x, (n, 3), "float32")
    B = T.match_buffer(y, (n, 3), "float32")
    for i, j in T.grid(n, 3):
        assert A[i, j] > 0.0, "all of them are positive"
        B[i, j] = A[i, j] * factor


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 2), "float32")):
        return R.nn.relu(R.matmul(x, w))


def run(command, folder):
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return made.stdout


def module():
    return tvm.IRModule({"scale": scale})


@needs_compiler
@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_a_program_in_c_is_built_by_the_makefile_and_checks_its_arguments(tmp_path):
    tvm.build(module(), "c").export_library(str(tmp_path))
    (tmp_path / "main.c").write_text(MAIN)
    strict = " ".join(STRICT[3:])
    run(["make", f"CC={COMPILER[0]}", f"CFLAGS=-O1 {strict}"], tmp_path)
    run([*COMPILER, *STRICT, "main.c", "libkernels.a", "-lm", "-o", "main"], tmp_path)
    assert run([str(tmp_path / "main")], tmp_path).splitlines() == [
        "fine",
        "2.5 15",
        "scale: argument A: wanted a tensor of 2 dimensions",
        "scale: argument B is written and overlaps argument A",
        "scale: argument B: dimension 0 is not as the other arguments want it",
        "scale: argument B: no data, or not aligned to 4",
        "scale: argument B: wanted float32",
        "scale: argument B: wanted a tensor of 2 dimensions",
        "scale: argument B: wanted a dense tensor, without gaps",
        "all of them are positive",
    ]


@needs_compiler
@pytest.mark.parametrize("ending", [".tar", "/"])
def test_an_archive_or_a_folder_holds_c_and_what_load_module_loads(ending, tmp_path):
    path = f"{tmp_path}/model{ending}"
    program = relax.build(Model, "c")
    program.export_library(path)
    if ending == ".tar":
        with tarfile.open(path) as archive:
            names = archive.getnames()
    else:
        names = os.listdir(path)
    assert {"kernels.c", "kernels.h", "entries.c", "Makefile"} < set(names)
    x, w = np.random.default_rng(0).random((2, 8, 8), dtype="float32")
    wanted = np.maximum(x[:4] @ w[:, :2], 0)
    for loaded in (load_module(path), load_module(pathlib.Path(path))):
        got = relax.VirtualMachine(loaded, tvm.cpu())["main"](x[:4], w[:, :2].copy())
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5)


PARAMETERS = """
#include <stdio.h>
#include "kernels.h"

int main(void)
{
    float x[8] = {1, 1, 1, 1, 1, 1, 1, 1}, y[3];
    int64_t of_x[2] = {1, 8}, of_y[2] = {1, 3};
    const DLTensor in = {x, {1, 0}, 2, {2, 32, 1}, of_x, NULL, 0};
    const DLTensor out = {y, {1, 0}, 2, {2, 32, 1}, of_y, NULL, 0};
    const int32_t code = relaxvm_tvmgen_default_fused_nn_dense_nn_relu(&in, &relaxvm_p0, &out);
    printf("%s%g %g %g\\n", relaxvm_message(code), (double)y[0], (double)y[1], (double)y[2]);
    return 0;
}
"""


@needs_compiler
@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_a_graph_and_its_linked_parameters_go_to_a_folder_of_c(tmp_path):
    x, w = relay.var("x", shape=(1, 8)), relay.var("w", shape=(3, 8))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    values = np.arange(24, dtype="float32").reshape(3, 8) - 10
    folder = tmp_path / "a folder"
    relay.build(mod, "c -link-params", params={"w": values}).export_library(f"{folder}/")
    (folder / "main.c").write_text(PARAMETERS)
    run(["make", f"CC={COMPILER[0]}", f"CFLAGS=-O1 {' '.join(STRICT[3:])}"], folder)
    run([*COMPILER, *STRICT, "main.c", "libkernels.a", "-lm", "-o", "main"], folder)
    assert run([str(folder / "main")], folder) == "0 12 76\n"
    loaded = load_module(folder)
    assert (folder / "graph.json").read_text() == loaded.get_graph_json()
    module = graph_executor.GraphModule(loaded["default"](tvm.cpu()))
    module.run(x=np.ones((1, 8), "float32"))
    assert module.get_output(0).numpy().tolist() == [[0, 12, 76]]


@needs_compiler
def test_parameters_of_all_dtypes_are_constants_in_c_unless_they_are_too_many(tmp_path):
    sources = tvm.build(module(), "c").sources
    arrays = {
        "int": np.array([[-128, 127]], "int8"),
        "a b": np.array([np.nan, -np.inf, 1e-45], "float32"),
        "a_b": np.array(2**63, "uint64"),
        "scale": np.zeros((0, 3), "float64"),
        "": np.array([True, False]),
    }
    params = {name: tvm.nd.array(array) for name, array in arrays.items()}
    params["half"] = tvm.nd.array(np.array([0x3F80], "uint16"), dtype="bfloat16")
    files = c.with_parameters(sources, params).files
    assert files["kernels.h"].count("extern const DLTensor") == 6
    compile_library(files, str(tmp_path))
    many = tvm.nd.empty((c.module.MAX_CONSTANT_ELEMENTS + 1,), "int8")
    with pytest.warns(RuntimeWarning, match="are too much for a file in C"):
        assert c.with_parameters(sources, {"many": many}) is sources


@needs_compiler
def test_a_compiler_that_fails_is_named(monkeypatch):
    monkeypatch.setenv("CC", "sh -c 'exit 3'")
    with pytest.raises(CodegenError, match="sh could not compile the kernels: it ended with .* 3"):
        tvm.build(module(), "c")


@needs_compiler
def test_a_compiler_that_does_not_end_is_stopped_with_what_it_started(monkeypatch):
    monkeypatch.setenv("CC", "sh -c '(sleep 1000); exit 0'")
    monkeypatch.setattr("relaxvm.target.c.compiler._SECONDS", 0.2)
    with pytest.raises(CodegenError, match="sh did not end within 0.2 seconds; name another"):
        tvm.build(module(), "c")


@needs_compiler
def test_archives_are_the_same_each_time_and_cut_ones_are_refused(tmp_path):
    paths = [tmp_path / f"{i}.tar" for i in range(2)]
    for path in paths:
        relax.build(Model, "c").export_library(path)
    data = paths[0].read_bytes()
    assert data == paths[1].read_bytes()
    cut = tmp_path / "cut.tar"
    for size in (512, 2000, len(data) // 2):
        cut.write_bytes(data[:size])
        with pytest.raises(LoadError):
            load_module(cut)


@needs_compiler
def test_what_else_is_exported_stays_what_it_was(tmp_path):
    program = relax.build(Model, "c")
    x, w = np.ones((4, 8), "float32"), np.ones((8, 2), "float32")
    for name in ("model.so", "model.bin"):
        program.export_library(tmp_path / name)
        vm = relax.VirtualMachine(load_module(tmp_path / name), tvm.cpu())
        assert vm["main"](x, w).numpy().tolist() == [[8.0, 8.0]] * 4


def test_without_a_compiler_there_are_sources_and_an_error_that_says_what_to_install(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(c.build, "find_compiler", lambda: None)
    with pytest.warns(RuntimeWarning, match="no C compiler was found.*apt install gcc"):
        rt = tvm.build(module(), "c")
    assert "= A[i * 3 + (int64_t)j] * factor;" in rt.get_source("c")
    rt.export_library(str(tmp_path))
    assert "relaxvm_scale" in (tmp_path / "kernels.h").read_text()
    x = np.ones((2, 3), "float32")
    with pytest.raises(LoadError, match="install gcc or clang, or name one in CC"):
        rt["scale"](x, 2.0, x.copy())
    with pytest.warns(RuntimeWarning, match="no C compiler"):
        program = relax.build(Model, "c")
    with pytest.raises(LoadError, match="install gcc or clang"):
        relax.VirtualMachine(program, tvm.cpu())["main"](x, x)


def test_cc_names_the_compiler(monkeypatch):
    monkeypatch.setenv("CC", "sh -c 'exit")
    with pytest.raises(CodegenError, match="CC=.*: No closing quotation"):
        c.find_compiler()
    if COMPILER is not None:
        monkeypatch.setenv("CC", "/nowhere/cc -m64")
        with pytest.warns(RuntimeWarning, match="CC='/nowhere/cc -m64': there is no such program"):
            assert c.find_compiler()
        monkeypatch.setenv("CC", f"{COMPILER[0]} -O0")
        assert c.find_compiler() == [COMPILER[0], "-O0"]


def test_fused_functions_are_there_by_name():
    source = relax.build(Model, "c").mod.get_source("c")
    assert "/* fused_matmul_relu" in source
    assert "restrict" in source


def test_a_formula_is_scheduled_and_compiled_too():
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    rt = tvm.build(te.create_prim_func([a, b]), "c")
    assert "B[i] = A[i] + 1.0f;" in rt.get_source()
