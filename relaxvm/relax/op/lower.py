"""Shared parts of legalisation: from a call of an operator to a call of a loop function.

    def square_te(x):
        return te.compute(x.shape, lambda *i: x[i] * x[i])

    @op("square", numpy=np.square, lower=te_lower(square_te), ...)

`te_lower(compute)` hands `compute` the call's arguments (tensors as `te.Tensor`, shapes as lists of
dimensions, scalars as scalar expressions, tuples as lists) and its attributes by keyword; `compute`
gives a `te.Tensor` or a list of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...base import DataType
from ...ir import PrimExpr, cast, const
from ...runtime import operator_text
from ...te import Tensor, compute
from ..emit_te import call_te_inputs
from ..expr import Call, Constant, ExternFunc, PrimValue, StringImm
from ..rules import Lower, LowerBuilder, operator_name
from ..struct_info import Expr, StructInfo, TensorStructInfo, TupleStructInfo
from .call import call_pure_packed, call_tir
from .record import is_tensor, laid_flat, question


def te_lower(
    fn: Callable[..., Any],
    name: str | None = None,
) -> Lower:
    """A legalisation by the tensor expression ``fn(*args, **attrs)``. `name` is for the loop
    function.
    """

    def lower(builder: LowerBuilder, call: Call) -> Expr:
        return call_te(builder, call, fn, *call.args, te_name=name, **dict(call.attrs))

    return lower


def call_te(
    builder: LowerBuilder,
    call: Call,
    fn: Callable[..., Any],
    *args: Any,
    te_name: str | None = None,
    **attrs: Any,
) -> Call:
    """A `call_tir` that stands for `call`, of the loop function that ``fn(*args, **attrs)``
    describes.

    The result is declared as the inference rule gave it where that is known, so that variables keep
    their struct info. The same `fn` on arguments of the same struct info gives the same function.
    """
    if hasattr(builder, "formulas"):
        # Formulas are wanted (`topi`), not a loop function of them.
        return builder.formulas(fn, args, attrs)
    key = question(fn, args, attrs, te_name)
    known = builder.legalised.get(key) if key is not None else None
    if known is not None:
        gv, out_sinfo, tir_vars, scalars, _ = known
        inputs = [*filter(is_tensor, laid_flat(args)), *scalars]
    else:
        prim_func, inputs, out_sinfo, tir_vars = call_te_inputs(fn, args, attrs, closed=True)
        short = operator_name(call).rpartition(".")[2]
        gv = builder.add_func(prim_func, te_name or short)
        if key is not None:
            # With the arguments: the identities in the key are theirs as long as they live.
            scalars = [i for i in inputs if isinstance(i, PrimValue)]
            builder.legalised[key] = (gv, out_sinfo, tir_vars, scalars, args)
    if _known(call.struct_info):
        out_sinfo = call.struct_info
    return call_tir(gv, inputs, out_sinfo, tir_vars or None, span=call.span)


def _known(info: StructInfo) -> bool:
    if isinstance(info, TupleStructInfo):
        return bool(info.fields) and all(
            isinstance(f, TensorStructInfo) and _known(f) for f in info.fields
        )
    return isinstance(info, TensorStructInfo) and info.dims is not None and info.dtype != "void"


def lower_of(call: Call) -> Any:
    """The legalisation of a call of an operator: its own, but of strings that by its meaning."""
    return lower_by_meaning if _works_on_strings(call) else getattr(call.op, "lower", None)


def _works_on_strings(call: Call) -> bool:
    """Whether a call of an operator that computes tensors reads strings, or gives some."""
    if not callable(getattr(call.op, "numpy", None)) or not _tensors(call.struct_info):
        return False
    infos = [call.struct_info, *(x.struct_info for x in call.args)]
    # Grows while it is read: by the fields of tuples.
    for info in infos:
        if isinstance(info, TupleStructInfo):
            infos.extend(info.fields)
        elif isinstance(info, TensorStructInfo) and info.dtype.is_string:
            return True
    return False


def _tensors(info: StructInfo) -> tuple[Any, ...]:
    """The tensors that a result consists of; nothing for a result of other things, too."""
    fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
    return fields if all(isinstance(f, TensorStructInfo) for f in fields) else ()


def lower_by_meaning(builder: LowerBuilder, call: Call) -> Expr:
    """A legalisation of what loops cannot say: the operator's meaning in numpy runs in the
    machine (`vm.library.operator`).
    """
    info: Any = call.struct_info
    dtypes = [str(i.dtype) for i in _tensors(info)]
    attributes = {k: getattr(v, "value", v) for k, v in call.attrs.items()}
    one = isinstance(info, TensorStructInfo)
    text = operator_text(f"relax.{operator_name(call)}", attributes, dtypes[0] if one else dtypes)
    function = ExternFunc("vm.library.operator")
    return call_pure_packed(function, StringImm(text), *call.args, sinfo_args=info)


def scalar_constant(x: Any) -> Any:
    """The scalar expression that a constant array of no dimensions is, to be written into a kernel;
    else `x`.

    bfloat16 has no numpy scalar: its value is read as float32.
    """
    if isinstance(x, Constant) and len(x.data.shape) == 0:
        return const(x.data.item(), x.data.dtype)
    return x


def elementwise(x: Tensor, f: Callable[[PrimExpr], PrimExpr], name: str = "compute") -> Tensor:
    """The tensor of ``f(x[i])``."""
    return compute(x.shape, lambda *i: f(x(*i)), name)


def rounded(x: Tensor, dtype: DataType) -> Tensor:
    """`x`, which was summed in a dtype that may be wider, in `dtype`."""
    return x if x.dtype is dtype else elementwise(x, lambda e: cast(dtype, e), "rounded")


def wide_dtype(dtype: DataType) -> DataType:
    """The dtype that elements of `dtype` are accumulated in."""
    return DataType("float32") if dtype.is_float and dtype.bits == 16 else dtype


def in_float32(f: Callable[..., PrimExpr]) -> Callable[..., PrimExpr]:
    """`f` of scalar expressions, computed in float32 for the 16-bit floats and rounded once."""

    def wide(*args: PrimExpr) -> PrimExpr:
        dtype: DataType = args[0].dtype
        if not (dtype.is_float and dtype.bits == 16):
            return f(*args)
        return cast(dtype, f(*(cast("float32", a) for a in args)))

    return wide
