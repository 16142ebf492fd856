"""The table of identities: each is true, kept by the simplifier, and found by it.

An identity is read as text over numpy numbers, which decides whether it is true; as expressions it
is simplified, and the result is evaluated by the interpreter of loop functions.
"""

import itertools
import random

import numpy as np
import pytest
from identities import Identity, expand

from relaxvm import tir
from relaxvm.arith import Analyzer
from relaxvm.ir import (
    And,
    Broadcast,
    Let,
    Max,
    Min,
    Not,
    Or,
    Ramp,
    Select,
    Var,
    as_expr,
    const,
    walk,
)
from relaxvm.ir.expr import call_intrinsic, cast, match

IDENTITIES = expand()
BUFFER = tir.decl_buffer((1000,), "int32", name="table")
VALUES = np.random.default_rng(0).integers(-50, 50, 1000).astype("int32")
NAMES = ("x", "y", "z", "u", "v")


def as_numbers(env):
    """What the names of the table mean over numbers and arrays."""

    def tdiv(a, b):
        quotient = abs(a) // abs(b)
        return np.where((a < 0) != (b < 0), -quotient, quotient)[()]

    def as_(kind, value):
        if kind == "bool":
            return value != 0
        return np.asarray(value).astype(kind.partition("x")[0])[()]

    def load(i):
        if not 0 <= i + 500 < len(VALUES):
            raise IndexError
        return np.int64(VALUES[i + 500])

    return env | {
        "min": np.minimum,
        "max": np.maximum,
        "tdiv": tdiv,
        "tmod": lambda a, b: a - b * tdiv(a, b),
        "both": np.logical_and,
        "either": np.logical_or,
        "no": np.logical_not,
        "select": lambda c, a, b: np.where(c, a, b)[()],
        "when": lambda c, a, b: a if c else b,
        "let": lambda body, value: body(value),
        "true": np.True_,
        "false": np.False_,
        "as_": as_,
        "shl": lambda a, b: a << b,
        "clz": lambda a: 32 - int(a).bit_length(),
        "ramp": lambda a, s, n: a + s * np.arange(n),
        "spread": lambda a, n: np.full(n, a),
        "load": load,
        **{t: t for t in ("int64", "int32", "int8", "float32", "float16", "bool", "float32x4")},
    }


def as_expressions(dtype="int32"):
    """What the names of the table mean over expressions, and the variables."""
    env = {name: Var(name, dtype) for name in NAMES}

    def let(body, value):
        v = Var("t", dtype)
        return Let(v, const(value, dtype), body(v))

    def two(cls):
        return lambda a, b: cls(*match(a, b))

    def as_(kind, value):
        return cast(kind, value if not isinstance(value, int) else const(value, kind))

    return env | {
        "min": two(Min),
        "max": two(Max),
        "tdiv": lambda a, b: tir.truncdiv(a, b),
        "tmod": lambda a, b: tir.truncmod(a, b),
        "both": And,
        "either": Or,
        "no": Not,
        "select": Select,
        "when": tir.if_then_else,
        "let": let,
        "true": const(True),
        "false": const(False),
        "as_": as_,
        "shl": lambda a, b: call_intrinsic("shift_left", const(a, dtype), const(b, dtype)),
        "clz": lambda a: call_intrinsic("clz", const(a, dtype)),
        "ramp": lambda a, s, n: Ramp(a, s, n),
        "spread": lambda a, n: Broadcast(as_expr(a), n),
        "load": lambda i: tir.BufferLoad(BUFFER, [i + 500]),
        **{t: t for t in ("int64", "int32", "int8", "float32", "float16", "bool", "float32x4")},
    }


def assignments(identity, count, seed=0):
    """Values of the variables under which the identity says something."""
    draw = random.Random(f"{seed} {identity}")
    tests = [compile(c, "condition", "eval") for c in identity.conditions]
    found = 0
    for attempt in range(60 * count):
        span = (3, 12, 40, 5000)[attempt % 4]
        env = {n: np.int64(draw.randint(-span, span)) for n in NAMES}
        if all(eval(t, {"__builtins__": {}}, dict(env)) for t in tests):
            found += 1
            yield env
            if found == count:
                return


def number(text, env):
    """The value of a text, or None where it divides by zero or looks outside the buffer."""
    with np.errstate(divide="raise"):
        try:
            return eval(text, as_numbers(env))
        except (FloatingPointError, ZeroDivisionError, IndexError):
            return None


def expression(text, names):
    # Comparisons of Python numbers with each other are Python's.
    return as_expr(eval(text, dict(names)))


def size(e):
    """How many operations an expression shows."""
    return sum(bool(n._children_) for n in walk(e))


def found_by(identity, dtype="int32", **options):
    """(proved equal, at most as large as the right side)"""
    names = as_expressions(dtype)
    lhs, rhs = expression(identity.lhs, names), expression(identity.rhs, names)
    a = Analyzer(**options)
    with a.constraint_scope(conjunction(identity, names)):
        proved = a.can_prove_equal(lhs, rhs)
        return proved, size(a.simplify(lhs)) <= size(rhs)


def conjunction(identity, names):
    total = const(True)
    for c in identity.conditions:
        total = And(total, expression(c, names))
    return total


def simplified(identity, side, dtype="int32", **options):
    names = as_expressions(dtype)
    a = Analyzer(**options)
    with a.constraint_scope(conjunction(identity, names)):
        return a.simplify(expression(getattr(identity, side), names)), names


@pytest.mark.parametrize("section", sorted({i.section for i in IDENTITIES}))
def test_the_table_holds_over_numbers(section):
    for identity in IDENTITIES:
        if identity.section != section:
            continue
        told = 0
        for env in assignments(identity, 30):
            lhs, rhs = number(identity.lhs, env), number(identity.rhs, env)
            if lhs is None or rhs is None:
                continue
            told += 1
            assert np.array_equal(lhs, rhs), f"{identity} at {env}"
        assert told > 3, f"no values for {identity}"


# What the table says and the simplifier does not find.
MISSED = {
    "tdiv(tdiv(tmod(x, 16), 2) * 2, 4)",
    "tdiv(tdiv(tmod(x, 16), 2) * 2, 6)",
    "tmod(tdiv(tmod(x, 20), 2) * 2, 4)",
    "when(x * 4 + y >= 466036, when(24512 <= tmod(x * 4 + y - 466036, 24528), "
    "tmod(tmod(x * 4 + y - 466036, 24528) - 24512, 16), x), y)",
}


def test_every_identity_is_proved_and_most_are_found_as_short():
    proved, short, missed = 0, 0, set()
    for identity in IDENTITIES:
        equal, small = found_by(identity)
        proved += equal
        short += small
        if not equal:
            missed.add(identity.lhs)
    assert missed == MISSED
    assert proved == len(IDENTITIES) - len(MISSED)
    assert short >= 985, short


def test_an_identity_that_needs_an_assumption_is_not_used_where_integers_wrap():
    for lhs, rhs in (("x * 4 // 4", "x"), ("x < x + 1", "true"), ("x // x", "1")):
        identity = Identity("", lhs, rhs, ())
        assert found_by(identity)[0]
        assert not found_by(identity, wrap=True)[0]
    assert not found_by(Identity("", "x // x", "1", ()), wrap=False)[0]


def check_simplified(identity, dtype, wrap, count, seed):
    """What is simplified is worth what was written, also at the edges where integers wrap."""
    simple, names = simplified(identity, "lhs", dtype, wrap=wrap)
    if wrap is True:
        lhs = expression(identity.lhs, names)
    limits = np.iinfo(dtype)
    draw = random.Random(f"{seed} {identity}")
    for env in assignments(identity, count, seed):
        if wrap is True:
            # Anything may wrap: the interpreter says what the text is worth.
            env = {
                n: draw.choice([limits.min, limits.max, limits.max - 1, 0, int(v) % 50, 1])
                for n, v in env.items()
            }
            if not all(
                bool(tir.evaluate_expr(expression(c, names), _values(names, env)))
                for c in identity.conditions
            ):
                continue
            want = tir.evaluate_expr(lhs, _values(names, env))
        else:
            want = number(identity.lhs, env)
            if want is None:
                continue
        got = tir.evaluate_expr(simple, _values(names, env))
        assert np.array_equal(np.asarray(got), np.asarray(want)), (
            f"{identity}: {simple} at {env}, wrap={wrap}: {got}, wanted {want}"
        )


def _values(names, env):
    return {names[n]: int(v) for n, v in env.items()} | {BUFFER: VALUES}


def numeric(identity):
    """Leave out what reads the buffer, where edges are outside, or names other dtypes."""
    return "load" not in identity.lhs and "as_" not in identity.lhs


def test_simplified_identities_are_worth_what_is_written():
    for identity in IDENTITIES[::3]:
        check_simplified(identity, "int32", None, 4, seed=1)


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_simplified_identities_wrap_as_what_is_written(dtype):
    for identity in IDENTITIES[::4]:
        if numeric(identity) and fits(identity, dtype):
            check_simplified(identity, dtype, True, 4, seed=2)


def fits(identity, dtype):
    """Whether the constants of a text are numbers of `dtype`."""
    words = "".join(c if c.isdigit() else " " for c in identity.lhs + str(identity.conditions))
    return all(int(w) <= np.iinfo(dtype).max for w in words.split())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_simplified_identities_are_right_at_many_values(seed):
    for identity in IDENTITIES:
        check_simplified(identity, "int32", None, 40, seed)
        for dtype in ("int8", "int16", "int32", "int64"):
            if numeric(identity) and fits(identity, dtype):
                check_simplified(identity, dtype, True, 25, seed)


class Forms:
    """Small random expressions, and what their normal forms claim about them."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.names = {v: Var(v, "int32") for v in ("x", "y")}

    def text(self, depth):
        draw = self.draw
        if depth == 0 or draw.random() < 0.1:
            return draw.choice(["x", "y", "1", "2", "-3", "x"])
        a, b = self.text(depth - 1), self.text(depth - 1)
        c = draw.choice(["2", "3", "4", "-2"])
        forms = ["({a} + {b})", "({a} - {b})", "({a} * {c})", "({a} // {c})", "({a} % {c})"]
        forms += ["tdiv({a}, {c})", "tmod({a}, {c})", "min({a}, {b})", "max({a}, {b})"]
        forms += ["select({a} < {b}, {a}, {b})", "select(both({a} < {b}, {b} < {c}), {c}, {a})"]
        return draw.choice(forms).format(a=a, b=b, c=c)


@pytest.mark.parametrize("seed", range(4))
def test_expressions_of_one_form_have_one_value(seed):
    forms = Forms(seed)
    known = Analyzer()
    names = as_expressions()
    grid = list(itertools.product(range(-9, 10, 3), range(-8, 9, 2)))
    values = {}
    told = 0
    for _ in range(200):
        text = forms.text(2)
        e = expression(text, names)
        form = known.normal.of(known.canonical_simplify(as_expr(e)))
        if form is None:
            continue
        key = frozenset((tuple(map(id, m)), c) for m, c in form.terms.items())
        worth = [int(number(text, {"x": np.int64(x), "y": np.int64(y)})) for x, y in grid]
        told += key in values
        assert values.setdefault(key, (worth, text))[0] == worth, (text, values[key][1])
    assert told > 40
