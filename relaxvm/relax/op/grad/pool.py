"""The backward passes of pools, over one, two and three axes, and of adaptive pools."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ....base import submodules
from ...expr import Call
from ...rules import Ops
from ...struct_info import Expr
from ..faces import prepared
from ..lower import te_lower
from ..nn import pool as pools
from ..nn.pool_kernels import backward_numpy, backward_te
from ..nn.pool_windows import Parts, Pool, parts, pool
from ..record import missing, op
from .shapes import backward_of

__getattr__ = submodules(__name__)


_Settings = Callable[[dict[str, Any]], Pool | Parts]

_SECOND = missing("second derivatives of a maximum are not taken")


def _rules(kind: str, settings: _Settings) -> dict[str, Any]:
    average = "avg" in kind

    def grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, None]:
        """The backward pass is linear in the gradient it is given; `data` says only the shape."""
        return getattr(ops.nn, kind)(gy, **dict(call.attrs)), None

    return {
        "numpy": backward_numpy(settings, average),
        "lower": te_lower(backward_te(settings, average)),
        "grad": grad if average else _SECOND,
    }


_TEXT = """The gradient of nn.{kind} with respect to `data`, given that of its result.

{where}Attributes are those of the pool.
Raises StructInfoError if output_grad is not of the shape of its result.
"""


def _backward(kind: str, settings: Callable[[int, dict[str, Any]], Pool | Parts]) -> list[Any]:
    """The backward passes of a kind of pools, over one, two and three axes."""
    where = ""
    if "max" in kind:
        part = "part" if settings is parts else "window"
        where = f"It goes to the first greatest element of each {part}. "

    def made(ndim: int) -> Callable[..., Call]:
        name = f"{kind}_pool{ndim}d"
        of_ndim = functools.partial(settings, ndim)
        rule = backward_of(__name__, getattr(pools, name), _TEXT.format(kind=name, where=where))
        return prepared(of_ndim)(op(f"grad.{name}_backward", **_rules(name, of_ndim))(rule))

    return [made(ndim) for ndim in (1, 2, 3)]


max_pool1d_backward, max_pool2d_backward, max_pool3d_backward = _backward("max", pool)
avg_pool1d_backward, avg_pool2d_backward, avg_pool3d_backward = _backward("avg", pool)
adaptive_max_pool1d_backward, adaptive_max_pool2d_backward, adaptive_max_pool3d_backward = (
    _backward("adaptive_max", parts)
)
adaptive_avg_pool1d_backward, adaptive_avg_pool2d_backward, adaptive_avg_pool3d_backward = (
    _backward("adaptive_avg", parts)
)
