"""Random graphs of operators with symbolic shapes: compiled, interpreted, numpy meanings agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relax_vm_helpers import build_interpreted

from relaxvm import relax
from relaxvm.base import StructInfoError
from relaxvm.ir import Var
from relaxvm.relax import op as R
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.op.meaning import evaluate
from relaxvm.runtime import VirtualMachine, cpu

SIZES = {"n": 3, "m": 2}
# Bounded functions, so that values stay where float32 and float64 agree.
UNARY = (R.sin, R.cos, R.tanh, R.sigmoid, R.negative, R.abs, R.erf, R.atan, R.sign, R.floor)
BINARY = (R.add, R.subtract, R.multiply, R.minimum, R.maximum)
COMPARE = (R.less, R.greater_equal, R.not_equal)


class Graph:
    """Grows an expression graph; every float value stays within a few units of 0."""

    def __init__(self, draw, count):
        self.draw = draw
        n, m = (Var(name, "int64") for name in SIZES)
        self.symbols = dict(zip((n, m), SIZES.values()))
        shapes = [(n, 4), (n, 1), (4,), (m, n, 4), ()]
        self.params = [
            relax.Var(f"p{i}", relax.TensorStructInfo(s, "float32")) for i, s in enumerate(shapes)
        ]
        self.values = list(self.params)
        self.nodes = [self.grow() for _ in range(count)]

    def pick(self, options):
        return self.draw(st.sampled_from(options))

    def grow(self):
        made = self.pick(
            (self.unary, self.binary, self.scalar, self.where, self.reduce, self.cast, self.shape)
        )()
        self.values.append(R.tanh(made) if made.op in (o.op for o in (*BINARY, R.sum)) else made)
        return made

    def unary(self):
        return self.pick(UNARY)(self.pick(self.values))

    def binary(self):
        return self.pick(BINARY)(*self.pair())

    def pair(self):
        x = self.pick(self.values)
        fits = []
        for y in self.values:
            try:
                made = R.add(x, y)
            except StructInfoError:
                continue
            # Whether these broadcast may depend on n: unknown dimensions, or a run-time check.
            if made.struct_info.dims is not None and self.broadcast(x, y):
                fits.append(y)
        return x, self.pick(fits)

    def broadcast(self, *operands):
        shapes = [
            [self.symbols[d] if isinstance(d, Var) else int(d) for d in e.struct_info.dims]
            for e in operands
        ]
        try:
            np.broadcast_shapes(*shapes)
        except ValueError:
            return False
        return True

    def scalar(self):
        return self.pick(BINARY)(self.pick(self.values), self.pick((0.5, -1, 2)))

    def where(self):
        x, y = self.pair()
        return R.where(self.pick(COMPARE)(x, y), x, y)

    def reduce(self):
        x = self.pick(self.values)
        axis = None if x.struct_info.ndim < 1 else self.pick((None, -1, 0))
        return self.pick((R.sum, R.mean, R.max, R.min))(
            x, axis=axis, keepdims=self.draw(st.booleans())
        )

    def cast(self):
        x = R.astype(self.pick(self.values), self.pick(("float64", "float16", "int32")))
        return R.astype(x, "float32")

    def shape(self):
        x = self.pick(self.values)
        ndim = x.struct_info.ndim
        if ndim and self.draw(st.booleans()):
            return R.permute_dims(x, tuple(reversed(range(ndim))))
        return R.expand_dims(x, 0) if ndim < 4 else R.negative(x)


def arrays(graph, seed):
    rng = np.random.default_rng(seed)
    sizes = {id(s): v for s, v in graph.symbols.items()}
    made = []
    for p in graph.params:
        dims = [sizes[id(d)] if isinstance(d, Var) else int(d) for d in p.struct_info.dims]
        made.append(rng.uniform(-2, 2, dims).astype("float32"))
    return made


def check(data, count):
    graph = Graph(data.draw, count)
    outputs = graph.nodes[-3:]
    builder = relax.BlockBuilder()
    with builder.function("main", graph.params):
        with builder.dataflow():
            out = builder.emit_output(relax.Tuple(outputs))
        builder.emit_func_output(out)
    mod = builder.get()
    assert_well_formed(mod)
    values = arrays(graph, data.draw(st.integers(0, 2**32 - 1)))
    env = dict(zip(graph.params, values))
    want = [evaluate(o, env, graph.symbols) for o in outputs]
    for vm in (VirtualMachine(relax.build(mod), cpu()), build_interpreted(mod)):
        got = vm["main"](*values)
        for g, w in zip(got, want):
            # floor, sign and casts jump: a last digit may move a value across the edge, once in a
            # while.
            near = np.isclose(g.numpy(), w, 1e-4, 1e-4)
            assert g.shape == w.shape
            assert near.mean() > 0.95 or near.size - near.sum() <= 1


@settings(max_examples=12)
@given(st.data())
def test_small_graphs(data):
    check(data, data.draw(st.integers(3, 10)))


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_large_graphs(data):
    check(data, data.draw(st.integers(10, 50)))
