"""Databases of tuned schedules, and builds that ask them."""

import errno
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import meta_schedule as ms
from relaxvm import relax, relay
from relaxvm.base import LoadError, ScheduleError
from relaxvm.ir import IRModule, assert_structural_equal
from relaxvm.meta_schedule.arg_info import ArgInfo, TensorInfo
from relaxvm.meta_schedule.database import (
    JSONDatabase,
    MemoryDatabase,
    OrderedUnionDatabase,
    ScheduleFnDatabase,
    TuningRecord,
    UnionDatabase,
    Workload,
)
from relaxvm.meta_schedule.dispatch import DispatchContext
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from relaxvm.tir import Schedule


@T.prim_func
def product(
    A: T.Buffer((32, 32), "float32"),
    B: T.Buffer((32, 32), "float32"),
    C: T.Buffer((32, 32), "float32"),
):
    for i, j, k in T.grid(32, 32, 32):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((8, 16), "float32"), w: R.Tensor((16, 32), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, w))
            R.output(y)
        return y


def split(factor, fn=product):
    sch = Schedule(fn)
    i, _, _ = sch.get_loops(sch.get_block("C"))
    sch.split(i, factors=[None, factor])
    return sch


def record(factor, seconds, fn=product, target="llvm"):
    return TuningRecord(
        split(factor, fn).trace, Workload(fn), seconds, target, ArgInfo.from_prim_func(fn)
    )


def kernel_of(mod):
    """The only kernel of `mod` as a build schedules it: what is looked up."""
    from relaxvm.pipeline import _planned, reachable_kernels

    loops = reachable_kernels(_planned(mod, "default")[0])
    (fn,) = loops.functions.values()
    return fn


def test_the_fastest_record_answers_and_what_did_not_run_is_none():
    database = MemoryDatabase()
    workload = database.commit_workload(IRModule({"main": product}))
    assert database.has_workload(IRModule({"other": product}))
    for factor, seconds in ((2, [3e-3]), (4, [1e-3, 2e-3]), (8, None), (16, [float("inf")])):
        database.commit_tuning_record(record(factor, seconds))
    assert [r.seconds for r in database.get_top_k(workload, 5)] == [1.5e-3, 3e-3]
    assert database.get_top_k(workload, 0) == [] and len(database) == 4
    best = database.query_tuning_record(product, "llvm")
    assert best.seconds == 1.5e-3
    assert_structural_equal(database.query_ir_module(product, "llvm"), split(4).mod)
    assert database.query(product, "llvm", kind="record") is best
    with pytest.raises(ScheduleError, match="kind is one of"):
        database.query(product, kind="best")
    assert database.query_schedule(product.with_attr("tir.noalias", True)) is not None
    assert database.query_schedule(kernel_of(Model)) is None


def test_records_hold_for_the_cpu_they_were_measured_on():
    narrow, wide = "llvm -mcpu=znver2", "llvm -mcpu=skylake-avx512"
    database = MemoryDatabase()
    database.commit_tuning_record(record(2, [1.0], target=narrow))
    assert database.query_tuning_record(product, narrow)
    assert database.query_tuning_record(product, "llvm -mcpu=znver3") is None
    assert database.query_tuning_record(product, wide) is None
    assert database.query_tuning_record(product, "c") is None
    assert database.query_tuning_record(product) is not None
    database.commit_tuning_record(record(4, [2.0], target=wide))
    starts = database.starting_points(product, wide)
    assert [r.seconds for r in starts] == [2.0, 1.0]
    assert len(database.starting_points(product, wide, top_k=1)) == 1


def test_files_are_read_back_and_grow_by_lines(tmp_path):
    folder = tmp_path / "a folder"
    database = JSONDatabase(work_dir=folder)
    database.commit_workload(IRModule({"main": product}))
    for factor in (2, 4):
        database.commit_tuning_record(record(factor, [1.0 / factor]))
    again = JSONDatabase(work_dir=folder, allow_missing=False)
    assert len(again) == 2
    best = again.query_tuning_record(product, "llvm")
    assert str(best.trace) == str(split(4).trace)
    assert best.args_info == [TensorInfo("float32", (32, 32))] * 3
    assert best.target.mcpu  # this computer's: "llvm" is another one elsewhere
    assert_structural_equal(best.workload.mod["main"], product)
    pruned = JSONDatabase(folder / "w.json", folder / "r.json")
    again.dump_pruned(pruned)
    assert [
        r.seconds
        for r in JSONDatabase(folder / "w.json", folder / "r.json").get_all_tuning_records()
    ] == [0.25]
    with pytest.raises(LoadError, match="no file"):
        JSONDatabase(work_dir=tmp_path / "other", allow_missing=False)
    with pytest.raises(ScheduleError, match="wanted work_dir"):
        JSONDatabase(tmp_path / "only")


def test_broken_lines_are_left_out_and_counted(tmp_path):
    database = JSONDatabase(work_dir=tmp_path)
    database.commit_tuning_record(record(2, [1.0]))
    records = tmp_path / "database_tuning_record.json"
    whole = records.read_text()
    wrong = [
        "{}", "[1]", "null", '["x", []]', '"' , "[" * 5000, whole[: len(whole) // 2],
        json.dumps([json.loads(whole)[0], [[], ["a"], None, None]]),
        json.dumps([json.loads(whole)[0], [[], [1.0], {"kind": "nothing"}, None]]),
        json.dumps([json.loads(whole)[0], [[], [1.0], None, [["TENSOR"]]]]),
    ]  # fmt: skip
    records.write_text("\n".join([*wrong, ""]) + whole)
    with pytest.warns(UserWarning, match="6 lines are left out .at byte 0: "):
        again = JSONDatabase(work_dir=tmp_path)
    with pytest.warns(UserWarning, match="4 lines are left out .at byte 50"):
        assert len(again.get_all_tuning_records()) == 1
    assert len(again) == 1
    # A line that was cut short is cut off before another is written.
    records.write_text(whole + whole[:20])
    again = JSONDatabase(work_dir=tmp_path)
    assert len(again) == 1
    again.commit_tuning_record(record(4, [0.5]))
    assert len(JSONDatabase(work_dir=tmp_path).get_all_tuning_records()) == 2
    assert records.read_text().count("\n") == 2
    records.write_text("")
    assert len(again) == 0


def test_records_say_where_when_and_what_they_gave(tmp_path):
    database = JSONDatabase(work_dir=tmp_path)
    database.commit_tuning_record(TuningRecord.of(split(4), Workload(product), [1.0], "llvm"))
    (held,) = JSONDatabase(work_dir=tmp_path).get_all_tuning_records()
    assert {"machine", "cores", "date", "python", "numpy", "result"} <= held.about.keys()
    assert_structural_equal(held.schedule(product).mod, split(4).mod)
    held.about["result"] = "something else"
    with pytest.raises(ScheduleError, match="another function"):
        held.schedule()


def test_databases_that_share_files_see_each_other_and_are_merged(tmp_path):
    one, two = JSONDatabase(work_dir=tmp_path), JSONDatabase(work_dir=tmp_path)
    one.commit_tuning_record(record(2, [1.0]))
    assert two.query_tuning_record(product, "llvm").seconds == 1.0
    two.commit_tuning_record(record(4, [0.5]))
    assert len(one) == 2 and one.query_tuning_record(product, "llvm").seconds == 0.5
    other = MemoryDatabase()
    other.commit_tuning_record(record(8, [0.25]))
    assert [one.merge(other), one.merge(other), one.merge(two)] == [1, 0, 0]
    assert len(two) == 3


def test_a_full_disk_keeps_records_until_there_is_room(tmp_path, monkeypatch):
    database = JSONDatabase(work_dir=tmp_path)
    database.commit_tuning_record(record(2, [1.0]))
    write = os.write

    def full(fd, data):
        if len(data) < 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, bytes(data)[: len(data) // 2])

    monkeypatch.setattr(ms.line_file.os, "write", full)
    with pytest.warns(RuntimeWarning, match="cannot be written.*1 lines wait"):
        database.commit_tuning_record(record(4, [0.5]))
    assert database.query_tuning_record(product, "llvm").seconds == 0.5 and len(database) == 2
    assert len(JSONDatabase(work_dir=tmp_path)) == 1
    monkeypatch.undo()
    database.commit_tuning_record(record(8, [0.25]))
    for each in (database, JSONDatabase(work_dir=tmp_path)):
        assert sorted(r.seconds for r in each.get_all_tuning_records()) == [0.25, 0.5, 1.0]


_WRITER = """
import sys
from relaxvm.meta_schedule.database import JSONDatabase, TuningRecord
database = JSONDatabase(work_dir=sys.argv[1])
(workload,) = {r.workload for r in database.get_all_tuning_records()}
for k in range(int(sys.argv[2])):
    database.commit_tuning_record(TuningRecord([[], []], workload, [1.0 + k], "llvm"))
    print(k, flush=True)
"""


@pytest.mark.slow
def test_two_writers_at_once_lose_nothing(tmp_path):
    JSONDatabase(work_dir=tmp_path).commit_tuning_record(record(2, [1.0]))
    command = [sys.executable, "-c", _WRITER, str(tmp_path), "200"]
    writers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert len(JSONDatabase(work_dir=tmp_path).get_all_tuning_records()) == 401


# Children of `fork` write and say so, each until it is killed.
_KILLED = """
import os, random, signal, sys, time
from relaxvm.meta_schedule.database import JSONDatabase, TuningRecord
told, rng = 1, random.Random(0)
for turn in range(100):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        database = JSONDatabase(work_dir=sys.argv[1])
        (workload,) = database._workloads.values()
        for k in range(1000000):
            database.commit_tuning_record(TuningRecord([[], []], workload, [1.0 + k], "llvm"))
            os.write(writing, b".")
    os.close(writing)
    told += len(os.read(reading, 1))
    time.sleep(rng.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while data := os.read(reading, 1 << 16):
        told += len(data)
    os.close(reading)
    held = len(JSONDatabase(work_dir=sys.argv[1]))
    assert told <= held <= told + 1, (turn, told, held)
    told = held
assert len(JSONDatabase(work_dir=sys.argv[1]).get_all_tuning_records()) == told
"""


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_loses_nothing_it_had_told(tmp_path):
    JSONDatabase(work_dir=tmp_path).commit_tuning_record(record(2, [1.0]))
    subprocess.run([sys.executable, "-W", "error", "-c", _KILLED, str(tmp_path)], check=True)


@pytest.mark.slow
def test_a_writer_cut_at_any_byte_goes_on(tmp_path):
    database = JSONDatabase(work_dir=tmp_path)
    database.commit_tuning_record(record(2, [1.0]))
    file = tmp_path / "database_tuning_record.json"
    whole = file.read_bytes()
    for size in range(0, len(whole), 7):
        file.write_bytes(whole + whole[:size])
        database = JSONDatabase(work_dir=tmp_path)
        database.commit_tuning_record(record(4, [0.5]))
        assert len(JSONDatabase(work_dir=tmp_path).get_all_tuning_records()) == 2


def test_a_workload_that_is_not_what_its_key_says_is_an_error(tmp_path):
    database = JSONDatabase(work_dir=tmp_path)
    database.commit_tuning_record(record(2, [1.0]))
    file = tmp_path / "database_workload.json"
    key, text = json.loads(file.read_text())
    file.write_text(json.dumps([key, text.replace("32", "16")]))
    (held,) = JSONDatabase(work_dir=tmp_path).get_all_tuning_records()
    with pytest.raises(LoadError):
        _ = held.trace


def test_unions_take_the_best_or_the_first():
    slow, fast = MemoryDatabase(), MemoryDatabase()
    slow.commit_tuning_record(record(2, [2.0]))
    fast.commit_tuning_record(record(4, [1.0]))
    assert UnionDatabase(slow, fast).query_tuning_record(product).seconds == 1.0
    assert OrderedUnionDatabase(slow, fast).query_tuning_record(product).seconds == 2.0
    assert UnionDatabase().query_schedule(product) is None
    with pytest.raises(ScheduleError, match="wanted databases"):
        UnionDatabase(3)
    assert ms.Database.create("memory").query_schedule(product) is None


@pytest.mark.parametrize("make", [relax.build, lambda mod: relay.build(mod, "llvm")])
def test_a_build_takes_what_was_tuned_and_computes_the_same(make):
    asked = []

    def tune(sch):
        asked.append(sch.mod["main"])
        sch.parallel(sch.get_loops(sch.get_block("matmul"))[0])
        return True

    mod = IRModule({"main": Model["main"]})
    with ScheduleFnDatabase(tune) as database:
        assert ms.Database.current() is database
        tuned = make(mod)
    assert ms.Database.current() is None
    assert len(asked) == 1
    x, w = np.random.rand(8, 16).astype("float32"), np.random.rand(16, 32).astype("float32")
    if make is relax.build:
        result = relax.VirtualMachine(tuned, tvm.cpu())["main"](tvm.nd.array(x), tvm.nd.array(w))
        text = str(tuned.explain())
        assert "scheduled as it was tuned" in text
    else:
        graph = tvm.contrib.graph_executor.GraphModule(tuned["default"](tvm.cpu()))
        graph.run(x=x, w=w)
        result = graph.get_output(0)
    np.testing.assert_allclose(result.numpy(), np.maximum(x @ w, 0), rtol=1e-5)


def test_a_context_looks_into_the_records_then_around_then_into_what_is_bundled(
    tmp_path, monkeypatch
):
    fn = kernel_of(Model)
    sch = Schedule(fn)
    sch.parallel(sch.get_loops(sch.get_block("matmul"))[0])

    def filled(folder, seconds):
        database = JSONDatabase(work_dir=folder)
        database.commit_tuning_record(TuningRecord(sch.trace, Workload(fn), [seconds], "llvm"))
        return folder

    filled(tmp_path / "mine", 1.0)
    JSONDatabase(work_dir=tmp_path / "empty").commit_workload(IRModule({"main": product}))
    (tmp_path / "empty" / "database_tuning_record.json").touch()
    filled(tmp_path / "bundled" / "cpu", 3.0)
    monkeypatch.setattr(ms.dispatch, "BUNDLED", tmp_path / "bundled")
    with DispatchContext(tmp_path / "mine") as context:
        assert DispatchContext.current() is context
        assert context.query(fn, "llvm").seconds == 1.0
        assert context.query(product) is None
        with tvm.autotvm.apply_history_best(tmp_path / "empty" / "database_tuning_record.json"):
            ex = relax.build(Model)
    assert "scheduled as it was tuned" in str(ex.explain())
    assert tvm.autotvm.tophub.context("llvm", [tmp_path / "empty"]).query(fn).seconds == 3.0
    assert DispatchContext(bundled=False).query(fn) is None
    assert DispatchContext.current() is None


def test_what_is_no_record_is_an_error_that_says_so(tmp_path):
    log = tmp_path / "conv.log"
    log.write_text('{"input": ["llvm", "conv2d.x86", []], "config": {"index": 1}, "result": []}\n')
    with pytest.raises(LoadError, match="AutoTVM"):
        DispatchContext(log)
    log.write_bytes(b"\x00\xff" * 100)
    with pytest.raises(LoadError, match="no file of records"):
        DispatchContext(log)
    with pytest.raises(LoadError, match="there is no file"):
        DispatchContext(tmp_path / "missing.json")
    with pytest.raises(LoadError, match="wanted a database or a path, got int"):
        DispatchContext(3)


def test_a_trace_that_does_not_fit_is_left_out_with_a_warning():
    def refuse(sch):
        sch.get_block("there is none")

    with ScheduleFnDatabase(refuse), pytest.warns(UserWarning, match="is left out.*there is none"):
        ex = relax.build(Model)
    assert "scheduled as it was tuned" not in str(ex.explain())


def test_exact_numerics_ask_no_database_and_other_threads_see_none():
    def never(sch):
        raise AssertionError

    with ScheduleFnDatabase(never):
        with tvm.transform.PassContext(config={"numerics": "exact"}):
            relax.build(Model)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(ms.Database.current()))
        thread.start()
        thread.join()
        assert seen == [None]


def test_the_pass_applies_a_database_or_a_folder(tmp_path):
    database = JSONDatabase(work_dir=tmp_path)
    database.commit_tuning_record(record(4, [1.0]))
    mod = IRModule({"f": product})
    for tuned in (
        relax.transform.MetaScheduleApplyDatabase(str(tmp_path))(mod),
        relax.transform.MetaScheduleApplyDatabase(work_dir=tmp_path, enable_warning=True)(mod),
    ):
        assert tuned["f"].attrs["tir.is_scheduled"]
        assert_structural_equal(tuned["f"].body, split(4).mod["main"].body)
    assert relax.transform.MetaScheduleApplyDatabase()(mod) is mod
    with database:
        assert relax.transform.MetaScheduleApplyDatabase()(mod) is not mod
