"""Register files that are prepared once and used call after call.

A storage of constant size whose tensors cannot leave the function is allocated with the register
file, together with its tensors, and the instructions that would do so are left out. Where a tensor
is shown to code that might keep it (an extern, another function), reference counts tell after the
call whether it did; then the file is not used again. A storage that reaches the result is never
prepared: what a call returns shares no memory with later calls.

A function that jumps back to its beginning (a tail call of itself) uses its prepared storages again
each time round, save those that may reach its parameters.

A storage whose size is known only at run time has an `Arena` in the register file under the same
conditions: memory that grows to the largest size asked for and serves call after call.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import field
from typing import Any

from ..base import VMError, reachable, record
from .builtin import Builtins, Storage, alloc_storage_of, new_tensor_of, storage_size
from .ops import Op, OpKind
from .program import FunctionInfo
from .result_memory import COUNTS_TELL

_SMALL_BYTES = 1 << 16
_SMALL_TOTAL_BYTES = 1 << 24
_MAX_CONDITIONAL_BYTES = 1 << 20
_MAX_KEPT = 8
_SHOWING = (OpKind.EXTERN, OpKind.FUNCTION, OpKind.INVOKE)


@record(frozen=False)
class Plan:
    """What is prepared.

    storages  (register, how to make it, its tensors as (register, how to make it))
    skipped   instructions that have nothing left to do
    watched   registers whose tensors others get to see
    arenas    instructions that take their storage from an arena, and its memory scope
    places    where the arenas lie: (place in the register file, scope, whether others see it)
    """

    storages: list[tuple[int, Any, list[tuple[int, Any]]]] = field(default_factory=list)
    skipped: set[int] = field(default_factory=set)
    watched: list[int] = field(default_factory=list)
    arenas: dict[int, tuple[str, bool]] = field(default_factory=dict)
    places: list[tuple[int, str, bool]] = field(default_factory=list)


Fused = tuple[int, Callable[[], Any]]
"""An instruction whose work another does, and the function for both."""


def fused_tensors(
    ops: Sequence[Op], starts: Sequence[int], skipped: Container[int]
) -> dict[int, Fused]:
    """The tensors that have a storage of their own, of constant size, in the same block: by the
    instruction that makes one, that of its storage, and what makes both at once.
    """
    uses = Counter(p for op in ops if op.kind != OpKind.KILL for p in (*set(op.args), op.dst))
    leaders, fused = set(starts), {}
    waiting: dict[int, int] = {}
    for pc, op in enumerate(ops):
        if pc in leaders:
            waiting.clear()
        if pc in skipped:
            continue
        if op.builtin is Builtins.ALLOC_STORAGE and op.size_bytes >= 0 and uses[op.dst] == 2:
            waiting[op.dst] = pc
        elif op.builtin is Builtins.ALLOC_TENSOR and len(op.args) == 1 and op.args[0] in waiting:
            said = waiting.pop(op.args[0])
            if op.function.end_bytes <= ops[said].size_bytes:
                fused[pc] = said, new_tensor_of(ops[said].function, op.function)
    return fused


class Arena:
    """Memory for one storage of a frame, whose size differs from call to call."""

    __slots__ = ("raw", "scope", "size_bytes", "start")

    def __init__(self, scope: str) -> None:
        self.raw: Any = None
        self.start = 0
        self.size_bytes = -1
        self.scope = scope


def take_from_arena(arena: Arena, size: Any) -> Storage:
    """A storage of `size` bytes (as for `alloc_storage`) in the arena, which grows if
    need be.
    """
    size_bytes = storage_size(size)
    if size_bytes > arena.size_bytes:
        # The old memory goes first, unless somebody still looks at it.
        arena.raw, arena.size_bytes = None, -1
        storage = alloc_storage_of(size_bytes, 0, None, arena.scope)(None, lasting=True)
        arena.raw, arena.start, arena.size_bytes = storage.raw, storage.start, size_bytes
    return Storage(arena.raw, arena.start, size_bytes, arena.scope)


def _holders(arena: Arena) -> int:
    return sys.getrefcount(arena.raw)


def _holders_if_unseen() -> int:
    arena = Arena("")
    arena.raw = bytearray()
    return _holders(arena)


_UNSEEN = _holders_if_unseen()


class Frames:
    """The prepared register files of one function."""

    __slots__ = ("_free", "_plan", "_template")

    def __init__(self, template: list[Any], plan: Plan) -> None:
        self._template = template
        self._plan = plan
        self._free: list[tuple[list[Any], list[int]]] = []

    @property
    def plan(self) -> Plan:
        """What is prepared in them."""
        return self._plan

    def take(self) -> tuple[list[Any], list[int]]:
        """A register file nobody else uses, and the reference counts of what is watched in it."""
        try:
            return self._free.pop()
        except IndexError:
            return self._make()

    def give_back(self, frame: tuple[list[Any], list[int]]) -> None:
        """Keep `frame` for another call, unless somebody kept a tensor of it."""
        registers, counts = frame
        if len(self._free) >= _MAX_KEPT or (counts and _counts(registers, self._plan) != counts):
            return
        for place, _, seen in self._plan.places:
            arena = registers[place]
            if seen and arena.raw is not None and _holders(arena) != _UNSEEN:
                return
        self._free.append(frame)

    def _make(self) -> tuple[list[Any], list[int]]:
        registers = self._template.copy()
        for place, make, tensors in self._plan.storages:
            storage = registers[place] = make(None, lasting=True)
            for tensor_place, make_tensor in tensors:
                registers[tensor_place] = make_tensor(storage)
            del storage
        for place, scope, _ in self._plan.places:
            registers[place] = Arena(scope)
        return registers, _counts(registers, self._plan)


def _counts(registers: list[Any], plan: Plan) -> list[int]:
    """Reference counts of watched objects and of the memory under them.

    Meaningful only beside each other.
    """
    counts: list[int] = []
    for place in plan.watched:
        value = registers[place]
        memory = value.raw if type(value) is Storage else value.array
        counts += (sys.getrefcount(value), sys.getrefcount(memory))
    return counts


def plan_frame(
    ops: Sequence[Op], info: FunctionInfo, leaders: list[int], template: Sequence[Any]
) -> Plan:
    """Which storages of a function can be prepared. About linear in its size.

    template  the register file, with constants in their places
    """
    writes = Counter(op.dst for op in ops if 0 <= op.dst < info.register_file_size)
    returned, shown, carried = escapes(ops, info.num_inputs)
    loops = _inside_loops(ops)

    def kept_round(pc: int, place: int) -> bool:
        """Whether what a loop allocates here may still be in use when it comes here again."""
        return loops[pc] > 1 or (loops[pc] == 1 and (place in carried or place in shown))

    first_branch = next((pc for pc, op in enumerate(ops) if op.target >= 0), len(ops))
    storages: dict[int, int] = {}  # of constant size: register -> instruction
    sized: dict[int, int] = {}  # of others
    for pc, op in enumerate(ops):
        place = op.dst
        if op.builtin is not Builtins.ALLOC_STORAGE or writes[place] != 1:
            continue
        if place < info.num_inputs or place in returned or kept_round(pc, place):
            continue
        if place in shown and not COUNTS_TELL:
            continue
        if op.size_bytes < 0:
            sized[place] = pc
        elif pc <= first_branch or op.size_bytes <= _MAX_CONDITIONAL_BYTES:
            storages[place] = pc
    tensors: dict[int, list[int]] = {place: [] for place in storages}
    for pc, op in enumerate(ops):
        if op.builtin is Builtins.ALLOC_TENSOR and len(op.args) == 1 and op.args[0] in storages:
            fits = op.function.end_bytes <= ops[storages[op.args[0]]].size_bytes
            if writes[op.dst] == 1 and op.dst >= info.num_inputs and fits:
                tensors[op.args[0]].append(pc)
    chosen = _affordable(ops, storages, tensors)
    plan = Plan()
    prepared: set[int] = set()
    for place in chosen:
        tensors_in = [(ops[pc].dst, ops[pc].function) for pc in tensors[place]]
        plan.storages.append((place, ops[storages[place]].function, tensors_in))
        plan.skipped.update((storages[place], *tensors[place]))
        prepared.update((place, *(register for register, _ in tensors_in)))
        if place in shown:
            plan.watched += [place, *(register for register, _ in tensors_in)]
    for pc, op in enumerate(ops):
        if op.kind == OpKind.KILL and op.args[0] in prepared:
            plan.skipped.add(pc)
    if _mostly_alive_together(ops, sized):
        for place, pc in sized.items():
            scope = _scope_of(ops[pc], template)
            if scope is not None:
                plan.arenas[pc] = (scope, place in shown)
    return plan


def _scope_of(op: Op, template: Sequence[Any]) -> str | None:
    """The memory scope of an `alloc_storage`, None if its constants are not in order."""
    constants = [template[place] for place in op.args[2:]]
    try:
        return alloc_storage_of(0, *constants)(None).scope
    except VMError:
        # The instruction itself says so when it runs.
        return None


def _mostly_alive_together(ops: Sequence[Op], sized: dict[int, int]) -> bool:
    """Whether keeping all of them costs at most about twice what the program needs at once."""
    kills = {op.args[0]: pc for pc, op in enumerate(ops) if op.kind == OpKind.KILL}
    lives = [(pc, kills.get(place, len(ops)), 1) for place, pc in sized.items()]
    return len(sized) <= 2 * _peak(lives)


def _peak(lives: Iterable[tuple[int, int, int]]) -> int:
    """The most that is alive at once of what lives from one instruction to another, each included:
    (first, last, how much).
    """
    changes = Counter[int]()
    for first, last, size in lives:
        changes[first] += size
        changes[last + 1] -= size
    return max(itertools.accumulate(changes[moment] for moment in sorted(changes)), default=0)


def _inside_loops(ops: Sequence[Op]) -> list[int]:
    """For each instruction: 0 if no jump back passes over it, 1 if only jumps to the very beginning
    do, where nothing but the parameters is in use, else 2.
    """
    inside = [0] * len(ops)
    depth = [0] * (len(ops) + 1)
    last = -1
    for pc, op in enumerate(ops):
        if op.target == 0:
            last = pc
        elif 0 <= op.target <= pc:
            depth[op.target] += 1
            depth[pc + 1] -= 1
    level = 0
    for pc, change in enumerate(depth[:-1]):
        level += change
        inside[pc] = 2 if level else int(pc <= last)
    return inside


def escapes(ops: Sequence[Op], num_inputs: int) -> tuple[set[int], set[int], set[int]]:
    """Registers whose memory may be part of the result, those that outside code gets to see, and
    those whose memory a parameter may come to refer to.
    """
    sources: dict[int, list[int]] = {}
    returned: list[int] = []
    shown: list[int] = []
    for op in ops:
        if op.kind == OpKind.RET:
            returned += op.args
        elif op.kind in _SHOWING or op.calls:
            shown += op.args
            if op.tail:
                returned += op.args
        elif op.aliases:
            sources.setdefault(op.dst, []).extend(op.args)
    carried = [place for param in range(num_inputs) for place in sources.get(param, ())]

    def reach(places: list[int]) -> set[int]:
        return set(reachable(places, lambda place: sources.get(place, ())))

    return reach(returned), reach(shown), reach(carried)


def _affordable(
    ops: Sequence[Op], storages: dict[int, int], tensors: dict[int, list[int]]
) -> list[int]:
    """All of them if they live at the same time anyway (planned memory), else only small ones.

    Prepared storages are never freed, so preparing each tensor of an unplanned program would keep
    them all alive.
    """
    kills = {op.args[0]: pc for pc, op in enumerate(ops) if op.kind == OpKind.KILL}
    lives = []
    for place, pc in storages.items():
        ends = [kills.get(place, pc), *(kills.get(ops[t].dst, len(ops)) for t in tensors[place])]
        lives.append((pc, max(ends), ops[pc].size_bytes))
    if sum(size for _, _, size in lives) <= 2 * _peak(lives) + _SMALL_BYTES:
        return list(storages)
    kept, used = [], 0
    for place, pc in storages.items():
        size_bytes = ops[pc].size_bytes
        if size_bytes <= _SMALL_BYTES and used + size_bytes <= _SMALL_TOTAL_BYTES:
            kept.append(place)
            used += size_bytes
    return kept
