"""DynamicToStatic: shapes that are computed from what is known are known.

    s = R.shape_of(x)                          # x: R.Tensor((2, 3), ...)
    t = R.shape_to_tensor(s)                   y = R.reshape(x, R.shape([3, 2]))
    u = R.tensor_to_shape(R.flip(t, 0))
    y = R.reshape(x, u)                        # of two dimensions that nobody knew before

Constants are folded and calls inferred again in turns, until nothing more is known. A dynamic slice
at constants becomes a plain one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import IRModule, Op, PassContext
from ...ir.transform import module_pass
from .. import op as R
from ..analysis.usage import remove_all_unused
from ..derive import is_base_of
from ..expr import Binding, Call, Constant, Function, VarBinding
from ..known_ops import is_op
from ..op.faces import as_scalars
from ..rewriter import Inferring
from ..struct_info import Expr, ShapeExpr, ShapeStructInfo, TensorStructInfo, parts
from ..symbols import known_dims
from .canonicalize_bindings import CanonicalizeBindings
from .fold_constant import FoldConstant
from .signature import replace_functions

_ROUNDS = 32
_DYNAMIC_SLICE = Op.get("relax.dynamic_strided_slice")


@module_pass(opt_level=2)
def DynamicToStatic(mod: IRModule, ctx: PassContext) -> IRModule:
    """Replace operators on shapes that are computed by those on shapes that are written."""
    for _ in range(_ROUNDS):
        before = mod
        mod = CanonicalizeBindings.run(FoldConstant.run(mod, ctx), ctx)
        changed = {
            gv: remove_all_unused(_Static({}).function(fn, fn.params), mod)
            for gv, fn in mod.items()
            if isinstance(fn, Function)
        }
        mod = replace_functions(mod, changed)
        if mod is before:
            break
    return mod


class _Static(Inferring):
    def binding(self, b: Binding) -> Sequence[Binding] | None:
        if type(b) is VarBinding and isinstance(b.value, ShapeExpr):
            self.replaced[b.var] = b.value
        return super().binding(b)

    def value(self, value: Expr) -> Expr:
        new = super().value(value)
        if not isinstance(new, Call) or not isinstance(new.op, Op):
            return new
        limits = [a.data.numpy().tolist() for a in new.args[1:] if isinstance(a, Constant)]
        if is_op(new, _DYNAMIC_SLICE) and len(limits) == 3:
            axes = range(len(limits[0]))
            new = R.strided_slice(new.args[0], *(as_scalars(list(e)) for e in (axes, *limits)))
        elif _is_known(new):
            return new
        inferred = new.replace(struct_info=None)
        if is_base_of(value.struct_info, inferred.struct_info):
            return inferred if inferred.struct_info is not new.struct_info else new
        return new.replace(struct_info=value.struct_info)


def _is_known(call: Call) -> bool:
    """Whether every shape in the struct info of `call` is written."""
    return all(
        known_dims(info) is not None
        for info in parts(call.struct_info)
        if isinstance(info, (TensorStructInfo, ShapeStructInfo))
    )
