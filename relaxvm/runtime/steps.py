"""Blocks of steps for the fast loop, from a function's ops.

Each step is a small tuple, specialised by what is called and with how many arguments. Neighbouring
kernels become a row, a tensor is made together with the storage that is its own.
"""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence

from .frame import Fused, Plan, fused_tensors, take_from_arena
from .ops import Op, OpKind, Step, StepKind, places_of
from .trampoline import ROW_MOST, is_fast, make_row


class Blocks:
    """Makes the steps of the blocks of a function.

    A call of a VM function ends one, so that the caller can go on at the next.

    starts     the instructions that begin blocks
    positions  the instruction of each step, by its identity
    """

    def __init__(
        self, ops: Sequence[Op], plan: Plan, leaders: Iterable[int], registers: int, fuse: bool
    ) -> None:
        self._ops, self._plan, self._registers = ops, plan, registers
        after = [pc + 1 for pc, op in enumerate(ops) if op.kind in (OpKind.FUNCTION, OpKind.INVOKE)]
        self.starts = sorted({*leaders, *after})
        self._index = {pc: i for i, pc in enumerate(self.starts)}
        self._arenas = dict(zip(plan.arenas, plan.places))
        self._fused = fused_tensors(ops, self.starts, plan.skipped) if fuse else {}
        self._gone = plan.skipped.union(said for said, _ in self._fused.values())
        self.positions: dict[int, int] = {}

    def block(self, start: int, skipped: Iterable[int] = ()) -> tuple[Step, ...]:
        """The steps of the block that begins at `start`, without the instructions `skipped`."""
        return _in_rows(
            self._steps(start, self._gone.union(skipped) if skipped else self._gone, self._fused)
        )

    def rest(self, pc: int) -> tuple[Step, ...]:
        """From any instruction to the end of its block."""
        return tuple(self._steps(pc, self._plan.skipped, {}))

    def _steps(self, start: int, skipped: Container[int], fused: Mapping[int, Fused]) -> list[Step]:
        ops, arenas = self._ops, self._arenas
        place = bisect_right(self.starts, start)
        end = self.starts[place] if place < len(self.starts) else len(ops)
        steps: list[Step] = []
        step: Step
        for pc in range(start, end):
            if pc in skipped:
                continue
            said = pc
            if pc in arenas:
                size, dst = ops[pc].args[1], ops[pc].dst
                step = (StepKind.CALL.value, take_from_arena, dst, arenas[pc][0], size, None)
            elif pc in fused:
                said, function = fused[pc]
                step = (StepKind.CALL.value, function, ops[pc].dst, None, None, None)
            else:
                step = _step(ops[pc], pc, self._index, self._registers)
            steps.append(step)
            self.positions[id(step)] = said
        if ops[end - 1].kind in (OpKind.BUILTIN, OpKind.KERNEL, OpKind.EXTERN, OpKind.KILL):
            steps.append((StepKind.GOTO.value, None, None, self._index[end], None, None))
        return steps


def _in_rows(steps: Sequence[Step]) -> tuple[Step, ...]:
    """`steps` with neighbouring kernels as one step each, whose calls cost no Python."""
    rows: list[Step] = []
    for fast, same in itertools.groupby(steps, _is_fast_kernel):
        group = list(same)
        while fast and len(group) > 1:
            row, group = tuple(group[:ROW_MOST]), group[ROW_MOST:]
            native = make_row([(step[1], places_of(step)) for step in row])
            rows.append((StepKind.ROW.value, native, row, None, None, None))
        rows += group
    return tuple(rows)


def _is_fast_kernel(step: Step) -> bool:
    return step[0] in (StepKind.KERNEL, StepKind.KERNEL_MANY) and is_fast(step[1])


def _step(op: Op, pc: int, index: dict[int, int], registers: int) -> Step:
    """One op for the fast loop. Each call makes a new tuple: its identity stands for the
    instruction.
    """
    args, count = op.args, len(op.args)
    a, b, c = (*args[:3], None, None, None)[:3]
    if op.kind == OpKind.KERNEL:
        if 1 <= count <= 3:
            return (StepKind.KERNEL.value, op.function.call, op.function, a, b, c)
        return (StepKind.KERNEL_MANY.value, op.function.call, op.function, args, None, None)
    if op.kind == OpKind.BUILTIN or (op.kind == OpKind.EXTERN and op.dst >= registers):
        # What an extern returns is made a value of the program where a register takes it.
        if count <= 3:
            return (StepKind.CALL.value, op.function, op.dst, a, b, c)
        operands = operator.itemgetter(*args)
        return (StepKind.CALL_MANY.value, op.function, op.dst, operands, None, None)
    if op.kind == OpKind.EXTERN:
        return (StepKind.EXTERN.value, op.function, op.dst, args, None, None)
    if op.kind == OpKind.FUNCTION:
        called = StepKind.TAIL_FUNCTION if op.tail else StepKind.FUNCTION
        return (called.value, op.function, op.dst, args, index[pc + 1], None)
    if op.kind == OpKind.INVOKE:
        called = StepKind.TAIL_INVOKE if op.tail else StepKind.INVOKE
        return (called.value, op.function, op.dst, a, b, index[pc + 1])
    if op.kind == OpKind.KILL:
        return (StepKind.KILL.value, None, a, None, None, None)
    if op.kind == OpKind.GOTO:
        return (StepKind.GOTO.value, None, None, index[op.target], None, None)
    if op.kind == OpKind.IF:
        return (StepKind.IF.value, None, None, a, index[pc + 1], index[op.target])
    return (StepKind.RET.value, None, None, a, None, None)
