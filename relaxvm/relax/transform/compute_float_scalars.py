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

from ...base import CodegenError, NameSupply
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
from ...runtime import Builtins
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
from ..known_ops import CALL_PURE_PACKED, CALL_TIR
from ..rewriter import LeafRewriter
from ..struct_info import Expr, TensorStructInfo
from ..vm_info import bare_symbol, to_dim

_ITEM = ExternFunc(Builtins.TENSOR_ITEM.name)


@module_pass(opt_level=0)
def ComputeFloatScalars(mod: IRModule, ctx: PassContext) -> IRModule:
    """Compute by loop functions the scalars that the virtual machine cannot compute itself."""
    result = mod
    kernels = _Kernels(mod)
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            new = _Rewriter(kernels).rewrite(fn)
            if new is not fn:
                result = mod.clone() if result is mod else result
                result[gv] = new
    for gv, kernel in kernels.added:
        result[gv] = kernel
    return result


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
        self.names = NameSupply(lambda: [gv.name_hint for gv in mod])
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
        gv = GlobalVar(self.names.fresh("compute_scalar"))
        self.added.append((gv, kernel))
        return gv


class _Rewriter(LeafRewriter):
    def __init__(self, kernels: _Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.known: dict[PrimExpr, Var] = {}

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        if not isinstance(b.value, PrimValue):
            return super().binding(b)
        out: list[Binding] = []
        value = self.leaf(b.value, out)
        return None if value is b.value else [*out, b.replace(value=value)]

    def leaf(self, value: Expr, out: list[Binding]) -> Expr:
        if not isinstance(value, PrimValue) or not needs_kernel(value.value):
            return value
        scalar = self.known.get(value.value)
        return self._computed(value, out) if scalar is None else scalar

    def _computed(self, value: PrimValue, out: list[Binding]) -> Var:
        expr = value.value
        symbols = list(dict.fromkeys(n for n in walk(expr) if isinstance(n, PrimVar)))
        info = TensorStructInfo((), expr.dtype)
        args = Tuple(tuple(PrimValue(v) for v in symbols))
        call = Call(CALL_TIR, (self.kernels.of(expr, symbols), args), None, (info,), info)
        tensor = Var("out", info, value.span)
        item = Call(CALL_PURE_PACKED, (_ITEM, tensor), None, (value.struct_info,))
        scalar = Var("scalar", value.struct_info, value.span)
        out += [VarBinding(tensor, call, value.span), VarBinding(scalar, item, value.span)]
        self.remember(self.known, expr, scalar)
        return scalar
