"""Where values are computed that several branches read.

    if c { f(e) } else { g(e) }        a = e; if c { f(a) } else { g(a) }

A value belongs to the innermost scope that holds all its readers, as in TVM's graph normal form: if
both branches need it, to what is before them. What may not be done for nothing (calls of functions,
which might not come back, and what has effects) stays where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..ir import Op, post_order
from .expr import Binding, Call, Function, If, SeqExpr, Tuple, TupleGetItem, Var, is_leaf

_VALUES = (Call, Tuple, TupleGetItem, If)


def before_branches(root: Any) -> dict[int, list[Any]]:
    """By the identity of an `If` below `root`, the values to be computed right before it, because
    both its branches, or what follows it, need them. Functions inside are not entered.
    """
    order = list(post_order(root, lambda n: [each for _, each in _edges(n, n is root)]))
    scopes = _Scopes()
    # The scope in which each is computed; where each variable is bound.
    home: dict[int, int] = {id(root): 0}
    bound: dict[int, int] = {}
    inside: dict[int, list[int]] = {}
    # Values that have a variable where they are read: they stay its.
    named: set[int] = set()
    for n in reversed([n for n in order if not isinstance(n, Var)]):
        here = home[id(n)]
        branch = {}
        for place, each in _edges(n, n is root):
            if place is not None and place not in branch:
                branch[place] = scopes.new(here, n)
            scope = here if place is None else branch[place]
            if isinstance(each, Var):
                continue
            inside.setdefault(id(each), []).append(scope)
            old = home.get(id(each))
            home[id(each)] = scope if old is None else scopes.common(old, scope)
        for place, seq in _sequences(n, n is root):
            for b in _bindings(seq):
                if all(is_leaf(each) for _, each in _edges(b.value)):
                    named.add(id(b.value))
                # Two scopes that open the same sequence have variables of their own.
                scope = here if place is None else branch.get(place, here)
                bound[id(b.var)] = scope if bound.get(id(b.var), scope) == scope else _NOWHERE
    answer: dict[int, list[Any]] = {}
    # The innermost scope of which each needs something; _NOWHERE: it stays.
    needs: dict[int, int] = {}
    for n in order:
        if isinstance(n, Var):
            needs[id(n)] = bound.get(id(n), 0)
            continue
        below = [needs.get(id(each), 0) for _, each in _edges(n, n is root)]
        if isinstance(n, Call):
            below.append(0 if isinstance(n.op, Op) and getattr(n.op, "pure", False) else _NOWHERE)
        if isinstance(n, (If, SeqExpr)):
            # What is bound inside does not count outside.
            below = [s for s in below if s == _NOWHERE or scopes.holds(s, home[id(n)])]
        needs[id(n)] = _NOWHERE if _NOWHERE in below else max(below, key=scopes.depth, default=0)
        stays = needs[id(n)] == _NOWHERE or id(n) in named
        if n is root or is_leaf(n) or stays or not isinstance(n, _VALUES):
            continue
        here = home[id(n)]
        if not scopes.holds(needs[id(n)], here):
            continue
        owners = [scopes.owner(scope, here) for scope in inside[id(n)] if scope != here]
        for owner in {id(o): o for o in owners}.values():
            answer.setdefault(id(owner), []).append(n)
    return answer


_NOWHERE = -1


def _bindings(seq: SeqExpr) -> list[Binding]:
    return [b for block in seq.blocks for b in block.bindings]


def _sequences(n: Any, is_root: bool) -> Iterator[tuple[int | None, SeqExpr]]:
    """What binds variables in `n`: in the scope of a branch, by its number, or in its own."""
    if isinstance(n, If):
        yield 0, n.true_branch
        yield 1, n.false_branch
    elif isinstance(n, SeqExpr):
        yield None, n
    elif isinstance(n, Function) and is_root:
        yield None, n.body


def _edges(n: Any, is_root: bool = False) -> Iterator[tuple[int | None, Any]]:
    """What `n` reads, and in which of its branches."""
    if isinstance(n, Call):
        inner: Any = [n.op, *n.args]
    elif isinstance(n, Tuple):
        inner = n.fields
    else:
        inner = [n.tuple_value] if isinstance(n, TupleGetItem) else []
        inner = [n.cond] if isinstance(n, If) else inner
    yield from (
        (None, each) for each in inner if isinstance(each, (Var, Tuple)) or not is_leaf(each)
    )
    for place, seq in _sequences(n, is_root):
        for each in (*(b.value for b in _bindings(seq)), seq.body):
            if isinstance(each, (Var, Tuple)) or not is_leaf(each):
                yield place, each


class _Scopes:
    """A tree of scopes, by number; 0 is the outermost. Ways up are short, however deep it is."""

    def __init__(self) -> None:
        self._parent, self._jump, self._depth = [0], [0], [0]
        self._owner: list[Any] = [None]

    def new(self, parent: int, owner: Any) -> int:
        """A scope of `owner`, an If, in `parent`."""
        jump = self._jump[parent]
        far = self._depth[parent] - self._depth[jump]
        even = far == self._depth[jump] - self._depth[self._jump[jump]]
        self._jump.append(self._jump[jump] if even else parent)
        self._parent.append(parent)
        self._depth.append(self._depth[parent] + 1)
        self._owner.append(owner)
        return len(self._parent) - 1

    def depth(self, scope: int) -> int:
        return self._depth[scope]

    def _up(self, scope: int, depth: int) -> int:
        while self._depth[scope] > depth:
            far = self._jump[scope]
            scope = far if self._depth[far] >= depth else self._parent[scope]
        return scope

    def common(self, a: int, b: int) -> int:
        """The innermost scope that holds both."""
        depth = min(self._depth[a], self._depth[b])
        a, b = self._up(a, depth), self._up(b, depth)
        while a != b:
            way = self._parent if self._jump[a] == self._jump[b] else self._jump
            a, b = way[a], way[b]
        return a

    def holds(self, outer: int, inner: int) -> bool:
        """Whether `inner` is `outer`, or in it."""
        return self._up(inner, self._depth[outer]) == outer

    def owner(self, scope: int, outer: int) -> Any:
        """The If in `outer` in which `scope` is."""
        return self._owner[self._up(scope, self._depth[outer] + 1)]
