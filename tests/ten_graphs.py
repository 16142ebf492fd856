"""The ten graphs of bench/graphs.py at small sizes, and what they mean."""

import functools
import importlib.util
import pathlib
import sys

import numpy as np

from relaxvm.relax.interp import Evaluator

_FILE = pathlib.Path(__file__).parents[1] / "bench" / "graphs.py"
_found = importlib.util.spec_from_file_location("ten_graphs_of_bench", _FILE)
_models = importlib.util.module_from_spec(_found)
sys.modules[_found.name] = _models
_found.loader.exec_module(_models)

NAMES = tuple(_models.GRAPHS)
graph = functools.partial(_models.graph, size="small")
bound = functools.partial(_models.bound, size="small")


@functools.cache
def small(name):
    """(module with constant weights, inputs, what it means): the last as a list of arrays."""
    mod, inputs = bound(name)
    return mod, inputs, flat(Evaluator(mod)("main", *inputs))


def flat(result):
    """The arrays of a result, tuples inside tuples included."""
    if isinstance(result, (tuple, list)):
        return [array for field in result for array in flat(field)]
    return [result if isinstance(result, np.ndarray) else result.numpy()]


def check_meaning(name, result):
    """`result` is what the graph called `name` means, but for rounding."""
    wanted = small(name)[2]
    got = flat(result)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * float(np.abs(b).max()))
