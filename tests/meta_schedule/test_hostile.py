"""What goes wrong around a tuner: interrupts at any moment, full disks, other tuners, old files."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import relaxvm
from relaxvm import meta_schedule as ms
from relaxvm import te
from relaxvm.choices import model_key
from relaxvm.ir import IRModule
from relaxvm.meta_schedule import Measurer, Task, heard, interrupts
from relaxvm.meta_schedule.database import (
    JSONDatabase,
    MemoryDatabase,
    TuningRecord,
    Workload,
)
from relaxvm.meta_schedule.interrupts import check, held
from relaxvm.tir import Schedule
from tests.meta_schedule.test_whole_models import graph


def product(n=12):
    a, b = te.placeholder((n, n, n), "float32", "A"), te.placeholder((n, n), "float32", "B")
    j, k = te.reduce_axis((0, n), "j"), te.reduce_axis((0, n), "k")
    out = te.compute((n, n), lambda i, m: te.sum(a[k, i, j] * b[j, m], [j, k]), "out")
    return te.create_prim_func([a, b, out])


# Tunes in a folder and tells what came of it.
PROGRAM = """
import os, sys
import relaxvm
from relaxvm.ir import load_json
fn = load_json(open(sys.argv[1]).read())
{before}
def listener(kind, task, text):
    print(kind, flush=True)
tuned = relaxvm.tune(
    fn, {seconds}, work_dir=sys.argv[2], num_threads=1, max_trials={trials}, listener=listener
)
with tuned.database:
    relaxvm.relax.transform.MetaScheduleApplyDatabase()(relaxvm.IRModule({{"main": fn}}))
trials = sum(task.trials for task in tuned.tasks)
print("ended", tuned.ended, trials, len(tuned.database), flush=True)
"""


def tuner(tmp_path, before="", seconds=600, trials=4, **options):
    saved = tmp_path / "kernel.json"
    saved.write_text(relaxvm.ir.save_json(product()))
    program = PROGRAM.format(before=textwrap.dedent(before), seconds=seconds, trials=trials)
    return subprocess.Popen(
        [sys.executable, "-c", program, str(saved), str(tmp_path / "work")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        **options,
    )  # fmt: skip


def ended(process):
    """The last line of a tuner that ended as it should: why, trials, records."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-2000:]
    why, trials, records = out.splitlines()[-1].removeprefix("ended ").rsplit(maxsplit=2)
    return why, int(trials), int(records)


def processes_of(session):
    """Processes of a session that still run."""
    running = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{int(entry)}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except (ValueError, OSError):
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            running.append(int(entry))
    return running


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are listed by /proc")
@pytest.mark.parametrize("seed", range(3))
def test_an_interrupt_at_any_moment_keeps_what_there_is(tmp_path, seed):
    rng = random.Random(seed)
    process = tuner(tmp_path, seconds=60, trials=1000)
    # The default schedule was measured: from here on there is something to keep.
    assert process.stdout.readline().strip() == "task"
    time.sleep(rng.random() * 4)
    # As a terminal does it: the workers get it, too.
    os.killpg(process.pid, signal.SIGINT)
    why, trials, records = ended(process)
    assert why in ("interrupted", "time", "nothing more to win", "no more candidates")
    until = time.monotonic() + 10
    while processes_of(process.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not processes_of(process.pid)
    assert len(JSONDatabase(work_dir=tmp_path / "work")) == records
    assert ended(tuner(tmp_path, trials=1))[0] == "trials"


# Sends itself signals, some together, from before the first process is started.
SIGNALS = """
whole = relaxvm.meta_schedule.interrupts()
whole.__enter__()
import random, signal, threading, time
def disturb():
    rng = random.Random({seed})
    time.sleep(rng.random() * 5)
    for _ in range({count}):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(rng.choice((0.0, 0.001, 0.05, 1.0)))
threading.Thread(target=disturb, daemon=True).start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_several_interrupts_at_any_moment_leave_no_traceback(tmp_path, seed):
    before = SIGNALS.format(seed=seed, count=1 + seed % 3)
    process = tuner(tmp_path, before, seconds=4, trials=1000)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and "Traceback" not in err, err[-2000:]
    assert out.splitlines()[-1].startswith("ended "), out
    assert len(JSONDatabase(work_dir=tmp_path / "work")) == int(out.split()[-1])


def test_an_interrupt_inside_of_executed_text_does_not_end_the_process():
    program = """if True:
        import signal
        from relaxvm.meta_schedule import heard, interrupts
        with interrupts():
            try:
                with heard():
                    exec("signal.raise_signal(signal.SIGINT)")
            except KeyboardInterrupt:
                print("caught")
    """
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "caught\n"


def test_interrupts_are_raised_where_they_are_heard():
    def press():
        signal.raise_signal(signal.SIGINT)

    def write():
        with held():
            press()
            done.append("written")
        done.append("not reached")

    def put_away():
        try:
            press()
        finally:
            press()  # waits for the next one who hears
            done.append("put away")

    done = []
    with interrupts() as told:
        press()  # waits
        with pytest.raises(KeyboardInterrupt), heard():
            done.append("not reached")
        with pytest.raises(KeyboardInterrupt), heard():
            write()
        with pytest.raises(KeyboardInterrupt), heard():
            put_away()
        with pytest.raises(KeyboardInterrupt), heard():
            pass
        with heard(), interrupts() as inner:
            assert inner is told
    assert done == ["written", "put away"] and told.count == 4
    with pytest.raises(KeyboardInterrupt):
        press()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_is_raised_again():
    class Last:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    with interrupts():
        with heard():
            Last()
            with pytest.raises(KeyboardInterrupt):
                check()


def test_interrupts_of_search_finals_and_end_keep_what_there_is(tmp_path, monkeypatch):
    """One after another, the last ones while processes are closed."""
    notes = []

    def listener(kind, task, text):
        notes.append((kind, text))
        if kind == "trials" and task.trials == 1:
            signal.raise_signal(signal.SIGINT)

    def pressed(function):
        def wrapped(*args, **options):
            signal.raise_signal(signal.SIGINT)
            return function(*args, **options)

        return wrapped

    monkeypatch.setattr(Measurer, "beats", pressed(Measurer.beats))
    monkeypatch.setattr(Measurer, "close", pressed(Measurer.close))
    monkeypatch.setattr(ms.runner.LocalRunner, "close", pressed(ms.runner.LocalRunner.close))
    monkeypatch.setattr(Task, "ran", lambda self, c, *_: self.fastest.append((1.0, c)))
    tuned = relaxvm.tune(product(6), 600, max_trials=8, work_dir=tmp_path, listener=listener)
    (task,) = tuned.tasks
    assert tuned.ended == "interrupted" and task.trials == 1 and task.final is None
    assert [text.split(":")[0] for kind, text in notes if kind == "note"] == ["interrupted"] * 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_an_interrupt_of_the_finals_keeps_what_was_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(Task, "ran", lambda self, c, *_: self.fastest.append((1.0, c)))

    def stop(kind, task, text):
        if kind == "final":
            raise KeyboardInterrupt

    tuned = relaxvm.tune(product(20), 600, max_trials=8, work_dir=tmp_path, listener=stop)
    (task,) = tuned.tasks
    assert tuned.ended == "interrupted" and task.trials == 8 and task.final is not None
    assert (len(tuned.database) == 1) == task.final.holds


@pytest.mark.slow
def test_a_full_disk_ends_no_tuning(tmp_path):
    pytest.importorskip("resource")
    before = """
    import resource, warnings
    warnings.simplefilter("ignore", RuntimeWarning)
    os.environ["RELAXVM_CACHE"] = "0"
    os.makedirs(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    """
    why, trials, records = ended(tuner(tmp_path, before, trials=2))
    assert (why, trials) == ("trials", 2)
    files = [file for file in (tmp_path / "work").iterdir() if file.is_file()]
    assert all(file.stat().st_size <= 64 for file in files)


@pytest.mark.slow
def test_two_tuners_share_a_folder(tmp_path):
    first, second = tuner(tmp_path, trials=16), tuner(tmp_path, trials=16)
    results = [ended(first), ended(second)]
    assert [(why, trials) for why, trials, _ in results] == [("trials", 16)] * 2
    lines = (tmp_path / "work" / "trials.jsonl").read_text().splitlines()
    assert sum(bool(json.loads(line)) for line in lines if line) == 32
    held = JSONDatabase(work_dir=tmp_path / "work")
    assert len(held.get_all_tuning_records()) == max(records for _, _, records in results)


def test_records_of_another_version_are_left_out_and_stay(tmp_path):
    fn = product()
    database = JSONDatabase(work_dir=tmp_path)
    database.commit_tuning_record(TuningRecord.of(Schedule(fn), Workload(fn), [1.0], "llvm"))
    file = tmp_path / "database_tuning_record.json"
    key, saved, about = json.loads(file.read_text())
    trace = [[["a_skew_of_later", {"by": 3}, []]], []]
    later = [
        [key, [*saved, "something new"], about],
        [key, saved, about, {"version": 99}],
        [key, [saved[0], saved[1], {"kind": "llvm", "an-option-of-later": 3}, saved[3]], about],
    ]
    unknown = [key, [trace, [0.5], *saved[2:]], {}]
    with open(file, "a") as more:
        more.write("".join(json.dumps(line) + "\n" for line in (*later, unknown)))
    before = file.read_bytes()
    again = JSONDatabase(work_dir=tmp_path)
    with pytest.warns(UserWarning, match="3 lines are left out"):
        assert [r.seconds for r in again.get_all_tuning_records()] == [1.0, 0.5]
    # A build says so, and does without.
    with pytest.warns(UserWarning, match="a_skew_of_later"), again:
        relaxvm.relax.transform.MetaScheduleApplyDatabase()(IRModule({"main": fn}))
    # What another version wrote is still there for it.
    assert file.read_bytes() == before


def test_what_another_version_or_machine_wrote_ends_no_build(tmp_path):
    fn, model = product(4), graph()
    database = JSONDatabase(work_dir=tmp_path)
    made = TuningRecord.of(Schedule(fn), Workload(fn), [1.0], "llvm")
    database.commit_tuning_record(made)
    database.commit_choices(model_key(model), {"exec_mode": "of later"}, "llvm")
    records = tmp_path / "database_tuning_record.json"
    key, saved, about = json.loads(records.read_text())
    newer = [key, [*saved[:2], {"kind": "llvm", "mcpu": "znver99"}, saved[3]], about]
    with open(records, "ab") as file:
        file.write(json.dumps(newer).encode() + b"\n")
        file.write(b'["' + b"\xff" * 64 + b'", [[], [1.0], null, null]]\n')
        file.write(b"  " + json.dumps([key, saved, about]).encode() + b"  \n")
    with open(tmp_path / "database_workload.json", "ab") as file:
        file.write(b'["model 1", {"choices": {}, "target": {"kind": "of later"}}]\n')
        file.write(json.dumps([Workload(product(5)).key, "{}"]).encode() + b"\n")
    with pytest.warns(UserWarning, match="1 lines are left out"):
        again = JSONDatabase(work_dir=tmp_path)
    assert len(again.get_all_tuning_records()) == 3
    # A CPU that this LLVM does not know is another one.
    assert again.query_tuning_record(fn, "llvm").target.mcpu == saved[2]["mcpu"]
    with pytest.warns(UserWarning, match="what was tuned of the model is left out"), again:
        relaxvm.build(model)
    MemoryDatabase().merge(again)
    broken = TuningRecord(made.trace, again.commit_workload(IRModule({"main": product(5)})), [1.0])
    again.commit_tuning_record(broken)
    pruned = MemoryDatabase()
    with pytest.warns(UserWarning, match="a record is left out"):
        again.dump_pruned(pruned)
    assert len(pruned) == 1


def test_records_are_read_when_they_are_asked_for(tmp_path, monkeypatch):
    fn, other = product(), product(6)
    database = JSONDatabase(work_dir=tmp_path)
    for each in (fn, other):
        database.commit_tuning_record(TuningRecord.of(Schedule(each), Workload(each), [1.0]))
    file = tmp_path / "database_tuning_record.json"
    first, last = file.read_text().splitlines()
    file.write_text(f"{first}\n" * 100_000 + f"{last}\n")
    read = []
    parsed = TuningRecord.from_json
    monkeypatch.setattr(
        TuningRecord, "from_json", lambda *args: (read.append(args), parsed(*args))[1]
    )
    many = JSONDatabase(work_dir=tmp_path)
    assert len(many) == 100_001 and not read
    assert many.query_tuning_record(other).seconds == 1.0 and len(read) == 1
