"""The op table: each operator contributes cases, and every case is held to the operator's numpy
meaning.

    CASES = [
        Case(R.exp, T("n", 4)),                              # one tensor, every float dtype
        Case(R.add, T(2, 3), T(3), dtypes=NUMBERS),          # several dtypes; T() takes the case's
        Case(R.take, T(5, 4), T(2, dtype="int32", low=0, high=4), axis=0),
        Case(R.reshape, T("n", 4), Sh("n", 2, 2)),           # a shape argument with symbols
    ]
    check(CASES)               # inferred, interpreted TIR, LLVM: all against the meaning
    check_gradients(CASES)     # against finite differences, in float64
    check_errors([(lambda: R.exp(int_var), "wanted a floating dtype")])

Symbols are strings; `SIZES` says what they are at run time (a case may say otherwise: ``sizes={"n":
0}``).
"""

from __future__ import annotations

import importlib
import itertools
import math
import pathlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from relax_vm_helpers import build_interpreted

from relaxvm import relax, tir
from relaxvm.base import StructInfoError, dtype, to_numpy_dtype
from relaxvm.ir import IRModule, PassContext, substitute
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.op.meaning import evaluate, from_storage, to_storage
from relaxvm.relax.op.names import ops
from relaxvm.relax.transform import LegalizeOps
from relaxvm.runtime import VirtualMachine, array, cpu

FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTS
BITS = (*INTS, "bool")
ALL = (*NUMBERS, "bool")

SIZES = {"n": 3, "m": 2, "k": 5, "one": 1, "zero": 0}


OF_ALL = [f"test_relax_op_{name}" for name in ("table", "sweep", "constraints")]
FAMILIES = sorted(
    p.stem for p in pathlib.Path(__file__).parent.glob("test_relax_op_*.py") if p.stem not in OF_ALL
)


def cases_of(family: str) -> list[Case]:
    """The cases of a test file; none if it needs a library that is not here."""
    try:
        return list(getattr(importlib.import_module(family), "CASES", ()))
    except pytest.skip.Exception:
        return []


class T:
    """A tensor argument: its dimensions (ints or symbols' names), and what is in it.

    low, high  the range of its random elements (default: -3 to 3 for floats, -9 to 9 for integers)
    data       the elements themselves: an array, or (rng, shape) -> array
    special    infinities, NaN and zeros of both signs are among the elements (floats)
    """

    def __init__(
        self, *shape: Any, dtype: str | None = None, low: Any = None, high: Any = None,
        data: Any = None, special: bool = False, info: Any = None,
    ) -> None:  # fmt: skip
        self.shape = shape
        self.dtype = dtype
        self.low, self.high, self.data, self.special = low, high, data, special
        # The struct info the variable is declared with, if less is to be known of it than
        # its shape.
        self.info = info

    def elements(self, rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
        """Random elements, as the runtime stores them."""
        as_numpy = np.dtype("float32") if dtype(kind).kind == "bfloat" else to_numpy_dtype(kind)
        if self.data is not None:
            given = self.data(rng, shape) if callable(self.data) else np.asarray(self.data)
            return to_storage(np.asarray(given).astype(as_numpy), kind)
        if dtype(kind).is_bool:
            return rng.integers(0, 2, shape).astype(bool)
        if dtype(kind).is_int:
            low = (-9 if dtype(kind).is_signed else 0) if self.low is None else self.low
            return rng.integers(low, (9 if self.high is None else self.high) + 1, shape).astype(
                as_numpy
            )
        low, high = -3.0 if self.low is None else self.low, 3.0 if self.high is None else self.high
        values = rng.uniform(low, high, shape)
        if self.special and values.size:
            extra = [np.inf, -np.inf, np.nan, 0.0, -0.0]
            flat = values.reshape(-1)
            flat[: len(extra)] = extra[: flat.size]
        return to_storage(values.astype(as_numpy), kind)


class Sh:
    """A shape argument; strings are symbols."""

    def __init__(self, *dims: Any) -> None:
        self.dims = dims


class Sym:
    """A scalar argument that is a symbol, or what `f` makes of it: ``Sym("n", lambda n: n+1)``."""

    def __init__(self, name: str, f: Callable[[Any], Any] = lambda n: n) -> None:
        self.name, self.f = name, f


class Case:
    """An operator, its arguments and attributes; one test for each of `dtypes`.

    Arguments are `T`, `Sh`, `Sym`, tuples of them, or values passed on as they are. ``Dtype``
    stands for the case's dtype.
    sizes  what symbols are at run time, beside `SIZES`
    grad   whether `check_gradients` looks at it (default: where the operator has a rule)
    rtol, atol  instead of the tolerance of the dtype; `count` is how many elements a result sums up
    exact  the result must be the meaning's to the bit
    """

    def __init__(
        self, op: Callable[..., Any], *args: Any, dtypes: Sequence[str] = FLOATS, sizes: Any = None,
        grad: bool = True, rtol: float | None = None, atol: float | None = None, count: int = 1,
        exact: bool = False, name: str = "", slow: bool = False, **attrs: Any,
    ) -> None:  # fmt: skip
        self.op, self.args, self.attrs = op, args, attrs
        self.dtypes = dtypes
        self.sizes = {**SIZES, **(sizes or {})}
        self.grad, self.rtol, self.atol, self.count, self.exact = grad, rtol, atol, count, exact
        self.slow = slow
        self.name = name or f"{op.op.short}({', '.join(map(_word, (*args, *attrs.values())))})"

    def __repr__(self) -> str:
        return self.name


class _DtypeMark:
    def __repr__(self) -> str:
        return "Dtype"


Dtype = _DtypeMark()


def _word(arg: Any) -> str:
    if isinstance(arg, T):
        return f"{list(arg.shape)}{arg.dtype or ''}"
    if isinstance(arg, Sh):
        return str(arg.dims)
    if isinstance(arg, (tuple, list)):
        return f"({', '.join(map(_word, arg))})"
    return getattr(arg, "name", None) or str(arg)[:30]


class Instance:
    """A case at one dtype: a call on variables, the arrays for them, and what should come out."""

    def __init__(self, case: Case, kind: str) -> None:
        self.case, self.kind = case, kind
        self.label = f"{case.name} {kind}"
        self.symbols = {}
        self.params: list[relax.Var] = []
        self.arrays: list[Any] = []
        self.rng = np.random.default_rng(zlib.crc32(self.label.encode()))
        args = [self.argument(a) for a in case.args]
        attrs = {k: self.argument(v) for k, v in case.attrs.items()}
        self.call = case.op(*args, **attrs)
        # A symbol that no array determines is passed as a shape.
        loose = [s for name, s in self.symbols.items() if name not in self.bound()]
        if loose:
            self.params.append(relax.Var("sizes", relax.ShapeStructInfo(loose)))
            self.arrays.append(tuple(self.sizes()[s] for s in loose))

    def symbol(self, name: str) -> tir.Var:
        return self.symbols.setdefault(name, tir.Var(name, "int64"))

    def sizes(self) -> dict[Any, int]:
        return {s: self.case.sizes[name] for name, s in self.symbols.items()}

    def bound(self) -> set[str]:
        return {
            d for a in _flat(self.case.args) if isinstance(a, T) and a.info is None
            for d in a.shape if isinstance(d, str)
        }  # fmt: skip

    def argument(self, arg: Any) -> Any:
        if isinstance(arg, T):
            kind = arg.dtype or self.kind
            dims = [self.symbol(d) if isinstance(d, str) else d for d in arg.shape]
            info = relax.TensorStructInfo(dims, kind) if arg.info is None else arg.info(kind)
            var = relax.Var(f"a{len(self.params)}", info)
            shape = tuple(self.case.sizes[d] if isinstance(d, str) else d for d in arg.shape)
            self.params.append(var)
            with np.errstate(all="ignore"):
                self.arrays.append(arg.elements(self.rng, shape, kind))
            return var
        if isinstance(arg, Sh):
            return relax.ShapeExpr([self.symbol(d) if isinstance(d, str) else d for d in arg.dims])
        if isinstance(arg, Sym):
            return arg.f(self.symbol(arg.name))
        if isinstance(arg, _DtypeMark):
            return self.kind
        if isinstance(arg, (tuple, list)) and any(isinstance(a, (T, Sh, Sym)) for a in _flat(arg)):
            return tuple(self.argument(a) for a in arg)
        return arg

    def env(self) -> dict[Any, Any]:
        return {
            p: from_storage(a, p.struct_info.dtype) if isinstance(a, np.ndarray) else a
            for p, a in zip(self.params, self.arrays)
        }

    def expected(self) -> Any:
        return evaluate(self.call, self.env(), self.sizes())


def _flat(args: Any) -> Any:
    for a in args:
        if isinstance(a, (tuple, list)):
            yield from _flat(a)
        else:
            yield a


def instances(
    cases: Sequence[Case],
    dtypes: Sequence[str] | None = None,
    slow: bool = False,
    in_turn: bool = False,
) -> list[Instance]:
    """The cases at each of their dtypes (only those in `dtypes`, if given; cases marked slow only
    if `slow`).

    in_turn  each case at one of its dtypes only: the first, the second, ... from case to case
    """
    made = []
    for k, c in enumerate(c for c in cases if slow or not c.slow):
        kinds = [d for d in c.dtypes if dtypes is None or d in dtypes]
        if in_turn and kinds:
            kinds = [kinds[k % len(kinds)]]
        made += [Instance(c, d) for d in kinds]
    return made


def thinned(cases: Sequence[Case], step: int) -> list[Case]:
    """Of each operator every `step`-th case, beginning with its first."""
    seen: dict[str, int] = {}
    kept = []
    for c in cases:
        number = seen.setdefault(c.op.op.name, 0)
        seen[c.op.op.name] += 1
        if number % step == 0:
            kept.append(c)
    return kept


# -- the checks ------------------------------------------------------------------------------------


def check(
    cases: Sequence[Case],
    dtypes: Sequence[str] | None = None,
    interpret: bool = True,
    llvm: bool = True,
    slow: bool = False,
    batch: int = 60,
    in_turn: bool = False,
) -> None:
    """Every case: inferred struct info, interpreted TIR and LLVM against the meaning. Fails listing
    all that differ.
    """
    todo = instances(cases, dtypes, slow, in_turn)
    assert todo, "no case is left"
    wrong: list[str] = []
    for start in range(0, len(todo), batch):
        group = todo[start : start + batch]
        wanted = []
        for one in group:
            wanted.append(one.expected())
            wrong.extend(f"{one.label}: inferred: {w}" for w in _check_info(one, wanted[-1]))
        mod = module_of(group)
        runs = {"interpreted": build_interpreted} if interpret else {}
        if llvm:
            runs["LLVM"] = _build
        for how, build in runs.items():
            vm = build(mod)
            for i, (one, want) in enumerate(zip(group, wanted)):
                got = vm[f"f{i}"](*map(_to_argument, one.arrays, one.params))
                wrong.extend(f"{one.label}: {how}: {w}" for w in _differences(one, got, want))
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:40])


def _build(mod: IRModule) -> VirtualMachine:
    return VirtualMachine(relax.build(mod, target="llvm", exec_mode="bytecode"), cpu())


def _to_argument(a: Any, p: relax.Var) -> Any:
    if not isinstance(a, np.ndarray):
        return a
    kind = p.struct_info.dtype
    return array(a) if kind == "void" else array(a, dtype=kind)


def module_of(group: Sequence[Instance]) -> IRModule:
    """One module with a function `f0`, `f1`, ... for each instance."""
    builder = relax.BlockBuilder()
    for i, one in enumerate(group):
        with builder.function(f"f{i}", one.params, pure=_is_pure(one.call)):
            if _is_pure(one.call):
                with builder.dataflow():
                    out = builder.emit_output(one.call)
            else:
                out = builder.emit(one.call)
            builder.emit_func_output(out)
    mod = builder.get()
    assert_well_formed(mod)
    return mod


def _is_pure(call: Any) -> bool:
    return getattr(call.op, "pure", True)


def legalized(case: Case, kind: str) -> IRModule:
    """The module of one case after LegalizeOps."""
    with PassContext():
        return LegalizeOps()(module_of([Instance(case, kind)]))


def _check_info(one: Instance, want: Any) -> list[str]:
    return list(_info_differences(one.call.struct_info, want, one.sizes()))


def _info_differences(info: Any, want: Any, sizes: dict[Any, int]):
    if isinstance(info, relax.TupleStructInfo):
        if not isinstance(want, tuple) or len(want) != len(info.fields):
            yield f"{info}, the meaning gives {type(want).__name__}"
            return
        for f, w in zip(info.fields, want):
            yield from _info_differences(f, w, sizes)
    elif isinstance(info, relax.TensorStructInfo):
        if info.dtype == "void":
            yield "the dtype is not known"
        elif from_storage(to_storage(want, info.dtype), info.dtype).dtype != np.asarray(want).dtype:
            yield f"dtype {info.dtype}, the meaning gives {np.asarray(want).dtype}"
        if info.ndim not in (-1, np.ndim(want)):
            yield f"{info.ndim} dimensions, the meaning gives {np.ndim(want)}"
        elif info.dims is not None:
            dims = tuple(_size(d, sizes) for d in info.dims)
            if dims != np.shape(want):
                yield f"shape {dims}, the meaning gives {np.shape(want)}"


def _size(dim: Any, sizes: dict[Any, int]) -> int:
    from_symbols = substitute(dim, {s: tir.const(v, "int64") for s, v in sizes.items()})
    return int(tir.evaluate_expr(from_symbols))


TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 4e-6, "float64": 1e-12}


def tolerance(kind: str, count: int = 1) -> float:
    """How far two right results of `kind` may differ, relatively, that sum up `count` elements
    each.
    """
    return TOLERANCE.get(str(kind), 0.0) * math.sqrt(max(1, count))


def _differences(one: Instance, got: Any, want: Any):
    if isinstance(want, tuple) and isinstance(one.call.struct_info, relax.TupleStructInfo):
        if len(got) != len(want):
            yield f"{len(got)} results, wanted {len(want)}"
            return
        infos = one.call.struct_info.fields
    else:
        got, want, infos = (got,), (want,), (one.call.struct_info,)
    for g, w, info in zip(got, want, infos):
        if not hasattr(g, "numpy"):
            if g != w and not (g != g and w != w):
                yield f"got {g!r}, wanted {w!r}"
            continue
        kind = g.dtype
        if isinstance(info, relax.TensorStructInfo) and info.dtype not in ("void", kind):
            yield f"dtype {kind}, wanted {info.dtype}"
        have = from_storage(g.numpy(), kind)
        yield from _array_differences(one.case, have, np.asarray(w), kind)


def _array_differences(case: Case, have: np.ndarray, want: np.ndarray, kind: str):
    if have.shape != want.shape:
        yield f"shape {have.shape}, wanted {want.shape}"
        return
    if dtype(kind).is_float and not case.exact:
        rtol = tolerance(kind, case.count) if case.rtol is None else max(case.rtol, tolerance(kind))
        atol = tolerance(kind, case.count) if case.atol is None else max(case.atol, tolerance(kind))
        with np.errstate(all="ignore"):
            same = np.isclose(
                have.astype("float64"), want.astype("float64"), rtol, atol, equal_nan=True
            )
    else:
        same = (have == want) | ((have != have) & (want != want))
    if not np.all(same):
        at = tuple(int(i) for i in np.argwhere(~same)[0]) if want.ndim else ()
        yield (
            f"{int(np.sum(~same))} of {same.size} elements, first at {at}: {have[at]!r}, "
            f"wanted {want[at]!r}"
        )


# -- gradients -------------------------------------------------------------------------------------


def check_gradients(cases: Sequence[Case], step: float = 1e-5, tol: float = 1e-4) -> None:
    """The gradient rule of every case that has one, in float64, against central differences of the
    meaning.
    """
    wrong: list[str] = []
    checked = 0
    for case in cases:
        if case.grad and callable(case.op.op.grad) and "float64" in case.dtypes:
            checked += 1
            wrong.extend(f"{case.name}: {w}" for w in _gradient_differences(case, step, tol))
    assert checked, "no case has a gradient"
    assert not wrong, f"{len(wrong)} gradients differ:\n" + "\n".join(wrong[:40])


def _gradient_differences(case: Case, step: float, tol: float):
    one = Instance(case, "float64")
    env, sizes = one.env(), one.sizes()
    y = evaluate(one.call, env, sizes)
    several = isinstance(y, tuple)
    weights = [one.rng.uniform(-1, 1, np.shape(v)) for v in (y if several else (y,))]
    out = relax.Var("y", one.call.struct_info)
    gy = relax.Var("gy", one.call.struct_info)
    env[out] = y
    env[gy] = tuple(weights) if several else weights[0]
    gradients = case.op.op.grad(ops, one.call, out, gy)
    if len(gradients) != len(one.call.args):
        yield f"{len(gradients)} gradients for {len(one.call.args)} arguments"
        return

    def loss() -> float:
        value = evaluate(one.call, env, sizes)
        return sum(float(np.sum(w * v)) for w, v in zip(weights, value if several else (value,)))

    for i, (arg, gradient) in enumerate(zip(one.call.args, gradients)):
        if gradient is None:
            continue
        fields = arg.fields if isinstance(arg, relax.Tuple) else (arg,)
        made = evaluate(gradient, env, sizes)
        for var, got in zip(fields, made if isinstance(arg, relax.Tuple) else (made,)):
            if var not in env:
                continue
            want = _numeric_gradient(env, var, loss, step)
            if np.shape(got) != want.shape:
                yield f"argument {i}: shape {np.shape(got)}, wanted {want.shape}"
            elif not np.allclose(got, want, tol, tol):
                at = np.unravel_index(np.argmax(np.abs(got - want)), want.shape)
                yield (
                    f"argument {i}: at {tuple(map(int, at))}: {got[at]}, "
                    f"finite differences say {want[at]}"
                )


def _numeric_gradient(
    env: dict[Any, Any], var: Any, loss: Callable[[], float], step: float
) -> np.ndarray:
    base = np.array(env[var], dtype="float64")
    want = np.zeros(base.shape)
    for at in itertools.product(*map(range, base.shape)):
        sides = []
        for sign in (1, -1):
            moved = base.copy()
            moved[at] += sign * step
            env[var] = moved
            sides.append(loss())
        want[at] = (sides[0] - sides[1]) / (2 * step)
    env[var] = base
    return want


# -- mistakes --------------------------------------------------------------------------------------


def check_errors(
    mistakes: Sequence[tuple[Callable[[], Any], str]], kind: type = StructInfoError
) -> None:
    """Each function must raise `kind` with a message that matches the pattern beside it."""
    for make, pattern in mistakes:
        with pytest.raises(kind, match=pattern):
            make()
