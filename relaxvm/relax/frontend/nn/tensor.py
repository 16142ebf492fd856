"""`Tensor`: a value of the function being written, with Python's operators; `Object` for others.

Operators are applied at once: each binds a variable in the current `BlockBuilder`, so shape and
dtype of every tensor are known as it is made, and a mistake is reported where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base import FrontendError, StructInfoError
from ....ir import IntImm, Op, PrimExpr
from ....ir import Var as TirVar
from ...block_builder import BlockBuilder
from ...expr import Expr, PrimValue, TupleGetItem, Var, const
from ...struct_info import StructInfo, TensorStructInfo, TupleStructInfo


def current_builder(what: str) -> BlockBuilder:
    """The builder of the method being exported. Raises FrontendError outside of one."""
    builder = BlockBuilder.current()
    if builder is None:
        raise FrontendError(
            f"{what}: works on tensors of a method that is being exported; call it inside "
            "`forward` (or another method), and run that with export_tvm(spec) or jit(spec)"
        )
    return builder


def wrap_nested(expr: Any, name: str) -> Any:
    """Bind `expr` to a variable called like `name`; gives a `Tensor`, an `Object`, or a tuple of
    them.
    """
    if not isinstance(expr, Var):
        expr = current_builder(name).emit(expr, name)
    info = expr.struct_info
    if isinstance(info, TensorStructInfo):
        return Tensor(_expr=expr)
    if isinstance(info, TupleStructInfo):
        return tuple(
            wrap_nested(TupleGetItem(expr, i), f"{name}_{i}") for i in range(len(info.fields))
        )
    return Object(_expr=expr, _name=name)


def unwrap_nested(value: Any, what: str = "the result") -> Any:
    """The expression of a `Tensor` or `Object`, also inside tuples and lists.

    Raises FrontendError for anything else.
    """
    if isinstance(value, (Tensor, Object)):
        return value._expr
    if isinstance(value, (tuple, list)):
        return tuple(unwrap_nested(v, f"{what}[{i}]") for i, v in enumerate(value))
    if isinstance(value, PrimExpr):
        return PrimValue(value)
    raise FrontendError(
        f"{what}: wanted a Tensor, an Object, a scalar expression, or a tuple or list of them, "
        f"got {type(value).__name__}: {value!r}"[:400]
    )


def operand(value: Any, like: Tensor | None, what: str) -> Any:
    """`value` as an argument of an operator: a number becomes a constant of the dtype of `like`.

    Raises FrontendError for what is no tensor, and for a number that its dtype cannot hold.
    """
    if isinstance(value, Tensor):
        return value._expr
    if isinstance(value, Expr):
        return value
    if isinstance(value, PrimExpr):
        return PrimValue(value)
    if isinstance(value, (bool, int, float)) and like is not None:
        dtype = like.dtype
        wants_int = (dtype.is_int or dtype.is_bool) and not float(value).is_integer()
        if wants_int or (dtype.is_bool and value not in (0, 1)):
            raise FrontendError(
                f"{what}: the number {value!r} has no {dtype} of its own; convert the tensor "
                "with astype first"
            )
        return const(value, dtype)
    raise FrontendError(f"{what}: wanted a Tensor or a number, got {type(value).__name__}")


def apply(name: str, *args: Any, hint: str | None = None, **attrs: Any) -> Any:
    """Apply the operator ``relax.<name>`` to tensors (and numbers, which follow the first tensor's
    dtype), and bind the result.
    """
    short = hint or name.rpartition(".")[2]
    like = next((a for a in args if isinstance(a, Tensor)), None)
    operands = [operand(a, like, short) for a in args]
    record: Any = Op.get(f"relax.{name}")
    return wrap_nested(record.function(*operands, **attrs), short)


def symbol_of(name: str, symbols: dict[str, TirVar]) -> TirVar:
    """The symbol called `name` in a table, made and added if it is not there."""
    if name not in symbols:
        symbols[name] = TirVar(name, "int64")
    return symbols[name]


def dims_of_spec(shape: Any, what: str, symbols: dict[str, TirVar] | None = None) -> list[Any]:
    """A shape as users write it: ints, names of symbolic dimensions, scalar expressions.

    symbols  the symbols by name, to which new names are added
    Raises StructInfoError for anything else.
    """
    table = {} if symbols is None else symbols
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence):
        raise StructInfoError(
            f"{what}: wanted a sequence of dimensions, got {type(shape).__name__}: {shape!r}"
        )
    dims: list[Any] = []
    for axis, dim in enumerate(shape):
        if isinstance(dim, str):
            if not dim.isidentifier():
                raise StructInfoError(
                    f"{what}: dimension {axis}: the name of a symbol is an identifier, got {dim!r}"
                )
            dim = symbol_of(dim, table)
        elif isinstance(dim, IntImm):
            dim = dim.value
        if isinstance(dim, bool) or not (
            isinstance(dim, (int, PrimExpr)) or hasattr(dim, "__index__")
        ):
            raise StructInfoError(
                f"{what}: dimension {axis}: wanted an int, a name or a scalar expression, "
                f"got {type(dim).__name__}: {dim!r}"
            )
        dim = dim if isinstance(dim, PrimExpr) else int(dim)
        if isinstance(dim, int) and dim < 0:
            raise StructInfoError(f"{what}: dimension {axis} is not negative, got {dim}")
        dims.append(dim)
    return dims


class Object:
    """A value that is no tensor, such as a cache: it can be handed on, not computed with."""

    def __init__(self, *, _expr: Expr, _name: str = "obj") -> None:
        self._expr = _expr if isinstance(_expr, Var) else current_builder(_name).emit(_expr, _name)

    def __repr__(self) -> str:
        return f"Object({self._expr.struct_info})"


class Tensor:
    """A tensor of the function being written. Made by operators and by the exporter.

    ``x + y``, ``x * 2``, ``x @ w``, ``-x``, ``x < y`` ... apply the operators of `nn.op`; a number
    takes the tensor's dtype. ``==`` stays identity.
    """

    _expr: Expr

    def __init__(self, *, _expr: Expr) -> None:
        info = _expr.struct_info
        if not isinstance(info, TensorStructInfo):
            raise StructInfoError(f"Tensor: wanted a tensor, got {info}")
        if info.dims is None or info.dtype == "void":
            raise StructInfoError(
                f"Tensor: wanted a known shape and dtype, got {info}; nn works with shapes that "
                "are known or symbolic, not with those known only when the program runs"
            )
        self._expr = _expr

    @staticmethod
    def from_const(data: Any) -> Tensor:
        """A constant tensor of an array, a nested list or a number."""
        return Tensor(_expr=const(data))

    @staticmethod
    def from_scalar(data: float, dtype: Any) -> Tensor:
        """A constant tensor without axes."""
        return Tensor(_expr=const(data, dtype))

    @staticmethod
    def from_struct_info(struct_info: StructInfo, name: str = "tensor") -> Tensor:
        """A tensor of which only shape and dtype are known."""
        return Tensor(_expr=Var(name, struct_info))

    @staticmethod
    def placeholder(shape: Sequence[Any], dtype: Any, name: str = "tensor") -> Tensor:
        """A tensor of which only shape and dtype are known: an input, or the form of an output."""
        dims = dims_of_spec(shape, name)
        return Tensor.from_struct_info(TensorStructInfo(dims, dtype), name)

    @property
    def struct_info(self) -> TensorStructInfo:
        """What is known about it: `R.Tensor(shape, dtype)`."""
        info = self._expr.struct_info
        assert isinstance(info, TensorStructInfo)
        return info

    @property
    def shape(self) -> list[Any]:
        """The dimensions: ints where they are known, scalar expressions where they are symbolic."""
        dims = self.struct_info.dims
        assert dims is not None
        return [d.value if isinstance(d, IntImm) else d for d in dims]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.struct_info.ndim

    @property
    def dtype(self) -> Any:
        """The dtype of the elements, which equals its name: ``x.dtype == "float32"``."""
        return self.struct_info.dtype

    def __repr__(self) -> str:
        return f'Tensor([{", ".join(str(d) for d in self.shape)}], "{self.dtype}")'

    def __len__(self) -> int:
        raise FrontendError("len() of a Tensor may be symbolic; use x.shape[0]")

    def __iter__(self) -> Any:
        raise FrontendError("a Tensor cannot be iterated over; use nn.op.split or nn.op.chunk")

    def __bool__(self) -> bool:
        if self.dtype.is_bool:
            raise FrontendError(
                "the truth of a Tensor is not known while the model is exported; choose elements "
                "with nn.op.where, or decide by what is known: shapes that are ints, arguments of "
                "the module"
            )
        # TVM's modules ask `if self.bias:` for "is there one".
        return True

    # -- operators --------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Tensor:
        return apply("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return apply("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return apply("subtract", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return apply("multiply", self, other, hint="mul")

    def __rmul__(self, other: Any) -> Tensor:
        return apply("multiply", other, self, hint="mul")

    def __truediv__(self, other: Any) -> Tensor:
        return apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return apply("divide", other, self)

    def __floordiv__(self, other: Any) -> Tensor:
        return apply("floor_divide", self, other)

    def __mod__(self, other: Any) -> Tensor:
        return apply("floor_mod", self, other)

    def __pow__(self, other: Any) -> Tensor:
        return apply("power", self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return apply("power", other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return apply("matmul", self, other)

    def __neg__(self) -> Tensor:
        return apply("negative", self)

    def __abs__(self) -> Tensor:
        return apply("abs", self)

    def __lt__(self, other: Any) -> Tensor:
        return apply("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return apply("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return apply("greater_equal", self, other)

    # -- the operators that are often written as methods ------------------------------------------

    def astype(self, dtype: Any) -> Tensor:
        """The tensor converted to `dtype`; itself if it has it already."""
        if self.dtype == dtype:
            return self
        return apply("astype", self, dtype=dtype)

    def maximum(self, other: Any) -> Tensor:
        """The larger of each two elements."""
        return apply("maximum", self, other)

    def minimum(self, other: Any) -> Tensor:
        """The smaller of each two elements."""
        return apply("minimum", self, other)

    def reshape(self, *shape: Any) -> Tensor:
        """The elements in another shape: ``x.reshape(2, -1)`` or ``x.reshape((2, -1))``."""
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
        return apply("reshape", self, shape=shape)

    def permute_dims(self, *axes: Any) -> Tensor:
        """The axes in another order; reversed without `axes`."""
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
            axes = tuple(axes[0] or ())
        return apply("permute_dims", self, axes=axes or None)

    def repeat(self, repeats: int, axis: int | None = None) -> Tensor:
        """Each element `repeats` times along `axis`."""
        return apply("repeat", self, repeats=repeats, axis=axis)
