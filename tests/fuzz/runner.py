"""Runs the cases of a kind in child processes, minimises those that break a promise and writes each
as a Python file that shows it.

    session(kind, seed, count, seconds, out)   many cases
    run_here(kind, seed, count)                a few, in this process

Case `number` of seed `seed` is the same everywhere. Parent and child speak in lines of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import pprint
import random
import re
import resource
import select
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

KINDS = ("graphs", "passes", "loops", "texts", "files", "values", "calls", "onnx_models")
HERE = pathlib.Path(__file__).parents[2]
CASE_SECONDS = 300.0
"""A case that takes longer counts as a hang; hundreds of times what they need."""
MINIMISE_SECONDS = 120.0
MEMORY_BYTES = 8 << 30
"""Address space of a child: an allocation in proportion to a claim, not to the input, fails."""
WARM_UP = 50
GROWTH_KIB = 200 << 10


def case_of(kind: str, seed: int, number: int) -> dict[str, Any]:
    """One case, as plain data."""
    return importlib.import_module(f"fuzz.{kind}").make(random.Random(f"{kind} {seed} {number}"))


def check(kind: str, case: dict[str, Any]) -> bool:
    """Whether the case was more than refused. Raises where a promise is broken."""
    return bool(importlib.import_module(f"fuzz.{kind}").check(case))


def run_here(kind: str, seed: int, count: int) -> int:
    """How many of `count` cases were not refused."""
    answered = 0
    for number in range(count):
        case = case_of(kind, seed, number)
        try:
            answered += check(kind, case)
        except Exception as error:
            error.add_note(reproducer(kind, case, f"{kind}, seed {seed}, case {number}"))
            raise
    return answered


# -- the child -------------------------------------------------------------------------------------


def child(kind: str) -> None:
    """Answers requests on standard input; what the cases print goes nowhere."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", SyntaxWarning)
    warnings.simplefilter("ignore", ResourceWarning)

    def answer(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")

    for line in sys.stdin:
        request = json.loads(line)
        case, end = request.get("case", {}), time.monotonic() + request["seconds"]
        steady = 0
        for number in range(request["first"], request["end"]):
            if time.monotonic() > end:
                break
            answer(start=number)
            try:
                if request.get("case") is None:
                    case = json.loads(json.dumps(case_of(kind, request["seed"], number)))
                    answer(case=case)
                done = check(kind, case)
                answer(number=number, refused=not done)
            except BaseException as error:
                text = "".join(traceback.format_exception(error, limit=-8))
                answer(number=number, error=signature(error), text=text[-20_000:])
                # What the cases hold is no leak.
                del error
            if number == request["first"] + WARM_UP:
                steady = _peak_kib()
        answer(end=True, grown_kib=_peak_kib() - steady if steady else 0)


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def signature(error: BaseException) -> str:
    """What two failures of one cause have in common: the kinds of error, and where."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if str(HERE) in f.filename]
    place = f"{type(error).__name__} in {pathlib.Path(ours[-1].filename).name}, {ours[-1].name}"
    if isinstance(error, AssertionError):
        first = str(error).strip().split("\n")[0]
        place += ": " + re.sub(r"\d+|'[^']*'", "#", first)[:80]
    return f"{place}; {signature(error.__cause__)}" if error.__cause__ else place


class Child:
    """A process that checks cases, replaced when it ends or hangs."""

    def __init__(self, kind: str) -> None:
        self.command = [sys.executable, "-m", "tests.fuzz", kind, "--child"]
        self.process: subprocess.Popen[bytes] | None = None
        self.errors: Any = None
        self.answered = False

    def ask(self, case_seconds: float = CASE_SECONDS, **request: Any) -> Iterator[dict[str, Any]]:
        """The answers to a request, last of all ``{"end": ...}``. If the process ends or hangs
        meanwhile, an ``error`` for the case that it was at; the next request gets another.
        """
        if self.process is None:
            self.errors, pipe = tempfile.TemporaryFile(), subprocess.PIPE
            self.answered = False
            self.process = subprocess.Popen(
                self.command, stdin=pipe, stdout=pipe, stderr=self.errors, cwd=HERE
            )
        process, number, buffered, case = self.process, request["first"], b"", {}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        waited = time.monotonic()
        while True:
            ready, _, _ = select.select([process.stdout], [], [], min(2.0, case_seconds))
            chunk = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if chunk:
                waited, self.answered = time.monotonic(), True
                *lines, buffered = (buffered + chunk).split(b"\n")
                for line in lines:
                    answer = json.loads(line)
                    if "start" in answer:
                        number, case = answer["start"], request.get("case", {})
                        continue
                    case = answer.pop("case", case)
                    if "error" in answer:
                        answer["case"] = case
                    if answer:
                        yield answer
                    if "end" in answer:
                        return
                continue
            # Until the first answer it starts, which is no case's fault.
            hung = time.monotonic() - waited > (case_seconds if self.answered else CASE_SECONDS)
            if ready or hung or process.poll() is not None:
                how = "hang" if hung else f"process ended with {process.wait()}"
                self.errors.seek(0)
                text = self.errors.read()[-20_000:].decode(errors="replace")
                self.close()
                yield {"number": number, "error": how, "text": f"{how}\n{text}", "case": case}
                return

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.errors.close()
            self.process = None


# -- the parent ------------------------------------------------------------------------------------


@dataclass
class Found:
    """A broken promise: the case (`number` of the session's seed), minimised."""

    number: int
    error: str
    text: str
    case: dict[str, Any]
    path: pathlib.Path | None = None
    times: int = 1


@dataclass
class Session:
    """What came of many cases."""

    kind: str
    seed: int
    cases: int = 0
    refused: int = 0
    grown_kib: int = 0
    found: list[Found] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.kind}, seed {self.seed}: {self.cases} cases, {self.refused} refused, "
            f"{len(self.found)} found, peak grown by {self.grown_kib} KiB"
        ]
        for found in self.found:
            lines.append(f"case {found.number} ({found.times} times): {found.error}: {found.path}")
        return "\n".join(lines)


def session(
    kind: str,
    seed: int,
    count: int | None = None,
    seconds: float = 60.0,
    out: pathlib.Path | None = None,
    case_seconds: float = CASE_SECONDS,
) -> Session:
    """Checks random cases in a child process until `count` or `seconds` is reached. Failures of one
    cause are minimised once, and written to the folder `out`.
    """
    done, worker, smaller = Session(kind, seed), Child(kind), Child(kind)
    end, last, number = time.monotonic() + seconds, count if count is not None else 1 << 60, 0
    try:
        while number < last and (left := end - time.monotonic()) > 0:
            for answer in worker.ask(case_seconds, seed=seed, first=number, end=last, seconds=left):
                if "end" in answer:
                    done.grown_kib = max(done.grown_kib, answer["grown_kib"])
                    number = last
                    break
                number = answer["number"] + 1
                done.cases += 1
                done.refused += answer.get("refused", False)
                if "error" in answer:
                    _record(done, answer, smaller, out, min(case_seconds, 30.0))
    finally:
        worker.close()
        smaller.close()
    return done


def _record(
    done: Session, answer: dict[str, Any], smaller: Child, out: pathlib.Path | None, limit: float
) -> None:
    for former in done.found:
        if former.error == answer["error"]:
            former.times += 1
            return
    case = answer["case"]

    def fails(case: dict[str, Any]) -> bool:
        request = {"case": case, "first": 0, "end": 1, "seconds": CASE_SECONDS, "seed": 0}
        answers = list(smaller.ask(limit, **request))
        return any(a.get("error") == answer["error"] for a in answers)

    case = minimised(case, fails, time.monotonic() + MINIMISE_SECONDS)
    found = Found(answer["number"], answer["error"], answer["text"], case)
    done.found.append(found)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        found.path = out / f"{done.kind}_{done.seed}_{found.number}.py"
        where = f"{done.kind}, seed {done.seed}, case {found.number}: {found.error}"
        found.path.write_text(reproducer(done.kind, case, f"{where}\n\n{found.text}"))
    print(f"{done.kind}, case {found.number}: {found.error}: {found.path}", file=sys.stderr)


def minimised(
    case: dict[str, Any], fails: Callable[[dict[str, Any]], bool], end: float
) -> dict[str, Any]:
    """The case with as much as possible taken out of its lists, so that it still fails."""
    if not case or not fails(case):
        return case
    for key in [k for k, v in case.items() if isinstance(v, list)]:
        size = max(1, len(case[key]) // 2)
        while size and time.monotonic() < end:
            at, before = 0, len(case[key])
            while at < len(case[key]) and time.monotonic() < end:
                shorter = {**case, key: case[key][:at] + case[key][at + size :]}
                if fails(shorter):
                    case = shorter
                else:
                    at += size
            size = size // 2 if len(case[key]) == before or size > 1 else size
    return case


def reproducer(kind: str, case: dict[str, Any], where: str) -> str:
    """A Python file that runs the case."""
    remarks = "\n".join(f"# {line}".rstrip() for line in where.splitlines())
    # A case that cannot even be made has no data.
    text = pprint.pformat(case, width=96) if case else "{}  # see `runner.case_of`"
    return (
        f"# Run it from the root of the repository.\n{remarks}\n"
        'import os\nimport sys\n\nos.environ["RELAXVM_CHECKS"] = "1"\nsys.path.insert(0, "tests")\n'
        f"from fuzz import {kind}\n\nprint({kind}.check({text}))\n"
    )
