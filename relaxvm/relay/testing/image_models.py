"""Models of images by windows: VGG, SqueezeNet, DenseNet, Inception v3, and the deep Q-network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import submodules
from ...relax.analysis import free_vars
from .. import nn
from .. import tensor as ops
from ..expr import Function, var
from . import layers


def function_of(net: Any) -> Any:
    """The function of all variables that `net` reads."""
    return Function.make(free_vars(net), net)


def _conv(data: Any, name: str, channels: int, size: Any, stride: int = 1, pad: Any = 0) -> Any:
    """A convolution with a bias and relu."""
    out = layers.conv2d(
        data,
        name=name,
        channels=channels,
        kernel_size=(size, size),
        strides=(stride, stride),
        padding=(pad, pad),
    )
    return nn.relu(nn.bias_add(out, var(f"{name}_bias")))


# Layers -> convolutions of each stage: Simonyan and Zisserman, 2014.
_VGGS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def vgg(
    batch_size: int = 1,
    image_shape: Sequence[int] = (3, 224, 224),
    num_classes: int = 1000,
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
) -> Any:
    """Stages of convolutions by 3 and a pool, and three dense layers."""
    if num_layers not in _VGGS:
        raise ValueError(f"vgg: wanted one of {sorted(_VGGS)} layers, got {num_layers}")
    net = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for i, count in enumerate(_VGGS[num_layers], 1):
        for k in range(1, count + 1):
            name = f"conv{i}_{k}"
            net = layers.conv2d(
                net, name=name, channels=min(64 << (i - 1), 512), kernel_size=(3, 3), padding=(1, 1)
            )
            net = nn.bias_add(net, var(f"{name}_bias"))
            if batch_norm:
                net = layers.batch_norm_infer(net, name=f"bn{i}_{k}")
            net = nn.relu(net)
        net = nn.max_pool2d(net, (2, 2), (2, 2))
    net = nn.batch_flatten(net)
    for name in ("fc6", "fc7"):
        net = nn.dropout(nn.relu(layers.dense_add_bias(net, units=4096, name=name)), 0.5)
    return function_of(nn.softmax(layers.dense_add_bias(net, units=num_classes, name="fc8")))


# Version -> (channels and window of the first convolution, the modules after which a pool stands):
# Iandola et al., 2016.
_SQUEEZENETS = {"1.0": ((96, 7), (0, 3, 7)), "1.1": ((64, 3), (0, 2, 4))}
_SQUEEZED = (16, 16, 32, 32, 48, 48, 64, 64)


def squeezenet(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.0",
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
) -> Any:
    """Modules that first squeeze channels, then compute them by windows of 1 and of 3."""
    if version not in _SQUEEZENETS:
        raise ValueError(f"squeezenet: wanted one of {[*_SQUEEZENETS]}, got {version!r}")
    (channels, size), pooled = _SQUEEZENETS[version]
    net = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    net = _conv(net, "conv1", channels, size, 2)
    for i, squeezed in enumerate(_SQUEEZED):
        if i in pooled:
            net = nn.max_pool2d(net, (3, 3), (2, 2))
        name = f"fire{i + 2}"
        net = _conv(net, f"{name}_squeeze", squeezed, 1)
        wide = [_conv(net, f"{name}_expand{k}", 4 * squeezed, k, 1, k // 2) for k in (1, 3)]
        net = ops.concatenate(wide, axis=1)
    net = _conv(nn.dropout(net, 0.5), "conv_last", num_classes, 1)
    return function_of(nn.softmax(nn.batch_flatten(nn.global_avg_pool2d(net))))


# Layers -> (channels at first, growth, layers of each block): Huang et al., 2016.
_DENSENETS = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}


def densenet(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
) -> Any:
    """Blocks in which each layer reads the results of all before it."""
    if densenet_size not in _DENSENETS:
        raise ValueError(f"densenet: wanted one of {[*_DENSENETS]}, got {densenet_size}")
    channels, growth, blocks = _DENSENETS[densenet_size]

    def active(data: Any, name: str) -> Any:
        return nn.relu(layers.batch_norm_infer(data, name=name))

    def conv(data: Any, name: str, channels: int, size: int, stride: int = 1) -> Any:
        window, pad = (size, size), (size // 2, size // 2)
        return layers.conv2d(
            data,
            name=name,
            channels=channels,
            kernel_size=window,
            strides=(stride, stride),
            padding=pad,
        )

    net = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    net = active(conv(net, "conv1", channels, 7, 2), "batch_norm1")
    net = nn.max_pool2d(net, (3, 3), (2, 2), padding=(1, 1))
    for i, count in enumerate(blocks, 1):
        for k in range(1, count + 1):
            name = f"stage{i}_layer{k}"
            new = conv(active(net, f"{name}_bn1"), f"{name}_conv1", 4 * growth, 1)
            new = conv(active(new, f"{name}_bn2"), f"{name}_conv2", growth, 3)
            net = ops.concatenate([net, new], axis=1)
            channels += growth
        if i < len(blocks):
            channels //= 2
            net = conv(active(net, f"transition{i}_bn"), f"transition{i}_conv", channels, 1)
            net = nn.avg_pool2d(net, (2, 2), (2, 2))
    net = nn.batch_flatten(nn.global_avg_pool2d(active(net, "batch_norm_last")))
    return function_of(layers.dense_add_bias(net, units=classes, name="dense1"))


# A step of a branch: channels, height and width of the window, stride.
_Step = tuple[int, int, int, int]


def _c(channels: int, height: int = 1, width: int = 1, stride: int = 1) -> _Step:
    return channels, height, width, stride


def _wide(a: int, out: int = 192) -> list[Any]:
    """A branch by windows of 1 by 7 and 7 by 1, and one by two of each."""
    twice = [_c(a), _c(a, 7, 1), _c(a, 1, 7), _c(a, 7, 1), _c(out, 1, 7)]
    return [[_c(192)], [_c(a), _c(a, 1, 7), _c(out, 7, 1)], twice]


_SMALL = [[_c(64)], [_c(48), _c(64, 5, 5)], [_c(64), _c(96, 3, 3), _c(96, 3, 3)]]
_BOTH = [_c(384, 1, 3), _c(384, 3, 1)]
_LARGE = [[_c(320)], [_c(384), _BOTH], [_c(448), _c(384, 3, 3), _BOTH]]
# The modules: branches, whose last steps may be several beside each other, then the pool: its kind
# and the channels of what follows it, None for a module that halves the image.
# Szegedy et al., 2015.
_INCEPTION: tuple[tuple[list[Any], str, int | None], ...] = (
    *((_SMALL, "avg", proj) for proj in (32, 64, 64)),
    ([[_c(384, 3, 3, 2)], [_c(64), _c(96, 3, 3), _c(96, 3, 3, 2)]], "max", None),
    *((_wide(a), "avg", 192) for a in (128, 160, 160, 192)),
    (
        [[_c(192), _c(320, 3, 3, 2)], [_c(192), _c(192, 1, 7), _c(192, 7, 1), _c(192, 3, 3, 2)]],
        *("max", None),
    ),
    (_LARGE, "avg", 192),
    (_LARGE, "max", 192),
)


def inception_v3(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 299, 299),
    dtype: str = "float32",
) -> Any:
    """Modules whose branches look at windows of several sizes; images of 75 by 75 and up."""

    def conv(data: Any, step: _Step, name: str, valid: bool = False) -> Any:
        channels, height, width, stride = step
        out = layers.conv2d(
            data,
            name=f"{name}_conv",
            channels=channels,
            kernel_size=(height, width),
            strides=(stride, stride),
            padding=(0, 0) if valid or stride > 1 else (height // 2, width // 2),
        )
        return nn.relu(layers.batch_norm_infer(out, name=f"{name}_bn", epsilon=2e-5, scale=False))

    def module(data: Any, branches: list[Any], pool: str, proj: int | None, name: str) -> Any:
        ends = []
        for i, steps in enumerate(branches):
            out = data
            for k, step in enumerate(steps):
                beside = step if isinstance(step, list) else [step]
                last = [conv(out, s, f"{name}_{i}_{k}_{j}") for j, s in enumerate(beside)]
                out = last[0]
            ends += last
        pooled = nn.avg_pool2d if pool == "avg" else nn.max_pool2d
        stride, pad = (2, 0) if proj is None else (1, 1)
        out = pooled(data, (3, 3), (stride, stride), padding=(pad, pad))
        ends.append(out if proj is None else conv(out, _c(proj), f"{name}_pool"))
        return ops.concatenate(ends, axis=1)

    net = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    net = conv(net, _c(32, 3, 3, 2), "conv")
    net = conv(net, _c(32, 3, 3), "conv_1", valid=True)
    net = nn.max_pool2d(conv(net, _c(64, 3, 3), "conv_2"), (3, 3), (2, 2))
    net = conv(net, _c(80), "conv_3")
    net = nn.max_pool2d(conv(net, _c(192, 3, 3), "conv_4", valid=True), (3, 3), (2, 2))
    for i, (branches, pool, proj) in enumerate(_INCEPTION):
        net = module(net, branches, pool, proj, f"mixed_{i}")
    net = nn.batch_flatten(nn.global_avg_pool2d(net))
    return function_of(nn.softmax(layers.dense_add_bias(net, units=num_classes, name="fc1")))


def dqn(
    batch_size: int = 1,
    num_actions: int = 18,
    image_shape: Sequence[int] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Any:
    """The network that plays Atari: Mnih et al., 2015."""
    kernel = "OIHW" if layout == "NCHW" else "HWIO"
    net = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for i, (channels, size, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 1):
        net = layers.conv2d(
            net,
            name=f"conv{i}",
            channels=channels,
            kernel_size=(size, size),
            strides=(stride, stride),
            data_layout=layout,
            kernel_layout=kernel,
        )
        net = nn.relu(nn.bias_add(net, var(f"conv{i}_bias"), axis=layout.index("C")))
    net = nn.relu(layers.dense_add_bias(nn.batch_flatten(net), units=512, name="dense1"))
    return function_of(layers.dense_add_bias(net, units=num_actions, name="dense2"))


__getattr__ = submodules(__name__)
