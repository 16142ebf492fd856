"""Python's operators on expressions: ``x + y``, ``-x``, ``x @ w``, ``x > 0``,
``x.astype("float16")``.

Each builds the call of the operator of that name, and so do ``x.ndim``, ``x.shape[0]``,
``x.dtype.bits``. ``==`` stays identity: expressions are keys of dictionaries.
"""

from __future__ import annotations

from typing import Any

from ..base import StructInfoError
from ..ir import Op

OF_UNTYPED: list[Any] = []
"""Functions (name, operands) -> expression or None, which are asked first: `relay` knows operators
of values whose types are not known yet.
"""


def _apply(name: str, *args: Any) -> Any:
    for later in OF_UNTYPED:
        result = later(name, args)
        if result is not None:
            return result
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

    # What a tensor is made of, as the program sees it when it runs.

    @property
    def ndim(self) -> Any:
        """The number of dimensions, as a call of `inspect.tensor_ndim`."""
        return _apply("inspect.tensor_ndim", self)

    @property
    def shape(self) -> Axes:
        """``x.shape[i]`` is a call of `inspect.tensor_shape_i`."""
        return Axes(self, "inspect.tensor_shape_i")

    @property
    def strides(self) -> Axes:
        """``x.strides[i]`` is a call of `inspect.tensor_stride_i`."""
        return Axes(self, "inspect.tensor_stride_i")

    @property
    def dtype(self) -> DtypeParts:
        """``x.dtype.bits`` and its kin are calls of `inspect.tensor_dtype_bits` and its kin."""
        return DtypeParts(self)

    @property
    def byte_offset(self) -> Any:
        """The bytes before the first element, as a call of `inspect.tensor_byte_offset`."""
        return _apply("inspect.tensor_byte_offset", self)

    @property
    def elem_offset(self) -> Any:
        """The elements before the first one, as a call of `inspect.tensor_elem_offset`."""
        return _apply("inspect.tensor_elem_offset", self)


class Axes:
    """One number of a tensor for each of its axes."""

    __slots__ = ("_name", "_of")

    def __init__(self, of: Any, name: str) -> None:
        self._of = of
        self._name = name

    def __getitem__(self, axis: Any) -> Any:
        return _apply(self._name, self._of, axis)

    def __iter__(self) -> Any:
        raise StructInfoError(
            f"the axes of {self._of!r} cannot be iterated; index them, or take x.struct_info.shape"
        )


class DtypeParts:
    """The parts of a tensor's dtype. The dtype itself, as far as it is known, is
    ``x.struct_info.dtype``.
    """

    __slots__ = ("_of",)

    def __init__(self, of: Any) -> None:
        self._of = of

    @property
    def code(self) -> Any:
        """Its kind as DLPack numbers it."""
        return _apply("inspect.tensor_dtype_code", self._of)

    type_code = code

    @property
    def bits(self) -> Any:
        """Its bits."""
        return _apply("inspect.tensor_dtype_bits", self._of)

    @property
    def lanes(self) -> Any:
        """Its lanes."""
        return _apply("inspect.tensor_dtype_lanes", self._of)
