"""Shared by backward operators: what the shape of a gradient must be."""

from __future__ import annotations

from collections.abc import Sequence

from ....base import StructInfoError
from ....ir import PrimExpr
from ...derive import plain_text
from ..sizes import KnownTensor, want_same


def want_shape(info: KnownTensor, wanted: Sequence[PrimExpr], name: str) -> None:
    """A tensor is of the shape `wanted`. Raises StructInfoError if it never is."""
    shapes = (", ".join(map(plain_text, dims)) for dims in (wanted, info.dims))
    text = "{}: wanted shape ({}), got ({})".format(name, *shapes)
    if len(info.dims) != len(wanted):
        raise StructInfoError(text)
    want_same(info.dims, wanted, "{what}", what=text)
