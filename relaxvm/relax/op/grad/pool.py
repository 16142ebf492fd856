"""The backward passes of pools, over one, two and three axes, and of adaptive pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....base import submodules
from ...expr import Call
from ...rules import LowerBuilder, Ops
from ...struct_info import Expr, StructInfo
from ..faces import prepared
from ..infer import FLOAT, same_dtype, tensor
from ..lower import call_te
from ..nn.pool_kernels import backward_numpy, backward_te
from ..nn.pool_windows import Parts, Pool, parts, pool, result_dims
from ..nn.window import SPATIAL, named
from ..record import missing, op
from .shapes import want_shape

__getattr__ = submodules(__name__)


_Settings = Callable[[dict[str, Any]], Pool | Parts]

_SECOND = missing("second derivatives of a maximum are not taken")


def _info(output_grad: Expr, data: Expr, windows: Pool | Parts) -> StructInfo:
    x = tensor(data, "data", FLOAT, ndim=windows.data.ndim)
    g = tensor(output_grad, "output_grad", FLOAT, ndim=windows.out.ndim)
    same_dtype((g, x), ("output_grad", "data"))
    want_shape(g, result_dims(windows, x.dims), "output_grad")
    return x


def _rules(kind: str, settings: _Settings) -> dict[str, Any]:
    average = "avg" in kind
    compute = backward_te(settings, average)

    def lower(builder: LowerBuilder, call: Call) -> Expr:
        return call_te(builder, call, compute, *call.args, **dict(call.attrs))

    def grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, None]:
        """The backward pass is linear in the gradient it is given; `data` says only the shape."""
        return getattr(ops.nn, kind)(gy, **dict(call.attrs)), None

    return {
        "numpy": backward_numpy(settings, average),
        "lower": lower,
        "grad": grad if average else _SECOND,
    }


_TEXT = """The gradient of nn.{kind} with respect to `data`, given that of its result.

{where}Attributes are those of the pool.
Raises StructInfoError if output_grad is not of the shape of its result.
"""
_FIRST = "It goes to the first greatest element of each {part}. "


def _pool(what: str, ndim: int) -> Callable[..., Call]:
    kind = f"{what}_pool{ndim}d"
    where = _FIRST.format(part="window") if what == "max" else ""

    @prepared(lambda values: pool(ndim, values))
    @op(f"grad.{kind}_backward", **_rules(kind, lambda attrs: pool(ndim, attrs)))
    @named(f"{kind}_backward", _TEXT, kind=kind, where=where)
    def rule(
        output_grad: Expr,
        data: Expr,
        pool_size: Any = 1,
        strides: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = f"NC{SPATIAL[ndim]}",
        out_layout: str | None = None,
    ) -> StructInfo:
        attrs = {
            "pool_size": pool_size, "strides": strides, "padding": padding, "dilation": dilation,
            "ceil_mode": ceil_mode, "count_include_pad": count_include_pad, "layout": layout,
            "out_layout": out_layout,
        }  # fmt: skip
        return _info(output_grad, data, pool(ndim, attrs))

    return rule


max_pool1d_backward, max_pool2d_backward, max_pool3d_backward = (_pool("max", n) for n in (1, 2, 3))
avg_pool1d_backward, avg_pool2d_backward, avg_pool3d_backward = (_pool("avg", n) for n in (1, 2, 3))


def _adaptive(what: str, ndim: int) -> Callable[..., Call]:
    kind = f"adaptive_{what}_pool{ndim}d"
    where = _FIRST.format(part="part") if what == "max" else ""

    @prepared(lambda values: parts(ndim, values))
    @op(f"grad.{kind}_backward", **_rules(kind, lambda attrs: parts(ndim, attrs)))
    @named(f"{kind}_backward", _TEXT, kind=kind, where=where)
    def rule(
        output_grad: Expr,
        data: Expr,
        output_size: Any = None,
        layout: str = f"NC{SPATIAL[ndim]}",
        out_layout: str | None = None,
    ) -> StructInfo:
        attrs = {"output_size": output_size, "layout": layout, "out_layout": out_layout}
        return _info(output_grad, data, parts(ndim, attrs))

    return rule


adaptive_max_pool1d_backward, adaptive_max_pool2d_backward, adaptive_max_pool3d_backward = (
    _adaptive("max", n) for n in (1, 2, 3)
)
adaptive_avg_pool1d_backward, adaptive_avg_pool2d_backward, adaptive_avg_pool3d_backward = (
    _adaptive("avg", n) for n in (1, 2, 3)
)
