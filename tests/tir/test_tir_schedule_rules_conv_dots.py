"""Convolutions of narrow integers: by dot products, with zero points on both sides."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from relaxvm import relax, tir
from relaxvm.base import CpuModel
from relaxvm.ir import walk
from relaxvm.pipeline import GRAPH_TO_LEGAL
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.runtime import VirtualMachine, cpu
from relaxvm.tir import PrimFunc, interpret
from relaxvm.tir.schedule.plans import schedule_function

AVX2 = CpuModel("x86_64", 256, 16, True)
VNNI = CpuModel("x86_64", 512, 32, True, frozenset({"avx512vnni"}))
DOTPROD = CpuModel("aarch64", 128, 32, True, frozenset({"dotprod"}))
PLAIN = CpuModel()


@dataclasses.dataclass(frozen=True)
class Case:
    data: tuple[int, int, int, int]
    weight: tuple[int, int, int, int]
    attrs: tuple = ()
    dtypes: tuple[str, str] = ("uint8", "int8")
    zeros: str = "both"  # data, weight, both, each (one per channel) or neither

    def arrays(self, rng):
        """Data, weight and the zero points."""

        def random(dtype, shape):
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)

        made = [random(d, s) for d, s in zip(self.dtypes, (self.data, self.weight))]
        if self.zeros != "neither":
            made.append(random(self.dtypes[0], ()))
        if self.zeros in ("both", "each"):
            made.append(random(self.dtypes[1], self.weight[:1] if self.zeros == "each" else ()))
        return made

    def call(self, arrays):
        params = [
            relax.Var(f"x{k}", relax.TensorStructInfo(a.shape, a.dtype.name))
            for k, a in enumerate(arrays)
        ]
        return R.conv2d_integer(*params, **dict(self.attrs)), params

    def module(self, arrays):
        call, params = self.call(arrays)
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            with builder.dataflow():
                out = builder.emit_output(call)
            builder.emit_func_output(out)
        return builder.get()

    def kernel(self, arrays):
        (fn,) = (
            f
            for f in GRAPH_TO_LEGAL(self.module(arrays)).functions.values()
            if isinstance(f, PrimFunc)
        )
        return fn


def same(padding):
    return (("padding", padding),)


CASES = {
    "3x3": Case((1, 16, 9, 12), (24, 16, 3, 3), same(1)),
    "3x3, channels left over": Case((2, 7, 9, 9), (21, 7, 3, 3), same((0, 1, 2, 1))),
    "strided, dilated": Case((1, 8, 13, 15), (16, 8, 3, 3), (("strides", 2), ("dilation", 2))),
    "1x1": Case((1, 40, 16, 16), (32, 40, 1, 1), (), ("uint8", "uint8"), "each"),
    "1x1, strided": Case((1, 16, 14, 15), (32, 16, 1, 1), (("strides", 2),), ("int8", "int8")),
    "first layer": Case((1, 3, 20, 20), (16, 3, 7, 7), (("strides", 2), ("padding", 3))),
    "data's zero point": Case((1, 16, 9, 9), (24, 16, 3, 3), same(1), zeros="data"),
    "no zero points": Case((1, 16, 9, 9), (24, 16, 3, 3), same(1), ("int8", "uint8"), "neither"),
    "groups": Case((1, 16, 9, 9), (24, 8, 3, 3), (("groups", 2), ("padding", 1))),
    "depthwise": Case((1, 16, 9, 9), (16, 1, 3, 3), (("groups", 16), ("padding", 1))),
    "no pixels": Case((0, 16, 9, 9), (24, 16, 3, 3), same(1)),
}


@pytest.mark.parametrize("name", CASES)
def test_integer_convolutions_of_many_shapes(name):
    case = CASES[name]
    arrays = case.arrays(np.random.default_rng(5))
    ex = relax.build(case.module(arrays), target="llvm")
    got = VirtualMachine(ex, cpu())["main"](*arrays).numpy()
    call, params = case.call(arrays)
    np.testing.assert_array_equal(got, evaluate(call, dict(zip(params, arrays))))


@pytest.mark.parametrize("cpu", [AVX2, VNNI, DOTPROD, PLAIN], ids=["avx2", "vnni", "arm", "plain"])
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_schedules_mean_the_same_to_the_interpreter(cpu, dtypes):
    case = Case((1, 6, 5, 6), (16, 6, 3, 3), same(1), dtypes, "each")
    arrays = case.arrays(np.random.default_rng(6))
    made = schedule_function(case.kernel(arrays), cpu)
    call, params = case.call(arrays)
    want = evaluate(call, dict(zip(params, arrays)))
    got = np.zeros(want.shape, "int32")
    interpret(made, *arrays, got)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("cpu", "packed"), [(AVX2, "int16"), (VNNI, "int8"), (DOTPROD, "int8")], ids=str
)
def test_they_run_by_dot_products(cpu, packed):
    case = CASES["3x3"]
    made = schedule_function(case.kernel(case.arrays(np.random.default_rng(0))), cpu)
    assert "dot_accumulate" in made.script()
    weights = {str(b.dtype) for b in _buffers(made) if b.name == "x1_packed"}
    assert weights == {packed}


def test_16_bits_have_room_for_the_zero_points():
    case = CASES["1x1"]
    made = schedule_function(case.kernel(case.arrays(np.random.default_rng(0))), AVX2)
    assert not any(b.name.endswith("_sum") for b in _buffers(made))


def _buffers(fn):
    blocks = [n for n in walk(fn) if type(n).__name__ == "Block"]
    return [b for n in blocks for b in n.alloc_buffers]


def test_images_whose_size_is_not_known():
    case = Case((1, 16, 9, 9), (24, 16, 3, 3), same(1))
    x, *rest = case.arrays(np.random.default_rng(7))
    h, w = (tir.Var(n, "int64") for n in "hw")
    params = [
        relax.Var("x", relax.TensorStructInfo((1, 16, h, w), "uint8")),
        *(
            relax.Var(f"p{k}", relax.TensorStructInfo(a.shape, a.dtype.name))
            for k, a in enumerate(rest)
        ),
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(R.conv2d_integer(*params, padding=1))
        builder.emit_func_output(out)
    main = VirtualMachine(relax.build(builder.get(), target="llvm"), cpu())["main"]
    for shape in ((9, 9), (1, 1), (13, 30)):
        x = np.random.default_rng(8).integers(0, 255, (1, 16, *shape), "uint8", endpoint=True)
        call, variables = case.call([x, *rest])
        want = evaluate(call, dict(zip(variables, [x, *rest])))
        np.testing.assert_array_equal(main(x, *rest).numpy(), want)
