"""Random legal schedules of random kernels leave what they compute as it was."""

import numpy as np
import pytest
from schedule_helpers import KERNELS, STEPS, by_machine, check_same, random_schedule

from relaxvm.ir import assert_structural_equal
from relaxvm.tir import Schedule
from relaxvm.tir.analysis import verify_well_formed
from relaxvm.tir.schedule import PRIMITIVES


def one(seed, run=None, steps=8):
    rng = np.random.default_rng(seed)
    name = str(rng.choice(list(KERNELS)))
    fn = KERNELS[name]()
    sch, done = random_schedule(fn, rng, steps)
    after = sch.mod["main"]
    where = f"seed {seed}, kernel {name}, steps {[d for d in done if not d.startswith('#')]}"
    try:
        verify_well_formed(after)
        check_same(fn, after, name, seed, run)
    except Exception as error:
        error.add_note(f"{where}\n{sch.trace}\n{after}")
        raise
    again = Schedule(fn)
    again.trace.apply_json_to_schedule(sch.trace.as_json(), again)
    assert_structural_equal(again.mod["main"], after)
    return done


@pytest.mark.parametrize("block", range(4))
def test_random_schedules_keep_the_meaning(block):
    for seed in range(block * 8, block * 8 + 8):
        one(seed)


def test_random_schedules_keep_the_meaning_in_machine_code():
    for seed in range(2000, 2004):
        one(seed, by_machine)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_many_random_schedules_keep_the_meaning(block):
    for seed in range(10_000 + block * 50, 10_000 + block * 50 + 50):
        one(seed, steps=12)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_many_random_schedules_keep_the_meaning_in_machine_code(block):
    for seed in range(20_000 + block * 20, 20_000 + block * 20 + 20):
        one(seed, by_machine)


def test_every_step_is_accepted_somewhere():
    """The battery reaches each primitive: none of them is only ever refused."""
    accepted, used = set(), set()
    for seed in range(30_000, 30_200):
        rng = np.random.default_rng(seed)
        fn = KERNELS[str(rng.choice(list(KERNELS)))]()
        missing = [s for s in STEPS if s not in accepted]
        if not missing:
            break
        sch, done = random_schedule(fn, rng, 3, tuple(missing))
        accepted |= {d for d in done if not d.startswith("#")}
        used |= {inst.name for inst in sch.trace.insts}
    assert set(STEPS) - accepted == set()
    # Those that some steps choose among are met later; what is never met is in no step.
    for seed in range(31_000, 31_200):
        if not set(PRIMITIVES) - used:
            break
        rng = np.random.default_rng(seed)
        steps = ("mark", "reindex_cache", "sampled_split", "transform_layout")
        sch, _ = random_schedule(KERNELS["matmul"](), rng, 4, steps)
        sch.get_output_blocks("root")
        used |= {inst.name for inst in sch.trace.insts}
    assert set(PRIMITIVES) - used == set()
