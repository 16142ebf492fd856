"""An executable as one msgpack document, and back.

    {magic, version, provenance, functions, constants, code, kernels[, debug][, signature]}
    keys in this order

Version 2 has compiled functions beside the object code of the kernels (`compiled_code`), version 3
may have the code in several objects, version 4 parameters that are donated, version 5 a table of
where instructions come from. What needs none of these is written as version 1, which older readers
know.

The data of a tensor begins at a multiple of 64 bytes of the file, so that it can be mapped. The
signature, if there is one, is the last entry. It vouches for the machine code, which depends on all
but the contents of tensors, so it signs the BLAKE2b of the bytes before it without those: a file
whose weights are mapped is not read to the end before it runs. What is signed was verified, so that
who signed it need not do so again. (Older signatures are unknown: such a file is read as one of
somebody else.)
"""

from __future__ import annotations

import mmap as mmap_module
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgpack
import numpy as np

from .. import __version__
from ..base import (
    LoadError,
    NamedTuple,
    RelaxvmError,
    VerifyError,
    VMTypeError,
    VMValueError,
    blake2b,
    collecting_seldom,
)
from . import trust as trust_module
from .builtin import rows_replaced
from .constants import (
    ALIGNMENT,
    constant_from_plain,
    constant_to_plain,
    is_strings,
    tensor_data,
)
from .debug_table import DebugTable
from .files import open_document
from .kernel import KernelSection
from .limits import MAX_FILE_BYTES
from .ndarray import NDArray, aligned_empty
from .program import FunctionInfo, Program, Provenance
from .reader import Decoder, fields_of
from .sinfo import info_from_plain, info_to_plain
from .verify import verify_program

FORMAT_VERSION = 5
MAGIC = "relaxvm.executable"
_KEYS = ("magic", "version", "provenance", "functions", "constants", "code", "kernels")
_DEBUG, _SIGNATURE = "debug", "signature"
_BEFORE_SIGNATURE = (
    msgpack.packb(_SIGNATURE) + msgpack.packb(bytes(trust_module.SIGNATURE_SIZE))[:2]
)
# So that no file of other bytes has the digest of a file without its tensors.
_SIGNED = b"relaxvm.executable without the contents of tensors\0"
# The same, and the verifier of this relaxvm accepted it, with no builtins but the house's.
_VERIFIED = _SIGNED + f"verified by {__version__}\0".encode()
_MAX_BIN = (1 << 32) - 1
_P = TypeVar("_P", bound=Program)


# Writing


def to_bytes(program: Program, sign: bool = True) -> bytes:
    """The file as bytes."""
    return b"".join(pieces(program, sign))


def pieces(program: Program, sign: bool = True) -> Iterator[Any]:
    """The file as a row of buffers, so that large constants are written without a copy.

    Native code that nobody vouched for does not become ours by being saved again: it stays
    unsigned. What is signed is verified first, as it is now. Raises VerifyError.
    """
    signer = _Signer(sign and program.trusted)
    if signer.active:
        verify_program(
            Program(
                program.functions,
                program.constants,
                program.code,
                program.kernels,
                debug=program.debug,
            )
        )
    packer = msgpack.Packer(use_bin_type=True, strict_types=True)
    position = 0

    def out(part: Any, signed: bool = True) -> Any:
        nonlocal position
        position += len(part)
        if signed:
            signer.update(part)
        return part

    sections = _sections(program)
    keys = _KEYS if program.debug is None else (*_KEYS, _DEBUG)
    yield out(packer.pack_map_header(len(keys) + signer.active))
    for key in keys:
        yield out(packer.pack(key))
        if key != "constants":
            yield out(packer.pack(sections[key]))
            continue
        yield out(packer.pack_array_header(len(program.constants)))
        for value in program.constants:
            if type(value) is not NDArray or is_strings(value):
                yield out(packer.pack(constant_to_plain(value)))
                continue
            plain, data = constant_to_plain(value), tensor_data(value)
            yield out(packer.pack_array_header(len(plain) + 1))
            for item in plain:
                yield out(packer.pack(item))
            padding = -(position + 5) % ALIGNMENT
            size = padding + data.nbytes
            if size > _MAX_BIN:
                raise VMValueError(f"a constant of {data.nbytes} bytes is too large: 4 GiB each")
            yield out(b"\xc6" + size.to_bytes(4, "big"))
            yield out(bytes(padding), signed=False)
            if data.nbytes:
                yield out(_view(data), signed=False)
    if signer.active:
        yield packer.pack(_SIGNATURE)
        yield packer.pack(signer.signature())


class _Signer:
    """Digests what is signed. `active` is 1 if there will be a signature, an entry more."""

    def __init__(self, wanted: bool) -> None:
        self.active = int(wanted and trust_module.sign(b"") is not None)
        self._digest = blake2b(_SIGNED if rows_replaced() else _VERIFIED, digest_size=32)

    def update(self, part: Any) -> None:
        if self.active:
            self._digest.update(part)

    def signature(self) -> bytes:
        signature = trust_module.sign(self._digest.digest())
        if signature is None:
            raise VMValueError("the key that signs files went away; export again")
        return signature


def _sections(program: Program) -> dict[str, Any]:
    """What stands under each key but that of the constants."""
    kernels, debug = program.kernels, program.debug
    return {
        "magic": MAGIC,
        "version": _least_version(kernels, program.functions, debug),
        "provenance": program.provenance.to_plain(),
        "functions": [_function_to_plain(info) for info in program.functions],
        "code": program.code,
        "kernels": None if kernels is None else kernels.to_plain(),
        _DEBUG: None if debug is None else debug.to_plain(),
    }


def without_contents(program: Program) -> bytes:
    """A program but for its kernels, its provenance and the contents of tensors: all on which the
    machine code of its functions depends.
    """
    constants = [
        [*constant_to_plain(c), bool(c.array.flags.c_contiguous)]
        if type(c) is NDArray
        else constant_to_plain(c)
        for c in program.constants
    ]
    functions = [_function_to_plain(info) for info in program.functions]
    packed: bytes = msgpack.packb([functions, constants, program.code], use_bin_type=True)
    return packed


def _least_version(
    kernels: KernelSection | None, functions: Iterable[FunctionInfo], debug: DebugTable | None
) -> int:
    """The first version whose files may hold these kernels and functions, and this table."""
    if debug is not None:
        return 5
    if any(info.donated for info in functions):
        return 4
    native = () if kernels is None else kernels.native
    if any(code.more for code in native):
        return 3
    return 2 if any(code.functions is not None for code in native) else 1


def _function_to_plain(info: FunctionInfo) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": info.name, "kind": info.kind}
    if info.kind == "vm":
        plain |= {
            "start": info.start,
            "end": info.end,
            "registers": info.register_file_size,
            "params": [[n, info_to_plain(i)] for n, i in zip(info.param_names, info.params)],
            "ret": info_to_plain(info.ret),
        }
        if info.donated:
            plain["donated"] = list(info.donated)
    return plain


# Reading


@collecting_seldom()
def read(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
    trust: str | None,
    mmap: bool,
    make: type[_P],
    elsewhere: Mapping[int, Any] | None = None,
) -> _P:
    """The verified program in `source`, as an object of `make`. See `executable.load`.

    elsewhere  {number: value} of constants that stand somewhere else: they take the place of those
               in the file
    """
    if trust not in (None, "native", "portable"):
        raise VMValueError(f"trust: wanted None, 'native' or 'portable', got {trust!r}")
    if isinstance(source, (bytes, bytearray, memoryview)):
        data, name = _copy_of(source), "bytes"
    elif isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        data = _mapped(name) if mmap else _contents(name)
    else:
        raise VMTypeError(f"load: wanted a path or bytes, got {type(source).__name__}")
    try:
        program = _parse(data, trust, make, elsewhere or {})
        verify_program(program)
    except (LoadError, VerifyError) as error:
        raise type(error)(f"{name}: {error}") from None
    except RelaxvmError as error:
        raise LoadError(f"{name}: {error}") from None
    return program


def _check_size(size: int, name: str) -> None:
    if size > MAX_FILE_BYTES:
        raise LoadError(
            f"{name}: {size} bytes are more than the {MAX_FILE_BYTES} an executable may have"
        )


def _view(data: Any) -> memoryview:
    # numpy's stubs do not say that arrays are buffers before Python 3.12.
    return memoryview(data)


def _copy_of(source: bytes | bytearray | memoryview) -> memoryview:
    source_bytes = memoryview(source).cast("B")
    _check_size(len(source_bytes), "bytes")
    data = aligned_empty((len(source_bytes),), np.dtype("uint8"))
    data[...] = np.frombuffer(source_bytes, np.uint8)
    return _view(data)


def _contents(path: str) -> memoryview:
    with open_document(path) as file:
        size = file.size
        _check_size(size, path)
        data = aligned_empty((size,), np.dtype("uint8"))
        view, filled = _view(data), 0
        while filled < size:
            count = file.stream.readinto(view[filled:])
            if not count:
                raise LoadError(f"{path}: the file shrank while it was read")
            filled += count
    return view


def _mapped(path: str) -> memoryview:
    with open_document(path) as file:
        _check_size(file.size, path)
        if not file.size:
            raise LoadError(f"{path}: the file is empty")
        mapped = mmap_module.mmap(file.stream.fileno(), 0, access=mmap_module.ACCESS_READ)
        return memoryview(mapped)[file.start : file.start + file.size]


def _parse(data: memoryview, trust: str | None, make: type[_P], elsewhere: Mapping[int, Any]) -> _P:
    vouched = _vouched(data) if trust is None else None
    decoder = Decoder(data, ours=vouched is not None)
    try:
        count = decoder.map_header()
        first = decoder.key()
    except LoadError as error:
        raise LoadError(f"not a relaxvm executable ({error})") from None
    if first != "magic" or decoder.value() != MAGIC:
        raise LoadError("not a relaxvm executable: it does not begin with the magic word")
    if not len(_KEYS) <= count <= len(_KEYS) + 2:
        raise LoadError(
            f"wanted {len(_KEYS)} entries and perhaps a debug table and a signature, got {count}"
        )
    plain: dict[str, Any] = {}
    for key in _KEYS[1:]:
        got = decoder.key()
        if got != key:
            raise LoadError(f"wanted the key {key!r} next, got {got[:40]!r}")
        if key == "constants" and vouched is not None:
            plain[key], decoder.position = vouched.constants, vouched.end
            continue
        decoder.views, decoder.tuples = key == "constants", key == "kernels"
        plain[key] = decoder.value()
        if key == "version":
            _check_version(plain[key])
    decoder.views = decoder.tuples = False
    debug = signature = None
    for left in range(count - len(_KEYS), 0, -1):
        key = decoder.key()
        if key == _DEBUG and debug is None and signature is None:
            debug = DebugTable.from_plain(decoder.value())
        elif key == _SIGNATURE and left == 1:
            signature = decoder.value()
        else:
            raise LoadError(f"wanted the key {_SIGNATURE!r} last, got {key[:40]!r}")
    if signature is not None and (
        type(signature) is not bytes or len(signature) != trust_module.SIGNATURE_SIZE
    ):
        raise LoadError(f"the signature is not {trust_module.SIGNATURE_SIZE} bytes")
    decoder.end()
    kernels = plain["kernels"]
    if kernels is not None:
        kernels = KernelSection.from_plain(kernels, signed=vouched is not None)
    trusted = vouched is not None or trust == "native" or kernels is None or not kernels.native
    if type(plain["code"]) is not bytes:
        raise LoadError("code: wanted bytes")
    constants = plain["constants"]
    if type(constants) is not list:
        raise LoadError("constants: wanted a list")
    functions = plain["functions"]
    if type(functions) is not list:
        raise LoadError("functions: wanted a list")
    infos = [_function_from_plain(item) for item in functions]
    if plain["version"] < _least_version(kernels, infos, debug):
        raise LoadError(
            "compiled functions, several objects, donated parameters or a debug table, which "
            f"format version {plain['version']} does not have"
        )
    program = make(
        functions=infos,
        constants=[
            elsewhere[i] if i in elsewhere else constant_from_plain(item, _as_bytes)
            for i, item in enumerate(constants)
        ],
        code=plain["code"],
        kernels=kernels,
        provenance=Provenance.from_plain(plain["provenance"]),
        trusted=trusted,
        debug=debug,
    )
    program.verified = vouched is not None and vouched.verified
    return program


class _Vouched(NamedTuple):
    """What is known of a file that this user's key signed.

    verified   whether it need not be verified again
    constants  what is written under that key, which ends at `end`
    """

    verified: bool
    constants: Any
    end: int


def _vouched(data: memoryview) -> _Vouched | None:
    """Whether this user's key signed `data`, found before anything is made of it."""
    end = len(data) - trust_module.SIGNATURE_SIZE
    signed = end - len(_BEFORE_SIGNATURE)
    if signed <= 0 or data[signed:end] != _BEFORE_SIGNATURE:
        return None
    decoder, constants, constants_end = Decoder(data), None, 0
    try:
        decoder.map_header()
        while decoder.position < signed:
            decoder.views = decoder.key() == "constants"
            if decoder.views:
                constants = decoder.value()
                constants_end = decoder.position
            else:
                decoder.skip()
    except LoadError:
        # What is wrong is told where it is read.
        return None
    signature, content = bytes(data[end:]), data[:signed]
    if decoder.position != signed or constants is None:
        return None
    for begins in (_VERIFIED, _SIGNED):
        if trust_module.vouches(_signed(begins, content, decoder.spans), signature):
            verified = begins is _VERIFIED and not rows_replaced()
            return _Vouched(verified, constants, constants_end)
    return None


def _signed(begins: bytes, data: memoryview, tensors: Iterable[tuple[int, int]]) -> bytes:
    """The digest of `data` without what lies between (begin, end) of each of `tensors`."""
    digest, position = blake2b(begins, digest_size=32), 0
    for begin, end in tensors:
        digest.update(data[position:begin])
        position = end
    digest.update(data[position:])
    return digest.digest()


def _check_version(version: object) -> None:
    if type(version) is not int or version < 1:
        raise LoadError("version: wanted a number")
    if version > FORMAT_VERSION:
        raise LoadError(
            f"the file has format version {version}, this relaxvm reads up to {FORMAT_VERSION}; "
            "use a newer relaxvm or export it again"
        )


def _as_bytes(data: object) -> np.ndarray:
    if type(data) is not memoryview:
        raise LoadError(f"constant: wanted binary data, got {type(data).__name__}")
    return np.frombuffer(data, np.uint8)


def _function_from_plain(plain: object) -> FunctionInfo:
    kind = plain.get("kind") if type(plain) is dict else None
    if kind != "vm":
        name, kind = fields_of(plain, {"name": str, "kind": str}, "function")
        return FunctionInfo(name, kind)
    assert isinstance(plain, dict)
    donated = plain.pop("donated", [])
    name, _, start, end, registers, params, ret = fields_of(
        plain,
        {
            "name": str,
            "kind": str,
            "start": int,
            "end": int,
            "registers": int,
            "params": list,
            "ret": list,
        },
        "function",
    )
    for param in params:
        if type(param) is not list or len(param) != 2 or type(param[0]) is not str:
            raise LoadError("function: a parameter is a list of name and struct info")
    numbers = range(len(params))
    if type(donated) is not list or any(type(i) is not int or i not in numbers for i in donated):
        raise LoadError("function: donated wants the numbers of parameters")
    return FunctionInfo(
        name,
        kind,
        start,
        end,
        registers,
        tuple(param[0] for param in params),
        tuple(info_from_plain(param[1]) for param in params),
        info_from_plain(ret),
        tuple(donated),
    )
