"""The node machinery: slots, interning, children, map_children, walk."""

import gc
from typing import Annotated, TypeVar

import pytest

from relaxvm.ir import (
    Add,
    FloatImm,
    Map,
    Node,
    PrimExpr,
    Substitution,
    Var,
    children,
    const,
    map_children,
    node,
    post_order,
    substitute,
    walk,
)
from relaxvm.ir.node import _interned
from relaxvm.ir.walk import transform
from relaxvm.tir import BufferLoad, decl_buffer


def test_equal_scalar_expressions_are_identical():
    x = Var("x")
    assert (x + 1) * 2 is (x + 1) * 2
    assert Var("x") is not Var("x")


def test_interning_tells_zero_from_minus_zero_and_one_from_true():
    assert FloatImm("float32", 0.0) is not FloatImm("float32", -0.0)
    assert const(1) is not const(True)
    assert FloatImm("float64", float("nan")) is FloatImm("float64", float("nan"))


def test_interned_nodes_are_forgotten_when_unused():
    before = len(_interned)
    keep = [Var(f"v{i}") + i + 1000 for i in range(1000)]
    assert len(_interned) >= before + 1000
    del keep
    gc.collect()
    assert Var("w") + 123456 is not None  # what is gone leaves when another comes
    assert len(_interned) <= before + 5


def test_nodes_have_slots_and_refuse_assignment():
    x = Var("x")
    assert not hasattr(x, "__dict__")
    with pytest.raises(AttributeError, match="immutable"):
        x.name = "y"
    with pytest.raises(AttributeError, match="immutable"):
        del x.name
    assert not hasattr(x + 1, "__dict__")


def test_map_children_keeps_identity_when_nothing_changes():
    e = Var("x") + 1
    assert map_children(e, lambda c: c) is e
    assert list(children(e)) == [e.a, e.b]


def test_replace_keeps_identity_and_names_unknown_fields():
    x = Var("x")
    assert x.replace(name=x.name) is x
    assert x.replace(name="y").name == "y"
    with pytest.raises(TypeError, match="no field"):
        x.replace(nme="y")


def test_a_map_is_immutable_ordered_and_freezes_lists():
    m = Map({"b": [1, [2]], "a": {"c": 1}})
    assert m["b"] == (1, (2,))
    assert list(m) == ["b", "a"]
    assert m.a.c == 1
    assert m.without("z") is m
    assert "a" not in m.without("a")
    with pytest.raises(AttributeError):
        m.x = 1
    with pytest.raises(AttributeError, match="there are: b, a"):
        _ = m.zz


def test_walks_visit_shared_nodes_once_and_do_not_recurse():
    x = Var("x")
    e = x
    for _ in range(60):
        e = e + e  # 2**60 paths
    assert sum(1 for _ in walk(e)) == 61
    assert next(iter(post_order(e))) is x
    deep = x
    for i in range(20000):
        deep = Add(deep, Var(f"y{i}"))
    assert sum(1 for _ in walk(deep)) == 40001
    assert substitute(deep, {x: const(1)}) is not deep


def test_one_substitution_keeps_what_several_roots_share():
    x, y = Var("x"), Var("y")
    buffer = decl_buffer((x,), "float32", "A")
    put = Substitution({x: y})
    first, second = (put(BufferLoad(buffer, (i,))) for i in (x, const(0)))
    assert first.buffer is second.buffer is put(buffer) and first.buffer.shape == (y,)
    assert put(x) is y and put(y + 1) is y + 1
    assert Substitution({})(first) is first


def test_a_rewrite_of_some_classes_is_asked_about_no_others():
    x, y = Var("x"), Var("y")
    e, asked = (x + 1) * (y + 2), []

    def post(n):
        asked.append(type(n))
        return n.a if type(n) is Add else None

    assert transform(e, post, lambda n: y if n is x else None, only=frozenset({Add, Var})) is y * y
    assert asked == [Add, Var, Add]  # `x` was replaced before


def test_children_search_tuples_and_maps():
    @node(key="test.Holder")
    class Holder(Node):
        items: tuple[Node, ...]
        attrs: Map

    x, y = Var("x"), Var("y")
    h = Holder((x,), Map({"k": (1, y)}))
    assert children(h) == [x, y]
    changed = substitute(h, {y: x})
    assert changed.attrs["k"][1] is x
    assert substitute(h, {Var("z"): x}) is h


Size = int
Parts = tuple[PrimExpr, ...]
Either = TypeVar("Either", PrimExpr, int)


@node
class Spelled(Node):
    size: Size
    parts: Parts
    either: Either
    noted: Annotated[PrimExpr, "a note"]
    plain: PrimExpr | None


def test_what_a_field_holds_is_found_whatever_its_annotation_is_called():
    x, y = Var("x"), Var("y")
    spelled = Spelled(3, (x, y), 4, x, None)
    assert children(spelled) == [x, y, x]
    assert map_children(spelled, lambda n: y).parts == (y, y)
    assert map_children(spelled, lambda n: n) is spelled
    assert children(Spelled(3, (), y, x, y)) == [y, x, y]


def test_sequences_are_equal_to_lists_by_either_way_of_reading():
    attrs = Map(strides=[2, 2], names=("a",))
    assert attrs["strides"] == [2, 2] == attrs.strides
    assert attrs.get("strides") == (2, 2) and attrs["strides"] != [2, 1]
    assert {type(v) for v in attrs.values()} == {type(v) for _, v in attrs.items()} == {tuple}
