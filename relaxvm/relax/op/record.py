"""One record per operator: `Op`, and the decorator that makes one from its inference rule.

    @op("nn.softmax", numpy=softmax_numpy, lower=softmax_compute)
    def softmax(x: Expr, *, axis: int = -1) -> StructInfo:
        ...                                  # the body is the inference rule
        return x.struct_info

The types of the parameters say what they are: `Expr` and its kin (`Shape`, `Prim`, `Text`,
`Dtype`) are arguments of the call, everything else is an attribute; `sinfo_args` is what the call
says itself about its result. The decorated function, called by users, converts its arguments,
checks them with the rule, and gives the `Call`; it carries its record as `.op`.
"""

from __future__ import annotations

import enum
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, Protocol, TypeVar

import numpy as np

from ...base import (
    UNKNOWN,
    DataType,
    DTypeError,
    RelaxvmError,
    Span,
    StructInfoError,
    TIRError,
    record,
)
from ...base import dtype as as_dtype
from ...ir import FloatImm, IntImm, Map, PrimExpr
from ...ir import Op as BaseOp
from ..derive import made_at, where
from ..expr import (
    Call,
    Constant,
    DataTypeImm,
    ExternFunc,
    GlobalVar,
    PrimValue,
    StringImm,
    TupleGetItem,
    Var,
    as_relax,
)
from ..rules import Decompose, Grad, Layout, Lower, LowerBuilder
from ..struct_info import Expr, ShapeExpr, StructInfo, TensorStructInfo, as_dims
from .sizes import are_known, checks, infer_unknown, is_constant

P = ParamSpec("P")


class Form(enum.Enum):
    """How an argument is written. Each becomes an expression of the graph language."""

    EXPR = "anything that `as_relax` takes"
    SHAPE = "a sequence of dimensions, or a shape expression"
    PRIM = "a number, a scalar expression, or a value of Prim struct info"
    TEXT = "a constant string"
    DTYPE = "a constant dtype"


# For the types of parameters. A rule gets an `Expr`; what callers write is said by the form.
Shape = Annotated[Any, Form.SHAPE]
Prim = Annotated[Any, Form.PRIM]
Text = Annotated[Any, Form.TEXT]
Dtype = Annotated[Any, Form.DTYPE]

_UNSET: Any = inspect.Parameter.empty


@record
class Param:
    """A parameter of an operator: an argument of its calls, or an attribute.

    form      how an argument is written; None for an attribute
    variadic  whether it stands for any number of arguments
    types     what an attribute may be; empty: anything
    default   `Param.required` if it must be given
    """

    name: str
    form: Form | None
    variadic: bool
    types: tuple[type, ...]
    default: Any
    required = _UNSET

    @property
    def type_names(self) -> str:
        """What an attribute may be, for messages: ``int | tuple | None``."""
        return " | ".join("None" if t is types.NoneType else t.__name__ for t in self.types)


ELEMENTWISE = "elementwise"
"""The layout rule of what takes its operands element by element, broadcast to the result."""


@record
class Missing:
    """A rule that an operator does not have, and why."""

    why: str


def missing(why: str) -> Missing:
    """Declares that an operator has no such rule."""
    return Missing(why)


class Operator(Protocol[P]):
    """What users call for an operator: it converts arguments, checks them, gives the call."""

    op: Op
    __name__: str

    def __call__(self, *args: P.args, **keywords: P.kwargs) -> Call: ...


class Op(BaseOp):
    """An operator of the graph language: everything known about it.

    rule     (*args, **attrs) -> StructInfo, as written
    params   its arguments and attributes in order, with defaults
    numpy    what it means: (*arrays, **attrs) -> array; or `missing(why)`
    lower    (builder, call) -> Expr, how it is legalised; or `missing(why)`
    grad     (ops, call, y, gy) -> one gradient or None per argument; or `missing(why)`
    layout   layout rule, `ELEMENTWISE`, or `missing(why)`; None: it follows from the attributes of
             an operator of ours
    decompose  (builder, call, training) -> Expr in simpler operators, None to keep it; or None
    pure     whether a call has no effect but its result
    build    (*args, span=..., **attrs) -> Call, of arguments as users write them
    function what users call; it may prepare the arguments for `build`
    takes_unknown  whether the rule itself says what follows where sizes and ranks are not known
    """

    __slots__ = (
        "_arity",
        "build",
        "decompose",
        "function",
        "grad",
        "layout",
        "lower",
        "numpy",
        "params",
        "pure",
        "rule",
        "signature",
        "takes_sinfo",
        "takes_unknown",
    )
    rule: Callable[..., StructInfo]
    params: tuple[Param, ...]
    signature: inspect.Signature
    numpy: Any
    lower: Lower | Missing | None
    grad: Grad | Missing | None
    layout: Layout | Missing | str | None
    decompose: Decompose | None
    pure: bool
    takes_sinfo: bool
    takes_unknown: bool
    build: Callable[..., Call]
    function: Operator[...]
    _arity: tuple[int, int | None]

    def __init__(self, name: str, rule: Callable[..., StructInfo], **rules: Any) -> None:
        super().__init__(name)
        self.rule = rule
        for key, value in rules.items():
            setattr(self, key, value)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # What the types of the rule say is read when it is first needed: it takes a while.
            if name not in ("_arity", "params", "signature", "takes_sinfo"):
                raise AttributeError(f"Op has no attribute {name!r}")
            self.signature = inspect.signature(self.rule)
            self.takes_sinfo = "sinfo_args" in self.signature.parameters
            self.params = _params(self.rule, self.signature, self.name)
            arguments = [p for p in self.params if p.form is not None]
            least = sum(not p.variadic and p.default is _UNSET for p in arguments)
            self._arity = least, None if any(p.variadic for p in arguments) else len(arguments)
            return getattr(self, name)

    @property
    def num_inputs(self) -> int:
        """How many arguments a call has at most, attributes aside; -1 if any number."""
        most = self._arity[1]
        return -1 if most is None else most

    def get_attr(self, attr_name: str) -> Any:
        """See `ir.Op.get_attr`; None for a rule that is declared missing."""
        value = super().get_attr(attr_name)
        return None if isinstance(value, Missing) else value

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
        # As `items` gives them, tuples are plain ones, and it is quick.
        keywords = dict(attrs.items())
        if self.takes_sinfo or sinfo_args:
            keywords["sinfo_args"] = sinfo_args
        try:
            if self.takes_unknown:
                return self.rule(*args, **keywords)
            if not are_known(args):
                return infer_unknown(functools.partial(self.rule, **keywords), args)
            return self.rule(*args, **keywords)
        except (StructInfoError, TIRError, DTypeError) as error:
            # Numbers that no dtype holds are refused by the scalar language and by dtypes.
            raise StructInfoError(self._explain(str(error), args, span)) from None
        except TypeError:
            try:
                self.signature.bind(*args, **keywords)
            except TypeError:
                has = ", ".join(p.name for p in self.params if p.form is None) or "none"
                got = ", ".join(map(str, attrs)) or "none"
                raise StructInfoError(
                    f"{self.short}: wanted attributes {has}; got {got}"
                    f"{' and sinfo_args' if sinfo_args else ''}{where(span)}"
                ) from None
            raise

    def checked(self, builder: LowerBuilder, call: Call) -> Call:
        """`call`, with what its rule wants of sizes checked by the program that `builder` writes,
        where that is not proved, and with what its struct info is then; as it is if a size of an
        argument has no name.
        """
        if self.takes_unknown or (
            is_constant(call.struct_info) and all([is_constant(a.struct_info) for a in call.args])
        ):
            return call
        if not are_known(call.args):
            return call
        constants = any([type(a) is Constant for a in call.args])
        key = None if constants else question(self, call.args, call.attrs, call.struct_info)
        if key in builder.legalised:
            return call
        names = [p.name for p in self.params if p.form is not None]
        with checks(builder, dict(zip(names, call.args))) as program:
            info = self.infer(call.args, call.attrs, call.sinfo_args, call.span)
        if info is call.struct_info:
            if key is not None and not program.in_doubt:
                builder.legalised[key] = call
            return call
        return Call(self, call.args, call.attrs, call.sinfo_args, info, call.span)

    @property
    def short(self) -> str:
        """The name without ``relax.``, as it stands in script text after ``R.``."""
        return self.name.removeprefix("relax.")

    def _explain(self, message: str, args: tuple[Any, ...], span: Span) -> str:
        lines = [message if message.startswith(f"{self.short}:") else f"{self.short}: {message}"]
        named = [p for p in self.params if p.form is not None]
        for i, arg in enumerate(args):
            if isinstance(arg, (GlobalVar, ExternFunc, StringImm, DataTypeImm)):
                continue
            name = named[min(i, len(named) - 1)].name if named else f"argument {i}"
            variable = (
                f" ({arg.name_hint})" if isinstance(arg, Var) and arg.name_hint != name else ""
            )
            lines.append(f"  {name}{variable}: {arg.struct_info}{made_at(arg)}")
        return "\n".join(lines) + where(span)


_PLAIN = (int, float, str, types.NoneType)


def is_tensor(a: Any) -> bool:
    """Whether `a` is an argument of which struct info tells all but its elements."""
    return isinstance(a, (Var, Constant, TupleGetItem)) and isinstance(
        a.struct_info, TensorStructInfo
    )


def laid_flat(args: Iterable[Any]) -> list[Any]:
    """`args` with the fields of lists in their places."""
    flat: list[Any] = []
    for a in args:
        flat += a if isinstance(a, (list, tuple)) else (a,)
    return flat


def question(fn: Any, args: tuple[Any, ...], attrs: Mapping[str, Any], more: Any = None) -> Any:
    """What decides what ``fn(*args, **attrs)`` gives, a loop function or struct info, and `more`;
    None if that cannot be told. It holds as long as `args` live.

    Struct info, shapes and scalar expressions are interned: they are told apart by identity.
    """
    parts: list[Any] = [fn, more]
    parts.append(tuple([len(a) if isinstance(a, (list, tuple)) else -1 for a in args]))
    for a in laid_flat(args):
        if is_tensor(a):
            parts.append(id(a.struct_info))
        elif isinstance(a, (ShapeExpr, PrimExpr)):
            parts.append(("scalar", id(a)))
        elif isinstance(a, PrimValue):
            parts.append(("scalar", id(a.value)))
        else:
            return None
    for k, v in sorted(attrs.items()):
        # Values that print the same are the same.
        for item in v if isinstance(v, tuple) else (v,):
            if not isinstance(item, _PLAIN):
                return None
        parts.append((k, type(v), repr(v)))
    return tuple(parts)


def _params(rule: Callable[..., Any], signature: inspect.Signature, name: str) -> tuple[Param, ...]:
    """The parameters of a rule, from the types of its annotations."""
    params = []
    try:
        hints = typing.get_type_hints(rule, include_extras=True)
    except NameError as error:
        raise TypeError(f"operator {name}: an annotation names no type: {error}") from None
    for p in signature.parameters.values():
        if p.name == "sinfo_args":
            continue
        if p.name not in hints:
            raise TypeError(f"operator {name}: parameter {p.name} needs an annotation")
        choices = tuple(dict.fromkeys(_choices(hints[p.name])))
        form = next((c for c in choices if isinstance(c, Form)), None)
        variadic = p.kind is p.VAR_POSITIONAL
        plain = [c for c in choices if isinstance(c, type) and c is not Any]
        if variadic and form is None:
            raise TypeError(f"operator {name}: *{p.name} are arguments: annotate them as Expr")
        checked = form is None and len(plain) == len(choices)
        params.append(Param(p.name, form, variadic, tuple(plain) if checked else (), p.default))
    return tuple(params)


def _choices(hint: Any) -> Iterator[Any]:
    """What a type takes: forms of arguments, classes of attributes, `Any`."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        form = next((note for note in hint.__metadata__ if isinstance(note, Form)), None)
        yield from (form,) if form is not None else _choices(hint.__origin__)
    elif origin in (typing.Union, types.UnionType):
        for choice in typing.get_args(hint):
            yield from _choices(choice)
    elif origin is Literal:
        yield from map(type, typing.get_args(hint))
    elif isinstance(hint, TypeVar):
        for choice in hint.__constraints__ or (hint.__bound__ or Any,):
            yield from _choices(choice)
    elif hasattr(hint, "__supertype__"):  # a NewType
        yield from _choices(hint.__supertype__)
    elif isinstance(hint, type) and issubclass(hint, Expr):
        yield Form.EXPR
    else:
        yield hint if origin is None else origin


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


_ARGUMENT_FORMS: dict[Form, Callable[[Any], Any]] = {
    Form.EXPR: as_relax,
    Form.SHAPE: _shape_argument,
    Form.PRIM: _prim_argument,
    Form.TEXT: as_relax,
    Form.DTYPE: lambda v: v if isinstance(v, Expr) else DataTypeImm(_dtype(v, "dtype")),
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
        if DataType in param.types and types.NoneType in param.types:
            return None
    return value


def _attribute(param: Param, value: Any, op_name: str) -> Any:
    value = attribute_value(param, value)
    wanted = param.types
    if not wanted:
        return value
    if DataType in wanted and isinstance(value, (str, type, np.dtype)):
        if str not in wanted:
            return _dtype(value, f"{op_name}: attribute {param.name}")
    if Map in wanted and isinstance(value, dict):
        return Map(value)
    # An int may stand for a float, but True for neither.
    is_number = float in wanted and isinstance(value, int) and not isinstance(value, bool)
    if isinstance(value, bool) and bool not in wanted and (int in wanted or float in wanted):
        raise StructInfoError(
            f"{op_name}: attribute {param.name}: wanted {param.type_names}, got {value!r}"
        )
    if not isinstance(value, wanted) and not is_number:
        raise StructInfoError(
            f"{op_name}: attribute {param.name}: wanted {param.type_names}, got "
            f"{type(value).__name__}: {value!r}"
        )
    if wanted[0] is not float or type(value) is not int:
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
        if p.form is None:
            attrs[p.name] = _attribute(p, value, record.short)
        elif p.variadic:
            args.extend(_argument(record, p.name, p.form, v) for v in value)
        elif value is None and p.default is None:
            skipped = skipped or p.name
        elif skipped:
            raise StructInfoError(
                f"{record.short}: {p.name} is given but {skipped}, which stands before it, is not; "
                f"give {skipped} too"
            )
        else:
            args.append(_argument(record, p.name, p.form, value))
    return args, attrs


def _argument(record: Op, name: str, form: Form, value: Any) -> Any:
    try:
        return _ARGUMENT_FORMS[form](value)
    except RelaxvmError as error:
        # Of the scalar language, or of the runtime if it is an array of what no tensor holds.
        raise StructInfoError(f"{record.short}: argument {name}: {error}") from None


def op(
    name: str,
    numpy: Any = None,
    lower: Lower | Missing | None = None,
    grad: Grad | Missing | None = None,
    layout: Layout | Missing | str | None = None,
    *,
    decompose: Decompose | None = None,
    pure: bool = True,
    takes_unknown: bool = False,
) -> Callable[[Callable[P, StructInfo]], Operator[P]]:
    """Make an operator named ``relax.<name>`` whose inference rule is the decorated function (see
    above). Its other rules are those of `Op`, in its order.
    """

    def make(rule: Callable[P, StructInfo]) -> Operator[P]:
        ours = rule.__module__.startswith(f"{_ROOM}.")
        place = None if ours else _place_of(name)
        record = Op(
            f"relax.{name}",
            rule,
            numpy=numpy,
            lower=lower,
            grad=grad,
            layout=layout,
            decompose=decompose,
            pure=pure,
            takes_unknown=takes_unknown,
        )

        @functools.wraps(rule)
        def build(*args: Any, **keywords: Any) -> Call:
            span = keywords.pop("span", UNKNOWN)
            try:
                bound = record.signature.bind(*args, **keywords)
            except TypeError as error:
                raise StructInfoError(
                    f"{record.short}: {error}; it is {record.short}{record.signature}"
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
            if span is None:
                span = UNKNOWN
            elif not isinstance(span, Span):
                raise StructInfoError(f"{record.short}: span: got {type(span).__name__}, no Span")
            return Call(record, tuple(values), attrs, tuple(declared), None, span)

        record.build = build
        face = _as_face(build, record)
        if place is not None:
            setattr(place, name.rpartition(".")[2], face)
        return face

    return make


_ROOM = __name__.rpartition(".")[0]


def _place_of(name: str) -> types.ModuleType:
    """Where somebody's own operator goes, so that text finds it as ``R.name``: `relax.op`, or a
    family there. Raises StructInfoError where something else stands.
    """
    family, _, last = name.rpartition(".")
    room = sys.modules[_ROOM]
    place = vars(room).get(family) if family else room
    if place is None and family.isidentifier():
        place = types.ModuleType(f"{_ROOM}.{family}", "Operators of somebody's own.")
        place.__path__ = []
        setattr(room, family, place)
    there = getattr(place, last, None)
    if not hasattr(place, "__path__") or not (there is None or hasattr(there, "op")):
        raise StructInfoError(
            f"operator {name}: relax.op.{name} is something else; wanted a free name, or one in a "
            "family (demo.name)"
        )
    return typing.cast("types.ModuleType", place)


def face_of(build: Operator[...]) -> Callable[[Callable[P, Call]], Operator[P]]:
    """Decorator: what users call for the operator that `build` makes; it prepares the arguments."""

    def mark(face: Callable[P, Call]) -> Operator[P]:
        face.__doc__ = face.__doc__ or build.__doc__
        return _as_face(face, build.op)

    return mark


def _as_face(function: Callable[..., Call], record: Op) -> Operator[Any]:
    """`function` as what users call for `record`. It stays a plain function, with the record."""
    face = typing.cast("Operator[Any]", function)
    face.op = record
    record.function = face
    return face
