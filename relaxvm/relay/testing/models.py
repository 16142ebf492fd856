"""Models that tutorials build: each function gives an untyped `relay.Function`, and its
`get_workload` the module and values of its parameters.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ...base import submodules
from .. import nn
from .. import tensor as ops
from ..expr import var
from . import image_models, layers
from .image_models import function_of as _function
from .init import create_workload


def _named(get_net: Any) -> Any:
    """A module of Relay's testing: the model, and what makes a module of it with parameters."""

    def get_workload(*args: Any, **kwargs: Any) -> Any:
        return create_workload(get_net(*args, **kwargs))

    get_workload.__doc__ = get_net.__doc__
    module: Any = ModuleType(f"{__package__}.{get_net.__name__.lstrip('_')}", get_net.__doc__)
    module.get_net, module.get_workload = get_net, get_workload
    return module


def _mlp(
    batch_size: int = 1,
    num_classes: int = 10,
    image_shape: tuple[int, ...] = (1, 28, 28),
    dtype: str = "float32",
) -> Any:
    """Three dense layers, of 128, 64 and `num_classes` results, and a softmax."""
    data = nn.batch_flatten(var("data", shape=(batch_size, *image_shape), dtype=dtype))
    for name, units in (("fc1", 128), ("fc2", 64)):
        data = nn.relu(layers.dense_add_bias(data, units=units, name=name))
    return _function(nn.softmax(layers.dense_add_bias(data, units=num_classes, name="fc3")))


# Layers -> (units of each stage, whether they have a bottleneck): He et al., 2015.
_RESNETS = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}


def _resnet(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **more: Any,
) -> Any:
    """A residual network of `num_layers`, with batch norm and relu before each convolution. Images
    of up to 32 by 32 have one stage less and no first pool.
    """
    kernel = "OIHW" if layout == "NCHW" else "HWIO"
    axis = layout.index("C")
    height = image_shape[layout.replace("N", "").index("H")]
    if height <= 32:
        if (num_layers - 2) % 6:
            raise ValueError(f"resnet: for small images wanted 6 * n + 2 layers, got {num_layers}")
        units: tuple[int, ...] = ((num_layers - 2) // 6,) * 3
        deep = False
        filters = [16, 16, 32, 64]
    else:
        if num_layers not in _RESNETS:
            raise ValueError(f"resnet: wanted one of {sorted(_RESNETS)} layers, got {num_layers}")
        units, deep = _RESNETS[num_layers]
        filters = [64, 256, 512, 1024, 2048] if deep else [64, 64, 128, 256, 512]

    def conv(data: Any, channels: int, size: int, stride: int, name: str) -> Any:
        return layers.conv2d(
            data,
            name=name,
            channels=channels,
            kernel_size=(size, size),
            strides=(stride, stride),
            padding=(size // 2, size // 2),
            data_layout=layout,
            kernel_layout=kernel,
        )

    def active(data: Any, name: str) -> Any:
        return nn.relu(layers.batch_norm_infer(data, name=name, epsilon=2e-5, axis=axis))

    def unit(data: Any, channels: int, stride: int, same: bool, name: str) -> Any:
        first = active(data, f"{name}_bn1")
        if deep:
            out = conv(first, channels // 4, 1, stride, f"{name}_conv1")
            out = conv(active(out, f"{name}_bn2"), channels // 4, 3, 1, f"{name}_conv2")
            out = conv(active(out, f"{name}_bn3"), channels, 1, 1, f"{name}_conv3")
        else:
            out = conv(first, channels, 3, stride, f"{name}_conv1")
            out = conv(active(out, f"{name}_bn2"), channels, 3, 1, f"{name}_conv2")
        return ops.add(out, data if same else conv(first, channels, 1, stride, f"{name}_sc"))

    net = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    net = layers.batch_norm_infer(net, name="bn_data", epsilon=2e-5, axis=axis, scale=False)
    if height <= 32:
        net = conv(net, filters[0], 3, 1, "conv0")
    else:
        net = active(conv(net, filters[0], 7, 2, "conv0"), "bn0")
        net = nn.max_pool2d(net, (3, 3), (2, 2), padding=(1, 1), layout=layout)
    for i, count in enumerate(units):
        for k in range(count):
            stride = 2 if i and not k else 1
            net = unit(net, filters[i + 1], stride, k > 0, f"stage{i + 1}_unit{k + 1}")
    net = nn.global_avg_pool2d(active(net, "bn1"), layout=layout)
    net = layers.dense_add_bias(nn.batch_flatten(net), units=num_classes, name="fc1")
    return _function(nn.softmax(net))


# Channels and stride of each depthwise separable block: Howard et al., 2017.
_MOBILENET = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)


def _mobilenet(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Any:
    """MobileNet: convolutions by channel followed by those of one tap."""
    axis = layout.index("C")

    def block(data: Any, channels: int, size: int, stride: int, groups: int, name: str) -> Any:
        plain = "HWOI" if groups > 1 else "HWIO"
        out = layers.conv2d(
            data,
            name=f"{name}_conv",
            channels=channels,
            kernel_size=(size, size),
            strides=(stride, stride),
            padding=(size // 2, size // 2),
            groups=groups,
            data_layout=layout,
            kernel_layout="OIHW" if layout == "NCHW" else plain,
        )
        return nn.relu(layers.batch_norm_infer(out, name=f"{name}_bn", axis=axis))

    net = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    net, before = block(net, 32, 3, 2, 1, "conv_block_1"), 32
    for i, (channels, stride) in enumerate(_MOBILENET, 1):
        net = block(net, before, 3, stride, before, f"separable_conv_block_{i}_depthwise")
        net = block(net, channels, 1, 1, 1, f"separable_conv_block_{i}")
        before = channels
    net = nn.batch_flatten(nn.global_avg_pool2d(net, layout=layout))
    return _function(nn.softmax(layers.dense_add_bias(net, units=num_classes, name="fc")))


def _lstm(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Any:
    """Steps of a long short-term memory, all reading the same input "data" in turn."""
    hidden = cell = ops.zeros((batch_size, num_hidden), dtype)
    data = var("data", shape=(batch_size, num_hidden), dtype=dtype)
    weights = {p: var(f"{p}_weight") for p in ("i2h", "h2h")}
    biases = {p: var(f"{p}_bias") for p in ("i2h", "h2h")}
    for _ in range(iterations):
        sums = [
            layers.dense_add_bias(value, weights[p], biases[p], units=4 * num_hidden)
            for p, value in (("i2h", data), ("h2h", hidden))
        ]
        into, forget, new, out = ops.split(ops.add(*sums), 4, axis=1)
        kept = ops.multiply(ops.sigmoid(forget), cell)
        cell = ops.add(kept, ops.multiply(ops.sigmoid(into), ops.tanh(new)))
        hidden = ops.multiply(ops.sigmoid(out), ops.tanh(cell))
    return _function(hidden)


def _dcgan(
    batch_size: int = 1,
    random_len: int = 100,
    oshape: tuple[int, int, int] = (3, 64, 64),
    ngf: int = 128,
    dtype: str = "float32",
) -> Any:
    """A generator of images of 64 by 64 from random vectors: Radford et al., 2015."""
    if tuple(oshape[1:]) != (64, 64):
        raise ValueError(f"dcgan: wanted images of 64 by 64, got {oshape[1:]}")

    def doubled(data: Any, channels: int, name: str) -> Any:
        return layers.conv2d_transpose(
            data,
            name=name,
            channels=channels,
            kernel_size=(4, 4),
            strides=(2, 2),
            padding=(1, 1),
        )

    code = var("data", shape=(batch_size, random_len), dtype=dtype)
    net = nn.dense(code, var("dense_weight"), units=4 * 4 * ngf * 8)
    net = nn.relu(ops.reshape(net, (-1, ngf * 8, 4, 4)))
    for i, factor in enumerate((4, 2, 1), 2):
        net = doubled(net, ngf * factor, f"g{i}")
        net = nn.relu(layers.batch_norm_infer(net, name=f"g{i}_bn", scale=False))
    return _function(ops.tanh(doubled(net, oshape[0], "g5")))


densenet = _named(image_models.densenet)
dqn = _named(image_models.dqn)
inception_v3 = _named(image_models.inception_v3)
squeezenet = _named(image_models.squeezenet)
vgg = _named(image_models.vgg)
mlp = _named(_mlp)
resnet = _named(_resnet)
mobilenet = _named(_mobilenet)
lstm = _named(_lstm)
dcgan = _named(_dcgan)

__getattr__ = submodules(__name__)
