"""The graph language.

    Function(params, body, ret_struct_info, is_pure, attrs)

    Expr ::= Var | DataflowVar(name_hint, struct_info)
           | GlobalVar(name_hint)                                a function of the module (ir)
           | ExternFunc(global_symbol)                           a registered packed function
           | Constant(data) | PrimValue(value) | StringImm(value)
           | DataTypeImm(value) | ShapeExpr(values)
           | Tuple(fields) | TupleGetItem(tuple_value, index)
           | Call(op, args, attrs, sinfo_args)
           | If(cond, true_branch, false_branch)
           | SeqExpr(blocks, body)
           | Function                                            a closure

    BindingBlock(bindings) | DataflowBlock(bindings)
    Binding ::= VarBinding(var, value) | MatchCast(var, value, struct_info)

In normal form (every pass gives and gets it) the arguments of a call, the fields of a tuple, the
condition of an `If` and the body of a `SeqExpr` are leaves; every other value is bound to a
variable; function bodies and branches are `SeqExpr`s. Every expression has a `struct_info` from the
moment it exists; `Call` and `TupleGetItem` infer theirs.
"""

from __future__ import annotations

import importlib
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..base import (
    UNKNOWN,
    DataType,
    Span,
    StructInfoError,
    VerifyError,
)
from ..base import (
    dtype as as_dtype,
)
from ..ir import (
    CALL_MAKERS,
    BaseFunc,
    Map,
    Node,
    Op,
    PrimExpr,
    as_expr,
    node,
    post_order,
    register_leaf,
    walk,
)
from ..ir import GlobalVar as GlobalVar
from ..ir import Var as TirVar
from ..ir import const as prim_const
from ..runtime import NDArray
from ..runtime import array as as_array
from .array_leaf import ARRAY_CODEC
from .derive import (
    BaseCheckResult,
    declared_check,
    definable_tir_vars_in_struct_info,
    erase_to_well_defined,
    erase_unbound,
    infer_call,
    is_base_of,
    struct_info_lca,
    tir_vars_in_struct_info,
)
from .struct_info import (
    INFERRED,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .struct_info import Expr as Expr
from .struct_info import ShapeExpr as ShapeExpr

if TYPE_CHECKING:
    from ..ir import ScalarLike

ExprLike: TypeAlias = "Node | float | str | NDArray | np.ndarray[Any, Any] | Sequence[ExprLike]"
"""What `as_relax` takes."""


@node
class Var(Expr):
    """A variable of the graph language, compared by identity."""

    name_hint: str
    struct_info: StructInfo = ObjectStructInfo()
    span: Span = UNKNOWN

    @staticmethod
    def _normalise_(name_hint: Any, struct_info: Any, span: Any) -> tuple[Any, ...]:
        if struct_info is None:
            struct_info = ObjectStructInfo()
        if not isinstance(struct_info, StructInfo):
            raise StructInfoError(
                f"variable {name_hint}: wanted a StructInfo, got {type(struct_info).__name__}"
            )
        return str(name_hint), struct_info, span

    @property
    def vid(self) -> Var:
        """TVM's identity of a variable: here the variable itself."""
        return self

    @property
    def type_annotation(self) -> Any:
        """Relay's name of the type; None if it is not known."""
        return None if isinstance(self.struct_info, ObjectStructInfo) else self.checked_type

    def __call__(self, *args: Any) -> Call:
        return Call(self, args)

    def __getitem__(self, index: int) -> TupleGetItem:
        return TupleGetItem(self, index)

    def __iter__(self) -> Iterator[TupleGetItem]:
        return _fields_of(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name_hint})"


@node
class DataflowVar(Var):
    """A variable visible only inside its dataflow block."""


@node
class Constant(Expr):
    """A constant array."""

    data: Any
    struct_info: StructInfo = INFERRED
    span: Span = UNKNOWN

    @staticmethod
    def _normalise_(data: Any, struct_info: Any, span: Any) -> tuple[Any, ...]:
        if not isinstance(data, NDArray):
            data = as_array(data)
        if struct_info is None:
            struct_info = TensorStructInfo(tuple(int(d) for d in data.shape), data.dtype)
        return data, struct_info, span


@node
class PrimValue(Expr):
    """A scalar expression as a value."""

    value: PrimExpr
    span: Span = UNKNOWN

    if TYPE_CHECKING:

        def __init__(self, value: ScalarLike, span: Span = ...) -> None: ...

    @staticmethod
    def _normalise_(value: Any, span: Any) -> tuple[Any, ...]:
        if isinstance(value, int) and not isinstance(value, bool):
            return prim_const(value, "int64"), span
        return as_expr(value), span

    @property
    def struct_info(self) -> PrimStructInfo:
        """Prim(value)"""
        return PrimStructInfo(value=self.value)


@node
class StringImm(Expr):
    """A constant string."""

    value: str
    span: Span = UNKNOWN

    @property
    def struct_info(self) -> StructInfo:
        """Object"""
        return ObjectStructInfo()


@node
class DataTypeImm(Expr):
    """A constant dtype."""

    value: DataType
    span: Span = UNKNOWN

    @staticmethod
    def _normalise_(value: Any, span: Any) -> tuple[Any, ...]:
        return as_dtype(value), span

    @property
    def struct_info(self) -> StructInfo:
        """Object"""
        return ObjectStructInfo()


@node
class ExternFunc(BaseFunc, Expr):
    """A packed function known by its registered name (also in a module, for functions compiled
    elsewhere).
    """

    global_symbol: str
    struct_info: StructInfo = FuncStructInfo.opaque_func()
    span: Span = UNKNOWN
    attrs: Map = Map()

    def __call__(self, *args: Any) -> Call:
        return Call(self, args)


@node
class Tuple(Expr):
    """Several values as one."""

    fields: tuple[Expr, ...]
    span: Span = UNKNOWN

    if TYPE_CHECKING:

        def __init__(self, fields: Iterable[ExprLike], span: Span = ...) -> None: ...

    @staticmethod
    def _normalise_(fields: Any, span: Any) -> tuple[Any, ...]:
        return tuple(as_relax(f) for f in fields), span

    @property
    def struct_info(self) -> TupleStructInfo:
        """Tuple of the fields' struct info"""
        if not any([type(f) is Tuple for f in self.fields]):
            return TupleStructInfo(tuple([f.struct_info for f in self.fields]))
        # Each once, without recursion: tuples may be deep, or share much.
        infos: dict[int, TupleStructInfo] = {}
        for each in post_order(self, lambda t: [f for f in t.fields if type(f) is Tuple]):
            infos[id(each)] = TupleStructInfo(
                tuple(infos[id(f)] if type(f) is Tuple else f.struct_info for f in each.fields)
            )
        return infos[id(self)]

    def __getitem__(self, index: int) -> Expr:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def __bool__(self) -> bool:
        return True


@node
class TupleGetItem(Expr):
    """One field of a tuple."""

    tuple_value: Expr
    index: int
    struct_info: StructInfo = INFERRED
    span: Span = UNKNOWN

    @staticmethod
    def _normalise_(tuple_value: Any, index: Any, struct_info: Any, span: Any) -> tuple[Any, ...]:
        tuple_value = as_relax(tuple_value)
        info = tuple_value.struct_info
        if isinstance(info, TupleStructInfo):
            if not isinstance(index, int) or not 0 <= index < len(info.fields):
                raise StructInfoError(f"a tuple of {len(info.fields)} fields has no field {index}")
            struct_info = info.fields[index]
        elif not isinstance(info, ObjectStructInfo):
            raise StructInfoError(f"wanted a tuple to take field {index} of, got {info!r}")
        return (
            tuple_value,
            index,
            struct_info if struct_info is not None else ObjectStructInfo(),
            span,
        )


@node
class Call(Expr):
    """Apply `op` to `args`. `attrs` are compile-time constants; `sinfo_args` say what an opaque
    callee returns.

    `struct_info` is inferred when it is not given: by the rule of an operator, or from the
    callee's signature.
    """

    op: Node
    args: tuple[Expr, ...]
    attrs: Map = Map()
    sinfo_args: tuple[StructInfo, ...] = ()
    struct_info: StructInfo = INFERRED
    span: Span = UNKNOWN

    if TYPE_CHECKING:

        def __init__(
            self,
            op: Node | str,
            args: Iterable[ExprLike],
            attrs: Mapping[str, Any] | None = None,
            sinfo_args: Iterable[StructInfo] | None = (),
            struct_info: StructInfo | None = None,
            span: Span = ...,
        ) -> None: ...

    @staticmethod
    def _normalise_(
        op: Any, args: Any, attrs: Any, sinfo_args: Any, struct_info: Any, span: Any
    ) -> tuple[Any, ...]:
        if isinstance(op, str):
            op = Op.get(op)
        args = tuple(map(as_relax, args))
        attrs = attrs if isinstance(attrs, Map) else Map(attrs)
        sinfo_args = tuple(sinfo_args or ())
        for info in sinfo_args:
            if not isinstance(info, StructInfo):
                shown = f"{type(info).__name__}: {reprlib.repr(info)}"
                raise StructInfoError(f"sinfo_args: wanted struct info, got {shown}")
        if struct_info is None:
            struct_info = infer_call(op, args, attrs, sinfo_args, span)
        return op, args, attrs, sinfo_args, struct_info, span

    # Relay's: what the type variables of the callee, of which there are none, stand for.
    type_args = ()

    def __getitem__(self, index: int) -> TupleGetItem:
        return TupleGetItem(self, index)

    def __iter__(self) -> Iterator[TupleGetItem]:
        return _fields_of(self)


def _fields_of(value: Expr) -> Iterator[TupleGetItem]:
    """The fields of a tuple whose length is known, so that ``a, b = value`` works and nothing
    iterates for ever.
    """
    info = value.struct_info
    if not isinstance(info, TupleStructInfo):
        raise TypeError(f"cannot iterate over a {info}: wanted a tuple")
    return iter([TupleGetItem(value, i) for i in range(len(info.fields))])


class Binding(Node):
    """A variable and what it stands for."""

    __slots__ = ()
    var: Var
    value: Expr
    span: Span


@node
class VarBinding(Binding):
    """var = value"""

    var: Var
    value: Expr
    span: Span = UNKNOWN
    _defs_ = ("var",)
    # The variable first: a function may call itself by it.
    _order_ = ("var", "value")

    @staticmethod
    def _normalise_(var: Any, value: Any, span: Any) -> tuple[Any, ...]:
        if not isinstance(var, Var):
            raise VerifyError(f"a binding binds a relax.Var, got {type(var).__name__}: {var!r}")
        return var, as_relax(value), span


@node
class MatchCast(Binding):
    """var = value, checked at run time to be of `struct_info`; its new symbols are bound."""

    var: Var
    value: Expr
    struct_info: StructInfo
    span: Span = UNKNOWN
    _defs_ = ("var", "struct_info")
    _order_ = ("value", "struct_info", "var")

    @staticmethod
    def _normalise_(var: Any, value: Any, struct_info: Any, span: Any) -> tuple[Any, ...]:
        if not isinstance(var, Var):
            raise VerifyError(f"match_cast binds a relax.Var, got {type(var).__name__}: {var!r}")
        if not isinstance(struct_info, StructInfo):
            raise VerifyError(f"match_cast: wanted struct info, got {type(struct_info).__name__}")
        return var, as_relax(value), struct_info, span


@node
class BindingBlock(Node):
    """Bindings in order."""

    bindings: tuple[Binding, ...]
    span: Span = UNKNOWN

    if TYPE_CHECKING:

        def __init__(self, bindings: Iterable[Binding], span: Span = ...) -> None: ...

    @staticmethod
    def _normalise_(bindings: Any, span: Any) -> tuple[Any, ...]:
        bindings = tuple(bindings)
        for each in bindings:
            if not isinstance(each, Binding):
                raise VerifyError(f"a block holds bindings, got {type(each).__name__}: {each!r}")
        return bindings, span


@node
class DataflowBlock(BindingBlock):
    """Bindings without side effects or control flow; only its non-`DataflowVar`s are visible
    outside.
    """


@node
class SeqExpr(Expr):
    """Blocks of bindings, then the value `body`."""

    blocks: tuple[BindingBlock, ...]
    body: Expr
    span: Span = UNKNOWN

    if TYPE_CHECKING:

        def __init__(
            self, blocks: Iterable[BindingBlock], body: ExprLike, span: Span = ...
        ) -> None: ...

    @staticmethod
    def _normalise_(blocks: Any, body: Any, span: Any) -> tuple[Any, ...]:
        blocks = tuple(blocks)
        for each in blocks:
            if not isinstance(each, BindingBlock):
                raise VerifyError(f"a SeqExpr holds blocks, got {type(each).__name__}: {each!r}")
        return blocks, as_relax(body), span

    @property
    def struct_info(self) -> StructInfo:
        """That of `body`"""
        body = self.body
        while isinstance(body, SeqExpr):  # as deep as a program of Relay has lets
            body = body.body
        return body.struct_info

    @property
    def let(self) -> tuple[Var, Expr, Expr]:
        """As Relay's Let: the first variable, its value, and what comes after it.

        Raises VerifyError if nothing is bound.
        """
        rest = [block for block in self.blocks if block.bindings]
        if not rest:
            raise VerifyError("a sequence that binds nothing is no Let")
        first, *others = rest[0].bindings
        if others:
            rest[0] = rest[0].replace(bindings=tuple(others))
        else:
            del rest[0]
        return first.var, first.value, SeqExpr(rest, self.body) if rest else self.body

    @property
    def var(self) -> Var:
        """The first variable that it binds: Relay's Let."""
        return self.let[0]

    @property
    def value(self) -> Expr:
        """What the first variable is bound to: Relay's Let."""
        return self.let[1]


@node
class If(Expr):
    """`true_branch` if the bool scalar `cond` holds, else `false_branch`."""

    cond: Expr
    true_branch: SeqExpr
    false_branch: SeqExpr
    struct_info: StructInfo = INFERRED
    span: Span = UNKNOWN

    @staticmethod
    def _normalise_(
        cond: Any, true_branch: Any, false_branch: Any, struct_info: Any, span: Any
    ) -> tuple[Any, ...]:
        cond = as_relax(cond)
        true_branch = _as_seq(true_branch)
        false_branch = _as_seq(false_branch)
        if struct_info is None:
            struct_info = joined_branches(true_branch, false_branch)
        return cond, true_branch, false_branch, struct_info, span


def _as_seq(value: Any) -> SeqExpr:
    value = as_relax(value)
    return value if isinstance(value, SeqExpr) else SeqExpr((), value)


def _as_declared(body: SeqExpr, declared: StructInfo, params: tuple[Var, ...]) -> SeqExpr:
    """`body`, whose result is cast to `declared` if it may or may not be that, and `declared` names
    only symbols of `params`. What can never be is for `well_formed` to refuse.
    """
    sure = declared_check(declared, body.struct_info)
    if sure in (BaseCheckResult.PASS, BaseCheckResult.FAIL_L0):
        return body
    known = {s for p in params for s in definable_tir_vars_in_struct_info(p.struct_info)}
    if not known.issuperset(tir_vars_in_struct_info(declared)):
        return body
    bindings: list[Binding] = []
    value = body.body
    if not is_leaf(value):
        value = Var("gv", value.struct_info, body.span)
        bindings.append(VarBinding(value, body.body, body.span))
    result = Var("gv", declared, body.span)
    bindings.append(MatchCast(result, value, declared, body.span))
    return SeqExpr((*body.blocks, BindingBlock(tuple(bindings), body.span)), result, body.span)


def joined_branches(
    a: SeqExpr, b: SeqExpr, is_known: Callable[[TirVar], bool] | None = None
) -> StructInfo:
    """The least struct info of both branches that mentions nothing one of them binds.

    is_known  whether a symbol is bound before the branches. Without it, one that both of them cast
              to is taken to be their own.
    """
    infos = a.struct_info, b.struct_info
    if infos[0] is infos[1] and not tir_vars_in_struct_info(infos[0]):
        bound = set[int]()
    else:
        bound = _branch_symbols(a, b, infos[1]) | _branch_symbols(b, a, infos[0])
        if is_known is not None and bound:
            mentioned = (v for info in infos for v in tir_vars_in_struct_info(info))
            bound -= {id(v) for v in mentioned if is_known(v)}
    local = {id(bind.var) for seq in (a, b) for block in seq.blocks for bind in block.bindings}
    joined = struct_info_lca(*(_without(info, bound, local) for info in infos))
    return joined


def _without(info: StructInfo, symbols: set[int], variables: set[int]) -> StructInfo:
    return erase_to_well_defined(
        info,
        lambda v: None if id(v) in symbols else v,
        lambda v: None if id(v) in variables else v,
    )


def _branch_symbols(branch: SeqExpr, other: SeqExpr, other_info: StructInfo) -> set[int]:
    """The symbols bound inside `branch`. One the other branch knows without binding it comes from
    outside.
    """
    mine = _cast_symbols(branch)
    if not mine:
        return mine
    outer = {id(v) for v in tir_vars_in_struct_info(other_info)} - _cast_symbols(other)
    return mine - outer


def _cast_symbols(seq: SeqExpr) -> set[int]:
    return {
        id(v)
        for block in seq.blocks
        for binding in block.bindings
        if isinstance(binding, MatchCast)
        for v in definable_tir_vars_in_struct_info(binding.struct_info)
    }


@node
class Function(BaseFunc, Expr):
    """A graph function.

    ret_struct_info  as seen by callers: it may use only symbols bound by the parameters. Derived
                     from the body if None; if it is finer than what the body gives, the result is
                     cast to it, checked when the program runs.
    is_pure          whether it has no effect but its result
    """

    params: tuple[Var, ...]
    body: SeqExpr
    ret_struct_info: StructInfo = INFERRED
    is_pure: bool = True
    attrs: Map = Map()
    span: Span = UNKNOWN
    _defs_ = ("params",)
    _order_ = ("params", "ret_struct_info", "is_pure", "attrs", "body")

    if TYPE_CHECKING:

        def __init__(
            self,
            params: Iterable[Var],
            body: ExprLike,
            ret_struct_info: StructInfo | None = None,
            is_pure: bool = True,
            attrs: Mapping[str, Any] | None = None,
            span: Span = ...,
        ) -> None: ...

    @staticmethod
    def _normalise_(
        params: Any, body: Any, ret_struct_info: Any, is_pure: Any, attrs: Any, span: Any
    ) -> tuple[Any, ...]:
        params = tuple(params)
        for p in params:
            if not isinstance(p, Var) or isinstance(p, DataflowVar):
                raise VerifyError(f"Function: a parameter is a relax.Var, got {p!r}")
        body = _as_seq(body)
        if ret_struct_info is None:
            ret_struct_info = erase_unbound(body.struct_info, (p.struct_info for p in params))
        elif ret_struct_info is not body.struct_info:
            body = _as_declared(body, ret_struct_info, params)
        return params, body, ret_struct_info, bool(is_pure), Map(attrs), span

    @property
    def struct_info(self) -> FuncStructInfo:
        """Func(params, ret, purity)"""
        return FuncStructInfo(
            tuple(p.struct_info for p in self.params), self.ret_struct_info, self.is_pure
        )

    @property
    def ret_type(self) -> Any:
        """Relay's name of the type of the result; None if it is not known."""
        checked: Any = self.checked_type
        return None if isinstance(self.ret_struct_info, ObjectStructInfo) else checked.ret_type

    type_params = ()

    def __call__(self, *args: Any) -> Call:
        return Call(self, args)

    def bind_params(self, binding_map: Mapping[Any, Any]) -> Function:
        """A copy with parameters turned into constants: ``{"w": array}``; see
        `relax.transform.BindParams`.
        """
        bound: Function = _transform("bind_params").bind_params(self, binding_map)
        return bound

    def bind_symbolic_vars(self, binding_map: Mapping[Any, Any]) -> Function:
        """A copy with symbols replaced: ``{"n": 8}``; see `relax.transform.BindSymbolicVars`."""
        bound: Function = _transform("bind_symbolic_vars").bind_symbolic_vars(self, binding_map)
        return bound

    def inline_functions(self, function_map: Mapping[Any, Function]) -> Function:
        """A copy with the bodies of functions, by name or GlobalVar, where they are called.

        Raises VerifyError if they call themselves.
        """
        inlined: Function = _transform("inline_private_functions").inline_functions(
            self, function_map
        )
        return inlined

    @staticmethod
    def create_empty(
        params: Any, ret_struct_info: StructInfo, is_pure: bool = True, attrs: Any = None
    ) -> Function:
        """A declaration: a signature with an empty body."""
        return Function(params, SeqExpr((), Tuple(())), ret_struct_info, is_pure, attrs)


def _transform(name: str) -> Any:
    """A pass that stands above expressions, for methods under TVM's names."""
    return importlib.import_module(f"relaxvm.relax.transform.{name}")


def as_relax(value: Any) -> Any:
    """`value` as an expression of the graph language.

    Scalars become `PrimValue`, strings `StringImm`, tuples and lists `Tuple`, arrays `Constant`.
    """
    if isinstance(value, (Expr, GlobalVar)):
        return value
    if isinstance(value, (PrimExpr, int, float)):
        return PrimValue(value)
    if value is None:
        raise StructInfoError("wanted a relax expression, got None")
    if isinstance(value, DataType):
        return DataTypeImm(value)
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, (tuple, list)):
        try:
            return Tuple(value)
        except RecursionError:
            raise StructInfoError("a list is nested too deep, or holds itself") from None
    if isinstance(value, NDArray) or hasattr(value, "__array_interface__"):
        return Constant(value)
    raise StructInfoError(f"wanted a relax expression, got {type(value).__name__}: {value!r}")


def const(value: Any, dtype: str | TensorStructInfo | None = None) -> Constant:
    """A constant array. A Python float is float32, an int int32 and a bool bool unless `dtype`
    says otherwise.

    value  a number, a nested list, a numpy array, which is copied, or an NDArray, which is not:
           whoever writes into one later changes what was made of it
    dtype  or struct info: its dtype. Raises StructInfoError if the array is of another shape.
    """
    if isinstance(dtype, TensorStructInfo):
        constant = const(value, None if dtype.dtype == "void" else dtype.dtype)
        if not is_base_of(dtype, constant.struct_info):
            raise StructInfoError(f"const: wanted {dtype}, got an array of {constant.struct_info}")
        return constant
    if dtype is None and isinstance(value, (bool, int, float)):
        dtype = (
            "bool" if isinstance(value, bool) else "int32" if isinstance(value, int) else "float32"
        )
    if isinstance(value, NDArray) and dtype is None:
        return Constant(value)
    return Constant(as_array(value, dtype=dtype))


LEAF_TYPES: frozenset[type[Any]] = frozenset(
    {
        Var,
        DataflowVar,
        Constant,
        PrimValue,
        StringImm,
        DataTypeImm,
        ShapeExpr,
        ExternFunc,
        GlobalVar,
    }
)
"""What has no operands: it stands as an argument, and no variable stands in it but in its struct
info.
"""


def is_leaf(expr: Any) -> bool:
    """Whether `expr` may stand as an argument in normal form (a `Tuple` may if its fields may)."""
    if type(expr) in LEAF_TYPES or isinstance(expr, Op):
        return True
    if type(expr) is not Tuple:
        return False
    if LEAF_TYPES.issuperset(map(type, expr.fields)):
        return True
    return all(
        type(n) in LEAF_TYPES or isinstance(n, (Tuple, Op)) for n in walk(expr, into=_fields)
    )


def source_of(b: Binding) -> Span:
    """Where `b` comes from: what its value says, else the binding, else the variable."""
    if type(b.value) not in LEAF_TYPES:
        span: Span = getattr(b.value, "span", UNKNOWN)
        if span is not UNKNOWN:
            return span
    return b.var.span if b.span is UNKNOWN else b.span


def _fields(value: Any) -> tuple[Any, ...]:
    return value.fields if type(value) is Tuple else ()


def extern(name: str, struct_info: StructInfo | None = None) -> ExternFunc:
    """The packed function registered under `name`."""
    return ExternFunc(name) if struct_info is None else ExternFunc(name, struct_info)


def get_shape_of(expr: Any) -> Expr:
    """What gives the shape of the tensor `expr`: a `ShapeExpr`, the variable its struct info
    names, or, where that says nothing, a call of `shape_of`.

    Raises StructInfoError if `expr` is no tensor.
    """
    expr = as_relax(expr)
    info = expr.struct_info
    if not isinstance(info, TensorStructInfo):
        raise StructInfoError(f"get_shape_of: wanted a tensor, got {info}")
    return info.shape if info.shape is not None else Call("relax.shape_of", (expr,))


def _call_graph_function(gv: GlobalVar, args: tuple[Any, ...]) -> Call | None:
    """`gv(*args)` for graph functions; loop functions are called on scalars only, and not from
    here.
    """
    if not isinstance(gv.struct_info, FuncStructInfo) and not any(
        isinstance(a, Expr) for a in args
    ):
        return None
    return Call(gv, args)


CALL_MAKERS.append(_call_graph_function)


register_leaf(NDArray, ARRAY_CODEC)
