"""Legalisation by loops written as statements, for what no formula per element describes (scatter),
and run-time checks in front of kernels.

    call_loops(builder, call, fill, x, indices)    fill(x, indices, out=[...]) -> Stmt, over buffers
    call_checked(builder, call, fn, check, ...)    the te function `fn`, after what `check` gives
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base import NameSupply, StructInfoError
from ...ir import Map, PrimExpr, StringImm, const, substitute, walk
from ...ir import Var as TirVar
from ...tir import (
    AssertStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    PrimFunc,
    Stmt,
    decl_buffer,
    seq,
)
from ..emit_te import call_te_inputs
from ..expr import Call, Tuple, TupleGetItem, Var
from ..rules import LowerBuilder, operator_name
from ..shape_facts import require_equal as require_equal
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .call import call_tir
from .lower import call_te

# -- statements -----------------------------------------------------------------------------------


def for_each(
    dims: Sequence[PrimExpr], body: Callable[..., Stmt | Sequence[Stmt]], prefix: str = "i"
) -> Stmt:
    """``for i0, i1, ...: body(i0, i1, ...)`` over all of `dims`, the last one fastest."""
    loops = [TirVar(f"{prefix}{k}", d.dtype) for k, d in enumerate(dims)]
    made = body(*loops)
    stmt = made if isinstance(made, Stmt) else seq(*made)
    for loop, extent in reversed(list(zip(loops, dims))):
        stmt = For(loop, const(0, loop.dtype), extent, "serial", stmt)
    return stmt


def load(buffer: Buffer, *index: PrimExpr) -> PrimExpr:
    """An element of a buffer."""
    return BufferLoad(buffer, index)


def store(buffer: Buffer, value: Any, *index: PrimExpr) -> Stmt:
    """Write an element of a buffer."""
    return BufferStore(buffer, value, index)


def assert_that(condition: PrimExpr, message: str) -> Stmt:
    """Stop the program with `message` unless `condition` holds."""
    return AssertStmt(condition, StringImm(message), Evaluate(const(0, "int32")))


# -- calls ----------------------------------------------------------------------------------------


def call_loops(
    builder: LowerBuilder,
    call: Call,
    fill: Callable[..., Stmt],
    *args: Any,
    scratch: Sequence[tuple[Sequence[PrimExpr], Any]] = (),
    name: str | None = None,
    **attrs: Any,
) -> Call:
    """A `call_tir` that stands for `call`, of a loop function whose statements `fill` gives.

    fill     (*args, out=[output buffers], **attrs) -> Stmt; tensors come as buffers, shapes and
             tuples as lists, scalars as expressions; ``scratch=`` buffers come too if there are any
    scratch  (dimensions, dtype) of buffers that live while it runs
    """
    inputs = _Inputs()
    converted = [inputs.convert(a) for a in args]
    info = call.struct_info
    fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
    out = [inputs.buffer(f, f"out{k}" if k else "out") for k, f in enumerate(fields)]
    if scratch:
        attrs["scratch"] = [
            decl_buffer([inputs.scalar(d) for d in dims], dtype, f"scratch{k}")
            for k, (dims, dtype) in enumerate(scratch)
        ]
    body = fill(*converted, out=out, **attrs)
    root = Block((), (), (), "root", body, alloc_buffers=tuple(attrs.get("scratch", ())))
    buffers = [*inputs.buffers, *out]
    handles = [TirVar(f"var_{b.name}", "handle") for b in buffers]
    bound = {id(d) for b in buffers for d in b.shape}
    used = {id(n) for b in buffers for d in b.shape for n in walk(d)} | {id(n) for n in walk(body)}
    loose = {v: k for k, v in inputs.symbols.items() if id(v) not in bound and id(v) in used}
    func = PrimFunc(
        (*handles, *loose),
        BlockRealize((), const(True), root),
        None,
        Map(dict(zip(handles, buffers))),
        Map({"tir.noalias": True}),
    )
    short = operator_name(call).rpartition(".")[2]
    gv = builder.add_func(func, name or short)
    return call_tir(gv, inputs.exprs, info, list(loose.values()) or None, span=call.span)


class _Inputs:
    """Arguments of a call as what statements are written with; symbols get copies of their own."""

    def __init__(self) -> None:
        self.exprs: list[Expr] = []
        self.buffers: list[Buffer] = []
        self.symbols: dict[TirVar, TirVar] = {}
        self._names = NameSupply(joint="_")

    def convert(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self.convert(v) for v in value]
        if isinstance(value, PrimExpr):
            return self.scalar(value)
        if not isinstance(value, Expr):
            return value
        if isinstance(value, Tuple):
            return [self.convert(f) for f in value.fields]
        info = value.struct_info
        if isinstance(info, TensorStructInfo):
            made = self.buffer(info, value.name_hint if isinstance(value, Var) else "A")
            self.exprs.append(value)
            self.buffers.append(made)
            return made
        if isinstance(info, TupleStructInfo):
            return [self.convert(TupleGetItem(value, i)) for i in range(len(info.fields))]
        if isinstance(info, ShapeStructInfo) and info.values is not None:
            return [self.scalar(v) for v in info.values]
        if isinstance(info, PrimStructInfo) and info.value is not None:
            return self.scalar(info.value)
        raise StructInfoError(f"wanted a tensor, a shape or a scalar that is known, got {info}")

    def buffer(self, info: StructInfo, hint: str) -> Buffer:
        if not isinstance(info, TensorStructInfo) or info.dims is None or info.dtype == "void":
            raise StructInfoError(f"wanted a tensor of known shape and dtype, got {info}")
        name = self._names.fresh(hint if hint.isidentifier() else "A")
        return decl_buffer([self.scalar(d) for d in info.dims], info.dtype, name)

    def scalar(self, value: PrimExpr) -> PrimExpr:
        for n in walk(value):
            if isinstance(n, TirVar) and n not in self.symbols:
                self.symbols[n] = type(n)(n.name, n.dtype)
        return substitute(value, self.symbols)


def call_checked(
    builder: LowerBuilder,
    call: Call,
    fn: Callable[..., Any],
    check: Callable[..., Stmt | None],
    *args: Any,
    **attrs: Any,
) -> Call:
    """As `call_te`, with the statement ``check(*input buffers)`` run before `fn`'s loops."""
    func, inputs, out_sinfo, tir_vars = call_te_inputs(fn, args, attrs, closed=True)
    guard = check(*func.buffers[: len(inputs)])
    if guard is None and hasattr(builder, "formulas"):
        return call_te(builder, call, fn, *args, **attrs)
    if guard is not None:
        realize: Any = func.body
        block = realize.block
        func = func.replace(body=realize.replace(block=block.replace(body=seq(guard, block.body))))
    short = operator_name(call).rpartition(".")[2]
    gv = builder.add_func(func, short)
    info = call.struct_info
    if isinstance(info, TensorStructInfo) and info.dims is not None and info.dtype != "void":
        out_sinfo = info
    return call_tir(gv, inputs, out_sinfo, tir_vars or None, span=call.span)
