"""What inference refuses of constant sizes, the program refuses of the same sizes when it runs.

Generated from the op table: a dimension of a case's tensors is changed until the call is refused.
The same call on symbols must stop the program, by an error of ours, before it computes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from op_table import (
    FAMILIES,
    Case,
    Instance,
    Sh,
    Sym,
    T,
    _build,
    _flat,
    _to_argument,
    cases_of,
    module_of,
)
from relax_vm_helpers import build_interpreted

from relaxvm.base import RelaxvmError, StructInfoError


def table() -> dict[str, list[Case]]:
    """The quick cases whose tensors are all there is to their sizes, by operator."""
    found: dict[str, list[Case]] = {}
    for family in FAMILIES:
        for case in cases_of(family):
            arguments = [*_flat(case.args), *_flat(case.attrs.values())]
            if isinstance(case, Case) and not case.slow:
                if not any(isinstance(a, (Sh, Sym)) for a in arguments):
                    if all(a.info is None for a in arguments if isinstance(a, T)):
                        found.setdefault(case.op.op.name, []).append(case)
    return found


def with_shapes(case: Case, shapes: list[tuple[Any, ...]]) -> Case:
    """`case` on tensors of other shapes, one for each of its tensors."""
    rest = iter(shapes)

    def changed(arg: Any) -> Any:
        if isinstance(arg, (tuple, list)):
            return tuple(map(changed, arg))
        if not isinstance(arg, T):
            return arg
        made = copy.copy(arg)
        made.shape = next(rest)
        made.data = arg.data if callable(arg.data) else None
        if made.data is None and arg.data is not None:
            made.low, made.high = 0, 0
        return made

    made = copy.copy(case)
    made.args = tuple(map(changed, case.args))
    made.attrs = {k: changed(v) for k, v in case.attrs.items()}
    return made


def instance(case: Case) -> Instance | None:
    """The call, or None if it is refused."""
    try:
        with np.errstate(all="ignore"):
            return Instance(case, case.dtypes[0])
    except StructInfoError:
        return None


def misfits(case: Case) -> Iterator[tuple[Case, list[tuple[int, ...]], tuple[int, int]]]:
    """`case` with one dimension changed so that it is refused: the case, its shapes, which one."""
    arguments = [*_flat(case.args), *_flat(case.attrs.values())]
    shapes = [
        tuple(case.sizes[d] if isinstance(d, str) else d for d in a.shape)
        for a in arguments
        if isinstance(a, T)
    ]
    if instance(with_shapes(case, shapes)) is None:
        return  # it lives by its symbols
    for i, shape in enumerate(shapes):
        for k, size in enumerate(shape):
            for other in (size + 1, 2 * size + 3):
                wrong = [*shapes[:i], (*shape[:k], other, *shape[k + 1 :]), *shapes[i + 1 :]]
                if instance(with_shapes(case, wrong)) is None:
                    yield case, wrong, (i, k)
                    break


def on_symbols(case: Case, shapes: list[tuple[int, ...]], at: tuple[int, int]) -> Instance | None:
    """The call on symbols of these sizes: on one for each dimension, else on one for the changed
    one; None if it is refused even so.
    """
    names = {(i, k): f"d{i}_{k}" for i, shape in enumerate(shapes) for k in range(len(shape))}
    for chosen in (names, {at: names[at]}):
        symbolic = [
            tuple(chosen.get((i, k), d) for k, d in enumerate(shape))
            for i, shape in enumerate(shapes)
        ]
        made = with_shapes(case, symbolic)
        made.sizes = {n: shapes[i][k] for (i, k), n in names.items()}
        one = instance(made)
        if one is not None:
            return one
    return None


def refused(cases: list[Case], most: int) -> Iterator[Instance]:
    """Calls on symbols of one operator whose sizes will not fit, `most` of them at most."""
    count = 0
    for case in cases:
        for misfit in misfits(case):
            one = on_symbols(*misfit)
            # Elements that a case makes itself may keep their own shape.
            if one is not None and [a.shape for a in one.arrays] == misfit[1]:
                yield one
                count += 1
                if count == most:
                    return


def accepted(group: list[Instance], build: Any) -> list[str]:
    """Those of which the program takes the sizes, or which it stops in a way that is not ours."""
    vm = build(module_of(group))
    wrong = []
    for i, one in enumerate(group):
        arguments = map(_to_argument, one.arrays, one.params)
        try:
            vm[f"f{i}"](*arguments)
            wrong.append(f"{one.label} on {[a.shape for a in one.arrays]}: runs")
        except RelaxvmError:
            pass
        except Exception as error:
            wrong.append(f"{one.label}: {type(error).__name__}: {error}")
    return wrong


def test_what_is_refused_of_constants_stops_the_program_that_has_symbols():
    group = [one for cases in table().values() for one in refused(cases, 1)][::2]
    assert len(group) > 30
    wrong = accepted(group, build_interpreted)
    assert not wrong, f"{len(wrong)} of {len(group)}:\n" + "\n".join(wrong)


@pytest.mark.slow
def test_every_dimension_that_is_refused_stops_the_compiled_program():
    group = [one for cases in table().values() for one in refused(cases, 12)]
    wrong = [w for k in range(0, len(group), 60) for w in accepted(group[k : k + 60], _build)]
    assert not wrong, f"{len(wrong)} of {len(group)}:\n" + "\n".join(wrong)
