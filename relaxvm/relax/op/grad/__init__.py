"""What gradients are made of: `relax.op.grad.take_backward`, in script `R.grad.take_backward`.

Enters: gradients of results and what they were computed from. Leaves: gradients of arguments.
Not done here: which gradient an operator has (its own record says), and the pass over programs.
"""

from .loss import nll_loss_backward
from .marks import end_checkpoint, no_grad, start_checkpoint
from .pool import avg_pool2d_backward, max_pool2d_backward
from .take import take_backward
from .te_gradient import call_tir_with_grad, register_te_gradient, te_gradient

__all__ = [
    "avg_pool2d_backward",
    "call_tir_with_grad",
    "end_checkpoint",
    "max_pool2d_backward",
    "nll_loss_backward",
    "no_grad",
    "register_te_gradient",
    "start_checkpoint",
    "take_backward",
    "te_gradient",
]
