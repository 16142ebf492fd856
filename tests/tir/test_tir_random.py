"""Random programs run, stay inside their buffers, and mean the same after rewrites that must not
matter.
"""

from __future__ import annotations

import copy

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from tir_strategies import SCALARS, programs, scalar_exprs, values_of

from relaxvm import tir
from relaxvm.base import DataType
from relaxvm.tir import analysis


def run(func, arguments):
    """Copies of the arguments after the call."""
    copies = copy.deepcopy(arguments)
    tir.interpret(func, *copies)
    return copies


def assert_same(a, b):
    for x, y in zip(a, b):
        if isinstance(x, np.ndarray):
            np.testing.assert_array_equal(x, y)


@settings(max_examples=60)
@given(programs(), st.data())
def test_random_programs_are_well_formed_and_run_in_bounds(program, data):
    assert analysis.verify_well_formed(program.func)
    assert analysis.verify_ssa(program.func)
    assert analysis.undefined_vars(program.func) == []
    assert analysis.find_out_of_bounds(program.func) == []
    tir.interpret(program.func, *program.arguments(data.draw))


@settings(max_examples=30)
@given(programs(lowered=True), st.data())
def test_random_lowered_programs_run_in_bounds(program, data):
    assert analysis.verify_well_formed(program.func)
    tir.interpret(program.func, *program.arguments(data.draw))


@settings(max_examples=30)
@given(programs(), st.data())
def test_renamed_and_specialised_programs_mean_the_same(program, data):
    arguments = program.arguments(data.draw)
    expected = run(program.func, arguments)
    assert_same(expected, run(tir.renew_defs(program.func), arguments))
    fixed = {}
    for shape, dtype, p in zip(program.shapes, program.dtypes, program.func.params):
        if shape is not None:
            fixed[p] = tir.decl_buffer(
                tuple(tir.const(n, "int64") for n in shape), dtype, f"{p.name}_fixed"
            )
    specialised = program.func.specialize(fixed)
    assert analysis.verify_well_formed(specialised)
    assert_same(expected, run(specialised, arguments))


@settings(max_examples=30)
@given(programs(), st.data())
def test_declared_outputs_are_what_is_written(program, data):
    access = analysis.buffer_accesses(program.func)
    written = {b for b, how in access.items() if "w" in how}
    params = [program.func.buffer_map.get(p) for p in program.func.params]
    assert [i for i, b in enumerate(params) if b in written] == program.outputs
    arguments = program.arguments(data.draw)
    after = run(program.func, arguments)
    for i, (x, y) in enumerate(zip(arguments, after)):
        if i not in program.outputs and isinstance(x, np.ndarray):
            np.testing.assert_array_equal(x, y)


VARIABLES = [tir.Var(f"x_{d}", d) for d in SCALARS]


@settings(max_examples=150)
@given(scalar_exprs(variables=VARIABLES, depth=5), st.data())
def test_random_expressions_have_a_value_of_their_dtype(expr, data):
    env = {v: data.draw(values_of(v.dtype)) for v in VARIABLES}
    value = tir.evaluate_expr(expr, env)
    numpy_name = {"bfloat16": "float32"}.get(expr.dtype, str(expr.dtype))
    assert value.dtype == np.dtype(numpy_name)
    assert value.shape == ()


@settings(max_examples=60)
@given(scalar_exprs(variables=VARIABLES, depth=4), st.data())
def test_the_value_of_a_let_is_that_of_its_body_with_the_value_put_in(expr, data):
    env = {v: data.draw(values_of(v.dtype)) for v in VARIABLES}
    var = data.draw(st.sampled_from(VARIABLES))
    fresh = tir.Var("fresh", var.dtype)
    body = tir.substitute(expr, {var: fresh})
    a = tir.evaluate_expr(tir.Let(fresh, var, body), env)
    b = tir.evaluate_expr(expr, env)
    np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@settings(max_examples=1500)
@given(programs(), st.data())
def test_many_random_programs_run_in_bounds(program, data):
    assert analysis.verify_well_formed(program.func)
    tir.interpret(program.func, *program.arguments(data.draw))


def test_every_dtype_can_be_drawn():
    assert {DataType(d) for d in SCALARS} >= {DataType("bfloat16"), DataType("uint64")}
