"""Tensor intrinsics by TVM's names, for `Schedule.tensorize`: dot products of 8-bit numbers.

    sch.tensorize(loop, tir.tensor_intrin.VNNI_DOT_16x4_INTRIN)

A name says what is computed, not by which instruction: the code generator takes what its machine
has for it (`T.dot_accumulate`), so that each runs everywhere. Those of GPUs and other accelerators
do not exist.
"""

from ...base import submodules as _submodules
from .arm_cpu import ARM_DOT_4x4_i8_NEON_INTRIN as ARM_DOT_4x4_i8_NEON_INTRIN
from .arm_cpu import ARM_DOT_4x4_i8_SDOT_INTRIN as ARM_DOT_4x4_i8_SDOT_INTRIN
from .arm_cpu import ARM_DOT_4x4_u8_HDOT_INTRIN as ARM_DOT_4x4_u8_HDOT_INTRIN
from .arm_cpu import ARM_DOT_4x4_u8_UDOT_INTRIN as ARM_DOT_4x4_u8_UDOT_INTRIN
from .dot_product_common import DP4A_S8S8S32_INTRIN as DP4A_S8S8S32_INTRIN
from .dot_product_common import DP4A_S8U8S32_INTRIN as DP4A_S8U8S32_INTRIN
from .dot_product_common import DP4A_U8S8S32_INTRIN as DP4A_U8S8S32_INTRIN
from .dot_product_common import DP4A_U8U8U32_INTRIN as DP4A_U8U8U32_INTRIN
from .x86 import AVX512_DOT_16x4_INTRIN as AVX512_DOT_16x4_INTRIN
from .x86 import VNNI_DOT_16x4_INTRIN as VNNI_DOT_16x4_INTRIN

__getattr__ = _submodules(__name__)
