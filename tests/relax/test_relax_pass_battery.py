"""Each graph pass alone, and any of them in any order, change nothing but the form."""

import random

import numpy as np
import pytest
from graph_eval import evaluate
from graph_programs import SIZES, inputs, program
from hypothesis import given, settings
from hypothesis import strategies as st
from relax_vm_helpers import build_interpreted, value

from relaxvm.relax import transform
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.script import from_source

PASSES = {
    p.info.name + ("(call_only)" if p.options else ""): p
    for p in (
        transform.CanonicalizeBindings(),
        transform.DeadCodeElimination(),
        transform.EliminateCommonSubexpr(),
        transform.EliminateCommonSubexpr(call_only=True),
        transform.ExpandTupleArguments(),
        transform.FoldConstant(),
        transform.InlinePrivateFunctions(),
        transform.LambdaLift(),
        transform.Normalize(),
        transform.RemoveUnusedOutputs(),
        transform.RemoveUnusedParameters(),
        transform.ToNonDataflow(),
    )
}
# What a second run right after the first finds nothing to do for.
SETTLED = ("DeadCodeElimination", "LambdaLift", "Normalize", "ToNonDataflow")


def flat(x):
    return [leaf for item in x for leaf in flat(item)] if isinstance(x, tuple) else [x]


def meaning(mod, seed, symbolic):
    """Results and prints for a few inputs."""
    found = []
    for size in SIZES if symbolic else (3,):
        result, printed = evaluate(mod, *inputs(seed, size))
        found.append(
            ([(a.dtype, a.shape, a.tolist()) for a in map(np.asarray, flat(result))], printed)
        )
    return found


def check(seed, names, size=12):
    """Run the passes `names` in turn on a random module and compare what it means."""
    text = program(seed, size)
    symbolic = '"n"' in text
    mod = from_source(text)
    assert_well_formed(mod)
    wanted = meaning(mod, seed, symbolic)
    for name in names:
        made = PASSES[name](mod)
        where = f"{text}\nseed {seed}, after {name} of {names}:\n"
        try:
            assert_well_formed(made)
            assert meaning(made, seed, symbolic) == wanted
        except Exception as error:
            error.add_note(where + made.script())
            raise
        if name in SETTLED:
            assert PASSES[name](made) is made, where
        mod = made
    return mod


@pytest.mark.parametrize("name", PASSES)
@settings(max_examples=12)
@given(seed=st.integers(0, 2**32))
def test_a_pass_alone_changes_nothing_but_the_form(name, seed):
    check(seed, [name])


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_passes_in_any_order_change_nothing_but_the_form(seed):
    rng = random.Random(seed)
    check(seed, rng.choices(list(PASSES), k=rng.randint(2, 6)))


@settings(max_examples=6)
@given(seed=st.integers(0, 2**32))
def test_the_machine_gives_the_same_whatever_passes_run(seed):
    rng = random.Random(seed)
    text = program(seed, 8)
    mod = from_source(text)
    args = inputs(seed, 3)
    wanted, _ = evaluate(mod, *args)
    names = [n for n in PASSES if n not in ("LambdaLift", "Normalize", "ToNonDataflow")]
    for level in (0, 3):
        disabled = [n for n in names if rng.random() < 0.4]
        vm = build_interpreted(mod, None, {"opt_level": level, "disabled_pass": disabled})
        got = value(vm["main"](*args))
        for a, b in zip(flat(got), flat(wanted), strict=True):
            assert np.array_equal(a, b), (text, level, disabled)


@pytest.mark.slow
@settings(max_examples=1500)
@given(seed=st.integers(0, 2**32))
def test_many_passes_in_any_order_change_nothing_but_the_form(seed):
    rng = random.Random(seed)
    check(seed, rng.choices(list(PASSES), k=rng.randint(1, 8)), size=rng.choice((4, 12, 40)))


@pytest.mark.slow
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_many_programs_give_the_same_on_the_machine_whatever_passes_run(seed):
    test_the_machine_gives_the_same_whatever_passes_run.hypothesis.inner_test(seed)
