"""Reading an ONNX model: the file, the tensors in it and beside it, and checks of both.

Nothing outside of the model's folder is opened, and no link is followed: a model is a stranger's
file. Tensors beside the model are mapped into memory, not read.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ....base import DataType, DTypeError, FrontendError
from ....runtime import NDArray, OnnxFile, array, as_ndarray, identity_of, without_weights
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

    proto   the ModelProto; what came as a file or bytes lacks the contents of its larger
            initializers: `initializers` has them, and `complete` gives a message that does
    folder  None for a model that came as bytes or as a message: it can name no files
    mapped  files beside it that tensors are mapped from: path, what the file is recognised by, and
            its bytes
    """

    def __init__(self, source: Any, folder: Any = None) -> None:
        onnx = library()
        self._mapped: dict[str, tuple[str, object, np.ndarray]] = {}
        # The contents of larger initializers by number, as soon as they are there.
        self._weights: Callable[[], dict[int, np.ndarray]] = dict
        if isinstance(source, (str, os.PathLike, OnnxFile)):
            shown = str(source.path if isinstance(source, OnnxFile) else source)
            with _unreadable(shown):
                file = source if isinstance(source, OnnxFile) else OnnxFile(source)
            data, self._weights = file.graph, _unreadable(shown)(file.weights)
            folder = file.path.parent if folder is None else folder
        elif isinstance(source, (bytes, bytearray, memoryview)):
            whole, shown = memoryview(bytes(source)), "the model's bytes"
            data, spans = without_weights(lambda begin, end: bytes(whole[begin:end]), len(whole))
            weights = {
                number: np.frombuffer(whole[begin:end], np.uint8)
                for number, (begin, end) in spans.items()
            }
            self._weights = lambda: weights
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

    @property
    def mapped(self) -> list[tuple[str, object, np.ndarray]]:
        return list(self._mapped.values())

    def opsets(self) -> dict[str, int]:
        """Domain -> version; the domain of standard operators is the empty string."""
        return imported_opsets(self.proto)

    def complete(self) -> Any:
        """The ModelProto with the contents of all initializers."""
        proto = library().ModelProto()
        proto.CopyFrom(self.proto)
        for number, data in self._weights().items():
            proto.graph.initializer[number].raw_data = data.tobytes()
        return proto

    def initializers(self) -> dict[str, NDArray]:
        """The values of the graph's initializers by name. Raises as `tensor` does."""
        graph = self.proto.graph
        names = [*(t.name for t in graph.initializer)]
        names += [t.values.name for t in graph.sparse_initializer]
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise FrontendError(f"initializer {twice[0]}: there are two of this name")
        weights = self._weights()
        dense = [self.tensor(t, weights.get(k)) for k, t in enumerate(graph.initializer)]
        return dict(zip(names, [*dense, *map(self.dense, graph.sparse_initializer)]))

    def tensor(self, proto: Any, data: np.ndarray | None = None) -> NDArray:
        """The values of a TensorProto. Raises FrontendError that names it if they are damaged.

        data  the bytes that are its `raw_data`, if `proto` does not hold them
        """
        name = proto.name or "a tensor without a name"
        dtype = element_dtype(proto.data_type, name)
        shape = tuple(proto.dims)
        if any(d < 0 for d in shape):
            raise FrontendError(f"tensor {name}: a dimension is negative: {list(shape)}")
        if data is not None:
            if not dtype.is_string and _size_bytes(dtype, shape) == data.nbytes:
                return _from_bytes(data, dtype, shape)
            # The reader of messages says what is wrong.
            whole, proto = proto, library().TensorProto()
            proto.CopyFrom(whole)
            proto.raw_data = data.tobytes()
        if proto.data_location == library().TensorProto.EXTERNAL:
            return self._external(proto, name, dtype, shape)
        try:
            values = library().numpy_helper.to_array(proto)
        except Exception as error:  # numpy_helper raises whatever the damage leads to
            raise FrontendError(
                f"tensor {name}: wanted {dtype} of shape {list(shape)}: {error}"
            ) from error
        return stored(values, dtype)

    def dense(self, sparse: Any) -> NDArray:
        """The values of a SparseTensorProto as an array that has the zeros, too. Raises
        FrontendError that names it if they do not fit.
        """
        name, dims = sparse.values.name or "a tensor without a name", list(sparse.dims)
        values, places = (self.tensor(t).numpy() for t in (sparse.values, sparse.indices))
        wanted = [values.size], [values.size, len(dims)]
        try:
            full = np.zeros(tuple(dims), values.dtype)
            if places.dtype != np.int64 or list(places.shape) not in wanted:
                raise ValueError(f"its indices are {places.dtype} of shape {list(places.shape)}")
            sizes = np.array(dims if places.ndim == 2 else [full.size])
            if (
                (places.reshape(values.size, -1) < 0) | (places.reshape(values.size, -1) >= sizes)
            ).any():
                raise ValueError("an index is out of range")
            if places.ndim == 2:
                places = np.ravel_multi_index(tuple(places.T), full.shape)
        except (ValueError, MemoryError) as error:
            raise FrontendError(
                f"sparse tensor {name}: {values.size} values of shape {dims}: {error}"
            ) from error
        full.reshape(-1)[places] = values
        return array(full)

    def _external(self, proto: Any, name: str, dtype: DataType, shape: tuple[int, ...]) -> NDArray:
        entries = {e.key: e.value for e in proto.external_data}
        path = self._inside(entries.get("location", ""), name)
        if dtype.is_string:
            raise FrontendError(f"tensor {name}: strings stand in the model, not beside it")
        wanted = _size_bytes(dtype, shape)
        try:
            offset = int(entries.get("offset", 0))
            length = int(entries.get("length", wanted))
        except ValueError as error:
            raise FrontendError(f"tensor {name}: offset and length are numbers: {error}") from error
        data = self._bytes_of(path)
        size = data.nbytes
        if length != wanted or offset < 0 or offset + length > size:
            raise FrontendError(
                f"tensor {name}: wanted {wanted} bytes for {dtype} of shape {list(shape)}, got "
                f"{length} from {offset} of {path.name}, which has {size}"
            )
        if not wanted:
            return array(np.empty(shape, storage_dtype(dtype)), dtype=dtype)
        return _from_bytes(data[offset : offset + wanted], dtype, shape)

    def _bytes_of(self, path: pathlib.Path) -> np.ndarray:
        """A file beside the model, mapped once."""
        known = self._mapped.get(str(path))
        if known is None:
            with path.open("rb") as stream:
                identity = identity_of(stream)
                data = np.zeros(0, np.uint8)
                if os.fstat(stream.fileno()).st_size:
                    data = np.memmap(stream, np.uint8, "r").view(np.ndarray)
            known = self._mapped[str(path)] = os.path.abspath(path), identity, data
        return known[2]

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


@contextlib.contextmanager
def _unreadable(shown: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FrontendError(f"{shown}: cannot be read: {error.strerror}") from error


def _size_bytes(dtype: DataType, shape: tuple[int, ...]) -> int:
    """Of elements as files hold them: those of less than a byte are packed, but for bool."""
    count = math.prod(shape)
    return count if dtype.is_bool else -(-count * dtype.bits // 8)


def _from_bytes(data: np.ndarray, dtype: DataType, shape: tuple[int, ...]) -> NDArray:
    """The tensor in the bytes of a file, of which there are as many as it has."""
    if dtype.bits in (2, 4):
        elements = _unpacked(data, dtype.bits)[: math.prod(shape)]
        return array(elements.reshape(shape), dtype=dtype)
    values = np.ndarray(shape, storage_dtype(dtype).newbyteorder("<"), data)
    return array(values, dtype=dtype) if dtype.is_bits else as_ndarray(values)


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
    versions: dict[str, int] = {}
    for opset in proto.opset_import:
        domain = canonical_domain(opset.domain)
        if versions.setdefault(domain, opset.version) != opset.version:
            raise FrontendError(
                f"the model imports {domain or 'ai.onnx'} at two versions, {versions[domain]} and "
                f"{opset.version}"
            )
    return want_known(versions)


def want_known(versions: dict[str, int]) -> dict[str, int]:
    """`versions` of domains, if they are such; those of ai.onnx must be known to onnx."""
    newest = library().defs.onnx_opset_version()
    for domain, version in versions.items():
        most = (1 << 31) - 1 if domain else newest
        if not 1 <= version <= most:
            hint = "; a newer onnx may know it" if not domain and version > most else ""
            raise FrontendError(
                f"opset of {domain or 'ai.onnx'}: wanted a version from 1 to {most}, got "
                f"{version}{hint}"
            )
    return versions


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
        return array(
            np.ascontiguousarray(values).reshape(values.shape).view(storage_dtype(dtype)),
            dtype=dtype,
        )
    return as_ndarray(
        np.ascontiguousarray(values.astype(str(dtype), copy=False)).reshape(values.shape)
    )
