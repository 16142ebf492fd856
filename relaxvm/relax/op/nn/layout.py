"""Layouts of image tensors by name: "NCHW", "NHWC", "OIHW", "NCHW16c", "OIHW16i8o".

An upper-case letter is an axis, a number with a lower-case letter is a block of it: NCHW4c keeps
channel k at C = k // 4, c = k % 4. A formula over plain axes (n, c, h, w) works in every layout
through `Layout.index` and `Layout.axes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ....base import StructInfoError, TIRError
from ....ir import PrimExpr, const
from ....te import Tensor, compute
from ....tir import Layout as TirLayout
from ...rules import Ops
from ...struct_info import ShapeExpr
from ..sizes import want_equal, want_multiple


class Layout(TirLayout):
    """The order of axes that a name like "NCHW16c" stands for, of tensors.

    Raises StructInfoError for what is no layout.
    """

    def __init__(self, name: str) -> None:
        try:
            super().__init__(name)
        except TIRError as error:
            raise StructInfoError(str(error)) from None

    def sizes(self, shape: Sequence[Any]) -> dict[str, Any]:
        """axis -> its whole size, given the dimensions of a tensor of this layout."""
        sizes: dict[str, Any] = {}
        for (letter, block), dim in zip(self.parts, shape):
            if block:
                text = "layout {layout}: dimension {letter} wanted {b}, got {a}"
                have = dim if isinstance(dim, PrimExpr) else const(dim, "int64")
                words = {"layout": self.name, "letter": letter}
                want_equal(have, const(block, have.dtype), text, **words)
            else:
                sizes[letter] = dim
        return {a: d * self.blocks[a] if a in self.blocks else d for a, d in sizes.items()}

    def shape(self, sizes: Mapping[str, Any], name: str = "layout") -> tuple[Any, ...]:
        """The dimensions of a tensor of this layout whose axes have these sizes."""
        for axis, block in self.blocks.items():
            text = "{name} {layout}: axis {axis} of size {size} is no multiple of {block}"
            have = sizes[axis] if isinstance(sizes[axis], PrimExpr) else const(sizes[axis], "int64")
            words = {"name": name, "layout": self.name, "axis": axis, "block": block}
            want_multiple(have, block, text, **words)
        return tuple(
            b if b else sizes[a] // self.blocks[a] if a in self.blocks else sizes[a]
            for a, b in self.parts
        )

    # -- numpy -------------------------------------------------------------------------------

    def to_plain(self, x: np.ndarray, order: str) -> np.ndarray:
        """An array of this layout with its axes in `order`, unblocked."""
        order_of = self._unblocked(order)
        plain = x.transpose(order_of)
        sizes = self.sizes(x.shape)
        return np.ascontiguousarray(plain).reshape([sizes[a] for a in order])

    def from_plain(self, x: np.ndarray, order: str) -> np.ndarray:
        """The reverse of `to_plain`."""
        order_of = self._unblocked(order)
        sizes = dict(zip(order, x.shape))
        shape = self.shape(sizes)
        split = x.reshape([shape[k] for k in order_of])
        return np.ascontiguousarray(split.transpose(np.argsort(order_of)))

    def _unblocked(self, order: str) -> list[int]:
        """The permutation that puts the axes in `order`, each followed by its block."""
        axes = []
        for axis in order:
            axes.append(self.position(axis))
            axes += [k for k, (letter, b) in enumerate(self.parts) if b and letter.upper() == axis]
        return axes

    # -- graph expressions -------------------------------------------------------------------

    def plain_expr(self, ops: Ops, x: Any, order: str) -> Any:
        """An expression of this layout with its axes in `order`, unblocked."""
        if self.name == order:
            return x
        sizes = self.sizes(x.struct_info.dims)
        permuted = ops.permute_dims(x, axes=self._unblocked(order))
        return (
            ops.reshape(permuted, ShapeExpr([sizes[a] for a in order])) if self.blocks else permuted
        )

    def from_plain_expr(self, ops: Ops, x: Any, order: str) -> Any:
        """The reverse of `plain_expr`."""
        if self.name == order:
            return x
        order_of = self._unblocked(order)
        if self.blocks:
            shape = self.shape(dict(zip(order, x.struct_info.dims)))
            x = ops.reshape(x, ShapeExpr([shape[k] for k in order_of]))
        return ops.permute_dims(x, axes=[int(k) for k in np.argsort(order_of)])

    # -- tensor expressions ------------------------------------------------------------------

    def compute(self, sizes: Mapping[str, Any], value: Any, name: str) -> Tensor:
        """The tensor of this layout with ``value(positions)`` at each place."""
        return compute(self.shape(sizes), lambda *i: value(self.axes(i)), name)


@lru_cache(maxsize=256)
def _parsed(name: str) -> Layout:
    return Layout(name)


def layout_of(name: Any, axes: str, what: str) -> Layout:
    """The layout called `name`, which must have exactly the letters `axes`.

    Raises StructInfoError naming the attribute `what`.
    """
    if not isinstance(name, str):
        raise StructInfoError(f"{what}: wanted a layout such as {axes}, got {name!r}")
    try:
        layout = _parsed(name)
    except StructInfoError as error:
        raise StructInfoError(f"{what}: {error}") from None
    if sorted(layout.plain) != sorted(axes):
        raise StructInfoError(f"{what}: wanted the axes {axes} in some order, got {name!r}")
    return layout
