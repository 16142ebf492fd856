"""How much memory the functions of a module allocate, with and without a plan.

print(estimate_memory_usage(mod))

Memory usage estimation:
- Function main:
 * Without memory planning, there are 3 constant-size memory allocation(s) with total size
   3.576E-07 GB.
 ...
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...base import VerifyError, record
from ...ir import IntImm, IRModule, walk
from ..expr import Binding, Call, Function
from ..known_ops import (
    ALLOC_TENSOR,
    CALL_DPS_PACKED,
    CALL_TIR,
    CALL_TIR_INPLACE,
    MEM_ALLOC_STORAGE,
    MEM_ALLOC_TENSOR,
    VM_ALLOC_STORAGE,
    VM_ALLOC_TENSOR,
)
from ..op.record import Op
from ..struct_info import ShapeExpr, StructInfo, TensorStructInfo, TupleStructInfo

_GB = 1024**3
_KERNEL_CALLS = (CALL_TIR, CALL_TIR_INPLACE, CALL_DPS_PACKED)


@record(frozen=False)
class MemoryEstimate:
    """What one function allocates. Tensors are counted as if each had memory of its own, storages
    as the plan made them.

    tensors, tensor_bytes           allocations of known size without a plan, and their bytes
    dynamic_tensors                 allocations whose size is known at run time only
    storages, storage_bytes         the same with the plan
    dynamic_storages
    planned                         whether StaticPlanBlockMemory has been here
    """

    tensors: int = 0
    tensor_bytes: int = 0
    dynamic_tensors: int = 0
    storages: int = 0
    storage_bytes: int = 0
    dynamic_storages: int = 0
    planned: bool = False

    def tensor(self, size: int | None) -> None:
        """Count a tensor of `size` bytes (None: known at run time)."""
        if size is None:
            self.dynamic_tensors += 1
        else:
            self.tensors += 1
            self.tensor_bytes += size

    def storage(self, size: int | None) -> None:
        """Count memory that the plan asks for."""
        if size is None:
            self.dynamic_storages += 1
        else:
            self.storages += 1
            self.storage_bytes += size


def memory_estimates(mod: IRModule) -> dict[str, MemoryEstimate]:
    """What each graph function allocates, by name. Memory inside kernels does not count.

    After StaticPlanBlockMemory the plan is counted; before, results of kernels, or of the operators
    that will be kernels, each have their own.
    """
    if not isinstance(mod, IRModule):
        raise VerifyError(f"estimate_memory_usage: wanted an IRModule, got {type(mod).__name__}")
    return {gv.name_hint: _estimate(fn) for gv, fn in mod.items() if isinstance(fn, Function)}


def estimate_memory_usage(mod: IRModule | Function) -> str:
    """`memory_estimates` as text, in the words of TVM."""
    if isinstance(mod, Function):
        mod = IRModule({str(mod.get_attr("global_symbol", "main")): mod})
    lines = ["Memory usage estimation:"]
    for name, estimate in memory_estimates(mod).items():
        lines.append(f"- Function {name}:")
        lines += [f" * {line}" for line in _described(estimate)]
    return "\n".join(lines)


def _described(m: MemoryEstimate) -> Iterable[str]:
    plans = [("Without", m.tensors, m.tensor_bytes, m.dynamic_tensors)]
    if m.planned:
        plans.append(("With", m.storages, m.storage_bytes, m.dynamic_storages))
    for how, count, size, dynamic in plans:
        yield (
            f"{how} memory planning, there are {count} constant-size memory allocation(s) with "
            f"total size {size / _GB:.4} GB"
            + (f" and {dynamic} dynamic-size memory allocation(s)." if dynamic else ".")
        )
    if not m.planned:
        yield "Memory has not been planned yet; StaticPlanBlockMemory does that."
    elif m.tensor_bytes:
        percent = 100 * m.storage_bytes / m.tensor_bytes
        yield f"Memory planning reduces constant memory size to {percent:.1f}%."


def _estimate(fn: Function) -> MemoryEstimate:
    estimate = MemoryEstimate()
    for n in walk(fn):
        if not isinstance(n, Binding) or not isinstance(n.value, Call):
            continue
        call = n.value
        if call.op is ALLOC_TENSOR:
            size = _bytes(call.struct_info)
            estimate.tensor(size)
            estimate.storage(size)
        elif call.op is MEM_ALLOC_TENSOR:
            estimate.tensor(_bytes(call.struct_info))
            estimate.planned = True
        elif call.op is VM_ALLOC_STORAGE or call.op is MEM_ALLOC_STORAGE:
            estimate.storage(_storage_bytes(call))
            estimate.planned = True
        elif call.op is VM_ALLOC_TENSOR:
            estimate.tensor(_bytes(n.var.struct_info))
        elif call.op in _KERNEL_CALLS:
            for each in _new_outputs(call):
                estimate.tensor(_bytes(each))
                estimate.storage(_bytes(each))
        elif isinstance(call.op, Op) and call.op.pure and callable(call.op.lower):
            for each in _tensors(call.struct_info):
                estimate.tensor(_bytes(each))
                estimate.storage(_bytes(each))
    return estimate


def _tensors(info: StructInfo) -> list[StructInfo]:
    if isinstance(info, TupleStructInfo):
        return [f for f in info.fields if isinstance(f, TensorStructInfo)]
    return [info] if isinstance(info, TensorStructInfo) else []


def _new_outputs(call: Call) -> list[StructInfo]:
    outputs = _tensors(call.sinfo_args[0]) if call.sinfo_args else []
    indices: Any = call.attrs.get("inplace_indices", ())
    inplace = indices if isinstance(indices, tuple) else (indices,)
    return [o for i, o in enumerate(outputs) if i >= len(inplace) or inplace[i] < 0]


def _bytes(info: StructInfo) -> int | None:
    if not isinstance(info, TensorStructInfo) or info.dims is None or info.dtype == "void":
        return None
    size = (info.dtype.bits + 7) // 8
    for dim in info.dims:
        if not isinstance(dim, IntImm):
            return None
        size *= dim.value
    return size


def _storage_bytes(call: Call) -> int | None:
    shape = call.args[0]  # in bytes
    if not isinstance(shape, ShapeExpr):
        return None
    size = 1
    for dim in shape.values:
        if not isinstance(dim, IntImm):
            return None
        size *= dim.value
    return size
