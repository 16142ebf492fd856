"""Random programs run, stay inside their buffers, and mean the same after rewrites that must not
matter.
"""

from __future__ import annotations

import copy
import random

import hypothesis.strategies as st
import numpy as np
from fuzz.loop_programs import SCALARS, program, scalar_expr, value_of
from hypothesis import given, settings

from relaxvm import tir
from relaxvm.base import DataType
from relaxvm.tir import analysis

RANDOM = st.integers(0, 2**32).map(random.Random)


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
@given(RANDOM)
def test_random_programs_are_well_formed_and_run_in_bounds(rng):
    made = program(rng)
    assert analysis.verify_well_formed(made.func)
    assert analysis.verify_ssa(made.func)
    assert analysis.undefined_vars(made.func) == []
    assert analysis.find_out_of_bounds(made.func) == []
    tir.interpret(made.func, *made.arguments(rng))


@settings(max_examples=30)
@given(RANDOM)
def test_random_lowered_programs_run_in_bounds(rng):
    made = program(rng, lowered=True)
    assert analysis.verify_well_formed(made.func)
    tir.interpret(made.func, *made.arguments(rng))


@settings(max_examples=30)
@given(RANDOM)
def test_renamed_and_specialised_programs_mean_the_same(rng):
    made = program(rng)
    arguments = made.arguments(rng)
    expected = run(made.func, arguments)
    assert_same(expected, run(tir.renew_defs(made.func), arguments))
    fixed = {}
    for shape, dtype, p in zip(made.shapes, made.dtypes, made.func.params):
        if shape is not None:
            fixed[p] = tir.decl_buffer(
                tuple(tir.const(n, "int64") for n in shape), dtype, f"{p.name}_fixed"
            )
    specialised = made.func.specialize(fixed)
    assert analysis.verify_well_formed(specialised)
    assert_same(expected, run(specialised, arguments))


@settings(max_examples=30)
@given(RANDOM)
def test_declared_outputs_are_what_is_written(rng):
    made = program(rng)
    access = analysis.buffer_accesses(made.func)
    written = {b for b, how in access.items() if "w" in how}
    params = [made.func.buffer_map.get(p) for p in made.func.params]
    assert [i for i, b in enumerate(params) if b in written] == made.outputs
    arguments = made.arguments(rng)
    after = run(made.func, arguments)
    for i, (x, y) in enumerate(zip(arguments, after)):
        if i not in made.outputs and isinstance(x, np.ndarray):
            np.testing.assert_array_equal(x, y)


VARIABLES = [tir.Var(f"x_{d}", d) for d in SCALARS]


@settings(max_examples=150)
@given(RANDOM)
def test_random_expressions_have_a_value_of_their_dtype(rng):
    expr = scalar_expr(rng, variables=VARIABLES, depth=5)
    env = {v: value_of(rng, v.dtype) for v in VARIABLES}
    value = tir.evaluate_expr(expr, env)
    numpy_name = {"bfloat16": "float32"}.get(expr.dtype, str(expr.dtype))
    assert value.dtype == np.dtype(numpy_name)
    assert value.shape == ()


@settings(max_examples=60)
@given(RANDOM)
def test_the_value_of_a_let_is_that_of_its_body_with_the_value_put_in(rng):
    expr = scalar_expr(rng, variables=VARIABLES, depth=4)
    env = {v: value_of(rng, v.dtype) for v in VARIABLES}
    var = rng.choice(VARIABLES)
    fresh = tir.Var("fresh", var.dtype)
    body = tir.substitute(expr, {var: fresh})
    a = tir.evaluate_expr(tir.Let(fresh, var, body), env)
    b = tir.evaluate_expr(expr, env)
    np.testing.assert_array_equal(a, b)


def test_every_dtype_can_be_drawn():
    assert {DataType(d) for d in SCALARS} >= {DataType("bfloat16"), DataType("uint64")}
