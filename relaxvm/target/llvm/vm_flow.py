"""The flow of a VM function: blocks in an order in which definitions come before uses, which
registers are live where, and which must stay in memory between blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...base import record
from ...runtime.ops import Op, OpKind

MAX_LIVENESS_WORK = 20_000_000
_SEVERAL = -2


@record
class Flow:
    """What `flow_of` finds.

    blocks    (first instruction, one after the last), in reverse postorder: a block comes after
              those that dominate it
    live_out  for each block, the registers read after it before they are written
    sources   for each block, which instruction wrote the registers read in it first (-1: they are
              arguments), where that is only one
    crossing  registers that several instructions may have written where a block begins that reads
              them: these live in memory
    loops     whether some jump goes back
    """

    blocks: tuple[tuple[int, int], ...]
    live_out: tuple[frozenset[int], ...]
    sources: tuple[dict[int, int], ...]
    crossing: frozenset[int]
    loops: bool

    def live_before(self, ops: Sequence[Op], index: int, registers: int) -> list[frozenset[int]]:
        """The registers live before each instruction of block `index`."""
        start, end = self.blocks[index]
        live = set(self.live_out[index])
        live_sets = []
        for pc in range(end - 1, start - 1, -1):
            reads, write = _effect(ops[pc], registers)
            live.discard(write)
            live.update(reads)
            live_sets.append(frozenset(live))
        live_sets.reverse()
        return live_sets


def flow_of(ops: Sequence[Op], num_inputs: int, registers: int) -> Flow | None:
    """The flow of a verified function, or None where finding it would take too long."""
    starts = {0}
    for pc, op in enumerate(ops):
        if op.target >= 0:
            starts.add(op.target)
        if op.kind in (OpKind.GOTO, OpKind.IF, OpKind.RET) and pc + 1 < len(ops):
            starts.add(pc + 1)
    ordered = sorted(starts)
    ends = dict(zip(ordered, [*ordered[1:], len(ops)]))
    following: dict[int, list[int]] = {}
    for start, end in ends.items():
        following[start] = after(ops[end - 1], end)
    order = _reverse_postorder(following)
    exposed: dict[int, set[int]] = {}
    defined: dict[int, dict[int, int]] = {}
    for start in order:
        seen: dict[int, int] = {}
        wanted: set[int] = set()
        for pc in range(start, ends[start]):
            reads, write = _effect(ops[pc], registers)
            wanted.update(r for r in reads if r not in seen)
            if write >= 0:
                seen[write] = pc
        exposed[start], defined[start] = wanted, seen
    live = _liveness(order, following, exposed, defined)
    if live is None:
        return None
    reaching = _reaching(order, following, defined, live, exposed, num_inputs)
    if reaching is None:
        return None
    crossing = {r for state in reaching.values() for r, pc in state.items() if pc == _SEVERAL}
    position = {start: i for i, start in enumerate(order)}
    loops = any(position[j] <= position[i] for i in order for j in following[i])
    return Flow(
        tuple((start, ends[start]) for start in order),
        tuple(frozenset(live[start]) for start in order),
        tuple(reaching[start] for start in order),
        frozenset(crossing),
        loops,
    )


def after(last: Op, end: int) -> list[int]:
    """Where a block goes on that ends before `end` with the instruction `last`."""
    jumps = {OpKind.GOTO: [last.target], OpKind.IF: [end, last.target], OpKind.RET: []}
    return jumps.get(last.kind, [end])


def _effect(op: Op, registers: int) -> tuple[list[int], int]:
    """The registers an instruction reads, and the one it writes (or ends), or -1."""
    if op.kind == OpKind.KILL:
        return [], op.args[0]
    reads = [r for r in op.args if 0 <= r < registers]
    writes = op.kind <= OpKind.INVOKE and 0 <= op.dst < registers
    return reads, op.dst if writes else -1


def _reverse_postorder(following: dict[int, list[int]]) -> list[int]:
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(following[0]))]
    while stack:
        start, left = stack[-1]
        for target in left:
            if target not in seen:
                seen.add(target)
                stack.append((target, iter(following[target])))
                break
        else:
            order.append(start)
            stack.pop()
    order.reverse()
    return order


def _liveness(
    order: list[int],
    following: dict[int, list[int]],
    exposed: dict[int, set[int]],
    defined: dict[int, dict[int, int]],
) -> dict[int, set[int]] | None:
    live_in = {start: set(exposed[start]) for start in order}
    live_out: dict[int, set[int]] = {start: set() for start in order}
    work = 0
    changed = True
    while changed:
        changed = False
        for start in reversed(order):
            out = live_out[start]
            before = len(out)
            for target in following[start]:
                out |= live_in[target]
                work += 1 + len(live_in[target])
            if len(out) != before:
                live_in[start] |= out - defined[start].keys()
                changed = True
        if work > MAX_LIVENESS_WORK:
            return None
    return live_out


def _reaching(
    order: list[int],
    following: dict[int, list[int]],
    defined: dict[int, dict[int, int]],
    live_out: dict[int, set[int]],
    exposed: dict[int, set[int]],
    num_inputs: int,
) -> dict[int, dict[int, int]] | None:
    """For each block and register live where it begins, the instruction that wrote it."""
    live_in = {b: (live_out[b] - defined[b].keys()) | exposed[b] for b in order}
    states: dict[int, dict[int, int]] = {start: {} for start in order}
    states[0] = {r: -1 for r in range(num_inputs) if r in live_in[0]}
    work, changed = 0, True
    while changed:
        changed = False
        for start in order:
            out = {**states[start], **defined[start]}
            for target in following[start]:
                state = states[target]
                work += 1 + len(live_in[target])
                for register in live_in[target]:
                    pc, known = out.get(register), state.get(register)
                    if pc is not None and pc != known and known != _SEVERAL:
                        state[register] = pc if known is None else _SEVERAL
                        changed = True
        if work > MAX_LIVENESS_WORK:
            return None
    return states
