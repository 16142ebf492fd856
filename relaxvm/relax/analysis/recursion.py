"""Which functions of a module call themselves, directly or through one another."""

from __future__ import annotations

from ...base import components
from ...ir import GlobalVar, IRModule
from ..expr import Function
from .vars import all_global_vars


def graph_calls(mod: IRModule) -> dict[str, list[str]]:
    """By name of each graph function, the graph functions that it mentions."""
    graphs = {gv.name_hint: fn for gv, fn in mod.items() if isinstance(fn, Function)}
    return {
        name: [gv.name_hint for gv in all_global_vars(fn) if gv.name_hint in graphs]
        for name, fn in graphs.items()
    }


def detect_recursion(mod: IRModule) -> list[list[GlobalVar]]:
    """The groups of graph functions that call one another in a cycle, each in module order.

    A function that calls itself is a group of one; others are in no group.
    """
    calls = graph_calls(mod)
    place = {name: i for i, name in enumerate(calls)}
    groups = []
    for group in components(calls, calls):
        if len(group) > 1 or group[0] in calls[group[0]]:
            groups.append([mod.get_global_var(n) for n in sorted(group, key=place.__getitem__)])
    return sorted(groups, key=lambda g: place[g[0].name_hint])
