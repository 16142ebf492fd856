"""Every lowering pass keeps what random programs mean."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tir_strategies import programs

from relaxvm.ir import IRModule, PassContext
from relaxvm.tir import interpret
from relaxvm.tir.analysis import verify_well_formed
from relaxvm.tir.transform import LOWER_TIR, InstrumentBoundCheckers

SETTINGS = dict(
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)


def results(func, args):
    """The arrays after running `func` on copies of them."""
    given_args = copy.deepcopy(args)
    interpret(func, *given_args)
    return given_args


def assert_equal_bits(a, b):
    for x, y in zip(a, b):
        if isinstance(x, np.ndarray):
            same = (x == y) | ((x != x) & (y != y))
            assert same.all(), (x, y)


def check(program, args):
    """Run the pipeline pass by pass; after each the results are those of the program as written."""
    want = results(program.func, args)
    mod = IRModule({"main": program.func})
    for each in LOWER_TIR:
        if each.info.name == "InstrumentBoundCheckers":
            continue
        mod = each(mod)
        verify_well_formed(mod)
        try:
            assert_equal_bits(want, results(mod["main"], args))
        except AssertionError as error:
            raise AssertionError(f"after {each.info.name}: {error}") from None


@settings(max_examples=60, **SETTINGS)
@given(st.data())
def test_every_pass_keeps_the_meaning_of_a_random_program(data):
    program = data.draw(programs(inexact=False))
    check(program, program.arguments(data.draw))


@pytest.mark.slow
@settings(max_examples=2000, **SETTINGS)
@given(st.data())
def test_every_pass_keeps_the_meaning_of_many_random_programs(data):
    program = data.draw(programs(inexact=False))
    check(program, program.arguments(data.draw))


@settings(max_examples=30, **SETTINGS)
@given(st.data())
def test_passes_do_not_change_their_input(data):
    program = data.draw(programs(inexact=False))
    mod = IRModule({"main": program.func})
    for each in LOWER_TIR:
        before = mod["main"]
        after = each(mod)
        assert mod["main"] is before
        # Running a pass twice finds nothing more to do to a function that it left alone.
        if after["main"] is before:
            assert each(after)["main"] is before
        mod = after


def test_bound_checks_are_off_unless_asked_for():
    from tir_strategies import programs as _  # noqa: F401

    with PassContext(config={"tir.instrument_bound_checkers": False}):
        assert InstrumentBoundCheckers()(IRModule()).functions == {}
