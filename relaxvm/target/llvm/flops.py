"""About how much arithmetic a kernel does, as a dimension over its symbols: for profiles."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...base import CodegenError, TIRError
from ...ir import IntImm, Max, PrimExpr, Var, walk
from ...runtime.dims import Dim
from ...tir import BlockRealize, For, Stmt
from ...tir.analysis import estimate_tir_flops
from .signature import Signature, dim_of

__all__ = ["kernel_flops"]

_MOST = 1 << 60
_MAX_SYMBOLIC = 64


def kernel_flops(body: Stmt, signature: Signature) -> Dim | None:
    """The operations of one call, index arithmetic left out; None where no formula says it.

    Both sides of a branch count, a `while` as one iteration. A loop whose extent depends on another
    loop's variable gives None.
    """
    analyzer = Analyzer()
    try:
        total = _statement(body, signature)
        if total is None:
            return None
        simple = analyzer.simplify(total)
        if isinstance(simple, IntImm):
            return simple.value if 0 <= simple.value < _MOST else None
        return dim_of(simple, signature.names)
    except (CodegenError, TIRError):
        # What has no formula is left out of profiles; the kernel itself is fine.
        return None


def _statement(root: Stmt, signature: Signature) -> PrimExpr | None:
    done: dict[int, PrimExpr | None] = {}
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        s, ready = stack.pop()
        if id(s) in done:
            continue
        children = [c for c in _below(s) if isinstance(c, Stmt)]
        if not ready:
            stack.append((s, True))
            stack.extend((c, False) for c in children)
            continue
        if isinstance(s, For):
            extent = _extent(s, signature)
            inner = done[id(s.body)]
            done[id(s)] = None if extent is None or inner is None else extent * inner
        elif children:
            done[id(s)] = _sum([done[id(c)] for c in children])
        else:
            done[id(s)] = _straight(s)
    return done[id(root)]


def _below(s: Any) -> list[Any]:
    if isinstance(s, BlockRealize):
        return [b for b in (s.block.init, s.block.body) if b is not None]
    return list(s._children_())


def _straight(s: Stmt) -> PrimExpr:
    return IntImm("int64", min(int(estimate_tir_flops(s)), _MOST))


def _sum(parts: list[PrimExpr | None]) -> PrimExpr | None:
    total: PrimExpr = IntImm("int64", 0)
    symbolic = 0
    for part in parts:
        symbolic += not isinstance(part, IntImm)
        if part is None or symbolic > _MAX_SYMBOLIC:
            return None
        total = total + part
    return total


def _extent(s: For, signature: Signature) -> PrimExpr | None:
    """How often a loop runs, over the kernel's symbols."""
    extent = s.extent.astype("int64")
    strange = [v for v in walk(extent) if isinstance(v, Var) and v not in signature.names]
    return None if strange else Max(extent, IntImm("int64", 0))
