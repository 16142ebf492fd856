"""Tuning on a local cluster of Ray; the extra `ray` has it."""

import os
import signal

import pytest

import relaxvm
from relaxvm import meta_schedule as ms
from relaxvm.base import ScheduleError
from relaxvm.meta_schedule.builder import plain_context
from relaxvm.meta_schedule.ray_fleet import RayFleet
from relaxvm.meta_schedule.runner import EvaluatorConfig, RayRunner, RunnerInput
from relaxvm.meta_schedule.tuning import Parts, Setting, tune_kernels
from relaxvm.target import Target
from tests.meta_schedule.replayed import kernel
from tests.meta_schedule.test_hostile import product

ray = pytest.importorskip("ray", reason="the extra ray is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        ray.init(num_cpus=2, resources={"tuner": 2}, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_tune_into_one_database(cluster, tmp_path, workers):
    tasks = [ms.Task(f"product{n}", product(n), 0.5) for n in (12, 16)]
    runner = RayRunner(num_workers=workers, resources={"tuner": 1})
    tuned = tune_kernels(tasks, 900, max_trials=12, work_dir=tmp_path, parts=Parts(runner=runner))
    assert tuned.ended == "trials" and sum(t.trials for t in tasks) == 12
    assert all(t.default_seconds and t.spent for t in tasks)
    assert len((tmp_path / "trials.jsonl").read_text().split()) >= 12
    held = ms.JSONDatabase(work_dir=tmp_path).get_all_tuning_records()
    assert len(held) == sum(t.state == "tuned" for t in tasks)
    with tuned.database:
        relaxvm.build(relaxvm.IRModule({"main": tasks[0].fn}))


def test_a_worker_that_dies_is_replaced_and_its_trials_repeated(cluster, monkeypatch):
    heard, processes = [], []
    judge = RayFleet._judge
    monkeypatch.setattr(
        RayFleet,
        "_judge",
        lambda self, number, about: (
            processes.append(about["process"]) or judge(self, number, about)
        ),
    )
    tasks = [ms.Task("product", product(), 1.0)]

    def listener(kind, task, text):
        heard.append(text)
        if kind == "trials" and not killed:
            killed.append(processes[1])
            os.kill(processes[1], signal.SIGKILL)

    killed = []
    parts = Parts(runner=RayRunner(num_workers=2))
    tuned = tune_kernels(tasks, 900, max_trials=24, listener=listener, parts=parts)
    assert tuned.ended == "trials" and tasks[0].trials == 24
    assert any("is replaced" in text for text in heard)


def test_workers_of_another_cpu_or_a_slow_one_are_left_out(cluster, monkeypatch):
    setting = Setting(Parts(), Target("llvm"), 1, None, 0, 0.95, 16).at_stations()
    heard = []
    fleet = RayFleet(
        RayRunner(num_workers=2), setting, plain_context(), lambda *told: heard.append(told[2])
    )
    try:
        assert fleet.left() == 2 and sorted(fleet.free()) == [0, 1] and not heard
        about = ray.get(fleet._actors[0].about.remote())
        fleet._judge(0, {**about, "same": {**about["same"], "cpu": "another"}})
        fleet._judge(1, {**about, "speed": fleet._speed / 2})
        assert "cpu: another in place of" in heard[0] and "50% of others'" in heard[1]
        assert fleet.left() == 0
    finally:
        fleet.close()


def test_kernels_run_as_tasks(cluster):
    builder = ms.builder.LocalBuilder(1)
    fn = kernel(64)
    (built,) = builder.build([ms.builder.BuilderInput(relaxvm.IRModule({"main": fn}), "llvm")])
    runner = RayRunner(evaluator_config=EvaluatorConfig(1, 3, 0))
    assert runner.count() == 2
    infos = ms.arg_info.ArgInfo.from_prim_func(fn)
    inputs = [RunnerInput(path, "cpu", infos) for path in (built.artifact_path, "none")]
    first, second = runner.run(inputs)
    assert len(first.result().run_secs) == 3 and first.done()
    assert second.done() and second.result().error_msg
    builder.close()


def test_a_cluster_without_room_says_so(cluster):
    runner = RayRunner(num_workers=1, resources={"none such": 1}, start_sec=1)
    with pytest.raises(ScheduleError, match="no worker of Ray can be used: none came in time"):
        tune_kernels([ms.Task("a", kernel(4), 1.0)], 5, parts=Parts(runner=runner))
