"""`relay.nn`: Relay's layers of neural networks."""

from __future__ import annotations

from typing import Any

from .. import topi
from ..base import StructInfoError, submodules
from ..ir import IntImm
from ..relax import Expr
from ..relax import op as ops
from . import parts
from .parts import of_axis
from .spelling import spelled

_topi: Any = topi.nn
_strided_slice: Any = ops.strided_slice

# -- element by element ----------------------------------------------------------------------------

relu = spelled("nn.relu", lambda data: ops.nn.relu(data))
leaky_relu = spelled("nn.leaky_relu", lambda data, alpha=0.01: ops.nn.leakyrelu(data, alpha))
prelu = spelled(
    "nn.prelu",
    lambda data, alpha, axis=1: ops.nn.prelu(data, alpha, axis),
    weights=of_axis("alpha"),
)
softmax = fast_softmax = spelled("nn.softmax", lambda data, axis=-1: ops.nn.softmax(data, axis))
log_softmax = spelled("nn.log_softmax", lambda data, axis=-1: ops.nn.log_softmax(data, axis))
bias_add = spelled(
    "nn.bias_add",
    lambda data, bias, axis=1: _topi.bias_add.__wrapped__(data, bias, axis),
    weights=of_axis("bias"),
)
batch_flatten = spelled("nn.batch_flatten", _topi.flatten.__wrapped__)
dropout_raw = spelled("nn.dropout", lambda data, rate=0.5: ops.nn.dropout(data, rate), results=2)


def dropout(data: Any, rate: float = 0.5) -> Any:
    """`data` with elements set to 0 while a model is trained, each with the probability `rate`."""
    return dropout_raw(data, rate)[0]


# -- products --------------------------------------------------------------------------------------


def _columns(weight: Any, units: Any, what: str) -> None:
    """Check what the caller says about the number of results against the weight."""
    size = weight.struct_info.dims[0] if getattr(weight.struct_info, "dims", None) else None
    if units is not None and isinstance(size, IntImm) and size.value != units:
        raise StructInfoError(f"{what}: wanted {units} of them, the weight has {size}")


def _dense(data: Any, weight: Any, units: int | None = None, out_dtype: str = "") -> Expr:
    _columns(weight, units, "nn.dense: units")
    return ops.matmul(data, ops.permute_dims(weight), out_dtype or None)


def _second_factor(a: Any) -> dict[str, Any]:
    inner = a.tensor_a.struct_info.dims[-2 if a.transpose_a else -1]
    return {"tensor_b": (a.units, inner) if a.transpose_b else (inner, a.units)}


dense = spelled(
    "nn.dense", _dense, weights=lambda a: {"weight": (a.units, a.data.struct_info.dims[-1])}
)
matmul = spelled(
    "nn.matmul",
    lambda tensor_a, tensor_b, units=None, out_dtype="", transpose_a=False, transpose_b=False: (
        _topi.matmul.__wrapped__(
            tensor_a, tensor_b, None, out_dtype or None, transpose_a, transpose_b
        )
    ),
    weights=_second_factor,
)
batch_matmul = spelled(
    "nn.batch_matmul",
    lambda tensor_a, tensor_b, out_dtype="", transpose_a=False, transpose_b=True: (
        _topi.batch_matmul.__wrapped__(
            tensor_a, tensor_b, None, out_dtype or None, transpose_a, transpose_b
        )
    ),
)

# -- convolutions ----------------------------------------------------------------------------------


def _checked(
    name: str, weight: Any, layout: str, groups: int, channels: Any, kernel_size: Any
) -> None:
    """Check `channels` and `kernel_size`, which the weight says itself."""
    dims = getattr(weight.struct_info, "dims", None)
    if not dims or len(dims) != len(layout):
        return
    spatial = "DHW"[5 - len(layout) :]
    sizes = [kernel_size] * 3 if isinstance(kernel_size, int) else kernel_size or ()
    for axis, wanted in (("O", channels), *zip(spatial, sizes)):
        got = dims[layout.index(axis)]
        # A transposed kernel has the channels of one group.
        count = groups if axis == "O" and name.endswith("transpose") else 1
        if wanted is not None and isinstance(got, IntImm) and got.value * count != wanted:
            what = "channels" if axis == "O" else "kernel_size"
            raise StructInfoError(
                f"nn.{name}: {what}: wanted {wanted} along {axis} of {layout}, the weight has "
                f"{got.value * count}"
            )


def _kernel(a: Any, grouped: str) -> dict[str, Any]:
    """The shape of a kernel for `channels` results; along the axis `grouped` it has the channels of
    one group.
    """
    dims, rank = a.data.struct_info.dims, len(a.kernel_layout) - 2
    spatial = "DHW"[3 - rank :]
    if len(dims) != len(a.data_layout) or sorted(a.data_layout) != sorted("NC" + spatial):
        return {}
    sizes: dict[str, Any] = {"I": dims[a.data_layout.index("C")], "O": a.channels}
    if sizes[grouped] is not None:
        sizes[grouped] = sizes[grouped] // a.groups
    kernel = a.kernel_size
    sizes.update(zip(spatial, [kernel] * rank if isinstance(kernel, int) else kernel or ()))
    return {"weight": tuple([sizes.get(axis) for axis in a.kernel_layout])}


def _per_channel(
    data: Any, weight: Any, data_layout: str, kernel_layout: str, groups: int
) -> tuple[Any, str]:
    """The kernel of a depthwise convolution with ``O`` channels of the data and ``I`` results of
    each, as Relay lets it be written, as one with a group for each channel.
    """
    dims, own = data.struct_info.dims, getattr(weight.struct_info, "dims", None)
    axes = dict(zip(kernel_layout, own or ()))
    per_channel = axes.get("I")
    if (
        groups == 1
        or not (dims and own and len(dims) == len(data_layout) and len(own) == len(kernel_layout))
        or not isinstance(per_channel, IntImm)
        or per_channel.value == 1
        or not dims[data_layout.index("C")] == axes["O"] == groups
    ):
        return weight, kernel_layout
    plain = "OI" + "".join(a for a in kernel_layout if a not in "OI")
    moved = ops.permute_dims(weight, tuple([kernel_layout.index(a) for a in plain]))
    sizes = [axes["O"] * per_channel, 1, *(axes[a] for a in plain[2:])]
    return ops.reshape(moved, sizes), plain


def _convolution(rank: int, layout: str, kernel: str) -> Any:
    name = f"conv{rank}d"
    operator = {1: ops.nn.conv1d, 2: ops.nn.conv2d, 3: ops.nn.conv3d}[rank]

    def build(
        data: Any,
        weight: Any,
        strides: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        channels: int | None = None,
        kernel_size: Any = None,
        data_layout: str = layout,
        kernel_layout: str = kernel,
        out_layout: str = "",
        out_dtype: str = "",
    ) -> Any:
        weight, kernel_layout = _per_channel(data, weight, data_layout, kernel_layout, groups)
        _checked(name, weight, kernel_layout, groups, channels, kernel_size)
        return operator(
            data,
            weight,
            strides,
            padding,
            dilation,
            groups,
            data_layout,
            kernel_layout,
            out_layout or None,
            out_dtype or None,
        )

    return spelled(f"nn.{name}", build, weights=lambda a: _kernel(a, "I"))


def _transposed(rank: int, layout: str, kernel: str) -> Any:
    name = f"conv{rank}d_transpose"
    operator = (ops.nn.conv1d_transpose, ops.nn.conv2d_transpose, ops.nn.conv3d_transpose)[rank - 1]

    def build(
        data: Any,
        weight: Any,
        strides: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        channels: int | None = None,
        kernel_size: Any = None,
        groups: int = 1,
        data_layout: str = layout,
        kernel_layout: str = kernel,
        out_layout: str = "",
        output_padding: Any = 0,
        out_dtype: str = "",
    ) -> Any:
        _checked(name, weight, kernel_layout, groups, channels, kernel_size)
        return operator(
            data,
            weight,
            strides,
            padding,
            output_padding,
            dilation,
            groups,
            data_layout,
            kernel_layout,
            out_layout or None,
            out_dtype or None,
        )

    return spelled(f"nn.{name}", build, weights=lambda a: _kernel(a, "O"))


conv1d = _convolution(1, "NCW", "OIW")
conv2d = _convolution(2, "NCHW", "OIHW")
conv3d = _convolution(3, "NCDHW", "OIDHW")
conv1d_transpose = _transposed(1, "NCW", "IOW")
conv2d_transpose = _transposed(2, "NCHW", "IOHW")
conv3d_transpose = _transposed(3, "NCDHW", "IODHW")

# -- pools -----------------------------------------------------------------------------------------

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _pool(kind: str, rank: int, operator: Any) -> Any:
    def build(
        data: Any,
        pool_size: Any = 1,
        strides: Any = 1,
        dilation: Any = 1,
        padding: Any = 0,
        layout: str = _LAYOUTS[rank],
        out_layout: str = "",
        ceil_mode: bool = False,
        count_include_pad: bool = False,
    ) -> Any:
        out = out_layout or None
        return operator(
            data, pool_size, strides, padding, dilation, ceil_mode, count_include_pad, layout, out
        )

    return spelled(f"nn.{kind}_pool{rank}d", build)


def _adaptive(kind: str, rank: int, operator: Any, size: Any = None) -> Any:
    """Pools to a size of the result; those that Relay calls global, to 1."""
    layouts = _LAYOUTS[rank]
    if size is not None:
        return spelled(
            f"nn.global_{kind}_pool{rank}d",
            lambda data, layout=layouts, out_layout="": operator(
                data, size, layout, out_layout or None
            ),
        )
    return spelled(
        f"nn.adaptive_{kind}_pool{rank}d",
        lambda data, output_size=None, layout=layouts, out_layout="": operator(
            data, output_size, layout, out_layout or None
        ),
    )


max_pool1d = _pool("max", 1, ops.nn.max_pool1d)
max_pool2d = _pool("max", 2, ops.nn.max_pool2d)
max_pool3d = _pool("max", 3, ops.nn.max_pool3d)
avg_pool1d = _pool("avg", 1, ops.nn.avg_pool1d)
avg_pool2d = _pool("avg", 2, ops.nn.avg_pool2d)
avg_pool3d = _pool("avg", 3, ops.nn.avg_pool3d)
adaptive_max_pool1d = _adaptive("max", 1, ops.nn.adaptive_max_pool1d)
adaptive_max_pool2d = _adaptive("max", 2, ops.nn.adaptive_max_pool2d)
adaptive_max_pool3d = _adaptive("max", 3, ops.nn.adaptive_max_pool3d)
adaptive_avg_pool1d = _adaptive("avg", 1, ops.nn.adaptive_avg_pool1d)
adaptive_avg_pool2d = _adaptive("avg", 2, ops.nn.adaptive_avg_pool2d)
adaptive_avg_pool3d = _adaptive("avg", 3, ops.nn.adaptive_avg_pool3d)
global_max_pool1d = _adaptive("max", 1, ops.nn.adaptive_max_pool1d, (1,))
global_max_pool2d = _adaptive("max", 2, ops.nn.adaptive_max_pool2d, (1, 1))
global_max_pool3d = _adaptive("max", 3, ops.nn.adaptive_max_pool3d, (1, 1, 1))
global_avg_pool1d = _adaptive("avg", 1, ops.nn.adaptive_avg_pool1d, (1,))
global_avg_pool2d = _adaptive("avg", 2, ops.nn.adaptive_avg_pool2d, (1, 1))
global_avg_pool3d = _adaptive("avg", 3, ops.nn.adaptive_avg_pool3d, (1, 1, 1))

# -- normalisation ---------------------------------------------------------------------------------


def _batch_norm(
    data: Any,
    gamma: Any,
    beta: Any,
    moving_mean: Any,
    moving_var: Any,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    """By the moving statistics: the result, and these."""
    return ops.nn.batch_norm(
        data, gamma, beta, moving_mean, moving_var, axis, epsilon, center, scale, training=False
    )


def _spatial(data: Any, axis: int) -> list[int]:
    """The axes of one image but `axis`."""
    ndim = data.struct_info.ndim
    return [a for a in range(1, ndim) if a != axis % ndim]


def _lrn(
    data: Any,
    size: int = 5,
    axis: int = 1,
    bias: float = 2.0,
    alpha: float = 1e-5,
    beta: float = 0.75,
) -> Any:
    """x / (bias + alpha / size * sum of x * x)**beta, the sum over the `size` nearest along
    `axis`.
    """
    dims = data.struct_info.dims
    axis %= len(dims)
    before = size // 2
    widths = [
        w for a in range(len(dims)) for w in ((before, size - 1 - before) * (a == axis) or (0, 0))
    ]
    wide = ops.nn.pad(ops.multiply(data, data), widths)
    parts = [_strided_slice(wide, [axis], [k], [dims[axis] + k]) for k in range(size)]
    total = parts[0]
    for part in parts[1:]:
        total = ops.add(total, part)
    return ops.divide(data, ops.power(ops.add(ops.multiply(total, alpha / size), bias), beta))


batch_norm = spelled(
    "nn.batch_norm",
    _batch_norm,
    results=3,
    weights=of_axis("gamma", "beta", "moving_mean", "moving_var"),
)
layer_norm = spelled(
    "nn.layer_norm",
    lambda data, gamma, beta, axis=-1, epsilon=1e-5, center=True, scale=True: ops.nn.layer_norm(
        data, gamma, beta, axis, epsilon, center, scale
    ),
    weights=of_axis("gamma", "beta"),
)
instance_norm = spelled(
    "nn.instance_norm",
    lambda data, gamma, beta, axis=1, epsilon=1e-5, center=True, scale=True: ops.nn.instance_norm(
        data, gamma, beta, axis, _spatial(data, axis), epsilon, center, scale
    ),
    weights=of_axis("gamma", "beta"),
)
group_norm = spelled(
    "nn.group_norm",
    lambda data, gamma, beta, num_groups, axis=1, epsilon=1e-5, center=True, scale=True: (
        ops.nn.group_norm(
            data, gamma, beta, num_groups, axis, _spatial(data, axis), epsilon, center, scale
        )
    ),
    weights=of_axis("gamma", "beta"),
)
l2_normalize = spelled(
    "nn.l2_normalize",
    lambda data, eps, axis=None: ops.divide(
        data,
        ops.sqrt(ops.maximum(ops.sum(ops.multiply(data, data), axis, True), eps)),
    ),
)
lrn = spelled("nn.lrn", _lrn)

# -- padding and images ----------------------------------------------------------------------------

pad = spelled("nn.pad", parts.padded)


def _upsampling(
    data: Any,
    scale_h: Any = 1,
    scale_w: Any = 1,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Any:
    scales = (parts.one(scale_h), parts.one(scale_w))
    return _topi.upsampling.__wrapped__(data, *scales, layout, method, align_corners)


upsampling = spelled("nn.upsampling", _upsampling)
upsampling3d = spelled("nn.upsampling3d", parts.upsampling3d)
mirror_pad = spelled("nn.mirror_pad", parts.mirrored)
dilate = spelled("nn.dilate", parts.dilated)
space_to_batch_nd = spelled("nn.space_to_batch_nd", parts.space_to_batch)
batch_to_space_nd = spelled("nn.batch_to_space_nd", parts.batch_to_space)
fifo_buffer = spelled("nn.fifo_buffer", parts.fifo_buffer)
depth_to_space = spelled(
    "nn.depth_to_space",
    lambda data, block_size, layout="NCHW", mode="DCR": ops.nn.depth_to_space(
        data,
        block_size,
        layout,
        "CRD" if mode == "CDR" else mode,  # Relay's name, and ONNX's
    ),
)
space_to_depth = spelled(
    "nn.space_to_depth",
    lambda data, block_size, layout="NCHW": ops.nn.space_to_depth(data, block_size, layout),
)

# -- losses ----------------------------------------------------------------------------------------

cross_entropy = spelled(
    "nn.cross_entropy",
    lambda predictions, targets: ops.nn.cross_entropy_with_logits(ops.log(predictions), targets),
)
cross_entropy_with_logits = spelled(
    "nn.cross_entropy_with_logits",
    lambda predictions, targets: ops.nn.cross_entropy_with_logits(predictions, targets),
)
nll_loss = spelled(
    "nn.nll_loss",
    lambda predictions, targets, weights, reduction="mean", ignore_index=-100: ops.nn.nll_loss(
        predictions, targets, weights, reduction, ignore_index
    ),
)

__getattr__ = submodules(__name__)
