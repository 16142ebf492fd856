"""Operators become the virtual machine's own: `R.vm.*` and calls of ``vm.builtin.*``.

    before:  storage = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), …)
             x = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([4]), R.dtype("float32"))
             s = R.shape_of(y)
             R.memory.kill_tensor(x)
    after:   storage = R.vm.alloc_storage(R.shape([16]), R.prim_value(0), R.dtype("uint8"), …)
             x = R.vm.alloc_tensor(storage, R.prim_value(0), R.shape([4]), R.dtype("float32"))
             s = R.call_packed("vm.builtin.shape_of", y)
             R.vm.kill_object(x)

`R.vm.call_tir_dyn` whose scalars are known as expressions becomes a plain kernel call with those
scalars as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base import CodegenError, VerifyError
from ...base import dtype as as_dtype
from ...ir import IRModule, Op, PassContext, const
from ...ir.transform import function_pass
from ...runtime import Builtin, Builtins
from ..derive import prove_dims, where
from ..expr import Binding, Call, DataTypeImm, Function, GlobalVar, PrimValue, Tuple
from ..known_ops import (
    ALLOC_TENSOR,
    CALL_INPLACE_PACKED,
    CALL_PURE_PACKED,
    CALL_TIR_DYN,
    INVOKE_CLOSURE,
    INVOKE_PURE_CLOSURE,
    MEM_ALLOC_STORAGE,
    MEM_ALLOC_TENSOR,
    MEM_KILL_STORAGE,
    MEM_KILL_TENSOR,
    OBJECT,
    RESHAPE,
    VM_ALLOC_STORAGE,
    VM_ALLOC_TENSOR,
    VM_KILL_OBJECT,
    VOID,
    builtin,
    builtin_of,
    is_op,
)
from ..op.infer import dims_product
from ..rewriter import BindingRewriter
from ..struct_info import Expr, ShapeExpr, TensorStructInfo
from .lower_alloc_tensor import own_storage


@function_pass(opt_level=0)
def VMBuiltinLower(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Lower operators to `R.vm.*` and calls of ``vm.builtin.*``."""
    return _Rewriter().rewrite(fn)


_BYTE = DataTypeImm(as_dtype("uint8"))

LowerRuntimeBuiltin = VMBuiltinLower
"""TVM's newer name."""


class _Rewriter(BindingRewriter):
    def binding(self, b: Binding) -> Sequence[Binding] | None:
        call = b.value
        if not isinstance(call, Call):
            return None
        if call.op is VM_ALLOC_STORAGE or builtin_of(call.op) is Builtins.ALLOC_STORAGE:
            sized = _size_in_bytes(call)
            return None if sized is call else [b.replace(value=sized)]
        if not isinstance(call.op, Op):
            return None
        if is_op(call, ALLOC_TENSOR):
            storage, tensor = own_storage(b, call)
            return [
                storage.replace(value=_alloc_storage(storage.value)),
                tensor.replace(value=_alloc_tensor(tensor.value)),
            ]
        lower = _LOWER.get(call.op)
        if lower is None:
            return None
        lowered = lower(call)
        if isinstance(lowered, Call):
            info = call.struct_info
            declared = () if isinstance(lowered.op, Op) else (info,)
            lowered = lowered.replace(sinfo_args=declared, struct_info=info, span=call.span)
        return [b.replace(value=lowered)]


def _alloc_storage(call: Any) -> Call:
    """Its size is in bytes, whatever `dtype` it will hold."""
    size, device, scope, _ = call.args
    return Call(VM_ALLOC_STORAGE, (size, device, _BYTE, scope), struct_info=OBJECT)


def _size_in_bytes(call: Call) -> Call:
    """A ``vm.alloc_storage`` of so many elements as one of bytes: what the machine takes."""
    size, dtype = call.args[0], call.args[2] if len(call.args) > 2 else _BYTE
    if not isinstance(dtype, DataTypeImm) or dtype.value.itemsize == 1:
        return call
    if not isinstance(size, ShapeExpr):
        raise VerifyError(
            f"vm.alloc_storage: {dtype.value} elements: wanted the shape as R.shape([...]), got "
            f"{size.struct_info}{where(call.span)}; bind its sizes with R.match_cast"
        )
    size = ShapeExpr((*size.values, const(dtype.value.itemsize, "int64")))
    return call.replace(args=(size, call.args[1], _BYTE, *call.args[3:]))


def _alloc_tensor(call: Any) -> Call:
    return Call(VM_ALLOC_TENSOR, call.args[:4], struct_info=call.struct_info, span=call.span)


def _kill(call: Call) -> Call:
    return Call(VM_KILL_OBJECT, call.args, struct_info=VOID)


def _same_args(row: Builtin) -> Callable[[Call], Call]:
    return lambda call: builtin(row, call.args)


def _make_closure(call: Call) -> Call:
    captured = call.args[1]
    return builtin(Builtins.MAKE_CLOSURE, (call.args[0], *(_fields(captured))))


def _fields(args: Expr) -> tuple[Expr, ...]:
    return args.fields if isinstance(args, Tuple) else (args,)


def _packed(call: Call) -> Call:
    """`R.call_pure_packed` and `R.call_inplace_packed` as the plain call they are."""
    return Call(call.args[0], call.args[1:], None, call.sinfo_args, call.struct_info, call.span)


def _call_tir_dyn(call: Call) -> Call:
    kernel, args = call.args[0], _fields(call.args[1])
    if isinstance(kernel, GlobalVar) and args and isinstance(args[-1], ShapeExpr):
        scalars = [PrimValue(value) for value in args[-1].values]
        return Call(kernel, (*args[:-1], *scalars), None, (VOID,), VOID)
    return builtin(Builtins.CALL_TIR_DYN, (kernel, *args))


def _view(call: Call) -> Call:
    """A view of all elements, of the same dtype, is a reshape."""
    data = call.args[0]
    shape, dtype, offset = [*call.args[1:], None, None, None][:3]
    if shape is None:
        return builtin(Builtins.MOVE, (data,))
    have: Any = data.struct_info
    wanted: Any = call.struct_info
    if dtype is None and have.dtype != "void":
        dtype = DataTypeImm(have.dtype)
    if offset is None and wanted.dtype is have.dtype and _same_count(have, wanted):
        return builtin(Builtins.RESHAPE, (data, shape))
    if dtype is None:
        raise CodegenError("memory.view: the dtype of data is not known; say dtype=")
    return builtin(Builtins.VIEW, (data, shape, dtype, offset or PrimValue(0)))


def _same_count(have: TensorStructInfo, wanted: TensorStructInfo) -> bool:
    if have.dims is None or wanted.dims is None:
        return have.shape is wanted.shape is not None
    return prove_dims(dims_product(have.dims), dims_product(wanted.dims)) is True


_LOWER: dict[Op, Callable[[Call], Expr]] = {
    MEM_ALLOC_STORAGE: _alloc_storage,
    MEM_ALLOC_TENSOR: _alloc_tensor,
    MEM_KILL_STORAGE: _kill,
    MEM_KILL_TENSOR: _kill,
    CALL_TIR_DYN: _call_tir_dyn,
    CALL_PURE_PACKED: _packed,
    CALL_INPLACE_PACKED: _packed,
    Op.get("relax.shape_of"): _same_args(Builtins.SHAPE_OF),
    Op.get("relax.tensor_to_shape"): _same_args(Builtins.TENSOR_TO_SHAPE),
    Op.get("relax.shape_to_tensor"): _same_args(Builtins.SHAPE_TO_TENSOR),
    Op.get("relax.print"): _same_args(Builtins.PRINT),
    Op.get("relax.assert_op"): _same_args(Builtins.ASSERT_OP),
    Op.get("relax.null_value"): _same_args(Builtins.NULL_VALUE),
    RESHAPE: _same_args(Builtins.RESHAPE),
    Op.get("relax.make_closure"): _make_closure,
    INVOKE_CLOSURE: _same_args(Builtins.INVOKE_CLOSURE),
    INVOKE_PURE_CLOSURE: _same_args(Builtins.INVOKE_CLOSURE),
    # There is one device, so these are names for their argument.
    Op.get("relax.to_vdevice"): lambda call: call.args[0],
    Op.get("relax.hint_on_device"): lambda call: call.args[0],
    Op.get("relax.builtin.stop_lift_params"): lambda call: call.args[0],
    Op.get("relax.memory.ensure_zero_offset"): lambda call: call.args[0],
    Op.get("relax.memory.view"): _view,
}
