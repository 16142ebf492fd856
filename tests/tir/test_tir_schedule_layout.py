"""Layouts: index maps in every form, padding of temporaries and parameters, axis separators."""

import numpy as np
import pytest
from schedule_helpers import arguments, by_machine, check

from relaxvm import te, tir
from relaxvm.script import from_source
from relaxvm.tir import IndexMap, Schedule, ScheduleError

COPIES = """# from relaxvm.script import tir as T
@T.prim_func
def main(A: T.Buffer(({n},), "{dtype}"), C: T.Buffer(({n},), "{dtype}")):
    B = T.alloc_buffer(({n},), "{dtype}")
    for i in range({n}):
        with T.block("B"):
            vi = T.axis.spatial({n}, i)
            B[vi] = A[vi]
    for i in range({n}):
        with T.block("C"):
            vi = T.axis.spatial({n}, i)
            C[vi] = B[{n} - 1 - vi]
"""


def copies(n="14", dtype="int32"):
    return from_source(COPIES.format(n=n, dtype=dtype))


def tiles(i):
    return i // 4, i % 4


def sampled(sch):
    _, b, c = sch.sample_perfect_tile(sch.get_loops("B")[0], 3, decision=[2, 7, 1])
    return lambda i: (i // (b * c), i % (b * c))


MAPS = {
    "function": lambda sch: tiles,
    "text": lambda sch: "lambda i: (i // 4, i % 4)",
    "text_of_one": lambda sch: "lambda i: [0 * 2 + i]",
    "index_map": lambda sch: IndexMap.from_func(tiles),
    "wide_index_map": lambda sch: IndexMap.from_func(tiles, index_dtype="int64"),
    "star": lambda sch: lambda *i: [i[0] // 4, i[0] % 4],
    "last_by_name": lambda sch: lambda *i, k: [*i, k // 4, k % 4],
    "sampled": sampled,
    "separator": lambda sch: lambda i: [i // 4, te.AXIS_SEPARATOR, i % 4],
}


@pytest.mark.parametrize("n", ["14", "T.int64(14)"])
@pytest.mark.parametrize("name", MAPS)
def test_index_maps_in_every_form(name, n):
    fn = copies(n)
    sch = Schedule(fn)
    index_map = MAPS[name](sch)
    sch.transform_layout("B", "B", index_map, pad_value=None if "text_of_one" in name else 3)
    if name != "wide_index_map":
        assert "Cast" not in sch.mod["main"].script()
    check(fn, sch, [arguments(fn, np.random.default_rng(0))])


@pytest.mark.parametrize(
    "text",
    [
        "i // 4",
        "lambda i: __import__('os')",
        "lambda i: i.dtype",
        "lambda i: (j, i)",
        "lambda *i: i",
        "lambda i=3: i",
        "lambda i: i ** 2",
        "lambda i: 1.5",
        "lambda i: " + "-" * 5000 + "i",
        "lambda i: (",
        "lambda i, j: (i, j)",
    ],
)
def test_text_that_is_no_index_map_is_refused(text):
    with pytest.raises(ScheduleError, match="index.map"):
        Schedule(copies()).transform_layout("B", "B", text)


@pytest.mark.parametrize("value", [0, 7, None, np.int32(5), lambda i, j: i + j])
def test_padding_changes_no_result(value):
    fn = copies()
    sch = Schedule(fn)
    sch.transform_layout("B", "B", tiles, pad_value=value)
    check(fn, sch, [arguments(fn, np.random.default_rng(0))], by_machine)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int32", 0.5),
        ("int8", 300),
        ("int32", tir.IntImm("int8", 0)),
        ("float32", tir.FloatImm("float16", 0.0)),
        ("float32", np.float64(0)),
        ("float32", "zero"),
        ("int32", lambda i, j: (i, j)),
    ],
)
def test_padding_of_another_dtype_is_refused(dtype, value):
    with pytest.raises(ScheduleError):
        Schedule(copies(dtype=dtype)).transform_layout("B", "B", tiles, pad_value=value)


@pytest.mark.parametrize("value", [9, lambda i, j: i * 10 + j])
def test_padding_of_a_result_is_what_was_asked_for(value):
    fn = copies()
    sch = Schedule(fn)
    sch.transform_layout("C", "C", tiles, pad_value=value)
    a, c = np.arange(14, dtype="int32"), np.zeros((4, 4), "int32")
    tir.interpret(sch.mod["main"], a, c)
    assert np.array_equal(c.ravel()[:14], a[::-1])
    assert [int(x) for x in c[3, 2:]] == ([9, 9] if value == 9 else [32, 33])


def test_a_parameter_may_have_places_that_nobody_uses_if_the_caller_says_so():
    for buffer, block in (("A", "B"), ("C", "C")):
        sch = Schedule(copies())
        with pytest.raises(ScheduleError, match="leaves elements of the parameter"):
            sch.transform_layout(block, buffer, tiles)
        sch.transform_layout(block, buffer, tiles, assume_injective_transform=True)
        a, c = np.arange(14, dtype="int32"), np.zeros(14, "int32")
        mine = [np.resize(x, (4, 4)) if n == buffer else x for n, x in (("A", a), ("C", c))]
        tir.interpret(sch.mod["main"], *mine)
        assert np.array_equal(mine[1].ravel()[:14], a[::-1])


def test_what_is_not_injective_is_refused_whatever_is_assumed():
    sch = Schedule(copies())
    with pytest.raises(ScheduleError, match="not shown to map different elements"):
        sch.transform_layout("B", "B", lambda i: i // 2, assume_injective_transform=True)


def test_symbolic_layouts_have_no_casts():
    fn = from_source("""# from relaxvm.script import tir as T
@T.prim_func
def main(b: T.handle, c: T.handle):
    n = T.int64()
    B = T.match_buffer(b, (T.int64(3), n), "float32")
    C = T.match_buffer(c, (T.int64(3), n), "float32")
    for i, j in T.grid(T.int64(3), n):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj]
""")
    n = fn.buffers[0].shape[1]
    for step in (
        lambda s: s.transform_layout("C", "C", lambda x, y: x * n + y),
        lambda s: s.transform_block_layout("C", lambda x, y: (x * n + y,)),
    ):
        sch = Schedule(fn)
        step(sch)
        assert "Cast" not in sch.mod["main"].script()


@pytest.mark.parametrize("buffer", ["A", "B", ("read", 0), ("write", 0)])
def test_axis_separators_of_every_buffer(buffer):
    fn = from_source(
        COPIES.format(n="14", dtype="int32")
        .replace("(14,)", "(2, 7)")
        .replace("B[vi] = A[vi]", "B[vi // 7, vi % 7] = A[vi // 7, vi % 7]")
        .replace("C[vi] = B[14 - 1 - vi]", "C[vi // 7, vi % 7] = B[1 - vi // 7, vi % 7]")
    )
    sch = Schedule(fn)
    sch.set_axis_separator("B", buffer, [1])
    marked = [
        b.name
        for b in (*sch.mod["main"].buffers, *sch.get(sch.get_block("root")).alloc_buffers)
        if b.axis_separators
    ]
    assert marked == (["A"] if buffer in ("A", ("read", 0)) else ["B"])
    check(fn, sch, [arguments(fn, np.random.default_rng(0))], by_machine)


def test_axis_separators_of_a_layout_are_kept():
    sch = Schedule(copies())
    sch.transform_layout("B", "B", lambda i: [i // 4, te.AXIS_SEPARATOR, i % 4], pad_value=0)
    assert sch.get(sch.get_block("B")).writes[0].buffer.axis_separators == (1,)


@pytest.mark.parametrize(
    "change", [{"axis_separators": "x"}, {"axis_separators": [1, "x"]}, {"more": 1}]
)
def test_index_maps_of_unknown_origin_are_read_strictly(change):
    data = IndexMap.from_func_with_separators(lambda i: [i // 4, te.AXIS_SEPARATOR, i % 4])[
        0
    ].to_data()
    assert IndexMap.from_data(data).axis_separators == (1,)
    with pytest.raises(ScheduleError):
        IndexMap.from_data({**data, **change})


def test_arrays_are_laid_out_by_a_map():
    values = np.arange(24, dtype="float32").reshape(6, 4)
    made = IndexMap.from_func(lambda i, j: [i // 4, j, i % 4]).map_ndarray(values).numpy()
    padded = np.concatenate([values, np.zeros((2, 4), "float32")])
    np.testing.assert_array_equal(made, padded.reshape(2, 4, 4).transpose(0, 2, 1))
