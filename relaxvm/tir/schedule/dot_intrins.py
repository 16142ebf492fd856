"""Tensor intrinsics for dot products: a few factors times a register of packed ones.

    dot_16x4_uint8_int8     C[i] += A[k] * B[4 * i + k]     16 sums of 4 products

`A` is the same for all sums, `B` lies in memory in the order in which registers take it. The
implementation is one `dot_accumulate`; which instruction that is, the code generator decides for
its machine (VNNI, AVX512-BF16, Arm's dot products, else plain arithmetic).
"""

from __future__ import annotations

import functools

from ...base import DataType
from ...ir import Broadcast, Ramp, Range, Var, cast, const
from ..op import dot_accumulate, reinterpret
from ..stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    IterVar,
    PrimFunc,
    Stmt,
    decl_buffer,
)
from .intrin import register_builtin

_LANES = (4, 8, 16)
# (dtype of A, dtype of B, sums in); four bytes of each are in one lane of the sums.
_KINDS = (
    ("uint8", "int8", "int32"),
    ("int8", "uint8", "int32"),
    ("int8", "int8", "int32"),
    ("uint8", "uint8", "int32"),
    ("int16", "int16", "int32"),
    ("bfloat16", "bfloat16", "float32"),
)


def dot_intrin(lanes: int, a: str, b: str) -> str:
    """The name of the intrinsic of `lanes` sums for those dtypes."""
    group = 32 // DataType(a).bits
    return f"dot_{lanes}x{group}_{a}_{b}"


def _buffers(lanes: int, group: int, a: str, b: str, out: str) -> tuple[Buffer, Buffer, Buffer]:
    return (
        decl_buffer((group,), a, "A"),
        decl_buffer((lanes * group,), b, "B"),
        decl_buffer((lanes,), out, "C"),
    )


def _function(buffers: tuple[Buffer, ...], body: Stmt) -> PrimFunc:
    handles = tuple(Var(f"{b.name}_handle", "handle") for b in buffers)
    root = Block((), (), (), "root", body)
    realize = BlockRealize((), const(True), root)
    return PrimFunc(handles, realize, None, dict(zip(handles, buffers)))


def _functions(lanes: int, a: str, b: str, out: str) -> tuple[PrimFunc, PrimFunc]:
    kind = lanes, 32 // DataType(a).bits, a, b, out
    return _description(*kind), _implementation(*kind)


def _description(lanes: int, group: int, a: str, b: str, out: str) -> PrimFunc:
    buffers = x, y, acc = _buffers(lanes, group, a, b, out)
    i, k = Var("i", "int32"), Var("k", "int32")
    loops = [(Var("i0", "int32"), i, lanes, "spatial"), (Var("k0", "int32"), k, group, "reduce")]
    product = cast(out, BufferLoad(x, (k,))) * cast(out, BufferLoad(y, (i * group + k,)))
    store = BufferStore(acc, BufferLoad(acc, (i,)) + product, (i,))
    axes = tuple(
        IterVar(Range.from_min_extent(const(0), const(n)), var, kind) for _, var, n, kind in loops
    )
    block = Block(axes, (), (), "dot", store)
    body: Stmt = BlockRealize(tuple(loop for loop, *_ in loops), const(True), block)
    for loop, _, n, _ in reversed(loops):
        body = For(loop, const(0), const(n), ForKind.SERIAL, body)
    return _function(buffers, body)


def _implementation(lanes: int, group: int, a: str, b: str, out: str) -> PrimFunc:
    buffers = x, y, acc = _buffers(lanes, group, a, b, out)

    def whole(buffer: Buffer, n: int) -> BufferLoad:
        return BufferLoad(buffer, (Ramp(const(0), const(1), n),))

    # The four bytes are one number to the machine, which it copies into every lane.
    factors = reinterpret(
        f"{a}x{lanes * group}", Broadcast(reinterpret("int32", whole(x, group)), lanes)
    )
    sums = dot_accumulate(whole(acc, lanes), factors, whole(y, lanes * group))
    return _function(buffers, BufferStore(acc, sums, (Ramp(const(0), const(1), lanes),)))


for _a, _b, _out in _KINDS:
    for _lanes in _LANES:
        register_builtin(
            dot_intrin(_lanes, _a, _b), functools.partial(_functions, _lanes, _a, _b, _out)
        )
