"""Loop functions that return a value, called from Python and from the graph."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, tir
from relaxvm.base import VMTypeError
from relaxvm.ir import IRModule, PrimType, Var, const
from relaxvm.runtime import set_call_path
from relaxvm.script import tir as T
from relaxvm.tir import Evaluate, PrimFunc


@pytest.mark.parametrize("path", ["auto", "generic"])
def test_a_function_that_returns_a_value_is_called_from_outside(path):
    @T.prim_func
    def first_above(A: T.Buffer((4,), "float32"), least: T.float32) -> T.float32:
        for i in range(4):
            if A[i] > least:
                T.ret(A[i])
        T.ret(T.float32(-1))

    former = set_call_path(path)
    try:
        kernel = tvm.build(first_above)
    finally:
        set_call_path(former)
    values = np.arange(4, dtype="float32")
    assert kernel(values, 1.5) == 2.0
    assert kernel(values, least=9.0) == -1.0
    with pytest.raises(VMTypeError, match="wanted 2 arguments, got 1"):
        kernel(values)
    assert kernel.time_evaluator("first_above", tvm.cpu(), number=1)(values, 1.0).mean > 0


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int8", -3), ("uint64", 2**63), ("float16", 0.5), ("bfloat16", 1.5), ("bool", True)],
)
def test_constants_of_every_dtype_are_returned(dtype, value):
    result = Evaluate(tir.ret(const(value, dtype)))
    for ret_type in (PrimType(dtype), None):
        fn = PrimFunc([], result, ret_type, {}, {"global_symbol": "f"})
        got = tvm.build(fn)()
        assert got == value and type(got) is type(value)


def test_a_graph_function_gets_the_value_of_a_loop_function(tmp_path):
    x = Var("x", "int64")
    body = Evaluate(tir.ret(x + 5))
    loops = IRModule({"f": PrimFunc([x], body, PrimType("int64"), {}, {"global_symbol": "f"})})
    b = relax.BlockBuilder(loops)
    n = Var("n", "int64")
    array = relax.Var("array", relax.TensorStructInfo((n,), "float32"))
    with b.function("main", [array], attrs={"relax.force_pure": True}):
        b.emit_func_output(b.emit(relax.Call(loops.get_global_var("f"), [relax.PrimValue(n)])))
    relax.build(b.get(), "llvm").export_library(str(tmp_path / "f.rvm"))
    loaded = tvm.runtime.load_module(str(tmp_path / "f.rvm"))
    for mode in ("bytecode", "compiled"):
        vm = relax.VirtualMachine(loaded, tvm.cpu(), exec_mode=mode)
        assert vm["main"](np.zeros(3, "float32")) == 8
