"""`StructInfo`: the one word for what is known statically about a value. Interned: equal means
identical.

    StructInfo ::= ObjectStructInfo                             anything
                 | PrimStructInfo(dtype, value?)                a scalar
                 | ShapeStructInfo(values? , ndim)              a shape
                 | TensorStructInfo(shape?, dtype, vdevice?, ndim)  an array
                 | TupleStructInfo(fields)
                 | SequenceStructInfo(element)                  any number of values of one kind
                 | FuncStructInfo(params?, ret, purity, derive_func?)
                                                            a function; params None: opaque

`==` is structural: for all but signatures (and tuples that hold some) that is identity, too.
`ndim` -1 and dtype "void" mean unknown. Dimensions are int64 expressions over `tir.Var`s (symbols).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..base import DataType, Deferred, StructInfoError, TIRError
from ..base import dtype as as_dtype
from ..ir import (
    INT64,
    EnvFunc,
    IntImm,
    Node,
    PrimExpr,
    Type,
    VDevice,
    as_expr,
    cast,
    derive,
    derived,
    node,
    structural_equal,
    walk,
)
from .operators import Operators

if TYPE_CHECKING:
    from ..base import DTypeLike
    from ..ir import ScalarLike
    from . import analysis, static_type
    from . import derive as derivation
    from . import expr as graph
else:
    derivation = Deferred("relaxvm.relax.derive")
    static_type = Deferred("relaxvm.relax.static_type")
    analysis = Deferred("relaxvm.relax.analysis")
    graph = Deferred("relaxvm.relax.expr")


_VOID = as_dtype("void")
INFERRED: Any = None
"""What a field is given whose value the constructor finds itself."""
MAX_NESTING = 100
"""How deep tuples and signatures may nest, so that the rules over struct info may recurse."""


class StructInfo(Node):
    """Static knowledge about a value."""

    __slots__ = ()

    def is_base_of(self, derived: StructInfo) -> bool:
        """Whether every value that `derived` describes is described by this."""
        return derivation.is_base_of(self, derived)

    def __str__(self) -> str:
        return self.script()


class Expr(Operators, Node):
    """A value of the graph language; every one has a `struct_info`."""

    __slots__ = ()
    if TYPE_CHECKING:

        @property
        def struct_info(self) -> StructInfo:
            """What is known of the value."""

    @property
    def struct_info_(self) -> StructInfo:
        """`struct_info`, as TVM's C++ field is called."""
        return self.struct_info

    @property
    def checked_type(self) -> Type:
        """The static type; that of a tensor knows its `shape` too, where that is known."""
        return static_type.get_static_type(self.struct_info, sized=True)

    def _as_function_(self) -> Node:
        """A function that gives this, of the variables that are free in it."""
        return graph.Function(analysis.free_vars(self), self)

    def __str__(self) -> str:
        return self.script()


def as_dim(value: Any) -> PrimExpr:
    """`value` as a dimension: an int64 expression. Raises StructInfoError for anything that cannot
    be one.
    """
    # Nearly all are dimensions already.
    if isinstance(value, PrimExpr) and value.dtype is INT64:
        if type(value) is not IntImm or value.value >= 0:
            return value
    if isinstance(value, bool):
        raise StructInfoError("a dimension is an integer, got a bool")
    try:
        expr = IntImm(INT64, value) if isinstance(value, int) else as_expr(value, "int64")
    except (TIRError, OverflowError) as error:
        raise StructInfoError(f"a dimension is an integer expression: {error}") from None
    if not expr.dtype.is_int or expr.dtype.lanes != 1:
        raise StructInfoError(f"a dimension is an integer expression, got {expr.dtype}: {expr!r}")
    if isinstance(expr, IntImm) and expr.value < 0:
        raise StructInfoError(f"a dimension is not negative, got {expr.value}")
    return cast(INT64, expr)


def as_dims(values: Any, as_one: Callable[[Any], PrimExpr] = as_dim) -> tuple[PrimExpr, ...]:
    """`values` as a tuple of dimensions."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise StructInfoError(
            f"a shape is a sequence of dimensions, got {type(values).__name__}: {values!r}"
        )
    return tuple(as_one(v) for v in values)


def _as_ndim(ndim: Any) -> int:
    if not isinstance(ndim, int) or isinstance(ndim, bool) or ndim < -1:
        raise StructInfoError(f"ndim is an int of at least -1 (unknown), got {ndim!r}")
    return ndim


@node(interned=True)
class ObjectStructInfo(StructInfo):
    """Anything at all."""


@node(interned=True)
class PrimStructInfo(StructInfo):
    """A scalar of `dtype`; `value` is the expression it equals, where known.

    ``PrimStructInfo("int64")``, ``PrimStructInfo(value=expr)`` and ``PrimStructInfo(expr)`` are
    all understood.
    """

    dtype: DataType = INFERRED
    value: PrimExpr | None = None

    if TYPE_CHECKING:

        def __init__(
            self, dtype: DTypeLike | PrimExpr | None = None, value: ScalarLike | None = None
        ) -> None: ...

    @staticmethod
    def _normalise_(dtype: Any, value: Any) -> tuple[DataType, PrimExpr | None]:
        if isinstance(dtype, PrimExpr):
            dtype, value = None, dtype
        if value is not None:
            value = as_expr(value, dtype)
            if dtype is not None and value.dtype is not as_dtype(dtype):
                raise StructInfoError(f"Prim: the value has dtype {value.dtype}, wanted {dtype}")
            dtype = value.dtype
        if dtype is None:
            raise StructInfoError("Prim: wanted a dtype or a value")
        return as_dtype(dtype), value


@node(interned=True)
class ShapeStructInfo(StructInfo):
    """A shape of `ndim` dimensions; `values` are they, where known."""

    values: tuple[PrimExpr, ...] | None = None
    ndim: int = -1

    if TYPE_CHECKING:

        def __init__(self, values: Iterable[ScalarLike] | None = None, ndim: int = -1) -> None: ...

    @staticmethod
    def _normalise_(values: Any, ndim: Any) -> tuple[Any, int]:
        if values is None:
            return None, _as_ndim(ndim)
        dims = as_dims(values)
        if ndim not in (-1, len(dims)):
            raise StructInfoError(f"Shape: {len(dims)} dimensions given, ndim={ndim}")
        return dims, len(dims)


@node(interned=True)
class TensorStructInfo(StructInfo):
    """An array of `dtype`.

    shape    what gives the shape: a `ShapeExpr` (or a sequence of dimensions), a variable bound to
             a shape, or None
    ndim     its rank, -1 if unknown
    vdevice  where it lives, if that was said
    """

    shape: Expr | None = None
    dtype: DataType = as_dtype("float32")
    vdevice: VDevice | None = None
    ndim: int = -1

    if TYPE_CHECKING:

        def __init__(
            self,
            shape: Expr | Iterable[ScalarLike] | None = None,
            dtype: DTypeLike | None = ...,
            vdevice: VDevice | str | None = None,
            ndim: int = -1,
        ) -> None: ...

    @staticmethod
    def _normalise_(shape: Any, dtype: Any, vdevice: Any, ndim: Any) -> tuple[Any, Any, Any, int]:
        dtype = (
            _VOID if dtype is None or (isinstance(dtype, str) and not dtype) else as_dtype(dtype)
        )
        if dtype.lanes != 1:
            raise StructInfoError(f"Tensor: the dtype of an array is scalar, got {dtype}")
        ndim = _as_ndim(ndim)
        if shape is not None:
            if not isinstance(shape, Expr):
                shape = ShapeExpr(shape)
            known = _rank_of(shape)
            if ndim != -1 and known not in (-1, ndim):
                raise StructInfoError(f"Tensor: the shape has {known} dimensions, ndim={ndim}")
            ndim = known if known != -1 else ndim
        if vdevice is not None and not isinstance(vdevice, VDevice):
            vdevice = VDevice.from_name(vdevice)
        return shape, dtype, vdevice, ndim

    @property
    def dims(self) -> tuple[PrimExpr, ...] | None:
        """The dimensions as expressions, or None where they are not known."""
        shape = self.shape
        if shape is None:
            return None
        if type(shape) is ShapeExpr:
            return shape.values
        info = shape.struct_info
        return info.values if isinstance(info, ShapeStructInfo) else None

    def get_shape(self) -> tuple[PrimExpr, ...] | None:
        """TVM's name for `dims`."""
        return self.dims


def _rank_of(shape: Expr) -> int:
    if type(shape) is ShapeExpr:
        if shape.open:
            as_dims(shape.values)
        return len(shape.values)
    info = shape.struct_info
    if not isinstance(info, ShapeStructInfo):
        raise StructInfoError(f"Tensor: the shape is a shape expression, got {shape!r}")
    return info.ndim


@node(interned=True)
class TupleStructInfo(StructInfo):
    """A tuple of values."""

    fields: tuple[StructInfo, ...]
    nesting: int = derived()

    if TYPE_CHECKING:

        def __init__(self, fields: Iterable[StructInfo]) -> None: ...

    @staticmethod
    def _normalise_(fields: Any) -> tuple[tuple[StructInfo, ...]]:
        fields = tuple(fields)
        for field in fields:
            _want_struct_info(field, "Tuple")
        return (fields,)

    def _init_derived_(self) -> None:
        derive(self, "nesting", _nesting(self.fields, "Tuple"))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TupleStructInfo):
            return False
        return self is other or self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)


@node(interned=True)
class SequenceStructInfo(ObjectStructInfo):
    """A sequence whose length run time decides; each of its values is an `element`.

    Sizes that are no numbers are not kept, since they differ from one element to the next. A tuple
    of such elements is such a sequence, too.
    """

    element: StructInfo
    nesting: int = derived()

    @staticmethod
    def _normalise_(element: Any) -> tuple[StructInfo]:
        _want_struct_info(element, "Sequence")
        return (derivation.erase_unbound(element, ()),)

    def _init_derived_(self) -> None:
        derive(self, "nesting", _nesting((self.element,), "Sequence"))


@node(interned=True)
class FuncStructInfo(StructInfo):
    """A function. `params` None means opaque: it may take anything. Symbols of `params` are bound
    by each call.

    derive_func  of an opaque function: what is registered under this name is given each call (its
                 own struct info not known yet) and a `BlockBuilder`, and returns what the call
                 gives. It is not run to print, compare, save or load.

    Raises StructInfoError for `derive_func` beside `params` or `ret`, which it stands for.
    """

    params: tuple[StructInfo, ...] | None
    ret: StructInfo = ObjectStructInfo()
    purity: bool = True
    derive_func: EnvFunc | None = None
    nesting: int = derived()
    _defs_ = ("params",)

    if TYPE_CHECKING:

        def __init__(
            self,
            params: Iterable[StructInfo] | None,
            ret: StructInfo = ...,
            purity: bool = True,
            derive_func: EnvFunc | str | None = None,
        ) -> None: ...

    @staticmethod
    def _normalise_(params: Any, ret: Any, purity: Any, derive_func: Any) -> tuple[Any, ...]:
        for info in (*(params or ()), ret):
            _want_struct_info(info, "Func")
        if isinstance(derive_func, str):
            derive_func = EnvFunc(derive_func)
        if derive_func is not None:
            if not isinstance(derive_func, EnvFunc):
                raise StructInfoError(
                    "Func: derive_func is the name of a registered function or an EnvFunc, "
                    f"got {type(derive_func).__name__}"
                )
            if params is not None or not isinstance(ret, ObjectStructInfo):
                raise StructInfoError(
                    f"Func: derive_func {derive_func.name!r} finds the result of each call; "
                    "params and ret cannot be given as well"
                )
        return (None if params is None else tuple(params)), ret, bool(purity), derive_func

    def _init_derived_(self) -> None:
        derive(self, "nesting", _nesting((*(self.params or ()), self.ret), "Func"))

    # Signatures that name their own symbols differently are equal, though not identical.

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, FuncStructInfo) and structural_equal(self, other)
        )

    def __hash__(self) -> int:
        return hash((FuncStructInfo, len(self.params or ()), self.purity))

    @staticmethod
    def opaque_func(
        *,
        ret: StructInfo | None = None,
        derive_func: EnvFunc | str | None = None,
        purity: bool = False,
    ) -> FuncStructInfo:
        """A function of which only the result is known, or what finds the result of a call."""
        ret = ret if ret is not None else ObjectStructInfo()
        return FuncStructInfo(None, ret, purity, derive_func)


def _nesting(parts: tuple[StructInfo, ...], what: str) -> int:
    depth = 1 + max((getattr(part, "nesting", 0) for part in parts), default=0)
    if depth > MAX_NESTING:
        raise StructInfoError(f"{what}: nested more than {MAX_NESTING} deep")
    return depth


def parts(info: StructInfo) -> Iterable[StructInfo]:
    """What a value of `info` holds, through tuples in tuples, each once: no tuple is among it."""
    if not isinstance(info, TupleStructInfo):
        return (info,)
    return (n for n in walk(info, into=_fields) if not isinstance(n, TupleStructInfo))  # type: ignore[misc]


def _fields(info: StructInfo) -> tuple[StructInfo, ...]:
    return info.fields if isinstance(info, TupleStructInfo) else ()


def _want_struct_info(value: Any, what: str) -> None:
    if not isinstance(value, StructInfo):
        raise StructInfoError(f"{what}: wanted a StructInfo, got {type(value).__name__}: {value!r}")


_LEFT_OVER = IntImm(INT64, -1)


def _as_entry(value: Any) -> PrimExpr:
    if (type(value) is int and value == -1) or (type(value) is IntImm and value.value == -1):
        return _LEFT_OVER
    return as_dim(value)


@node(interned=True)
class ShapeExpr(Expr):
    """A shape given by its dimensions. Interned, since struct info contains it.

    open  whether one is -1: "what is left", for `reshape` to compute. It is no shape of a tensor.
    """

    values: tuple[PrimExpr, ...]
    open: bool = derived()

    if TYPE_CHECKING:

        def __init__(self, values: Iterable[ScalarLike]) -> None: ...

    @staticmethod
    def _normalise_(values: Any) -> tuple[tuple[PrimExpr, ...]]:
        return (as_dims(values, _as_entry),)

    def _init_derived_(self) -> None:
        derive(self, "open", any(v is _LEFT_OVER for v in self.values))

    @property
    def struct_info(self) -> ShapeStructInfo:
        """Shape(values)"""
        return ShapeStructInfo(self.values)

    def __getitem__(self, index: int) -> PrimExpr:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __bool__(self) -> bool:
        return True
