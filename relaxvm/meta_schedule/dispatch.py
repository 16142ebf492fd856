"""`DispatchContext`: where a build looks for tuned schedules, one place after the other."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from ..base import LoadError, submodules
from ..ir import IRModule
from ..tir import PrimFunc
from ..tir.schedule import Schedule
from ..tir.schedule.plans import SOURCES
from .database import Database, JSONDatabase, TuningRecord

# A folder of databases, one folder each, that comes with the package. Nothing is ever downloaded.
BUNDLED = pathlib.Path(__file__).parent / "bundled"


class DispatchContext:
    """A `with` in which builds look up their kernels: in the given records, in those of contexts
    around it, then in what comes with the package. A kernel that none of them knows gets the
    schedule of the rules.

    records  a database; or the folder of a `JSONDatabase`, or its file of records; or None
    bundled  whether to look into what comes with the package

    Raises LoadError for a place where there are no records, and for logs of AutoTVM: what they say
    is about templates of TVM.
    """

    def __init__(self, records: Any = None, *, bundled: bool = True) -> None:
        opened = None if records is None else _opened(records)
        self.databases: list[Database] = [] if opened is None else [opened]
        self._bundled = bundled

    def __enter__(self) -> DispatchContext:
        SOURCES.set((*SOURCES.get(), self.schedule))
        return self

    def __exit__(self, *exception: object) -> None:
        SOURCES.set(SOURCES.get()[:-1])

    @staticmethod
    def current() -> DispatchContext | None:
        """The innermost one that is entered in this thread, or None."""
        owners = (getattr(source, "__self__", None) for source in reversed(SOURCES.get()))
        return next((o for o in owners if isinstance(o, DispatchContext)), None)

    @property
    def knows_models(self) -> bool:
        """Whether it has choices for any model."""
        return any(database.knows_models for database in self.databases)

    def query_choices(self, model: str, target: Any = None) -> Mapping[str, Any] | None:
        """What was chosen for a model as a whole, or None (`Database.query_choices`)."""
        answers = (database.query_choices(model, target) for database in self.databases)
        return next((answer for answer in answers if answer is not None), None)

    def query(self, mod: IRModule | PrimFunc, target: Any = None) -> TuningRecord | None:
        """The record for a kernel, or None: then the rules choose."""
        for database in (*self.databases, *(_bundled(BUNDLED) if self._bundled else ())):
            record = database.query_tuning_record(mod, target)
            if record is not None:
                return record
        return None

    def schedule(self, fn: PrimFunc, target: Any = None) -> Schedule | None:
        """The schedule of that record, or None."""
        record = self.query(fn, target)
        return None if record is None else record.schedule(fn)


@functools.cache
def _bundled(folder: pathlib.Path) -> tuple[Database, ...]:
    if not folder.is_dir():
        return ()
    return tuple(JSONDatabase(work_dir=each) for each in sorted(folder.iterdir()) if each.is_dir())


def _opened(records: Any) -> Database:
    if isinstance(records, Database):
        return records
    if not isinstance(records, (str, os.PathLike)):
        raise LoadError(
            f"DispatchContext: wanted a database or a path, got {type(records).__name__}"
        )
    path = pathlib.Path(records)
    if path.is_dir():
        return JSONDatabase(work_dir=path, allow_missing=False)
    if not path.exists():
        raise LoadError(f"DispatchContext: there is no file {path}")
    workloads = path.with_name(path.name.replace("tuning_record", "workload"))
    if workloads == path or not workloads.exists():
        with open(path, encoding="utf-8", errors="replace") as file:
            first = file.readline(1 << 16)
        what = "a log of AutoTVM or of the auto-scheduler, whose records are about TVM's templates"
        other = "no file of records: there is no database_workload.json beside it"
        is_log = '"config"' in first or '"i":' in first
        raise LoadError(f"DispatchContext: {path} is {what if is_log else other}")
    return JSONDatabase(workloads, path)


__getattr__ = submodules(__name__)
