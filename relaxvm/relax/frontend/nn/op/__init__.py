"""`nn.op`: what can be applied to tensors of a method that is being exported.

Each operator binds one variable (its last argument `name` is a hint for it) and gives a `Tensor`,
or a tuple of them. Numbers beside tensors take their dtype.
"""

from .....base import submodules
from ..tensor import wrap_nested as wrap_nested
from .call import *  # noqa: F403
from .call import __all__ as _call
from .elementwise import *  # noqa: F403
from .elementwise import __all__ as _elementwise
from .manipulate import *  # noqa: F403
from .manipulate import __all__ as _manipulate
from .neural import *  # noqa: F403
from .neural import __all__ as _neural
from .search import *  # noqa: F403
from .search import __all__ as _search

__getattr__ = submodules(__name__)

__all__ = sorted(["wrap_nested", *_call, *_elementwise, *_manipulate, *_neural, *_search])
