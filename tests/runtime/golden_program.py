"""The program of the golden files.

Its tensors come from fixed bytes, so that equal input gives equal files.
"""

from __future__ import annotations

import numpy as np

from relaxvm.base import DataType
from relaxvm.runtime import (
    DimProgram,
    ExecBuilder,
    Executable,
    FuncInfo,
    ObjectInfo,
    PrimInfo,
    Provenance,
    ShapeInfo,
    TensorInfo,
    TupleInfo,
    array,
)

F32, I64 = DataType("float32"), DataType("int64")
CONTEXT = "main: parameter x: Tensor((n, 4), float32)"


def golden_program() -> Executable:
    """All opcodes, all kinds of constants, externs, builtins, a symbolic shape and a recursion."""
    b = ExecBuilder()
    weight = array(np.arange(4, dtype="float32"))
    x = TensorInfo(F32, 2, (("$n",), 4))
    with b.function("main", 1, ["x"], [x], x):
        heap, storage, out = b.r(1), b.r(2), b.r(4)
        b.emit_call("vm.builtin.alloc_shape_heap", [2], heap)
        b.emit_call("vm.builtin.check_tensor_info", [b.r(0), 2, F32, CONTEXT])
        b.emit_call("vm.builtin.match_shape", [b.r(0), heap, CONTEXT, 1, 0, 0, 4])
        b.emit_call("vm.builtin.shape_expr", [heap, 1, DimProgram(("$0", 16, "*"))])
        b.emit_call("vm.builtin.make_shape", [heap, 1, 1], b.r(3))
        b.emit_call("vm.builtin.alloc_storage", [b.r(3), 0, DataType("uint8"), "global"], storage)
        b.emit_call("vm.builtin.make_shape", [heap, 1, 0, 0, 4], b.r(3))
        b.emit_call("vm.builtin.alloc_tensor", [storage, 0, b.r(3), F32], out)
        b.emit_call("golden.scale", [b.r(0), weight, 1.5, out])
        b.emit_ret(out)
    with b.function("countdown", 1, ["n"], [PrimInfo(I64)], PrimInfo(I64)):
        end = b.label()
        b.emit_if(b.r(0), end)
        b.emit_call("golden.minus_one", [b.r(0)], b.r(1))
        b.emit_call("countdown", [b.r(1)], b.r(1))
        b.emit_ret(b.r(1))
        b.place(end)
        b.emit_ret(b.imm(0))
    values = [
        "text é",
        F32,
        1.25,
        True,
        (1, 2, 3),
        1 << 62,
        TupleInfo((ShapeInfo(2), FuncInfo((ObjectInfo(),), x), TensorInfo())),
        np.array([[True], [False]]),
        array(np.array([1, 0x3F80], "uint16"), dtype="bfloat16"),
        np.zeros((0, 3), "int8"),
        np.float64(2.5),
    ]
    with b.function("constants", 0):
        b.emit_call("vm.builtin.make_tuple", values, b.r(0))
        b.emit_ret(b.r(0))
    return b.get(Provenance("relaxvm", "0.1.0", "llvm", ("BindParams", "VMShapeLower")))


def scale(x, weight, factor, out):
    """out = x * weight * factor"""
    out.copyfrom(x.numpy() * weight.numpy() * np.float32(factor))


EXTERNS = {"golden.scale": scale, "golden.minus_one": lambda n: n - 1}
