"""What functions give by the reference, and in what two outcomes differ."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ..base import bits_to_values, record
from ..ir import IRModule, descend
from ..relax import Call, VarBinding
from ..relax.interp import Evaluator, run_kernel
from ..relax.known_ops import ALLOC_TENSOR, MEM_ALLOC_TENSOR, VM_ALLOC_TENSOR
from ..runtime import (
    NDArray,
    wrap_unchecked,
)
from ..tir import For, PrimFunc, Stmt
from ..tir.analysis import called_functions

_SECONDS_PER_STATEMENT = 5e-6
_MEMO_BYTES = 1 << 22


_TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}


class TimeUp(Exception):
    """The rest cannot be computed in the time that is left."""


@record(frozen=False)
class Outcome:
    """What a function gave: a result with the arguments as it left them, or an error."""

    values: list[Any] = field(default_factory=list)
    error: Exception | None = None
    operators: int = 0
    kernels: frozenset[int] = frozenset()


@record(frozen=False)
class Machine:
    """Runs functions by the reference until `end`; kernels of equal arguments once."""

    functions: Mapping[str, Callable[..., Any]]
    end: float = 0.0
    memo: dict[Any, Any] = field(default_factory=dict)
    calls: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def outcome(self, mod: IRModule, name: str, args: Sequence[Any]) -> Outcome:
        """What function `name` of `mod` gives. Raises TimeUp."""
        args, ran = [copied(a) for a in args], set()

        def kernel(fn: PrimFunc, operands: tuple[Any, ...], inside: IRModule) -> None:
            ran.add(id(fn))
            self.kernel(fn, operands, inside)

        try:
            fn = mod[name]
            if isinstance(fn, PrimFunc):
                kernel(fn, tuple(args), mod)
                return Outcome(leaves(args))
            run = Evaluator(mod, self.functions, kernel, self.watch)
            result = run.run(name, *args)
        except TimeUp:
            raise
        except Exception as error:  # whatever a module of the user makes a function raise
            return Outcome(error=error)
        values = [*leaves(result), *leaves(args), *itertools.chain(*run.printed)]
        return Outcome(values, None, run.operators, frozenset(ran))

    def watch(self, *_: Any) -> None:
        """Stop where the time is over."""
        if time.monotonic() > self.end:
            raise TimeUp

    def kernel(self, fn: PrimFunc, args: tuple[Any, ...], mod: IRModule) -> None:
        """A loop function by its meaning."""
        arrays = [a.array if isinstance(a, NDArray) else a for a in args]
        sized = [a for a in arrays if isinstance(a, np.ndarray)]
        name = next((gv.name_hint for gv, f in mod.items() if f is fn), "")
        key = None
        if sum(a.nbytes for a in sized) <= _MEMO_BYTES and not called_functions(fn):
            calls = self.calls.setdefault(name, [])
            if len(calls) < 4:
                calls.append(tuple(copied(a) for a in args))
            key = id(fn), *((a.shape, a.tobytes()) if type(a) is np.ndarray else a for a in arrays)
            if key in self.memo:
                for array, after in zip(sized, self.memo[key][1]):
                    if array.flags.writeable:
                        array[...] = after
                return
        if time.monotonic() + _statements(fn) * _SECONDS_PER_STATEMENT > self.end:
            raise TimeUp
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
    children = [c for c in node._children_ if isinstance(c, Stmt)]
    block = getattr(node, "block", None)
    children += [c for c in (getattr(block, "init", None), getattr(block, "body", None)) if c]
    return [(c, times) for c in children]


def same_functions(a: IRModule, b: IRModule) -> bool:
    return len(a) == len(b) and all(b.get(gv.name_hint) is fn for gv, fn in a.items())


def copied(x: Any) -> Any:
    if isinstance(x, NDArray):
        return wrap_unchecked(x.array.copy(), x.dtype)
    if isinstance(x, np.ndarray):
        return x.copy()
    return tuple(map(copied, x)) if type(x) in (tuple, list) else x


def leaves(x: Any) -> list[Any]:
    """Arrays, with their dtypes, and numbers; what else a value is made of cannot be compared."""
    if isinstance(x, (tuple, list)):
        return [leaf for each in x for leaf in leaves(each)]
    if isinstance(x, NDArray):
        values = x.array
        if x.dtype.is_bits:
            values = bits_to_values(values, x.dtype).reshape(values.shape)
        return [(str(x.dtype), np.array(values))]
    if isinstance(x, np.ndarray):
        return [(str(x.dtype), x)]
    return [x] if isinstance(x, (bool, int, float)) else []


def difference(want: Outcome, got: Outcome, numerics: str) -> str:
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


def trace(
    machine: Machine, mod: IRModule, name: str, args: Sequence[Any]
) -> dict[tuple[str, str, int], tuple[VarBinding, Any]]:
    """The bindings of a run, with their values; by function, variable and turn."""
    values: dict[tuple[str, str, int], tuple[VarBinding, Any]] = {}
    turns: dict[tuple[str, str], int] = {}

    def note(function: str, binding: Any, value: Any) -> None:
        machine.watch()
        key = function, binding.var.name_hint
        turns[key] = turns.get(key, -1) + 1
        if not (isinstance(binding.value, Call) and binding.value.op in _ALLOCATES):
            values[(*key, turns[key])] = binding, copied(value)

    run = Evaluator(mod, machine.functions, machine.kernel, note)
    try:
        run.run(name, *(copied(a) for a in args))
    except Exception:
        pass
    return values


def first_difference(
    machine: Machine,
    mods: tuple[IRModule, IRModule],
    call: tuple[str, Sequence[Any]],
    numerics: str,
) -> VarBinding | None:
    """The first binding of the changed module whose value differs from that of its name before."""
    name, args = call
    if isinstance(mods[0][name], PrimFunc):
        return None
    before, after = (trace(machine, mod, name, args) for mod in mods)
    for key, (binding, value) in after.items():
        if key in before and key[1] != "_":
            want, got = Outcome(leaves(before[key][1])), Outcome(leaves(value))
            if len(want.values) == len(got.values) and difference(want, got, numerics):
                return binding
    return None
