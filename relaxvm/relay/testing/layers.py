"""Layers with parameters of their own, by name: ``layers.conv2d(data, name="conv0", ...)``."""

from __future__ import annotations

from typing import Any

from ...base import submodules
from .. import nn
from ..expr import var


def conv2d(data: Any, weight: Any = None, *, name: str = "conv", **kwargs: Any) -> Any:
    """A convolution with the weight ``name_weight``."""
    return nn.conv2d(data, weight or var(f"{name}_weight"), **kwargs)


def conv2d_transpose(data: Any, weight: Any = None, *, name: str = "conv", **kwargs: Any) -> Any:
    """A transposed convolution with the weight ``name_weight``."""
    return nn.conv2d_transpose(data, weight or var(f"{name}_weight"), **kwargs)


def dense_add_bias(
    data: Any,
    weight: Any = None,
    bias: Any = None,
    units: int | None = None,
    *,
    name: str = "fc",
    **kwargs: Any,
) -> Any:
    """A dense layer with ``name_weight`` and ``name_bias``."""
    product = nn.dense(data, weight or var(f"{name}_weight"), units, **kwargs)
    return nn.bias_add(product, bias or var(f"{name}_bias"), axis=-1)


def batch_norm_infer(
    data: Any,
    gamma: Any = None,
    beta: Any = None,
    moving_mean: Any = None,
    moving_var: Any = None,
    *,
    name: str = "bn",
    **kwargs: Any,
) -> Any:
    """A batch norm by its moving statistics: ``name_gamma``, ``name_beta``, ..."""
    weights = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    parts = [value or var(f"{name}_{part}") for part, value in weights.items()]
    return nn.batch_norm(data, *parts, **kwargs)[0]


__getattr__ = submodules(__name__)
