"""The arithmetic of kernels, which profiles count: what was asked for, not what a schedule adds."""

import pytest

from relaxvm import IRModule, te
from relaxvm.base import CpuModel
from relaxvm.target.llvm.flops import NOTED, kernel_flops, note_flops
from relaxvm.target.llvm.signature import signature_of
from relaxvm.tir import Var
from relaxvm.tir.schedule.plans import DefaultSchedule


def product(n, m, k):
    """`a @ b` for a [n, k] and b [k, m]."""
    a, b = te.placeholder((n, k), name="a"), te.placeholder((k, m), name="b")
    r = te.reduce_axis((0, k), name="r")
    return te.create_prim_func(
        [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")]
    )


def flops(fn):
    return kernel_flops(fn, signature_of(fn))


def scheduled(mod):
    return DefaultSchedule(cpu=CpuModel())(mod)


@pytest.mark.parametrize("sizes", [(130, 100, 70), (5, 7, 101), (64, 64, 64)])
def test_padding_of_tiles_is_no_arithmetic_of_the_kernel(sizes):
    before = IRModule({"main": product(*sizes)})
    after = note_flops(before, scheduled(before))
    assert flops(after["main"]) == flops(before["main"]) == 2 * sizes[0] * sizes[1] * sizes[2]
    if after["main"] is not before["main"]:
        assert after["main"].get_attr(NOTED) is not None


def test_a_formula_is_noted_by_the_names_of_its_symbols():
    before = IRModule({"main": product(Var("n", "int64"), 100, 70)})
    after = note_flops(before, scheduled(before))
    assert flops(after["main"]) == flops(before["main"]) == ("$n", 0, "max", 14000, "*")


def test_what_no_schedule_changed_has_no_note():
    before = IRModule({"main": product(2, 2, 2)})
    assert note_flops(before, before) is before


@pytest.mark.parametrize(
    "note", ["", "{", "[" * 100_000, '["$m"]', '["+"]', "1.5", str(1 << 70), 7]
)
def test_a_note_that_does_not_fit_is_passed_over(note):
    fn = product(3, 4, 5).with_attr(NOTED, note)
    assert flops(fn) == 120
