"""Walks and rewrites over any IR, built on `children` and `map_children`. Nothing here recurses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ..base import RelaxvmError
from .node import Node, children

N = TypeVar("N", bound=Node)
C = TypeVar("C", bound=type)
T = TypeVar("T")


def walk(
    root: Node,
    without: tuple[type[Node], ...] = (),
    into: Callable[[Any], Iterable[Node]] | None = None,
) -> list[Node]:
    """Every node reachable from `root`, parents first, each shared node once.

    without  nodes below `root` of these classes are left out, and what is below them
    into     gives what to enter below a node, where that is not all its children
    """
    seen = {id(root)}
    stack: list[Node] = [root]
    reached = []
    while stack:
        n = stack.pop()
        reached.append(n)
        for child in reversed(n._children_ if into is None else tuple(into(n))):
            if (key := id(child)) not in seen:
                seen.add(key)
                if not without or not isinstance(child, without):
                    stack.append(child)
    return reached


def first_nodes(root: Any, most: int) -> list[Node]:
    """Some of the nodes reachable from `root`, each once: all, if they are no more than `most`."""
    return list(itertools.islice(descend(root, children, once=id), most))


def nodes_of(root: Node, kind: type[N]) -> set[N]:
    """`root` and the nodes reachable from it, as far as they are of a class."""
    seen = {id(root)}
    reached = [root]
    matching = set()
    for n in reached:  # which grows meanwhile
        if isinstance(n, kind):
            matching.add(n)
        for child in n._children_:
            if (key := id(child)) not in seen:
                seen.add(key)
                reached.append(child)
    return matching


def holds(root: Node, kinds: type[Node] | tuple[type[Node], ...]) -> bool:
    """Whether `root`, or a node reachable from it, is of one of these classes."""
    seen = {id(root)}
    reached = [root]
    for n in reached:  # which grows meanwhile
        if isinstance(n, kinds):
            return True
        for child in n._children_:
            if (key := id(child)) not in seen:
                seen.add(key)
                reached.append(child)
    return False


def post_order(root: Any, below: Callable[[Any], Sequence[Any]] | None = None) -> list[Any]:
    """Every node reachable from `root`, children first, each shared node once.

    below  the nodes to be entered from a node; default: its children
    """
    seen: set[int] = set()
    stack: list[tuple[Any, bool]] = [(root, False)]
    order = []
    while stack:
        n, ready = stack.pop()
        if ready:
            order.append(n)
        elif id(n) not in seen:
            seen.add(id(n))
            inner = n._children_ if below is None else below(n)
            if inner:
                stack.append((n, True))
                for child in reversed(inner):
                    stack.append((child, False))
            else:
                order.append(n)
    return order


def descend(
    root: T, below: Callable[[T], Sequence[T]], once: Callable[[T], Hashable] | None = None
) -> Iterator[T]:
    """`root` and what is below it, parents first, left to right, shared ones each time. These may
    be nodes, or nodes together with what is known where they stand.

    below  what is to be entered; asked after the one above has been handed out
    once   a key: only the first with each key is handed out and entered
    """
    seen: set[Hashable] = set()
    stack = [root]
    while stack:
        item = stack.pop()
        if once is not None:
            key = once(item)
            if key in seen:
                continue
            seen.add(key)
        yield item
        inner = below(item)
        if inner:
            stack.extend(reversed(inner))


def enter_leave(root: T, below: Callable[[T], Sequence[T]]) -> Iterator[tuple[T, bool]]:
    """As `descend`, with each handed out twice: (it, True) before and (it, False) after what is
    below it.
    """
    stack = [(root, True)]
    while stack:
        item, entering = stack.pop()
        yield item, entering
        if entering:
            stack.append((item, False))
            stack.extend([(each, True) for each in reversed(below(item))])


def transform(
    root: N,
    post: Callable[[Any], Node | None] | None,
    pre: Callable[[Any], Node | None] | None = None,
    memo: dict[int, tuple[Node, Node]] | None = None,
    only: frozenset[type] | None = None,
    without: tuple[type[Node], ...] = (),
) -> N:
    """Rebuild `root` bottom-up: `post` sees each node after its children and returns a new node,
    or None to keep it. Without a `post` all are kept.

    pre   sees a node first; what it returns (not None) replaces the node and is not entered
    memo  results by identity; pass one dictionary to several calls to keep shared parts shared
    only  the classes, exactly, of what `pre` and `post` are asked about; default: all
    without  nodes below `root` of these classes are kept, and what is below them
    Each shared node is treated once; unchanged parts are the same objects afterwards. No recursion.
    """
    done: dict[int, tuple[Node, Node]] = {} if memo is None else memo
    # Nodes still to be entered, and those to be rebuilt with what is below them.
    stack: list[tuple[Any, Sequence[Node] | None]] = [(root, None)]
    while stack:
        n, below = stack.pop()
        key, asked = id(n), only is None or type(n) in only
        if below is None:
            if key in done:
                continue
            replaced = pre(n) if pre is not None and asked else None
            if replaced is not None:
                done[key] = (n, replaced)
                continue
            below = n._children_
            if without:
                below = [child for child in below if not isinstance(child, without)]
            if below:
                stack.append((n, below))
                for child in reversed(below):
                    if id(child) not in done:
                        stack.append((child, None))
                continue
        rebuilt = n
        for child in below:
            if done[id(child)][1] is not child:
                new: dict[Node, Node] = dict(zip(n._children_, n._children_)) if without else {}
                for c in below:
                    new[c] = done[id(c)][1]
                rebuilt = n._map_children_(new.__getitem__)
                break
        changed = post(rebuilt) if post is not None and asked else None
        done[key] = (n, rebuilt if changed is None else changed)
    return done[id(root)][1]  # type: ignore[return-value]


class Substitution:
    """Replaces the nodes in `mapping`, as it is when this is made, wherever they stand, binding
    sites included; for many roots, of which what they share stays shared.

    Keys are compared by identity. Buffers, variables and struct info that mention a replaced
    variable are rebuilt once and stay shared.
    """

    def __init__(self, mapping: Mapping[Any, Any]) -> None:
        self._by_id = dict(zip(map(id, mapping), mapping.items()))
        self._memo: dict[int, tuple[Node, Node]] = dict(self._by_id)

    def __call__(self, root: N) -> N:
        """`root` with the nodes replaced; the same object if there are none."""
        if not self._by_id:
            return root
        known: Any = self._memo.get(id(root))
        if known is None and not root._children_:
            return root
        result: N = transform(root, None, memo=self._memo) if known is None else known[1]
        return result


def substitute(root: N, mapping: Mapping[Any, Any]) -> N:
    """`root` with the nodes in `mapping` replaced; see `Substitution`."""
    return Substitution(mapping)(root)


def derived_from(cls: C, base: type, error: type[RelaxvmError]) -> C:
    """`cls`, which TVM's programs mark as a visitor or mutator. Raises `error` unless it derives
    from `base`.
    """
    if not issubclass(cls, base):
        raise error(f"{cls.__name__} derives from {base.__name__}")
    return cls
