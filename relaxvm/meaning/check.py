"""Whether passes and builds keep what a module means: `CheckMeaning`, an instrument for every pass,
and `bisect`, for a whole build. Both compare with the reference: operators' meanings in numpy and
the interpreter of loop functions.

    with PassContext(instruments=[CheckMeaning()]):
        relax.build(mod, "llvm")

What differs is made smaller, and written as a program that shows it.
"""

from __future__ import annotations

import pathlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import pipeline
from ..base import PassError, StructInfoError, VerifyError
from ..ir import BaseFunc, IRModule
from ..ir.instrument import PassInstrument
from ..ir.transform import Pass, PassContext, PassInfo
from ..relax import Function
from ..relax.vm_build import bind_params
from ..runtime import (
    Executable,
    VirtualMachine,
    as_ndarray,
)
from ..target import Target
from ..target import build as build_kernels
from ..tir import PrimFunc
from .inputs import Inputs, Unknown
from .outcome import (
    Machine,
    Outcome,
    TimeUp,
    copied,
    difference,
    first_difference,
    leaves,
    same_functions,
)
from .reproducer import write_reproducer
from .smaller import Shrinker

SIZES = (0, 1, 5)
"""What symbols are, one after the other, where no inputs are given: nothing, one, several."""


_MINIMISE_SECONDS = 10.0


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
        self._machine = Machine(functions or {})
        self._open: list[tuple[Pass | None, IRModule, int]] = []
        self._right: IRModule | None = None
        self._count = 0
        self._known: tuple[Any, dict[Any, Outcome]] = (None, {})
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
        if mod is before or same_functions(before, mod):
            return
        started = time.monotonic()
        self._machine.end = started + self._left
        try:
            self._compare(p, info, before, mod)
        finally:
            self._left -= time.monotonic() - started

    def _compare(self, p: Any, info: PassInfo, before: IRModule, after: IRModule) -> None:
        known = self._known[1] if self._known[0] is before else {}
        new: dict[Any, Outcome] = {}
        done = False
        for name, args, case, exact_only in self._cases(before, after, info.name):
            if exact_only and info.numerics != "exact":
                continue
            try:
                want = known.get((name, case)) or self._machine.outcome(before, name, args)
                if want.error is not None:
                    continue
                got = self._machine.outcome(after, name, args)
            except TimeUp:
                self._leave_out(info.name, f"{name}: the {self._limit} seconds of limit= are over")
                continue
            new[name, case] = got
            if isinstance(got.error, StructInfoError):
                self._leave_out(info.name, f"{name}: {got.error}")
                continue
            lowered = got.operators < want.operators and got.kernels != want.kernels
            numerics = "reassociates" if lowered and info.numerics == "exact" else info.numerics
            done = True
            why = difference(want, got, numerics)
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
            inputs = None if self._inputs is None else self._inputs.get(name)
            if graphs and self._inputs is not None:
                if inputs is not None:
                    yield name, inputs, "given", False
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
            maker = Inputs(np.random.default_rng(self._seed), size, special)
            try:
                args = [maker.argument(fn, p) for p in _params(fn)]
            except (Unknown, VerifyError) as error:
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
        binding = first_difference(self._machine, mods, call, numerics)
        small = Shrinker(self._machine, p, name, numerics).smaller(*mods, args, binding)
        where = f", first in {binding.var.name_hint} = {_text(binding.value)}" if binding else ""
        told = f"pass {info.name} ({info.numerics}) changes what {name} means{where}: {why}"
        path = write_reproducer(self._out, told, small[0], small[1], name, small[2], numerics)
        shown = f"; a program that shows it: {path}" if path else ""
        variable = binding.var.name_hint if binding else ""
        return MeaningError(told + shown, info.name, name, variable, path)


def _params(fn: Any) -> Sequence[Any]:
    return fn.params


def _text(value: Any) -> str:
    text = re.sub(r"\s+", " ", str(value))
    text = re.sub(r"^(# [^\n]*)+", "", text)
    return text if len(text) < 120 else f"{text[:117]}..."


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
            copies = [copied(a) for a in args]
            try:
                result = _as_leaves(vm[name](*copies))
                got = Outcome([*result, *_as_leaves(copies)])
            except Exception as error:
                got = Outcome(error=error)
            count = len(got.values)
            why = difference(Outcome(want.values[: count or None]), got, "reassociates")
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
            why = difference(want, _built(single, gv.name_hint, args, target), "reassociates")
            if want.error is not None or not why:
                continue
            plain = Target(str(Target.or_current(target)) + " -opt-level=0")
            right = not difference(want, _built(single, gv.name_hint, args, plain), "reassociates")
            stage = "LLVM's passes" if right else "code generation"
            told = f"{stage}: the machine code of {gv.name_hint} gives something else: {why}"
            path = write_reproducer(
                check._out, told, single, str(target or ""), gv.name_hint, args, "reassociates"
            )
            return MeaningError(f"{told}; {path}", stage, gv.name_hint, "", path)
    return None


def _built(mod: IRModule, name: str, args: Sequence[Any], target: Any) -> Outcome:
    """What machine code for `target` gives."""
    copies = [copied(a) for a in args]
    fn = mod[name]
    if isinstance(fn, PrimFunc):
        public = fn.with_attr("global_symbol", name)
        build_kernels(IRModule({name: public}), target, schedule=False)[name](*copies)
        return Outcome(_as_leaves(copies))
    vm = VirtualMachine(pipeline.build(mod, target))
    return Outcome([*_as_leaves(vm[name](*copies)), *_as_leaves(copies)])


def _as_leaves(x: Any) -> list[Any]:
    if isinstance(x, (tuple, list)):
        return [leaf for each in x for leaf in _as_leaves(each)]
    return leaves(as_ndarray(x) if isinstance(x, np.ndarray) else x)


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
    machine = Machine({}, time.monotonic() + 3600)
    want = machine.outcome(before, function, inputs)
    if isinstance(after, str):
        got = _built(before, function, inputs, after or None)
    else:
        got = machine.outcome(after, function, inputs)
    if want.error is not None:
        raise want.error
    why = difference(want, got, numerics)
    if why:
        raise MeaningError(f"{function} means something else: {why}", "", function, "", None)
