"""Loop functions that return a value, called directly by graph functions and run."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax
from relaxvm.runtime.executable import load
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


def run(mod, name, *args):
    """What the function gives in both ways of running, and saved and loaded: the same."""
    results = []
    for mode in ("bytecode", "compiled"):
        built = relax.build(mod, "llvm", exec_mode=mode)
        for ex in (built, load(built.to_bytes())):
            vm = relax.VirtualMachine(ex, tvm.cpu(), exec_mode=mode)
            results.append(vm[name](*args))
    first = results[0]
    assert all(type(r) is type(first) and r == first for r in results), results
    return first


SCALAR = """
@I.ir_module
class Module:
    @T.prim_func
    def twice(x: T.{dtype}) -> T.{dtype}:
        T.ret(x + x)

    @R.function(pure=False)
    def main(x: R.Prim("{dtype}")):
        y = Module.twice(x)
        z = Module.twice(y)
        return z
"""


@pytest.mark.parametrize(
    ("dtype", "x", "wanted"),
    [
        ("int8", 40, -96),
        ("uint8", 60, 240),
        ("int32", 1 << 30, 0),
        ("int64", -3, -12),
        ("uint64", (1 << 62) + 1, 4),
        ("float16", 0.1, float(np.float16(0.1) * np.float16(4))),
        ("float32", 0.1, float(np.float32(0.1) * np.float32(4))),
        ("float64", 0.1, 0.4),
    ],
)
def test_scalars_of_every_kind_go_in_and_come_out(dtype, x, wanted):
    assert run(from_source(SCALAR.format(dtype=dtype)), "main", x) == wanted


@I.ir_module
class Module:
    @T.prim_func
    def count(a: T.handle, least: T.float32) -> T.int64:
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        total = T.alloc_buffer((1,), "int64")
        total[0] = T.int64(0)
        for i in range(n):
            if A[i] >= least:
                total[0] = total[0] + T.int64(1)
        T.ret(total[0])

    @T.prim_func
    def any_below(a: T.handle, most: T.float32) -> T.bool:
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        for i in range(n):
            if A[i] < most:
                T.ret(T.bool(True))
        T.ret(T.bool(False))

    @R.function(pure=False)
    def counted(x: R.Tensor(("n",), "float32")):
        k = Module.count(x, R.prim_value(T.float32(0.5)))
        return k

    @R.function(pure=False)
    def chosen(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        low = Module.any_below(x, R.prim_value(T.float32(0)))
        if low:
            y: R.Tensor((n,), "float32") = R.negative(x)
            r = y
        else:
            z: R.Tensor((n,), "float32") = R.add(x, x)
            r = z
        return r

    @R.function(pure=False)
    def sized(x: R.Tensor(("n",), "float32")):
        k = Module.count(x, R.prim_value(T.float32(0.5)))
        j = T.int64()
        _ = R.match_cast(k, R.Prim(value=j))
        y = R.ones((j,), "float32")
        return y


def test_the_value_may_depend_on_what_arrays_hold():
    x = np.array([0.25, 0.5, 0.75, 1, 0], "float32")
    assert run(Module, "counted", x) == 3
    assert run(Module, "counted", x[:0]) == 0


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_the_value_may_choose_a_branch_and_a_size(mode):
    vm = relax.VirtualMachine(
        relax.build(Module, "llvm", exec_mode=mode), tvm.cpu(), exec_mode=mode
    )
    for x in (np.array([1, -2, 3], "float32"), np.array([1, 2, 3, 4], "float32")):
        wanted = -x if (x < 0).any() else x + x
        np.testing.assert_array_equal(vm["chosen"](x).numpy(), wanted)
        assert vm["sized"](x).shape == (int((x >= 0.5).sum()),)


@I.ir_module
class Effects:
    @T.prim_func
    def add_one(a: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32")):
        for i in range(2):
            b[i] = a[i] + 1.0

    @T.prim_func(private=True)
    def twice(n: T.int64) -> T.int64:
        T.ret(n * 2)

    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32"), n: R.Prim("int64")):
        y = R.builtin.alloc_tensor(R.shape([2]), "float32", 0, "global")
        nothing = Effects.add_one(x, y)
        again = Effects.add_one(y, y)
        m = Effects.twice(n)
        return (y, m, nothing)

    @R.function
    def flow(n: R.Prim("int64")):
        with R.dataflow():
            m = Effects.twice(n)
            k = Effects.twice(m)
            R.output(k)
        return k


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_a_loop_function_that_returns_nothing_writes_into_its_arguments(mode):
    vm = relax.VirtualMachine(
        relax.build(Effects, "llvm", exec_mode=mode), tvm.cpu(), exec_mode=mode
    )
    y, m, nothing = vm["main"](np.array([1, 2], "float32"), 21)
    np.testing.assert_array_equal(y.numpy(), [3, 4])
    assert (m, len(nothing)) == (42, 0)
    assert vm["flow"](5) == 20


@I.ir_module
class Nothing:
    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32")):
        a = R.print(x)
        b = R.assert_op(R.const(True), x)
        c = R.call_packed("tests.nothing", x, sinfo_args=R.Tuple(()))
        d = Nothing.inner(a)
        return (a, b, c, d)

    @R.function
    def inner(x: R.Tuple(())):
        return x


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_what_runs_for_its_effect_gives_the_empty_tuple(mode, capsys):
    tvm.register_func("tests.nothing", lambda x: None, override=True)
    vm = relax.VirtualMachine(
        relax.build(Nothing, "llvm", exec_mode=mode), tvm.cpu(), exec_mode=mode
    )
    assert [len(v) for v in vm["main"](np.ones(2, "float32"))] == [0] * 4


def test_loop_functions_have_signatures_that_their_global_variables_do_not():
    n = tvm.tir.Var("n", "int64")
    info = Module["count"].struct_info
    assert info == relax.FuncStructInfo(
        (R.Tensor((n,), "float32"), R.Prim("float32")), R.Prim("int64")
    )
    assert info.params[0].shape.values[0] is Module["count"].buffers[0].shape[0]
    assert info.purity and not Effects["add_one"].struct_info.purity
    assert Effects["add_one"].struct_info.ret == R.Tuple(())
    assert Module.get_global_var("count").struct_info is None
    for mod in (Module, Effects):
        for fn in mod.functions.values():
            if isinstance(fn, tvm.tir.PrimFunc):
                dtype = getattr(fn.ret_type, "dtype", None)
                assert fn.struct_info.ret == relax.analysis.loop_result(dtype)


def test_the_signature_of_a_loop_function_of_32_bit_sizes_has_dimensions_of_64_bits():
    @T.prim_func
    def f(a: T.handle, p: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 4), "int8")
        T.evaluate(A[0, 0])

    info = f.struct_info
    assert [d.dtype for d in info.params[0].dims] == ["int64", "int64"]
    assert info.params[1] == R.Object()
