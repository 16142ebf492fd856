"""Users' own walks over loop functions."""

import sys

import pytest

import relaxvm as tvm
from relaxvm import tir
from relaxvm.base import TIRError
from relaxvm.ir import assert_structural_equal
from relaxvm.script import tir as T
from relaxvm.tir import PyStmtExprMutator, PyStmtExprVisitor


@T.prim_func(private=True)
def every_statement(A: T.Buffer((16, 16), "int32"), n: T.int32):
    B = T.alloc_buffer((16,), "int32")
    for i, j in T.grid(n, 16):
        with T.block("sum"):
            vi, vj = T.axis.remap("SR", [i, j])
            T.where(i * 2 < n)
            T.reads(A[vi, vj])
            T.writes(B[vi])
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] + T.max(A[vi, vj], 1)
    with T.block("opaque"):
        T.reads()
        T.writes()
        C = T.match_buffer(A[n : n + 4, 0], (4, 1), "int32")
        C[0, 0] = T.if_then_else(n < 4, 1, 2)
    p = T.allocate([n], "int32", "global")
    P = T.decl_buffer((n,), "int32", data=p)
    assert n != 3, "not three"
    T.attr(p, "remark", n - 1)
    m: T.int32 = n // 2
    while P[0] > m:
        P[0] = P[0] - 1
    if m == 0:
        T.evaluate(T.call_extern("int32", "f", m))
    else:
        P[T.Ramp(0, 1, 4)] = T.Broadcast(T.Select(m > 1, n % 2, 0), 4)


def kinds_seen(root):
    seen = []

    @tir.functor.visitor
    class Everything(PyStmtExprVisitor):
        def visit_stmt(self, stmt):
            seen.append(type(stmt).__name__)
            super().visit_stmt(stmt)

        def visit_expr(self, expr):
            seen.append(type(expr).__name__)
            super().visit_expr(expr)

    Everything().visit_stmt(root)
    return seen


def test_every_statement_and_expression_is_visited():
    seen = set(kinds_seen(every_statement.body))
    assert seen >= set(
        "Allocate AssertStmt AttrStmt Block BlockRealize BufferStore DeclBuffer Evaluate For "
        "IfThenElse LetStmt SeqStmt While Add BufferLoad Call EQ FloorDiv FloorMod GT "
        "IntImm LT Max NE Ramp Broadcast Select StringImm Sub Var Mul".split()
    )


def test_what_is_visited_is_what_is_written():
    @T.prim_func(private=True)
    def f(A: T.Buffer((8,), "int32"), n: T.int32):
        for i in range(n, n + 4):
            A[i] = A[i] + A[i]

    assert kinds_seen(f.body) == [
        "For", "Var", "IntImm", "BufferStore", "Add", "BufferLoad", "Var", "BufferLoad", "Var",
        "Var",
    ]  # fmt: skip


def test_an_overridden_method_decides_what_is_below():
    loads = []

    class Stores(PyStmtExprVisitor):
        def visit_buffer_store_(self, op):
            self.visit_expr(op.value)

        def visit_buffer_load_(self, op):
            loads.append(op.buffer.name)

        def visit_block_(self, op):
            if op.name_hint != "opaque":
                super().visit_block_(op)

    Stores().visit_stmt(every_statement.body)
    assert loads == ["B", "A", "P", "P"]


def test_a_mutator_replaces_and_keeps_what_it_does_not_touch():
    class AddToSub(PyStmtExprMutator):
        def visit_add_(self, op):
            return self.visit_expr(op.a) - self.visit_expr(op.b)

    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32")):
        for i in range(8):
            A[i] = T.max(A[i] + 1 + A[0], 2)
        for i in range(8):
            A[i] = A[i] * 2

    @T.prim_func(private=True)
    def after(A: T.Buffer((8,), "int32")):
        for i in range(8):
            A[i] = T.max(A[i] - 1 - A[0], 2)
        for i in range(8):
            A[i] = A[i] * 2

    body = AddToSub().visit_stmt(before.body)
    assert_structural_equal(before.with_body(body), after)
    assert body[1] is before.body[1]
    assert AddToSub().visit_stmt(after.body) is after.body


def test_a_mutator_of_statements():
    class Unroll(PyStmtExprMutator):
        def visit_for_(self, op):
            loop = super().visit_for_(op)
            return loop.replace(kind="unroll") if loop.extent.value == 4 else loop

        def visit_evaluate_(self, op):
            return tir.Evaluate(tir.const(7))

    @T.prim_func(private=True)
    def before(A: T.Buffer((8, 4), "int32")):
        for i in range(8):
            for j in range(4):
                A[i, j] = 1
            T.evaluate(0)

    @T.prim_func(private=True)
    def after(A: T.Buffer((8, 4), "int32")):
        for i in range(8):
            for j in T.unroll(4):
                A[i, j] = 1
            T.evaluate(7)

    assert_structural_equal(before.with_body(Unroll().visit_stmt(before.body)), after)


@pytest.mark.parametrize("kind", sorted(set(kinds_seen(every_statement.body))))
def test_every_kind_has_its_method_in_both(kind):
    """A mutator that replaces each node by an equal one gives an equal function."""
    name = next(m for m in dir(PyStmtExprVisitor) if m.replace("_", "") == f"visit{kind.lower()}")
    count = []

    def visit(self, op):
        count.append(op)
        return getattr(PyStmtExprMutator, name)(self, op)

    copier = type("Copier", (PyStmtExprMutator,), {name: visit})
    assert copier().visit_stmt(every_statement.body) is every_statement.body
    assert {type(n).__name__ for n in count} == {kind}


def test_long_sums_need_no_deep_stack():
    n = tir.Var("n", "int32")
    long_sum = n
    for k in range(3 * sys.getrecursionlimit()):
        long_sum = long_sum + tir.Var(f"v{k}", "int32")
    names = []

    class Names(PyStmtExprVisitor):
        def visit_var_(self, op):
            names.append(op.name)

    class Zeros(PyStmtExprMutator):
        def visit_var_(self, op):
            return tir.const(0)

    Names().visit_expr(long_sum)
    assert names[:2] == ["n", "v0"] and len(names) == 3 * sys.getrecursionlimit() + 1
    assert tvm.arith.Analyzer().simplify(Zeros().visit_expr(long_sum)).value == 0


def test_what_is_no_node_is_refused():
    with pytest.raises(TIRError, match="wanted a statement, got IntImm"):
        PyStmtExprVisitor().visit_stmt(tir.const(1))
    with pytest.raises(TIRError, match="wanted a scalar expression, got int"):
        PyStmtExprMutator().visit_expr(1)
    with pytest.raises(TIRError, match="Other derives from PyStmtExprMutator"):
        tir.functor.mutator(type("Other", (PyStmtExprVisitor,), {}))
