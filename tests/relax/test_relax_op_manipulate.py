"""Operators that give the same elements another shape or order."""

from __future__ import annotations

import numpy as np
import pytest
from graph_runs import programs, tensor
from op_table import ALL, NUMBERS, Case, Sh, T, check, check_errors, check_gradients, thinned

from relaxvm import ir, relax, tir
from relaxvm.arith import Analyzer
from relaxvm.base import StructInfoError, VMError
from relaxvm.relax import op as R
from relaxvm.relax.op import IndexMap

F = ("float16", "float32", "bool", "int8", "uint64")
ONE = ("float32", "int32")
LESS = lambda ndim: lambda d: relax.TensorStructInfo(None, d, ndim=ndim)  # noqa: E731

CASES = [
    Case(R.reshape, T("n", 4), Sh("n", 2, 2), dtypes=ALL),
    Case(R.reshape, T("n", 4), (-1,), dtypes=("float64", *ONE)),
    Case(R.reshape, T("n", 4), (2, 0, -1), dtypes=ONE, sizes={"n": 2}, slow=True),
    Case(R.reshape, T("n", 4, "m"), (0, -1), dtypes=("float64", *ONE)),
    Case(R.reshape, T("n", 4), Sh(2, "m", 2), dtypes=ONE, sizes={"m": 3}),
    Case(R.reshape, T(), (1, 1), dtypes=ONE),
    Case(R.reshape, T(1), Sh(), dtypes=ONE),
    Case(R.reshape, T("n", 4), Sh(0, 7), dtypes=ONE, sizes={"n": 0}),
    Case(R.reshape, T(3, 4, info=LESS(2)), Sh(2, 6), dtypes=ONE),
    Case(R.flatten, T("n", 2, "m"), dtypes=F),
    Case(R.flatten, T(), dtypes=ONE),
    Case(R.flatten, T(2, 3), dtypes=("float64", *ONE)),
    Case(R.expand_dims, T("n", 4), axis=(0, -1), dtypes=("float64", *F)),
    Case(R.expand_dims, T(), axis=0, dtypes=ONE),
    Case(R.expand_dims, T("n", 2, info=LESS(2)), axis=1, dtypes=ONE),
    Case(R.squeeze, T(1, 3, 1), dtypes=("float64", *F)),
    Case(R.squeeze, T(1, "n", 1), axis=(0, -1), dtypes=("float64", *ONE)),
    Case(R.squeeze, T("one", "n"), axis=0, dtypes=ONE),
    Case(R.squeeze, T(1, "n", info=LESS(2)), axis=(0,), dtypes=ONE),
    Case(R.permute_dims, T("n", 2, 4), dtypes=ALL),
    Case(R.permute_dims, T("n", 2, 4), axes=(1, -1, 0), dtypes=("float64", *ONE)),
    Case(R.permute_dims, T(), dtypes=ONE),
    Case(R.permute_dims, T(0, 2, info=LESS(2)), axes=(1, 0), dtypes=ONE),
    Case(R.concat, (T("n", 2), T("n", 3), T("n", 1)), axis=1, dtypes=ALL),
    Case(R.concat, (T("n", 2), T("m", 2)), axis=-2, dtypes=("float64", *ONE)),
    Case(R.concat, (T(0, 2), T(3, 2), T(0, 2)), dtypes=ONE),
    Case(R.concat, (T("n", 2), T("m", 5)), axis=1, dtypes=ONE, sizes={"n": 4, "m": 4}),
    Case(R.concat, (T("n"),), dtypes=ONE),
    Case(R.concat, (T("n", 2, info=LESS(2)), T(3, 2)), axis=0, dtypes=ONE),
    Case(R.stack, (T("n", 2), T("n", 2), T("n", 2)), axis=1, dtypes=F),
    Case(R.stack, (T("n", 2), T("n", 2)), axis=-1, dtypes=("float64", *ONE)),
    Case(R.stack, (T(), T()), dtypes=ONE),
    Case(R.stack, (T("n"), T("m")), dtypes=ONE, sizes={"n": 2, "m": 2}),
    Case(R.split, T("n", 6), indices_or_sections=3, axis=1, dtypes=("float64", *F)),
    Case(R.split, T("n", 2), indices_or_sections=2, dtypes=ONE, sizes={"n": 5}),
    Case(R.split, T("n", 2), indices_or_sections=4, dtypes=ONE, sizes={"n": 5}),
    Case(R.split, T(5, 2), indices_or_sections=(1, 3), dtypes=("float64", *ONE)),
    Case(R.split, T("n", 2), indices_or_sections=(1, 3, 9), axis=-2, dtypes=ONE, sizes={"n": 2}),
    Case(R.split, T("n", 2), indices_or_sections=1, dtypes=ONE),
    Case(R.broadcast_to, T("n", 1), Sh(2, "n", 4), dtypes=ALL),
    Case(R.broadcast_to, T("n", 1), Sh("n", "m"), dtypes=("float64",)),
    Case(R.broadcast_to, T("one", "n"), Sh("m", "n"), dtypes=ONE),
    Case(R.broadcast_to, T(), Sh("n", 0), dtypes=ONE),
    Case(R.broadcast_to, T("n", 1, info=LESS(2)), Sh(3, 4), dtypes=ONE),
    Case(R.collapse_sum_to, T(2, "n", 4), Sh("n", 1), count=8, dtypes=NUMBERS),
    Case(R.collapse_sum_to, T("n", 4), Sh("n", 4), dtypes=("float64", *ONE)),
    Case(R.collapse_sum_to, T("m", "n"), Sh("one", "n"), count=2, dtypes=ONE),
    Case(R.collapse_sum_to, T("n", 4), Sh(), count=12, dtypes=("float64", "float16", *ONE)),
    Case(R.collapse_sum_to, T(0, 4), Sh(1, 4), dtypes=ONE),
    Case(R.collapse_sum_like, T("n", 4), T(4), count=3, dtypes=("float64", "float16", *ONE)),
    Case(R.repeat, T("n", 2), repeats=3, axis=1, dtypes=("float64", *F)),
    Case(R.repeat, T("n", 2), repeats=2, dtypes=("float64", *ONE)),
    Case(R.repeat, T("n", 2), repeats=0, axis=-2, dtypes=ONE),
    Case(R.repeat, T(), repeats=2, dtypes=ONE),
    Case(R.tile, T("n", 2), repeats=(2, 3), dtypes=("float64", *F)),
    Case(R.tile, T("n", 2), repeats=(2, 1, 3), dtypes=("float64", *ONE)),
    Case(R.tile, T(2, "n", 2), repeats=2, dtypes=ONE),
    Case(R.tile, T("n", 2), repeats=(0, 1), dtypes=ONE),
    Case(R.flip, T("n", 3), axis=-1, dtypes=("float64", *F)),
    Case(R.flip, T("n", 3), axis=(0, 1), dtypes=("float64", *ONE)),
    Case(R.flip, T(0, 3), axis=0, dtypes=ONE),
    Case(R.roll, T("n", 4), shift=-3, axis=1, dtypes=("float64", *F)),
    Case(R.roll, T("n", 4), shift=(1, 2), axis=(0, 1), dtypes=("float64", *ONE)),
    Case(R.roll, T("n", 4), shift=5, dtypes=("float64", *ONE)),
    Case(R.roll, T(0, 4), shift=5, axis=0, dtypes=ONE),
    Case(
        R.reverse_sequence, T("n", 4), T("n", dtype="int32", low=0, high=4),
        dtypes=("float64", *F),
    ),
    Case(
        R.reverse_sequence, T(4, "n", 2), T("n", dtype="int64", low=0, high=4),
        seq_axis=0, batch_axis=-2, dtypes=ONE,
    ),
    Case(R.meshgrid, (T("n"), T("m"), T(2)), dtypes=("float64", *F)),
    Case(R.meshgrid, (T("n"), T("m"), T()), indexing="xy", dtypes=("float64", *ONE)),
    Case(R.meshgrid, (T("n"),), dtypes=ONE),
    Case(
        R.one_hot, T("n", 2, low=-1, high=5), relax.PrimValue(tir.const(2.0, "float32")),
        relax.PrimValue(tir.const(-1.0, "float32")), 5, dtypes=("int32", "int64", "uint8"),
    ),
    Case(
        R.one_hot, T("n", 2, low=0, high=4), relax.PrimValue(1), relax.PrimValue(0), 5, 0,
        dtypes=("int8",),
    ),
    Case(
        R.layout_transform, T("n", 8), index_map=lambda i, j: (j // 4, i, j % 4),
        dtypes=("float32", "int8", "bool", "bfloat16"),
    ),
    Case(
        R.layout_transform, T("n", 6), index_map=lambda i, j: (i, j // 4, j % 4), pad_value=7,
        dtypes=ONE,
    ),
    Case(
        R.layout_transform, T("n", 6), index_map=lambda i, j: (i, j // 4, j % 4), pad_value=7,
        dtypes=("float64",),
    ),
    Case(
        R.layout_transform, T("n"), index_map=lambda i: (i // 4, i % 4), dtypes=ONE,
        sizes={"n": 8},
    ),
    Case(R.layout_transform, T(0, 2), index_map=lambda *i: i[::-1], dtypes=ONE),
]  # fmt: skip


def test_shapes_and_orders_agree_with_numpy():
    check(thinned(CASES, 2), dtypes=("float32", "bfloat16", "bool", "int64"), in_turn=True)


@pytest.mark.slow
def test_shapes_and_orders_agree_with_numpy_on_all_dtypes():
    check([c for c in CASES if c.name], slow=True)


def test_gradients_agree_with_finite_differences():
    check_gradients(CASES)


def n_and_m():
    return tir.Var("n", "int64"), tir.Var("m", "int64")


def test_reshape_of_symbols_keeps_what_is_left_simple():
    n, m = n_and_m()
    x = tensor("x", n, 4, m)
    assert R.reshape(x, (n, -1)).struct_info.dims[1] is (m * 4)
    assert [str(d) for d in R.reshape(x, (0, -1, 2)).struct_info.dims[:1]] == ["n"]
    assert R.reshape(x, (-1, m)).struct_info.dims[0] is (n * 4)


def test_sizes_that_do_not_fit_stop_the_program_before_a_kernel_runs():
    n, m = n_and_m()
    x, y = tensor("x", n, 2), tensor("y", m, 2)
    two, three = np.zeros((2, 2), "float32"), np.zeros((3, 2), "float32")
    calls = [
        ([x, y], R.reshape(x, (m, 2)), (two, three), (two, two)),
        ([x, y], R.concat((x, y), axis=1), (two, three), (two, two)),
        ([x, y], R.stack((x, y)), (two, three), (two, two)),
        ([x], R.squeeze(x, axis=0), (two,), (two[:1],)),
        ([x, y], R.broadcast_to(x, (m, 2)), (two, three), (two[:1], three)),
        ([x, y], R.collapse_sum_to(x, (m, 2)), (three, two), (three, two[:1])),
    ]
    for params, call, bad, good in calls:
        for run in programs(params, call):
            run(*good)
            with pytest.raises(VMError):
                run(*bad)


def test_a_length_beyond_the_sequence_stops_the_program():
    x, lengths = tensor("x", 2, 3), tensor("lengths", 2, dtype="int32")
    for run in programs([x, lengths], R.reverse_sequence(x, lengths)):
        for bad in ([1, 4], [-1, 2]):
            with pytest.raises(VMError, match="a length is not within 0 and the size"):
                run(np.zeros((2, 3), "float32"), np.array(bad, "int32"))


def test_concat_of_many_tensors_needs_no_deep_expression():
    parts = [tensor(f"x{k}", 1) for k in range(150)]
    call = R.concat(parts)
    assert call.struct_info.dims[0].value == 150
    (_, run) = programs(parts, call)
    assert run(*(np.full(1, k, "float32") for k in range(150))).numpy().tolist() == list(range(150))


def test_less_is_known_of_the_result_where_less_is_known_of_the_argument():
    unknown = relax.Var("u", relax.TensorStructInfo(None, "float32"))
    rank = relax.Var("r", relax.TensorStructInfo(None, "float32", ndim=3))
    for call, ndim in [
        (R.permute_dims(unknown), -1),
        (R.permute_dims(rank), 3),
        (R.expand_dims(rank, (0, 1)), 5),
        (R.squeeze(rank, 0), 2),
        (R.flatten(unknown), 1),
        (R.concat((rank, unknown)), 3),
        (R.stack((rank, rank)), 4),
        (R.repeat(unknown, 2), 1),
        (R.tile(rank, (1, 2, 3, 4)), 4),
        (R.broadcast_to(unknown, (2, 3)), 2),
    ]:
        assert call.struct_info.ndim == ndim, call
    assert R.split(rank, 2).struct_info.fields[1].ndim == 3


def test_a_squeeze_of_all_axes_wants_to_know_which_are_one():
    n, _ = n_and_m()
    with pytest.raises(StructInfoError, match="the dimension n may be 1 or not"):
        R.squeeze(tensor("x", 1, n))


def test_index_map_gives_shapes_and_indices():
    made = IndexMap.from_func(lambda n, c, h: (n, c // 4, h, c % 4))
    assert [d.value for d in made.map_shape((2, 8, 5))] == [2, 2, 5, 4]
    assert [i.value for i in made.map_indices((1, 6, 3), Analyzer())] == [1, 1, 3, 2]
    assert made.is_bijective((2, 8, 5))
    assert not made.is_bijective((2, 6, 5))
    back = IndexMap.from_func(lambda n, c, w, b: (n, c * 4 + b, w))
    assert back.is_bijective((2, 2, 5, 4)) and not back.is_bijective((2, 2, 5, 3))
    assert not IndexMap.from_func(lambda i, j: (i + j,)).is_bijective((2, 3))
    n, c, w = made.places((2, 8, 5))[:3]
    assert n.shape == (2, 8, 5) and c[1, 7, 0] == 1 and w[0, 0, 4] == 4


def test_index_map_as_text_reads_back():
    for f in [
        lambda n, c, h: (n, c // 4, h, c % 4),
        lambda i: (i,),
        lambda i, j: ((i * 3 + j) // 2 - 0, (i + (j * 2)) % 7, 5 - (i - j)),
        lambda: (),
    ]:
        made = IndexMap.from_func(f)
        back = IndexMap.from_text(made.text())
        assert back.text() == made.text()
        ir.assert_structural_equal(made, back)
        ir.assert_structural_equal(made, ir.load_json(ir.save_json(made)))


@pytest.mark.parametrize(
    "text",
    [
        "lambda i: __import__('os')",
        "lambda i: (i / 2,)",
        "lambda i: (j,)",
        "lambda i: (i.real,)",
        "lambda i: (2 ** i,)",
        "lambda i: (1.5,)",
        "(i, j)",
        "lambda i: (",
        "lambda i: " + "(" * 3000 + "i" + ")" * 3000,
        "lambda i: " + "-" * 3000 + "i",
        "lambda i: " + "-" * 950 + "i.a",
        "",
    ],
)
def test_index_map_reads_nothing_but_arithmetic_on_indices(text):
    with pytest.raises(StructInfoError, match="index_map"):
        IndexMap.from_text(text)


def test_an_index_map_of_schedules_lays_out_tensors():
    made = tir.IndexMap.from_func(
        lambda i: (i // 4, i % 4), inverse_index_map=lambda a, b: a * 4 + b
    )
    call = R.layout_transform(tensor("x", 2), made, pad_value=0)
    assert [int(d) for d in call.struct_info.shape] == [1, 4]
    assert call.attrs["index_map"].initial_indices[0].dtype == "int64"
    assert tir.schedule.IndexMap is IndexMap is tir.IndexMap


def test_index_map_wants_arithmetic_on_its_own_indices():
    other = tir.Var("n", "int64")
    with pytest.raises(StructInfoError, match="an index is made of the old indices and integers"):
        R.layout_transform(tensor("x", 2), lambda i: (i + other,))
    with pytest.raises(StructInfoError, match="an index is made of the old indices and integers"):
        R.layout_transform(tensor("x", 2), IndexMap.from_func(lambda i: (tir.max(i, 2),)))


def test_mistakes_are_named():
    n, _ = n_and_m()
    x, y, i = tensor("x", 2, 3), tensor("y", 3, 4), tensor("i", 2, dtype="int32")
    check_errors(
        [
            (lambda: R.reshape(x, (4, 2)), "reshape: shape: wanted 6 elements, got 8"),
            (lambda: R.reshape(x, (-1, -1)), "reshape: shape: -1 may stand once"),
            (lambda: R.reshape(x, (-1, 4)), "6 elements do not divide by 4"),
            (lambda: R.reshape(x, (-2, 3)), "wanted dimensions, -1 or 0, got -2"),
            (lambda: R.reshape(x, (2, 3, 0)), "0 in place 2: x has 2 dimensions"),
            (lambda: R.expand_dims(x, 4), "expand_dims: axis: wanted -3 to 2"),
            (lambda: R.expand_dims(x, (0, 0)), "an axis stands twice"),
            (lambda: R.squeeze(x, 0), "squeeze: axis: wanted dimensions of size 1, axis 0 is 2"),
            (lambda: R.permute_dims(x, (0,)), "axes: wanted each of 2 axes once"),
            (lambda: R.permute_dims(x, (0, 0)), "axes: an axis stands twice"),
            (lambda: R.concat((x, y)), "concat: dimension 1 differs: 3 in field 0, 4 in field 1"),
            (lambda: R.concat((x, i)), "wanted the same rank|the dtypes differ"),
            (lambda: R.concat(()), "tensors: wanted at least one"),
            (lambda: R.concat((x, x), axis=None), "axis: None is for tensors of one dimension"),
            (lambda: R.flatten(tensor("z", 2**40, 2**40)), "more than int64 counts"),
            (lambda: R.tile(tensor("z", 2**40), 2**40), "more than int64 counts"),
            (
                lambda: R.layout_transform(
                    tensor("z", 2, 6, dtype="bool"), lambda a, b: (a, b // 4, b % 4), 7
                ),
                "layout_transform: pad_value: the number 7 beside bool",
            ),
            (lambda: R.concat(x), "concat: tensors: wanted a tuple of tensors"),
            (lambda: R.stack((x, y)), "stack: dimension 0 differs: 2 in field 0, 3"),
            (lambda: R.split(x, 0), "wanted at least one section .*, got 0"),
            (lambda: R.split(x, 1 << 40), "wanted at least one section and at most 65536"),
            (lambda: R.split(x, (-1,)), "wanted indices that are ints, not negative"),
            (lambda: R.split(x, 2, axis=2), "split: axis: wanted -2 to 1"),
            (lambda: R.broadcast_to(x, (2, 4)), "dimension -1: 3 does not broadcast to 4"),
            (lambda: R.broadcast_to(x, (3,)), "2 dimensions do not broadcast to 1"),
            (lambda: R.collapse_sum_to(x, (4, 3)), "dimension -2: 4 does not broadcast to 2"),
            (lambda: R.collapse_sum_like(x, y), "collapse_target: dimension -1: 4 does not"),
            (lambda: R.repeat(x, -1), "repeat: repeats: wanted at least 0 .*, got -1"),
            (lambda: R.tile(x, (1, -2)), "tile: repeats: wanted ints of 0 to 2.*, got -2"),
            (lambda: R.flip(x, 2), "flip: axis: wanted -2 to 1"),
            (lambda: R.roll(x, (1, 2, 3), (0, 1)), "shift: wanted one for each of 2 axes, got 3"),
            (lambda: R.reverse_sequence(x, i, 0, 0), "wanted different axes, got 0 twice"),
            (lambda: R.reverse_sequence(y, i), "seq_lengths: wanted 3 lengths, got 2"),
            (lambda: R.reverse_sequence(x, x), "seq_lengths: wanted an integer dtype"),
            (lambda: R.meshgrid((x,)), "field 0: wanted at most one dimension, got 2"),
            (lambda: R.meshgrid((i,), "ji"), 'indexing: wanted "ij" or "xy"'),
            (
                lambda: R.one_hot(x, relax.PrimValue(1), relax.PrimValue(0), 3),
                "one_hot: indices: wanted an integer dtype",
            ),
            (
                lambda: R.one_hot(i, relax.PrimValue(1), relax.PrimValue(0), 0),
                "depth: wanted at least 1 .*, got 0",
            ),
            (
                lambda: R.one_hot(i, relax.PrimValue(1), relax.PrimValue(tir.const(0.0)), 3),
                "the dtypes differ: on_value is int64",
            ),
            (
                lambda: R.layout_transform(x, lambda a, b: (a, b // 4, b % 4)),
                "pad_value: 6 elements go to 8 places",
            ),
            (lambda: R.layout_transform(x, lambda a: a), "wanted 2 indices, the function takes 1"),
            (
                lambda: R.layout_transform(x, lambda a, b: (a - b, b)),
                "index_map: the index .* may be negative",
            ),
            (
                lambda: R.layout_transform(x, lambda a, b: (a * b, b)),
                "cannot tell how large the index",
            ),
        ]
    )
