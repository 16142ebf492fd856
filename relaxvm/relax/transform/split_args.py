"""SplitArgs: operators take no more than so many tensors.

    y = R.concat((a, b, c, d), axis=1)         y_part = R.concat((a, b), axis=1)
                                               y_part1 = R.concat((c, d), axis=1)
                                               y = R.concat((y_part, y_part1), axis=1)

Here with `max_function_args=2`. Joins are what takes any number: concat and stack.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...base import PassError
from ...ir import IRModule, Op, PassContext
from ...ir.transform import function_pass
from .. import op as R
from ..expr import Binding, Call, Function, Tuple, VarBinding
from ..known_ops import is_op
from ..rewriter import BindingRewriter
from ..struct_info import Expr

_CONCAT, _STACK = Op.get("relax.concat"), Op.get("relax.stack")


@function_pass(opt_level=0)
def SplitArgs(fn: Function, mod: IRModule, ctx: PassContext, *, max_function_args: int) -> Function:
    """Join more than `max_function_args` tensors in several steps."""
    if not isinstance(max_function_args, int) or max_function_args < 2:
        raise PassError(
            f"SplitArgs: max_function_args is an int of 2 or more, got {max_function_args!r}"
        )
    return _Splitter(max_function_args).rewrite(fn)


class _Splitter(BindingRewriter):
    def __init__(self, most: int) -> None:
        self.most = most

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        call = b.value
        if not isinstance(call, Call) or not (is_op(call, _CONCAT) or is_op(call, _STACK)):
            return None
        tensors = call.args[0]
        if not isinstance(tensors, Tuple) or len(tensors.fields) <= self.most:
            return None
        parts: list[Binding] = []
        fields: Sequence[Expr] = tensors.fields
        join = call
        while len(fields) > self.most:
            groups = [fields[k : k + self.most] for k in range(0, len(fields), self.most)]
            fields = []
            for group in groups:
                part = Call(join.op, (Tuple(group),), join.attrs, span=call.span)
                var = self.local(f"{b.var.name_hint}_part", part.struct_info, b.var.span)
                parts.append(VarBinding(var, part, b.span))
                fields.append(var)
            # Parts of a stack have the axis already.
            join = R.concat(Tuple(fields), axis=call.attrs["axis"])
        value = Call(join.op, (Tuple(fields),), join.attrs, None, call.struct_info, call.span)
        return [*parts, b.replace(value=value)]
