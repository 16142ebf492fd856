"""The virtual machine: an executable, linked, with its functions ready to be called.

Loading into a VM resolves every callee once; functions registered later do not change it. One VM
may be called from many threads at once: all that a call changes lives in its own frames.
(`set_input` and its friends keep one set of inputs and outputs per function and VM, as TVM's do.)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base import VMTypeError, VMValueError
from . import native
from .arguments import Converter, as_value, bind_arguments, converters_of
from .builtin import VMClosure
from .device import Device, cpu
from .fileformat import pieces, read, write_atomically
from .interpreter import VMInstrumentReturnKind, run, run_carefully
from .limits import MAX_DEPTH, Account, Limits
from .link import LinkedFunction, link_program
from .memory_plan import MemoryGuard
from .ndarray import NDArray, wrap_unchecked
from .nested import map_leaves
from .profile import ProfileReport, Recorder
from .program import Program
from .registry import get_global_func, nearest_names
from .threads import check_num_threads
from .timing import BenchmarkResult
from .timing import time_evaluator as make_evaluator
from .verify import verify_program

__all__ = ["VMInstrumentReturnKind", "VMModule", "VirtualMachine"]


class VirtualMachine:
    """Runs the functions of an executable: ``vm["main"](x)``.

    rt_mod      an Executable, a path or bytes of one, or the `mod` of one
    device      where it runs: cpu()
    memory_cfg  "pooled" (default: memory of intermediate tensors is reused from call to call) or
                "naive"
    trust       for a path or bytes, as in `load`
    functions   the externs the program may call, by name; None grants the whole registry
    max_...     limits of one call, see `Limits`
    memory_limit_bytes  what one call may allocate, by the memory plan of the function called:
                checked before anything of it runs. A function whose plan is not known beforehand
                is watched while it runs. With symbolic sizes no memory is kept between calls.
    num_threads  most threads of a parallel loop in its kernels; None: `threads.pool_size()`
    profile     accepted as TVM does; `profile` works without it

    Raises LinkError listing every extern that is missing.
    """

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    def __init__(
        self,
        rt_mod: Program | VMModule | str | os.PathLike[str] | bytes,
        device: Device | Sequence[Device] | None = None,
        memory_cfg: object = None,
        profile: bool = False,
        *,
        trust: str | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        exec_mode: str = "bytecode",
        max_instructions: int | None = None,
        max_bytes: int | None = None,
        max_depth: int = MAX_DEPTH,
        max_seconds: float | None = None,
        memory_limit_bytes: int | None = None,
        num_threads: int | None = None,
    ) -> None:
        self.device = _the_device(device)
        self.executable = _the_program(rt_mod, trust)
        self.limits = Limits(max_instructions, max_bytes, max_depth, max_seconds)
        if exec_mode != "bytecode":
            raise VMValueError(f"exec_mode: wanted 'bytecode', got {exec_mode!r}")
        if not isinstance(profile, bool):
            raise VMTypeError(f"profile: wanted a bool, got {type(profile).__name__}")
        reuse_memory = _reuses_memory(memory_cfg)
        self._memory: MemoryGuard | None = None
        if memory_limit_bytes is not None:
            self._memory = MemoryGuard(self.executable, memory_limit_bytes, self.limits)
            reuse_memory = reuse_memory and self._memory.fits_if_kept
        if functions is not None and not isinstance(functions, Mapping):
            raise VMTypeError(
                f"functions: wanted a mapping of names to callables, got {type(functions).__name__}"
            )
        threads = check_num_threads(num_threads, "VirtualMachine: num_threads")
        section = self.executable.kernels
        self.kernels: native.LinkedKernels | None = None
        if section is not None and section.infos:
            self.kernels = native.link(section, self.executable.trusted, threads)
        self._functions = link_program(
            self, self.executable, self.kernels or {}, functions, reuse_memory
        )
        self._constant_roots = frozenset(
            id(_root(value._array)) for value in self.executable.constants if type(value) is NDArray
        )
        self._calls: dict[str, Callable[..., Any]] = {}
        self._converters: dict[str, tuple[Converter, ...]] = {}
        self._instrument: Callable[..., Any] | None = None
        self._careful = self.limits.counted or self._memory is not None
        self._lock = threading.Lock()
        self._inputs: dict[str, tuple[Any, ...]] = {}
        self._outputs: dict[str, Any] = {}

    # Calling

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The function `name`. Raises VMValueError listing those that exist."""
        call = self._calls.get(name)
        if call is None:
            call = self._make_call(self._linked(name))
            with self._lock:
                call = self._calls.setdefault(name, call)
        return call

    def __contains__(self, name: object) -> bool:
        return name in self._functions or name in self._calls

    @property
    def function_names(self) -> tuple[str, ...]:
        """The functions that can be called, saved ones included."""
        return tuple(dict.fromkeys([*self._functions, *self._calls]))

    @property
    def kernel_source(self) -> str:
        """Where the kernels came from: "native" (code in the file), "rebuilt", or "none"."""
        return "none" if self.kernels is None else self.kernels.source

    @property
    def module(self) -> VMModule:
        """TVM's view of the VM as a module."""
        return VMModule(self)

    def _linked(self, name: str) -> LinkedFunction:
        found = self._functions.get(name) if isinstance(name, str) else None
        if found is None:
            names = list(self.function_names)
            raise VMValueError(
                f"no function {name!r} in this program{nearest_names(name, names)}; "
                f"it has: {', '.join(names) or 'none'}"
            )
        return found

    def _make_call(self, fn: LinkedFunction) -> Callable[..., Any]:
        info, count, max_depth = fn.info, fn.num_inputs, self.limits.max_depth
        converters = self._converters[fn.name] = converters_of(info)

        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs or len(args) != count:
                args = bind_arguments(info, args, kwargs)
            given = [convert(value) for convert, value in zip(converters, args)]
            if self._careful:
                return self._own(self._run_carefully(fn, given))
            return self._own(run(fn, given, max_depth))

        call.__name__ = call.__qualname__ = fn.name
        call.__doc__ = info.signature()
        return call

    def _run_carefully(self, fn: LinkedFunction, given: Sequence[Any]) -> Any:
        limits, instrument = self.limits, self._instrument
        if self._memory is not None:
            limits = self._memory.admit(fn.info, given)
        if not limits.counted and instrument is None:
            return run(fn, given, limits.max_depth)
        account = Account(limits) if limits.counted else None
        return run_carefully(fn, given, limits.max_depth, account, instrument)

    def _own(self, value: Any) -> Any:
        """A result that shares no memory with the program's constants."""
        if type(value) is NDArray:
            if id(_root(value._array)) in self._constant_roots:
                return wrap_unchecked(value._array.copy(), value.dtype, value.device)
            return value
        return map_leaves(value, self._own) if type(value) is tuple else value

    def invoke_closure(self, closure: VMClosure, *args: Any) -> Any:
        """Call a closure that a function of the program returned."""
        if type(closure) is not VMClosure:
            raise VMTypeError(f"invoke_closure: wanted a closure, got {type(closure).__name__}")
        fn = closure.function
        if type(fn) is not LinkedFunction:
            return closure(*args)
        free = fn.num_inputs - len(closure.captured)
        if len(args) != free:
            raise VMTypeError(
                f"invoke_closure: {fn.info.signature()} with {len(closure.captured)} captured "
                "takes "
                f"{free} arguments, got {len(args)}"
            )
        given = [as_value(value, f"{fn.name}: argument {i}") for i, value in enumerate(args)]
        given += closure.captured
        vm: VirtualMachine = fn.vm
        if vm._careful:
            return vm._own(vm._run_carefully(fn, given))
        return vm._own(run(fn, given, vm.limits.max_depth))

    # TVM's stateful interface

    def save_function(
        self,
        func_name: str,
        saved_name: str,
        *args: Any,
        include_return: bool = True,
        **kwargs: Any,
    ) -> None:
        """Make ``vm[saved_name]()`` call `func_name` on these arguments, converted once, now.

        include_return  False makes it return None. Raises VMValueError if `saved_name` is taken.
        """
        if not isinstance(saved_name, str):
            raise VMTypeError(
                f"save_function: wanted a name to save as, got {type(saved_name).__name__}"
            )
        fn, given = self._bound(func_name, args, kwargs)
        max_depth = self.limits.max_depth

        def call(*more: Any, **named: Any) -> Any:
            if more or named:
                raise VMTypeError(
                    f"{saved_name}: wanted no arguments, got {len(more) + len(named)}: it keeps "
                    f"those that save_function gave {func_name}"
                )
            result = self._run_carefully(fn, given) if self._careful else run(fn, given, max_depth)
            return self._own(result) if include_return else None

        call.__name__ = call.__qualname__ = saved_name
        with self._lock:
            if saved_name in self._functions or saved_name in self._calls:
                raise VMValueError(f"save_function: {saved_name!r} is a function already")
            self._calls[saved_name] = call

    def _bound(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[LinkedFunction, tuple[Any, ...]]:
        """The function and its converted arguments."""
        fn = self._linked(name)
        if name not in self._converters:
            self._converters[name] = converters_of(fn.info)
        bound = bind_arguments(fn.info, args, kwargs)
        return fn, tuple([c(value) for c, value in zip(self._converters[name], bound)])

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep the arguments for `invoke_stateful`. A second call replaces them."""
        _, given = self._bound(func_name, args, kwargs)
        with self._lock:
            self._inputs[func_name] = given

    def invoke_stateful(self, func_name: str) -> None:
        """Call `func_name` on the arguments of `set_input`; `get_outputs` gives the result."""
        fn = self._linked(func_name)
        given = self._inputs.get(func_name)
        if given is None:
            if fn.num_inputs:
                raise VMValueError(
                    f"{func_name}: no inputs are set; call vm.set_input({func_name!r}, ...)"
                )
            given = ()
        careful = self._careful
        result = (
            self._run_carefully(fn, given) if careful else run(fn, given, self.limits.max_depth)
        )
        result = self._own(result)
        with self._lock:
            self._outputs[func_name] = result

    def get_outputs(self, func_name: str) -> Any:
        """What the last `invoke_stateful` of the function gave: a value, or a nested tuple of
        values.
        """
        self._linked(func_name)
        if func_name not in self._outputs:
            raise VMValueError(
                f"{func_name}: no outputs yet; call vm.invoke_stateful({func_name!r})"
            )
        return self._outputs[func_name]

    # Watching

    def set_instrument(self, instrument: Callable[..., Any] | str | None) -> None:
        """Call ``instrument(func, func_symbol, before_run, ret_value, *args)`` around every call
        instruction.

        A `VMInstrumentReturnKind.SKIP_RUN` answered before the call leaves it out. None ends it.
        Slows runs down.
        """
        if isinstance(instrument, str):
            instrument = get_global_func(instrument)
        if instrument is not None and not callable(instrument):
            raise VMTypeError(f"set_instrument: wanted a function, got {type(instrument).__name__}")
        self._instrument = instrument
        watched = self.limits.counted or self._memory is not None
        self._careful = watched or instrument is not None

    def profile(self, func_name: str, *args: Any, **kwargs: Any) -> ProfileReport:
        """Run `func_name` once, instruction by instruction with a clock, and report where the time
        went.

        `report.result` is what the function returned.
        """
        fn, given = self._bound(func_name, args, kwargs)
        limits = self.limits if self._memory is None else self._memory.admit(fn.info, given)
        account = Account(limits) if limits.counted else None
        recorder = Recorder(self.executable)
        value = run_carefully(fn, given, limits.max_depth, account, self._instrument, recorder)
        return recorder.report(fn.name, self._own(value))

    def time_evaluator(
        self,
        func_name: str,
        dev: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
        limit_zero_time_iterations: int = 100,
    ) -> Callable[..., BenchmarkResult]:
        """A function that takes the arguments of `func_name` and measures seconds per call."""
        if f_preproc:
            raise VMValueError(
                "time_evaluator: f_preproc is not supported; prepare before the call"
            )
        return make_evaluator(
            self[func_name],
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
            limit_zero_time_iterations=limit_zero_time_iterations,
        )

    def __repr__(self) -> str:
        names = ", ".join(self.function_names)
        return f"<VirtualMachine on {self.device}: {names}; kernels {self.kernel_source}>"


class VMModule:
    """A VM seen as TVM's module: ``mod["main"]``, ``mod.get_function``, ``mod.time_evaluator``."""

    __slots__ = ("vm",)

    type_key = "relax.VirtualMachine"
    imported_modules: tuple[object, ...] = ()

    def __init__(self, vm: VirtualMachine) -> None:
        self.vm = vm

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.get_function(name)

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """The function `name`, or one of the VM's own (``set_input``, ``invoke_stateful``,
        ``get_output`` ...).
        """
        if name in self.vm:
            return self.vm[name]
        own = _VM_FUNCTIONS.get(name)
        return self.vm[name] if own is None else getattr(self.vm, own)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether the program has a function `name`."""
        return name in self.vm

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, **options: Any
    ) -> Callable[..., BenchmarkResult]:
        """See `VirtualMachine.time_evaluator`."""
        return self.vm.time_evaluator(func_name, dev, **options)

    def export_library(self, path: str | os.PathLike[str]) -> None:
        """Write the executable to `path`."""
        write_atomically(path, pieces(self.vm.executable))

    def __repr__(self) -> str:
        return f"<Module of {self.vm!r}>"


_VM_FUNCTIONS = {
    "profile": "profile",
    "set_input": "set_input",
    "invoke_stateful": "invoke_stateful",
    "get_output": "get_outputs",
    "get_outputs": "get_outputs",
    "save_function": "save_function",
    "invoke_closure": "invoke_closure",
    "set_instrument": "set_instrument",
}


def _root(array: np.ndarray) -> np.ndarray:
    """The array that owns the memory of `array`."""
    base = array.base
    while type(base) is np.ndarray:
        array = base
        base = array.base
    return array


def _the_device(device: Any) -> Device:
    devices = device if isinstance(device, (list, tuple)) else [cpu() if device is None else device]
    for given in devices:
        if not isinstance(given, Device):
            raise VMTypeError(f"device: wanted a Device such as cpu(), got {type(given).__name__}")
    if not devices:
        raise VMValueError("device: wanted at least one Device")
    first: Device = devices[0]
    return first


def _the_program(rt_mod: object, trust: str | None) -> Program:
    if isinstance(rt_mod, VMModule):
        rt_mod = rt_mod.vm.executable
    if isinstance(rt_mod, Program):
        if trust not in (None, "native", "portable"):
            raise VMValueError(f"trust: wanted None, 'native' or 'portable', got {trust!r}")
        verify_program(rt_mod)
        if trust is None or rt_mod.trusted == (trust == "native"):
            return rt_mod
        return rt_mod.with_trust(trust == "native")
    if isinstance(rt_mod, (str, os.PathLike, bytes, bytearray, memoryview)):
        return read(rt_mod, trust, False, Program)  # type: ignore[arg-type]
    raise VMTypeError(
        f"VirtualMachine: wanted an Executable, a path or bytes, got {type(rt_mod).__name__}"
    )


def _reuses_memory(memory_cfg: object) -> bool:
    """Whether any device is to use pooled memory, in TVM's forms: a name, or names by device."""
    if memory_cfg is None:
        return True
    chosen = list(memory_cfg.values()) if isinstance(memory_cfg, dict) else [memory_cfg]
    for name in chosen:
        if name not in ("naive", "pooled"):
            raise VMValueError(f"memory_cfg: wanted 'naive' or 'pooled', got {name!r}")
    return "pooled" in chosen
