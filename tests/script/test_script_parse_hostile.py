"""Text from elsewhere gives IR or a ParseError, soon, and reaches nothing outside."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relaxvm.base import ParseError
from relaxvm.ir import BaseFunc, IRModule
from relaxvm.script import from_source

SEEDS = [
    """
@I.ir_module
class Module:
    I.module_attrs({"a": 1})

    @T.prim_func
    def mm(a: T.handle, B: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        A = T.match_buffer(a, (n, 8), "float32")
        D = T.alloc_buffer((8, 8), "float32")
        for i, j, k in T.grid(8, 8, 8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.where(i < 7)
                T.reads(A[vi, vk], B[vk, vj])
                T.writes(C[vi, vj])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] += A[vi, vk] * B[vk, vj]

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(ndim=2):
        n = T.int64()
        with R.dataflow():
            lv = R.call_tir(Module.mm, (x, x), out_sinfo=R.Tensor((n, 8), dtype="float32"))
            gv = R.call_dps_packed("env.f", (lv,), R.Tensor((n, 8), "float32"))
            R.output(gv)
        if c:
            y = R.match_cast(gv, R.Tensor((n, 8), "float32"))
        else:
            y = gv
        return y
""",
    """
@T.prim_func
def f(A: T.Buffer((16,), "float32"), n: T.int32) -> T.int32:
    p = T.allocate([16], "float32", "global")
    B = T.Buffer((16,), "float32", data=p)
    x: T.int32 = n * 2 + T.max(n, 3) // 2 % 5
    assert x < 16, "small"
    while A[0] < T.float32(3):
        A[0] = T.exp(A[0]) + T.Select(n < 3, A[1], T.float32(2))
    if n < 1 and not n == 3:
        A[0:4] = T.Broadcast(T.float32(1), 4)
    elif n > 2:
        B[x] = sum([A[i] for i in range(3)])
    else:
        T.evaluate(T.call_extern("int32", "g", A.data))
    return x
""",
]

TOKENS = [
    "(", ")", "[", "]", "{", "}", ":", ",", ".", "=", "+", "-", "*", "**", "//", "%", "<<", "@",
    "not ", "if ", "for i in ", "lambda: ", "None", "True", "0", "-1", "1e400", "10**9", "''",
    '"n"', "T", "R", "I", "T.int64()", "A", "x", "n", "cls", "T.block()", "T.grid(4)", "...", "\n",
    "    ", "T.axis.spatial(4, 0)", "R.output", "R.Tensor", "\t", "é", "\0", "_", "__class__",
    "range(10)", "str", "[1] * 10", "return ", "with ", "f'{n}'",
]  # fmt: skip


@st.composite
def mutated(draw):
    """A seed with a few characters, tokens or lines removed, doubled, swapped or put in."""
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 4))):
        if not text:
            break
        at = draw(st.integers(0, len(text) - 1))
        kind = draw(st.integers(0, 5))
        if kind == 0:
            text = text[:at] + text[at + draw(st.integers(1, 12)) :]
        elif kind == 1:
            text = text[:at] + draw(st.sampled_from(TOKENS)) + text[at:]
        elif kind == 2:
            end = at + draw(st.integers(1, 12))
            text = text[:at] + draw(st.sampled_from(TOKENS)) + text[end:]
        elif kind == 3:
            lines = text.split("\n")
            i, j = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
            lines[i], lines[j] = lines[j], lines[i]
            text = "\n".join(lines)
        elif kind == 4:
            lines = text.split("\n")
            i = draw(st.integers(0, len(lines) - 1))
            text = "\n".join(lines[:i] + lines[i + 1 :])
        else:
            other = draw(st.integers(0, len(text) - 1))
            text = text[:at] + text[other : other + 30] + text[at:]
    return text


def outcome(text):
    """What text gives: IR, or the ParseError, which can be shown."""
    try:
        return from_source(text)
    except ParseError as error:
        str(error)
        return error


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated())
def test_mutated_scripts_give_ir_or_a_parse_error(text):
    assert isinstance(outcome(text), (IRModule, BaseFunc, ParseError))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated())
def test_many_mutated_scripts_give_ir_or_a_parse_error(text):
    assert isinstance(outcome(text), (IRModule, BaseFunc, ParseError))


def test_the_seeds_are_programs():
    for seed in SEEDS:
        assert isinstance(from_source(seed), (IRModule, BaseFunc))


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
