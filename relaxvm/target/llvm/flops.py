"""About how much arithmetic a kernel does, as a dimension over its symbols: for profiles.

A schedule may pad tiles and compute things twice, which is no work that anybody asked for. So what
a function does is noted on it before it gets its schedule.
"""

from __future__ import annotations

import functools
import json
import operator

from ...arith import Analyzer
from ...base import CodegenError, TIRError, VerifyError
from ...ir import IntImm, IRModule, Max, PrimExpr, Var, post_order, walk
from ...runtime.dims import Dim, dim_from_plain, dim_to_plain
from ...tir import For, PrimFunc, Stmt, statements_below
from ...tir.analysis import estimate_tir_flops
from .signature import Signature, dim_of, signature_of

NOTED = "tir.flops"
"""The attribute of a scheduled function: `kernel_flops` of what it was, as JSON."""

_MOST = 1 << 60
_MAX_SYMBOLIC = 64


def note_flops(before: IRModule, after: IRModule) -> IRModule:
    """`after` with a note on each function that is another than in `before`."""
    noted = {}
    for gv, fn in after.items():
        old = before.functions.get(gv)
        if fn is old or not isinstance(fn, PrimFunc) or not isinstance(old, PrimFunc):
            continue
        try:
            flops = kernel_flops(old, signature_of(old, []))
        except CodegenError:
            # It is no kernel; who compiles it says so.
            continue
        if flops is not None:
            noted[gv] = fn.with_attr(NOTED, json.dumps(dim_to_plain(flops)))
    if not noted:
        return after
    result = after.clone()
    for gv, fn in noted.items():
        result[gv] = fn
    return result


def kernel_flops(fn: PrimFunc, signature: Signature) -> Dim | None:
    """The operations of one call, index arithmetic left out; None where no formula says it.

    Both sides of a branch count, a `while` as one iteration. A loop whose extent depends on another
    loop's variable gives None. What was noted of the function goes before what it has become.
    """
    noted = fn.get_attr(NOTED)
    if isinstance(noted, str):
        try:
            return dim_from_plain(json.loads(noted), set(signature.names.values()))
        except (ValueError, RecursionError, VerifyError):
            # It is of a function with other symbols, or damaged.
            pass
    return _count(fn.body, signature)


def _count(body: Stmt, signature: Signature) -> Dim | None:
    analyzer = Analyzer(wrap=True)
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
    done: dict[int, PrimExpr] = {}
    for s in post_order(root, statements_below):
        assert isinstance(s, Stmt)
        parts = [done[id(c)] for c in statements_below(s)]
        if not parts:
            flops = estimate_tir_flops(s, guards=True)
            parts = [IntImm("int64", min(int(flops), _MOST))]
        if sum(not isinstance(part, IntImm) for part in parts) > _MAX_SYMBOLIC:
            return None
        total = functools.reduce(operator.add, parts)
        if isinstance(s, For):
            # How often it runs, over the kernel's symbols.
            extent = s.extent.astype("int64")
            if any(isinstance(v, Var) and v not in signature.names for v in walk(extent)):
                return None
            total = Max(extent, IntImm("int64", 0)) * total
        done[id(s)] = total
    return done[id(root)]
