"""Strategies, cost models, features, task schedulers, contexts: TVM's names, and classes of users'
in their place.
"""

import collections
import logging
import random

import numpy as np
import pytest

import relaxvm.meta_schedule as ms
from relaxvm import te
from relaxvm.base import LoadError, ScheduleError
from relaxvm.ir import IRModule
from relaxvm.meta_schedule import cost_model, feature_extractor, search_strategy, task_scheduler
from relaxvm.meta_schedule.database import key_of
from relaxvm.meta_schedule.regressors import rank_correlation
from relaxvm.meta_schedule.runner import RunnerFuture, RunnerResult
from relaxvm.meta_schedule.trace_space import Of
from relaxvm.tir.schedule import Schedule


def product(n=12):
    a, b = te.placeholder((n, n), "float32", "A"), te.placeholder((n, n), "float32", "B")
    k = te.reduce_axis((0, n), "k")
    out = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], k), "C")
    return te.create_prim_func([a, b, out])


def context(strategy="evolutionary", n=12, **options):
    return ms.TuneContext(
        product(n), target="llvm", search_strategy=strategy, rand_state=3, **options
    )


def as_if(candidate):
    """As if vectors were all that counts."""
    return RunnerResult([1e-3 / (1 + candidate.sch.mod.script().count("vectorized"))])


@ms.derived_object
class QuickBuilder(ms.builder.PyBuilder):
    def build(self, build_inputs):
        return [ms.builder.BuilderResult("nowhere") for _ in build_inputs]


@ms.derived_object
class QuickRunner(ms.runner.PyRunner):
    """Each kernel takes less than the one before."""

    ran = 0

    def run(self, runner_inputs):
        self.ran += len(runner_inputs)
        result = RunnerResult([1.0 / self.ran])
        return [RunnerFuture(lambda: True, lambda: result) for _ in runner_inputs]


def quick(**more):
    return {"builder": QuickBuilder(), "runner": QuickRunner(), "listener": False, **more}


@pytest.mark.parametrize("kind", ["evolutionary", "replay-trace", "replay-func"])
def test_strategies_count_trials_and_begin_anew_after_their_end(kind):
    ctx = context(kind)
    for _ in range(2):
        ctx.pre_tuning(max_trials=7, num_trials_per_iter=3, cost_model=ms.CostModel.create("mlp"))
        sizes, keys = [], set()
        while (candidates := ctx.generate_measure_candidates()) is not None:
            sizes.append(len(candidates))
            keys |= {c.key for c in candidates}
            assert all(c.args_info == ms.arg_info.ArgInfo.from_prim_func(c.fn) for c in candidates)
            ctx.notify_runner_results(candidates, [as_if(c) for c in candidates])
        assert sizes == [3, 3, 1]
        assert kind != "evolutionary" or len(keys) == 7
        ctx.post_tuning()
    with pytest.raises(ScheduleError, match="call pre_tuning"):
        ctx.generate_measure_candidates()


def test_the_space_that_wins_is_drawn_from_more_often():
    ctx = context("evolutionary")
    ctx.pre_tuning(max_trials=40, num_trials_per_iter=8)
    space = ctx.space
    first = space.shares
    assert first["known"] > first["rules"] and sum(first.values()) == pytest.approx(1)
    seconds = 1.0
    while (candidates := ctx.generate_measure_candidates()) is not None:
        results = []
        for candidate in candidates:
            wins = candidate.point.space == "rules"
            seconds *= 0.9 if wins else 1.0
            results.append(ms.runner.RunnerResult([seconds if wins else 2.0]))
        ctx.notify_runner_results(candidates, results)
    assert space.shares["rules"] > first["rules"] + 0.2 and space.shares["known"] >= 0.1
    drawn = [space.draw(random.Random(n)).point.space for n in range(20)]
    assert drawn.count("rules") > 6
    # Where nothing is won any more, it is as at first.
    for _ in range(300):
        for name in space.spaces:
            space.learn(Of(name, None), 0.0)
    assert space.shares["known"] == pytest.approx(first["known"], abs=0.02)


@pytest.mark.parametrize("kind", ["evolutionary", "replay-trace", "replay-func"])
def test_a_seed_gives_the_same_candidates_again(kind):
    def tiles(sch):
        sch.split(sch.get_loops("C")[0], sch.sample_perfect_tile(sch.get_loops("C")[0], 2))

    for space in ("post-order-apply", tiles):
        drawn = []
        for _ in range(2):
            ctx = context(kind, n=16, space_generator=space)
            ctx.pre_tuning(max_trials=4, num_trials_per_iter=4)
            drawn.append([c.key for c in ctx.generate_measure_candidates()])
        assert drawn[0] == drawn[1]


def test_evolution_asks_a_model_that_knows_and_goes_where_it_says():
    @ms.derived_object
    class Shortest(ms.cost_model.PyCostModel):
        asked = 0

        def predict(self, context, candidates):
            Shortest.asked += len(candidates)
            return np.array([-len(c.sch.trace.insts) for c in candidates])

    strategy = search_strategy.EvolutionarySearch(
        population_size=12, genetic_num_iters=2, eps_greedy=0.0, init_min_unmeasured=2
    )
    ctx = context(strategy, 16)
    ctx.pre_tuning(8, 4, cost_model=Shortest())
    candidates = ctx.generate_measure_candidates()
    assert len(candidates) == 4
    assert Shortest.asked >= 20
    lengths = [len(c.sch.trace.insts) for c in candidates[1:]]
    assert lengths == sorted(lengths)
    other = ctx.clone()
    assert other.search_strategy is not strategy
    assert other.search_strategy.population_size == 12
    assert other.rand_state != ctx.rand_state


def test_a_search_begins_with_records_and_points_of_older_ones():
    ctx = context()
    ctx.pre_tuning(2, 2)
    known, recorded = ctx.generate_measure_candidates()
    database = ms.database.MemoryDatabase()
    workload = database.commit_workload(IRModule({"main": ctx.space.fn}))
    database.commit_tuning_record(
        ms.TuningRecord.of(recorded.sch, workload, [1.0], ms.database.Target("llvm"))
    )
    later = context()
    later.tried = [known.point.as_json(), {"not": "a point"}]
    later.pre_tuning(2, 2, database=database)
    keys = {c.key for c in later.generate_measure_candidates()}
    assert keys == {known.key, recorded.key}


def test_strategies_refuse_what_they_cannot_do():
    with pytest.raises(ScheduleError, match="kind is one of .*replay-trace"):
        ms.SearchStrategy.create("other")
    with pytest.raises(ScheduleError, match="eps_greedy is from 0 to 1"):
        search_strategy.EvolutionarySearch(eps_greedy=2)
    with pytest.raises(ScheduleError, match="wanted a TuneContext"):
        search_strategy.ReplayTrace().pre_tuning(1, 1, [])
    with pytest.raises(ScheduleError, match="max_trials: wanted a number above 0"):
        context().pre_tuning(0, 1)
    with pytest.raises(ScheduleError, match="has no search_strategy"):
        ms.TuneContext(product()).pre_tuning(1)
    with pytest.raises(ScheduleError, match="has no mod"):
        ms.TuneContext().generate_design_space()
    with pytest.raises(ScheduleError, match="wanted a number of cores"):
        ms.TuneContext(num_threads="many")


def measured(ctx, count):
    """Candidates, and times that follow from what they are."""
    ctx.pre_tuning(count, count)
    candidates = ctx.generate_measure_candidates()
    ctx.post_tuning()
    return candidates, [
        RunnerResult([float(np.exp(0.3 * c.rows[:, 0].sum() - 0.2 * c.rows[:, 5].max()))])
        for c in candidates
    ]


@pytest.mark.parametrize("kind", ["xgb", "mlp"])
def test_cost_models_learn_save_and_teach_other_kernels(kind, tmp_path):
    model, ctx = ms.CostModel.create(kind), context("replay-trace", 24)
    candidates, results = measured(ctx, 40)
    assert not model.knows(ctx)
    assert model.predict(ctx, candidates).shape == (40,)
    model.update(ctx, candidates[:28], [*results[:27], RunnerResult(None, "crash")])
    assert model.data_size == 27
    wanted = [-r.run_secs[0] for r in results[28:]]
    scores = model.predict(ctx, candidates[28:])
    assert rank_correlation(scores, wanted) > 0.7
    model.save(tmp_path / "model")
    again = ms.CostModel.create(kind)
    again.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict(ctx, candidates[28:]), scores, rtol=1e-6)
    unseen = context("replay-trace", 20)
    others, times = measured(unseen, 24)
    assert again.knows(unseen)
    assert rank_correlation(again.predict(unseen, others), [-t.run_secs[0] for t in times]) > 0.5
    assert again.predict(unseen, []).shape == (0,)


def test_what_models_save_is_checked(tmp_path):
    random = cost_model.RandomModel(seed=7)
    random.save(tmp_path / "random")
    first = random.predict(ms.TuneContext(), [None] * 3)
    other = cost_model.RandomModel()
    other.load(tmp_path / "random")
    assert (other.predict(ms.TuneContext(), [None] * 3) == first).all()
    for text in (
        "{", '{"cost model": "features", "content": [["k", [[1, 2], [3]], [1, 2]]]}',
        '{"cost model": "features", "content": [["k", [[NaN]], [1]]]}', "[1]",
        '{"cost model": "features", "content": [["k", [[1]], [-1]]]}',
    ):  # fmt: skip
        (tmp_path / "broken").write_text(text)
        with pytest.raises(LoadError, match="not what a cost model"):
            cost_model.XGBModel().load(tmp_path / "broken")
    with pytest.raises(LoadError, match="of this kind"):
        cost_model.MLPModel().load(tmp_path / "random")
    with pytest.raises(ScheduleError, match="kind is one of xgb, mlp, random"):
        ms.CostModel.create("other")
    with pytest.raises(ScheduleError, match="num_warmup_samples"):
        cost_model.XGBModel(num_warmup_samples=-1)


def test_models_learn_from_any_extractor_without_a_module():
    extractor = feature_extractor.RandomFeatureExtractor(seed=1)
    model = cost_model.XGBModel(extractor=extractor, num_warmup_samples=2)
    candidates = [ms.MeasureCandidate(Schedule(product(4)), []) for _ in range(6)]
    model.update(ms.TuneContext(), candidates, [RunnerResult([1.0 + k]) for k in range(6)])
    state = extractor.random_state
    scores = model.predict(ms.TuneContext(), candidates)
    extractor.random_state = state
    assert (scores == model.predict(ms.TuneContext(), candidates)).all()
    (group,) = model.data.values()
    assert group.group_hash == ""
    assert group.min_cost == 1.0


def test_features_of_stores_with_their_workload():
    ctx = context()
    one = ms.MeasureCandidate(Schedule(product()))
    (plain,) = feature_extractor.PerStoreFeature().extract_from(ctx, [one])
    (more,) = feature_extractor.PerStoreFeature(5, 10, 32, extract_workload=True).extract_from(
        ctx, [one]
    )
    assert plain.shape[0] == more.shape[0] == 2
    assert more.shape[1] == 2 * (plain.shape[1] + 5 * 5 + 10)
    with pytest.raises(ScheduleError, match="wanted counts"):
        feature_extractor.PerStoreFeature(-1)
    with pytest.raises(ScheduleError, match="per-store-feature, random"):
        ms.FeatureExtractor.create("other")


def tune(scheduler, contexts, database, trials=100, of_task=6, model=None):
    scheduler.tune(
        contexts, [1.0] * len(contexts), trials, of_task, 4, QuickBuilder(), QuickRunner(),
        [ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel()], database,
        model,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["round-robin", "gradient"])
def test_schedulers_of_tasks_measure_all_of_them(kind):
    scheduler, database = ms.TaskScheduler.create(kind), ms.database.MemoryDatabase()
    model = ms.CostModel.create("xgb")
    tune(scheduler, [context("replay-trace"), context(n=10)], database, model=model)
    assert [t.trials for t in scheduler.tasks_] == [6, 6]
    assert len(database) == 12 == model.data_size
    assert scheduler.remaining_tasks_ == 0
    assert scheduler.database_ is database
    assert len(scheduler.join_running_task(0)) == 2
    fastest = database.query_tuning_record(product(10), "llvm")
    assert fastest.schedule(product(10)) is not None
    # Found as the function was written, too, though its records are of wide indices.
    assert database.has_workload(IRModule({"main": product(10)}))
    workload = database.commit_workload(IRModule({"main": product(10)}))
    assert len(database.get_top_k(workload, 100)) == 6


def test_a_scheduler_of_the_users_decides():
    turns = []

    @ms.derived_object
    class Backwards(ms.task_scheduler.PyTaskScheduler):
        def next_task_id(self):
            if len(turns) == 2:
                self.terminate_task(0)
            tasks = self._outer().tasks_
            assert all(task.runner_futures is None for task in tasks)
            open_tasks = [n for n, task in enumerate(tasks) if not task.is_terminated]
            turns.append(max(open_tasks, default=-1))
            return turns[-1]

    scheduler = Backwards()
    with pytest.raises(ScheduleError, match="has no tasks until it tunes"):
        _ = scheduler.tasks_
    tune(scheduler, [context(), context(n=10)], None, of_task=4)
    assert turns == [1, 1, -1]
    with pytest.raises(ScheduleError, match="a weight for each"):
        tune(scheduler, [], None)
    for wrong, message in ((7, "a task's number, got 7"), (0, "task 0 is over")):
        bad = type("Bad", (task_scheduler.PyTaskScheduler,), {"next_task_id": lambda _, n=wrong: n})
        with pytest.raises(ms.DerivedError, match=rf"Bad\.next_task_id raised.*{message}"):
            tune(bad(), [context()], None, of_task=2)


def test_a_strategy_that_has_nothing_does_not_hold_up_the_others():
    @ms.derived_object
    class Idle(ms.search_strategy.PySearchStrategy):
        left = 2

        def _initialize_with_tune_context(self, context):
            self.name = context.task_name

        def pre_tuning(self, *options):
            pass

        notify_runner_results = pre_tuning

        def generate_measure_candidates(self):
            self.left -= 1
            return [] if self.left >= 0 else None

        def post_tuning(self):
            assert self.name == "main"

    scheduler = task_scheduler.GradientBased()
    tune(scheduler, [context(Idle()), context("replay-trace", n=10)], None)
    assert [t.trials for t in scheduler.tasks_] == [0, 6]


def test_gradients_prefer_what_wins_and_choose_by_seed_where_nothing_does():
    scheduler = task_scheduler.GradientBased(alpha=0.5, window_size=2, seed=1)
    task = ms.Task("k", product(), 0.5, default_seconds=2.0, best_seconds=1.0, trials=4, spent=2.0)
    task.learn(0.4)
    high = scheduler.gain(task)
    for _ in range(3):
        task.learn(0.0)
    assert 0 < scheduler.gain(task) < high / 2
    task.roof_share = 1.0
    assert scheduler.gain(task) == 0.0
    with pytest.raises(ScheduleError, match="alpha from 0 to 1"):
        task_scheduler.GradientBased(alpha=2)


def test_tune_tasks_compares_and_keeps(tmp_path):
    loggers = ms.logging.get_loggers_from_work_dir(tmp_path, ["one", "strange/name"])
    contexts = [
        context(task_name="one", logger=loggers[0]),
        context("replay-func", 10, task_name="two", logger=loggers[1]),
    ]
    database = ms.tune_tasks(
        tasks=contexts, task_weights=[3, 1], max_trials_global=8, num_trials_per_iter=2,
        work_dir=tmp_path, database="json", cost_model="random", task_scheduler="round-robin",
        num_tuning_cores=1, **quick(),
    )  # fmt: skip
    assert database.query_tuning_record(product(), "llvm") is not None
    assert len(database) == 2
    logs = sorted((tmp_path / "logs").iterdir())
    assert [p.name for p in logs] == ["task_00_one.log", "task_01_strange_name.log"]
    assert "one: best" in logs[0].read_text()
    for logger in loggers:
        for handler in logger.handlers:
            handler.close()
    with pytest.raises(ScheduleError, match="space: the contexts in `tasks` say that"):
        ms.tune_tasks(tasks=contexts, task_weights=[1, 1], max_trials_global=1, space="x")
    with pytest.raises(TypeError, match="no_such_part"):
        ms.tune_tasks(tasks=contexts, task_weights=[1, 1], max_trials_global=1, no_such_part=1)
    with pytest.raises(ScheduleError, match="wanted a weight above 0"):
        ms.tune_tasks(tasks=contexts, task_weights=[1, 0], max_trials_global=1)


def test_what_only_seemed_to_be_the_fastest_gives_way_in_the_final():
    """The last candidate of all is quick once, and slow when it is compared."""
    modules, calls = [], collections.Counter()

    @ms.derived_object
    class Builder(ms.builder.PyBuilder):
        def build(self, build_inputs):
            ((fn,),) = (each.mod.functions.values() for each in build_inputs)
            key = key_of(fn)
            modules.extend([] if key in modules else [key])
            return [ms.builder.BuilderResult(str(modules.index(key)))]

    @ms.derived_object
    class Runner(ms.runner.PyRunner):
        def run(self, runner_inputs):
            number = int(runner_inputs[0].artifact_path)
            calls[number] += 1
            slow = number == 4 and calls[number] > 1
            result = RunnerResult([9.0 if slow else 1.0 / (1 + number)])
            return [RunnerFuture(lambda: True, lambda: result)]

    database = ms.database.MemoryDatabase()
    ms.tune_tir(
        product(), "llvm", max_trials_global=4, database=database, builder=Builder(),
        runner=Runner(), cost_model=None, listener=False,
    )  # fmt: skip
    (record,) = database.get_all_tuning_records()
    assert calls[4] > 1
    assert record.seconds == pytest.approx(1 / 4)


class Raises(RuntimeError):
    pass


def _raising(base, method, after=0):
    """A class derived from `base`, a method of which raises after so many calls."""

    def raise_later(self, *args, **options):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls > after:
            raise Raises("no more")
        return getattr(base, method)(self, *args, **options)

    return ms.derived_object(type("Mine", (base,), {method: raise_later}))()


@pytest.mark.parametrize(
    ("part", "instance", "method"),
    [
        ("cost_model", _raising(cost_model.XGBModel, "update", 1), "update"),
        ("cost_model", _raising(cost_model.XGBModel, "knows", 2), "knows"),
        (
            "strategy",
            _raising(search_strategy.EvolutionarySearch, "generate_measure_candidates", 1),
            "generate_measure_candidates",
        ),
        ("strategy", _raising(search_strategy.ReplayTrace, "initialize_with_tune_context"), "init"),
        ("task_scheduler", _raising(task_scheduler.RoundRobin, "next_task_id", 1), "next_task_id"),
        ("measure_callbacks", _raising(ms.measure_callback.AddToDatabase, "apply", 1), "apply"),
        ("builder", _raising(QuickBuilder, "build", 3), "build"),
        ("runner", _raising(QuickRunner, "run", 3), "run"),
    ],
)
def test_what_a_part_of_the_users_raises_is_told_by_name_and_the_best_is_kept(
    part, instance, method
):
    database = ms.database.MemoryDatabase()
    with pytest.raises(
        ms.DerivedError, match=rf"Mine\.{method}.* raised Raises: no more"
    ) as caught:
        ms.tune_tir(
            product(), "llvm", max_trials_global=6, num_trials_per_iter=2, database=database,
            **quick(**{part: instance}),
        )  # fmt: skip
    assert isinstance(caught.value.__cause__, Raises)
    if part in ("cost_model", "task_scheduler") or method == "generate_measure_candidates":
        assert len(database) == 1


def test_parts_of_tune_tir_are_obeyed_or_refused():
    heard = []

    @ms.derived_object
    class Hear(ms.measure_callback.PyMeasureCallback):
        def apply(self, scheduler, task_id, candidates, builder_results, runner_results):
            assert scheduler.tasks_[task_id].ctx.task_name == "mine"
            assert not [r for r in [*builder_results, *runner_results] if r.error_msg]
            heard.append(len(candidates))

    tuned = ms.tune_tir(
        product(), "llvm", config=ms.TuneConfig(3, 2, strategy="replay_trace"), task_name="mine",
        database="memory", module_equality="ignore-ndarray", cost_model=None, seed=5,
        measure_callbacks=Hear(), **quick(),
    )  # fmt: skip
    assert heard == [2, 1]
    assert tuned.database.module_equality == "ignore-ndarray"
    te_tuned = ms.tune_te(
        [a := te.placeholder((8,), "float32", "a"), te.compute((8,), lambda i: a[i] + 1.0)],
        "llvm", max_trials_global=1, **quick(),
    )  # fmt: skip
    assert isinstance(te_tuned, Schedule)
    for options, message in (
        ({"database": "json"}, "wanted a work_dir"),
        ({"database": "other"}, "'json', 'memory' or a Database"),
        ({"cost_model": "other"}, "kind is one of"),
        ({"strategy": "other"}, "kind is one of"),
        ({"task_scheduler": "other"}, "kind is one of"),
        ({"runner": "other"}, "kind is one of"),
        ({"num_tuning_cores": 0}, "number of cores"),
        ({"module_equality": "other"}, "module_equality is one of"),
    ):
        with pytest.raises(ScheduleError, match=message):
            ms.tune_tir(product(), "llvm", max_trials_global=1, **quick(**options))


def test_functions_for_loggers(caplog):
    assert ms.logging.get_logging_func(None) is None
    logger = ms.logging.get_logger("relaxvm.test")
    with caplog.at_level(logging.INFO, "relaxvm.test"):
        ms.logging.get_logging_func(logger)(logging.INFO, "a/b.cc", 7, "said")
    assert "[b.cc:7] said" in caplog.text
