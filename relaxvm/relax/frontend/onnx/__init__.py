"""ONNX models as graph functions.

    mod = from_onnx("model.onnx")
    proto = to_onnx(mod)

Enters: a path, bytes or a ModelProto. Leaves: an `IRModule` whose function `main` takes the
model's inputs, under their names and with its named dimensions as symbols. Not done here: what an
operator means (`relax.op`), building, running.

Needs the extra ``onnx``, whose schemas say which attributes an operator has.
"""

from ....base import submodules as _submodules
from .export_ops import to_onnx as to_onnx
from .graph import from_onnx as from_onnx
from .registry import onnx as onnx
from .values import NeedsConstant as NeedsConstant

__getattr__ = _submodules(__name__, files="ops")
