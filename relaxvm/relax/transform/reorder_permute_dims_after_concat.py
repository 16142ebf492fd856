"""ReorderPermuteDimsAfterConcat: what is transposed alike is joined first, and transposed once.

a1 = R.permute_dims(a)                     lv = R.concat((a, b), axis=0)
b1 = R.permute_dims(b)                     gv = R.permute_dims(lv)
gv = R.concat((a1, b1), axis=1)
"""

from __future__ import annotations

from typing import Any

from ...ir import IRModule, Op, PassContext
from ...ir.transform import function_pass
from ..derive import tensor_dims
from ..dpl import PatternMatchingRewriter, is_op, is_tuple, wildcard
from ..expr import Function, Tuple
from ..flow import bindings_of
from ..known_ops import is_op as is_call_of
from ..op.infer import axes_of, axis_of
from ..op.names import ops
from ..struct_info import Expr

_CONCAT = Op.get("relax.concat")


@function_pass(opt_level=4)
def ReorderPermuteDimsAfterConcat(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Concatenate what several permute_dims of the same axes were given, and permute the result."""
    calls: list[Any] = [b.value for b in bindings_of(fn) if is_call_of(b.value, _CONCAT)]
    lengths = {len(c.args[0].fields) for c in calls if isinstance(c.args[0], Tuple)}
    for length in sorted(lengths - {0, 1}):
        fn = _rule(length).rewrite(fn, mod)
    return fn


def _rule(length: int) -> PatternMatchingRewriter:
    turns = [is_op("relax.permute_dims")(wildcard()) for _ in range(length)]

    def rule(call: Any, matched: Any) -> Expr | None:
        calls = [matched[turn] for turn in turns]
        ranks = {len(tensor_dims(c.args[0]) or ()) for c in calls}
        if len(ranks) > 1 or call.attrs["axis"] is None:
            return None
        rank = ranks.pop()
        orders = {_order(c.attrs["axes"], rank) for c in calls}
        if len(orders) > 1 or not rank:
            return None
        order = orders.pop()
        whole = ops.concat(
            Tuple([c.args[0] for c in calls]), axis=order[axis_of(call.attrs["axis"], rank)]
        )
        return ops.permute_dims(whole, axes=list(order))

    pattern = is_op("relax.concat")(is_tuple(turns))
    return PatternMatchingRewriter.from_pattern(pattern, rule)


def _order(axes: Any, rank: int) -> tuple[int, ...]:
    return tuple(range(rank))[::-1] if axes is None else tuple(axes_of(axes, rank, "axes"))
