"""What can be computed before the inputs are known."""

from __future__ import annotations

from ..derive import tir_vars_in_struct_info
from ..expr import Call, Function, If, MatchCast, Var
from .purity import is_pure_call
from .vars import used_vars


def computable_at_compile_time(func: Function) -> list[Var]:
    """The variables that depend only on the parameters after the first `num_input` (an attribute
    of `func`).

    Those parameters are known when the module is prepared for a user. Without `num_input` there
    are none.
    """
    count = func.get_attr("num_input")
    if count is None:
        return []
    late = func.params[: int(count)]
    known = list(func.params[int(count) :])
    is_known = {id(v) for v in known}
    late_symbols = {id(s) for p in late for s in tir_vars_in_struct_info(p.struct_info)}
    for p in known:
        late_symbols -= {id(s) for s in tir_vars_in_struct_info(p.struct_info)}
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, (If, Function)) or isinstance(binding, MatchCast):
                continue
            if isinstance(value, Call) and not is_pure_call(value):
                continue
            symbols = tir_vars_in_struct_info(binding.var.struct_info)
            if any(id(s) in late_symbols for s in symbols):
                continue
            if all(id(v) in is_known for v in used_vars(value)):
                known.append(binding.var)
                is_known.add(id(binding.var))
    return known
