"""Attributes of operations under TVM's names: the record answers, users add."""

import pytest

from relaxvm.base import TIRError
from relaxvm.ir import (
    FuncType,
    Map,
    Op,
    PrimType,
    TupleType,
    make_node,
    register_op_attr,
    structural_equal,
)


def test_the_record_answers():
    add = Op.get("relax.add")
    assert "relax.add" in Op.list_op_names()
    assert add.get_attr("FPurity") is True
    assert add.has_attr("FLegalize") and add.has_attr("FInferStructInfo")
    assert not add.has_attr("no such attribute")
    assert Op.get("tir.exp").get_attr("TCallEffectKind") == "pure"
    assert Op.get("tir.exp").get_attr("FLegalize") is None


def test_users_set_attributes_of_their_own():
    exp = Op.get("tir.exp")
    exp.set_attr("mine", 3)
    assert exp.get_attr("mine") == 3
    exp.reset_attr("mine")
    assert not exp.has_attr("mine")
    register_op_attr("tir.exp", "mine", "text")
    assert exp.get_attr("mine") == "text"
    exp.reset_attr("mine")

    @register_op_attr("tir.exp", "mine")
    def rule():
        return 5

    assert exp.get_attr("mine") is rule
    exp.reset_attr("mine")
    with pytest.raises(TIRError, match="no operation is named"):
        register_op_attr("tir.no_such_op", "mine", 1)


def test_types_of_tuples_and_functions():
    i = PrimType("int32")
    assert TupleType([i, i]) is TupleType((i, i))
    assert FuncType([i], TupleType([])).ret_type is TupleType(())
    assert not structural_equal(FuncType([i], i), FuncType([], i))


def test_operators_tell_how_many_arguments_they_take():
    counts = {n: Op.get(n).num_inputs for n in ("relax.add", "relax.concat", "tir.exp", "tir.pow")}
    assert counts == {"relax.add": 2, "relax.concat": 1, "tir.exp": 1, "tir.pow": 2}
    assert Op.get("tir.call_extern").num_inputs == -1


def test_attributes_are_made_by_tvms_name():
    attrs = make_node("ir.DictAttrs", name="a", axes=[1, 2])
    assert isinstance(attrs, Map) and attrs.name == "a" and attrs["axes"] == [1, 2]
