"""NDArray: a numpy array with a relaxvm dtype, on a device, and the ways into it.

Views in and out never copy unless they must.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..base import (
    DataType,
    VMTypeError,
    VMValueError,
    bits_to_values,
    submodules,
    to_numpy_dtype,
    values_to_bits,
)
from .device import Device, cpu
from .device import device as device
from .device import device as device_of
from .dlpack import is_capsule, mark_capsule, view_of_dlpack
from .storage import ALIGNMENT_BYTES as ALIGNMENT_BYTES
from .storage import (
    PLAIN_DTYPES,
    aligned_copy,
    array_dtype,
    checked_shape,
    describe_dtype,
    element_type,
    extension_dtype,
    has_buffer,
    view_of_buffer,
)
from .storage import ShapeTuple as ShapeTuple
from .storage import aligned_empty as aligned_empty
from .storage import numpy_storage_dtype as numpy_storage_dtype
from .strings import STRING, holds_text, numbers_to_strings, strings_of, strings_to_numbers

_CPU = cpu(0)
_BOOL = DataType("bool")


class NDArray:
    """An array on a device.

    dtype    `DataType` of the elements
    device   where it lives
    array    the memory as numpy sees it, bits for a dtype that numpy lacks: an exact `np.ndarray`,
             native byte order, element-aligned, any strides. Native code reads this slot, the
             first in memory by its name.
    """

    __slots__ = ("array", "dtype", "device", "__weakref__")

    array: np.ndarray
    dtype: DataType
    device: Device

    def __init__(self, data: object, device: Device | None = None, dtype: object = None) -> None:
        copy = array(data, _CPU if device is None else device, dtype)
        self.array, self.dtype, self.device = copy.array, copy.dtype, copy.device

    def __init_subclass__(cls, used_up: bool = False) -> None:
        if not used_up:
            raise TypeError("NDArray cannot be subclassed: native code relies on its layout")

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        shape = self.array.shape
        return shape if self.dtype.lanes == 1 else shape[:-1]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.array.ndim - (self.dtype.lanes != 1)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.array.size // self.dtype.lanes

    @property
    def nbytes(self) -> int:
        """Bytes of all elements together."""
        return self.array.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Steps between neighbours along each axis, in bytes."""
        return self.array.strides[: self.ndim]

    def numpy(self) -> np.ndarray:
        """A numpy view of the same memory.

        What numpy lacks (bfloat16, floats of 8 bits, int4, ...) comes as ml_dtypes has it, if that
        package is installed, else as bits in uint16 and raw bytes. The lanes of vectors are a last
        axis.
        """
        if self.dtype.is_bits:
            extension = extension_dtype(self.dtype)
            return self.array.view() if extension is None else self.array.view(extension)
        return self.array.view()

    def asnumpy(self) -> np.ndarray:
        """A numpy copy (TVM's older name; unlike `numpy`, later writes do not show)."""
        return self.numpy().copy()

    def item(self) -> Any:
        """The only element, as a Python number. Raises VMValueError unless there is exactly one."""
        if self.array.size != 1:
            raise VMValueError(f"wanted an array of one element, got shape {self.shape}")
        return self._values().item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return self._values().tolist()

    def astype(self, dtype: object) -> NDArray:
        """A copy with the elements converted to `dtype`."""
        wanted = array_dtype(dtype)
        return wrap_unchecked(aligned_copy(_converted(self._values(), wanted)), wanted, self.device)

    def copyto(self, target: NDArray | Device) -> NDArray:
        """Copy into an array of the same shape and dtype, or into a new one on a device.

        Returns that array.
        """
        if isinstance(target, Device):
            return wrap_unchecked(aligned_copy(self.array), self.dtype, target)
        if not isinstance(target, NDArray):
            raise VMTypeError(f"copyto: wanted an NDArray or a Device, got {type(target).__name__}")
        if target.dtype is not self.dtype:
            raise VMTypeError(
                f"copyto: wanted a target of dtype {self.dtype}, got {target.dtype}; use astype"
            )
        target._write(..., self.array, "copyto")
        return target

    def copyfrom(self, source: object) -> NDArray:
        """Overwrite with an array-like of the same shape, converting its elements; returns self."""
        values = _as_values(source, self.dtype)
        if values.shape != self.array.shape:
            raise VMValueError(f"copyfrom: wanted shape {self.array.shape}, got {values.shape}")
        self._write(..., values, "copyfrom")
        return self

    def to_device(self, device: Device, mem_scope: str | None = None) -> NDArray:
        """This array on `device`: itself if it is there already, else a copy."""
        return self if device is self.device else self.copyto(device)

    def is_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        return self.array.flags.c_contiguous

    def same_as(self, other: object) -> bool:
        """Whether `other` is this very object."""
        return self is other

    def _create_view(
        self, shape: Sequence[int], dtype: object = None, relative_byte_offset: int = 0
    ) -> NDArray:
        """The same memory, from `relative_byte_offset` on, with another shape and dtype; it may be
        part of the memory only. Needs a contiguous array.

        Raises VMValueError if the array has less memory than that, or not at that alignment.
        """
        wanted = self.dtype if dtype is None else array_dtype(dtype)
        if not self.is_contiguous():
            raise VMValueError(f"view: wanted a contiguous array, got strides {self.strides}")
        storage, sizes = to_numpy_dtype(wanted), checked_shape(shape)
        start, size = operator.index(relative_byte_offset), math.prod(sizes) * storage.itemsize
        what = f"view: {wanted} of shape {sizes} from byte {start} on"
        if start < 0 or start + size > self.nbytes:
            raise VMValueError(
                f"{what} needs {size} bytes; the {self.dtype} array of shape {self.shape} has "
                f"{self.nbytes}"
            )
        part = self.array.reshape(-1).view(np.uint8)[start : start + size].view(storage)
        if size and not part.flags.aligned:
            raise VMValueError(f"{what}: is not at a multiple of {storage.alignment} bytes")
        return wrap_unchecked(part.reshape(sizes), wanted, self.device)

    view = _create_view

    def _values(self) -> np.ndarray:
        """The elements as numbers numpy understands (floats that it lacks as float32, integers as
        int8 or uint8).
        """
        if self.dtype.is_bits:
            # `asarray`: arithmetic on an array without axes gives a numpy scalar.
            return np.asarray(bits_to_values(self.array, self.dtype))
        return self.array

    def _write(self, key: Any, storage: np.ndarray, what: str) -> None:
        if not self.array.flags.writeable:
            raise VMValueError(f"{what}: the array is read-only; copy it first with copyto(device)")
        if what != "item" and storage.shape != self.array.shape:
            raise VMValueError(f"{what}: wanted shape {self.array.shape}, got {storage.shape}")
        try:
            self.array[key] = storage
        except ValueError as error:
            raise VMValueError(f"{what}: {error}") from None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        view = self.numpy()
        if dtype is None or np.dtype(dtype) == view.dtype:
            return view.copy() if copy else view
        if copy is False:
            raise ValueError(
                f"a {self.dtype} array cannot be seen as {np.dtype(dtype)} without a copy"
            )
        return view.astype(dtype)

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule of this memory.

        Raises BufferError for a read-only array and an old consumer.
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(
                f"cannot export to DLPack device {dl_device}: the array is on {self.device}"
            )
        source = self.array.copy() if copy else self.array
        if self.dtype.bits in (2, 4):
            raise BufferError(f"DLPack packs {self.dtype}; astype it first, or view it as uint8")
        # numpy exports no bfloat16, no 8-bit floats and, before 1.25, no bool: export bits and say
        # what they are.
        renamed = self.dtype.is_bits or self.dtype is _BOOL
        if self.dtype is _BOOL or self.dtype.is_byte:
            source = source.view(np.uint8)
        if max_version is not None and _numpy_speaks_dlpack_1():
            capsule = source.__dlpack__(max_version=max_version)
        else:
            capsule = source.__dlpack__()
        return mark_capsule(capsule, self.dtype) if renamed else capsule

    def to_dlpack(self) -> object:
        """A DLPack capsule of this memory, for consumers that take no array object."""
        return self.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device.device_type, self.device.index)

    def __getitem__(self, key: Any) -> NDArray:
        """Part of the array, as numpy indexes (a view where numpy gives one)."""
        part = self.array[_plain_key(key)]
        if type(part) is not np.ndarray:
            part = np.asarray(part)
        return wrap_unchecked(part, self.dtype, self.device)

    def __setitem__(self, key: Any, value: object) -> None:
        self._write(_plain_key(key), _as_values(value, self.dtype), "item")

    def __len__(self) -> int:
        if not self.array.ndim:
            raise VMTypeError("an array without axes has no length")
        return len(self.array)

    def __iter__(self) -> Iterator[NDArray]:
        for i in range(len(self)):
            yield self[i]

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __index__(self) -> int:
        if not (self.dtype.is_int and self.array.ndim == 0):
            raise VMTypeError(
                f"only an integer array without axes is an index, got {self._summary()}"
            )
        return int(self.item())

    def __repr__(self) -> str:
        return f"<NDArray {self._summary()}, {self.device}>\n{np.array_repr(self._values())}"

    def _summary(self) -> str:
        return f"shape={self.shape} dtype={self.dtype}"

    def __reduce__(self) -> tuple[Any, ...]:
        memory = np.ascontiguousarray(self.array).reshape(self.array.shape)
        return _restore, (memory, str(self.dtype), self.device)

    def __copy__(self) -> NDArray:
        return wrap_unchecked(aligned_copy(self.array), self.dtype, self.device)

    def __deepcopy__(self, memo: dict[int, Any]) -> NDArray:
        return self.__copy__()


def wrap_unchecked(storage: np.ndarray, dtype: DataType, device: Device = _CPU) -> NDArray:
    """An NDArray around `storage`, trusting the caller about what NDArray says of it."""
    wrapped = _new(NDArray)
    wrapped.array = storage
    wrapped.dtype = dtype
    wrapped.device = device
    return wrapped


_new = object.__new__


def use_up(message: str, value: Any) -> None:
    """Let `value`, if it is an NDArray, say `message` to whoever looks at it from now on. Its
    memory lives on as long as it does: somebody may be reading it.
    """
    if type(value) is NDArray:
        value.__class__ = _used_up(message)


@functools.lru_cache(maxsize=256)
def _used_up(message: str) -> Any:
    def refuse(array: NDArray) -> np.ndarray:
        raise VMValueError(message)

    members = {"__slots__": (), "array": property(refuse), "__repr__": lambda array: message}
    return types.new_class(
        "UsedUpNDArray", (NDArray,), {"used_up": True}, lambda body: body.update(members)
    )


def root_of(array: Any) -> np.ndarray:
    """The array that owns the memory of `array`."""
    base = array.base
    while type(base) is np.ndarray or type(base) is NDArray:
        # Machine code makes views whose base is the NDArray they look into.
        array = base.array if type(base) is NDArray else base
        base = array.base
    return array


def _restore(storage: np.ndarray, dtype: str, device: Device) -> NDArray:
    wanted = array_dtype(dtype, lanes=True)
    if not isinstance(storage, np.ndarray) or storage.dtype != to_numpy_dtype(wanted):
        got = getattr(storage, "dtype", type(storage).__name__)
        raise VMTypeError(f"wanted {dtype} storage, got {got}")
    return wrap_unchecked(aligned_copy(storage), wanted, device)


@functools.lru_cache(maxsize=1)
def _numpy_speaks_dlpack_1() -> bool:
    try:
        np.empty(1).__dlpack__(max_version=(1, 0))
    except TypeError:
        return False
    return True


def _plain_key(key: Any) -> Any:
    if type(key) is NDArray:
        return key.array
    if type(key) is tuple:
        return tuple(_plain_key(k) if type(k) is NDArray else k for k in key)
    return key


def empty(
    shape: Sequence[int] | int,
    dtype: object = "float32",
    device: Device = _CPU,
    mem_scope: str | None = None,
) -> NDArray:
    """An uninitialised array, C-contiguous, aligned to 64 bytes.

    Of vectors such as "float32x4", numpy sees the lanes as a last axis.
    """
    wanted = array_dtype(dtype, lanes=True)
    extents = checked_shape(shape)
    if wanted.lanes != 1:
        extents = (*extents, wanted.lanes)
    return wrap_unchecked(aligned_empty(extents, to_numpy_dtype(wanted)), wanted, device_of(device))


def array(
    data: object, device: Device = _CPU, dtype: object = None, mem_scope: str | None = None
) -> NDArray:
    """A new array holding a copy of `data`: any array, a number, or nested lists of numbers.

    Python floats give float32 (as TVM does), numpy arrays keep their dtype. For bfloat16 and what
    is stored in a byte, a numpy array of uint16 or uint8 is taken as bits and anything else is
    rounded. For vectors such as "float32x4", the last axis of `data` holds the lanes. Raises
    VMTypeError if the elements are not numbers.
    """
    if isinstance(device, str):
        device = device_of(device)
    if not isinstance(device, Device):
        raise VMTypeError(f"array: wanted a Device, got {type(device).__name__}")
    wanted = None if dtype is None else array_dtype(dtype, lanes=True)
    if wanted is not None:
        if wanted.lanes != 1:
            elements = array(data, device, wanted.element)
            if not elements.ndim or elements.shape[-1] != wanted.lanes:
                raise VMValueError(
                    f"array: wanted a last axis of the {wanted.lanes} lanes of {wanted}, got shape "
                    f"{elements.shape}"
                )
            return wrap_unchecked(elements.array, wanted, device)
        return wrap_unchecked(aligned_copy(_as_values(data, wanted)), wanted, device)
    if not _is_array(data):
        values = _numbers(data)
        single = values.dtype == np.float64 and not hasattr(data, "__array__")
        data = values.astype(np.float32) if single else values
    source = as_ndarray(data)
    return wrap_unchecked(aligned_copy(source.array), source.dtype, device)


tensor = array


def _is_array(data: object) -> bool:
    return isinstance(data, (NDArray, np.ndarray, np.generic, bytes, bytearray, memoryview)) or (
        hasattr(data, "__dlpack__") or is_capsule(data) or has_buffer(data)
    )


def _numbers(data: Any) -> np.ndarray:
    """Nested lists of numbers (and whatever else numpy turns into an array) as a numpy array."""
    if type(data) in (list, tuple) and any(type(x) is NDArray for x in data):
        # They are stacked through numpy; bfloat16 ones by value.
        data = [x._values() if type(x) is NDArray else x for x in data]
    try:
        values = np.asarray(data)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise VMValueError(
            f"array: cannot make an array of {type(data).__name__}: {error}"
        ) from None
    if not holds_text(values.dtype) and element_type(values.dtype) is None:
        raise VMTypeError(f"array: wanted numbers, got elements of {describe_dtype(values.dtype)}")
    return values


def _as_values(data: object, wanted: DataType) -> np.ndarray:
    """`data` as storage of `wanted`, converted as `array` documents; may be a view of `data`."""
    if wanted.is_byte and type(data) is np.ndarray and data.dtype in (np.uint8, np.dtype("V1")):
        return data.view(to_numpy_dtype(wanted))
    if _is_array(data):
        source = as_ndarray(data)
        if source.dtype is wanted or (
            wanted.kind == "bfloat" and source.dtype == "uint16" and type(data) is not NDArray
        ):
            return source.array
        return _converted(source._values(), wanted)
    values = _numbers(data)
    if wanted.is_int and values.size and values.dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        if low < wanted.min_value or high > wanted.max_value:
            raise VMValueError(f"array: values {low} to {high} do not fit {wanted}")
    with np.errstate(over="ignore"):
        converted = _converted(as_ndarray(values)._values(), wanted)
    if wanted.kind == "float" and values.dtype.kind in "fiu":
        lost = np.isinf(converted) & np.isfinite(values)
        if lost.any():
            raise VMValueError(
                f"array: {values[lost][0]} does not fit {wanted}, "
                f"whose greatest is {wanted.max_value}"
            )
    return converted


def _converted(values: np.ndarray, wanted: DataType) -> np.ndarray:
    if wanted.kind == "bfloat":
        values = values.astype(np.float32)
    if wanted.is_string:
        return values if values.dtype == object else numbers_to_strings(values)
    if values.dtype == object:
        values = strings_to_numbers(values, wanted)
    if wanted.is_bits:
        return values_to_bits(values, wanted).reshape(values.shape)
    return values.astype(to_numpy_dtype(wanted), copy=False)


def as_ndarray(x: object) -> NDArray:
    """`x` as an NDArray over the same memory; text is copied.

    x  NDArray, numpy array (subclasses as their base view) or scalar, DLPack producer, or buffer
       (bytes, memoryview, array.array ...). Byte-swapped and misaligned arrays, which native code
       cannot read, are copied.

    Raises VMTypeError for anything else (Python numbers and lists included), for masked arrays, and
    for elements that are not numbers.
    """
    if type(x) is NDArray:
        return x
    if type(x) is np.ndarray:
        # The common case again, without a detour; numpy's own dtype objects are single.
        plain = PLAIN_DTYPES.get(x.dtype)
        if plain is not None and plain[1] is x.dtype and x.flags.aligned:
            return wrap_unchecked(x.view(), plain[0])
    memory, dtype = memory_of(x)
    if not memory.dtype.isnative:
        native = memory.dtype.newbyteorder("=")
        return wrap_unchecked(aligned_copy(memory, native), dtype)
    return wrap_unchecked(memory if memory.flags.aligned else aligned_copy(memory), dtype)


def memory_of(x: object) -> tuple[np.ndarray, DataType]:
    """The memory of `x`, even if byte-swapped or misaligned, and its element type.

    Always a fresh view: whoever holds the original may change its shape or dtype in place.
    """
    if type(x) is np.ndarray:
        return _numbers_in(x)
    if isinstance(x, NDArray):
        return x.array.view(), x.dtype
    # Nobody has one who did not load it, which takes as long as reading a model of some layers.
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(x, masked.MaskedArray):
        raise VMTypeError(
            "wanted an array, got a masked array, whose mask would be lost; use x.filled(value)"
        )
    if isinstance(x, np.ndarray):
        return _numbers_in(x.view(np.ndarray))
    if isinstance(x, np.generic):
        return _numbers_in(np.asarray(x))
    if hasattr(type(x), "__dlpack__") or is_capsule(x):
        return view_of_dlpack(x)
    if has_buffer(x):
        return _numbers_in(view_of_buffer(x))
    raise VMTypeError(
        f"wanted an array (NDArray, numpy, DLPack or buffer), got {type(x).__name__}; make one "
        "with relaxvm.nd.array"
    )


def _numbers_in(array: np.ndarray) -> tuple[np.ndarray, DataType]:
    known = element_type(array.dtype)
    if known is None and holds_text(array.dtype):
        return strings_of(array), STRING
    if known is None:
        raise VMTypeError(
            f"wanted an array of numbers, got elements of {describe_dtype(array.dtype)}"
        )
    dtype, canonical = known
    if array.dtype.isnative:
        return array.view(canonical), dtype
    return array.view(canonical.newbyteorder()), dtype


def from_numpy(x: np.ndarray) -> NDArray:
    """An NDArray over the memory of `x`.

    Never copies: raises VMValueError where `as_ndarray` would have to.
    """
    view = as_ndarray(x)
    if isinstance(x, np.ndarray) and not np.may_share_memory(view.array, x) and x.size:
        raise VMValueError(
            f"wanted a native, aligned array, got dtype {x.dtype.str} aligned={x.flags.aligned}; "
            "copy it with array(x)"
        )
    return view


def from_dlpack(x: object) -> NDArray:
    """An NDArray over the memory of a DLPack producer or capsule, without a copy."""
    if isinstance(x, np.ndarray):
        return from_numpy(x)
    if isinstance(x, NDArray):
        return wrap_unchecked(x.array.view(), x.dtype, x.device)
    if not hasattr(x, "__dlpack__") and not is_capsule(x):
        raise VMTypeError(f"from_dlpack: wanted an object with __dlpack__, got {type(x).__name__}")
    storage, dtype = view_of_dlpack(x)
    if not storage.flags.aligned:
        raise VMValueError(
            f"from_dlpack: the {dtype} elements are misaligned; copy them with array(x)"
        )
    return wrap_unchecked(storage, dtype)


__getattr__ = submodules(__name__)
