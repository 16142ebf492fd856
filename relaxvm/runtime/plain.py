"""Frozen dataclasses as the plain data that files hold.

How a field is stored follows from its type:

    str, int, float, bool, bytes,     as they are        DataType, Dim    a name; see `dims`
    Literal
    tuple[X, ...]                     a list             tuple[X, Y]      a list of two
    tuple[Any, ...]                   nested lists       X | None         X or nil
    a `Plain`                         by its form        a union of those that have tags: by them

`from_plain` accepts nothing but what `to_plain` writes: exactly these keys, exactly these types;
lists may be read as tuples.
What a class checks of its fields it checks itself, in `__post_init__`.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, ClassVar, TypeVar, cast

import msgpack

from ..base import DataType, LoadError, NamedTuple, VerifyError
from .dims import Dim, dim_from_plain, dim_to_plain

_P = TypeVar("_P", bound="Plain")
_SCALARS = (str, int, float, bool, bytes)
_LISTS = (list, tuple)
# Of each class. A program has the same few failures in all of its kernels.
_MADE_LATELY = 512


class Plain:
    """Base of such a dataclass.

    form  how it is stored: "map" by the names of its fields, "list" of their values, or another
          word, which such a list then begins with
    """

    _form: ClassVar[str] = "map"
    _stored: ClassVar[tuple[tuple[str, Codec], ...]]
    # Of the fields, if all are stored as they are.
    _types: ClassVar[tuple[type, ...] | None]
    # Makes an instance of values of these types, or gives an equal one that was made lately.
    _of: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls, form: str = "map") -> None:
        cls._form = form

    def to_plain(self) -> Any:
        """As msgpack stores it."""
        values = [
            getattr(self, name) if codec.write is _same else codec.write(getattr(self, name))
            for name, codec in self._columns()
        ]
        if self._form == "map":
            return dict(zip(self._names(), values))
        return values if self._form == "list" else [self._form, *values]

    @classmethod
    def from_plain(cls: type[_P], plain: Any) -> _P:
        """The inverse of `to_plain`. Raises LoadError."""
        columns = cls._columns()
        if cls._form == "map":
            values = list(entries_of(plain, cls._names(), cls.__name__).values())
        else:
            values = plain
            if cls._form != "list":
                if type(plain) not in _LISTS or list(plain[:1]) != [cls._form]:
                    raise LoadError(f"{cls.__name__}: wanted a list that begins with {cls._form!r}")
                values = plain[1:]
            if type(values) not in _LISTS or len(values) != len(columns):
                raise LoadError(f"{cls.__name__}: wanted a list of {len(columns)}")
        make: Callable[..., _P] = cls
        if tuple(map(type, values)) == cls._types:
            make = cls._of
        else:
            read = []
            for (name, codec), value in zip(columns, values):
                try:
                    read.append(codec.read(value))
                except LoadError as error:
                    raise LoadError(f"{cls.__name__}: {name}: {error}") from None
            values = read
        try:
            return make(*values)
        except VerifyError as error:
            raise LoadError(str(error)) from None

    @classmethod
    def _columns(cls) -> tuple[tuple[str, Codec], ...]:
        """The fields and how they are stored."""
        if "_stored" not in vars(cls):
            hints, of_dataclass = _hints_of(cls), cast(Any, cls)
            own = [(f.name, _stored_as(hints[f.name])) for f in fields(of_dataclass)]
            kinds = tuple(hint for _, hint in own)
            cls._types = kinds if set(kinds) <= set(_SCALARS) else None
            # Of floats, -0.0 equals 0.0; bytes may be large.
            is_small = not {float, bytes}.intersection(kinds)
            cls._of = functools.lru_cache(_MADE_LATELY)(cls) if is_small else cls
            # Last: other threads take it for all.
            cls._stored = tuple((name, codec_of(hint)) for name, hint in own)
        return cls._stored

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name, _ in cls._columns()]


def _hints_of(cls: type) -> dict[str, Any]:
    """The types of the fields. Unlike `typing.get_type_hints`, which takes them one by one, this
    reads those of a class at once; it is called when a first program is loaded.
    """
    hints: dict[str, Any] = {}
    for base in cls.__mro__[-1::-1]:
        if base is not Plain and issubclass(base, Plain):
            own = vars(base).get("__annotations__", {})
            text = f"({''.join(f'{hint},' for hint in own.values())})"
            hints.update(zip(own, eval(text, vars(sys.modules[base.__module__]))))
    return hints


def entries_of(plain: Any, names: Sequence[str], what: str) -> dict[str, Any]:
    """The entries of the map `plain`, which has exactly the keys `names`, in that order. Raises
    LoadError.
    """
    if type(plain) is not dict:
        raise LoadError(f"{what}: wanted a map, got {type(plain).__name__}")
    if plain.keys() != set(names):
        got = ", ".join(sorted(str(k)[:40] for k in plain))[:400]
        raise LoadError(f"{what}: wanted the keys {', '.join(names)}; got {got}")
    return {name: plain[name] for name in names}


class Codec(NamedTuple):
    """`write` gives the plain form of a value, `read` the value; it raises LoadError."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _stored_as(hint: Any) -> Any:
    """Which of some texts it may be is the class's to check."""
    return str if typing.get_origin(hint) is typing.Literal else hint


@functools.cache
def codec_of(hint: Any) -> Codec:
    """How values of the type `hint` are stored."""
    if hint in _SCALARS:
        return Codec(_same, functools.partial(_exactly, hint))
    if hint is DataType:
        return Codec(str.__str__, dtype_from_plain)
    if hint == Dim:
        return Codec(dim_to_plain, _dim)
    if typing.get_origin(hint) is tuple:
        return _tuple_codec(*typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Plain):
        return Codec(operator.methodcaller("to_plain"), hint.from_plain)
    assert typing.get_origin(hint) in (typing.Union, types.UnionType), hint
    return _union_codec(typing.get_args(hint))


def _tuple_codec(*items: Any) -> Codec:
    if items[-1] is ...:
        item = items[0]
        if item in _SCALARS:
            return Codec(list, functools.partial(_scalars, item))
        if item is Any:
            return Codec(_listed, _tupled)
        write, read = codec_of(item)
        return Codec(lambda value: [*map(write, value)], lambda p: tuple(map(read, _list(p))))
    codecs = tuple(map(codec_of, items))

    def read_all(plain: Any) -> tuple[Any, ...]:
        if tuple(map(type, _list(plain))) == items:
            return tuple(plain)
        if len(plain) != len(codecs):
            raise LoadError(f"wanted a list of {len(codecs)}, got {len(plain)}")
        return tuple([codec.read(item) for codec, item in zip(codecs, plain)])

    return Codec(lambda value: [c.write(item) for c, item in zip(codecs, value)], read_all)


def _scalars(kind: type, plain: Any) -> tuple[Any, ...]:
    for other in set(map(type, _list(plain))) - {kind}:
        raise LoadError(f"wanted {kind.__name__}, got {other.__name__}")
    return tuple(plain)


def _union_codec(members: tuple[Any, ...]) -> Codec:
    present = [member for member in members if member is not types.NoneType]
    union = functools.reduce(operator.or_, present)
    if len(present) < len(members):
        write, read = codec_of(union)
        return Codec(
            lambda value: None if value is None else write(value),
            lambda plain: None if plain is None else read(plain),
        )
    tagged = {member._form: member for member in present}

    def read_tagged(plain: Any) -> Any:
        if type(plain) not in _LISTS or not plain or type(plain[0]) is not str:
            raise LoadError("wanted a list that begins with its kind")
        member = tagged.get(plain[0])
        if member is None or len(plain) != 1 + len(member._columns()):
            raise LoadError(f"{plain[0][:40]!r} with {len(plain) - 1} fields is not known")
        return member.from_plain(plain)

    return Codec(operator.methodcaller("to_plain"), read_tagged)


def _same(value: Any) -> Any:
    return value


def _exactly(kind: type, plain: Any) -> Any:
    if type(plain) is not kind:
        raise LoadError(f"wanted {kind.__name__}, got {type(plain).__name__}")
    return plain


def _list(plain: Any) -> Sequence[Any]:
    if type(plain) not in _LISTS:
        raise LoadError(f"wanted a list, got {type(plain).__name__}")
    return cast("Sequence[Any]", plain)


def _dim(plain: Any) -> Dim:
    try:
        return dim_from_plain(plain)
    except VerifyError as error:
        raise LoadError(str(error)) from None


def dtype_from_plain(plain: object) -> DataType:
    """The dtype named `plain`, in its canonical spelling. Raises LoadError."""
    if type(plain) is not str or len(plain) > 32:
        raise LoadError("wanted the name of a dtype")
    try:
        dtype = DataType(plain)
    except ValueError as error:
        raise LoadError(str(error)) from None
    if str.__str__(dtype) != plain:
        raise LoadError(f"wanted the canonical dtype {str.__str__(dtype)!r}, got {plain!r}")
    return dtype


def _listed(value: Any) -> Any:
    return [_listed(v) for v in value] if isinstance(value, tuple) else value


def _tupled(plain: Sequence[Any]) -> tuple[Any, ...]:
    if type(plain) is tuple:
        # So are all in it: msgpack reads one kind or the other.
        return plain
    # There may be ten thousands of lists.
    document = msgpack.packb(_list(plain), use_bin_type=True)
    nested: tuple[Any, ...] = msgpack.unpackb(document, use_list=False, strict_map_key=False)
    return nested
