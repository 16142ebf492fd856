"""The files that a reader of `examples/from_scratch.py` is taken through, listed in
docs/architecture.md: few, short, and those that really run.
"""

import ast
import contextlib
import io
import pathlib
import re
import runpy
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
WALK = ROOT / "examples" / "from_scratch.py"
# What the walk hands from stage to stage, and what it asks of them: no stages.
VALUES = {"Executable", "IRModule", "Target", "cpu", "generate_llvm", "tir", "pipeline"}


def listed():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    spine = page.partition("## The spine")[2].partition("\n## ")[0]
    rows = [line for line in spine.splitlines() if line.startswith("| ")][1:]
    return [path for row in rows for path in re.findall(r"`([\w/]+\.py)`", row)]


@pytest.fixture(scope="module")
def trace():
    """(files of relaxvm that were entered, {name that the walk imports: file it is defined in})."""
    entered = set()

    def note(frame, event, arg):
        if event == "call":
            entered.add(frame.f_code.co_filename)

    walk = runpy.run_path(str(WALK))
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            walk["main"]()
    finally:
        sys.setprofile(before)
    package = ROOT / "relaxvm"
    files = {
        pathlib.Path(name).relative_to(package).as_posix()
        for name in entered
        if name.startswith(str(package))
    }
    imported = {
        alias.name: walk[alias.name]
        for node in ast.parse(WALK.read_text()).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("relaxvm")
        for alias in node.names
    }
    return files, imported, out.getvalue()


def test_the_spine_is_at_most_40_files_and_6000_lines():
    files = listed()
    assert len(files) == len(set(files)) <= 40
    lines = {f: (ROOT / "relaxvm" / f).read_text().count("\n") for f in files}
    assert sum(lines.values()) <= 6000, lines


def test_every_file_of_the_spine_is_entered(trace):
    files, _, _ = trace
    assert set(listed()) <= files, set(listed()) - files


def test_every_stage_that_the_walk_calls_is_on_the_spine(trace):
    _, imported, _ = trace
    homes = {}
    for name, stage in imported.items():
        if name not in VALUES:
            # Of passes in a row, where the row is written.
            module = "tir.transform.pipeline" if name == "LOWER_TIR" else _module_of(stage)
            homes[name] = module.replace(".", "/")
    files = {path.removesuffix(".py").removesuffix("/__init__") for path in listed()}
    assert {name: home for name, home in homes.items() if home not in files} == {}


def _module_of(stage):
    return stage.__module__.removeprefix("relaxvm.")


def test_the_walk_ends_well(trace):
    _, _, out = trace
    verdicts = [line for line in out.splitlines() if line.endswith((": yes", ": NO"))]
    assert len(verdicts) == 4
    assert all(line.endswith(": yes") for line in verdicts), verdicts
