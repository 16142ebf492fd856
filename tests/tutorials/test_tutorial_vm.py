"""What one can do with an executable and a virtual machine once a model is built."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax
from relaxvm.runtime.vm import VirtualMachine
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

pytestmark = pytest.mark.vm_modes


@I.ir_module
class Model:
    @T.prim_func
    def add_one(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        n = T.int64()
        cls = Model
        with R.dataflow():
            y = R.call_tir(cls.add_one, (x,), out_sinfo=R.Tensor((n, 4), "float32"))
            z = R.call_tir(cls.add_one, (y,), out_sinfo=R.Tensor((n, 4), "float32"))
            R.output(z)
        return z

    @R.function
    def pair(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")) -> R.Tuple(
        R.Tensor(("n", 4), "float32"), R.Tuple(R.Tensor(("n", 4), "float32"))
    ):
        return (y, (x,))

    @R.function
    def choose(cond: R.Tensor((), "bool"), x: R.Tensor((2, 4), "float32")) -> R.Tensor(
        (2, 4), "float32"
    ):
        cls = Model
        if cond:
            w = cls.main(x)
        else:
            w = x
        return w


@pytest.fixture(scope="module")
def ex():
    return relax.build(Model, target="llvm")


@pytest.fixture
def vm(ex):
    return relax.VirtualMachine(ex, tvm.cpu())


@pytest.fixture
def x():
    return np.arange(8, dtype="float32").reshape(2, 4)


def test_the_listing_names_functions_and_kernels(ex):
    text = ex.as_text()
    assert "main(x: Tensor((n, 4), float32))" in text
    assert "add_one" in text
    assert "ret" in text
    assert "def main" in ex.as_python()
    assert "main" in ex.stats()


def test_functions_are_called_by_position_and_by_name(vm, x):
    np.testing.assert_array_equal(vm["main"](tvm.nd.array(x)).numpy(), x + 2)
    np.testing.assert_array_equal(vm["main"](x=x).numpy(), x + 2)


def test_tuples_come_back_nested(vm, x):
    first, (second,) = vm["pair"](x, x * 2)
    np.testing.assert_array_equal(first.numpy(), x * 2)
    np.testing.assert_array_equal(second.numpy(), x)


@pytest.mark.parametrize("flag", [True, False])
def test_branches_take_a_boolean_tensor(vm, x, flag):
    out = vm["choose"](tvm.nd.array(np.array(flag)), x)
    np.testing.assert_array_equal(out.numpy(), x + 2 if flag else x)


def test_saved_functions_keep_their_arguments(vm, x):
    vm.save_function("main", "saved_main", tvm.nd.array(x))
    np.testing.assert_array_equal(vm["saved_main"]().numpy(), x + 2)
    vm.save_function("main", "no_return", x=tvm.nd.array(x), include_return=False)
    assert vm["no_return"]() is None


def test_stateful_calls_set_inputs_invoke_and_get_outputs(vm, x):
    vm.set_input("main", tvm.nd.array(x))
    vm.invoke_stateful("main")
    np.testing.assert_array_equal(vm.get_outputs("main").numpy(), x + 2)
    vm.set_input("pair", x=x, y=x)
    vm.invoke_stateful("pair")
    outputs = vm.get_outputs("pair")
    np.testing.assert_array_equal(outputs[0].numpy(), x)
    np.testing.assert_array_equal(outputs[1][0].numpy(), x)


def test_time_evaluators_measure_functions(vm, x):
    arg = tvm.nd.array(x)
    one = vm.time_evaluator("main", tvm.cpu(), number=2, repeat=2)(arg)
    two = vm.module.time_evaluator("main", dev=tvm.cpu(), number=2)(arg)
    vm.save_function("main", "timed", arg)
    three = vm.time_evaluator("timed", tvm.cpu())()
    assert min(one.mean, two.mean, three.mean) > 0
    assert len(one.results) == 2


def test_an_instrument_sees_every_call_and_may_skip_it(vm, x):
    seen = []

    def watch(func, func_symbol, before_run, ret_value, *args):
        if before_run:
            seen.append(func_symbol)
        return relax.VMInstrumentReturnKind.NO_OP

    vm.set_instrument(watch)
    vm["main"](x)
    # Both calls of add_one are one kernel.
    assert seen.count("fused_add_one") == 1


def test_the_profiler_free_vm_is_the_same_class():
    assert relax.VirtualMachine is VirtualMachine


def test_the_executable_is_saved_and_loaded(ex, tmp_path, x):
    path = tmp_path / "compiled_artifact.so"
    ex.export_library(str(path))
    loaded = tvm.runtime.load_module(str(path))
    out = relax.VirtualMachine(loaded, tvm.cpu())["main"](x)
    np.testing.assert_array_equal(out.numpy(), x + 2)
    np.testing.assert_array_equal(ex.mod["main"](x).numpy(), x + 2)


def test_the_builder_of_bytecode_makes_programs_by_hand(x):
    ib = relax.ExecBuilder()
    with ib.function("func0", num_inputs=2):
        ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))

    @tvm.register_func("test.vm.add", override=True)
    def add(a, b):
        return tvm.nd.array(a.numpy() + b.numpy())

    try:
        vm = relax.VirtualMachine(ib.get(), tvm.cpu())
        np.testing.assert_array_equal(vm["func0"](x, x).numpy(), x + x)
    finally:
        tvm.runtime.remove_global_func("test.vm.add")


def test_recursive_graph_functions_run():
    @I.ir_module
    class Count:
        @R.function
        def down(n: R.Tensor((), "int64"), acc: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
            cls = Count
            done: R.Tensor((), "bool") = R.equal(n, R.const(0, "int64"))
            if done:
                r = acc
            else:
                less: R.Tensor((), "int64") = R.subtract(n, R.const(1, "int64"))
                more: R.Tensor((), "int64") = R.add(acc, n)
                r = cls.down(less, more)
            return r

    vm = relax.VirtualMachine(relax.build(Count, "llvm"), tvm.cpu())
    assert int(vm["down"](np.array(10), np.array(0)).numpy()) == 55
