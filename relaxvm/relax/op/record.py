"""One record per operator: `Op`, and the decorator that makes one from its inference rule.

    @op("nn.softmax", numpy=softmax_numpy, lower=softmax_compute)
    def softmax(x: Expr, *, axis: int = -1) -> StructInfo:
        ...                                  # the body is the inference rule
        return x.struct_info

The parameters' annotations say what they are: `Expr` and its kin (`Shape`, `Prim`, `Text`, `Dtype`)
are arguments of the call, everything else is an attribute; `sinfo_args` is what the call says
itself about its result. The decorated function, called by users, converts its arguments, checks
them with the rule, and gives the `Call`; it carries its record as `.op`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec

import numpy as np

from ...base import (
    UNKNOWN,
    DataType,
    DTypeError,
    RelaxvmError,
    Span,
    StructInfoError,
    TIRError,
)
from ...base import dtype as as_dtype
from ...ir.expr import FloatImm, IntImm, PrimExpr
from ...ir.module import VDevice
from ...ir.node import Map
from ...ir.op import Op as BaseOp
from ..derive import made_at, where
from ..expr import (
    Call,
    DataTypeImm,
    ExternFunc,
    GlobalVar,
    PrimValue,
    StringImm,
    Var,
    as_relax,
)
from ..struct_info import Expr, ShapeExpr, StructInfo, as_dims

__all__ = [
    "Dtype",
    "Missing",
    "Op",
    "Param",
    "Prim",
    "Shape",
    "Text",
    "attribute_value",
    "face_of",
    "missing",
    "op",
    "plain_value",
]

P = ParamSpec("P")

# What an argument is written as, for annotations: `Expr` takes anything `as_relax` takes.
Shape = Expr
"""An argument that is a shape: a sequence of dimensions or a shape expression."""
Prim = Expr
"""An argument that is a scalar: a number, a scalar expression or a value of Prim struct info."""
Text = Expr
"""An argument that is a constant string."""
Dtype = Expr
"""An argument that is a constant dtype."""

_UNSET: Any = inspect.Parameter.empty


@dataclass(frozen=True)
class Param:
    """A parameter of an operator.

    kind     "arg", "varargs" (any number of arguments) or "attr"
    form     the words of the annotation, as in "Shape" or "int"; says how a value is converted
    default  `Param.required` if it must be given
    """

    name: str
    kind: str
    form: str
    default: Any
    required = _UNSET


@dataclass(frozen=True)
class Missing:
    """A rule that an operator does not have, and why."""

    why: str


def missing(why: str) -> Missing:
    """Declares that an operator has no such rule."""
    return Missing(why)


class Op(BaseOp):
    """An operator of the graph language: everything known about it.

    rule     (*args, **attrs) -> StructInfo, as written
    params   its arguments and attributes in order, with defaults
    numpy    what it means: (*arrays, **attrs) -> array; or `missing(why)`
    lower    (builder, call) -> Expr, how it is legalised; or `missing(why)`
    grad     (ops, call, y, gy) -> one gradient or None per argument; or `missing(why)`
    layout   layout rule; or `missing(why)`
    decompose  (builder, call, training) -> Expr in simpler operators, None to keep it; or None
    pure     whether a call has no effect but its result
    """

    __slots__ = (
        "_arity",
        "decompose",
        "function",
        "grad",
        "layout",
        "lower",
        "numpy",
        "params",
        "pure",
        "rule",
        "takes_sinfo",
    )
    rule: Callable[..., StructInfo]
    params: tuple[Param, ...]
    numpy: Any
    lower: Any
    grad: Any
    layout: Any
    decompose: Any
    pure: bool
    takes_sinfo: bool
    function: Callable[..., Call]
    _arity: tuple[int, int | None]

    def __init__(self, name: str, rule: Callable[..., StructInfo], **rules: Any) -> None:
        super().__init__(name)
        fields = {"rule": rule, "params": _params(rule, name), **rules}
        for key, value in fields.items():
            object.__setattr__(self, key, value)
        arguments = [p for p in self.params if p.kind != "attr"]
        least = sum(p.kind == "arg" and p.default is _UNSET for p in arguments)
        most = None if any(p.kind == "varargs" for p in arguments) else len(arguments)
        object.__setattr__(self, "_arity", (least, most))
        takes = "sinfo_args" in inspect.signature(rule).parameters
        object.__setattr__(self, "takes_sinfo", takes)

    def get_attr(self, attr_name: str) -> Any:
        """See `ir.Op.get_attr`; None for a rule that is declared missing."""
        found = super().get_attr(attr_name)
        return None if isinstance(found, Missing) else found

    def infer(
        self,
        args: tuple[Any, ...],
        attrs: Mapping[str, Any],
        sinfo_args: tuple[StructInfo, ...] = (),
        span: Span = UNKNOWN,
    ) -> StructInfo:
        """The struct info of a call. Raises StructInfoError naming the operator, its arguments and
        the source line.
        """
        least, most = self._arity
        if len(args) < least or (most is not None and len(args) > most):
            wanted = str(least) if least == most else f"{least} to {most}" if most else f"{least}+"
            raise StructInfoError(
                f"{self.short}: wanted {wanted} arguments, got {len(args)}{where(span)}"
            )
        keywords = dict(attrs)
        if self.takes_sinfo or sinfo_args:
            keywords["sinfo_args"] = sinfo_args
        try:
            return self.rule(*args, **keywords)
        except (StructInfoError, TIRError, DTypeError) as error:
            # Numbers that no dtype holds are refused by the scalar language and by dtypes.
            raise StructInfoError(self._explain(str(error), args, span)) from None
        except TypeError as error:
            # Raised by the call itself, not inside the rule: the attributes are not those of the
            # signature.
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                has = ", ".join(p.name for p in self.params if p.kind == "attr") or "none"
                got = ", ".join(map(str, attrs)) or "none"
                raise StructInfoError(
                    f"{self.short}: wanted attributes {has}; got {got}"
                    f"{' and sinfo_args' if sinfo_args else ''}{where(span)}"
                ) from None
            raise

    @property
    def short(self) -> str:
        """The name without ``relax.``, as it stands in script text after ``R.``."""
        return self.name.removeprefix("relax.")

    def _explain(self, message: str, args: tuple[Any, ...], span: Span) -> str:
        lines = [message if message.startswith(f"{self.short}:") else f"{self.short}: {message}"]
        named = [p for p in self.params if p.kind != "attr"]
        for i, arg in enumerate(args):
            if isinstance(arg, (GlobalVar, ExternFunc, StringImm, DataTypeImm)):
                continue
            name = named[min(i, len(named) - 1)].name if named else f"argument {i}"
            variable = (
                f" ({arg.name_hint})" if isinstance(arg, Var) and arg.name_hint != name else ""
            )
            lines.append(f"  {name}{variable}: {arg.struct_info}{made_at(arg)}")
        return "\n".join(lines) + where(span)


_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_ARGUMENTS = {"Expr", "Shape", "Prim", "Text", "Dtype"}


def _params(rule: Callable[..., Any], name: str) -> tuple[Param, ...]:
    made = []
    for p in inspect.signature(rule).parameters.values():
        if p.name == "sinfo_args":
            continue
        if p.annotation is _UNSET:
            raise TypeError(f"operator {name}: parameter {p.name} needs an annotation")
        form = p.annotation.__name__ if isinstance(p.annotation, type) else str(p.annotation)
        # A name may be written with its module: relax.Expr, expr.DataType.
        while "[" in form and form != (bare := _BRACKETS.sub("", form)):
            form = bare
        form = " | ".join(w.strip().rpartition(".")[2] for w in form.split("|"))
        words = set(form.split(" | "))
        is_argument = bool(words & _ARGUMENTS)
        kind = "attr" if not is_argument else "varargs" if p.kind is p.VAR_POSITIONAL else "arg"
        form = next((w for w in words if w in _ARGUMENTS), form)
        made.append(Param(p.name, kind, form, p.default))
    return tuple(made)


# -- conversion of what users write
# ---------------------------------------------------------------------------------


def _shape_argument(value: Any) -> Any:
    # Sizes that numpy computed, such as np.prod(x.shape), are its own integers.
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu":
        value = tuple(value.tolist())
    if isinstance(value, (tuple, list)):
        dims = tuple(v.item() if isinstance(v, np.integer) else v for v in value)
        if all(isinstance(v, (int, PrimExpr, PrimValue)) for v in dims):
            value = ShapeExpr(tuple(v.value if isinstance(v, PrimValue) else v for v in dims))
    if isinstance(value, ShapeExpr) and value.open:
        as_dims(value.values)
    return as_relax(value)


def _prim_argument(value: Any) -> Any:
    return as_relax(value.item() if _is_numpy_scalar(value) else value)


def _is_numpy_scalar(value: Any) -> bool:
    return isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0)


_ARGUMENT_FORMS: dict[str, Callable[[Any], Any]] = {
    "Expr": as_relax,
    "Shape": _shape_argument,
    "Prim": _prim_argument,
    "Text": as_relax,
    "Dtype": lambda v: v if isinstance(v, Expr) else DataTypeImm(_dtype(v, "dtype")),
}


def _dtype(value: Any, what: str) -> DataType:
    try:
        return as_dtype(value)
    except (TypeError, ValueError) as error:
        raise StructInfoError(f"{what}: {error}") from None


def plain_value(value: Any) -> Any:
    """Constants of the scalar language and of numpy as Python numbers, in sequences too."""
    if _is_numpy_scalar(value):
        return value.item()
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return tuple(value.tolist())
    if isinstance(value, (IntImm, FloatImm)):
        return bool(value.value) if value.dtype.is_bool else value.value
    if isinstance(value, PrimValue):
        return plain_value(value.value)
    if isinstance(value, StringImm):
        return value.value
    if isinstance(value, (list, tuple)):
        try:
            return tuple(plain_value(v) for v in value)
        except RecursionError:
            raise StructInfoError("a list is nested too deep, or holds itself") from None
    return value


def attribute_value(param: Param, value: Any) -> Any:
    """`plain_value` of an attribute; where a dtype may be None, "" and "void" say the same."""
    value = plain_value(value)
    if isinstance(value, str) and value in ("", "void"):
        if {"DataType", "None"} <= set(param.form.split(" | ")):
            return None
    return value


_ATTRIBUTE_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "str": (str,),
    "None": (type(None),),
    "tuple": (tuple,),
    "Map": (Map,),
    "DataType": (DataType,),
    "VDevice": (VDevice,),
}


def _attribute(param: Param, value: Any, op_name: str) -> Any:
    value = attribute_value(param, value)
    alternatives = param.form.split(" | ")
    if "DataType" in alternatives and isinstance(value, (str, type, np.dtype)):
        if "str" not in alternatives:
            return _dtype(value, f"{op_name}: attribute {param.name}")
    if "Map" in alternatives and isinstance(value, dict):
        return Map(value)
    wanted: list[type] = []
    for word in alternatives:
        known = _ATTRIBUTE_TYPES.get(word)
        if known is None:
            return value
        wanted.extend(known)
    if isinstance(value, bool) and bool not in wanted and int in wanted:
        raise StructInfoError(
            f"{op_name}: attribute {param.name}: wanted {param.form}, got {value!r}"
        )
    if not isinstance(value, tuple(wanted)):
        raise StructInfoError(
            f"{op_name}: attribute {param.name}: wanted {param.form}, got "
            f"{type(value).__name__}: {value!r}"
        )
    if alternatives[0] != "float" or type(value) is not int:
        return value
    try:
        return float(value)
    except OverflowError:
        raise StructInfoError(
            f"{op_name}: attribute {param.name}: the integer is beyond the range of floats"
        ) from None


def _split(record: Op, bound: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    attrs: dict[str, Any] = {}
    skipped = ""
    for p in record.params:
        value = bound[p.name]
        if p.kind == "attr":
            attrs[p.name] = _attribute(p, value, record.short)
        elif p.kind == "varargs":
            args.extend(_argument(record, p, v) for v in value)
        elif value is None and p.default is None:
            skipped = skipped or p.name
        elif skipped:
            raise StructInfoError(
                f"{record.short}: {p.name} is given but {skipped}, which stands before it, is not; "
                f"give {skipped} too"
            )
        else:
            args.append(_argument(record, p, value))
    return args, attrs


def _argument(record: Op, param: Param, value: Any) -> Any:
    try:
        return _ARGUMENT_FORMS[param.form](value)
    except RelaxvmError as error:
        # Of the scalar language, or of the runtime if it is an array of what no tensor holds.
        raise StructInfoError(f"{record.short}: argument {param.name}: {error}") from None


def op(
    name: str,
    *,
    numpy: Any = None,
    lower: Any = None,
    grad: Any = None,
    layout: Any = None,
    decompose: Any = None,
    pure: bool = True,
) -> Callable[[Callable[P, StructInfo]], Callable[P, Call]]:
    """Make an operator named ``relax.<name>`` whose inference rule is the decorated function (see
    above).
    """

    def make(rule: Callable[P, StructInfo]) -> Callable[P, Call]:
        record = Op(
            f"relax.{name}",
            rule,
            numpy=numpy,
            lower=lower,
            grad=grad,
            layout=layout,
            decompose=decompose,
            pure=pure,
        )
        signature = inspect.signature(rule)

        @functools.wraps(rule)
        def build(*args: Any, **keywords: Any) -> Call:
            span = keywords.pop("span", UNKNOWN)
            try:
                bound = signature.bind(*args, **keywords)
            except TypeError as error:
                raise StructInfoError(
                    f"{record.short}: {error}; it is {record.short}{signature}"
                ) from None
            bound.apply_defaults()
            values, attrs = _split(record, bound.arguments)
            declared: Any = bound.arguments["sinfo_args"] if record.takes_sinfo else ()
            if declared is None:
                declared = ()
            elif isinstance(declared, StructInfo):
                declared = (declared,)
            if not isinstance(declared, (tuple, list)):
                raise StructInfoError(
                    f"{record.short}: sinfo_args: wanted struct info, got {type(declared).__name__}"
                )
            if span is not None and not isinstance(span, Span):
                raise StructInfoError(f"{record.short}: span: got {type(span).__name__}, no Span")
            return Call(record, tuple(values), attrs, tuple(declared), None, span)  # type: ignore[arg-type]

        build.op = record  # type: ignore[attr-defined]
        object.__setattr__(record, "function", build)
        return build  # type: ignore[return-value]

    return make


def face_of(build: Callable[..., Call]) -> Callable[[Callable[..., Call]], Callable[..., Call]]:
    """Decorator: what users call for the operator that `build` makes; it prepares the arguments."""
    record = build.op  # type: ignore[attr-defined]

    def mark(face: Callable[..., Call]) -> Callable[..., Call]:
        face.__doc__ = build.__doc__
        face.op = record  # type: ignore[attr-defined]
        object.__setattr__(record, "function", face)
        return face

    return mark
