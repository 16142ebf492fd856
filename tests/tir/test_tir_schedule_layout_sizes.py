"""What `pad_einsum` and `transform_layout` know of the sizes of axes."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_helpers import check_same

from relaxvm import te
from relaxvm.base import DataType, ScheduleError
from relaxvm.ir import Max, walk
from relaxvm.tir import IndexMap, Schedule, interpret


def root_of(sch):
    return sch.get(sch.get_block("root"))


def test_padding_ends_with_what_is_read_of_an_input_of_unknown_size():
    n = te.var("n", dtype="int64")
    size = n * 2 + 2  # of which a window of 3 by steps of 2 leaves one element over
    x, w = te.placeholder((size,), "float32", name="X"), te.placeholder((3,), "float32", name="W")
    r = te.reduce_axis((0, 3), "r")
    conv = te.compute((n,), lambda i: te.sum(x[i * 2 + r.var] * w[r.var], [r]), name="conv")
    sch = Schedule(te.create_prim_func([x, w, conv]))
    sch.pad_einsum(sch.get_block("conv"), [8, 1])
    (shape,) = (b.shape for b in root_of(sch).alloc_buffers if b.name == "X_pad")
    assert not any(isinstance(e, Max) for e in walk(shape[0]))
    rng = np.random.default_rng(0)
    for count in (1, 8, 9):
        given = [rng.standard_normal(k).astype("float32") for k in (2 * count + 2, 3)]
        got = np.zeros(count, "float32")
        interpret(next(iter(sch.mod.functions.values())), *given, got)
        want = [given[0][2 * i : 2 * i + 3] @ given[1] for i in range(count)]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_an_axis_that_is_split_and_joined_again_is_one_index():
    a = te.placeholder((8,), "float32", name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((4, 2), lambda i, j: b[i * 2 + j] * 2.0, name="C")
    fn = te.create_prim_func([a, c])
    sch = Schedule(fn)
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i: [i // 2, i % 2])
    (read,) = sch.get(sch.get_block("C")).reads
    axes = [axis.var for axis in sch.get(sch.get_block("C")).iter_vars]
    assert [r.min for r in read.region] == axes
    check_same(fn, next(iter(sch.mod.functions.values())))


def test_an_inverse_that_is_given_is_used():
    def forth(i, j):
        return i // 4, j, i % 4

    given = IndexMap.from_func(forth, inverse_index_map=lambda a, b, c: (c + a * 4, b))
    plain = IndexMap.from_func(forth)
    back = given.inverse([16, 3])
    assert [v.name for v in back.initial_indices] == ["a", "b", "c"]
    assert back.is_equivalent_to(plain.inverse([16, 3]))
    assert given.is_bijective([16, 3]) and given.widened(DataType("int64")).is_injective([16, 3])
    assert str(given.non_surjective_inverse([14, 3])[1]).count("14") == 1
    # One that only the user can give: what is swapped depends on the other index.
    swaps = IndexMap.from_func(
        lambda i, j: (i, j * 3 + i * (i + 1)),
        inverse_index_map=IndexMap.from_func(lambda a, b: (a, (b - a * (a + 1)) // 3)),
    )
    assert IndexMap.from_data(swaps.to_data()).is_injective([4, 5])
    assert [v.name for v in swaps.left_inverse([4, 5]).initial_indices] == ["a", "b"]


@pytest.mark.parametrize(
    ("back", "message"),
    [
        (lambda a, b: a * 4 + b + 1, "not shown to undo"),
        (lambda a, b: b * 4 + a, "not shown to undo"),
        (lambda a, b: (a, b), "takes 2 indices and gives 1"),
        (lambda a: a * 4, "wanted 2 indices"),
        (3, "inverse_index_map is an IndexMap or a function"),
    ],
)
def test_an_inverse_that_is_none_is_refused(back, message):
    with pytest.raises(ScheduleError, match=message):
        IndexMap.from_func(lambda i: (i // 4, i % 4), inverse_index_map=back).inverse([16])


def test_a_schedule_refuses_a_map_whose_inverse_is_none():
    x = te.placeholder((16,), "float32", name="X")
    fn = te.create_prim_func([x, te.compute((16,), lambda i: x[i] + 1.0, name="Y")])
    for back, fits in ((lambda a, b: a * 4 + b, True), (lambda a, b: a + b, False)):
        sch = Schedule(fn)
        index_map = IndexMap.from_func(lambda i: (i // 4, i % 4), inverse_index_map=back)
        if fits:
            sch.transform_block_layout(sch.get_block("Y"), index_map)
            check_same(fn, sch.mod["main"])
            continue
        with pytest.raises(ScheduleError, match="not shown to undo"):
            sch.transform_block_layout(sch.get_block("Y"), index_map)
