"""Struct info as script text spells it: ``R.Tensor(("n", 4), "float32")``, ``R.Shape``, ``R.Prim``,
``R.Tuple``, ...

Each name is a maker: called with arguments it gives struct info, and standing alone it means the
widest of its kind. Strings in shapes are symbols; the parser says which variables they are,
elsewhere each call makes new ones.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NoReturn

from ...base import StructInfoError
from ...ir import PrimExpr, Var, VDevice
from ...relax import (
    Expr,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    SequenceStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ...tir import max as tir_max
from ...tir import min as tir_min
from .evaluate import Evaluator
from .guards import VALUES, Guard
from .outer import MISSING, Outer
from .proxies import DTypeFunction
from .source import Source, text_source


class Symbols:
    """Finds what a string in struct info stands for. By default every name is a new int64 variable
    of this call's own.
    """

    def __init__(self) -> None:
        self._own: dict[str, Any] = {}

    def symbol(self, name: str) -> Any:
        """The variable (or expression) of that name."""
        if name not in self._own:
            self._own[name] = Var(name, "int64")
        return self._own[name]

    def evaluate(self, text: str) -> Any:
        """The value of an expression over symbols. Raises ParseError if it is none."""
        source, expression = dimension_text(text)
        return _SymbolText(source, self).eval(expression)

    def dimension(self, text: str) -> PrimExpr | int:
        """A name, or an expression of names such as ``"n * 2"``. Raises ParseError or
        StructInfoError if it is none.
        """
        text = text.strip()
        value = self.symbol(text) if text.isidentifier() else self.evaluate(text)
        if not isinstance(value, (PrimExpr, int)) or isinstance(value, bool):
            raise StructInfoError(f"{text!r} is no dimension but a {type(value).__name__}")
        return value

    def vdevice(self, value: Any) -> Any:
        """The device annotation that `value` names: ``"llvm"``, ``"llvm:1"``, ``"llvm:1:global"``.

        Where there is no module to declare devices (Python itself evaluates annotations), each name
        is a device of its own.
        """
        if value is None or isinstance(value, VDevice):
            return value
        return VDevice.from_name(value)


def dimension_text(text: str) -> tuple[Source, ast.expr]:
    """The source and syntax of an expression in a string. Raises ParseError if it is none."""
    source, tree = text_source(text)
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        raise StructInfoError(f"wanted a name or an expression of names, got {text!r}")
    return source, tree.body[0].value


class _SymbolText(Evaluator):
    """Evaluates the text of a symbolic dimension outside script text."""

    def __init__(self, source: Source, symbols: Symbols) -> None:
        super().__init__(source, Outer(_DIMENSION_FUNCTIONS), Guard(len(source.lines[0])))
        self._symbols = symbols

    def find(self, name: str) -> Any:
        if name in _DIMENSION_FUNCTIONS:
            return MISSING
        return self._symbols.symbol(name)


# What is known inside the text of a dimension.
_DIMENSION_FUNCTIONS: Mapping[str, Any] = {
    "min": tir_min,
    "max": tir_max,
    "T": SimpleNamespace(min=tir_min, max=tir_max, int64=DTypeFunction("int64")),
}


def _dimensions(values: Any, symbols: Symbols, what: str) -> Any:
    if isinstance(values, Expr):
        return values
    if isinstance(values, (tuple, list)):
        return tuple(symbols.dimension(v) if isinstance(v, str) else v for v in values)
    raise StructInfoError(
        f"{what}: wanted a tuple of dimensions such as (n, 4), "
        f"got {type(values).__name__}: {values!r}"
    )


def _dtype(value: Any) -> Any:
    return value.dtype if isinstance(value, DTypeFunction) else value


class Maker:
    """One kind of struct info as a name of ``R``."""

    def __init__(self, name: str, make: Callable[..., StructInfo]) -> None:
        self.__name__ = name
        self.__doc__ = make.__doc__
        self._make = make

    def __call__(self, *args: Any, **keywords: Any) -> StructInfo:
        return self._make(Symbols(), *args, **keywords)

    def build(self, symbols: Symbols, *args: Any, **keywords: Any) -> StructInfo:
        """As a call, with the strings looked up in `symbols`."""
        return self._make(symbols, *args, **keywords)

    def __getitem__(self, _: Any) -> NoReturn:
        raise StructInfoError(f"R.{self.__name__} takes its arguments in parentheses")

    def __repr__(self) -> str:
        return f"R.{self.__name__}"


VALUES[Maker] = ""


def as_struct_info(value: Any) -> StructInfo:
    """`value` as struct info; a bare maker such as ``R.Tensor`` means the widest of its kind.

    Raises StructInfoError for anything else.
    """
    if isinstance(value, StructInfo):
        return value
    if isinstance(value, Maker):
        return value()
    raise StructInfoError(
        f'wanted struct info such as R.Tensor((n, 4), "float32"), '
        f"got {type(value).__name__}: {value!r}"
    )


def _tensor(
    symbols: Symbols, shape: Any = None, dtype: Any = None, vdevice: Any = None, ndim: int = -1
) -> StructInfo:
    """An array: ``R.Tensor((n, 4), "float32")``, ``R.Tensor("float32", ndim=2)``; what is left out
    is unknown.
    """
    if isinstance(shape, (str, DTypeFunction)) and dtype is None:
        shape, dtype = None, shape
    if shape is not None:
        shape = _dimensions(shape, symbols, "R.Tensor")
        if isinstance(shape, tuple):
            shape = ShapeExpr(shape)
    return TensorStructInfo(shape, _dtype(dtype), symbols.vdevice(vdevice), ndim)


def _shape(symbols: Symbols, values: Any = None, ndim: int = -1) -> StructInfo:
    """A shape: ``R.Shape((n, 4))``, ``R.Shape(ndim=2)``."""
    if values is not None:
        values = _dimensions(values, symbols, "R.Shape")
        if isinstance(values, ShapeExpr):
            values = values.values
    return ShapeStructInfo(values, ndim)


def _prim(symbols: Symbols, dtype: Any = None, value: Any = None) -> StructInfo:
    """A scalar: ``R.Prim("int64")``, ``R.Prim(value=n)``."""
    if isinstance(value, str):
        value = symbols.dimension(value)
    return PrimStructInfo(_dtype(dtype), value)


def _tuple(symbols: Symbols, *fields: Any) -> StructInfo:
    """A tuple: ``R.Tuple(R.Tensor, R.Shape)``."""
    if len(fields) == 1 and isinstance(fields[0], (list, tuple)):
        fields = tuple(fields[0])
    return TupleStructInfo(tuple(as_struct_info(f) for f in fields))


def _sequence(symbols: Symbols, element: Any = None) -> StructInfo:
    """A sequence of a length that run time decides: ``R.Sequence(R.Tensor("float32", ndim=2))``."""
    return SequenceStructInfo(ObjectStructInfo() if element is None else as_struct_info(element))


def _object(symbols: Symbols) -> StructInfo:
    """Anything."""
    return ObjectStructInfo()


def _callable(
    symbols: Symbols,
    params: Any = None,
    ret: Any = None,
    purity: bool | None = None,
    derive_func: Any = None,
) -> StructInfo:
    """A function: ``R.Callable((R.Tensor,), R.Tensor)``; without `params`, one of unknown
    parameters, of which the function registered as `derive_func` finds what a call gives.
    """
    result = ObjectStructInfo() if ret is None else as_struct_info(ret)
    if params is None:
        return FuncStructInfo.opaque_func(ret=result, derive_func=derive_func, purity=bool(purity))
    if not isinstance(params, (tuple, list)):
        params = (params,)
    pure = True if purity is None else purity
    infos = tuple(as_struct_info(p) for p in params)
    return FuncStructInfo(infos, result, pure, derive_func)


MAKERS: dict[str, Maker] = {
    "Tensor": Maker("Tensor", _tensor),
    "Shape": Maker("Shape", _shape),
    "Prim": Maker("Prim", _prim),
    "Tuple": Maker("Tuple", _tuple),
    "Sequence": Maker("Sequence", _sequence),
    "Object": Maker("Object", _object),
    "Callable": Maker("Callable", _callable),
}
