"""Questions about loop functions: are they well formed, what do they read and write, what do they
cost.

Enters: a PrimFunc, block, statement or expression. Leaves: facts and regions, or a VerifyError. Not
done here: changing anything (`tir/transform`), proofs about expressions (`arith`).
"""

from ...base import submodules as _submodules
from .access_lca import detect_buffer_access_lca as detect_buffer_access_lca
from .access_region import get_block_access_region as get_block_access_region
from .access_region import get_block_read_write_region as get_block_read_write_region
from .buffer_access import access_nodes as access_nodes
from .buffer_access import buffer_accesses as buffer_accesses
from .buffer_access import gathered_data as gathered_data
from .called_functions import called_functions as called_functions
from .cost import assert_pure_function as assert_pure_function
from .cost import calculate_allocated_bytes as calculate_allocated_bytes
from .cost import estimate_tir_flops as estimate_tir_flops
from .cost import is_pure_function as is_pure_function
from .op_pattern import OpPattern as OpPattern
from .op_pattern import OpPatternKind as OpPatternKind
from .op_pattern import op_pattern as op_pattern
from .out_of_bounds import OOBChecker as OOBChecker
from .out_of_bounds import OutOfBounds as OutOfBounds
from .out_of_bounds import find_out_of_bounds as find_out_of_bounds
from .variables import expr_deep_equal as expr_deep_equal
from .variables import undefined_vars as undefined_vars
from .variables import verify_ssa as verify_ssa
from .verify_well_formed import verify_well_formed as verify_well_formed

__getattr__ = _submodules(__name__)
