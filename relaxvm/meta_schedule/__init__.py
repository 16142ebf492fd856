"""Schedules found by measuring: where they are kept, and how builds come by them.

Enters: loop functions, traces and the times they took. Leaves: schedules. Candidates are built,
checked and timed in processes of their own (`measure`), chosen by `search` over a `space`, within
the time that a user gives (`tuning`). Not done here: the primitives (`tir/schedule`), choosing
without measuring (`tir/schedule/rules`), and what kernels a model has (`relaxvm.tuning`).
"""

from ..base import submodules as _submodules
from . import arg_info as arg_info
from . import builder as builder
from . import database as database
from . import dispatch as dispatch
from . import measure as measure
from . import measure_callback as measure_callback
from . import runner as runner
from . import tir_integration as tir_integration
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
from .tir_integration import TuneConfig as TuneConfig
from .tir_integration import tune_tir as tune_tir
from .tuning import Listener as Listener
from .tuning import Task as Task
from .tuning import Tuned as Tuned
from .tuning import tasks_from as tasks_from
from .tuning import tune_kernels as tune_kernels

__getattr__ = _submodules(__name__)
