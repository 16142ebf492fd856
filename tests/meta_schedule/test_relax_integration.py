"""TVM's ways to tune a model: `ms.relax_integration`, passes, `static_shape_tuning`."""

import numpy as np
import pytest

import relaxvm
import relaxvm.meta_schedule as ms
from relaxvm import relax, te
from relaxvm.base import ScheduleError, VerifyError
from relaxvm.relax import get_pipeline, transform
from relaxvm.target import Target, cpu_model
from relaxvm.tir import PrimFunc

ONE_CORE = Target("llvm -num-cores=1")
X, W = (np.random.default_rng(0).standard_normal(s, "float32") for s in ((8, 32), (32, 48)))


def graph(weight=None):
    """relu(x @ w) @ c, twice relu; `w` a parameter unless an array is given for it."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((8, 32), "float32"))
    w = relax.Var("w", relax.TensorStructInfo((32, 48), "float32"))
    c = relax.const(np.random.default_rng(1).standard_normal((48, 48), "float32"))
    params = [x, w] if weight is None else [x]
    with bb.function("main", params, attrs={"num_input": 1}):
        with bb.dataflow():
            y = bb.emit(relax.op.nn.relu(relax.op.matmul(x, w if weight is None else weight)))
            out = bb.emit_output(relax.op.nn.softmax(relax.op.matmul(y, c)))
        bb.emit_func_output(out)
    return bb.get()


def wanted():
    return relaxvm.build(graph())["main"](X, W).numpy()


def by_hand(mods, work_dir):
    """Records for modules of one kernel each: an annotation, that shows."""
    database = ms.JSONDatabase(work_dir=work_dir)
    for mod in mods:
        sch = relaxvm.tir.Schedule(mod)
        block = sch.get_child_blocks(sch.get_block("root"))[0]
        sch.annotate(sch.get_loops(block)[0], "pragma_auto_unroll_max_step", 2)
        workload = database.commit_workload(mod)
        database.commit_tuning_record(ms.TuningRecord.of(sch, workload, [1e-6], ONE_CORE))
    return database


def test_tasks_are_the_kernels_that_a_build_schedules_with_their_calls():
    tasks = ms.relax_integration.extract_tasks(graph(), "llvm", {"w": W})
    assert all(isinstance(t, ms.ExtractedTask) for t in tasks)
    assert {t.task_name: t.weight for t in tasks} == {
        "fused_matmul_relu": 1, "matmul1": 1, "softmax": 1,
    }  # fmt: skip
    assert all(list(t.mod.functions) and t.dispatched[0] is t.mod for t in tasks)
    # With the weight known, the kernel reads it in panels.
    (kernel,) = (t.mod["main"] for t in tasks if t.task_name == "fused_matmul_relu")
    assert len(kernel.buffer_map[kernel.params[1]].shape) == 3
    same = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((8, 8), "float32"))
    with same.function("main", [x]):
        y = same.emit(relax.op.matmul(x, x))
        same.emit_func_output(same.emit(relax.op.matmul(y, y)))
    (task,) = ms.relax_integration.extract_tasks(same.get(), "llvm")
    assert task.weight == 2


def test_tune_relax_and_compile_relax(tmp_path):
    database = ms.relax_integration.tune_relax(
        graph(), {"w": W}, ONE_CORE, tmp_path, 2, op_names=["relu"], listener=False,
        cost_model="random", strategy="replay-trace",
    )  # fmt: skip
    assert isinstance(database, ms.JSONDatabase)
    tried = (tmp_path / "trials.jsonl").read_text().split("\n")
    assert len([line for line in tried if line]) == 2
    program = ms.relax_integration.compile_relax(database, graph(), ONE_CORE, {"w": W})
    np.testing.assert_allclose(program["main"](X).numpy(), wanted(), rtol=1e-4)
    with pytest.raises(ScheduleError, match="named like"):
        ms.relax_integration.tune_relax(graph(), {}, "llvm", tmp_path, 2, op_names=["conv"])
    with pytest.raises(ScheduleError, match="op_names: wanted a list of words, got 'relu'"):
        ms.relax_integration.tune_relax(graph(), {}, "llvm", tmp_path, 2, op_names="relu")


def test_tasks_as_contexts(tmp_path):
    tasks = ms.relax_integration.extract_tasks(graph(), ONE_CORE)
    contexts, weights = ms.relax_integration.extracted_tasks_to_tune_contexts(
        tasks, tmp_path, strategy=ms.search_strategy.ReplayTrace(), seed=3
    )
    assert [c.task_name for c in contexts] == [t.task_name for t in tasks] and weights == [1.0] * 3
    assert len({id(c.search_strategy) for c in contexts}) == 3
    assert [c.rand_state for c in contexts] == [3, 4, 5] and contexts[0].target == ONE_CORE
    contexts[0].logger.warning("told")
    assert any("told" in path.read_text() for path in (tmp_path / "logs").iterdir())
    database = ms.tune_tasks(
        tasks=contexts[:1], task_weights=weights[:1], max_trials_global=1, listener=False
    )
    assert isinstance(database, ms.Database)


def test_compile_relax_obeys_the_records(tmp_path):
    tasks = ms.relax_integration.extract_tasks(graph(), ONE_CORE)
    database = by_hand([task.mod for task in tasks], tmp_path)
    program = ms.relax_integration.compile_relax(database, graph(), ONE_CORE)
    assert str(program.report).count("scheduled as it was tuned") == 3
    np.testing.assert_allclose(program["main"](X, W).numpy(), wanted(), rtol=1e-4)


@pytest.mark.parametrize("prepack", [False, True])
def test_static_shape_tuning_applies_what_the_folder_has(tmp_path, prepack):
    folder = str(tmp_path / "logs")
    options = {"target": ONE_CORE, "work_dir": folder, "cpu_weight_prepack": prepack}
    pipeline = get_pipeline("static_shape_tuning", total_trials=0, **options)
    loops = [fn for fn in pipeline(graph()).functions.values() if isinstance(fn, PrimFunc)]
    database = by_hand([relaxvm.IRModule({"main": fn}) for fn in loops], folder)
    mod = pipeline(graph())
    marked = [fn for fn in mod.functions.values() if fn.get_attr("tir.is_scheduled")]
    assert len(marked) == len(database) >= 3
    vm = relax.VirtualMachine(relaxvm.build(mod, ONE_CORE))
    weights = vm["main_transform_params"]((W,)) if prepack else (W,)
    np.testing.assert_allclose(vm["main"](X, *weights).numpy(), wanted(), rtol=1e-4)
    if prepack:
        panels = {512: (1, 32, 48), 256: (2, 32, 24)}
        assert weights[0].shape == panels[cpu_model(ONE_CORE).vector_bits]


@pytest.mark.slow
def test_static_shape_tuning_measures(tmp_path):
    pipeline = get_pipeline(
        "static_shape_tuning", total_trials=3, target=ONE_CORE, work_dir=str(tmp_path / "new")
    )
    program = relaxvm.build(pipeline(graph()), ONE_CORE)
    np.testing.assert_allclose(program["main"](X, W).numpy(), wanted(), rtol=1e-4)
    assert (tmp_path / "new" / "trials.jsonl").exists()


def test_the_passes_keep_records_and_leave_the_module(tmp_path):
    fused = transform.FuseTIR()(transform.FuseOps()(get_pipeline("zero")(graph(W))))
    with ONE_CORE:
        tune = transform.MetaScheduleTuneIRMod({}, tmp_path, 1, op_names=["softmax"])
        assert tune(fused) is fused
        applied = transform.MetaScheduleApplyDatabase(tmp_path)(fused)
        assert list(applied.functions) == list(fused.functions)
        with pytest.raises(ScheduleError, match="nothing to tune"):
            transform.MetaScheduleTuneIRMod({}, tmp_path, 1)(graph())
        with pytest.raises(ScheduleError, match="op_names: wanted a list of words"):
            transform.MetaScheduleTuneIRMod({}, tmp_path, 1, op_names="softmax")(fused)
        with pytest.raises(VerifyError, match="nobody"):
            transform.MetaScheduleTuneIRMod({"nobody": W}, tmp_path, 1)(fused)


def strange(n=8):
    a, b = te.placeholder((n, n), "float32", "A"), te.placeholder((n, n), "float32", "B")
    k = te.reduce_axis((0, n), "k")
    out = te.compute((n, n), lambda i, j: te.sum(a[k, i] * b[j, k], [k]), "out")
    return te.create_prim_func([a, b, out])


def test_every_loop_function_is_tuned(tmp_path):
    mod = relaxvm.IRModule({"f": strange(), "g": strange(4)})
    with ONE_CORE:
        transform.MetaScheduleTuneTIR(tmp_path, 2, 1)(mod)
    lines = (tmp_path / "trials.jsonl").read_text().split("\n")
    assert len({line.split('"')[1] for line in lines if line}) == 2


@pytest.mark.parametrize("benchmark", [False, True])
def test_few_shots_schedule_everything(benchmark):
    mod = relaxvm.IRModule({"f": strange()})
    with ONE_CORE:
        new = transform.FewShotTuning(valid_count=1, benchmark=benchmark)(mod)
    assert new["f"].attrs["tir.is_scheduled"]
    arrays = [np.random.default_rng(2).standard_normal((8, 8), "float32") for _ in range(2)]
    out = relaxvm.nd.array(np.zeros((8, 8), "float32"))
    relaxvm.build(new)["f"](*map(relaxvm.nd.array, arrays), out)
    np.testing.assert_allclose(out.numpy(), (arrays[1] @ arrays[0]).T, rtol=1e-4)
