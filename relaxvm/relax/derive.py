"""What follows from struct info: joins, the order "is an instance of", and the results of calls.

    struct_info_lca(a, b)                 the least struct info that covers both
    struct_info_base_check(base, info)    how sure it is that every `info` is a `base`
    derive_call_ret_struct_info(f, args)  bind the parameters' symbols, check, substitute
    infer_call(op, args, ...)             the struct info of any call

Nothing here looks at expressions beyond their `struct_info`, so `expr.py` can build on it.
Recursion is over nested tuples and signatures only, whose depth is limited (`MAX_NESTING`).
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base import UNKNOWN, Deferred, Span, StructInfoError, VerifyError
from ..base import dtype as as_dtype
from ..ir import GlobalVar, Node, Op, PrimExpr, VDevice, substitute
from ..ir import Var as TirVar
from .struct_info import (
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
from .symbols import definable_tir_vars_in_struct_info as definable_tir_vars_in_struct_info
from .symbols import dims_equal as dims_equal
from .symbols import erase_to_well_defined as erase_to_well_defined
from .symbols import erase_unbound as erase_unbound
from .symbols import erase_with, known_dims
from .symbols import made_at as made_at
from .symbols import plain_text as plain_text
from .symbols import prove_dims as prove_dims
from .symbols import replaced_by as replaced_by
from .symbols import simplify_dims as simplify_dims
from .symbols import source_place as source_place
from .symbols import substitute_struct_info as substitute_struct_info
from .symbols import symbolic_vars as symbolic_vars
from .symbols import tensor_dims as tensor_dims
from .symbols import tir_vars_in_struct_info as tir_vars_in_struct_info
from .symbols import where as where

if TYPE_CHECKING:
    from . import block_builder, expr
else:
    block_builder = Deferred("relaxvm.relax.block_builder")
    expr = Deferred("relaxvm.relax.expr")

_OBJECT = ObjectStructInfo()
_SEQUENCES = (SequenceStructInfo, TupleStructInfo)
_VOID = as_dtype("void")


# -- joins ----------------------------------------------------------------------------------------


def struct_info_lca(a: StructInfo, b: StructInfo) -> StructInfo:
    """The least struct info that both `a` and `b` are instances of."""
    if a is b:
        return a
    if isinstance(a, SequenceStructInfo) or isinstance(b, SequenceStructInfo):
        return _lca_sequence(a, b)
    if type(a) is not type(b):
        return _OBJECT
    return _LCA[type(a)](a, b)


def _lca_prim(a: PrimStructInfo, b: PrimStructInfo) -> StructInfo:
    if a.dtype is not b.dtype:
        return _OBJECT
    if a.value is not None and b.value is not None and prove_dims(a.value, b.value, wrap=True):
        return a
    return PrimStructInfo(a.dtype)


def _lca_shape(a: ShapeStructInfo, b: ShapeStructInfo) -> StructInfo:
    if a.ndim != b.ndim:
        return ShapeStructInfo()
    if a.values is not None and b.values is not None and dims_equal(a.values, b.values):
        return a
    return ShapeStructInfo(ndim=a.ndim)


def _lca_tensor(a: TensorStructInfo, b: TensorStructInfo) -> StructInfo:
    dtype = a.dtype if a.dtype is b.dtype else _VOID
    vdevice = a.vdevice if a.vdevice is b.vdevice else None
    if a.ndim != b.ndim:
        return TensorStructInfo(None, dtype, vdevice, -1)
    shape = a.shape if a.shape is b.shape else None
    if shape is None and a.dims is not None and b.dims is not None and dims_equal(a.dims, b.dims):
        shape = ShapeExpr(a.dims)
    return TensorStructInfo(shape, dtype, vdevice, a.ndim)


def _lca_tuple(a: TupleStructInfo, b: TupleStructInfo) -> StructInfo:
    if len(a.fields) != len(b.fields):
        return _OBJECT
    return TupleStructInfo(tuple(struct_info_lca(x, y) for x, y in zip(a.fields, b.fields)))


def _lca_sequence(a: StructInfo, b: StructInfo) -> StructInfo:
    if not isinstance(a, _SEQUENCES) or not isinstance(b, _SEQUENCES):
        return _OBJECT
    return SequenceStructInfo(functools.reduce(struct_info_lca, (*elements(a), *elements(b))))


def elements(info: StructInfo) -> tuple[StructInfo, ...]:
    """What stands for the elements of a sequence: the fields of a tuple, or the one kind of a
    sequence; nothing for what is neither.
    """
    if isinstance(info, SequenceStructInfo):
        return (info.element,)
    return info.fields if isinstance(info, TupleStructInfo) else ()


def _lca_func(a: FuncStructInfo, b: FuncStructInfo) -> StructInfo:
    if is_base_of(a, b):
        return a
    if is_base_of(b, a):
        return b
    # Parameters would need a greatest common instance; an opaque signature is a sound, coarser
    # answer.
    visible = [erase_unbound(f.ret, f.params or ()) for f in (a, b)]
    ret = erase_to_well_defined(struct_info_lca(*visible), _identity_unless(a, b))
    return FuncStructInfo(None, ret, a.purity and b.purity)


def _identity_unless(*infos: FuncStructInfo) -> Callable[[TirVar], PrimExpr | None]:
    bound = {
        id(v) for f in infos for p in f.params or () for v in definable_tir_vars_in_struct_info(p)
    }
    return lambda v: None if id(v) in bound else v


_LCA: dict[type, Callable[[Any, Any], StructInfo]] = {
    ObjectStructInfo: lambda a, b: a,
    PrimStructInfo: _lca_prim,
    ShapeStructInfo: _lca_shape,
    TensorStructInfo: _lca_tensor,
    TupleStructInfo: _lca_tuple,
    FuncStructInfo: _lca_func,
}


# -- the order ------------------------------------------------------------------------------------


class BaseCheckResult(enum.IntEnum):
    """How far "every value of one struct info is a value of another" is known to hold."""

    FAIL_L0 = 0
    """No value is both."""
    FAIL_L1 = 1
    """It needs a look at the value: the kind, dtype or rank is not known well enough."""
    FAIL_L2 = 2
    """Only dimensions are in doubt: they may be equal at run time."""
    PASS = 3
    """It always holds."""


_L0, _L1, _L2, _PASS = BaseCheckResult


def struct_info_base_check(base: StructInfo, derived: StructInfo) -> BaseCheckResult:
    """How sure it is that every value of `derived` is a value of `base`."""
    if base is derived or type(base) is ObjectStructInfo:
        return _PASS
    if isinstance(base, SequenceStructInfo) and isinstance(derived, _SEQUENCES):
        checks = (struct_info_base_check(base.element, e) for e in elements(derived))
        return min(checks, default=_PASS)
    if type(base) is not type(derived):
        counts = isinstance(base, TupleStructInfo) and isinstance(derived, SequenceStructInfo)
        return _L1 if counts or type(derived) is ObjectStructInfo else _L0
    return _CHECK[type(base)](base, derived)


def declared_check(declared: StructInfo, got: StructInfo) -> BaseCheckResult:
    """As `struct_info_base_check`, for what a program declares of a value: where `got` says no
    device, the declared one is where the value is to be.
    """
    sure = struct_info_base_check(declared, got)
    return sure if sure is _PASS else struct_info_base_check(declared, placed_as(got, declared))


def is_base_of(base: StructInfo, derived: StructInfo) -> bool:
    """Whether every value of `derived` is certainly a value of `base`, wherever it is to be (see
    `declared_check`).
    """
    return declared_check(base, derived) is _PASS


# -- devices --------------------------------------------------------------------------------------


def place_of(info: StructInfo) -> VDevice | None:
    """The device that `info` says; None for what is no tensor, or on no certain one."""
    device = info.vdevice if isinstance(info, TensorStructInfo) else None
    return None if device is None or device.target is None else device


def has_place(info: TensorStructInfo) -> bool:
    """Whether `info` says a device."""
    return place_of(info) is not None


def common_vdevice(
    infos: Iterable[StructInfo], names: Sequence[str] | None = None
) -> VDevice | None:
    """The device of the tensors among `infos`; None if none of them says one.

    names  what to call them in the StructInfoError raised if they are on different devices; without
           names the device is then unknown
    """
    first: VDevice | None = None
    whose = ""
    for i, info in enumerate(infos):
        device = place_of(info)
        if device is None:
            continue
        if first is None:
            first, whose = device, names[i] if names is not None else ""
        elif device is not first:
            if names is None:
                return None
            raise StructInfoError(
                f"the devices differ: {whose} is on {first.script()}, {names[i]} on "
                f"{device.script()}; bring one to the other by R.to_vdevice"
            )
    return first


def placed_as(info: StructInfo, like: StructInfo) -> StructInfo:
    """`info` with the devices that `like` says, where it says none itself."""
    if isinstance(info, TensorStructInfo) and isinstance(like, TensorStructInfo):
        return info if has_place(info) else info.replace(vdevice=like.vdevice)
    if isinstance(info, TupleStructInfo) and isinstance(like, TupleStructInfo):
        if len(info.fields) == len(like.fields):
            return TupleStructInfo(tuple(map(placed_as, info.fields, like.fields)))
    return info


def _check_prim(base: PrimStructInfo, derived: PrimStructInfo) -> BaseCheckResult:
    if base.dtype is not derived.dtype:
        return _L0
    if base.value is None:
        return _PASS
    if derived.value is None:
        return _L2
    return _from_proof(prove_dims(base.value, derived.value, wrap=True))


def _check_shape(base: ShapeStructInfo, derived: ShapeStructInfo) -> BaseCheckResult:
    if base.ndim == -1:
        return _PASS
    if derived.ndim != base.ndim:
        return _L1 if derived.ndim == -1 else _L0
    return _check_dims(base.values, derived.values)


def _check_tensor(base: TensorStructInfo, derived: TensorStructInfo) -> BaseCheckResult:
    if base.dtype != _VOID and base.dtype is not derived.dtype:
        return _L1 if derived.dtype == _VOID else _L0
    if base.vdevice is not derived.vdevice and has_place(base):
        return _L0 if has_place(derived) else _L1
    if base.ndim != -1 and base.ndim != derived.ndim:
        return _L1 if derived.ndim == -1 else _L0
    if base.shape is None or base.shape is derived.shape:
        return _PASS
    if base.dims is None or derived.dims is None:
        return _L2
    return _check_dims(base.dims, derived.dims)


def _check_dims(
    base: tuple[PrimExpr, ...] | None, derived: tuple[PrimExpr, ...] | None
) -> BaseCheckResult:
    if base is None:
        return _PASS
    return _L2 if derived is None else _from_proof(dims_equal(base, derived))


def _from_proof(same: bool | None) -> BaseCheckResult:
    return _L2 if same is None else _PASS if same else _L0


def _check_tuple(base: TupleStructInfo, derived: TupleStructInfo) -> BaseCheckResult:
    if len(base.fields) != len(derived.fields):
        return _L0
    checks = (struct_info_base_check(b, d) for b, d in zip(base.fields, derived.fields))
    return min(checks, default=_PASS)


def _check_func(base: FuncStructInfo, derived: FuncStructInfo) -> BaseCheckResult:
    if base.purity and not derived.purity:
        return _L1
    if base.params is None or derived.params is None:
        if base.params is not None:
            return _L1
        if base.derive_func is not None:
            return _from_proof(base.derive_func is derived.derive_func or None)
        ret = erase_unbound(derived.ret, derived.params or ())
        return struct_info_base_check(base.ret, ret)
    if len(base.params) != len(derived.params):
        return _L0
    # Called as `base`, the arguments are those of `base.params`: `derived` must take them and
    # give a `base.ret`.
    binding = _Binding()
    for mine, theirs in zip(derived.params, base.params):
        binding.unify(mine, theirs)
    checks = [
        struct_info_base_check(substitute_struct_info(mine, binding.symbols), theirs)
        for mine, theirs in zip(derived.params, base.params)
    ]
    ret = binding.result(derived.ret, derived.params)
    return min([*checks, struct_info_base_check(base.ret, ret)])


_CHECK: dict[type, Callable[[Any, Any], BaseCheckResult]] = {
    PrimStructInfo: _check_prim,
    ShapeStructInfo: _check_shape,
    TensorStructInfo: _check_tensor,
    TupleStructInfo: _check_tuple,
    FuncStructInfo: _check_func,
}


# -- calls ----------------------------------------------------------------------------------------


class _Binding:
    """What the symbols of a signature's parameters are in one call."""

    def __init__(self) -> None:
        self.symbols: dict[TirVar, PrimExpr] = {}

    def unify(self, param: StructInfo, arg: StructInfo) -> None:
        """Bind the symbols standing alone in `param` to what `arg` has in their place; the first
        place wins.
        """
        if isinstance(param, TupleStructInfo) and isinstance(arg, TupleStructInfo):
            for mine, theirs in zip(param.fields, arg.fields):
                self.unify(mine, theirs)
        elif isinstance(param, PrimStructInfo) and isinstance(arg, PrimStructInfo):
            if param.value is not None and arg.value is not None:
                self._bind(param.value, arg.value)
        else:
            dims = known_dims(param)
            values = arg.dims if isinstance(arg, TensorStructInfo) else known_dims(arg)
            if dims is not None and values is not None and len(dims) == len(values):
                for dim, value in zip(dims, values):
                    self._bind(dim, value)

    def _bind(self, symbol: PrimExpr, value: PrimExpr) -> None:
        if isinstance(symbol, TirVar) and symbol.dtype is value.dtype:
            self.symbols.setdefault(symbol, value)

    def result(self, ret: StructInfo, params: Iterable[StructInfo]) -> StructInfo:
        """`ret` in the caller's symbols; what depends on a parameter's symbol that was not bound
        is forgotten.
        """
        own = {id(v): v for p in params for v in definable_tir_vars_in_struct_info(p)}
        symbols = {id(k): v for k, v in self.symbols.items()}
        return erase_with(
            ret,
            lambda v: symbols.get(id(v)) if id(v) in own else v,
            lambda v: v,
        )


def bind_symbols(pairs: Iterable[tuple[StructInfo, StructInfo]]) -> dict[TirVar, PrimExpr]:
    """What the symbols standing alone in the first of each pair are, if the second is what is
    given for it.
    """
    binding = _Binding()
    for param, value in pairs:
        binding.unify(param, value)
    return binding.symbols


def cast_check(
    info: StructInfo,
    got: StructInfo,
    is_bound: Callable[[TirVar], bool],
    values: dict[TirVar, PrimExpr],
) -> BaseCheckResult:
    """How sure it is that a value of `got` passes a cast to `info`.

    is_bound  whether a symbol is bound before; the cast binds the others
    values    what earlier casts found symbols to be; what this one finds is added
    """
    known = {v: values[v] for v in tir_vars_in_struct_info(got) if v in values}
    symbols = bind_symbols([(info, got)])
    for symbol in definable_tir_vars_in_struct_info(info):
        if not is_bound(symbol):
            # Another branch may have bound it to something else.
            values.pop(symbol, None)
            if symbol in symbols:
                values[symbol] = substitute(symbols[symbol], known)
    wanted = {v: values[v] for v in tir_vars_in_struct_info(info) if v in values}
    try:
        got = substitute_struct_info(got, known)
        return struct_info_base_check(substitute_struct_info(info, wanted), got)
    except StructInfoError:
        return _L0  # a size would be negative


def found_values(info: StructInfo, values: Mapping[TirVar, PrimExpr]) -> str:
    """What casts found the symbols of `info` to be, for a message: ``, where n = 4``."""
    known = [v for v in tir_vars_in_struct_info(info) if v in values]
    text = ", ".join(f"{v.name} = {plain_text(values[v])}" for v in known)
    return f", where {text}" if text else ""


def derive_call_ret_struct_info(
    func_sinfo: FuncStructInfo,
    args: Any,
    ctx: object = None,
    *,
    name: str = "the function",
    param_names: Sequence[str] | None = None,
    span: Span = UNKNOWN,
) -> StructInfo:
    """What a call of a function of signature `func_sinfo` gives.

    args  the arguments, or a call whose arguments they are (TVM's spelling)
    ctx   the BlockBuilder that a `derive_func` is given with the call (default: the one at work)
    Raises StructInfoError for a wrong number of arguments and for one that certainly does not fit
    its parameter. What cannot be decided here (a dimension `n` against `m`) is checked at run time
    by the callee.
    """
    if isinstance(args, Expr) and hasattr(args, "args"):
        if func_sinfo.derive_func is not None:
            return _derived_result(func_sinfo, args, ctx, name)
        span = args.span if span is UNKNOWN else span  # type: ignore[attr-defined]
        args = args.args
    if func_sinfo.params is None:
        if func_sinfo.derive_func is not None:
            raise StructInfoError(
                f"{name}: wanted a call, which {func_sinfo.derive_func.name} is given, got its "
                f"arguments alone{where(span)}"
            )
        return func_sinfo.ret
    infos = [
        a.struct_info if isinstance(a, Node) and hasattr(a, "struct_info") else a for a in args
    ]
    if len(infos) != len(func_sinfo.params):
        raise StructInfoError(
            f"{name}: wanted {len(func_sinfo.params)} arguments, got {len(infos)}{where(span)}"
        )
    binding = _Binding()
    for param, info in zip(func_sinfo.params, infos):
        binding.unify(param, info)
    for i, (param, info) in enumerate(zip(func_sinfo.params, infos)):
        if param is info:
            continue
        wanted = _erase_and_bind(param, binding)
        if struct_info_base_check(wanted, info) is _L0:
            label = param_names[i] if param_names else f"{i}"
            bound = "" if wanted is param else f", here {wanted}"
            raise StructInfoError(
                f"{name}: argument {label} does not fit its parameter\n"
                f"  wanted: {param}{bound}\n  got:    {info}{made_at(args[i])}{where(span)}"
            )
    return binding.result(func_sinfo.ret, func_sinfo.params)


def _derived_result(info: FuncStructInfo, call: Any, ctx: Any, name: str) -> StructInfo:
    """What the registered function that `info` names says that `call` gives."""
    assert info.derive_func is not None
    registered = info.derive_func.name
    what = f"{name}: what a call gives is found by the registered function {registered!r}"
    try:
        derive = info.derive_func.func
    except VerifyError as error:
        raise StructInfoError(f"{what}: {error}{where(call.span)}") from None
    if ctx is None:
        ctx = block_builder.BlockBuilder.current() or block_builder.BlockBuilder()
    try:
        result = derive(call, ctx)
    except Exception as error:
        # It is anyone's: whatever goes wrong in it is a fault of this call.
        raise StructInfoError(
            f"{what}, which failed: {type(error).__name__}: {error}{where(call.span)}"
        ) from error
    if not isinstance(result, StructInfo):
        raise StructInfoError(
            f"{what}: wanted struct info, got {type(result).__name__}{where(call.span)}"
        )
    return result


def _erase_and_bind(param: StructInfo, binding: _Binding) -> StructInfo:
    if not binding.symbols:
        return param
    return substitute_struct_info(param, binding.symbols)


def infer_call(
    op: Any,
    args: tuple[Any, ...],
    attrs: Mapping[str, Any],
    sinfo_args: tuple[StructInfo, ...],
    span: Span = UNKNOWN,
) -> StructInfo:
    """The struct info of a call: by the rule of an operator, the signature of a function, or what
    `sinfo_args` say.

    Raises StructInfoError naming the operator or function, the argument, wanted and got, and the
    source line.
    """
    if isinstance(op, Op):
        infer = getattr(op, "infer", None)
        if infer is None:
            raise StructInfoError(f"{op.name} is no operator of the graph language{where(span)}")
        inferred: StructInfo = infer(args, attrs, sinfo_args, span)
        return inferred
    info = getattr(op, "struct_info", None)
    name = getattr(op, "global_symbol", None) or getattr(op, "name_hint", None) or "the function"
    if isinstance(info, FuncStructInfo):
        if info.derive_func is not None:
            call = expr.Call(op, args, attrs, sinfo_args, info.ret, span)
            return _derived_result(info, call, None, name)
        if info.params is None:
            return _declared(sinfo_args) or info.ret
        params = getattr(op, "params", None)
        names = [p.name_hint for p in params] if params else None
        return derive_call_ret_struct_info(info, args, name=name, param_names=names, span=span)
    # A GlobalVar without a signature is a loop function, called in lowered code; its results are
    # its arguments.
    if isinstance(op, GlobalVar) and info is None:
        return _declared(sinfo_args) or _OBJECT
    if isinstance(info, ObjectStructInfo):
        return _declared(sinfo_args) or _OBJECT
    if info is None:
        raise StructInfoError(
            f"wanted a function or an operator to call, got {type(op).__name__}{where(span)}"
        )
    raise StructInfoError(f"{name} is called, but is no function: it is {info}{where(span)}")


def _declared(sinfo_args: tuple[StructInfo, ...]) -> StructInfo | None:
    if not sinfo_args:
        return None
    return sinfo_args[0] if len(sinfo_args) == 1 else TupleStructInfo(sinfo_args)
