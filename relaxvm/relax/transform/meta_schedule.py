"""MetaScheduleApplyDatabase: loop functions get the schedules that a database has for them.

before   @T.prim_func main: 128 x 128 plain loops
after    the same function with the steps of its fastest record, marked as scheduled
"""

from __future__ import annotations

import os

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from ...meta_schedule import JSONDatabase
from ...target import Target
from ...tir.schedule.rules import ApplyTuned


@module_pass(opt_level=0, numerics="reassociates", obeys_numerics=True)
def MetaScheduleApplyDatabase(
    mod: IRModule,
    ctx: PassContext,
    *,
    work_dir: str | os.PathLike[str] | None = None,
    enable_warning: bool = False,
) -> IRModule:
    """Schedule loop functions of `mod` as they were tuned for the current target.

    work_dir        the folder of a `JSONDatabase`; None: the databases that are entered
    enable_warning  accepted as in TVM; what is not in the database is in `ctx.report`
    """
    tuned = ApplyTuned(target=Target.or_current(None))
    if work_dir is None:
        return tuned(mod)
    with JSONDatabase(work_dir=work_dir, allow_missing=False):
        return tuned(mod)
