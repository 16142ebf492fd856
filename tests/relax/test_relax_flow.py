"""What values read, functions as a row of events, and functions rebuilt binding by binding."""

import pytest

from relaxvm import relax
from relaxvm.base import NameSupply, callees_first, reachable
from relaxvm.relax import BindingBlock, Call, DataflowBlock, If, SeqExpr, Tuple, TupleGetItem, Var
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.flow import (
    bindings_of,
    events,
    is_symbolic,
    leaves,
    map_leaves,
    operands,
    releases,
    vars_in,
)
from relaxvm.relax.rewriter import BindingRewriter
from relaxvm.script import from_source
from relaxvm.tir import Var as Symbol

VEC = relax.TensorStructInfo((4,), "float32")
X, Y, C = Var("x", VEC), Var("y", VEC), Var("c", relax.TensorStructInfo((), "bool"))


def main_function():
    return from_source(
        """
@I.ir_module
class Module:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
        a = R.exp(x)
        @R.function
        def inner(z: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            d = R.add(z, a)
            return d
        if c:
            t = R.sin(a)
            r = t
        else:
            r = R.add(x, x)
        out = inner(r)
        return out
"""
    )["main"]


def names(row):
    """The events as text: kind, and the variable bound or read there."""
    return [
        f"{e.kind.value} {getattr(getattr(e.node, 'var', e.node), 'name_hint', '')}".strip()
        for e in row
    ]


def test_operands_are_what_evaluation_reads():
    call = relax.op.add(X, Y)
    assert operands(call) == (call.op, X, Y)
    assert operands(Tuple((X, Y))) == (X, Y)
    assert operands(If(C, X, Y)) == (C,)
    assert operands(X) == ()


def test_leaves_of_nested_tuples_come_in_order_and_as_often_as_they_stand():
    pair = Tuple((X, Tuple((Y, X))))
    assert list(leaves(pair)) == [X, Y, X]
    assert list(leaves(TupleGetItem(pair, 1))) == [X, Y, X]
    assert vars_in(relax.op.add(X, X)) == [X, X]
    assert vars_in(X) == [X]


def test_leaves_are_replaced_below_tuples_and_unchanged_values_stay():
    value = Tuple((X, Tuple((X, Y))))
    assert map_leaves(value, lambda leaf: leaf) is value
    swapped = map_leaves(value, lambda leaf: Y if leaf is X else leaf)
    assert list(leaves(swapped)) == [Y, Y, Y]


def test_a_shape_with_a_symbol_is_symbolic_wherever_it_stands():
    shape = relax.ShapeExpr((Symbol("n", "int64"), 4))
    assert is_symbolic(Tuple((X, Tuple((shape,)))))
    assert not is_symbolic(relax.op.zeros((2, 3), "float32"))


def test_events_leave_inner_functions_closed():
    assert names(events(main_function())) == [
        "bind a",
        "bind inner",
        "open r",
        "enter",
        "bind t",
        "result t",
        "enter",
        "bind r",
        "result r",
        "close r",
        "bind out",
        "result out",
    ]


def test_events_of_inner_functions_come_between_open_and_close():
    row = names(events(main_function(), inner=True))
    start = row.index("open inner")
    assert row[start : start + 5] == ["open inner", "enter", "bind d", "result d", "close inner"]


def test_bindings_come_after_those_inside_of_them():
    order = [b.var.name_hint for b in bindings_of(main_function())]
    assert order.index("d") < order.index("inner")
    assert order.index("t") < order.index("r")


def test_what_a_branch_reads_last_is_released_where_the_branches_end():
    row = events(main_function())
    last_use = {v: i for i, e in enumerate(row) for v in e.reads()}
    released = releases(row, last_use)
    by_name = {v.name_hint: names(row)[at] for at, dead in released.items() for v in dead}
    assert by_name["a"] == "close r"
    assert by_name["r"] == "bind out"
    assert "x" not in by_name  # a parameter


class _Splitting(BindingRewriter):
    """Puts a dataflow block after each call."""

    def binding(self, b):
        if not isinstance(b.value, Call):
            return None
        local = relax.DataflowVar("local", VEC)
        out = Var("flow", VEC)
        block = DataflowBlock([relax.VarBinding(local, X), relax.VarBinding(out, local)])
        return [b, block]


def test_a_block_given_for_a_binding_splits_the_block_around_it():
    first, second = Var("first", VEC), Var("second", VEC)
    bindings = [
        relax.VarBinding(first, relax.op.exp(X)),
        relax.VarBinding(second, first),
    ]
    fn = relax.Function([X], SeqExpr([BindingBlock(bindings)], second))
    made = _Splitting().rewrite(fn)
    assert_well_formed(made)
    kinds = [(type(b), len(b.bindings)) for b in made.body.blocks]
    assert kinds == [(BindingBlock, 1), (DataflowBlock, 2), (BindingBlock, 1)]


@pytest.mark.parametrize(
    ("joint", "wanted"),
    [("", ["a", "a1", "a2", "b1", "b1_1"]), ("_", ["a", "a_1", "a_2", "b1", "b1_1"])],
)
def test_names_are_given_once(joint, wanted):
    supply = NameSupply(joint=joint)
    assert [supply.fresh(hint) for hint in ("a", "a", "a", "b1", "b1")] == wanted


def test_names_in_use_are_not_given():
    supply = NameSupply(lambda: ["a", "a1"])
    supply.reserve("a2")
    assert supply.fresh("a") == "a3"


def test_callees_come_first_and_circles_do_not_hang():
    calls = {"main": ["f", "g"], "f": ["g"], "g": [], "p": ["q"], "q": ["p"]}
    order = callees_first(calls, calls)
    assert order.index("g") < order.index("f") < order.index("main")
    assert sorted(order) == sorted(calls)


def test_what_is_reachable_is_found_once_in_order():
    graph = {1: [2, 3], 2: [3, 1], 3: [], 4: [1]}
    assert list(reachable([1], graph.__getitem__)) == [1, 2, 3]
