"""Legalisation by loops written out, for what a tensor expression cannot say: scans and scattered sums.

    call_kernel(builder, call, body, [x])     # body(x_buffer, out_buffer) -> Stmt

Also `same_dims`: dimensions that only the run of the program can compare are compared there, before a kernel reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base import StructInfoError
from ...ir.expr import PrimExpr, const
from ...ir.expr import Var as TirVar
from ...ir.node import Map
from ...ir.walk import substitute, walk
from ...tir import PrimFunc
from ...tir.stmt import Block, BlockRealize, Buffer, For, Stmt, decl_buffer
from ..derive import prove_dims
from ..expr import Call, Var
from ..struct_info import Expr, TensorStructInfo, TupleStructInfo
from .call import call_tir

__all__ = ["call_kernel", "loops", "same_dims"]


def loops(
    extents: Sequence[PrimExpr], body: Callable[..., Stmt], names: Sequence[str] = ()
) -> Stmt:
    """Serial loops from 0 over `extents` around ``body(*loop_variables)``."""
    variables = [
        TirVar(names[k] if names else f"i{k}", e.dtype) for k, e in enumerate(extents)
    ]
    made = body(*variables)
    for variable, extent in reversed(list(zip(variables, extents))):
        made = For(variable, const(0, extent.dtype), extent, "serial", made)
    return made


def call_kernel(
    builder: Any,
    call: Call,
    body: Callable[..., Stmt],
    inputs: Sequence[Expr],
    local: Sequence[tuple[Sequence[int], str]] = (),
) -> Call:
    """A `call_tir` that stands for `call`, of the loop function ``body(*inputs, *outputs, *local)`` of buffers.

    local  shape and dtype of buffers that the loops use among themselves
    The outputs are those that the inference rule gave, and their shapes must be known.
    """
    symbols: dict[Any, Any] = {}

    def own(dim: PrimExpr) -> PrimExpr:
        for n in walk(dim):
            if isinstance(n, TirVar) and n not in symbols:
                symbols[n] = type(n)(n.name, n.dtype)
        return substitute(dim, symbols)  # type: ignore[no-any-return]

    def buffer(info: Any, name: str) -> Buffer:
        if not isinstance(info, TensorStructInfo) or info.dims is None or info.dtype == "void":
            raise StructInfoError(f"{name}: wanted a tensor of known shape and dtype, got {info}")
        return decl_buffer([own(d) for d in info.dims], info.dtype, name)

    hints = [x.name_hint if isinstance(x, Var) else "A" for x in inputs]
    given = [
        buffer(x.struct_info, f"{h}_{i}" if h in hints[:i] or h == "out" else h)
        for i, (x, h) in enumerate(zip(inputs, hints))
    ]
    info = call.struct_info
    results = info.fields if isinstance(info, TupleStructInfo) else (info,)
    outputs = [buffer(r, f"out_{i}" if i else "out") for i, r in enumerate(results)]
    scratch = [decl_buffer(shape, dtype, f"local{i}") for i, (shape, dtype) in enumerate(local)]
    stmt = body(*given, *outputs, *scratch)
    root = Block((), (), (), "root", stmt, alloc_buffers=tuple(scratch))
    buffers = [*given, *outputs]
    handles = [TirVar(f"var_{b.name}", "handle") for b in buffers]
    bound = {id(d) for b in buffers for d in b.shape}
    loose = [(theirs, mine) for theirs, mine in symbols.items() if id(mine) not in bound]
    func = PrimFunc(
        (*handles, *(mine for _, mine in loose)),
        BlockRealize((), const(True), root),
        None,
        Map(dict(zip(handles, buffers))),
        Map({"tir.noalias": True}),
    )
    short = call.op.short.rpartition(".")[2]  # type: ignore[attr-defined]
    gv = builder.add_func(func, short)
    variables = [theirs for theirs, _ in loose]
    return call_tir(gv, list(inputs), info, variables or None, span=call.span)


def same_dims(builder: Any, x: Expr, wanted: dict[int, PrimExpr]) -> Expr:
    """`x` with the dimensions `wanted` (axis -> size); where that is not proven, the program checks it when it runs."""
    info: Any = x.struct_info
    dims = list(info.dims)
    for axis, dim in wanted.items():
        if not prove_dims(dims[axis], dim):
            dims[axis] = dim
    if all(a is b for a, b in zip(dims, info.dims)):
        return x
    return builder.match_cast(x, TensorStructInfo(dims, info.dtype, info.vdevice))  # type: ignore[no-any-return]
