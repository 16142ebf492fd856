"""Which functions of a module call themselves, directly or through one another."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.module import GlobalVar, IRModule
from ..expr import Function
from .vars import all_global_vars

__all__ = ["detect_recursion"]


def detect_recursion(mod: IRModule) -> list[list[GlobalVar]]:
    """The groups of graph functions that call one another in a cycle, each in module order.

    A function that calls itself is a group of one; others are in no group.
    """
    names = [gv.name_hint for gv, fn in mod.items() if isinstance(fn, Function)]
    place = {name: i for i, name in enumerate(names)}
    calls = {
        name: [gv.name_hint for gv in all_global_vars(mod[name]) if gv.name_hint in place]  # type: ignore[arg-type]
        for name in names
    }
    groups = []
    for group in _components(names, calls):
        if len(group) > 1 or group[0] in calls[group[0]]:
            groups.append([mod.get_global_var(n) for n in sorted(group, key=place.__getitem__)])
    return sorted(groups, key=lambda g: place[g[0].name_hint])


def _components(names: list[str], calls: dict[str, list[str]]) -> list[list[str]]:
    """Strongly connected components (Tarjan's, with an explicit stack)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_names: list[str] = []
    is_open: set[str] = set()
    found: list[list[str]] = []
    for root in names:
        if root in index:
            continue
        work: list[tuple[str, Iterator[str]]] = []

        def enter(name: str, work: list[tuple[str, Iterator[str]]] = work) -> None:
            index[name] = low[name] = len(index)
            open_names.append(name)
            is_open.add(name)
            work.append((name, iter(calls[name])))

        enter(root)
        while work:
            name, rest = work[-1]
            for callee in rest:
                if callee not in index:
                    enter(callee)
                    break
                if callee in is_open:
                    low[name] = min(low[name], index[callee])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[name])
                if low[name] == index[name]:
                    group = []
                    while True:
                        member = open_names.pop()
                        is_open.discard(member)
                        group.append(member)
                        if member == name:
                            break
                    found.append(group)
    return found
