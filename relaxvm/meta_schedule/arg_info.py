"""What a kernel was measured with: dtype and shape of each argument."""

from __future__ import annotations

from typing import Any

from ..base import ScheduleError, record, submodules
from ..ir import IntImm, IRModule
from ..tir import PrimFunc


class ArgInfo:
    """One argument of a kernel."""

    @staticmethod
    def from_prim_func(func: PrimFunc) -> list[TensorInfo]:
        """Those of a loop function. Raises ScheduleError for sizes that are not constant."""
        infos = []
        for param in func.params:
            buffer = func.buffer_map.get(param)
            if buffer is None or not all(isinstance(n, IntImm) for n in buffer.shape):
                raise ScheduleError(
                    f"a kernel is measured with tensors of constant sizes; its argument "
                    f"{param.name} is {'a scalar' if buffer is None else list(buffer.shape)}"
                )
            sizes = tuple(int(n.value) for n in buffer.shape if isinstance(n, IntImm))
            infos.append(TensorInfo(str(buffer.dtype), sizes))
        return infos

    @staticmethod
    def from_entry_func(mod: IRModule, remove_preproc: bool = True) -> list[TensorInfo]:
        """Those of the only loop function of a module, or the one called main."""
        return ArgInfo.from_prim_func(entry_of(mod))

    @staticmethod
    def from_json(json_obj: Any) -> TensorInfo:
        """What `as_json` gave."""
        return TensorInfo.from_json(json_obj)


@record
class TensorInfo(ArgInfo):
    """A tensor: its dtype, and its shape as integers."""

    dtype: str
    shape: tuple[int, ...]

    def as_json(self) -> list[Any]:
        """``["TENSOR", dtype, shape]``"""
        return ["TENSOR", self.dtype, list(self.shape)]

    @staticmethod
    def from_json(json_obj: Any) -> TensorInfo:
        """What `as_json` gave. Raises ScheduleError for anything else."""
        match json_obj:
            case ["TENSOR", str(dtype), [*shape]] if all(type(n) is int for n in shape):
                return TensorInfo(dtype, tuple(shape))
        raise ScheduleError(
            f'an argument is saved as ["TENSOR", dtype, [sizes]], got {str(json_obj)[:80]}'
        )


def entry_of(mod: Any) -> PrimFunc:
    """The loop function of a module that has one, or the one called main. Raises ScheduleError if
    that leaves a doubt.
    """
    if isinstance(mod, PrimFunc):
        return mod
    if not isinstance(mod, IRModule):
        raise ScheduleError(f"wanted a module with a loop function, got {type(mod).__name__}")
    loops = {gv.name_hint: fn for gv, fn in mod.items() if isinstance(fn, PrimFunc)}
    if len(loops) != 1 and "main" not in loops:
        listed = ", ".join(loops) or "none"
        raise ScheduleError(f"wanted a module with one loop function, or one called main: {listed}")
    return loops.get("main") or next(iter(loops.values()))


__getattr__ = submodules(__name__)
