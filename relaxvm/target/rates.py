"""How fast CPUs are, as they were measured, by LLVM's names of CPUs; others have common rates.

They are for predictions of what plans cost, which rank plans and choose none: code compiled for a
CPU is the same wherever it is compiled. `python -m relaxvm.target.measure` prints the line of this
computer.
"""

from __future__ import annotations

from ..base import Rates

RATES: dict[str, Rates] = {
    # AVX2, DDR4, shared by others.
    "znver3": Rates(3.7e9, 19.0, 7.8, 4.0),
    # AVX-512 in halves, DDR5, shared by others.
    "znver4": Rates(3.57e9, 32.0, 27.0, 8.6, products=1.0),
    # AVX-512, DDR5.
    "znver5": Rates(3.6e9, memory=9.7),
    # Sapphire Rapids as its virtual machines call themselves; 2 MiB of L2.
    "rocketlake": Rates(3.25e9, 48.0, 9.4, 7.0),
    "sapphirerapids": Rates(3.25e9, 48.0, 9.4, 7.0),
}
