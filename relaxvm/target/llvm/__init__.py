"""Code generation through LLVM.

Enters: loop functions and a target. Leaves: a `KernelSection`, LLVM or assembly text.
Not done here: choosing loops (`tir/schedule`), running code (`runtime`).
"""

from ...base import submodules as _submodules
from .at_hand import worker_at_hand as worker_at_hand
from .build import Kernels as Kernels
from .build import compile_kernels as compile_kernels
from .build import compile_prim_funcs as compile_prim_funcs
from .build import compile_program as compile_program
from .build import generate_llvm as generate_llvm
from .build import rebuild_kernels as rebuild_kernels
from .dot_units import dot_units as dot_units
from .dot_units import vector_units as vector_units
from .intrinsics import LLVM_INTRINSIC_IDS as LLVM_INTRINSIC_IDS
from .intrinsics import LLVM_INTRINSICS as LLVM_INTRINSICS
from .machine import Machine as Machine
from .machine import compile_text as compile_text
from .machine import host_machine as host_machine
from .machine import machine_of as machine_of
from .net import Worker as Worker
from .net import WorkerLost as WorkerLost
from .net import has_python as has_python
from .net import in_this_process as in_this_process
from .net import llvm_at_hand as llvm_at_hand
from .passes import pipes as pipes
from .passes import receive as receive
from .passes import send as send
from .support import support_at_hand as support_at_hand
from .workers import compile_ahead as compile_ahead

__getattr__ = _submodules(__name__)
