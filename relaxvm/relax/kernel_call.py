"""Whether a `call_tir` fits the loop function it calls."""

from __future__ import annotations

from typing import Any

from ..base import StructInfoError
from ..ir import IntImm, PrimExpr, substitute
from ..ir import Var as TirVar
from ..tir import Buffer, PrimFunc
from ..tir.analysis import is_pure_function
from .derive import plain_text, prove_dims, where
from .expr import Call, Tuple, Var
from .known_ops import CALL_TIR, CALL_TIR_INPLACE
from .struct_info import (
    Expr,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

KERNEL_CALLS = (CALL_TIR, CALL_TIR_INPLACE)


def check_kernel_call(call: Call, fn: PrimFunc) -> None:
    """Check the arguments, outputs and scalars of `call` against the parameters of `fn`.

    Raises StructInfoError for a wrong number of parameters and for an argument whose dtype, rank or
    shape certainly does not fit. Dimensions in doubt are checked when the program runs.
    """
    _Check(call, fn).run()


def symbols_of_call(call: Call, fn: PrimFunc) -> dict[TirVar, PrimExpr]:
    """What the sizes and scalars of `fn` are in `call`. Raises as `check_kernel_call`."""
    check = _Check(call, fn)
    check.run()
    return check.symbols


def loop_result(ret_dtype: Any) -> StructInfo:
    """What a direct call of a loop function that returns a scalar of `ret_dtype` gives; with None,
    one that returns nothing: the empty tuple.
    """
    nothing = ret_dtype is None or ret_dtype == "void"
    return TupleStructInfo(()) if nothing else PrimStructInfo(ret_dtype)


def loop_signature(fn: PrimFunc) -> FuncStructInfo:
    """The signature of a loop function: tensors for buffers, scalars, objects for other pointers;
    pure if it only computes.
    """

    def param(p: TirVar) -> StructInfo:
        buffer = fn.buffer_map.get(p)
        if isinstance(buffer, Buffer):
            return TensorStructInfo(tuple(buffer.shape), buffer.dtype)
        return ObjectStructInfo() if p.dtype == "handle" else PrimStructInfo(p.dtype)

    ret = loop_result(getattr(fn.ret_type, "dtype", None))
    return FuncStructInfo(tuple(map(param, fn.params)), ret, is_pure_function(fn))


class _Check:
    def __init__(self, call: Call, fn: PrimFunc) -> None:
        self.call = call
        self.fn = fn
        self.short = getattr(call.op, "short", "call_tir")
        self.name = f"{self.short} {call.args[0].name_hint}"  # type: ignore[attr-defined]
        self.symbols: dict[TirVar, PrimExpr] = {}

    def run(self) -> None:
        buffers = [*self.inputs(), *self.outputs()]
        scalars = self.scalars()
        params = self.fn.params
        wanted = len(buffers) + (len(scalars) if scalars is not None else 0)
        if scalars is not None and wanted != len(params):
            kinds = f"{len(self.inputs())} inputs, {len(buffers) - len(self.inputs())} outputs"
            tail = f" and {len(scalars)} scalars" if scalars else ""
            raise self.error(
                f"the loop function has {len(params)} parameters "
                f"({', '.join(p.name for p in params)}), the call gives {wanted}: {kinds}{tail}"
            )
        if scalars is None and len(buffers) > len(params):
            raise self.error(f"wanted {len(params)} parameters, got at least {len(buffers)}")
        pairs = list(zip(params, buffers))
        for param, (_, info) in pairs:
            self.bind(param, info)
        for param, scalar in zip(params[len(buffers) :], scalars or ()):
            if param in self.fn.buffer_map:
                raise self.error(
                    f"parameter {param.name} is a buffer, got the scalar {scalar} of tir_vars; "
                    "an input or output is missing"
                )
            self.symbols[param] = scalar
        for param, (label, info) in pairs:
            self.check(param, label, info)

    def error(self, message: str) -> StructInfoError:
        return StructInfoError(f"{self.name}: {message}{where(self.call.span)}")

    def inputs(self) -> list[tuple[str, StructInfo]]:
        args: Any = self.call.args[1]
        if isinstance(args, Tuple):
            return [(_label(i, a), a.struct_info) for i, a in enumerate(args.fields)]
        info = args.struct_info
        fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
        return [(f"argument {i}", f) for i, f in enumerate(fields)]

    def outputs(self) -> list[tuple[str, StructInfo]]:
        info = self.call.sinfo_args[0]
        fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
        inplace = self.call.attrs.get("inplace_indices", (-1,) * len(fields))
        return [(f"output {i}", f) for i, f in enumerate(fields) if inplace[i] == -1]

    def scalars(self) -> list[PrimExpr] | None:
        if len(self.call.args) < 3:
            return []
        info = self.call.args[2].struct_info
        return list(info.values) if isinstance(info, ShapeStructInfo) and info.values else None

    def buffer(self, param: TirVar) -> Buffer | None:
        buffer = self.fn.buffer_map.get(param)
        return buffer if isinstance(buffer, Buffer) else None

    def bind(self, param: TirVar, info: StructInfo) -> None:
        buffer = self.buffer(param)
        if buffer is None:
            if isinstance(info, PrimStructInfo) and info.value is not None:
                self.symbols.setdefault(param, info.value)
            return
        dims = info.dims if isinstance(info, TensorStructInfo) else None
        if dims is not None and len(dims) == len(buffer.shape):
            for mine, dim in zip(buffer.shape, dims):
                if isinstance(mine, TirVar):
                    self.symbols.setdefault(mine, dim)

    def check(self, param: TirVar, label: str, info: StructInfo) -> None:
        buffer = self.buffer(param)
        if buffer is None:
            if param.dtype == "handle" or isinstance(info, PrimStructInfo):
                return
            if isinstance(info, TensorStructInfo):
                raise self.error(
                    f"{label} does not fit parameter {param.name}\n"
                    f"  wanted: a scalar {param.dtype}\n  got:    {info}"
                )
            return
        if not isinstance(info, TensorStructInfo):
            if isinstance(info, (PrimStructInfo, ShapeStructInfo)):
                raise self.mismatch(label, buffer, info)
            return
        if info.dtype != "void" and info.dtype is not buffer.dtype:
            raise self.mismatch(label, buffer, info)
        if info.ndim not in (-1, len(buffer.shape)):
            raise self.mismatch(label, buffer, info)
        if info.dims is None:
            return
        for mine, dim in zip(buffer.shape, info.dims):
            if isinstance(mine, IntImm) and isinstance(dim, IntImm):
                same: bool | None = mine.value == dim.value
            else:
                same = prove_dims(self.translate(mine), dim)
            if same is False:
                raise self.mismatch(label, buffer, info)

    def translate(self, dim: PrimExpr) -> PrimExpr:
        mapping = {v: e.astype(v.dtype) for v, e in self.symbols.items()}
        return substitute(dim, mapping).astype("int64")

    def mismatch(self, label: str, buffer: Buffer, info: StructInfo) -> StructInfoError:
        shape = ", ".join(map(plain_text, buffer.shape))
        known = {v.name: e for v, e in self.symbols.items()}
        bound = ", ".join(f"{k} = {plain_text(v)}" for k, v in known.items())
        return self.error(
            f"{label} does not fit buffer {buffer.name}\n"
            f"  wanted: ({shape}) of {buffer.dtype}{f', where {bound}' if bound else ''}\n"
            f"  got:    {info}"
        )


def _label(i: int, arg: Expr) -> str:
    return f"argument {i} ({arg.name_hint})" if isinstance(arg, Var) else f"argument {i}"
