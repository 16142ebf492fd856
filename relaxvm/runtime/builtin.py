"""What the VM itself can do besides jumping: the `vm.builtin.*` functions and their table.

Each is a plain function. Where the trailing arguments are constants (`bind` in the table), a
factory checks and digests them once, at verification and at link time, and the instruction runs
what it returned. Hand-written bytecode may pass anything, so every function checks what it gets.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from sys import getrefcount
from typing import Any

import numpy as np

from ..base import DataType, LimitError, VMError, VMTypeError, VMValueError, to_numpy_dtype
from . import check, heap, kv_cache, result_memory
from .builtin_row import ARGUMENT_KINDS, PREFIX, Builtin, Effect, bound
from .check import as_condition, got, shape_text
from .constants import integer
from .device import cpu
from .limits import MAX_NDIM, Account, counted_empty
from .ndarray import NDArray, ShapeTuple, wrap_unchecked
from .registry import register_func
from .result_memory import held_once
from .storage import ALIGNMENT_BYTES, aligned_empty
from .tensor_info import broadcast_shape, tensor_property

_CPU = cpu(0)
# Cheaper than `.ctypes.data`, and `raw` is never empty.
_address_of = ctypes.addressof
_byte_at: Any = ctypes.c_char.from_buffer
_UINT8 = np.dtype("uint8")
_INT64 = DataType("int64")
_MAX_BYTES = 1 << 48
_MAX_SHAPE_LENGTH = 1 << 10


class VMAssertionError(VMError, AssertionError):
    """An `assert_op` of the program failed."""


class Storage:
    """A block of memory for tensors: `size_bytes` of `raw` from `start` on, which is aligned to 64
    bytes.
    """

    __slots__ = ("device", "raw", "scope", "size_bytes", "start")

    def __init__(self, raw: np.ndarray, start: int, size_bytes: int, scope: str) -> None:
        self.raw = raw
        self.start = start
        self.size_bytes = size_bytes
        self.device = _CPU
        self.scope = scope

    def __repr__(self) -> str:
        return f"<Storage {self.size_bytes} bytes on {self.device}>"


class VMClosure:
    """A function of a program as a value, with the last of its arguments captured.

    function  a linked VM function or a Python callable
    captured  values appended to each call's arguments
    """

    __slots__ = ("captured", "function")

    def __init__(self, function: Any, captured: tuple[Any, ...] = ()) -> None:
        self.function = function
        self.captured = captured

    def __call__(self, *args: Any) -> Any:
        vm = getattr(self.function, "vm", None)
        if vm is not None:
            return vm.invoke_closure(self, *args)
        return self.function(*args, *self.captured)

    def __repr__(self) -> str:
        name = getattr(self.function, "name", None) or getattr(self.function, "__name__", "?")
        return f"<VMClosure {name}, {len(self.captured)} captured>"


# Memory


def storage_size(size: object) -> int:
    """The bytes that `size` asks for: an int, or a shape whose sizes are multiplied."""
    if isinstance(size, tuple):
        total = 1
        for extent in size:
            total *= integer(extent, "alloc_storage: size")
    else:
        total = integer(size, "alloc_storage: size")
    if not 0 <= total < _MAX_BYTES:
        raise VMValueError(
            f"alloc_storage: wanted a size of 0 to {_MAX_BYTES - 1} bytes, "
            f"got {shape_text(size) if isinstance(size, tuple) else total}"
        )
    return total


def alloc_storage_of(
    size: object, device_index: object = 0, dtype: object = None, scope: object = "global"
) -> Callable[..., Storage]:
    """`size` bytes (an int, or a shape whose sizes are multiplied), for a run that has `account`.

    What is made with `lasting` serves call after call; all else goes round (`result_memory`).
    Raises LimitError if there are not so many.
    """
    size_bytes = storage_size(size)
    integer(device_index, "alloc_storage: device index")
    if type(scope) is not str:
        raise VMTypeError(f"alloc_storage: scope: wanted a text, got {type(scope).__name__}")

    def alloc(account: Account | None, lasting: bool = False) -> Storage:
        if account is not None:
            account.reserve(size_bytes)
        needed = size_bytes + ALIGNMENT_BYTES
        try:
            if lasting or account is not None:
                raw = np.empty(needed, _UINT8)
            else:
                raw = result_memory.take(needed)
        except (MemoryError, ValueError) as error:
            raise LimitError(
                f"alloc_storage: cannot allocate {size_bytes} bytes: {error}"
            ) from None
        if account is not None:
            account.own(raw, size_bytes)
        start = -_address_of(_byte_at(raw)) % ALIGNMENT_BYTES
        return Storage(raw, start, size_bytes, scope)

    sized: Any = alloc
    sized.size_bytes = size_bytes
    return alloc


def _checked_shape(shape: object, what: str) -> tuple[int, ...]:
    if not isinstance(shape, tuple):
        raise VMTypeError(f"{what}: wanted a shape, got {got(shape)}")
    numel = 1
    for extent in shape:
        if type(extent) is not int or not 0 <= extent < _MAX_BYTES:
            raise VMValueError(f"{what}: wanted sizes of at least 0, got {shape_text(shape)}")
        numel *= extent or 1
    if len(shape) > MAX_NDIM or numel >= _MAX_BYTES:
        raise VMValueError(f"{what}: the shape {shape_text(shape)} is too large")
    return shape


def alloc_tensor_of(offset: object, shape: object, dtype: object) -> Callable[[Storage], NDArray]:
    """See `alloc_shaped_tensor_of`; the shape is constant."""
    place = alloc_shaped_tensor_of(offset, dtype)
    extents = tuple(_checked_shape(shape, "alloc_tensor"))

    def alloc(storage: Storage) -> NDArray:
        return place(storage, extents)

    assert isinstance(dtype, DataType)
    sized: Any = alloc
    sized.dtype = dtype
    sized.end_bytes = integer(offset, "offset") + math.prod(extents) * dtype.itemsize
    return alloc


def new_tensor_of(
    alloc_storage: Callable[..., Storage], alloc_tensor: Callable[[Storage], NDArray]
) -> Callable[[], NDArray]:
    """A tensor in a storage of its own, by what `alloc_storage_of` and `alloc_tensor_of` gave.

    Memory of a small one goes round: it is taken again when nobody looks at it any more.
    """
    sized: Any = alloc_storage
    placed: Any = alloc_tensor
    if sized.size_bytes > _SMALL_BYTES or not result_memory.COUNTS_TELL:
        return lambda: alloc_tensor(alloc_storage(None))
    homes: deque[np.ndarray] = deque()
    new, dtype = wrap_unchecked, placed.dtype

    def make() -> NDArray:
        home = None
        try:
            home = homes.popleft()
        except IndexError:
            pass
        if home is None or getrefcount(home.base) != _UNSEEN:
            if home is not None and len(homes) < _MOST_HOMES:
                homes.append(home)
            home = alloc_tensor(alloc_storage(None)).array
        homes.append(home)
        return new(home.view(), dtype, _CPU)

    return make


def _holders_of_home() -> int:
    home = np.ndarray(1, _UINT8, np.empty(1, _UINT8))
    return getrefcount(home.base)


_SMALL_BYTES, _MOST_HOMES, _UNSEEN = 1 << 12, 4, _holders_of_home()


def alloc_shaped_tensor_of(
    offset: object, dtype: object
) -> Callable[[Storage, tuple[int, ...]], NDArray]:
    """A tensor in `storage`, `offset` bytes from its start. Raises VMValueError where none fits."""
    start = integer(offset, "alloc_tensor: offset")
    element_dtype = _array_dtype(dtype, "alloc_tensor")
    storage_dtype = to_numpy_dtype(element_dtype)
    itemsize = storage_dtype.itemsize
    if start < 0 or start % itemsize:
        raise VMValueError(
            f"alloc_tensor: wanted an offset that is a multiple of {itemsize}, got {start}"
        )
    make, new = np.ndarray, wrap_unchecked

    def alloc(storage: Storage, shape: tuple[int, ...]) -> NDArray:
        if type(storage) is not Storage:
            raise VMTypeError(f"alloc_tensor: wanted a storage, got {got(storage)}")
        extents = _checked_shape(shape, "alloc_tensor")
        needed = math.prod(extents) * itemsize
        if start + needed > storage.size_bytes:
            raise VMValueError(
                f"alloc_tensor: {dtype} tensor of shape {tuple(extents)} at offset {start} needs "
                f"{start + needed} bytes, the storage has {storage.size_bytes}"
            )
        if not needed:
            return new(aligned_empty(extents, storage_dtype), element_dtype, _CPU)
        return new(
            make(extents, storage_dtype, storage.raw, storage.start + start), element_dtype, _CPU
        )

    return alloc


def kill_object(value: object) -> None:
    """Forget a register (the linker does it; as a function there is nothing to do)."""


def null_value() -> None:
    """No value."""


def move(value: object) -> object:
    """The value itself: where two branches meet, each moves its result into the same register."""
    return value


# Tensors and shapes


def _tensor(value: object, what: str) -> NDArray:
    if type(value) is not NDArray:
        raise VMTypeError(f"{what}: wanted a tensor, got {got(value)}")
    return value


def reshape_to(shape: object) -> Callable[[NDArray], NDArray]:
    """The same elements in another shape, in the same memory (a copy if the tensor has gaps)."""
    extents = tuple(_checked_shape(shape, "reshape"))
    numel = math.prod(extents)

    def reshape_one(tensor: NDArray) -> NDArray:
        array = _tensor(tensor, "reshape").array
        if array.size != numel:
            raise VMValueError(
                f"reshape: {tuple(array.shape)} has {array.size} elements, {extents} wants {numel}"
            )
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        return wrap_unchecked(array.reshape(extents), tensor.dtype, tensor.device)

    return reshape_one


def shape_of(tensor: NDArray) -> ShapeTuple:
    """The tensor's shape."""
    return tuple.__new__(ShapeTuple, _tensor(tensor, "shape_of").array.shape)


def tensor_to_shape(tensor: NDArray) -> ShapeTuple:
    """The shape that a one-dimensional integer tensor holds."""
    array = _tensor(tensor, "tensor_to_shape").array
    if array.ndim != 1 or not tensor.dtype.is_int or array.size > _MAX_SHAPE_LENGTH:
        raise VMTypeError(
            f"tensor_to_shape: wanted a short integer tensor with one axis, got {got(tensor)}"
        )
    values = array.tolist()
    if any(not -(1 << 63) <= value < 1 << 63 for value in values):
        raise VMValueError("tensor_to_shape: a size does not fit 64 bits")
    return ShapeTuple(values)


def _new_tensor(account: Account | None, shape: tuple[int, ...], dtype: DataType) -> NDArray:
    return wrap_unchecked(counted_empty(account, shape, to_numpy_dtype(dtype)), dtype, _CPU)


def tensor_item(tensor: NDArray) -> Any:
    """The number that a tensor of one element holds."""
    if _tensor(tensor, "tensor_item").size != 1:
        raise VMTypeError(f"tensor_item: wanted a tensor of one element, got {got(tensor)}")
    return tensor.item()


def view_of(shape: object, dtype: object, offset: object) -> Callable[[NDArray], NDArray]:
    """The memory of a tensor from byte `offset` on as a tensor of another shape and dtype; a copy
    if the tensor has gaps. Raises VMValueError where it does not fit.
    """
    element = _array_dtype(dtype, "view")
    storage_dtype = to_numpy_dtype(element)
    extents = tuple(_checked_shape(shape, "view"))
    start = integer(offset, "view: offset")
    needed = math.prod(extents) * storage_dtype.itemsize
    if start % storage_dtype.itemsize:
        raise VMValueError(
            f"view: wanted an offset that is a multiple of {storage_dtype.itemsize}, got {start}"
        )

    def view_one(tensor: NDArray) -> NDArray:
        array = _tensor(tensor, "view").array
        if start < 0 or start + needed > array.nbytes:
            raise VMValueError(
                f"view: {element} tensor of shape {shape_text(extents)} at offset {start} needs "
                f"{start + needed} bytes, {got(tensor)} has {array.nbytes}"
            )
        if not needed:
            return wrap_unchecked(aligned_empty(extents, storage_dtype), element, tensor.device)
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        raw = array.reshape(-1).view(_UINT8)[start : start + needed]
        return wrap_unchecked(raw.view(storage_dtype).reshape(extents), element, tensor.device)

    return view_one


def _array_dtype(dtype: object, what: str) -> DataType:
    if type(dtype) is not DataType or dtype.lanes != 1 or dtype.kind in ("handle", "void"):
        raise VMTypeError(f"{what}: no array has dtype {dtype!r}")
    return dtype


def shape_to_tensor(account: Account | None, shape: ShapeTuple) -> NDArray:
    """A shape as a one-dimensional int64 tensor."""
    if not isinstance(shape, tuple) or not all(type(extent) is int for extent in shape):
        raise VMTypeError(f"shape_to_tensor: wanted a shape, got {got(shape)}")
    tensor = _new_tensor(account, (len(shape),), _INT64)
    try:
        tensor.array[...] = shape
    except OverflowError:
        raise VMValueError("shape_to_tensor: a size does not fit 64 bits") from None
    return tensor


def copy(account: Account | None, tensor: NDArray) -> NDArray:
    """A copy of the tensor in memory of its own."""
    source = _tensor(tensor, "copy")
    duplicate = _new_tensor(account, source.array.shape, source.dtype)
    duplicate.array[...] = source.array
    return duplicate


def grow(account: Account | None, tensor: NDArray, shape: object) -> NDArray:
    """A tensor of a shape with more elements, of which the first are those of `tensor` and the
    others undefined. It lies in the memory of `tensor` if that has room behind it and nobody else
    holds it; new memory has room for half as much again, so that growing by rows copies each
    element a bounded number of times.
    """
    array = _tensor(tensor, "grow").array
    extents = tuple(_checked_shape(shape, "grow"))
    needed = math.prod(extents) * array.itemsize
    if needed < array.nbytes:
        raise VMValueError(f"grow: {got(tensor)} does not fit shape {shape_text(extents)}")
    if account is None and needed:
        memory = array.base
        if type(memory) is np.ndarray and memory.dtype is _UINT8 and memory.ndim == 1:
            start = array.ctypes.data - memory.ctypes.data
            if start + needed <= memory.size and memory.flags.writeable and held_once(memory):
                grown = np.ndarray(extents, array.dtype, memory, start)
                return wrap_unchecked(grown, tensor.dtype)
        storage = alloc_storage_of(needed + needed // 2)(None, lasting=True)
        grown = np.ndarray(extents, array.dtype, storage.raw, storage.start)
    else:
        grown = counted_empty(account, extents, array.dtype)
    grown.reshape(-1)[: array.size] = array.reshape(-1)
    return wrap_unchecked(grown, tensor.dtype)


def to_device(tensor: NDArray, device_type: object = 1, device_id: object = 0) -> NDArray:
    """The tensor on a device: itself, as only the CPU exists."""
    if device_type not in (1, "cpu", "llvm") or integer(device_id, "to_device: device id") < 0:
        raise VMValueError(
            f"to_device: only cpu(0) exists, got {got(device_type)}, {got(device_id)}"
        )
    return _tensor(tensor, "to_device")


# Tuples


def make_tuple(*values: Any) -> tuple[Any, ...]:
    """A tuple of the arguments."""
    return values


def tuple_getitem(values: tuple[Any, ...], index: int) -> Any:
    """One element of a tuple (or one size of a shape)."""
    if not isinstance(values, tuple) or type(index) is not int:
        raise VMTypeError(
            f"tuple_getitem: wanted a tuple and an int, got {got(values)} and {got(index)}"
        )
    if not 0 <= index < len(values):
        raise VMValueError(f"tuple_getitem: wanted an index of 0 to {len(values) - 1}, got {index}")
    return values[index]


def tuple_reset_item(values: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    """The tuple with None in place of one element, so that its memory can go."""
    tuple_getitem(values, index)
    return (*values[:index], None, *values[index + 1 :])


# Functions


def make_closure(function: Any, *captured: Any) -> VMClosure:
    """`function` with its last arguments captured."""
    if type(function) is VMClosure:
        return VMClosure(function.function, captured + function.captured)
    if not callable(function):
        raise VMTypeError(f"make_closure: wanted a function, got {got(function)}")
    return VMClosure(function, captured)


def invoke_closure(closure: Any, args: Any) -> Any:
    """Call a closure with a tuple of arguments (the machine runs VM functions without nesting)."""
    if not callable(closure) or not isinstance(args, tuple):
        raise VMTypeError(
            f"invoke_closure: wanted a function and a tuple, got {got(closure)} and {got(args)}"
        )
    return closure(*args)


def call_tir_dyn(kernel: Any, *args: Any) -> None:
    """Run a kernel; the last argument is a shape whose sizes are passed one by one as trailing
    ints.

    The arguments before it may also come as one tuple.
    """
    if not args or not isinstance(args[-1], tuple):
        raise VMTypeError("call_tir_dyn: wanted a kernel, its arguments and a shape")
    kernel_args = args[:-1]
    if len(kernel_args) == 1 and type(kernel_args[0]) is tuple:
        kernel_args = kernel_args[0]
    if not callable(kernel):
        raise VMTypeError(f"call_tir_dyn: wanted a kernel, got {got(kernel)}")
    kernel(*kernel_args, *args[-1])


# Conditions and messages


def assert_op(condition: Any, template: Any = "", *args: Any) -> None:
    """Raise VMAssertionError with the formatted message (without a template: the arguments) unless
    `condition` holds.
    """
    if not as_condition(condition, "assert_op"):
        text = ", ".join(map(_text, args)) if template == "" else _format(template, args)
        raise VMAssertionError(f"assertion failed: {text}" if text else "assertion failed")


def print_(template: Any, *args: Any) -> None:
    """Print the formatted message; an empty template prints the arguments."""
    if template == "":
        print(*map(_text, args))
    else:
        print(_format(template, args))


def debug_print(line: Any, *values: Any) -> None:
    """Print tensors (or other values) with the source line that asked for it."""
    for value in values:
        if type(value) is NDArray:
            print(f"{line}: shape = {value.shape}, dtype = {value.dtype}, data =\n{value.numpy()}")
        else:
            print(f"{line}: {_text(value)}")


def invoke_debug_func(effect: Any, function: Any, line: Any, *args: Any) -> Any:
    """Call ``function(line, *args)`` for what it does, and give `effect` on: calls that hand it
    from one to the next stay in order.
    """
    if not callable(function):
        raise VMTypeError(f"invoke_debug_func: wanted a function, got {got(function)}")
    function(line, *args)
    return effect


_MOST_PARTS, _MOST_DEPTH = 256, 16


def _text(value: Any, depth: int = 0, parts: list[int] | None = None) -> str:
    if type(value) is NDArray:
        return str(value.numpy())
    if type(value) is ShapeTuple:
        return shape_text(value)
    if isinstance(value, tuple):
        # A tuple may be deep and share its parts: whole, its text could fill the memory.
        left = [_MOST_PARTS] if parts is None else parts
        shown = []
        for part in value:
            left[0] -= 1
            if left[0] < 0 or depth > _MOST_DEPTH:
                shown.append("...")
                break
            shown.append(_text(part, depth + 1, left))
        return f"({', '.join(shown)}{',' if len(value) == 1 else ''})"
    return got(value).partition(" ")[2] if type(value) is int else str(value)


_HOLES = r"{{|}}|{(?P<index>[0-9]{0,5})}|{"


def _format(template: Any, args: tuple[Any, ...]) -> str:
    """`template` with {} and {0} filled in. Nothing else of Python's formats: templates come from
    files.
    """
    if not isinstance(template, str):
        raise VMTypeError(f"message: wanted a text, got {got(template)}")
    turns = itertools.count()

    def filled(hole: re.Match[str]) -> str:
        if hole[0] in ("{{", "}}"):
            return hole[0][0]
        if hole["index"] is None:
            raise VMValueError(f"message {template[:80]!r}: only {{}} and {{0}} can be filled in")
        index = int(hole["index"] or next(turns))
        if index >= len(args):
            raise VMValueError(f"message {template[:80]!r}: wants more than {len(args)} arguments")
        return _text(args[index])

    return re.sub(_HOLES, filled, template)


def is_null(value: object) -> bool:
    """Whether there is no value."""
    return value is None


def _grows(function: Callable[..., Any], args: str) -> Builtin:
    return Builtin(function, args, account=True, effect=Effect.OUTLIVE)


class Builtins:
    """Every builtin of the house: its name is "vm.builtin." and the attribute in small letters."""

    # memory
    ALLOC_STORAGE = bound(
        alloc_storage_of, "any any= any= text=", account=True, dynamic=0, effect=Effect.ALLOCATE
    )
    ALLOC_TENSOR = bound(
        alloc_tensor_of,
        "any any any dtype",
        aliases=True,
        partly=((0, 2), alloc_shaped_tensor_of),
        effect=Effect.PLACE,
    )
    KILL_OBJECT = Builtin(kill_object, "any", effect=Effect.KILL, raises=False)
    NULL_VALUE = Builtin(null_value, "", pure=True, raises=False)
    MOVE = Builtin(move, "any", pure=True, aliases=True, effect=Effect.SAME, raises=False)

    # symbolic shapes
    ALLOC_SHAPE_HEAP = bound(heap.alloc_of, "imm", dynamic=0, checks=True)
    MATCH_SHAPE = bound(
        heap.match_shape_of,
        "any any text (imm imm)*",
        dynamic=2,
        checks=True,
        effect=Effect.MATCH_SHAPE,
    )
    MATCH_PRIM_VALUE = bound(
        heap.match_prim_of,
        "any any text imm imm",
        dynamic=2,
        checks=True,
        effect=Effect.MATCH_NUMBER,
    )
    MAKE_SHAPE = bound(heap.make_shape_of, "any (imm imm)*", pure=True, effect=Effect.LOAD_SHAPE)
    MAKE_PRIM_VALUE = bound(heap.make_prim_of, "any imm imm", pure=True, effect=Effect.LOAD_NUMBER)
    SHAPE_EXPR = bound(heap.shape_expr_of, "any imm dim", checks=True, effect=Effect.COMPUTE_SLOT)

    # checks
    CHECK_TENSOR_INFO = bound(check.tensor_info_of, "any imm dtype? text", checks=True)
    CHECK_SHAPE_INFO = bound(check.shape_info_of, "any imm text", checks=True)
    CHECK_PRIM_VALUE_INFO = bound(check.prim_info_of, "any dtype text", checks=True)
    CHECK_TUPLE_INFO = bound(check.tuple_info_of, "any imm text", checks=True)
    CHECK_SEQUENCE_INFO = bound(check.sequence_info_of, "any imm dtype? text", checks=True)
    CHECK_FUNC_INFO = bound(check.func_info_of, "any text", checks=True)
    CHECK_RESULT = bound(
        check.result_of, "any info text any=", aliases=True, checks=True, effect=Effect.SAME
    )

    # tensors and shapes
    RESHAPE = bound(reshape_to, "any any", pure=True, aliases=True, effect=Effect.RESHAPE)
    VIEW = bound(view_of, "any any any any", pure=True, aliases=True)
    TENSOR_ITEM = Builtin(tensor_item, "any", pure=True)
    SHAPE_OF = Builtin(shape_of, "any", pure=True, effect=Effect.SHAPE)
    TENSOR_TO_SHAPE = Builtin(tensor_to_shape, "any", pure=True)
    SHAPE_TO_TENSOR = Builtin(
        shape_to_tensor, "any", pure=True, account=True, effect=Effect.SHAPE_TENSOR
    )
    BROADCAST_SHAPE = Builtin(broadcast_shape, "any (any)*", pure=True, effect=Effect.COMMON_SHAPE)
    TENSOR_PROPERTY = Builtin(tensor_property, "any text any=", pure=True)
    COPY = Builtin(copy, "any", pure=True, account=True, effect=Effect.COPY)
    GROW = Builtin(grow, "any any", pure=True, aliases=True, account=True)
    TO_DEVICE = Builtin(to_device, "any any= any=", pure=True, aliases=True, effect=Effect.SAME)

    # tuples
    MAKE_TUPLE = Builtin(
        make_tuple, "(any)*", pure=True, aliases=True, effect=Effect.TUPLE, raises=False
    )
    TUPLE_GETITEM = Builtin(tuple_getitem, "any any", pure=True, aliases=True, effect=Effect.ITEM)
    TUPLE_RESET_ITEM = Builtin(tuple_reset_item, "any any", pure=True, aliases=True)

    # functions
    MAKE_CLOSURE = Builtin(
        make_closure, "any (any)*", pure=True, aliases=True, effect=Effect.CLOSURE
    )
    INVOKE_CLOSURE = Builtin(
        invoke_closure, "any any", aliases=True, calls=True, effect=Effect.INVOKE
    )
    CALL_TIR_DYN = Builtin(call_tir_dyn, "any (any)*", aliases=True, calls=True)

    # conditions and messages
    READ_IF_COND = Builtin(as_condition, "any", pure=True)
    ASSERT_OP = Builtin(assert_op, "any any= (any)*")
    PRINT = Builtin(print_, "any (any)*")
    IS_NULL = Builtin(is_null, "any", pure=True, raises=False)
    DEBUG_PRINT = Builtin(debug_print, "any (any)*")
    INVOKE_DEBUG_FUNC = Builtin(invoke_debug_func, "any any any (any)*", aliases=True, calls=True)

    # caches that grow (their memory is not planned: nothing planned is part of the result)
    ATTENTION_KV_CACHE_CREATE = _grows(kv_cache.create, "any any any= any=")
    ATTENTION_KV_CACHE_APPEND = _grows(kv_cache.append, "any any")
    ATTENTION_KV_CACHE_VIEW = Builtin(kv_cache.view, "any any")
    ATTENTION_KV_CACHE_UPDATE = _grows(kv_cache.update, "any any")
    ATTENTION_KV_CACHE_WINDOW_OVERRIDE = _grows(kv_cache.override_window, "any any any")
    ATTENTION_KV_CACHE_WINDOW_OVERRIDE_WITH_SINKS = _grows(
        kv_cache.override_window, "any any any any"
    )
    ATTENTION_KV_CACHE_POPN = Builtin(kv_cache.popn, "any any")
    ATTENTION_KV_CACHE_CLEAR = Builtin(kv_cache.clear, "any")
    ATTENTION_KV_CACHE_ARRAY_POPN = Builtin(kv_cache.array_popn, "any any")
    ATTENTION_KV_CACHE_ARRAY_CLEAR = Builtin(kv_cache.array_clear, "any")


TABLE = {row.name: row for row in vars(Builtins).values() if isinstance(row, Builtin)}
"""Every builtin by its full name."""
_OURS = dict(TABLE)


def builtin_named(short_name: str) -> Builtin:
    """The house's own row of "vm.builtin." and this name. Raises KeyError if there is none."""
    return _OURS[PREFIX + short_name]


def register_builtin(name: str, builtin: Builtin) -> None:
    """Add a row to the table, or replace it: programs of this process may call `name`.

    Programs built with another row of that name are to be built again. Raises VMValueError for a
    name without the prefix "vm.builtin.", and for rows of which a field is wrong.
    """
    if not isinstance(name, str) or not name.startswith(PREFIX):
        raise VMValueError(
            f"register_builtin: wanted a name such as {Builtins.MOVE.name}, got {name!r}"
        )
    wrong = wrong_field(builtin)
    if wrong is not None:
        raise VMValueError(f"register_builtin: {name}: {wrong}")
    TABLE[name] = replace(builtin, name=name)
    _offer(TABLE[name])


def wrong_field(row: object) -> str | None:
    """What is wrong with a row; None if nothing is."""
    if not isinstance(row, Builtin):
        return f"wanted a Builtin, got {type(row).__name__}"
    flags = ("pure", "aliases", "calls", "account", "raises", "checks")
    kinds = {"args": str, "effect": Effect, "dynamic": int} | dict.fromkeys(flags, bool)
    for field, kind in kinds.items():
        if type(value := getattr(row, field)) is not kind:
            return f"{field}: wanted {kind.__name__}, got {type(value).__name__}"
    for field in ("function", "bind", "native"):
        value = getattr(row, field)
        if not (callable(value) or (value is None and field != "function")):
            return f"{field}: wanted a function, got {type(value).__name__}"
    unknown = sorted({k.removesuffix("=") for k in (*row.fixed, *row.repeated)} - ARGUMENT_KINDS)
    if unknown:
        return f"arguments are {', '.join(sorted(ARGUMENT_KINDS))}, got {', '.join(unknown)}"
    repeats = [f"({' '.join(row.repeated)})*"] if row.repeated else []
    least = row.fixed[: row.min_args]
    if row.args.split() != " ".join([*row.fixed, *repeats]).split() or any("=" in k for k in least):
        return f"args: wanted kinds, optional ones last, then (kinds)*, got {row.args!r}"
    if not 0 <= row.dynamic <= len(row.fixed):
        return f"dynamic: {row.dynamic} of {len(row.fixed)} arguments"
    # What an effect says of arguments, it says of those that the house's rows with it have.
    likes = [ours.fixed[: ours.min_args] for ours in _OURS.values() if ours.effect is row.effect]
    if not any(
        len(like) <= len(least) and all(a in ("any", b) for a, b in zip(like, least))
        for like in likes
    ):
        return f"effect: {row.effect.name} is of arguments {' '.join(likes[0])!r}, got {row.args!r}"
    return None


def _offer(builtin: Builtin) -> None:
    """Let TVM's users find a row by `get_global_func`. In programs the table comes first."""
    function = partial(builtin.function, None) if builtin.account else builtin.function
    register_func(builtin.name, function, override=True)


def rows_replaced() -> bool:
    """Whether somebody added a row to the table, or replaced one: machine code that calls it fits
    no other process.
    """
    return TABLE != _OURS


for _row in _OURS.values():
    _offer(_row)


def _alloc_elements(
    size: object, device_index: object = 0, dtype: object = "uint8", scope: object = "global"
) -> Storage:
    """Storage of `size` elements of `dtype`: so TVM's function counts, unlike programs here."""
    extents = size if isinstance(size, tuple) else (size,)
    element = DataType(dtype)
    return alloc_storage_of((*extents, element.itemsize), device_index, element, scope)(None)


register_func(Builtins.ALLOC_STORAGE.name, _alloc_elements, override=True)
