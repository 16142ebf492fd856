"""What users pass that is wrong, or right in TVM's other spelling: found by walking through the
names and arguments one by one.
"""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import meta_schedule as ms
from relaxvm import relax
from relaxvm.base import RelaxvmError
from relaxvm.script import tir as T
from relaxvm.tir import ScheduleError

TARGET = "llvm --num-cores=1"


@T.prim_func
def shifted(A: T.Buffer((7, 13), "float32"), B: T.Buffer((7, 13), "float32")):
    for i, j in T.grid(7, 13):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(3)


@T.prim_func
def one_number(A: T.Buffer((), "float64"), B: T.Buffer((), "float64")):
    with T.block("B"):
        B[()] = A[()] + T.float64(1)


@T.prim_func
def nothing():
    T.evaluate(0)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("builder", 3), ("runner", 3), ("cost_model", 3), ("measure_callbacks", 3),
        ("measure_callbacks", [3]), ("task_scheduler", 3), ("strategy", 3), ("space", 3),
        ("special_space", 3), ("num_tuning_cores", None),
        ("seed", -3), ("seed", "a"), ("listener", 3), ("config", 3),
    ],
)  # fmt: skip
def test_a_part_of_no_kind_is_refused_by_its_name(part, value, tmp_path):
    options = {"work_dir": tmp_path, "max_trials_global": 1, "listener": False, part: value}
    with pytest.raises(ScheduleError, match=f"wanted .*got {value!r}|{part}.*wanted"):
        ms.tune_tir(shifted, TARGET, **options)
    assert not list(tmp_path.glob("*record*"))


class Text(ms.feature_extractor.PyFeatureExtractor):
    def extract_from(self, context, candidates):
        return [np.zeros(3)] * len(candidates)


class Lost(ms.database.PyDatabase):
    def get_all_tuning_records(self):
        raise KeyError("lost")


class Odd(ms.search_strategy.ReplayTrace):
    def propose(self, count):
        return [3]


class Nothing(ms.space_generator.PySpaceGenerator):
    def generate_design_space(self, mod):
        return []


class Number(ms.space_generator.PySpaceGenerator):
    def generate_design_space(self, mod):
        return [3]


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"cost_model": ms.cost_model.XGBModel(extractor=Text())}, r"Text.extract_from .*table of"),
        ({"database": Lost()}, "Lost.starting_points raised KeyError"),
        ({"strategy": Odd()}, r"Odd.generate_measure_candidates .*MeasureCandidate.*got \[3\]"),
        ({"space": Nothing()}, "Nothing designs nothing"),
        ({"space": Number()}, r"Number.generate_design_space .*a list of Schedule, got \[3\]"),
    ],
)
def test_what_parts_give_is_checked(parts, told):
    with pytest.raises(ScheduleError, match=told):
        ms.tune_tir(shifted, TARGET, max_trials_global=2, listener=False, **parts)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"space_generator": 3}, "space_generator: wanted a SpaceGenerator"),
        ({"search_strategy": 3}, "search_strategy: wanted a SearchStrategy"),
        ({"mod": 3}, "mod: wanted an IRModule"),
        ({"rand_state": "a"}, "rand_state: wanted a number"),
    ],
)
def test_a_context_refuses_what_it_cannot_search(options, told):
    with pytest.raises(ScheduleError, match=told):
        ms.TuneContext(**{"mod": shifted, "target": TARGET, **options})


def test_arguments_and_names_of_tvm():
    parts = "builder cost_model database feature_extractor measure_callback mutator postproc runner"
    parts += " schedule_rule search_strategy space_generator task_scheduler"
    for part in parts.split():
        assert callable(getattr(ms, part).create)
    assert ms.cost_model.RandomModel().max_range == 100
    assert ms.cost_model.XGBModel(num_warmup_samples=0, extractor="random").num_warmup_samples == 2
    with pytest.raises(ScheduleError, match="extractor: wanted a FeatureExtractor, got 3"):
        ms.cost_model.XGBModel(extractor=3)
    ms.runner.LocalRunner(f_alloc_argument=None, initializer=None)
    with pytest.raises(TypeError, match="unknown arguments: f_alloc"):
        ms.runner.LocalRunner(f_alloc=None)
    with pytest.raises(ScheduleError, match="f_export, initializer: kernels are written"):
        ms.builder.LocalBuilder(f_export="export")
    with pytest.raises(RelaxvmError, match="no function is registered as 'test.build'"):
        ms.builder.LocalBuilder(f_build="test.build")


@pytest.mark.parametrize("option", [{"num_threads": 0}, {"confidence": "a"}, {"seed": -1}])
def test_numbers_out_of_range_are_refused(option):
    (name,) = option
    with pytest.raises(ScheduleError, match=f"{name.replace('num_', '')}.*wanted|wanted a {name}"):
        tvm.tune(shifted, 5, max_trials=1, **option)


def test_tune_tir_by_position_in_both_spellings(tmp_path):
    newer = ms.tune_tir(shifted, TARGET, str(tmp_path / "newer"), 1, listener=False)
    config = ms.TuneConfig(max_trials_global=1, num_trials_per_iter=1)
    older = ms.tune_tir(shifted, TARGET, config, str(tmp_path / "older"), listener=False)
    assert "main" in newer.mod
    assert "main" in older.mod
    assert {p.name for p in tmp_path.iterdir()} == {"newer", "older"}
    with pytest.raises(ScheduleError, match="work_dir: wanted a folder, got 4"):
        ms.tune_tir(shifted, TARGET, config, 4)


def test_several_functions_are_tuned_as_one_schedule():
    database, sch = ms.database.MemoryDatabase(), tvm.tir.Schedule(shifted)
    sch.split(i := sch.get_loops("B")[1], sch.sample_perfect_tile(i, 2, decision=[13, 1]))
    workload = database.commit_workload(tvm.IRModule({"main": shifted}))
    database.commit_tuning_record(ms.database.TuningRecord.of(sch, workload, [1e-12], TARGET))
    mod = tvm.IRModule({"first": one_number, "second": shifted})
    tuned = ms.tune_tir(mod, TARGET, max_trials_global=1, database=database, listener=False)
    assert tvm.ir.structural_equal(
        tuned.mod["second"].without_attr("tir.is_scheduled"), sch.mod["main"]
    )
    for inst in tuned.trace.insts:
        assert inst.args.get("func_name", "second") in ("first", "second")
    assert "decision=[13, 1]" in str(tuned.trace)
    assert [gv.name_hint for gv in tuned.mod.functions] == ["first", "second"]
    assert ms.tir_integration.compile_tir(tuned, mod["second"], TARGET) is not None
    with pytest.raises(ScheduleError, match="no kernel is called third; there are: first, second"):
        ms.tune_tir(mod, TARGET, max_trials_global=1, special_space={"third": "post-order-apply"})


def test_a_kernel_whose_one_block_is_the_whole(tmp_path):
    tuned = ms.tune_tir(one_number, TARGET, tmp_path, 1, listener=False)
    assert tuned.trace is not None


def test_a_kernel_without_arguments():
    tuned = ms.tune_tir(nothing, TARGET, max_trials_global=1, listener=False)
    assert "main" in tuned.mod


def test_what_is_no_database_is_refused():
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    with pytest.raises(ScheduleError, match="wanted a Database, got 'folder'; JSONDatabase"):
        ms.relax_integration.compile_relax("folder", builder.get(), TARGET)
    union = ms.database.UnionDatabase(ms.database.MemoryDatabase())
    with pytest.raises(ScheduleError, match="UnionDatabase takes no records"):
        union.commit_tuning_record(None)
    workload = union.databases[0].commit_workload(tvm.IRModule({"main": shifted}))
    trace = tvm.tir.Schedule(shifted).trace
    assert ms.database.TuningRecord(trace, workload, [0.1]).is_valid()
    assert not ms.database.TuningRecord(trace, workload, None).is_valid()
