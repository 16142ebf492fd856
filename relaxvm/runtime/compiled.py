"""Compiled functions, linked: what ``vm["main"]`` is in compiled mode.

The machine code reads everything it needs from the context, a table of 64-bit words that is filled
here by the names the compiler wrote down (`compiled_code`). What it cannot or need not do itself it
asks the helpers below to do: they are Python functions, called with ints and objects.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..base import DataType, LoadError, NamedTuple, to_numpy_dtype
from . import result_memory
from .builtin import VMClosure
from .check import as_condition
from .compiled_code import CompiledCode, CompiledInfo
from .compiled_frame import EXTRA, FrameLayout, NativeFrame, layout_plain
from .compiled_state import rebuild
from .device import cpu
from .frame import Frames, take_from_arena
from .frame_notes import name_frames, too_deep
from .interpreter import adopt, closure_call, run
from .kernel_function import call_path
from .link import LinkedFunction
from .native import LinkedKernels
from .ndarray import NDArray, ShapeTuple
from .ops import Step
from .outputs import Destination, Offer
from .pyabi import (
    BYTES_DATA,
    METH_FASTCALL,
    METH_KEYWORDS,
    address_of_data,
    compiled_problem,
    fast_path_problem,
    function_address,
    method_definition,
    new_builtin,
    numpy_address,
)
from .sequence import VMSequence

_MAX_FRAMES = 8
"""Frames kept per function; concurrent calls beyond have frames of their own, used once."""
_INT64_MAX = (1 << 63) - 1
_BUILTINS = (tuple, int, float, bool, bytes, str)
_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (*_BUILTINS, NDArray, np.ndarray, ShapeTuple, VMClosure, VMSequence, Offer)
}
_OBJECTS: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "cpu": cpu(0),
    "out": "out",
}


class CompiledFunction(NamedTuple):
    """One VM function in compiled mode.

    call    what to call it by: takes what the slow call takes. None if it is not compiled
    reason  why it is not, or ""
    steps   where each instruction runs and why not natively, as in `CompiledInfo`
    program what it is part of, None if nothing is compiled
    """

    call: Callable[..., Any] | None
    reason: str
    steps: tuple[tuple[int, str], ...] = ()
    program: CompiledProgram | None = None


def link_compiled(
    vm: Any,
    functions: Mapping[str, LinkedFunction],
    kernels: LinkedKernels | None,
    slow_calls: Mapping[str, Callable[..., Any]],
) -> dict[str, CompiledFunction]:
    """The functions of a program in compiled mode, by name.

    functions   the same functions as the interpreter runs them
    kernels     the linked object code, which the compiled functions are part of
    slow_calls  what takes a call that is not plain: ``slow(*args, out=None, **kwargs)``
    """
    code = None if kernels is None else kernels.compiled
    reason = "the executable has no compiled functions" if code is None else _problem()
    if reason or code is None or kernels is None:
        return dict.fromkeys(functions, CompiledFunction(None, reason or ""))
    return CompiledProgram(vm, functions, code, kernels, slow_calls).functions


def _problem() -> str | None:
    if call_path() == "generic":
        return "set_call_path('generic') was chosen when the machine was made"
    return fast_path_problem() or compiled_problem()


def _check_fits(code: CompiledCode, functions: Mapping[str, LinkedFunction]) -> None:
    """Raise LoadError unless `code` is of a program with these functions."""
    if [info.name for info in code.functions] != list(functions):
        raise LoadError("compiled functions: they are not those of the program")
    counts = [len(functions[info.name].ops) for info in code.functions]
    for info, count in zip(code.functions, counts):
        if len(info.steps) != count:
            raise LoadError(f"compiled functions: {info.name} has {count} instructions")
    for index, pc, _ in code.sites:
        if not 0 <= pc < counts[index]:
            raise LoadError("compiled functions: a site is at no instruction")


class CompiledProgram:
    """The context of one machine's compiled functions, and the helpers they call."""

    def __init__(
        self,
        vm: Any,
        functions: Mapping[str, LinkedFunction],
        code: CompiledCode,
        kernels: LinkedKernels,
        slow_calls: Mapping[str, Callable[..., Any]],
    ) -> None:
        self._vm = vm
        self._max_depth: int = vm.limits.max_depth
        _check_fits(code, functions)
        self._code = code
        self._owner = kernels.owner
        self._slow_calls = slow_calls
        self._linked = [functions[info.name] for info in code.functions]
        plans = [function.plan for function in self._linked]
        self._plans = plans
        self._layouts = [FrameLayout(plan) for plan in plans]
        self._frames: list[dict[int, NativeFrame]] = [{} for _ in self._linked]
        self._resumes: dict[tuple[int, int], tuple[Step, ...]] = {}
        self._pending: dict[tuple[int, int], tuple[BaseException, list[Any]]] = {}
        self._keep: list[Any] = []
        self._words = (ctypes.c_int64 * max(1, len(code.words)))()
        self._fill(kernels.num_threads)
        self.functions: dict[str, CompiledFunction] = {}
        for index, info in enumerate(code.functions):
            self.functions[info.name] = self._function(index, info)

    # -- the context -------------------------------------------------------------------------------

    def _fill(self, num_threads: int) -> None:
        deepest = min(self._max_depth, _INT64_MAX)
        settings = {
            "careful": 0,
            "max_depth": deepest,
            "threads": num_threads,
            "results": result_memory.table_address(),
        }
        helpers: dict[str, Callable[..., Any]] = {
            "adopt": adopt,
            "alloc": result_memory.make,
            "condition": as_condition,
            "drop": self._drop,
            "finish": self._finish,
            "frame": self._frame,
            "grow": self._grow,
            "interpret": self._interpret,
            "invoke": self._invoke,
            "leave": self._leave,
            "note": self._note,
            "own": self._vm._own,
        }
        fillers: dict[str, Callable[[str], int]] = {
            "free": lambda rest: 0,
            "again": lambda rest: result_memory.header_pair(),
            "py": function_address,
            "np": numpy_address,
            "type": lambda rest: id(_TYPES[rest]),
            "obj": lambda rest: id(_OBJECTS[rest]),
            "dtype": lambda rest: self._kept(DataType(rest)),
            "descr": lambda rest: self._kept(to_numpy_dtype(DataType(rest))),
            "arg": lambda rest: self._kept(self._operand(rest)),
            "data": self._data,
            "op": self._callee,
            "linked": lambda rest: self._kept(self._linked[int(rest)]),
            "call": lambda rest: self._kept(helpers[rest]),
            "slow": lambda rest: self._kept(self._slow_calls[self._linked[int(rest)].name]),
        }
        for i, name in enumerate(self._code.words):
            if name in settings:
                self._words[i] = settings[name]
                continue
            kind, _, rest = name.partition(":")
            try:
                self._words[i] = fillers[kind](rest)
            except (LookupError, AttributeError, TypeError, ValueError) as error:
                raise LoadError(
                    f"compiled functions: {name} means nothing here ({type(error).__name__}: "
                    f"{error}); build the executable again"
                ) from None

    def _kept(self, value: Any) -> int:
        """The address of an object, which lives as long as this."""
        self._keep.append(value)
        return id(value)

    def _operand(self, rest: str) -> Any:
        f, pc, k = map(int, rest.split(":"))
        linked = self._linked[f]
        return linked.template[linked.ops[pc].args[k]]

    def _callee(self, rest: str) -> int:
        f, pc = map(int, rest.split(":"))
        return self._kept(self._linked[f].ops[pc].function)

    def _data(self, rest: str) -> int:
        array = self._operand(rest).array
        self._kept(array)
        return address_of_data(array)

    def set_careful(self, careful: bool) -> None:
        """Make every call from now on take its slow call, or not."""
        self._words[self._code.words.index("careful")] = int(careful)

    # -- functions ---------------------------------------------------------------------------------

    def _function(self, index: int, info: CompiledInfo) -> CompiledFunction:
        linked = self._linked[index]
        reason = info.reason
        if not reason and layout_plain(self._plans[index]) != info.layout:
            reason = "it was compiled for memory that is prepared in another way"
        if reason:
            return CompiledFunction(None, reason)
        return CompiledFunction(self._entry(info, linked), "", info.steps, self)

    def _entry(self, info: CompiledInfo, linked: LinkedFunction) -> Callable[..., Any]:
        """A builtin function object around the entry."""
        address = self._owner.addresses[info.symbol]
        name, doc = linked.name.encode(), linked.info.signature().encode()
        texts = name + b"\0" + doc + b"\0"
        # The record is `self`: the context's address, the method definition, its texts.
        size = 8 + 32
        record = bytes(size) + texts
        start = id(record) + BYTES_DATA
        head = struct.pack("=q", ctypes.addressof(self._words)) + method_definition(
            start + size,
            address,
            METH_FASTCALL | METH_KEYWORDS,
            start + size + len(name) + 1,
        )
        ctypes.memmove(start, head, size)
        entry: Callable[..., Any] = new_builtin(start + 8, record, self)
        return entry

    # -- helpers the code calls --------------------------------------------------------------------

    def _leave(self, site: int, code: int, spill: int, frame: int, depth: int) -> Any:
        """Go on in the interpreter where the code left; `code` is the failure of a kernel."""
        index, pc, described = self._code.sites[site]
        linked = self._linked[index]
        native = self._frames[index][frame] if frame else None
        registers = rebuild(linked, native, described, spill)
        places: list[Any] = []
        try:
            if code:
                op = linked.ops[pc]
                places.append((linked, pc))
                op.function.raise_failure(code, [registers[i] for i in op.args])
            steps = self._steps_from(index, pc)
            return run(linked, (), self._max_depth, depth, (registers, steps), places)
        except BaseException as error:
            self._unwind(error, places, depth)
            raise
        finally:
            del registers
            if native is not None:
                native.refresh()

    def _steps_from(self, index: int, pc: int) -> tuple[Step, ...]:
        """The rest of the block of instruction `pc`."""
        steps = self._resumes.get((index, pc))
        if steps is None:
            steps = self._resumes[index, pc] = self._linked[index].steps.rest(pc)
        return steps

    def _note(self, where: int, depth: int, error: BaseException) -> None:
        self._unwind(error, [(self._linked[where >> 32], where & 0xFFFF_FFFF)], depth)

    def _unwind(self, error: BaseException, places: list[Any], depth: int) -> None:
        """Remember the frames of an error; name them on it when the outermost is left."""
        # No lock: a child of `fork` would find it taken for ever. Threads may raise one object.
        key = (threading.get_ident(), id(error))
        _, known = self._pending.pop(key, (error, []))
        known += places
        if depth:
            self._pending[key] = (error, known)
        else:
            name_frames(error, known, self._max_depth)

    def _interpret(self, depth: int, callee: LinkedFunction, *args: Any) -> Any:
        """Call a VM function in the interpreter, from a frame that is `depth` deep."""
        if depth >= self._max_depth:
            raise too_deep(callee, self._max_depth)
        places: list[Any] = []
        try:
            return run(callee, args, self._max_depth, depth + 1, None, places)
        except BaseException as error:
            # The caller's note follows.
            self._unwind(error, places, depth + 1)
            raise

    def _invoke(self, depth: int, closure: Any, args: Any) -> Any:
        callee, operands = closure_call(closure, args)
        if type(callee) is LinkedFunction:
            return self._interpret(depth, callee, *operands)
        return adopt(callee(*operands))

    def _frame(self, index: int) -> int:
        """The address of a new frame of a function."""
        frames = self._linked[index].frames
        assert type(frames) is Frames
        frame = NativeFrame(frames, self._plans[index], self._layouts[index])
        alive = self._frames[index]
        frame.words[EXTRA] = int(len(alive) >= _MAX_FRAMES)
        alive[frame.address] = frame
        return frame.address

    def _drop(self, index: int, address: int) -> None:
        del self._frames[index][address]

    def _grow(self, index: int, address: int, pc: int, size: int) -> None:
        frame = self._frames[index][address]
        take_from_arena(frame.arena(pc), size)
        frame.refresh()

    @staticmethod
    def _finish(value: Any, out: Any, linked: LinkedFunction) -> Any:
        return Destination(linked.info, out).write(value)
