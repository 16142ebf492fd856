"""Random quantised graphs: islands of floats between stored bytes, and the integers for them.

Each island reads stored tensors, computes a few operators in floats and stores the result. All that
is stored is a result of the module, so that each island can be compared by itself: what integers
give for what *integers* stored before it lies within one step of what floats give for the same,
whatever the rounding of earlier islands was.
"""

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.ir import PassContext
from relaxvm.relax import op as R
from relaxvm.relax.interp import Evaluator
from relaxvm.relax.transform import FakeQuantizationToInteger, LegalizeQnn
from relaxvm.runtime import VirtualMachine, cpu
from relaxvm.tir import Var as Symbol

N = Symbol("n", "int64")
CHANNELS, SIZE = 4, 6


class Stored:
    """A stored tensor [n, *shape]: its variable, and the parameters of its integers."""

    def __init__(self, var, shape, scale, zero, dtype):
        self.var, self.shape, self.dtype = var, shape, dtype
        self.scale, self.zero = relax.const(np.float32(scale)), relax.const(np.int32(zero))

    def real(self, var):
        return R.dequantize(var, self.scale, self.zero)

    def info(self, n):
        return relax.TensorStructInfo((n, *self.shape), self.dtype)


class Graph:
    """islands: (what they read, (*stored variables) -> stored call, what they store)."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        shape, dtype = (CHANNELS, SIZE, SIZE), self.dtype()
        info = relax.TensorStructInfo((N, *shape), dtype)
        self.input = Stored(relax.Var("x", info), shape, 0.02, self.zero(dtype), dtype)
        self.values, self.islands = [self.input], []
        self.sample = [self.bytes((3, *shape), dtype)]
        for _ in range(self.rng.integers(2, 6)):
            self.island()

    def dtype(self):
        return str(self.rng.choice(["int8", "uint8"]))

    def zero(self, dtype):
        limits = np.iinfo(dtype)
        return self.rng.choice([limits.min, 0, limits.max, self.rng.integers(-100, 101)]).clip(
            limits.min, limits.max
        )

    def bytes(self, shape, dtype):
        limits = np.iinfo(dtype)
        return self.rng.integers(limits.min, limits.max + 1, shape, dtype)

    def weight(self, *shape, axis):
        """A weight with a scale for all of it, or for each channel along `axis`."""
        channels = [shape[axis]] if self.rng.random() < 0.6 else []
        scale = self.rng.uniform(0.002, 0.02, channels).astype("float32")
        stored = relax.const(self.rng.integers(-127, 128, shape, "int8"))
        return R.dequantize(stored, relax.const(scale), relax.const(np.int32(0)), axis=axis)

    def island(self):
        """Add an island on some stored tensors; its scale is that of what it is for a sample."""
        rng = self.rng
        first = len(self.values) - 1 if rng.random() < 0.7 else rng.integers(0, len(self.values))
        alike = [k for k, v in enumerate(self.values) if v.shape == self.values[first].shape]
        places = [first, int(rng.choice(alike))]
        read = [self.values[k] for k in places]
        compute = self.operators(read[0].shape)

        def reals(*given):
            return compute(*(v.real(x) for v, x in zip(read, given, strict=True)))

        real = run(module(reals, read), [self.sample[k] for k in places])
        dtype, limits = self.dtype(), np.iinfo
        low, high = min(real.min(), 0.0), max(real.max(), 0.0)
        scale = np.float32(max(high - low, 0.1) / 255 * rng.uniform(0.6, 1.5))  # some saturate
        zero = np.clip(np.rint(limits(dtype).min - low / scale), *ends(dtype))

        def stored(*given):
            scales = relax.const(scale), relax.const(np.int32(zero))
            return R.quantize(reals(*given), *scales, out_dtype=dtype)

        self.sample.append(run(module(stored, read), [self.sample[k] for k in places]))
        self.values.append(Stored(None, real.shape[1:], scale, zero, dtype))
        self.islands.append((places, stored))

    def operators(self, shape):
        """A product, convolution or sum, and what may follow it, of tensors of `shape`."""
        rng, image = self.rng, len(shape) == 3
        kind = rng.integers(0, 5)
        if kind == 0:
            core = lambda a, b: R.add(a, b)  # noqa: E731
            behind = shape
        elif kind == 1:
            core = lambda a, b: R.concat([a, b], axis=1)  # noqa: E731
            behind = (2 * shape[0], *shape[1:])
        elif image:
            channels, outputs = shape[0], CHANNELS
            groups = int(rng.choice([1, 2, channels])) if channels % CHANNELS == 0 else 1
            outputs = max(outputs, groups)
            window = int(rng.choice([1, 3])) if shape[1] > 2 else 1
            weight = self.weight(outputs, channels // groups, window, window, axis=0)
            attrs = {"padding": window // 2, "groups": groups, "strides": int(rng.integers(1, 3))}
            core = lambda a, b: R.nn.conv2d(a, weight, **attrs)  # noqa: E731
            size = (shape[1] - 1) // attrs["strides"] + 1
            behind = (outputs, size, size)
        else:
            weight = self.weight(shape[0], 8, axis=1)
            core = lambda a, b: R.matmul(a, weight)  # noqa: E731
            behind = (8,)
        follow = []
        if kind > 1 and rng.random() < 0.6:
            wide = (behind[0],) + (1,) * (len(behind) - 1)
            bias = relax.const(rng.standard_normal(wide).astype("float32"))
            follow.append(lambda y: R.add(y, bias))
        follow += [[], [R.nn.relu], [lambda y: R.clip(y, -1.0, 2.5)]][rng.integers(0, 3)]
        if len(behind) == 3 and behind[1] > 1:
            pools = [
                lambda y: R.nn.max_pool2d(y, 2, 2),
                lambda y: R.nn.avg_pool2d(y, 2, 2),
                lambda y: R.mean(y, axis=[2, 3]),
                lambda y: R.reshape(y, (-1, int(np.prod(behind)))),
            ]
            follow += pools[k : k + 1] if (k := rng.integers(0, 8)) < 4 else []

        def compute(a, b):
            y = core(a, b)
            for f in follow:
                y = f(y)
            return y

        return compute

    def whole(self):
        """The module of all islands; its result is what each stores."""
        bb = relax.BlockBuilder()
        with bb.function("main", [self.input.var]):
            with bb.dataflow():
                given = [self.input.var]
                for places, stored in self.islands:
                    given.append(bb.emit(bb.normalize(stored(*(given[k] for k in places)))))
                out = bb.emit_output(relax.Tuple(given[1:]))
            bb.emit_func_output(out)
        return bb.get()


def ends(dtype):
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def module(f, read):
    """`f` of variables for stored tensors."""
    given = [relax.Var(f"x{k}", v.info(N)) for k, v in enumerate(read)]
    bb = relax.BlockBuilder()
    with bb.function("main", given):
        with bb.dataflow():
            out = bb.emit_output(bb.normalize(f(*given)))
        bb.emit_func_output(out)
    return bb.get()


def run(mod, arrays):
    return np.asarray(Evaluator(mod)("main", *arrays))


def battery(quick, count):
    slow = (pytest.param(k, marks=pytest.mark.slow) for k in range(quick, count))
    return pytest.mark.parametrize("seed", [*range(quick), *slow])


@battery(6, 150)
def test_integers_lie_within_a_step_of_the_floats_they_stand_for(seed):
    graph = Graph(seed)
    integers = FakeQuantizationToInteger()(graph.whole())
    legal = LegalizeQnn()(integers)
    assert "R.qnn." not in legal.script()
    for n in (0, 1, 3):
        x = graph.bytes((n, *graph.input.shape), graph.input.dtype)
        given = [x, *Evaluator(integers)("main", x)]
        for got, again in zip(given[1:], Evaluator(legal)("main", x), strict=True):
            np.testing.assert_array_equal(got, again)
        for k, (places, stored) in enumerate(graph.islands):
            read = [graph.values[p] for p in places]
            wanted = run(module(stored, read), [given[p] for p in places])
            assert given[k + 1].dtype == wanted.dtype
            steps = np.abs(given[k + 1].astype(int) - wanted)
            assert steps.max(initial=0) <= 1, f"island {k} of seed {seed}, n = {n}"


@battery(1, 12)
def test_compiled_integers_are_the_oracles_at_every_level(seed):
    graph = Graph(seed)
    integers = FakeQuantizationToInteger()(graph.whole())
    inputs = [graph.bytes((n, *graph.input.shape), graph.input.dtype) for n in (0, 1, 5)]
    wanted = [Evaluator(integers)("main", x) for x in inputs]
    for level in range(5):
        with PassContext(opt_level=level):
            machine = VirtualMachine(relax.build(integers, "llvm"), cpu())
        for x, results in zip(inputs, wanted):
            for got, result in zip(machine["main"](x), results, strict=True):
                np.testing.assert_array_equal(got.numpy(), result)
