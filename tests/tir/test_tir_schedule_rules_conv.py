"""Schedules of convolutions: what they compute stays the same; their loops have a known form."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from conv_helpers import AVX2, AVX512, Case, tiled

import relaxvm as tvm
from relaxvm import te
from relaxvm.base import CpuModel
from relaxvm.ir import IRModule, walk
from relaxvm.tir import For, ForKind, Schedule, interpret
from relaxvm.tir.schedule.plans import schedule_function
from relaxvm.tir.schedule.plans.matches import block_of, match_convolution, tile_of
from relaxvm.tir.transform import LOWER_TIR, VectorizeLoop

CPUS = {
    "avx2": AVX2,
    "two cores": dataclasses.replace(AVX2, cores=2),
    "sse": CpuModel(vector_bits=128),
    "avx512": AVX512,
    "small caches": dataclasses.replace(AVX2, l1_bytes=1 << 11, l2_bytes=1 << 12),
}


def check(case, cpu, run=None):
    fn = case.function()
    made = schedule_function(fn, CPUS[cpu])
    arrays, want = case.arrays(np.random.default_rng(3))
    (run or tvm.build(made, target="llvm")["main"])(*([made] if run else []), *arrays)
    scale = max(1, np.abs(want).max(initial=0))
    np.testing.assert_allclose(arrays[-1], want, rtol=1e-4, atol=1e-5 * scale)
    return made


def applied(case, cpu="avx2"):
    """The function with only the rule of convolutions applied; None if it does not fit."""
    return tiled(case.function(), CPUS[cpu])


CASES = {
    "3x3": Case((1, 16, 16, 16), 24, padding=(1, 1)),
    "3x3, last channels and rows left over": Case((2, 5, 13, 24), 11, padding=(1, 1)),
    "3x3, a width that vectors do not divide": Case((1, 8, 7, 7), 20, padding=(1, 1)),
    "3x3, without padding": Case((1, 6, 18, 18), 13),
    "1x1": Case((1, 20, 8, 16), 32, (1, 1)),
    "1x1, pixels that vectors do not divide": Case((2, 20, 7, 7), 40, (1, 1)),
    "1x1, much weight": Case((1, 300, 7, 7), 256, (1, 1)),
    "1x1, strided": Case((1, 24, 16, 14), 33, (1, 1), (2, 2)),
    "1x1, padded": Case((1, 16, 9, 9), 30, (1, 1), padding=(2, 1)),
    "7x7, strided": Case((1, 3, 30, 32), 16, (7, 7), (2, 2), (3, 3)),
    "stride 3": Case((1, 4, 20, 26), 9, (3, 5), (2, 3), (1, 2)),
    "dilated": Case((1, 4, 20, 20), 12, dilation=(2, 3), padding=(2, 3)),
    "dilated and strided": Case((1, 4, 20, 21), 12, (3, 2), (2, 2), (1, 1), (2, 3)),
    "groups": Case((1, 24, 12, 16), 36, padding=(1, 1), groups=3),
    "groups, pixels left over": Case((2, 8, 9, 11), 14, padding=(1, 1), groups=2),
    "depthwise": Case((1, 6, 24, 24), 6, padding=(1, 1), groups=6),
    "depthwise, strided": Case((2, 5, 25, 30), 5, strides=(2, 2), padding=(1, 1), groups=5),
    "depthwise, two of each": Case((1, 5, 15, 16), 10, (5, 3), padding=(2, 1), groups=5),
    "bias and relu": Case((1, 8, 12, 16), 14, padding=(1, 1), after="bias"),
    "bias and relu, 7": Case((1, 8, 7, 7), 14, padding=(1, 1), after="bias"),
    "bias and relu, 1x1": Case((1, 40, 7, 7), 26, (1, 1), after="bias"),
    "residual": Case((1, 8, 14, 14), 12, strides=(2, 1), padding=(1, 1), after="residual"),
    "residual, 1x1": Case((1, 16, 8, 8), 32, (1, 1), after="residual"),
    "residual of one image": Case(
        (1, 8, 14, 14), 12, padding=(1, 1), after="residual of one image"
    ),
    "calls": Case((1, 8, 8, 16), 12, padding=(1, 1), after="exp"),
    "calls, short rows": Case((2, 8, 7, 7), 12, padding=(1, 1), after="exp"),
    "calls, short rows, 1x1": Case((1, 32, 7, 7), 40, (1, 1), after="exp"),
    "calls, depthwise, short rows": Case((2, 24, 7, 7), 24, padding=(1, 1), groups=24, after="exp"),
    "depthwise, small images": Case(
        (2, 64, 5, 6), 64, strides=(2, 2), padding=(1, 1), groups=64, after="residual"
    ),
    "symbolic batch": Case((3, 8, 9, 16), 12, padding=(1, 1), after="bias", symbolic=True),
    "symbolic batch, 1x1": Case((3, 24, 7, 7), 32, (1, 1), symbolic=True),
    "symbolic batch of none": Case((0, 8, 9, 16), 12, padding=(1, 1), symbolic=True),
    "one row": Case((1, 16, 1, 64), 32, (1, 3), padding=(0, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_convolutions_of_many_shapes(name):
    assert applied(CASES[name]) is not None
    check(CASES[name], "avx2")


@pytest.mark.slow
@pytest.mark.parametrize("cpu", [c for c in CPUS if c != "avx2"])
@pytest.mark.parametrize("name", CASES)
def test_convolutions_for_other_cpus(name, cpu):
    check(CASES[name], cpu)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_convolutions(seed):
    rng = random.Random(seed)
    each, groups = rng.choice([1, 3, 4, 7, 16]), rng.choice([1, 1, 1, 2, 5])
    kernel = (rng.choice([1, 2, 3, 5]), rng.choice([1, 2, 3, 7]))
    dilation = (rng.choice([1, 1, 2]), rng.choice([1, 1, 2]))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    case = Case(
        (
            rng.choice([1, 2, 3]),
            each * groups,
            rng.randint(reach[0], 20),
            rng.randint(reach[1], 28),
        ),
        groups * rng.choice([1, 3, 8, 25]),
        kernel,
        (rng.choice([1, 2, 3]), rng.choice([1, 2, 3])),
        (rng.choice([0, 1, 2]), rng.choice([0, 1, 3])),
        dilation,
        groups,
        rng.choice(["", "bias", "residual"]),
        rng.random() < 0.3,
    )
    check(case, rng.choice(sorted(CPUS)))


def test_schedules_mean_the_same_to_the_interpreter():
    for case in (
        Case((1, 4, 7, 7), 6, strides=(2, 2), padding=(1, 1), after="bias"),
        Case((1, 6, 5, 7), 24, (1, 1)),
    ):
        check(case, "avx2", run=interpret)


def test_the_tile_of_a_convolution_stays_in_registers():
    made = applied(Case((1, 64, 56, 56), 64, padding=(1, 1)))
    lowered = IRModule({"main": made})
    for each in LOWER_TIR[: [type(p) for p in LOWER_TIR].index(type(VectorizeLoop()))]:
        lowered = each(lowered)
    unrolled = [n for n in walk(lowered["main"]) if isinstance(n, For)]
    tile = [n.extent.value for n in unrolled if n.kind == ForKind.UNROLLED]
    assert 6 in tile and 2 in tile
    assert all(n.extent.value == 8 for n in unrolled if n.kind == ForKind.VECTORIZED)


def nests(fn):
    """The loops around each block by its name, as (extent, kind)."""
    sch = Schedule(fn)
    blocks = sch.get_child_blocks(sch.get_block("root"))
    loops = {sch.get(b).name_hint: [sch.get(x) for x in sch.get_loops(b)] for b in blocks}
    return {n: [(x.extent.value, x.kind) for x in found] for n, found in loops.items()}


def test_what_reads_the_only_image_at_zero_is_computed_in_the_tiles():
    one = Case((1, 8, 16, 16), 12, padding=(1, 1), after="residual of one image")
    assert nests(applied(one)) == nests(applied(dataclasses.replace(one, after="residual")))


def test_a_result_that_is_also_read_has_the_tiles_of_one_that_is_not():
    x, w = te.placeholder((1, 32, 18, 18), name="X"), te.placeholder((8, 32, 3, 3), name="W")
    c, r, s = (te.reduce_axis((0, n), k) for n, k in ((32, "c"), (3, "r"), (3, "s")))
    y = te.compute(
        (1, 8, 16, 16),
        lambda n, o, h, v: te.sum(x[n, c, h + r, v + s] * w[o, c, r, s], axis=[c, r, s]),
        name="Y",
    )
    z = te.compute(y.shape, lambda *i: tvm.tir.max(y(*i), tvm.tir.const(0.0, "float32")), name="Z")

    def loops(*results):
        sch = Schedule(schedule_function(te.create_prim_func([x, w, *results]), AVX512))
        return [str(sch.get(loop).extent) for loop in sch.get_loops("Y_update")]

    assert loops(y, z) == loops(y)


def test_calls_after_short_rows_are_computed_over_all_rows():
    case = Case((1, 24, 7, 7), 24, padding=(1, 1), groups=24, after="exp")
    assert nests(applied(case))["out"][-1] == (49, ForKind.VECTORIZED)
    assert nests(applied(dataclasses.replace(case, after="bias")))["out"][-1][0] == 7


def test_panels_of_several_small_images_are_copied_at_once():
    loops = nests(applied(Case((1, 64, 7, 7), 64, padding=(1, 1), groups=64)))
    panel = [extent for extent, _ in loops["padded_pad"]]
    assert panel[1] * panel[2] == 64 and panel[2] > 1
    assert panel[3:] == [9, 10]


def test_tiles_fit_the_registers():
    for registers in (8, 16, 32):
        for channels, rows, width in ((1, 7, 7), (64, 56, 56), (3, 1, 30), (512, 7, 7)):
            t = tile_of(channels, rows, width, 8, registers)
            sums = t.channels * t.rows * t.vectors
            assert sums + t.rows * t.vectors + 1 <= registers
            assert t.channels <= channels and t.rows <= rows
    assert tile_of(64, 56, 3, 8, 16).lanes == 4


def test_a_tile_that_the_second_cache_cannot_feed_has_fewer_vectors_and_more_channels():
    near, far = tile_of(64, 1, 3136, 16, 32), tile_of(64, 1, 3136, 16, 32, far=(1, 64 / 24))
    assert near.vectors > far.vectors > 1
    assert near.channels < far.channels


def test_blocks_divide():
    assert block_of(56, 2, 20) == 14
    assert block_of(7, 2, 4) == 7
    assert block_of(49, 1, 10) == 7
    assert block_of(13, 1, 0.5) == 1


def blocks_of(fn):
    sch = Schedule(fn)
    return [sch.get(b) for b in sch.get_child_blocks(sch.get_block("root"))]


def test_what_is_matched():
    found = match_convolution(
        blocks_of(Case((1, 12, 9, 9), 6, strides=(3, 2), groups=3).function())[-1]
    )
    assert found.strides == (2, 3) and found.group_size == 2 and not found.depthwise
    assert [v.name for v in found.taps] == ["v_rh", "v_rw"]
    depthwise = Case((1, 6, 9, 9), 6, groups=6).function()
    assert match_convolution(blocks_of(depthwise)[-1]).depthwise
    a, b = (te.placeholder((32, 32), "float32", name=n) for n in "AB")
    k = te.reduce_axis((0, 32), "k")
    product = te.compute((32, 32), lambda i, j: te.sum(a[i, k.var] * b[k.var, j], [k]), name="C")
    assert match_convolution(blocks_of(te.create_prim_func([a, b, product]))[-1]) is None
