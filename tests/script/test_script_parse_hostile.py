"""Text from elsewhere gives IR or a ParseError, soon, and reaches nothing outside."""

from __future__ import annotations

import pytest

from relaxvm.base import ParseError
from relaxvm.script import from_source


def outcome(text):
    """What text gives: IR, or the ParseError, which can be shown."""
    try:
        return from_source(text)
    except ParseError as error:
        str(error)
        return error


def refuse(expression, message):
    with pytest.raises(ParseError, match=message):
        from_source(
            "@T.prim_func\ndef f(A: T.Buffer((4,), 'int32'), n: T.int32):\n"
            f"    A[0] = {expression}\n"
        )


@pytest.mark.parametrize(
    "expression",
    [
        "().__class__",
        "T.exp.__globals__",
        "T.__dict__",
        "T.__loader__",
        "(1).__class__.__mro__",
        "n._fields",
        "f'{n.__class__}'",
        "[x.__class__ for x in (1, 2)]",
    ],
)
def test_private_attributes_cannot_be_read(expression):
    refuse(expression, "cannot be read by text")


@pytest.mark.parametrize(
    "name", ["open", "eval", "exec", "__import__", "getattr", "type", "globals", "print", "input"]
)
def test_dangerous_builtins_do_not_exist(name):
    refuse(f"{name}('1')", f"unknown name {name}")


@pytest.mark.parametrize(
    "expression",
    [
        "T.sys",
        "T.records",
        "T.Mapping",
        "T.decorate_function",
        "R.op",
        "R.op.op",
        "R.missing",
        "R.sys",
        "I.sys",
        "T.axis.remap.mro()",
        "'a'.format(n)",
    ],
)
def test_what_languages_do_not_offer_cannot_be_reached(expression):
    refuse(expression, "has no|cannot be read|text cannot use|private")


@pytest.mark.parametrize(
    "expression",
    [
        "9 ** 9 ** 9",
        "2 ** 100000",
        "1 << 10 ** 9",
        "[0] * 10 ** 9",
        "len('a' * 10 ** 9)",
        "sum(range(10 ** 12))",
        "len([i for i in range(10 ** 9)])",
        "len(list(range(10 ** 9)))",
        "int('9' * 100000)",
        "len('%1000000000d' % 1)",
        "len(f'{1:1000000000}')",
        "len([*range(10 ** 9)])",
        "max(*range(10 ** 9))",
        "len(list(zip(range(10 ** 9), range(10 ** 9))))",
        "len(sorted(reversed(range(10 ** 9))))",
        "[i for i in A][0]",
        "tuple(A)[0]",
        "T.Broadcast(n, 10 ** 9)",
        "T.Ramp(n, 1, 10 ** 9)",
        "10 ** 400",
        "(" * 150 + "n" + ")" * 150 + " + n" * 60000,
        "-" * 5000 + "n",
        "n" + ".shape" * 3000,
        "n" + "[0]" * 3000,
        "(" * 300,
        "1" * 5000,
    ],
    ids=lambda e: e[:24],
)
def test_what_would_take_for_ever_is_refused(expression):
    made = outcome(
        f"@T.prim_func\ndef f(A: T.Buffer((4,), 'int32'), n: T.int32):\n    A[0] = {expression}\n"
    )
    # Long sums are programs where Python's own parser takes them.
    is_sum = "+ n" in expression or set(expression) == {"-", "n"}
    assert isinstance(made, ParseError) or is_sum


def test_deep_nesting_is_refused_not_a_crash():
    for text in ("if n < 1:\n", "for i in range(2):\n", "while n < 1:\n", "with T.block():\n"):
        body = (
            "".join("    " * (depth + 1) + text for depth in range(120)) + "    " * 121 + "pass\n"
        )
        with pytest.raises(ParseError):
            from_source(f"@T.prim_func\ndef f(n: T.int32):\n{body}")
