"""Work handed to others: patterns by name, and what takes what they match.

    mod = FuseOpsByPattern(get_patterns_with_prefix("numpy"))(mod)
    mod = MergeCompositeFunctions()(mod)
    mod = RunCodegen()(mod)

Enters: graph functions. Leaves: graph functions that call what external code generators made.
Not done here: finding what matches, and calling the code generators (`relax.transform`).
`docs/bring_your_own_codegen.md` shows it whole; `numpy_blas.py` is one.
"""

from ...base import submodules as _submodules
from . import patterns as patterns
from .pattern_registry import get_pattern as get_pattern
from .pattern_registry import get_patterns_with_prefix as get_patterns_with_prefix
from .pattern_registry import register_patterns as register_patterns
from .utils import has_leaking_intermediate_variables as has_leaking_intermediate_variables

__getattr__ = _submodules(__name__, files="patterns")
