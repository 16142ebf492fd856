"""The code generator "numpy": products, with bias and ReLU, by numpy and the BLAS that it brings.

    import relaxvm.relax.backend.numpy_blas
    mod = RunCodegen()(partition_for_numpy(mod))

Who runs what was built needs the functions ``env.numpy.*``: importing this file registers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...ir import IRModule
from ...ir.transform import Sequential
from ...runtime import NDArray, register_func
from ..dpl.match import Match, bound_values
from ..expr import BindingBlock, Call, Function, SeqExpr, Var, VarBinding
from ..flow import bindings_of, map_leaves
from ..op import call_dps_packed
from ..struct_info import Expr, TensorStructInfo
from ..transform import (
    FuseOpsByPattern,
    FusionPattern,
    MergeCompositeFunctions,
    PatternCheckContext,
)
from .pattern_registry import get_pattern, get_patterns_with_prefix, register_patterns
from .patterns import make_matmul_pattern
from .utils import has_leaking_intermediate_variables


def _is_plain_product(context: PatternCheckContext) -> bool:
    """Whether numpy can write the product, and what follows it, where the result is to be."""
    product, result = context.annotated_expr["root"].struct_info, context.matched_expr.struct_info
    sides = [context.annotated_expr[name].struct_info for name in ("lhs", "rhs")]
    if has_leaking_intermediate_variables(context) or result is not product:
        return False
    dtypes = [i.dtype for i in sides if isinstance(i, TensorStructInfo) and i.ndim >= 2]
    if not isinstance(product, TensorStructInfo) or product.dtype not in ("float32", "float64"):
        return False
    return dtypes == [product.dtype] * 2


def _product(bias: bool, relu: bool) -> Any:
    def product(lhs: NDArray, rhs: NDArray, *more: NDArray) -> None:
        out = more[-1].numpy()
        np.matmul(lhs.numpy(), rhs.numpy(), out=out)
        if bias:
            np.add(out, more[0].numpy(), out=out)
        if relu:
            np.maximum(out, 0, out=out)

    return product


for _bias in (False, True):
    for _relu in (False, True):
        _name = "numpy.matmul" + "_bias" * _bias + "_relu" * _relu
        _pattern, _parts = make_matmul_pattern(_bias, "relax.nn.relu" if _relu else None)
        register_patterns([FusionPattern(_name, _pattern, _parts, _is_plain_product)])
        register_func(f"env.{_name}", _product(_bias, _relu), override=True)


def partition_for_numpy(mod: IRModule, bind_constants: bool = False) -> IRModule:
    """`mod` with what numpy is to do in functions of its own, for `RunCodegen`."""
    passes = [
        FuseOpsByPattern(get_patterns_with_prefix("numpy."), bind_constants=bind_constants),
        MergeCompositeFunctions(),
    ]
    parted: IRModule = Sequential(passes)(mod)
    return parted


@register_func("relax.ext.numpy", override=True)
def numpy_codegen(
    functions: list[Function], options: Mapping[str, Any], constant_names: Mapping[Any, str]
) -> list[Function]:
    """Functions that call ``env.numpy.*`` where `functions` call functions of their own."""
    return [_calling_env(fn) for fn in functions]


def _calling_env(fn: Function) -> Function:
    inner: dict[Var, Function] = {}
    out: list[VarBinding] = []
    for block in fn.body.blocks:
        for b in block.bindings:
            value = b.value
            if isinstance(value, Function):
                inner[b.var] = value
            elif isinstance(value, Call) and isinstance(value.op, Var) and value.op in inner:
                out.append(VarBinding(b.var, _env_call(inner[value.op], value), b.span))
            else:
                out.append(VarBinding(b.var, value, b.span))
    plain = {b.var: Var(b.var.name_hint, b.var.struct_info, b.var.span) for b in out}

    def renamed(leaf: Any) -> Any:
        return plain.get(leaf, leaf) if isinstance(leaf, Var) else leaf

    bindings = [VarBinding(plain[b.var], map_leaves(b.value, renamed), b.span) for b in out]
    body = SeqExpr((BindingBlock(bindings),), map_leaves(fn.body.body, renamed))
    return Function(fn.params, body, fn.ret_struct_info, attrs=fn.attrs)


def _env_call(fn: Function, call: Call) -> Expr:
    """What stands for a call of the fused function `fn`."""
    name = str(fn.get_attr("Composite"))
    rule: Any = get_pattern(name)
    match = Match(bound_values(bindings_of(fn)))
    assert match.run(rule.pattern, fn.body.body)
    arguments = dict(zip(fn.params, call.args))
    places = [
        match.places()[rule.annotation_patterns[part]]
        for part in ("lhs", "rhs", "bias")
        if part in rule.annotation_patterns
    ]
    return call_dps_packed(
        f"env.{name}", [arguments.get(p, p) for p in places], out_sinfo=call.struct_info
    )
