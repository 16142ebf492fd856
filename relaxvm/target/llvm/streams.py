"""Stores that leave the caches alone: of results so large that nobody finds them there again.

    for i in range(n):                                if A is aligned:  the loop, with such stores
        A[ramp(i * 32, 1, 32)] = ...           →      else:             the loop as it is
    # annotation tir.nontemporal

A line that is written as a whole need not be read before. Such stores are of whole vectors at
addresses aligned as the vectors are, which is known of the buffer only when the kernel runs. They
are not in order with others on x86: a function with some ends with a fence, so that whoever is told
that the kernel has run sees them.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from ...arith import Analyzer
from ...ir import PrimExpr, Var, walk
from ...tir import NONTEMPORAL, BufferStore, For, ForKind

if TYPE_CHECKING:
    from .stmt import KernelEmitter, Steps


# No vector is wider, nor a line of a cache narrower, on what we generate code for.
_ALIGN = 64
_LEAST_ALIGN = 16
_HINT = ", !nontemporal !{i32 1}"


def is_streamed(g: KernelEmitter, stmt: For) -> bool:
    """Whether to make the two versions of a loop."""
    return (
        bool(stmt.annotations.get(NONTEMPORAL, False))
        and stmt.kind == ForKind.SERIAL
        and not g.streamed
        and not g.module.confined
        and bool(_handles(stmt))
    )


def _handles(stmt: For) -> list[Var]:
    """The memory that whole vectors are stored to, in the order of the stores."""
    handles: dict[Var, None] = {}
    for n in walk(stmt.body):
        if isinstance(n, BufferStore) and n.value.dtype.lanes > 1:
            handles[n.buffer.data] = None
    return list(handles)


def past_caches(g: KernelEmitter, stmt: For) -> Steps:
    """Emit the two versions of a loop (see `is_streamed`)."""
    text, handles = g.text, _handles(stmt)
    addresses = [text.cast("ptrtoint", g.pointer(handle), "i64") for handle in handles]
    address = functools.reduce(functools.partial(text.op, "or"), addresses)
    off = text.op("and", address, _ALIGN - 1)
    with text.if_(text.op("icmp eq", off, 0)) as otherwise:
        g.streamed = frozenset(handles)
        g.unfenced.append(text)
        g.forget()
        yield stmt
        g.streamed = frozenset()
        otherwise()
        g.forget()
        yield stmt.replace(annotations=stmt.annotations.without(NONTEMPORAL))


def nontemporal(index: PrimExpr, size: int, itemsize: int) -> tuple[int, str]:
    """The alignment of a store of `size` bytes to the element `index` of aligned memory, and what
    is added to it so that it goes past the caches; "" where it has to be a plain one.
    """
    align = min(size & -size, _ALIGN)
    residues = Analyzer(wrap=True).modular_set(index)
    if align < _LEAST_ALIGN or math.gcd(*residues) * itemsize % align:
        return itemsize, ""
    return align, _HINT


def fence(g: KernelEmitter) -> None:
    """Order the stores past the caches before what follows."""
    if g.module.triple.startswith(("x86_64", "amd64")):
        g.module.declare("llvm.x86.sse.sfence", "void", ())
        g.text.call("llvm.x86.sse.sfence")
