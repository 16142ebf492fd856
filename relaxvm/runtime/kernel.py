"""What the runtime knows about kernels: plain data, from the code generator through the file.

Everything here is frozen, and stored as `plain` says.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..base import DataType, Deferred, LoadError, VerifyError, record
from .compiled_code import SYMBOL, CompiledCode
from .dims import Dim, check, format_dim, is_symbol
from .plain import Plain, entries_of

if TYPE_CHECKING:
    import hashlib
else:
    # It loads OpenSSL; of what is signed no checksum is computed.
    hashlib = Deferred("hashlib")

MAX_PARAMS = 1024
MAX_NDIM = 64
MAX_FAILURES = 1 << 20
MAX_KERNELS = 1 << 16
MAX_NATIVE = 256
_MAX_TEXT = 1 << 16
FailureKind = Literal[
    "kind", "ndim", "dtype", "align", "readonly", "shape", "strides", "alias", "assert"
]
_FAILURE_KINDS = get_args(FailureKind)
_ACCESSES = ("r", "g", "w", "rw", "ret")
# Of native code, since file formats 2 and 3.
_LATER_FIELDS = ("functions", "more")


def _text(value: Any, what: str, empty_ok: bool = False) -> None:
    if type(value) is not str or len(value) > _MAX_TEXT or not (value or empty_ok):
        raise VerifyError(f"{what}: wanted a text")
    if "\0" in value:
        raise VerifyError(f"{what}: contains a NUL character")


@record
class KernelParam(Plain):
    """One parameter: a scalar, or a tensor.

    shape    sizes of its axes       strides  in elements; None: C-contiguous
    access   "r", "w" or "rw"; "g": it is read at places that data says; "ret" of the last one: the
             place of the value that the kernel returns, which callers do not give
    """

    name: str
    kind: Literal["tensor", "scalar"]
    dtype: DataType
    shape: tuple[Dim, ...] = ()
    strides: tuple[Dim, ...] | None = None
    access: str = "r"

    def __post_init__(self) -> None:
        _text(self.name, "kernel parameter name")
        where = f"kernel parameter {self.name[:80]!r}"
        if self.kind not in ("tensor", "scalar"):
            raise VerifyError(f"{where}: kind {self.kind!r} is not 'tensor' or 'scalar'")
        if self.access not in _ACCESSES:
            raise VerifyError(f"{where}: access {self.access!r} is not one of {_ACCESSES}")
        dtype, shape, strides = self.dtype, self.shape, self.strides
        fits = type(dtype) is DataType and dtype.lanes == 1 and dtype.kind not in ("handle", "void")
        if not fits:
            raise VerifyError(f"{where}: no parameter has dtype {dtype}")
        if type(shape) is not tuple or len(shape) > MAX_NDIM:
            raise VerifyError(f"{where}: wanted at most {MAX_NDIM} axes")
        if strides is not None and (type(strides) is not tuple or len(strides) != len(shape)):
            raise VerifyError(f"{where}: wanted one stride per axis")
        if self.kind == "scalar" and (shape, strides, self.access) != ((), None, "r"):
            raise VerifyError(f"{where}: a scalar has no shape, strides or write access")
        for dim in (*shape, *(strides or ())):
            check(dim)

    @property
    def written(self) -> bool:
        """Whether the kernel writes it."""
        return self.access not in ("r", "g")

    def __str__(self) -> str:
        if self.kind == "scalar":
            return f"{self.name}: {self.dtype}"
        dims = ", ".join(map(format_dim, self.shape)) + ("," if len(self.shape) == 1 else "")
        return f"{self.name}: Tensor(({dims}), {self.dtype})"


@record
class Failure(Plain, form="list"):
    """What a failure number means: which check of which parameter and axis, against which other."""

    kind: FailureKind
    param: int = -1
    axis: int = -1
    other: int = -1
    message: str = ""

    def __post_init__(self) -> None:
        if self.kind not in _FAILURE_KINDS:
            raise VerifyError(f"failure kind {self.kind!r} is not one of {_FAILURE_KINDS}")
        for name, value in (("param", self.param), ("axis", self.axis), ("other", self.other)):
            if type(value) is not int or not -1 <= value < MAX_PARAMS:
                raise VerifyError(f"failure {name}: {value!r} is out of range")
        if self.kind != "assert" and self.param < 0:
            raise VerifyError(f"failure {self.kind!r} names no parameter")
        if self.kind == "alias" and self.other < 0:
            raise VerifyError("failure 'alias' names no second parameter")
        if self.message != "":
            _text(self.message, "failure message")


@record
class KernelInfo(Plain):
    """One kernel: name, symbol of its wrapper, parameters, and what its failure numbers mean.

    noalias  no written tensor may overlap another argument (checked by the wrapper)
    flops    arithmetic operations of one call, if known
    """

    name: str
    symbol: str
    params: tuple[KernelParam, ...]
    failures: tuple[Failure, ...]
    noalias: bool
    flops: Dim | None = None

    def __post_init__(self) -> None:
        _text(self.name, "kernel name")
        where = f"kernel {self.name[:80]!r}"
        if type(self.symbol) is not str or SYMBOL.fullmatch(self.symbol) is None:
            raise VerifyError(f"{where}: symbol is not a symbol")
        if type(self.noalias) is not bool:
            raise VerifyError(f"{where}: noalias is not a bool")
        if not _all_are(self.params, KernelParam, MAX_PARAMS):
            raise VerifyError(f"{where}: wanted at most {MAX_PARAMS} parameters")
        if not _all_are(self.failures, Failure, MAX_FAILURES):
            raise VerifyError(f"{where}: wanted a tuple of failures")
        places = [i for i, p in enumerate(self.params) if p.access == "ret"]
        last = len(self.params) - 1
        if places and (places != [last] or self.params[last].shape != ()):
            raise VerifyError(f"{where}: the place of its value is a scalar tensor, the last one")
        names = [p.name for p in self.params]
        if len(set(names)) != len(names):
            raise VerifyError(f"{where}: two parameters have the same name")
        bound = self.bound_symbols()
        for param in self.params:
            for dim in (*param.shape, *(param.strides or ())):
                check(dim, bound)
        if self.flops is not None:
            check(self.flops, bound)
        for failure in self.failures:
            if failure.param >= len(names) or failure.other >= len(names):
                raise VerifyError(f"{where}: a failure names parameter out of range")
            if failure.param >= 0:
                axes = len(self.params[failure.param].shape)
                if failure.axis > 0 and failure.axis >= axes:
                    raise VerifyError(f"{where}: a failure's axis")

    @property
    def returns(self) -> bool:
        """Whether a call has a value. Its place is the last parameter."""
        return bool(self.params) and self.params[-1].access == "ret"

    def bound_symbols(self) -> frozenset[str]:
        """Names that arguments give a value: integer scalars, and symbols that stand alone."""
        scalars = {p.name for p in self.params if p.kind == "scalar" and not p.dtype.is_float}
        dims = [d for p in self.params for d in (*p.shape, *(p.strides or ()))]
        return frozenset(scalars | {s for s in map(is_symbol, dims) if s is not None})

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.params))})"


@record
class NativeCode(Plain):
    """Object code of every kernel of a section, for one kind of machine.

    triple, cpu  as LLVM writes them
    features     canonical sorted text such as "+avx2,-avx512f"
    object       a relocatable object file
    producer     who made it, such as "llvmlite 0.50.0"
    functions    the VM functions that are compiled in it
    more         further objects, which are linked with the first
    sha256       of the objects, where they come from a file
    """

    triple: str
    cpu: str
    features: str
    object: bytes
    producer: str
    functions: CompiledCode | None = None
    more: tuple[bytes, ...] = ()
    sha256: bytes = field(default=b"", compare=False)

    def __post_init__(self) -> None:
        for name in ("triple", "cpu", "features", "producer"):
            _text(getattr(self, name), f"native code {name}", empty_ok=name != "triple")
        if not _all_are(self.more, bytes, MAX_KERNELS):
            raise VerifyError("native code: wanted a tuple of objects")
        if not all(type(each) is bytes and each != b"" for each in self.objects):
            raise VerifyError("native code: wanted the bytes of an object file")

    @property
    def objects(self) -> tuple[bytes, ...]:
        """All object files."""
        return (self.object, *self.more)

    def checksum(self) -> bytes:
        """The SHA-256 of the object; of several, of theirs."""
        if not self.more:
            return hashlib.sha256(self.object).digest()
        digests = [hashlib.sha256(each).digest() for each in self.objects]
        return hashlib.sha256(b"".join(digests)).digest()

    def to_plain(self) -> dict[str, Any]:
        """As msgpack stores it, with a checksum: LLVM may abort the process on a damaged object.

        Without compiled functions it is as in files of version 1, with one object as in version 2.
        """
        plain: dict[str, Any] = super().to_plain()
        later = {name: plain.pop(name) for name in _LATER_FIELDS}
        plain["sha256"] = self.checksum()
        return plain | {name: value for name, value in later.items() if value}

    @classmethod
    def from_plain(cls, plain: Any) -> NativeCode:
        """The inverse of `to_plain`. Raises LoadError."""
        later = [name for name in _LATER_FIELDS if type(plain) is dict and name in plain]
        names = [name for name in cls._names() if name not in _LATER_FIELDS]
        entries = entries_of(plain, [*names, *later], "native code")
        if not all(entries[name] for name in later):
            raise LoadError("native code: functions and more are left out where there are none")
        return super().from_plain({"functions": None, "more": [], **entries})


@record
class KernelSection(Plain):
    """All kernels of an executable.

    infos     what they are
    portable  how any machine can rebuild them (opaque here)
    native    object code for some machines
    """

    infos: tuple[KernelInfo, ...]
    portable: bytes
    native: tuple[NativeCode, ...]

    def __post_init__(self) -> None:
        if not _all_are(self.infos, KernelInfo, MAX_KERNELS):
            raise VerifyError("kernel section: wanted a tuple of kernels")
        if not _all_are(self.native, NativeCode, MAX_NATIVE):
            raise VerifyError("kernel section: wanted a tuple of native code")
        if type(self.portable) is not bytes:
            raise VerifyError("kernel section: wanted the portable form as bytes")
        if len({info.name for info in self.infos}) != len(self.infos):
            raise VerifyError("kernel section: two kernels have the same name")
        by_symbol: dict[str, KernelInfo] = {}
        for info in self.infos:
            # Equal kernels of several names are one in the code.
            former = by_symbol.setdefault(info.symbol, info)
            if former is not info and replace(former, name=info.name) != info:
                raise VerifyError("kernel section: two different kernels share a symbol")

    @classmethod
    def from_plain(cls, plain: Any, signed: bool = False) -> KernelSection:
        """The inverse of `to_plain`.

        signed  whether the object code is surely what was written

        Raises LoadError, also for object code that is not.
        """
        section = super().from_plain(plain)
        for code in () if signed else section.native:
            if code.sha256 != code.checksum():
                raise LoadError(
                    "native code: the object code is damaged (its checksum differs); rebuild the "
                    "file"
                )
        return section

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels' names."""
        return tuple(info.name for info in self.infos)


def _all_are(values: object, kind: type, most: int) -> bool:
    return type(values) is tuple and len(values) <= most and {kind}.issuperset(map(type, values))
