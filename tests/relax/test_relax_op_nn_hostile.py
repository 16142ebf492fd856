"""Any attribute and any argument: an operator of nn, image, vision, qdq or grad takes it or says
what it wants. No other error gets out, and a call that is built has its attributes in plain form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxvm import relax, tir
from relaxvm.base import StructInfoError
from relaxvm.relax import op as R

nn, grad, image, vision = R.nn, R.grad, R.image, R.vision


def var(*shape: Any, dtype: str | None = "float32", ndim: int = -1) -> relax.Var:
    if shape == (None,):
        return relax.Var("v", relax.TensorStructInfo(None, dtype, ndim=ndim))
    return relax.Var("v", relax.TensorStructInfo(shape, dtype))


N = tir.Var("n", "int64")
X3, X4, X5, BYTES = var(1, 4, 8), var(1, 4, 8, 8), var(1, 4, 8, 8, 8), var(1, 4, 8, 8, dtype="int8")
C, L, Z = var(4), var(8), var(8, dtype="int8")
HEADS = var(1, 2, 2, 4)

OPERATORS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (nn.conv1d, (X3, var(8, 4, 3)), {}),
    (nn.conv2d, (X4, var(8, 4, 3, 3)), {}),
    (nn.conv3d_transpose, (X5, var(4, 8, 3, 3, 3)), {}),
    (nn.max_pool2d, (X4,), {}),
    (nn.avg_pool3d, (X5,), {}),
    (nn.adaptive_avg_pool2d, (X4,), {}),
    (nn.adaptive_max_pool3d, (X5,), {}),
    (nn.global_avg_pool1d, (X3,), {}),
    (nn.leakyrelu, (X4,), {}),
    (nn.elu, (X4,), {}),
    (nn.celu, (X4,), {}),
    (nn.softplus, (X4,), {}),
    (nn.hardsigmoid, (X4,), {}),
    (nn.softmax, (X4,), {}),
    (nn.log_softmax, (X4,), {}),
    (nn.prelu, (X4, C), {}),
    (nn.layer_norm, (X3, L, L), {"axes": -1}),
    (nn.rms_norm, (X3, L), {}),
    (nn.group_norm, (X4, C, C), {"num_groups": 2, "channel_axis": 1, "axes": [2, 3]}),
    (nn.instance_norm, (X4, C, C), {"channel_axis": 1, "axes": [2, 3]}),
    (nn.batch_norm, (X4, C, C, C, C), {"axis": 1}),
    (nn.dropout, (X4,), {}),
    (nn.dropout_seeded, (X4, 3), {}),
    (nn.rnn, (X3, var(8, 2), var(2, 2), var(2), var(4, dtype="int64"), var(4, 2)), {}),
    (nn.cross_entropy_with_logits, (X4, X4), {}),
    (nn.nll_loss, (var(3, 5), var(3, dtype="int64")), {}),
    (nn.pad, (X4,), {"pad_width": [0] * 8}),
    (nn.pixel_shuffle, (X4,), {"upscale_factor": 2}),
    (nn.depth_to_space, (X4,), {"block_size": 2}),
    (nn.space_to_depth, (X4,), {"block_size": 2}),
    (nn.attention, (HEADS, HEADS, HEADS), {}),
    (image.resize2d, (X4, (3, 3)), {}),
    (image.grid_sample, (X4, var(1, 3, 3, 2)), {}),
    (vision.roi_align, (X4, var(2, 5)), {"pooled_size": 2, "spatial_scale": 1.0}),
    (R.quantize, (X4, L, Z), {}),
    (R.dequantize, (BYTES, L, Z), {}),
    (R.requantize, (BYTES, L, Z, L, Z), {}),
    (R.conv2d_integer, (BYTES, var(8, 4, 3, 3, dtype="int8")), {}),
    (grad.max_pool3d_backward, (X5, X5), {}),
    (grad.avg_pool2d_backward, (X4, X4), {}),
    (grad.adaptive_max_pool2d_backward, (X4, X4), {}),
    (grad.nll_loss_backward, (var(), var(3, 5), var(3, dtype="int64")), {}),
    (grad.grid_sample_backward, (var(1, 4, 3, 3), X4, var(1, 3, 3, 2)), {}),
    (grad.resize2d_backward, (X4, X4), {}),
    (
        grad.roi_align_backward,
        (var(2, 4, 2, 2), X4, var(2, 5)),
        {"pooled_size": 2, "spatial_scale": 1.0},
    ),
]

VALUES = [
    None, -1, 0, 2.5, "a", "", True, (), (1,), (1, 2), (1, 2, 3), (1, -1), (0, 0), (1.5, 2),
    [[1, 2], [3, 4]], 2**40, 10**30, {}, N, (N, N), np.int64(2), np.float32(0.5), float("nan"),
    float("inf"), object(), "float32x4", b"x",
]  # fmt: skip
ARGUMENTS = [
    var(None), var(None, ndim=4), var(1, 4, 8, 8, dtype=None), var(), var(0), var(N),
    var(1, 4, 8, 8, dtype="bool"), var(1, 4, 8, 8, dtype="uint64"), 3, 2.5, None, "x", (), (1, 2),
    relax.Var("o", relax.ObjectStructInfo()), relax.Var("s", relax.ShapeStructInfo((1, 2))),
    np.zeros(3, "float32"), object(),
]  # fmt: skip


def is_plain(value: Any) -> bool:
    items = value if isinstance(value, tuple) else (value,)
    return not any(isinstance(i, np.generic) for i in items)


def tried(op: Any, args: Any, attrs: Any) -> tuple[Any, str]:
    """The call, or what was said against it. Any other error is a failure."""
    try:
        return op(*args, **attrs), ""
    except StructInfoError as error:
        return None, str(error)


def short(value: Any) -> str:
    return value.op.short if hasattr(value, "op") else ""


@pytest.mark.parametrize(("op", "args", "attrs"), OPERATORS, ids=short)
def test_any_attribute_is_taken_or_refused_in_words(op, args, attrs):
    call, said = tried(op, args, attrs)
    assert call is not None or "output_grad: wanted" in said, said
    for param in op.op.params:
        for value in VALUES if param.form is None else ():
            call, said = tried(op, args, {**attrs, param.name: value})
            if call is None:
                assert said.startswith(op.op.short), said
            else:
                assert all(map(is_plain, call.attrs.values())), (param.name, value)


@pytest.mark.parametrize(("op", "args", "attrs"), OPERATORS, ids=short)
def test_any_argument_is_taken_or_refused_in_words(op, args, attrs):
    for k in range(len(args)):
        for value in ARGUMENTS:
            call, said = tried(op, [*args[:k], value, *args[k + 1 :]], attrs)
            assert call is not None or op.op.short in said, said
