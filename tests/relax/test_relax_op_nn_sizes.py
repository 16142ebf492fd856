"""Sizes that only the run tells: what does not fit stops the program before a kernel reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relax_vm_helpers import build_interpreted

from relaxvm import relax, tir
from relaxvm.base import VMError
from relaxvm.ir import IRModule
from relaxvm.relax import op as R
from relaxvm.runtime import VirtualMachine, cpu

nn, image = R.nn, R.image


def function(builder: Any, name: str, make: Any, arrays: Any, given: Any = ()) -> None:
    """A function that gives ``make(*variables)``, every dimension of which is a symbol of its own.

    given  for each array the axes whose size is known all the same
    """
    params = []
    for k, a in enumerate(arrays):
        dims: list[Any] = [tir.Var(f"d{k}_{axis}", "int64") for axis in range(a.ndim)]
        for axis in given[k] if given else ():
            dims[axis] = a.shape[axis]
        params.append(relax.Var(f"x{k}", relax.TensorStructInfo(dims, a.dtype.name)))
    with builder.function(name, params):
        with builder.dataflow():
            out = builder.emit_output(make(*params))
        builder.emit_func_output(out)


def ones(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.ones(shape, dtype)


MISFITS = {
    "conv2d: channels": (nn.conv2d, [ones(1, 4, 5, 5), ones(2, 3, 3, 3)]),
    "conv2d: channels of groups": (
        lambda x, w: nn.conv2d(x, w, groups=2),
        [ones(1, 7, 5, 5), ones(2, 3, 3, 3)],
    ),
    "conv2d: groups": (
        lambda x, w: nn.conv2d(x, w, groups=2),
        [ones(1, 6, 5, 5), ones(3, 3, 3, 3)],
    ),
    "conv2d: a window too large": (nn.conv2d, [ones(1, 3, 2, 2), ones(2, 3, 4, 4)]),
    "conv2d: blocks of the data": (
        lambda x, w: nn.conv2d(x, w, data_layout="NCHW4c", out_layout="NCHW"),
        [ones(1, 1, 5, 5, 3), ones(2, 4, 3, 3)],
    ),
    "conv2d: blocks of the result": (
        lambda x, w: nn.conv2d(x, w, out_layout="NCHW4c"),
        [ones(1, 3, 5, 5), ones(6, 3, 3, 3)],
    ),
    "conv1d_transpose: channels": (nn.conv1d_transpose, [ones(1, 4, 5), ones(3, 2, 3)]),
    "max_pool2d: a window too large": (lambda x: nn.max_pool2d(x, 4), [ones(1, 1, 2, 2)]),
    "avg_pool2d: blocks": (lambda x: nn.avg_pool2d(x, 2, layout="NCHW4c"), [ones(1, 1, 4, 4, 3)]),
    "prelu: slopes": (nn.prelu, [ones(2, 3, 4), ones(4)]),
    "layer_norm: gamma": (
        lambda x, g, b: nn.layer_norm(x, g, b, axes=-1),
        [ones(2, 5), ones(6), ones(5)],
    ),
    "rms_norm: weight": (nn.rms_norm, [ones(2, 5), ones(6)]),
    "group_norm: beta": (
        lambda x, g, b: nn.group_norm(x, g, b, 2, 1, [2]),
        [ones(2, 4, 3), ones(4), ones(5)],
    ),
    "group_norm: groups": (
        lambda x, g, b: nn.group_norm(x, g, b, 2, 1, [2]),
        [ones(2, 5, 3), ones(5), ones(5)],
    ),
    "instance_norm: gamma": (
        lambda x, g, b: nn.instance_norm(x, g, b, 1, [2]),
        [ones(2, 4, 3), ones(5), ones(4)],
    ),
    "batch_norm: moving_mean": (
        lambda x, *v: nn.batch_norm(x, *v, axis=1),
        [ones(2, 4), ones(4), ones(4), ones(5), ones(4)],
    ),
    "cross_entropy_with_logits: labels": (
        nn.cross_entropy_with_logits,
        [ones(3, 4), ones(3, 5)],
    ),
    "nll_loss: targets": (nn.nll_loss, [ones(3, 4), ones(2, dtype="int64")]),
    "nll_loss: weights": (nn.nll_loss, [ones(3, 4), ones(3, dtype="int64"), ones(3)]),
    "pixel_shuffle: channels": (lambda x: nn.pixel_shuffle(x, 2), [ones(1, 6, 2, 2)]),
    "depth_to_space: channels": (lambda x: nn.depth_to_space(x, 2), [ones(1, 6, 2, 2)]),
    "space_to_depth: rows": (lambda x: nn.space_to_depth(x, 2), [ones(1, 1, 3, 4)]),
    "resize2d: blocks": (
        lambda x: image.resize2d(x, (2, 2), layout="NCHW4c"),
        [ones(1, 1, 3, 3, 5)],
    ),
    "grid_sample: samples": (image.grid_sample, [ones(2, 1, 3, 3), ones(3, 2, 2, 2)]),
    "grid_sample: coordinates": (image.grid_sample, [ones(2, 1, 3, 3), ones(2, 2, 2, 3)]),
    "grid_sample_backward: gradient": (
        R.grad.grid_sample_backward,
        [ones(2, 1, 2, 3), ones(2, 1, 3, 3), ones(2, 2, 2, 2)],
    ),
    "max_pool3d_backward: gradient": (
        lambda g, x: R.grad.max_pool3d_backward(g, x, 2),
        [ones(1, 1, 2, 2, 3), ones(1, 1, 3, 3, 3)],
    ),
    "roi_align: regions": (
        lambda x, r: R.vision.roi_align(x, r, 2, 1.0, sample_ratio=2),
        [ones(1, 1, 3, 3), ones(2, 6)],
    ),
    "attention: keys": (
        nn.attention,
        [ones(1, 2, 1, 4), ones(1, 3, 1, 4), ones(1, 4, 1, 4)],
        ((2,), (2,), (2,)),
    ),
    "conv2d_integer: groups": (
        lambda x, w: R.conv2d_integer(x, w, groups=2),
        [ones(1, 2, 3, 3, dtype="int8"), ones(3, 1, 2, 2, dtype="int8")],
    ),
}


FITTING = [
    (nn.conv2d, [ones(1, 3, 5, 5), ones(2, 3, 3, 3)], (1, 2, 3, 3)),
    (lambda x: nn.pixel_shuffle(x, 2), [ones(1, 8, 2, 2)], (1, 2, 4, 4)),
    (
        lambda x, g, b: nn.group_norm(x, g, b, 2, 1, [2]),
        [ones(2, 4, 3), ones(4), ones(4)],
        (2, 4, 3),
    ),
]


def misfits() -> IRModule:
    """All that do not fit in one module."""
    builder = relax.BlockBuilder()
    for k, case in enumerate(MISFITS.values()):
        function(builder, f"bad{k}", *case)
    return builder.get()


@pytest.fixture(scope="module")
def machine() -> VirtualMachine:
    """The misfits with interpreted kernels: one that reads beyond its arrays raises IndexError."""
    return build_interpreted(misfits())


REFUSAL = r"wanted|gives gv\d*: .*axis 2 would have the negative size -1"


@pytest.mark.parametrize("name", MISFITS)
def test_a_size_that_does_not_fit_stops_the_program(machine, name):
    with pytest.raises(VMError, match=REFUSAL):
        machine[f"bad{list(MISFITS).index(name)}"](*MISFITS[name][1])


@pytest.mark.slow
def test_a_size_that_does_not_fit_stops_the_compiled_program():
    vm = VirtualMachine(relax.build(misfits(), target="llvm"), cpu())
    for k, (_, arrays, *_) in enumerate(MISFITS.values()):
        with pytest.raises(VMError, match=REFUSAL):
            vm[f"bad{k}"](*arrays)


def test_sizes_that_fit_run():
    builder = relax.BlockBuilder()
    for k, (make, arrays, _) in enumerate(FITTING):
        function(builder, f"good{k}", make, arrays)
    vm = VirtualMachine(relax.build(builder.get(), target="llvm"), cpu())
    for k, (_, arrays, shape) in enumerate(FITTING):
        assert vm[f"good{k}"](*arrays).shape == shape
