"""Questions that checks of patterns ask."""

from __future__ import annotations

from ..transform import PatternCheckContext


def has_leaking_intermediate_variables(context: PatternCheckContext) -> bool:
    """Whether something else reads a value that the match computes on its way to the result."""
    inside = context.matched_bindings.keys()
    result = context.value_to_bound_var[context.matched_expr]
    return any(
        not inside >= set(readers)
        for var, readers in context.var_usages.items()
        if var is not result
    )
