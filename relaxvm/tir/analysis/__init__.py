"""Questions about loop functions: are they well formed, what do they read and write, what do they
cost.

Enters: a PrimFunc, block, statement or expression. Leaves: facts and regions, or a VerifyError. Not
done here: changing anything (`tir/transform`), proofs about expressions (`arith`).
"""

from .access_lca import detect_buffer_access_lca
from .access_region import get_block_access_region, get_block_read_write_region
from .buffer_access import buffer_accesses
from .called_functions import called_functions
from .cost import (
    assert_pure_function,
    calculate_allocated_bytes,
    estimate_tir_flops,
    is_pure_function,
)
from .out_of_bounds import OOBChecker, OutOfBounds, find_out_of_bounds
from .variables import expr_deep_equal, undefined_vars, verify_ssa
from .verify_well_formed import verify_well_formed

__all__ = [
    "OOBChecker",
    "OutOfBounds",
    "assert_pure_function",
    "buffer_accesses",
    "called_functions",
    "calculate_allocated_bytes",
    "detect_buffer_access_lca",
    "estimate_tir_flops",
    "expr_deep_equal",
    "find_out_of_bounds",
    "get_block_access_region",
    "get_block_read_write_region",
    "is_pure_function",
    "undefined_vars",
    "verify_ssa",
    "verify_well_formed",
]
