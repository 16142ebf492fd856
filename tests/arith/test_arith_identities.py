"""The table of identities: each is true, kept by the simplifier, and found by it.

An identity is read as text over numpy numbers, which decides whether it is true; as expressions it
is simplified, and the result is evaluated by the interpreter of loop functions.
"""

import random

import numpy as np
import pytest
from identities import Identity, expand

from relaxvm import tir
from relaxvm.arith import Analyzer
from relaxvm.ir import (
    And,
    Broadcast,
    IntImm,
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
    post_order,
    walk,
)
from relaxvm.ir.expr import binary, call_intrinsic, cast, match

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
        "load": lambda i: np.int64(VALUES[i + 500]),
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
    return sum(bool(n._children_()) for n in walk(e))


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
