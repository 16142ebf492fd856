from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm.base import VerifyError, VMTypeError, VMValueError
from relaxvm.runtime import dims
from relaxvm.runtime.dims import (
    check,
    dim_from_plain,
    dim_to_plain,
    evaluate,
    format_dim,
    is_symbol,
    symbols_of,
)

_BINARY = [name for name, entry in dims._OPERATORS.items() if entry[0] == 2]
_UNARY = [name for name, entry in dims._OPERATORS.items() if entry[0] == 1]


@pytest.mark.parametrize(
    ("dim", "value", "text"),
    [
        (7, 7, "7"),
        (("$n",), 5, "n"),
        ((2, "$n", "*", 1, "+"), 11, "2 * n + 1"),
        (("$n", 1, "+", 2, "*"), 12, "(n + 1) * 2"),
        (("$n", "$m", 1, "-", "-"), 8, "n - (m - 1)"),
        (("$n", "$m", "-", 1, "-"), 6, "n - m - 1"),
        (("$m", 2, "//"), -1, "m // 2"),
        (("$m", 2, "truncdiv"), -1, "truncdiv(m, 2)"),
        ((-7, 2, "//"), -4, "-7 // 2"),
        ((-7, 2, "truncdiv"), -3, "truncdiv(-7, 2)"),
        ((-7, 2, "%"), 1, "-7 % 2"),
        ((-7, 2, "truncmod"), -1, "truncmod(-7, 2)"),
        ((7, 2, "ceildiv"), 4, "ceildiv(7, 2)"),
        ((-7, 2, "ceildiv"), -3, "ceildiv(-7, 2)"),
        (("$n", 0, "//"), 0, "n // 0"),
        (("$n", 0, "%"), 0, "n % 0"),
        (("$n", 0, "truncdiv"), 0, "truncdiv(n, 0)"),
        (("$n", 0, "ceildiv"), 0, "ceildiv(n, 0)"),
        (("$n", "$m", "min"), -2, "min(n, m)"),
        (("$n", "$m", "max"), 5, "max(n, m)"),
        (("$n", "$m", "<", 1, 2, "select"), 2, "select(n < m, 1, 2)"),
        (("$n", 5, "==", "$m", 0, "<", "and"), True, "n == 5 and m < 0"),
        (("$n", 4, "==", "not"), True, "not n == 4"),
        (("$n", 4, "==", "$m", 0, ">", "or"), False, "n == 4 or m > 0"),
        (("$n", "neg"), -5, "-n"),
        (("$n", 1, "+", "neg"), -6, "-(n + 1)"),
        (("$m", "abs"), 2, "abs(m)"),
        ((1, "$n", "shl"), 32, "shl(1, n)"),
        (("$n", 1, "shr"), 2, "shr(n, 1)"),
        (("$n", 4, "bitand"), 4, "bitand(n, 4)"),
        (("$n", 2, "bitor"), 7, "bitor(n, 2)"),
        (("$n", 1, "bitxor"), 4, "bitxor(n, 1)"),
        ((1.5, "$n", "*"), 7.5, "1.5 * n"),
        (("$n", 1, "<=", 1, ">="), False, "(n <= 1) >= 1"),
    ],
)
def test_a_postfix_program_has_its_value_and_its_infix_text(dim, value, text):
    check(dim, {"n", "m"})
    got = evaluate(dim, {"n": 5, "m": -2})
    assert got == value
    assert type(got) is type(value)
    assert format_dim(dim) == text
    assert dim_from_plain(dim_to_plain(dim)) == dim


@pytest.mark.parametrize(
    ("dim", "message"),
    [
        ((), "1 to 4096 items"),
        (("$n", "$m"), "one value at the end, got 2"),
        (("+",), "wants 2 operands, got 0"),
        (("$n", "+"), "wants 2 operands, got 1"),
        (("$n", 1, "frob"), "unknown operator 'frob'"),
        (("$",), "a symbol name is"),
        (("$" + "x" * 300,), "a symbol name is"),
        ((True,), "got bool"),
        ((None,), "got NoneType"),
        (True, "got bool"),
        (None, "got NoneType"),
        ("$n", "got str"),
        (1 << 63, "64 bits"),
        ((1 << 63,), "64 bits"),
        (("$q",), "symbol 'q' is not bound"),
        ((1,) * 300 + ("+",) * 299, "values wait"),
        ((1,) + (1, "+") * 4096, "1 to 4096 items"),
    ],
)
def test_a_malformed_dimension_is_refused(dim, message):
    with pytest.raises(VerifyError, match=message):
        check(dim, {"n", "m"})


@pytest.mark.parametrize(
    ("dim", "error"),
    [
        (("$n", "$n", "*"), VMValueError),
        ((1, 64, "shl"), VMValueError),
        ((1, -1, "shl"), VMValueError),
        ((1, -1, "shr"), VMValueError),
        ((1, 63, "shl"), VMValueError),
        ((-(1 << 63), "abs"), VMValueError),
        ((-(1 << 63), "neg"), VMValueError),
        ((1.5, 1, "bitand"), VMTypeError),
        ((math.inf, 1, "truncdiv"), VMTypeError),
        (("$unbound",), VMValueError),
        (("$unbound", 1, "+"), VMValueError),
    ],
)
def test_a_value_that_makes_no_sense_is_a_typed_error(dim, error):
    check(dim)
    with pytest.raises(error):
        evaluate(dim, {"n": 1 << 40})


def test_symbols_are_listed_in_order():
    assert list(symbols_of(("$n", "$m", "+", "$n", "*"))) == ["n", "m", "n"]
    assert is_symbol(("$n",)) == "n"
    assert is_symbol(("$n", 1, "+")) is None
    assert is_symbol(4) is None


_trees = st.recursive(
    st.one_of(st.integers(-100, 100), st.sampled_from(["$n", "$m"]), st.floats(-10, 10)).map(
        lambda x: (x,)
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner, st.sampled_from(_BINARY)).map(lambda t: (*t[0], *t[1], t[2])),
        st.tuples(inner, st.sampled_from(_UNARY)).map(lambda t: (*t[0], t[1])),
        st.tuples(inner, inner, inner).map(lambda t: (*t[0], *t[1], *t[2], "select")),
    ),
    max_leaves=12,
)


@given(_trees, st.integers(-(2**63), 2**63 - 1), st.integers(-5, 5))
@settings(max_examples=150, deadline=None)
def test_any_well_formed_dimension_gives_a_value_or_a_typed_error(dim, n, m):
    check(dim, ("n", "m"))
    format_dim(dim)
    try:
        value = evaluate(dim, {"n": n, "m": m})
    except (VMValueError, VMTypeError):
        return
    assert type(value) in (int, float, bool)
    assert type(value) is not int or -(2**63) <= value < 2**63


_infix = st.recursive(
    st.one_of(st.integers(0, 50), st.sampled_from(["$n", "$m"])).map(lambda x: (x,)),
    lambda inner: st.one_of(
        st.tuples(
            inner, inner, st.sampled_from(["+", "-", "*", "<", "==", "and", "or", "min"])
        ).map(lambda t: (*t[0], *t[1], t[2])),
        st.tuples(inner, st.sampled_from(["neg", "not"])).map(lambda t: (*t[0], t[1])),
    ),
    max_leaves=10,
)


@given(_infix, st.integers(-9, 9), st.integers(-9, 9))
@settings(max_examples=150, deadline=None)
def test_the_infix_text_means_the_same_in_python(dim, n, m):
    try:
        value = evaluate(dim, {"n": n, "m": m})
    except VMValueError:
        return
    # Our `and` and `or` give booleans; Python's give an operand. Truth is what they share.
    text = eval(format_dim(dim), {"n": n, "m": m, "min": min})
    if not any(name in dim for name in ("and", "or")):
        assert text == value


@given(
    st.lists(
        st.one_of(
            st.integers(), st.text(max_size=4), st.floats(), st.none(), st.sampled_from(_BINARY)
        )
    )
)
@settings(max_examples=150, deadline=None)
def test_any_plain_value_is_read_or_refused(plain):
    try:
        dim = dim_from_plain(plain)
    except VerifyError:
        return
    format_dim(dim)
