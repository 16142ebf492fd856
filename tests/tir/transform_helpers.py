"""Shared by the tests of lowering passes: text in, text out."""

from __future__ import annotations

from relaxvm.ir import IRModule, assert_structural_equal
from relaxvm.script import from_source

HEAD = "# from relaxvm.script import tir as T\n@T.prim_func\n"


def parse(text):
    """A function of script text without its decorator."""
    return from_source(HEAD + text)


def check(pass_, before, after):
    """`pass_` makes `after` of `before`; both are script texts of one function (or `after` is
    `before`).
    """
    fn = parse(before)
    mod = IRModule({"main": fn})
    result = pass_(mod)
    if after is before:
        assert result is mod, result["main"].script()
        return
    want = parse(after)
    try:
        assert_structural_equal(result["main"], want)
    except Exception as error:
        raise AssertionError(f"{error}\n\n{result['main'].script()}") from None
    assert mod["main"] is fn
