"""``python -m tests.fuzz KIND [--seconds N] [--seed S]``: random cases until the time is over."""

import argparse
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from fuzz.runner import KINDS, child, session


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=session.__doc__)
    parser.add_argument("kind", help=", ".join(KINDS))
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: a minute)")
    parser.add_argument("--count", type=int, help="most cases (default: no limit)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="fuzz-found", help="folder for the reproducers")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.kind)
        return 0
    with tempfile.TemporaryDirectory(prefix="relaxvm-fuzz-") as cache:
        os.environ |= {"RELAXVM_CHECKS": "1", "RELAXVM_CACHE_DIR": cache}
        done = session(given.kind, given.seed, given.count, given.seconds, pathlib.Path(given.out))
    print(done)
    return 1 if done.found else 0


sys.exit(main())
