"""Schedules found by measuring: where they are kept, and how builds come by them.

Enters: loop functions, traces and the times they took. Leaves: schedules. Not done here: the
primitives (`tir/schedule`) and choosing without measuring (`tir/schedule/rules`).
"""

from ..base import submodules as _submodules
from . import arg_info as arg_info
from . import database as database
from . import dispatch as dispatch
from .database import Database as Database
from .database import JSONDatabase as JSONDatabase
from .database import TuningRecord as TuningRecord
from .dispatch import DispatchContext as DispatchContext

__getattr__ = _submodules(__name__)
