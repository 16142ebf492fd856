"""Fixing parameters of a loop function."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import tir
from relaxvm.base import TIRError
from relaxvm.tir import const, decl_buffer, interpret


def scaled():
    """B[i, j] = A[i, j] * s, for A and B [m, n]."""
    m, n = tir.Var("m", "int64"), tir.Var("n", "int64")
    s = tir.Var("s", "float32")
    a, b = decl_buffer((m, n), "float32", "A"), decl_buffer((m, n), "float32", "B")
    i, j = tir.Var("i", "int64"), tir.Var("j", "int64")
    body = tir.BufferStore(b, a[i, j] * s, (i, j))
    body = tir.For(i, 0, m, "serial", tir.For(j, 0, n, "serial", body))
    return tir.PrimFunc([a, b, s], body), a, s


def test_a_scalar_parameter_disappears():
    f, _, s = scaled()
    g = f.specialize({s: 3})
    assert [p.name for p in g.params] == ["A", "B"]
    x, y = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    interpret(g, x, y)
    assert (y == 3).all()
    assert tir.specialize(f, {"s": 3.0}).params == g.params


def test_a_buffer_fixes_the_symbols_of_its_shape():
    f, a, _ = scaled()
    fixed = decl_buffer((2, 3), "float32", "fixed")
    g = f.specialize({f.params[0]: fixed})
    assert g.buffer_map[f.params[0]] is fixed
    other = g.buffer_map[f.params[1]]
    assert [int(e) for e in other.shape] == [2, 3]
    assert tir.analysis.verify_well_formed(g)
    loop = g.body
    assert loop.extent.value == 2
    assert loop.body.extent.value == 3
    assert a not in {n for n in tir.analysis.buffer_accesses(g)}
    x, y = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    interpret(g, x, y, 2.0)
    assert (y == 2).all()


def test_expressions_of_fixed_symbols_are_folded():
    n, i = tir.Var("n", "int64"), tir.Var("i", "int64")
    a = decl_buffer((n * 2 + 1,), "float32", "A")
    f = tir.PrimFunc(
        [a, n], tir.For(i, 0, n * 2 + 1, "serial", tir.BufferStore(a, const(0.0), (i,)))
    )
    g = f.specialize({n: 4})
    assert g.body.extent is const(9, "int64")
    assert g.buffer_map[g.params[0]].shape == (const(9, "int64"),)


def test_nothing_to_fix_gives_the_same_function():
    f, _, _ = scaled()
    assert f.specialize({}) is f


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f, s: {tir.Var("q", "int32"): 3}, "is no parameter; there are: A, B, s"),
        (lambda f, s: {s: "3"}, "is a float32, got str"),
        (lambda f, s: {"A": 3}, "is a buffer, got int"),
        (lambda f, s: {"A": decl_buffer((2, 3), "int8")}, "holds float32, the new one int8"),
        (lambda f, s: {"A": decl_buffer((2,), "float32")}, "2 dimensions, the new one 1"),
        (
            lambda f, s: {"A": decl_buffer((2, 3), "float32"), "B": decl_buffer((2, 4), "float32")},
            "gives n the value",
        ),
        (
            lambda f, s: {"A": decl_buffer((2, 3), "float32", strides=(8, 1))},
            "one of the two declares strides",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    f, _, s = scaled()
    with pytest.raises(TIRError, match=message):
        f.specialize(make(f, s))


def test_a_constant_size_cannot_change():
    a = decl_buffer((4,), "float32", "A")
    f = tir.PrimFunc([a], tir.Evaluate(0))
    with pytest.raises(TIRError, match="the size 4 where the new one has 5"):
        f.specialize({f.params[0]: decl_buffer((5,), "float32")})
