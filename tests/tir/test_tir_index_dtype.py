"""One type for all indices: without casts where that is exact, and worth the same always."""

from __future__ import annotations

import random

import numpy as np
import pytest

from relaxvm import tir
from relaxvm.base import TIRError
from relaxvm.ir import Cast, IRModule, assert_structural_equal, walk
from relaxvm.script import from_source
from relaxvm.tir import Block, BufferLoad, For, interpret
from relaxvm.tir.analysis import verify_well_formed
from relaxvm.tir.stmt import BlockRealize, BufferStore, PrimFunc, decl_buffer
from relaxvm.tir.transform import with_index_dtype


def dtypes(fn):
    found = {e.dtype for n in walk(fn) if isinstance(n, tir.Buffer) for e in n.shape}
    found |= {n.loop_var.dtype for n in walk(fn) if isinstance(n, For)}
    found |= {a.var.dtype for n in walk(fn) if isinstance(n, Block) for a in n.iter_vars}
    return {str(d) for d in found}


def index_casts(fn):
    return [
        n for n in walk(fn)
        if isinstance(n, Cast) and n.dtype.is_int and not isinstance(n.value, BufferLoad)
    ]  # fmt: skip


MIXED = """
@T.prim_func
def main(a: T.handle, b: T.Buffer((T.int64(16), T.int64(9)), "float32"), c: T.handle):
    n = T.{n}()
    A = T.match_buffer(a, (n, T.{n}(16)), "float32")
    C = T.match_buffer(c, (n, 9), "float32")
    for i, j, k in T.grid(n, 9, 16):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * b[vk, T.Cast("int64", (vj * 2 + 1) // 2)]
"""


@pytest.mark.parametrize("symbol", ["int32", "int64"])
@pytest.mark.parametrize("to", ["int32", "int64"])
def test_mixed_types_become_one(symbol, to):
    fn = from_source(MIXED.format(n=symbol))
    made = with_index_dtype(fn, to)
    verify_well_formed(made)
    if (symbol, to) == ("int64", "int32"):
        assert dtypes(made) == {"int32", "int64"}  # the symbol may be larger than int32
    else:
        assert dtypes(made) == {to}
        assert not index_casts(made)
        assert with_index_dtype(made, to) is made
    rng = np.random.default_rng(0)
    a, b = rng.random((5, 16), "float32"), rng.random((16, 9), "float32")
    for each in (fn, made):
        c = np.full((5, 9), np.nan, "float32")
        interpret(each, a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def script(body, more=""):
    return from_source(
        "@T.prim_func\ndef main(A: T.Buffer((T.int64(64),), 'float32'), "
        f"B: T.Buffer((64,), 'float32'){more}):\n    for i in range(64):\n"
        f"        with T.block('B'):\n            v = T.axis.spatial(64, i)\n            {body}"
    )


def test_what_may_wrap_keeps_its_type():
    fn = script("B[v] = A[T.Cast('int64', v * 100000000 % 7)]")
    made = with_index_dtype(fn, "int64")
    assert "* 100000000" in made.script()
    assert [str(c.value.dtype) for c in index_casts(made) if str(c.dtype) == "int64"] == ["int32"]
    a, b, c = np.arange(64, dtype="float32"), *np.zeros((2, 64), "float32")
    interpret(fn, a, b)
    interpret(made, a, c)
    np.testing.assert_array_equal(b, c)
    meant = with_index_dtype(fn, "int64", exact=False)
    assert not index_casts(meant)


def test_a_function_of_one_type_in_which_something_may_wrap_stays():
    text = script("B[v] = A[v * 100000000 % 7]").script().replace("T.int64(64)", "64")
    fn = from_source(text.replace('T.Cast("int64", v * 100000000 % 7)', "v * 100000000 % 7"))
    assert dtypes(fn) == {"int32"}
    assert with_index_dtype(fn, "int64") is fn
    assert dtypes(with_index_dtype(fn, "int64", exact=False)) == {"int64"}


def test_casts_there_and_back_go():
    fn = from_source("""
@T.prim_func
def main(A: T.Buffer((T.int64(64),), "float32")):
    for i in range(T.int64(64)):
        with T.block("A"):
            v = T.axis.spatial(T.int64(64), i)
            A[T.Cast("int64", T.Cast("int32", v) * 2 // 2)] = 0.0
""")
    assert dtypes(fn) == {"int64"}
    assert index_casts(fn)
    assert not index_casts(with_index_dtype(fn, "int64"))


def test_values_keep_their_types():
    fn = script("B[v] = T.Cast('float32', v * 3) + T.if_then_else(v < 5, 1.0, A[v])")
    made = with_index_dtype(fn, "int64")
    (block,) = [n for n in walk(made) if isinstance(n, Block) and n.name_hint == "B"]
    assert 'T.Cast("float32", T.Cast("int32", v) * 3)' in made.script()
    assert "v < T.int64(5)" in made.script()
    assert block.iter_vars[0].var.dtype == "int64"


def test_scalar_parameters_keep_their_types():
    fn = script("B[v] = A[T.Cast('int64', T.min(v, s))]", ", s: T.int32")
    made = with_index_dtype(fn, "int64")
    assert str(made.params[-1].dtype) == "int32"
    assert 'T.min(v, T.Cast("int64", s))' in made.script()


def test_an_int32_size_keeps_its_end():
    made = with_index_dtype(from_source(MIXED.format(n="int32")), "int64")
    top = made.get_attr("tir_var_upper_bound")["n"]
    assert 2**31 - 2**17 < top < 2**31
    bounded = from_source(MIXED.format(n="int32")).with_attr("tir_var_upper_bound", {"n": 100})
    assert with_index_dtype(bounded, "int64").get_attr("tir_var_upper_bound")["n"] == 100


def test_lets_views_and_conditions_follow():
    fn = from_source("""
@T.prim_func
def main(A: T.Buffer((T.int64(8), T.int64(8)), "float32"), B: T.Buffer((8, 8), "float32")):
    for i, j in T.grid(8, 8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            vj = T.axis.spatial(8, j)
            T.where(i * 8 + j < 60)
            W = T.match_buffer(A[T.Cast("int64", vi), 0:8], (8,), "float32", offset_factor=1)
            with T.LetStmt(vj * 2 % 8) as k:
                if k < vi:
                    B[vi, vj] = W[k]
                else:
                    B[vi, vj] = A[T.Cast("int64", vi), T.Cast("int64", k)]
""")
    made = with_index_dtype(fn, "int64")
    verify_well_formed(made)
    assert dtypes(made) == {"int64"}
    assert not index_casts(made)
    a = np.random.default_rng(0).random((8, 8), "float32")
    b, c = np.zeros((2, 8, 8), "float32")
    interpret(fn, a, b)
    interpret(made, a, c)
    np.testing.assert_array_equal(b, c)


def test_passes_narrow_where_it_fits_or_at_any_price():
    mod = tir.transform.NarrowDataType(32)(IRModule({"main": from_source(MIXED.format(n="int64"))}))
    assert dtypes(mod["main"]) == {"int32", "int64"}
    mod = tir.transform.ForceNarrowIndexToInt32()(mod)
    assert dtypes(mod["main"]) == {"int32"}
    with pytest.raises(TIRError, match="32 or 64"):
        tir.transform.NarrowDataType(16)(mod)
    wide = from_source(MIXED.format(n="int64").replace("float32", "int64").replace("0.0", "0"))
    with pytest.raises(TIRError, match="holds int64"):
        tir.transform.ForceNarrowIndexToInt32()(IRModule({"main": wide}))


# -- random functions ------------------------------------------------------------------------------

CONSTANTS = (0, 1, 2, 3, 7, 8, 31, 255, 65536, 1 << 20, 2**31 - 1, -1, -5, -(2**31))


def random_index(rng, leaves, load, depth):
    """An integer expression of int32 or int64."""
    if depth == 0 or rng.random() < 0.15:
        if rng.random() < 0.4:
            return tir.const(rng.choice(CONSTANTS), rng.choice(["int32", "int64"]))
        return rng.choice(leaves)
    if rng.random() < 0.1:
        return load(random_index(rng, leaves, load, depth - 1))
    a, b = (random_index(rng, leaves, load, depth - 1) for _ in range(2))
    if rng.random() < 0.2:
        return tir.Cast(rng.choice(["int32", "int64", "int8"]), a)
    to = rng.choice(["int32", "int64"])
    a, b = (x if str(x.dtype) == to else tir.Cast(to, x) for x in (a, b))
    kind = rng.choice(
        [tir.Add, tir.Sub, tir.Mul, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max, tir.Div, tir.Mod]
        + [lambda a, b: tir.Select(a < b, a, b), lambda a, b: tir.if_then_else(a <= b, b, a)]
        + [tir.bitwise_and, tir.bitwise_xor]
        # By constructor: constants shifted too far are refused elsewhere.
        + [lambda a, b: tir.call_intrin(to, "shift_right", a, b)]
    )
    return kind(a, b)


def random_function(seed):
    rng = random.Random(seed)
    some = lambda: rng.choice(["int32", "int64"])  # noqa: E731
    table = decl_buffer([tir.const(16, some())], some(), "T")
    out = decl_buffer([tir.const(n, some()) for n in (5, 4)], rng.choice(["int32", "int64"]), "out")
    i, j = tir.Var("i", some()), tir.Var("j", some())
    vi, vj = tir.Var("vi", some()), tir.Var("vj", some())

    def load(e):
        size = tir.const(16, str(e.dtype))
        return BufferLoad(table, [tir.FloorMod(e, size)])

    value = random_index(rng, [vi, vj], load, 4)
    value = load(value) if rng.random() < 0.5 else value
    value = tir.Cast(str(out.dtype), value)
    store = BufferStore(out, value, [vi, vj])
    axes = [
        tir.IterVar(tir.Range(tir.const(0, str(v.dtype)), tir.const(n, str(v.dtype))), v)
        for v, n in ((vi, 5), (vj, 4))
    ]
    first = rng.choice([0, 3])
    values = [tir.Cast(str(vi.dtype), i) - first, tir.Cast(str(vj.dtype), j)]
    inner = BlockRealize(values, tir.const(True), Block(axes, [], [], "b", store))
    body = For(
        i, tir.const(first, str(i.dtype)), tir.const(5, str(i.dtype)), 0,
        For(j, tir.const(0, str(j.dtype)), tir.const(4, str(j.dtype)), 0, inner),
    )  # fmt: skip
    root = BlockRealize([], tir.const(True), Block([], [], [], "root", body))
    return PrimFunc([table, out], root)


def check_random(seeds):
    for seed in seeds:
        fn = random_function(seed)
        table, out = fn.buffers
        given = np.random.default_rng(seed).integers(-(2**31), 2**31, 16)
        given = given.astype(str(table.dtype))
        want = np.zeros((5, 4), str(out.dtype))
        interpret(fn, given, want)
        for to in ("int64", "int32"):
            made = with_index_dtype(fn, to)
            verify_well_formed(made)
            got = np.zeros_like(want)
            interpret(made, given, got)
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}, {to}")
        assert_structural_equal(with_index_dtype(fn, "int64"), with_index_dtype(fn, "int64"))


def test_random_functions_keep_their_meaning():
    check_random(range(60))


@pytest.mark.slow
def test_many_random_functions_keep_their_meaning():
    check_random(range(60, 3000))
