"""Ten graphs as users write them, with `relax.frontend.nn`: what passes of graphs are measured on.

    mod, params, inputs = graph("resnet50")            # the size that is measured
    mod, params, inputs = graph("resnet50", "small")   # the same in all but its sizes, for tests
    relax.build(mod, params=params)                    # the weights become constants

The weights are random, of such a scale that values stay near 1; the same at every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxvm.ir import IRModule
from relaxvm.relax.frontend import nn
from relaxvm.relax.frontend.nn import Tensor, op, spec
from relaxvm.relax.frontend.nn.tensor import apply
from relaxvm.relax.transform import BindParams
from relaxvm.script import from_source

__all__ = ["GRAPHS", "Graph", "bert_of_any_length", "bound", "graph"]

Graph = tuple[IRModule, dict[str, np.ndarray], tuple[np.ndarray, ...]]
"""A module with the function `main`, values for the parameters behind its inputs by name, and its
inputs.
"""


def graph(name: str, size: str = "full") -> Graph:
    """The graph called `name`, one of `GRAPHS`; `size` is "full" or "small"."""
    if size not in ("full", "small"):
        raise ValueError(f"size: wanted 'full' or 'small', got {size!r}")
    return GRAPHS[name](size == "small", np.random.default_rng(0))


def bound(name: str, size: str = "full") -> tuple[IRModule, tuple[np.ndarray, ...]]:
    """The graph with its weights as constants, and its inputs."""
    mod, params, inputs = graph(name, size)
    return (BindParams("main", params)(mod) if params else mod), inputs


# -- weights and inputs ----------------------------------------------------------------------------


def _weights(model: nn.Module, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random values for the parameters of `model`, by what they are for."""
    values = {}
    for name, param in model.named_parameters():
        shape, kind = param.shape, name.rpartition(".")[2]
        if len(shape) > 1:
            inputs = math.prod(shape[1:]) if kind == "weight" else shape[1]
            value = rng.standard_normal(shape, "float32") * np.float32(inputs**-0.5)
        elif kind in ("weight", "variance"):
            value = rng.uniform(0.7, 1.3, shape)
        else:
            value = rng.standard_normal(shape, "float32") * 0.1
        values[name] = np.asarray(value, "float32")
    return values


def _exported(model: nn.Module, rng: np.random.Generator, **inputs: Any) -> Graph:
    """The method `main` of `model`, for arguments like `inputs`: arrays, lists of arrays, or an
    array and the shape that it has in the function.
    """
    symbolic: dict[str, Any] = {}
    arrays: list[Any] = []
    for name, value in inputs.items():
        value, shape = value if isinstance(value, tuple) else (value, None)
        several = value if isinstance(value, list) else [value]
        specs = [spec.Tensor(a.shape if shape is None else shape, str(a.dtype)) for a in several]
        symbolic[name] = spec.Tuple(name, specs) if isinstance(value, list) else specs[0]
        arrays.append(tuple(value) if isinstance(value, list) else value)
    mod, _ = model.export({"main": symbolic})
    return mod, _weights(model, rng), tuple(arrays)


def _picture(rng: np.random.Generator, channels: int, side: int) -> np.ndarray:
    return rng.standard_normal((1, channels, side, side), "float32")


# -- pictures --------------------------------------------------------------------------------------


class _BatchNorm(nn.Module):
    def __init__(self, channels: int):
        self.weight, self.bias = nn.Parameter((channels,)), nn.Parameter((channels,))
        self.mean, self.variance = nn.Parameter((channels,)), nn.Parameter((channels,))

    def forward(self, x: Tensor) -> Tensor:
        settings = (self.weight, self.bias, self.mean, self.variance)
        return apply("nn.batch_norm", x, *settings, axis=1, training=False)[0]


class _ConvNorm(nn.Module):
    """Convolution, batch norm, and an activation (None: none)."""

    def __init__(
        self, inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1,
        act: Callable[..., Tensor] | None = op.relu,
    ):  # fmt: skip
        half = size // 2
        self.conv = nn.Conv2D(inputs, outputs, size, stride, half, groups=groups, bias=False)
        self.norm, self.act = _BatchNorm(outputs), act

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return x if self.act is None else self.act(x)


def _max_pool(x: Tensor, size: int, stride: int, padding: int = 0) -> Tensor:
    return apply("nn.max_pool2d", x, pool_size=size, strides=stride, padding=padding)


class _Head(nn.Module):
    """The mean over each channel, and a linear layer."""

    def __init__(self, channels: int, classes: int):
        self.out = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        mean = apply("nn.adaptive_avg_pool2d", x, output_size=1)
        return self.out(op.reshape(mean, x.shape[:2]))


class _Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int):
        outputs = 4 * width
        self.reduce = _ConvNorm(inputs, width, 1)
        self.conv = _ConvNorm(width, width, 3, stride)
        self.expand = _ConvNorm(width, outputs, 1, act=None)
        self.project = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.project = _ConvNorm(inputs, outputs, 1, stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return op.relu(self.expand(self.conv(self.reduce(x))) + self.project(x))


class _ResNet(nn.Module):
    def __init__(self, width: int, blocks: tuple[int, ...], classes: int):
        self.stem = _ConvNorm(3, width, 7, 2)
        layers, inputs = [], width
        for k, count in enumerate(blocks):
            for i in range(count):
                layers.append(_Bottleneck(inputs, width << k, 2 if k and not i else 1))
                inputs = 4 * width << k
        self.layers, self.head = nn.ModuleList(layers), _Head(inputs, classes)

    def main(self, x: Tensor) -> Tensor:
        return self.head(self.layers(_max_pool(self.stem(x), 3, 2, 1)))


def _resnet50(small: bool, rng: np.random.Generator) -> Graph:
    model = _ResNet(8, (2, 1, 1, 1), 10) if small else _ResNet(64, (3, 4, 6, 3), 1000)
    return _exported(model, rng, x=_picture(rng, 3, 32 if small else 224))


class _InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expand: int):
        hidden = inputs * expand
        self.adds = stride == 1 and inputs == outputs
        self.expand = _ConvNorm(inputs, hidden, 1, act=op.relu6) if expand > 1 else nn.Identity()
        self.depthwise = _ConvNorm(hidden, hidden, 3, stride, hidden, op.relu6)
        self.project = _ConvNorm(hidden, outputs, 1, act=None)

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if self.adds else y


class _MobileNet(nn.Module):
    """Rows of `plan`: expansion, channels, blocks, stride of the first."""

    def __init__(self, first: int, plan: list[tuple[int, int, int, int]], last: int, classes: int):
        self.stem = _ConvNorm(3, first, 3, 2, act=op.relu6)
        layers, inputs = [], first
        for expand, outputs, count, stride in plan:
            for i in range(count):
                layers.append(_InvertedResidual(inputs, outputs, 1 if i else stride, expand))
                inputs = outputs
        self.layers = nn.ModuleList(layers)
        self.last, self.head = _ConvNorm(inputs, last, 1, act=op.relu6), _Head(last, classes)

    def main(self, x: Tensor) -> Tensor:
        return self.head(self.last(self.layers(self.stem(x))))


def _mobilenet_v2(small: bool, rng: np.random.Generator) -> Graph:
    if small:
        model = _MobileNet(8, [(1, 4, 1, 1), (6, 8, 2, 2), (6, 12, 1, 2)], 24, 10)
        return _exported(model, rng, x=_picture(rng, 3, 32))
    plan = [
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
        (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ]  # fmt: skip
    return _exported(_MobileNet(32, plan, 1280, 1000), rng, x=_picture(rng, 3, 224))


class _Inception(nn.Module):
    """GoogLeNet's block: four branches of one input, side by side."""

    def __init__(
        self, inputs: int, one: int, three: tuple[int, int], five: tuple[int, int], pool: int
    ):
        self.one = _ConvNorm(inputs, one, 1)
        self.three = nn.ModuleList([_ConvNorm(inputs, three[0], 1), _ConvNorm(*three, 3)])
        self.five = nn.ModuleList([_ConvNorm(inputs, five[0], 1), _ConvNorm(*five, 5)])
        self.pool = _ConvNorm(inputs, pool, 1)

    def main(self, x: Tensor) -> Tensor:
        pooled = self.pool(_max_pool(x, 3, 1, 1))
        return op.concat([self.one(x), self.three(x), self.five(x), pooled], dim=1)


def _inception(small: bool, rng: np.random.Generator) -> Graph:
    if small:
        return _exported(_Inception(12, 8, (4, 8), (4, 6), 4), rng, x=_picture(rng, 12, 7))
    return _exported(_Inception(192, 64, (96, 128), (16, 32), 32), rng, x=_picture(rng, 192, 28))


class _Vgg(nn.Module):
    """Rows of convolutions with bias, each row ending in a pool; two linear layers."""

    def __init__(self, rows: list[list[int]], side: int, hidden: int, classes: int):
        self.rows, inputs = [len(row) for row in rows], 3
        convolutions = []
        for outputs in (n for row in rows for n in row):
            convolutions.append(nn.Conv2D(inputs, outputs, 3, 1, 1))
            inputs = outputs
        self.convolutions = nn.ModuleList(convolutions)
        flat = inputs * (side >> len(rows)) ** 2
        self.hidden, self.out = nn.Linear(flat, hidden), nn.Linear(hidden, classes)

    def main(self, x: Tensor) -> Tensor:
        convolutions = iter(self.convolutions)
        for count in self.rows:
            for _ in range(count):
                x = op.relu(next(convolutions)(x))
            x = _max_pool(x, 2, 2)
        x = op.reshape(x, [1, self.hidden.in_features])
        return op.softmax(self.out(op.relu(self.hidden(x))))


def _vgg(small: bool, rng: np.random.Generator) -> Graph:
    if small:
        return _exported(_Vgg([[4], [8, 8]], 16, 12, 10), rng, x=_picture(rng, 3, 16))
    rows = [[64, 64], [128, 128], [256, 256], [512, 512], [512, 512]]
    return _exported(_Vgg(rows, 224, 1024, 1000), rng, x=_picture(rng, 3, 224))


class _UNet(nn.Module):
    """Down by pools, up by transposed convolutions, with what was seen on the way down."""

    def __init__(self, widths: list[int], classes: int):
        self.down = nn.ModuleList([self._twice(i, o) for i, o in zip([3, *widths], widths)])
        ups = list(zip(widths[::-1], widths[-2::-1]))
        for k, (inputs, outputs) in enumerate(ups):
            setattr(self, f"up{k}", nn.Parameter((inputs, outputs, 2, 2)))
            setattr(self, f"up{k}_bias", nn.Parameter((outputs,)))
        self.merge = nn.ModuleList([self._twice(2 * o, o) for _, o in ups])
        self.out = nn.Conv2D(widths[0], classes, 1)

    @staticmethod
    def _twice(inputs: int, outputs: int) -> nn.ModuleList:
        return nn.ModuleList([_ConvNorm(inputs, outputs, 3), _ConvNorm(outputs, outputs, 3)])

    def main(self, x: Tensor) -> Tensor:
        seen = []
        for layer in self.down:
            x = layer(_max_pool(x, 2, 2) if seen else x)
            seen.append(x)
        for k, (layer, before) in enumerate(zip(self.merge, seen[-2::-1])):
            up = apply("nn.conv2d_transpose", x, getattr(self, f"up{k}"), strides=2)
            up = up + op.reshape(getattr(self, f"up{k}_bias"), [1, -1, 1, 1])
            x = layer(op.concat([before, up], dim=1))
        return op.softmax(self.out(x), axis=1)


def _unet(small: bool, rng: np.random.Generator) -> Graph:
    model = _UNet([4, 8, 12], 3) if small else _UNet([32, 64, 128, 256], 21)
    return _exported(model, rng, x=_picture(rng, 3, 16 if small else 128))


# -- texts -----------------------------------------------------------------------------------------


class _EncoderLayer(nn.Module):
    """Attention and two linear layers, each with a residual sum and a norm behind it. The products
    of attention are written out, as in models that come from files.
    """

    def __init__(self, dim: int, heads: int):
        self.heads, self.size = heads, dim // heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.wide, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim, 1e-12), nn.LayerNorm(dim, 1e-12)

    def _split(self, x: Tensor, axes: list[int]) -> Tensor:
        parts = op.reshape(x, [*x.shape[:2], self.heads, self.size])
        return op.permute_dims(parts, axes)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, v = self._split(self.q(x), [0, 2, 1, 3]), self._split(self.v(x), [0, 2, 1, 3])
        scores = op.matmul(q, self._split(self.k(x), [0, 2, 3, 1]))
        share = op.softmax(scores / math.sqrt(self.size) + mask)
        mixed = op.permute_dims(op.matmul(share, v), [0, 2, 1, 3])
        x = self.norm1(x + self.o(op.reshape(mixed, x.shape)))
        return self.norm2(x + self.narrow(op.gelu(self.wide(x))))


class _Encoder(nn.Module):
    def __init__(self, vocab: int, dim: int, heads: int, layers: int, tokens: int):
        self.words, self.places = nn.Embedding(vocab, dim), nn.Embedding(tokens, dim)
        self.norm = nn.LayerNorm(dim, 1e-12)
        self.layers = nn.ModuleList([_EncoderLayer(dim, heads) for _ in range(layers)])

    def states(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """tokens [n, s]; seen [n, s], 1 where there is a token: [n, s, dim]"""
        n, s = tokens.shape
        mask = (1.0 - op.reshape(seen, [n, 1, 1, s])) * -10000.0
        fixed = isinstance(s, int)
        places = self.places.weight if fixed else self.places(op.arange(0, s, dtype="int32"))
        x = self.norm(self.words(tokens) + places)
        for layer in self.layers:
            x = layer(x, mask)
        return x


class _Bert(_Encoder):
    def __init__(self, vocab: int, dim: int, heads: int, layers: int, tokens: int):
        super().__init__(vocab, dim, heads, layers, tokens)
        self.pool = nn.Linear(dim, dim)

    def main(self, tokens: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        x = self.states(tokens, seen)
        first = op.reshape(op.split(x, [1], axis=1)[0], [x.shape[0], x.shape[2]])
        return x, op.tanh(self.pool(first))


class _SentenceEncoder(_Encoder):
    def main(self, tokens: Tensor, seen: Tensor) -> Tensor:
        x, part = self.states(tokens, seen), op.unsqueeze(seen, 2)
        mean = op.sum(x * part, axis=1) / op.sum(part, axis=1)
        return mean / op.sqrt(op.sum(mean * mean, axis=1, keepdims=True))


def _text(
    model: nn.Module, rng: np.random.Generator, vocab: int, tokens: int, shape: Any = None
) -> Graph:
    seen = np.ones((1, tokens), "float32")
    seen[:, tokens - tokens // 8 :] = 0
    ids = rng.integers(0, vocab, (1, tokens)).astype("int32")
    return _exported(model, rng, tokens=(ids, shape), seen=(seen, shape))


def bert_of_any_length(size: str = "full") -> IRModule:
    """The graph "bert_base" for any number of texts of any length, weights inside."""
    mod, params, _ = _bert(size == "small", np.random.default_rng(0), ["n", "s"])
    return BindParams("main", params)(mod)


def _bert(small: bool, rng: np.random.Generator, shape: Any = None) -> Graph:
    vocab, tokens = (20, 9) if small else (30522, 128)
    sizes = (vocab, 16, 2, 1, tokens) if small else (vocab, 768, 12, 12, tokens)
    return _text(_Bert(*sizes), rng, vocab, tokens, shape)


def _sentence(small: bool, rng: np.random.Generator) -> Graph:
    vocab, tokens = (20, 8) if small else (30522, 128)
    sizes = (vocab, 24, 3, 2, tokens) if small else (vocab, 384, 12, 6, tokens)
    return _text(_SentenceEncoder(*sizes), rng, vocab, tokens)


# -- one token more --------------------------------------------------------------------------------


class _Gpt2Layer(nn.Module):
    def __init__(self, dim: int, heads: int):
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.MultiLinear(dim, [dim] * 3), nn.Linear(dim, dim)
        self.wide, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n, s, dim = x.shape
        parts = [n, s, self.heads, dim // self.heads]
        q, k, v = (op.reshape(t, parts) for t in self.qkv(self.norm1(x)))
        keys, values = op.concat([keys, k], dim=1), op.concat([values, v], dim=1)
        seen = op.scaled_dot_product_attention(q, keys, values)
        x = x + self.out(op.reshape(seen, [n, s, dim]))
        return x + self.narrow(op.gelu(self.wide(self.norm2(x)), "tanh")), keys, values


class _Gpt2(nn.Module):
    """One token and the keys and values of those before it: the next token's logits, and keys and
    values that are one row longer.
    """

    def __init__(self, vocab: int, dim: int, heads: int, layers: int, places: int):
        self.words, self.places = nn.Embedding(vocab, dim), nn.Embedding(places, dim)
        self.layers = nn.ModuleList([_Gpt2Layer(dim, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)

    def main(
        self, token: Tensor, place: Tensor, cache: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        x, longer = self.words(token) + self.places(place), []
        for k, layer in enumerate(self.layers):
            x, *rows = layer(x, cache[2 * k], cache[2 * k + 1])
            longer += rows
        x = op.reshape(self.norm(x), [1, x.shape[2]])
        return op.matmul(x, op.permute_dims(self.words.weight)), longer


def _gpt2(small: bool, rng: np.random.Generator) -> Graph:
    vocab, dim, heads, layers, past = (20, 16, 2, 2, 5) if small else (50257, 768, 12, 12, 256)
    rows = (1, past, heads, dim // heads)
    cache = [rng.standard_normal(rows, "float32") for _ in range(2 * layers)]
    model = _Gpt2(vocab, dim, heads, layers, 4 * past)
    token = rng.integers(0, vocab, (1, 1)).astype("int32")
    place = np.array([[past]], "int32")
    shape = [1, "past", heads, dim // heads]
    return _exported(model, rng, token=token, place=place, cache=(cache, shape))


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [n, heads, d], cos and sin [1, 1, d / 2]"""
    a, b = op.chunk(x, 2, dim=-1)
    return op.concat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class _LlamaLayer(nn.Module):
    def __init__(self, dim: int, heads: int, shared: int, hidden: int):
        self.heads, self.shared, self.size = heads, shared, dim // heads
        self.norm1, self.norm2 = (nn.RMSNorm(dim, -1, 1e-5, bias=False) for _ in range(2))
        few = shared * self.size
        self.q, self.o = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.k, self.v = nn.Linear(dim, few, bias=False), nn.Linear(dim, few, bias=False)
        self.gate, self.up = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(
        self, x: Tensor, place: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor, *cache: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        y = self.norm1(x)
        q = _rotated(op.reshape(self.q(y), [1, self.heads, self.size]), *turn)
        k = _rotated(op.reshape(self.k(y), [1, self.shared, self.size]), *turn)
        v = op.reshape(self.v(y), [1, self.shared, self.size])
        at = op.unsqueeze(place, 1)
        keys, values = (apply("scatter_nd", c, at, new) for c, new in zip(cache, (k, v)))
        q, k, v = (op.unsqueeze(t, 0) for t in (q, keys, values))
        seen = op.scaled_dot_product_attention(q, k, v, mask)
        x = x + self.o(op.reshape(seen, x.shape))
        y = self.norm2(x)
        return x + self.down(op.silu(self.gate(y)) * self.up(y)), keys, values


class _Llama(nn.Module):
    """One token, its place, and keys and values of a fixed number of places: the next token's
    logits, and the keys and values with the row of this place written.
    """

    def __init__(self, vocab: int, dim: int, heads: int, shared: int, hidden: int, layers: int):
        self.size = dim // heads
        self.words = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(
            [_LlamaLayer(dim, heads, shared, hidden) for _ in range(layers)]
        )
        self.norm, self.out = nn.RMSNorm(dim, -1, 1e-5, bias=False), nn.Linear(dim, vocab, False)

    def main(
        self, token: Tensor, place: Tensor, cache: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        power = op.arange(0, self.size // 2, dtype="float32") * (-2.0 / self.size)
        angle = op.astype(place, "float32") * op.exp(power * math.log(10000.0))
        angle = op.reshape(angle, [1, 1, self.size // 2])
        turn = op.cos(angle), op.sin(angle)
        places = cache[0].shape[0]
        future = op.arange(0, places, dtype="int64") > place
        hidden, shown = (op.full([1], v, dtype="float32") for v in (-10000.0, 0.0))
        mask = op.reshape(op.where(future, hidden, shown), [1, 1, 1, places])
        x, written = self.words(token), []
        for k, layer in enumerate(self.layers):
            x, *rows = layer(x, place, turn, mask, *cache[2 * k : 2 * k + 2])
            written += rows
        return self.out(self.norm(x)), written


def _llama(small: bool, rng: np.random.Generator) -> Graph:
    vocab, dim, heads, shared, hidden, layers, places = (
        (20, 16, 4, 2, 24, 2, 6) if small else (32000, 1024, 16, 4, 2816, 8, 512)
    )
    rows = (places, shared, dim // heads)
    cache = [rng.standard_normal(rows, "float32") for _ in range(2 * layers)]
    model = _Llama(vocab, dim, heads, shared, hidden, layers)
    token = rng.integers(0, vocab, 1).astype("int32")
    place = np.array([places // 2], "int64")
    return _exported(model, rng, token=token, place=place, cache=cache)


# -- a recursion -----------------------------------------------------------------------------------


class _LstmCell(nn.Module):
    def __init__(self, inputs: int, hidden: int):
        self.x, self.h = nn.Linear(inputs, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)

    def cell(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, g, o = op.chunk(self.x(x) + self.h(h), 4, dim=1)
        c = op.sigmoid(f) * c + op.sigmoid(i) * op.tanh(g)
        return op.sigmoid(o) * op.tanh(c), c


_LSTM = """
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Lstm:
    @R.function(private=True)
    def cell(
        x: R.Tensor((1, INPUT), "float32"),
        h: R.Tensor((1, HIDDEN), "float32"),
        c: R.Tensor((1, HIDDEN), "float32"),
    ) -> R.Tuple(R.Tensor((1, HIDDEN), "float32"), R.Tensor((1, HIDDEN), "float32")):
        return (h, c)

    @R.function(private=True)
    def steps(
        step: R.Prim(value="i"),
        xs: R.Tensor(("n", 1, INPUT), "float32"),
        h: R.Tensor((1, HIDDEN), "float32"),
        c: R.Tensor((1, HIDDEN), "float32"),
    ) -> R.Tuple(R.Tensor((1, HIDDEN), "float32"), R.Tensor((1, HIDDEN), "float32")):
        i = T.int64()
        n = T.int64()
        if R.prim_value(i < n):
            row = R.strided_slice(xs, axes=[0], begin=[i], end=[i + 1], assume_inbound=True)
            state = Lstm.cell(R.reshape(row, (1, INPUT)), h, c)
            last = Lstm.steps(R.prim_value(i + 1), xs, state[0], state[1])
        else:
            last = (h, c)
        return last

    @R.function
    def main(
        xs: R.Tensor(("n", 1, INPUT), "float32"),
        h: R.Tensor((1, HIDDEN), "float32"),
        c: R.Tensor((1, HIDDEN), "float32"),
    ) -> R.Tuple(R.Tensor((1, HIDDEN), "float32"), R.Tensor((1, HIDDEN), "float32")):
        last = Lstm.steps(R.prim_value(0), xs, h, c)
        return last
"""


def _lstm(small: bool, rng: np.random.Generator) -> Graph:
    """The weights are bound in the function `cell`, which the recursion calls."""
    length, inputs, hidden = (5, 6, 8) if small else (64, 128, 256)
    state = (1, hidden)
    model = _LstmCell(inputs, hidden)
    rows = {"x": (1, inputs), "h": state, "c": state}
    cell, _ = model.export({"cell": {n: spec.Tensor(s, "float32") for n, s in rows.items()}})
    weights = _weights(model, rng)
    text = _LSTM.replace("INPUT", str(inputs)).replace("HIDDEN", str(hidden))
    mod = from_source(text)
    mod["cell"] = BindParams("cell", weights)(cell)["cell"].without_attr("global_symbol")
    shapes = ((length, 1, inputs), state, state)
    return mod, {}, tuple(rng.standard_normal(s, "float32") for s in shapes)


GRAPHS: dict[str, Callable[[bool, np.random.Generator], Graph]] = {
    "resnet50": _resnet50,
    "mobilenet_v2": _mobilenet_v2,
    "inception": _inception,
    "vgg": _vgg,
    "bert_base": _bert,
    "sentence_encoder": _sentence,
    "gpt2_decode": _gpt2,
    "llama_decode": _llama,
    "lstm": _lstm,
    "unet": _unet,
}
