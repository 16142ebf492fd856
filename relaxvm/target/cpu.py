"""From a `Target` to the `CpuModel` that schedules read.

What the target states counts; then what is known about the host (if it is the host) or the named
CPU; then modest defaults. Vector width, FMA and dot products of a CPU that is only named are asked
from LLVM (`llvm/probe.py`). That needs no list of CPUs.
"""

from __future__ import annotations

import functools
from typing import Any

from ..base import CpuModel
from ..runtime import data_caches, usable_cores
from .llvm import dot_units, host_machine, machine_of, vector_units
from .rates import RATES
from .target import Target

_DEFAULT = CpuModel()
_ARM = ("aarch64", "arm64")
_X86 = ("x86_64", "amd64")

# Features, by LLVM's names, that the dot products which the machine has stand for.
_FEATURES = {
    "vpdpbusd.512": "avx512vnni",
    "vpdpbusd.256": "avxvnni",
    "dpbf16ps.512": "avx512bf16",
    "sdot": "dotprod",
    "usdot": "i8mm",
    "bfdot": "bf16",
}


def cpu_model(target: Any = None) -> CpuModel:
    """The CPU that `target` (None: the current one, else this computer) stands for."""
    return _model(Target.or_current(target))


@functools.lru_cache(maxsize=256)
def _model(target: Target) -> CpuModel:
    machine = machine_of(target)
    here = host_machine()
    on_host = machine.triple == here.triple and machine.cpu == here.cpu
    architecture = machine.triple.split("-")[0]
    vectors = vector_units(machine)
    if vectors is None:
        machine.check()
    bits, fma = vectors or (_DEFAULT.vector_bits, _DEFAULT.fma)
    options = target.options
    bits = int(options.get("vector-width", bits))
    features = frozenset(f[1:] for f in machine.features.split(",") if f.startswith("+"))
    units = dot_units(machine)
    # What was asked for counts only as far as LLVM makes use of it.
    features = (features - set(_FEATURES.values())) | {_FEATURES[u] for u in units & set(_FEATURES)}
    if target.kind_name == "c":
        # C has a name for none of them.
        fma, features = False, frozenset()
    caches = data_caches() if on_host else {}
    return CpuModel(
        architecture,
        bits,
        int(options.get("num-vector-registers", _registers(architecture, bits))),
        fma,
        features,
        int(options.get("l1-cache-bytes", caches.get(1, _DEFAULT.l1_bytes))),
        int(options.get("l2-cache-bytes", caches.get(2, _DEFAULT.l2_bytes))),
        int(options.get("l3-cache-bytes", caches.get(3, _DEFAULT.l3_bytes))),
        _DEFAULT.line_bytes,
        int(options.get("num-cores", usable_cores() if on_host else 1)),
        RATES.get(machine.cpu, _DEFAULT.rates),
    )


def _registers(architecture: str, bits: int) -> int:
    if architecture in _X86:
        return 32 if bits >= 512 else 16
    return 32 if architecture in _ARM or architecture.startswith("riscv") else 16
