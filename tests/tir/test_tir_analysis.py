"""Well-formedness, scopes, access regions and costs of loop functions."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from relaxvm import tir
from relaxvm.base import Span, TIRError, VerifyError
from relaxvm.ir import IRModule
from relaxvm.tir import analysis, const, decl_buffer, seq
from relaxvm.tir.analysis import (
    get_block_access_region,
    get_block_read_write_region,
    undefined_vars,
    verify_ssa,
    verify_well_formed,
)

ZERO = const(0, "int64")
A = decl_buffer((16, 16), "float32", "A")
B = decl_buffer((16, 16), "float32", "B")
C = decl_buffer((16, 16), "float32", "C")
NOTHING = tir.Evaluate(0)


def i64(value):
    return const(value, "int64")


def variables(names, dtype="int64"):
    return [tir.Var(name, dtype) for name in names.split()]


def axis(var, extent, kind="spatial"):
    return tir.IterVar(tir.Range.from_min_extent(ZERO, i64(extent)), var, kind)


def func(body, *params, **attrs):
    return tir.PrimFunc(params or (A, B, C), body, attrs={"global_symbol": "f", **attrs})


def loops(variables, extents, body):
    for var, extent in reversed(list(zip(variables, extents))):
        body = tir.For(var, 0, extent, "serial", body)
    return body


def store(buffer, value, *indices, span=None):
    made = tir.BufferStore(buffer, value, indices)
    return made if span is None else made.replace(span=span)


def matmul(reads=(), writes=()):
    i, j, k = variables("i j k")
    vi, vj, vk = variables("vi vj vk")
    block = tir.Block(
        [axis(vi, 16), axis(vj, 16), axis(vk, 16, "reduce")],
        reads,
        writes,
        "matmul",
        store(C, C[vi, vj] + A[vi, vk] * B[vk, vj], vi, vj),
        store(C, const(0.0), vi, vj),
    )
    return block, loops([i, j, k], [16] * 3, tir.BlockRealize([i, j, k], True, block))


# -- well-formedness -------------------------------------------------------------------------------


def test_a_proper_function_is_well_formed():
    f = func(matmul()[1])
    assert verify_well_formed(f)
    assert verify_well_formed(IRModule({"f": f}))
    assert verify_ssa(f)


X = tir.Var("x", "int64")
FLAG = tir.Var("flag", "bool")
LOOSE = decl_buffer((4,), "float32", "loose")
VECTOR = tir.Var("mask", "boolx4")


def bad_block(**changes):
    v = tir.Var("v", "int64")
    block = tir.Block([axis(v, 16)], (), (), "b", store(A, const(0.0), v, v))
    return block.replace(**changes)


def outside_loop_variable():
    i, v = variables("i v")
    block = tir.Block([axis(v, 16)], (), (), "b", store(A, const(0.0), v, i))
    return tir.For(i, 0, 16, "serial", tir.BlockRealize([i], True, block))


def axis_twice():
    v = tir.Var("v", "int64")
    block = tir.Block([axis(v, 16), axis(v, 16)], (), (), "b", NOTHING)
    return tir.BlockRealize([ZERO, ZERO], True, block)


def same_loop_inside():
    i = tir.Var("i", "int64")
    return tir.For(i, 0, 4, "serial", tir.For(i, 0, 4, "serial", NOTHING))


def nested_axis_again():
    v = tir.Var("v", "int64")
    inner = tir.Block([axis(v, 4)], (), (), "inner", NOTHING)
    outer = tir.Block([axis(v, 4)], (), (), "outer", tir.BlockRealize([ZERO], True, inner))
    return tir.BlockRealize([ZERO], True, outer)


def allocated_twice():
    local = decl_buffer((4,), "float32", "local")
    inner = tir.Block((), (), (), "inner", NOTHING, None, (local,))
    outer = tir.Block((), (), (), "outer", tir.BlockRealize((), True, inner), None, (local,))
    return tir.BlockRealize((), True, outer)


def used_after_its_block():
    local = decl_buffer((4,), "float32", "local")
    block = tir.Block((), (), (), "b", store(local, const(0.0), ZERO), None, (local,))
    return seq(tir.BlockRealize((), True, block), store(local, const(0.0), ZERO))


def let_out_of_scope():
    v = tir.Var("v", "int64")
    return seq(tir.LetStmt(v, i64(1), tir.Evaluate(v)), tir.Evaluate(v + 1))


def call(name, *args, dtype="float32"):
    return tir.Evaluate(tir.Call(dtype, tir.Op.get(f"tir.{name}"), args))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (store(A, const(0.0), X, ZERO), "variable x is used but not defined here"),
        (store(LOOSE, const(0.0), ZERO), "buffer loose is used but not defined here"),
        (tir.Evaluate(LOOSE[ZERO]), "buffer loose is used but not defined here"),
        (let_out_of_scope(), "variable v is used"),
        (used_after_its_block(), "buffer local is used"),
        (same_loop_inside(), "i is defined a second time"),
        (axis_twice(), "v is defined a second time"),
        (nested_axis_again(), "v is defined a second time"),
        (allocated_twice(), "local is defined a second time"),
        (outside_loop_variable(), "uses the loop variable i from outside the block"),
        (tir.While(tir.Broadcast(const(True), 4), NOTHING), "the condition is a boolx4"),
        (tir.IfThenElse(tir.Broadcast(const(True), 4), NOTHING), "the condition is a boolx4"),
        (tir.For(X, 0, 4, "thread_binding", NOTHING), "which thread"),
        (
            tir.LetStmt(X, i64(4), tir.For(tir.Var("i", "int64"), 0, X, "vectorized", NOTHING)),
            "needs a constant extent",
        ),
        (tir.Evaluate(tir.Add(const(True), const(False))), "Add of bools"),
        (tir.Evaluate(tir.Mod(const(1.0), const(2.0))), "Mod is of integers"),
        (tir.Evaluate(tir.Add(tir.ret(const(1)), const(1))), "T.ret leaves"),
        (call("if_then_else", const(1), const(1.0), const(2.0)), "scalar bool condition"),
        (call("if_then_else", const(True), const(1), const(2.0)), "its sides are"),
        (call("reinterpret", const(1, "int64")), "sizes differ"),
        (call("pow", const(1.0), const(1.0, "float64")), "dtypes differ"),
        (call("ldexp", const(1.0), const(1.0)), "integer exponent"),
        (call("address_of", const(1), dtype="handle"), "buffer element"),
        (call("vectorlow", const(1.0)), "vectorlow"),
        (
            tir.Allocate(tir.Var("m", "int64"), "float32", (4,), True, NOTHING),
            "must be a handle",
        ),
        (tir.Allocate(tir.Var("m", "handle"), "handle", (4,), True, NOTHING), "cannot hold handle"),
        (
            tir.AllocateConst(tir.Var("m", "handle"), "int8", (2,), (1, 200), NOTHING),
            "200 is no int8",
        ),
        (tir.AllocateConst(tir.Var("m", "handle"), "int8", (2,), (1,), NOTHING), "the data 1"),
        (tir.AllocateConst(tir.Var("m", "handle"), "int8", (1,), ("a",), NOTHING), "only numbers"),
        (bad_block(), "Block cannot stand here"),
        (
            tir.BlockRealize([ZERO], True, bad_block(iter_vars=(tir.IterVar(None, X),))),
            "has no domain",
        ),
        (
            tir.BlockRealize([ZERO], True, bad_block(iter_vars=(axis(X, 4, "thread"),))),
            "is a thread",
        ),
        (tir.Evaluate(tir.Broadcast(const(1), 4096)), "4096 lanes"),
        (tir.Evaluate(tir.Call("int32", tir.Op.get("tir.call_extern"), ())), None),
    ],
)
def test_ill_formed_functions_are_named(body, message):
    f = func(body)
    if message is None:
        assert verify_well_formed(f)
        return
    assert not verify_well_formed(f, assert_mode=False)
    with pytest.raises(VerifyError, match=message):
        verify_well_formed(f)


def test_the_error_names_function_path_and_source(tmp_path):
    source = tmp_path / "user.py"
    source.write_text("first\n    A[x, 0] = 0.0\n")
    span = Span(str(source), 2, 5, 2, 18)
    i = tir.Var("i", "int64")
    f = func(tir.For(i, 0, 4, "serial", store(A, const(0.0), X, ZERO, span=span)))
    with pytest.raises(VerifyError) as caught:
        verify_well_formed(f)
    text = str(caught.value)
    assert "in f / for i / store to A" in text
    assert f"{source}:2:5" in text
    assert "A[x, 0] = 0.0" in text
    assert "^^^^" in text


def test_parameters_must_be_distinct_and_handles():
    p = tir.Var("p", "int64")
    with pytest.raises(VerifyError, match="must be a handle"):
        verify_well_formed(tir.PrimFunc([p], NOTHING, None, {p: A}))
    with pytest.raises(VerifyError, match="stands twice"):
        verify_well_formed(tir.PrimFunc([p, p], NOTHING))
    with pytest.raises(VerifyError, match="same buffer"):
        verify_well_formed(tir.PrimFunc([A, A], NOTHING))


def test_returned_values_must_have_the_declared_dtype():
    f = tir.PrimFunc((), tir.Evaluate(tir.ret(const(1))), tir.PrimType("float32"))
    with pytest.raises(VerifyError, match="returns int32"):
        verify_well_formed(f)


def test_symbols_of_parameter_shapes_are_defined_by_them():
    n, m = variables("n m")
    buf = decl_buffer((n, n * 2), "float32", "X")
    assert verify_well_formed(tir.PrimFunc([buf], tir.Evaluate(n)))
    other = decl_buffer((n, m * 2), "float32", "X")
    with pytest.raises(VerifyError, match="variable m"):
        verify_well_formed(tir.PrimFunc([other], NOTHING))


def test_calls_inside_a_module_are_checked():
    gv = tir.GlobalVar("g")
    callee = tir.PrimFunc([tir.Var("x", "int32"), decl_buffer((4,), "int32", "P")], NOTHING)
    local = decl_buffer((4,), "int32", "Q")
    good = func(tir.Evaluate(tir.Call("int32", gv, (const(1), local))), local)
    assert verify_well_formed(IRModule({gv: callee, "f": good}))
    for args, message in [
        ((const(1),), "1 arguments"),
        ((const(1.0), local), "a float32 for x"),
        ((local, local), "a buffer for x"),
        ((const(1), const(1)), "a int32 for P"),
    ]:
        bad = func(tir.Evaluate(tir.Call("int32", gv, args)), local)
        with pytest.raises(VerifyError, match=message):
            verify_well_formed(IRModule({gv: callee, "f": bad}))
    with pytest.raises(VerifyError, match="no loop function"):
        verify_well_formed(IRModule({"f": good}))


def test_opaque_blocks_may_use_the_loops_around_them():
    i = tir.Var("i", "int64")
    block = tir.Block((), (), (), "b", store(A, const(0.0), i, i))
    assert verify_well_formed(func(tir.For(i, 0, 16, "serial", tir.BlockRealize((), True, block))))


def test_a_statement_shared_a_billion_times_is_refused():
    body = store(A, const(0.0), ZERO, ZERO)
    for _ in range(40):
        body = tir.SeqStmt((body, body))
    with pytest.raises(VerifyError, match="statements"):
        verify_well_formed(func(body))


def test_long_bodies_are_verified_without_recursion():
    stores = [store(A, A[ZERO, ZERO] + float(k), ZERO, ZERO) for k in range(10_000)]
    assert verify_well_formed(func(seq(*stores)))
    value = A[ZERO, ZERO]
    for k in range(5000):
        value = tir.Add(value, const(float(k)))
    assert verify_well_formed(func(store(A, value, ZERO, ZERO)))
    chain = store(A, const(0.0), ZERO, ZERO)
    for k in range(3000):
        chain = tir.IfThenElse(A[ZERO, ZERO] == float(k), store(A, const(1.0), ZERO, ZERO), chain)
    assert verify_well_formed(func(chain))


def test_other_things_than_functions_are_refused():
    with pytest.raises(VerifyError, match="PrimFunc or an IRModule"):
        verify_well_formed(A)


# -- variables -------------------------------------------------------------------------------------


def test_undefined_variables_in_order_of_use():
    x, y, z = variables("x y z")
    body = seq(tir.Evaluate(y + x), tir.LetStmt(z, x, tir.Evaluate(z)), tir.Evaluate(z))
    assert undefined_vars(body) == [y, x, z]
    assert undefined_vars(body, [x, z]) == [y]
    assert undefined_vars(tir.Let(z, x, z + y)) == [x, y]
    assert undefined_vars(store(A, const(0.0), x, ZERO)) == [A.data, x]
    assert undefined_vars(func(matmul()[1])) == []


def test_ssa_wants_one_definition_in_the_whole_function():
    i, j = variables("i j")
    once = tir.SeqStmt((tir.For(i, 0, 4, "serial", NOTHING), tir.For(j, 0, 4, "serial", NOTHING)))
    twice = tir.SeqStmt(
        (tir.For(i, 0, 4, "serial", NOTHING), tir.For(i, 0, 4, "parallel", NOTHING))
    )
    assert verify_ssa(func(once))
    assert not verify_ssa(func(twice))
    assert verify_well_formed(func(twice))


def test_expressions_are_deeply_equal_if_written_the_same():
    x, y = variables("x y")
    assert analysis.expr_deep_equal(x + 1, x + 1)
    assert not analysis.expr_deep_equal(x + 1, y + 1)
    assert not analysis.expr_deep_equal(const(0.0), const(-0.0))


# -- regions ---------------------------------------------------------------------------------------


def shown(regions):
    def text(e):
        if isinstance(e, tir.IntImm):
            return str(e.value)
        if isinstance(e, tir.Var):
            return e.name
        return f"({text(e.a)}{e.symbol}{text(e.b)})"

    return [
        f"{r.buffer.name}[{', '.join(f'{text(x.min)}:+{text(x.extent)}' for x in r.region)}]"
        for r in regions
    ]


def test_regions_of_a_matmul_are_its_elements():
    block, _ = matmul()
    reads, writes, opaque = get_block_access_region(block, {b.data: b for b in (A, B, C)})
    assert shown(reads) == ["A[vi:+1, vk:+1]", "B[vk:+1, vj:+1]"]
    assert shown(writes) == ["C[vi:+1, vj:+1]"]
    assert opaque == []


def test_without_init_what_is_updated_is_read():
    block, _ = matmul()
    reads, _, _ = get_block_access_region(block.replace(init=None))
    assert shown(reads) == ["C[vi:+1, vj:+1]", "A[vi:+1, vk:+1]", "B[vk:+1, vj:+1]"]


def test_inner_loops_widen_the_region():
    v, i, j = variables("v i j")
    body = loops([i, j], [4, 2], store(B, A[v * 4 + i, i64(7) - j * 3], v, i + j))
    block = tir.Block([axis(v, 4)], (), (), "b", body)
    reads, writes, _ = get_block_access_region(block)
    assert shown(reads) == ["A[(v*4):+4, 4:+4]"]
    assert shown(writes) == ["B[v:+1, 0:+5]"]


def test_several_accesses_are_one_box():
    v = tir.Var("v", "int64")
    body = store(B, A[v, v] + A[v + 2, v] + A[v + 1, v], v, v)
    reads, _, _ = get_block_access_region(tir.Block([axis(v, 8)], (), (), "b", body))
    assert shown(reads) == ["A[v:+3, v:+1]"]


def test_guarded_accesses_are_cut_to_the_buffer():
    v, i = variables("v i")
    value = tir.if_then_else(tir.And(i > 0, i < 17), A[v, i - 1], const(0.0))
    body = tir.For(i, 0, 18, "serial", store(B, value, v, tir.min(i, 15)))
    reads, writes, _ = get_block_access_region(tir.Block([axis(v, 16)], (), (), "b", body))
    assert shown(reads) == ["A[v:+1, 0:+16]"]
    assert shown(writes) == ["B[v:+1, 0:+16]"]


def test_indices_that_come_from_memory_read_everything():
    table = decl_buffer((16,), "int64", "table")
    v = tir.Var("v", "int64")
    body = store(B, A[table[v], v], v, v)
    reads, _, _ = get_block_access_region(tir.Block([axis(v, 16)], (), (), "b", body))
    assert sorted(shown(reads)) == ["A[0:+16, v:+1]", "table[v:+1]"]


def test_quotients_and_remainders_of_loops():
    v, i = variables("v i")
    body = tir.For(i, 0, 8, "serial", store(B, A[i // 4, i % 4], v, v))
    reads, _, _ = get_block_access_region(tir.Block([axis(v, 16)], (), (), "b", body))
    assert shown(reads) == ["A[0:+2, 0:+4]"]


def test_vector_accesses_count_their_lanes():
    v = tir.Var("v", "int64")
    ramp = tir.Ramp(v * 4, i64(1), 4)
    body = store(B, A[ZERO, ramp], ZERO, ramp)
    reads, _, _ = get_block_access_region(tir.Block([axis(v, 4)], (), (), "b", body))
    assert shown(reads) == ["A[0:+1, (v*4):+4]"]


def test_lets_and_nested_blocks_are_followed():
    v, i, x, w = variables("v i x w")
    region = tir.BufferRegion(
        A, (tir.Range.from_min_extent(w, i64(1)), tir.Range.from_min_extent(ZERO, i64(4)))
    )
    inner = tir.Block([axis(w, 16)], (region,), (), "inner", NOTHING)
    body = tir.For(i, 0, 2, "serial", tir.LetStmt(x, v * 2 + i, tir.BlockRealize([x], True, inner)))
    reads, _, _ = get_block_access_region(tir.Block([axis(v, 8)], (), (), "b", body))
    assert shown(reads) == ["A[(v*2):+2, 0:+4]"]


def test_local_buffers_and_strangers_are_left_out():
    local = decl_buffer((4,), "float32", "local")
    body = seq(store(local, A[ZERO, ZERO], ZERO), store(B, local[ZERO], ZERO, ZERO))
    block = tir.Block((), (), (), "b", body, None, (local,))
    reads, writes, _ = get_block_access_region(block)
    assert [shown(reads), shown(writes)] == [["A[0:+1, 0:+1]"], ["B[0:+1, 0:+1]"]]
    reads, writes, _ = get_block_access_region(block, {B.data: B})
    assert [shown(reads), shown(writes)] == [[], ["B[0:+1, 0:+1]"]]


def test_matched_buffers_count_as_their_source():
    v = tir.Var("v", "int64")
    row = decl_buffer((16,), "float32", "row")
    source = tir.BufferRegion(
        A, (tir.Range.from_min_extent(v, i64(1)), tir.Range.from_min_extent(ZERO, i64(16)))
    )
    body = store(row, const(0.0), i64(3))
    block = tir.Block(
        [axis(v, 16)], (), (), "b", body, None, (), (tir.MatchBufferRegion(row, source),)
    )
    _, writes, _ = get_block_access_region(block)
    assert shown(writes) == ["A[v:+1, 0:+16]"]


def test_buffers_whose_address_is_taken_are_opaque():
    block = tir.Block(
        (), (), (), "b", tir.Evaluate(tir.call_extern("int32", "g", tir.address_of(A), B.data))
    )
    outside = {b.data: b for b in (A, B)}
    _, _, opaque = get_block_access_region(block, outside)
    assert shown(opaque) == ["A[0:+16, 0:+16]", "B[0:+16, 0:+16]"]
    reads, writes = get_block_read_write_region(block, outside)
    assert shown(reads) == shown(writes) == ["A[0:+16, 0:+16]", "B[0:+16, 0:+16]"]


def test_regions_of_something_else_than_a_block_are_refused():
    with pytest.raises(TIRError, match="wanted a Block"):
        get_block_access_region(NOTHING)


@st.composite
def indices(draw, axis, loop_vars):
    """An index over a block axis and inner loops, and whether its bounds are reached."""
    v, (i, j) = axis, loop_vars
    a, b, c, d = (draw(st.integers(-3, 3)) for _ in range(4))
    affine = v * a + i * b + j * c + i64(d)
    divisor = i64(draw(st.integers(1, 4)))
    return draw(
        st.sampled_from(
            [
                (affine, True),
                (affine // divisor, True),
                (affine % divisor, False),
                (tir.min(affine, i * 2), False),
                (tir.max(affine, v - j), False),
                (tir.Select(i > j, affine, v), False),
                (i * i - j, False),
            ]
        )
    )


@settings(max_examples=150)
@given(st.data())
def test_regions_cover_what_is_accessed_and_affine_ones_no_more(data):
    v, i, j = variables("v i j")
    first, m, n = (data.draw(st.integers(low, 4)) for low in (-2, 1, 1))
    index, exact = data.draw(indices(v, (i, j)))
    big = decl_buffer((1000,), "float32", "big")
    body = tir.For(i, first, m, "serial", tir.For(j, 0, n, "serial", tir.Evaluate(big[index])))
    ((region,), _, _) = get_block_access_region(tir.Block([axis(v, 8)], (), (), "b", body))
    (r,) = region.region
    for at in range(8):
        env = {v: at}
        low, extent = (int(tir.evaluate_expr(e, env)) for e in (r.min, r.extent))
        touched = {
            int(tir.evaluate_expr(index, {v: at, i: x, j: y}))
            for x, y in itertools.product(range(first, first + m), range(n))
        }
        if (low, extent) == (0, 1000):
            assert not exact
            continue
        assert low <= min(touched)
        assert max(touched) < low + extent
        if exact:
            assert (low, low + extent - 1) == (min(touched), max(touched))


def test_the_common_ancestor_of_all_accesses():
    i, j, k = variables("i j k")
    local = decl_buffer((16,), "float32", "local")
    inner = tir.For(j, 0, 16, "serial", store(local, A[i, j], j))
    again = tir.For(k, 0, 16, "serial", store(B, local[k], i, k))
    outer = tir.For(i, 0, 16, "serial", seq(inner, again))
    block = tir.Block((), (), (), "root", outer, None, (local,))
    lca = analysis.detect_buffer_access_lca(func(tir.BlockRealize((), True, block)))
    assert lca[local] is outer
    assert lca[A] is inner
    assert lca[B] is again


def test_what_a_reduction_carries_is_outside_its_loops():
    _, nest = matmul()
    lca = analysis.detect_buffer_access_lca(func(nest))
    assert lca[C] is nest.body
    assert isinstance(lca[A], tir.Block)


# -- accesses, bounds, costs -----------------------------------------------------------------------


def test_accesses_of_views_count_for_each_other():
    row = decl_buffer((16,), "float32", "row")
    source = tir.BufferRegion(
        A, (tir.Range.from_min_extent(ZERO, i64(1)), tir.Range.from_min_extent(ZERO, i64(16)))
    )
    body = store(row, B[ZERO, ZERO], ZERO)
    block = tir.Block((), (), (), "b", body, None, (), (tir.MatchBufferRegion(row, source),))
    access = analysis.buffer_accesses(func(tir.BlockRealize((), True, block)))
    assert {b.name: how for b, how in access.items()} == {"A": "w", "row": "w", "B": "r"}


def test_escaping_buffers_are_read_and_written():
    f = func(
        seq(
            tir.Evaluate(tir.call_extern("int32", "g", A.data)),
            tir.Evaluate(
                tir.call_extern("int32", "g", tir.tvm_access_ptr("float32", B.data, 0, 4, 1))
            ),
            tir.Evaluate(tir.call_extern("int32", "g", tir.address_of(C))),
        )
    )
    access = {b.name: how for b, how in analysis.buffer_accesses(f).items()}
    assert access["A"] == "rw"
    assert access["C"] == "rw"
    assert access["B"] == "r"


@pytest.mark.parametrize(
    ("index", "extent", "found"),
    [
        (lambda i: i, 16, False),
        (lambda i: i, 17, True),
        (lambda i: i + 1, 16, True),
        (lambda i: i - 1, 16, True),
        (lambda i: i64(15) - i, 16, False),
        (lambda i: i * 2, 9, True),
        (lambda i: i * 2, 8, False),
        (lambda i: i // 2, 33, True),
        (lambda i: i % 16, 99, False),
        (lambda i: i64(16), 1, True),
    ],
)
def test_accesses_that_leave_the_buffer_are_found(index, extent, found):
    i = tir.Var("i", "int64")
    f = func(tir.For(i, 0, extent, "serial", store(A, const(0.0), index(i), ZERO)))
    assert bool(analysis.find_out_of_bounds(f)) is found
    if found:
        with pytest.raises(VerifyError, match="axis 0 of A has 16 elements"):
            analysis.OOBChecker()(IRModule({"f": f}))
    else:
        assert "f" in analysis.OOBChecker()(IRModule({"f": f}))


def test_guarded_accesses_are_not_called_out_of_bounds():
    i = tir.Var("i", "int64")
    guarded = tir.IfThenElse(i < 16, store(A, const(0.0), i, ZERO))
    assert analysis.find_out_of_bounds(func(tir.For(i, 0, 20, "serial", guarded))) == []
    lazy = store(A, tir.if_then_else(i < 16, B[i, ZERO], const(0.0)), ZERO, ZERO)
    assert analysis.find_out_of_bounds(func(tir.For(i, 0, 20, "serial", lazy))) == []


def test_allocated_bytes_are_the_most_alive_at_once():
    small, large = (decl_buffer((n,), "float32", f"b{n}") for n in (8, 100))
    shared = decl_buffer((4,), "float64", "s", scope="shared")

    def block(buffers, body=NOTHING):
        return tir.BlockRealize((), True, tir.Block((), (), (), "b", body, None, buffers))

    f = func(block([shared], seq(block([small], tir.Evaluate(tir.ret(const(1)))), block([large]))))
    f = f.with_body(block([shared], tir.SeqStmt((block([small]), block([large])))))
    assert analysis.calculate_allocated_bytes(f) == {"main": {"shared": 32, "global": 400}}
    memory = tir.Var("m", tir.PointerType(tir.PrimType("int8"), "local"))
    g = func(tir.Allocate(memory, "int8", (10, 2), True, NOTHING))
    assert analysis.calculate_allocated_bytes(IRModule({"g": g})) == {"g": {"local": 20}}


def test_functions_that_write_or_call_are_not_pure():
    reading = tir.PrimFunc([A], tir.Evaluate(tir.ret(A[ZERO, ZERO])), tir.PrimType("float32"))
    assert analysis.is_pure_function(reading)
    analysis.assert_pure_function(reading)
    writing = func(store(A, const(0.0), ZERO, ZERO))
    calling = func(tir.Evaluate(tir.call_extern("int32", "puts")))
    assert not analysis.is_pure_function(calling)
    with pytest.raises(VerifyError, match="f is not pure: it writes its parameter A"):
        analysis.assert_pure_function(writing)
    local = decl_buffer((4,), "float32", "local")
    block = tir.Block((), (), (), "b", store(local, const(0.0), ZERO), None, (local,))
    assert analysis.is_pure_function(func(tir.BlockRealize((), True, block)))


def test_flops_of_a_matmul():
    _, nest = matmul()
    assert analysis.estimate_tir_flops(func(nest)) == 2 * 16**3
    assert analysis.estimate_tir_flops(nest) == 2 * 16**3
    assert analysis.estimate_tir_flops(IRModule({"f": func(nest), "g": func(nest)})) == 4 * 16**3


def test_flops_of_conditions_are_those_of_floats():
    (i,) = variables("i")
    guard = (i % 2).equal(0)
    added = store(A, tir.if_then_else(guard, A[i, i] + 1.0, A[i, i]), i, i)
    other = tir.IfThenElse(A[i, i] > 0.0, added, None)
    nest = tir.For(i, 0, 16, "serial", tir.IfThenElse(guard, added, other))
    assert analysis.estimate_tir_flops(func(nest)) == 16 * (1 + 2)
    assert analysis.estimate_tir_flops(func(nest), guards=True) == 16 * (2 + 1 + 4)


def test_flops_of_a_loop_without_a_known_extent_are_refused():
    n, i = variables("n i")
    body = tir.For(i, 0, n, "serial", store(A, A[i, i] + 1.0, i, i))
    with pytest.raises(TIRError, match="loop i has no constant bound"):
        analysis.estimate_tir_flops(func(body, A, n))
