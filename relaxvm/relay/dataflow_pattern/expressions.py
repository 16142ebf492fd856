"""Patterns of what only Relay's expressions have, lets and branches, and of paths between values.

dominates(is_op("nn.conv2d")(wildcard(), wildcard()), is_op("nn.relu")(wildcard()), wildcard())
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import record
from ...ir import post_order
from ...relax import If, SeqExpr
from ...relax.dpl import FAIL, DFPattern, Match, enter, enter_all, wildcard
from ...relax.static_type import of_static_type
from ..spelling import parts_of


@record(values=False)
class IfPattern(DFPattern):
    """A branch."""

    cond: DFPattern
    true_branch: DFPattern
    false_branch: DFPattern

    def step(self, match: Match, place: Any, rest: Any) -> Any:
        value = match.value(place)
        if not isinstance(value, If):
            return FAIL
        branches = [b if b.blocks else b.body for b in (value.true_branch, value.false_branch)]
        return enter_all(self.parts, (value.cond, *branches), rest)


@record(values=False)
class LetPattern(DFPattern):
    """A let, of which `body` is all that comes after the variable and its value."""

    var: DFPattern
    value: DFPattern
    body: DFPattern

    def step(self, match: Match, place: Any, rest: Any) -> Any:
        if not isinstance(place, SeqExpr) or not any(b.bindings for b in place.blocks):
            return FAIL
        return enter_all(self.parts, place.let, rest)


@record(values=False)
class DominatorPattern(DFPattern):
    """What `child` matches, if every way up its operands leads over what `path` matches to one and
    the same value that `parent` matches.
    """

    parent: DFPattern
    path: DFPattern
    child: DFPattern

    def step(self, match: Match, place: Any, rest: Any) -> Any:
        parents: set[Any] = set()

        def above(place: Any) -> Sequence[Any]:
            value = match.value(place)
            if place is not root and type(match)().run(self.parent.dup(), value):
                parents.add(value)
                return ()
            # A pattern stands for one value: for the next one it is copied.
            if place is not root and not type(match)().run(self.path.dup(), value):
                parents.add(None)
            return [match.value(each) for each in parts_of(value)]

        root = match.value(place)
        ends = [n for n in post_order(root, above) if not parts_of(n) and n not in parents]
        if ends or len(parents) != 1 or None in parents:
            return FAIL
        # What the child reads is between the two, and no end of what matches.
        if not type(match)().run(self.child.dup(), root):
            return FAIL
        match.bind(self.child, place)
        (parent,) = parents
        return enter, self.parent, parent, rest


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> DFPattern:
    """A branch."""
    return IfPattern(cond, true_branch, false_branch)


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> DFPattern:
    """A let."""
    return LetPattern(var, value, body)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DFPattern:
    """See `DominatorPattern`."""
    return DominatorPattern(parent, path, child)


def has_type(ttype: Any, pattern: DFPattern | None = None) -> DFPattern:
    """What `pattern` matches (None: anything), if it is of that type."""
    return (pattern or wildcard()).has_struct_info(of_static_type(ttype))


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> DFPattern:
    """What `pattern` matches (None: anything), if it is a tensor of that shape."""
    return (pattern or wildcard()).has_shape(shape)
