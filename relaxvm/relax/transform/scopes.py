"""Walking a graph function binding by binding, through branches, without recursion.

`BindingRewriter` rebuilds a function from what it returns for each binding; `linearise` lays a
function out as a row of events for analyses that look forwards and backwards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...ir import FloatImm, IntImm, walk
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    Function,
    If,
    PrimValue,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from ..struct_info import Expr, ShapeExpr


class BindingRewriter:
    """Rebuilds a function. Subclasses say what becomes of each binding; what they leave alone
    stays the same object.
    """

    def begin(self, fn: Function) -> None:
        """Called before anything else."""

    def prologue(self, fn: Function) -> Sequence[Binding]:
        """Bindings to put before the body; asked for after the body is done."""
        return ()

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        """What stands for `b` (None: `b` itself). The branches of an `If` are already rebuilt."""
        return None

    def operand(self, value: Expr, out: list[Binding]) -> Expr:
        """What stands for a condition or a result; bindings it needs are appended to `out`."""
        return value

    def enter(self, fn: Function | None) -> None:
        """Called before a branch, or before the body of the inner function `fn`."""

    def leave(self) -> None:
        """Called after it."""

    def rewrite(self, fn: Function) -> Function:
        """`fn` rebuilt; the same object if nothing changed."""
        self.begin(fn)
        frames = [_Frame(fn.body, None)]
        while True:
            frame = frames[-1]
            b = frame.next()
            if b is None:
                extra: list[Binding] = []
                result = self.operand(frame.seq.body, extra)
                body = frame.finish(extra, result)
                frames.pop()
                if not frames:
                    break
                self.leave()
                frames[-1].done.append(body)
            elif isinstance(b.value, If):
                self._branches(frames, b)
            elif isinstance(b.value, Function):
                self._inner_function(frames, b)
            else:
                frame.put(b, self.binding(b))
        first = tuple(self.prologue(fn))
        if first:
            blocks = body.blocks
            if blocks and type(blocks[0]) is BindingBlock:
                first, blocks = (*first, *blocks[0].bindings), blocks[1:]
            body = body.replace(blocks=(BindingBlock(first), *blocks))
        return fn.replace(body=body)

    def _branches(self, frames: list[_Frame], b: Binding) -> None:
        frame, value = frames[-1], b.value
        assert isinstance(value, If)
        if not frame.done and frame.cond is None:
            frame.cond = self.operand(value.cond, frame.extra)
        if len(frame.done) < 2:
            self.enter(None)
            frames.append(_Frame((value.true_branch, value.false_branch)[len(frame.done)], b))
            return
        true_branch, false_branch = frame.done
        made = value.replace(cond=frame.cond, true_branch=true_branch, false_branch=false_branch)
        rebuilt = b.replace(value=made)
        after = self.binding(rebuilt)
        if frame.extra:
            after = [*frame.extra, *((rebuilt,) if after is None else after)]
        elif after is None and rebuilt is not b:
            after = (rebuilt,)
        frame.put(b, after)

    def _inner_function(self, frames: list[_Frame], b: Binding) -> None:
        frame, value = frames[-1], b.value
        assert isinstance(value, Function)
        if not frame.done:
            self.enter(value)
            frames.append(_Frame(value.body, b))
            return
        rebuilt = b.replace(value=value.replace(body=frame.done[0]))
        after = self.binding(rebuilt)
        frame.put(b, (rebuilt,) if after is None and rebuilt is not b else after)


class RememberingRewriter(BindingRewriter):
    """A rewriter with tables that hold for what follows in the same scope: what was entered in a
    branch or an inner function is forgotten at its end.
    """

    def __init__(self) -> None:
        self._entered: list[tuple[dict[Any, Any], Any]] = []
        self._marks: list[int] = []

    def remember(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Enter `value` in `table`; the key is not there yet."""
        table[key] = value
        self._entered.append((table, key))

    def enter(self, fn: Function | None) -> None:
        self._marks.append(len(self._entered))

    def leave(self) -> None:
        mark = self._marks.pop()
        while len(self._entered) > mark:
            table, key = self._entered.pop()
            del table[key]


class _Frame:
    """Where a rewrite stands in one sequence of blocks."""

    __slots__ = (
        "_at",
        "_block",
        "_blocks",
        "_changed",
        "_current",
        "_dirty",
        "cond",
        "done",
        "extra",
        "seq",
    )

    def __init__(self, seq: SeqExpr, owner: Binding | None) -> None:
        self.seq = seq
        self.cond: Any = None
        self.done: list[SeqExpr] = []
        self.extra: list[Binding] = []
        self._blocks: list[BindingBlock] = []
        self._current: list[Binding] = []
        self._block = self._at = 0
        self._dirty = self._changed = False

    def next(self) -> Binding | None:
        while self._block < len(self.seq.blocks):
            block = self.seq.blocks[self._block]
            if self._at < len(block.bindings):
                return block.bindings[self._at]
            self._close(block)
        return None

    def _close(self, block: BindingBlock) -> None:
        if self._dirty:
            self._changed = True
            if self._current:
                self._blocks.append(block.replace(bindings=tuple(self._current)))
        else:
            self._blocks.append(block)
        self._block += 1
        self._at = 0
        self._current = []
        self._dirty = False

    def put(self, b: Binding, after: Sequence[Binding] | None) -> None:
        if after is None:
            self._current.append(b)
        else:
            self._current.extend(after)
            self._dirty = True
        self._at += 1
        self.cond = None
        if self.done or self.extra:
            self.done, self.extra = [], []

    def finish(self, extra: list[Binding], result: Expr) -> SeqExpr:
        if not extra and not self._changed:
            return self.seq.replace(body=result)
        blocks = list(self._blocks)
        if extra and blocks and type(blocks[-1]) is BindingBlock:
            blocks[-1] = blocks[-1].replace(bindings=(*blocks[-1].bindings, *extra))
        elif extra:
            blocks.append(BindingBlock(extra))
        return self.seq.replace(blocks=tuple(blocks), body=result)


# -- events ---------------------------------------------------------------------------------------

BIND, BRANCH, RESULT, END = "bind", "branch", "result", "end"


class Scope:
    """A sequence of bindings: a function's body, or a branch of an `If`."""

    __slots__ = ("depth", "ends", "owner")

    def __init__(self, depth: int, owner: Binding | None) -> None:
        self.depth = depth
        self.owner = owner
        self.ends: list[int] = []


class Event(NamedTuple):
    """One step of a function laid out in a row.

    BIND    `node` is a binding whose value is no `If`
    BRANCH  `node` is a binding whose value is an `If`; its branches follow, each ended by a RESULT
    RESULT  `node` is the result of the sequence `scope`
    END     `node` is the binding of the BRANCH before; the variable is bound here
    """

    kind: str
    scope: Scope
    node: Any


def linearise(fn: Function) -> list[Event]:
    """The events of `fn` in order. Inner functions are values like others; their bodies are not
    entered.
    """
    events: list[Event] = []
    root = Scope(0, None)
    stack: list[tuple[Iterator[Binding], SeqExpr, Scope, list[Any]]] = []
    stack.append((_bindings(fn.body), fn.body, root, []))
    while stack:
        bindings, seq, scope, waiting = stack[-1]
        if waiting:
            b, branches = waiting[-1]
            if branches:
                branch = branches.pop(0)
                stack.append((_bindings(branch), branch, Scope(scope.depth + 1, b), []))
                continue
            waiting.pop()
            scope.ends.append(len(events))
            events.append(Event(END, scope, b))
        b = next(bindings, None)
        if b is None:
            scope.ends.append(len(events))
            events.append(Event(RESULT, scope, seq.body))
            stack.pop()
        elif isinstance(b.value, If):
            events.append(Event(BRANCH, scope, b))
            waiting.append((b, [b.value.true_branch, b.value.false_branch]))
        else:
            scope.ends.append(len(events))
            events.append(Event(BIND, scope, b))
    return events


def _bindings(seq: SeqExpr) -> Iterator[Binding]:
    for block in seq.blocks:
        yield from block.bindings


def release_positions(last_use: dict[Any, int], scope_of: dict[Any, Scope]) -> dict[int, list[Any]]:
    """By event: what is used for the last time there, seen from the sequence that it belongs to.

    Something last used inside a branch of a later `If` is released at that `If`'s end.
    """
    released: dict[int, list[Any]] = {}
    for key, position in last_use.items():
        ends = scope_of[key].ends
        released.setdefault(ends[bisect_left(ends, position)], []).append(key)
    return released


def vars_in(value: Expr) -> list[Var]:
    """The variables a value reads when it is evaluated; those of an `If`'s branches excluded."""
    if isinstance(value, Var):
        return [value]
    stack: list[Any]
    if isinstance(value, Call):
        stack = [value.op, *value.args]
    elif isinstance(value, (Tuple, TupleGetItem)):
        stack = [value]
    elif isinstance(value, If):
        stack = [value.cond]
    elif isinstance(value, Function):
        # What it captures is among them; its own variables do no harm.
        return [n for n in walk(value) if isinstance(n, Var)]
    else:
        return []
    found: list[Var] = []
    while stack:
        each = stack.pop()
        if isinstance(each, Var):
            found.append(each)
        elif isinstance(each, Tuple):
            stack.extend(each.fields)
        elif isinstance(each, TupleGetItem):
            stack.append(each.tuple_value)
    found.reverse()
    return found


def is_symbolic(value: Any) -> bool:
    """Whether a shape or scalar in an operand is no constant."""
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, Tuple):
            todo.extend(each.fields)
        elif isinstance(each, ShapeExpr):
            if not all(isinstance(d, IntImm) for d in each.values):
                return True
        elif isinstance(each, PrimValue) and not isinstance(each.value, (IntImm, FloatImm)):
            return True
    return False
