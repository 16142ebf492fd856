"""Random numbers that follow from a seed."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from op_table import FLOATS, Case, Sh, Sym, T, check, check_errors

from relaxvm import relax
from relaxvm.base import VMError
from relaxvm.relax import op as R
from relaxvm.relax.op import random as generator
from relaxvm.relax.op.meaning import evaluate
from relaxvm.runtime import VirtualMachine, cpu

F32 = ("float32",)


def thirds(rng, shape):
    return np.full(shape, 1 / shape[1])


CASES = [
    *(
        Case(R.random.uniform, Sh("n", 40), seed, low=-1.0, high=2.0, dtype=d, dtypes=(d,),
             exact=True, name=f"uniform {seed} {d}")
        for d in FLOATS for seed in (0, -1, 1 << 62)
    ),
    *(
        Case(R.random.normal, Sh("n", 40), seed, mean=1.0, std=3.0, dtype=d, dtypes=(d,),
             exact=True, name=f"normal {seed} {d}")
        for d in FLOATS for seed in (0, 1234567890123)
    ),
    Case(R.random.uniform, Sh("n", 0), Sym("m"), dtypes=F32, exact=True),
    Case(R.random.uniform, Sh(), T(dtype="int64", data=7), dtypes=F32, exact=True),
    Case(R.random.normal, Sh(3), T(dtype="uint32", data=7), std=0.0, dtypes=F32, exact=True),
    Case(R.multinomial_from_uniform, T("n", 5, data=thirds), T("n", 1, low=0.0, high=1.0)),
    Case(R.multinomial_from_uniform, T(2, "k", data=thirds), T("m", 1, low=0.0, high=1.0),
         T("m", 1, dtype="int32", low=-2, high=1), dtype="int32", dtypes=F32, sizes={"m": 6}),
    Case(R.multinomial_from_uniform, T(2, 3, data=[[0, 0, 0], [0, 1, 0]]),
         T(2, 1, data=[[0.0], [0.0]]), dtypes=F32),
    Case(R.multinomial_from_uniform, T(0, 3), T(0, 1), dtypes=F32),
]  # fmt: skip


def test_same_bits_in_numpy_interpreter_and_native_code():
    check(CASES, in_turn=True)


@pytest.mark.slow
def test_same_bits_in_numpy_interpreter_and_native_code_of_every_dtype():
    check(CASES, slow=True)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        # The known answers that the authors publish with Random123 (philox4x32, 10 rounds).
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(counter, key, words):
    made = generator.philox(
        generator._Numpy(), tuple(map(np.uint64, counter)), tuple(map(np.uint64, key))
    )
    assert tuple(int(w) for w in made) == words


def test_normal_quantile_is_that_of_the_standard_library():
    p = np.concatenate([np.linspace(1e-3, 0.999, 401), 2.0 ** -np.arange(2, 54), [1 - 2.0**-52]])
    wanted = np.array([statistics.NormalDist().inv_cdf(float(v)) for v in p])
    got = generator.normal_quantile(generator._Numpy(), p)
    assert np.allclose(got, wanted, rtol=5e-15, atol=1e-15)


def test_uniform_fills_its_range_evenly():
    x = evaluate(R.random.uniform((100_000,), 3, low=2.0, high=4.0, dtype="float64"))
    assert 2.0 <= x.min() < 2.001
    assert 3.999 < x.max() < 4.0
    counts = np.histogram(x, 20, (2.0, 4.0))[0]
    # Five standard deviations of a binomial count with p = 1/20.
    assert np.all(abs(counts - 5000) < 5 * np.sqrt(5000 * 0.95))


def test_normal_has_its_mean_and_deviation():
    x = evaluate(R.random.normal((100_000,), 3, mean=2.0, std=4.0, dtype="float64"))
    assert abs(x.mean() - 2.0) < 5 * 4.0 / np.sqrt(1e5)
    assert abs(x.std() - 4.0) < 5 * 4.0 / np.sqrt(2e5)
    assert abs(np.mean(x < 2.0) - 0.5) < 5 * 0.5 / np.sqrt(1e5)


def test_seeds_give_different_numbers_and_one_seed_the_same():
    one, same, other = (evaluate(R.random.uniform((8,), s)) for s in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.any(one == other)


def test_a_longer_tensor_begins_with_the_shorter_one():
    short, long = (evaluate(R.random.normal((n,), 1)) for n in (5, 9))
    assert np.array_equal(short, long[:5])


def test_multinomial_refuses_a_row_that_is_not_there():
    prob = relax.Var("prob", relax.TensorStructInfo((2, 3), "float32"))
    u = relax.Var("u", relax.TensorStructInfo((1, 1), "float32"))
    row = relax.Var("row", relax.TensorStructInfo((1, 1), "int64"))
    vm = build("f", [prob, u, row], R.multinomial_from_uniform(prob, u, row))
    p = np.full((2, 3), 1 / 3, "float32")
    assert vm["f"](p, np.zeros((1, 1), "float32"), np.array([[-1]])).numpy().tolist() == [[0]]
    with pytest.raises(VMError, match="a row is out of bounds"):
        vm["f"](p, np.zeros((1, 1), "float32"), np.array([[2]]))


def build(name, params, call):
    builder = relax.BlockBuilder()
    with builder.function(name, params):
        builder.emit_func_output(builder.emit(call))
    return VirtualMachine(relax.build(builder.get(), target="llvm"), cpu())


def test_mistakes_are_named():
    shape = (2, 3)
    prob = relax.Var("prob", relax.TensorStructInfo((2, 3), "float32"))
    u = relax.Var("u", relax.TensorStructInfo((3, 1), "float32"))
    wide = relax.Var("u", relax.TensorStructInfo((2, 2), "float32"))
    check_errors(
        [
            (lambda: R.random.uniform(shape, 1.5), "random.uniform: seed: wanted an integer"),
            (lambda: R.random.uniform(shape, 1, dtype="int32"), "dtype: wanted one of float16"),
            (lambda: R.random.uniform(shape, 1, low=2.0), "high: wanted at least low, 2.0"),
            (lambda: R.random.uniform(shape, 1, high=np.inf), "high: wanted a finite number"),
            (lambda: R.random.normal(shape, 1, std=-1.0), "std: wanted at least 0, got -1.0"),
            (lambda: R.random.normal(shape, prob), "seed: wanted an integer dtype, got float32"),
            (
                lambda: R.multinomial_from_uniform(prob, u),
                "uniform_sample: wanted 2 rows as prob has, got 3",
            ),
            (lambda: R.multinomial_from_uniform(prob, wide), r"wanted shape \(n, 1\), got 2 col"),
            (lambda: R.multinomial_from_uniform(prob, u, u), "sample_indices: wanted an integer"),
        ]
    )
