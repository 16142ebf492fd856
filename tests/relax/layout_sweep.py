"""Every case of the op table behind tensors that are laid out: what `ConvertLayout` makes of it."""

from __future__ import annotations

import random

import numpy as np
from op_table import Instance

from relaxvm import relax
from relaxvm.base import UNKNOWN
from relaxvm.ir import IRModule
from relaxvm.relax.expr import Call, DataflowBlock, DataflowVar, MatchCast, SeqExpr, Var, VarBinding
from relaxvm.relax.op import missing, op
from relaxvm.relax.op.infer import tensor
from relaxvm.relax.rewriter import BindingRewriter
from relaxvm.relax.struct_info import StructInfo, TensorStructInfo

MOVES = {}
"""rank -> an operator that gives its argument, and is laid out as is wanted"""


def _move(rank: int):
    letters = "NCDHW"[:rank]

    @op(
        f"test.laid_out{rank}",
        numpy=lambda data, layout: np.asarray(data),
        lower=missing("a test"),
        grad=missing("a test"),
    )
    def rule(data: relax.Expr, layout: str = letters) -> StructInfo:
        """`data` as it is."""
        return tensor(data, "data")

    return rule


for _rank in range(1, 6):
    MOVES[_rank] = _move(_rank)

PERMUTED = {rank: "NCDHW"[:rank][0] + "NCDHW"[2:rank] + "C" for rank in range(2, 6)}
REVERSED = {rank: "NCDHW"[:rank][::-1] for rank in range(2, 6)}
BLOCKED = {rank: "NCDHW"[:rank] + "2c" for rank in range(2, 6)}


def desired(layouts: dict[int, str]) -> dict[str, list[str]]:
    """What ConvertLayout takes for these layouts by rank."""
    return {f"relax.test.laid_out{rank}": [layout] for rank, layout in layouts.items()}


def module_of(one: Instance, only: int | None = None) -> IRModule:
    """The call of a case, of tensors that may be laid out (only the argument `only`, if given)."""
    bindings, moved = [], {}
    for k, p in enumerate(one.params):
        info = p.struct_info
        known = isinstance(info, TensorStructInfo) and info.dims is not None
        if known and info.ndim in MOVES and only in (None, k):
            call = MOVES[info.ndim](p)
            moved[p] = DataflowVar(f"m{k}", call.struct_info)
            bindings.append(VarBinding(moved[p], call, UNKNOWN))
    call = one.call

    def arg(x):
        if isinstance(x, relax.Tuple):
            return relax.Tuple([arg(f) for f in x.fields])
        return moved.get(x, x)

    made = Call(call.op, [arg(a) for a in call.args], call.attrs, call.sinfo_args)
    result = Var("y", made.struct_info)
    bindings.append(VarBinding(result, made, UNKNOWN))
    fn = relax.Function(one.params, SeqExpr([DataflowBlock(bindings)], result))
    return IRModule({"main": fn.with_attr("global_symbol", "main")})


LAYOUTS = (PERMUTED, REVERSED, BLOCKED)


class Mover(BindingRewriter):
    """Puts operators of `MOVES` behind some of the calls of a function."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def binding(self, b):
        info = b.var.struct_info
        known = isinstance(info, TensorStructInfo) and info.dims is not None
        if not known or info.ndim not in MOVES or type(b.value) is not Call:
            return None
        if isinstance(b, MatchCast) or self.rng.random() < 0.6:
            return None
        before = self.local(b.var.name_hint, b.value.struct_info)
        return [b.replace(var=before), b.replace(value=MOVES[info.ndim](before))]
