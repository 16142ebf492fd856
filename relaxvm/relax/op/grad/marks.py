"""Marks on the way of gradients: no_grad, start_checkpoint, end_checkpoint."""

from __future__ import annotations

from ...expr import Call
from ...rules import LowerBuilder
from ...struct_info import Expr, StructInfo
from ..record import ELEMENTWISE, op


def _same(builder: LowerBuilder, call: Call) -> Expr:
    return call.args[0]


@op(
    "grad.no_grad",
    numpy=lambda input: input,
    lower=_same,
    grad=lambda ops, call, y, gy: (None,),
    layout=ELEMENTWISE,
)
def no_grad(input: Expr) -> StructInfo:
    """`input`, through which no gradient flows."""
    return input.struct_info


@op(
    "grad.start_checkpoint",
    numpy=lambda input: input,
    lower=_same,
    grad=lambda ops, call, y, gy: (gy,),
    layout=ELEMENTWISE,
)
def start_checkpoint(input: Expr) -> StructInfo:
    """`input`, where a part begins that is computed again in the backward pass rather than kept."""
    return input.struct_info


@op(
    "grad.end_checkpoint",
    numpy=lambda input: input,
    lower=_same,
    grad=lambda ops, call, y, gy: (gy,),
    layout=ELEMENTWISE,
)
def end_checkpoint(input: Expr) -> StructInfo:
    """`input`, where a part ends that began at start_checkpoint."""
    return input.struct_info
