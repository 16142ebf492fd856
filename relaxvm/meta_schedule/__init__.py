"""Schedules found by measuring: where they are kept, and how builds come by them.

Enters: loop functions, traces and the times they took. Leaves: schedules. Candidates are built,
checked and timed in processes of their own (`measure`). Not done here: the primitives
(`tir/schedule`) and choosing without measuring (`tir/schedule/rules`).
"""

from ..base import submodules as _submodules
from . import arg_info as arg_info
from . import builder as builder
from . import database as database
from . import dispatch as dispatch
from . import measure as measure
from . import measure_callback as measure_callback
from . import runner as runner
from .builder import Builder as Builder
from .database import Database as Database
from .database import JSONDatabase as JSONDatabase
from .database import TuningRecord as TuningRecord
from .derived import derived_object as derived_object
from .dispatch import DispatchContext as DispatchContext
from .measure import Measurer as Measurer
from .measure_callback import MeasureCallback as MeasureCallback
from .profiler import Profiler as Profiler
from .runner import Runner as Runner

__getattr__ = _submodules(__name__)
