"""How fast CPUs are, by LLVM's names of CPUs; others, and what is not stated, have common rates.

They are for predictions of what plans cost, which rank plans and choose some. Nothing is measured
when code is compiled: for one CPU it is the same wherever that happens. `python -m
relaxvm.target.measure` prints the line of this computer.
"""

from __future__ import annotations

from ..base import Rates

# Caches: what Intel's optimization manual says they sustain; memory: a machine file of kerncraft,
# one thread of a Xeon Gold 6248 at 2.5 GHz.
_SKYLAKE_SERVER = Rates(2.5e9, 52.0, 15.0, 5.2)
_FOUR = 4.0  # of 128 bits: Arm's Software Optimization Guides, Apple's CPU Optimization Guide

RATES: dict[str, Rates] = {
    # -- measured with `python -m relaxvm.target.measure` ------------------------------------------
    # AVX2, DDR4, shared by others.
    "znver3": Rates(3.7e9, 19.0, 7.8, 4.0),
    # AVX-512 in halves, DDR5, shared by others; a line from the other core takes 9 ns, as it is
    # taken to do elsewhere, or 28: the virtual machine puts its cores here or there.
    "znver4": Rates(3.57e9, 32.0, 27.0, 8.6, products=1.0, handed=1.0),
    # AVX-512, DDR5.
    "znver5": Rates(3.6e9, memory=9.7),
    # Sapphire Rapids as its virtual machines call themselves; 2 MiB of L2.
    "rocketlake": Rates(3.25e9, 48.0, 9.4, 7.0),
    "sapphirerapids": Rates(3.25e9, 48.0, 9.4, 7.0),
    # -- published, not measured here --------------------------------------------------------------
    # kerncraft, EPYC 7452 at 2.35 GHz: what caches can give, what one thread reads of memory.
    "znver2": Rates(2.35e9, 32.0, 24.0, 10.7),
    # Intel's optimization manual.
    "skylake": Rates(l2=29.0, l3=18.0),
    "skylake-avx512": _SKYLAKE_SERVER,
    "cascadelake": _SKYLAKE_SERVER,
    # L2 as that manual has it for the core; the rest: kerncraft, Xeon Platinum 8360Y at 2.4 GHz.
    "icelake-server": Rates(2.4e9, 48.0, 16.0, 6.4),
    # Caches and memory: Arm's learning path on memory subsystems, Graviton2 at 2.5 GHz and
    # Graviton4 at 2.8 GHz; clock of Graviton3: AWS.
    "neoverse-n1": Rates(2.5e9, 29.4, 14.4, 8.4),
    "neoverse-n2": Rates(products=2.0),
    "neoverse-v1": Rates(2.6e9, products=_FOUR),
    "neoverse-v2": Rates(2.8e9, 34.0, 27.9, 13.2, products=_FOUR),
    # Clocks and, of the M1, what one core reads of memory (58 GB/s): AnandTech and later reviews.
    "apple-m1": Rates(3.2e9, memory=18.0, products=_FOUR),
    "apple-m2": Rates(3.5e9, products=_FOUR),
    "apple-m3": Rates(4.05e9, products=_FOUR),
    "apple-m4": Rates(4.4e9, products=_FOUR),
}
