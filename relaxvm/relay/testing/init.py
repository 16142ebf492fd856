"""Values of parameters for models of `relay.testing`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base import submodules
from ...ir import IRModule
from ...runtime import array
from ..transform import InferType


class Initializer:
    """Fills arrays by the ends of parameters' names: weights at random, the rest with 0 or 1."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, desc: str, arr: Any) -> None:
        ones = desc.endswith(("gamma", "moving_var"))
        zeros = desc.endswith(("bias", "beta", "moving_mean"))
        if ones or zeros:
            arr[...] = float(ones)
        else:
            arr[...] = self.weights(arr.shape)

    def weights(self, shape: tuple[int, ...]) -> Any:
        """Random weights of a layer."""
        return self.rng.standard_normal(shape) * 0.01


class Xavier(Initializer):
    """Weights from -s to s, s = sqrt(magnitude / n), n the mean of the numbers of inputs and
    results of the layer (Glorot and Bengio, 2010).
    """

    def __init__(self, magnitude: float = 3, seed: int = 0) -> None:
        super().__init__(seed)
        self.magnitude = magnitude

    def weights(self, shape: tuple[int, ...]) -> Any:
        """Random weights of a layer."""
        places = int(np.prod(shape[2:])) if len(shape) > 2 else 1
        ends = [max(n * places, 1) for n in shape[:2]] or [1]
        scale = float(np.sqrt(self.magnitude * len(ends) / sum(ends)))
        return self.rng.uniform(-scale, scale, shape)


def create_workload(
    net: Any, initializer: Initializer | None = None, seed: int = 0
) -> tuple[IRModule, dict[str, Any]]:
    """A module of `net`, its types found, and values of all parameters but "data" by name."""
    mod = InferType()(IRModule.from_expr(net))
    fill = initializer or Xavier(seed=seed)
    main: Any = mod["main"]
    params = {}
    for p in main.params:
        if p.name_hint != "data":
            value = np.zeros([int(d) for d in p.struct_info.dims], str(p.struct_info.dtype))
            fill(p.name_hint, value)
            params[p.name_hint] = array(value)
    return mod, params


__getattr__ = submodules(__name__)
