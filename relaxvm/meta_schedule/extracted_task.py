"""`ExtractedTask`: a kernel of a model that can be tuned."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import record, submodules
from ..ir import IRModule
from ..target import Target


@record
class ExtractedTask:
    """A kernel of a model.

    task_name   what the kernel is called there
    mod         a module with the kernel alone, called main
    dispatched  what it may be computed by: `mod`
    weight      how many calls of it, and of equal kernels, the model has
    """

    task_name: str
    mod: IRModule
    target: Target
    dispatched: Sequence[IRModule]
    weight: int


__getattr__ = submodules(__name__)
