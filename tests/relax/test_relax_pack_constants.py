"""PackConstants: weights in the layout of the kernel that reads them, made while building."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import CpuModel
from relaxvm.ir import IRModule, walk
from relaxvm.ir.transform import Sequential
from relaxvm.pipeline import default_build_pipeline
from relaxvm.relax import op as R
from relaxvm.relax.transform import BindParams, PackConstants
from relaxvm.runtime import VirtualMachine, cpu, load_module
from relaxvm.tir import PrimFunc

CPU = CpuModel(vector_bits=256, vector_registers=16)
RNG = np.random.default_rng(0)


def f32(*shape):
    return RNG.standard_normal(shape).astype("float32")


def module(build, *shapes):
    """`build(*variables)` as `main`, whose parameters are x0, x1, ..."""
    params = [
        relax.Var(f"x{k}", relax.TensorStructInfo(s, "float32")) for k, s in enumerate(shapes)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(build(*params))
        builder.emit_func_output(out)
    return builder.get()


def constants_of(mod):
    return {tuple(int(d) for d in c.data.shape) for c in _constants(mod)}


def _constants(mod):
    return [n for f in mod.functions.values() for n in walk(f) if isinstance(n, relax.Constant)]


def packed(mod, **weights):
    pack = Sequential([PackConstants(cpu=CPU)])
    return pack(default_build_pipeline(BindParams("main", weights)(mod)))


def run(mod, weights, *inputs, **options):
    ex = relax.build(BindParams("main", weights)(mod), target="llvm", **options)
    return VirtualMachine(ex, cpu())["main"](*inputs).numpy()


@pytest.mark.parametrize(
    ("x", "w"),
    [
        ((64, 40), (40, 96)),
        ((2, 64, 40), (40, 32)),
        ((3, 64, 40), (3, 40, 32)),
        ((1, 40), (40, 96)),
        ((1, 1, 40), (40, 192)),
    ],
)
def test_a_constant_right_side_is_kept_in_panels(x, w):
    mod, data, weight = module(R.matmul, x, w), f32(*x), f32(*w)
    made = packed(mod, x1=weight)
    assert all(len(s) == len(w) + 1 for s in constants_of(made))
    want = data @ weight
    np.testing.assert_allclose(run(mod, {"x1": weight}, data), want, rtol=1e-4, atol=1e-4)


def test_a_transposed_constant_too():
    mod = module(lambda x, w: R.einsum((x, w), "ik,jk->ij"), (64, 40), (96, 40))
    data, weight = f32(64, 40), f32(96, 40)
    ((panels, depth, width),) = constants_of(packed(mod, x1=weight))
    assert depth == 40
    assert panels * width == 96
    got = run(mod, {"x1": weight}, data)
    np.testing.assert_allclose(got, data @ weight.T, rtol=1e-4, atol=1e-4)


def test_calls_that_share_a_kernel_or_a_weight():
    mod = module(
        lambda x, v, w: R.add(R.matmul(R.matmul(x, v), w), R.matmul(x, w)),
        (64, 48), (48, 48), (48, 48),
    )  # fmt: skip
    x, v, w = f32(64, 48), f32(48, 48), f32(48, 48)
    made = packed(mod, x1=v, x2=w)
    assert len({id(c.data) for c in _constants(made)}) == 2
    got = run(mod, {"x1": v, "x2": w}, x)
    np.testing.assert_allclose(got, (x @ v) @ w + x @ w, rtol=1e-3, atol=1e-3)


def test_a_kernel_that_is_also_called_on_a_variable_stays():
    def both(x, v, w):
        return R.concat((R.matmul(x, v), R.matmul(x, w)), axis=0)

    mod = module(both, (64, 48), (48, 48), (48, 48))
    x, v, w = f32(64, 48), f32(48, 48), f32(48, 48)
    assert constants_of(packed(mod, x2=w)) == {(48, 48)}
    want = np.concatenate((x @ v, x @ w))
    np.testing.assert_allclose(run(mod, {"x2": w}, x, v), want, rtol=1e-4, atol=1e-3)


def test_what_nothing_is_gained_for_stays():
    # One row reads a narrow matrix in one run, a large one from memory; 97 columns are no whole
    # panels.
    for x, w in (((1, 40), (40, 16)), ((1, 512), (512, 512)), ((64, 40), (40, 97))):
        mod, data, weight = module(R.matmul, x, w), f32(*x), f32(*w)
        assert constants_of(packed(mod, x1=weight)) == {w}
        got = run(mod, {"x1": weight}, data)
        np.testing.assert_allclose(got, data @ weight, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("exec_mode", ["compiled", "bytecode"])
def test_a_saved_program_brings_its_panels(tmp_path, exec_mode):
    mod, data, weight = module(R.matmul, (64, 40), (40, 96)), f32(64, 40), f32(40, 96)
    ex = relax.build(BindParams("main", {"x1": weight})(mod), target="llvm", exec_mode=exec_mode)
    ex.export_library(str(tmp_path / "one.rvm"))
    loaded = load_module(str(tmp_path / "one.rvm"))
    got = VirtualMachine(loaded, cpu())["main"](data).numpy()
    np.testing.assert_allclose(got, data @ weight, rtol=1e-4, atol=1e-4)


def test_without_schedules_weights_are_left_alone():
    mod, data, weight = module(R.matmul, (64, 40), (40, 96)), f32(64, 40), f32(40, 96)
    got = run(mod, {"x1": weight}, data, tir_pipeline=None)
    np.testing.assert_allclose(got, data @ weight, rtol=1e-4, atol=1e-4)


def test_the_pass_may_run_twice():
    made = packed(module(R.matmul, (64, 40), (40, 96)), x1=f32(40, 96))
    assert isinstance(made, IRModule)
    assert PackConstants(cpu=CPU)(made) is made
    assert any(isinstance(f, PrimFunc) for f in made.functions.values())
