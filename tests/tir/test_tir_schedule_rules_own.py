"""Rules of a user's own beside the default ones."""

import pytest

from relaxvm import te
from relaxvm.base import ScheduleError
from relaxvm.target.llvm.build import machine_of
from relaxvm.target.llvm.units import Settings
from relaxvm.tir.schedule import default_schedule
from relaxvm.tir.schedule.plans import OWN_BLOCK_RULES, block_rule
from relaxvm.tir.schedule.primitives.intrin import OWN_RULES, builtins_replaced


@pytest.fixture
def rules():
    yield OWN_BLOCK_RULES
    OWN_BLOCK_RULES.clear()
    OWN_RULES.clear()


def doubled():
    a = te.placeholder((12, 34), name="A")
    return te.create_prim_func([a, te.compute((12, 34), lambda i, j: a[i, j] * 2.0, name="B")])


def test_a_rule_of_ones_own_is_tried_first(rules):
    @block_rule()
    def unrolled(sch, rv, cpu):
        sch.unroll(sch.get_loops(rv)[0])
        return True

    assert "T.unroll" in default_schedule(doubled(), "llvm").script()


def test_what_a_refusing_rule_did_is_forgotten(rules):
    plain = default_schedule(doubled(), "llvm").script()

    @block_rule()
    def half(sch, rv, cpu):
        sch.unroll(sch.get_loops(rv)[0])
        return False

    @block_rule()
    def refused(sch, rv, cpu):
        sch.unroll(sch.get_loops(rv)[0])
        sch.get_block("no such block")

    assert default_schedule(doubled(), "llvm").script() == plain


def test_a_rule_of_the_same_name_takes_the_place_of_the_older(rules):
    for place in ("Gather", "Tile"):

        @block_rule(before=place)
        def mine(sch, rv, cpu):
            return False

    assert rules == [("Tile", mine)]


@pytest.mark.parametrize(("before", "calls"), [(None, 1), ("Elementwise", 1), ("Gather", 1)])
def test_a_rule_before_a_plan_is_asked_once_about_every_block(rules, before, calls):
    asked = []

    @block_rule(before=before)
    def mine(sch, rv, cpu):
        asked.append(sch.get(rv).name_hint)
        return False

    default_schedule(doubled(), "llvm")
    assert asked == ["B"] * calls


def test_an_unknown_neighbour_is_refused_with_the_names(rules):
    with pytest.raises(ScheduleError, match=r"'Gathr'; did you mean Gather\?; there are .*Tile"):
        block_rule(before="Gathr")


def test_kernels_made_with_rules_of_ones_own_stay_out_of_the_cache(rules):
    assert not builtins_replaced()
    assert Settings(machine_of()).key() is not None

    @block_rule()
    def mine(sch, rv, cpu):
        return False

    assert builtins_replaced()
    assert Settings(machine_of()).key() is None
