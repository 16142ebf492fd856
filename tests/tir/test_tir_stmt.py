"""Statements, buffers and functions: construction, conversions, walks and rewrites."""

from __future__ import annotations

import pytest

from relaxvm import tir
from relaxvm.base import TIRError
from relaxvm.ir import structural_equal
from relaxvm.tir import const, decl_buffer, seq

A = decl_buffer((4, 8), "float32", "A")
I, J = tir.Var("i", "int32"), tir.Var("j", "int32")
NOTHING = tir.Evaluate(0)


def nest():
    store = tir.BufferStore(A, A[I, J] + 1.0, (I, J))
    return tir.For(I, 0, 4, "serial", tir.For(J, 0, 8, "parallel", store))


def test_seq_flattens_and_drops_no_ops():
    a, b = (tir.BufferStore(A, const(float(k)), (0, 0)) for k in range(2))
    made = seq(a, [NOTHING, seq(b, a)], None)
    assert made.seq == (a, b, a)
    assert seq(a, NOTHING) is a
    assert seq(NOTHING).value is const(0)
    assert len(seq(*[a] * 10_000)) == 10_000


def test_numbers_are_stored_in_the_dtype_of_the_buffer():
    assert tir.BufferStore(A, 1, (0, 0)).value is const(1.0, "float32")
    with pytest.raises(TIRError, match="buffer A holds float32, the value is int32"):
        tir.BufferStore(A, I, (0, 0))


def test_scalars_stored_to_vectors_are_broadcast():
    stored = tir.BufferStore(A, 1.0, (0, tir.Ramp(0, 1, 4)))
    assert stored.value is tir.Broadcast(const(1.0), 4)


def test_accesses_want_one_index_per_dimension():
    with pytest.raises(TIRError, match="buffer A has 2 dimensions, got 1 indices"):
        A[I]
    with pytest.raises(TIRError, match="wanted an integer, got float32"):
        A[I, const(1.0)]


def test_slices_are_regions():
    region = A[1:3, J]
    assert isinstance(region, tir.BufferRegion)
    assert [r.extent.value for r in region.region] == [2, 1]
    with pytest.raises(TIRError, match="step 1"):
        A[0:4:2, 0]


def test_vector_loads_by_vload():
    assert A.vload((I, 0), "float32x4").dtype == "float32x4"
    assert A.vstore((I, 0), tir.Broadcast(const(0.0), 8)).indices[1] is tir.Ramp(0, 1, 8)
    assert A.vload((I, 0)) is A[I, 0]


def test_scopes_of_buffers():
    assert A.scope() == "global"
    assert decl_buffer((1,), scope="shared").scope() == "shared"


def test_loop_kinds_have_names():
    assert tir.For(I, 0, 4, "unroll", NOTHING).kind is tir.ForKind.UNROLLED
    assert tir.For(I, 0, 4, tir.ForKind.PARALLEL, NOTHING).kind == 1
    with pytest.raises(TIRError, match="unknown kind"):
        tir.For(I, 0, 4, "sideways", NOTHING)
    with pytest.raises(TIRError, match="integer Var"):
        tir.For(tir.Var("f", "float32"), 0, 4, "serial", NOTHING)


def test_functions_take_buffers_as_parameters():
    f = tir.PrimFunc([A, I], nest())
    assert f.buffers == (A,)
    assert f.params[0].dtype == "handle"
    with pytest.raises(TIRError, match="is no parameter"):
        tir.PrimFunc([I], NOTHING, None, {tir.Var("a", "handle"): A})


def test_walks_see_every_node_once_in_their_order():
    stmt = nest()
    after, before = [], []
    tir.post_order_visit(stmt, after.append)
    tir.pre_order_visit(stmt, lambda n: before.append(n))
    assert after[-1] is stmt
    assert before[0] is stmt
    assert {id(n) for n in after} == {id(n) for n in before}
    assert len({id(n) for n in after}) == len(after)


def test_a_walk_from_above_can_leave_parts_out():
    seen = []

    def visit(n):
        seen.append(type(n).__name__)
        return not isinstance(n, tir.For) or n.loop_var is not J

    tir.pre_order_visit(nest(), visit)
    assert "BufferStore" not in seen


def test_substitution_of_variables():
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    assert tir.substitute(x + y, {x: 3}) is tir.Add(const(3), y)
    assert tir.substitute(tir.Evaluate(x), {x: y}).value is y
    with pytest.raises(TIRError, match="x is int32, the value for it is float32"):
        tir.substitute(x + 1, {x: const(1.0)})


def test_rewrites_can_be_limited_to_classes():
    def double(n):
        return tir.For(n.loop_var, n.min, n.extent * 2, n.kind, n.body) if n.loop_var is J else None

    made = tir.ir_transform(nest(), None, double, ["tir.For"])
    assert made.body.extent.value == 16
    kept = nest()
    assert tir.ir_transform(kept, None, double, ["tir.Block"]) is kept
    replaced = tir.ir_transform(kept, lambda n: NOTHING if n is kept.body else None, None)
    assert replaced.body is NOTHING


def test_renewed_functions_are_equal_but_share_no_variable():
    f = tir.PrimFunc([A], nest())
    g = tir.renew_defs(f)
    assert structural_equal(f, g)
    assert g.body.loop_var is not f.body.loop_var
    assert g.buffers[0] is not A
    assert g.buffers[0].data is not A.data
    assert g.body.body.body.buffer is g.buffers[0]


def test_the_rooms_that_are_loaded_when_used_are_known():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        tir.nonsense
    assert tir.analysis.verify_well_formed(tir.PrimFunc([A], nest()))


def test_a_sequence_that_holds_itself_is_refused():
    endless = [tir.Evaluate(tir.Var("x", "int32"))]
    assert len(tir.seq(endless, [endless, [endless]]).seq) == 3
    endless.append([endless])
    with pytest.raises(TIRError, match="holds itself"):
        tir.seq(endless)


def test_statements_are_those_directly_in_one_in_the_order_in_which_they_run():
    loop, a, b = nest(), NOTHING, tir.Evaluate(1)
    block = tir.Block((), (), (), "b", a, b)
    assert loop.statements == (loop.body,)
    assert loop.body.body.statements == a.statements == ()
    assert tir.SeqStmt((a, b, a)).statements == (a, b, a)
    assert tir.IfThenElse(I < 2, a).statements == (a,)
    assert tir.IfThenElse(I < 2, a, b).statements == (a, b)
    assert block.statements == (b, a)  # its init first
    assert tir.BlockRealize((), True, block).statements == (block,)
    assert tir.DeclBuffer(A, loop).replace(body=a).statements == (a,)
