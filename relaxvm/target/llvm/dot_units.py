"""Which dot-product instructions and which vectors a machine has."""

from __future__ import annotations

import functools
import re

from .machine import Machine
from .probe import ARM, X86

# Instructions of `dot_units`, and the features of this computer that they need.
_FEATURES = (
    ("pmaddwd.128", "+sse2"),
    ("pmaddwd.256", "+avx2"),
    ("pmaddwd.512", "+avx512bw"),
    ("vpdpbusd.512", "+avx512vnni"),
    ("vpdpbusd.128 vpdpbusd.256", "+avx512vnni +avx512vl"),
    ("vpdpbusd.128 vpdpbusd.256", "+avxvnni"),
    ("dpbf16ps.512", "+avx512bf16"),
    ("dpbf16ps.128 dpbf16ps.256", "+avx512bf16 +avx512vl"),
    ("udot sdot", "+dotprod"),
    ("usdot", "+i8mm"),
    ("bfdot", "+bf16"),
)
# The same by what stands in the assembly of the probes.
_ASSEMBLY = (
    ("pmaddwd.128", X86, "paddd"),
    ("pmaddwd.256", X86, "vpaddd.*[yz]mm"),
    # 16-bit elements in 512 bits are an extension of their own (avx512bw).
    ("pmaddwd.512", X86, "vpaddw.*zmm"),
    ("vpdpbusd.128", X86, "vpdpbusd.*xmm"),
    ("vpdpbusd.256", X86, "vpdpbusd.*ymm"),
    ("vpdpbusd.512", X86, "vpdpbusd.*zmm"),
    # With {vex} before it, it is of AVX-NE-CONVERT, which has no dot product.
    ("dpbf16ps.512", X86, r"^(?!.*\{vex\})(?=.*zmm).*vcvtneps2bf16"),
    ("dpbf16ps.128 dpbf16ps.256", X86, r"^(?!.*(\{vex\}|zmm)).*vcvtneps2bf16"),
    ("udot sdot", ARM, r"\tudot\b"),
    ("usdot", ARM, r"\tusdot\b"),
    ("bfdot", ARM, r"\tbfcvtn"),
)


@functools.lru_cache(maxsize=64)
def dot_units(machine: Machine) -> frozenset[str]:
    """Instructions by name and, on x86, width of their registers in bits:

    "pmaddwd.256"   sums of two products of int16
    "vpdpbusd.256"  uint8 x int8, four at a time, added to int32
    "dpbf16ps.512"  bfloat16, two at a time, added to float32
    "udot", "sdot", "usdot", "bfdot"    the same on Arm
    """
    architecture = machine.triple.split("-")[0]
    if machine.is_this_computer:
        has = frozenset(machine.features.split(","))
        fits = [units for units, wanted in _FEATURES if has.issuperset(wanted.split())]
    elif architecture in X86 or architecture in ARM:
        asm = machine.probed()
        told = [row for row in _ASSEMBLY if architecture in row[1]]
        fits = [units for units, _, wanted in told if re.search(wanted, asm, re.M)]
    else:
        fits = []
    return frozenset(" ".join(fits).split())


@functools.lru_cache(maxsize=64)
def vector_units(machine: Machine) -> tuple[int, bool] | None:
    """Width of the vector registers in bits, and whether there is FMA; None: not known."""
    architecture = machine.triple.split("-")[0]
    has = frozenset(machine.features.split(","))
    if architecture in X86:
        if machine.is_this_computer:
            wide = 512 if "+avx512f" in has else 256 if "+avx" in has else 128
            return wide, bool(has & {"+fma", "+fma4"})
        asm = machine.probed()
        # LLVM prefers 256 bits on some CPUs that have 512: what counts is what there is.
        wide = 512 if "zmm" in asm else 256 if "ymm" in asm else 128 if "xmm" in asm else 64
        return wide, "vfmadd" in asm
    if architecture not in ARM and not architecture.startswith("riscv"):
        return None
    asm = machine.probed()
    if architecture in ARM:
        return (128, "fmla" in asm) if ".4s" in asm else (64, False)
    return (128, "vfmacc" in asm or "vfmadd" in asm) if "vsetivli" in asm else (64, False)
