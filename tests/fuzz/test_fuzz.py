"""Random cases of every kind: a few in this process, many in children (see `fuzz.runner`)."""

import random

import pytest
from schedule_helpers import KERNELS

from fuzz import graphs, loops, passes, runner
from fuzz.layer_models import layer_model
from fuzz.schedule_steps import STEPS, random_schedule
from relaxvm.ir import descend
from relaxvm.tir.schedule import PRIMITIVES
from relaxvm.tir.schedule.model.state import State
from relaxvm.tir.stmt import For, statements_below

pytestmark = pytest.mark.filterwarnings("ignore::SyntaxWarning")


COUNTS = {
    "graphs": 8, "passes": 8, "loops": 50, "texts": 300, "files": 400, "values": 800, "calls": 3,
    "onnx_models": 20,
}  # fmt: skip


@pytest.mark.parametrize("kind", COUNTS)
def test_a_few_random_cases(kind, tmp_path):
    if kind == "onnx_models":
        pytest.importorskip("onnx", reason="models are made by the package onnx")
    if kind == "values":
        # They register operators and functions, which other tests in this process would meet.
        done = runner.session(kind, 1, COUNTS[kind], 300, tmp_path)
        assert not done.found
        assert done.cases - done.refused > COUNTS[kind] // 10
        return
    answered = runner.run_here(kind, 1, COUNTS[kind])
    assert answered > COUNTS[kind] // 10


MANY = {
    "graphs": 300, "passes": 600, "loops": 1200, "texts": 8000, "files": 5000, "values": 15_000,
    "calls": 50, "onnx_models": 500,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", runner.KINDS)
def test_many_random_cases(kind, tmp_path):
    if kind == "onnx_models":
        pytest.importorskip("onnx", reason="models are made by the package onnx")
    done = runner.session(kind, 1000, MANY[kind], 900, tmp_path)
    for found in done.found:
        pytest.fail(f"{done}\n{found.path.read_text()}")
    assert done.refused < done.cases
    assert done.grown_kib < runner.GROWTH_KIB


@pytest.mark.parametrize("name", graphs.PASSES)
def test_a_pass_alone_changes_nothing_but_the_form(name):
    for number in range(4):
        case = graphs.make(random.Random(f"{name} {number}"))
        graphs.check({**case, "passes": [] if case["language"] else [name], "ways": []})


def test_every_rewrite_has_something_to_do_in_random_layers():
    left = dict(passes.REWRITES)
    for seed in range(200):
        mod = layer_model(random.Random(seed))
        left = {name: p for name, p in left.items() if p(mod) is mod}
        if not left:
            break
    assert not left


def test_every_step_is_accepted_somewhere():
    """The battery reaches each primitive: none of them is only ever refused."""
    accepted, used = set(), set()
    for seed in range(30_000, 30_200):
        rng = loops.np.random.default_rng(seed)
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
        rng = loops.np.random.default_rng(seed)
        steps = ("mark", "reindex_cache", "sampled_split", "transform_layout")
        sch, _ = random_schedule(KERNELS["matmul"](), rng, 4, steps)
        sch.get_output_blocks("root")
        used |= {inst.name for inst in sch.trace.insts}
    assert set(PRIMITIVES) - used == set()


def test_what_a_state_knows_of_places_is_what_a_walk_finds(monkeypatch):
    """Places are carried on from one state to the next; nobody walks the function again."""
    replace, seen = State.replace, set()

    def checked(state, old, new, moved=()):
        after = replace(state, old, new, moved)
        inside = list(descend(after.fn.body, statements_below))
        for s in inside:
            for below in statements_below(s):
                assert after.path(below).parent.stmt is s
        loops = {s.loop_var: s for s in inside if isinstance(s, For)}
        assert {v for v in seen | loops.keys() if after.has_loop(v)} == loops.keys()
        assert all(after.loop(v) is f for v, f in loops.items())
        assert old is new or not after.has(old) or any(s is old for s in inside)
        seen.update(loops)
        return after

    monkeypatch.setattr(State, "replace", checked)
    for seed in range(60):
        rng = loops.np.random.default_rng(seed)
        random_schedule(KERNELS[str(rng.choice(list(KERNELS)))](), rng, 6)
    assert len(seen) > 300


# -- the runner itself: `fuzz.broken` has cases that crash, hang and fail --------------------------


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    return runner.session("broken", 3, 20, 120, tmp_path_factory.mktemp("found"), case_seconds=2.0)


def test_crashes_hangs_and_errors_are_all_found_and_the_session_goes_on(broken):
    assert broken.cases == 20
    kinds = {found.error.split(" ")[0]: found for found in broken.found}
    assert set(kinds) == {"process", "hang", "ValueError", "MemoryError", "AssertionError"}
    assert kinds["process"].error == "process ended with -6"


def test_what_failed_is_minimised_and_written_as_a_program(broken):
    for found in broken.found:
        assert found.case["words"] == [found.case["words"][0]]
        compile(found.path.read_text(), str(found.path), "exec")


def test_a_case_is_the_same_in_every_process():
    for kind in set(COUNTS) - {"onnx_models"}:
        assert runner.case_of(kind, 5, 6) == runner.case_of(kind, 5, 6)
