"""Rules of a user's own beside the default ones."""

import pytest

from relaxvm import te
from relaxvm.base import ScheduleError
from relaxvm.target.llvm.build import machine_of
from relaxvm.target.llvm.units import Settings
from relaxvm.tir.schedule import default_schedule
from relaxvm.tir.schedule.intrin import OWN_RULES, builtins_replaced
from relaxvm.tir.schedule.rules import block_rule
from relaxvm.tir.schedule.rules.default import BLOCK_RULES


@pytest.fixture
def rules():
    before = list(BLOCK_RULES)
    yield BLOCK_RULES
    BLOCK_RULES[:] = before
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
    count = len(rules)
    for _ in range(2):

        @block_rule(before="schedule_gather")
        def mine(sch, rv, cpu):
            return False

    assert len(rules) == count + 1
    names = [rule.__name__ for rule in rules]
    assert names.index("mine") == names.index("schedule_gather") - 1


def test_an_unknown_neighbour_is_refused_with_the_names(rules):
    with pytest.raises(ScheduleError, match=r"'schedule_gathr'; there are .*schedule_gather"):
        block_rule(before="schedule_gathr")


def test_kernels_made_with_rules_of_ones_own_stay_out_of_the_cache(rules):
    assert not builtins_replaced()
    assert Settings(machine_of()).key() is not None

    @block_rule()
    def mine(sch, rv, cpu):
        return False

    assert builtins_replaced()
    assert Settings(machine_of()).key() is None
