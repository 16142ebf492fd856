"""Levels say how much is done, never what comes out; numerics="exact" says that to the last bit."""

import numpy as np
import pytest
from ten_graphs import NAMES, flat, small

from relaxvm import relax
from relaxvm.base import float32_to_bfloat16
from relaxvm.ir import PassContext
from relaxvm.relax import op
from relaxvm.runtime import VirtualMachine, cpu
from relaxvm.runtime import array as array_of
from relaxvm.runtime.threads import set_num_threads

LEVELS = (0, 1, 2, 3, 4)
EXACT = {"numerics": "exact"}


def results(mod, inputs, levels, config=None, threads=(1,), modes=("compiled",)):
    """What `main` gives at each level, with each number of threads, in each way of running."""
    for level in levels:
        with PassContext(opt_level=level, config=config):
            executable = relax.build(mod, "llvm")
        for mode in modes:
            main = VirtualMachine(executable, cpu(), exec_mode=mode)["main"]
            for count in threads:
                former = set_num_threads(count)
                try:
                    yield f"level {level}, {mode}, {count} threads", flat(main(*inputs))
                finally:
                    set_num_threads(former)


def assert_same_bits(mod, inputs, levels):
    ways = results(mod, inputs, levels, EXACT, (1, 2, 1), ("compiled", "bytecode"))
    _, first = next(ways)
    assert first
    for way, other in ways:
        assert [a.tobytes() for a in other] == [a.tobytes() for a in first], way


def assert_close(mod, inputs, levels):
    ways = results(mod, inputs, levels)
    _, first = next(ways)
    for way, other in ways:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3, err_msg=way)


QUICK = ("llama_decode", "lstm")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)
def test_exact_graphs_give_the_same_bits_at_every_level(name):
    assert_same_bits(*small(name)[:2], (0, 2, 4) if name in QUICK else LEVELS)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_graphs_give_the_same_at_every_level(name):
    assert_close(*small(name)[:2], LEVELS)


REDUCING = {
    "matmul": (lambda x, w: op.matmul(x, w), (65, 130), (130, 97)),
    "few rows": (lambda x, w: op.matmul(x, w), (2, 1300), (1300, 97)),
    "batched": (lambda x, w: op.matmul(x, w), (3, 33, 65), (3, 65, 40)),
    "transposed": (lambda x, w: op.matmul(x, op.permute_dims(w)), (33, 65), (40, 65)),
    "convolution": (lambda x, w: op.nn.conv2d(x, w, padding=1), (1, 24, 15, 15), (33, 24, 3, 3)),
    "strided": (lambda x, w: op.nn.conv2d(x, w, strides=2), (2, 16, 15, 15), (16, 16, 3, 3)),
    "depthwise": (
        lambda x, w: op.nn.conv2d(x, w, padding=1, groups=32),
        (1, 32, 14, 14),
        (32, 1, 3, 3),
    ),
    "row sums": (lambda x: op.sum(x, axis=1), (64, 1000)),
    "column sums": (lambda x: op.sum(x, axis=0), (1000, 64)),
    "sum of all": (lambda x: op.sum(x), (300, 1024)),
    "product": (lambda x: op.prod(x, axis=-1), (64, 33)),
    "average pool": (
        lambda x: op.nn.avg_pool2d(x, pool_size=(5, 5), padding=(2, 2)),
        (1, 16, 28, 28),
    ),
    "max pool": (lambda x: op.nn.max_pool2d(x, pool_size=(3, 3)), (1, 16, 28, 28)),
    "softmax": (lambda x: op.nn.softmax(x), (64, 1000)),
    "variance": (lambda x: op.variance(x, axis=[1, 2]), (16, 33, 40)),
    "layer norm": (
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
        (64, 300),
        (300,),
        (300,),
    ),
    "attention": (
        lambda q, k, v: op.nn.attention(q, k, v),
        (1, 40, 4, 32),
        (1, 40, 4, 32),
        (1, 40, 4, 32),
    ),
    "cumulative sum": (lambda x: op.cumsum(x, axis=1), (16, 300)),
}


def values(rng, shape, dtype):
    array = rng.standard_normal(shape).astype("float32")
    array = float32_to_bfloat16(array) if dtype == "bfloat16" else array.astype(dtype)
    return array_of(array, dtype=dtype)


def program(make, shapes, dtype, constant):
    """A function of the first shape's tensor; the others are constants, or parameters too."""
    rng = np.random.default_rng(0)
    arrays = [values(rng, s, dtype) for s in shapes]
    x, *rest = [relax.Var(f"x{i}", relax.TensorStructInfo(s, dtype)) for i, s in enumerate(shapes)]
    params = [x] if constant else [x, *rest]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            others = [relax.const(a) for a in arrays[1:]] if constant else rest
            out = builder.emit_output(make(x, *others))
        builder.emit_func_output(out)
    return builder.get(), arrays[: len(params)]


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        *(pytest.param(d, marks=pytest.mark.slow) for d in ("float64", "float16", "bfloat16")),
    ],
)
@pytest.mark.parametrize("name", REDUCING)
def test_exact_operators_give_the_same_bits_with_and_without_schedules(name, dtype):
    make, *shapes = REDUCING[name]
    for constant in (False, True) if len(shapes) > 1 else (False,):
        assert_same_bits(*program(make, shapes, dtype, constant), (0, 2))
