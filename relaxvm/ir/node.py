"""The machinery of IR nodes: slotted, immutable, compared by identity or interned.

`@node` reads the field annotations of a class and generates its constructor and what every walk and
rewrite is built from: `children(n)` and `map_children(n, f)`. A new node kind is then walked,
rewritten, compared, hashed and saved at once.

Field kinds, read from the annotation, whose words are looked up in the module of the class:
    leaf      only int, float, str, bool, bytes, None, DataType, Span: never visited
    node      one child, or None
    tuple     `tuple[X, ...]`: children in order (possibly nested tuples)
    value     anything else (attribute maps, unions with containers): searched for nodes at run time

A class may define
    _normalise_(*fields) -> tuple    static; converts and checks the constructor's arguments
    _sound_                          in the same class: what holds, as text, of arguments with which
                                     that need not be called: it would return them
    _init_derived_(self)             computes the fields declared with `derived()`
    _copied_                         or where they are found in the others: {"dtype": "a.dtype"}
    _defs_                           names of fields whose variables are bound by this node (see
                                     `equal.py`)
    _order_                          the fields compared, in the order in which definitions are met
                                     (default: all)
"""

from __future__ import annotations

import collections
import importlib
import itertools
import operator
import re
import struct
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..base import DataType, TIRError, did_you_mean
from ..base.config import checks_enabled

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_values

    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        return lambda f: f


T = TypeVar("T")
N = TypeVar("N", bound="Node")

# Values of these types are equal only if they are the same to `value_key`.
_EXACT = {"int", "str", "DataType"}
_LEAF_WORDS = {"int", "float", "str", "bool", "bytes", "None", "DataType", "Span"}
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*")
_TYPES: dict[str, type[Node]] = {}


class Items(tuple[Any, ...]):
    """A tuple that ``attrs.strides`` and ``attrs["strides"]`` give: equal to a list of the same
    values, too.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, tuple(other) if type(other) is list else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


class Map(dict[Any, Any]):
    """An immutable, ordered mapping used for attributes, annotations and buffer maps.

    Keys are strings or nodes (nodes compare by identity). Values are plain data, nodes, tuples or
    `Map`s; lists become tuples and dicts become `Map`s. (A dict, so that asking for a key does not
    enter Python; what changes a dict is refused.)
    """

    __slots__ = ()
    EMPTY: ClassVar[Map]

    def __init__(self, items: Mapping[Any, Any] | None = None, **more: Any) -> None:
        merged = dict(items) if items else {}
        merged.update(more)
        for key, value in merged.items():
            if type(value) in _CONTAINERS:
                frozen = freeze(value)
                merged[key] = Items(frozen) if type(frozen) is tuple else frozen
        dict.__init__(self, merged)

    @staticmethod
    def of(items: Mapping[Any, Any] | None) -> Map:
        """`items` as a map: the same one if it is one, `Map.EMPTY` if there are none."""
        if type(items) is Map:
            return items
        return Map(items) if items else Map.EMPTY

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Map is immutable; use .with_({name}=...) to make a changed copy")

    def _refuse(self, *_: object) -> Any:
        raise TypeError("Map is immutable; use .with_(...) to make a changed copy")

    __setitem__ = __delitem__ = __ior__ = _refuse

    @property
    def _absent(self) -> Any:
        raise AttributeError  # so that `__getattr__` is asked: it may be a key

    clear = copy = fromkeys = pop = popitem = setdefault = update = _absent

    def items(self) -> dict_items[Any, Any]:
        """Keys and values; tuples are plain ones."""
        if Items not in map(type, dict.values(self)):
            return dict.items(self)
        return {k: tuple(v) if type(v) is Items else v for k, v in dict.items(self)}.items()

    def values(self) -> dict_values[Any, Any]:
        """The values; tuples are plain ones."""
        return dict(self.items()).values()

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(
            f"no attribute {name!r}; there are: {', '.join(map(str, self)) or 'none'}"
        )

    def with_(self, items: Mapping[Any, Any] | None = None, **more: Any) -> Map:
        """A copy with keys added or replaced."""
        return Map({**self, **(items or {}), **more})

    def without(self, *keys: Any) -> Map:
        """A copy without `keys`; the same object if none of them is present."""
        if not any(key in self for key in keys):
            return self
        return Map({k: v for k, v in self.items() if k not in keys})

    def __repr__(self) -> str:
        return f"Map({dict.__repr__(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Map, (dict(self),))


Map.EMPTY = Map()


def freeze(value: Any) -> Any:
    """`value` with lists turned into tuples and dicts into `Map`s, all the way down."""
    kind = type(value)
    if kind in (str, int, bool, float):
        return value
    if kind is list or kind is tuple or kind is Items:
        frozen = tuple(freeze(v) for v in value)
        if kind is tuple and all(a is b for a, b in zip(frozen, value)):
            return value
        return frozen
    if kind is dict:
        return Map(value)
    return value


# What `freeze` makes something else of.
_CONTAINERS = (list, tuple, Items, dict)


class _Derived:
    pass


def derived() -> Any:
    """Marks a field that `_init_derived_` computes: not an argument, not compared, not saved."""
    return _Derived


class Node:
    """Base of everything in the IR: immutable, compared by identity."""

    __slots__ = ("__weakref__",)
    _fields: ClassVar[tuple[str, ...]] = ()
    _kinds: ClassVar[tuple[str, ...]] = ()
    _type_key: ClassVar[str] = "ir.Node"
    _derived_fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}
    _words: ClassVar[tuple[frozenset[str], ...]] = ()
    _copied_: ClassVar[dict[str, str]] = {}
    _defs_: ClassVar[tuple[str, ...]] = ()
    _order_: ClassVar[tuple[str, ...]] = ()
    _interned: ClassVar[bool] = False
    _children_: ClassVar[Sequence[Node]] = ()  # of each node its own; see `_children_of`

    def _values_(self) -> Sequence[Any]:
        return ()

    def _map_children_(self: N, f: Callable[[Any], Any]) -> N:
        return self

    def replace(self: N, **changes: Any) -> N:
        """A copy with some fields changed; the same object if nothing differs.

        Raises TypeError for an unknown field.
        """
        fields = self._fields
        for name, new in changes.items():
            if name not in fields or getattr(self, name) is not new:
                break
        else:
            return self
        values = dict(zip(fields, type(self)._values_(self))) | changes
        if len(values) > len(fields):
            unknown = ", ".join(n for n in changes if n not in fields)
            raise TypeError(
                f"{type(self).__name__} has no field {unknown}; it has {', '.join(fields)}"
            )
        return type(self)(*values.values())

    def script(self, **options: Any) -> str:
        """The script text of this part of the IR."""
        return print_ir(self, **options)

    def show(self, **options: Any) -> None:
        """Print the script text."""
        show_ir(self, **options)

    def astext(self, show_meta_data: bool = True, annotate: Any = None, **options: Any) -> str:
        """This part of the IR in Relay's text form: see `relay.printer.astext`."""
        return relay_text("astext", self, show_meta_data, annotate, **options)

    def same_as(self, other: object) -> bool:
        """Whether this is the very same object."""
        return self is other

    def __repr__(self) -> str:
        parts = []
        for name, kind in zip(self._fields, self._kinds):
            if name == "span":
                continue
            value = getattr(self, name)
            if kind == "leaf":
                parts.append(f"{name}={value!r}")
            elif isinstance(value, Node):
                parts.append(f"{name}=<{type(value).__name__}>")
            elif isinstance(value, (tuple, Map)):
                parts.append(f"{name}=<{len(value)}>")
            else:
                parts.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def __copy__(self: N) -> N:
        return self

    def __deepcopy__(self: N, memo: object) -> N:
        return self


# The one door from the IR to the room above it that knows the text form; opened when something is
# printed.
_PRINTER_ROOM = "relaxvm.script"


def print_ir(what: Any, **options: Any) -> str:
    """`what` (a module, function, statement or expression) as script text."""
    text: str = importlib.import_module(_PRINTER_ROOM).print_script(what, **options)
    return text


def relay_text(form: str, *args: Any, **options: Any) -> str:
    """What a function of the room that knows Relay's text form gives."""
    text: str = getattr(importlib.import_module("relaxvm.relay.printer"), form)(*args, **options)
    return text


def show_ir(what: Any, **options: Any) -> None:
    """Print `what` as script text, in colour on a terminal where pygments is installed."""
    importlib.import_module(_PRINTER_ROOM).show_script(what, **options)


def type_key(cls: type[Node]) -> str:
    """The name under which a class is saved: its room and its name, as in ``tir.Add``."""
    return cls._type_key


def node_types() -> Mapping[str, type[Node]]:
    """Every node class known so far, by `type_key`."""
    return _TYPES


def make_node(type_key: str, **fields: Any) -> Node | Map:
    """The node saved as `type_key`, such as "ir.IntImm", from its fields by name; attributes
    ("ir.DictAttrs") are a `Map`.

    Raises TIRError for a kind or a field that does not exist.
    """
    if type_key == "ir.DictAttrs":
        return Map(fields)
    room, _, name = type_key.rpartition(".")
    # TVM keeps scalar expressions in tir.
    cls = _TYPES.get(type_key) or (_TYPES.get(f"ir.{name}") if room == "tir" else None)
    if cls is None:
        hint = did_you_mean(type_key, _TYPES)
        raise TIRError(f"make_node: no node is saved as {type_key!r}{hint}")
    if fields.get("span", True) is None:
        del fields["span"]  # TVM's way to say that there is none
    unknown = [field for field in fields if field not in cls._fields]
    if unknown:
        raise TIRError(
            f"make_node: {type_key} has no {', '.join(unknown)}; it has {', '.join(cls._fields)}"
        )
    missing = [field for field in cls._fields if field not in {**fields, **cls._defaults}]
    if missing:
        raise TIRError(f"make_node: {type_key} needs {', '.join(missing)}")
    return cls(**fields)


def children(n: Node) -> Sequence[Node]:
    """The nodes directly below `n`, in field order; a child that stands twice is listed twice."""
    return n._children_


def map_children(n: N, f: Callable[[Any], Any]) -> N:
    """`n` with `f` applied to every child; the same object if `f` changed none of them."""
    return n._map_children_(f)


_SEARCHED = frozenset({tuple, Items, Map})


def collect_nodes(value: Any, out: list[Node]) -> None:
    """Append the nodes found in a field value (tuples and maps searched) to `out`."""
    if isinstance(value, Node):
        out.append(value)
    elif type(value) in _SEARCHED:
        if type(value) is Map:
            value = itertools.chain.from_iterable(dict.items(value))
        for item in value:
            if isinstance(item, Node):
                out.append(item)
            elif type(item) in _SEARCHED:
                collect_nodes(item, out)


def map_value(value: Any, f: Callable[[Any], Any]) -> Any:
    """Apply `f` to the nodes inside a field value; the same object if nothing changed."""
    if isinstance(value, Node):
        return f(value)
    if type(value) is tuple or type(value) is Items:
        mapped, changed = [], False
        for item in value:
            new = f(item) if isinstance(item, Node) else map_value(item, f)
            changed = changed or new is not item
            mapped.append(new)
        return tuple(mapped) if changed else value
    if type(value) is Map:
        changed = False
        items = {}
        for key, item in dict.items(value):
            new_key = f(key) if isinstance(key, Node) else key
            new = map_value(item, f) if isinstance(item, (Node, tuple, Map)) else item
            changed = changed or new_key is not key or new is not item
            items[new_key] = new
        return Map(items) if changed else value
    return value


# -- interning -------------------------------------------------------------------------------------


class _KeyedRef(weakref.ref):  # type: ignore[type-arg]
    __slots__ = ("key",)
    key: tuple[Any, ...]


_interned: dict[tuple[Any, ...], _KeyedRef] = {}
# References to nodes that are gone; they leave the table together when a node comes into it.
_gone: collections.deque[_KeyedRef] = collections.deque()
_MOST_GONE = 64


def _clear_out() -> None:
    while _gone:
        try:
            old = _gone.popleft()
        except IndexError:
            break  # another thread was faster
        if _interned.get(old.key) is old:
            del _interned[old.key]


def _remember(ref: _KeyedRef, value: Any) -> Any:
    """The node in the table that is equal to `value`, itself if there is none."""
    key = ref.key
    while True:
        current = _interned.setdefault(key, ref)
        if current is ref:
            return value
        other = current()
        if other is not None:
            return other
        if _interned.get(key) is current:
            del _interned[key]


_pack_double = struct.Struct("<d").pack


def value_key(value: Any) -> Any:
    """A hashable key under which two field values are the same only if they are written the same.

    Holds the Python type and, for floats, the bits: 0.0 and -0.0 differ, as do 1, True and 1.0.
    """
    kind = type(value)
    if kind is float:
        return (kind, _pack_double(value))
    if isinstance(value, Node):
        return id(value)
    if kind is tuple:
        return tuple([value_key(item) for item in value])
    if kind is Map:
        return (Map, tuple([(value_key(k), value_key(v)) for k, v in value.items()]))
    return (kind, value)


_KEY_CODE = {
    "node": "id({0})",
    "tuple": "value_key({0})",
    "flat": "tuple(map(id, {0}))",
    "value": "value_key({0})",
    "leaf": "{0}",
    "float": "(type({0}), pack({0}) if type({0}) is float else {0})",
}

# -- the decorator ---------------------------------------------------------------------------------


def _kind_of(annotation: Any, known: Mapping[str, Any]) -> str:
    """How a field is visited. `known` are the names of the module: what is no class of nodes
    there, such as an alias or a type variable, is searched at run time.
    """
    text = (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", str(annotation))
    )
    words = set(_WORD.findall(text))
    if words <= _LEAF_WORDS:
        return "leaf"
    if text.startswith("tuple["):
        return "tuple" if words - _LEAF_WORDS - {"tuple"} else "leaf"
    classes = [known.get(word) for word in words - {"None"}]
    return "node" if all(isinstance(c, type) and issubclass(c, Node) for c in classes) else "value"


def _is_flat(annotation: Any, cls: type) -> bool:
    """Whether a field is a tuple of nodes of one class."""
    match = re.fullmatch(r"tuple\[(\w+), \.\.\.\]", str(annotation))
    element = match and vars(sys.modules[cls.__module__]).get(match[1])
    return isinstance(element, type) and issubclass(element, Node)


def _kept_children(kinds: Mapping[str, str], optional: set[str], flat: set[str]) -> str | None:
    """What is below a node, as text, if that is to be kept in a slot: one node, or nodes and tuples
    of nodes.
    """
    visited = [name for name, kind in kinds.items() if kind != "leaf"]
    if len(visited) == 1 and kinds[visited[0]] == "node":
        (only,) = visited
        return f"({only},) if {only} is not None else ()" if only in optional else f"({only},)"
    sure = all(n in flat or (kinds[n] == "node" and n not in optional) for n in visited)
    if not sure or flat.isdisjoint(visited):
        return None
    return f"({', '.join(f'*{n}' if n in flat else n for n in visited)},)"


def _frozen_setattr(self: Any, name: str, value: object) -> None:
    raise AttributeError(
        f"{type(self).__name__} is immutable; use .replace({name}=...) to make a changed copy"
    )


def _frozen_delattr(self: Any, name: str) -> None:
    raise AttributeError(f"{type(self).__name__} is immutable")


def _generate(
    cls: type,
    fields: list[str],
    kinds: list[str],
    optional: set[str],
    floats: set[str],
    interned: bool,
    flat: set[str],
) -> None:
    scope: dict[str, Any] = {
        "DataType": DataType,
        "collect": collect_nodes,
        "EMPTY": Map.EMPTY,
        "map_value": map_value,
        "value_key": value_key,
        "pack": _pack_double,
        "table_get": _interned.get,
        "table": _interned,
        "gone": _gone,
        "clear_out": _clear_out,
        "keyed": _KeyedRef,
        "remember": _remember,
        "new": object.__new__,
        "cls_": cls,
        "set_": object.__setattr__,
    }
    frozen = checks_enabled()
    signature = []
    for name in fields:
        if name in cls._defaults:  # type: ignore[attr-defined]
            scope[f"d_{name}"] = cls._defaults[name]  # type: ignore[attr-defined]
            signature.append(f"{name}=d_{name}")
        else:
            signature.append(name)
    names = ", ".join(fields)
    lines = []
    lines.append(
        f"def {'__new__' if interned else '__init__'}({'cls' if interned else 'self'}"
        f"{', ' if fields else ''}{', '.join(signature)}):"
    )
    known = ["    if ref is not None:", "        self = ref()"]
    known.append("        if self is not None: return self")
    if interned and hasattr(cls, "_normalise_") and set(kinds) == {"node"}:
        # What is there already has been looked at.
        lines.append(f"    ref = table_get((cls_, {', '.join(f'id({name})' for name in fields)}))")
        lines += known
    plain = list(vars(cls).get("__annotations__", {}).values())
    if interned and plain and len(plain) == len(fields) and _EXACT.issuperset(plain):
        exact = " and ".join(f"type({name}) is {kind}" for name, kind in zip(fields, plain))
        lines.append(f"    ref = table_get((cls_, {', '.join(fields)})) if {exact} else None")
        lines += known
    if hasattr(cls, "_normalise_") and fields:
        owner = next(c for c in cls.__mro__ if "_normalise_" in vars(c))
        sound = vars(owner).get("_sound_")
        if sound is not None:
            scope = {**vars(sys.modules[owner.__module__]), **scope}
            lines.append(f"    if not ({sound}):")
        indent = "    " if sound is None else "        "
        lines.append(f"{indent}{names}{',' * (len(fields) == 1)} = cls_._normalise_({names})")
    if interned:
        keys = [
            _KEY_CODE["float" if name in floats else "flat" if name in flat else kind].format(name)
            for name, kind in zip(fields, kinds)
        ]
        lines.append(f"    key = (cls_, {', '.join(keys)})")
        lines.append("    ref = table_get(key)")
        lines += known
        lines.append("    self = new(cls_)")
    node_class: Any = cls
    for name, source in (dict(zip(fields, fields)) | node_class._copied_).items():
        assign = f"set_(self, {name!r}, {source})" if frozen else f"self.{name} = {source}"
        lines.append(f"    {assign}")
    kept = _kept_children(dict(zip(fields, kinds)), optional, flat)
    if kept is not None:
        assign = "set_(self, '_children_', {})" if frozen else "self._children_ = {}"
        lines.append(f"    {assign.format(kept)}")
    if len(node_class._derived_fields) > len(node_class._copied_):
        lines.append("    self._init_derived_()")
    if interned:
        lines.append(f"    if len(gone) > {_MOST_GONE}: clear_out()")
        lines.append("    ref = keyed(self, gone.append)")
        lines.append("    ref.key = key")
        lines.append("    if table.setdefault(key, ref) is ref: return self")
        lines.append("    return remember(ref, self)")
    elif len(lines) == 1:
        lines.append("    pass")

    lines.append("def children(self):")
    # What comes first and is always there: all that expressions have, mostly.
    sure = list(
        itertools.takewhile(
            lambda field: field[1] == "leaf" or (field[1] == "node" and field[0] not in optional),
            zip(fields, kinds),
        )
    )
    lines.append(f"    out = [{', '.join(f'self.{n}' for n, kind in sure if kind == 'node')}]")
    for name, kind in zip(fields[len(sure) :], kinds[len(sure) :]):
        if kind == "node":
            lines.append(f"    if self.{name} is not None: out.append(self.{name})")
        elif name in flat:
            lines.append(f"    out += self.{name}")
        elif kind == "tuple":
            lines.append(f"    if self.{name}: collect(self.{name}, out)")
        elif kind == "value":
            lines.append(f"    if self.{name} is not EMPTY: collect(self.{name}, out)")
    lines.append("    return out")

    lines.append("def _map_children_(self, f):")
    visited = [(name, kind) for name, kind in zip(fields, kinds) if kind != "leaf"]
    if not visited:
        lines.append("    return self")
    else:
        for name, kind in visited:
            if kind == "node":
                absent = f" if self.{name} is not None else None" if name in optional else ""
                lines.append(f"    {name} = f(self.{name}){absent}")
            else:
                some = f"self.{name}" if kind == "tuple" else f"self.{name} is not EMPTY"
                lines.append(f"    {name} = map_value(self.{name}, f) if {some} else self.{name}")
        same = " and ".join(f"{name} is self.{name}" for name, _ in visited)
        lines.append(f"    if {same}: return self")
        moved = {name for name, _ in visited}
        arguments = ", ".join(f"{n}={n}" if n in moved else f"{n}=self.{n}" for n in fields)
        lines.append(f"    return cls_({arguments})")
    exec(compile("\n".join(lines), f"<node {cls.__name__}>", "exec"), scope)
    constructor = "__new__" if interned else "__init__"
    if len(fields) > 1:
        node_class._values_ = operator.attrgetter(*fields)
    elif fields:
        (field,) = fields
        node_class._values_ = lambda self: (getattr(self, field),)
    for name in (constructor, "_map_children_"):
        scope[name].__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, scope[name])
    if kept is None:
        parts = [name for name, _ in visited]
        plain_nodes = {kind for _, kind in visited} == {"node"} and optional.isdisjoint(parts)
        # Walks ask each node: they enter Python only where there is something to decide.
        getter = operator.attrgetter(*parts) if plain_nodes else scope["children"]
        node_class._children_ = property(getter) if visited else ()
    if frozen:
        cls.__setattr__ = _frozen_setattr  # type: ignore[method-assign, assignment]
        cls.__delattr__ = _frozen_delattr  # type: ignore[method-assign, assignment]


derive: Callable[[Node, str, object], None] = object.__setattr__
"""Sets a derived field from inside `_init_derived_`: (node, name, value), on frozen nodes too."""


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type[T] | None = None, *, interned: bool = False, key: str | None = None) -> Any:
    """Make a class with annotated fields an IR node.

    interned  equal arguments give the identical object
    key       the name it is saved under (default: the room and the class name)

    With checks on (all tests), instances really refuse assignment; otherwise only type checkers do,
    because a frozen constructor costs three times as much.
    """
    if cls is None:
        return lambda c: node(c, interned=interned, key=key)
    base: Any = next(b for b in cls.__mro__[1:] if issubclass(b, Node))
    fields = list(base._fields)
    kinds = dict(zip(base._fields, base._kinds))
    words = dict(zip(base._fields, base._words))
    derived_fields = list(base._derived_fields)
    defaults = dict(base._defaults)
    own: list[str] = []
    floats = set(getattr(base, "_floats", ()))
    namespace = dict(cls.__dict__)
    module = sys.modules.get(cls.__module__)
    known = {**(vars(module) if module is not None else {}), cls.__name__: base}
    for name, annotation in namespace.get("__annotations__", {}).items():
        text = str(annotation)
        if text.startswith("ClassVar") or name.startswith("_"):
            continue
        default = namespace.pop(name, ...)
        if default is _Derived:
            derived_fields.append(name)
            own.append(name)
            continue
        if name not in kinds:
            own.append(name)
            fields.append(name)
        kinds[name] = _kind_of(annotation, known)
        words[name] = frozenset(_WORD.findall(text))
        if "float" in _WORD.findall(text):
            floats.add(name)
        defaults.pop(name, None)
        if default is not ...:
            defaults[name] = default
    if "span" in fields:
        fields.remove("span")
        fields.append("span")
    for drop in ("__dict__", "__weakref__"):
        namespace.pop(drop, None)
    optional = {n for n in fields if "None" in words[n]}
    # Tuples of nodes, and of nothing else.
    flat = {n for n in fields if _is_flat(namespace.get("__annotations__", {}).get(n), cls)}
    if _kept_children({n: kinds[n] for n in fields}, optional, flat) is not None:
        own.append("_children_")
    namespace["__slots__"] = tuple(own)
    namespace.update(
        _fields=tuple(fields),
        _kinds=tuple(kinds[n] for n in fields),
        _words=tuple(words[n] for n in fields),
        _derived_fields=tuple(derived_fields),
        _defaults=defaults,
        _floats=frozenset(floats),
        _interned=interned,
        __match_args__=namespace.get("__match_args__", tuple(fields)),
    )
    room = cls.__module__.split(".")[1] if "." in cls.__module__ else cls.__module__
    namespace["_type_key"] = key or f"{room}.{cls.__name__}"
    metaclass: Any = type(cls)
    node_class: Any = metaclass(cls.__name__, cls.__bases__, namespace)
    node_class.__qualname__ = cls.__qualname__
    _generate(node_class, fields, [kinds[n] for n in fields], optional, floats, interned, flat)
    if (
        node_class._type_key in _TYPES
        and _TYPES[node_class._type_key].__module__ != node_class.__module__
    ):
        raise TIRError(f"two node classes are both saved as {node_class._type_key}")
    _TYPES[node_class._type_key] = node_class
    return node_class
