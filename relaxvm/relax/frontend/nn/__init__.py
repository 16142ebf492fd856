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

from ....base import submodules as _submodules
from . import core as core
from . import effects as effects
from . import exporter as exporter
from . import jit as jit
from . import modules as modules
from . import op as op
from . import spec as spec
from . import visitor as visitor
from .core import Effect as Effect
from .core import Module as Module
from .core import ModuleDict as ModuleDict
from .core import ModuleList as ModuleList
from .core import Object as Object
from .core import Parameter as Parameter
from .core import ParameterDict as ParameterDict
from .core import ParameterList as ParameterList
from .core import Tensor as Tensor
from .core import get_default_dtype as get_default_dtype
from .core import set_default_dtype as set_default_dtype
from .effects import IOEffect as IOEffect
from .effects import KVCache as KVCache
from .exporter import Exporter as Exporter
from .exporter import add_extern as add_extern
from .extern import ExternModule as ExternModule
from .jit import JITModule as JITModule
from .modules import *
from .op import *
from .subroutine import SubroutineMixin as SubroutineMixin
from .visitor import Mutator as Mutator

__getattr__ = _submodules(__name__, files="core effects exporter jit modules op spec visitor")
