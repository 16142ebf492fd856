"""Module: kernels to call by name, as `relaxvm.build` returns them, and their file form."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgpack

from ..base import Deferred, LoadError, VMTypeError, VMValueError, submodules
from . import trust as _trust
from .device import Device
from .files import open_document, write_atomically
from .kernel import KernelSection
from .kernel_errors import missing_kernel
from .locks import lock
from .native import KernelFunction, LinkedKernels, link
from .program import source_of
from .reader import Decoder, fields_of
from .threads import check_num_threads

if TYPE_CHECKING:
    from . import params as _params
    from . import shared_library, timing
    from .ndarray import NDArray
    from .timing import BenchmarkResult
else:
    _params = Deferred("relaxvm.runtime.params")
    shared_library = Deferred("relaxvm.runtime.shared_library")
    timing = Deferred("relaxvm.runtime.timing")

# TVM keeps the result of its timer here.
__getattr__ = submodules(__name__, {"relaxvm.runtime.timing": "BenchmarkResult"})


KERNELS_MAGIC = "relaxvm.kernels"
# Version 2 may have the code in several objects, version 3 has parameters; what has neither is
# written as version 1.
_FORMAT_VERSIONS = (1, 2, 3)
_NO_SIGNATURE = bytes(_trust.SIGNATURE_SIZE)
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "magic": str,
    "format": int,
    "producer": str,
    "entry": (str, type(None)),
    "kernels": dict,
    "signature": bytes,
}


class Module:
    """Kernels by name: ``rt["mm"](a, b, c)``, or ``rt(a, b, c)`` if there is one entry.

    section     the kernels, their portable form and object code
    entry_name  the kernel that calling the module runs, or None
    trusted     whether the object code may run (the compiler of this process made it, or its
                signature was verified)
    sources     optional texts by format, such as "llvm" and "asm"; not saved in files
    params      arrays by name that belong to the kernels (`-link-params`)

    Linking happens on first use.
    """

    def __init__(
        self,
        section: KernelSection,
        *,
        entry_name: str | None = None,
        sources: Mapping[str, str] | None = None,
        trusted: bool = True,
        producer: str = "relaxvm",
        params: Mapping[str, NDArray] | None = None,
    ) -> None:
        names = section.names
        if entry_name is None and (len(names) == 1 or "main" in names):
            entry_name = names[0] if len(names) == 1 else "main"
        if entry_name is not None and entry_name not in names:
            raise missing_kernel(entry_name, dict.fromkeys(names))
        self.section = section
        self.entry_name = entry_name
        self.sources: Mapping[str, str] = sources or {}
        self.trusted = trusted
        self.producer = producer
        self.params: Mapping[str, NDArray] = params or {}
        self._linked: LinkedKernels | None = None
        self._num_threads = 0
        self._lock = lock()

    @property
    def linked(self) -> LinkedKernels:
        """The callable kernels, and where they came from (`.source`, `.seconds`).

        Links now if that is still to do.
        """
        linked = self._linked
        if linked is None:
            with self._lock:
                linked = self._linked
                if linked is None:
                    linked = link(self.section, self.trusted, self._num_threads)
                    self._linked = linked
        return linked

    @property
    def num_threads(self) -> int | None:
        """Most threads of a parallel loop in the kernels; None: `threads.pool_size()`.

        Setting it concerns functions fetched from now on.
        """
        return self._num_threads or None

    @num_threads.setter
    def num_threads(self, count: int | None) -> None:
        chosen = check_num_threads(count, "Module.num_threads")
        with self._lock:
            self._num_threads, self._linked = chosen, None

    def get_function(self, name: str, query_imports: bool = False) -> KernelFunction:
        """The kernel called `name`; ``"__tvm_main__"`` is the entry.

        Raises VMValueError listing those that exist.
        """
        if name == "__tvm_main__" and self.entry_name is not None:
            name = self.entry_name
        if name not in self.section.names:
            raise missing_kernel(name, dict.fromkeys(self.section.names))
        return self.linked[name]

    __getitem__ = get_function

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a kernel called `name`."""
        return name in self.section.names

    @property
    def entry_func(self) -> KernelFunction:
        """The kernel that calling the module runs.

        Raises VMValueError if there are several and none is "main".
        """
        if self.entry_name is None:
            names = ", ".join(self.section.names[:20]) or "none"
            raise VMValueError(
                "this module has no single entry: call one of its kernels by name; there are: "
                f"{names}"
            )
        return self.linked[self.entry_name]

    def __call__(self, *args: object, **named: object) -> int | float | bool | None:
        """Run the entry kernel; returns what that returns."""
        return self.entry_func(*args, **named)

    def time_evaluator(
        self,
        func_name: str,
        dev: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        *,
        f_preproc: str = "",
        **options: Any,
    ) -> Callable[..., BenchmarkResult]:
        """A callable that times the kernel on its arguments; options as in `timing.measure`.

        Arguments are checked and converted once, outside the measurement. `f_preproc` names a
        registered function that is called with them before every repeat.
        """
        function = self.get_function(func_name)
        options |= {"number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms}
        timing.time_evaluator(function, f_preproc, **options)  # says what is wrong with them

        def evaluate(*args: object) -> BenchmarkResult:
            function(*args)
            converted = function.convert((*args, *function.place()))
            raw = function.call
            # What the raw entry takes once it takes always; otherwise copies are part of the price.
            entry = raw if raw(*converted) is None else function
            return timing.time_evaluator(entry, f_preproc, **options)(*converted)

        return evaluate

    def get_source(self, fmt: str = "") -> str:
        """The text of the module as `fmt` ("llvm", "asm", ...; by default the first there is).

        Raises VMValueError if the module was made without it (modules loaded from files are).
        """
        return source_of(self.sources, fmt)

    def to_bytes(self) -> bytes:
        """The module as one msgpack document, signed with this machine's key if there is one."""
        several = any(code.more for code in self.section.native)
        plain = {
            "magic": KERNELS_MAGIC,
            "format": 3 if self.params else 2 if several else 1,
            "producer": self.producer,
            "entry": self.entry_name,
            "kernels": self.section.to_plain(),
            **({"params": _params.save_param_dict(self.params)} if self.params else {}),
            # Last, so that it signs every byte before it.
            "signature": _NO_SIGNATURE,
        }
        packed: bytes = msgpack.packb(plain, use_bin_type=True)
        body = packed[: -_trust.SIGNATURE_SIZE]
        # Code whose origin nobody vouched for does not become ours by being saved again.
        signature = _trust.sign(body) if self.trusted else None
        return body + (signature or _NO_SIGNATURE)

    def export_library(
        self,
        path: str | os.PathLike[str],
        fcompile: Callable[..., object] | None = None,
        **options: Any,
    ) -> None:
        """Write the module to a file, atomically; a name that ends in ".so" gives a shared library
        that holds it, and C goes to a folder or an archive (see `shared_library.export`).
        """
        document = [self.to_bytes()]
        shared_library.export(path, document, self.section, fcompile, self.sources, **options)

    def write_to_file(self, path: str | os.PathLike[str], fmt: str = "") -> None:
        """Write the module to `path`; as the text it has in the format `fmt` ("ll", "asm", ...), if
        that is given, or named by the ending of `path`.
        """
        fmt = fmt or os.path.splitext(os.fsdecode(path))[1][1:]
        name = {"ll": "llvm", "s": "asm"}.get(fmt, fmt)
        if name in self.sources:
            write_atomically(path, [self.sources[name].encode()])
        else:
            self.export_library(path)

    save = write_to_file

    @classmethod
    def from_bytes(cls, data: bytes, trust: str | None = None) -> Module:
        """The inverse of `to_bytes`; reads, checks, and links nothing yet.

        trust  None: the object code runs only if this machine's key signed it; "native": the caller
               accepts it; "portable": it is not used

        Raises LoadError for anything that `to_bytes` does not write.
        """
        if trust not in (None, "native", "portable"):
            raise VMValueError(f"trust: wanted None, 'native' or 'portable', got {trust!r}")
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise VMTypeError(f"wanted the bytes of a kernel library, got {type(data).__name__}")
        data = bytes(data)
        decoder = Decoder(memoryview(data))
        plain = decoder.value()
        decoder.end()
        if type(plain) is not dict or plain.get("magic") != KERNELS_MAGIC:
            raise LoadError("not a kernel library: the magic word is missing")
        if plain.get("format") not in _FORMAT_VERSIONS:
            raise LoadError(
                f"kernel library: wanted a format up to {_FORMAT_VERSIONS[-1]}, got "
                f"{str(plain.get('format'))[:40]}"
            )
        fields = _FIELDS | ({"params": bytes} if plain["format"] == 3 else {})
        _, _, producer, entry, kernels, signature, *more = fields_of(
            plain, fields, "kernel library"
        )
        if not data.endswith(signature) or len(signature) != _trust.SIGNATURE_SIZE:
            raise LoadError("kernel library: the signature is not at the end")
        section = KernelSection.from_plain(kernels)
        if plain["format"] == 1 and any(code.more for code in section.native):
            raise LoadError("kernel library: several objects, which format 1 does not have")
        if entry is not None and entry not in section.names:
            raise LoadError(f"kernel library: its entry {entry[:80]!r} is none of its kernels")
        trusted = trust == "native" or (
            trust is None and _trust.vouches(data[: -len(signature)], signature)
        )
        params = _params.load_param_dict(more[0]) if more else None
        return cls(section, entry_name=entry, trusted=trusted, producer=producer, params=params)

    @classmethod
    def load(cls, path: str | os.PathLike[str], trust: str | None = None) -> Module:
        """Read a file that `export_library` wrote; `trust` as in `from_bytes`.

        Raises LoadError for other files, OSError for those that cannot be read.
        """
        with open_document(path) as file:
            data = file.read()
        try:
            return cls.from_bytes(data, trust)
        except LoadError as error:
            raise LoadError(f"{path}: {error}") from None

    def __repr__(self) -> str:
        names = ", ".join(self.section.names[:8]) + (", ..." if len(self.section.names) > 8 else "")
        state = "not linked yet" if self._linked is None else self._linked.source
        return f"<Module of {len(self.section.names)} kernels ({names}), {state}>"
