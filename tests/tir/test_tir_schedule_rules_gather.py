"""Default schedules of what moves data: gathers, scatters, concatenation, tiling; and of what looks
for places. Operators' loop functions, scheduled for CPUs that are not this one, against numpy's
meaning.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax
from relaxvm.base import CpuModel, VMError
from relaxvm.ir import IRModule, Ramp, walk
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.transform import LegalizeOps
from relaxvm.tir import (
    Allocate,
    AssertStmt,
    Block,
    BufferStore,
    For,
    ForKind,
    PrimFunc,
    bound_check,
)
from relaxvm.tir.schedule.plans import schedule_function
from relaxvm.tir.transform import lower_module

WIDE = CpuModel(vector_bits=256, vector_registers=16, fma=True)
# Caches so small that what is tested is beyond them.
SMALL = CpuModel(vector_bits=256, vector_registers=16, l1_bytes=1 << 10, l2_bytes=8 << 10)
SHARED = CpuModel(vector_bits=128, vector_registers=16, cores=2, l2_bytes=8 << 10)
SLOW = pytest.mark.slow
CPUS = pytest.mark.parametrize(
    "cpu",
    [
        pytest.param(SMALL, id="small"),
        pytest.param(WIDE, id="wide", marks=SLOW),
        pytest.param(SHARED, id="shared", marks=SLOW),
    ],
)


def mostly_slow(*cases):
    """The first two of the cases; the others in the long battery."""
    return [*cases[:2], *(pytest.param(*c, marks=SLOW) for c in cases[2:])]


def random(*shape, dtype="float32", seed=0):
    values = np.random.default_rng(seed).uniform(-2, 2, shape)
    return (values * (30 if np.dtype(dtype).kind in "iu" else 1)).astype(dtype)


def places(size, *shape, dtype="int64", seed=1):
    low = 0 if np.dtype(dtype).kind == "u" else -size
    return np.random.default_rng(seed).integers(low, size, shape).astype(dtype)


def kernel_of(make, *arrays):
    """The loop function of a call, the call, and its variables."""
    params = [
        relax.Var(f"x{k}", relax.TensorStructInfo(a.shape, a.dtype.name))
        for k, a in enumerate(arrays)
    ]
    call = make(*params)
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    mod = LegalizeOps()(builder.get())
    (fn,) = (f for f in mod.functions.values() if isinstance(f, PrimFunc))
    return fn, call, params


def check(cpu, make, *arrays, also=()):
    """The scheduled function, whose results are those of the meaning, bit by bit.

    also  more arrays of the same shapes and dtypes
    """
    fn, call, params = kernel_of(make, *arrays)
    made = schedule_function(fn, cpu)
    run = tvm.build(made, target="llvm")["main"]
    for given in (arrays, *also):
        wanted = evaluate(call, dict(zip(params, given)))
        wanted = list(wanted) if isinstance(wanted, (list, tuple)) else [np.asarray(wanted)]
        results = [np.zeros(w.shape, w.dtype) for w in wanted]
        run(*given, *results)
        for have, want in zip(results, wanted):
            np.testing.assert_array_equal(have, want)
    return made


def lowered(fn):
    return lower_module(IRModule({"main": fn}))["main"]


def loops(fn):
    return [n for n in walk(fn) if isinstance(n, For)]


# -- gathers ---------------------------------------------------------------------------------------


@CPUS
@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    mostly_slow(
        ((33, 9), 1, "int32"),
        ((5, 7, 3), 1, "uint8"),
        ((9, 33), 0, "int64"),
        ((40, 2, 8), 0, "int32"),
        ((6,), 0, "int64"),
        ((1, 1), 1, "int64"),
    ),
)
def test_take_along_any_axis(shape, axis, dtype, cpu):
    x = random(*shape)
    check(cpu, lambda x, i: R.take(x, i, axis), x, places(shape[axis], 4, 3, dtype=dtype))


@CPUS
@pytest.mark.parametrize("mode", ["clip", "wrap", "nan"])
def test_take_gives_indices_out_of_bounds_their_meaning(mode, cpu):
    x, i = random(5, 7), np.array([0, 4, 5, 99, -1, -5, -6, -99, 2**62, -(2**62)])
    for axis in (0, 1, None):
        check(cpu, lambda x, i, axis=axis: R.take(x, i, axis, mode), x, i)


@CPUS
@pytest.mark.parametrize(
    ("shape", "many", "axis"),
    mostly_slow(
        ((48, 37), 90, 0),
        ((3, 40, 50), 33, 1),
        ((64, 64), 64, 0),
        ((64, 64), 64, 1),
        ((40, 3, 50), 40, 0),
        ((50, 40, 3), 40, 2),
        ((4, 1), 9, 0),
        ((4, 3), 0, 0),
    ),
)
def test_gather_elements_along_any_axis(shape, many, axis, cpu):
    where = [many if k == axis else n for k, n in enumerate(shape)]
    i = places(shape[axis], *where)
    check(cpu, lambda x, i: R.gather_elements(x, i, axis), random(*shape), i)
    # Fewer indices than the data has, along all axes.
    fewer = i[tuple(slice(0, n - n // 3) for n in where)]
    check(cpu, lambda x, i: R.gather_elements(x, i, axis), random(*shape), fewer)


@CPUS
@pytest.mark.parametrize(
    ("shape", "depth"), mostly_slow(((9, 20), 1), ((4, 5, 6), 2), ((9, 20), 2))
)
def test_gather_nd(shape, depth, cpu):
    i = np.stack([places(n, 30, seed=n) for n in shape[:depth]], -1)
    check(cpu, R.gather_nd, random(*shape), i)
    batched = np.stack([places(shape[1], shape[0], 7)], -1)
    check(cpu, lambda x, i: R.gather_nd(x, i, 1), random(*shape), batched)
    fields = [places(n, 5, 1, seed=n) for n in shape[:depth]]
    check(cpu, lambda x, *i: R.index_tensor(x, i), random(*shape), *fields)


def test_columns_are_copied_where_a_gather_leaves_the_cache():
    x, i = random(64, 64), places(64, 64, 64)
    made = check(SMALL, lambda x, i: R.gather_elements(x, i, 0), x, i)
    names = [n.name_hint for n in walk(made) if isinstance(n, Block)]
    assert names[-2:] == ["x0_global", "gather_elements"]
    panel = next(n for n in walk(lowered(made)) if isinstance(n, Allocate))
    # Half of 8 KiB is 16 columns of 64 float32.
    assert panel.extents[0].value == 1024
    # What fits, lies in rows, or is hardly read stays where it is.
    for cpu, axis, rows in ((WIDE, 0, 64), (SMALL, 1, 64), (SMALL, 0, 8)):
        made = check(cpu, lambda x, i, a=axis: R.gather_elements(x, i, a), x, i[:rows])
        assert not any(isinstance(n, Allocate) for n in walk(lowered(made)))


def test_an_index_of_a_gather_is_checked_once_where_it_is_read():
    x, i = random(64, 64), places(64, 64, 64)
    for cpu, axis in ((WIDE, 0), (WIDE, 1), (SMALL, 0)):
        fn = lowered(check(cpu, lambda x, i, a=axis: R.gather_elements(x, i, a), x, i))
        checks = [n for n in walk(fn) if getattr(n, "op", None) is tvm.ir.Op.get("tir.bound_check")]
        assert len(checks) == 1
        assert not any(isinstance(n, AssertStmt) for n in walk(fn))


@CPUS
def test_an_index_out_of_bounds_is_an_error_on_every_cpu(cpu):
    x, y = random(64, 64), np.zeros((64, 64), "float32")
    wrong = places(64, 64, 64)
    calls = [
        (lambda x, i: R.gather_elements(x, i, 0), wrong, y),
        (lambda x, i: R.gather_elements(x, i, 1), wrong, y),
        (lambda x, i: R.take(x, i, 0), wrong[63].copy(), y),
        (lambda x, i: R.take(x, i, 1), wrong[63].copy(), y),
        (R.gather_nd, wrong[63:].T.copy(), y),
    ]
    for make, i, out in calls:
        run = tvm.build(schedule_function(kernel_of(make, x, i)[0], cpu), target="llvm")["main"]
        for bad in (64, -65, 2**62, -(2**63)):
            i.reshape(-1)[-1] = bad
            with pytest.raises(VMError, match=r"(take|gather\w+): an index is out of bounds"):
                run(x, i, out)


def test_rows_of_a_large_result_are_vectors_whose_index_is_checked_once():
    cpu = dataclasses.replace(SMALL, l3_bytes=4 << 10)
    made = check(cpu, lambda x, i: R.take(x, i, 0), random(64, 64), places(64, 32))
    stores = [n for n in walk(lowered(made)) if isinstance(n, BufferStore)]
    assert isinstance(stores[-1].indices[0], Ramp)


def test_what_a_check_lets_through_is_within_its_limit():
    i = tvm.tir.Var("i", "int64")
    bound = tvm.arith.Analyzer().const_int_bound
    assert tuple(bound(bound_check(i, 9, "A"))) == (0, 8)
    assert tuple(bound(bound_check(i, 0, "A"))) == (0, 0)


def test_rows_are_gathered_in_parallel_and_scattered_in_order():
    x, i, new = random(4096, 64), places(4096, 4096), random(4096, 64, seed=3)
    taken = check(SHARED, lambda x, i: R.take(x, i, 0), x, i)
    assert [n.kind for n in loops(taken)].count(ForKind.PARALLEL) == 1
    fn, _, _ = kernel_of(lambda x, i, u: R.scatter_nd(x, i, u), x, i[:, None], new)
    put = schedule_function(fn, SHARED)
    assert not any(n.kind == ForKind.PARALLEL for n in loops(put))


# -- scatters --------------------------------------------------------------------------------------


@CPUS
@pytest.mark.parametrize(
    "reduction", ["update", "add", *(pytest.param(r, marks=SLOW) for r in ("mul", "min", "max"))]
)
def test_scatters_apply_updates_in_order(reduction, cpu):
    x, i, new = random(9, 12, dtype="int32"), places(9, 14, 12), random(14, 12, dtype="int32")

    def elements(axis):
        return lambda x, i, u: R.scatter_elements(x, i, u, axis, reduction)

    check(cpu, elements(0), x, i, new)
    check(cpu, elements(1), x.T.copy(), i.T.copy(), new.T.copy())
    check(cpu, lambda x, i, u: R.scatter_nd(x, i, u, reduction), x, i[:, :1], new)
    check(cpu, lambda x, i, u: R.index_put(x, (i,), u, reduction == "add"), x, i[:, 0], new)


# -- moving ----------------------------------------------------------------------------------------


@CPUS
@pytest.mark.parametrize(
    "widths",
    [
        (33, 7, 60),
        (0, 4, 0, 3),
        *(pytest.param(w, marks=SLOW) for w in ((1, 1), (5,), range(1, 12))),
    ],
)
def test_concatenation(widths, cpu):
    for axis in (0, 1, 2):
        parts = [
            random(*(n if k == axis else 3 + k for k in range(3)), seed=n)
            for n, k in zip(widths, range(len(widths)))
        ]
        check(cpu, lambda *x, axis=axis: R.concat(x, axis), *parts)


def test_concatenation_of_many_becomes_copies_without_conditions():
    parts = [random(4, n, seed=n) for n in range(1, 9)]
    text = lowered(check(WIDE, lambda *x: R.concat(x, 1), *parts)).script()
    assert "if_then_else" not in text
    assert "if " not in text.split("def ")[1]


@CPUS
@pytest.mark.parametrize(
    "times", [(2, 5), pytest.param((1, 3), marks=SLOW), pytest.param((1, 1), marks=SLOW)]
)
def test_tiling_and_repeating(times, cpu):
    x = random(6, 37)
    check(cpu, lambda x: R.tile(x, times), x)
    check(cpu, lambda x: R.tile(x, (2, *times)), x)
    for axis in (0, 1):
        check(cpu, lambda x, axis=axis: R.repeat(x, times[axis], axis), x)


def test_a_tiled_row_is_copied_without_divisions():
    text = lowered(check(WIDE, lambda x: R.tile(x, (1, 3)), random(5, 37))).script()
    assert "mod" not in text
    assert "div" not in text


@pytest.mark.parametrize(
    "make",
    [
        lambda x: R.flip(x, 1),
        lambda x: R.nn.pad(x, (1, 2, 3, 0)),
        *(
            pytest.param(make, marks=SLOW)
            for make in (
                lambda x: R.flip(x, 0),
                lambda x: R.strided_slice(x, (0, 1), (1, 3), (6, 36)),
                lambda x: R.strided_slice(x, (1,), (0,), (37,), (3,)),
                lambda x: R.broadcast_to(x, (4, 7, 37)),
            )
        ),
    ],
)
def test_flips_slices_pads_and_broadcasts(make):
    check(SMALL, make, random(7, 37))


@SLOW
@pytest.mark.parametrize(
    "make",
    [
        lambda x: R.split(x, (2, 30), 1),
        lambda x: R.one_hot(R.astype(x, "int64"), relax.PrimValue(2.0), relax.PrimValue(1.0), 5, 0),
    ],
)
def test_programs_that_move(make):
    x = random(7, 37)
    _compare(_program(make, relax.TensorStructInfo(x.shape, x.dtype.name)), make, x)


def test_a_choice_between_two_arrays_is_a_choice_of_values():
    a, b = random(1000), random(1000, seed=2)
    condition = random(1000, seed=3) > 0
    check(WIDE, R.where, condition, a, b)


# -- quantising ------------------------------------------------------------------------------------

HARD = np.array(
    [0.0, -0.0, 0.5, 1.5, -0.5, -1.5, 126.5, 127.4, 127.5, 128, -128.4, -128.5, -129, 254.5, 255.4,
     255.5, 256, 3e4, 32767.5, -32768.5, 65535.4, 2147483520, 2147483648, -2147483648, 3e9, -3e9,
     1e30, -1e30, np.inf, -np.inf, np.nan, 1e-40, -1e-40], "float32",
)  # fmt: skip


@pytest.mark.parametrize(
    ("out", "axis"),
    mostly_slow(("int8", 0), ("uint8", 1), ("int8", 1), ("int16", 0), ("uint16", 1), ("int32", 0)),
)
def test_quantising_saturates_and_nan_is_zero(out, axis):
    x = np.stack([HARD, HARD[::-1] * np.float32(0.37), random(len(HARD)) * 300])
    vector = (np.arange(x.shape[axis]) % 5 + 1).astype("float32")
    zero = np.full(x.shape[axis], 3, out)
    for scale, zero_point in ((np.float32(1), zero[0]), (vector, zero)):
        arrays = (x, np.asarray(scale), np.asarray(zero_point))
        check(WIDE, lambda x, s, z: R.quantize(x, s, z, axis, out), *arrays)
        stored = np.arange(x.size).reshape(x.shape).astype(out)
        check(
            WIDE, lambda x, s, z: R.dequantize(x, s, z, axis), stored, *arrays[1:]
        )  # fmt: skip


@pytest.mark.parametrize(
    "wide", ["float32", pytest.param("float64", marks=SLOW), pytest.param("float16", marks=SLOW)]
)
def test_casts_of_floats_saturate(wide):
    with np.errstate(over="ignore"):
        x = np.concatenate([HARD, HARD * 7, random(40) * 1000]).astype(wide)
    for to in ("int8", "uint16", "int32", "uint32", "int64"):
        check(WIDE, lambda x, to=to: R.astype(x, to), x)


# -- places ----------------------------------------------------------------------------------------

ARG = pytest.mark.parametrize("op", [R.argmax, R.argmin], ids=["argmax", "argmin"])


@ARG
@CPUS
@pytest.mark.parametrize(
    ("shape", "axis"),
    mostly_slow(
        ((70, 80), None),
        ((3, 1025), 1),
        ((5000,), None),
        ((1024,), 0),
        ((1023,), 0),
        ((2000, 3), 0),
        ((2, 40, 50), None),
        ((40, 1, 50), 1),
        ((1, 1), None),
    ),
)
def test_the_first_extreme_wins(op, shape, axis, cpu):
    x = random(*shape)
    # Few values, so that there are many equal ones; all equal.
    check(cpu, lambda x: op(x, axis), x, also=[(np.round(x),), (np.zeros_like(x),)])
    check(cpu, lambda x: op(x, axis, True), (x * 9).astype("int8"))


@ARG
@pytest.mark.parametrize(
    "count", [1500, pytest.param(4000, marks=SLOW), pytest.param(1024, marks=SLOW)]
)
def test_the_first_nan_is_extreme(op, count):
    cases = [np.full(count, np.nan, "float32"), np.full(count, -np.inf, "float32")]
    for where in ((0,), (count - 1,), (count // 2, 700), (1023, 1000), (255, 256)):
        for infinite in (np.inf, -np.inf):
            x = random(count)
            x[[3, 300, count - 2]] = infinite
            cases.append(x.copy())
            x[list(where)] = np.nan
            cases.append(x)
    check(WIDE, op, cases[0], also=[(x,) for x in cases])
    rows = [np.stack([x, x[::-1]]) for x in cases]
    check(WIDE, lambda x: op(x, 1), rows[0], also=[(x,) for x in rows])


def test_places_are_looked_for_in_one_part_only():
    fn = lowered(check(WIDE, R.argmax, random(1 << 16)))
    extents = sorted(n.extent.value for n in loops(fn))
    # The greatest of 256 parts; the first of the parts; the place in it. No condition asks for the
    # first iteration: all of these become vectors.
    assert extents == [256] * 5
    assert "if " not in fn.script().split("def ")[1]


# -- sizes known only later ------------------------------------------------------------------------


def _program(make, *infos):
    params = [relax.Var(f"x{k}", info) for k, info in enumerate(infos)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(*params))
        builder.emit_func_output(out)
    executable = relax.build(builder.get(), target="llvm")
    return relax.VirtualMachine(executable, tvm.cpu())["main"]


def _compare(run, make, *arrays):
    params = [
        relax.Var(f"x{k}", relax.TensorStructInfo(a.shape, a.dtype.name))
        for k, a in enumerate(arrays)
    ]
    wanted = evaluate(make(*params), dict(zip(params, arrays)))
    have = run(*arrays)
    pairs = zip(have, wanted) if isinstance(wanted, (list, tuple)) else [(have, wanted)]
    for a, b in pairs:
        np.testing.assert_array_equal(a.numpy(), b)


@pytest.mark.parametrize("axis", [0, 1])
def test_sizes_known_only_later(axis):
    n, m, k = (tvm.tir.Var(name, "int64") for name in "nmk")
    x, i = relax.TensorStructInfo((n, m), "float32"), relax.TensorStructInfo((k,), "int64")
    pair = relax.TensorStructInfo((n, m), "int64")
    cases = [
        (lambda x, i: R.take(x, i, axis), (x, i), lambda x: places(x.shape[axis], 5)),
        (lambda x, i: R.gather_elements(x, i, axis), (x, pair),
         lambda x: places(x.shape[axis], *x.shape)),
        (lambda x, y: R.concat((x, y), axis), (x, x), lambda x: x + 1),
        (lambda x: R.tile(x, (2, 3)), (x,), None),
        (lambda x: R.argmax(x, axis), (x,), None),
        (lambda x: R.argmin(x), (x,), None),
    ]  # fmt: skip
    for make, infos, other in cases:
        run = _program(make, *infos)
        for shape in ((1, 1), (6, 70), (70, 33)):
            data = random(*shape)
            _compare(run, make, *([data] if other is None else [data, other(data)]))


# -- a long battery --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_gathers_and_scatters(seed):
    rng = np.random.default_rng(seed)
    for cpu in (WIDE, SMALL, SHARED):
        ndim = int(rng.integers(1, 4))
        shape = [int(rng.choice([1, 2, 7, 16, 33, 64])) for _ in range(ndim)]
        axis = int(rng.integers(0, ndim))
        dtype = str(rng.choice(["float32", "float64", "int8", "int32"]))
        index = str(rng.choice(["int32", "int64"]))
        x = random(*shape, dtype=dtype, seed=seed)
        many = int(rng.choice([1, 5, 40]))
        check(cpu, lambda x, i, a=axis: R.take(x, i, a), x,
              places(shape[axis], many, dtype=index, seed=seed))  # fmt: skip
        where = [many if k == axis else n for k, n in enumerate(shape)]
        i, new = places(shape[axis], *where, dtype=index), random(*where, dtype=dtype)
        check(cpu, lambda x, i, a=axis: R.gather_elements(x, i, a), x, i)
        for how in ("update", "add"):
            check(
                cpu,
                lambda x, i, u, a=axis, how=how: R.scatter_elements(x, i, u, a, how),
                *(x, i, new),
            )
