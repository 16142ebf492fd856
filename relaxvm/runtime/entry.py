"""What a function called from Python need not do again where its arguments are as they should be.

The checks that a program begins with say what they demand of the parameters. Arguments that fit
need no conversion, and the function begins behind these checks; all others take the long way, which
converts them or says what is wrong. A result that cannot share memory with the program's constants
is given out as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .frame import escapes
from .link import LinkedFunction
from .ndarray import NDArray
from .ops import OpKind, Step
from .sinfo import TensorInfo

_GIVING = (OpKind.EXTERN, OpKind.FUNCTION, OpKind.INVOKE)


def checked_entry(fn: LinkedFunction) -> tuple[Callable[[Sequence[Any]], bool], tuple[Step, ...]]:
    """What says whether arguments need no conversion and pass the checks that `fn` begins with, and
    the steps of its first block without these. (It says no if parameters are no tensors.)
    """
    count, covered = fn.num_inputs, set()
    only_tensors = all(type(param) is TensorInfo for param in fn.info.params)
    wanted: list[Any] = [(None, -1, None)] * count
    for pc, op in enumerate(fn.ops):
        if op.kind != OpKind.BUILTIN or op.dst < count or op.calls:
            break
        demand = getattr(op.function, "demand", None)
        if demand is not None and op.args[0] < count and op.dst > fn.account:
            known = wanted[op.args[0]]
            merged = [old if new is None or new == -1 else new for old, new in zip(known, demand)]
            if all(old in (None, -1, new) for old, new in zip(known, merged)):
                wanted[op.args[0]] = tuple(merged)
                covered.add(pc)
    demands = tuple(wanted)

    def fits(args: Sequence[Any]) -> bool:
        if not only_tensors or len(args) != count:
            return False
        for value, (dtype, ndim, shape) in zip(args, demands):
            if type(value) is not NDArray or (dtype is not None and value.dtype is not dtype):
                return False
            array = value.array
            if shape is None:
                if ndim >= 0 and array.ndim != ndim:
                    return False
            elif array.shape != shape:
                return False
            if not array.flags.c_contiguous:
                return False
        return True

    return fits, fn.steps.block(0, covered)


def result_is_own(fn: LinkedFunction) -> bool:
    """Whether what `fn` returns shares no memory with constants of the program, and is made of what
    callers may see as it is.
    """
    returned, _, _ = escapes(fn.ops, fn.num_inputs)
    registers = fn.info.register_file_size
    if any(place < fn.num_inputs or place >= registers for place in returned):
        return False
    return not any(op.kind in _GIVING and op.dst in returned for op in fn.ops)
