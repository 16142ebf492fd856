"""Spellings that changed over the years: the old and the new mean one program."""

import numpy as np
import pytest
from relaxvm.ir.base import assert_structural_equal
from relaxvm.script.parser import ir as I
from relaxvm.script.parser import relax as R
from relaxvm.script.parser import tir as T

import relaxvm as tvm
import relaxvm.script
import relaxvm.testing
from relaxvm import relax, tir


@T.prim_func
def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in T.serial(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] * T.float32(2)


HEAD = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in T.serial(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Module
        with R.dataflow():
            y = {call}
            R.output(y)
        return y
"""
KERNEL_CALLS = [
    'R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((4,), dtype="float32"))',
    'R.call_tir(cls.double, (x,), R.Tensor((4,), "float32"))',
    'R.call_tir(cls.double, [x], R.Tensor([4], "float32"))',
    'R.call_tir(cls.double, x, R.Tensor((4,), "float32"))',
    'R.call_tir(cls.double, (x,), (4,), dtype="float32")',
    'R.call_tir(double, (x,), (4,), dtype="float32")',
    'R.call_tir(Module.double, R.tuple(x), R.Tensor((4,), "float32"))',
]
LIBRARY_CALLS = [
    'R.call_dps_packed("env.f", (x,), out_sinfo=R.Tensor((4,), "float32"))',
    'R.call_dps_packed("env.f", (x,), R.Tensor((4,), "float32"))',
    'R.call_dps_packed("env.f", x, R.Tensor((4,), "float32"))',
    'R.call_tir("env.f", (x,), (4,), dtype="float32")',
    'R.call_tir("env.f", (x,), R.Tensor((4,), "float32"))',
]


@pytest.mark.parametrize("call", KERNEL_CALLS)
def test_every_spelling_of_a_kernel_call_is_the_same_call(call):
    first = tvm.script.from_source(HEAD.replace("{call}", KERNEL_CALLS[0]))
    assert_structural_equal(tvm.script.from_source(HEAD.replace("{call}", call)), first)


@pytest.mark.parametrize("call", LIBRARY_CALLS)
def test_every_spelling_of_a_library_call_runs_the_same(call):
    @tvm.register_func("env.f", override=True)
    def negate(x, out):
        np.negative(x.numpy(), out=out.numpy())

    try:
        ex = relax.build(tvm.script.from_source(HEAD.replace("{call}", call)), "llvm")
        out = relax.VirtualMachine(ex, tvm.cpu())["main"](np.arange(4, dtype="float32"))
        np.testing.assert_array_equal(out.numpy(), -np.arange(4, dtype="float32"))
    finally:
        tvm.runtime.remove_global_func("env.f")


@pytest.mark.parametrize(
    "annotation",
    [
        'T.Buffer((1, 784), "float32")',
        'T.Buffer[(1, 784), "float32"]',
        'T.Buffer([1, 784], dtype="float32")',
        "T.Buffer((1, 784))",
        'T.Buffer((T.int64(1), T.int64(784)), "float32")',
    ],
)
def test_buffer_annotations_take_all_their_spellings(annotation):
    text = f"@T.prim_func\ndef f(A: {annotation}):\n    A[0, 0] = T.float32(0)"
    f = tvm.script.from_source(text)
    (buffer,) = f.buffer_map.values()
    assert [int(d) for d in buffer.shape] == [1, 784]
    assert str(buffer.dtype) == "float32"


@pytest.mark.parametrize(
    "annotation",
    [
        'R.Tensor(("m", "n"), "float32")',
        'R.Tensor(("m", "n"), dtype="float32")',
        'R.Tensor(["m", "n"], "float32")',
    ],
)
def test_tensor_annotations_take_all_their_spellings(annotation):
    first = tvm.script.from_source(
        '@R.function\ndef f(x: R.Tensor(("m", "n"), "float32")):\n    return x'
    )
    text = f"@R.function\ndef f(x: {annotation}):\n    return x"
    assert_structural_equal(tvm.script.from_source(text), first)


def test_tensor_without_its_prefix_and_tir_symbols_declared_in_the_body():
    from relaxvm.script.relax import Tensor

    @tvm.script.ir_module
    class Old:
        @R.function
        def main(x: Tensor((4, 5), "float32")):
            return x

    @I.ir_module
    class New:
        @R.function
        def main(x: R.Tensor((4, 5), "float32")):
            return x

    tvm.ir.assert_structural_equal(Old, New)


def test_sblock_is_block():
    old = """
@T.prim_func
def f(A: T.Buffer((4,))):
    for i in range(4):
        with T.{}("b"):
            vi = T.axis.spatial(4, i)
            A[vi] = T.float32(1)
"""
    assert_structural_equal(
        tvm.script.from_source(old.format("sblock")), tvm.script.from_source(old.format("block"))
    )


@pytest.mark.parametrize(
    "make",
    [tvm.nd.array, tvm.runtime.tensor, tvm.runtime.from_dlpack, tvm.runtime.convert, np.asarray],
    ids=["nd.array", "runtime.tensor", "from_dlpack", "convert", "numpy"],
)
def test_every_kind_of_array_is_an_argument(make):
    x = make(np.arange(4, dtype="float32"))
    out = tvm.nd.empty((4,), "float32")
    tvm.build(double, "llvm")["double"](x, out)
    np.testing.assert_array_equal(out.numpy(), np.arange(4) * 2)


def test_nd_array_has_the_methods_tutorials_use():
    x = tvm.nd.array(np.arange(6, dtype="int32").reshape(2, 3), device=tvm.cpu())
    assert isinstance(x, tvm.nd.NDArray)
    assert isinstance(x, tvm.runtime.NDArray)
    assert isinstance(x, tvm.runtime.Tensor)
    assert (x.shape, str(x.dtype), x.device) == ((2, 3), "int32", tvm.cpu(0))
    np.testing.assert_array_equal(x.asnumpy(), x.numpy())
    y = tvm.nd.empty((2, 3), "int32", tvm.device("cpu", 0))
    x.copyto(y)
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    y.copyfrom(np.zeros((2, 3), "int32"))
    assert not y.numpy().any()
    x[:] = np.ones((2, 3), "int32")
    assert x.numpy().sum() == 6


MODULE = tvm.script.from_source(HEAD.replace("{call}", KERNEL_CALLS[0]))


@pytest.mark.parametrize(
    "build",
    [
        lambda mod: relax.vm.build(mod, target="llvm"),
        lambda mod: relax.vm.build(mod, "llvm"),
        lambda mod: relax.vm_build.build(mod, "llvm"),
        lambda mod: relax.build(mod, target=tvm.target.Target("llvm")),
        lambda mod: relax.build(mod, "llvm", exec_mode="bytecode"),
        lambda mod: relax.build(mod, target="llvm", relax_pipeline=relax.get_pipeline("default")),
        lambda mod: tvm.compile(mod, target="llvm"),
        lambda mod: tvm.build(mod, "llvm"),
        lambda mod: tvm.relax.build(relax.get_pipeline("zero")(mod), "llvm"),
    ],
)
def test_every_way_to_build_gives_the_same_program(build):
    ex = build(MODULE)
    out = relax.VirtualMachine(ex, tvm.cpu())["main"](np.ones(4, "float32"))
    np.testing.assert_array_equal(out.numpy(), np.full(4, 2, "float32"))


def test_the_target_can_come_from_the_context():
    with tvm.target.Target("llvm"):
        ex = relax.build(MODULE)
        rt = tvm.build(double)
    assert relax.VirtualMachine(ex, [tvm.cpu()])["main"](np.ones(4, "float32")).numpy().sum() == 8
    assert "double" in rt.get_source("llvm")


@pytest.mark.parametrize(
    ("register", "name"),
    [
        (tvm.register_func, "demo.first"),
        (tvm.register_global_func, "demo.second"),
        (tvm.runtime.register_func, "demo.third"),
    ],
)
def test_functions_are_registered_and_found_by_name(register, name):
    @register(name)
    def f(a, b):
        return a + b

    try:
        assert tvm.get_global_func(name)(1, 2) == 3
        assert name in tvm.runtime.list_global_func_names()
        with pytest.raises(tvm.TVMError, match=name):
            register(name, f)
        register(name, f, override=True)
    finally:
        tvm.runtime.remove_global_func(name)
    assert tvm.get_global_func(name, allow_missing=True) is None


def test_struct_info_is_reached_under_both_of_its_words():
    x = relax.Var("x", R.Tensor((2, "n"), "float32"))
    assert x.struct_info is x.struct_info_
    assert isinstance(x.struct_info.shape, relax.ShapeExpr)
    assert x.struct_info.ndim == 2
    assert isinstance(x.struct_info.shape[1], tir.Var)
    n = tir.Var("n", "int64")
    assert relax.ShapeStructInfo([n, 2]) == relax.ShapeStructInfo((n, 2))
    assert relax.TensorStructInfo([n], "float32") == relax.TensorStructInfo((n,), dtype="float32")


def test_assert_allclose_of_the_testing_module_reads_arrays():
    relaxvm.testing.assert_allclose(tvm.nd.array(np.ones(3)), np.ones(3))
    with pytest.raises(AssertionError):
        tvm.testing.assert_allclose(tvm.nd.array(np.ones(3)), np.zeros(3))


def test_what_decorated_classes_buffers_and_struct_info_answer():
    @I.ir_module
    class Named:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            return x

    assert Named.__name__ == "Named"
    assert tvm.IRModule.__name__ == "IRModule"
    s, o = tir.Var("s", "int64"), tir.Var("o", "int64")
    buffer = tir.decl_buffer((4, 8), "float32x2", strides=[s, 1], elem_offset=o)
    (offset,) = buffer.offset_of([1, 2])
    assert tvm.arith.Analyzer().can_prove_equal(offset, o + s + 2)
    flat = tir.decl_buffer((4, 8), "float32x2").get_flattened_buffer()
    assert ([int(d) for d in flat.shape], flat.dtype) == ([64], "float32")
    coarse = relax.TensorStructInfo(ndim=2, dtype="float32")
    fine = relax.TensorStructInfo((2, 3), "float32")
    assert coarse.is_base_of(fine)
    assert not fine.is_base_of(coarse)
    assert tvm.nd.device("cpu") == tvm.cpu()
