"""The virtual machine: an executable, linked, with its functions ready to be called.

Loading into a VM resolves every callee once; functions registered later do not change it. One VM
may be called from many threads at once: all that a call changes lives in its own frames.
(`set_input` and its friends keep one set of inputs and outputs per function and VM, as TVM's do.)
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base import (
    Deferred,
    LinkError,
    LoadError,
    VMTypeError,
    VMValueError,
    submodules,
)
from . import native
from .arguments import Converter, as_value, converters_of
from .binding import bind_by_name
from .builtin import VMClosure
from .compiled import CompiledFunction, link_compiled
from .device import Device
from .donation import taken
from .entry import checked_entry, never_ready, result_is_own
from .interpreter import VMInstrumentReturnKind as VMInstrumentReturnKind
from .interpreter import run, run_carefully
from .kernel import KernelSection
from .kernel_function import call_path
from .limits import MAX_DEPTH, Account, Limits
from .link import LinkedFunction, link_program
from .ndarray import NDArray, root_of, wrap_unchecked
from .nested import map_leaves
from .outputs import Destination, taken_destination
from .program import Program
from .pyabi import fast_path_problem
from .registry import get_global_func, nearest_names
from .sequence import VMSequence
from .threads import check_num_threads
from .vm_module import VMModule as VMModule
from .vm_options import reuses_memory, the_device, the_program

if TYPE_CHECKING:
    from . import explain, memory_plan, profile, timing
    from .explain import Explanation
    from .memory_plan import MemoryGuard
    from .profile import ProfileReport
    from .timing import BenchmarkResult
else:
    explain = Deferred("relaxvm.runtime.explain")
    memory_plan = Deferred("relaxvm.runtime.memory_plan")
    profile = Deferred("relaxvm.runtime.profile")
    timing = Deferred("relaxvm.runtime.timing")


class VirtualMachine:
    """Runs the functions of an executable: ``vm["main"](x)``, by position or by name.

    A function takes arrays of any kind (NDArray, numpy, DLPack producers such as torch tensors,
    buffers; those with gaps are copied), Python and numpy numbers for scalars, tuples or lists of
    ints for shapes, tuples or lists for tuples. What does not fit raises VMTypeError or
    VMValueError naming function, parameter, wanted and got. With ``out=y`` the result is written
    into the array `y` (for a tuple: a tuple of arrays, None for those that are to be new) and `y`
    is returned; `y` may share memory with an argument.

    rt_mod      an Executable, a path or bytes of one, or the `mod` of one
    device      where it runs: cpu()
    memory_cfg  "pooled" (default: memory of intermediate tensors is reused from call to call) or
                "naive"
    trust       for a path or bytes, as in `load`
    functions   the externs the program may call, by name; None grants the whole registry
    exec_mode   "compiled": functions run as machine code where that is possible, `explain` says
                where and why; "bytecode": the interpreter runs them; None: as they were built
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
        exec_mode: str | None = None,
        max_instructions: int | None = None,
        max_bytes: int | None = None,
        max_depth: int = MAX_DEPTH,
        max_seconds: float | None = None,
        memory_limit_bytes: int | None = None,
        num_threads: int | None = None,
    ) -> None:
        self.device = the_device(device)
        self.executable = the_program(rt_mod, trust)
        self.limits = Limits(max_instructions, max_bytes, max_depth, max_seconds)
        self._interpreted = self._why_interpreted(exec_mode, memory_cfg)
        if not isinstance(profile, bool):
            raise VMTypeError(f"profile: wanted a bool, got {type(profile).__name__}")
        reuse_memory = reuses_memory(memory_cfg)
        self._memory: MemoryGuard | None = None
        if memory_limit_bytes is not None:
            self._memory = memory_plan.MemoryGuard(self.executable, memory_limit_bytes, self.limits)
            reuse_memory = reuse_memory and self._memory.fits_if_kept
        if functions is not None and not isinstance(functions, Mapping):
            raise VMTypeError(
                f"functions: wanted a mapping of names to callables, got {type(functions).__name__}"
            )
        threads = check_num_threads(num_threads, "VirtualMachine: num_threads")
        self._careful = self.limits.counted or self._memory is not None
        self.kernels = self._link_kernels(exec_mode, threads)
        self._functions = link_program(
            self, self.executable, self.kernels or {}, functions, reuse_memory
        )
        self._constant_roots = frozenset(
            id(root_of(value.array))
            for value in self.executable.constants
            if type(value) is NDArray
        )
        self._calls: dict[str, Callable[..., Any]] = {}
        self._compiled: dict[str, CompiledFunction] = {}
        self._converters: dict[str, tuple[Converter, ...]] = {}
        self._instrument: Callable[..., Any] | None = None
        if not self._interpreted and not self._careful:
            slow_calls = {name: self._make_call(fn) for name, fn in self._functions.items()}
            self._compiled = link_compiled(self, self._functions, self.kernels, slow_calls)
        self._native = {n: f.call for n, f in self._compiled.items() if f.call is not None}
        self._inputs: dict[str, tuple[Any, ...]] = {}
        self._destinations: dict[str, Destination] = {}
        self._outputs: dict[str, Any] = {}

    # Calling

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The function `name`. Raises VMValueError listing those that exist."""
        try:
            call = self._calls.get(name)
        except TypeError:
            # A list, say, is no key at all.
            call = None
        if call is None:
            fn = self._linked(name)
            native = None if fn.info.donated else self._native.get(name)
            call = native or self._make_call(fn, donating=bool(fn.info.donated))
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
        fn = self._functions.get(name) if isinstance(name, str) else None
        if fn is None:
            names = list(self.function_names)
            shown = repr(name) if isinstance(name, str) else reprlib.repr(name)
            raise VMValueError(
                f"no function {shown} in this program{nearest_names(name, names)}; "
                f"it has: {', '.join(names) or 'none'}"
            )
        return fn

    def _make_call(self, fn: LinkedFunction, donating: bool = False) -> Callable[..., Any]:
        """What takes any call of `fn`: the only one for the interpreter, and for machine code the
        one that takes what its entry does not. `donating`: it takes donated arguments away first.
        """
        info, count, max_depth = fn.info, fn.num_inputs, self.limits.max_depth
        converters = self._converters[fn.name] = converters_of(info)
        quick = self._interpreted and not donating
        ready, begin = checked_entry(fn) if quick else (never_ready, None)
        own = None if result_is_own(fn) else self._own

        def call(*args: Any, **kwargs: Any) -> Any:
            plain = None if kwargs or self._careful else ready(args)
            if plain is not None:
                value = run(fn, plain, max_depth, 0, None, None, begin)
                return value if own is None else own(value)
            destination = taken_destination(info, kwargs) if kwargs else None
            bound = args
            if kwargs or len(args) != count:
                bound = bind_by_name(info.name, info.param_names, info.signature, args, kwargs)
            values: Sequence[Any] = [convert(value) for convert, value in zip(converters, bound)]
            values = taken(info, bound, values) if donating else values
            native = self._native.get(fn.name)
            if self._careful:
                value = self._own(self._run_carefully(fn, values))
            elif native is not None and destination is not None:
                return destination.filled_by(native, values)
            elif native is not None and (donating or _differ(values, args)):
                value = native(*values)
            else:
                # Machine code comes here with what it refused: the interpreter says why.
                at_once = None if ready(values) is None else begin
                value = run(fn, values, max_depth, begin=at_once)
                value = value if own is None else own(value)
            return value if destination is None else destination.write(value)

        call.__name__ = call.__qualname__ = fn.name
        call.__doc__ = info.signature()
        return call

    def _run(self, fn: LinkedFunction, values: Sequence[Any], into: Destination | None) -> Any:
        """Run on converted arguments; the result shares no memory with the program."""
        native = self._native.get(fn.name)
        values = taken(fn.info, values, values)
        if self._careful:
            value = self._own(self._run_carefully(fn, values))
        elif native is not None:
            return native(*values) if into is None else into.filled_by(native, values)
        else:
            value = self._own(run(fn, values, self.limits.max_depth))
        return value if into is None else into.write(value)

    def _run_carefully(self, fn: LinkedFunction, values: Sequence[Any]) -> Any:
        limits, instrument = self.limits, self._instrument
        if self._memory is not None:
            limits = self._memory.admit(fn.info, values)
        if not limits.counted and instrument is None:
            return run(fn, values, limits.max_depth)
        account = Account(limits) if limits.counted else None
        return run_carefully(fn, values, limits.max_depth, account, instrument)

    def _own(self, value: Any) -> Any:
        """A result that shares no memory with the program's constants; of a sequence, a list."""
        if type(value) is NDArray:
            if id(root_of(value.array)) in self._constant_roots:
                return wrap_unchecked(value.array.copy(), value.dtype, value.device)
            return value
        if type(value) is VMSequence:
            return [self._own(item) for item in value]
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
                f"takes {free} arguments, got {len(args)}"
            )
        values = [as_value(value, f"{fn.name}: argument {i}") for i, value in enumerate(args)]
        values += closure.captured
        vm: VirtualMachine = fn.vm
        return vm._run(fn, values, None)

    # Two ways to run

    def _link_kernels(self, exec_mode: str | None, threads: int) -> native.LinkedKernels | None:
        """The machine code of the kernels and, for compiled mode, of the functions."""
        program = self.executable
        section = program.kernels or KernelSection((), b"", ())
        compiled = not self._interpreted and not self._careful
        wanted = compiled and exec_mode == "compiled"
        if not section.infos and not wanted and not (compiled and section.native):
            return None
        try:
            return native.link(
                section, program.trusted, threads, program if compiled else None, wanted
            )
        except (LinkError, LoadError) as error:
            if section.infos:
                raise
            # Without kernels the interpreter needs no machine code.
            self._interpreted = f"there is no machine code for it: {error}"
            return None

    def _why_interpreted(self, exec_mode: str | None, memory_cfg: object) -> str:
        """Why the interpreter runs all functions of this VM, "" if it need not."""
        if exec_mode not in (None, "compiled", "bytecode"):
            raise VMValueError(
                f"exec_mode: wanted 'compiled', 'bytecode' or None, got {exec_mode!r}"
            )
        if exec_mode == "bytecode":
            return "exec_mode='bytecode' was chosen"
        if not reuses_memory(memory_cfg):
            return f"memory_cfg={memory_cfg!r} was chosen"
        if call_path() == "generic":
            return "set_call_path('generic') was in force when the VM was made"
        problem = fast_path_problem()
        return "" if problem is None else f"machine code cannot be entered here: {problem}"

    def _why_careful(self) -> str:
        """Why every instruction has to be looked at, "" if none has to."""
        names = ("max_instructions", "max_bytes", "max_seconds")
        watched = ((name, getattr(self.limits, name)) for name in names)
        reasons = [f"{name}={value} is watched" for name, value in watched if value is not None]
        if self._memory is not None:
            reasons.append("memory_limit_bytes is watched")
        if self._instrument is not None:
            reasons.append("an instrument is set")
        return "; ".join(reasons)

    def explain(self, func_name: str) -> Explanation:
        """What runs where in a function, by instruction, and why; printing it gives a table.

        It is about a call made now: an instrument or limits make the interpreter run everything.
        """
        fn = self._linked(func_name)
        known = self._compiled.get(func_name) or CompiledFunction(None, "")
        reason = self._why_careful() or self._interpreted or known.reason
        return explain.explain_function(fn, reason, known.steps)

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

        With ``out=``, each call writes there. include_return=False makes it return None. Raises
        VMValueError if `saved_name` is taken.
        """
        if not isinstance(saved_name, str):
            raise VMTypeError(
                f"save_function: wanted a name to save as, got {type(saved_name).__name__}"
            )
        fn = self._linked(func_name)
        destination = taken_destination(fn.info, kwargs)
        values = self._bound(fn, args, kwargs)

        def call(*more: Any, **named: Any) -> Any:
            if more or named:
                raise VMTypeError(
                    f"{saved_name}: wanted no arguments, got {len(more) + len(named)}: it keeps "
                    f"those that save_function gave {func_name}"
                )
            result = self._run(fn, values, destination)
            return result if include_return else None

        call.__name__ = call.__qualname__ = saved_name
        taken = saved_name in self._functions
        if taken or self._calls.setdefault(saved_name, call) is not call:
            raise VMValueError(f"save_function: {saved_name!r} is a function already")

    def _bound(
        self, fn: LinkedFunction, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """The arguments of a call, converted."""
        converters = self._converters.get(fn.name)
        if converters is None:
            converters = self._converters[fn.name] = converters_of(fn.info)
        info = fn.info
        bound = bind_by_name(info.name, info.param_names, info.signature, args, kwargs)
        return tuple([convert(value) for convert, value in zip(converters, bound)])

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep the arguments for `invoke_stateful`. A second call replaces them."""
        self._inputs[func_name] = self._bound(self._linked(func_name), args, kwargs)

    def set_output(self, func_name: str, out: object) -> None:
        """Make `invoke_stateful` write the result into `out`: an array, or a nested tuple of them
        as for ``vm[func_name](..., out=out)``. None: results are new again.

        Raises VMTypeError or VMValueError for what cannot take the result.
        """
        info = self._linked(func_name).info
        if out is None:
            self._destinations.pop(func_name, None)
        else:
            self._destinations[func_name] = Destination(info, out)

    def invoke_stateful(self, func_name: str) -> None:
        """Call `func_name` on the arguments of `set_input`; `get_outputs` gives the result, which
        is written where `set_output` said.
        """
        fn = self._linked(func_name)
        if fn.num_inputs and func_name not in self._inputs:
            raise VMValueError(
                f"{func_name}: no inputs are set; call vm.set_input({func_name!r}, ...)"
            )
        values, into = self._inputs.get(func_name, ()), self._destinations.get(func_name)
        self._outputs[func_name] = self._run(fn, values, into)

    def get_outputs(self, func_name: str = "main") -> Any:
        """What the last `invoke_stateful` of the function gave: a value, or a nested tuple of
        values.
        """
        self._linked(func_name)
        if func_name not in self._outputs:
            raise VMValueError(
                f"{func_name}: no outputs yet; call vm.invoke_stateful({func_name!r})"
            )
        return self._outputs[func_name]

    # Names that Relay's programs know

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call `func_name` on these arguments; without any, on those of `set_input`."""
        if args or kwargs or func_name not in self._inputs:
            return self[func_name](*args, **kwargs)
        self.invoke_stateful(func_name)
        return self.get_outputs(func_name)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``main``; see `invoke`."""
        return self.invoke("main", *args, **kwargs)

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """The place of a parameter. Raises VMValueError listing those that exist."""
        names = self.executable.function(func_name).param_names
        if input_name not in names:
            raise VMValueError(
                f"{func_name} has no parameter {input_name!r}; it has: {', '.join(names) or 'none'}"
            )
        return names.index(input_name)

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
        self._careful = bool(self._why_careful())
        for program in {f.program for f in self._compiled.values() if f.program is not None}:
            program.set_careful(self._careful)

    def profile(self, func_name: str, *args: Any, **kwargs: Any) -> ProfileReport:
        """Run `func_name` once, instruction by instruction with a clock, and report where the time
        went.

        `report.result` is what the function returned.
        """
        fn = self._linked(func_name)
        destination = taken_destination(fn.info, kwargs)
        bound = self._bound(fn, args, kwargs)
        limits = self.limits if self._memory is None else self._memory.admit(fn.info, bound)
        values = taken(fn.info, bound, bound)
        account = Account(limits) if limits.counted else None
        recorder = profile.Recorder(self.executable)
        value = run_carefully(fn, values, limits.max_depth, account, self._instrument, recorder)
        value = self._own(value) if destination is None else destination.write(value)
        return recorder.report(fn.name, value)

    def time_evaluator(
        self,
        func_name: str,
        dev: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        *,
        f_preproc: str = "",
        **options: int,
    ) -> Callable[..., BenchmarkResult]:
        """A function that takes the arguments of `func_name` (none, for a saved function) and
        measures seconds per call; options as in `timing.measure`.
        """
        options |= {"number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms}
        return timing.time_evaluator(self[func_name], f_preproc, **options)

    def benchmark(
        self,
        device: Any,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        end_to_end: bool = False,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """How long a call takes; in `kwargs`, options as in `timing.measure` too. `end_to_end`
        would add copies to and from the device: none.
        """
        options = timing.options_in(kwargs, repeat=repeat, number=number)
        return timing.measure(lambda: self.invoke(func_name, *args, **kwargs), **options)

    def __repr__(self) -> str:
        names = ", ".join(self.function_names)
        return f"<VirtualMachine on {self.device}: {names}; kernels {self.kernel_source}>"


def _differ(values: Sequence[Any], args: Sequence[Any]) -> bool:
    """Whether converting changed anything."""
    return len(values) != len(args) or any(a is not b for a, b in zip(values, args))


__getattr__ = submodules(__name__, {"relaxvm.runtime.executable": "Executable"})
