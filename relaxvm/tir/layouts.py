"""Layouts of tensors by name: "NCHW", "OIHW16i8o", and the mapping between two of them.

An upper-case letter is an axis, a number with a lower-case letter is a block of it: NCHW4c keeps
channel k at C = k // 4, c = k % 4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..arith import Analyzer
from ..base import TIRError
from ..ir import FloorDiv, FloorMod, IntImm, PrimExpr, as_expr, const

_PART = re.compile(r"([A-Z])|([1-9][0-9]*)([a-z])")


class Layout:
    """The order of axes that a name like "NCHW16c" stands for.

    parts   one (letter, block) per dimension, in order; block is 0 for an upper-case letter
    blocks  axis -> block size, for the axes that have one
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[tuple[str, int]] = []
        position = 0
        while position < len(name):
            part = _PART.match(name, position)
            if part is None:
                raise TIRError(f"wanted a layout such as NCHW, NHWC or NCHW4c, got {name!r}")
            upper, block, lower = part.groups()
            self.parts.append((upper, 0) if upper else (lower, int(block)))
            position = part.end()
        self.blocks = {letter.upper(): b for letter, b in self.parts if b}
        self.plain = [letter for letter, b in self.parts if not b]
        lowers = [letter for letter, b in self.parts if b]
        if len(set(self.plain)) < len(self.plain) or len(set(lowers)) < len(lowers):
            raise TIRError(f"layout {name!r}: a letter stands twice")
        if any(letter.upper() not in self.plain for letter in lowers):
            raise TIRError(f"layout {name!r}: a block without its axis in upper case")

    @property
    def ndim(self) -> int:
        """How many dimensions a tensor of this layout has."""
        return len(self.parts)

    def position(self, axis: str) -> int:
        """Where the (upper-case) axis stands."""
        return next(k for k, (letter, b) in enumerate(self.parts) if letter == axis and not b)

    def __len__(self) -> int:
        return self.ndim

    def __getitem__(self, axis: int) -> str:
        return self.parts[axis][0]

    def __iter__(self) -> Iterator[str]:
        return (letter for letter, _ in self.parts)

    def __contains__(self, axis: str) -> bool:
        return any(letter == axis for letter, _ in self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Layout({self.name})"

    def index_of(self, axis: str) -> int:
        """Where the axis (or the block, in lower case) stands; -1 if it does not."""
        return next((k for k, letter in enumerate(self) if letter == axis), -1)

    def factor_of(self, axis: str) -> int:
        """The size of the block of an axis (of either case); -1 if it has none."""
        return self.blocks.get(axis.upper(), -1)

    def index(self, positions: Mapping[str, PrimExpr]) -> list[PrimExpr]:
        """The indices of the element at these plain positions."""
        indices: list[PrimExpr] = []
        for letter, block in self.parts:
            value = positions[letter.upper()]
            own = self.blocks.get(letter.upper())
            if block:
                indices.append(FloorMod(value, const(block, value.dtype)))
            else:
                indices.append(FloorDiv(value, const(own, value.dtype)) if own else value)
        return indices

    def axes(self, index: Sequence[PrimExpr]) -> dict[str, PrimExpr]:
        """The plain positions of the element at these indices."""
        outer = {a: i for (a, b), i in zip(self.parts, index) if not b}
        inner = {a.upper(): i for (a, b), i in zip(self.parts, index) if b}
        return {
            a: i * const(self.blocks[a], i.dtype) + inner[a] if a in inner else i
            for a, i in outer.items()
        }


class BijectiveLayout:
    """How indices and shapes of one layout become those of another of the same axes.

    Raises TIRError if the axes differ.
    """

    def __init__(self, src_layout: Layout | str, dst_layout: Layout | str) -> None:
        self.src_layout, self.dst_layout = layout(src_layout), layout(dst_layout)
        if set(self.src_layout.plain) != set(self.dst_layout.plain):
            raise TIRError(
                f"bijective_layout: {self.src_layout.name} and {self.dst_layout.name} have "
                "different axes"
            )

    def forward_index(self, index: Sequence[Any]) -> list[PrimExpr]:
        """Where the element at `index` of the first layout stands in the second."""
        return _index(self.src_layout, self.dst_layout, index)

    def backward_index(self, index: Sequence[Any]) -> list[PrimExpr]:
        """Where the element at `index` of the second layout stands in the first."""
        return _index(self.dst_layout, self.src_layout, index)

    def forward_shape(self, shape: Sequence[Any]) -> list[PrimExpr]:
        """The shape in the second layout of what has `shape` in the first; blocks are filled up."""
        return _shape(self.src_layout, self.dst_layout, shape)

    def backward_shape(self, shape: Sequence[Any]) -> list[PrimExpr]:
        """The shape in the first layout of what has `shape` in the second; blocks are filled up."""
        return _shape(self.dst_layout, self.src_layout, shape)

    def __repr__(self) -> str:
        return f"BijectiveLayout({self.src_layout.name} -> {self.dst_layout.name})"


def layout(name: Layout | str) -> Layout:
    """The layout of that name, such as "NCHW16c". Raises TIRError for what is none."""
    if isinstance(name, Layout):
        return name
    if not isinstance(name, str):
        raise TIRError(f"layout: wanted a name such as 'NCHW', got {name!r}")
    return Layout(name)


def bijective_layout(src_layout: Layout | str, dst_layout: Layout | str) -> BijectiveLayout:
    """The mapping between two layouts."""
    return BijectiveLayout(src_layout, dst_layout)


def _exprs(of: Layout, values: Sequence[Any], what: str) -> list[PrimExpr]:
    exprs = [as_expr(v) for v in values]
    if len(exprs) != of.ndim:
        raise TIRError(f"layout {of.name}: {what} has {of.ndim} dimensions, got {len(exprs)}")
    return exprs


def _index(src: Layout, dst: Layout, index: Sequence[Any]) -> list[PrimExpr]:
    return [_folded(e) for e in dst.index(src.axes(_exprs(src, index, "an index")))]


def _shape(src: Layout, dst: Layout, shape: Sequence[Any]) -> list[PrimExpr]:
    dims = _exprs(src, shape, "a shape")
    for (letter, block), dim in zip(src.parts, dims):
        if block and isinstance(dim, IntImm) and dim.value != block:
            raise TIRError(f"layout {src.name}: dimension {letter} wanted {block}, got {dim.value}")
    sizes: dict[str, PrimExpr] = {
        a: d * src.blocks.get(a, 1) for (a, b), d in zip(src.parts, dims) if not b
    }
    converted = []
    for letter, block in dst.parts:
        if block:
            converted.append(const(block, dims[0].dtype))
        else:
            own = dst.blocks.get(letter, 1)
            converted.append(
                _folded((sizes[letter] + (own - 1)) // own if own > 1 else sizes[letter])
            )
    return converted


def _folded(e: PrimExpr) -> PrimExpr:
    return Analyzer(wrap=False).simplify(e)
