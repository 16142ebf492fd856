"""What a function called from Python need not do again where its arguments are as they should be.

The checks that a program begins with say what they demand of the parameters. Arguments that fit
are taken as they are, and the function begins behind these checks; all others take the long way,
which converts them or says what is wrong. A result that cannot share memory with the program's
constants is given out as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy import ndarray

from .frame import escapes
from .link import LinkedFunction
from .ndarray import NDArray, wrap_unchecked
from .ops import OpKind, Step
from .sinfo import TensorInfo
from .storage import PLAIN_DTYPES

Ready = Callable[[Sequence[Any]], Sequence[Any] | None]

_GIVING = (OpKind.EXTERN, OpKind.FUNCTION, OpKind.INVOKE)


def checked_entry(fn: LinkedFunction) -> tuple[Ready, tuple[Step, ...]]:
    """What gives arguments as programs see them, if they are NDArrays or numpy arrays without gaps
    that pass the checks that `fn` begins with, else None; and the steps of its first block without
    these checks. (It gives None if parameters are no tensors.)
    """
    count, covered = fn.num_inputs, set()
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
    stored = dict(PLAIN_DTYPES.values())
    demands = [(i, dtype, stored.get(dtype), *rest) for i, (dtype, *rest) in enumerate(wanted)]

    def ready(args: Sequence[Any]) -> Sequence[Any] | None:
        if len(args) != count:
            return None
        values: Any = args
        for value, (i, dtype, storage, ndim, shape) in zip(args, demands):
            if type(value) is NDArray and (value.dtype is dtype or dtype is None):
                array = value.array
                if not array.flags.c_contiguous:
                    return None
            elif type(value) is ndarray and value.dtype is storage and value.flags.carray:
                # A view: whoever holds the array may change its shape in place.
                array = value.view()
                values = [*args] if values is args else values
                values[i] = wrap_unchecked(array, dtype)
            else:
                return None
            if shape is None:
                if ndim >= 0 and array.ndim != ndim:
                    return None
            elif array.shape != shape:
                return None
        return values

    only_tensors = all(type(param) is TensorInfo for param in fn.info.params)
    return ready if only_tensors else never_ready, fn.steps.block(0, covered)


def never_ready(args: Sequence[Any]) -> Sequence[Any] | None:
    """Stands for what `checked_entry` gives where all arguments take the long way."""
    return None


def result_is_own(fn: LinkedFunction) -> bool:
    """Whether what `fn` returns shares no memory with constants of the program, and is made of what
    callers may see as it is.
    """
    returned, _, _ = escapes(fn.ops, fn.num_inputs)
    registers = fn.info.register_file_size
    if any(place < fn.num_inputs or place >= registers for place in returned):
        return False
    return not any(op.kind in _GIVING and op.dst in returned for op in fn.ops)
