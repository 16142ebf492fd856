"""What values of a function are, over a data set: the function is built with them as its results,
and run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base import PassError, VMValueError, record
from ..ir import GlobalVar, IRModule
from ..pipeline import build
from ..relax import Function, Tuple, Var
from ..runtime import VirtualMachine, as_ndarray, cpu

BINS = 2048


@record(frozen=False)
class Observed:
    """low, high: the least and the greatest element that a value had; counts: how many magnitudes
    lay in each of `BINS` equal parts of [0, limit], if that was asked for.
    """

    low: float = 0.0
    high: float = 0.0
    counts: np.ndarray | None = None

    @property
    def limit(self) -> float:
        """The greatest magnitude."""
        return max(-self.low, self.high)


def arguments(fn: Function, dataset: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The arguments of `fn` for each sample of `dataset`: a dict of them by name, a tuple or list
    of them in order, or the only one. Raises PassError for no samples, for others, and for what is
    no finite number.
    """
    names = [p.name_hint for p in fn.params]
    if isinstance(dataset, (str, bytes, Mapping)) or not isinstance(dataset, Iterable):
        raise PassError(
            f"dataset: wanted several samples, each a dict or a tuple; got {type(dataset).__name__}"
        )
    rows: list[tuple[Any, ...]] = []
    try:
        for sample in dataset:
            rows.append(_row(names, sample, f"dataset: sample {len(rows)}"))
    except Exception as error:
        error.add_note(f"in sample {len(rows)} of the dataset")
        raise
    if not rows:
        raise PassError("dataset: it is empty; wanted at least one sample")
    return rows


def _row(names: Sequence[str], sample: Any, where: str) -> tuple[Any, ...]:
    if isinstance(sample, Mapping):
        if {*sample} != {*names}:
            got = ", ".join(map(str, sample))
            raise PassError(f"{where}: wanted the inputs {', '.join(names)}; got {got or 'none'}")
        row = tuple(sample[n] for n in names)
    else:
        row = tuple(sample) if isinstance(sample, (list, tuple)) else (sample,)
    if len(row) != len(names):
        raise PassError(f"{where}: wanted {len(names)} inputs, {', '.join(names)}; got {len(row)}")
    for name, value in zip(names, row):
        _want_finite(value, f"{where}: {name}")
    return row


def _want_finite(value: Any, where: str) -> Any:
    """`value`, an array as a numpy array. Raises PassError unless its elements are finite."""
    array = as_ndarray(value).numpy() if hasattr(value, "__array__") else value
    if isinstance(array, np.ndarray) and not np.isfinite(array).all():
        wrong = array[~np.isfinite(array)].flat[0]
        raise PassError(f"{where}: wanted finite numbers, got {wrong}")
    return array


def observe(
    mod: IRModule,
    gv: GlobalVar,
    values: Sequence[Var],
    rows: Sequence[tuple[Any, ...]],
    counted: Sequence[Var] = (),
) -> dict[Any, Observed]:
    """What `values`, variables of the function `gv` outside of branches, are for the arguments
    `rows`; of those in `counted` with a histogram of magnitudes, for which it is run again.

    Raises PassError for a value that is not finite, VMError for arguments that do not fit.
    """
    values = list(dict.fromkeys((*values, *counted)))
    seen: dict[Any, Observed] = {}
    if not values:
        return seen
    fn = mod[gv]
    assert isinstance(fn, Function)
    body = fn.body.replace(body=Tuple(values))
    shown = fn.replace(body=body, ret_struct_info=None)
    program = build(mod.clone({**mod.functions, gv: shown}), exec_mode="bytecode")
    run = VirtualMachine(program, cpu())[gv.name_hint]
    for k, row in enumerate(rows):
        for v, x in zip(values, _arrays(run, row, k)):
            array = _want_finite(x, f"dataset: sample {k}: the value {v.name_hint}")
            if array.size:
                one = seen.setdefault(v, Observed(float(array.min()), float(array.max())))
                one.low, one.high = min(one.low, array.min()), max(one.high, array.max())
    for k, row in enumerate(rows if counted else ()):
        for v, x in zip(values, _arrays(run, row, k)):
            one = seen.get(v, _NOTHING)
            if v in counted and one.limit > 0:
                array = np.abs(as_ndarray(x).numpy().astype("float64"))
                counts = np.histogram(array, BINS, (0.0, float(one.limit)))[0]
                one.counts = counts if one.counts is None else one.counts + counts
    return {v: seen.get(v, _NOTHING) for v in values}


_NOTHING = Observed()


def _arrays(run: Any, row: tuple[Any, ...], k: int) -> Any:
    try:
        return run(*row)
    except VMValueError as error:
        error.add_note(f"for sample {k} of the dataset")
        raise
