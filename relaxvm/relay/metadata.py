"""The metadata section of Relay's text form: constants, in the JSON that TVM writes.

{"root": 1, "nodes": [{"type_key": ""},
                      {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
                      {"type_key": "Array", "data": [3]},
                      {"type_key": "relay.Constant", "attrs": {"data": "0", ...}}],
 "b64ndarrays": [an array as in a file of parameters, in base64], "attrs": {...}}
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import LoadError, ParseError
from ..relax import Constant
from ..runtime import load_param_dict, save_param_dict

KEY = "relay.Constant"
# A file of parameters begins with these bytes where its one array has no name.
_HEAD = save_param_dict({})[:16] + (b"\1" + bytes(7)) + bytes(8) + (b"\1" + bytes(7))


def metadata_text(constants: Sequence[Constant]) -> str:
    """The section for these constants, in the order of their numbers."""
    nothing = {"_checked_type_": "0", "span": "0", "virtual_device_": "0"}
    first = 3
    nodes: list[Any] = [
        {"type_key": ""},
        {"type_key": "Map", "keys": [KEY], "data": [2]},
        {"type_key": "Array", "data": list(range(first, first + len(constants)))},
        *({"type_key": KEY, "attrs": {**nothing, "data": str(i)}} for i in range(len(constants))),
    ]
    arrays = [save_param_dict({"": c.data})[len(_HEAD) :] for c in constants]
    return json.dumps(
        {
            "root": 1,
            "nodes": nodes,
            "b64ndarrays": [base64.b64encode(a).decode() for a in arrays],
            "attrs": {"tvm_version": "0.14.0"},
        },
        indent=2,
    )


class Metadata:
    """What ``meta[key][index]`` stands for: numbers, texts, lists, maps, constants.

    Raises ParseError for a section that is no JSON of that form.
    """

    def __init__(self, text: str) -> None:
        try:
            section = json.loads(text)
            self._nodes: Sequence[Any] = section["nodes"]
            self._arrays: Sequence[str] = section.get("b64ndarrays", ())
            root = self._nodes[section["root"]]
            self._lists: Mapping[str, int] = dict(zip(root["keys"], root["data"], strict=True))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise ParseError(f"the metadata section is no JSON as TVM writes it: {error}") from None
        self._known: dict[int, Any] = {}

    def value(self, key: str, index: int) -> Any:
        """Raises ParseError where there is none, or none that is known here."""
        try:
            return self._node(self._nodes[self._lists[key]]["data"][index], 0)
        except (ValueError, TypeError, LookupError, LoadError, AttributeError) as error:
            shown = error.args[0] if error.args else type(error).__name__
            raise ParseError(f"meta[{key}][{index}] cannot be read: {shown}") from None

    def _node(self, number: int, depth: int) -> Any:
        if depth > 100:
            raise ValueError("it is nested too deep")
        if number not in self._known:
            self._known[number] = self._read(self._nodes[number], depth + 1)
        return self._known[number]

    def _read(self, node: Any, depth: int) -> Any:
        kind, attrs = node["type_key"], node.get("attrs", {})
        if kind == KEY:
            return Constant(self._array(int(attrs["data"])))
        if kind in ("runtime.String", "StringImm", "tir.StringImm"):
            return str(node.get("repr_str", attrs.get("value", "")))
        if kind in ("IntImm", "tir.IntImm"):
            return int(attrs["value"])
        if kind in ("FloatImm", "tir.FloatImm"):
            return float(attrs["value"])
        values = [self._node(n, depth) for n in node.get("data", ())]
        if kind == "Array":
            return values
        if kind == "Map" and "keys" in node:
            return dict(zip(node["keys"], values, strict=True))
        raise ValueError(f"nothing is known here of {kind!r}")

    def _array(self, index: int) -> Any:
        try:
            record = base64.b64decode(self._arrays[index], validate=True)
        except binascii.Error as error:
            raise ValueError(f"its array is no base64: {error}") from None
        return load_param_dict(_HEAD + record)[""]
