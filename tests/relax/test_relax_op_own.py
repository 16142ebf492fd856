"""Operators that somebody defines outside of the package."""

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import StructInfoError
from relaxvm.ir import Op, assert_structural_equal
from relaxvm.relax.op.infer import NUMBER, tensor
from relaxvm.relax.op.record import missing, op
from relaxvm.script import from_source

NONE = missing("none in this test")


def text_with(name):
    return f"""
@R.function
def main(x: R.Tensor((2,), "float32")):
    with R.dataflow():
        y = R.{name}(x)
        R.output(y)
    return y
"""


@pytest.fixture
def forget():
    before = dict(Op._table)
    names = set(vars(relax.op))
    yield
    for name in set(Op._table) - set(before):
        del Op._table[name]
    for name in set(vars(relax.op)) - names:
        delattr(relax.op, name)


@pytest.mark.parametrize("name", ["plus_one_of_a_test", "of_a_test.plus_one", "nn.own_of_a_test"])
def test_text_with_an_operator_of_ones_own_reads_back_equal(forget, name):
    @op(name, numpy=lambda x: x + 1, lower=NONE, grad=NONE, layout=NONE)
    def own(x: relax.Expr) -> relax.StructInfo:
        """x + 1"""
        return tensor(x, "x", NUMBER)

    fn = from_source(text_with(name))
    assert f"R.{name}(x)" in fn.script()
    assert_structural_equal(from_source(fn.script()), fn)
    assert Op.get(f"relax.{name}").numpy(np.float32(1)) == 2


@pytest.mark.parametrize("name", ["lower", "add.one_more", "nn.conv.mine", "of.a_test.mine"])
def test_a_name_where_something_else_stands_is_refused(forget, name):
    with pytest.raises(StructInfoError, match="is something else; wanted a free name"):

        @op(name, numpy=NONE, lower=NONE, grad=NONE, layout=NONE)
        def own(x: relax.Expr) -> relax.StructInfo:
            """x"""
            return tensor(x, "x", NUMBER)

    assert Op._table.get(f"relax.{name}") is None
