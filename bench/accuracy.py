"""How far elementary operators are from the exact value, in units in the last place of the result:
the table at the end of docs/ops.md.

    python bench/accuracy.py [--write] [--target "llvm -mcpu=haswell"] [--step 1009] [operator ...]

float32: every `step`-th bit pattern and a million ordinary numbers, against float64. float16 and
bfloat16: all bit patterns. float64: 4,000 numbers, against mpmath (an extra of `bench`).
Functions of two arguments get pairs of random bit patterns.
"""

from __future__ import annotations

import argparse
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import relaxvm as tvm
from relaxvm import te, tir
from relaxvm.base import bfloat16_to_float32
from relaxvm.relax.op import Op

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "ops.md"
MARK = "\n## Accuracy\n"
_HEAD = """
Largest distance of compiled results from the exact value, in units in the last place: float32 over
the whole range, subnormal numbers and the edges among them, 16-bit floats on every value, float64
on a sample. `meaning` is the same of the numpy meaning in float32, which tests compare with. With
default attributes; functions named `tir.` are of loop functions only. Made by
`python bench/accuracy.py --write`, on a machine with FMA. More numbers find up to 3.91 for `gelu`,
3.68 for `gelu_tanh` and 4.20 for `mish`, and no more without FMA. float64 is mostly the C
library's; its `gelu` loses digits below the normal numbers.

| function | float32 | meaning | float16 | bfloat16 | float64 |
| --- | --- | --- | --- | --- | --- |
"""
GRAPH = (
    "exp expm1 log log2 log10 log1p sigmoid erf sqrt rsqrt sin cos tan asin acos atan sinh cosh "
    "tanh asinh acosh atanh nn.gelu nn.gelu_tanh nn.silu nn.mish nn.softplus nn.elu nn.selu nn.celu"
).split()
LOOPS = "exp2 exp10 erfc pow atan2 hypot fmod".split()
DTYPES = {
    "float64": (53, -1074),
    "float32": (24, -149),
    "float16": (11, -24),
    "bfloat16": (8, -133),
}
_SELU = 1.6732632423543772, 1.0507009873554805


def _elu(m: Any, x: Any) -> Any:
    return x if x > 0 else m.expm1(x)


def _exact(m: Any) -> dict[str, Callable[..., Any]]:
    """What mpmath (`m`) says."""

    def softplus(x: Any) -> Any:
        return x if x > 20 else m.log1p(m.exp(x))

    return {
        "sigmoid": lambda x: 1 / (1 + m.exp(-x)),
        "log2": lambda x: m.log(x) / m.log(2),
        "exp2": lambda x: m.power(2, x),
        "exp10": lambda x: m.power(10, x),
        "rsqrt": lambda x: 1 / m.sqrt(x),
        "pow": m.power,
        "fmod": lambda x, y: x - y * m.mpf(int(x / y)),
        "nn.gelu": lambda x: x / 2 * m.erfc(-x / m.sqrt(2)),
        "nn.gelu_tanh": lambda x: (
            x / (1 + m.exp(-2 * m.sqrt(2 / m.pi) * (x + m.mpf("0.044715") * x**3)))
        ),
        "nn.silu": lambda x: x / (1 + m.exp(-x)),
        "nn.mish": lambda x: x * m.tanh(m.log1p(m.exp(x))),
        "nn.softplus": softplus,
        "nn.elu": lambda x: _elu(m, x),
        "nn.celu": lambda x: _elu(m, x),
        "nn.selu": lambda x: _SELU[1] * (x if x > 0 else _SELU[0] * m.expm1(x)),
    }


def distance(got: np.ndarray, want: np.ndarray, dtype: str) -> np.ndarray:
    """In units in the last place of `dtype` at `want`; both are values in a wider type."""
    digits, least = DTYPES[dtype]
    scale = np.where(np.isfinite(want) & (want != 0), want, 1.0)
    unit = np.ldexp(np.ones((), want.dtype), np.maximum(np.frexp(scale)[1] - digits, least))
    top = 1024 if dtype == "float64" else 16 if dtype == "float16" else 128
    limit = np.ldexp(np.asarray(2.0 - 2.0**-digits, want.dtype), top - 1)
    rounded = np.where(np.abs(want) >= limit, np.copysign(np.inf, want), want)
    same = (np.isnan(got) & np.isnan(want)) | (got == rounded)
    with np.errstate(all="ignore"):
        made = np.abs(got.astype(want.dtype) - want) / unit
    return np.where(same, 0.0, np.where(np.isnan(made), np.inf, made))


def kernel(name: str, dtype: str, target: str) -> Callable[..., np.ndarray]:
    """The compiled function, of arrays of `dtype` as the runtime stores them."""
    n = te.size_var("n")
    inputs = [te.placeholder((n,), dtype, name=f"x{k}") for k in range(arity(name))]
    if name in LOOPS:
        out = te.compute((n,), lambda i: getattr(tir, name)(*(x[i] for x in inputs)), name="y")
        fn = te.create_prim_func([*inputs, out])
    else:
        fn = lowered(name, dtype)
    run = tvm.build(fn, target=target)["main"]

    def call(*args: np.ndarray) -> np.ndarray:
        given = [tvm.nd.array(a, dtype=dtype) if dtype == "bfloat16" else a for a in args]
        result = np.empty_like(args[0])
        into = tvm.nd.array(result, dtype=dtype) if dtype == "bfloat16" else result
        run(*given, into)
        return np.asarray(into.numpy()) if dtype == "bfloat16" else result

    return call


def lowered(name: str, dtype: str) -> Any:
    """The loop function that the graph operator `name` becomes."""
    from relaxvm import relax

    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n,), dtype))
    call = relax.op
    for part in name.split("."):
        call = getattr(call, part)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(call(x)))
    mod = relax.transform.LegalizeOps()(builder.get())
    return next(fn for fn in mod.functions.values() if isinstance(fn, tir.PrimFunc))


def arity(name: str) -> int:
    return 2 if name in ("pow", "atan2", "hypot", "fmod") else 1


def meaning(name: str) -> Callable[..., Any]:
    """The numpy meaning, in the dtype of its arguments."""
    if name in LOOPS:
        f = tir.ELEMENTARY[name]
        return lambda *args: np.asarray(f(*(a.astype("float64") for a in args)))
    record = Op.get(f"relax.{name}")
    defaults = {"nn.softplus": {"beta": 1.0, "threshold": 20.0}}
    attrs = defaults.get(name, {"alpha": 1.0} if name in ("nn.elu", "nn.celu") else {})
    return lambda x: record.numpy(x, **attrs)


def inputs(name: str, dtype: str, step: int) -> list[np.ndarray]:
    """Arguments as the runtime stores them."""
    rng = np.random.default_rng(11)
    if dtype in ("float16", "bfloat16"):
        every = np.arange(1 << 16, dtype=np.uint16)
        columns = [every, rng.permutation(every)][: arity(name)]
        return [c.view("float16") if dtype == "float16" else c for c in columns]
    if dtype == "float64":
        ordinary = np.concatenate(
            [rng.normal(size=1500), rng.uniform(-40, 40, 1500), rng.uniform(-760, 720, 1000)]
        )
        return [rng.permutation(ordinary) for _ in range(arity(name))]
    made = []
    for k in range(arity(name)):
        bits = np.arange(k, 1 << 32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)
        ordinary = [rng.uniform(-110, 110, 500_000), rng.normal(size=500_000) * 3]
        both = np.concatenate([bits, *(o.astype(np.float32) for o in ordinary)])
        edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
        both = np.concatenate([both, edges])
        made.append(rng.permutation(both) if k else both)
    least = min(map(len, made))
    return [m[-least:] for m in made]


def values(array: np.ndarray, dtype: str) -> np.ndarray:
    """Stored numbers, as float64."""
    if dtype == "bfloat16":
        bits = array if array.dtype == np.uint16 else array.view(np.uint16)
        return bfloat16_to_float32(bits).astype("float64")
    with np.errstate(invalid="ignore"):  # of a NaN that signals
        return array.astype("float64")


def worst(name: str, dtype: str, step: int, target: str) -> tuple[float, float]:
    """(largest error of the compiled function, that of the meaning)"""
    args = inputs(name, dtype, step)
    got = values(kernel(name, dtype, target)(*args), dtype)
    with np.errstate(all="ignore"):
        if dtype == "float64":
            want = exact(name, args)
            said = np.asarray(meaning(name)(*args))
        else:
            wide = [values(a, dtype) for a in args]
            want = np.asarray(meaning(name)(*wide)).astype("float64")
            narrow = [w.astype("float32") for w in wide]
            said = np.asarray(meaning(name)(*narrow)).astype("float32").astype("float64")
            if dtype != "float32":
                said = want
        return float(distance(got, want, dtype).max()), float(distance(said, want, dtype).max())


def exact(name: str, args: list[np.ndarray]) -> np.ndarray:
    """By mpmath, as numpy's long double, or float64 where that is no wider."""
    import mpmath

    mpmath.mp.prec = 160
    known = _exact(mpmath)
    f = known.get(name) or getattr(mpmath, name)
    low = np.longdouble
    made = np.empty(len(args[0]), low)
    for i, row in enumerate(zip(*args)):
        try:
            value = f(*(mpmath.mpf(float(v)) for v in row))
        except (ValueError, ZeroDivisionError):
            value = mpmath.nan
        if isinstance(value, mpmath.mpc):
            value = mpmath.nan
        high = float(value)
        made[i] = low(high) + (low(float(value - high)) if math.isfinite(high) else low(0))
    return made


def _shown(error: float) -> str:
    return "wrong" if math.isinf(error) else f"{error:.2f}"


def row(name: str, step: int, target: str) -> str:
    """A line of the table."""
    found = {dtype: worst(name, dtype, step, target) for dtype in DTYPES}
    cells = [found["float32"][0], found["float32"][1]]
    cells += [found[d][0] for d in ("float16", "bfloat16", "float64")]
    shown = f"tir.{name}" if name in LOOPS else name
    return f"| `{shown}` | {' | '.join(map(_shown, cells))} |"


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table; with `--write`, put it into docs/ops.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", default=[*GRAPH, *LOOPS])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--step", type=int, default=1009)
    options = parser.parse_args(argv)
    lines = []
    for name in options.operators:
        lines.append(row(name, options.step, options.target))
        print(lines[-1], flush=True)
    if options.write:
        kept = PAGE.read_text(encoding="utf-8").partition(MARK)[0].rstrip("\n") + "\n"
        PAGE.write_text(kept + MARK + _HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
