"""Plans for kernels as users write them: what a block is, and every kind of plan carried out."""

import random

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import te, tir
from relaxvm.base import CpuModel
from relaxvm.script import from_source
from relaxvm.tir.schedule import apply_plan
from relaxvm.tir.schedule.plans import Kind, View, plans_for, schedule_function

SMALL = {"l1_bytes": 2 << 10, "l2_bytes": 8 << 10, "l3_bytes": 32 << 10}
CPUS = {
    "avx2": CpuModel("x86_64", 256, 16, True, cores=2, **SMALL),
    "avx512": CpuModel("x86_64", 512, 32, True, frozenset({"avx512vnni"}), cores=2, **SMALL),
}
USERS = {}


def kernel(kind):
    """A formula that is what `kind` says: it gives its inputs, then its result."""

    def add(formula):
        USERS[formula.__name__] = formula, kind
        return formula

    return add


def tensor(name, *shape, dtype="float32"):
    return te.placeholder(shape, dtype, name)


def axis(name, extent):
    return te.reduce_axis((0, extent), name=name)


def product(left, right, shape, at, depth=36, out="float32"):
    k = axis("k", depth)

    def value(*i):
        x, y = at(*i, k.var)
        return te.sum(left(*x).astype(out) * right(*y).astype(out), axis=k)

    return [left, right, te.compute(shape, value, name="C")]


@kernel(Kind.CONTRACTION)
def axes_of_one():
    sides = tensor("A", 1, 20, 36), tensor("B", 36, 1, 40)
    return product(*sides, (1, 20, 40), lambda z, i, j, k: ((z, i, k), (k, 0, j)))


@kernel(Kind.CONTRACTION)
def one_row():
    return product(
        tensor("A", 1, 36), tensor("B", 36, 96), (1, 96), lambda i, j, k: ((i, k), (k, j))
    )


@kernel(Kind.CONTRACTION)
def one_column():
    return product(
        tensor("A", 96, 36), tensor("B", 36, 1), (96, 1), lambda i, j, k: ((i, k), (k, j))
    )


@kernel(Kind.CONTRACTION)
def matrix_by_vector():
    return product(tensor("A", 40, 96), tensor("B", 96), (40,), lambda i, k: ((i, k), (k,)), 96)


@kernel(Kind.CONTRACTION)
def both_transposed():
    return product(
        tensor("A", 36, 20), tensor("B", 40, 36), (20, 40), lambda i, j, k: ((k, i), (j, k))
    )


@kernel(Kind.CONTRACTION)
def result_transposed():
    return product(
        tensor("A", 20, 36), tensor("B", 36, 40), (40, 20), lambda j, i, k: ((i, k), (k, j))
    )


@kernel(Kind.CONTRACTION)
def strided():
    sides = tensor("A", 20, 72), tensor("B", 73, 40)
    return product(*sides, (20, 40), lambda i, j, k: ((i, k * 2), (k * 2 + 1, j)))


@kernel(Kind.CONTRACTION)
def backwards():
    sides = tensor("A", 20, 36), tensor("B", 36, 40)
    return product(*sides, (20, 40), lambda i, j, k: ((i, 35 - k), (35 - k, j)))


@kernel(Kind.CONTRACTION)
def columns_apart():
    sides = tensor("A", 20, 36), tensor("B", 36, 80)
    return product(*sides, (20, 40), lambda i, j, k: ((i, k), (k, j * 2)))


@kernel(Kind.CONTRACTION)
def by_itself():
    a = tensor("A", 24, 36)
    return product(a, a, (24, 24), lambda i, j, k: ((i, k), (j, k)))[1:]


@kernel(Kind.CONTRACTION)
def bytes_as_floats():
    sides = tensor("A", 20, 36, dtype="int8"), tensor("B", 36, 40, dtype="int8")
    return product(*sides, (20, 40), lambda i, j, k: ((i, k), (k, j)))


@kernel(Kind.CONTRACTION)
def halves_as_floats():
    sides = tensor("A", 20, 36, dtype="bfloat16"), tensor("B", 36, 40, dtype="bfloat16")
    return product(*sides, (20, 40), lambda i, j, k: ((i, k), (k, j)))


@kernel(Kind.CONTRACTION)
def bytes_as_ints():
    sides = tensor("A", 20, 36, dtype="uint8"), tensor("B", 36, 40, dtype="int8")
    return product(*sides, (20, 40), lambda i, j, k: ((i, k), (k, j)), out="int32")


@kernel(Kind.CONTRACTION)
def sums_over_two_axes():
    a, b, k, m = tensor("A", 16, 6, 8), tensor("B", 8, 24, 6), axis("k", 6), axis("m", 8)

    def value(j, i):
        return te.sum(a[i, k, m] * b[m, j, k], axis=[k, m])

    return [a, b, te.compute((24, 16), value, name="C")]


@kernel(Kind.CONVOLUTION)
def one_dimension():
    a, b, c, r = tensor("A", 1, 6, 34), tensor("B", 12, 6, 3), axis("c", 6), axis("r", 3)

    def value(n, o, x):
        return te.sum(a[n, c, x + r] * b[o, c, r], axis=[c, r])

    return [a, b, te.compute((1, 12, 32), value, name="C")]


def windows(pad=0, dilation=1):
    a, b = tensor("A", 1, 4, 12, 12), tensor("B", 8, 4, 3, 3)
    c, r, s = axis("c", 4), axis("r", 3), axis("s", 3)
    size = 12 + 2 * pad - 2 * dilation

    def padded(n, d, y, x):
        inside = tir.all(y >= pad, y < 12 + pad, x >= pad, x < 12 + pad)
        return tir.if_then_else(inside, a[n, d, y - pad, x - pad], 0.0)

    image = te.compute((1, 4, 12 + 2 * pad, 12 + 2 * pad), padded, name="P") if pad else a

    def value(n, o, y, x):
        return te.sum(
            image[n, c, y + r * dilation, x + s * dilation] * b[o, c, r, s], axis=[c, r, s]
        )

    return [a, b, te.compute((1, 8, size, size), value, name="C")]


@kernel(Kind.CONVOLUTION)
def padded_windows():
    return windows(pad=1)


@kernel(Kind.CONVOLUTION)
def windows_with_gaps():
    return windows(dilation=2)


@kernel(Kind.CONTRACTION)
def channels_last():
    a, b = tensor("A", 1, 12, 12, 4), tensor("B", 3, 3, 4, 8)
    r, s, c = axis("r", 3), axis("s", 3), axis("c", 4)

    def value(n, y, x, o):
        return te.sum(a[n, y + r, x + s, c] * b[r, s, c, o], axis=[r, s, c])

    return [a, b, te.compute((1, 10, 10, 8), value, name="C")]


@kernel(Kind.POOL)
def largest_of_windows():
    a, r, s = tensor("A", 1, 4, 14, 14), axis("r", 3), axis("s", 3)
    value = lambda n, c, y, x: te.max(a[n, c, y * 2 + r, x * 2 + s], axis=[r, s])  # noqa: E731
    return [a, te.compute((1, 4, 6, 6), value, name="C")]


@kernel(Kind.TRANSPOSE)
def turned_with_an_axis_of_one():
    a = tensor("A", 1, 24, 40)
    return [a, te.compute((40, 1, 24), lambda i, z, j: a[z, j, i], name="C")]


@kernel(Kind.TRANSPOSE)
def turned_with_a_last_axis_of_one():
    a = tensor("A", 24, 40, 1)
    return [a, te.compute((40, 24, 1), lambda i, j, z: a[j, i, z], name="C")]


@kernel(Kind.TRANSPOSE)
def turned_and_converted():
    a = tensor("A", 24, 40, dtype="int8")
    return [a, te.compute((40, 24), lambda i, j: a[j, i].astype("float32"), name="C")]


@kernel(Kind.REDUCTION)
def a_part_of_each_row():
    a, k = tensor("A", 24, 40), axis("k", 40)
    value = lambda i: te.sum(tir.if_then_else(k.var <= i, a[i, k], 0.0), axis=k)  # noqa: E731
    return [a, te.compute((24,), value, name="C")]


def function_of(name):
    fn = te.create_prim_func(USERS[name][0]())
    return tir.transform.with_index_dtype(fn, "int64")


@pytest.mark.parametrize("name", USERS)
def test_what_users_write_is_told_by_what_it_computes(name):
    sch = tir.Schedule(function_of(name))
    assert View(sch, sch.get_block("C")).kind is USERS[name][1]


IN_PARTS = """
@T.prim_func
def main(A: T.Buffer((20, 36), "int8"), B: T.Buffer((36, 40), "int8"),
         C: T.Buffer((20, 40), "float32")):
    for i, jo, ji, k in T.grid(20, 3, 16, 36):
        with T.block("C"):
            vi = T.axis.spatial(20, i)
            vj = T.axis.spatial(40, jo * 16 + ji)
            vk = T.axis.reduce(36, k)
            T.where(jo * 16 + ji < 40)
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vk, vj])
"""


def test_loops_that_are_parts_of_axes_and_ask_for_their_end_are_planned_as_whole_ones():
    fn = from_source(IN_PARTS)
    sch = tir.Schedule(fn)
    assert View(sch, sch.get_block("C")).kind is Kind.CONTRACTION
    whole = tir.Schedule(te.create_prim_func(bytes_as_floats()))
    choices = plans_for(sch, "C", CPUS["avx2"])
    assert sch.mod["main"] is fn
    assert choices == plans_for(whole, "C", CPUS["avx2"]) and len(choices) > 5
    scheduled = schedule_function(fn, CPUS["avx2"])
    assert "T.vectorized" in scheduled.script()
    kept = schedule_function(fn, CPUS["avx2"], exact=True)
    arrays = [numbers(b, np.random.default_rng(0)).numpy() for b in fn.buffers]
    wanted = arrays[0].astype("float32") @ arrays[1].astype("float32")
    for each in (scheduled, kept):
        tir.interpret(each, *arrays)
        np.testing.assert_array_equal(arrays[-1], wanted)
    apply_plan(sch, "C", choices[0].plan)
    tir.interpret(sch.mod["main"], *arrays)
    np.testing.assert_array_equal(arrays[-1], wanted)


def numbers(buffer, rng):
    dtype, shape = str(buffer.dtype), [int(n) for n in buffer.shape]
    few = rng.integers(0 if dtype.startswith("u") else -3, 4, shape)  # sums are exact in any order
    return tvm.nd.array(few.astype("float32")).astype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", USERS)
def test_whatever_plan_is_offered_gives_what_the_interpreter_says(name, cpu):
    fn = function_of(name)
    rng = np.random.default_rng(0)
    arrays = [numbers(b, rng) for b in fn.buffers]
    wanted = [a.numpy().copy() for a in arrays]
    tir.interpret(fn, *wanted)
    choices = [c.plan for c in plans_for(tir.Schedule(fn), "C", CPUS[cpu])]
    # One of each class at least.
    some = {type(p): p for p in random.Random(1).sample(choices, len(choices))}
    rest = random.Random(0).sample(choices, min(4, len(choices)))
    assert choices or USERS[name][1] is Kind.REDUCTION
    for plan in dict.fromkeys((*choices[:1], *some.values(), *rest)):
        sch = tir.Schedule(fn)
        apply_plan(sch, "C", plan)
        given = [tvm.nd.array(a.numpy()) for a in arrays]
        tvm.build(sch.mod, "llvm", schedule=False)["main"](*given)
        np.testing.assert_array_equal(given[-1].numpy(), wanted[-1], err_msg=str(plan))
