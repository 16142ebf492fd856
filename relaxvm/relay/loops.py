"""Loops in Relay are functions that call themselves: `while_loop` writes one.

loop = while_loop(lambda i: relay.less(i, relay.const(10)), [i], lambda i: [i + relay.const(1)])
relay.Function([x], relay.TupleGetItem(loop(x), 0))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..base import StructInfoError, submodules
from ..relax import FuncStructInfo, TupleStructInfo, Var
from ..relax.analysis import erase_to_well_defined
from .expr import Call, Function, If, Let, Tuple


def while_loop(
    cond: Callable[..., Any],
    loop_vars: Sequence[Var],
    loop_bodies: Callable[..., Sequence[Any]],
) -> Any:
    """A function of the first values of `loop_vars`, called with which it gives, as a tuple, their
    values when the loop has ended.

    cond         gives, of the variables, a bool scalar: whether to go on
    loop_bodies  gives, of the variables, their next values
    """
    next_values = loop_bodies(*loop_vars)
    if len(next_values) != len(loop_vars):
        raise StructInfoError(
            f"while_loop: wanted {len(loop_vars)} next values, one for each variable, got "
            f"{len(next_values)}"
        )
    infos = [v.struct_info for v in loop_vars]
    # What has sizes of its own in each round has any in the end.
    result = TupleStructInfo([erase_to_well_defined(info) for info in infos])
    loop = Var("while_loop", FuncStructInfo(infos, result))
    again = Call.make(loop, next_values)
    body = If.make(cond(*loop_vars), again, Tuple.make(loop_vars))
    starts = [Var(v.name_hint, v.struct_info) for v in loop_vars]
    step = Function.make(loop_vars, body, result)
    return Function.make(starts, Let.make(loop, step, Call.make(loop, starts)))


__getattr__ = submodules(__name__)
