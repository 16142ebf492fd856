"""What gradients are made of: `relax.op.grad.take_backward`, in script `R.grad.take_backward`.

Enters: gradients of results and what they were computed from. Leaves: gradients of arguments.
Not done here: which gradient an operator has (its own record says), and the pass over programs.
"""

from ....base import submodules as _submodules
from .cumprod import cumprod_backward as cumprod_backward
from .grid_sample import grid_sample_backward as grid_sample_backward
from .loss import nll_loss_backward as nll_loss_backward
from .marks import end_checkpoint as end_checkpoint
from .marks import no_grad as no_grad
from .marks import start_checkpoint as start_checkpoint
from .pool import *
from .resize2d import resize2d_backward as resize2d_backward
from .roi_align import roi_align_backward as roi_align_backward
from .take import take_backward as take_backward
from .te_gradient import call_tir_with_grad as call_tir_with_grad
from .te_gradient import register_te_gradient as register_te_gradient
from .te_gradient import te_gradient as te_gradient

__getattr__ = _submodules(__name__)
