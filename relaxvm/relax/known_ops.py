"""The operators that passes and analyses know, and small builders of calls of them."""

from __future__ import annotations

from typing import Any

from ..base import UNKNOWN, DataType, Span
from ..ir import Map, Op
from ..runtime import TABLE, Builtin
from . import op as _families  # the operators below exist once their families are loaded
from .expr import Call, DataTypeImm, ExternFunc, PrimValue, StringImm, Var, VarBinding
from .struct_info import (
    Expr,
    ObjectStructInfo,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

CALL_TIR = Op.get("relax.call_tir")
CALL_TIR_INPLACE = Op.get("relax.call_tir_inplace")
CALL_DPS_PACKED = Op.get("relax.call_dps_packed")
CALL_TIR_DYN = Op.get("relax.vm.call_tir_dyn")
ALLOC_TENSOR = Op.get("relax.builtin.alloc_tensor")
MEM_ALLOC_STORAGE = Op.get("relax.memory.alloc_storage")
MEM_ALLOC_TENSOR = Op.get("relax.memory.alloc_tensor")
MEM_KILL_STORAGE = Op.get("relax.memory.kill_storage")
MEM_KILL_TENSOR = Op.get("relax.memory.kill_tensor")
VM_ALLOC_STORAGE = Op.get("relax.vm.alloc_storage")
VM_ALLOC_TENSOR = Op.get("relax.vm.alloc_tensor")
VM_KILL_OBJECT = Op.get("relax.vm.kill_object")
CALL_BUILTIN_WITH_CTX = Op.get("relax.call_builtin_with_ctx")
CALL_PURE_PACKED = Op.get("relax.call_pure_packed")
CALL_INPLACE_PACKED = Op.get("relax.call_inplace_packed")
HINT_ON_DEVICE = Op.get("relax.hint_on_device")
TO_VDEVICE = Op.get("relax.to_vdevice")
SHAPE_OF = Op.get("relax.shape_of")
MAKE_CLOSURE = Op.get("relax.make_closure")
RESHAPE = Op.get("relax.reshape")
INVOKE_CLOSURE = Op.get("relax.invoke_closure")
INVOKE_PURE_CLOSURE = Op.get("relax.invoke_pure_closure")

OBJECT = ObjectStructInfo()
VOID = TupleStructInfo(())
DPS = Map(dps=True)
"""Attributes of a packed call that writes its last arguments and keeps none of them."""


def ops_named(names: str) -> frozenset[Op]:
    """The operators of these names, without the "relax." before each. Raises TIRError for one
    that does not exist.
    """
    return frozenset(Op.get(f"relax.{name}") for name in names.split())


def is_op(value: Any, op: Op) -> bool:
    """Whether `value` is a call of `op`."""
    return isinstance(value, Call) and value.op is op


def discard(value: Expr, span: Span = UNKNOWN) -> VarBinding:
    """A binding of a value nobody reads."""
    return VarBinding(Var("_", value.struct_info, span), value, span)


def builtin(row: Builtin, args: Any, info: StructInfo = OBJECT, span: Span = UNKNOWN) -> Call:
    """A call of one of the machine's own functions."""
    return Call(ExternFunc(row.name), tuple(args), None, (info,), info, span)


def builtin_of(callee: Any) -> Builtin | None:
    """The row of a callee that is one of the machine's own functions."""
    return TABLE.get(callee.global_symbol) if isinstance(callee, ExternFunc) else None


def alloc_tensor(info: TensorStructInfo, span: Span = UNKNOWN) -> Call:
    """``R.builtin.alloc_tensor(shape, dtype, device, "global")``; the shape is known."""
    assert info.shape is not None
    device = info.vdevice.vdevice_id if info.vdevice is not None else 0
    scope = info.vdevice.memory_scope if info.vdevice is not None else "global"
    args = (info.shape, DataTypeImm(info.dtype), PrimValue(device), StringImm(scope))
    return Call(ALLOC_TENSOR, args, struct_info=info, span=span)


def alloc_storage(size: ShapeExpr, device: Expr, scope: Expr, dtype: DataType) -> Call:
    """``R.memory.alloc_storage(R.shape([bytes]), device, scope, dtype)``"""
    args = (size, device, scope, DataTypeImm(dtype))
    return Call(MEM_ALLOC_STORAGE, args, struct_info=OBJECT)


def tensor_from_storage(storage: Var, alloc: Call, offset: int = 0) -> Call:
    """The tensor that `alloc`, a ``builtin.alloc_tensor``, would give, `offset` bytes from the
    start of `storage`.
    """
    shape, dtype, device = alloc.args[:3]
    args = (storage, PrimValue(offset), shape, dtype, device)
    return Call(MEM_ALLOC_TENSOR, args, struct_info=alloc.struct_info, span=alloc.span)


assert _families is not None
