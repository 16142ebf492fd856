"""BundleModelParams: the weights of a function become one parameter, a tuple.

    before:  def main(x, w, b):                     # {"num_input": 1}
                 y = R.matmul(x, w); z = R.add(y, b); return z
    after:   def main(x, model_params: R.Tuple(..., ...)):
                 w = model_params[0]; b = model_params[1]
                 y = R.matmul(x, w); z = R.add(y, b); return z

The attribute "num_input" says how many of the first parameters are no weights. Functions without it
and those that others call stay as they are.
"""

from __future__ import annotations

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from ..expr import Function, TupleGetItem, Var, VarBinding
from ..rewriter import Dropper
from ..struct_info import TupleStructInfo
from .lazy_inputs import each_entry


@module_pass(opt_level=0)
def BundleModelParams(
    mod: IRModule, ctx: PassContext, *, param_tuple_name: str | None = None
) -> IRModule:
    """Make one tuple of the weights of each function with the attribute "num_input".

    param_tuple_name  what the parameter is called; default: model_params
    """

    def bundled(fn: Function, num_input: int | None) -> Function:
        weights = () if num_input is None else fn.params[num_input:]
        if num_input is None or not weights:
            return fn
        info = TupleStructInfo([p.struct_info for p in weights])
        bundle = Var(param_tuple_name or "model_params", info)
        items = [VarBinding(p, TupleGetItem(bundle, k)) for k, p in enumerate(weights)]
        body = Dropper({}, items).rewrite(fn).body
        return fn.replace(params=(*fn.params[:num_input], bundle), body=body)

    return each_entry(mod, bundled)
