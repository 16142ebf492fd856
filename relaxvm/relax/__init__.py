"""The graph language: expressions, struct info, operators, the builder, analyses, passes, and the
build for the VM.

Enters: expressions built by hand, by `BlockBuilder`, or by `script`. Leaves: checked functions in
normal form. Not done here: loop functions (`tir`, `te`), text (`script`), running (`runtime`).
"""

from __future__ import annotations

import importlib
from typing import Any

from ..base import submodules
from ..ir import VDevice
from . import expr, op, struct_info
from .derive import BaseCheckResult
from .expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    as_relax,
    const,
    extern,
    get_shape_of,
    is_leaf,
)
from .op import (
    call_builtin_with_ctx,
    call_dps_packed,
    call_inplace_packed,
    call_packed,
    call_pure_packed,
    call_tir,
    call_tir_inplace,
    call_tir_with_grad,
    invoke_closure,
    invoke_pure_closure,
    make_closure,
    null_value,
    shape_of,
)
from .struct_info import (
    Expr,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

# These see rooms that the graph language itself must not import, or come late in the import order.
_LAZY = {
    "BlockBuilder": ("relaxvm.relax.block_builder", "BlockBuilder"),
    "ExprFunctor": ("relaxvm.relax.expr_functor", "ExprFunctor"),
    "PyExprMutator": ("relaxvm.relax.expr_functor", "PyExprMutator"),
    "PyExprVisitor": ("relaxvm.relax.expr_functor", "PyExprVisitor"),
    "ExecBuilder": ("relaxvm.runtime", "ExecBuilder"),
    "Executable": ("relaxvm.runtime", "Executable"),
    "VMExecutable": ("relaxvm.runtime", "Executable"),
    "VMInstrumentReturnKind": ("relaxvm.runtime", "VMInstrumentReturnKind"),
    "VirtualMachine": ("relaxvm.runtime", "VirtualMachine"),
    "analysis": ("relaxvm.relax.analysis", None),
    "block_builder": ("relaxvm.relax.block_builder", None),
    "build": ("relaxvm.pipeline", "build"),
    "expr_functor": ("relaxvm.relax.expr_functor", None),
    "get_pipeline": ("relaxvm.pipeline", "get_pipeline"),
    "pipeline": ("relaxvm.pipeline", None),
    "transform": ("relaxvm.relax.transform", None),
    "vm": ("relaxvm.relax.vm_build", None),
    "vm_build": ("relaxvm.relax.vm_build", None),
}

_submodule = submodules(
    __name__,
    {"static_type": "FuncType ObjectType PackedFuncType ShapeType TensorType TupleType Type"},
)


def __getattr__(name: str) -> Any:
    found = _LAZY.get(name)
    if found is None:
        return _submodule(name)
    module = importlib.import_module(found[0])
    value = module if found[1] is None else getattr(module, found[1])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


__all__ = [
    "BaseCheckResult",
    "Binding",
    "BindingBlock",
    "Call",
    "Constant",
    "DataTypeImm",
    "DataflowBlock",
    "DataflowVar",
    "Expr",
    "ExternFunc",
    "FuncStructInfo",
    "Function",
    "GlobalVar",
    "If",
    "MatchCast",
    "ObjectStructInfo",
    "PrimStructInfo",
    "PrimValue",
    "SeqExpr",
    "ShapeExpr",
    "ShapeStructInfo",
    "StringImm",
    "StructInfo",
    "TensorStructInfo",
    "Tuple",
    "TupleGetItem",
    "TupleStructInfo",
    "VDevice",
    "Var",
    "VarBinding",
    "as_relax",
    "call_builtin_with_ctx",
    "call_dps_packed",
    "call_inplace_packed",
    "call_packed",
    "call_pure_packed",
    "call_tir",
    "call_tir_inplace",
    "call_tir_with_grad",
    "const",
    "expr",
    "extern",
    "get_shape_of",
    "invoke_closure",
    "invoke_pure_closure",
    "is_leaf",
    "make_closure",
    "null_value",
    "op",
    "shape_of",
    "struct_info",
]
