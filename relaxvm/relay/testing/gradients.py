"""Gradients compared with differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base import submodules
from ...ir import IRModule
from ...relax import Function
from ...relax.interp import Evaluator
from ..transform import InferType, gradient


def check_grad(
    func: Function,
    inputs: Sequence[Any] | None = None,
    test_inputs: Sequence[Any] | None = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    scale: float = 1.0,
    mean: float = 0.0,
    mode: str = "higher_order",
) -> None:
    """Check the gradient of the sum of what `func` gives by central differences of twice `eps`.

    inputs       arrays for all parameters; None: random ones about `mean`, of the spread `scale`
    test_inputs  those of `inputs`, the same objects, to differentiate by; None: all
    eps          for float64; parameters of float32 want one of about 1e-2, and wider bounds
    mode         as in `relay.transform.gradient`
    Raises AssertionError where they differ by more than `atol` and `rtol` allow.
    """
    forward = InferType()(IRModule.from_expr(func))
    main: Any = forward["main"]
    backward = IRModule.from_expr(gradient(main, mode=mode))
    if inputs is None:
        rng = np.random.default_rng(0)
        infos = [p.struct_info for p in main.params]
        shapes = [[int(d) for d in info.dims] for info in infos]
        inputs = [
            (rng.standard_normal(shape) * scale + mean).astype(str(info.dtype))
            for shape, info in zip(shapes, infos)
        ]
    tested = inputs if test_inputs is None else test_inputs
    arrays = [np.asarray(value) for value in inputs]
    _, got = Evaluator(backward)("main", *arrays)

    def total() -> float:
        return float(np.sum(Evaluator(forward)("main", *arrays), dtype="float64"))

    for k, value in enumerate(inputs):
        if not any(value is each for each in tested):
            continue
        arrays[k] = arrays[k].copy()
        wanted = np.zeros(arrays[k].shape)
        for place in np.ndindex(arrays[k].shape):
            at_place, ends = arrays[k][place], []
            for step in (eps, -eps):
                arrays[k][place] = at_place + step
                ends.append(total())
            arrays[k][place] = at_place
            wanted[place] = (ends[0] - ends[1]) / (2 * eps)
        name = main.params[k].name_hint
        np.testing.assert_allclose(got[k], wanted, rtol, atol, err_msg=f"the gradient by {name}")


__getattr__ = submodules(__name__)
