"""FoldExplicitPadding: convolutions and pools pad what they read themselves.

    a = R.nn.pad(x, (0, 0, 0, 0, 1, 1, 1, 1))       y = R.nn.conv2d(x, w, padding=(1, 1, 1, 1))
    y = R.nn.conv2d(a, w)

A convolution and an average that counts its padding are padded by zeros, a maximum by what is less
than everything.
"""

from __future__ import annotations

from typing import Any

from ...ir import IRModule, PassContext
from ...ir.transform import function_pass
from ..expr import Call, Function
from ..struct_info import Expr
from .rule_text import dtype_of, rewritten, rule


def _padding(call: Call, pad: Call, layout: str) -> tuple[int, ...] | None:
    """The padding of `call` and that of `pad` together; None if others than spatial axes are
    padded.
    """
    if pad.attrs["pad_mode"] != "constant" or not layout.isupper():
        return None
    before, after = pad.attrs["pad_width"][::2], pad.attrs["pad_width"][1::2]
    spatial = [a for a, name in enumerate(layout) if name in "DHW"]
    if any(b or e for a, (b, e) in enumerate(zip(before, after)) if a not in spatial):
        return None
    more = [before[a] for a in spatial] + [after[a] for a in spatial]
    return tuple(a + b for a, b in zip(call.attrs["padding"], more))


def _with_attrs(call: Call, x: Expr, **attrs: Any) -> Call:
    return Call(call.op, (x, *call.args[1:]), {**call.attrs, **attrs}, span=call.span)


def _convolution(call: Call, p: Call, x: Expr) -> Expr | None:
    padding = _padding(call, p, call.attrs["data_layout"])
    if padding is None or p.attrs["pad_value"] != 0:
        return None
    return _with_attrs(call, x, padding=padding)


def _maximum(call: Call, p: Call, x: Expr) -> Expr | None:
    padding = _padding(call, p, call.attrs["layout"])
    dtype = dtype_of(x)
    least = float("-inf") if dtype.is_float else dtype.min_value
    if padding is None or p.attrs["pad_value"] != least or any(call.attrs["padding"]):
        return None
    return _with_attrs(call, x, padding=padding)


def _average(call: Call, p: Call, x: Expr) -> Expr | None:
    padding = _padding(call, p, call.attrs["layout"])
    counted = call.attrs["count_include_pad"] or not any(call.attrs["padding"])
    if padding is None or p.attrs["pad_value"] != 0 or not counted or call.attrs["ceil_mode"]:
        return None
    return _with_attrs(call, x, padding=padding, count_include_pad=True)


RULES = (
    rule("exact", "convolution(p := nn.pad(x))", _convolution),
    rule("exact", "max_pool(p := nn.pad(x))", _maximum),
    rule("exact", "avg_pool(p := nn.pad(x))", _average),
)


@function_pass(opt_level=2)
def FoldExplicitPadding(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Let convolutions and pools do the padding before them."""
    return rewritten(fn, mod, ctx, RULES)
