"""`schedule_using_anchor_trace`: the steps that were found for one function, done to another with
the same main block: a product that is followed by something else, say. The trace has to get its
blocks by their names, as those of `PostOrderApply` and of users do.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ..base import ScheduleError, submodules
from ..target import Target
from ..tir.schedule import Schedule, Trace
from ..tir.schedule.analysis import has_block
from ..tir.schedule.plans import root_of
from .schedule_rule import AutoInline, ScheduleRule


def schedule_using_anchor_trace(sch: Schedule, anchor_trace: Trace, target: Any) -> None:
    """Do the steps of a trace to `sch`, for blocks of the same names; what of it does not fit is
    left out. Blocks that the trace does not name are inlined where they can be, before and after,
    and those that stay are shared out among the cores.

    anchor_trace  of a schedule of another function
    target        "llvm", "c": code is made for CPUs here
    """
    named = {str(i.args["name"]) for i in anchor_trace.insts if i.name == "get_block"}
    blocks = sch.get_child_blocks(root_of(sch))
    others = [str(sch.get(block).name_hint) for block in blocks]
    others = [name for name in others if name not in named]
    (rule,) = (r for r in ScheduleRule.create(Target(target).kind_name) if type(r) is AutoInline)
    for name in others:
        rule.apply(sch, sch.get_block(name))
    anchor_trace.apply_what_fits(sch)
    for name in others:
        if has_block(sch, name):
            with contextlib.suppress(ScheduleError):
                sch.reverse_compute_inline(name)
                continue
            with contextlib.suppress(ScheduleError), sch.attempt():
                sch.parallel(sch.fuse(*sch.get_loops(name)))


__getattr__ = submodules(__name__)
