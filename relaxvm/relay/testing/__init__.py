"""What tests and tutorials for Relay use: passes run on expressions, and models with parameters."""

from typing import Any as _Any

from ...base import submodules as _submodules
from ...ir import IRModule as _IRModule
from ...relax import Function as _Function
from ..transform import InferType as _InferType
from . import init as init
from . import layers as layers
from . import temp_op_attr as temp_op_attr
from .gradients import check_grad as check_grad
from .init import create_workload as create_workload
from .models import dcgan as dcgan
from .models import densenet as densenet
from .models import dqn as dqn
from .models import inception_v3 as inception_v3
from .models import lstm as lstm
from .models import mlp as mlp
from .models import mobilenet as mobilenet
from .models import resnet as resnet
from .models import squeezenet as squeezenet
from .models import vgg as vgg


def run_opt_pass(expr: _Any, opt_pass: _Any, import_prelude: bool = False) -> _Any:
    """What a pass makes of a function, or of an expression: the same kind of thing."""
    mod = opt_pass(_InferType()(_IRModule.from_expr(expr)))
    entry = mod["main"]
    return entry if isinstance(expr, _Function) else entry.body


def run_infer_type(expr: _Any) -> _Any:
    """A function, or an expression, with its types."""
    return run_opt_pass(expr, lambda mod: mod)


__getattr__ = _submodules(__name__)
