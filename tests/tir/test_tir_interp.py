"""The interpreter against direct numpy computations, its scoping rules, and what it refuses."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fuzz.loop_programs import FLOATS, INTS, SCALARS, array_from, edge_values

from relaxvm import tir
from relaxvm.base import (
    DataType,
    LimitError,
    TIRError,
    VerifyError,
    VMError,
    VMTypeError,
    VMValueError,
    bfloat16_to_float32,
    float32_to_bfloat16,
    to_numpy_dtype,
)
from relaxvm.ir import IRModule
from relaxvm.tir import const, decl_buffer, evaluate_expr, interpret, seq

ZERO = const(0, "int64")


def i64(value):
    return const(value, "int64")


def axis(name, extent, kind="spatial"):
    return tir.IterVar(
        tir.Range.from_min_extent(ZERO, tir.as_expr(extent, "int64")), tir.Var(name, "int64"), kind
    )


def loops(variables, extents, body, kind="serial"):
    for var, extent in reversed(list(zip(variables, extents))):
        body = tir.For(var, 0, extent, kind, body)
    return body


def variables(names, dtype="int64"):
    return [tir.Var(name, dtype) for name in names.split()]


def func(params, body, **attrs):
    return tir.PrimFunc(params, body, attrs={"global_symbol": "f", **attrs})


def elementwise(dtype, make, shape=(4,), out_dtype=None, kind="serial"):
    a = decl_buffer(tuple(map(i64, shape)), dtype, "A")
    b = decl_buffer(tuple(map(i64, shape)), out_dtype or dtype, "B")
    index = variables("i j k")[: len(shape)]
    store = tir.BufferStore(b, make(a[tuple(index)]), index)
    return func([a, b], loops(index, [i64(n) for n in shape], store, kind))


def matmul(n, m, k, dtype="float32"):
    """C = A @ B as a block with init."""
    a, b, c = (
        decl_buffer(shape, dtype, name)
        for shape, name in (((n, k), "A"), ((k, m), "B"), ((n, m), "C"))
    )
    i, j, r = variables("i j r")
    axes = [axis("vi", n), axis("vj", m), axis("vk", k, "reduce")]
    vi, vj, vk = (x.var for x in axes)
    update = tir.BufferStore(c, c[vi, vj] + a[vi, vk] * b[vk, vj], (vi, vj))
    init = tir.BufferStore(c, const(0, dtype), (vi, vj))
    block = tir.Block(axes, (), (), "matmul", update, init)
    return func([a, b, c], loops([i, j, r], [n, m, k], tir.BlockRealize([i, j, r], True, block)))


def numbers(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    if DataType(dtype).is_float:
        values = rng.standard_normal(shape).astype(np.float32)
        if dtype == "bfloat16":
            return float32_to_bfloat16(values).reshape(shape)
        return values.astype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 100, shape).astype(dtype)


# -- against numpy ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*INTS, "float16", "float32", "float64"])
def test_matmul_with_symbolic_shapes_is_numpys(dtype):
    n, m = variables("n m")
    f = matmul(n, m, i64(5), dtype)
    a, b = numbers(dtype, (3, 5)), numbers(dtype, (5, 4), 1)
    c = np.zeros((3, 4), dtype)
    interpret(f, a, b, c)
    expected = np.zeros((3, 4), dtype)
    with np.errstate(all="ignore"):
        for k in range(5):
            expected = expected + a[:, k : k + 1] * b[k : k + 1, :]
    np.testing.assert_array_equal(c, expected)


def test_matmul_of_bfloat16_rounds_after_every_operation():
    f = matmul(i64(3), i64(4), i64(5), "bfloat16")
    a, b = numbers("bfloat16", (3, 5)), numbers("bfloat16", (5, 4), 1)
    c = np.zeros((3, 4), np.uint16)
    interpret(f, a, b, c)

    def rounded(x):
        return bfloat16_to_float32(float32_to_bfloat16(x)).reshape(x.shape)

    wide_a, wide_b = bfloat16_to_float32(a), bfloat16_to_float32(b)
    expected = np.zeros((3, 4), np.float32)
    for k in range(5):
        expected = rounded(expected + rounded(wide_a[:, k : k + 1] * wide_b[k : k + 1, :]))
    np.testing.assert_array_equal(bfloat16_to_float32(c), expected)


@pytest.mark.parametrize("dtype", list(INTS))
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "minimum", "maximum"])
def test_integer_arithmetic_wraps_as_numpys(dtype, name):
    cls = {
        "add": tir.Add,
        "subtract": tir.Sub,
        "multiply": tir.Mul,
        "minimum": tir.Min,
        "maximum": tir.Max,
    }
    edges = edge_values(dtype)
    pairs = list(itertools.product(edges, edges))
    a = np.array([p[0] for p in pairs], dtype)
    b = np.array([p[1] for p in pairs], dtype)
    shape = (i64(len(pairs)),)
    x, y, z = (decl_buffer(shape, dtype, n) for n in "XYZ")
    (i,) = variables("i")
    f = func(
        [x, y, z],
        tir.For(i, 0, i64(len(pairs)), "serial", tir.BufferStore(z, cls[name](x[i], y[i]), (i,))),
    )
    out = np.zeros_like(a)
    interpret(f, a, b, out)
    np.testing.assert_array_equal(out, getattr(np, name)(a, b))


@pytest.mark.parametrize("dtype", list(SCALARS))
@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorized", "unroll"])
def test_copies_keep_every_bit_whatever_the_loop_kind(dtype, kind):
    f = elementwise(dtype, lambda x: x, (3, 4), kind=kind)
    a = array_from(edge_values(dtype), dtype, (3, 4))
    b = np.zeros_like(a)
    interpret(f, a, b)
    assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", list(FLOATS))
def test_softmax_of_two_stages(dtype):
    n = 6
    a, b = decl_buffer((n,), dtype, "A"), decl_buffer((n,), dtype, "B")
    top, total = decl_buffer((1,), dtype, "top"), decl_buffer((1,), dtype, "total")
    i, j, k = variables("i j k")
    body = seq(
        tir.BufferStore(top, tir.min_value(dtype), (ZERO,)),
        tir.For(i, 0, n, "serial", tir.BufferStore(top, tir.max(top[ZERO], a[i]), (ZERO,))),
        tir.BufferStore(total, const(0.0, dtype), (ZERO,)),
        tir.For(
            j,
            0,
            n,
            "serial",
            tir.BufferStore(total, total[ZERO] + tir.exp(a[j] - top[ZERO]), (ZERO,)),
        ),
        tir.For(
            k, 0, n, "serial", tir.BufferStore(b, tir.exp(a[k] - top[ZERO]) / total[ZERO], (k,))
        ),
    )
    f = func(
        [a, b], tir.BlockRealize((), True, tir.Block((), (), (), "root", body, None, (top, total)))
    )
    x = numbers(dtype, (n,))
    out = np.zeros_like(x)
    interpret(f, x, out)
    wide = bfloat16_to_float32(x) if dtype == "bfloat16" else x.astype(np.float64)
    got = bfloat16_to_float32(out) if dtype == "bfloat16" else out
    exact = np.exp(wide - wide.max()) / np.exp(wide - wide.max()).sum()
    tolerance = {"float64": 1e-14, "float32": 1e-6, "float16": 4e-3, "bfloat16": 4e-2}[dtype]
    np.testing.assert_allclose(got, exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "bfloat16"])
def test_scalar_parameters_and_returned_values(dtype):
    x = tir.Var("x", dtype)
    f = tir.PrimFunc([x], tir.Evaluate(tir.ret(tir.Select(x == x, x, x))), tir.PrimType(dtype))
    value = interpret(f, 1)
    assert value == 1
    assert value.dtype == np.dtype({"bfloat16": "float32"}.get(dtype, dtype))


def test_return_leaves_loops_and_later_statements():
    a = decl_buffer((8,), "int32", "A")
    i = tir.Var("i", "int64")
    found = tir.IfThenElse(a[i] == 3, tir.Evaluate(tir.ret(i)))
    body = seq(tir.For(i, 0, 8, "serial", found), tir.Evaluate(tir.ret(i64(-1))))
    f = tir.PrimFunc([a], body, tir.PrimType("int64"))
    assert interpret(f, np.array([0, 1, 2, 3, 4, 5, 6, 7], np.int32)) == 3
    assert interpret(f, np.zeros(8, np.int32)) == -1


# -- blocks ----------------------------------------------------------------------------------------


def test_init_runs_at_the_first_iteration_of_every_reduce_axis():
    f = matmul(i64(2), i64(2), i64(3))
    a, b = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    c = np.full((2, 2), 100, np.float32)
    interpret(f, a, b, c)
    np.testing.assert_array_equal(c, np.full((2, 2), 3))


def test_init_of_a_reduce_axis_that_starts_elsewhere():
    a, c = decl_buffer((8,), "int32", "A"), decl_buffer((1,), "int32", "C")
    vk = tir.Var("vk", "int64")
    iv = tir.IterVar(tir.Range.from_min_extent(i64(2), i64(4)), vk, "reduce")
    block = tir.Block(
        [iv],
        (),
        (),
        "sum",
        tir.BufferStore(c, c[ZERO] + a[vk], (ZERO,)),
        tir.BufferStore(c, const(0), (ZERO,)),
    )
    k = tir.Var("k", "int64")
    f = func([a, c], tir.For(k, 0, 4, "serial", tir.BlockRealize([k + 2], True, block)))
    out = np.array([55], np.int32)
    interpret(f, np.arange(8, dtype=np.int32), out)
    assert out[0] == 2 + 3 + 4 + 5


def test_predicates_skip_iterations():
    a = decl_buffer((10,), "int32", "A")
    o, p = variables("o p")
    v = axis("v", 10)
    block = tir.Block([v], (), (), "fill", tir.BufferStore(a, v.var.astype("int32"), (v.var,)))
    index = o * 4 + p
    f = func([a], loops([o, p], [3, 4], tir.BlockRealize([index], index < 10, block)))
    out = np.full(10, -1, np.int32)
    interpret(f, out)
    np.testing.assert_array_equal(out, np.arange(10))


def test_an_axis_outside_its_domain_is_refused():
    a = decl_buffer((10,), "int32", "A")
    (i,) = variables("i")
    v = axis("v", 4)
    block = tir.Block([v], (), (), "fill", tir.BufferStore(a, const(1), (v.var,)))
    f = func([a], tir.For(i, 0, 10, "serial", tir.BlockRealize([i], True, block)))
    with pytest.raises(VMValueError, match=r"block fill: axis v is 4, outside its domain 0\.\.3"):
        interpret(f, np.zeros(10, np.int32))


def test_nested_blocks_and_local_buffers():
    a, b = decl_buffer((4, 4), "float32", "A"), decl_buffer((4, 4), "float32", "B")
    row = decl_buffer((4,), "float32", "row")
    i, j, k = variables("i j k")
    vi, vj, vk = axis("vi", 4), axis("vj", 4), axis("vk", 4)
    fill = tir.Block([vj], (), (), "fill", tir.BufferStore(row, a[vi.var, vj.var] * 2.0, (vj.var,)))
    back = tir.Block(
        [vk], (), (), "back", tir.BufferStore(b, row[3 - vk.var] + 1.0, (vi.var, vk.var))
    )
    inner = seq(
        tir.For(j, 0, 4, "serial", tir.BlockRealize([j], True, fill)),
        tir.For(k, 0, 4, "serial", tir.BlockRealize([k], True, back)),
    )
    outer = tir.Block([vi], (), (), "outer", inner, None, (row,))
    f = func([a, b], tir.For(i, 0, 4, "serial", tir.BlockRealize([i], True, outer)))
    x = numbers("float32", (4, 4))
    out = np.zeros_like(x)
    interpret(f, x, out)
    np.testing.assert_array_equal(out, x[:, ::-1] * 2 + 1)


def test_match_buffer_binds_symbols_and_views_the_region():
    a = decl_buffer((8, 8), "float32", "A")
    s0, s1, offset, rows = variables("s0 s1 offset rows")
    tile = decl_buffer((rows, 4), "float32", "tile", strides=(s0, s1), elem_offset=offset)
    seen = decl_buffer((4,), "int64", "seen")
    i, j = variables("i j")
    region = tir.BufferRegion(
        a, (tir.Range.from_min_extent(i64(2), i64(3)), tir.Range.from_min_extent(i64(4), i64(4)))
    )
    body = seq(
        loops([i, j], [rows, 4], tir.BufferStore(tile, tile[i, j] + 1.0, (i, j))),
        *[tir.BufferStore(seen, v, (i64(k),)) for k, v in enumerate((rows, s0, s1, offset))],
    )
    block = tir.Block((), (), (), "view", body, None, (), (tir.MatchBufferRegion(tile, region),))
    f = func([a, seen], tir.BlockRealize((), True, block))
    x = np.zeros((8, 8), np.float32)
    numbers_seen = np.zeros(4, np.int64)
    interpret(f, x, numbers_seen)
    expected = np.zeros((8, 8))
    expected[2:5, 4:8] = 1
    np.testing.assert_array_equal(x, expected)
    assert numbers_seen.tolist() == [3, 8, 1, 20]


def test_match_buffer_drops_leading_axes_of_one_element():
    a = decl_buffer((4, 6), "int32", "A")
    row = decl_buffer((6,), "int32", "row")
    i, j = variables("i j")
    vi = axis("vi", 4)
    region = tir.BufferRegion(
        a, (tir.Range.from_min_extent(vi.var, i64(1)), tir.Range.from_min_extent(ZERO, i64(6)))
    )
    body = tir.For(j, 0, 6, "serial", tir.BufferStore(row, (vi.var * 10 + j).astype("int32"), (j,)))
    block = tir.Block([vi], (), (), "row", body, None, (), (tir.MatchBufferRegion(row, region),))
    f = func([a], tir.For(i, 0, 4, "serial", tir.BlockRealize([i], True, block)))
    x = np.zeros((4, 6), np.int32)
    interpret(f, x)
    np.testing.assert_array_equal(x, np.arange(4)[:, None] * 10 + np.arange(6))


def test_a_match_buffer_region_that_leaves_its_source_is_refused():
    a = decl_buffer((4,), "int32", "A")
    part = decl_buffer((3,), "int32", "part")
    region = tir.BufferRegion(a, (tir.Range.from_min_extent(i64(2), i64(3)),))
    body = tir.BufferStore(part, const(1), (ZERO,))
    block = tir.Block((), (), (), "b", body, None, (), (tir.MatchBufferRegion(part, region),))
    with pytest.raises(VMValueError, match="match_buffer part"):
        interpret(func([a], tir.BlockRealize((), True, block)), np.zeros(4, np.int32))


# -- lowered forms ---------------------------------------------------------------------------------


def test_allocated_memory_seen_as_another_shape_and_dtype():
    memory = tir.Var("memory", tir.PointerType(tir.PrimType("float32")))
    floats = tir.Buffer(memory, "float32", (4,), name="floats")
    words = tir.Buffer(memory, "uint32", (2, 2), name="words")
    out = decl_buffer((4,), "uint32", "out")
    i, j = variables("i j")
    body = seq(
        tir.For(i, 0, 4, "serial", tir.BufferStore(floats, i.astype("float32"), (i,))),
        tir.For(j, 0, 4, "serial", tir.BufferStore(out, words[j // 2, j % 2], (j,))),
    )
    f = func([out], tir.Allocate(memory, "float32", (4,), True, tir.DeclBuffer(words, body)))
    x = np.zeros(4, np.uint32)
    interpret(f, x)
    np.testing.assert_array_equal(x, np.arange(4, dtype=np.float32).view(np.uint32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
def test_allocated_constants(dtype):
    memory = tir.Var("table", tir.PointerType(tir.PrimType(dtype)))
    table = tir.Buffer(memory, dtype, (3,), name="table")
    out = decl_buffer((3,), dtype, "out")
    (i,) = variables("i")
    data = {
        "float32": (1.5, -0.0, 3.0),
        "bfloat16": (1.5, -0.0, 3.0),
        "int8": (1, -2, 3),
        "bool": (1, 0, 1),
    }[dtype]
    body = tir.For(i, 0, 3, "serial", tir.BufferStore(out, table[i], (i,)))
    f = func([out], tir.AllocateConst(memory, dtype, (3,), data, body))
    x = array_from([0], dtype, (3,))
    interpret(f, x)
    assert x.tobytes() == array_from(data, dtype, (3,)).tobytes()


def test_constants_of_bfloat16_can_be_given_as_bits():
    memory = tir.Var("table", "handle")
    made = tir.AllocateConst(
        memory, "bfloat16", (2,), np.array([0x3F80, 0xC000], np.uint16), tir.Evaluate(0)
    )
    assert made.data == (1.0, -2.0)


def test_stores_to_constant_memory_are_refused():
    memory = tir.Var("table", "handle")
    table = tir.Buffer(memory, "int32", (1,), name="table")
    body = tir.BufferStore(table, const(1), (ZERO,))
    with pytest.raises(VMValueError, match="table, which is read-only"):
        interpret(func([], tir.AllocateConst(memory, "int32", (1,), (1,), body)))


def test_bare_handles_and_pointers():
    a, b = variables("a b", "handle")
    x, y = tir.Buffer(a, "int32", (6,), name="X"), tir.Buffer(b, "int32", (4,), name="Y")
    p = tir.Var("p", "handle")
    z = tir.Buffer(p, "int32", (4,), name="Z")
    (i,) = variables("i")
    body = tir.For(i, 0, 4, "serial", tir.BufferStore(y, z[i] * 10, (i,)))
    f = func([a, b], tir.LetStmt(p, tir.address_of(x[i64(2)]), body))
    source, out = np.arange(6, dtype=np.int32), np.zeros(4, np.int32)
    interpret(f, source, out)
    np.testing.assert_array_equal(out, source[2:] * 10)


def test_launches_over_threads_are_loops():
    a = decl_buffer((6,), "int32", "A")
    bx, tx = tir.Var("bx", "int32"), tir.Var("tx", "int32")
    store = tir.BufferStore(a, bx * 3 + tx, (bx * 3 + tx,))
    inner = tir.For(
        tx,
        0,
        3,
        "thread_binding",
        store,
        tir.IterVar(None, tir.Var("t", "int32"), "thread", "threadIdx.x"),
    )
    outer = tir.AttrStmt(
        tir.IterVar(None, bx, "thread", "blockIdx.x"), "thread_extent", const(2), inner
    )
    x = np.zeros(6, np.int32)
    interpret(func([a], outer), x)
    np.testing.assert_array_equal(x, np.arange(6))


def test_functions_call_each_other_with_buffers_pointers_and_numbers():
    n = tir.Var("n", "int64")
    a = decl_buffer((n,), "int32", "A")
    d = tir.Var("d", "int32")
    (i,) = variables("i")
    add = tir.PrimFunc([a, d], tir.For(i, 0, n, "serial", tir.BufferStore(a, a[i] + d, (i,))))
    p, q = tir.Var("p", "handle"), tir.Var("q", "int32")
    raw = tir.Buffer(p, "int32", (2,), name="raw")
    square = tir.PrimFunc([p, q], tir.Evaluate(tir.ret(raw[i64(1)] * q)), tir.PrimType("int32"))
    mod = IRModule({"add": add, "square": square})
    x, y = decl_buffer((5,), "int32", "X"), decl_buffer((1,), "int32", "Y")
    call = tir.Call("int32", mod.get_global_var("square"), (x.data, const(7)))
    body = seq(
        tir.Evaluate(tir.Call("int32", mod.get_global_var("add"), (x, const(3)))),
        tir.BufferStore(y, call, (ZERO,)),
    )
    mod["main"] = tir.PrimFunc([x, y], body)
    data, out = np.arange(5, dtype=np.int32), np.zeros(1, np.int32)
    interpret(mod["main"], data, out, module=mod)
    np.testing.assert_array_equal(data, np.arange(5) + 3)
    assert out[0] == 4 * 7
    with pytest.raises(VMError, match="pass module="):
        interpret(mod["main"], data, out)


def test_endless_recursion_ends_in_an_error():
    gv = tir.GlobalVar("f")
    n = tir.Var("n", "int32")
    f = tir.PrimFunc([n], tir.Evaluate(tir.Call("int32", gv, (n + 1,))))
    mod = IRModule({gv: f})
    with pytest.raises(LimitError, match="nest"):
        interpret(f, 0, module=mod)


# -- vectors ---------------------------------------------------------------------------------------


def test_vector_loads_stores_and_shuffles():
    a, b = decl_buffer((8,), "float32", "A"), decl_buffer((8,), "float32", "B")
    low = a[tir.Ramp(ZERO, i64(2), 4)]
    high = a[tir.Ramp(i64(7), i64(-2), 4)]
    mixed = tir.Shuffle((low, high), (7, 0, 6, 1))
    body = seq(
        tir.BufferStore(b, low + tir.Broadcast(const(1.0), 4), (tir.Ramp(ZERO, i64(1), 4),)),
        tir.BufferStore(b, mixed, (tir.Ramp(i64(4), i64(1), 4),)),
    )
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    interpret(func([a, b], body), x, out)
    assert out.tolist() == [1, 3, 5, 7, 1, 0, 3, 2]


def test_buffers_of_vectors_have_an_axis_for_the_lanes():
    a, b = decl_buffer((3,), "int16x4", "A"), decl_buffer((3,), "int16x4", "B")
    (i,) = variables("i")
    f = func([a, b], tir.For(i, 0, 3, "serial", tir.BufferStore(b, a[i] + a[i64(2) - i], (i,))))
    x = np.arange(12, dtype=np.int16).reshape(3, 4)
    out = np.zeros_like(x)
    interpret(f, x, out)
    np.testing.assert_array_equal(out, x + x[::-1])


def test_vector_conditions_choose_lane_by_lane():
    x = tir.Var("x", "int32x4")
    expr = tir.Select(x > tir.Broadcast(const(1), 4), x, -x)
    assert evaluate_expr(expr, {x: [0, 1, 2, 3]}).tolist() == [0, -1, 2, 3]
    both = tir.And(x > tir.Broadcast(const(0), 4), tir.Not(x > tir.Broadcast(const(2), 4)))
    assert evaluate_expr(both, {x: [0, 1, 2, 3]}).tolist() == [False, True, True, False]


def test_halves_of_vectors():
    x = tir.Var("x", "int32x4")
    env = {x: [1, 2, 3, 4]}
    low, high = tir.vectorlow("int32x2", x), tir.vectorhigh("int32x2", x)
    assert evaluate_expr(tir.vectorcombine("int32x4", high, low), env).tolist() == [3, 4, 1, 2]


# -- what is evaluated -----------------------------------------------------------------------------


def test_and_or_and_if_then_else_do_not_evaluate_what_they_need_not():
    a, out = decl_buffer((4,), "int32", "A"), decl_buffer((6,), "int32", "B")
    (i,) = variables("i")
    inside = tir.And(i < 4, a[i] > 0)
    safe = tir.if_then_else(i < 4, a[i], const(-1))
    either = tir.Or(i >= 4, a[i] > 1)
    value = safe + inside.astype("int32") * 100 + either.astype("int32") * 10
    f = func([a, out], tir.For(i, 0, 6, "serial", tir.BufferStore(out, value, (i,))))
    x = np.zeros(6, np.int32)
    interpret(f, np.array([0, 1, 2, 3], np.int32), x)
    assert x.tolist() == [0, 101, 112, 113, 9, 9]


def test_select_evaluates_both_sides():
    a, out = decl_buffer((4,), "int32", "A"), decl_buffer((6,), "int32", "B")
    (i,) = variables("i")
    f = func(
        [a, out], tir.For(i, 0, 6, "serial", tir.BufferStore(out, tir.Select(i < 4, a[i], 0), (i,)))
    )
    with pytest.raises(
        VMValueError, match=r"load of A\[4\] is out of bounds: axis 0 of shape \(4,\)"
    ):
        interpret(f, np.zeros(4, np.int32), np.zeros(6, np.int32))


def test_a_sum_of_5000_terms_and_other_long_chains():
    x = tir.Var("x", "int32")
    left = right = tir.as_expr(x)
    for k in range(5000):
        left = tir.Add(left, const(k))
        right = tir.Sub(const(k), right)
    assert evaluate_expr(left, {x: 1}) == 1 + sum(range(5000))
    assert evaluate_expr(right, {x: 1}) == sum((-1) ** (4999 - k) * k for k in range(5000)) + 1
    chain = tir.all(*[x != k for k in range(1, 5000)])
    assert evaluate_expr(chain, {x: 0})
    assert not evaluate_expr(chain, {x: 4000})
    cases = const(-1)
    for k in range(3000):
        cases = tir.if_then_else(x == k, const(k * 2), cases)
    assert evaluate_expr(cases, {x: 1234}) == 2468
    lets = tir.as_expr(x)
    for k in range(3000):
        v = tir.Var(f"v{k}", "int32")
        lets = tir.Add(lets, v) if k == 2000 else lets
        lets = tir.Let(v, x + k, lets)
    assert evaluate_expr(lets, {x: 5}) == 5 + 2005


def test_expressions_shared_many_times_are_evaluated_once():
    x = tir.as_expr(tir.Var("x", "int64"))
    double = lazy = x
    for _ in range(60):
        double = tir.Add(double, double)
        lazy = tir.Add(tir.if_then_else(lazy > 0, lazy, 0), tir.if_then_else(lazy < 9, lazy, 1)) % 7
    assert evaluate_expr(double, {x: 1}) == 1 << 60
    assert 0 <= evaluate_expr(lazy, {x: 3}) < 7


def test_too_many_conditional_parts_in_each_other_are_refused():
    x = tir.Var("x", "int32")
    expr = tir.as_expr(x)
    for k in range(600):
        expr = tir.if_then_else(x > k, tir.Add(expr, const(1)), const(0))
    with pytest.raises(TIRError, match="conditional parts"):
        evaluate_expr(expr, {x: 1})


def test_ten_thousand_statements_and_lets():
    a = decl_buffer((1,), "int32", "A")
    stores = [tir.BufferStore(a, a[ZERO] + k, (ZERO,)) for k in range(10_000)]
    x = np.zeros(1, np.int32)
    interpret(func([a], seq(*stores)), x)
    assert x[0] == sum(range(10_000))
    body = tir.BufferStore(a, const(1), (ZERO,))
    for k in range(3000):
        v = tir.Var(f"v{k}", "int32")
        body = tir.LetStmt(v, const(k), seq(tir.BufferStore(a, a[ZERO] + v, (ZERO,)), body))
    interpret(func([a], body), x)
    assert x[0] == 1


def test_loops_of_no_iterations_and_empty_arrays():
    n = tir.Var("n", "int64")
    a = decl_buffer((n,), "float32", "A")
    i, j = variables("i j")
    f = func(
        [a],
        seq(
            tir.For(i, 0, n - 5, "serial", tir.BufferStore(a, const(1.0), (i,))),
            tir.For(j, 0, n, "serial", tir.BufferStore(a, const(2.0), (j,))),
        ),
    )
    x = np.zeros(0, np.float32)
    interpret(f, x)
    y = np.zeros(3, np.float32)
    interpret(f, y)
    assert y.tolist() == [2, 2, 2]


def test_while_counts_until_its_condition_fails():
    a = decl_buffer((2,), "int64", "A")
    body = tir.While(
        a[ZERO] != 1,
        seq(
            tir.BufferStore(
                a, tir.if_then_else(a[ZERO] % 2 == 0, a[ZERO] // 2, a[ZERO] * 3 + 1), (ZERO,)
            ),
            tir.BufferStore(a, a[i64(1)] + 1, (i64(1),)),
        ),
    )
    x = np.array([27, 0], np.int64)
    interpret(func([a], body), x)
    assert x.tolist() == [1, 111]


# -- arguments -------------------------------------------------------------------------------------


def double(n=None):
    n = tir.Var("n", "int64") if n is None else n
    a, b = decl_buffer((n, 4), "float32", "A"), decl_buffer((n, 4), "float32", "B")
    i, j = variables("i j")
    return func([a, b], loops([i, j], [n, 4], tir.BufferStore(b, a[i, j] * 2.0, (i, j))))


X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((X,), VMTypeError, "wanted 2 arguments"),
        ((X, X, X), VMTypeError, "wanted 2 arguments"),
        ((X, 3), VMTypeError, "parameter B: wanted an array of float32, got int"),
        (
            (X, X.astype("float64")),
            VMTypeError,
            "parameter B: wanted an array of float32, got float64",
        ),
        ((X, np.zeros(8, np.float32)), VMTypeError, "parameter B: wanted 2 dimensions"),
        (
            (X, np.zeros((2, 5), np.float32)),
            VMValueError,
            r"parameter B: shape\[1\] must be 4, got 5",
        ),
        (
            (X, np.zeros((3, 4), np.float32)),
            VMValueError,
            r"parameter B: shape\[0\] must be 2, got 3",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(args, error, message):
    with pytest.raises(error, match=message):
        interpret(double(), *args)


def test_read_only_outputs_are_refused_and_read_only_inputs_are_not():
    frozen = X.copy()
    frozen.flags.writeable = False
    out = np.zeros_like(X)
    interpret(double(), frozen, out)
    np.testing.assert_array_equal(out, X * 2)
    with pytest.raises(VMValueError, match="parameter B is written"):
        interpret(double(), out, frozen)


def test_arrays_that_are_not_contiguous_work_by_a_copy():
    wide = np.zeros((4, 4), np.float32)
    interpret(double(), X[:, ::-1], wide[::-2])
    np.testing.assert_array_equal(wide[::-2], X[:, ::-1] * 2)
    np.testing.assert_array_equal(wide[::2], 0)


def test_declared_strides_are_bound_and_used():
    s, n = tir.Var("s", "int64"), tir.Var("n", "int64")
    a = decl_buffer((n, 4), "float32", "A", strides=(s, 1))
    (i, j) = variables("i j")
    out = decl_buffer((1,), "int64", "S")
    body = seq(
        loops([i, j], [n, 4], tir.BufferStore(a, a[i, j] + 1.0, (i, j))),
        tir.BufferStore(out, s, (ZERO,)),
    )
    wide = np.zeros((3, 8), np.float32)
    strides = np.zeros(1, np.int64)
    interpret(func([a, out], body), wide[:, 2:6], strides)
    assert strides[0] == 8
    assert wide[:, 2:6].all()
    assert not wide[:, :2].any()
    with pytest.raises(VMValueError, match="strides"):
        interpret(func([a, out], body), np.zeros((4, 3), np.float32).T, strides)


def test_expressions_in_shapes_are_checked():
    n = tir.Var("n", "int64")
    a, b = decl_buffer((n * 2,), "float32", "A"), decl_buffer((n,), "float32", "B")
    f = func([a, b], tir.Evaluate(0))
    interpret(f, np.zeros(6, np.float32), np.zeros(3, np.float32))
    with pytest.raises(VMValueError, match=r"parameter A: shape\[0\] must be 6, got 5"):
        interpret(f, np.zeros(5, np.float32), np.zeros(3, np.float32))


def test_a_symbol_given_as_a_scalar_must_agree_with_the_shape():
    n = tir.Var("n", "int32")
    a = decl_buffer((n,), "float32", "A")
    f = func([a, n], tir.Evaluate(0))
    interpret(f, np.zeros(3, np.float32), 3)
    with pytest.raises(VMValueError, match="must be 4, got 3"):
        interpret(f, np.zeros(3, np.float32), 4)


@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [
        ("int8", 200, VMValueError),
        ("uint8", -1, VMValueError),
        ("int32", 1.5, VMTypeError),
        ("int32", "3", VMTypeError),
        ("float32", None, VMTypeError),
        ("bool", 2, VMValueError),
        ("int32", np.zeros(3), VMTypeError),
    ],
)
def test_scalars_that_do_not_fit_are_refused(dtype, value, error):
    x = tir.Var("x", dtype)
    with pytest.raises(error, match="parameter x"):
        interpret(func([x], tir.Evaluate(0)), value)


def test_noalias_functions_refuse_overlapping_arguments():
    f = double().with_attr("tir.noalias", True)
    memory = np.zeros((3, 4), np.float32)
    with pytest.raises(VMValueError, match="overlaps"):
        interpret(f, memory[:2], memory[1:])
    interpret(double(), memory[:2], memory[1:])


def test_objects_with_numpy_are_taken_as_arrays():
    class Wrapped:
        def __init__(self, array):
            self.array = array

        def numpy(self):
            return self.array

    out = np.zeros_like(X)
    interpret(double(), Wrapped(X), Wrapped(out))
    np.testing.assert_array_equal(out, X * 2)


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [-1, 4, 1 << 40])
def test_accesses_out_of_bounds_are_refused(index):
    a = decl_buffer((4,), "float32", "A")
    with pytest.raises(VMValueError, match="store of A"):
        interpret(func([a], tir.BufferStore(a, const(1.0), (i64(index),))), np.zeros(4, np.float32))
    with pytest.raises(VMValueError, match="load of A"):
        interpret(func([a], tir.Evaluate(a[i64(index)])), np.zeros(4, np.float32))
    vector = tir.Ramp(i64(index), i64(1), 2)
    with pytest.raises(VMValueError, match="out of bounds"):
        interpret(func([a], tir.Evaluate(a[vector])), np.zeros(4, np.float32))


def test_failed_assertions_carry_their_message():
    n = tir.Var("n", "int32")
    f = func([n], tir.AssertStmt(n > 3, "n is too small", tir.Evaluate(0)))
    interpret(f, 4)
    with pytest.raises(VMError, match="f: n is too small"):
        interpret(f, 3)


def test_broken_assumptions_are_refused():
    n = tir.Var("n", "int32")
    f = func([n], tir.Evaluate(tir.assume(n > 3)))
    interpret(f, 4)
    with pytest.raises(VMError, match="assumption"):
        interpret(f, 3)


def test_ill_formed_functions_are_refused():
    a = decl_buffer((4,), "float32", "A")
    with pytest.raises(VerifyError, match="variable y is used but not defined"):
        interpret(
            func([a], tir.BufferStore(a, tir.Var("y", "float32"), (ZERO,))), np.zeros(4, np.float32)
        )


def test_unknown_functions_are_refused_and_those_of_c_known():
    x = tir.Var("x", "float32")
    good = tir.call_pure_extern("float32", "expf", x)
    assert evaluate_expr(good, {x: 0.0}) == 1
    with pytest.raises(TIRError, match="cannot call the extern 'launch'"):
        evaluate_expr(tir.call_extern("float32", "launch", x), {x: 0.0})
    with pytest.raises(TIRError, match="call_llvm_intrin"):
        evaluate_expr(tir.call_llvm_intrin("float32", "llvm.sqrt", x), {x: 0.0})


def test_unbound_variables_are_refused():
    with pytest.raises(TIRError, match="variable x"):
        evaluate_expr(tir.Var("x", "int32") + 1)


def test_absurd_allocations_are_refused():
    n = tir.Var("n", "int64")
    memory = tir.Var("m", "handle")
    f = func([n], tir.Allocate(memory, "float64", (n, n), True, tir.Evaluate(0)))
    for size in (1 << 40, -1):
        with pytest.raises(VMValueError, match="m"):
            interpret(f, size)


def test_buffers_that_do_not_fit_their_memory_are_refused():
    memory = tir.Var("m", "handle")
    wide = tir.Buffer(memory, "float32", (5,), name="wide")
    f = func([], tir.Allocate(memory, "float32", (4,), True, tir.DeclBuffer(wide, tir.Evaluate(0))))
    with pytest.raises(VMValueError, match="buffer wide of shape"):
        interpret(f)


def test_loops_past_the_range_of_their_variable_are_refused():
    i, n = tir.Var("i", "int8"), tir.Var("n", "int8")
    f = func([n], tir.For(i, n, const(100, "int8"), "serial", tir.Evaluate(i)))
    interpret(f, 28)
    with pytest.raises(VMValueError, match="past the range of int8"):
        interpret(f, 29)


def test_statements_nested_too_deep_are_refused():
    a = decl_buffer((1,), "int32", "A")
    body = tir.BufferStore(a, const(1), (ZERO,))
    for k in range(300):
        body = tir.For(tir.Var(f"i{k}", "int32"), 0, 1, "serial", body)
    with pytest.raises(VerifyError, match="nest"):
        interpret(func([a], body), np.zeros(1, np.int32))


def test_fresh_memory_holds_no_numbers():
    a = decl_buffer((2,), "float32", "A")
    local = decl_buffer((2,), "float32", "L")
    body = tir.BufferStore(a, local[ZERO], (ZERO,))
    f = func([a], tir.BlockRealize((), True, tir.Block((), (), (), "root", body, None, (local,))))
    x = np.zeros(2, np.float32)
    interpret(f, x)
    assert np.isnan(x[0])


def test_evaluating_gives_numpy_values_of_the_exact_dtype():
    for dtype in SCALARS:
        value = evaluate_expr(const(1, dtype))
        assert value.dtype == (np.float32 if dtype == "bfloat16" else to_numpy_dtype(dtype))
    a = decl_buffer((3,), "bfloat16", "A")
    got = evaluate_expr(a[i64(1)], {a: np.array([0, 0x3FC0, 0], np.uint16)})
    assert got == 1.5
