"""Default schedules for CPUs, chosen by what a kernel computes.

Enters: loop functions and a `CpuModel`. Leaves: the same functions with good loops. Not done here:
the primitives (`tir/schedule`), searching for better ones (`meta_schedule`).
"""

from ....base import submodules as _submodules
from .constant_blocks import ConstantBlocks as ConstantBlocks
from .contraction import Contraction as Contraction
from .contraction import match_contraction as match_contraction
from .contraction import tile_shape as tile_shape
from .default import SCHEDULED as SCHEDULED
from .default import DefaultSchedule as DefaultSchedule
from .default import WidenIndices as WidenIndices
from .default import block_rule as block_rule
from .default import is_scheduled as is_scheduled
from .default import schedule_function as schedule_function
from .default import with_constant_blocks as with_constant_blocks
from .default import with_constant_layouts as with_constant_layouts
from .injective import LARGEST as LARGEST
from .injective import cost_of as cost_of
from .neighbours import MOST_BUFFERS as MOST_BUFFERS
from .queries import no_more as no_more
from .tuned import SOURCES as SOURCES
from .tuned import ApplyTuned as ApplyTuned

__getattr__ = _submodules(__name__)
