"""Choices about a model as a whole: measured by turns, kept in databases, obeyed by builds."""

import numpy as np
import pytest

import relaxvm
import relaxvm.meta_schedule as ms
from relaxvm import relax
from relaxvm.base import LoadError
from relaxvm.choices import Choices, choices_from_json, model_key
from relaxvm.meta_schedule.measure import sign_test
from relaxvm.target import Target, cpu_model
from relaxvm.whole_models import WholeModel

ONE_CORE = Target("llvm -num-cores=1")


def graph(weight=1.0):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((1, 3, 8, 8), "float32"))
    w = relax.const(np.full((4, 3, 3, 3), weight, "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(relax.op.nn.conv2d(x, w, padding=1))
            out = bb.emit_output(relax.op.nn.relu(y))
        bb.emit_func_output(out)
    return bb.get()


X = np.random.default_rng(0).standard_normal((1, 3, 8, 8), "float32")
CHOICES = Choices("bytecode", 1, ("FuseOps",), {"relax.nn.conv2d": ["NHWC", "OHWI"]})


def test_builds_obey_what_a_database_has_of_a_model(tmp_path):
    wanted = relaxvm.build(graph(), ONE_CORE)["main"](X).numpy()
    database = ms.JSONDatabase(tmp_path / "t.json", tmp_path / "t.json")
    database.commit_choices(model_key(graph()), CHOICES.as_json(), ONE_CORE)
    # Another database on the same file reads it; contents of weights do not count.
    for each in (database, ms.JSONDatabase(tmp_path / "t.json", tmp_path / "t.json")):
        with each, relaxvm.transform.PassContext() as context:
            program = relaxvm.build(graph(), ONE_CORE)
            assert "measured to be fastest: exec_mode=bytecode" in str(context.report)
        assert "fused_" not in program.as_text()
        np.testing.assert_allclose(program["main"](X).numpy(), wanted, rtol=1e-4, atol=1e-4)
    assert "fused_" in relaxvm.build(graph(), ONE_CORE).as_text()
    with ms.DispatchContext(database):
        assert "fused_" not in relaxvm.build(graph(), ONE_CORE).as_text()
    with database:
        assert "fused_" not in relaxvm.build(graph(), "llvm -num-cores=2").as_text()
        other = relaxvm.build(graph(2.0), ONE_CORE)
        assert "fused_" not in other.as_text()
    memory = ms.database.MemoryDatabase()
    assert not memory.knows_models
    memory.merge(database)
    memory.merge(database)
    assert memory.query_choices(model_key(graph()), ONE_CORE) == CHOICES.as_json()
    union = ms.database.UnionDatabase(ms.database.MemoryDatabase(), memory)
    assert union.query_choices(model_key(graph())) == CHOICES.as_json()
    assert memory.query_choices(model_key(graph()), "llvm -mtriple=aarch64-linux-gnu") is None


def test_choices_are_data():
    assert choices_from_json(CHOICES.as_json()) == CHOICES
    assert str(Choices()) == "the default build" and "1 core" in str(CHOICES)
    for wrong in ({}, {**CHOICES.as_json(), "cores": 0}, {**CHOICES.as_json(), "without": [1]}, 3):
        with pytest.raises(LoadError, match="saved as a map"):
            choices_from_json(wrong)


def test_every_choice_is_compared_and_only_what_is_faster_is_kept(monkeypatch):
    model = WholeModel(graph(), Target("llvm"), lambda program: [X], seconds=0.01)
    heard, whole = [], ms.Whole()

    def compare(one, other):
        assert np.allclose(one().numpy(), other().numpy(), rtol=1e-3, atol=1e-3)
        taken = len(heard) == 0
        return sign_test([[2.0, 1.0 if taken else 3.0]] * 8, 0.95)

    monkeypatch.setattr(model, "compare", compare)
    chosen = model.choose(float("inf"), whole, lambda kind, task, text: heard.append(text))
    assert chosen == Choices(without=("FuseOps",))
    assert [c.holds for _, c in whole.tried] == [True] + [False] * (len(whole.tried) - 1)
    assert len(whole.tried) == 3 + (cpu_model(Target("llvm")).cores > 1)
    assert all("without FuseOps" in what for what, _ in whole.tried)
    assert whole.to_plain()["chosen"] == "without FuseOps" and "not taken" in str(whole)
    late = ms.Whole()
    assert model.choose(0.0, late, lambda kind, task, text: None) == Choices() and not late.tried


def test_what_gives_other_results_is_not_compared():
    model = WholeModel(graph(), ONE_CORE, lambda program: [X], seconds=0.01)
    other = WholeModel(graph(1.5), ONE_CORE, lambda program: [X], seconds=0.01)
    assert model.compare(model.default, other.default) is None
    assert model.compare(model.default, model.default).pairs >= 5


@pytest.mark.slow
def test_tuning_tells_what_was_chosen_for_the_whole(tmp_path):
    tuned = relaxvm.tune(
        graph(), 600, target=ONE_CORE, max_trials_per_task=1, work_dir=tmp_path, inputs=[X]
    )
    assert {what for what, _ in tuned.whole.tried} >= {"without FuseOps"}
    assert "the whole model" in str(tuned) and tuned.to_plain()["whole"]["chosen"]
    alone = relaxvm.tune(graph(), 600, target=ONE_CORE, max_trials_per_task=1, whole_model=False)
    assert alone.whole is None
