"""CanonicalizeCast: each reader of a widened tensor widens it itself.

    a = R.astype(x, "int32")                   a = R.astype(x, "int32")
    b = R.multiply(a, a)                       b = R.multiply(a, a)
    c = R.add(a, bias)                         a_1 = R.astype(x, "int32")
                                               c = R.add(a_1, bias)

A cast that several element-wise operators read would stand alone and write the wide tensor. One of
its own is fused into each, which then reads the narrow one.
"""

from __future__ import annotations

from typing import Any

from ...base import decided
from ...ir import IRModule, Op, PassContext
from ...ir.transform import function_pass
from ..analysis.written import maybe_written_vars
from ..expr import Call, Function, Var
from ..flow import BIND, events
from ..known_ops import is_op, ops_named
from ..rewriter import Dropper
from .rule_text import GROUPS, dtype_of

_ASTYPE = Op.get("relax.astype")
_ELEMENTWISE = ops_named(GROUPS["binary"]) | ops_named(GROUPS["rounded"] + " " + GROUPS["unary"])


@function_pass(opt_level=3)
def CanonicalizeCast(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Repeat widening casts before the element-wise operators that read them."""
    casts: dict[Any, Any] = {}
    taken: set[Any] = set()
    changes: dict[int, Any] = {}
    written: set[Var] | None = None
    for e in events(fn):
        if e.kind is not BIND:
            continue
        b = e.node
        if _widens(b.value):
            casts[b.var] = b
            continue
        if not isinstance(b.value, Call) or b.value.op not in _ELEMENTWISE:
            continue
        for var in dict.fromkeys(v for v in b.value.args if v in casts):
            # The first reader has the cast that is there.
            if var not in taken:
                taken.add(var)
                continue
            written = maybe_written_vars(fn, mod) if written is None else written
            if casts[var].value.args[0] in written:
                continue
            decided("{} repeated for {}", casts[var], b)
            cast = casts[var]
            own = type(cast.var)(f"{cast.var.name_hint}_1", cast.var.struct_info, cast.var.span)
            *before, last = changes.get(id(b.var), [b])
            args = tuple([own if arg is var else arg for arg in last.value.args])
            last = last.replace(value=last.value.replace(args=args))
            changes[id(b.var)] = [*before, cast.replace(var=own), last]
    return Dropper(changes).rewrite(fn) if changes else fn


def _widens(value: Any) -> bool:
    """Whether `value` is a cast to a dtype of more bits."""
    return is_op(value, _ASTYPE) and dtype_of(value).bits > dtype_of(value.args[0]).bits > 0
