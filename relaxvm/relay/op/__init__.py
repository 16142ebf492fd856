"""`relay.op`: where Relay keeps its operators, and `get`, which finds them by their names."""

from ...base import submodules as _submodules
from ...ir import Op as Op
from .. import image as image
from .. import nn as nn
from ..spelling import get as get
from ..tensor import *
from ..transform.alter_op_layout import register_alter_op_layout as register_alter_op_layout

__getattr__ = _submodules(__name__)
