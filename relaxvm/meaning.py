"""Whether passes and builds keep what a module means: `CheckMeaning`, an instrument for every pass,
and `bisect`, for a whole build. Both compare with the reference: operators' meanings in numpy and
the interpreter of loop functions.

    with PassContext(instruments=[CheckMeaning()]):
        relax.build(mod, "llvm")

What differs is made smaller, and written as a program that shows it.
"""

from __future__ import annotations

import itertools
import pathlib
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import pipeline
from .base import DataType, PassError, StructInfoError, VerifyError, reachable, to_numpy_dtype
from .ir import BaseFunc, IRModule, PrimExpr, descend, save_json, structural_equal, walk
from .ir import Var as TirVar
from .ir.instrument import PassInstrument
from .ir.transform import Pass, PassContext, PassInfo
from .relax import BindingBlock, Call, DataflowVar, Function, SeqExpr, VarBinding
from .relax import Var as GraphVar
from .relax.analysis import all_global_vars, assert_well_formed
from .relax.flow import vars_in
from .relax.interp import Evaluator, run_kernel
from .relax.known_ops import ALLOC_TENSOR, MEM_ALLOC_TENSOR, VM_ALLOC_TENSOR
from .relax.op.meaning import from_storage, to_storage
from .relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .relax.substitute import substitute_graph
from .relax.vm_build import bind_params
from .runtime import (
    Executable,
    NDArray,
    ShapeTuple,
    VirtualMachine,
    as_ndarray,
    wrap_unchecked,
)
from .script import from_source
from .target import Target
from .target import build as build_kernels
from .tir import For, PrimFunc, Stmt, evaluate_expr
from .tir.analysis import called_functions

SIZES = (0, 1, 5)
"""What symbols are, one after the other, where no inputs are given: nothing, one, several."""
_SECONDS_PER_STATEMENT = 5e-6
_MEMO_BYTES = 1 << 22
_MINIMISE_SECONDS = 10.0
_TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}


class MeaningError(PassError):
    """A pass changed what a module means.

    stage, function, binding  where: the pass (or what else of a build), the function, and the first
                              binding of it that differs ("" if none can be named)
    path                      the program that shows it (None: it could not be written)
    """

    def __init__(
        self, message: str, stage: str, function: str, binding: str, path: pathlib.Path | None
    ) -> None:
        super().__init__(message)
        self.stage, self.function, self.binding, self.path = stage, function, binding, path


class _TimeUp(Exception):
    """The rest cannot be computed in the time that is left."""


@dataclass
class _Outcome:
    """What a function gave: a result with the arguments as it left them, or an error."""

    values: list[Any] = field(default_factory=list)
    error: Exception | None = None
    operators: int = 0
    kernels: frozenset[int] = frozenset()


@dataclass
class _Machine:
    """Runs functions by the reference until `end`; kernels of equal arguments once."""

    functions: Mapping[str, Callable[..., Any]]
    end: float = 0.0
    memo: dict[Any, Any] = field(default_factory=dict)
    calls: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def outcome(self, mod: IRModule, name: str, args: Sequence[Any]) -> _Outcome:
        """What function `name` of `mod` gives. Raises _TimeUp."""
        args, ran = [_copied(a) for a in args], set()

        def kernel(fn: PrimFunc, given: tuple[Any, ...], inside: IRModule) -> None:
            ran.add(id(fn))
            self.kernel(fn, given, inside)

        try:
            fn = mod[name]
            if isinstance(fn, PrimFunc):
                kernel(fn, tuple(args), mod)
                return _Outcome(_leaves(args))
            run = Evaluator(mod, self.functions, kernel, self.watch)
            result = run.run(name, *args)
        except _TimeUp:
            raise
        except Exception as error:  # whatever a module of the user makes a function raise
            return _Outcome(error=error)
        values = [*_leaves(result), *_leaves(args), *itertools.chain(*run.printed)]
        return _Outcome(values, None, run.operators, frozenset(ran))

    def watch(self, *_: Any) -> None:
        """Stop where the time is over."""
        if time.monotonic() > self.end:
            raise _TimeUp

    def kernel(self, fn: PrimFunc, args: tuple[Any, ...], mod: IRModule) -> None:
        """A loop function by its meaning."""
        arrays = [a._array if isinstance(a, NDArray) else a for a in args]
        sized = [a for a in arrays if isinstance(a, np.ndarray)]
        name = next((gv.name_hint for gv, f in mod.items() if f is fn), "")
        key = None
        if sum(a.nbytes for a in sized) <= _MEMO_BYTES and not called_functions(fn):
            calls = self.calls.setdefault(name, [])
            if len(calls) < 4:
                calls.append(tuple(_copied(a) for a in args))
            key = id(fn), *((a.shape, a.tobytes()) if type(a) is np.ndarray else a for a in arrays)
            if key in self.memo:
                for array, after in zip(sized, self.memo[key][1]):
                    if array.flags.writeable:
                        array[...] = after
                return
        if time.monotonic() + _statements(fn) * _SECONDS_PER_STATEMENT > self.end:
            raise _TimeUp
        run_kernel(fn, args, mod)
        if key is not None:
            # The function is kept, so that its id stays its own.
            self.memo[key] = fn, [a.copy() for a in sized]


def _statements(fn: PrimFunc) -> int:
    """About how many statements `fn` runs; symbols count as 8."""
    total = 0
    start: tuple[Any, int] = (fn.body, 1)
    for node, times in descend(start, _inner):
        total += times * (not isinstance(node, For))
    return total


def _inner(place: tuple[Any, int]) -> list[tuple[Any, int]]:
    node, times = place
    if isinstance(node, For):
        times *= max(1, getattr(node.extent, "value", 8))
    children = [c for c in node._children_() if isinstance(c, Stmt)]
    block = getattr(node, "block", None)
    children += [c for c in (getattr(block, "init", None), getattr(block, "body", None)) if c]
    return [(c, times) for c in children]


class CheckMeaning(PassInstrument):
    """Runs the module before and after every pass by the reference, and raises MeaningError where
    they differ: to the bit if the pass is exact, else by the tolerance of its dtype. Where
    operators become loop functions, that tolerance holds too: both mean the same sums, in another
    order.

    inputs     the arguments of main, or {function: arguments}; None: some are made, for every
               function that can be called from outside: symbols are 0, 1 and 5; floats hold NaN,
               infinities and -0.0 too
    functions  packed functions by name; others are those registered
    limit      seconds for all of it: what takes longer is left out, and told in `unchecked`
    out        folder for the program that shows what differs (None: a temporary one)

    checked    names of the passes whose modules were compared
    unchecked  what was not compared, and why
    """

    def __init__(
        self,
        inputs: Any = None,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        limit: float = 60.0,
        out: str | pathlib.Path | None = None,
        seed: int = 0,
    ) -> None:
        self.checked: list[str] = []
        self.unchecked: list[str] = []
        self._inputs = {"main": inputs} if isinstance(inputs, (list, tuple)) else inputs
        self._limit, self._left = limit, limit
        self._out, self._seed = out, seed
        self._machine = _Machine(functions or {})
        self._open: list[tuple[Pass | None, IRModule, int]] = []
        self._right: IRModule | None = None
        self._count = 0
        self._known: tuple[Any, dict[Any, _Outcome]] = (None, {})
        self._pass: Pass | None = None

    def enter_pass_ctx(self) -> None:
        self._open.clear()
        self._left = self._limit

    def enter_pass(self, p: Pass) -> None:
        """Remember the pass itself, so that smaller modules can be tried."""
        self._pass = p

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._open.append((self._pass, mod, self._count))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        # A pass that raised leaves its entry open: drop entries until ours.
        while self._open:
            p, before, count = self._open.pop()
            if p is not None and p.info is info:
                break
        else:
            return
        if self._count > count and self._right is not None:
            # Passes ran inside of this one: what they did is known to be right.
            before = self._right
        self._right, self._count = mod, self._count + 1
        if mod is before or _same_functions(before, mod):
            return
        started = time.monotonic()
        self._machine.end = started + self._left
        try:
            self._compare(p, info, before, mod)
        finally:
            self._left -= time.monotonic() - started

    def _compare(self, p: Any, info: PassInfo, before: IRModule, after: IRModule) -> None:
        known = self._known[1] if self._known[0] is before else {}
        new: dict[Any, _Outcome] = {}
        done = False
        for name, args, case, exact_only in self._cases(before, after, info.name):
            if exact_only and info.numerics != "exact":
                continue
            try:
                want = known.get((name, case)) or self._machine.outcome(before, name, args)
                if want.error is not None:
                    continue
                got = self._machine.outcome(after, name, args)
            except _TimeUp:
                self._leave_out(info.name, f"{name}: the {self._limit} seconds of limit= are over")
                continue
            new[name, case] = got
            if isinstance(got.error, StructInfoError):
                self._leave_out(info.name, f"{name}: {got.error}")
                continue
            lowered = got.operators < want.operators and got.kernels != want.kernels
            numerics = "reassociates" if lowered and info.numerics == "exact" else info.numerics
            done = True
            why = _difference(want, got, numerics)
            if why:
                raise self._error(p, info, (before, after), (name, args), why, numerics)
        self._known = after, new
        if done:
            self.checked.append(info.name)

    def _leave_out(self, name: str, why: str) -> None:
        text = f"{name}: {why}"
        if text not in self.unchecked:
            self.unchecked.append(text)

    def _cases(
        self, before: IRModule, after: IRModule, what: str
    ) -> Iterator[tuple[str, Sequence[Any], Any, bool]]:
        """Function, arguments, a key for these, and whether they are for exact passes only."""
        graphs = any(isinstance(fn, Function) for fn in after.functions.values())
        for gv, fn in before.items():
            name, other = gv.name_hint, after.get(gv.name_hint)
            if isinstance(fn, Function) != graphs or type(other) is not type(fn):
                continue
            if not graphs and fn is other:
                continue
            if graphs and fn.get_attr("global_symbol") is None:
                continue
            if len(_params(fn)) != len(_params(other)):
                self._leave_out(what, f"{name}: it takes other arguments now")
                continue
            given = None if self._inputs is None else self._inputs.get(name)
            if graphs and self._inputs is not None:
                if given is not None:
                    yield name, given, "given", False
                continue
            calls = [] if graphs else list(self._machine.calls.get(name, ()))
            for number, args in enumerate(calls):
                yield name, args, number, False
            if not calls:
                yield from self._generated(fn, name, what)

    def _generated(
        self, fn: BaseFunc, name: str, what: str
    ) -> Iterator[tuple[str, Sequence[Any], Any, bool]]:
        cases = [(SIZES[-1], False), *((size, False) for size in SIZES[:-1]), (SIZES[-1], True)]
        for size, special in cases:
            maker = _Inputs(np.random.default_rng(self._seed), size, special)
            try:
                args = [maker.argument(fn, p) for p in _params(fn)]
            except (_Unknown, VerifyError) as error:
                self._leave_out(what, f"{name}: {error}; give inputs")
                return
            if maker.symbols or size == SIZES[-1]:
                yield name, args, (size, special), special

    def _error(
        self,
        p: Pass | None,
        info: PassInfo,
        mods: tuple[IRModule, IRModule],
        call: tuple[str, Sequence[Any]],
        why: str,
        numerics: str,
    ) -> MeaningError:
        self._machine.end = time.monotonic() + _MINIMISE_SECONDS
        name, args = call
        binding = _first_difference(self._machine, mods, call, numerics)
        small = _Shrinker(self._machine, p, name, numerics).smaller(*mods, args, binding)
        where = f", first in {binding.var.name_hint} = {_text(binding.value)}" if binding else ""
        told = f"pass {info.name} ({info.numerics}) changes what {name} means{where}: {why}"
        path = write_reproducer(self._out, told, small[0], small[1], name, small[2], numerics)
        shown = f"; a program that shows it: {path}" if path else ""
        variable = binding.var.name_hint if binding else ""
        return MeaningError(told + shown, info.name, name, variable, path)


def bisect(
    mod: IRModule,
    inputs: Any = None,
    target: Any = None,
    params: Mapping[Any, Any] | None = None,
    *,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    limit: float = 60.0,
    out: str | pathlib.Path | None = None,
) -> MeaningError | None:
    """The first step of a build whose result means something else than `mod`; None if there is
    none. Nothing is taken from the cache.

    Its `stage` is a pass (over graphs or loops, schedules included), "code generation" or "LLVM's
    passes" (`function` is the kernel then), "bytecode", or "compiled graph functions". `inputs`,
    `functions`, `limit` and `out` are as `CheckMeaning` has them.
    """
    check = CheckMeaning(inputs, functions=functions, limit=limit, out=out)
    with PassContext.current().again() as context:
        context.override_instruments([*context.instruments, check])
        try:
            executable = pipeline.build(mod, target, params)
        except MeaningError as error:
            return error
        return _wrong_code(check, bind_params(mod, params or {}), executable, target)


def _wrong_code(
    check: CheckMeaning, mod: IRModule, executable: Executable, target: Any
) -> MeaningError | None:
    """What machine code of a build whose passes are right computes wrongly."""
    machine, out = check._machine, check._out
    machine.end = time.monotonic() + check._limit
    for name, args, _, special in check._cases(mod, mod, "bisect"):
        if special:
            continue
        want = machine.outcome(mod, name, args)
        if want.error is not None:
            continue
        for mode, stage in (("bytecode", "bytecode"), ("compiled", "compiled graph functions")):
            vm = VirtualMachine(executable, exec_mode=mode, functions=machine.functions or None)
            given = [_copied(a) for a in args]
            try:
                result = _as_leaves(vm[name](*given))
                got = _Outcome([*result, *_as_leaves(given)])
            except Exception as error:
                got = _Outcome(error=error)
            count = len(got.values)
            why = _difference(_Outcome(want.values[: count or None]), got, "reassociates")
            if why:
                wrong = _wrong_kernel(check, target) if mode == "bytecode" else None
                if wrong is not None:
                    return wrong
                told = f"{stage} of {name} gives something else than it means: {why}"
                path = write_reproducer(
                    out, told, mod, str(target or ""), name, args, "reassociates"
                )
                return MeaningError(f"{told}; {path}", stage, name, "", path)
    return None


def _wrong_kernel(check: CheckMeaning, target: Any) -> MeaningError | None:
    """The first loop function of a build whose machine code computes something else."""
    machine, loops = check._machine, check._right
    for gv, fn in loops.items() if loops is not None else ():
        for args in machine.calls.get(gv.name_hint, ()):
            single = IRModule({gv.name_hint: fn})
            want = machine.outcome(single, gv.name_hint, args)
            why = _difference(want, _built(single, gv.name_hint, args, target), "reassociates")
            if want.error is not None or not why:
                continue
            plain = Target(str(Target.or_current(target)) + " -opt-level=0")
            right = not _difference(want, _built(single, gv.name_hint, args, plain), "reassociates")
            stage = "LLVM's passes" if right else "code generation"
            told = f"{stage}: the machine code of {gv.name_hint} gives something else: {why}"
            path = write_reproducer(
                check._out, told, single, str(target or ""), gv.name_hint, args, "reassociates"
            )
            return MeaningError(f"{told}; {path}", stage, gv.name_hint, "", path)
    return None


def _built(mod: IRModule, name: str, args: Sequence[Any], target: Any) -> _Outcome:
    """What machine code for `target` gives."""
    given = [_copied(a) for a in args]
    fn = mod[name]
    if isinstance(fn, PrimFunc):
        public = fn.with_attr("global_symbol", name)
        build_kernels(IRModule({name: public}), target, schedule=False)[name](*given)
        return _Outcome(_as_leaves(given))
    vm = VirtualMachine(pipeline.build(mod, target))
    return _Outcome([*_as_leaves(vm[name](*given)), *_as_leaves(given)])


def _as_leaves(x: Any) -> list[Any]:
    if isinstance(x, (tuple, list)):
        return [leaf for each in x for leaf in _as_leaves(each)]
    return _leaves(as_ndarray(x) if isinstance(x, np.ndarray) else x)


def assert_same_meaning(
    before: IRModule,
    after: IRModule | str,
    inputs: Sequence[Any],
    function: str = "main",
    numerics: str = "exact",
) -> None:
    """Raise MeaningError unless `function` of both modules gives the same by the reference: to the
    bit if `numerics` is "exact". `after` may be a target: then `before` is built for it, and run.
    """
    machine = _Machine({}, time.monotonic() + 3600)
    want = machine.outcome(before, function, inputs)
    if isinstance(after, str):
        got = _built(before, function, inputs, after or None)
    else:
        got = machine.outcome(after, function, inputs)
    if want.error is not None:
        raise want.error
    why = _difference(want, got, numerics)
    if why:
        raise MeaningError(f"{function} means something else: {why}", "", function, "", None)


# -- comparing -------------------------------------------------------------------------------------


def _same_functions(a: IRModule, b: IRModule) -> bool:
    return len(a) == len(b) and all(b.get(gv.name_hint) is fn for gv, fn in a.items())


def _params(fn: Any) -> Sequence[Any]:
    return fn.params


def _copied(x: Any) -> Any:
    if isinstance(x, NDArray):
        return wrap_unchecked(x._array.copy(), x.dtype)
    if isinstance(x, np.ndarray):
        return x.copy()
    return tuple(map(_copied, x)) if type(x) in (tuple, list) else x


def _leaves(x: Any) -> list[Any]:
    """Arrays, with their dtypes, and numbers; what else a value is made of cannot be compared."""
    if isinstance(x, (tuple, list)):
        return [leaf for each in x for leaf in _leaves(each)]
    if isinstance(x, NDArray):
        return [(str(x.dtype), np.array(from_storage(x._array, x.dtype)))]
    if isinstance(x, np.ndarray):
        return [(str(x.dtype), x)]
    return [x] if isinstance(x, (bool, int, float)) else []


def _difference(want: _Outcome, got: _Outcome, numerics: str) -> str:
    """In what two outcomes differ, "" if in nothing that matters."""
    if got.error is not None:
        return f"it fails: {type(got.error).__name__}: {got.error}"
    if len(want.values) != len(got.values):
        return f"{len(want.values)} values, then {len(got.values)}"
    for a, b in zip(want.values, got.values):
        why = _unlike(a, b, numerics)
        if why:
            return why
    return ""


def _unlike(want: Any, got: Any, numerics: str) -> str:
    pair = (x if isinstance(x, tuple) else ("number", np.asarray(x)) for x in (want, got))
    (kind, a), (other, b) = pair
    if kind != other or a.shape != b.shape:
        return f"wanted {kind} of shape {a.shape}, got {other} of shape {b.shape}"
    if not np.issubdtype(a.dtype, np.floating):
        wrong = a != b
    else:
        with np.errstate(all="ignore"):
            wrong = ~((a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b))
            if numerics != "exact":
                finite = np.isfinite(a) & np.isfinite(b)
                greatest = float(np.abs(a[finite]).max(initial=0.0))
                near = _TOLERANCE.get(kind, 1e-1) * (1 if numerics == "reassociates" else 20)
                wrong &= (a != b) & ~(finite & (np.abs(a - b) <= near * max(greatest, 1e-30)))
    if not np.any(wrong):
        return ""
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f" at {list(first)}" if first else ""
    return (
        f"{int(np.sum(wrong))} of {a.size} values differ{place}: wanted {a[first]!s}, "
        f"got {b[first]!s}"
    )


_ALLOCATES = (ALLOC_TENSOR, MEM_ALLOC_TENSOR, VM_ALLOC_TENSOR)


def _trace(
    machine: _Machine, mod: IRModule, name: str, args: Sequence[Any]
) -> dict[tuple[str, str, int], tuple[VarBinding, Any]]:
    """The bindings of a run, with their values; by function, variable and turn."""
    found: dict[tuple[str, str, int], tuple[VarBinding, Any]] = {}
    turns: dict[tuple[str, str], int] = {}

    def note(function: str, binding: Any, value: Any) -> None:
        machine.watch()
        key = function, binding.var.name_hint
        turns[key] = turns.get(key, -1) + 1
        if not (isinstance(binding.value, Call) and binding.value.op in _ALLOCATES):
            found[(*key, turns[key])] = binding, _copied(value)

    run = Evaluator(mod, machine.functions, machine.kernel, note)
    try:
        run.run(name, *(_copied(a) for a in args))
    except Exception:
        pass
    return found


def _first_difference(
    machine: _Machine,
    mods: tuple[IRModule, IRModule],
    call: tuple[str, Sequence[Any]],
    numerics: str,
) -> VarBinding | None:
    """The first binding of the changed module whose value differs from that of its name before."""
    name, args = call
    if isinstance(mods[0][name], PrimFunc):
        return None
    before, after = (_trace(machine, mod, name, args) for mod in mods)
    for key, (binding, value) in after.items():
        if key in before and key[1] != "_":
            want, got = _Outcome(_leaves(before[key][1])), _Outcome(_leaves(value))
            if len(want.values) == len(got.values) and _difference(want, got, numerics):
                return binding
    return None


def _text(value: Any) -> str:
    text = re.sub(r"\s+", " ", str(value))
    text = re.sub(r"^(# [^\n]*)+", "", text)
    return text if len(text) < 120 else f"{text[:117]}..."


# -- inputs ----------------------------------------------------------------------------------------


class _Unknown(Exception):
    """No value can be made for a parameter."""


class _Inputs:
    """Makes arguments; symbols are `size`, then a little more, so that two of them differ if they
    may.
    """

    def __init__(self, rng: np.random.Generator, size: int, special: bool) -> None:
        self.rng, self.size, self.special = rng, size, special
        self.symbols: dict[TirVar, int] = {}

    def argument(self, fn: Any, param: Any) -> Any:
        """A value for a parameter of a graph or loop function."""
        if isinstance(fn, Function):
            return self.value(param.struct_info, param.name_hint)
        buffer = fn.buffer_map.get(param)
        if buffer is None:
            if param.dtype.is_handle:
                raise _Unknown(f"{param.name} is a bare pointer")
            return self.number(param) if param.dtype.is_int else 1.5
        if buffer.strides or buffer.dtype.lanes > 1:
            raise _Unknown(f"{buffer.name} has strides or vectors")
        return self.tensor(buffer.shape, buffer.dtype)

    def value(self, info: StructInfo, name: str) -> Any:
        """A value of `info`."""
        if isinstance(info, TupleStructInfo):
            return tuple(self.value(f, name) for f in info.fields)
        if isinstance(info, TensorStructInfo) and info.dims is not None and info.dtype != "void":
            return self.tensor(info.dims, info.dtype)
        if isinstance(info, ShapeStructInfo) and info.values is not None:
            return ShapeTuple([self.number(d) for d in info.values])
        if isinstance(info, PrimStructInfo) and info.dtype.is_int:
            return self.size if info.value is None else self.number(info.value)
        raise _Unknown(f"nothing is known of {name} but {info}")

    def number(self, e: PrimExpr) -> int:
        """The value of a dimension; symbols in it get theirs."""
        if isinstance(e, TirVar):
            return self.symbols.setdefault(e, self.size)
        if all(v in self.symbols for v in _symbols(e)):
            return int(evaluate_expr(e, self.symbols))
        raise _Unknown(f"the symbols of {e} are not known yet")

    def tensor(self, dims: Sequence[PrimExpr], dtype: Any) -> NDArray:
        """An array of random numbers, special ones among them if so wanted."""
        shape = [self.number(d) for d in dims]
        if any(n < 0 for n in shape):
            raise _Unknown(f"shape {shape} cannot be")
        if dtype.is_bool:
            made: Any = self.rng.integers(0, 2, shape).astype(bool)
        elif np.issubdtype(to_numpy_dtype(dtype), np.integer) and not dtype.is_bits:
            made = self.rng.integers(0, 3, shape).astype(to_numpy_dtype(dtype))
        elif dtype.is_float or dtype.is_bits:
            made = self.rng.normal(size=shape)
            if self.special and made.size:
                values = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0])
                places = self.rng.integers(0, made.size, min(5, 1 + made.size // 4))
                made.reshape(-1)[places] = values[: len(places)]
            made = to_storage(made.astype(np.float32) if dtype.is_bits else made, dtype)
        else:
            raise _Unknown(f"no numbers of {dtype} can be made")
        return wrap_unchecked(np.ascontiguousarray(made).reshape(shape), dtype)


def _symbols(e: PrimExpr) -> list[TirVar]:
    return [n for n in walk(e) if isinstance(n, TirVar)]


# -- smaller modules -------------------------------------------------------------------------------


class _Shrinker:
    """Leaves bindings out of a function, as long as the pass still changes what it means."""

    def __init__(self, machine: _Machine, p: Pass | None, name: str, numerics: str) -> None:
        self.machine, self.p, self.name, self.numerics = machine, p, name, numerics

    def smaller(
        self, before: IRModule, after: IRModule, args: Sequence[Any], guilty: VarBinding | None
    ) -> tuple[IRModule, IRModule, Sequence[Any]]:
        """(before, after, arguments) of as few bindings as could be found in the time."""
        best = before, after, args
        fn = before[self.name]
        if self.p is None:
            return best
        if isinstance(fn, PrimFunc):
            return self._tried(IRModule({self.name: fn}), args) or best
        assert isinstance(fn, Function)
        values = {b.var: v for b, v in _trace(self.machine, before, self.name, args).values()}
        values.update(zip(fn.params, args))
        rows = [b for block in fn.body.blocks for b in block.bindings]
        name = guilty.var.name_hint if guilty else None
        ends: list[Any] = [fn.body.body, *(b.var for b in rows if b.var.name_hint == name)]
        for end in reversed(ends):
            upto = rows if end is fn.body.body else rows[: 1 + [b.var for b in rows].index(end)]
            found = self._reduced(before, fn, upto, end, values)
            if found is not None:
                return found
        return best

    def _reduced(self, mod: IRModule, fn: Function, rows: list[Any], end: Any, values: Any) -> Any:
        """What is left of `rows`; None if nothing differs with all of them."""
        best = self._with(mod, fn, rows, end, values)
        size = max(1, len(rows) // 2)
        while best is not None and size and time.monotonic() < self.machine.end:
            at = 0
            while at < len(rows) and time.monotonic() < self.machine.end:
                fewer = rows[:at] + rows[at + size :]
                found = self._with(mod, fn, fewer, end, values)
                if found is None:
                    at += size
                else:
                    best, rows = found, fewer
            size //= 2
        return best

    def _with(self, mod: IRModule, fn: Function, rows: list[Any], end: Any, values: Any) -> Any:
        """The function with these bindings only: what others gave are parameters."""
        bound = {b.var for b in rows}
        read = dict.fromkeys(v for b in rows for v in vars_in(b.value) if v not in bound)
        read.update(dict.fromkeys(v for v in vars_in(end) if v not in bound))
        if any(v not in values or not _leaves(values[v]) for v in read):
            return None
        renamed: dict[GraphVar, GraphVar] = {
            v: GraphVar(v.name_hint, v.struct_info)
            for v in (*read, *bound)
            if isinstance(v, DataflowVar) and (v in read or v in vars_in(end))
        }
        try:
            blocks: list[BindingBlock] = []
            for block in fn.body.blocks:
                kept = [b for b in block.bindings if b.var in bound and b in rows]
                kept = [b.replace(var=renamed.get(b.var, b.var)) for b in kept]
                if kept:
                    blocks.append(type(block)(tuple(kept)))
            body = substitute_graph(SeqExpr(tuple(blocks), end), renamed)
            params = [v for v in fn.params if v in read]
            params += [v for v in read if v not in fn.params]
            given = [renamed.get(v, v) for v in params]
            small = Function(tuple(given), body, attrs=fn.attrs, is_pure=fn.is_pure)
            used = reachable(all_global_vars(small), lambda gv: all_global_vars(mod[gv]))
            functions = {gv: mod[gv] for gv in used if gv in mod}
            trial = mod.clone({**functions, mod.get_global_var(self.name): small})
            assert_well_formed(trial)
        except Exception:
            return None
        return self._tried(trial, [values[v] for v in params])

    def _tried(self, mod: IRModule, args: Sequence[Any]) -> Any:
        """(before, after, arguments) if the pass changes what `mod` means."""
        assert self.p is not None
        try:
            with PassContext.current().again() as context:
                context.override_instruments([])
                after = self.p.run(mod, context)
            want, got = (self.machine.outcome(m, self.name, args) for m in (mod, after))
        except Exception:
            return None
        if want.error is not None or not _difference(want, got, self.numerics):
            return None
        return mod, after, args


# -- programs that show it -------------------------------------------------------------------------

_PROGRAM = '''"""{about}

Run this file: it ends with the difference.
"""

import numpy as np

from relaxvm import ir
from relaxvm.meaning import assert_same_meaning, array
from relaxvm.script import from_source

BEFORE = {before}
AFTER = {after}
INPUTS = [{inputs}]

if __name__ == "__main__":
    assert_same_meaning(BEFORE, AFTER, INPUTS, {function!r}, {numerics!r})
'''


def write_reproducer(
    folder: str | pathlib.Path | None,
    about: str,
    before: IRModule,
    after: IRModule | str,
    function: str,
    inputs: Sequence[Any],
    numerics: str,
) -> pathlib.Path | None:
    """A program that shows what differs; None if it cannot be written."""
    values = [f"    {_literal(x)},\n" for x in inputs]
    text = _PROGRAM.format(
        about=re.sub(r'\\|"""', " ", about),
        before=_module_text(before),
        after=repr(after) if isinstance(after, str) else _module_text(after),
        inputs=f"\n{''.join(values)}" if values else "",
        function=function,
        numerics=numerics,
    )
    try:
        path = pathlib.Path(folder or tempfile.mkdtemp(prefix="relaxvm-meaning-"))
        path.mkdir(parents=True, exist_ok=True)
        stem = re.sub(r"\W+", "_", f"{about.partition(' (')[0]}")[:60]
        file = next(
            f for n in itertools.count() if not (f := path / f"{stem}{n or ''}.py").exists()
        )
        file.write_text(text, encoding="utf-8")
    except OSError:
        return None
    return file


def _module_text(mod: IRModule) -> str:
    """An expression that gives the module again: its script if that says all."""
    text = mod.script(show_meta=True)
    try:
        whole = '"""' not in text and "\\" not in text and structural_equal(from_source(text), mod)
    except Exception:
        whole = False
    return f'from_source("""\n{text}\n""")' if whole else f"ir.load_json({save_json(mod)!r})"


def _literal(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"array({str(x.dtype)!r}, {list(x.shape)}, {x.tobytes().hex()!r})"
    if isinstance(x, NDArray):
        return f"array({str(x.dtype)!r}, {list(x.shape)}, {x._array.tobytes().hex()!r})"
    if type(x) in (tuple, list):
        return f"({''.join(f'{_literal(each)}, ' for each in x)})"
    return repr(tuple(x)) if isinstance(x, ShapeTuple) else repr(x)


def array(dtype: str, shape: Sequence[int], data: str) -> NDArray:
    """The array whose memory is `data`, in hexadecimal digits."""
    kind = DataType(dtype)
    memory = np.frombuffer(bytearray.fromhex(data), to_numpy_dtype(kind))
    return wrap_unchecked(memory.reshape(shape), kind)
