"""`R`: the graph language as script text writes it.

Every operator of `relax.op` is here under its own name: ``R.call_tir``, ``R.memory.alloc_storage``,
and those added later.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ..base import StructInfoError, submodules
from ..ir import FloatImm, IntImm, Op
from ..relax import (
    Call,
    Constant,
    DataTypeImm,
    ExternFunc,
    PrimValue,
    ShapeExpr,
    StringImm,
    TupleGetItem,
    as_relax,
    op,
)
from ..relax import Tuple as _Tuple
from ..relax import const as _const
from ..relax.dpl import PatternMatchingRewriter as _Rewriter
from ..runtime import cpu, device
from .reader import MAKERS, decorate_class, decorate_function, decorate_macro, records
from .reader.records import Step, marked, statement
from .reader.struct_info import as_struct_info

__all__ = [
    *MAKERS,
    "Else",
    "ExternFunc",
    "If",
    "ShapeExpr",
    "Then",
    "TupleGetItem",
    "arg",
    "const",
    "cpu",
    "dataflow",
    "device",
    "dtype",
    "emit",
    "emit_match_cast",
    "emit_te",
    "emit_var_binding",
    "emit_with_sinfo",
    "func_attr",
    "func_name",
    "func_ret_struct_info",
    "func_ret_value",
    "function",
    "macro",
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
Sequence = MAKERS["Sequence"]
Object = MAKERS["Object"]
Callable = MAKERS["Callable"]


@marked(script_language="relax")
def function(func: Any = None, **options: Any) -> Any:
    """Make a graph function out of a Python function.

    pure               it has no effect but its result (default: True)
    private            it has no public name
    keep_ret           with `private`: callers know no more than the declared result, even where
                       the body gives a finer one
    check_well_formed  check it when it is read (default: True)
    Raises ParseError, pointing into the source, for text that is not in the language.
    """
    if func is None:
        return records.Definition("R.function", _function, options)
    return decorate_function(func, sys._getframe(1), "relax", options)


def _function(func: Any, options: Any) -> Any:
    return decorate_function(func, sys._getframe(2), "relax", options)


@marked(script_language="module")
def rewriter(rewriter_mod: Any) -> _Rewriter:
    """Make a rewriter (a pass) out of a class of two graph functions of the same parameters,
    `pattern` and `replacement`, or out of such a module.

    Raises PatternError if they are no rule; see `relax.dpl.PatternMatchingRewriter.from_module`.
    """
    if isinstance(rewriter_mod, type):
        rewriter_mod = decorate_class(rewriter_mod, sys._getframe(1), {})
    return _Rewriter.from_module(rewriter_mod)


@marked(script_language="macro")
def macro(func: Any = None, **options: Any) -> Any:
    """Make statements that are put in place wherever a graph function calls them; what the last one
    returns is the value of the call.

    hygienic  free names mean what they mean at the definition (default), not at the call
    """
    if func is None:
        return lambda f: decorate_macro(f, options)
    return decorate_macro(func, options)


@statement
def func_attr(attrs: Mapping[Any, Any]) -> records.FuncAttr:
    """Attributes of the function."""
    return records.FuncAttr(attrs)


@statement
def dataflow() -> records.Dataflow:
    """``with R.dataflow():`` bindings without side effects or control flow."""
    return records.Dataflow()


@statement
def output(*values: Any) -> records.Output:
    """The variables of a dataflow block that are visible after it."""
    return records.Output(values)


def emit(value: Any, annotate_struct_info: Any = None) -> Any:
    """``y = R.emit(e)`` is ``y = e``. An IRBuilder binds `e` to a new variable, which it gives, of
    the struct info `annotate_struct_info` if that is given.
    """
    step = _emit("R.emit", value, annotate_struct_info)
    if not isinstance(step, Step):
        return step
    if annotate_struct_info is not None:
        raise StructInfoError(
            "R.emit: in text the annotation stands at the name, as in y: info = e"
        )
    return value


@statement
def _emit(shown: Any, *args: Any) -> Step:
    return Step(shown, "emit", args)


@statement
def emit_te(func: Any, *args: Any, **keywords: Any) -> records.EmitTe:
    """A call of the loop function that the tensor expression ``func(*args, **keywords)`` describes;
    the loop function joins the module.
    """
    return records.EmitTe(func, args, keywords)


# What only an IRBuilder writes; text has Python's own statements for it.


@statement
def arg(name: Any, struct_info: Any) -> Step:
    """A parameter."""
    return Step("R.arg", "arg", (name, struct_info))


@statement
def func_name(name: Any) -> Step:
    """The name of the function."""
    return Step("R.func_name", "func_name", (name,))


@statement
def func_ret_struct_info(ret_sinfo: Any) -> Step:
    """What the function is declared to return."""
    return Step("R.func_ret_struct_info", "func_ret_struct_info", (ret_sinfo,))


@statement
def func_ret_value(value: Any) -> Step:
    """What the function returns; its last statement."""
    return Step("R.func_ret_value", "func_ret_value", (value,))


def emit_with_sinfo(op: Any, args: Any, sinfo_args: Any = ()) -> Call:
    """A call of the operator of that name ("relax.call_pure_packed") which says what it returns."""
    infos = sinfo_args if isinstance(sinfo_args, (builtins.tuple, list)) else (sinfo_args,)
    return Call(Op.get(op), [as_relax(a) for a in args], None, [as_struct_info(i) for i in infos])


@statement
def emit_match_cast(value: Any, struct_info: Any) -> Step:
    """Bind `value`, checked when the program runs to be of `struct_info`."""
    return Step("R.emit_match_cast", "emit_match_cast", (value, struct_info))


@statement
def emit_var_binding(binding: Any) -> Step:
    """A binding made by hand; gives its variable."""
    return Step("R.emit_var_binding", "emit_var_binding", (binding,))


@statement
def If(condition: Any) -> Step:
    """``with R.If(condition) as i:``, and inside it `R.Then` and `R.Else`; `i.var` is the result,
    bound as the last variable of both branches is.
    """
    return Step("R.If", "if_", (condition,))


@statement
def Then() -> Step:
    """``with R.Then():`` what is computed if the condition of `R.If` holds."""
    return Step("R.Then", "then")


@statement
def Else() -> Step:
    """``with R.Else():`` what is computed if it does not."""
    return Step("R.Else", "otherwise_")


@statement
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
_OPERATORS = frozenset(op.__all__)
# Calls of other operators, which have no record of their own.
_WRITTEN_WITH_OTHERS = ("call_packed", "linear", "masked_fill")


def _offers(name: Any) -> bool:
    """Whether `name` is an operator or a family of operators."""
    member = vars(op).get(name)
    if isinstance(member, ModuleType):
        # A family that somebody added has no file.
        return member.__name__.startswith(_FAMILY) and (name in _OPERATORS or not member.__spec__)
    return hasattr(member, "op") or (name in _OPERATORS and name in _WRITTEN_WITH_OTHERS)


_absent = submodules(__name__)


def __getattr__(name: Any) -> Any:
    if _offers(name):
        return getattr(op, name)
    return _absent(name)


def __dir__() -> list[Any]:
    return [*__all__, *(name for name in sorted(_OPERATORS) if _offers(name))]
