"""Pools over windows, adaptive pools and global pools, over one, two and three axes.

Each kind is made once for every number of axes; windows are in `pool_windows.py`, what is done with
them in `pool_kernels.py`, the backward passes in `relax/op/grad/pool.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....base import DataType, submodules
from ....ir import Op
from ...expr import Call, TupleGetItem
from ...rules import LowerBuilder, Ops
from ...struct_info import Expr, StructInfo, TensorStructInfo, TupleStructInfo
from ..faces import prepared
from ..infer import NUMBER, tensor
from ..lower import te_lower
from ..record import op
from .pool_kernels import indexed_numpy, indexed_te, pool_numpy, pool_te
from .pool_windows import Parts, Pool, layouts, parts, pool, result_dims
from .window import SPATIAL, named, padding_words

__getattr__ = submodules(__name__)

_AXES = {1: "one axis", 2: "two axes", 3: "three axes"}


def _info(data: Expr, windows: Pool | Parts) -> StructInfo:
    info = tensor(data, "data", NUMBER, windows.data.ndim)
    return TensorStructInfo(result_dims(windows, info.dims), info.dtype, info.vdevice)


def _named(name: str) -> Any:
    record: Any = Op.get(f"relax.{name}")
    return record.function


def _rules(kind: str, settings: Callable[[dict[str, Any]], Any], **fixed: Any) -> dict[str, Any]:
    """The record of the pool `kind`, such as "avg_pool2d"; its gradient takes `fixed`, too."""

    def grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any]:
        backward = _named(f"grad.{kind}_backward")
        return (backward(gy, call.args[0], **fixed, **dict(call.attrs)),)

    average = "avg" in kind
    return {
        "numpy": pool_numpy(settings, average),
        "lower": te_lower(pool_te(settings, average)),
        "grad": grad,
    }


# -- pools over windows ---------------------------------------------------------------------------

_POOL = """{what} over windows of {axes}.{more}

padding    {padding}
ceil_mode  a last window that only begins inside the data or the padding before it counts, too
{include}Raises StructInfoError if a window is larger than the padded data.
"""
_INCLUDE = (
    "count_include_pad  whether padding counts as zeros; else only what is there is averaged.\n"
    "           What ceil_mode lets hang over the padding never counts\n"
)


def _pool(what: str, ndim: int) -> Callable[..., Call]:
    name = f"{what}_pool{ndim}d"
    text = {
        "max": ("The maximum", " count_include_pad says nothing here.", ""),
        "avg": ("The average", "", _INCLUDE),
    }[what]

    @prepared(lambda values: pool(ndim, values))
    @op(f"nn.{name}", **_rules(name, lambda attrs: pool(ndim, attrs)))
    @named(
        name,
        _POOL,
        what=text[0],
        axes=_AXES[ndim],
        more=text[1],
        include=text[2],
        padding=padding_words(ndim),
    )
    def rule(
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
        return _info(data, pool(ndim, attrs))

    return rule


max_pool1d, max_pool2d, max_pool3d = (_pool("max", n) for n in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = (_pool("avg", n) for n in (1, 2, 3))


_INDEXED = """The maximum over windows of {axes}, and where it is: (values, int64 indices).

indices    in row-major order of the spatial axes alone; the first of equal ones, or the first NaN;
           -1 for a window that lies wholly in the padding
padding    {padding}
Other attributes are those of max_pool{ndim}d, whose errors are raised.
"""


def _indexed(ndim: int) -> Callable[..., Call]:
    name = f"max_pool{ndim}d_with_indices"

    def settings(attrs: dict[str, Any]) -> Pool:
        return pool(ndim, attrs)

    def grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any]:
        backward = _named(f"grad.max_pool{ndim}d_backward")
        return (backward(TupleGetItem(gy, 0), call.args[0], **dict(call.attrs)),)

    @prepared(lambda values: pool(ndim, values))
    @op(f"nn.{name}", indexed_numpy(settings), te_lower(indexed_te(settings)), grad)
    @named(name, _INDEXED, axes=_AXES[ndim], padding=padding_words(ndim), ndim=ndim)
    def rule(
        data: Expr,
        pool_size: Any = 1,
        strides: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        layout: str = f"NC{SPATIAL[ndim]}",
        out_layout: str | None = None,
    ) -> StructInfo:
        attrs = {
            "pool_size": pool_size, "strides": strides, "padding": padding, "dilation": dilation,
            "ceil_mode": ceil_mode, "layout": layout, "out_layout": out_layout,
        }  # fmt: skip
        values = _info(data, pool(ndim, attrs))
        assert isinstance(values, TensorStructInfo)
        return TupleStructInfo((values, values.replace(dtype=DataType("int64"))))

    return rule


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = map(_indexed, (1, 2, 3))


# -- adaptive pools -------------------------------------------------------------------------------

_ADAPTIVE = """{what} of each of `output_size` parts that the data are divided into, along {axes}.

Part i of m of an axis of size s is i * s // m to (i + 1) * s / m, rounded up.
Raises StructInfoError if `output_size` is not positive; None means the size of data.
"""


def _adaptive(what: str, ndim: int) -> Callable[..., Call]:
    name = f"adaptive_{what}_pool{ndim}d"
    title = {"max": "The maximum", "avg": "The average"}[what]

    @prepared(lambda values: parts(ndim, values))
    @op(f"nn.{name}", **_rules(name, lambda attrs: parts(ndim, attrs)))
    @named(name, _ADAPTIVE, what=title, axes=_AXES[ndim])
    def rule(
        data: Expr,
        output_size: Any = None,
        layout: str = f"NC{SPATIAL[ndim]}",
        out_layout: str | None = None,
    ) -> StructInfo:
        attrs = {"output_size": output_size, "layout": layout, "out_layout": out_layout}
        return _info(data, parts(ndim, attrs))

    return rule


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    _adaptive("max", n) for n in (1, 2, 3)
)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (
    _adaptive("avg", n) for n in (1, 2, 3)
)


# -- global pools ---------------------------------------------------------------------------------

_GLOBAL = """{what} over all places of each channel; {keeps} size 1."""


def _global(what: str, ndim: int) -> Callable[..., Call]:
    """The adaptive pool whose result has one place."""
    name, adaptive = f"global_{what}_pool{ndim}d", f"adaptive_{what}_pool{ndim}d"
    title = {"max": "The maximum", "avg": "The average"}[what]
    keeps = "that axis keeps" if ndim == 1 else "those axes keep"
    rules = _rules(adaptive, lambda attrs: parts(ndim, {"output_size": 1, **attrs}), output_size=1)

    def lower(builder: LowerBuilder, call: Call) -> Expr:
        return _named(f"nn.{adaptive}")(call.args[0], output_size=1, **dict(call.attrs))

    @prepared(lambda values: layouts(ndim, values))
    @op(f"nn.{name}", **{**rules, "lower": lower})
    @named(name, _GLOBAL, what=title, keeps=keeps)
    def build(
        data: Expr, layout: str = f"NC{SPATIAL[ndim]}", out_layout: str | None = None
    ) -> StructInfo:
        attrs = {"output_size": 1, "layout": layout, "out_layout": out_layout}
        return _info(data, parts(ndim, attrs))

    return build


global_max_pool1d, global_max_pool2d, global_max_pool3d = (_global("max", n) for n in (1, 2, 3))
global_avg_pool1d, global_avg_pool2d, global_avg_pool3d = (_global("avg", n) for n in (1, 2, 3))
