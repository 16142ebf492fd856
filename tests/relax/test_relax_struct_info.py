"""Struct info: joins, the order, symbols, erasure, results of calls; against brute force on
concrete shapes.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm import relax
from relaxvm.base import StructInfoError
from relaxvm.ir import FloorDiv, IntImm, Var, load_json, save_json, structural_equal
from relaxvm.relax.analysis import (
    BaseCheckResult,
    definable_tir_vars_in_struct_info,
    derive_call_ret_struct_info,
    erase_to_well_defined,
    is_base_of,
    struct_info_base_check,
    struct_info_lca,
    tir_vars_in_struct_info,
)
from relaxvm.relax.derive import erase_unbound, substitute_struct_info

n, m = Var("n", "int64"), Var("m", "int64")
Object, Prim, Shape = relax.ObjectStructInfo, relax.PrimStructInfo, relax.ShapeStructInfo
Tensor, Tuple, Func = relax.TensorStructInfo, relax.TupleStructInfo, relax.FuncStructInfo
L0, L1, L2, PASS = BaseCheckResult


def test_equal_struct_info_is_identical():
    assert Tensor((n, 4), "float32") is Tensor((n, 4), "float32")
    assert Tensor((n, 4)) is not Tensor((m, 4))
    assert Func([Tensor((n,))], Tensor((n,))) is Func([Tensor((n,))], Tensor((n,)))


def test_equality_is_structural():
    f, g = (Func([Tensor((v,))], Tensor((v + 1,))) for v in (n, m))
    assert f == g
    assert f is not g
    assert len({f, g, Tuple((f,)), Tuple((g,))}) == 2
    assert Tuple((f, Tensor((4,)))) == Tuple((g, Tensor((4,))))
    assert f != Func([Tensor((n,))], Tensor((n + 2,)))
    assert f != Tensor((4,))
    assert Tuple((f,)) != Tuple((f, f))
    assert Tuple((Object(),)) != (Object(),)
    # Written in another order, and of another symbol: structure, not worth.
    assert Tensor((n + 1,)) != Tensor((1 + n,))
    assert Tensor((n,)) != Tensor((m,))


def test_attributes_of_calls_compare_with_lists_and_constants():
    x = relax.Var("x", Tensor((1, 2, 5, 5), "float32"))
    call = relax.op.nn.max_pool2d(x, (2, 2), strides=(2, 1))
    assert call.attrs.strides == [2, 1]
    assert [2, 1] == call.attrs.strides == (2, 1)
    assert call.attrs.strides == [IntImm("int64", 2), 1]
    assert call.attrs.strides != [1, 1]
    assert call.attrs["strides"] == (2, 1)
    assert relax.op.nn.softmax(x, axis=1).attrs.axis == IntImm("int64", 1)
    again = relax.Call(call.op, call.args, dict(call.attrs, strides=call.attrs.strides))
    assert structural_equal(call, again)
    assert load_json(save_json(again)).attrs == call.attrs


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Tensor((1, -2)), "not negative"),
        (lambda: Tensor("n"), "sequence of dimensions"),
        (lambda: Tensor((1.5,)), "integer expression"),
        (lambda: Tensor((True,)), "got a bool"),
        (lambda: Tensor((1, 2), ndim=3), "2 dimensions"),
        (lambda: Tensor((2**64,)), "dimension"),
        (lambda: Tensor(None, "float32", None, -5), "ndim"),
        (lambda: Shape((1,), 2), "1 dimensions"),
        (lambda: Tuple((1,)), "wanted a StructInfo"),
        (lambda: Func([Tensor((1,))], None), "wanted a StructInfo"),
        (lambda: Prim(), "dtype or a value"),
        (lambda: Tensor((1,), "float32x4"), "scalar"),
    ],
)
def test_bad_parts_are_struct_info_errors(build, message):
    with pytest.raises(StructInfoError, match=message):
        build()


def test_nesting_has_a_limit_with_a_typed_error():
    def nest(depth):
        info = Object()
        for _ in range(depth):
            info = Tuple((info,))
        return info

    assert struct_info_lca(nest(100), nest(99)) is not None
    with pytest.raises(StructInfoError, match="nested"):
        nest(10_000)


CHECKS = [
    (Object(), Tensor((1,)), PASS),
    (Tensor((1,)), Object(), L1),
    (Tensor((1,)), Shape((1,)), L0),
    (Tensor((n, 4)), Tensor((n, 4)), PASS),
    (Tensor((n, 4)), Tensor((m, 4)), L2),
    (Tensor((n, 4)), Tensor((n + 1, 4)), L0),
    (Tensor((n + 1, 4)), Tensor((1 + n, 4)), PASS),
    (Tensor((n, 4)), Tensor((3, 4)), L2),
    (Tensor((3, 4)), Tensor((4, 4)), L0),
    (Tensor((n, 4), "float32"), Tensor((n, 4), "float16"), L0),
    (Tensor((n, 4), "void"), Tensor((n, 4), "float16"), PASS),
    (Tensor((n, 4), "float16"), Tensor((n, 4), "void"), L1),
    (Tensor(None, ndim=2), Tensor((n, 4)), PASS),
    (Tensor((n, 4)), Tensor(None, ndim=2), L2),
    (Tensor(None, ndim=2), Tensor(None), L1),
    (Tensor(None, ndim=3), Tensor((n, 4)), L0),
    (Tensor(None, "void"), Tensor((n, 4)), PASS),
    (Shape((n,)), Shape((n,)), PASS),
    (Shape((n,)), Shape(ndim=1), L2),
    (Shape(ndim=1), Shape(), L1),
    (Shape(), Shape((n, m)), PASS),
    (Prim("int64"), Prim(n), PASS),
    (Prim(n), Prim("int64"), L2),
    (Prim(n), Prim(n + 1), L0),
    (Prim("int64"), Prim("int32"), L0),
    (Tuple((Object(), Tensor((n,)))), Tuple((Shape(), Tensor((m,)))), L2),
    (Tuple((Object(),)), Tuple(()), L0),
    (Func([Tensor((n,))], Tensor((n,))), Func([Tensor((m,))], Tensor((m,))), PASS),
    (Func([Tensor((n,))], Tensor((n,))), Func([Tensor((m,))], Tensor((m + 1,))), L0),
    (Func([Tensor((n,))], Object()), Func([Tensor((n,)), Object()], Object()), L0),
    (Func([Tensor((4,))], Tensor((4,))), Func([Tensor((m,))], Tensor((m,))), PASS),
    (Func([Tensor((n,))], Tensor((n,))), Func([Tensor((4,))], Tensor((4,))), L2),
    (Func.opaque_func(), Func([Tensor((n,))], Tensor((n,))), PASS),
    (Func([Tensor((n,))], Object(), True), Func([Tensor((n,))], Object(), False), L1),
]


@pytest.mark.parametrize(("base", "derived", "wanted"), CHECKS)
def test_base_check(base, derived, wanted):
    assert struct_info_base_check(base, derived) is wanted
    assert is_base_of(base, derived) is (wanted is PASS)


LCAS = [
    (Tensor((n, 4)), Tensor((n, 4)), Tensor((n, 4))),
    (Tensor((n, 4)), Tensor((m, 4)), Tensor(None, ndim=2)),
    (Tensor((n, 4)), Tensor((m, 4, 1)), Tensor(None)),
    (Tensor((n, 4), "float16"), Tensor((n, 4)), Tensor((n, 4), "void")),
    (Shape((n,)), Shape((m,)), Shape(ndim=1)),
    (Shape((n,)), Shape((m, n)), Shape()),
    (Prim(n), Prim(m), Prim("int64")),
    (Prim("int32"), Prim("int64"), Object()),
    (Tensor((n,)), Shape((n,)), Object()),
    (
        Tuple((Tensor((n,)), Prim(n))),
        Tuple((Tensor((n,)), Prim(m))),
        Tuple((Tensor((n,)), Prim("int64"))),
    ),
    (Tuple(()), Tuple((Object(),)), Object()),
    (Tensor((2 * n,)), Tensor((n + n,)), Tensor((2 * n,))),
]


@pytest.mark.parametrize(("a", "b", "wanted"), LCAS)
def test_lca(a, b, wanted):
    assert struct_info_lca(a, b) is wanted
    assert is_base_of(struct_info_lca(b, a), a)


def test_lca_of_functions_covers_both():
    f = Func([Tensor((n,))], Tensor((n,)))
    g = Func([Tensor((4,))], Tensor((5,)))
    both = struct_info_lca(f, g)
    assert is_base_of(both, f)
    assert is_base_of(both, g)
    assert tir_vars_in_struct_info(both) == []


dims = st.sampled_from([1, 2, 3, n, m, n + 1, n * 2, n + m])
infos = st.recursive(
    st.one_of(
        st.just(Object()),
        st.builds(
            lambda d, t: Tensor(d, t),
            st.lists(dims, max_size=2),
            st.sampled_from(["float32", "void"]),
        ),
        st.builds(lambda k: Tensor(None, "float32", None, k), st.integers(-1, 2)),
        st.builds(Shape, st.lists(dims, max_size=2)),
        st.builds(lambda k: Shape(None, k), st.integers(-1, 2)),
        st.builds(Prim, st.sampled_from([n, m, n + m])),
        st.just(Prim("int64")),
    ),
    lambda inner: st.builds(lambda f: Tuple(tuple(f)), st.lists(inner, max_size=2)),
    max_leaves=4,
)


def _concrete(info, values):
    return substitute_struct_info(info, {v: IntImm("int64", values[v.name]) for v in (n, m)})


@settings(max_examples=150)
@given(infos, infos)
def test_check_agrees_with_every_small_size(base, derived):
    verdict = struct_info_base_check(base, derived)
    results = [
        struct_info_base_check(_concrete(base, v), _concrete(derived, v))
        for v in ({"n": i, "m": j} for i, j in itertools.product(range(4), repeat=2))
    ]
    if verdict is PASS:
        assert all(r is PASS for r in results)
    if verdict is L0:
        assert all(r is L0 for r in results)


@settings(max_examples=150)
@given(infos, infos)
def test_lca_is_a_base_of_both_and_symmetric(a, b):
    both = struct_info_lca(a, b)
    assert is_base_of(both, a)
    assert is_base_of(both, b)
    assert is_base_of(struct_info_lca(b, a), both)


@settings(max_examples=100)
@given(infos)
def test_erasing_all_symbols_gives_a_base_without_symbols(info):
    erased = erase_to_well_defined(info)
    assert tir_vars_in_struct_info(erased) == []
    assert is_base_of(erased, info)


def test_erase_translates_known_symbols_and_forgets_others():
    info = Tuple((Tensor((n, m)), Tensor((n, 4)), Prim(m), Shape((n + 1,))))
    assert erase_to_well_defined(info, {n: m * 2}) is Tuple(
        (Tensor(None, ndim=2), Tensor((m * 2, 4)), Prim("int64"), Shape((m * 2 + 1,)))
    )


def test_erase_forgets_a_shape_variable_but_keeps_its_dimensions_if_visible():
    s = relax.Var("s", Shape((n, 2)))
    assert erase_to_well_defined(Tensor(s, "float32"), {n: n}) is Tensor((n, 2))
    assert erase_to_well_defined(Tensor(s, "float32")) is Tensor(None, ndim=2)
    t = relax.Var("t", Shape((n, 2)))
    assert erase_to_well_defined(Tensor(s, "float32"), {n: n}, {s: t}) is Tensor(t)


def test_erase_unbound_keeps_what_parameters_determine():
    assert erase_unbound(Tensor((n, m)), [Tensor((n,))]) is Tensor(None, ndim=2)
    assert erase_unbound(Tensor((n, m)), [Tensor((n,)), Shape((m,))]) is Tensor((n, m))
    assert erase_unbound(Tensor((n,)), [Tensor((n * 2,))]) is Tensor(None, ndim=1)


def test_definable_symbols_stand_alone_and_outside_signatures():
    info = Tuple((Tensor((n + 1, m)), Func([Tensor((n,))], Object()), Prim(n * 2)))
    assert definable_tir_vars_in_struct_info(info) == [m]
    assert tir_vars_in_struct_info(info) == [n, m]
    assert tir_vars_in_struct_info(Func([Tensor((n,))], Tensor((n, m)))) == [m]


def test_substitution_leaves_symbols_that_a_signature_binds():
    f = Func([Tensor((n,))], Tensor((n, m)))
    assert substitute_struct_info(f, {n: IntImm("int64", 2), m: IntImm("int64", 3)}) is Func(
        [Tensor((n,))], Tensor((n, 3))
    )


def test_substitution_simplifies_and_refuses_negative_dimensions():
    info = Tensor((n - 4, FloorDiv(n, IntImm("int64", 2))))
    assert substitute_struct_info(info, {n: IntImm("int64", 10)}) is Tensor((6, 5))
    with pytest.raises(StructInfoError, match="not negative"):
        substitute_struct_info(info, {n: IntImm("int64", 2)})


def test_a_call_binds_symbols_from_the_arguments():
    f = Func([Tensor((n, 4)), Tensor((4, m))], Tensor((n, m)))
    k = Var("k", "int64")
    assert derive_call_ret_struct_info(f, [Tensor((k + 1, 4)), Tensor((4, 8))]) is Tensor(
        (k + 1, 8)
    )


def test_a_call_with_unknown_shape_forgets_only_what_depends_on_it():
    f = Func([Tensor((n, 4)), Tensor((m,))], Tuple((Tensor((n,)), Tensor((m,)))))
    got = derive_call_ret_struct_info(f, [Tensor(None, ndim=2), Tensor((5,))])
    assert got is Tuple((Tensor(None, ndim=1), Tensor((5,))))


def test_a_recursive_call_may_use_the_callees_own_symbols():
    f = Func([Tensor((n,)), Tensor((m,))], Tensor((n + m,)))
    got = derive_call_ret_struct_info(f, [Tensor((m,)), Tensor((n * 2,))])
    assert is_base_of(Tensor((m + n * 2,)), got)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([Tensor((3, 5)), Tensor((4, 2))], "argument x.*\n.*wanted.*4.*\n.*got.*5"),
        ([Tensor((3, 4))], "wanted 2 arguments, got 1"),
        ([Shape((3, 4)), Tensor((4, 2))], "argument x"),
        ([Tensor((3, 4), "int8"), Tensor((4, 2))], "argument x"),
        ([Tensor((3, 4)), Tensor((4, 2, 1))], "argument w"),
    ],
)
def test_a_call_that_cannot_fit_names_the_argument(args, message):
    f = Func([Tensor((n, 4)), Tensor((4, m))], Tensor((n, m)))
    with pytest.raises(StructInfoError, match=message):
        derive_call_ret_struct_info(f, args, name="f", param_names=["x", "w"])


def test_one_symbol_with_two_sizes_is_refused():
    f = Func([Tensor((n,)), Tensor((n,))], Tensor((n,)))
    with pytest.raises(StructInfoError, match="argument 1"):
        derive_call_ret_struct_info(f, [Tensor((3,)), Tensor((4,))])
    k = Var("k", "int64")
    with pytest.raises(StructInfoError, match="argument 1"):
        derive_call_ret_struct_info(f, [Tensor((k,)), Tensor((k + 1,))])


def test_sizes_that_may_agree_are_left_to_run_time():
    f = Func([Tensor((n,)), Tensor((n,))], Tensor((n,)))
    k = Var("k", "int64")
    assert derive_call_ret_struct_info(f, [Tensor((3,)), Tensor((k,))]) is Tensor((3,))


def test_script_text_of_struct_info():
    assert str(Tensor((n, 4))) == 'R.Tensor((n, 4), dtype="float32")'
