"""Scalars that the shape heap cannot compute are computed by loop functions.

    before:  gv = R.call_packed("env.f", R.prim_value(s * T.float32(2) + T.float32(1)))
    after:   out = R.call_tir(cls.compute_scalar, (R.prim_value(s),), R.Tensor((), "float32"))
             scalar = R.call_pure_packed("vm.builtin.tensor_item", out, sinfo_args=R.Prim(value=…))
             gv = R.call_packed("env.f", scalar)

The heap knows integer arithmetic, comparisons and selection (`vm_info.combine`). What needs more,
above all floating point, gets the arithmetic of loop functions: rounding of its dtype included.
The same scalar is computed once per sequence of bindings, and one loop function serves all scalars
that are computed alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import CodegenError
from ...ir import (
    FloatImm,
    IntImm,
    IRModule,
    PassContext,
    PrimExpr,
    structural_equal,
    substitute,
    walk,
)
from ...ir import Var as PrimVar
from ...ir.transform import module_pass
from ...te import compute, create_prim_func
from ...tir import PrimFunc
from ..expr import (
    Binding,
    Call,
    ExternFunc,
    Function,
    GlobalVar,
    PrimValue,
    Tuple,
    Var,
    VarBinding,
)
from ..struct_info import Expr, TensorStructInfo
from ..vm_info import bare_symbol, to_dim
from .lowered_ops import CALL_TIR
from .scopes import RememberingRewriter

_ITEM = ExternFunc("vm.builtin.tensor_item")
_PURE_PACKED = "relax.call_pure_packed"


@module_pass(opt_level=0)
def ComputeFloatScalars(mod: IRModule, ctx: PassContext) -> IRModule:
    """Compute by loop functions the scalars that the virtual machine cannot compute itself."""
    made = mod
    kernels = _Kernels(mod)
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            new = _Rewriter(kernels).rewrite(fn)
            if new is not fn:
                made = mod.clone() if made is mod else made
                made[gv] = new
    for gv, kernel in kernels.added:
        made[gv] = kernel
    return made


def needs_kernel(expr: PrimExpr) -> bool:
    """Whether the machine cannot compute a scalar: it is no constant or symbol, nor made of integer
    operations that it has.
    """
    if isinstance(expr, (IntImm, FloatImm, PrimVar)) or bare_symbol(expr) is not None:
        return False
    for n in walk(expr):
        if isinstance(n, PrimExpr) and (n.dtype.is_float or _is_no_integer(n)):
            return True
    try:
        to_dim(expr, lambda v: v.name)
    except CodegenError:
        return True
    return False


def _is_no_integer(n: PrimExpr) -> bool:
    return isinstance(n, PrimVar) and not n.dtype.is_int


class _Kernels:
    """The loop functions made so far."""

    def __init__(self, mod: IRModule) -> None:
        self.taken = {gv.name_hint for gv in mod}
        self.added: list[tuple[GlobalVar, PrimFunc]] = []

    def of(self, expr: PrimExpr, symbols: list[PrimVar]) -> GlobalVar:
        """One that computes `expr` from the values of `symbols`."""
        mine = {v: PrimVar(v.name, v.dtype) for v in symbols}
        value = substitute(expr, mine)
        out = compute((), lambda *_: value, "scalar")
        kernel = create_prim_func([*mine.values(), out]).without_attr("global_symbol")
        for gv, known in self.added:
            if structural_equal(known, kernel):
                return gv
        name, number = "compute_scalar", 0
        while name in self.taken:
            number += 1
            name = f"compute_scalar{number}"
        self.taken.add(name)
        gv = GlobalVar(name)
        self.added.append((gv, kernel))
        return gv


class _Rewriter(RememberingRewriter):
    def __init__(self, kernels: _Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.known: dict[PrimExpr, Var] = {}

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        out: list[Binding] = []
        value: Any = b.value
        if isinstance(value, Call):
            args = tuple([self.operand(a, out) for a in value.args])
            if any(a is not c for a, c in zip(args, value.args)):
                value = value.replace(args=args)
        elif isinstance(value, (Tuple, PrimValue)):
            value = self.operand(value, out)
        return [*out, b.replace(value=value)] if value is not b.value else None

    def operand(self, value: Expr, out: list[Binding]) -> Expr:
        if isinstance(value, Tuple):
            fields = tuple([self.operand(f, out) for f in value.fields])
            same = all(a is c for a, c in zip(fields, value.fields))
            return value if same else value.replace(fields=fields)
        if not isinstance(value, PrimValue) or not needs_kernel(value.value):
            return value
        found = self.known.get(value.value)
        return self._computed(value, out) if found is None else found

    def _computed(self, value: PrimValue, out: list[Binding]) -> Var:
        expr = value.value
        symbols = list(dict.fromkeys(n for n in walk(expr) if isinstance(n, PrimVar)))
        info = TensorStructInfo((), expr.dtype)
        args = Tuple(tuple(PrimValue(v) for v in symbols))
        call = Call(CALL_TIR, (self.kernels.of(expr, symbols), args), None, (info,), info)
        tensor = Var("out", info, value.span)
        item = Call(_PURE_PACKED, (_ITEM, tensor), None, (value.struct_info,))
        scalar = Var("scalar", value.struct_info, value.span)
        out += [VarBinding(tensor, call, value.span), VarBinding(scalar, item, value.span)]
        self.remember(self.known, expr, scalar)
        return scalar
