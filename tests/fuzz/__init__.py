"""Batteries of random cases, one module per kind; `python -m tests.fuzz --help`.

Each kind offers ``make(rng)``, a case as plain data, and ``check(case)``, which raises where a
promise is broken and returns whether the case was more than refused.
"""

import pathlib
import sys

# The helpers of the tests beside.
for _room in ("", "relax", "runtime", "target", "tir"):
    _path = str(pathlib.Path(__file__).parents[1] / _room)
    if _path not in sys.path:
        sys.path.append(_path)
