"""The formulas of elementary functions: their error over the whole of float32, edges, vectors,
configuration.
"""

from __future__ import annotations

import functools
import math
import platform

import numpy as np
import pytest

from relaxvm import tir
from relaxvm.base import TIRError
from relaxvm.ir import Call, IRModule, Let, Min, PassContext, Var, const, walk
from relaxvm.ir.expr import ArithmeticExpr
from relaxvm.target import build
from relaxvm.tir import BufferStore, For, PrimFunc, decl_buffer, interpret
from relaxvm.tir.math import BOUNDS, FORMULAS, formula
from relaxvm.tir.math_gates import GATES
from relaxvm.tir.transform import LowerIntrin

COUNT = 1_000_000
LANES = 8


EXACT = {name: tir.ELEMENTARY[name] for name in FORMULAS}


def kernel(function, dtype="float32", kind="vectorized"):
    """out[i, j] = function(a[i, j]), the inner loop of 8 vectorized (or serial)."""
    n, i, j = Var("n", "int64"), Var("i", "int64"), Var("j", "int64")
    a, out = (decl_buffer((n, LANES), dtype, name) for name in ("a", "out"))
    body = BufferStore(out, function(a[i, j]), (i, j))
    body = For(j, const(0, "int64"), const(LANES, "int64"), kind, body)
    body = For(i, const(0, "int64"), n, "serial", body)
    handles = [Var(b.name, "handle") for b in (a, out)]
    return PrimFunc(
        handles,
        body,
        None,
        dict(zip(handles, (a, out))),
        {"global_symbol": "main", "tir.noalias": True},
    )


def run(fn, x, target="llvm"):
    x = np.ascontiguousarray(x).reshape(-1, LANES)
    out = np.empty_like(x)
    build(fn, target=target)["main"](x, out)
    return out.reshape(-1)


def samples():
    """Random bit patterns (NaN, infinities and subnormals among them), ordinary numbers, and the
    edges.
    """
    rng = np.random.default_rng(20240611)
    bits = rng.integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ordinary = np.concatenate(
        [
            rng.uniform(-110, 110, 100_000),
            rng.normal(size=100_000),
            np.exp(rng.uniform(-4, 4, 100_000)),
            1 + rng.normal(size=20_000) * 1e-3,
            rng.normal(size=20_000) * 1e-3,
            rng.normal(size=20_000) * 1e-39,
            np.arange(-5000, 5000) * (math.pi / 2),
        ]
    )
    edges = np.array(
        [
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            1,
            -1,
            1e-45,
            -1e-45,
            1.1754944e-38,
            -1.1754944e-38,
            3.4028235e38,
            -3.4028235e38,
            88.72283,
            88.72284,
            -103.97208,
            -103.97209,
            127.99999,
            128,
            -149.0,
            -150.0,
            0.625,
            0.6250001,
            0.785,
            0.7853982,
            2.0**24,
            2.0**62,
            2.0**63,
            2.0**64,
        ]
    )
    values = np.concatenate([bits, ordinary.astype(np.float32), edges.astype(np.float32)])
    return np.resize(values, -(-len(values) // LANES) * LANES)


@pytest.fixture(scope="module")
def sample():
    return samples()


def errors(got, want):
    """How far `got` (float32) is from `want` (float64), in units in the last place of float32 at
    `want`.
    """
    scale = np.where(np.isfinite(want) & (want != 0), want, 1.0)
    unit = np.ldexp(1.0, np.maximum(np.frexp(scale)[1] - 24, -149))
    # What rounds to infinity may be infinite.
    limit = (2.0 - 2.0**-24) * 2.0**127
    rounded = np.where(np.abs(want) >= limit, np.copysign(np.inf, want), want)
    same = (np.isnan(got) & np.isnan(want)) | (got == rounded)
    with np.errstate(invalid="ignore"):
        distance = np.abs(got.astype("float64") - want) / unit
    return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))


@pytest.mark.parametrize("name", FORMULAS)
def test_error_is_within_the_bound_over_all_float32(name, sample):
    got = run(kernel(lambda v: formula(name, v)), sample)
    with np.errstate(all="ignore"):
        want = EXACT[name](sample.astype("float64"))
        wrong = errors(got, want)
    worst = int(np.argmax(wrong))
    assert wrong[worst] <= BOUNDS[name], (
        f"{name}({sample[worst]!r}) = {got[worst]!r}: {wrong[worst]} ulp"
    )
    zeros = (want == 0) & (got == 0)
    assert np.array_equal(np.signbit(want[zeros]), np.signbit(got[zeros])), (
        f"{name}: the sign of a zero"
    )


@pytest.mark.parametrize("name", FORMULAS)
def test_interpreter_and_llvm_agree(name, sample):
    x = np.concatenate([sample[:40], sample[COUNT : COUNT + 40], sample[-64:]])
    x = np.resize(x, (len(x) // LANES, LANES))
    fn = kernel(lambda v: formula(name, v), kind="serial")
    interpreted, compiled = np.empty_like(x), np.empty_like(x)
    interpret(fn, x, interpreted)
    build(fn, target="llvm")["main"](x, compiled)
    # `muladd` rounds once or twice, as the machine likes: the last bits may differ.
    distance = interpreted.view(np.int32).astype(np.int64) - compiled.view(np.int32)
    same = (abs(distance) <= 2) | (np.isnan(interpreted) & np.isnan(compiled))
    assert same.all(), (x[~same], interpreted[~same], compiled[~same])


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="runs code for x86-64")
@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "erf", *GATES])
def test_bounds_hold_where_products_are_rounded_on_their_own(name, sample):
    x = sample[-300_000:]
    got = run(kernel(lambda v: formula(name, v)), x, "llvm -mcpu=x86-64")
    with np.errstate(all="ignore"):
        wrong = errors(got, EXACT[name](x.astype("float64")))
    worst = int(np.argmax(wrong))
    assert wrong[worst] <= BOUNDS[name], (x[worst], got[worst], wrong[worst])


@pytest.mark.parametrize("name", GATES)
def test_shorter_formulas_of_machines_with_fma_are_within_the_bound(name, sample):
    rng = np.random.default_rng(17)
    near = rng.uniform(-15, 6, 1 << 20).astype("float32")
    x = np.concatenate([sample[:200_000], near, sample[-64:]])
    got = run(kernel(getattr(tir, name)), x)
    with np.errstate(all="ignore"):
        want = EXACT[name](x.astype("float64"))
        wrong = errors(got, want)
    worst = int(np.argmax(wrong))
    assert wrong[worst] <= BOUNDS[name], (x[worst], got[worst], want[worst])
    zeros = (want == 0) & (got == 0)
    assert np.array_equal(np.signbit(want[zeros]), np.signbit(got[zeros]))


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_interpreter_keeps_the_bounds_of_formulas_with_fma(name, sample):
    x = np.concatenate([np.linspace(-15, 6, 200, dtype="float32"), sample[-64:]])
    x = np.resize(x, (-(-len(x) // LANES), LANES))
    fn = kernel(lambda v: formula(name, v, fused=True), kind="serial")
    interpreted = np.empty_like(x)
    interpret(fn, x, interpreted)
    with np.errstate(all="ignore"):
        wrong = errors(interpreted, EXACT[name](x.astype("float64")))
    assert wrong.max() <= BOUNDS[name], x.flat[wrong.argmax()]


# By mpmath, with 200 bits.
FAR = [
    ("gelu", -5.556, -7.668026454697743e-08),
    ("gelu", -30.0, -1.472014178144456e-196),
    ("gelu", 1.5, 1.399789198096713),
    ("gelu_tanh", -20.0, -3.3754509563109673e-261),
    ("gelu_tanh", 1.5, 1.3995715769802328),
    ("silu", -88.0, -5.328049667953043e-37),
    ("silu", -740.0, -3.09967e-319),
    ("mish", -100.0, -3.720075976020836e-42),
    ("mish", -740.0, -3.09967e-319),
    ("mish", 0.5, 0.37524521130489513),
]


@pytest.mark.parametrize(("name", "x", "want"), FAR)
def test_gates_keep_their_digits_in_the_tail(name, x, want):
    assert float(EXACT[name](np.float64(x))) == pytest.approx(want, 2e-15, 1e-323)
    double = run(kernel(getattr(tir, name), "float64"), np.full(LANES, x))
    assert double == pytest.approx(np.full(LANES, want), 2e-15, 1e-323)
    if want > -1e-30 or x == 1.5:
        single = run(kernel(getattr(tir, name)), np.full(LANES, x, "float32"))
        exact = EXACT[name](np.float64(np.float32(x)))
        assert errors(single, np.full(LANES, exact)).max() <= BOUNDS[name]


@pytest.mark.parametrize("name", GATES)
def test_gates_of_double_agree_with_the_interpreter(name):
    rng = np.random.default_rng(5)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e308, -1e308, 5e-324, -5e-324, -1e4, 60.0]
    x = np.concatenate([rng.uniform(-36, 40, 2000), rng.normal(size=2000), edges])
    x = np.resize(x, -(-len(x) // LANES) * LANES)
    got = run(kernel(getattr(tir, name), "float64"), x)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, EXACT[name](x), 1e-15, 1e-320)


def test_functions_of_integers_are_those_of_their_float32():
    n, i = Var("n", "int64"), Var("i", "int64")
    a, out = decl_buffer((n,), "int32", "a"), decl_buffer((n,), "float32", "out")
    body = For(i, const(0, "int64"), n, "serial", BufferStore(out, tir.exp(a[i]), (i,)))
    handles = [Var(b.name, "handle") for b in (a, out)]
    fn = PrimFunc(handles, body, None, dict(zip(handles, (a, out))), {"global_symbol": "main"})
    x, y = np.arange(-5, 6, dtype="int32"), np.empty(11, "float32")
    build(fn, target="llvm")["main"](x, y)
    np.testing.assert_allclose(y, np.exp(x.astype("float32")), 1e-6)


@pytest.mark.parametrize("limit", [-3.0, 0.0, 71.0, 72.0])
def test_exp_of_what_is_bounded_above(limit, sample):
    got = run(kernel(lambda v: formula("exp", Min(v, const(limit, v.dtype)))), sample)
    with np.errstate(all="ignore"):
        wrong = errors(got, np.exp(np.minimum(sample.astype("float64"), limit)))
    worst = int(np.argmax(wrong))
    assert wrong[worst] <= BOUNDS["exp"], (sample[worst], got[worst], wrong[worst])


def test_exp_of_what_is_bounded_above_takes_fewer_steps():
    x = Var("x", "float32x8")

    def steps(limit):
        e = formula("exp", Min(x, const(limit, "float32x8")))
        return len({id(n) for n in walk(e) if isinstance(n, (Call, ArithmeticExpr))})

    assert steps(71.0) < steps(72.0) == steps(1000.0)


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_functions_that_end_in_one_reach_it_and_never_pass_it(name, sample):
    got = run(kernel(lambda v: formula(name, v)), sample)
    assert np.nanmax(abs(got)) == 1
    far = abs(sample) >= 9.1
    assert (got[far] == np.sign(sample[far])).all()


def test_every_formula_has_a_bound():
    assert set(FORMULAS) == set(BOUNDS) == set(EXACT)


def calls(fn):
    return {n.op.name.removeprefix("tir.") for n in walk(fn) if isinstance(n, Call)}


@pytest.mark.parametrize("name", FORMULAS)
def test_lowering_writes_formulas_unless_told_not_to(name):
    mod = IRModule({"main": kernel(getattr(tir, name), kind="serial")})
    assert name not in calls(LowerIntrin()(mod)["main"])
    with PassContext(config={"tir.math_formulas": False}):
        kept = LowerIntrin()(mod)["main"]
    # What the C library lacks stays a formula.
    assert name in calls(kept) or "exp" in calls(kept) or name in GATES


def test_double_keeps_the_c_library():
    mod = IRModule({"main": kernel(tir.log, "float64", "serial")})
    assert calls(LowerIntrin()(mod)["main"]) == {"log"}


def test_exp_of_double_is_a_formula_within_its_bound():
    mod = IRModule({"main": kernel(tir.exp, "float64", "serial")})
    assert "exp" not in calls(LowerIntrin()(mod)["main"])
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 1 << 63, 40_000, dtype=np.uint64) | rng.integers(
        0, 2, 40_000, dtype=np.uint64
    ) << np.uint64(63)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 709.78, 709.79, -745.13, -745.14, 1e-320, -708.5]
    x = np.concatenate(
        [bits.view(np.float64), rng.uniform(-750, 715, 60_000), rng.normal(size=40_000), edges]
    )
    x = np.resize(x, -(-len(x) // LANES) * LANES)
    got = run(kernel(lambda v: formula("exp", v), "float64"), x)
    with np.errstate(all="ignore"):
        # Above what double can hold, the wider type of this machine may have a number.
        exact = np.exp(x.astype(np.longdouble))
        want = exact.astype("float64")
        scale = np.where(np.isfinite(want) & (want != 0), want, 1.0)
        unit = np.ldexp(1.0, np.maximum(np.frexp(scale)[1] - 53, -1074))
        wrong = np.abs(got.astype(np.longdouble) - exact) / unit
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    assert wrong[~same].max(initial=0) <= 1.5
    assert (np.isnan(got) == np.isnan(x)).all()


@pytest.mark.parametrize("name", ["exp", "tanh", "log", "erf", "sin"])
def test_16_bit_floats_compute_in_float32_and_round_once(name):
    x = np.linspace(-4, 4, 64).astype("float16")
    with np.errstate(all="ignore"):
        want = EXACT[name](x.astype("float64")).astype("float16")
    got = run(kernel(getattr(tir, name), "float16"), x)
    np.testing.assert_allclose(got, want, 1e-3, equal_nan=True)


def test_vectors_and_scalars_give_the_same_bits(sample):
    x = np.resize(sample[:4000], (500, LANES))
    for name in FORMULAS:
        written = functools.partial(formula, name)
        vector = run(kernel(written), x)
        scalar = run(kernel(written, kind="serial"), x)
        same = (vector.view(np.uint32) == scalar.view(np.uint32)) | (
            np.isnan(vector) & np.isnan(scalar)
        )
        assert same.all(), name


def test_each_step_is_named_once():
    x = Var("x", "float32")
    for name in FORMULAS:
        names = [n.var for n in walk(formula(name, x)) if isinstance(n, Let)]
        assert len(names) == len(set(map(id, names))) >= 3


def test_mistakes():
    with pytest.raises(TIRError, match="no formula for atan2; there are exp, exp2"):
        formula("atan2", Var("x", "float32"))
    with pytest.raises(TIRError, match="the formula of log is of float32, got float64"):
        formula("log", Var("x", "float64"))
