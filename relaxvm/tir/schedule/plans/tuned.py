"""`ApplyTuned`: schedules that were found by measuring, before the rules choose others.

with JSONDatabase(work_dir="logs"):      # enters itself into `SOURCES`
    ex = relax.build(mod)                # kernels it knows get its schedules
"""

from __future__ import annotations

import contextvars
import warnings
from collections.abc import Callable
from typing import Any

from ....base import ScheduleError, decided, in_function
from ....ir import IRModule, PassContext, walk
from ....ir.transform import module_pass
from ...stmt import FORMULA, REASSOCIATE, Block, PrimFunc
from ..schedule import Schedule
from .default import SCHEDULED, is_scheduled
from .queries import reduces

# (loop function, target) -> its schedule, or None: what is asked, the innermost last.
Source = Callable[[PrimFunc, Any], Schedule | None]
SOURCES: contextvars.ContextVar[tuple[Source, ...]] = contextvars.ContextVar("tuned", default=())


@module_pass(opt_level=1, numerics="reassociates", obeys_numerics=True)
def ApplyTuned(mod: IRModule, ctx: PassContext, *, target: Any) -> IRModule:
    """Schedule the loop functions of `mod` that a source which is entered knows for `target`.
    Under `numerics="exact"` none is asked: nobody has said in which order a schedule adds up.

    A schedule that is refused is left out with a warning, and rules choose another.
    """
    sources = SOURCES.get()
    if not sources or ctx.get("numerics") == "exact":
        return mod
    changed = {}
    for gv, fn in mod.items():
        if not isinstance(fn, PrimFunc) or fn.get_attr(SCHEDULED, False):
            continue
        if fn.span is not FORMULA and is_scheduled(fn):
            continue
        with in_function(gv):
            tuned = _asked(fn, target, sources, gv.name_hint)
        if tuned is not None:
            changed[gv] = as_tuned(fn, tuned)
    if not changed:
        return mod
    new = mod.clone()
    new.update(changed)
    return new


def as_tuned(fn: PrimFunc, tuned: PrimFunc) -> PrimFunc:
    """`tuned`, a schedule of `fn`, marked as default schedules are: sums are added up in any order,
    as for those.
    """
    sums = any(isinstance(n, Block) and reduces(n) for n in walk(fn.body))
    return tuned.replace(
        attrs={**fn.attrs, SCHEDULED: True, **({REASSOCIATE: True} if sums else {})}
    )


def _asked(fn: PrimFunc, target: Any, sources: tuple[Source, ...], name: str) -> PrimFunc | None:
    for source in reversed(sources):
        try:
            schedule = source(fn, target)
        except ScheduleError as error:
            warnings.warn(
                f"a tuned schedule of {name} is left out, it does not fit: {error}",
                UserWarning,
                stacklevel=2,
            )
            continue
        if schedule is not None:
            decided("scheduled as it was tuned")
            return schedule.state.fn
    return None
