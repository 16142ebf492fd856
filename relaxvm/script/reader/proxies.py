"""Names of `T` that are both an annotation and a function: dtypes and `T.Buffer`."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from ...base import DataType, TIRError, record
from ...base import dtype as as_dtype
from ...ir import PointerType, PrimExpr, PrimType, SizeVar, Var, cast, const
from ...tir import Buffer, decl_buffer

P = ParamSpec("P")
R = TypeVar("R")

# The name of a buffer or variable that script text has not named yet.
UNNAMED = {"buffer": "buffer", "var": ""}


class DTypeFunction:
    """A dtype in script text: ``x: T.int32``, ``T.int32(3)``, ``T.int32(x)`` (a cast), ``n =
    T.int32()`` (a symbol).
    """

    def __init__(self, dtype: str) -> None:
        self.dtype: DataType = as_dtype(dtype)
        self.__name__ = str(self.dtype)

    def __call__(self, expr: Any = None, is_size_var: bool = False) -> PrimExpr:
        """A new variable, the constant `expr`, or `expr` cast to the dtype."""
        if expr is None:
            return (SizeVar if is_size_var else Var)(UNNAMED["var"], self.dtype)
        if isinstance(expr, str):
            if not self.dtype.is_float:
                raise TIRError(f"T.{self.dtype} of a string: wanted a number, got {expr!r}")
            try:
                return const(float(expr), self.dtype)
            except ValueError:
                raise TIRError(f'wanted "inf", "-inf", "nan" or a number, got {expr!r}') from None
        if isinstance(expr, PrimExpr) or hasattr(expr, "__prim_expr__"):
            return cast(self.dtype, expr)
        try:
            return const(expr, self.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, TIRError):
                raise
            raise TIRError(
                f"T.{self.dtype}: wanted a number, got {type(expr).__name__}: {expr!r}"
            ) from None

    def __repr__(self) -> str:
        return f"T.{self.dtype}"


class HandleFunction(DTypeFunction):
    """``T.handle`` (an untyped pointer, or a buffer parameter) and ``T.handle("float32",
    "global")``.
    """

    def __call__(  # type: ignore[override]
        self, dtype: Any = None, storage_scope: str = "", *, is_size_var: bool = False
    ) -> Var:
        """A new pointer variable; typed if `dtype` is given."""
        if dtype is None:
            return Var(UNNAMED["var"], self.dtype)
        if isinstance(dtype, DTypeFunction):
            dtype = dtype.dtype
        return Var(UNNAMED["var"], PointerType(PrimType(as_dtype(dtype)), storage_scope))

    def __getitem__(self, keys: Any) -> Var:
        return self(*keys) if isinstance(keys, tuple) else self(keys)


@record(frozen=False)
class BufferArguments:
    """What `T.Buffer`, `T.alloc_buffer` and their kin are told of a buffer."""

    shape: Any
    dtype: Any = "float32"
    data: Var | None = None
    strides: Any = None
    elem_offset: Any = None
    scope: str = "global"
    align: int = -1
    offset_factor: int = 0
    buffer_type: str = "default"
    axis_separators: Any = None

    def buffer(self) -> Buffer:
        """The buffer, without a name yet. Strings among the strides make int32 variables of that
        name.
        """
        dtype = self.dtype.dtype if isinstance(self.dtype, DTypeFunction) else self.dtype
        shape = self.shape if isinstance(self.shape, (tuple, list)) else (self.shape,)
        data, strides, elem_offset = self.data, self.strides, self.elem_offset
        if data is not None and not (isinstance(data, Var) and data.dtype == "handle"):
            raise TIRError(f"data: wanted a pointer variable such as A.data, got {data!r}")
        if isinstance(strides, str) or not (strides is None or isinstance(strides, (tuple, list))):
            raise TIRError(f"strides: wanted a tuple, got {strides!r}")
        strides = [Var(s, "int32") if isinstance(s, str) else s for s in strides or ()]
        if isinstance(elem_offset, str):
            elem_offset = Var(elem_offset, "int32")
        if elem_offset is None and self.offset_factor:
            elem_offset = Var("elem_offset", "int32")
        for name in ("align", "offset_factor"):
            if not isinstance(vars(self)[name], int):
                raise TIRError(f"{name}: wanted an int, got {vars(self)[name]!r}")
        for name in ("scope", "buffer_type"):
            if not isinstance(vars(self)[name], str):
                raise TIRError(f"{name}: wanted a string, got {vars(self)[name]!r}")
        if data is None:
            data = Var(UNNAMED["var"], PointerType(PrimType(as_dtype(dtype)), self.scope))
        return decl_buffer(
            shape,
            dtype,
            UNNAMED["buffer"],
            data,
            strides,
            elem_offset,
            self.scope,
            self.align,
            self.offset_factor,
            self.buffer_type,
            self.axis_separators or (),
        )


def of_buffer(
    arguments: Callable[P, BufferArguments],
) -> Callable[[Callable[[BufferArguments], R]], Callable[P, R]]:
    """Turns a function of `BufferArguments` into one of what they are made of."""

    def turned(describe: Callable[[BufferArguments], R]) -> Callable[P, R]:
        @functools.wraps(describe)
        def face(*args: P.args, **keywords: P.kwargs) -> R:
            return describe(buffer_arguments(describe.__qualname__, *args, **keywords))

        vars(face)["__signature__"] = _BUFFER_ARGUMENTS
        return face

    return turned


_BUFFER_ARGUMENTS = inspect.signature(BufferArguments)


def buffer_arguments(caller: str, *args: Any, **keywords: Any) -> BufferArguments:
    """What `caller` was told of a buffer. Raises TypeError if the arguments do not fit."""
    try:
        return BufferArguments(**bound_arguments(_BUFFER_ARGUMENTS, args, keywords))
    except TypeError as error:
        takes = ", ".join(_BUFFER_ARGUMENTS.parameters)
        raise TypeError(f"{caller}() {error}; a buffer is described by {takes}") from None


def renamed_buffer(buffer: Buffer, name: str, span: Any) -> Buffer:
    """A buffer just made, under the name it is bound to; its own data variable is named too."""
    data = buffer.data
    if data.name == UNNAMED["var"]:
        data = data.replace(name=name)
    return buffer.replace(name=name, data=data, span=span)


def renamed_var(var: Var, name: str) -> Var:
    """A variable just made, under the name it is bound to."""
    return type(var)(name, var.dtype, var.type_annotation)


class BufferFunction:
    """``T.Buffer((n, 4), "float32")`` as an annotation or a value; ``T.Buffer[(n, 4), "float32"]``
    is its older form.
    """

    __signature__ = _BUFFER_ARGUMENTS

    @staticmethod
    @of_buffer(BufferArguments)
    def __call__(arguments: BufferArguments) -> Buffer:
        """A buffer of that shape and dtype; a view of `data` if that is given."""
        return arguments.buffer()

    def __getitem__(self, keys: Any) -> Buffer:
        if isinstance(keys, tuple) and len(keys) >= 2 and isinstance(keys[1], (str, DTypeFunction)):
            return self(*keys)
        return self(keys)

    def __repr__(self) -> str:
        return "T.Buffer"


class Lambda:
    """A lambda of script text; the evaluator it stands in evaluates it, with the names it saw."""

    def __init__(
        self, signature: inspect.Signature, evaluate: Callable[[Mapping[str, Any]], Any]
    ) -> None:
        self.__signature__ = signature
        self._evaluate = evaluate

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The value of its body."""
        return self._evaluate(bound_arguments(self.__signature__, args, keywords))

    def __repr__(self) -> str:
        return f"lambda {str(self.__signature__)[1:-1]}: ..."


class Macro:
    """Statements under a name, put in place where script text calls them. Made by ``T.macro``.

    guard  what they may do: that of the text they stand in
    """

    def __init__(
        self,
        source: Any,
        node: Any,
        outer: Any,
        guard: Any,
        hygienic: bool,
        signature: inspect.Signature,
    ) -> None:
        self.source = source
        self.node = node
        self.outer = outer
        self.guard = guard
        self.hygienic = hygienic
        self.signature = signature
        # The object whose method it is, if it is one.
        self.first: tuple[Any, ...] = ()

    def __get__(self, owner: Any, cls: Any = None) -> Any:
        """As a method: the macro with its first argument given."""
        if owner is None:
            return self
        bound = copy.copy(self)
        bound.first = (owner,)
        return bound

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        raise TIRError(f"macro {self.node.name} can be called only inside a script function")


def signature_of(a: ast.arguments, evaluate: Callable[[ast.expr], Any]) -> inspect.Signature:
    """The parameters that a definition or a lambda declares; defaults are evaluated once, here."""
    kinds = inspect.Parameter
    plain = [*a.posonlyargs, *a.args]
    defaults = [None] * (len(plain) - len(a.defaults)) + list(a.defaults)
    parameters: list[inspect.Parameter] = []

    def add(arg: ast.arg, kind: Any, default: ast.expr | None = None) -> None:
        value = kinds.empty if default is None else evaluate(default)
        parameters.append(kinds(arg.arg, kind, default=value))

    for i, (arg, default) in enumerate(zip(plain, defaults)):
        only = i < len(a.posonlyargs)
        add(arg, kinds.POSITIONAL_ONLY if only else kinds.POSITIONAL_OR_KEYWORD, default)
    if a.vararg is not None:
        add(a.vararg, kinds.VAR_POSITIONAL)
    for arg, default in zip(a.kwonlyargs, a.kw_defaults):
        add(arg, kinds.KEYWORD_ONLY, default)
    if a.kwarg is not None:
        add(a.kwarg, kinds.VAR_KEYWORD)
    return inspect.Signature(parameters)


def bound_arguments(signature: inspect.Signature, args: Any, keywords: Any) -> dict[str, Any]:
    """Each parameter's value. Raises TypeError if the arguments do not fit."""
    bound = signature.bind(*args, **keywords)
    bound.apply_defaults()
    return dict(bound.arguments)
