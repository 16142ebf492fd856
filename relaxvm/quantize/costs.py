"""What each layer costs in accuracy and gains in time when it alone is quantised."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ..base import PassError, record, table
from ..ir import IRModule
from ..pipeline import build
from ..runtime import NDArray, VirtualMachine, cpu
from .config import current_qconfig
from .layers import Layers, main_of, prepared
from .observed import arguments
from .pairs import annotate, ranges, realize

Metric = Callable[[Any, Any], float]


@record
class LayerCost:
    """name, operator: of the layer, or "all"; error: what the metric gives; float_us, quantised_us:
    microseconds of the whole model without and with it quantised, medians.
    """

    name: str
    operator: str
    error: float
    float_us: float
    quantised_us: float

    @property
    def gain(self) -> float:
        """How many times faster the model is with the layer quantised."""
        return self.float_us / self.quantised_us


class SensitivityReport(Sequence[LayerCost]):
    """The costs of the layers in order, and last those of all chosen layers together, "all"."""

    def __init__(self, costs: Sequence[LayerCost]) -> None:
        self.costs = tuple(costs)

    def __len__(self) -> int:
        return len(self.costs)

    def __getitem__(self, key: Any) -> Any:
        """The cost at an index, or of the layer of a name."""
        if not isinstance(key, str):
            return self.costs[key]
        named = next((c for c in self.costs if c.name == key), None)
        if named is None:
            names = ", ".join(c.name for c in self.costs)
            raise PassError(f"sensitivity: no layer is called {key!r}; there are {names}")
        return named

    def to_json(self) -> str:
        """The costs as JSON: a list of objects with the fields of `LayerCost`, and `gain`."""
        return json.dumps([{**asdict(c), "gain": c.gain} for c in self.costs])

    def worst(self, count: int = 1) -> list[str]:
        """The names of the layers that cost most, worst first: for `skip_layers`."""
        return [c.name for c in sorted(self.costs[:-1], key=lambda c: -c.error)[:count]]

    def __repr__(self) -> str:
        head = ("layer", "operator", "error", "float us", "quantised us", "gain")
        rows = [
            (
                c.name, c.operator, f"{c.error:.3g}", f"{c.float_us:.1f}", f"{c.quantised_us:.1f}",
                f"{c.gain:.2f}x",
            )
            for c in self.costs
        ]  # fmt: skip
        return "\n".join(table([head, *rows], right=range(2, len(head))))


def relative_error(result: Any, wanted: Any) -> float:
    """|result - wanted| / |wanted| in Euclid's norm, over all arrays of a result."""
    off = size = 0.0
    for x, y in zip(_flat(result), _flat(wanted), strict=True):
        off += float(np.square(x.astype("float64") - y).sum())
        size += float(np.square(y.astype("float64")).sum())
    return float(np.sqrt(off / size)) if size else float(np.sqrt(off))


def sensitivity(
    mod: IRModule,
    dataset: Iterable[Any],
    metric: Metric = relative_error,
    params: Mapping[str, Any] | None = None,
    repeat: int = 7,
) -> SensitivityReport:
    """A report of each layer of `mod` that the current `qconfig` does not skip, quantised alone,
    and of all.

    dataset  what is calibrated with, and what errors are means over; times are of its first sample
    metric   (result, that of floats) -> error of one sample, a finite number; results are numpy
             arrays, or tuples
    repeat   how often each is timed, turn about

    Builds the model once for each layer. Arguments and errors as for `quantize`.
    """
    if not callable(metric):
        raise PassError(f"sensitivity: metric: wanted a function, got {metric!r}")
    if type(repeat) is not int or repeat < 1:
        raise PassError(f"sensitivity: repeat: wanted a positive int, got {repeat!r}")
    config, mod = current_qconfig(), prepared(mod, params)
    gv = main_of(mod)
    layers = Layers.of(mod, gv)
    chosen, rows = layers.chosen(config), arguments(layers.fn, dataset)
    seen = ranges(mod, gv, layers, chosen, rows, config)
    name = gv.name_hint
    floats = VirtualMachine(build(mod), cpu())
    wanted = [_numpy(floats[name](*row)) for row in rows]
    costs: list[LayerCost] = []
    for group in (*([layer] for layer in chosen), chosen):
        quantised = realize(annotate(mod, layers, group, seen, config))
        machine = VirtualMachine(build(quantised), cpu())
        errors = [_number(metric(_numpy(machine[name](*r)), w)) for r, w in zip(rows, wanted)]
        times = [
            [vm.time_evaluator(name, number=1, repeat=1, min_repeat_ms=1)(*rows[0]).mean
             for vm in (floats, machine)]
            for _ in range(repeat)
        ]  # fmt: skip
        before, after = (statistics.median(column) * 1e6 for column in zip(*times))
        alone = len(costs) < len(chosen)
        title = (group[0].name, group[0].operator) if alone else ("all", "")
        costs.append(LayerCost(*title, float(np.mean(errors)), before, after))
    return SensitivityReport(costs)


def _number(error: Any) -> float:
    """What a metric gives."""
    array = np.asarray(error)
    if array.size != 1 or not np.can_cast(array.dtype, "float64") or not np.isfinite(array).all():
        raise PassError(f"sensitivity: metric: wanted it to give a finite number, got {error!r}")
    return float(array.item())


def _numpy(result: Any) -> Any:
    """A result with arrays as numpy arrays, which are its own."""
    if isinstance(result, NDArray):
        return result.numpy().copy()
    return tuple(map(_numpy, result)) if isinstance(result, Sequence) else np.asarray(result)


def _flat(result: Any) -> list[Any]:
    if isinstance(result, tuple):
        return [x for field in result for x in _flat(field)]
    return [result]
