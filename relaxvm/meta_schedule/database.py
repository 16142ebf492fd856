"""Databases of tuned schedules: which traces were measured for a loop function, and their times.

A `Workload` is a loop function whose name and attributes do not count: equal computations share
their records. A database that is entered (``with database:``) is asked by every build of graph
functions inside.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import pathlib
import platform
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base import CodegenError, LoadError, PassError, ScheduleError, record, submodules
from ..ir import IRModule, load_json, save_json, structural_digest
from ..runtime import usable_cores
from ..runtime.locks import lock
from ..target import Target, cpu_model, machine_of
from ..tir import PrimFunc
from ..tir.schedule import Schedule, Trace
from ..tir.schedule.plans import SOURCES
from ..tir.transform import with_index_dtype
from .arg_info import TensorInfo, entry_of
from .line_file import LineFile

_EQUALITIES = ("structural", "ignore-ndarray", "anchor-block")


class Workload:
    """What is tuned: a module of one loop function, called main."""

    def __init__(self, mod: IRModule | PrimFunc) -> None:
        fn = entry_of(mod)
        self.key = key_of(fn)
        self._mod: IRModule | str = IRModule({"main": fn})

    @property
    def mod(self) -> IRModule:
        """The module. Raises LoadError if it was saved, and what was saved is broken."""
        if isinstance(self._mod, str):
            mod = load_json(self._mod)
            if not isinstance(mod, IRModule) or key_of(entry_of(mod)) != self.key:
                raise LoadError(f"the saved workload {self.key[:16]} is not what its key says")
            self._mod = mod
        return self._mod

    @property
    def keys(self) -> tuple[str, str]:
        """Its key, and that of its function with wide indices, of which tuning keeps records."""
        return self.key, key_of(with_index_dtype(entry_of(self.mod), "int64"))

    def as_json(self) -> list[str]:
        """Its key and its module, as text."""
        text = self._mod if isinstance(self._mod, str) else save_json(self._mod, spans=False)
        return [self.key, text]

    @staticmethod
    def from_json(json_obj: Any) -> Workload:
        """What `as_json` gave; the module is read when it is asked for. Raises LoadError for
        anything else.
        """
        match json_obj:
            case [str(key), str(text)]:
                workload = Workload.__new__(Workload)
                workload.key, workload._mod = key, text
                return workload
        raise LoadError("a workload is saved as [key, module]")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workload) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Workload({self.key[:16]})"


def key_of(fn: PrimFunc) -> str:
    """The same text for loop functions that compute the same in the same way, whatever they and
    their variables are called.
    """
    return structural_digest(fn.replace(attrs={})).hex()


class TuningRecord:
    """A schedule that was tried: its trace, and the seconds that runs of it took (None, or without
    a finite number: it did not run).

    about  plain data: where and when; "result", the key of the function that the trace gave
    """

    def __init__(
        self,
        trace: Any,
        workload: Workload,
        run_secs: Sequence[float] | None = None,
        target: Any = None,
        args_info: Iterable[TensorInfo] | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self._trace = trace
        self.workload = workload
        self.run_secs = None if run_secs is None else [float(s) for s in run_secs]
        self.target = None if target is None else _target(target)
        self.args_info = None if args_info is None else list(args_info)
        self.about = dict(about or {})

    @staticmethod
    def of(schedule: Schedule, workload: Workload, *args: Any, **options: Any) -> TuningRecord:
        """A record of a schedule of `workload`, which notes what the trace gives: where it gives
        something else later, it is refused. Further arguments as of the class.
        """
        record = TuningRecord(schedule.trace, workload, *args, **options)
        record.about["result"] = key_of(entry_of(schedule.mod))
        return record

    @property
    def trace(self) -> Trace:
        """The steps. Raises ScheduleError if they do not fit the workload."""
        if not isinstance(self._trace, Trace):
            schedule = Schedule(self.workload.mod)
            Trace.apply_json_to_schedule(self._trace, schedule)
            self._trace = schedule.trace
        return self._trace

    def schedule(self, mod: IRModule | PrimFunc | None = None) -> Schedule:
        """The steps done to `mod`, or to the workload itself. What was measured with wide indices
        has wide indices.
        """
        fn = entry_of(self.workload.mod if mod is None else mod)
        if mod is not None and key_of(fn) != self.workload.key:
            wide = with_index_dtype(fn, "int64")
            fn = wide if key_of(wide) == self.workload.key else fn
        schedule = Schedule(IRModule({"main": fn}))
        if isinstance(self._trace, Trace):
            self._trace.apply_to_schedule(schedule)
        else:
            Trace.apply_json_to_schedule(self._trace, schedule)
        if self.about.get("result", "") not in ("", key_of(entry_of(schedule.mod))):
            raise ScheduleError("the trace gives another function than the one that was measured")
        return schedule

    @property
    def seconds(self) -> float:
        """The mean of what it took; infinite if it did not run."""
        times = self.run_secs or [math.inf]
        mean = sum(times) / len(times)
        return mean if math.isfinite(mean) and min(times) >= 0 else math.inf

    def as_json(self) -> list[Any]:
        """``[trace, seconds, target, arguments]``"""
        trace = self._trace.as_json() if isinstance(self._trace, Trace) else self._trace
        infos = None if self.args_info is None else [info.as_json() for info in self.args_info]
        return [trace, self.run_secs, _saved(self.target), infos]

    @staticmethod
    def from_json(
        json_obj: Any, workload: Workload, about: Mapping[str, Any] | None = None
    ) -> TuningRecord:
        """What `as_json` gave. Raises LoadError for anything else; the trace is read when it is
        needed.
        """
        match json_obj:
            case [list(trace), list() | None as seconds, dict() | None as target, infos]:
                if all(type(s) in (int, float) for s in seconds or ()):
                    try:
                        args = None if infos is None else map(TensorInfo.from_json, infos)
                        return TuningRecord(trace, workload, seconds, target, args, about)
                    except (PassError, ScheduleError, TypeError) as error:
                        raise LoadError(f"a tuning record: {error}") from None
        raise LoadError("a tuning record is saved as [trace, seconds, target, arguments]")

    def is_valid(self) -> bool:
        """Whether it ran."""
        return math.isfinite(self.seconds)

    def fits(self, target: Any) -> bool:
        """Whether it is an answer for `target`: the same kind of code generator, width of vectors
        and CPU by name. For another CPU it is a place to start from (`starting_points`).
        """
        return _fits(self.target, target)

    def __repr__(self) -> str:
        return f"TuningRecord({self.workload!r}, {self.seconds * 1e6:.1f} us, {self.target})"


def _fits(own: Target | None, target: Any) -> bool:
    if own is None or target is None:
        return True
    target = Target(target)
    if own == target:
        return True
    try:
        mine, cpu = cpu_model(own), machine_of(own).cpu
    except CodegenError:
        # One that this LLVM knows nothing of.
        return False
    other = cpu_model(target)
    return (
        own.kind_name == target.kind_name
        and mine.architecture == other.architecture
        and mine.vector_bits == other.vector_bits
        and cpu == machine_of(target).cpu
    )


_targets: dict[str, Target] = {}


def _target(saved: Any) -> Target:
    """A target; the same for equal dictionaries, of which a database has one for each record."""
    text = json.dumps(saved, sort_keys=True) if type(saved) is dict else ""
    if not text:
        return Target(saved)
    if text not in _targets:
        if len(_targets) > 1000:
            _targets.clear()
        _targets[text] = Target(saved)
    return _targets[text]


def _saved(target: Target | None) -> dict[str, Any] | None:
    """`target` for other computers: "llvm" means another CPU there."""
    if target is None:
        return None
    options = target.export()
    if target.kind_name == "llvm" and not {"mcpu", "mtriple"} & set(options):
        options["mcpu"] = machine_of(target).cpu
    return options


class Database:
    """Records by workload. Derive from it (`PyDatabase`) by giving `has_workload`,
    `commit_workload`, `commit_tuning_record`, `get_all_tuning_records`.
    """

    def has_workload(self, mod: IRModule) -> bool:
        """Whether anything is kept of it."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it has")

    def commit_workload(self, mod: IRModule) -> Workload:
        """What stands for it, added if it is new."""
        return Workload(mod)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record of a workload that was committed."""
        raise ScheduleError(f"{type(self).__name__} takes no records: commit to one that does")

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Every record, in the order in which they came."""
        raise NotImplementedError(f"{type(self).__name__} does not list its records")

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """The fastest records of a workload, at most `top_k`; those that did not run are none."""
        if not isinstance(top_k, int) or top_k < 0:
            raise ScheduleError(f"top_k is a number of records, got {top_k!r}")
        own = list(self._records_of(workload.key)) or self._records_of(workload.keys[1])
        ran = [r for r in own if math.isfinite(r.seconds)]
        return sorted(ran, key=lambda r: r.seconds)[:top_k]

    def _records_of(self, key: str) -> Iterable[TuningRecord]:
        return (r for r in self.get_all_tuning_records() if r.workload.key == key)

    def __len__(self) -> int:
        return len(self.get_all_tuning_records())

    def query_tuning_record(
        self, mod: IRModule | PrimFunc, target: Any = None, workload_name: str | None = None
    ) -> TuningRecord | None:
        """The fastest record of `mod` for `target` (None: for any), or None; if there is none, that
        of `mod` with wide indices, which builds have.
        """
        fn = entry_of(mod)
        for each in dict.fromkeys((fn, with_index_dtype(fn, "int64"))):
            best = self.get_top_k(Workload(each), 1 << 30)
            fits = next((record for record in best if record.fits(target)), None)
            if fits is not None:
                return fits
        return None

    def query_schedule(
        self, mod: IRModule | PrimFunc, target: Any = None, workload_name: str | None = None
    ) -> Schedule | None:
        """The schedule of that record, or None. Raises ScheduleError if its trace does not fit."""
        record = self.query_tuning_record(mod, target, workload_name)
        return None if record is None else record.schedule(mod)

    def query_ir_module(
        self, mod: IRModule | PrimFunc, target: Any = None, workload_name: str | None = None
    ) -> IRModule | None:
        """The module of that schedule, or None."""
        schedule = self.query_schedule(mod, target, workload_name)
        return None if schedule is None else schedule.mod

    def query(
        self,
        mod: IRModule | PrimFunc,
        target: Any = None,
        *,
        workload_name: str | None = None,
        kind: str = "schedule",
    ) -> Any:
        """One of the three, by kind: "schedule", "record" or "ir_module"."""
        asked = {
            "schedule": self.query_schedule,
            "record": self.query_tuning_record,
            "ir_module": self.query_ir_module,
        }
        if kind not in asked:
            raise ScheduleError(f"Database.query: kind is one of {', '.join(asked)}, got {kind!r}")
        return asked[kind](mod, target, workload_name)

    def starting_points(
        self, mod: IRModule | PrimFunc, target: Any = None, top_k: int = 8
    ) -> list[TuningRecord]:
        """Records of `mod` to begin a search with, those for `target` first, then those of other
        CPUs; each the fastest first. Their traces may be refused.
        """
        best = self.get_top_k(Workload(mod), 1 << 30)
        return sorted(best, key=lambda record: not record.fits(target))[:top_k]

    @property
    def knows_models(self) -> bool:
        """Whether it has choices for any model."""
        return bool(self._models())

    def query_choices(self, model: str, target: Any = None) -> Mapping[str, Any] | None:
        """What was last chosen for a model as a whole on `target` (None: on any), or None.

        model  as `relaxvm.choices.model_key` gives it
        """
        for each in reversed(self._models().get(model, [])):
            if _fits(None if each["target"] is None else _target(each["target"]), target):
                choices: Mapping[str, Any] = each["choices"]
                return choices
        return None

    def commit_choices(self, model: str, choices: Mapping[str, Any], target: Any = None) -> None:
        """Add what was chosen for a model as a whole: plain data."""
        own = None if target is None else _saved(Target(target))
        self._models().setdefault(model, []).append({"choices": dict(choices), "target": own})

    def _models(self) -> dict[str, list[dict[str, Any]]]:
        """What was chosen, by model, the last last; databases of users have no constructor."""
        known: dict[str, list[dict[str, Any]]] = vars(self).setdefault("_chosen", {})
        return known

    def merge(self, other: Database) -> int:
        """Add the records of another database that are not there yet, and what it chose for models;
        how many records these were.
        """
        for model, every in other._models().items():
            for each in every:
                if each not in self._models().get(model, []):
                    self.commit_choices(model, each["choices"], each["target"])
        known = {_identity(tuned) for tuned in self.get_all_tuning_records()}
        added = 0
        for tuned in other.get_all_tuning_records():
            if _identity(tuned) not in known:
                known.add(_identity(tuned))
                self.commit_tuning_record(tuned)
                added += 1
        return added

    def dump_pruned(self, destination: Database) -> None:
        """Add the best record of every workload to another database."""
        best: dict[str, TuningRecord] = {}
        for tuned in self.get_all_tuning_records():
            held = best.get(tuned.workload.key)
            if math.isfinite(tuned.seconds) and (held is None or tuned.seconds < held.seconds):
                best[tuned.workload.key] = tuned
        for tuned in best.values():
            try:
                destination.commit_workload(tuned.workload.mod)
            except LoadError as error:
                warnings.warn(f"a record is left out: {error}", UserWarning, stacklevel=2)
                continue
            destination.commit_tuning_record(tuned)

    def __enter__(self) -> Database:
        SOURCES.set((*SOURCES.get(), self.query_schedule))
        return self

    def __exit__(self, *exception: object) -> None:
        SOURCES.set(SOURCES.get()[:-1])

    @staticmethod
    def current() -> Database | None:
        """The innermost database that is entered in this thread, or None."""
        owners = (getattr(source, "__self__", None) for source in reversed(SOURCES.get()))
        return next((o for o in owners if isinstance(o, Database)), None)

    @staticmethod
    def create(kind: str | Callable[[Schedule], bool] = "json", *args: Any, **options: Any) -> Any:
        """A database by its kind: "memory", "json", "union", "ordered_union"; a function is a
        `ScheduleFnDatabase`.
        """
        if callable(kind):
            return ScheduleFnDatabase(kind, *args, **options)
        kinds = {
            "memory": MemoryDatabase,
            "json": JSONDatabase,
            "union": UnionDatabase,
            "ordered_union": OrderedUnionDatabase,
        }
        if kind not in kinds:
            raise ScheduleError(f"Database.create: kind is one of {', '.join(kinds)}, got {kind!r}")
        return kinds[kind](*args, **options)


def _identity(record: TuningRecord) -> str:
    return json.dumps([record.workload.key, record.as_json()], sort_keys=True)


PyDatabase = Database


def _equality(name: str) -> str:
    if name not in _EQUALITIES:
        wanted = ", ".join(_EQUALITIES)
        raise ScheduleError(f"module_equality is one of {wanted}, got {name!r}")
    return name


def _check_record(record: object) -> None:
    if not isinstance(record, TuningRecord):
        raise ScheduleError(f"wanted a TuningRecord, got {type(record).__name__}")


class MemoryDatabase(Database):
    """A database of this process.

    module_equality  which workloads are the same: "structural"; "ignore-ndarray" and "anchor-block"
                     are taken and mean the same, since loop functions hold no arrays here and
                     records of another function would not fit
    """

    def __init__(self, module_equality: str = "structural") -> None:
        self.module_equality = _equality(module_equality)
        self._workloads: dict[str, Workload] = {}
        self._records: dict[str, list[TuningRecord]] = {}
        self._in_order: list[TuningRecord] = []

    def has_workload(self, mod: IRModule) -> bool:
        return any(key in self._workloads for key in Workload(mod).keys)

    def commit_workload(self, mod: IRModule) -> Workload:
        return self._written(Workload(mod))

    def _written(self, workload: Workload) -> Workload:
        return self._workloads.setdefault(workload.key, workload)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        _check_record(record)
        self._written(record.workload)
        self._records.setdefault(record.workload.key, []).append(record)
        self._in_order.append(record)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return list(self._in_order)

    def _records_of(self, key: str) -> Iterable[TuningRecord]:
        return self._records.get(key, ())

    def __len__(self) -> int:
        return len(self._in_order)


class JSONDatabase(Database):
    """A database of two files, which grow by a line with each workload and each record. What was
    written stays, whenever the process is killed. Processes may share it: each sees what the others
    add.

    path_workload       lines ``[key, module]``, and ``[key of a model, what was chosen for it]``
    path_tuning_record  lines ``[key of the workload, [trace, seconds, target, arguments], about]``;
                        it may be the same file
    work_dir            a folder for both, as `database_workload.json` and
                        `database_tuning_record.json`, instead of the two paths
    allow_missing       whether files that are not there are made

    A record is read when it is asked for, so that opening is quick. Lines that cannot be read are
    left out with a warning that counts them. What the disk has no room for is kept, with a warning,
    and written with what comes next.
    """

    def __init__(
        self,
        path_workload: str | os.PathLike[str] | None = None,
        path_tuning_record: str | os.PathLike[str] | None = None,
        *,
        work_dir: str | os.PathLike[str] | None = None,
        allow_missing: bool = True,
        module_equality: str = "structural",
    ) -> None:
        self.module_equality = _equality(module_equality)
        if work_dir is not None:
            folder = pathlib.Path(work_dir)
            path_workload = path_workload or folder / "database_workload.json"
            path_tuning_record = path_tuning_record or folder / "database_tuning_record.json"
        if path_workload is None or path_tuning_record is None:
            raise ScheduleError("JSONDatabase: wanted work_dir, or the paths of both files")
        self.path_workload = str(path_workload)
        self.path_tuning_record = str(path_tuning_record)
        for path in (self.path_workload, self.path_tuning_record):
            if not os.path.exists(path):
                if not allow_missing:
                    raise LoadError(f"JSONDatabase: there is no file {path}")
                pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
                pathlib.Path(path).touch()
        self._is_one_file = self.path_workload == self.path_tuning_record
        self._workload_file = LineFile(self.path_workload)
        self._record_file = self._workload_file
        if not self._is_one_file:
            self._record_file = LineFile(self.path_tuning_record)
        self._workloads: dict[str, Workload] = {}
        self._lines: list[_Line] = []
        self._by_key: dict[str, list[_Line]] = {}
        # What the disk has no room for.
        self._unwritten: list[TuningRecord] = []
        self._lock = lock()
        self._look()

    def _look(self) -> None:
        """Take note of what was added to the files."""
        with self._lock:
            before = self._record_file.restarts
            # Records first: their workloads were written before them.
            records, others = [], []
            for place, text in self._record_file.fresh():
                head = _HEAD.match(text)
                if head is not None or not self._is_one_file:
                    key = "" if head is None else head[1].decode(errors="replace")
                    records.append((place, len(text), key, text.endswith(b"]")))
                else:
                    others.append((place, text))
            if self._record_file.restarts != before:
                self._lines.clear()
                self._by_key.clear()
            wrong: list[str] = []
            for place, text in others if self._is_one_file else self._workload_file.fresh():
                try:
                    saved = json.loads(text)
                    match saved:
                        case [str(model), {"choices": {}, "target": None | {} as target}]:
                            _ = target is None or _target(target)
                            super()._models().setdefault(model, []).append(saved[1])
                            continue
                    workload = Workload.from_json(saved)
                    self._workloads.setdefault(workload.key, workload)
                except (ValueError, RecursionError, PassError) as error:
                    wrong.append(f"at byte {place}: {str(error)[:100]}")
            _left_out(self.path_workload, wrong)
            wrong = []
            for place, size, key, is_closed in records:
                if not key or not is_closed:
                    wrong.append(f"at byte {place}: not [key, [...], {{...}}]")
                elif key not in self._workloads:
                    wrong.append(f"at byte {place}: its workload is not in the other file")
                else:
                    line = _Line(key, place, size)
                    self._lines.append(line)
                    self._by_key.setdefault(key, []).append(line)
            _left_out(self.path_tuning_record, wrong)

    def _read(self, lines: Sequence[_Line]) -> list[TuningRecord]:
        """The records of lines, but for those that are broken, which are counted."""
        wrong: list[str] = []
        unread = [line for line in lines if line.record is None and not line.broken]
        texts = self._record_file.read((line.place, line.size) for line in unread)
        for line, text in zip(unread, texts):
            try:
                line.record = self._parsed(json.loads(text))
            except (ValueError, RecursionError) as error:
                line.broken = True
                wrong.append(f"at byte {line.place}: {str(error)[:100]}")
        _left_out(self.path_tuning_record, wrong)
        return [line.record for line in lines if line.record is not None]

    def _parsed(self, line: Any) -> TuningRecord:
        match line:
            case [str(key), [*_] as saved] | [str(key), [*_] as saved, {}]:
                about = line[2] if len(line) > 2 else {}
                return TuningRecord.from_json(saved, self._workloads[key], about)
        raise LoadError("a record is saved as [key of a workload, [...], {...}]")

    def has_workload(self, mod: IRModule) -> bool:
        self._look()
        return any(key in self._workloads for key in Workload(mod).keys)

    def commit_workload(self, mod: IRModule) -> Workload:
        return self._written(Workload(mod))

    def _written(self, workload: Workload) -> Workload:
        self._look()
        if workload.key not in self._workloads:
            self._workloads[workload.key] = workload
            self._workload_file.append(workload.as_json())
        return self._workloads[workload.key]

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record, with the machine, the versions and the date if it does not say them."""
        _check_record(record)
        self._written(record.workload)
        record.about = {**circumstances(record.target), **record.about}
        self._unwritten.append(record)
        saved = [record.workload.key, record.as_json(), record.about]
        if self._workload_file.flush() and self._record_file.append(saved):
            self._unwritten.clear()

    def commit_choices(self, model: str, choices: Mapping[str, Any], target: Any = None) -> None:
        own = None if target is None else _saved(Target(target))
        self._workload_file.append([model, {"choices": dict(choices), "target": own}])

    def _models(self) -> dict[str, list[dict[str, Any]]]:
        self._look()
        return super()._models()

    def get_all_tuning_records(self) -> list[TuningRecord]:
        self._look()
        return [*self._read(self._lines), *self._unwritten]

    def _records_of(self, key: str) -> Iterable[TuningRecord]:
        self._look()
        unwritten = [record for record in self._unwritten if record.workload.key == key]
        return [*self._read(self._by_key.get(key, ())), *unwritten]

    def __len__(self) -> int:
        self._look()
        return sum(not line.broken for line in self._lines) + len(self._unwritten)


# How a line of records begins.
_HEAD = re.compile(rb'\["([^"\\]{1,200})", ?\[')


@record(frozen=False)
class _Line:
    """A record in a file, and where; `record` once it was read."""

    key: str
    place: int
    size: int
    record: TuningRecord | None = None
    broken: bool = False


def _left_out(path: str, wrong: list[str]) -> None:
    if wrong:
        listed = "; ".join(wrong[:3]) + ("; ..." if len(wrong) > 3 else "")
        warnings.warn(
            f"{path}: {len(wrong)} lines are left out ({listed})", UserWarning, stacklevel=4
        )


def circumstances(target: Target | None) -> dict[str, Any]:
    """Where and when: what a record says of itself."""
    return {
        "machine": machine_of(target or Target("llvm")).cpu,
        "cores": usable_cores(),
        "system": platform.platform(terse=True),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


class UnionDatabase(Database):
    """The best of several databases; records are committed to none of them."""

    def __init__(self, *databases: Database) -> None:
        for each in databases:
            if not isinstance(each, Database):
                raise ScheduleError(f"wanted databases, got {type(each).__name__}")
        self.databases = databases

    def has_workload(self, mod: IRModule) -> bool:
        return any(each.has_workload(mod) for each in self.databases)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return [record for each in self.databases for record in each.get_all_tuning_records()]

    def query_tuning_record(
        self, mod: IRModule | PrimFunc, target: Any = None, workload_name: str | None = None
    ) -> TuningRecord | None:
        return min(self._answers(mod, target), key=lambda r: r.seconds, default=None)

    def _models(self) -> dict[str, list[dict[str, Any]]]:
        every: dict[str, list[dict[str, Any]]] = {}
        for each in reversed(self.databases):
            for model, known in each._models().items():
                every.setdefault(model, []).extend(known)
        return every

    def _answers(self, mod: IRModule | PrimFunc, target: Any) -> Iterable[TuningRecord]:
        answers = (each.query_tuning_record(mod, target) for each in self.databases)
        return (record for record in answers if record is not None)


class OrderedUnionDatabase(UnionDatabase):
    """The first of several databases that knows a workload."""

    def query_tuning_record(
        self, mod: IRModule | PrimFunc, target: Any = None, workload_name: str | None = None
    ) -> TuningRecord | None:
        return next(iter(self._answers(mod, target)), None)


class ScheduleFnDatabase(Database):
    """A function in place of records: it schedules what it is given and says whether it did."""

    def __init__(
        self, schedule_fn: Callable[[Schedule], bool], module_equality: str = "structural"
    ) -> None:
        if not callable(schedule_fn):
            raise ScheduleError(f"wanted a function of a schedule, got {schedule_fn!r}")
        self.schedule_fn = schedule_fn

    def has_workload(self, mod: IRModule) -> bool:
        return self.query_schedule(mod) is not None

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return []

    def query_schedule(
        self, mod: IRModule | PrimFunc, target: Any = None, workload_name: str | None = None
    ) -> Schedule | None:
        schedule = Schedule(IRModule({"main": entry_of(mod)}))
        return schedule if self.schedule_fn(schedule) else None

    def query_tuning_record(
        self, mod: IRModule | PrimFunc, target: Any = None, workload_name: str | None = None
    ) -> TuningRecord | None:
        schedule = self.query_schedule(mod)
        return None if schedule is None else TuningRecord(schedule.trace, Workload(mod), [0.0])


create = Database.create

__getattr__ = submodules(__name__)
