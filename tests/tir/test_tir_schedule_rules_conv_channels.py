"""Convolutions with constant weights: panels of channels, made when the kernel is built."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from conv_helpers import AVX2, AVX512, Case, tiled

import relaxvm as tvm
from relaxvm import relax, tir
from relaxvm.base import CpuModel, Rates, ScheduleError
from relaxvm.ir import PassContext, walk
from relaxvm.ir.transform import Sequential
from relaxvm.pipeline import default_build_pipeline
from relaxvm.relax import op as R
from relaxvm.relax.transform import BindParams, PackConstants
from relaxvm.runtime import VirtualMachine, cpu
from relaxvm.tir import PREFETCH, For, ForKind, PrimFunc, interpret
from relaxvm.tir.schedule import apply_plan
from relaxvm.tir.schedule.plans import plans_for, schedule_function, with_constant_layouts
from relaxvm.tir.schedule.plans.convolution_channels import AlongChannels

CPUS = {
    "avx2": AVX2,
    "avx512": AVX512,
    "two cores": dataclasses.replace(AVX2, cores=2),
    "three far cores": dataclasses.replace(AVX512, cores=3, rates=Rates(handed=0.5)),
    "sse": dataclasses.replace(AVX2, vector_bits=128),
    "small caches": dataclasses.replace(AVX2, l1_bytes=1 << 11, l2_bytes=1 << 13),
}
CASES = {
    "3x3": Case((1, 32, 16, 16), 32, padding=(1, 1)),
    "one tile of pixels is left over": Case((2, 32, 7, 7), 32, padding=(1, 1)),
    "strided": Case((1, 32, 15, 14), 48, strides=(2, 2), padding=(1, 1)),
    "dilated": Case((1, 32, 15, 14), 32, dilation=(2, 3), padding=(2, 3)),
    "without padding": Case((1, 32, 9, 13), 64),
    "bias and relu": Case((1, 32, 12, 16), 32, padding=(1, 1), after="bias"),
    "residual": Case((1, 32, 9, 9), 32, padding=(1, 1), after="residual"),
    "groups": Case((1, 64, 9, 9), 64, padding=(1, 1), groups=2),
    "1x1": Case((1, 256, 7, 7), 64, (1, 1)),
    "1x1, strided, bias": Case((2, 256, 9, 11), 32, (1, 1), (2, 2), after="bias"),
    "1x1, padded": Case((1, 256, 5, 5), 32, (1, 1), padding=(1, 1)),
    "1x1, several runs": Case((2, 288, 24, 12), 32, (1, 1), after="residual"),
    "1x1, strided, whole tiles": Case((1, 288, 24, 24), 32, (1, 1), (2, 2)),
    "1x1, groups": Case((1, 576, 7, 7), 64, (1, 1), groups=2),
    "long sums of few channels": Case((1, 6, 30, 33), 32, (7, 7), (2, 2), padding=(3, 3)),
    "one panel": Case((3, 32, 4, 4), 16, padding=(1, 1), after="bias"),
    "one panel, four vectors": Case((2, 32, 5, 5), 64, padding=(1, 1), after="residual"),
    "squares of pixels and one more": Case((1, 32, 7, 7), 96, padding=(1, 1), after="bias"),
    "one row": Case((1, 128, 1, 30), 32, (1, 3), padding=(0, 1)),
}


def packed(case, cpu):
    """(the function with its weight in panels, what brings a weight into them)"""
    made, packs = with_constant_layouts(case.function(), [1], CPUS[cpu])
    assert list(packs) == [1]
    return made, packs[1]


def check(case, cpu, run=None):
    fn, pack = packed(case, cpu)
    assert tiled(fn, CPUS[cpu]) is not None
    made = schedule_function(fn, CPUS[cpu])
    arrays, want = case.arrays(np.random.default_rng(3))
    arrays[1] = np.ascontiguousarray(pack(arrays[1]))
    (run or tvm.build(made, target="llvm")["main"])(*([made] if run else []), *arrays)
    scale = max(1, np.abs(want).max(initial=0))
    np.testing.assert_allclose(arrays[-1], want, rtol=1e-4, atol=1e-5 * scale)
    return made


@pytest.mark.parametrize("name", CASES)
def test_weights_in_panels_change_no_result(name):
    check(CASES[name], "avx2")


@pytest.mark.slow
@pytest.mark.parametrize("cpu", [c for c in CPUS if c != "avx2"])
@pytest.mark.parametrize("name", CASES)
def test_weights_in_panels_for_other_cpus(name, cpu):
    check(CASES[name], cpu)


def test_schedules_mean_the_same_to_the_interpreter():
    check(Case((1, 32, 3, 3), 8, padding=(1, 1), after="bias"), "avx2", run=interpret)
    check(Case((1, 256, 3, 3), 8, (1, 1)), "avx2", run=interpret)


def test_a_tile_is_pixels_times_vectors_of_channels():
    made, pack = packed(Case((1, 64, 56, 56), 64, padding=(1, 1)), "avx2")
    assert pack(np.zeros((64, 64, 3, 3), "float32")).shape == (4, 64, 3, 3, 16)
    loops = [n for n in walk(schedule_function(made, AVX2)) if isinstance(n, For)]
    unrolled = {n.extent.value for n in loops if n.kind == ForKind.UNROLLED}
    assert {6, 2, 3} <= unrolled
    # Of the sums, and of the rows that are stored.
    assert {n.extent.value for n in loops if n.kind == ForKind.VECTORIZED} == {8, 56}


def test_what_an_attempt_asked_for_is_forgotten_when_it_is_given_up(monkeypatch):
    def apply(self, view):
        assert view.pointwise is not None
        raise ScheduleError("no")

    monkeypatch.setattr(AlongChannels, "apply", apply)
    made, _ = packed(Case((1, 32, 14, 14), 32, padding=(1, 1), after="bias"), "avx2")
    with PassContext() as ctx:
        assert schedule_function(made, AVX2) is not made
    assert any(d.text.endswith(": no") for d in ctx.report)


@pytest.mark.parametrize("cpu", [AVX2, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("pixels", [(9, 9), (10, 10), (14, 14)])
def test_panels_are_shared_out_by_one_loop_though_the_last_is_cut_short(pixels, cpu):
    case = Case((1, 144, *pixels), 96, (1, 1), after="residual")
    fn = schedule_function(case.function(), dataclasses.replace(cpu, cores=2))
    parallel = [n for n in walk(fn) if isinstance(n, For) and n.kind == ForKind.PARALLEL]
    assert len(parallel) == 1
    arrays, want = case.arrays(np.random.default_rng(3))
    tvm.build(fn, target="llvm -num-cores=2")["main"](*arrays)
    np.testing.assert_allclose(arrays[-1], want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


# 2 cores each; how wide vectors are, what the caches give and how far the cores are from each other
# decides what threads share.
ZEN4 = CpuModel(
    "x86_64", 512, 32, True, l2_bytes=1 << 20, l3_bytes=32 << 20, cores=2,
    rates=Rates(3.57e9, 32.0, 27.0, 8.6, products=1.0, handed=0.64),
)  # fmt: skip
ZEN3 = CpuModel("x86_64", 256, 16, True, cores=2, rates=Rates(3.7e9, 19.0, 7.8, 4.0))
N1 = CpuModel("aarch64", 128, 32, True, 64 << 10, 1 << 20, cores=2, rates=Rates(2.5e9, 29.4, 14.4))


@pytest.mark.parametrize("cpu", [ZEN4, ZEN3, N1], ids=["zen4", "zen3", "n1"])
@pytest.mark.parametrize(
    "case",
    [
        Case((1, 384, 14, 14), 64, (1, 1), after="residual"),
        Case((1, 960, 7, 7), 320, (1, 1), after="bias"),
        Case((1, 512, 14, 14), 512, strides=(2, 2), padding=(1, 1), after="bias"),
    ],
    ids=str,
)
def test_no_thread_reads_a_copy_that_another_one_made(case, cpu):
    made, _ = with_constant_layouts(case.function(), [1], cpu)
    fn = schedule_function(made, cpu)
    (shared,) = (n for n in walk(fn) if isinstance(n, For) and n.kind == ForKind.PARALLEL)
    inside = {b for b in walk(shared) if isinstance(b, tir.Block)}
    scratch = {b.data for b in fn.body.block.alloc_buffers}
    for block in walk(fn):
        if isinstance(block, tir.Block) and {w.buffer.data for w in block.writes} & scratch:
            assert block in inside


def test_wide_vectors_read_pixels_where_they_are_and_narrow_ones_where_that_is_cheaper():
    def copies(case, cpu):
        made, _ = with_constant_layouts(case.function(), [1], cpu)
        fn = schedule_function(made, cpu)
        blocks = [b for b in walk(fn) if isinstance(b, tir.Block)]
        x = fn.buffers[0]
        return [b.name_hint for b in blocks if any(r.buffer is x for r in b.reads)] != [
            "conv_update"
        ]

    large, small = Case((1, 384, 14, 14), 64, (1, 1)), Case((1, 960, 7, 7), 160, (1, 1))
    assert not copies(large, ZEN4) and not copies(small, ZEN4)
    assert not copies(large, dataclasses.replace(ZEN4, cores=1))
    # Tiles of few pixels read a line of the second cache for each channel, with few products.
    assert copies(small, ZEN3) and copies(small, dataclasses.replace(ZEN3, cores=1))


@pytest.mark.parametrize(
    "case",
    [
        Case((1, 256, 8, 8), 96, (1, 1), after="residual"),
        Case((2, 256, 9, 12), 96, (1, 1), (2, 2)),
        Case((1, 32, 6, 6), 96, padding=(1, 1), after="bias"),
    ],
    ids=str,
)
def test_threads_come_by_the_input_in_several_ways(case):
    cpu = dataclasses.replace(AVX2, cores=2)
    made, packs = with_constant_layouts(case.function(), [1], cpu)
    choices = plans_for(tir.Schedule(made), "conv", cpu)
    size = choices[0].plan.rows, choices[0].plan.vectors
    ways = {}
    for plan in (c.plan for c in choices if type(c.plan).__name__ == "AlongChannels"):
        if (plan.rows, plan.vectors, plan.squares) == (*size, 0):
            ways.setdefault((plan.parts, plan.placed, plan.block), plan)
    assert {parts for parts, _, _ in ways} == {0, 2} and len({block for _, _, block in ways}) > 1
    assert (True in {placed for _, placed, _ in ways}) == (case.kernel == (1, 1))
    for plan in ways.values():
        sch = tir.Schedule(made)
        apply_plan(sch, "conv", plan)
        arrays, want = case.arrays(np.random.default_rng(3))
        arrays[1] = np.ascontiguousarray(packs[1](arrays[1]))
        tvm.build(sch.mod, target="llvm -num-cores=2")["main"](*arrays)
        np.testing.assert_allclose(arrays[-1], want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_no_block_copies_the_weight():
    for case in CASES.values():
        made = schedule_function(packed(case, "avx2")[0], AVX2)
        weight = made.buffers[1]
        readers = [
            b.name_hint
            for b in walk(made)
            if isinstance(b, tir.Block) and any(r.buffer is weight for r in b.reads)
        ]
        assert readers == ["conv_update"]


def test_weights_that_no_first_cache_holds_are_asked_for_before_they_are_read():
    for channels, wanted in ((64, [4096 // 4]), (16, [])):
        made = schedule_function(
            packed(Case((1, 32, 12, 12), channels, padding=(1, 1)), "avx2")[0], AVX2
        )
        loops = [n for n in walk(made) if isinstance(n, For)]
        assert [int(n.annotations[PREFETCH]) for n in loops if PREFETCH in n.annotations] == wanted


@pytest.mark.parametrize(
    "case",
    [
        Case((1, 32, 16, 16), 30, padding=(1, 1)),  # vectors do not divide the channels
        Case((1, 8, 16, 16), 32, padding=(1, 1)),  # short sums
        Case((1, 64, 24, 24), 64, padding=(1, 1), groups=64),
        Case((1, 256, 56, 56), 64, (1, 1)),
    ],
)
def test_weights_that_stay_as_they_are(case):
    assert with_constant_layouts(case.function(), [1], AVX2)[1] == {}


# -- in a program ----------------------------------------------------------------------------------


def module(data, weights, build, **bound):
    """`build(x, *weights)` as `main`; dims of `data` that are text are known when it runs."""
    names = {d: tir.Var(d, "int64") for d in data if isinstance(d, str)}
    shapes = [[names.get(d, d) for d in data], *weights]
    params = [
        relax.Var(f"x{k}", relax.TensorStructInfo(s, "float32")) for k, s in enumerate(shapes)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(build(*params))
        builder.emit_func_output(out)
    return BindParams("main", bound)(builder.get())


def f32(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def test_the_constant_of_a_program_is_kept_in_panels():
    mod = module((1, 32, 14, 14), [(32, 32, 3, 3)], conv, x1=f32(32, 32, 3, 3))
    with PassContext(config={"numerics": "reassociates"}):
        made = Sequential([PackConstants(cpu=AVX2)])(default_build_pipeline(mod))
    (shape,) = {tuple(map(int, c.data.shape)) for c in constants_of(made)}
    assert shape == (2, 32, 3, 3, 16)


def conv(x, w):
    return R.nn.conv2d(x, w, padding=1)


def constants_of(mod):
    return [n for f in mod.functions.values() for n in walk(f) if isinstance(n, relax.Constant)]


def test_a_weight_that_one_call_has_as_a_constant_and_another_as_a_variable():
    def twice(x, v, w):
        return R.nn.conv2d(R.nn.conv2d(x, v, padding=1), w, padding=1)

    v, w, x = f32(32, 32, 3, 3), f32(32, 32, 3, 3) / 9, f32(1, 32, 14, 14)
    mod = module(x.shape, [v.shape, w.shape], twice, x1=v)
    made = Sequential([PackConstants(cpu=AVX2)])(default_build_pipeline(mod))
    assert [tuple(map(int, c.data.shape)) for c in constants_of(made)] == [v.shape]
    got = VirtualMachine(relax.build(mod, target="llvm"), cpu())["main"](x, w).numpy()
    both = module(x.shape, [v.shape, w.shape], twice, x1=v, x2=w)
    want = VirtualMachine(relax.build(both, target="llvm"), cpu())["main"](x).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


# -- sizes that are known when it runs -------------------------------------------------------------

SYMBOLIC = {
    "3x3": ((32, 32, 3, 3), {"padding": 1}),
    "3x3, strided": ((32, 32, 3, 3), {"padding": 1, "strides": 2}),
    "1x1": ((32, 256, 1, 1), {}),
    "7x7, few channels": ((16, 3, 7, 7), {"padding": 3, "strides": 2}),
    "depthwise": ((12, 1, 3, 3), {"padding": 1, "groups": 12}),
    "depthwise, strided": ((12, 1, 3, 3), {"padding": 1, "groups": 12, "strides": 2}),
    "groups": ((32, 32, 3, 3), {"padding": 1, "groups": 2}),
}
SIZES = [(1, 16, 16), (2, 7, 9), (1, 13, 30), (0, 8, 8), (3, 8, 7)]


def meaning(x, w, padding=0, strides=1, groups=1):
    case = Case(
        x.shape,
        w.shape[0],
        w.shape[2:],
        (strides, strides),
        (padding, padding),
        groups=groups,
    )
    return case.meaning(x, w)


@pytest.mark.parametrize("constant", [False, True], ids=["variable", "constant"])
@pytest.mark.parametrize("name", SYMBOLIC)
def test_images_whose_size_is_not_known(name, constant):
    shape, attrs = SYMBOLIC[name]
    weight, channels = f32(*shape), shape[1] * attrs.get("groups", 1)
    bound = {"x1": weight} if constant else {}
    mod = module(
        ("n", channels, "h", "w"), [shape], lambda x, w: R.nn.conv2d(x, w, **attrs), **bound
    )
    main = VirtualMachine(relax.build(mod, target="llvm"), cpu())["main"]
    for n, h, w in SIZES:
        x = f32(n, channels, h, w)
        got = main(x, *([] if constant else [weight])).numpy()
        want = meaning(x, weight, **attrs)
        scale = max(1, np.abs(want).max(initial=0))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("constant", [False, True], ids=["variable", "constant"])
@pytest.mark.parametrize("name", [n for n in SYMBOLIC if n != "depthwise, strided"])
def test_they_get_tiles(name, constant):
    shape, attrs = SYMBOLIC[name]
    channels = shape[1] * attrs.get("groups", 1)
    mod = module(("n", channels, "h", "w"), [shape], lambda x, w: R.nn.conv2d(x, w, **attrs))
    (fn,) = (f for f in default_build_pipeline(mod).functions.values() if isinstance(f, PrimFunc))
    if constant:
        fn, _ = with_constant_layouts(fn, [1], AVX2)
    loops = [n for n in walk(tiled(fn, AVX2)) if isinstance(n, For)]
    assert any(n.kind == ForKind.VECTORIZED and n.extent.value == 8 for n in loops)


def test_sums_of_a_first_layer_are_turned_round_in_wide_vectors_only():
    case = Case((1, 3, 30, 33), 32, (7, 7), (2, 2), padding=(3, 3))
    for name, kind in CPUS.items():
        _, packs = with_constant_layouts(case.function(), [1], kind)
        assert bool(packs) is (kind.lanes(32) >= 16), name
