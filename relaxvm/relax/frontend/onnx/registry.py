"""What stands for an ONNX operator: one short function each, found by domain, name and version.

    @onnx("Softmax", since=13)
    def softmax(node, x, *, axis):
        return op.nn.softmax(x, axis)

A translation takes the node, its inputs in order (None for one that is left out) and, by keyword,
the attributes that it names; their defaults are those of the schema of the installed `onnx`. It
gives an expression of `relax.op`, nested in any way, or a tuple of them, one for each output.
`since` is the first opset whose definition it covers, and it holds up to the next `since`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ....base import FrontendError, NamedTuple
from ... import op as _operators
from .model import library

# What a model says is checked when it runs, by the operators' records.
op: Any = _operators

Translate = Callable[..., Any]


class Translation(NamedTuple):
    """How an operator is imported, from the opset `since` on.

    needs       names of the inputs that must be there
    attributes  keywords that the function takes
    ignores     attributes of the operator that change no result
    """

    domain: str
    name: str
    since: int
    function: Translate
    needs: tuple[str, ...]
    attributes: frozenset[str]
    ignores: frozenset[str]
    most_inputs: float


# Of opset 1: which inputs may be overwritten.
_HINTS = frozenset({"consumed_inputs"})

# What annotations of a translation's keywords say that an attribute is.
_KINDS = {"int": "INT", "float": "FLOAT", "str": "STRING", "Ints": "INTS", "Floats": "FLOATS"}
Ints = tuple[int, ...] | None
Floats = tuple[float, ...] | None

_ALL: dict[tuple[str, str], list[Translation]] = {}
_ROOM = __name__.partition(".")[0]
_OWN: list[Translation] = []


def own_translations() -> bool:
    """Whether somebody added a translation to ours: imports of other processes differ then."""
    return any(e in _ALL.get((e.domain, e.name), ()) for e in _OWN)


def _note(entry: Translation, function: Callable[..., Any]) -> None:
    if str(getattr(function, "__module__", "")).partition(".")[0] != _ROOM:
        _OWN.append(entry)


def onnx(
    name: str, since: int = 1, domain: str = "", ignores: str = ""
) -> Callable[[Translate], Translate]:
    """Register a translation of the operators `name` (several, with spaces between).

    since    the first opset of `domain` that it is right for
    ignores  attributes that change no result here, with spaces between
    Raises ValueError if there is one for that opset already.
    """

    def register(function: Translate) -> Translate:
        for each in name.split():
            add(each, function, since, domain, ignores)
        return function

    return register


def add(
    name: str, function: Translate, since: int = 1, domain: str = "", ignores: str = ""
) -> Translation:
    """Register `function` as the translation of the operator `name` (see `onnx`)."""
    params = list(inspect.signature(function).parameters.values())[1:]
    inputs = [p for p in params if p.kind is p.POSITIONAL_OR_KEYWORD]
    more = any(p.kind is p.VAR_POSITIONAL for p in params)
    entry = Translation(
        domain,
        name,
        since,
        function,
        tuple(p.name for p in inputs if p.default is p.empty),
        frozenset(p.name for p in params if p.kind is p.KEYWORD_ONLY),
        frozenset(ignores.split()) | _HINTS,
        float("inf") if more else len(inputs),
    )
    _note(entry, function)
    entries = _ALL.setdefault((domain, name), [])
    if any(e.since == since for e in entries):
        raise ValueError(f"ONNX operator {name} has a translation since opset {since} already")
    entries.append(entry)
    entries.sort(key=lambda e: -e.since)
    return entry


def passes_on(inner: Translate, but: str = "") -> Callable[[Translate], Translate]:
    """What ends in `**attributes` and hands them on to `inner` has the attributes of `inner`, too.

    but  those that it has not, with spaces between
    """

    def complete(outer: Translate) -> Translate:
        own = inspect.signature(outer)
        params = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = {*own.parameters, *but.split()}
        params += [
            p
            for p in inspect.signature(inner).parameters.values()
            if p.kind is p.KEYWORD_ONLY and p.name not in named
        ]
        setattr(outer, "__signature__", own.replace(parameters=params))  # noqa: B010
        return outer

    return complete


def direct(table: dict[str, Callable[..., Any]], since: int = 1, domain: str = "") -> None:
    """Register operators that are functions of their inputs alone: {name: function}."""
    for name, function in table.items():
        entry = add(name, lambda node, *inputs, f=function: f(*inputs), since, domain)
        _note(entry, function)


def find(domain: str, name: str, version: int) -> Translation | None:
    """The translation of an operator at an opset's version, or None."""
    return next((e for e in _ALL.get((domain, name), ()) if e.since <= version), None)


def translations() -> list[Translation]:
    """All of them, by domain and name, the newest of each first."""
    return [e for key in sorted(_ALL) for e in _ALL[key]]


def schema_of(domain: str, name: str, version: int) -> Any:
    """The OpSchema of an operator, or None if the installed onnx knows no such operator."""
    onnx_ = library()
    try:
        return onnx_.defs.get_schema(name, version, domain)
    except onnx_.defs.SchemaError:
        return None


def attribute_value(proto: Any, tensor: Callable[[Any], Any]) -> Any:
    """The value of an AttributeProto: numbers, strings, lists of them, arrays, GraphProtos."""
    kinds = library().AttributeProto
    if proto.type == kinds.STRING:
        return _text(proto.s)
    if proto.type == kinds.STRINGS:
        return tuple(_text(s) for s in proto.strings)
    if proto.type == kinds.TENSOR:
        return tensor(proto.t)
    field = {
        kinds.FLOAT: "f",
        kinds.INT: "i",
        kinds.GRAPH: "g",
        kinds.TYPE_PROTO: "tp",
        kinds.FLOATS: "floats",
        kinds.INTS: "ints",
        kinds.GRAPHS: "graphs",
        kinds.SPARSE_TENSOR: "sparse_tensor",
    }.get(proto.type)
    if field is None:
        raise FrontendError(f"attribute {proto.name}: type {proto.type} is not imported")
    value = getattr(proto, field)
    return tuple(value) if field.endswith("s") else value


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FrontendError(f"an attribute is no text: {error}") from error


def attributes_for(
    translation: Translation, schema: Any, attributes: dict[str, Any], tensor: Callable[[Any], Any]
) -> dict[str, Any]:
    """The keywords of a translation: what the node gives, else the schema's default.

    attributes  {name: AttributeProto}
    Raises FrontendError for an attribute that the schema has not, has with another type or wants,
    and for one that is given and that the translation would not heed.
    """
    if schema is None:
        return _by_signature(translation, attributes, tensor)
    keywords: dict[str, Any] = {}
    known = schema.attributes
    for name, proto in attributes.items():
        if name not in known:
            raise FrontendError(f"attribute {name}: {schema.name} has {sorted(known) or 'none'}")
        if int(known[name].type.value) != proto.type:
            wanted = known[name].type.name
            got = library().AttributeProto.AttributeType.Name(proto.type)
            raise FrontendError(f"attribute {name}: wanted {wanted}, got {got}")
        if name in translation.attributes:
            keywords[name] = attribute_value(proto, tensor)
        elif name not in translation.ignores:
            raise FrontendError(f"attribute {name}: it is not imported yet")
    for name in translation.attributes.intersection(known).difference(attributes):
        default = known[name].default_value
        if known[name].required:
            raise FrontendError(f"attribute {name}: it is missing")
        if default.type != library().AttributeProto.UNDEFINED:
            keywords[name] = attribute_value(default, tensor)
        elif inspect.signature(translation.function).parameters[name].default is inspect._empty:
            keywords[name] = None
    return keywords


def _by_signature(
    translation: Translation, attributes: dict[str, Any], tensor: Callable[[Any], Any]
) -> dict[str, Any]:
    """The keywords of a translation of an operator that onnx has no schema of: what they are and
    what they default to is written in the translation's signature.
    """
    kinds = library().AttributeProto
    params = inspect.signature(translation.function).parameters
    keywords: dict[str, Any] = {}
    for name, proto in attributes.items():
        if name not in translation.attributes | translation.ignores:
            raise FrontendError(f"attribute {name}: it is not imported yet")
        if name not in translation.attributes:
            continue
        wanted = _KINDS.get(params[name].annotation)
        if wanted is not None and proto.type != kinds.AttributeType.Value(wanted):
            got = kinds.AttributeType.Name(proto.type)
            raise FrontendError(f"attribute {name}: wanted {wanted}, got {got}")
        keywords[name] = attribute_value(proto, tensor)
    for name in translation.attributes.difference(attributes):
        if params[name].default is inspect.Parameter.empty:
            raise FrontendError(f"attribute {name}: it is missing")
    return keywords
