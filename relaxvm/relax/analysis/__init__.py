"""Questions about graph functions and struct info, and the check that a module keeps the rules.

Enters: modules, functions, expressions. Leaves: answers, and `VerifyError`s. Nothing here changes
IR, except `remove_all_unused`.
"""

from ...base import submodules
from ..derive import (
    BaseCheckResult,
    declared_check,
    definable_tir_vars_in_struct_info,
    derive_call_ret_struct_info,
    erase_to_well_defined,
    is_base_of,
    struct_info_base_check,
    struct_info_lca,
    symbolic_vars,
    tir_vars_in_struct_info,
)
from ..kernel_call import loop_result, loop_signature
from ..static_type import get_static_type
from .compile_time import computable_at_compile_time
from .memory import MemoryEstimate, estimate_memory_usage, memory_estimates
from .purity import contains_impure_call, is_pure_call
from .recursion import detect_recursion
from .reshape_pattern import has_reshape_pattern
from .usage import get_var2val, name_to_binding, remove_all_unused, udchain
from .vars import (
    all_global_vars,
    all_vars,
    bound_vars,
    collect_non_negative_expressions,
    defined_symbolic_vars,
    free_symbolic_vars,
    free_vars,
    post_order_visit,
    used_vars,
)
from .well_formed import assert_well_formed, check_well_formed, well_formed
from .written import maybe_written_vars

__getattr__ = submodules(__name__, {"layout_transforms": "suggest_layout_transforms"})

__all__ = [
    "declared_check",
    "loop_result",
    "loop_signature",
    "BaseCheckResult",
    "MemoryEstimate",
    "all_global_vars",
    "all_vars",
    "assert_well_formed",
    "bound_vars",
    "check_well_formed",
    "collect_non_negative_expressions",
    "computable_at_compile_time",
    "contains_impure_call",
    "defined_symbolic_vars",
    "definable_tir_vars_in_struct_info",
    "derive_call_ret_struct_info",
    "detect_recursion",
    "erase_to_well_defined",
    "estimate_memory_usage",
    "free_symbolic_vars",
    "free_vars",
    "get_static_type",
    "get_var2val",
    "has_reshape_pattern",
    "is_base_of",
    "is_pure_call",
    "maybe_written_vars",
    "memory_estimates",
    "name_to_binding",
    "post_order_visit",
    "remove_all_unused",
    "struct_info_base_check",
    "struct_info_lca",
    "symbolic_vars",
    "tir_vars_in_struct_info",
    "udchain",
    "used_vars",
    "well_formed",
]
