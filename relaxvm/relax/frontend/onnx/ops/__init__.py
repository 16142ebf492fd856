"""Translations of ONNX operators, by family; importing this folder registers them.

A family is a file here, and it is listed below. What an operator computes is said in `relax.op`.
"""

from .....base import submodules as _submodules
from . import (
    activation as activation,
)
from . import (
    control as control,
)
from . import (
    create as create,
)
from . import (
    elementwise as elementwise,
)
from . import (
    indexing as indexing,
)
from . import (
    linalg as linalg,
)
from . import (
    matrix as matrix,
)
from . import (
    microsoft as microsoft,
)
from . import (
    ml as ml,
)
from . import (
    movement as movement,
)
from . import (
    normalise as normalise,
)
from . import (
    qlinear as qlinear,
)
from . import (
    quantised as quantised,
)
from . import (
    recurrent as recurrent,
)
from . import (
    reduce as reduce,
)
from . import (
    sequence as sequence,
)
from . import (
    strings as strings,
)
from . import (
    training as training,
)
from . import (
    transformer as transformer,
)
from . import (
    window as window,
)

__getattr__ = _submodules(__name__)
