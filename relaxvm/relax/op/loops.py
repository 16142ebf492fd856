"""Legalisation by loops written as statements, for what no formula per element describes (scatter),
and run-time checks in front of kernels.

    call_loops(builder, call, fill, x, indices)    fill(x, indices, out=[...]) -> Stmt, over buffers
    call_checked(builder, call, fn, check, ...)    the te function `fn`, after what `check` gives
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...ir import Map, PrimExpr, StringImm, cast, const, walk
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
    ForKind,
    LetStmt,
    PrimFunc,
    Stmt,
    decl_buffer,
    seq,
)
from ..emit_te import Inputs, call_te_inputs
from ..expr import Call, PrimValue
from ..rules import LowerBuilder, operator_name
from ..shape_facts import require_equal as require_equal
from ..struct_info import (
    TensorStructInfo,
    TupleStructInfo,
)
from .call import call_tir
from .lower import call_te, wide_dtype
from .sampling import f64

# -- statements -----------------------------------------------------------------------------------


def for_each(
    dims: Sequence[PrimExpr],
    body: Callable[..., Stmt | Sequence[Stmt]],
    prefix: str = "i",
    kind: ForKind = ForKind.SERIAL,
) -> Stmt:
    """``for i0, i1, ...: body(i0, i1, ...)`` over all of `dims`, the last one fastest."""
    loops = [TirVar(f"{prefix}{k}", d.dtype) for k, d in enumerate(dims)]
    inner = body(*loops)
    stmt = inner if isinstance(inner, Stmt) else seq(*inner)
    for loop, extent in reversed(list(zip(loops, dims))):
        stmt = For(loop, const(0, loop.dtype), extent, kind, stmt)
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


class Names:
    """Names for expressions, in the order in which they are asked for.

    names = Names()
    x = names.of(a * b)
    names.within(store(out, x * x, i))      let t0 = a * b in out[i] = t0 * t0
    """

    def __init__(self, prefix: str = "t") -> None:
        self.prefix = prefix
        self.bound: list[tuple[TirVar, PrimExpr]] = []

    def of(self, value: Any) -> PrimExpr:
        """A variable that stands for `value`; a Python number is one of float64."""
        value = value if isinstance(value, PrimExpr) else f64(value)
        var = TirVar(f"{self.prefix}{len(self.bound)}", value.dtype)
        self.bound.append((var, value))
        return var

    def within(self, body: Stmt) -> Stmt:
        """`body`, where the names are bound."""
        for var, value in reversed(self.bound):
            body = LetStmt(var, value, body)
        return body


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
    short = operator_name(call).rpartition(".")[2]
    inputs: Inputs[Buffer] = Inputs(short, decl_buffer)
    converted = [inputs.convert(a, f"argument {k}") for k, a in enumerate(args)]
    info = call.struct_info
    fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
    out = [inputs.tensor_of(f, f"out{k}" if k else "out", "result") for k, f in enumerate(fields)]
    if scratch:
        attrs["scratch"] = [
            decl_buffer([inputs.scalar(d) for d in dims], dtype, f"scratch{k}")
            for k, (dims, dtype) in enumerate(scratch)
        ]
    body = fill(*converted, out=out, **attrs)
    buffers = [*inputs.tensors, *out]
    scalars = inputs.scalars
    bound = {id(d) for b in buffers for d in b.shape} | {id(v) for v in scalars.values()}
    used = {id(n) for b in buffers for d in b.shape for n in walk(d)} | {id(n) for n in walk(body)}
    loose = {v: k for k, v in inputs.symbols.items() if id(v) not in bound and id(v) in used}
    func = loop_function(buffers, body, attrs.get("scratch", ()), len(out), scalars.values(), loose)
    gv = builder.add_func(func, name or short)
    exprs = [*inputs.exprs, *map(PrimValue, scalars)]
    return call_tir(gv, exprs, info, list(loose.values()) or None, span=call.span)


def loop_function(
    buffers: Sequence[Buffer],
    body: Stmt,
    scratch: Sequence[Buffer] = (),
    outputs: int = 0,
    scalars: Iterable[TirVar] = (),
    symbols: Iterable[TirVar] = (),
) -> PrimFunc:
    """A loop function that runs `body`. The last `outputs` of the `buffers` come behind the
    `scalars`, at the end what `symbols` no buffer's shape binds.
    """
    root = Block((), (), (), "root", body, alloc_buffers=tuple(scratch))
    handles = [TirVar(f"var_{b.name}", "handle") for b in buffers]
    first = len(buffers) - outputs
    return PrimFunc(
        (*handles[:first], *scalars, *handles[first:], *symbols),
        BlockRealize((), const(True), root),
        None,
        Map(dict(zip(handles, buffers))),
        Map({"tir.noalias": True}),
    )


def call_sums(
    builder: LowerBuilder,
    call: Call,
    add: Callable[..., Stmt],
    *args: Any,
    scratch: Sequence[tuple[Sequence[PrimExpr], Any]] = (),
) -> Call:
    """As `call_loops`, of results that ``add(*args, out=sums)`` adds to. They begin as zeros, and
    those of 16-bit floats are summed in a wider buffer and rounded once.
    """
    info: Any = call.struct_info
    results: Any = info.fields if isinstance(info, TupleStructInfo) else (info,)
    wides = [(r.dims, wide_dtype(r.dtype)) for r in results if wide_dtype(r.dtype) is not r.dtype]

    def fill(*inputs: Any, out: list[Buffer], scratch: Sequence[Buffer] = ()) -> Stmt:
        spare = iter(scratch)
        sums = [b if wide_dtype(b.dtype) is b.dtype else next(spare) for b in out]
        more = {"scratch": rest} if (rest := [*spare]) else {}
        steps = [for_each(b.shape, functools.partial(store, b, const(0, b.dtype))) for b in sums]
        steps.append(add(*inputs, out=sums, **more))
        return seq(*steps, *(_rounded(b, o) for b, o in zip(sums, out) if b is not o))

    return call_loops(builder, call, fill, *args, scratch=[*wides, *scratch])


def _rounded(b: Buffer, out: Buffer) -> Stmt:
    return for_each(out.shape, lambda *i: store(out, cast(out.dtype, load(b, *i)), *i), "r")


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
