"""`relay.qnn.op`: the operators of `relax.op.qnn` with Relay's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ...base import submodules
from ...relax.op import qnn
from ..spelling import spelled

Sizes: TypeAlias = "int | Sequence[int]"


def _conv2d(
    data: Any,
    kernel: Any,
    input_zero_point: Any,
    kernel_zero_point: Any,
    input_scale: Any,
    kernel_scale: Any,
    kernel_size: Sizes | None = None,
    channels: int | None = None,
    strides: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    dilation: Sizes = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "int32",
) -> Any:
    return qnn.conv2d(
        data, kernel, input_zero_point, kernel_zero_point, input_scale, kernel_scale,
        kernel_size, channels, strides, padding, dilation, groups, data_layout, kernel_layout,
        out_layout or None, out_dtype,
    )  # fmt: skip


quantize = spelled("qnn.quantize", qnn.quantize)
dequantize = spelled("qnn.dequantize", qnn.dequantize)
requantize = spelled("qnn.requantize", qnn.requantize)
dense = spelled("qnn.dense", qnn.dense)
batch_matmul = spelled("qnn.batch_matmul", qnn.batch_matmul)
conv2d = spelled("qnn.conv2d", _conv2d)
conv2d_transpose = spelled("qnn.conv2d_transpose", qnn.conv2d_transpose)
add = spelled("qnn.add", qnn.add)
subtract = spelled("qnn.subtract", qnn.subtract)
mul = spelled("qnn.mul", qnn.mul)
concatenate = spelled("qnn.concatenate", qnn.concatenate)
avg_pool2d = spelled("qnn.avg_pool2d", qnn.avg_pool2d)
softmax = spelled("qnn.softmax", qnn.softmax)
leaky_relu = spelled(
    "qnn.leaky_relu",
    lambda x, alpha, input_scale, input_zero_point, output_scale, output_zero_point: qnn.leaky_relu(
        x, input_scale, input_zero_point, output_scale, output_zero_point, alpha=float(alpha)
    ),
)
abs = spelled("qnn.abs", qnn.abs)
erf = spelled("qnn.erf", qnn.erf)
exp = spelled("qnn.exp", qnn.exp)
hardswish = spelled("qnn.hardswish", qnn.hardswish)
log = spelled("qnn.log", qnn.log)
rsqrt = spelled("qnn.rsqrt", qnn.rsqrt)
sigmoid = spelled("qnn.sigmoid", qnn.sigmoid)
sqrt = spelled("qnn.sqrt", qnn.sqrt)
tanh = spelled("qnn.tanh", qnn.tanh)

__getattr__ = submodules(__name__)
