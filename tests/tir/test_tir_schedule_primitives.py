"""Primitives with few cases: `cache_index`, `sample_partitioned_tile`, `blockize` of a list."""

import numpy as np
import pytest
from schedule_helpers import arguments, by_machine, chain, check, matmul

from relaxvm.script import from_source
from relaxvm.tir import Schedule, ScheduleError

GATHER = """# from relaxvm.script import tir as T
@T.prim_func
def main(A: T.Buffer((3, 40), "float32"), B: T.Buffer((3, 16, 16), "float32")):
    for c, i, j in T.grid(3, 16, 16):
        with T.block("B"):
            vc, vj = T.axis.remap("SS", [c, j])
            vi = T.axis.spatial({first}, i + {shift})
            B[vc, vi - {shift}, vj] = (
                A[vc, vi // 4 + vj // 4]
                + A[vc, vi // 4 + vj // 4]
                * A[vc, T.min(T.cast(T.float32(0.3) * T.cast(vi, "float32"), "int32"), 39)]
            )
"""


@pytest.mark.parametrize("threshold", [0, 1])
@pytest.mark.parametrize("shift", [0, 2])
def test_indices_are_computed_once(shift, threshold):
    fn = from_source(GATHER.format(shift=shift, first=16 if shift == 0 else "(2, 18)"))
    sch = Schedule(fn)
    blocks = sch.cache_index("B", "global", threshold)
    assert len(blocks) == (1 if threshold else 2)
    sch.vectorize(sch.get_loops(blocks[0])[-1])
    check(fn, sch, [arguments(fn, np.random.default_rng(0))])
    check(fn, sch, [arguments(fn, np.random.default_rng(0))], by_machine)


def test_nothing_to_keep_is_said():
    with pytest.raises(ScheduleError, match="computes nothing from its axes"):
        Schedule(chain()).cache_index("B", "local")
    with pytest.raises(ScheduleError, match="a storage scope is a name"):
        Schedule(chain()).cache_index("B", "no scope")


def test_what_is_read_or_has_effects_is_not_kept():
    fn = from_source("""# from relaxvm.script import tir as T
@T.prim_func
def main(A: T.Buffer((8,), "float32"), I: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[T.max(T.min(I[vi], 7), 0)]
""")
    with pytest.raises(ScheduleError, match="computes nothing from its axes"):
        Schedule(fn).cache_index("B", "local")


@pytest.mark.parametrize("seed", range(10))
def test_the_inner_part_of_a_tile_is_a_multiple(seed):
    sch = Schedule(matmul(48, 7, 1), seed=seed)
    i, j, k = sch.get_loops("C")
    for position in range(4):
        factors = [sch.get(f) for f in sch.sample_partitioned_tile(i, 4, position, 6)]
        assert np.prod(factors) == 48 and np.prod(factors[position:]) % 6 == 0
    assert np.prod([sch.get(f) for f in sch.sample_partitioned_tile(j, 3, 1, 4)]) == 7
    assert [sch.get(f) for f in sch.sample_partitioned_tile(k, 1)] == [1]
    sch.split(i, sch.sample_partitioned_tile(i, 3, 1, 4))
    check(matmul(48, 7, 1), sch, [arguments(matmul(48, 7, 1), np.random.default_rng(0))])


@pytest.mark.parametrize("wrong", [(3, 4, 1), (3, -1, 1), (3, 1, 0), (0, 0, 1), (2, 2, 4)])
def test_wrong_parts_of_a_tile_are_refused(wrong):
    sch = Schedule(matmul(48, 7, 1))
    with pytest.raises(ScheduleError):
        sch.sample_partitioned_tile(sch.get_loops("C")[0], *wrong)


def test_a_decision_of_a_tile_is_taken():
    sch = Schedule(matmul(48, 7, 1))
    i = sch.get_loops("C")[0]
    factors = sch.sample_partitioned_tile(i, 3, 1, 4, decision=[2, 4, 6])
    assert [sch.get(f) for f in factors] == [2, 4, 6]


ROWS = """# from relaxvm.script import tir as T
@T.prim_func
def main(A: T.Buffer((6, 8)), B: T.Buffer((6, 8)), C: T.Buffer((6, 8))):
    for m in range(6):
        for j in range(8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [m, j])
                B[vi, vj] = A[vi, vj]
        for j in range(4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [m, j])
                C[vi, vj + 4] = B[vi, 7 - vj] * T.float32(3)
        for j in range(4):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [m, j])
                C[vi, vj] = T.float32(3)
"""


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("names", [["B", "C"], ["C", "D"], ["B", "C", "D"], ["D"], ["C", "B"]])
def test_blocks_become_one(names, unit):
    fn = from_source(ROWS)
    sch = Schedule(fn, debug_mask="all")
    made = sch.blockize(names, unit)
    assert {sch.get(b).name_hint for b in sch.get_child_blocks(made)} == set(names)
    assert len(sch.get_loops(made)) == 1
    check(fn, sch, [arguments(fn, np.random.default_rng(0))])


def test_blocks_of_the_whole_scope_become_one():
    fn = chain()
    sch = Schedule(fn)
    made = sch.blockize(["B", "C", "D"])
    assert sch.get_loops(made) == []
    sch.split(sch.get_loops("C")[0], [None, 2])
    check(fn, sch, [arguments(fn, np.random.default_rng(0))])


def test_blocks_that_do_not_stand_together_do_not_become_one():
    sch = Schedule(from_source(ROWS))
    for names in (["B", "D"], []):
        with pytest.raises(ScheduleError, match="one after the other|at least one"):
            sch.blockize(names)
    sch = Schedule(matmul())
    copy = sch.cache_read("C", 0, "local")
    sch.compute_at(copy, sch.get_loops("C")[2])
    with pytest.raises(ScheduleError, match="moves reduce axes"):
        sch.blockize([copy, "C"])
