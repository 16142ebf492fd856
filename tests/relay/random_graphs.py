"""Random graphs in Relay's spelling: DAGs of calls without names, whose values are used again, with
tuples, lets, branches and local functions, and what numpy says that they mean.

    graph = random_graph(7)
    relay.build(graph.mod)                          # or any pass
    run(graph.mod) equals graph.expected            # to float32's rounding

With `untyped`, weights have no types: those that operators determine.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import relaxvm as tvm
from relaxvm import relax, relay
from relaxvm.relax.analysis import free_vars
from relaxvm.relax.interp import Evaluator


@dataclasses.dataclass
class RandomGraph:
    """A function, values of its parameters in their order, and its result."""

    function: Any
    arguments: list[np.ndarray]
    weights: dict[str, np.ndarray]
    expected: Any
    globals: dict[str, Any]

    @property
    def mod(self):
        mod = tvm.IRModule({name: fn for name, (_, fn) in self.globals.items()})
        mod["main"] = self.function
        return mod

    def names(self):
        return [p.name_hint for p in self.function.params]


def random_graph(seed, size=12, *, untyped=False, control=True, mixed=False):
    """`size` operators over one or two inputs.

    control  whether branches, lets and local functions may come
    mixed    whether names repeat, and operators that are written with several others, integers,
             and functions with attributes or of the module may come
    """
    return _Maker(np.random.default_rng(seed), untyped, control, mixed).graph(size)


def run(mod, arguments):
    """What `mod` means, by the interpreter."""
    return Evaluator(mod)("main", *arguments)


def leaves(value):
    """The arrays of a result, tuples flattened."""
    fields = value if isinstance(value, (tuple, list)) else None
    return [np.asarray(value)] if fields is None else [a for f in fields for a in leaves(f)]


def assert_close(got, wanted, rtol=2e-4, atol=2e-4):
    """Results are the same but for float32's rounding."""
    for a, b in zip(leaves(got), leaves(wanted), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


class _Maker:
    """Grows a graph. A value is an expression and the array that it means."""

    def __init__(self, rng, untyped, control, mixed):
        self.rng, self.untyped, self.mixed = rng, untyped, mixed
        self.params, self.weights, self.globals = [], {}, {}
        self.pool = []
        self.steps = [
            *(self.unary, self.binary, self.with_number) * 2,
            *(self.dense, self.conv2d, self.bias_add, self.batch_norm, self.layer_norm),
            *(self.pool2d, self.softmax, self.reduction, self.reshape, self.transpose),
            *(self.concatenate, self.stack, self.split, self.strided_slice, self.take),
            *(self.where, self.cast, self.expand_squeeze, self.prelu, self.matmul),
            *((self.branch, self.let, self.local_function, self.field) if control else ()),
            *((self.several, self.integers, self.global_function, self.marked) if mixed else ()),
        ]

    def graph(self, size):
        for _ in range(self.rng.integers(1, 3)):
            self.pool.append(self.input(self.shape()))
        while size:
            step = self.steps[self.rng.integers(len(self.steps))]
            made = step()
            if made is not None and np.abs(made[1]).max(initial=0) < 100 and made[1].size < 4000:
                self.pool.append(made)
                size -= 1
        results = [self.pool[-1]]
        if self.rng.random() < 0.3:
            results.append(self.any_value())
            body = relay.Tuple([e for e, _ in results])
        else:
            body = results[0][0]
        expected = tuple(v for _, v in results)
        used = set(free_vars(body))
        params = [(p, v) for p, v in self.params if p in used]
        return RandomGraph(
            relay.Function([p for p, _ in params], body),
            [v for _, v in params],
            self.weights,
            expected if len(results) > 1 else expected[0],
            self.globals,
        )

    # -- parts -------------------------------------------------------------------------------------

    def shape(self):
        rank = self.rng.integers(1, 5)
        return tuple(int(n) for n in self.rng.integers(1, 6, rank))

    def random(self, shape):
        return self.rng.standard_normal(shape).astype("float32")

    def input(self, shape, dtype="float32", value=None):
        value = self.random(shape) if value is None else value
        name = "x" if self.mixed else f"x{len(self.params)}"
        var = relay.var(name, shape=value.shape, dtype=dtype)
        self.params.append((var, value))
        return var, value

    def weight(self, shape, positive=False):
        """A parameter, or a constant."""
        value = self.random(shape) * np.float32(0.5)
        value = np.abs(value) + np.float32(0.5) if positive else value
        if self.rng.random() < 0.3:
            return relay.const(value), value
        name = f"w{len(self.params)}"
        var = relay.var(name) if self.untyped else relay.var(name, shape=value.shape)
        self.params.append((var, value))
        self.weights[name] = value
        return var, value

    def any_value(self, rank=None, least=0):
        """A value there is, often one that is used already. None if there is none of that rank."""
        found = [
            (e, v) for e, v in self.pool if v.ndim == (v.ndim if rank is None else rank) >= least
        ]
        return found[self.rng.integers(len(found))] if found else None

    def axis(self, value):
        return int(self.rng.integers(-value.ndim, value.ndim))

    # -- steps: each gives a value, or None if there is nothing it fits ----------------------------

    def unary(self):
        e, v = self.any_value()
        ops = {
            relay.tanh: np.tanh,
            relay.sigmoid: lambda v: 1 / (1 + np.exp(-v)),
            relay.negative: np.negative,
            relay.abs: np.abs,
            relay.nn.relu: lambda v: np.maximum(v, 0),
            relay.nn.leaky_relu: lambda v: np.where(v > 0, v, v * np.float32(0.01)),
            (lambda e: relay.exp(relay.clip(e, -2.0, 2.0))): lambda v: np.exp(np.clip(v, -2, 2)),
            (lambda e: relay.sqrt(relay.abs(e))): lambda v: np.sqrt(np.abs(v)),
            relay.copy: lambda v: v,
            (lambda e: relay.nn.dropout(e, 0.5)): lambda v: v,
        }
        build, means = list(ops.items())[self.rng.integers(len(ops))]
        return build(e), means(v)

    def binary(self):
        e, v = self.any_value()
        alike = [(f, w) for f, w in self.pool if w.shape == v.shape]
        f, w = alike[self.rng.integers(len(alike))]
        if self.rng.random() < 0.2:
            f, w = self.weight(tuple(n if self.rng.random() < 0.7 else 1 for n in v.shape))
        if self.untyped and isinstance(f, relay.Var) and f.name_hint in self.weights:
            return None
        ops = {
            relay.add: np.add,
            relay.subtract: np.subtract,
            relay.multiply: np.multiply,
            relay.maximum: np.maximum,
            relay.minimum: np.minimum,
            (lambda e, f: e / (relay.abs(f) + relay.const(1.0))): lambda v, w: v / (abs(w) + 1),
        }
        build, means = list(ops.items())[self.rng.integers(len(ops))]
        return build(e, f), means(v, w)

    def with_number(self):
        e, v = self.any_value()
        number = float(np.float32(self.rng.integers(1, 8) / 4))
        if self.rng.random() < 0.5:
            return e * relay.const(number), v * np.float32(number)
        return e + relay.const(number), v + np.float32(number)

    def dense(self):
        found = self.any_value(2)
        if found is None:
            return None
        (e, v), units = found, int(self.rng.integers(1, 6))
        w, u = self.weight((units, v.shape[1]))
        return relay.nn.dense(e, w, units=units), v @ u.T

    def matmul(self):
        found = self.any_value(3)
        if found is None:
            return None
        e, v = found
        return relay.nn.batch_matmul(e, e), v @ v.transpose(0, 2, 1)

    def conv2d(self):
        found = self.any_value(4)
        if found is None:
            return None
        (e, v), kernel = found, int(self.rng.choice([1, 3]))
        channels, pad = int(self.rng.integers(1, 5)), kernel // 2
        w, u = self.weight((channels, v.shape[1], kernel, kernel))
        wide = np.pad(v, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(wide, (kernel, kernel), (2, 3))
        made = relay.nn.conv2d(
            e, w, padding=(pad, pad), channels=channels, kernel_size=(kernel, kernel)
        )
        return made, np.einsum("nchwij,ocij->nohw", windows, u)

    def bias_add(self):
        e, v = self.any_value()
        axis = self.axis(v)
        b, w = self.weight((v.shape[axis],))
        shape = [1] * v.ndim
        shape[axis] = -1
        return relay.nn.bias_add(e, b, axis=axis), v + w.reshape(shape)

    def batch_norm(self):
        found = self.any_value(least=2)
        if found is None:
            return None
        e, v = found
        parts = [self.weight((v.shape[1],), positive=i == 3) for i in range(4)]
        shape = [-1 if i == 1 else 1 for i in range(v.ndim)]
        gamma, beta, mean, var = (w.reshape(shape) for _, w in parts)
        norm = relay.nn.batch_norm(e, *(p for p, _ in parts))[0]
        return norm, (v - mean) / np.sqrt(var + np.float32(1e-5)) * gamma + beta

    def layer_norm(self):
        e, v = self.any_value()
        if v.shape[-1] < 2:
            return None
        (g, gamma), (b, beta) = (self.weight((v.shape[-1],)) for _ in range(2))
        # A variance far from 0, so that the rounding of different sums stays small.
        mean, var = v.mean(-1, keepdims=True), v.var(-1, keepdims=True)
        made = relay.nn.layer_norm(e, g, b, epsilon=1.0)
        return made, (v - mean) / np.sqrt(var + 1) * gamma + beta

    def pool2d(self):
        found = self.any_value(4)
        if found is None:
            return None
        e, v = found
        if self.rng.random() < 0.5:
            return relay.nn.global_avg_pool2d(e), v.mean((2, 3), keepdims=True)
        kernel = tuple(int(n) for n in self.rng.integers(1, np.minimum(v.shape[2:], 2) + 1))
        windows = np.lib.stride_tricks.sliding_window_view(v, kernel, (2, 3))
        return relay.nn.max_pool2d(e, pool_size=kernel), windows.max((4, 5))

    def softmax(self):
        e, v = self.any_value()
        axis = self.axis(v)
        exps = np.exp(v - v.max(axis, keepdims=True))
        return relay.nn.softmax(e, axis=axis), exps / exps.sum(axis, keepdims=True)

    def reduction(self):
        e, v = self.any_value()
        axis, keep = self.axis(v), bool(self.rng.integers(2)) or v.ndim == 1
        names = {relay.sum: np.sum, relay.mean: np.mean, relay.max: np.max, relay.min: np.min}
        build, means = list(names.items())[self.rng.integers(len(names))]
        return build(e, axis=axis, keepdims=keep), means(v, axis, keepdims=keep)

    def reshape(self):
        e, v = self.any_value()
        shapes = [(-1,), (*v.shape[::-1],), (1, -1), (v.shape[0], -1)]
        shape = shapes[self.rng.integers(len(shapes))]
        return relay.reshape(e, shape), v.reshape(shape)

    def transpose(self):
        e, v = self.any_value()
        axes = [int(a) for a in self.rng.permutation(v.ndim)]
        return relay.transpose(e, axes), v.transpose(axes)

    def concatenate(self):
        e, v = self.any_value()
        alike = [(f, w) for f, w in self.pool if w.shape == v.shape]
        f, w = alike[self.rng.integers(len(alike))]
        axis = self.axis(v)
        return relay.concatenate([e, f], axis=axis), np.concatenate([v, w], axis)

    def stack(self):
        e, v = self.any_value()
        if v.ndim > 3:
            return None
        axis = int(self.rng.integers(v.ndim + 1))
        return relay.stack([e, e], axis=axis), np.stack([v, v], axis)

    def split(self):
        e, v = self.any_value()
        axis = self.axis(v)
        if v.shape[axis] < 2:
            return None
        cut = int(self.rng.integers(1, v.shape[axis]))
        which = int(self.rng.integers(2))
        return relay.split(e, [cut], axis=axis)[which], np.split(v, [cut], axis)[which]

    def strided_slice(self):
        e, v = self.any_value()
        begin = [int(self.rng.integers(n)) for n in v.shape]
        end = [int(self.rng.integers(b + 1, n + 1)) for b, n in zip(begin, v.shape)]
        return relay.strided_slice(e, begin, end), v[tuple(map(slice, begin, end))]

    def take(self):
        e, v = self.any_value()
        axis = self.axis(v)
        places = self.rng.integers(0, v.shape[axis], 3)
        return relay.take(e, relay.const(places, "int32"), axis=axis), np.take(v, places, axis)

    def where(self):
        e, v = self.any_value()
        mask = self.rng.random(v.shape) < 0.5
        c = relay.const(mask)
        return relay.where(c, e, relay.negative(e)), np.where(mask, v, -v)

    def cast(self):
        e, v = self.any_value()
        return relay.cast(relay.cast(e, "float64"), "float32"), v

    def expand_squeeze(self):
        e, v = self.any_value()
        if v.ndim > 3:
            ones = [a for a in range(v.ndim) if v.shape[a] == 1]
            return (relay.squeeze(e, ones[:1]), v.squeeze(ones[0])) if ones else None
        axis = int(self.rng.integers(v.ndim + 1))
        return relay.expand_dims(e, axis=axis), np.expand_dims(v, axis)

    def prelu(self):
        found = self.any_value(least=2)
        if found is None:
            return None
        e, v = found
        a, alpha = self.weight((v.shape[1],))
        alpha = alpha.reshape([-1 if i == 1 else 1 for i in range(v.ndim)])
        return relay.nn.prelu(e, a), np.where(v > 0, v, v * alpha)

    def branch(self):
        (e, v), taken = self.any_value(), bool(self.rng.integers(2))
        c, _ = self.input((), "bool", np.array(taken))
        made = relay.If(c, relay.tanh(relay.add(e, e)), relay.subtract(relay.tanh(e), e))
        return made, np.tanh(v + v) if taken else np.tanh(v) - v

    def let(self):
        e, v = self.any_value()
        held = relay.var("held") if self.untyped else relay.var("held", shape=v.shape)
        body = relay.add(held, relay.tanh(held))
        return relay.Let(held, relay.negative(e), body), np.tanh(-v) - v

    def local_function(self):
        e, v = self.any_value()
        p = relay.var("p", shape=v.shape)
        outer, w = self.any_value()
        # It reads what stands around it too.
        body = relay.add(relay.tanh(p), relay.max(outer))
        return relay.Call(relay.Function([p], body), [e]), np.tanh(v) + w.max()

    def field(self):
        (e, v), (f, w) = self.any_value(), self.any_value()
        pair = relay.Tuple([e, relay.Tuple([f, e])])
        inner = relay.TupleGetItem(pair, 1)
        return relay.TupleGetItem(inner, 0), w

    def several(self):
        """Operators that are written with several others."""
        e, v = self.any_value()
        axis = self.axis(v)
        norm = np.sqrt(np.maximum((v * v).sum(axis, keepdims=True), np.float32(0.5)))
        builds = [
            (relay.std(e, axis=axis, keepdims=True), v.std(axis, keepdims=True)),
            (relay.nn.l2_normalize(e, 0.5, [axis]), v / norm),
            (relay.cast(relay.any(relay.greater(e, relay.const(0.5)), axis, True), "float32"),
             (v > 0.5).any(axis, keepdims=True).astype("float32")),
            (relay.sum(e, axis=[axis], keepdims=True, exclude=True),
             v.sum(tuple(a for a in range(v.ndim) if a != axis % v.ndim), keepdims=True)),
            (relay.reverse(relay.repeat(e, 2, axis), axis), np.flip(np.repeat(v, 2, axis), axis)),
        ]  # fmt: skip
        return builds[self.rng.integers(len(builds))]

    def integers(self):
        e, v = self.any_value()
        number = int(self.rng.integers(1, 5))
        whole = np.trunc(np.clip(v, -50, 50)).astype("int32")
        clipped = relay.cast(relay.trunc(relay.clip(e, -50.0, 50.0)), "int32")
        made = relay.floor_divide(clipped * relay.const(3), relay.const(number))
        return relay.cast(made, "float32"), (whole * 3 // number).astype("float32")

    def global_function(self):
        """A function of the module, once or more often for values of the same shape."""
        e, v = self.any_value()
        name = "g" + "_".join(map(str, v.shape))
        if name not in self.globals:
            p = relay.var("x", shape=v.shape)
            fn = relay.Function([p], relay.multiply(relay.sin(p), p))
            if self.rng.random() < 0.5:
                fn = fn.with_attr("Inline", 1)
            info = relax.FuncStructInfo([p.struct_info], p.struct_info)
            self.globals[name] = relay.GlobalVar(name, info), fn
        return relay.Call(self.globals[name][0], [e]), np.sin(v) * v

    def marked(self):
        """A function of a group, or one that may call another."""
        e, v = self.any_value()
        p, q = relay.var("p", shape=v.shape), relay.var("p", shape=v.shape)
        inner = relay.Function([q], relay.negative(relay.tanh(q))).with_attr("Primitive", 1)
        outer = relay.Function([p], relay.abs(relay.Call(inner, [p]))).with_attr("name", "both")
        return relay.Call(outer, [e]), np.abs(np.tanh(v))
