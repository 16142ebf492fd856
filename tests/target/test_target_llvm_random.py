"""Machine code against the interpreter on random programs."""

from __future__ import annotations

import copy
import pathlib
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from target_helpers import as_argument, assert_same

from relaxvm.ir import IRModule
from relaxvm.runtime import Module, NDArray
from relaxvm.target import compile_prim_funcs, rebuild_kernels
from relaxvm.tir import interpret

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tir"))
from tir_strategies import programs

SETTINGS = dict(
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)


def run_native(program, args, rebuilt):
    """The arrays after the kernel, compiled here or rebuilt from its portable form, ran on copies
    of them.
    """
    section = compile_prim_funcs(IRModule({"main": program.func}))
    if rebuilt:
        section = rebuild_kernels(section.portable, section.names)
    module = Module(section, trusted=True)
    kept = copy.deepcopy(args)
    given_args = [
        as_argument(a, str(d)) if isinstance(a, np.ndarray) else a
        for a, d in zip(kept, program.dtypes)
    ]
    module["main"](*given_args)
    return [g._array if isinstance(g, NDArray) else g for g in given_args]


def check(program, args, rebuilt=False):
    want = copy.deepcopy(args)
    interpret(program.func, *want)
    got = run_native(program, args, rebuilt)
    where = f"of\n{program.func.script()}\non {args}"
    for i, (x, y) in enumerate(zip(got, want)):
        if isinstance(y, np.ndarray):
            name = f"argument {i} {where}"
            assert_same(x.reshape(-1), y.reshape(-1), str(program.dtypes[i]), 0, name)


@settings(max_examples=60, **SETTINGS)
@given(st.data())
def test_machine_code_does_what_the_interpreter_does(data):
    program = data.draw(programs(inexact=False))
    check(program, program.arguments(data.draw))


@settings(max_examples=30, **SETTINGS)
@given(st.data())
def test_rebuilt_code_with_bound_checks_does_the_same(data):
    program = data.draw(programs(inexact=False))
    check(program, program.arguments(data.draw), rebuilt=True)


@pytest.mark.slow
@settings(max_examples=3000, **SETTINGS)
@given(st.data())
def test_machine_code_does_what_the_interpreter_does_on_many_programs(data):
    program = data.draw(programs(inexact=False))
    check(program, program.arguments(data.draw), rebuilt=data.draw(st.booleans()))
