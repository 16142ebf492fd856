"""`ApplyTuned`: schedules that were found by measuring, before the rules choose others.

with JSONDatabase(work_dir="logs"):      # enters itself into `SOURCES`
    ex = relax.build(mod)                # kernels it knows get its schedules
"""

from __future__ import annotations

import contextvars
import warnings
from collections.abc import Callable
from typing import Any

from ....base import ScheduleError, decided
from ....ir import IRModule, PassContext, walk
from ....ir.transform import prim_func_pass
from ...stmt import FORMULA, REASSOCIATE, Block, PrimFunc
from ..schedule import Schedule
from .default import SCHEDULED, is_scheduled
from .queries import reduces

# (loop function, target) -> its schedule, or None: what is asked, the innermost last.
Source = Callable[[PrimFunc, Any], Schedule | None]
SOURCES: contextvars.ContextVar[tuple[Source, ...]] = contextvars.ContextVar("tuned", default=())


@prim_func_pass(opt_level=1, numerics="reassociates", obeys_numerics=True)
def ApplyTuned(fn: PrimFunc, mod: IRModule, ctx: PassContext, *, target: Any) -> PrimFunc:
    """Schedule the loop functions of a module that a source which is entered knows for `target`.
    Under `numerics="exact"` none is asked: nobody has said in which order a schedule adds up.

    A schedule that is refused is left out with a warning, and rules choose another.
    """
    sources = SOURCES.get()
    if not sources or ctx.get("numerics") == "exact" or fn.get_attr(SCHEDULED, False):
        return fn
    if fn.span is not FORMULA and is_scheduled(fn):
        return fn
    name = next(gv.name_hint for gv, each in mod.items() if each is fn)
    tuned = _asked(fn, target, sources, name)
    return fn if tuned is None else as_tuned(fn, tuned)


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
