"""What convolutions and pools share: attributes in their several spellings, sizes of windows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ....arith import Analyzer
from ....base import StructInfoError
from ....ir import GE, LT, IntImm, Max, Min, PrimExpr, const
from ....te import Tensor, comm_reducer, compute
from ....tir import all as all_of
from ....tir import if_then_else, min_value
from ...derive import plain_text

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
"""The letters of the axes that windows slide over, by their number."""


_MOST = 2**31 - 1
"""The greatest size that an attribute may say: sums and products of several fit int64."""


def _ints(value: Any, least: int) -> tuple[int, ...] | None:
    """An int or several as a tuple; None if one is no int, less than `least` or too great."""
    ints = (value,) if isinstance(value, int) else value
    good = isinstance(ints, tuple) and all(type(v) is int and least <= v <= _MOST for v in ints)
    return ints if good else None


def spread(value: Any, count: int, name: str, least: int = 1) -> tuple[int, ...]:
    """An int, or one or `count` of them, as `count` ints that are at least `least`."""
    ints = _ints(value, least)
    if ints is None or len(ints) not in (1, count):
        wanted = "an int" if count == 1 else f"an int or {count} ints"
        raise StructInfoError(
            f"{name}: wanted {wanted}, each >= {least} and < 2**31; got {value!r}"
        )
    return ints * count if len(ints) == 1 else ints


def padding_of(value: Any, count: int, name: str = "padding") -> tuple[int, ...]:
    """Padding as (before each axis, then after each axis): for two axes (top, left, bottom, right).

    value  one int for all sides, one for both sides of each axis, or all of them
    """
    ints = _ints(value, 0)
    if ints is None or len(ints) not in (1, count, 2 * count):
        sizes = sorted({1, count, 2 * count})
        wanted = " or ".join(map(str, sizes))
        raise StructInfoError(f"{name}: wanted {wanted} ints, each >= 0 and < 2**31; got {value!r}")
    if len(ints) == 1:
        return ints * (2 * count)
    return ints * 2 if len(ints) == count else ints


def padding_words(count: int) -> str:
    """What a docstring says of the attribute `padding` of `count` axes."""
    return {
        1: "1 or 2 ints: (left, right)",
        2: "1, 2 or 4 ints: (top, left, bottom, right)",
        3: "1, 3 or 6 ints: (front, top, left, back, bottom, right)",
    }[count]


def simple(dim: PrimExpr) -> PrimExpr:
    """A dimension, simplified."""
    return dim if isinstance(dim, IntImm) else Analyzer(wrap=False).simplify(dim)


def static(dim: Any) -> int | None:
    """The number that a dimension is, or None."""
    return dim.value if isinstance(dim, IntImm) else dim if isinstance(dim, int) else None


def window_count(
    size: Any, kernel: Any, stride: int, before: int, after: int, dilation: int, ceil: bool = False
) -> Any:
    """How many windows fit: (size + before + after - dilation * (kernel - 1) - 1) // stride + 1.

    ceil  counts a last window that only begins inside, too; one that begins in the padding behind
          the data does not count (as in torch and ONNX)
    """
    room = size + (before + after - 1) - (kernel - 1) * dilation
    if not ceil:
        return room // stride + 1
    count = (room + (stride - 1)) // stride + 1
    if (kernel - 1) * dilation + 1 >= after + stride:
        return count
    begun = (size + (before - 1)) // stride + 1
    return min(count, begun) if isinstance(count, int) else Min(count, begun)


def positive_dim(dim: PrimExpr, why: str) -> PrimExpr:
    """`dim` simplified. Raises StructInfoError if it is known to be negative."""
    result = simple(dim)
    value = static(result)
    if value is not None and value < 0:
        raise StructInfoError(f"{why}: the result would have size {value}; enlarge data or padding")
    return result


def text_of(dim: Any) -> str:
    """A dimension or a number for a message."""
    return plain_text(dim) if isinstance(dim, PrimExpr) else str(dim)


def _least(dtype: Any) -> PrimExpr:
    if dtype.is_float:
        return const(float("-inf"), dtype)
    return min_value(dtype)


greatest = comm_reducer(lambda x, y: Max(x, y), _least, "max")
"""A te reducer: the greatest; -inf (of integers, the least one) of nothing."""


def te_pad(
    x: Tensor,
    before: Sequence[int],
    after: Sequence[int],
    fill: PrimExpr,
    name: str = "padded",
) -> Tensor:
    """`x` with `fill` around it; `x` itself if there is nothing to add."""
    if not any(before) and not any(after):
        return x
    shape = [d + (b + a) for d, b, a in zip(x.shape, before, after)]

    def value(*index: PrimExpr) -> PrimExpr:
        own = [i - b if b else i for i, b in zip(index, before)]
        inside: list[PrimExpr] = []
        for i, d, b, a in zip(own, x.shape, before, after):
            if b:
                inside.append(GE(i, const(0, i.dtype)))
            if a:
                inside.append(LT(i, d))
        return if_then_else(all_of(*inside), x(*own), fill)

    return compute(tuple(shape), value, name)


def named(name: str, text: str, **words: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of an inference rule made in a factory: its name, and `text` with `words` in it as
    its docstring.
    """

    def mark(rule: Callable[..., Any]) -> Callable[..., Any]:
        rule.__name__ = rule.__qualname__ = name
        rule.__doc__ = inspect.cleandoc(text.format(**words))
        return rule

    return mark
