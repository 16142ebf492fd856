"""Random models of the layers that rewrites of whole graphs look for: convolutions with batch
norms, scales, activations, paddings and residual sums; several of one input; products of
transposed, reshaped, gathered and joined operands; scores with a softmax.
"""

from __future__ import annotations

import random

import numpy as np

from relaxvm import relax, tir
from relaxvm.ir import IRModule
from relaxvm.relax import op


class Layers:
    """Writes one model of images [n, c, h, w] and one of rows [n, s, d], in one function."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.n = tir.Var("n", "int64") if rng.random() < 0.5 else rng.choice((1, 2))
        self.bb = relax.BlockBuilder()
        self.images: list[relax.Var] = []
        self.rows: list[relax.Var] = []
        self.weights: list[relax.Var] = []

    def module(self, size: int) -> IRModule:
        rng, n = self.rng, self.n
        x = relax.Var(
            "x", relax.TensorStructInfo((n, 4, *rng.choice(((6, 5), (8, 6), (10, 8)))), "float32")
        )
        y = relax.Var("y", relax.TensorStructInfo((n, 3, 4), "float32"))
        a = relax.Var("a", relax.TensorStructInfo((4, 4, 3, 3), "float32"))
        b = relax.Var("b", relax.TensorStructInfo((4, 4), "float32"))
        with self.bb.function("main", [x, y, a, b]):
            with self.bb.dataflow():
                self.images, self.rows, self.weights = [x], [y], [a, b]
                for _ in range(size):
                    if rng.random() < 0.5:
                        self.images.append(self.emit(rng.choice(IMAGES)(self, self.pick("images"))))
                    else:
                        self.rows.append(self.emit(rng.choice(ROWS)(self, self.pick("rows"))))
                ends = [*self.images[1:][-2:], *self.rows[1:][-2:]]
                out = self.bb.emit_output(relax.Tuple(ends))
            self.bb.emit_func_output(out)
        return self.bb.finalize()

    def emit(self, value: relax.Expr) -> relax.Var:
        return self.bb.emit(self.bb.normalize(value))

    def pick(self, kind: str) -> relax.Var:
        return self.rng.choice(getattr(self, kind)[-3:])

    def number(self, *shape: int, positive: bool = False) -> relax.Constant:
        """A constant; small, so that long chains stay finite."""
        values = np.random.default_rng(self.rng.getrandbits(32)).standard_normal(shape) / 2
        if self.rng.random() < 0.1:
            values *= 0
        return relax.const((np.abs(values) + 0.5 if positive else values).astype("float32"))

    # -- images [n, 4, h, w]: every layer keeps four channels --------------------------------------

    def convolution(self, x: relax.Var) -> relax.Expr:
        rng = self.rng
        h, w = (int(d) for d in x.struct_info.dims[2:])
        groups = rng.choice((1, 1, 2, 4))
        k = rng.choice((1, 3)) if min(h, w) >= 3 else 1
        weight = self.number(4, 4 // groups, k, k)
        if k == 3 and groups == 1 and rng.random() < 0.3:
            weight = self.weights[0]
        padding = rng.choice(((0, 0), (1, 1), (1, 0, 0, 1))) if min(h, w) > 3 else (1, 1)
        strides = rng.choice((1, 1, 2)) if min(h, w) > 3 else 1
        return op.nn.conv2d(x, weight, strides=strides, padding=padding, groups=groups)

    def batch_norm(self, x: relax.Var) -> relax.Expr:
        scale, shift, mean = (self.number(4) for _ in range(3))
        norm = op.nn.batch_norm(
            x, scale, shift, mean, self.number(4, positive=True), axis=1, training=False,
            center=self.rng.random() < 0.8, scale=self.rng.random() < 0.8,
        )  # fmt: skip
        return self.emit(norm)[0]

    def scaled(self, x: relax.Var) -> relax.Expr:
        positive = self.rng.random() < 0.6
        by = self.number(*self.rng.choice(((4, 1, 1), (1, 4, 1, 1), ())), positive=positive)
        return self.rng.choice((op.multiply, op.divide if positive else op.multiply))(x, by)

    def shifted(self, x: relax.Var) -> relax.Expr:
        return op.add(x, self.number(*self.rng.choice(((4, 1, 1), (1, 4, 1, 1), ()))))

    def activated(self, x: relax.Var) -> relax.Expr:
        kinds = (op.nn.relu, op.nn.relu6, op.sigmoid, op.nn.gelu, op.exp, op.tanh)
        return self.rng.choice(kinds)(op.minimum(x, relax.const(8.0, "float32")))

    def padded(self, x: relax.Var) -> relax.Expr:
        value = self.rng.choice((0.0, 0.0, 1.5))
        return self.convolution(self.emit(op.nn.pad(x, (0, 0, 0, 0, 1, 1, 0, 2), pad_value=value)))

    def branches(self, x: relax.Var) -> relax.Expr:
        """Convolutions of one input, joined or summed."""
        count = self.rng.choice((2, 3))
        made = [self.emit(op.nn.conv2d(x, self.number(2, 4, 1, 1))) for _ in range(2 * count - 2)]
        pairs = [self.emit(op.concat(made[i : i + 2], axis=1)) for i in range(0, len(made), 2)]
        return pairs[0] if len(pairs) == 1 else op.add(*pairs)

    def residual(self, x: relax.Var) -> relax.Expr:
        same = [v for v in self.images if list(v.struct_info.dims) == list(x.struct_info.dims)]
        return self.rng.choice((op.add, op.multiply))(x, self.rng.choice(same))

    def pooled(self, x: relax.Var) -> relax.Expr:
        pool = self.rng.choice((op.nn.max_pool2d, op.nn.avg_pool2d))
        return pool(x, pool_size=(2, 2), padding=(1, 1))

    def atrous(self, x: relax.Var) -> relax.Expr:
        """A dilated convolution: as it is, or as one between space to batch and back."""
        n, (c, h, w) = self.n, map(int, x.struct_info.dims[1:])
        weight = self.number(4, 4, 3, 3)
        if not isinstance(n, int) or h % 2 or w % 2 or min(h, w) < 6:
            return op.nn.conv2d(x, weight, dilation=2, padding=2)
        split = self.emit(op.reshape(x, (n, c, h // 2, 2, w // 2, 2)))
        apart = self.emit(op.permute_dims(split, (3, 5, 0, 1, 2, 4)))
        small = self.emit(op.reshape(apart, (4 * n, c, h // 2, w // 2)))
        result = self.emit(op.nn.conv2d(small, weight))
        r, s = h // 2 - 2, w // 2 - 2
        again = self.emit(op.reshape(result, (2, 2, n, c, r, s)))
        return op.reshape(
            self.emit(op.permute_dims(again, (2, 3, 4, 0, 5, 1))), (n, c, 2 * r, 2 * s)
        )

    def turned(self, x: relax.Var) -> relax.Expr:
        axes = self.rng.choice(((0, 2, 3, 1), (0, 1, 3, 2)))
        back = [axes.index(i) for i in range(4)]
        return op.permute_dims(self.emit(op.permute_dims(x, axes)), back)

    # -- rows [n, 3, 4] ----------------------------------------------------------------------------

    def product(self, x: relax.Var) -> relax.Expr:
        weight = self.weights[1] if self.rng.random() < 0.3 else self.number(4, 4)
        if self.rng.random() < 0.4:
            weight = self.emit(op.permute_dims(weight))
        return op.matmul(x, weight)

    def products(self, x: relax.Var) -> relax.Expr:
        """Products of one input, some with a bias."""
        parts = [self.emit(self.product(x)) for _ in range(self.rng.choice((2, 3)))]
        if self.rng.random() < 0.5:
            parts = [self.emit(op.add(p, self.number(4))) for p in parts]
        return op.maximum(op.multiply(parts[0], parts[1]), parts[-1])

    def dense(self, x: relax.Var) -> relax.Expr:
        """Products of one matrix."""
        flat = self.emit(op.reshape(x, (self.n * 3, 4)))
        parts = [self.emit(self.product(flat)) for _ in range(3)]
        return op.reshape(self.emit(op.add(op.multiply(*parts[:2]), parts[2])), (self.n, 3, 4))

    def batches(self, x: relax.Var) -> relax.Expr:
        """Products of one value with batches of matrices."""
        parts = [self.emit(op.matmul(x, self.number(1, 4, 4))) for _ in range(3)]
        return op.add(self.emit(op.nn.relu(parts[0])), self.emit(op.maximum(*parts[1:])))

    def chain(self, x: relax.Var) -> relax.Expr:
        inner = self.emit(op.matmul(self.number(4, 2), self.number(2, 4)))
        return op.matmul(x, inner) if self.rng.random() < 0.5 else op.matmul(
            self.emit(op.matmul(x, self.number(4, 9))), self.number(9, 4)
        )  # fmt: skip

    def product_of_sum(self, x: relax.Var) -> relax.Expr:
        return op.matmul(x, self.emit(op.add(self.number(4, 4), self.weights[1])))

    def gathered(self, x: relax.Var) -> relax.Expr:
        places = relax.const([3, 0, 0, 2], "int64")
        return op.matmul(x, self.emit(op.take(self.weights[1], places, axis=1)))

    def joined(self, x: relax.Var) -> relax.Expr:
        parts = [self.emit(op.permute_dims(self.number(2, 4))) for _ in range(2)]
        return op.matmul(x, self.emit(op.concat(parts, axis=1)))

    def scores(self, x: relax.Var) -> relax.Expr:
        keys = self.emit(op.permute_dims(self.pick("rows"), (0, 2, 1)))
        scores = self.emit(op.matmul(x, keys))
        if self.rng.random() < 0.6:
            scores = self.emit(op.divide(scores, relax.const(2.0, "float32")))
        if self.rng.random() < 0.4:
            scores = self.emit(op.add(scores, self.number(3, 3)))
        elif self.rng.random() < 0.4:
            hidden = relax.const(np.float32(self.rng.choice((-np.inf, -1e9))))
            scores = self.emit(op.where(relax.const(np.tri(3, dtype=bool)), scores, hidden))
        if self.rng.random() < 0.2:
            self.rows.append(self.emit(op.matmul(scores, self.pick("rows"))))
        return op.matmul(self.emit(op.nn.softmax(scores)), self.pick("rows"))

    def reshaped(self, x: relax.Var) -> relax.Expr:
        heads = self.emit(
            op.permute_dims(self.emit(op.reshape(x, (self.n, 3, 2, 2))), (0, 2, 1, 3))
        )
        back = self.emit(op.permute_dims(heads, (0, 2, 1, 3)))
        return op.reshape(back, (self.n, 3, 4))

    def divided(self, x: relax.Var) -> relax.Expr:
        return op.divide(x, self.number(*self.rng.choice(((4,), (3, 1), ())), positive=True))

    def normalised(self, x: relax.Var) -> relax.Expr:
        return op.nn.layer_norm(x, self.number(4), self.number(4), axes=[-1])

    def sliced(self, x: relax.Var) -> relax.Expr:
        parts = self.emit(op.split(x, [1, 2], axis=1))
        order = self.rng.choice(((0, 1, 2), (0, 1, 2), (2, 0, 1)))
        return op.concat([self.emit(parts[i]) for i in order], axis=1)

    def cast(self, x: relax.Var) -> relax.Expr:
        kind = self.rng.choice(("float64", "float64", "float16"))
        return op.astype(self.emit(op.astype(x, kind)), "float32")


IMAGES = (
    *(Layers.convolution, Layers.convolution, Layers.batch_norm, Layers.scaled, Layers.shifted),
    *(Layers.activated, Layers.padded, Layers.branches, Layers.residual, Layers.pooled),
    *(Layers.atrous, Layers.turned),
)
ROWS = (
    *(Layers.product, Layers.products, Layers.chain, Layers.product_of_sum, Layers.gathered),
    *(Layers.joined, Layers.scores, Layers.reshaped, Layers.divided, Layers.normalised),
    *(Layers.sliced, Layers.cast, Layers.dense, Layers.batches),
)


def layer_model(rng: random.Random) -> IRModule:
    """A random model; the same state of `rng` gives the same one."""
    return Layers(rng).module(rng.randint(3, 9))
