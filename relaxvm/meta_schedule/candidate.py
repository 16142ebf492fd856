"""`MeasureCandidate`: a schedule that can be measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..base import submodules
from ..tir import PrimFunc
from ..tir.schedule import Schedule
from .arg_info import ArgInfo, TensorInfo, entry_of
from .database import key_of
from .features import features_of_stores


class MeasureCandidate:
    """sch        the schedule
    args_info  what it is called with; None: what its function says
    """

    point: Any = None
    """What was decided, where it is a point of a `DesignSpace`."""

    def __init__(self, sch: Schedule, args_info: Sequence[TensorInfo] | None = None) -> None:
        self.sch, self._args_info = sch, args_info

    @cached_property
    def args_info(self) -> Sequence[TensorInfo]:
        """Dtype and shape of each argument."""
        return ArgInfo.from_prim_func(self.fn) if self._args_info is None else self._args_info

    @cached_property
    def fn(self) -> PrimFunc:
        """The scheduled function."""
        return entry_of(self.sch.mod)

    @cached_property
    def key(self) -> str:
        """The same text for equal schedules."""
        return key_of(self.fn)

    @cached_property
    def rows(self) -> np.ndarray[Any, Any]:
        """What `features_of_stores` says."""
        return features_of_stores(self.fn)


__getattr__ = submodules(__name__)
