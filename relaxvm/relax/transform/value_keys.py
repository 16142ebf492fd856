"""Keys that are the same for the same computation.

    keys = ValueKeys()
    keys.call(a) == keys.call(b)      # the same callee on the same leaves, with the same result

Variables are the same if they are one object, or if `numbers` says so; arrays if they hold the
same, large ones if they are one object. A key holds while what it was made of is alive.
"""

from __future__ import annotations

from typing import Any

from ...ir import GlobalVar, Node, structural_digest, value_key
from ..array_leaf import ARRAY_CODEC
from ..expr import Call, Constant, DataTypeImm, ExternFunc, StringImm, Tuple, Var

_COMPARED_BYTES = 1 << 16
"""Constants up to this size are the same if their contents are; larger ones if they are the same
array."""


class ValueKeys:
    """Makes keys, and remembers what makes them cheap.

    numbers  variables that are known to hold the same value have the same number here
    """

    def __init__(self) -> None:
        self.numbers: dict[Var, int] = {}
        self._arrays: dict[int, tuple[Any, bytes]] = {}

    def call(self, call: Call) -> Any:
        """The key of a call that has no effect."""
        return (
            "call",
            id(call.struct_info),
            self.leaf(call.op),
            tuple([self.leaf(a) for a in call.args]),
            tuple([(k, _attribute(v)) for k, v in call.attrs.items()]),
            tuple(map(id, call.sinfo_args)),
        )

    def leaf(self, value: Any) -> Any:
        """The key of a leaf. Tuples are laid flat, so that it is no deeper than a few levels."""
        if type(value) is not Tuple:
            return self._atom(value)
        flat: list[Any] = []
        todo: list[Any] = [value]
        while todo:
            each = todo.pop()
            if type(each) is Tuple:
                flat.append(("(", len(each.fields)))
                todo.extend(reversed(each.fields))
            else:
                flat.append(self._atom(each))
        return tuple(flat)

    def _atom(self, value: Any) -> Any:
        if isinstance(value, Var):
            return self.numbers.get(value, id(value))
        if isinstance(value, Constant):
            return (self._array(value), id(value.struct_info))
        if isinstance(value, ExternFunc):
            return ("extern", value.global_symbol, id(value.struct_info))
        if isinstance(value, GlobalVar):
            return ("global", value.name_hint)
        if isinstance(value, (StringImm, DataTypeImm)):
            return (type(value), str(value.value))
        value = getattr(value, "value", value)  # of a PrimValue: interned, like shapes
        return id(value)

    def _array(self, constant: Constant) -> Any:
        data = constant.data
        entry = self._arrays.get(id(data))
        if entry is None:
            small = data.numpy().nbytes <= _COMPARED_BYTES
            digest = ARRAY_CODEC.digest(data) if small else id(data).to_bytes(8, "little")
            entry = self._arrays[id(data)] = (data, digest)
        return entry[1]


def _attribute(value: Any) -> Any:
    # A map of indices has variables of its own.
    return structural_digest(value) if isinstance(value, Node) else value_key(value)
