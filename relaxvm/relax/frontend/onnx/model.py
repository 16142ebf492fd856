"""Reading an ONNX model: the file, the tensors in it and beside it, and checks of both.

Nothing outside of the model's folder is opened, and no link is followed: a model is a stranger's
file. Tensors beside the model are mapped into memory, not read.
"""

from __future__ import annotations

import os
import pathlib
import stat
from typing import Any

import numpy as np

from ....base import DataType, DTypeError, FrontendError
from ....runtime import NDArray, array, as_ndarray
from ...op.meaning import to_storage


def library() -> Any:
    """The module `onnx`. Raises FrontendError where it is not installed."""
    try:
        import onnx
        import onnx.defs
        import onnx.numpy_helper
    except ImportError as error:
        raise FrontendError(
            "reading ONNX models needs the package onnx; pip install relaxvm[onnx]"
        ) from error
    return onnx


class Model:
    """A model and the folder that its external tensors are in.

    proto   the ModelProto
    folder  None for a model that came as bytes or as a message: it can name no files
    """

    def __init__(self, source: Any, folder: Any = None) -> None:
        onnx = library()
        if isinstance(source, (str, os.PathLike)):
            path = pathlib.Path(source)
            try:
                data = path.read_bytes()
            except OSError as error:
                raise FrontendError(f"{path}: cannot be read: {error.strerror}") from error
            folder, shown = path.parent if folder is None else folder, str(path)
        elif isinstance(source, (bytes, bytearray, memoryview)):
            data, shown = bytes(source), "the model's bytes"
        elif isinstance(source, onnx.ModelProto):
            data, shown = None, "the model"
        else:
            raise FrontendError(
                f"wanted a path, bytes or a ModelProto, got {type(source).__name__}"
            )
        self.proto = source if data is None else _parsed(onnx, data, shown)
        self.folder = None if folder is None else pathlib.Path(folder)
        if not self.proto.HasField("graph"):
            raise FrontendError(f"{shown}: wanted an ONNX model, got one without a graph")

    def opsets(self) -> dict[str, int]:
        """Domain -> version; the domain of standard operators is the empty string."""
        return imported_opsets(self.proto)

    def tensor(self, proto: Any) -> NDArray:
        """The values of a TensorProto. Raises FrontendError that names it if they are damaged."""
        name = proto.name or "a tensor without a name"
        dtype = element_dtype(proto.data_type, name)
        shape = tuple(proto.dims)
        if any(d < 0 for d in shape):
            raise FrontendError(f"tensor {name}: a dimension is negative: {list(shape)}")
        if proto.data_location == library().TensorProto.EXTERNAL:
            return self._external(proto, name, dtype, shape)
        try:
            values = library().numpy_helper.to_array(proto)
        except Exception as error:  # numpy_helper raises whatever the damage leads to
            raise FrontendError(
                f"tensor {name}: wanted {dtype} of shape {list(shape)}: {error}"
            ) from error
        return stored(values, dtype)

    def _external(self, proto: Any, name: str, dtype: DataType, shape: tuple[int, ...]) -> NDArray:
        entries = {e.key: e.value for e in proto.external_data}
        path = self._inside(entries.get("location", ""), name)
        count = int(np.prod(shape, dtype=object))
        if dtype.is_string:
            raise FrontendError(f"tensor {name}: strings stand in the model, not beside it")
        # Elements of less than a byte are packed, but for bool.
        wanted = count if dtype.is_bool else -(-count * dtype.bits // 8)
        try:
            offset = int(entries.get("offset", 0))
            length = int(entries.get("length", wanted))
        except ValueError as error:
            raise FrontendError(f"tensor {name}: offset and length are numbers: {error}") from error
        size = path.stat().st_size
        if length != wanted or offset < 0 or offset + length > size:
            raise FrontendError(
                f"tensor {name}: wanted {wanted} bytes for {dtype} of shape {list(shape)}, got "
                f"{length} from {offset} of {path.name}, which has {size}"
            )
        if not count:
            return array(np.empty(shape, storage_dtype(dtype)), dtype=dtype)
        data = np.memmap(path, np.uint8, "r", offset, (wanted,))
        if dtype.bits in (2, 4):
            return array(_unpacked(data, dtype.bits)[:count].reshape(shape), dtype=dtype)
        values = np.ndarray(shape, storage_dtype(dtype).newbyteorder("<"), data)
        return array(values, dtype=dtype) if dtype.is_bits else as_ndarray(values)

    def _inside(self, location: str, name: str) -> pathlib.Path:
        """The file that `location` names, if it lies in the model's folder and is no link."""
        refused = f"tensor {name}: its file {location!r} is refused: "
        if self.folder is None:
            raise FrontendError(refused + "the model did not come from a path; load it by its path")
        parts = pathlib.PurePosixPath(location).parts
        if not parts or location.startswith("/") or ".." in parts or "\\" in location:
            raise FrontendError(refused + "wanted a path below the model's folder")
        path = self.folder
        for part in parts:
            path = path / part
            try:
                status = path.lstat()
            except (OSError, ValueError) as error:
                raise FrontendError(f"{refused}it cannot be read: {error}") from error
            if stat.S_ISLNK(status.st_mode):
                raise FrontendError(refused + f"{path.name} is a symbolic link")
        if not stat.S_ISREG(status.st_mode):
            raise FrontendError(refused + "it is no file")
        if status.st_nlink > 1:
            raise FrontendError(refused + "it is a hard link: another name leads to it as well")
        return path


def _unpacked(data: np.ndarray, bits: int) -> np.ndarray:
    """The elements of `bits` bits in bytes, the lowest bits first, in a byte each."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    mask = np.uint8((1 << bits) - 1)
    return np.asarray(data[:, None] >> shifts & mask).reshape(-1)


def _parsed(onnx: Any, data: bytes, shown: str) -> Any:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception as error:  # the class depends on which protobuf is installed
        raise FrontendError(f"{shown}: wanted an ONNX model, got damaged data: {error}") from error
    return proto


def imported_opsets(proto: Any) -> dict[str, int]:
    """Domain -> version that a model or a function imports."""
    return {canonical_domain(o.domain): o.version for o in proto.opset_import}


def canonical_domain(domain: str) -> str:
    """`domain`; the standard one, which has two spellings, as an empty string."""
    return "" if domain == "ai.onnx" else domain


def element_dtype(elem_type: int, what: str) -> DataType:
    """The dtype that ONNX's number `elem_type` stands for."""
    onnx = library()
    try:
        text = onnx.helper.tensor_dtype_to_np_dtype(elem_type).name
    except (KeyError, TypeError) as error:
        raise FrontendError(f"{what}: {elem_type} is no element type of ONNX") from error
    if elem_type == onnx.TensorProto.STRING:
        return DataType("string")
    try:
        return DataType(text)
    except DTypeError as error:
        raise FrontendError(f"{what}: elements of {text} are not supported") from error


def storage_dtype(dtype: DataType) -> np.dtype:
    """The numpy dtype that holds elements of `dtype`."""
    return to_storage(np.zeros((), "float32"), dtype).dtype


def stored(values: np.ndarray, dtype: DataType) -> NDArray:
    """A runtime array of `dtype` with the values that ONNX's reader gave."""
    if dtype.is_string:
        return array(values)
    if dtype.is_bits:
        return array(np.ascontiguousarray(values).view(storage_dtype(dtype)), dtype=dtype)
    return as_ndarray(
        np.ascontiguousarray(values.astype(str(dtype), copy=False)).reshape(values.shape)
    )
