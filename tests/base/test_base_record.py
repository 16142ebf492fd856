"""Records behave as frozen dataclasses do."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from relaxvm.base import record


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


@pytest.mark.parametrize(
    ("args", "named"),
    [((1,), {}), ((1, "y"), {}), ((), {"size": 2, "parts": [3]}), ((), {}), ((1, 2, 3, 4), {}),
     ((1,), {"size": 2}), ((1,), {"no": 2}), ((-1,), {})],
)  # fmt: skip
def test_a_record_takes_what_a_dataclass_takes(args, named):
    got = []
    for kind in (of(record, Kept), Ours, Theirs):
        try:
            made = kind(*args, **named)
            got.append((made.size, made.name, made.parts))
        except (TypeError, ValueError) as error:
            got.append((type(error), str(error).replace(kind.__qualname__, "")))
    assert got[0] == got[1] == got[2]


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
