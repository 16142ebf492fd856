"""`nn`: models written as modules, as in PyTorch, and exported as graph functions.

    class MLP(nn.Module):
        def __init__(self):
            self.hidden, self.out = nn.Linear(784, 128), nn.Linear(128, 10)

        def forward(self, x: nn.Tensor):
            return self.out(nn.op.relu(self.hidden(x)))

    mod, params = MLP().export_tvm({"forward": {"x": nn.spec.Tensor(["n", 784], "float32")}})

Enters: modules and a spec of their methods. Leaves: an `IRModule` and the parameters by name. Not
done here: training.
"""

from ....base import submodules
from . import core, effects, exporter, jit, modules, op, spec, visitor
from .core import (
    Effect,
    Module,
    ModuleDict,
    ModuleList,
    Object,
    Parameter,
    ParameterDict,
    ParameterList,
    Tensor,
    get_default_dtype,
    set_default_dtype,
)
from .effects import IOEffect, KVCache
from .exporter import Exporter, add_extern
from .extern import ExternModule
from .jit import JITModule
from .modules import *  # noqa: F403
from .modules import __all__ as _modules
from .op import *  # noqa: F403
from .op import __all__ as _ops
from .subroutine import SubroutineMixin
from .visitor import Mutator

__getattr__ = submodules(__name__)

__all__ = [
    "Effect",
    "Exporter",
    "ExternModule",
    "IOEffect",
    "JITModule",
    "KVCache",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Mutator",
    "Object",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "SubroutineMixin",
    "Tensor",
    "add_extern",
    "core",
    "effects",
    "exporter",
    "get_default_dtype",
    "jit",
    "modules",
    "op",
    "set_default_dtype",
    "spec",
    "visitor",
    *_modules,
    *_ops,
]
