"""Which values something may write into, so that they must not be shared or made constants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...base import reachable
from ...ir import IRModule, walk
from ..expr import Call, Function, If, Tuple, TupleGetItem, Var
from ..flow import bindings_of, leaves
from ..known_ops import CALL_INPLACE_PACKED, CALL_TIR_INPLACE, ops_named
from ..op.record import Op
from .purity import is_pure_call

# Impure operators that only look at their arguments.
_READ_ONLY = ops_named("print assert_op")
# Operators whose result may be (part of) their argument itself.
_MAY_ALIAS = ops_named(
    "builtin.stop_lift_params memory.view memory.ensure_zero_offset "
    "hint_on_device to_vdevice wrap_param reshape flatten squeeze expand_dims broadcast_to "
    "permute_dims concat split strided_slice dynamic_strided_slice astype tile repeat "
    "collapse_sum_like collapse_sum_to sequence.construct sequence.insert sequence.erase "
    "sequence.at layout_transform nn.dropout nn.pad stack floor ceil "
    "round trunc abs clip sum max min mean prod cumsum cumprod flip sort tril triu "
    "call_tir_inplace call_inplace_packed call_pure_packed "
    "invoke_closure invoke_pure_closure call_builtin_with_ctx"
)


def maybe_written_vars(fn: Function, mod: IRModule | None = None) -> set[Var]:
    """The variables of `fn` whose arrays or objects may be written after they are bound: those that
    an impure call, or one that works in place, takes, and what may share memory with these.

    Calls of packed functions that are declared pure, and of pure functions, write nothing.
    """
    bindings: list[Any] = list(bindings_of(fn))
    calls = (b.value for b in bindings if isinstance(b.value, Call))
    first = [v for call in calls for v in _vars(_written_args(call, mod))]
    linked: dict[Var, list[Var]] = {}
    for b in bindings if first else ():
        for other in _vars(may_share(b.value)):
            linked.setdefault(b.var, []).append(other)
            linked.setdefault(other, []).append(b.var)
    return set(reachable(first, lambda var: linked.get(var, ())))


def _written_args(call: Call, mod: IRModule | None) -> Iterable[Any]:
    if call.op is CALL_TIR_INPLACE:
        inputs = call.args[1].fields if isinstance(call.args[1], Tuple) else (call.args[1],)
        return _at(inputs, call.attrs.get("inplace_indices"))
    if call.op is CALL_INPLACE_PACKED:
        return _at(call.args[1:], call.attrs.get("inplace_indices"))
    if call.op in _READ_ONLY or is_pure_call(call, mod):
        return ()
    return (call.op, *call.args)


def _at(values: tuple[Any, ...], indices: Any) -> Iterable[Any]:
    wanted = indices if isinstance(indices, tuple) else (indices,)
    if not all(isinstance(i, int) and i < len(values) for i in wanted):
        return values
    return [values[i] for i in wanted if i >= 0]


def may_share(value: Any) -> Iterable[Any]:
    """What the value of a binding may share memory with."""
    if isinstance(value, (Var, Tuple)):
        return (value,)
    if isinstance(value, TupleGetItem):
        return (value.tuple_value,)
    if isinstance(value, If):
        return (value.true_branch.body, value.false_branch.body)
    if isinstance(value, Function):
        return [n for n in walk(value) if isinstance(n, Var)]
    if isinstance(value, Call):
        # Functions may return an argument; operators do as they are known to do.
        if not isinstance(value.op, Op) or value.op in _MAY_ALIAS:
            return (value.op, *value.args)
    return ()


def _vars(values: Iterable[Any]) -> list[Var]:
    return [v for value in values for v in leaves(value) if isinstance(v, Var)]
