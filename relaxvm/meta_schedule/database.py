"""Databases of tuned schedules: which traces were measured for a loop function, and their times.

A `Workload` is a loop function whose name and attributes do not count: equal computations share
their records. A database that is entered (``with database:``) is asked by every build inside.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..base import LoadError, PassError, ScheduleError, submodules
from ..ir import IRModule, load_json, save_json, structural_digest
from ..target import Target, cpu_model, machine_of
from ..tir import PrimFunc
from ..tir.schedule import Schedule, Trace
from ..tir.schedule.rules import SOURCES
from ..tir.transform import with_index_dtype
from .arg_info import TensorInfo, entry_of

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
    """

    def __init__(
        self,
        trace: Any,
        workload: Workload,
        run_secs: Sequence[float] | None = None,
        target: Any = None,
        args_info: Iterable[TensorInfo] | None = None,
    ) -> None:
        self._trace = trace
        self.workload = workload
        self.run_secs = None if run_secs is None else [float(s) for s in run_secs]
        self.target = None if target is None else Target(target)
        self.args_info = None if args_info is None else list(args_info)

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
    def from_json(json_obj: Any, workload: Workload) -> TuningRecord:
        """What `as_json` gave. Raises LoadError for anything else; the trace is read when it is
        needed.
        """
        match json_obj:
            case [list(trace), list() | None as seconds, dict() | None as target, infos]:
                if all(type(s) in (int, float) for s in seconds or ()):
                    try:
                        args = None if infos is None else map(TensorInfo.from_json, infos)
                        return TuningRecord(trace, workload, seconds, target, args)
                    except (PassError, ScheduleError, TypeError) as error:
                        raise LoadError(f"a tuning record: {error}") from None
        raise LoadError("a tuning record is saved as [trace, seconds, target, arguments]")

    def fits(self, target: Any) -> bool:
        """Whether it holds for `target`: the kind of code generator, the width of vectors, and the
        CPU's name, or all abilities of the CPU it was measured on.
        """
        if self.target is None or target is None:
            return True
        target = Target(target)
        if self.target == target:
            return True
        mine, other = cpu_model(self.target), cpu_model(target)
        return (
            self.target.kind_name == target.kind_name
            and mine.architecture == other.architecture
            and mine.vector_bits == other.vector_bits
            and (
                machine_of(self.target).cpu == machine_of(target).cpu
                or mine.features <= other.features
            )
        )

    def __repr__(self) -> str:
        return f"TuningRecord({self.workload!r}, {self.seconds * 1e6:.1f} us, {self.target})"


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
        raise NotImplementedError(f"{type(self).__name__} takes no records")

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Every record, in the order in which they came."""
        raise NotImplementedError(f"{type(self).__name__} does not list its records")

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """The fastest records of a workload, at most `top_k`; those that did not run are none."""
        if not isinstance(top_k, int) or top_k < 0:
            raise ScheduleError(f"top_k is a number of records, got {top_k!r}")
        ran = [r for r in self._records_of(workload.key) if math.isfinite(r.seconds)]
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

    def dump_pruned(self, destination: Database) -> None:
        """Add the best record of every workload to another database."""
        best: dict[str, TuningRecord] = {}
        for record in self.get_all_tuning_records():
            held = best.get(record.workload.key)
            if math.isfinite(record.seconds) and (held is None or record.seconds < held.seconds):
                best[record.workload.key] = record
        for record in best.values():
            destination.commit_workload(record.workload.mod)
            destination.commit_tuning_record(record)

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


PyDatabase = Database


class MemoryDatabase(Database):
    """A database of this process.

    module_equality  which workloads are the same: "structural"; "ignore-ndarray" and "anchor-block"
                     are taken and mean the same, since loop functions hold no arrays here and
                     records of another function would not fit
    """

    def __init__(self, module_equality: str = "structural") -> None:
        if module_equality not in _EQUALITIES:
            wanted = ", ".join(_EQUALITIES)
            raise ScheduleError(f"module_equality is one of {wanted}, got {module_equality!r}")
        self.module_equality = module_equality
        self._workloads: dict[str, Workload] = {}
        self._records: dict[str, list[TuningRecord]] = {}
        self._in_order: list[TuningRecord] = []

    def has_workload(self, mod: IRModule) -> bool:
        return Workload(mod).key in self._workloads

    def commit_workload(self, mod: IRModule) -> Workload:
        return self._written(Workload(mod))

    def _written(self, workload: Workload) -> Workload:
        return self._workloads.setdefault(workload.key, workload)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        if not isinstance(record, TuningRecord):
            raise ScheduleError(f"wanted a TuningRecord, got {type(record).__name__}")
        self._written(record.workload)
        self._records.setdefault(record.workload.key, []).append(record)
        self._in_order.append(record)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return list(self._in_order)

    def _records_of(self, key: str) -> Iterable[TuningRecord]:
        return self._records.get(key, ())

    def __len__(self) -> int:
        return len(self._in_order)


class JSONDatabase(MemoryDatabase):
    """A database of two files, which grow by a line with each workload and each record; what a
    killed process had written stays.

    path_workload       lines ``[key, module]``
    path_tuning_record  lines ``[key of the workload, [trace, seconds, target, arguments]]``
    work_dir            a folder for both, as `database_workload.json` and
                        `database_tuning_record.json`, instead of the two paths
    allow_missing       whether the files may be new

    Lines that cannot be read are left out with a warning that counts them.
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
        super().__init__(module_equality)
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
        _each_line(self.path_workload, self._read_workload)
        _each_line(self.path_tuning_record, self._read_record)

    def _read_workload(self, line: Any) -> None:
        workload = Workload.from_json(line)
        self._workloads.setdefault(workload.key, workload)

    def _read_record(self, line: Any) -> None:
        match line:
            case [str(key), [*_] as saved] if key in self._workloads:
                super().commit_tuning_record(TuningRecord.from_json(saved, self._workloads[key]))
            case _:
                raise LoadError("a record is saved as [key of a workload in the other file, [...]]")

    def _written(self, workload: Workload) -> Workload:
        if workload.key not in self._workloads:
            _append(self.path_workload, workload.as_json())
        return self._workloads.setdefault(workload.key, workload)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        super().commit_tuning_record(record)
        _append(self.path_tuning_record, [record.workload.key, record.as_json()])


def _each_line(path: str, read: Callable[[Any], None]) -> None:
    if not os.path.exists(path):
        return
    wrong: list[str] = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                read(json.loads(line))
            except (ValueError, RecursionError) as error:
                wrong.append(f"line {number}: {str(error)[:100]}")
    if wrong:
        listed = "; ".join(wrong[:3]) + ("; ..." if len(wrong) > 3 else "")
        warnings.warn(
            f"{path}: {len(wrong)} lines are left out ({listed})", UserWarning, stacklevel=4
        )


def _append(path: str, line: Any) -> None:
    """Add a line in one write, after the end of whatever others have written."""
    text = json.dumps(line, separators=(",", ":")) + "\n"
    with open(path, "ab") as file:
        if file.tell() and not _ends_a_line(path):
            text = "\n" + text
        file.write(text.encode())


def _ends_a_line(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


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


__getattr__ = submodules(__name__)
