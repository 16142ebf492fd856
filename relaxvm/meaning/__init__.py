"""Whether passes and builds keep what a module means.

Enters: a module before and after a pass, or a whole build. Leaves: MeaningError with a small
program that shows what differs. Not done here: the meanings themselves (`relax.interp`,
`tir.interp`).
"""

from ..base import submodules as _submodules
from .check import SIZES as SIZES
from .check import CheckMeaning as CheckMeaning
from .check import MeaningError as MeaningError
from .check import assert_same_meaning as assert_same_meaning
from .check import bisect as bisect
from .reproducer import array as array
from .reproducer import write_reproducer as write_reproducer

__getattr__ = _submodules(__name__)
