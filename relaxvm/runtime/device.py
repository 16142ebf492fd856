"""Where an array lives. Only the CPU exists here; the class is the seam for others."""

from __future__ import annotations

import importlib.util

from ..base import VMTypeError, VMValueError
from . import host
from .cpu_budget import usable_cores

# DLPack's numbers; the kinds that have no runtime here are known so that the error can name them.
_DLPACK_KINDS = {
    "cpu": 1,
    "cuda": 2,
    "cuda_host": 3,
    "opencl": 4,
    "vulkan": 7,
    "metal": 8,
    "vpi": 9,
    "rocm": 10,
    "rocm_host": 11,
    "ext_dev": 12,
    "cuda_managed": 13,
    "webgpu": 15,
    "hexagon": 16,
}
_ALIASES = {
    "llvm": "cpu",
    "c": "cpu",
    "host": "cpu",
    "gpu": "cuda",
    "nvptx": "cuda",
    "cl": "opencl",
}
_NAMES = {number: name for name, number in _DLPACK_KINDS.items()}
_MAX_INDEX = 1 << 15


class Device:
    """A device, such as ``cpu(0)``. Interned: equal devices are one object.

    kind   "cpu"
    index  its number
    """

    __slots__ = ("kind", "index", "__weakref__")

    kind: str
    index: int
    _table: dict[tuple[str, int], Device] = {}

    def __new__(cls, kind: str | int, index: int = 0) -> Device:
        name, number = _resolve(kind, index)
        known = cls._table.get((name, number))
        if known is None:
            new = object.__new__(cls)
            object.__setattr__(new, "kind", name)
            object.__setattr__(new, "index", number)
            known = cls._table.setdefault((name, number), new)
        return known

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Device cannot be changed (setting {name!r}); make another one")

    @property
    def type(self) -> str:
        """The name of the kind of device."""
        return self.kind

    @property
    def device_type(self) -> int:
        """DLPack's number for the kind of device."""
        return _DLPACK_KINDS[self.kind]

    @property
    def device_id(self) -> int:
        """The device's number among those of its kind."""
        return self.index

    @property
    def exist(self) -> bool:
        """Whether arrays can be made on it."""
        return True

    # What TVM asks a device for. A CPU has no threads in blocks and no version of its own: None.
    max_threads_per_block = warp_size = max_shared_memory_per_block = None
    max_thread_dimensions = compute_version = api_version = driver_version = None
    texture_spatial_limit = None

    @property
    def device_name(self) -> str:
        """The name its maker gave it, such as "AMD EPYC 7B13"."""
        return host.cpu_name()

    @property
    def multi_processor_count(self) -> int:
        """How many of its cores this process may use."""
        return usable_cores()

    @property
    def max_clock_rate(self) -> int | None:
        """Its clock in kHz, if the system tells."""
        return host.clock_khz()

    @property
    def l2_cache_size_bytes(self) -> int | None:
        """Size of one core's second cache, if the system tells."""
        return host.data_caches().get(2)

    @property
    def total_global_memory(self) -> int | None:
        """Bytes of the computer's memory, if the system tells."""
        return host.memory_bytes("SC_PHYS_PAGES")

    @property
    def available_global_memory(self) -> int | None:
        """Bytes of memory that nobody uses now, if the system tells."""
        return host.memory_bytes("SC_AVPHYS_PAGES")

    def sync(self, stream: object = None) -> None:
        """Wait for pending work. Kernels on the CPU have finished when their call returns."""

    def __repr__(self) -> str:
        return f"{self.kind}({self.index})"

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return (Device, (self.kind, self.index))


def device_name(kind: object, index: object = 0) -> tuple[str, object]:
    """The kind ("cpu" for "llvm") and number of a device given as one, by DLPack's number or by a
    name such as "cuda:1", whether it exists here or not.
    """
    if isinstance(kind, Device):
        return kind.kind, kind.index
    if isinstance(kind, int) and not isinstance(kind, bool):
        name = _NAMES.get(kind, f"kind {kind}")
    elif isinstance(kind, str):
        name, colon, tail = kind.partition(":")
        if colon:
            if not tail.isdecimal():
                raise VMValueError(f"device: wanted a name such as 'cpu:0', got {kind!r}")
            index = int(tail[:8])
        words = name.split()
        name = words[0] if words else ""
        name = _ALIASES.get(name, name)
    else:
        raise VMTypeError(f"device: wanted a name such as 'cpu', got {type(kind).__name__}")
    return name, index


def device_kind(kind: str) -> int:
    """DLPack's number of a kind of device. Raises VMValueError for one that has none."""
    name = _ALIASES.get(kind, kind)
    if name not in _DLPACK_KINDS:
        raise VMValueError(f"device {kind!r} is not known; known: {', '.join(_DLPACK_KINDS)}")
    return _DLPACK_KINDS[name]


def _resolve(kind: object, index: object) -> tuple[str, int]:
    name, index = device_name(kind, index)
    if name != "cpu":
        known = "is known but has no runtime" if name in _DLPACK_KINDS else "is not known"
        raise VMValueError(f"device {name!r} {known}: only cpu exists here; use cpu(0)")
    if isinstance(index, bool) or not isinstance(index, int):
        raise VMTypeError(f"device index: wanted an int, got {type(index).__name__}")
    if not 0 <= index < _MAX_INDEX:
        raise VMValueError(f"device index: wanted 0 <= index < {_MAX_INDEX}, got {index}")
    return name, index


def device(kind: str | int | Device, index: int | None = None) -> Device:
    """The device named ``"cpu"`` or ``"cpu:0"`` (target names such as ``"llvm"`` mean the CPU).

    Raises VMValueError for a kind of device that has no runtime here.
    """
    if isinstance(kind, Device):
        return kind
    return Device(kind, 0 if index is None else index)


def cpu(index: int = 0) -> Device:
    """The CPU."""
    return Device("cpu", index)


def enabled(target: str) -> bool:
    """Whether code for `target` ("llvm", "cuda", ...) can be compiled and run here."""
    words = str(target).split()
    kind = _ALIASES.get(words[0], words[0]) if words else ""
    return kind == "cpu" and importlib.util.find_spec("llvmlite") is not None
