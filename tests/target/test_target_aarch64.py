"""Code for aarch64, made here: run under qemu-user, and carried in executables."""

from __future__ import annotations

import platform
import shutil
import struct
import subprocess

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, te
from relaxvm.base import float32_to_bfloat16, to_numpy_dtype
from relaxvm.ir import IRModule
from relaxvm.target import Target, compile_prim_funcs, cpu_model
from relaxvm.tir.schedule.plans import schedule_function

ARM = "llvm -mtriple=aarch64-linux-gnu -num-cores=1"
QEMU, CC = shutil.which("qemu-aarch64"), shutil.which("aarch64-linux-gnu-gcc")
needs_qemu = pytest.mark.skipif(
    QEMU is None or CC is None,
    reason="needs qemu-aarch64 (Debian: qemu-user) and aarch64-linux-gnu-gcc "
    "(gcc-aarch64-linux-gnu, libc6-dev-arm64-cross)",
)

# Calls a kernel as the runtime does (struct Arg of runtime/native.py), with raw files as arrays.
MAIN = r"""
#include <stdio.h>
#include <stdlib.h>

struct Arg { void *data; long *shape, *strides; int ndim, type, flags, rest; };
int KERNEL(struct Arg *);

int main(void) {
    struct Arg args[COUNT] = { ARGS };
    for (int i = 0; i < COUNT; i++) {
        long bytes = args[i].strides[0] * args[i].shape[0];
        char name[16];
        sprintf(name, "%d.bin", i);
        args[i].data = aligned_alloc(64, (bytes + 63) / 64 * 64);
        FILE *f = fopen(name, "rb");
        if (!f || fread(args[i].data, 1, bytes, f) != (size_t)bytes) return 99;
        fclose(f);
    }
    int code = KERNEL(args);
    int last = COUNT - 1;
    FILE *f = fopen("out.bin", "wb");
    fwrite(args[last].data, 1, args[last].strides[0] * args[last].shape[0], f);
    fclose(f);
    return code;
}
"""


def run_under_qemu(fn, target, arrays, folder):
    """What the kernel writes to the last of `arrays`, run as an aarch64 program."""
    section = compile_prim_funcs(IRModule({"main": fn}), target)
    (native,), (info,) = section.native, section.infos
    rows = []
    for i, array in enumerate(arrays):
        array.tofile(folder / f"{i}.bin")
        shape = ", ".join(map(str, array.shape))
        strides = ", ".join(map(str, array.strides))
        number = np.dtype(to_numpy_dtype(info.params[i].dtype)).num
        rows.append(
            f"{{0, (long[]){{{shape}}}, (long[]){{{strides}}}, {array.ndim}, {number}, 0x400, 0}}"
        )
    source = MAIN.replace("KERNEL", info.symbol).replace("COUNT", str(len(rows)))
    (folder / "main.c").write_text(source.replace("ARGS", ", ".join(rows)))
    objects = []
    for k, code in enumerate(native.objects):
        objects.append(f"k{k}.o")
        (folder / objects[-1]).write_bytes(code)
    # The symbol may hold characters that C has not; the linker takes any.
    program = [CC, "-O1", "-static", "main.c", *objects, "-lm", "-o", "main"]
    linked = subprocess.run(program, cwd=folder, timeout=120, check=False, capture_output=True)
    assert linked.returncode == 0, linked.stderr.decode()
    done = subprocess.run(
        [QEMU, "-cpu", "max", "./main"], cwd=folder, timeout=120, check=False, capture_output=True
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    last = arrays[-1]
    return np.fromfile(folder / "out.bin", last.dtype).reshape(last.shape)


def product(a, b, out, m, n, k):
    A, B = te.placeholder((m, k), a, name="A"), te.placeholder((k, n), b, name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute(
        (m, n), lambda i, j: te.sum(A[i, r].astype(out) * B[r, j].astype(out), axis=r), name="C"
    )
    return te.create_prim_func([A, B, C])


def operand(rng, dtype, shape):
    if dtype == "bfloat16":
        bits = float32_to_bfloat16(rng.standard_normal(shape).astype("float32"))
        return bits, (bits.astype("uint32") << 16).view("float32")
    if dtype.startswith("float"):
        made = rng.standard_normal(shape).astype(dtype)
        return made, made.astype("float64")
    limits = np.iinfo(dtype)
    made = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return made, made.astype("int64")


@needs_qemu
@pytest.mark.slow
@pytest.mark.parametrize(
    ("features", "a", "b", "out"),
    [
        ("", "int8", "int8", "int32"),
        ("", "float32", "float32", "float32"),
        ("", "float16", "float16", "float32"),
        ("+dotprod", "int8", "int8", "int32"),
        ("+dotprod", "uint8", "int8", "int32"),
        ("+dotprod", "uint8", "uint8", "int32"),
        ("+dotprod,+i8mm", "uint8", "int8", "int32"),
        ("+bf16", "bfloat16", "bfloat16", "float32"),
    ],
)
def test_products_run_on_aarch64(features, a, b, out, tmp_path):
    target = Target(f"{ARM} -mattr={features}") if features else Target(ARM)
    m, n, k = 13, 21, 22
    fn = schedule_function(product(a, b, out, m, n, k), cpu_model(target))
    rng = np.random.default_rng(5)
    (x, x_values), (y, y_values) = operand(rng, a, (m, k)), operand(rng, b, (k, n))
    got = run_under_qemu(fn, target, [x, y, np.zeros((m, n), out)], tmp_path)
    want = (x_values @ y_values).astype(out)
    if out == "int32":
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def model():
    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((4, 16), "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            weight = relax.const(np.arange(16 * 8, dtype="float32").reshape(16, 8) / 64)
            out = b.emit_output(relax.op.nn.relu(relax.op.matmul(x, weight)))
        b.emit_func_output(out)
    return b.get(), np.arange(16 * 8, dtype="float32").reshape(16, 8) / 64


def test_an_executable_for_aarch64_is_carried_and_runs_here_from_its_portable_form(tmp_path):
    mod, weight = model()
    executable = relax.build(mod, target="llvm -mtriple=aarch64-linux-gnu")
    path = tmp_path / "model.rvm"
    executable.export_library(str(path))
    loaded = tvm.runtime.load_module(str(path))
    (native,) = loaded.kernels.native
    assert native.triple == "aarch64-linux-gnu"
    assert {struct.unpack_from("<H", code, 18)[0] for code in native.objects} == {183}
    vm = relax.VirtualMachine(loaded, tvm.cpu())
    if platform.machine() not in ("aarch64", "arm64"):
        assert vm.kernels.source == "rebuilt"
        assert "no native code fits" in vm.kernels.reason
        assert "aarch64-linux-gnu" in vm.kernels.reason
    x = np.random.default_rng(0).standard_normal((4, 16)).astype("float32")
    got = vm["main"](tvm.nd.array(x)).numpy()
    np.testing.assert_allclose(got, np.maximum(x @ weight, 0), rtol=1e-5, atol=1e-5)
