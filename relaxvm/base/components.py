"""Which nodes of a graph reach one another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping


def components(names: Iterable[str], calls: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of a graph: groups of nodes that reach one another.

    calls  the successors of every node
    By Tarjan's method, with an explicit stack: linear, and as deep as the graph likes.
    """
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
