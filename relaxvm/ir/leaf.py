"""Kinds of data that IR nodes may hold besides numbers, strings and nodes: arrays, for instance.

A room that owns such a type registers how it is saved, compared and hashed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import NamedTuple


class LeafCodec(NamedTuple):
    """tag: the name in saved files; to_plain/from_plain: to and from what msgpack can hold; equal;
    digest: bytes.
    """

    tag: str
    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any]
    equal: Callable[[Any, Any], bool]
    digest: Callable[[Any], bytes]


_BY_TYPE: dict[type, LeafCodec] = {}
_BY_TAG: dict[str, LeafCodec] = {}


def register_leaf(kind: type, codec: LeafCodec) -> None:
    """Let IR nodes hold values of `kind`."""
    _BY_TYPE[kind] = codec
    _BY_TAG[codec.tag] = codec


def leaf_codec(kind: type) -> LeafCodec | None:
    """The codec of a type, or None."""
    return _BY_TYPE.get(kind)


def leaf_by_tag(tag: str) -> LeafCodec | None:
    """The codec saved under `tag`, or None."""
    return _BY_TAG.get(tag)
