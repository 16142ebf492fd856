"""Python's operators on expressions: ``x + y``, ``-x``, ``x @ w``, ``x > 0``, ``x.astype("float16")``.

Each builds the call of the operator of that name. ``==`` stays identity: expressions are keys of dictionaries.
"""

from __future__ import annotations

from typing import Any

from ..ir.op import Op

__all__ = ["Operators"]


def _apply(name: str, *args: Any) -> Any:
    return Op.get(f"relax.{name}").function(*args)  # type: ignore[attr-defined]


class Operators:
    """The methods that Python calls for its operators."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return _apply("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _apply("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return _apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _apply("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return _apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _apply("divide", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _apply("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _apply("floor_divide", other, self)

    def __mod__(self, other: Any) -> Any:
        return _apply("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return _apply("mod", other, self)

    def __pow__(self, other: Any) -> Any:
        return _apply("power", self, other)

    def __rpow__(self, other: Any) -> Any:
        return _apply("power", other, self)

    def __matmul__(self, other: Any) -> Any:
        return _apply("matmul", self, other)

    def __neg__(self) -> Any:
        return _apply("negative", self)

    def __abs__(self) -> Any:
        return _apply("abs", self)

    def __lt__(self, other: Any) -> Any:
        return _apply("less", self, other)

    def __le__(self, other: Any) -> Any:
        return _apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Any:
        return _apply("greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return _apply("greater_equal", self, other)

    def astype(self, dtype: Any) -> Any:
        """The tensor converted to `dtype`."""
        return _apply("astype", self, dtype)
