"""What the system tells about this computer, as far as it tells it."""

from __future__ import annotations

import os
import pathlib
import platform
import re

import numpy as np

_SYSTEM = pathlib.Path("/")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_CACHE_NAMES = {1: "SC_LEVEL1_DCACHE_SIZE", 2: "SC_LEVEL2_CACHE_SIZE", 3: "SC_LEVEL3_CACHE_SIZE"}


def cpu_name(root: pathlib.Path = _SYSTEM) -> str:
    """The maker's name of the CPU, or at least that of its architecture."""
    return _cpuinfo("model name", root) or platform.processor() or platform.machine()


def cpu_facts() -> str | None:
    """What the system says of the first core, which model it is and what it can do, and what that
    told numpy: emulators such as valgrind show programs less. None where one of them says nothing.
    """
    core = np.__dict__.get("_core") or np.core  # as it was called before numpy 2
    able = getattr(getattr(core, "_multiarray_umath", None), "__cpu_features__", None)
    # The clock changes all the time.
    told = "\n".join(line for line in _first_core(_SYSTEM).split("\n") if "MHz" not in line)
    return f"{told}\n{sorted(able.items())}" if told and able else None


def clock_khz(root: pathlib.Path = _SYSTEM) -> int | None:
    """The highest clock of the first core, or the clock it has now."""
    try:
        return int((root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").read_text())
    except (OSError, ValueError):
        megahertz = re.fullmatch(r"\d+(\.\d+)?", _cpuinfo("cpu MHz", root) or "")
        return None if megahertz is None else int(float(megahertz[0]) * 1000)


def memory_bytes(pages: str) -> int | None:
    """Bytes in so many pages as `os.sysconf` gives for the name `pages`."""
    count, size = _sysconf(pages), _sysconf("SC_PAGE_SIZE")
    return None if count is None or size is None else count * size


def data_caches(root: pathlib.Path = _SYSTEM) -> dict[int, int]:
    """{level: bytes} of the data caches of the first core."""
    sizes: dict[int, int | None] = {}
    for folder in sorted(root.glob("sys/devices/system/cpu/cpu0/cache/index*"))[:16]:
        try:
            kind = (folder / "type").read_text().strip()
            level = int((folder / "level").read_text())
            size = re.fullmatch(r"(\d+)([KMG]?)", (folder / "size").read_text().strip())
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and size is not None and 1 <= level <= 3:
            sizes[level] = int(size[1]) * _UNITS[size[2]]
    if not sizes and root == _SYSTEM:
        sizes = {level: _sysconf(name) for level, name in _CACHE_NAMES.items()}
    return {level: size for level, size in sizes.items() if size is not None and size > 0}


def _first_core(root: pathlib.Path) -> str:
    try:
        with open(root / "proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return file.read(1 << 14).partition("\n\n")[0]
    except OSError:
        return ""


def _cpuinfo(field: str, root: pathlib.Path) -> str | None:
    line = re.search(rf"^{field}\s*:[ \t]*(\S.*)$", _first_core(root), re.MULTILINE)
    return None if line is None else line[1].strip()


def _sysconf(name: str) -> int | None:
    try:
        return os.sysconf(name)
    except (AttributeError, ValueError, OSError):
        return None
