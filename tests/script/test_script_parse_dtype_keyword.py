"""``T.exp(x, dtype="float32")``: the dtype of a result, as scripts of older releases name it."""

import pytest

from relaxvm.base import ParseError
from relaxvm.ir import assert_structural_equal
from relaxvm.script import from_source

TEXT = """
@T.prim_func
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "int32")):
    A[0] = {value}
"""
SAME = [
    ('T.exp(A[1], dtype="float32")', "T.exp(A[1])"),
    ('T.if_then_else(B[0] < 2, A[1], T.float32(0), dtype="float32")',
     "T.if_then_else(B[0] < 2, A[1], T.float32(0))"),
    ('T.reinterpret(B[0], dtype="float32")', 'T.reinterpret("float32", B[0])'),
    ('T.call_extern("g", A[1], dtype="float32")', 'T.call_extern("float32", "g", A[1])'),
    ('T.max_value(dtype="float32")', 'T.max_value("float32")'),
    ("T.sqrt(A[1], dtype=T.float32)", "T.sqrt(A[1])"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), SAME)
def test_naming_the_dtype_of_the_result_changes_nothing(old, new):
    assert_structural_equal(
        from_source(TEXT.format(value=old)), from_source(TEXT.format(value=new))
    )


def test_a_dtype_that_the_result_does_not_have_is_refused():
    with pytest.raises(ParseError, match="this is float32, not int32") as caught:
        from_source(TEXT.format(value='T.exp(A[1], dtype="int32")'))
    assert caught.value.lineno == 4


def test_what_is_no_dtype_is_refused_at_its_place():
    with pytest.raises(ParseError) as caught:
        from_source(TEXT.format(value='T.exp(A[1], dtype="integer")'))
    assert caught.value.lineno == 4
