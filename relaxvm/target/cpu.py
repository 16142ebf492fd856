"""From a `Target` to the `CpuModel` that schedules read.

What the target states counts; then what is known about the host (if it is the host) or the named
CPU; then modest defaults. Vector width and FMA of a CPU that is only named are asked from LLVM: it
compiles two lines for it, and the registers in the assembly tell. That needs no list of CPUs.
"""

from __future__ import annotations

import functools
import os
import pathlib
import re
from typing import Any

from ..base import CodegenError, CpuModel
from ..runtime.cpu_budget import usable_cores
from .llvm import Machine, compile_text, host_machine, machine_of
from .target import Target

__all__ = ["cpu_model"]

_SYSTEM = pathlib.Path("/")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DEFAULT = CpuModel()
_ARM = ("aarch64", "arm64")
_X86 = ("x86_64", "amd64")

# Features that a CPU's name implies and that rules ask for. Vector width is not among them.
_DOT = frozenset({"avx512vnni"})
_IMPLIED: dict[str, frozenset[str]] = {
    "cascadelake": _DOT,
    "cooperlake": _DOT | {"avx512bf16"},
    "icelake-client": _DOT,
    "icelake-server": _DOT,
    "tigerlake": _DOT,
    "rocketlake": _DOT,
    "sapphirerapids": _DOT | {"avx512bf16", "avx512fp16", "avxvnni"},
    "emeraldrapids": _DOT | {"avx512bf16", "avx512fp16", "avxvnni"},
    "graniterapids": _DOT | {"avx512bf16", "avx512fp16", "avxvnni"},
    "alderlake": frozenset({"avxvnni"}),
    "raptorlake": frozenset({"avxvnni"}),
    "znver4": _DOT | {"avx512bf16"},
    "znver5": _DOT | {"avx512bf16", "avxvnni"},
    "neoverse-n1": frozenset({"dotprod", "fullfp16"}),
    "neoverse-v1": frozenset({"dotprod", "fullfp16", "bf16", "i8mm"}),
    "neoverse-n2": frozenset({"dotprod", "fullfp16", "bf16", "i8mm"}),
    "neoverse-v2": frozenset({"dotprod", "fullfp16", "bf16", "i8mm"}),
    "cortex-a76": frozenset({"dotprod", "fullfp16"}),
    "apple-m1": frozenset({"dotprod", "fullfp16"}),
    "apple-m2": frozenset({"dotprod", "fullfp16", "bf16", "i8mm"}),
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
    bits, fma = _vectors(machine)
    given = target.options
    bits = int(given.get("vector-width", bits))
    features = frozenset(f[1:] for f in machine.features.split(",") if f.startswith("+"))
    removed = frozenset(f[1:] for f in machine.features.split(",") if f.startswith("-"))
    features = (features | _IMPLIED.get(machine.cpu, frozenset())) - removed
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


_PROBE = """
define <16 x float> @sum(<16 x float> %a, <16 x float> %b) {
  %c = fadd <16 x float> %a, %b
  ret <16 x float> %c
}
define <4 x float> @muladd(<4 x float> %a, <4 x float> %b, <4 x float> %c) {
  %m = fmul contract <4 x float> %a, %b
  %s = fadd contract <4 x float> %m, %c
  ret <4 x float> %s
}
"""


@functools.lru_cache(maxsize=64)
def _vectors(machine: Machine) -> tuple[int, bool]:
    """Width of the vector registers in bits, and whether there is FMA, as LLVM would use them."""
    plain = Machine(machine.triple, machine.cpu, machine.features, 1)
    try:
        asm = compile_text(f'target triple = "{machine.triple}"\n{_PROBE}', plain, ("asm",)).asm
    except CodegenError:
        return _DEFAULT.vector_bits, _DEFAULT.fma
    architecture = machine.triple.split("-")[0]
    if architecture in _X86:
        # LLVM prefers 256 bits on some CPUs that have 512: what counts is what there is.
        wide = "zmm" in asm or "+avx512f" in machine.features.split(",")
        bits = 512 if wide else 256 if "ymm" in asm else 128
        return bits, "vfmadd" in asm
    if architecture in _ARM:
        return 128, "fmla" in asm
    if architecture.startswith("riscv"):
        return (128, "vfmacc" in asm or "vfmadd" in asm) if "vsetivli" in asm else (64, False)
    return _DEFAULT.vector_bits, _DEFAULT.fma


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
