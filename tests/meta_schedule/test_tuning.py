"""`relaxvm.tune`, `ms.tune_tir`, `relaxvm tune`: budgets, interrupts, resuming, never worse."""

import io
import json
import math
import types

import numpy as np
import pytest

import relaxvm
import relaxvm.meta_schedule as ms
from relaxvm import cli, relax, te
from relaxvm.base import ScheduleError
from relaxvm.meta_schedule import engine, processes, progress
from relaxvm.meta_schedule.engine import Engine, Trials
from relaxvm.meta_schedule.features import NAMES, Detail, features_of_stores, of_whole
from relaxvm.meta_schedule.measure import Measurer, OutOfTime
from relaxvm.meta_schedule.progress import Events, Progress
from relaxvm.meta_schedule.regressors import Network, Ridge, rank_correlation
from relaxvm.meta_schedule.space import Space
from relaxvm.meta_schedule.tasks import Task, tasks_from


def bad_default(n=24):
    """A product that plain rules leave slow: three sums in one, with strange indices."""
    a, b = te.placeholder((n, n, n), "float32", "A"), te.placeholder((n, n), "float32", "B")
    j, k = te.reduce_axis((0, n), "j"), te.reduce_axis((0, n), "k")
    out = te.compute((n, n), lambda i, m: te.sum(a[k, i, j] * b[j, m], [j, k]), "out")
    return te.create_prim_func([a, b, out])


def graph():
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((8, 32), "float32"))
    w = relax.const(np.random.default_rng(0).standard_normal((32, 48)).astype("float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(relax.op.nn.relu(relax.op.matmul(x, w)))
            out = bb.emit_output(relax.op.nn.softmax(y))
        bb.emit_func_output(out)
    return bb.get()


class Stop:
    """A listener that interrupts after so many trials."""

    def __init__(self, after):
        self.left, self.heard = after, []

    def __call__(self, kind, task, text):
        self.heard.append(kind)
        self.left -= kind == "trials"
        if not self.left:
            self.left = -1
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_strange_product_gets_faster_and_builds_use_it(tmp_path):
    fn = bad_default()
    tuned = relaxvm.tune(fn, max_trials=48, seconds=300, work_dir=tmp_path)
    (task,) = tuned.tasks
    assert task.trials <= 48 and tuned.ended in ("trials", "time")
    records = tuned.database.get_all_tuning_records()
    assert (task.state == "tuned") == (len(records) == 1) == (task.speedup > 1)
    assert ms.JSONDatabase(work_dir=tmp_path).get_all_tuning_records().__len__() == len(records)
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((24,) * r).astype("float32") for r in (3, 2)]
    with tuned.database:
        mod = relax.transform.MetaScheduleApplyDatabase()(relaxvm.IRModule({"main": fn}))
    out = relaxvm.nd.array(np.zeros((24, 24), "float32"))
    relaxvm.build(mod, schedule=False)["main"](*map(relaxvm.nd.array, arrays), out)
    wanted = np.einsum("kij,jm->im", *arrays)
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-3, atol=1e-3)


def test_an_interrupt_keeps_the_best_and_the_next_run_goes_on(tmp_path):
    stop = Stop(3)
    tuned = relaxvm.tune(bad_default(12), 600, work_dir=tmp_path, listener=stop)
    assert tuned.ended == "interrupted" and tuned.tasks[0].trials == 3
    tried = [json.loads(x) for x in (tmp_path / "trials.jsonl").read_text().splitlines() if x]
    assert len(tried) == 3
    with open(tmp_path / "trials.jsonl", "ab") as file:
        file.write(b'["cut off by kill -9", {"pla')
    again = relaxvm.tune(bad_default(12), 600, work_dir=tmp_path, max_trials=2)
    assert again.ended == "trials" and again.tasks[0].trials == 2
    assert "us" in str(again) and again.to_plain()["tasks"][0]["trials"] == 2


@pytest.mark.parametrize(("share", "trials"), [(0.95, 0), (0.85, 2)])
def test_a_kernel_at_the_roof_is_left_alone(monkeypatch, share, trials):
    monkeypatch.setattr(engine, "_AT_ROOF", 0.9)
    monkeypatch.setattr(Engine, "_of_roof", lambda self, task: share)
    (task,) = relaxvm.tune(bad_default(12), 600, max_trials=2, listener=False).tasks
    assert task.trials == trials and task.roof_share == share
    assert (task.state == "at the machine's roof (95%): left alone") == (trials == 0)


def test_a_model_is_tuned_by_the_shares_of_its_kernels(tmp_path):
    tuned = relaxvm.tune(graph(), 600, max_trials_per_task=1, work_dir=tmp_path, whole_model=False)
    assert [t.share for t in tuned.tasks] == sorted((t.share for t in tuned.tasks), reverse=True)
    assert sum(t.share for t in tuned.tasks) == pytest.approx(1)
    assert all(t.trials <= 1 for t in tuned.tasks) and tuned.speedup >= 1
    with tuned.database:
        program = relaxvm.build(graph())
    x = np.ones((8, 32), "float32")
    np.testing.assert_allclose(
        program["main"](x).numpy(), relaxvm.build(graph())["main"](x).numpy(), rtol=1e-5
    )


def test_tune_tir_as_tutorials_write_it(tmp_path):
    mod = relaxvm.IRModule({"main": bad_default(12)})
    config = ms.TuneConfig(max_trials_global=2, num_trials_per_iter=2)
    sch = ms.tune_tir(
        mod=mod, target="llvm --num-cores=1", config=config, work_dir=tmp_path, task_name="main",
        listener=False,
    )  # fmt: skip
    assert isinstance(sch, relaxvm.tir.Schedule) and len(sch.trace.insts) > 0
    new = sch.mod["main"].with_attr("global_symbol", "linear0")
    assert new.attrs["tir.is_scheduled"] and new.attrs["tir.reassociate"]
    assert relaxvm.build(relaxvm.IRModule({"linear0": new})) is not None
    found = ms.tir_integration.compile_tir(sch, mod, "llvm --num-cores=1")
    # Where the default stays, the schedule that was given is the answer, for its own target alone.
    assert (found is sch) == (sch.query_tuning_record(mod["main"]) is None)
    assert ms.tir_integration.compile_tir(sch, mod, "c") is None
    assert ms.tir_integration.compile_tir(sch.database, bad_default(14)) is None
    assert sch and len(sch) == len(sch.database) and repr(sch).startswith("TunedTIR(Schedule(main;")
    later = ms.tune_tir(
        mod, "llvm --num-cores=1", work_dir=tmp_path, max_trials_global=1, listener=False
    )
    with later as database:
        assert isinstance(database, ms.Database)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"seconds": 0}, "seconds above 0"),
        ({"seconds": -1}, "seconds above 0"),
        ({"seconds": math.nan}, "seconds above 0"),
        ({"seconds": "5"}, "seconds above 0"),
        ({"seconds": True}, "seconds above 0"),
        ({"seconds": math.inf}, "a number of trials"),
        ({"max_trials": 0}, "max_trials: wanted a number above 0"),
        ({"max_trials": True}, "max_trials"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_budgets_that_are_none(options, wrong, monkeypatch):
    # That is said before a model is built.
    monkeypatch.setattr("relaxvm.tuning.WholeModel", None)
    for mod in (bad_default(4), graph()):
        with pytest.raises(ScheduleError, match=wrong):
            relaxvm.tune(mod, **options)


@pytest.mark.slow
def test_what_takes_longer_than_the_budget_is_broken_off(monkeypatch):
    sleeps = "import time; from relaxvm.meta_schedule import worker; worker._built = {};"
    code = "lambda request: time.sleep(1000)"
    start = processes._START.replace("from rel", sleeps.format(code) + "from rel")
    monkeypatch.setattr(processes, "_START", start)
    monkeypatch.setattr(processes, "_idle", [])
    tuned = relaxvm.tune(bad_default(6), 8, listener=False)
    # Not refused, as after the time that a builder has.
    assert (tuned.ended, tuned.tasks[0].state) == ("time", "not reached")
    for process in processes._idle:
        process.end()


def test_a_measurer_and_a_search_end_in_time():
    fn = bad_default(6)
    with pytest.raises(OutOfTime):
        Measurer(fn, "llvm", until=0.0)
    with Measurer(fn, "llvm") as measurer:
        measurer.until = 0.0
        with pytest.raises(OutOfTime):
            measurer.measure([fn.with_attr("tir.is_scheduled", True)])
        with pytest.raises(OutOfTime):
            measurer.beats(fn)
        # The processes are still there.
        before, measurer.until = measurer._runner._process.generation, math.inf
        assert measurer.beats(fn, seconds=0.01).pairs >= 8
        assert measurer._runner._process.generation == before
    ctx = ms.TuneContext(fn, target="llvm", search_strategy="evolutionary", rand_state=0)
    ctx.pre_tuning(100, 16)
    ctx.until = 0.0
    assert len(ctx.generate_measure_candidates()) == 1


def test_finals_get_the_time_that_they_need():
    tasks = [Task(str(n), bad_default(4), 0.5) for n in range(3)]
    scheduler = ms.task_scheduler.RoundRobin()
    engine = Engine(tasks, scheduler, None, None, None, [], None, None, None, Trials(None))
    engine._seconds = 100.0
    assert engine.reserved() == 9.0  # 15 of 100 seconds at most, no more than two for each
    default = types.SimpleNamespace(seconds=0.5, build_seconds=3.0)
    engine.measurers = dict.fromkeys(range(3), types.SimpleNamespace(default=default))
    for task in tasks[:2]:
        task.fastest = [(0.5, None)]
    assert engine.reserved() == pytest.approx(2 * (0.3 + 24 * 0.5 + 2 * 3.0))
    default.seconds = 5.0
    assert engine.reserved() == 50.0  # half of all
    # Those of which there is no time for a comparison keep the default.
    engine.finals(0.0)
    assert {task.state for task in tasks[:2]} == {"default stays: no time to compare"}


def test_a_sum_to_one_number_has_designs():
    a, k = te.placeholder((64,), "float32", "a"), te.reduce_axis((0, 64), "k")
    fn = te.create_prim_func([a, te.compute((), lambda: te.sum(a[k], k), "b")])
    ctx = ms.TuneContext(fn, target="llvm", search_strategy="evolutionary", rand_state=0)
    ctx.pre_tuning(8, 8)
    assert len(ctx.generate_measure_candidates()) > 1


def test_a_fault_of_one_kernel_does_not_end_the_search_of_others(monkeypatch):
    def faulty(self):
        if self.task_name == "bad":
            raise IndexError("of ours")
        return generate(self)

    generate = ms.TuneContext.generate_measure_candidates
    monkeypatch.setattr(ms.TuneContext, "generate_measure_candidates", faulty)
    tasks = [Task("bad", bad_default(4), 0.9), Task("good", bad_default(5), 0.1)]
    with pytest.warns(RuntimeWarning, match="bad: a fault of relaxvm's(.|\n)*IndexError: of ours"):
        tuned = ms.tune_kernels(tasks, 600, max_trials=2)
    assert tuned.ended == "trials" and tasks[1].trials == 2
    assert tasks[0].state == "cannot be measured: IndexError: of ours"


def test_a_listener_that_raises_ends_the_tuning_after_the_best_were_kept():
    heard = []

    def listener(kind, task, text):
        heard.append(kind)
        if kind == "trials":
            raise ValueError("no more")

    with pytest.raises(ms.DerivedError, match="the listener raised ValueError: no more"):
        relaxvm.tune(bad_default(6), 600, max_trials=8, listener=listener)
    assert heard.count("trials") == 1


def test_there_may_be_nothing_to_tune():
    scheduled = Space(bad_default(4)).fn.with_attr("tir.is_scheduled", True)
    with pytest.raises(ScheduleError, match="nothing to tune"):
        relaxvm.tune(scheduled, 1)


def test_equal_kernels_are_tuned_once():
    tasks = tasks_from({"a": bad_default(4), "b": bad_default(4)}, {"a": 0.2, "b": 0.3})
    assert [(t.names, t.share) for t in tasks] == [(["a", "b"], 0.5)]


def test_features_tell_orders_of_loops_apart():
    space = Space(bad_default(16))
    fn = space.default().fn
    rows = features_of_stores(fn)
    assert rows.shape[1] == len(NAMES)
    assert np.isfinite(rows).all()
    assert rows[:, 0].max() > 10
    whole = of_whole(rows)
    assert whole.shape == of_whole(features_of_stores(space.fn)).shape
    np.testing.assert_allclose(whole[: len(NAMES)], np.log2(np.exp2(rows).sum(axis=0) + 1))
    detail = Detail(buffers=3, intensity=4)
    more = features_of_stores(fn, detail)
    assert more.shape == (len(rows), detail.width)
    assert np.isfinite(more).all()
    assert (more[:, : len(NAMES)] == rows).all()
    assert (features_of_stores(fn, Detail(line_bytes=128)) != rows).any()


@pytest.mark.parametrize("regressor", [Ridge(1e-3), Network(16, 400)])
@pytest.mark.parametrize("count", [24, 90])
def test_regressors_learn_a_line_and_rank(regressor, count):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((count + 20, 5))
    rows[:, 4] = 7.0  # constant columns teach nothing
    values = rows @ np.arange(5.0) + 7
    regressor.fit(rows[:count], values[:count])
    assert rank_correlation(regressor.predict(rows[count:]), values[count:]) > 0.8
    assert rank_correlation([1.0], [2.0]) == 0.0


def test_progress_in_lines():
    lines = []
    with Progress(60, lines.append) as tell:
        task = Task("k", bad_default(4), 1.0)
        tell("task", task, "searching")
        task.default_seconds = task.best_seconds = 2e-6
        task.state = "tuned"
        task.roof_share, task.trials, task.refused, task.pruned = 0.25, 9, 2, 7
        tell("final", task, "1.5x")
        tell("note", None, "said")
    assert "k: waiting" in lines[0] and " s left" in lines[0] and "trials/s" in lines[0]
    assert "2.0 us, roof 25% of it, 9 trials, 2 refused, 7 pruned: tuned  1.5x" in lines[1]
    assert lines[2] == "said"

    def gone(line):
        raise BrokenPipeError

    with Progress(60, gone) as tell:
        tell("note", None, "said to nobody")


def test_progress_for_machines(capsys):
    task = Task("k", bad_default(4), 0.5, default_seconds=2e-6, best_seconds=1e-6)
    task.trials, task.refused, task.pruned, task.roof_share = 9, 2, 7, 0.25
    for seconds in (60, None, math.inf):
        with Events(seconds) as tell:
            tell("trials", task, "")
            tell("note", None, "said\nin two lines")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["trials", "note"] * 3
    first = lines[0]
    assert (first["trials"], first["refused"], first["pruned"]) == (9, 2, 7)
    assert first["best"] == pytest.approx(1 / 0.75)
    assert 0 < first["left"] < 60 and lines[2]["left"] is lines[4]["left"] is None
    assert first["trials_per_second"] > 0 and first["task"]["roof_share"] == 0.25
    assert lines[1]["task"] is None and lines[1]["trials"] == 9


def test_a_table_shows_names_as_they_are(monkeypatch):
    pytest.importorskip("rich", reason="the extra tune is not installed")
    from rich.console import Console
    from rich.live import Live

    console = Console(file=io.StringIO(), force_terminal=True, width=160)
    table = progress._OnTerminal(Live(console=console, auto_refresh=False))
    monkeypatch.setattr(progress, "_live_table", lambda: table)
    task = Task("a[/b]", bad_default(4), 1.0, state="cannot be measured: [red]")
    with Progress(60) as tell:
        tell("task", task, "")
        tell("note", None, "see [/tmp]")
    shown = console.file.getvalue()
    assert "a[/b]" in shown and "measured: [red]" in shown and "see [/tmp]" in shown


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(
        "from relaxvm import te, relax, IRModule\n"
        "x = relax.Var('x', relax.TensorStructInfo((4, 8), 'float32'))\n"
        "bb = relax.BlockBuilder()\n"
        "with bb.function('main', [x]):\n"
        "    bb.emit_func_output(bb.emit(relax.op.nn.softmax(x)))\n"
        "mod = bb.get()\n"
    )
    quick = ["--seconds", "600", "--trials", "1", "--kernels-only"]
    command = ["tune", "m.py:mod", *quick, "-o", "t.json", "--json"]
    assert cli.main(command) == 0
    out = capsys.readouterr()
    assert json.loads(out.out)["tasks"][0]["names"] == ["softmax"]
    events = [json.loads(x) for x in out.err.splitlines() if x.startswith("{")]
    assert {"task", "trials"} <= {each["event"] for each in events} and events[-1]["left"] > 0
    assert cli.main(["run", "m.py:mod", "--records", "t.json"]) == 0
    for wrong in (
        ["--seconds", "0"],
        ["--minutes", "1", "--seconds", "1"],
        ["-o", "no/such.json"],
        ["--workers", "2"],
        ["--runner", "ray", "--worker-resource", "tuner"],
        ["--runner", "ray", "--worker-cpus", "0"],
    ):
        assert cli.main(["tune", "m.py:mod", "-o", "t.json", *wrong]) == 1

    def tune(mod, seconds, *, runner, **options):
        assert (runner.num_workers, runner.num_cpus, runner.address) == (None, 2, "auto")
        raise relaxvm.base.ScheduleError(f"asked for {runner.resources}")

    monkeypatch.setattr("relaxvm.tuning.tune", tune)
    ray = ["--runner", "ray", "--worker-cpus", "2", "--worker-resource", "tuner=1"]
    assert cli.main([*command, *ray, "--address", "auto"]) == 1
    assert "asked for {'tuner': 1.0}" in capsys.readouterr().err


def test_the_command_takes_loop_functions_and_inputs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(
        "from relaxvm import te, relax, IRModule\n"
        "a = te.placeholder((4, 8), 'float32', 'a')\n"
        "b = te.compute((4, 8), lambda *i: a(*i) + 1)\n"
        "loops = IRModule({'add': te.create_prim_func([a, b])})\n"
        "x = relax.Var('x', relax.TensorStructInfo((4,), 'int64'))\n"
        "w = relax.const([[1.0, 2.0], [3.0, 4.0]])\n"
        "bb = relax.BlockBuilder()\n"
        "with bb.function('main', [x]):\n"
        "    bb.emit_func_output(bb.emit(relax.op.take(w, x, axis=0)))\n"
        "mod = bb.get()\n"
    )
    quick = ["--seconds", "600", "--trials", "1", "--kernels-only"]
    command = ["tune", *quick, "-o", "t.json", "--json"]
    assert cli.main([*command, "m.py:loops"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"][0]["names"] == ["add"]
    assert cli.main([*command, "m.py:loops", "--shape", "a=4x8"]) == 1
    assert "no function main" in capsys.readouterr().err
    assert cli.main([*command, "m.py:mod", "--input", "x=[0, 1, 9, 0]"]) == 1
    assert "index" in capsys.readouterr().err
    assert cli.main([*command, "m.py:mod", "--input", "x=[0, 1, 1, 0]"]) == 0
