"""The two loops that run linked functions.

`run` is the fast one: blocks of steps. `run_carefully` goes instruction by instruction, with limits
and an instrument. In both, calls between VM functions take no Python stack, and an exception leaves
with notes that name the VM frames. A recursive call whose value is the caller's own (a tail call)
takes its place: the caller's registers go, and it counts for no depth.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from enum import IntEnum
from time import perf_counter_ns
from typing import Any

import numpy as np

from ..base import LimitError, VMTypeError
from .builtin import VMClosure
from .check import as_condition, got
from .frame_notes import name_frames, too_deep
from .limits import Account
from .link import BuiltinValue, LinkedFunction
from .ndarray import NDArray, ShapeTuple, as_ndarray, wrap_unchecked
from .nested import is_nest, map_leaves
from .ops import OpKind, Step, StepKind, places_of
from .trampoline import ROW_MOST

_KERNEL, _CALL, _ROW, _RET, _KERNEL_MANY, _CALL_MANY, _EXTERN, _KILL = range(8)
_FUNCTION, _IF, _GOTO, _INVOKE, _TAIL_FUNCTION, _TAIL_INVOKE = range(8, 14)
assert [kind.value for kind in StepKind] == list(range(14))
_OP_BUILTIN, _OP_KERNEL, _, _, _OP_INVOKE, _OP_KILL, _OP_GOTO, _OP_IF, _ = map(int, OpKind)
_PLAIN = {int, float, bool, str, type(None), ShapeTuple, VMClosure}


class VMInstrumentReturnKind(IntEnum):
    """What an instrument answers before a call: run it, or leave it out."""

    NO_OP = 0
    SKIP_RUN = 1


def contiguous(array: NDArray) -> NDArray:
    """`array`, or a C-contiguous copy if it has gaps: programs see only contiguous arrays."""
    if array.array.flags.c_contiguous:
        return array
    try:
        copied = np.ascontiguousarray(array.array)
    except MemoryError as error:
        raise LimitError(f"cannot copy an array with gaps into one without: {error}") from None
    return wrap_unchecked(copied, array.dtype, array.device)


def adopt(value: Any) -> Any:
    """What an extern returned, as the program sees it: any array an NDArray, lists tuples."""
    kind = type(value)
    if kind is NDArray:
        return contiguous(value)
    if kind in _PLAIN:
        return value
    if is_nest(value):
        return map_leaves(value, adopt)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) or hasattr(kind, "__dlpack__"):
        return contiguous(as_ndarray(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return operator.index(value)
    return value


def run(
    entry: LinkedFunction,
    args: Sequence[Any],
    max_depth: int,
    depth: int = 0,
    resume: tuple[list[Any], tuple[Step, ...]] | None = None,
    places: list[tuple[LinkedFunction, int | None]] | None = None,
    begin: tuple[Step, ...] | None = None,
) -> Any:
    """Run `entry` on arguments of the right number; gives its result.

    depth   how many VM functions it is inside of already
    resume  a register file, and the steps of `entry` to go on with, instead of arguments
    places  where to put the VM frames of an error, innermost first, instead of naming them on it
    begin   steps to run in place of those of the first block
    """
    stack: list[tuple[Any, ...]] = []
    fn, step, frame = entry, None, None
    deepest = max_depth - depth
    try:
        if resume is not None:
            regs, block = resume
            resume = None
        else:
            frames = fn.frames
            if frames is None:
                regs = [*args, *fn.beyond_inputs]
            else:
                frame = frames.take()
                regs = frame[0].copy()
                regs[: len(args)] = args
            block = fn.blocks[0] if begin is None else begin
        while True:
            for step in block:
                op, f, d, a, b, c = step
                if op == _KERNEL:
                    if b is None:
                        code = f(regs[a])
                    elif c is None:
                        code = f(regs[a], regs[b])
                    else:
                        code = f(regs[a], regs[b], regs[c])
                    if code is not None:
                        _fail(step, code, regs)
                elif op == _CALL:
                    if a is None:
                        regs[d] = f()
                    elif b is None:
                        regs[d] = f(regs[a])
                    elif c is None:
                        regs[d] = f(regs[a], regs[b])
                    else:
                        regs[d] = f(regs[a], regs[b], regs[c])
                elif op == _ROW:
                    code = f(regs)
                    if code is not None:
                        step = d[code % ROW_MOST]
                        _fail(step, code // ROW_MOST, regs)
                elif op == _RET:
                    value = regs[a]
                    if frame is not None:
                        del regs
                        fn.frames.give_back(frame)  # type: ignore[union-attr]
                    if not stack:
                        return value
                    fn, step, frame, regs, block, d = stack.pop()
                    regs[d] = value
                    del value
                    break
                elif op == _KERNEL_MANY:
                    code = f(*[regs[i] for i in a])
                    if code is not None:
                        _fail(step, code, regs)
                elif op == _CALL_MANY:
                    regs[d] = f(*a(regs))
                elif op == _EXTERN:
                    regs[d] = adopt(f(*[regs[i] for i in a]))
                elif op == _KILL:
                    regs[d] = None
                elif op == _IF:
                    cond = regs[a]
                    if cond is True:
                        block = fn.blocks[b]
                    elif cond is False:
                        block = fn.blocks[c]
                    else:
                        block = fn.blocks[b if as_condition(cond) else c]
                    break
                elif op == _GOTO:
                    block = fn.blocks[a]
                    break
                else:
                    if op == _FUNCTION or op == _TAIL_FUNCTION:
                        callee, operands, following = f, [regs[i] for i in a], b
                    else:
                        callee, operands = closure_call(regs[a], regs[b])
                        following = c
                        if type(callee) is not LinkedFunction:
                            regs[d] = adopt(callee(*operands))
                            block = fn.blocks[following]
                            break
                    if op >= _TAIL_FUNCTION:
                        del regs
                        if frame is not None:
                            # Unless it holds an argument, as `give_back` finds out.
                            fn.frames.give_back(frame)  # type: ignore[union-attr]
                    else:
                        if len(stack) >= deepest:
                            raise too_deep(callee, max_depth)
                        stack.append((fn, step, frame, regs, fn.blocks[following], d))
                    fn, frame, frames = callee, None, callee.frames
                    if frames is None:
                        regs = [*operands, *fn.beyond_inputs]
                    else:
                        frame = frames.take()
                        regs = frame[0].copy()
                        regs[: len(operands)] = operands
                    del operands
                    block = fn.blocks[0]
                    break
    except BaseException as error:
        frames_passed = [(entry[0], entry[0].steps.positions.get(id(entry[1]))) for entry in stack]
        frames_passed.append((fn, None if step is None else fn.steps.positions.get(id(step))))
        frames_passed.reverse()
        if places is not None:
            places += frames_passed
        else:
            name_frames(error, frames_passed, max_depth)
        raise


def _fail(step: Step, code: int, regs: list[Any]) -> None:
    step[2].raise_failure(code, [regs[place] for place in places_of(step)])


def closure_call(closure: Any, args: Any) -> tuple[Any, list[Any]]:
    """What to run for a closure, and on what."""
    if not isinstance(args, tuple):
        raise VMTypeError(f"invoke_closure: wanted a tuple of arguments, got {got(args)}")
    if type(closure) is VMClosure:
        callee, operands = closure.function, [*args, *closure.captured]
        if type(callee) is LinkedFunction and len(operands) != callee.num_inputs:
            raise VMTypeError(
                f"invoke_closure: {callee.info.signature()} takes {callee.num_inputs} arguments, "
                f"got {len(args)} and {len(closure.captured)} captured"
            )
        return callee, operands
    if not callable(closure):
        raise VMTypeError(f"invoke_closure: wanted a function, got {got(closure)}")
    return closure, list(args)


# The careful loop


def run_carefully(
    entry: LinkedFunction,
    args: Sequence[Any],
    max_depth: int,
    account: Account | None,
    instrument: Callable[..., Any] | None,
    recorder: Any = None,
) -> Any:
    """As `run`, charging every instruction to `account`, showing every call to `instrument` and
    timing it for `recorder` (a `profile.Recorder`).
    """
    stack: list[tuple[Any, ...]] = []
    depth = 0
    fn, pc, regs = entry, 0, _registers(entry, args, account)
    if recorder is not None:
        recorder.enter(None, -1, entry)
    try:
        while True:
            if account is not None:
                account.instruction()
            op = fn.ops[pc]
            kind, callee, symbol, dst, places, target, *_ = op
            if kind <= _OP_INVOKE:
                operands = shown = [regs[i] for i in places]
                if kind == _OP_BUILTIN and places and places[0] == fn.account:
                    shown = operands[1:]
                if instrument is not None and _skips(instrument, op, shown):
                    regs[dst] = None
                    pc += 1
                    continue
                if kind == _OP_INVOKE:
                    callee, operands = closure_call(*operands)
                if type(callee) is LinkedFunction:
                    if not op.tail:
                        depth += 1
                    if depth > max_depth:
                        raise too_deep(callee, max_depth)
                    if not op.tail or instrument is not None or recorder is not None:
                        # An instrument is shown the value of every call, so it has to come back.
                        stack.append((fn, pc, regs, shown))
                    if recorder is not None:
                        recorder.enter(fn, pc, callee)
                    fn, pc, regs = callee, 0, _registers(callee, operands, account)
                    continue
                began = 0 if recorder is None else perf_counter_ns()
                if kind == _OP_KERNEL:
                    value = callee.call(*operands)
                    if value is not None:
                        callee.raise_failure(value, operands)
                elif type(callee) is BuiltinValue:
                    value = callee.run(regs[fn.account], operands)
                else:
                    value = callee(*operands)
                    if kind != _OP_BUILTIN and dst < fn.info.register_file_size:
                        value = adopt(value)
                if recorder is not None:
                    recorder.add(fn, pc, op, began, perf_counter_ns(), operands, value)
                regs[dst] = value
                if instrument is not None:
                    instrument(op.function, symbol, False, value, *shown)
                # Nothing but the registers holds on to memory.
                value = None
                pc += 1
            elif kind == _OP_KILL:
                regs[places[0]] = None
                pc += 1
            elif kind == _OP_GOTO:
                pc = target
            elif kind == _OP_IF:
                pc = pc + 1 if as_condition(regs[places[0]]) else target
            else:
                value = regs[places[0]]
                if recorder is not None:
                    recorder.leave()
                if not stack:
                    return value
                fn, pc, regs, shown = stack.pop()
                op = fn.ops[pc]
                depth -= not op.tail
                regs[op.dst] = value
                if instrument is not None:
                    instrument(op.function, op.symbol, False, value, *shown)
                pc += 1
    except BaseException as error:
        name_frames(error, [(fn, pc), *((e[0], e[1]) for e in reversed(stack))], max_depth)
        raise


def _registers(fn: LinkedFunction, args: Sequence[Any], account: Account | None) -> list[Any]:
    regs = fn.template.copy()
    if account is not None and account.counts_bytes:
        regs[fn.account] = account
    regs[: len(args)] = args
    return regs


def _skips(instrument: Callable[..., Any], op: Any, args: list[Any]) -> bool:
    """Ask the instrument before a call; True if the call is to be left out."""
    answer = instrument(op.function, op.symbol, True, None, *args)
    if answer is None or answer == VMInstrumentReturnKind.NO_OP:
        return False
    if answer == VMInstrumentReturnKind.SKIP_RUN:
        return True
    raise VMTypeError(
        f"instrument: wanted VMInstrumentReturnKind.NO_OP or SKIP_RUN, got {answer!r}"
    )
