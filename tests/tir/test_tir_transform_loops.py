"""Passes over flat loops: flattening, vectorising, unrolling, simplifying, removing, intrinsics,
bound checks.
"""

from __future__ import annotations

import numpy as np
import pytest
from transform_helpers import check, parse

from relaxvm.base import PassError, TIRError
from relaxvm.ir import IRModule, PassContext, Ramp, walk
from relaxvm.tir import BufferStore, For, ForKind, SeqStmt, interpret
from relaxvm.tir.transform import (
    SCALAR_WORK,
    WRITES_OUT,
    WRITTEN_OUT,
    Apply,
    BindTarget,
    ConvertForLoopsToSerial,
    Filter,
    FlattenBuffer,
    InstrumentBoundCheckers,
    LowerIntrin,
    RemoveNoOp,
    Simplify,
    UnrollLoop,
    VectorizeLoop,
    lower_module,
)


def body_of(pass_, text):
    """The function after `pass_` (a pass or several)."""
    mod = IRModule({"main": parse(text)})
    for each in pass_ if isinstance(pass_, (list, tuple)) else [pass_]:
        mod = each(mod)
    return mod["main"]


def kinds(fn):
    return [n.kind for n in walk(fn) if isinstance(n, For)]


# -- FlattenBuffer ---------------------------------------------------------------------------------


def test_two_dimensions_become_one():
    check(
        FlattenBuffer(),
        """
def main(A: T.Buffer((16, 8), "float32")):
    for i, j in T.grid(16, 8):
        A[i, j] = T.float32(1)
""",
        """
def main(A: T.Buffer((16, 8), "float32")):
    A_1 = T.decl_buffer((T.int64(128),), "float32", data=A.data)
    for i, j in T.grid(16, 8):
        A_1[T.Cast("int64", i) * T.int64(8) + T.Cast("int64", j)] = T.float32(1)
""",
    )


def test_arithmetic_is_widened_only_where_it_cannot_wrap():
    fn = body_of(
        FlattenBuffer(),
        """
def main(A: T.Buffer((16,), "float32"), k: T.int32):
    for i in range(4):
        A[i * 4 + 3] = T.float32(1)
        A[k * 4 + 3] = T.float32(1)
""",
    )
    text = fn.script()
    assert 'A[T.Cast("int64", i) * T.int64(4) + T.int64(3)]' in text
    assert 'A[T.Cast("int64", k * 4 + 3)]' in text


def test_strides_and_scalars_are_flattened():
    fn = parse("""
def main(a: T.handle, b: T.handle):
    s = T.int32()
    A = T.match_buffer(a, (4, 4), "float32", strides=[s, 1])
    B = T.match_buffer(b, (), "float32")
    for i, j in T.grid(4, 4):
        B[()] = B[()] + A[i, j]
""")
    lowered = lower_module(IRModule({"main": fn}))["main"]
    big = np.arange(32, dtype="float32").reshape(4, 8)
    total = np.zeros((), "float32")
    interpret(lowered, big[:, :4], total)
    assert total == big[:, :4].sum()


# -- VectorizeLoop ---------------------------------------------------------------------------------


def flat(text):
    return body_of([FlattenBuffer(), VectorizeLoop()], text)


def test_statements_that_stay_serial_have_a_loop_variable_each():
    """A loop that becomes two, neither of which runs as vectors: what guards accesses wants to
    know each variable's range.
    """
    steps = [FlattenBuffer(), VectorizeLoop(), InstrumentBoundCheckers(force=True)]
    fn = body_of(
        steps,
        """
def main(A: T.Buffer((6,), "float32"), B: T.Buffer((6,), "float32"), n: T.int32):
    for i in T.vectorized(3):
        for j in range(n - i):
            A[i] = A[i] + T.float32(1)
        for j in range(n - i):
            B[i] = B[i] + T.float32(1)
""",
    )
    assert kinds(fn) == [ForKind.SERIAL] * 4
    assert len({n.loop_var for n in walk(fn) if isinstance(n, For)}) == 4


def test_a_vectorized_loop_becomes_ramps():
    fn = flat("""
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), x: T.float32):
    for i in T.vectorized(8):
        B[i] = A[i] + x
""")
    assert kinds(fn) == []
    assert any(isinstance(n, Ramp) and n.lanes == 8 for n in walk(fn))
    assert "T.Broadcast(x, 8)" in fn.script()


@pytest.mark.parametrize(
    "body",
    [
        "A[i + 1] = A[i]",  # an iteration reads what the one before wrote
        "A[0] = B[i]",  # all write the same place
        "A[i // 2] = B[i]",  # two write the same place
        "A[7 - i] = A[i]",
    ],
)
def test_a_loop_whose_iterations_depend_on_each_other_stays_serial(body):
    text = f"""
def main(A: T.Buffer((9,), "float32"), B: T.Buffer((8,), "float32")):
    for i in T.vectorized(8):
        {body}
"""
    fn = flat(text)
    assert kinds(fn) == [ForKind.SERIAL]
    start = np.arange(9, dtype="float32")
    want, got = start.copy(), start.copy()
    interpret(parse(text), want, start[:8].copy())
    interpret(fn, got, start[:8].copy())
    assert (got == want).all()


def in_vectors(text, bits=512, noalias=True):
    """A function, and what it is after all of lowering for a machine with vectors of `bits`."""
    fn = parse(text).with_attr({"tir.vector_bits": bits, "tir.noalias": noalias})
    return fn, lower_module(IRModule({"main": fn}))["main"]


@pytest.mark.parametrize("bits", [128, 512])
@pytest.mark.parametrize("width", [1, 2, 3, 7, 14, 30, 58, 64, 130, 250])
def test_short_loops_become_whole_vectors_of_which_the_last_overlaps(width, bits):
    """A padded row: its border, and the rows above and below that are all border."""
    inside = f"i >= 1 and i < 3 and j >= 1 and j < {width + 1}"
    fn, done = in_vectors(
        f"""
def main(A: T.Buffer((2, {width}), "float32"), B: T.Buffer((4, {width + 3}), "float32")):
    W = T.alloc_buffer((4, {width + 3}), "float32")
    for i in range(4):
        for j in range({width + 3}):
            W[i, j] = T.if_then_else({inside}, A[i - 1, j - 1], T.float32(0))
    for i in range(4):
        for j in range({width + 3}):
            B[i, j] = W[i, j]
""",
        bits,
    )
    lanes = {n.lanes for n in walk(done) if isinstance(n, Ramp)}
    assert lanes <= {2, 4, 8, 16}
    assert max(lanes) * 32 <= bits
    a = np.random.default_rng(0).random((2, width), "float32")
    want, got = (np.full((4, width + 3), 7, "float32") for _ in range(2))
    interpret(fn, a, want)
    interpret(done, a, got)
    assert (got == want).all()
    assert (got[1:3, 1 : width + 1] == a).all()


@pytest.mark.parametrize(
    ("body", "noalias"),
    [
        ("B[i] = A[i]", False),  # may be the same memory, and the second time another value
        ("B[i] = B[i] + A[i]", True),
        ("B[i] = A[i * 5]", True),
        ("B[i * 2] = A[i]", True),
        ("B[i] = T.exp(A[i])", True),
    ],
)
def test_loops_that_repeat_no_iteration_stay(body, noalias):
    _, done = in_vectors(
        f"""
def main(A: T.Buffer((150,), "float32"), B: T.Buffer((60,), "float32")):
    for i in range(30):
        {body}
""",
        noalias=noalias,
    )
    assert kinds(done) == [ForKind.SERIAL]
    assert not any(isinstance(n, Ramp) for n in walk(done))


def test_memory_under_another_name_is_not_written_twice():
    fn, done = in_vectors("""
def main(x: T.Buffer((30,), "float32"), y: T.Buffer((30,), "float32")):
    a = T.allocate([30], "float32", "global")
    A = T.Buffer((30,), "float32", data=a)
    q: T.handle("float32") = a
    B = T.Buffer((30,), "float32", data=q)
    for i in range(30):
        A[i] = x[i]
    for i in range(30):
        A[i] = B[i] * T.float32(2)
    for i in range(30):
        y[i] = A[i]
""")
    start = np.arange(30, dtype="float32")
    for function in (fn, done):
        got = np.zeros(30, "float32")
        interpret(function, start, got)
        assert (got == 2 * start).all()


def test_loops_of_nearly_as_many_iterations_become_vectors_too():
    """Columns by phases: one of them has a zero more in front, the other one behind."""
    fn, done = in_vectors("""
def main(A: T.Buffer((80,), "float32"), B: T.Buffer((2, 41), "float32")):
    for p in range(2):
        for j in range(41):
            B[p, j] = T.if_then_else(
                j * 2 + p >= 1 and j * 2 + p < 81, A[j * 2 + p - 1], T.float32(0)
            )
""")
    assert kinds(done) == [ForKind.SERIAL]
    a = np.random.default_rng(0).random(80, "float32")
    want, got = (np.full((2, 41), 7, "float32") for _ in range(2))
    interpret(fn, a, want)
    interpret(done, a, got)
    assert (got == want).all()


def test_a_parallel_loop_remembers_how_many_scalars_it_stored():
    _, done = in_vectors("""
def main(A: T.Buffer((8, 58), "float32"), B: T.Buffer((8, 3, 58), "float32")):
    for i in T.parallel(8):
        for k, j in T.grid(3, 58):
            B[i, k, j] = A[i, j]
""")
    (loop,) = (n for n in walk(done) if isinstance(n, For) and n.kind == ForKind.PARALLEL)
    assert int(loop.annotations[SCALAR_WORK]) == 3 * 58


def test_results_in_odd_vectors_are_written_in_whole_ones():
    _, done = in_vectors(
        """
def main(A: T.Buffer((3, 16), "float32"), B: T.Buffer((3, 14), "float32")):
    for i in range(3):
        for j in T.vectorized(14):
            B[i, j] = T.max(A[i, j], T.float32(0))
""",
        256,
    )
    assert {n.lanes for n in walk(done) if isinstance(n, Ramp)} == {8}
    a = np.random.default_rng(0).normal(size=(3, 16)).astype("float32")
    got = np.zeros((3, 14), "float32")
    interpret(done, a, got)
    assert (got == np.maximum(a[:, :14], 0)).all()


def test_statements_without_vector_form_run_lane_by_lane():
    text = """
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in T.vectorized(8):
        if i % 2 == 0:
            B[i] = A[i]
        A[i] = A[i] + T.float32(1)
"""
    fn = flat(text)
    assert kinds(fn) == [ForKind.SERIAL]
    assert any(isinstance(n, Ramp) for n in walk(fn))
    a, b = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    interpret(fn, a, b)
    assert list(b) == [0, 0, 2, 0, 4, 0, 6, 0]
    assert list(a) == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("condition", "lanes"),
    [
        ("i * 8 + j < 25", {8, 1}),
        ("i * 8 + j <= 29", {8, 6}),
        ("39 > i * 8 + j and k > 0", {8, 7}),
        ("k > 0 and j < 3 and i > 1", {3}),
        ("i * 8 + j < 21 and A[0] > T.float32(0)", set()),
    ],
)
def test_a_bound_that_ends_in_a_vector_leaves_it_fewer_lanes(condition, lanes):
    text = f"""
def main(A: T.Buffer((40,), "float32"), B: T.Buffer((40,), "float32"), k: T.int32):
    for i in range(5):
        for j in T.vectorized(8):
            if {condition}:
                B[i * 8 + j] = A[i * 8 + j] + T.float32(1)
"""
    fn = Simplify()(IRModule({"main": flat(text)}))["main"]
    stores = [n.indices[0].dtype.lanes for n in walk(fn) if isinstance(n, BufferStore)]
    assert set(stores) == (lanes or {1})
    a = np.arange(40, dtype="float32")
    for k in (0, 1):
        want, got = np.zeros(40, "float32"), np.zeros(40, "float32")
        interpret(parse(text), a, want, k)
        interpret(fn, a, got, k)
        np.testing.assert_array_equal(want, got)


def test_guarded_loads_are_not_made_unconditional():
    fn = flat("""
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((8,), "float32")):
    for i in T.vectorized(8):
        B[i] = T.if_then_else(i < 4, A[i], T.float32(7))
""")
    assert kinds(fn) == [ForKind.SERIAL]
    b = np.zeros(8, "float32")
    interpret(fn, np.arange(4, dtype="float32"), b)
    assert list(b) == [0, 1, 2, 3, 7, 7, 7, 7]


def test_conditions_that_all_lanes_share_are_decided():
    text = """
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((20,), "float32"), k: T.int32):
    for i in T.serial(2):
        for j in T.vectorized(8):
            B[i * 8 + j + 2] = T.if_then_else(
                i * 8 + j + 2 >= 2 and i * 8 + j < 16 and k > 0, A[i * 8 + j], T.float32(0)
            )
    for j in T.vectorized(2):
        B[j] = T.if_then_else(j >= 2, A[j - 2], T.float32(1))
"""
    fn = flat(text)
    made = VectorizeLoop()(IRModule({"main": fn}))["main"].script()
    assert "T.if_then_else(k > 0, A" in made.replace("_1", "")
    assert "T.Broadcast(T.float32(1), 2)" in made
    assert "T.vectorized" not in made and made.count("range(") == 1


@pytest.mark.parametrize(
    ("condition", "vectors"),
    [
        ("i * 8 + j < 24", True),
        ("i * 8 + j <= 23", True),
        ("24 > i * 8 + j", True),
        ("i * 4 + j < 22", False),
        ("i * 8 + j * 2 < 24", False),
    ],
)
def test_bounds_of_whole_vectors_are_conditions_on_the_first_lane(condition, vectors):
    text = f"""
def main(A: T.Buffer((40,), "float32"), B: T.Buffer((40,), "float32")):
    for i in range(5):
        for j in T.vectorized(8):
            if {condition}:
                B[i * 8 + j] = A[i * 8 + j] + T.float32(1)
"""
    fn = flat(text)
    assert any(isinstance(n, Ramp) for n in walk(fn)) == vectors
    a, b, want = np.arange(40, dtype="float32"), np.zeros(40, "float32"), np.zeros(40, "float32")
    interpret(fn, a, b)
    interpret(parse(text), a, want)
    np.testing.assert_array_equal(b, want)


def test_too_long_and_symbolic_loops_stay_serial():
    assert kinds(
        flat("""
def main(A: T.Buffer((1024,), "float32")):
    for i in T.vectorized(1024):
        A[i] = T.float32(1)
""")
    ) == [ForKind.SERIAL]


def test_vectorizing_can_be_turned_off():
    fn = body_of(
        [FlattenBuffer(), VectorizeLoop(enable_vectorize=False)],
        """
def main(A: T.Buffer((8,), "float32")):
    for i in T.vectorized(8):
        A[i] = T.float32(1)
""",
    )
    assert kinds(fn) == [ForKind.SERIAL]


def test_inner_loops_stay_around_vector_statements():
    fn = flat("""
def main(A: T.Buffer((4, 8), "float32")):
    for i in T.vectorized(4):
        for j in range(8):
            A[i, j] = T.float32(1) + A[i, j]
""")
    assert kinds(fn) == [ForKind.SERIAL]
    assert any(isinstance(n, Ramp) for n in walk(fn))


# -- UnrollLoop ------------------------------------------------------------------------------------


def test_unrolled_loops_are_written_out():
    check(
        UnrollLoop(),
        """
def main(A: T.Buffer((8,), "float32")):
    for i in T.unroll(3):
        A[i] = T.float32(1)
""",
        """
def main(A: T.Buffer((8,), "float32")):
    A[0] = T.float32(1)
    A[1] = T.float32(1)
    A[2] = T.float32(1)
""",
    )


def test_each_copy_gets_its_own_variables():
    fn = body_of(
        UnrollLoop(),
        """
def main(A: T.Buffer((8,), "float32")):
    for i in T.unroll(2):
        for j in range(4):
            A[i * 4 + j] = T.float32(1)
""",
    )
    loops = [n for n in walk(fn) if isinstance(n, For)]
    assert len(loops) == 2
    assert loops[0].loop_var is not loops[1].loop_var


def test_a_huge_unroll_stays_a_loop():
    text = """
def main(A: T.Buffer((100000,), "float32")):
    for i in T.unroll(100000):
        A[i] = T.float32(1)
"""
    check(UnrollLoop(), text, text)


NESTS = """
def main(A: T.Buffer((5, 4, 2), "float32"), B: T.Buffer((5,), "float32")):
    for i in range(5):
        for j, k in T.grid(4, 2):
            A[i, j, k] = T.float32(1)
        for u in T.unroll(2):
            B[i] = B[i] + T.float32(1)
"""


@pytest.mark.parametrize(
    ("options", "extents"),
    [
        ({}, [5, 4, 2]),
        ({"auto_max_extent": 2}, [5, 4]),
        ({"auto_max_extent": 4}, [5]),
        ({"auto_max_extent": 5}, []),
        ({"auto_max_step": 1}, [5, 4, 2]),
        ({"auto_max_step": 2}, [5, 4]),
        ({"auto_max_step": 8}, [5]),
        ({"auto_max_step": 50}, []),
        ({"auto_max_step": 50, "auto_max_depth": 2}, [5]),
        ({"auto_max_step": 8, "explicit_unroll": False}, [5, 4, "2", "2"]),
    ],
)
def test_serial_loops_are_unrolled_as_configured(options, extents):
    with PassContext(config={"tir.UnrollLoop": options}):
        fn = body_of(UnrollLoop(), NESTS)
    loops = [n for n in walk(fn) if isinstance(n, For)]
    found = [str(n.extent.value) if n.kind == ForKind.UNROLLED else n.extent.value for n in loops]
    assert sorted(found, key=str) == sorted(extents, key=str)
    arrays = [np.zeros((5, 4, 2), "float32"), np.zeros(5, "float32")]
    interpret(fn, *arrays)
    assert (arrays[0] == 1).all() and (arrays[1] == 2).all()


def test_a_loop_says_itself_how_far_to_unroll():
    text = NESTS.replace("range(5)", 'T.serial(5, annotations={"pragma_auto_unroll_max_step": 8})')
    assert len(kinds(body_of(UnrollLoop(), text))) == 1


def test_loops_over_local_memory_are_unrolled_if_asked():
    text = """
def main(B: T.Buffer((8,), "float32")):
    A_1 = T.allocate((8,), "float32", "local")
    A = T.decl_buffer((8,), "float32", data=A_1, scope="local")
    for i in range(8):
        A[i] = T.float32(1)
    for i in range(8):
        B[i] = T.float32(1)
"""
    with PassContext(config={"tir.UnrollLoop": {"unroll_local_access": True}}):
        assert len(kinds(body_of(UnrollLoop(), text))) == 1


LEFT = """
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((512,), "float32"), n: T.int32):
    for k in range(4):
        for i in T.unroll(3):
            for j in T.unroll(2):
                %s
"""


def left(statement, config=None, attribute=True):
    """The numbers of nodes that the loops left to code generators say they grow by."""
    fn = parse(LEFT % statement)
    fn = fn.with_attr({WRITES_OUT: True}) if attribute else fn
    with PassContext(config=config or {}):
        loops = [n for n in walk(UnrollLoop()(IRModule({"main": fn}))["main"]) if type(n) is For]
    return [int(n.annotations[WRITTEN_OUT]) for n in loops if n.kind == ForKind.UNROLLED]


@pytest.mark.parametrize(
    "statement",
    [
        "A[k * 8 + i * 2 + j] = B[(i + k) * 3 - j] * T.float32(2)",
        "A[T.Ramp(i * 16, 1, 4)] = T.Broadcast(B[j], 4)",
        "if i < 2: A[k] = B[i + j]",
        "if k < n: A[k + j] = B[i]",
    ],
)
def test_code_generators_write_out_what_differs_in_places(statement):
    outer, inner = left(statement)[-2:]
    assert outer > 2 * inner > 0
    assert not left(statement, attribute=False)


@pytest.mark.parametrize(
    ("statement", "loops"),
    [
        # The inner loop is written out, the outer one left; or the inner one is left three times.
        ("A[i * j] = T.float32(1)", 1),
        ("A[k] = T.Cast('float32', j)", 1),
        ("A[k] = B[i + T.Cast('int32', A[j])]", 1),
        ("A[k] = T.if_then_else(j < k, B[i], T.float32(0))", 1),
        ("A[i // 2] = T.float32(1)", 3),
        ("if i * k < n: A[j] = B[j]", 3),
        ("A[T.Broadcast(i, 4) * T.Ramp(0, 2, 4)] = T.Broadcast(B[j], 4)", 3),
        ("if A[i] < A[j]: A[k] = B[k]", 0),
    ],
)
def test_what_differs_otherwise_is_written_out_here(statement, loops):
    assert len(left(statement)) == loops


def test_what_passes_of_a_user_and_checks_see_is_straight():
    statement = "A[k * 8 + i * 2 + j] = T.float32(2)"
    for config in (
        {"tir.add_lower_pass": [(2, Simplify())]},
        {"tir.instrument_bound_checkers": True},
    ):
        assert left(statement) and not left(statement, config)


def test_a_loop_is_not_written_out_because_it_says_so():
    text = """
def main(A: T.Buffer((64,), "float32")):
    for i in T.unroll(%s, annotations={"tir.written_out": 1}):
        A[0] = T.float32(1)
"""
    for extent, writes_out in ((4, False), (1 << 40, True)):
        fn = parse(text % extent).with_attr({WRITES_OUT: writes_out})
        out = UnrollLoop()(IRModule({"main": fn}))["main"]
        assert not any(WRITTEN_OUT in n.annotations for n in walk(out) if isinstance(n, For))


STEPS = """
def main(A: T.Buffer((512,), "float32"), B: T.Buffer((4096,), "float32")):
    for k in %s:
        for i in T.unroll(%d):
            %s
"""
SUM = "A[T.Ramp(i * 8, 1, 8)] = A[T.Ramp(i * 8, 1, 8)] + B[T.Ramp(k * 8 + i * 16, 1, 8)]"


def in_steps(loop, stores, statement=SUM, attribute=True):
    """The extents of serial loops, and of those that are written out, of a function that gives what
    it gave before.
    """
    fn = parse(STEPS % (loop, stores, statement))
    fn = fn.with_attr({WRITES_OUT: attribute})
    after = UnrollLoop()(IRModule({"main": fn}))["main"]
    b = np.random.default_rng(0).random(4096, "float32")
    results = np.ones((2, 512), "float32")
    for each, result in zip((fn, after), results):
        interpret(each, result, b)
    np.testing.assert_array_equal(*results)
    loops = [n for n in walk(after) if type(n) is For]
    return tuple(
        [int(n.extent) for n in loops if (n.kind == kind)]
        for kind in (ForKind.SERIAL, ForKind.UNROLLED)
    )


@pytest.mark.parametrize(
    ("loop", "stores", "serial", "written"),
    [
        ("range(64)", 10, [16], [4, 10]),
        ("range(3, 67)", 12, [16], [4, 12]),
        ("range(63)", 10, [9], [7, 10]),
        ("range(61)", 10, [61], [10]),  # no steps that fit
        ("range(64)", 31, [32], [2, 31]),
        ("range(64)", 32, [64], [32]),  # enough as they are
        ("range(2, 6)", 3, [], [4, 3]),  # short: written out
        ('T.serial(64, annotations={"tir.prefetch": 64})', 10, [16], [4, 10]),
        ('T.serial(3, annotations={"tir.prefetch": 64})', 10, [], [3, 10]),
        ('T.serial(64, annotations={"mine": 1})', 10, [64], [10]),
        ("T.parallel(64)", 10, [], [10]),
    ],
)
def test_innermost_loops_that_store_few_vectors_take_several_iterations_a_step(
    loop, stores, serial, written
):
    assert in_steps(loop, stores) == (serial, written)


@pytest.mark.parametrize(
    "statement",
    [
        "A[i] = A[i] + B[k * 8 + i]",
        "A[T.Ramp(i * 8, 1, 8)] = B[T.Ramp(k * 8 + i, 2, 8)]",
        "A[T.Ramp(i * 8, 1, 8)] = T.exp(B[T.Ramp(k * 8 + i * 8, 1, 8)])",
        "A[T.Ramp(i * 8, 1, 8)] = T.Shuffle([B[T.Ramp(k, 1, 8)]], [1, 0, 3, 2, 5, 4, 7, 6])",
        "A[T.Ramp(i * 8, 1, 32)] = B[T.Ramp(k * 8 + i * 8, 1, 32)]",
    ],
)
def test_other_innermost_loops_stay(statement):
    assert in_steps("range(64)", 10, statement)[0] == [64]
    assert in_steps("range(64)", 10, attribute=False)[0] == [64]


def test_steps_that_differ_in_more_than_places_are_straight_copies():
    number = "A[T.Ramp(i * 8, 1, 8)] = T.Broadcast(T.Cast('float32', k), 8)"
    assert in_steps("range(64)", 10, number) == ([16], [10] * 4)
    assert in_steps("range(3)", 10, number) == ([], [10] * 3)
    asking = 'T.serial(%d, annotations={"tir.prefetch": 64})'
    assert in_steps(asking % 64, 10, number) == ([16], [10] * 4)
    assert in_steps(asking % 3, 10, number) == ([3], [10])  # copies would ask for nothing


MOVES = """
def main(A: T.Buffer((512,), "float32"), B: T.Buffer((4096,), "float32")):
    for k in range(4):
        A[T.Ramp(k * 8, 1, 8)] = %s
        for i in range(%d):
            %s
"""


@pytest.mark.parametrize(
    ("vector", "extent", "statement", "loops"),
    [
        ("B[T.Ramp(k, 1, 8)]", 16, "A[i + 99] = B[i * 16 + k]", 1),
        ("B[T.Ramp(k, 1, 8)]", 96, "A[i + 99] = B[i * 16 + k]", 1),
        ("B[T.Ramp(k, 1, 8)]", 16, "if i * 3 < 20: A[i * 4 + k] = B[i]", 1),
        ("B[T.Ramp(k, 1, 8)]", 97, "A[i + 99] = B[i * 16 + k]", 2),  # many
        ("B[T.Ramp(k, 1, 8)]", 16, "A[i + 99] = B[i + k]", 2),  # a run
        ("B[T.Ramp(k, 1, 8)]", 16, "A[i * 2] = B[i * 2] + T.float32(1)", 2),  # more than moving
        ("T.Broadcast(B[k], 8)", 16, "A[i * 2] = T.float32(1)", 2),
    ],
)
def test_short_loops_that_move_scalars_apart_are_written_out_beside_vectors(
    vector, extent, statement, loops
):
    fn = parse(MOVES % (vector, extent, statement)).with_attr({WRITES_OUT: True})
    after = UnrollLoop()(IRModule({"main": fn}))["main"]
    assert kinds(after).count(ForKind.SERIAL) == loops
    b = np.random.default_rng(0).random(4096, "float32")
    results = np.ones((2, 512), "float32")
    for each, result in zip((fn, after), results):
        interpret(each, result, b)
    np.testing.assert_array_equal(*results)
    scalars = parse(MOVES.replace("T.Ramp(k * 8, 1, 8)", "k") % ("B[k]", extent, statement))
    kept = UnrollLoop()(IRModule({"main": scalars.with_attr({WRITES_OUT: True})}))["main"]
    assert kinds(kept) == [ForKind.SERIAL] * 2


# -- Simplify and RemoveNoOp -----------------------------------------------------------------------


def test_decided_conditions_vanish():
    check(
        Simplify(),
        """
def main(A: T.Buffer((16,), "float32")):
    for i in range(16):
        if i < 16:
            A[(i * 4 + 3) // 4] = T.float32(0)
        else:
            A[0] = T.float32(9)
""",
        """
def main(A: T.Buffer((16,), "float32")):
    for i in range(16):
        A[i] = T.float32(0)
""",
    )


@pytest.mark.parametrize("known", ["for j in range(A[0]):", "if A[0] == 9 and j == 8:"])
def test_what_was_read_from_memory_may_be_another_after_a_store(known):
    text = f"""
def main(A: T.Buffer((1,), "int32"), B: T.Buffer((1,), "int32"), j: T.int32):
    {known}
        A[0] = 7
        if j < A[0]:
            B[0] = B[0] + 1
""".replace(", j: T.int32", ", j: T.int32" if "if" in known else "")
    for fn in (parse(text), body_of(Simplify(), text)):
        a, b = np.array([9], "int32"), np.array([0], "int32")
        interpret(fn, a, b, *([8] if "if" in known else []))
        assert b[0] == (0 if "if" in known else 7)


def test_what_a_condition_says_is_used_under_it():
    check(
        Simplify(),
        """
def main(A: T.Buffer((16,), "float32"), n: T.int32):
    if n < 8:
        if n < 10:
            A[0] = T.float32(1)
""",
        """
def main(A: T.Buffer((16,), "float32"), n: T.int32):
    if n < 8:
        A[0] = T.float32(1)
""",
    )


def test_loops_that_do_nothing_are_removed():
    check(
        RemoveNoOp(),
        """
def main(A: T.Buffer((16,), "float32"), n: T.int32):
    for i in range(n):
        T.evaluate(0)
    if n < 4:
        T.evaluate(n + 1)
    A[0] = T.float32(1)
""",
        """
def main(A: T.Buffer((16,), "float32"), n: T.int32):
    A[0] = T.float32(1)
""",
    )


def test_a_while_loop_and_an_assertion_are_kept():
    text = """
def main(A: T.Buffer((16,), "int32")):
    while A[0] < 4:
        A[0] = A[0] + 1
    assert A[0] == 4, "four"
    A[1] = 2
"""
    check(RemoveNoOp(), text, text)


def test_an_empty_then_branch_turns_the_condition_round():
    check(
        RemoveNoOp(),
        """
def main(A: T.Buffer((16,), "float32"), n: T.int32):
    if n < 4:
        T.evaluate(0)
    else:
        A[0] = T.float32(1)
""",
        """
def main(A: T.Buffer((16,), "float32"), n: T.int32):
    if not n < 4:
        A[0] = T.float32(1)
""",
    )


# -- LowerIntrin -----------------------------------------------------------------------------------


def test_floor_division_of_what_is_not_negative_truncates():
    text = body_of(
        LowerIntrin(),
        """
def main(A: T.Buffer((16,), "int32"), n: T.int32):
    for i in range(16):
        A[i] = i // 3 + i % 3
""",
    ).script()
    assert "truncdiv" in text
    assert "truncmod" in text
    assert "Select" not in text


def test_division_by_a_power_of_two_is_a_shift_and_a_mask():
    text = body_of(
        LowerIntrin(),
        """
def main(A: T.Buffer((16,), "int32"), n: T.int32):
    A[0] = n // 8 + n % 8
""",
    ).script()
    assert "T.shift_right(n, 3)" in text
    assert "T.bitwise_and(n, 7)" in text


def test_sigmoid_and_rsqrt_are_written_with_other_functions():
    text = body_of(
        LowerIntrin(),
        """
def main(A: T.Buffer((16,), "float32")):
    A[0] = T.sigmoid(A[1]) + T.rsqrt(A[2]) + T.exp10(A[3])
""",
    ).script()
    assert not any(word in text for word in ("sigmoid", "rsqrt", "exp10"))


# -- the rest --------------------------------------------------------------------------------------


def test_parallel_and_vectorized_loops_become_serial():
    fn = body_of(
        ConvertForLoopsToSerial(),
        """
def main(A: T.Buffer((4, 4), "float32")):
    for i in T.parallel(4):
        for j in T.vectorized(4):
            A[i, j] = T.float32(1)
""",
    )
    assert kinds(fn) == [ForKind.SERIAL, ForKind.SERIAL]


def test_bind_target_keeps_an_earlier_one():
    mod = IRModule(
        {"main": parse('def main(A: T.Buffer((4,), "float32")):\n    A[0] = T.float32(1)\n')}
    )
    bound = BindTarget("llvm")(mod)
    assert bound["main"].attrs["target"] == "llvm"
    assert BindTarget("other")(bound) is bound
    with pytest.raises(PassError, match="needs target"):
        BindTarget()(mod)


def test_apply_and_filter_take_python_functions():
    one = parse('def main(A: T.Buffer((4,), "float32")):\n    A[0] = T.float32(1)\n')
    mod = IRModule({"one": one, "two": one.with_attr("keep", True)})
    assert Apply(lambda f: f.with_attr("seen", 1))(mod)["one"].attrs["seen"] == 1
    assert [gv.name_hint for gv in Filter(lambda f: "keep" in f.attrs)(mod)] == ["two"]


INDIRECT = """
def main(I: T.Buffer((8,), "int32"), A: T.Buffer((8,), "float32")):
    for i in range(8):
        A[I[i]] = A[i]
"""


def test_only_accesses_that_cannot_be_proven_are_checked():
    with PassContext(config={"tir.instrument_bound_checkers": True}):
        text = body_of([FlattenBuffer(), InstrumentBoundCheckers()], INDIRECT).script()
    assert text.count("bound_check") == 1
    assert (
        "bound_check"
        not in body_of([FlattenBuffer(), InstrumentBoundCheckers()], INDIRECT).script()
    )


def test_bound_checks_want_flat_buffers_and_single_definitions():
    two = 'def main(A: T.Buffer((4, 4), "float32")):\n    A[0, 0] = T.float32(1)\n'
    with pytest.raises(TIRError, match="FlattenBuffer"):
        InstrumentBoundCheckers(force=True)(IRModule({"main": parse(two)}))
    fn = body_of(FlattenBuffer(), INDIRECT)
    loop = next(n for n in walk(fn) if isinstance(n, For))
    twice = fn.replace(body=SeqStmt((loop, For(loop.loop_var, 0, 4, "serial", loop.body))))
    with pytest.raises(TIRError, match="defined twice"):
        InstrumentBoundCheckers(force=True)(IRModule({"main": twice}))
