"""`T.parallel` loops: the body becomes a function over a range of iterations, which the pool shares
out.

    for i in T.parallel(n):          code = relaxvm_parallel_for(f.loop0.body, &captured, n, ...)
        B[i] = A[i] + 1.0            if code != 0: return code

The body takes what it captured as arguments of its own, so that pointers keep what is known about
them. A parallel loop inside another one is a plain loop.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...base import DataType
from ...base.llvm import Function, Value, constant, natural_align, value
from ...ir import (
    Add,
    Broadcast,
    Call,
    FloatImm,
    GlobalVar,
    IntImm,
    Intrinsic,
    Let,
    Max,
    Mul,
    PrimExpr,
    Ramp,
    Var,
    binary,
    nodes_of,
    post_order,
    walk,
)
from ...runtime import GRAIN
from ...tir import (
    Allocate,
    AssertStmt,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    LetStmt,
    Stmt,
    While,
    statements_below,
)
from ...tir.transform import WRITTEN_OUT

if TYPE_CHECKING:
    from .stmt import KernelEmitter, Steps


RET = Intrinsic.get("tir.ret")
MAX_CAPTURED = 1000

_INT64 = DataType("int64")
_MOST_WORK = 1 << 30
_UNKNOWN_EXTENT = 8
_CALL_WORK = 16
_VECTOR_BITS = 256  # how much one operation does at once, on most machines
_MAX_SYMBOLIC = 16
_RANGE = (("begin", "i64"), ("end", "i64"))
_CONTEXT_ALIGN = 64
_PLACEHOLDER = re.compile(r"%captured(\d+)\b")


def is_shared_out(g: KernelEmitter, stmt: For, work: PrimExpr) -> bool:
    """Whether the iterations of `stmt`, each of `work`, may and should run on several threads."""
    if stmt.kind != ForKind.PARALLEL or not g.threads.startswith("%"):
        return False
    dtype = stmt.loop_var.dtype
    if dtype.kind != "int" and dtype.bits == 64:
        return False
    if isinstance(stmt.extent, IntImm):
        if stmt.extent.value <= 1:
            return False
        if isinstance(work, IntImm) and work.value * stmt.extent.value < 2 * GRAIN:
            return False
    returns = any(n.op is RET for n in nodes_of(stmt.body, Call))
    if len(g.env) + len(g.wide) > MAX_CAPTURED or returns:
        return False
    return not g.module.confined or _races_are_harmless(stmt.body)


def _races_are_harmless(body: Stmt) -> bool:
    """Whether iterations that do write to each other's memory can only give wrong values.

    Bounds are checked before an access; another thread may change memory in between. So no index,
    extent or condition of a check may come from memory.
    """
    for n in walk(body):
        deciding: tuple[PrimExpr, ...] = ()
        if isinstance(n, While) or (isinstance(n, Call) and isinstance(n.op, GlobalVar)):
            return False
        if isinstance(n, (BufferLoad, BufferStore)):
            deciding = n.indices
        elif isinstance(n, For):
            deciding = (n.min, n.extent)
        elif isinstance(n, (LetStmt, Let)):
            deciding = (n.value,)
        elif isinstance(n, AssertStmt):
            deciding = (n.condition,)
        elif isinstance(n, Allocate):
            deciding = n.extents
        if any(isinstance(part, BufferLoad) for e in deciding for part in walk(e)):
            return False
    return True


def iteration_work(body: Stmt, known: dict[Var, Value]) -> PrimExpr:
    """About how many operations `body` takes, over variables that have a value now (`known`).

    An operation on a vector counts as one; loads, and stores in registers, come beside others. Both
    sides of a branch count. An extent that is not known before the loop counts as 8.
    """
    done: dict[int, int | PrimExpr] = {}
    symbolic = 0
    for s in post_order(body, statements_below):
        assert isinstance(s, Stmt)
        children = statements_below(s)
        if not children:
            done[id(s)] = _leaf_work(s)
            continue
        # Loops that are written out are the statements in them.
        total: int | PrimExpr = int(not isinstance(s, For) or WRITTEN_OUT not in s.annotations)
        for child in children:
            total = _joined(Add, total, done[id(child)])
        if isinstance(s, For):
            extent: PrimExpr = s.extent
            if not isinstance(extent, IntImm):
                symbolic += 1
                if symbolic > _MAX_SYMBOLIC or not _is_known(extent, known):
                    extent = _constant(_UNKNOWN_EXTENT)
            if isinstance(extent, IntImm):
                total = _joined(Mul, extent.value, total)
            else:
                total = _joined(Mul, Max(extent.astype("int64"), _constant(0)), total)
        done[id(s)] = total
    work = done[id(body)]
    return _constant(work) if isinstance(work, int) else work


def _joined(how: Any, a: int | PrimExpr, b: int | PrimExpr) -> int | PrimExpr:
    if isinstance(a, int) and isinstance(b, int):
        return _bounded(a + b if how is Add else a * b)
    x, y = (_constant(n) if isinstance(n, int) else n for n in (a, b))
    return binary(how, x, y)


def _constant(value: int) -> IntImm:
    return IntImm(_INT64, _bounded(value))


def _bounded(work: int) -> int:
    return max(0, min(work, _MOST_WORK))


def _leaf_work(s: Stmt) -> int:
    if not isinstance(s, (BufferStore, Evaluate)):
        return 1
    stores = isinstance(s, BufferStore) and s.buffer.scope() != "local"
    total = int(stores) * _vectors(s.value)
    stack = [s.value]
    while stack:
        e = stack.pop()
        if isinstance(e, _BESIDE):
            # Index arithmetic is the same in every iteration, or nearly.
            continue
        total += _vectors(e) * (_CALL_WORK if isinstance(e, Call) else 1)
        stack.extend(c for c in e._children_ if isinstance(c, PrimExpr))
    return max(1, total)


_BESIDE = (IntImm, FloatImm, Var, BufferLoad, Broadcast, Ramp)


def _vectors(e: PrimExpr) -> int:
    return max(1, e.dtype.lanes * e.dtype.bits // _VECTOR_BITS)


def _is_known(e: PrimExpr, known: dict[Var, Value]) -> bool:
    count = 0
    for n in walk(e):
        count += 1
        strange = isinstance(n, (BufferLoad, Call, Let)) or (isinstance(n, Var) and n not in known)
        if strange or count > 64:
            return False
    return True


class _Captured:
    """Values of the function around the loop, and their names inside it."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._names: dict[Value, Value] = {}

    def name(self, outside: Value) -> Value:
        """What stands for a value inside; constants for themselves."""
        if not outside.startswith("%"):
            return outside
        inside = self._names.get(outside)
        if inside is None:
            inside = value(f"%captured{len(self.values)}", outside.type)
            self._names[outside] = inside
            self.values.append(outside)
        return inside


def share_out(g: KernelEmitter, stmt: For, first: Value, extent: Value, work: PrimExpr) -> Steps:
    """Emit `stmt` as a call of the pool. first, extent: i64 values"""
    each = g.wide_value(work)
    all_work = g.text.op("mul", each, extent)
    captured = _Captured()
    env = {v: captured.name(outside) for v, outside in g.env.items()}
    wide = {v: captured.name(outside) for v, outside in g.wide.items()}
    first = captured.name(first)
    name = f"{g.symbol}.loop{g.loops}"
    text = Function(g.module, name, "i32", "noinline nounwind", "internal")
    begin, end = text.param("begin", "i64"), text.param("end", "i64")
    g.loops += 1
    with g.inside(text, env, wide):
        with text.for_(end, begin, guard="", flags="nsw", hoists=True) as counter:
            g.bind_counter(stmt, counter, first)
            yield stmt.body
        g.finish()
    _emit_call(g, text, captured, extent, all_work)


def _emit_call(
    g: KernelEmitter, text: Function, captured: _Captured, extent: Value, all_work: Value
) -> None:
    used = sorted({int(n) for line in text.lines for n in _PLACEHOLDER.findall(line)})
    values = [captured.values[i] for i in used]
    facts = [g.pointers.get(v) if v.type == "ptr" else "" for v in values]
    # A pointer of unknown origin may point into what another one covers.
    derived = None in facts
    for i, outside, fact in zip(used, values, facts):
        known = (fact or "").replace(" noalias", "") if derived else fact
        text.param(f"captured{i}", outside.type, known or "")
    g.module.add(text)
    struct = "{ " + ", ".join(v.type for v in values) + " }"
    body = Function(g.module, f"{text.name}.body", "i32", linkage="internal")
    inside, *passed = (body.param(n, t) for n, t in (("ctx", "ptr"), *_RANGE))
    context = g.text.alloca(struct, _CONTEXT_ALIGN) if used else constant(None, "ptr")
    for k, outside in enumerate(values):
        of, align = outside.type, natural_align(outside.type)
        passed.append(body.load(of, body.member(struct, inside, k), align))
        g.text.store(outside, g.text.member(struct, context, k), align)
    body.ret(body.call(text.name, *passed))
    g.module.add(body)
    g.module.declare("relaxvm_parallel_for", "i32", ("ptr", "ptr", "i64", "i64", "i64"), "nounwind")
    job = value(f"@{body.name}", "ptr")
    code = g.text.call("relaxvm_parallel_for", job, context, extent, g.threads, all_work)
    g.uses_threads = True
    g.fail_unless(g.text.op("icmp eq", code, 0), code)
