"""What a function costs: bytes it allocates, arithmetic it does, and whether it does anything but
compute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer
from ...base import TIRError, VerifyError
from ...ir import (
    ArithmeticExpr,
    Call,
    CompareExpr,
    GlobalVar,
    IntImm,
    Intrinsic,
    IRModule,
    Not,
    PrimExpr,
    Range,
    Select,
    descend,
    enter_leave,
    walk,
)
from ..stmt import (
    Allocate,
    BlockRealize,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    PrimFunc,
    Stmt,
    While,
    statements_below,
)
from .buffer_access import buffer_accesses
from .scope import operands


def calculate_allocated_bytes(obj: Any) -> dict[str, Any]:
    """The most bytes alive at once, by function and storage scope: {"main": {"global": 4096}}; a
    function alone is "main".

    Memory of symbolic size is left out, as in TVM.
    """
    if isinstance(obj, PrimFunc):
        return {"main": _peak_bytes(obj)}
    if not isinstance(obj, IRModule):
        raise TIRError(f"wanted a PrimFunc or an IRModule, got {type(obj).__name__}")
    return {gv.name_hint: _peak_bytes(f) for gv, f in obj.items() if isinstance(f, PrimFunc)}


def _peak_bytes(obj: PrimFunc) -> dict[str, int]:
    alive: dict[str, int] = {}
    peak: dict[str, int] = {}
    for s, entering in enter_leave(obj.body, statements_below):
        for scope, size in _allocations(s):
            alive[scope] = alive.get(scope, 0) + (size if entering else -size)
            peak[scope] = max(peak.get(scope, 0), alive[scope])
    return peak


def _allocations(s: Any) -> list[tuple[str, int]]:
    if isinstance(s, Allocate):
        return _sized(s.buffer_var.storage_scope, s.extents, s.dtype.itemsize)
    if isinstance(s, BlockRealize):
        sizes = []
        for b in s.block.alloc_buffers:
            sizes += _sized(b.scope(), b.shape, b.dtype.itemsize)
        return sizes
    return []


def _sized(scope: str, extents: tuple[PrimExpr, ...], itemsize: int) -> list[tuple[str, int]]:
    numbers = [e.value for e in extents if isinstance(e, IntImm)]
    return [(scope, math.prod(numbers) * itemsize)] if len(numbers) == len(extents) else []


def is_pure_function(func: PrimFunc) -> bool:
    """Whether `func` only computes: it writes no memory of its caller, calls nothing opaque and
    cannot fail.
    """
    return _impurity(func) is None


def assert_pure_function(func: PrimFunc) -> None:
    """Raise VerifyError saying what `func` does besides computing."""
    problem = _impurity(func)
    if problem is not None:
        raise VerifyError(f"{func.get_attr('global_symbol', 'main')} is not pure: {problem}")


def _impurity(func: PrimFunc) -> str | None:
    access = buffer_accesses(func)
    outside = {id(func.buffer_map[p].data) for p in func.params if p in func.buffer_map}
    outside |= {id(p) for p in func.params}
    for b, how in access.items():
        if "w" in how and id(b.data) in outside:
            return f"it writes its parameter {b.name}"
    for n in walk(func.body):
        if type(n) is Call:
            if isinstance(n.op, GlobalVar):
                return f"it calls {n.op.name_hint}"
            if isinstance(n.op, Intrinsic) and n.op.effect in ("check", "opaque"):
                name = n.op.name.removeprefix("tir.")
                if name not in ("ret", "call_pure_extern", "call_llvm_pure_intrin"):
                    return f"it calls {name}"
    return None


def estimate_tir_flops(obj: Any, *, guards: bool = False) -> float:
    """About how many arithmetic operations `obj` (a PrimFunc, a statement or a module) does.

    Counted are the operations of stored values, and of conditions those on floats, not those of
    indices; a branch counts as its dearer side, a `while` as one iteration. A loop whose extent is
    not constant counts with the greatest value it is known to have. Raises TIRError if it has none.

    guards  count the operations of conditions on integers, too: they take time
    """
    if isinstance(obj, IRModule):
        functions = [f for _, f in obj.items() if isinstance(f, PrimFunc)]
        return sum(estimate_tir_flops(f, guards=guards) for f in functions)
    root: Any = obj.body if isinstance(obj, PrimFunc) else obj
    analyzer = Analyzer(wrap=False)
    done: dict[int, float] = {}

    def below(s: Stmt) -> Sequence[Stmt]:
        if id(s) in done:
            return ()
        # The first value of a reduction is not counted.
        return (s.block.body,) if isinstance(s, BlockRealize) else statements_below(s)

    for s, entering in enter_leave(root, below):
        if not entering:
            done[id(s)] = _statement_flops(s, done, analyzer, guards)
        elif isinstance(s, For):
            analyzer.bind(s.loop_var, Range.from_min_extent(s.min, s.extent), allow_override=True)
    return done[id(root)]


def _statement_flops(s: Any, done: dict[int, float], analyzer: Analyzer, guards: bool) -> float:
    if isinstance(s, For):
        return _times(s, analyzer) * done[id(s.body)]
    if isinstance(s, IfThenElse):
        sides = [done[id(c)] for c in (s.then_case, s.else_case) if c is not None]
        return _expr_flops(s.condition, guards, not guards) + max(sides)
    if isinstance(s, BufferStore):
        return _expr_flops(s.value, guards)
    if isinstance(s, BlockRealize):
        return done[id(s.block.body)]
    own = _expr_flops(s.condition, guards, not guards) if isinstance(s, While) else 0.0
    value = getattr(s, "value", None)
    if isinstance(value, PrimExpr):
        own += _expr_flops(value, guards)
    return own + sum(done[id(c)] for c in statements_below(s))


def _times(s: For, analyzer: Analyzer) -> float:
    if isinstance(s.extent, IntImm):
        return float(max(s.extent.value, 0))
    most = analyzer.const_int_bound(s.extent).max_value
    if most > 1 << 40:
        raise TIRError(
            f"estimate_tir_flops: the extent of loop {s.loop_var.name} has no constant bound; "
            "specialize the function first"
        )
    return float(max(most, 0))


def _expr_flops(root: PrimExpr, guards: bool, floats_only: bool = False) -> float:
    count = 0.0

    def below(visit: tuple[Any, bool]) -> list[tuple[Any, bool]]:
        n, floats_only = visit
        if isinstance(n, BufferLoad):
            return []
        floats_only = floats_only or (not guards and isinstance(n, (CompareExpr, Not)))
        return [(e, floats_only) for e in operands(n)]

    start: tuple[Any, bool] = (root, floats_only)
    for n, only in descend(start, below, once=lambda visit: (id(visit[0]), visit[1])):
        compares = isinstance(n, (CompareExpr, Not))
        pure = type(n) is Call and isinstance(n.op, Intrinsic) and n.op.effect == "pure"
        if compares or isinstance(n, (ArithmeticExpr, Select)) or pure:
            of = n.a if compares else n
            fused = pure and n.op.name in ("tir.fma", "tir.muladd")
            if of.dtype.is_float or not (only or (compares and not guards)):
                count += n.dtype.lanes * (2 if fused else 1)
    return count
