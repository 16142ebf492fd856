"""Questions about graph functions and struct info, and the check that a module keeps the rules.

Enters: modules, functions, expressions. Leaves: answers, and `VerifyError`s. Nothing here changes
IR, except `remove_all_unused`.
"""

from ...base import submodules as _submodules
from ..derive import BaseCheckResult as BaseCheckResult
from ..derive import declared_check as declared_check
from ..derive import definable_tir_vars_in_struct_info as definable_tir_vars_in_struct_info
from ..derive import derive_call_ret_struct_info as derive_call_ret_struct_info
from ..derive import erase_to_well_defined as erase_to_well_defined
from ..derive import is_base_of as is_base_of
from ..derive import struct_info_base_check as struct_info_base_check
from ..derive import struct_info_lca as struct_info_lca
from ..derive import symbolic_vars as symbolic_vars
from ..derive import tir_vars_in_struct_info as tir_vars_in_struct_info
from ..kernel_call import loop_result as loop_result
from ..kernel_call import loop_signature as loop_signature
from ..static_type import get_static_type as get_static_type
from .compile_time import computable_at_compile_time as computable_at_compile_time
from .memory import MemoryEstimate as MemoryEstimate
from .memory import estimate_memory_usage as estimate_memory_usage
from .memory import memory_estimates as memory_estimates
from .purity import contains_impure_call as contains_impure_call
from .purity import is_pure_call as is_pure_call
from .recursion import detect_recursion as detect_recursion
from .recursion import graph_calls as graph_calls
from .reshape_pattern import has_reshape_pattern as has_reshape_pattern
from .usage import get_var2val as get_var2val
from .usage import name_to_binding as name_to_binding
from .usage import remove_all_unused as remove_all_unused
from .usage import udchain as udchain
from .vars import all_global_vars as all_global_vars
from .vars import all_vars as all_vars
from .vars import bound_vars as bound_vars
from .vars import called_global_vars as called_global_vars
from .vars import called_operators as called_operators
from .vars import collect_non_negative_expressions as collect_non_negative_expressions
from .vars import defined_symbolic_vars as defined_symbolic_vars
from .vars import free_symbolic_vars as free_symbolic_vars
from .vars import free_vars as free_vars
from .vars import kernel_calls as kernel_calls
from .vars import post_order_visit as post_order_visit
from .vars import used_vars as used_vars
from .well_formed import assert_well_formed as assert_well_formed
from .well_formed import check_well_formed as check_well_formed
from .well_formed import well_formed as well_formed
from .written import maybe_written_vars as maybe_written_vars

__getattr__ = _submodules(__name__, {"layout_transforms": "suggest_layout_transforms"})
