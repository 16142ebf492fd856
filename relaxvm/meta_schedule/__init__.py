"""Schedules found by measuring: where they are kept, and how builds come by them.

Enters: loop functions, traces and the times they took. Leaves: schedules. Candidates are built,
checked and timed in processes of their own (`measure`), chosen by a `search_strategy` from a
`space`, within the time that a user gives (`tuning`, whose loop is `engine`). Not done here: the
primitives (`tir/schedule`), choosing without measuring (`tir/schedule/plans`), and what kernels a
model has (`relaxvm.tuning`).
"""

from ..base import submodules as _submodules
from . import arg_info as arg_info
from . import builder as builder
from . import cost_model as cost_model
from . import database as database
from . import dispatch as dispatch
from . import feature_extractor as feature_extractor
from . import logging as logging
from . import measure as measure
from . import measure_callback as measure_callback
from . import mutator as mutator
from . import postproc as postproc
from . import priors as priors
from . import runner as runner
from . import schedule_rule as schedule_rule
from . import search_strategy as search_strategy
from . import space_generator as space_generator
from . import task_scheduler as task_scheduler
from . import tir_integration as tir_integration
from .builder import Builder as Builder
from .candidate import MeasureCandidate as MeasureCandidate
from .cost_model import CostModel as CostModel
from .database import Database as Database
from .database import JSONDatabase as JSONDatabase
from .database import TuningRecord as TuningRecord
from .derived import DerivedError as DerivedError
from .derived import derived_object as derived_object
from .dispatch import DispatchContext as DispatchContext
from .extracted_task import ExtractedTask as ExtractedTask
from .feature_extractor import FeatureExtractor as FeatureExtractor
from .interrupts import heard as heard
from .interrupts import interrupts as interrupts
from .measure import Measurer as Measurer
from .measure_callback import MeasureCallback as MeasureCallback
from .mutator import Mutator as Mutator
from .postproc import Postproc as Postproc
from .profiler import Profiler as Profiler
from .progress import Progress as Progress
from .runner import Runner as Runner
from .schedule_rule import ScheduleRule as ScheduleRule
from .search_strategy import SearchStrategy as SearchStrategy
from .space_generator import SpaceGenerator as SpaceGenerator
from .task_scheduler import TaskScheduler as TaskScheduler
from .tasks import Listener as Listener
from .tasks import Task as Task
from .tasks import Tuned as Tuned
from .tasks import tasks_from as tasks_from
from .tir_integration import TuneConfig as TuneConfig
from .tir_integration import tune_te as tune_te
from .tir_integration import tune_tir as tune_tir
from .tune import tune_tasks as tune_tasks
from .tune_context import TuneContext as TuneContext
from .tuning import Parts as Parts
from .tuning import check_limits as check_limits
from .tuning import database_of as database_of
from .tuning import tune_kernels as tune_kernels
from .whole import Whole as Whole

__getattr__ = _submodules(__name__)
