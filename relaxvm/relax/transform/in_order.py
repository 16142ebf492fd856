"""Reading a graph function from top to bottom, scopes and blocks included, without recursion.

    for step in read_in_order(fn):
        if step.kind == BIND: ...

`SameVars` remembers which variables stand for the same value, and which of their names may stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..analysis.vars import struct_info_vars
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowVar,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Var,
)
from ..struct_info import StructInfo
from .scopes import BindingRewriter, vars_in

BEGIN_BLOCK, END_BLOCK, ENTER, LEAVE, BIND, RESULT = range(6)


class Step(NamedTuple):
    """One step of reading a function.

    BEGIN_BLOCK, END_BLOCK  `node` is the block
    ENTER, LEAVE            `node` is the binding of the If or Function whose branch or body it is
    BIND                    `node` is a binding; those inside its value were read before
    RESULT                  `node` is the value of a body or branch
    """

    kind: int
    node: Any


def read_in_order(fn: Function) -> Iterator[Step]:
    """The steps of `fn`: of its body, of branches, and of inner functions."""
    frames: list[_Reading] = [_Reading(fn.body)]
    while frames:
        frame = frames[-1]
        if frame.owner is not None:
            if frame.bodies:
                yield Step(ENTER, frame.owner)
                frames.append(_Reading(frame.bodies.pop()))
                continue
            yield Step(BIND, frame.owner)
            frame.owner = None
        b = next(frame.bindings, None)
        if b is not None:
            bodies = _bodies(b)
            if bodies:
                frame.owner, frame.bodies = b, bodies
            else:
                yield Step(BIND, b)
            continue
        if frame.block is not None:
            yield Step(END_BLOCK, frame.block)
        frame.block = next(frame.blocks, None)
        if frame.block is not None:
            frame.bindings = iter(frame.block.bindings)
            yield Step(BEGIN_BLOCK, frame.block)
            continue
        yield Step(RESULT, frame.seq.body)
        frames.pop()
        if frames:
            yield Step(LEAVE, frames[-1].owner)


class _Reading:
    __slots__ = ("bindings", "block", "blocks", "bodies", "owner", "seq")

    def __init__(self, seq: SeqExpr) -> None:
        self.seq = seq
        self.blocks = iter(seq.blocks)
        self.bindings: Iterator[Binding] = iter(())
        self.block: BindingBlock | None = None
        self.owner: Binding | None = None
        self.bodies: list[SeqExpr] = []


def _bodies(b: Binding) -> list[SeqExpr]:
    """The bodies inside the value of `b`, the last one first."""
    value = b.value
    if type(value) is If:
        return [value.false_branch, value.true_branch]
    return [value.body] if type(value) is Function else []


class Uses:
    """The variables that bindings read, those named in struct info included."""

    def __init__(self) -> None:
        self._of_info: dict[int, tuple[StructInfo, list[Var]]] = {}

    def of_info(self, info: StructInfo) -> list[Var]:
        """The variables that `info` names as shapes."""
        found = self._of_info.get(id(info))
        if found is None:
            found = self._of_info[id(info)] = (info, struct_info_vars(info))
        return found[1]

    def of(self, b: Binding) -> list[Var]:
        """What `b` itself reads; what stands inside an If or a Function is not entered."""
        value = b.value
        found = [] if isinstance(value, Function) else list(vars_in(value))
        found += self.of_info(b.var.struct_info)
        if isinstance(b, MatchCast):
            found += self.of_info(b.struct_info)
        if isinstance(value, Function):
            for info in (value.ret_struct_info, *(p.struct_info for p in value.params)):
                found += self.of_info(info)
        elif isinstance(value, Call):
            for info in value.sinfo_args:
                found += self.of_info(info)
            if value.struct_info is not b.var.struct_info:
                found += self.of_info(value.struct_info)
        return found


class SameVars:
    """Groups of variables that stand for the same value; one of each group stays."""

    def __init__(self) -> None:
        self._parent: dict[Var, Var] = {}
        self._block: dict[Var, Any] = {}

    def bound(self, var: Var, block: Any) -> None:
        """Note that `var` is bound in `block`."""
        if type(var) is DataflowVar:
            self._block[var] = block

    def find(self, var: Var) -> Var:
        """The variable that stays for `var`."""
        root = var
        while (up := self._parent.get(root)) is not None:
            root = up
        while var is not root:
            self._parent[var], var = root, self._parent[var]
        return root

    def merge(self, old: Var, new: Var, block: Any) -> None:
        """`new`, bound in `block`, is what `old`, bound before it, is. Its binding is to go."""
        root = self.find(old)
        if self.find(new) is root:
            return  # bound twice, which is not well formed
        if type(root) is not DataflowVar or (
            type(new) is DataflowVar and self._block.get(root) is block
        ):
            self._parent[new] = root
        elif type(new) is not DataflowVar:
            # It is seen outside the block: the binding of `root` becomes one of `new`.
            self._parent[root] = new
        else:
            outside = Var(root.name_hint, root.struct_info, root.span)
            self._parent[root] = self._parent[new] = outside

    def mapping(self) -> dict[Any, Any]:
        """variable -> the variable that stays for it"""
        return {var: self.find(var) for var in self._parent}


class Dropper(BindingRewriter):
    """Rebuilds a function with some bindings changed or gone.

    changes   id of a binding's variable -> the new binding, several, or None to drop it
    prologue  bindings to put before the body
    """

    def __init__(self, changes: Mapping[int, Any], prologue: Sequence[Binding] = ()) -> None:
        self.changes = changes
        self.first = prologue

    def prologue(self, fn: Function) -> Sequence[Binding]:
        """What goes before the body of `fn`."""
        return self.first

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        """What stands for `b`."""
        if id(b.var) not in self.changes:
            return None
        new = self.changes[id(b.var)]
        if new is None:
            return ()
        return (new,) if isinstance(new, Binding) else new
