"""The values a program may hold as constants, and how a file stores them.

tensor NDArray (strings: one of text) · shape ShapeTuple · text str · dtype DataType · int · float ·
bool · info (struct info as data) · dim (a postfix program of `dims`, wrapped in `DimProgram`).
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base import DataType, LoadError, VerifyError, VMTypeError, VMValueError, digest_of, record
from .device import cpu
from .dims import Dim, check, dim_from_plain, dim_to_plain, format_dim
from .limits import MAX_NDIM
from .ndarray import NDArray, ShapeTuple, as_ndarray, numpy_storage_dtype, wrap_unchecked
from .plain import Codec, codec_of, dtype_from_plain
from .sinfo import INFO_TYPES, info_from_plain, info_to_plain

ALIGNMENT = 64
"""Bytes to which tensor data is aligned within the file."""
_INT64 = range(-(1 << 63), 1 << 63)
_MAX_SHAPE = 1 << 16
_HASHED_BYTES = 1 << 20


@record
class DimProgram:
    """A dimension to be computed while the program runs; its symbols are slots of the shape heap:
    ``$0``.
    """

    dim: Dim

    def __post_init__(self) -> None:
        check(self.dim)

    def __str__(self) -> str:
        if isinstance(self.dim, int):
            return str(self.dim)
        return format_dim(tuple(f"${d}" if type(d) is str and d[0] == "$" else d for d in self.dim))


def as_constant(value: Any) -> Any:
    """`value` as one of the kinds above: numpy arrays become NDArrays, tuples of ints shapes.

    Raises VMTypeError for what a program cannot hold.
    """
    kind = type(value)
    if kind in (NDArray, ShapeTuple, DataType, str, bool, DimProgram) or kind in INFO_TYPES:
        constant: Any = value
    elif kind is float or isinstance(value, np.floating):
        constant = float(value)
    elif isinstance(value, np.bool_):
        constant = bool(value)
    elif isinstance(value, (int, np.integer)):
        constant = int(value)
    elif isinstance(value, (tuple, list)):
        constant = ShapeTuple(value)
    elif isinstance(value, str):
        constant = str(value)
    else:
        constant = as_ndarray(value)
    if type(constant) is int and constant not in _INT64:
        raise VMValueError(f"constant: {constant} does not fit 64 bits")
    if type(constant) is ShapeTuple:
        if len(constant) > _MAX_SHAPE or not all(extent in _INT64 for extent in constant):
            raise VMValueError("constant: a shape has too many or too large sizes")
    if type(constant) is NDArray and constant.ndim > MAX_NDIM:
        raise VMValueError(
            f"constant: wanted an array of at most {MAX_NDIM} axes, got {constant.ndim}"
        )
    return constant


def constant_key(value: Any) -> object:
    """Equal for constants that may share one entry."""
    kind = type(value)
    if kind is float:
        return (kind, struct.pack("<d", value))
    if kind is not NDArray:
        return (kind, value)
    if value.nbytes > _HASHED_BYTES:
        return (kind, id(value))
    if value.dtype.is_string:
        return (kind, value.shape, *value.array.reshape(-1))
    content = np.ascontiguousarray(value.array).tobytes()
    return (kind, value.dtype, value.shape, digest_of(content, 16))


_KINDS: dict[type, str] = {
    NDArray: "tensor",
    ShapeTuple: "shape",
    str: "text",
    DataType: "dtype",
    int: "int",
    float: "float",
    bool: "bool",
    DimProgram: "dim",
    **{kind: "info" for kind in INFO_TYPES},
}


def constant_kind(value: Any) -> str:
    """The name of the kind of constant `value` is."""
    return _KINDS[type(value)]


def describe(value: Any, limit: int = 60) -> str:
    """`value` in a listing."""
    kind = type(value)
    if kind is NDArray:
        return f"tensor({value.dtype}, {tuple(value.shape)})"
    if kind is ShapeTuple:
        return f"shape({', '.join(map(str, value))})"
    text = repr(str.__str__(value)) if kind is str else str(value)
    if kind is DimProgram:
        text = f"dim({text})"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def constant_to_plain(value: Any) -> list[Any]:
    """`value` as msgpack stores it; for a tensor without its data, which the writer aligns and
    appends.
    """
    kind = _KINDS[type(value)]
    if is_strings(value):
        return ["strings", list(value.shape), value.array.reshape(-1).tolist()]
    if kind == "tensor":
        return [kind, str.__str__(value.dtype), list(value.shape)]
    return [kind, _CODECS[kind].write(value)]


def is_strings(value: Any) -> bool:
    """Whether a constant is a tensor of text, which a file holds beside its shape."""
    return type(value) is NDArray and value.dtype.is_string


def tensor_data(value: NDArray) -> np.ndarray:
    """The bytes of a tensor as the file stores them: C order, little-endian."""
    flat = np.ascontiguousarray(value.array).reshape(-1)
    stored: np.ndarray = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
    return stored.view(np.uint8)


def constant_from_plain(plain: object, view: Callable[[Any], np.ndarray]) -> Any:
    """The inverse. `view` turns the decoded data of a tensor into a numpy array of its bytes.

    Raises LoadError.
    """
    if type(plain) is not list or len(plain) < 2 or type(plain[0]) is not str:
        raise LoadError("constant: wanted a list that begins with its kind")
    kind, data = plain[0], plain[1]
    if kind == "tensor":
        return _tensor_from_plain(plain, view)
    if kind == "strings":
        return _strings_from_plain(plain)
    if len(plain) != 2:
        raise LoadError(f"constant: wanted 2 fields, got {len(plain)}")
    codec = _CODECS.get(kind)
    if codec is None:
        raise LoadError(f"constant: {kind[:40]!r} holding a {type(data).__name__} is not known")
    try:
        return as_constant(codec.read(data))
    except (LoadError, VerifyError, VMTypeError, VMValueError) as error:
        raise LoadError(f"constant: {kind}: {error}") from None


_CODECS = {
    "shape": Codec(list, lambda plain: ShapeTuple(codec_of(tuple[int, ...]).read(plain))),
    "info": Codec(info_to_plain, info_from_plain),
    "dim": Codec(lambda value: dim_to_plain(value.dim), lambda p: DimProgram(dim_from_plain(p))),
    "dtype": codec_of(DataType),
    "text": Codec(str.__str__, codec_of(str).read),
    "int": codec_of(int),
    "float": codec_of(float),
    "bool": codec_of(bool),
}


def _tensor_from_plain(plain: list[Any], view: Callable[[Any], np.ndarray]) -> NDArray:
    if len(plain) != 4:
        raise LoadError("constant: a tensor has dtype, shape and data")
    dtype, shape = dtype_from_plain(plain[1]), plain[2]
    if type(shape) is not list or len(shape) > MAX_NDIM:
        raise LoadError(f"constant: a tensor's shape is a list of at most {MAX_NDIM} ints")
    numel = 1
    for extent in shape:
        if type(extent) is not int or not 0 <= extent < 1 << 48:
            raise LoadError("constant: a tensor's sizes are ints of at least 0")
        numel *= max(extent, 1)
    if 0 in shape:
        # numpy multiplies the other sizes even where one is 0.
        if numel >= 1 << 48:
            raise LoadError("constant: a tensor's sizes are too large")
        numel = 0
    try:
        storage = numpy_storage_dtype(dtype)
    except VMTypeError as error:
        raise LoadError(f"constant: {error}") from None
    data = view(plain[3])
    padding = data.nbytes - numel * storage.itemsize
    if not 0 <= padding < ALIGNMENT:
        raise LoadError(
            f"constant: {dtype} tensor of shape {tuple(shape)} wants "
            f"{numel * storage.itemsize} bytes, got {data.nbytes}"
        )
    if data[:padding].any():
        raise LoadError("constant: the bytes before a tensor's data are not zero")
    payload = data[padding:]
    if dtype.kind == "bool" and payload.size and int(payload.max()) > 1:
        raise LoadError("constant: a bool tensor holds bytes other than 0 and 1")
    array = payload.view(storage.newbyteorder("<")).reshape(tuple(shape))
    if array.dtype != storage or not array.flags.aligned:
        writable = array.flags.writeable
        array = array.astype(storage)
        array.flags.writeable = writable
    elif array.dtype is not storage:
        array = array.view(storage)
    return wrap_unchecked(array, dtype, cpu())


def _strings_from_plain(plain: list[Any]) -> NDArray:
    shape: Any
    texts: Any
    shape, texts = plain[1:] if len(plain) == 3 else (None, None)
    if not (_is_list_of(int, shape) and _is_list_of(str, texts) and len(shape) <= MAX_NDIM):
        raise LoadError("constant: a tensor of strings has a shape and a list of text")
    if min(shape, default=0) < 0 or math.prod(shape) != len(texts):
        raise LoadError(f"constant: {len(texts)} strings are no tensor of shape {tuple(shape)}")
    return wrap_unchecked(np.array(texts, object).reshape(shape), DataType("string"), cpu())


def _is_list_of(kind: type, plain: Any) -> bool:
    return type(plain) is list and all(type(each) is kind for each in plain)


def integer(value: Any, what: str) -> int:
    """`value`, of any type for ints, as an int. Raises VMTypeError, for a bool too."""
    try:
        if type(value) is not bool:
            return operator.index(value)
    except TypeError:
        pass
    raise VMTypeError(f"{what}: wanted an int, got {type(value).__name__}")
