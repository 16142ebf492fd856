"""Random graphs in which rules of algebra have something to do."""

import numpy as np

from relaxvm import relax, tir
from relaxvm.relax import op as R

SPECIAL = {
    "float32": [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, np.nan, np.inf, -np.inf, 1e-40, 3e38, -7.25],
    "float16": [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.nan, np.inf, 6e-8, 65504.0, -3.5],
    "int32": [0, 1, -1, 2, 7, -8, 2**31 - 1, -(2**31)],
    "int8": [0, 1, -1, 2, 127, -128],
    "uint8": [0, 1, 2, 255],
    "bool": [False, True],
}
UNARY = {
    "float": "negative abs square floor ceil round trunc sign nn.relu nn.relu6".split(),
    "int": "negative abs square sign nn.relu bitwise_not".split(),
    "bool": "logical_not bitwise_not".split(),
}
BINARY = {
    "float": "add subtract multiply divide maximum minimum power".split(),
    "int": """add subtract multiply maximum minimum floor_divide bitwise_and bitwise_or bitwise_xor
        left_shift right_shift""".split(),
    "bool": "logical_and logical_or logical_xor bitwise_and bitwise_or".split(),
}
NUMBERS = {"float": [0.0, -0.0, 1.0, 2.0, 0.25, -4.0, 3.0], "int": [0, 1, 2, 3], "bool": [0, 1]}
SHAPES = [(2, 3), (3, 1, 2), (1, 4), (6,), (0, 2), ()]


def operator(name):
    found = R
    for part in name.split("."):
        found = getattr(found, part)
    return found


def kind_of(dtype):
    return "float" if dtype.is_float else "bool" if dtype.is_bool else "int"


def values(rng, shape, dtype):
    return np.array(rng.choice(SPECIAL[dtype], size=shape), dtype)


class Graph:
    """A random function of two tensors, written value by value."""

    def __init__(self, rng, symbolic):
        self.rng = rng
        self.b = relax.BlockBuilder()
        dtype = rng.choice(list(SPECIAL))
        shape = SHAPES[rng.integers(len(SHAPES))]
        self.inputs = [values(rng, shape, dtype) for _ in range(2)]
        dims = list(shape)
        if symbolic and dims:
            dims[0] = tir.Var("n", "int64")
        info = relax.TensorStructInfo(dims, dtype)
        self.params = [relax.Var(name, info) for name in "xy"]
        self.known = list(self.params)

    def module(self, size):
        with self.b.function("main", self.params):
            with self.b.dataflow():
                for _ in range(size):
                    value = self.value(self.pick())
                    if value is not None:
                        self.known.append(self.b.emit(value))
                results = [self.b.emit_output(v) for v in self.known[-3:]]
            self.b.emit_func_output(relax.Tuple(results))
        return self.b.get()

    def pick(self):
        return self.known[-int(self.rng.integers(1, min(len(self.known), 4) + 1))]

    def value(self, x):
        rng, info = self.rng, x.struct_info
        kind, dims = kind_of(info.dtype), list(info.shape)
        known = all(hasattr(d, "value") for d in dims)
        sizes = [int(d) for d in dims] if known else None
        way = rng.integers(13)
        if way < 2:
            return operator(rng.choice(UNARY[kind]))(x)
        if way < 5:
            name = rng.choice(BINARY[kind])
            return self.binary(operator(name), x, kind, sizes)
        if way == 5:
            return R.astype(x, rng.choice(list(SPECIAL)))
        if way == 6 and dims:
            return R.permute_dims(x, tuple(map(int, rng.permutation(len(dims)))))
        if way == 7 and sizes is not None:
            total = int(np.prod(sizes))
            shapes = [sizes, sizes[::-1], (total,), (1, total), (total, 1)]
            return R.reshape(x, relax.ShapeExpr(shapes[rng.integers(5 if total else 2)]))
        if way == 8 and len(dims) < 5:
            return R.expand_dims(x, int(rng.integers(len(dims) + 1)))
        if way == 9 and sizes is not None and 1 in sizes:
            return R.squeeze(x)
        if way == 10 and sizes:
            return self.pieces(x, sizes)
        if way == 11:
            return R.where(self.condition(sizes), x, rng.choice([x, *self.alike(x)]))
        if way == 12 and sizes:
            return self.other(x, sizes, kind)
        return None

    def alike(self, x):
        return [v for v in self.known if v.struct_info is x.struct_info]

    def condition(self, sizes):
        shape = () if sizes is None or self.rng.random() < 0.5 else sizes
        return relax.const(np.full(shape, self.rng.random() < 0.5))

    def binary(self, op, x, kind, sizes):
        rng, dtype = self.rng, x.struct_info.dtype
        way = rng.integers(4)
        if way == 0:
            other = rng.choice(self.alike(x))
        elif way == 1 and sizes is not None:
            number = relax.const(rng.choice(NUMBERS[kind]), dtype)
            other = self.b.emit(R.full(relax.ShapeExpr(sizes), number))
        elif way == 2 and sizes:
            other = self.b.emit(R.broadcast_to(relax.const(values(rng, (1,), dtype)), sizes))
        else:
            shape = sizes if sizes is not None and rng.random() < 0.3 else ()
            other = relax.const(np.full(shape, rng.choice(NUMBERS[kind]), dtype))
        return op(x, other) if rng.random() < 0.7 else op(other, x)

    def pieces(self, x, sizes):
        rng, axis = self.rng, int(self.rng.integers(len(sizes)))
        size = sizes[axis]
        at = int(rng.integers(size + 1))
        way = rng.integers(4)
        if way == 0:
            cuts = [(0, at), (at, size)] if rng.random() < 0.8 else [(at, size), (0, at)]
            parts = [self.b.emit(R.strided_slice(x, (axis,), (a,), (e,))) for a, e in cuts]
            return R.concat(parts, axis)
        if way == 1 and 0 < at < size:
            parts = self.b.emit(R.split(x, (at,), axis))
            order = [0, 1] if rng.random() < 0.8 else [1, 0]
            return R.concat([self.b.emit(parts[k]) for k in order], axis)
        if way == 2 and size:
            steps = (int(rng.choice([1, 2, -1])),)
            return R.strided_slice(x, (axis,), (at,), (int(rng.integers(size + 1)),), steps)
        both = self.b.emit(R.concat([x, x], axis))
        return R.strided_slice(both, (axis,), (at,), (at + size,))

    def other(self, x, sizes, kind):
        rng, axis = self.rng, int(self.rng.integers(len(sizes)))
        way = rng.integers(5)
        if way == 0 and sizes[axis]:
            indices = np.arange(rng.integers(sizes[axis]), sizes[axis], rng.choice([1, 2]))
            return R.take(x, relax.const(indices), axis)
        if way == 1:
            return R.nn.pad(x, tuple(map(int, rng.integers(0, 2, 2 * len(sizes)))))
        if way == 2:
            return R.flip(x, axis)
        if way == 3:
            return R.tile(x, int(rng.choice([1, 1, 2])))
        if kind == "bool":
            return None
        low, high = sorted(map(int, rng.choice([0, 1, 3, 5], 2)))
        return R.clip(x, low, high)


def random_module(seed, symbolic=False, size=14):
    """A module, and arguments for its main."""
    graph = Graph(np.random.default_rng(seed), symbolic)
    return graph.module(size), graph.inputs
