"""LazyTransformParams: a function that transforms weights gets them one by one, and gives its
results one by one, so that neither need be in memory at once.

    before:  def main_transform_params(params):
                 w1 = params[0]; w2 = params[1]
                 t = R.permute_dims(w1); gv = (w2, t); return gv
    after:   def main_transform_params():
                 w1 = R.call_packed("get_item", 0); w1 = R.match_cast(w1, ...)
                 t = R.permute_dims(w1); R.call_packed("set_item", 1, t)
                 w2 = R.call_packed("get_item", 1); w2 = R.match_cast(w2, ...)
                 R.call_packed("set_item", 0, w2); return ()

It is meant for what `LiftTransformParams` makes: functions whose names end in transform_params. Let
go is a weight after its last use, as everything is in a build (`KillAfterLastUse`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ...base import PassError
from ...ir import IntImm, IRModule, PassContext
from ...ir.transform import module_pass
from ..expr import Call, ExternFunc, Function, PrimValue, Tuple, TupleGetItem, Var, as_relax
from ..flow import map_leaves
from ..rewriter import LeafRewriter
from ..struct_info import Expr, ObjectStructInfo, TupleStructInfo
from .lazy_inputs import fetching, handing, num_input
from .signature import replace_functions
from .to_non_dataflow import without_dataflow


@module_pass(opt_level=0)
def LazyTransformParams(
    mod: IRModule,
    ctx: PassContext,
    *,
    fget_item: str | None = "get_item",
    fset_item: str | None = "set_item",
    extra_get_item_params: Sequence[Any] = (),
    extra_set_item_params: Sequence[Any] = (),
) -> IRModule:
    """Let functions whose names end in transform_params call packed functions for what they take
    and give.

    fget_item  ``fget_item(*extra_get_item_params, k)`` gives the k-th weight; None: they stay
               parameters
    fset_item  ``fset_item(*extra_set_item_params, k, value)`` takes the k-th result; None: they are
               returned
    Weights are the parameters after the first "num_input" ones; of a tuple that stands alone, its
    fields.
    """
    for name in (fget_item, fset_item):
        if name is not None and not isinstance(name, str):
            raise PassError(
                f"LazyTransformParams: a packed function is given by its name, got {name!r}"
            )

    changed = {}
    for gv, fn in mod.items():
        if not isinstance(fn, Function) or not gv.name_hint.endswith("transform_params"):
            continue
        count = num_input(fn, gv.name_hint) or 0
        plain = without_dataflow(fn)
        if fset_item is not None:
            body = handing(plain, functools.partial(_calling, fset_item, extra_set_item_params))
            plain = Function(plain.params, body, None, False, plain.attrs, plain.span)
        if fget_item is not None:
            plain = _unbundled(plain, count)
            inputs, weights = plain.params[:count], plain.params[count:]
            fetch = functools.partial(_calling, fget_item, extra_get_item_params)
            body = fetching(plain.body, inputs, weights, fetch)
            plain = Function(inputs, body, None, False, plain.attrs, plain.span)
        changed[gv] = plain
    return replace_functions(mod, changed)


def _calling(name: str, extra: Sequence[Any], k: int, *values: Expr) -> Call:
    args = (*map(as_relax, extra), PrimValue(IntImm("int64", k)), *values)
    return Call(ExternFunc(name), args, None, (ObjectStructInfo(),))


def _unbundled(fn: Function, count: int) -> Function:
    """`fn` with the fields of the tuple of its weights, if that is its last parameter, instead."""
    weights = fn.params[count:]
    if len(weights) != 1 or not isinstance(weights[0].struct_info, TupleStructInfo):
        return fn
    fields = [
        Var(f"{weights[0].name_hint}_{k}", info)
        for k, info in enumerate(weights[0].struct_info.fields)
    ]
    body = _Fields(weights[0], fields).rewrite(fn).body
    return fn.replace(params=(*fn.params[:count], *fields), body=body)


class _Fields(LeafRewriter):
    """Puts fields where the tuple was read."""

    def __init__(self, whole: Var, fields: Sequence[Var]) -> None:
        super().__init__()
        self.whole = whole
        self.fields = fields

    def operand(self, value: Expr, out: Any) -> Expr:
        if isinstance(value, TupleGetItem) and value.tuple_value is self.whole:
            return self.fields[value.index]
        return map_leaves(value, lambda v: Tuple(self.fields) if v is self.whole else v)
