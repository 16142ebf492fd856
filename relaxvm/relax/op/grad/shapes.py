"""Shared by backward operators: what the shape of a gradient must be."""

from __future__ import annotations

from typing import Any

from ....base import StructInfoError
from ...derive import dims_equal, plain_text
from ...struct_info import TensorStructInfo


def fits(info: TensorStructInfo, wanted: Any, name: str) -> None:
    if info.dims is not None and dims_equal(info.dims, wanted) is False:
        got = ", ".join(map(plain_text, info.dims))
        raise StructInfoError(
            f"{name}: wanted shape ({', '.join(map(plain_text, wanted))}), got ({got})"
        )
