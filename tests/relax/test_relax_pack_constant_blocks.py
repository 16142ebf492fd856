"""PackConstants, narrow numbers: what a kernel computes of constants alone runs while building."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import CpuModel
from relaxvm.ir import walk
from relaxvm.ir.transform import Sequential
from relaxvm.pipeline import default_build_pipeline
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.transform import BindParams, PackConstants
from relaxvm.runtime import VirtualMachine, cpu
from relaxvm.tir import Block, PrimFunc
from relaxvm.tir.analysis import verify_well_formed

AVX2 = CpuModel("x86_64", 256, 16, True)
VNNI = CpuModel("x86_64", 512, 32, True, frozenset({"avx512vnni"}))
RNG = np.random.default_rng(0)


def integers(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def conv(*args):
    return R.conv2d_integer(*args, padding=1)


# operator, shapes of data and weight, whether weights have a zero point for each channel
CASES = {
    "product": (R.matmul_integer, (16, 40), (40, 24), False),
    "product, columns left over": (R.matmul_integer, (16, 39), (39, 21), True),
    "convolution": (conv, (1, 16, 9, 9), (24, 16, 3, 3), False),
    "convolution, by channel": (conv, (1, 7, 9, 9), (21, 7, 3, 3), True),
}


def arrays_of(name, dtypes=("uint8", "int8")):
    _, data, weight, each = CASES[name]
    channels = weight[0] if len(weight) == 4 else weight[1]
    zero = integers(dtypes[1], *([channels] if each else []))
    return [integers(dtypes[0], *data), integers(dtypes[1], *weight), integers(dtypes[0]), zero]


def call_of(name, arrays):
    params = [
        relax.Var(f"x{k}", relax.TensorStructInfo(a.shape, a.dtype.name))
        for k, a in enumerate(arrays)
    ]
    return CASES[name][0](*params), params


def module(name, arrays, constants):
    call, params = call_of(name, arrays)
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    return BindParams("main", {f"x{k}": arrays[k] for k in constants})(builder.get())


def constants_of(mod):
    return [n for f in mod.functions.values() for n in walk(f) if isinstance(n, relax.Constant)]


@pytest.mark.parametrize("constants", [(1,), (1, 3), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_results_stay_the_same(name, constants):
    arrays = arrays_of(name)
    ex = relax.build(module(name, arrays, constants), target="llvm")
    given = [a for k, a in enumerate(arrays) if k not in constants]
    got = VirtualMachine(ex, cpu())["main"](*given).numpy()
    call, params = call_of(name, arrays)
    np.testing.assert_array_equal(got, evaluate(call, dict(zip(params, arrays))))


@pytest.mark.parametrize("cpu", [AVX2, VNNI], ids=["avx2", "vnni"])
@pytest.mark.parametrize("name", CASES)
def test_no_block_packs_a_constant(name, cpu):
    arrays = arrays_of(name)
    mod = default_build_pipeline(module(name, arrays, (1, 2, 3)))
    made = Sequential([PackConstants(cpu=cpu)])(mod)
    (fn,) = (f for f in made.functions.values() if isinstance(f, PrimFunc))
    verify_well_formed(fn)
    packed = "int16" if cpu is AVX2 else "int8"
    assert {str(c.data.dtype) for c in constants_of(made)} >= {packed}
    assert not any(c.data.shape == CASES[name][2] for c in constants_of(made))
    (weight,) = (b for b in fn.buffers if b.name.endswith("_packed"))
    blocks = [n for n in walk(fn) if isinstance(n, Block)]
    readers = {n.name_hint for n in blocks if any(r.buffer is weight for r in n.reads)}
    assert readers
    assert all("update" in name for name in readers)


def test_a_weight_that_is_no_constant_is_packed_by_the_kernel():
    arrays = arrays_of("convolution")
    mod = default_build_pipeline(module("convolution", arrays, (2, 3)))
    assert Sequential([PackConstants(cpu=AVX2)])(mod) is mod


def test_two_weights_of_one_kernel():
    x, v, w, zx, zw = (
        integers("uint8", 1, 16, 9, 9), integers("int8", 16, 16, 3, 3),
        integers("int8", 16, 16, 3, 3), integers("uint8"), integers("int8"),
    )  # fmt: skip
    params = [
        relax.Var(f"x{k}", relax.TensorStructInfo(a.shape, a.dtype.name))
        for k, a in enumerate((x, v, w, zx, zw))
    ]
    p, a, b, za, zb = params
    call = R.add(conv(p, a, za, zb), conv(p, b, za, zb))
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            left, right = builder.emit(conv(p, a, za, zb)), builder.emit(conv(p, b, za, zb))
            out = builder.emit_output(R.add(left, right))
        builder.emit_func_output(out)
    bound = {f"x{k}": array for k, array in enumerate((x, v, w, zx, zw)) if k}
    mod = BindParams("main", bound)(builder.get())
    got = VirtualMachine(relax.build(mod, target="llvm"), cpu())["main"](x).numpy()
    np.testing.assert_array_equal(got, evaluate(call, dict(zip(params, (x, v, w, zx, zw)))))
