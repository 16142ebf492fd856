"""What gradients are made of: `relax.op.grad.take_backward`, in script `R.grad.take_backward`.

Enters: gradients of results and what they were computed from. Leaves: gradients of arguments.
Not done here: which gradient an operator has (its own record says), and the pass over programs.
"""

from .cumprod import cumprod_backward
from .grid_sample import grid_sample_backward
from .loss import nll_loss_backward
from .marks import end_checkpoint, no_grad, start_checkpoint
from .pool import (
    adaptive_avg_pool1d_backward,
    adaptive_avg_pool2d_backward,
    adaptive_avg_pool3d_backward,
    adaptive_max_pool1d_backward,
    adaptive_max_pool2d_backward,
    adaptive_max_pool3d_backward,
    avg_pool1d_backward,
    avg_pool2d_backward,
    avg_pool3d_backward,
    max_pool1d_backward,
    max_pool2d_backward,
    max_pool3d_backward,
)
from .resize2d import resize2d_backward
from .roi_align import roi_align_backward
from .take import take_backward
from .te_gradient import call_tir_with_grad, register_te_gradient, te_gradient

__all__ = [
    "adaptive_avg_pool1d_backward",
    "adaptive_avg_pool2d_backward",
    "adaptive_avg_pool3d_backward",
    "adaptive_max_pool1d_backward",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward",
    "avg_pool1d_backward",
    "avg_pool2d_backward",
    "avg_pool3d_backward",
    "call_tir_with_grad",
    "cumprod_backward",
    "end_checkpoint",
    "grid_sample_backward",
    "max_pool1d_backward",
    "max_pool2d_backward",
    "max_pool3d_backward",
    "nll_loss_backward",
    "no_grad",
    "register_te_gradient",
    "resize2d_backward",
    "roi_align_backward",
    "start_checkpoint",
    "take_backward",
    "te_gradient",
]
