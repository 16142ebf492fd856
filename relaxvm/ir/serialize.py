"""Any IR to JSON or msgpack and back, structurally equal, sharing kept.

    document ::= {"relaxvm_ir": 1, "nodes": [[type key, field values...], ...], "root": value}
    value    ::= null | bool | int | str
               | ["f", hex] float | ["t", name] dtype | ["n", i] node i | ["l", values...] tuple
               | ["m", [key, value]...] Map | ["o", name] Op | ["b", base64] bytes | ["s", ...] span
               | ["x", tag, payload] other data (`leaf.py`) | ["M", functions, attrs, global infos]
               module

A node refers only to nodes before it. The reader is strict: unknown classes, wrong field counts,
wrong kinds and references forward are `LoadError`s; constructors check the rest.

`pickle` goes the same way, so that processes can send each other IR: what one pickle holds as
separate nodes arrives as separate nodes.
"""

from __future__ import annotations

import base64
import importlib
import json
from collections.abc import Callable
from typing import Any, ClassVar

import msgpack

from ..base import UNKNOWN, DataType, LoadError, RelaxvmError, Span
from ..base import dtype as as_dtype
from .leaf import leaf_by_tag, leaf_codec
from .module import GlobalVar, IRModule
from .node import Map, Node, node_types
from .op import Op
from .walk import post_order

_VERSION = 1
_MAX_DEPTH = 24
_PLAIN = {
    "int": int,
    "str": str,
    "bool": bool,
    "float": float,
    "bytes": bytes,
    "DataType": DataType,
}


_AS_THEY_ARE = {type(None), bool, str, int}


class _Writer:
    def __init__(self, spans: bool, binary: bool) -> None:
        self.spans = spans
        self.binary = binary
        self.index: dict[int, int] = {}
        self.nodes: list[list[Any]] = []

    def add(self, root: Node) -> int:
        """Write `root` and what it needs; returns its number."""
        for n in post_order(root):
            if id(n) in self.index or isinstance(n, Op):
                continue
            self.index[id(n)] = len(self.nodes)
            written: list[Any] = [n._type_key]
            for value in type(n)._values_(n):
                # What most of them are: `value` would find the same.
                index = self.index.get(id(value))
                if index is not None:
                    written.append(["n", index])
                else:
                    plain = type(value) in _AS_THEY_ARE
                    written.append(value if plain else self.value(value))
            self.nodes.append(written)
        return self.index[id(root)]

    def value(self, value: Any) -> Any:
        # Most are nodes that were written, and few are looked at further than to here.
        index = self.index.get(id(value))
        if index is not None:
            return ["n", index]
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        if kind is Span and not self.spans:
            return ["s"]
        if isinstance(value, tuple):
            written: list[Any] = ["l"]
            for item in value:
                index = self.index.get(id(item))
                written.append(["n", index] if index is not None else self.value(item))
            return written
        if isinstance(value, DataType):
            return ["t", str.__str__(value)]
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return ["f", value.hex()]
        if isinstance(value, Op):
            return ["o", value.name]
        if isinstance(value, Node):
            return ["n", self.add(value)]
        if isinstance(value, Map):
            return ["m", *[[self.value(k), self.value(v)] for k, v in value.items()]]
        if isinstance(value, bytes):
            return ["b", value if self.binary else base64.b64encode(value).decode()]
        if isinstance(value, Span):
            if not (value.source or value.name or value.parts):
                return ["s"]
            if value.parts:
                return ["s", *(self.value(part) for part in value.parts)]
            return [
                "s",
                value.source,
                value.line,
                value.column,
                value.end_line,
                value.end_column,
                value.name,
            ]
        if isinstance(value, IRModule):
            functions = [[self.value(gv), self.value(f)] for gv, f in value.items()]
            return ["M", functions, self.value(value.attrs), self.value(value.global_infos)]
        codec = leaf_codec(type(value))
        if codec is not None:
            return ["x", codec.tag, self.value(_plain(codec.to_plain(value)))]
        raise RelaxvmError(f"cannot save a {type(value).__name__} inside the IR: {value!r}")


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_plain(v) for v in value)
    return value


def _document(value: Any, spans: bool, binary: bool) -> dict[str, Any]:
    writer = _Writer(spans, binary)
    root = writer.value(value)
    return {"relaxvm_ir": _VERSION, "nodes": writer.nodes, "root": root}


def save_json(value: Any, *, spans: bool = True) -> str:
    """`value` (a module, function or any node) as JSON text. Without `spans` no source position is
    kept.
    """
    return json.dumps(_document(value, spans, binary=False), separators=(",", ":"))


def save_msgpack(value: Any, *, spans: bool = True) -> bytes:
    """`value` (a module, function or any node) as msgpack bytes."""
    packed: bytes = msgpack.packb(_document(value, spans, binary=True), use_bin_type=True)
    return packed


def _reduce(value: Any, protocol: int) -> tuple[Any, ...]:
    return (load_msgpack, (save_msgpack(value),))


# Set from here: a node knows nothing of files.
Node.__reduce_ex__ = IRModule.__reduce_ex__ = _reduce  # type: ignore[assignment, method-assign]


def load_json(text: str) -> Any:
    """What `save_json` saved. Raises LoadError for anything else."""
    if not isinstance(text, (str, bytes)):
        raise LoadError(f"wanted JSON text, got {type(text).__name__}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LoadError(f"not JSON: {error}") from None
    return _load(document)


def load_msgpack(data: bytes) -> Any:
    """What `save_msgpack` saved. Raises LoadError for anything else."""
    try:
        document = msgpack.unpackb(data, raw=False, strict_map_key=True, use_list=True)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise LoadError(f"not the msgpack of an IR: {error}") from None
    return _load(document)


def _load(document: Any) -> Any:
    if not isinstance(document, dict) or set(document) != {"relaxvm_ir", "nodes", "root"}:
        raise LoadError("not a saved IR: wanted a map of relaxvm_ir, nodes and root")
    version = document["relaxvm_ir"]
    if type(version) is not int or version != _VERSION:
        raise LoadError(f"saved IR of version {version!r}; this relaxvm reads version {_VERSION}")
    rows = document["nodes"]
    if not isinstance(rows, list):
        raise LoadError("saved IR: nodes is not a list")
    reader = _Reader()
    for number, row in enumerate(rows):
        try:
            reader.nodes.append(reader.node(row))
        except LoadError as error:
            raise LoadError(f"saved IR, node {number}: {error}") from error.__cause__
    return reader.value(document["root"], 0)


# The rooms whose classes saved IR may name; loaded when a file first needs them.
_ROOMS = frozenset({"tir", "te", "relax", "target"})


def _load_room(name: str) -> bool:
    room = name.partition(".")[0]
    if room not in _ROOMS:
        return False
    importlib.import_module(f"relaxvm.{room}")
    return True


class _Reader:
    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def node(self, row: Any) -> Node:
        if not isinstance(row, list) or not row or not isinstance(row[0], str):
            raise LoadError("wanted [class, field values...]")
        cls = node_types().get(row[0])
        if cls is None and _load_room(row[0]):
            cls = node_types().get(row[0])
        if cls is None:
            raise LoadError(f"unknown class {row[0]!r}")
        # What was saved before a class got its last fields means their defaults.
        if len(row) > len(cls._fields) + 1 or any(
            field not in cls._defaults for field in cls._fields[len(row) - 1 :]
        ):
            raise LoadError(f"{row[0]} has {len(cls._fields)} fields, got {len(row) - 1}")
        values = [self.value(item, 0) for item in row[1:]]
        for name, kind, words, value in zip(cls._fields, cls._kinds, cls._words, values):
            if not _fits(kind, words, value):
                raise LoadError(
                    f"{row[0]}.{name}: wanted {' | '.join(sorted(words))}, got "
                    f"{type(value).__name__}"
                )
        try:
            return cls(**dict(zip(cls._fields, values)))
        except RecursionError:
            raise LoadError(f"{row[0]}: nested too deeply") from None
        except Exception as error:
            # The fields come from a file: whatever a constructor finds wrong with them is a fault
            # of the file.
            raise LoadError(f"{row[0]}: {error}") from error

    def value(self, item: Any, depth: int) -> Any:
        if item is None or type(item) in (bool, str, int):
            return item
        if depth > _MAX_DEPTH:
            raise LoadError("values nested too deeply")
        if not isinstance(item, list) or not item or not isinstance(item[0], str):
            raise LoadError(f"unknown value {str(item)[:60]!r}")
        read = self.READ.get(item[0])
        if read is None:
            raise LoadError(f"unknown kind of value {item[0]!r}")
        return read(self, item, depth + 1)

    def text(self, item: list[Any]) -> str:
        if len(item) != 2 or not isinstance(item[1], str):
            raise LoadError(f"{item[0]!r} wants one string")
        return item[1]

    def read_float(self, item: list[Any], depth: int) -> float:
        try:
            return float.fromhex(self.text(item))
        except (ValueError, OverflowError) as error:
            raise LoadError(f"not a float: {error}") from None

    def read_dtype(self, item: list[Any], depth: int) -> DataType:
        try:
            return as_dtype(self.text(item))
        except (ValueError, TypeError) as error:
            raise LoadError(str(error)) from None

    def read_reference(self, item: list[Any], depth: int) -> Node:
        if len(item) != 2 or type(item[1]) is not int or not 0 <= item[1] < len(self.nodes):
            raise LoadError(f"reference {item[1:]} to a node that is not there yet")
        return self.nodes[item[1]]

    def read_tuple(self, item: list[Any], depth: int) -> tuple[Any, ...]:
        return tuple(self.value(each, depth) for each in item[1:])

    def read_map(self, item: list[Any], depth: int) -> Map:
        items = {}
        for pair in item[1:]:
            if not isinstance(pair, list) or len(pair) != 2:
                raise LoadError("a map holds pairs")
            key = self.value(pair[0], depth)
            if not isinstance(key, (str, Node)) or key in items:
                raise LoadError(f"bad or repeated key {key!r}")
            items[key] = self.value(pair[1], depth)
        return Map(items)

    def read_operation(self, item: list[Any], depth: int) -> Op:
        name = self.text(item)
        _load_room(name)
        try:
            return Op.get(name)
        except RelaxvmError as error:
            raise LoadError(str(error)) from None

    def read_bytes(self, item: list[Any], depth: int) -> bytes:
        if len(item) == 2 and isinstance(item[1], bytes):
            return item[1]
        try:
            return base64.b64decode(self.text(item), validate=True)
        except ValueError as error:
            raise LoadError(f"not base64: {error}") from None

    def read_span(self, item: list[Any], depth: int) -> Span:
        fields = item[1:]
        if not fields:
            return UNKNOWN
        if isinstance(fields[0], list):
            parts = tuple(self.value(each, depth) for each in fields)
            if not all(isinstance(part, Span) for part in parts):
                raise LoadError("the parts of a span are spans")
            return Span(parts=parts)
        shapes = [str, int, int, int, int, str]
        if len(fields) != 6 or any(type(f) is not s for f, s in zip(fields, shapes)):
            raise LoadError("a span is source, line, column, end line, end column, name")
        return Span(*fields)

    def read_leaf(self, item: list[Any], depth: int) -> Any:
        if len(item) != 3 or not isinstance(item[1], str):
            raise LoadError("'x' wants a tag and a payload")
        codec = leaf_by_tag(item[1])
        if codec is None:
            raise LoadError(f"unknown kind of data {item[1]!r}")
        payload = self.value(item[2], depth)
        try:
            return codec.from_plain(payload)
        except Exception as error:
            # As for constructors: the payload comes from a file.
            raise LoadError(f"bad {item[1]}: {error}") from error

    def read_module(self, item: list[Any], depth: int) -> IRModule:
        if len(item) != 4 or not isinstance(item[1], list):
            raise LoadError("a module is functions, attributes and global infos")
        module = IRModule()
        for pair in item[1]:
            if not isinstance(pair, list) or len(pair) != 2:
                raise LoadError("a module holds pairs of name and function")
            gv, function = self.value(pair[0], depth), self.value(pair[1], depth)
            if not isinstance(gv, GlobalVar) or gv in module:
                raise LoadError(f"bad or repeated function name {gv!r}")
            try:
                module[gv] = function
            except RelaxvmError as error:
                raise LoadError(str(error)) from None
        attrs, infos = self.value(item[2], depth), self.value(item[3], depth)
        if not isinstance(attrs, Map) or not isinstance(infos, Map):
            raise LoadError("module attributes are maps")
        module.attrs, module.global_infos = attrs, infos
        return module

    # By the letter that a value in a list begins with.
    READ: ClassVar[dict[str, Callable[[Any, list[Any], int], Any]]] = {
        "f": read_float,
        "t": read_dtype,
        "n": read_reference,
        "l": read_tuple,
        "m": read_map,
        "o": read_operation,
        "b": read_bytes,
        "s": read_span,
        "x": read_leaf,
        "M": read_module,
    }


def _fits(kind: str, words: frozenset[str], value: Any) -> bool:
    if value is None:
        return "None" in words or "Any" in words or kind == "value"
    if kind == "leaf":
        if type(value) is tuple:
            inner = words - {"tuple", "None"}
            return "tuple" in words and all(_fits("leaf", inner, item) for item in value)
        if isinstance(value, Span):
            return "Span" in words
        return any(type(value) is _PLAIN[word] for word in words if word in _PLAIN)
    if kind == "node":
        return _is_one_of(words, value)
    if kind == "tuple":
        inner = words - {"tuple", "None"}
        return type(value) is tuple and all(_is_one_of(inner, item) for item in value)
    if "Map" in words:
        return isinstance(value, Map)
    return True


def _is_one_of(names: frozenset[str], value: Any) -> bool:
    # A function's name stands where graph expressions stand.
    return any(base.__name__ in names for base in type(value).__mro__) or (
        isinstance(value, GlobalVar) and "Expr" in names
    )
