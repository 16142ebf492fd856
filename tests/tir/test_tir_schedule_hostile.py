"""Schedules of kernels in which little is allowed, and traces of unknown origin."""

import json
import random

import numpy as np
import pytest
from fuzz.hostile_kernels import KERNELS
from schedule_helpers import by_machine, chain, check, matmul

from relaxvm import tir
from relaxvm.script import from_source
from relaxvm.tir import Schedule, ScheduleError
from relaxvm.tir.schedule import Trace


def function(text):
    made = from_source(text)
    return made if isinstance(made, tir.PrimFunc) else made["main"]


def arrays_for(rows: int, columns: int, seed: int) -> list[np.ndarray]:
    """Two matrices of small whole numbers."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, (rows, columns)).astype("float32") for _ in range(2)]


# -- found by `fuzz.loops` -------------------------------------------------------------------------

PAIR = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    C = T.alloc_buffer((8,), "float32")
    {first}
    {second}
"""


def nest(name, body, loop="for i in range(8):", axis="T.axis.spatial(8, i)"):
    text = f'{loop}\n        with T.block("{name}"):\n            vi = {axis}\n'
    return text + "".join(f"            {line}\n" for line in body.split("\n"))


def pair(first, second):
    return function(PAIR.format(first=first, second=second))


def test_an_expression_does_not_move_into_a_block_that_writes_its_input():
    fn = pair(
        nest("P", "C[vi] = B[vi] * T.float32(2)"), nest("Q", "B[vi] = C[vi] + C[7 - vi] + A[vi]")
    )
    with pytest.raises(ScheduleError, match="where it would be computed, writes B, which it reads"):
        Schedule(fn).compute_inline("P")


def test_an_expression_does_not_move_where_its_input_is_written_before_the_next_iteration():
    second = """for t in range(2):
        for i in range(8):
            with T.block("Q"):
                vi = T.axis.spatial(8, i)
                A[vi] = A[vi] + C[vi]
        for i in range(8):
            with T.block("R"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]
"""
    fn = pair(nest("P", "C[vi] = B[vi] * T.float32(2)"), second)
    with pytest.raises(ScheduleError, match="block R writes B, which it reads, before block Q"):
        Schedule(fn).compute_inline("P")


def test_what_is_written_under_a_condition_is_not_copied_out():
    fn = pair(nest("P", "if A[vi] > T.float32(0):\n    B[vi] = A[vi]"), nest("Q", "A[vi] = B[vi]"))
    for step in (
        lambda s: s.reindex("P", ("write", 0)),
        lambda s: s.reindex_cache_write("P", 0, "local", lambda i: (i,)),
        lambda s: s.pad_einsum("P", [16]),
    ):
        with pytest.raises(ScheduleError, match="writes .*under a condition|no contraction"):
            step(Schedule(fn))


def test_a_padded_result_is_copied_out_where_it_was_written():
    fn = pair(
        nest("P", "C[vi] = T.float32(1)"),
        nest("Q", "B[vi] = A[vi] + C[7]", "for i in range(5):", "T.axis.spatial(5, i)"),
    )
    sch = Schedule(fn)
    sch.pad_einsum("Q", [4])
    arrays = [np.arange(8, dtype="float32"), np.ones(8, "float32")]
    check(fn, sch, [arrays])
    assert "for ax0 in range(5)" in sch.mod["main"].script()


def test_padding_reads_zeros_also_where_the_buffer_goes_on():
    text = """
@T.prim_func
def main(
    A: T.Buffer((4, 8), "float32"),
    B: T.Buffer((8, 3), "float32"),
    C: T.Buffer((4, 3), "float32"),
):
    for i, j, k in T.grid(4, 3, 6):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
    fn = function(text)
    sch = Schedule(fn)
    sch.pad_einsum("C", [1, 1, 8])
    rng = np.random.default_rng(0)
    arrays = [rng.random(s).astype("float32") for s in ((4, 8), (8, 3), (4, 3))]
    check(fn, sch, [arrays])


def test_a_padding_is_padded():
    text = """
@T.prim_func
def main(A: T.Buffer((6,), "float32"), B: T.Buffer((8,), "float32")):
    C = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("P"):
            vi = T.axis.spatial(8, i)
            C[vi] = T.if_then_else(vi < 6, A[vi], T.float32(0), dtype="float32")
    for i in range(8):
        with T.block("Q"):
            vi = T.axis.spatial(8, i)
            B[vi] = C[vi]
"""
    fn = function(text)
    sch = Schedule(fn)
    sch.pad_einsum("P", [5])
    check(fn, sch, [[np.arange(6, dtype="float32"), np.zeros(8, "float32")]])


def test_padding_refuses_an_index_that_would_go_below_zero():
    fn = pair(nest("P", "C[vi] = A[7 - vi]"), nest("Q", "B[vi] = C[vi]"))
    with pytest.raises(ScheduleError, match="not shown to stay at or above 0"):
        Schedule(fn).pad_einsum("P", [3])


def test_padding_refuses_to_divide_by_its_zeros():
    with pytest.raises(ScheduleError, match="which would be 0 in the padding"):
        Schedule(function(KERNELS["division"])).pad_einsum("P", [4])


def test_the_init_of_a_factored_reduction_names_no_reduce_axis():
    text = """
@T.prim_func
def main(A: T.Buffer((4, 6), "float32"), B: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 6):
        with T.block("P"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = A[vi, vk]
            B[vi] = B[vi] + A[vi, vk]
"""
    fn = function(text)
    sch = Schedule(fn)
    sch.rfactor(sch.get_loops("P")[1], 0)
    check(fn, sch, [[np.arange(24, dtype="float32").reshape(4, 6), np.zeros(4, "float32")]])


def test_a_reduction_that_is_run_twice_keeps_its_init_inside():
    sch = Schedule(function(KERNELS["twice_reduce"]))
    with pytest.raises(ScheduleError, match="loop t runs the same reduction of block P more than"):
        sch.blockize(sch.get_loops("P")[0])


def test_a_producer_is_not_begun_again_for_a_block_that_overwrites_its_own_input():
    sch = Schedule(function(KERNELS["overwritten_input"]))
    with pytest.raises(ScheduleError, match="other elements|is no longer|updating"):
        sch.compute_at("P", sch.get_loops("Q")[0])


def test_a_consumer_is_not_run_by_several_threads_at_once():
    text = """
@T.prim_func
def main(
    A: T.Buffer((8, 16), "float32"),
    D: T.Buffer((8,), "float32"),
    E: T.Buffer((4,), "float32"),
):
    B = T.alloc_buffer((8, 16), "float32")
    for t in T.parallel(4):
        for i, j in T.grid(8, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        with T.block("E"):
            vt = T.axis.spatial(4, t)
            E[vt] = B[vt, 0]
    for i, j in T.grid(8, 16):
        with T.block("D"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                D[vi] = T.float32(0)
            D[vi] = D[vi] + B[vi, vj]
"""
    sch = Schedule(function(text))
    with pytest.raises(ScheduleError, match="by several iterations of loop t at the same time"):
        sch.reverse_compute_at("D", sch.get_loops("B")[0])


NESTED = """
@T.prim_func
def main(A: T.Buffer((6, 4), "float32"), B: T.Buffer((6, 4), "float32")):
    C = T.alloc_buffer((6, 4), "float32")
    for i in range(6):
        with T.block("outer"):
            vo = T.axis.spatial(6, i)
            for j in range(4):
                with T.block("P"):
                    vi = T.axis.spatial(6, vo)
                    vj = T.axis.spatial(4, j)
                    C[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(6, 4):
        with T.block("Q"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj]
"""


@pytest.mark.parametrize("pad_value", [None, 0, lambda i, j, k: i + j])
def test_a_layout_changes_in_nested_blocks(pad_value):
    fn = function(NESTED)
    sch = Schedule(fn)
    sch.transform_layout("P", ("write", 0), lambda i, j: (i, j // 3, j % 3), pad_value=pad_value)
    arrays = arrays_for(6, 4, 0)[:2]
    check(fn, sch, [arrays])
    check(fn, sch, [arrays], by_machine)


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.cache_read("P", 0, "local"),
        lambda s: s.cache_read("P2", 0, "local"),
        lambda s: s.cache_write("P", 0, "local"),
        lambda s: s.cache_write("Q", 0, "local"),
        lambda s: s.transform_layout("P", ("write", 0), lambda i, j: (j, i)),
        lambda s: s.unsafe_set_dtype("P", 0, "float64"),
        lambda s: s.merge(s.get_loops("P")[0], s.get_loops("P2")[0]),
    ],
    ids=range(7),
)
def test_steps_in_nested_blocks(step):
    fn = function(KERNELS["three_deep"])
    sch = Schedule(fn)
    step(sch)
    check(fn, sch, [arrays_for(6, 4, 0)[:2]])


@pytest.mark.parametrize(
    "change",
    [
        ("", ""),
        ("for i, j in T.grid(6, 4)", "for i, j in T.grid(5, 4)"),
        ("B[vi, vj] = C", "B[vi, vj] = B[vi, vj] + C"),
    ],
)
def test_a_parameter_is_filled_only_where_nothing_is_lost(change):
    fn = function(NESTED.replace(*change) if change[0] else NESTED)
    sch = Schedule(fn)
    sch.transform_layout("Q", ("write", 0), lambda i, j: (i, j // 3, j % 3), pad_value=7)
    a = np.arange(24, dtype="float32").reshape(6, 4)
    wanted, got = np.ones((6, 4), "float32"), np.ones((6, 2, 3), "float32")
    tir.interpret(fn, a, wanted)
    tir.interpret(sch.mod["main"], a, got)
    assert np.array_equal(got.reshape(6, 6)[:, :4], wanted)
    assert (got[:, 1, 1:] == 7).all()


def test_statements_outside_of_blocks_are_seen():
    fn = function(KERNELS["bare_statements"])
    for step in (
        lambda s: s.cache_read("P", "B", "local"),
        lambda s: s.reindex("P", "B"),
        lambda s: s.cache_write("P", "A", "local"),
    ):
        with pytest.raises(ScheduleError, match="is used outside of blocks"):
            step(Schedule(fn))


def test_a_condition_around_a_block_is_seen():
    fn = function(KERNELS["if_block"])
    for step in (
        lambda s: s.cache_write("P", 0, "local"),
        lambda s: s.reindex("P", ("write", 0)),
        lambda s: s.compute_at("P", s.get_loops("Q")[0]),
    ):
        with pytest.raises(ScheduleError, match="IfThenElse|also writes"):
            step(Schedule(fn))
    sch = Schedule(function(KERNELS["if_reduce"]))
    with pytest.raises(ScheduleError, match="it stands under a IfThenElse"):
        sch.decompose_reduction("P", sch.get_loops("P")[0])


def test_a_range_that_is_read_is_not_read_beyond():
    sch = Schedule(function(KERNELS["data_bound"]))
    i, k = sch.get_loops("P")
    with pytest.raises(ScheduleError, match="only factors that divide can split it"):
        sch.split(i, [None, 3])
    sch.split(i, [None, 4])
    with pytest.raises(ScheduleError, match="the range of loop k changes"):
        sch.rfactor(k, 0)


def test_a_buffer_that_says_how_long_a_loop_runs_is_not_replaced():
    sch = Schedule(function(KERNELS["data_bound_change"]))
    with pytest.raises(ScheduleError, match="I says how long loop k runs"):
        sch.cache_inplace("S", 0, "local")


def test_a_block_that_uses_a_loop_itself_keeps_it():
    sch = Schedule(function(KERNELS["no_axes"]))
    with pytest.raises(ScheduleError, match="it uses loop i itself, not by way of an axis"):
        sch.transform_block_layout("P", lambda: ())


def test_domains_follow_their_loops():
    fn = function(KERNELS["triangle"])
    sch = Schedule(fn)
    i = sch.get_loops("P")[0]
    sch.split(i, [None, 2])
    rng = np.random.default_rng(0)
    check(fn, sch, [[rng.random((9, 9)).astype("float32") for _ in range(2)]])
    with pytest.raises(ScheduleError, match="the range of its axis vj changes with loop"):
        sch.blockize(sch.get_loops("P")[2])


# -- wrong arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.get_block(5), "get_block: name: wanted text, got int 5"),
        (lambda s: s.split(s.get_loops("B")[0], [2**40, None]), "fit the loop's int32"),
        (lambda s: s.split(s.get_loops("B")[0], [2**32 + 2, None]), "fit the loop's int32"),
        (lambda s: s.bind(s.get_loops("B")[0], 3), "thread_axis: wanted text"),
        (lambda s: s.storage_align("B", 0, "x", 4, 1), "axis: wanted a whole number"),
        (lambda s: s.storage_align("B", True, 0, 4, 1), "buffer_index: wanted a whole number"),
        (lambda s: s.set_scope("B", 0, 'a"b'), "a storage scope is a name"),
        (lambda s: s.cache_read("C", 0, ""), "a storage scope is a name"),
        (lambda s: s.annotate("B", "x", object()), "ann_val: wanted numbers, text"),
        (lambda s: s.annotate("B", 5, 1), "ann_key: wanted text"),
        (lambda s: s.sample_categorical([1], ["a"]), "probs: wanted a list of numbers"),
        (lambda s: s.sample_perfect_tile(s.get_loops("B")[0], 1 << 40), "wanted 1 to 64 factors"),
        (lambda s: s.split("root", [2]), "wanted a loop"),
        (lambda s: s.transform_layout("B", 3, lambda i, j: (j, i)), "a buffer is given as"),
        (lambda s: s.transform_layout("B", "B", 3), "wanted a function of indices"),
        (lambda s: s.unsafe_set_dtype("B", 0, "nothing"), "unknown dtype"),
        (lambda s: s.set_axis_separator("B", "B", [3]), "positions between the 2 dimensions"),
        (lambda s: s.reorder_block_iter_var("B", "ab"), "wanted a list of numbers"),
        (lambda s: s.decompose_padding("B", s.get_loops("B")[0]), "its value is no if_then_else"),
        (lambda s: s.get_size("n"), "has no size 'n'"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call, message):
    with pytest.raises(ScheduleError, match=message):
        call(Schedule(chain()))


# -- traces of unknown origin ----------------------------------------------------------------------


def tuned():
    sch = Schedule(matmul(32, 32, 32), seed=0)
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    a, b, e = sch.split(i, sch.sample_perfect_tile(i, 3, 8))
    x = sch.sample_categorical([2, 4, 8], [0.3, 0.3, 0.4])
    sch.annotate(c, "foo", [x, "a", {"b": 1}])
    j0, j1 = sch.split(j, [None, x * 2])
    sch.reorder(j0, b, e, j1)
    sch.cache_read(c, 0, "local", [c])
    sch.transform_layout(c, ("write", 0), lambda i, j: (i // 4, j, i % 4), pad_value=0)
    sch.enter_postproc()
    sch.compute_at(sch.get_block("A_local"), k)
    sch.decompose_reduction(c, k)
    sch.sample_compute_location(sch.get_block("C_init"))
    sch.parallel(a)
    return sch


JUNK = [
    *(None, True, -1, 0, 2**31, 2**63, 2**200, 1.5, float("nan"), float("inf"), "", "b0", "l1"),
    *("$n", "root", "inline", "../etc", [], [[]], [1, 2], ["Mul", "v1", 2], ["Add", 1, [2]], {}),
    *({"rv": "v1"}, {"dict": {}}, {"dict": 3}, {"rv": []}, {"a": 1}, [None], "x" * 10_000),
]


def places(data, path=()):
    yield path
    items = enumerate(data) if isinstance(data, list) else ()
    for key, value in data.items() if isinstance(data, dict) else items:
        yield from places(value, (*path, key))


def with_junk(data, path, junk):
    made = json.loads(json.dumps(data))
    if not path:
        return junk
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = junk
    return made


def feed(data):
    try:
        Trace.apply_json_to_schedule(data, Schedule(matmul(32, 32, 32), error_render_level="fast"))
    except ScheduleError:
        pass


def spoiled(count, seed):
    data = tuned().trace.as_json()
    rng = random.Random(seed)
    every = list(places(data))
    for _ in range(count):
        path, junk = rng.choice(every), rng.choice(JUNK)
        try:
            feed(with_junk(data, path, junk))
        except Exception as error:
            error.add_note(f"{path}: {junk!r}")
            raise


def test_spoiled_traces_are_refused():
    spoiled(40, 0)


@pytest.mark.slow
def test_many_spoiled_traces_are_refused():
    spoiled(600, 1)


def test_a_layout_of_no_buffer_is_refused():
    sch = Schedule(matmul())
    sch.transform_layout("C", ("write", 0), lambda i, j: (j, i))
    data = sch.trace.as_json()
    data[0][-1][1]["buffer"] = []
    with pytest.raises(ScheduleError, match="a buffer is given as"):
        Trace.apply_json_to_schedule(data, Schedule(matmul()))


def nested(depth):
    made = 2
    for _ in range(depth):
        made = [made]
    return made


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe",
        "{{{",
        "[" * 100_000 + "]" * 100_000,
        "[[],[[" + "9" * 5000 + ",1]]]",
        nested(100_000),
        object(),
        [[["get_block", {"name": "C"}, ["b0"]], ["annotate", {}, []]], []],
        [[["get_block", {"name": "C"}, ["b0"]]], [[0, 1]]],
        [[["get_block", {"name": "C"}, ["b0"]]], [[7, 1]]],
        [
            [
                ["get_block", {"name": "C"}, ["b0"]],
                ["annotate", {"block_or_loop": "b0", "ann_key": "k", "ann_val": nested(1000)}, []],
            ],
            [],
        ],
        [[["sample_categorical", {"candidates": [1], "probs": [1.0]}, ["v0"]]], [[0, 1], [0, 1]]],
    ],
    ids=range(11),
)
def test_what_is_no_trace_is_refused(data):
    with pytest.raises(ScheduleError):
        Trace.apply_json_to_schedule(data, Schedule(matmul()))


def test_a_python_trace_names_sizes_maps_and_lists_of_one():
    fn = function(
        """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, n), "float32")
    B = T.match_buffer(b, (n, n), "float32")
    C = T.alloc_buffer((n, n), "float32")
    for i, j in T.grid(n, n):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj]
    for i, j in T.grid(n, n):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj]
"""
    )
    sch = Schedule(fn)
    n = fn.buffers[0].shape[0]
    i, _ = sch.get_loops("C")
    (d,) = sch.get_consumers("C")
    sch.split(i, [None, n])
    sch.transform_layout(
        "C", ("write", 0), lambda i, j: (i // 4, j, i % 4), pad_value=lambda a, b, c: 0.5
    )
    sch.get_loops(d)
    check(fn, sch, [[np.arange(25, dtype="float32").reshape(5, 5), np.zeros((5, 5), "float32")]])
    text = sch.trace.as_python()
    assert text[0] == "size_n = sch.get_size('n')"
    assert any(line.startswith("b4, = sch.get_consumers(") for line in text)


def test_a_python_trace_names_the_sizes_of_its_index_maps():
    fn = function(
        """
@T.prim_func
def main(b: T.handle):
    n = T.int32()
    B = T.match_buffer(b, (5, n), "float32")
    for i, j in T.grid(5, n):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.float32(1)
"""
    )
    sch = Schedule(fn)
    n = fn.buffers[0].shape[1]
    sch.transform_block_layout("B", lambda i, j: (i * n + j,))
    check(fn, sch, [[np.zeros((5, 3), "float32")]])
    assert sch.trace.as_python()[0] == "size_n = sch.get_size('n')"


def test_a_view_of_a_view_is_the_memory_that_is_used_as_well():
    fn = from_source(
        """
        @T.prim_func
        def main(a: T.handle, b: T.handle):
            A = T.match_buffer(a, (8,), "float32")
            B = T.match_buffer(b, (8,), "float32")
            with T.block("outer"):
                T.reads(B[0:8], A[0:8])
                T.writes(A[0:8], B[0:8])
                V = T.match_buffer(A[0:8], (8,), "float32", offset_factor=1)
                with T.block("middle"):
                    T.reads(B[0:8], V[0:8])
                    T.writes(V[0:8], B[0:8])
                    W = T.match_buffer(V[0:8], (8,), "float32", offset_factor=1)
                    for i in range(8):
                        with T.block("write"):
                            vi = T.axis.spatial(8, i)
                            W[vi] = B[vi] + T.float32(1)
                    for i in range(8):
                        with T.block("read"):
                            vi = T.axis.spatial(8, i)
                            B[vi] = A[7 - vi] * T.float32(2)
        """
    )
    sch = tir.Schedule(fn)
    with pytest.raises(ScheduleError, match="V is a view of A, which is used as well"):
        sch.compute_at(sch.get_block("write"), sch.get_loops(sch.get_block("read"))[0])
