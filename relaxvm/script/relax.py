"""`R`: the graph language as script text writes it.

Every operator of `relax.op` is here under its own name: ``R.call_tir``, ``R.memory.alloc_storage``,
and those added later.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ..base import submodules
from ..ir import FloatImm, IntImm
from ..relax import (
    Constant,
    DataTypeImm,
    ExternFunc,
    PrimValue,
    ShapeExpr,
    StringImm,
    TupleGetItem,
    op,
)
from ..relax import Tuple as _Tuple
from ..relax import const as _const
from ..runtime import cpu, device
from .reader import MAKERS, decorate_function, records

__all__ = [
    "Callable",
    "ExternFunc",
    "Object",
    "Prim",
    "Shape",
    "ShapeExpr",
    "Tensor",
    "Tuple",
    "TupleGetItem",
    "const",
    "cpu",
    "dataflow",
    "device",
    "dtype",
    "emit",
    "emit_te",
    "func_attr",
    "function",
    "match_cast",
    "output",
    "prim_value",
    "shape",
    "str",
    "tuple",
]

Tensor = MAKERS["Tensor"]
Shape = MAKERS["Shape"]
Prim = MAKERS["Prim"]
Tuple = MAKERS["Tuple"]
Object = MAKERS["Object"]
Callable = MAKERS["Callable"]


def function(func: Any = None, **options: Any) -> Any:
    """Make a graph function out of a Python function.

    pure               it has no effect but its result (default: True)
    private            it has no public name
    check_well_formed  check it when it is read (default: True)
    Raises ParseError, pointing into the source, for text that is not in the language.
    """
    if func is None:
        return lambda f: decorate_function(f, sys._getframe(1), "relax", options)
    return decorate_function(func, sys._getframe(1), "relax", options)


function.script_language = "relax"  # type: ignore[attr-defined]


def func_attr(attrs: Mapping[Any, Any]) -> records.FuncAttr:
    """Attributes of the function."""
    return records.FuncAttr(attrs)


def dataflow() -> records.Dataflow:
    """``with R.dataflow():`` bindings without side effects or control flow."""
    return records.Dataflow()


def output(*values: Any) -> records.Output:
    """The variables of a dataflow block that are visible after it."""
    return records.Output(values)


def emit(value: Any) -> Any:
    """``y = R.emit(e)`` is ``y = e``."""
    return value


def emit_te(func: Any, *args: Any, **keywords: Any) -> records.EmitTe:
    """A call of the loop function that the tensor expression ``func(*args, **keywords)`` describes;
    the loop function joins the module.
    """
    return records.EmitTe(func, args, keywords)


def match_cast(value: Any, struct_info: Any) -> records.MatchCastSpec:
    """`value`, checked when the program runs to be of `struct_info`; symbols first met there are
    bound.
    """
    return records.MatchCastSpec(value, struct_info)


def tuple(*fields: Any) -> _Tuple:
    """Several values as one."""
    return _Tuple(fields)


def shape(values: Any) -> ShapeExpr:
    """A shape as a value."""
    return ShapeExpr(values)


def prim_value(value: Any) -> PrimValue:
    """A scalar as a value."""
    return PrimValue(value)


def str(value: Any) -> StringImm:
    """A string as a value."""
    return StringImm(value)


def dtype(value: Any) -> DataTypeImm:
    """A dtype as a value."""
    return DataTypeImm(getattr(value, "dtype", value))


def const(value: Any, dtype: Any = None) -> Constant:
    """A constant array: a number, a nested list or an array."""
    if isinstance(value, (IntImm, FloatImm)):
        dtype = value.dtype if dtype is None else dtype
        value = value.value
    return _const(value, getattr(dtype, "dtype", dtype))


_FAMILY = f"{op.__name__}."
# Calls of other operators, which have no record of their own.
_WRITTEN_WITH_OTHERS = ("call_packed", "linear", "masked_fill")


def _offers(name: Any) -> bool:
    """Whether `name` is an operator or a family of operators."""
    found = vars(op).get(name)
    if isinstance(found, ModuleType):
        return found.__name__.startswith(_FAMILY) and name in op.__all__
    return name in op.__all__ and (hasattr(found, "op") or name in _WRITTEN_WITH_OTHERS)


_absent = submodules(__name__)


def __getattr__(name: Any) -> Any:
    if _offers(name):
        return getattr(op, name)
    return _absent(name)


def __dir__() -> list[Any]:
    return [*__all__, *(name for name in op.__all__ if _offers(name))]
