"""What the cost model of a tuning knows before anything is measured: `priors.npz`, numbers and
seconds of some dozens of candidates of each of some dozens of kernels, on one thread of a CPU.

    model = ms.cost_model.XGBModel()
    relaxvm.tune("model.onnx", 600, cost_model=model)
    model.save("learnt.json")
    python -m relaxvm.meta_schedule.priors learnt.json more.json     # makes the file anew

Seconds count beside those of the same kernel only, so that another CPU's help too.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
from collections.abc import Iterable

import numpy as np

from ..base import LoadError, submodules
from .cost_model import FeatureGroup, XGBModel
from .database import circumstances
from .features import NAMES, Detail, of_whole

FILE = pathlib.Path(__file__).with_name("priors.npz")
COLUMNS = f"{len(of_whole(np.zeros((0, Detail().width))))} numbers: {', '.join(NAMES)}"
"""What the numbers of a candidate are; a file of others is refused."""


@functools.cache
def priors() -> tuple[FeatureGroup, ...]:
    """The kernels of the file. Raises LoadError if it is not one of this version."""
    return read(FILE)


def read(path: pathlib.Path) -> tuple[FeatureGroup, ...]:
    """The kernels of a file that `write` made. Raises LoadError for any other."""
    try:
        with np.load(path, allow_pickle=False) as saved:
            columns, sizes = str(saved["columns"]), saved["sizes"]
            rows, seconds = saved["rows"].astype("float64"), saved["seconds"].astype("float64")
    except (KeyError, ValueError, EOFError, OSError) as error:
        raise LoadError(f"{path}: no file of priors: {error}") from None
    if columns != COLUMNS or len(rows) != len(seconds) or len(rows) != sizes.sum():
        raise LoadError(
            f"{path}: made for other numbers; make it anew: python -m relaxvm.meta_schedule.priors"
        )
    ends = np.cumsum(sizes)[:-1]
    pairs = zip(np.split(rows, ends), np.split(seconds, ends))
    return tuple(FeatureGroup(f"prior {k}", list(r), s.tolist()) for k, (r, s) in enumerate(pairs))


def write(path: pathlib.Path, groups: Iterable[FeatureGroup]) -> int:
    """Write kernels with two candidates and more; how many there were."""
    kept = [group for group in groups if len(group.costs) > 1]
    np.savez_compressed(
        path,
        columns=np.array(COLUMNS),
        cpu=np.array(circumstances(None)["machine"]),
        sizes=np.array([len(group.costs) for group in kept], "int32"),
        rows=np.concatenate([np.array(group.features, "float16") for group in kept]),
        seconds=np.concatenate([np.array(group.costs, "float32") for group in kept]),
    )
    return len(kept)


def main() -> None:
    """Make the file from what cost models saved."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("saved", nargs="+", help="files that XGBModel.save wrote")
    parser.add_argument("-o", "--output", default=str(FILE))
    options = parser.parse_args()
    groups: list[FeatureGroup] = []
    for path in options.saved:
        model = XGBModel()
        model.load(path)
        groups += model.data.values()
    print(f"{write(pathlib.Path(options.output), groups)} kernels in {options.output}")


__getattr__ = submodules(__name__)
if __name__ == "__main__":
    main()
