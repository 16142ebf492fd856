"""Programs written for TVM, run as a user runs them: in a process of their own, by
`python -m relaxvm.as_tvm`.

Put a program into `programs/`, with asserts of what matters; if `programs/<name>.out` stands beside
it, that is what it prints. tests/tutorials/test_tutorial_programs.py runs them all.
"""

import pathlib
import subprocess
import sys

PROGRAMS = pathlib.Path(__file__).parent / "programs"


def run(*arguments, **options):
    """What `python -m relaxvm.as_tvm arguments` did: a CompletedProcess with texts."""
    command = [sys.executable, "-m", "relaxvm.as_tvm", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)
