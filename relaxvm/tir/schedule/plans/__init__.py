"""Default schedules for CPUs, chosen by what a kernel computes.

Enters: loop functions and a `CpuModel`. Leaves: the same functions with good loops. Not done here:
the primitives (`tir/schedule`), searching for better ones (`meta_schedule`).
"""

from ....base import submodules as _submodules
from .choices import Choice as Choice
from .choices import plans_for as plans_for
from .constant_blocks import ConstantBlocks as ConstantBlocks
from .constant_inputs import ready_kernel as ready_kernel
from .constant_inputs import with_constant_layouts as with_constant_layouts
from .constant_inputs import with_constants as with_constants
from .constant_inputs import with_layout_rewrites as with_layout_rewrites
from .contraction import Contraction as Contraction
from .contraction import match_contraction as match_contraction
from .contraction import tile_shape as tile_shape
from .default import PLANNERS as PLANNERS
from .default import SCHEDULED as SCHEDULED
from .default import DefaultSchedule as DefaultSchedule
from .default import WidenIndices as WidenIndices
from .default import is_scheduled as is_scheduled
from .default import schedule_function as schedule_function
from .default import scheduled_by as scheduled_by
from .finishing import MOST_BUFFERS as MOST_BUFFERS
from .injective import LARGEST as LARGEST
from .injective import cost_of as cost_of
from .plan import PLANS as PLANS
from .plan import Plan as Plan
from .plan import apply_plan as apply_plan
from .plan import plan_from_json as plan_from_json
from .queries import no_more as no_more
from .queries import root_of as root_of
from .sums import order_matters as order_matters
from .tuned import SOURCES as SOURCES
from .tuned import ApplyTuned as ApplyTuned
from .tuned import as_tuned as as_tuned
from .view import Kind as Kind
from .view import View as View
from .work import OWN_BLOCK_RULES as OWN_BLOCK_RULES
from .work import Picks as Picks
from .work import block_rule as block_rule

__getattr__ = _submodules(__name__)
