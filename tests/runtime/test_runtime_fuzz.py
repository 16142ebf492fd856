"""Mutated files and random bytecode, in a child process: typed errors or programs that verify,
never a crash.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

CHILD = pathlib.Path(__file__).parent / "fuzz_child.py"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="uses POSIX resource limits")


def fuzz(what: str, count: int, seed: int) -> tuple[int, int]:
    """How many were accepted and refused."""
    done = subprocess.run(
        [sys.executable, str(CHILD), what, str(count), str(seed)],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, f"{what}, seed {seed}:\n{done.stderr[-3000:]}"
    found = re.search(r"done loaded=(\d+) refused=(\d+) grown_kib=(\d+)", done.stdout)
    assert found, done.stdout
    loaded, refused, grown = map(int, found.groups())
    assert loaded + refused == count
    assert grown < 100 * 1024
    return loaded, refused


def test_two_thousand_mutated_files_are_refused_or_verify():
    loaded, refused = fuzz("files", 2000, 1)
    assert loaded > 20
    assert refused > 1000


def test_random_bytecode_gives_typed_errors_only():
    loaded, refused = fuzz("words", 1500, 2)
    assert loaded > 20
    assert refused > 200


@pytest.mark.slow
def test_twenty_thousand_mutated_files_are_refused_or_verify():
    loaded, refused = fuzz("files", 20_000, 3)
    assert loaded > 200
    assert refused > 10_000


@pytest.mark.slow
def test_much_random_bytecode_gives_typed_errors_only():
    loaded, _ = fuzz("words", 30_000, 4)
    assert loaded > 400
