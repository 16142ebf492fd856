"""Records behave as dataclasses do, and our named tuples as those of `typing`."""

import copy
import inspect
import pickle
import typing
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from relaxvm.base import NamedTuple, made_of_tuples, record


class Kept:
    """What both kinds are made of."""

    size: int
    name: str = "x"
    parts: list[int] = field(default_factory=list)

    def __post_init__(self):
        if self.size < 0:
            raise ValueError("negative")


def of(make, cls):
    return make(type(cls.__name__, (), dict(vars(cls))))


Theirs = of(dataclass(frozen=True), Kept)


@record
class Ours(Kept):
    size: int
    name: str = "x"
    parts: list[int] = field(default_factory=list)


@record
class Named:
    """With a default and nothing that a list would make unhashable."""

    size: int
    name: str = "x"


@record
class Longer(Named):
    more: int = 3


@record
class Empty:
    """Without fields."""


@record
class OtherEmpty:
    """Without fields."""


@pytest.mark.parametrize("made_before", [0, 40], ids=["of few", "of many"])
@pytest.mark.parametrize(
    ("args", "named"),
    [((1,), {}), ((1, "y"), {}), ((), {"size": 2, "parts": [3]}), ((), {}), ((1, 2, 3, 4), {}),
     ((1,), {"size": 2}), ((1,), {"no": 2}), ((-1,), {})],
)  # fmt: skip
def test_a_record_takes_what_a_dataclass_takes(args, named, made_before):
    got = []
    for kind in (of(record, Kept), Ours, Theirs):
        for _ in range(made_before):
            kind(1)
        try:
            made = kind(*args, **named)
            got.append((made.size, made.name, made.parts))
        except (TypeError, ValueError) as error:
            got.append((type(error), str(error).replace(kind.__qualname__, "")))
    assert got[0] == got[1] == got[2]


class Doubling:
    def __setattr__(self, name, value):
        object.__setattr__(self, name, 2 * value)


def test_the_first_records_are_made_as_later_ones_and_as_dataclasses_are():
    calls = []

    class Given:
        __annotations__ = {"parts": "list", "size": "int"}
        parts = field(default_factory=lambda: calls.append(1))
        size = field(kw_only=True)

    class Size(Doubling):
        __annotations__ = {"size": "int"}

    for make, also in ((record, record(frozen=False)), (dataclass(frozen=True), dataclass)):
        # What a class made of one defines later is not called by `__init__`.
        base = of(make, type("Base", (), {"__annotations__": {"size": "int"}}))
        later = type("Later", (base,), {"__post_init__": lambda self: 1 / 0})
        assert [later(k).size for k in range(40)] == list(range(40))
        # Nor is a default made of arguments that are wrong.
        calls.clear()
        with pytest.raises(TypeError, match="size"):
            of(make, Given)()
        assert not calls
        doubled = also(type("Doubled", (Size,), dict(vars(Size))))
        assert [doubled(1).size for _ in range(40)] == [2] * 40


def test_a_record_says_what_it_takes():
    for kind in (of(record, Kept), Longer, Open):
        before = str(inspect.signature(kind))
        kind(1, last=2) if kind is Open else kind(1)
        assert before == str(inspect.signature(kind))
    assert str(inspect.signature(Longer)) == "(size, name='x', more=3)"
    assert str(inspect.signature(Open)).endswith(", *, last)")
    assert str(inspect.signature(Called(1))) == "(x)"


def test_records_are_equal_by_kind_and_values_and_hash_so():
    assert Named(1) == Named(1, "x") != Named(2)
    assert hash(Named(1)) == hash(Named(1, "x"))
    assert Named(1) != Longer(1)
    assert (Longer(1, more=2), Longer(1)) == (Longer(1, "x", 2), Longer(1, "x", 3))
    assert {Empty(), Empty(), OtherEmpty()} == {Empty(), OtherEmpty()}
    assert Empty() != OtherEmpty()
    assert Ours(1) != (1, "x", [])
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours(1))
    assert Ours(1).parts is not Ours(1).parts


def test_records_are_frozen():
    one = Longer(1)
    for change in (lambda: setattr(one, "size", 2), lambda: setattr(one, "other", 2)):
        with pytest.raises(FrozenInstanceError):
            change()
    with pytest.raises(FrozenInstanceError):
        del one.size
    assert one == Longer(1)


def test_what_dataclasses_does_with_instances_it_does_with_records():
    assert repr(Longer(1, more=4)) == "Longer(size=1, name='x', more=4)"
    assert repr(Empty()) == "Empty()"
    assert [f.name for f in fields(Longer)] == ["size", "name", "more"]
    assert replace(Longer(1), name="y") == Longer(1, "y")
    match Longer(5, "z"):
        case Longer(size, name, more):
            assert (size, name, more) == (5, "z", 3)
    for again in (
        copy.copy(Longer(7)),
        copy.deepcopy(Longer(7)),
        pickle.loads(pickle.dumps(Longer(7))),
    ):
        assert again == Longer(7)


@record(frozen=False)
class Open:
    size: int
    parts: list[int] = field(default_factory=list)
    last: int = field(kw_only=True)
    seen: list[int] = field(init=False, default_factory=list)
    count: int = field(init=False, default=4)


@record(frozen=False, values=False)
class Alone:
    size: int


def test_records_that_are_not_frozen():
    one = Open(1, last=2)
    one.size += 1
    one.parts.append(3)
    assert one == Open(2, [3], last=2) != Open(2, [3], last=3)
    assert (one.last, one.seen, one.count) == (2, [], 4)
    one.seen.append(1)
    assert one != Open(2, [3], last=2)
    assert repr(one) == "Open(size=2, parts=[3], last=2, seen=[1], count=4)"
    assert Open(1, last=2).seen is not Open(1, last=2).seen
    for wrong in ((1, [], 2), (1, [], 2, 3)):
        with pytest.raises(TypeError, match="argument"):
            Open(*wrong)
    with pytest.raises(TypeError, match="seen"):
        Open(1, last=2, seen=[])
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one


def test_records_that_are_equal_to_themselves_alone():
    one = Alone(1)
    one.size = 2
    assert one != Alone(2)
    assert {one, one} == {one}


@record
class Called:
    size: int

    def __call__(self, x):
        return x


class Place(NamedTuple):
    """Where."""

    line: int
    names: tuple[str, ...] = ()

    @property
    def next(self):
        return self._replace(line=self.line + 1)

    def __str__(self):
        return f"line {self.line}"


class TheirPlace(typing.NamedTuple):
    line: int
    names: tuple[str, ...]


def test_named_tuples():
    place = Place(3)
    assert place == (3, ()) == TheirPlace(3, ())
    assert (repr(place), str(place)) == ("Place(line=3, names=())", "line 3")
    assert (place.next, Place(names=("a",), line=1)) == ((4, ()), (1, ("a",)))
    assert (Place._fields, Place._field_defaults) == (("line", "names"), {"names": ()})
    assert (Place.__doc__, Place.__module__, Place.__qualname__) == ("Where.", __name__, "Place")
    assert typing.get_type_hints(Place) == typing.get_type_hints(TheirPlace)
    assert type(pickle.loads(pickle.dumps(place))) is type(copy.copy(place)) is Place
    assert not hasattr(place, "__dict__")
    made = made_of_tuples(Place)((3, ()))
    assert type(made) is Place
    assert made == place
    for wrong in (lambda: Place(), lambda: Place(1, (), 2), lambda: Place(1, other=2)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(AttributeError):
        place.line = 4
