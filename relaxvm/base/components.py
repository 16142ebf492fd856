"""Which nodes of a graph reach one another."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def reachable(roots: Iterable[T], following: Callable[[T], Iterable[T]]) -> dict[T, None]:
    """`roots` and what follows from them, in the order in which it is found.

    following  what follows from one; asked once for each
    """
    reached = dict.fromkeys(roots)
    todo = list(reached)
    for each in todo:  # grows while it is read
        for other in following(each):
            if other not in reached:
                reached[other] = None
                todo.append(other)
    return reached


def callees_first(names: Iterable[T], calls: Mapping[T, Iterable[T]]) -> list[T]:
    """`names` and what they call, each after its callees, as far as none calls itself through
    others.
    """
    return [name for group in components(names, calls) for name in group]


def components(names: Iterable[T], calls: Mapping[T, Iterable[T]]) -> list[list[T]]:
    """The strongly connected components of a graph: groups of nodes that reach one another.

    calls  the successors of every node
    By Tarjan's method, with an explicit stack: linear, and as deep as the graph likes.
    """
    index: dict[T, int] = {}
    low: dict[T, int] = {}
    open_names: list[T] = []
    is_open: set[T] = set()
    groups: list[list[T]] = []
    for root in names:
        if root in index:
            continue
        work: list[tuple[T, Iterator[T]]] = []

        def enter(name: T, work: list[tuple[T, Iterator[T]]] = work) -> None:
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
                    groups.append(group)
    return groups
