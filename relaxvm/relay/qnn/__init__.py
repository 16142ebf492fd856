"""`relay.qnn`: operators of quantised tensors, and the passes over them."""

from ...base import submodules as _submodules
from . import op as op
from . import transform as transform

__getattr__ = _submodules(__name__)
