"""What TVM keeps beside its core: running graphs in its JSON form, and helpers of tutorials.

`graph_executor` and `debugger.debug_executor` are files of `runtime`, which loads no compiler.
"""

from ..base import submodules as _submodules

__getattr__ = _submodules(__name__)
