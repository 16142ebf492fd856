"""`relay.op`: where Relay keeps its operators, and `get`, which finds them by their names."""

from ...base import submodules as _submodules
from ...ir import Op as Op
from .. import image as image
from .. import nn as nn
from ..spelling import get as get
from ..tensor import *

__getattr__ = _submodules(__name__)
