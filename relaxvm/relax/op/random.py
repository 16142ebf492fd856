"""Random numbers that follow from a seed: random.uniform, random.normal, and choosing by
probability.

Element k of a tensor (counted in row-major order) is made from ``philox(counter=k, key=seed)``
alone: Philox-4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
3" (2011). Beyond that only +, -, *, / and square roots are used, which round alike everywhere, so
the same seed gives the same bits in numpy, in the interpreter and in native code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import tir
from ...base import DataType, StructInfoError, VMValueError, to_numpy_dtype
from ...ir import And, PrimExpr, Select, cast, const
from ...tir import Buffer, IfThenElse, Stmt, seq
from ..expr import Call
from ..rules import Lower, LowerBuilder
from ..struct_info import Expr, PrimStructInfo, StructInfo, TensorStructInfo
from .faces import bounded, from_end, inside, ravel
from .infer import FLOAT, INTEGER, shape_argument, tensor, tensor_of
from .loops import Names, assert_that, call_loops, for_each, load, store
from .lower import lower_by_meaning
from .record import Prim, Shape, missing, op
from .sizes import ONE, ZERO, want_equal

_RANDOM = missing("does not depend on a tensor smoothly")
_NO_AXES = missing("elements are numbered in row-major order")

# -- the generator --------------------------------------------------------------------------------

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = (1 << 32) - 1


class _Numpy:
    """What the formulas below are written with, on arrays of uint64 and float64."""

    @staticmethod
    def let(value: Any) -> Any:
        return value

    @staticmethod
    def u64(value: int) -> Any:
        return np.uint64(value)

    @staticmethod
    def f64(value: Any) -> Any:
        return np.asarray(value).astype(np.float64)

    @staticmethod
    def bits(value: Any) -> Any:
        return np.ascontiguousarray(value, np.float64).view(np.uint64)

    @staticmethod
    def from_bits(value: Any) -> Any:
        return np.ascontiguousarray(value, np.uint64).view(np.float64)

    sqrt = staticmethod(np.sqrt)
    choose = staticmethod(np.where)


class _Scalar(Names):
    """The same on scalar expressions. What is used more than once gets a name."""

    let = Names.of

    @staticmethod
    def u64(value: int) -> PrimExpr:
        return const(value, "uint64")

    @staticmethod
    def f64(value: Any) -> PrimExpr:
        return cast("float64", value)

    @staticmethod
    def bits(value: PrimExpr) -> PrimExpr:
        return tir.reinterpret("uint64", value)

    @staticmethod
    def from_bits(value: PrimExpr) -> PrimExpr:
        return tir.reinterpret("float64", value)

    sqrt = staticmethod(tir.sqrt)
    choose = staticmethod(Select)


def philox(m: Any, counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Any, ...]:
    """Philox-4x32-10: four random words for a counter of four words and a key of two.

    Words are of 32 bits, held in uint64.
    """
    low, shift = m.u64(_LOW), m.u64(32)
    c, (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = m.let(m.u64(_M0) * c[0]), m.let(m.u64(_M1) * c[2])
        c = (
            m.let((p1 >> shift) ^ c[1] ^ k0),
            m.let(p1 & low),
            m.let((p0 >> shift) ^ c[3] ^ k1),
            m.let(p0 & low),
        )
        k0, k1 = m.let((k0 + m.u64(_W0)) & low), m.let((k1 + m.u64(_W1)) & low)
    return c


def _word(m: Any, counter: Any, key: Any) -> Any:
    """64 random bits for a counter and a key of 64 bits."""
    low, shift, zero = m.u64(_LOW), m.u64(32), m.u64(0)
    words = philox(m, (counter & low, counter >> shift, zero, zero), (key & low, key >> shift))
    return m.let((words[0] << shift) | words[1])


# -- distributions --------------------------------------------------------------------------------

# How many random bits a number in [0, 1) gets: as many as its dtype's significand holds.
_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def _unit(m: Any, word: Any, digits: int) -> Any:
    """A multiple of ``2**-digits`` in [0, 1), in float64."""
    return m.f64(word >> m.u64(64 - digits)) * _f(m, 2.0**-digits)


def _f(m: Any, value: float) -> Any:
    return np.float64(value) if isinstance(m, _Numpy) else const(value, "float64")


# Coefficients of P. J. Algorithm AS241 (Wichura 1988), PPND16: the normal quantile to about 16
# digits.
_A = (
    3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
    1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
    3.3430575583588128105e4, 2.5090809287301226727e3,
)  # fmt: skip
_B = (
    1.0, 4.2313330701600911252e1, 6.8718700749205790830e2,
    5.3941960214247511077e3, 2.1213794301586595867e4, 3.9307895800092710610e4,
    2.8729085735721942674e4, 5.2264952788528545610e3,
)  # fmt: skip
_C = (
    1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
    3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
    2.27238449892691845833e-2, 7.74545014278341407640e-4,
)  # fmt: skip
_D = (
    1.0, 2.05319162663775882187e0, 1.67638483018380384940e0,
    6.89767334985100004550e-1, 1.48103976427480074590e-1, 1.51986665636164571966e-2,
    5.47593808499534494600e-4, 1.05075007164441684324e-9,
)  # fmt: skip
_E = (
    6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
    2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
    2.71155556874348757815e-5, 2.01033439929228813265e-7,
)  # fmt: skip
_F = (
    1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1,
    1.48753612908506148525e-2, 7.86869131145613259100e-4, 1.84631831751005468180e-5,
    1.42151175831644588870e-7, 2.04426310338993978564e-15,
)  # fmt: skip


def _polynomial(m: Any, coefficients: tuple[float, ...], x: Any) -> Any:
    value = _f(m, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = m.let(value * x + _f(m, c))
    return value


def _log(m: Any, x: Any) -> Any:
    """The natural logarithm of normal positive float64, from basic operations only, to about 1e-16
    relative.
    """
    bits = m.let(m.bits(x))
    exponent = m.let(m.f64(bits >> m.u64(52)) - _f(m, 1023.0))
    fraction = m.let(m.from_bits((bits & m.u64((1 << 52) - 1)) | m.u64(1023 << 52)))
    large = fraction > _f(m, math.sqrt(2.0))
    f = m.let(m.choose(large, fraction * _f(m, 0.5), fraction))
    e = m.let(m.choose(large, exponent + _f(m, 1.0), exponent))
    s = m.let((f - _f(m, 1.0)) / (f + _f(m, 1.0)))
    series = _polynomial(m, tuple(2.0 / (2 * k + 1) for k in range(11)), m.let(s * s))
    return e * _f(m, math.log(2.0)) + s * series


def normal_quantile(m: Any, p: Any) -> Any:
    """The z that a standard normal number is below with probability `p`, 0 < p < 1 (AS241)."""
    q = m.let(p - _f(m, 0.5))
    central = m.let(_f(m, 0.180625) - q * q)
    middle = q * _polynomial(m, _A, central) / _polynomial(m, _B, central)
    below = m.let(m.choose(q < _f(m, 0.0), p, _f(m, 1.0) - p))
    r = m.let(m.sqrt(_f(m, 0.0) - _log(m, below)))
    near, far = m.let(r - _f(m, 1.6)), m.let(r - _f(m, 5.0))
    tail = m.let(
        m.choose(
            r <= _f(m, 5.0),
            _polynomial(m, _C, near) / _polynomial(m, _D, near),
            _polynomial(m, _E, far) / _polynomial(m, _F, far),
        )
    )
    signed = m.choose(q < _f(m, 0.0), _f(m, 0.0) - tail, tail)
    return m.choose(central >= _f(m, 0.0), middle, signed)


def uniform_value(m: Any, counter: Any, key: Any, dtype: DataType, low: float, high: float) -> Any:
    """``low + u * (high - low)`` in float64, with u of as many random bits as `dtype` holds."""
    u = _unit(m, _word(m, counter, key), _DIGITS[str(dtype)])
    return _f(m, low) + m.let(u * _f(m, high - low))


def normal_value(m: Any, counter: Any, key: Any, dtype: DataType, mean: float, std: float) -> Any:
    """``mean + std * z`` in float64, with z standard normal."""
    # In the middle between two multiples of 2**-52: never 0 nor 1.
    p = m.let((m.f64(_word(m, counter, key) >> m.u64(12)) + _f(m, 0.5)) * _f(m, 2.0**-52))
    return _f(m, mean) + m.let(normal_quantile(m, p) * _f(m, std))


# -- the operators --------------------------------------------------------------------------------


def _numpy_of(value: Callable[..., Any]) -> Callable[..., Any]:
    def meaning(shape: Any, seed: Any, **attrs: Any) -> Any:
        dtype = attrs.pop("dtype")
        key = np.asarray(seed).astype("int64").astype("uint64")
        counter = np.arange(math.prod(shape), dtype="uint64")
        with np.errstate(all="ignore"):
            drawn = value(_Numpy(), counter, key, dtype, **attrs)
        wide = np.asarray(drawn, "float64").reshape(tuple(shape))
        # By way of float32: bfloat16 is rounded from it, and float16 does as bfloat16.
        wide = wide if dtype == "float64" else wide.astype("float32")
        return wide if dtype.kind == "bfloat" else wide.astype(to_numpy_dtype(dtype))

    return meaning


def _lower_of(value: Callable[..., Any]) -> Lower:
    def lower(builder: LowerBuilder, call: Call) -> Expr:
        attrs = dict(call.attrs)
        dtype: DataType = attrs.pop("dtype")

        def fill(dims: list[PrimExpr], seed: Any, *, out: list[Buffer]) -> Stmt:
            (result,) = out

            def one(*i: PrimExpr) -> Stmt:
                m = _Scalar()
                number = load(seed) if isinstance(seed, Buffer) else seed
                key = m.let(cast("uint64", cast("int64", number)))
                counter = m.let(cast("uint64", ravel(i, result.shape)))
                wide = value(m, counter, key, dtype, **attrs)
                if dtype != "float64":
                    wide = cast(dtype, cast("float32", wide))
                return m.within(store(result, wide, *i))

            return for_each(result.shape, one)

        return call_loops(builder, call, fill, *call.args)

    return lower


def _random_info(shape: Expr, seed: Expr, dtype: DataType, numbers: dict[str, float]) -> StructInfo:
    info = seed.struct_info
    if isinstance(info, PrimStructInfo):
        if not info.dtype.is_int:
            raise StructInfoError(f"seed: wanted an integer, got {info.dtype}")
    else:
        tensor(seed, "seed", INTEGER, 0)
    if str(dtype) not in _DIGITS:
        raise StructInfoError(f"dtype: wanted one of {', '.join(_DIGITS)}, got {dtype}")
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise StructInfoError(f"{name}: wanted a finite number, got {value}")
    return TensorStructInfo(shape_argument(shape), dtype)


@op("random.uniform", _numpy_of(uniform_value), _lower_of(uniform_value), _RANDOM, _NO_AXES)
def uniform(
    shape: Shape,
    seed: Prim = 0,
    low: float = 0.0,
    high: float = 1.0,
    dtype: DataType = DataType("float32"),
) -> StructInfo:
    """Numbers spread evenly over [low, high), the same for the same `seed`; rounding may reach
    `high`.

    seed  an integer: a constant, a symbol, or a tensor without dimensions
    """
    info = _random_info(shape, seed, dtype, {"low": low, "high": high})
    if not low <= high or not math.isfinite(high - low):
        raise StructInfoError(
            f"high: wanted at least low, {low}, and a finite difference, got {high}"
        )
    return info


@op("random.normal", _numpy_of(normal_value), _lower_of(normal_value), _RANDOM, _NO_AXES)
def normal(
    shape: Shape,
    seed: Prim = 0,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: DataType = DataType("float32"),
) -> StructInfo:
    """Normally distributed numbers of the given mean and standard deviation, the same for the same
    `seed`.

    seed  an integer: a constant, a symbol, or a tensor without dimensions
    """
    info = _random_info(shape, seed, dtype, {"mean": mean, "std": std})
    if std < 0:
        raise StructInfoError(f"std: wanted at least 0, got {std}")
    return info


def _mt19937_numpy(shape: Any, seed: Any) -> np.ndarray:
    return np.random.RandomState(int(seed) & _LOW).random_sample(tuple(shape))


@op("random.mt19937", _mt19937_numpy, lower_by_meaning, _RANDOM, _NO_AXES)
def mt19937(shape: Shape, seed: Prim) -> StructInfo:
    """Numbers in [0, 1) of float64, those of ``numpy.random.RandomState(seed).random_sample``.
    Each number follows from the one before, so that no loops are made of it: numpy runs.

    seed  an integer, of which the lowest 32 bits count
    """
    return _random_info(shape, seed, DataType("float64"), {})


# -- choosing by probability ----------------------------------------------------------------------


def _multinomial_numpy(
    prob: Any, uniform_sample: Any, sample_indices: Any = None, *, dtype: Any = "int64"
) -> Any:
    samples = uniform_sample.reshape(-1)
    rows = np.arange(len(samples)) if sample_indices is None else sample_indices.reshape(-1)
    if prob.shape[1] == 0 and len(samples):
        raise VMValueError("multinomial_from_uniform: prob: there is nothing to choose from")
    rows = bounded(rows, prob.shape[0], "multinomial_from_uniform")
    wide = np.float32 if prob.dtype == np.float16 else prob.dtype
    total = np.cumsum(prob.astype(wide), axis=1, dtype=wide)
    drawn = np.empty((len(samples), 1), str(dtype))
    for n, (row, u) in enumerate(zip(rows, samples)):
        above = np.flatnonzero(np.float64(u) < total[row].astype("float64"))
        drawn[n] = above[0] if len(above) else prob.shape[1] - 1
    return drawn


def _lower_multinomial(builder: LowerBuilder, call: Call) -> Expr:
    dtype = tensor_of(call.args[0]).dtype
    wide = DataType("float32") if dtype.bits == 16 else dtype

    def fill(prob: Buffer, samples: Buffer, *rows: Buffer, out: list[Buffer], scratch: Any) -> Stmt:
        (drawn,), (total, done) = out, scratch
        size = prob.shape[1]

        def one(n: PrimExpr) -> list[Stmt]:
            row = from_end(load(rows[0], n, ZERO), prob.shape[0]) if rows else n

            def step(k: PrimExpr) -> list[Stmt]:
                above = cast("float64", load(samples, n, ZERO)) < cast("float64", load(total, ZERO))
                hit = And(above, load(done, ZERO).equal(ZERO))
                taken = seq(store(drawn, cast(drawn.dtype, k), n, ZERO), store(done, ONE, ZERO))
                return [
                    store(total, load(total, ZERO) + cast(wide, load(prob, row, k)), ZERO),
                    IfThenElse(hit, taken),
                ]

            checks = [assert_that(size > ZERO, _EMPTY)]
            if rows:
                checks.append(assert_that(inside(row, prob.shape[0]), _OUTSIDE))
            return [
                *checks,
                store(total, const(0.0, wide), ZERO),
                store(done, ZERO, ZERO),
                store(drawn, cast(drawn.dtype, size - 1), n, ZERO),
                for_each([size], step, "k"),
            ]

        return for_each([samples.shape[0]], one, "n")

    scratch = [((ONE,), wide), ((ONE,), "int64")]
    return call_loops(builder, call, fill, *call.args, scratch=scratch)


_EMPTY = "multinomial_from_uniform: prob: there is nothing to choose from"
_OUTSIDE = "multinomial_from_uniform: sample_indices: a row is out of bounds"


@op(
    "multinomial_from_uniform",
    numpy=_multinomial_numpy,
    lower=_lower_multinomial,
    grad=missing("gives indices"),
    layout=missing("rows are numbered by position"),
)
def multinomial_from_uniform(
    prob: Expr,
    uniform_sample: Expr,
    sample_indices: Expr | None = None,
    dtype: DataType = DataType("int64"),
) -> StructInfo:
    """Where each uniform number falls among the running sums of a row of probabilities.

    prob            [rows, choices]        uniform_sample  [n, 1], in [0, 1)
    sample_indices  [n, 1], the row for each number; without it, number k goes with row k
    returns         [n, 1]: the first choice whose running sum is above the number, else the last

    The sums are taken in order, those of the 16-bit floats in float32.
    """
    info = tensor(prob, "prob", FLOAT, 2)
    samples = tensor(uniform_sample, "uniform_sample", FLOAT, 2)
    if not dtype.is_int:
        raise StructInfoError(f"dtype: wanted an integer dtype, got {dtype}")
    rows, of_what = info, "prob"
    if sample_indices is not None:
        rows, of_what = tensor(sample_indices, "sample_indices", INTEGER, 2), "sample_indices"
        want_equal(rows.dims[1], ONE, "sample_indices: wanted shape (n, 1), got {a} columns")
    want_equal(samples.dims[1], ONE, "uniform_sample: wanted shape (n, 1), got {a} columns")
    text = "uniform_sample: wanted {a} rows as {of_what} has, got {b}"
    want_equal(rows.dims[0], samples.dims[0], text, of_what=of_what)
    return TensorStructInfo((samples.dims[0], ONE), dtype, info.vdevice)
