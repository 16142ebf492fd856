"""Calls whose value is the caller's own value, in functions that call themselves or one another so:
they become jumps.

    def loop(i, x):                       loop(i, x):  ...
        c = i > 0                                      if    c      else: +k
        if c:                                          call  vm.builtin.move in: j  dst: i
            r = cls.loop(j, y)      becomes            call  vm.builtin.move in: y  dst: x
        else:                                          goto  the beginning
            r = x                                      call  vm.builtin.move in: x  dst: r
        return r                                       ret   r

Functions that call one another in turn are emitted into one another, so that the call of another
one is a jump too: its instructions follow, with registers of their own for its parameters.

Enters: the events of functions in their final form. Leaves: which calls these are, what is let go
after each of them, which has to happen before the jump, and which functions go together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..base import components
from ..ir import GlobalVar
from ..runtime.bytecode import Arg, ArgKind
from .expr import Call, Constant, Var
from .flow import CLOSE, ENTER, OPEN, RESULT, Event, Scope
from .known_ops import VM_KILL_OBJECT
from .struct_info import Expr

_MOST_KILLS = 256
# What functions that call one another in turn may have together: each of them holds all of it.
_MOST_EVENTS = 2000
# What is let go after a place, nearest first: (kill, the others).
_Kills = tuple[Call, Any] | None


def tail_circles(events: Mapping[str, Sequence[Event]]) -> dict[str, tuple[str, ...]]:
    """For each function the others that it comes back from by tail calls only, in module order.

    events  those of each function, by its name in the module
    """
    calls: dict[str, list[str]] = {}
    for name, mine in events.items():
        callees = (mine[k].node.value.op.name_hint for k in find_tail_calls(mine, events))
        calls[name] = list(dict.fromkeys(callees))
    circles: dict[str, tuple[str, ...]] = {}
    for group in components(calls, calls):
        if len(group) > 1 and sum(len(events[name]) for name in group) > _MOST_EVENTS:
            continue
        for name in group:
            together = set(group) - {name}
            circles[name] = tuple(n for n in events if n in together)
    return circles


def find_tail_calls(events: Sequence[Event], names: Collection[str]) -> dict[int, list[Call]]:
    """The tail calls of functions in `names`: position among `events` -> the kills that follow it.

    Between such a call and the return there is nothing but names for its value, kills, and the
    ends of branches.
    """
    tails: dict[int, list[Call]] = {}
    # By scope: the variable that becomes the function's value if nothing more is done, and what is
    # let go until then. A scope that is not here does some work before its end.
    waiting: dict[Scope, tuple[Var, _Kills]] = {}
    branches: dict[Any, _Kills | bool] = {}
    for position in range(len(events) - 1, -1, -1):
        kind, scope, node, *_ = events[position]
        if kind is RESULT:
            kills: Any = None if scope.owner is None else branches.get(scope.owner, False)
            if kills is not False and isinstance(node, Var):
                waiting[scope] = (node, kills)
            continue
        state = waiting.get(scope)
        if state is None or kind in (OPEN, ENTER):
            continue
        before = None if kind is CLOSE else _before(node.var, node.value, *state)
        if before is not None:
            waiting[scope] = before
            continue
        del waiting[scope]
        if node.var is not state[0]:
            continue
        if kind is CLOSE:
            branches[node] = state[1]
        elif _calls(node.value, names):
            tails[position] = _listed(state[1])
    return tails


def _before(var: Var, value: Expr, wanted: Var, kills: _Kills) -> tuple[Var, _Kills] | None:
    """What is waited for before a binding that does no work; None for one that does."""
    if isinstance(value, Call) and value.op is VM_KILL_OBJECT:
        return wanted, (value, kills)
    if isinstance(value, Var):
        return value if var is wanted else wanted, kills
    return (wanted, kills) if isinstance(value, Constant) and var is not wanted else None


def _calls(value: Expr, names: Collection[str]) -> bool:
    if not isinstance(value, Call) or not isinstance(value.op, GlobalVar):
        return False
    return value.op.name_hint in names


def _listed(kills: _Kills) -> list[Call]:
    calls: list[Call] = []
    while kills is not None and len(calls) < _MOST_KILLS:
        calls.append(kills[0])
        kills = kills[1]
    return calls


def ordered_moves(
    pairs: Sequence[tuple[int, Arg]], spare: Callable[[], int]
) -> list[tuple[int, Arg]]:
    """Moves ``register = source``, meant to happen at once, in an order that does the same.

    spare  gives a register that nobody uses
    """
    left = {to: source for to, source in pairs if source != _register(to)}
    readers = dict.fromkeys(left, 0)
    for source in left.values():
        if source.kind == ArgKind.REGISTER and source.value in readers:
            readers[source.value] += 1
    moves: list[tuple[int, Arg]] = []
    ready = [to for to, count in readers.items() if not count]
    while ready:
        to = ready.pop()
        source = left.pop(to)
        moves.append((to, source))
        if source.kind == ArgKind.REGISTER and source.value in left:
            readers[source.value] -= 1
            if not readers[source.value]:
                ready.append(source.value)
    # What is left are rings, each register read by one other: one of each is kept aside.
    while left:
        first, source = left.popitem()
        aside = spare()
        moves.append((aside, _register(first)))
        to = first
        while source.value != first:
            moves.append((to, source))
            to = source.value
            source = left.pop(to)
        moves.append((to, _register(aside)))
    return moves


def _register(number: int) -> Arg:
    return Arg(ArgKind.REGISTER, number)
