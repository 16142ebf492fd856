"""Calling a kernel wrapper from Python with the least work: one native function for all kernels.

The fast path is a C function made at run time (`METH_FASTCALL`, through `PyCFunction_NewEx`). Its
`self` is a bytes object, the entry record below; it reads NDArray's `array` slot and the numpy
array header directly, fills the wrapper's argument structs on the stack and calls it. Every offset
it uses is compared with ground truth on live objects before first use; where one differs (another
interpreter, a free-threaded build, a future numpy) the generic path through ctypes serves with the
same contract.

Contract of both: `call(*args)` returns None when done, else an int: a failure number of the wrapper
(positive), ``-(i + 1)`` if argument i is not of the parameter's kind, or one of the codes below.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import struct
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from ..base import DataType, VMError, config
from . import pyabi
from . import trampoline_ir as layout
from .dims import evaluate, symbols_of
from .disk_cache import DiskCache
from .kernel import KernelInfo, KernelParam
from .linking import LinkedCode, installed_llvmlite, machine_name, started_llvm
from .locks import lock
from .ndarray import NDArray
from .pyabi import fast_path_problem as fast_path_problem
from .trampoline_ir import CODE_COUNT as CODE_COUNT
from .trampoline_ir import CODE_WANTS_NDARRAY as CODE_WANTS_NDARRAY
from .trampoline_ir import ROW_MOST as ROW_MOST

RELEASE_GIL_ELEMENTS = 1 << 15
"""Calls with so many tensor elements run without the GIL; for fewer, switching costs too much.

Arithmetic counts as well, see `release_elements`.
"""
RELEASE_GIL_FLOPS = 1 << 17

_BFLOAT16 = DataType("bfloat16")
entries = DiskCache("entries", 1 << 24)
"""What is small, and made of this machine or of our own sources."""


class Arg(ctypes.Structure):
    """The wrapper's view of one argument (40 bytes).

    threads  in the first argument: most threads of a parallel loop, 0 for the pool's size
    """

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("ndim", ctypes.c_int32),
        ("type_num", ctypes.c_int32),
        ("flags", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    ]


def _kind_word(param: KernelParam) -> int:
    if param.kind == "tensor":
        special = {"bfloat16": layout.TENSOR_BF16, "uint16": layout.TENSOR_UINT16}
        return special.get(str.__str__(param.dtype), layout.TENSOR)
    kind = param.dtype.kind
    if kind == "bool":
        return layout.BOOL
    if param.dtype.is_float:
        return layout.FLOAT
    return (layout.SIGNED if kind == "int" else layout.UNSIGNED) | (64 - param.dtype.bits) << 8


def compile_ir(llvm: Any, text: str, **only: str) -> bytes:
    """Object code of LLVM IR for any machine of the host's triple, or for those with `cpu` and
    `features` only.
    """
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(opt=2, reloc="pic", codemodel="default", **only)
    module = parse_ir(llvm, text)
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    code: bytes = machine.emit_object(module)
    return code


def parse_ir(llvm: Any, text: str) -> Any:
    """Parse LLVM IR that uses opaque pointers. llvmlite 0.44 (LLVM 15) must be asked for them."""
    if llvm.llvm_version_info[0] >= 16:
        return llvm.parse_assembly(text, llvm.create_context())
    context = llvm.context.ContextRef(llvm.ffi.lib.LLVMPY_ContextCreate(True))
    return llvm.parse_assembly(text, context)


def object_code(write: Callable[..., str], *args: object) -> bytes:
    """The LLVM IR that `write` gives for `args`, compiled: from the user's cache, or made now and
    cached.
    """
    # LLVM itself is started only to compile.
    versions = (installed_llvmlite().__version__, sys.platform, machine_name(), sys.byteorder)
    sources = [_source(module) for module in (write.__module__, "relaxvm.base.llvm")]
    # To write the text takes longer than to take from the cache what it becomes.
    text = write(*args).encode() if b"" in sources else b""
    key = b"\n".join([repr((write.__name__, args, versions)).encode(), *sources, text])
    return entries.kept(key, lambda: compile_ir(started_llvm(), text.decode() or write(*args)))


def _source(module: str) -> bytes:
    """The file that a module is made from; nothing if it may be another one than runs here."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not isinstance(spec.loader, SourceFileLoader):
        return b""
    if spec.loader.path_stats(spec.origin)["mtime"] >= config.LOADED_AT:
        return b""
    return spec.loader.get_data(spec.origin)


_lock = lock()


@functools.lru_cache(maxsize=1)
def _methods() -> tuple[int, int, bytes]:
    """The addresses of the method definitions of a kernel and of a row, and the part of the entry
    record that all kernels share.
    """
    symbols = ("relaxvm_call", "relaxvm_call_row")
    library = LinkedCode((object_code(layout.entry_ir),), symbols, {})
    name = ctypes.create_string_buffer(b"relaxvm_kernel")
    methods = [
        ctypes.create_string_buffer(
            pyabi.method_definition(
                ctypes.addressof(name), library.addresses[symbol], pyabi.METH_FASTCALL
            )
        )
        for symbol in symbols
    ]
    # Kernel functions may outlive everything, this module included: never let these go.
    pyabi.never_let_go(name, *methods, library)
    values = {
        "NDArray": id(NDArray),
        "ndarray": id(np.ndarray),
        "bfloat16": id(_BFLOAT16),
        "PyFloat_Type": id(float),
        "Py_None": id(None),
        "Py_True": id(True),
        "Py_False": id(False),
    }
    for word in layout.RECORD[4:]:
        if word not in values:
            values[word] = pyabi.function_address(word)
    shared = struct.pack(
        f"={len(layout.RECORD) - 4}Q", *(values[word] for word in layout.RECORD[4:])
    )
    one, row = map(ctypes.addressof, methods)
    return one, row, shared


_TYPICAL_SIZE = 64


def release_elements(info: KernelInfo) -> int:
    """From how many tensor elements on a call of this kernel is worth releasing the GIL.

    A kernel that does much arithmetic per element (told at symbols of 64) is worth it earlier, one
    whose arithmetic is not bounded by the sizes of its tensors always.
    """
    if info.flops is None:
        return RELEASE_GIL_ELEMENTS
    symbols = dict.fromkeys(info.bound_symbols(), _TYPICAL_SIZE)
    try:
        flops = float(evaluate(info.flops, symbols))
        if isinstance(info.flops, int):
            return 0 if flops >= RELEASE_GIL_FLOPS else RELEASE_GIL_ELEMENTS
        sizes = {s for param in info.params for dim in param.shape for s in symbols_of(dim)}
        if not sizes.issuperset(symbols_of(info.flops)):
            # A scalar that is no size decides: nothing here bounds the work.
            return 0
        elements = 1
        for param in info.params:
            shape = [max(1, int(evaluate(d, symbols))) for d in param.shape]
            elements += math.prod(shape) if param.kind == "tensor" else 0
    except VMError:
        # Too large a number, at sizes that no caller asked for.
        return RELEASE_GIL_ELEMENTS
    per_element = flops * RELEASE_GIL_ELEMENTS / (elements * RELEASE_GIL_FLOPS)
    return int(RELEASE_GIL_ELEMENTS / max(1.0, min(per_element, 1e6)))


def make_fast_call(
    address: int, info: KernelInfo, owner: object, num_threads: int = 0
) -> Callable[..., int | None]:
    """A native callable for the wrapper at `address`, which keeps `owner` (the linked code) alive.

    num_threads  most threads of a parallel loop in it; 0 for the pool's size

    Raises VMError where the native entry cannot be used.
    """
    problem = fast_path_problem()
    if problem is not None:
        raise VMError(
            f"kernel {info.name}: no native entry here: {problem}; use set_call_path('generic')"
        )
    with _lock:
        method, _, shared = _methods()
    kinds = [_kind_word(p) for p in info.params]
    record = (
        struct.pack("=4Q", address, len(kinds), num_threads, release_elements(info))
        + shared
        + struct.pack(f"={len(kinds)}Q", *kinds)
    )
    entry: Callable[..., int | None] = pyabi.new_builtin(method, record, owner)
    return entry


def is_fast(call: object) -> bool:
    """Whether this is a `make_fast_call`, which rows can be made of."""
    return type(call) is BuiltinFunctionType


def make_row(calls: Sequence[tuple[Any, Sequence[int]]]) -> Callable[[list[Any]], int | None]:
    """A native callable that makes up to `ROW_MOST` fast calls one after another, each on the
    elements of a list at these places.

    Gives None, or where call k fails with `code`: ``code * ROW_MOST + k``.
    """
    words = [len(calls), max(len(places) for _, places in calls)]
    for call, places in calls:
        words += [id(call.__self__), len(places), *places]
    record = struct.pack(f"={len(words)}q", *words)
    row: Callable[[list[Any]], int | None] = pyabi.new_builtin(
        _methods()[1], record, tuple(call for call, _ in calls)
    )
    return row


_Wrapper = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


def make_generic_call(
    address: int, info: KernelInfo, owner: object, num_threads: int = 0
) -> Callable[..., int | None]:
    """The same contract as `make_fast_call`, through ctypes and documented attributes only.

    Slower, works anywhere.
    """
    wrapper = _Wrapper(address)
    kinds = [_kind_word(p) for p in info.params]
    params = info.params
    block = Arg * max(1, len(kinds))
    wants = [(kind & 255, param.dtype) for kind, param in zip(kinds, params)]

    def call(*args: Any) -> int | None:
        if len(args) != len(wants):
            return CODE_COUNT
        filled = block()
        kept = [owner]
        for i, (kind, dtype) in enumerate(wants):
            if kind <= layout.TENSOR_UINT16:
                array = _array_of(args[i], kind, dtype)
                if array is None:
                    return -(i + 1)
                shape = (ctypes.c_int64 * array.ndim)(*array.shape)
                strides = (ctypes.c_int64 * array.ndim)(*array.strides)
                kept += (array, shape, strides)
                filled[i] = Arg(
                    array.ctypes.data,
                    ctypes.addressof(shape),
                    ctypes.addressof(strides),
                    array.ndim,
                    array.dtype.num,
                    array.flags.num,
                    num_threads,
                )
            else:
                payload = _payload_of(args[i], kind, dtype)
                if payload is None:
                    return -(i + 1)
                filled[i] = Arg(payload, None, None, -1, 0, 0, num_threads)
        code: int = wrapper(ctypes.addressof(filled))
        return code or None

    return call


def _array_of(value: object, kind: int, dtype: DataType) -> np.ndarray | None:
    if dtype.is_byte:
        return value.array if type(value) is NDArray and value.dtype is dtype else None
    if type(value) is NDArray:
        if (
            value.dtype is _BFLOAT16
            if kind == layout.TENSOR_UINT16
            else kind == layout.TENSOR_BF16 and value.dtype is not _BFLOAT16
        ):
            return None
        return value.array
    if type(value) is np.ndarray and kind != layout.TENSOR_BF16 and value.dtype.isnative:
        return value
    return None


def _payload_of(value: object, kind: int, dtype: DataType) -> int | None:
    """The 64 bits that stand for a scalar argument, or None if it does not fit."""
    if kind == layout.BOOL:
        return int(value) if type(value) is bool else None
    if kind == layout.FLOAT:
        if type(value) is not float and not isinstance(value, int):
            return None
        try:
            return int.from_bytes(struct.pack("=d", float(value)), sys.byteorder)
        except OverflowError:
            return None
    if not isinstance(value, int) or not dtype.min_value <= value <= dtype.max_value:
        return None
    return int(value) & 0xFFFF_FFFF_FFFF_FFFF
