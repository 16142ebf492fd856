"""Scalars: floating ones and bools too are computed and passed; views of memory."""

import numpy as np
import pytest
from relax_vm_helpers import bindings_of, lowered, value

from relaxvm import cpu, relax, tir
from relaxvm.base import StructInfoError, VMError, VMTypeError, VMValueError
from relaxvm.relax import BlockBuilder, PrimStructInfo, PrimValue, TensorStructInfo, Var
from relaxvm.relax.transform import ComputeFloatScalars
from relaxvm.runtime import VirtualMachine
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

both = pytest.mark.parametrize("mode", ["bytecode", "compiled"])


def f32(*values):
    return np.array(values, "float32")


def machine(mod, mode="bytecode", **options):
    return VirtualMachine(relax.build(mod, "llvm"), cpu(), exec_mode=mode, **options)


def floats(make, dtype="float32"):
    """A module whose main takes a scalar `s` and a vector of n elements, and gives what `make`
    makes of these symbols and of the vector.
    """
    s, n = tir.Var("s", dtype), tir.Var("n", "int64")
    p, x = Var("p", PrimStructInfo(value=s)), Var("x", TensorStructInfo((n,), "float32"))
    b = BlockBuilder()
    with b.function("main", [p, x]):
        made = make(s, n, x)
        b.emit_func_output(b.emit(made) if isinstance(made, relax.Expr) else made)
    return b.get()


@both
def test_floating_expressions_are_computed_in_their_dtype(mode):
    def make(s, n, x):
        exprs = [
            s * 2.0 + 1.0,
            tir.sqrt(n.astype("float32")) / s,
            tir.exp(s).astype("float64"),
            tir.floor(s * 10.0).astype("int64"),
            s > 0.5,
            tir.popcount(n),
        ]
        return tuple(PrimValue(e) for e in exprs)

    vm = machine(floats(make), mode)
    for s in (0.7, 0.3):
        got = vm["main"](s, f32(1, 2, 3))
        single = np.float32(s)
        assert got[0] == single * np.float32(2) + np.float32(1)
        np.testing.assert_allclose(got[1], np.sqrt(np.float32(3)) / single, rtol=1e-6)
        np.testing.assert_allclose(got[2], np.exp(single), rtol=1e-6)
        assert got[3:] == (int(np.floor(single * np.float32(10))), s > 0.5, 2)
        assert [type(g) for g in got] == [float, float, float, int, bool, int]


@both
def test_floating_scalars_are_operands_conditions_and_arguments(mode):
    s, n = tir.Var("s", "float32"), tir.Var("n", "int64")
    p, x = Var("p", PrimStructInfo(value=s)), Var("x", TensorStructInfo((n,), "float32"))
    b = BlockBuilder()
    with b.function("main", [p, x], pure=False):
        b.begin_scope()
        on_true = b.end_scope(b.emit(relax.op.multiply(x, PrimValue(s * 2.0))))
        b.begin_scope()
        on_false = b.end_scope(b.emit(relax.op.add(x, PrimValue(s))))
        y = b.emit(relax.If(PrimValue(s * s > 0.5), on_true, on_false))
        seen = relax.op.call_packed("see", PrimValue(s * 2.0), sinfo_args=relax.ObjectStructInfo())
        b.emit(seen)
        b.emit_func_output(y)
    seen = []
    vm = machine(b.get(), mode, functions={"see": seen.append})
    assert value(vm["main"](2.0, f32(1, 2))).tolist() == [4, 8]
    assert value(vm["main"](0.5, f32(1, 2))).tolist() == [1.5, 2.5]
    assert seen == [4.0, 1.0]


@both
def test_scalars_of_unknown_value_are_operands(mode):
    @I.ir_module
    class M:
        @R.function
        def main(
            s: R.Prim("float32"),
            t: R.Prim("float32"),
            b: R.Prim("bool"),
            i: R.Prim("int32"),
            u: R.Prim("int64"),
            x: R.Tensor((4,), "float32"),
        ):
            p = R.add(s, t)
            q = R.multiply(x, p)
            w = R.where(b, q, x)
            j = R.add(i, i)
            z = R.add(R.astype(x, "int32"), j)
            return (p, w, j, z, R.multiply(u, u))

    vm, x = machine(M, mode), f32(0, 1, 2, 3)
    for flag in (True, False):
        p, w, j, z, uu = vm["main"](2.5, 1.25, flag, 3, 9, x)
        assert (p, j, uu) == (3.75, 6, 81)
        np.testing.assert_array_equal(w.numpy(), x * 3.75 if flag else x)
        np.testing.assert_array_equal(z.numpy(), x.astype("int32") + 6)
    with pytest.raises(VMTypeError, match=r"parameter s: wanted Prim\(float32\)"):
        vm["main"]("a", 1.0, True, 3, 9, x)


def test_equal_scalars_share_a_kernel_and_are_computed_once():
    mod = floats(lambda s, n, x: tuple(PrimValue(e) for e in (s * 2.0, s * 2.0, s + 1.0)))
    low = ComputeFloatScalars()(mod)
    kernels = [gv for gv in low if gv.name_hint.startswith("compute_scalar")]
    assert len(kernels) == 2
    assert len([b for b in bindings_of(low["main"]) if b.var.name_hint == "scalar"]) == 2
    unchanged = floats(lambda s, n, x: PrimValue(n * 2 + 1))
    assert ComputeFloatScalars()(unchanged) is unchanged
    assert not any("compute_scalar" in gv.name_hint for gv in lowered(unchanged))


def test_a_symbol_of_another_dtype_reads_back_from_its_text():
    mod = floats(lambda s, n, x: PrimValue(s * 2.0), "float64")
    again = from_source(mod.script())
    assert again["main"].params[0].struct_info.value.dtype == "float64"
    assert machine(again)["main"](0.1, f32(1)) == 0.2


def test_a_python_number_does_not_hide_a_symbol_of_its_name():
    n = 5

    @R.function
    def f(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        return R.reshape(x, R.shape([n, 1]))

    @R.function
    def g(x: R.Tensor(("n", "m"), "float32")):
        return x

    assert n == 5
    assert f.params[0].struct_info.dims[0].name == "n"
    assert g.params[0].struct_info.dims[0].name == "n"


@both
def test_views_of_another_dtype_and_place(mode):
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor((4,), "float32"), o: R.Prim(value="k")):
            k = T.int64()
            y = R.add(x, R.const(1.0, "float32"))
            a = R.memory.view(y, R.shape([2, 8]), "uint8")
            b = R.memory.view(y, R.shape([2]), R.dtype("float32"), R.prim_value(8))
            c = R.memory.view(y, R.shape([2, 2]))
            d = R.memory.view(y, R.shape([1]), R.dtype("int32"), R.prim_value(k * 4))
            e = R.add(R.memory.view(y, R.shape([0]), "float64"), R.const(1.0, "float64"))
            return (a, b, c, d, e)

    vm, x = machine(M, mode), f32(0, 1, 2, 3)
    for k in (0, 3):
        a, b, c, d, e = map(value, vm["main"](x, k))
        y = x + 1
        np.testing.assert_array_equal(a, y.view("uint8").reshape(2, 8))
        np.testing.assert_array_equal(b, y[2:])
        np.testing.assert_array_equal(c, y.reshape(2, 2))
        np.testing.assert_array_equal(d, y[k : k + 1].view("int32"))
        assert e.shape == (0,) and e.dtype == "float64"
    for k in (4, -1, 1 << 60):
        with pytest.raises(VMValueError, match="view: int32 tensor of shape"):
            vm["main"](x, k)


@both
def test_the_parts_of_a_view_that_are_left_out_are_those_of_the_tensor(mode):
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor(("n", 6), "float32"), u: R.Tensor("float32", ndim=1)):
            n = T.int64()
            y = R.add(x, R.const(1.0, "float32"))
            a = R.memory.view(y, dtype="int32")
            b = R.memory.view(y, R.shape([n, 2]))
            c = R.memory.view(y, R.shape([n - 1, 6]), relative_byte_offset=R.prim_value(24))
            d = R.memory.view(u, dtype="uint8")
            e = R.memory.view(y, R.tuple(), R.dtype("float16"), R.tuple())
            f = R.memory.view(u, relative_byte_offset=R.prim_value(0))
            return (a, b, c, d, e, f)

    x, u = np.arange(12, dtype="float32").reshape(2, 6), f32(1, 2, 3)
    y = x + 1
    got = [value(v) for v in machine(M, mode)["main"](x, u)]
    flat = y.reshape(-1)
    wanted = [y.view("int32"), flat[:4].reshape(2, 2), y[1:], u.view("uint8")[:3]]
    wanted += [flat.view("float16")[:12].reshape(2, 6), u]
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(g, w, strict=True)


def test_a_view_that_is_sure_to_end_beyond_its_tensor_is_refused():
    n = tir.Var("n", "int64")
    x, y = (Var("x", TensorStructInfo(s, "uint8")) for s in ((n,), (16,)))
    unknown = Var("u", TensorStructInfo(None, "float32"))
    view = R.memory.view
    for message, build in {
        "the view ends at n + 1": lambda: view(x, R.shape([n + 1])),
        "wanted at most n bytes": lambda: view(x, R.shape([n // 4 + 1, 4])),
        "the view ends at 32": lambda: view(y, dtype="float16"),
        "data from byte 4 on would end beyond": lambda: view(y, relative_byte_offset=4),
        "the view ends at 17": lambda: view(y, R.shape([1]), relative_byte_offset=16),
        "would end beyond data": lambda: view(unknown, relative_byte_offset=16),
        "shape: wanted a shape": lambda: view(y, R.prim_value(42)),
        "wanted the dtype of an array": lambda: view(y, dtype="void"),
        "a multiple of the 4 bytes of float32, got 2": lambda: view(
            y, R.shape([1]), "float32", relative_byte_offset=2
        ),
        "wanted at least 0, got -1": lambda: view(y, R.shape([1]), relative_byte_offset=-1),
        "relative_byte_offset: wanted an integer": lambda: view(
            y, R.shape([1]), relative_byte_offset=R.prim_value(1.0)
        ),
    }.items():
        with pytest.raises(StructInfoError, match=message.replace("+", r"\+")):
            build()
    assert view(x, R.shape([(n + 3) // 4, 4])).struct_info.ndim == 2


@both
def test_a_printed_tuple_and_a_failed_assertion_show_values(mode, capsys):
    @I.ir_module
    class M:
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32"), ok: R.Tensor((), "bool")):
            _ = R.print((x, (x, R.shape([2]))), format="{}")
            _1 = R.print(x)
            _2 = R.assert_op(ok, [x, R.const(7)])
            return x

    vm = machine(M, mode)
    vm["main"](f32(1, 2), np.array(True))
    assert capsys.readouterr().out == "([1. 2.], ([1. 2.], (2,)))\n[1. 2.]\n"
    with pytest.raises(VMError, match=r"assertion failed: \[1. 2.\], 7"):
        vm["main"](f32(1, 2), np.array(False))


def test_a_misaligned_view_is_refused():
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor((4,), "uint8"), o: R.Prim(value="k")):
            k = T.int64()
            return R.memory.view(x, R.shape([1]), R.dtype("int16"), R.prim_value(k))

    vm, x = machine(M), np.arange(4, dtype="uint8")
    assert value(vm["main"](x, 2)).tolist() == x[2:].view("int16").tolist()
    with pytest.raises(VMValueError, match="multiple of 2, got 1"):
        vm["main"](x, 1)
