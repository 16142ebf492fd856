"""From a `Target` to the `CpuModel` that schedules read.

What the target states counts; then what is known about the host (if it is the host) or the named
CPU; then modest defaults. Vector width, FMA and dot products of a CPU that is only named are asked
from LLVM (`llvm/probe.py`). That needs no list of CPUs.
"""

from __future__ import annotations

import functools
import os
import pathlib
import re
from typing import Any

from ..base import CpuModel
from ..runtime.cpu_budget import usable_cores
from .llvm import dot_units, host_machine, machine_of, vector_units
from .target import Target

__all__ = ["cpu_model"]

_SYSTEM = pathlib.Path("/")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
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
    chosen = Target.current() if target is None else Target(target)
    return _model(Target("llvm") if chosen is None else chosen)


@functools.lru_cache(maxsize=256)
def _model(target: Target) -> CpuModel:
    machine = machine_of(target)
    here = host_machine()
    on_host = machine.triple == here.triple and machine.cpu == here.cpu
    architecture = machine.triple.split("-")[0]
    bits, fma = vector_units(machine) or (_DEFAULT.vector_bits, _DEFAULT.fma)
    given = target.options
    bits = int(given.get("vector-width", bits))
    features = frozenset(f[1:] for f in machine.features.split(",") if f.startswith("+"))
    units = dot_units(machine)
    # What was asked for counts only as far as LLVM makes use of it.
    features = (features - set(_FEATURES.values())) | {_FEATURES[u] for u in units & set(_FEATURES)}
    caches = _host_caches(_SYSTEM) if on_host else {}
    return CpuModel(
        architecture,
        bits,
        int(given.get("num-vector-registers", _registers(architecture, bits))),
        fma,
        features,
        int(given.get("l1-cache-bytes", caches.get(1, _DEFAULT.l1_bytes))),
        int(given.get("l2-cache-bytes", caches.get(2, _DEFAULT.l2_bytes))),
        int(given.get("l3-cache-bytes", caches.get(3, _DEFAULT.l3_bytes))),
        _DEFAULT.line_bytes,
        int(given.get("num-cores", usable_cores() if on_host else 1)),
    )


def _registers(architecture: str, bits: int) -> int:
    if architecture in _X86:
        return 32 if bits >= 512 else 16
    return 32 if architecture in _ARM or architecture.startswith("riscv") else 16


def _host_caches(root: pathlib.Path) -> dict[int, int]:
    """{level: bytes} of the data caches of the first core, as far as the system tells."""
    found: dict[int, int] = {}
    for folder in sorted(root.glob("sys/devices/system/cpu/cpu0/cache/index*"))[:16]:
        try:
            kind = (folder / "type").read_text().strip()
            level = int((folder / "level").read_text())
            size = re.fullmatch(r"(\d+)([KMG]?)", (folder / "size").read_text().strip())
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and size is not None and 1 <= level <= 3:
            found[level] = int(size[1]) * _UNITS[size[2]]
    if not found and root == _SYSTEM:
        found = _configured_caches()
    return {level: size for level, size in found.items() if size > 0}


def _configured_caches() -> dict[int, int]:
    names = {1: "SC_LEVEL1_DCACHE_SIZE", 2: "SC_LEVEL2_CACHE_SIZE", 3: "SC_LEVEL3_CACHE_SIZE"}
    found = {}
    for level, name in names.items():
        try:
            found[level] = os.sysconf(name)
        except (AttributeError, ValueError, OSError):
            continue
    return found
